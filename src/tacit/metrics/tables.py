"""Tables of counts that an evaluation releases, and what is read from them.

Each unit is in one cell of each table: the last one is for those of whom nothing is known, such as
a label that the model has not. What tables there are follows from public facts
alone: classes, bounds of the target, groups, and how much noise there will be.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from tacit.metrics.bins import bins_for, dither, place, probability_edges, signed_knots
from tacit.metrics.conformal import Scores
from tacit.metrics.counts import Counts
from tacit.metrics.errors import Errors
from tacit.metrics.figures import ANYTHING, Binary
from tacit.metrics.intervals import Estimate, combine, interval, linear

MOST_CURVES = 10  # classes that have a curve each: every one of them is a table more
OTHER = "other"  # group of whoever is in none of those that were named


@dataclass(frozen=True)
class Reading:
    """What counts say: figures by name, and more where there is more to show.

    Attributes
    ----------
    figures : dict of str to Estimate
        By scikit-learn's names.
    curves : dict
        Points of curves, by name.
    calibration : list of dict
        Bins of the predicted probability, with the observed share.
    confusion : list of lists of Estimate
        Shares of (true, predicted) classes in all units.
    classes : dict of str to dict
        Figures of every class against the others, where there are more than two.
    """

    figures: dict[str, Estimate]
    curves: dict[str, Any] = field(default_factory=dict)
    calibration: list[dict[str, Any]] = field(default_factory=list)
    confusion: list[list[Estimate]] = field(default_factory=list)
    classes: dict[str, dict[str, Estimate]] = field(default_factory=dict)


class Tables(ABC):
    """Which tables there are, which cells a unit is in, and what is read from them."""

    groups: Sequence[str]

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Cells of each table, those of all groups together, and one for who is in none of them."""

    @abstractmethod
    def cells(self, truth: np.ndarray, scores: np.ndarray, coins: np.ndarray) -> list[np.ndarray]:
        """The cell of every unit in each table of one group; −1 for none.

        Parameters
        ----------
        truth : ndarray of shape (n,)
            Positions among the classes (−1: none of them), or numbers.
        scores : ndarray of shape (n,) or (n, classes)
            Of the model.
        coins : ndarray of shape (n,)
            From 0 to 1, public.

        Returns
        -------
        list of ndarray of shape (n,)
            One for each table.
        """

    @abstractmethod
    def read(self, noisy: Sequence[np.ndarray], deviation: float, total: int | None) -> _Groups:
        """Counts of every table as estimates, that give a reading for any set of groups.

        Parameters
        ----------
        noisy : sequence of ndarray
            Counts with noise.
        deviation : float
            Of that noise.
        total : int or None
            Units in all cells of a table, where their number is public.

        Returns
        -------
        _Groups
            Whose ``reading`` takes the groups to be read.
        """

    @abstractmethod
    def reading(self, tables: Sequence[Counts]) -> Reading:
        """Everything that the tables of one group say, or of all groups together.

        Parameters
        ----------
        tables : sequence of Counts
            As many as there are tables.

        Returns
        -------
        Reading
            Figures, and what there is to show.
        """

    @abstractmethod
    def strangeness(self) -> tuple[list[np.ndarray | None], np.ndarray]:
        """Which cells of each table hold units up to every edge of how strange they are.

        Returns
        -------
        sums : list of (ndarray of shape (B, cells) or None)
            For each table, those of one group; None if it is not used.
        edges : ndarray of shape (B,)
            Rising.
        """

    def count(
        self, truth: np.ndarray, scores: np.ndarray, by: np.ndarray, coins: np.ndarray
    ) -> list[np.ndarray]:
        """How many units are in which cell.

        Parameters
        ----------
        truth, scores, coins : ndarray
            As of `cells`.
        by : ndarray of shape (n,)
            Positions of the units' groups.

        Returns
        -------
        list of ndarray of int
            One for each table.
        """
        counted = []
        for cells, size in zip(self.cells(truth, scores, coins), self.sizes, strict=True):
            width = (size - 1) // len(self.groups)
            counted.append(
                np.bincount(np.where(cells >= 0, by * width + cells, size - 1), minlength=size)
            )
        return counted


@dataclass(frozen=True)
class ClassTables(Tables):
    """Tables of a classifier: class × predicted class, and class × bin of the score.

    Parameters
    ----------
    classes : sequence of str
        Names of the classes.
    bins : int
        Of scores.
    groups : sequence of str
        Names of groups that are told apart.
    probabilities : bool
        Whether scores are probabilities.
    confidence : float
        Of intervals.
    """

    classes: Sequence[str]
    bins: int
    groups: Sequence[str] = ("",)
    probabilities: bool = True
    confidence: float = 0.95

    @classmethod
    def number(cls, classes: int) -> int:
        """How many tables there are, which is the squared norm of what a unit contributes."""
        return 2 if classes == 2 else 1 + classes if classes <= MOST_CURVES else 1

    @property
    def curved(self) -> int:
        """How many classes have a curve of their own."""
        many = len(self.classes)
        return 1 if many == 2 else many if many <= MOST_CURVES else 0

    @property
    def sizes(self) -> tuple[int, ...]:
        many, groups = len(self.classes), len(self.groups)
        return (groups * many**2 + 1, *[groups * 2 * self.bins + 1] * self.curved)

    def cells(self, truth: np.ndarray, scores: np.ndarray, coins: np.ndarray) -> list[np.ndarray]:
        many, edges = len(self.classes), probability_edges(self.bins)
        if many == 2:
            bins = place(scores, edges)
            guess = (bins >= self.bins // 2).astype(np.int64)
            found = [truth * 2 + guess, truth * self.bins + bins]
        else:
            found = [truth * many + scores.argmax(axis=1)]
            for k in range(self.curved):
                found.append((truth == k) * self.bins + place(scores[:, k], edges))
        return [np.where(truth >= 0, cells, -1) for cells in found]

    def read(self, noisy: Sequence[np.ndarray], deviation: float, total: int | None) -> _Groups:
        many = len(self.classes)
        if many == 2:  # the first table is sums of the second
            half = self.bins // 2
            sums = block_diag(np.kron(np.eye(4 * len(self.groups)), np.ones((1, half))), 1.0)
            fine = Counts.of(noisy[1], deviation, total=total, sums=sums, noisy_sums=noisy[0])
            return _Groups(self, [fine.gathered(sums), fine])
        return _Groups(self, [Counts.of(table, deviation, total=total) for table in noisy])

    def reading(self, tables: Sequence[Counts]) -> Reading:
        confusion, edges = tables[0], probability_edges(self.bins)
        sides = [Binary(table, edges, self.confidence) for table in tables[1:]]
        shares = self._shares(confusion)
        if len(self.classes) == 2:
            (side,) = sides
            figures = side.figures(probabilities=self.probabilities)
            figures["majority"] = _largest([side.prevalence()])
            calibration = side.calibration() if self.probabilities else []
            return Reading(figures, side.curves(), calibration, shares)
        by_class = self._by_class(confusion)
        for name, side in zip(self.classes, sides, strict=False):
            by_class[name] |= {
                "roc_auc": side.roc_auc(),
                "average_precision": side.average_precision(),
            }
        figures = self._overall(confusion, by_class, sides)
        curves = {name: side.curves() for name, side in zip(self.classes, sides, strict=False)}
        return Reading(figures, curves, [], shares, by_class)

    def strangeness(self) -> tuple[list[np.ndarray | None], np.ndarray]:
        if not self.curved:
            return [np.ones((1, len(self.classes) ** 2))], np.full(1, math.inf)
        likely = np.tril(np.ones((self.bins, self.bins)))[:, ::-1]  # of its own class, from the top
        other = likely[:, ::-1] if len(self.classes) == 2 else np.zeros_like(likely)
        edges = 1 - probability_edges(self.bins)[:-1][::-1]
        return [None, *[np.hstack([other, likely])] * self.curved], edges

    def _shares(self, confusion: Counts) -> list[list[Estimate]]:
        many = len(self.classes)
        everybody = np.ones(many**2)
        found = []
        for row in np.eye(many**2):
            form = linear(confusion, row, everybody)
            found.append(interval(form, form, confidence=self.confidence))
        return [found[i * many : (i + 1) * many] for i in range(many)]

    def _by_class(
        self, confusion: Counts, within: tuple[float, float] = (0.0, 1.0)
    ) -> dict[str, dict[str, Estimate]]:
        many = len(self.classes)
        cells = np.arange(many**2)
        true, guess = cells // many, cells % many
        found: dict[str, dict[str, Estimate]] = {}
        for k, name in enumerate(self.classes):
            own, said = (true == k).astype(float), (guess == k).astype(float)
            forms = {
                "precision": linear(confusion, own * said, said),
                "recall": linear(confusion, own * said, own),
                "prevalence": linear(confusion, own, np.ones_like(own)),
            }
            found[name] = {
                key: interval(form, form, confidence=self.confidence, within=within)
                for key, form in forms.items()
            }
        return found

    def _overall(
        self, confusion: Counts, by_class: dict[str, dict[str, Estimate]], sides: Sequence[Binary]
    ) -> dict[str, Estimate]:
        many = len(self.classes)
        right = np.eye(many).ravel()
        form = linear(confusion, right, np.ones(many**2))
        mean = [1 / many] * many

        free = self._by_class(confusion, ANYTHING)  # clamped once they are added up

        def averaged(key: str) -> Estimate:
            return combine([free[name][key] for name in self.classes], mean)

        figures = {
            "accuracy": interval(form, form, confidence=self.confidence),
            "balanced_accuracy": averaged("recall"),
            "precision": averaged("precision"),
            "recall": averaged("recall"),
            "majority": _largest([by_class[name]["prevalence"] for name in self.classes]),
        }
        if sides:
            areas = [side.roc_auc(ANYTHING) for side in sides]
            precisions = [by_class[name]["average_precision"] for name in self.classes]
            figures["roc_auc"] = combine(areas, mean)
            figures["average_precision"] = combine(precisions, mean)
            if self.probabilities:
                parts = [side.brier() for side in sides]
                figures["brier_score"] = combine(parts, [1.0] * many, within=(0.0, 2.0))
        return figures


def _largest(shares: Sequence[Estimate]) -> Estimate:
    """The share of the most common class."""
    if len(shares) == 1:  # of one of two
        (share,) = shares
        other = Estimate(1 - share.value, 1 - share.high, 1 - share.low)
        shares = [share, other]
    return max(shares, key=lambda share: share.value if math.isfinite(share.value) else -1.0)


@dataclass(frozen=True)
class NumberTables(Tables):
    """Tables of a regressor: residuals, and targets, between bounds.

    A value is counted at one of the two knots beside it, by a public coin, such that it is there on
    the average: means are then those of the values, and squares too large by what lies between.

    Parameters
    ----------
    bounds : (float, float)
        Of the target, public or released.
    cap : float
        Sizes of errors beyond it count as much: public, or released.
    bins : int
        Of residuals, and of targets.
    groups : sequence of str
        Names of groups that are told apart.
    confidence : float
        Of intervals.
    """

    bounds: tuple[float, float]
    cap: float
    bins: int
    groups: Sequence[str] = ("",)
    confidence: float = 0.95

    @property
    def residuals(self) -> np.ndarray:
        """Knots of truth − prediction."""
        return signed_knots(self.cap, self.bins)

    @property
    def targets(self) -> np.ndarray:
        """Knots of the target."""
        return np.linspace(*self.bounds, max(self.bins // 4, 4) + 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(self.groups) * len(knots) + 1 for knots in (self.residuals, self.targets))

    def cells(self, truth: np.ndarray, scores: np.ndarray, coins: np.ndarray) -> list[np.ndarray]:
        known = np.isfinite(truth)
        inside, guess = (np.clip(x, *self.bounds) for x in (truth, np.nan_to_num(scores)))
        other = (coins * 2**26) % 1.0  # the lower bits of the same coin
        found = [
            dither(np.where(known, inside - guess, 0.0), self.residuals, coins),
            dither(np.where(known, inside, 0.0), self.targets, other),
        ]
        return [np.where(known, cells, -1) for cells in found]

    def read(self, noisy: Sequence[np.ndarray], deviation: float, total: int | None) -> _Groups:
        return _Groups(self, [Counts.of(table, deviation, total=total) for table in noisy])

    def reading(self, tables: Sequence[Counts]) -> Reading:
        residuals, targets = tables
        errors = Errors(residuals, targets, self.residuals, self.targets, self.confidence)
        return Reading(errors.figures(), {"error": errors.distribution()})

    def strangeness(self) -> tuple[list[np.ndarray | None], np.ndarray]:
        knots = self.residuals
        sizes = knots[len(knots) // 2 :]
        # Who is counted at a knot has an error up to the next one; beyond the last, any.
        inside = np.abs(knots) <= sizes[:, None] * (1 + 1e-12)
        return [inside.astype(np.float64), None], np.append(sizes[1:], math.inf)


@dataclass(frozen=True)
class _Groups:
    """Estimated counts of all groups, and how some of them are read."""

    tables: Tables
    counts: Sequence[Counts]

    def reading(self, group: int | None = None) -> Reading:
        """Of one group, or of all units."""
        return self.tables.reading(self._picked(group))

    def scores(self, deviation: float, total: int | None) -> Scores:
        """How strange units are, for a cutoff."""
        sums, edges = self.tables.strangeness()
        below, variance, cells = np.zeros(len(edges)), np.zeros(len(edges)), 0
        for table, every, picked in zip(self._picked(None), self.counts, sums, strict=True):
            if picked is not None:
                found = table.gathered(picked)
                below += found.values
                variance += np.diag(found.covariance)
                cells += len(every.values)
        units = float(total) if total is not None else float(below[-1])
        walk, spread = deviation * math.sqrt(cells), np.sqrt(np.maximum(variance, 0.0))
        return Scores(below, edges, units, walk, spread, total is not None)

    def _picked(self, group: int | None) -> list[Counts]:
        many = len(self.tables.groups)
        picked = np.ones((1, many)) if group is None else np.eye(many)[group : group + 1]
        chosen = []
        for table in self.counts:
            width = (len(table.values) - 1) // many
            known = np.eye(len(table.values))[:-1]
            chosen.append(table.gathered(np.kron(picked, np.eye(width)) @ known))
        return chosen


def class_tables(
    classes: Sequence[str],
    units: int,
    noise: float,
    groups: Sequence[str],
    *,
    probabilities: bool,
    confidence: float,
) -> ClassTables:
    """Tables of a classifier for so many units and so much noise.

    Parameters
    ----------
    classes, groups : sequence of str
        Names.
    units : int
        Public number of units.
    noise : float
        Noise multiplier, in contributions of one unit to all tables.
    probabilities : bool
        Whether scores are probabilities.
    confidence : float
        Of intervals.

    Returns
    -------
    ClassTables
        With as many bins as noise allows.
    """
    deviation = noise * math.sqrt(ClassTables.number(len(classes)))
    bins = bins_for(max(units // len(groups), 1), deviation)
    return ClassTables(classes, bins, groups, probabilities, confidence)
