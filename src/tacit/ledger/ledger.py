"""`Ledger`: durable accounts of what was spent on data sets."""

from __future__ import annotations

import copy
import os
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tacit.exceptions import BudgetError, InputError, LedgerError
from tacit.ledger.account import OUTCOMES, Account, Book, Charge, Remaining
from tacit.ledger.address import Address
from tacit.ledger.composed import LARGEST_KEPT, Composed
from tacit.ledger.links import Row, Tampered, broken, canonical, digest, parse
from tacit.ledger.spending import Limits, Spending, unit_facts
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event, Failure
from tacit.privacy.relation import Neighbors
from tacit.privacy.unit import ROW, Unit

if TYPE_CHECKING:
    from tacit.ledger.store import Journal, Store

LONGEST_NAME = 200
LONGEST_PLAN = 1 << 14  # characters of JSON
KEPT_WITHIN = 0.01  # relative: events are grouped otherwise when they are composed anew
PATIENCE = 5  # times that events of others are composed before the lock, and not under it

T = TypeVar("T")

#: Ledgers as this process last read and checked them, by address.
BOOKS: dict[str, Book] = {}


@dataclass(frozen=True)
class Entry:
    """An entry of the ledger, as it was written.

    Attributes
    ----------
    number : int
        Its place in the ledger.
    dataset : str
        The account.
    kind : {"open", "amend", "join", "reserve", "commit"}
        A new account, new limits, one more table, a reservation, or what came of one.
    id : str
        What it belongs to.
    at : str
        When, in UTC.
    hash : str
        Of this entry and all before it.
    facts : mapping
        What was written.
    """

    number: int
    dataset: str
    kind: str
    id: str
    at: str
    hash: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Reservation:
    """Budget that was set aside for one plan: it is spent, whatever becomes of the plan.

    Attributes
    ----------
    number, id, head : int, str, str
        Of its entry; ``head`` is the entry's hash, which stands for the ledger up to it.
    together : float
        ε of the whole account at its δ, this plan included.
    ledger : Ledger
        Where it is recorded.
    dataset : str
        The account.
    """

    ledger: Ledger
    dataset: str
    id: str
    number: int
    head: str
    together: float

    def commit(self, outcome: str = "model", certificate: str | None = None) -> None:
        """Record what came of the plan: model, summary or failed test, and its certificate.

        Parameters
        ----------
        outcome : {"model", "summary", "test failed"}
            What came of the plan.
        certificate : str, optional
            Identifier of its certificate.
        """
        self.ledger._commit(self, outcome, certificate)

    def settle(self, outcome: str = "model", certificate: str | None = None) -> None:
        """Commit, or warn that it could not be recorded.

        The budget is spent either way, so what was made of it is not thrown away.

        Parameters
        ----------
        outcome : {"model", "summary", "test failed"}
            What came of the plan.
        certificate : str, optional
            Identifier of its certificate.
        """
        try:
            self.commit(outcome, certificate)
        except LedgerError as error:
            warnings.warn(
                f"the ledger keeps entry {self.number} as not finished, and spent: {error}",
                stacklevel=3,
            )

    def to_dict(self) -> dict[str, Any]:
        """What a certificate says of it, so that people find the entry.

        Returns
        -------
        dict
            Number, identifier and hash of the entry, and ε of the whole account.
        """
        return {
            "dataset": self.dataset,
            "entry": self.number,
            "id": self.id,
            "head": self.head,
        }


class _Next(NamedTuple):
    """What to write: the facts of an entry, and what events are composed to with it."""

    facts: Mapping[str, Any]
    composed: Composed | None = None


class Ledger:
    """Accounts of what was spent on data sets, in a file or a database.

    A plan reserves its budget before any noise is drawn; a reservation counts as spent from then
    on. What would pass an account's limit is refused. All events of an account are composed
    jointly. A ledger may be used by many threads and processes at once; the object itself holds
    nothing but where the ledger is.

    Parameters
    ----------
    url : str or path
        A path or ``sqlite:///path`` for a file; ``postgresql://user@host/database`` for a server
        (``pip install "tacit[postgres]"``), which best reads its password from ``~/.pgpass``.
    dataset : str, optional
        The account that is meant where none is named. Estimators need it.
    timeout : float
        Seconds to wait for a lock or a server.

    Examples
    --------
    >>> import tempfile
    >>> from tacit.privacy import Gaussian
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(f"{folder.name}/ledger.db").create("census", epsilon=2.0, delta=1e-6)
    >>> spent = ledger.reserve([("mean", Gaussian(5.0))], neighbors="replace_special")
    >>> spent.commit()
    >>> round(ledger.remaining().spent, 2)
    0.83
    >>> ledger.check()
    []
    >>> folder.cleanup()
    """

    _timeout: float

    def __init__(
        self, url: str | os.PathLike[str], dataset: str | None = None, *, timeout: float = 30.0
    ) -> None:
        self.address = Address.of(url)
        self._dataset = None if dataset is None else _name(dataset)
        if isinstance(timeout, bool) or not isinstance(timeout, Real) or not 0 < timeout < 1e6:
            raise InputError(f"timeout={timeout!r:.80} must be a number of seconds above 0")
        self._timeout = float(timeout)

    @property
    def url(self) -> str:
        """Where the ledger is, without a password."""
        return self.address.shown

    @property
    def dataset(self) -> str | None:
        """The account that is meant where none is named."""
        return self._dataset

    def __repr__(self) -> str:
        named = "" if self._dataset is None else f", dataset={self._dataset!r}"
        return f"Ledger({self.url!r}{named})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        return (self.address, self._dataset) == (other.address, other._dataset)

    def __hash__(self) -> int:
        return hash((self.address, self._dataset))

    def __sklearn_clone__(self) -> Ledger:
        return self  # it never changes, and a copy would be the same account anyway

    # --- writing ---------------------------------------------------------------------------------

    def create(
        self,
        dataset: str | None = None,
        *,
        epsilon: float,
        delta: float,
        neighbors: Neighbors = "replace_special",
        unit: Unit = ROW,
    ) -> Ledger:
        """Open an account, and the ledger itself if there is none yet.

        Parameters
        ----------
        dataset : str, optional
            Its name; the ledger's own data set unless given.
        epsilon, delta : float
            What all plans together may ever spend on this data set.
        neighbors : str
            The relation that plans must be calibrated for.
        unit : Unit
            The unit of privacy that plans must have: rows, unless persons are told apart.

        Returns
        -------
        Ledger
            This ledger, with the new account as its data set.
        """
        name, limits = self._named(dataset), Limits(epsilon, delta, neighbors, unit)

        def decide(account: Account | None, patient: bool, book: Book) -> _Next:
            if account is not None:
                raise LedgerError(
                    f"there is an account of {book.account_of(name)!r} already; its limits can be "
                    "changed by an amendment, which is recorded"
                )
            return _Next({"kind": "open", **limits.to_dict()})

        self._write(name, decide, make=True)
        return self.at(name)

    def join(self, table: str, population: str | None = None) -> Ledger:
        """Charge what is spent on a table to the account of its population, from now on.

        The same people may be in several tables: last year's, another department's. A charge to
        one of them is then a charge to all, composed jointly. If the table had an account, all that
        was spent from it is counted in the other one, whose limits hold.

        Parameters
        ----------
        table : str
            Name of the data set.
        population : str, optional
            The account; the ledger's own data set unless given.

        Returns
        -------
        Ledger
            This ledger, with the table as its data set.
        """
        name, table = self._named(population), _name(table)

        def decide(account: Account | None, patient: bool, book: Book) -> _Next:
            account = self._there(account, name)
            if table == account.dataset or table in book.tables:
                raise LedgerError(f"{table!r} is charged to {book.account_of(table)!r} already")
            made = account.joined(table, book.accounts.get(table))
            if not made.spent <= made.limits.epsilon:
                raise BudgetError(
                    f"with what was spent on {table!r} the account of {account.dataset!r} would "
                    f"come to epsilon={made.spent:.4g}, above its limit of "
                    f"{made.limits.epsilon:g}: raise that first, by an amendment",
                    remaining=0.0,
                )
            composed = made.tally.composed(made.limits) if made.tally.others else None
            return _Next({"kind": "join", "table": table, "together": float(made.spent)}, composed)

        self._write(name, decide)
        return self.at(table)

    def at(self, dataset: str) -> Ledger:
        """The same ledger with this data set.

        Parameters
        ----------
        dataset : str
            Name of the account.

        Returns
        -------
        Ledger
            Of the same entries.
        """
        other = copy.copy(self)
        other._dataset = _name(dataset)
        return other

    def amend(
        self,
        dataset: str | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        reason: str,
    ) -> None:
        """Change the limits of an account, and record that, when and why.

        What has been spent must lie within the new limits.

        Parameters
        ----------
        dataset : str, optional
            Name of the account; the ledger's own unless given.
        epsilon, delta : float, optional
            The new limits; those not given stay.
        reason : str
            Why.
        """
        name = self._named(dataset)
        if not isinstance(reason, str) or not reason.strip() or len(reason) > 1000:
            raise InputError("an amendment needs a reason, of up to 1000 characters")

        def wanted(account: Account) -> Limits:
            old = account.limits
            limits = Limits(
                old.epsilon if epsilon is None else epsilon,
                old.delta if delta is None else delta,
                old.neighbors,
                old.unit,
            )
            if limits == old:
                raise InputError("these are the limits of the account already")
            return limits

        def decide(account: Account | None, patient: bool, book: Book) -> _Next:
            account = self._there(account, name)
            limits = wanted(account)
            if patient and account.tally.behind(limits):
                raise _Behind
            spent = account.tally.epsilon(limits)
            if not spent <= limits.epsilon:
                raise BudgetError(
                    f"epsilon={spent:.4g} is spent of {name!r} at delta={limits.delta:g}; its "
                    "limits cannot be lower than that",
                    remaining=0.0,
                )
            now = {"epsilon": limits.epsilon, "delta": limits.delta}
            composed = account.tally.composed(limits) if account.tally.others else None
            return _Next({"kind": "amend", "reason": reason, **now}, composed)

        self._write(name, decide, prepare=lambda account: account.compose(wanted(account)))

    def reserve(
        self,
        events: Sequence[tuple[str, Event]],
        *,
        neighbors: Neighbors,
        draws: int = 0,
        failure: float = 0.0,
        budget: Budget | None = None,
        plan: Mapping[str, Any] | None = None,
        unit: Unit = ROW,
    ) -> Reservation:
        """Set aside what a plan will spend, before any noise is drawn.

        Parameters
        ----------
        events : sequence of (str, Event)
            Everything that will touch private rows, by name.
        neighbors : str
            The relation for which these events hold; it must be the account's.
        draws : int
            Discrete Gaussians to be drawn, whose numerical error is part of δ.
        failure : float
            Probability that a private test passes wrongly; part of δ.
        budget : Budget, optional
            What the plan by itself was calibrated for.
        plan : mapping, optional
            What is planned, in public words and numbers, for people to read.
        unit : Unit
            Whose contributions the events count; it must be the account's.

        Returns
        -------
        Reservation
            Which is spent from now on.

        Raises
        ------
        BudgetError
            If the account's limit would be passed; ``remaining`` is the ε that would fit.
        LedgerError
            If it cannot be recorded. In either case nothing may be drawn.
        """
        name, spending = self._named(None), Spending(tuple(events), draws, failure)
        described = dict(plan or {})
        try:
            fits = len(canonical(described)) <= LONGEST_PLAN
        except (TypeError, ValueError, RecursionError):
            fits = False
        if not fits:
            raise InputError("plan must be a short mapping of plain JSON values")

        sampled = any(not (e.gaussian or isinstance(e, Failure)) for _, e in spending.events)

        def decide(account: Account | None, patient: bool, book: Book) -> _Next:
            account = self._there(account, name)
            if patient and account.behind:
                raise _Behind
            tally, together = account.plus(spending, neighbors, unit)
            if not together <= account.limits.epsilon:
                raise _Refused(account)
            asked = None if budget is None else [budget.epsilon, budget.delta]
            table = {} if name == account.dataset else {"table": name}
            facts = {
                "plan": {**table, **described},
                "budget": asked,
                "together": together,
                **unit_facts(unit),
            }
            composed = tally.composed(account.limits) if sampled else None
            return _Next({"kind": "reserve", **facts, **spending.to_dict()}, composed)

        def prepare(account: Account) -> None:
            # Loss distributions take a while. What is found here is remembered, and used under
            # the lock unless somebody else has spent something in between.
            account.plus(spending, neighbors, unit)

        try:
            if sampled:
                prepare(self._look(name))
            row = self._write(name, decide, prepare=prepare)
        except _Refused as refused:
            raise refused.account.refusal(spending, budget) from None
        assert row is not None
        together = float(parse(row)["together"])
        return Reservation(self, row.dataset, row.id, row.number, row.hash, together)

    def _commit(self, reservation: Reservation, outcome: str, certificate: str | None) -> None:
        if outcome not in OUTCOMES:
            raise InputError(f"outcome={outcome!r:.80} must be one of {OUTCOMES}")
        if certificate is not None and not (isinstance(certificate, str) and certificate):
            raise InputError("certificate must be the digest of a certificate")
        name, id = reservation.dataset, reservation.id

        def decide(account: Account | None, patient: bool, book: Book) -> _Next | None:
            account = self._there(account, name)
            if id not in account.reserved:
                raise LedgerError(f"the ledger has no reservation {id}")
            if id in account.outcomes:
                if account.outcomes[id] == (outcome, certificate):
                    return None
                number = reservation.number
                raise LedgerError(f"what came of reservation {number} is recorded already")
            facts = {"reservation": id, "outcome": outcome, "certificate": certificate}
            return _Next({"kind": "commit", **facts})

        self._write(name, decide)

    # --- reading ---------------------------------------------------------------------------------

    @property
    def head(self) -> str:
        """Hash of the last entry, which shows later, if kept elsewhere, whether any is gone."""
        return self._read_as_seen(lambda journal: journal.head)

    def datasets(self) -> list[str]:
        """Names of the accounts.

        Returns
        -------
        list of str
            Sorted.
        """
        return sorted(self._book().accounts)

    def tables(self) -> dict[str, str]:
        """Tables that are charged to the account of their population.

        Returns
        -------
        dict of str to str
            The account of each.
        """
        return dict(sorted(self._book().tables.items()))

    def limits(self, dataset: str | None = None) -> Limits:
        """What an account allows; quick, whatever was spent.

        Parameters
        ----------
        dataset : str, optional
            Name of the account; the ledger's own unless given.

        Returns
        -------
        Limits
            ε, δ and the relation.
        """
        return self._look(dataset).limits

    def remaining(self, dataset: str | None = None) -> Remaining:
        """What is spent and what is left.

        Parameters
        ----------
        dataset : str, optional
            Name of the account; the ledger's own unless given.

        Returns
        -------
        Remaining
            With ``spent`` and ``left``.
        """
        return self._look(dataset).remaining()

    def charges(self, dataset: str | None = None) -> list[Charge]:
        """Every plan that was reserved, in order, with what came of it.

        Parameters
        ----------
        dataset : str, optional
            Name of the account; the ledger's own unless given.

        Returns
        -------
        list of Charge
            The oldest first.
        """
        return self._look(dataset).charges

    def entries(self, dataset: str | None = None) -> list[Entry]:
        """Entries as they were written: of one account, or of all.

        Parameters
        ----------
        dataset : str, optional
            Name of the account; all of them unless given.

        Returns
        -------
        list of Entry
            The oldest first.
        """
        wanted = self._dataset if dataset is None else _name(dataset)
        if wanted is not None:
            wanted = self._book().account_of(wanted)
        found = []
        for row in self._read_as_seen(lambda journal: journal.rows(wanted)):
            facts = parse(row)
            kind, at = facts["kind"], str(facts.get("at", ""))
            found.append(Entry(row.number, row.dataset, kind, row.id, at, row.hash, facts))
        return found

    def check(self, head: str | Iterable[str] | None = None) -> list[str]:
        """Look for entries that were edited, deleted, added or moved, and for limits passed.

        Parameters
        ----------
        head : str or several, optional
            Hashes that were written down earlier, such as those in certificates: their entries
            must still be there. Without any, somebody who rewrites the ledger from some entry to
            the end, hashes and all, is not found out.

        Returns
        -------
        list of str
            Problems in words; none if all is as it was written.
        """
        heads, seen = [head] if isinstance(head, str) else list(head or ()), self._seen()
        try:
            rows, count, end = self._store().read(lambda j: (j.rows(), j.count, j.head))
        except Tampered as problem:
            return [str(problem)]
        problems = broken(rows, count, end)
        if seen is not None:
            at = next((row for row in rows if row.number == seen.number), None)
            problems += [] if seen.holds(at) else [_rewritten(seen, at)]
        known = {row.hash for row in rows}
        problems += [
            f"no entry has the hash {wanted!r:.80}: the ledger was cut short, rewritten or replaced"
            for wanted in heads
            if wanted not in known
        ]
        if problems:
            return problems
        try:
            for name, account in Book().extended(rows).accounts.items():
                spent, limit = account.spent, account.limits.epsilon
                if not spent <= limit:
                    problems.append(f"{name!r}: epsilon={spent:.4g} is spent, above {limit:g}")
                problems += self._check_kept(account)
        except (LedgerError, InputError) as problem:
            problems.append(str(problem))
        return problems

    def _check_kept(self, account: Account) -> list[str]:
        """Compare what is kept beside the entries with what these, composed anew, come to."""
        kept = self._store().read(lambda journal: journal.kept(account.dataset))
        if kept is None or account.mark is None or kept[0] != account.mark.number:
            return []
        about = f"{account.dataset!r}: what is kept of its composed events"
        if digest(kept[1]) != account.mark.digest:
            return [f"{about} was edited; it is not used, and the next plan writes it anew"]
        found = Composed.from_bytes(kept[1])
        if found is None:  # of another version
            return []
        stated = account.tally.starting_from(found, account.mark.events).epsilon(account.limits)
        if stated < account.spent * (1 - KEPT_WITHIN) - 1e-9:
            return [
                f"{about} says epsilon={stated:.4g}, but the events come to {account.spent:.4g}: "
                "the ledger was rewritten"
            ]
        return []

    # --- within ----------------------------------------------------------------------------------

    def _store(self) -> Store:
        from tacit.ledger.store import Store

        return Store(self.address, self._timeout)

    def _named(self, dataset: str | None) -> str:
        if dataset is not None:
            return _name(dataset)
        if self._dataset is None:
            raise InputError("which data set? Name it: Ledger(url, dataset=...)")
        return self._dataset

    def _look(self, dataset: str | None) -> Account:
        name = self._named(dataset)
        book = self._book(name)
        if name in book.tables:
            name = book.account_of(name)
            book = self._book(name)
        return self._there(book.accounts.get(name), name)

    def _there(self, account: Account | None, name: str) -> Account:
        if account is None:
            raise LedgerError(
                f"{self.url} has no account of {name!r:.80}; open one with tacit ledger create, or "
                "charge it to that of its population with tacit ledger join"
            )
        return account

    def _write(
        self,
        name: str,
        decide: Callable[[Account | None, bool, Book], _Next | None],
        *,
        prepare: Callable[[Account], None] = Account.compose,
        make: bool = False,
    ) -> Row | None:
        """Write what ``decide`` makes of an account, under the ledger's lock.

        Whatever takes long is done before: reading the ledger for the first time, and composing
        (``prepare``), which ``decide`` may ask for while it is told to be patient.
        """
        if self._seen() is None:
            with suppress(LedgerError):  # it says the same under the lock
                self._book(name)
        for k in range(PATIENCE + 1):
            try:
                return self._try_to_write(name, decide, k < PATIENCE, make)
            except _Behind:
                prepare(self._look(name))
        raise AssertionError("without patience nobody is asked to prepare")

    def _try_to_write(
        self,
        name: str,
        decide: Callable[[Account | None, bool, Book], _Next | None],
        patient: bool,
        make: bool,
    ) -> Row | None:
        id, seen, composed = uuid.uuid4().hex, self._seen(), None

        def work(journal: Journal) -> Row | None:
            nonlocal composed
            row = journal.find(id)
            if row is not None:  # written by a try that seemed to fail
                return row
            book = self._read(journal, seen, name)
            charged = book.account_of(name)  # under the lock: a table may have joined meanwhile
            account = book.accounts.get(charged)
            made = decide(account, patient, book)
            if made is None:
                return None
            facts, content, composed = dict(made.facts), None, made.composed
            if composed is not None and len(data := composed.to_bytes()) <= LARGEST_KEPT:
                content, facts["composed"] = data, digest(data)
            nth = 1 if account is None else account.count + 1
            at = datetime.now(UTC).isoformat(timespec="seconds")
            row = journal.append(charged, nth, id, at=at, **facts)
            if content is not None:
                journal.keep(charged, row.number, content)
            return row

        row = self._store().write(work, make=make)
        now = self._seen()
        if row is not None and now is not None and parse(row)["previous"] == now.hash:
            book = now.extended([row])
            if composed is not None:
                tally = book.accounts[row.dataset].tally
                tally.adopt(composed, tally.others)
            self._remember(book)
        return row

    def _book(self, name: str | None = None) -> Book:
        """The ledger, with what is kept for one of its accounts."""
        seen = self._seen()  # before the transaction begins, so that it cannot be ahead of it
        return self._store().read(lambda journal: self._read(journal, seen, name))

    def _read_as_seen(self, work: Callable[[Journal], T]) -> T:
        """Read entries as they are stored, if the last one that was seen is still there."""
        seen = self._seen()

        def confirmed(journal: Journal) -> T:
            if seen is not None:
                self._confirm(journal, seen)
            return work(journal)

        return self._store().read(confirmed)

    def _confirm(self, journal: Journal, seen: Book) -> None:
        at = journal.at(seen.number)
        if not seen.holds(at):
            raise Tampered(f"{_rewritten(seen, at)}. {NOTHING}")

    def _seen(self) -> Book | None:
        return BOOKS.get(self.address.place)

    def _remember(self, book: Book) -> None:
        seen = self._seen()
        if seen is None or seen.number < book.number:
            BOOKS[self.address.place] = book

    def _read(self, journal: Journal, seen: Book | None, name: str | None = None) -> Book:
        """The ledger as the database has it, checked; what was checked is not read again."""
        if seen is not None:
            self._confirm(journal, seen)
        try:
            rows = journal.rows(start=None if seen is None else seen.number + 1)
            book = (seen or Book()).extended(rows) if rows or seen is None else seen
            if (book.number, book.hash) != (journal.count, journal.head):
                raise Tampered("entries at the end of the ledger were deleted or added")
        except Tampered as problem:
            raise Tampered(f"{problem}. {NOTHING}") from None
        now = self._seen()  # by another thread, meanwhile
        if now is not None and now is not seen and now.number <= book.number:
            self._confirm(journal, now)
        if book.number:
            self._remember(book)
        account = None if name is None else book.accounts.get(name)
        if account is not None and account.wants:
            account.adopt(journal.kept(account.dataset))
        return book


NOTHING = "Nothing can be spent from it. Run: tacit ledger check"


def _rewritten(seen: Book, at: Row | None) -> str:
    """What is wrong with a ledger that lacks the entry which was its last."""
    if at is None:
        return (
            f"the ledger has lost entries that were in it before, such as entry {seen.number}, "
            "which this process has seen: an older copy was put in its place, its end was cut off, "
            "or it was begun anew. If that is meant, keep the new one at another address"
        )
    return (
        f"entry {seen.number} is not the one that this process has seen, whose hash was "
        f"{seen.hash}: the ledger was rewritten, or another one was put in its place. If that is "
        "meant, keep the new one at another address"
    )


class _Behind(Exception):
    """Events have to be composed first, which takes too long to do it under the lock."""


class _Refused(Exception):
    """A plan that an account does not allow."""

    def __init__(self, account: Account) -> None:
        self.account = account


def _name(dataset: Any) -> str:
    ok = isinstance(dataset, str) and 0 < len(dataset) <= LONGEST_NAME
    if not ok or not dataset.isprintable() or dataset != dataset.strip():
        raise InputError(
            f"a data set has a name of 1 to {LONGEST_NAME} printable characters, "
            f"not {dataset!r:.80}"
        )
    return str(dataset)
