"""Tables of a classifier: true and predicted classes, bins of scores, and losses at knots.

Two classes have both in two tables. Up to `MOST_CURVES` of them have a table each, of whether it is
the row's × its score. Of more, the score of the predicted class is binned, with whether it is
right. A loss that is the mean over rows of something known of each of them, and no sum of what
these tables have, is counted at knots, by a coin, such that the mean is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from tacit.metrics.bins import MOST, bins_for, dither, place, probability_edges, size_knots
from tacit.metrics.counts import Counts, Dense, Plain
from tacit.metrics.figures import ANYTHING, CAP, Binary
from tacit.metrics.intervals import (
    Estimate,
    combine,
    interval,
    linear,
    mean,
    mean_of_ratios,
    shares,
)
from tacit.metrics.tables import Groups, Reading, Tables

MOST_CURVES = 10  # classes that have a curve each: every one of them is a table more
MOST_CONFUSED = 100  # classes of which every pair is counted
FEWEST_KNOTS = 6  # of losses
LIKELIEST = "most likely class"
LARGEST_LOSS, LARGEST_BRIER = -math.log(CAP), 2.0


@dataclass(frozen=True)
class ClassTables(Tables):
    """Tables of a classifier.

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
    def kinds(cls, classes: int, probabilities: bool = True) -> tuple[str, ...]:
        """Which tables there are: as many as the squared norm of what a unit contributes.

        Parameters
        ----------
        classes : int
            How many.
        probabilities : bool
            Whether scores are probabilities, of which losses can be taken.

        Returns
        -------
        tuple of str
            In their order.

        Examples
        --------
        >>> ClassTables.kinds(3)
        ('pairs', 'curve', 'curve', 'curve', 'log_loss')
        >>> ClassTables.kinds(20)
        ('pairs', 'likeliest', 'log_loss', 'brier_score')
        """
        if classes == 2:
            return "pairs", "curve"
        losses = ("log_loss", "brier_score") if probabilities else ()
        if classes <= MOST_CURVES:  # of whose curves Brier scores are sums
            return ("pairs", *["curve"] * classes, *losses[:1])
        if classes > MOST_CONFUSED:
            return ("likeliest", *losses)
        return ("pairs", *(("likeliest", *losses) if probabilities else ()))

    @property
    def own_kinds(self) -> tuple[str, ...]:
        """Which tables these are."""
        return self.kinds(len(self.classes), self.probabilities)

    @property
    def knots(self) -> dict[str, np.ndarray]:
        """Knots of losses."""
        count = max(self.bins // 3, FEWEST_KNOTS)
        most = {"log_loss": LARGEST_LOSS, "brier_score": LARGEST_BRIER}
        return {name: size_knots(reach, count) for name, reach in most.items()}

    @property
    def sizes(self) -> tuple[int, ...]:
        widths = {"pairs": len(self.classes) ** 2, "curve": 2 * self.bins}
        widths |= {"likeliest": 2 * self.bins}
        widths |= {name: len(knots) for name, knots in self.knots.items()}
        return tuple(len(self.groups) * widths[kind] + 1 for kind in self.own_kinds)

    def cells(self, truth: np.ndarray, scores: np.ndarray, coins: np.ndarray) -> list[np.ndarray]:
        many, edges = len(self.classes), probability_edges(self.bins)
        if many == 2:
            bins = place(scores, edges)
            guess = (bins >= self.bins // 2).astype(np.int64)
            found = [truth * 2 + guess, truth * self.bins + bins]
        else:
            found = self._cells_of_many(truth, np.nan_to_num(scores), coins)
        return [np.where(truth >= 0, cells, -1) for cells in found]

    def _cells_of_many(
        self, truth: np.ndarray, scores: np.ndarray, coins: np.ndarray
    ) -> list[np.ndarray]:
        many, edges = len(self.classes), probability_edges(self.bins)
        guess, rows = scores.argmax(axis=1), np.arange(len(truth))
        chances = np.clip(scores, 0.0, 1.0)
        own = chances[rows, np.maximum(truth, 0)]
        found, curve = [], 0
        for kind in self.own_kinds:
            if kind == "pairs":
                found.append(truth * many + guess)
            elif kind == "curve":
                found.append((truth == curve) * self.bins + place(scores[:, curve], edges))
                curve += 1
            elif kind == "likeliest":
                found.append((truth == guess) * self.bins + place(scores.max(axis=1), edges))
            elif kind == "log_loss":
                loss = -np.log(np.clip(own, CAP, 1.0))
                found.append(dither(loss, self.knots[kind], coins))
            else:
                loss = np.square(chances).sum(axis=1) - np.square(own) + np.square(1 - own)
                lower_bits = (coins * 2**26) % 1.0
                found.append(dither(loss, self.knots[kind], lower_bits))
        return found

    def read(self, noisy: Sequence[np.ndarray], deviation: float, total: int | None) -> Groups:
        if len(self.classes) == 2:  # the first table is sums of the second
            half = self.bins // 2
            sums = block_diag(np.kron(np.eye(4 * len(self.groups)), np.ones((1, half))), 1.0)
            fine = Dense.of(noisy[1], deviation, sums, noisy[0], total=total)
            return Groups(self, [fine.gathered(sums), fine])
        return Groups(self, [Plain.of(table, deviation, total=total) for table in noisy])

    def reading(self, tables: Sequence[Counts]) -> Reading:
        by_kind: dict[str, list[Counts]] = {}
        for kind, table in zip(self.own_kinds, tables, strict=True):
            by_kind.setdefault(kind, []).append(table)
        edges = probability_edges(self.bins)
        curves = [Binary(table, edges, self.confidence) for table in by_kind.get("curve", [])]
        if len(self.classes) == 2:
            return self._of_two(by_kind["pairs"][0], curves[0])
        tops = [Binary(table, edges, self.confidence) for table in by_kind.get("likeliest", [])]
        figures: dict[str, Estimate] = {}
        by_class: dict[str, dict[str, Estimate]] = {}
        pairs, lead = [], None
        for confusion in by_kind.get("pairs", []):
            by_class = self._by_class(confusion)
            for name, side in zip(self.classes, curves, strict=False):
                by_class[name]["roc_auc"] = side.roc_auc()
                by_class[name]["average_precision"] = side.average_precision()
            figures, pairs = self._overall(confusion, by_class, curves), self._pairs(confusion)
            belongs = self._ratios()["prevalence"][0]
            lead = _lead(confusion, np.eye(len(belongs)).ravel(), belongs, self.confidence)
        if tops and len(self.classes) > 2 * self.bins:  # fewer noisy counts to be summed up
            figures["accuracy"] = tops[0].prevalence()
        for kind, knots in self.knots.items():
            for table in by_kind.get(kind, []):
                within = (0.0, float(knots[-1]))
                figures[kind] = mean(table, knots, confidence=self.confidence, within=within)
        points = {name: side.curves() for name, side in zip(self.classes, curves, strict=False)}
        return Reading(figures, points, self._calibration(curves or tops), pairs, by_class, lead)

    def _of_two(self, confusion: Counts, side: Binary) -> Reading:
        figures = side.figures(probabilities=self.probabilities)
        belongs = np.kron(np.eye(2), np.ones(self.bins))
        guess = side.above(self.bins // 2)
        right = belongs[0] * (1 - guess) + belongs[1] * guess
        lead = _lead(side.counts, right, belongs, self.confidence)
        pairs = self._pairs(confusion)
        return Reading(figures, side.curves(), self._calibration([side]), pairs, lead=lead)

    def strangeness(self) -> tuple[list[np.ndarray | None], np.ndarray]:
        kinds, many = self.own_kinds, len(self.classes)
        if "curve" in kinds:
            likely = np.tril(np.ones((self.bins, self.bins)))[:, ::-1]  # of its own, from the top
            other = likely[:, ::-1] if many == 2 else np.zeros_like(likely)
            edges = 1 - probability_edges(self.bins)[:-1][::-1]
            picked = np.hstack([other, likely])
        elif "log_loss" in kinds:  # who is counted at a knot has a loss up to the next one
            knots = self.knots["log_loss"]
            picked = np.tril(np.ones((len(knots), len(knots))))
            edges = np.append(-np.expm1(-knots[1:]), math.inf)
        else:
            width = (self.sizes[0] - 1) // len(self.groups)
            return [np.ones((1, width)), *[None] * (len(kinds) - 1)], np.full(1, math.inf)
        used = "curve" if "curve" in kinds else "log_loss"
        return [picked if kind == used else None for kind in kinds], edges

    def _calibration(self, sides: Sequence[Binary]) -> dict[str, list[dict[str, float | Estimate]]]:
        if not self.probabilities:
            return {}
        many = len(self.classes)
        curved = many <= MOST_CURVES
        names = self.classes[1:] if many == 2 else self.classes if curved else [LIKELIEST]
        return {name: side.calibration() for name, side in zip(names, sides, strict=True)}

    def _pairs(self, confusion: Counts) -> list[list[Estimate]]:
        many = len(self.classes)
        found = shares(confusion, confidence=self.confidence)
        return [found[i * many : (i + 1) * many] for i in range(many)]

    def _ratios(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Figures of classes, as shares of sums of pairs: a row of weights for every class."""
        many = len(self.classes)
        true = np.kron(np.eye(many), np.ones(many))
        said = np.kron(np.ones(many), np.eye(many))
        return {
            "precision": (true * said, said),
            "recall": (true * said, true),
            "f1": (2 * true * said, true + said),
            "prevalence": (true, np.ones_like(true)),
        }

    def _by_class(self, confusion: Counts) -> dict[str, dict[str, Estimate]]:
        found: dict[str, dict[str, Estimate]] = {name: {} for name in self.classes}
        for key, (tops, bottoms) in self._ratios().items():
            for name, top, bottom in zip(self.classes, tops, bottoms, strict=True):
                form = linear(confusion, top, bottom)
                found[name][key] = interval(form, form, confidence=self.confidence)
        return found

    def _overall(
        self, confusion: Counts, by_class: dict[str, dict[str, Estimate]], sides: Sequence[Binary]
    ) -> dict[str, Estimate]:
        many = len(self.classes)
        equal, ratios = [1 / many] * many, self._ratios()
        averaged = {
            key: mean_of_ratios(confusion, *ratios[key], confidence=self.confidence)
            for key in ("recall", "precision", "f1")
        }
        figures = {
            "accuracy": mean(confusion, np.eye(many).ravel(), confidence=self.confidence),
            "balanced_accuracy": averaged["recall"],
            **averaged,
        }
        if sides:
            areas = [side.roc_auc(ANYTHING) for side in sides]
            precisions = [by_class[name]["average_precision"] for name in self.classes]
            figures["roc_auc"] = combine(areas, equal, unknown=(0.0, 1.0))
            figures["average_precision"] = combine(precisions, equal, unknown=(0.0, 1.0))
            if self.probabilities:
                # Clamped, they would add up to too much.
                parts = [side.brier(ANYTHING) for side in sides]
                figures["brier_score"] = combine(parts, [1.0] * many, within=(0.0, LARGEST_BRIER))
        return figures


def _lead(counts: Counts, right: np.ndarray, belongs: np.ndarray, confidence: float) -> Estimate:
    """Accuracy less the share of the most common class, of which a row of weights is given each.

    It is the least of the leads over all classes. So its lower limit is that of the lowest of
    theirs, and the upper one too, with so much more confidence in each that all hold together.
    """
    within, found = (-1.0, 1.0), []
    sure = 1 - (1 - confidence) / len(belongs)
    for own in belongs:
        one, all_of_them = (
            mean(counts, right - own, confidence=c, within=within) for c in (confidence, sure)
        )
        found.append((one.value, one.low, all_of_them.high))
    value, low, high = (float(min(ends)) for ends in zip(*found, strict=True))
    return Estimate(value, low, high)


def most_cells(classes: int) -> int:
    """Cells of all tables of one group, for so many classes or fewer, at most.

    Parameters
    ----------
    classes : int
        How many.

    Returns
    -------
    int
        From public facts.
    """
    fewer = {min(classes, most) for most in (classes, MOST_CONFUSED, MOST_CURVES)}
    return max(sum(ClassTables([""] * many, MOST).sizes) for many in fewer)


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
    deviation = noise * math.sqrt(len(ClassTables.kinds(len(classes), probabilities)))
    bins = bins_for(max(units // len(groups), 1), deviation)
    return ClassTables(classes, bins, groups, probabilities, confidence)
