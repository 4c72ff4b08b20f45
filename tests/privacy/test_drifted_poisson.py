"""Sampled steps on rows that drifted: dominated, by both accountants, and never under-counted."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from itertools import pairwise

import dp_accounting as dpa
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom

from tacit.exceptions import BudgetError, CertificateError, InputError
from tacit.privacy import Budget, Certificate, Event, Expense, Gaussian, PoissonGaussian, Selection
from tacit.privacy.accounting import accountants, mixtures
from tacit.privacy.accounting.accountants import (
    COARSE_GRID,
    delta,
    epsilon,
    gaussian_delta,
    gaussian_epsilon,
    loss_distribution,
)
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.accounting.mixtures import loss_of_sampled_step
from tacit.privacy.events import EVENTS
from tacit.privacy.sensitivity import sampling
from tacit.privacy.sensitivity.drift import Drift, deduplicate, impute_mean, pca, soft_pca
from tacit.privacy.verification import recheck

REPLACE = "replace_one"
THIRDS = ((0.5, 0.1), (0.3, 0.4), (0.2, 1.5))


def step(z, q, drift=(), count=1, failure=0.0):
    return PoissonGaussian(z, count, sampling_probability=q, drift=drift, failure=failure)


def as_steps(events):
    return [(event.kind, event.to_dict()["parameters"]) for event in events]


# --- the pair, by itself ---------------------------------------------------------------------


def mirrored(z, q, b):
    """P and Q as lists of (weight, mean), in units of the noise."""
    up = [(1 - q, b / 2 / z), (q, (1 + b / 2) / z)]
    return up, [(w, -m) for w, m in up]


def log_ratio(p, q, x):
    return math.log(
        sum(w * math.exp(m * x - m * m / 2) for w, m in p)
        / sum(w * math.exp(m * x - m * m / 2) for w, m in q)
    )


def hockey_stick(p, q, alpha):
    """H_α(P‖Q) for a loss that increases, from where it crosses ln α."""
    if alpha == 0:
        return 1.0
    target = math.log(alpha)
    if log_ratio(p, q, 40.0) <= target:
        return 0.0
    if log_ratio(p, q, -40.0) >= target:
        return 1 - alpha
    x = brentq(lambda x: log_ratio(p, q, x) - target, -40.0, 40.0, xtol=1e-15)
    above, below = (sum(w * ndtr(m - x) for w, m in mixture) for mixture in (p, q))
    return float(above - alpha * below)


def exact_delta(z, q, drift, eps):
    """δ of one step in 50 digits."""
    with mp.workdps(50):
        total, eps = mp.mpf(0), mp.mpf(eps)
        for weight, b in drift:
            z_, q_, b_ = mp.mpf(z), mp.mpf(q), mp.mpf(b)
            means = [(1 - q_, b_ / 2 / z_), (q_, (1 + b_ / 2) / z_)]

            def loss(x, means=means):
                up, down = (
                    sum(w * mp.exp(sign * m * x - m * m / 2) for w, m in means) for sign in (1, -1)
                )
                return mp.log(up / down)

            low, high = mp.mpf(-60), mp.mpf(60)
            for _ in range(180):
                middle = (low + high) / 2
                low, high = (low, middle) if loss(middle) > eps else (middle, high)
            above, below = (sum(w * mp.ncdf(sign * m - low) for w, m in means) for sign in (1, -1))
            total += mp.mpf(weight) * (above - mp.exp(eps) * below)
        return total


@pytest.mark.parametrize("drift", [((1.0, 0.3),), THIRDS], ids=["one", "three"])
@pytest.mark.parametrize(("z", "q"), [(0.5, 0.9), (1.0, 0.05), (3.0, 0.3), (25.0, 0.01)])
def test_one_step_is_never_below_the_truth_and_hardly_above(z, q, drift):
    found = loss_of_sampled_step(step(z, q, drift), REPLACE, COARSE_GRID)
    for eps in np.array([-2.0, -0.3, 0.0, 0.01, 0.4, 1.7, 4.0]) * min(3 / z, 1.0):
        truth = exact_delta(z, q, drift, float(eps))
        # On its dots the curve is that of the pair; dp-accounting's sums round at 1e-16.
        assert found.get_delta_for_epsilon(float(eps)) >= truth * (1 - mp.mpf("1e-12")) - 1e-15
        assert found.get_delta_for_epsilon(float(eps)) <= truth * (1 + mp.mpf("2e-3")) + 1e-9


@pytest.mark.parametrize(("z", "q", "b"), [(0.4, 0.2, 2.0), (1.0, 1.0, 0.5), (30.0, 0.01, 0.1)])
def test_the_points_that_are_connected_are_upper_bounds_to_many_digits(z, q, b):
    up = tuple((weight, (j + b / 2) / z) for weight, j in mixtures.binomial(1, q))
    dots = mixtures.dots_of(up, up, 1e-3)
    curve = mixtures.curve(up, up, 1e-3 * dots)
    for i in np.unique(np.linspace(0, len(dots) - 1, 25).astype(int)):
        truth = exact_delta(z, q, [(1.0, b)], mp.mpf(float(1e-3 * dots[i])))
        assert mp.mpf(float(curve[i])) >= truth
        assert curve[i] <= float(truth) * (1 + 1e-6) + 1e-22


@pytest.mark.parametrize(
    ("z", "q", "count"), [(3.73, 0.025, 400), (10.5, 0.1, 200), (0.7, 0.005, 100), (50, 1, 100)]
)
def test_without_drift_it_is_the_step_of_dp_accounting(z, q, count):
    ours = loss_of_sampled_step(step(z, q), REPLACE, COARSE_GRID).self_compose(count)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        z,
        value_discretization_interval=COARSE_GRID,
        sampling_prob=q,
        neighboring_relation=dpa.NeighboringRelation.REPLACE_ONE,
    ).self_compose(count)
    for d in (1e-3, 1e-5, 1e-8):
        expected = theirs.get_epsilon_for_delta(d)
        assert ours.get_epsilon_for_delta(d) == pytest.approx(expected, rel=3e-6)


def test_no_shift_is_no_drift():
    plain = epsilon([step(3.0, 0.1, count=20)], 1e-5, REPLACE, grid=COARSE_GRID)
    still = step(3.0, 0.1, ((0.25, 0.0), (0.75, 0.0)), count=20)
    assert epsilon([still], 1e-5, REPLACE, grid=COARSE_GRID) == plain
    hardly = step(3.0, 0.1, ((0.25, 0.0), (0.75, 1e-9)), count=20)
    assert epsilon([hardly], 1e-5, REPLACE, grid=COARSE_GRID) == pytest.approx(plain, rel=1e-5)
    for neighbors in ("replace_special", "add_or_remove_one"):
        assert epsilon([still], 1e-5, neighbors, grid=COARSE_GRID) < plain


@pytest.mark.parametrize("b", [0.0, 0.5, 3.0])
def test_drawing_every_row_is_the_gaussian_of_the_whole_distance(b):
    event = step(20.0, 1.0, ((1.0, b),), count=10)
    mu = math.sqrt(10) * (2 + b) / 20.0
    exact = gaussian_epsilon(mu, 1e-6)
    assert exact * (1 - 1e-9) <= epsilon([event], 1e-6, REPLACE) <= exact * (1 + 1e-4)
    found = recheck.epsilon(as_steps([event]), 1e-6, REPLACE)
    assert found.lower * (1 - 1e-9) <= exact <= found.upper * (1 + 1e-9)
    assert delta([event], 1.0, REPLACE) == pytest.approx(gaussian_delta(mu, 1.0), rel=1e-3)


# --- domination, by attack -------------------------------------------------------------------

ALPHAS = [0.0, *np.geomspace(0.05, 20.0, 32)]
AXIS = np.arange(-9.0, 9.0, 0.04)


def planar_divergences(p, q):
    """H_α for planar mixtures of (weight, mean), by summation; kinks cost about 1e-6."""
    one = {m: np.exp(-((AXIS - m) ** 2) / 2) for _, v in [*p, *q] for m in v}

    def density(mixture):
        return sum(w * np.outer(one[v[0]], one[v[1]]) for w, v in mixture)

    first, second = density(p), density(q)
    cell = (AXIS[1] - AXIS[0]) ** 2 / (2 * math.pi)
    return [float(np.maximum(first - a * second, 0).sum()) * cell for a in ALPHAS]


@pytest.mark.parametrize("seed", range(8))
def test_no_directions_beat_the_pair(seed):
    random = np.random.default_rng(seed)
    z, q, b = random.uniform(0.6, 2.0), random.uniform(0.02, 0.98), random.uniform(0, 2)

    def vector(bound, line):
        # Not along an axis, where all of the kink would lie between two lines of the grid.
        angle = 1.0 + (random.choice([0, math.pi]) if line else random.uniform(0, 2 * math.pi))
        length = bound * (1.0 if line or random.random() < 0.5 else random.random())
        return np.array([math.cos(angle), math.sin(angle)]) * length / z

    pair = [hockey_stick(*mirrored(z, q, b), alpha) for alpha in ALPHAS]
    for line in (True, False, False, False):
        u, v, w = (vector(bound, line) for bound in (1.0, 1.0, b))
        first = [(1 - q, (0.0, 0.0)), (q, tuple(u))]
        second = [(1 - q, tuple(w)), (q, tuple(w + v))]
        for p, r in ((first, second), (second, first)):
            assert all(
                found <= bound + 1e-5
                for found, bound in zip(planar_divergences(p, r), pair, strict=True)
            )


def test_the_pair_is_attained_so_no_smaller_one_would_do():
    z, q, b = 1.2, 0.3, 0.7
    x, y = math.cos(1.0), math.sin(1.0)
    first = [(1 - q, (0.0, 0.0)), (q, (x / z, y / z))]
    second = [(1 - q, (-b * x / z, -b * y / z)), (q, (-(b + 1) * x / z, -(b + 1) * y / z))]
    pair = [hockey_stick(*mirrored(z, q, b), alpha) for alpha in ALPHAS]
    assert planar_divergences(first, second) == pytest.approx(pair, abs=1e-5)
    assert planar_divergences(second, first) == pytest.approx(pair, abs=1e-5)


def test_one_mixture_against_a_single_gaussian_does_not_dominate():
    q, b, sigma = 0.1, 0.3, 1.2
    single = [(1 - q, b / sigma), (q, (2 + b) / sigma)], [(1.0, 0.0)]
    for alpha in (0.6, 1.0, 1.1):
        true = hockey_stick(*mirrored(sigma, q, b), alpha)
        assert hockey_stick(*single, alpha) < true - 1e-3
    # Nor in the other order of the neighbours: H_α(Q‖P) = α·H_{1/α}(P‖Q) + 1 − α.
    reversed_ = 2 * hockey_stick(*single, 0.5) - 1
    assert reversed_ < hockey_stick(*mirrored(sigma, q, b), 2.0) - 1e-3


def test_averaging_final_deltas_instead_of_steps_counts_too_little():
    # A draw is fresh in every step: luck evens out, and so does bad luck.
    z, q, count, drift = 4.0, 0.05, 60, ((0.5, 0.0), (0.5, 0.6))
    true = delta([step(z, q, drift, count)], 0.0, REPLACE, grid=COARSE_GRID)
    averaged = sum(
        w * delta([step(z, q, ((1.0, b),), count)], 0.0, REPLACE, grid=COARSE_GRID)
        for w, b in drift
    )
    assert averaged < true * 0.97
    lower = recheck.delta(as_steps([step(z, q, drift, count)]), 0.0, REPLACE).lower
    assert averaged < lower


def test_one_drawn_step_has_the_mean_of_the_deltas():
    z, q = 1.5, 0.2
    for eps in (0.0, 0.3, 1.0):
        mixed = delta([step(z, q, THIRDS)], eps, REPLACE, grid=COARSE_GRID)
        mean = sum(w * hockey_stick(*mirrored(z, q, b), math.exp(eps)) for w, b in THIRDS)
        assert mixed == pytest.approx(mean, rel=1e-3)


# --- two routes ------------------------------------------------------------------------------

SWEEP = [
    (step(2.0, 0.1, ((1.0, 0.3),)), 1e-5),
    (step(22.6, 0.025, ((1.0, 0.25),), 400), 1e-5),
    (step(22.6, 0.025, THIRDS, 400, 1e-6), 1e-5),
    (step(5.0, 0.025, ((0.9, 0.05), (0.1, 0.2)), 400), 1e-8),
    (step(1.5, 0.01, ((0.99, 0.0), (0.01, 0.5)), 100, 1e-7), 1e-6),
    (step(2.0, 0.5, THIRDS, 3), 1e-5),
    (step(8.0, 1.0, ((0.5, 0.0), (0.5, 1.0)), 20), 1e-5),
    (step(40.0, 0.2, ((1 - 1e-6, 0.02), (1e-6, 2.0)), 5000, 9e-6), 1e-5),
    (step(60.0, 0.001, ((1.0, 2.0),), 1000), 1e-4),
]


@pytest.mark.parametrize(("drifted", "d"), SWEEP)
def test_the_accountants_agree(drifted, d):
    for some in ([drifted], [Gaussian(80.0, 3), drifted]):
        ours = epsilon(some, d, REPLACE)
        found = recheck.epsilon(as_steps(some), d, REPLACE)
        assert found.lower <= ours * (1 + 1e-9)
        assert found.upper >= ours * (1 - 1e-3)
        assert ours == pytest.approx(found.epsilon, rel=1e-3)
        assert found.upper - found.lower <= 5e-3 * found.upper
        back = recheck.delta(as_steps(some), ours, REPLACE)
        assert back.lower <= d * (1 + 1e-9) and d <= back.upper * 1.02
        assert delta(some, ours, REPLACE) == pytest.approx(d, rel=1e-2)


def test_recheck_brackets_one_step():
    for eps in (0.1, 0.8):
        truth = float(exact_delta(1.3, 0.2, THIRDS, eps))
        found = recheck.delta(as_steps([step(1.3, 0.2, THIRDS)]), eps, REPLACE)
        assert found.lower <= truth * (1 + 1e-12) and truth * (1 - 1e-12) <= found.upper
        assert found.upper <= truth * 1.003


def test_a_drawn_pair_is_bracketed_by_its_extremes_and_composes_like_a_list():
    event = step(3.0, 0.1, THIRDS, count=6)
    both = recheck.epsilon(as_steps([event]), 1e-6, REPLACE)
    listed = recheck.epsilon(as_steps([step(3.0, 0.1, THIRDS)] * 6), 1e-6, REPLACE)
    assert both == listed
    assert epsilon([event], 1e-6, REPLACE) == pytest.approx(
        epsilon([step(3.0, 0.1, THIRDS)] * 6, 1e-6, REPLACE), rel=1e-6
    )
    least, most = (
        recheck.epsilon(as_steps([step(3.0, 0.1, ((1.0, b),), 6)]), 1e-6, REPLACE)
        for b in (0.1, 1.5)
    )
    assert least.upper < both.lower <= both.upper < most.lower


def test_cost_grows_with_shift_weight_and_failure():
    def cost(drift=THIRDS, failure=0.0):
        return epsilon([step(6.0, 0.05, drift, 50, failure)], 1e-5, REPLACE, grid=COARSE_GRID)

    shifts = [cost(((1.0, b),)) for b in (0.0, 1e-3, 0.05, 0.4, 2.0)]
    assert all(a < b for a, b in pairwise(shifts))
    assert cost() < cost(((0.4, 0.1), (0.3, 0.4), (0.3, 1.5)))
    assert cost() < cost(failure=1e-6) < cost(failure=9e-6) < math.inf
    assert cost(failure=1e-5) == cost(failure=0.5) == math.inf
    assert cost(failure=1e-6) == pytest.approx(
        epsilon([step(6.0, 0.05, THIRDS, 50)], 9e-6, REPLACE, grid=COARSE_GRID), rel=1e-9
    )


def test_every_kind_of_event_can_stand_beside_drifted_steps():
    closed = {kind for kind in EVENTS.values() if kind.gaussian}
    unfolded = {EVENTS[kind] for kind in ("repeated", "parallel", "failure")}  # become others first
    assert set(accountants.AS_LOSS) | closed | unfolded == set(EVENTS.values())
    beside = [Selection(20.0), step(6.0, 0.05, THIRDS, 5)]
    assert epsilon(beside, 1e-5, REPLACE) > epsilon(beside[1:], 1e-5, REPLACE)


def test_failures_add_up():
    events = [step(6.0, 0.05, THIRDS, 50, 2e-6), step(6.0, 0.05, (), 50, 3e-6)]
    without = [dataclasses.replace(event, failure=0.0) for event in events]
    found, plain = (delta(some, 1.0, REPLACE, grid=COARSE_GRID) for some in (events, without))
    assert found == pytest.approx(plain + 5e-6, rel=1e-9)
    seconds = [recheck.delta(as_steps(some), 1.0, REPLACE) for some in (events, without)]
    assert seconds[0].upper == pytest.approx(seconds[1].upper + 5e-6, rel=1e-9)
    assert recheck.epsilon(as_steps(events), 1e-4, REPLACE).upper == pytest.approx(
        recheck.epsilon(as_steps(without), 9.5e-5, REPLACE).upper, rel=1e-6
    )


@pytest.mark.parametrize("neighbors", ["replace_special", "add_or_remove_one"])
@pytest.mark.parametrize("event", [step(3.0, 0.1, THIRDS), step(3.0, 0.1, failure=1e-9)])
def test_other_relations_have_no_rule_for_drift(event, neighbors):
    with pytest.raises(InputError, match="replace_one"):
        epsilon([event], 1e-5, neighbors)
    with pytest.raises(InputError, match="replace_one"):
        delta([event], 1.0, neighbors)
    with pytest.raises(InputError, match="replace_one"):
        recheck.epsilon(as_steps([event]), 1e-5, neighbors)


def test_extremes_claim_nothing():
    assert epsilon([step(1e-6, 0.5, THIRDS)], 1e-5, REPLACE) == math.inf
    assert delta([step(1e-6, 0.5, THIRDS)], 1.0, REPLACE) == 1.0
    far = step(5.0, 0.5, ((0.5, 0.0), (0.5, 1e300)), count=3)
    assert delta([far], 1.0, REPLACE) >= 0.875
    assert epsilon([step(1e300, 0.5, THIRDS, 7)], 1e-5, REPLACE) == 0.0
    for much in (50.0, 1e4, 1e300):
        with pytest.raises(InputError, match="too little noise"), np.errstate(all="ignore"):
            recheck.epsilon(as_steps([step(1.0, 0.5, ((1.0, much),))]), 1e-5, REPLACE)


# --- events ----------------------------------------------------------------------------------


def test_weights_that_fall_short_of_one_are_given_to_the_largest_shift():
    short = ((0.5, 0.3), (0.5 - 4e-13, 0.1))
    event = step(2.0, 0.1, short)
    whole = mixtures.whole(event.drift)
    assert math.fsum(w for w, _ in whole) >= 1
    assert whole == [(0.5 - 4e-13, 0.1), (1 - (0.5 - 4e-13), 0.3)]
    (blend,) = recheck.directions(as_steps([event]), REPLACE)[0]
    assert [w for w, _ in blend.parts] == [w for w, _ in whole]


@pytest.mark.parametrize("total", [1 - 2e-12, 1 + 2e-12, 0.5, 2.0, 1 - 1e-9])
def test_weights_must_sum_to_one(total):
    drift = ((total / 2, 0.1), (total / 2, 0.2))
    with pytest.raises(InputError, match="sum to one"):
        step(1.0, 0.1, drift)
    hostile = {"noise_multiplier": 1.0, "sampling_probability": 0.1, "drift": drift}
    with pytest.raises(InputError, match="sum to one"):
        recheck.epsilon([("poisson-gaussian", hostile)], 1e-5, REPLACE)


@pytest.mark.parametrize(
    "drift",
    [
        ((1.0, -0.1),),
        ((1.0, math.nan),),
        ((1.0, math.inf),),
        ((math.nan, 0.1),),
        ((-1.0, 0.1), (1.0, 0.1), (1.0, 0.1)),
        ((0.0, 5.0), (1.0, 0.1)),
        ((2.0, 0.1), (-1.0, 0.1)),
        ((True, 0.1),),
        (("1", "0"),),
        ("10",),
        "10",
        {"10": 1},
        ((1.0,),),
        ((1.0, 0.1, 0.2),),
        (1.0, 0.1),
        ((10**400, 0.1),),
        None,
        5,
        tuple((1 / 257, 0.1) for _ in range(257)),
    ],
)
def test_hostile_drift_is_an_input_error(drift):
    with pytest.raises(InputError, match="drift"):
        step(1.0, 0.1, drift)
    with pytest.raises(InputError):
        parameters = {"noise_multiplier": 1.0, "sampling_probability": 0.1, "drift": drift}
        Event.from_dict({"kind": "poisson-gaussian", "parameters": parameters})


@pytest.mark.parametrize("failure", [-1e-9, math.nan, 1.0, math.inf, "0", None, True, 10**400])
def test_hostile_failure_is_an_input_error(failure):
    with pytest.raises(InputError, match="failure"):
        step(1.0, 0.1, failure=failure)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.sampled_from(["drift", "failure"]), JSON)
@example("drift", [[1.0, 0.5]])
@example("failure", 0.25)
def test_any_json_is_an_event_or_an_input_error(name, value):
    parameters = {"noise_multiplier": 1.0, "sampling_probability": 0.1, name: value}
    try:
        event = Event.from_dict({"kind": "poisson-gaussian", "parameters": parameters})
    except InputError:
        return
    assert 0 <= event.failure < 1
    assert all(0 < w <= 1 and 0 <= b < math.inf for w, b in event.drift)
    assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event


def test_json_gives_the_event_back_and_plain_steps_stay_as_they_were():
    event = step(2.0, 0.1, THIRDS, 5, 1e-7)
    data = event.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert Event.from_dict(json.loads(json.dumps(data))) == event
    assert hash(Event.from_dict(data)) == hash(event)
    assert set(step(2.0, 0.1).to_dict()["parameters"]) == {
        "noise_multiplier",
        "count",
        "sampling_probability",
    }
    assert step(2.0, 0.1, np.array(THIRDS)) == step(2.0, 0.1, THIRDS)


def test_times_multiplies_the_chance_of_failure():
    event = step(2.0, 0.1, THIRDS, 5, 1e-7)
    more = event.times(3)
    assert (more.count, more.drift) == (15, THIRDS)
    assert 3e-7 <= more.failure <= 3e-7 * (1 + 1e-15)
    assert event.times(10**9).failure < 1
    assert epsilon([event.times(10**6)], 0.05, REPLACE, grid=1e-2) == math.inf
    with pytest.raises(InputError):
        event.times(0)


# --- calibration -----------------------------------------------------------------------------


def test_calibration_fits_the_budget_and_one_per_cent_less_noise_does_not():
    budget = Budget(1.0, 1e-5)

    def events(z):
        return [Gaussian(60.0), step(z, 0.025, THIRDS, 300, 1e-7)]

    z = calibrate(events, budget, REPLACE)
    assert 0.99 <= recheck.epsilon(as_steps(events(z)), 1e-5, REPLACE).upper <= 1.0
    assert recheck.epsilon(as_steps(events(0.99 * z)), 1e-5, REPLACE).lower > 1.0


def test_a_failure_that_takes_all_of_delta_leaves_nothing():
    with pytest.raises(BudgetError, match="fail") as error:
        calibrate(lambda z: [step(z, 0.1, THIRDS, 10, 1e-5)], Budget(1.0, 1e-5), REPLACE)
    assert error.value.remaining == 0.0


def test_the_first_guess_counts_the_drift():
    trials = []

    def events(z):
        trials.append(z)
        return [step(z, 0.025, ((1.0, 5.0),), 400)]

    z = calibrate(events, Budget(1.0, 1e-5), REPLACE)
    assert max(max(z / t, t / z) for t in trials if t not in (1.0, 2.0)) < 1.6
    assert len(trials) < 25


# --- certificates ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate():
    def events(z):
        return [Gaussian(40.0), step(z, 0.1, THIRDS, 40, 1e-6)]

    spent = events(calibrate(events, Budget(1.0, 1e-5), REPLACE))
    named = list(zip(["PrivateCenter", "DPSGD"], spent, strict=True))
    return Certificate(1.0, 1e-5, REPLACE, tuple(Expense.weigh(named, 1e-5, REPLACE)))


def forged(certificate, **parameters):
    data = certificate.to_dict()
    data["events"][1]["parameters"] |= parameters
    content = {key: value for key, value in data.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
    return json.dumps({**content, "digest": digest})


def test_a_calibrated_claim_holds_by_both_routes_and_survives_json(certificate):
    again = Certificate.from_json(certificate.to_json())
    assert again == certificate and again.digest == certificate.digest
    found = again.verify()
    assert found.holds, found.problems
    for route in ("dp-accounting", "recheck"):
        assert 0.99 < found.recomputed[route] <= 1.0 + 1e-4
    assert Certificate.from_json(forged(certificate)).verify().holds


@pytest.mark.parametrize(
    "change",
    [
        {"drift": [[1.0, 1.5]]},
        {"drift": [[0.5, 0.1], [0.3, 0.4], [0.2, 1.8]]},
        {"failure": 2e-6},
        {"failure": 1e-5},
        {"failure": 0.9},
        {"sampling_probability": 0.12},
        {"drift": [[1.0, 1e300]]},
        {"drift": [[1.0, 1e6]], "count": 10**12},
        {"drift": [[1 / 256, 0.5 + i / 256] for i in range(256)]},
        {"drift": [[1 / 256, 10.0 * i] for i in range(256)], "count": 10**9},
    ],
)
def test_a_claim_about_more_drift_is_found_false(certificate, change):
    found = Certificate.from_json(forged(certificate, **change)).verify()
    assert not found.holds
    assert found.problems


@pytest.mark.parametrize(
    "change",
    [
        {"failure": -1e-3},
        {"failure": math.nan},
        {"failure": -math.inf},
        {"failure": "0"},
        {"drift": [[1.0, -1.0]]},
        {"drift": [[1.0, math.nan]]},
        {"drift": [[0.5, 0.1]]},
        {"drift": [[2.0, 0.1], [-1.0, 3.0]]},
        {"drift": [[math.nan, 0.1]]},
        {"drift": "none"},
    ],
)
def test_hostile_drift_or_failure_does_not_pass(certificate, change):
    with pytest.raises(CertificateError):
        Certificate.from_json(forged(certificate, **change))


@pytest.mark.parametrize(
    ("name", "value"),
    [("failure", -1e-3), ("failure", math.nan), ("drift", ((1.0, -5.0),)), ("drift", ((0.1, 0),))],
)
def test_events_that_were_tampered_with_in_memory_do_not_pass(certificate, name, value):
    event = dataclasses.replace(certificate.events[1].event)
    object.__setattr__(event, name, value)
    spent = (certificate.events[0], Expense("DPSGD", event))
    found = Certificate(1.0, 1e-5, REPLACE, spent).verify()
    assert not found.holds


def test_each_route_finds_it_without_the_other(certificate):
    event = dataclasses.replace(certificate.events[1].event, drift=((1.0, 0.9),))
    events = [certificate.events[0].event, event]
    assert loss_distribution(events, REPLACE).get_epsilon(1e-5) > 1.0
    assert recheck.epsilon(as_steps(events), 1e-5, REPLACE).lower > 1.0


# --- how far drawn rows can lie apart ----------------------------------------------------------

N, Q, STEPS, DELTA = 10_000, 0.025, 400, 1e-5
EXAMPLE = Drift(1.0, l1=2.74, linf=2.5e-3, l0=N - 1, l2=0.029)


def options(drift=EXAMPLE, constant=1.0, clip=1.0, **changes):
    given_ = {"probability": Q, "n": N, "steps": STEPS, "delta": DELTA, **changes}
    return sampling.candidates(drift, constant=constant, clip=clip, **given_)


def mean(law):
    return math.fsum(weight * b for weight, b in law[0])


def test_the_example_of_the_notes():
    whole, crowd, single, graded = options()
    assert whole == (((1.0, pytest.approx(2.74)),), 0.0)
    typical = sorted(b for w, b in crowd[0] if w > 0.03)
    assert typical[0] < 0.63 < typical[-1]
    assert mean(crowd) == pytest.approx(0.63, abs=0.005)
    assert single[0][0][1] == pytest.approx(0.117, abs=5e-4)
    assert mean(graded) < 0.08
    for law in (crowd, single, graded):
        assert 0 < law[1] <= 1e-7 * (1 + 1e-9)
        assert len(law[0]) <= 32
        step(1.0, Q, law[0], STEPS, law[1])


def test_noiseless_pca_multiplies_the_noise_by_six():
    # The table of the notes has b = |J|/(n·gap), bin by bin.
    drift = pca(Drift(1.0), N, 0.1)
    laws = options(drift)

    def noise(law):
        return calibrate(lambda z: [step(z, Q, law[0], STEPS, law[1])], Budget(1.0, DELTA), REPLACE)

    best = sampling.cheapest(laws, lambda b, f: step(20.0, Q, b, STEPS, f), DELTA)
    assert best == laws[1]
    without, with_ = noise(((), 0.0)), noise(best)
    assert without == pytest.approx(3.73, rel=2e-3)
    assert with_ == pytest.approx(22.6, rel=0.02)
    assert with_ / without == pytest.approx(6.07, rel=0.02)


@pytest.mark.parametrize(
    ("drift", "best"),
    [
        (EXAMPLE, 3),
        (pca(Drift(1.0), N, 0.1), 1),
        (soft_pca(Drift(1.0), N, 0.05), 3),
        (impute_mean(Drift(1.0), N, 500), 1),
        (deduplicate(Drift(1.0), N, 20), 1),
    ],
    ids=["example", "pca", "soft-pca", "impute", "dedup"],
)
def test_no_way_is_best_for_all(drift, best):
    laws = options(drift)
    chosen = sampling.cheapest(laws, lambda b, f: step(30.0, Q, b, STEPS, f), DELTA)
    assert laws.index(chosen) == best


def profiles(random, n):
    """Distances moved: equal, a few large, heavy-tailed, nearly none."""
    yield np.full(n, 1e-3)
    yield np.where(np.arange(n) < 12, 0.3, 0.0)
    yield np.minimum(random.pareto(1.5, n) * 1e-4, 0.05)
    yield np.where(random.random(n) < 0.05, random.random(n) * 0.02, 0.0)


@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("clip", [1.0, 0.01])
def test_random_draws_stay_within_every_law(case, clip):
    random = np.random.default_rng(case)
    n, q, mu, draws = 2000, 0.05, 1.3, 4000
    moved = list(profiles(random, n - 1))[case]
    drift = Drift(
        1.0,
        l1=moved.sum(),
        linf=moved.max(),
        l0=int((moved > 0).sum()),
        l2=math.sqrt((moved**2).sum()),
    )
    change = np.minimum(mu * moved, 2 * clip) / clip
    found = np.array([change[random.random(n - 1) < q].sum() for _ in range(draws)])
    for law in options(drift, mu, clip, probability=q, n=n):
        shifts, failure = law
        largest = max(b for _, b in shifts)
        # δ is small, so that hardly any draw may fail.
        assert np.mean(found > largest) <= failure / STEPS + 1e-12
        for _, b in shifts:  # stochastically larger: P(found > b) ≤ P(law > b)
            above = math.fsum(w for w, other in shifts if other > b)
            noise = 4.5 * math.sqrt(above * (1 - above) / draws) + 10 / draws
            assert np.mean(found > b) <= above + noise


@pytest.mark.parametrize("q", [1e-4, 0.025, 0.4, 0.999])
@pytest.mark.parametrize("rows", [1, 3, 40, 9999, 10**6])
def test_binned_draws_exceed_the_binomial_law(q, rows):
    drift = Drift(1.0, l1=rows * 1e-3, linf=1e-3, l0=rows)
    shifts, failure = sampling.crowded(
        drift, constant=1.0, clip=1.0, probability=q, n=10**7, steps=STEPS, delta=DELTA
    )
    assert len(shifts) <= 32
    assert abs(math.fsum(w for w, _ in shifts) - 1) <= 1e-13
    assert 0 <= failure <= 1e-7
    ends = [round(b / 1e-3) for _, b in shifts]
    assert all(b >= k * 1e-3 for (_, b), k in zip(shifts, ends, strict=True))
    for k in ends[:-1]:
        above = math.fsum(w for (w, _), end in zip(shifts, ends, strict=True) if end > k)
        assert above >= binom.sf(k, rows, q)
    assert failure >= STEPS * binom.sf(ends[-1], rows, q)
    exact = rows * q * 1e-3
    assert exact <= math.fsum(w * b for w, b in shifts)


def test_bernstein_by_levels_is_between_its_mean_and_the_single_bound():
    given_ = {"constant": 1.0, "clip": 1.0, "probability": Q, "steps": STEPS, "delta": DELTA}
    single = sampling.bernstein(EXAMPLE, **given_)
    laws = [sampling.bernstein(EXAMPLE, levels=k, **given_) for k in (1, 2, 8, 32)]
    assert laws[0] == single
    means = [mean(law) for law in laws]
    assert means == sorted(means, reverse=True)
    assert Q * EXAMPLE.l1 < means[-1]
    for shifts, failure in laws:
        assert max(b for _, b in shifts) == single[0][0][1]
        assert failure == single[1]
        for _, b in shifts:  # the tail is e^(−L) where b = b(L), or more

            def excess(y, b=b):
                spread = math.sqrt(2 * Q * (1 - Q)) * EXAMPLE.l2
                return Q * EXAMPLE.l1 + spread * y + EXAMPLE.linf * y * y / 3 - b

            level = brentq(excess, 0.0, 6.0) ** 2
            above = math.fsum(w for w, other in shifts if other > b)
            assert above + failure / STEPS >= math.exp(-level) * (1 - 1e-9)


def test_no_law_exceeds_what_moves_in_all():
    drift = Drift(1.0, l1=0.05, linf=0.05, l0=3)
    laws = options(drift)
    assert all(max(b for _, b in shifts) <= 0.05 * (1 + 1e-9) for shifts, _ in laws)
    assert all(failure == 0 for _, failure in laws[:2])  # every row that moves may be drawn


def test_a_clipped_gradient_moves_by_twice_the_clip_at_most():
    drift = deduplicate(Drift(1.0), N, 20)
    whole, crowd, *_ = options(drift, constant=math.inf, clip=0.1)
    assert whole[0][0][1] == pytest.approx(2 * drift.l0)
    assert {round(b, 6) for _, b in crowd[0]} <= {2.0 * k for k in range(40)}
    blank = options(drift, constant=math.inf, clip=0.1, most=0.1)
    assert blank[0][0][0][1] == pytest.approx(drift.l0)


def test_rows_that_stay_cost_nothing_and_all_rows_leave_nothing_to_chance():
    assert options(Drift(1.0)) == [((), 0.0)]
    assert options(constant=0.0) == [((), 0.0)]
    assert options(Drift(1.0), extra=0.5) == [(((1.0, pytest.approx(0.5)),), 0.0)]
    assert options(probability=1.0) == [(((1.0, pytest.approx(2.74)),), 0.0)]
    raised, plain = options(extra=0.01), options()
    for more, less in zip(raised, plain, strict=True):
        assert mean(more) == pytest.approx(mean(less) + 0.01, rel=1e-9)


def test_units_are_those_of_the_clip():
    for one, other in zip(options(), options(constant=0.2, clip=0.2), strict=True):
        assert mean(one) == pytest.approx(mean(other), rel=1e-9)
    assert mean(options(constant=2.0)[3]) == pytest.approx(2 * mean(options()[3]), rel=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        {"constant": -1.0},
        {"constant": math.nan},
        {"clip": 0.0},
        {"clip": math.inf},
        {"probability": 0.0},
        {"probability": 1.1},
        {"n": 0},
        {"steps": 0},
        {"delta": 0.0},
        {"delta": 1.0},
        {"most": 3.0},
        {"extra": -1.0},
        {"extra": math.nan},
    ],
)
def test_impossible_settings_are_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        options(**change)
