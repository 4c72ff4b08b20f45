"""Lower bounds: the arithmetic of their proof, and models that do not get below them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.research.theory import runs

from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.research import instances
from tacit.research.theory import descent, lower

BETA = 1 / 80


def proven(n, d, epsilon, delta, alpha):
    """The end of the proof of Theorem B.1, before it is simplified."""
    grown = math.expm1(epsilon)
    first = alpha * (1 - 8 * BETA - 4 * n * grown * alpha / d) / (4 + 8 * BETA)
    return first - 2 * delta * alpha * n / (BETA * d)


def test_the_simplified_bound_follows_from_the_proof_under_the_condition_added_here():
    missing = 0
    for n in (10, 300, 10**5):
        for d in (1, 10, 500):
            for epsilon in (0.01, 0.3, 2.0):
                grown = math.expm1(epsilon)
                alpha = min(1.0, d / (10 * grown * n))
                delta = min(grown / 1000, d / (1e4 * n), 0.4)
                assert proven(n, d, epsilon, delta, alpha) >= alpha / 10 - 1e-15
                found = lower.population_risk(n, d, epsilon=epsilon, delta=delta * 0.999)
                assert found.value == pytest.approx(alpha / 10)
                # With the condition as printed, δ ≤ (e^ε − 1)/1000, it does not always follow.
                missing += proven(n, d, epsilon, grown / 1000, alpha) < alpha / 10
    assert missing > 5


def test_the_empirical_bound_follows_from_the_one_for_fresh_rows():
    """Corollary B.4: α/10 − (e^ε − 1)α − 2δ is at least min(1/20, d/(210εn)) − 2δ if ε ≤ 1/21."""
    for epsilon in (0.001, 0.02, 1 / 21):
        for n, d in [(50, 2), (10**4, 30), (100, 90)]:
            delta = min(epsilon / 1000, d / (1e4 * n))
            alpha = min(1.0, d / (10 * math.expm1(epsilon) * n))
            chain = alpha / 10 - math.expm1(epsilon) * alpha - 2 * delta
            found = lower.risk(n, d, epsilon=epsilon, delta=delta)
            assert 0 <= found.value <= max(chain, 0.0) + 1e-15


@pytest.mark.parametrize("n", [3000, 12_000])
def test_private_descent_does_not_get_below_on_fingerprinting_data(n):
    """Theorem B.1 is about the mean over p drawn from Beta(1/80, 1/80)."""
    d, epsilon, delta = 20, 0.005, 1e-8
    bound = lower.population_risk(n, d, epsilon=epsilon, delta=delta)
    plan = descent.schedule(
        n, d, epsilon=epsilon, delta=delta, norm=math.sqrt(d), neighbors="replace_one", steps=100
    )
    loss = get_loss("absolute")
    fresh = []
    for seed in range(6):
        instance = instances.fingerprinting(n, d, epsilon=epsilon, seed=seed)
        targets = loss.targets(instance.labels, 1)

        def residual(scores, targets=targets):
            return loss.residual(scores[..., None], targets)[..., 0]

        found = runs.descend(
            instance.rows,
            residual,
            steps=plan.steps,
            rate=plan.learning_rate,
            noise=plan.noise_multiplier / n,
            runs=4,
            seed=seed,
        )
        fresh += [instance.facts["population"](np.clip(w, 0, 1)) for w in found]
    assert np.mean(fresh) > bound.value


def test_without_privacy_one_does_get_below():
    """Majorities lose hardly anything: it is privacy that costs, not the sample."""
    n, d, epsilon = 3000, 20, 0.005
    bound = lower.population_risk(n, d, epsilon=epsilon, delta=1e-8).value
    fresh = []
    for seed in range(20):
        instance = instances.fingerprinting(n, d, epsilon=epsilon, seed=seed)
        fresh.append(instance.facts["population"](instance.optimum))
    assert np.mean(fresh) < bound / 10


def test_scaling_the_loss_scales_weights_and_risk():
    """t·L·|z/t − y| in place of |z − y|: best weights t times as long, excess t·L times."""
    instance = instances.fingerprinting(300, 9, epsilon=0.05, seed=1)
    t, steep = 0.4, 3.0
    rng = np.random.default_rng(0)
    for theta in rng.normal(size=(50, 9)):
        scores = instance.rows @ (t * theta)
        scaled = (t * steep * np.abs(scores / t - instance.labels)).mean()
        assert scaled - t * steep * instance.least == pytest.approx(
            t * steep * instance.excess(theta)
        )
    assert np.linalg.norm(t * instance.optimum) <= t * 3  # √rank = 3
    plain = lower.population_risk(300, 9, epsilon=0.1, delta=1e-7)
    other = lower.population_risk(300, 9, epsilon=0.1, delta=1e-7, norm=1.2, lipschitz=steep)
    assert other.value == pytest.approx(plain.value * t * steep)


def test_lower_bounds_lie_below_upper_ones():
    for n in (100, 10**4, 10**6):
        for rank in (1, 30):
            for epsilon in (0.01, 0.04):
                given = {"epsilon": epsilon, "delta": 1e-11, "neighbors": "replace_one"}
                for norm in (0.1, math.sqrt(rank), 50.0):
                    low = lower.risk(n, rank, **given, norm=norm)
                    high = descent.risk(n, rank, **given, norm=norm)
                    assert low.value < high.value
                    assert low.comparable(high)
                    low = lower.population_risk(n, rank, **given, norm=norm)
                    assert low.value < descent.population_risk(n, rank, **given, norm=norm).value


def test_rows_blanked_out_count_as_replaced_at_twice_epsilon():
    direct = lower.population_risk(1000, 10, epsilon=0.2, delta=1e-7 * (1 + math.exp(0.1)))
    blanked = lower.population_risk(1000, 10, epsilon=0.1, delta=1e-7, neighbors="replace_special")
    assert blanked.value == pytest.approx(direct.value)


def test_what_the_theorems_do_not_cover_is_refused():
    with pytest.raises(InputError, match="beyond the corollary"):
        lower.risk(100, 5, epsilon=0.1, delta=1e-9)
    with pytest.raises(InputError, match="too large for the lower bound"):
        lower.population_risk(10**6, 1, epsilon=0.1, delta=1e-5)
    with pytest.raises(InputError, match="too large for the lower bound"):
        lower.risk(100, 5, epsilon=0.01, delta=1e-3)
