"""Gaps filled with means of columns, released with noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.rows import Chunk, Rows
from tacit.exceptions import InputError
from tacit.mechanisms.additive import lattice_drift, noisy_sum, shorten
from tacit.mechanisms.passes import Passes
from tacit.preprocessing.base import (
    Context,
    PrivateStage,
    around_gaps,
    block_rows,
    densify,
    require_columns,
)


@dataclass
class PrivateImpute(PrivateStage):
    """Fill missing values (NaN) with noisy means of their columns, in training and prediction.

    Observed values are clipped to the norm bound R of the rows, filled rows are
    clipped to it again. The means are public once they are released, so rows to
    predict are filled with the same ones, and may have gaps where training rows had
    none.

    Parameters
    ----------
    columns : sequence of int, optional
        Columns that may have gaps, all by default. Gaps elsewhere count as zero.
        Fewer columns take less noise in their counts.

    Notes
    -----
    *Noise.* One noisy sum gives sums and counts of c columns: of the observed values,
    gaps as zeros, and the pattern of observed values times R/√c. Either half has norm
    R at most, both together √2·R. So sums carry noise of standard deviation
    √2·z·R, counts of s = √2·z·√c, with z the noise multiplier.

    *Error.* The fill is sum·count/(count² + s²), a negative count taken as zero: the
    ratio where the count is large against its noise, and next to nothing where it is
    not. To first order it is off by √2·z·R·√(1 + c·m²/R²)/N in standard deviation,
    for the mean m of N observed values, and shrunk by the part s²/N². Without a single
    value to go by, its root mean square stays below R/√(8c) a column.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows([[0.5, np.nan], [np.nan, -0.5]] * 5000, bound=1.0, gaps=True)
    >>> stage = PrivateImpute(noise_multiplier=1.0).fit(rows)
    >>> stage.transform([[np.nan, np.nan], [0.1, np.nan]]).round(1)
    array([[ 0.5, -0.5],
           [ 0.1, -0.5]])
    """

    columns: Sequence[int] | None = None
    fills_gaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is not None and not require_columns(self):
            raise InputError("PrivateImpute(columns=[]) names no column; pass None for all of them")

    def width(self, d: int) -> int:
        require_columns(self, d)
        return d

    def draws(self, d: int) -> int:
        return 2 * len(require_columns(self, d))

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        return getattr(self, "radius_", radius)  # fitted, it brings any row into that ball

    def lipschitz(self, d: int | None = None) -> float:
        return 1.0  # rows with the same gaps get the same public fill; clipping is a projection

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, bound, context = self._prepare(rows, context)
        token = context.release("impute")
        columns = require_columns(self, rows.d)
        c, longest = len(columns), math.sqrt(2) * bound * (1 + 1e-12)
        # Gaps stay where they are between neighbours: only observed values can have moved.
        moved = context.drift.l1 if context.drift else 0.0
        drift = lattice_drift(moved, rows.n, 2 * c, longest)
        total = noisy_sum(
            lifted_rows(rows, columns, bound),
            2 * c,
            longest,
            token,
            drift=drift,
        )
        cells = math.sqrt(c) / bound
        sums, counts = total[:c], np.maximum(total[c:] * cells, 0.0)
        deviation = token.noise_multiplier * (longest + drift / 2) * cells
        self.fill_ = np.zeros(rows.d)
        self.fill_[columns] = np.clip(sums * counts / (counts**2 + deviation**2), -bound, bound)
        self.radius_ = bound
        return self

    def apply(self, chunk: Chunk) -> np.ndarray:
        fill = self._require("fill_")
        cells = _clipped(chunk, self.radius_)
        return np.asarray(shorten(np.where(np.isnan(cells), fill, cells), self.radius_))

    def note(self) -> str:
        return "missing values are filled with means of columns, released with Gaussian noise"


def _clipped(chunk: Chunk, bound: float) -> np.ndarray:
    """Observed values within the bound, gaps as they are."""
    return np.asarray(around_gaps(lambda cells: shorten(cells, bound), densify(chunk)))


def lifted_rows(rows: Rows, columns: list[int], bound: float) -> Passes:
    """Values and pattern of the columns, each of norm at most the bound."""
    return rows.passes(block_rows(rows.d)).map(partial(_lift, columns=columns, bound=bound))


def _lift(chunk: Chunk, columns: list[int], bound: float) -> np.ndarray:
    cells = _clipped(chunk, bound)[:, columns]
    gaps = np.isnan(cells)
    pattern = np.where(gaps, 0.0, bound / math.sqrt(len(columns)))
    return np.hstack([np.where(gaps, 0.0, cells), pattern])
