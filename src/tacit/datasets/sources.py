"""Which data sets there are: their files, checksums, public sources and licences.

A checksum is the SHA-256 of what a file holds, not of how it is packed: a plain, a
gzip and an xz copy are the same file. That of an ``.npz`` is over its arrays.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tacit.exceptions import InputError


@dataclass(frozen=True)
class File:
    """A file of a data set.

    Attributes
    ----------
    name : str
        Without the suffix of a packed copy.
    sha256 : str
    size : int
        Bytes, unpacked.
    url : str or None
        Where it is published; None if it has to be made, or is not published by itself.
    members : tuple of str
        The way to it through archives: a member of what the URL gives, and so on.
    archive_sha256 : str or None
        Of what the URL gives, as it is; None where only what is in it is known.
    """

    name: str
    sha256: str
    size: int
    url: str | None = None
    members: tuple[str, ...] = ()
    archive_sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """A data set: what it is, where it is from, and its files.

    Attributes
    ----------
    name : str
        Also the name of its folder.
    title, rows : str
    features : int
    origin, licence : str
        The licence as its source states it.
    files : tuple of File
        None for the one that comes with the package.
    """

    name: str
    title: str
    rows: str
    features: int
    origin: str
    licence: str
    files: tuple[File, ...]


def get_source(name: str) -> Source:
    """A data set by its name."""
    if name not in SOURCES:
        raise InputError(f"no data set {name!r}; there are {', '.join(SOURCES)}")
    return SOURCES[name]


def _read() -> dict[str, Source]:
    listed = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    found = {}
    for name, facts in listed.items():
        files = [
            File(**{**file, "members": tuple(file.get("members", ()))})
            for file in facts.pop("files", ())
        ]
        found[name] = Source(name, **facts, files=tuple(files))
    return found


#: By name, in the order of ``sources.toml``.
SOURCES: dict[str, Source] = _read()
