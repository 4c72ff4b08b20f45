"""Compiled float32 products: close to those of the BLAS library, and only where they pay."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("numba")

from tacit.data.rows import as_rows
from tacit.engine import storage
from tacit.engine.engine import Engine
from tacit.engine.kernels import single as kernels
from tacit.losses import get_loss


@pytest.fixture
def everywhere(monkeypatch):
    """Whether compiled products are used, for rows of any size."""

    def switch(on):
        monkeypatch.setattr(kernels, "LARGE", 0 if on else 1 << 60)

    return switch


@pytest.mark.parametrize(("outputs", "settings"), [(2, 1), (3, 1), (7, 1), (10, 1), (4, 6)])
def test_float32_sums_are_close(everywhere, outputs, settings):
    rng = np.random.default_rng(outputs)
    loss = get_loss("softmax")
    rows = rng.normal(size=(333, 21)) / np.sqrt(21)
    targets = loss.targets(rng.integers(0, outputs, 333), outputs)
    weights = rng.normal(size=(settings, 22, outputs))
    found = []
    for compiled in (True, False):
        everywhere(compiled)
        engine = Engine(as_rows(rows, bound=1.0), targets, loss, intercept=0.5, arithmetic="fast")
        assert (engine._store.kernels is not None) == compiled
        found.append(engine.gradient_sum(weights, 0.4).values)
    assert np.allclose(*found, atol=1e-3)


def test_small_tables_do_not_load_a_compiler(monkeypatch):
    monkeypatch.setattr(kernels, "load", lambda: pytest.fail("loaded"))
    assert kernels.suited(1000, 100, "fast") is None
    assert storage.DenseStore(100, 10, "rounded", (slice(0, 10),)).kernels is None
    monkeypatch.setattr(kernels, "LARGE", 0)
    assert storage.DenseStore(100, 10, "exact", (slice(0, 10),)).kernels is None


def test_without_numba_there_are_no_compiled_products(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert kernels.load.__wrapped__() is None
