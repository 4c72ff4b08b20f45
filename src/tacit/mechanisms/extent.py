"""How far rows reach: a radius around the origin, and bounds of columns.

Both are quantiles near an end, as near as the noise allows: `tacit.mechanisms.quantile.margin` rows
are left outside on purpose, so that noise does not mistake the empty space beyond for more rows.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.mechanisms.additive import row_norms
from tacit.mechanisms.passes import Chunk, Passes, Source
from tacit.mechanisms.quantile import Floats, Method, Targets, event, margin, search
from tacit.mechanisms.release import Token

OCTAVES = 10, 4  # the grid of radii: 2^10 cells, 2^4 of them an octave, so 64 octaves
COLUMNS = Floats(digits=3)  # the grid of cells: every float of three binary digits


def radius_draws(method: Method) -> int:
    """Noise values that `noisy_radius` draws."""
    return OCTAVES[0] if method == "gaussian" else 1


def radius_rows(noise_multiplier: float, method: Method) -> int:
    """Rows from which on `noisy_radius` sees the end of them: twice what it leaves outside."""
    targets = Targets((1.0,), size=1)
    return math.ceil(2 * margin(event(method, noise_multiplier), OCTAVES[0], targets))


def noisy_radius(
    chunks: Source,
    largest: float,
    token: Token,
    *,
    size: int,
    counted: bool = True,
) -> float:
    """A radius that a few rows exceed, as few as the noise allows.

    What it costs is `tacit.mechanisms.quantile.event`: ``Gaussian`` noise z, or a ``Selection``
    that costs the same.

    Parameters
    ----------
    chunks : Passes or callable
        Gives the rows in chunks, as often as it is asked: once.
    largest : float
        Public bound on their norms.
    token : Token
        For one release of that cost: noisy search, or selection.
    size : int
        Public number of rows n, or a guess.
    counted : bool
        Whether ``size`` is the number of rows.

    Returns
    -------
    float
        τ. With probability 1 − 7·10⁻⁵, it is at most 1 + 1/16 times the largest norm (or
        ``largest``·2^-64, if that is larger), and at most 2k rows are longer, where k is
        `tacit.mechanisms.quantile.margin`: 7.2z rows by search, 10.8z by selection, and twice that
        if their number is private. With fewer than 2k rows in all, it aims at the median instead.

    Examples
    --------
    >>> from tacit.mechanisms.noise import Key
    >>> from tacit.mechanisms.release import Releases
    >>> from tacit.privacy.events import Gaussian
    >>> rows = np.repeat([[3.0, 4.0], [300.0, 400.0]], [990, 10], axis=0)
    >>> token = Releases(Key.from_seed(0), [("radius", Gaussian(2.0))]).token("radius")
    >>> noisy_radius(lambda: [rows], 1e9, token.at("example"), size=1000)
    5.25
    """
    bits, digits = OCTAVES
    grid = Floats(digits, bits, largest)
    known = size if counted else None
    spare = margin(token.event, bits, Targets((1.0,), size=known))
    targets = Targets((max(0.5, 1 - spare / size),), size=known)

    def cells(chunk: Chunk) -> np.ndarray:
        return grid.cells(row_norms(chunk))[:, None]

    asked = Passes.over(chunks).map(cells)
    (cell,) = search(asked, bits, targets, token)
    return min(grid.edge(int(cell) + 1), largest)


def bounds_draws(d: int, method: Method) -> int:
    """Noise values that `noisy_bounds` draws, for d columns."""
    return 2 * d * (COLUMNS.bits if method == "gaussian" else 1)


def bounds_rows(d: int, noise_multiplier: float, method: Method) -> int:
    """Rows from which on `noisy_bounds` sees both ends: twice what it leaves outside, on each."""
    ends = Targets((0.0,) * d + (1.0,) * d, (*range(d), *range(d)), 1)
    return math.ceil(4 * margin(event(method, noise_multiplier), COLUMNS.bits, ends))


def noisy_bounds(
    chunks: Source,
    d: int,
    token: Token,
    *,
    size: int,
    counted: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of columns about which nothing is known, each exceeded by a few rows.

    The event is that of `noisy_radius`; nothing else is. The grid has the floats of three binary
    digits, over their whole range, so it fits any unit.

    Parameters
    ----------
    chunks, token, size, counted
        As for `noisy_radius`; the rows are read twice, and a row contributes 2d votes of size one.
    d : int
        Columns.

    Returns
    -------
    low, high : ndarray of shape (d,)
        low < high. With probability 1 − 2·10⁻⁴·d, at most 2k rows lie outside on either side of a
        column, where k is 12.4·z·√d rows by search (25.5·z·d by selection), and twice that if their
        number is private; and the bounds are at most one cell, an eighth of themselves, beyond the
        column's least and largest value. With fewer than 2k rows, they aim at the median.

    Examples
    --------
    >>> from tacit.mechanisms.noise import Key
    >>> from tacit.mechanisms.release import Releases
    >>> from tacit.privacy.events import Gaussian
    >>> rows = np.stack([np.linspace(0, 1e6, 5000), np.linspace(-2e-3, -1e-3, 5000)], axis=1)
    >>> token = Releases(Key.from_seed(0), [("bounds", Gaussian(1.0))]).token("bounds")
    >>> low, high = noisy_bounds(lambda: [rows], 2, token.at("example"), size=5000)
    >>> bool((low < [4e3, -1.9e-3]).all() and (high > [9e5, -1.1e-3]).all())
    True
    """
    known = size if counted else None
    columns = (*range(d), *range(d))
    ends = Targets((0.0,) * d + (1.0,) * d, columns, known)
    spare = min(0.5, margin(token.event, COLUMNS.bits, ends) / size)
    targets = Targets((spare,) * d + (1 - spare,) * d, columns, known)

    asked = Passes.over(chunks).map(_column_cells)
    found = search(asked, COLUMNS.bits, targets, token)
    # Noise may have crossed them, or led beyond the finite numbers.
    found = np.sort(np.clip(found.reshape(2, d), *COLUMNS.finite), axis=0)
    low, high = (np.array([COLUMNS.edge(t) for t in side]) for side in (found[0], found[1] + 1))
    return low, high


def _column_cells(chunk: Chunk) -> np.ndarray:
    return COLUMNS.cells(np.ascontiguousarray(_dense(chunk)))


def _dense(chunk: Chunk) -> np.ndarray:
    return chunk.toarray() if hasattr(chunk, "toarray") else np.asarray(chunk)
