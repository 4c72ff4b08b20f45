r"""Sets and intervals that hold the truth with a stated probability, from noisy counts.

Split conformal prediction (Vovk, Gammerman & Shafer 2005; Lei, G'Sell, Rinaldo, Tibshirani &
Wasserman 2018): score how strange a row is, by 1 − (probability of its own class) or by the size
of its error, and take as a cutoff the ⌈c(n + 1)⌉-th smallest score of n rows that the model has not
seen. A new row scores at most that with probability c or more. Here scores are known by bins only,
and how many are in each of them with noise. With F̂(t) = F(t) + S(t) the noisy number of rows up
to an edge t, the cutoff is the first edge with

.. math:: F̂(t) ≥ c(n + 1) + m, \qquad m ≥ E \max_t S(t).

*Theorem.* If rows and the new row are exchangeable, and the noise does not depend on them, the new
row scores at most the cutoff with probability at least c, over rows, noise and the new row.

*Proof.* Fix the noise. Let F⁺ count all n + 1 rows, and t⁺ be the first edge with
F⁺(t) + S(t) ≥ c(n + 1) + m. As F⁺ ≥ F, t⁺ is not above the cutoff, and it is the same whichever of
the n + 1 rows is called new. So the new row scores at most t⁺ with probability E[F⁺(t⁺)]/(n + 1),
and F⁺(t⁺) ≥ c(n + 1) + m − S(t⁺) ≥ c(n + 1) + m − max S. Take the mean over the noise. ∎

If no edge reaches that much, everything is covered. Then F⁺ = n + 1 may be less than what the last
line says, by what −S(last) exceeds (1 − c)(n + 1) − m; the cutoff is infinite from the start where
that is less than six deviations of S(last) away.

*The mean of the maximum.* Noise of deviation τ on each of B cells, summed up cell by cell, is a
Brownian motion seen at times, and E max S ≤ √(2/π)·τ√B (Lévy). Where the number of rows is public
it is a bridge, and E max S ≤ √(π/8)·τ√B. Estimates by least squares vary less in every sum (Gauss
& Markov), so their maximum is no larger on the average (Sudakov 1971; Fernique 1975). And whatever
the covariance is, E max S ≤ √(2 log B)·max √Var S(t). The least of these is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.exceptions import InputError

MOTION, BRIDGE = math.sqrt(2 / math.pi), math.sqrt(math.pi / 8)
FAR = 6.0  # deviations


@dataclass(frozen=True)
class Scores:
    """How many rows score up to which edge, through noise.

    Attributes
    ----------
    below : ndarray of shape (B,)
        Noisy number of rows up to every edge.
    edges : ndarray of shape (B,)
        Rising; the last may be infinite.
    units : float
        n, or its estimate.
    walk : float
        τ√(cells): deviation of the noise of all cells together.
    spread : ndarray of shape (B,)
        Deviation of ``below``.
    counted : bool
        Whether n is public, and the cells were made to sum up to it.
    """

    below: np.ndarray
    edges: np.ndarray
    units: float
    walk: float
    spread: np.ndarray
    counted: bool

    @property
    def margin(self) -> float:
        """m: the mean of the largest noise is at most this."""
        path = (BRIDGE if self.counted else MOTION) * self.walk
        return min(path, math.sqrt(2 * math.log(len(self.below))) * float(self.spread.max()))

    def cutoff(self, coverage: float) -> float:
        """The least edge that a new row does not exceed with at least this probability.

        Parameters
        ----------
        coverage : float
            c, between 0 and 1.

        Returns
        -------
        float
            Infinite if rows are too few to say.

        Examples
        --------
        >>> edges = np.array([0.1, 0.5, 1.0])
        >>> exact = Scores(np.array([80.0, 95, 100]), edges, 100, 0.0, np.zeros(3), True)
        >>> exact.cutoff(0.9), exact.cutoff(0.999)
        (0.5, inf)
        """
        if not 0 < coverage < 1:
            raise InputError(f"coverage={coverage!r:.80} must lie between 0 and 1, such as 0.9")
        wanted = coverage * (self.units + 1) + self.margin
        if self.units + 1 < wanted + FAR * float(self.spread[-1]):
            return math.inf
        reached = np.flatnonzero(self.below >= wanted)
        return float(self.edges[reached[0]]) if len(reached) else math.inf
