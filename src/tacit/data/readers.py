"""Table files: read whole or refused with a reason, written whole or not at all."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO, StringIO, TextIOWrapper
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.arrow import ArrowColumn, from_arrow, is_text, load_pyarrow
from tacit.data.cells import is_absent, is_missing
from tacit.data.tables import (
    UNTYPED,
    Coder,
    PathLike,
    Stored,
    Table,
    Text,
    unique_names,
)
from tacit.exceptions import FileError, InputError, carried, of_rows, raise_alone, shown
from tacit.files import write_bytes

BLOCK_ROWS, BLOCK_TEXT = 20_000, 1 << 24  # rows or characters to look at together
BATCH_ROWS = 1 << 17  # of one column of Parquet
LONGEST_ROW = 1 << 24  # characters
MOST_COLUMNS = 1 << 16
FREE, TIMES = 1 << 30, 100  # bytes that any table may take, or else so many times its file
FREE_TEXT, TIMES_TEXT = 1 << 22, 1000  # the same for text below `FREE`, which takes time
LINE = 8  # bytes that a line of text counts for at least: that much of it stays

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
SEPARATORS = {".csv": ",", ".tsv": "\t"}  # unless the header has more of another
_COMMA = re.compile(r"(?=.*\d)[+-]?(\d*|\d{1,3}(\.\d{3})+),\d*([eE][+-]?\d+)?", re.ASCII)


def read_table(path: PathLike, *, limit: int | None = None, decimal: str | None = None) -> Table:
    """Read a file that ends in ``.csv``, ``.tsv`` or ``.parquet``, or raise a `FileError`.

    Text must be UTF-8 with one header line, and may be compressed (``.csv.gz``,
    ``.bz2``, ``.xz``). The header line alone says what separates fields: commas, semicolons,
    tabs or bars, whichever there are most of. A column is stored as numbers if every value that
    is not missing spells one. Parquet needs pyarrow.

    Parameters
    ----------
    path : str or path
        The file.
    limit : int, optional
        Bytes that the table may take in memory, and that its text may unpack to: a small file
        can be made to unpack to more than any machine has. 1 GB unless given, or a hundred times
        the size of the file. The text of a file below 1 MB: a thousand times its size, or 4 MB.
    decimal : {".", ","}, optional
        Whether 1,5 is a number, too. It is unless given if semicolons separate the fields.

    Returns
    -------
    Table
        Its columns, in the order of the file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "people.csv").write_text("age,job\\n31,cook\\n")
    ...     read_table(Path(folder, "people.csv")).column_names
    ('age', 'job')
    """
    path = Path(path)
    require_limit(limit)
    require_decimal(decimal)
    with reading(path):
        if path.is_dir():
            raise FileError(f"{path} is a directory; name one table in it")
        size = path.stat().st_size
        text_limit = unpacked_limit(size) if limit is None else limit
        limit = max(FREE, TIMES * size) if limit is None else limit
        if not path.is_file():
            raise FileError(f"{path} is not a regular file; write the table to one first")
        opener, kind = kind_of(path)
        with opener(path, "rb") as file:
            start = file.read(4096)
        if not start.strip():
            raise FileError(f"{path} is empty; a table needs a header and rows")
        if kind == ".parquet":
            return _read_parquet(path, start, limit)
        require_text(path, start)
        return _read_text(path, opener, Dialect(kind, decimal), limit, text_limit)


def header_of(path: PathLike) -> list[str]:
    """Names of the columns of a file of text; no other line of it is read."""
    path = Path(path)
    with reading(path):
        opener, kind = kind_of(path)
        with opener(path, "rb") as file:
            require_text(path, file.read(4096))
        limit = unpacked_limit(path.stat().st_size)
        with text_blocks(path, opener, Dialect(kind), limit) as (names, _):
            return names


def parse_table(name: str, data: bytes, *, separator: str = ",", header: str = "") -> Table:
    """The table that a text of known contents holds, as `read_table` would read it.

    Faster than that, by pyarrow, where it is installed.

    Parameters
    ----------
    name : str
        For messages.
    data : bytes
    separator : str
    header : str
        Line to put in front of a text that has none.
    """
    data = f"{header}\n".encode() * bool(header) + data
    with reading(Path(name)):
        try:
            from pyarrow import ArrowInvalid, dictionary, int32, string
            from pyarrow import csv as arrow
        except ImportError:
            return _read_text(Path(name), _opener(data), Dialect(separator, "."), FREE, FREE)
        first = data.partition(b"\n")[0].decode("utf-8").rstrip("\r")
        names = next(csv.reader([first], delimiter=separator))
        words = {column: dictionary(int32(), string()) for column in names}
        parse = arrow.ParseOptions(delimiter=separator)
        convert = arrow.ConvertOptions(column_types=words, strings_can_be_null=False)
        try:
            found = arrow.read_csv(BytesIO(data), parse_options=parse, convert_options=convert)
        except ArrowInvalid:
            raise_alone(FileError(f"{name} is damaged: it is not the table that it should be"))
        table = from_arrow(found)
        columns = {column: _spelled(table, column) for column in table.column_names}
        return Table(columns, table.n, dict.fromkeys(columns, UNTYPED))


def _opener(data: bytes) -> Callable[..., Any]:
    return lambda path, mode, **options: TextIOWrapper(BytesIO(data), **options)


def _spelled(table: Table, name: str) -> Stored:
    """A column of words, as numbers if all of them spell one."""
    column = table._columns[name]
    if isinstance(column, Text) and (numbers := spelled_numbers(column.words)) is not None:
        return np.append(numbers, np.nan)[column.codes]
    return column


def kind_of(path: Path) -> tuple[Callable[..., Any], str]:
    """How to open a table, and which kind it is: .csv, .tsv or .parquet."""
    suffixes = ["", *(suffix.lower() for suffix in path.suffixes)]
    opener = _OPENERS.get(suffixes[-1], open)
    kind = suffixes[-1] if opener is open else suffixes[-2]
    if kind not in SEPARATORS and not (opener is open and kind == ".parquet"):
        raise FileError(
            f"{path}: unknown kind of table; the name must end in .csv, .csv.gz, .csv.bz2, "
            ".csv.xz, .tsv or .parquet"
        )
    return opener, kind


def require_text(path: Path, start: bytes) -> None:
    """Refuse a file that begins like no text."""
    if not start.strip():
        raise FileError(f"{path} is empty; a table needs a header and rows")
    if start.startswith(b"PAR1"):
        raise FileError(f"{path} holds Parquet, not text; rename it to end in .parquet")
    if b"\0" in start:
        raise of_rows(FileError(f"{path} is binary, not text; save the table as CSV or Parquet"))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with a file into a `FileError` that names it."""
    try:
        yield
    except FileError:
        raise
    except UnicodeDecodeError:  # it holds what it could not decode
        raise_alone(of_rows(FileError(f"{path} is not text in UTF-8; save it again as that")))
    except InputError as error:
        raise carried(FileError(f"{path}: {error}"), error) from None
    except FileNotFoundError:
        raise FileError(f"no such file: {path}; check the spelling and the folder") from None
    except PermissionError:
        raise FileError(f"{path} may not be read by this user; ask for read access") from None
    except csv.Error as error:
        raise_alone(of_rows(FileError(f"{path} is not well-formed: {error}; check its quotes")))
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile):
        raise FileError(f"{path} is damaged or cut short; fetch or compress it again") from None
    except MemoryError:
        raise too_large_for_memory(path) from None
    except OSError as error:
        reason = error.strerror or "it is damaged; fetch or compress it again"
        raise FileError(f"cannot read {path}: {reason}") from None


def too_large_for_memory(path: Path) -> FileError:
    return FileError(
        f"{path} does not fit into the memory that is free, or is damaged; free some, open it "
        "with scan(path), which holds a part at a time, or take fewer rows or columns"
    )


def require_decimal(decimal: str | None) -> None:
    if decimal not in (None, ".", ","):
        raise InputError(f"decimal={shown(decimal)} must be '.' or ','")


def require_limit(limit: float | None) -> None:
    if limit is not None and not (isinstance(limit, Real) and limit > 0):
        raise InputError(f"limit={shown(limit)} must be a positive number of bytes, or None")


def unpacked_limit(size: int) -> int:
    """Bytes to which a file of text may unpack: so that what little there is takes little time."""
    return max(FREE_TEXT, min(FREE, TIMES_TEXT * size), TIMES * size)


class _Lines:
    """Lines of a text, none of whose rows and which itself is not too long."""

    def __init__(self, file: Any, limit: float) -> None:
        self.total = self.row = 0  # characters so far, and of this row
        self._file = file
        self._limit = limit

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line: str = self._file.readline(LONGEST_ROW + 1)
        length = len(line)
        self.total += length if length > LINE else LINE
        self.row += length
        if self.row > LONGEST_ROW:
            raise of_rows(
                InputError(f"a row has more than {LONGEST_ROW} characters; check its quotes")
            )
        if self.total > self._limit:
            raise _unpacks_too_far(self._limit)
        if not line:
            raise StopIteration
        return line


def _too_large(limit: float) -> InputError:
    return InputError(
        f"it would take more than {_bytes(limit)} of memory. A small file that unpacks to "
        "so much is damaged, or made to fill memory; if you trust it, unpack it first, or read it "
        "in Python with read_table(path, limit=...)"
    )


def _unpacks_too_far(limit: float) -> InputError:
    return InputError(
        f"it unpacks to more than {_bytes(limit)} of text, a line counted as {LINE} bytes at "
        f"least: the limit for its size. A small file that unpacks to so much is damaged, or made "
        "to take up memory and time; if you trust it, unpack it first, or allow more in Python "
        "with read_table(path, limit=...) or scan(path, limit=...)"
    )


def _bytes(number: float) -> str:
    return f"{number / 2**30:.3g} GB" if number >= 2**30 else f"{number / 2**20:.3g} MB"


@dataclass(frozen=True)
class Dialect:
    """How a file of text is to be read: by the ending of its name, or what separates its fields;
    and whether 1,5 is a number, None if its header is to say."""

    kind: str
    decimal: str | None = None

    def separator(self, header: str) -> str:
        """What separates fields: what there is most of in the header line."""
        usual = SEPARATORS.get(self.kind, self.kind)
        if self.kind not in SEPARATORS:
            return usual
        outside = header.split('"')[::2]  # of quotes
        counts = {mark: sum(part.count(mark) for part in outside) for mark in (usual, *",;\t|")}
        return max(counts, key=counts.__getitem__)

    def reads_commas(self, separator: str) -> bool:
        """Whether 1,5 is a number."""
        return self.decimal == "," or (self.decimal is None and separator == ";")


@contextmanager
def text_blocks(
    path: Path, opener: Callable[..., Any], dialect: Dialect, limit: float, rows: int | None = None
) -> Iterator[tuple[list[str], Iterator[list[list[str]]]]]:
    """The header of a file of text, and its rows in blocks."""
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        lines = _Lines(file, limit)
        first = next((line for line in lines if line.strip()), "")
        separator = dialect.separator(first)
        reader = csv.reader(
            chain([first], lines), delimiter=separator, skipinitialspace=True, strict=True
        )
        names = _header(next((row for row in reader if row), []))
        blocks = _blocks(reader, lines, len(names), rows or BLOCK_ROWS)
        yield names, map(_pointed, blocks) if dialect.reads_commas(separator) else blocks


def _pointed(block: list[list[str]]) -> list[list[str]]:
    """Rows in which 1,5 and 1.234,5 are written as other programs do: 1.5 and 1234.5."""
    return [[_with_point(cell) if "," in cell else cell for cell in row] for row in block]


def _with_point(cell: str) -> str:
    if _COMMA.fullmatch(cell.strip()):
        return cell.replace(".", "").replace(",", ".")
    return cell


def _read_text(
    path: Path, opener: Callable[..., Any], dialect: Dialect, limit: int, text_limit: int
) -> Table:
    text: set[int] = set()  # positions of columns known not to be numbers
    again = True
    while again:  # at most twice: again if a column turned out to be text after its first block
        again = False
        with text_blocks(path, opener, dialect, text_limit) as (names, blocks):
            coders = [Coder() for _ in names]
            parts: list[list[np.ndarray]] = [[] for _ in names]
            n = 0
            for block in blocks:
                for i, cells in enumerate(zip(*block, strict=True)):
                    numbers = None if i in text else spelled_numbers(cells)
                    if numbers is None and i not in text:
                        text.add(i)
                        again |= bool(parts[i])
                    parts[i].append(coders[i].encode(cells) if numbers is None else numbers)
                n += len(block)
                if 8 * n * len(names) + sum(coder.size for coder in coders) > limit:
                    raise _too_large(limit)
    if not parts[0]:
        raise FileError(f"{path} has a header and no rows; a table needs at least one")
    arrays = [np.concatenate(part) for part in parts]
    columns: dict[str, Stored] = {
        name: Text(arrays[i], coders[i].words) if i in text else arrays[i]
        for i, name in enumerate(names)
    }
    return Table(columns, len(arrays[0]), dict.fromkeys(columns, UNTYPED))


def _header(row: Sequence[str]) -> list[str]:
    require_width(len(row))
    names = [name.strip() for name in row]
    if "" in names:
        raise InputError(
            f"column {names.index('') + 1} has no name; name it, or if it is a row index write "
            "the table without it"
        )
    return unique_names(names)


def require_width(columns: int) -> None:
    if columns > MOST_COLUMNS:
        raise InputError(
            f"it has {columns} columns, and {MOST_COLUMNS} are read from a file at most; wider "
            "rows are better given as an array"
        )


def _blocks(reader: Any, lines: _Lines, width: int, rows: int) -> Iterator[list[list[str]]]:
    """Rows, some at a time."""
    block: list[list[str]] = []
    start = lines.total
    for row in reader:
        lines.row = 0
        if len(row) == width:
            block.append(row)
            if len(block) >= rows or lines.total - start > BLOCK_TEXT:
                yield block
                block, start = [], lines.total
        elif len(row) > 1 or (row and row[0].strip()):  # else a blank line
            raise of_rows(
                InputError(
                    f"the header has {width} fields, and a row has another number of them; put "
                    "quotes around fields that contain the separator"
                )
            )
    if block:
        yield block


def spelled_numbers(cells: Sequence[str]) -> np.ndarray | None:
    """The numbers that a block of values spells, or None if one spells none."""
    joined = "".join(cells)
    if "_" in joined or not joined.isascii():  # as in `as_number`
        return None
    with suppress(ValueError):
        return np.fromiter(map(float, cells), np.float64, len(cells))
    try:
        return np.array([np.nan if is_missing(c.strip()) else float(c) for c in cells])
    except ValueError:
        return None


def _read_parquet(path: Path, start: bytes, limit: int) -> Table:
    """Column by column and batch by batch, text as a dictionary: whatever the file declares,
    no more is held than what was counted, and one page of the file."""
    pa = load_pyarrow("Parquet")
    if not start.startswith(b"PAR1"):
        raise FileError(f"{path} is not a Parquet file; if it is text, rename it to end in .csv")
    try:
        with open(path, "rb") as file, pa.parquet.ParquetFile(file) as whole:
            stored = {field.name: field.type for field in whole.schema_arrow}
            require_width(whole.metadata.num_columns)
            names = unique_names(whole.schema_arrow.names)
            columns = [ArrowColumn(*entry) for entry in zip(names, stored.values(), strict=True)]
            rows = whole.metadata.num_rows
            if 8 * rows * len(columns) > limit:
                raise _too_large(limit)
        size, words = 0, [name for name, kind in stored.items() if is_text(kind)]
        with open(path, "rb") as file, pa.parquet.ParquetFile(file, read_dictionary=words) as whole:
            for column, name in zip(columns, stored, strict=True):
                for batch in whole.iter_batches(BATCH_ROWS, columns=[name]):
                    if size + batch.nbytes > limit:
                        raise _too_large(limit)
                    column.add(batch.column(0))
                    if size + column.size > limit:
                        raise _too_large(limit)
                size += column.size
    except pa.ArrowMemoryError:
        raise MemoryError from None
    except (pa.ArrowException, OSError):
        raise_alone(FileError(f"{path} is damaged or cut short; fetch or write it again"))
    if rows == 0:
        raise FileError(f"{path} has columns and no rows; a table needs at least one")
    found = {column.name: column.stored() for column in columns}
    types = {column.name: column.type for column in columns}
    if {len(column) for column in found.values()} != {rows}:
        raise FileError(f"{path} is damaged: its columns are not as long as it says")
    return Table(found, rows, types)


def write_predictions(path: PathLike, columns: Mapping[str, Any]) -> None:
    """Write columns of one length to a ``.csv`` or ``.parquet`` file, whole or not at all."""
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
            writer.writerow(["" if is_absent(value) else value for value in row])
        write_bytes(path, text.getvalue().encode())
    elif path.suffix.lower() == ".parquet":
        pa = load_pyarrow(f"{path}: Parquet", FileError)
        buffer = BytesIO()
        pa.parquet.write_table(pa.table(values), buffer)
        write_bytes(path, buffer.getvalue())
    else:
        raise FileError(f"{path}: predictions are written as .csv or .parquet")
