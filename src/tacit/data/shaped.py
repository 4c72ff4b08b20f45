"""Rows whose columns are shapes: of the many weights that a column has, a row meets one or two.

A number between two knots has the fraction f of the way to the second one: it counts 1 - f for the
weight of the first and f for that of the second. A category counts 1 for its own weight. So a row
is an index and a fraction for every such column, beside straight columns of plain numbers, and its
dense expansion, with a column for every weight, need never be made. Fractions are multiples of
2**-15, so that both weights are exact, and their sum is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit.exceptions import InputError

ONE = 1 << 15  # what a fraction of one is
GAP = 0xFFFF  # index of a cell that meets no weight at all


@dataclass(frozen=True)
class Layout:
    """Where the columns of a row's expansion lie: shape after shape, then straight columns.

    Attributes
    ----------
    widths : tuple of int
        Weights of every shaped column: its knots, or its categories, at least one.
    straight : int
        Columns of plain numbers, which come last.
    """

    widths: tuple[int, ...]
    straight: int = 0

    def __post_init__(self) -> None:
        if not all(0 < width < GAP for width in self.widths) or self.straight < 0:
            raise InputError(f"a shaped column has 1 to {GAP - 1} weights")

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where every shape begins, and where the straight columns do."""
        return np.concatenate([[0], np.cumsum(np.array(self.widths, dtype=np.int64))])

    @property
    def d(self) -> int:
        """Columns of the expansion."""
        return int(self.offsets[-1]) + self.straight


@dataclass(frozen=True)
class ShapedChunk:
    """Some rows in that layout. Whoever does not know it takes the expansion, dense or sparse.

    Attributes
    ----------
    layout : Layout
        Of all rows alike, and public.
    index : ndarray of uint16, shape (n, shapes)
        The weight that a row meets in every shape: the lower one of two neighbours. `GAP` for none.
    fraction : ndarray of uint16, shape (n, shapes)
        What the next weight counts, in units of 1 / `ONE`, at most `ONE`; the lower one counts the
        rest. 0 where there is no next weight.
    straight : ndarray of float64, shape (n, straight)
        Plain numbers.

    Examples
    --------
    >>> chunk = ShapedChunk.of(Layout((3, 2)), [[1, 0], [0, GAP]], [[0.25, 0.0], [1.0, 0.0]])
    >>> chunk.toarray()
    array([[0.  , 0.75, 0.25, 1.  , 0.  ],
           [0.  , 1.  , 0.  , 0.  , 0.  ]])
    """

    layout: Layout
    index: np.ndarray
    fraction: np.ndarray
    straight: np.ndarray

    def __post_init__(self) -> None:
        n, shapes = len(self.index), len(self.layout.widths)
        if self.index.shape != (n, shapes) or self.fraction.shape != (n, shapes):
            raise InputError(f"index and fraction must have {shapes} columns")
        if self.index.dtype != np.uint16 or self.fraction.dtype != np.uint16:
            raise InputError("index and fraction must be of type uint16")
        if self.straight.shape != (n, self.layout.straight):
            raise InputError(f"there must be {self.layout.straight} straight columns")
        last = np.array(self.layout.widths, dtype=np.uint16) - 1
        inside = self.index <= last
        inside &= (self.fraction == 0) | ((self.index < last) & (self.fraction <= ONE))
        if not (inside | ((self.index == GAP) & (self.fraction == 0))).all():
            raise InputError("an index or a fraction is outside its shape")

    @classmethod
    def of(cls, layout: Layout, index: Any, fraction: Any, straight: Any = None) -> ShapedChunk:
        """Rows of fractions in [0, 1], rounded to multiples of 1 / `ONE`.

        Parameters
        ----------
        layout : Layout
            Of all rows alike.
        index : array of int, shape (n, shapes)
            As `ShapedChunk.index`.
        fraction : array of shape (n, shapes)
            What the next weight counts, between 0 and 1.
        straight : array of shape (n, straight), optional
            Plain numbers.

        Returns
        -------
        ShapedChunk
            Whose pairs of weights sum to one.
        """
        found = np.ascontiguousarray(index, dtype=np.uint16)
        part = np.rint(np.asarray(fraction, dtype=np.float64) * ONE).astype(np.uint16)
        given = np.empty((len(found), 0)) if straight is None else straight
        return cls(layout, found, part, np.ascontiguousarray(given, dtype=np.float64))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of the expansion."""
        return len(self.index), self.layout.d

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: Any) -> ShapedChunk:
        """Some of the rows, by a slice, an index or a mask."""
        return ShapedChunk(self.layout, self.index[rows], self.fraction[rows], self.straight[rows])

    def tocsr(self) -> sp.csr_array:
        """The expansion, sparse.

        Returns
        -------
        csr_array of shape (n, d)
            Of float64; entries of a row in order, none of them zero.
        """
        upper = self.fraction / ONE
        lower = np.where(self.index == GAP, 0.0, 1.0) - upper
        return expanded(self.layout, self.index, lower, upper, self.straight)

    def toarray(self) -> np.ndarray:
        """The expansion, dense.

        Returns
        -------
        ndarray of shape (n, d)
            Of float64.
        """
        return self.tocsr().toarray()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = self.toarray()
        return found if dtype is None else found.astype(dtype, copy=False)


def expanded(
    layout: Layout, index: np.ndarray, lower: np.ndarray, upper: np.ndarray, straight: np.ndarray
) -> sp.csr_array:
    """Sparse rows of both weights of every shape, beside straight columns, in whatever units."""
    n, shapes = index.shape
    width = 2 * shapes + straight.shape[1]
    first = layout.offsets[:-1] + index
    offset = int(layout.offsets[-1])
    columns = np.empty((n, width), dtype=np.int64)
    values = np.empty((n, width))
    columns[:, : 2 * shapes : 2], columns[:, 1 : 2 * shapes : 2] = first, first + 1
    columns[:, 2 * shapes :] = offset + np.arange(straight.shape[1])
    values[:, : 2 * shapes : 2], values[:, 1 : 2 * shapes : 2] = lower, upper
    values[:, 2 * shapes :] = straight
    kept = values != 0
    ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    found = (values[kept], columns[kept].astype(np.int32), ends.astype(np.int32))
    return sp.csr_array(found, shape=(n, offset + straight.shape[1]))


def plain(chunk: Any) -> Any:
    """Rows as anybody takes them: those with shapes in their sparse expansion."""
    return chunk.tocsr() if isinstance(chunk, ShapedChunk) else chunk
