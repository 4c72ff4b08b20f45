"""A mean whose error grows with the diameter of the rows, not with their norm bound.

The instance-optimal estimator of Huang, Liang & Yi 2021 (their Theorem 3.3; Sun et al. 2024, Lemma
3), in three noisy steps that are one ``Gaussian`` event together:

1. *Location.* Rows are rotated by a public random Hadamard matrix, and the median of every rotated
   coordinate is found by noisy binary search. The rotation spreads what separates two rows evenly
   over all coordinates, so medians that are right up to the extent of each coordinate are, taken
   together, near the rows.
2. *Radius.* The distance from that point within which all rows lie but a few, by another search.
3. *Mean.* Rows relative to that point, clipped to that radius, summed with noise.

The rotation is exact: rows become integers, of norm at most 2^40, and a Hadamard matrix adds
and subtracts them. So on which side of an edge a rotated row lies is a matter of that row alone,
and one row contributes D votes of size one, a vector of norm √D, in the D rotated coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp

from tacit.mechanisms.additive import lattice_rows, noisy_sum
from tacit.mechanisms.extent import noisy_radius, radius_draws
from tacit.mechanisms.passes import Chunk, Passes, Source
from tacit.mechanisms.quantile import Targets, noisy_search
from tacit.mechanisms.release import Token

BITS = 40  # of a row's integers, and of the search for each coordinate
#: Parts of the squared budget: what the location takes, the radius, and the mean.
LOCATION, RADIUS = 0.5, 0.25
#: Rows that the location needs, per unit of noise and per √D: half of them are more than six
#: deviations of the rank of a median, which is z·√(2·40·D)/2.
ROWS = 57.0


@dataclass(frozen=True)
class Located:
    """A private mean, and what was found on the way; all of it is released.

    Attributes
    ----------
    mean : ndarray of shape (d,)
    location : ndarray of shape (d,)
        Where the rows are, about.
    radius : float
        The distance from it to which rows were clipped.
    deviation : float
        Standard deviation of the mean's noise, in every column.
    """

    mean: np.ndarray
    location: np.ndarray
    radius: float
    deviation: float


def instance_optimal_mean(
    chunks: Source,
    d: int,
    bound: float,
    token: Token,
    *,
    signs: np.ndarray,
    size: int,
    counted: bool = True,
) -> Located:
    """Mean of rows that may lie far from the origin, with noise in proportion to their diameter.

    Together this is one Gaussian release, whatever the rotation.

    Parameters
    ----------
    chunks : Passes or callable
        Gives the rows in chunks, as often as it is asked: six or seven times.
    d : int
        Columns.
    bound : float
        Norm bound R of the rows. It may exceed their diameter a million times; longer rows count
        as shortened to it.
    token : Token
        For one Gaussian release, of noise z in contributions of one row.
    signs : ndarray of shape (d,)
        Of the public rotation: −1 and 1 at random.
    size : int
        Public number of rows n, or a guess.
    counted : bool
        Whether ``size`` *is* the number of rows.

    Returns
    -------
    Located

    Notes
    -----
    *Guarantee.* Let Δ be the diameter of the rows, D the power of two from d on, and
    Λ = √(2 ln(2Dn²/β)). If n > 57·z·√D (`locating_rows`), then with probability 1 − 2β − 10⁻⁴ the
    location is within Λ·Δ + √D·R·2^-40 of every row, the radius is at most 1 + 1/16 times the
    largest distance from it, and the mean is off by at most

        (2z·radius·(√d + √(2 ln 1/β)) + 30z·(Λ·Δ)) / n + √D·R·2^-40.

    *Why.* A rotated coordinate of x − y, in units of ‖x − y‖/√D, exceeds √(2 ln 2/p) with
    probability p (Hoeffding 1963), so all of n² differences in D coordinates stay below Λ·Δ/√D.
    A median found is between the least and the largest rotated coordinate if its rank is off by
    less than n/2; the deviation of the rank is z·√(2·40·D)/2, and 57/2 is more than six of these
    per z·√D. The radius leaves out at most twice 4.5 deviations of its own rank, z·√(4·10)/2
    rows each. (Twice that with ``counted=False``.)

    Examples
    --------
    >>> from tacit.mechanisms.random_streams import Key
    >>> from tacit.mechanisms.release import Releases
    >>> from tacit.privacy.events import Gaussian
    >>> rows = np.array([[1e6, 1.0], [1e6, -1.0]] * 5000)
    >>> run = Releases(Key.from_seed(0), [("mean", Gaussian(3.0))])
    >>> token, signs = run.token("mean").at("noise"), run.public.signs("rotation", 0, 2)
    >>> found = instance_optimal_mean(lambda: [rows], 2, 1e7, token, signs=signs, size=10_000)
    >>> float(np.linalg.norm(found.mean - [1e6, 0.0])) < 0.02, found.radius < 4
    (True, True)
    """
    passes = Passes.over(chunks)
    location = _location(passes, d, bound, token.part(LOCATION), signs)
    around = passes.map(partial(_relative, location=location))
    radius = noisy_radius(around, 2 * bound, token.part(RADIUS), size=size, counted=counted)
    last = token.part(1 - LOCATION - RADIUS)
    total = noisy_sum(around, d, radius, last)
    return Located(location + total / size, location, radius, last.noise_multiplier * radius / size)


def locating_draws(d: int) -> int:
    """Noise values that `instance_optimal_mean` draws, for d columns."""
    return BITS * _padded(d) + radius_draws("gaussian") + d


def locating_rows(d: int, noise_multiplier: float) -> int:
    """Rows of d columns from which on `instance_optimal_mean` finds where they are.

    With fewer, medians are noise, and so is all that is found around them.

    Examples
    --------
    >>> locating_rows(64, 12.0)
    5473
    """
    return math.floor(ROWS * noise_multiplier * math.sqrt(_padded(d))) + 1


def _location(
    passes: Passes,
    d: int,
    bound: float,
    token: Token,
    signs: np.ndarray,
) -> np.ndarray:
    """Medians of the rotated coordinates, turned back. The number of rows does not enter."""
    wide = _padded(d)
    # |Hx| ≤ √D·2^40, so cells of 2^shift cover all of it.
    shift = 1 + (wide.bit_length() - 1 + 1) // 2
    reach = 1 << (BITS + shift - 1)

    def cells(chunk: Chunk) -> np.ndarray:
        whole = lattice_rows(chunk, bound, BITS)
        turned = np.zeros((whole.shape[0], wide), dtype=np.int64)
        turned[:, :d] = _dense(whole)
        turned[:, :d] *= signs
        hadamard(turned)
        turned += reach
        turned >>= shift
        return turned

    found = noisy_search(passes.map(cells), BITS, Targets((0.5,) * wide), token)
    middle = ((found.astype(np.float64) + 0.5) * 2.0**shift - reach)[None]
    hadamard(middle)
    location: np.ndarray = middle[0, :d] / wide * signs * math.ldexp(bound, -BITS)
    return location


def hadamard(rows: np.ndarray) -> None:
    """Rows times the Hadamard matrix of their width, a power of two, in place.

    In integers it is exact: a sum and a difference at a time. Norms grow by √width.

    Examples
    --------
    >>> rows = np.array([[1, 2, 3, 4]])
    >>> hadamard(rows)
    >>> rows
    array([[10, -2, -4,  0]])
    """
    n, width = rows.shape
    half = 1
    while half < width:
        pairs = rows.reshape(n, width // (2 * half), 2, half)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        difference = first - second
        first += second
        second[...] = difference
        half *= 2


def _padded(d: int) -> int:
    """The least power of two from d on."""
    return 1 << (d - 1).bit_length()


def _relative(chunk: Chunk, location: np.ndarray) -> np.ndarray:
    return _dense(chunk) - location


def _dense(chunk: Chunk) -> np.ndarray:
    return chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk)
