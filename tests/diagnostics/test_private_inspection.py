"""Looking through noise: what it costs, what it says, and the command line."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit import Ledger, recipe
from tacit.cli.main import app
from tacit.diagnostics import RowFacts, advise, inspect, inspect_privately
from tacit.diagnostics.page import render_page
from tacit.diagnostics.text import render_inspection
from tacit.exceptions import BudgetError, InputError, MissingBound
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.plan.defaults import resolve_relation
from tacit.preprocessing import Normalize
from tacit.privacy import Certificate
from tacit.privacy.accounting.accountants import epsilon as epsilon_of
from tacit.privacy.accounting.accountants import gaussian_epsilon
from tacit.privacy.budget import Budget
from tacit.privacy.events import sensitivity
from tacit.research.theory import descent, projection

BUDGET = {"epsilon": 0.5, "delta": 1e-6}


def unit_rows(n=4000, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return Normalize().transform(rng.normal(size=(n, d)) * 0.5 ** np.arange(d) + np.eye(d)[0])


@pytest.mark.parametrize("neighbors", ["replace_special", "add_or_remove_one", "replace_one"])
def test_the_certificate_states_what_was_spent_and_can_be_recomputed(neighbors):
    size = 5000 if neighbors == "add_or_remove_one" else None
    found = inspect_privately(
        unit_rows(), **BUDGET, bound=1.0, neighbors=neighbors, public_size=size
    )
    claim = found.certificate
    events = [item.event for item in claim.events]
    assert len(events) == 2 and claim.releasable and found.releasable
    assert epsilon_of(events, claim.delta - claim.numerical_delta, neighbors) <= 0.5
    assert epsilon_of(events, claim.delta, neighbors) >= 0.499
    assert claim.verify().holds
    assert Certificate.from_json(claim.to_json()) == claim
    assert found.n == (size or 4000)


def test_noise_has_the_deviation_that_the_events_state():
    """Of rows of zeros nothing but noise is released: d values on the diagonal, many runs."""
    d, runs = 5, 60
    drawn, stated = [], 0.0
    for seed in range(runs):
        found = inspect_privately(np.zeros((100, d)), **BUDGET, bound=2.0, random_state=seed)
        stated = found.certificate.events[1].event.noise_multiplier * 4.0 / 100
        drawn.append(found.eigenvalues.sum())  # the trace of the noise: variance dσ²
    spread = np.std(drawn) / (math.sqrt(d) * stated)
    assert 0.6 < spread < 1.5  # χ² with 60 degrees of freedom: far beyond six deviations
    assert not found.releasable and "seeded" in found.certificate.reasons[0]


def test_one_row_moves_what_is_summed_by_no_more_than_its_bound():
    """Rows beyond their bound are shortened: with the same noise, outcomes lie within R²/n."""
    rows = unit_rows(50)
    other = rows.copy()
    other[7] = 1e9
    shown = [inspect_privately(x, **BUDGET, bound=1.0, random_state=3) for x in (rows, other)]
    gap = np.abs(shown[0].eigenvalues - shown[1].eigenvalues).sum()
    assert gap <= 2 / 50 * math.sqrt(6) + 1e-9


def test_true_values_lie_within_the_stated_edge_and_advice_agrees():
    rows = unit_rows(20_000)
    truth = np.sort(np.linalg.eigvalsh(rows.T @ rows / len(rows)))[::-1]
    found = inspect_privately(rows, epsilon=1.0, delta=1e-6, bound=1.0, random_state=0)
    assert np.abs(found.eigenvalues - truth).max() <= found.edge
    around = np.sqrt(((rows - rows.mean(0)) ** 2).sum(1).mean())
    assert found.rms_distance == pytest.approx(around, abs=0.02)
    assert found.mean_norm == pytest.approx(np.linalg.norm(rows.mean(0)), abs=0.02)
    assert found.advice.best.recipe == inspect(rows).advice.best.recipe == "dpsgd-f"


def test_what_must_be_known_is_asked_for():
    with pytest.raises(MissingBound, match="Normalize"):
        inspect_privately(unit_rows(), **BUDGET)
    with pytest.raises(MissingBound, match="public_size="):
        inspect_privately(unit_rows(), **BUDGET, bound=1.0, neighbors="add_or_remove_one")
    with pytest.raises(InputError, match="public"):
        inspect_privately(unit_rows(), **BUDGET, bound=1.0, public_size=7)
    with pytest.raises(InputError):
        inspect_privately(np.array([[np.nan, 1.0]]), **BUDGET, bound=1.0)
    with pytest.raises(InputError):
        inspect_privately(np.empty((0, 3)), **BUDGET, bound=1.0)


def test_a_ledger_is_charged_before_and_refuses_what_it_does_not_allow(tmp_path):
    book = Ledger(tmp_path / "ledger.db").create("rows", epsilon=0.6, delta=1e-6)
    found = inspect_privately(unit_rows(), **BUDGET, bound=1.0, ledger=book)
    (charge,) = book.charges()
    assert charge.outcome == "summary" and charge.certificate == found.certificate.digest
    assert 0.499 < book.remaining().spent <= 0.5001
    assert found.certificate.plan["ledger"]["dataset"] == "rows"
    with pytest.raises(BudgetError):
        inspect_privately(unit_rows(), **BUDGET, bound=1.0, ledger=book)
    with pytest.raises(InputError, match="seeded"):
        inspect_privately(unit_rows(), **BUDGET, bound=1.0, ledger=book, random_state=0)
    assert len(book.charges()) == 1 and not book.check()


@pytest.mark.parametrize("name", ["dp-gd", "dpsgd-f", "pillar", "dp-pca", "ptr-pca"])
def test_advice_counts_what_its_recipe_spends(monkeypatch, name):
    """What descent is left with in a bound is what the recipe's own plan leaves it."""
    tails = np.append(0.5 ** np.arange(20), 0.0)
    values = -np.diff(tails)
    losses = np.sqrt(np.append(values, 0.0))
    seen = []
    for module, names in ((descent, ("risk", "clipped_risk")), (projection, ("risk",))):
        for each in names:
            real = getattr(module, each)

            def spy(*given, real=real, **options):
                seen.append(options["epsilon"])
                return real(*given, **options)

            monkeypatch.setattr(module, each, spy)
    facts = RowFacts(5000, 20, 20, tails, values, losses, values / 2, 1.0, 0.3)
    option = {o.recipe: o for o in advise(facts, epsilon=2.0, delta=1e-6).options}[name]
    needs = {"pillar": {"public": unit_rows(100, 20)}}.get(name, {})
    made = recipe(name, **option.settings, **needs)
    budget, stages = Budget(2.0, 1e-6), tuple(made["stages"])
    relation = resolve_relation("auto", stages, made["trainer"])
    plan = Plan(budget, stages, made["trainer"], get_loss("logistic"), relation)
    found = plan.calibrate(size=5000, columns=20, classes=2)
    left = found.facts.mu * sensitivity(plan.neighbors)  # what the plan leaves for training
    assert any(epsilon == pytest.approx(gaussian_epsilon(left, 1e-6)) for epsilon in seen)


def test_advice_follows_the_rows():
    flat = np.append(np.arange(50, 0, -1) / 50, 0.0)
    low = np.append([1.0, 0.3], np.zeros(49))

    def best(n, typical, tails, **more):
        values = -np.diff(tails)
        losses = np.sqrt(np.append(values, 0.0))
        facts = RowFacts(n, 50, 50, tails, values, losses, np.full(50, 0.01), 1.0, typical)
        return advise(facts, **more)

    assert best(1000, 0.3, flat).best.recipe == "dpsgd-f"
    assert best(1000, 1.0, flat).best.recipe == "dp-gd"
    public = next(o for o in best(1000, 1.0, low, epsilon=0.05).options if o.recipe == "pillar")
    assert public.settings["n_components"] == 2
    assert public.needs and "--public" in public.flags
    values = [option.risk.value for option in best(1000, 0.5, flat).options]
    assert values == sorted(values)
    with pytest.raises(InputError, match="eigenvalues"):
        best(1000, 0.5, flat[:-1])


# --- the command line ----------------------------------------------------------------------------

SCHEMA = """columns:
  a: {kind: number, low: -3, high: 3}
  "b<script>": {kind: number, low: -3, high: 3}
  c: {kind: number, low: -3, high: 3}
target: y
classes: ["no", "yes"]
"""


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    x = rng.normal(size=(300, 3)) + y[:, None]
    lines = ["a,b<script>,c,y"]
    names = np.where(y, "yes", "no")
    lines += [f"{r[0]:.3f},{r[1]:.3f},{r[2]:.3f},{c}" for r, c in zip(x, names, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    return [str(tmp_path / "rows.csv"), "--schema", str(tmp_path / "schema.yaml")]


def run(*arguments):
    return CliRunner().invoke(app, ["inspect", *arguments])


def test_the_command_shows_one_screen_and_draws_a_page(table, tmp_path):
    out = tmp_path / "seen"
    done = run(*table, "--out", str(out), "--quiet")
    assert done.exit_code == 0, done.output
    assert "NOT RELEASABLE" in done.output and "tacit fit --recipe" in done.output
    assert len(done.output.splitlines()) < 60
    page = (out / "inspection.html").read_text()
    assert "NOT RELEASABLE" in page and page.count("<svg") == 5
    assert "<script" not in page and "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert {path.name for path in out.iterdir()} == {"inspection.html", "manifest.json"}
    assert run(*table, "--out", str(out)).exit_code == 2  # nothing is overwritten


def test_the_command_follows_a_run_if_asked_to(table, tmp_path):
    out = tmp_path / "seen"
    done = run(*table, "--trajectory", "--out", str(out), "--quiet")
    assert done.exit_code == 0, done.output
    assert "accuracy with k directions" in done.output and "NOT RELEASABLE" in done.output
    page = (out / "inspection.html").read_text()
    assert "Singular values of a run" in page and page.count("<svg") >= 6
    budget = ("--private", "--epsilon", "1", "--delta", "1e-6")
    refused = run(*table, *budget, "--trajectory")
    assert refused.exit_code == 2 and "--trajectory reads gradients without noise" in refused.stderr


def test_json_says_that_it_may_not_be_released(table):
    data = json.loads(run(*table, "--json").stdout)
    assert data["releasable"] is False and data["advice"]["best"]
    assert data["separability"]["classes"] == 2 and data["clipping"]["clipped"]


def test_the_private_command_certifies_and_charges(table, tmp_path):
    book, out = tmp_path / "ledger.db", tmp_path / "seen"
    Ledger(book).create("rows", epsilon=1.0, delta=1e-6)
    flags = ["--private", "--epsilon", "0.5", "--delta", "1e-6", "--out", str(out)]
    done = run(*table, *flags, "--ledger", str(book), "--dataset", "rows")
    assert done.exit_code == 0, done.output
    assert "Looked through noise" in done.output and "NOT RELEASABLE" not in done.output
    assert Certificate.load(out / "certificate.json").verify().holds
    assert CliRunner().invoke(app, ["verify", str(out)]).exit_code == 0
    assert Ledger(book, "rows").charges()[0].outcome == "summary"
    done = run(*table, *flags[:-2], "--epsilon", "0.9", "--ledger", str(book), "--dataset", "rows")
    assert done.exit_code == 3
    data = json.loads(run(*table, *flags[:-2], "--json", "--seed", "1").stdout)
    assert data["releasable"] is False and data["certificate"]["reasons"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--private"],
        ["--epsilon", "1"],
        ["--ledger", "x.db"],
        ["--private", "--epsilon", "1", "--delta", "1e-6", "--radius", "0.1"],
        ["--target", "nothing"],
        ["--train-epsilon", "-1"],
    ],
)
def test_flags_that_do_not_go_together_are_refused(table, flags):
    done = run(*table, *flags)
    assert done.exit_code == 2 and "error:" in done.output


def test_text_and_page_of_a_private_look(table):
    found = inspect_privately(unit_rows(), **BUDGET, bound=1.0, random_state=1)
    assert "NOT FOR RELEASE" in render_inspection(found)
    assert "NOT FOR RELEASE" in render_page(found)
