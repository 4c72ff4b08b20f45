"""Losses that are not convex: the corrected Theorem 4.1 holds, and the printed one does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize
from tests.research.theory import runs

from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.research.theory import flatness

BUDGET = {"epsilon": 2.0, "delta": 1e-5}


def flattest(gradients, scale, seed):
    """Index of the least norm, by report-noisy-min; gradients are (T, d, runs)."""
    norms = np.linalg.norm(gradients, axis=1)
    noise = np.random.default_rng(seed).laplace(scale=scale, size=norms.shape)
    chosen = np.argmin(norms + noise, axis=0)
    return norms[chosen, np.arange(norms.shape[1])]


@pytest.mark.parametrize("name", ["savage", "tangent", "tempered", "logistic"])
def test_the_chosen_iterate_is_as_flat_as_the_corrected_theorem_says(name):
    loss, n, rank, count = get_loss(name), 400, 4, 40
    rows, targets, _ = runs.glm(get_loss("logistic"), n, 10, rank, seed=1)
    given = {
        **BUDGET,
        "smoothness": loss.smoothness,
        "start": float(loss.value(np.zeros((n, 1)), targets).mean()),
        "lipschitz": loss.lipschitz(1),
    }
    plan = flatness.schedule(n, rank, **given)
    bound = flatness.risk(n, rank, **given, failure=0.01)

    def residual(scores):
        return loss.residual(scores[..., None], targets)[..., 0]

    path = runs.descend(
        rows,
        residual,
        steps=plan.steps,
        rate=plan.learning_rate,
        noise=plan.noise_multiplier * plan.clip / n,
        runs=count,
        seed=0,
        keep=True,
    )[:-1]
    gradients = np.stack([rows.T @ residual(rows @ theta) / n for theta in path])
    found = flattest(gradients, 4 * plan.clip / (n * BUDGET["epsilon"]), seed=1)
    # 1% may fail by the theorem; none of 40 does, since the bound is loose.
    assert found.max() <= bound.value
    assert bound.failure == 0.01


def test_the_printed_steps_lead_nowhere_flat():
    """Huber loss on r unit vectors, n/r rows each, all targets 1: β = 1/r, L = 1, L(0) = 1/2.

    With the printed number of steps and the printed noise no iterate comes near the printed norm.
    """
    n, rank, epsilon, delta = 6000, 20, 1.0, 1e-5
    log, beta, start = math.log(1 / delta), 1 / rank, 0.5
    steps = math.ceil(beta * (n * epsilon) ** 2 * start / (2 * log))
    sigma = math.sqrt(2 * steps * log) / (n * epsilon)
    noise = np.random.default_rng(0).standard_normal((steps, rank)) * (sigma / beta)
    theta, least = np.zeros(rank), math.inf
    for step in noise:
        slope = np.clip(theta - 1, -1, 1)
        least = min(least, float(np.linalg.norm(slope)) * beta)
        theta = theta - slope - step
    printed = math.sqrt(rank * log * math.log(steps / 0.05)) / (epsilon * n)
    assert least > 8 * printed
    given = {"epsilon": 2 * epsilon, "delta": delta, "smoothness": beta, "start": start}
    corrected = flatness.risk(n, rank, **given)
    assert corrected.printed == pytest.approx(printed, rel=0.01)
    assert corrected.value > printed
    # The balanced number of steps, far fewer, does better than all of those.
    plan = flatness.schedule(n, rank, **given)
    theta, norms = np.zeros(rank), []
    for step in noise[: plan.steps] * (plan.noise_multiplier / n / sigma):
        slope = np.clip(theta - 1, -1, 1)
        norms.append(float(np.linalg.norm(slope)) * beta)
        theta = theta - slope - step
    assert min(norms) < least / 4
    assert min(norms) < corrected.value


def test_the_number_of_steps_balances_progress_and_noise():
    for n, rank in [(500, 3), (20_000, 50)]:
        given = {**BUDGET, "smoothness": 0.25, "lipschitz": 0.5}
        plan = flatness.schedule(n, rank, **given)
        assert plan.learning_rate == 4.0

        def at(steps, plan=plan, n=n, rank=rank):
            unit = 0.5 * plan.noise_multiplier / n / math.sqrt(plan.steps)
            return 2 * 0.25 * math.log(2) / steps + rank * steps * unit**2

        best = optimize.minimize_scalar(at, bounds=(1, 1e9), method="bounded").fun
        assert at(plan.steps) == pytest.approx(best, rel=1e-2)


def test_the_norm_falls_as_the_root_of_the_noise():
    few, many = (flatness.risk(n, 20, **BUDGET, smoothness=0.25).value for n in (10**6, 10**8))
    assert few / many == pytest.approx(10.0, rel=0.1)  # the printed order: 100


def test_steps_of_one_s_own_and_nonsense():
    given = {**BUDGET, "smoothness": 0.25}
    least = flatness.risk(1000, 5, **given).value
    for steps in (1, 10**6):
        assert flatness.risk(1000, 5, **given, steps=steps).value > least
    with pytest.raises(InputError, match="failure"):
        flatness.risk(1000, 5, **given, failure=1.0)
    with pytest.raises(InputError, match="smoothness"):
        flatness.schedule(1000, 5, **BUDGET, smoothness=math.inf)
