"""Table files: read whole or refused with a reason, written whole or not at all."""

from __future__ import annotations

import bz2
import csv
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO, StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.tables import (
    Coder,
    PathLike,
    Table,
    Text,
    from_arrow,
    is_absent,
    is_missing,
    load_pyarrow,
    unique_names,
)
from tacit.exceptions import FileError, InputError
from tacit.files import write_bytes

__all__ = ["read_table", "write_predictions"]

BLOCK_ROWS = 20_000

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_table(path: PathLike) -> Table:
    """Read a file that ends in ``.csv``, ``.tsv`` or ``.parquet``, or raise a `FileError`.

    Text must be UTF-8 with one header line, and may be compressed (``.csv.gz``,
    ``.bz2``, ``.xz``). A column is stored as numbers if every cell that is not
    missing spells one. Parquet needs pyarrow.
    """
    path = Path(path)
    with _reading(path):
        if path.is_dir():
            raise FileError(f"{path} is a directory; name one table in it")
        path.stat()
        if not path.is_file():
            raise FileError(f"{path} is not a regular file; write the table to one first")
        suffixes = ["", *(suffix.lower() for suffix in path.suffixes)]
        opener = _OPENERS.get(suffixes[-1], open)
        kind = suffixes[-1] if opener is open else suffixes[-2]
        parquet = opener is open and kind == ".parquet"
        if not parquet and kind not in _SEPARATORS:
            raise FileError(
                f"{path}: unknown kind of table; the name must end in .csv, .csv.gz, .csv.bz2, "
                ".csv.xz, .tsv or .parquet"
            )
        with opener(path, "rb") as file:
            start = file.read(4096)
        if not start.strip():
            raise FileError(f"{path} is empty; a table needs a header and rows")
        if parquet:
            return _read_parquet(path, start)
        if start.startswith(b"PAR1"):
            raise FileError(f"{path} holds Parquet, not text; rename it to end in .parquet")
        if b"\0" in start:
            raise FileError(f"{path} is binary, not text; save the table as CSV or Parquet")
        return _read_text(path, opener, _SEPARATORS[kind])


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever is wrong with a file into a `FileError` that names it."""
    try:
        yield
    except FileError:
        raise
    except UnicodeDecodeError:
        raise FileError(f"{path} is not text in UTF-8; save it again with that encoding") from None
    except InputError as error:
        raise FileError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise FileError(f"no such file: {path}; check the spelling and the folder") from None
    except PermissionError:
        raise FileError(f"{path} may not be read by this user; ask for read access") from None
    except csv.Error as error:
        raise FileError(f"{path} is not well-formed: {error}; check its quotes") from None
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile):
        raise FileError(f"{path} is damaged or cut short; fetch or compress it again") from None
    except OSError as error:
        reason = error.strerror or "it is damaged; fetch or compress it again"
        raise FileError(f"cannot read {path}: {reason}") from None


def _read_text(path: Path, opener: Callable[..., Any], separator: str) -> Table:
    text: set[int] = set()  # positions of columns known not to be numbers
    again = True
    while again:  # at most twice: again if a column turned out to be text after its first block
        again = False
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True)
            names = _header(next((row for row in reader if row), []))
            records = _records(reader, len(names))
            coders = [Coder() for _ in names]
            parts: list[list[np.ndarray]] = [[] for _ in names]
            while block := list(islice(records, BLOCK_ROWS)):
                for i, cells in enumerate(zip(*block, strict=True)):
                    numbers = None if i in text else _numbers(cells)
                    if numbers is None and i not in text:
                        text.add(i)
                        again |= bool(parts[i])
                    parts[i].append(coders[i].encode(cells) if numbers is None else numbers)
    if not parts[0]:
        raise FileError(f"{path} has a header and no rows; a table needs at least one")
    arrays = [np.concatenate(part) for part in parts]
    columns: dict[str, np.ndarray | Text] = {
        name: Text(arrays[i], coders[i].words) if i in text else arrays[i]
        for i, name in enumerate(names)
    }
    return Table(columns, len(arrays[0]))


def _header(row: Sequence[str]) -> list[str]:
    names = [name.strip() for name in row]
    if len(names) == 1 and (mark := next((m for m in ";\t|" if m in names[0]), None)):
        raise InputError(
            f"it seems to separate its fields by {mark!r}; save it with commas, or with tabs "
            "as .tsv"
        )
    if "" in names:
        raise InputError(
            f"column {names.index('') + 1} has no name; name it, or if it is a row index write "
            "the table without it"
        )
    return unique_names(names)


def _records(reader: Any, width: int) -> Iterator[list[str]]:
    for row in reader:
        if len(row) == width:
            yield row
        elif len(row) > 1 or (row and row[0].strip()):  # else a blank line
            raise InputError(
                f"line {reader.line_num}: {len(row)} fields where the header has {width}; "
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
    pa = load_pyarrow("Parquet")
    if not start.startswith(b"PAR1"):
        raise FileError(f"{path} is not a Parquet file; if it is text, rename it to end in .csv")
    try:
        with open(path, "rb") as file:
            arrow = pa.parquet.ParquetFile(file).read()
    except (pa.ArrowException, OSError):
        raise FileError(f"{path} is damaged or cut short; fetch or write it again") from None
    if arrow.num_rows == 0:
        raise FileError(f"{path} has columns and no rows; a table needs at least one")
    return from_arrow(arrow)


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
