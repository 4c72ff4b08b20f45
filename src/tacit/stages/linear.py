"""Projections by a public matrix, exact in every row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.data.rows import Chunk, Rows
from tacit.exceptions import MissingBound
from tacit.mechanisms.additive import lattice_rows
from tacit.stages.base import Stage

__all__ = ["Projection"]


@dataclass
class Projection(Stage):
    """A stage x → xᵀM with a public matrix M of ``n_components`` columns."""

    affine: ClassVar[bool] = True

    def _set(self, matrix: np.ndarray, rows: Rows) -> None:
        if rows.bound is None:
            raise MissingBound(self.name, "ClipNorm(radius) or Normalize() as a stage before it")
        # Whole numbers in units of a power of two: rows in, rows out and coefficients folded
        # back all go through the very same matrix.
        longest = float(np.sqrt((matrix**2).sum(axis=0)).max(initial=0.0)) or 1.0
        self.unit_ = math.ldexp(1.0, math.frexp(longest)[1] - 26)
        self.matrix_ = np.trunc(matrix / self.unit_) * self.unit_
        self.norm_ = float(np.linalg.norm(self.matrix_, 2)) * (1 + 1e-9)
        self.radius_ = rows.bound

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        return None if radius is None else radius * float(self._require("norm_"))

    def apply(self, chunk: Chunk) -> np.ndarray:
        """Each row the same, whatever stands beside it.

        A BLAS product depends in its last bits on the shape of the call, so one
        row more would disturb the others. Rows of norm ≤ 2^25 and columns of
        norm ≤ 2^26 in whole numbers have partial sums ≤ 2^51: exact in any order.
        """
        columns = self._require("matrix_") / self.unit_
        product = lattice_rows(chunk, self.radius_, bits=25) @ columns
        return np.asarray(product) * (self.radius_ * self.unit_ * 2.0**-25)

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return coef @ self._require("matrix_").T, intercept
