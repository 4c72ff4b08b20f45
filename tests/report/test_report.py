"""The report says what the certificate says: correctly, to a person, and nothing more."""

from __future__ import annotations

import copy
import io
import math
import re
from base64 import b64encode
from contextlib import redirect_stdout
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

import tacit
from tacit.exceptions import CertificateError, FileError, InputError
from tacit.privacy.accounting import accountants
from tacit.privacy.certificate import Certificate, Expense
from tacit.privacy.events import EVENTS, NEIGHBORS, Event, Failure, Gaussian, Parallel
from tacit.privacy.unit import Unit
from tacit.report import html, plain_text, render_html, render_text, show
from tacit.report.phrases import HOW_IT_PAYS, RELATIONS
from tacit.report.tested import read_evaluation
from tacit.report.view import read

CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
EVIL = "\"><script>alert(1)</script><img src=x onerror='alert(2)'> {{ 7*7 }} [bold]x[/nope] &lt;"
VOID = {"meta", "link", "br", "img", "input", "hr"}


def gaussian(stage: str, noise: float, count: int, share: float) -> dict[str, Any]:
    parameters = {"noise_multiplier": noise, "count": count}
    sizes = {"epsilon_alone": 0.5, "share": share}
    return {"stage": stage, "kind": "gaussian", "parameters": parameters, **sizes}


def poisson(stage: str, noise: float, count: int, rate: float, share: float) -> dict[str, Any]:
    event = gaussian(stage, noise, count, share) | {"kind": "poisson-gaussian"}
    event["parameters"]["sampling_probability"] = rate
    return event


def certificate(**changes: Any) -> dict[str, Any]:
    return {
        "format": "tacit-certificate/1",
        "epsilon": 1.0,
        "delta": 1e-5,
        "neighbors": "replace_special",
        "releasable": True,
        "reasons": [],
        "assumptions": ["the number of rows, 32561, is public"],
        "warnings": [],
        "events": [gaussian("PrivateCenter", 37.3, 1, 0.01), gaussian("DPGD", 65.0, 300, 0.99)],
        "accountant": "gaussian-dp",
        "numerical_delta": 3e-48,
        "plan": {
            "rows": 32561,
            "features": 107,
            "classes": 2,
            "loss": "logistic",
            "arithmetic": "exact",
            "stages": [
                {"name": "Encode", "kind": "free", "note": "from the schema"},
                {"name": "PublicPCA", "kind": "public", "parameters": {"n_components": 40}},
                {"name": "PrivateCenter", "kind": "private", "parameters": {"share": 0.01}},
            ],
            "trainer": {"name": "DPGD", "parameters": {"steps": 300, "learning_rate": 80.0}},
        },
        "versions": {"tacit": "0.1.0", "numpy": "2.4.6"},
        "created": "2026-11-15T20:00:00+00:00",
        "digest": "3f" * 32,
    } | changes


SAMPLED = certificate(events=[poisson("DPSGD", 1.5, 400, 0.01, 1.0)], accountant="pld")
RESULTS: dict[str, Any] = {
    "task": "classification",
    "test_rows": 16281,
    "test_accuracy": 0.846,
    "majority_accuracy": 0.764,
    "nonprivate_accuracy": 0.853,
    "class_names": ["<=50K", ">50K"],
    "confusion": [[11600, 835], [1670, 2176]],
    "files": ["model.safetensors", "certificate.json"],
    "top_features": [{"name": "gain", "weight": 2.0}, {"name": "child", "weight": -1.0}],
}


class Page(HTMLParser):
    """A page as tags with attributes, visible text, and the text of each identified element."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.by_id: dict[str, str] = {}
        self.text = ""
        self._open: list[tuple[str, str | None]] = []
        self.feed(source)
        self.close()
        assert self._open == []
        self.names = [tag for tag, _ in self.tags]
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self._open.append((tag, dict(attrs).get("id")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if given.get("id"):
            assert given["id"] not in self.by_id
            self.by_id[str(given["id"])] = ""

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, name in self._open:
            if name:
                self.by_id[name] += data
        if not {"head", "title", "desc"} & {tag for tag, _ in self._open}:
            self.text += data


def page(certificate: dict[str, Any], **more: Any) -> Page:
    return Page(render_html(certificate, **more))


# --- the promise -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("neighbors", "otherwise", "table", "two_guesses"),
    [
        ("replace_special", "been blanked out", "on 32,561 rows", "e^(2ε) = 7.39"),
        ("add_or_remove_one", "not been in the table", "taken as 32,561 rows", "e^(2ε) = 7.39"),
        ("replace_one", "been swapped for any other", "on 32,561 rows", "includes two guesses"),
    ],
)
def test_promise_is_worded_for_the_relation(
    neighbors: str, otherwise: str, table: str, two_guesses: str
) -> None:
    given = certificate(neighbors=neighbors)
    promise = f"at most 2.72 times what it would have been had that row {otherwise}, plus at most 1"
    for shown in (page(given).text, " ".join(plain_text(given).split())):
        for words in (promise, table, two_guesses):
            assert words in shown


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-9), (1.0, 1e-5), (3.0, 0.1), (9.0, 1e-5)])
def test_guessing_limit_is_attained_by_the_worst_mechanism(epsilon: float, delta: float) -> None:
    # Kairouz, Oh & Viswanath 2015: every (ε, δ) mechanism is dominated by this pair.
    e = math.exp(epsilon)
    p = [delta, (1 - delta) * e / (1 + e), (1 - delta) / (1 + e), 0.0]
    right = sum(max(a, b) for a, b in zip(p, reversed(p), strict=True)) / 2
    limit = read(certificate(epsilon=epsilon, delta=delta)).guesses[-1]
    assert limit.value == pytest.approx(right, abs=1e-12)
    assert float(limit.text.rstrip("%")) >= 100 * right - 1e-9


def test_gaussian_noise_alone_has_a_lower_guessing_limit() -> None:
    _, tight, limit = read(certificate()).guesses
    mu = accountants.total_mu([Gaussian(37.3), Gaussian(65.0, 300)], "replace_special")
    right = (1 + accountants.gaussian_delta(mu, 0.0)) / 2  # δ(0) is the total variation
    assert tight.value == pytest.approx(right, abs=1e-9)
    assert tight.value < limit.value
    assert len(read(SAMPLED).guesses) == 2


def test_several_rows_of_one_person_weaken_the_promise() -> None:
    given = certificate(groups={"2": 2.15461, "5": 6.1670001, "10": None})
    assert read(given).groups == [
        ("1", "1", "2.72"),
        ("2", "2.155", "8.63"),
        ("5", "6.168", "477"),
        ("10", "no limit", "no limit"),
    ]
    for shown in (page(given).text, " ".join(plain_text(given, width=200).split())):
        for words in ("same δ = 10⁻⁵", "2 rows ε = 2.155", "5 rows ε = 6.168", "10 rows no limit"):
            assert words in shown


def test_a_certificate_that_says_nothing_of_several_rows_is_not_added_to() -> None:
    said = "every person is one row; somebody with k rows has a k-fold weaker guarantee"
    given = certificate(assumptions=[said])
    for shown in (page(given).text, " ".join(plain_text(given, width=300).split())):
        assert "this certificate does not state" in shown and "Rows of one person" not in shown
        assert said not in shown and "true of Gaussian μ, not of ε" in shown
    for groups in ([1], {"2": "x"}, {"2": -1.0}, {"<b>": 1.0}, {"2": math.nan}):
        with pytest.raises(CertificateError):
            read(certificate(groups=groups))


def test_factor_is_never_below_the_truth() -> None:
    for epsilon in (1e-4, 0.003, 0.0953, 0.3, 1.0, 2.3026, 4.7, 6.9, 13.5):
        shown = float(show.factor(epsilon).replace(",", ""))
        assert math.exp(epsilon) <= shown <= math.exp(epsilon) * 1.01


def test_absurd_epsilons_are_shown_and_not_flattered() -> None:
    for epsilon in (30.0, 1e4, 1e30):
        assert "rules out very little" in page(certificate(epsilon=epsilon)).text


def test_limits_assumptions_and_small_print_are_stated() -> None:
    for shown in (page(certificate()).text, " ".join(plain_text(certificate(), width=200).split())):
        for words in (
            *("about rows, not people", "facts about people in general", "AES", "grows faster"),
            *("the number of rows, 32561, is public", "tacit verify certificate.json"),
            *("exact Gaussian", "3 × 10⁻⁴⁸", "numpy 2.4.6", "15 November 2026", "3f3f3f"),
        ):
            assert words in shown
    assert "last Tuesday" in page(certificate(created="last Tuesday")).text


# --- release, warnings, assumptions ------------------------------------------------------------


def test_banner_when_revoked() -> None:
    stages = [{"name": name, "kind": "noiseless"} for name in ("Dedup", "SoftPCA")]
    plan = certificate()["plan"] | {"stages": stages, "intercept": True}
    bad = certificate(plan=plan)
    assert "TACIT-2026-001" in page(bad).by_id["revoked"]
    assert "<title>REVOKED: Privacy report</title>" in render_html(bad)
    text = " ".join(plain_text(bad, width=2000).split())
    assert "REVOKED" in text and "revoked: TACIT-2026-001 of 2026-11-17" in text
    for shown in (page(bad).text, text):
        assert "found to be false" in shown
    for good in (certificate(), certificate(plan=plan, versions={"tacit": tacit.__version__})):
        assert "revoked" not in page(good).by_id
        assert "REVOKED" not in page(good).text + plain_text(good)


def test_damaged_advisories_are_not_the_fault_of_the_certificate(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("tacit.privacy.advisories.PATH", tmp_path / "none.json")
    for render in (render_html, plain_text):
        with pytest.raises(FileError, match="Reinstall"):
            render(certificate())


def test_banner_when_not_releasable() -> None:
    given = certificate(releasable=False, reasons=["seeded: not for release"])
    shown = page(given)
    assert "NOT FOR RELEASE" in shown.by_id["not-for-release"]
    assert "seeded: not for release" in shown.by_id["not-for-release"]
    assert "What was promised" not in shown.text
    assert "<title>NOT FOR RELEASE: Privacy report</title>" in render_html(given)
    assert "NOT FOR RELEASE" in plain_text(given)
    assert "NOT FOR RELEASE" not in render_html(certificate()) + plain_text(certificate())


def test_doubt_is_resolved_against_release() -> None:
    for given in (certificate(reasons=["seeded"]), certificate(releasable="true")):
        assert "NOT FOR RELEASE" in page(given).text


def test_warnings_come_before_the_promise() -> None:
    shown = page(certificate(warnings=["delta is larger than 1/n"])).text
    assert 0 < shown.index("delta is larger than 1/n") < shown.index("What was promised")
    assert "Warning" not in page(certificate()).text


# --- budget and pipeline -----------------------------------------------------------------------


def test_stacked_bar_has_the_widths_of_the_shares() -> None:
    shares = [0.2, 0.5, 0.3]
    events = [gaussian(f"stage {i}", 90.0, 1, share) for i, share in enumerate(shares)]
    tags = page(certificate(events=events)).tags
    rects = [given for tag, given in tags if tag == "rect" and given.get("height") == "44"]
    assert [float(str(r["width"]).rstrip("%")) for r in rects] == [20.0, 50.0, 30.0]
    assert [float(str(r["x"]).rstrip("%")) for r in rects] == [0.0, 20.0, 70.0]


def test_every_event_and_stage_is_explained() -> None:
    given = certificate()
    given["plan"]["stages"].append({"name": "SoftPCA", "kind": "noiseless"})
    shown = page(given)
    tags = [g["class"] for _, g in shown.tags if str(g.get("class")).startswith("tag ")]
    assert tags == ["tag free", "tag public", "tag private", "tag noiseless", "tag private"]
    for words in (
        *("1. PrivateCenter 1% 0.5 37.3 1", "2. DPGD 99% 0.5 65 300", "It took 1% of the budget."),
        *("learning_rate 80", "from the schema", "makes every later step more sensitive"),
    ):
        assert words in shown.text
    assert "SoftPCA" in plain_text(given)


def test_a_plan_that_spent_nothing_has_nothing_to_recompute() -> None:
    shown = page(certificate(events=[]))
    assert "nothing to recompute" in shown.text
    assert "recompute" not in shown.by_id
    assert "nothing to recompute" in " ".join(plain_text(certificate(events=[])).split())


# --- results -----------------------------------------------------------------------------------


def test_accuracy_is_drawn_tabled_and_disclaimed() -> None:
    shown = page(certificate(), results=RESULTS)
    for words in ("84.6%", "85.3%", "76.4%", "16,281", "11,600", "model.safetensors", "gain"):
        assert words in shown.text
    assert "The certificate does not cover these figures." in shown.text
    assert "with no protection at all" in shown.text
    assert "This model, with privacy: 84.6%" in shown.by_id["scores-text"]


def test_a_picture_of_the_curves_is_part_of_the_page() -> None:
    drawn = '<svg xmlns="http://www.w3.org/2000/svg"></svg>'
    shown = render_html(certificate(), curves=drawn)
    assert b64encode(drawn.encode()).decode() in shown and "adds to the score" in shown
    assert "adds to the score" not in render_html(certificate())


def test_each_result_may_be_missing_or_alone() -> None:
    for key, value in RESULTS.items():
        render_html(certificate(), results=RESULTS | {key: None})
        render_html(certificate(), results={key: value, "unheard of": object()})
        plain_text(certificate(), {key: value})


def test_only_what_is_known_of_the_quality_is_shown() -> None:
    assert "accuracy" not in page(certificate(), results={"test_accuracy": None}).by_id
    shown = page(certificate(), results={"test_r2": 0.62, "test_rmse": float("nan")}).text
    for words in ("0.62", "not defined", "does not cover these figures"):
        assert words in shown


def test_accuracies_are_parts_of_one() -> None:
    with pytest.raises(InputError, match="test_accuracy must lie between 0 and 1"):
        render_html(certificate(), results={"test_accuracy": 84.6})


# --- checking the claim ------------------------------------------------------------------------


def run_snippet(given: dict[str, Any]) -> tuple[float, str]:
    scope: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()) as out:
        exec(page(given).by_id["recompute"], scope)
    epsilon, verdict = scope["epsilon"], scope["verdict"]
    assert out.getvalue() == f"epsilon {epsilon!r}, claimed {given['epsilon']!r}: {verdict}\n"
    return epsilon, verdict


MIXED = [gaussian("a", 60.0, 1, 0.1), poisson("b", 4.0, 100, 0.05, 0.9)]
CLAIMS = {
    "gaussian": certificate(),
    "added or removed": certificate(neighbors="add_or_remove_one"),
    "any swap": certificate(epsilon=2.16, neighbors="replace_one"),
    "tiny": certificate(epsilon=0.00044, events=[gaussian("a", 3300.0, 1, 1.0)]),
    "sampled": certificate(epsilon=0.47, events=MIXED),
    "sampled, any swap": certificate(epsilon=0.94, neighbors="replace_one", events=MIXED),
}


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_snippet_on_the_page_confirms_the_claim(name: str) -> None:
    given = CLAIMS[name]
    epsilon, verdict = run_snippet(given)
    assert epsilon <= given["epsilon"]
    assert verdict == "the claim holds"
    events = [Event.from_dict(event) for event in given["events"]]
    ours = accountants.epsilon(events, given["delta"], given["neighbors"])
    assert epsilon == pytest.approx(ours, rel=1e-4)


def test_snippet_on_the_page_rejects_a_false_claim() -> None:
    epsilon, verdict = run_snippet(certificate(epsilon=0.999))
    assert 0.999 < epsilon < 1
    assert verdict == "THE CLAIM DOES NOT HOLD"


def test_snippet_holds_no_text_from_the_certificate() -> None:
    given = certificate(events=[gaussian("x\nimport os; os.abort()", 65.0, 300, 1.0)])
    assert "abort" not in page(given).by_id["recompute"]
    assert "abort" in page(given).by_id["stack-text"]


def test_real_certificates_are_read() -> None:
    spent = Expense.weigh([("DPGD", Gaussian(65.0, 300))], 1e-5, "replace_special")
    plan = certificate()["plan"]
    issued = Certificate(1.0, 1e-5, "replace_special", events=tuple(spent), plan=plan)
    assert "2.72" in page(issued.to_dict()).text
    assert "2.72" in plain_text(issued.to_dict())


def test_parts_failures_and_the_unit_are_shown() -> None:
    spent = [("Keys", Failure(1e-7)), ("Halves", Parallel([[Gaussian(65.0)], [Gaussian(90.0)]]))]
    person = Unit("person", 5, "patient")
    claim = {"epsilon": 1.0, "delta": 1e-5, "neighbors": "replace_special", "unit": person}
    issued = Certificate.issue(**claim, spent=spent, plan=certificate()["plan"]).to_dict()
    for text in (page(issued).text, plain_text(issued)):
        words = " ".join(text.split())
        assert "Keys" in words and "Halves" in words and "has at most 5 rows" in words
    small_print = dict(read(issued).small_print)
    assert small_print["Unit of privacy"] == person.sentence
    assert [item.noise for item in read(issued).spent] == ["none", "65"]
    assert "Unit of privacy" not in page(certificate()).text
    assert "part 1, 65 (once); part 2, 90 (once)." in page(issued).text


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_a_report_on_people_promises_nothing_less_to_somebody_with_several_rows(
    neighbors: str,
) -> None:
    person = Unit("person", 5, "patient").to_dict()
    of_people = certificate(neighbors=neighbors, unit=person)
    for text in (page(of_people).text, plain_text(of_people, width=300)):
        words = " ".join(text.split())
        assert "about rows, not people" not in words and "anyone whose row" not in words
        assert "one row" not in words and "that row" not in words and "every other row" not in words
        assert "anyone who has rows in the table" in words and "two identifiers" in words


def test_a_schema_is_shown_column_by_column() -> None:
    columns = {
        "age": {"kind": "number", "low": 0, "high": 120},
        "pay": {"kind": "number", "low": "private", "high": "private"},
        "born": {"kind": "date", "low": "private", "high": 1.5},
        "job": {"kind": "category", "categories": ["cook", "nurse"]},
        "town": {"kind": "category", "categories": "private"},
        "remark": {"kind": "private"},
    }
    plan = certificate()["plan"]
    stage = plan["stages"][0] | {"parameters": {"schema": {"columns": columns}}}
    ((_, shown),) = read(certificate(plan=plan | {"stages": [stage]})).steps[0].settings
    assert shown == (
        "age: 0 to 120; pay: number; born: private to 1.5; job: cook, nurse; town: private; "
        "remark: private"
    )


def test_every_relation_and_event_of_the_library_has_words() -> None:
    assert set(RELATIONS) == set(NEIGHBORS)
    assert set(html.AS_SOURCE) | html.NO_SOURCE == set(EVENTS)


# --- damaged certificates ----------------------------------------------------------------------

REQUIRED = """
format epsilon delta neighbors releasable reasons assumptions warnings events accountant
numerical_delta plan versions created digest
events.0.stage events.0.kind events.0.parameters events.0.epsilon_alone events.0.share
events.0.parameters.noise_multiplier events.0.parameters.count
events.0.parameters.sampling_probability
plan.rows plan.features plan.loss plan.arithmetic plan.stages plan.trainer
plan.stages.0.name plan.stages.0.kind plan.trainer.name
"""


def test_a_missing_key_is_named() -> None:
    for path in REQUIRED.split():
        damaged: Any = copy.deepcopy(SAMPLED)
        holder = damaged
        *above, key = path.split(".")
        for step in above:
            holder = holder[int(step) if step.isdigit() else step]
        del holder[key]
        for render in (render_html, render_text):
            with pytest.raises(CertificateError, match=key):
                render(damaged)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "tacit-certificate/9"}, "this version reads 'tacit-certificate/1'"),
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"delta": 1.0}, "delta must lie strictly between"),
        ({"numerical_delta": 1e-3}, "numerical_delta must lie below delta"),
        ({"neighbors": "friends"}, "neighbors='friends' is not a relation"),
        ({"events": [gaussian("a", 65.0, 300, 0.5)]}, "do not add up to 1"),
        ({"events": [gaussian("a", 65.0, 300, -1.0)]}, "share must lie between"),
        ({"events": [gaussian("a", 0.0, 300, 1.0)]}, "noise_multiplier must be positive"),
        ({"events": [gaussian("a", 1.0, "f()", 1.0)]}, "cannot be read"),  # type: ignore[arg-type]
        ({"events": [gaussian("a", 1.0, 1, 1.0) | {"kind": "laplace"}]}, "known are gaussian"),
        ({"plan": None}, "cannot be read"),
    ],
)
def test_values_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CertificateError, match=message):
        render_html(certificate(**changes))


# --- escaping ----------------------------------------------------------------------------------

CHOSEN = {"format", "kind", "neighbors", "accountant", "arithmetic", "created"}


def spoilt(value: Any, key: str = "") -> Any:
    """The same mapping with hostile text wherever text may stand, keys included."""
    if isinstance(value, dict):
        free = key in ("parameters", "versions") and "noise_multiplier" not in value
        return {EVIL + k if free else k: spoilt(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [spoilt(item, key) for item in value]
    return EVIL + value if isinstance(value, str) and key not in CHOSEN else value


def test_hostile_text_changes_no_tag_and_no_attribute() -> None:
    given = certificate(warnings=["w"], releasable=False, reasons=["r"])
    innocent = page(given, results=RESULTS, title="t")
    hostile = page(spoilt(given), results=spoilt(RESULTS), title=EVIL)
    assert hostile.tags == innocent.tags
    assert "script" not in hostile.names
    assert hostile.text.count("<script>alert(1)</script>") >= 20
    assert "{{ 7*7 }}" in hostile.text
    typed = "".join(plain_text(spoilt(given), spoilt(RESULTS), width=400).split())
    assert typed.count("[bold]x[/nope]") >= 15


def test_control_characters_are_spelt_out() -> None:
    for char in "\x1b\x07\x00\x9b\u202e\ud800":
        given = certificate(assumptions=[f"before{char}[2Jafter\nand\u2028on"])
        for shown in (render_html(given), plain_text(given)):
            assert char not in shown
            assert f"before\\u{ord(char):04x}[2Jafter and on" in shown
            shown.encode()


# --- the page itself ---------------------------------------------------------------------------


def test_page_is_self_contained() -> None:
    source = render_html(certificate(), results=RESULTS)
    shown = Page(source)
    assert source.startswith("<!DOCTYPE html>")
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": CSP}) in shown.tags
    assert not {"script", "img", "iframe", "object", "embed", "base", "form"} & set(shown.names)
    for _, given in shown.tags:
        assert not any(name == "src" or name.startswith("on") for name in given)
        assert given.get("href") in (None, "data:,", "#warnings")
    assert not re.search(r"url\(|@import|https?:", source)


def test_page_is_accessible() -> None:
    shown = page(certificate(warnings=["w"], releasable=False, reasons=["r"]), results=RESULTS)
    assert ("html", {"lang": "en-GB"}) in shown.tags
    levels = [int(tag[1]) for tag in shown.names if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for tag, given in shown.tags:
        if tag == "th":
            assert given["scope"] in ("row", "col")
        if tag == "svg":
            assert given.get("role") == "img" or given.get("aria-hidden") == "true"
        for name in str(given.get("aria-labelledby") or "").split():
            assert shown.by_id[name].strip()
    assert shown.names.count("desc") == 3


PAIRS = [
    *((ink, ground) for ink in ("ink", "muted", "strong") for ground in ("bg", "panel")),
    *((f"{kind}-ink", f"{kind}-bg") for kind in ("warn", "stop", *HOW_IT_PAYS)),
    *(("on", f"s{n}") for n in range(8)),
]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_is_enough_to_read(scheme: int) -> None:
    root = re.findall(r":root \{(.*?)\}", render_html(certificate()), re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): #(\w{6})", root))
    for pair in PAIRS:
        dark, bright = sorted(_luminance(colours[name]) for name in pair)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, pair  # WCAG 2.2, 1.4.3


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# --- numbers -----------------------------------------------------------------------------------


def test_numbers_read_well() -> None:
    values = (32561, 80.0, 3.0712e-05, 0.00099999, 1.5e9, -3, -2.5, 0.0, -math.inf)
    shown = "32,561; 80; 3.071 × 10⁻⁵; 10⁻³; 1.5 × 10⁹; −3; −2.5; 0; −∞"
    assert "; ".join(map(show.number, values)) == shown


def test_parts_read_well_and_limits_are_rounded_up() -> None:
    parts = [show.percent(part) for part in (0.0, 1e-4, 0.25, 0.8461, 0.9999, 1.0)]
    assert parts == ["0%", "<0.1%", "25%", "84.6%", ">99.9%", "100%"]
    assert [show.at_most(part) for part in (0.5, 0.73106, 1.0)] == ["50%", "73.11%", "100%"]


def test_settings_read_well() -> None:
    values: tuple[Any, ...] = (None, True, [], [0.5, "a"], {"age": [0, 90]})
    assert "; ".join(map(show.setting, values)) == "none; yes; none; 0.5, a; age: 0, 90"
    assert show.setting(list(range(50))).endswith("9, 10, 11, … (50 in all)")


def test_claims_are_shown_with_every_digit() -> None:
    shown = page(certificate(epsilon=1.2345678, delta=3.07115e-05)).text
    assert "ε (epsilon) 1.2345678 " in shown
    assert "δ (delta) 3.07115 × 10⁻⁵ " in shown


# --- the terminal ------------------------------------------------------------------------------


def test_terminal_version_prints_in_colour() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=70)
    console.print(render_text(certificate(releasable=False), RESULTS))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[" in shown
    assert "NOT FOR RELEASE" in shown


def test_plain_text_is_plain_even_where_colour_is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    for width in (60, 120):
        shown = plain_text(certificate(), RESULTS, width=width)
        assert "\x1b" not in shown
        assert width / 2 < max(map(len, shown.splitlines())) <= width
        for words in ("PrivateCenter", "DPGD", "84.6%", "2.72"):
            assert words in shown


def test_the_share_of_every_class_is_not_called_that_of_the_second() -> None:
    share = {"prevalence": {"value": 0.3, "low": 0.2, "high": 0.4}}
    three = {"a": share, "b": share, "c": share}
    found = read_evaluation(
        {"confidence": 0.95, "figures": {}, "by_class": three, "classes": "abc"}
    )
    assert found.grids[1].rows[0][0] == "Share of the class"
    assert not any("second class" in remark for remark in found.remarks)
    two = read_evaluation({"confidence": 0.95, "figures": share, "classes": ["no", "yes"]})
    assert two.grids[0].rows[0][0] == "Share of the second class"
    assert two.remarks[0].endswith("is yes.")
