"""Repeated runs and a private choice: nothing is counted too low, and nothing is used twice."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from tests.seam import run_of

from tacit import DPLinearClassifier, Ledger
from tacit.audit import audit, prepare
from tacit.data.rows import as_rows
from tacit.engine.engine import LOSS_UNIT, Engine
from tacit.exceptions import InputError
from tacit.losses import LOSSES, get_loss
from tacit.mechanisms.random_streams import Key, Stream
from tacit.mechanisms.release import Draws
from tacit.mechanisms.selection import masses
from tacit.plan import Plan
from tacit.preprocessing import Normalize, PrivateCenter, SoftPCA
from tacit.privacy import Budget, Gaussian, PoissonGaussian, Selection
from tacit.privacy.accounting.accountants import epsilon, selection_mu
from tacit.privacy.events import NEIGHBORS
from tacit.report import plain_text, render_html
from tacit.research.trainers import NoisySGD, noisy_sgd
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.settings import PublicFacts

N, D = 60, 4
FACTS = PublicFacts(N, D, 3, 1.0, 0.5)


def problem(name="logistic", n=N, seed=0):
    rng = np.random.default_rng(seed)
    loss = get_loss(name)
    outputs = 3 if loss.task == "classification" else 1
    rows = rng.normal(size=(n, D))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    values = rng.normal(size=n) if loss.task == "regression" else rng.integers(0, outputs, n)
    return rows, loss.targets(values, outputs), loss, outputs


def engine_of(rows, targets, loss, **settings):
    return Engine(as_rows(rows, bound=1.0), targets, loss, intercept=0.1, **settings)


# Sums of losses


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_it_is_the_sum_of_cut_losses(name, arithmetic):
    rows, targets, loss, outputs = problem(name)
    weights = np.random.default_rng(1).normal(size=(2, D + 1, outputs)) * 3
    found = engine_of(rows, targets, loss, arithmetic=arithmetic).loss_sum(weights, 1.5)
    scores = np.hstack([rows, np.full((N, 1), 0.1)]) @ weights
    expected = [(2 * np.clip(loss.value(one, targets), 0, 1.5) / 1.5 - 1).sum() for one in scores]
    assert found.dtype == np.int64
    assert found / LOSS_UNIT == pytest.approx(expected, abs=1e-2)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_no_row_counts_for_more_than_the_unit(name):
    """Over rows, targets and weights of any size, and ceilings: what the account rests on."""
    rng = np.random.default_rng(0)
    loss = get_loss(name)
    outputs = 3 if loss.task == "classification" else 1
    n = 40
    for size, ceiling in product([1e-9, 1.0, 1e4, 1e12], [1e-6, 0.7, 1e9]):
        rows = rng.normal(size=(n, D)) * rng.choice([0.0, 1e-12, 1.0, 1e9], size=(n, 1))
        values = rng.normal(size=n) * 1e15
        if loss.task == "classification":
            values = rng.integers(0, outputs, n)
        targets = loss.targets(values, outputs)
        weights = rng.normal(size=(1, D + 1, outputs)) * size
        each = [
            engine_of(rows[i : i + 1], targets[i : i + 1], loss).loss_sum(weights, ceiling)[0]
            for i in range(n)
        ]
        assert max(abs(int(value)) for value in each) <= LOSS_UNIT
        # In integers, so that what one row brings is the same in any company.
        together = engine_of(rows, targets, loss).loss_sum(weights, ceiling)[0]
        assert int(together) == sum(map(int, each))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_row_counts_the_same_wherever_it_stands(name):
    rows, targets, loss, outputs = problem(name, n=3000)
    weights = np.random.default_rng(1).normal(size=(3, D + 1, outputs))
    whole = engine_of(rows, targets, loss).loss_sum(weights, 1.0)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(3000)
        other = engine_of(rows[order], targets[order], loss, threads=1)
        assert (other.loss_sum(weights, 1.0) == whole).all()
    sparse = Engine(as_rows(sp.csr_array(rows), bound=1.0), targets, loss, intercept=0.1)
    assert (sparse.loss_sum(weights, 1.0) == whole).all()
    lone = [engine_of(rows, targets, loss).loss_sum(weights[s : s + 1], 1.0)[0] for s in range(3)]
    assert lone == whole.tolist()
    without = engine_of(rows[:-1], targets[:-1], loss).loss_sum(weights, 1.0)
    last = engine_of(rows[-1:], targets[-1:], loss).loss_sum(weights, 1.0)
    assert (without + last == whole).all()


def test_a_loss_that_is_no_number_counts_as_the_ceiling():
    rows, targets, loss, outputs = problem("squared")
    huge = np.full((1, D + 1, outputs), 1e17)
    assert engine_of(rows, targets, loss).loss_sum(huge, 1.0)[0] >= (N - 2) * LOSS_UNIT
    with pytest.raises(InputError, match="ceiling"):
        engine_of(rows, targets, loss).loss_sum(huge, 0.0)


# The choice


def chances(engine, weights, ceiling, noise):
    found = masses((-engine.loss_sum(weights, ceiling)).tolist(), noise * LOSS_UNIT)
    return [Fraction(mass, sum(found)) for mass in found]


@pytest.mark.parametrize("neighbors", sorted(NEIGHBORS))
def test_no_neighbour_changes_a_chance_by_more_than_is_counted(neighbors):
    """Exact chances of the choice on neighbouring tables, over a search for the worst row."""
    rows, targets, loss, outputs = problem(n=12)
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(3, D + 1, outputs)) * 20
    noise, ceiling = 1.3, 0.5
    reach = NEIGHBORS[neighbors] / noise
    worst = 0.0
    for _ in range(150):
        a, b = rng.normal(size=(2, 1, D))
        a, b = (v / np.linalg.norm(v) for v in (a, b))
        one, other = (loss.targets(rng.integers(0, 3, 1), 3) for _ in range(2))
        first = engine_of(np.vstack([a, rows]), np.vstack([one, targets]), loss)
        if neighbors == "replace_one":
            second = engine_of(np.vstack([b, rows]), np.vstack([other, targets]), loss)
        else:  # a null row counts nothing
            second = engine_of(rows, targets, loss)
        p, q = (chances(e, weights, ceiling, noise) for e in (first, second))
        losses = [math.log(x / y) for x, y in zip(p, q, strict=True)]
        worst = max(worst, max(losses) - min(losses))
    # `Selection` counts losses in an interval of twice the reach (docs/decisions/0014).
    assert worst <= 2 * reach * (1 + 1e-9)
    assert worst > 0.99 * 2 * reach  # and no less would do


def test_the_choice_is_that_of_the_exponential_mechanism(monkeypatch):
    rows, targets, loss, _ = problem()
    given = {}

    def spy(self, utilities, noise, stream):
        given.update(utilities=utilities, noise=noise)
        return 1

    monkeypatch.setattr(Draws, "choose", spy)
    trainer = NoisySGD(steps=3, runs=4, choice_noise=2.5, ceiling=0.8).resolve(FACTS)
    engine = engine_of(rows, targets, loss)
    chosen = trainer.train(engine, run_of(trainer, 2.0, FACTS, Key.from_seed(0)), FACTS)
    key = Key.from_seed(0)
    models = train_together(
        engine, [trainer] * 4, rehearsal([trainer] * 4, [2.0] * 4, FACTS, key), FACTS
    )
    assert (chosen == models[1]).all()
    assert (given["utilities"] == -engine.loss_sum(models, 0.8)).all()
    assert given["noise"] == 2.5 * LOSS_UNIT


def test_almost_without_noise_the_best_run_is_chosen():
    rows, targets, loss, _ = problem()
    engine = engine_of(rows, targets, loss)
    trainer = NoisySGD(steps=3, runs=6, choice_noise=1e-5, ceiling=2.0).resolve(FACTS)
    chosen = trainer.train(engine, run_of(trainer, 0.5, FACTS, Key.from_seed(3)), FACTS)
    models = train_together(
        engine, [trainer] * 6, rehearsal([trainer] * 6, [0.5] * 6, FACTS, Key.from_seed(3)), FACTS
    )
    best = int(engine.loss_sum(models, 2.0).argmin())
    assert (chosen == models[best]).all()


# Runs


@pytest.mark.parametrize("batch", [N, 20])
def test_every_run_has_noise_and_batches_of_its_own(batch, monkeypatch):
    noises, batches = [], []
    real, include = Stream.discrete_gaussian, Stream.include

    def noise(self, sigma, count):
        noises.append(real(self, sigma, count))
        return noises[-1].copy()

    def sample(self, n, probability):
        batches.append(include(self, n, probability))
        return batches[-1]

    monkeypatch.setattr(Stream, "discrete_gaussian", noise)
    monkeypatch.setattr(Stream, "include", sample)
    rows, targets, loss, _ = problem()
    trainer = NoisySGD(steps=5, runs=3, batch_size=batch).resolve(FACTS)
    trainer.train(
        engine_of(rows, targets, loss), run_of(trainer, 2.0, FACTS, Key.from_seed(0)), FACTS
    )
    assert len(noises) == 15
    assert len({values.tobytes() for values in noises}) == 15
    # On samples every run draws its own: one sample for all would cost more than is counted.
    assert len(batches) == (15 if batch < N else 0)  # of all rows, there is nothing to draw
    if batch < N:
        assert len({values.tobytes() for values in batches}) == 15


def test_one_sample_for_several_runs_would_cost_more_than_their_composition():
    q, z, runs, steps = 0.01, 1.0, 8, 1
    known = {"delta": 1e-6, "neighbors": "replace_special", "grid": 1e-2}
    shared = epsilon([PoissonGaussian(z / math.sqrt(runs), steps, q)], **known)
    apart = epsilon([PoissonGaussian(z, runs * steps, q)], **known)
    assert shared > 1.5 * apart


# The account


@pytest.mark.parametrize("neighbors", sorted(NEIGHBORS))
def test_runs_and_choice_together_cost_the_budget(neighbors):
    loss = get_loss("logistic")
    plan = Plan(Budget(1.0, 1e-5), (Normalize(),), NoisySGD(steps=10), loss, neighbors)
    calibrated = plan.calibrate(size=200, columns=D, classes=3)
    (_, steps), (name, choice) = calibrated.spent
    assert name == "NoisySGD choice"
    assert type(steps) is Gaussian and type(choice) is Selection
    assert (steps.count, choice.count) == (30, 1)
    # Recomputed by hand: all of it is Gaussian, squares add up.
    unit = NEIGHBORS[neighbors]
    mu = math.hypot(
        unit / steps.noise_multiplier * math.sqrt(30), selection_mu(unit / choice.noise_multiplier)
    )
    whole = epsilon([Gaussian(unit / mu)], 1e-5, neighbors)
    assert 0.999 < whole <= 1.0
    # Algorithm 2 gives the runs all of epsilon, and the choice epsilon more.
    printed = [Gaussian(replace(steps, count=1).noise_multiplier, 30), Selection(2 * unit / 1.0)]
    assert epsilon(printed, 1e-5, neighbors) > 1.2


def test_a_choice_that_takes_the_whole_budget_is_refused():
    from tacit.exceptions import BudgetError

    loss = get_loss("logistic")
    plan = Plan(Budget(1.0, 1e-5), (Normalize(),), NoisySGD(steps=10, choice_noise=1.0), loss)
    with pytest.raises(BudgetError):
        plan.calibrate(size=200, columns=D, classes=3)


def test_it_says_what_it_does_and_its_papers_verify(tmp_path):
    rows, _, _, _ = problem(n=200)
    labels = (rows[:, 0] > 0).astype(int)
    ledger = Ledger(tmp_path / "ledger.db").create("people", epsilon=2.0, delta=1e-5)
    trainer = NoisySGD(steps=4, runs=2)
    stages = [Normalize(), PrivateCenter(0.3)]
    model = DPLinearClassifier(1.0, 1e-6, stages=stages, trainer=trainer, ledger=ledger)
    model.fit(rows, labels)
    assert "2 such runs are made" in model.plan_.explain()
    certificate = model.certificate_
    assert certificate.verify().holds
    assert certificate.plan["trainer"]["parameters"]["runs"] == 2
    (charge,) = ledger.charges()
    assert [name for name, _ in charge.spending.events] == [
        "PrivateCenter",
        "NoisySGD",
        "NoisySGD choice",
    ]
    assert 0.8 < ledger.remaining().spent <= 1.0
    assert "NoisySGD choice" in render_html(certificate.to_dict())
    assert "NoisySGD choice" in plain_text(certificate.to_dict())


def test_it_does_not_follow_plain_stages():
    stages = (Normalize(), SoftPCA())
    with pytest.raises(InputError, match="is not analysed for rows that a noiseless stage"):
        Plan(Budget(1.0, 1e-5), stages, NoisySGD(), get_loss("logistic"), "replace_one")


def test_strict_arithmetic_is_refused_before_anything_is_spent():
    # Sums of losses are exact, but nobody has checked their products.
    given = (Budget(1.0, 1e-5), (Normalize(),), NoisySGD(), get_loss("logistic"))
    with pytest.raises(InputError, match="does not check everything that NoisySGD sums"):
        Plan(*given, arithmetic="strict")


@pytest.mark.parametrize(
    "wrong",
    [{"runs": 1}, {"runs": 2.5}, {"runs": 2000}, {"choice_noise": 0}, {"ceiling": -1.0}],
)
def test_settings_that_make_no_sense_are_named(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        NoisySGD(**wrong).resolve(FACTS)


# The audit


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"batch_size": 8.0}, marks=pytest.mark.slow)],
    ids=["all rows", "samples"],
)
def test_it_is_not_refuted(options):
    _, plan = prepare("pillar", epsilon=4.0, delta=1e-5, trainer="noisy-sgd", runs=2, **options)
    assert audit(plan, runs=100, seed=0).holds


def test_a_choice_without_noise_is_caught(monkeypatch):
    """A bug that only the choice shows: the utilities in units a million times too small."""
    trainer = NoisySGD(
        steps=1, runs=12, learning_rate=30.0, clip=0.1, intercept_fraction=0.1, choice_noise=1.9
    )
    plan = Plan(Budget(4.0, 1e-5), (Normalize(),), trainer, get_loss("logistic"))
    calibrated = plan.calibrate(size=16, columns=2, classes=2)
    assert audit(calibrated, runs=120, seed=1).holds
    monkeypatch.setattr(noisy_sgd, "LOSS_UNIT", 1)
    found = audit(calibrated, runs=120, seed=1)
    assert found.lower > found.claimed


# As printed


def test_algorithm_2_with_its_own_steps_and_rates():
    n = 24
    trainer = NoisySGD.printed(n, D, epsilon=1.0, delta=1e-5)
    assert (trainer.steps, trainer.runs, trainer.batch_size) == (n * n - 1, 3, 1.0)
    assert (trainer.radius, trainer.schedule, trainer.average) == (1.0, "sqrt", "last")
    each = noisy_sgd.printed_noise(n, epsilon=1 / 3, delta=1e-5 / 3)
    assert trainer.learning_rate == pytest.approx(1 / math.sqrt(1 + D * each**2))
    rates = replace(trainer, intercept_fraction=0.1).rates()
    assert rates[3] == pytest.approx(rates[0] / 2)  # η(t) falls as 1/√t
    plan = Plan(Budget(1.0, 1e-5), (Normalize(),), trainer, get_loss("hinge")).calibrate(
        size=n, columns=D, classes=2
    )
    assert plan.spent[0][1].sampling_probability == pytest.approx(1 / n)
    # The account, exact, asks for much less noise than the printed variance.
    assert plan.noise_multiplier < each / 10
