"""What a certificate says, in words and numbers, and how a terminal shows it.

`read` turns the two mappings into a `Story`: checked, worded, every string
cleaned. The terminal version below and the page in `tacit.report.html` are two
ways of laying out the same story. Whatever is stated as "at most" is rounded up.
"""

from __future__ import annotations

import io
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from numbers import Integral, Real
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from tacit.exceptions import CertificateError, InputError
from tacit.privacy.accountants import total_mu
from tacit.privacy.certificate import FORMAT
from tacit.privacy.events import EVENTS, Event

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["plain_text", "render_text"]


@dataclass(frozen=True)
class Relation:
    """One neighbouring relation, in words that fit the sentences of a report."""

    short: str
    otherwise: str  # "... what it would have been ..."
    question: str  # "... tries to tell ..."
    two_guesses: bool  # telling two contents of a row apart takes two steps, not one


RELATIONS = {
    "replace_special": Relation(
        "one row blanked out",
        "had that row been blanked out",
        "whether that row was used or blanked out",
        True,
    ),
    "add_or_remove_one": Relation(
        "one row added or removed",
        "had that row not been in the table",
        "whether that row was in the table or not",
        True,
    ),
    "replace_one": Relation(
        "one row swapped for any other",
        "had that row been swapped for any other",
        "which of two possible rows was in the table",
        False,
    ),
}

HOW_IT_PAYS = {
    "free": (
        "Works row by row with public settings. It learns nothing from the table and costs nothing."
    ),
    "public": "Learnt from separate public data. It costs nothing.",
    "private": "Learnt from the private rows through noise.",
    "plain": (
        "Learnt from the private rows exactly and never published. It makes every later step "
        "more sensitive, and those steps add more noise to make up for it."
    ),
}

ACCOUNTANTS = {
    "gaussian-dp": "exact Gaussian differential privacy",
    "pld": "privacy loss distributions, rounded to the safe side",
}

ARITHMETIC = {
    "exact": "exact: sums are computed without rounding and the noise is exact on the same grid",
    "fast": "fast: floating point, assumed to behave like ideal arithmetic",
}

LIMITS = {
    "It is about rows, not people.": (
        "Somebody with several rows is protected less. With k rows, ε becomes k·ε "
        "and δ grows as well."
    ),
    "It does not hide facts about people in general.": (
        "The model is there to find such facts, and they may tell something about you "
        "whether or not your row was in the table."
    ),
    "It covers this plan and nothing else.": (
        "Looking at the rows, choosing settings by trying them out on the rows, test scores, "
        "and other models fitted to the same rows are not covered. The costs of several "
        "certificates for the same rows add up."
    ),
    "It rests on AES.": (
        "The noise is drawn with this cipher, so the promise holds against anybody who cannot "
        "break it. It covers what is released; it does not guard the computer on which the "
        "model was trained."
    ),
}

NOT_COVERED = (
    "The certificate does not cover these figures. That is no matter if the test rows are "
    "public. If they are private, publishing the figures is a release of its own about the "
    "people in them."
)
NOT_COVERED_BASELINE = (
    "The figure without privacy also comes from a second model, trained on the private rows "
    "with no protection at all: it is for comparison, not for publication."
)


# --- numbers and strings -----------------------------------------------------------------------

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(value: object) -> str:
    """``value`` as one line that can neither steer a terminal nor reorder text."""
    pieces = []
    for char in str(value):
        if char.isspace():
            pieces.append(" ")
        elif char in _BIDI or unicodedata.category(char) in ("Cc", "Cs"):
            pieces.append(f"\\u{ord(char):04x}")
        else:
            pieces.append(char)
    return "".join(pieces)


def _power(mantissa: str, exponent: int) -> str:
    power = "10" + str(exponent).translate(_SUPERSCRIPT)
    return power if mantissa == "1" else f"{mantissa} × {power}"


def _trim(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def number(value: float, *, digits: int = 4) -> str:
    """A number to ``digits`` significant digits, whole numbers in full.

    Examples
    --------
    >>> number(32561), number(64.8123), number(1e-5), number(-0.25)
    ('32,561', '64.81', '10⁻⁵', '−0.25')
    """
    if isinstance(value, Integral):
        return f"{int(value):,}".replace("-", "−")
    value = float(value)
    if math.isnan(value):
        return "not defined"
    if value < 0:
        return "−" + number(-value, digits=digits)
    if math.isinf(value):
        return "∞"
    if value == 0:
        return "0"
    if 1e-3 <= value < 1e6:
        if value == int(value):
            return f"{int(value):,}"
        places = max(digits - 1 - math.floor(math.log10(value)), 0)
        return _trim(f"{value:,.{places}f}")
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return _power(_trim(mantissa), int(exponent))


def exact(value: float) -> str:
    """Every digit of a claim: it is never rounded.

    Examples
    --------
    >>> exact(1.0), exact(1e-5), exact(3.0712e-5)
    ('1', '10⁻⁵', '3.0712 × 10⁻⁵')
    """
    if 1e-3 <= value < 1e15:
        return _trim(f"{Decimal(repr(float(value))):,f}")
    _, figures, tail = Decimal(repr(float(value))).normalize().as_tuple()
    mantissa = "".join(map(str, figures))
    mantissa = mantissa[0] + ("." + mantissa[1:] if mantissa[1:] else "")
    return _power(mantissa, int(tail) + len(figures) - 1)


def factor(epsilon: float) -> str:
    """e^ε, rounded up.

    Examples
    --------
    >>> factor(1.0), factor(0.01), factor(50.0), factor(2000.0)
    ('2.72', '1.011', '5.19 × 10²¹', '3.89 × 10⁸⁶⁸')
    """
    size = epsilon / math.log(10)
    if size >= 6:
        exponent = math.floor(size)
        mantissa = math.ceil(100 * 10 ** (size - exponent))
        if mantissa >= 1000:
            mantissa, exponent = 100, exponent + 1
        return _power(_trim(f"{mantissa / 100:.2f}"), exponent)
    excess = math.expm1(epsilon)
    places = max(2 - math.floor(size), 0)
    if 0 < excess < 0.1:
        places = 1 - math.floor(math.log10(excess))
    shown = math.ceil((1 + excess) * 10**places) / 10**places
    return _trim(f"{shown:,.{places}f}")


def one_in(delta: float) -> str:
    """A probability in words, rounded up.

    Examples
    --------
    >>> one_in(1e-5), one_in(3e-5), one_in(1e-12), one_in(0.2)
    ('1 in 100,000', '1 in 33,333', '1 in 10¹²', '20%')
    """
    if delta > 0.01:
        return at_most(delta)
    times = int(1 / Decimal(repr(float(delta))))
    if times < 10**9:
        return f"1 in {times:,}"
    exponent = len(str(times)) - 1
    return f"1 in {_power(_trim(f'{times // 10 ** (exponent - 1) / 10:.1f}'), exponent)}"


def _rounded_up(value: float) -> str:
    """A small probability to two significant digits, rounded up."""
    scale = 10.0 ** (1 - math.floor(math.log10(value)))
    return number(math.ceil(value * scale) / scale, digits=2)


def at_most(probability: float) -> str:
    """A probability as a percentage of two decimals, rounded up."""
    return _trim(f"{min(math.ceil(probability * 1e4) / 100, 100):.2f}") + "%"


def percent(part: float) -> str:
    """A part of one as a percentage of one decimal."""
    if 0 < part < 0.0005:
        return "<0.1%"
    if 0.9995 < part < 1:
        return ">99.9%"
    return _trim(f"{100 * part:.1f}") + "%"


def setting(value: object, *, most: int = 12) -> str:
    """A parameter as a person would write it; long lists are cut short."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real):
        return number(float(value) if not isinstance(value, Integral) else int(value))
    if isinstance(value, Mapping):
        items = [f"{clean(key)}: {setting(item)}" for key, item in list(value.items())[:most]]
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        items = [setting(item) for item in value[:most]]
    else:
        return clean(value)
    if len(value) > most:
        items.append(f"… ({len(value):,} in all)")
    return ", ".join(items) if items else "none"


def _when(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    offset = moment.utcoffset()
    zone = "" if offset is None else " UTC" if not offset else f" UTC{moment:%z}"
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


# --- reading -----------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Step:
    """One stage of the pipeline, or the trainer."""

    name: str
    kind: str
    pays: str
    settings: list[tuple[str, str]]
    note: str


@dataclass(frozen=True)
class Bar:
    """One row of a picture: a label, and a part of one."""

    label: str
    value: float
    text: str


@dataclass(frozen=True)
class Scores:
    """Results, as far as they were given."""

    bars: list[Bar]
    figures: list[tuple[str, str]]
    caveats: list[str]
    class_names: list[str]
    confusion: list[list[str]]
    features: list[tuple[str, str, float]]
    files: list[str]


@dataclass(frozen=True)
class Story:
    """All that a report says."""

    epsilon: float
    delta: float
    neighbors: str
    relation: Relation
    releasable: bool
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
    groups: list[tuple[str, str, str, str]]
    spent: list[Spent]
    steps: list[Step]
    numerical_delta: float
    small_print: list[tuple[str, str]]
    created: str
    scores: Scores


def _get(mapping: Mapping[str, Any], key: str, where: str = "") -> Any:
    try:
        return mapping[key]
    except KeyError:
        raise CertificateError(f"the certificate has no {where + key!r}") from None


def _real(mapping: Mapping[str, Any], key: str, where: str = "") -> float:
    value = _get(mapping, key, where)
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        raise CertificateError(f"{where + key!r} must be a number, not {value!r}")
    return float(value)


def _mapping(mapping: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
    value = _get(mapping, key, where)
    if not isinstance(value, Mapping):
        raise CertificateError(f"{where + key!r} must be a mapping, not {value!r}")
    return value


def _list(mapping: Mapping[str, Any], key: str, where: str = "") -> Sequence[Any]:
    value = _get(mapping, key, where)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise CertificateError(f"{where + key!r} must be a list, not {value!r}")
    return value


def _chosen(mapping: Mapping[str, Any], key: str, allowed: Mapping[str, Any], where: str) -> str:
    value = _get(mapping, key, where)
    if not isinstance(value, str) or value not in allowed:
        raise CertificateError(f"{where + key!r} is {value!r}; known are {', '.join(allowed)}")
    return value


def _strings(mapping: Mapping[str, Any], key: str) -> list[str]:
    return [clean(item) for item in _list(mapping, key)]


def read(certificate: Mapping[str, Any], results: Mapping[str, Any] | None = None) -> Story:
    """Check a certificate and its results, and put them into words.

    Raises
    ------
    CertificateError
        A key is missing, or its value is not what the format allows; the
        message names the key.
    InputError
        A result that was given cannot be shown.
    """
    if not isinstance(certificate, Mapping):
        raise CertificateError(f"a certificate is a mapping, not {type(certificate).__name__}")
    given = _get(certificate, "format")
    if given != FORMAT:
        raise CertificateError(f"'format' is {given!r}; this version reads {FORMAT!r}")
    epsilon, delta = _real(certificate, "epsilon"), _real(certificate, "delta")
    numerical_delta = _real(certificate, "numerical_delta")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise CertificateError(f"'epsilon' must be positive and finite, not {epsilon!r}")
    if not 0 < delta < 1:
        raise CertificateError(f"'delta' must lie between 0 and 1, not {delta!r}")
    if not 0 <= numerical_delta < delta:
        raise CertificateError(f"'numerical_delta' must lie below delta, not {numerical_delta!r}")
    neighbors = _chosen(certificate, "neighbors", RELATIONS, "")
    relation = RELATIONS[neighbors]
    reasons = _strings(certificate, "reasons")
    releasable = _get(certificate, "releasable")
    if not isinstance(releasable, bool):
        raise CertificateError(f"'releasable' must be true or false, not {releasable!r}")
    accountant = clean(_get(certificate, "accountant"))
    plan = _mapping(certificate, "plan")
    spent = _read_events(certificate)
    created = clean(_get(certificate, "created"))
    arithmetic = clean(_get(plan, "arithmetic", "plan."))
    times, extra = factor(epsilon), one_in(delta)
    game, guesses = _game(epsilon, delta, numerical_delta, neighbors, spent)
    versions = _mapping(certificate, "versions")
    return Story(
        epsilon=epsilon,
        delta=delta,
        neighbors=neighbors,
        relation=relation,
        releasable=releasable and not reasons,
        reasons=reasons or ["No reason is recorded."],
        warnings=_strings(certificate, "warnings"),
        assumptions=_strings(certificate, "assumptions"),
        subject=_subject(plan, neighbors),
        promise=(
            "Take anyone whose row is in the table, and any conclusion that somebody might draw "
            "from the released model. The chance that they draw it is at most "
            f"{times} times what it would have been {relation.otherwise}, plus at most {extra}. "
            "The same holds the other way round."
        ),
        # (ε, δ)-close outputs are within δ/(1+e^ε) of outputs whose odds differ by at most e^ε
        # (Dwork & Roth 2014, Lemma 3.17): that is the sense of "except with a probability".
        odds=(
            "In terms of odds: whatever somebody believed beforehand, seeing the model moves "
            f"their odds on {relation.question} by a factor of at most {times} in either "
            f"direction, except with a probability of at most about {extra}."
        ),
        two_guesses=(
            "Comparing two guesses at what the row says takes two such steps, the one row out "
            f"and the other in, so there the factor is at most e^(2ε) = {factor(2 * epsilon)}."
            if relation.two_guesses
            else "This includes two guesses at what the row says."
        ),
        strength=(
            "It holds against somebody who knows every other row of the table, and nothing done "
            "with the model afterwards can weaken it."
        ),
        game=game,
        guesses=guesses,
        groups=_groups(epsilon, delta),
        spent=spent,
        steps=_read_steps(plan, spent),
        numerical_delta=numerical_delta,
        small_print=[
            ("Accountant", f"{accountant}: {ACCOUNTANTS.get(accountant, 'as recorded')}"),
            ("Arithmetic", ARITHMETIC.get(arithmetic, arithmetic)),
            ("Part of δ kept back for numerical error", number(numerical_delta, digits=2)),
            ("Neighbouring relation", f"{neighbors}: {relation.short}"),
            ("Versions", ", ".join(f"{clean(k)} {clean(v)}" for k, v in versions.items())),
            ("Created", _when(created)),
            ("Digest (shows damage, not forgery)", clean(_get(certificate, "digest"))),
            ("Format", FORMAT),
        ],
        created=created,
        scores=_read_results({} if results is None else results),
    )


def _subject(plan: Mapping[str, Any], neighbors: str) -> str:
    """What was trained on what, in one sentence."""
    rows, features = _get(plan, "rows", "plan."), _get(plan, "features", "plan.")
    loss, classes = clean(_get(plan, "loss", "plan.")), plan.get("classes")
    sentence = f"A linear model with {loss} loss was trained"
    if rows is not None and neighbors == "add_or_remove_one":
        sentence += f" on a table whose size is private (taken as {setting(rows)} rows)"
    elif rows is not None:
        sentence += f" on {setting(rows)} rows"
    else:
        sentence += " on a private table"
    sentence += f" with {setting(features)} features"
    return sentence + (f" and {setting(classes)} classes." if classes else ".")


def _game(
    epsilon: float,
    delta: float,
    numerical_delta: float,
    neighbors: str,
    spent: Sequence[Spent],
) -> tuple[str, list[Bar]]:
    """How often an attacker who starts at evens can be right.

    Adding the two bounds on the error rates, FP + e^ε·FN ≥ 1−δ and
    e^ε·FP + FN ≥ 1−δ (Kairouz, Oh & Viswanath 2015, Thm 2.1), gives
    FP + FN ≥ 2(1−δ)/(1+e^ε), so the guess is right with probability at most
    1 − (1−δ)/(1+e^ε) = (e^ε+δ)/(1+e^ε). For Gaussian noise of total μ the errors
    add up to 2Φ(−μ/2) (Dong, Roth & Su 2022, eq. 6), hence Φ(μ/2).
    """
    limit = 1 - (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    bars = [Bar("Tossing a coin", 0.5, "50%")]
    text = (
        "Suppose that an attacker knows every other row, thinks it an even chance, and tries to "
        f"tell {RELATIONS[neighbors].question}. Guessing blindly is right half of the time. With "
        f"the model in hand, the guess is right at most {at_most(limit)} of the time: "
        "(e^ε + δ) / (1 + e^ε)."
    )
    if limit > 0.99:
        text += " At this size ε on its own rules out very little."
    if spent and all(item.kind == "gaussian" for item in spent):
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


def _groups(epsilon: float, delta: float) -> list[tuple[str, str, str, str]]:
    """k rows: k·ε, and δ·(e^{kε}−1)/(e^ε−1) (Vadhan 2017, Lemma 2.2, summed exactly)."""
    rows = []
    for k in (1, 2, 5, 10):
        growth = math.expm1(min(k * epsilon, 700.0)) / math.expm1(min(epsilon, 700.0))
        total = delta * growth
        if total >= 1 or (k > 1 and k * epsilon > 700):
            rows.append((str(k), number(k * epsilon), "no limit", "–"))
        else:
            shown = exact(delta) if k == 1 else _rounded_up(total)
            rows.append((str(k), number(k * epsilon), factor(k * epsilon), shown))
    return rows


def _read_events(certificate: Mapping[str, Any]) -> list[Spent]:
    spent = []
    for index, item in enumerate(_list(certificate, "events")):
        where = f"events[{index}]."
        if not isinstance(item, Mapping):
            raise CertificateError(f"'events[{index}]' must be a mapping, not {item!r}")
        kind = _chosen(item, "kind", EVENTS, where)
        parameters = _mapping(item, "parameters", where)
        needed = ["noise_multiplier", "count"]
        if kind == "poisson-gaussian":
            needed.append("sampling_probability")
        values = {key: _real(parameters, key, where + "parameters.") for key in needed}
        if values["count"] != int(values["count"]):
            raise CertificateError(f"'{where}parameters.count' must be whole")
        try:
            event = Event.from_dict(
                {"kind": kind, "parameters": values | {"count": int(values["count"])}}
            )
        except InputError as error:
            raise CertificateError(f"'events[{index}]': {error}") from None
        share = _real(item, "share", where)
        if not 0 <= share <= 1:
            raise CertificateError(f"'{where}share' must lie between 0 and 1, not {share!r}")
        sampling = values.get("sampling_probability", 1.0)
        spent.append(
            Spent(
                event=event,
                position=index + 1,
                stage=clean(_get(item, "stage", where)),
                kind=kind,
                noise=number(event.noise_multiplier),
                count=number(event.count),
                sampling="all" if sampling == 1 else number(sampling),
                epsilon_alone=number(_real(item, "epsilon_alone", where), digits=3),
                share=share,
                percent=percent(share),
            )
        )
    if spent and abs(math.fsum(item.share for item in spent) - 1) > 0.01:
        raise CertificateError("the shares in 'events' do not add up to 1")
    return spent


def _read_steps(plan: Mapping[str, Any], spent: Sequence[Spent]) -> list[Step]:
    steps = []
    for index, item in enumerate(_list(plan, "stages", "plan.")):
        where = f"plan.stages[{index}]."
        if not isinstance(item, Mapping):
            raise CertificateError(f"'plan.stages[{index}]' must be a mapping, not {item!r}")
        kind = _chosen(item, "kind", HOW_IT_PAYS, where)
        steps.append(_step(item, kind, where, spent))
    trainer = _mapping(plan, "trainer", "plan.")
    return [*steps, _step(trainer, "private", "plan.trainer.", spent)]


def _step(item: Mapping[str, Any], kind: str, where: str, spent: Sequence[Spent]) -> Step:
    name = clean(_get(item, "name", where))
    pays = HOW_IT_PAYS[kind]
    if kind == "private":
        parts = [entry for entry in spent if entry.stage == name]
        if parts:
            share = percent(math.fsum(entry.share for entry in parts))
            pays += f" It took {share} of the budget."
    parameters = _mapping(item, "parameters", where) if "parameters" in item else {}
    settings = [(clean(key), setting(value)) for key, value in parameters.items()]
    return Step(name, kind, pays, settings, clean(item.get("note") or ""))


def _score(results: Mapping[str, Any], key: str, *, part: bool = False) -> float | None:
    value = results.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"results: {key} must be a number, not {value!r}")
    if part and not 0 <= float(value) <= 1:
        raise InputError(f"results: {key} must lie between 0 and 1, not {value!r}")
    return int(value) if isinstance(value, Integral) else float(value)


def _items(results: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = results.get(key)
    if value is None:
        return []
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InputError(f"results: {key} must be a list, not {value!r}")
    return value


def _read_results(results: Mapping[str, Any]) -> Scores:
    if not isinstance(results, Mapping):
        raise InputError(f"results must be a mapping, not {type(results).__name__}")
    bars = []
    for key, label in (
        ("test_accuracy", "This model, with privacy"),
        ("nonprivate_accuracy", "The same without privacy"),
        ("majority_accuracy", "Always the most common class"),
    ):
        value = _score(results, key, part=True)
        if value is not None:
            bars.append(Bar(label, value, percent(value)))
    figures = [(bar.label, bar.text) for bar in bars]
    for key, label in (
        ("test_r2", "R² (1 is perfect, 0 no better than the average)"),
        ("test_rmse", "Typical error (root mean square)"),
        ("test_rows", "Test rows"),
    ):
        value = _score(results, key)
        if value is not None:
            figures.append((label, number(value)))
    names, confusion = _confusion(results)
    caveats = [NOT_COVERED] if figures or confusion else []
    if results.get("nonprivate_accuracy") is not None:
        caveats.append(NOT_COVERED_BASELINE)
    return Scores(
        bars=bars,
        figures=figures,
        caveats=caveats,
        class_names=names,
        confusion=confusion,
        features=_features(results),
        files=[clean(item) for item in _items(results, "files")],
    )


def _confusion(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    names = [clean(item) for item in _items(results, "class_names")]
    table = _items(results, "confusion")
    if any(isinstance(row, str) or not isinstance(row, Sequence) for row in table) or any(
        len(row) != len(table) for row in table
    ):
        raise InputError("results: confusion must be a square list of lists")
    if table and len(names) != len(table):
        names = [f"class {index}" for index in range(len(table))]
    return names, [[setting(cell) for cell in row] for row in table]


def _features(results: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    found = []
    for item in _items(results, "top_features"):
        if not isinstance(item, Mapping) or "name" not in item:
            raise InputError(f"results: top_features needs names and weights, not {item!r}")
        weight = _score(item, "weight")
        if weight is None or not math.isfinite(weight):
            raise InputError(f"results: the weight of {item['name']!r} must be a finite number")
        found.append((clean(item["name"]), weight))
    largest = max((abs(weight) for _, weight in found), default=0.0) or 1.0
    return [(name, number(weight, digits=3), weight / largest) for name, weight in found]


# --- the terminal ------------------------------------------------------------------------------

_STYLES = {"free": "green", "public": "blue", "private": "magenta", "plain": "yellow"}


def render_text(
    certificate: Mapping[str, Any], results: Mapping[str, Any] | None = None
) -> RenderableType:
    """The report for a terminal, to be printed by a `rich.console.Console`.

    Parameters
    ----------
    certificate : mapping
        A certificate, as read from ``certificate.json``.
    results : mapping, optional
        What is known of the model's quality; see `tacit.report.render_html`.

    Returns
    -------
    rich renderable
        Strings from the certificate are shown as they are: neither rich markup
        nor control characters in them have any effect.

    Raises
    ------
    CertificateError
        A key of the certificate is missing or cannot be read; it is named.

    Examples
    --------
    >>> from rich.console import Console
    >>> Console().print(render_text(model.certificate_.to_dict()))  # doctest: +SKIP
    """
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    story = read(certificate, results)
    parts: list[RenderableType] = []

    def heading(title: str) -> None:
        parts.extend([Text(""), Text(title, style="bold underline")])

    def bullets(items: Sequence[str], style: str = "") -> None:
        parts.append(_bullets(items, style))

    if not story.releasable:
        reasons = Text("\n".join(story.reasons))
        parts.append(Panel(reasons, title=Text("NOT FOR RELEASE"), style="bold white on red"))
    if story.warnings:
        warnings = Text("\n".join(story.warnings))
        parts.append(Panel(warnings, title=Text("Warnings"), border_style="yellow"))
    parts.append(
        Text(
            f"ε = {exact(story.epsilon)}, δ = {exact(story.delta)}, {story.relation.short}",
            style="bold",
        )
    )
    parts.append(Text(story.subject))
    heading("The promise" if story.releasable else "The promise, were this fit for release")
    for paragraph in (story.promise, story.odds, story.two_guesses, story.strength, story.game):
        parts.extend([Text(paragraph), Text("")])
    parts.append(_bars(story.guesses))
    heading("What it does not promise")
    bullets([f"{title} {body}" for title, body in LIMITS.items()])
    heading("Where the budget went")
    if story.spent:
        parts.append(_spent_table(story))
        parts.append(
            Text("The ε of the steps do not add up to the total: they are counted jointly.")
        )
    else:
        parts.append(
            Text(
                "No step that looked at the private rows is listed: there is nothing to recompute."
            )
        )
    heading("The pipeline")
    parts.append(_steps_table(story))
    heading("Assumptions")
    bullets(story.assumptions or ["None are recorded."])
    if story.scores.figures or story.scores.confusion:
        heading("Accuracy")
        if story.scores.bars:
            parts.append(_bars(story.scores.bars))
        parts.append(_pairs(story.scores.figures[len(story.scores.bars) :]))
        parts.extend(Text(caveat) for caveat in story.scores.caveats)
    heading("How to verify")
    parts.append(Text("tacit verify certificate.json"))
    heading("Small print")
    parts.append(_pairs(story.small_print))
    return Group(*parts)


def plain_text(
    certificate: Mapping[str, Any],
    results: Mapping[str, Any] | None = None,
    *,
    width: int = 80,
) -> str:
    """The report as plain text, without colours or control codes.

    Parameters
    ----------
    certificate, results : mapping
        As for `render_text`.
    width : int
        Characters to a line.

    Returns
    -------
    str
    """
    from rich.console import Console

    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
        legacy_windows=False,
    )
    console.print(render_text(certificate, results))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _grid(*styles: str) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for style in styles:
        table.add_column(style=style, overflow="fold")
    return table


def _bullets(items: Sequence[str], style: str) -> Table:
    from rich.text import Text

    table = _grid(style, style)
    for item in items:
        table.add_row(Text("-"), Text(item))
    return table


def _pairs(pairs: Sequence[tuple[str, str]]) -> Table:
    from rich.text import Text

    table = _grid("dim", "")
    for label, value in pairs:
        table.add_row(Text(label), Text(value))
    return table


def _bars(bars: Sequence[Bar], width: int = 25) -> Table:
    from rich.text import Text

    table = _grid("", "cyan", "bold")
    for bar in bars:
        full = round(bar.value * width)
        table.add_row(
            Text(bar.label), Text("█" * full + "░" * (width - full), no_wrap=True), Text(bar.text)
        )
    return table


def _spent_table(story: Story) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("", "Step", "Noise", "Times", "Drawn", "ε alone", "Share")
    for item in story.spent:
        cells = (item.stage, item.noise, item.count, item.sampling, item.epsilon_alone)
        table.add_row(str(item.position), *(Text(cell) for cell in cells), Text(item.percent))
    return table


def _steps_table(story: Story) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("Step", "Kind", "Settings, and how it pays", show_lines=True)
    for step in story.steps:
        lines = [", ".join(f"{key} {value}" for key, value in step.settings), step.note, step.pays]
        body = "\n".join(line for line in lines if line)
        table.add_row(Text(step.name), Text(step.kind, style=_STYLES[step.kind]), Text(body))
    return table
