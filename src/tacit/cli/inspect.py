"""``tacit inspect``: what a table is like, and which recipe suits it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import Json, argument, dump, flag, say
from tacit.cli.ledger import DATASET, LEDGER, account, left

if TYPE_CHECKING:
    from tacit.diagnostics import Inspection, PrivateInspection

__all__ = ["attach"]

PRIVATE = """Look through noise only: what is shown is covered by a certificate."""
EPSILON = """With --private: what looking may cost."""
RADIUS = """Look for copies within this distance, too; give it as often as wanted. 0 unless
given: equal rows."""
NEIGHBORS = (
    """With --private: replace_special, add_or_remove_one (then give --size), replace_one."""
)
TRAJECTORY = """Follow a run as well: in how few directions its gradients lie, and how well it
does with those alone."""
FORCE = """Overwrite what is there."""


def inspect(
    table: Annotated[Path, argument("TABLE", "Private rows: CSV, TSV or Parquet.")],
    *,
    schema: Annotated[Path, flag("Public facts about the columns: see tacit schema.")],
    target: Annotated[str | None, flag("Column to predict, unless the schema names it.")] = None,
    out: Annotated[Path | None, flag("Directory for a page of plots (and a certificate).")] = None,
    train_epsilon: Annotated[float, flag("Budget of the training to come.")] = 1.0,
    train_delta: Annotated[float, flag("Its delta.")] = 1e-6,
    radius: Annotated[list[float] | None, flag(RADIUS)] = None,
    trajectory: Annotated[bool, flag(TRAJECTORY, "--trajectory")] = False,
    private: Annotated[bool, flag(PRIVATE, "--private")] = False,
    epsilon: Annotated[float | None, flag(EPSILON)] = None,
    delta: Annotated[float | None, flag("Its delta.")] = None,
    neighbors: Annotated[str, flag(NEIGHBORS)] = "replace_special",
    size: Annotated[int | None, flag("Public stand-in for a private number of rows.")] = None,
    ledger: Annotated[str | None, flag(LEDGER)] = None,
    dataset: Annotated[str | None, flag(DATASET)] = None,
    seed: Annotated[int | None, flag("Repeatable noise: for tests, NOT FOR RELEASE.")] = None,
    quiet: Annotated[bool, flag("No progress bar.", "--quiet")] = False,
    force: Annotated[bool, flag(FORCE, "--force")] = False,
    as_json: Json = False,
) -> None:
    """Look at a table, and say which recipe suits it and why.

    Rows are encoded by the schema and scaled to norm one, as recipes do. Without --private they
    are read as they are: what is shown is as private as the rows, and NOT RELEASABLE. With
    --private a noisy second moment and a noisy mean are all that is seen of them.

    \b
    Examples:
      tacit inspect patients.csv --schema patients.yaml --trajectory --out inspection
      tacit inspect patients.csv --schema patients.yaml --private --epsilon 0.1 --delta 1e-6 \\
        --ledger ledger.db --dataset patients
    """
    from contextlib import nullcontext

    from tacit.cli import tasks
    from tacit.diagnostics.text import render_inspection
    from tacit.exceptions import InputError
    from tacit.progress import progress_bar, silent

    book = account(ledger, dataset)
    if private and (epsilon is None or delta is None):
        raise InputError("--private needs --epsilon and --delta: what looking may cost")
    unused = (epsilon, delta, size, book, seed)
    if not private and any(given is not None for given in unused):
        raise InputError(
            "--epsilon, --delta, --size, --ledger and --seed are for --private; the budget of the "
            "training to come is --train-epsilon and --train-delta"
        )
    if private and trajectory:
        raise InputError(
            "--trajectory reads gradients without noise; leave it out with --private, or see "
            "tacit.research.trajectories.trajectory_privately"
        )
    if private and radius:
        raise InputError("--radius reads the rows without noise; leave it out with --private")
    found: Inspection | PrivateInspection
    where: dict[str, Any] = {
        "target": target,
        "out": out,
        "force": force,
        "train": (train_epsilon, train_delta),
    }
    if private:
        budget: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "neighbors": neighbors,
            "size": size,
        }
        found = tasks.inspect_privately(
            table, schema, **where, **budget, ledger=book, random_state=seed
        )
    else:
        with nullcontext(silent) if quiet or as_json else progress_bar() as shown:
            found = tasks.inspect(
                table,
                schema,
                **where,
                radii=radius or (0.0,),
                trajectory=trajectory,
                progress=shown,
            )
    if as_json:
        dump({**found.to_dict(), "out": None if out is None else str(out)})
        return
    say(render_inspection(found))
    if book is not None:
        say(f"\nLedger: {left(book.remaining())}.")
    if out is not None:
        say(f"\nDrawn in {out / tasks.PAGE}")


def attach(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(inspect)
