"""How much memory rows may take, decided by public facts: how many there are, and how wide."""

from __future__ import annotations

import os

from tacit.data.rows import Rows
from tacit.exceptions import InputError

__all__ = ["memory_for", "require_room"]

SHARE = 4  # of the machine's memory, one part in so many
UNKNOWN = 2 << 30  # bytes, where the machine does not say what it has


def memory_for(rows: Rows) -> int:
    """Bytes that rows may take: what their source says, or a quarter of the machine's memory."""
    asked = getattr(rows.source, "memory", None)
    if asked is not None:
        return int(asked)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // SHARE
    except (AttributeError, ValueError, OSError):  # not on every platform
        return UNKNOWN


def require_room(rows: Rows, what: str, d: int) -> None:
    """Refuse to hold rows from files, as float64 of d columns, if they are too many."""
    if hasattr(rows.source, "stamps") and 8 * rows.n * d > memory_for(rows):
        raise InputError(
            f"{what} looks at all rows at once, and {rows.n} of {d} columns do not fit into "
            f"{memory_for(rows) / 2**30:.3g} GB; leave it out, take a part of the rows, or allow "
            "more with scan(path, memory=...)"
        )
