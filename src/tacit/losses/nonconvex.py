"""Bounded losses of the margin y s, which forgive rows that are far on the wrong side.

They flatten out where a convex loss goes on falling, so a mislabelled row loses its say. What
remains true without convexity: gradients are bounded, noise keeps them private, and descent finds
a flat place (Song et al. 2021, Theorem 4.1; `tacit.research.theory.flatness`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit

from tacit.exceptions import InputError
from tacit.losses.base import NOWHERE, Array, Interval, MarginLoss, softmax
from tacit.losses.elementary import LIBRARY, Functions

NEWTON = 6  # steps to the last bits of heavy tails, from the worst margin


class _Bumped(MarginLoss):
    """phi with one steepest fall and at most one steepest rise, flatter on either side of them."""

    convex = False
    _fall: ClassVar[float]  # the margin of the steepest fall
    _rise: ClassVar[float | None] = None

    def steep(self, limit: Array) -> tuple[Interval, Interval]:
        fall = _around(lambda u: -self._phi1(u), self._steepest, limit)
        rise = NOWHERE if self._rise is None else _around(self._phi1, self._rise, limit)
        return fall, rise

    @property
    def _steepest(self) -> float:
        return self._fall


@dataclass(frozen=True)
class Savage(_Bumped):
    """1 / (1 + exp(2 m))^2 of the margin m = y s (Masnadi-Shirazi and Vasconcelos 2009)."""

    # With p = sigmoid(-2 m): phi' = -4 p^2 (1 - p), phi'' = 8 p^2 (1 - p) (2 - 3 p).
    name = "savage"
    _slope = 16 / 27  # at p = 2/3
    _fall = -math.log(2) / 2
    smoothness = 0.61623428048540250  # at p = (15 - sqrt(33)) / 24, where 12 p^2 - 15 p + 4 = 0

    def _phi(self, u: Array) -> Array:
        return np.square(expit(-2 * u))

    def _phi1(self, u: Array) -> Array:
        np.multiply(u, 2, out=u)
        right = self._by.sigmoid(u)
        wrong = self._by.sigmoid(np.negative(u, out=u), out=u)
        return np.multiply(np.multiply(np.square(wrong, out=u), right, out=u), -4, out=u)

    def _phi2(self, u: Array) -> Array:
        p = expit(-2 * u)
        return 8 * np.square(p) * expit(2 * u) * (2 - 3 * p)

    def probabilities(self, scores: Array) -> Array:
        """Sigmoids of twice the scores, which the loss is proper for; normalised if several."""
        return _normalised(2 * scores)


@dataclass(frozen=True)
class Tangent(_Bumped):
    """(2 arctan(m) - 1)^2 of the margin m = y s (Masnadi-Shirazi, Mahadevan and Vasconcelos 2010).

    Least at m = tan(1/2): rows far on the *right* side cost a little again. It is proper for
    arctan(s) + 1/2, which leaves [0, 1], so it is not asked for probabilities. Give its trainer a
    learning rate: automatic ones suit losses that are flat on the right side.
    """

    # phi' = 4 (2 arctan(m) - 1) / (1 + m^2), phi'' = 8 (1 - m (2 arctan(m) - 1)) / (1 + m^2)^2;
    # the slope is extreme where m (2 arctan(m) - 1) = 1. The constants below are rounded up.
    name = "tangent"
    _fall = -0.5132473179249821
    _rise = 1.2555733424472708
    _slope = 6.168571308828052  # of the fall; the rise has 1.24
    smoothness = 8.484612157278840  # at m = 0.12098

    def _phi(self, u: Array) -> Array:
        return np.square(2 * np.arctan(u) - 1)

    def _phi1(self, u: Array) -> Array:
        angle = self._by.arctan(u)
        np.multiply(angle, 8, out=angle)
        np.subtract(angle, 4, out=angle)
        np.add(np.square(u, out=u), 1, out=u)
        return np.divide(angle, u, out=u)

    def _phi2(self, u: Array) -> Array:
        return 8 * (1 - u * (2 * np.arctan(u) - 1)) / np.square(1 + np.square(u))


@dataclass(frozen=True)
class Tempered(_Bumped):
    """Bi-tempered logistic loss (Amid, Warmuth, Anil and Koren 2019), bounded.

    Their Bregman divergence, with t1 = ``temperature`` and a = 1 - t1:
    (1 - p^a) / a - (1 - p^(1 + a) - q^(1 + a)) / (1 + a), q = 1 - p. It nears the logistic loss as
    t1 nears 1, is q^2 at t1 = 0, and at most 1 / (1 - t1).

    p is the tempered softmax of the scores (y s, 0), with t2 = ``tail``: the p for which
    log_t p - log_t q = y s, where log_t x = (x^(1 - t) - 1) / (1 - t). With t2 = 1 that is the
    sigmoid; with t2 > 1 it has heavy tails, p falling like |s|^(-1 / (t2 - 1)).

    Parameters
    ----------
    temperature : float
        t1, in [0, 1): the lower, the less a row far on the wrong side can say.
    tail : float
        t2, from 1 to 4: the larger, the longer a row near the border has its say. Below 1 rows
        would have probabilities of 0 and 1, and the gradient a kink if t2 < (1 + t1) / 2.

    Examples
    --------
    >>> float(Tempered(0.0).value(np.zeros((1, 1)), np.ones((1, 1)))[0])
    0.25
    >>> Tempered(0.5, tail=2.0).probabilities(np.array([[1.5]])).round(4)
    array([[0.3333, 0.6667]])
    """

    # dp/dm = G = (p q)^t / (p^t + q^t), from the derivative of log_t p - log_t q = m in p; hence
    # phi' = g G with g = -(p^(a - 1) q + q^a), and phi'' = (g' G + g G') G. At t = 1, G = p q.
    name = "tempered"
    temperature: float = 0.5
    tail: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 0.9999:
            raise InputError(
                f"temperature must lie in [0, 0.9999], got {self.temperature!r}; near 1 it is the "
                "logistic loss."
            )
        if not (self.tail == 1 or 1.01 <= self.tail <= 4):
            raise InputError(
                f"tail must be 1, for sigmoids, or lie in [1.01, 4], got {self.tail!r}."
            )

    @property
    def _power(self) -> float:
        return 1.0 - self.temperature

    @property
    def _steepest(self) -> float:
        return _extremes(self.temperature, self.tail)[0]

    @property
    def _slope(self) -> float:
        return _extremes(self.temperature, self.tail)[1]

    @property
    def smoothness(self) -> float:
        return _extremes(self.temperature, self.tail)[2]

    def _phi(self, u: Array) -> Array:
        a = self._power
        p, q = self._logarithms(u, LIBRARY)
        return (np.expm1((1 + a) * p) + np.exp((1 + a) * q)) / (1 + a) - np.expm1(a * p) / a

    def _phi1(self, u: Array) -> Array:
        a, t = self._power, self.tail
        p, q = self._logarithms(u, self._by)
        if t == 1:
            steep = self._by.exp(a * p + 2 * q)
            return np.negative(np.add(self._by.exp(p + (1 + a) * q), steep, out=u), out=u)
        steep = self._by.exp((a - 1 + t) * p + (1 + t) * q)
        np.add(steep, self._by.exp(t * p + (a + t) * q), out=steep)
        total = np.add(self._by.exp(t * p), self._by.exp(t * q))
        return np.negative(np.divide(steep, total, out=u), out=u)

    def _phi2(self, u: Array) -> Array:
        a, t = self._power, self.tail
        p, q = self._logarithms(u, LIBRARY)

        def power(i: float, j: float) -> Array:
            return np.exp(i * p + j * q)  # of p and q; no exponent is negative, since t >= 1

        total = power(t, 0) + power(0, t)
        rising = (1 - a) * power(a - 2 + 2 * t, 1 + 2 * t) + power(a - 1 + 2 * t, 2 * t)
        rising += a * power(2 * t, a - 1 + 2 * t)
        falling = power(a + 2 * t - 2, 3 * t + 1) - power(a + 3 * t - 1, 2 * t)
        falling += power(2 * t - 1, a + 3 * t) - power(3 * t, a + 2 * t - 1)
        return (rising - t * falling / total) / np.square(total)

    def probabilities(self, scores: Array) -> Array:
        """Tempered sigmoids of the scores, normalised if several."""
        return _normalised(scores if self.tail == 1 else _odds(scores, self.tail - 1, LIBRARY))

    def _logarithms(self, u: Array, by: Functions) -> tuple[Array, Array]:
        """Of p and of q."""
        z = u if self.tail == 1 else _odds(u, self.tail - 1, by)
        return by.log_sigmoid(z), by.log_sigmoid(-z)


def _odds(margin: Array, b: float, by: Functions) -> Array:
    """z with (q^-b - p^-b) / b = m for p = sigmoid(z), q = 1 - p, and b > 0.

    The left side is odd in z, convex for z > 0, and at least z and (e^(b z) - 2^b) / b there. So
    Newton's method falls to the root from the lesser of |m| and log(b |m| + 2^b) / b, whose
    logarithm may be a little too large: that of a mantissa is at most its tangent. The number of
    steps is fixed: a row's result depends on the row alone.
    """
    size = np.abs(margin)
    mantissa, exponent = np.frexp(b * size + 2.0**b)
    tangent = (mantissa - 0.75) * (4 / 3) + math.log(0.75)
    start = (tangent + exponent.astype(size.dtype) * math.log(2)) / b
    z = np.minimum(size, start.astype(size.dtype))
    for _ in range(NEWTON):
        far, near = by.exp(b * by.log_sigmoid(-z)), by.exp(b * by.log_sigmoid(z))  # q^b, p^b
        p, q = by.sigmoid(z), by.sigmoid(-z)
        over = (1 / far - 1 / near) / b - size
        z = z - over / (p / far + q / near)
    return np.copysign(z, margin)


@lru_cache(maxsize=64)
def _extremes(temperature: float, tail: float = 1.0) -> tuple[float, float, float]:
    """Where a tempered loss is steepest, how steep, and its largest curvature, rounded up.

    The slope is steepest left of zero: with sigmoids, from where it has at t = 0 to log(a / 2) as t
    nears 1. The search is along log(p / q), in which heavy tails are no longer.
    """
    loss = Tempered(temperature, tail)
    grid = np.linspace(-12, 4, 1601)
    b = tail - 1

    def margins(odds: Array) -> Array:
        if not b:
            return np.array(odds)
        return (np.exp(-b * log_expit(-odds)) - np.exp(-b * log_expit(odds))) / b

    def most(function: Callable[[Array], Array]) -> tuple[float, float]:
        seen = function(margins(grid))
        peaks = np.flatnonzero((seen >= np.roll(seen, 1)) & (seen >= np.roll(seen, -1)))
        best = (0.0, 0.0)
        for start in grid[peaks[seen[peaks] > 0.99 * seen.max()]]:
            found = minimize_scalar(
                lambda z: -float(function(margins(np.array([z])))[0]),
                bounds=(start - 0.02, start + 0.02),
                method="bounded",
                options={"xatol": 1e-10},
            )
            best = max(best, (-float(found.fun) * (1 + 1e-12), float(found.x)))
        return float(margins(np.array(best[1:]))[0]), best[0]

    at, slope = most(lambda u: -loss._phi1(u))
    return at, slope, most(lambda u: np.abs(loss._phi2(u)))[1]


def _normalised(scores: Array) -> Array:
    if scores.shape[-1] == 1:
        return expit(np.concatenate([-scores, scores], axis=-1))
    return softmax(log_expit(scores))  # in logarithms: the sigmoids may all underflow


def _around(slope: Callable[[Array], Array], peak: float, limit: Array) -> Interval:
    """The ends of the stretch around its peak on which a slope exceeds the limit."""
    limits = np.atleast_1d(np.asarray(limit, dtype=np.float64))
    exceeds = limits < slope(np.full(1, peak))
    sought = limits[exceeds]
    ends = []
    for way in (-1, 1):
        end = np.zeros(limits.shape)
        end[exceeds] = _crossing(slope, peak, way, sought)
        ends.append(end.reshape(np.shape(limit)))
    return ends[0], ends[1]


def _crossing(slope: Callable[[Array], Array], peak: float, way: int, limit: Array) -> Array:
    """Bisection between a point that exceeds the limit and one farther out that does not."""
    inside, step = np.full(limit.shape, peak), np.ones(limit.shape)
    while np.any(over := slope(peak + way * step) > limit):
        step = np.where(over, 2 * step, step)
    outside = peak + way * step
    for _ in range(60):
        middle = (inside + outside) / 2
        over = slope(middle.copy()) > limit
        inside, outside = np.where(over, middle, inside), np.where(over, outside, middle)
    return outside
