"""PILLAR's rivals: what their papers describe, on our engine, and what their events say."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import kstest
from tests.seam import Quiet, run_of, token

from tacit import DPLinearClassifier, recipe
from tacit.audit import prepare
from tacit.audit.distinguish import Subject, worst
from tacit.audit.neighbouring_tables import pairs
from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.exceptions import InputError
from tacit.losses import LOSSES, get_loss
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Key, Stream
from tacit.mechanisms.release import BoundedSum, Draws
from tacit.plan import Plan
from tacit.preprocessing import (
    ClipNorm,
    Normalize,
    PrivateCenter,
    PublicPCA,
    PublicPrecondition,
    PublicRotation,
    SoftPCA,
)
from tacit.privacy import Budget, Gaussian
from tacit.privacy.accounting.accountants import epsilon, gaussian_mu
from tacit.privacy.events import NEIGHBORS
from tacit.research.trainers import DPRAFT, GEP, AdaDPS
from tacit.research.trainers.rivals import PROBE
from tacit.trainers import DPGD
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.settings import PublicFacts

EVERY_LOSS = sorted(LOSSES)
SETTINGS = dict(
    steps=6,
    learning_rate=2.0,
    clip=0.3,
    momentum=0.5,
    average="last",
    schedule="linear",
    intercept_fraction=0.1,
)


def table(name="softmax", *, n=80, d=6, seed=0):
    rng = np.random.default_rng(seed)
    loss = get_loss(name)
    outputs = 3 if loss.task == "classification" else 1
    rows = rng.normal(size=(n, d)) * np.linspace(0.2, 1.5, d) + 0.2
    values = rng.normal(size=n) if loss.task == "regression" else rng.integers(0, outputs, n)
    return rows, loss.targets(values, outputs), loss, outputs


def public(d=6, n=50):
    return np.random.default_rng(9).normal(size=(n, d)) * np.linspace(0.5, 0.05, d)


def clipped_rows(rows, radius=1.0):
    return rows * np.minimum(1, radius / np.linalg.norm(rows, axis=1, keepdims=True))


def facts_of(d=6, n=80, outputs=1, **more):
    return PublicFacts(n, d, outputs, 1.0, 1.0, **more)


@pytest.fixture
def silence(monkeypatch):
    """The noise patched to zero."""
    zeros = lambda self, sigma, count: np.zeros(count, dtype=np.int64)  # noqa: E731
    monkeypatch.setattr(Stream, "discrete_gaussian", zeros)
    monkeypatch.setattr(Stream, "normal", lambda self, count: np.zeros(count))


def fitted(stages, trainer, name="softmax", **options):
    rows, targets, loss, outputs = table(name)
    plan = Plan(Budget(1.0, 1e-5), tuple(stages), trainer, loss, **options)
    classes = 0 if loss.task == "regression" else outputs
    calibrated = plan.calibrate(size=len(rows), columns=rows.shape[1], classes=classes)
    return calibrated.run(as_rows(rows), targets, key=Key.from_seed(0)), calibrated


# Without noise: what the papers describe, one gradient per row


def descend(trainer, n, start, gradient_sum):
    """The descent that trainers share, given the sum of gradients at some weights."""
    w, velocity, average = start, np.zeros_like(start), np.zeros_like(start)
    for t in range(trainer.steps):
        velocity = (
            trainer.momentum * velocity + gradient_sum(w) / n + (trainer.alpha + trainer.anchor) * w
        )
        w = w - trainer.learning_rate * (1 - t / trainer.steps) * velocity
        if trainer.radius is not None:
            w = w * min(1.0, trainer.radius / max(np.linalg.norm(w), 1e-300))
        average += w / trainer.steps
    return average if trainer.average == "uniform" else w


def clip_each(gradients, bound, per_class=False):
    axes = (1,) if per_class else (1, 2)
    limit = bound / math.sqrt(gradients.shape[2]) if per_class else bound
    norms = np.sqrt((gradients**2).sum(axis=axes, keepdims=True))
    return gradients * np.minimum(1, limit / np.maximum(norms, 1e-300))


def assert_fitted(fit, expected):
    """Rows are stored with 15 bits, so no closer than this."""
    size = np.abs(expected).max()
    assert size > 0.02
    np.testing.assert_allclose(fit.coef.T, expected[:-1], atol=1e-3 * size)
    np.testing.assert_allclose(fit.intercept, expected[-1] * 0.1, atol=1e-3 * size)


def gep_reference(trainer, rows, targets, loss, *, outputs, basis):
    """Embedding and residual of every gradient, in the coordinates of the rows."""
    x = np.column_stack([rows, np.full(len(rows), trainer.intercept_fraction)])
    anchor = np.zeros((x.shape[1], basis.shape[1] + 1))
    anchor[:-1, :-1] = basis
    anchor[-1, -1] = 1.0  # the intercept belongs to the anchor subspace

    def total(w):
        gradients = x[:, :, None] * loss.residual(x @ w, targets)[:, None, :]
        inside = np.einsum("dk,ndo->nko", anchor, gradients)
        outside = gradients - np.einsum("dk,nko->ndo", anchor, inside)
        per_class = trainer.clipping == "per-class"
        inside = clip_each(inside, trainer.clip, per_class)
        outside = clip_each(outside, trainer.residual_clip, per_class)
        return (np.einsum("dk,nko->ndo", anchor, inside) + outside).sum(axis=0)

    return descend(trainer, len(x), np.zeros((x.shape[1], outputs)), total)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"clip": 0.05, "residual_clip": 0.2},
        {"clipping": "per-class", "momentum": 0.0},
        {"alpha": 0.2, "anchor": 0.1, "radius": 0.4, "average": "uniform"},
        {"n_components": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["softmax", "logistic", "squared"])
def test_gep_without_noise_is_embedding_and_residual(silence, name, given):
    rows, targets, loss, outputs = table(name)
    trainer = GEP(**{**SETTINGS, "n_components": 2, "residual_clip": 0.04, **given})
    fit, _ = fitted([ClipNorm(1.0), PublicRotation(public())], trainer, name)
    seen = clipped_rows(public())
    _, vectors = np.linalg.eigh(seen.T @ seen)
    basis = vectors[:, -trainer.n_components :]
    expected = gep_reference(
        trainer, clipped_rows(rows), targets, loss, outputs=outputs, basis=basis
    )
    assert_fitted(fit, expected)


def adadps_reference(trainer, rows, targets, loss, *, outputs, scales):
    """Gradients divided by A, then clipped; the weights are those of the rows as they are."""
    x = np.column_stack([rows, np.full(len(rows), trainer.intercept_fraction)])
    divisor = np.append(scales, 1.0)[None, :, None]

    def total(w):
        gradients = x[:, :, None] * loss.residual(x @ w, targets)[:, None, :]
        return clip_each(gradients / divisor, trainer.clip).sum(axis=0)

    return descend(trainer, len(x), np.zeros((x.shape[1], outputs)), total)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"alpha": 0.1, "anchor": 0.2, "radius": 0.4},
        {"clip": 0.01, "learning_rate": 60.0, "average": "uniform"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["softmax", "logistic", "squared"])
def test_adadps_without_noise_clips_preconditioned_gradients(silence, name, given):
    rows, targets, loss, outputs = table(name)
    trainer = AdaDPS(**{**SETTINGS, **given})
    fit, _ = fitted([ClipNorm(1.0), PublicPrecondition(public(), 0.2)], trainer, name)
    seen = clipped_rows(public())
    scales = np.sqrt(6 * (seen**2).mean(axis=0)) + 0.2
    assert scales.max() > 3 * scales.min()
    expected = adadps_reference(
        trainer, clipped_rows(rows), targets, loss, outputs=outputs, scales=scales
    )
    assert_fitted(fit, expected)
    plain, _ = fitted([ClipNorm(1.0)], DPGD(**{**SETTINGS, **given}), name)
    assert np.abs(plain.coef - fit.coef).max() > 5e-3  # the preconditioner matters


def test_adadps_without_scales_is_plain_descent():
    rows, targets, loss, outputs = table()
    engine = Engine(as_rows(clipped_rows(rows), bound=1.0), targets, loss)
    facts = facts_of(outputs=outputs)
    one = AdaDPS(**SETTINGS).train(
        engine, run_of(AdaDPS(**SETTINGS), 1.0, facts, Key.from_seed(0)), facts
    )
    other = DPGD(**SETTINGS).train(
        engine, run_of(DPGD(**SETTINGS), 1.0, facts, Key.from_seed(0)), facts
    )
    assert (one == other).all()


def test_dp_raft_is_full_batch_descent_with_fixed_settings():
    rows, targets, loss, outputs = table()
    trainer = DPRAFT().resolve(facts_of(outputs=outputs))
    assert (trainer.clip, trainer.momentum, trainer.schedule) == (1.0, 0.9, "constant")
    same = DPGD(**asdict(trainer))
    engine = Engine(as_rows(clipped_rows(rows), bound=1.0), targets, loss)
    facts = facts_of(outputs=outputs)
    one = trainer.train(engine, run_of(trainer, 1.0, facts, Key.from_seed(0)), facts)
    assert (one == same.train(engine, run_of(same, 1.0, facts, Key.from_seed(0)), facts)).all()


def test_rate_times_steps_of_dp_raft_is_linear_in_the_budget_and_free_otherwise():
    noise = PROBE["classification"].noise
    for mu in (0.01, 0.03, 0.1):
        for given in ({}, {"steps": 30}, {"steps": 1000}):
            facts = replace(facts_of(n=5000, outputs=10), mu=mu)
            trainer = DPRAFT(**given).resolve(facts)
            travel = trainer.learning_rate * trainer.steps
            assert travel == pytest.approx(noise * 0.1 * mu * 5000)
    huge = DPRAFT().resolve(replace(facts_of(n=10**7, outputs=10), mu=1.0))
    assert huge.learning_rate == PROBE["classification"].reach  # steps stay stable


# What runs is what was counted


def exact_share(deviations, clips):
    return sum((Fraction(c) / Fraction(d)) ** 2 for c, d in zip(clips, deviations, strict=True))


def test_the_noise_of_both_parts_is_jointly_no_less_than_the_event_says():
    rng = np.random.default_rng(0)
    for _ in range(300):
        clip, residual, z = (float(v) for v in 10.0 ** rng.uniform(-3, 3, 3))
        balance = float(rng.uniform(0.001, 0.999)) if rng.random() < 0.9 else 2.0**-40
        trainer = GEP(clip=clip, residual_clip=residual, balance=balance, n_components=2)
        quiet = Quiet()
        paid = token(z, draws=quiet)
        for share, reach in zip(trainer.shares, trainer.reaches(0.0, None), strict=True):
            paid.part(share).gaussian(BoundedSum(np.zeros(1), 1.0, reach, reach))
        deviations = [deviation for _, deviation in quiet.asked]
        assert deviations == pytest.approx(trainer.deviations(z, 0.0, None), rel=1e-12)
        spent = exact_share(deviations, trainer.clips) * Fraction(z) ** 2
        assert 1 - Fraction(1, 2**45) < spent <= 1
        # A part of the budget for each.
        ratio = float((Fraction(clip) / Fraction(deviations[1])) ** 2 * Fraction(z) ** 2)
        assert ratio == pytest.approx(balance, rel=1e-12)


def test_the_event_is_that_of_two_sums_per_step():
    trainer = GEP(steps=50, clip=0.3, residual_clip=0.1, n_components=2)
    joint = trainer.event(8.0, facts_of())
    assert joint == Gaussian(8.0, 50)
    for neighbors in NEIGHBORS:
        twice = [Gaussian(math.sqrt(2) * 8.0, 100)]
        assert epsilon([joint], 1e-5, neighbors) == pytest.approx(
            epsilon(twice, 1e-5, neighbors), rel=1e-9
        )
    unequal = [Gaussian(8.0 / math.sqrt(0.7), 50), Gaussian(8.0 / math.sqrt(0.3), 50)]
    assert epsilon([joint], 1e-5, "replace_one") == pytest.approx(
        epsilon(unequal, 1e-5, "replace_one"), rel=1e-9
    )


class Spy:
    """Streams opened, noise drawn and sums released in one run."""

    def __init__(self, monkeypatch):
        self.streams, self.draws, self.sums = [], [], []
        stream, gaussian, add = Key.stream, Stream.discrete_gaussian, Draws.gaussian

        def spy_stream(key, label, step=0, worker=0):
            self.streams.append((label, step, worker))
            return stream(key, label, step, worker)

        def spy_gaussian(this, sigma, count):
            drawn = gaussian(this, sigma, count)
            self.draws.append((sigma, drawn.copy()))
            return drawn

        def spy_add(this, total, deviation, opened):
            self.sums.append(total)
            return add(this, total, deviation, opened)

        monkeypatch.setattr(Key, "stream", spy_stream)
        monkeypatch.setattr(Stream, "discrete_gaussian", spy_gaussian)
        monkeypatch.setattr(Draws, "gaussian", spy_add)


@pytest.mark.parametrize("balance", [0.5, 0.8])
def test_every_part_of_every_step_draws_fresh_noise_of_its_scale(monkeypatch, balance):
    spy = Spy(monkeypatch)
    trainer = GEP(**{**SETTINGS, "n_components": 2, "residual_clip": 0.02, "balance": balance})
    _, plan = fitted([ClipNorm(1.0), PublicRotation(public())], trainer)
    z = plan.noise_multiplier
    assert plan.spent[-1] == ("GEP", Gaussian(z, 6))
    addresses = [address for address in spy.streams if address[0] == "noise"]
    assert len(addresses) == len(set(addresses)) == len(spy.draws) == len(spy.sums) == 12
    assert [drawn.size for _, drawn in spy.draws] == [4 * 3, 3 * 3] * 6
    assert sum(drawn.size for _, drawn in spy.draws) == plan.draws
    for i in range(0, 12, 2):
        spent = Fraction(0)
        for (sigma, _), total, clip in zip(
            spy.draws[i : i + 2], spy.sums[i : i + 2], trainer.clips, strict=True
        ):
            unit = Fraction(clip) / Fraction(total.unit)
            spent += (unit / Fraction(accounted_sigma(sigma))) ** 2
        assert 1 - Fraction(1, 2**28) < spent * Fraction(z) ** 2 <= 1


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_released_sums_carry_noise_of_the_stated_scales(silence, monkeypatch, arithmetic):
    rows, targets, loss, outputs = table("logistic", d=20_000)
    trainer = GEP(
        steps=1,
        learning_rate=1.0,
        clip=0.3,
        residual_clip=0.05,
        balance=0.7,
        n_components=8_000,
        momentum=0.0,
        average="last",
        schedule="constant",
    )
    facts = facts_of(d=20_000, outputs=outputs)

    def run():
        seen = as_rows(clipped_rows(rows), bound=1.0)
        engine = Engine(
            seen, targets, loss, intercept=0.1, arithmetic=arithmetic, split=trainer.split(facts)
        )
        return trainer.train(engine, run_of(trainer, 2.0, facts, Key.from_seed(0)), facts)

    quiet = run()
    monkeypatch.undo()
    noise = (run() - quiet) * 80
    outside, inside = noise[:12_000].ravel(), noise[12_000:].ravel()
    for part, expected in (
        (outside, 2.0 * 0.05 / math.sqrt(0.3)),
        (inside, 2.0 * 0.3 / math.sqrt(0.7)),
    ):
        assert part.std() == pytest.approx(expected, rel=5 / math.sqrt(2 * part.size))
        assert kstest(part / expected, "norm").pvalue > 1e-4
    several = min(len(inside), len(outside))
    assert abs(np.corrcoef(inside[:several], outside[:several])[0, 1]) < 5 / math.sqrt(several)


def squared(values):
    return sum(int(v) ** 2 for v in np.ravel(values))


def parts_of_first_step(trainer, rows, targets, loss, *, outputs):
    """Noiseless integer sums of both parts, and their deviations in lattice units for z = 1."""
    facts, quiet = facts_of(d=rows.shape[1], n=6, outputs=outputs), Quiet()
    engine = Engine(
        as_rows(rows, bound=1.0), targets, loss, intercept=0.1, split=trainer.split(facts)
    )
    run = run_of(trainer, 1.0, facts, Key.from_seed(0), quiet)
    trainer.train(engine, run, facts)
    run.close()
    return [
        (total.values, Fraction(deviation) / Fraction(total.unit))
        for total, deviation in quiet.asked
    ]


@pytest.mark.parametrize("clipping", ["flat", "per-class"])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_no_neighbour_moves_both_parts_further_than_the_event_says(name, clipping):
    """Joint distance in deviations: at most 1/z for a row less, 2/z for one replaced; z = 1."""
    rng = np.random.default_rng(sum(map(ord, name)))
    loss = get_loss(name)
    outputs = 3 if loss.task == "classification" else 1
    trainer = GEP(
        **{**SETTINGS, "steps": 1, "clip": 0.05, "residual_clip": 0.01, "clipping": clipping},
        n_components=2,
        balance=0.6,
    )
    farthest = {"less": 0.0, "replaced": 0.0}
    for trial in range(16):
        rows = rng.normal(size=(7, 5)) * rng.choice([1.0, 1.0, 1e-3, 1e6], size=(7, 1))
        rows[rng.random(size=rows.shape) < 0.2] = 0.0
        rows[6] = -rows[5]
        if loss.task == "regression":
            values = rng.normal(size=7) * rng.choice([1.0, 1e6], size=7)
            values[6] = values[5]
        else:
            values = rng.integers(0, max(2, outputs), 7)
            values[6] = values[5]
        targets = loss.targets(values, outputs)
        kind = sp.csr_array if trial % 4 == 0 else np.asarray

        def sums(index, rows=rows, targets=targets, kind=kind):
            return parts_of_first_step(
                trainer, kind(rows[index]), targets[index], loss, outputs=outputs
            )

        full, less, other = sums(np.arange(6)), sums(np.arange(5)), sums([0, 1, 2, 3, 4, 6])
        for label, neighbour, limit in (("less", less, 1), ("replaced", other, 4)):
            apart = sum(
                Fraction(squared(a - b)) / unit**2
                for (a, unit), (b, _) in zip(full, neighbour, strict=True)
            )
            assert apart <= limit
            farthest[label] = max(farthest[label], float(apart) / limit)
    assert farthest["less"] > (0.99 if clipping == "flat" else 0.3)
    assert farthest["replaced"] > (0.5 if clipping == "flat" else 0.1)


# Plans


def stages_for(trainer):
    """Stages behind which a trainer makes sense."""
    first = [ClipNorm(1.0), PrivateCenter(0.2)]
    if isinstance(trainer, GEP):
        return [*first, PublicRotation(public())]
    if isinstance(trainer, AdaDPS):
        return [*first, PublicPrecondition(public())]
    return [*first, PublicPCA(public(), 3)]


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
@pytest.mark.parametrize("neighbors", sorted(NEIGHBORS))
@pytest.mark.parametrize(
    "trainer", [GEP(steps=9), GEP(steps=9, balance=0.2), AdaDPS(steps=9), DPRAFT(steps=9)], ids=str
)
def test_certificates_verify_under_every_relation(trainer, neighbors, arithmetic):
    options = {"neighbors": neighbors, "arithmetic": arithmetic}
    fit, plan = fitted(stages_for(trainer), trainer, **options)
    found = fit.certificate.verify()
    assert found.holds and 0.98 < found.recomputed["dp-accounting"] <= 1.0
    assert fit.certificate.events[-1].event == Gaussian(plan.noise_multiplier, 9)
    said = fit.certificate.plan["trainer"]
    assert said["name"] == trainer.name
    assert "auto" not in said["parameters"].values()
    assert trainer.name in plan.explain()
    assert fit.coef.shape == (3, 6)


def test_what_is_explained_is_both_parts():
    _, plan = fitted(
        [ClipNorm(1.0), PublicRotation(public())],
        GEP(**SETTINGS, n_components=2, residual_clip=0.02),
    )
    each = math.sqrt(2) * plan.noise_multiplier
    text = plan.explain()
    assert "clipped in two parts (outside and in the subspace) to 0.02 and 0.3" in text
    assert f"{each:.4g} and {each:.4g} clipped gradients" in text
    assert f"count as one sum with {plan.noise_multiplier:.4g};" in text


def test_gep_after_a_plain_stage_is_refused():
    with pytest.raises(InputError, match=r"GEP is not analysed for rows .* SoftPCA, has moved"):
        fitted([Normalize(), SoftPCA(0.1)], GEP(n_components=2), neighbors="replace_one")
    with pytest.raises(InputError, match="not analysed"):
        GEP(clip=1.0, residual_clip=1.0).deviations(1.0, 0.0, object())


def test_adadps_after_a_plain_stage_has_the_noise_that_its_scaled_weights_ask_for(monkeypatch):
    rows = table()[0]
    met, reached = [], []
    real, sums = Draws.gaussian, Engine.gradient_sums

    def spy(this, total, deviation, stream):
        reached.append(total.reach)
        return real(this, total, deviation, stream)

    def watch(this, weights, *args, **more):
        met.append(float(np.linalg.norm(weights)))
        return sums(this, weights, *args, **more)

    monkeypatch.setattr(Draws, "gaussian", spy)
    monkeypatch.setattr(Engine, "gradient_sums", watch)
    stages = [ClipNorm(1.0), SoftPCA(0.3), PublicPrecondition(public(), 0.5)]
    fit, plan = fitted(stages, AdaDPS(steps=4), neighbors="replace_one")
    assert fit.certificate.verify().holds
    assert len(met) == 4 and met[-1] > 0
    assert reached == [plan.trainer.reach(norm, plan.moves) for norm in met]
    assert reached[-1] > reached[0] > plan.trainer.clip
    assert plan.moves.drift.l1 >= 2.0 * plan.drifts[2].l1 > 0  # stretched by up to 1/floor
    assert len(rows) == plan.facts.size


@pytest.mark.parametrize("rate", [0.01, 3.0])
def test_neighbours_of_adadps_after_a_plain_stage_lie_within_the_account(rate):
    """On the worst tables that audits know, with weights that move; in deviations of the noise."""
    stages = (ClipNorm(1.0), SoftPCA(0.3), PublicPrecondition(np.diag([3.0, 0.2]), 0.5))
    trainer = AdaDPS(steps=3, learning_rate=rate, clip=0.3)
    plan = Plan(Budget(4.0, 1e-5), stages, trainer, get_loss("logistic"), "replace_one")
    _, calibrated = prepare(plan)
    _, apart = worst([Subject(calibrated, pair) for pair in pairs(calibrated)])
    mu = gaussian_mu(4.0, 1e-5)
    assert 0.1 * mu < max(apart.values()) <= mu


def test_adadps_needs_its_stage_last():
    with pytest.raises(InputError, match="AdaDPS needs PublicPrecondition"):
        fitted([Normalize()], AdaDPS())
    with pytest.raises(InputError, match="AdaDPS needs PublicPrecondition"):
        fitted([Normalize(), PublicPrecondition(public()), PrivateCenter()], AdaDPS())
    with pytest.raises(InputError, match="AdaDPS needs PublicPrecondition"):
        Plan(Budget(1.0, 1e-5), (), AdaDPS(), get_loss("logistic"))


def test_the_preconditioner_serves_other_trainers_as_a_scaling():
    fit, _ = fitted([ClipNorm(1.0), PublicPrecondition(public())], DPGD(steps=3))
    assert fit.certificate.verify().holds


# Settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_components": 0}, "n_components must be an integer from 1 to 5"),
        ({"n_components": 6}, "n_components must be an integer from 1 to 5"),
        ({"n_components": 2.5}, "n_components must be"),
        ({"residual_clip": 0.0}, "residual_clip must be a positive number"),
        ({"residual_clip": math.nan}, "residual_clip must be a positive number"),
        ({"balance": 0.0}, "balance must be between 0 and 1"),
        ({"balance": 1.0}, "balance must be between 0 and 1"),
        ({"balance": "auto"}, "balance must be between 0 and 1"),
    ],
    ids=str,
)
def test_settings_of_gep_that_make_no_sense_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        GEP(**given).resolve(facts_of())


def test_automatic_settings_of_gep():
    wide = GEP().resolve(facts_of(d=500))
    assert wide.n_components == 40
    assert wide.residual_clip == wide.clip / 5
    assert GEP().resolve(facts_of(d=6)).n_components == 3
    assert GEP(clip=1.0).resolve(facts_of()).residual_clip == 0.2
    with pytest.raises(InputError, match="two columns or more"):
        GEP().resolve(facts_of(d=1))
    many = facts_of(n=5000)
    plain = DPGD().resolve(many)  # rates by which as much noise is left in a score
    assert GEP().resolve(many).learning_rate == pytest.approx(plain.learning_rate / math.sqrt(2))


def test_gep_needs_an_engine_that_is_split_where_it_says():
    rows, targets, loss, outputs = table()
    facts = facts_of(outputs=outputs)
    trainer = GEP(steps=2, n_components=2).resolve(facts)
    seen = as_rows(clipped_rows(rows), bound=1.0)
    for split in (None, 2):
        engine = Engine(seen, targets, loss, split=split)
        with pytest.raises(InputError, match="GEP needs an engine with split=4"):
            trainer.train(engine, run_of(trainer, 1.0, facts, Key.from_seed(0)), facts)
    with pytest.raises(InputError, match="DPGD needs an engine with split=None"):
        DPGD(**SETTINGS).train(
            engine, run_of(DPGD(**SETTINGS), 1.0, facts, Key.from_seed(0)), facts
        )


def test_settings_trained_together_are_those_trained_alone():
    rows, targets, loss, outputs = table()
    facts = facts_of(outputs=outputs, scales=(0.5, 1.0, 2.0, 1.0, 1.0, 3.0))
    seen = as_rows(clipped_rows(rows), bound=1.0)
    engine = Engine(seen, targets, loss, split=4)
    trainers = [
        GEP(**SETTINGS, n_components=2, residual_clip=0.1),
        GEP(**{**SETTINGS, "clip": 0.01}, n_components=2, residual_clip=0.3, balance=0.9),
    ]
    together = train_together(
        engine, trainers, rehearsal(trainers, [1.0, 0.3], facts, Key.from_seed(0)), facts
    )
    alone = trainers[0].train(engine, run_of(trainers[0], 1.0, facts, Key.from_seed(0)), facts)
    assert (together[0] == alone).all()
    other = replace(trainers[0], n_components=3)
    with pytest.raises(InputError, match="must have the same n_components"):
        train_together(
            engine,
            [trainers[0], other],
            rehearsal([trainers[0], other], [1.0, 1.0], facts, Key.from_seed(0)),
            facts,
        )
    whole = Engine(seen, targets, loss)
    mixed = [AdaDPS(**SETTINGS), DPGD(**SETTINGS)]
    pair = train_together(
        whole, mixed, rehearsal(mixed, [1.0, 1.0], facts, Key.from_seed(0)), facts
    )
    assert (
        pair[0] == mixed[0].train(whole, run_of(mixed[0], 1.0, facts, Key.from_seed(0)), facts)
    ).all()


# Recipes


@pytest.mark.parametrize("name", ["gep", "adadps", "dp-raft", "dp-raft+pillar"])
def test_recipes_learn(name):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 4000)
    rows = rng.normal(size=(4000, 12)) * 0.5
    rows[:, 3] += 2.0 * labels - 1.0
    options = {} if name == "dp-raft" else {"public": rows[:500]}
    if name in ("gep", "dp-raft+pillar"):
        options["n_components"] = 4
    model = DPLinearClassifier(epsilon=2.0, random_state=0, **recipe(name, **options))
    assert model.fit(rows[500:], labels[500:]).score(rows[500:], labels[500:]) > 0.9
