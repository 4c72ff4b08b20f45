"""``tacit median``: the middle of a table's rows, through noise."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from tacit.cli.console import Json, dump, flag, given, say
from tacit.cli.ledger import account, left
from tacit.cli.options import Dataset, Force, LedgerPlace, PrivateTable, SchemaFile, Seed
from tacit.exceptions import InputError

NEIGHBORS = """What differing in one row means: replace_special unless given (a row blanked out), or
replace_one (a row swapped for another)."""
WEIGHT = """How much a column counts, such as age=4; 1 for columns that are not named. May be given
several times. Weights must be chosen without looking at the table."""
BATCH = """Rows of a step on average, drawn at random. All rows unless given."""
ANCHOR = """Strength of the pull towards the middle of all bounds. 0 unless given."""


def median(
    table: PrivateTable,
    *,
    schema: SchemaFile,
    epsilon: Annotated[float, flag("Privacy budget.")],
    delta: Annotated[float, flag("Its delta.")],
    out: Annotated[Path, flag("Directory for the median and its certificate.")],
    steps: Annotated[int | None, flag("Noisy steps. 100 unless given.")] = None,
    weight: Annotated[list[str] | None, flag(WEIGHT)] = None,
    batch_size: Annotated[float | None, flag(BATCH)] = None,
    anchor: Annotated[float | None, flag(ANCHOR)] = None,
    neighbors: Annotated[str | None, flag(NEIGHBORS)] = None,
    ledger: LedgerPlace = None,
    dataset: Dataset = None,
    seed: Seed = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find the geometric median of a table: the point of least mean distance to its rows.

    Columns are encoded by the schema, numbers from -1 to 1 and categories as 0 or 1, so every
    one of them counts alike, unless --weight says otherwise. Numbers are shown in their own
    units; a category is the nearer to 1 the more of it there is. The target is not looked at.

    \b
    Example:
      tacit median patients.csv --schema patients.yaml --epsilon 0.5 --delta 1e-6 --out middle
    """
    from tacit.cli.tasks.outputs import CERTIFICATE
    from tacit.research.tasks import median as tasks

    book = account(ledger, dataset)
    options = given(
        steps=steps,
        batch_size=batch_size,
        anchor=anchor,
        neighbors=neighbors,
        ledger=book,
        random_state=seed,
    )
    found = tasks.median(
        table,
        schema,
        out=out,
        epsilon=epsilon,
        delta=delta,
        weights=_weights(weight or ()),
        force=force,
        **options,
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
    say(f"\nWrote {out / tasks.MEDIAN} and {out / CERTIFICATE}")


def _weights(texts: Iterable[str]) -> dict[str, float]:
    """Columns and their weights."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if name in found:
            raise InputError(f"--weight {text}: {name!r} has a weight already")
        try:
            found[name] = float(value)
        except ValueError:
            raise InputError(
                f"--weight {text} must be a column and a number, as in age=4"
            ) from None
    return found
