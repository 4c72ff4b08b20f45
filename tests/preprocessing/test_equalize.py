"""PrivateEqualize: columns of about one size, from one noisy sum of clipped squares."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import kstest
from tests.seam import paid

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.exceptions import InputError, MissingBound
from tacit.mechanisms.additive import BITS, lattice_sum
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Key, Stream
from tacit.preprocessing import Normalize, PrivateCenter, PrivateEqualize
from tacit.preprocessing import private_equalize as module
from tacit.privacy import Gaussian
from tacit.privacy.sensitivity.drift import Drift
from tacit.trainers import DPGD

BOUND = 2.0


def rows_of(n=50, d=4, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(0.2, 1, d)
    return rows * np.minimum(1, BOUND / np.linalg.norm(rows, axis=1, keepdims=True))


def fitted(rows, z=1.0, *, seed=0, size=None, drift=None, **settings):
    rows = as_rows(rows, bound=BOUND)
    context = paid(size or rows.n, Key.from_seed(seed), z, drift=drift)
    return PrivateEqualize(**settings).fit(rows, context)


@pytest.fixture
def silence(monkeypatch):
    asked = []

    def nothing(self, sigma, count):
        asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(Stream, "discrete_gaussian", nothing)
    return asked


@pytest.fixture
def sums(monkeypatch):
    """Every sum that leaves the rows, in integers: one row counts for at most 2^30."""
    seen = []

    def spied(chunks, d, bound, token, *, drift=0.0):
        total = lattice_sum(chunks, d, bound)
        seen.append((total, bound, drift))
        return total * math.ldexp(bound, -BITS)

    monkeypatch.setattr(module, "noisy_sum", spied)
    return seen


# What is learned


def test_without_noise_scales_are_relative_root_mean_squares(silence):
    rows = rows_of(5000)
    stage = fitted(rows, 1e-6, strength=0.1, evenness=9.0)
    relative = (rows**2).mean(axis=0) / (rows**2).mean()
    assert stage.scale_ == pytest.approx(np.sqrt((relative + 0.1) / 1.1), abs=1e-6)
    assert (stage.scale_**2).mean() == pytest.approx(1.0, abs=1e-6)
    assert stage.transform(rows) == pytest.approx(rows / stage.scale_, rel=1e-14)


def test_what_is_mostly_noise_leaves_columns_as_they_are():
    for seed in range(20):
        for rows in (rows_of(), np.zeros((5, 4))):
            stage = fitted(rows, 1e4, seed=seed)
            assert (stage.scale_ >= math.sqrt(0.2 / 1.2) * (1 - 1e-12)).all()
            assert np.isfinite(stage.scale_).all()
    many = [fitted(rows_of(500, 200), 60.0, seed=seed).scale_ for seed in range(5)]
    free = fitted(rows_of(500, 200), 1e-6).scale_
    assert np.mean([scale.std() for scale in many]) < 0.5 * free.std()  # drawn to one


def test_the_divisor_is_the_public_size_and_does_not_matter(silence):
    rows = rows_of()
    assert fitted(rows, 1e-6).scale_ == pytest.approx(fitted(rows, 1e-6, size=200).scale_)


# Noise and sensitivity


def test_noise_is_drawn_once_and_is_what_the_event_says(silence):
    stage = fitted(rows_of(), 3.3)
    ((sigma, count),) = silence
    assert count == stage.draws(4) == 4
    assert 3.3 <= accounted_sigma(sigma) / 2.0**BITS <= 3.3 * (1 + 1e-12)
    assert stage.event(3.3) == Gaussian(3.3)


def test_the_error_is_normal_with_the_stated_scale(monkeypatch):
    d, z = 400, 5.0
    found = []

    def kept(squares, deviation, strength):
        found.append(squares / deviation)
        return np.ones_like(squares)

    monkeypatch.setattr(module, "scales_of", kept)
    for seed in range(20):
        fitted(np.zeros((3, d)), z, seed=seed)
    errors = np.concatenate(found)
    assert errors.std() == pytest.approx(1.0, abs=5 / math.sqrt(2 * errors.size))
    assert kstest(errors, "norm").pvalue > 1e-3  # seeded


@pytest.mark.parametrize("evenness", [0.3, 1.0, 50.0])
def test_no_row_moves_the_sum_by_more_than_one_contribution(sums, evenness):
    rest = rows_of(20)
    fitted(rest, evenness=evenness)
    before, most, _ = sums.pop()
    assert most <= BOUND**2 * min(1.0, evenness / 2) * (1 + 1e-11)
    rng, worst = np.random.default_rng(0), 0.0
    for step in range(400):
        tried = rng.normal(size=(1, 4)) * 10.0 ** rng.uniform(-2, 2)
        if step % 3 == 0:
            tried = BOUND * np.eye(4)[[step % 4]] * 10.0 ** rng.uniform(0, 140)
        fitted(np.concatenate([rest, tried]), evenness=evenness)
        change = (sums.pop()[0] - before).astype(float)
        worst = max(worst, float(np.linalg.norm(change)))
    assert (1 - 1e-6) * 2.0**BITS < worst <= 2.0**BITS


def test_neighbours_lie_no_farther_apart_than_noise_and_drift_allow(sums):
    rng = np.random.default_rng(0)
    for step in range(200):
        total = 10.0 ** rng.uniform(-6, 1)
        if step % 2:  # at the end of an axis squares move most
            common = np.zeros((20, 4))
            common[:, 0] = BOUND
            moved = common * (1 - total / (20 * BOUND))
        else:
            common = rows_of(20, seed=step)
            moves = rng.normal(size=common.shape)
            moved = common + moves * total / np.linalg.norm(moves, axis=1).sum()
        drift, evenness = Drift(BOUND, total, total, 20), [0.5, 9.0][step % 4 // 2]
        for rows in (common, moved):
            fitted(rows, drift=drift, evenness=evenness)
        (one, most, allowed), (other, _, _) = sums[-2:]
        apart = np.linalg.norm((one - other).astype(float)) * math.ldexp(most, -BITS)
        assert apart <= allowed
    fitted(rows_of(), drift=Drift(BOUND, 0.5, 0.5, 20))
    assert sums[-1][2] >= 2 * 0.5 / BOUND  # of squares in units of the bound


# Bounds and folding


def test_equalized_rows_are_within_the_bound():
    rows = rows_of(2000) * np.array([1e-3, 1, 1, 1])
    stage = fitted(rows, 1e-3, strength=0.05)
    reached = np.linalg.norm(stage.transform(BOUND * np.eye(4)), axis=1).max()
    before = PrivateEqualize(strength=0.05).bound(BOUND, 4)
    assert reached <= stage.bound(BOUND, 4) <= before
    assert before == pytest.approx(BOUND * math.sqrt(21))
    assert PrivateEqualize().bound(None) is None
    assert PrivateEqualize().typical(BOUND) == BOUND
    assert (1 / stage.scale_).max() <= stage.lipschitz()


def test_folding_divides_the_coefficients():
    stage = fitted(rows_of(), 0.1)
    rng = np.random.default_rng(0)
    coef, intercept, rows = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=(9, 4))
    folded, same = stage.fold(coef, intercept)
    expected = stage.transform(rows) @ coef.T + intercept
    assert rows @ folded.T + same == pytest.approx(expected, abs=1e-12)
    assert stage.unfold(folded, same)[0] == pytest.approx(coef)


@pytest.mark.parametrize("name", ["strength", "evenness"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "0.1"])
def test_settings_are_positive(name, value):
    with pytest.raises(InputError, match=f"{name} must be a positive number"):
        PrivateEqualize(**{name: value})


def test_rows_without_a_bound_are_refused():
    with pytest.raises(MissingBound):
        PrivateEqualize(noise_multiplier=1.0).fit(np.ones((3, 2)))


# In a plan


def test_a_plan_counts_it():
    rows, y = rows_of(300), np.arange(300) % 2
    stages = [Normalize(), PrivateCenter(), PrivateEqualize(share=0.3), Normalize()]
    clf = DPLinearClassifier(stages=stages, trainer=DPGD(steps=3), random_state=0).fit(rows, y)
    spent = clf.certificate_.to_dict()["events"]
    assert [event["stage"] for event in spent] == ["PrivateCenter", "PrivateEqualize", "DPGD"]
    assert clf.certificate_.verify()


@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix])
def test_sparse_rows_stay_sparse(form):
    rng = np.random.default_rng(4)
    rows = np.where(rng.random((300, 9)) < 0.2, rng.random((300, 9)), 0.0) / 3
    stage = PrivateEqualize(noise_multiplier=2.0).fit(as_rows(rows, bound=1.0))
    given = form(rows)
    found = stage.apply(given)
    assert sp.issparse(found)
    assert found.nnz == np.count_nonzero(rows)
    assert np.array_equal(found.toarray(), stage.apply(rows))
    assert np.array_equal(given.toarray(), rows)  # what was given is left alone
