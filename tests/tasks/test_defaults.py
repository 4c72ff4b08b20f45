"""Defaults are Python's: the command line passes on what was given, and says what they are."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature

import pytest
from typer.main import get_command

from tacit.audit import audit
from tacit.cli.commands import COMMANDS
from tacit.cli.main import app
from tacit.cli.settings import Settings
from tacit.diagnostics import inspect, inspect_privately
from tacit.ledger import Ledger
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
from tacit.model_selection.search import Trials
from tacit.plan.recipes import RECIPES
from tacit.research.median import DPGeometricMedian
from tacit.research.price import price
from tacit.research.theory import Setting

STATED = [
    *(
        (command, f"--{name}", python, name)
        for command in ("fit", "plan")
        for name in ("neighbors", "arithmetic")
        for python in (DPLinearClassifier, DPLinearRegressor)
    ),
    *((command, "--trials", Trials, "expected") for command in ("fit", "plan")),
    *((command, "--strength", RECIPES["soft-pca"], "strength") for command in ("fit", "plan")),
    *(
        ("audit", f"--{name}", audit, name)
        for name in ("runs", "observe", "confidence", "neighbors")
    ),
    ("inspect", "--train-epsilon", inspect, "epsilon"),
    ("inspect", "--train-delta", inspect, "delta"),
    ("inspect", "--neighbors", inspect_privately, "neighbors"),
    *(
        ("median", f"--{name}", DPGeometricMedian, name)
        for name in ("steps", "anchor", "neighbors")
    ),
    *(("price", f"--{name}", price, name) for name in ("clip", "constant")),
    *(
        ("theory", f"--{name}", Setting, name)
        for name in ("norm", "lipschitz", "bound", "neighbors", "xi", "inflation")
    ),
    ("ledger create", "--neighbors", Ledger.create, "neighbors"),
]


def option_of(command, name):
    found = get_command(app)
    for word in command.split():
        found = found.commands[word]
    (option,) = [item for item in found.params if name in item.opts]
    return option


@pytest.mark.parametrize(("command", "name", "python", "parameter"), STATED)
def test_a_default_that_help_states_is_python_s_own(command, name, python, parameter):
    option = option_of(command, name)
    default = signature(python).parameters[parameter].default
    said = f"{default:g}" if isinstance(default, int | float) else default
    words = " ".join(option.help.split())
    assert option.default is None
    assert f"{said} unless given" in words or f"{said}, unless given" in words


def test_a_demo_spends_what_an_estimator_would():
    own = signature(DPLinearClassifier).parameters
    for name in ("epsilon", "delta"):
        assert option_of("demo", f"--{name}").default == own[name].default


def test_settings_are_the_same_options_of_fit_and_plan():
    for item in fields(Settings):
        name = {"options": "option", "stages": "stage"}.get(item.name, item.name)
        flag = f"--{name.replace('_', '-')}"
        fit, plan = (option_of(command, flag) for command in ("fit", "plan"))
        assert (fit.help, fit.default, fit.required) == (plan.help, plan.default, plan.required)


def test_every_command_of_the_registry_is_there():
    assert set(get_command(app).commands) == set(COMMANDS)
