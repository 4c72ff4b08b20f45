"""What an installation and an import cost."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement

HEAVY = {"torch", "pandas", "dask", "pyarrow", "polars", "matplotlib", "tensorflow", "jax"}


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
    def once():
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        return time.perf_counter() - start

    return min(once() for _ in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["import tacit", "from tacit import DPLinearClassifier"])
def test_importing_is_as_quick_as_scikit_learn(statement):
    assert seconds(statement) <= 1.5 * seconds("import sklearn.linear_model")
