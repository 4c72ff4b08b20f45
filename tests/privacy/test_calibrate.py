"""Calibration: the noise found fits the budget by anybody's reckoning, and is hardly more."""

from __future__ import annotations

import dp_accounting as dpa
import pytest
from dp_accounting import pld

from tacit.exceptions import BudgetError
from tacit.privacy import Budget, Gaussian, PoissonGaussian
from tacit.privacy.accounting import calibrate as search
from tacit.privacy.accounting.accountants import epsilon, gaussian_mu
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.events import NEIGHBORS

# relation, epsilon, delta, steps, sampling probability (None: all rows), share of a statistic
PLANS = [
    ("replace_special", 0.05, 1e-3, 1, None, 0),
    ("replace_special", 0.05, 1e-9, 10_000, None, 0.1),
    ("replace_special", 1.0, 1e-5, 300, None, 0.1),
    ("replace_special", 8.0, 1e-6, 50, None, 0.9),
    ("add_or_remove_one", 0.3, 1e-4, 2000, None, 0),
    ("add_or_remove_one", 3.0, 1e-9, 7, None, 0.3),
    ("replace_one", 0.05, 1e-5, 500, None, 0.3),
    ("replace_one", 0.5, 1e-7, 100, None, 0),
    ("replace_one", 8.0, 1e-3, 1000, None, 0.1),
    ("replace_special", 0.05, 1e-3, 50, 0.2, 0),
    ("replace_special", 0.5, 1e-6, 200, 0.1, 0.3),
    ("add_or_remove_one", 0.1, 1e-9, 400, 0.05, 0.3),
    ("add_or_remove_one", 1.0, 1e-5, 100, 0.3, 0.3),
    ("replace_one", 0.3, 1e-6, 50, 0.25, 0.3),
    ("replace_one", 2.0, 1e-4, 100, 0.1, 0),
    ("replace_one", 8.0, 1e-9, 300, 0.1, 0.3),
]


def recomputed(events, delta, neighbors):
    """What a sceptic finds with dp-accounting alone, on the grid 1e-4."""
    accountant = pld.PLDAccountant(dpa.NeighboringRelation[neighbors.upper()], 1e-4)
    for event in events:
        step = dpa.GaussianDpEvent(event.noise_multiplier)
        if isinstance(event, PoissonGaussian):
            step = dpa.PoissonSampledDpEvent(event.sampling_probability, step)
        accountant.compose(step, event.count)
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_noise_fits_the_budget_and_one_per_cent_less_does_not(plan):
    neighbors, eps, delta, steps, q, share = plan
    unit = 2.0 if neighbors == "replace_one" else 1.0
    fixed = [Gaussian(unit / (share * gaussian_mu(eps, delta)))] if share else []

    def events(z):
        training = Gaussian(z, steps)
        if q is not None:
            training = PoissonGaussian(z, steps, sampling_probability=q)
        return [*fixed, training]

    z = calibrate(events, Budget(eps, delta), neighbors)
    assert 0.99 * eps <= recomputed(events(z), delta, neighbors) <= eps
    assert recomputed(events(0.99 * z), delta, neighbors) > eps


@pytest.mark.parametrize(
    ("eps", "steps", "q"),
    [(1.0, 100, 0.01), (0.1, 1000, 0.02), (1.0, 2000, 0.068), (4.0, 300, 0.3)],
)
def test_few_trials_are_made_on_the_fine_grid_and_the_last_one_fits(monkeypatch, eps, steps, q):
    tried = []

    def watched(events, delta, neighbors, *, grid):
        spent = epsilon(events, delta, neighbors, grid=grid)
        tried.append((grid, events[0].noise_multiplier, spent))
        return spent

    monkeypatch.setattr(search, "epsilon", watched)
    z = calibrate(
        lambda z: [PoissonGaussian(z, steps, sampling_probability=q)],
        Budget(eps, 1e-5),
        "replace_special",
    )
    fine = max(1e-4, 1e-4 * eps)
    assert sum(grid <= fine for grid, _, _ in tried) <= 3
    grid, noise, spent = tried[-1]
    assert (grid, noise) == (fine, z)
    assert spent <= eps


def test_plans_cover_every_relation_with_and_without_sampling():
    covered = {(neighbors, q is None) for neighbors, _, _, _, q, _ in PLANS}
    assert covered == {(neighbors, whole) for neighbors in NEIGHBORS for whole in (True, False)}


@pytest.mark.parametrize("q", [None, 0.5], ids=["whole", "sampled"])
@pytest.mark.parametrize("share", [1.0, 3.0])
def test_stages_that_spend_it_all_leave_nothing_to_train_on(q, share):
    statistic = Gaussian(1.0 / (share * gaussian_mu(1.0, 1e-5)))
    training = {} if q is None else {"sampling_probability": q}
    kind = Gaussian if q is None else PoissonGaussian

    with pytest.raises(BudgetError, match="the stages before training alone spend it") as error:
        calibrate(
            lambda z: [statistic, kind(z, 10, **training)], Budget(1.0, 1e-5), "replace_special"
        )
    assert error.value.remaining == 0.0


def test_a_generous_budget_still_gets_noise_that_was_checked():
    z = calibrate(lambda z: [Gaussian(z)], Budget(40.0, 1e-3), "replace_special")
    assert 0.1 < z < 0.2
    assert epsilon([Gaussian(z)], 1e-3, "replace_special") <= 40.0
    z = calibrate(lambda z: [Gaussian(z)], Budget(1e6, 1e-3), "replace_special")
    assert z > 0
    assert epsilon([Gaussian(z)], 1e-3, "replace_special") <= 1e6


def test_more_steps_need_more_noise_and_sampling_needs_less():
    budget = Budget(1.0, 1e-5)
    one = calibrate(lambda z: [Gaussian(z)], budget, "replace_special")
    many = calibrate(lambda z: [Gaussian(z, 100)], budget, "replace_special")
    assert many == pytest.approx(10 * one, rel=1e-6)
    twice = calibrate(lambda z: [Gaussian(z, 100)], budget, "replace_one")
    assert twice == pytest.approx(2 * many, rel=1e-6)
    sampled = calibrate(
        lambda z: [PoissonGaussian(z, 100, sampling_probability=0.5)], budget, "replace_special"
    )
    assert sampled < 0.6 * many
