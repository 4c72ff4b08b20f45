"""The best of a random number of trials: exact distributions never pass what is claimed."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import chi2, logser, nbinom, norm, poisson

from tacit.exceptions import InputError
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.trials import chances, cumulated_weights, draw_setting, draw_trials
from tacit.privacy import (
    Budget,
    Certificate,
    Expense,
    Gaussian,
    Iterated,
    PoissonGaussian,
    Repeated,
    Selection,
)
from tacit.privacy.accounting import accountants as acc
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.accounting.repeated import rate_for, renyi_epsilon, shift, unfold, weight
from tacit.privacy.events import Gamma
from tacit.privacy.verification import recheck

SPECIAL = "replace_special"
NUMBERS = {
    "logarithmic": ("negative-binomial", 0.0, 0.05),
    "geometric": ("negative-binomial", 1.0, 0.2),
    "heavy": ("negative-binomial", -0.5, 0.05),
    "three": ("negative-binomial", 3.0, 0.4),
    "poisson": ("poisson", 0.0, 4.0),
    "one": ("negative-binomial", 1.0, 1.0),
}


def repeated(name, *trial):
    distribution, eta, rate = NUMBERS[name]
    trial = trial or ((Gaussian(5.0),),)
    return Repeated(trial=trial, distribution=distribution, shape=eta, rate=rate)


def generating(event):
    """The generating function of the number of trials, from its definition, and its slope."""
    if event.distribution == "poisson":
        m = event.rate
        return (
            lambda x: np.expm1(m * x) / math.expm1(m),
            lambda x: m * np.exp(m * x) / math.expm1(m),
        )
    eta, stop = event.shape, event.rate
    go = 1 - stop
    if go == 0:
        return lambda x: x, np.ones_like
    if eta == 0:
        return (
            lambda x: np.log1p(-go * x) / math.log(stop),
            lambda x: -go / (1 - go * x) / math.log(stop),
        )
    whole = stop**-eta - 1
    return (
        lambda x: ((1 - go * x) ** -eta - 1) / whole,
        lambda x: eta * go * (1 - go * x) ** (-eta - 1) / whole,
    )


def best_of(event, law):
    """Exact law of the released outcome; outcomes are listed from worst to best."""
    f, _ = generating(event)
    below = np.concatenate([[0.0], np.cumsum(law)])
    below[-1] = 1.0
    return np.diff(f(below))


def hockey(p, q, eps):
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())


def profile(p, q):
    return lambda eps: max(hockey(p, q, eps), hockey(q, p, eps))


# --- exact distributions --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NUMBERS)
def test_no_pair_of_discrete_mechanisms_passes_the_bound(name):
    """Random pairs, their outcomes ranked in the way that serves an attacker best and worst."""
    event, chance = repeated(name), np.random.default_rng(0)
    closest = 0.0
    for _ in range(120):
        size = int(chance.integers(2, 7))
        p = chance.dirichlet(np.full(size, chance.choice([0.3, 1.0, 5.0])))
        q = chance.dirichlet(np.full(size, chance.choice([0.3, 1.0, 5.0])))
        mixed = chance.uniform()
        q = mixed * p + (1 - mixed) * q
        order = np.argsort(p / q)
        for ranked in (order, order[::-1], chance.permutation(size)):
            a, b = p[ranked], q[ranked]
            base = profile(a, b)
            found, other = best_of(event, a), best_of(event, b)
            moved = shift(event, base)
            for eps in (moved, moved + 0.2, moved + 0.7, moved + 2.0):
                truth = max(hockey(found, other, eps), hockey(other, found, eps))
                claim = weight(event) * base(eps - moved)
                assert truth <= claim + 1e-12
                closest = max(closest, truth / claim if claim > 1e-9 else 0.0)
    assert closest > (0.99 if name == "one" else 0.2)  # and the bound is not idle


@pytest.mark.parametrize("name", NUMBERS)
def test_nothing_else_that_is_released_breaks_it(name):
    """Composed with randomised response before, and with a second search afterwards."""
    first, second = repeated(name), repeated("geometric")
    chance = np.random.default_rng(1)
    for _ in range(60):
        p, q = chance.dirichlet(np.ones(4), 2)
        p = 0.5 * p + 0.5 * q
        c, d = chance.dirichlet(np.ones(3), 2)
        beside = np.array([0.6, 0.4])
        one, two = best_of(first, p), best_of(first, q)
        three, four = best_of(second, c), best_of(second, d)
        truth_p = np.einsum("i,j,k->ijk", beside, one, three).ravel()
        truth_q = np.einsum("i,j,k->ijk", beside[::-1], two, four).ravel()
        base_p = np.einsum("i,j,k->ijk", beside, p, c).ravel()
        base_q = np.einsum("i,j,k->ijk", beside[::-1], q, d).ravel()
        moved = shift(first, profile(p, q)) + shift(second, profile(c, d))
        claim = profile(base_p, base_q)
        many = weight(first) * weight(second)
        for eps in (moved, moved + 0.5, moved + 1.5):
            assert profile(truth_p, truth_q)(eps) <= many * claim(eps - moved) + 1e-12


@pytest.mark.parametrize("name", ["logarithmic", "geometric", "heavy", "poisson"])
def test_the_shift_is_the_least_that_a_profile_allows(name):
    """Slopes of the generating function differ by no more, and for some mechanism by so much."""
    event, mu = repeated(name), 0.6
    _, slope = generating(event)
    moved = shift(event, lambda x: acc.gaussian_delta(mu, x))
    at = np.linspace(-8, 8, 200_001)  # N(0, 1) against N(mu, 1), the larger the better
    ratio = np.log(slope(ndtr(at)) / slope(ndtr(at - mu)))
    assert moved * (1 - 1e-5) <= ratio.max() <= moved


@pytest.mark.parametrize("name", ["logarithmic", "geometric", "poisson"])
@pytest.mark.parametrize("best", [1, -1])
def test_gaussian_trials_ranked_by_what_they_reveal(name, best):
    """The worst ranking: by the loss itself. δ by integration, against the accountants."""
    event = repeated(name, (Gaussian(3.0),))
    mu = 1 / 3.0
    _, slope = generating(event)

    def released(at, mean):
        return norm.pdf(at - mean) * slope(ndtr(best * (at - mean)))

    for eps in (0.4, 0.8, 1.2):
        for one, two in ((0.0, mu), (mu, 0.0)):
            truth = quad(
                lambda at, e=eps, a=one, b=two: max(
                    released(at, a) - math.exp(e) * released(at, b), 0.0
                ),
                -12,
                12,
                limit=400,
                points=[0.0, mu],
            )[0]
            claim = acc.delta([event], eps, SPECIAL)
            steps = [(event.kind, event.to_dict()["parameters"])]
            again = recheck.delta(steps, eps, SPECIAL).upper
            assert truth <= claim * (1 + 1e-9) + 1e-13
            assert again == pytest.approx(claim, rel=1e-6)


def test_a_score_that_is_not_counted_is_found_out():
    """A trial is a bit by randomised response and a noisy score. Counting the bit alone is wrong.

    The scores of neighbours differ as much as their noise hides, in the direction that matters.
    """
    keep = 0.55  # of the bit
    near = np.array([0.5, 0.3, 0.2])  # chances of low, middle and high scores
    p = np.outer(near[::-1], [keep, 1 - keep]).ravel()  # by score, then by the bit
    q = np.outer(near, [1 - keep, keep]).ravel()
    event = repeated("geometric")
    truth = profile(best_of(event, p), best_of(event, q))
    bit = profile(np.array([keep, 1 - keep]), np.array([1 - keep, keep]))
    whole = profile(p, q)
    broken = 0
    for eps in (0.3, 0.6, 0.9, 1.2):
        moved = shift(event, bit)
        broken += eps > moved and truth(eps) > weight(event) * bit(eps - moved)
        moved = shift(event, whole)
        assert eps <= moved or truth(eps) <= weight(event) * whole(eps - moved) + 1e-12
    assert broken >= 2


# --- other accounts -------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_renyi_divergences_agree_with_dp_accounting_and_cost_more(eta):
    rate = rate_for(10.0, "negative-binomial", eta)
    event = Repeated(trial=((Gaussian(6.0),),), shape=eta, rate=rate)
    orders = 1 + np.geomspace(0.05, 1e3, 600)
    library = RdpAccountant(orders)
    library.compose(RepeatAndSelectDpEvent(GaussianDpEvent(6.0), mean=10.0, shape=eta))
    ours = renyi_epsilon(event, 1 / 6.0, 1e-5)
    assert library.get_epsilon(1e-5) == pytest.approx(ours, rel=2e-4)
    assert acc.epsilon([event], 1e-5, SPECIAL) < 0.85 * ours


def test_dp_accounting_s_formula_is_the_papers_and_holds_for_exact_distributions():
    """Rényi divergences of the released outcome, for geometric and logarithmic numbers."""

    def divergence(p, q, order):
        return math.log(float((p**order * q ** (1 - order)).sum())) / (order - 1)

    orders = [1.5, 2.0, 4.0, 8.0, 16.0, 32.0]
    p, q = np.array([0.1, 0.3, 0.6]), np.array([0.2, 0.3, 0.5])
    for eta in (0.0, 1.0):
        event = Repeated(trial=((Gaussian(1.0),),), shape=eta, rate=0.2)
        base = [max(divergence(p, q, a), divergence(q, p, a)) for a in orders]
        found, other = best_of(event, p), best_of(event, q)
        for order, one in zip(orders, base, strict=True):
            second = min(
                (1 - 1 / a) * e + math.log(1 / 0.2) / a for a, e in zip(orders, base, strict=True)
            )
            paper = one + (1 + eta) * second + math.log(weight(event)) / (order - 1)
            truth = max(divergence(found, other, order), divergence(other, found, order))
            assert truth <= paper


@pytest.mark.parametrize("neighbors", ["replace_special", "add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("name", ["logarithmic", "poisson"])
def test_two_routes_agree(name, neighbors):
    trial = ((Gaussian(20.0, 4), Selection(60.0)), (Gaussian(10.0),))
    events = [Gaussian(30.0), repeated(name, *trial), repeated("geometric").scaled(4.0)]
    steps = [(e.kind, e.to_dict()["parameters"]) for e in events]
    found = acc.epsilon(events, 1e-5, neighbors)
    again = recheck.epsilon(steps, 1e-5, neighbors)
    assert found == pytest.approx(again.epsilon, rel=1e-6)
    assert again.lower <= found <= again.upper * (1 + 1e-9)
    by_grid = acc.loss_distribution(events, neighbors, 1e-3).get_epsilon(1e-5)
    assert found * (1 - 1e-9) <= by_grid <= found * 1.01
    assert acc.delta(events, found, neighbors) == pytest.approx(1e-5, rel=1e-3)


@pytest.mark.long
def test_trials_on_samples_are_counted_by_both_routes():
    event = repeated("geometric", (PoissonGaussian(3.0, 20, 0.05), Gaussian(20.0)))
    found = acc.epsilon([event], 1e-5, SPECIAL, grid=1e-3)
    again = recheck.epsilon([(event.kind, event.to_dict()["parameters"])], 1e-5, SPECIAL)
    assert found == pytest.approx(again.epsilon, rel=3e-3)
    assert found > acc.epsilon([*event.trial[0]], 1e-5, SPECIAL, grid=1e-3)


def test_every_other_kind_can_be_in_a_trial():
    for part in (Gamma(30.0), Iterated(20.0, steps=5), Selection(20.0)):
        event = repeated("geometric", (part, Gaussian(30.0)))
        alone = acc.epsilon([part, Gaussian(30.0)], 1e-6, SPECIAL)
        assert alone < acc.epsilon([event], 1e-5, SPECIAL, grid=1e-3) < math.inf


def test_the_worst_of_several_kinds_of_trials_counts():
    one, two = (Gaussian(10.0),), (Gaussian(4.0), Gaussian(50.0))
    both = acc.epsilon([repeated("geometric", one, two)], 1e-5, SPECIAL)
    worse = acc.epsilon([repeated("geometric", two)], 1e-5, SPECIAL)
    assert both == pytest.approx(worse, rel=1e-12)


def test_one_trial_costs_what_it_costs():
    event = repeated("one")
    assert acc.epsilon([event], 1e-5, SPECIAL) == pytest.approx(
        acc.epsilon([Gaussian(5.0)], 1e-5, SPECIAL), rel=1e-9
    )


def test_hardly_any_noise_costs_too_much_and_ends_at_once():
    for name in ("geometric", "poisson"):
        assert acc.epsilon([repeated(name, (Gaussian(1e-5),))], 1e-5, SPECIAL) > 1e6
    many = repeated("geometric").times(10**6)
    assert acc.epsilon([many], 1e-5, SPECIAL) == math.inf
    assert acc.delta([many], 1.0, SPECIAL) == 1.0
    steps = [(many.kind, many.to_dict()["parameters"])]
    assert recheck.epsilon(steps, 1e-5, SPECIAL).upper == math.inf
    assert recheck.delta(steps, 1e9, SPECIAL).upper == 1.0
    # Just below where floats end, a weight that was cut would promise too much.
    for count in (350, 400, 430, 440, 900):
        some = repeated("geometric").times(count)
        steps = [(some.kind, some.to_dict()["parameters"])]
        least = acc.epsilon([Gaussian(5.0, count)], 1e-5, SPECIAL)
        assert acc.epsilon([some], 1e-5, SPECIAL) > least
        assert recheck.epsilon(steps, 1e-5, SPECIAL).upper > least


def test_so_many_combinations_are_refused():
    trial = tuple((PoissonGaussian(2.0 + i, 3, 0.1),) for i in range(8))
    events = [repeated("geometric", *trial), repeated("logarithmic", *trial)]

    def curve(_):
        return lambda x: acc.gaussian_delta(0.1, x)

    with pytest.raises(InputError, match="so many searches"):
        unfold(events, curve, lambda lists: lists)
    # Of Gaussian noise there may be as many kinds as one likes: the worst stands for all.
    kinds = [tuple((Gaussian(20.0 + i),) for i in range(40)) for _ in range(2)]
    many = [repeated("geometric", *trial) for trial in kinds]
    worst = [repeated("geometric", (Gaussian(20.0),))] * 2
    for found in (many, worst):
        steps = [(e.kind, e.to_dict()["parameters"]) for e in found]
        again = recheck.epsilon(steps, 1e-5, SPECIAL).epsilon
        assert again == pytest.approx(acc.epsilon(worst, 1e-5, SPECIAL), rel=1e-6)
        assert acc.epsilon(found, 1e-5, SPECIAL) == pytest.approx(again, rel=1e-6)


# --- budgets and certificates ---------------------------------------------------------------------


def test_a_budget_is_met_and_certified_by_two_routes():
    def events(z):
        return [Gaussian(40.0), repeated("logarithmic", (Gaussian(z, 100), Gaussian(60.0)))]

    z = calibrate(events, Budget(1.0, 1e-5), SPECIAL)
    spent = Expense.weigh([("mean", events(z)[0]), ("Search", events(z)[1])], 1e-5, SPECIAL)
    claim = Certificate(1.0, 1e-5, SPECIAL, events=tuple(spent), accountant="profile")
    assert Certificate.from_json(claim.to_json()) == claim
    checked = claim.verify()
    assert checked.holds and set(checked.recomputed) == {"recheck", "dp-accounting"}
    less = Certificate(0.99, 1e-5, SPECIAL, events=tuple(spent))
    assert not less.verify().holds
    # The score left out, the same claim would allow less noise than is needed.
    wrong = calibrate(
        lambda z: [Gaussian(40.0), repeated("logarithmic", (Gaussian(z, 100),))],
        Budget(1.0, 1e-5),
        SPECIAL,
    )
    assert wrong < z
    mutant = Expense.weigh(
        [("mean", events(wrong)[0]), ("Search", events(wrong)[1])], 1e-5, SPECIAL
    )
    assert not Certificate(1.0, 1e-5, SPECIAL, events=tuple(mutant)).verify().holds


@pytest.mark.parametrize("eta", [-0.5, 0.0, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("trials", [1, 1.5, 4, 12])
def test_the_rate_gives_the_trials_that_were_asked_for(eta, trials):
    rate = rate_for(trials, "negative-binomial", eta)
    assert weight(Repeated(trial=((Gaussian(1.0),),), shape=eta, rate=rate)) == pytest.approx(
        trials
    )


# --- how many trials ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "one"])
def test_numbers_of_trials_have_the_law_that_is_accounted_for(name):
    event = repeated(name)
    k = np.arange(1, 40)
    eta, stop = event.shape, event.rate
    if name == "poisson":
        expected = poisson.pmf(k, event.rate) / -math.expm1(-event.rate)
    elif eta == 0:
        expected = logser.pmf(k, 1 - stop)
    elif eta > 0:
        expected = nbinom.pmf(k, eta, stop) / (1 - nbinom.pmf(0, eta, stop))
    else:
        f, _ = generating(event)
        expected = np.array(chances(event, 39))
        at = np.linspace(0, 0.9, 10)
        series = (np.array(chances(event, 2000))[:, None] * at ** np.arange(1, 2001)[:, None]).sum(
            0
        )
        assert series == pytest.approx(f(at), abs=1e-12)
    assert chances(event, 39) == pytest.approx(expected, rel=1e-10)
    table = cumulated_weights(event.distribution, event.shape, event.rate)
    mean = sum((b - a) * (i + 1) for i, (a, b) in enumerate(pairwise((0, *table)))) / table[-1]
    assert mean == pytest.approx(weight(event), rel=1e-10)


def test_drawn_numbers_follow_the_table_and_settings_are_even():
    event, key = repeated("geometric"), Key.from_seed("trials")
    drawn = np.array([draw_trials(event, key.stream("k", i)) for i in range(4000)])
    assert drawn.min() == 1
    seen = np.array([np.sum(drawn == k) for k in range(1, 9)] + [np.sum(drawn > 8)])
    expected = chances(event, 8)
    expected = 4000 * np.array([*expected, 1 - sum(expected)])
    assert chi2.sf(((seen - expected) ** 2 / expected).sum(), 8) > 1e-6
    picks = [draw_setting(7, key.stream("s", i)) for i in range(3500)]
    counts = np.bincount(picks, minlength=7)
    assert chi2.sf(((counts - 500) ** 2 / 500).sum(), 6) > 1e-6
    assert draw_trials(repeated("one"), key.stream("one")) == 1
    with pytest.raises(InputError, match="settings"):
        draw_setting(0, key.stream("none"))
