"""The second moment of the rows, released once so that descent needs fewer steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import eigh

from tacit.data.rows import Chunk
from tacit.mechanisms.covariance import noisy_second_moment, one_blas_thread
from tacit.preprocessing.base import (
    Context,
    NoiselessStage,
    PrivateStage,
    Stage,
    require_unmoved,
)
from tacit.privacy.events import Gaussian

# Bits of eigenvalues and eigenvectors that are left out: in the last few, one BLAS differs from
# another, and steps would.
DROPPED = 26
ALONE = 32  # columns; for so few OpenBLAS asks no other threads for help
MOST_COLUMNS = 256  # from 500 on, d² numbers take as long as the steps that they save


@dataclass
class PrivatePrecondition(PrivateStage):
    """Release the second moment of the rows, which steps are divided by; rows stay as they are.

    Descent learns along a direction as fast as the rows vary along it, so that steps which are
    stable along the first are slow along the others: it takes a hundred of them. With the second
    moment M at hand, `tacit.trainers.DPGD` takes preconditioned steps (κM + I/η)⁻¹g instead of ηg
    (`tacit.trainers.precondition`), and twenty are enough. Gradients have the noise that they
    would have without it.

    Rows are shortened to the norm of a typical one, as stages before have shown it, and Σxxᵀ is
    released with symmetric Gaussian noise E (Dwork, Talwar, Thakurta & Zhang 2014, Algorithm 1;
    `tacit.mechanisms.covariance`). What lies below the norm of E, σ√(2d), is noise and
    left out; an eigenvalue l above it is where noise has put one of (l + √(l² − 2dσ²))/2 (Benaych-
    Georges & Nadakuditi 2011, Theorem 2.1, for the Gaussian orthogonal ensemble).

    Put it last. Where its columns are too many, rows have moved, or the trainer has no use for it,
    a plan leaves it out.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows(np.tile([[0.6, 0.0], [0.0, 0.1]], (5000, 1)), bound=1.0)
    >>> stage = PrivatePrecondition(noise_multiplier=1.0).fit(rows)
    >>> stage.values_.round(1)
    array([0. , 0.2])
    """

    affine: ClassVar[bool] = True
    keeps_zero: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True

    def expand(
        self,
        before: Sequence[Stage],
        *,
        columns: int,
        size: int,
        mu: float,
        intercept: bool,
        takes_moment: bool,
    ) -> tuple[tuple[Stage, ...], str]:
        if not takes_moment or any(isinstance(stage, NoiselessStage) for stage in before):
            return (), ""  # nobody would follow it; noise follows the weights where rows have moved
        if any(getattr(stage, "layout", None) is not None for stage in before):
            return (), ""  # steps over shapes take less time than the moment (docs/decisions/0051)
        d = columns
        for stage in before:
            d = stage.width(d)
        if d > MOST_COLUMNS:
            return (), (
                f"{self.name} is left out: the second moment of {d} columns takes longer than the "
                "steps that it saves."
            )
        return (self,), ""

    def event(self, noise_multiplier: float) -> Gaussian:
        return Gaussian(noise_multiplier)

    def draws(self, d: int) -> int:
        return d * (d + 1) // 2

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        return radius

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        return radius

    def moment_noise(self, noise_multiplier: float | None, size: int, d: int) -> float:
        if noise_multiplier is None:
            return float(self._require("noise_"))
        return noise_multiplier * math.sqrt(2 * d) / size

    @property
    def moment(self) -> tuple[np.ndarray, np.ndarray]:
        return self._require("values_"), self._require("vectors_")

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, bound, context = self._prepare(rows, context)
        require_unmoved(self, context.drift)
        radius = bound if context.norm is None else min(bound, context.norm)
        token = context.release("precondition")
        total = noisy_second_moment(
            rows.pending(),
            rows.d,
            radius,
            token,
            size=context.size,
            strict=context.strict,
        )
        self.noise_ = self.moment_noise(token.noise_multiplier, context.size, rows.d)
        noise = self.noise_ * radius**2
        with one_blas_thread(rows.d > ALONE):
            values, vectors = eigh(total / context.size, overwrite_a=True, check_finite=False)
        clear = values > noise
        values = values[clear]
        values = (values + np.sqrt(values**2 - noise**2)) / 2
        self.values_ = _rounded(values, np.spacing(noise) * 2.0**DROPPED)
        self.vectors_ = _rounded(vectors[:, clear], 2.0 ** (DROPPED - 52))
        return self

    def apply(self, chunk: Chunk) -> Chunk:
        self._require("values_")
        return chunk

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return coef, intercept

    def unfold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return coef, intercept

    def note(self) -> str:
        return "the second moment of the rows was released with Gaussian noise; steps follow it"


def _rounded(numbers: np.ndarray, unit: float) -> np.ndarray:
    return np.rint(numbers / unit) * unit
