"""One protocol for rows: read chunk by chunk, through row-wise maps.

A map sees one chunk and returns one chunk of as many rows, each row a function
of that row alone. So a pipeline of stages never copies the table. Whatever a stage
needs from the rows (sums, means, second moments, quantiles, counts) is one pass of
summaries of chunks that are added up, `Rows.merged`, wherever the rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, takewhile
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp

from tacit.data.arrays import ArraySource, host_view, is_array, overlap
from tacit.data.cluster import is_dask
from tacit.data.owners import Owners
from tacit.data.shaped import Layout, ShapedChunk, plain
from tacit.exceptions import InputError, of_rows
from tacit.mechanisms.additive import Pending, added, step_of, through
from tacit.mechanisms.passes import Passes
from tacit.privacy.unit import ROW, Unit

Chunk: TypeAlias = Any  # float64 ndarray (rows, d), csr_array, or a table slice before Encode
T = TypeVar("T")
CHUNK_ROWS = 4096
SUMMED = 1 << 13  # rows in a chunk of which nothing but sums is kept
CHUNK_CELLS = 1 << 25  # of the source: 256 MB
NEAR = 1 << 17  # numbers that stay in a processor's cache while one loop after the other reads them
ABREAST = 128  # numbers that are added to others side by side, to see whether all are finite
# Freed at once. The C library then keeps that much of what it is given back, and does not ask for
# memory page by page again with every chunk: a tenth of the time of a fit.
np.empty(1 << 23, dtype=np.uint8)
ELSEWHERE = (
    "rows of one person are put together in memory, and these are elsewhere: pass an array, a "
    "sparse matrix or a table in memory"
)
#: Kinds of values in words: a type such as <U6 would tell how long the longest of them is.
_KINDS = {"U": "text", "S": "text", "c": "complex type", "M": "dates", "m": "times"}


class RowMap(Protocol):
    """What a fitted stage is to the rows: a row-wise map with public constants."""

    def apply(self, chunk: Chunk) -> Chunk: ...


class Source(Protocol):
    """Rows as they are stored."""

    @property
    def n(self) -> int: ...

    @property
    def d(self) -> int: ...

    @property
    def sparse(self) -> bool: ...

    def empty(self) -> Source: ...

    def slice(self, start: int, stop: int) -> Chunk: ...


@dataclass(frozen=True)
class DenseSource:
    array: np.ndarray

    n = property(lambda self: self.array.shape[0])
    d = property(lambda self: self.array.shape[1])
    dtype = property(lambda self: self.array.dtype)
    sparse = False

    def empty(self) -> DenseSource:
        return DenseSource(np.empty((0, self.d), dtype=self.array.dtype))

    def slice(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self.array[start:stop], dtype=np.float64)

    def take(self, index: np.ndarray) -> DenseSource:
        return DenseSource(self.array[index])


@dataclass(frozen=True)
class SparseSource:
    matrix: sp.csr_array

    n = property(lambda self: self.matrix.shape[0])
    d = property(lambda self: self.matrix.shape[1])
    dtype = property(lambda self: self.matrix.dtype)
    sparse = True

    def empty(self) -> SparseSource:
        return SparseSource(sp.csr_array((0, self.d), dtype=self.matrix.dtype))

    def slice(self, start: int, stop: int) -> sp.csr_array:
        return self.matrix[start:stop].astype(np.float64)

    def take(self, index: np.ndarray) -> SparseSource:
        return SparseSource(self.matrix[index])


@dataclass(frozen=True)
class ShapedSource:
    chunk: ShapedChunk

    n = property(lambda self: len(self.chunk))
    d = property(lambda self: self.layout.d)
    layout = property(lambda self: self.chunk.layout)
    sparse = False

    def empty(self) -> ShapedSource:
        return ShapedSource(self.chunk[:0])

    def slice(self, start: int, stop: int) -> ShapedChunk:
        return self.chunk[start:stop]

    def take(self, index: Any) -> ShapedSource:
        return ShapedSource(self.chunk[index])

    def pieces(self, cuts: Sequence[int], index: np.ndarray | None) -> Iterator[ShapedSource]:
        rows = np.arange(self.n) if index is None else index
        return (ShapedSource(self.chunk[rows[start:stop]]) for start, stop in pairwise(cuts))


@dataclass(frozen=True)
class Indexed:
    """Some rows of an array, a sparse matrix or a memory map, in any order, read when needed."""

    source: Any
    index: np.ndarray

    n = property(lambda self: len(self.index))
    d = property(lambda self: self.source.d)
    dtype = property(lambda self: self.source.dtype)
    sparse = property(lambda self: self.source.sparse)
    memory = property(lambda self: getattr(self.source, "memory", None))

    def empty(self) -> Source:
        found: Source = self.source.empty()
        return found

    def slice(self, start: int, stop: int) -> Any:
        return self.take(slice(start, stop)).slice(0, stop - start)

    def take(self, index: Any) -> DenseSource | SparseSource:
        some, source = self.index[index], self.source
        if isinstance(source, DenseSource):
            return DenseSource(source.array[some])
        if isinstance(source, SparseSource):
            return SparseSource(source.matrix[some])
        return DenseSource(source.chosen(some))


@dataclass(frozen=True)
class Rows:
    """Rows behind maps, with the public facts that travel along.

    Attributes
    ----------
    source : Source
        Where chunks come from.
    maps : tuple of RowMap
        Applied to every chunk, in order.
    d : int
        Columns after the maps.
    bound : float or None
        Public bound on the norm of every row after the maps; None if unknown.
    origin : str
        What a certificate should say of where they come from.
    blanked : ndarray of bool of shape (n,), optional
        Which rows a stage has taken out: they count nothing, whatever their values are.
        Private, like the rows. Nothing is concluded from values: other rows may be zero as well.
    owners : Owners, optional
        Who the rows belong to, if they are people's and not everybody has one. Private.
    """

    source: Any
    maps: tuple[RowMap, ...] = ()
    d: int = 0
    bound: float | None = None
    origin: str = ""
    blanked: np.ndarray | None = None
    owners: Owners | None = None

    def __post_init__(self) -> None:
        carried = [self.blanked, None if self.owners is None else self.owners.codes]
        if self.source is not None and any(
            each is not None and each.shape != (self.n,) for each in carried
        ):
            raise InputError("what rows carry with them must be as many as they are")

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.source.n)

    @property
    def units(self) -> int:
        """Number of rows, or of the people whose rows they are."""
        return self.n if self.owners is None else self.owners.people

    @property
    def unit(self) -> Unit:
        """Whose they are: nobody's in particular, or people's."""
        return ROW if self.owners is None else self.owners.unit

    @property
    def sparse(self) -> bool:
        """Whether the source holds sparse rows (maps may still densify chunks)."""
        return bool(self.source.sparse)

    @property
    def layout(self) -> Layout | None:
        """How rows lie whose columns are shapes, as the last map or the source says; else None."""
        found: Layout | None = getattr((self.source, *self.maps)[-1], "layout", None)
        return found

    @property
    def bytes(self) -> bool:
        """Whether the source declares its values as unsigned bytes: a public fact of its type."""
        return getattr(self.source, "dtype", None) == np.uint8

    @property
    def distributed(self) -> bool:
        """Whether rows are on the workers of a cluster, so that only sums of them come here."""
        return bool(getattr(self.source, "distributed", False))

    def chunks(
        self, size: int = CHUNK_ROWS, *, first: int | None = None, shaped: bool = False
    ) -> Iterator[tuple[slice, Chunk]]:
        """Rows in order, ``size`` at a time, ``first`` at first; fewer if as wide as images.

        Parameters
        ----------
        size : int
            Rows in a chunk.
        first : int, optional
            Rows in the first chunk, if other.
        shaped : bool
            Whether the caller knows `tacit.data.shaped.ShapedChunk`.

        Yields
        ------
        span : slice
            Which rows these are.
        chunk : ndarray or sparse matrix of shape (rows, d), or Table
            The rows themselves.
        """
        size = max(1, min(size, CHUNK_CELLS // max(1, self.source.d)))
        stop = 0
        while stop < self.n:
            start, stop = stop, min(stop + (size if stop else min(first or size, size)), self.n)
            yield slice(start, stop), self.read(start, stop, shaped=shaped)

    @property
    def near(self) -> int:
        """Rows in a chunk where any number gives the same: few, if they are read by loops alone."""
        return max(16, min(CHUNK_ROWS, NEAR // max(1, self.d))) if self._stepped else CHUNK_ROWS

    @property
    def _stepped(self) -> bool:
        return isinstance(self.source, DenseSource) and all(map(step_of, self.maps))

    def merged(self, summary: Callable[[slice, Chunk], T], zero: T, *, size: int = CHUNK_ROWS) -> T:
        """``zero`` plus the sum of ``summary(span, chunk)`` over all chunks, of ``size`` rows.

        Sums of integers are the same for any chunks in any order. Floats are added in the order
        of the rows; on a cluster, in that of the partitions. ``zero`` is added to in place where it
        can be, and must be the caller's own.

        Parameters
        ----------
        summary : callable
            Of a span and its chunk; summaries can be added.
        zero : object
            What they are added to.
        size : int
            Rows in a chunk.

        Returns
        -------
        object
            The sum.

        Examples
        --------
        >>> rows = as_rows([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> rows.merged(lambda span, chunk: chunk.sum(axis=0), np.zeros(2), size=2)
        array([ 9., 12.])
        """
        if self.distributed:
            found: T = self.source.merged(self, summary, zero, size)
            return found
        for span, chunk in self.chunks(size):
            zero += summary(span, chunk)  # type: ignore[operator]
        return zero

    def passes(self, size: int = CHUNK_ROWS) -> Passes:
        """The rows as mechanisms take them, ``size`` at a time.

        Parameters
        ----------
        size : int
            Rows in a chunk.

        Returns
        -------
        Passes
            What `tacit.mechanisms` reads.
        """
        return Passes(
            lambda: (chunk for _, chunk in self.chunks(size)), partial(self.merged, size=size)
        )

    def pending(self) -> Passes:
        """The same for sums of integers, which may be taken before rows are written anywhere.

        Returns
        -------
        Passes
            Of chunks that are `tacit.mechanisms.additive.Pending`, where rows suit compiled loops.
        """
        if not self._stepped:
            return self.passes()
        spans = [(i, min(i + SUMMED, self.n)) for i in range(0, self.n, SUMMED)]
        return Passes(lambda: (Pending(self.source.slice(*span), self.maps) for span in spans))

    def read(self, start: int, stop: int, *, shaped: bool = False) -> Chunk:
        """Rows from start up to stop, through the maps.

        Parameters
        ----------
        start, stop : int
            The first row, and the one behind the last.
        shaped : bool
            Whether the caller knows `tacit.data.shaped.ShapedChunk`; others are given the sparse
            expansion.

        Returns
        -------
        ndarray or sparse matrix of shape (stop - start, d), ShapedChunk, or Table
            These rows.
        """
        chunk, left = self.source.slice(start, stop), list(self.maps)
        while left:
            chunk = plain(chunk)
            steps = list(takewhile(bool, map(step_of, left)))
            found = through(chunk, steps) if steps else None  # type: ignore[arg-type]
            if found is None:
                chunk = left.pop(0).apply(chunk)
            else:
                chunk = found
                del left[: len(steps)]
        return chunk if shaped else plain(chunk)

    def through(self, row_map: RowMap, *, d: int, bound: float | None) -> Rows:
        """The same rows seen through one more map.

        Parameters
        ----------
        row_map : RowMap
            Maps chunks, each row by itself.
        d : int
            Columns out.
        bound : float or None
            Norm bound of the rows out.

        Returns
        -------
        Rows
            None of which is computed yet.
        """
        return replace(self, maps=(*self.maps, row_map), d=d, bound=bound)

    def blanked_in(self, start: int, stop: int) -> np.ndarray | None:
        """Which rows from start up to stop are blanked; None if no stage has taken any out.

        Parameters
        ----------
        start, stop : int
            The first row, and the one behind the last.

        Returns
        -------
        ndarray of bool, of shape (stop - start,), or None
            True where a row counts nothing.
        """
        return None if self.blanked is None else self.blanked[start:stop]

    def held_in(self, source: Any, index: Any) -> Rows:
        """Some of the rows, which another source holds; ``index`` says which they are.

        Parameters
        ----------
        source : object
            What holds them.
        index : slice or array of shape (m,)
            Their places among these rows.

        Returns
        -------
        Rows
            With the same maps and bound.
        """
        return replace(
            self,
            source=source,
            blanked=None if self.blanked is None else self.blanked[index],
            owners=None if self.owners is None else self.owners.held(index),
        )

    def taken(self, index: np.ndarray) -> Rows:
        """Some of the rows, in any order.

        Parameters
        ----------
        index : ndarray of int, of shape (m,)
            Which ones.

        Returns
        -------
        Rows
            With the same maps and bound.
        """
        source: Any = self.source
        if self.distributed:
            codes = None if self.owners is None else self.owners.codes[index]
            return self.held_in(source.moved(source.move(index, codes)), index)
        if isinstance(source, Indexed):
            return self.held_in(Indexed(source.source, source.index[index]), index)
        if isinstance(source, DenseSource | SparseSource) or hasattr(source, "chosen"):
            return self.held_in(Indexed(source, index), index)
        if not can_take(self):
            raise InputError(ELSEWHERE)
        return self.held_in(source.take(index), index)

    def part(self, index: np.ndarray) -> Rows:
        """Some of the rows in their order, wherever they are: in memory, in files, on a cluster.

        Parameters
        ----------
        index : ndarray of int, of shape (m,)
            Which ones, rising.

        Returns
        -------
        Rows
            With the same maps and bound.
        """
        if can_take(self):
            return self.taken(index)
        if self.distributed:  # people may lie in several partitions, as before
            return self.held_in(self.source.moved(self.source.move(index, None)), index)
        from tacit.data.parts import part_of

        apart = part_of(self.source, index)
        if apart is None:
            raise InputError("some of these rows cannot be read by themselves: pass an array")
        return self.held_in(apart, index)

    def collected(self, function: Callable[[Rows], T]) -> list[T]:
        """A function of all rows, or of those of every partition on a cluster.

        Parameters
        ----------
        function : callable
            Of rows.

        Returns
        -------
        list
            One value, or one for each partition.
        """
        if self.distributed:
            found: list[T] = self.source.collected(self, function)
            return found
        return [function(self)]

    def one_each(self) -> Rows:
        """The first row of every person, which stands for all of that person's; or all rows.

        Returns
        -------
        Rows
            Of which every unit has one.
        """
        return self if self.owners is None else self.taken(self.standing)

    @property
    def standing(self) -> np.ndarray:
        """Places of the rows that stand for a person each, or of all rows."""
        if self.owners is None:
            return np.arange(self.n)
        return np.unique(self.owners.codes, return_index=True)[1]

    def hidden(self) -> Rows:
        """The same shape and bound without a single row: what a free or public stage is shown.

        Returns
        -------
        Rows
            Of which none can be read.
        """
        return self.held_in(self.source.empty(), slice(0, 0))

    def collect(self) -> np.ndarray | sp.csr_array:
        """All rows at once: sparse if their chunks are, dense otherwise.

        Returns
        -------
        ndarray or csr_array of shape (n, d)
            In memory.
        """
        parts = [chunk for _, chunk in self.chunks()]
        if not parts:
            return np.empty((0, self.d))
        if all(sp.issparse(part) for part in parts):
            return sp.csr_array(sp.vstack(parts, format="csr"))
        return np.concatenate(parts)


def followed(values: Any, before: Rows, index: np.ndarray) -> Any:
    """What belongs to rows, such as targets, for those that were taken of them.

    Parameters
    ----------
    values : ndarray of shape (n, ...), or Parts
        One for every row.
    before : Rows
        All of them.
    index : ndarray of int, of shape (m,)
        Which were taken.

    Returns
    -------
    ndarray of shape (m, ...), or Parts
        In partitions like those of the rows.
    """
    if not hasattr(values, "parts"):
        return np.asarray(values)[index]
    codes = None if before.owners is None else before.owners.codes[index]
    return values.moved(before.source.move(index, codes))


def can_take(rows: Rows) -> bool:
    """Whether single rows can be picked out: those in memory."""
    return hasattr(rows.source, "take")


def as_rows(data: Any, *, bound: float | None = None, gaps: bool = False) -> Rows:
    """Rows of an array, a sparse matrix, a table, a scan of files, a Dask collection, or rows.

    An array may be of another library than NumPy, on any device (`tacit.data.arrays`).
    Finite values are checked where numbers first appear; what to do about
    missing values of a table is the schema's business (`tacit.preprocessing.Encode`). What is read
    from a file, a memory map among them, is checked chunk by chunk, on every pass. With ``gaps``,
    NaN is a missing value that a stage will fill.

    Parameters
    ----------
    data : array or sparse matrix of shape (n, d), table, scan, Dask collection, or Rows
        Rows, wherever they are.
    bound : float, optional
        A public bound on the norm of every row, which is taken for granted.
    gaps : bool
        Whether NaN stands for a missing value.

    Returns
    -------
    Rows
        What stages and trainers read.

    Examples
    --------
    >>> rows = as_rows([[1.0, 2.0], [3.0, 4.0]])
    >>> rows.n, rows.d
    (2, 2)
    """
    if isinstance(data, Rows):
        return data if bound is None else replace(data, bound=bound)
    if isinstance(data, ShapedChunk):
        require_finite(data.straight, gaps=gaps)
        return Rows(ShapedSource(data), d=data.layout.d, bound=bound)
    if is_dask(data):
        from tacit.data.dask_rows import dask_rows

        return replace(dask_rows(data, gaps=gaps), bound=bound)
    if is_array(data):
        rows = Rows(ArraySource.of(data), d=data.shape[1], bound=bound)
        for _, chunk in rows.chunks():
            require_finite(chunk, gaps=gaps)
        return rows
    if hasattr(data, "as_rows"):  # tacit.data.Scan: it knows best
        return replace(data.as_rows(gaps=gaps), bound=bound)
    if isinstance(data, np.memmap):
        from tacit.data.mapped import Mapped

        return Rows(Mapped.of(data, gaps=gaps), d=data.shape[1], bound=bound)
    if sp.issparse(data):
        if data.ndim != 2:
            raise InputError(f"rows must be a table of two dimensions, not {data.ndim}")
        require_numbers(data.dtype)
        matrix = sp.csr_array(data)
        if not matrix.has_canonical_format:  # entries stored twice would make a row look shorter
            matrix = matrix.copy()
            matrix.sum_duplicates()
        require_finite(matrix.data, gaps=gaps)
        return Rows(SparseSource(matrix), d=matrix.shape[1], bound=bound)
    if hasattr(data, "__arrow_c_stream__") and not hasattr(data, "iloc"):  # pyarrow, polars
        from tacit.data.tables import as_table

        data = as_table(data).numbers()
    if hasattr(data, "slice") and hasattr(data, "column_names"):  # tacit.data.Table
        return Rows(data, d=len(data.column_names), bound=None)
    array = np.asarray(data)
    if array.ndim != 2:
        raise InputError(f"rows must be a table of two dimensions, not {array.ndim}")
    require_numbers(array.dtype)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            array = array.astype(np.float64)
    require_finite(array, gaps=gaps)
    return Rows(DenseSource(array), d=array.shape[1], bound=bound)


def each(values: Any, function: Callable[[Any], Any]) -> Any:
    """A function of values that belong to rows: here, or of every partition on a cluster."""
    return values.map(function) if hasattr(values, "parts") else function(values)


def shares_memory(one: Any, other: Any) -> bool:
    """Whether two tables are one, or hold some values in common, in memory; no value is read.

    Arrays, sparse matrices, tables, `Rows` and data frames are looked into, and files told apart
    by where they lie; anything else is only asked whether it is the same object.
    """
    if overlap(_array(one), _array(other)) or _files(one) & _files(other):
        return True
    theirs = _arrays(other)
    return any(np.shares_memory(a, b) for a in _arrays(one) for b in theirs)


def _files(data: Any) -> set[tuple[int, int]]:
    """The files that hold a table's values, under whatever names."""
    if isinstance(data, np.memmap):
        from tacit.data.mapped import Mapped

        data = Mapped.of(data) if data.ndim == 2 else None
    data = data.source if isinstance(data, Rows) else data
    return {stamp.identity for stamp in getattr(data, "stamps", ())}


def _array(data: Any) -> Any:
    """Data, or the array of another library that holds its rows."""
    data = data.source if isinstance(data, Rows) else data
    return data.array if isinstance(data, ArraySource) else data


def _arrays(data: Any) -> list[np.ndarray]:
    """The arrays that hold a table's values."""
    data = _array(data)
    if is_dask(data):
        return []
    if isinstance(data, DenseSource | SparseSource):
        data = data.array if isinstance(data, DenseSource) else data.matrix
    if isinstance(data, np.ndarray):
        return [data]
    if is_array(data):
        return host_view(data)
    if sp.issparse(data):
        return [data.data] if isinstance(getattr(data, "data", None), np.ndarray) else []
    if hasattr(data, "column_names") and hasattr(data, "arrays"):  # tacit.data.Table
        return list(data.arrays())
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # a data frame of pandas
        columns = (data.iloc[:, i].to_numpy() for i in range(len(data.columns)))
        return [column for column in columns if isinstance(column, np.ndarray)]
    return []


def require_numbers(dtype: np.dtype) -> None:
    if dtype.kind not in "fiub":
        raise of_rows(
            InputError(
                f"rows of {_KINDS.get(dtype.kind, 'objects')} are not numbers; describe the table "
                "in a schema and start the stages with Encode(schema)"
            )
        )


def require_finite(values: np.ndarray, block: int = 1 << 22, *, gaps: bool = False) -> None:
    if values.dtype.kind != "f":
        return
    flat = values.ravel(order="K")  # no copy, however rows lie in memory
    rest = flat.size % ABREAST
    sums = np.zeros(ABREAST)
    with np.errstate(all="ignore"):
        if not added(flat[rest:].reshape(-1, ABREAST), [], sums):
            sums[0] = np.add.reduce(flat)
        if np.isfinite(sums).all() and np.isfinite(flat[:rest]).all():  # so is every number, then
            return
    for start in range(0, values.size, block):
        part = flat[start : start + block]
        if gaps and np.isinf(part).any():
            raise of_rows(
                InputError("rows contain infinity; missing values are NaN, all others numbers")
            )
        if not gaps and not np.isfinite(part).all():
            raise of_rows(
                InputError(
                    "rows contain NaN or infinity; let a stage fill the gaps (NoiselessImpute, or "
                    "FillGaps with a constant), or give a table with a schema that says what a "
                    "missing value becomes (an imputer outside the plan is not covered by the "
                    "certificate)"
                )
            )
