"""The sampler at length: ten million draws of every sigma, and a hundred million if asked for."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from tests.mechanisms import goodness
from tests.mechanisms.goodness import ALARM, SIGMAS, Counts, count, exact, tail

from tacit.mechanisms.random_streams import Key


@pytest.mark.parametrize("sigma", SIGMAS)
def test_ten_million_draws_fit(sigma):
    """Body, tails, signs of neighbours and low bits; seeded, so that it cannot fail by chance."""
    counts = count(sigma, 10**7, Key.from_seed(f"at length {sigma}").stream("noise"))
    assert min(counts.p_values().values()) > ALARM


@pytest.mark.long
@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_hundred_million_draws_fit(sigma):
    """Fresh draws: a false alarm has probability 2.5e-7 over all four."""
    counts = count(sigma, 10**8, Key.fresh().stream("noise"))
    print(sigma, counts.p_values(), counts.tails())
    assert min(counts.p_values().values()) > ALARM


# The yardstick itself


@pytest.mark.parametrize("sigma", SIGMAS)
def test_probabilities_add_up(sigma):
    share, zero = exact(sigma)
    assert abs(2 * share.sum() - zero - 1) < 1e-14
    assert 0 < zero <= share[0]


def test_the_formula_for_large_sigmas_agrees_with_the_sum():
    with mp.workprec(goodness.PRECISION):
        sigma = 5000.7
        direct = mp.mpf(0)
        for k in range(20_000):
            if k in (1, 777, 12_345):
                assert abs(goodness.below(k, sigma) - direct) < mp.mpf(2) ** -70
            direct += mp.exp(-(mp.mpf(k) ** 2) / (2 * mp.mpf(sigma) ** 2))


@pytest.mark.parametrize("beyond", goodness.BEYOND)
def test_tails_of_large_sigmas_are_those_of_the_normal(beyond):
    assert tail(2.0**30, beyond) == pytest.approx(2 * stats.norm.sf(beyond), rel=1e-8)
    assert tail(1000.3, beyond) == pytest.approx(2 * stats.norm.sf(beyond), rel=5e-3)


def wrong_scale(stream, sigma, n, rng):
    return stream.discrete_gaussian(sigma * 1.006, n)


def cut_tail(stream, sigma, n, rng):
    x = stream.discrete_gaussian(sigma, n)
    return np.where(np.abs(x) > 4 * sigma, 0, x)


def heavy_tail(stream, sigma, n, rng):
    x = stream.discrete_gaussian(sigma, n)
    return np.where(rng.random(n) < 1e-5, (6 * sigma * np.sign(x)).astype(np.int64), x)


def leaning(stream, sigma, n, rng):
    x = stream.discrete_gaussian(sigma, n)
    return np.where(rng.random(n) < 0.005, np.abs(x), x)


def repeated(stream, sigma, n, rng):
    x = stream.discrete_gaussian(sigma, n)
    again = np.flatnonzero(rng.random(n // 2) < 0.006) * 2
    x[again + 1] = x[again]
    return x


@pytest.mark.parametrize("fault", [wrong_scale, cut_tail, heavy_tail, leaning, repeated])
@pytest.mark.parametrize("sigma", [20.0, 2.0**30])
def test_faulty_draws_do_not_fit(sigma, fault):
    rng = np.random.default_rng(1)
    counts = Counts(sigma)
    stream = Key.from_seed(f"fault {sigma}").stream("noise")
    for _ in range(3):
        counts.add(fault(stream, sigma, 2_000_000, rng))
    assert min(counts.p_values().values()) < ALARM
