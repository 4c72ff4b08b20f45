"""Vectors of numbers for Numba: the few operations that `tacit.engine.kernels.compiled` is made of.

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

from tacit.engine.kernels.compact import LIMB
from tacit.engine.quantization import FEATURE_MAX
from tacit.losses.elementary import BIAS, EXP, LN2_HIGH, LN2_LOW, LOG2E, LOWEST, MANTISSA, SQUARINGS

__all__ = [
    "FARTHEST",
    "HALF",
    "INT",
    "LANES",
    "LONG",
    "ROUND",
    "SHORT",
    "SUMS",
    "WIDE",
    "Vector",
    "add",
    "away",
    "every",
    "everywhere",
    "exponential",
    "first",
    "first_of",
    "fit_in_halves",
    "halved",
    "higher",
    "is_class",
    "load",
    "lower",
    "madd",
    "minus",
    "nearest",
    "negative",
    "numbers",
    "operation",
    "over",
    "picked",
    "plus",
    "prefetch",
    "read",
    "repeated",
    "root",
    "scaled",
    "second",
    "shortened",
    "singles",
    "spread",
    "square",
    "store",
    "store_numbers",
    "sum_up",
    "take_in",
    "times",
    "turn",
    "vanished",
    "where_less",
    "whole",
    "write",
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
SUMS = ir.VectorType(INT, LANES)


def operation(result: Any, *given: Any) -> Callable[[Callable[..., Any]], Any]:
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
            3: lambda context, a, b, c: found,
            4: lambda context, a, b, c, d: found,
            5: lambda context, a, b, c, d, e: found,
            7: lambda context, a, b, c, d, e, f, g: found,
        }
        typed = of_so_many[len(given)]
        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        return intrinsic(typed)

    return known


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def picked(builder: Any, one: Any, other: Any, places: Sequence[int]) -> Any:
    order = ir.Constant(ir.VectorType(INT, len(places)), list(places))
    return builder.shuffle_vector(one, other, order)


def read(builder: Any, address: Any, kind: Any, align: int) -> Any:
    found = builder.load(_pointer(builder, address, kind))
    found.align = align
    return found


def write(builder: Any, address: Any, value: Any, align: int) -> None:
    builder.store(value, _pointer(builder, address, value.type)).align = align


@operation(SHORT, types.intp)
def load(builder: Any, address: Any) -> Any:
    """Sixteen 16-bit integers."""
    return read(builder, address, SHORT.held, 2)


@operation(types.void, types.intp, SHORT)
def store(builder: Any, address: Any, value: Any) -> None:
    """Write sixteen 16-bit integers."""
    write(builder, address, value, 2)


def everywhere(builder: Any, number: Any, lanes: int = LANES) -> Any:
    """A number in all lanes of a vector."""
    none = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    alone = builder.insert_element(none, number, ir.Constant(INT, 0))
    return picked(builder, alone, none, [0] * lanes)


def repeated(builder: Any, address: Any, kind: Any) -> Any:
    """Two 16-bit integers, as often as they fit a kind of vector."""
    pair = read(builder, address, INT, 2)
    return builder.bitcast(everywhere(builder, pair, kind.count // 2), kind)


@operation(SHORT, types.intp)
def spread(builder: Any, address: Any) -> Any:
    """Two 16-bit integers, eight times."""
    return repeated(builder, address, SHORT.held)


def _multiplied(builder: Any, x: Any, y: Any) -> Any:
    lanes = x.type.count
    wide = ir.VectorType(INT, lanes)
    product = builder.mul(builder.sext(x, wide), builder.sext(y, wide))
    even, odd = (picked(builder, product, product, range(i, lanes, 2)) for i in (0, 1))
    return builder.add(even, odd)


@operation(WIDE, SHORT, SHORT)
def madd(builder: Any, x: Any, y: Any) -> Any:
    """Products of 16-bit integers, each added to its neighbour."""
    return _multiplied(builder, x, y)


@operation(WIDE)
def zero(builder: Any) -> Any:
    """Eight zeros."""
    return ir.Constant(WIDE.held, [0] * (LANES // 2))


@operation(WIDE, WIDE, WIDE)
def add(builder: Any, x: Any, y: Any) -> Any:
    """Sums of 32-bit integers."""
    return builder.add(x, y)


@operation(types.int32, WIDE)
def sum_up(builder: Any, x: Any) -> Any:
    """The sum of eight 32-bit integers."""
    half = LANES // 4
    while half:
        parts = (picked(builder, x, x, range(i, i + half)) for i in (0, half))
        x, half = builder.add(*parts), half // 2
    return builder.extract_element(x, ir.Constant(INT, 0))


# Two rows, their columns side by side, so that `madd` adds over rows. The order within is the one
# that costs a single instruction; `take_in` undoes it.
FIRST = [0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27]
SECOND = [place + 4 for place in FIRST]
IN_ORDER = ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])


@operation(SHORT, SHORT, SHORT)
def first(builder: Any, x: Any, y: Any) -> Any:
    """Columns 0-3 and 8-11 of two rows, side by side."""
    return picked(builder, x, y, FIRST)


@operation(SHORT, SHORT, SHORT)
def second(builder: Any, x: Any, y: Any) -> Any:
    """Columns 4-7 and 12-15 of two rows, side by side."""
    return picked(builder, x, y, SECOND)


@operation(types.void, types.intp, WIDE, WIDE, WIDE, WIDE)
def take_in(builder: Any, address: Any, *parts: Any) -> None:
    """Add to sixteen 64-bit sums: `first` and `second` columns of upper, then of lower parts."""
    kind = ir.VectorType(LONG, LANES // 2)
    bits = ir.Constant(kind, [LIMB] * (LANES // 2))
    for number, order in enumerate(IN_ORDER):
        high, low = (
            builder.sext(picked(builder, one, other, order), kind)
            for one, other in (parts[:2], parts[2:])
        )
        place = builder.add(address, ir.Constant(address.type, number * 8 * LANES // 2))
        both = builder.add(builder.shl(high, bits), low)
        write(builder, place, builder.add(read(builder, place, kind, 8), both), 8)


@operation(types.void, types.intp, types.intp, types.intp, types.intp)
def turn(builder: Any, address: Any, step: Any, into: Any, wide: Any) -> None:
    """Sixteen times sixteen 16-bit integers, columns for rows; rows are some bytes apart."""
    rows = []
    for _ in range(LANES):
        rows.append(read(builder, address, SHORT.held, 2))
        address = builder.add(address, step)
    half = LANES // 2
    ends = [[place for i in range(k, k + half) for place in (i, i + LANES)] for k in (0, half)]
    for _ in range(4):  # a shuffle of all cards, halves interleaved; four of them turn the square
        pairs = zip(rows[:half], rows[half:], strict=True)
        rows = [picked(builder, one, other, end) for one, other in pairs for end in ends]
    for row in rows:
        write(builder, into, row, 2)
        into = builder.add(into, wide)


@operation(types.void, types.intp)
def prefetch(builder: Any, address: Any) -> None:
    """Ask for what will be read soon."""
    name, byte = "llvm.prefetch.p0", BYTE.as_pointer()
    function = builder.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(ir.VoidType(), [byte, INT, INT, INT])
        function = ir.Function(builder.module, kind, name)
    how = [ir.Constant(INT, value) for value in (0, 3, 1)]  # to read, near, data
    builder.call(function, [_pointer(builder, address, BYTE), *how])


def _each(number: float) -> Any:
    return ir.Constant(REAL.held, [number] * LANES)


@operation(REAL, types.intp)
def numbers(builder: Any, address: Any) -> Any:
    """Sixteen numbers."""
    return read(builder, address, REAL.held, 8)


@operation(REAL, types.intp)
def singles(builder: Any, address: Any) -> Any:
    """Sixteen numbers that are kept in single precision."""
    kept = read(builder, address, ir.VectorType(SINGLE, LANES), 4)
    return builder.fpext(kept, REAL.held)


@operation(types.void, types.intp, REAL)
def store_numbers(builder: Any, address: Any, value: Any) -> None:
    """Write sixteen numbers."""
    write(builder, address, value, 8)


@operation(REAL)
def zeros(builder: Any) -> Any:
    """Sixteen zeros."""
    return _each(0.0)


@operation(REAL, types.float64)
def every(builder: Any, number: Any) -> Any:
    """A number, sixteen times."""
    return everywhere(builder, number)


@operation(REAL, REAL, REAL)
def plus(builder: Any, x: Any, y: Any) -> Any:
    """Sums."""
    return builder.fadd(x, y)


@operation(REAL, REAL, REAL)
def minus(builder: Any, x: Any, y: Any) -> Any:
    """Differences."""
    return builder.fsub(x, y)


@operation(REAL, REAL, REAL)
def times(builder: Any, x: Any, y: Any) -> Any:
    """Products."""
    return builder.fmul(x, y)


@operation(REAL, REAL, REAL)
def over(builder: Any, x: Any, y: Any) -> Any:
    """Quotients."""
    return builder.fdiv(x, y)


@operation(REAL, REAL, REAL)
def higher(builder: Any, x: Any, y: Any) -> Any:
    """The larger of each two numbers."""
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


@operation(REAL, REAL, REAL)
def lower(builder: Any, x: Any, y: Any) -> Any:
    """The smaller of each two numbers."""
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


@operation(REAL, REAL)
def negative(builder: Any, x: Any) -> Any:
    """The same numbers with the other sign."""
    return builder.fneg(x)


@operation(REAL, REAL, REAL, REAL, REAL)
def where_less(builder: Any, x: Any, y: Any, one: Any, other: Any) -> Any:
    """One number where x is less than y, the other elsewhere."""
    return builder.select(builder.fcmp_ordered("<", x, y), one, other)


@operation(REAL, REAL)
def root(builder: Any, x: Any) -> Any:
    """Square roots."""
    name = f"llvm.sqrt.v{LANES}f64"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(REAL.held, [REAL.held]), name)
    return builder.call(function, [x])


@operation(REAL, types.intp, types.float64)
def scaled(builder: Any, address: Any, unit: Any) -> Any:
    """Sixteen 32-bit integers times a unit."""
    found = builder.sitofp(read(builder, address, SUMS, 4), REAL.held)
    return builder.fmul(found, everywhere(builder, unit))


@operation(REAL, types.intp, types.intp)
def is_class(builder: Any, address: Any, number: Any) -> Any:
    """1 where one of sixteen 64-bit integers is this one, 0 elsewhere."""
    given = read(builder, address, ir.VectorType(LONG, LANES), 8)
    same = builder.icmp_signed("==", given, everywhere(builder, number))
    return builder.select(same, _each(1.0), _each(0.0))


@operation(REAL, REAL, types.intp)
def first_of(builder: Any, x: Any, many: Any) -> Any:
    """The first so many numbers, and zeros."""
    places = ir.Constant(ir.VectorType(LONG, LANES), list(range(LANES)))
    inside = builder.icmp_signed("<", places, everywhere(builder, many))
    return builder.select(inside, x, _each(0.0))


def _rounded(builder: Any, x: Any) -> Any:
    return builder.fsub(builder.fadd(x, _each(ROUND)), _each(ROUND))


@operation(REAL, REAL)
def nearest(builder: Any, x: Any) -> Any:
    """Whole numbers; ties to even."""
    return _rounded(builder, x)


@operation(REAL, REAL)
def exponential(builder: Any, x: Any) -> Any:
    """As `tacit.losses.elementary.exp`, operation by operation."""
    r = builder.select(builder.fcmp_ordered(">", x, _each(LOWEST)), x, _each(LOWEST))
    shifted = builder.fadd(builder.fmul(r, _each(LOG2E)), _each(ROUND))
    k = builder.fsub(shifted, _each(ROUND))
    for part in (LN2_HIGH, LN2_LOW):
        r = builder.fsub(r, builder.fmul(k, _each(part)))
    r = builder.fmul(r, _each(2.0**-SQUARINGS))
    y = _each(EXP[0])
    for term in EXP[1:]:
        y = builder.fadd(builder.fmul(y, r), _each(term))
    for _ in range(SQUARINGS):
        y = builder.fmul(y, y)
    kind = ir.VectorType(LONG, LANES)
    power = builder.add(builder.bitcast(shifted, kind), ir.Constant(kind, [BIAS] * LANES))
    power = builder.shl(power, ir.Constant(kind, [MANTISSA] * LANES))  # k sits in the lowest bits
    return builder.fmul(y, builder.bitcast(power, REAL.held))


@operation(types.void, types.intp, types.intp, REAL)
def halved(builder: Any, upper: Any, lower: Any, x: Any) -> None:
    """Write whole numbers in two parts, of which the lower has `LIMB` bits; they must fit."""
    part = _rounded(builder, builder.fmul(x, _each(2.0**-LIMB)))
    low = builder.fsub(x, builder.fmul(part, _each(2.0**LIMB)))
    for place, value in ((upper, part), (lower, low)):
        write(builder, place, builder.trunc(builder.fptosi(value, SUMS), SHORT.held), 2)


@operation(types.boolean, REAL)
def fit_in_halves(builder: Any, x: Any) -> Any:
    """Whether the upper parts of all numbers have sixteen bits."""
    size = builder.select(builder.fcmp_ordered("<", x, _each(0.0)), builder.fneg(x), x)
    fit = builder.fcmp_ordered("<=", size, _each(FARTHEST * 2.0**LIMB))
    return builder.icmp_signed("==", builder.bitcast(fit, HALF), ir.Constant(HALF, -1))


@operation(REAL, REAL, types.float64)
def away(builder: Any, x: Any, shift: Any) -> Any:
    """Differences to a number."""
    return builder.fsub(x, everywhere(builder, shift))


@operation(REAL, REAL, types.float64)
def whole(builder: Any, x: Any, per_unit: Any) -> Any:
    """Multiples of a unit, as the nearest whole numbers of sixteen bits; ties to even."""
    x = builder.fmul(x, everywhere(builder, per_unit))
    for comparison, end in ((">", -FARTHEST), ("<", FARTHEST)):
        x = builder.select(builder.fcmp_ordered(comparison, x, _each(end)), x, _each(end))
    return _rounded(builder, x)


@operation(REAL, REAL, REAL)
def square(builder: Any, total: Any, x: Any) -> Any:
    """Sums of totals and squares."""
    return builder.fadd(total, builder.fmul(x, x))


@operation(REAL, REAL, REAL)
def vanished(builder: Any, total: Any, x: Any) -> Any:
    """Sums of totals and nothing, for what is finite; of totals and NaN for all else."""
    return builder.fadd(total, builder.fmul(x, _each(0.0)))


@operation(SHORT, REAL)
def shortened(builder: Any, x: Any) -> Any:
    """Whole numbers of sixteen bits as such."""
    return builder.trunc(builder.fptosi(x, ir.VectorType(INT, LANES)), SHORT.held)
