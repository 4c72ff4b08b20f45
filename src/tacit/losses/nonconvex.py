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
    """Logistic loss with a tempered logarithm (Amid, Warmuth, Anil and Koren 2019), bounded.

    Their Bregman divergence, with t1 = t and sigmoids for probabilities (t2 = 1):
    (1 - p^a) / a - (1 - p^(1 + a) - q^(1 + a)) / (1 + a) with a = 1 - t, p = sigmoid(y s) and
    q = 1 - p. It nears the logistic loss as t nears 1, is q^2 at t = 0, and at most 1 / (1 - t).

    Parameters
    ----------
    temperature : float
        t, in [0, 1): the lower, the less a row far on the wrong side can say.

    Examples
    --------
    >>> float(Tempered(0.0).value(np.zeros((1, 1)), np.ones((1, 1)))[0])
    0.25
    """

    # phi' = -(p^a q^2 + p q^(1 + a)); phi'' = p^a q^2 (2 p - a q) + p q^(1 + a) ((1 + a) p - q)
    name = "tempered"
    temperature: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 0.9999:
            raise InputError(
                f"temperature must lie in [0, 0.9999], got {self.temperature!r}; near 1 it is the "
                "logistic loss."
            )

    @property
    def _power(self) -> float:
        return 1.0 - self.temperature

    @property
    def _steepest(self) -> float:
        return _extremes(self.temperature)[0]

    @property
    def _slope(self) -> float:
        return _extremes(self.temperature)[1]

    @property
    def smoothness(self) -> float:
        return _extremes(self.temperature)[2]

    def _phi(self, u: Array) -> Array:
        a, p, q = self._power, log_expit(u), log_expit(-u)
        return (np.expm1((1 + a) * p) + np.exp((1 + a) * q)) / (1 + a) - np.expm1(a * p) / a

    def _phi1(self, u: Array) -> Array:
        a, p = self._power, self._by.log_sigmoid(u)
        q = self._by.log_sigmoid(np.negative(u, out=u), out=u)
        steep = self._by.exp(a * p + 2 * q)
        return np.negative(np.add(self._by.exp(p + (1 + a) * q), steep, out=u), out=u)

    def _phi2(self, u: Array) -> Array:
        a, p, q = self._power, expit(u), expit(-u)
        first = np.exp(a * log_expit(u)) * np.square(q) * (2 * p - a * q)
        return first + p * q * np.exp(a * log_expit(-u)) * ((1 + a) * p - q)

    def probabilities(self, scores: Array) -> Array:
        """As of the logistic loss."""
        return _normalised(scores)


@lru_cache(maxsize=64)
def _extremes(temperature: float) -> tuple[float, float, float]:
    """Where a tempered loss is steepest, how steep, and its largest curvature, rounded up.

    The slope is steepest left of zero, from where it has at t = 0 to log(a / 2) as t nears 1.
    """
    loss = Tempered(temperature)
    grid = np.linspace(-12, 4, 1601)

    def most(function: Callable[[Array], Array]) -> tuple[float, float]:
        start = grid[np.argmax(function(grid.copy()))]
        found = minimize_scalar(
            lambda u: -float(function(np.array([u]))[0]),
            bounds=(start - 0.02, start + 0.02),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return float(found.x), -float(found.fun) * (1 + 1e-12)

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
