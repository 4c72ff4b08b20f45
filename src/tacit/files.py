"""Writing files so that nothing is ever half there."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from tacit.exceptions import FileError

__all__ = ["read_text", "require_writable", "write_bytes"]


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file or none of it: a temporary neighbour, then one rename."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise FileError(f"cannot write {target}: {error.strerror or error}") from error


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
    """A text file, or a `FileError` that says why not."""
    source = Path(path)
    try:
        if source.stat().st_size > limit:
            raise FileError(f"{source} is larger than {limit >> 20} MB")
        return source.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot read {source}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise FileError(f"{source} is not a text file") from None
