r"""Intervals from noisy counts, that cover noise, sampling and the width of bins.

A figure θ of a population, of which units are a sample, is a ratio of two sums of counts (accuracy,
recall, a mean loss) or of two quadratic forms (the area under a curve). With x the counts in
expectation, g(θ) = N(x) − θ·D(x) is zero at the truth. Of the estimated counts x̂, which have
noise of covariance C on top of sampling, ĝ(θ) is unbiased, and its variance V(θ) is a quadratic
polynomial in θ. So is

.. math:: \{θ : ĝ(θ)^2 ≤ z^2 V(θ)\},

an interval whatever D(x̂) is, if it tells D from zero; all of the range if it does not (Fieller
1954). It is a score interval (Wilson 1927): sampling enters by its variance under θ.

- *Linear forms*, N = a·x, D = b·x, w = a − θb: noise wᵀCw; sampling Σ wᵢ²xᵢ, as g(θ) is zero
  (for Poisson counts; for a fixed number of units it is the same, since Σ wᵢxᵢ = 0). Of a share,
  where weights are 1 − θ and −θ, that is θ(1 − θ)D(x).
- *Quadratic forms*, N − θD = xᵀMx: E x̂ᵀMx̂ = xᵀMx + tr(MC), which is subtracted; the noise has
  variance 4xᵀMCMx + 2tr(MCMC), and 4x̂ᵀMCMx̂ exceeds its first part by 4tr(MCMC) in expectation;
  sampling Σ xᵢ(2Mx)ᵢ² (Hoeffding 1948), estimated without its bias as well.

Where a value is known up to the width of a bin, the lower limit is that of the smallest values
it may have, and the upper one that of the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from tacit.metrics.counts import Counts

SLACK = 1.03  # of deviations: counts are integers, and their variance is itself estimated
SMALL = 2.5  # the same, of one denominator among several
FLOOR = 4.0  # standard deviations from zero that a denominator is at least, to be divided by


@dataclass(frozen=True)
class Estimate:
    """A figure, and an interval that holds it with the stated confidence.

    Attributes
    ----------
    value : float
        The estimate; not a number if nothing can be said.
    low, high : float
        Limits.

    Examples
    --------
    >>> str(Estimate(0.853, 0.841, 0.866))
    '0.853 (0.841 to 0.866)'
    >>> str(Estimate(math.nan, 0.0, 1.0))
    'not known (0.000 to 1.000)'
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        known = "not known" if math.isnan(self.value) else f"{self.value:.3f}"
        return f"{known} ({self.low:.3f} to {self.high:.3f})"

    @property
    def width(self) -> float:
        """Of the interval."""
        return self.high - self.low

    def to_dict(self) -> dict[str, float | None]:
        """Plain JSON values; None for what is not a number.

        Returns
        -------
        dict
            Attributes by name.
        """
        return {
            name: number if math.isfinite(number) else None
            for name, number in (("value", self.value), ("low", self.low), ("high", self.high))
        }


@dataclass(frozen=True)
class Form:
    """ĝ(θ) = top − θ·bottom and its variance, a quadratic polynomial in θ."""

    top: float
    bottom: float
    variance: tuple[float, float, float]  # of θ^0, θ^1, θ^2

    def limits(self, z: float) -> tuple[float, float]:
        """Where ĝ² ≤ z²V; infinite if the denominator is not told from zero."""
        v0, v1, v2 = self.variance
        square = self.bottom**2 - z**2 * v2
        mixed = self.top * self.bottom + z**2 * v1 / 2
        if not (square > 0 and self.bottom > 0):
            return -math.inf, math.inf
        root = math.sqrt(max(mixed**2 - square * (self.top**2 - z**2 * v0), 0.0))
        return (mixed - root) / square, (mixed + root) / square


@lru_cache(maxsize=64)
def quantile(confidence: float) -> float:
    """z of a two-sided interval, with some slack.

    Examples
    --------
    >>> round(quantile(0.95) / SLACK, 3)
    1.96
    """
    return -SLACK * float(ndtri((1 - confidence) / 2))


def linear(counts: Counts, top: np.ndarray, bottom: np.ndarray) -> Form:
    """The form of (top · x)/(bottom · x).

    Parameters
    ----------
    counts : Counts
        x̂.
    top, bottom : ndarray of shape (m,)
        Weights.

    Returns
    -------
    Form
        Whose limits are those of the ratio.
    """
    x, spread = counts.values, counts.spread
    noise = _proper(spread(top, top), -2 * spread(top, bottom), spread(bottom, bottom))
    return Form(float(top @ x), float(bottom @ x), _added(noise, _drawn(x, top, bottom)))


def _drawn(x: np.ndarray, top: np.ndarray, bottom: np.ndarray) -> tuple[float, float, float]:
    """What sampling adds to the variance of (top − θ·bottom) · x̂, of θ^0, θ^1, θ^2.

    Where units have one of two weights, u or −v, it is u·v for every one of them, as weights sum
    to zero at the truth: Wilson's, which does not vanish where none was seen of a rare kind.
    """
    kinds = {(a, b) for a, b in zip(top.tolist(), bottom.tolist(), strict=True) if a or b}
    inside = [pair for pair in kinds if pair[0]]
    if len(kinds) == 2 and len(inside) == 1:
        ((a, b),) = inside
        ((_, c),) = kinds - {(a, b)}
        units = max(float(((top != 0) | (bottom != 0)) @ x), 0.0)
        return 0.0, a * c * units, -b * c * units
    v0, v1, v2 = (float((u * v) @ x) for u, v in ((top, top), (top, bottom), (bottom, bottom)))
    return _proper(v0, -2 * v1, v2)


def shares(
    counts: Counts, *, confidence: float, within: tuple[float, float] = (0.0, 1.0)
) -> list[Estimate]:
    """The share of every count in all of them.

    Parameters
    ----------
    counts : Counts
        x̂.
    confidence : float
        Of every interval by itself.
    within : (float, float)
        What they are clamped to.

    Returns
    -------
    list of Estimate
        As many as there are counts.
    """
    x, ones = counts.values, np.ones(len(counts.values))
    whole, v2 = float(x.sum()), counts.spread(ones, ones)
    drawn, found = (0.0, max(whole, 0.0), -max(whole, 0.0)), []
    for i in range(len(x)):
        one = np.zeros_like(ones)
        one[i] = 1.0
        noise = _proper(counts.spread(one, one), -2 * counts.spread(one, ones), v2)
        form = Form(float(x[i]), whole, _added(noise, drawn))
        found.append(interval(form, form, confidence=confidence, within=within))
    return found


def mean(
    counts: Counts,
    values: np.ndarray,
    *,
    confidence: float,
    within: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """The mean of what every cell stands for.

    Parameters
    ----------
    counts : Counts
        x̂.
    values : ndarray of shape (m,)
        Of the cells.
    confidence : float
        Of the interval.
    within : (float, float)
        What the mean can be.

    Returns
    -------
    Estimate
        A share, if values are 0 and 1.
    """
    form = linear(counts, values, np.ones_like(values))
    return interval(form, form, confidence=confidence, within=within)


def quadratic(counts: Counts, top: np.ndarray, bottom: np.ndarray) -> Form:
    """The form of (xᵀ top x)/(xᵀ bottom x).

    Parameters
    ----------
    counts : Counts
        x̂.
    top, bottom : ndarray of shape (m, m)
        Symmetric.

    Returns
    -------
    Form
        Whose limits are those of the ratio.
    """
    x, noise = counts.values, counts.covariance
    means = [float(x @ matrix @ x - np.sum(matrix * noise)) for matrix in (top, bottom)]
    lean = [2 * matrix @ x for matrix in (top, bottom)]
    moved = [matrix @ noise for matrix in (top, bottom)]
    variances = []
    for i, j in ((0, 0), (0, 1), (1, 1)):
        pure = 2 * float(np.sum(moved[i] * moved[j].T))  # of noise times noise
        first = float(lean[i] @ noise @ lean[j]) - pure
        # What noise adds to (2Mx̂)ᵢ² in the sum over units, on the average.
        excess = 4 * np.sum(moved[i] * (top, bottom)[j], axis=1)
        drawn = float((lean[i] * lean[j] - excess) @ x)
        variances.append((pure, max(first, pure) if i == j else first, drawn))
    (p0, f0, d0), (p1, f1, d1), (p2, f2, d2) = variances
    v0, v1, v2 = f0 + max(d0, 0.0), -2 * (f1 + d1), f2 + max(d2, 0.0)
    form = Form(means[0], means[1], _proper(v0, v1, v2))
    # Estimated variances may come out too small: never below what noise times noise has.
    at = min(max(means[0] / means[1], 0.0), 1.0) if means[1] > 0 else 0.5
    least = p0 - 2 * p1 * at + p2 * at**2
    if _at(form.variance, at) < least:
        form = replace(form, variance=_proper(p0, -2 * p1, p2))
    return form


def interval(
    low: Form,
    high: Form,
    *,
    middle: Form | None = None,
    confidence: float = 0.95,
    within: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """The estimate of a figure that lies between those of two forms.

    Parameters
    ----------
    low, high : Form
        With the smallest and the largest values that a bin allows; the same where bins say all.
    middle : Form, optional
        Of the estimate; between the two if not given.
    confidence : float
        Of the interval.
    within : (float, float)
        What the figure can be.

    Returns
    -------
    Estimate
        Clamped to the range.
    """
    z, (least, most) = quantile(confidence), within
    ends = [form.limits(z) for form in (low, high)]  # noise may have the two change places
    a, b = min(end[0] for end in ends), max(end[1] for end in ends)
    known = math.isfinite(b - a)
    forms, value, width = [middle] if middle else [low, high], math.nan, 0.0
    if known:
        ratios = [form.top / form.bottom for form in forms]
        value, width = float(np.clip(sum(ratios) / len(ratios), least, most)), b - a
    return Estimate(value, *_clamped(a, b, within, width))


def _clamped(
    low: float, high: float, within: tuple[float, float], width: float
) -> tuple[float, float]:
    """Limits in a range; as wide as they were, if noise has both beyond what is possible."""
    least, most = within
    if low > most:
        low = most - width
    if high < least:
        high = least + width
    return max(low, least), min(high, most)


def combine(
    parts: Sequence[Estimate],
    weights: Sequence[float],
    within: tuple[float, float] = (0.0, 1.0),
    unknown: tuple[float, float] | None = None,
) -> Estimate:
    """A weighted sum of figures of different units, with the limits that theirs imply.

    Distances from estimates to limits are added up as squares (Zou & Donner 2008).

    Parameters
    ----------
    parts : sequence of Estimate
        Independent of each other, or nearly so.
    weights : sequence of float
        May be negative.
    within : (float, float)
        What the sum can be.
    unknown : (float, float), optional
        What a part may be of which nothing is known: then the sum has limits, and no estimate.
        Weights must be positive. Nothing is known of the sum if not given.

    Returns
    -------
    Estimate
        Of the sum.

    Examples
    --------
    >>> str(combine([Estimate(0.8, 0.7, 0.9), Estimate(0.6, 0.5, 0.7)], [0.5, 0.5]))
    '0.700 (0.629 to 0.771)'
    """
    pairs = list(zip(parts, weights, strict=True))
    known = [pair for pair in pairs if math.isfinite(pair[0].value) and pair[0].width < math.inf]
    whole = sum(weights)
    open_weight = whole - sum(weight for _, weight in known)
    if not known or (len(known) < len(pairs) and unknown is None):
        return Estimate(math.nan, *within)
    value = below = above = 0.0
    for part, weight in known:
        value += weight * part.value
        down, up = part.value - part.low, part.high - part.value
        down, up = (down, up) if weight > 0 else (up, down)
        below += (weight * down) ** 2
        above += (weight * up) ** 2
    least, most = within
    low, high = value - math.sqrt(below), value + math.sqrt(above)
    if len(known) < len(pairs) and unknown is not None:
        low, high = low + open_weight * unknown[0], high + open_weight * unknown[1]
        value = math.nan
    value = float(np.clip(value, least, most))
    return Estimate(value, *_clamped(low, high, within, high - low))


def mean_of_ratios(
    counts: Counts, tops: np.ndarray, bottoms: np.ndarray, *, confidence: float
) -> Estimate:
    """The mean of several shares of the same counts, by first derivatives.

    Where noise is not small beside a denominator D, nothing is known of that share, and the mean
    has limits but no estimate. Noise that N
    and D have in common makes N/D too large by (θ·Var D − Cov(N, D))/D² on the average, which is
    taken off.

    Parameters
    ----------
    counts : Counts
        x̂.
    tops, bottoms : ndarray of shape (K, m)
        Weights of numerators and denominators.
    confidence : float
        Of the interval.

    Returns
    -------
    Estimate
        Between 0 and 1.
    """
    x, many = counts.values, len(tops)
    value, weights, known = 0.0, np.zeros_like(x), 0
    for top, bottom in zip(tops, bottoms, strict=True):
        size, noise = float(bottom @ x), counts.spread(bottom, bottom)
        if size <= SMALL * math.sqrt(max(noise, 0.0)) or size <= 0:
            continue
        share = float(top @ x) / size
        value += share - (share * noise - counts.spread(top, bottom)) / size**2
        weights += (top - share * bottom) / size
        known += 1
    if not known:
        return Estimate(math.nan, 0.0, 1.0)
    drawn = max(float(weights**2 @ x), 0.0)
    off = quantile(confidence) * math.sqrt(max(counts.spread(weights, weights), 0.0) + drawn)
    low, high = max((value - off) / many, 0.0), min((value + off + many - known) / many, 1.0)
    low, high = min(low, high), max(low, high)
    middle = float(np.clip(value / many, low, high)) if known == many else math.nan
    return Estimate(middle, low, high)


def smooth(
    counts: Counts,
    low: Callable[[np.ndarray], np.ndarray],
    high: Callable[[np.ndarray], np.ndarray],
    *,
    confidence: float,
    within: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """A figure between two smooth functions of the counts, by their first derivatives.

    Parameters
    ----------
    counts : Counts
        Far enough from where the functions break.
    low, high : callable
        Of counts, which are the last axis.
    confidence : float
        Of the interval.
    within : (float, float)
        What the figure can be.

    Returns
    -------
    Estimate
        Halfway between the two.
    """
    z, x = quantile(confidence), counts.values
    found, spreads = [], []
    for function in (low, high):
        value = float(function(x))
        step = np.maximum(np.abs(x), 1.0) * 1e-5
        slope = (function(x + np.diag(step)) - function(x - np.diag(step))) / (2 * step)
        drawn = max(float(slope**2 @ x), 0.0)
        found.append(value)
        spreads.append(math.sqrt(max(float(slope @ counts.covariance @ slope), 0.0) + drawn))
    least, most = within
    value = float(np.clip(sum(found) / 2, least, most))
    a, b = found[0] - z * spreads[0], found[1] + z * spreads[1]
    return Estimate(value, float(np.clip(a, least, value)), float(np.clip(b, value, most)))


def _proper(v0: float, v1: float, v2: float) -> tuple[float, float, float]:
    """Coefficients of a polynomial that is nowhere negative, as a variance is."""
    v0, v2 = max(v0, 0.0), max(v2, 0.0)
    most = 2 * math.sqrt(v0 * v2)
    return v0, min(max(v1, -most), most), v2


def _added(
    one: tuple[float, float, float], other: tuple[float, float, float]
) -> tuple[float, float, float]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _at(variance: tuple[float, float, float], theta: float) -> float:
    return variance[0] + variance[1] * theta + variance[2] * theta**2
