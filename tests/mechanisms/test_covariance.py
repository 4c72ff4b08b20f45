"""Second moments: exact integers, a contribution that is bounded, and noise as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import kstest
from tests.seam import token

from tacit.exceptions import InputError
from tacit.mechanisms import covariance
from tacit.mechanisms.additive import lattice_rows
from tacit.mechanisms.covariance import BITS, TOGETHER, noisy_second_moment
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Stream
from tacit.privacy.sensitivity.drift import Drift


@pytest.fixture
def silence(monkeypatch):
    """No noise, and a record of what was asked for."""
    asked = []

    def nothing(self, sigma, count):
        asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(Stream, "discrete_gaussian", nothing)
    return asked


def moment(rows, z=1.0, *, bound=2.0, chunk=7, seed=0, size=None, drift=None):
    chunks = (rows[i : i + chunk] for i in range(0, rows.shape[0], chunk))
    n, paid = size or max(rows.shape[0], 1), token(z, seed, "moment")
    return noisy_second_moment(chunks, rows.shape[1], bound, paid, size=n, drift=drift)


def rows_of(n=50, d=4, radius=2.0, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) + 1.0
    return radius * rng.uniform(size=(n, 1)) * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def as_vector(matrix):
    """Diagonal, and upper triangle times √2: a vector with the norm of the matrix."""
    upper = matrix[np.triu_indices(len(matrix), 1)]
    return np.concatenate([np.diag(matrix).astype(float), upper.astype(float) * math.sqrt(2)])


# Exactness


def test_sums_are_exact_whatever_the_chunks(silence):
    rows = rows_of(n=60, d=5)
    whole = lattice_rows(rows, 2.0, BITS).astype(int).astype(object)
    exact = sum(np.outer(row, row) for row in whole)
    expected = exact.astype(float) * 4.0**-BITS * 4.0
    assert max(exact.ravel()) < 2**53
    for chunk in (1, 7, 60):
        found = moment(rows, chunk=chunk)
        assert found.tobytes("F") == expected.tobytes("F")
        assert moment(sp.csr_array(rows), chunk=chunk) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("together", [1, 2, 8, 59])
def test_sums_are_exact_wherever_they_are_collected(silence, monkeypatch, together):
    rows = rows_of(n=60, d=5)
    expected = moment(rows)
    monkeypatch.setattr(covariance, "TOGETHER", together)
    for chunk in (1, 7, 60):
        assert moment(rows, chunk=chunk).tobytes("F") == expected.tobytes("F")


def test_as_many_rows_as_are_taken_together_add_up_exactly(silence):
    # The worst there is: all of them in one cell, and a row more.
    rows = np.zeros((TOGETHER + 1, 2))
    rows[:, 0] = 1.0
    cell = int(lattice_rows(rows[:1], 1.0, BITS)[0, 0])
    assert cell <= 2**BITS
    assert TOGETHER * cell**2 <= 2**53
    found = moment(rows, bound=1.0, chunk=TOGETHER + 1)
    assert found[0, 0] * 4**BITS == (TOGETHER + 1) * cell**2
    assert not found[1:].any()


def test_without_noise_it_is_the_second_moment(silence):
    rows = rows_of(n=300, d=6)
    found = moment(rows)
    assert found == pytest.approx(rows.T @ rows, abs=300 * 4 * 6 * 2.0**-20)
    assert (found == found.T).all()


@pytest.mark.parametrize("bound", [1e-100, 0.3, 1e100])
def test_any_scale(silence, bound):
    rows = rows_of(radius=1.0)
    found = moment(rows * bound, bound=bound) / bound / bound
    assert found == pytest.approx(rows.T @ rows, abs=1e-3)


def test_no_rows_give_noise_alone(silence):
    assert not moment(np.zeros((0, 3))).any()
    assert not noisy_second_moment([], 3, 1.0, token(1.0), size=5).any()


# Sensitivity


def test_no_row_contributes_more_than_the_bound_squared(silence):
    rng = np.random.default_rng(0)
    rest = rows_of(n=20)
    before = as_vector(moment(rest)) / 4.0
    worst, row = 0.0, rng.normal(size=(1, 4))
    for step in range(400):  # climb; far beyond the bound as well
        tried = row + rng.normal(size=(1, 4)) * 0.3 if step % 3 else rng.normal(size=(1, 4)) * 1e3
        # In integers, where the difference is exact.
        found = as_vector(moment(np.concatenate([rest, tried]), size=20)) / 4.0
        distance = float(np.linalg.norm(found - before))
        if distance > worst:
            worst, row = distance, tried
    assert worst <= 1 + 1e-12
    assert worst > 1 - 1e-4


@pytest.mark.parametrize("wild", [1e300, 1e150, -1e308, np.inf, np.nan])
def test_a_wild_row_counts_no_more_than_another(silence, wild):
    rest = rows_of(n=20)
    with np.errstate(all="ignore"):
        found = moment(np.concatenate([rest, np.full((1, 4), wild)]), size=20)
    assert np.isfinite(found).all()
    distance = np.linalg.norm(as_vector(found) - as_vector(moment(rest)))
    assert distance <= 4.0 * (1 + 1e-12)


def test_contributions_of_two_rows_lie_no_farther_apart_than_root_two():
    # What `Drift.second_moment` says of the replaced row.
    a, b = np.eye(2) * 2.0
    apart = np.linalg.norm(np.outer(a, a) - np.outer(b, b))
    assert apart == pytest.approx(Drift(2.0).second_moment(1))


# Noise


def test_noise_is_asked_for_once_in_a_cell_and_is_what_the_event_says(silence):
    d, z = 5, 3.3
    moment(rows_of(d=d), z)
    assert sum(count for _, count in silence) == d * (d + 1) // 2
    (diagonal, first), *rest = silence
    assert first == d
    assert {sigma for sigma, _ in rest} == {rest[0][0]}
    unit = 4.0**BITS  # of one row at most
    for sigma, part in ((diagonal, 1.0), (rest[0][0], math.sqrt(0.5))):
        assert accounted_sigma(sigma) >= z * part * unit
        assert accounted_sigma(sigma) == pytest.approx(z * part * unit, rel=1e-12)


def test_the_error_is_normal_with_the_stated_scale():
    d, z, bound = 150, 7.0, 2.0
    rows = np.zeros((30, d))
    rows[:, 0] = bound
    error = (moment(rows, z) - rows.T @ rows) / (z * bound**2)
    assert (error == error.T).all()
    beside = error[np.triu_indices(d, 1)] * math.sqrt(2)
    assert beside.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * beside.size))
    assert kstest(beside, "norm").pvalue > 0.01
    assert kstest(np.diag(error), "norm").pvalue > 0.01


def test_noise_looks_the_same_from_every_side():
    # Of the Gaussian orthogonal ensemble: uᵀEu has deviation σ for every unit u.
    d, z = 40, 1.0
    rng = np.random.default_rng(0)
    seen = []
    for seed in range(200):
        u = rng.normal(size=d)
        u /= np.linalg.norm(u)
        seen.append(u @ moment(np.zeros((1, d)), z, bound=1.0, seed=seed) @ u)
    assert kstest(seen, "norm").pvalue > 0.01


# How fine the integers are


@pytest.mark.parametrize("size", [1, 2, 100, 2**22, 2**22 + 1, 10**8, 10**12])
@pytest.mark.parametrize("noise", [1e-6, 0.5, 1.0, 1000.0, 1e9])
def test_sums_stay_below_the_largest_integer(size, noise):
    bits = covariance.bits_for(size, noise)
    assert 1 <= bits <= BITS
    assert size * 4**bits <= 2**62
    assert noise * 4**bits < 2**57
    if size <= 2**22 and noise <= 1000:
        assert bits == BITS


@pytest.mark.parametrize("size", [10**8, 10**12])
def test_a_large_public_size_makes_them_coarser_and_little_worse(silence, size):
    rows = rows_of(n=300, d=6)
    bits = covariance.bits_for(size, 1.0)
    assert moment(rows, size=size) == pytest.approx(rows.T @ rows, abs=300 * 4 * 6 * 2.0**-bits)


def test_integers_that_wrap_around_spoil_the_result_only(monkeypatch):
    monkeypatch.setattr(
        Stream, "discrete_gaussian", lambda self, sigma, count: np.full(count, 2**63 - 1)
    )
    assert np.isfinite(moment(rows_of())).all()


def test_noise_beyond_the_sampler_is_refused():
    with pytest.raises(InputError, match="coarser"):
        moment(rows_of(), 1e18)


# Rows that have moved


def shaken(rows, total, rng, bound=2.0):
    """The same rows, moved by ``total`` in all."""
    step = rng.normal(size=rows.shape) * rng.uniform(size=(len(rows), 1)) ** 8
    step *= total / np.linalg.norm(step, axis=1).sum()
    other = rows + step
    other *= bound / np.maximum(np.linalg.norm(other, axis=1), bound)[:, None]
    return other


def test_noise_grows_with_the_drift(silence):
    rows, z = rows_of(), 3.0
    drift = Drift(2.0, l1=1.5, linf=0.1, l0=49)
    moment(rows, z, drift=drift)
    sigma = accounted_sigma(silence[0][0]) / 4.0**BITS * 4.0  # in the units of the rows
    half = drift.second_moment(1) / 2
    assert sigma >= z * half
    assert sigma == pytest.approx(z * half, rel=1e-6)
    assert accounted_sigma(silence[1][0]) == pytest.approx(accounted_sigma(silence[0][0]) / 2**0.5)
    silence.clear()
    moment(rows, z, drift=Drift(2.0))  # nothing has moved: as without a noiseless stage
    assert accounted_sigma(silence[0][0]) == pytest.approx(z * 4.0**BITS, rel=1e-12)


def test_sums_of_neighbours_lie_no_farther_apart_than_the_noise_allows(silence):
    rng, worst = np.random.default_rng(1), 0.0
    for _ in range(300):
        total = 10.0 ** rng.uniform(-9, 1)
        common = rows_of(n=11, seed=int(rng.integers(1000)))
        axis = common[0] / np.linalg.norm(common[0])
        if rng.random() < 0.5:  # all along one line, which is the worst
            common = np.outer(np.full(11, 2.0), axis)
            moved = common * (1 - total / np.linalg.norm(common, axis=1).sum())
        else:
            moved = shaken(common, total, rng)
        one, two = rng.normal(size=(2, 1, 4))
        two -= (two @ one.T) / (one @ one.T) * one
        tables = [np.concatenate([c, 9 * z]) for c, z in ((common, one), (moved, two))]
        drift = Drift(2.0, total, total, 11)
        silence.clear()
        vectors = [as_vector(moment(t, z=1.0, drift=drift)) for t in tables]
        reach = accounted_sigma(silence[0][0]) / 4.0**BITS * 4.0
        worst = max(worst, float(np.linalg.norm(vectors[0] - vectors[1])) / (2 * reach))
    assert 0.9 < worst <= 1


def test_rows_that_move_a_little_do_not_jump(silence):
    # Cut to integers of 20 bits, 2000 rows could jump by 2000 units together.
    rows = np.full((2000, 4), 0.25) * (1 + 1e-12)
    other = np.full((2000, 4), 0.25) * (1 - 1e-12)
    drift = Drift(2.0, 4e-9, 4e-12, 2000)
    vectors = [as_vector(moment(r, drift=drift)) for r in (rows, other)]
    assert np.linalg.norm(vectors[0] - vectors[1]) < 1e-8
