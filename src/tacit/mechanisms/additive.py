"""Sums of rows that are exact, and noise on the same lattice.

A row of norm at most ``bound`` becomes a vector of integers of norm at most
2^BITS, so the sum over rows is an exact integer and one row moves it by at most
2^BITS: no rounding error hides in the sensitivity. The noise is an exact
discrete Gaussian on the same integers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from tacit.exceptions import InputError
from tacit.mechanisms.passes import Chunk, Passes, Source
from tacit.mechanisms.release import BoundedSum, Token

try:
    from tacit.mechanisms import native
except ImportError:  # no compiler where this was installed
    native = None  # type: ignore[assignment]

SMALL, LARGE = 2.0**-750, 2.0**750  # of sums of squares in which none overflowed or vanished
NEAR = 1 << 16  # numbers that stay in the cache while one vector after the other is met
MOST_STEPS = 8  # in one pass of compiled loops
BITS = 30  # n·2^30 stays below 2^63 up to eight thousand million rows
T = TypeVar("T", bound=Callable[..., Any])


class Step(NamedTuple):
    """What happens to every row, for compiled loops; `native.through` takes several at once."""

    kind: int
    radius: float = 0.0
    by: float = 1.0
    mean: np.ndarray | None = None
    scale: np.ndarray | None = None

    @classmethod
    def normalize(cls, radius: float) -> Step:
        """As `normalize`."""
        return cls(0, radius)

    @classmethod
    def shorten(cls, radius: float, by: float = 1.0) -> Step:
        """As `shorten`."""
        return cls(1, radius, by)

    @classmethod
    def affine(cls, mean: np.ndarray, scale: np.ndarray | None) -> Step:
        """(x − mean) / scale, and the largest float for what is beyond; vectors of float64."""
        return cls(2, mean=mean, scale=scale)

    @classmethod
    def whole(cls, most: float) -> Step:
        """Towards zero to whole numbers, and to 0 beyond the largest; that is at most 2^51."""
        assert most <= 2.0**51
        return cls(3, most)


def compiled_as(step: Callable[[Any], Step]) -> Callable[[T], T]:
    """A method that maps rows, and the step that it is in compiled loops.

    It belongs to the method, so that a class with a method of its own does not inherit it.
    """

    def mark(method: T) -> T:
        method.step = step  # type: ignore[attr-defined]
        return method

    return mark


def step_of(row_map: Any) -> Step | None:
    """What a map's `apply` is in compiled loops, if anything."""
    step = getattr(type(row_map).apply, "step", None)
    return None if step is None else step(row_map)


@dataclass(frozen=True)
class Pending:
    """Rows (n, d) in front of maps that are steps: sums can be taken of them on the way.

    Attributes
    ----------
    rows : ndarray
        As they are kept.
    maps : tuple
        What they are to go through, each with a `step_of`.
    """

    rows: np.ndarray
    maps: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    def __getitem__(self, some: slice) -> Pending:
        return Pending(self.rows[some], self.maps)

    def done(self) -> np.ndarray:
        """The rows behind their maps."""
        found = self.rows
        for row_map in self.maps:
            found = row_map.apply(found)
        return found


def _ready(chunk: Chunk, steps: Sequence[Step]) -> tuple[Any, np.ndarray, tuple[Step, ...]] | None:
    """Loops, rows for them, and the steps that these have to take; None without."""
    if isinstance(chunk, Pending):
        chunk, steps = chunk.rows, [*map(step_of, chunk.maps), *steps]  # type: ignore[list-item]
    if not isinstance(chunk, np.ndarray) or chunk.ndim != 2 or chunk.dtype != np.float64:
        return None
    if not chunk.shape[1] or len(steps) > MOST_STEPS:
        return None
    if (compiled := loops()) is None or not chunk.flags.aligned:
        return None
    return compiled, np.ascontiguousarray(chunk), tuple(steps)


def through(chunk: Chunk, steps: Sequence[Step]) -> np.ndarray | None:
    """Rows through several steps in one pass; None without loops, or if rows need a closer look."""
    if (ready := _ready(chunk, steps)) is None:
        return None
    compiled, rows, every = ready
    out = np.empty_like(rows)
    return out if compiled.through(rows, every, out) else None


def added(chunk: Chunk, steps: Sequence[Step], onto: np.ndarray) -> bool:
    """Add the integers that rows become to a sum (d,), or products to an upper triangle (d, d).

    Sums stay below 2^53. False without loops for that, or if rows need a closer look: then nothing
    was added.
    """
    ready = _ready(chunk, steps)
    return ready is not None and ready[0].added(ready[1], ready[2], onto)


def row_norms(chunk: Chunk) -> np.ndarray:
    """Euclidean norm of every row; infinite only if it is no float."""
    _, norms, exponents = _tamed(chunk)
    with np.errstate(over="ignore"):
        return np.ldexp(norms, exponents)


def row_products(chunk: Chunk, vectors: np.ndarray) -> np.ndarray:
    """Every row times every vector, (n, K): the same for a row, whatever stands beside it.

    A BLAS product depends in its last bits on the shape of the call, so one row more would disturb
    the others, and a count of what rows are said to be would move by more than one. Sums along
    contiguous memory run in an order that depends on the width only.
    """
    if sp.issparse(chunk):
        return np.asarray(chunk @ vectors.T)  # row by row, in the order of what is stored
    rows, found = np.asarray(chunk), np.empty((chunk.shape[0], len(vectors)))
    many = max(1, NEAR // max(1, rows.shape[1]))
    with np.errstate(all="ignore"):  # as of a BLAS: no row is told of
        for start in range(0, len(rows), many):
            part, some = rows[start : start + many], slice(start, start + many)
            room = np.empty(part.shape)
            for k, vector in enumerate(vectors):
                np.multiply(part, vector, out=room)
                np.add.reduce(room, axis=1, out=found[some, k])
    return found


def scale_rows(chunk: Chunk, factors: np.ndarray, by: float = 1.0) -> Chunk:
    """Every row times its own factor, and times that of all."""
    if sp.issparse(chunk):
        scaled = chunk.copy()
        scaled.data = chunk.data * np.repeat(factors, np.diff(chunk.indptr)) * by
        return scaled
    return chunk * factors[:, None] * by


def shorten(chunk: Chunk, radius: float, by: float = 1.0) -> Chunk:
    """Rows longer than ``radius`` brought to that length, the others left as they are; times
    ``by``.
    """
    if (found := through(chunk, [Step.shorten(radius, by)])) is not None:
        return found
    tamed, norms, exponents = _tamed(chunk)
    with np.errstate(over="ignore", under="ignore"):
        limits = np.ldexp(radius, -exponents)
    longer = ~(norms <= limits)  # what is not a number is no short row
    factors = np.divide(radius, norms, out=np.ones_like(norms), where=longer)
    if tamed is chunk and not sp.issparse(chunk) and not longer.any():
        return np.multiply(chunk, by, dtype=np.result_type(chunk, factors))
    if tamed is chunk:
        return scale_rows(chunk, factors, by)
    return _choose(longer, scale_rows(tamed, factors), chunk) * by


def squared_norm(vector: np.ndarray) -> float:
    """The sum of a vector's squares, added up by NumPy.

    A BLAS would add in an order of its own, which depends on the processor. Where later sums are
    taken of rows that were moved or scaled by it, these would depend on that, too.
    """
    with np.errstate(over="ignore"):
        return float(np.add.reduce(np.square(vector), axis=None))


def normalize(chunk: Chunk, radius: float) -> Chunk:
    """Rows brought to length ``radius``; rows of zeros stay zero."""
    if (found := through(chunk, [Step.normalize(radius)])) is not None:
        return found
    tamed, norms, _ = _tamed(chunk)
    return scale_rows(tamed, np.divide(radius, norms, out=np.zeros_like(norms), where=norms > 0))


def _tamed(chunk: Chunk) -> tuple[Chunk, np.ndarray, np.ndarray]:
    """Rows whose squares neither overflow nor vanish, their norms, and the powers of two taken out.

    Ordinary rows are left alone. A sum of squares runs along contiguous memory in
    an order that depends on the width only, so a row's norm is its own affair.
    """
    sparse = sp.issparse(chunk)
    if not sparse:
        chunk = np.ascontiguousarray(chunk)
        with np.errstate(all="ignore"):
            total = _squares(chunk)
            ordinary = (total > SMALL) & (total < LARGE)
        if ordinary.all():  # mostly: no number of theirs has to be looked at
            return chunk, np.sqrt(total), np.zeros(len(chunk), dtype=np.intc)
    if sparse:
        largest = abs(chunk).max(axis=1).toarray().reshape(-1)
    else:
        largest = np.abs(chunk).max(axis=1, initial=0.0)
    exponents = np.frexp(largest)[1]
    exponents = np.where(np.abs(exponents) > 400, exponents, 0)
    tamed = chunk
    if exponents.any():
        tamed = chunk.copy()
        if sparse:
            tamed.data = np.ldexp(chunk.data, -np.repeat(exponents, np.diff(chunk.indptr)))
        else:
            tamed = np.ldexp(chunk, -exponents[:, None])
    with np.errstate(all="ignore"):
        squares = tamed.multiply(tamed) if sparse else tamed * tamed
        total = squares.sum(axis=1) if sparse else np.add.reduce(squares, axis=1)
    return tamed, np.sqrt(np.asarray(total).reshape(-1)), exponents


def _squares(chunk: np.ndarray) -> np.ndarray:
    """The squared norm of every row."""
    if (compiled := _loops(chunk)) is None:
        return np.asarray(np.add.reduce(chunk * chunk, axis=1))
    out = np.empty(len(chunk))
    compiled.squares(chunk, out)
    return out


def _loops(chunk: np.ndarray) -> Any:
    """Compiled loops for these rows, if there are any."""
    flags = chunk.flags
    return loops() if chunk.dtype == np.float64 and flags.c_contiguous and flags.aligned else None


@lru_cache(maxsize=1)
def loops() -> Any:
    """Compiled loops over rows, if they add squares in the order in which this NumPy does."""
    if native is None or os.environ.get("TACIT_KERNELS") == "numpy":
        return None
    for d in (*range(1, 40), 127, 128, 129, 500):
        rows = np.sin(1 + np.arange(29.0 * d)).reshape(29, d)  # some abreast, and the last singly
        found, out = np.empty(29), np.empty_like(rows)
        native.squares(rows, found)
        squares = np.add.reduce(rows * rows, axis=1)
        if not (found == squares).all():
            return None  # that is its own affair, and what it does counts
        whole = native.through(rows, (Step.normalize(1.0),), out)
        if not (whole and (out == rows * (1 / np.sqrt(squares))[:, None]).all()):
            return None
        cut, total = (Step.shorten(1.0, 2.0**30), Step.whole(2.0**30)), np.zeros(d)
        whole = native.through(rows, cut, out) and native.added(rows, cut, total)
        if not (whole and (total == np.add.reduce(out, axis=0)).all()):
            return None
    return native


def _choose(which: np.ndarray, chosen: Chunk, other: Chunk) -> Chunk:
    if sp.issparse(chosen):
        mixed = other.copy()
        mixed.data = np.where(np.repeat(which, np.diff(other.indptr)), chosen.data, other.data)
        return mixed
    return np.where(which[:, None], chosen, other)


def lattice_steps(d: int, bound: float, bits: int = BITS) -> list[Step]:
    """`lattice_rows` as steps."""
    if not 2.0**-500 <= bound <= 2.0**500:
        raise InputError(f"the norm bound is {bound}; it must lie between 2**-500 and 2**500")
    factor = 2.0**bits / bound * (1.0 - (d + 8) * 2.0**-52)
    return [Step.shorten(bound, factor), Step.whole(2.0**bits)]


def lattice_rows(chunk: Chunk, bound: float, bits: int = BITS) -> Chunk:
    """Rows in units of bound/2^bits: integers (as float64), norm at most 2^bits.

    Rows longer than ``bound`` are shortened to it, never trusted; what is not a
    number counts nothing. Truncation towards zero lengthens nothing:
    |trunc(v_j)| ≤ |v_j|. What remains is the rounding of the norm and of the
    products, at most (d+4)·2^-53 in relative terms for any order of summation;
    the factor of `lattice_steps` is twice that.
    """
    steps = lattice_steps(chunk.shape[1], bound, bits)
    if (found := through(chunk, steps)) is not None:
        return found
    if isinstance(chunk, Pending):
        chunk = chunk.done()
    with np.errstate(all="ignore"):
        lattice = shorten(chunk, bound, steps[0].by)  # a copy, in double precision
    values, most = lattice.data if sp.issparse(lattice) else lattice, 2.0**bits
    np.trunc(values, out=values)
    # A row beyond the floats would become the smallest integer: it counts nothing instead.
    if not (values.max(initial=0.0) <= most and values.min(initial=0.0) >= -most):
        np.copyto(values, 0.0, where=~(np.abs(values) <= most))
    return lattice


def lattice_sum(chunks: Source, d: int, bound: float, bits: int = BITS) -> np.ndarray:
    """Exact sum of all rows, int64, in units of bound/2^bits."""
    summary = partial(_whole_sum, d=d, bound=bound, bits=bits)
    return Passes.over(chunks).merged(summary, np.zeros(d, dtype=np.int64))


def _whole_sum(chunk: Chunk, d: int, bound: float, bits: int) -> np.ndarray:
    # Fewer than 2^23 rows of norm 2^30: below 2^53, so float64 adds them exactly.
    part: Any = np.zeros(d)
    if not added(chunk, lattice_steps(chunk.shape[1], bound, bits), part):
        whole = lattice_rows(chunk, bound, bits)
        if sp.issparse(whole):  # not by a product with ones, as SciPy would
            part = np.bincount(whole.indices, whole.data, minlength=d)
        else:
            part = np.add.reduce(whole, axis=0)
    return part.astype(np.int64)


def lattice_drift(total: float, n: int, d: int, bound: float) -> float:
    """Drift ``total`` of n rows, after they were cut to integers: a unit a
    column more.
    """
    return 0.0 if not total else total + n * math.sqrt(d) * math.ldexp(bound, 1 - BITS)


def bounded_sum(chunks: Source, d: int, bound: float, *, drift: float = 0.0) -> BoundedSum:
    """Exact sum of all rows, each shortened to ``bound``.

    One row contributes a vector of norm at most ``bound``, whatever it was before, and the rows
    that neighbours share move the sum by at most ``drift``. (After noiseless stages, where the
    relation is replace-one, sums of neighbours lie within 2·bound + drift.)
    """
    reach = bound * (1 + drift / (2 * bound)) * (1 + 1e-15)
    return BoundedSum(lattice_sum(chunks, d, bound), math.ldexp(bound, -BITS), bound, reach)


def noisy_sum(
    chunks: Source, d: int, bound: float, token: Token, *, drift: float = 0.0
) -> np.ndarray:
    """Σ rows + Gaussian noise of ``token.noise_multiplier`` × (``bound`` + drift/2)."""
    return token.gaussian(bounded_sum(chunks, d, bound, drift=drift))
