"""Restricted Lipschitz coefficients: the best k by trying all, and limits that must agree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.diagnostics import glm_coefficients
from tacit.exceptions import InputError
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.research import instances
from tacit.research.theory import decay, descent

BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def by_hand(coefficients, n, k):
    """Equation (1) of Li et al. 2022, term by term, for ε = 1, δ = 1e-5, D = 3."""
    d = len(coefficients) - 1
    last = math.floor(math.log2(d / k)) + 1
    tail = sum(s**2 * 2**s * coefficients[2 ** (s - 1) * k] ** 2 for s in range(1, last + 1))
    return 3 * coefficients[0] * math.sqrt(k * math.log(1e5)) / n + 3 * math.sqrt(tail)


@pytest.mark.parametrize("d", [1, 2, 7, 64, 100])
@pytest.mark.parametrize("speed", [0.0, 0.25, 0.6, 1.5])
def test_the_bound_is_equation_1_and_k_the_best_of_all(d, speed):
    coefficients = decay.power_law(d, speed, 2.0)
    for n in (10, 1000, 10**6):
        every = [by_hand(coefficients, n, k) for k in range(1, d + 1)]
        for k in range(1, d + 1):
            found = decay.risk(coefficients, n, **BUDGET, distance=3.0, k=k)
            assert found.value == pytest.approx(every[k - 1], rel=1e-12)
        assert decay.best_k(coefficients, n, **BUDGET) == np.argmin(every) + 1
        best = decay.risk(coefficients, n, **BUDGET, distance=3.0)
        assert best.value == pytest.approx(min(every), rel=1e-12)
        fresh = decay.risk(coefficients, n, **BUDGET, distance=3.0, population=True)
        assert fresh.value == pytest.approx(min(every) + 6 / math.sqrt(n), rel=1e-12)


@pytest.mark.parametrize("speed", [0.75, 1.0, 2.0])
def test_with_a_power_law_the_best_k_has_the_rate_of_equation_2(speed):
    """Their ratio stays within constants while n grows by three orders of magnitude."""
    coefficients = decay.power_law(200_000, speed)
    ratios = []
    for n in (10**2, 10**3, 10**4, 10**5):
        exact = decay.risk(coefficients, n, **BUDGET).value
        ratios.append(exact / decay.power_law_risk(n, speed, **BUDGET).value)
        assert decay.best_k(coefficients, n, **BUDGET) < 200_000 / 4
    assert max(ratios) / min(ratios) < 1.6


def test_with_a_power_law_hardly_any_dimension_is_left():
    one, other = (
        decay.risk(decay.power_law(d, 1.0), 10**4, **BUDGET).value for d in (10**4, 10**6)
    )
    assert one <= other < 1.15 * one
    slow, slower = (
        decay.risk(decay.power_law(d, 0.25), 10**6, **BUDGET).value for d in (10**3, 10**5)
    )
    assert slower > 3 * slow


def test_low_rank_is_the_case_of_coefficients_that_vanish():
    """Remark 3.4: then k = rank, and the order is that of Song et al. 2021, Theorem 3.1."""
    rank, n = 12, 10**5
    coefficients = np.array([1.0] * rank + [0.0] * 500)
    assert decay.best_k(coefficients, n, **BUDGET) == rank
    found = decay.risk(coefficients, n, **BUDGET)
    assert found.value == pytest.approx(math.sqrt(rank * math.log(1e5)) / n)
    assert found.value < descent.risk(n, rank, **BUDGET).value < 2 * found.value


def test_constant_coefficients_give_back_the_dimension():
    coefficients = np.array([1.0] * 300 + [0.0])
    assert decay.best_k(coefficients, 10**6, **BUDGET) == 300


@pytest.mark.parametrize("seed", range(5))
def test_no_mean_gradient_exceeds_the_coefficients_of_a_glm(seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((60, 12)) * np.arange(1, 13) ** -1.0
    rows /= np.linalg.norm(rows, axis=1).max()
    moment = rows.T @ rows / 60
    values, vectors = np.linalg.eigh(moment)
    coefficients = glm_coefficients(values, lipschitz=0.7)
    vectors = vectors[:, ::-1]
    nearest = 0.0
    signs = [np.sign(rows @ v) for v in vectors.T]  # the worst residuals for each direction
    for residual in (*signs, *rng.uniform(-1, 1, (300, 60)), *np.sign(rng.normal(size=(300, 60)))):
        gradient = vectors.T @ (rows.T @ (0.7 * residual) / 60)
        left = np.sqrt(np.append(np.cumsum(gradient[::-1] ** 2)[::-1], 0.0))
        assert np.all(left <= coefficients * (1 + 1e-12))
        nearest = max(nearest, (left[1:-1] / coefficients[1:-1]).max())
    assert nearest > 0.6
    assert coefficients[0] == 0.7
    assert coefficients[-1] == 0.0


def test_the_papers_medians_decay_too_slowly_for_its_second_bound():
    for power, speed in [(0.5, 0.25), (1.0, 0.5)]:
        coefficients = instances.median(20, 500, decay=power, seed=0).facts["coefficients"]
        k = np.arange(10, 500)
        slope = np.polyfit(np.log(k), np.log(coefficients[10:500]), 1)[0]
        assert -slope == pytest.approx(speed, abs=0.02)
        with pytest.raises(InputError, match="must exceed 1/2"):
            decay.power_law_risk(10**4, speed, **BUDGET)


def test_the_schedule_is_the_one_of_the_theorem():
    coefficients, n, distance = decay.power_law(1000, 1.0), 200, 2.0
    plan = decay.schedule(coefficients, n, **BUDGET, distance=distance)
    assert plan.k == decay.best_k(coefficients, n, **BUDGET)
    assert plan.steps == n**2 + math.ceil(1000 * math.log(1000) ** 2)
    without = decay.risk(coefficients, n, **BUDGET, distance=distance, k=plan.k).value
    first = distance * math.sqrt(plan.k * math.log(1e5)) / n
    assert plan.anchor * distance**2 == pytest.approx(without - first)  # α = √Σ/D
    fresh = decay.schedule(coefficients, n, **BUDGET, distance=distance, population=True)
    assert fresh.learning_rate < plan.learning_rate


def test_nonsense_is_refused():
    for wrong in ([1.0], [0.0, 0.0], [1.0, 2.0], [[1.0]], [1.0, math.nan], [1.0, -1.0]):
        with pytest.raises(InputError, match="G₀ ≥ G₁"):
            decay.risk(wrong, 100, **BUDGET)
    good = decay.power_law(5, 1.0)
    with pytest.raises(InputError, match=r"1\.\.5"):
        decay.risk(good, 100, **BUDGET, k=6)
    with pytest.raises(InputError, match="epsilon up to 10"):
        decay.risk(good, 100, epsilon=11.0, delta=1e-5)
    with pytest.raises(InputError, match="too few"):
        decay.power_law_risk(2, 1.0, epsilon=0.1, delta=1e-5)
    with pytest.raises(InputError, match="finite numbers"):
        glm_coefficients([])


def test_settings_of_a_schedule_are_those_of_a_trainer():
    """Fewer steps keep k and anchor, which do not depend on them, and balance the gradient too."""
    from tacit.trainers import DPGD
    from tacit.trainers.settings import PublicFacts

    values = decay.power_law(50, 1.0, first=2.0)
    whole = decay.schedule(values, 1000, epsilon=1.0, delta=1e-5, distance=3.0)
    short = decay.schedule(values, 1000, epsilon=1.0, delta=1e-5, distance=3.0, steps=200)
    assert (short.k, short.anchor, short.clip) == (whole.k, whole.anchor, 2.0)
    noise = 200 / (1000 * gaussian_mu(1.0, 1e-5)) ** 2
    rate = 3.0 / (2.0 * math.sqrt(200 * (1 + short.k * noise)))
    assert short.learning_rate == pytest.approx(rate)
    trainer = DPGD(**short.settings).resolve(PublicFacts(1000, 49, 1, 1.0, 0.2))
    assert (trainer.steps, trainer.anchor, trainer.average) == (200, short.anchor, "uniform")
