"""Shaped rows, multiplied by compiled loops that look up two weights for every cell.

`tacit.engine.shaped` says why the integers are exact. Straight columns and the constant are rows as
`tacit.engine.kernels.compact` keeps them; cells of shapes lie beside them, as places, those of 16
rows in a shape together, as vectors read them. Every shape begins with one weight more there,
always zero, which a gap meets; weights are `one` apart. A place takes as many numbers of 16 bits
as `tacit.engine.shaped.planes` says: one for twelve knots, from seventeen shapes on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.data.shaped import GAP, Layout, expanded
from tacit.engine.kernels.compact import COLUMNS, CompactStore, aligned
from tacit.engine.quantization import Weights
from tacit.engine.shaped import WIDE, planes, rounded
from tacit.engine.storage import Parts, Rounding, SparseStore
from tacit.mechanisms.checksum import Residues

__all__ = ["ShapedStore"]

LANES = 16  # rows whose cells lie together
SPARE = 33  # weights behind those of the last shape, so that whole vectors can be read


class ShapedStore(CompactStore):
    """Cells of shaped columns, beside int16 rows of straight ones, the constant and, last, a one.

    The sum of that one is the sum of multipliers, by which a shift counts. Its weight is zero.
    """

    def __init__(
        self,
        n: int,
        d: int,
        arithmetic: str,
        parts: Parts,
        longest: float = math.inf,
        *,
        layout: Layout,
        rounding: Rounding,
    ) -> None:
        self.layout, self.shift = layout, rounding.offset()
        self._straight = d - int(layout.offsets[-1])
        super().__init__(n, self._straight + 1, arithmetic, parts, longest)
        shapes, widths = len(layout.widths), np.array(layout.widths)
        self.one, count = round(1 / rounding.scale.unit), planes(layout, rounding)
        first = np.cumsum(count) - count
        # Of every plane, its shape, and what it has of a place: so much at most, behind a start.
        self._shape, self._first = np.repeat(np.arange(shapes), count), first
        self._most = np.repeat(-(-widths // count) * self.one, count)
        self._start = self._most * (np.arange(count.sum()) - first[self._shape])
        self._wide, self._number = widths > WIDE, first[widths > WIDE]
        self.cells = aligned((-(-n // LANES), int(count.sum()), LANES), np.uint16)
        self.offsets = np.concatenate([[0], np.cumsum(widths + 1)])
        # Where the weight of every column of the expansion lies.
        first = self.vectors.shape[1] + 1 + np.repeat(np.arange(shapes), widths)
        self._places = np.append(
            np.arange(int(layout.offsets[-1])) + first, np.arange(self._straight)
        )
        self.reach += -(-(int(self.offsets[-1]) + SPARE) // COLUMNS) * COLUMNS
        self.block_rows = min(self.block_rows, max(128, 350_000 // shapes))

    def operand(self, weights: Weights) -> Any:
        columns = np.zeros((len(weights.columns), self.reach), dtype=np.int16)
        columns[:, self._places] = weights.columns
        base = np.zeros(len(columns), dtype=np.int64)
        if self.shift is not None:  # integers below 2**53, of which scores take 32 bits
            base -= np.einsum("kj,j->k", weights.columns, self.shift).astype(np.int64)
        return columns, base.astype(np.int32), weights.unit

    def table(self, base: np.ndarray | None) -> Any:
        return self.vectors, self.cells, self.offsets, self.one, base

    def in_order(self, found: np.ndarray) -> np.ndarray:
        sums = found.T[self._places]
        if self.shift is not None:  # modulo 2**64
            sums -= self.shift.astype(np.int64)[:, None] * found.T[self._straight]
        return sums

    def take(
        self,
        span: slice,
        chunk: Any,
        rounding: Rounding,
        blanked: np.ndarray | None = None,
    ) -> None:
        rows = rounded(chunk, rounding, blanked)
        index = np.where(rows.index == GAP, 0, rows.index + np.int64(1))
        places = index * self.one + rows.upper.astype(np.int64)
        cells = np.clip(places[:, self._shape] - self._start, 0, self._most)
        parts = np.divmod(places[:, self._wide], self.one)
        cells[:, self._number], cells[:, self._number + 1] = parts
        self._set(span, cells)
        self.values[span, : self._straight] = rows.straight
        self.values[span, self._straight :] = 1
        largest = np.abs(rows.straight).max(axis=1, initial=self.one)
        self.peaks[span] = largest
        self.inverse_norms[0][span] = rows.inverse_norm

    def _set(self, span: slice, cells: np.ndarray) -> None:
        """Cells (rows, planes) of some rows, to be kept as the loops read them."""
        stop = span.start + len(cells) // LANES * LANES if span.start % LANES == 0 else span.start
        whole, rest = cells[: stop - span.start], np.arange(stop, span.stop)
        tiles = whole.reshape(-1, LANES, cells.shape[1]).transpose(0, 2, 1)
        self.cells[span.start // LANES : stop // LANES] = tiles
        self.cells[rest // LANES, :, rest % LANES] = cells[len(whole) :]

    def _get(self) -> np.ndarray:
        return self.cells.transpose(0, 2, 1).reshape(-1, self.cells.shape[1])[: self.n]

    def along(self, halves: np.ndarray) -> Residues:
        """Every row times numbers in two halves (2, d), without the loops."""
        matrix = self.expanded(np.arange(self.n))
        return SparseStore(matrix, self.shift, "exact", self.parts).along(halves)

    def inner(self, first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
        """Inner products of some rows and some others, by their expansion."""
        matrix, n = self.expanded(np.concatenate([first, second])), len(first)
        places = np.arange(2 * n)
        parts = (slice(0, matrix.shape[1]),)  # one: shapes have no others
        return SparseStore(matrix, self.shift, "exact", parts).inner(places[:n], places[n:])

    def expanded(self, rows: np.ndarray) -> Any:
        """Some rows as a sparse matrix, before the shift."""
        cells = self.cells[rows // LANES, :, rows % LANES]
        places = np.add.reduceat(cells, self._first, axis=1, dtype=np.int64)
        numbers = cells[:, self._number].astype(np.int64)  # which were added up once
        places[:, self._wide] += numbers * (self.one - 1)
        index = (places // self.one - 1).astype(np.uint16)  # GAP for none
        upper = (places % self.one).astype(float)
        lower = np.where(index == GAP, 0, self.one) - upper
        straight = self.values[rows, : self._straight].astype(float)
        return expanded(self.layout, index, lower, upper, straight)

    def repeat_last(self, count: int) -> None:
        super().repeat_last(count)
        last = self._get()[count - 1]
        self._set(slice(count, self.n), np.tile(last, (self.n - count, 1)))
