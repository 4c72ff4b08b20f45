"""Noisy descent does no worse than its theorem says, and the theorem's settings are the best."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize
from tests.research.theory import runs

from tacit import DPLinearClassifier
from tacit.exceptions import InputError
from tacit.losses import clipped, get_loss
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm
from tacit.privacy import Budget
from tacit.privacy.accounting.accountants import gaussian_epsilon, gaussian_mu
from tacit.privacy.events import NEIGHBORS
from tacit.research.theory import descent
from tacit.research.theory.risk import noise_of
from tacit.trainers import DPGD

BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def per_row(loss, targets):
    """Residuals of all runs: rows by runs."""
    return lambda scores: loss.residual(scores[..., None], targets)[..., 0]


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
@pytest.mark.parametrize("name", ["logistic", "huber-hinge", "huber", "hinge"])
def test_measured_excess_risk_lies_below_theorem_3_1(name, neighbors):
    loss, n, rank = get_loss(name), 50, 3
    smooth = get_loss("huber-hinge", half_width=0.01) if name == "hinge" else loss
    for seed in range(3):
        rows, targets, best = runs.glm(smooth, n, 12, rank, seed=seed)
        given = {**BUDGET, "norm": float(np.linalg.norm(best)), "neighbors": neighbors}
        plan = descent.schedule(n, rank, **given)
        assert plan.steps == n**2
        noise = plan.noise_multiplier * plan.clip / n
        found = runs.descend(
            rows,
            per_row(loss, targets),
            steps=plan.steps,
            rate=plan.learning_rate,
            noise=noise,
            runs=12,
            seed=seed,
        )
        measured = runs.excess(loss, rows, targets, found, best).mean()
        bound = descent.risk(n, rank, **given)
        assert 0 < measured < bound.value
        assert bound.value < 100 * measured  # and is no empty promise


def test_columns_of_zeros_change_nothing():
    loss, n, rank = get_loss("logistic"), 40, 3
    measured = []
    for d in (3, 300):
        rows, targets, _ = runs.glm(loss, n, 3, rank, seed=1)
        wide = np.zeros((n, d))
        wide[:, :3] = rows
        plan = descent.schedule(n, rank, **BUDGET, norm=3.0)
        found = runs.descend(
            wide,
            per_row(loss, targets),
            steps=plan.steps,
            rate=plan.learning_rate,
            noise=plan.noise_multiplier / n,
            runs=20,
            seed=d,
        )
        measured.append(np.mean([loss.value((wide @ w)[:, None], targets).mean() for w in found]))
    assert measured[1] == pytest.approx(measured[0], rel=0.1)


def test_the_rate_is_the_one_that_minimises_the_bound():
    for n, rank, norm, steep, steps in [(100, 5, 2.0, 0.7, None), (30, 20, 0.1, 3.0, 17)]:
        given = {**BUDGET, "norm": norm, "lipschitz": steep, "steps": steps}
        plan, bound = descent.schedule(n, rank, **given), descent.risk(n, rank, **given)
        sigma = plan.noise_multiplier * steep / n

        strength = (1 + 1 / plan.steps) * (steep**2 + rank * sigma**2)
        far = norm**2 / (2 * plan.steps)

        def at(rate, far=far, strength=strength):
            return far / rate + rate * strength / 2

        assert at(plan.learning_rate) == pytest.approx(bound.value, rel=1e-12)
        best = optimize.minimize_scalar(lambda log, at=at: at(math.exp(log))).fun
        assert bound.value == pytest.approx(best, rel=1e-9)


def test_the_printed_variance_is_for_rows_blanked_out_not_replaced():
    """Song et al. 2021, Theorem 2.6 with its Definition 2.5: σ² = 2L²T·log(1/δ)/(nε)²."""
    for epsilon, delta in [(0.1, 1e-6), (1.0, 1e-5), (3.0, 1e-4)]:
        blanked = epsilon / math.sqrt(2 * math.log(1 / delta))  # μ = √T·(L/n)/σ
        assert gaussian_epsilon(blanked, delta) < epsilon
        assert gaussian_epsilon(2 * blanked, delta) > 1.4 * epsilon
    assert round(gaussian_epsilon(2 / math.sqrt(2 * math.log(1e5)), 1e-5), 2) == 1.63


@pytest.mark.parametrize("neighbors", sorted(NEIGHBORS))
def test_noise_spends_exactly_the_budget(neighbors):
    unit = noise_of(123, 0.7, 1e-6, neighbors)
    mu = NEIGHBORS[neighbors] / 123 / unit
    assert mu == pytest.approx(gaussian_mu(0.7, 1e-6), rel=1e-12)


def test_the_exact_bound_is_tighter_than_the_printed_one_where_that_one_is_sound():
    for n in (100, 10_000):
        for rank in (1, 10, 90):
            found = descent.risk(n, rank, **BUDGET)
            assert found.value < found.printed
    replaced = descent.risk(10_000, 90, **BUDGET, neighbors="replace_one")
    assert replaced.value > replaced.printed
    assert descent.risk(100, 5, **BUDGET, steps=7).printed is None


def test_bounds_move_the_right_way():
    base = {"n": 500, "rank": 10, "norm": 1.0, "lipschitz": 1.0, **BUDGET}
    for bound in (descent.risk, descent.population_risk):
        value = bound(**base).value
        for name, factor in [("n", 2), ("epsilon", 2), ("delta", 10)]:
            assert bound(**{**base, name: base[name] * factor}).value < value
        for name in ("rank", "norm", "lipschitz"):
            assert bound(**{**base, name: 2 * base[name]}).value > value
    few = descent.risk(**base, steps=10).value
    assert few > descent.risk(**base, steps=1000).value > descent.risk(**base).value


# What trainers do with it


def test_a_trainer_takes_the_schedule_and_calibrates_to_the_same_noise():
    plan = descent.schedule(400, 5, epsilon=0.5, delta=1e-6, norm=2.0, lipschitz=0.8, steps=300)
    trainer = DPGD(**plan.settings)
    whole = Plan(Budget(0.5, 1e-6), (ClipNorm(1.0),), trainer, get_loss("logistic"))
    ready = whole.calibrate(size=400, columns=5, classes=2)
    assert ready.noise_multiplier == pytest.approx(plan.noise_multiplier, rel=1e-4)
    assert ready.trainer.learning_rate == plan.learning_rate


def test_an_estimator_with_the_schedule_stays_below_the_bound():
    loss, n = get_loss("logistic"), 30
    rows, targets, best = runs.glm(loss, n, 6, 2, seed=4)
    given = {**BUDGET, "norm": float(np.linalg.norm(best))}
    model = DPLinearClassifier(
        1.0,
        1e-5,
        stages=[ClipNorm(1.0)],
        trainer=DPGD(**descent.schedule(n, 2, **given).settings),
        fit_intercept=False,
        arithmetic="fast",
        random_state=3,
    ).fit(rows, targets[:, 0])
    measured = runs.excess(loss, rows, targets, model.coef_, best)[0]
    assert measured < descent.risk(n, 2, **given).value


def test_bounds_with_projections_and_with_reports():
    given = {"epsilon": 1.0, "delta": 1e-5, "norm": 2.0}
    free, held = (descent.risk(100, 5, **given), descent.constrained_risk(100, 5, **given))
    assert held.value == free.value and held.printed < free.printed
    assert descent.constrained_risk(100, 50, **given).value > 3 * free.value
    local = descent.local_risk(100, 5, **given, steps=50)
    replaced = descent.risk(100, 5, **given, neighbors="replace_one", steps=50)
    # the noise of a mean is √n times as large; what steps leave is the same
    square = lambda bound: (bound.value / 2.0) ** 2 / (1 + 1 / 50) - 1 / 50  # noqa: E731
    assert square(local) == pytest.approx(100 * square(replaced))
    plan = descent.local_schedule(100, 5, **given)
    assert plan.steps == 100
    at = 4.0 / (2 * plan.learning_rate * 100)
    sigma = plan.noise_multiplier / math.sqrt(100)
    at += plan.learning_rate / 2 * (1 + 1 / 100) * (1 + 5 * sigma**2)
    assert at == pytest.approx(descent.local_risk(100, 5, **given).value)


# Clipping and fresh rows


def test_clipped_descent_minimises_the_clipped_objective():
    n, rank, clip = 45, 3, 0.25
    loss = get_loss("logistic")
    rows, targets, _ = runs.glm(loss, n, 8, rank, seed=2, radius=3.0)
    norms = np.linalg.norm(rows, axis=1)
    objective = clipped(loss, clip)

    def mean(w):
        return float(objective.value((rows @ w)[:, None], targets, norms=norms).mean())

    def slope(w):
        return rows.T @ objective.residual((rows @ w)[:, None], targets, norms=norms)[:, 0] / n

    best = optimize.minimize(mean, np.zeros(8), jac=slope, method="BFGS").x
    given = {**BUDGET, "norm": float(np.linalg.norm(best))}
    bound = descent.clipped_risk(n, rank, **given, clip=clip)
    assert bound.unit == "clipped loss"
    assert bound.value == descent.risk(n, rank, **given, lipschitz=clip).value
    plan = descent.schedule(n, rank, **given, lipschitz=clip)
    found = runs.descend(
        rows,
        per_row(loss, targets),
        steps=plan.steps,
        rate=plan.learning_rate,
        noise=plan.noise_multiplier * clip / n,
        runs=12,
        seed=0,
        clip=clip,
    )
    assert 0 < np.mean([mean(w) for w in found]) - mean(best) < bound.value


def test_fresh_rows_lose_no_more_than_theorem_3_2_says():
    loss, n = get_loss("logistic"), 40
    population, targets, best = runs.glm(loss, 300, 10, 3, seed=5)
    norm = float(np.linalg.norm(best))
    bound = descent.population_risk(n, 3, **BUDGET, norm=norm)
    unit = noise_of(n, **BUDGET, neighbors="replace_special")
    inner = (1 + 1 / n**2) * (1 + 3 * (n * unit) ** 2) + 16 * n
    rate = norm / (n * math.sqrt(inner))
    measured = []
    for seed in range(6):
        rows = np.random.default_rng(seed).integers(300, size=n)
        found = runs.descend(
            population[rows],
            per_row(loss, targets[rows]),
            steps=n**2,
            rate=rate,
            noise=unit * n,
            runs=5,
            seed=seed,
        )
        measured.append(runs.excess(loss, population, targets, found, best).mean())
    assert 0 < np.mean(measured) < bound.value
    # The rate is the best one for the sum of both parts.
    at = norm**2 / (2 * n**2 * rate) + rate * inner / 2
    assert at == pytest.approx(bound.value, rel=1e-12)


def test_with_very_many_rows_fresh_ones_dominate():
    """The private part falls as 1/n, the rest as 4/√n."""
    for n in (10**6, 10**8):
        assert descent.population_risk(n, 10, **BUDGET).value == pytest.approx(
            4 / math.sqrt(n), rel=0.1
        )


@pytest.mark.parametrize(
    "options", [{"rank": 0}, {"norm": -1.0}, {"lipschitz": math.nan}, {"epsilon": 0.0}, {"n": 0}]
)
def test_nonsense_is_refused(options):
    given = {"n": 10, "rank": 2, **BUDGET, **options}
    for function in (descent.risk, descent.population_risk, descent.schedule):
        with pytest.raises(InputError, match=next(iter(options))):
            function(**given)
