"""Rows on a cluster that are put into other partitions, for instance those of a person together.

Which rows go where is decided where `fit` was called, of codes; values go from worker to worker.
A new partition is a source with a digest of its own: read again, it must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit.data.cluster import Cluster
from tacit.data.rows import DenseSource, SparseSource
from tacit.data.tables import Table, Text, joined
from tacit.exceptions import InputError


@dataclass(frozen=True, eq=False)
class Move:
    """Some rows in another order, cut into partitions anew.

    Attributes
    ----------
    sizes : tuple of int
        Rows of every partition, before.
    index : ndarray of int, of shape (m,)
        Which rows, in their new order.
    cuts : ndarray of int
        Where the new partitions begin, and where the last one ends.
    """

    sizes: tuple[int, ...]
    index: np.ndarray
    cuts: np.ndarray

    @classmethod
    def of(cls, sizes: Sequence[int], index: np.ndarray, codes: np.ndarray | None) -> Move:
        """Rows by their numbers; ``codes`` say whose each of these is, and are never parted.

        Rows that stay in the order of their partitions stay where they are. Others are dealt out
        to as many partitions as there were.
        """
        where = _parts_of(sizes, index)
        if (np.diff(where) >= 0).all():
            wanted = np.flatnonzero(np.diff(where)) + 1
        else:
            wanted = np.arange(1, len(sizes)) * len(index) // len(sizes)
        borders = np.arange(len(index) + 1)
        if codes is not None:
            borders = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1, [len(index)]])
        inner = borders[np.searchsorted(borders, wanted)]
        return cls(tuple(sizes), index, np.unique([0, *inner.tolist(), len(index)]))

    @property
    def new_sizes(self) -> tuple[int, ...]:
        """Rows of every partition, afterwards."""
        return tuple(np.diff(self.cuts).tolist())

    def do(
        self,
        cluster: Cluster,
        cut: Callable[..., Any],
        put: Callable[..., Any],
        parts: Sequence[Any],
        *others: Sequence[Any],
    ) -> list[Any]:
        """New partitions, as futures.

        ``cut(part, rows, *other)`` gives some rows of a partition, and ``put(pieces, order)`` one
        of what was cut for it, in that order.
        """
        starts = np.cumsum([0, *self.sizes])
        where = _parts_of(self.sizes, self.index)
        cuts: list[tuple[Any, ...]] = []
        pieces, orders = [], []
        for first, last in zip(self.cuts[:-1], self.cuts[1:], strict=True):
            here, some = where[first:last], self.index[first:last]
            begin, theirs = len(cuts), np.unique(here).tolist()
            for p in theirs:
                own = [other[p] for other in others]
                cuts.append((parts[p], some[here == p] - starts[p], *own))
            pieces.append(range(begin, len(cuts)))
            orders.append(np.argsort(np.argsort(here, kind="stable"), kind="stable"))
        done = cluster.each(cut, *zip(*cuts, strict=True))
        return cluster.each(put, [[done[i] for i in each] for each in pieces], orders)


def _parts_of(sizes: Sequence[int], index: np.ndarray) -> np.ndarray:
    """The partition of every row; empty ones have none."""
    return np.searchsorted(np.cumsum(sizes), index, side="right")


def put_together(sources: Sequence[Any], order: np.ndarray) -> Any:
    """Rows of several sources as one, in some order."""
    first = sources[0]
    if isinstance(first, DenseSource):
        kind = reduce(np.promote_types, [source.array.dtype for source in sources])
        return DenseSource(np.concatenate([s.array.astype(kind) for s in sources])[order])
    if isinstance(first, SparseSource):
        whole = sp.csr_array(sp.vstack([source.matrix for source in sources], format="csr"))
        return SparseSource(sp.csr_array(whole[order]))
    if isinstance(first, Table):
        return joined(_alike(sources), len(order)).take(order)
    raise InputError("rows of one person cannot be put together from partitions of this kind")


def _alike(tables: Sequence[Table]) -> list[Table]:
    """Tables whose columns are stored in one way: as words, wherever one of them has words."""
    found = []
    kinds = {
        name: {type(table._columns[name]) for table in tables} for name in tables[0].column_names
    }
    mixed = [name for name, types in kinds.items() if len(types) > 1]
    for table in tables:
        columns = dict(table._columns)
        for name in mixed:
            if not isinstance(columns[name], Text):
                codes, words = table.coded(name)
                columns[name] = Text(codes.astype(np.int32), words)
        found.append(Table(columns, table.n, table._types))
    return found
