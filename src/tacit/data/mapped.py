"""Arrays that stay in their file: memory maps, of which only what is asked for is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from tacit.data.rows import DenseSource, Source, require_finite, require_numbers
from tacit.data.stamps import Stamp
from tacit.data.streams import Ahead
from tacit.exceptions import FileError, InputError

# A header is read as a line of Python, so a damaged one may be anything.
_DAMAGED: tuple[type[Exception], ...] = (OSError, ValueError, EOFError, SyntaxError, TokenError)
_DAMAGED += (TypeError, KeyError, AttributeError, ArithmeticError, MemoryError, RecursionError)


@dataclass(frozen=True)
class Mapped:
    """A memory map of two dimensions as a source; every row that is read is checked.

    Attributes
    ----------
    array : ndarray
    stamp : Stamp or None
        Of the file; None if the map has none.
    gaps : bool
        Whether NaN is a missing value rather than an error.
    memory : int or None
        Bytes that an engine may take for rows; None for its own limit.
    """

    array: np.ndarray
    stamp: Stamp | None
    gaps: bool = False
    memory: int | None = None

    n = property(lambda self: self.array.shape[0])
    d = property(lambda self: self.array.shape[1])
    dtype = property(lambda self: self.array.dtype)
    sparse = False

    @classmethod
    def of(cls, array: np.memmap, *, gaps: bool = False) -> Mapped:
        require_numbers(array.dtype)
        if array.ndim != 2:
            raise InputError(f"rows must be a table of two dimensions, not {array.ndim}")
        if array.flags.writeable:
            array.flush()  # or else the time of the file may change later
        name = array.filename
        stamp = Stamp.of(name) if isinstance(name, str | os.PathLike) else None
        return cls(array.view(np.ndarray), stamp, gaps)

    @property
    def stamps(self) -> tuple[Stamp, ...]:
        return () if self.stamp is None else (self.stamp,)

    def empty(self) -> Source:
        return DenseSource(np.empty((0, self.d), dtype=self.array.dtype))

    def slice(self, start: int, stop: int) -> np.ndarray:
        return self.chosen(slice(start, stop))

    def chosen(self, which: Any) -> np.ndarray:
        """Some rows, wherever they are in the file."""
        return self._read(which).astype(np.float64)

    def pieces(self, cuts: Sequence[int], index: np.ndarray | None = None) -> Iterator[Source]:
        """Pieces between cuts, copied into memory while others are worked on."""
        spans = (slice(start, stop) for start, stop in pairwise(cuts))
        chosen = (self._read(span if index is None else index[span]) for span in spans)
        with Ahead(chosen) as read:
            for chunk in read:
                yield DenseSource(chunk)

    def _read(self, which: Any) -> np.ndarray:
        if self.stamp is not None:
            self.stamp.check()  # a page beyond the end of a file that shrank would end the process
        # A copy: what was checked is what is used. In order of rows, as in memory.
        chunk = np.array(self.array[which], order="C")
        if chunk.dtype.kind == "f" and chunk.dtype.itemsize > 8:
            with np.errstate(over="ignore"):  # infinite where float64 cannot hold it
                chunk = chunk.astype(np.float64)
        require_finite(chunk, gaps=self.gaps)
        return chunk


def open_array(path: Path, *, memory: int | None = None) -> Mapped:
    """A memory map of an ``.npy`` file."""
    stamp = Stamp.of(path)
    try:
        with np.errstate(over="raise"):  # a size that no integer holds
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except _DAMAGED:
        raise FileError(
            f"{path} is damaged, shorter than it says, or not an array of plain numbers; write it "
            "again with numpy.save"
        ) from None
    found = Mapped.of(array)
    if not found.n or not found.d:
        raise FileError(f"{path} has no rows, or no columns; a table needs at least one of each")
    return Mapped(found.array, stamp, memory=memory)
