"""A schema for a person to fill in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tacit.cli.tasks.arrays import is_features
from tacit.cli.tasks.outputs import PathLike
from tacit.data.readers import header_of, kind_of
from tacit.data.scans import scan
from tacit.data.schema import Schema
from tacit.data.tables import UNTYPED, ColumnType
from tacit.exceptions import FileError, InputError
from tacit.files import new_file, write_bytes


def draft(
    table: PathLike, target: str | None = None, out: PathLike | None = None, *, force: bool = False
) -> str:
    """The draft of a schema, written to ``out`` if that is given; no row is read."""
    if is_features(table):
        raise InputError(
            f"{table} holds features, which need no schema: give the file to tacit fit as it is"
        )
    path = None if out is None else new_file(Path(out), force)
    text = Schema.draft(_types(Path(table)), target)
    if path is not None:
        write_bytes(path, text.encode())
    return text


def _types(path: Path) -> Mapping[str, ColumnType]:
    """Names of the columns, and what the types of a Parquet file say of them."""
    if path.is_file() and kind_of(path)[1] != ".parquet":
        return dict.fromkeys(header_of(path), UNTYPED)
    types = scan(path).types
    if not types:
        raise FileError(f"{path} is an array; a schema needs a table with named columns")
    return types
