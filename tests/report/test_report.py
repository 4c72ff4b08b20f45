"""The report says what the certificate says: correctly, to a person, and nothing more."""

from __future__ import annotations

import copy
import io
import math
import re
import runpy
from collections.abc import Iterator
from contextlib import redirect_stdout
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tacit.exceptions import CertificateError, InputError
from tacit.privacy import accountants
from tacit.privacy.certificate import Certificate, Expense
from tacit.privacy.events import EVENTS, NEIGHBORS, Event, Gaussian
from tacit.report import html, plain_text, render_html, render_text, text

CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
EVIL = "\"><script>alert(1)</script><img src=x onerror='alert(2)'> {{ 7*7 }} [bold]x[/nope] &lt;"
VOID = {"meta", "link", "br", "img", "input", "hr"}


def gaussian(stage: str, noise: float, count: int, share: float) -> dict[str, Any]:
    parameters = {"noise_multiplier": noise, "count": count}
    return {
        "stage": stage,
        "kind": "gaussian",
        "parameters": parameters,
        "epsilon_alone": 0.5,
        "share": share,
    }


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
                {
                    "name": "Encode",
                    "kind": "free",
                    "parameters": {"columns": ["age", "sex"]},
                    "note": "from the schema",
                },
                {"name": "PublicPCA", "kind": "public", "parameters": {"n_components": 40}},
                {"name": "PrivateCenter", "kind": "private", "parameters": {"share": 0.01}},
            ],
            "trainer": {"name": "DPGD", "parameters": {"steps": 300, "learning_rate": 80.0}},
        },
        "versions": {"tacit": "0.1.0", "numpy": "2.4.6"},
        "created": "2026-11-15T20:00:00+00:00",
        "digest": "3f" * 32,
    } | changes


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
    """A page as tags, attributes, visible text and the text of each identified element."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.by_id: dict[str, str] = {}
        self.ids: list[str] = []
        self.headings: list[str] = []
        self._open: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(source)
        self.close()
        assert self._open == []
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.attributes.append((tag, given))
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(tag)
        if tag not in VOID:
            self._open.append((tag, given.get("id")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        opened, _ = self._open.pop()
        assert opened == tag

    def handle_data(self, data: str) -> None:
        for _, name in self._open:
            if name:
                self.by_id[name] = self.by_id.get(name, "") + data
        if not {"head", "title", "desc"} & {tag for tag, _ in self._open}:
            self.text += data


def page(certificate: dict[str, Any], **more: Any) -> Page:
    return Page(render_html(certificate, **more))


# --- the promise -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("neighbors", "words"),
    [
        ("replace_special", "had that row been blanked out"),
        ("add_or_remove_one", "had that row not been in the table"),
        ("replace_one", "had that row been swapped for any other"),
    ],
)
def test_promise_is_worded_for_the_relation(neighbors: str, words: str) -> None:
    shown = page(certificate(neighbors=neighbors)).text
    assert f"at most 2.72 times what it would have been {words}, plus at most 1 in 100,000" in shown
    assert words in " ".join(plain_text(certificate(neighbors=neighbors)).split())


def test_two_guesses_cost_twice_unless_any_row_may_be_swapped() -> None:
    assert "at most e^(2ε) = 7.39" in page(certificate()).text
    assert "e^(2ε)" not in page(certificate(neighbors="replace_one")).text


def test_row_count_is_not_stated_as_fact_where_it_is_private() -> None:
    assert "on 32,561 rows" in page(certificate()).text
    private = page(certificate(neighbors="add_or_remove_one")).text
    assert "a table whose size is private (taken as 32,561 rows)" in private


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 9.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_guessing_limit_is_attained_by_the_worst_mechanism(epsilon: float, delta: float) -> None:
    # Kairouz, Oh & Viswanath 2015: every (ε, δ) mechanism is dominated by this pair.
    e = math.exp(epsilon)
    p = [delta, (1 - delta) * e / (1 + e), (1 - delta) / (1 + e), 0.0]
    right = sum(max(a, b) for a, b in zip(p, reversed(p), strict=True)) / 2
    assert right == pytest.approx((e + delta) / (1 + e))
    story = text.read(certificate(epsilon=epsilon, delta=delta))
    assert story.guesses[-1].value == pytest.approx(right, abs=1e-12)
    assert float(story.guesses[-1].text.rstrip("%")) >= 100 * right - 1e-9


def test_gaussian_noise_has_its_own_lower_guessing_limit() -> None:
    story = text.read(certificate())
    mu = accountants.total_mu([Gaussian(37.3), Gaussian(65.0, 300)], "replace_special")
    right = (1 + accountants.gaussian_delta(mu, 0.0)) / 2  # δ(0) is the total variation
    assert story.guesses[1].value == pytest.approx(right, abs=1e-9)
    assert story.guesses[1].value < story.guesses[2].value


def test_sampled_noise_claims_no_more_than_epsilon_and_delta_allow() -> None:
    sampled = certificate(events=[poisson("DPSGD", 1.5, 400, 0.01, 1.0)], accountant="pld")
    assert len(text.read(sampled).guesses) == 2


def test_several_rows_of_one_person_weaken_the_promise() -> None:
    rows = {row[0]: row[1:] for row in text.read(certificate(epsilon=0.5)).groups}
    delta = 0.0
    for _ in range(5):  # one row at a time: δ ← e^ε·δ + δ₁
        delta = math.exp(0.5) * delta + 1e-5
    assert rows["5"] == ("2.5", "12.2", "1.8 × 10⁻⁴")
    assert delta <= 1.8e-4 <= delta * 1.1
    assert text.read(certificate(epsilon=8.0)).groups[-1][2] == "no limit"


@pytest.mark.parametrize("epsilon", [1e-4, 0.003, 0.0953, 0.3, 1.0, 2.3026, 4.7, 6.9, 13.5])
def test_factor_is_never_below_the_truth(epsilon: float) -> None:
    shown = float(text.factor(epsilon).replace(",", ""))
    assert math.exp(epsilon) <= shown <= math.exp(epsilon) * 1.01


@pytest.mark.parametrize("epsilon", [30.0, 701.0, 1e4])
def test_absurd_epsilons_are_shown_and_not_flattered(epsilon: float) -> None:
    assert "rules out very little" in page(certificate(epsilon=epsilon)).text


def test_limits_of_the_promise_are_stated() -> None:
    shown = page(certificate()).text
    for words in ("about rows, not people", "facts about people in general", "AES", "k·ε"):
        assert words in shown


# --- release, warnings, assumptions ------------------------------------------------------------


def test_banner_when_not_releasable() -> None:
    given = certificate(releasable=False, reasons=["seeded: not for release"])
    source, shown = render_html(given), page(given)
    assert "NOT FOR RELEASE" in shown.by_id["not-for-release"]
    assert "seeded: not for release" in shown.by_id["not-for-release"]
    assert "What was promised" not in shown.text
    assert "<title>NOT FOR RELEASE: Privacy report</title>" in source
    assert "NOT FOR RELEASE" in plain_text(given)


def test_no_banner_when_releasable() -> None:
    assert "NOT FOR RELEASE" not in render_html(certificate())
    assert "NOT FOR RELEASE" not in plain_text(certificate())


def test_a_reason_against_release_outweighs_the_flag() -> None:
    assert "NOT FOR RELEASE" in page(certificate(reasons=["seeded"])).text


def test_releasable_must_be_a_truth_value() -> None:
    with pytest.raises(CertificateError, match="'releasable' must be true or false, not 'false'"):
        render_html(certificate(releasable="false"))


def test_warnings_come_before_the_promise() -> None:
    shown = page(certificate(warnings=["delta is larger than 1/n"])).text
    assert 0 < shown.index("delta is larger than 1/n") < shown.index("What was promised")
    assert "Warning" not in page(certificate()).text


def test_assumptions_are_listed() -> None:
    assert "the number of rows, 32561, is public" in page(certificate()).text
    assert "the number of rows, 32561, is public" in plain_text(certificate())


# --- budget and pipeline -----------------------------------------------------------------------


def test_stacked_bar_has_the_widths_of_the_shares() -> None:
    shares = [0.2, 0.5, 0.3]
    events = [gaussian(f"stage {i}", 90.0, 1, share) for i, share in enumerate(shares)]
    rects = [
        given
        for tag, given in page(certificate(events=events)).attributes
        if tag == "rect" and given.get("height") == "44"
    ]
    assert [float(str(r["width"]).rstrip("%")) for r in rects] == [20.0, 50.0, 30.0]
    assert [float(str(r["x"]).rstrip("%")) for r in rects] == [0.0, 20.0, 70.0]


def test_every_event_is_labelled_with_share_and_epsilon_alone() -> None:
    shown = page(certificate()).text
    assert "1. PrivateCenter 1% 0.5 37.3 1" in shown
    assert "2. DPGD 99% 0.5 65 300" in shown


def test_each_stage_shows_its_kind_and_how_it_pays() -> None:
    shown = page(certificate())
    tags = [g["class"] for t, g in shown.attributes if t == "span" and "tag" in str(g.get("class"))]
    assert tags == ["tag free", "tag public", "tag private", "tag private"]
    assert "It took 1% of the budget." in shown.text
    assert "learning_rate 80" in shown.text
    assert "from the schema" in shown.text


def test_plain_stages_are_explained() -> None:
    given = certificate()
    given["plan"]["stages"].append({"name": "SoftPCA", "kind": "plain"})
    assert "makes every later step more sensitive" in page(given).text
    assert "SoftPCA" in plain_text(given)


def test_a_plan_that_spent_nothing_has_nothing_to_recompute() -> None:
    shown = page(certificate(events=[]))
    assert "nothing to recompute" in shown.text
    assert "recompute" not in shown.ids
    assert "nothing to recompute" in " ".join(plain_text(certificate(events=[])).split())


# --- results -----------------------------------------------------------------------------------


def test_accuracy_is_drawn_tabled_and_disclaimed() -> None:
    shown = page(certificate(), results=RESULTS)
    for words in ("84.6%", "85.3%", "76.4%", "16,281", "11,600", "model.safetensors", "gain"):
        assert words in shown.text
    assert "The certificate does not cover these figures." in shown.text
    assert "with no protection at all" in shown.text
    assert "This model, with privacy: 84.6%" in shown.by_id["scores-text"]


@pytest.mark.parametrize("key", sorted(RESULTS))
def test_each_result_may_be_missing_or_alone(key: str) -> None:
    render_html(certificate(), results={k: v for k, v in RESULTS.items() if k != key})
    render_html(certificate(), results={key: RESULTS[key], "unheard of": object()})
    plain_text(certificate(), {key: RESULTS[key]})


def test_without_results_there_is_no_accuracy_section() -> None:
    assert "accuracy" not in page(certificate()).ids
    assert "accuracy" not in page(certificate(), results={"test_accuracy": None}).ids


def test_regression_results() -> None:
    given = {"task": "regression", "test_r2": 0.62, "test_rmse": float("nan")}
    shown = page(certificate(), results=given).text
    assert "0.62" in shown
    assert "not defined" in shown
    assert "does not cover these figures" in shown


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"test_accuracy": 84.6}, "test_accuracy must lie between 0 and 1"),
        ({"test_accuracy": "high"}, "test_accuracy must be a number"),
        ({"confusion": [[1, 2], [3]]}, "confusion must be a square"),
        ({"files": "model"}, "files must be a list"),
        ({"top_features": [{"name": "x"}]}, "the weight of 'x'"),
        ([], "results must be a mapping"),
    ],
)
def test_results_that_cannot_be_shown_are_refused(results: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        render_html(certificate(), results=results)


# --- checking the claim ------------------------------------------------------------------------


def run_snippet(given: dict[str, Any], folder: Path) -> tuple[float, str]:
    script = folder / "recompute.py"
    script.write_text(page(given).by_id["recompute"], encoding="utf-8")
    out = io.StringIO()
    with redirect_stdout(out):
        runpy.run_path(str(script), run_name="__main__")
    printed = re.fullmatch(r"epsilon (\S+), claimed (\S+): (.+)\n", out.getvalue())
    assert printed is not None
    assert float(printed[2]) == given["epsilon"]
    return float(printed[1]), printed[3]


CLAIMS = {
    "gaussian": certificate(),
    "added or removed": certificate(neighbors="add_or_remove_one"),
    "any swap": certificate(epsilon=2.16, neighbors="replace_one"),
    "tiny": certificate(epsilon=0.00044, events=[gaussian("a", 3300.0, 1, 1.0)]),
    "sampled": certificate(
        epsilon=1.52,
        accountant="pld",
        events=[gaussian("a", 60.0, 1, 0.1), poisson("b", 1.1, 1000, 0.01, 0.9)],
    ),
    "sampled, any swap": certificate(
        epsilon=2.49,
        accountant="pld",
        neighbors="replace_one",
        events=[gaussian("a", 60.0, 1, 0.1), poisson("b", 1.1, 1000, 0.01, 0.9)],
    ),
}


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_snippet_on_the_page_confirms_the_claim(name: str, tmp_path: Path) -> None:
    given = CLAIMS[name]
    epsilon, verdict = run_snippet(given, tmp_path)
    assert epsilon <= given["epsilon"]
    assert verdict == "the claim holds"
    events = [Event.from_dict(event) for event in given["events"]]
    ours = accountants.epsilon(events, given["delta"], given["neighbors"])
    assert epsilon == pytest.approx(ours, rel=1e-4)


def test_snippet_on_the_page_rejects_a_false_claim(tmp_path: Path) -> None:
    false = certificate(
        events=[gaussian("PrivateCenter", 37.3, 1, 0.01), gaussian("DPGD", 64.8, 300, 0.99)]
    )
    epsilon, verdict = run_snippet(false, tmp_path)
    assert epsilon == pytest.approx(1.00238, rel=1e-5)
    assert verdict == "THE CLAIM DOES NOT HOLD"


def test_snippet_holds_no_text_from_the_certificate() -> None:
    given = certificate(events=[gaussian("x\nimport os; os.abort()", 65.0, 300, 1.0)])
    assert "abort" not in page(given).by_id["recompute"]
    assert "abort" in page(given).by_id["stack-text"]


def test_command_to_verify_is_given() -> None:
    assert "tacit verify certificate.json" in page(certificate()).text
    assert "tacit verify certificate.json" in plain_text(certificate())


def test_small_print() -> None:
    shown = page(certificate()).text
    for words in ("exact Gaussian", "3 × 10⁻⁴⁸", "numpy 2.4.6", "15 November 2026", "3f3f3f"):
        assert words in shown


def test_real_certificates_are_read() -> None:
    spent = Expense.weigh([("DPGD", Gaussian(65.0, 300))], 1e-5, "replace_special")
    issued = Certificate(
        1.0, 1e-5, "replace_special", events=tuple(spent), plan=certificate()["plan"]
    )
    assert "2.72" in page(issued.to_dict()).text
    assert "2.72" in plain_text(issued.to_dict())


def test_every_relation_and_event_of_the_library_has_words() -> None:
    assert set(text.RELATIONS) == set(NEIGHBORS)
    assert set(html._AS_SOURCE) == set(EVENTS)


# --- damaged certificates ----------------------------------------------------------------------

OPTIONAL = {"classes", "note"}


def required(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all keys that a certificate must have."""
    if isinstance(value, dict):
        for key, item in value.items():
            inside_settings = "parameters" in path and "plan" in path
            if key in OPTIONAL or inside_settings or "versions" in path:
                continue
            if not (key == "parameters" and "plan" in path):
                yield (*path, key)
            yield from required(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from required(item, (*path, index))


SAMPLED = certificate(events=[poisson("DPSGD", 1.5, 400, 0.01, 1.0)], accountant="pld")


@pytest.mark.parametrize("path", list(required(SAMPLED)), ids=str)
def test_a_missing_key_is_named(path: tuple[Any, ...]) -> None:
    damaged = copy.deepcopy(SAMPLED)
    holder: Any = damaged
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]
    with pytest.raises(CertificateError, match=re.escape(path[-1])):
        render_html(damaged)
    with pytest.raises(CertificateError, match=re.escape(path[-1])):
        render_text(damaged)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "tacit-certificate/9"}, "this version reads 'tacit-certificate/1'"),
        ({"epsilon": "1"}, "'epsilon' must be a number"),
        ({"epsilon": True}, "'epsilon' must be a number"),
        ({"epsilon": float("inf")}, "'epsilon' must be positive and finite"),
        ({"epsilon": float("nan")}, "'epsilon' must be a number"),
        ({"delta": 1.0}, "'delta' must lie between"),
        ({"numerical_delta": 1e-3}, "'numerical_delta' must lie below delta"),
        ({"neighbors": "friends"}, "'neighbors' is 'friends'; known are replace_special"),
        ({"events": "none"}, "'events' must be a list"),
        ({"events": [7]}, re.escape("'events[0]' must be a mapping")),
        ({"events": [gaussian("a", 65.0, 300, 0.5)]}, "do not add up to 1"),
        ({"events": [gaussian("a", 65.0, 300, -1.0)]}, re.escape("events[0].share")),
        ({"events": [gaussian("a", 0.0, 300, 1.0)]}, "noise_multiplier must be positive"),
        ({"events": [gaussian("a", 1.0, 1, 1.0) | {"kind": "laplace"}]}, "known are gaussian"),
        ({"plan": None}, "'plan' must be a mapping"),
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
    assert hostile.attributes == innocent.attributes
    assert "script" not in hostile.tags
    assert hostile.text.count("<script>alert(1)</script>") >= 20
    assert "{{ 7*7 }}" in hostile.text


def test_hostile_text_is_shown_as_it_is_in_a_terminal() -> None:
    given = spoilt(certificate(warnings=["w"], releasable=False, reasons=["r"]))
    shown = "".join(plain_text(given, spoilt(RESULTS), width=400).split())
    assert "[bold]x[/nope]" in shown


@pytest.mark.parametrize("char", ["\x1b", "\x07", "\x00", "\x9b", "\u202e", "\ud800"])
def test_control_characters_are_spelt_out(char: str) -> None:
    given = certificate(assumptions=[f"before{char}[2Jafter"])
    for shown in (render_html(given), plain_text(given)):
        assert char not in shown
        assert f"before\\u{ord(char):04x}[2Jafter" in shown
        shown.encode()


def test_text_keeps_to_its_line() -> None:
    assert "a b c" in plain_text(certificate(assumptions=["a\nb\u2028c"]))


# --- the page itself ---------------------------------------------------------------------------


def test_page_is_self_contained() -> None:
    source = render_html(certificate(), results=RESULTS)
    shown = Page(source)
    assert source.startswith("<!DOCTYPE html>")
    policies = [
        given["content"]
        for tag, given in shown.attributes
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies == [CSP]
    assert not {"script", "img", "iframe", "object", "embed", "base", "form"} & set(shown.tags)
    for _, given in shown.attributes:
        assert "src" not in given
        assert not any(name.startswith("on") for name in given)
        assert given.get("href") in (None, "data:,", "#warnings")
    assert not re.search(r"url\(|@import|https?:", source)


def test_page_is_accessible() -> None:
    warned = certificate(warnings=["w"], releasable=False, reasons=["r"])
    shown = page(warned, results=RESULTS)
    assert ("html", {"lang": "en-GB"}) in shown.attributes
    assert shown.headings.count("h1") == 1
    levels = [int(heading[1]) for heading in shown.headings]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert len(shown.ids) == len(set(shown.ids))
    for tag, given in shown.attributes:
        if tag == "th":
            assert given["scope"] in ("row", "col")
        if tag == "svg":
            assert given.get("role") == "img" or given.get("aria-hidden") == "true"
        for name in str(given.get("aria-labelledby") or "").split():
            assert shown.by_id[name].strip()
    assert shown.tags.count("desc") == 3


PAIRS = [
    *((ink, ground) for ink in ("ink", "muted", "strong") for ground in ("bg", "panel")),
    *((f"{kind}-ink", f"{kind}-bg") for kind in ("warn", "stop", *text.HOW_IT_PAYS)),
    *(("on", f"s{n}") for n in range(8)),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_contrast_is_enough_to_read(scheme: str, ink: str, ground: str) -> None:
    source = render_html(certificate())
    light, dark = re.findall(r":root \{(.*?)\}", source, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): #(\w{6})", light if scheme == "light" else dark))
    one, other = sorted((_luminance(colours[ink]), _luminance(colours[ground])))
    assert (other + 0.05) / (one + 0.05) >= 4.5  # WCAG 2.2, 1.4.3


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# --- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (32561, "32,561"),
        (80.0, "80"),
        (64.8123, "64.81"),
        (0.1, "0.1"),
        (1e-5, "10⁻⁵"),
        (3.0712e-05, "3.071 × 10⁻⁵"),
        (0.00099999, "10⁻³"),
        (1.5e9, "1.5 × 10⁹"),
        (-2.5, "−2.5"),
        (-3, "−3"),
        (0.0, "0"),
        (float("inf"), "∞"),
        (float("-inf"), "−∞"),
    ],
)
def test_numbers_read_well(value: float, shown: str) -> None:
    assert text.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "none"),
        (True, "yes"),
        ("auto", "auto"),
        ([], "none"),
        ([0.5, "a"], "0.5, a"),
        (list(range(50)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … (50 in all)"),
        ({"age": [0, 90]}, "age: 0, 90"),
    ],
)
def test_settings_read_well(value: Any, shown: str) -> None:
    assert text.setting(value) == shown


def test_claims_are_shown_with_every_digit() -> None:
    assert text.exact(1.2345678) == "1.2345678"
    assert text.exact(3.07115e-05) == "3.07115 × 10⁻⁵"
    assert "1.2345678" in page(certificate(epsilon=1.2345678)).text


def test_dates_that_cannot_be_read_are_shown_as_they_are() -> None:
    assert "last Tuesday" in page(certificate(created="last Tuesday")).text


# --- the terminal ------------------------------------------------------------------------------


def test_terminal_version_prints_in_colour() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=70)
    console.print(render_text(certificate(releasable=False), RESULTS))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[" in shown
    assert "NOT FOR RELEASE" in shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_plain_text_is_plain_and_keeps_its_width(width: int) -> None:
    shown = plain_text(certificate(), RESULTS, width=width)
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= width
    for words in ("PrivateCenter", "DPGD", "84.6%", "2.72"):
        assert words in shown


def test_plain_text_is_plain_even_where_colour_is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    assert "\x1b" not in plain_text(certificate())


def test_rendering_does_not_touch_its_arguments() -> None:
    given, results = certificate(), copy.deepcopy(RESULTS)
    render_html(given, results=results)
    plain_text(given, results)
    assert given == certificate()
    assert results == RESULTS
