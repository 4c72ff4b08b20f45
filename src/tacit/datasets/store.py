"""Files of data sets: from `TACIT_DATA`, from the user's cache, or from their public source.

Nothing is used, and nothing is kept, whose checksum is not that of the registry.
"""

from __future__ import annotations

import hashlib
import os
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np

from tacit.datasets.archives import MOST_BYTES, member, unpacked
from tacit.datasets.sources import File, Source, get_source
from tacit.exceptions import FileError
from tacit.files import cache_folder, first_bytes, write_bytes

SLACK = 1 << 20  # by how much a file may be too long and still be named by its checksum
SECONDS = 30.0  # to wait for an answer
BLOCK = 1 << 20
PACKED = ("", ".gz", ".xz", ".bz2")


def folders(name: str) -> list[Path]:
    """Where files of a data set may lie, first of all in ``TACIT_DATA``."""
    root, found = os.environ.get("TACIT_DATA"), []
    if root:
        found.append(Path(root) / name)
    with suppress(FileError):
        found.append(download_folder() / name)
    return found


def find(name: str) -> dict[str, Path | None]:
    """Where each file of a data set lies, or None; contents are not looked at.

    Parameters
    ----------
    name : str
        Of the data set, a key of `SOURCES`.

    Returns
    -------
    dict
        Name of a file to its path, or None.

    Examples
    --------
    >>> found = find("mnist")
    >>> all(path is None or path.exists() for path in found.values())
    True
    """
    found: dict[str, Path | None] = {}
    for file in get_source(name).files:
        copies = (folder / f"{file.name}{end}" for folder in folders(name) for end in PACKED)
        found[file.name] = next((path for path in copies if path.is_file()), None)
    return found


def fetch(name: str, *, report: Callable[[str], None] = lambda text: None) -> None:
    """Get what is missing of a data set from its public source, and keep it in the cache.

    Parameters
    ----------
    name : str
        Of the data set, a key of `SOURCES`.
    report : callable
        Told every URL before it is opened.

    Examples
    --------
    >>> fetch("mnist")  # doctest: +SKIP
    """
    source, places = get_source(name), find(name)
    missing = [file for file in source.files if places[file.name] is None]
    absent = next((file for file in missing if file.url is None), None)
    if absent is not None:
        raise _missing(source, absent)
    for url in dict.fromkeys(file.url for file in missing):
        assert url is not None
        report(url)
        try:
            data = _download(url)
        except FileError as error:
            wanted = ", ".join(file.name for file in missing)
            raise FileError(
                f"{name} could not be fetched from {url}: {error}; try again, or put the files "
                f"{wanted} in TACIT_DATA/{name}"
            ) from None
        for file in missing:
            if file.url == url:
                content, where = data, url
                if file.archive_sha256 is not None:
                    digest = hashlib.sha256(data).hexdigest()
                    _same(url, f"archive of {file.name}", digest, file.archive_sha256)
                for step in file.members:
                    content = member(where, content, step, MOST_BYTES)
                    where = f"{step} in {where}"
                _keep(download_folder() / name / file.name, _verified(where, content, file))


def read_files(name: str, *, download: bool = True) -> dict[str, bytes]:
    """What the files of a data set hold, unpacked and verified."""
    return {
        file.name: _verified(str(path), first_bytes(path, MOST_BYTES), file)
        for file, path in _present(name, download)
    }


def read_arrays(name: str, *, download: bool = True) -> dict[str, np.ndarray]:
    """The arrays of a data set that is one ``.npz``, verified."""
    ((file, path),) = _present(name, download)
    data = first_bytes(path, MOST_BYTES)
    try:
        with np.load(BytesIO(data), allow_pickle=False) as stored:
            infos = stored.zip.infolist()
            if sum(info.file_size for info in infos) > file.size + SLACK:
                raise FileError(f"{path} unpacks to more than the published {file.size:,} bytes")
            arrays = {key: stored[key] for key in stored.files}
            digest = arrays_digest(arrays)
    except FileError:
        raise
    except Exception:  # a damaged archive can raise whatever it likes
        raise FileError(f"{path} is damaged or not an .npz file of arrays") from None
    _same(str(path), file.name, digest, file.sha256)
    return arrays


def verify(name: str) -> None:
    """Read the files of a data set, or raise a `FileError` if one is missing or another."""
    arrays = any(file.name.endswith(".npz") for file in get_source(name).files)
    (read_arrays if arrays else read_files)(name, download=False)


def arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, kinds, shapes and values, in the order of the names."""
    seen = hashlib.sha256()
    for key, array in sorted(arrays.items()):
        seen.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        seen.update(array.tobytes())
    return seen.hexdigest()


def download_folder() -> Path:
    try:
        return cache_folder("datasets")
    except RuntimeError as error:  # nobody has a home
        raise FileError(f"there is no cache folder: {error}; set TACIT_DATA") from None


def _present(name: str, download: bool) -> list[tuple[File, Path]]:
    source, places = get_source(name), find(name)
    if download and None in places.values():
        fetch(name)
        places = find(name)
    found = []
    for file in source.files:
        path = places[file.name]
        if path is None:
            raise _missing(source, file)
        found.append((file, path))
    return found


def _missing(source: Source, file: File) -> FileError:
    root = os.environ.get("TACIT_DATA")
    where = f"TACIT_DATA is {root}" if root else "TACIT_DATA is not set"
    get = f"; tacit data fetch {source.name} gets it" * (file.url is not None)
    return FileError(
        f"no file {file.name} (or .gz, .xz, .bz2) of {source.name}: set the environment variable "
        f"TACIT_DATA to a folder that holds {source.name}/{file.name} ({where}){get}; "
        f"source: {source.origin}"
    )


def _verified(where: str, data: bytes, file: File) -> bytes:
    content = unpacked(where, data, file.size + SLACK)
    _same(where, file.name, hashlib.sha256(content).hexdigest(), file.sha256)
    return content


def _same(where: str, name: str, digest: str, wanted: str) -> None:
    if digest != wanted:
        raise FileError(
            f"{where} is not the published {name}: the SHA-256 of its contents is "
            f"{digest[:12]}..., and it must be {wanted[:12]}...; delete it or put the "
            "published file in its place"
        )


def _keep(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise FileError(f"cannot keep data sets in {path.parent}: {reason}") from None
    write_bytes(path, content)


def _download(url: str) -> bytes:
    """What a URL gives, whole and not too large, or a `FileError` with the reason alone."""
    request = urllib.request.Request(url, headers={"User-Agent": "tacit"})
    found = bytearray()
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            length = answer.headers.get("Content-Length")
            whole = int(length) if length else None
            if whole is not None and whole > MOST_BYTES:
                raise FileError(f"it has {whole:,} bytes, and {MOST_BYTES:,} are taken at most")
            while block := answer.read(BLOCK):
                found += block
                if len(found) > MOST_BYTES:
                    raise FileError(
                        f"it has more than {MOST_BYTES:,} bytes, the most that is taken"
                    )
    except HTTPError as error:
        reason = f"the server answers {error.code} {error.reason}"
        error.close()
        raise FileError(reason) from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        why: Any = getattr(error, "reason", None) or error
        raise FileError(f"no connection, or a broken one ({why})") from None
    if whole is not None and len(found) != whole:
        raise FileError(f"the connection broke after {len(found):,} of {whole:,} bytes")
    return bytes(found)
