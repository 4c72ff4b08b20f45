"""Figures of a regressor from counts of residuals and of targets at knots."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.metrics.counts import Counts
from tacit.metrics.intervals import Estimate, interval, linear, mean, quadratic, quantile

STEPS = 32  # points between two knots at which a quantile is tested
TOLD = 3.0  # standard deviations by which counts stand out
NEAR = 0.25  # of a gap: up to there the knot says more
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
        """Of the target.

        Clamping moves no two values apart, so the variance of targets clamped to where counts stand
        out of the noise is a lower limit, without the noise of all that is further out.
        """
        whole = self._variance(self.target_knots)
        inner = self._variance(np.clip(self.target_knots, *self._core()))
        low = max(whole.low, inner.low)
        return Estimate(max(whole.value, low), low, max(whole.high, low))

    def _variance(self, values: np.ndarray) -> Estimate:
        """Of what every knot stands for."""
        values = values - values.mean()
        least, typical = _between(values)
        ones, forms = np.ones_like(values), []
        for less in (least, typical, np.zeros_like(values)):
            squares = np.outer(ones, values**2 - less)
            top = (squares + squares.T) / 2 - np.outer(values, values)
            forms.append(quadratic(self.targets, top, np.outer(ones, ones)))
        within = (0.0, float((values[-1] - values[0]) ** 2 / 4))
        low, middle, high = forms
        return interval(low, high, middle=middle, confidence=self.confidence, within=within)

    def _core(self) -> tuple[float, float]:
        """The knots beyond which noise hides whatever there is."""
        knots, found = self.target_knots, []
        for ends in (knots, knots[::-1]):
            inner = 0
            for beyond in range(1, len(ends) // 2 + 1):
                outside = np.isin(knots, ends[:beyond]).astype(np.float64)
                noise = math.sqrt(max(self.targets.spread(outside, outside), 0.0))
                if outside @ self.targets.values > TOLD * noise:
                    break
                inner = beyond
            found.append(float(ends[inner]))
        return found[0], found[1]

    def error_quantile(self, share: float) -> Estimate:
        """The size of error that this share of units does not exceed.

        With F the distribution of sizes, the share that is counted up to a knot a is the mean of F
        from a to the next knot b, as a value between them is counted at a by a coin: G(a). If F is
        below the share c up to a point t = a + s·(b − a), then G(a) ≤ s·c + (1 − s)·G(b), as F
        rises; if it is not below c beyond t, then G(a) ≥ s·G(before a) + (1 − s)·c. Each t has one
        test of either kind, from the gap or from the knot beside it, whichever says more. The
        limits are the first t that is refuted as too large, and the last that is as too small.

        Parameters
        ----------
        share : float
            Between 0 and 1.

        Returns
        -------
        Estimate
            Between knots.
        """
        sizes, picked = self._picked()
        every, cells = np.ones(picked.shape[1]), len(sizes) - 1
        z = quantile(self.confidence)

        def refuted(weights: np.ndarray) -> bool:
            noise = max(self.residuals.spread(weights, weights), 0.0)
            drawn = max(float(weights**2 @ self.residuals.values), 0.0)
            return float(weights @ self.residuals.values) > z * math.sqrt(noise + drawn)

        low, high = 0.0, float(sizes[-1])
        points = [(i, s) for i in range(cells) for s in np.linspace(0.0, 1.0, STEPS + 1)]
        before = np.vstack([np.zeros_like(every), picked])
        for i, s in points:
            gap = picked[i] - (1 - s) * picked[i + 1] - s * share * every
            if refuted(gap if s > NEAR else before[i] - share * every):
                high = float(sizes[i] + s * (sizes[i + 1] - sizes[i]))
                break
        for i, s in reversed(points):
            gap = s * before[i] + (1 - s) * share * every - picked[i]
            if refuted(gap if s < 1 - NEAR else share * every - picked[i + 1]):
                low = float(sizes[i] + s * (sizes[i + 1] - sizes[i]))
                break
        middles = np.append((sizes[:-1] + sizes[1:]) / 2, sizes[-1])
        value = float(np.interp(share, self._rising(picked), middles))
        low, high = min(low, high), max(low, high)
        return Estimate(min(max(value, low), high), low, high)

    def distribution(self) -> tuple[list[float], list[float]]:
        """Sizes of errors, and the share of units up to each; rising."""
        sizes, picked = self._picked()
        return sizes.tolist(), self._rising(picked).tolist()

    def _picked(self) -> tuple[np.ndarray, np.ndarray]:
        """Sizes at the knots, and which counts are of units that are counted up to each."""
        knots = self.residual_knots
        sizes = knots[len(knots) // 2 :]
        return sizes, (np.abs(knots) <= sizes[:, None] * (1 + 1e-12)).astype(np.float64)

    def _rising(self, picked: np.ndarray) -> np.ndarray:
        """Shares of units that are counted up to each size, none below the one before."""
        counts = self.residuals.values
        found = picked @ counts / max(float(counts.sum()), 1.0)
        return np.maximum.accumulate(np.clip(found, 0.0, 1.0))

    def _mean(self, values: np.ndarray, within: tuple[float, float]) -> Estimate:
        return mean(self.residuals, values, confidence=self.confidence, within=within)


def _between(knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By how much squares at knots are too large: at most, and for values spread evenly."""
    gaps = np.diff(knots) ** 2
    left, right = np.concatenate([[0.0], gaps]), np.concatenate([gaps, [0.0]])
    return np.maximum(left, right) / 4, (left + right) / 2 / 6


def _explained(error: Estimate, spread: Estimate) -> Estimate:
    """1 − error/spread: logarithms of both are added up as in `combine`."""
    if not (spread.low > 0 and math.isfinite(error.value)):
        return Estimate(math.nan, -math.inf, 1.0)
    most = error.high / spread.low
    if not error.value > 0:
        return Estimate(1.0, 1 - most, 1.0)
    ratio = error.value / spread.value
    down = math.hypot(_log(error.value, max(error.low, 1e-300)), _log(spread.high, spread.value))
    up = math.hypot(_log(error.high, error.value), _log(spread.value, spread.low))
    return Estimate(1 - ratio, 1 - min(ratio * math.exp(up), most), 1 - ratio * math.exp(-down))


def _log(a: float, b: float) -> float:
    return math.log(a / b)
