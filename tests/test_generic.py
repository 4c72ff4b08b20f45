"""What is made for any stage and any trainer names none of them: it asks what they can do."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tacit
from tacit import preprocessing, trainers
from tacit.preprocessing import Stage
from tacit.preprocessing.base import NoiselessStage, PrivateStage
from tacit.trainers import Trainer

SOURCE = Path(tacit.__file__).parent
BASES = {Stage, PrivateStage, NoiselessStage, Trainer}
LISTS = {"plan/recipes.py", "plan/defaults.py"}  # which are lists of stages and trainers
FOLDERS = ("plan", "model_selection", "engine")
GENERIC = [path for folder in FOLDERS for path in sorted((SOURCE / folder).rglob("*.py"))]
GENERIC = [path for path in GENERIC if path.relative_to(SOURCE).as_posix() not in LISTS]
GENERIC += [SOURCE / "persistence.py", SOURCE / "trainers" / "base.py"]


def kinds(base):
    """A class and all that are derived from it."""
    return {base, *(kind for cls in base.__subclasses__() for kind in kinds(cls))}


CONCRETE = {cls.__name__ for base in (Stage, Trainer) for cls in kinds(base) - BASES}


def named(source):
    """Concrete stages and trainers that a module imports, mentions, or compares names with."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.alias):
            found |= {node.name.split(".")[-1], node.asname}
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found & CONCRETE


@pytest.mark.parametrize("path", GENERIC, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_generic_module_names_no_concrete_stage_or_trainer(path):
    assert not named(path.read_text("utf-8"))


def test_every_public_stage_and_trainer_is_looked_for():
    listed = [
        vars(package)[name] for package in (preprocessing, trainers) for name in package.__all__
    ]
    own = [c for c in listed if isinstance(c, type) and issubclass(c, Stage | Trainer)]
    assert {cls.__name__ for cls in own if cls not in BASES} <= CONCRETE
    assert len(CONCRETE) > 40


@pytest.mark.parametrize(
    "line",
    [
        "from tacit.trainers import DPGD",
        "from tacit.trainers import DPGD as descent",
        "isinstance(stage, preprocessing.PrivateCenter)",
        "stage.name == 'ClipNorm'",
        "def f():\n    from tacit.preprocessing.free import Normalize",
    ],
)
def test_a_concrete_class_is_found_however_it_is_named(line):
    assert named(line)


def test_what_a_message_recommends_is_no_name():
    assert not named("raise InputError('end the stages in ClipNorm(radius)')")
