"""Files inside files: members of archives and packed copies, never more than a limit."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from io import BytesIO
from typing import Any

from tacit.exceptions import FileError

_PACKED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\0": lzma.open,
    b"BZh": bz2.open,
}
MOST_BYTES = 1 << 28  # bytes of a download, and of an archive inside one


def unpacked(where: str, data: bytes, limit: int) -> bytes:
    """What gzip, xz or bzip2 packed, or the data themselves."""
    opener = next((o for start, o in _PACKED.items() if data.startswith(start)), None)
    if opener is None:
        return data
    try:
        with opener(BytesIO(data), "rb") as file:
            found: bytes = file.read(limit + 1)
    except Exception:  # whatever damage makes these modules raise
        raise FileError(f"{where} is damaged or cut short; fetch or compress it again") from None
    return _within(where, found, limit)


def member(where: str, data: bytes, name: str, limit: int) -> bytes:
    """One member of a zip file, of a tar file (packed or not), or of a Debian package."""
    try:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(BytesIO(data)) as zipped, zipped.open(name) as file:
                found = file.read(limit + 1)
        elif data.startswith(b"!<arch>\n"):
            found = _ar(data, name)
        else:
            whole = BytesIO(unpacked(where, data, MOST_BYTES))  # headers may ask for any length
            with tarfile.open(fileobj=whole, mode="r:") as tar:
                inside = tar.extractfile(name)
                if inside is None:
                    raise KeyError(name)
                found = inside.read(limit + 1)
    except Exception:  # whatever damage makes these modules raise
        raise FileError(f"{where} is damaged, or is not an archive that holds {name}") from None
    return _within(f"{name} in {where}", found, limit)


def _ar(data: bytes, name: str) -> bytes:
    """Headers of 60 bytes: the name in the first 16, the size in ten from 48 on."""
    at = 8
    while at + 60 <= len(data):
        size = int(data[at + 48 : at + 58])
        if size < 0:
            raise ValueError("a negative size")
        if data[at : at + 16].decode("ascii").rstrip(" /") == name:
            return data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    raise KeyError(name)


def _within(where: str, found: bytes, limit: int) -> bytes:
    if len(found) > limit:
        raise FileError(f"{where} unpacks to more than {limit:,} bytes, the most it may have")
    return found
