"""Tables of counts with noise, and how sure one can be of sums over them.

Each unit is in one cell of each table, so c tables together have an ℓ2 norm of √c. Noise is
independent from cell to cell; what is known of the counts beside it (the number of units, sums
of some of them in a second table) makes them more exact by least squares, which is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Counts(Protocol):
    """Estimated counts of one table, and the covariance of their noise.

    Attributes
    ----------
    values : ndarray of shape (m,)
        Unbiased; some may be negative.
    covariance : ndarray of shape (m, m)
        Of the noise alone: units are as many as there are.
    """

    @property
    def values(self) -> np.ndarray: ...

    @property
    def covariance(self) -> np.ndarray: ...

    def spread(self, u: np.ndarray, v: np.ndarray) -> float:
        """Covariance of the noise in two sums of counts, with these weights."""

    def gathered(self, sums: np.ndarray) -> Dense:
        """Sums of counts as counts, a row of weights for each of them."""

    def of_groups(self, groups: int, picked: int | None) -> Counts:
        """Counts of one group, or of all together, where a last cell is for nobody's."""


@dataclass(frozen=True)
class Plain:
    """Counts of a table as it was released: noise of one variance, and a known sum, if any.

    The covariance is ``own``·I − ``shared``·11ᵀ, so that tables may have any number of cells.

    Attributes
    ----------
    values : ndarray of shape (m,)
        Estimates.
    own, shared : float
        Of the covariance.
    """

    values: np.ndarray
    own: float
    shared: float

    @classmethod
    def of(cls, noisy: np.ndarray, deviation: float, *, total: int | None = None) -> Plain:
        """Counts by least squares from noisy ones and their sum.

        Parameters
        ----------
        noisy : ndarray of shape (m,)
            Counts with noise.
        deviation : float
            Of the noise of every count.
        total : int, optional
            Number of units, where it is public.

        Returns
        -------
        Plain
            Of the least variance among all unbiased linear estimates (Gauss & Markov).

        Examples
        --------
        >>> known = Plain.of(np.array([4.0, 8.0]), 1.0, total=10)
        >>> known.values, float(known.covariance[0, 0])
        (array([3., 7.]), 0.5)
        """
        values, cells = np.asarray(noisy, dtype=np.float64), len(noisy)
        if total is None:
            return cls(values, deviation**2, 0.0)
        return cls(values + (total - values.sum()) / cells, deviation**2, deviation**2 / cells)

    @property
    def covariance(self) -> np.ndarray:
        """Of the noise."""
        return self.own * np.eye(len(self.values)) - self.shared

    def spread(self, u: np.ndarray, v: np.ndarray) -> float:
        """Covariance of the noise in two sums of counts, with these weights."""
        return float(self.own * (u @ v) - self.shared * u.sum() * v.sum())

    def gathered(self, sums: np.ndarray) -> Dense:
        """Sums of counts as counts, a row of weights for each of them."""
        whole = sums.sum(axis=1)
        covariance = self.own * (sums @ sums.T) - self.shared * np.outer(whole, whole)
        return Dense(sums @ self.values, covariance)

    def of_groups(self, groups: int, picked: int | None) -> Plain:
        """Counts of one group, or of all together, where a last cell is for nobody's."""
        apart = self.values[:-1].reshape(groups, -1)
        if picked is not None:
            return Plain(apart[picked], self.own, self.shared)
        return Plain(apart.sum(axis=0), self.own * groups, self.shared * groups**2)


@dataclass(frozen=True)
class Dense:
    """Counts of which any linear combination may be known besides.

    Attributes
    ----------
    values : ndarray of shape (m,)
        Estimates.
    covariance : ndarray of shape (m, m)
        Of the noise.
    """

    values: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(
        cls,
        noisy: np.ndarray,
        deviation: float,
        sums: np.ndarray,
        noisy_sums: np.ndarray,
        *,
        total: int | None = None,
    ) -> Dense:
        """Counts by least squares from two tables, one of which has sums of the other.

        Parameters
        ----------
        noisy : ndarray of shape (m,)
            Counts with noise.
        deviation : float
            Of the noise of every count, and of every one of ``noisy_sums``.
        sums : ndarray of shape (k, m)
            Which counts were summed up in the second table.
        noisy_sums : ndarray of shape (k,)
            That table, with noise.
        total : int, optional
            Number of units, where it is public.

        Returns
        -------
        Dense
            Of the least variance among all unbiased linear estimates (Gauss & Markov).
        """
        values = np.asarray(noisy, dtype=np.float64)
        covariance = deviation**2 * np.eye(len(values))
        values, covariance = _observe(values, covariance, sums, noisy_sums, deviation**2)
        if total is not None:
            whole = np.ones((1, len(values)))
            values, covariance = _observe(values, covariance, whole, np.array([float(total)]), 0.0)
        return cls(values, (covariance + covariance.T) / 2)

    def spread(self, u: np.ndarray, v: np.ndarray) -> float:
        """Covariance of the noise in two sums of counts, with these weights."""
        return float(u @ self.covariance @ v)

    def gathered(self, sums: np.ndarray) -> Dense:
        """Sums of counts as counts, a row of weights for each of them."""
        return Dense(sums @ self.values, sums @ self.covariance @ sums.T)

    def of_groups(self, groups: int, picked: int | None) -> Dense:
        """Counts of one group, or of all together, where a last cell is for nobody's."""
        width = (len(self.values) - 1) // groups
        one = np.ones((1, groups)) if picked is None else np.eye(groups)[picked : picked + 1]
        sums = np.kron(one, np.eye(width))
        return self.gathered(np.hstack([sums, np.zeros((width, 1))]))


def _observe(
    values: np.ndarray,
    covariance: np.ndarray,
    sums: np.ndarray,
    observed: np.ndarray,
    variance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate and covariance after sums were observed, with noise of that variance."""
    spread = covariance @ sums.T
    gain = np.linalg.solve(sums @ spread + variance * np.eye(len(sums)), spread.T).T
    return values + gain @ (observed - sums @ values), covariance - gain @ spread.T
