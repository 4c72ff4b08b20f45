"""Ledgers in files and on a server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.ledger.server import Server, binaries, new_folder

from tacit import Ledger
from tacit.privacy import Gaussian

BACKENDS = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if binaries() is None:
        if os.environ.get("CI"):
            pytest.fail("no PostgreSQL is installed: apt-get install postgresql")
        pytest.skip("no PostgreSQL is installed: apt-get install postgresql")
    pytest.importorskip("psycopg", reason="no driver for PostgreSQL is installed")
    folder = new_folder()
    try:
        made = Server(folder)
        made.start()
        yield made
        with suppress(Exception):
            made.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        (folder.parent / f"{folder.name}.log").unlink(missing_ok=True)


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be made: each kind of place in turn."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return request.getfixturevalue("server").place()


@pytest.fixture
def ledger(url: str) -> Ledger:
    return Ledger(url).create("census", epsilon=2.0, delta=1e-5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


Edit = Callable[..., None]


@pytest.fixture
def edit() -> Edit:
    """Change a ledger behind its back."""

    def run(ledger: Ledger, *statements: str, **values: object) -> None:
        address = ledger.address
        sqlite = address.backend == "sqlite"
        url = f"sqlite:///{address.place}" if sqlite else address.place
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement), values)

    return run


@pytest.fixture
def spend():
    """Reserve one step of Gaussian noise."""

    def run(ledger: Ledger, noise: float = 5.0, **options):
        return ledger.reserve([("mean", Gaussian(noise))], neighbors="replace_special", **options)

    return run
