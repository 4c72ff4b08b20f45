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
from tacit.engine.ingest import ingest, kind_of, rows_in
from tacit.engine.kernels.compact import padded_width
from tacit.engine.quantization import FLOAT, Scale, Weights
from tacit.engine.schedule import Block, groups_of
from tacit.engine.shaped import fits, planes, rounded
from tacit.engine.storage import (
    DenseStore,
    Parts,
    Rounding,
    SparseStore,
    Workspace,
    with_norms,
)
from tacit.exceptions import InputError
from tacit.mechanisms.checksum import Residues
from tacit.progress import Progress, silent

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
    memory: int | None = None,
) -> Store:
    """A store of rows: in memory if they fit, otherwise one that reads them again and again."""
    exact = arithmetic == "exact"
    rounding = Rounding(scale, exact, intercept, shift)
    if rows.layout is not None and fits(rows.layout, rounding):
        width = int(planes(rows.layout, rounding).sum()) + padded_width(rows.layout.straight + 2)
    else:
        width = padded_width(parts[-1].stop) if exact else parts[-1].stop
    if held(rows, width, arithmetic, memory):
        return ingest(rows, rounding, arithmetic, parts=parts, progress=progress)
    return Streamed(rows, rounding, arithmetic, parts=parts)


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
    """A store that holds nothing; parameters as those of `tacit.engine.ingest.ingest`."""

    def __init__(self, rows: Rows, rounding: Rounding, arithmetic: str, *, parts: Parts) -> None:
        self.exact = arithmetic == "exact"
        # Where every number is exact, no bit depends on how rows lie in memory.
        self.by_column = self.exact and not rows.maps and hasattr(rows.source, "by_column")
        if self.by_column:
            rows = replace(rows, source=replace(rows.source, by_column=True))
        self.rows = rows
        self.parts = parts
        self.d = parts[-1].stop
        self.rounding, self.arithmetic = rounding, arithmetic
        self._type = FLOAT.get(arithmetic, np.float64)
        self.shaped = fits(rows.layout, rounding)
        self._kind = kind_of(rows, rounding, arithmetic, parts)
        self._nothing = self._kind(0)
        self.compiled = self._nothing.compiled
        self.block_rows, self.group_rows = self._nothing.block_rows, self._nothing.group_rows
        # A map that is not made for several threads, such as a network, has them take turns.
        shared = all(getattr(row_map, "thread_safe", True) for row_map in rows.maps)
        self._turns: AbstractContextManager[Any] = nullcontext() if shared else threading.Lock()

    def operand(self, weights: Weights) -> Any:
        return self._nothing.operand(weights)

    def in_order(self, found: np.ndarray) -> np.ndarray:
        """As `tacit.engine.kernels.compact.CompactStore.in_order`."""
        return self._nothing.in_order(found)

    def tiles(
        self, rows: Rows, start: int, stop: int
    ) -> Iterator[tuple[slice, Any, np.ndarray | None]]:
        """Some rows, read and mapped, and which are blanked; a few at a time if they begin wide."""
        few = max(16, TILE_CELLS // max(1, rows.source.d))
        # Columns of a file need not be copied where one batch holds them.
        batches = [cut for cut in getattr(rows.source, "cuts", ()) if start < cut < stop]
        for left, right in pairwise(sorted({*range(start, stop, few), *batches, stop})):
            with self._turns:
                chunk = rows_in(rows.read(left, right, shaped=True), self.shaped)
            if sp.issparse(chunk) or chunk.shape != (right - left, rows.d):
                raise InputError(f"a chunk of rows is sparse or has other than {rows.d} columns")
            yield slice(left - start, right - start), chunk, rows.blanked_in(left, right)

    def values(self, rows: Rows, start: int, stop: int) -> np.ndarray:
        """Some rows as they would be kept, in floating point."""
        found = []
        for _, chunk, blanked in self.tiles(rows, start, stop):
            if self.shaped:
                some = rounded(chunk, self.rounding, blanked).dense(self.rounding.offset())
            else:
                some = self.rounding.dense(chunk, blanked)
            found.append(some.astype(self._type, copy=False))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def loaded(self, rows: Rows, start: int, stop: int, extra: int) -> Any:
        """Some rows, kept for compiled loops, the last one so many times more."""
        count, found = stop - start, self._kind(stop - start + extra)
        for span, chunk, blanked in self.tiles(rows, start, stop):
            found.take(span, chunk, self.rounding, blanked)
        found.repeat_last(count)
        return found

    def along(self, halves: np.ndarray) -> Residues:
        """Every row times numbers in two halves (2, d), in a pass of its own."""
        groups = list(groups_of(self.rows.n, self.block_rows, self.group_rows))
        how: dict[str, Any] = {"parts": self.parts, "progress": silent, "compiled": False}
        with reading(self, groups, None) as at:
            some = (at(group).rows for group in groups)
            stores = (ingest(rows, self.rounding, self.arithmetic, **how) for rows in some)
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

    def forward(self, block: Block, operand: Any, work: Workspace) -> Any:
        """Rows of the block, and their scores as (S*K, b)."""
        store = self._store
        if store.compiled:
            rows = self._hold(block)
            return rows, rows.forward(slice(0, rows.n), operand, work)[1]
        start, stop, extra = self._place(block)
        values = store.values(self.rows, start, stop)
        if extra:  # padding repeats the last row
            values = values[np.minimum(np.arange(len(values) + extra), len(values) - 1)]
        values, found = with_norms(values, store.parts, store.exact, store.rounding.scale.longest)
        self._norms = [norms.astype(store._type, copy=False) for norms in found]
        scores = work.array("scores", (len(operand), len(values)), values.dtype)
        np.matmul(operand, values.T, out=scores)
        return values, scores

    def step(
        self, fused: Any, index: np.ndarray | None, spans: Any, targets: np.ndarray, onto: Any
    ) -> None:
        """As `tacit.engine.kernels.compact.CompactStore.step`, block by block."""
        for rows, people in spans:
            for start in rows:
                span = slice(start, min(start + rows.step, rows.stop))
                block, some = span if index is None else index[span], range(span.stop - start)
                self._hold(block).step(fused, None, [(some, people)], targets[block], onto)

    def _hold(self, block: Block) -> Any:
        rows = self._store.loaded(self.rows, *self._place(block))
        self._norms = rows.norms(slice(None))
        return rows

    def norms(self, block: Block) -> list[np.ndarray]:
        """Of the block whose scores were last asked for."""
        return self._norms

    def backward(self, rows: Any, multipliers: Sequence[np.ndarray], work: Workspace) -> np.ndarray:
        """Sum over the block of row times multipliers, part by part: (d, S*K)."""
        if self._store.compiled:
            return np.asarray(rows.backward((None, 0, rows.n), multipliers, work))
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
        span = slice(group.start, group.stop)
        if self._index is None:
            return _Window(self._store, self._store.rows.held_in(source, span), group.start)
        chosen = self._index[span]
        return _Window(self._store, self._store.rows.held_in(source, chosen), chosen)

    def close(self) -> None:
        """Stop reading; a thread that asks for more fails."""
        self._error = self._error or InputError("the sum was given up")
        with self._lock:  # nobody is reading now
            self._found.close()
