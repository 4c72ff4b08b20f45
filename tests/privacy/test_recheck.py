"""The second accountant: its bounds hold, are tight, and agree with other routes."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from tacit.exceptions import InputError
from tacit.privacy.verification import pairs, recheck
from tacit.privacy.verification.pairs import delta_of, epsilon_of

RELATIONS = ("replace_special", "add_or_remove_one", "replace_one")


def gaussian(z, count=1):
    return ("gaussian", {"noise_multiplier": z, "count": count})


def poisson(z, q, count=1):
    parameters = {"noise_multiplier": z, "sampling_probability": q, "count": count}
    return ("poisson-gaussian", parameters)


def hockey_stick(pair, epsilon):
    """P(Y > ε) − e^ε·Q(Y > ε) of a pair whose loss increases, from where the loss crosses ε."""

    def log_density(mixture, x):
        return math.log(sum(w * math.exp(s * x - s * s / 2) for w, s in mixture))

    def excess(x):
        return log_density(pair[0], x) - log_density(pair[1], x) - epsilon

    if excess(60.0) <= 0:
        return 0.0
    at = brentq(excess, -60.0, 60.0, xtol=1e-14) if excess(-60.0) < 0 else -60.0
    p, q = (sum(w * ndtr(s - at) for w, s in mixture) for mixture in pair)
    return p - math.exp(epsilon) * q


def one_step_delta(z, q, epsilon, neighbors):
    null, up, down = [(1.0, 0.0)], [(1 - q, 0.0), (q, 1 / z)], [(1 - q, 0.0), (q, -1 / z)]
    if neighbors == "replace_one":
        return hockey_stick((up, down), epsilon)
    return max(hockey_stick((up, null), epsilon), hockey_stick((null, down), epsilon))


def brackets(found, truth, slack=1e-9):
    return found.lower <= truth * (1 + slack) and truth * (1 - slack) <= found.upper


# --- exact answers ---------------------------------------------------------------------------


def test_known_value_of_replace_one():
    found = recheck.epsilon([gaussian(5.0)], 1e-5, "replace_one")
    assert found.epsilon == pytest.approx(1.555, abs=5e-4)
    assert found.upper == pytest.approx(found.lower, rel=1e-12)


@pytest.mark.parametrize("mu", [0.003, 0.1, 1.0, 4.0, 9.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 10.0, 50.0])
def test_gaussians_alone_follow_the_closed_form(mu, epsilon):
    a, b = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    truth = math.exp(log_ndtr(a)) * -math.expm1(epsilon + log_ndtr(b) - log_ndtr(a))
    steps = [gaussian(2 / mu, 1), gaussian(4 / mu, 8), gaussian(4 / mu, 4)]  # (1 + 2 + 1)·μ²/4
    found = recheck.delta(steps, epsilon, "replace_special")
    assert found.epsilon == pytest.approx(truth, rel=1e-9, abs=1e-290)
    if truth > 1e-290:
        assert brackets(found, truth)
        back = recheck.epsilon(steps, found.epsilon, "replace_special")
        assert back.epsilon == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("count", [2, 100, 10_000])
@pytest.mark.parametrize(("mu", "delta"), [(0.05, 1e-6), (1.0, 1e-5), (1.0, 1e-12), (5.0, 1e-30)])
def test_composing_on_the_grid_brackets_the_exact_gaussian(mu, count, delta):
    # The same Gaussian, its steps kept apart: no closed form is used.
    pair = (((1.0, mu / math.sqrt(count)),), ((1.0, 0.0),))
    exact = pairs.gaussian_epsilon(mu, delta)
    found = epsilon_of({pair: count}, delta)
    assert brackets(found, exact.epsilon)
    assert found.upper <= exact.epsilon * (1 + 5e-4)
    assert found.lower >= exact.epsilon * (1 - 3e-3)
    assert brackets(delta_of({pair: count}, exact.epsilon), delta)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_drawing_every_row_is_the_gaussian(neighbors):
    whole = recheck.epsilon([gaussian(7.0, 30)], 1e-6, neighbors)
    assert recheck.epsilon([poisson(7.0, 1.0, 30)], 1e-6, neighbors) == whole
    nearly = recheck.epsilon([poisson(7.0, 1 - 1e-9, 30)], 1e-6, neighbors)
    assert brackets(nearly, whole.epsilon, slack=1e-6)


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
@pytest.mark.parametrize(("z", "q"), [(0.5, 0.9), (1.0, 0.05), (4.0, 0.2), (1000.0, 0.5)])
def test_one_step_brackets_the_hockey_stick(z, q, neighbors):
    for epsilon in np.array([0.2, 1.0]) * min(1 / z, 3.0):
        truth = one_step_delta(z, q, epsilon, neighbors)
        if truth < 1e-14:  # the closed form itself cancels
            continue
        found = recheck.delta([poisson(z, q)], epsilon, neighbors)
        slack = 1e-15 / truth + 1e-9
        assert brackets(found, truth, slack)
        assert found.upper <= truth * (1 + 3e-3 + slack)
        back = recheck.epsilon([poisson(z, q)], truth, neighbors)
        assert brackets(back, epsilon, slack=1e-7)
        assert back.upper <= epsilon * 1.003


def test_both_orders_of_the_neighbours_count():
    remove, add = recheck.directions([poisson(0.8, 0.1, 5)], "add_or_remove_one")
    curves = [epsilon_of(order, 1e-5) for order in (remove, add)]
    assert curves[0].lower > curves[1].upper
    assert recheck.epsilon([poisson(0.8, 0.1, 5)], 1e-5, "add_or_remove_one") == curves[0]


def test_mixtures_on_both_sides():
    # Poisson sampling after a stage that moves the other rows by b: (1−q)N(b/2) + qN(1+b/2)
    # against its mirror image.
    z, b, q = 1.5, 0.3, 0.2
    up = ((1 - q, b / 2 / z), (q, (1 + b / 2) / z))
    pair = (up, tuple((w, -s) for w, s in up))
    for epsilon in (0.2, 1.0):
        assert brackets(delta_of({pair: 1}, epsilon), hockey_stick(pair, epsilon))


def test_tiny_delta_agrees_with_sums_of_positive_terms():
    # No FFT: direct convolution keeps every digit, and connecting dots only adds.
    z, q, count, delta, h = 1.0, 0.02, 64, 1e-13, 4e-3
    (pair,) = recheck.directions([poisson(z, q)], "replace_one")[0]
    step = pairs.discretise(pair, h, 9.0)
    first, mass = step.first, np.exp(step.log_mass)
    for _ in range(6):
        mass = np.convolve(mass, mass)
        kept = np.flatnonzero(mass > 1e-22)
        first, mass = 2 * first + kept[0], mass[kept[0] : kept[-1] + 1]
    y = h * (first + np.arange(len(mass)))
    direct = brentq(lambda e: mass[y > e] @ -np.expm1(e - y[y > e]) - delta, 0.0, y[-1])
    found = recheck.epsilon([poisson(z, q, count)], delta, "replace_one")
    assert found.lower <= direct
    assert found.epsilon == pytest.approx(direct, rel=2e-4)


# --- against dp-accounting -------------------------------------------------------------------

SETTINGS = [  # z, q, count, δ
    (11.4, 0.068, 2000, 1e-5),
    (1.0, 0.01, 1000, 1e-5),
    (1.0, 0.01, 10_000, 1e-6),
    (0.7, 0.005, 200, 1e-6),
    (5.0, 0.01, 10_000, 1e-8),
    (20.0, 0.5, 10_000, 1e-5),
    (100.0, 0.5, 300, 1e-6),
    (30.0, 0.999, 400, 1e-5),
    (2.0, 0.1, 1, 1e-5),
    (2.0, 0.1, 50, 1e-7),
    (1.0, 0.5, 20, 1e-5),
    (1.0, 1e-3, 1000, 1e-6),
    (3.0, 0.3, 100, 1e-3),
]


def loss_distribution(dpa, pld, z, q, neighbors, *, pessimistic=True, grid=1e-4):
    relation = dpa.NeighboringRelation[neighbors.upper()]
    return pld.privacy_loss_distribution.from_gaussian_mechanism(
        z,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=grid,
        sampling_prob=q,
        use_connect_dots=pessimistic,
        neighboring_relation=relation,
    )


@pytest.mark.parametrize("neighbors", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize(("z", "q", "count", "delta"), SETTINGS)
def test_agrees_with_dp_accounting(z, q, count, delta, neighbors):
    dpa = pytest.importorskip("dp_accounting")
    from dp_accounting import pld

    found = recheck.epsilon([poisson(z, q, count)], delta, neighbors)
    grid = min(1e-3, 0.02 * found.epsilon / math.sqrt(count))
    theirs = loss_distribution(dpa, pld, z, q, neighbors, grid=grid).self_compose(count)
    above = theirs.get_epsilon_for_delta(delta)
    assert found.lower <= above
    assert found.upper <= above * (1 + 1e-3)
    assert found.epsilon == pytest.approx(above, rel=5e-3)


@pytest.mark.parametrize("neighbors", ["add_or_remove_one", "replace_one"])
def test_upper_bound_is_above_an_optimistic_loss_distribution(neighbors):
    dpa = pytest.importorskip("dp_accounting")
    from dp_accounting import pld

    for z, q, count in [(1.5, 0.1, 10), (8.0, 0.5, 4)]:
        steps = [poisson(z, q, count)]
        loss = loss_distribution(dpa, pld, z, q, neighbors, pessimistic=False)
        below = loss.self_compose(count).get_epsilon_for_delta(1e-5)
        assert below <= recheck.epsilon(steps, 1e-5, neighbors).upper <= below * 1.005


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_unlike_steps_compose(neighbors):
    dpa = pytest.importorskip("dp_accounting")
    from dp_accounting import pld

    steps = [gaussian(37.3), poisson(11.4, 0.068, 2000), poisson(4.0, 0.2, 50), gaussian(20.0, 2)]
    found = recheck.epsilon(steps, 1e-5, neighbors)
    accountant = pld.PLDAccountant(dpa.NeighboringRelation[neighbors.upper()], 1e-4)
    for kind, step in steps:
        event = dpa.GaussianDpEvent(step["noise_multiplier"])
        if kind == "poisson-gaussian":
            event = dpa.PoissonSampledDpEvent(step["sampling_probability"], event)
        accountant.compose(event, step["count"])
    theirs = accountant.get_epsilon(1e-5)
    assert found.lower <= theirs
    assert found.epsilon == pytest.approx(theirs, rel=1e-3)


# --- behaviour -------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-3, 1e-12])
def test_more_steps_cost_more_and_bounds_are_in_order(delta):
    found = [
        recheck.epsilon([poisson(2.0, 0.05, t)], delta, "replace_one") for t in (5, 6, 60, 600)
    ]
    for one in found:
        assert 0 <= one.lower <= one.epsilon <= one.upper
        assert one.upper - one.lower <= 3e-3 * one.upper
    assert all(a.upper < b.lower for a, b in pairwise(found))


def test_less_delta_costs_more_epsilon():
    deltas = (1e-2, 1e-5, 1e-9, 1e-20, 1e-100)
    found = [recheck.epsilon([poisson(2.0, 0.05, 100)], d, "replace_special") for d in deltas]
    assert all(a.upper < b.lower for a, b in pairwise(found))


def test_epsilon_and_delta_answer_each_other():
    steps = [gaussian(30.0, 3), poisson(1.5, 0.02, 400)]
    for delta in (1e-4, 1e-10):
        found = recheck.epsilon(steps, delta, "replace_special")
        assert recheck.delta(steps, found.upper, "replace_special").lower <= delta
        assert recheck.delta(steps, found.lower, "replace_special").upper >= delta


def test_a_count_is_a_list():
    one, many = [poisson(2.0, 0.1, 6)], [poisson(2.0, 0.1)] * 4 + [poisson(2.0, 0.1, 2)]
    assert recheck.epsilon(one, 1e-6, "replace_one") == recheck.epsilon(many, 1e-6, "replace_one")


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
def test_extremes_stay_honest(neighbors):
    assert recheck.epsilon([], 1e-5, neighbors) == recheck.Recheck(0.0, 0.0, 0.0)
    nothing = recheck.epsilon([poisson(1000.0, 1e-5)], 1e-2, neighbors)
    assert (nothing.lower, nothing.upper) == (0.0, 0.0)
    far = recheck.delta([poisson(9.0, 0.1, 10)], 500.0, neighbors)
    assert far.lower == 0 < far.upper < 1e-200
    near = recheck.delta([poisson(0.3, 0.5, 50)], 0.0, neighbors)
    assert 0.99 < near.lower <= near.upper <= 1.0
    heavy = recheck.epsilon([poisson(0.3, 1e-3, 10)], 1e-3, neighbors)
    assert 0 < heavy.lower <= heavy.upper <= 1.005 * heavy.lower


@pytest.mark.parametrize(
    ("steps", "delta", "neighbors", "message"),
    [
        ([gaussian(1.0)], 1e-5, "swap", "replace_special"),
        ([("laplace", {"noise_multiplier": 1.0})], 1e-5, "replace_one", "poisson-gaussian"),
        ([gaussian(0.0)], 1e-5, "replace_one", "noise_multiplier"),
        ([gaussian(1.0, 1.5)], 1e-5, "replace_one", "whole count"),
        ([poisson(1.0, 1.5)], 1e-5, "replace_one", "sampling_probability"),
        ([("poisson-gaussian", {"noise_multiplier": 1.0})], 1e-5, "replace_one", "sampling_prob"),
        ([gaussian(1.0)], 0.0, "replace_one", "delta"),
        ([gaussian(0.05), poisson(1.0, 0.1)], 1e-5, "replace_one", "too little noise"),
    ],
)
def test_what_cannot_be_checked_is_refused(steps, delta, neighbors, message):
    with pytest.raises(InputError, match=message):
        recheck.epsilon(steps, delta, neighbors)


def test_a_negative_epsilon_is_refused():
    with pytest.raises(InputError, match="epsilon"):
        recheck.delta([gaussian(1.0)], -1.0, "replace_one")


def test_shares_no_code_with_dp_accounting():
    code = (
        "import sys, tacit.privacy.verification.recheck as r; "
        "r.epsilon([('poisson-gaussian', {'noise_multiplier': 2.0, 'sampling_probability': 0.1})],"
        " 1e-5, 'replace_one'); sys.exit('dp_accounting' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
