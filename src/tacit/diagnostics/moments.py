"""Sums over rows that most diagnoses begin with: one pass, and two halves can be added up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.rows import Rows
from tacit.diagnostics.base import require_rows
from tacit.exceptions import InputError
from tacit.preprocessing.base import block_rows, densify


def blocks(rows: Rows) -> Iterator[tuple[slice, np.ndarray]]:
    """Rows in dense blocks of about 32 MB, checked to be numbers."""
    for span, chunk in rows.chunks(block_rows(rows.d)):
        block = np.ascontiguousarray(densify(chunk), dtype=np.float64)
        if not np.isfinite(block).all():
            raise InputError("rows contain NaN or infinity; fill their gaps first")
        yield span, block


@dataclass(frozen=True, eq=False)
class Moments:
    """Number, sum and second moment of rows, their longest norm and smallest entry.

    Attributes
    ----------
    n : int
        Number of rows.
    total : ndarray of shape (d,)
        Their sum.
    second : ndarray of shape (d, d)
        XᵀX.
    longest : float
        Largest norm of a row.
    least : float
        Smallest entry.
    zeros : int
        Rows of zeros.

    Examples
    --------
    >>> rows = np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]])
    >>> both = Moments.of(rows[:1]) + Moments.of(rows[1:])
    >>> both.n, both.longest, both.zeros, both.least
    (3, 5.0, 1, 0.0)
    """

    n: int
    total: np.ndarray
    second: np.ndarray  # Σxxᵀ
    longest: float
    least: float
    zeros: int

    @classmethod
    def of(cls, data: Any) -> Moments:
        """Moments of rows of any kind, in one pass.

        Parameters
        ----------
        data : Rows, array or sparse matrix, of shape (n, d)
            Private rows.

        Returns
        -------
        Moments
            Of them.
        """
        rows = require_rows(data)
        d = rows.d
        total, second = np.zeros(d), np.zeros((d, d))
        longest, least, zeros = 0.0, math.inf, 0
        for _, block in blocks(rows):
            total += block.sum(axis=0)
            second += block.T @ block
            squares = np.einsum("ij,ij->i", block, block)
            longest = max(longest, math.sqrt(float(squares.max())))
            least = min(least, float(block.min()))
            zeros += int((squares == 0).sum())
        if not math.isfinite(longest) or not np.isfinite(second).all():
            raise InputError("rows are too long for their squares to be numbers; scale them first")
        return cls(rows.n, total, second, longest, least, zeros)

    def __add__(self, other: Moments) -> Moments:
        if self.total.shape != other.total.shape:
            raise InputError("moments of rows with different columns cannot be added")
        return Moments(
            self.n + other.n,
            self.total + other.total,
            self.second + other.second,
            max(self.longest, other.longest),
            min(self.least, other.least),
            self.zeros + other.zeros,
        )

    @property
    def mean(self) -> np.ndarray:
        """Mean of the rows."""
        return self.total / self.n

    def matrix(self, *, centred: bool = False) -> np.ndarray:
        """XᵀX/n, or the covariance.

        Parameters
        ----------
        centred : bool
            Whether the mean is subtracted.

        Returns
        -------
        ndarray of shape (d, d)
            Symmetric.
        """
        moment = self.second / self.n
        return moment - np.outer(self.mean, self.mean) if centred else moment
