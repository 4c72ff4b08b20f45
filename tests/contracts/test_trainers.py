"""What every trainer promises: one suite for all of them."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from tests.seam import run_of

from tacit import trainers
from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.exceptions import InputError
from tacit.losses import LOSSES, get_loss
from tacit.mechanisms.random_streams import Key, Stream
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm, PrivateCenter, PublicPrecondition
from tacit.privacy import Budget, Event
from tacit.privacy.events import NEIGHBORS
from tacit.research import trainers as papers
from tacit.research.trainers import (
    DPRAFT,
    GEP,
    AdaDPS,
    FlattestDPGD,
    GammaSGD,
    IteratedSGD,
    LocalDPGD,
    NoisySGD,
)
from tacit.trainers import DPGD, DPSGD, GradientTrainer, SufficientStatistics, Trainer
from tacit.trainers.settings import PublicFacts

EVERY_TRAINER = [DPGD, DPRAFT, DPSGD, GEP, AdaDPS, NoisySGD]
EVERY_TRAINER += [FlattestDPGD, GammaSGD, IteratedSGD, LocalDPGD]
COUNTED = {LocalDPGD: 1, IteratedSGD: 1}  # how often 17 steps count, where not 17 times
EVERY_LOSS = sorted(LOSSES)
N, D = 50, 4
SAMPLED = NoisySGD(steps=9, batch_size=15, runs=2)


def facts_of(outputs=1, size=N, **more):
    return PublicFacts(size, D, outputs, 1.0, 0.5, **more)


def problem(name="logistic", seed=0, n=N):
    rng = np.random.default_rng(seed)
    loss = get_loss(name)
    outputs = 3 if loss.task == "classification" else 1
    rows = rng.normal(size=(n, D))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    values = rng.normal(size=n) if loss.task == "regression" else rng.integers(0, outputs, n)
    return rows, loss.targets(values, outputs), loss, outputs


def trained(cls, name="logistic", *, rows=None, seed=0, facts=None, progress=None, **settings):
    array, targets, loss, outputs = problem(name)
    facts = facts or facts_of(outputs)
    trainer = cls(**{"steps": 5, **settings}).resolve(facts)
    seen = as_rows(array if rows is None else rows, bound=1.0)
    engine = Engine(seen, targets, loss, split=trainer.split(facts))
    options = {} if progress is None else {"progress": progress}
    return trainer.train(engine, run_of(trainer, 2.0, facts, Key.from_seed(seed)), facts, **options)


def test_every_public_trainer_is_under_this_contract():
    found = [getattr(home, name) for home in (trainers, papers) for name in home.__all__]
    classes = {c for c in found if isinstance(c, type) and issubclass(c, Trainer)}
    # What takes no steps has promises of its own (tests/trainers/test_sufficient_statistics.py).
    # What looks at public rows in every step, in tests/research/trainers/test_rivals_adaptive.py.
    apart = {Trainer, GradientTrainer, SufficientStatistics, papers.PowerGEP, papers.LabelledAdaDPS}
    assert classes - apart == set(EVERY_TRAINER)
    assert all(cls.descends for cls in EVERY_TRAINER) and not SufficientStatistics.descends


def test_a_trainer_can_do_what_it_says_and_nothing_else():
    traits = ("takes_drift", "takes_strict", "takes_start", "descends", "samples", "local")
    assert not any(getattr(Trainer, trait) for trait in traits)
    with pytest.raises(TypeError, match="abstract"):
        Trainer()
    trainer = SufficientStatistics().resolve(facts_of())
    with pytest.raises(TypeError, match="is trained alone"):
        trainer.train_group([], None, [], facts_of())
    with pytest.raises(TypeError, match="not analysed for rows that moved"):
        trainer.inflation(1.0, None)


# Settings


@pytest.mark.parametrize("cls", [*EVERY_TRAINER, SufficientStatistics])
def test_settings_can_be_read_and_set_and_clones_have_them(cls):
    trainer = cls(steps=7) if cls.descends else cls()
    assert clone(trainer) == trainer and clone(trainer) is not trainer
    assert trainer.get_params() == asdict(trainer)
    assert cls().set_params(**trainer.get_params()) == trainer


@pytest.mark.parametrize("cls", EVERY_TRAINER)
@pytest.mark.parametrize("facts", [facts_of(), facts_of(10, size=10**7), facts_of(size=1)])
def test_nothing_is_left_automatic(cls, facts):
    resolved = cls().resolve(facts)
    assert type(resolved) is cls
    assert "auto" not in asdict(resolved).values()
    assert resolved.resolve(facts) == resolved
    resolved.check(facts)


@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_what_was_given_stays_as_it_was_given(cls):
    given = {"steps": 7, "clip": 0.3, "momentum": 0.2, "average": "uniform", "alpha": 0.1}
    if cls is FlattestDPGD:  # returns a single iterate
        given["average"] = "last"
    if cls is IteratedSGD:  # whose steps must contract
        given |= {"average": "last", "momentum": 0.0}
    original = cls(**given)
    before = copy.deepcopy(original)
    resolved = asdict(original.resolve(facts_of()))
    assert {name: resolved[name] for name in given} == given
    assert original == before


@pytest.mark.parametrize("cls", [*EVERY_TRAINER, SufficientStatistics])
def test_settings_depend_on_public_facts_alone(cls):
    assert cls().resolve(facts_of()) == cls().resolve(facts_of())


@pytest.mark.parametrize("cls", EVERY_TRAINER)
@pytest.mark.parametrize(
    "given", [{}, {"steps": np.int64(5)}, {"clip": np.float32(0.5)}, {"steps": 5.0}]
)
def test_parameters_are_plain_json(cls, given):
    resolved = cls(**given).resolve(facts_of())
    again = json.loads(json.dumps(resolved.parameters(), allow_nan=False))
    assert cls(**again) == resolved


def test_trainers_are_refused_where_their_account_does_not_hold():
    for cls in EVERY_TRAINER:
        for neighbors in set(NEIGHBORS) - set(cls.relations):
            with pytest.raises(InputError, match="is analysed for neighbors="):
                Plan(Budget(1.0, 1e-5), (ClipNorm(1.0),), cls(), get_loss("logistic"), neighbors)
        for arithmetic in {"exact", "strict", "fast"} - set(cls.arithmetics):
            with pytest.raises(InputError, match="pass arithmetic='fast'"):
                Plan(
                    Budget(1.0, 1e-5),
                    (ClipNorm(1.0),),
                    cls(),
                    get_loss("logistic"),
                    cls.relations[0],
                    arithmetic=arithmetic,
                )


# Events


@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_the_event_counts_the_steps_at_the_noise_given(cls):
    trainer = cls(steps=17).resolve(facts_of())
    event = trainer.event(2.5, facts_of())
    assert isinstance(event, Event)
    runs = getattr(trainer, "runs", 1)
    assert (event.noise_multiplier, event.count) == (2.5, COUNTED.get(cls, 17) * runs)
    probability = trainer.sampling_probability(facts_of())
    assert getattr(event, "sampling_probability", 1.0) == probability
    names, events = zip(*trainer.events(2.5, facts_of()), strict=True)
    assert (names[0], events[0]) == (cls.__name__, event)
    # What is listed besides does not depend on the noise that a plan solves for.
    assert trainer.events(5.0, facts_of())[1:] == trainer.events(2.5, facts_of())[1:]


@pytest.mark.parametrize("batch", [None, 15])
@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_it_draws_as_many_numbers_as_it_says(cls, batch, monkeypatch):
    counts = []
    real = Stream.discrete_gaussian

    def counted(self, sigma, count):
        counts.append(count)
        return real(self, sigma, count)

    monkeypatch.setattr(Stream, "discrete_gaussian", counted)
    given = {"batch_size": batch} if batch and issubclass(cls, DPSGD) else {}
    trained(cls, **given)
    resolved = cls(steps=5, **given).resolve(facts_of(3))
    choices = len(resolved.events(1.0, facts_of(3))) - 1  # each counts as a draw
    # Of reports each row counts its own alone; without exact noise there is nothing to count.
    rows = N if cls.local else 1
    assert sum(counts) + choices == rows * resolved.draws(D, 3)


@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_clips_and_noise_are_stated_for_the_same_parts(cls):
    facts = facts_of()
    trainer = cls().resolve(facts)
    parts = 1 if trainer.split(facts) is None else 2
    assert len(trainer.clips) == len(trainer.deviations(2.0, 0.0, None)) == parts
    # A row moves the whitened sums by no more than the event says, and may move them so far.
    noise = trainer.deviations(2.0, 0.0, None)
    reach = sum((c / d) ** 2 for c, d in zip(trainer.clips, noise, strict=True))
    assert reach == pytest.approx(1 / 2.0**2, rel=1e-12)


# Runs


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_every_loss_gives_finite_weights_of_the_right_shape(cls, name):
    weights = trained(cls, name)
    outputs = 1 if get_loss(name).task == "regression" else 3
    assert weights.shape == (D, outputs)
    assert np.isfinite(weights).all()
    assert (weights != 0).all()


@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_one_seed_gives_one_model_and_another_another(cls):
    assert (trained(cls) == trained(cls)).all()
    assert (trained(cls) != trained(cls, seed=1)).all()


@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_noise_from_one_key_is_never_used_twice(cls):
    rows, targets, loss, outputs = problem()
    trainer, key = cls(steps=3).resolve(facts_of(outputs)), Key.from_seed(0)
    split = trainer.split(facts_of(outputs))
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, split=split)
    trainer.train(engine, run_of(trainer, 2.0, facts_of(outputs), key), facts_of(outputs))
    with pytest.raises(Exception, match="opened before"):
        trainer.train(engine, run_of(trainer, 2.0, facts_of(outputs), key), facts_of(outputs))


@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_dense_and_sparse_rows_give_the_same_model(cls):
    rows = problem()[0]
    assert (trained(cls, rows=sp.csr_array(rows)) == trained(cls, rows=rows)).all()


@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_progress_is_told_of_every_step(cls):
    told = []
    trained(cls, progress=lambda *what: told.append(what))
    assert told == [("training", step, 5) for step in range(1, 6)]
    if cls is NoisySGD:
        told.clear()
        trained(cls, batch_size=9, progress=lambda *what: told.append(what))
        assert told == [("training", step, 15) for step in range(1, 16)]


@pytest.mark.parametrize("cls", EVERY_TRAINER)
def test_a_run_that_diverges_says_what_to_change(cls):
    with pytest.raises(InputError, match="lower the learning rate"), np.errstate(all="ignore"):
        trained(cls, "squared", learning_rate=1e80, steps=50, schedule="constant")


# Inside a plan


@pytest.mark.parametrize("neighbors", sorted(NEIGHBORS))
@pytest.mark.parametrize(
    "trainer",
    [
        DPGD(steps=20),
        DPRAFT(steps=20),
        DPSGD(steps=20, batch_size=15),
        GEP(steps=20, balance=0.7),
        AdaDPS(steps=20),
        NoisySGD(steps=9),
        SAMPLED,
    ],
    ids=lambda t: t.name,
)
def test_a_plan_with_it_is_certified_and_verified_under_every_relation(trainer, neighbors):
    n = N if neighbors != "add_or_remove_one" else N - 3  # the number of rows is then private
    rows, targets, loss, _ = problem(n=n)
    stages = (ClipNorm(1.0), PrivateCenter(0.2))
    last = (PublicPrecondition(np.eye(D)),) if isinstance(trainer, AdaDPS) else ()
    plan = Plan(Budget(1.0, 1e-5), (*stages, *last), trainer, loss, neighbors)
    calibrated = plan.calibrate(size=N, columns=D, classes=3)
    fit = calibrated.run(as_rows(rows), targets, key=Key.from_seed(0))
    found = fit.certificate.verify()
    assert found.holds and 0.98 < found.recomputed["dp-accounting"] <= 1.0
    center, *training = (expense.event for expense in fit.certificate.events)
    resolved = trainer.resolve(calibrated.facts)
    spent = resolved.events(calibrated.noise_multiplier, calibrated.facts)
    assert training == [event for _, event in spent]
    assert center.noise_multiplier == calibrated.stage_noise[1]
    # Under replace_one a row moves the sum twice as far, so the noise is about twice as much.
    alone = Plan(Budget(1.0, 1e-5), stages, DPGD(steps=20), loss, "replace_special")
    single = alone.calibrate(size=N, columns=D, classes=3).stage_noise[1]
    assert center.noise_multiplier == pytest.approx(single * NEIGHBORS[neighbors])


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
def test_a_public_number_of_rows_must_be_the_true_one(neighbors):
    rows, targets, loss, _ = problem()
    plan = Plan(Budget(1.0, 1e-5), (ClipNorm(1.0),), DPGD(steps=2), loss, neighbors)
    calibrated = plan.calibrate(size=N + 1, columns=D, classes=3)
    with pytest.raises(InputError, match="calibrated for 51 rows, not 50"):
        calibrated.run(as_rows(rows), targets, key=Key.from_seed(0))
