"""A loss: the logarithm of the hyperbolic cosine of the error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.losses.base import Array, Interval, RegressionLoss, beyond


@dataclass(frozen=True)
class LogCosh(RegressionLoss):
    """log cosh(r) of the error r = s - y: r^2 / 2 near zero, |r| - log 2 far out."""

    name = "log-cosh"
    smoothness = 1.0  # phi'' = 1 - tanh(r)^2, largest at r = 0
    _slope = 1.0  # phi' = tanh(r)

    def _phi(self, u: Array) -> Array:
        size = np.abs(u)
        return size + np.log1p(np.exp(-2 * size)) - math.log(2)

    def _phi1(self, u: Array) -> Array:
        # tanh(r) = 2 sigmoid(2 r) - 1, written over u. `_by` has the library's sigmoid, or the
        # one that strict arithmetic asks for.
        u *= 2
        self._by.sigmoid(u, out=u)
        u *= 2
        u -= 1
        return u

    def _phi2(self, u: Array) -> Array:
        return 1 - np.square(np.tanh(u))

    def steep(self, limit: Array) -> tuple[Interval, Interval]:
        # |tanh(r)| > limit, for the objective that clipping optimises
        return beyond(np.arctanh(np.minimum(limit, 1 - 2.0**-53)), limit, self._slope)
