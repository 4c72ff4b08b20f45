"""``tacit median``: the middle of a table's rows, through noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import Json, argument, dump, flag, say
from tacit.cli.ledger import DATASET, LEDGER, account, left

__all__ = ["attach"]

NEIGHBORS = """What differing in one row means: replace_special (a row blanked out) or replace_one
(a row swapped for another)."""


def median(
    table: Annotated[Path, argument("TABLE", "Private rows: CSV, TSV or Parquet.")],
    *,
    schema: Annotated[Path, flag("Public facts about the columns: see tacit schema.")],
    epsilon: Annotated[float, flag("Privacy budget.")],
    delta: Annotated[float, flag("Its delta.")],
    out: Annotated[Path, flag("Directory for the median and its certificate.")],
    steps: Annotated[int, flag("Noisy steps.")] = 100,
    anchor: Annotated[float, flag("Strength of the pull towards the middle of all bounds.")] = 0.0,
    neighbors: Annotated[str, flag(NEIGHBORS)] = "replace_special",
    ledger: Annotated[str | None, flag(LEDGER)] = None,
    dataset: Annotated[str | None, flag(DATASET)] = None,
    seed: Annotated[int | None, flag("Repeatable noise: for tests, NOT FOR RELEASE.")] = None,
    force: Annotated[bool, flag("Overwrite what is there.", "--force")] = False,
    as_json: Json = False,
) -> None:
    """Find the geometric median of a table: the point of least mean distance to its rows.

    Columns are encoded by the schema, numbers from -1 to 1 and categories as 0 or 1, so every
    one of them counts alike. Numbers are shown in their own units; a category is the nearer
    to 1 the more of it there is. The target is not looked at.

    \b
    Example:
      tacit median patients.csv --schema patients.yaml --epsilon 0.5 --delta 1e-6 --out middle
    """
    from tacit.cli.tasks import CERTIFICATE
    from tacit.research.tasks.median import MEDIAN
    from tacit.research.tasks.median import median as find

    book = account(ledger, dataset)
    found = find(
        table,
        schema,
        out=out,
        epsilon=epsilon,
        delta=delta,
        force=force,
        steps=steps,
        anchor=anchor,
        neighbors=neighbors,
        ledger=book,
        random_state=seed,
    )
    if as_json:
        dump({**found.to_dict(), "out": str(out)})
        return
    for reason in found.certificate.reasons:
        say(f"NOT FOR RELEASE: {reason}")
    wide = max(map(len, found.location))
    for name, value in found.location.items():
        say(f"  {name:<{wide}}  {value:.4g}")
    if book is not None:
        say(f"\nLedger: {left(book.remaining())}.")
    say(f"\nWrote {out / MEDIAN} and {out / CERTIFICATE}")


def attach(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(median)
