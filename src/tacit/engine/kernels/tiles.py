"""Tiles of sums in registers of 512 bits, for Numba: what `tacit.engine.kernels.wide` is made of.

Vectors have 32 numbers, two each of sixteen rows or of sixteen columns. As in
`tacit.engine.kernels.vectors`, addresses are not checked. `tile_of_one` to `tile_of_three` are
compiled by processors alone that have the instruction which they name.

Needs Numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types

from tacit.engine.kernels.compact import LIMB
from tacit.engine.kernels.vectors import (
    HALF,
    INT,
    LANES,
    LONG,
    SHORT,
    SUMS,
    WIDE,
    Vector,
    operation,
    picked,
    read,
    repeated,
    write,
)

__all__ = [
    "AT_ONCE",
    "VECTOR",
    "beside",
    "greatest",
    "larger",
    "level",
    "load_pairs",
    "pair_up",
    "store_pairs",
    "take_in_tile",
    "tile_of_one",
    "tile_of_three",
    "tile_of_two",
]

AT_ONCE = 8  # lines of a tile
VECTOR = 64  # bytes
PAIRS = Vector(HALF, 2 * LANES)
binding.initialize_native_asmparser()  # for `_multiply_add`


def moved(builder: Any, address: Any, by: int) -> Any:
    return builder.add(address, ir.Constant(address.type, by))


@operation(PAIRS, types.intp, types.intp)
def beside(builder: Any, x: Any, y: Any) -> Any:
    """Sixteen columns of two rows, side by side."""
    even, odd = (builder.zext(read(builder, row, SHORT.held, 2), SUMS) for row in (x, y))
    upper = builder.shl(odd, ir.Constant(SUMS, [16] * LANES))
    return builder.bitcast(builder.or_(even, upper), PAIRS.held)


@operation(types.void, types.intp, PAIRS)
def store_pairs(builder: Any, address: Any, value: Any) -> None:
    """Write 32 numbers."""
    write(builder, address, value, 2)


@operation(PAIRS)
def level(builder: Any) -> Any:
    """Zeros."""
    return ir.Constant(PAIRS.held, [0] * 2 * LANES)


@operation(PAIRS, PAIRS, PAIRS)
def larger(builder: Any, top: Any, x: Any) -> Any:
    """The larger of numbers without a sign and magnitudes."""
    size = builder.select(builder.icmp_signed("<", x, x.type([0] * 2 * LANES)), builder.neg(x), x)
    return builder.select(builder.icmp_unsigned(">", top, size), top, size)


@operation(PAIRS, types.intp)
def load_pairs(builder: Any, address: Any) -> Any:
    """32 numbers."""
    return read(builder, address, PAIRS.held, 2)


@operation(types.uint16, PAIRS)
def greatest(builder: Any, x: Any) -> Any:
    """The largest of 32 numbers without a sign."""
    half = LANES
    while half:
        one, other = (picked(builder, x, x, range(i, i + half)) for i in (0, half))
        x, half = builder.select(builder.icmp_unsigned(">", one, other), one, other), half // 2
    return builder.extract_element(x, ir.Constant(INT, 0))


@operation(types.void, types.intp, types.intp, types.intp, types.intp, types.intp)
def pair_up(builder: Any, rows: Any, size: Any, which: Any, into: Any, wide: Any) -> None:
    """Sixteen columns of sixteen rows: eight vectors of two columns each, some bytes apart.

    Rows are ``size`` bytes long; ``which`` is where their sixteen numbers are.
    """
    half = LANES // 2
    kept = []
    for i in range(0, LANES, 2):
        numbers = (read(builder, moved(builder, which, 8 * k), LONG, 8) for k in (i, i + 1))
        places = (builder.add(rows, builder.mul(number, size)) for number in numbers)
        one, other = (read(builder, place, WIDE.held, 2) for place in places)
        kept.append(picked(builder, one, other, range(LANES)))
    ends = [[place for i in range(k, k + half) for place in (i, i + LANES)] for k in (0, half)]
    for _ in range(4):  # as in `turn`, but for half as many rows, each of them two
        pairs = zip(kept[: half // 2], kept[half // 2 :], strict=True)
        kept = [picked(builder, one, other, end) for one, other in pairs for end in ends]
    for vector in kept:
        write(builder, into, vector, 4)
        into = builder.add(into, wide)


def _multiply_add(builder: Any, total: Any, x: Any, y: Any) -> Any:
    """Sums and products of 16-bit integers with their neighbours, by the instruction for it.

    Left to itself the compiler takes two others, which have to wait less for each other, and
    twice as long where nothing waits.
    """
    kind = ir.FunctionType(SUMS, [SUMS, PAIRS.held, PAIRS.held])
    return builder.asm(kind, "vpdpwssd $3, $2, $0", "=v,0,v,v", [total, x, y], False)


def _tile(across: int) -> Any:
    """A product of vectors and pairs of numbers, both in sequence, added up in registers."""

    @operation(types.void, types.boolean, *[types.intp] * 6)
    def tile(
        builder: Any,
        fresh: Any,
        numbers: Any,
        size: Any,
        vectors: Any,
        steps: Any,
        into: Any,
        wide: Any,
    ) -> None:
        """`AT_ONCE` sequences of pairs, ``size`` bytes apart, times vectors: so many steps of it.

        Sums of 32 bits go to as many lines, ``wide`` bytes apart; unless they are to be fresh,
        they are added to what is there.
        """
        lines = range(AT_ONCE)
        before, inside = builder.block, builder.append_basic_block("tile")
        behind = builder.append_basic_block("tiled")
        starts = [builder.add(numbers, builder.mul(size, size.type(k))) for k in lines]
        nothing = ir.Constant(SUMS, [0] * LANES)
        places = [
            [
                moved(builder, builder.add(into, builder.mul(wide, wide.type(k))), i * VECTOR)
                for i in range(across)
            ]
            for k in lines
        ]
        there = [
            [builder.select(fresh, nothing, read(builder, at, SUMS, 4)) for at in line]
            for line in places
        ]
        builder.branch(inside)
        builder.position_at_end(inside)
        step = builder.phi(steps.type)
        totals = [[builder.phi(SUMS) for _ in range(across)] for _ in lines]
        place = builder.add(vectors, builder.mul(step, step.type(across * VECTOR)))
        held = [
            read(builder, moved(builder, place, i * VECTOR), PAIRS.held, 2) for i in range(across)
        ]
        gone = builder.mul(step, step.type(4))
        after = []
        for k in lines:
            pair = repeated(builder, builder.add(starts[k], gone), PAIRS.held)
            both = zip(totals[k], held, strict=True)
            after.append([_multiply_add(builder, total, vector, pair) for total, vector in both])
        following = builder.add(step, step.type(1))
        builder.cbranch(builder.icmp_signed("<", following, steps), inside, behind)
        step.add_incoming(step.type(0), before)
        step.add_incoming(following, inside)
        for k in lines:
            for total, begun, found in zip(totals[k], there[k], after[k], strict=True):
                total.add_incoming(begun, before)
                total.add_incoming(found, inside)
        builder.position_at_end(behind)
        for k in lines:
            for at, found in zip(places[k], after[k], strict=True):
                write(builder, at, found, 4)

    return tile


tile_of_one, tile_of_two, tile_of_three = (_tile(across) for across in (1, 2, 3))


@operation(types.void, types.intp, types.intp, types.intp)
def take_in_tile(builder: Any, address: Any, line: Any, wide: Any) -> None:
    """Add to sixteen 64-bit sums a line of upper parts and the next one, of lower parts."""
    kind = ir.VectorType(LONG, LANES)
    lines = (line, builder.add(line, wide))
    high, low = (builder.sext(read(builder, at, SUMS, 4), kind) for at in lines)
    both = builder.add(builder.shl(high, ir.Constant(kind, [LIMB] * LANES)), low)
    write(builder, address, builder.add(read(builder, address, kind, 8), both), 8)
