"""Sums of rows that are exact, and noise on the same lattice.

A row of norm at most ``bound`` becomes a vector of whole numbers of norm at most
2^BITS, so the sum over rows is an exact integer and one row moves it by at most
2^BITS: no rounding error hides in the sensitivity. The noise is an exact
discrete Gaussian on the same integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tacit.mechanisms.lattice import sigma_for
from tacit.mechanisms.noise import Stream

__all__ = ["BITS", "lattice_rows", "lattice_sum", "noisy_sum", "row_norms", "scale_rows"]

Chunk: TypeAlias = Any  # float64 ndarray or csr_array of at most 2^22 rows

BITS = 30  # n·2^30 stays below 2^63 up to eight thousand million rows


def row_norms(chunk: Chunk) -> np.ndarray:
    """Euclidean norm of every row, safe from overflow of the squares."""
    if sp.issparse(chunk):
        largest = abs(chunk).max(axis=1).toarray().reshape(-1)
        scale = np.where(largest > 0, largest, 1.0)
        scaled = scale_rows(chunk, 1.0 / scale)
        return scale * np.sqrt(scaled.multiply(scaled).sum(axis=1).reshape(-1))
    largest = np.abs(chunk).max(axis=1, initial=0.0)
    with np.errstate(over="ignore", under="ignore"):
        squares = np.einsum("ij,ij->i", chunk, chunk)
    extreme = (largest > 1e150) | ((largest < 1e-150) & (largest > 0))
    norms = np.sqrt(squares)
    if extreme.any():
        scaled = chunk[extreme] / largest[extreme, None]
        norms[extreme] = largest[extreme] * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return norms


def scale_rows(chunk: Chunk, factors: np.ndarray) -> Chunk:
    """Every row times its own factor."""
    if sp.issparse(chunk):
        scaled = chunk.copy()
        scaled.data = chunk.data * np.repeat(factors, np.diff(chunk.indptr))
        return scaled
    return chunk * factors[:, None]


def lattice_rows(chunk: Chunk, bound: float, bits: int = BITS) -> Chunk:
    """Rows in units of bound/2^bits: whole numbers (as float64), norm at most 2^bits.

    Rows longer than ``bound`` are shortened to it, never trusted. Truncation
    towards zero lengthens nothing: |trunc(v_j)| ≤ |v_j|. What remains is the
    rounding of the norm and of the products, at most (d+4)·2^-53 in relative
    terms for any order of summation; the factor below is twice that.
    """
    d = chunk.shape[1]
    safe = 1.0 - (d + 8) * 2.0**-52
    norms = row_norms(chunk)
    with np.errstate(over="ignore", divide="ignore"):
        shrink = np.minimum(1.0, bound / np.where(norms > 0, norms, 1.0)) * safe
    lattice = scale_rows(scale_rows(chunk, shrink), np.full(len(norms), 2.0**bits / bound))
    if sp.issparse(lattice):
        lattice.data = np.trunc(lattice.data)
        return lattice
    return np.trunc(lattice, out=lattice)


def lattice_sum(chunks: Iterable[Chunk], d: int, bound: float, bits: int = BITS) -> np.ndarray:
    """Exact sum of all rows, int64, in units of bound/2^bits."""
    total = np.zeros(d, dtype=np.int64)
    for chunk in chunks:
        # Fewer than 2^23 rows of norm 2^30: below 2^53, so float64 adds them exactly.
        part = np.asarray(lattice_rows(chunk, bound, bits).sum(axis=0)).reshape(-1)
        total += part.astype(np.int64)
    return total


def noisy_sum(
    chunks: Iterable[Chunk], d: int, bound: float, noise_multiplier: float, stream: Stream
) -> np.ndarray:
    """Σ rows + Gaussian noise of standard deviation ``noise_multiplier`` × ``bound``.

    The event is ``Gaussian(noise_multiplier)``: one row contributes a vector of
    norm at most ``bound``, whatever it was before.
    """
    sigma = sigma_for(noise_multiplier * 2.0**BITS)
    noisy = lattice_sum(chunks, d, bound) + stream.discrete_gaussian(sigma, d)
    return noisy.astype(np.float64) * math.ldexp(bound, -BITS)
