"""Tables of numbers and text: from files and data frames, sliced without copies.

Every cell is read by itself: blanks around it are stripped, and ``""``, ``NA``,
``NaN``, ``null`` and ``?`` are missing, whichever way the table came in. So what
becomes of one row never depends on another.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from io import BytesIO, StringIO
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from tacit.exceptions import FileError, InputError
from tacit.files import write_bytes

__all__ = ["Table", "as_table", "read_table", "write_predictions"]

MISSING_MARKERS = frozenset({"", "NA", "NaN", "null", "?"})
ABSENT, UNSEEN = -1, -2  # codes of `Table.match`
BLOCK_ROWS = 20_000

PathLike: TypeAlias = str | os.PathLike[str]


def is_missing(text: str) -> bool:
    """Whether a stripped cell stands for a missing value."""
    return text in MISSING_MARKERS or text.lstrip("+-").lower() == "nan"


def as_number(text: str) -> float | None:
    """The number that a cell spells, or None if it spells none."""
    if "_" in text or not text.isascii():  # float() would take 1_000 and other digits
        return None
    try:
        return float(text)
    except ValueError:
        return None


def number_text(value: float) -> str:
    """A number as text, whole ones without a point: ``3.0`` is ``"3"``."""
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)


def match_key(value: str | float) -> str | float:
    """What two cells must share to be the same category: 1, ``"1"``, ``"01"``, ``"1.0"`` do."""
    if not isinstance(value, str):
        return float(value)
    if value.lower() in ("true", "false"):
        return value.lower()
    number = as_number(value)
    return value if number is None else number


class _Coder(dict[str, int]):
    """Codes of words in the order they appear; `ABSENT` for a missing cell."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

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
        return code

    def encode(self, cells: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(self.__getitem__, cells), np.int32, len(cells))


@dataclass(frozen=True, eq=False)
class _Text:
    """A column of text as codes into its words; slices share words and lookups."""

    codes: np.ndarray
    words: list[str]
    lookups: dict[tuple[str | float, ...], np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> _Text:
        return _Text(self.codes[index], self.words, self.lookups)

    def values(self) -> np.ndarray:
        words = np.array([*self.words, None], dtype=object)
        return words.take(self.codes)  # ABSENT is -1 and picks None

    def match(self, categories: tuple[str | float, ...]) -> np.ndarray:
        lookup = self.lookups.get(categories)
        if lookup is None:
            position = {match_key(c): i for i, c in enumerate(categories)}
            found = [position.get(match_key(word), UNSEEN) for word in self.words]
            lookup = self.lookups[categories] = np.array([*found, ABSENT], dtype=np.int64)
        return lookup.take(self.codes)


def _match_numbers(values: np.ndarray, categories: tuple[str | float, ...]) -> np.ndarray:
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

    Examples
    --------
    >>> table = Table.from_columns({"age": [31, None], "job": ["cook", " ? "]})
    >>> table.n, table.column_names, table.kind("job")
    (2, ('age', 'job'), 'text')
    >>> table.column("age"), table.column("job")
    (array([31., nan]), array(['cook', None], dtype=object))
    """

    _columns: dict[str, np.ndarray | _Text]
    n: int
    sparse = False

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> Table:
        """A table of named columns, each a sequence of numbers or of text.

        Arrays of float64 are not copied: do not change them afterwards.
        """
        names = _unique([str(name).strip() for name in columns], InputError, "the table")
        arrays = [_column(name, v) for name, v in zip(names, columns.values(), strict=True)]
        lengths = {len(array) for array in arrays}
        if len(lengths) > 1:
            raise InputError(f"columns must have the same length, not {sorted(lengths)}")
        return cls(dict(zip(names, arrays, strict=True)), lengths.pop() if lengths else 0)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    @property
    def d(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"Table({self.n} rows: {', '.join(self.column_names)})"

    def __len__(self) -> int:
        return self.n

    def kind(self, name: str) -> Literal["number", "text"]:
        """How a column is stored."""
        return "text" if isinstance(self._get(name), _Text) else "number"

    def column(self, name: str) -> np.ndarray:
        """Numbers as float64 with NaN where missing, text as objects with None."""
        column = self._get(name)
        if isinstance(column, _Text):
            return column.values()
        view = column.view()
        view.flags.writeable = False
        return view

    def match(self, name: str, categories: Sequence[str | float]) -> np.ndarray:
        """Position of each cell among categories; -1 if missing, -2 if none of them.

        Numbers and their text are the same category: 1, ``"1"`` and ``"1.0"``.
        """
        column, wanted = self._get(name), tuple(categories)
        if isinstance(column, _Text):
            return column.match(wanted)
        return _match_numbers(column, wanted)

    def slice(self, start: int, stop: int) -> Table:
        """Rows from start up to stop, without a copy."""
        return self.take(slice(start, stop))

    def take(self, index: Any) -> Table:
        """Rows picked by a slice, a mask or an array of positions."""
        picked = {name: column[index] for name, column in self._columns.items()}
        n = len(next(iter(picked.values()))) if picked else len(np.arange(self.n)[index])
        return Table(picked, n)

    def head(self, rows: int = 5) -> Table:
        """The first rows."""
        return self.slice(0, rows)

    def drop(self, names: str | Sequence[str]) -> Table:
        """The table without some of its columns."""
        gone = {names} if isinstance(names, str) else set(names)
        for name in gone:
            self._get(name)
        return Table({k: v for k, v in self._columns.items() if k not in gone}, self.n)

    def _get(self, name: str) -> np.ndarray | _Text:
        try:
            return self._columns[name]
        except KeyError:
            have = ", ".join(self.column_names)
            raise InputError(f"no column {name!r} in the table; it has {have}") from None


def as_table(data: Any) -> Table:
    """A table from a `Table`, a dict of columns, or a pandas, pyarrow or polars table.

    Examples
    --------
    >>> as_table({"x": [1, 2, 3]})
    Table(3 rows: x)
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping):
        return Table.from_columns(data)
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # pandas
        names = _unique([str(name).strip() for name in data.columns], InputError, "the table")
        return Table.from_columns({n: _from_series(data.iloc[:, i]) for i, n in enumerate(names)})
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        try:
            import pyarrow as pa
        except ImportError:
            raise InputError(
                f'a table of type {type(data).__name__} needs pyarrow: pip install "tacit[tables]"'
            ) from None
        return _from_arrow(pa.table(data), InputError, "the table")
    raise InputError(
        f"cannot read a table from {type(data).__name__}; pass a dict of columns, a pandas, "
        "polars or pyarrow table, or the result of read_table(path)"
    )


def read_table(path: PathLike) -> Table:
    """Read a CSV, TSV or Parquet file; text may be compressed with gzip, bzip2 or xz.

    Text must be UTF-8 with one header line. A column is stored as numbers if
    every cell that is not missing spells one. Parquet needs pyarrow.

    Parameters
    ----------
    path : str or path
        Ends in ``.csv``, ``.tsv`` (either may go on with ``.gz``, ``.bz2`` or
        ``.xz``) or ``.parquet``.

    Raises
    ------
    FileError
        If the file cannot be read or is not such a table.
    """
    path = Path(path)
    with _reading(path):
        if path.is_dir():
            raise FileError(f"{path} is a directory; name one table in it")
        path.stat()
        if not path.is_file():
            raise FileError(f"{path} is not a regular file; write the table to one first")
        suffixes = [suffix.lower() for suffix in path.suffixes]
        opener: Callable[..., Any] = open
        if suffixes and suffixes[-1] in _OPENERS:
            opener = _OPENERS[suffixes.pop()]
        separator = _SEPARATORS.get(suffixes[-1]) if suffixes else None
        parquet = opener is open and suffixes[-1:] == [".parquet"]
        if not parquet and separator is None:
            raise FileError(
                f"{path}: unknown kind of table; the name must end in .csv, .csv.gz, .csv.bz2, "
                ".csv.xz, .tsv or .parquet"
            )
        with opener(path, "rb") as file:
            start = file.read(4096)
        if not start.strip():
            raise FileError(f"{path} is empty; a table needs a header and rows")
        if separator is None:
            return _read_parquet(path, start)
        if start.startswith(b"PAR1"):
            raise FileError(f"{path} holds Parquet, not text; rename it to end in .parquet")
        if b"\0" in start:
            raise FileError(f"{path} is binary, not text; save the table as CSV or Parquet")
        return _read_text(path, opener, separator)


_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_SEPARATORS = {".csv": ",", ".tsv": "\t"}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what the system says about a file into a `FileError`."""
    try:
        yield
    except FileNotFoundError:
        raise FileError(f"no such file: {path}; check the spelling and the folder") from None
    except PermissionError:
        raise FileError(f"{path} may not be read by this user; ask for read access") from None
    except UnicodeDecodeError:
        raise FileError(f"{path} is not text in UTF-8; save it again with that encoding") from None
    except csv.Error as error:
        raise FileError(f"{path} is not well-formed: {error}; check its quotes") from None
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile):
        raise FileError(f"{path} is damaged or cut short; fetch or compress it again") from None
    except OSError as error:
        reason = error.strerror or "it is damaged; fetch or compress it again"
        raise FileError(f"cannot read {path}: {reason}") from None


def _unique(names: Sequence[str], error: type[InputError], where: str) -> list[str]:
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise error(f"{where} has more than one column called {', '.join(map(repr, twice))}")
    return list(names)


def _read_text(path: Path, opener: Callable[..., Any], separator: str) -> Table:
    text: set[int] = set()  # positions of columns known not to be numbers
    while True:  # at most twice: again if a column turned out to be text after its first block
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            table = _parse(file, path, separator, text)
        if table is not None:
            return table


def _parse(file: Any, path: Path, separator: str, text: set[int]) -> Table | None:
    reader = csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True)
    names = [name.strip() for name in next((row for row in reader if row), [])]
    _check_header(names, path)
    records = _records(reader, len(names), path)
    coders = [_Coder() for _ in names]
    parts: list[list[np.ndarray]] = [[] for _ in names]
    again = False
    while block := list(islice(records, BLOCK_ROWS)):
        for i, cells in enumerate(zip(*block, strict=True)):
            numbers = None if i in text else _numbers(cells)
            if numbers is None and i not in text:
                text.add(i)
                again |= bool(parts[i])
            parts[i].append(coders[i].encode(cells) if numbers is None else numbers)
    if not parts[0]:
        raise FileError(f"{path} has a header and no rows; a table needs at least one")
    if again:
        return None
    arrays = [np.concatenate(part) for part in parts]
    columns: dict[str, np.ndarray | _Text] = {
        name: _Text(array, coders[i].words) if i in text else array
        for i, (name, array) in enumerate(zip(names, arrays, strict=True))
    }
    return Table(columns, len(arrays[0]))


def _check_header(names: list[str], path: Path) -> None:
    if len(names) == 1 and (mark := next((m for m in ";\t|" if m in names[0]), None)):
        raise FileError(
            f"{path} seems to separate its fields by {mark!r}; save it with commas, or with tabs "
            "as .tsv"
        )
    if "" in names:
        raise FileError(
            f"{path}: column {names.index('') + 1} has no name; name it, or if it is a row index "
            "write the table without it"
        )
    _unique(names, FileError, str(path))


def _records(reader: Any, width: int, path: Path) -> Iterator[list[str]]:
    for row in reader:
        if len(row) == width:
            yield row
        elif len(row) > 1 or (row and row[0].strip()):  # else a blank line
            raise FileError(
                f"{path}, line {reader.line_num}: {len(row)} fields where the header has {width}; "
                "put quotes around fields that contain the separator"
            )


def _numbers(cells: Sequence[str]) -> np.ndarray | None:
    """The numbers that a block of cells spells, or None if one spells none."""
    joined = "".join(cells)
    if "_" in joined or not joined.isascii():  # as in `as_number`
        return None
    with suppress(ValueError):
        return np.fromiter(map(float, cells), np.float64, len(cells))
    try:
        return np.array([np.nan if is_missing(c.strip()) else float(c) for c in cells])
    except ValueError:
        return None


def _read_parquet(path: Path, start: bytes) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise FileError(f'{path}: Parquet needs pyarrow: pip install "tacit[tables]"') from None
    if not start.startswith(b"PAR1"):
        raise FileError(f"{path} is not a Parquet file; if it is text, rename it to end in .csv")
    try:
        with open(path, "rb") as file:
            arrow = pq.ParquetFile(file).read()
    except (pa.ArrowException, OSError):
        raise FileError(f"{path} is damaged or cut short; fetch or write it again") from None
    if arrow.num_rows == 0:
        raise FileError(f"{path} has columns and no rows; a table needs at least one")
    return _from_arrow(arrow, FileError, str(path))


def _from_arrow(arrow: Any, error: type[InputError], where: str) -> Table:
    names = _unique([name.strip() for name in arrow.column_names], error, where)
    columns = {n: _from_arrow_column(n, c) for n, c in zip(names, arrow.columns, strict=True)}
    return Table(columns, arrow.num_rows)


def _from_arrow_column(name: str, column: Any) -> np.ndarray | _Text:
    import pyarrow as pa

    is_ = pa.types
    stored = column.type
    if is_.is_dictionary(stored):
        cells: list[Any] = []
        for chunk in column.chunks:
            words = [*chunk.dictionary.to_pylist(), None]
            cells += [words[code] for code in chunk.indices.cast(pa.int64()).fill_null(-1).tolist()]
        return _column(name, cells)
    if any(f(stored) for f in (is_.is_null, is_.is_integer, is_.is_floating, is_.is_decimal)):
        return np.asarray(column.cast(pa.float64(), safe=False).to_numpy())
    if is_.is_date(stored) or is_.is_timestamp(stored):
        return _column(name, column.to_numpy())
    if not (is_.is_boolean(stored) or "string" in str(stored)) or is_.is_nested(stored):
        raise InputError(f"column {name!r} holds {stored}; Tacit reads numbers and text: drop it")
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    coder = _Coder()
    codes = np.append(coder.encode(encoded.dictionary.to_pylist()), np.int32(ABSENT))
    return _Text(codes[encoded.indices.fill_null(-1).to_numpy()], coder.words)


def _from_series(series: Any) -> np.ndarray:
    """The values of a pandas column, with NaN or None for what pandas calls missing."""
    if getattr(series.dtype, "kind", "O") in "iuf":
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    if getattr(series.dtype, "kind", "O") == "M":
        return np.asarray(series.to_numpy(dtype="datetime64[s]"))
    values = np.array(series.astype(object).to_numpy(), dtype=object)
    values[series.isna().to_numpy(dtype=bool)] = None
    return values


def _column(name: str, values: Any) -> np.ndarray | _Text:
    """One column of numbers or text from a sequence."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), np.array(None), values.data)
    array = np.asarray(values) if hasattr(values, "dtype") else np.array(list(values), dtype=object)
    if array.ndim != 1:
        raise InputError(f"column {name!r} must have one dimension, not {array.ndim}")
    if array.dtype.kind in "iuf":
        return array.astype(np.float64, copy=False)
    if array.dtype.kind == "M":
        array = array.astype("datetime64[s]").astype(object)  # None where not a time
    cells = [None if _absent(value) else value for value in array.tolist()]
    if all(v is None or (isinstance(v, Real | Decimal) and not isinstance(v, bool)) for v in cells):
        return np.array([np.nan if v is None else float(v) for v in cells], dtype=np.float64)
    coder = _Coder()
    return _Text(coder.encode([_cell_text(name, value) for value in cells]), coder.words)


def _absent(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating | Decimal) and math.isnan(value)


def _cell_text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, Real | Decimal):
        return number_text(float(value))
    if isinstance(value, date):  # and datetime
        return value.isoformat().removesuffix("T00:00:00")
    raise InputError(
        f"column {name!r} holds {type(value).__name__} objects; Tacit reads numbers and text"
    )


def write_predictions(path: PathLike, columns: Mapping[str, Any]) -> None:
    """Write columns to a CSV or Parquet file: all of it or, if that fails, nothing.

    Parameters
    ----------
    path : str or path
        Ends in ``.csv`` or ``.parquet``.
    columns : mapping of str to sequence
        Name and values of each column, all of one length.
    """
    path = Path(path)
    values = {str(name): np.asarray(column).tolist() for name, column in columns.items()}
    lengths = sorted({len(column) for column in values.values()})
    if len(lengths) != 1:
        raise InputError(f"predictions need columns of one length, not {lengths or 'none'}")
    if path.suffix.lower() == ".csv":
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(values)
        for row in zip(*values.values(), strict=True):
            writer.writerow(["" if _absent(value) else value for value in row])
        write_bytes(path, text.getvalue().encode())
    elif path.suffix.lower() == ".parquet":
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise FileError(f'{path}: Parquet needs pyarrow: pip install "tacit[tables]"') from None
        buffer = BytesIO()
        pq.write_table(pa.table(values), buffer)
        write_bytes(path, buffer.getvalue())
    else:
        raise FileError(f"{path}: predictions are written as .csv or .parquet")
