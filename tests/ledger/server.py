"""A PostgreSQL server of our own, from Debian's packages."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import sqlalchemy as sa

PASSWORD = "p@ss/w:rd"
QUOTED = "p%40ss%2Fw%3Ard"


def binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    other = shutil.which("initdb")
    return None if other is None else Path(other).resolve().parent


class Server:
    """A server in a directory of its own, reached by a socket in it. It refuses to run as root."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, bin = folder, folder / "data", binaries()
        assert bin is not None
        self.bin, self.made = bin, 0
        self.user = "postgres" if os.geteuid() == 0 else None
        if self.user:
            owner = pwd.getpwnam(self.user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        auth = ["--auth=scram-sha-256", "--username=postgres", f"--pwfile={secret}"]
        self.run("initdb", "-D", self.data, *auth, "--no-sync", "--encoding=UTF8", "--locale=C")

    def run(self, name: str, *arguments: object) -> None:
        command = [str(self.bin / name), *map(str, arguments)]
        with open(self.folder.parent / f"{self.folder.name}.log", "ab") as log:
            # Not a pipe: the server would inherit it, and nobody would see it closed.
            subprocess.run(
                command, user=self.user, cwd=self.folder, check=True, stdout=log, stderr=log
            )

    def start(self) -> None:
        # A server that crashes loses nothing that the operating system has: no need to wait for
        # disks, as only a crash of the machine would show.
        settings = f"-k {self.folder} -c listen_addresses='' -c max_connections=60 -c fsync=off"
        self.run("pg_ctl", "-D", self.data, "-o", settings, "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-w", "stop")

    def restart(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-D", self.data, "-m", mode, "-w", "restart")

    def url(self, database: str = "postgres", password: str = QUOTED) -> str:
        return f"postgresql://postgres:{password}@/{database}?host={self.folder}"

    def place(self) -> str:
        """The URL of a new, empty schema."""
        self.made += 1
        name, url = f"place{self.made}", self.url().replace("postgresql:", "postgresql+psycopg:")
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE SCHEMA {name}")
        return f"{self.url()}&options=-csearch_path%3D{name}"


def new_folder() -> Path:
    """Short, since a socket's path is, and open to another user, as pytest's folders are not."""
    return Path(tempfile.mkdtemp(prefix="tacit-pg-", dir="/tmp"))
