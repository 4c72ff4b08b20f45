"""Loops over rows of 16-bit integers for many columns of weights, in vectors of 512 bits.

They find what `tacit.engine.kernels.compiled.scores` and `sums` find, and are for settings that are
trained together: with a hundred columns of weights, multiplying is all that takes time. A tile of
24 sums stays in registers while rows and weights pass by, and one instruction multiplies 32 pairs
of numbers and adds them up. Both products are the same tile: vectors have two numbers each of
sixteen rows, or of sixteen columns, and meet two numbers of a weight, or of a multiplier, sixteen
times over.

Where the processor lacks that instruction (`AVAILABLE`) there is nothing to compile, and nothing
to call: a compiler that is asked for it anyhow ends the process.

Sums of 32 bits are taken in by 64-bit ones after sixteen rows (`tacit.engine.quantization`), or
later where the numbers themselves are so small that more rows fit.

Needs Numba. As for `tacit.engine.kernels.compiled`, scratch memory is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import binding

from tacit.engine.kernels.compiled import indices, int16s, int32s, int64s, loop
from tacit.engine.kernels.tiles import (
    AT_ONCE,
    VECTOR,
    beside,
    greatest,
    larger,
    level,
    load_pairs,
    pair_up,
    store_pairs,
    take_in_tile,
    tile_of_one,
    tile_of_three,
    tile_of_two,
)
from tacit.engine.kernels.vectors import LANES, prefetch

__all__ = ["AT_ONCE", "AVAILABLE", "SCRATCH", "scores", "sums"]

#: Digest of everything else that machine code is made of; a test says what it must be.
BUILT_FROM = "d81c9bd2b9a64ffb"
ACROSS = 3  # vectors in a tile
NEAR = 136  # steps of a tile, at most, whose vectors stay in the nearest cache
SCRATCH = (ACROSS * (NEAR + AT_ONCE) + 1) * VECTOR // 2  # 16-bit integers for vectors and a tile
ROOM = 2**31 - 2**16  # magnitude that sums of 32 bits may have
INSTRUCTIONS = ("avx512f", "avx512bw", "avx512vnni")


def _available() -> bool:
    """Whether this processor has these instructions, and Numba compiles for what it has."""
    told: Any = numba.config
    if told.CPU_NAME or told.CPU_FEATURES or not told.ENABLE_AVX:
        return False
    try:
        found = binding.get_host_cpu_features()
    except RuntimeError:  # nobody knows
        return False
    return all(found.get(name, False) for name in INSTRUCTIONS)


AVAILABLE = _available()


def _loop(*given: Any) -> Callable[[Callable[..., Any]], Any]:
    return loop(*given) if AVAILABLE else lambda function: function


@numba.njit(inline="always")
def _aligned(address: Any) -> Any:
    return (address + VECTOR - 1) // VECTOR * VECTOR


@numba.njit(inline="always")
def _even(steps: Any, unit: Any) -> Any:
    """Steps of a chunk, such that chunks are about as long as each other and fit the cache."""
    pieces = (steps + NEAR - 1) // NEAR
    return (steps + pieces * unit - 1) // (pieces * unit) * unit


@_loop(int16s, indices, int16s, int16s, int32s)
def scores(rows: Any, index: Any, weights: Any, side: Any, out: Any) -> None:
    """Rows (n, d) at the indices of b of them, times weights (K, d): (K, b).

    K is a multiple of `AT_ONCE`; ``side`` (1, `SCRATCH`) is for scratch.
    """
    many, outputs = index.size, weights.shape[0]
    size = 2 * rows.shape[1]
    here, there, into = rows.ctypes.data, weights.ctypes.data, out.ctypes.data
    vectors = _aligned(side.ctypes.data)
    which = index.ctypes.data
    lines = max(1, size // VECTOR)  # of memory, in a row; a last half is not worth asking for
    chunk = _even(size // 4, LANES // 2)
    quota = ACROSS * LANES * lines // (outputs // AT_ONCE * (1 + (size - 1) // (4 * chunk))) + 1
    for start in range(0, many, ACROSS * LANES):
        across = min(ACROSS, (many - start) // LANES)
        wide = VECTOR * across
        soon, line = start + ACROSS * LANES, 0
        for left in range(0, size, 4 * chunk):
            right = min(left + 4 * chunk, size)
            for group in range(across):
                at = vectors + VECTOR * group
                for j in range(left, right, 2 * LANES):  # columns in pairs, rows side by side
                    where = which + 8 * (start + LANES * group)
                    pair_up(here + j, size, where, at + (j - left) // 4 * wide, wide)
            steps = (right - left) // 4
            for k in range(0, outputs, AT_ONCE):
                for _ in range(quota):  # the next rows come while these are multiplied
                    if soon < many:
                        prefetch(here + index[soon] * size + VECTOR * line)
                        line += 1
                        if line == lines:
                            soon, line = soon + 1, 0
                w, at = there + k * size + left, into + 4 * (k * many + start)
                if across == 3:
                    tile_of_three(left == 0, w, size, vectors, steps, at, 4 * many)
                elif across == 2:
                    tile_of_two(left == 0, w, size, vectors, steps, at, 4 * many)
                else:
                    tile_of_one(left == 0, w, size, vectors, steps, at, 4 * many)


@_loop(int16s, indices, int16s, int16s, int64s)
def sums(rows: Any, index: Any, multipliers: Any, side: Any, out: Any) -> None:
    """Add rows times multipliers to ``out`` (K, d).

    Multipliers (2 K, b) are in two parts, upper and lower in turn, and 2 K is a multiple of
    `AT_ONCE`. ``side`` (1, `SCRATCH`) is for scratch.
    """
    many, parts, columns = index.size, multipliers.shape[0], rows.shape[1]
    size, length = 2 * columns, 2 * many
    here, there, into = rows.ctypes.data, multipliers.ctypes.data, out.ctypes.data
    tile = _aligned(side.ctypes.data)
    vectors = tile + ACROSS * AT_ONCE * VECTOR
    top = level()
    for i in range(0, parts * length, VECTOR):
        top = larger(top, load_pairs(there + i))
    chunk = _even(many // 2, LANES // 2)
    highest: Any = max(1, np.int64(greatest(top)))
    for left in range(0, columns, ACROSS * LANES):
        across = min(ACROSS, (columns - left) // LANES)
        wide = VECTOR * across
        for first in range(0, many, 2 * chunk):
            last = min(first + 2 * chunk, many)
            top = level()
            for i in range(first, last, 2):  # rows in pairs, columns side by side
                x, y = here + index[i] * size + 2 * left, here + index[i + 1] * size + 2 * left
                for group in range(across):
                    both = beside(x + 2 * LANES * group, y + 2 * LANES * group)
                    store_pairs(vectors + (i - first) // 2 * wide + VECTOR * group, both)
                    top = larger(top, both)
            # No term is larger than this, so that so many of them fit; sixteen do in any case.
            together = ROOM // (highest * max(1, np.int64(greatest(top))))
            together = max(LANES, together - together % 2)
            # What is next: further rows, or the first ones of further columns.
            further = (left, last) if last < many else (left + ACROSS * LANES, 0)
            soon, until = further[1], min(further[1] + 2 * chunk, many)
            if further[0] >= columns:
                soon = until
            quota = (until - soon) * AT_ONCE // parts + 1
            for k in range(0, parts, AT_ONCE):
                for i in range(soon, min(soon + quota, until)):
                    line = here + index[i] * size + 2 * further[0]
                    prefetch(line)
                    prefetch(line + VECTOR)
                soon += quota
                at = into + 8 * (k // 2 * columns + left)
                for start in range(first, last, together):
                    steps = min(together, last - start) // 2
                    z, v = there + k * length + 2 * start, vectors + (start - first) // 2 * wide
                    if across == 3:
                        tile_of_three(True, z, length, v, steps, tile, wide)
                    elif across == 2:
                        tile_of_two(True, z, length, v, steps, tile, wide)
                    else:
                        tile_of_one(True, z, length, v, steps, tile, wide)
                    for one in range(0, AT_ONCE, 2):
                        for group in range(across):
                            take_in_tile(
                                at + 8 * (one // 2 * columns + LANES * group),
                                tile + one * wide + VECTOR * group,
                                wide,
                            )
