"""``tacit evaluate``: how good a model is on private rows, with figures that may be published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tacit.cli import options
from tacit.cli.console import Json, argument, dump, flag, given, say, warn
from tacit.cli.ledger import account, left

if TYPE_CHECKING:
    from tacit.metrics import Evaluation

TARGET = """Column that the model predicts. Of features in an .npz, the array of labels, if not the
usual one."""
BY = """A column and public values of it, such as sex=female,male: figures of each group."""
BOUNDS = """Limits of a target that is a number, such as 0,100; the model's own unless given."""
ERROR_BOUND = """Of numbers: size beyond which errors count as that much, as you would say it
beforehand. Found through noise unless given."""
PERSON = """Column that says whose rows are whose: people are protected with all of their rows, and
one row of each counts. Never learned from, and never written anywhere."""
ROWS_PER_PERSON = """With --person: most rows of a person, as in the fit."""
NEIGHBORS = """replace_special unless given, add_or_remove_one (then give --public-size),
replace_one."""
CONFIDENCE = """Of every interval by itself. 0.95 unless given."""


def evaluate(
    model: Annotated[Path, argument("MODEL", "Directory of a fit, or its model file.")],
    table: Annotated[Path, argument("TABLE", "Private rows that the model was not fitted to.")],
    *,
    target: Annotated[str | None, flag(TARGET)] = None,
    epsilon: options.Epsilon,
    delta: options.Delta,
    by: Annotated[str | None, flag(BY)] = None,
    person: Annotated[str | None, flag(PERSON)] = None,
    rows_per_person: Annotated[int | None, flag(ROWS_PER_PERSON)] = None,
    target_bounds: Annotated[str | None, flag(BOUNDS)] = None,
    error_bound: Annotated[float | None, flag(ERROR_BOUND)] = None,
    confidence: Annotated[float | None, flag(CONFIDENCE)] = None,
    neighbors: Annotated[str | None, flag(NEIGHBORS)] = None,
    public_size: options.PublicSize = None,
    out: Annotated[Path | None, flag("Directory for figures, certificate and report.")] = None,
    ledger: options.LedgerPlace = None,
    dataset: options.Dataset = None,
    extractor: Annotated[str | None, flag("The network of a model of features, if a file.")] = None,
    decimal: options.Decimal = None,
    seed: options.Seed = None,
    force: options.Force = False,
    as_json: Json = False,
) -> None:
    """Test a model on private rows, through noise: figures that may be published.

    Rows are counted by class and score, with noise on every count. Every figure has an interval
    that covers noise, sampling and the width of bins. Rows that the model was fitted to would
    make it look too good: see the option --holdout of tacit fit for a test that costs nothing.

    \b
    Examples:
      tacit evaluate model others.csv --target sick --epsilon 0.5 --delta 1e-6
      tacit evaluate model others.csv --target sick --epsilon 0.5 --delta 1e-6 \\
        --by sex=female,male --out tested --ledger ledger.db --dataset others
    """
    from tacit.cli.tasks.evaluate import evaluate as test
    from tacit.cli.tasks.evaluate import facts_of
    from tacit.cli.tasks.tables import limits_of

    book = account(ledger, dataset)
    how = given(epsilon=epsilon, delta=delta, by=by, confidence=confidence, neighbors=neighbors)
    how |= given(public_size=public_size, ledger=book, random_state=seed, decimal=decimal)
    how |= given(error_bound=error_bound)
    how |= given(extractor=extractor, out=out, person=person, max_rows_per_group=rows_per_person)
    if target_bounds is not None:
        how["bounds"] = limits_of(target_bounds)
    found = test(model, table, target=target, force=force, **how)
    warn(found.certificate.warnings if found.certificate else ())
    if as_json:
        dump(facts_of(found, out))
        return
    say_evaluation(found)
    if book is not None:
        say(f"Ledger: {left(book.remaining())}.")
    if out is not None:
        say(f"In {out}: evaluation.json, certificate.json, report.html")


def say_evaluation(found: Evaluation) -> None:
    """Figures with their intervals, and those of groups beside them."""
    from tacit.report.tested import MAJORITY, capped, label_of, second_class

    sure = f"{found.confidence:.0%}"
    say(f"Tested through noise; each interval holds with {sure} confidence, by itself.")
    for name, figure in found.figures.items():
        say(f"  {label_of(name):<28} {figure}")
    if len(found.classes) == 2:
        say(f"  {second_class(found.classes)}")
    for group, figures in found.by_group.items():
        first = next(name for name in ("accuracy", "rmse") if name in figures)
        say(f"  {label_of(first) + ', ' + group:<28} {figures[first]}")
    for first in ("accuracy", "rmse"):
        for pair, gap in found.gaps.get(first, {}).items():
            say(f"  {label_of(first) + ', ' + pair:<28} {gap}")
    if found.cap is not None:
        say(f"  {capped(found.cap)}")
    if "accuracy" in found:
        say(f"  {MAJORITY[found.beats_majority]}")
