"""Tables of counts that an evaluation releases, and what is read from them.

Each unit is in one cell of each table: the last one is for those of whom nothing is known, such as
a label that the model has not. What tables there are follows from public facts
alone: classes, bounds of the target, groups, and how much noise there will be.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.metrics.conformal import Scores
from tacit.metrics.counts import Counts
from tacit.metrics.intervals import Estimate

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
    calibration : dict of str to list of dict
        By what is predicted, a class or the most likely one: bins of its predicted probability,
        with the observed share.
    confusion : list of lists of Estimate
        Shares of (true, predicted) classes in all units.
    classes : dict of str to dict
        Figures of every class against the others, where there are more than two.
    lead : Estimate or None
        How much more often the model is right than always saying the most common class would be.
    """

    figures: dict[str, Estimate]
    curves: dict[str, Any] = field(default_factory=dict)
    calibration: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    confusion: list[list[Estimate]] = field(default_factory=list)
    classes: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    lead: Estimate | None = None

    def to_dict(self) -> Mapping[str, Any]:
        """Attributes by name.

        Returns
        -------
        mapping
            Whose estimates are not plain values yet.
        """
        return {
            "figures": self.figures,
            "by_class": self.classes,
            "confusion": self.confusion,
            "curves": self.curves,
            "calibration": self.calibration,
        }


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
            From 0 to 1, drawn without looking at anything: one of each unit.

        Returns
        -------
        list of ndarray of shape (n,)
            One for each table.
        """

    @abstractmethod
    def read(self, noisy: Sequence[np.ndarray], deviation: float, total: int | None) -> Groups:
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
        Groups
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
class Groups:
    """Estimated counts of all groups, and how some of them are read.

    Attributes
    ----------
    tables : Tables
        What was counted.
    counts : sequence of Counts
        One for each table.
    """

    tables: Tables
    counts: Sequence[Counts]

    def reading(self, group: int | None = None) -> Reading:
        """What is known of one group, or of all units.

        Parameters
        ----------
        group : int, optional
            Its position; all together if not given.

        Returns
        -------
        Reading
            Figures, and what there is to show.
        """
        return self.tables.reading(self._picked(group))

    def scores(self, deviation: float, total: int | None) -> Scores:
        """How strange units are, for a cutoff.

        Parameters
        ----------
        deviation : float
            Of the noise of a count.
        total : int or None
            Number of units, where it is public.

        Returns
        -------
        Scores
            Of all groups together.
        """
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
        return [table.of_groups(many, group) for table in self.counts]
