"""Bounds side by side: what applies, in which order, and what may be compared."""

from __future__ import annotations

import io
import json
import math
from dataclasses import FrozenInstanceError, replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.exceptions import InputError
from tacit.research.theory import Comparison, Risk, Setting, compare
from tacit.research.theory.compare import BOUNDS
from tacit.research.theory.show import show_comparison

SETTING = Setting(10_000, 300, 0.02, 1e-9, rank=50)
FULL = replace(
    SETTING,
    diameter=0.5,
    margin=0.3,
    components=20,
    decay=0.7,
    tail=0.01,
    clip=0.1,
    smoothness=0.25,
    neighbors="replace_one",
)


def test_with_all_facts_every_bound_applies():
    found = compare(FULL)
    assert set(found.bounds) == set(BOUNDS)
    assert not found.left_out
    assert all(math.isfinite(risk.value) and risk.value > 0 for risk in found.bounds.values())
    assert all(" et al. 20" in risk.source for risk in found.bounds.values())
    assert all(risk.assumes for risk in found.bounds.values())


def test_what_is_not_given_is_left_out_and_named():
    found = compare(SETTING)
    assert found.left_out["private mean first"] == "needs diameter"
    assert found.left_out["halfspace, public components"] == "needs margin and components"
    assert set(found.bounds) | set(found.left_out) == set(BOUNDS)
    assert "descent" in found.bounds


def test_what_a_theorem_does_not_cover_is_left_out_with_its_reason():
    found = compare(replace(FULL, epsilon=1.0, decay=0.4, xi=0.2))
    assert "beyond the corollary" in found.left_out["nobody below"]
    assert "must exceed 1/2" in found.left_out["decaying gradients, any d"]
    assert "γ − √(ξ(2 − ξ))" in found.left_out["halfspace, public components"]
    assert "decaying gradients" in found.bounds


def test_exact_bounds_come_first_and_groups_agree_in_all_that_matters():
    found = compare(FULL)
    exact = [risk.constant == "exact" for risk in found.bounds.values()]
    assert exact == sorted(exact, reverse=True)
    groups = found.groups()
    assert [set(group) for group in groups] == [
        {"descent", "rows as they come, with intercept", "projected rows", "nobody below"},
        {"descent, fresh rows", "nobody below, fresh rows"},
    ]
    for group in groups:
        risks = [found.bounds[name] for name in group]
        assert len({(r.kind, r.unit, r.constant, r.neighbors) for r in risks}) == 1
        upper = [r.value for r in risks if r.side == "upper"]
        assert upper == sorted(upper)
        assert max(r.value for r in risks if r.side == "lower") < min(upper)


def test_bounds_for_different_relations_are_not_compared():
    """A projection of private rows is analysed for rows replaced, whatever was asked for."""
    found = compare(replace(FULL, neighbors="replace_special"))
    assert found.bounds["projected rows"].neighbors == "replace_one"
    assert "projected rows" not in found.groups()[0]
    assert not found.bounds["projected rows"].comparable(found.bounds["descent"])


def test_more_rows_and_more_budget_never_hurt():
    for change in ({"n": 40_000}, {"epsilon": 0.04}):
        before, after = compare(FULL).bounds, compare(replace(FULL, **change)).bounds
        assert all(after[name].value <= before[name].value * (1 + 1e-12) for name in before)


def test_orders_are_never_comparable():
    risk = compare(FULL).bounds["private mean first"]
    assert not risk.comparable(risk)


def test_rank_is_all_of_it_unless_given():
    assert Setting(100, 30, 1.0, 1e-5).rank == 30
    assert Setting(20, 30, 1.0, 1e-5).rank == 20
    for wrong in ({"rank": 31}, {"components": 31}):
        with pytest.raises(InputError, match="more than these rows can have"):
            Setting(100, 30, 1.0, 1e-5, **wrong)
    for wrong in ({"n": 0}, {"norm": -1.0}, {"decay": math.nan}, {"neighbors": "?"}, {"delta": 2}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Setting(**{"n": 100, "d": 30, "epsilon": 1.0, "delta": 1e-5, **wrong})


def test_risks_are_values_and_have_plain_json():
    found = compare(FULL)
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["bounds"][0]["name"] == next(iter(found.bounds))
    risk = found.bounds["descent"]
    with pytest.raises(FrozenInstanceError):
        risk.value = 0.0
    empty = Risk(math.inf, "population", "up to a constant", "Pinto et al. 2024, Theorem 1")
    assert empty.to_dict()["value"] is None


# For people


def test_the_table_says_what_is_what():
    shown = io.StringIO()
    show_comparison(compare(FULL), Console(file=shown, width=160))
    text = shown.getvalue()
    assert text.startswith("10,000 rows of rank 50 in 300 columns; ε = 0.02, δ = 10⁻⁹")
    for words in (
        "Song et al. 2021, Theorem 3.1 †",
        "≥",
        "~",
        "95% sure",
        "as printed",
        "nothing else",
    ):
        assert words in text
    assert "Left out" not in text
    show_comparison(compare(SETTING), Console(file=shown, width=160))
    assert "private mean first: needs diameter" in shown.getvalue()


def test_nothing_at_all_is_no_error():
    shown = io.StringIO()
    show_comparison(Comparison(SETTING, {}, {"descent": "why"}), Console(file=shown, width=100))
    assert "descent: why" in shown.getvalue()


def run(*words):
    return CliRunner().invoke(app, ["theory", *map(str, words)])


ASKED = ["--n", 10_000, "--d", 300, "--rank", 50, "--epsilon", 0.02, "--delta", 1e-9]


def test_the_command_prints_a_table_or_json():
    done = run(*ASKED, "--diameter", 0.5)
    assert done.exit_code == 0
    assert "halfspace, all columns: needs margin" in done.output
    assert "private mean first: needs" not in done.output
    done = run(*ASKED, "--margin", 0.3, "--components", 20, "--decay", 0.7, "--json")
    assert done.exit_code == 0
    found = json.loads(done.output)
    assert found["setting"]["rank"] == 50
    by_name = {bound["name"]: bound for bound in found["bounds"]}
    expected = compare(replace(SETTING, margin=0.3, components=20, decay=0.7))
    assert by_name["descent"]["value"] == expected.bounds["descent"].value
    assert by_name["halfspace, public components"]["unit"] == "error rate"
    assert found["comparable"] == expected.groups()
    assert {"name": "private mean first", "why": "needs diameter"} in found["left_out"]


def test_the_command_says_what_cannot_be():
    done = run("--n", 10, "--d", 3, "--rank", 5, "--epsilon", 1, "--delta", 1e-5)
    assert done.exit_code == 2
    assert "rank=5 is more than these rows can have" in done.output
    assert run("--n", 10, "--d", 3, "--epsilon", 0, "--delta", 1e-5).exit_code == 2
