"""Residuals in any namespace of the array API standard, on any device.

They are made of correctly rounded operations alone, in the order of `tacit.losses.elementary`: an
addition, a multiplication, a division or a root of float64 has one result, on a graphics card as
elsewhere, as long as every operation is a pass of its own. So a row's residual does not depend on
where the row stands, and it is that of ``loss.portable()`` on NumPy, bit for bit.

Not every library rounds roots correctly: PyTorch leaves those on a processor to a vector library,
where one in eighty is off by a bit. Such a library is found out, and NumPy takes the roots instead.

Scores are (S, K, b) here, outputs before rows: a sum over outputs adds whole vectors of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.data.arrays import to_numpy
from tacit.losses.base import Array, Loss, MarginLoss
from tacit.losses.elementary import ATAN, ATANH, EXP, LN2_HIGH, LN2_LOW, LOG2E, LOWEST, SQUARINGS
from tacit.losses.margin import Hinge, HuberHinge, Logistic
from tacit.losses.multinomial import Softmax
from tacit.losses.nonconvex import Savage, Tangent, Tempered
from tacit.losses.regression import Absolute, Huber, Squared

POWERS = 1023  # 2^0 down to 2^-1022, the least normal number


class Elementary:
    """What residuals are made of besides arithmetic, in a namespace ``xp``.

    Parameters
    ----------
    xp : namespace
    device
        Of the arrays.
    portable : bool
        Whether exponentials come from correctly rounded operations, or from the library.
    """

    def __init__(self, xp: Any, device: Any, *, portable: bool) -> None:
        self.xp, self.device, self.portable = xp, device, portable
        self._powers = None
        if portable:  # by a table: the standard has no way to scale by powers of two
            self._powers = xp.asarray(np.ldexp(1.0, -np.arange(POWERS)), device=device)

    def sqrt(self, x: Array) -> Array:
        """Root, by NumPy where the library's own is not correctly rounded."""
        if not self.portable or rounds_roots(self.xp, self.device):
            return self.xp.sqrt(x)
        return self.xp.asarray(np.sqrt(to_numpy(x)), device=self.device)

    def exp(self, x: Array) -> Array:
        xp = self.xp
        if not self.portable:
            return xp.exp(x)
        r = xp.clip(x, min=LOWEST)
        k = xp.round(r * LOG2E)
        r = r - k * LN2_HIGH
        r = r - k * LN2_LOW
        work = _horner(r * 2.0**-SQUARINGS, EXP)
        for _ in range(SQUARINGS):
            work = work * work
        place = xp.clip(xp.astype(-k, xp.int64), min=0, max=POWERS - 1)
        scale = xp.take(self._powers, xp.reshape(place, (-1,)), axis=0)
        return work * xp.reshape(scale, x.shape)

    def sigmoid(self, x: Array) -> Array:
        small = self.exp(-self.xp.abs(x))
        return self.xp.where(x < 0, small, self.xp.ones_like(small)) / (small + 1.0)

    def log_sigmoid(self, x: Array) -> Array:
        s = self.exp(-self.xp.abs(x))
        s = s / (s + 2.0)
        return self.xp.clip(x, max=0.0) - _horner(s * s, ATANH) * s * 2.0

    def arctan(self, x: Array) -> Array:
        xp = self.xp
        t = xp.abs(x)
        large = t > 1.0
        t = xp.where(large, xp.ones_like(t) / xp.clip(t, min=1.0), t)
        for _ in range(2):
            t = t / (self.sqrt(t * t + 1.0) + 1.0)
        angle = _horner(t * t, ATAN) * t * 4.0
        angle = xp.where(large, math.pi / 2 - angle, angle)
        return xp.where(x < 0, -angle, angle)

    def fold(self, join: Callable[[Array, Array], Array], cube: Array) -> Array:
        """Fold the axis of the outputs, one after the other, to (S, b)."""
        folded = cube[:, 0, :]
        for k in range(1, cube.shape[1]):
            folded = join(folded, cube[:, k, :])
        return folded

    def total(self, cube: Array) -> Array:
        """Sum over the outputs, (S, b)."""
        return self.fold(lambda one, other: one + other, cube)


@lru_cache(maxsize=64)
def rounds_roots(xp: Any, device: Any) -> bool:
    """Whether roots are correctly rounded, by 4096 that lie next to the middle of two numbers."""
    middles = [(1 << 53) + 2 * (k * 0x9E3779B97F4A7 % (1 << 52)) + 1 for k in range(1 << 12)]
    squares = np.array([float(middle * middle) for middle in middles])
    found = to_numpy(xp.sqrt(xp.asarray(squares, device=device)))
    return bool(np.array_equal(found, np.sqrt(squares)))


def residual_in(loss: Loss) -> Callable[[Elementary, Array, Array], Array] | None:
    """Residuals of a loss from scores (S, K, b) and targets (K, b), or class indices (b,).

    None for a loss that is defined elsewhere, or is not made of what the standard has.
    """
    if type(loss) is Softmax:
        return _softmax
    slope = _SLOPES.get(type(loss))
    if slope is None or (isinstance(loss, Tempered) and loss.tail != 1):
        return None  # heavy tails begin at the exponents of numbers, which the standard has not

    def of_margin(by: Elementary, scores: Array, targets: Array) -> Array:
        return slope(loss, by, scores * targets) * targets

    def of_error(by: Elementary, scores: Array, targets: Array) -> Array:
        return slope(loss, by, scores - targets)

    return of_margin if isinstance(loss, MarginLoss) else of_error


def _softmax(by: Elementary, scores: Array, targets: Array) -> Array:
    xp, outputs = by.xp, scores.shape[1]
    powers = by.exp(scores - xp.expand_dims(by.fold(xp.maximum, scores), axis=1))
    total = by.total(powers)
    shares = powers * xp.expand_dims(xp.ones_like(total) / total, axis=1)
    own = [xp.expand_dims(targets == k, axis=0) for k in range(outputs)]
    return shares - xp.astype(xp.concat(own, axis=0), scores.dtype)


def _hinge(loss: Any, by: Elementary, u: Array) -> Array:
    return -by.xp.astype(u < 1.0, u.dtype)


def _huber_hinge(loss: Any, by: Elementary, u: Array) -> Array:
    return by.xp.clip((u - (1 + loss.half_width)) * loss.smoothness, min=-1.0, max=0.0)


def _savage(loss: Any, by: Elementary, u: Array) -> Array:
    right, wrong = by.sigmoid(u * 2.0), by.sigmoid(-(u * 2.0))
    return wrong * wrong * right * -4.0


def _tangent(loss: Any, by: Elementary, u: Array) -> Array:
    return (by.arctan(u) * 8.0 - 4.0) / (u * u + 1.0)


def _tempered(loss: Any, by: Elementary, u: Array) -> Array:
    a, p, q = loss._power, by.log_sigmoid(u), by.log_sigmoid(-u)
    return -(by.exp(p + q * (1 + a)) + by.exp(p * a + q * 2.0))


# phi' of u, operation by operation as in the modules of the losses; a subclass may differ.
_SLOPES: dict[type[Loss], Callable[[Any, Elementary, Array], Array]] = {
    Logistic: lambda loss, by, u: -by.sigmoid(-u),
    Hinge: _hinge,
    HuberHinge: _huber_hinge,
    Savage: _savage,
    Tangent: _tangent,
    Tempered: _tempered,
    Squared: lambda loss, by, u: u,
    Absolute: lambda loss, by, u: by.xp.sign(u),
    Huber: lambda loss, by, u: by.xp.clip(u, min=-loss.threshold, max=loss.threshold),
}


def _horner(x: Array, terms: list[float]) -> Array:
    out = x * terms[0] + terms[1]
    for term in terms[2:]:
        out = out * x + term
    return out
