"""Which keys occur in columns whose keys nobody knows: noisy histograms behind a threshold.

A row has at most one key in each of c columns: a category, a word, a label. Counted are the rows of
every key; noise is added to the keys that occur, since nobody could list the others, and a key is
released if its noisy count reaches a threshold (Korolova, Kenthapadi, Mishra & Ntoulas 2009;
Desfontaines, Voss, Gipson & Mandayam 2022; Wilkins et al. 2024 with Gaussian noise).

*What it costs.* The Gaussian noise of c votes of a row, of norm √c, as if all keys had been known,
and a `tacit.privacy.events.Failure` of probability p, for all c columns together.

*Proof.* Let q be the chance that discrete Gaussian noise lifts a count of m to the threshold, with
m the least count of a key that takes part (1 as a rule), and p ≥ c·q. Take two neighbours. On
either of them call it an accident if a key is released that takes part on that one only. Such a key
has a count of exactly m there, and of m − 1 on the other: the row in which they differ has it, if
that row is there. A row has at most one key in a column, so there are at most c such keys on either
side, be a row added, removed, blanked or replaced (then up to c on the one side, and up to c others
on the other side). Noise is independent, and the accident of each side has probability at most
1 − (1 − q)^c ≤ p on that side, whatever the noise on the keys that take part on both. Without it,
what is released is a function of the noisy counts of the keys that take part on both sides, which
are Gaussian releases of sums that lie at most √c apart (√(2c) if a row is replaced, 2√c are
counted). So each law is (1 − p)·(what the Gaussian event dominates) + p·(anything): what `Failure`
asks for. Keys that take part on neither side leave no trace. ∎

It holds for whatever ε is asked: the threshold depends on the noise and on p, and on nothing else.

*Memory.* In columns of many different keys, such as names, all of them would have to be held. From
2^18 rows on, only keys of m > 1 rows take part, with m in proportion to the public number of rows:
a first pass counts rows in 2^18 places by a public hash, and a second one holds the keys whose
place has m rows. Those that have m themselves take part, whatever else is in their place.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from scipy.special import ndtri

from tacit.mechanisms.passes import Passes, Source
from tacit.mechanisms.release import BoundedSum, Token
from tacit.privacy.events import Failure

VOTE = 1 << 24  # lattice units of one row
UP = 1 + 1e-14
MOST_KEYS = 1 << 44  # different ones in a table: noise values that are drawn at most
PLACES = 1 << 18  # of the public hash, in every column
LOAD = 4  # rows that a key must have to take part, in rows of a place

#: For every column, its keys in a chunk of rows and how many rows have each: ``keys(chunk)``.
Keys: TypeAlias = Callable[[Any], Sequence[Mapping[str, int]]]


class KeyCounts:
    """How many rows have which keys, for each column; counts of other rows can be added.

    Examples
    --------
    >>> both = KeyCounts([{"a": 1}]) + KeyCounts([{"a": 1, "b": 1}])
    >>> both.columns
    [{'a': 2, 'b': 1}]
    """

    def __init__(self, columns: Iterable[Mapping[str, int]]) -> None:
        self.columns: list[dict[str, int]] = [dict(column) for column in columns]

    def __add__(self, other: KeyCounts) -> KeyCounts:
        return KeyCounts(self.columns).__iadd__(other)

    def __iadd__(self, other: KeyCounts) -> KeyCounts:
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count
        return self


def least_rows(size: int) -> int:
    """m: rows that a key must have to take part, for so many rows in all, a public number."""
    return 1 if size <= PLACES else math.ceil(LOAD * size / PLACES)


def key_rows(noise_multiplier: float, columns: int, probability: float, size: int) -> float:
    """About how many rows a key must have to be released as a rule: the threshold.

    Parameters
    ----------
    noise_multiplier : float
        z, in contributions of a row to all columns.
    columns : int
        c.
    probability : float
        p of an accident.
    size : int
        Public number of rows.

    Returns
    -------
    float
        t, in rows.

    Examples
    --------
    >>> round(key_rows(10.0, 4, 1e-6, 10_000))
    102
    """
    x = -float(ndtri(min(probability / columns, 0.5)))
    return least_rows(size) + x * noise_multiplier * math.sqrt(columns)


def key_failure(noise_multiplier: float, columns: int, probability: float) -> Failure:
    """The failure of `noisy_keys`, with the law of its threshold, for several rows of one unit.

    Parameters
    ----------
    noise_multiplier : float
        z, in contributions of a row to all columns.
    columns : int
        c.
    probability : float
        p of an accident.

    Returns
    -------
    Failure
        Rounded to the safe side.

    Examples
    --------
    >>> failure = key_failure(10.0, 4, 1e-6)
    >>> [float(f"{failure.several(k).probability:.1g}") for k in (1, 2, 10)]
    [1e-06, 3e-06, 9e-05]
    """
    room = -float(ndtri(probability / columns)) * (1 - 1e-12)
    step = (1 + 1e-12) / (noise_multiplier * math.sqrt(columns))
    return Failure(probability, keys=columns, room=room, step=step)


def noisy_keys(
    chunks: Source,
    keys: Keys,
    columns: int,
    token: Token,
    *,
    size: int,
    probability: float,
    most: int,
) -> list[tuple[str, ...]]:
    """Keys of every column that enough rows have, through noise.

    Parameters
    ----------
    chunks : Passes or callable
        Gives the rows in chunks, as often as it is asked: once, or twice if they are many.
    keys : callable
        Counts the keys of a chunk, for every column, each row having at most one in each.
    columns : int
        c.
    token : Token
        For one Gaussian release, with a failure of that probability.
    size : int
        Public number of rows, or a stand-in for it.
    probability : float
        p of an accident, in all columns together.
    most : int
        Keys of a column that are kept: those of the largest noisy counts.

    Returns
    -------
    list of tuple of str
        For each column, sorted by their text: no other order says nothing of how many have them.

    Examples
    --------
    >>> from tacit.mechanisms.random_streams import Key
    >>> from tacit.mechanisms.release import Releases
    >>> from tacit.privacy.events import Failure, Gaussian
    >>> counted = [("Keys", Gaussian(2.0)), ("Keys", Failure(1e-6))]
    >>> token = Releases(Key.from_seed(0), counted).token("Keys").at("example")
    >>> chunk = ["nurse"] * 900 + ["cook"] * 99 + ["astronaut"]
    >>> count = lambda chunk: [{key: chunk.count(key) for key in set(chunk)}]
    >>> noisy_keys([chunk], count, 1, token, size=1000, probability=1e-6, most=8)
    [('cook', 'nurse')]
    """
    least = least_rows(size)
    passes = Passes.over(chunks)
    places = None
    if least > 1:
        zero = np.zeros((columns, PLACES), dtype=np.int64)
        places = passes.merged(partial(_placed, keys=keys, columns=columns), zero) >= least
    empty = KeyCounts({} for _ in range(columns))
    held = passes.merged(partial(_counted, keys=keys, places=places), empty).columns
    listed = sorted(
        (j, key) for j, column in enumerate(held) for key, rows in column.items() if rows >= least
    )
    counts = np.array([held[j][key] for j, key in listed], dtype=np.int64) * VOTE
    norm = math.sqrt(columns) * UP
    total = BoundedSum(counts, 1 / VOTE, norm, norm * UP, "votes")
    passed = token.keys(total, listed, probability, each=columns, least=least)
    found: list[list[tuple[int, str]]] = [[] for _ in range(columns)]
    for place in listed:
        if place in passed:
            found[place[0]].append((-passed[place], place[1]))
    return [tuple(sorted(key for _, key in sorted(column)[:most])) for column in found]


def _place(key: str) -> int:
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % PLACES


def _placed(chunk: Any, keys: Keys, columns: int) -> np.ndarray:
    """Rows in every place of the hash."""
    counts = np.zeros((columns, PLACES), dtype=np.int64)
    for j, column in enumerate(keys(chunk)):
        places = np.fromiter(map(_place, column), np.int64, len(column))
        rows = np.fromiter(column.values(), np.int64, len(column))
        np.add.at(counts[j], places, rows)
    return counts


def _counted(chunk: Any, keys: Keys, places: np.ndarray | None) -> KeyCounts:
    """Rows of the keys whose place has enough of them."""
    found = keys(chunk)
    if places is None:
        return KeyCounts(found)
    return KeyCounts(
        {key: rows for key, rows in column.items() if places[j, _place(key)]}
        for j, column in enumerate(found)
    )
