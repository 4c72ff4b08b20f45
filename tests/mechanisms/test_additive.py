"""Sums of rows: one row moves them by at most the bound, exactly, whatever the row holds."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import kstest
from tests.seam import token

from tacit.data.rows import as_rows
from tacit.exceptions import InputError, TacitError
from tacit.mechanisms.additive import (
    BITS,
    lattice_rows,
    lattice_sum,
    noisy_sum,
    row_norms,
    scale_rows,
)
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Key, Stream

LIMIT = 2 ** (2 * BITS)  # of the squared integer norm
BOUNDS = [1.0, 1 / 3, 0.1, math.pi, 1e-3, 1e6, 2.0**-40, 1e100]
MAX, TINY = sys.float_info.max, 5e-324
quick = settings(derandomize=True, deadline=None, max_examples=150)


def dense(chunk):
    return chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk)


def assert_within(chunk, bound):
    """Every row is a vector of integers of norm at most 2^BITS, in exact integers."""
    for row in dense(lattice_rows(chunk, bound)):
        integers = [int(v) for v in row]
        assert all(float(i) == v for i, v in zip(integers, row, strict=True))
        assert sum(i * i for i in integers) <= LIMIT


def both(array):
    return [array, sp.csr_array(array)]


# Sensitivity, in exact integers


@quick
@given(
    arrays(
        np.float64,
        array_shapes(min_dims=2, max_dims=2, max_side=12),
        elements=st.floats(-1e300, 1e300) | st.floats(-2, 2) | st.floats(-1e-300, 1e-300),
    ),
    st.sampled_from(BOUNDS),
)
def test_no_row_exceeds_the_bound(rows, bound):
    assert_within(rows, bound)


@pytest.mark.parametrize("bound", BOUNDS)
def test_rows_at_the_bound_and_a_little_beyond_are_within_it(bound):
    """The attack: directions whose norm, scaling and rounding all err in the same direction."""
    rng = np.random.default_rng(0)
    for d in (1, 2, 3, 5):
        rows = rng.normal(size=(20_000, d))
        rows *= bound / np.linalg.norm(rows, axis=1, keepdims=True)
        # Some a few units in the last place longer, some far too long.
        rows *= 1 + rng.integers(-4, 5, size=(20_000, 1)) * 2.0**-53
        rows[::5] *= rng.uniform(1, 1000, size=(4000, 1))
        for chunk in both(rows):
            integers = dense(lattice_rows(chunk, bound)).astype(np.int64)
            squares = (integers**2).sum(axis=1)  # below 2^63: each is at most 2^60
            assert squares.max() <= LIMIT
            # The attack has power: it comes within a few millionths of the bound.
            assert squares.max() >= LIMIT * (1 - 1e-5)


@pytest.mark.parametrize("d", [100, 1000, 10_000])
@pytest.mark.parametrize("bound", [1.0, 1 / 3, 0.1])
def test_long_rows_whose_norms_are_summed_with_many_roundings_are_within(d, bound):
    rng = np.random.default_rng(d)
    spread = np.exp(rng.normal(scale=3, size=d))
    rows = np.stack(
        [
            np.full(d, bound / math.sqrt(d)),
            np.full(d, 1.0),
            np.full(d, 0.1),
            rng.choice([-1.0, 1.0], size=d),
            np.r_[np.full(d - 1, 1e-9), 1.0],
            np.r_[1.0, np.full(d - 1, 2.0**-27)],
            np.sort(spread),
            np.sort(spread)[::-1],
            rng.normal(size=d),
        ]
    )
    assert_within(rows, bound)
    rows *= bound / np.sqrt((rows**2).sum(axis=1, keepdims=True))
    for chunk in both(np.concatenate([rows, rows * (1 + 2.0**-50), rows * (1 + d * 2.0**-53)])):
        assert_within(chunk, bound)


EXTREME = {
    "zeros": [0.0, -0.0, 0.0],
    "subnormal": [TINY, -TINY, TINY],
    "tiny": [1e-310, -2e-310, 3e-310],
    "small": [1e-160, 1e-200, 1e-155],
    "large": [1e155, -1e160, 1e150],
    "huge": [1e300, -1e300, 1e299],
    "mixed": [1e300, 1e-300, 1.0],
    "mixed small": [1.0, TINY, 1e-200],
}


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("name", EXTREME)
def test_extreme_rows_are_within(name, bound):
    assert_within(np.array([EXTREME[name]]), bound)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("name", EXTREME)
def test_extreme_sparse_rows_are_within(name, bound):
    assert_within(sp.csr_array(np.array([EXTREME[name]])), bound)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_largest_floats_are_within(kind):
    rows = np.array([[MAX, MAX, -MAX], [MAX, 0.0, 0.0], [-MAX, 1.0, TINY]])
    assert_within(rows if kind == "dense" else sp.csr_array(rows), 1.0)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_row_that_is_no_number_is_refused_or_counts_nothing(value, kind):
    """A stage may overflow. What comes of it must not be cast to the smallest integer."""
    rows = np.array([[value, 0.5], [0.25, 0.5]])
    chunk = rows if kind == "dense" else sp.csr_array(rows)
    with np.errstate(all="ignore"):
        try:
            total = lattice_sum([chunk], 2, 1.0)
        except InputError:
            return
    assert sum(int(v) ** 2 for v in total - lattice_sum([rows[1:]], 2, 1.0)) <= LIMIT


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_row_that_is_partly_no_number_counts_no_more_than_the_bound(value, kind):
    """Every number in it is within the bound by itself, and there are many of them."""
    rows = np.full((1, 50), 0.9)
    rows[0, 3] = value
    chunk = rows if kind == "dense" else sp.csr_array(rows)
    with np.errstate(all="ignore"):
        try:
            found = dense(lattice_rows(chunk, 1.0))
        except InputError:
            return
    assert np.isfinite(found).all()
    assert sum(int(v) ** 2 for v in found[0]) <= LIMIT


def test_entries_stored_twice_count_once_together():
    twice = sp.csr_array(
        (np.array([0.6, 0.6, 0.3]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2)
    )
    assert_within(twice, 1.0)
    assert (lattice_sum([twice], 2, 1.0) == lattice_sum([np.array([[1.2, 0.3]])], 2, 1.0)).all()


# Exact sums


def some_rows(n=300, d=7, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * np.exp(rng.normal(scale=2, size=(n, 1)))
    rows[rng.random(size=(n, d)) < 0.3] = 0.0
    rows[:3] *= [[1e200], [1e-200], [0.0]]
    return rows


def singly(rows, bound):
    """The sum of what every row gives by itself."""
    total = np.zeros(rows.shape[1], dtype=np.int64)
    for i in range(rows.shape[0]):
        total += lattice_sum([rows[i : i + 1]], rows.shape[1], bound)
    return total


@pytest.mark.parametrize("bound", [1.0, 0.3])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_sum_is_that_of_the_rows_however_they_are_cut(kind, bound):
    rows = some_rows() if kind == "dense" else sp.csr_array(some_rows())
    whole = lattice_sum([rows], 7, bound)
    assert whole.dtype == np.int64
    assert (whole == singly(rows, bound)).all()
    for size in (1, 2, 7, 64, 299):
        chunks = [rows[i : i + size] for i in range(0, 300, size)]
        assert (lattice_sum(chunks, 7, bound) == whole).all()
        assert (lattice_sum(chunks[::-1], 7, bound) == whole).all()
    shuffled = np.random.default_rng(1).permutation(300)
    assert (lattice_sum([rows[shuffled]], 7, bound) == whole).all()


@pytest.mark.parametrize("d", [3, 784, 8192, 8193, 10_000])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_norm_of_a_row_does_not_depend_on_the_rows_beside_it(order, d):
    rng = np.random.default_rng(d)
    rows = np.asarray(rng.normal(size=(33, d)), order=order)
    together = row_norms(rows)
    for size in (1, 2, 16):
        for start in range(0, 33 - size):
            alone = row_norms(np.array(rows[start : start + size], order="K"))
            assert (alone == together[start : start + size]).all()


@pytest.mark.parametrize("d", [1, 2, 5, 9, 17, 130])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_norm_of_a_row_does_not_depend_on_how_many_there_are(kind, d):
    rows = np.random.default_rng(d).normal(size=(5000, d))
    rows = rows if kind == "dense" else sp.csr_array(rows)
    together = row_norms(rows)
    for i in range(0, 5000, 97):
        assert row_norms(rows[i : i + 1])[0] == together[i]
        assert (row_norms(rows[i:]) == together[i:]).all()


@pytest.mark.parametrize("d", [3, 10_000])
def test_the_norm_of_a_long_row_does_not_depend_on_another_long_one(d):
    # Rows that are scaled before they are squared are taken out of the chunk together.
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(9, d)) * 1e160
    together = row_norms(rows)
    for i in range(9):
        ordinary = rng.normal(size=(9, d))
        ordinary[i] = rows[i]
        assert row_norms(ordinary)[i] == together[i]


def test_no_rows_sum_to_zero():
    assert (lattice_sum([], 3, 1.0) == 0).all()
    assert (lattice_sum([np.empty((0, 3))], 3, 1.0) == 0).all()
    assert (lattice_sum([sp.csr_array((0, 3))], 3, 1.0) == 0).all()


def test_sparse_rows_within_the_bound_give_exactly_the_dense_sum():
    rows = some_rows()[1:]
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True)) * (1 + 1e-12)
    assert (lattice_sum([sp.csr_array(rows)], 7, 1.0) == lattice_sum([rows], 7, 1.0)).all()


def test_sparse_rows_beyond_the_bound_give_the_dense_rows_up_to_one_unit():
    rows = some_rows()[3:] * 100
    difference = lattice_rows(sp.csr_array(rows), 1.0).toarray() - lattice_rows(rows, 1.0)
    assert np.abs(difference).max() <= 1


def test_rows_within_the_bound_keep_their_values():
    rows = np.array([[0.5, -0.25], [0.0, 0.75]])
    found = lattice_rows(rows, 1.0) / 2.0**BITS
    assert np.abs(found - rows).max() <= 2.0**-BITS


def test_the_sum_is_right_in_exact_fractions():
    rows = some_rows(n=40)[3:]
    total = lattice_sum([rows], 7, 0.7)
    for j in range(7):
        exact = Fraction(0)
        for row in rows:
            length = max(1, Fraction(float(np.linalg.norm(row))) / Fraction(0.7))
            exact += Fraction(row[j]) / length
        assert abs(int(total[j]) * Fraction(0.7) / 2**BITS - exact) < 37 * Fraction(0.7) / 2**29


def test_the_rows_given_are_not_changed():
    rows = some_rows()
    sparse = sp.csr_array(rows)
    before = rows.copy(), sparse.copy()
    lattice_sum([rows, sparse], 7, 0.3)
    scale_rows(rows, np.full(300, 2.0))
    assert (rows == before[0]).all()
    assert (sparse != before[1]).nnz == 0


# Norms


@pytest.mark.parametrize("name", [name for name in EXTREME if "mixed" not in name])
def test_norms_are_right_from_the_smallest_to_the_largest(name):
    row = EXTREME[name]
    exact = math.sqrt(sum((Fraction(v) / Fraction(max(map(abs, row)) or 1)) ** 2 for v in row))
    expected = exact * max(map(abs, row))
    assert row_norms(np.array([row]))[0] == pytest.approx(expected, rel=1e-15, abs=TINY)


@pytest.mark.parametrize("name", EXTREME)
def test_sparse_norms_are_the_dense_ones(name):
    row = np.array([EXTREME[name]])
    assert row_norms(sp.csr_array(row))[0] == pytest.approx(row_norms(row)[0], rel=1e-15, abs=TINY)


# Noise


def test_the_noise_has_the_stated_scale_and_shape():
    d, bound, z = 100_000, 2.5, 3.0
    rows = np.zeros((2, d))
    rows[0, :2] = [1.0, -2.0]
    noisy = noisy_sum([rows], d, bound, token(z, Key.from_seed(0), "noise"))
    noise = (noisy - rows.sum(axis=0)) / (z * bound)
    assert noise.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * d))
    assert noise.mean() == pytest.approx(0.0, abs=4 / math.sqrt(d))
    assert kstest(noise, "norm").pvalue > 0.01


def test_the_noise_is_the_sampler_s_and_never_less_than_was_accounted(monkeypatch):
    asked = []
    honest = Stream.discrete_gaussian

    def spy(self, sigma, count):
        asked.append((sigma, count))
        return honest(self, sigma, count)

    monkeypatch.setattr(Stream, "discrete_gaussian", spy)
    key = Key.from_seed(0)
    for i, z in enumerate([0.5, 1 / 3, 7.77, 1e4]):
        noisy_sum([np.ones((3, 5))], 5, 0.7, token(z, key, "noise", i))
        ((sigma, count),) = asked
        assert count == 5
        assert Fraction(accounted_sigma(sigma)) >= Fraction(z) * 2**BITS
        assert sigma <= z * 2.0**BITS * (1 + 1e-12)
        asked.clear()


def test_one_stream_gives_the_same_noise_and_another_gives_another():
    def run(seed, step):
        return noisy_sum([np.ones((3, 50))], 50, 1.0, token(2.0, Key.from_seed(seed), "n", step))

    assert (run(0, 0) == run(0, 0)).all()
    assert (run(0, 0) != run(0, 1)).all()
    assert (run(0, 0) != run(1, 0)).all()


def test_released_values_lie_on_the_lattice():
    noisy = noisy_sum([some_rows()], 7, 1.0, token(2.0, Key.from_seed(0), "noise"))
    steps = noisy * 2.0**BITS
    assert (steps == np.rint(steps)).all()


@pytest.mark.parametrize("z", [0.0, -1.0, 1e-9, 2.0**30, math.nan, math.inf])
def test_noise_that_the_lattice_cannot_carry_is_refused(z):
    with pytest.raises(TacitError):
        noisy_sum([np.ones((1, 2))], 2, 1.0, token(z, Key.from_seed(0), "noise"))


# From the rows as people give them


@pytest.mark.parametrize("array", ["wide floats", "entries stored twice"])
def test_numbers_beyond_float64_do_not_reach_the_sum(array):
    if array == "wide floats":
        data = np.array([[np.longdouble("1e400"), 0]], dtype=np.longdouble)
        if not np.isfinite(data).all():
            pytest.skip("long double is double here")
    else:
        data = sp.csr_array(
            (np.array([MAX, MAX]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2)
        )
    with np.errstate(all="ignore"):
        try:
            total = lattice_sum([chunk for _, chunk in as_rows(data).chunks()], 2, 1.0)
        except InputError:
            return
    assert sum(int(v) ** 2 for v in total) <= LIMIT
