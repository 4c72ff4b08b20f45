"""PrivateScale: means and scales from one noisy sum of lifted rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import kstest
from tests.seam import paid

from tacit.data.rows import as_rows
from tacit.exceptions import InputError
from tacit.mechanisms.additive import BITS, lattice_sum
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Key, Stream
from tacit.preprocessing import PrivateScale
from tacit.preprocessing.private_scale import exact_moments, lifted_rows, released_moments
from tacit.privacy import Gaussian
from tacit.privacy.sensitivity.drift import Drift


def rows_of(n=50, d=4, radius=2.0, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(0.2, 1, d) + 0.3
    return rows * np.minimum(1, radius / np.linalg.norm(rows, axis=1, keepdims=True))


def fitted(rows, z=1.0, *, seed=0, bound=2.0, size=None, position=0, drift=None, **settings):
    rows = as_rows(rows, bound=bound)
    context = paid(size or rows.n, Key.from_seed(seed), z, position=position, drift=drift)
    return PrivateScale(**settings).fit(rows, context)


@pytest.fixture
def silence(monkeypatch):
    asked = []

    def nothing(self, sigma, count):
        asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(Stream, "discrete_gaussian", nothing)
    return asked


# What is learned


@pytest.mark.parametrize("rows", [rows_of(), rows_of(n=3, d=9), rows_of(n=5000, d=2)])
def test_without_noise_they_are_the_means_and_deviations(silence, rows):
    stage = fitted(rows, strength=0.1)
    assert stage.mean_ == pytest.approx(rows.mean(axis=0), abs=1e-7)
    assert stage.scale_ == pytest.approx(np.sqrt(rows.var(axis=0) + 0.1), abs=1e-6)
    assert stage.transform(rows) == pytest.approx((rows - stage.mean_) / stage.scale_, abs=1e-14)
    sparse = fitted(sp.csr_array(rows), strength=0.1)
    assert sparse.scale_ == pytest.approx(stage.scale_, abs=1e-8)


def test_uncentred_it_divides_by_the_root_mean_square(silence):
    rows = rows_of()
    stage = fitted(rows, strength=0.1, centered=False)
    assert not stage.mean_.any()
    assert stage.scale_ == pytest.approx(np.sqrt((rows**2).mean(axis=0) + 0.1), abs=1e-6)


def test_exact_moments_are_those_of_numpy():
    rows = rows_of(n=5000, d=3)
    found = exact_moments(as_rows(rows, bound=2.0))
    assert found.mean == pytest.approx(rows.mean(axis=0), rel=1e-12)
    assert found.square == pytest.approx((rows**2).mean(axis=0), rel=1e-12)
    assert found.variance == pytest.approx(rows.var(axis=0), rel=1e-12)


def test_the_divisor_is_the_public_size(silence):
    rows = rows_of()
    for size in (50, 200):
        stage = fitted(rows, size=size, centered=False)
        expected = np.sqrt((rows**2).sum(axis=0) / size + 0.01)
        assert stage.scale_ == pytest.approx(expected, abs=1e-6)


def test_a_variance_that_noise_drove_below_zero_counts_as_zero():
    lowest = set()
    for seed in range(20):
        for centered in (True, False):
            stage = fitted(np.zeros((5, 4)), 50.0, seed=seed, strength=0.09, centered=centered)
            assert (stage.scale_ >= 0.3).all()
            assert np.isfinite(stage.scale_).all()
            lowest.add(float(stage.scale_.min()))
    assert 0.3 in lowest


def test_the_noisy_mean_is_brought_back_into_the_ball():
    stage = fitted(rows_of(n=3), 100.0)
    assert np.linalg.norm(stage.mean_) == pytest.approx(2.0, rel=1e-12)


def test_a_row_beyond_the_bound_counts_no_more_than_the_bound(silence):
    rows = rows_of()
    rows[0] = [2.0, 0, 0, 0]
    wild = rows.copy()
    wild[0, 0] = 1e300
    one, other = fitted(rows), fitted(wild)
    assert one.mean_ == pytest.approx(other.mean_, abs=1e-8)
    assert one.scale_ == pytest.approx(other.scale_, abs=1e-8)


# Noise


def test_the_error_is_normal_with_the_stated_scale():
    d, z, bound = 500, 0.01, 2.0
    # Every sum is far from zero, where squares would be cut off.
    rows = as_rows(bound * np.eye(d), bound=bound)
    found = [released_moments(rows, paid(1, Key.from_seed(s), z)) for s in range(20)]
    mean = np.concatenate([m.mean - bound for m in found]) / (math.sqrt(2) * bound * z)
    square = np.concatenate([m.square - bound**2 for m in found]) / (math.sqrt(2) * bound**2 * z)
    for error in (mean, square):
        assert error.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * error.size))
        assert kstest(error, "norm").pvalue > 0.01
    assert abs(np.corrcoef(mean, square)[0, 1]) < 4 / math.sqrt(mean.size)


def test_noise_is_drawn_once_and_is_what_the_event_says(silence):
    stage = fitted(rows_of(), 3.3)
    ((sigma, count),) = silence
    assert count == stage.draws(4) == 8
    assert accounted_sigma(sigma) / 2.0**BITS >= 3.3
    assert accounted_sigma(sigma) / 2.0**BITS == pytest.approx(3.3, rel=1e-12)
    assert stage.event(3.3) == Gaussian(3.3)


# Sensitivity


def lifted(rows, bound=2.0):
    """The exact sum, in integers; one row is at most 2^30."""
    length = math.sqrt(2) * bound * (1 + 1e-12)
    return lattice_sum(lifted_rows(as_rows(rows, bound=bound)), 2 * rows.shape[1], length)


@pytest.mark.parametrize("bound", [0.1, 2.0, 30.0])
def test_no_row_contributes_more_than_the_bound(bound):
    rest = rows_of(n=20) * bound / 2
    before = lifted(rest, bound)
    rng, worst, row = np.random.default_rng(0), 0.0, np.full((1, 4), bound)
    for step in range(600):
        tried = row + rng.normal(size=(1, 4)) * bound * 0.3
        if step % 3 == 0:
            tried = rng.normal(size=(1, 4)) * bound * 10.0 ** rng.uniform(-3, 150)
        change = (lifted(np.concatenate([rest, tried]), bound) - before).astype(float)
        if np.linalg.norm(change) > worst:
            worst, row = float(np.linalg.norm(change)), tried
    alone = lifted(np.concatenate([rest, bound * np.eye(4)[:1]]), bound) - before
    worst = max(worst, float(np.linalg.norm(alone.astype(float))))
    assert worst <= 2.0**BITS
    assert worst > (1 - 1e-6) * 2.0**BITS  # a row along one axis


def test_neighbours_lie_no_farther_apart_than_noise_and_drift_allow(silence):
    rng, worst = np.random.default_rng(0), 0.0
    for step in range(300):
        total = 10.0 ** rng.uniform(-6, 1)
        common = rows_of(n=20, seed=step)
        if step % 2:  # at the end of an axis squares move most
            common = np.zeros((20, 4))
            common[:, 0] = 2.0
            moved = common * (1 - total / 40)
        else:
            moves = rng.normal(size=common.shape)
            moved = common + moves * total / np.linalg.norm(moves, axis=1).sum()
        one, other = (np.eye(4)[:1] * 2.0, -np.eye(4)[:1] * 2.0)
        tables = [np.concatenate([common, one]), np.concatenate([moved, other])]
        silence.clear()
        fitted(tables[0], 1.0, drift=Drift(2.0, total, total, 20))
        allowed = 2 * accounted_sigma(silence[0][0])
        apart = (lifted(tables[0]) - lifted(tables[1])).astype(float)
        worst = max(worst, float(np.linalg.norm(apart)) / allowed)
        # The part of the common rows alone.
        common_apart = (lifted(common) - lifted(moved)).astype(float)
        assert np.linalg.norm(common_apart) <= allowed - 2 * 2.0**BITS
    assert worst <= 1


def test_squares_move_twice_as_far_as_rows_at_the_most():
    one, other = np.array([[2.0, 0.0]]), np.array([[2.0 - 1e-4, 0.0]])
    apart = [lifted(r).astype(float) for r in (one, other)]
    moved = np.linalg.norm(apart[0] - apart[1]) * math.sqrt(2) * 2.0 / 2.0**BITS
    assert moved == pytest.approx(math.sqrt(5) * 1e-4, rel=1e-3)


# Bounds and folding


def test_scaled_rows_are_within_the_bound():
    rng = np.random.default_rng(0)
    for centered in (True, False):
        stage = fitted(rows_of(), 0.01, strength=0.05, centered=centered)
        least = int(stage.scale_.argmin())
        rows = np.concatenate([rng.normal(size=(2000, 4)), -np.eye(4)[least : least + 1]])
        rows *= 2.0 / np.linalg.norm(rows, axis=1, keepdims=True)
        longest = np.linalg.norm(stage.transform(rows), axis=1).max()
        before = PrivateScale(strength=0.05, centered=centered).bound(2.0, 4)
        assert longest <= stage.bound(2.0, 4) <= before
        assert before == pytest.approx((2 if centered else 1) * 2.0 / math.sqrt(0.05))
    assert PrivateScale().bound(None) is None
    assert PrivateScale(strength=1e-4).typical(2.0, 9) == 3.0
    assert PrivateScale().lipschitz() == pytest.approx(10.0)


def test_folding_moves_means_into_the_intercept_and_scales_into_coefficients():
    stage = fitted(rows_of(), 0.1)
    rng = np.random.default_rng(0)
    coef, intercept, rows = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=(9, 4))
    folded, moved = stage.fold(coef, intercept)
    expected = stage.transform(rows) @ coef.T + intercept
    assert rows @ folded.T + moved == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("strength", [0, -1.0, math.nan, math.inf, True, "0.1"])
def test_a_strength_is_positive(strength):
    with pytest.raises(InputError, match="strength must be a positive number"):
        PrivateScale(strength=strength)


@pytest.mark.parametrize("share", [0, 1, -0.1, math.nan])
def test_a_share_is_part_of_the_budget(share):
    with pytest.raises(InputError, match="share must lie between 0 and 1"):
        PrivateScale(share)
