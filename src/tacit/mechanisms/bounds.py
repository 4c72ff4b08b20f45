"""Bounds of columns about which nothing is known, or something: middle, radius, and ends.

A column may hold shares of one, birth years or seconds since 1970. Ends that were searched among
the floats, which are dense near zero, would be far off where values lie close together and far
from zero: 1955 to 1990 became 1920 to 2048. So the median is searched first, among floats of 16
binary digits, for a small part of the budget, since any place within the column will do. Then how
far values lie from it, to a power of two: the largest such distance but for a few rows. The ends
are searched in what is left, among 128 cells of one width. All of it fits any unit.

A radius is a quantile as near to its end as the noise allows: some rows are left outside on
purpose, so that noise does not mistake the empty space beyond for more rows. Rows without a value
(NaN) have no vote; how many have one is released first where anybody may have none.
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
OCTAVES = Floats(digits=0)  # of which those of distances are the upper half
RADIUS_BITS, END_BITS = 11, 7
# Parts of the budget: how many have a value, medians, and of the rest radii; what is left is for
# the ends. They were chosen by what is outside in the end (docs/decisions/0052).
PRESENT, MIDDLE, RADIUS = 0.1, 0.1, 0.6
END_DEVIATIONS = 2.5  # of the noise, that ends keep away: beyond them, little is to be lost
FARTHEST = sys.float_info.max
CLOSEST = 2.0**-20  # of themselves; nearer bounds are moved apart
NOTHING = 2.0**-1000  # bounds within that are those of a column in which zeros alone were seen

Known = Sequence[tuple[float | None, float | None]]


def bounds_draws(d: int, method: Method = "gaussian", *, gaps: bool = False) -> int:
    """Noise values that `noisy_bounds` draws, for d columns without public bounds."""
    if method != "gaussian":
        return 2 * d
    return d * (gaps + MIDDLES.bits + RADIUS_BITS + 2 * END_BITS)


def bounds_rows(
    d: int, noise_multiplier: float, method: Method = "gaussian", *, gaps: bool = False
) -> int:
    """Rows from which on `noisy_bounds` sees both ends: twice what it leaves outside, on each."""
    if method != "gaussian":
        ends = Targets((0.0,) * d + (1.0,) * d, (*range(d), *range(d)), 1)
        return math.ceil(4 * margin(event(method, noise_multiplier), MIDDLES.bits, ends))
    # A median that is off by some rows is still within the column, which is all that is asked.
    middle = 3 * _rank(noise_multiplier, _Shares.of(gaps=gaps).middle, MIDDLES.bits * d)
    return math.ceil(max(4 * bounds_spare(d, noise_multiplier, gaps=gaps), 2 * middle))


def bounds_spare(d: int, noise_multiplier: float, *, gaps: bool = False) -> float:
    """Rows that `noisy_bounds` leaves outside on purpose, on a side of one of d columns."""
    shares = _Shares.of(gaps=gaps)
    return max(shares.beyond(noise_multiplier, d), shares.spare(noise_multiplier, d, 2 * d))


def _rank(noise_multiplier: float, share: float, votes: float) -> float:
    """Deviation of the noise in a number of rows, for so many votes of a row in all rounds."""
    return noise_multiplier * math.sqrt(votes / share) / 2 if share else 0.0


@dataclass(frozen=True)
class _Shares:
    """How one release is divided, by squared noise."""

    present: float
    middle: float
    radius: float
    ends: float

    @classmethod
    def of(cls, *, gaps: bool) -> _Shares:
        present = PRESENT * gaps
        rest = 1 - present - MIDDLE
        return cls(present, MIDDLE, rest * RADIUS, rest * (1 - RADIUS))

    def beyond(self, noise_multiplier: float, d: int) -> float:
        """Rows left beyond the radius, that noise may mistake for others with chance 4e-5."""
        votes = _rank(noise_multiplier, self.radius, RADIUS_BITS * d)
        return DEVIATIONS * math.hypot(votes, _rank(noise_multiplier, self.present, d))

    def spare(self, noise_multiplier: float, d: int, ends: int) -> float:
        """Rows left beyond an end."""
        votes = _rank(noise_multiplier, self.ends, END_BITS * ends)
        return END_DEVIATIONS * math.hypot(votes, _rank(noise_multiplier, self.present, d))


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
        low < high, within what is public. With probability 1 − 10⁻³·d, at most 2k rows lie outside
        on either side of a column, where k is 10.2·z·√d rows by search (some more where rows may
        have no value or their number is private, 34·z·d by selection), and the bounds are at most
        a thirty-second of the largest distance from the median beyond the column's least and
        largest value. With fewer than 4k rows, there is nothing to be seen.

    Examples
    --------
    >>> from tacit.mechanisms.random_streams import Key
    >>> from tacit.mechanisms.release import Releases
    >>> from tacit.privacy.events import Gaussian
    >>> rows = np.stack([np.linspace(0, 1e6, 5000), np.linspace(1955, 1990, 5000)], axis=1)
    >>> token = Releases(Key.from_seed(0), [("bounds", Gaussian(1.0))]).token("bounds")
    >>> low, high = noisy_bounds(lambda: [rows], 2, token.at("example"), size=5000)
    >>> [(round(a), round(b)) for a, b in zip(low.tolist(), high.tolist())]
    [(-1348, 1006268), (1955, 1990)]
    """
    known = [(None, None)] * d if known is None else list(known)
    passes = Passes.over(chunks)
    if isinstance(token.event, Selection):
        return _selected(passes, token, size, known, counted=counted)
    shares = _Shares.of(gaps=gaps or not counted)
    present = np.full(d, float(size))
    if shares.present:
        present = _present(passes, d, token.part(shares.present), size if counted else None, size)
    low = np.array([-FARTHEST if a is None else a for a, _ in known])
    high = np.array([FARTHEST if b is None else b for _, b in known])
    every, rows = tuple(range(d)), tuple(present.tolist())

    middles = passes.map(partial(_place, low=low, high=high))
    asked = token.part(shares.middle)
    places = search(middles, MIDDLES.bits, Targets((0.5,) * d, every), asked)
    middle = np.clip([MIDDLES.edge(t) for t in np.clip(places, *MIDDLES.finite)], low, high)

    outside = np.minimum(0.5, shares.beyond(token.noise_multiplier, d) / present)
    distances = passes.map(partial(_octave, low=low, high=high, middle=middle))
    farthest = Targets(tuple((1 - outside).tolist()), every, rows)
    octaves = search(distances, RADIUS_BITS, farthest, token.part(shares.radius))
    half = 1 << RADIUS_BITS
    radius = np.array([OCTAVES.edge(half + t + 1) for t in octaves])
    radius = np.maximum(radius, np.maximum(abs(middle) * CLOSEST, sys.float_info.min))
    with np.errstate(over="ignore"):
        low = np.maximum(low, np.clip(middle - radius, -FARTHEST, FARTHEST))
        high = np.minimum(high, np.clip(middle + radius, -FARTHEST, FARTHEST))

    searched = [(j, 0) for j, (a, b) in enumerate(known) if a is None or b is not None]
    searched += [(j, 1) for j, (a, b) in enumerate(known) if b is None or a is not None]
    columns = [j for j, _ in searched]
    spare = shares.spare(token.noise_multiplier, d, len(searched))
    left = np.minimum(0.5, spare / present)[columns]
    fractions = np.where([side for _, side in searched], 1 - left, left)
    size_of = tuple(present[columns].tolist())
    targets = Targets(tuple(fractions.tolist()), tuple(columns), size_of)
    between = passes.map(partial(_between, low=low, high=high))
    found = search(between, END_BITS, targets, token.part(shares.ends))
    cells = {end: int(t) for end, t in zip(searched, found, strict=True)}
    first, last = low.copy(), high.copy()
    for j in range(d):
        at = sorted(cells[j, side] for side in (0, 1) if (j, side) in cells)  # noise may cross them
        for side, ends, t in ((0, first, at[0]), (1, last, at[-1] + 1)):
            if (j, side) in cells:
                part = t / 2**END_BITS
                ends[j] = (1 - part) * low[j] + part * high[j]
    return _apart(first, last, known)


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
    >>> from tacit.mechanisms.random_streams import Key
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


def _place(chunk: Chunk, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    values = _dense(chunk)
    cells = MIDDLES.cells(np.ascontiguousarray(np.clip(values, low, high)))
    return np.where(np.isnan(values), GAP, cells)


def _octave(chunk: Chunk, low: np.ndarray, high: np.ndarray, middle: np.ndarray) -> np.ndarray:
    values = _dense(chunk)
    with np.errstate(over="ignore"):
        far = np.abs(np.clip(values, low, high) - middle)
    cells = OCTAVES.cells(np.ascontiguousarray(far)) - (1 << RADIUS_BITS)
    return np.where(np.isnan(values), GAP, np.maximum(cells, 0))


def _between(chunk: Chunk, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    values = _dense(chunk)
    with np.errstate(all="ignore"):
        part = (np.clip(values, low, high) / 2 - low / 2) / (high / 2 - low / 2)
    cells = np.clip(np.nan_to_num(part) * 2**END_BITS, 0, 2**END_BITS - 1).astype(np.int64)
    return np.where(np.isnan(values), GAP, cells)


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
    """Bounds that are finite and some way apart, whatever noise has led to.

    Where others than zeros are too few to be seen, there is no scale: one stands for it, so that
    the few are told from zeros all the same.
    """
    for j, (bottom, top) in enumerate(known):
        a, b = (min(max(float(x[j]), -FARTHEST), FARTHEST) for x in (low, high))
        if max(abs(a), abs(b)) <= NOTHING:
            a, b = (-1.0 if bottom is None else bottom), (1.0 if top is None else top)
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
