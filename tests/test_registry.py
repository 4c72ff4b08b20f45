"""What is found by name: the library's own, and what research adds without being imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tacit
from tacit.diagnostics.advice import ADVISERS
from tacit.diagnostics.base import DIAGNOSES
from tacit.exceptions import InputError
from tacit.plan.recipes import RECIPES, TRAINERS
from tacit.registry import Registry

SOURCE = Path(tacit.__file__).parents[1]
COMMANDS = "print(sorted(c.callback.__name__ for c in app.registered_commands))"


def said(code):
    """What a fresh interpreter prints."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.strip()


def test_trainers_of_papers_are_found_by_name_though_nobody_imported_them():
    code = "from tacit import recipe; print(recipe('dp-gd', trainer='flattest')['trainer'].name)"
    assert said(code) == "FlattestDPGD"


def test_recipes_of_papers_come_after_those_of_the_library():
    names = list(RECIPES)
    assert names[0] == "dpsgd-f"
    assert names[-5:] == ["local", "gep", "adadps", "dp-raft", "dp-raft+pillar"]
    assert len(RECIPES) == len(names) == len(set(names))


@pytest.mark.parametrize("registry", [RECIPES, TRAINERS, DIAGNOSES, ADVISERS])
def test_every_registry_gets_something_from_research(registry):
    assert any(value.__module__.startswith("tacit.research.") for value in registry.values())
    assert "nothing of that name" not in registry


def test_the_commands_are_the_same_whichever_is_imported_first():
    first = said(f"from tacit.cli.main import app; {COMMANDS}")
    assert first == said(
        f"import tacit.research.commands; from tacit.cli.main import app; {COMMANDS}"
    )
    for name in ("fit", "median", "price", "reproduce", "theory"):
        assert f"'{name}'" in first


def test_a_fit_by_default_loads_nothing_of_research():
    code = """
import sys
import numpy as np
from tacit import DPLinearClassifier, load, save
X = np.random.default_rng(0).normal(size=(200, 3))
DPLinearClassifier(1.0, 1e-5, classes=[0, 1]).fit(X, (X[:, 0] > 0).astype(int))
print([name for name in sys.modules if name.startswith("tacit.research")])
"""
    assert said(code) == "[]"


def test_a_model_of_a_trainer_of_research_is_read_where_nobody_imported_it(tmp_path):
    rows = [[1.0, 0.0], [0.0, 1.0]] * 40
    trainer = TRAINERS["local"](steps=4)
    fitted = tacit.DPLinearClassifier(
        2.0,
        1e-5,
        classes=[0, 1],
        trainer=trainer,
        neighbors="replace_one",
        random_state=0,
        stages=[tacit.preprocessing.Normalize()],
    ).fit(rows, [0, 1] * 40)
    tacit.save(fitted, tmp_path / "model")
    code = f"""
import sys, tacit
model = tacit.load({str(tmp_path / "model")!r})
print(model.certificate_.plan["trainer"]["name"], model.certificate_.verify().holds)
"""
    assert said(code) == "LocalDPGD True"


def test_a_name_that_is_taken_is_refused():
    registry = Registry("recipe", "recipes", {"mine": len})
    registry.add("mine", len)  # the same once more is no other
    with pytest.raises(InputError, match="a recipe called 'mine' already"):
        registry.add("mine", max)
    assert registry["mine"] is len
