"""Disks that are full or read-only, servers that are gone: a clear error before any noise."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
import sqlalchemy as sa
from tests.ledger.server import QUOTED

from tacit import DPLinearClassifier, Ledger
from tacit.exceptions import LedgerError
from tacit.ledger.address import Address
from tacit.ledger.ledger import BOOKS
from tacit.ledger.store import Store
from tacit.mechanisms.random_streams import Key
from tacit.plan import CalibratedPlan
from tacit.privacy import Gaussian
from tacit.trainers import DPGD

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
Y = (X[:, 0] > 0).astype(int)
STEP = {"events": [("a", Gaussian(50.0))], "neighbors": "replace_special"}


@pytest.fixture
def no_noise(monkeypatch):
    """Nothing is fitted, and no stream of noise opened."""

    def never(*args, **kwargs):
        pytest.fail("noise was about to be drawn")

    monkeypatch.setattr(CalibratedPlan, "prepare", never)
    monkeypatch.setattr(Key, "stream", never)


def fit(ledger):
    return DPLinearClassifier(0.1, 1e-5, trainer=DPGD(steps=2), ledger=ledger).fit(X, Y)


@pytest.fixture
def volume(tmp_path):
    """A small file system of its own."""
    place = tmp_path / "volume"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk(volume, no_noise):
    ledger = Ledger(volume / "ledger.db").create("a", epsilon=5.0, delta=1e-5)
    with open(volume / "filler", "wb", buffering=0) as filler:
        with pytest.raises(OSError):
            while True:
                filler.write(b"0" * 4096)
        with pytest.raises(LedgerError, match=r"is full\. Nothing was recorded, nothing drawn"):
            for _ in range(100):  # there may be room in a page that is begun
                ledger.reserve(**STEP)
        with pytest.raises(LedgerError, match="is full"):
            fit(ledger)
        assert ledger.check() == []
        filler.truncate(0)
    before = ledger.remaining().plans
    ledger.reserve(**STEP)
    assert ledger.remaining().plans == before + 1
    assert ledger.check() == []


def test_a_file_that_may_not_grow(path, no_noise):
    """The same without a file system: a limit on the size of files, in a process of its own."""
    Ledger(path).create("a", epsilon=5.0, delta=1e-5)
    size = path.stat().st_size
    code = f"""
import resource
from tacit import Ledger
from tacit.exceptions import LedgerError
from tacit.privacy import Gaussian
ledger = Ledger({str(path)!r}, "a")
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
try:
    for _ in range(100):
        ledger.reserve([("a", Gaussian(50.0))], neighbors="replace_special")
except LedgerError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ledger.db" in done.stdout
    assert "drawn" in done.stdout
    assert done.stdout.count("\n") == 1
    assert Ledger(path).check() == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_read_only_file_system(volume, no_noise):
    ledger = Ledger(volume / "ledger.db").create("a", epsilon=5.0, delta=1e-5)
    ledger.reserve(**STEP)
    subprocess.run(["mount", "-o", "remount,ro", str(volume)], check=True)
    with pytest.raises(LedgerError, match=r"read-only\. Nothing was recorded, nothing drawn"):
        fit(ledger)
    with pytest.raises(LedgerError, match="read-only"):
        ledger.amend(epsilon=6.0, reason="more")
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger(volume / "other.db").create("a", epsilon=5.0, delta=1e-5)
    assert ledger.remaining().plans == 1  # reading goes on
    assert ledger.check() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_file_and_directory(path, no_noise):
    ledger = Ledger(path).create("a", epsilon=5.0, delta=1e-5)
    for place, mode in ((path, 0o444), (path.parent, 0o555)):
        place.chmod(mode)
        try:
            with pytest.raises(LedgerError, match=r"read-only|cannot be opened"):
                fit(ledger)
        finally:
            place.chmod(0o755)
    assert ledger.reserve(**STEP).number == 2


@pytest.mark.parametrize(
    "content", [b"", b"not a database at all, but words " * 100, os.urandom(8192)]
)
def test_a_file_that_is_no_ledger(path, content, no_noise):
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="is not a ledger"):
        fit(Ledger(path, "a"))
    with pytest.raises(LedgerError, match="is not a ledger"):
        Ledger(path).check()


def test_a_database_of_something_else(path, no_noise):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    with pytest.raises(LedgerError, match="is not a ledger"):
        fit(Ledger(path, "a"))


def test_a_file_damaged_in_the_middle(path):
    ledger = Ledger(path).create("a", epsilon=50.0, delta=1e-5)
    for _ in range(60):
        ledger.reserve(**STEP)
    size = path.stat().st_size
    with open(path, "r+b") as file:
        for place in range(4096, size - 512, 2048):
            file.seek(place)
            file.write(os.urandom(512))
    BOOKS.clear()
    with pytest.raises(LedgerError):
        ledger.reserve(**STEP)
    # Either SQLite finds it, or the chain does.
    try:
        assert ledger.check()
    except LedgerError as error:
        assert "damaged" in str(error)


def test_places_that_cannot_hold_a_ledger(tmp_path, no_noise):
    with pytest.raises(LedgerError, match="there is no directory"):
        Ledger(tmp_path / "nowhere" / "ledger.db").create("a", epsilon=1.0, delta=1e-5)
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger(tmp_path).create("a", epsilon=1.0, delta=1e-5)
    with pytest.raises(LedgerError, match="there is no ledger at"):
        fit(Ledger(tmp_path / "ledger.db", "a"))
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_held(path, no_noise):
    ledger = Ledger(path, timeout=0.3).create("a", epsilon=1.0, delta=1e-5)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    with pytest.raises(LedgerError, match="busy"):
        fit(ledger)
    assert time.monotonic() - start < 5
    other.close()
    ledger.reserve(**STEP)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", ":memory:", "", "file:x.db"])
def test_a_ledger_must_outlive_the_program(url):
    with pytest.raises(LedgerError):
        Ledger(url)


@pytest.mark.parametrize("url", ["mysql://ann:secret@h/d", "://secret", "a b://secret@x", 7, None])
def test_other_places(url):
    with pytest.raises(LedgerError) as refused:
        Ledger(url)
    assert "secret" not in str(refused.value)


def test_paths_do_not_change_with_the_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["ledger.db", "sqlite:///ledger.db", f"sqlite:///{tmp_path}/ledger.db"]
    ledgers = [Ledger(name, "a") for name in names]
    assert len({str(ledger.url) for ledger in ledgers}) == 1
    ledgers[0].create("a", epsilon=1.0, delta=1e-5)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert ledgers[1].remaining().plans == 0
    odd = Ledger(tmp_path / "odd ?#%20 name é.db").create("a", epsilon=1.0, delta=1e-5)
    assert odd.remaining().plans == 0
    assert (tmp_path / "odd ?#%20 name é.db").exists()


# --- servers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:secret@host:5433/db",
        "postgres://ann:secret@host/db?sslmode=require",
        "postgresql+psycopg://ann@host/db?password=secret",
        "postgresql://ann:s%65cret@host/db?sslpassword=secret",
    ],
)
def test_passwords_are_not_shown(url):
    ledger = Ledger(url, "a")
    estimator = DPLinearClassifier(ledger=ledger)
    for shown in (repr(ledger), str(ledger), ledger.url, repr(ledger.address), repr(estimator)):
        assert "secret" not in shown
        assert "s%65cret" not in shown
        assert "host" in shown
    assert Address.of(url).place.startswith("postgresql+psycopg://")


def test_no_driver(monkeypatch, no_noise):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r'pip install "tacit\[postgres\]"'):
        fit(Ledger("postgresql://ann@localhost/db", "a"))


def test_a_wrong_password_and_a_missing_database_are_final(server, no_noise):
    start = time.monotonic()
    for url in (server.url(password="wrong"), server.url("nothing")):
        with pytest.raises(LedgerError, match="cannot use the ledger") as refused:
            fit(Ledger(url, "a"))
        assert "wrong" not in str(refused.value).replace("wrong password", "")
        assert QUOTED not in str(refused.value)
    assert time.monotonic() - start < 10


def test_a_server_that_is_gone_and_comes_back(server, no_noise):
    url = server.place()
    ledger = Ledger(url, timeout=1.0).create("a", epsilon=5.0, delta=1e-5)
    server.stop()
    try:
        start = time.monotonic()
        with pytest.raises(LedgerError, match="cannot be reached") as gone:
            fit(ledger)
        assert "PASSWORD" not in str(gone.value) and QUOTED not in str(gone.value)
        assert 0.5 < time.monotonic() - start < 10
    finally:
        server.start()
    assert ledger.reserve(**STEP).number == 2


def test_a_server_s_lock_that_is_held(server, no_noise):
    ledger = Ledger(server.place(), timeout=1.0).create("a", epsilon=5.0, delta=1e-5)
    engine = sa.create_engine(ledger.address.place, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT * FROM tacit_ledger FOR UPDATE")
        with pytest.raises(LedgerError, match="busy"):
            ledger.reserve(**STEP)
        assert ledger.remaining().plans == 0  # reading does not wait
    ledger.reserve(**STEP)


def test_commits_wait_for_the_disk_whatever_the_server_s_setting(server):
    url = server.place()
    ledger = Ledger(url + "%20-csynchronous_commit%3Doff").create("a", epsilon=5.0, delta=1e-5)

    def setting(journal):
        asked = "SELECT current_setting('synchronous_commit')"
        return journal.connection.exec_driver_sql(asked).scalar()

    assert Store(ledger.address).read(setting) == "off"
    assert Store(ledger.address).write(setting) == "on"


def test_commits_to_a_file_wait_for_the_disk(path):
    ledger = Ledger(path).create("a", epsilon=5.0, delta=1e-5)

    def settings(journal):
        asked = (f"PRAGMA {name}" for name in ("synchronous", "journal_mode"))
        return [journal.connection.exec_driver_sql(one).scalar() for one in asked]

    assert Store(ledger.address).write(settings) == [3, "delete"]  # EXTRA
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]
