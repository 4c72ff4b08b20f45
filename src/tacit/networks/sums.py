r"""Sums of clipped gradients of rows, from their factors: in integers, or in floating point.

What a row adds to the sum for a matrix is Zᵀa, of integer factors: a holds what comes in, in
2^-20 of its largest value or somewhat more, and Z is fb rounded, where b holds the gradients of
what comes out, in 2^-30 of their largest value, and f shortens the row to the clip. In units of
clip/2^BITS:

    ‖Zᵀa‖ ≤ f‖bᵀa‖ + Σ_t ‖Z_t − fb_t‖‖a_t‖ ≤ f(‖bᵀa‖ + uP) + h,   P = Σ_t ‖a_t‖‖b_t‖,
    h = √N/2 · Σ_t ‖a_t‖.

‖bᵀa‖² is Σ_st (a_s·a_t)(b_s·b_t), or the sum of squares of bᵀa where that is less work. In
floating point, and in whatever order sums are taken, it is too small by no more than
γP², with γ counting the operations (Higham 2002, §3.1: |fl(x·y) − x·y| ≤ γ_n |x|·|y|): the bound
that clips is raised by twice that. Over all parameters, with f = κφ and φ the natural scale of a
factor, the row has norm at most κ√Σ(φ(‖bᵀa‖ + …))² + √Σh², and κ is chosen to make that 2^BITS.

Products of integers are exact in float64 while Σ ‖Z_t‖‖a_t‖ stays below 2^53, whatever their
order; before that, what has been added up moves to int64. So the sum over rows is exact, and a row
changes it by its own integers, of norm at most 2^BITS.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.mechanisms.memory import Memory
from tacit.networks.factors import Factors, Gradients, load_torch

__all__ = ["BITS", "ExactSum", "FastSum"]

BITS = 40  # of the clip, in units of the lattice: sums of 2^22 rows stay below 2^63
INPUT_BITS = 20  # at most, where few numbers are multiplied
SLOPE_BITS = 30
LIMIT = 2.0**52  # of the absolute values in a sum of integers in float64
LONGEST = 2.0**50  # of those of one row: one whose places cancel each other is shortened more
UNIT = 2.0**-52  # twice the unit roundoff
PIECE = 1 << 15  # sums that are turned together
HELD = 256  # places whose integers wait for each other, for one product
SAFE = 1 - 2.0**-40  # more than all roundings of a few numbers of a row


class _Sum:
    """Sums for every parameter, in one vector.

    Parameters
    ----------
    chosen : dict of str to tensor
        The parameters, in the module's order: their shapes count.
    others : tuple of str
        Those whose gradients are held whole, one after another.
    dtype : torch type
        Of the sums.
    """

    def __init__(self, chosen: dict[str, Any], others: tuple[str, ...], dtype: Any) -> None:
        self._shapes = {name: value.shape for name, value in chosen.items()}
        self._given, self._dtype, self._memory = others, dtype, Memory()

    def _clear(self) -> None:
        torch = load_torch()
        sizes = [shape.numel() for shape in self._shapes.values()]
        kind = torch.zeros(0, dtype=self._dtype).numpy().dtype
        self._found = self._memory.empty(sum(sizes), kind)
        self._found.fill(0)
        pieces = torch.from_numpy(self._found).split(sizes)
        views = dict(zip(self._shapes, pieces, strict=True))
        self._parts = {
            n: part.view(self._shapes[n]) for n, part in views.items() if n not in self._given
        }
        self._others = [views[name] for name in self._given]
        self._whole = torch.zeros(sum(len(part) for part in self._others), dtype=self._dtype)

    def _add(self, name: str, a: Any, b: Any) -> None:
        """Add Σ b aᵀ over places; a are places of an embedding, or vectors."""
        part = self._parts[name]
        if a.ndim == 1:
            part.index_add_(0, a, b.to(part.dtype))
        else:
            part.addmm_(b.T.to(part.dtype), a.to(part.dtype))

    def _sums(self) -> np.ndarray:
        """All sums as one vector, in the module's order; from here on they are the caller's."""
        for part, sums in zip(
            self._others, self._whole.split([len(part) for part in self._others]), strict=True
        ):
            part.copy_(sums)
        found = self._found
        del self._found, self._parts, self._others
        return found


class FastSum(_Sum):
    """Sums in the module's own floating point: gradients that are not finite count nothing."""

    def __init__(self, chosen: dict[str, Any], others: tuple[str, ...]) -> None:
        kinds = {value.dtype for value in chosen.values()}
        torch = load_torch()
        plain = len(kinds) == 1 and kinds <= {torch.float32, torch.float64}
        super().__init__(chosen, others, kinds.pop() if plain else torch.float64)

    def start(self, clip: float) -> None:
        """Begin a sum of gradients that are clipped there."""
        self._clip = clip
        self._clear()

    def add(self, rows: Gradients) -> None:
        """Add the gradients of some rows, clipped."""
        torch = load_torch()
        squares = sum(_Norms(part).squares for part in rows.factors.values())
        if rows.whole is not None:
            squares = squares + rows.whole.square().sum(dim=1)
        norms = squares.sqrt()
        finite = torch.isfinite(norms)
        factors = torch.where(finite, (self._clip / norms.clamp_min(1e-30)).clamp(max=1.0), 0.0)
        clean = bool(finite.all())
        for name, part in rows.factors.items():
            a = part.a if clean or part.embedding else _kept(part.a, finite)
            b = part.b if clean else _kept(part.b, finite)
            self._add(name, a.flatten(0, 1), (b * factors[:, None, None]).flatten(0, 1))
        if rows.whole is not None:
            self._whole += factors @ (rows.whole if clean else _kept(rows.whole, finite))

    def total(self) -> np.ndarray:
        """The sum (d,), in the module's own type, or in float64."""
        return self._sums()


class ExactSum(_Sum):
    """Sums of integers, in units of clip/2^BITS: every row has norm at most 2^BITS in them."""

    def __init__(self, chosen: dict[str, Any], others: tuple[str, ...]) -> None:
        super().__init__(chosen, others, load_torch().float64)
        self._waiting: dict[str, list[tuple[Any, Any]]] = {}
        self._moved: np.ndarray | None = None

    def start(self, clip: float) -> None:
        """Begin a sum of gradients that are clipped there."""
        self._unit = math.ldexp(clip, -BITS)
        self._load = 0.0  # what the absolute values add up to at most, waiting ones included
        self._held = 0  # places that wait
        self._waiting.clear()
        self._moved = None
        self._clear()

    def add(self, rows: Gradients, present: Any) -> None:
        """Add the gradients of some rows, clipped: of those that are present.

        All rows of a group are worked on, present or not, in arrays of always the same shape: what
        becomes of a row then depends on its own values and place, to the last bit. Its integers
        may then be summed with those of any others, in any shape.
        """
        torch = load_torch()
        whole = None if rows.whole is None else rows.whole.double()
        known: dict[Any, Any] = {}
        parts = {n: _Integers(part, self._unit, known) for n, part in rows.factors.items()}
        squares, errors, heaviest = torch.zeros((3, len(present)), dtype=torch.float64)
        counts = present
        for part in parts.values():
            counts = counts & part.finite
            squares += (part.scale * part.norm).square()
            errors += part.error.square()
            heaviest = torch.maximum(heaviest, part.scale * part.weight)
        if whole is not None:
            raised = 1 + (whole.shape[1] + 8) * UNIT
            squares += (whole.square().sum(dim=1).sqrt() * (raised / self._unit)).square()
        room = ((2.0**BITS - errors.sqrt()) * SAFE).clamp_min(0.0)
        shorten = torch.minimum(room / squares.sqrt(), LONGEST / heaviest).clamp(max=1.0)
        counts = counts & torch.isfinite(squares)
        shorten = torch.where(counts, shorten.nan_to_num(0.0), 0.0)
        loads = shorten * heaviest + 2.0**BITS
        some = counts.nonzero()[:, 0]
        for chunk in [some] if float(loads[some].sum()) <= LIMIT else some.split(1):
            load = float(loads[chunk].sum())
            if self._load + load > LIMIT:
                self._move()
            self._load += load
            for name, part in parts.items():
                # Where bᵀa is zero place by place, b may be beyond bounds; elsewhere P ≥ 1, and
                # the factor at most LONGEST.
                factor = torch.where(part.weight > 0, shorten * part.scale, 0.0)[chunk]
                b = (part.b[chunk] * factor[:, None, None]).round_()
                pair = part.a[chunk].flatten(0, 1), b.flatten(0, 1)
                self._waiting.setdefault(name, []).append(pair)
            if whole is not None:
                # Cut towards zero, which lengthens nothing.
                kept = whole[chunk] * (shorten[chunk] / self._unit)[:, None]
                self._whole += kept.nan_to_num_(0.0, 0.0, 0.0).trunc_().sum(dim=0)
            self._held += len(chunk) * max((part.b.shape[1] for part in parts.values()), default=0)
        if self._held >= HELD:
            self._work()

    def _work(self) -> None:
        """Add what waits."""
        torch = load_torch()
        for name, pairs in self._waiting.items():
            self._add(name, *(torch.cat(part) for part in zip(*pairs, strict=True)))
        self._waiting.clear()
        self._held = 0

    def _move(self) -> None:
        """What was added up becomes int64."""
        self._work()
        now = _whole(self._sums())
        self._moved = now if self._moved is None else np.add(self._moved, now, out=now)
        self._clear()
        self._load = 0.0

    def total(self) -> np.ndarray:
        """The sum (d,), in int64."""
        self._work()
        now = _whole(self._sums())
        return now if self._moved is None else np.add(self._moved, now, out=now)


def _whole(sums: np.ndarray) -> np.ndarray:
    """Integers in float64 as int64, in the same memory."""
    found = sums.view(np.int64)
    for start in range(0, len(sums), PIECE):
        found[start : start + PIECE] = sums[start : start + PIECE].astype(np.int64)
    return found


class _Integers:
    """The factors of some rows as integers, and what bounds their norms.

    Attributes
    ----------
    a, b : tensors of float64
        Integers, up to 2^INPUT_BITS (or places of an embedding) and 2^SLOPE_BITS.
    scale : tensor of shape (rows,)
        What bᵀa is to be multiplied by, for gradients in units.
    norm : tensor of shape (rows,)
        At least ‖bᵀa‖, and what rounding of multiples of b adds in relative terms.
    weight : tensor of shape (rows,)
        At least Σ_t ‖a_t‖‖b_t‖.
    error : tensor of shape (rows,)
        At least what rounding b to integers again may add.
    finite : tensor of shape (rows,)
        Whether a row is made of finite numbers.
    """

    def __init__(self, part: Factors, unit: float, known: dict[Any, Any]) -> None:
        torch = load_torch()
        self.b, exponents, self.finite = _integers(part.b, SLOPE_BITS)
        self.a = part.a
        if not part.embedding:
            # The error stays below 2^-9 of the clip, whatever the values; mostly well below.
            numbers = part.b.shape[1] * math.sqrt(part.a.shape[2] * part.b.shape[2])
            bits = max(8, min(INPUT_BITS, BITS - 9 - math.ceil(math.log2(numbers))))
            key = (part.a.data_ptr(), part.a.shape, part.a.stride(), bits)
            if key not in known:  # several matrices may be given the same
                known[key] = _integers(part.a, bits)
            self.a, more, finite = known[key]
            exponents, self.finite = exponents + more, self.finite & finite
        self.scale = torch.exp2(exponents.double()) / unit
        found = _Norms(Factors(self.a, self.b))
        raised = 1 + (found.depth + found.width + found.places + 16) * UNIT
        coming, going = found.lengths()
        self.weight = (coming * going).sum(dim=1) * raised
        self.error = coming.sum(dim=1) * (raised * math.sqrt(found.width) / 2)
        squares = found.squares + (found.operations + 16) * UNIT * self.weight.square()
        self.norm = squares.sqrt() + 4 * UNIT * self.weight


class _Norms:
    """Squares ‖bᵀa‖² of the norms of rows, from their factors.

    Two ways: through products of places with places, or through bᵀa itself. With unit roundoff u
    and P = Σ_t ‖a_t‖‖b_t‖ the errors are at most, for any order of summation,

        γ_K + γ_N + γ_{T²} in P²     and     2γ_T + γ_{KN} in P²,

    where γ_n = nu/(1 − nu), and n counts ``operations``.
    """

    def __init__(self, part: Factors) -> None:
        a, b = self._a, self._b = part.a, part.b
        (_, self.places, self.width), self.depth = b.shape, 1 if part.embedding else a.shape[-1]
        self._grams = None
        if part.embedding or self.places * (self.depth + self.width) <= self.depth * self.width:
            same = a[:, :, None] == a[:, None, :] if part.embedding else a @ a.transpose(1, 2)
            self._grams = same.to(b.dtype), b @ b.transpose(1, 2)
            products = self._grams[0] * self._grams[1]
            self.squares = products.flatten(1).sum(dim=1).clamp_min(0.0)
            self.operations = self.depth + self.width + self.places**2
        else:
            self.squares = (b.transpose(1, 2) @ a).square().flatten(1).sum(dim=1)
            self.operations = 2 * self.places + self.depth * self.width

    def lengths(self) -> tuple[Any, Any]:
        """‖a_t‖ and ‖b_t‖, of shape (rows, places)."""
        if self._grams is None:
            return tuple(part.square().sum(dim=2).sqrt() for part in (self._a, self._b))
        return tuple(gram.diagonal(dim1=1, dim2=2).sqrt() for gram in self._grams)


def _integers(values: Any, bits: int) -> tuple[Any, Any, Any]:
    """Rows as integers of at most 2^bits (in float64), powers of two, and which rows are finite.

    Where a power of two is rounded by the library, integers are others, and nothing else.
    """
    torch = load_torch()
    largest = values.flatten(1).abs().amax(dim=1).double()
    finite = torch.isfinite(largest)
    if not bool(finite.all()):
        values, largest = _kept(values, finite), torch.where(finite, largest, 0.0)
    exponents = (torch.frexp(largest).exponent - bits).clamp_min(-960)
    factors = torch.exp2(-exponents.double())
    # Of two kinds of numbers, a product would take thirty times as long.
    return (values.double() * factors[:, None, None]).round_(), exponents, finite


def _kept(values: Any, finite: Any) -> Any:
    """Rows that are finite, and zeros for the others."""
    shape = (-1,) + (1,) * (values.ndim - 1)
    return load_torch().where(finite.reshape(shape), values, 0.0)
