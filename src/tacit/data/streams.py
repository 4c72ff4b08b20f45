"""Rows that are read in order, again and again, while others are worked on.

A *batch* is what a file yields at a time; a *piece* is what somebody asked for, cut
from one batch or several. A thread reads the next batches while the caller works on
this one, so that a pass takes as long as the slower of the two.
"""

from __future__ import annotations

import copy
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol, Self

import numpy as np

from tacit.data.rows import Chunk, DenseSource, Source, require_finite
from tacit.data.tables import Table, joined
from tacit.exceptions import FileError

AHEAD = 2  # batches that are read before anybody asks for them
CURSORS = 2  # places of one source that are read at the same time


class Batch(Protocol):
    """A few rows in memory."""

    @property
    def n(self) -> int: ...

    def slice(self, start: int, stop: int) -> Chunk: ...

    def take(self, index: Any) -> Batch: ...


class Ahead:
    """An iterator whose items are made by a thread of its own, a few ahead of their use.

    What goes wrong there is raised here. The thread ends when the items do, or when
    this object is closed or forgotten.
    """

    def __init__(self, items: Iterable[Any], depth: int = AHEAD) -> None:
        self._ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(depth)
        self._stop = threading.Event()
        self._over: BaseException | None = None
        # The thread must not know this object: nobody could forget it while it runs.
        args = (iter(items), self._ready, self._stop)
        self._thread = threading.Thread(target=_produce, args=args, daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._over is not None:
            raise self._over
        item, error = self._ready.get()
        if error is not None:
            self._over = error
            raise error
        return item

    def close(self) -> None:
        """Stop reading; what was read is thrown away."""
        self._over = self._over or StopIteration()
        self._stop.set()
        while self._thread.is_alive():
            while not self._ready.empty():
                self._ready.get_nowait()
            self._thread.join(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._stop.set()
        while not self._ready.empty():  # wakes a thread that waits for room
            self._ready.get_nowait()


def _produce(items: Iterator[Any], ready: queue.Queue[Any], stop: threading.Event) -> None:
    error: BaseException = StopIteration()
    try:
        for item in items:
            ready.put((item, None))
            if stop.is_set():
                return
    except BaseException as found:
        error = found
    finally:
        if hasattr(items, "close"):
            items.close()
    if not stop.is_set():
        ready.put((None, error))


class Columns:
    """Rows as they lie in a file of columns, to be put side by side when they have to be.

    Parameters
    ----------
    columns : sequence of ndarray
        Numbers of any type.
    gaps : bool
        Whether NaN stands for what is missing, or for an error.
    """

    def __init__(self, columns: Sequence[np.ndarray], gaps: bool) -> None:
        # In single precision if that is what they are: rounding gives the same.
        single = np.result_type(*columns) == np.float32
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self._columns = [np.ascontiguousarray(column, dtype=self.dtype) for column in columns]
        self._gaps = gaps
        self.rows = slice(0, len(self._columns[0]))

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, len(self._columns)

    @property
    def columns(self) -> list[np.ndarray]:
        """The columns one by one; nothing is copied."""
        return [column[self.rows] for column in self._columns]

    def slice(self, start: int, stop: int) -> Columns:
        """Some of the rows; nothing is copied."""
        found = copy.copy(self)
        found.rows = slice(self.rows.start + start, self.rows.start + stop)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = np.empty(self.shape, self.dtype, order="F")
        for j, column in enumerate(self.columns):
            found[:, j] = column
        require_finite(found, gaps=self._gaps)
        return found if dtype is None else found.astype(dtype, copy=False)


class Piece:
    """Rows of batches, one after another, as a source of their own."""

    sparse = False

    def __init__(self, parts: Sequence[tuple[Batch, int, int]], d: int) -> None:
        self.parts = parts
        self.d = d
        self.n = sum(stop - start for _, start, stop in parts)

    def empty(self) -> Source:
        raise NotImplementedError("a piece is never hidden: its source is")

    @property
    def cuts(self) -> list[int]:
        """Rows with which batches begin, but the first."""
        return list(accumulate(stop - start for _, start, stop in self.parts))[:-1]

    def slice(self, start: int, stop: int) -> Chunk:
        found, first = [], 0
        for batch, low, high in self.parts:
            a, b = max(start, first), min(stop, first + high - low)
            if a < b:
                found.append(batch.slice(low + a - first, low + b - first))
            first += high - low
        if len(found) == 1:
            return found[0]
        if isinstance(found[0], Table):
            return joined(found, sum(table.n for table in found))
        return np.concatenate(found)


class Ordered(ABC):
    """A source that is read in order: any slice can be had, the next one is had at once.

    Subclasses say what `batches` there are from a row on.
    """

    n: int
    d: int
    sparse = False

    @abstractmethod
    def batches(
        self, start: int = 0, index: np.ndarray | None = None
    ) -> Iterator[tuple[int, Batch]]:
        """Batches with the number of their first row, from that which holds ``start`` on.

        With ``index``, batches without any of these rows may be left out.
        """

    def slice(self, start: int, stop: int) -> Chunk:
        """Rows from start up to stop."""
        if start >= stop:
            return self.empty().slice(0, 0)
        cursor = self._cursor(start)
        piece = Piece(list(cursor.parts(stop)), self.d)
        if stop < self.n:
            with self._lock:
                self._cursors.append(cursor)
                del self._cursors[:-CURSORS]
        return piece.slice(0, piece.n)

    @abstractmethod
    def empty(self) -> Source: ...

    def pieces(self, cuts: Sequence[int], index: np.ndarray | None = None) -> Iterator[Piece]:
        """Pieces between cuts: of all rows, or of those in ``index``, which is increasing."""
        with Ahead(self.batches(0, index)) as batches:
            if index is None:
                cursor = _Cursor(batches, 0)
                for stop in cuts[1:]:
                    yield Piece(list(cursor.parts(stop)), self.d)
                return
            chosen = _Cursor(_chosen(batches, index), 0)
            for stop in cuts[1:]:
                yield Piece(list(chosen.parts(stop)), self.d)

    def _cursor(self, start: int) -> _Cursor:
        with self._lock:
            for i, cursor in enumerate(self._cursors):
                if cursor.position == start:
                    return self._cursors.pop(i)
        # The reader's thread has a copy that knows no cursors: it would keep itself alive.
        apart = copy.copy(self)
        apart.__dict__.pop("_open", None)
        return _Cursor(Ahead(apart.batches(start)), start)

    # Made when they are first needed, so that subclasses may be plain dataclasses.
    @property
    def _cursors(self) -> list[_Cursor]:
        return self.__dict__.setdefault("_open", [])

    @property
    def _lock(self) -> threading.Lock:
        return self.__dict__.setdefault("_guard", threading.Lock())


def _chosen(batches: Iterable[tuple[int, Batch]], index: np.ndarray) -> Iterator[tuple[int, Batch]]:
    """The rows in ``index`` of every batch, numbered by their place in it."""
    for first, batch in batches:
        low, high = np.searchsorted(index, [first, first + batch.n])
        if low < high:
            yield int(low), batch.take(index[low:high] - first)


class _Cursor:
    """A place between two rows, with the batches behind it."""

    def __init__(self, batches: Iterator[tuple[int, Batch]], position: int) -> None:
        self.position = position
        self._batches = batches
        self._first = 0
        self._batch: Batch | None = None

    def parts(self, stop: int) -> Iterator[tuple[Batch, int, int]]:
        """The rows up to ``stop``, as parts of batches; they are then behind."""
        while self.position < stop:
            while self._batch is None or self.position >= self._first + self._batch.n:
                try:
                    self._first, self._batch = next(self._batches)
                except StopIteration:
                    raise FileError("a file has fewer rows than it had; fit again") from None
            if self.position < self._first:
                raise FileError("a file has fewer rows than it had; fit again")
            low = self.position - self._first
            high = min(stop - self._first, self._batch.n)
            self.position = self._first + high
            yield self._batch, low, high


def pieces(
    source: Any, cuts: Sequence[int], index: np.ndarray | None = None
) -> Generator[Source, None, None]:
    """A source cut into smaller ones, of all rows or of those in ``index``."""
    if hasattr(source, "pieces"):
        yield from source.pieces(cuts, index)
        return
    for start, stop in pairwise(cuts):
        if index is None:
            yield Piece([(source, start, stop)], source.d)
        elif isinstance(source, DenseSource):
            yield DenseSource(source.array[index[start:stop]])
        else:
            yield source.take(index[start:stop])
