"""How far rows reach: a radius around the origin.

It is a quantile near an end, as near as the noise allows: `tacit.mechanisms.quantile.margin` rows
are left outside on purpose, so that noise does not mistake the empty space beyond for more rows.
Bounds of columns are `tacit.mechanisms.bounds`.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.mechanisms.additive import row_norms
from tacit.mechanisms.passes import Chunk, Passes, Source
from tacit.mechanisms.quantile import Floats, Method, Targets, event, margin, search
from tacit.mechanisms.release import Token

OCTAVES = 10, 4  # the grid of radii: 2^10 cells, 2^4 of them an octave, so 64 octaves


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
    >>> from tacit.mechanisms.random_streams import Key
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
