"""Rows as an engine keeps them: dense or sparse, as integers or in floating point.

Both stores answer the same two questions about a block of rows, their scores
and the sum of rows times multipliers, as exact integers or in float32.
`tacit.engine.quantization` says why the integers are exact. The columns lie in one
part or in two; every part of a row has a norm and multipliers of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tacit.engine.quantization import FEATURE_MAX, FLOAT, LATTICE_ROWS, LIMIT, Scale, Weights
from tacit.engine.schedule import Block
from tacit.exceptions import InputError, of_rows
from tacit.mechanisms.checksum import Residues, segment_sums

SLAB = 1 << 18  # columns of 15 bits that float64 adds exactly when multiplied by 20 bits
Parts: TypeAlias = tuple[slice, ...]  # columns that are clipped together


class DenseStore:
    """int16 (exact), float64 (rounded) or float32 (fast) rows.

    Integers are widened to float64 in cache: int16 costs a quarter of the memory
    traffic, which pays for the conversion. Compiled loops, if any, do without
    (`tacit.engine.kernels.compact`).

    Rows longer than ``longest`` are shortened (`tacit.engine.quantization.Scale`).
    """

    group_rows = LATTICE_ROWS
    #: Whether rows are multiplied by the loops of `tacit.engine.kernels.compact`.
    compiled = False

    def __init__(
        self, n: int, d: int, arithmetic: str, parts: Parts, longest: float = math.inf
    ) -> None:
        exact = arithmetic == "exact"
        # Small enough for the cache, large enough to hide the calls: 1.4 MB as int16.
        self.block_rows = min(LATTICE_ROWS, max(128, 700_000 // d))
        self.values = self.allocate(n, d, np.int16 if exact else FLOAT[arithmetic])
        self.parts, self.longest = parts, longest
        self.inverse_norms = [np.empty(n, dtype=FLOAT.get(arithmetic, np.float64)) for _ in parts]
        self.exact = exact

    def allocate(self, n: int, d: int, dtype: Any) -> np.ndarray:
        """Room for the rows."""
        return np.empty((n, d), dtype=dtype)

    def take(
        self, span: slice, chunk: Any, rounding: Rounding, blanked: np.ndarray | None = None
    ) -> None:
        """Rows as they come, to be rounded and kept."""
        self.fill(span, rounding.dense(chunk, blanked).astype(self.values.dtype, copy=False))

    def fill(self, span: slice, values: np.ndarray) -> None:
        """Rows as they are kept."""
        values, found = with_norms(values, self.parts, self.exact, self.longest)
        self.values[span] = values
        for norms, some in zip(self.inverse_norms, found, strict=True):
            norms[span] = some

    def norms(self, block: Block) -> list[np.ndarray]:
        """1 / |x| of every row of a block, part by part."""
        return [inverse[block] for inverse in self.inverse_norms]

    def inner(self, first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
        """Inner products of some rows and some others, part by part: exact where rows are."""
        one, other = (self.values[index].astype(np.float64) for index in (first, second))
        return [np.einsum("ij,ij->i", one[:, part], other[:, part]) for part in self.parts]

    def operand(self, weights: Weights) -> np.ndarray:
        # Powers of two commute with rounding, so the units go into the weights.
        return np.ascontiguousarray(weights.columns * weights.unit)

    def forward(self, block: Block, operand: np.ndarray, work: Workspace) -> Any:
        """Rows of the block, and their scores as (S*K, b)."""
        if isinstance(block, slice):
            rows = self.values[block]
        else:  # indices are checked before: "clip" avoids a buffered copy
            rows = work.array("gather", (block.size, self.values.shape[1]), self.values.dtype)
            np.take(self.values, block, axis=0, out=rows, mode="clip")
        if self.exact:
            wide = work.array("rows", rows.shape, np.float64)
            np.copyto(wide, rows)
            rows = wide
        scores = work.array("scores", (operand.shape[0], rows.shape[0]), rows.dtype)
        np.matmul(operand, rows.T, out=scores)
        return rows, scores

    def backward(
        self, rows: np.ndarray, multipliers: Sequence[np.ndarray], work: Workspace
    ) -> np.ndarray:
        """Sum over the block of row times multipliers, part by part: (d, S*K)."""
        total = work.array("sum", (rows.shape[1], len(multipliers[0])), rows.dtype)
        for columns, some in zip(self.parts, multipliers, strict=True):
            np.matmul(rows[:, columns].T, some.T, out=total[columns])
        return total

    def along(self, halves: np.ndarray) -> Residues:
        """Every row times numbers in two halves (2, d), without the BLAS library."""
        n, d = self.values.shape
        total = np.zeros((2, n), dtype=np.int64)
        for start in range(0, n, self.block_rows):
            rows = slice(start, start + self.block_rows)
            for left in range(0, d, SLAB):  # so that float64 is exact
                columns = slice(left, left + SLAB)
                wide = self.values[rows, columns].astype(np.float64)
                total[:, rows] += np.einsum("ij,lj->li", wide, halves[:, columns]).astype(np.int64)
        return Residues.joined(*total)


class SparseStore:
    """Sparse rows, with a shift that is subtracted from the products, not from the rows.

    The row that counts is x - m, in integers: its norm, its scores and its
    share of the sum are those of x less a rank-one part.
    """

    group_rows = LATTICE_ROWS
    compiled = False

    def __init__(
        self,
        matrix: sp.csr_array,
        shift: np.ndarray | None,
        arithmetic: str,
        parts: Parts,
        blanked: np.ndarray | None = None,
    ) -> None:
        self.matrix = matrix
        self.parts = parts
        # Every block ends in a dense (d, K) result: the more columns, the more rows for it.
        self.block_rows = min(LATTICE_ROWS, max(2048, matrix.shape[1] // 8))
        self.shift = shift
        self.exact = arithmetic == "exact"
        self.inverse_norms = [self._inverse_norm(part) for part in parts]
        if not self.exact:
            kind = FLOAT[arithmetic]
            self.matrix = matrix.astype(kind)
            self.inverse_norms = [norms.astype(kind) for norms in self.inverse_norms]
            self.shift = None if shift is None else shift.astype(kind)
        if blanked is not None:  # multipliers of what has no length are zero
            for norms in self.inverse_norms:
                norms[blanked] = 0.0

    def _inverse_norm(self, part: slice) -> np.ndarray:
        """1 / |x - m| over these columns, by sums that no library has a hand in."""
        indices = self.matrix.indices
        inside = (indices >= part.start) & (indices < part.stop)
        values = np.where(inside, self.matrix.data.astype(np.float64), 0.0)
        square = self._row_sums(values * values)
        if self.shift is not None:  # integers below 2**53 where exact, so the differences are too
            shift = self.shift
            both = square + np.add.reduce(np.square(shift[part]))
            square = both - 2 * self._row_sums(values * shift[indices])
            if not self.exact:  # a difference of float32 products is never shorter than its error
                square = np.maximum(square, 2.0**-40 * both)
        return _inverse_norm(square, self.exact)

    def norms(self, block: Block) -> list[np.ndarray]:
        """1 / |x| of every row of a block, part by part."""
        return [inverse[block] for inverse in self.inverse_norms]

    def inner(self, first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
        """Inner products of some rows and some others, part by part: exact where rows are."""
        one, other = (self.matrix[index].astype(np.float64) for index in (first, second))
        shift = np.zeros(one.shape[1]) if self.shift is None else self.shift.astype(np.float64)
        both, found = sp.csr_array(one.multiply(other)), []
        for part in self.parts:  # (x - m)(y - m), of integers below 2**53, added up in 64 bits
            inside = np.zeros_like(shift)
            inside[part] = 1.0
            terms = [both @ inside, -(one @ (inside * shift)), -(other @ (inside * shift))]
            terms.append(np.full(len(first), np.add.reduce(np.square(shift[part]))))
            kind = np.int64 if self.exact else np.float64
            total = np.add.reduce([term.astype(kind) for term in terms])
            found.append(total.astype(np.float64))
        return found

    def operand(self, weights: Weights) -> Any:
        columns = np.ascontiguousarray(weights.columns.T)
        offset = None if self.shift is None else (self.shift @ columns)[:, None]
        return columns, offset, weights.unit

    def forward(self, block: Block, operand: Any, work: Workspace) -> Any:
        columns, offset, unit = operand
        rows = self.matrix[indices(block)]  # faster than SciPy's own slices
        scores = work.array("scores", (columns.shape[1], rows.shape[0]), columns.dtype)
        np.copyto(scores, (rows @ columns).T)
        if offset is not None:
            scores -= offset
        scores *= unit
        return rows, scores

    def backward(
        self, rows: sp.csr_array, multipliers: Sequence[np.ndarray], work: Workspace
    ) -> np.ndarray:
        sums = [self._product(rows, some) for some in multipliers]
        if len(sums) == 1:
            return sums[0]
        # Cutting columns out of every block would take longer than the products left unused.
        return np.concatenate([s[part] for s, part in zip(sums, self.parts, strict=True)])

    def _product(self, rows: sp.csr_array, multipliers: np.ndarray) -> np.ndarray:
        columns = np.ascontiguousarray(multipliers.T)
        if not self.exact:
            part = rows.T @ columns
            return part if self.shift is None else part - np.outer(self.shift, columns.sum(axis=0))
        if self.shift is None:
            return rows.T @ columns
        # A row may be long while x - m is short, so that |x| |z| exceeds C / g and the
        # float64 product its exact range. Then z is split into two halves of 24 bits. In
        # 64-bit integers a wrap in between is harmless: the difference is small again.
        reach = np.abs(multipliers).sum(axis=1).max(initial=0.0) * FEATURE_MAX
        if reach < 2.0**52:
            part = (rows.T @ columns).astype(np.int64)
        else:
            high = np.rint(columns * 2.0**-24)
            part = (rows.T @ high).astype(np.int64) << 24
            part += (rows.T @ (columns - high * 2.0**24)).astype(np.int64)
        total = columns.sum(axis=0).astype(np.int64)
        return part - self.shift.astype(np.int64)[:, None] * total

    def along(self, halves: np.ndarray) -> Residues:
        """Every row times numbers in two halves (2, d), without SciPy's products."""
        values, indices = self.matrix.data.astype(np.int64), self.matrix.indices
        numbers = halves.astype(np.int64)
        sums = [segment_sums(values * half[indices], self.matrix.indptr) for half in numbers]
        found = Residues.joined(*sums)
        if self.shift is None:
            return found
        moved = self.shift.astype(np.int64)
        return found - Residues.joined(*((half * moved).sum(keepdims=True) for half in numbers))

    def _row_sums(self, values: np.ndarray) -> np.ndarray:
        """Sums of the stored entries of every row."""
        n = self.matrix.shape[0]
        return np.bincount(np.repeat(np.arange(n), np.diff(self.matrix.indptr)), values, n)


class Workspace:
    """Scratch arrays of one worker, kept from block to block."""

    def __init__(self) -> None:
        self._flat: dict[str, np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, int], dtype: Any) -> np.ndarray:
        """A contiguous array of that shape with arbitrary contents; a name has one dtype."""
        size = shape[0] * shape[1]
        flat = self._flat.get(name)
        if flat is None or flat.size < size:
            flat = self._flat[name] = np.empty(size, dtype)
        return flat[:size].reshape(shape)

    def copy(self, name: str, values: np.ndarray) -> np.ndarray:
        """A copy of these values, in such an array."""
        copied = self.array(name, values.shape, values.dtype)
        np.copyto(copied, values)
        return copied


@dataclass(frozen=True)
class Rounding:
    """How rows become what is kept of them: moved by a public shift, clamped, beside a constant.

    Attributes
    ----------
    exact : bool
        Whether they are rounded to integers.
    intercept : float
        The constant; 0 for none.
    shift : ndarray, optional
        Subtracted from dense rows. (Sparse ones are left where they are.)
    """

    scale: Scale
    exact: bool
    intercept: float
    shift: np.ndarray | None

    def convert(self, values: np.ndarray) -> np.ndarray:
        return self.scale.integers(values) if self.exact else self.scale.floats(values)

    @cached_property
    def constant(self) -> np.ndarray:
        """The constant as it is kept; empty if there is none."""
        return self.convert(np.array([self.intercept])) if self.intercept else np.empty(0)

    def dense(self, chunk: Any, blanked: np.ndarray | None = None) -> np.ndarray:
        """Dense rows, with a column for the constant; those blanked are zero, constant and all."""
        chunk = np.asarray(chunk)
        values = self.convert(chunk if self.shift is None else chunk - self.shift)
        for constant in self.constant:
            values = np.column_stack([values, np.full(len(values), constant)])
        if blanked is not None:
            values[blanked] = 0.0
        return values

    def sparse(self, chunk: Any, blanked: np.ndarray | None = None) -> sp.csr_array:
        """Sparse rows, with a column for the constant; those blanked are zero, constant and all."""
        matrix = sp.csr_array(chunk, copy=True)
        if blanked is not None:
            matrix.data[np.repeat(blanked, np.diff(matrix.indptr))] = 0.0
        # Entries stored twice add up: norms read from them singly would be wrong.
        matrix.sum_duplicates()
        matrix.data = self.convert(matrix.data)
        matrix.eliminate_zeros()
        for constant in self.constant:
            column = np.full((matrix.shape[0], 1), constant, dtype=matrix.dtype)
            if blanked is not None:
                column[blanked] = 0.0
            matrix = sp.csr_array(sp.hstack([matrix, sp.csr_array(column)], format="csr"))
        return matrix

    def offset(self) -> np.ndarray | None:
        """The shift in units of what is kept, for sparse rows; `Scale.radius` allows for it."""
        if self.shift is None:
            return None
        moved = np.rint(self.shift / self.scale.unit) if self.exact else self.shift
        return np.concatenate([moved, np.zeros(self.constant.size)])


def with_norms(
    values: np.ndarray, parts: Parts, exact: bool, longest: float = math.inf
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Rows, and 1 / |x| of every one, part by part; those too long are shortened, one by one."""
    wide = values.astype(np.float64, copy=False)
    squares = _squares(wide, parts)
    if longest < math.inf:
        norms = np.sqrt(np.add.reduce(squares))
        long = norms > longest
        if long.any():  # those rows alone, towards zero: no rounding makes them longer again
            wide = np.array(wide)
            factor = longest * (1 - 2.0**-40) / norms[long]
            wide[long] = np.trunc(wide[long] * factor[:, None])
            values, squares = wide.astype(values.dtype), _squares(wide, parts)
    return values, [_inverse_norm(square, exact) for square in squares]


def _squares(wide: np.ndarray, parts: Parts) -> list[np.ndarray]:
    return [np.einsum("ij,ij->i", wide[:, part], wide[:, part]) for part in parts]


def checked_targets(targets: np.ndarray, n: int, arithmetic: str) -> np.ndarray:
    """Class indices (n,), or numbers (n, K) clamped to a range in which residuals are finite."""
    targets = np.asarray(targets)
    if targets.ndim not in (1, 2) or targets.shape[0] != n:
        raise InputError(f"targets have shape {targets.shape}; there are {n} rows")
    if targets.ndim == 1:
        if targets.dtype.kind not in "iu" or targets.min(initial=0) < 0:
            raise InputError("targets of one dimension must be class indices from 0")
        return targets.astype(np.intp)
    if not np.isfinite(targets).all():
        raise of_rows(InputError("targets contain NaN or infinity"))
    clamped = np.clip(targets.astype(np.float64), -LIMIT, LIMIT)
    return np.ascontiguousarray(clamped, dtype=FLOAT.get(arithmetic, np.float64))


def checked_batch(batch: np.ndarray, n: int) -> np.ndarray:
    """Row indices of a batch, each in range and named once."""
    index = np.asarray(batch)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise InputError("batch must be row indices in one dimension")
    index = index.astype(np.intp)
    # A row named twice would count twice.
    if index.size and (index[0] < 0 or index[-1] >= n or not (index[1:] > index[:-1]).all()):
        raise InputError(f"batch must be strictly increasing row indices from 0 to {n - 1}")
    return index


def indices(block: Block) -> np.ndarray:
    """Rows of a block, one by one."""
    if isinstance(block, slice):
        return np.arange(block.start, block.stop, dtype=np.intp)
    return block


def _inverse_norm(square: np.ndarray, exact: bool) -> np.ndarray:
    # A zero row contributes zero whatever its multiplier; an integer row has norm 1 or more.
    return 1.0 / np.sqrt(np.maximum(square, 1.0 if exact else 2.0**-126))
