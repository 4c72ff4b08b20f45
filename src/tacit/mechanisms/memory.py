"""Memory for large arrays that is used again: fresh memory costs more than arithmetic on it."""

from __future__ import annotations

from threading import Lock
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import DTypeLike, NDArray

LARGE = 1 << 22  # bytes; for less, the C library keeps memory by itself


class Memory:
    """Makes arrays, in the memory of earlier ones that nobody holds any more.

    A view of an array holds it. So whoever keeps an array, or a part of it, keeps its numbers too.

    Examples
    --------
    >>> memory = Memory()
    >>> memory.empty(3, np.float64).shape
    (3,)
    """

    def __init__(self) -> None:
        self._kept: list[tuple[NDArray[np.uint8], ReferenceType[np.ndarray]]] = []
        self._lock = Lock()

    def empty(self, count: int, dtype: DTypeLike) -> np.ndarray:
        """An array in one dimension, whatever it holds."""
        size = count * np.dtype(dtype).itemsize
        if size < LARGE:
            return np.empty(count, dtype)
        with self._lock:
            for i, (held, last) in enumerate(self._kept):
                if last() is None and held.nbytes == size:
                    del self._kept[i]
                    break
            else:
                held = np.empty(size, np.uint8)
            # Over a buffer, so that views refer to this array, and not to what lies below.
            found = np.frombuffer(held.data, dtype)
            self._kept.append((held, ref(found)))
        return found
