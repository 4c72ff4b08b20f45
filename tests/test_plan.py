"""Plans: what is counted is what runs, and nothing is read before it is paid for."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from tacit.data.rows import Rows, as_rows
from tacit.data.tables import as_table
from tacit.exceptions import BudgetError, InputError, MissingBound
from tacit.losses import get_loss
from tacit.mechanisms.additive import BITS
from tacit.mechanisms.random_streams import Key, Stream
from tacit.mechanisms.release import Draws
from tacit.plan import CalibratedPlan, Plan
from tacit.plan.fit import apply_stages
from tacit.preprocessing import (
    Bound,
    ClipNorm,
    Encode,
    Normalize,
    PrivateCenter,
    PublicPCA,
    PublicScale,
    RandomProjection,
    Stage,
)
from tacit.privacy import Budget, Certificate
from tacit.privacy.accounting.accountants import epsilon as epsilon_of
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.events import Gaussian, PoissonGaussian
from tacit.trainers import DPGD, DPSGD

N, D = 120, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
PUBLIC = RNG.normal(size=(40, D))
LABELS = (X[:, 0] > 0).astype(int)
LOGISTIC = get_loss("logistic")
SCHEMA = {"columns": {f"c{i}": {"kind": "number", "low": -3, "high": 3} for i in range(D)}}


def plan(*stages, epsilon=1.0, delta=1e-5, trainer=None, loss="logistic", **options):
    trainer = DPGD(steps=5) if trainer is None else trainer
    return Plan(Budget(epsilon, delta), stages, trainer, get_loss(loss), **options)


def fixed(*stages, size=N, classes=2, **options):
    return plan(*stages, **options).calibrate(size=size, columns=D, classes=classes)


def run(calibrated, rows=X, seed=0, **options):
    loss, classes = calibrated.plan.loss, calibrated.classes
    if loss.task == "regression":
        targets = loss.targets(np.clip(X[:, 0], -1, 1), 1)
    else:
        labels = LABELS if classes == 2 else np.arange(N) % classes
        targets = loss.targets(labels, loss.outputs(classes))
    return calibrated.run(as_rows(rows), targets, key=Key.from_seed(seed), **options)


# Calibration knows public facts only


class Tripwire:
    """Rows that must not be read."""

    n, d, sparse = N, D, False

    def slice(self, start, stop):
        raise AssertionError("a row was read")

    def empty(self):
        return as_rows(np.empty((0, D))).source


def test_a_plan_is_calibrated_without_a_row():
    first, second = fixed(Normalize(), PrivateCenter()), fixed(Normalize(), PrivateCenter())
    assert first == second
    assert first.certify(False, []).verify().holds


def test_another_number_of_rows_is_refused_before_one_is_read():
    with pytest.raises(InputError, match=f"calibrated for {N + 1} rows, not {N}"):
        fixed(Normalize(), size=N + 1).run(Rows(Tripwire(), d=D), LOGISTIC.targets(LABELS, 1))


def test_another_number_of_columns_is_refused_before_a_row_is_read():
    other = plan(Normalize()).calibrate(size=N, columns=D - 1, classes=2)
    with pytest.raises(InputError, match=f"{D - 1} columns"):
        other.run(Rows(Tripwire(), d=D), LOGISTIC.targets(LABELS, 1))


def test_a_private_number_of_rows_needs_no_match():
    fit = run(fixed(Normalize(), size=N + 7, neighbors="add_or_remove_one"))
    assert fit.certificate.plan["rows"] == N + 7


def test_free_and_public_stages_are_shown_no_rows():
    shown = []

    @dataclass
    class Curious(Normalize):
        def fit(self, rows, context=None):
            shown.append(rows.n)
            assert rows.collect().shape[0] == 0
            return super().fit(rows, context)

    @dataclass
    class CuriousPublic(Curious):
        kind: ClassVar = "public"

    run(fixed(Curious(), CuriousPublic(), PrivateCenter()))
    assert shown == [0, 0]


def test_stages_that_do_not_pay_are_refused():
    class Peek(Stage):
        kind = "private"

    class Plain(Stage):
        kind = "noiseless"

    for stage in (Peek(), Plain()):
        with pytest.raises(InputError, match="does not say at what cost"):
            plan(Normalize(), stage)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ((), "needs a public bound"),
        ((PrivateCenter(),), "needs a public bound"),
        ((RandomProjection(2),), "needs a public bound"),
        ((PublicScale(PUBLIC),), "needs a public bound"),
    ],
)
def test_rows_without_a_bound_are_refused(stages, words):
    with pytest.raises(MissingBound, match=words):
        fixed(*stages)


def test_nonsense_is_refused():
    with pytest.raises(InputError, match="no rows to learn from"):
        fixed(Normalize(), size=0)
    with pytest.raises(InputError, match="arithmetic='slow'"):
        plan(Normalize(), arithmetic="slow")
    with pytest.raises(InputError, match="neighbors='swap'"):
        plan(Normalize(), neighbors="swap")
    with pytest.raises(InputError, match="must be stages"):
        plan("Normalize")
    with pytest.raises(InputError, match=r"one of tacit\.trainers"):
        plan(Normalize(), trainer="DPGD")
    with pytest.raises(BudgetError, match="ask for the whole budget"):
        fixed(Normalize(), PrivateCenter(0.8), PrivateCenter(0.7))
    with pytest.raises(BudgetError, match="delta"):
        fixed(Normalize(), delta=1e-250)


# What runs is what was counted


@pytest.fixture
def draws(monkeypatch):
    """Every draw of Gaussian noise: its scale and how many numbers."""
    log = []
    original = Stream.discrete_gaussian

    def recorded(stream, sigma, count):
        log.append((sigma, count))
        return original(stream, sigma, count)

    monkeypatch.setattr(Stream, "discrete_gaussian", recorded)
    return log


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
@pytest.mark.parametrize(
    "trainer", [DPGD(steps=7), DPSGD(steps=7, batch_size=60)], ids=["all", "some"]
)
def test_every_draw_is_in_the_certificate(draws, neighbors, trainer, monkeypatch):
    spacings = []
    add_noise = Draws.gaussian

    def recorded(self, total, *rest):
        if total.kind == "step":
            spacings.append(total.unit)
        return add_noise(self, total, *rest)

    monkeypatch.setattr(Draws, "gaussian", recorded)
    calibrated = fixed(Normalize(), PrivateCenter(), trainer=trainer, neighbors=neighbors)
    fit = run(calibrated)
    certificate, clip = fit.certificate, float(fit.plan.trainer.clip)
    center, training = (expense.event for expense in certificate.events)
    assert [expense.stage for expense in certificate.events] == ["PrivateCenter", trainer.name]
    assert center.count == 1 and training.count == 7
    assert len(draws) == 1 + 7
    # In units of one row's contribution; the lattice asks for a trifle more than was counted.
    (sigma, count), *steps = draws
    assert count == D
    assert sigma * 2.0**-BITS == pytest.approx(center.noise_multiplier, rel=1e-6)
    for (sigma, count), spacing in zip(steps, spacings, strict=True):
        assert count == D + 1
        assert sigma * spacing / clip == pytest.approx(training.noise_multiplier, rel=1e-4)
        assert sigma * spacing / clip >= training.noise_multiplier


def test_batches_are_drawn_as_they_were_counted(monkeypatch):
    sizes, chances = [], []
    include = Stream.include

    def recorded(stream, n, probability):
        chosen = include(stream, n, probability)
        sizes.append(len(chosen))
        chances.append(probability)
        return chosen

    monkeypatch.setattr(Stream, "include", recorded)
    trainer = DPSGD(steps=60, batch_size=30)
    fit = run(fixed(Normalize(), trainer=trainer))
    (event,) = (expense.event for expense in fit.certificate.events)
    assert isinstance(event, PoissonGaussian)
    assert set(chances) == {event.sampling_probability}
    assert event.sampling_probability == pytest.approx(30 / N, rel=1e-6)
    assert len(sizes) == event.count == 60
    assert len(set(sizes)) > 5  # not a fixed size
    assert abs(np.mean(sizes) - 30) < 5 * math.sqrt(30 * 0.75 / 60)


def test_events_spend_the_budget_and_no_more():
    for options in ({}, {"trainer": DPSGD(steps=20, batch_size=40)}, {"neighbors": "replace_one"}):
        calibrated = fixed(Normalize(), PrivateCenter(), epsilon=2.0, **options)
        events = [event for _, event in calibrated.spent]
        delta = 1e-5 - calibrated.numerical_delta
        spent = epsilon_of(events, delta, calibrated.plan.neighbors)
        assert 1.99 < spent <= 2.0


def test_fixed_noise_of_a_stage_is_kept():
    calibrated = fixed(Normalize(), PrivateCenter(noise_multiplier=50.0))
    assert calibrated.stage_noise == {1: 50.0}
    assert calibrated.spent[0] == ("PrivateCenter", Gaussian(50.0))
    free = fixed(Normalize())
    assert calibrated.noise_multiplier > free.noise_multiplier


def test_the_certificate_says_what_was_run():
    stages = (Normalize(2.0), PublicPCA(PUBLIC, 4), PrivateCenter(0.2))
    calibrated = fixed(*stages, epsilon=0.5, delta=1e-6)
    certificate = run(calibrated, assumptions=["and this"]).certificate
    assert (certificate.epsilon, certificate.delta) == (0.5, 1e-6)
    assert certificate.accountant == "gaussian-dp"
    assert certificate.assumptions[-1] == "and this"
    said = certificate.plan
    assert (said["rows"], said["columns"], said["features"], said["classes"]) == (N, D, 4, 2)
    assert [stage["name"] for stage in said["stages"]] == [
        "Normalize",
        "PublicPCA",
        "PrivateCenter",
    ]
    assert [stage["kind"] for stage in said["stages"]] == ["free", "public", "private"]
    assert said["trainer"]["name"] == "DPGD"
    assert "auto" not in json.dumps(certificate.to_dict()["plan"]["trainer"])
    assert said["trainer"]["parameters"]["steps"] == calibrated.trainer.steps == 5
    assert Certificate.from_json(certificate.to_json()) == certificate
    alone = run(replace_stages(calibrated, Normalize())).certificate
    assert len(alone.events) == 1


def replace_stages(calibrated, *stages):
    return replace(calibrated.plan, stages=stages).calibrate(size=N, columns=D, classes=2)


def test_the_fingerprint_of_public_rows_is_in_the_certificate():
    def fingerprint(public, kind=PublicPCA):
        stages = (
            (Normalize(), kind(public, 3)) if kind is PublicPCA else (kind(public), Normalize())
        )
        certificate = run(fixed(*stages)).certificate
        (entry,) = (s for s in certificate.plan["stages"] if s["kind"] == "public")
        assert any("its public rows are public" in said for said in certificate.assumptions)
        assert entry["parameters"]["fingerprint"] in entry["note"]
        assert "public" not in entry["parameters"]
        return entry["parameters"]["fingerprint"]

    other = PUBLIC.copy()
    other[0, 0] += 1e-9
    assert fingerprint(PUBLIC) == fingerprint(PUBLIC.copy()) == fingerprint(PUBLIC.tolist())
    assert fingerprint(PUBLIC) != fingerprint(other)
    assert fingerprint(PUBLIC, PublicScale) != fingerprint(other, PublicScale)


def test_stages_passed_in_are_left_alone():
    stages = (Normalize(), PublicPCA(PUBLIC, 3), RandomProjection(2), PrivateCenter())
    before = [dict(vars(stage)) for stage in stages]
    run(fixed(*stages))
    for stage, attributes in zip(stages, before, strict=True):
        assert vars(stage).keys() == attributes.keys()
        assert all(vars(stage)[name] is value for name, value in attributes.items())


def test_two_private_stages_draw_noise_of_their_own():
    fit = run(fixed(ClipNorm(), PrivateCenter(0.1), ClipNorm(), PrivateCenter(0.1), ClipNorm()))
    first, second = (stage.mean_ for stage in fit.stages if isinstance(stage, PrivateCenter))
    assert np.all(first != second)
    assert [expense.stage for expense in fit.certificate.events][:2] == ["PrivateCenter"] * 2


# Ten plans, each verified by two accountants that share no code

VARIED = {
    "descent": lambda: fixed(Normalize()),
    "centred": lambda: fixed(Normalize(), PrivateCenter(), epsilon=0.1, delta=1e-8),
    "centred twice": lambda: fixed(
        ClipNorm(2.0), PrivateCenter(0.3), Normalize(), PrivateCenter(0.3)
    ),
    "generous": lambda: fixed(Normalize(), epsilon=8.0, delta=1e-3, trainer=DPGD(steps=1)),
    "long": lambda: fixed(ClipNorm(), epsilon=0.5, trainer=DPGD(steps=2000)),
    "sampled": lambda: fixed(Normalize(), trainer=DPSGD(steps=100, batch_size=20)),
    "sampled, centred": lambda: fixed(
        Normalize(), PrivateCenter(), epsilon=3.0, trainer=DPSGD(steps=50, batch_size=60)
    ),
    "replaced": lambda: fixed(Bound(-3, 3), PrivateCenter(0.5), neighbors="replace_one"),
    "replaced, sampled": lambda: fixed(
        Normalize(), trainer=DPSGD(steps=30, batch_size=30), neighbors="replace_one", epsilon=2.0
    ),
    "of private size": lambda: fixed(
        Normalize(), RandomProjection(3, seed=1), neighbors="add_or_remove_one", loss="softmax"
    ),
    "public, fast": lambda: fixed(
        Normalize(), PublicPCA(PUBLIC, 3), arithmetic="fast", loss="hinge"
    ),
    "numbers": lambda: fixed(PublicScale(PUBLIC), ClipNorm(), loss="huber", classes=0),
    "of a table": lambda: fixed(Encode(SCHEMA), PrivateCenter()),
}


@pytest.fixture(params=VARIED, scope="module")
def calibrated(request):
    return VARIED[request.param]()


def test_certificates_hold(calibrated):
    certificate = calibrated.certify(False, calibrated.plan.stages)
    outcome = certificate.verify()
    assert outcome.holds, outcome.problems
    assert set(outcome.recomputed) == {"dp-accounting", "recheck"}
    assert max(outcome.recomputed.values()) > 0.98 * certificate.epsilon  # nothing is wasted
    assert certificate.releasable


def test_a_little_less_noise_would_not_hold(calibrated):
    certificate = calibrated.certify(False, calibrated.plan.stages)
    short = tuple(
        replace(e, event=replace(e.event, noise_multiplier=0.97 * e.event.noise_multiplier))
        for e in certificate.events
    )
    assert not replace(certificate, events=short).verify().holds


def test_every_plan_explains_itself(calibrated):
    text = calibrated.explain()
    for i, stage in enumerate(calibrated.plan.stages):
        (line,) = (line for line in text.splitlines() if line.startswith(f"Stage {i + 1}, "))
        assert f"{stage.name} ({stage.kind})" in line
        assert ("costs nothing" in line) == (stage.kind != "private")
    assert f"epsilon = {calibrated.plan.budget.epsilon:g}" in text
    assert calibrated.plan.neighbors in text
    assert f"Training, {calibrated.trainer.name}: {calibrated.trainer.steps} steps" in text
    assert f"{calibrated.noise_multiplier:.4g} clipped gradients" in text
    assert json.dumps(calibrated.to_dict())


def test_every_plan_runs(calibrated, counted):
    of_table = isinstance(calibrated.plan.stages[0], Encode)
    rows = as_rows(as_table({f"c{i}": X[:, i] for i in range(D)}) if of_table else X)
    fit = run(calibrated, rows)
    assert counted(fit.plan) == counted(calibrated)
    assert np.isfinite(fit.coef).all() and np.isfinite(fit.intercept).all()
    scores = apply_stages(rows, fit.stages).collect() @ fit.coef.T + fit.intercept
    assert scores.shape == (N, calibrated.facts.outputs)


# Composition


def test_composing_beats_splitting_the_budget_in_thirds():
    """Two private means and a training, each with a third of μ², or of ε and δ."""
    share = 1 / math.sqrt(3)
    stages = (Normalize(), PrivateCenter(share), Normalize(), PrivateCenter(share))
    joint = fixed(*stages)
    third = Budget(1 / 3, 1e-5 / 3)
    for _, event in joint.spent:
        assert isinstance(event, Gaussian)
        alone = calibrate(lambda z, e=event: [Gaussian(z, e.count)], third, "replace_special")
        assert event.noise_multiplier < 0.65 * alone


def test_only_the_trainer_pays_for_what_stages_take():
    mu = gaussian_mu(1.0, 1e-5)
    without, with_mean = fixed(Normalize()), fixed(Normalize(), PrivateCenter(0.1))
    assert with_mean.stage_noise[1] == pytest.approx(1 / (0.1 * mu))
    ratio = with_mean.noise_multiplier / without.noise_multiplier
    assert ratio == pytest.approx(1 / math.sqrt(1 - 0.01), rel=1e-4)


def test_replacing_a_row_costs_twice_the_noise():
    for stages in ((Normalize(),), (Normalize(), PrivateCenter())):
        special, one = fixed(*stages), fixed(*stages, neighbors="replace_one")
        assert one.noise_multiplier == pytest.approx(2 * special.noise_multiplier, rel=1e-3)


def test_a_plan_is_data():
    calibrated = fixed(Normalize(), PrivateCenter())
    assert isinstance(calibrated, CalibratedPlan)
    with pytest.raises(AttributeError):
        calibrated.noise_multiplier = 0.1
    with pytest.raises(AttributeError):
        calibrated.plan.budget = Budget(100.0, 0.1)
