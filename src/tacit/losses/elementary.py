"""Elementary functions: those of the libraries, and others of correctly rounded operations alone.

IEEE 754 fixes the result of an addition, a multiplication, a division, a root and a rounding to
the last bit. It says nothing about ``exp``, which libraries compute by different code for
different lengths, alignments and machines. What is composed here of the former gives a number the
same result wherever it stands in an array, and on every machine. Nothing can be contracted into a
fused operation, since each operation is a pass of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.special import expit, log_expit

Array: TypeAlias = Any  # ndarray of float32 or float64, kept as it comes
FEW_OUTPUTS = 24  # up to here, folding whole columns beats NumPy's reduction of short rows

LOWEST = -708.0  # e^-708 is a normal number; the function is constant below
LOG2E = float.fromhex("0x1.71547652b82fep+0")
# ln 2 in two parts. The first has 42 bits, so its product with k, of at most 10 bits, is exact.
LN2_HIGH = float.fromhex("0x1.62e42fefa3800p-1")
LN2_LOW = float.fromhex("0x1.ef35793c76730p-45")
SQUARINGS = 4
# 1/j! for j = 7 down to 0: the series is cut at 2e-18 of its value for |r| ≤ (ln 2)/2^5.
EXP = [1 / f for f in (5040, 720, 120, 24, 6, 2, 1, 1)]
# 1/(2j + 1), for s up to 1/3 and for t up to tan(π/16): cut at 2^-54 of their values.
ATANH = [1 / (2 * j + 1) for j in range(17, -1, -1)]
ATAN = [(-1) ** j / (2 * j + 1) for j in range(11, -1, -1)]
BIAS, MANTISSA = 1023, 52  # of float64


@dataclass(frozen=True)
class Functions:
    """What the residuals of losses are made of, besides arithmetic.

    Attributes
    ----------
    exp, sigmoid, log_sigmoid, arctan : callable
        Of an array, and of where to write the result.
    fold : callable
        Of a ufunc and an array, whose last axis is folded: for each row by the same operations
        in the same order.
    """

    exp: Callable[..., Array]
    sigmoid: Callable[..., Array]
    log_sigmoid: Callable[..., Array]
    arctan: Callable[..., Array]
    fold: Callable[[np.ufunc, Array], Array]


def exp(x: Array, out: Array | None = None) -> Array:
    """Exponential of numbers that are at most 0, to within 2^-48 of its value.

    Numbers below -708 count as -708. The result may be written over ``x``.

    Examples
    --------
    >>> exp(np.array([0.0, -1.0]))
    array([1.        , 0.36787944])
    """
    r = np.maximum(x, LOWEST, out=out)
    k = r * LOG2E
    np.rint(k, out=k)
    work = k * LN2_HIGH
    r -= work
    np.multiply(k, LN2_LOW, out=work)
    r -= work
    r *= 2.0**-SQUARINGS
    power = k.astype(np.int64)
    power += BIAS
    power <<= MANTISSA
    _horner(r, EXP, work)
    for _ in range(SQUARINGS):
        work *= work
    return np.multiply(work, power.view(np.float64), out=r)


def sigmoid(x: Array, out: Array | None = None) -> Array:
    """1/(1 + e^-x), as e^min(x, 0)/(1 + e^-|x|): no exponential above 1.

    Examples
    --------
    >>> sigmoid(np.array([-1000.0, 0.0, 2.0])).round(6)
    array([0.      , 0.5     , 0.880797])
    """
    small = np.abs(x)
    exp(np.negative(small, out=small), out=small)
    top = np.where(x < 0, small, 1.0)
    small += 1.0
    return np.divide(top, small, out=out)


def log_sigmoid(x: Array, out: Array | None = None) -> Array:
    """-log(1 + e^-x), as min(x, 0) - 2·artanh(e/(2 + e)) for e = e^-|x|.

    Examples
    --------
    >>> [round(float(value), 6) for value in log_sigmoid(np.array([-1000.0, 0.0, 2.0]))]
    [-1000.0, -0.693147, -0.126928]
    """
    s = np.abs(x)
    exp(np.negative(s, out=s), out=s)
    np.divide(s, s + 2.0, out=s)
    work = np.empty_like(s)
    _horner(s * s, ATANH, work)
    work *= s
    work *= 2.0
    return np.subtract(np.minimum(x, 0.0), work, out=out)


def arctan(x: Array, out: Array | None = None) -> Array:
    """Arctangent: of 1/|x| if |x| > 1, halved twice, then the Taylor series.

    Examples
    --------
    >>> arctan(np.array([-1.0, 0.0, 1e9])).round(6)
    array([-0.785398,  0.      ,  1.570796])
    """
    t = np.abs(x)
    large = t > 1.0
    t = np.where(large, 1.0 / np.maximum(t, 1.0), t)
    for _ in range(2):
        t = t / (1.0 + np.sqrt(1.0 + t * t))
    work = np.empty_like(t)
    _horner(t * t, ATAN, work)
    work *= t
    work *= 4.0
    angle = np.where(large, math.pi / 2 - work, work)
    return np.copysign(angle, x, out=out)


def _horner(x: Array, terms: list[float], out: Array) -> None:
    out.fill(terms[0])
    for term in terms[1:]:
        out *= x
        out += term


def columns(ufunc: np.ufunc, array: Array) -> Array:
    """Fold the last axis by one operation on whole columns after the other."""
    folded = array[..., 0].copy()
    for k in range(1, array.shape[-1]):
        ufunc(folded, array[..., k], out=folded)
    return folded


def fold(ufunc: np.ufunc, array: Array) -> Array:
    """The same, by the order of NumPy where outputs are many: it depends on their number only."""
    if array.shape[-1] > FEW_OUTPUTS:  # in C order, or the shape would choose the order of the sum
        return ufunc.reduce(np.ascontiguousarray(array), axis=-1)
    return columns(ufunc, array)


LIBRARY = Functions(np.exp, expit, log_expit, np.arctan, fold)
PORTABLE = Functions(exp, sigmoid, log_sigmoid, arctan, columns)
