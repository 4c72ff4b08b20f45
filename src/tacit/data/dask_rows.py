"""Rows of Dask arrays and data frames, which stay on the workers of a cluster.

A partition becomes a source of its own, checked where it lies, and the maps of the stages go there.
What comes back is sums. They are integers wherever privacy rests on them, so they are those of
one machine, bit for bit, whatever the partitions.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from tacit import __version__
from tacit.data.checks import column_of
from tacit.data.cluster import Cluster
from tacit.data.owners import Owners, numbered
from tacit.data.regrouped import Move, put_together
from tacit.data.rows import CHUNK_ROWS, Chunk, DenseSource, Rows, SparseSource, as_rows
from tacit.data.tables import Table, Text, as_table
from tacit.exceptions import ClusterError, InputError, of_rows
from tacit.privacy.unit import Unit


@dataclass(frozen=True, eq=False)
class Parts:
    """One value for every partition of the rows, such as its targets, on the workers.

    Attributes
    ----------
    cluster : Cluster
    parts : tuple of Future
    sizes : tuple of int
        Rows of every partition.
    """

    cluster: Cluster
    parts: tuple[Any, ...]
    sizes: tuple[int, ...]

    def map(self, function: Callable[[Any], Any]) -> Parts:
        """The function of every value, where it lies."""
        order = self.cluster.parcel(function, copies=len(self.parts))
        made = self.cluster.each(_ordered, self.parts, [order] * len(self.parts))
        return replace(self, parts=tuple(made))

    def moved(self, move: Move) -> Parts:
        """Values of some rows, in other partitions."""
        made = move.do(self.cluster, _cut_values, _put_values, self.parts)
        return replace(self, parts=tuple(made), sizes=move.new_sizes)

    def require(self) -> None:
        """Wait for all values, and raise what went wrong with any of them."""
        self.cluster.values(self.cluster.each(_nothing, self.parts))

    def gather(self) -> list[Any]:
        """The values themselves: for what is small."""
        return self.cluster.values(self.parts)


@dataclass(frozen=True, eq=False)
class DaskSource:
    """Rows in partitions on the workers of a cluster.

    Attributes
    ----------
    cluster : Cluster
    parts : tuple of Future
        Sources of their own.
    sizes : tuple of int
        Rows of every partition.
    digests : tuple of bytes
        Of what was read: a partition that has to be read again must be the same.
    hollow : Source
        The same without a row.
    """

    cluster: Cluster
    parts: tuple[Any, ...]
    sizes: tuple[int, ...]
    digests: tuple[bytes, ...]
    hollow: Any

    distributed = True
    n = property(lambda self: sum(self.sizes))
    d = property(lambda self: self.hollow.d)
    sparse = property(lambda self: self.hollow.sparse)
    types = property(lambda self: getattr(self.hollow, "types", {}))
    dtype = property(lambda self: getattr(self.hollow, "dtype", None))

    @property
    def offsets(self) -> list[int]:
        """The number of the first row of every partition."""
        return [0, *accumulate(self.sizes)][:-1]

    def empty(self) -> Any:
        return self.hollow

    def slice(self, start: int, stop: int) -> Chunk:
        raise InputError(
            "this needs all rows in one place, and they are on the workers of a cluster: pass "
            "X.compute(), or leave out what asks for them"
        )

    def merged(self, rows: Rows, summary: Callable[..., Any], zero: Any, size: int) -> Any:
        """``Rows.merged`` of rows that begin here: on every worker, and added up."""
        zero += self.cluster.total(self.each(rows, _summed, summary, zero, size))
        return zero

    def everywhere(self, rows: Rows, function: Callable[[Rows], Any]) -> None:
        """Call a function of rows with those of every partition."""
        self.cluster.values(self.each(rows, _called, function))

    def each(self, rows: Rows, function: Callable[..., Any], *content: Any) -> list[Any]:
        """``function(rows, start, *content)`` of every partition, as futures."""
        count = len(self.parts)
        order = self.cluster.parcel(function, without_rows(rows), content, copies=count)
        return self.cluster.each(
            _with_rows, self.parts, self.digests, self.offsets, [order] * count
        )

    def move(self, index: np.ndarray, codes: np.ndarray | None) -> Move:
        """How some rows, in another order, come to lie in partitions: rows of one code in one."""
        return Move.of(self.sizes, index, codes)

    def moved(self, move: Move) -> DaskSource:
        """Some rows, in other partitions."""
        parts = move.do(self.cluster, _cut, _put, self.parts, self.digests)
        digests = self.cluster.values(self.cluster.each(_digest_of, parts))
        return replace(self, parts=tuple(parts), sizes=move.new_sizes, digests=tuple(digests))

    def collected(self, rows: Rows, function: Callable[[Rows], Any]) -> list[Any]:
        """A function of the rows of every partition: what it gives comes here."""
        return self.cluster.values(self.each(rows, _gave, function))

    def alike(self, values: Any) -> Parts:
        """One value a row, in partitions like those of the rows."""
        cut = np.split(values, self.offsets[1:])
        # As part of the tasks: what is scattered is lost with the worker that has it.
        parts = self.cluster.each(np.asarray, cut)
        return Parts(self.cluster, tuple(parts), self.sizes)


@dataclass(frozen=True)
class Piece:
    """A partition as it was read."""

    source: Any
    digest: bytes

    def require(self, digest: bytes) -> None:
        if self.digest != digest:
            raise ClusterError(
                "a partition had to be read again, after a worker was lost, and is not what it was "
                "before: what is fitted to must not change. What was reserved in a ledger counts "
                "as spent"
            )

    def __sizeof__(self) -> int:
        return 64 + sum(array.nbytes for array in _arrays(self.source))


def without_rows(rows: Rows) -> Rows:
    """Rows without any source, and maps without data that they need no more, for a journey."""
    maps = tuple(_without_public(each) for each in rows.maps)
    return replace(rows, source=None, maps=maps, blanked=None, owners=None)


def _without_public(stage: Any) -> Any:
    unsaved = set(getattr(stage, "unsaved", ())) & {"public"}
    if unsaved:
        stage = copy.copy(stage)
        for name in unsaved:
            setattr(stage, name, None)
    return stage


def dask_rows(data: Any, *, gaps: bool = False, table: bool = False) -> Rows:
    """Rows of a Dask array or data frame on the cluster of the current client.

    They are read and checked at once, and kept by the workers for as long as the result lives.

    Parameters
    ----------
    data : dask.array.Array or dask.dataframe.DataFrame
        Of two dimensions. Blocks of an array may be sparse.
    gaps : bool
        Whether NaN is a missing value.
    table : bool
        Whether partitions are tables with named columns, for `tacit.preprocessing.Encode`.
    """
    cluster = Cluster.current()
    if getattr(data, "ndim", None) != 2:
        raise InputError("rows must be an array or data frame of Dask with two dimensions")
    if hasattr(data, "rechunk"):
        if table:
            raise InputError("Encode needs a table with named columns: a data frame of Dask")
        if data.numblocks[1] > 1:
            data = data.rechunk({1: -1})
    pieces = _pieces(data)
    if not pieces:
        raise InputError("there are no rows")
    parts = cluster.read(_checked, pieces, gaps, table)
    facts = cluster.values(cluster.each(_facts, parts))
    theirs = {version for *_, version in facts}
    if theirs != {__version__}:
        raise InputError(
            f"workers have tacit {', '.join(sorted(theirs))} and this process {__version__}; "
            "install the same one"
        )
    sizes, digests, hollows, _ = zip(*facts, strict=True)
    return Rows(
        DaskSource(cluster, tuple(parts), sizes, digests, _agreed(hollows, sizes)),
        d=hollows[0].d,
        bound=None,
    )


def dask_parts(values: Any, rows: Rows) -> Parts:
    """One value for every row, from a Dask array or series in partitions like those of the rows."""
    source: DaskSource = rows.source
    cluster, sizes = source.cluster, source.sizes
    if hasattr(values, "rechunk"):
        known = not any(np.isnan(size) for size in values.chunks[0])
        if known and values.shape[0] == rows.n and values.chunks[0] != sizes:
            values = values.rechunk({0: sizes})
    pieces = _pieces(values)
    if len(pieces) != len(sizes):
        raise InputError(
            f"y has {len(pieces)} partitions and X {len(sizes)}; they must be alike, as columns of "
            "one data frame are"
        )
    read = cluster.read(_values, pieces)
    parts = cluster.each(_checked_values, read, sizes)
    found = Parts(cluster, tuple(parts), sizes)
    found.require()  # errors, before anything is spent
    return found


def _pieces(data: Any) -> list[Any]:
    """Partitions of a Dask collection, in order."""
    found = data.to_delayed()
    return list(found.ravel() if isinstance(found, np.ndarray) else found)


def dask_owners(identifiers: Any, unit: Unit) -> Owners:
    """Owners of the rows of a cluster, by a Dask array or series of identifiers in their order.

    Of identifiers, the different ones of every partition come here, to be forgotten at once.
    """
    if getattr(identifiers, "ndim", 1) != 1:
        raise InputError("groups must hold one identifier for each row")
    cluster = Cluster.current()
    read = cluster.read(_identifiers, _pieces(identifiers))
    return Owners.of_parts(cluster.values(read), unit)


# --- On the workers ------------------------------------------------------------------------------


def _identifiers(block: Any) -> tuple[list[str], np.ndarray]:
    return numbered(column_of(_values(block), len(block), "groups"))


def _checked(block: Any, gaps: bool, table: bool) -> Piece:
    """A partition as a source of rows, its numbers finite."""
    frame = hasattr(block, "columns") and hasattr(block, "to_numpy")
    if table:
        source: Any = as_table(block)
    else:
        if frame:
            if any(getattr(kind, "kind", "O") not in "fiub" for kind in block.dtypes):
                raise InputError(
                    "the data frame holds columns that are not numbers; describe it in a schema "
                    "and start the stages with Encode(schema)"
                )
            plain = all(isinstance(kind, np.dtype) for kind in block.dtypes)
            block = block.to_numpy() if plain else block.to_numpy(np.float64, na_value=np.nan)
        if isinstance(block, np.ndarray):
            block = np.asarray(block)  # whatever kind of array: a memory map is read here
        source = as_rows(block, gaps=gaps).source
    return Piece(source, _digest(source))


def _cut(piece: Piece, rows: np.ndarray, digest: bytes) -> Any:
    piece.require(digest)
    return piece.source.take(rows)


def _put(sources: list[Any], order: np.ndarray) -> Piece:
    source = put_together(sources, order)
    return Piece(source, _digest(source))


def _digest_of(piece: Piece) -> bytes:
    return piece.digest


def _cut_values(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.asarray(values)[rows]


def _put_values(values: list[np.ndarray], order: np.ndarray) -> np.ndarray:
    return np.concatenate(values)[order]


def _facts(piece: Piece) -> tuple[int, bytes, Any, str]:
    return piece.source.n, piece.digest, piece.source.empty(), __version__


def _agreed(hollows: tuple[Any, ...], sizes: tuple[int, ...]) -> Any:
    """What all partitions look like without a row."""
    if len({hollow.d for hollow in hollows}) > 1 or len({type(h) for h in hollows}) > 1:
        raise InputError("partitions differ in their columns, or some are sparse and others dense")
    first = hollows[0]
    if not isinstance(first, Table):
        return first
    if any(hollow.column_names != first.column_names for hollow in hollows):
        raise InputError("partitions differ in the names of their columns")
    # A column in which some partition has words is one of text; empty ones have nothing to say.
    full = [h for h, size in zip(hollows, sizes, strict=True) if size] or [first]
    text = [h for h in full if any(h.kind(name) == "text" for name in h.column_names)]
    words = {name: h for h in text for name in h.column_names if h.kind(name) == "text"}
    columns = {name: words.get(name, full[0])._columns[name] for name in first.column_names}
    return Table(columns, 0, first.types)


def _values(block: Any) -> np.ndarray:
    """One value a row, of an array or a series."""
    if hasattr(block, "to_numpy"):
        block = block.to_numpy()
    return np.asarray(block)


def _checked_values(values: np.ndarray, size: int) -> np.ndarray:
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or len(values) != size:
        raise of_rows(
            InputError(
                "y must hold one value for each row, in partitions like those of X; one of them "
                f"has shape {values.shape} and {size} rows"
            )
        )
    return values


def _with_rows(piece: Piece, digest: bytes, start: int, order: Any) -> Any:
    piece.require(digest)
    function, rows, content = order.open()
    return function(replace(rows, source=piece.source), start, *content)


def _summed(rows: Rows, start: int, summary: Any, zero: Any, size: int = CHUNK_ROWS) -> Any:
    def here(span: slice, chunk: Chunk) -> Any:
        return summary(slice(span.start + start, span.stop + start), chunk)

    return rows.merged(here, zero, size=size)


def _gave(rows: Rows, start: int, function: Callable[[Rows], Any]) -> Any:
    return function(rows)


def _called(rows: Rows, start: int, function: Callable[[Rows], Any]) -> None:
    function(rows)


def _ordered(value: Any, order: Any) -> Any:
    (function,) = order.open()
    return function(value)


def _nothing(value: Any) -> None:
    return None


def _arrays(source: Any) -> list[np.ndarray]:
    if isinstance(source, DenseSource):
        return [source.array]
    if isinstance(source, SparseSource):
        return [source.matrix.data, source.matrix.indices, source.matrix.indptr]
    return list(source.arrays())


def _digest(source: Any) -> bytes:
    """A digest of the values, for a comparison that never leaves the fit."""
    digest = hashlib.blake2b(digest_size=16)
    for array in _arrays(source):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B"))
    if isinstance(source, Table):
        for name in source.column_names:
            digest.update(name.encode("utf-8", "surrogatepass") + b"\0")
            column = source._columns[name]
            if isinstance(column, Text):
                digest.update("\0".join(column.words).encode("utf-8", "surrogatepass"))
    return digest.digest()
