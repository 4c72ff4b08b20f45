"""How many components of the public rows to keep: from public facts alone.

Fewer components bring less noise, more of them lose less: Theorem 1 of Pinto et al. 2024 has
√k/(n·ε) against ξ, the part of the classifier that lies outside of the components. Along a
component that holds the share s of the rows' energy, a row is of size √s, and what it says of its
class is less where s is small. So n clipped gradients add up to about n·s^(1/POWER) along it, while
the noise of a whole run is √K/μ for K columns of scores, in the same units. A component is worth
its noise if

    s > NOISE·(√K/(n·μ))^POWER,

and `Spectrum.choose` takes the k that is least in lost(k) + k·NOISE·(√K/(n·μ))^POWER, lost(k)
being the energy outside of the first k. Both constants were fitted to image features
(``docs/decisions/0018-public-rows.md``); the theorem's own √k, with a constant of its own, was
worse by up to four points of accuracy.

*Energy is measured on other rows.* Components of one half of the public rows are judged by the
other half. What a small sample got wrong counts as lost: the role of the eigengap in the theorem's
number of public rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.data.rows import Rows
from tacit.preprocessing.base import densify

NOISE, POWER = 0.14, 0.75
NOTHING = 1e-12  # of the largest eigenvalue


def rank(values: np.ndarray, nothing: float = NOTHING) -> int:
    """How many of these eigenvalues, in ascending order, are more than rounding."""
    return int((values > values[-1] * nothing).sum()) if values[-1] > 0 else 0


@dataclass(frozen=True)
class Spectrum:
    """What components of public rows keep.

    Attributes
    ----------
    kept : ndarray
        Part of the energy of one half of the rows that the first k components of the other
        half keep, k = 1, 2, …; the mean of both ways.
    most : int
        Components that all rows together have.
    """

    kept: np.ndarray
    most: int

    @classmethod
    def of(cls, rows: Rows) -> Spectrum:
        """The spectrum of public rows, every other one being in the first half.

        Examples
        --------
        >>> from tacit.data.rows import as_rows
        >>> found = Spectrum.of(as_rows([[2.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
        >>> found.kept.tolist(), found.most
        ([0.9], 2)
        """
        moments = np.zeros((2, rows.d, rows.d))
        for span, chunk in rows.chunks():
            dense = densify(chunk)
            for half in (0, 1):
                part = dense[(half + span.start) % 2 :: 2]
                moments[half] += part.T @ part
        count, kept = rows.d, []
        for own, other in (moments, moments[::-1]):
            values, vectors = np.linalg.eigh(own)
            count = min(count, rank(values))
            along = np.einsum("ij,ij->j", vectors, other @ vectors)[::-1]
            kept.append(np.cumsum(along) / max(float(np.trace(other)), 1e-300))
        both = np.minimum(np.mean(kept, axis=0), 1.0)
        # More strictly than where they are fitted: what is chosen must be there.
        return cls(both[:count], rank(np.linalg.eigvalsh(moments.sum(axis=0)), 100 * NOTHING))

    def choose(self, *, size: int, outputs: int, mu: float) -> int:
        """The number of components for which what is lost and what noise adds are least together.

        Parameters
        ----------
        size : int
            Number of private rows, or the public stand-in for it.
        outputs : int
            Columns of scores, K.
        mu : float
            Gaussian budget left for training, per unit of sensitivity.
        """
        worth = NOISE * (math.sqrt(outputs) / (size * mu)) ** POWER
        k = np.arange(1, len(self.kept) + 1)
        best = int(np.argmin(1 - self.kept + worth * k)) + 1 if len(k) else 1
        # If noise outweighs none of those that half of the rows have, all rows may have more.
        return best if best < len(k) else max(self.most, 1)
