"""Whose rows are whose: what tells people apart travels with their rows, and is never a feature.

People are numbered as they first appear, and every person has a *mark*, a hash of the identifier.
Which rows of a person are kept, and in which order, follows from a keyed hash of the mark and of
the row's place among the rows of that person (`Owners.kept`): a function of the key and of that
person alone. So nobody shifts another one's draw, whoever comes, goes or has other rows.

Identifiers themselves are forgotten here. Numbers and marks are private, like the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Integral
from typing import Any

import numpy as np

from tacit.data.cells import as_float, cell_text
from tacit.data.checks import column_of
from tacit.exceptions import InputError, of_rows
from tacit.privacy.unit import Unit

LARGEST = 2**53  # of an identifier that is a float: beyond, different people would have the same
LACKING = (
    "a row has no identifier, so it is not known whose it is: leave out such rows, or give each of "
    "them an identifier of its own"
)


@dataclass(frozen=True)
class Owners:
    """Who the rows belong to.

    Attributes
    ----------
    unit : Unit
        People, and how many rows of one count at most. Public.
    codes : ndarray of int, of shape (n,)
        The person of every row, a number from 0. Private.
    marks : ndarray of uint64, of shape (people,)
        What a keyed hash takes in the place of the identifier. Private.

    Examples
    --------
    >>> owners = Owners.of(["b", "a", "b"], Unit("person", 2))
    >>> owners.codes, owners.people
    (array([0, 1, 0]), 2)
    """

    unit: Unit
    codes: np.ndarray
    marks: np.ndarray

    @classmethod
    def of(cls, identifiers: Any, unit: Unit, n: int | None = None) -> Owners:
        """Owners of n rows, by an identifier for each; 7, 7.0 and "7" are one person.

        Parameters
        ----------
        identifiers : sequence of n numbers or texts
            Who every row is of.
        unit : Unit
            Of people.
        n : int, optional
            How many there must be.

        Returns
        -------
        Owners
            Without the identifiers.
        """
        what = "groups" if unit.identifier is None else f"groups, by {unit.identifier!r},"
        n = len(identifiers) if n is None else n
        given = column_of(identifiers, n, what)
        listed = isinstance(identifiers, list | tuple)
        if listed and given.dtype.kind not in "iu" and np.ndim(identifiers[0]) == 0:
            # NumPy has made one kind of all: words, if there is one, of 7.0 another than of 7.
            each = np.empty(n, dtype=object)
            each[:] = identifiers
            given = column_of(each, n, what)
        return cls.of_parts([numbered(given)], unit)

    @classmethod
    def of_parts(cls, parts: Sequence[tuple[list[str], np.ndarray]], unit: Unit) -> Owners:
        """Owners of rows in several parts, each as `numbered` gives it.

        Parameters
        ----------
        parts : sequence of (list of str, ndarray of int)
            In the order of the rows.
        unit : Unit
            Of people.

        Returns
        -------
        Owners
            The same as if all rows were in one part.
        """
        if unit.kind != "person":
            raise InputError("rows that belong to people are counted by person: pass such a unit")
        numbers: dict[str, int] = {}
        codes = [
            np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.intp)[local]
            for texts, local in parts
        ]
        marks = np.array([_mark(text) for text in numbers], dtype=np.uint64)
        return cls(unit, np.concatenate([np.empty(0, np.intp), *codes]), marks)

    @property
    def people(self) -> int:
        """How many people there are: public, where the relation says so."""
        return len(self.marks)

    @property
    def each_once(self) -> bool:
        """Whether every person has one row at most, so that a bound on rows is one on people."""
        return bool(np.bincount(self.codes, minlength=1).max() <= 1)

    def held(self, index: Any) -> Owners:
        """Owners of some of the rows; people keep their numbers.

        Parameters
        ----------
        index : slice or array of shape (m,)
            Which rows.

        Returns
        -------
        Owners
            Of these rows.
        """
        return replace(self, codes=self.codes[index])

    def renumbered(self) -> Owners:
        """The same without people who have no row here.

        Returns
        -------
        Owners
            Numbered anew, in the same order.

        Examples
        --------
        >>> owners = Owners.of(["b", "a", "c"], Unit("person", 2)).held(np.array([0, 2]))
        >>> owners.people, owners.renumbered().people
        (3, 2)
        """
        there, codes = np.unique(self.codes, return_inverse=True)
        return replace(self, codes=codes.reshape(-1), marks=self.marks[there])

    def one_of_each(self, hashed: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """The place of one row of every person, drawn by the keyed hash.

        Parameters
        ----------
        hashed : callable
            Of marks and of places among a person's own rows: numbers by a keyed hash.

        Returns
        -------
        ndarray of int, of shape (people,)
            Person by person.
        """
        return replace(self, unit=replace(self.unit, rows=1)).kept(hashed)

    def kept(self, hashed: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """Places of the rows that count, person by person, at most so many of each as the unit has.

        Parameters
        ----------
        hashed : callable
            Of marks and of places among a person's own rows: numbers by a keyed hash.

        Returns
        -------
        ndarray of int, of shape (m,)
            The first of every person's is the one that stands for all of them.
        """
        by_person = np.argsort(self.codes, kind="stable")
        sizes = np.bincount(self.codes, minlength=self.people)
        starts = np.cumsum(sizes) - sizes
        place = np.arange(len(by_person)) - np.repeat(starts, sizes)
        drawn = np.zeros(len(by_person), dtype=np.uint64)
        several = np.repeat(sizes, sizes) > 1
        owner = self.codes[by_person]
        drawn[several] = hashed(self.marks[owner[several]], place[several])
        order = np.lexsort((place, drawn, owner))  # a tie is the person's own affair
        return by_person[order[place < self.unit.rows]]  # owners lie together before and after


def numbered(given: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Different identifiers as they appear, and which of them every row has.

    Parameters
    ----------
    given : ndarray of shape (n,)
        Identifiers, none of which is missing.

    Returns
    -------
    texts : list of str
        The same for 7, 7.0 and "7".
    codes : ndarray of int, of shape (n,)
        Places among them.
    """
    values, first, inverse = np.unique(_keys(given), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(order), dtype=np.intp)
    number[order] = np.arange(len(order))
    return [str(each) for each in values[order].tolist()], number[inverse.reshape(-1)]


def choose_rows(rows: Any, hashed: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Any:
    """Rows of people cut to those that count, which is all that anything behind it sees.

    Parameters
    ----------
    rows : Rows
        With owners.
    hashed : callable
        As `Owners.kept` takes it.

    Returns
    -------
    kept : Rows
        The rows of a person together.
    index : ndarray of int, of shape (m,)
        Where they were.
    """
    index = rows.owners.kept(hashed)
    return rows.taken(index), index


def require_same_order(X: Any, groups: Any) -> None:
    """Refuse identifiers that stand in another order than the rows do, as far as an index tells.

    Parameters
    ----------
    X
        Rows, in memory.
    groups : sequence of n
        An identifier for each.
    """
    rows, whose = getattr(X, "index", None), getattr(groups, "index", None)
    if not (isinstance(rows, Sized) and isinstance(whose, Sized)):
        return
    # Identifiers are taken by their places: in another order they protect other people.
    if len(rows) == len(whose) and not np.array_equal(np.asarray(rows), np.asarray(whose)):
        raise of_rows(
            InputError(
                "groups has another index than X, so it is not known whose a row is: bring both "
                "into one order, or pass groups.to_numpy() if they are"
            )
        )


def _keys(given: np.ndarray) -> np.ndarray:
    """Identifiers as texts or integers, equal where the person is the same."""
    if given.dtype.kind in "iu":
        return given
    if given.dtype.kind == "f":
        _require_exact(np.abs(given).max(initial=0.0))
    texts = np.array([_text(each) for each in given.tolist()], dtype=str)
    if (texts == "").any():
        raise of_rows(InputError(LACKING))
    return texts


def _text(value: Any) -> str:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float | Decimal):
        _require_exact(abs(as_float(value)))
    return cell_text(value).strip()


def _require_exact(size: float) -> None:
    if not size < LARGEST:
        raise of_rows(
            InputError(
                "identifiers are floats, as all numbers in a table are, and too large to be told "
                "apart: pass integers or text as groups=, or put a letter in front of those in a "
                "file"
            )
        )


def _mark(text: str) -> int:
    found = hashlib.blake2b(text.encode(), digest_size=8, person=b"tacit person").digest()
    return int.from_bytes(found, "little")
