"""Free stages: each row by itself, with public constants, and within the bound they state."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from tests.seam import paid

from tacit.data.rows import as_rows
from tacit.exceptions import InputError, MissingBound
from tacit.mechanisms.random_streams import Key
from tacit.preprocessing import Bound, ClipNorm, Normalize, RandomProjection, Root

MAX, TINY = sys.float_info.max, 5e-324
RADII = [1.0, 1 / 3, 1e-3, 1e6]
quick = settings(derandomize=True, deadline=None, max_examples=150)
any_rows = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=8),
    elements=st.floats(-1e300, 1e300) | st.floats(-2, 2) | st.floats(-1e-290, 1e-290),
)


def dense(chunk):
    return chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk)


def norms(rows):
    """Norms without overflow or underflow."""
    rows = dense(rows)
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=TINY)
    exponent = np.frexp(largest)[1]
    return np.ldexp(np.linalg.norm(np.ldexp(rows, -exponent), axis=1), exponent[:, 0])


def rounding(d):
    """Relative slack for the rounding of a norm and a product."""
    return 1 + (d + 8) * 2.0**-52


# ClipNorm


@quick
@given(any_rows, st.sampled_from(RADII))
@example(np.array([[TINY]]), 1.0)
def test_clipped_rows_are_within_the_radius_and_keep_their_direction(rows, radius):
    stage = ClipNorm(radius)
    for given_ in (rows, sp.csr_array(rows)):
        clipped = stage.transform(given_)
        assert sp.issparse(clipped) == sp.issparse(given_)
        assert norms(clipped).max() <= stage.bound(None) * rounding(rows.shape[1])
        short = norms(rows) < radius * (1 - 1e-12)
        assert (dense(clipped)[short] == rows[short]).all()
        assert (np.sign(dense(clipped)) * np.sign(rows) >= 0).all()
        long = norms(rows) > radius * (1 + 1e-12)
        assert norms(clipped)[long] == pytest.approx(radius, rel=1e-12)


def test_a_clipped_row_is_shortened_and_a_short_one_left():
    found = ClipNorm(2.0).transform(np.array([[3.0, 4.0], [0.6, 0.8], [0.0, 0.0]]))
    assert found == pytest.approx(np.array([[1.2, 1.6], [0.6, 0.8], [0.0, 0.0]]), rel=1e-15)


def test_clipping_keeps_a_smaller_bound_that_is_known():
    assert ClipNorm(2.0).bound(None) == 2.0
    assert ClipNorm(2.0).bound(5.0) == 2.0
    assert ClipNorm(2.0).bound(0.5) == 0.5


# Normalize


@quick
@given(any_rows, st.sampled_from(RADII))
@example(np.array([[TINY]]), 1.0)
def test_scaled_rows_have_the_radius_or_are_zero(rows, radius):
    stage = Normalize(radius)
    for given_ in (rows, sp.csr_array(rows)):
        scaled = stage.transform(given_)
        present = np.abs(rows).max(axis=1) > 0
        assert norms(scaled)[present] == pytest.approx(radius, rel=1e-13)
        assert (dense(scaled)[~present] == 0).all()
        assert norms(scaled).max() <= stage.bound(None) * rounding(rows.shape[1])


def test_a_scaled_row_keeps_its_direction():
    found = Normalize(5.0).transform(np.array([[3.0, 4.0], [-0.3, 0.4], [0.0, 0.0]]))
    assert found == pytest.approx(np.array([[3.0, 4.0], [-3.0, 4.0], [0.0, 0.0]]), rel=1e-15)
    assert Normalize(5.0).bound(0.1) == 5.0


EXTREME = {
    "smallest": [TINY, TINY],
    "subnormal": [1e-310, -3e-310],
    "least normal": [sys.float_info.min, 0.0],
    "1e300": [1e300, 1e300],
}


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", EXTREME)
def test_rows_of_any_size_are_scaled_to_the_radius(name, kind):
    row = np.array([EXTREME[name], [3.0, 4.0]])
    scaled = Normalize(2.0).transform(row if kind == "dense" else sp.csr_array(row))
    assert norms(scaled) == pytest.approx(2.0, rel=1e-13)
    expected = 2.0 * row[0] / np.abs(row[0]).max()
    assert dense(scaled)[0] * math.hypot(*expected) / 2.0 == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("stage", [Normalize(1.0), ClipNorm(1.0)], ids=["Normalize", "ClipNorm"])
def test_rows_whose_norm_is_no_float_are_within_the_radius(stage, kind):
    row = np.array([[MAX, -MAX, MAX]])
    found = stage.transform(row if kind == "dense" else sp.csr_array(row))
    assert norms(found)[0] <= 1.0 + 1e-12


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", ["smallest", "subnormal", "least normal"])
def test_clipping_leaves_tiny_rows_as_they_are(name, kind):
    row = np.array([EXTREME[name]])
    clipped = ClipNorm(1.0).transform(row if kind == "dense" else sp.csr_array(row))
    assert (dense(clipped) == row).all()


@pytest.mark.parametrize("radius", [1e-16, 1e-100])
def test_a_small_radius_holds_for_the_smallest_rows_too(radius):
    scaled = Normalize(radius).transform(np.array([[TINY, TINY], [3 * TINY, 2 * TINY]]))
    assert norms(scaled).max() <= radius * (1 + 1e-12)


@pytest.mark.parametrize("stage", [ClipNorm, Normalize])
@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, True, "1", None])
def test_a_radius_is_a_positive_number(stage, radius):
    with pytest.raises(InputError, match="radius must be a positive number"):
        stage(radius)


# Bound


@quick
@given(any_rows, st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_bounded_columns_lie_between_minus_one_and_one(rows, low, width):
    stage = Bound(low, low + width)
    found = stage.transform(rows)
    assert np.abs(found).max() <= 1.0
    assert norms(found).max() <= stage.bound(None, rows.shape[1])


def test_asymmetric_limits_map_their_ends_and_middle():
    stage = Bound(low=[-1.0, 10.0, -300.0], high=[9.0, 10.5, -100.0])
    rows = [[-1.0, 10.0, -300.0], [9.0, 10.5, -100.0], [4.0, 10.25, -200.0], [1e9, -1e9, 0.0]]
    expected = [[-1, -1, -1], [1, 1, 1], [0, 0, 0], [1, -1, 1]]
    assert stage.transform(rows) == pytest.approx(np.array(expected, dtype=float), abs=1e-14)
    assert stage.bound(None) == stage.bound(7.0, 3) == math.sqrt(3)


def test_one_pair_of_limits_serves_all_columns():
    stage = Bound(0, 10)
    assert (stage.transform(sp.csr_array([[0.0, 10.0, 5.0]])) == [[-1.0, 1.0, 0.0]]).all()
    assert stage.bound(None, 9) == 3.0
    with pytest.raises(InputError, match="number of columns"):
        stage.bound(None)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (None, 1.0, "needs low="),
        (0.0, None, "needs high="),
        (0.0, 0.0, "every low must be below its high"),
        ([0, 1], [1, 0.5], "every low must be below its high"),
        (-math.inf, 1.0, "finite"),
        (math.nan, 1.0, "finite"),
        ("a", 1.0, "must be numbers"),
        ([0, 0], [1, 1, 1], "must be numbers of one shape"),
        ([[0.0]], [[1.0]], "single numbers or one per column"),
    ],
)
def test_limits_that_are_none_are_refused(low, high, message):
    with pytest.raises(InputError, match=message):
        Bound(low, high)


def test_limits_for_other_columns_are_refused():
    with pytest.raises(InputError, match="limits for 2 columns, the rows have 3"):
        Bound([0, 0], [1, 1]).transform(np.zeros((1, 3)))


@pytest.mark.parametrize("limits", [(-MAX, MAX), (1e308, MAX)])
def test_limits_as_wide_as_floats_still_map_their_middle(limits):
    low, high = limits
    middle = low / 2 + high / 2
    found = Bound(low, high).transform([[low], [middle], [high]])
    assert found == pytest.approx(np.array([[-1.0], [0.0], [1.0]]), abs=1e-9)


# RandomProjection


def projected(seed=0, d=30, k=8, bound=1.0):
    return RandomProjection(k, seed).fit(as_rows(np.zeros((0, d)), bound=bound))


def test_a_projection_keeps_lengths_on_average():
    rows = Normalize().transform(np.random.default_rng(0).normal(size=(500, 200)))
    found = projected(d=200, k=100).transform(rows)
    assert found.shape == (500, 100)
    assert (found**2).sum(axis=1).mean() == pytest.approx(1.0, abs=0.05)


def test_the_matrix_is_of_signs_that_look_random():
    matrix = projected(d=400, k=100).matrix_ * math.sqrt(100)
    assert set(np.unique(matrix.round(6))) == {-1.0, 1.0}
    assert abs(matrix.mean()) < 4 / math.sqrt(matrix.size)


def test_a_seed_fixes_the_matrix_and_a_fresh_one_differs():
    assert (projected(seed=3).matrix_ == projected(seed=3).matrix_).all()
    assert (projected(seed=3).matrix_ != projected(seed=4).matrix_).any()
    assert (projected(seed=None).matrix_ != projected(seed=None).matrix_).any()
    rows = as_rows(np.zeros((0, 30)), bound=1.0)
    key = Key.from_seed(0)
    first, second = (
        RandomProjection(8).fit(rows, paid(10, key, position=i)).matrix_ for i in (0, 1)
    )
    assert (first != second).any()


def test_the_bound_holds_before_the_matrix_is_drawn_and_after():
    stage = projected(d=30, k=8, bound=2.0)
    assert stage.bound(2.0, 30) <= RandomProjection(8).bound(2.0, 30) == 2 * math.sqrt(30)
    longest = np.linalg.svd(stage.matrix_)[0][:, :1].T * 2.0
    assert norms(stage.transform(longest))[0] == pytest.approx(stage.bound(2.0, 30), rel=1e-6)
    assert norms(stage.transform(longest))[0] <= stage.bound(2.0, 30)


def test_rows_beyond_the_bound_are_shortened_not_trusted():
    stage = projected(bound=1.0)
    row = np.random.default_rng(0).normal(size=(1, 30))
    unit = row / np.linalg.norm(row)
    assert stage.transform(unit * 1e6) == pytest.approx(stage.transform(unit), abs=1e-6)


def test_a_projection_needs_a_bound():
    with pytest.raises(MissingBound, match="ClipNorm"):
        RandomProjection(3).fit(np.zeros((2, 5)))


@pytest.mark.parametrize("components", [0, -1, True])
def test_components_are_counted_from_one(components):
    with pytest.raises(InputError, match="at least 1"):
        RandomProjection(components)


def test_settings_take_projected_rows_to_be_as_long_as_before():
    assert RandomProjection(5).typical(2.0, 400) == 2.0


# Root


@quick
@given(any_rows)
@example(np.array([[TINY, -TINY, 0.0]]))
def test_roots_square_back_and_stay_within_their_bound(rows):
    stage = Root()
    for given_ in (rows, sp.csr_array(rows)):
        rooted = stage.transform(given_)
        assert sp.issparse(rooted) == sp.issparse(given_)
        roots = dense(rooted)
        assert np.allclose(np.sign(roots) * roots**2, dense(given_), rtol=1e-15, atol=0)
        radius = float(norms(rows).max()) * rounding(rows.shape[1])
        assert norms(roots).max() <= stage.bound(radius, rows.shape[1]) * rounding(rows.shape[1])


def test_the_bound_of_roots_is_reached_and_needs_one_before():
    row = np.full((1, 9), 1 / 3)
    assert norms(Root().transform(row))[0] == pytest.approx(Root().bound(1.0, 9), rel=1e-12)
    assert Root().bound(None, 9) is None


def test_roots_leave_gaps_alone():
    rooted = Root().transform(as_rows(np.array([[4.0, np.nan]]), gaps=True)).collect()
    assert rooted[0, 0] == 2.0
    assert np.isnan(rooted[0, 1])
