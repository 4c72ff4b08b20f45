"""Compiled products find the integers that the BLAS library finds, and nothing else changes."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("numba")

from tacit.data.rows import as_rows
from tacit.exceptions import MachineError
from tacit.losses import get_loss
from tacit.trainers import kernels, storage
from tacit.trainers.engine import Engine
from tacit.trainers.quantize import EXACT_BITS, FEATURE_MAX, LATTICE_ROWS


@pytest.fixture
def everywhere(monkeypatch):
    """Whether compiled products are used, for rows of any size."""

    def switch(on):
        monkeypatch.setattr(kernels, "LARGE", 0 if on else 1 << 60)

    return switch


def problem(outputs, *, n=333, d=21, settings=1):
    rng = np.random.default_rng(outputs)
    loss = get_loss("softmax" if outputs > 1 else "logistic")
    rows = rng.normal(size=(n, d)) / np.sqrt(d)
    targets = loss.targets(rng.integers(0, max(outputs, 2), n), outputs)
    return rows, targets, loss, rng.normal(size=(settings, d + 1, outputs))


def sums(everywhere, compiled, given, *, clips=(0.4,), batch=None, **options):
    everywhere(compiled)
    rows, targets, loss, weights = given
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, intercept=0.5, **options)
    assert (engine._store.kernels is not None) == compiled
    return [s.values for s in engine.gradient_sums(weights, clips, batch=batch)]


@pytest.mark.parametrize("arithmetic", ["exact", "strict"])
@pytest.mark.parametrize("outputs", [1, 2, 3, 5, 7, 11])
def test_sums_are_the_same_with_and_without_compiled_products(everywhere, outputs, arithmetic):
    given = problem(outputs)
    for batch in (None, np.arange(0, 333, 3), np.array([7]), np.empty(0, dtype=int)):
        options = {"batch": batch, "arithmetic": arithmetic, "threads": 2}
        (ours,), (theirs,) = (sums(everywhere, c, given, **options) for c in (True, False))
        assert np.array_equal(ours, theirs)


def test_both_parts_of_a_split_row_are_the_same(everywhere):
    given = problem(4, settings=3)
    ours, theirs = (sums(everywhere, c, given, clips=(0.3, 0.2), split=9) for c in (True, False))
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one, other)


def test_more_columns_than_few_are_left_to_the_library(everywhere):
    given = problem(4, settings=6)
    assert kernels.FEW_COLUMNS < 4 * 6
    (ours,), (theirs,) = (sums(everywhere, compiled, given) for compiled in (True, False))
    assert np.array_equal(ours, theirs)


def test_removing_a_row_removes_exactly_its_own_sum(everywhere):
    rows, targets, *more = given = problem(10, n=61)
    (whole,) = sums(everywhere, True, given)
    for i in (0, 16, 60):
        rest = np.delete(np.arange(61), i)
        (without,) = sums(everywhere, True, (rows[rest], targets[rest], *more))
        (alone,) = sums(everywhere, True, given, batch=np.array([i]))
        assert np.array_equal(whole - without, alone)


def test_products_are_exact_at_the_largest_operands():
    exact = kernels.load("exact")
    rows = np.full((LATTICE_ROWS, 1), FEATURE_MAX, dtype=np.int16)
    largest = 2**EXACT_BITS // (LATTICE_ROWS * FEATURE_MAX)
    total = np.zeros((1, 1))
    everyone = np.arange(LATTICE_ROWS)
    exact.sums(rows, everyone, np.full((1, LATTICE_ROWS), float(largest)), 0, total)
    assert int(total[0, 0]) == LATTICE_ROWS * FEATURE_MAX * largest


def test_float32_sums_are_close(everywhere):
    given = problem(10)
    (ours,), (theirs,) = (sums(everywhere, c, given, arithmetic="fast") for c in (True, False))
    assert np.allclose(ours, theirs, atol=1e-3)


def test_small_tables_do_not_load_a_compiler(monkeypatch):
    monkeypatch.setattr(kernels, "load", lambda arithmetic: pytest.fail("loaded"))
    assert kernels.suited(1000, 100, "exact") is None
    assert storage.DenseStore(100, 10, "rounded", (slice(0, 10),)).kernels is None


def test_without_numba_there_are_no_compiled_products(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert kernels.load.__wrapped__("exact") is None


def test_a_product_that_is_not_exact_is_refused():
    exact = kernels.load("exact")

    def rounded(rows, index, weights, out):
        exact.scores(rows, index, weights.astype(np.float32).astype(float), out)

    with pytest.raises(MachineError, match="numba"):
        kernels._try(kernels.Kernels(rounded, exact.sums))
