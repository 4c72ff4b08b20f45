"""The learner of Theorem 1: its guarantee covers what runs, and holds where it is affordable."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm
from tacit.privacy import Budget
from tacit.privacy.events import NEIGHBORS, Selection
from tacit.research.instances import large_margin_mixture
from tacit.research.theory import halfspace_learner, halfspaces

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
GIVEN = {**BUDGET, "margin": 0.5, "gap": 0.5}


def test_it_asks_for_the_fewest_rows_that_reach_the_error():
    found = halfspace_learner(0.2, 2, **GIVEN)
    assert found.guarantee.value <= 0.2
    fewer = halfspace_learner(0.2, 2, **GIVEN, private=found.private - 1)
    assert fewer.guarantee.value > 0.2
    assert found.public == halfspaces.sizes(0.2, 2, epsilon=1.0, margin=0.5, gap=0.5).public
    assert found.margin == pytest.approx(0.45)  # nine tenths of it


def test_rows_at_hand_give_what_they_reach():
    few, many = (halfspace_learner(0.2, 2, **GIVEN, private=n) for n in (2_000, 200_000))
    assert few.guarantee.value > many.guarantee.value
    with pytest.raises(InputError, match="public rows leave no margin"):
        halfspace_learner(0.2, 2, **GIVEN, public=100)
    with pytest.raises(InputError, match="no margin is left"):
        halfspace_learner(0.2, 2, **GIVEN, xi=0.2)
    with pytest.raises(InputError, match=r"reaches error=0.0001: .* pass more steps="):
        halfspace_learner(1e-4, 2, **GIVEN)


@pytest.mark.parametrize("neighbors", sorted(NEIGHBORS))
def test_the_plan_that_runs_has_no_more_noise_than_the_guarantee_allows(neighbors):
    found = halfspace_learner(0.3, 2, **GIVEN, neighbors=neighbors, steps=2_000)
    plan = Plan(
        Budget(**BUDGET), (ClipNorm(1.0),), found.trainer(), get_loss("hinge"), neighbors
    ).calibrate(size=found.private, columns=2, classes=2)
    assert 0.95 < plan.noise_multiplier / found.noise_multiplier <= 1
    (_, steps), (_, choice) = plan.spent
    assert steps.count == found.runs * found.steps
    assert choice == Selection(found.choice_noise)
    trainer = plan.trainer
    assert (trainer.radius, trainer.clip, trainer.average) == (found.radius, 1.0, "uniform")


def test_the_bound_of_a_run_is_that_of_descent_with_its_part_of_the_budget():
    found = halfspace_learner(0.3, 3, **GIVEN, steps=1_000)
    more = replace(found, failure=found.failure / 2)
    assert more.guarantee.value > found.guarantee.value
    longer = replace(found, steps=10**7)
    assert longer.guarantee.value < found.guarantee.value


def test_it_learns_an_instance_with_as_many_rows_as_it_asks_for():
    d = 20
    facts = large_margin_mixture(2, d, seed=0).facts
    found = halfspace_learner(
        0.3, 1, **BUDGET, margin=facts["margin"], gap=facts["gap"], steps=1_500
    )
    assert 1_000 < found.private < 20_000 and 300_000 < found.public < 400_000
    made = large_margin_mixture(found.private + found.public + 2_000, d, seed=1)
    rows, labels = made.rows, made.labels
    own, fresh = slice(found.private), slice(found.private, found.private + 2_000)
    model = found.estimator(rows[found.private + 2_000 :], random_state=0)
    model.fit(rows[own], labels[own])
    assert model.certificate_.verify().holds
    assert np.mean(model.predict(rows[fresh]) != labels[fresh]) <= 0.3
    coefficients = model.coef_ @ rows[:1].T  # nothing but one component is in them
    assert coefficients.shape == (1, 1)
    assert np.linalg.norm(model.coef_) <= found.radius * (1 + 1e-6)


def test_the_command_says_how_many_rows_an_error_rate_takes():
    call = ["theory", "--n", "5000", "--d", "50", "--epsilon", "1", "--delta", "1e-6"]
    call += ["--margin", "0.5", "--components", "2", "--gap", "0.5", "--shift", "0.01"]
    runner = CliRunner()
    shown = json.loads(runner.invoke(app, [*call, "--error", "0.3", "--json"]).output)
    found = halfspace_learner(0.3, 2, **GIVEN, shift=0.01)
    assert shown["sizes"]["private"] == found.private
    assert shown["sizes"]["public"] == found.public
    printed = runner.invoke(app, [*call, "--error", "0.3"])
    assert f"{found.private:,} private rows" in printed.output
    without = json.loads(runner.invoke(app, [*call, "--json"]).output)
    assert "sizes" not in without
    moved = {each["name"]: each["value"] for each in without["bounds"]}
    still = json.loads(runner.invoke(app, [*call[:-2], "--json"]).output)
    kept = {each["name"]: each["value"] for each in still["bounds"]}
    name = "halfspace, public components"
    assert moved[name] > kept[name]  # a shift costs
    refused = runner.invoke(app, [*call[:-6], "--error", "0.3"])
    assert refused.exit_code == 2 and "--error needs --components and --gap" in refused.output
