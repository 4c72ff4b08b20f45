"""Entries in a database: one file of SQLite, or tables of PostgreSQL.

Every write is one transaction that holds the ledger's lock from its first statement, so what it
reads is what it adds to, and it is on disk when it returns. Connections are opened for each call
and closed after it: nothing is shared between threads or with forked children.

A connection may be lost while a transaction is being committed, and then nobody knows whether it
was. So work is done again under the same lock until it succeeds, and begins by looking for the id
it is about to write: an entry is neither lost nor written twice.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from tacit.exceptions import InputError, LedgerError
from tacit.ledger.address import Address
from tacit.ledger.composed import LARGEST_KEPT
from tacit.ledger.links import FORMAT, LONGEST_ENTRY, ORIGIN, Row, Tampered, canonical, digest

T = TypeVar("T")

_TABLES = sa.MetaData()
_HEAD = sa.Table(
    "tacit_ledger",
    _TABLES,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
)
_ENTRIES = sa.Table(
    "tacit_entries",
    _TABLES,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Index("tacit_entries_by_dataset", "dataset", "number"),
)
# What events that are not Gaussian were composed to: one for each account, which an entry of that
# number holds the hash of. Ledgers from before there was such a table get it when they are written.
_KEPT = sa.Table(
    "tacit_composed",
    _TABLES,
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
_ROWS = sa.select(*(_ENTRIES.c[name] for name in Row._fields))
# Bytes that are read of a file's cell, but for what is kept composed.
LONGEST_CELL = 4 * LONGEST_ENTRY
_ADVISORY = 0x7461636974  # "tacit": whoever makes the tables holds this lock of PostgreSQL


class Journal:
    """The ledger within one transaction."""

    def __init__(self, connection: sa.Connection, lock: bool) -> None:
        self.connection = connection
        asked = sa.select(_HEAD.c.format, _HEAD.c.count, _HEAD.c.head).where(_HEAD.c.id == 1)
        found = connection.execute(asked.with_for_update() if lock else asked).first()
        if found is None:
            raise Tampered("the ledger lacks its head: it was edited. Run: tacit ledger check")
        stated, count, head = found
        if stated != FORMAT:
            raise LedgerError(f"this ledger has the format {stated!r:.40}, not {FORMAT}")
        if not (isinstance(count, int) and isinstance(head, str)):
            raise Tampered("the head of the ledger was edited. Run: tacit ledger check")
        self.count, self.head = count, head

    def at(self, number: int) -> Row | None:
        """The entry with a number, if there is one."""
        found = self.connection.execute(_ROWS.where(_ENTRIES.c.number == number)).first()
        return None if found is None else _row(*found)

    def rows(self, dataset: str | None = None, start: int | None = None) -> list[Row]:
        """Entries in their order, from a number on: of one data set, or of all."""
        asked = _ROWS.order_by(_ENTRIES.c.number)
        if dataset is not None:
            asked = asked.where(_ENTRIES.c.dataset == dataset)
        if start is not None:
            asked = asked.where(_ENTRIES.c.number >= start)
        rows: list[Row] = []
        for found in self.connection.execute(asked).yield_per(1000):
            row = _row(*found)
            if rows and row.number <= rows[-1].number:
                # Pages of a file may be made to lead to each other for ever.
                raise Tampered(f"entry {row.number} is not in its place: the file is damaged")
            rows.append(row)
        return rows

    def find(self, id: str) -> Row | None:
        """The entry with an id, if it was written."""
        found = self.connection.execute(_ROWS.where(_ENTRIES.c.id == id)).first()
        return None if found is None else _row(*found)

    def append(self, dataset: str, nth: int, id: str, **facts: Any) -> Row:
        """Write the next entry."""
        number = self.count + 1
        fixed = {"dataset": dataset, "id": id, "number": number, "nth": nth}
        body = canonical({**facts, **fixed, "previous": self.head})
        if len(body) > LONGEST_ENTRY:  # it could not be read again
            raise InputError(
                f"an entry of more than {LONGEST_ENTRY} characters: a plan of fewer events"
            )
        row = Row(number, dataset, id, body, digest(body))
        self.connection.execute(_ENTRIES.insert().values(row._asdict()))
        self.connection.execute(
            _HEAD.update().where(_HEAD.c.id == 1).values(count=number, head=row.hash)
        )
        self.count, self.head = number, row.hash
        return row

    def kept(self, dataset: str) -> tuple[int, bytes] | None:
        """What was composed for an account, with the number of its entry; if it is of use."""
        asked = sa.select(_KEPT.c.number, _KEPT.c.content).where(
            _KEPT.c.dataset == dataset, sa.func.length(_KEPT.c.content) <= LARGEST_KEPT
        )
        try:
            if not sa.inspect(self.connection).has_table(_KEPT.name):
                return None
            with _long_cells(self.connection), self.connection.begin_nested():
                found = self.connection.execute(asked).first()
        except sa.exc.ProgrammingError:  # no right to read it
            return None
        if found is None or not (isinstance(found[0], int) and isinstance(found[1], bytes)):
            return None
        return found[0], found[1]

    def keep(self, dataset: str, number: int, content: bytes) -> None:
        """Keep what was composed for an account, in the place of what was kept before."""
        if len(content) > LARGEST_KEPT:
            return
        try:
            with _long_cells(self.connection), self.connection.begin_nested():
                _KEPT.create(self.connection, checkfirst=True)
                self.connection.execute(_KEPT.delete().where(_KEPT.c.dataset == dataset))
                made = {"dataset": dataset, "number": number, "content": content}
                self.connection.execute(_KEPT.insert().values(made))
        except sa.exc.ProgrammingError:
            # No right to make or to write the table: whoever reads composes for themselves.
            return


@contextmanager
def _long_cells(connection: sa.Connection) -> Iterator[None]:
    """Let SQLite read and write what is kept composed, which is longer than any entry."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        yield
        return
    driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * LARGEST_KEPT)
    try:
        yield
    finally:
        driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_CELL)


def _row(number: Any, *texts: Any) -> Row:
    """A row of the database, in which SQLite lets anybody put anything."""
    if not isinstance(number, int) or not all(isinstance(text, str) for text in texts):
        raise Tampered(f"entry {number!r:.20} was edited: it holds what is neither number nor text")
    return Row(number, *texts)


class Store:
    """Transactions on the ledger at an address."""

    def __init__(self, address: Address, timeout: float = 30.0) -> None:
        self.address = address
        self.timeout = timeout

    def read(self, work: Callable[[Journal], T]) -> T:
        """Do something with the ledger as it is at one moment."""
        return self._try(work, write=False, make=False)

    def write(self, work: Callable[[Journal], T], *, make: bool = False) -> T:
        """Do something under the ledger's lock, and keep it; ``make`` also makes the tables.

        ``work`` may be run several times, and must look for what it has already written.
        """
        return self._try(work, write=True, make=make)

    def _try(self, work: Callable[[Journal], T], *, write: bool, make: bool) -> T:
        deadline, pause = time.monotonic() + self.timeout, 0.005
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            progress = _Progress()
            try:
                with self.transaction(left, progress, write, make) as connection:
                    result = work(Journal(connection, lock=write and self._server))
                    progress.committing = write
                return result
            except sa.exc.SQLAlchemyError as error:
                trouble = self._judge(error, progress)
            except (OSError, MemoryError, UnicodeError) as error:  # SQLite quotes damaged files
                trouble = _Trouble(f"cannot use the ledger {self.address.shown}: {error}")
            if not trouble.passing or time.monotonic() + pause > deadline:
                raise LedgerError(trouble.words + progress.consequence(write))
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, 0.5)

    @property
    def _server(self) -> bool:
        return self.address.backend == "postgresql"

    @contextmanager
    def transaction(
        self, left: float, progress: _Progress, write: bool, make: bool
    ) -> Iterator[sa.Connection]:
        engine = self._engine(left, make)
        with engine.connect() as connection:
            progress.connected = True
            with connection.begin():
                if self._server:
                    _begin_on_server(connection, left, write)
                else:
                    # Deferred, a writer would ask for the lock when it is too late to wait for it.
                    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
                    _require_plain_tables(connection)
                if make:
                    _make_tables(connection, self._server)
                yield connection

    def _engine(self, left: float, make: bool) -> sa.Engine:
        if self._server:
            level = "READ COMMITTED"  # behind the lock, every statement sees what was committed
            waiting = {"connect_timeout": max(2, min(10, int(left)))}
            url = sa.make_url(self.address.place)
            waiting = {name: value for name, value in waiting.items() if name not in url.query}
            try:
                return sa.create_engine(
                    url, poolclass=NullPool, isolation_level=level, connect_args=waiting
                )
            except (ImportError, sa.exc.NoSuchModuleError):
                raise LedgerError(
                    'a ledger in PostgreSQL needs a driver: pip install "tacit[postgres]"'
                ) from None
        path = Path(self.address.place)
        if not make and not os.path.lexists(path):
            raise LedgerError(
                f"there is no ledger at {path}; make one with: tacit ledger create "
                f"{path.name} --dataset NAME --epsilon E --delta D"
            )
        if make and not path.parent.is_dir():
            raise LedgerError(f"there is no directory {path.parent} for the ledger")
        uri = f"file:{quote(str(path))}?mode={'rwc' if make else 'rw'}"

        def connect() -> sqlite3.Connection:
            made = sqlite3.connect(uri, uri=True, timeout=left, isolation_level=None)
            try:
                # On disk, and the journal's removal as well, before a commit returns.
                made.execute("PRAGMA synchronous = EXTRA")
                made.execute("PRAGMA trusted_schema = OFF")
                made.execute("PRAGMA cell_size_check = ON")
                made.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_CELL)
            except BaseException:
                made.close()
                raise
            return made

        return sa.create_engine("sqlite://", creator=connect, poolclass=NullPool)

    def _judge(self, error: sa.exc.SQLAlchemyError, progress: _Progress) -> _Trouble:
        """What went wrong, in words, and whether it may pass. Statements are never quoted."""
        cause = getattr(error, "orig", None) or error
        reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0][:200]
        where = self.address.shown
        if self._server:
            return _server_trouble(error, cause, reason, where, progress)
        low = reason.lower()
        for mark, words in SQLITE_TROUBLES.items():
            if mark in low:
                return _Trouble(words.format(where=where), passing=mark in PASSING)
        if "no such table" in low or "no such column" in low:
            return _Trouble(f"{where} is not a ledger; make one with: tacit ledger create")
        return _Trouble(f"cannot use the ledger {where}: {reason}")


class _Progress:
    """How far a transaction came."""

    connected = False
    committing = False

    def consequence(self, write: bool) -> str:
        if not write:
            return ""
        if self.committing:
            return (
                ". Whether the entry was written cannot be found out now; if it was, it counts. "
                "Nothing was drawn"
            )
        return ". Nothing was recorded, nothing drawn"


class _Trouble:
    def __init__(self, words: str, passing: bool = False) -> None:
        self.words = words
        self.passing = passing


SQLITE_TROUBLES = {
    "readonly": "the ledger {where} cannot be written: its file, its directory or the file system "
    "is read-only",
    "is full": "the disk with the ledger {where} is full",
    "disk i/o": "the disk with the ledger {where} cannot be written or read",
    "locked": "the ledger {where} is busy: another process holds its lock",
    "not a database": "{where} is not a ledger, or was overwritten",
    "malformed": "the ledger {where} is damaged",
    "unable to open": "the ledger {where} cannot be opened: look at the rights to its file and its "
    "directory",
}
PASSING = ("locked",)

# Of PostgreSQL (appendix A of its manual): shutting down, starting up, too many connections,
# transactions that may be tried again. A connection that cannot be made has no code, only words.
PASSING_CODES = ("57P01", "57P02", "57P03", "53300", "40001", "40P01")
FINAL_WORDS = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "pg_hba.conf",
    "translate host name",
    "resolve host",
    "invalid",
    "ssl",
    "permission denied",
)


def _server_trouble(
    error: Exception, cause: BaseException, reason: str, where: str, progress: _Progress
) -> _Trouble:
    code = getattr(cause, "sqlstate", None)
    if code == "42P01":
        return _Trouble(f"{where} holds no ledger; make one with: tacit ledger create")
    if code == "55P03":
        return _Trouble(f"the ledger {where} is busy: another session holds its lock")
    lost = getattr(error, "connection_invalidated", False) or (code or "").startswith("08")
    final = any(word in reason.lower() for word in FINAL_WORDS)
    refused = isinstance(error, sa.exc.DBAPIError) and not progress.connected and not final
    if code in PASSING_CODES or lost or (code is None and refused):
        return _Trouble(f"the server of the ledger {where} cannot be reached: {reason}", True)
    return _Trouble(f"cannot use the ledger {where}: {reason}")


def _begin_on_server(connection: sa.Connection, left: float, write: bool) -> None:
    if not write:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return
    wait = f"{max(int(left * 1000), 1)}ms"
    connection.execute(sa.text("SELECT set_config('lock_timeout', :wait, true)"), {"wait": wait})
    # A commit that returns before it is on disk would be lost in a crash.
    connection.exec_driver_sql(
        "SELECT set_config('synchronous_commit', 'on', true) "
        "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
    )


def _require_plain_tables(connection: sa.Connection) -> None:
    """A file can hold tables that are programs: views, triggers, columns that are computed."""
    asked = "SELECT type, name, rootpage FROM sqlite_master LIMIT 1000"
    for kind, name, page in connection.exec_driver_sql(asked).all():
        if kind in ("view", "trigger") or (kind == "table" and not page):
            raise Tampered(f"the file holds the {kind} {name!r:.40}, which is none of a ledger's")
    for table in _TABLES.tables:
        columns = connection.exec_driver_sql(f"PRAGMA table_xinfo({table})").all()
        if any(hidden for *_, hidden in columns):
            raise Tampered(f"the table {table} was edited: it holds a column that is computed")


def _make_tables(connection: sa.Connection, server: bool) -> None:
    if server:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY})")
    if sa.inspect(connection).has_table(_HEAD.name):
        return
    _TABLES.create_all(connection)
    connection.execute(_HEAD.insert().values(id=1, format=FORMAT, count=0, head=ORIGIN))
