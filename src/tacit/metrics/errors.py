"""Figures of a regressor from counts of residuals and of targets at knots."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.metrics.counts import Counts
from tacit.metrics.intervals import Estimate, interval, linear, quadratic

SHARES = {"median_error": 0.5, "error_90": 0.9}  # of units, with an error up to that


@dataclass(frozen=True)
class Errors:
    """What counts at knots say of errors.

    A value r between knots a and b is counted at b with probability (r − a)/(b − a), else at a.
    The mean of a function f over counts is then that of its linear interpolation: f itself if it
    is linear between knots, and for r² larger by (r − a)(b − r), from 0 to (b − a)²/4.

    Parameters
    ----------
    residuals, targets : Counts
        At their knots.
    residual_knots, target_knots : ndarray
        Rising; zero is among those of residuals.
    confidence : float
        Of every interval by itself.
    """

    residuals: Counts
    targets: Counts
    residual_knots: np.ndarray
    target_knots: np.ndarray
    confidence: float = 0.95

    def figures(self) -> dict[str, Estimate]:
        """All figures, by scikit-learn's names.

        Returns
        -------
        dict of str to Estimate
            ``r2, rmse, mae, mean_error`` and quantiles of the size of errors.
        """
        knots = self.residual_knots
        reach = float(knots[-1])
        square = self.squared_error()
        spread = self.variance()
        return {
            "r2": _explained(square, spread),
            "rmse": Estimate(*(math.sqrt(x) for x in (square.value, square.low, square.high))),
            "mae": self._mean(np.abs(knots), (0.0, reach)),
            "mean_error": self._mean(knots, (-reach, reach)),
            **{name: self.error_quantile(share) for name, share in SHARES.items()},
        }

    def squared_error(self) -> Estimate:
        """The mean of squared residuals."""
        knots = self.residual_knots
        least, typical = _between(knots)
        ones, counts = np.ones_like(knots), self.residuals
        low, middle, high = (
            linear(counts, knots**2 - less, ones)  # below zero at some knots, not on the average
            for less in (least, typical, np.zeros_like(knots))
        )
        within = (0.0, float(knots[-1] ** 2))
        return interval(low, high, middle=middle, confidence=self.confidence, within=within)

    def variance(self) -> Estimate:
        """Of the target."""
        knots = self.target_knots - self.target_knots.mean()
        least, typical = _between(knots)
        ones, forms = np.ones_like(knots), []
        for less in (least, typical, np.zeros_like(knots)):
            squares = np.outer(ones, knots**2 - less)
            top = (squares + squares.T) / 2 - np.outer(knots, knots)
            forms.append(quadratic(self.targets, top, np.outer(ones, ones)))
        within = (0.0, float(knots[-1] ** 2))
        low, middle, high = forms
        return interval(low, high, middle=middle, confidence=self.confidence, within=within)

    def error_quantile(self, share: float) -> Estimate:
        """The size of error that this share of units does not exceed.

        Parameters
        ----------
        share : float
            Between 0 and 1.

        Returns
        -------
        Estimate
            Between knots.
        """
        sizes, shares = self._below()
        # Who is counted up to a knot has an error up to the next one, and the other way round.
        after = np.append(sizes[1:], sizes[-1])
        before = np.concatenate([[0.0], sizes[:-1]])
        enough = [i for i, part in enumerate(shares) if part.low >= share]
        few = [i for i, part in enumerate(shares) if part.high < share]
        rising = np.maximum.accumulate([part.value for part in shares])
        value = float(np.interp(share, rising, (sizes + after) / 2))
        low = float(before[few[-1] + 1]) if few and few[-1] + 1 < len(sizes) else 0.0
        high = float(after[enough[0]]) if enough else float(sizes[-1])
        return Estimate(value, min(low, value), max(high, value))

    def distribution(self) -> tuple[list[float], list[float]]:
        """Sizes of errors, and the share of units up to each; rising."""
        sizes, shares = self._below()
        return sizes.tolist(), np.maximum.accumulate([part.value for part in shares]).tolist()

    def _below(self) -> tuple[np.ndarray, list[Estimate]]:
        """Sizes at the knots, and the share of units that are counted up to each."""
        knots, ones = self.residual_knots, np.ones_like(self.residual_knots)
        sizes = knots[len(knots) // 2 :]
        shares = []
        for size in sizes:
            form = linear(self.residuals, (np.abs(knots) <= size * (1 + 1e-12)) * 1.0, ones)
            shares.append(interval(form, form, confidence=self.confidence))
        return sizes, shares

    def _mean(self, values: np.ndarray, within: tuple[float, float]) -> Estimate:
        form = linear(self.residuals, values, np.ones_like(values))
        return interval(form, form, confidence=self.confidence, within=within)


def _between(knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By how much squares at knots are too large: at most, and for values spread evenly."""
    gaps = np.diff(knots) ** 2
    left, right = np.concatenate([[0.0], gaps]), np.concatenate([gaps, [0.0]])
    return np.maximum(left, right) / 4, (left + right) / 2 / 6


def _explained(error: Estimate, spread: Estimate) -> Estimate:
    """1 − error/spread: logarithms of both are added up as in `combine`."""
    if not (spread.low > 0 and error.value > 0):
        return Estimate(math.nan, -math.inf, 1.0)
    ratio = error.value / spread.value
    down = math.hypot(_log(error.value, max(error.low, 1e-300)), _log(spread.high, spread.value))
    up = math.hypot(_log(error.high, error.value), _log(spread.value, spread.low))
    return Estimate(1 - ratio, 1 - ratio * math.exp(up), 1 - ratio * math.exp(-down))


def _log(a: float, b: float) -> float:
    return math.log(a / b)
