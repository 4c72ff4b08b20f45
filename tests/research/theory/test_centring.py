"""Norm against diameter: Sun et al. 2024."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.research.theory import runs

from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.research import instances
from tacit.research.theory import centring, descent

BUDGET = {"epsilon": 1.0, "delta": 1e-5}


@pytest.mark.parametrize("radius", [0.2, 1.0, 4.0])
def test_measured_excess_risk_lies_below_lemma_1_as_corrected(radius):
    loss, n = get_loss("logistic"), 50
    rows, targets, _ = runs.glm(loss, n, 9, 2, seed=3, radius=radius)
    full = np.column_stack([rows, np.ones(n)])
    best, norm = best_of(loss, full, targets)
    bound = centring.uncentred_risk(n, 3, **BUDGET, norm=norm, bound=radius)
    plan = descent.schedule(n, 3, **BUDGET, norm=norm, lipschitz=math.hypot(radius, 1.0))
    found = runs.descend(
        full,
        lambda scores: loss.residual(scores[..., None], targets)[..., 0],
        steps=plan.steps,
        rate=plan.learning_rate,
        noise=plan.noise_multiplier * plan.clip / n,
        runs=15,
        seed=0,
    )
    assert 0 < runs.excess(loss, full, targets, found, best).mean() < bound.value


def best_of(loss, rows, targets):
    from scipy.optimize import minimize

    def mean(w):
        return float(loss.value((rows @ w)[:, None], targets).mean())

    def slope(w):
        return rows.T @ loss.residual((rows @ w)[:, None], targets)[:, 0] / len(rows)

    best = minimize(mean, np.zeros(rows.shape[1]), jac=slope, method="BFGS").x
    return best, float(np.linalg.norm(best))


def test_lemma_1_as_printed_promises_an_intercept_for_nothing():
    """Rows of norm zero, all labels alike: what is left to learn is a sign, and that costs."""
    found = centring.uncentred_risk(100, 1, **BUDGET, bound=0.0)
    assert found.printed == 0.0
    assert found.value == pytest.approx(descent.risk(100, 1, **BUDGET).value)
    # Hinge loss of labels that are all 1, or all −1: whatever b is, one of them loses 1 or more,
    # and a private b can hardly tell them apart if there are few rows.
    hinge = get_loss("hinge")
    for b in np.linspace(-3, 3, 61):
        losses = [float(hinge.value(np.array([[b]]), np.array([[y]]))[0]) for y in (1.0, -1.0)]
        assert max(losses) >= 1


def test_for_long_rows_the_printed_lemma_is_about_the_corrected_one():
    found = centring.uncentred_risk(10**5, 50, **BUDGET, bound=1e3)
    assert found.value < found.printed < 3 * found.value


def test_centring_pays_when_rows_lie_close_together():
    given = {"norm": 1.0, "bound": 100.0, **BUDGET}
    plain = centring.uncentred_risk(10**5, 20, **given)
    near = centring.centred_risk(10**5, 20, **given, diameter=1.0)
    far = centring.centred_risk(10**5, 20, **given, diameter=200.0)
    assert near.value < plain.value / 10 < far.value
    assert not near.comparable(plain)
    assert near.constant == "up to a constant"
    values = [
        centring.centred_risk(10**5, 20, **given, diameter=d).value for d in (0.0, 0.1, 1.0, 10.0)
    ]
    assert values == sorted(values)


def test_the_lower_bound_is_never_above_what_zero_weights_lose():
    """The printed form is, for best weights that are short."""
    for norm in (0.01, 0.3, 1.0, 7.0):
        for n in (2, 10, 10**4):
            found = centring.lower_bound(n, 9, epsilon=0.1, diameter=1.0, norm=norm)
            assert found.value <= norm  # G·N·R with R at most the diameter
    small = centring.lower_bound(2, 9, epsilon=0.1, diameter=1.0, norm=0.01)
    assert small.printed > 0.01


def test_both_forms_of_the_lower_bound_agree_on_the_papers_construction():
    for n in (10, 10**3, 10**6):
        found = centring.lower_bound(n, 16, epsilon=0.5, diameter=math.sqrt(2), lipschitz=2.0)
        assert found.value == pytest.approx(found.printed)
        assert found.side == "lower"


def test_two_clusters_are_hard_for_rows_as_they_come_only():
    """Theorem 3's setting, μ > nε: the bound for plain rows says nothing, the centred one does."""
    n, epsilon = 10_000, 1.0
    instance = instances.two_clusters(n, 20_000.0)
    given = {"epsilon": epsilon, "delta": 1e-6, "norm": 1.0, "bound": instance.bound}
    plain = centring.uncentred_risk(n, 3, **given)
    near = centring.centred_risk(n, 3, **given, diameter=instance.facts["diameter"])
    trivial = instance.excess([0.0, 0.0])
    assert plain.value > trivial == 1.0
    assert near.value < 0.01 * trivial


def test_nonsense_is_refused():
    with pytest.raises(InputError, match="diameter"):
        centring.centred_risk(10, 2, **BUDGET, diameter=-1.0)
    with pytest.raises(InputError, match="bound"):
        centring.uncentred_risk(10, 2, **BUDGET, bound=math.inf)
    with pytest.raises(InputError, match="rank"):
        centring.lower_bound(10, 0, epsilon=1.0, diameter=1.0)
