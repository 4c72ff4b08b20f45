"""Bounds of columns about which nothing is known, or something: their middle, then their ends.

A column may hold shares of one, birth years or seconds since 1970. Ends that were searched among
the floats, which are dense near zero, would be far off where values lie close together and far
from zero: 1955 to 1990 became 1920 to 2048. So the median is searched first, among floats of 16
binary digits, for a small part of the budget: any place within the column will do. The ends are
then searched among the floats of three binary digits *around it*: they err by an eighth of their
distance from the middle, whatever the unit and wherever zero is.

An end is a quantile as near to it as the noise allows: some rows are left outside on purpose, so
that noise does not mistake the empty space beyond for more rows. Rows without a value (NaN) have
no vote; how many have one is released first where anybody may have none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tacit.mechanisms.passes import Chunk, Passes, Source
from tacit.mechanisms.quantile import (
    DEVIATIONS,
    GAP,
    UP,
    VOTE,
    Floats,
    Method,
    Targets,
    event,
    margin,
    search,
)
from tacit.mechanisms.release import BoundedSum, Token
from tacit.privacy.events import Selection

MIDDLES = Floats(digits=16)
ENDS = Floats(digits=3)
MIDDLE, PRESENT = 0.12, 0.12  # parts of the budget, for medians and for how many have a value
FARTHEST = sys.float_info.max
CLOSEST = 2.0**-20  # of themselves; nearer bounds are moved apart

Known = Sequence[tuple[float | None, float | None]]


def bounds_draws(d: int, method: Method = "gaussian", *, gaps: bool = False) -> int:
    """Noise values that `noisy_bounds` draws, for d columns without public bounds."""
    if method != "gaussian":
        return 2 * d
    return d * (gaps + MIDDLES.bits + 2 * ENDS.bits)


def bounds_rows(
    d: int, noise_multiplier: float, method: Method = "gaussian", *, gaps: bool = False
) -> int:
    """Rows from which on `noisy_bounds` sees both ends: twice what it leaves outside, on each."""
    if method != "gaussian":
        ends = Targets((0.0,) * d + (1.0,) * d, (*range(d), *range(d)), 1)
        return math.ceil(4 * margin(event(method, noise_multiplier), MIDDLES.bits, ends))
    shares = _Shares.of(gaps=gaps)
    spare = shares.spare(noise_multiplier, d, 2 * d)
    middle = noise_multiplier / math.sqrt(shares.middle) * math.sqrt(MIDDLES.bits * d) / 2
    return math.ceil(max(4 * spare, 2 * DEVIATIONS * middle))


def bounds_spare(d: int, noise_multiplier: float, *, gaps: bool = False) -> float:
    """Rows that `noisy_bounds` leaves outside on purpose, on each side of each of d columns."""
    return _Shares.of(gaps=gaps).spare(noise_multiplier, d, 2 * d)


@dataclass(frozen=True)
class _Shares:
    """How one release is divided, by squared noise."""

    present: float
    middle: float
    ends: float

    @classmethod
    def of(cls, *, gaps: bool) -> _Shares:
        present = PRESENT * gaps
        return cls(present, MIDDLE, 1 - MIDDLE - present)

    def spare(self, noise_multiplier: float, d: int, ends: int) -> float:
        """Rows left outside on purpose, that noise may mistake for others with chance 5e-5."""
        votes = noise_multiplier * math.sqrt(ENDS.bits * ends / self.ends)
        known = noise_multiplier * math.sqrt(d / self.present) if self.present else 0.0
        return DEVIATIONS * math.hypot(votes, known) / 2


def noisy_bounds(
    chunks: Source,
    d: int,
    token: Token,
    *,
    size: int,
    counted: bool = True,
    known: Known | None = None,
    gaps: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of columns, each exceeded by a few rows, wherever the columns lie.

    What it costs is `tacit.mechanisms.quantile.event`: ``Gaussian`` noise z, or a ``Selection``
    that costs the same.

    Parameters
    ----------
    chunks : Passes or callable
        Gives the rows in chunks (rows, d), as often as it is asked.
    d : int
        Columns.
    token : Token
        For one release of that cost. A row contributes a vote for every column and end.
    size : int
        Public number of rows n, or a guess.
    counted : bool
        Whether ``size`` is the number of rows.
    known : sequence of (low, high), optional
        Public bounds, None where there are none. An end is searched behind its public bound too
        if the other is public as well; if only one is public, it stands.
    gaps : bool
        Whether rows may have no value in a column, NaN.

    Returns
    -------
    low, high : ndarray of shape (d,)
        low < high, within what is public. With probability 1 − 2·10⁻⁴·d, at most 2k rows lie
        outside on either side of a column, where k is 13.3·z·√d rows by search (some more where
        rows may have no value or their number is private, 34·z·d by selection), and the bounds are
        at most an eighth of their distance from the median beyond the column's least and largest
        value. With fewer than 4k rows, there is nothing to be seen.

    Examples
    --------
    >>> from tacit.mechanisms.noise import Key
    >>> from tacit.mechanisms.release import Releases
    >>> from tacit.privacy.events import Gaussian
    >>> rows = np.stack([np.linspace(0, 1e6, 5000), np.linspace(1955, 1990, 5000)], axis=1)
    >>> token = Releases(Key.from_seed(0), [("bounds", Gaussian(1.0))]).token("bounds")
    >>> low, high = noisy_bounds(lambda: [rows], 2, token.at("example"), size=5000)
    >>> [(round(a), round(b)) for a, b in zip(low.tolist(), high.tolist())]
    [(-25924, 1022652), (1954, 1990)]
    """
    known = [(None, None)] * d if known is None else list(known)
    passes = Passes.over(chunks)
    if isinstance(token.event, Selection):
        return _selected(passes, token, size, known, counted=counted)
    shares = _Shares.of(gaps=gaps or not counted)
    present = np.full(d, float(size))
    if shares.present:
        present = _present(passes, d, token.part(shares.present), size if counted else None, size)
    low = np.array([-math.inf if a is None else a for a, _ in known])
    high = np.array([math.inf if b is None else b for _, b in known])
    middles = passes.map(partial(_cells, grid=MIDDLES, low=low, high=high, middle=np.zeros(d)))
    every = Targets((0.5,) * d, tuple(range(d)))
    places = search(middles, MIDDLES.bits, every, token.part(shares.middle))
    middle = np.array([MIDDLES.edge(t) for t in np.clip(places, *MIDDLES.finite)])
    middle = np.clip(middle, np.maximum(low, -FARTHEST), np.minimum(high, FARTHEST))

    searched = [(j, 0) for j, (a, b) in enumerate(known) if a is None or b is not None]
    searched += [(j, 1) for j, (a, b) in enumerate(known) if b is None or a is not None]
    columns = tuple(j for j, _ in searched)
    spare = shares.spare(token.noise_multiplier, d, len(searched))
    left = np.minimum(0.5, spare / present)[list(columns)]
    sides = np.array([side for _, side in searched])
    fractions = np.where(sides, 1 - left, left)
    targets = Targets(tuple(fractions.tolist()), columns, tuple(present[list(columns)].tolist()))
    offsets = passes.map(partial(_cells, grid=ENDS, low=low, high=high, middle=middle))
    found = np.clip(search(offsets, ENDS.bits, targets, token.part(shares.ends)), *ENDS.finite)
    cells = {end: int(t) for end, t in zip(searched, found, strict=True)}
    for j in range(d):
        at = sorted(cells[j, side] for side in (0, 1) if (j, side) in cells)  # noise may cross them
        if (j, 0) in cells:
            low[j] = max(low[j], float(middle[j]) + ENDS.edge(at[0]))
        if (j, 1) in cells:
            high[j] = min(high[j], float(middle[j]) + ENDS.edge(at[-1] + 1))
    return _apart(low, high, known)


def noisy_histogram(
    chunks: Source, low: np.ndarray, high: np.ndarray, cells: int, token: Token
) -> np.ndarray:
    """How many rows lie in cells of one width between bounds, in every column, through noise.

    Parameters
    ----------
    chunks : Passes or callable
        Gives the rows in chunks (rows, d), once; NaN has no vote.
    low, high : ndarray of shape (d,)
        Public bounds, or bounds that were released; values beyond are in the first or last cell.
    cells : int
        Of each column.
    token : Token
        For one Gaussian release. A row contributes one vote for every column, of norm √d.

    Returns
    -------
    ndarray of shape (d, cells)
        Noisy counts, of deviation z·√d each.

    Examples
    --------
    >>> from tacit.mechanisms.noise import Key
    >>> from tacit.mechanisms.release import Releases
    >>> from tacit.privacy.events import Gaussian
    >>> token = Releases(Key.from_seed(0), [("cells", Gaussian(1.0))]).token("cells").at("example")
    >>> rows = np.linspace(0, 1, 4000)[:, None]
    >>> noisy_histogram([rows], np.zeros(1), np.ones(1), 4, token).round(-2)
    array([[1000., 1000., 1000., 1000.]])
    """
    d = len(low)
    summary = partial(_in_cells, low=low, high=high, cells=cells)
    counts = Passes.over(chunks).merged(summary, np.zeros((d, cells), dtype=np.int64))
    norm = math.sqrt(d) * UP
    return token.gaussian(BoundedSum(counts * VOTE, 1 / VOTE, norm, norm * UP, "votes"))


def _present(passes: Passes, d: int, token: Token, known: int | None, size: int) -> np.ndarray:
    """About how many rows have a value in each column: at least one."""
    seen = passes.merged(_having, np.zeros(2 * d, dtype=np.int64)).reshape(2, d)
    votes = seen[0] - seen[1] if known is not None else seen[0]
    norm = math.sqrt(d) * UP
    noisy = token.gaussian(BoundedSum(votes * VOTE, 1 / VOTE, norm, norm * UP, "votes"))
    if known is not None:
        noisy = (known + noisy) / 2
    return np.clip(noisy, 1.0, None if known is None else float(size))


def _having(chunk: Chunk) -> np.ndarray:
    gone = np.isnan(_dense(chunk)).sum(axis=0)
    return np.concatenate([len(chunk) - gone, gone])


def _in_cells(chunk: Chunk, low: np.ndarray, high: np.ndarray, cells: int) -> np.ndarray:
    d, values = len(low), _dense(chunk)
    with np.errstate(over="ignore", invalid="ignore"):
        part = (np.clip(values, low, high) - low) / (high - low) * cells
    here = ~np.isnan(values)
    place = np.clip(np.nan_to_num(part), 0, cells - 1).astype(np.int64) + np.arange(d) * cells
    return np.bincount(place[here], minlength=d * cells).reshape(d, cells)


def _cells(
    chunk: Chunk, grid: Floats, low: np.ndarray, high: np.ndarray, middle: np.ndarray
) -> np.ndarray:
    values = _dense(chunk)
    gone = np.isnan(values)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.clip(values, low, high) - middle
    return np.where(gone, GAP, grid.cells(np.ascontiguousarray(values)))


def _selected(
    passes: Passes, token: Token, size: int, known: Known, *, counted: bool
) -> tuple[np.ndarray, np.ndarray]:
    """By one selection, which cannot be divided: among floats of many digits."""
    d, rows = len(known), size if counted else None
    columns = (*range(d), *range(d))
    ends = Targets((0.0,) * d + (1.0,) * d, columns, rows)
    spare = min(0.5, margin(token.event, MIDDLES.bits, ends) / size)
    targets = Targets((spare,) * d + (1 - spare,) * d, columns, rows)
    found = search(passes.map(_plain_cells), MIDDLES.bits, targets, token)
    found = np.sort(np.clip(found.reshape(2, d), *MIDDLES.finite), axis=0)
    low, high = (np.array([MIDDLES.edge(t) for t in side]) for side in (found[0], found[1] + 1))
    return _apart(low, high, known)


def _plain_cells(chunk: Chunk) -> np.ndarray:
    return MIDDLES.cells(np.ascontiguousarray(_dense(chunk)))


def _apart(low: np.ndarray, high: np.ndarray, known: Known) -> tuple[np.ndarray, np.ndarray]:
    """Bounds that are finite and some way apart, whatever noise has led to."""
    for j, (bottom, top) in enumerate(known):
        a, b = (min(max(float(x[j]), -FARTHEST), FARTHEST) for x in (low, high))
        least = max(max(abs(a), abs(b)) * CLOSEST, 4 * sys.float_info.min)
        if not b - a >= least:
            if bottom is not None and top is not None:
                a, b = bottom, top
            a = max(a - least * (bottom is None), -FARTHEST)
            b = min(b + least * (top is None), FARTHEST)
        if b - a == math.inf:
            a, b = a / 2, b / 2
        low[j], high[j] = a, b
    return low, high


def _dense(chunk: Chunk) -> np.ndarray:
    return chunk.toarray() if hasattr(chunk, "toarray") else np.asarray(chunk)
