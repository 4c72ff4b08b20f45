"""The number of rows that an account may use: it is public, or a public number stands for it."""

from __future__ import annotations

from tacit.exceptions import InputError, MissingBound
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Neighbors


def resolve_size(n: int, neighbors: Neighbors, size: int | None) -> int:
    """The number of rows, or with ``add_or_remove_one`` the public stand-in, ``size``.

    Examples
    --------
    >>> resolve_size(103, "replace_one", None), resolve_size(103, "add_or_remove_one", 100)
    (103, 100)
    """
    sensitivity(neighbors)
    if neighbors == "add_or_remove_one":
        if size is None:
            raise MissingBound(neighbors, "public_size=, a public stand-in for the number of rows")
    elif size not in (None, n):
        raise InputError("the number of rows is public here; public_size= is for add_or_remove_one")
    else:
        size = n
    if isinstance(size, bool) or int(size) != size or size < 1:
        raise InputError(f"public_size={size!r} must be an integer of at least 1")
    return int(size)
