"""Some rows of files, in their order: what is trained on, or what is tested on.

Nothing is copied. Every pass reads the files as before and leaves out the other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.mapped import Mapped
from tacit.data.rows import Source
from tacit.data.streams import Batch, Ordered


@dataclass(frozen=True, eq=False)
class FilePart(Ordered):
    """Some rows of a table in files.

    Attributes
    ----------
    source : Ordered
        All rows.
    index : ndarray of int, of shape (n,)
        Which ones, rising.
    """

    source: Any
    index: np.ndarray

    n = property(lambda self: len(self.index))
    d = property(lambda self: self.source.d)
    dtype = property(lambda self: getattr(self.source, "dtype", None))
    kinds = property(lambda self: self.source.kinds)
    types = property(lambda self: self.source.types)
    stamps = property(lambda self: self.source.stamps)
    numbers = property(lambda self: self.source.numbers)
    memory = property(lambda self: self.source.memory)

    def empty(self) -> Source:
        found: Source = self.source.empty()
        return found

    def batches(
        self, start: int = 0, index: np.ndarray | None = None
    ) -> Iterator[tuple[int, Batch]]:
        wanted = self.index[start:] if index is None else self.index[index]
        if not len(wanted):
            return
        for first, batch in self.source.batches(int(wanted[0]), wanted):
            low, high = np.searchsorted(self.index, [first, first + batch.n])
            if low < high:
                yield int(low), batch.take(self.index[low:high] - first)


@dataclass(frozen=True)
class MappedPart:
    """Some rows of a memory map.

    Attributes
    ----------
    source : Mapped
        All rows.
    index : ndarray of int, of shape (n,)
        Which ones, rising.
    """

    source: Mapped
    index: np.ndarray

    n = property(lambda self: len(self.index))
    d = property(lambda self: self.source.d)
    dtype = property(lambda self: self.source.dtype)
    stamps = property(lambda self: self.source.stamps)
    memory = property(lambda self: self.source.memory)
    sparse = False

    def empty(self) -> Source:
        return self.source.empty()

    def slice(self, start: int, stop: int) -> np.ndarray:
        return self.chosen(slice(start, stop))

    def chosen(self, which: Any) -> np.ndarray:
        """Some of these rows, wherever they are in the file."""
        return self.source.chosen(self.chosen_rows(which))

    def chosen_rows(self, places: Any) -> np.ndarray:
        """Where rows of this part are among all of them."""
        found: np.ndarray = self.index[places]
        return found

    def pieces(self, cuts: Sequence[int], index: np.ndarray | None = None) -> Iterator[Source]:
        """Pieces between cuts, copied into memory while others are worked on."""
        wanted = self.chosen_rows(slice(None) if index is None else index)
        return self.source.pieces(cuts, wanted)


def part_of(source: Any, index: np.ndarray) -> Any:
    """Some rows of a source that is read in order; None if it is of another kind.

    Parameters
    ----------
    source : Source
        All rows.
    index : ndarray of int, of shape (m,)
        Which ones, rising.

    Returns
    -------
    Source or None
        Of m rows.
    """
    if isinstance(source, Ordered):
        return FilePart(source, index)
    return MappedPart(source, index) if isinstance(source, Mapped) else None
