"""What several rows of one person cost is stated at the same δ, and never below the truth."""

from __future__ import annotations

import copy
import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy import stats

from tacit.diagnostics import inspect_privately
from tacit.exceptions import CertificateError, InputError
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
from tacit.model_selection.dp_search import DPSearch
from tacit.preprocessing import ClipNorm, NoiselessPCA, Normalize, SoftPCA
from tacit.privacy import (
    Certificate,
    Gamma,
    Gaussian,
    Iterated,
    PoissonGaussian,
    Repeated,
    Selection,
)
from tacit.privacy.accounting import mixtures
from tacit.privacy.accounting.accountants import (
    PLD_SLACK,
    delta,
    epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
)
from tacit.privacy.accounting.group import ROWS, group_epsilon, sentence
from tacit.privacy.certificate import digest_of
from tacit.privacy.ptr import TEST, StabilityTest
from tacit.privacy.verification import recheck
from tacit.research.median import DPGeometricMedian
from tacit.research.trainers import GammaSGD
from tacit.trainers import DPGD, DPSGD

SPECIAL, REPLACE = "replace_special", "replace_one"
OLD = Path(__file__).parent / "old"


def exact_gaussian(mu, delta):
    """ε of a μ-Gaussian mechanism with forty digits, by bisection: a route of its own."""
    with mpmath.workdps(40):
        mu, delta = mpmath.mpf(mu), mpmath.mpf(delta)

        def spent(e):
            return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)

        low, high = mpmath.mpf(0), mu**2 / 2 + 60 * mu
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if spent(middle) > delta else (low, middle)
        return float(high)


# The formula


def test_five_rows_cost_more_than_five_times_epsilon():
    noise = 1 / gaussian_mu(1.0, 1e-5)
    found = {k: group_epsilon([Gaussian(noise)], 1e-5, SPECIAL, k) for k in (1, 5, 40)}
    assert found[1] == pytest.approx(1.0, rel=1e-5)
    assert 6.1 < found[5] < 6.2 and 102 < found[40] < 103


@pytest.mark.parametrize("neighbors", [SPECIAL, REPLACE, "add_or_remove_one"])
@pytest.mark.parametrize(("noise", "count", "delta"), [(40.0, 100, 1e-5), (1.0, 1, 1e-8)])
def test_gaussian_plans_are_exact_by_another_route(neighbors, noise, count, delta):
    unit = 2 if neighbors == REPLACE else 1
    mu = unit / noise * math.sqrt(count)
    for k in (1, *ROWS):
        found = group_epsilon([Gaussian(noise, count)], delta, neighbors, k)
        truth = exact_gaussian(k * mu, delta)
        assert truth <= found <= truth * (1 + 1e-5)


def test_several_kinds_of_gaussian_noise_are_one_sum():
    events = [Gaussian(20.0, 3), Selection(30.0), Gaussian(15.0)]
    reach = 1 / 30.0
    chosen = 2 * stats.norm.ppf(1 / (1 + math.exp(-5 * reach)))  # exponents move by five utilities
    mu = math.sqrt(25 * 3 / 20**2 + chosen**2 + 25 / 15**2)
    assert group_epsilon(events, 1e-6, SPECIAL, 5) == pytest.approx(
        exact_gaussian(mu, 1e-6), rel=1e-5
    )


# Gaussian noise in other clothes: the exact cost of k rows is known, and no bound may be below.


@pytest.mark.parametrize(
    ("event", "mu"),
    [
        (PoissonGaussian(6.0, sampling_probability=1.0), 1 / 6),
        (PoissonGaussian(60.0, 100, sampling_probability=1.0), 1 / 6),
        (Iterated(6.0, steps=1), 1 / 6),
        (Repeated(trial=[[Gaussian(6.0)]], rate=1.0), 1 / 6),
    ],
)
@pytest.mark.parametrize("neighbors", [SPECIAL, REPLACE])
def test_a_gaussian_taken_for_anything_else_is_never_cheaper(event, mu, neighbors):
    mu *= 2 if neighbors == REPLACE else 1
    for k in (1, 2, 5):
        truth = exact_gaussian(k * mu, 1e-5)
        found = group_epsilon([event], 1e-5, neighbors, k)
        assert truth <= found < 1.5 * truth


@pytest.mark.parametrize("neighbors", [SPECIAL, REPLACE])
@pytest.mark.parametrize(("noise", "q"), [(1.5, 0.02), (3.0, 0.3), (0.7, 0.9)])
def test_k_sampled_rows_at_once_cost_what_integration_says(noise, q, neighbors):
    x = np.linspace(-30.0, 30.0, 200_001)
    for k in (2, 5, 10):
        event = PoissonGaussian(noise, sampling_probability=q)
        found = group_epsilon([event], 1e-3, neighbors, k)
        weights = stats.binom.pmf(range(k + 1), k, q)
        rows, others = (
            sum(weights[j] * stats.norm.pdf(x, sign * j / noise) for j in range(k + 1))
            for sign in (1, -1)
        )
        without = others if neighbors == REPLACE else stats.norm.pdf(x)

        def spent(e, pairs=((rows, without), (without, rows))):
            step = x[1] - x[0]
            return max(np.maximum(p - math.exp(e) * q, 0.0).sum() * step for p, q in pairs)

        assert spent(found) <= 1e-3 < spent(found * 0.997)


def wherever_rows_point(rng, k, *, z, q, shift, replaced):
    """δ(ε) of one step on the plane, rows at random angles and of random norms up to one."""
    points = np.linspace(-9.0, 9.0, 181) * max(1.0, (k + shift) / z / 4)
    grid = np.stack(np.meshgrid(points, points), axis=-1).reshape(-1, 2)
    cell = (points[1] - points[0]) ** 2

    def law(there, away):
        rows = rng.normal(size=(k, 2))
        rows *= there * (rng.uniform(0.5, 1, size=k) / np.linalg.norm(rows, axis=1) / z)[:, None]
        total = np.zeros(len(grid))
        for chosen in itertools.product((0, 1), repeat=k):
            chance = q ** sum(chosen) * (1 - q) ** (k - sum(chosen))
            mean = np.array(chosen) @ rows + away
            total += chance * np.exp(-((grid - mean) ** 2).sum(axis=1) / 2) / (2 * math.pi)
        return total

    angle = rng.uniform(0, 2 * math.pi)
    moved = shift / z * np.array([math.cos(angle), math.sin(angle)])
    one, other = law(1, np.zeros(2)), law(replaced, moved)
    return lambda e: max(
        np.maximum(p - math.exp(e) * q, 0.0).sum() * cell for p, q in ((one, other), (other, one))
    )


@pytest.mark.parametrize("seed", range(12))
def test_no_directions_and_norms_of_k_rows_cost_more(seed):
    rng = np.random.default_rng(seed)
    k, z, q = int(rng.integers(2, 5)), rng.uniform(0.8, 3), rng.uniform(0.05, 0.9)
    replaced = seed % 2
    shift = rng.uniform(0, 0.5) if replaced else 0.0
    drift = ((1.0, shift),) if shift else ()
    event = PoissonGaussian(z, sampling_probability=q, drift=drift)
    neighbors = REPLACE if replaced else SPECIAL
    actual = wherever_rows_point(rng, k, z=z, q=q, shift=k * shift, replaced=replaced)
    for target in (1e-2, 1e-3):
        assert actual(group_epsilon([event], target, neighbors, k)) <= target * (1 + 1e-6)


@pytest.mark.parametrize("neighbors", [SPECIAL, REPLACE])
@pytest.mark.parametrize(
    ("noise", "count", "q"), [(20.0, 400, 0.1), (0.8, 100, 0.01), (2.0, 1000, 0.03), (9.0, 50, 1)]
)
def test_two_routes_agree_on_several_sampled_rows(noise, count, q, neighbors):
    events = [PoissonGaussian(noise, count, sampling_probability=q), Gaussian(30.0)]
    steps = [(event.kind, event.to_dict()["parameters"]) for event in events]
    for k in ROWS:
        found = group_epsilon(events, 1e-5, neighbors, k)
        second = recheck.epsilon(recheck.several(steps, k), 1e-5, neighbors)
        assert second.lower <= found <= second.upper * (1 + 4e-3)


def test_several_sampled_rows_by_the_mixtures_of_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution

    k = 5
    theirs = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        10.0,
        range(k + 1),
        stats.binom.pmf(range(k + 1), k, 0.1).tolist(),
        value_discretization_interval=1e-3,
    ).self_compose(100)
    event = PoissonGaussian(10.0, 100, sampling_probability=0.1)
    found = group_epsilon([event], 1e-5, SPECIAL, k)
    assert found == pytest.approx(theirs.get_epsilon_for_delta(1e-5), rel=2e-3)


@pytest.mark.parametrize("q", [1e-9, 0.01, 0.5, 1 - 2**-53, 1.0])
@pytest.mark.parametrize("count", [1, 2, 10, 200])
def test_the_number_of_drawn_rows_is_never_made_smaller(count, q):
    law = mixtures.binomial(count, q)
    assert math.fsum(weight for weight, _ in law) == pytest.approx(1, abs=1e-12)
    for least in (1, 2, count // 2, count):
        tail = math.fsum(weight for weight, j in law if j >= least)
        exact = sum(
            math.comb(count, j) * Fraction(q) ** j * (1 - Fraction(q)) ** (count - j)
            for j in range(max(least, 1), count + 1)
        )
        assert tail >= float(exact) * (1 - 1e-15)


def test_gamma_noise_in_one_column_is_laplace_noise_and_never_cheaper():
    for k in (2, 5):
        found = group_epsilon([Gamma(10.0)], 1e-3, SPECIAL, k)
        truth = k / 10.0 + 2 * math.log1p(-1e-3)  # 1 − e^((ε − k/s)/2) = δ
        assert truth <= found < 4 * truth


def test_a_path_from_table_to_table_satisfies_the_lemma_that_it_rests_on():
    event = Iterated(8.0, steps=20)
    for k in (2, 5):
        each = group_epsilon([event], 1e-4, REPLACE, k) / k
        one = delta([event], each, REPLACE) + PLD_SLACK
        assert one * math.fsum(math.exp(j * each) for j in range(k)) <= 1e-4


def test_drift_and_its_chance_of_failure_are_in_the_bound():
    still = PoissonGaussian(4.0, 20, sampling_probability=0.1)
    moved = PoissonGaussian(4.0, 20, sampling_probability=0.1, drift=((1.0, 0.05),))
    risky = PoissonGaussian(4.0, 20, sampling_probability=0.1, drift=((1.0, 0.05),), failure=1e-6)
    costs = [group_epsilon([e], 1e-5, REPLACE, 2) for e in (still, moved, risky)]
    assert costs[0] < costs[1] < costs[2] < math.inf
    # A failure of δ/5 in each of five steps, times more than one: nothing is left.
    unsure = PoissonGaussian(4.0, 20, sampling_probability=0.1, drift=((1.0, 0.05),), failure=2e-6)
    assert group_epsilon([unsure], 1e-5, REPLACE, 5) == math.inf


# Numerical errors


def test_numerical_errors_grow_with_the_epsilon_of_several_rows():
    noise, delta = 4.0, 1e-5
    for set_aside in (0.0, 1e-30, 1e-9):
        for k in (2, 5):
            found = group_epsilon([Gaussian(noise)], delta, SPECIAL, k, numerical_delta=set_aside)
            whole = gaussian_delta(k / noise, found) + (1 + math.exp(found)) * set_aside / 2
            assert whole <= delta
    assert group_epsilon([Gaussian(noise)], delta, SPECIAL, 10, numerical_delta=1e-9) == math.inf


def test_where_nothing_can_be_said_nothing_is_said():
    passed = Iterated(0.3, steps=5)
    assert group_epsilon([passed], 1e-5, SPECIAL, 10) == math.inf  # below what grids can see
    assert group_epsilon([Gaussian(1e-3)], 1e-5, SPECIAL, 10) == math.inf
    assert group_epsilon([], 1e-5, SPECIAL, 10) == 0.0


@pytest.mark.parametrize("rows", [0, -1, True, 2.0, "2", 10**6])
def test_numbers_of_rows_that_make_no_sense_are_refused(rows):
    with pytest.raises(InputError, match="integer from 1 to 1000"):
        group_epsilon([Gaussian(1.0)], 1e-5, SPECIAL, rows)


# Private tests


def test_a_test_passes_wrongly_the_more_often_the_more_rows_differ():
    test = StabilityTest(deviation=20.0, delta=1e-6)
    assert 0.999e-6 < test.wrongly() < 1.01e-6
    for k in (2, 5, 10):  # a margin of k rows, where the table k steps away breaks the condition
        assert test.wrongly(k) >= stats.norm.sf((test.threshold - k) / 20.0)
        assert test.wrongly(k) > test.wrongly(k - 1)


@pytest.mark.parametrize("deviation", [3.0, 12.0, 20.0, 60.0])
def test_where_conditions_fail_delta_covers_a_wrong_pass_of_k_rows(deviation):
    """Behind a wrong pass outputs may have nothing in common: δ is then all that protects."""
    test, delta = StabilityTest(deviation, 1e-6), 1e-5
    events = [test.event, Gaussian(80.0, 100)]
    mu = math.hypot(1 / deviation, 2 / 80 * 10)
    for k in ROWS:
        found = group_epsilon(events, delta, REPLACE, k, test=test)
        wrongly = stats.norm.sf((test.threshold - k) / deviation)
        if wrongly > delta:
            assert found == math.inf
        elif found < math.inf:
            assert found >= exact_gaussian(k * mu, delta)
            assert math.exp(found) * (1 - wrongly) >= 1
        else:
            assert wrongly > delta * (1 - 1e-4)
    finite = [group_epsilon(events, delta, REPLACE, k, test=test) < math.inf for k in ROWS]
    assert finite == sorted(finite, reverse=True)


def test_a_certificate_that_does_not_say_how_sure_its_test_is_promises_nothing_more():
    test = StabilityTest(60.0, 1e-6)
    spent = [(TEST, test.event), ("DPGD", Gaussian(80.0, 100))]
    claim = {"epsilon": 2.0, "delta": 1e-5, "neighbors": REPLACE, "spent": spent}
    told = {"test": {"deviation": test.deviation, "delta": test.delta}}
    assert Certificate.issue(**claim, plan=told).groups["5"] is not None
    for plan in ({}, {"test": None}, {"test": {"delta": "1e-6"}}, {"test": {"delta": 1e-4}}):
        assert set(Certificate.issue(**claim, plan=plan).groups.values()) == {None}


# Certificates


RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = (X[:, 0] > 0).astype(int)
CLIPPED = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]


def searched():
    grid = {"trainer": [DPGD(steps=5, learning_rate=r) for r in (0.1, 1.0)]}
    model = DPLinearClassifier(stages=[Normalize()])
    return DPSearch(model, grid, epsilon=1.0, delta=1e-5).fit(X, Y).certificate_


MADE = {
    "classifier": lambda: DPLinearClassifier(stages=[Normalize()]).fit(X, Y).certificate_,
    "regression": lambda: (
        DPLinearRegressor(target_bounds=(-4, 4), stages=[ClipNorm(3.0)])
        .fit(X, X[:, 1])
        .certificate_
    ),
    "sampled": lambda: (
        DPLinearClassifier(epsilon=0.3, stages=[Normalize()], trainer=DPSGD(steps=5, batch_size=40))
        .fit(X, Y)
        .certificate_
    ),
    "plain": lambda: DPLinearClassifier(stages=[Normalize(), SoftPCA(0.1)]).fit(X, Y).certificate_,
    "tested": lambda: (
        DPLinearClassifier(
            epsilon=8.0, delta=1e-2, stages=[Normalize(), NoiselessPCA(1, gap=1e-3, share=0.7)]
        )
        .fit(X * [9, 1, 1], Y)
        .certificate_
    ),
    "gamma": lambda: (
        DPLinearClassifier(
            arithmetic="fast", stages=[Normalize()], trainer=GammaSGD(steps=3, batch_size=40)
        )
        .fit(X, Y)
        .certificate_
    ),
    "search": searched,
    "median": lambda: DPGeometricMedian(radius=1.0, steps=20).fit(X).certificate_,
    "inspection": lambda: (
        inspect_privately(CLIPPED, epsilon=1.0, delta=1e-5, bound=1.0).certificate
    ),
}


@pytest.mark.parametrize("made", MADE)
def test_every_certificate_says_what_several_rows_cost_and_verifies(made):
    certificate = MADE[made]()
    assert list(certificate.groups) == [str(k) for k in ROWS]
    check = certificate.verify()
    assert check.holds, check.problems
    assert check.groups.keys() == certificate.groups.keys()
    known = [value for value in certificate.groups.values() if value is not None]
    assert known == sorted(known) and (known or made == "tested")
    assert all(value > certificate.epsilon for value in known)
    (said,) = [text for text in certificate.assumptions if text.startswith("every person")]
    assert said == sentence(certificate.groups) and "k-fold" not in said
    assert certificate.versions["tacit"]
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_one_certificate_after_the_other_states_several_rows_of_both():
    one, two = (MADE["classifier"]() for _ in range(2))
    both = one.then(two)
    assert both.groups["5"] > one.groups["5"] and both.verify().holds
    assert [text for text in both.assumptions if text.startswith("every person")] == [
        sentence(both.groups)
    ]


def resigned(certificate, **changes):
    data = copy.deepcopy(certificate.to_dict()) | changes
    return Certificate.from_dict({**data, "digest": digest_of(data)})


def spend(event, neighbors=SPECIAL):
    claim = epsilon([event], 1e-5 - PLD_SLACK, neighbors) * (1 + 1e-4)
    slack = PLD_SLACK if isinstance(event, PoissonGaussian) else 1e-40
    fields = {"delta": 1e-5, "neighbors": neighbors, "numerical_delta": slack}
    return Certificate.issue(epsilon=claim, spent=[("Training", event)], **fields)


SPENT = {
    "gaussian": lambda: spend(Gaussian(40.0, 100)),
    "sampled": lambda: spend(PoissonGaussian(20.0, 10, sampling_probability=0.5)),
    "moved": lambda: spend(PoissonGaussian(50.0, 9, 0.5, ((1.0, 0.1),), 1e-9), REPLACE),
    "gamma": lambda: spend(Gamma(40.0, 10, sampling_probability=0.5)),
    "search": lambda: spend(Repeated(trial=[[Gaussian(15.0)]], rate=0.1)),
}


@pytest.mark.parametrize("kind", SPENT)
def test_a_forged_promise_to_several_rows_is_found(kind):
    certificate = SPENT[kind]()
    assert certificate.verify().holds
    for rows, value in certificate.groups.items():
        lower = resigned(certificate, groups={rows: value * 0.98})
        found = lower.verify()
        assert not found.holds and f"with {rows} rows" in found.problems[0]
        assert not found.revoked
    higher = {rows: value * 1.02 for rows, value in certificate.groups.items()}
    assert resigned(certificate, groups=higher).verify().holds
    assert resigned(certificate, groups=dict.fromkeys(certificate.groups)).verify().holds
    if kind != "gamma":  # k-fold ε, which certificates used to say, is true of pure privacy alone
        assert not resigned(certificate, groups={"5": 5 * certificate.epsilon}).verify().holds


@pytest.mark.parametrize(
    "groups",
    [
        [],
        {"1": 1.0},
        {"02": 1.0},
        {"two": 1.0},
        {"1001": 1.0},
        {"9" * 5000: 1.0},
        {"٢": 1.0},
        {"2": -1.0},
        {"2": True},
        {"2": "3"},
        {str(k): 1.0 for k in range(2, 20)},
    ],
)
def test_promises_that_make_no_sense_are_refused(groups):
    certificate = MADE["classifier"]()
    with pytest.raises(CertificateError):
        resigned(certificate, groups=groups)


def test_a_certificate_of_an_earlier_version_is_read_and_verified_as_it_is():
    path = OLD / "normalize-0.1.0.json"
    certificate = Certificate.load(path)
    assert not certificate.groups
    check = certificate.verify()
    assert check.holds and not check.groups
    assert certificate.to_dict() == json.loads(path.read_text())  # digest and all
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_what_is_said_of_several_rows_is_rounded_up():
    assert "6.168 for" in sentence({"5": 6.1670001})
    assert "nothing is promised to somebody with 5 or 10 rows" in sentence({"5": None, "10": None})
    assert sentence({"2": 1.0, "5": 3.0, "10": None}).endswith(
        "epsilon is 1 for somebody with 2 rows and 3 for somebody with 5; nothing is promised to "
        "somebody with 10"
    )


def test_for_one_row_it_is_the_epsilon_of_the_accountant():
    events = [Gaussian(20.0), Gaussian(40.0, 50)]
    mu = math.sqrt(1 / 400 + 50 / 1600)
    found = group_epsilon(events, 1e-5, SPECIAL, 1)
    assert found == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-5)


def test_what_the_drawing_of_noise_has_is_told_apart_where_a_grid_is_used():
    """A grid's error is not multiplied by e^ε of several rows, so that these get a promise."""
    found = DPLinearClassifier(
        epsilon=8.0, stages=[Normalize()], trainer=DPSGD(steps=400, batch_size=200)
    ).fit(X, Y)
    claim = found.certificate_
    assert 0 < claim.sampler_delta < 1e-30 and claim.numerical_delta >= PLD_SLACK
    assert claim.groups["5"] > 30 and claim.verify().holds
    again = Certificate.from_json(claim.to_json())
    assert again == claim and again.sampler_delta == claim.sampler_delta
    untold = resigned(claim, sampler_delta=None).verify()
    assert untold.groups["5"] is None and not untold.holds
    with pytest.raises(CertificateError, match="sampler_delta"):
        resigned(claim, sampler_delta=1e-3)
    assert claim.then(claim).sampler_delta == 2 * claim.sampler_delta
    assert MADE["classifier"]().sampler_delta is None


def test_losses_beyond_what_the_second_route_holds_refute_nothing():
    event = PoissonGaussian(0.3, sampling_probability=0.001)
    several = recheck.several([(event.kind, event.to_dict()["parameters"])], 10)
    with pytest.raises(InputError, match="beyond 600"):
        recheck.epsilon(several, 1e-5, SPECIAL)
    certificate = spend(event)
    assert certificate.groups["10"] > certificate.epsilon and certificate.verify().holds
    forged = resigned(certificate, groups={"10": certificate.groups["10"] * 0.98}).verify()
    assert not forged.holds and "with 10 rows" in forged.problems[0]
