"""Passes over rows, wherever they are: summaries of chunks, added up.

What a mechanism needs from the rows is a sum over them, as exact integers: the same in whatever
order chunks are added, and on whichever machine they lie. So a mechanism never asks for the rows.
It says what to do with a chunk, and is given the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

Chunk: TypeAlias = Any  # float64 ndarray or csr_array of at most 2^22 rows
T = TypeVar("T")


class Passes:
    """Rows in chunks, over which a mechanism passes as often as it needs.

    Parameters
    ----------
    chunks : callable
        Gives the chunks, as often as it is called.
    merge : callable, optional
        ``merge(summary, zero)`` is ``zero`` plus the sum of ``summary(span, chunk)`` over all
        chunks, wherever they are: `tacit.data.Rows.merged`. Without it, the sum is taken here.
    changes : tuple of callable
        Applied to every chunk, in order, each row by itself.

    Examples
    --------
    >>> import numpy as np
    >>> halves = Passes.over([np.array([[1, 2]]), np.array([[3, 4], [5, 6]])])
    >>> halves.map(lambda chunk: 10 * chunk).merged(lambda chunk: chunk.sum(axis=0), np.zeros(2))
    array([ 90., 120.])
    """

    def __init__(
        self,
        chunks: Callable[[], Iterable[Chunk]],
        merge: Callable[[Callable[[slice, Chunk], Any], Any], Any] | None = None,
        changes: tuple[Callable[[Chunk], Chunk], ...] = (),
    ) -> None:
        self._chunks, self._merge, self._changes = chunks, merge, changes

    @classmethod
    def over(cls, chunks: Source) -> Passes:
        """Passes over chunks: passes already, what gives chunks when called, or the chunks."""
        if isinstance(chunks, Passes):
            return chunks
        if callable(chunks):
            return cls(chunks)
        given = chunks  # if they can be read only once, then so be it
        return cls(lambda: given)

    def map(self, change: Callable[[Chunk], Chunk]) -> Passes:
        """The same rows, each chunk changed as it is read."""
        return Passes(self._chunks, self._merge, (*self._changes, change))

    def merged(self, summary: Callable[[Chunk], T], zero: T) -> T:
        """``zero`` plus the summaries of all chunks.

        ``zero`` is added to in place where it can be, and must be the caller's own.
        """
        if self._merge is not None:
            found: T = self._merge(_Changed(self._changes, summary), zero)
            return found
        for chunk in self:
            zero += summary(chunk)  # type: ignore[operator]
        return zero

    def __iter__(self) -> Iterator[Chunk]:
        return (_changed(chunk, self._changes) for chunk in self._chunks())


Source: TypeAlias = "Passes | Iterable[Chunk] | Callable[[], Iterable[Chunk]]"


class _Changed:
    """A summary of changed chunks. It may be sent elsewhere, where no passes are."""

    def __init__(self, changes: tuple[Callable[[Chunk], Chunk], ...], summary: Any) -> None:
        self.changes, self.summary = changes, summary

    def __call__(self, span: slice, chunk: Chunk) -> Any:
        return self.summary(_changed(chunk, self.changes))


def _changed(chunk: Chunk, changes: tuple[Callable[[Chunk], Chunk], ...]) -> Chunk:
    for change in changes:
        chunk = change(chunk)
    return chunk
