"""Figures of a classifier from tables of counts: class × bin of the score.

A table of two classes has the cells (negative, bins from low to high), (positive, the same).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.metrics.counts import Counts
from tacit.metrics.intervals import FLOOR, Estimate, combine, interval, linear, quadratic, smooth

ANYTHING = (-math.inf, math.inf)
CAP = 1e-3  # probabilities below it count as this much in the log loss
JOINED = 2.0  # standard deviations from zero that the count of the highest bins is at least
SHOWN = 12  # bins of a calibration curve at most


@dataclass(frozen=True)
class Binary:
    """What a table of class × bin of a score says of one class against the others.

    Parameters
    ----------
    counts : Counts
        Of 2·B cells: negatives from the lowest bin to the highest, then positives.
    edges : ndarray of shape (B + 1,)
        Of the bins, 1/2 among them.
    confidence : float
        Of every interval by itself.
    """

    counts: Counts
    edges: np.ndarray
    confidence: float = 0.95
    _negatives: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ones, zeros = np.ones(self.bins), np.zeros(self.bins)
        object.__setattr__(self, "_negatives", np.concatenate([ones, zeros]))

    @property
    def bins(self) -> int:
        """How many there are."""
        return len(self.edges) - 1

    def above(self, threshold: int) -> np.ndarray:
        """Weights that pick the cells from a bin on, of both classes."""
        bins = np.arange(self.bins) >= threshold
        return np.concatenate([bins, bins]).astype(np.float64)

    def ratio(
        self, top: np.ndarray, bottom: np.ndarray, within: tuple[float, float] = (0.0, 1.0)
    ) -> Estimate:
        """The share of one sum of counts in another.

        Parameters
        ----------
        top, bottom : ndarray of shape (2·B,)
            Weights of the cells.
        within : (float, float)
            What it is clamped to.

        Returns
        -------
        Estimate
            Between 0 and 1 as a rule.
        """
        form = linear(self.counts, top, bottom)
        return interval(form, form, confidence=self.confidence, within=within)

    def at(self, threshold: int) -> dict[str, Estimate]:
        """Figures of predicting the class from a bin on.

        Parameters
        ----------
        threshold : int
            The first bin of predicted positives.

        Returns
        -------
        dict of str to Estimate
            ``accuracy, balanced_accuracy, precision, recall, specificity, f1``.
        """
        negative = self._negatives
        positive, chosen = 1 - negative, self.above(threshold)
        everybody = np.ones_like(chosen)
        right = positive * chosen + negative * (1 - chosen)
        sides = [(positive * chosen, positive), (negative * (1 - chosen), negative)]
        recall, specificity = (self.ratio(*side) for side in sides)
        free = [self.ratio(*side, within=ANYTHING) for side in sides]
        return {
            "accuracy": self.ratio(right, everybody),
            "balanced_accuracy": combine(free, [0.5, 0.5], unknown=(0.0, 1.0)),
            "precision": self.ratio(positive * chosen, chosen),
            "recall": recall,
            "specificity": specificity,
            "f1": self.ratio(2 * positive * chosen, positive + chosen),
        }

    def prevalence(self) -> Estimate:
        """The share of positives."""
        return self.ratio(1 - self._negatives, np.ones(2 * self.bins))

    def mean_loss(
        self,
        least: np.ndarray,
        most: np.ndarray,
        middle: np.ndarray,
        within: tuple[float, float],
    ) -> Estimate:
        """The mean of a loss that in every cell lies between two values.

        Parameters
        ----------
        least, most, middle : ndarray of shape (2·B,)
            Limits of the loss in every cell, and what it is there as a rule.
        within : (float, float)
            What it is clamped to.

        Returns
        -------
        Estimate
            Of its mean.
        """
        everybody = np.ones(2 * self.bins)
        low, high, between = (linear(self.counts, x, everybody) for x in (least, most, middle))
        return interval(low, high, middle=between, confidence=self.confidence, within=within)

    def brier(self, within: tuple[float, float] = (0.0, 1.0)) -> Estimate:
        """The mean squared difference of probability and outcome.

        Parameters
        ----------
        within : (float, float)
            What it is clamped to.

        Returns
        -------
        Estimate
            Between 0 and 1 as a rule.
        """
        low, high = self.edges[:-1], self.edges[1:]
        mean = (low**2 + low * high + high**2) / 3  # of p², if even in the bin
        other = mean - (low + high) + 1
        least = np.concatenate([low**2, (1 - high) ** 2])
        most = np.concatenate([high**2, (1 - low) ** 2])
        return self.mean_loss(least, most, np.concatenate([mean, other]), within)

    def log_loss(self) -> Estimate:
        """The mean of −log of the probability of what happened, of at least `CAP`."""
        low, high = (np.clip(side, CAP, 1.0) for side in (self.edges[:-1], self.edges[1:]))
        near, far = (np.clip(1 - side, CAP, 1.0) for side in (self.edges[:-1], self.edges[1:]))
        least = -np.log(np.concatenate([near, high]))
        most = -np.log(np.concatenate([far, low]))
        return self.mean_loss(least, most, (least + most) / 2, (0.0, -math.log(CAP)))

    def roc_auc(self, within: tuple[float, float] = (0.0, 1.0)) -> Estimate:
        """The chance that a positive has a higher score than a negative: ties count half.

        Parameters
        ----------
        within : (float, float)
            What it is clamped to.

        Returns
        -------
        Estimate
            Of all of that range if noise hides how many there are of either class.
        """
        bins = self.bins
        for side in (self._negatives, 1 - self._negatives):
            if side @ self.counts.values < 2 * math.sqrt(_variance(self.counts, side)):
                return Estimate(math.nan, *within)
        before = np.triu(np.ones((bins, bins)), 1)
        forms = [
            quadratic(
                self.counts, _across(before + tied * np.eye(bins)), _across(np.ones_like(before))
            )
            for tied in (0.0, 0.5, 1.0)
        ]
        low, middle, high = forms
        return interval(low, high, middle=middle, confidence=self.confidence, within=within)

    def average_precision(self) -> Estimate:
        """The area under precision over recall.

        Bins are joined, from the highest score down, until their cumulated counts stand out of the
        noise; within a bin positives may come last, or first.
        """
        positives = float((1 - self._negatives) @ self.counts.values)
        spread = math.sqrt(_variance(self.counts, 1 - self._negatives))
        joined = self._joined()
        if positives < FLOOR * spread or joined is None:
            return Estimate(math.nan, 0.0, 1.0)
        low, high = (lambda x, last=last: _average_precision(x, last) for last in (True, False))
        return smooth(self.counts.gathered(joined), low, high, confidence=self.confidence)

    def _joined(self) -> np.ndarray | None:
        """Sums of the highest bins into one that stands out of the noise; None if none does."""
        for start in range(self.bins - 1, -1, -1):
            block = self.above(start)
            if block @ self.counts.values > JOINED * math.sqrt(_variance(self.counts, block)):
                negative, positive = self._negatives, 1 - self._negatives
                below = np.eye(self.bins)[:start]
                lower = np.hstack([below, below])
                picked = np.vstack([lower, block])
                return np.vstack([picked * negative, picked * positive])
        return None

    def calibration(self) -> list[dict[str, float | Estimate]]:
        """Share of positives in bins of the predicted probability.

        Returns
        -------
        list of dict
            ``low``, ``high`` of a bin, and ``observed``, for bins whose counts stand out of
            the noise; others are joined to them.
        """
        found: list[dict[str, float | Estimate]] = []
        step = max(self.bins // SHOWN, 1)
        first = 0
        for last in range(step, self.bins + 1):
            if last % step and last < self.bins:
                continue
            block = self.above(first) - (self.above(last) if last < self.bins else 0.0)
            mass, noise = float(block @ self.counts.values), _variance(self.counts, block)
            if mass > FLOOR * math.sqrt(max(noise, 1.0)):
                observed = self.ratio(block * (1 - self._negatives), block)
                low, high = float(self.edges[first]), float(self.edges[last])
                found.append({"low": low, "high": high, "observed": observed})
                first = last
        return found

    def curves(self) -> dict[str, Any]:
        """Points of the ROC curve and of precision over recall, from the highest score down.

        Returns
        -------
        dict
            ``roc`` and ``precision_recall`` as (x, y), and the ``edges`` of the bins.
        """
        negatives, positives = np.split(np.maximum(self.counts.values, 0.0), 2)
        beyond = [np.concatenate([[0.0], np.cumsum(side[::-1])]) for side in (negatives, positives)]
        false, true = (side / max(side[-1], 1e-300) for side in beyond)
        chosen = np.maximum(beyond[0] + beyond[1], 1e-300)
        precision = beyond[1] / chosen
        # Where none is found yet, as at the first one: noise alone says more or less than that.
        precision = np.where(beyond[1] > 0, precision, precision[np.argmax(beyond[1] > 0)])
        return {
            "roc": (false.tolist(), true.tolist()),
            "precision_recall": (true.tolist(), precision.tolist()),
            "edges": self.edges.tolist(),
        }

    def figures(self, *, probabilities: bool = True) -> dict[str, Estimate]:
        """All figures, at the threshold of one half.

        Parameters
        ----------
        probabilities : bool
            Whether scores are probabilities, of which losses can be taken.

        Returns
        -------
        dict of str to Estimate
            By scikit-learn's names.
        """
        found = self.at(self.bins // 2)
        found |= {"roc_auc": self.roc_auc(), "average_precision": self.average_precision()}
        if probabilities:
            found |= {"brier_score": self.brier(), "log_loss": self.log_loss()}
        return {**found, "prevalence": self.prevalence()}


def _across(block: np.ndarray) -> np.ndarray:
    """The symmetric matrix of negativesᵀ · block · positives."""
    zero = np.zeros_like(block)
    return np.block([[zero, block / 2], [block.T / 2, zero]])


def _variance(counts: Counts, weights: np.ndarray) -> float:
    return max(counts.spread(weights, weights), 0.0)


def _average_precision(counts: np.ndarray, last: bool) -> np.ndarray:
    """Area under precision over recall, positives of a bin behind its negatives, or before them.

    While u of p positives of a bin are added to P positives and N negatives, precision is
    (P + u)/(P + u + N), of which the integral is p − N·log((P + p + N)/(P + N)). Counts are the
    last axis.
    """
    negatives, positives = np.split(counts[..., ::-1], 2, axis=-1)[::-1]
    true, false = np.cumsum(positives, axis=-1), np.cumsum(negatives, axis=-1)
    before, against = true - positives, false if last else false - negatives
    sides = before + against, true + against
    proper = (against > 0) & (sides[0] > 0) & (sides[1] > 0)
    lost = np.zeros_like(true)
    np.log(
        np.divide(sides[1], sides[0], out=np.ones_like(true), where=proper), out=lost, where=proper
    )
    area = (positives - np.where(proper, against, 0.0) * lost).sum(axis=-1)
    whole = true[..., -1]
    return np.divide(area, whole, out=np.full_like(whole, np.nan), where=whole > 0)
