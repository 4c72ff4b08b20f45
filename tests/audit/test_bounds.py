"""Bounds from counted errors: exact where binomials are, and right as often as they say."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom, norm

from tacit.audit import bounds
from tacit.audit.bounds import Errors
from tacit.audit.canaries import best_guesses
from tacit.exceptions import InputError
from tacit.privacy.accounting.accountants import epsilon, gaussian_epsilon, gaussian_mu
from tacit.privacy.events import Gaussian, PoissonGaussian

DELTA = 1e-5


@pytest.mark.parametrize("trials", [1, 7, 50, 400])
@pytest.mark.parametrize("confidence", [0.9, 0.975])
def test_the_highest_rate_is_where_so_few_become_improbable(trials, confidence):
    for count in range(0, trials, max(1, trials // 7)):
        rate = bounds.highest_rate(count, trials, confidence)
        assert binom.cdf(count, trials, rate) == pytest.approx(1 - confidence, rel=1e-9)
    assert bounds.highest_rate(trials, trials, confidence) == 1.0


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5, 0.93])
def test_the_highest_rate_covers_the_true_one_as_often_as_it_says(rate):
    n, confidence = 60, 0.95
    high = np.array([bounds.highest_rate(k, n, confidence) for k in range(n + 1)])
    covered = binom.pmf(np.arange(n + 1), n, rate)[high >= rate].sum()  # exactly, over all counts
    assert covered >= confidence


def test_nonsense_is_no_rate():
    for count, trials in ((-1, 5), (6, 5), (0, 0)):
        with pytest.raises(InputError, match="not a rate"):
            bounds.highest_rate(count, trials, 0.95)
    with pytest.raises(InputError, match="confidence"):
        bounds.highest_rate(1, 5, 1.0)
    with pytest.raises(InputError, match="canaries"):
        bounds.one_run_lower(10, 11, 3, delta=DELTA)


@pytest.mark.parametrize("true", [0.5, 2.0])
def test_randomised_response_has_the_epsilon_of_its_error_rates(true):
    error = 1 / (1 + math.exp(true))
    assert bounds.epsilon_of_rates(error, error, 0.0) == pytest.approx(true)
    # And a test that ignores what it sees has none.
    assert bounds.epsilon_of_rates(0.3, 0.7, 0.0) < 1e-12
    assert bounds.epsilon_of_rates(1.0, 1.0, 0.1) == 0.0
    assert bounds.epsilon_of_rates(0.0, 0.1, 0.0) == math.inf


def test_the_rates_of_a_gaussian_give_its_mu_at_every_threshold():
    for mu in (0.3, 1.0, 4.0):
        for threshold in (-1.0, 0.4, 2.5):
            rates = ndtr(-threshold), ndtr(threshold - mu)
            assert bounds.mu_of_rates(*rates) == pytest.approx(mu)
            # A Gaussian mechanism has the ε of no test but allows for it.
            found = bounds.epsilon_of_rates(*rates, DELTA)
            assert found <= gaussian_epsilon(mu, DELTA) * (1 + 1e-9)


@pytest.mark.parametrize("confidence", [0.75, 0.95, 0.9975])
def test_errors_counted_together_have_a_mean_within_the_limit_as_often_as_they_say(confidence):
    """Exactly, over all counts, for rates as different as they come."""
    for n in (1, 3, 25, 160):
        high = np.array(
            [bounds.rates(Errors(k, n, 0, n), confidence, together=True)[0] for k in range(n + 1)]
            + [
                bounds.rates(Errors(n, n, k, n), confidence, together=True)[0]
                for k in range(1, n + 1)
            ]
        )
        for one in (0.0, 0.01, 0.2, 0.5):
            for other in (0.0, 0.05, 0.3, 0.45, 0.9, 1.0):
                counts = np.arange(n + 1)
                law = np.convolve(binom.pmf(counts, n, one), binom.pmf(counts, n, other))
                within = (high >= (one + other) / 2) | (high > 0.5)  # the latter refute nothing
                assert law[within].sum() >= confidence - 1e-12


def test_whatever_lies_beyond_the_limit_falls_short_by_one():
    """What Hoeffding's theorem asks for."""
    for n in (1, 2, 5, 40, 1000):
        for count in range(n):
            high = bounds.highest_rate(count, n, bounds.LEAST_CONFIDENCE)
            assert high > 0.5 or n * high >= count + 1 - 1e-9


def test_counting_together_is_tighter_where_errors_are_alike_and_refused_where_it_is_not_valid():
    alike = {"delta": DELTA, "confidence": 0.9975}
    for lower in (bounds.lower, bounds.gaussian_lower):
        assert lower(Errors(90, 320, 80, 320), **alike, together=True) > lower(
            Errors(90, 320, 80, 320), **alike
        )
        assert lower(Errors(160, 320, 160, 320), **alike, together=True) == 0.0
    with pytest.raises(InputError, match="320 and of 300 runs"):
        bounds.gaussian_lower(Errors(9, 320, 9, 300), **alike, together=True)
    with pytest.raises(InputError, match="confidence"):
        bounds.lower(Errors(9, 320, 9, 320), delta=DELTA, confidence=0.7, together=True)


@lru_cache(maxsize=4096)
def gaussian(taken, missed, n, sure):
    return bounds.gaussian_lower(Errors(taken, n, missed, n), delta=DELTA, confidence=sure)


@pytest.mark.parametrize("claimed", [1.0, 4.0])
def test_bounds_on_a_gaussian_mechanism_are_below_its_epsilon_as_often_as_they_say(claimed):
    rng = np.random.default_rng(7)
    mu, n, sure = gaussian_mu(claimed, DELTA), 200, 0.8
    taken, missed = rng.binomial(n, ndtr(-mu / 2), size=(2, 1500))
    found = np.array(
        [gaussian(int(a), int(b), n, sure) for a, b in zip(taken, missed, strict=True)]
    )
    assert (found <= claimed).mean() >= sure
    anything = [
        bounds.lower(Errors(a, n, b, n), delta=DELTA)
        for a, b in zip(taken[:200], missed[:200], strict=True)
    ]
    assert max(anything) <= claimed


def test_the_gaussian_bound_comes_close_and_the_general_one_does_not():
    mu, n = gaussian_mu(1.0, DELTA), 1_000_000
    errors = round(n * ndtr(-mu / 2))
    close = bounds.gaussian_lower(Errors(errors, n, errors, n), delta=DELTA)
    assert 0.95 < close < 1.0
    assert bounds.lower(Errors(errors, n, errors, n), delta=DELTA) < 0.3


@pytest.mark.parametrize("count", [(3, 400, 200, 400), (90, 300, 80, 300), (150, 300, 150, 300)])
def test_an_account_of_gaussians_is_a_gaussian_one(count):
    options = {"delta": DELTA, "confidence": 0.9}
    found = bounds.accounted_lower(
        Errors(*count), events=[Gaussian(3.0, 2)], neighbors="replace_one", **options
    )
    assert found == bounds.gaussian_lower(Errors(*count), **options)


@pytest.mark.slow
def test_an_account_of_sampled_steps_is_not_refuted_by_its_own_rates_and_is_by_better_ones():
    z, q, n = 0.8, 0.3, 4000
    events = [PoissonGaussian(z, 1, sampling_probability=q)]
    true = epsilon(events, DELTA, "replace_special")

    def found(threshold, out=0.0):
        taken = norm.sf(threshold, scale=z)
        missed = (1 - q + out) * norm.cdf(threshold, scale=z)
        missed += (q - out) * norm.cdf(threshold, loc=1.0, scale=z)
        return bounds.accounted_lower(
            Errors(round(n * taken), n, round(n * missed), n),
            events=events,
            neighbors="replace_special",
            delta=DELTA,
        )

    for threshold in (0.3, 0.8, 1.2):
        assert 0.5 * true < found(threshold) <= true
        assert found(threshold, out=q / 2) < 0.7 * true  # drawn less often: more private
        assert found(threshold, out=-0.5) > true  # drawn more often
    coin = bounds.accounted_lower(
        Errors(2000, n, 2000, n), events=events, neighbors="replace_special", delta=DELTA
    )
    assert coin == 0.0


# One run


def test_one_run_without_delta_is_a_binomial_bound():
    for right in (30, 60, 80, 100):
        found = bounds.one_run_lower(500, 100, right, delta=0.0)
        if found:
            rate = 1 / (1 + math.exp(-found))
            assert binom.sf(right - 1, 100, rate) == pytest.approx(0.05, rel=1e-6)
        else:
            assert binom.sf(right - 1, 100, 0.5) >= 0.05


def test_one_run_is_less_sure_with_a_larger_delta_and_more_canaries():
    at = [bounds.one_run_lower(1000, 100, 90, delta=d) for d in (0.0, 1e-6, 1e-4, 1e-2)]
    assert at == sorted(at, reverse=True) and at[0] > at[-1]
    assert bounds.one_run_lower(10**6, 100, 90, delta=1e-5) < at[0]


def test_one_run_bounds_randomised_response_as_often_as_it_says():
    true, m = 1.5, 300
    rng = np.random.default_rng(3)
    right = rng.binomial(m, 1 / (1 + math.exp(-true)), size=2000)
    bound = {k: bounds.one_run_lower(m, m, int(k), delta=0.0) for k in set(right)}
    found = np.array([bound[k] for k in right])
    assert 0.95 <= (found <= true).mean() < 0.98
    assert np.median(found) > 0.7 * true


def test_one_run_allows_a_delta_that_gives_everything_away():
    """With probability δ for each canary its coin is shown: those guesses are free."""
    m, delta = 1000, 0.02
    shown = int(m * delta)
    assert bounds.one_run_lower(m, shown, shown, delta=delta) == 0.0
    assert bounds.one_run_lower(m, shown, shown, delta=0.0) > 1.5


@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
def test_the_number_of_guesses_follows_the_claim(mu):
    guesses = best_guesses(400, mu, delta=DELTA, confidence=0.95)
    assert 2 <= guesses <= 400 and guesses % 2 == 0
