"""A CSV file too large to hold, read block by block on every pass.

How many rows there are, and which columns hold numbers, is known only after one look
at all of it: a value of text makes its column text, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.data.readers import (
    Dialect,
    kind_of,
    reading,
    require_text,
    spelled_numbers,
    text_blocks,
    unpacked_limit,
)
from tacit.data.rows import Chunk, DenseSource, Source, require_finite
from tacit.data.stamps import Stamp
from tacit.data.streams import Batch, Ordered
from tacit.data.tables import UNTYPED, Coder, ColumnType, Stored, Table, Text, empty_table
from tacit.exceptions import FileError

BLOCK_CELLS, BLOCK_ROWS = 1 << 19, 20_000  # a value of text takes some 60 bytes


@dataclass(frozen=True, eq=False)
class TextFile(Ordered):
    """Columns of a file of text; attributes as those of `ParquetFiles`, and ``limit``: bytes to
    which it may unpack, and ``dialect``: how it is to be read."""

    stamp: Stamp
    header: tuple[str, ...]
    kinds: dict[str, str]
    limit: int
    dialect: Dialect
    n: int = 0
    numbers: bool = False
    gaps: bool = False
    memory: int | None = None

    @property
    def d(self) -> int:  # type: ignore[override]
        return len(self.kinds)

    @property
    def types(self) -> dict[str, ColumnType]:
        """What types say of the columns: those of a text file have none."""
        return dict.fromkeys(self.kinds, UNTYPED)

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        return (self.stamp,)

    def empty(self) -> Source:
        if self.numbers:
            return DenseSource(np.empty((0, self.d)))
        return empty_table(self.kinds, self.types)

    def batches(
        self, start: int = 0, index: np.ndarray | None = None
    ) -> Iterator[tuple[int, Batch]]:
        places = [(self.header.index(name), name, kind) for name, kind in self.kinds.items()]
        first = 0
        with self.stamp.unchanged(), reading(self.stamp.path):
            for block in _blocks(self.stamp.path, self.header, self.limit, self.dialect):
                self.stamp.check()
                if first + len(block) > start:
                    yield first, self._batch(block, places)
                first += len(block)

    def _batch(self, block: list[list[str]], places: list[tuple[int, str, str]]) -> Batch:
        cells = list(zip(*block, strict=True))
        columns: dict[str, Stored] = {}
        for place, name, kind in places:
            if kind == "text":
                coder = Coder()
                columns[name] = Text(coder.encode(cells[place]), coder.words)
            else:
                found = spelled_numbers(cells[place])
                if found is None:
                    raise FileError(f"{self.stamp.path} has changed: {name!r} held numbers")
                columns[name] = found
        table = Table(columns, len(block), self.types)
        return _Numbers(table, self.gaps) if self.numbers else table


@dataclass(frozen=True)
class _Numbers:
    """A table of numbers as rows of an array."""

    table: Table
    gaps: bool

    n = property(lambda self: self.table.n)

    def slice(self, start: int, stop: int) -> Chunk:
        names = self.table.column_names
        out = np.column_stack([self.table.column(name)[start:stop] for name in names])
        require_finite(out, gaps=self.gaps)
        return out

    def take(self, index: np.ndarray) -> _Numbers:
        return _Numbers(self.table.take(index), self.gaps)


def open_text(path: Path, limit: int | None = None, decimal: str | None = None) -> TextFile:
    """A CSV or TSV file, read once from beginning to end."""
    stamp = Stamp.of(path)
    limit = unpacked_limit(stamp.size) if limit is None else limit
    with stamp.unchanged(), reading(path):
        opener, kind = kind_of(path)
        with opener(path, "rb") as file:
            require_text(path, file.read(4096))
        dialect = Dialect(kind, decimal)
        header, words, n = _header(path, limit, dialect), set[int](), 0
        for block in _blocks(path, header, limit, dialect):
            n += len(block)
            for i, cells in enumerate(zip(*block, strict=True)):
                if i not in words and spelled_numbers(cells) is None:
                    words.add(i)
        if not n:
            raise FileError(f"{path} has a header and no rows; a table needs at least one")
    kinds = {name: "text" if i in words else "number" for i, name in enumerate(header)}
    return TextFile(stamp, header, kinds, limit, dialect, n)


def _header(path: Path, limit: int, dialect: Dialect) -> tuple[str, ...]:
    opener, _ = kind_of(path)
    with text_blocks(path, opener, dialect, limit) as (names, _):
        return tuple(names)


def _blocks(
    path: Path, header: tuple[str, ...], limit: int, dialect: Dialect
) -> Iterator[list[list[str]]]:
    opener, _ = kind_of(path)
    rows = max(1, min(BLOCK_ROWS, BLOCK_CELLS // len(header)))
    with text_blocks(path, opener, dialect, limit, rows) as (names, blocks):
        if tuple(names) != header:
            raise FileError(f"{path} has changed: it has other columns")
        yield from blocks
