"""Arrays of an ``.npz`` file: those that are asked for, of the size that the file has room for.

No pickle is ever opened. What an array says of itself is held against its entry in the archive
before memory is taken for it.
"""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from struct import error as StructError
from tokenize import TokenError
from typing import Any

import numpy as np

from tacit.data.readers import FREE, TIMES
from tacit.exceptions import FileError

ENDING = ".npy"
# A header is read as a line of Python, so a damaged one may be anything.
_DAMAGED: tuple[type[Exception], ...] = (OSError, ValueError, EOFError, SyntaxError, TokenError)
_DAMAGED += (TypeError, KeyError, AttributeError, ArithmeticError, MemoryError, RecursionError)
_DAMAGED += (zipfile.BadZipFile, zlib.error, lzma.LZMAError, StructError, IndexError)
_DAMAGED += (NotImplementedError, RuntimeError)  # ways to pack or to lock that are not known


def npz_names(path: Path) -> tuple[str, ...]:
    """Names of the arrays in a file, none of which is read."""
    with _opened(path) as archive:
        return tuple(_entries(path, archive))


def read_npz(
    path: Path, names: Iterable[str] | None = None, *, limit: int | None = None
) -> dict[str, np.ndarray]:
    """Arrays of a file by name: those that are named, or all.

    Parameters
    ----------
    path : path
        An ``.npz`` file.
    names : iterable of str, optional
        Which arrays; all unless given.
    limit : int, optional
        Bytes that they may take in memory together. 1 GB unless given, or a hundred times the
        size of the file.
    """
    with _opened(path) as archive:
        entries = _entries(path, archive)
        wanted = entries if names is None else {name: entries[name] for name in names}
        limit = max(FREE, TIMES * path.stat().st_size) if limit is None else limit
        if sum(entry.file_size for entry in wanted.values()) > limit:
            raise FileError(
                f"{path} unpacks to more than {limit:,} bytes; write it again with numpy.savez, "
                "which does not compress"
            )
        try:
            return {name: _read(archive, entry) for name, entry in wanted.items()}
        except _DAMAGED:
            raise FileError(
                f"{path} is damaged, shorter than it says, or holds something else than plain "
                "arrays; write it again with numpy.savez"
            ) from None


def _opened(path: Path) -> zipfile.ZipFile:
    if not path.is_file():  # a device might have no end
        raise FileError(f"{path} is no file of arrays: there is no such file, or it is not regular")
    try:
        return zipfile.ZipFile(path)
    except _DAMAGED:
        raise FileError(f"{path} is damaged or not a file of arrays (.npz)") from None


def _entries(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    listed = [entry for entry in archive.infolist() if entry.filename.endswith(ENDING)]
    found = {entry.filename.removesuffix(ENDING): entry for entry in listed}
    if not found:
        raise FileError(f"{path} holds no arrays")
    if len(found) < len(listed):
        raise FileError(f"{path} holds two arrays of one name")
    return found


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """One array; an entry of another size than its header says is refused before it is read."""
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read: Any = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        with np.errstate(over="raise"):
            shape, by_columns, dtype = read(file)
        if dtype.hasobject or dtype.kind not in "biufUS" or not dtype.itemsize:
            raise ValueError
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != (
            entry.file_size - file.tell()
        ):
            raise ValueError
        cells = np.frombuffer(file.read(), dtype=dtype)
    return cells.reshape(shape[::-1]).T if by_columns else cells.reshape(shape)
