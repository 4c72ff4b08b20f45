"""What was spent, on what, under which assumptions: as immutable data.

A certificate is a claim that anyone can recompute: it lists the events, and
`Certificate.verify` composes them again by two routes that share no code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from tacit.exceptions import CertificateError, InputError, TacitError
from tacit.files import parse_json, read_text, write_bytes
from tacit.privacy import advisories
from tacit.privacy.accounting import accountants, group
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event, Failure, sensitivity
from tacit.privacy.ptr import TEST, StabilityTest
from tacit.privacy.relation import Neighbors
from tacit.privacy.unit import BEGINS, ROW, Unit
from tacit.privacy.verification import recheck

FORMAT = "tacit-certificate/1"
DEPTH = 64
LARGEST_FILE = 16 << 20  # bytes of a file
MOST_EVENTS, MOST_SAMPLED = 1000, 32  # a plan has a handful, and one of sampled steps
MOST_COMPOSED = 128  # sampled steps in all alternatives of parallel parts: up to half a minute
MOST_GROUPS = 4
# Fields that certificates of earlier versions do not have.
LATER = {"groups", "sampler_delta", "unit"}


@dataclass(frozen=True)
class Expense:
    """An event, the part of the plan that caused it, and its size in the whole.

    ``epsilon_alone`` is what the event would cost by itself at the
    certificate's δ; ``share`` is its part of the squared Gaussian budget, and
    shares sum to one. Both are for reading, not for composing.

    Attributes
    ----------
    stage : str
        The part of the plan.
    event : Event
        What it did.
    epsilon_alone, share : float
        Its size.
    """

    stage: str
    event: Event
    epsilon_alone: float = 0.0
    share: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The expense as plain JSON values.

        Returns
        -------
        dict
            What `from_dict` takes.
        """
        extra = {"epsilon_alone": self.epsilon_alone, "share": self.share}
        return {"stage": self.stage, **self.event.to_dict(), **extra}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Expense:
        """An expense from plain values.

        Parameters
        ----------
        data : mapping
            What `to_dict` gave.

        Returns
        -------
        Expense
            With its event.
        """
        return Expense(
            stage=str(data["stage"]),
            event=Event.from_dict(data),
            epsilon_alone=_number(data, "epsilon_alone"),
            share=_number(data, "share"),
        )

    @staticmethod
    def weigh(
        spent: Sequence[tuple[str, Event]], delta: float, neighbors: Neighbors
    ) -> list[Expense]:
        """Expenses with their sizes filled in.

        Parameters
        ----------
        spent : sequence of (str, Event)
            All events, by the part of the plan that caused them.
        delta : float
            Of the certificate.
        neighbors : str
            The relation.

        Returns
        -------
        list of Expense
            In the same order.
        """
        alone = [accountants.epsilon([e], delta, neighbors) for _, e in spent]
        if not all(value < math.inf for value in alone):
            raise InputError(f"delta={delta:g} is less than the chance that something fails")
        squares = [accountants.gaussian_mu(max(a, 1e-9), delta) ** 2 for a in alone]
        total = math.fsum(squares) or 1.0
        return [
            Expense(stage, event, a, s / total)
            for (stage, event), a, s in zip(spent, alone, squares, strict=True)
        ]


@dataclass(frozen=True)
class Verification:
    """The outcome of recomputing a certificate.

    Attributes
    ----------
    holds : bool
        Whether no route contradicts the claim.
    claimed : float or None
        The certificate's ε, if one could be read.
    recomputed : mapping of str to float
        ε by route: ``dp-accounting`` is an upper bound, ``recheck`` an estimate.
    problems : tuple of str
        What does not hold, in words.
    groups : mapping of str to (float or None)
        ε of somebody with so many rows, recomputed; for what the certificate states of them.
    revoked : tuple of str
        Those of the problems that are advisories: plans like this one were found to be false.
    """

    holds: bool
    claimed: float | None
    recomputed: Mapping[str, float]
    problems: tuple[str, ...] = ()
    groups: Mapping[str, float | None] = field(default_factory=dict)
    revoked: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain JSON values.

        Returns
        -------
        dict
            Attributes by name.
        """
        return {
            "holds": self.holds,
            "claimed": self.claimed,
            "recomputed": dict(self.recomputed),
            "groups": dict(self.groups),
            "revoked": list(self.revoked),
            "problems": list(self.problems),
        }


@dataclass(frozen=True)
class Certificate:
    """An (ε, δ) claim about one fitted model, with everything needed to check it.

    ``groups`` has ε of somebody with 2, 5 or 10 rows at the same δ, or None where nothing is
    stated; certificates of earlier versions have none. `Certificate.issue` fills it in.

    Attributes
    ----------
    epsilon, delta : float
        The claim.
    neighbors : str
        The relation for which it holds.
    events : tuple of Expense
        All that touched private rows.
    releasable : bool
        Whether what was made may go out.
    reasons : tuple of str
        Why not.
    assumptions, warnings : tuple of str
        What the claim rests on, and what its readers should know.
    accountant : str
        What computed ε.
    numerical_delta : float
        The part of δ that covers how numbers were drawn.
    plan : mapping
        What was run, in public words and numbers.
    versions : mapping
        Of the libraries.
    created : str
        When, in UTC.
    groups : mapping
        ε of somebody with several rows.
    sampler_delta : float or None
        The part of ``numerical_delta`` that the drawing of noise has, which grows with e^ε; the
        rest is what a grid of losses may get wrong. None if they are not told apart.
    unit : Unit
        Whose contributions the events count: those of a row, as in all certificates of earlier
        versions, or of a person (`tacit.privacy.unit`), of whom no groups are stated.

    Examples
    --------
    >>> from tacit.privacy.events import Gaussian
    >>> spent = [Expense("DPGD", Gaussian(40.0, count=100))]
    >>> certificate = Certificate(1.0, 1e-5, "replace_special", events=tuple(spent))
    >>> certificate.verify().holds
    True
    >>> Certificate.from_json(certificate.to_json()) == certificate
    True
    """

    epsilon: float
    delta: float
    neighbors: Neighbors
    events: tuple[Expense, ...]
    releasable: bool = True
    reasons: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    accountant: str = "gaussian-dp"
    numerical_delta: float = 0.0
    plan: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    groups: Mapping[str, float | None] = field(default_factory=dict)
    unit: Unit = ROW
    sampler_delta: float | None = None

    def __post_init__(self) -> None:
        check_guarantee(self)
        if not isinstance(self.releasable, bool):
            raise InputError(f"releasable must be true or false, not {self.releasable!r:.80}")
        if not 0 <= self.numerical_delta <= 1:
            raise InputError(f"numerical_delta={self.numerical_delta!r:.80} must lie in [0, 1]")
        drawn = 0.0 if self.sampler_delta is None else _number(vars(self), "sampler_delta")
        if not 0 <= drawn <= self.numerical_delta:
            raise InputError(
                f"sampler_delta={self.sampler_delta!r:.80} must lie in [0, numerical_delta]"
            )
        for name in ("accountant", "created"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} must be text")
        for name in ("reasons", "assumptions", "warnings"):
            lines = getattr(self, name)
            if not isinstance(lines, list | tuple) or not all(isinstance(x, str) for x in lines):
                raise InputError(f"{name} must be a list of texts")
        for name in ("plan", "versions", "groups"):
            if not isinstance(getattr(self, name), Mapping):
                raise InputError(f"{name} must be a mapping")
        if len(self.events) > MOST_EVENTS:
            raise InputError(f"a plan has at most {MOST_EVENTS} events, not {len(self.events)}")
        check_groups(self.groups)
        for name in ("events", "reasons", "assumptions", "warnings", "plan", "versions", "groups"):
            object.__setattr__(self, name, _freeze(getattr(self, name)))

    @classmethod
    def issue(
        cls,
        *,
        epsilon: float,
        delta: float,
        neighbors: Neighbors,
        spent: Sequence[tuple[str, Event]],
        assumptions: Sequence[str] = (),
        unit: Unit = ROW,
        **others: Any,
    ) -> Certificate:
        """A certificate of what was spent, with all that follows from it filled in.

        Parameters
        ----------
        epsilon, delta, neighbors
            The claim.
        spent : sequence of (str, Event)
            All events, by the part of the plan that caused them.
        assumptions : sequence of str
            What the claim rests on, besides how many rows a person has.
        unit : Unit
            Whose contributions the events count.
        **others
            The other fields.

        Returns
        -------
        Certificate
            Complete.

        Examples
        --------
        >>> from tacit.privacy.events import Gaussian
        >>> claim = {"epsilon": 1.0, "delta": 1e-5, "neighbors": "replace_special"}
        >>> issued = Certificate.issue(**claim, spent=[("DPGD", Gaussian(37.31, count=100))])
        >>> {rows: round(value, 1) for rows, value in issued.groups.items()}
        {'2': 2.2, '5': 6.2, '10': 14.4}
        """
        made = cls(
            epsilon=epsilon,
            delta=delta,
            neighbors=neighbors,
            events=tuple(Expense.weigh(spent, delta, neighbors)),
            accountant=accountants.accountant_for([event for _, event in spent]),
            unit=unit,
            **others,
        )
        if unit != ROW:
            return replace(made, assumptions=(unit.sentence, *assumptions))
        # Another machine's grid, in `verify`, may be less exact than this.
        stated = {str(rows): _stated(made._group(rows, allowance=2.0)) for rows in group.ROWS}
        sentences = (group.sentence(stated), *assumptions)
        return replace(made, groups=stated, assumptions=sentences)

    def _group(self, rows: int, allowance: float = 1.0) -> float:
        """ε of somebody with so many rows, from the events; infinite if nothing can be said."""
        events = [expense.event for expense in self.events]
        if self.unit != ROW or not counts_groups(events):
            return math.inf
        return group.group_epsilon(
            events,
            self.delta,
            self.neighbors,
            rows,
            numerical_delta=self.numerical_delta,
            sampler_delta=self.sampler_delta,
            test=self._test(),
            grid=accountants.FINE_GRID * max(1.0, self.epsilon),
            allowance=allowance,
        )

    def _test(self) -> StabilityTest | None:
        """The private test of the plan; if it is not said how sure it is, no surer than δ."""
        noise = [e.event.noise_multiplier for e in self.events if e.stage == TEST]
        if not noise:
            return None
        test = self.plan.get("test")
        chance = test.get("delta") if isinstance(test, Mapping) else None
        usual = isinstance(chance, float) and 0 < chance < self.delta
        deviation = min(noise) / sensitivity(self.neighbors)  # of a margin that changes by one
        return StabilityTest(deviation, chance if usual else self.delta)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain JSON values.

        Returns
        -------
        dict
            What `from_dict` takes.
        """
        data: dict[str, Any] = {"format": FORMAT}
        for item in fields(self):
            data[item.name] = _thaw(getattr(self, item.name))
        data["unit"] = None if self.unit == ROW else self.unit.to_dict()
        for name in LATER:
            if data[name] is None or data[name] == {}:  # as it was issued, digest and all
                del data[name]
        data["events"] = [expense.to_dict() for expense in self.events]
        data["digest"] = digest_of(data)
        return data

    def to_json(self) -> str:
        """The certificate as JSON.

        Returns
        -------
        str
            With sorted keys.
        """
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @property
    def digest(self) -> str:
        """Fingerprint of the content: shows damage and careless edits, not forgery."""
        return str(self.to_dict()["digest"])

    @classmethod
    def from_dict(cls, data: Any) -> Certificate:
        """A certificate from plain values, of this or an earlier version.

        Parameters
        ----------
        data : mapping
            What `to_dict` gave.

        Returns
        -------
        Certificate
            As claimed: `verify` checks it.
        """
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise CertificateError(f"this is not a certificate of format {FORMAT}")
        known = {item.name for item in fields(cls)}
        missing = known - LATER - data.keys()
        if missing or "digest" not in data:
            lost = ", ".join(sorted(missing | ({"digest"} - data.keys())))
            raise CertificateError(f"the certificate lacks {lost}")
        try:
            digest = digest_of(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise CertificateError(f"the certificate cannot be read: {error}") from None
        if digest != data["digest"]:
            raise CertificateError("the certificate was changed after it was issued: wrong digest")
        try:
            values = {name: data[name] for name in known & data.keys()}
            values["events"] = tuple(Expense.from_dict(event) for event in data["events"])
            values["unit"] = Unit.from_dict(data.get("unit"))
            return cls(**values)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise CertificateError(f"the certificate cannot be read: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """A certificate from JSON, of this or an earlier version.

        Parameters
        ----------
        text : str
            What `to_json` gave.

        Returns
        -------
        Certificate
            As claimed: `verify` checks it.
        """
        try:
            data = parse_json(text)
        except ValueError as error:
            raise CertificateError(f"the certificate is not valid JSON: {error}") from None
        return cls.from_dict(data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to a file, whole or not at all.

        Parameters
        ----------
        path : path
            The file.
        """
        write_bytes(path, self.to_json().encode() + b"\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read a certificate from a file.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        Certificate
            As claimed: `verify` checks it.
        """
        return cls.from_json(read_text(path, limit=LARGEST_FILE))

    def verify(self) -> Verification:
        """Recompute ε from the events, by two routes that share no code.

        dp-accounting's pessimistic loss distributions on the fine grid and
        `tacit.privacy.verification.recheck`, by its own numerics, each give an upper bound:
        one of them must confirm the claim. The lower bound of the second must
        not contradict it. What is stated of several rows is recomputed as well.
        A certificate that falls under an advisory does not hold, whatever its
        events cost (`tacit.privacy.advisories`). Nor does one whose words speak
        of another unit than its events count.

        Returns
        -------
        Verification
            Whether it holds, and what was recomputed.
        """
        delta = self.delta - self.numerical_delta
        events = [expense.event for expense in self.events]
        problems = []
        sampled = [leaf for event in events for leaf in event.leaves if leaf.sampled]
        if self.unit.contradicted_by(self.assumptions) or (self.unit != ROW and self.groups):
            problems.append(
                f"the events count {self.unit.kind}s of at most {self.unit.rows} rows, and what is "
                "said of the rows of a person is something else"
            )
        if not events:
            problems.append("no events are listed, so nothing can be recomputed")
        if len(sampled) > MOST_SAMPLED:
            problems.append(f"more than {MOST_SAMPLED} kinds of sampled steps are not recomputed")
        if delta <= 0:
            problems.append("the numerical error alone exceeds delta")
        recomputed: dict[str, float] = {}
        several: dict[str, float | None] = {}
        if not problems:
            steps = [(e.kind, dict(e.to_dict()["parameters"])) for e in events]
            try:
                cases = accountants.alternatives(events, self.neighbors)
                if sum(e.sampled for plain, _ in cases for e in plain) > MOST_COMPOSED:
                    raise InputError("there are too many combinations of parallel parts")
                with np.errstate(all="ignore"):
                    second = recheck.epsilon(steps, delta, self.neighbors)
                    recomputed["recheck"] = second.epsilon
                    far = second.lower > 10 * self.epsilon + 10  # then no grid would fit
                    if not far and all(e.count <= accountants.MOST_STEPS for e in sampled):
                        # In proportion to the answer, as in `tacit.privacy.accounting.calibrate`.
                        grid = accountants.FINE_GRID * max(1.0, min(self.epsilon, second.upper))
                        pld = accountants.loss_distribution(events, self.neighbors, grid)
                        recomputed["dp-accounting"] = float(pld.get_epsilon(delta))
                uppers = (second.upper, recomputed.get("dp-accounting", math.inf))
                # Written so that a route without an answer, NaN, confirms nothing.
                if not any(upper <= self.epsilon for upper in uppers):
                    problems.append(_exceeds(*list(recomputed.items())[-1], self.epsilon))
                if not second.lower <= self.epsilon:
                    problems.append(_exceeds("recheck", recomputed["recheck"], self.epsilon))
                if not problems and self.groups:
                    with np.errstate(all="ignore"):
                        several, wrong = self._verify_groups(steps)
                    problems += wrong
            except (TacitError, ArithmeticError, ValueError, TypeError, MemoryError) as error:
                problems.append(f"the events cannot be composed: {error}")
        revoked = tuple(str(item) for item in advisories.matching(self.plan, self.versions))
        problems = list(dict.fromkeys((*problems, *revoked)))
        return Verification(
            not problems, self.epsilon, recomputed, tuple(problems), several, revoked
        )

    def _verify_groups(self, steps: recheck.Steps) -> tuple[dict[str, float | None], list[str]]:
        """What several rows cost, and which statements about them a route does not confirm."""
        found: dict[str, float | None] = {}
        problems = []
        for rows, claim in self.groups.items():
            upper = self._group(int(rows))
            found[rows] = _stated(upper)
            if claim is None:
                continue
            several = recheck.several(steps, int(rows))
            # A path from table to table, by which others are counted, has no second route, and
            # losses of many rows drawn at once may lie beyond what the second can hold.
            least = 0.0
            if several is not None:
                with suppress(InputError):
                    least = recheck.epsilon(several, self.delta, self.neighbors).lower
            if not (upper <= claim and least <= claim):
                problems.append(
                    _exceeds(
                        f"for somebody with {rows} rows, recomputing", max(upper, least), claim
                    )
                )
        return found, problems

    def then(self, later: Certificate) -> Certificate:
        """What this and a later certificate about the same people claim together.

        Their events are composed jointly, at the sum of both δ, so ε is at most about the sum of
        both and as a rule far less. The later plan may depend on what the earlier one released.
        Certificates with a private test are refused: only a ledger adds those up.

        Parameters
        ----------
        later : Certificate
            About the same rows.

        Returns
        -------
        Certificate
            Of everything.
        """
        if self.neighbors != later.neighbors:
            raise InputError(
                f"certificates for {self.neighbors} and for {later.neighbors} do not add up"
            )
        if self.unit != later.unit:
            raise InputError(
                f"certificates for different units do not add up: {self.unit}, {later.unit}"
            )
        if any(expense.stage == TEST for expense in (*self.events, *later.events)):
            # Within a plan δ covers δ_t by a maximum (`tacit.privacy.ptr`). Beside other plans
            # it is a sum (`tacit.ledger.spending`), and events do not tell δ_t.
            raise InputError(
                "certificates with a private test do not add up: that a test passes wrongly is "
                "covered by its own plan's delta alone. Keep an account of all plans in a ledger, "
                "which counts it: ledger=Ledger(...)"
            )
        delta = self.delta + later.delta
        numerical = self.numerical_delta + later.numerical_delta
        spent = [(e.stage, e.event) for e in (*self.events, *later.events)]
        events = [event for _, event in spent]
        if not accountants.closed_form(events):
            # What grids may get wrong counts as often as searches beside them expect trials.
            many = accountants.searched_trials(events, self.neighbors)
            numerical = min(numerical + accountants.PLD_SLACK * (many - 1), delta)
        drawn = [self.sampler_delta, later.sampler_delta]
        known = [part for part in drawn if part is not None]
        epsilon = accountants.epsilon(events, delta - numerical, self.neighbors)
        cautions = [*self.warnings, *later.warnings]
        if not all(event.gaussian for event in events):
            cautions.append(
                "the later budget must not have been chosen by the earlier result: for sampled "
                "steps and searches, joint composition is proved for budgets that were fixed before"
            )
        assumptions = dict.fromkeys((*self.assumptions, *later.assumptions))
        return Certificate.issue(
            epsilon=epsilon * (1 + 1e-6),  # so that another accountant's rounding confirms it
            delta=delta,
            neighbors=self.neighbors,
            spent=spent,
            releasable=self.releasable and later.releasable,
            reasons=tuple(dict.fromkeys((*self.reasons, *later.reasons))),
            assumptions=[text for text in assumptions if not text.startswith(BEGINS)],
            unit=self.unit,
            warnings=tuple(dict.fromkeys(cautions)),
            numerical_delta=numerical,
            sampler_delta=sum(known) if len(known) == len(drawn) else None,
            plan={**later.plan, "continues": self.digest},
            versions=later.versions,
            created=later.created,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Read-only mappings do not pickle; JSON does, and is checked on the way in.
        return (Certificate.from_json, (self.to_json(),))


def counts_groups(events: Sequence[Event]) -> bool:
    """Whether what several rows cost is worked out for these events.

    It is not where something may fail of which no more is known: k rows may each fail, and along a
    path of k steps the chance of one grows by Σ e^(jε). Nor for parallel parts that are not
    Gaussian, over which several rows of one person may be spread.
    """
    known = [event.gaussian or (isinstance(event, Failure) and event.keys > 0) for event in events]
    kinds = {event.kind for event, is_known in zip(events, known, strict=True) if not is_known}
    return not kinds & {"failure", "parallel"}


def check_guarantee(claim: Any) -> None:
    """Refuse a claim without a unit, a budget or a relation; its ε and δ become plain floats."""
    if not isinstance(claim.unit, Unit):
        raise InputError(f"unit must be a Unit of privacy, not {claim.unit!r:.80}")
    budget = Budget(claim.epsilon, claim.delta)
    object.__setattr__(claim, "epsilon", budget.epsilon)
    object.__setattr__(claim, "delta", budget.delta)
    sensitivity(claim.neighbors)


def _number(data: Mapping[str, Any], name: str) -> float:
    value = data.get(name, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, not {value!r:.80}")
    return float(value)


def _stated(value: float) -> float | None:
    return value if value < math.inf else None


def check_groups(given: Mapping[str, Any]) -> None:
    """Refuse anything but numbers of rows, as text, with ε of somebody who has so many, or None."""
    if not isinstance(given, Mapping):
        raise InputError(f"groups must be a mapping, not {given!r:.80}")
    if len(given) > MOST_GROUPS:
        raise InputError(f"groups lists at most {MOST_GROUPS} numbers of rows, not {len(given)}")
    for rows, value in given.items():
        if not (isinstance(rows, str) and rows.isdecimal() and rows.isascii()) or not (
            len(rows) <= 4 and 2 <= int(rows) <= group.MOST_ROWS and str(int(rows)) == rows
        ):
            raise InputError(
                f"groups must be by numbers of rows from 2 to {group.MOST_ROWS}, not {rows!r:.80}"
            )
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (plain and 0 <= value < math.inf):
            raise InputError(f"groups must hold numbers from 0, or null, not {value!r:.80}")


def _exceeds(route: str, found: float, claim: float) -> str:
    return f"{route} finds epsilon = {found:.6g}, above the claimed {claim:.6g}"


def digest_of(data: Mapping[str, Any]) -> str:
    content = {key: value for key, value in data.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _freeze(value: Any, depth: int = 0) -> Any:
    if depth > DEPTH:
        raise InputError(f"a certificate nests at most {DEPTH} levels deep")
    if isinstance(value, str | float | int):  # mostly, and told in less time
        return value
    if isinstance(value, Mapping):
        frozen = {str(key): _freeze(item, depth + 1) for key, item in value.items()}
        return MappingProxyType(frozen)
    if isinstance(value, list | tuple):
        return tuple(_freeze(item, depth + 1) for item in value)
    return value


def _thaw(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thaw(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_thaw(item) for item in value]
    return value
