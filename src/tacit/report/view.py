"""What a certificate says, in words: checked, and every string cleaned.

The terminal version and the page are two ways of laying out the same view.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from tacit.exceptions import CertificateError, InputError
from tacit.privacy import advisories
from tacit.privacy.accounting.accountants import total_mu
from tacit.privacy.accounting.repeated import weight
from tacit.privacy.advisories import FORMER_KINDS
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import FORMAT, check_groups
from tacit.privacy.events import Event, Failure, Parallel, Repeated, sensitivity
from tacit.privacy.relation import Neighbors
from tacit.privacy.unit import ROW, Unit
from tacit.report.phrases import (
    ACCOUNTANTS,
    ARITHMETIC,
    CORRECTED,
    HOW_IT_PAYS,
    LIMITS,
    PEOPLE,
    ROWS,
    RelationPhrases,
    UnitPhrases,
)
from tacit.report.results import Bar, Scores, read_results
from tacit.report.show import at_most, clean, date, exact, factor, number, one_in, percent, setting

PRIVATE = "private"  # a bound that a schema does not know


@dataclass(frozen=True)
class Spent:
    """One event, and what it took of the budget."""

    event: Event
    position: int
    stage: str
    kind: str
    noise: str
    count: str
    sampling: str
    epsilon_alone: str
    share: float
    percent: str
    parts: list[str]  # of a split, what each part adds up from


@dataclass(frozen=True)
class Step:
    """One stage of the pipeline, or the trainer."""

    name: str
    kind: str
    pays: str
    settings: list[tuple[str, str]]
    note: str


@dataclass(frozen=True)
class View:
    """All that a report says."""

    epsilon: float
    delta: float
    numerical_delta: float
    neighbors: Neighbors
    relation: RelationPhrases
    unit: UnitPhrases
    releasable: bool
    revoked: list[str]
    reasons: list[str]
    warnings: list[str]
    assumptions: list[str]
    subject: str
    promise: str
    odds: str
    two_guesses: str
    strength: str
    game: str
    guesses: list[Bar]
    groups: list[tuple[str, str, str]]  # rows of one person, ε, e^ε; empty if not stated
    limits: list[tuple[str, str]]  # heading and body; rows of one person belong to the first
    spent: list[Spent]
    steps: list[Step]
    small_print: list[tuple[str, str]]
    scores: Scores


def read(certificate: Mapping[str, Any], results: Mapping[str, Any] | None = None) -> View:
    """A certificate and its results in words; a key that the certificate lacks is named."""
    scores = read_results(results or {})
    advisories.advisories(advisories.PATH)  # if they are damaged, the certificate is not
    try:
        return _read(certificate, scores)
    except KeyError as error:
        raise CertificateError(f"the certificate has no {error}") from error
    except (TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        raise CertificateError(f"the certificate cannot be read: {error!s:.300}") from error


def _read(certificate: Mapping[str, Any], scores: Scores) -> View:
    if certificate["format"] != FORMAT:
        raise InputError(f"format is {certificate['format']!r}; this version reads {FORMAT!r}")
    budget = Budget(certificate["epsilon"], certificate["delta"])
    epsilon, delta, numerical = budget.epsilon, budget.delta, float(certificate["numerical_delta"])
    if not 0 <= numerical < delta:
        raise InputError(f"numerical_delta must lie below delta, not {numerical!r}")
    neighbors, accountant = certificate["neighbors"], clean(certificate["accountant"])
    sensitivity(neighbors)
    unit = Unit.from_dict(certificate.get("unit"))
    phrases = ROWS if unit == ROW else PEOPLE
    relation = phrases.relations[neighbors]
    plan, arithmetic = certificate["plan"], clean(certificate["plan"]["arithmetic"])
    versions = [f"{clean(name)} {clean(which)}" for name, which in certificate["versions"].items()]
    reasons = [clean(reason) for reason in certificate["reasons"]]
    spent = _read_events(certificate["events"])
    times, extra = factor(epsilon), one_in(delta)
    groups = _groups(epsilon, certificate.get("groups", {}))
    released = "figures" if plan.get("kind") == "evaluation" else "model"
    game, guesses = _game(budget, numerical, neighbors, spent, unit=phrases, released=released)
    return View(
        epsilon=epsilon,
        delta=delta,
        numerical_delta=numerical,
        neighbors=neighbors,
        relation=relation,
        unit=phrases,
        releasable=certificate["releasable"] is True and not reasons,
        revoked=[str(item) for item in advisories.matching(plan, certificate["versions"])],
        reasons=reasons or ["No reason is recorded."],
        warnings=[clean(item) for item in certificate["warnings"]],
        assumptions=[clean(CORRECTED.get(item, item)) for item in certificate["assumptions"]],
        subject=_subject(plan, neighbors),
        promise=(
            f"Take {phrases.anyone}, and any conclusion that somebody might draw "
            f"from the released {released}. The chance that they draw it is at most "
            f"{times} times what it would have been {relation.otherwise}, plus at most {extra}. "
            "The same holds the other way round."
        ),
        # (ε, δ)-close outputs are within δ/(1+e^ε) of outputs whose odds differ by at most e^ε
        # (Dwork & Roth 2014, Lemma 3.17): that is the sense of "except with a probability".
        odds=(
            f"In terms of odds: whatever somebody believed beforehand, seeing the {released} moves "
            f"their odds on {relation.question} by a factor of at most {times} in either "
            f"direction, except with a probability of at most about {extra}."
        ),
        two_guesses=(
            f"This includes two guesses at what the {phrases.one} says."
            if neighbors == "replace_one"
            else f"Comparing two guesses at what {phrases.guess} "
            f"and the other in, so there the factor is at most e^(2ε) = {factor(2 * epsilon)}."
        ),
        strength=(
            f"It holds against somebody who knows {phrases.others} in the table, and nothing "
            f"done with the {released} afterwards can weaken it."
        ),
        game=game,
        guesses=guesses,
        groups=groups,
        limits=[_first_limit(phrases, groups, delta), *LIMITS.items()],
        spent=spent,
        steps=_read_steps(plan, spent),
        small_print=[
            ("Accountant", f"{accountant}: {ACCOUNTANTS.get(accountant, 'as recorded')}"),
            ("Arithmetic", ARITHMETIC.get(arithmetic, arithmetic)),
            ("Part of δ kept back for numerical error", number(numerical, digits=2)),
            ("Neighbouring relation", f"{neighbors}: {relation.short}"),
            *([] if unit == ROW else [("Unit of privacy", clean(unit.sentence))]),
            ("Versions", ", ".join(versions)),
            ("Created", date(clean(certificate["created"]))),
            ("Digest (shows damage, not forgery)", clean(certificate["digest"])),
            ("Format", FORMAT),
        ],
        scores=scores,
    )


def _subject(plan: Mapping[str, Any], neighbors: Neighbors) -> str:
    """What was trained on what, in one sentence."""
    what = "people" if "people" in plan else "rows"
    rows = plan[what]
    if rows is None:
        table = "a private table"
    elif neighbors == "add_or_remove_one":
        table = f"a table whose size is private (taken as {setting(rows)} {what})"
    else:
        table = f"{setting(rows)} rows" if what == "rows" else f"the rows of {setting(rows)} people"
    if plan.get("kind") == "evaluation":
        return f"A model was tested on {table}, through noise."
    classes = f" and {setting(plan['classes'])} classes" if plan.get("classes") else ""
    return (
        f"A linear model with {clean(plan['loss'])} loss was trained on {table} "
        f"with {setting(plan['features'])} features{classes}."
    )


def _game(
    budget: Budget,
    numerical_delta: float,
    neighbors: Neighbors,
    spent: Sequence[Spent],
    *,
    unit: UnitPhrases,
    released: str,
) -> tuple[str, list[Bar]]:
    """How often an attacker who starts at evens can be right.

    Adding the two bounds on the error rates, FP + e^ε·FN ≥ 1−δ and
    e^ε·FP + FN ≥ 1−δ (Kairouz, Oh & Viswanath 2015, Thm 2.1), gives
    FP + FN ≥ 2(1−δ)/(1+e^ε), so the guess is right with probability at most
    1 − (1−δ)/(1+e^ε) = (e^ε+δ)/(1+e^ε). For Gaussian noise of total μ the errors
    add up to 2Φ(−μ/2) (Dong, Roth & Su 2022, eq. 6), hence Φ(μ/2).
    """
    inverse = math.exp(-budget.epsilon)
    limit = 1 - (1 - budget.delta) * inverse / (1 + inverse)
    bars = [Bar("Tossing a coin", 0.5, "50%")]
    text = (
        f"Suppose that an attacker knows {unit.others}, thinks it an even chance, and tries to "
        f"tell {unit.relations[neighbors].question}. Guessing blindly is right half of the time. "
        f"With the {released} in hand, the guess is right at most {at_most(limit)} of the time: "
        "(e^ε + δ) / (1 + e^ε)."
    )
    if limit > 0.99:
        text += " At this size ε on its own rules out very little."
    if spent and all(item.event.gaussian for item in spent):
        mu = total_mu([item.event for item in spent], neighbors)
        tight = NormalDist().cdf(mu / 2) + numerical_delta
        if tight < limit:
            text += (
                " That is what ε and δ alone allow. All noise in this plan is Gaussian, for "
                f"which the limit is lower: {at_most(tight)}."
            )
            bars.append(Bar("With this plan’s noise, at most", tight, at_most(tight)))
    bars.append(Bar("By ε and δ alone, at most", limit, at_most(limit)))
    return text, bars


def _groups(epsilon: float, stated: Mapping[str, float | None]) -> list[tuple[str, str, str]]:
    """What the certificate states of somebody with one row or several, rounded up."""
    if not stated:
        return []
    check_groups(stated)
    rows = [("1", exact(epsilon), factor(epsilon))]
    for many, value in stated.items():
        known = value is not None
        rows.append(
            (
                many,
                number(float(value), up=True) if known else "no limit",  # type: ignore[arg-type]
                factor(float(value)) if known else "no limit",  # type: ignore[arg-type]
            )
        )
    return rows


def _first_limit(
    unit: UnitPhrases, groups: Sequence[tuple[str, str, str]], delta: float
) -> tuple[str, str]:
    """Who is protected less; of rows, what `_groups` says, in a sentence."""
    heading, body = unit.limit
    if unit is PEOPLE:
        return heading, body
    if not groups:
        return heading, f"{body} How much less, this certificate does not state."
    listed = ", ".join(f"{rows} rows ε = {value}" for rows, value, _ in groups[1:])
    same = f"At the same δ = {exact(delta)}, {listed}".replace("ε = no limit", "no limit at all")
    return heading, f"{body} {same}, by this plan’s own privacy curve."


def _read_events(events: Sequence[Mapping[str, Any]]) -> list[Spent]:
    spent = []
    for position, item in enumerate(events, start=1):
        event, parameters, share = Event.from_dict(item), item["parameters"], float(item["share"])
        if not 0 <= share <= 1:
            raise InputError(f"a share must lie between 0 and 1, not {share!r}")
        sampled = event.kind == "poisson-gaussian"
        spent.append(
            Spent(
                event=event,
                position=position,
                stage=clean(item["stage"]),
                kind=event.kind,
                noise="none" if isinstance(event, Failure) else number(event.noise_multiplier),
                count=_times(event, parameters["count"]),
                sampling=number(parameters["sampling_probability"]) if sampled else "all",
                epsilon_alone=number(item["epsilon_alone"], digits=3),
                share=share,
                percent=percent(share),
                parts=_parts(event),
            )
        )
    if spent and abs(math.fsum(item.share for item in spent) - 1) > 0.01:
        raise InputError("the shares of the events do not add up to 1")
    return spent


def _parts(event: Event) -> list[str]:
    """The noise in every part of a split, and how often it is added."""
    if not isinstance(event, Parallel):
        return []
    return [
        ", ".join(
            f"{number(each.noise_multiplier)} ({_often(each)})"
            for each in part
            if not isinstance(each, Failure)
        )
        for part in event.parts
    ]


def _often(event: Event) -> str:
    return "once" if event.count == 1 else f"{_times(event, event.count)} times"


def _times(event: Event, count: int) -> str:
    """How often a step is taken; of trials, how many are expected."""
    if not isinstance(event, Repeated):
        return number(count)
    return f"about {number(count * weight(event), digits=3)}"


def _read_steps(plan: Mapping[str, Any], spent: Sequence[Spent]) -> list[Step]:
    steps: list[Step] = []
    if plan.get("kind") == "evaluation":
        return steps
    for item in [*plan["stages"], {**plan["trainer"], "kind": "private"}]:
        name, kind = clean(item["name"]), FORMER_KINDS.get(item["kind"], item["kind"])
        if kind not in HOW_IT_PAYS:
            raise InputError(f"unknown kind of stage {kind!r}; known are {', '.join(HOW_IT_PAYS)}")
        pays = HOW_IT_PAYS[kind]
        shares = [entry.share for entry in spent if entry.stage == name]
        if "search" in plan and item["name"] == plan["trainer"]["name"]:
            shares += [entry.share for entry in spent if entry.kind == "repeated"]
        if kind == "private" and shares:
            pays += f" It took {percent(math.fsum(shares))} of the budget."
        if kind == "noiseless" and "drift" in item:
            pays += _moved(item["drift"])
        settings = [(clean(key), _setting(x)) for key, x in item.get("parameters", {}).items()]
        steps.append(Step(name, kind, pays, settings, clean(item.get("note") or "")))
    return steps


def _setting(value: object) -> str:
    """A setting; of a schema, what it says of every column."""
    if not (isinstance(value, Mapping) and isinstance(value.get("columns"), Mapping)):
        return setting(value)
    columns = value["columns"].items()
    return "; ".join(f"{clean(name)}: {_column(column)}" for name, column in columns) or "none"


def _column(facts: Any) -> str:
    """What is known of a column: its kind, with its bounds or its categories."""
    if not isinstance(facts, Mapping):
        return setting(facts)
    kind, ends = clean(facts.get("kind")), (facts.get("low"), facts.get("high"))
    if "categories" in facts:
        return setting(facts["categories"])
    if ends in ((None, None), (PRIVATE, PRIVATE)):
        return kind
    return " to ".join(map(setting, ends))


def _moved(drift: Mapping[str, Any]) -> str:
    """How far a noiseless stage lets the other rows move, in words."""
    total, each, bound = (number(float(drift[key])) for key in ("total", "each", "bound"))
    return (
        f" Swapping one row moves all others by at most {total} together from here on, none by "
        f"more than {each}; rows have norm {bound} at most."
    )
