"""``tacit schema``: the draft of a schema, for a person to fill in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import Json, argument, dump, flag, say
from tacit.cli.options import Force


def schema(
    table: Annotated[Path, argument("TABLE", "CSV, TSV or Parquet.")],
    target: Annotated[str | None, flag("The column to predict.")] = None,
    out: Annotated[Path | None, flag("File for the draft, in YAML.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draft the schema of a table: one line for each column, for a person to fill in.

    A schema states bounds and categories of the columns. They must be public facts, from a form
    or a code book: read off the table, the largest income or a rare category would give one
    person away. So no row is read here: the draft has the names of the columns, and the kinds
    that the types of a Parquet file declare. What stays private is found through noise.

    \b
    Example:
      tacit schema patients.csv --target outcome --out patients.yaml
    """
    from tacit.cli.tasks.schema import draft

    text = draft(table, target, out, force=force)
    if as_json:
        dump({"out": None if out is None else str(out), "schema": text})
    elif out is None:
        typer.echo(text, nl=False)
    else:
        say(f"Wrote {out}. Fill in what is public knowledge; then: tacit fit --help")
