"""Projections by a public matrix, exact in every row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.rows import Chunk, Rows
from tacit.exceptions import InputError, MissingBound
from tacit.mechanisms.additive import lattice_rows
from tacit.mechanisms.checksum import Probe, combine, integers, require_equal
from tacit.preprocessing.base import Context, Stage, require_count
from tacit.privacy.sensitivity.drift import Drift

USUAL = 40  # components, where nobody says how many


@dataclass
class Projection(Stage):
    """A stage x → xᵀM with a public matrix M of ``n_components`` columns."""

    affine: ClassVar[bool] = True
    keeps_zero: ClassVar[bool] = True

    def _set(self, matrix: np.ndarray, rows: Rows, context: Context | None) -> None:
        if rows.bound is None:
            raise MissingBound(self.name, "ClipNorm(radius) or Normalize() as a stage before it")
        # Integers in units of a power of two: rows in, rows out and coefficients folded
        # back all go through the very same matrix.
        longest = float(np.sqrt((matrix**2).sum(axis=0)).max(initial=0.0)) or 1.0
        self.unit_ = math.ldexp(1.0, math.frexp(longest)[1] - 26)
        self.matrix_ = np.trunc(matrix / self.unit_) * self.unit_
        self.norm_ = float(np.linalg.norm(self.matrix_, 2)) * (1 + 1e-9)
        self.radius_ = rows.bound
        strict = context is not None and context.strict
        self._check = ProductCheck(self.matrix_ / self.unit_) if strict else None

    def resolve(
        self, before: Sequence[Stage], *, columns: int, size: int, outputs: int, mu: float
    ) -> Self:
        if getattr(self, "n_components", None) != "auto":
            return self
        return replace(self, n_components=self.width(columns))  # type: ignore[call-arg]

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        return None if radius is None else radius * float(self._require("norm_"))

    def lipschitz(self, d: int | None = None) -> float | None:
        return self.bound(1.0, d)

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        if not incoming.l1:
            return super().drift(incoming, n, d)
        if d is None:
            raise InputError(f"{self.name} needs the number of columns")
        # Rows are cut to integers of 25 bits on the way in: a jump of a unit in every column.
        cut = incoming.rounded(math.sqrt(d) * incoming.bound * 2.0**-25)
        return super().drift(cut, n, d)

    def apply(self, chunk: Chunk) -> np.ndarray:
        """Each row the same, whatever stands beside it.

        A BLAS product depends in its last bits on the shape of the call, so one
        row more would disturb the others. Rows of norm ≤ 2^25 and columns of
        norm ≤ 2^26 in integers have partial sums ≤ 2^51: exact in any order.
        """
        columns = self._require("matrix_") / self.unit_
        rows = lattice_rows(chunk, self.radius_, bits=25)
        product = np.asarray(rows @ columns)
        if (check := getattr(self, "_check", None)) is not None:
            check(rows, product)
        return product * (self.radius_ * self.unit_ * 2.0**-25)

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return coef @ self._require("matrix_").T, intercept

    def unfold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.linalg.lstsq(self._require("matrix_"), coef.T, rcond=None)[0].T, intercept


class ProductCheck:
    """Rows times a matrix M hold if their product with secret numbers τ is that of rows with Mτ."""

    def __init__(self, columns: np.ndarray) -> None:
        self.outputs = Probe(columns.shape[1]).residues
        self.along = combine(integers(columns, "a rounded component"), self.outputs)

    def __call__(self, rows: Chunk, product: np.ndarray) -> None:
        whole = rows.astype(np.int64)  # cut to integers one by one
        found = combine(integers(product, "a projected row"), self.outputs)
        require_equal(combine(whole, self.along), found, "the projection of a row")


def components(stage: Any, most: int) -> int:
    """The ``n_components`` of a stage, ``"auto"`` being Pinto et al.'s 40, or ``most`` if fewer."""
    if stage.n_components == "auto":
        return max(1, min(USUAL, most))
    return require_count(stage, "n_components")


class Subspace(Projection):
    """A projection on ``n_components`` orthonormal directions."""

    n_components: int | str  # a word only while no plan has resolved it

    def width(self, d: int) -> int:
        if components(self, d) > d:
            raise InputError(
                f"{self.name}: n_components={self.n_components!r} must lie between 1 and {d}, "
                "the number of columns"
            )
        return components(self, d)

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if hasattr(self, "norm_"):
            return super().bound(radius, d)
        if radius is None or d is None:
            return None
        # Orthonormal but for the cut to integers, less than 2^-25 a value: `_set`.
        return radius * (1 + math.sqrt(d * self.width(d)) * 2.0**-25 + 1e-8)
