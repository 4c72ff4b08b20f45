"""Rows that an engine reads again for every sum, instead of keeping them.

A sum is cut into groups and blocks of rows whatever they are kept in. Here every block
is read anew (the next ones meanwhile), mapped by the stages, rounded to integers by the
rule for rows in memory, and summed in the same order: sums are the same, bit for bit.
What stays in memory is targets, a few bytes a row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tacit.data.memory import memory_for
from tacit.data.rows import Rows, Source
from tacit.data.streams import pieces
from tacit.exceptions import InputError
from tacit.mechanisms.checksum import Residues
from tacit.progress import Progress, silent
from tacit.trainers.quantize import FLOAT, Scale, Weights
from tacit.trainers.schedule import Block, groups_of
from tacit.trainers.storage import (
    DenseStore,
    Parts,
    SparseStore,
    Workspace,
    converted,
    ingest,
    inverse_norms,
)

__all__ = ["Store", "Streamed", "held", "make_store", "reading"]

TILE_CELLS = 1 << 20  # of rows as they are read: 8 MB
CELL = {"exact": 2, "fast": 4, "rounded": 8}  # bytes

Held: TypeAlias = DenseStore | SparseStore
Store: TypeAlias = "Held | Streamed"


def held(rows: Rows, d: int, arithmetic: str, memory: int | None = None) -> bool:
    """Whether rows of d columns are kept in memory, by public facts: their number and width.

    Sparse rows are: they are in memory already, and their number and width say little about
    their size.
    """
    limit = memory_for(rows) if memory is None else memory
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
    return Streamed(rows, scale, arithmetic, intercept, shift, parts=parts, blanks=blanks)


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
        *,
        parts: Parts,
        blanks: bool,
    ) -> None:
        self.exact = arithmetic == "exact"
        # Where every number is exact, no bit depends on how rows lie in memory.
        self.by_column = self.exact and not rows.maps and hasattr(rows.source, "by_column")
        if self.by_column:
            rows = replace(rows, source=replace(rows.source, by_column=True))
        self.rows = rows
        self.parts = parts
        self.d = parts[-1].stop
        self._how = (scale, arithmetic, intercept, shift)
        self._convert = scale.integers if self.exact else scale.floats
        self._constant = self._convert(np.array([intercept])) if intercept else np.empty(0)
        self._shift, self._blanks = shift, blanks
        self._type = FLOAT.get(arithmetic, np.float64)
        self._nothing = DenseStore(0, self.d, arithmetic, parts)
        self.block_rows, self.group_rows = self._nothing.block_rows, self._nothing.group_rows
        # A map that is not made for several threads, such as a network, has them take turns.
        shared = all(getattr(row_map, "shared", True) for row_map in rows.maps)
        self._turns: AbstractContextManager[Any] = nullcontext() if shared else threading.Lock()

    def operand(self, weights: Weights) -> np.ndarray:
        return self._nothing.operand(weights)

    def values(self, rows: Rows, start: int, stop: int) -> np.ndarray:
        """Some rows, read, mapped and rounded: a few at a time, where they begin wide."""
        few = max(16, TILE_CELLS // max(1, rows.source.d))
        if stop - start > few:
            cuts = [*range(start, stop, few), stop]
            return np.concatenate([self.values(rows, *ends) for ends in pairwise(cuts)])
        with self._turns:
            chunk = rows.read(start, stop)
        if sp.issparse(chunk) or chunk.shape != (stop - start, rows.d):
            raise InputError(f"a chunk of rows is sparse or has other than {rows.d} columns")
        values = converted(chunk, self._convert, self._constant, self._shift, self._blanks)
        return values.astype(self._type, copy=False)

    def along(self, halves: np.ndarray) -> Residues:
        """Every row times numbers in two halves (2, d), in a pass of its own."""
        groups = list(groups_of(self.rows.n, self.block_rows, self.group_rows))
        how: dict[str, Any] = {"parts": self.parts, "progress": silent, "blanks": self._blanks}
        with reading(self, groups, None) as at:
            stores = (ingest(at(group).rows, *self._how, **how) for group in groups)
            found = [store.along(halves) for store in stores]
        words, rests = [each.word for each in found], [each.rest for each in found]
        return Residues(np.concatenate(words), np.concatenate(rests))


class _Window:
    """A store of some rows, that are read block by block, for one thread."""

    def __init__(self, store: Streamed, rows: Rows, numbers: int | np.ndarray) -> None:
        self.rows = rows
        self._store = store
        self._numbers = numbers  # of the first row among all, or of every one
        self._norms: list[np.ndarray] = []

    def forward(self, block: Block, operand: np.ndarray, work: Workspace) -> Any:
        """Rows of the block, and their scores as (S*K, b)."""
        store = self._store
        start, stop, extra = self._place(block)
        rows = store.values(self.rows, start, stop)
        if extra:  # padding repeats the last row
            rows = rows[np.minimum(np.arange(len(rows) + extra), len(rows) - 1)]
        found = inverse_norms(rows, store.parts, store.exact)
        self._norms = [norms.astype(store._type, copy=False) for norms in found]
        scores = work.array("scores", (len(operand), len(rows)), rows.dtype)
        np.matmul(operand, rows.T, out=scores)
        return rows, scores

    def norms(self, block: Block) -> list[np.ndarray]:
        """Of the block that `forward` was last asked for."""
        return self._norms

    def backward(
        self, rows: np.ndarray, multipliers: Sequence[np.ndarray], work: Workspace
    ) -> np.ndarray:
        """Sum over the block of row times multipliers, part by part: (d, S*K)."""
        return self._store._nothing.backward(rows, multipliers, work)

    def _place(self, block: Block) -> tuple[int, int, int]:
        """Where a block begins and ends among these rows, and how often its last is repeated."""
        if isinstance(block, slice):
            assert isinstance(self._numbers, int)
            return block.start - self._numbers, block.stop - self._numbers, 0
        ends = block[[0, -1]]
        if isinstance(self._numbers, int):
            start, last = (ends - self._numbers).tolist()
        else:
            start, last = np.searchsorted(self._numbers, ends).tolist()
        return start, last + 1, len(block) - (last + 1 - start)


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
        except BaseException as error:
            self._error = self._error or error
            raise
        rows = replace(self._store.rows, source=source)
        if self._index is None:
            return _Window(self._store, rows, group.start)
        return _Window(self._store, rows, self._index[group.start : group.stop])

    def close(self) -> None:
        """Stop reading; a thread that asks for more fails."""
        self._error = self._error or InputError("the sum was given up")
        with self._lock:  # nobody is reading now
            self._found.close()
