"""A schema for a person to fill in."""

from __future__ import annotations

from pathlib import Path

from tacit.cli.tasks.outputs import PathLike
from tacit.data.readers import read_table
from tacit.data.schema import Schema
from tacit.files import new_file, write_bytes


def draft(
    table: PathLike, target: str | None = None, out: PathLike | None = None, *, force: bool = False
) -> str:
    """A schema with blanks for a person to fill in, written to ``out`` if that is given."""
    path = None if out is None else new_file(Path(out), force)
    text = Schema.draft(read_table(table), target)
    if path is not None:
        write_bytes(path, text.encode())
    return text
