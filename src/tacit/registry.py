"""What is found by name, and the one door to `tacit.research`.

Nothing imports `tacit.research`. It adds to registries instead, and they have its modules imported,
by name, when somebody first reads them. No other module but the package itself imports by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

from tacit.exceptions import InputError

T = TypeVar("T")


def load(part: str) -> None:
    """Import a part of `tacit.research`: it adds what it has to a registry."""
    import_module(f"tacit.research.{part}")


class Registry(Mapping[str, T]):
    """Things by name, in the order in which they were added.

    Parameters
    ----------
    what : str
        What they are called, in messages.
    part : str
        The part of `tacit.research` that adds more of them.
    own : Mapping
        Those of the library, which come first.

    Examples
    --------
    >>> from tacit.plan.recipes import TRAINERS
    >>> "dp-gd" in TRAINERS, "local" in TRAINERS
    (True, True)
    """

    def __init__(self, what: str, part: str, own: Mapping[str, T] | None = None) -> None:
        self._what, self._part, self._own = what, part, dict(own or {})

    def add(self, name: str, value: T) -> None:
        """Add what has a name of its own."""
        if self._own.setdefault(name, value) is not value:
            raise InputError(f"there is a {self._what} called {name!r} already")

    def __getitem__(self, name: str) -> T:
        load(self._part)
        return self._own[name]

    def __iter__(self) -> Iterator[str]:
        load(self._part)
        return iter(self._own)

    def __len__(self) -> int:
        load(self._part)
        return len(self._own)
