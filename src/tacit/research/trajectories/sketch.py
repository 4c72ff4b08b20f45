r"""Largest singular values of a matrix whose rows come one by one, in memory for k rows.

Two ways, which follow each other. A *sketch* sees every row once: it keeps ℓ rows B with BᵀB close
to HᵀH, by cutting the least of what it holds whenever its buffer is full (Liberty 2013, without the
shrinking). Since only positive semi-definite parts are ever cut off, for every i

    σᵢ(B)² ≤ σᵢ(H)² ≤ σᵢ(B)² + Σ (largest square cut off at a time).

A *pass* sees all rows again: from orthonormal rows V it sums Y = VHᵀH and T = YVᵀ, which is a step
of orthogonal iteration, and answers with the squares of YᵀT⁻¹Y (Nyström). That too is at most HᵀH,
and what is missing of the trace bounds how far its values are too small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh, solve_triangular

from tacit.exceptions import InputError

COLUMNS = 1 << 14  # of the rows that are worked on at a time
FAINT = 1e-7  # of the largest singular value: less is not told from rounding


@dataclass(frozen=True, eq=False)
class Directions:
    """The largest singular values of a matrix, and their right singular vectors.

    Attributes
    ----------
    values, at_most : ndarray of shape (k,)
        Falling. The true ones lie between these two.
    vectors : ndarray of shape (k, p)
        Orthonormal rows; fewer, if fewer were asked for: those of the largest values.
    square : float
        Sum of the squares of all entries of the matrix.
    rows : int
        How many it has.
    """

    values: np.ndarray
    at_most: np.ndarray
    vectors: np.ndarray
    square: float
    rows: int

    @property
    def explained(self) -> np.ndarray:
        """Part of the square that is in the first k directions, for k = 0 …, at least."""
        found = np.append(0.0, np.cumsum(self.values**2))
        return np.minimum(found / self.square, 1.0) if self.square else np.ones(len(found))

    def first(self, k: int) -> Directions:
        """The first k of them.

        Parameters
        ----------
        k : int
            How many.

        Returns
        -------
        Directions
            With the largest singular values.
        """
        return Directions(
            self.values[:k], self.at_most[:k], self.vectors[:k], self.square, self.rows
        )

    def project(self, row: np.ndarray) -> np.ndarray:
        """What a row has in these directions.

        Parameters
        ----------
        row : ndarray of shape (p,)
            A vector.

        Returns
        -------
        ndarray of shape (p,)
            Its projection on their span.
        """
        return np.asarray((self.vectors @ row.astype(self.vectors.dtype)) @ self.vectors)


class _Buffer:
    """Rows that are held until there are enough of them to work on together."""

    def __init__(self, rows: int, columns: int, dtype: np.dtype) -> None:
        self.rows = np.zeros((rows, columns), dtype)
        self.held = 0
        self.rows_read = 0
        self.square = 0.0

    def take(self, row: np.ndarray) -> bool:
        """Hold a row; whether there is no room for another one."""
        row = np.asarray(row).reshape(-1)
        if row.shape != self.rows.shape[1:]:
            raise InputError(f"a row has {row.size} entries; the first had {self.rows.shape[1]}")
        if not np.isfinite(row).all():
            raise InputError("a row holds what is no finite number")
        self.rows[self.held] = row
        kept = self.rows[self.held].astype(np.float64, copy=False)
        self.square += float(kept @ kept)
        self.held += 1
        self.rows_read += 1
        return self.held == len(self.rows)


class Sketch:
    """Sees every row of a matrix once, and keeps as many as directions are asked for, and some.

    Parameters
    ----------
    components : int
        Directions wanted.
    spare : int, optional
        Rows kept beyond those, for accuracy; by default a fifth as many, and four.
    dtype : numpy type
        Of what is kept.

    Notes
    -----
    Memory is for ``components + spare`` rows and half as many again, whatever the number of rows.

    Examples
    --------
    >>> sketch = Sketch(2)
    >>> for row in np.diag([3.0, 2.0, 1.0]):
    ...     sketch.add(row)
    >>> found = sketch.directions().first(2)
    >>> found.values, found.at_most
    (array([3., 2.]), array([3., 2.]))
    """

    def __init__(
        self, components: int, *, spare: int | None = None, dtype: type = np.float64
    ) -> None:
        if components < 1:
            raise InputError(f"components={components!r} must be at least 1")
        self.components = int(components)
        self.kept = self.components + (4 + components // 5 if spare is None else int(spare))
        self.cut = 0.0
        self._dtype = np.dtype(dtype)
        self._buffer: _Buffer | None = None

    def add(self, row: np.ndarray) -> None:
        """Take in one row.

        Parameters
        ----------
        row : ndarray of shape (p,)
            A vector.
        """
        if self._buffer is None:
            self._buffer = _Buffer(self.kept + max(8, self.kept // 2), np.size(row), self._dtype)
        if self._buffer.take(row):
            squares = self._compress()
            self.cut += float(squares[self.kept]) if len(squares) > self.kept else 0.0

    def _compress(self) -> np.ndarray:
        """Turn what is held into orthogonal rows, the longest first, and keep so many.

        Returns the squares of all.
        """
        assert self._buffer is not None
        held = self._buffer.rows[: self._buffer.held]
        squares, turn = falling(_gram(held))
        turn = turn[:, : self.kept]
        for part in _columns(held):
            new = turn.T @ part.astype(np.float64, copy=False)
            part[: turn.shape[1]] = new
        self._buffer.held = turn.shape[1]
        return squares

    def directions(self) -> Directions:
        """All directions that were kept, the spare ones with less accuracy; ends the sketch.

        Returns
        -------
        Directions
            With their singular values.
        """
        if self._buffer is None:
            raise InputError("a sketch needs rows, and answers once")
        squares = self._compress()[: self.kept]  # what is cut off now takes nothing from the rest
        buffer, self._buffer = self._buffer, None
        # Whatever was cut off is at most what is missing of the sum of all squares.
        missing = min(self.cut, max(buffer.square - float(squares.sum()), 0.0))
        return _directions(squares, missing, buffer.rows[: self.kept], buffer)


class Pass:
    """Sees every row again, and makes directions better: one step of orthogonal iteration.

    Parameters
    ----------
    start : Directions
        As found before, in the same rows: the better of both upper ends is kept.

    Notes
    -----
    Memory is for twice the directions and a quarter as many rows.

    Examples
    --------
    >>> rows = np.diag([3.0, 2.0, 1.0])
    >>> start = Directions(np.ones(1), np.full(1, 9.0), np.array([[0.8, 0.6, 0.0]]), 0.0, 0)
    >>> again = Pass(start)
    >>> for row in rows:
    ...     again.add(row)
    >>> again.directions().values.round(2)
    array([2.83])
    """

    def __init__(self, start: Directions) -> None:
        self._from, self._known = start.vectors, start.at_most
        count, columns = start.vectors.shape
        self._sum = np.zeros_like(start.vectors)
        self._inner = np.zeros((count, count))
        self._buffer = _Buffer(max(8, count // 4), columns, start.vectors.dtype)

    def add(self, row: np.ndarray) -> None:
        """Take in one row."""
        if self._buffer.take(row):
            self._work()

    def _work(self) -> None:
        held = self._buffer.rows[: self._buffer.held]
        shares = np.zeros((len(self._from), len(held)))
        for mine, theirs in zip(_columns(self._from), _columns(held), strict=True):
            shares += mine @ theirs.T
        for total, theirs in zip(_columns(self._sum), _columns(held), strict=True):
            total += shares.astype(theirs.dtype) @ theirs
        self._inner += shares @ shares.T
        self._buffer.held = 0

    def directions(self) -> Directions:
        """What all rows since the start say."""
        self._work()
        # Nyström: with T = LLᵀ the rows of L⁻¹Y have the singular values. A little more on the
        # diagonal keeps T invertible, and lowers them by no more than rounding does.
        count = len(self._inner)
        shift = 2.0**-40 * float(np.trace(self._inner))
        if not shift > 0:
            raise InputError("the rows have nothing in the directions to start from")
        lower = np.linalg.cholesky(self._inner + shift * np.eye(count))
        for part in _columns(self._sum):
            part[:] = solve_triangular(lower, part.astype(np.float64, copy=False), lower=True)
        squares, turn = falling(_gram(self._sum))
        for part in _columns(self._sum):
            part[:] = turn.T @ part.astype(np.float64, copy=False)
        missing = max(self._buffer.square - float(squares.sum()), 0.0)
        found = _directions(squares, missing, self._sum, self._buffer)
        known = self._known[: len(found.at_most)]
        return replace(found, at_most=np.minimum(found.at_most, known))


def _directions(
    squares: np.ndarray, missing: float, rows: np.ndarray, buffer: _Buffer
) -> Directions:
    """From orthogonal rows with the first of these squares, made vectors in their place."""
    rank = int((squares > FAINT**2 * squares[0]).sum())
    lengths, vectors = np.sqrt(squares[:rank]), rows[:rank]
    for part in _columns(vectors):
        part /= lengths[:, None].astype(rows.dtype)
    orthonormalise(vectors)
    at_most = np.sqrt(squares[:rank] + missing)
    return Directions(lengths, at_most, vectors, buffer.square, buffer.rows_read)


def orthonormalise(vectors: np.ndarray) -> None:
    """Make rows that are nearly orthonormal so, up to rounding, in place."""
    if not len(vectors):
        return
    lower = np.linalg.cholesky(_gram(vectors))
    for part in _columns(vectors):
        part[:] = solve_triangular(lower, part.astype(np.float64, copy=False), lower=True)


def _columns(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Views of some columns at a time."""
    for start in range(0, rows.shape[1], COLUMNS):
        yield rows[:, start : start + COLUMNS]


def _gram(rows: np.ndarray) -> np.ndarray:
    total = np.zeros((len(rows), len(rows)))
    for part in _columns(rows):
        wide = part.astype(np.float64, copy=False)
        total += wide @ wide.T
    return total


def falling(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues from the largest down, none negative, and eigenvectors as columns."""
    values, vectors = eigh(gram)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]
