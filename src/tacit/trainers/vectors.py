"""Vectors of numbers for Numba: the few operations that `tacit.trainers.compiled` is made of.

They are written as operations that every processor has. Where one instruction multiplies sixteen
pairs of 16-bit integers and adds neighbours (x86: ``vpmaddwd``), the compiler finds that `madd` is
it; elsewhere it takes several. Addresses are not checked: whoever calls has checked the indices.

Needs Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from tacit.trainers.compact import LIMB
from tacit.trainers.quantize import FEATURE_MAX

__all__ = [
    "LANES",
    "add",
    "as_float",
    "as_integer",
    "away",
    "first",
    "load",
    "madd",
    "numbers",
    "prefetch",
    "second",
    "shortened",
    "singles",
    "spread",
    "square",
    "store",
    "store_numbers",
    "sum_up",
    "take_in",
    "turn",
    "vanished",
    "whole",
    "zero",
    "zeros",
]

LANES = 16  # numbers in a vector
ROUND = 1.5 * 2.0**52  # added and taken away again: rounds to whole numbers, ties to even
FARTHEST = float(FEATURE_MAX)
BYTE, HALF, INT, LONG = (ir.IntType(bits) for bits in (8, 16, 32, 64))
SINGLE, DOUBLE = ir.FloatType(), ir.DoubleType()


class Vector(types.Type):
    """A vector that lives in registers."""

    def __init__(self, kind: Any, lanes: int) -> None:
        self.held = ir.VectorType(kind, lanes)
        super().__init__(name=f"Vector({self.held})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """How Numba keeps it: as what it is."""

    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, kind.held)


SHORT, WIDE, REAL = Vector(HALF, LANES), Vector(INT, LANES // 2), Vector(DOUBLE, LANES)


def _operation(result: Any, *given: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a function of a builder and values known to Numba, under these types."""

    def known(emit: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            found = emit(builder, *values)
            return context.get_dummy_value() if result is types.void else found

        found = result(*given), generate
        # Numba reads the number of arguments off the function itself.
        of_so_many: dict[int, Callable[..., Any]] = {
            0: lambda context: found,
            1: lambda context, a: found,
            2: lambda context, a, b: found,
            4: lambda context, a, b, c, d: found,
            5: lambda context, a, b, c, d, e: found,
        }
        typed = of_so_many[len(given)]
        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        return intrinsic(typed)

    return known


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _picked(builder: Any, one: Any, other: Any, places: Sequence[int]) -> Any:
    order = ir.Constant(ir.VectorType(INT, len(places)), list(places))
    return builder.shuffle_vector(one, other, order)


def _read(builder: Any, address: Any, kind: Any, align: int) -> Any:
    found = builder.load(_pointer(builder, address, kind))
    found.align = align
    return found


def _write(builder: Any, address: Any, value: Any, align: int) -> None:
    builder.store(value, _pointer(builder, address, value.type)).align = align


@_operation(SHORT, types.intp)
def load(builder: Any, address: Any) -> Any:
    """Sixteen 16-bit integers."""
    return _read(builder, address, SHORT.held, 2)


@_operation(types.void, types.intp, SHORT)
def store(builder: Any, address: Any, value: Any) -> None:
    """Write sixteen 16-bit integers."""
    _write(builder, address, value, 2)


@_operation(SHORT, types.intp)
def spread(builder: Any, address: Any) -> Any:
    """Two 16-bit integers, eight times."""
    pair = _read(builder, address, INT, 2)
    none = ir.Constant(WIDE.held, ir.Undefined)
    alone = builder.insert_element(none, pair, ir.Constant(INT, 0))
    return builder.bitcast(_picked(builder, alone, none, [0] * (LANES // 2)), SHORT.held)


@_operation(WIDE, SHORT, SHORT)
def madd(builder: Any, x: Any, y: Any) -> Any:
    """Products of 16-bit integers, each added to its neighbour."""
    wide = ir.VectorType(INT, LANES)
    product = builder.mul(builder.sext(x, wide), builder.sext(y, wide))
    even, odd = (_picked(builder, product, product, range(i, LANES, 2)) for i in (0, 1))
    return builder.add(even, odd)


@_operation(WIDE)
def zero(builder: Any) -> Any:
    """Eight zeros."""
    return ir.Constant(WIDE.held, [0] * (LANES // 2))


@_operation(WIDE, WIDE, WIDE)
def add(builder: Any, x: Any, y: Any) -> Any:
    """Sums of 32-bit integers."""
    return builder.add(x, y)


@_operation(types.int32, WIDE)
def sum_up(builder: Any, x: Any) -> Any:
    """The sum of eight 32-bit integers."""
    half = LANES // 4
    while half:
        parts = (_picked(builder, x, x, range(i, i + half)) for i in (0, half))
        x, half = builder.add(*parts), half // 2
    return builder.extract_element(x, ir.Constant(INT, 0))


# Two rows, their columns side by side, so that `madd` adds over rows. The order within is the one
# that costs a single instruction; `take_in` undoes it.
FIRST = [0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27]
SECOND = [place + 4 for place in FIRST]
IN_ORDER = ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])


@_operation(SHORT, SHORT, SHORT)
def first(builder: Any, x: Any, y: Any) -> Any:
    """Columns 0-3 and 8-11 of two rows, side by side."""
    return _picked(builder, x, y, FIRST)


@_operation(SHORT, SHORT, SHORT)
def second(builder: Any, x: Any, y: Any) -> Any:
    """Columns 4-7 and 12-15 of two rows, side by side."""
    return _picked(builder, x, y, SECOND)


@_operation(types.void, types.intp, WIDE, WIDE, WIDE, WIDE)
def take_in(builder: Any, address: Any, *parts: Any) -> None:
    """Add to sixteen 64-bit sums: `first` and `second` columns of upper, then of lower parts."""
    kind = ir.VectorType(LONG, LANES // 2)
    bits = ir.Constant(kind, [LIMB] * (LANES // 2))
    for number, order in enumerate(IN_ORDER):
        high, low = (
            builder.sext(_picked(builder, one, other, order), kind)
            for one, other in (parts[:2], parts[2:])
        )
        place = builder.add(address, ir.Constant(address.type, number * 8 * LANES // 2))
        both = builder.add(builder.shl(high, bits), low)
        _write(builder, place, builder.add(_read(builder, place, kind, 8), both), 8)


@_operation(types.void, types.intp, types.intp, types.intp, types.intp)
def turn(builder: Any, address: Any, step: Any, into: Any, wide: Any) -> None:
    """Sixteen times sixteen 16-bit integers, columns for rows; rows are some bytes apart."""
    rows = []
    for _ in range(LANES):
        rows.append(_read(builder, address, SHORT.held, 2))
        address = builder.add(address, step)
    half = LANES // 2
    ends = [[place for i in range(k, k + half) for place in (i, i + LANES)] for k in (0, half)]
    for _ in range(4):  # a shuffle of all cards, halves interleaved; four of them turn the square
        pairs = zip(rows[:half], rows[half:], strict=True)
        rows = [_picked(builder, one, other, end) for one, other in pairs for end in ends]
    for row in rows:
        _write(builder, into, row, 2)
        into = builder.add(into, wide)


@_operation(types.void, types.intp)
def prefetch(builder: Any, address: Any) -> None:
    """Ask for what will be read soon."""
    name, byte = "llvm.prefetch.p0", BYTE.as_pointer()
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(ir.VoidType(), [byte, INT, INT, INT])
        function = ir.Function(builder.module, kind, name)
    how = [ir.Constant(INT, value) for value in (0, 3, 1)]  # to read, near, data
    builder.call(function, [_pointer(builder, address, BYTE), *how])


@_operation(types.int64, types.float64)
def as_integer(builder: Any, x: Any) -> Any:
    """The bits of a number."""
    return builder.bitcast(x, LONG)


@_operation(types.float64, types.int64)
def as_float(builder: Any, x: Any) -> Any:
    """The number that has these bits."""
    return builder.bitcast(x, DOUBLE)


def _each(number: float) -> Any:
    return ir.Constant(REAL.held, [number] * LANES)


def _everywhere(builder: Any, number: Any) -> Any:
    none = ir.Constant(REAL.held, ir.Undefined)
    alone = builder.insert_element(none, number, ir.Constant(INT, 0))
    return _picked(builder, alone, none, [0] * LANES)


@_operation(REAL, types.intp)
def numbers(builder: Any, address: Any) -> Any:
    """Sixteen numbers."""
    return _read(builder, address, REAL.held, 8)


@_operation(REAL, types.intp)
def singles(builder: Any, address: Any) -> Any:
    """Sixteen numbers that are kept in single precision."""
    kept = _read(builder, address, ir.VectorType(SINGLE, LANES), 4)
    return builder.fpext(kept, REAL.held)


@_operation(types.void, types.intp, REAL)
def store_numbers(builder: Any, address: Any, value: Any) -> None:
    """Write sixteen numbers."""
    _write(builder, address, value, 8)


@_operation(REAL)
def zeros(builder: Any) -> Any:
    """Sixteen zeros."""
    return _each(0.0)


@_operation(REAL, REAL, types.float64)
def away(builder: Any, x: Any, shift: Any) -> Any:
    """Differences to a number."""
    return builder.fsub(x, _everywhere(builder, shift))


@_operation(REAL, REAL, types.float64)
def whole(builder: Any, x: Any, per_unit: Any) -> Any:
    """Multiples of a unit, as the nearest whole numbers of sixteen bits; ties to even."""
    x = builder.fmul(x, _everywhere(builder, per_unit))
    for comparison, end in ((">", -FARTHEST), ("<", FARTHEST)):
        x = builder.select(builder.fcmp_ordered(comparison, x, _each(end)), x, _each(end))
    return builder.fsub(builder.fadd(x, _each(ROUND)), _each(ROUND))


@_operation(REAL, REAL, REAL)
def square(builder: Any, total: Any, x: Any) -> Any:
    """Sums of totals and squares."""
    return builder.fadd(total, builder.fmul(x, x))


@_operation(REAL, REAL, REAL)
def vanished(builder: Any, total: Any, x: Any) -> Any:
    """Sums of totals and nothing, for what is finite; of totals and NaN for all else."""
    return builder.fadd(total, builder.fmul(x, _each(0.0)))


@_operation(SHORT, REAL)
def shortened(builder: Any, x: Any) -> Any:
    """Whole numbers of sixteen bits as such."""
    return builder.trunc(builder.fptosi(x, ir.VectorType(INT, LANES)), SHORT.held)
