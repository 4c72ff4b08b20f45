"""Vectors of numbers for Numba: the few operations that `tacit.trainers.compiled` is made of.

They are written as operations that every processor has. Where one instruction multiplies sixteen
pairs of 16-bit integers and adds neighbours (x86: ``vpmaddwd``), the compiler finds that `madd` is
it; elsewhere it takes several. Addresses are not checked: whoever calls has checked the indices.

Needs Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic, models, register_model

from tacit.losses.elementary import BIAS, EXP, LN2_HIGH, LN2_LOW, LOG2E, LOWEST, MANTISSA, SQUARINGS
from tacit.trainers.compact import LIMB
from tacit.trainers.quantize import FEATURE_MAX

__all__ = [
    "LANES",
    "add",
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
AT_ONCE = 8  # lines of a tile
VECTOR = 64  # bytes of a vector in a tile
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


binding.initialize_native_asmparser()  # for `_multiply_add`
SHORT, WIDE, REAL = Vector(HALF, LANES), Vector(INT, LANES // 2), Vector(DOUBLE, LANES)
PAIRS = Vector(HALF, 2 * LANES)


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
            3: lambda context, a, b, c: found,
            4: lambda context, a, b, c, d: found,
            5: lambda context, a, b, c, d, e: found,
            7: lambda context, a, b, c, d, e, f, g: found,
        }
        typed = of_so_many[len(given)]
        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        return intrinsic(typed)

    return known


def _at(builder: Any, address: Any, by: int) -> Any:
    return builder.add(address, ir.Constant(address.type, by))


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


def _repeated(builder: Any, address: Any, kind: Any) -> Any:
    pair, times = _read(builder, address, INT, 2), kind.count // 2
    none = ir.Constant(ir.VectorType(INT, times), ir.Undefined)
    alone = builder.insert_element(none, pair, ir.Constant(INT, 0))
    return builder.bitcast(_picked(builder, alone, none, [0] * times), kind)


@_operation(SHORT, types.intp)
def spread(builder: Any, address: Any) -> Any:
    """Two 16-bit integers, eight times."""
    return _repeated(builder, address, SHORT.held)


def _multiplied(builder: Any, x: Any, y: Any) -> Any:
    lanes = x.type.count
    wide = ir.VectorType(INT, lanes)
    product = builder.mul(builder.sext(x, wide), builder.sext(y, wide))
    even, odd = (_picked(builder, product, product, range(i, lanes, 2)) for i in (0, 1))
    return builder.add(even, odd)


@_operation(WIDE, SHORT, SHORT)
def madd(builder: Any, x: Any, y: Any) -> Any:
    """Products of 16-bit integers, each added to its neighbour."""
    return _multiplied(builder, x, y)


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


# Vectors of 32 numbers: two each of sixteen rows, or of sixteen columns.
SUMS = ir.VectorType(INT, LANES)


@_operation(PAIRS, types.intp, types.intp)
def beside(builder: Any, x: Any, y: Any) -> Any:
    """Sixteen columns of two rows, side by side."""
    even, odd = (builder.zext(_read(builder, row, SHORT.held, 2), SUMS) for row in (x, y))
    upper = builder.shl(odd, ir.Constant(SUMS, [16] * LANES))
    return builder.bitcast(builder.or_(even, upper), PAIRS.held)


@_operation(types.void, types.intp, PAIRS)
def store_pairs(builder: Any, address: Any, value: Any) -> None:
    """Write 32 numbers."""
    _write(builder, address, value, 2)


@_operation(PAIRS)
def level(builder: Any) -> Any:
    """Zeros."""
    return ir.Constant(PAIRS.held, [0] * 2 * LANES)


@_operation(PAIRS, PAIRS, PAIRS)
def larger(builder: Any, top: Any, x: Any) -> Any:
    """The larger of numbers without a sign and magnitudes."""
    size = builder.select(builder.icmp_signed("<", x, x.type([0] * 2 * LANES)), builder.neg(x), x)
    return builder.select(builder.icmp_unsigned(">", top, size), top, size)


@_operation(PAIRS, types.intp)
def load_pairs(builder: Any, address: Any) -> Any:
    """32 numbers."""
    return _read(builder, address, PAIRS.held, 2)


@_operation(types.uint16, PAIRS)
def greatest(builder: Any, x: Any) -> Any:
    """The largest of 32 numbers without a sign."""
    half = LANES
    while half:
        one, other = (_picked(builder, x, x, range(i, i + half)) for i in (0, half))
        x, half = builder.select(builder.icmp_unsigned(">", one, other), one, other), half // 2
    return builder.extract_element(x, ir.Constant(INT, 0))


@_operation(types.void, types.intp, types.intp, types.intp, types.intp, types.intp)
def pair_up(builder: Any, rows: Any, size: Any, which: Any, into: Any, wide: Any) -> None:
    """Sixteen columns of sixteen rows: eight vectors of two columns each, some bytes apart.

    Rows are ``size`` bytes long; ``which`` is where their sixteen numbers are.
    """
    half = LANES // 2
    kept = []
    for i in range(0, LANES, 2):
        numbers = (_read(builder, _at(builder, which, 8 * k), LONG, 8) for k in (i, i + 1))
        places = (builder.add(rows, builder.mul(number, size)) for number in numbers)
        one, other = (_read(builder, place, WIDE.held, 2) for place in places)
        kept.append(_picked(builder, one, other, range(LANES)))
    ends = [[place for i in range(k, k + half) for place in (i, i + LANES)] for k in (0, half)]
    for _ in range(4):  # as in `turn`, but for half as many rows, each of them two
        pairs = zip(kept[: half // 2], kept[half // 2 :], strict=True)
        kept = [_picked(builder, one, other, end) for one, other in pairs for end in ends]
    for vector in kept:
        _write(builder, into, vector, 4)
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

    @_operation(types.void, types.boolean, *[types.intp] * 6)
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
                _at(builder, builder.add(into, builder.mul(wide, wide.type(k))), i * VECTOR)
                for i in range(across)
            ]
            for k in lines
        ]
        there = [
            [builder.select(fresh, nothing, _read(builder, at, SUMS, 4)) for at in line]
            for line in places
        ]
        builder.branch(inside)
        builder.position_at_end(inside)
        step = builder.phi(steps.type)
        totals = [[builder.phi(SUMS) for _ in range(across)] for _ in lines]
        place = builder.add(vectors, builder.mul(step, step.type(across * VECTOR)))
        held = [
            _read(builder, _at(builder, place, i * VECTOR), PAIRS.held, 2) for i in range(across)
        ]
        moved = builder.mul(step, step.type(4))
        after = []
        for k in lines:
            pair = _repeated(builder, builder.add(starts[k], moved), PAIRS.held)
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
                _write(builder, at, found, 4)

    return tile


tile_of_one, tile_of_two, tile_of_three = (_tile(across) for across in (1, 2, 3))


@_operation(types.void, types.intp, types.intp, types.intp)
def take_in_tile(builder: Any, address: Any, line: Any, wide: Any) -> None:
    """Add to sixteen 64-bit sums a line of upper parts and the next one, of lower parts."""
    kind = ir.VectorType(LONG, LANES)
    lines = (line, builder.add(line, wide))
    high, low = (builder.sext(_read(builder, at, SUMS, 4), kind) for at in lines)
    both = builder.add(builder.shl(high, ir.Constant(kind, [LIMB] * LANES)), low)
    _write(builder, address, builder.add(_read(builder, address, kind, 8), both), 8)


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


@_operation(REAL, types.float64)
def every(builder: Any, number: Any) -> Any:
    """A number, sixteen times."""
    return _everywhere(builder, number)


@_operation(REAL, REAL, REAL)
def plus(builder: Any, x: Any, y: Any) -> Any:
    """Sums."""
    return builder.fadd(x, y)


@_operation(REAL, REAL, REAL)
def minus(builder: Any, x: Any, y: Any) -> Any:
    """Differences."""
    return builder.fsub(x, y)


@_operation(REAL, REAL, REAL)
def times(builder: Any, x: Any, y: Any) -> Any:
    """Products."""
    return builder.fmul(x, y)


@_operation(REAL, REAL, REAL)
def over(builder: Any, x: Any, y: Any) -> Any:
    """Quotients."""
    return builder.fdiv(x, y)


@_operation(REAL, REAL, REAL)
def higher(builder: Any, x: Any, y: Any) -> Any:
    """The larger of each two numbers."""
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


@_operation(REAL, REAL, REAL)
def lower(builder: Any, x: Any, y: Any) -> Any:
    """The smaller of each two numbers."""
    return builder.select(builder.fcmp_ordered("<", x, y), x, y)


@_operation(REAL, REAL)
def negative(builder: Any, x: Any) -> Any:
    """The same numbers with the other sign."""
    return builder.fneg(x)


@_operation(REAL, REAL, REAL, REAL, REAL)
def where_less(builder: Any, x: Any, y: Any, one: Any, other: Any) -> Any:
    """One number where x is less than y, the other elsewhere."""
    return builder.select(builder.fcmp_ordered("<", x, y), one, other)


@_operation(REAL, REAL)
def root(builder: Any, x: Any) -> Any:
    """Square roots."""
    name = f"llvm.sqrt.v{LANES}f64"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(REAL.held, [REAL.held]), name)
    return builder.call(function, [x])


@_operation(REAL, types.intp, types.float64)
def scaled(builder: Any, address: Any, unit: Any) -> Any:
    """Sixteen 32-bit integers times a unit."""
    found = builder.sitofp(_read(builder, address, SUMS, 4), REAL.held)
    return builder.fmul(found, _everywhere(builder, unit))


@_operation(REAL, types.intp, types.intp)
def is_class(builder: Any, address: Any, number: Any) -> Any:
    """1 where one of sixteen 64-bit integers is this one, 0 elsewhere."""
    kind = ir.VectorType(LONG, LANES)
    none = ir.Constant(kind, ir.Undefined)
    alone = builder.insert_element(none, number, ir.Constant(INT, 0))
    same = builder.icmp_signed(
        "==", _read(builder, address, kind, 8), _picked(builder, alone, none, [0] * LANES)
    )
    return builder.select(same, _each(1.0), _each(0.0))


@_operation(REAL, REAL, types.intp)
def first_of(builder: Any, x: Any, many: Any) -> Any:
    """The first so many numbers, and zeros."""
    kind = ir.VectorType(LONG, LANES)
    none = ir.Constant(kind, ir.Undefined)
    alone = builder.insert_element(none, many, ir.Constant(INT, 0))
    limit = _picked(builder, alone, none, [0] * LANES)
    inside = builder.icmp_signed("<", ir.Constant(kind, list(range(LANES))), limit)
    return builder.select(inside, x, _each(0.0))


def _rounded(builder: Any, x: Any) -> Any:
    return builder.fsub(builder.fadd(x, _each(ROUND)), _each(ROUND))


@_operation(REAL, REAL)
def nearest(builder: Any, x: Any) -> Any:
    """Whole numbers; ties to even."""
    return _rounded(builder, x)


@_operation(REAL, REAL)
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


@_operation(types.void, types.intp, types.intp, REAL)
def halved(builder: Any, upper: Any, lower: Any, x: Any) -> None:
    """Write whole numbers in two parts, of which the lower has `LIMB` bits; they must fit."""
    part = _rounded(builder, builder.fmul(x, _each(2.0**-LIMB)))
    low = builder.fsub(x, builder.fmul(part, _each(2.0**LIMB)))
    for place, value in ((upper, part), (lower, low)):
        _write(builder, place, builder.trunc(builder.fptosi(value, SUMS), SHORT.held), 2)


@_operation(types.boolean, REAL)
def fit_in_halves(builder: Any, x: Any) -> Any:
    """Whether the upper parts of all numbers have sixteen bits."""
    size = builder.select(builder.fcmp_ordered("<", x, _each(0.0)), builder.fneg(x), x)
    fit = builder.fcmp_ordered("<=", size, _each(FARTHEST * 2.0**LIMB))
    return builder.icmp_signed("==", builder.bitcast(fit, HALF), ir.Constant(HALF, -1))


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
    return _rounded(builder, x)


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
