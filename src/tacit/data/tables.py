"""Tables of numbers and text, from columns and data frames, sliced without copies.

Every value is read by itself: blanks around it are stripped, and ``""``, ``NA``,
``NaN``, ``null`` and ``?`` are missing, whichever way the table came in. So what
becomes of one row never depends on another. The exception is the kind of a column:
one value of text makes all of it text (see `tacit.data.schema`).
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np

from tacit.exceptions import InputError, of_rows

__all__ = ["Table", "as_table"]

MISSING_MARKERS = frozenset({"", "NA", "NaN", "null", "?"})
ABSENT, UNSEEN = -1, -2  # codes of `Table.match`

PathLike: TypeAlias = str | os.PathLike[str]


def is_missing(text: str) -> bool:
    """Whether a stripped value stands for a missing value."""
    return text in MISSING_MARKERS or text.lstrip("+-").lower() == "nan"


def as_number(text: str) -> float | None:
    """The number that a value spells, or None if it spells none."""
    if "_" in text or not text.isascii():  # float() would take 1_000 and other digits
        return None
    try:
        return float(text)
    except ValueError:
        return None


def as_float(value: Any) -> float:
    """A number in double precision; beyond its range infinity, as if the value spelled it."""
    if isinstance(value, Decimal) and value.is_nan():
        return math.nan  # a signalling one, too
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def plain(value: float) -> float | int:
    """A number as a person would write it: whole ones without a point."""
    return int(value) if float(value).is_integer() and abs(value) < 1e16 else float(value)


def match_key(value: str | float) -> str | float:
    """What two values must share to be the same category: 1, ``"1"``, ``"01"``, ``"1.0"`` do."""
    if not isinstance(value, str):
        return as_float(value)
    if value.lower() in ("true", "false"):
        return value.lower()
    number = as_number(value)
    return value if number is None else number


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


@dataclass(frozen=True, eq=False)
class Text:
    """A column of text as codes into its words; slices share words and lookups."""

    codes: np.ndarray
    words: list[str]
    lookups: dict[tuple[str | float, ...], np.ndarray] = field(default_factory=dict)

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


Stored: TypeAlias = np.ndarray | Text


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
    """A small, immutable store of columns, each of numbers or of text.

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
        arrays = [_column(name, v) for name, v in zip(names, columns.values(), strict=True)]
        lengths = {len(array) for array in arrays}
        if len(lengths) > 1:
            raise InputError(f"columns must have the same length, not {sorted(lengths)}")
        return cls(dict(zip(names, arrays, strict=True)), max(lengths, default=0))

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
        return "text" if isinstance(self._get(name), Text) else "number"

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
        if isinstance(column, Text):
            words = np.array([*column.words, None], dtype=object)
            return words.take(column.codes)  # ABSENT is -1 and picks None
        view = column.view()
        view.flags.writeable = False
        return view

    def arrays(self) -> list[np.ndarray]:
        """The arrays behind the columns: numbers, or codes of text.

        Returns
        -------
        list of ndarray of shape (n,)
            Those that the table holds, not copies.
        """
        return [c.codes if isinstance(c, Text) else c for c in self._columns.values()]

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
        return empty_table({name: self.kind(name) for name in self._columns})

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
        return Table(picked, n)

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
        return Table({k: v for k, v in self._columns.items() if k not in gone}, self.n)

    def _get(self, name: str) -> Stored:
        try:
            return self._columns[name]
        except KeyError:
            have = ", ".join(self.column_names[:20]) + ", ..." * (self.d > 20)
            raise InputError(f"no column {name!r} in the table; it has {have}") from None


def empty_table(kinds: Mapping[str, str]) -> Table:
    """A table without a row, of columns that hold "number" or "text"."""
    columns: dict[str, Stored] = {
        name: Text(np.empty(0, np.int32), []) if kind == "text" else np.empty(0)
        for name, kind in kinds.items()
    }
    return Table(columns, 0)


def joined(tables: Iterable[Table], n: int) -> Table:
    """The n rows of tables with the same columns, one after another."""
    columns: dict[str, np.ndarray] = {}
    coders: dict[str, Coder] = {}
    start = 0
    for table in tables:
        stop = start + table.n
        for name, part in table._columns.items():
            if isinstance(part, Text):  # every table has codes of its own
                coder = coders.setdefault(name, Coder())
                values = np.append(coder.encode(part.words), np.int32(ABSENT))[part.codes]
            else:
                values = part
            columns.setdefault(name, np.empty(n, values.dtype))[start:stop] = values
        start = stop
    whole = {k: Text(v, coders[k].words) if k in coders else v for k, v in columns.items()}
    return Table(whole, n)


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
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # pandas
        names = unique_names(data.columns)
        return Table.from_columns({n: _from_series(data.iloc[:, i]) for i, n in enumerate(names)})
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        from tacit.data.arrow import from_arrow, load_pyarrow

        pa = load_pyarrow(f"a table of type {type(data).__name__}")
        try:
            return from_arrow(pa.table(data))
        except pa.ArrowException:
            raise InputError(
                f"the {type(data).__name__} has a column that arrow cannot hold, such as one of "
                "128-bit integers; cast it to float64, or to text"
            ) from None
    raise InputError(
        f"cannot read a table from {type(data).__name__}; pass a dict of columns, a pandas, "
        "polars or pyarrow table, or the result of read_table(path)"
    )


def unique_names(names: Iterable[Any]) -> list[str]:
    """Names without blanks around them, no two the same."""
    clean = [str(name).strip() for name in names]
    twice = sorted(name for name, times in Counter(clean).items() if times > 1)
    if twice:
        raise InputError(f"the table has more than one column called {', '.join(map(repr, twice))}")
    return clean


def _from_series(series: Any) -> np.ndarray:
    """The values of a pandas column."""
    kind = getattr(series.dtype, "kind", "O")
    if kind in "iuf":
        with np.errstate(over="ignore"):  # of extended precision
            return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(series.to_numpy(dtype="datetime64[s]" if kind == "M" else object))


def _column(name: str, values: Any) -> Stored:
    """One column of numbers or text from a sequence."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), np.array(None), values.data)
    array = np.asarray(values) if hasattr(values, "dtype") else np.array(list(values), dtype=object)
    if array.ndim != 1:
        raise InputError(f"column {name!r} must have one dimension, not {array.ndim}")
    if array.dtype.kind in "iuf":
        with np.errstate(over="ignore"):  # of extended precision
            return array.astype(np.float64, copy=False)
    if array.dtype.kind == "M":
        array = array.astype("datetime64[s]").astype(object)  # None where not a time
    cells = [None if is_absent(value) else value for value in array.tolist()]
    if all(v is None or (isinstance(v, Real | Decimal) and not isinstance(v, bool)) for v in cells):
        return np.array([np.nan if v is None else as_float(v) for v in cells], dtype=np.float64)
    coder = Coder()
    return Text(coder.encode([cell_text(name, value) for value in cells]), coder.words)


def is_absent(value: Any) -> bool:
    """Whether a Python value, rather than its text, stands for a missing one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, float | np.floating) and math.isnan(value)


def cell_text(name: str, value: Any) -> str:
    """The text of one of Python's plain values; "" if it is missing."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, Real | Decimal):
        return str(plain(as_float(value)))
    if isinstance(value, date):  # and datetime
        return value.isoformat().removesuffix("T00:00:00")
    raise of_rows(
        InputError(
            f"column {name!r} holds {type(value).__name__} objects; Tacit reads numbers and text"
        )
    )
