"""Files: written whole or not at all, and read with a limit."""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tacit.exceptions import FileError

__all__ = [
    "cache_folder",
    "first_bytes",
    "new_directory",
    "new_file",
    "parse_json",
    "read_text",
    "require_writable",
    "write_bytes",
    "write_together",
]


def cache_folder(what: str) -> Path:
    """Where a user's caches of something are kept; a `RuntimeError` if nobody has a home."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tacit" / what


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file or none of it: a temporary neighbour, then one rename."""
    target = Path(path)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}"
    try:
        if not target.name:
            raise FileError(f"{str(path)!r} is not the name of a file")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError, ValueError):
            temporary.unlink()
        if isinstance(error, OSError | ValueError) and not isinstance(error, FileError):
            reason = getattr(error, "strerror", None) or error
            raise FileError(f"cannot write {target}: {reason}") from error
        raise


def require_writable(directory: str | os.PathLike[str]) -> Path:
    """Make sure, before any budget is spent, that results can be written there."""
    target = Path(directory)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target, prefix=".tacit-") as probe:
            probe.write(b"0" * 4096)
            probe.flush()
    except OSError as error:
        raise FileError(f"cannot write into {target}: {error.strerror or error}") from error
    return target


def read_text(path: str | os.PathLike[str], *, limit: int = 64 << 20) -> str:
    """A text file of at most ``limit`` bytes, or a `FileError` that says why not."""
    data = first_bytes(path, limit + 1)
    if len(data) > limit:
        raise FileError(f"{path} is larger than {limit >> 20} MB, the most that is read here")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(f"{path} is not a text file") from None


def first_bytes(path: str | os.PathLike[str], limit: int = 64 << 20) -> bytes:
    """The beginning of a file, or a `FileError` that says why not."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for, a device endless
            raise ValueError("it is not a regular file")
        with open(path, "rb") as file:
            return file.read(limit)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"cannot read {path}: {reason}") from None


def parse_json(text: str) -> Any:
    """What JSON says to every reader alike: or a `ValueError`.

    Keys that are given twice and numbers that are not finite mean different things to
    different programs.
    """
    strict: dict[str, Any] = {"parse_constant": _finite, "parse_float": _finite}
    try:
        return json.loads(text, object_pairs_hook=_once, **strict)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r:.80} is given twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.80} is not a finite number")
    return value


def new_file(path: Path, force: bool, suffixes: Sequence[str] = ()) -> Path:
    """The path of a file that may be written; nothing is overwritten unasked."""
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        raise FileError(f"{path} is not the name of a file in a directory that exists")
    if suffixes and path.suffix.lower() not in suffixes:
        raise FileError(f"{path}: the name must end in {' or '.join(suffixes)}")
    if os.path.lexists(path) and not force:
        raise FileError(f"{path} exists; choose another name, or overwrite it with --force")
    return path


@contextmanager
def new_directory(path: Path, names: Sequence[str], force: bool) -> Iterator[Path]:
    """A directory for files of these names; if what follows fails, as if it had never been."""
    taken = [name for name in names if os.path.lexists(path / name)]
    if any(os.path.isdir(path / name) for name in taken) or (taken and not force):
        raise FileError(
            f"{path} already holds {', '.join(taken)}; choose another directory, or overwrite "
            "with --force"
        )
    made = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    try:
        yield require_writable(path)
    except BaseException:
        for folder in made:  # the deepest first
            with suppress(OSError):
                folder.rmdir()
        raise


def write_together(directory: Path, writers: Mapping[str, Callable[[Path], object]]) -> None:
    """Write files under temporary names, then move all of them to their places, or none."""
    token = f".{secrets.token_hex(4)}"
    staged = {name: directory / f"{token}-{name}" for name in writers}
    old = {name: directory / f"{token}-old-{name}" for name in writers}
    moves: list[tuple[Path, Path]] = []
    try:
        for name, write in writers.items():
            write(staged[name])
        for name in writers:
            for move in ((directory / name, old[name]), (staged[name], directory / name)):
                if os.path.lexists(move[0]):
                    moves.append(move)
                    os.replace(*move)
    except BaseException as error:
        for source, target in reversed(moves):
            if os.path.lexists(target):
                os.replace(target, source)
        if isinstance(error, OSError):
            raise FileError(f"cannot write into {directory}: {error.strerror}") from error
        raise
    finally:
        for path in (*staged.values(), *old.values()):
            path.unlink(missing_ok=True)
