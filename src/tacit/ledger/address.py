"""Where a ledger is: a file, or a PostgreSQL server. What is shown of it holds no password."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.exceptions import LedgerError

SECRETS = ("password", "sslpassword")
KNOWN = "a ledger is a path, sqlite:///path, or postgresql://user@host/database"


@dataclass(frozen=True)
class Address:
    """A place that a ledger can be in.

    Attributes
    ----------
    backend : str
        ``sqlite`` or ``postgresql``.
    place : str
        The absolute path of the file, or the whole URL; it may hold a password.
    shown : str
        The same for people, certificates and errors.

    Examples
    --------
    >>> Address.of("postgresql://ann:secret@db/privacy").shown
    'postgresql://ann:***@db/privacy'
    """

    backend: str
    place: str = field(repr=False)
    shown: str

    @staticmethod
    def of(given: Any) -> Address:
        if isinstance(given, os.PathLike):
            given = os.fspath(given)
        if not isinstance(given, str) or not given or "\0" in given:
            raise LedgerError(f"{KNOWN}, not {type(given).__name__}")
        if "://" not in given:
            return _file(given)
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            url = make_url(given.replace("postgres://", "postgresql://", 1))
            backend = url.get_backend_name()
        except (ArgumentError, ValueError, TypeError):  # its message would quote the URL
            raise LedgerError(f"that URL cannot be read; {KNOWN}") from None
        if backend == "sqlite" and not url.query and url.host is None:
            return _file(url.database or "")
        if backend != "postgresql":
            raise LedgerError(f"{KNOWN}; nothing else is supported")
        hidden = {name: "***" for name in SECRETS if name in url.query}
        shown = url.update_query_dict(hidden).render_as_string(hide_password=True)
        full = url.set(drivername="postgresql+psycopg")
        return Address("postgresql", full.render_as_string(hide_password=False), shown)


def _file(path: str) -> Address:
    """An absolute path: whoever changes directory must not start another ledger."""
    if not path or path.startswith(":memory:") or path.startswith("file:"):
        raise LedgerError(f"a ledger must outlive the program that uses it; {KNOWN}")
    absolute = str(Path(os.path.expanduser(path)).absolute())
    return Address("sqlite", absolute, absolute)
