"""Rows that an engine reads again for every sum, instead of keeping them.

A sum is cut into groups of rows whatever they are kept in. A streamed store holds one
such group a thread: the rows are read (the next ones meanwhile), mapped by the stages,
rounded to integers and summed by the very code that works on rows in memory. So sums
are the same, bit for bit. What stays in memory is targets: a few bytes a row.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from tacit.data.rows import Rows, Source
from tacit.data.streams import pieces
from tacit.exceptions import InputError
from tacit.mechanisms.checksum import Residues
from tacit.progress import Progress, silent
from tacit.trainers.quantize import Scale, Weights
from tacit.trainers.schedule import Block, groups_of
from tacit.trainers.storage import DenseStore, Parts, SparseStore, Workspace, ingest

__all__ = ["Store", "Streamed", "default_memory", "held", "make_store", "reading"]

SHARE = 4  # of the machine's memory, one part in so many may hold rows
UNKNOWN = 2 << 30  # bytes, where the machine does not say what it has
TILE_CELLS = 1 << 17  # of rows on their way to integers: 1 MB, which stays in cache
CELL = {"exact": 2, "fast": 4, "rounded": 8}  # bytes

Held: TypeAlias = DenseStore | SparseStore
Store: TypeAlias = "Held | Streamed"


def default_memory() -> int:
    """Bytes that rows may take unless somebody says otherwise: a quarter of the machine's."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // SHARE
    except (AttributeError, ValueError, OSError):  # not on every platform
        return UNKNOWN


def held(rows: Rows, d: int, arithmetic: str, memory: int | None = None) -> bool:
    """Whether rows of d columns are kept in memory, by public facts: their number and width.

    Sparse rows are: they are in memory already, and their number and width say little about
    their size.
    """
    if memory is None:
        memory = getattr(rows.source, "memory", None)
    limit = default_memory() if memory is None else memory
    return rows.sparse or rows.n * d * CELL[arithmetic] <= limit


def make_store(
    rows: Rows,
    scale: Scale,
    arithmetic: str,
    intercept: float,
    shift: np.ndarray | None,
    *,
    parts: Parts,
    progress: Progress,
    blanks: bool = False,
    memory: int | None = None,
) -> Store:
    """A store of rows: in memory if they fit, otherwise one that reads them again and again."""
    if held(rows, parts[-1].stop, arithmetic, memory):
        how: dict[str, Any] = {"parts": parts, "progress": progress, "blanks": blanks}
        return ingest(rows, scale, arithmetic, intercept, shift, **how)
    return Streamed(rows, scale, arithmetic, intercept, shift, parts, blanks)


@contextmanager
def reading(
    store: Store, groups: Sequence[range], index: np.ndarray | None
) -> Iterator[Callable[[range], Any]]:
    """For the time of one sum: what gives, for a group of rows, a store that holds them."""
    if not isinstance(store, Streamed):
        yield lambda group: store
        return
    cuts = [group.start for group in groups] + [group.stop for group in groups[-1:]]
    one_pass = _Pass(store, groups, index, pieces(store.rows.source, cuts, index))
    try:
        yield one_pass.at
    finally:
        one_pass.close()


class Streamed:
    """A store that holds nothing; parameters as those of `tacit.trainers.storage.ingest`."""

    def __init__(
        self,
        rows: Rows,
        scale: Scale,
        arithmetic: str,
        intercept: float,
        shift: np.ndarray | None,
        parts: Parts,
        blanks: bool,
    ) -> None:
        self.rows = rows
        self.parts = parts
        self._how = (scale, arithmetic, intercept, shift)
        self._blanks = blanks
        self._nothing = DenseStore(0, parts[-1].stop, arithmetic, parts)
        self.block_rows, self.group_rows = self._nothing.block_rows, self._nothing.group_rows
        self._tile = max(16, TILE_CELLS // max(rows.d, parts[-1].stop))
        # A map that is not made for several threads, such as a network, has them take turns.
        shared = all(getattr(row_map, "shared", True) for row_map in rows.maps)
        self._turns: AbstractContextManager[Any] = nullcontext() if shared else threading.Lock()

    def operand(self, weights: Weights) -> np.ndarray:
        return self._nothing.operand(weights)

    def hold(self, source: Source) -> DenseStore:
        """A few rows, mapped and rounded."""
        rows = replace(self.rows, source=source)
        with self._turns:
            store = ingest(
                rows,
                *self._how,
                parts=self.parts,
                progress=silent,
                blanks=self._blanks,
                chunk_rows=self._tile,
            )
        if not isinstance(store, DenseStore):
            raise InputError("rows became sparse on their way; rows from files must be dense")
        return store

    def along(self, halves: np.ndarray) -> Residues:
        """Every row times numbers in two halves (2, d), in a pass of its own."""
        groups = list(groups_of(self.rows.n, self.block_rows, self.group_rows))
        with reading(self, groups, None) as at:
            found = [at(group).store.along(halves) for group in groups]
        words, rests = [each.word for each in found], [each.rest for each in found]
        return Residues(np.concatenate(words), np.concatenate(rests))


@dataclass(frozen=True)
class _Window:
    """A store of some rows that answers to their numbers among all."""

    store: DenseStore
    numbers: int | np.ndarray  # of the first row, or of all of them

    def forward(self, block: Block, operand: np.ndarray, work: Workspace) -> Any:
        return self.store.forward(self._place(block), operand, work)

    def backward(self, rows: Any, multipliers: Any, work: Workspace) -> np.ndarray:
        return self.store.backward(rows, multipliers, work)

    def norms(self, block: Block) -> list[np.ndarray]:
        return self.store.norms(self._place(block))

    def _place(self, block: Block) -> Block:
        if isinstance(self.numbers, np.ndarray):
            return np.searchsorted(self.numbers, block)
        if isinstance(block, slice):
            return slice(block.start - self.numbers, block.stop - self.numbers)
        return block - self.numbers


class _Pass:
    """Groups of rows in the order in which they come, for threads that ask in about that order."""

    def __init__(
        self,
        store: Streamed,
        groups: Sequence[range],
        index: np.ndarray | None,
        found: Generator[Source, None, None],
    ) -> None:
        self._store, self._index, self._found = store, index, found
        self._expected = iter(groups)
        self._waiting: dict[int, Source] = {}
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def at(self, group: range) -> _Window:
        """The rows of a group."""
        try:
            with self._lock:
                if self._error is not None:  # no thread goes on where another one failed
                    raise self._error
                while group.start not in self._waiting:
                    self._waiting[next(self._expected).start] = next(self._found)
                source = self._waiting.pop(group.start)
            store = self._store.hold(source)
        except BaseException as error:
            self._error = self._error or error
            raise
        if self._index is None:
            return _Window(store, group.start)
        return _Window(store, self._index[group.start : group.stop])

    def close(self) -> None:
        """Stop reading; a thread that asks for more fails."""
        self._error = self._error or InputError("the sum was given up")
        with self._lock:  # nobody is reading now
            self._found.close()
