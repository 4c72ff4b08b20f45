"""Means and mean squares of columns, from one noisy sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp

from tacit.mechanisms.additive import noisy_sum, shorten
from tacit.mechanisms.passes import Chunk, Passes, Source
from tacit.mechanisms.release import Token


@dataclass(frozen=True)
class Moments:
    """Mean and mean square of every column."""

    mean: np.ndarray
    square: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        return np.maximum(self.square - self.mean**2, 0.0)


def lifted(chunks: Source, bound: float) -> Passes:
    """Rows (x, x²/R), each of norm at most √2·R, since ‖x²‖ ≤ ‖x‖²."""
    return Passes.over(chunks).map(partial(_lift, bound=bound))


def _lift(chunk: Chunk, bound: float) -> np.ndarray:
    dense = shorten(chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk), bound)
    return np.hstack([dense, dense * dense / bound])


def lifted_bound(bound: float) -> float:
    """Norm of a lifted row at most, rounding included."""
    return math.sqrt(2) * bound * (1 + 1e-12)


def noisy_moments(
    chunks: Source,
    d: int,
    bound: float,
    token: Token,
    *,
    size: int,
    drift: float = 0.0,
) -> Moments:
    """Mean and mean square of every column, from one noisy sum of the rows (x, x²/R).

    Noise in a column has standard deviation √2·R·z/``size``, times R for the square, where z is
    the token's noise multiplier. A mean square below zero is zero.

    Parameters
    ----------
    chunks : Passes, or iterable of array or csr_array
        Rows; those longer than ``bound`` are shortened to it.
    d : int
        Columns.
    bound : float
        Norm bound R of the rows.
    token : Token
        For one Gaussian release.
    size : int
        What sums are divided by: the public number of rows, or a guess.
    drift : float
        How far the lifted rows that neighbours share may have moved in all.
    """
    total = noisy_sum(lifted(chunks, bound), 2 * d, lifted_bound(bound), token, drift=drift)
    total /= size
    return Moments(total[:d], np.maximum(total[d:] * bound, 0.0))
