"""How a sum over rows is cut into blocks, spread over threads, and put together.

A *block* of rows is worked on in cache. A *group* of blocks is one piece of work
for one thread. Cuts and the order of addition depend on the number of rows only,
so even floating-point sums are the same for any number of threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np

Block: TypeAlias = "slice | np.ndarray"  # which rows: a span, or their indices

LANES = 16  # rows per block are a multiple of it: the widest vector registers
GROUPS = 16  # pieces of a large sum, so that two to eight threads end together


def groups_of(count: int, block_rows: int, group_rows: int) -> Iterator[range]:
    """Even groups as ranges: start and stop of the group, the rows of its blocks as step."""
    pieces = max(_ceil(count, group_rows), min(GROUPS, _ceil(count, block_rows)), 1)
    if pieces > 1:
        pieces += pieces % 2  # an odd piece would leave one of two threads waiting
    size = min(_round_up(_ceil(count, pieces)), group_rows)
    for start in range(0, count, max(size, 1)):
        stop = min(start + size, count)
        blocks = _ceil(stop - start, block_rows)
        yield range(start, stop, _round_up(_ceil(stop - start, blocks)))


def padded(index: np.ndarray | None, start: int, stop: int) -> Block:
    """Rows of a block, the last one repeated up to a multiple of `LANES`.

    ``index`` lists the rows of a batch; None stands for all rows.
    """
    extra = -(stop - start) % LANES
    if index is None:
        if not extra:
            return slice(start, stop)
        return np.minimum(np.arange(start, stop + extra), stop - 1)
    chosen = index[start:stop]
    return np.concatenate([chosen, np.repeat(chosen[-1:], extra)]) if extra else chosen


def ordered_sum(
    task: Callable[[range], np.ndarray | None],
    groups: Sequence[range],
    total: np.ndarray,
    pool: ThreadPoolExecutor | None,
    threads: int,
) -> None:
    """Add ``task(group)`` to ``total`` for every group, in their order; None adds nothing.

    The calling thread works as well, so nothing waits for a busy machine to
    start the others.
    """
    if pool is None or len(groups) == 1:
        for group in groups:
            if (part := task(group)) is not None:
                np.add(total, part.astype(total.dtype, copy=False), out=total)
        return
    todo = deque(enumerate(groups))
    lock = threading.Lock()
    waiting: dict[int, np.ndarray | None] = {}
    turn = 0

    def work() -> None:
        nonlocal turn
        while True:
            try:
                number, group = todo.popleft()
            except IndexError:
                return
            part = task(group)
            with lock:
                waiting[number] = part
                while turn in waiting:
                    ready = waiting.pop(turn)
                    turn += 1
                    if ready is not None:
                        np.add(total, ready.astype(total.dtype, copy=False), out=total)

    futures = [pool.submit(work) for _ in range(min(threads, len(groups)) - 1)]
    work()
    for future in futures:
        future.result()


def _ceil(count: int, size: int) -> int:
    return -(-count // size)


def _round_up(size: int) -> int:
    return _ceil(size, LANES) * LANES
