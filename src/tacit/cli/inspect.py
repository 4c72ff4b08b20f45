"""``tacit inspect``: what a table is like, and which recipe suits it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tacit.cli import options
from tacit.cli.console import Json, argument, dump, flag, given, say, shown_progress
from tacit.cli.ledger import account, left

if TYPE_CHECKING:
    from tacit.diagnostics import Inspection, PrivateInspection

TRAIN_EPSILON = """Budget of the training to come. 1 unless given."""
PRIVATE = """Look through noise only: what is shown is covered by a certificate."""
EPSILON = """With --private: what looking may cost."""
SCHEMA = """Public facts about the columns: see tacit schema. Features (.npz) have none."""
RADIUS = """Look for copies within this distance, too; give it as often as wanted. 0 unless
given: equal rows."""
PERSON = """With --private: column that says whose a row is. Everybody counts once, and how many
rows people have is shown. With --rows-per-person, the identifier of the schema, unless given."""
ROWS_PER_PERSON = """The most rows of a person that are told apart. With --person, 10 unless
given."""
NEIGHBORS = """With --private: replace_special unless given, add_or_remove_one (then give
--public-size), replace_one."""
TRAJECTORY = """Follow a run as well: in how few directions its gradients lie, and how well it
does with those alone."""


def inspect(
    table: Annotated[Path, argument("TABLE", "A table (CSV, TSV, Parquet), or features (.npz).")],
    *,
    schema: Annotated[Path | None, flag(SCHEMA)] = None,
    target: options.Target = None,
    out: Annotated[Path | None, flag("Directory for a page of plots (and a certificate).")] = None,
    train_epsilon: Annotated[float | None, flag(TRAIN_EPSILON)] = None,
    train_delta: Annotated[float | None, flag("Its delta. 1e-06 unless given.")] = None,
    radius: Annotated[list[float] | None, flag(RADIUS)] = None,
    trajectory: Annotated[bool, flag(TRAJECTORY, "--trajectory")] = False,
    private: Annotated[bool, flag(PRIVATE, "--private")] = False,
    epsilon: Annotated[float | None, flag(EPSILON)] = None,
    delta: Annotated[float | None, flag("Its delta.")] = None,
    neighbors: Annotated[str | None, flag(NEIGHBORS)] = None,
    public_size: options.PublicSize = None,
    person: Annotated[str | None, flag(PERSON)] = None,
    rows_per_person: Annotated[int | None, flag(ROWS_PER_PERSON)] = None,
    ledger: options.LedgerPlace = None,
    dataset: options.Dataset = None,
    seed: options.Seed = None,
    quiet: options.Quiet = False,
    force: options.Force = False,
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
    from tacit.cli.tasks import inspect as tasks
    from tacit.diagnostics.text import render_inspection
    from tacit.exceptions import InputError

    book = account(ledger, dataset)
    if private and (epsilon is None or delta is None):
        raise InputError("--private needs --epsilon and --delta: what looking may cost")
    budget = given(
        epsilon=epsilon, delta=delta, public_size=public_size, ledger=book, random_state=seed
    )
    if not private and budget:
        raise InputError(
            "--epsilon, --delta, --public-size, --ledger and --seed are for --private; the budget "
            "of the training to come is --train-epsilon and --train-delta"
        )
    if private and trajectory:
        raise InputError(
            "--trajectory reads gradients without noise; leave it out with --private, or see "
            "tacit.research.trajectories.trajectory_privately"
        )
    if not private and (person or rows_per_person):
        raise InputError("--person and --rows-per-person are for --private")
    if private and radius:
        raise InputError("--radius reads the rows without noise; leave it out with --private")
    found: Inspection | PrivateInspection
    where = given(target=target, out=out, force=force)
    if private:
        train = (train_epsilon, train_delta)
        how = given(neighbors=neighbors, person=person, rows_per_person=rows_per_person, **budget)
        found = tasks.inspect_privately(table, schema, train=train, **where, **how)
    else:
        how = given(epsilon=train_epsilon, delta=train_delta, radii=radius or None)
        with shown_progress(not (quiet or as_json)) as shown:
            found = tasks.inspect(
                table, schema, trajectory=trajectory, progress=shown, **where, **how
            )
    if as_json:
        dump({**found.to_dict(), "out": None if out is None else str(out)})
        return
    say(render_inspection(found))
    if book is not None:
        say(f"\nLedger: {left(book.remaining())}.")
    if out is not None:
        say(f"\nDrawn in {out / tasks.PAGE}")
