"""Quantiles on a public grid: by noisy binary search, or by the exponential mechanism.

A grid cuts the numbers into 2^bits cells in their order. The q-quantile is the cell at whose lower
edge fewer than a fraction q of the rows lie below, and at whose upper edge they do not; both ways
find a cell that is nearly this one *in rank*, however the values are spread.

*Votes.* At an edge, a row that lies below adds one, a row that does not takes one away. One row
contributes at most one, and the count of rows below is (n + votes)/2: half the noise of counting
them. That needs the number n of rows to be public. Where it is not, a row below adds (1−q)/m and
any other takes away q/m, with m = max(q, 1−q); the goal is then zero, whatever n. Votes are whole
numbers in units of 2^-24, and which side of an edge a row is on is a matter of that row alone: the
sensitivity is exact. A null row has no vote.

*Noisy search* (`noisy_search`) asks for the votes of the middle edge, through Gaussian noise, and
goes on in the half that they point to: as many rounds as bits, together one ``Gaussian`` event.

*Selection* (`exponential_search`) takes a cell with probability proportional to
exp(−distance/β), where the distance is that of the goal from the votes at the cell's edges: one
``Selection`` event, sampled exactly. This is the quantile of Dick, Kulesza, Sun & Suresh 2023,
Theorem 2, with the cells of a grid in place of lengths.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeAlias

import numpy as np

from tacit.exceptions import InputError
from tacit.mechanisms.passes import Passes, Source
from tacit.mechanisms.release import BoundedSum, Token
from tacit.mechanisms.selection import masses
from tacit.privacy.events import Event, Gaussian, Selection

VOTE = 1 << 24  # lattice units of one vote
UP = 1 + 1e-14  # more than the rounding of any formula here
GAP = -1  # in place of a cell: no value, and no vote
PASS = 10  # bits that are counted in one pass over the rows
TABLE = 1 << 21  # counters held at once
BETA = math.sqrt(math.pi / 2) * UP  # β of a selection as private as Gaussian noise of one
DEVIATIONS = 4.5  # of the noise, that a quantile near an end keeps away from it
CHANCE = 3.4e-6  # of normal noise beyond that, one-sided, in one of a search's rounds
LARGEST_FLOAT = sys.float_info.max
_INFINITY = 0x7FF << 52  # its bits

Method: TypeAlias = Literal["gaussian", "exponential"]
METHODS = ("gaussian", "exponential")
Cells: TypeAlias = Source  # of cells (rows, columns)


class Grid(Protocol):
    """Cells 0, …, 2^bits − 1 of the numbers, in their order."""

    @property
    def bits(self) -> int: ...

    def cells(self, values: np.ndarray) -> np.ndarray:
        """The cell of every value, int64; values beyond the grid are in its first or last."""
        ...

    def edge(self, t: int) -> float:
        """The number from which on values lie in cell t or above; t up to 2^bits."""
        ...


@dataclass(frozen=True)
class Linear:
    """Cells of one width in [low, high].

    Examples
    --------
    >>> Linear(0.0, 1.0, bits=2).cells(np.array([-1.0, 0.3, 0.99, 7.0]))
    array([0, 1, 3, 3])
    """

    low: float
    high: float
    bits: int = 40

    def __post_init__(self) -> None:
        if not (math.isfinite(self.high - self.low) and self.low < self.high):
            raise InputError(f"low={self.low!r} must be below high={self.high!r}, both finite")
        if not 1 <= self.bits <= 48:
            raise InputError(f"bits={self.bits!r} must lie between 1 and 48")

    def cells(self, values: np.ndarray) -> np.ndarray:
        part = (np.clip(values, self.low, self.high) - self.low) / (self.high - self.low)
        part = np.floor(np.ldexp(np.nan_to_num(part), self.bits))
        return np.clip(part, 0, 2**self.bits - 1).astype(np.int64)

    def edge(self, t: int) -> float:
        return self.low + (self.high - self.low) * math.ldexp(t, -self.bits)


@dataclass(frozen=True)
class Floats:
    """Cells between neighbouring numbers of a few binary digits: symmetric-logarithmic.

    Edges are ±2^e·(1 + j/2^digits) with whole j and e, over the whole range of floats, so a cell
    spans a factor of 1 + 2^-digits at most. With ``top``, the cells are the last 2^bits that end
    at the cell of that positive number, which is 2^(bits − digits) octaves (or begin at zero).

    Examples
    --------
    >>> grid = Floats(digits=3)
    >>> grid.bits, [grid.edge(t) for t in grid.cells(np.array([-1.0, 0.0, 1.05, 1e9]))]
    (15, [-1.125, 0.0, 1.0, 939524096.0])
    >>> grid = Floats(digits=4, bits=10, top=1.0)
    >>> grid.edge(1023), grid.edge(1022), grid.edge(0)
    (1.0, 0.96875, 5.759824041329242e-20)
    """

    digits: int = 4
    bits: int = 0
    top: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.digits <= 30:
            raise InputError(f"digits={self.digits!r} must lie between 0 and 30")
        if self.top is None:
            object.__setattr__(self, "bits", 12 + self.digits)
        elif not (0 < self.top < math.inf and 1 <= self.bits <= 10 + self.digits):
            raise InputError("top must be a positive number, and bits at most digits + 10")

    @property
    def _first(self) -> int:
        if self.top is None:
            return -(1 << (self.bits - 1))
        return max(0, int(self._ordered(np.array([self.top]))[0]) + 1 - (1 << self.bits))

    def _ordered(self, values: np.ndarray) -> np.ndarray:
        """Integers in the order of the floats: their bits, the magnitude of negatives turned
        round; cut to the leading digits."""
        bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.int64)
        return (bits ^ ((bits >> 63) & np.int64(2**63 - 1))) >> (52 - self.digits)

    def cells(self, values: np.ndarray) -> np.ndarray:
        return np.clip(self._ordered(values) - self._first, 0, (1 << self.bits) - 1)

    @property
    def finite(self) -> tuple[int, int]:
        """First and last cell whose edges are different numbers."""
        last = (_INFINITY >> (52 - self.digits)) - 1 - self._first
        return max(0, -(_INFINITY >> (52 - self.digits)) - self._first), min(last, 2**self.bits - 1)

    def edge(self, t: int) -> float:
        place, shift = self._first + int(t), 52 - self.digits
        # Beyond the floats there are infinities and what is not a number: they end at the largest.
        place = min(max(place, -(_INFINITY >> shift)), _INFINITY >> shift)
        value = float(np.array([abs(place) << shift]).view(np.float64)[0])
        return math.copysign(min(value, LARGEST_FLOAT), place)


@dataclass(frozen=True)
class Targets:
    """Which quantiles of which columns are wanted.

    Attributes
    ----------
    fractions : tuple of float
        Fraction q of the rows that shall lie below, for each target.
    columns : tuple of int
        Its column; all different columns in order by default.
    size : int, tuple of float, or None
        The public number of rows, or of those that have a value, for every target; None where
        their number is private.
    """

    fractions: tuple[float, ...]
    columns: tuple[int, ...] = ()
    size: int | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not self.fractions or not all(0 <= q <= 1 for q in self.fractions):
            raise InputError("fractions must lie between 0 and 1")
        if not self.columns:
            object.__setattr__(self, "columns", tuple(range(len(self.fractions))))
        if len(self.columns) != len(self.fractions):
            raise InputError("every target needs a fraction and a column")

    def one(self, j: int) -> Targets:
        """Target j alone."""
        size = (self.size[j],) if isinstance(self.size, tuple) else self.size
        return Targets((self.fractions[j],), (self.columns[j],), size)

    @property
    def norm(self) -> float:
        """Norm of what one row contributes at most: one vote for each target."""
        return math.sqrt(len(self.fractions)) * UP

    def votes(self, below: np.ndarray, count: int | np.ndarray) -> np.ndarray:
        """Votes in lattice units, for so many of ``count`` rows below the edge of each target.

        ``count`` is how many rows there are, a private number, which enters as their votes.
        """
        up, down = self._weights
        return up * below - down * (count - below)

    @property
    def _weights(self) -> tuple[np.ndarray, np.ndarray]:
        """What a row below adds and what any other takes away; never above one vote."""
        if self.size is not None:
            ones = np.full(len(self.fractions), VOTE, dtype=np.int64)
            return ones, ones
        q = np.asarray(self.fractions)
        largest = np.maximum(q, 1 - q)
        up, down = np.floor((1 - q) / largest * VOTE), np.floor(q / largest * VOTE)
        return up.astype(np.int64), down.astype(np.int64)

    @property
    def goals(self) -> np.ndarray:
        """Votes at which as many rows lie below as wanted, in lattice units."""
        if self.size is None:
            return np.zeros(len(self.fractions), dtype=np.int64)
        q = np.asarray(self.fractions)
        return np.rint((2 * q - 1) * np.asarray(self.size) * VOTE).astype(np.int64)

    @property
    def largest_share(self) -> float:
        """Rows for a vote: one half, or up to one if the number of rows is private."""
        up, down = self._weights
        return float((VOTE / (up + down)).max())

    def rank_deviation(self, bits: int, noise_multiplier: float) -> np.ndarray:
        """Deviation of the noise of `noisy_search` in every count of rows below an edge."""
        votes = noise_multiplier * math.sqrt(bits) * self.norm
        up, down = self._weights
        return votes * VOTE / (up + down)


def event(method: Method, noise_multiplier: float) -> Event:
    """What `search` costs: the same to a Gaussian account, by either method.

    A selection with β = √(π/2)·z is Gaussian differentially private with μ = Δ/z at most, as is
    Gaussian noise of z (`tacit.privacy.accounting.accountants.selection_mu`).
    """
    return (
        Gaussian(noise_multiplier) if method == "gaussian" else Selection(BETA * noise_multiplier)
    )


def search(cells: Cells, bits: int, targets: Targets, token: Token) -> np.ndarray:
    """The cell of every target's quantile, by the method that the token's `event` is of."""
    if isinstance(token.event, Selection):
        return exponential_search(cells, bits, targets, token)
    return noisy_search(cells, bits, targets, token)


def margin(event: Event, bits: int, targets: Targets) -> float:
    """Rows by which a quantile must keep away from an end, lest it end in empty space beyond.

    With so many rows beyond each target, `search` goes farther than all rows with probability
    3.4e-6·bits at most, for each target.
    """
    if not isinstance(event, Selection):
        return DEVIATIONS * float(targets.rank_deviation(bits, event.noise_multiplier).max())
    votes = event.noise_multiplier * len(targets.fractions)
    return votes * (bits * math.log(2) - math.log(CHANCE * bits)) * targets.largest_share


def noisy_search(cells: Cells, bits: int, targets: Targets, token: Token) -> np.ndarray:
    """The cell of every target's quantile, by binary search on noisy votes.

    All rounds together are one Gaussian release: each of ``bits`` rounds has √bits times the noise
    (Dong, Roth & Su 2022, Corollary 3.3). In a round, one row contributes a vector of norm at most
    `Targets.norm` votes.

    Parameters
    ----------
    cells : callable
        Gives the chunks of cells, as often as it is called; `GAP` where a row has no value, and
        no vote.
    bits : int
        Of the grid: 2^bits cells.
    targets : Targets
        What is wanted.
    token : Token
        For one Gaussian release; noise is in contributions of one row to all votes of a round.

    Returns
    -------
    ndarray of int64
        Cells. Let s be `Targets.rank_deviation`. Except with probability 2·bits·targets·e^(−t²/2),
        fewer than q·n + t·s rows lie below the lower edge and at least q·n − t·s below the upper
        one.

    Examples
    --------
    >>> from tacit.mechanisms.random_streams import Key
    >>> from tacit.mechanisms.release import Releases
    >>> values, grid = np.arange(1000.0)[:, None], Linear(0.0, 4096.0, bits=12)
    >>> token = Releases(Key.from_seed(0), [("rank", Gaussian(0.1))]).token("rank").at("example")
    >>> noisy_search(lambda: [grid.cells(values)], 12, Targets((0.9,), size=1000), token)
    array([899])
    """
    each = token.rounds(bits)
    low, left = np.zeros(len(targets.fractions), dtype=np.int64), bits
    while left:
        step = min(left, PASS, max(1, (TABLE // len(low)).bit_length() - 1))
        left -= step
        below, count = counted_below(cells, targets, low, left, step)
        first = low
        for half in range(step - 1, -1, -1):
            middle = low + (1 << (half + left))
            digit = (middle - first) >> left
            votes = targets.votes(below[np.arange(len(low)), digit], count)
            total = BoundedSum(votes, 1 / VOTE, targets.norm, targets.norm * UP, "votes")
            noisy = each.multiples(total)
            low = np.where(noisy >= targets.goals, low, middle)
    return low


def counted_below(
    cells: Cells, targets: Targets, low: np.ndarray, left: int, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """How many rows lie below ``low`` + j·2^left, for each target and j up to 2^step, and of how
    many: the counts that ``step`` rounds may ask for, in one pass. All of it is private."""
    width = (1 << step) + 1  # below all, and every cell but those above all
    zero = np.zeros((len(low), width + 2), dtype=np.int64)
    summary = partial(_counts, columns=list(targets.columns), low=low, left=left, width=width)
    total = Passes.over(cells).merged(summary, zero)[:, 1:]  # those of gaps have no vote
    return np.cumsum(total[:, :width], axis=1), total.sum(axis=1)


def _counts(
    cells: np.ndarray, columns: list[int], low: np.ndarray, left: int, width: int
) -> np.ndarray:
    """Rows in every one of ``width`` + 2 places for each target: first those without a value."""
    wanted = cells[:, columns]
    place = (wanted - low) >> left
    np.clip(place, -1, width - 1, out=place)
    place[wanted == GAP] = -2
    place += np.arange(len(low)) * (width + 2) + 2
    counts = np.bincount(place.reshape(-1), minlength=len(low) * (width + 2))
    return counts.reshape(len(low), width + 2)


def exponential_search(cells: Cells, bits: int, targets: Targets, token: Token) -> np.ndarray:
    """The cell of every target's quantile, chosen by the exponential mechanism.

    This is one `Selection`. The utility of a cell is minus the votes by which
    its lower edge is beyond the goal, or its upper edge short of it. That of a choice for m targets
    is the sum of theirs, to which a row contributes m at most, so targets are chosen independently
    with m times the β.

    Parameters
    ----------
    cells, bits, targets
        As for `noisy_search`. All different cells are held in memory.
    token : Token
        For one selection; β is in contributions of one row to the votes at an edge.

    Returns
    -------
    ndarray of int64
        Cells. Let s be m·β/2 rows if their number is public, and m·β·max(q, 1−q) if not, and
        e = s·(bits·ln 2 + t). Except with probability e^−t for each target, at most q·n + e rows
        lie below the lower edge and at least q·n − e below the upper one.

    Examples
    --------
    >>> from tacit.mechanisms.random_streams import Key
    >>> from tacit.mechanisms.release import Releases
    >>> values, grid = np.arange(1000.0)[:, None], Linear(0.0, 4096.0, bits=12)
    >>> wanted = Targets((0.9,), size=1000)
    >>> token = Releases(Key.from_seed(0), [("rank", Selection(0.1))]).token("rank").at("example")
    >>> exponential_search(lambda: [grid.cells(values)], 12, wanted, token)
    array([900])
    """
    held = Passes.over(cells).merged(Tally.of, Tally())
    runs, beta = [], token.noise_multiplier * len(targets.fractions) * UP * VOTE
    for j in range(len(targets.fractions)):
        first, weights, gaps = utilities(held, bits, targets, j)
        runs.append((first, weights, masses([-gap for gap in gaps], beta, weights)))
    return np.array(token.cells(runs), dtype=np.int64)


class Tally:
    """How many rows lie in which cells of each column; tallies of other rows can be added.

    Examples
    --------
    >>> both = Tally.of(np.array([[3], [1]])) + Tally.of(np.array([[3]]))
    >>> both.column(0), both.n
    ((array([1, 3]), array([1, 2])), 3)
    """

    def __init__(self, parts: tuple[list[np.ndarray], ...] = (), n: int = 0) -> None:
        self._parts, self.n = parts, n  # of each column, arrays (2, cells): which, how many

    @classmethod
    def of(cls, cells: np.ndarray) -> Tally:
        columns = np.asarray(cells).T
        found = (np.unique(column, return_counts=True) for column in columns)
        return cls(tuple([np.stack(pair)] for pair in found), len(cells))

    def __add__(self, other: Tally) -> Tally:
        if not self._parts or not other._parts:
            return self if self._parts else other
        both = zip(self._parts, other._parts, strict=True)
        return Tally(tuple(mine + theirs for mine, theirs in both), self.n + other.n)

    def column(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        """Cells of a column that have rows, rising, and how many rows they have."""
        which, times = np.concatenate(self._parts[j], axis=1)
        cells, place = np.unique(which, return_inverse=True)
        return cells, np.bincount(place.reshape(-1), times, len(cells)).astype(np.int64)

    def __getstate__(self) -> tuple[tuple[list[np.ndarray], ...], int]:
        """Every cell once: what there is to send from one machine to another."""
        return tuple([np.stack(self.column(j))] for j in range(len(self._parts))), self.n

    def __setstate__(self, state: tuple[tuple[list[np.ndarray], ...], int]) -> None:
        self._parts, self.n = state


def utilities(
    cells: np.ndarray | Tally, bits: int, targets: Targets, j: int
) -> tuple[list[int], list[int], list[int]]:
    """Runs of cells that are equally good for target j: their first, how many, and minus their
    utility in lattice units of votes. Private: it says where the rows are."""
    tally = cells if isinstance(cells, Tally) else Tally.of(cells)
    values, counts = tally.column(targets.columns[j])
    below = np.concatenate([[0], np.cumsum(counts)])
    # A cell with rows, then the empty ones up to the next; in front of all, empty ones.
    start = np.stack([values, values + 1], axis=1).reshape(-1)
    start = np.concatenate([[0], start])
    weights = np.diff(np.append(start, 1 << bits))
    lower = np.concatenate([[0], np.stack([below[:-1], below[1:]], axis=1).reshape(-1)])
    upper = np.concatenate([[0], np.stack([below[1:], below[1:]], axis=1).reshape(-1)])
    held = weights > 0
    goal = int(targets.goals[j])
    above = targets.one(j).votes(lower[held][:, None], tally.n)[:, 0] - goal
    short = goal - targets.one(j).votes(upper[held][:, None], tally.n)[:, 0]
    gaps = np.maximum(np.maximum(above, short), 0).tolist()
    return start[held].tolist(), weights[held].tolist(), gaps
