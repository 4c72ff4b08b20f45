"""Losses of the error s - y."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.losses.base import Array, Interval, RegressionLoss, beyond, check_positive


@dataclass(frozen=True)
class Squared(RegressionLoss):
    """r^2 / 2 of the error r = s - y."""

    name = "squared"
    smoothness = 1.0  # phi'' = 1
    _slope = math.inf  # phi' = r

    def _phi(self, u: Array) -> Array:
        return np.square(u) / 2

    def _phi1(self, u: Array) -> Array:
        return u

    def _phi2(self, u: Array) -> Array:
        return np.ones_like(u)

    def steep(self, limit: Array) -> tuple[Interval, Interval]:
        return beyond(limit, limit, self._slope)


@dataclass(frozen=True)
class Absolute(RegressionLoss):
    """|r| of the error r = s - y; the residual at the kink is 0."""

    name = "absolute"
    smoothness = math.inf  # the slope jumps at r = 0
    _slope = 1.0  # phi' = sign(r)

    def _phi(self, u: Array) -> Array:
        return np.abs(u)

    def _phi1(self, u: Array) -> Array:
        return np.sign(u, out=u)

    def steep(self, limit: Array) -> tuple[Interval, Interval]:
        return beyond(np.zeros_like(limit), limit, self._slope)


@dataclass(frozen=True)
class Huber(RegressionLoss):
    """r^2 / 2 of the error r = s - y up to a threshold, linear beyond (Huber 1964).

    Parameters
    ----------
    threshold : float
        The error at which the quadratic part ends.

    Examples
    --------
    >>> Huber(2.0).lipschitz(1)
    2.0
    """

    name = "huber"
    smoothness = 1.0  # phi'' = 1 within the threshold, 0 beyond
    threshold: float = 1.0

    def __post_init__(self) -> None:
        check_positive(threshold=self.threshold)

    @property
    def _slope(self) -> float:
        return self.threshold  # phi' = clip(r, -threshold, threshold)

    def _phi(self, u: Array) -> Array:
        size = np.abs(u)
        inner = np.minimum(size, self.threshold)
        return inner * (size - inner / 2)

    def _phi1(self, u: Array) -> Array:
        return np.clip(u, -self.threshold, self.threshold, out=u)

    def _phi2(self, u: Array) -> Array:
        return (np.abs(u) < self.threshold).astype(u.dtype)

    def steep(self, limit: Array) -> tuple[Interval, Interval]:
        return beyond(limit, limit, self._slope)
