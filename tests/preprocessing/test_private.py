"""PrivateCenter: a mean with the noise it says, on rows it does not trust."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import kstest
from tests.seam import paid

from tacit.data.rows import as_rows
from tacit.exceptions import InputError, MissingBound, TacitError
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Key, Stream
from tacit.preprocessing import ClipNorm, PrivateCenter
from tacit.privacy import Gaussian


def rows_of(n=50, d=4, radius=2.0, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, d)) + 1.0
    return radius * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fitted(rows, z=1.0, *, seed=0, bound=2.0, size=None, position=0, **settings):
    rows = as_rows(rows, bound=bound)
    context = paid(size or rows.n, Key.from_seed(seed), z, position=position)
    return PrivateCenter(**settings).fit(rows, context)


@pytest.fixture
def silence(monkeypatch):
    """No noise, and a record of what was asked for."""
    asked = []

    def nothing(self, sigma, count):
        asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(Stream, "discrete_gaussian", nothing)
    return asked


# Noise


def test_the_error_of_the_mean_is_normal_with_the_stated_scale():
    n, d, z, radius = 40, 20_000, 7.0, 2.0
    rows = np.zeros((n, d))
    rows[:, 0] = radius
    center = fitted(rows, z, bound=radius, shrink=False, size=10**6)  # too small to be projected
    error = (center.mean_ - rows.sum(axis=0) / 10**6) * 10**6 / (z * radius)
    assert error.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * d))
    assert kstest(error, "norm").pvalue > 0.01


def test_noise_is_drawn_once_for_every_column_and_is_what_the_event_says(silence):
    stage = fitted(rows_of(d=4), 3.3)
    ((sigma, count),) = silence
    assert count == 4
    # One row is at most 2^30 lattice units; the noise accounted for is 3.3 of them.
    assert accounted_sigma(sigma) / 2.0**30 >= 3.3
    assert accounted_sigma(sigma) / 2.0**30 == pytest.approx(3.3, rel=1e-12)
    assert stage.event(3.3) == Gaussian(3.3)


def test_each_place_in_a_plan_has_noise_of_its_own():
    first, second = (fitted(rows_of(), shrink=False, position=i).mean_ for i in (0, 1))
    assert (first != second).all()
    key = Key.from_seed(0)
    rows = as_rows(rows_of(), bound=2.0)
    PrivateCenter().fit(rows, paid(50, key, 1.0))
    with pytest.raises(TacitError, match="opened before"):
        PrivateCenter().fit(rows, paid(50, key, 1.0))


# The mean


def test_without_noise_it_is_the_mean(silence):
    rows = rows_of()
    center = fitted(rows, z=1.0, shrink=False)
    assert center.mean_ == pytest.approx(rows.mean(axis=0), abs=1e-8)
    assert center.transform(rows) == pytest.approx(rows - center.mean_, abs=1e-15)


def test_sparse_rows_have_the_mean_of_dense_ones(silence):
    rows = rows_of() * 0.9  # within the bound, where nothing is shortened
    assert (fitted(sp.csr_array(rows)).mean_ == fitted(rows).mean_).all()


def test_the_divisor_is_the_public_size_not_the_number_of_rows(silence):
    rows = rows_of(n=50)
    for size in (50, 100, 10_000):
        found = fitted(rows, size=size, shrink=False).mean_
        assert found == pytest.approx(rows.sum(axis=0) / size, abs=1e-8)


def test_a_row_beyond_the_bound_counts_no_more_than_the_bound(silence):
    rows = rows_of(radius=2.0)
    wild = rows.copy()
    wild[0] = [1e300, 0.0, 0.0, 0.0]
    clipped = rows.copy()
    clipped[0] = [2.0, 0.0, 0.0, 0.0]
    found, expected = (fitted(r, shrink=False).mean_ for r in (wild, clipped))
    assert found == pytest.approx(expected, abs=1e-8)


def test_the_noisy_mean_is_brought_back_into_the_ball():
    rows = rows_of(n=3)
    for seed in range(20):
        center = fitted(rows, z=100.0, seed=seed, shrink=False)
        assert np.linalg.norm(center.mean_) == pytest.approx(2.0, rel=1e-12)
    # What is inside stays as it is, even with fewer rows than the public size.
    assert np.linalg.norm(fitted(rows, z=1e-3, size=300, shrink=False).mean_) < 0.1


# Shrinking


def test_a_mean_of_noise_alone_is_shrunk_to_almost_nothing():
    d, n, z = 2000, 1000, 50.0
    noise_only = fitted(np.zeros((n, d)), z, bound=1.0)
    plain = fitted(np.zeros((n, d)), z, bound=1.0, shrink=False)
    assert np.linalg.norm(plain.mean_) == pytest.approx(1.0)  # far beyond the ball
    assert np.linalg.norm(noise_only.mean_) < 0.3


def test_a_mean_that_stands_out_is_hardly_shrunk_and_by_the_positive_part():
    rows = rows_of(n=1000, d=50)
    plain = fitted(rows, 1.0, shrink=False).mean_
    shrunk = fitted(rows, 1.0).mean_
    variance = 50 * (1.0 * 2.0 / 1000) ** 2
    assert shrunk == pytest.approx(plain * (1 - variance / (plain @ plain)), rel=1e-12)
    # Never turned round: the factor is cut off at zero.
    for seed in range(30):
        found = fitted(np.zeros((10, 5)), 3.0, bound=1.0, seed=seed)
        raw = fitted(np.zeros((10, 5)), 3.0, bound=1.0, seed=seed, shrink=False)
        assert found.mean_ @ raw.mean_ >= 0


def test_rows_of_zeros_without_noise_have_mean_zero(silence):
    assert (fitted(np.zeros((10, 3))).mean_ == 0).all()


# Bounds


def test_centred_rows_are_within_the_bound():
    rng = np.random.default_rng(0)
    center = fitted(rows_of(), z=5.0, shrink=False)
    rows = rng.normal(size=(2000, 4))
    rows[0] = -center.mean_  # straight away from the mean
    rows *= 2.0 / np.linalg.norm(rows, axis=1, keepdims=True)
    norms = np.linalg.norm(center.transform(rows), axis=1)
    assert norms.max() <= center.bound(2.0)
    assert norms.max() >= center.bound(2.0) * (1 - 1e-9)
    assert PrivateCenter().bound(2.0) >= center.bound(2.0)
    assert PrivateCenter().bound(2.0) == pytest.approx(4.0)
    assert PrivateCenter().bound(None) is None
    assert PrivateCenter().typical(2.0) == 2.0


def test_folding_moves_the_mean_into_the_intercept():
    center = fitted(rows_of(), z=1.0)
    rng = np.random.default_rng(0)
    coef, intercept, rows = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=(9, 4))
    before = center.transform(rows) @ coef.T + intercept
    folded, moved = center.fold(coef, intercept)
    assert rows @ folded.T + moved == pytest.approx(before, abs=1e-12)


# What is refused


def test_a_bound_is_needed_and_never_read_from_the_rows():
    with pytest.raises(MissingBound, match="never read from the private rows"):
        PrivateCenter(noise_multiplier=1.0).fit(rows_of())
    clipped = ClipNorm(1.0).through(as_rows(rows_of()))
    PrivateCenter(noise_multiplier=1.0).fit(clipped)


def test_noise_is_needed_outside_a_plan():
    with pytest.raises(InputError, match="needs noise_multiplier="):
        PrivateCenter().fit(as_rows(rows_of(), bound=2.0))


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, math.nan])
def test_a_share_is_part_of_the_budget(share):
    with pytest.raises(InputError, match="share must lie between 0 and 1"):
        PrivateCenter(share)


@pytest.mark.parametrize("z", [0.0, -1.0, math.nan, math.inf])
def test_noise_is_positive(z):
    with pytest.raises(InputError):
        fitted(rows_of(), z)


@pytest.mark.parametrize("z", [0, 0.0])
def test_noise_that_is_none_is_not_quietly_replaced_by_a_share(z):
    from tacit.losses import get_loss
    from tacit.plan import Plan
    from tacit.privacy import Budget
    from tacit.trainers import DPGD

    with pytest.raises(InputError):
        stages = (ClipNorm(1.0), PrivateCenter(noise_multiplier=z))
        plan = Plan(Budget(1.0, 1e-5), stages, DPGD(steps=5), get_loss("logistic"))
        plan.calibrate(size=100, columns=3, classes=2)


# A stage in front that overflows


def test_a_row_that_overflows_on_the_way_moves_the_mean_no_more_than_another(silence):
    from tacit.preprocessing import PublicScale

    rng = np.random.default_rng(0)
    small = rng.normal(size=(300, 3)) * 1e-6
    scale = PublicScale(small).fit(as_rows(np.zeros((0, 3))))
    wild = small.copy()
    wild[0] = 1e305  # times 1e6 is no float
    means = []
    for rows in (small, wild):
        seen = ClipNorm(1.0).through(scale.through(as_rows(rows)))
        with np.errstate(all="ignore"):
            try:
                means.append(PrivateCenter(noise_multiplier=1.0, shrink=False).fit(seen).mean_)
            except InputError:
                return
    assert np.linalg.norm(means[0] - means[1]) <= 2.0 / 300 * (1 + 1e-6)
