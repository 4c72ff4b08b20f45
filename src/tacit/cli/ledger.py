"""``tacit ledger``: accounts of what was spent, on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import Json, argument, dump, flag, given, line, say
from tacit.cli.options import DATASET, LEDGER

if TYPE_CHECKING:
    from tacit.ledger import Charge, Ledger, Remaining

NEIGHBORS = """What differing in one row means, for all plans of the account: replace_special unless
given. replace_one is needed for plans with a noiseless stage, such as SoftPCA."""

PERSON = """Plans must protect people with all of their rows, told apart by this column."""
ROWS_PER_PERSON = """With --person: most rows of a person, as in the plans."""

Place = Annotated[str, argument("LEDGER", LEDGER)]
Dataset = Annotated[str, flag(DATASET)]

group = typer.Typer(
    help="Keep account of what is spent on a data set, over all fits and for good.\n\n"
    "A fit with --ledger reserves its budget before it draws any noise, and what would pass the "
    "account's limit is refused. Everything is composed jointly, so several fits cost less than "
    "their epsilons added up.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def account(ledger: str | None, dataset: str | None) -> Ledger | None:
    """The account that two flags name, if it is there."""
    from tacit.exceptions import InputError
    from tacit.ledger import Ledger

    if ledger is None and dataset is None:
        return None
    if ledger is None or dataset is None:
        raise InputError("--ledger and --dataset go together")
    found = Ledger(ledger, dataset)
    found.limits()
    return found


def left(remaining: Remaining) -> str:
    """What is left of an account, in one line."""
    limit = f"{remaining.epsilon:g} at delta {remaining.delta:g} ({remaining.neighbors})"
    if remaining.unit.kind != "row":
        limit = f"{limit[:-1]}; {remaining.unit.described})"
    rest = f"one more plan may have epsilon {remaining.left:g}"
    if not remaining.left:
        rest = "nothing of use is left"
    also = f" (with {', '.join(remaining.tables)})" if remaining.tables else ""
    return f"{remaining.dataset}{also}: epsilon {remaining.spent:.4g} spent of {limit}; {rest}"


@group.command()
def create(
    ledger: Place,
    *,
    dataset: Dataset,
    epsilon: Annotated[float, flag("What all plans together may ever spend on it.")],
    delta: Annotated[float, flag("The delta at which that is counted.")],
    neighbors: Annotated[str | None, flag(NEIGHBORS)] = None,
    person: Annotated[str | None, flag(PERSON)] = None,
    rows_per_person: Annotated[int | None, flag(ROWS_PER_PERSON)] = None,
    as_json: Json = False,
) -> None:
    """Open an account for a data set, and the ledger if there is none.

    The limits are meant to be set once, by whoever answers for the data, before anything is
    fitted. Plans must be calibrated for the same neighbouring relation.

    \b
    Examples:
      tacit ledger create ledger.db --dataset patients --epsilon 3 --delta 1e-6
      tacit ledger create ledger.db --dataset visits --epsilon 3 --delta 1e-6 \\
        --person patient_id --rows-per-person 5
    """
    from tacit.exceptions import InputError
    from tacit.ledger import Ledger
    from tacit.privacy.unit import Unit

    limits = given(epsilon=epsilon, delta=delta, neighbors=neighbors)
    if (person is None) != (rows_per_person is None):
        raise InputError("--person and --rows-per-person go together")
    if person is not None and rows_per_person is not None:
        limits["unit"] = Unit("person", rows_per_person, person)
    made = Ledger(ledger).create(dataset, **limits)
    if as_json:
        dump({"ledger": made.url, "head": made.head, **made.remaining().to_dict()})
        return
    whom = "" if person is None else f"; {made.remaining().unit.described}"
    limit = f"epsilon {epsilon:g}, delta {delta:g}{whom}"
    say(f"Opened the account of {dataset} in {made.url}: {limit}.")
    whose = "" if person is None else f"--person '{person}' --rows-per-person {rows_per_person} "
    say(f"Now: tacit fit TABLE {whose}--ledger {made.url} --dataset '{dataset}' ...")


@group.command()
def join(
    ledger: Place,
    *,
    dataset: Annotated[str, flag("Name of the table.")],
    population: Annotated[str, flag("Account of the people who are in it.")],
    as_json: Json = False,
) -> None:
    """Charge what is spent on a table to the account of its population.

    The same people may be in several tables: last year's, another department's. From now on a
    charge to one of them is a charge to all, composed jointly. What was spent on the table so far
    is counted in the account, too.

    \b
    Example:
      tacit ledger join ledger.db --dataset visits-2025 --population patients
    """
    from tacit.ledger import Ledger

    book = Ledger(ledger, population).join(dataset)
    if as_json:
        dump({"ledger": book.url, "head": book.head, **book.remaining().to_dict()})
    else:
        say(f"{left(book.remaining())}.")


@group.command("list")
def list_(ledger: Place, as_json: Json = False) -> None:
    """The accounts of a ledger, and what is left of each.

    \b
    Example:
      tacit ledger list ledger.db
    """
    from tacit.ledger import Ledger

    book = Ledger(ledger)
    found = [book.remaining(name) for name in book.datasets()]
    if as_json:
        dump({"ledger": book.url, "accounts": [one.to_dict() for one in found]})
        return
    say(f"{'data set':<24}{'spent':>9}{'limit':>9}{'delta':>10}{'fits':>9}{'plans':>7}")
    for one in found:
        spent = f"{one.spent:>9.4g}{one.epsilon:>9.4g}{one.delta:>10.2g}{one.left:>9.4g}"
        say(line(f"{one.dataset:<24}{spent}{one.plans:>7}"))
        for table in one.tables:
            say(line(f"  and {table}"))


@group.command()
def show(ledger: Place, *, dataset: Dataset, as_json: Json = False) -> None:
    """Every plan that spent from an account, and what is left.

    "together" is what the account came to with the plan, all events composed jointly. A plan
    that is "not finished" is running, was interrupted or crashed: it counts like the others.

    \b
    Example:
      tacit ledger show ledger.db --dataset patients
    """
    from tacit.ledger import Ledger

    book = Ledger(ledger, dataset)
    charges, remaining, head = book.charges(), book.remaining(), book.head
    amendments = [entry for entry in book.entries() if entry.kind == "amend"]
    if as_json:
        changed = [{"number": e.number, "at": e.at, **_limits(e.facts)} for e in amendments]
        plans = [charge.to_dict() for charge in charges]
        dump({**remaining.to_dict(), "head": head, "charges": plans, "amendments": changed})
        return
    say(f"{'entry':>5}  {'when':<20}{'epsilon':>8}{'delta':>9}{'together':>10}  outcome and plan")
    lines = {charge.number: _line(charge) for charge in charges}
    for entry in amendments:
        now = _limits(entry.facts)
        lines[entry.number] = (
            f"{entry.number:>5}  {entry.at[:19]:<20}{now['epsilon']:>8.4g}{now['delta']:>9.2g}"
            f"{'':>10}  new limits: {now['reason']}"
        )
    for number in sorted(lines):
        say(line(lines[number]))
    say(f"{left(remaining)}.")
    say(f"Head: {head}")


def _line(charge: Charge) -> str:
    budget = charge.budget
    asked = f"{budget.epsilon:>8.4g}{budget.delta:>9.2g}" if budget else f"{'':>17}"
    named = charge.plan.get("steps")
    steps = named if isinstance(named, list) else [name for name, _ in charge.spending.events]
    table = f"{charge.plan['table']}, " if "table" in charge.plan else ""
    what = f"{charge.outcome}: {table}{', '.join(map(str, steps))}"
    return f"{charge.number:>5}  {charge.at[:19]:<20}{asked}{charge.together:>10.4g}  {what}"


def _limits(facts: Any) -> dict[str, Any]:
    return {name: facts[name] for name in ("epsilon", "delta", "reason")}


@group.command()
def check(
    ledger: Place,
    *,
    head: Annotated[list[str] | None, flag("A hash that was written down; repeatable.")] = None,
    certificate: Annotated[
        list[Path] | None, flag("A certificate or model whose entry must be there; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look for entries that were edited, deleted or moved; exit code 1 if any was.

    Entries form a chain of hashes. Somebody who can write the database could rewrite it from
    some entry to its end. That shows against a hash that was written down elsewhere before: the
    head that this command prints, or the one in every certificate.

    \b
    Examples:
      tacit ledger check ledger.db
      tacit ledger check ledger.db --head 5c1f... --certificate model
    """
    from tacit.ledger import Ledger

    book = Ledger(ledger)
    heads = [*(head or ()), *(_head(path) for path in certificate or ())]
    problems = book.check(heads)
    now = None if problems else book.head
    if as_json:
        dump({"ledger": book.url, "holds": not problems, "problems": problems, "head": now})
    else:
        for problem in problems:
            say(f"problem: {line(problem)}")
        if problems:
            say("The ledger WAS CHANGED or damaged.")
        else:
            say(f"The ledger is as it was written.\nHead, to be written down elsewhere: {now}")
    raise typer.Exit(1 if problems else 0)


def _head(path: Path) -> str:
    """The hash of the entry that a certificate names."""
    from tacit.cli.tasks.verify import verify
    from tacit.exceptions import InputError

    claim = verify(path).certificate
    entry = None if claim is None else claim.plan.get("ledger")
    if not isinstance(entry, Mapping) or not isinstance(entry.get("head"), str):
        raise InputError(f"{path} names no entry of a ledger")
    return str(entry["head"])


@group.command()
def amend(
    ledger: Place,
    *,
    dataset: Dataset,
    epsilon: Annotated[float | None, flag("New limit.")] = None,
    delta: Annotated[float | None, flag("New delta.")] = None,
    reason: Annotated[str, flag("Why; it is recorded.")],
    as_json: Json = False,
) -> None:
    """Change the limits of an account; the change is recorded with its reason.

    \b
    Example:
      tacit ledger amend ledger.db --dataset patients --epsilon 4 --reason "board, 12 May"
    """
    from tacit.ledger import Ledger

    book = Ledger(ledger, dataset)
    book.amend(epsilon=epsilon, delta=delta, reason=reason)
    if as_json:
        dump({**book.remaining().to_dict(), "head": book.head})
    else:
        say(f"{left(book.remaining())}.")
