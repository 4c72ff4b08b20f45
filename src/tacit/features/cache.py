"""Features on disk, so that an interrupted run goes on where it stopped.

An entry is found by what it was made of: the extractor, how this machine rounds,
and the row. It carries a checksum, and one that does not match counts for
nothing. Features tell about their rows: the folder is for its owner alone.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.exceptions import FileError
from tacit.features.extractors import Extractor
from tacit.files import cache_folder

CHECK = 16  # bytes of checksum


def default_folder() -> Path:
    """Where a user's features are kept."""
    return cache_folder("features")


@dataclass(frozen=True)
class Cache:
    """Features of single rows by one extractor.

    Attributes
    ----------
    folder : Path
    width : int
        Numbers in an entry.
    """

    folder: Path
    width: int

    def get(self, key: bytes) -> np.ndarray | None:
        """What was kept under a key, unless it is missing or damaged."""
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        body = data[CHECK:]
        if len(body) != 4 * self.width or data[:CHECK] != _check(key, body):
            return None
        return np.frombuffer(body, dtype="<f4").astype(np.float32)

    def put(self, key: bytes, values: np.ndarray) -> None:
        """Keep features, whole or not at all; a full disk only means that they are not kept."""
        path, body = self._path(key), values.astype("<f4").tobytes()
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with open(
                os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                file.write(_check(key, body) + body)
            os.replace(temporary, path)
        except BaseException as error:
            with suppress(OSError):
                temporary.unlink()
            if not isinstance(error, OSError):
                raise

    def _path(self, key: bytes) -> Path:
        name = key.hex()
        return self.folder / name[:2] / name[2:]


def open_cache(extractor: Extractor, folder: str | os.PathLike[str] | None = None) -> Cache:
    """The entries of an extractor as this machine computes them."""
    where = hashlib.blake2b(digest_size=16)
    for part in (extractor.digest, extractor.probe.bits, *sorted(extractor.versions.items())):
        where.update(repr(part).encode() + b"\0")
    base = Path("the user's cache") if folder is None else Path(folder)
    try:
        base = default_folder() if folder is None else base
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        (base / where.hexdigest()).mkdir(mode=0o700, exist_ok=True)
    except (OSError, RuntimeError) as error:  # the latter if nobody has a home
        reason = getattr(error, "strerror", None) or error
        raise FileError(
            f"cannot keep features in {base}: {reason}; choose another folder for "
            "the cache, or none"
        ) from None
    return Cache(base / where.hexdigest(), extractor.width)


def _check(key: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(body, key=key, digest_size=CHECK).digest()
