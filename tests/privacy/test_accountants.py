"""What events cost: never below the truth, and not much above it."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.exceptions import InputError
from tacit.privacy.accounting import accountants
from tacit.privacy.accounting.accountants import (
    COARSE_GRID,
    accountant_for,
    delta,
    epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    loss_distribution,
    total_mu,
)
from tacit.privacy.events import (
    EVENTS,
    NEIGHBORS,
    Failure,
    Gamma,
    Gaussian,
    Iterated,
    Parallel,
    PoissonGaussian,
    Repeated,
    Selection,
    sensitivity,
)

EVERY_RELATION = sorted(NEIGHBORS)
SAMPLES = {
    "selection": Selection(30.0),
    "iterated": Iterated(30.0, steps=40),
    "gamma": Gamma(30.0, sampling_probability=0.3),
    "gaussian": Gaussian(4.0),
    "poisson-gaussian": PoissonGaussian(2.0, sampling_probability=0.2),
    "repeated": Repeated(trial=((Gaussian(30.0),),), shape=1.0, rate=0.5),
    "parallel": Parallel([[Gaussian(4.0)], [Gaussian(9.0), PoissonGaussian(0.9, 2, 0.05)]]),
    "failure": Failure(1e-6),
}
quick = settings(derandomize=True, deadline=None, max_examples=60)


def true_delta(mu, eps):
    """The formula of Balle & Wang in 80 digits."""
    with mp.workdps(80):
        mu, eps = mp.mpf(mu), mp.mpf(eps)
        upper = mp.erfc((eps / mu - mu / 2) / mp.sqrt(2)) / 2
        return upper - mp.exp(eps) * mp.erfc((eps / mu + mu / 2) / mp.sqrt(2)) / 2


# Exact Gaussian differential privacy, against many digits


@pytest.mark.parametrize("mu", [0.01, 0.05, 0.1, 0.37, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0])
def test_gaussian_delta_is_the_true_one_rounded_up(mu):
    # From epsilon = 0 to where delta is about 1e-40 (a tail of 13 standard deviations).
    reach = mu * mu / 2 + 13 * mu
    for eps in np.concatenate([[0.0, 1e-9, 1e-4], np.linspace(1e-3, reach, 40)]):
        truth = true_delta(mu, eps)
        found = mp.mpf(gaussian_delta(mu, float(eps)))
        assert found >= truth
        tiny = truth < mp.mpf("1e-20")  # no budget is that small
        assert found <= truth * (1 + mp.mpf("1e-7" if tiny else "1e-9"))


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-5, 1e-9, 1e-12, 1e-20])
@pytest.mark.parametrize("mu", [1e-3, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 50.0])
def test_gaussian_epsilon_is_the_true_one_rounded_up(mu, delta):
    found = gaussian_epsilon(mu, delta)
    assert true_delta(mu, found) <= delta
    if found == 0:
        return
    assert true_delta(mu, found * (1 - 1e-9)) > delta


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-5, 1e-9, 1e-12])
@pytest.mark.parametrize("eps", [0.01, 0.05, 0.3, 1.0, 3.0, 8.0, 50.0])
def test_gaussian_mu_is_the_true_one_rounded_down(eps, delta):
    found = gaussian_mu(eps, delta)
    assert true_delta(found, eps) <= delta
    assert true_delta(found * (1 + 1e-9), eps) > delta


@quick
@given(st.floats(0.01, 20), st.floats(-12, -1))
def test_gaussian_mu_and_epsilon_are_inverse_and_stay_on_the_safe_side(eps, log_delta):
    delta = 10**log_delta
    again = gaussian_epsilon(gaussian_mu(eps, delta), delta)
    assert eps * (1 - 1e-9) <= again <= eps * (1 + 1e-12)  # each is rounded by about 1e-13


def test_no_noise_multiplier_of_use_is_an_error():
    with pytest.raises(InputError, match="no Gaussian mechanism"):
        gaussian_mu(1e-12, 1e-14)


def test_nothing_costs_nothing():
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert epsilon([], 1e-5, "replace_one") == 0.0
    assert delta([], 1.0, "replace_one") == 0.0


@pytest.mark.parametrize("bad", [0.0, -1e-9, math.nan])
def test_a_delta_that_is_none_gives_no_finite_epsilon(bad):
    # A Gaussian mechanism is (eps, 0)-private for no eps at all.
    try:
        found = gaussian_epsilon(1.0, bad)
    except InputError:
        return
    assert found == math.inf


@pytest.mark.parametrize("mu", [1e-6, 1e3, 1e5])
def test_extreme_noise_still_gives_an_upper_bound(mu):
    found = gaussian_epsilon(mu, 1e-5)
    assert true_delta(mu, found) <= 1e-5
    assert found == pytest.approx(mu * mu / 2, rel=0.1) if mu > 1 else found == 0


@pytest.mark.parametrize("count", [1, 10**6, 10**12])
def test_a_million_steps_are_one_step_with_a_thousandth_of_the_noise(count):
    many = epsilon([Gaussian(5.0 * math.sqrt(count), count)], 1e-5, "replace_special")
    assert many == pytest.approx(epsilon([Gaussian(5.0)], 1e-5, "replace_special"), rel=1e-12)


# Composition


def test_every_registered_kind_has_a_sample_and_an_accountant():
    assert set(SAMPLES) == set(EVENTS)
    closed = {kind for kind in EVENTS.values() if kind.gaussian}
    others = {Failure, Gamma, Iterated, Parallel, Repeated}
    assert set(accountants.AS_DP_EVENT) | closed | others == set(EVENTS.values())


@pytest.mark.parametrize("neighbors", EVERY_RELATION)
@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_n_times_is_a_list_of_n_events(kind, neighbors):
    event = SAMPLES[kind]
    if kind == "failure":
        assert delta([event.times(6)], 1.0, neighbors) == pytest.approx(6e-6, rel=1e-12)
        assert delta([event] * 6, 1.0, neighbors) == pytest.approx(6e-6, rel=1e-12)
        return
    once = epsilon([event], 1e-5, neighbors, grid=COARSE_GRID)
    counted = epsilon([event.times(6)], 1e-5, neighbors, grid=COARSE_GRID)
    listed = epsilon([event] * 6, 1e-5, neighbors, grid=COARSE_GRID)
    assert counted == pytest.approx(listed, rel=1e-12 if kind == "gaussian" else 1e-6)
    assert counted > 1.5 * once


def test_gaussian_events_add_their_squares():
    events = [Gaussian(3.0, 4), Gaussian(5.0), Gaussian(0.7, 2)]
    expected = math.sqrt(4 / 9 + 1 / 25 + 2 / 0.49)
    assert expected <= total_mu(events, "replace_special") <= expected * (1 + 1e-14)
    assert total_mu(events, "replace_one") == pytest.approx(2 * expected, rel=1e-14)


def test_the_exact_accountant_is_used_where_it_applies_and_nowhere_else():
    assert accountant_for([Gaussian(1.0), Gaussian(2.0, 5)]) == "gaussian-dp"
    assert accountant_for([Gaussian(1.0), PoissonGaussian(1.0, sampling_probability=0.5)]) == "pld"
    assert accountant_for([PoissonGaussian(1.0)]) == "pld"


@pytest.mark.parametrize("neighbors", EVERY_RELATION)
@pytest.mark.parametrize(
    "events",
    [[Gaussian(1.0)], [Gaussian(40.0, 100)], [Gaussian(20.0), Gaussian(3.0, 2), Gaussian(90.0, 7)]],
    ids=["one", "many", "mixed"],
)
def test_loss_distributions_agree_with_gaussian_dp_from_above(events, neighbors):
    exact = epsilon(events, 1e-6, neighbors)
    pessimistic = loss_distribution(events, neighbors, COARSE_GRID).get_epsilon(1e-6)
    assert exact * (1 - 1e-9) <= pessimistic <= exact * (1 + 1e-3)
    exact = delta(events, 1.0, neighbors)
    pessimistic = loss_distribution(events, neighbors, COARSE_GRID).get_delta(1.0)
    assert exact * (1 - 1e-9) <= pessimistic <= exact * (1 + 1e-2) + 1e-14


# Relations


@pytest.mark.parametrize("events", [[Gaussian(5.0)], [Gaussian(30.0, 50), Gaussian(11.0)]])
def test_replacing_a_row_is_removing_one_at_half_the_noise(events):
    halved = [Gaussian(e.noise_multiplier / 2, e.count) for e in events]
    once = epsilon(events, 1e-5, "replace_one")
    assert once == pytest.approx(epsilon(halved, 1e-5, "replace_special"), rel=1e-12)
    assert epsilon(events, 1e-5, "add_or_remove_one") == epsilon(events, 1e-5, "replace_special")


def test_the_number_of_design_md():
    assert epsilon([Gaussian(5.0)], 1e-5, "replace_one") == pytest.approx(1.554981691, abs=1e-8)


def test_unknown_relations_are_refused_by_every_accountant():
    for events in ([Gaussian(5.0)], [PoissonGaussian(5.0, sampling_probability=0.5)]):
        with pytest.raises(InputError, match="is not a relation"):
            epsilon(events, 1e-5, "replace_two")
        with pytest.raises(InputError, match="is not a relation"):
            delta(events, 1.0, "replace_two")


# One sampled step, against the integral that defines it


def hockey_stick(p, q, eps):
    """The integral of max(0, P - e^eps Q), for mixtures of (weight, mean, deviation)."""
    x = np.linspace(-40, 40, 400_001)

    def density(mixture):
        return sum(w * np.exp(-(((x - m) / s) ** 2) / 2) / s for w, m, s in mixture)

    excess = np.maximum(0.0, density(p) - math.exp(eps) * density(q))
    return float(excess.sum() * (x[1] - x[0])) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("neighbors", EVERY_RELATION)
@pytest.mark.parametrize(("z", "q"), [(1.0, 0.1), (0.7, 0.5), (3.0, 0.9)])
def test_one_sampled_step_has_the_delta_of_its_integral(z, q, neighbors):
    null = ((1.0, 0.0, z),)
    with_row = ((1 - q, 0.0, z), (q, 1.0, z))
    other_row = ((1 - q, 0.0, z), (q, -1.0, z))
    pairs = [(with_row, null), (null, with_row)]
    if sensitivity(neighbors) == 2:
        pairs = [(with_row, other_row)]
    for eps in (0.1, 0.5):
        truth = max(hockey_stick(p, q, eps) for p, q in pairs)
        event = PoissonGaussian(z, sampling_probability=q)
        found = delta([event], eps, neighbors, grid=COARSE_GRID)
        assert truth * (1 - 1e-6) <= found <= truth * (1 + 1e-3)


def test_sampling_everything_is_no_sampling():
    for neighbors in EVERY_RELATION:
        sampled = epsilon([PoissonGaussian(6.0, 9)], 1e-5, neighbors, grid=COARSE_GRID)
        whole = epsilon([Gaussian(6.0, 9)], 1e-5, neighbors)
        assert whole * (1 - 1e-9) <= sampled <= whole * (1 + 1e-3)


# Monotone in everything


@quick
@given(st.floats(0.3, 100), st.integers(1, 1000), st.floats(-12, -1))
def test_gaussian_cost_is_monotone(z, count, log_delta):
    d = 10**log_delta
    cost = epsilon([Gaussian(z, count)], d, "replace_special")
    assert epsilon([Gaussian(z * 1.01, count)], d, "replace_special") <= cost
    assert epsilon([Gaussian(z, count + 1)], d, "replace_special") >= cost
    assert epsilon([Gaussian(z, count)], d * 1.01, "replace_special") <= cost
    assert epsilon([Gaussian(z, count)], d, "replace_one") >= cost
    if cost:
        assert delta([Gaussian(z, count)], cost, "replace_special") <= d


def test_sampled_cost_is_monotone():
    def cost(z=3.0, count=20, q=0.2, d=1e-5, neighbors="replace_special"):
        event = PoissonGaussian(z, count, sampling_probability=q)
        return epsilon([event], d, neighbors, grid=COARSE_GRID)

    base = cost()
    assert cost(z=3.1) < base < cost(z=2.9)
    assert cost(count=19) < base < cost(count=21)
    assert cost(q=0.19) < base < cost(q=0.21)
    assert cost(d=2e-5) < base < cost(d=5e-6)
    assert base == cost(neighbors="add_or_remove_one") < cost(neighbors="replace_one")


def test_delta_and_epsilon_are_inverse_for_sampled_steps():
    events = [PoissonGaussian(3.0, 20, sampling_probability=0.2), Gaussian(10.0)]
    found = epsilon(events, 1e-5, "replace_one", grid=COARSE_GRID)
    assert delta(events, found, "replace_one", grid=COARSE_GRID) == pytest.approx(1e-5, rel=1e-3)


def test_a_coarser_grid_costs_more_never_less():
    events = [PoissonGaussian(3.0, 20, sampling_probability=0.2)]
    grids = (1e-4, 1e-3, 1e-2)
    costs = [epsilon(events, 1e-5, "replace_special", grid=grid) for grid in grids]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]
