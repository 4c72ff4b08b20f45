"""Parallel parts, attacked: exact laws of small mechanisms, quadrature, other accountants."""

from __future__ import annotations

import hashlib
import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.exceptions import BudgetError, InputError
from tacit.privacy.accounting import accountants
from tacit.privacy.accounting.accountants import (
    COARSE_GRID,
    accountant_for,
    alternatives,
    delta,
    epsilon,
    gaussian_delta,
    loss_distribution,
    total_mu,
)
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.events import (
    NEIGHBORS,
    Failure,
    Gamma,
    Gaussian,
    Iterated,
    Parallel,
    PoissonGaussian,
    Repeated,
    Selection,
    sensitivity,
)
from tacit.privacy.verification import recheck

EVERY_RELATION = sorted(NEIGHBORS)
ORDERS = np.concatenate([np.linspace(0.05, 1, 12), np.geomspace(1, 60, 25)])  # e^ε, all α ≥ 0 count


def steps(events):
    return [(event.kind, event.to_dict()["parameters"]) for event in events]


def hockey_stick(p, q, order):
    return float(np.maximum(p - order * q, 0.0).sum())


# --- the theorem, on laws that are computed exactly ----------------------------------------------
# Every step is randomised response: a bit of the rows and of what was released before, kept with
# probability p. All its pairs are dominated by (p, 1−p) against (1−p, p). What bit it is, is for
# the adversary to choose: here, a hash or a parity of what the step may see.

WHOLE, PARTS = 0.6, ((0.9,), (0.65, 0.8))  # probabilities: on all rows, and in each of two parts


def parity(step, rows, seen):
    return sum(1 for value in rows if value == 1) % 2


def hashed(step, rows, seen):
    return hashlib.blake2b(repr((step, sorted(map(repr, rows)), seen)).encode()).digest()[0] & 1


def counted(step, rows, seen):
    """How many rows there are: public where rows are replaced."""
    return sum(1 for value in rows if value is not None) % 2


def law(split, bit):
    """Chances of all outcomes of a step on all rows, then those of the parts, interleaved."""
    parts = [[value for at, value in split if at == i] for i in range(len(PARTS))]
    plan = [(WHOLE, [value for _, value in split])]
    turns = itertools.zip_longest(*PARTS)
    plan += [(p, parts[i]) for turn in turns for i, p in enumerate(turn) if p is not None]
    found = []
    for seen in itertools.product((0, 1), repeat=len(plan)):
        chance = 1.0
        for k, (p, rows) in enumerate(plan):
            chance *= p if seen[k] == bit(k, rows, seen[:k]) else 1 - p
        found.append(chance)
    return np.array(found)


def pair(probabilities):
    """The dominating pair of randomised response, so many times."""
    up, down = np.ones(1), np.ones(1)
    for p in probabilities:
        up, down = np.outer(up, (p, 1 - p)).ravel(), np.outer(down, (1 - p, p)).ravel()
    return up, down


BOUND = np.array(
    [max(hockey_stick(*pair((WHOLE, *part)), order) for part in PARTS) for order in ORDERS]
)
TINY = 1e-15  # of divergences that are zero but for rounding
VALUES, N = (0, 1, 2), 4


def by_place(table):
    return [(i % 2, value) for i, value in enumerate(table)]


def by_value(table):
    return [(0 if value == 1 else 1, value) for value in table]


def by_coin(table):
    """Rows (coin, value), whose coins were drawn without looking."""
    return list(table)


def neighbours(relation):
    """Pairs of tables, of rows as values; or of coins and values, where rows come and go."""
    if relation == "add_or_remove_one":
        for table in itertools.product(itertools.product((0, 1), (0, 1)), repeat=3):
            for i in range(3):
                yield table, table[:i] + table[i + 1 :]
        return
    others = (None,) if relation == "replace_special" else VALUES
    for table in itertools.product(VALUES, repeat=N):
        for i, other in itertools.product(range(N), others):
            if other != table[i]:
                yield table, (*table[:i], other, *table[i + 1 :])


def worst(relation, split, bit):
    """The largest ratio of any divergence, in either order, to what the theorem allows."""
    laws, most = {}, 0.0
    for one, two in neighbours(relation):
        for table in (one, two):
            if table not in laws:
                laws[table] = law(split(table), bit)
        for p, q in ((laws[one], laws[two]), (laws[two], laws[one])):
            gaps = np.maximum(p[:, None] - ORDERS * q[:, None], 0.0).sum(axis=0)
            most = max(most, float(((gaps + TINY) / (BOUND + TINY)).max()))
    return most


@pytest.mark.parametrize("relation", EVERY_RELATION)
@pytest.mark.parametrize("bit", [parity, hashed])
def test_no_neighbours_are_told_apart_better_than_by_the_worst_part(relation, bit):
    split = by_coin if relation == "add_or_remove_one" else by_place
    found = worst(relation, split, bit)
    assert found <= 1 + 1e-12
    if bit is parity:
        assert found > 1 - 1e-12  # and the bound is attained


def test_parts_by_value_are_not_covered_where_rows_are_replaced():
    """A row that is replaced by one of another value leaves one part and enters another."""
    assert worst("replace_one", by_value, counted) > 1.5
    assert worst("replace_one", by_place, counted) <= 1 + 1e-12


def test_parts_by_value_are_covered_where_rows_come_and_go_and_parts_by_place_are_not():
    def of_value(table):
        return by_value([value for _, value in table])

    def of_place(table):
        return by_place([value for _, value in table])

    assert worst("add_or_remove_one", of_value, parity) <= 1 + 1e-12
    assert worst("add_or_remove_one", of_value, counted) <= 1 + 1e-12
    assert worst("add_or_remove_one", of_place, parity) > 1.2


# --- our accountants, against quadrature ---------------------------------------------------------


def cells(mixture, edges):
    return sum(w * np.diff(ndtr(edges - s)) for w, s in mixture)


def exact_below(shared, part, neighbors, eps):
    """δ of a Gaussian beside one part, by cells of the plane: a lower bound, close."""
    unit, most = sensitivity(neighbors), 0.0
    z, edges = shared.noise_multiplier, np.linspace(-9, 9, 801)
    first = [((1.0, unit / z / 2),), ((1.0, -unit / z / 2),)]
    if isinstance(part, Gaussian):
        pairs = [(((1.0, unit / part.noise_multiplier),), ((1.0, 0.0),))]
    else:
        q, r = part.sampling_probability, 1 / part.noise_multiplier
        up, null, down = ((1 - q, 0.0), (q, r)), ((1.0, 0.0),), ((1 - q, 0.0), (q, -r))
        pairs = [(up, down)] if neighbors == "replace_one" else [(up, null), (null, down)]
    for one, two in pairs:
        p = np.outer(cells(first[0], edges), cells(one, edges))
        q = np.outer(cells(first[1], edges), cells(two, edges))
        most = max(most, float(np.maximum(p - math.exp(eps) * q, 0.0).sum()))
    return most


@pytest.mark.parametrize("neighbors", EVERY_RELATION)
def test_each_of_our_routes_is_above_the_worst_part_and_close(neighbors):
    shared, parts = Gaussian(4.0), (Gaussian(2.5), PoissonGaussian(0.9, sampling_probability=0.1))
    events = [shared, Parallel([[part] for part in parts])]
    curve, which = loss_distribution(events, neighbors, COARSE_GRID), set()
    for eps in (0.3, 2.0):
        truths = [exact_below(shared, part, neighbors, eps) for part in parts]
        which.add(truths.index(max(truths)))
        second = recheck.delta(steps(events), eps, neighbors)
        for found in (curve.get_delta(eps), second.upper):
            assert max(truths) <= found <= max(truths) * 1.01
        assert second.lower <= max(truths) * 1.005
    assert neighbors == "replace_one" or which == {0, 1}  # the worst part depends on ε


# --- and against dp-accounting, for each alternative ---------------------------------------------


def theirs(events, neighbors, at_delta, grid=COARSE_GRID):
    """ε by dp-accounting's own accountant of plain events."""
    import dp_accounting as dpa
    from dp_accounting import pld

    accountant = pld.PLDAccountant(dpa.NeighboringRelation[neighbors.upper()], grid)
    for event in events:
        made = dpa.GaussianDpEvent(event.noise_multiplier)
        if isinstance(event, PoissonGaussian):
            made = dpa.PoissonSampledDpEvent(event.sampling_probability, made)
        accountant.compose(dpa.SelfComposedDpEvent(made, event.count))
    return accountant.get_epsilon(at_delta)


@pytest.mark.parametrize("neighbors", EVERY_RELATION)
def test_the_worst_alternative_is_what_dp_accounting_finds_for_it(neighbors):
    parts = [
        [Gaussian(9.0, 4), Failure(3e-6)],
        [PoissonGaussian(1.1, 30, 0.05)],
        [Gaussian(30.0), PoissonGaussian(0.9, 5, 0.02), Failure(1e-6)],
    ]
    events = [Gaussian(8.0), Parallel(parts), Failure(2e-6)]
    # Of parts, and of failures within and beside them, by hand:
    cases = [
        ([Gaussian(8.0), Gaussian(9.0, 4)], 1e-5 - 5e-6),
        ([Gaussian(8.0), PoissonGaussian(1.1, 30, 0.05)], 1e-5 - 2e-6),
        ([Gaussian(8.0), Gaussian(30.0), PoissonGaussian(0.9, 5, 0.02)], 1e-5 - 3e-6),
    ]
    expected = max(theirs(listed, neighbors, left) for listed, left in cases)
    ours = epsilon(events, 1e-5, neighbors, grid=COARSE_GRID)
    assert ours == pytest.approx(expected, rel=1e-6)
    again = loss_distribution(events, neighbors, COARSE_GRID).get_epsilon(1e-5)
    assert again == pytest.approx(expected, rel=1e-6)
    second = recheck.epsilon(steps(events), 1e-5, neighbors)
    assert second.lower <= expected and 0.99 * expected <= second.upper <= expected * 1.01


@pytest.mark.parametrize("neighbors", EVERY_RELATION)
def test_parts_of_gaussian_noise_are_one_gaussian(neighbors):
    parts = [[Gaussian(5.0, 3)], [Selection(4.0), Gaussian(20.0)], [Gaussian(7.0)]]
    events = [Gaussian(6.0), Parallel(parts, count=2)]
    mu = math.sqrt(
        total_mu(events[:1], neighbors) ** 2
        + 2 * max(total_mu(part, neighbors) for part in parts) ** 2
    )
    assert accountant_for(events) == "gaussian-dp"
    assert mu <= total_mu(events, neighbors) <= mu * (1 + 1e-13)
    assert delta(events, 1.0, neighbors) == pytest.approx(gaussian_delta(mu, 1.0), rel=1e-9)
    second = recheck.delta(steps(events), 1.0, neighbors)
    assert second.lower <= gaussian_delta(mu, 1.0) <= second.upper * (1 + 1e-9)


RARE = PoissonGaussian(0.5, sampling_probability=0.01)  # seldom, and then a lot
OFTEN = PoissonGaussian(1.0, sampling_probability=0.5)


def curve_of(*events):
    return loss_distribution(events, "replace_special", 10 * COARSE_GRID).get_delta(8.0)


def test_two_splits_may_have_a_person_in_unlike_parts():
    """Two unlike parts may together cost more than either of them twice."""
    both, twice = curve_of(RARE, OFTEN), max(curve_of(RARE.times(2)), curve_of(OFTEN.times(2)))
    assert both > 3 * twice
    split = Parallel([[RARE], [OFTEN]])
    for events in ([split.times(2)], [split, split], [split, Parallel([[OFTEN], [RARE]])]):
        assert curve_of(*events) == pytest.approx(both, rel=1e-9)
        assert recheck.delta(steps(events), 8.0, "replace_special").upper > 2 * twice
    once = Parallel([[RARE.times(2)], [OFTEN.times(2)]])  # the same split, listed in its parts
    assert curve_of(once) == pytest.approx(twice, rel=1e-9)


def test_searches_that_are_repeated_may_draw_unlike_settings():
    """Both routes used to take it for granted that two searches draw the same setting."""
    search = Repeated(trial=[[RARE], [OFTEN]], distribution="poisson", rate=1e-6)
    twice = max(curve_of(RARE.times(2)), curve_of(OFTEN.times(2)))
    assert curve_of(search.times(2)) >= curve_of(RARE, OFTEN) > 3 * twice
    assert recheck.delta(steps([search.times(2)]), 8.0, "replace_special").upper > 2 * twice


# --- alternatives --------------------------------------------------------------------------------


def test_parts_that_are_dominated_or_equal_are_one():
    one, two = PoissonGaussian(1.0, 3, 0.1), PoissonGaussian(2.0, 3, 0.1)
    parts = [[one], [two], [one], [Gaussian(5.0)], [Gaussian(3.0)], [Selection(90.0)]]
    found = alternatives([Gaussian(7.0), Parallel(parts)], "replace_one")
    assert len(found) == 3 and all(failure == 0 for _, failure in found)
    noise = [event.noise_multiplier for events, _ in found for event in events[1:]]
    assert noise == pytest.approx([1.0, 2.0, 3.0])


def test_failures_count_in_their_part_and_everywhere_if_they_are_in_none():
    split = Parallel([[Gaussian(5.0), Failure(3e-7, count=2)], [PoissonGaussian(1.0, 2, 0.1)]])
    found = alternatives([Failure(1e-7), split], "replace_special")
    assert [failure for _, failure in found] == pytest.approx([7e-7, 1e-7], rel=1e-9)
    assert all(failure >= exact for (_, failure), exact in zip(found, (7e-7, 1e-7), strict=True))


def test_too_many_unlike_parts_are_refused_by_both_routes():
    parts = [[PoissonGaussian(1.0 + i, 3, 0.1)] for i in range(8)]
    events = [Parallel(parts), Parallel([[PoissonGaussian(9.0 + i, 1, 0.1)] for i in range(8)])]
    for many in (events, [Parallel(parts, count=2)], [Parallel(parts[:2], count=10**12)]):
        with pytest.raises(InputError, match="so many"):
            epsilon(many, 1e-5, "replace_special")
        with pytest.raises(InputError, match="so many"):
            recheck.epsilon(steps(many), 1e-5, "replace_special")
    same = Parallel([[PoissonGaussian(5.0, 3, 0.1)]] * 64, count=100)
    assert curve_of(same) == pytest.approx(curve_of(PoissonGaussian(5.0, 300, 0.1)), rel=1e-9)


@pytest.mark.parametrize(
    "part",
    [
        [Gamma(3.0, 4)],
        [Iterated(4.0, 2, steps=20)],
        [Repeated(trial=[[Gaussian(30.0)]], rate=0.3), Gaussian(40.0)],
        [Repeated(trial=[[PoissonGaussian(3.0, 9, 0.1)]], distribution="poisson", rate=0.5)],
        [PoissonGaussian(2.0, 10, 0.1, drift=((1.0, 0.2),), failure=1e-7)],
    ],
    ids=["gamma", "iterated", "search", "sampled search", "drift"],
)
def test_every_kind_can_be_in_a_part(part):
    relation = "replace_one"
    events = [Gaussian(20.0), Parallel([part, [Gaussian(60.0)]])]
    plain = [Gaussian(20.0), *part]
    assert epsilon(events, 1e-5, relation) == pytest.approx(
        epsilon(plain, 1e-5, relation), rel=1e-6
    )
    assert accountant_for(events) == accountant_for(plain)
    assert accountants.closed_form(events) == accountants.closed_form(plain)
    second, other = (recheck.epsilon(steps(e), 1e-5, relation) for e in (events, plain))
    assert second.upper == pytest.approx(other.upper, rel=1e-6)


def test_noise_is_calibrated_for_the_worst_part():
    relation, budget = "replace_special", Budget(1.0, 1e-5)

    def events(z):
        split = Parallel([[PoissonGaussian(z, 50, 0.05)], [PoissonGaussian(2 * z, 50, 0.05)]])
        return [Gaussian(9.0), split, Failure(1e-6)]

    z = calibrate(events, Budget(4.0, 1e-5), relation)
    plain = [Gaussian(9.0), PoissonGaussian(z, 50, 0.05)]
    assert 0.998 * 4.0 < epsilon(plain, 9e-6, relation) <= 4.0
    gaussian = calibrate(lambda z: [Parallel([[Gaussian(z)], [Gaussian(3 * z)]])], budget, relation)
    assert gaussian == pytest.approx(calibrate(lambda z: [Gaussian(z)], budget, relation), rel=1e-9)
    with pytest.raises(BudgetError, match="no noise covers"):
        calibrate(lambda z: [Gaussian(z), Failure(1e-5)], budget, relation)


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", EVERY_RELATION)
def test_a_failure_adds_its_probability_and_hardly_more_than_is_needed(neighbors):
    """An accident that reveals everything makes δ = p + (1 − p)·δ′, by dp-accounting as well."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import common, privacy_loss_distribution

    p, step = 1e-3, PoissonGaussian(1.2, 8, 0.1)
    loss = privacy_loss_distribution.from_gaussian_mechanism(
        1.2,
        sampling_prob=0.1,
        value_discretization_interval=COARSE_GRID,
        neighboring_relation=NeighboringRelation[neighbors.upper()],
    ).self_compose(8)
    accident = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(0.0, p), COARSE_GRID
    )
    for eps in (0.2, 1.0):
        exact = loss.compose(accident).get_delta_for_epsilon(eps)
        found = delta([step, Failure(p)], eps, neighbors, grid=COARSE_GRID)
        second = recheck.delta(steps([step, Failure(p)]), eps, neighbors)
        assert exact * (1 - 1e-9) <= found <= exact * (1 + 2 * p)
        assert second.lower <= exact * (1 + 1e-9) and exact <= second.upper * (1 + 1e-3)
    found = epsilon([step, Failure(p)], 0.01, neighbors, grid=COARSE_GRID)
    second = recheck.epsilon(steps([step, Failure(p)]), 0.01, neighbors)
    truth = loss.compose(accident).get_epsilon_for_delta(0.01)
    assert second.lower <= truth * 1.001 and truth * 0.999 <= found <= truth * 1.01


def thresholded(count, noise, threshold):
    """Chance that a key with so many rows is released: geometric noise, above a threshold."""
    k = np.arange(-400, 401)
    weights = np.exp(-np.abs(k) / noise)
    return float(weights[count + k > threshold].sum() / weights.sum()) if count else 0.0


@pytest.mark.parametrize("threshold", [3, 8])
def test_a_threshold_on_a_histogram_is_a_failure_of_that_probability(threshold):
    """A key that one person has, beside a bit about the same person: exact laws, both orders.

    Outcomes: whether the key is released, then a bit by randomised response whose truth the
    adversary chose after seeing that.
    """
    p, keep = thresholded(1, 1.5, threshold), 0.7
    bit = np.array([keep, 1 - keep])
    with_key = np.concatenate([p * bit, (1 - p) * bit])
    without = np.concatenate([np.zeros(2), bit[::-1]])
    rest = pair((keep,))
    exceeded = []
    for order in np.geomspace(1, 50, 60):
        allowed = hockey_stick(*rest, order) + p
        for one, two in ((with_key, without), (without, with_key)):
            assert hockey_stick(one, two, order) <= allowed * (1 + 1e-12)
        exceeded.append(hockey_stick(with_key, without, order) > hockey_stick(*rest, order))
    assert any(exceeded)  # so that it has to be counted
    assert hockey_stick(with_key, without, 50.0) == pytest.approx(p)  # and no less


def test_total_variation_is_no_failure():
    """Where mass may be missing, δ grows by (1 + e^ε)·p: a failure of p would claim too little."""
    p, order = 0.01, math.exp(0.5)
    ideal = np.array([order, 1.0]) / (1 + order), np.array([1.0, order]) / (1 + order)
    assert hockey_stick(*ideal, order) == pytest.approx(0.0, abs=1e-15)
    moved = ideal[0] + np.array([p, -p]), ideal[1] - np.array([p, -p])
    found = hockey_stick(*moved, order)
    assert found == pytest.approx((1 + order) * p)
    assert found > delta([Failure(p)], 0.5, "replace_special") * 2


def test_failures_stay_outside_of_what_searches_multiply():
    search = Repeated(trial=[[Gaussian(30.0)]], rate=0.1)
    found, plain = (
        delta(events, 2.0, "replace_special") for events in ([search, Failure(1e-6)], [search])
    )
    assert found == pytest.approx(plain + 1e-6, rel=1e-9)
    assert epsilon([Failure(1e-5)], 1e-5, "replace_special") == math.inf
    assert epsilon([Failure(1e-6)], 1e-5, "replace_special") == 0.0
    assert loss_distribution([Failure(1e-6)], "replace_special").get_epsilon(1e-5) == 0.0
    assert delta([Failure(1e-6, count=10**9)], 1.0, "replace_special") == 1.0


def test_a_failure_has_no_gaussian_account():
    with pytest.raises(InputError, match="no Gaussian account"):
        total_mu([Gaussian(3.0), Failure(1e-9)], "replace_special")
