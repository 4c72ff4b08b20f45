"""Training on projected rows: the corrected Proposition 9 holds, and why it was corrected."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.research.theory import runs

from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.research.theory import descent, projection

BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def projected(rows, k):
    vectors = np.linalg.svd(rows, full_matrices=False)[2][:k]
    values = np.linalg.svd(rows, compute_uv=False) ** 2 / len(rows)
    return rows @ vectors.T @ vectors, float(values[k:].sum())


def test_what_is_projected_away_costs_its_norm_not_its_square():
    """(64): every row has norm 0.1 outside the first component, so Λ = 0.01; a loss of slope 1
    changes by 0.1 at unit weights, ten times what the paper's LΛ allows."""
    n = 200
    rows = np.column_stack([np.full(n, math.sqrt(0.99)), 0.1 * np.where(np.arange(n) % 2, 1, -1)])
    inside, tail = projected(rows, 1)
    assert tail == pytest.approx(0.01)
    labels = np.where(np.arange(n) % 2, 1.0, -1.0)[:, None]
    hinge, theta = get_loss("hinge"), np.array([0.0, 1.0])
    at, near = (float(hinge.value((x @ theta)[:, None], labels).mean()) for x in (rows, inside))
    assert abs(at - near) == pytest.approx(math.sqrt(tail))
    assert abs(at - near) > 9 * tail


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("k", [1, 3])
def test_measured_excess_risk_lies_below_the_bound(k, noise):
    loss, n, d = get_loss("logistic"), 50, 60
    rows, targets, _ = runs.glm(loss, n, d, 3, seed=2)
    rows = rows + noise / math.sqrt(d) * np.random.default_rng(0).standard_normal(rows.shape)
    rows /= np.linalg.norm(rows, axis=1).max()
    inside, tail = projected(rows, k)
    # Hold it against weights of moderate norm: the best may not exist.
    basis = np.linalg.svd(rows, full_matrices=False)[2][:3]
    from scipy.optimize import minimize

    def mean(z):
        return float(loss.value((rows @ (basis.T @ z))[:, None], targets).mean())

    best = basis.T @ minimize(mean, np.zeros(3), method="BFGS").x
    given = {**BUDGET, "norm": float(np.linalg.norm(best)), "neighbors": "replace_one"}
    inflation = 2.0
    bound = projection.risk(n, k, **given, tail=tail, inflation=inflation)
    unit = inflation * descent.schedule(n, k, **given).noise_multiplier / n
    steps = n**2
    rate = given["norm"] / math.sqrt((steps + 1) * (1 + k * unit**2))
    found = runs.descend(
        inside,
        lambda scores: loss.residual(scores[..., None], targets)[..., 0],
        steps=steps,
        rate=rate,
        noise=unit,
        runs=12,
        seed=1,
    )
    assert runs.excess(loss, rows, targets, found, best).mean() < bound.value


def test_weights_outside_the_subspace_are_noise_of_the_stated_variance():
    n, k, d, steps, norm = 100, 2, 30, 400, 3.0
    rows = np.zeros((n, d))
    rows[:, :k] = np.random.default_rng(0).standard_normal((n, k)) / 4
    sigma = 0.5
    rate = norm / math.sqrt((steps + 1) * (1 + k * sigma**2))
    found = runs.descend(
        rows,
        lambda scores: np.sign(scores - 1),
        steps=steps,
        rate=rate,
        noise=sigma,
        runs=300,
        seed=0,
    )
    outside = found[:, k:]
    expected = (rate * sigma) ** 2 * (steps + 1) * (2 * steps + 1) / (6 * steps)
    assert outside.var() == pytest.approx(expected, rel=0.1)
    assert expected <= norm**2 * (2 + 1 / steps) / (6 * k)


def test_without_a_tail_it_is_descent_of_that_rank():
    given = {**BUDGET, "norm": 2.0, "neighbors": "replace_one"}
    found = projection.risk(1000, 7, **given, tail=0.0, lipschitz=0.5, bound=3.0)
    assert found.value == pytest.approx(descent.risk(1000, 7, **given, lipschitz=1.5).value)
    assert found.comparable(descent.risk(1000, 7, **given))
    more = projection.risk(1000, 7, **given, tail=0.01, inflation=6.0)
    assert more.value > found.value
    assert more.printed < more.value


def test_the_first_test_fails_twice_as_often_as_printed():
    """Algorithm 1 passes if distance + Lap(1/ε) > log(2/δ)/ε."""
    n, epsilon, delta, threshold = 2000, 0.5, 1e-3, 0.1
    rng = np.random.default_rng(0)
    draws = rng.laplace(scale=1 / epsilon, size=400_000)
    for gap in (0.2, 0.22, 0.25):
        distance = (gap - threshold) * n / 12.2
        failed = np.mean(distance + draws <= math.log(2 / delta) / epsilon)
        stated = projection.chance_of_failure(
            n, gap=gap, threshold=threshold, epsilon=epsilon, delta=delta
        )
        printed = math.exp(-distance * epsilon) / (2 * delta)
        if stated < 0.3:  # the tail bound is exact below one half
            assert failed == pytest.approx(stated, rel=0.2)
            assert failed > 1.5 * printed
        assert failed <= stated + 0.005
    always = {"n": n, "threshold": threshold, "epsilon": epsilon, "delta": delta}
    assert projection.chance_of_failure(**always, gap=0.1) == 1.0
    assert projection.chance_of_failure(**always, gap=0.9) < 1e-20


def test_nonsense_is_refused():
    for name, wrong in [("tail", -1.0), ("inflation", 0.5), ("norm", 0.0), ("steps", 0)]:
        with pytest.raises(InputError, match=name):
            projection.risk(100, 3, **BUDGET, **{"tail": 0.0, name: wrong})
