"""Loops over rows of 16-bit integers, compiled: scores, multipliers, sums.

`tacit.engine.kernels.compact` says when they are used and `tacit.engine.quantization` why no sum of
theirs overflows. All of it is integers, or float64 operations that are correctly rounded, one by
one and in the order of `tacit.losses.elementary` and of `tacit.engine.quantization.Clipping.apply`:
nothing is reordered or fused, so every number is the one that NumPy finds.

An array whose address is taken must be an argument: Numba lets go of its own as soon as the last
line that names it has run.

Rows have a multiple of `tacit.engine.kernels.vectors.LANES` columns, and so many rows a block has.

Needs Numba. Importing this module compiles, once; the result is kept on disk. Numba forgets it when
this file changes, and only then: hence `BUILT_FROM`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types

from tacit.engine.kernels.vectors import (
    FARTHEST,
    LANES,
    ROUND,
    add,
    away,
    every,
    exponential,
    first,
    first_of,
    fit_in_halves,
    halved,
    higher,
    is_class,
    load,
    lower,
    madd,
    minus,
    nearest,
    negative,
    numbers,
    over,
    plus,
    prefetch,
    root,
    scaled,
    second,
    shortened,
    singles,
    spread,
    square,
    store,
    store_numbers,
    sum_up,
    take_in,
    times,
    turn,
    vanished,
    where_less,
    whole,
    zero,
    zeros,
)
from tacit.engine.quantization import TINY

__all__ = [
    "TILE",
    "limbs",
    "logistic",
    "rounded_columns",
    "rounded_rows",
    "scores",
    "softmax",
    "sums",
]

#: Digest of everything else that machine code is made of; a test says what it must be.
BUILT_FROM = "653210e7214b9725"
BYTES = 2 * LANES  # of a vector
LINE = 64  # bytes that come from memory together
TILE = 256  # rows that are rounded together
NUMBERS = 8 * LANES  # bytes of a vector of numbers
SMALLEST = TINY["exact"]

int16s, int32s, int64s, float64s = (
    types.Array(kind, 2, "C") for kind in (types.int16, types.int32, types.int64, types.float64)
)
indices, vector = (types.Array(kind, 1, "C") for kind in (types.intp, types.float64))
constants = types.Array(types.float64, 1, "C", readonly=True)
chunks = [types.Array(kind, 2, "C", readonly=True) for kind in (types.float32, types.float64)]


def loop(*given: Any, result: Any = types.void) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for arguments of these types, or for each of several lists of them."""
    lists = given if isinstance(given[0], list) else (list(given),)
    signatures = [result(*each) for each in lists]

    def compiled(function: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        try:
            return numba.njit(signatures, cache=True, **options)(function)
        except RuntimeError:  # nowhere to keep it
            return numba.njit(signatures, **options)(function)

    return compiled


@loop(int16s, indices, int16s, int16s, int32s)
def scores(rows: Any, index: Any, weights: Any, side: Any, out: Any) -> None:
    """Rows (n, d) at the indices of b of them, times weights (K, d): (K, b).

    ``side`` is what `tacit.engine.kernels.wide.scores` needs, and not used here.
    """
    many, outputs = index.size, weights.shape[0]
    size = 2 * rows.shape[1]
    fives = outputs - outputs % 5
    here, there = rows.ctypes.data, weights.ctypes.data
    for k in range(0, fives, 5):
        w = there + k * size
        for i in range(0, many, 2):
            x, y = here + index[i] * size, here + index[i + 1] * size
            soon = min(i + 4, many - 2)
            x_soon, y_soon = here + index[soon] * size, here + index[soon + 1] * size
            # Ten sums, as many as registers hold; each weight that is read serves two rows.
            xa = xb = xc = xd = xe = ya = yb = yc = yd = ye = zero()
            for j in range(0, size, BYTES):
                if k == 0 and j % LINE == 0:
                    prefetch(x_soon + j)
                    prefetch(y_soon + j)
                p, q, v = load(x + j), load(y + j), load(w + j)
                xa, ya = add(xa, madd(p, v)), add(ya, madd(q, v))
                v = load(w + size + j)
                xb, yb = add(xb, madd(p, v)), add(yb, madd(q, v))
                v = load(w + 2 * size + j)
                xc, yc = add(xc, madd(p, v)), add(yc, madd(q, v))
                v = load(w + 3 * size + j)
                xd, yd = add(xd, madd(p, v)), add(yd, madd(q, v))
                v = load(w + 4 * size + j)
                xe, ye = add(xe, madd(p, v)), add(ye, madd(q, v))
            out[k, i], out[k, i + 1] = sum_up(xa), sum_up(ya)
            out[k + 1, i], out[k + 1, i + 1] = sum_up(xb), sum_up(yb)
            out[k + 2, i], out[k + 2, i + 1] = sum_up(xc), sum_up(yc)
            out[k + 3, i], out[k + 3, i + 1] = sum_up(xd), sum_up(yd)
            out[k + 4, i], out[k + 4, i + 1] = sum_up(xe), sum_up(ye)
    for k in range(fives, outputs):
        w = there + k * size
        for i in range(0, many, 2):
            x, y = here + index[i] * size, here + index[i + 1] * size
            soon = min(i + 4, many - 2)
            x_soon, y_soon = here + index[soon] * size, here + index[soon + 1] * size
            xa = ya = zero()
            for j in range(0, size, BYTES):
                if k == 0 and j % LINE == 0:
                    prefetch(x_soon + j)
                    prefetch(y_soon + j)
                v = load(w + j)
                xa, ya = add(xa, madd(load(x + j), v)), add(ya, madd(load(y + j), v))
            out[k, i], out[k, i + 1] = sum_up(xa), sum_up(ya)


@loop(int16s, indices, int16s, int16s, int64s)
def sums(rows: Any, index: Any, multipliers: Any, side: Any, out: Any) -> None:
    """Add rows times multipliers to ``out`` (K, d).

    Multipliers (2 K, b) are in two parts, upper and lower in turn. ``side`` (1, LANES b) is for
    scratch.
    """
    many, outputs = index.size, out.shape[0]
    size, length = 2 * rows.shape[1], 2 * many
    here, there, into = rows.ctypes.data, multipliers.ctypes.data, out.ctypes.data
    pairs = side.ctypes.data
    for j in range(0, size, BYTES):
        for i in range(0, many, 2):  # two rows side by side, once for all outputs
            p, q = load(here + index[i] * size + j), load(here + index[i + 1] * size + j)
            store(pairs + BYTES * i, first(p, q))
            store(pairs + BYTES * (i + 1), second(p, q))
        for k in range(0, outputs - 1, 2):
            z, place = there + 2 * k * length, into + 4 * (k * size + j)
            for start in range(0, many, LANES):
                # 32-bit sums hold sixteen rows.
                ah = bh = al = bl = ch = dh = cl = dl = zero()
                for i in range(start, start + LANES, 2):
                    p, q = load(pairs + BYTES * i), load(pairs + BYTES * (i + 1))
                    v = spread(z + 2 * i)
                    ah, bh = add(ah, madd(p, v)), add(bh, madd(q, v))
                    v = spread(z + length + 2 * i)
                    al, bl = add(al, madd(p, v)), add(bl, madd(q, v))
                    v = spread(z + 2 * length + 2 * i)
                    ch, dh = add(ch, madd(p, v)), add(dh, madd(q, v))
                    v = spread(z + 3 * length + 2 * i)
                    cl, dl = add(cl, madd(p, v)), add(dl, madd(q, v))
                take_in(place, ah, bh, al, bl)
                take_in(place + 4 * size, ch, dh, cl, dl)
        if outputs % 2:
            k = outputs - 1
            z, place = there + 2 * k * length, into + 4 * (k * size + j)
            for start in range(0, many, LANES):
                ah = bh = al = bl = zero()
                for i in range(start, start + LANES, 2):
                    p, q = load(pairs + BYTES * i), load(pairs + BYTES * (i + 1))
                    v = spread(z + 2 * i)
                    ah, bh = add(ah, madd(p, v)), add(bh, madd(q, v))
                    v = spread(z + length + 2 * i)
                    al, bl = add(al, madd(p, v)), add(bl, madd(q, v))
                take_in(place, ah, bh, al, bl)


@loop(
    indices, types.boolean, constants, types.float64, int16s, int16s, vector, result=types.boolean
)
def rounded_columns(
    columns: Any, single: Any, shift: Any, per_unit: Any, aside: Any, out: Any, squares: Any
) -> Any:
    """Columns at these addresses, less a shift, as `Scale.integers` rounds them, side by side.

    Squared norms of the rows go into ``squares``, of which there are a multiple of `LANES`.
    ``aside`` (d + LANES, TILE) is for scratch, and of zeros. Whether all numbers are finite.
    """
    many, d, size = squares.size, columns.size, 4 if single else 8
    there, lengths = aside.ctypes.data, squares.ctypes.data
    into, wide = out.ctypes.data, 2 * out.shape[1]
    seen = zeros()
    squares[:] = 0.0
    for start in range(0, many, TILE):
        count = min(TILE, many - start)
        for j in range(d):
            place, kept, total = (
                columns[j] + start * size,
                there + 2 * TILE * j,
                lengths + 8 * start,
            )
            for i in range(0, count, LANES):
                values = singles(place + size * i) if single else numbers(place + size * i)
                seen = vanished(seen, values)
                values = whole(away(values, shift[j]), per_unit)
                store_numbers(total + 8 * i, square(numbers(total + 8 * i), values))
                store(kept + 2 * i, shortened(values))
        for top in range(0, count, LANES):  # turned in pieces that stay in the cache
            for left in range(0, d, LANES):
                place = into + wide * (start + top) + 2 * left
                turn(there + 2 * (TILE * left + top), 2 * TILE, place, wide)
    last = np.empty(LANES)
    store_numbers(last.ctypes.data, seen)
    return not np.isnan(last.sum())


@loop(
    *[[chunk, constants, types.float64, int16s, vector] for chunk in chunks], result=types.boolean
)
def rounded_rows(chunk: Any, shift: Any, per_unit: Any, out: Any, squares: Any) -> Any:
    """As `rounded_columns`, for rows one after the other."""
    many, d = chunk.shape
    seen = np.zeros(d)
    for i in range(many):
        values, kept = chunk[i], out[i]
        for j in range(d):
            value = np.float64(values[j])
            seen[j] += value * 0.0
            x = (value - shift[j]) * per_unit
            x = x if x > -FARTHEST else -FARTHEST
            x = x if x < FARTHEST else FARTHEST
            kept[j] = np.int16(np.int32((x + ROUND) - ROUND))
        total = np.int64(0)
        for j in range(d):
            total += np.int64(kept[j]) * np.int64(kept[j])
        squares[i] = total
    return not np.isnan(seen.sum())


@loop(float64s, int16s, result=types.boolean)
def limbs(multipliers: Any, out: Any) -> Any:
    """Multipliers (K, b), whole numbers, in two parts (2 K, b); whether they fit."""
    many = multipliers.shape[1]
    here, there = multipliers.ctypes.data, out.ctypes.data
    for k in range(multipliers.shape[0]):
        upper = there + 4 * k * many
        for i in range(0, many, LANES):
            values = numbers(here + 8 * (k * many + i))
            if not fit_in_halves(values):
                return False
            halved(upper + 2 * i, upper + 2 * (many + i), values)
    return True


@numba.njit(error_model="numpy", inline="always")
def _write(found: Any, outputs: Any, inverse: Any, terms: Any, s: Any, into: Any, many: Any) -> Any:
    """Clip and round residuals (K, LANES) of some rows, and write both parts; whether they fit.

    As `tacit.engine.quantization.Clipping.apply` does. ``found``, ``inverse`` and ``into`` are
    addresses; lines of ``into`` have ``into[1]`` numbers, and ``many`` rows are no padding.
    """
    ceiling, multiplier, allowance, shrink, separate = terms
    place, length = into
    limit = minus(times(every(ceiling[s, 0]), numbers(inverse)), every(allowance))
    limit = times(higher(limit, zeros()), every(shrink))
    factor = every(multiplier[s, 0])
    if not separate:
        total = zeros()
        for j in range(outputs):
            total = square(total, numbers(found + NUMBERS * j))
        factor = lower(over(limit, higher(root(total), every(SMALLEST))), factor)
    for j in range(outputs):
        values = times(numbers(found + NUMBERS * j), factor)
        if separate:
            values = lower(higher(values, negative(limit)), limit)
        store_numbers(found + NUMBERS * j, first_of(nearest(values), many))
    if not fit_in_halves(plus(limit, every(1.0))):  # short rows, whose multipliers may be large
        for j in range(outputs):
            if not fit_in_halves(numbers(found + NUMBERS * j)):
                return False
    for j in range(outputs):
        upper = place + 4 * j * length
        halved(upper, upper + 2 * length, numbers(found + NUMBERS * j))
    return True


TERMS = types.Tuple([float64s, float64s, types.float64, types.float64, types.boolean])


@loop(int32s, vector, indices, vector, TERMS, types.intp, float64s, int16s, result=types.boolean)
def softmax(
    raw: Any, unit: Any, targets: Any, inverse: Any, terms: Any, count: Any, aside: Any, out: Any
) -> Any:
    """Clipped residuals of S settings, in two parts (2 S K, b), of scores (S K, b).

    ``terms`` are those of a `tacit.engine.quantization.Clipping`. Rows from ``count`` on are
    padding and count nothing. ``aside`` (K, LANES) is for scratch. Whether multipliers fit.
    """
    settings, many = terms[0].shape[0], raw.shape[1]
    outputs = raw.shape[0] // settings
    here, there, classes = raw.ctypes.data, out.ctypes.data, targets.ctypes.data
    lengths, found = inverse.ctypes.data, aside.ctypes.data
    for start in range(0, many, LANES):
        for s in range(settings):
            k = s * outputs
            top = scaled(here + 4 * (k * many + start), unit[k])
            store_numbers(found, top)
            for j in range(1, outputs):
                values = scaled(here + 4 * ((k + j) * many + start), unit[k + j])
                store_numbers(found + NUMBERS * j, values)
                top = higher(top, values)
            total = zeros()
            for j in range(outputs):
                values = exponential(minus(numbers(found + NUMBERS * j), top))
                store_numbers(found + NUMBERS * j, values)
                total = plus(total, values)
            per_total = over(every(1.0), total)
            for j in range(outputs):
                shares = times(numbers(found + NUMBERS * j), per_total)
                own = is_class(classes + 8 * start, j)
                store_numbers(found + NUMBERS * j, minus(shares, own))
            into = (there + 4 * k * many + 2 * start, many)
            if not _write(found, outputs, lengths + 8 * start, terms, s, into, count - start):
                return False
    return True


@loop(int32s, vector, float64s, vector, TERMS, types.intp, float64s, int16s, result=types.boolean)
def logistic(
    raw: Any, unit: Any, targets: Any, inverse: Any, terms: Any, count: Any, aside: Any, out: Any
) -> Any:
    """As `softmax`; targets (K, b) are 1 or -1."""
    settings, many = terms[0].shape[0], raw.shape[1]
    outputs = raw.shape[0] // settings
    here, there, signs = raw.ctypes.data, out.ctypes.data, targets.ctypes.data
    lengths, found = inverse.ctypes.data, aside.ctypes.data
    one = every(1.0)
    for start in range(0, many, LANES):
        for s in range(settings):
            k = s * outputs
            for j in range(outputs):
                sign = numbers(signs + 8 * (j * many + start))
                u = negative(times(scaled(here + 4 * ((k + j) * many + start), unit[k + j]), sign))
                small = exponential(lower(u, negative(u)))
                share = over(where_less(u, zeros(), small, one), plus(small, one))
                store_numbers(found + NUMBERS * j, times(negative(share), sign))
            into = (there + 4 * k * many + 2 * start, many)
            if not _write(found, outputs, lengths + 8 * start, terms, s, into, count - start):
                return False
    return True
