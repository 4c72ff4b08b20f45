"""What an installation and an import cost."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires

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


def seconds(statement):
    """Processor time of a new interpreter: other tests that run at the same time do not count."""
    before = os.times()
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = os.times()
    return (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["import tacit", "from tacit import DPLinearClassifier"])
def test_importing_is_as_quick_as_scikit_learn(statement):
    ours, theirs = (
        min(seconds(each) for _ in range(4)) for each in (statement, "import sklearn.linear_model")
    )
    assert ours <= 1.5 * theirs
