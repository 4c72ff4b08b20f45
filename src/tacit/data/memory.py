"""How much memory rows may take, decided by public facts: how many there are, and how wide."""

from __future__ import annotations

import os
from contextlib import suppress

from tacit.data.rows import Rows
from tacit.exceptions import InputError

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

SHARE = 4  # of the machine's memory, one part in so many
UNKNOWN = 8 << 30  # bytes, where the machine does not say what it has
CONTAINERS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_for(rows: Rows) -> int:
    """Bytes that rows may take: what their source says, or a quarter of the machine's memory."""
    asked = getattr(rows.source, "memory", None)
    if asked is not None:
        return int(asked)
    return machine_memory() // SHARE


def allowed_memory(rows: Rows) -> int:
    """Bytes that rows may take that are not read again: what is said, or all of the machine's."""
    asked = getattr(rows.source, "memory", None)
    return machine_memory() if asked is None else int(asked)


def machine_memory() -> int:
    """Bytes that this process may have in all."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every platform
        return UNKNOWN
    allowed = [] if resource is None else [resource.getrlimit(resource.RLIMIT_AS)[0]]
    for place in CONTAINERS:
        # Without a limit, it says so in words.
        with suppress(OSError, ValueError), open(place, "rb", buffering=0) as limit:
            allowed.append(int(limit.read(64)))
    return min([found, *(limit for limit in allowed if limit > 0)])  # some say -1 for none


def require_room(rows: Rows, what: str, d: int) -> None:
    """Refuse to hold rows from files, as float64 of d columns, if they are too many."""
    if hasattr(rows.source, "stamps") and 8 * rows.n * d > memory_for(rows):
        raise InputError(
            f"{what} looks at all rows at once, and {rows.n} of {d} columns do not fit into "
            f"{memory_for(rows) / 2**30:.3g} GB; leave it out, take a part of the rows, or allow "
            "more with scan(path, memory=...)"
        )
