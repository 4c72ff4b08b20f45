"""GEP and AdaDPS that follow public rows, and both on samples: what runs, and what it costs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.seam import Quiet, run_of

from tacit.data.rows import as_rows
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key, Stream
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm, Normalize, PublicPrecondition, PublicRotation, SoftPCA
from tacit.privacy import Budget, Gaussian, PoissonGaussian
from tacit.privacy.events import NEIGHBORS
from tacit.research.trainers import GEP, AdaDPS, LabelledAdaDPS, PowerGEP
from tacit.research.trainers.rivals import scaling_rule
from tacit.research.trainers.rivals_adaptive import Mapped
from tacit.trainers.settings import PublicFacts

N, D = 80, 6
SETTINGS = dict(
    steps=6,
    learning_rate=2.0,
    clip=0.3,
    momentum=0.5,
    average="last",
    schedule="linear",
    intercept_fraction=0.1,
)


def table(name="softmax", n=N, seed=0):
    rng = np.random.default_rng(seed)
    loss = get_loss(name)
    outputs = 3 if name == "softmax" else 1
    rows = rng.normal(size=(n, D)) * np.linspace(0.2, 1.5, D) + 0.2
    rows *= np.minimum(1, 1 / np.linalg.norm(rows, axis=1, keepdims=True))
    labels = rng.integers(0, max(2, outputs), n)
    return rows, labels, loss.targets(labels, outputs), loss, outputs


def public(n=50):
    rows = np.random.default_rng(9).normal(size=(n, D)) * np.linspace(0.5, 0.05, D)
    return rows, np.random.default_rng(8).integers(0, 2, n)


def power(**given):
    return PowerGEP(
        **{**SETTINGS, "n_components": 2, "residual_clip": 0.04, "public": public()[0], **given}
    )


def gep(**given):
    return GEP(**SETTINGS, n_components=2, **given)


def adadps(**given):
    return AdaDPS(**SETTINGS, **given)


def labelled(**given):
    rows, labels = public()
    return LabelledAdaDPS(**{**SETTINGS, "public": rows, "labels": labels, **given})


@pytest.fixture
def silence(monkeypatch):
    """The noise patched to zero."""
    zeros = lambda self, sigma, count: np.zeros(count, dtype=np.int64)  # noqa: E731
    monkeypatch.setattr(Stream, "discrete_gaussian", zeros)
    monkeypatch.setattr(Stream, "normal", lambda self, count: np.zeros(count))


def fitted(trainer, name="softmax", stages=None, **options):
    stages = [ClipNorm(1.0)] if stages is None else stages
    rows, _, targets, loss, outputs = table(name)
    plan = Plan(Budget(1.0, 1e-5), tuple(stages), trainer, loss, **options)
    ready = plan.calibrate(size=N, columns=D, classes=max(2, outputs))
    return ready.run(as_rows(rows), targets, key=Key.from_seed(0)), ready


def clip_each(gradients, bound):
    norms = np.sqrt((gradients**2).sum(axis=(1, 2), keepdims=True))
    return gradients * np.minimum(1, bound / np.maximum(norms, 1e-300))


def descend(trainer, x, targets, loss, total):
    w = np.zeros((x.shape[1], targets.shape[1] if targets.ndim == 2 else 3))
    velocity = np.zeros_like(w)
    for t in range(trainer.steps):
        gradients = x[:, :, None] * loss.residual(x @ w, targets)[:, None, :]
        velocity = trainer.momentum * velocity + total(w, gradients) / len(x)
        w = w - trainer.learning_rate * (1 - t / trainer.steps) * velocity
    return w


def assert_fitted(fit, expected):
    size = np.abs(expected).max()
    assert size > 0.02
    np.testing.assert_allclose(fit.coef.T, expected[:-1], atol=2e-3 * size)
    np.testing.assert_allclose(fit.intercept, expected[-1] * 0.1, atol=2e-3 * size)


def with_constant(rows):
    return np.column_stack([rows, np.full(len(rows), 0.1)])


@pytest.mark.parametrize("name", ["softmax", "logistic"])
def test_without_noise_power_gep_splits_gradients_where_public_ones_are_strongest(silence, name):
    """Many iterations find the subspace exactly, whatever they begin with."""
    rows, _, targets, loss, outputs = table(name)
    trainer = power(iterations=60)
    fit, _ = fitted(trainer, name)
    seen = public()[0]
    other = np.random.default_rng(3).integers(0, max(2, outputs), len(seen))

    def total(w, gradients):
        # At zero all residuals are as long, whatever the labels; later nearly so.
        sizes = (loss.residual(with_constant(seen) @ w, loss.targets(other, outputs)) ** 2).sum(1)
        vectors = np.linalg.eigh(seen.T @ (sizes[:, None] * seen))[1][:, -2:]
        anchor = np.zeros((D + 1, 3))
        anchor[:-1, :-1], anchor[-1, -1] = vectors, 1.0
        inside = np.einsum("dk,ndo->nko", anchor, gradients)
        outside = gradients - np.einsum("dk,nko->ndo", anchor, inside)
        inside, outside = clip_each(inside, trainer.clip), clip_each(outside, trainer.residual_clip)
        return (np.einsum("dk,nko->ndo", anchor, inside) + outside).sum(axis=0)

    expected = descend(trainer, with_constant(rows), targets, loss, total)
    size = np.abs(expected).max()
    np.testing.assert_allclose(fit.coef.T, expected[:-1], atol=0.1 * size)  # other random labels


def test_without_noise_labelled_adadps_divides_before_it_clips(silence):
    rows, _, targets, loss, outputs = table("logistic")
    trainer = labelled(decay=0.5, floor=0.2)
    fit, _ = fitted(trainer, "logistic")
    seen, labels = public()
    known = loss.targets(labels, outputs)
    squares = np.zeros(D)

    def total(w, gradients):
        nonlocal squares
        mean = seen.T @ loss.residual(with_constant(seen) @ w, known) / len(seen)
        squares = 0.5 * squares + 0.5 * (mean**2).mean(axis=1)
        size = np.sqrt(squares)
        scales = np.append(size / np.sqrt((size**2).mean()) + 0.2, 1.0)
        return clip_each(gradients / scales[None, :, None], trainer.clip).sum(axis=0)

    expected = descend(trainer, with_constant(rows), targets, loss, total)
    assert_fitted(fit, expected)


def test_what_public_rows_say_is_kept_between_looks(silence):
    often, once = (fitted(labelled(refresh=r))[0].coef for r in (1, 6))
    assert np.abs(often - once).max() > 1e-3


@pytest.mark.parametrize("neighbors", sorted(NEIGHBORS))
@pytest.mark.parametrize("batch", [None, 20.0])
@pytest.mark.parametrize(
    ("make", "stages"),
    [
        (power, [ClipNorm(1.0)]),
        (labelled, [ClipNorm(1.0)]),
        (
            lambda **g: GEP(**SETTINGS, n_components=2, **g),
            [ClipNorm(1.0), PublicRotation(public()[0])],
        ),
        (lambda **g: AdaDPS(**SETTINGS, **g), [ClipNorm(1.0), PublicPrecondition(public()[0])]),
    ],
    ids=["PowerGEP", "LabelledAdaDPS", "GEP", "AdaDPS"],
)
def test_certificates_verify_on_all_rows_and_on_samples(make, stages, batch, neighbors):
    trainer = make(batch_size=batch)
    fit, plan = fitted(trainer, stages=stages, neighbors=neighbors)
    assert fit.certificate.verify().holds
    event = fit.certificate.events[-1].event
    z = plan.noise_multiplier
    assert event == (Gaussian(z, 6) if batch is None else PoissonGaussian(z, 6, 0.25))
    assert trainer.samples == (batch is not None)
    said = fit.certificate.plan["trainer"]["parameters"]
    assert said["batch_size"] == batch
    if isinstance(trainer, PowerGEP | LabelledAdaDPS):
        assert isinstance(said["public"], str)  # a fingerprint, no rows
        assert any(said["public"] in clause for clause in fit.certificate.assumptions)


def test_samples_are_drawn_once_a_step_and_serve_both_parts(monkeypatch):
    batches, noises = [], []
    include, real = Stream.include, Stream.discrete_gaussian

    def sample(self, n, probability):
        batches.append(include(self, n, probability))
        return batches[-1]

    def noise(self, sigma, count):
        noises.append(real(self, sigma, count))
        return noises[-1]

    monkeypatch.setattr(Stream, "include", sample)
    monkeypatch.setattr(Stream, "discrete_gaussian", noise)
    for trainer, stages in (
        (gep(batch_size=20.0), [ClipNorm(1.0), PublicRotation(public()[0])]),
        (power(batch_size=20.0), [ClipNorm(1.0)]),
    ):
        batches.clear(), noises.clear()
        fitted(trainer, stages=stages)
        assert len(batches) == 6 and len({b.tobytes() for b in batches}) == 6
        assert len(noises) == 12 and len({v.tobytes() for v in noises}) == 12


def squared(values):
    return sum(int(v) ** 2 for v in np.ravel(values))


@pytest.mark.parametrize("make", [power, labelled])
def test_no_neighbour_moves_a_step_further_than_the_event_says(make):
    """Both parts jointly, in deviations: at most 1 for a row less, 2 for one replaced; z = 1."""
    rng = np.random.default_rng(1)
    loss = get_loss("logistic")
    trainer = make(steps=1, clip=0.05, **({"residual_clip": 0.01} if make is power else {}))
    facts = PublicFacts(6, D, 1, 1.0, 1.0)
    farthest = 0.0
    for _ in range(12):
        rows = rng.normal(size=(7, D)) * rng.choice([1.0, 1e-3, 1e6], size=(7, 1))
        rows[6] = -rows[5]
        labels = rng.integers(0, 2, 7)
        labels[6] = labels[5]
        targets = loss.targets(labels, 1)

        def sums(index, rows=rows, targets=targets):
            quiet = Quiet()
            source = Mapped(as_rows(rows[index], bound=1.0), targets[index], loss, intercept=0.1)
            run = run_of(trainer, 1.0, facts, Key.from_seed(0), quiet)
            trainer.train(source, run, facts)
            run.close()
            return [(t.values, Fraction(s) / Fraction(t.unit)) for t, s in quiet.asked]

        full, less, other = sums(np.arange(6)), sums(np.arange(5)), sums([0, 1, 2, 3, 4, 6])
        for neighbour, limit in ((less, 1), (other, 4)):
            apart = sum(
                Fraction(squared(a - b)) / unit**2
                for (a, unit), (b, _) in zip(full, neighbour, strict=True)
            )
            assert apart <= limit
            farthest = max(farthest, float(apart) / limit)
    assert farthest > 0.9


def test_a_row_is_seen_the_same_whatever_stands_beside_it():
    rows, _, targets, loss, _ = table("logistic", n=700)
    trainer = power(steps=1)
    facts = PublicFacts(700, D, 1, 1.0, 1.0)

    def total(order):
        quiet = Quiet()
        source = Mapped(as_rows(rows[order], bound=1.0), targets[order], loss, intercept=0.1)
        trainer.train(source, run_of(trainer, 1.0, facts, Key.from_seed(0), quiet), facts)
        return [part.values for part, _ in quiet.asked]

    one, other = total(np.arange(700)), total(np.random.default_rng(0).permutation(700))
    assert all((a == b).all() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        (power(public=None), "PowerGEP needs public="),
        (power(public=np.ones((4, 3))), "4 rows of 3 columns; it needs rows of 6"),
        (power(refresh=0), "refresh must be an integer from 1"),
        (power(iterations=0), "iterations must be an integer from 1"),
        (labelled(labels=[0, 1]), "needs labels=: one for each"),
        (labelled(decay=1.0), r"decay must be in \[0, 1\)"),
        (labelled(floor=0.0), "floor must be a positive number"),
        (GEP(batch_size=1_000.0), "at most the number of rows, 80"),
        (AdaDPS(batch_size=0.0), "batch_size must be None, or above 0"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(trainer, message):
    with pytest.raises(InputError, match=message):
        trainer.resolve(PublicFacts(N, D, 3, 1.0, 1.0))


def test_stages_that_move_rows_are_refused_in_front():
    with pytest.raises(InputError, match="PowerGEP is not analysed"):
        fitted(power(), stages=[Normalize(), SoftPCA(0.1)], neighbors="replace_one")


def test_the_scaling_rule_is_a_line_through_what_was_best():
    rule = scaling_rule({0.1: 1.0, 0.2: 2.0, 0.4: 4.0})
    assert rule(1.0) == pytest.approx(10.0) and rule(0.01) == 1.0
    assert math.isfinite(rule(100.0))
    with pytest.raises(InputError, match="two budgets or more"):
        scaling_rule({0.1: 1.0})
