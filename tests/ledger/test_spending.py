"""What an account adds up: jointly, never below the truth, and what it offers does fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.exceptions import InputError
from tacit.ledger.spending import Limits, Spending, Tally
from tacit.losses import get_loss
from tacit.mechanisms.lattice import numerical_delta
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm, PrivateCenter
from tacit.privacy import Budget, Gamma, Gaussian, Iterated, PoissonGaussian, Repeated
from tacit.privacy.accounting.accountants import PLD_SLACK, epsilon, gaussian_epsilon, gaussian_mu
from tacit.privacy.verification import recheck
from tacit.trainers import DPGD, DPSGD

SPECIAL = "replace_special"
LIMITS = Limits(2.0, 1e-5, SPECIAL)


def spending(*events, draws=0, failure=0.0):
    return Spending(tuple((f"step {i}", event) for i, event in enumerate(events)), draws, failure)


def tally(*spendings):
    total = Tally()
    for one in spendings:
        total = total.plus(one)
    return total


def plan(budget, trainer, *stages):
    whole = Plan(budget, (ClipNorm(1.0), *stages), trainer, get_loss("logistic"))
    return whole.calibrate(size=1000, columns=5, classes=2)


def of(calibrated):
    failure = 0.0 if calibrated.test is None else calibrated.test.delta
    return Spending(calibrated.spent, calibrated.draws, failure)


@pytest.mark.parametrize("neighbors", ["replace_special", "add_or_remove_one", "replace_one"])
def test_gaussian_events_are_composed_exactly(neighbors):
    events = [Gaussian(30.0, 10), Gaussian(7.5), Gaussian(100.0, 1000), Gaussian(30.0, 3)]
    total = tally(*(spending(event) for event in events))
    exact = epsilon(events, 1e-5, neighbors)
    found = total.epsilon(Limits(50.0, 1e-5, neighbors))
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-9)


def test_sampled_events_are_composed_by_loss_distributions_once_and_equal_ones_merged():
    step = PoissonGaussian(3.0, 100, 0.05)
    total = tally(spending(step, Gaussian(20.0)), spending(step), spending(Gaussian(15.0)))
    merged = total.events(SPECIAL)
    assert len(merged) == 2
    assert merged[1] == PoissonGaussian(3.0, 200, 0.05)
    found = total.epsilon(LIMITS)
    truth = epsilon(
        [Gaussian(20.0), Gaussian(15.0), PoissonGaussian(3.0, 200, 0.05)], 1e-5, SPECIAL
    )
    assert truth <= found <= truth * 1.005
    # Each plan with sampled steps sets the slack of loss distributions aside.
    assert total.slack(2.0) == pytest.approx(2 * PLD_SLACK)


def test_chances_that_drift_fails_add_up():
    step = PoissonGaussian(3.0, 10, 0.05, drift=((1.0, 0.1),), failure=1e-7)
    total = tally(spending(step), spending(step), spending(step))
    (merged,) = total.events("replace_one")
    assert merged.count == 30
    assert 3e-7 <= merged.failure <= 3e-7 * (1 + 1e-12)
    found = total.epsilon(Limits(2.0, 1e-5, "replace_one"))
    whole = PoissonGaussian(3.0, 30, 0.05, drift=((1.0, 0.1),), failure=3e-7)
    assert found >= epsilon([whole], 1e-5, "replace_one")
    with pytest.raises(InputError, match="replace_one"):
        total.epsilon(LIMITS)


def test_several_plans_cost_less_than_their_epsilons_added_up():
    one = gaussian_epsilon(0.25, 1e-5)
    total = tally(*(spending(Gaussian(4.0)) for _ in range(10)))
    assert total.epsilon(Limits(20.0, 1e-5, SPECIAL)) < 10 * one / 2


def test_numerics_are_counted_at_the_account_s_epsilon():
    # A plan's own epsilon would be too small a factor: (1 + e^ε)·τ at the larger one.
    draws = 10**17
    total = tally(spending(Gaussian(10.0), draws=draws), spending(Gaussian(10.0), draws=draws))
    assert total.slack(60.0) >= numerical_delta(2 * draws, 60.0)
    assert total.slack(60.0) > 1e10 * 2 * numerical_delta(draws, 1.0)


def test_tests_that_may_pass_wrongly_take_from_delta():
    plain = tally(spending(Gaussian(5.0)), spending(Gaussian(5.0)))
    tested = tally(spending(Gaussian(5.0), failure=4e-6), spending(Gaussian(5.0), failure=4e-6))
    assert tested.slack(2.0) >= 8e-6
    assert tested.epsilon(LIMITS) >= epsilon([Gaussian(5.0, 2)], 2e-6, SPECIAL)
    assert tested.epsilon(LIMITS) > plain.epsilon(LIMITS)
    assert tested.plus(spending(Gaussian(5.0), failure=4e-6)).epsilon(LIMITS) == math.inf


def test_a_plan_whose_test_fails_beside_any_other_stays_within_what_is_counted():
    """The inequality in the docstring of `tally`, for laws p, p′ of the plan's outcome.

    What runs besides may depend on that outcome, as far as it is (ε, δ₁)-private for each.
    """
    chance = np.random.default_rng(0)
    for _ in range(500):
        outcomes, eps = chance.integers(2, 5), chance.uniform(0, 2)
        p, q = chance.dirichlet(np.ones(outcomes), 2)
        apart = np.maximum(p - q, 0).sum()
        a, b = chance.dirichlet(np.ones(4), (2, outcomes))
        alone = np.maximum(a - np.exp(eps) * b, 0).sum(axis=1).max()
        both = np.maximum(p[:, None] * a - np.exp(eps) * q[:, None] * b, 0).sum()
        assert both <= alone + apart + 1e-12


@pytest.mark.parametrize("noise, count", [(1e-6, 10**12), (1e-3, 1), (1.0, 10**9)])
@pytest.mark.parametrize("kind", [Gaussian, PoissonGaussian])
def test_hardly_any_noise_costs_too_much_and_ends_at_once(kind, noise, count):
    assert tally(spending(kind(noise, count))).epsilon(LIMITS) > LIMITS.epsilon


def test_more_steps_than_an_event_may_have():
    huge = 10**12
    step = PoissonGaussian(1e8, huge, 0.5)
    total = tally(spending(step), spending(step))
    assert [event.count for event in total.events(SPECIAL)] == [huge, huge]
    quiet = Gaussian(1e9, huge)
    assert tally(quiet := spending(quiet), quiet).epsilon(LIMITS) == pytest.approx(
        gaussian_epsilon(math.sqrt(2e12) / 1e9, 1e-5), rel=1e-6
    )


@settings(deadline=None, max_examples=60)
@given(
    limit=st.floats(0.2, 8.0),
    delta=st.sampled_from([1e-9, 1e-6, 1e-4]),
    spent=st.sampled_from([0.0]) | st.floats(1e-6, 0.999),
    draws=st.integers(0, 10**9),
)
def test_what_is_offered_fits_and_little_more_does_not(limit, delta, spent, draws):
    limits = Limits(limit, delta, SPECIAL)
    most = gaussian_mu(limit, delta)
    total = Tally()
    if spent:
        total = total.plus(spending(Gaussian(1 / (most * spent))))
    asked = spending(Gaussian(1.0), draws=draws)
    room = total.room(limits, delta, asked)
    if room:
        fits = plan(Budget(room, delta), DPGD(steps=3))
        assert total.plus(of(fits)).epsilon(limits) <= limit
    more = max(room * 1.02, room + 2e-4)
    beyond = plan(Budget(more, delta), DPGD(steps=3))
    assert total.plus(of(beyond)).epsilon(limits) > limit


def test_a_fresh_account_has_room_for_a_plan_of_its_own_size():
    assert Tally().room(LIMITS, 1e-5) == 2.0
    whole = plan(Budget(2.0, 1e-5), DPGD(steps=20), PrivateCenter())
    assert Tally().plus(of(whole)).epsilon(LIMITS) <= 2.0
    sampled = plan(Budget(2.0, 1e-5), DPSGD(steps=20, batch_size=100), PrivateCenter())
    assert Tally().plus(of(sampled)).epsilon(LIMITS) <= 2.0


@pytest.mark.slow
def test_what_is_offered_to_sampled_plans_fits_as_well():
    def trainer():
        return DPSGD(steps=40, batch_size=100)

    limits = Limits(1.5, 1e-5, SPECIAL)
    total = tally(
        of(plan(Budget(0.8, 1e-5), trainer())), of(plan(Budget(0.6, 1e-5), DPGD(steps=3)))
    )
    room = total.room(limits, 1e-5, of(plan(Budget(1.0, 1e-5), trainer())))
    assert 0.5 < room < 1.5
    assert total.plus(of(plan(Budget(room, 1e-5), trainer()))).epsilon(limits) <= 1.5
    assert total.plus(of(plan(Budget(room * 1.15, 1e-5), trainer()))).epsilon(limits) > 1.5


@pytest.mark.parametrize(
    "given_, words",
    [
        ({"events": ()}, "from 1 to"),
        ({"events": ((1, 2, 3),)}, "pairs"),
        ({"events": (("a", "b"),)}, "events must be those"),
        ({"draws": -1}, "draws"),
        ({"draws": 1.5}, "draws"),
        ({"draws": True}, "draws"),
        ({"failure": 1.0}, "failure"),
        ({"failure": float("nan")}, "failure"),
        ({"failure": "0"}, "failure"),
    ],
)
def test_spendings_that_cannot_be_believed(given_, words):
    whole = {"events": (("a", Gaussian(1.0)),), "draws": 0, "failure": 0.0} | given_
    with pytest.raises(InputError, match=words):
        Spending(**whole)


# --- kinds that are neither Gaussian nor sampled --------------------------------------------------


def as_steps(*events):
    return [(event.kind, event.to_dict()["parameters"]) for event in events]


SEARCH = Repeated(trial=((Gaussian(40.0, 16), Gaussian(50.0)),), shape=1.0, rate=0.2)


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
@pytest.mark.parametrize(
    "other", [Gamma(40.0, 3), Iterated(8.0, 2, steps=9), SEARCH], ids=["gamma", "pass", "search"]
)
def test_every_kind_is_composed_with_all_others(other, neighbors):
    limits = Limits(4.0, 1e-5, neighbors)
    gaussian = Gaussian(20.0)
    total = tally(spending(other), spending(gaussian, other))
    assert sorted(event.count for event in total.events(neighbors))[-1] == 2 * other.count
    found = total.epsilon(limits)
    again = recheck.epsilon(as_steps(gaussian, other, other), 1e-5 - total.slack(4.0), neighbors)
    assert again.lower <= found
    if other.kind != "gamma":  # there the second route has Rényi divergences only
        assert found == pytest.approx(again.epsilon, rel=0.01)
    assert again.upper >= found * 0.99
    # With sampled steps beside it, the account is no smaller.
    sampled = total.plus(spending(PoissonGaussian(4.0, 3, 0.1)))
    assert sampled.epsilon(limits) > found


def test_searches_multiply_what_loss_distributions_may_get_wrong():
    sampled = spending(PoissonGaussian(4.0, 3, 0.1))
    assert tally(sampled).slack(2.0) == pytest.approx(PLD_SLACK)
    both = tally(sampled, spending(SEARCH))
    assert both.slack(2.0) == pytest.approx(5 * PLD_SLACK)
    assert tally(spending(SEARCH)).slack(2.0) == 0.0  # all Gaussian: no grid
    many = tally(*[sampled] + [spending(SEARCH)] * 30)
    assert many.slack(2.0) > 1
    assert many.epsilon(LIMITS) == math.inf


def test_room_beside_searches_is_what_fits():
    total = tally(spending(SEARCH), spending(Gaussian(20.0)))
    limits = Limits(2.0, 1e-5, SPECIAL)
    offered = total.room(limits, 1e-5)
    assert 0.3 < offered < 2.0
    more = [Gaussian(1 / gaussian_mu(e, 1e-5)) for e in (offered * (1 - 1e-4), offered * 1.1)]
    fits, not_so = (total.plus(spending(event)).epsilon(limits) for event in more)
    assert fits <= 2.0 < not_so
    search = total.room(limits, 1e-5, spending(SEARCH.scaled(0.5)))
    assert 0.1 < search < offered


@pytest.mark.parametrize("event", [Gamma(1e-3, 10), Iterated(1e-3, steps=9), SEARCH.scaled(1e-5)])
def test_hardly_any_noise_of_any_kind_ends_at_once(event):
    assert tally(spending(event)).epsilon(LIMITS) > LIMITS.epsilon
