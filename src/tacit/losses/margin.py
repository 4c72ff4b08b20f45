"""Convex losses of the margin y s: classification in one output, or one class against the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_expit, logit

from tacit.losses.base import (
    NOWHERE,
    Array,
    Interval,
    MarginLoss,
    check_positive,
    falling_below,
    softmax,
)


@dataclass(frozen=True)
class Logistic(MarginLoss):
    """log(1 + exp(-m)) of the margin m = y s."""

    name = "logistic"
    smoothness = 0.25  # phi'' = p (1 - p) for p = sigmoid(m), largest at p = 1/2
    _slope = 1.0  # phi' = -sigmoid(-m)

    def _phi(self, u: Array) -> Array:
        return np.logaddexp(0, -u)

    def _phi1(self, u: Array) -> Array:
        return np.negative(self._by.sigmoid(np.negative(u, out=u), out=u), out=u)

    def _phi2(self, u: Array) -> Array:
        return expit(u) * expit(-u)

    def steep(self, limit: Array) -> tuple[Interval, Interval]:
        # sigmoid(-m) > limit
        return falling_below(-logit(np.minimum(limit, 1)), limit, self._slope), NOWHERE

    def probabilities(self, scores: Array) -> Array:
        """Sigmoids of -s and s for one output; else one of each score, normalised."""
        if scores.shape[-1] == 1:
            return expit(np.concatenate([-scores, scores], axis=-1))
        return softmax(log_expit(scores))  # in logarithms: the sigmoids may all underflow


@dataclass(frozen=True)
class Hinge(MarginLoss):
    """max(0, 1 - m) of the margin m = y s; the residual at the kink is 0."""

    name = "hinge"
    smoothness = math.inf  # the slope jumps at m = 1
    _slope = 1.0

    def _phi(self, u: Array) -> Array:
        return np.maximum(1 - u, 0)

    def _phi1(self, u: Array) -> Array:
        return np.negative(np.less(u, 1, out=u), out=u)

    def steep(self, limit: Array) -> tuple[Interval, Interval]:
        return falling_below(np.ones_like(limit), limit, self._slope), NOWHERE


@dataclass(frozen=True)
class HuberHinge(MarginLoss):
    """Hinge rounded off: (1 + h - m)^2 / (4 h) for margins between 1 - h and 1 + h.

    Zero above, 1 - m below (Chaudhuri, Monteleoni and Sarwate 2011, equation 7).

    Parameters
    ----------
    half_width : float
        h, half the width of the quadratic part.

    Examples
    --------
    >>> HuberHinge(0.5).smoothness
    1.0
    """

    name = "huber-hinge"
    _slope = 1.0
    half_width: float = 0.5

    def __post_init__(self) -> None:
        check_positive(half_width=self.half_width)

    @property
    def smoothness(self) -> float:
        return 0.5 / self.half_width  # the slope rises evenly from -1 to 0 over a width of 2 h

    def _phi(self, u: Array) -> Array:
        linear = np.maximum(1 - self.half_width - u, 0)
        return self.half_width * np.square(self._phi1(u.copy())) + linear

    def _phi1(self, u: Array) -> Array:
        np.subtract(u, 1 + self.half_width, out=u)
        np.multiply(u, self.smoothness, out=u)
        return np.clip(u, -1, 0, out=u)

    def _phi2(self, u: Array) -> Array:
        return np.multiply(np.abs(u - 1) < self.half_width, self.smoothness, dtype=u.dtype)

    def steep(self, limit: Array) -> tuple[Interval, Interval]:
        ends = 1 + self.half_width - 2 * self.half_width * limit
        return falling_below(ends, limit, self._slope), NOWHERE
