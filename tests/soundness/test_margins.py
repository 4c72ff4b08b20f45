"""What is tested privately: margins change by one at most, and the test costs what it says."""

from __future__ import annotations

import copy
import math
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.special import ndtr
from tests.seam import paid
from tests.soundness import attack

from tacit.data.rows import as_rows
from tacit.exceptions import BudgetError, InputError
from tacit.mechanisms.lattice import sigma_for
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.threshold import noisy_above
from tacit.preprocessing import NoiselessImpute, NoiselessPCA, NoiselessScale
from tacit.privacy.accounting.accountants import gaussian_delta
from tacit.privacy.events import sensitivity
from tacit.privacy.ptr import StabilityTest

MANY = 10**6  # rows with gaps: a condition that does not bind


def fitted(stage, table, pair):
    context = paid(pair.n, attack.KEY, drift=pair.drift())
    return copy.copy(stage).fit(as_rows(table, bound=pair.bound, gaps=True), context)


def margins(stage, pair):
    return fitted(stage, pair.first, pair).margin, fitted(stage, pair.second, pair).margin


def change(stage):
    def by(pair):
        first, second = margins(stage, pair)
        return abs(first - second)

    return by


def axes(n, z1, z2, *, width=2):
    """Rows along the axes, of lengths that leave clear gaps."""
    common = np.zeros((n - 1, width))
    for j in range(width):
        common[j::width, j] = 1 - 0.4 * j
    return attack.pair_of(z1, z2, common)


def about_a_far_mean(n=20_000):
    """Rows near e₁ that vary along a diagonal, z on the other side at 120 degrees either way."""
    step = math.sqrt(8 / n)
    common = np.tile([1 - step, 0.0], (n - 1, 1))
    common[::2] += step * math.sqrt(0.5)
    common[1::2] -= step * math.sqrt(0.5)
    return attack.pair_of([-0.5, math.sqrt(0.75)], [-0.5, -math.sqrt(0.75)], common)


#: By quantity: the stage that tests it, random tables, and a pair that changes it the most.
TESTED = {
    "gap": (NoiselessPCA(1, gap=0.1), {}, axes(50, [1.0, 0.0], [0.0, 1.0])),
    "gap about the mean": (NoiselessPCA(1, gap=0.1, centered=True), {}, about_a_far_mean()),
    "least variance": (NoiselessScale(floor=0.1), {}, attack.variance_swap(0.001, 400)),
    "rows with gaps": (
        NoiselessImpute("mean", rows_with_gaps=3),
        {"gaps": 0.4},
        attack.pair_of([np.nan, 0.0], [0.0, 0.0], np.zeros((9, 2))),
    ),
    "least eigenvalue": (
        NoiselessImpute("regression", columns=[0], floor=0.05, rows_with_gaps=MANY),
        {"gaps": 0.4, "columns": [0]},
        axes(50, [0.0, 1.0], [0.0, 0.0]),
    ),
}


@pytest.mark.parametrize("drift", [0.0, 0.3])
@pytest.mark.parametrize("name", TESTED)
def test_margins_change_by_one_at_most(name, drift):
    stage, tables, pair = TESTED[name]
    rng = np.random.default_rng(40)
    starts = [*attack.random_pairs(rng, 60, drift=drift, **tables)]
    starts += [pair] if pair.n < 1000 else []
    worst = attack.climb(change(stage), starts, rounds=100, drifts=bool(drift))
    assert change(stage)(worst) <= 1 + 1e-9


@pytest.mark.parametrize("name", TESTED)
def test_some_row_changes_the_margin_by_nearly_one(name):
    """So a margin that changes by two would not go unnoticed above."""
    stage, _, pair = TESTED[name]
    assert 0.95 < change(stage)(pair) <= 1 + 1e-9


@pytest.mark.parametrize("name", TESTED)
def test_a_margin_from_zero_means_that_the_condition_holds(name):
    stage, tables, pair = TESTED[name]
    rng = np.random.default_rng(41)
    held = 0
    for table in [t.first for t in attack.random_pairs(rng, 300, **tables)]:
        pair = attack.Pair(table, table)
        if fitted(stage, table, pair).margin < 0:
            continue
        held += 1
        if isinstance(stage, NoiselessPCA):
            assert attack.eigengap(table, 1, centered=stage.centered) >= stage.gap
        elif isinstance(stage, NoiselessScale):
            assert table.var(axis=0).min() >= stage.floor
        elif stage.floor is not None:
            assert attack.least_eigenvalue(table, [0]) >= stage.floor
        else:
            assert np.isnan(table).any(axis=1).sum() <= stage.rows_with_gaps
    assert held > 20


# Medians


def columns_of(rng):
    """Columns with ties, with clusters, with gaps; some too short to have a steady median."""
    n = int(rng.integers(1, 14))
    values = rng.choice([-1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0], size=n)
    if rng.random() < 0.5:
        values = rng.normal(size=n) * rng.choice([0.05, 0.3])
    values[rng.random(n) < 0.2] = np.nan
    return np.clip(values, -1, 1)[:, None]


def steadiness(column, width=0.3):
    stage = NoiselessImpute("median", rows_with_gaps=MANY, median_change=width)
    return stage.fit(as_rows(column, bound=1.0, gaps=True))


def replacements(column):
    """What a row might be replaced by: nothing, anything that ties or passes, and the ends."""
    seen = column[~np.isnan(column)]
    return [np.nan, -1.0, 1.0, *seen, *(seen + 1e-6).clip(-1, 1), *(seen - 1e-6).clip(-1, 1)]


def test_steadiness_of_a_median_changes_by_one_at_most():
    rng = np.random.default_rng(42)
    largest = 0.0
    for _ in range(150):
        column = columns_of(rng)
        here = steadiness(column).margin
        for value in replacements(column):
            other = column.copy()
            other[0] = value
            largest = max(largest, abs(steadiness(other).margin - here))
    assert largest == 1.0


def filled(stage):
    """What a gap becomes."""
    return float(stage.apply(np.array([[np.nan]]))[0, 0])


def test_a_steady_median_moves_no_farther_than_declared_whichever_row_is_replaced():
    rng = np.random.default_rng(43)
    steady = 0
    farthest = 0.0
    for _ in range(150):
        column = columns_of(rng)
        stage = steadiness(column)
        if stage.margin < 0:
            continue
        steady += 1
        for i, value in product(range(min(len(column), 2)), replacements(column)):
            other = column.copy()
            other[i] = value
            moved = abs(filled(steadiness(other)) - filled(stage))
            assert moved <= 0.3 + 1e-12
            farthest = max(farthest, moved)
    assert steady > 25 and farthest > 0.15


def test_a_median_one_place_short_of_steady_is_not_called_steady():
    """With one place less, a single row moves it too far: the margin says −1."""
    column = np.array([-1.0, 0.0, 1.0])[:, None]
    assert steadiness(column, width=1.9).margin == -1.0
    assert steadiness(column, width=2.0).margin == 0.0


# The test: propose, test, release


def hockey_stick(p, q, mu, epsilon):
    """H(P‖Q) at e^ε: pass with probability p or q, then N(μ, 1) against N(0, 1); else ⊥."""
    failed = max(0.0, (1 - p) - math.exp(epsilon) * (1 - q))
    if p == 0:
        return failed
    if q == 0 or mu == math.inf:  # what is released after a pass settles which it was
        return failed + p
    bar = epsilon - math.log(p / q)  # of the loss μx − μ²/2, x ~ N(μ, 1) under P
    if mu == 0:
        return failed + max(0.0, p - math.exp(epsilon) * q)
    upper, lower = ndtr(mu / 2 - bar / mu), ndtr(-mu / 2 - bar / mu)
    return failed + max(0.0, p * upper - math.exp(epsilon) * q * lower)


def passes(test, margin):
    return float(ndtr((margin - test.threshold) / test.deviation))


DEVIATIONS = [0.3, 1.0, 5.0, 40.0]
DELTAS = [1e-2, 1e-5, 1e-9]
EPSILONS = [0.05, 0.5, 1.0, 4.0]


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.5])
def test_neighbours_that_satisfy_all_conditions_cost_test_and_training_together(mu):
    for deviation, delta, epsilon in product(DEVIATIONS, DELTAS, EPSILONS):
        test = StabilityTest(deviation, delta)
        bound = gaussian_delta(math.hypot(mu, 1 / deviation), epsilon)
        for margin in np.linspace(0, 2 * test.threshold, 15):
            for other in (margin + 1, margin + 0.3, margin):
                p, q = passes(test, margin), passes(test, other)
                for a, b in ((p, q), (q, p)):
                    assert hockey_stick(a, b, mu, epsilon) <= max(delta, bound) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("failing", [0.0, -0.4, -30.0, -math.inf])
def test_neighbours_one_of_which_fails_cost_the_test_alone_whatever_is_released(failing):
    """At the first condition that fails, one margin is 0 at most and so the other 1 at most."""
    for deviation, delta, epsilon in product(DEVIATIONS, DELTAS, EPSILONS):
        test = StabilityTest(deviation, delta)
        if epsilon < -math.log1p(-delta):
            continue
        for other in (failing, failing + 0.5, failing + 1):
            p, q = passes(test, failing), passes(test, other)
            for a, b in ((p, q), (q, p)):
                assert hockey_stick(a, b, math.inf, epsilon) <= delta


def test_a_lower_threshold_or_a_smaller_epsilon_would_not_do():
    """What the proof asks for is needed: this is the pair it rests on."""
    test = StabilityTest(1.0, 1e-3)
    lower = float(ndtr(1 - (test.threshold - 1)))
    assert hockey_stick(lower, lower, math.inf, 1.0) > test.delta
    small = -math.log1p(-0.05) / 2
    test = StabilityTest(1.0, 0.05)
    with pytest.raises(BudgetError, match="too small"):
        test.require(small)
    test.require(2 * small)


def test_the_event_of_a_test_is_a_gaussian_of_sensitivity_one():
    for deviation in DEVIATIONS:
        event = StabilityTest(deviation, 1e-6).event
        mu = sensitivity("replace_one") / event.noise_multiplier
        assert mu == pytest.approx(1 / deviation, rel=1e-12)
        assert event.count == 1


def test_the_slack_passes_as_often_as_it_says():
    test = StabilityTest(3.0, 1e-6)
    assert passes(test, test.slack(0.99)) == pytest.approx(0.99, abs=1e-9)


@pytest.mark.parametrize(("deviation", "delta"), [(0.0, 0.1), (math.inf, 0.1), (1.0, 0.0), (1, 1)])
def test_a_test_without_noise_or_with_no_chance_of_error_is_refused(deviation, delta):
    with pytest.raises(InputError):
        StabilityTest(deviation, delta)


class Fixed:
    """A stream whose noise is known."""

    def __init__(self, noise):
        self.noise = noise

    def discrete_gaussian(self, sigma, count):
        self.sigma = sigma
        return np.full(count, self.noise, dtype=np.int64)


def least_noise(value, threshold, deviation):
    """The least integer that, drawn as noise, makes the test pass."""
    low, high = -(2**52), 2**52
    while high - low > 1:
        middle = (low + high) // 2
        if noisy_above(value, threshold, deviation, Fixed(middle)):
            high = middle
        else:
            low = middle
    return high


def test_the_noisy_test_moves_by_one_unit_of_margin_for_neighbours():
    """In integers, with all its rounding: 2^20 of them are one."""
    rng = np.random.default_rng(44)
    for _ in range(60):
        value = float(rng.normal() * 10 ** rng.uniform(-3, 8))
        other = value + rng.choice([-1.0, 1.0, 0.5])
        needed = [least_noise(v, 20.0, 5.0) for v in (value, other)]
        assert abs(needed[0] - needed[1]) <= 2**20


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("deviation", [0.01, 0.5, 5.0, 300.0])
def test_a_margin_of_one_passes_with_probability_delta_at_most(deviation, delta):
    """A discrete Gaussian exceeds k ≥ 0 no more often than a continuous one of its scale."""
    test = StabilityTest(deviation, delta)
    sigma = sigma_for(deviation * 2.0**20)
    assert StabilityTest(deviation, delta).threshold > 1
    for value in (1.0, 0.0, -5.0, math.nan, -math.inf):
        needed = least_noise(value, test.threshold, deviation)
        assert ndtr(-(needed - 1) / sigma) <= delta


def test_the_noise_of_the_test_has_the_deviation_that_was_counted():
    stream = Fixed(0)
    noisy_above(3.0, 2.0, 7.0, stream)
    assert stream.sigma == sigma_for(7.0 * 2.0**20)


def test_the_noisy_test_passes_as_often_as_a_gaussian_would():
    stream = Key.from_seed(45).stream("test")
    tries = 4000
    for value, chance in ((2.0, 0.5), (5.0, ndtr(1.0)), (-1.0, ndtr(-1.0))):
        passed = sum(noisy_above(value, 2.0, 3.0, stream) for _ in range(tries))
        assert abs(passed / tries - chance) < 4.5 * math.sqrt(chance * (1 - chance) / tries)


def test_margins_beyond_all_bounds_are_no_trouble():
    assert noisy_above(math.inf, 100.0, 1.0, Fixed(0))
    assert not noisy_above(-math.inf, 0.0, 1.0, Fixed(0))
    assert not noisy_above(math.nan, -1e6, 1.0, Fixed(0))
    far = [noisy_above(v, 2.0, 1.0, Fixed(-(2**20))) for v in (2.9, 3.1, 1e12)]
    assert far == [False, True, True]
    assert all(a <= b for a, b in pairwise(far))
