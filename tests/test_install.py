"""What an installation and an import cost."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

HEAVY = {"torch", "pandas", "dask", "pyarrow", "polars", "matplotlib", "tensorflow", "jax"}
HEAVY |= {"onnxruntime", "pillow", "transformers"}


def needed(package, seen):
    """All that a plain installation of a package pulls in."""
    try:
        lines = requires(package) or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, lines):
        name = requirement.name.lower()
        if name not in seen and (
            not requirement.marker or requirement.marker.evaluate({"extra": ""})
        ):
            seen.add(name)
            needed(name, seen)


def test_the_core_installs_small():
    seen = set()
    needed("tacit", seen)
    assert {"numpy", "scikit-learn", "dp-accounting"} <= seen
    assert not seen & HEAVY


def test_what_lies_beside_the_code_is_installed_with_it():
    root = Path(__file__).parents[1]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    package, found = root / "src" / "tacit", set()
    for pattern in settings["tool"]["setuptools"]["package-data"]["tacit"]:
        found |= set(package.glob(pattern))
    built = {".py", ".pyc", ".c", ".h", ".so", ".pyd"}  # or what is built of
    lost = {p for p in package.rglob("*") if p.is_file() and p.suffix not in built} - found
    assert not lost


def seconds(statement):
    """Processor time of a new interpreter: other tests that run at the same time do not count."""
    before = os.times()
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = os.times()
    return (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )


@pytest.mark.slow
def test_importing_is_as_quick_as_scikit_learn():
    statements = (
        "import sklearn.linear_model",
        "import tacit",
        "from tacit import DPLinearClassifier",
    )
    theirs, *ours = (min(seconds(each) for _ in range(4)) for each in statements)
    assert max(ours) <= 1.5 * theirs
