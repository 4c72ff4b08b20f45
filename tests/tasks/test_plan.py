"""A plan says what a fit does, and asks for the defaults of Python."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tasks.people import AMOUNT, CLASSES, COLUMNS, table

from tacit.cli.settings import Settings
from tacit.cli.tasks.fit import fit as fit_table
from tacit.cli.tasks.plan import events, tuning
from tacit.cli.tasks.plan import plan as plan_of
from tacit.data.schema import Schema
from tacit.exceptions import BudgetError, InputError
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor


@pytest.mark.parametrize(
    ("facts", "settings"),
    [
        (CLASSES, Settings(1.0, 1e-5)),
        (AMOUNT, Settings(1.0, 1e-5)),
        (CLASSES, Settings(0.3, 1e-6, "dp-gd", neighbors="replace_one", steps=20)),
        (CLASSES, Settings(1.0, 1e-5, "dpsgd", steps=5, arithmetic="fast")),
        (AMOUNT, Settings(1.0, 1e-5, "jl", components=4, steps=20, loss="huber")),
        (CLASSES, Settings(1.0, 1e-5, neighbors="add_or_remove_one", loss="huber-hinge")),
    ],
    ids=lambda case: f"{case.recipe}-{case.neighbors}" if isinstance(case, Settings) else "",
)
def test_a_plan_lists_what_a_fit_then_spends(tmp_path, facts, settings):
    schema = Schema.from_dict(facts)
    calibrated = plan_of(settings, 600, schema=schema)
    size = {"public_size": 600} if settings.neighbors == "add_or_remove_one" else {}
    drop = ("rich",) if schema.target_bounds else ("amount",)
    fitted = fit_table(table(drop=drop), settings, schema=schema, out=tmp_path / "m", **size)
    certificate = fitted.estimator.certificate_.to_dict()
    assert events(calibrated) == certificate["events"]
    planned = calibrated.to_dict()
    ran = certificate["plan"]["trainer"]["parameters"]
    if settings.recipe == "auto" and schema.classes:  # they follow the norm of centred rows
        told = planned["trainer"]["parameters"]
        told |= {
            name: ran[name] for name in ("clip", "learning_rate", "intercept_fraction", "average")
        }
    assert planned["trainer"] == certificate["plan"]["trainer"]
    assert planned["columns"] == certificate["plan"]["columns"]
    assert calibrated.numerical_delta == certificate["numerical_delta"]


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("columns", [2, 40])
def test_defaults_are_those_of_the_estimators(classes, columns):
    """Of few columns least squares take sums, on the command line as in Python: one rule."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12_000, columns))
    labels = np.arange(12_000) % classes if classes else np.clip(rows[:, 0], -1, 1)
    model = DPLinearClassifier if classes else DPLinearRegressor
    own = {"classes": range(classes)} if classes else {"target_bounds": (-1, 1)}
    plan = model(8.0, 1e-5, **own).fit(rows, labels).plan_.plan
    fitted = plan.calibrate(size=12_000, columns=columns, classes=classes)
    planned = plan_of(Settings(8.0, 1e-5), 12_000, columns=columns, classes=classes)
    assert planned.to_dict() == fitted.to_dict()
    assert planned.spent == fitted.spent
    name = "SufficientStatistics" if (classes, columns) == (0, 2) else "DPGD"
    assert planned.trainer.name == name


def test_a_table_of_numbers_is_fitted_with_the_default_of_python(tmp_path):
    few = {"columns": {"age": COLUMNS["age"]}, "ignore": ["id", "hours", "job"]}
    schema, settings = Schema.from_dict({**AMOUNT, **few}), Settings(20.0, 1e-5)
    fitted = fit_table(table(2_000, drop=("rich",)), settings, schema=schema, out=tmp_path / "m")
    plan = fitted.estimator.certificate_.plan
    assert plan["trainer"] == plan_of(settings, 2_000, schema=schema).to_dict()["trainer"]


def test_a_recipe_or_a_setting_that_is_asked_for_is_what_runs():
    facts = {"columns": 2, "classes": 0}
    for asked in (
        Settings(8.0, 1e-5, "dpsgd-f"),
        Settings(8.0, 1e-5, steps=7),
        Settings(8.0, 1e-5, trainer="dp-gd", options=("clip=0.5",)),
    ):
        assert plan_of(asked, 12_000, **facts).trainer.name == "DPGD"
    tried = tuning(Settings(8.0, 1e-5, tune=("radius=1,2",)), 12_000, **facts)
    assert {plan.trainer.name for plan in tried.plans} == {"DPGD"}  # trials are of descent


def test_a_plan_needs_columns_from_one_source():
    schema = Schema.from_dict(CLASSES)
    assert plan_of(Settings(1.0, 1e-5), 100, columns=7, classes=3).facts.outputs == 3
    assert plan_of(Settings(1.0, 1e-5), 100, columns=7, classes=0).plan.loss.name == "squared"
    for options in (
        {},
        {"columns": 0},
        {"columns": 3, "schema": schema},
        {"classes": 3, "schema": schema},
        {"classes": 1, "columns": 3},
    ):
        with pytest.raises(InputError):
            plan_of(Settings(1.0, 1e-5), 100, **options)
    with pytest.raises(InputError, match="does not suit the target"):
        plan_of(Settings(1.0, 1e-5, loss="squared"), 100, schema=schema)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"epsilon": value} for value in (0.0, -1.0, float("nan"), float("inf"))),
        *({"delta": value} for value in (0.0, 1.0, -1e-5, float("nan"))),
        *({"neighbors": "friends"}, {"steps": 0}, {"components": 0}),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused_at_once(wrong):
    with pytest.raises(InputError):
        Settings(**{"epsilon": 1.0, "delta": 1e-5, **wrong})


def test_a_budget_below_the_noise_is_refused():
    with pytest.raises(BudgetError):
        plan_of(Settings(1.0, 1e-300), 100, columns=3)
