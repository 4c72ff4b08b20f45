"""An account: what the entries of one data set say together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tacit.exceptions import BudgetError, LedgerError
from tacit.ledger.composed import Composed
from tacit.ledger.links import ORIGIN, Row, Tampered, digest, follow
from tacit.ledger.spending import Limits, Spending, Tally, checked
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event
from tacit.privacy.relation import Neighbors
from tacit.privacy.unit import ROW, Unit

OUTCOMES = ("model", "test failed", "summary")
UNFINISHED = "not finished"


@dataclass(frozen=True)
class Charge:
    """One plan in an account, and what came of it.

    Attributes
    ----------
    number, id, at : int, str, str
        Of the entry that reserved it.
    plan : mapping
        What was planned, in public words.
    spending : Spending
        Its events.
    budget : Budget or None
        The (ε, δ) that the plan by itself was calibrated for.
    together : float
        ε of the whole account at its δ, this plan included.
    outcome : str
        ``model``, ``summary``, ``test failed``, or ``not finished``: running, interrupted or
        crashed. Each of them is spent.
    certificate : str or None
        Digest of the certificate.
    unit : Unit
        Whose contributions its events count; the account's.
    """

    number: int
    id: str
    at: str
    plan: Mapping[str, Any]
    spending: Spending
    budget: Budget | None
    together: float
    outcome: str = UNFINISHED
    certificate: str | None = None
    unit: Unit = ROW

    @staticmethod
    def of(body: Mapping[str, Any], outcome: str, certificate: str | None) -> Charge:
        """The charge of an entry.

        Parameters
        ----------
        body : mapping
            The entry as written.
        outcome : str
            What came of the plan.
        certificate : str or None
            Its identifier.

        Returns
        -------
        Charge
            With its events.
        """
        return Charge(
            body["number"],
            body["id"],
            str(body["at"]),
            body["plan"],
            Spending.from_dict(body),
            None if body["budget"] is None else Budget(*body["budget"]),
            float(body["together"]),
            outcome,
            certificate,
            Unit.from_dict(body.get("unit")),
        )

    def to_dict(self) -> dict[str, Any]:
        """The charge as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        budget = self.budget
        return {
            "number": self.number,
            "id": self.id,
            "at": self.at,
            "plan": dict(self.plan),
            "epsilon": None if budget is None else budget.epsilon,
            "delta": None if budget is None else budget.delta,
            **self.spending.to_dict(),
            "together": self.together,
            "outcome": self.outcome,
            "certificate": self.certificate,
            "unit": self.unit.to_dict(),
        }


@dataclass(frozen=True)
class Remaining:
    """What is left of an account.

    Attributes
    ----------
    dataset, epsilon, delta, neighbors
        The account and its limits.
    spent : float
        ε of everything together, at the account's δ.
    left : float
        About the largest ε, at the account's δ, that one more plan may have. Since plans are
        composed jointly, this is more than ``epsilon - spent``.
    plans, unfinished : int
        How many plans were reserved, and how many of these have no outcome.
    unit : Unit
        Whose contributions the events of the account count.
    tables : tuple of str
        Tables of the same people, whose plans are charged to the account.
    """

    dataset: str
    epsilon: float
    delta: float
    neighbors: Neighbors
    spent: float
    left: float
    plans: int
    unfinished: int
    unit: Unit = ROW
    tables: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What is left as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        spent = self.spent if math.isfinite(self.spent) else None
        listed = {"unit": self.unit.to_dict(), "tables": list(self.tables)}
        return {**self.__dict__, "spent": spent, **listed}


class Mark(NamedTuple):
    """What an entry says of the distribution that is kept beside the entries.

    Attributes
    ----------
    number, digest : int, str
        Of the entry, and of the distribution's bytes.
    events : int
        How many events that are not Gaussian were composed to it.
    """

    number: int
    digest: str
    events: int


@dataclass
class Account:
    """The state of a data set's account after its entries so far."""

    dataset: str
    limits: Limits
    tally: Tally = field(default_factory=Tally)
    reserved: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # entries by id
    outcomes: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    count: int = 0
    mark: Mark | None = None
    tables: tuple[str, ...] = ()  # of the same people, whose plans are charged here
    # Accounts with one more plan, by that plan: what was found before the lock, for under it.
    _tried: dict[Spending, tuple[Tally, float]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def copy(self) -> Account:
        return replace(
            self,
            tally=self.tally.copy(),
            reserved=dict(self.reserved),
            outcomes=dict(self.outcomes),
            _tried={},
        )

    def joined(self, table: str, other: Account | None) -> Account:
        """This account with one more table of the same people, and all that was spent on it.

        Parameters
        ----------
        table : str
            Its name.
        other : Account or None
            The account that it had of its own, if any.

        Returns
        -------
        Account
            In which all events are composed jointly.
        """
        made = self.copy()
        made.tables = (*self.tables, table)
        if other is None:
            return made
        if (other.limits.neighbors, other.limits.unit) != (self.limits.neighbors, self.limits.unit):
            raise LedgerError(
                f"{table!r} has an account for another relation or unit of privacy than "
                f"{self.dataset!r}: what was spent there and here cannot be added up"
            )
        for id, body in other.reserved.items():
            events = [Event.from_dict(item) for item in body["events"]]
            made.tally.add(events, *checked(len(events), body["draws"], body["failure"]))
            made.reserved[id] = body
        made.outcomes |= other.outcomes
        made.tables += other.tables
        return made

    def adopt(self, kept: tuple[int, bytes] | None) -> None:
        """Use a distribution that was kept, if it is the one that an entry holds the hash of."""
        if kept is None or self.mark is None:
            return
        number, content = kept
        if number == self.mark.number and digest(content) == self.mark.digest:
            found = Composed.from_bytes(content)
            if found is not None and found.neighbors == self.limits.neighbors:
                self.tally.adopt(found, self.mark.events)

    @property
    def wants(self) -> bool:
        """Whether what is kept in the ledger would spare work."""
        return self.mark is not None and self.tally.composed_events < self.mark.events

    @property
    def behind(self) -> bool:
        """Whether events have to be composed before anything can be said: it may take long."""
        return self.tally.behind(self.limits)

    @property
    def charges(self) -> list[Charge]:
        """Every plan that was reserved, with what came of it."""
        return [
            Charge.of(body, *self.outcomes.get(id, (UNFINISHED, None)))
            for id, body in self.reserved.items()
        ]

    @property
    def spent(self) -> float:
        """ε of everything together, at the account's δ."""
        return self.tally.epsilon(self.limits)

    def plus(self, spending: Spending, neighbors: Neighbors, unit: Unit) -> tuple[Tally, float]:
        """What is spent with this spending in it, and its ε at the account's δ."""
        limits = self.limits
        if unit != limits.unit:
            raise LedgerError(
                f"in the plan {unit.sentence}; in the account of {self.dataset!r} "
                f"{limits.unit.sentence}: what is hidden differs, so the two cannot be added up. "
                "Keep an account for each unit of privacy"
            )
        if neighbors != limits.neighbors:
            raise LedgerError(
                f"the plan is private for neighbors={neighbors!r:.40}, but the account of "
                f"{self.dataset!r} is kept for {limits.neighbors!r}: the two cannot be added up. "
                + _advice(neighbors, limits.neighbors)
            )
        found = self._tried.get(spending)
        if found is None:
            if self.behind:
                self.compose()  # here, so that it need not be done again for another plan
            tally = self.tally.plus(spending)
            found = tally, tally.epsilon(limits)
            self._tried.clear()
            self._tried[spending] = found
        return found

    def compose(self, limits: Limits | None = None) -> None:
        """Compose what was not yet: it may take long."""
        with suppress(OverflowError):  # then it costs more than any limit
            self.tally.composed(limits or self.limits)

    def refusal(self, spending: Spending, budget: Budget | None) -> BudgetError:
        """Why a spending that passes the limit is refused, and what would not be."""
        limits = self.limits
        _, together = self.plus(spending, limits.neighbors, limits.unit)
        spent = self.spent
        delta = limits.delta if budget is None else budget.delta
        room = self.tally.room(limits, delta, spending)
        asked = "" if budget is None else f" (epsilon={budget.epsilon:g}, delta={budget.delta:g})"
        total = f"to epsilon={_up(together)}" if math.isfinite(together) else "beyond any epsilon"
        message = (
            f"the account of {self.dataset!r} does not allow this plan{asked}: it would bring what "
            f"is spent from epsilon={_up(spent)} {total} at delta={limits.delta:g}, and the limit "
            f"is {limits.epsilon:g}. "
        )
        if room:
            message += f"A plan of this kind with epsilon={room:g}, delta={delta:g} would fit. "
        else:
            message += "Nothing of use fits any more. "
        return BudgetError(message + "No row was looked at, no noise drawn", remaining=room)

    def remaining(self) -> Remaining:
        limits = self.limits
        return Remaining(
            self.dataset,
            limits.epsilon,
            limits.delta,
            limits.neighbors,
            self.spent,
            self.tally.room(limits, limits.delta),
            len(self.reserved),
            len(self.reserved) - len(self.outcomes),
            limits.unit,
            self.tables,
        )


@dataclass
class Book:
    """All accounts of a ledger, after the entries so far. Every one was checked on the way."""

    accounts: dict[str, Account] = field(default_factory=dict)
    number: int = 0  # of the last entry
    hash: str = ORIGIN
    tables: dict[str, str] = field(default_factory=dict)  # whose account is another one's

    def account_of(self, dataset: str) -> str:
        """The account that a data set is charged to: its own, or that of its population."""
        return self.tables.get(dataset, dataset)

    def holds(self, row: Row | None) -> bool:
        """Whether this is the last entry of the book, text and all."""
        return row is not None and row.hash == self.hash == digest(row.body)

    def extended(self, rows: Iterable[Row]) -> Book:
        """The book with these entries, which follow its own."""
        book = replace(self, accounts=dict(self.accounts), tables=dict(self.tables))
        fresh: set[str] = set()
        for row, body in follow(rows, self.number, self.hash):
            if row.dataset in book.tables:
                raise Tampered(f"entry {row.number} is of a table that has joined another account")
            account = book.accounts.get(row.dataset)
            if account is not None and row.dataset not in fresh:
                account = account.copy()
            try:
                if body["kind"] == "join":
                    account = book.join(account, row, body)
                book.accounts[row.dataset] = with_entry(account, row, body)
            except LedgerError:
                raise
            except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
                words = f"entry {row.number} cannot be understood: {error!s:.200}"
                raise Tampered(words) from None
            fresh.add(row.dataset)
            book.number, book.hash = row.number, row.hash
        return book

    def join(self, account: Account | None, row: Row, body: Mapping[str, Any]) -> Account:
        """The account of a population with one more table, which has none of its own any more."""
        table = body["table"]
        if account is None or not isinstance(table, str) or table in (*self.tables, row.dataset):
            raise Tampered(f"entry {row.number} joins a table that cannot be joined")
        made = account.joined(table, self.accounts.pop(table, None))
        for name in made.tables:
            self.tables[name] = row.dataset
        return made


def with_entry(account: Account | None, row: Row, body: Mapping[str, Any]) -> Account:
    """The account after one more entry."""
    kind, nth = body["kind"], 1 if account is None else account.count + 1
    mark = body.get("composed")
    if (kind == "open") != (account is None) or body["nth"] != nth:
        raise Tampered(
            f"entry {row.number} is not the next one of {row.dataset!r}: entries of this data set "
            "were deleted, moved or added"
        )
    if not isinstance(body["at"], str):
        raise TypeError("its time is missing")
    if account is None:
        unit = Unit.from_dict(body.get("unit"))
        limits = Limits(body["epsilon"], body["delta"], body["neighbors"], unit)
        account = Account(row.dataset, limits)
    elif kind == "amend":
        account.limits = replace(account.limits, epsilon=body["epsilon"], delta=body["delta"])
        if not isinstance(body["reason"], str):
            raise TypeError("its reason is missing")
    elif kind == "reserve":
        budget, total = body["budget"], body["together"]
        if not (isinstance(body["plan"], Mapping) and isinstance(body["events"], list)):
            raise TypeError("its plan or its events are missing")
        if not (isinstance(total, float) and (budget is None or Budget(*budget))):
            raise TypeError("its budget or its total is missing")
        if not all(isinstance(item["stage"], str) for item in body["events"]):
            raise TypeError("its events have no names")
        if Unit.from_dict(body.get("unit")) != account.limits.unit:
            raise TypeError("it counts another unit of privacy than its account")
        events = [Event.from_dict(item) for item in body["events"]]
        account.tally.add(events, *checked(len(events), body["draws"], body["failure"]))
        account.reserved[row.id] = body
    elif kind == "join":
        if not isinstance(body["together"], float):
            raise TypeError("its total is missing")
    else:
        id, outcome = body["reservation"], body["outcome"]
        if id not in account.reserved or id in account.outcomes or outcome not in OUTCOMES:
            raise Tampered(f"entry {row.number} commits what was not reserved, or a second time")
        if not isinstance(certificate := body["certificate"], str | None):
            raise TypeError("its certificate is not a digest")
        account.outcomes[id] = outcome, certificate
    if mark is not None:
        if not isinstance(mark, str):
            raise TypeError("what it says of composed events is not a digest")
        account.mark = Mark(row.number, mark, account.tally.others)
    account.count = nth
    return account


def _advice(plan: str, account: str) -> str:
    if plan == "replace_one":
        return (
            "A plan with a noiseless stage is analysed for 'replace_one' only: leave such stages "
            "out, or keep an account for 'replace_one' from the start"
        )
    return f"Pass neighbors={account!r}"


def _up(epsilon: float) -> str:
    """Four digits, never less than the number."""
    if not 0 < epsilon < math.inf:
        return f"{epsilon:g}"
    scale = 10.0 ** (3 - math.floor(math.log10(epsilon)))
    return f"{math.ceil(epsilon * scale - 1e-9) / scale:g}"
