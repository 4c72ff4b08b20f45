"""Eigenvalues of the rows: rank, effective rank, gaps and tails."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import eigh

from tacit.diagnostics.base import NotReleasable
from tacit.diagnostics.moments import Moments


@dataclass(frozen=True, eq=False)
class Spectrum(NotReleasable):
    """Eigenvalues λ₁ ≥ λ₂ ≥ … of the second moment XᵀX/n, or of the covariance.

    Attributes
    ----------
    eigenvalues : ndarray of shape (d,)
    rank : int
        Of the rows: how many eigenvalues exceed λ₁·max(n, d)·2⁻⁵². Directions in which rows have
        less than some 10⁻⁵ of their largest extent are not told from rounding.
    effective_rank : float
        (Σλ)²/Σλ²: k if k eigenvalues are equal and the others zero.
    entropy_rank : float
        e to the entropy of λ/Σλ (Roy & Vetterli 2007): likewise, but heavier tails count for more.
    intrinsic_dimension : float
        Σλ/λ₁.
    centred : bool
        Whether the mean was subtracted.
    n : int
        Number of rows.
    vectors : ndarray of shape (d, d)
        Eigenvectors, as columns.
    """

    n: int
    eigenvalues: np.ndarray
    rank: int
    effective_rank: float
    entropy_rank: float
    intrinsic_dimension: float
    centred: bool
    vectors: np.ndarray = field(repr=False, metadata={"hidden": True})

    @property
    def gaps(self) -> np.ndarray:
        """λ_k − λ_{k+1} for k = 1 … d, the last one down to zero."""
        return -np.diff(np.append(self.eigenvalues, 0.0))

    @property
    def tails(self) -> np.ndarray:
        """Sum of all eigenvalues behind the first k, for k = 0 … d."""
        return np.append(np.cumsum(self.eigenvalues[::-1])[::-1], 0.0)

    @property
    def explained(self) -> np.ndarray:
        """Part of the sum in the first k, for k = 0 … d."""
        whole = self.tails[0]
        return 1 - self.tails / whole if whole else np.ones(len(self.eigenvalues) + 1)


def spectrum(data: Any, *, centred: bool = False) -> Spectrum:
    """Spectrum of rows, or of their `Moments`.

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d), or Moments
        Private rows.
    centred : bool
        Whether the mean is subtracted.

    Returns
    -------
    Spectrum
        Not releasable.

    Examples
    --------
    >>> found = spectrum([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]] * 5)
    >>> found.rank, round(found.effective_rank, 6), found.eigenvalues
    (2, 2.0, array([0.5, 0.5, 0. ]))
    """
    moments = data if isinstance(data, Moments) else Moments.of(data)
    values, vectors = eigh(moments.matrix(centred=centred))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    # What rounding leaves of zero: of the sums, whether or not a mean was taken off afterwards.
    size = float(np.trace(moments.second)) / moments.n if centred else float(values[0])
    floor = size * max(moments.n, len(values)) * 2.0**-52
    values[values <= floor] = 0.0
    whole = float(values.sum())
    parts = values[values > 0] / whole if whole else np.ones(0)
    return Spectrum(
        n=moments.n,
        eigenvalues=values,
        rank=len(parts),
        effective_rank=float(1 / (parts**2).sum()) if len(parts) else 0.0,
        entropy_rank=math.exp(-float((parts * np.log(parts)).sum())) if len(parts) else 0.0,
        intrinsic_dimension=float(whole / values[0]) if len(parts) else 0.0,
        centred=centred,
        vectors=vectors,
    )
