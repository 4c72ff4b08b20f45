"""Tables of counts with noise, and how sure one can be of sums over them.

Each unit is in one cell of each table, so c tables together have an ℓ2 norm of √c. Noise is
independent from cell to cell; what is known of the counts beside it (the number of units, sums
of some of them in a second table) makes them more exact by least squares, which is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Counts:
    """Estimated counts of one table, and the covariance of their noise.

    Attributes
    ----------
    values : ndarray of shape (m,)
        Unbiased; some may be negative.
    covariance : ndarray of shape (m, m)
        Of the noise alone: units are as many as there are.
    """

    values: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(
        cls,
        noisy: np.ndarray,
        deviation: float,
        *,
        total: int | None = None,
        sums: np.ndarray | None = None,
        noisy_sums: np.ndarray | None = None,
    ) -> Counts:
        """Counts by least squares from all that is known of them.

        Parameters
        ----------
        noisy : ndarray of shape (m,)
            Counts with noise.
        deviation : float
            Of the noise of every count, and of every one of ``noisy_sums``.
        total : int, optional
            Number of units, where it is public.
        sums : ndarray of shape (k, m), optional
            Which counts were summed up in a second table.
        noisy_sums : ndarray of shape (k,), optional
            That table, with noise.

        Returns
        -------
        Counts
            Of the least variance among all unbiased linear estimates (Gauss & Markov).

        Examples
        --------
        >>> known = Counts.of(np.array([4.0, 8.0]), 1.0, total=10)
        >>> known.values, float(known.covariance[0, 0])
        (array([3., 7.]), 0.5)
        """
        values = np.asarray(noisy, dtype=np.float64)
        covariance = deviation**2 * np.eye(len(values))
        if sums is not None and noisy_sums is not None:
            values, covariance = _observe(values, covariance, sums, noisy_sums, deviation**2)
        if total is not None:
            whole = np.ones((1, len(values)))
            values, covariance = _observe(values, covariance, whole, np.array([float(total)]), 0.0)
        return cls(values, (covariance + covariance.T) / 2)

    def gathered(self, sums: np.ndarray) -> Counts:
        """Sums of counts as counts.

        Parameters
        ----------
        sums : ndarray of shape (k, m)
            A row for each sum.

        Returns
        -------
        Counts
            k of them.
        """
        return Counts(sums @ self.values, sums @ self.covariance @ sums.T)


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
