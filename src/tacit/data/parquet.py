"""Parquet files and folders of them, read batch by batch on every pass.

Whatever a file declares, no more is held than a few batches, the pages being decoded
and a buffer for every column. Row groups without a row that is asked for are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.arrow import ArrowColumn, is_text, load_pyarrow
from tacit.data.readers import require_width, too_large_for_memory
from tacit.data.rows import DenseSource, Source, require_finite
from tacit.data.stamps import Stamp
from tacit.data.streams import Batch, Columns, Ordered
from tacit.data.tables import ColumnType, Table, empty_table, unique_names
from tacit.exceptions import FileError, InputError

BATCH_CELLS, BATCH_ROWS = 1 << 22, 1 << 16
MOST_ROWS, ROWS_PER_BYTE = 1 << 27, 8  # of all files together
MOST_CELLS, CELLS_PER_BYTE = 1 << 30, 1024
BUFFERS = 1 << 25  # bytes, for all columns together


@dataclass(frozen=True)
class _File:
    """One file: where its rows begin among all, and how many are in each row group."""

    stamp: Stamp
    first: int
    groups: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ParquetFiles(Ordered):
    """Columns of Parquet files, one file after another.

    Attributes
    ----------
    files : tuple of _File
    kinds : dict of str to str
        "number" or "text", for every column that is read; by the name in the table.
    stored : dict of str to str
        The name in the file.
    words, bytes : frozenset of str
        Columns that are read as codes into a list of words, and that hold unsigned bytes, by
        the name in the file.
    numbers : bool
        Whether chunks are arrays; otherwise they are tables.
    gaps : bool
        Whether an array may have NaN.
    memory : int or None
        Bytes that an engine may take for rows; None for its own limit.
    by_column : bool
        Whether arrays are laid out column by column, as the file is: quicker, and as good
        where no bit of a result depends on it.
    declared : dict of str to ColumnType
        What the types of all columns say.
    """

    files: tuple[_File, ...]
    kinds: dict[str, str]
    stored: dict[str, str] = field(repr=False)
    words: frozenset[str] = field(default=frozenset(), repr=False)
    bytes: frozenset[str] = field(default=frozenset(), repr=False)
    n: int = 0
    numbers: bool = False
    gaps: bool = False
    memory: int | None = None
    by_column: bool = False
    declared: dict[str, ColumnType] = field(default_factory=dict, repr=False)

    @property
    def d(self) -> int:  # type: ignore[override]
        return len(self.kinds)

    @property
    def dtype(self) -> np.dtype:
        """Unsigned bytes if all values are, which `Rows.bytes` asks for."""
        return np.dtype(np.uint8 if self.bytes.issuperset(self.stored.values()) else np.float64)

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        return tuple(file.stamp for file in self.files)

    def empty(self) -> Source:
        if self.numbers:
            return DenseSource(np.empty((0, self.d)))
        return empty_table(self.kinds, self.types)

    @property
    def types(self) -> dict[str, ColumnType]:
        """What the types of the columns say."""
        return {name: self.declared[name] for name in self.kinds}

    def batches(
        self, start: int = 0, index: np.ndarray | None = None
    ) -> Iterator[tuple[int, Batch]]:
        size = max(1, min(BATCH_ROWS, BATCH_CELLS // max(1, self.d)))
        for file in self.files:
            ends = file.first + np.cumsum(file.groups, dtype=np.int64)
            wanted = ends > start
            if index is not None:
                met = np.searchsorted(ends, index, side="right")
                wanted &= np.isin(np.arange(len(ends)), met[index >= file.first])
            if not wanted.any():
                continue
            how = self.words & set(self.stored.values()), len(self.stored)
            with file.stamp.unchanged(), _opened(file.stamp.path, *how) as whole:
                for group in np.flatnonzero(wanted):
                    first = int(ends[group]) - file.groups[group]
                    names = list(self.stored.values())
                    for batch in whole.iter_batches(
                        size, row_groups=[int(group)], columns=names, use_threads=False
                    ):
                        file.stamp.check()
                        yield first, self._batch(batch.select(names))
                        first += batch.num_rows
                    if first != ends[group]:
                        raise FileError(f"{file.stamp.path} is damaged: a row group is cut short")

    def _batch(self, batch: Any) -> Batch:
        if self.numbers:
            return _Numbers(batch, self.gaps, self.by_column)
        return _Tables(batch, self.types)


class _Numbers:
    """A record batch of numbers; rows are put together when they are asked for."""

    def __init__(self, batch: Any, gaps: bool, by_column: bool) -> None:
        self._batch, self._gaps, self._by_column = batch, gaps, by_column
        self.n = batch.num_rows
        self._columns: list[np.ndarray] | None = None
        self._beside: Columns | None = None

    def slice(self, start: int, stop: int) -> Any:
        if self._columns is None:
            named = zip(self._batch.schema.names, self._batch.columns, strict=True)
            self._columns = [_floats(name, column) for name, column in named]
        if self._by_column:
            self._beside = self._beside or Columns(self._columns, self._gaps)
            return self._beside.slice(start, stop)
        out = np.empty((stop - start, len(self._columns)))
        for j, column in enumerate(self._columns):
            out[:, j] = column[start:stop]
        require_finite(out, gaps=self._gaps)
        return out

    def take(self, index: np.ndarray) -> _Numbers:
        return _Numbers(_take(self._batch, index), self._gaps, self._by_column)


class _Tables:
    """A record batch as a table."""

    def __init__(self, batch: Any, types: dict[str, ColumnType]) -> None:
        self._batch, self._types = batch, types
        self.n = batch.num_rows
        self._table: Table | None = None

    def slice(self, start: int, stop: int) -> Table:
        if self._table is None:
            found = {}
            for name, array in zip(self._types, self._batch.columns, strict=True):
                column = ArrowColumn(name, array.type)
                column.add(array)
                found[name] = column.stored()
            self._table = Table(found, self.n, self._types)
        return self._table.slice(start, stop)

    def take(self, index: np.ndarray) -> _Tables:
        return _Tables(_take(self._batch, index), self._types)


def _take(batch: Any, index: np.ndarray) -> Any:
    import pyarrow as pa

    return batch.take(pa.array(index))


def _floats(name: str, array: Any) -> np.ndarray:
    """Numbers of any type; NaN where one is missing."""
    import pyarrow as pa

    plain = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if plain and not array.null_count:
        return array.to_numpy()
    column = ArrowColumn(name, array.type)
    column.add(array)
    return np.asarray(column.stored())


def open_parquet(paths: Sequence[Path], limit: int | None = None) -> ParquetFiles:
    """Files that hold the same columns; nothing but their footers is read.

    However many there are, they are one table, and may declare as many rows as one file of
    their size.
    """
    stamps = [Stamp.of(path) for path in paths]
    size = sum({stamp.identity: stamp.size for stamp in stamps}.values())  # a link adds no bytes
    files: list[_File] = []
    kinds: dict[str, str] = {}
    declared: dict[str, ColumnType] = {}
    stored: dict[str, str] = {}
    words: set[str] = set()
    small: set[str] = set()
    total = 0
    for path, stamp in zip(paths, stamps, strict=True):
        with _opened(path) as whole:
            metadata = whole.metadata
            require_width(metadata.num_columns)
            names = unique_names(whole.schema_arrow.names)
            types = dict(zip(names, whole.schema_arrow.types, strict=True))
            groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
            if sum(groups) != metadata.num_rows or min(groups, default=0) < 0:
                raise FileError(f"{path} is damaged: its row groups do not add up")
            total += sum(groups)
            what = str(path) if len(paths) == 1 else f"the table of {len(paths)} files up to {path}"
            _require_few(what, total, metadata.num_columns, size, limit)
            made = {name: ArrowColumn(name, stored_type) for name, stored_type in types.items()}
            found = {name: _kind(column) for name, column in made.items()}
            if files:
                _require_same(path, found, paths[0], kinds)
            else:
                kinds = found
                declared = {name: column.type for name, column in made.items()}
                stored = dict(zip(names, whole.schema_arrow.names, strict=True))
            texts = {entry.name for entry in whole.schema_arrow if is_text(entry.type)}
            tiny = {entry.name for entry in whole.schema_arrow if str(entry.type) == "uint8"}
            words, small = (words & texts, small & tiny) if files else (texts, tiny)
        files.append(_File(stamp, total - sum(groups), groups))
    if total == 0:
        raise FileError(f"{paths[0]} has columns and no rows; a table needs at least one")
    sets = frozenset(words), frozenset(small)
    return ParquetFiles(tuple(files), kinds, stored, *sets, total, declared=declared)


def _require_few(what: str, rows: int, columns: int, size: int, limit: int | None) -> None:
    """Refuse what declares more than its bytes can hold, before anything is as large."""
    if limit is None:
        most_rows = max(MOST_ROWS, ROWS_PER_BYTE * size)
        most_cells = max(MOST_CELLS, CELLS_PER_BYTE * size)
    else:
        most_rows = most_cells = limit // 8
    if rows > most_rows or rows * columns > most_cells:
        raise FileError(
            f"{what} declares {rows} rows of {columns} columns in {size} bytes, where {most_rows} "
            f"rows and {most_cells} values are allowed: it is damaged, or made to take up memory "
            "and time. If you trust it, write it again without compression, or allow more with "
            "scan(path, limit=...), at 8 bytes a value"
        )


def _require_same(path: Path, found: dict[str, str], first: Path, kinds: dict[str, str]) -> None:
    more = sorted(found.keys() ^ kinds.keys())
    if more:
        raise FileError(
            f"{path} and {first} have different columns: only one of them has {more[0]!r}; files "
            "of one table must have the same"
        )
    if list(found) != list(kinds):
        raise FileError(f"{path} and {first} have their columns in different orders")
    for name, kind in found.items():
        if kind != kinds[name]:
            raise FileError(f"column {name!r} holds {kind} in {path} and {kinds[name]} in {first}")


def _kind(column: ArrowColumn) -> str:
    return "number" if isinstance(column.stored(), np.ndarray) else "text"


@contextmanager
def _opened(path: Path, words: Set[str] = frozenset(), columns: int = 1) -> Iterator[Any]:
    """A file of pyarrow's, whose complaints become a `FileError`."""
    pa = load_pyarrow("Parquet")
    try:
        # Opened first, for errors that say why; a buffer keeps whole row groups out of memory.
        with open(path, "rb") as file:
            if file.read(4) != b"PAR1":
                raise FileError(f"{path} is not a Parquet file")
        buffer = max(1 << 13, min(1 << 20, BUFFERS // max(1, columns)))
        how = {"buffer_size": buffer, "read_dictionary": sorted(words)}
        with pa.parquet.ParquetFile(str(path), page_checksum_verification=True, **how) as whole:
            yield whole
    except InputError:
        raise
    except (pa.ArrowMemoryError, MemoryError):
        raise too_large_for_memory(path) from None
    except FileNotFoundError:
        raise FileError(f"no such file: {path}; check the spelling and the folder") from None
    except PermissionError:
        raise FileError(f"{path} may not be read by this user; ask for read access") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise FileError(f"{path} is damaged or cut short; fetch or write it again") from None
