"""Tables of numbers, moments and text, from columns and data frames, sliced without copies.

Every value is read by itself: blanks around it are stripped, and ``""``, ``NA``,
``NaN``, ``null`` and ``?`` are missing, whichever way the table came in. So what
becomes of one row never depends on another. How a column is *stored* may: one value of
text makes a list of numbers text. So `Table.values`, `Table.texts` and `Table.match` give
the same whichever way it is stored, and `Table.types` says what the types of the
frame alone say.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np

from tacit.data.cells import (
    BOOLEAN,
    as_float,
    as_number,
    as_seconds,
    cell_text,
    is_absent,
    is_missing,
    match_key,
    plain,
    year_or_seconds,
)
from tacit.exceptions import InputError, of_rows

ABSENT, UNSEEN = -1, -2  # codes of `Table.match`
MOST_SECONDS = 2.0**62  # of a moment that has a name

PathLike: TypeAlias = str | os.PathLike[str]


class Coder(dict[str, int]):
    """Codes of words in the order they appear; `ABSENT` for a missing value."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.size = 0  # about how many bytes it takes

    def __missing__(self, cell: str) -> int:
        word = cell.strip()
        if is_missing(word):
            code = ABSENT
        elif word != cell:
            code = self[word]
        else:
            code = len(self.words)
            self.words.append(word)
        self[cell] = code
        self.size += len(cell) + 200
        return code

    def encode(self, cells: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(self.__getitem__, cells), np.int32, len(cells))


@dataclass(frozen=True)
class ColumnType:
    """What the type of a column says of it, whatever its values are.

    Attributes
    ----------
    kind : {"number", "date", "boolean", "category", "private"}
        "private" if the type says nothing: in a text file, or a list of objects.
    categories : tuple of str or None
        Those that the type itself declares, as an ``Enum`` of polars does.
    """

    kind: str
    categories: tuple[str, ...] | None = None


UNTYPED = ColumnType("private")


@dataclass(frozen=True, eq=False)
class Text:
    """A column of text as codes into its words; slices share words and lookups."""

    codes: np.ndarray
    words: list[str]
    lookups: dict[Any, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> Text:
        return Text(self.codes[index], self.words, self.lookups)

    def match(self, categories: tuple[str | float, ...]) -> np.ndarray:
        if categories not in self.lookups:
            position = {match_key(c): i for i, c in enumerate(categories)}
            found = [position.get(match_key(word), UNSEEN) for word in self.words]
            self.lookups[categories] = np.array([*found, ABSENT], dtype=np.int64)
        return self.lookups[categories].take(self.codes)

    def values(self, reading: Callable[[str], float | None]) -> np.ndarray:
        """What the words are by some way to read them, NaN where they are nothing."""
        if reading not in self.lookups:
            found = map(reading, self.words)
            numbers = [np.nan if number is None else number for number in found]
            self.lookups[reading] = np.array([*numbers, np.nan], dtype=np.float64)
        return self.lookups[reading].take(self.codes)


@dataclass(frozen=True, eq=False)
class Moments:
    """A column of dates or times, in whole seconds since 1970; NaN where one is missing."""

    seconds: np.ndarray

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, index: Any) -> Moments:
        return Moments(self.seconds[index])

    def text(self) -> Text:
        """The same as words, by ISO 8601."""
        found, codes = np.unique(self.seconds, return_inverse=True)
        found = found[~np.isnan(found)]  # at the end, if any
        ticks = np.clip(found, -MOST_SECONDS, MOST_SECONDS).astype(np.int64)
        words = np.datetime_as_string(ticks.astype("datetime64[s]")).tolist()
        codes = np.where(codes < len(found), codes, ABSENT).astype(np.int32)
        return Text(codes, [word.removesuffix("T00:00:00") for word in words])


Stored: TypeAlias = np.ndarray | Text | Moments
_STORED_TYPES = {Text: ColumnType("category"), Moments: ColumnType("date")}


def canonical(word: str) -> str:
    """One text for all values that are the same category."""
    key = match_key(word)
    return key if isinstance(key, str) else str(plain(key))


def _named(word: str) -> str:
    """Who it is: a number that floats hold exactly, or the word itself."""
    number = as_number(word)
    return word if number is None or not abs(number) < 2**53 else str(plain(number))


def _match_numbers(values: np.ndarray, categories: Sequence[str | float]) -> np.ndarray:
    pairs = sorted((k, i) for i, k in enumerate(map(match_key, categories)) if isinstance(k, float))
    codes = np.full(len(values), UNSEEN, dtype=np.int64)
    if pairs:
        keys, positions = np.array([k for k, _ in pairs]), np.array([i for _, i in pairs])
        nearest = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
        codes = np.where(keys[nearest] == values, positions[nearest], codes)
    codes[np.isnan(values)] = ABSENT
    return codes


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A small, immutable store of columns, each of numbers, of moments or of text.

    Build one with `Table.from_columns`, `as_table` or `read_table`. Slices share
    memory with the table they come from.

    Attributes
    ----------
    n : int
        Number of rows.

    Examples
    --------
    >>> table = Table.from_columns({"age": [31, None], "job": ["cook", " ? "]})
    >>> table.n, table.column_names, table.kind("job")
    (2, ('age', 'job'), 'text')
    >>> table.column("age"), table.column("job")
    (array([31., nan]), array(['cook', None], dtype=object))
    """

    _columns: dict[str, Stored]
    n: int
    _types: Mapping[str, ColumnType] = field(default_factory=dict)
    sparse = False

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> Table:
        """A table of named columns, each a sequence of numbers or of text.

        Arrays of float64 are not copied: do not change them afterwards.

        Parameters
        ----------
        columns : mapping
            Name to sequence of n values.

        Returns
        -------
        Table
            With these columns.
        """
        names = unique_names(columns)
        pairs = [_column(name, v) for name, v in zip(names, columns.values(), strict=True)]
        lengths = {len(stored) for stored, _ in pairs}
        if len(lengths) > 1:
            raise InputError(f"columns must have the same length, not {sorted(lengths)}")
        return cls(
            {name: stored for name, (stored, _) in zip(names, pairs, strict=True)},
            max(lengths, default=0),
            {name: kind for name, (_, kind) in zip(names, pairs, strict=True)},
        )

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self._columns)

    @property
    def d(self) -> int:
        """Number of columns."""
        return len(self._columns)

    def __repr__(self) -> str:
        return f"Table({self.n} rows: {', '.join(self.column_names)})"

    def __len__(self) -> int:
        return self.n

    def kind(self, name: str) -> Literal["number", "text"]:
        """How a column is stored.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        {"number", "text"}
            Whatever its values mean.
        """
        return "number" if isinstance(self._get(name), np.ndarray) else "text"

    @property
    def types(self) -> dict[str, ColumnType]:
        """What the types of the columns say, by name: never what their values do."""
        return {name: self._type(name) for name in self._columns}

    def _type(self, name: str) -> ColumnType:
        stored = _STORED_TYPES.get(type(self._columns[name]), ColumnType("number"))
        return self._types.get(name, stored)

    def values(self, name: str, *, dates: bool = False) -> np.ndarray:
        """A column as numbers, whatever it holds: what is none is NaN.

        Text counts as the number that it spells, true and false of a boolean type as 1 and 0,
        and dates as seconds since 1970.

        Parameters
        ----------
        name : str
            Of the column.
        dates : bool
            Whether text that is a date counts as one, too (and an integer from 1000 to 9999 as a
            year).

        Returns
        -------
        ndarray of float64, of shape (n,)
            Not to be changed.
        """
        column = self._get(name)
        if isinstance(column, Moments):
            return column.seconds
        if isinstance(column, Text):
            if self._type(name).kind == "boolean":
                codes = self.match(name, BOOLEAN)
                return np.where(codes >= 0, codes, np.nan)
            return column.values(as_seconds if dates else as_number)
        return year_or_seconds(column) if dates else self.column(name)

    def texts(self, name: str) -> np.ndarray:
        """A column as words, whatever it holds; the same word for what is one category.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        ndarray of object, of shape (n,)
            Stripped text, such as "1" for 1, "01" and "1.0"; None where it is missing.
        """
        codes, words = self.coded(name)
        found = np.array([*words, None], dtype=object)
        return found.take(codes)  # ABSENT is -1 and picks None

    def coded(self, name: str) -> tuple[np.ndarray, list[str]]:
        """A column as codes into a list of different words, as `texts` gives them.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        codes : ndarray of int, of shape (n,)
            -1 where a value is missing.
        words : list of str
            As private as the rows, like their order and number.
        """
        column = self._get(name)
        if isinstance(column, np.ndarray):
            found, codes = np.unique(column, return_inverse=True)
            found = found[~np.isnan(found)]  # at the end, if any
            codes = np.where(codes < len(found), codes, ABSENT)
            return codes, [str(plain(value)) for value in found.tolist()]
        text = column.text() if isinstance(column, Moments) else column
        same: dict[str, int] = {}
        place = [same.setdefault(canonical(word), len(same)) for word in text.words]
        return np.array([*place, ABSENT], dtype=np.int64).take(text.codes), list(same)

    def column(self, name: str) -> np.ndarray:
        """Numbers as float64 with NaN where missing, text as objects with None.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        ndarray of shape (n,)
            Its values.
        """
        column = self._get(name)
        if isinstance(column, Moments):
            column = column.text()
        if isinstance(column, Text):
            words = np.array([*column.words, None], dtype=object)
            return words.take(column.codes)  # ABSENT is -1 and picks None
        view = column.view()
        view.flags.writeable = False
        return view

    def identifiers(self, name: str) -> np.ndarray:
        """A column by which people are told apart, every cell by itself.

        Whether a column of a text file holds numbers or words depends on all of its cells. A
        person has the same name in either: "7" for 7, "07" and "7.0".

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        ndarray of shape (n,)
            Numbers, or words with None where one is missing.
        """
        column = self._get(name)
        if not isinstance(column, Text):
            return self.column(name)
        words = [*map(_named, column.words), None]
        return np.array(words, dtype=object).take(column.codes)

    def arrays(self) -> list[np.ndarray]:
        """The arrays behind the columns: numbers, or codes of text.

        Returns
        -------
        list of ndarray of shape (n,)
            Those that the table holds, not copies.
        """
        return [_array(column) for column in self._columns.values()]

    def numbers(self) -> np.ndarray:
        """All columns as one array (n, d), if none holds text.

        Returns
        -------
        ndarray of shape (n, d)
            float64.
        """
        words = [name for name in self.column_names if self.kind(name) == "text"]
        if words:
            raise of_rows(
                InputError(
                    f"column {words[0]!r} holds text; describe the table in a schema and start the "
                    "stages with Encode(schema)"
                )
            )
        return np.column_stack([np.empty((self.n, 0)), *map(self.column, self.column_names)])

    def match(self, name: str, categories: Sequence[str | float]) -> np.ndarray:
        """Position of each value among categories; -1 if missing, -2 if none of them.

        Numbers and their text are the same category: 1, ``"1"`` and ``"1.0"``.

        Parameters
        ----------
        name : str
            Of the column.
        categories : sequence of str or float
            What its values are compared with.

        Returns
        -------
        ndarray of int, of shape (n,)
            Positions.
        """
        column = self._get(name)
        if isinstance(column, Moments):
            column = column.text()
        if isinstance(column, Text):
            return column.match(tuple(categories))
        return _match_numbers(column, categories)

    def slice(self, start: int, stop: int) -> Table:
        """Rows from start up to stop, without a copy.

        Parameters
        ----------
        start, stop : int
            The first row, and the one behind the last.

        Returns
        -------
        Table
            That shares memory with this one.
        """
        return self.take(slice(start, stop))

    def empty(self) -> Table:
        """The same columns without a row, and without a way back to one.

        Returns
        -------
        Table
            With no row.
        """
        return empty_table({name: self.kind(name) for name in self._columns}, self.types)

    def take(self, index: Any) -> Table:
        """Rows picked by a slice, a mask or an array of positions.

        Parameters
        ----------
        index : slice or array of shape (m,)
            Which rows.

        Returns
        -------
        Table
            With these rows.
        """
        picked = {name: column[index] for name, column in self._columns.items()}
        n = len(next(iter(picked.values()))) if picked else len(np.arange(self.n)[index])
        return Table(picked, n, self._types)

    def drop(self, names: str | Sequence[str]) -> Table:
        """The table without some of its columns.

        Parameters
        ----------
        names : str or sequence of str
            Columns to be left out.

        Returns
        -------
        Table
            With the others.
        """
        gone = {names} if isinstance(names, str) else set(names)
        for name in gone:
            self._get(name)
        kept = {name: column for name, column in self._columns.items() if name not in gone}
        return Table(kept, self.n, self._types)

    def _get(self, name: str) -> Stored:
        try:
            return self._columns[name]
        except KeyError:
            have = ", ".join(self.column_names[:20]) + ", ..." * (self.d > 20)
            raise InputError(f"no column {name!r} in the table; it has {have}") from None


def empty_table(kinds: Mapping[str, str], types: Mapping[str, ColumnType] | None = None) -> Table:
    """A table without a row, of columns that hold "number" or "text"."""
    columns: dict[str, Stored] = {
        name: Text(np.empty(0, np.int32), []) if kind == "text" else np.empty(0)
        for name, kind in kinds.items()
    }
    return Table(columns, 0, types or {})


def _array(column: Stored) -> np.ndarray:
    if isinstance(column, Text):
        return column.codes
    return column.seconds if isinstance(column, Moments) else column


def joined(tables: Iterable[Table], n: int) -> Table:
    """The n rows of tables with the same columns, one after another."""
    columns: dict[str, np.ndarray] = {}
    coders: dict[str, Coder] = {}
    moments: set[str] = set()
    types: Mapping[str, ColumnType] = {}
    start = 0
    for table in tables:
        stop, types = start + table.n, table._types
        for name, part in table._columns.items():
            values = _array(part)
            if isinstance(part, Text):  # every table has codes of its own
                coder = coders.setdefault(name, Coder())
                values = np.append(coder.encode(part.words), np.int32(ABSENT))[part.codes]
            elif isinstance(part, Moments):
                moments.add(name)
            columns.setdefault(name, np.empty(n, values.dtype))[start:stop] = values
        start = stop
    whole: dict[str, Stored] = {
        k: Text(v, coders[k].words) if k in coders else Moments(v) if k in moments else v
        for k, v in columns.items()
    }
    return Table(whole, n, types)


def as_table(data: Any) -> Table:
    """A table from a `Table`, a dict of columns, or a pandas, pyarrow or polars table.

    Parameters
    ----------
    data : Table, dict of columns, or a pandas, pyarrow or polars table
        With named columns.

    Returns
    -------
    Table
        The same object, if it was one.

    Examples
    --------
    >>> as_table({"age": [31, 47], "job": ["cook", "nurse"]}).kind("age")
    'number'
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping):
        return Table.from_columns(data)
    from tacit.data.frames import from_frame

    return from_frame(data)


def unique_names(names: Iterable[Any]) -> list[str]:
    """Names without blanks around them, no two the same."""
    clean = [str(name).strip() for name in names]
    twice = sorted(name for name, times in Counter(clean).items() if times > 1)
    if twice:
        raise InputError(f"the table has more than one column called {', '.join(map(repr, twice))}")
    return clean


def _column(name: str, values: Any) -> tuple[Stored, ColumnType]:
    """One column from a sequence, and what its type says: nothing, if it is one of objects."""
    if isinstance(values, np.ma.MaskedArray):
        says = stored_array(name, values.data[:0])[1]  # the mask makes objects of numbers
        values = np.where(np.ma.getmaskarray(values), np.array(None), values.data)
        return stored_array(name, values)[0], says
    if isinstance(values, np.ndarray):
        return stored_array(name, values)
    from tacit.data.frames import from_series

    return from_series(name, values) or (stored_objects(list(values)), UNTYPED)


def stored_array(name: str, array: np.ndarray) -> tuple[Stored, ColumnType]:
    """An array of one dimension as a column, and what its type says of it."""
    if array.ndim != 1:
        raise InputError(f"column {name!r} must have one dimension, not {array.ndim}")
    kind = array.dtype.kind
    if kind in "iuf":
        with np.errstate(over="ignore"):  # of extended precision
            return array.astype(np.float64, copy=False), ColumnType("number")
    if kind in "Mm":
        whole = array.astype(f"{kind}8[s]")
        seconds = np.where(np.isnat(whole), np.nan, whole.astype(np.int64).astype(np.float64))
        if kind == "M":
            return Moments(seconds), ColumnType("date")
        return seconds, ColumnType("number")
    if kind == "O":
        return stored_objects(array.tolist()), UNTYPED
    if kind == "b":
        return truths(array), ColumnType("boolean")
    if kind not in "UST":
        raise InputError(
            f"column {name!r} holds {array.dtype}; Tacit reads numbers, dates and text: drop it"
        )
    return text_column(array.tolist()), ColumnType("category")


def truths(values: np.ndarray, missing: np.ndarray | None = None) -> Text:
    """A column of booleans, some of which may be missing."""
    codes = values.astype(np.int32)
    if missing is not None:
        codes[missing] = ABSENT
    return Text(codes, list(BOOLEAN))


def stored_objects(cells: list[Any]) -> Stored:
    """A column of any values: of numbers, if it can be; of words otherwise."""
    if all(map(_is_number, cells)):
        numbers = [np.nan if is_absent(cell) else as_float(cell) for cell in cells]
        return np.array(numbers, dtype=np.float64) + 0.0  # -0 is 0, as its text is
    return text_column(cells)


def text_column(cells: Iterable[Any]) -> Text:
    """A column of words from any values."""
    coder = Coder()
    texts = [cell if type(cell) is str else cell_text(cell) for cell in cells]
    return Text(coder.encode(texts), coder.words)


def _is_number(cell: Any) -> bool:
    """Whether a value is a number or missing, so that it can be kept as one."""
    if type(cell) is str or isinstance(cell, bool | np.bool_ | np.timedelta64):  # an Integral
        return False
    return is_absent(cell) or isinstance(cell, Real | Decimal)
