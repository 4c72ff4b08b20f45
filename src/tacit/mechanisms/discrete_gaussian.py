"""The exact discrete Gaussian, from random words, at the speed of array operations.

The target is the discrete Gaussian of Canonne, Kamath and Steinke ("The Discrete Gaussian for
Differential Privacy", NeurIPS 2020, Definition 1), centred at 0: for every integer x,

    P[x]  proportional to  exp(-x² / 2σ²).

Method
------
Write |x| = kM + y with 0 <= k < 512, 0 <= y < M, where M is the least power of two with
σ/M < 32. One *attempt* draws k from a table with weights exp(-(kM)²/2σ²), y uniformly, and keeps
the pair with probability exp(-y(y + 2kM)/2σ²). The product is exp(-(kM + y)²/2σ²), as wanted. A
random sign follows; "minus zero" is dropped, since zero would otherwise count twice.

An attempt reads two 64-bit words. From the top, the first holds the table column (9 bits), the
leading bits of the number f that is compared with the column's threshold (27) and those of the
number v that is compared with the acceptance probability (28). The second holds the sign (its
top bit) and y (its low bits). The numbers f and v have 192 bits; the 165 and 164 bits that do not
fit are asked for only when the leading ones do not settle the comparison, about once in 2^16
attempts. So floating point is used only where its error cannot change the answer, and the output
is the same integer on every machine, with compiled loops (`noise.h`) and without.

Error per draw
--------------
- *Support.* |x| >= 512 M is left out. By the paper's tail bound, P[X >= m] <= P[N(0, σ²) > m - 1],
  and (512 M - 1)/σ > 511/32, this is at most 2^-188.
- *Table.* The weights are integers that sum to 2^201, each but the first less than two below its
  exact value: total variation at most 2^-191. The alias table represents them exactly.
- *Acceptance.* The probability is rounded to 192 bits: 2^-191 per attempt.

An attempt is kept with probability at least 1/2, so conditioning multiplies the last two by at
most 4. The total is below 2^-186; :data:`TOTAL_VARIATION` claims 2^-180.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.exceptions import InputError

try:
    from tacit.mechanisms import native
except ImportError:  # no compiler where this was installed
    native = None  # type: ignore[assignment]

TOTAL_VARIATION = 2.0**-180
"""Upper bound on the total variation distance of one draw from the discrete Gaussian."""

SIGMA_LIMIT = 2.0**58
"""From here on, x and y + 2kM would leave int64."""

BLOCK = 16384
"""Attempts evaluated together: the work arrays then stay in the cache."""

COLUMNS = 512
COLUMN_BITS, F_BITS, V_BITS = 9, 27, 28
LONG_BITS = 192  # length of f and of v when they are drawn in full

# How near a comparison must be before the long numbers decide it. Tests widen both.
#
# f: its leading bits settle the comparison unless they equal those of the threshold.
ALIAS_MARGIN = 0
# v: in units of 2^-28, float32 errs by at most 160 (five roundings of an exponent below 2 in size),
# 8 (v) and 8 (difference) plus 2^28 times the relative error of exp. A margin of 2^11 therefore
# allows exp a relative error of 2^-18, some 20 times that of any float32 library.
ACCEPT_MARGIN = 2.0**11

_POINT = 320  # fractional bits of the multi-precision numbers
_HALVINGS = 16

_SHIFT_COLUMN = np.uint64(64 - COLUMN_BITS)
_SHIFT_F = np.uint64(V_BITS)
_MASK_V = np.int64((1 << V_BITS) - 1)

Long = Callable[[int], tuple[int, int]]
"""From the number of an attempt to two independent uniform integers of 192 bits."""


@dataclass(frozen=True, eq=False)
class Table:
    """Everything about one σ that an attempt needs.

    Attributes
    ----------
    sigma : float
        The scale, taken as the exact dyadic rational that the float is.
    shift : int
        log2 of M.
    thresholds : tuple of int
        For each column, the exact threshold out of 2^192.
    aliases : tuple of int
        For each column, the k that is taken at and above the threshold.
    marks : ndarray of int64
        Column and leading 27 bits of its threshold, less one: the last 36 leading bits of a word
        for which the column itself is taken, however its other bits go.
    moves : ndarray of int64
        ``aliases[b] - b``.
    columns : ndarray of int32, shape (512, 2)
        Leading 27 bits of the threshold, and the alias, for compiled loops.
    kept : float
        Probability that an attempt is kept; only used to guess how many to evaluate.
    """

    sigma: float
    shift: int
    thresholds: tuple[int, ...]
    aliases: tuple[int, ...]
    marks: NDArray[np.int64]
    moves: NDArray[np.int64]
    columns: NDArray[np.int32]
    kept: float


def exp_minus(numerator: int, denominator: int) -> int:
    """Return 2^320·exp(-numerator/denominator) in exact integers, within 2^22.

    Parameters
    ----------
    numerator, denominator : int
        A ratio that is at least 0.

    Returns
    -------
    int
        Exactly 2^320 for ratio 0, and 0 for ratios above 256 (the true value is below one unit).

    Notes
    -----
    The Taylor series of the ratio divided by 2^16 (then at most 2^-8) loses fewer than 42 units
    to truncation; each of the 16 squarings doubles the error and adds one unit.

    Examples
    --------
    >>> exp_minus(1, 2) / 2**320
    0.6065306597126334
    """
    if numerator > 256 * denominator:
        return 0
    ratio = (numerator << _POINT) // (denominator << _HALVINGS)
    total = term = 1 << _POINT
    n = 0
    while term:
        n += 1
        term = term * ratio // (n << _POINT)
        total += term if n % 2 == 0 else -term
    for _ in range(_HALVINGS):
        total = total * total >> _POINT
    return total


@lru_cache(maxsize=64)
def table(sigma: float) -> Table:
    """Prepare one σ: about a millisecond, and kept for the 64 most recent values.

    Parameters
    ----------
    sigma : float
        In lattice units; positive and below 2^58.

    Returns
    -------
    Table
    """
    if not 0.0 < sigma < SIGMA_LIMIT:
        raise InputError(
            f"sigma is {sigma!r} lattice units; it must be above 0 and below 2^58, or the noise "
            "leaves 64-bit integers. For a large sigma choose a coarser lattice."
        )
    shift = 0
    while math.ldexp(sigma, -shift) >= 32.0:
        shift += 1
    top, bottom = sigma.as_integer_ratio()

    # exp(-ck²) for c = M²/2σ², by exp(-c(k+1)²) = exp(-ck²)·exp(-c(2k+1)). All factors are at
    # most 1, so errors only add: below 2^-275 after 512 steps, against the 2^-201 kept.
    base = exp_minus((bottom << shift) ** 2, 2 * top * top)
    square = base * base >> _POINT
    exact, value, factor = [], 1 << _POINT, base
    for _ in range(COLUMNS):
        exact.append(value)
        value = value * factor >> _POINT
        factor = factor * square >> _POINT
    total = sum(exact)

    # Integers that sum to 512·2^192; rounding goes to k = 0, where it is smallest in proportion.
    weights = [(value << (LONG_BITS + COLUMN_BITS)) // total for value in exact]
    weights[0] += (1 << (LONG_BITS + COLUMN_BITS)) - sum(weights)
    thresholds, aliases = _alias(weights)

    columns = np.arange(COLUMNS, dtype=np.int64)
    leading = np.array([t >> (LONG_BITS - F_BITS) for t in thresholds], dtype=np.int64)
    return Table(
        sigma=sigma,
        shift=shift,
        thresholds=tuple(thresholds),
        aliases=tuple(aliases),
        marks=(columns << F_BITS) + leading - 1,
        moves=np.array(aliases, dtype=np.int64) - columns,
        columns=np.stack([leading, aliases], axis=1).astype(np.int32),
        # Sum over x >= 0 with half of x = 0, over M times the sum over k: the first is M times
        # the second less one half (Poisson summation; exactly so for M = 1).
        kept=1.0 - 0.5 * (1 << _POINT) / total,
    )


def _alias(weights: list[int]) -> tuple[list[int], list[int]]:
    """Spread weights that sum to 512·2^192 over columns of 2^192 (Walker 1977; Vose 1991).

    In integers nothing is lost: the last columns come out full, not nearly full.
    """
    full = 1 << LONG_BITS
    left = list(weights)
    aliases = list(range(COLUMNS))
    small = [k for k in range(COLUMNS) if left[k] < full]
    large = [k for k in range(COLUMNS) if left[k] > full]
    while small:
        low, high = small.pop(), large[-1]
        aliases[low] = high
        left[high] -= full - left[low]
        if left[high] <= full:
            large.pop()
            if left[high] < full:
                small.append(high)
    return left, aliases


class Scratch(threading.local):
    """Work arrays of this thread. Fresh ones would cost more than the arithmetic on them."""

    def __init__(self) -> None:
        # first word, second word, column then y, work, k, x
        self.integers = np.empty((6, BLOCK), dtype=np.int64)
        self.singles = np.empty((2, BLOCK), dtype=np.float32)
        self.flags = np.empty((2, BLOCK), dtype=np.bool_)


scratch = Scratch()


def attempt(
    words: NDArray[np.uint64], table: Table, long: Long
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Evaluate attempts, two words each.

    Parameters
    ----------
    words : ndarray of uint64
        At most ``2 * BLOCK``, independent and uniform.
    table : Table
        From :func:`table`.
    long : callable
        Gives attempt i two more independent uniform integers of 192 bits, for f and for v.

    Returns
    -------
    values : ndarray of int64
        One candidate for each attempt.
    kept : ndarray of bool
        Which of them are draws. Both arrays are overwritten by the next call in this thread.
    """
    n = words.size // 2
    first, second, _, _, k, x = scratch.integers[:, :n]
    kept, other = scratch.flags[:, :n]
    signed = words.view(np.int64)
    first[...] = signed[0 : 2 * n : 2]
    second[...] = signed[1 : 2 * n : 2]

    _pick(n, table, long)
    if table.shift == 0:  # M = 1: y = 0, and every attempt is accepted
        x = k
        kept.fill(True)
    else:
        judge(n, table, long)

    # Sign, as the exclusive or with 0 or -1: -x - 1 for a negative one. So -1 is minus zero.
    second >>= 63
    x ^= second
    np.not_equal(x, -1, out=other)
    kept &= other
    x -= second
    return x, kept


def _pick(n: int, table: Table, long: Long) -> None:
    """Find k: the column below its threshold, its alias at and above it."""
    first, _, column, room, k, _ = scratch.integers[:, :n]
    unsettled = scratch.flags[1, :n]
    unsigned = first.view(np.uint64)
    np.right_shift(unsigned, _SHIFT_COLUMN, out=column.view(np.uint64))
    np.right_shift(unsigned, _SHIFT_F, out=room.view(np.uint64))
    np.subtract(table.marks.take(column, out=k, mode="wrap"), room, out=room)
    table.moves.take(column, out=k, mode="wrap")
    if ALIAS_MARGIN:
        np.less_equal(np.abs(room + 1), ALIAS_MARGIN, out=unsettled)
    else:
        np.equal(room, -1, out=unsettled)
    room >>= 63  # all ones at and above the threshold
    k &= room
    k += column
    if not np.count_nonzero(unsettled):
        return
    for i in np.flatnonzero(unsettled).tolist():
        b = int(column[i])
        f = int(first[i]) >> V_BITS & ((1 << F_BITS) - 1)
        f = f << (LONG_BITS - F_BITS) | long(i)[0] >> F_BITS
        k[i] = b if f < table.thresholds[b] else table.aliases[b]


def judge(n: int, table: Table, long: Long) -> None:
    """Find x, and keep it where v is below exp(-y(y + 2kM)/2σ²)."""
    first, second, y, sums, k, x = scratch.integers[:, :n]
    kept, perhaps = scratch.flags[:, :n]
    p, v = scratch.singles[:, :n]
    np.bitwise_and(second, (1 << table.shift) - 1, out=y)
    k <<= table.shift
    np.bitwise_or(k, y, out=x)
    np.add(k, x, out=sums)
    # y(y + 2kM) = y(x + kM), below 2^116, in single precision: two conversions, a product, the
    # constant (at least 2^-117, so a normal number) and its product are five roundings of 2^-24.
    # σ >= 16M, so the exponent is above -1023/512.
    p[...] = y
    v[...] = sums
    p *= v
    p *= np.float32(-0.5 / (table.sigma * table.sigma))
    np.exp(p, out=p)
    p *= np.float32(1 << V_BITS)
    first &= _MASK_V
    v[...] = first
    p -= v
    np.greater(p, ACCEPT_MARGIN, out=kept)
    np.greater(p, -ACCEPT_MARGIN, out=perhaps)
    if np.count_nonzero(kept) != np.count_nonzero(perhaps):
        for i in np.flatnonzero(kept != perhaps).tolist():
            kept[i] = _accept(table, int(x[i]), int(y[i]), int(first[i]), long(i)[1])


@cache
def level() -> int:
    """The fastest kind of compiled loops that this processor can run."""
    return native.levels() - 1


def compiled() -> Any:
    """Compiled loops, where there are any."""
    return None if native is None or os.environ.get("TACIT_KERNELS") == "numpy" else native


def draws(
    loops: Any, words: NDArray[np.uint64], table: Table, long: Long, out: NDArray[np.int64]
) -> tuple[int, int]:
    """The same attempts by compiled loops, until there are draws enough.

    Parameters
    ----------
    loops : module
        From :func:`compiled`.
    words : ndarray of uint64
        Independent and uniform.
    table : Table
        From :func:`table`.
    long : callable
        As for :func:`attempt`.
    out : ndarray of int64
        For the draws, one or more.

    Returns
    -------
    used, found : int
        Attempts that were evaluated, and draws they gave: all that are wanted, or those of the
        words up to the first attempt that only its long numbers settle.
    """
    half = 0.5 * math.ldexp(1 / table.sigma, table.shift) ** 2 if table.shift else 0.0  # M²/2σ²
    how = table.columns, table.shift, half, ALIAS_MARGIN, ACCEPT_MARGIN
    used, found = loops.draws(level(), words, *how, out)
    if found < out.size and used < words.size // 2:
        first, second = words[2 * used : 2 * used + 2].tolist()
        x, kept = decide(first, second, table, long(used))
        if kept:
            out[found] = x
        used, found = used + 1, found + kept
    return used, found


def decide(first: int, second: int, table: Table, more: tuple[int, int]) -> tuple[int, bool]:
    """One attempt from its two words and its long numbers: the draw, and whether it is one."""
    b, f = first >> 64 - COLUMN_BITS, first >> V_BITS & ((1 << F_BITS) - 1)
    f = f << (LONG_BITS - F_BITS) | more[0] >> F_BITS
    k = b if f < table.thresholds[b] else table.aliases[b]
    y = second & ((1 << table.shift) - 1)
    x, negative = k << table.shift | y, second >> 63
    kept = not table.shift or _accept(table, x, y, first & ((1 << V_BITS) - 1), more[1])
    return (-x if negative else x), kept and not (negative and x == 0)


def _accept(table: Table, x: int, y: int, v: int, more: int) -> bool:
    """Compare the whole of v with exp(-y(y + 2kM)/2σ²), where y + 2kM = 2x - y."""
    top, bottom = table.sigma.as_integer_ratio()
    p = exp_minus(y * (2 * x - y) * bottom * bottom, 2 * top * top)
    v = v << (LONG_BITS - V_BITS) | more >> V_BITS
    return v < p >> (_POINT - LONG_BITS)
