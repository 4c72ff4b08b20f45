"""Shaped rows, multiplied by compiled loops that look up two weights for every cell.

`tacit.engine.shaped` says why the integers are exact. Straight columns and the constant are rows as
`tacit.engine.kernels.compact` keeps them; cells of shapes lie beside them, an index and a fraction
in 32 bits, those of 16 rows in a shape together, as vectors read them. Every shape has one weight
more there, always zero, which a gap meets.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.data.shaped import GAP, Layout, expanded
from tacit.engine.kernels.compact import COLUMNS, CompactStore
from tacit.engine.quantization import Weights
from tacit.engine.shaped import rounded
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
        self.cells = np.zeros((-(-n // LANES), shapes, LANES), dtype=np.uint32)
        self.one = round(1 / rounding.scale.unit)
        self.offsets = np.concatenate([[0], np.cumsum(widths + 1)])
        # Where the weight of every column of the expansion lies.
        first = self.vectors.shape[1] + np.repeat(np.arange(shapes), widths)
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
        widths = np.array(self.layout.widths, dtype=np.uint32)
        index = np.where(rows.index == GAP, widths, rows.index)
        self._set(span, index | rows.upper.astype(np.uint32) << np.uint32(16))
        self.values[span, : self._straight] = rows.straight
        self.values[span, self._straight :] = 1
        largest = np.abs(rows.straight).max(axis=1, initial=self.one)
        self.peaks[span] = largest
        self.inverse_norms[0][span] = rows.inverse_norm

    def _set(self, span: slice, cells: np.ndarray) -> None:
        """Cells (rows, shapes) of some rows, to be kept as the loops read them."""
        stop = span.start + len(cells) // LANES * LANES if span.start % LANES == 0 else span.start
        whole, rest = cells[: stop - span.start], np.arange(stop, span.stop)
        tiles = whole.reshape(-1, LANES, cells.shape[1]).transpose(0, 2, 1)
        self.cells[span.start // LANES : stop // LANES] = tiles
        self.cells[rest // LANES, :, rest % LANES] = cells[len(whole) :]

    def _get(self) -> np.ndarray:
        return self.cells.transpose(0, 2, 1).reshape(-1, self.cells.shape[1])[: self.n]

    def along(self, halves: np.ndarray) -> Residues:
        """Every row times numbers in two halves (2, d), without the loops."""
        matrix = self._expanded(np.arange(self.n))
        return SparseStore(matrix, self.shift, "exact", self.parts).along(halves)

    def inner(self, first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
        """Inner products of some rows and some others, by their expansion."""
        matrix, n = self._expanded(np.concatenate([first, second])), len(first)
        places = np.arange(2 * n)
        parts = (slice(0, matrix.shape[1]),)  # one: shapes have no others
        return SparseStore(matrix, self.shift, "exact", parts).inner(places[:n], places[n:])

    def _expanded(self, rows: np.ndarray) -> Any:
        """Some rows as a sparse matrix, before the shift."""
        cells = self.cells[rows // LANES, :, rows % LANES]
        index, upper = (cells & 0xFFFF).astype(np.uint16), (cells >> 16).astype(float)
        index[index == np.array(self.layout.widths)] = GAP
        lower = np.where(index == GAP, 0, self.one) - upper
        straight = self.values[rows, : self._straight].astype(float)
        return expanded(self.layout, index, lower, upper, straight)

    def repeat_last(self, count: int) -> None:
        super().repeat_last(count)
        last = self._get()[count - 1]
        self._set(slice(count, self.n), np.tile(last, (self.n - count, 1)))
