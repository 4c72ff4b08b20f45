r"""How tightly rows lie around their mean: Sun et al. 2024, Table 2.

The diameter is found without looking at every pair in full. A cheap upper bound on every distance,
a short product in float32, leaves few pairs, and those are measured. Two bounds serve: for rows
without negative entries ‖x − y‖² ≤ ‖x‖² + ‖y‖² − 2Σ_{j∈J} x_j·y_j for any set J of columns; for
others, with P on a few principal components and ρ the norm of what is left of a centred row,
‖x − y‖² ≤ ‖x‖² + ‖y‖² − 2⟨Px, Py⟩ + 2ρ(x)ρ(y). Farthest neighbours of far rows come first: a
pair is dropped as soon as its bound is below the largest distance found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.data.rows import Rows
from tacit.diagnostics.base import NotReleasable, require_rows
from tacit.diagnostics.moments import Moments, blocks
from tacit.diagnostics.spectrum import spectrum
from tacit.preprocessing.base import densify

SHORT = 128  # columns or components of the cheap bound
STARTS = 8  # rows far from the mean that the search begins at
BLOCK = 1024  # rows of one block
FEW = 1 << 14  # pairs of a block that are measured one by one
HELD = 700 * 2**20  # bytes of rows kept in memory; more are read again where they are needed
WORK = 1.5e12  # multiplications after which the search is given up
EQUAL = 1e-12  # relative, of squared distances: rounding


@dataclass(frozen=True, eq=False)
class Concentration(NotReleasable):
    """Distances of rows to each other and to their mean.

    Attributes
    ----------
    diameter : float
        Largest distance of two rows that was found.
    diameter_at_most : float
        An upper bound on it; the same number, unless the search was given up.
    max_distance, mean_distance, rms_distance : float
        Of the rows to their mean.
    mean_norm : float
        Norm of the mean.
    longest : float
        Largest norm of a row.
    quantiles : dict of str to float
        Of the distances to the mean.
    distances : ndarray of shape (n,)
        Of every row to the mean.
    """

    diameter: float
    diameter_at_most: float
    max_distance: float
    mean_distance: float
    rms_distance: float
    mean_norm: float
    longest: float
    quantiles: dict[str, float]
    distances: np.ndarray = field(repr=False, metadata={"hidden": True})

    @property
    def exact(self) -> bool:
        """Whether the diameter is known."""
        return self.diameter_at_most <= self.diameter * (1 + 1e-9)


def concentration(
    data: Any, *, moments: Moments | None = None, work: float = WORK
) -> Concentration:
    """Diameter, largest and mean distance to the mean (Sun et al. 2024, Table 2).

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d)
        Private rows.
    moments : Moments, optional
        Of these rows, if they are at hand.
    work : float
        Multiplications to spend on the diameter. Then `Concentration.diameter_at_most` is larger.

    Returns
    -------
    Concentration
        Not releasable.

    Examples
    --------
    >>> found = concentration([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> round(found.diameter, 4), round(found.max_distance, 4), found.exact
    (1.4142, 0.7601, True)
    """
    rows = require_rows(data)
    moments = moments or Moments.of(rows)
    mean = moments.mean
    distances = np.empty(rows.n)
    for span, block in blocks(rows):
        distances[span] = np.linalg.norm(block - mean, axis=1)
    low, high = diameter(rows, moments=moments, distances=distances, work=work)
    shown = {f"{q:g}": float(np.quantile(distances, q)) for q in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)}
    return Concentration(
        diameter=low,
        diameter_at_most=high,
        max_distance=float(distances.max()),
        mean_distance=float(distances.mean()),
        rms_distance=float(np.sqrt((distances**2).mean())),
        mean_norm=float(np.linalg.norm(mean)),
        longest=moments.longest,
        quantiles=shown,
        distances=distances,
    )


def diameter(
    data: Any,
    *,
    moments: Moments | None = None,
    distances: np.ndarray | None = None,
    work: float = math.inf,
) -> tuple[float, float]:
    """The largest distance of two rows: what was found, and what it is at most.

    The two agree, up to rounding, unless ``work`` multiplications were not enough.

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d)
        Private rows.
    moments : Moments, optional
        Of these rows, if they are at hand.
    distances : ndarray of shape (n,), optional
        Of the rows to their mean, if they are at hand.
    work : float
        Multiplications to spend.

    Returns
    -------
    found, at_most : float
        Distances.

    Examples
    --------
    >>> low, high = diameter([[0.0, 3.0], [4.0, 0.0], [1.0, 1.0]])
    >>> low, high
    (5.0, 5.0)
    """
    rows = require_rows(data)
    moments = moments or Moments.of(rows)
    fetch = _fetcher(rows)
    if distances is None:
        distances = np.concatenate(
            [np.linalg.norm(block - moments.mean, axis=1) for _, block in blocks(rows)]
        )
    search = _Search(rows, moments, distances, fetch, work)
    search.begin()
    search.every_pair()
    return search.answer()


Fetch = Callable[[int, int], np.ndarray]


def _fetcher(rows: Rows) -> Fetch:
    """Rows as float64: out of memory if they fit, read again otherwise."""

    def read(start: int, stop: int) -> np.ndarray:
        return np.asarray(densify(rows.read(start, stop)), dtype=np.float64)

    if rows.n * rows.d * 8 > HELD:
        return read
    held = np.empty((rows.n, rows.d))
    for span, block in blocks(rows):
        held[span] = block
    return lambda start, stop: held[start:stop]


class _Search:
    """The largest squared distance so far, and what is still possible."""

    def __init__(
        self,
        rows: Rows,
        moments: Moments,
        distances: np.ndarray,
        fetch: Fetch,
        work: float,
    ) -> None:
        self.n, self.d, self.fetch, self.moments = rows.n, rows.d, fetch, moments
        self.distances, self.left = distances, work
        self.best = 0.0
        self.at_most = 0.0  # of pairs that were given up
        self.positive = moments.least >= 0.0

    def answer(self) -> tuple[float, float]:
        low = math.sqrt(self.best)
        high = math.sqrt(max(self.best, self.at_most))
        # Whatever happened, no two rows are farther apart than both are from the mean.
        far = np.sort(self.distances)[-2:]
        return low, max(low, min(high, float(far.sum())))

    def begin(self) -> None:
        """Farthest rows of far rows, and theirs, a few times: a first lower bound."""
        starts = np.argsort(-self.distances, kind="stable")[:STARTS]
        for _ in range(4):
            points = np.concatenate([self.fetch(i, i + 1) for i in starts.tolist()])
            far, where = np.full(len(starts), -1.0), np.zeros(len(starts), np.int64)
            for a in range(0, self.n, BLOCK * 4):
                block = self.fetch(a, min(a + BLOCK * 4, self.n))
                gap = _squared(block, points)
                self.left -= gap.size * self.d
                row = gap.argmax(axis=0)
                value = gap[row, np.arange(len(starts))]
                better = value > far
                far[better], where[better] = value[better], a + row[better]
            ends = np.concatenate([self.fetch(i, i + 1) for i in where.tolist()])
            best = float(((ends - points) ** 2).sum(axis=1).max())
            if best <= self.best:
                return
            self.best, starts = best, where

    def every_pair(self) -> None:
        """Look at all pairs by their cheap bounds, and at what is left in full."""
        left, right = self._cheap()
        if left is None or right is None:
            return
        # float32 sums of that many products, each factor itself rounded, of rows this long.
        slack = (left.shape[1] + 8) * 2.0**-22 * self._scale()
        for a in range(0, self.n, BLOCK):
            b = min(a + BLOCK, self.n)
            for c in range(a, self.n, BLOCK * 4):
                e = min(c + BLOCK * 4, self.n)
                if self._too_near(a, b, c, e):
                    continue
                bound = left[a:b] @ right[c:e].T
                self.left -= bound.size * left.shape[1]
                enough = self.best * (1 + EQUAL) - slack
                if float(bound.max()) <= enough:
                    continue
                i, j = np.nonzero(bound > enough)
                if self.left <= 0:
                    self.at_most = max(self.at_most, float(bound.max()) + slack)
                    continue
                self._measure(a, c, i, j, (b - a, e - c))

    def _scale(self) -> float:
        size = self.moments.longest if self.positive else float(self.distances.max())
        return 4 * size**2

    def _cheap(self) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
        """Two matrices whose products are upper bounds on squared distances."""
        m = min(self.d, SHORT)
        squares = np.empty(self.n)
        short = np.empty((self.n, m + 2 + (not self.positive)), np.float32)
        if self.positive:
            chosen = np.argsort(-np.diag(self.moments.second), kind="stable")[:m]
        else:
            basis = spectrum(self.moments, centred=True).vectors[:, :m]
        for a in range(0, self.n, BLOCK * 4):
            b = min(a + BLOCK * 4, self.n)
            block = self.fetch(a, b)
            if self.positive:
                squares[a:b] = np.einsum("ij,ij->i", block, block)
                short[a:b, :m] = block[:, chosen]
            else:
                block = block - self.moments.mean
                squares[a:b] = np.einsum("ij,ij->i", block, block)
                part = block @ basis
                rest = squares[a:b] - np.einsum("ij,ij->i", part, part)
                short[a:b, :m] = part
                # A little too large, so that rounding of the basis cannot hide a distance.
                short[a:b, m] = np.sqrt(np.maximum(rest, 0.0) + 1e-12 * squares[a:b])
        if self.positive:
            far = np.sort(squares)[-2:]
            if self.n < 2 or float(far.sum()) <= self.best * (1 + EQUAL):
                return None, None  # as far apart as rows without negative entries can be
        other = short.copy()
        other[:, :m] *= -2
        if not self.positive:
            other[:, m] *= 2
        short[:, -2], short[:, -1] = 1.0, squares
        other[:, -2], other[:, -1] = squares, 1.0
        return other, short

    def _too_near(self, a: int, b: int, c: int, e: int) -> bool:
        reach = self.distances[a:b].max() + self.distances[c:e].max()
        return bool(reach**2 <= self.best * (1 + EQUAL))

    def _measure(
        self, a: int, c: int, i: np.ndarray, j: np.ndarray, shape: tuple[int, int]
    ) -> None:
        """Distances of some pairs of two blocks: pair by pair, or by a product if they are many."""
        one, other = self.fetch(a, a + shape[0]), self.fetch(c, c + shape[1])
        if len(i) <= FEW:
            self.left -= len(i) * self.d
            for s in range(0, len(i), 2048):
                gap = one[i[s : s + 2048]] - other[j[s : s + 2048]]
                self.best = max(self.best, float(np.einsum("ij,ij->i", gap, gap).max()))
            return
        rows, columns = np.unique(i), np.unique(j)
        one, other = one[rows] - self.moments.mean, other[columns] - self.moments.mean
        self.left -= len(rows) * len(columns) * self.d
        gap = _squared(one, other)
        x, y = np.unravel_index(int(gap.argmax()), gap.shape)
        self.best = max(self.best, float(((one[x] - other[y]) ** 2).sum()))


def _squared(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    gap = x @ (-2.0 * y.T)
    gap += np.einsum("ij,ij->i", x, x)[:, None]
    gap += np.einsum("ij,ij->i", y, y)
    return gap
