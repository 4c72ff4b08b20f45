"""A pass stopped at random: steps contract, the account is the mean over stops, and it verifies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kstest, norm
from tests.seam import run_of

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key, Stream
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm, Normalize, PrivateCenter, SoftPCA
from tacit.privacy import Budget, Gaussian, Iterated, PoissonGaussian
from tacit.privacy.accounting import accountants as acc
from tacit.privacy.verification import recheck
from tacit.research.trainers import IteratedSGD
from tacit.trainers.settings import PublicFacts

# The account


def direct(z, steps, epsilon, unit):
    """Mean over the stops of δ(ε) of Gaussian noise √k·z, without any grid."""
    mu = unit / (z * np.sqrt(np.arange(1, steps + 1)))
    tail = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    return float(tail.mean())


@pytest.mark.parametrize(("neighbors", "unit"), [("replace_special", 1), ("replace_one", 2)])
@pytest.mark.parametrize(("z", "steps"), [(1.5, 1), (1.0, 5), (0.8, 200)])
def test_both_routes_have_the_mean_over_all_stops(z, steps, neighbors, unit):
    event = Iterated(z, steps=steps)
    for epsilon in (0.5, 2.0):
        exact = direct(z, steps, epsilon, unit)
        found = acc.delta([event], epsilon, neighbors)
        assert exact * (1 - 1e-6) <= found <= exact * 1.05 + 1e-10
    again = recheck.delta([(event.kind, event.to_dict()["parameters"])], epsilon, neighbors)
    assert again.lower <= found <= again.upper * 1.01 + 1e-10
    assert exact <= again.upper


def test_it_composes_with_gaussian_noise_and_with_itself():
    events = [Iterated(2.0, 3, steps=50), Gaussian(8.0, 2)]
    for neighbors in ("replace_special", "replace_one"):
        found = acc.epsilon(events, 1e-5, neighbors)
        steps = [(e.kind, e.to_dict()["parameters"]) for e in events]
        again = recheck.epsilon(steps, 1e-5, neighbors)
        assert again.lower <= found
        assert found == pytest.approx(again.epsilon, rel=0.01)
    events.append(PoissonGaussian(2.0, 5, sampling_probability=0.1))
    steps = [(e.kind, e.to_dict()["parameters"]) for e in events]
    for neighbors in ("replace_special", "replace_one"):
        again = recheck.epsilon(steps, 1e-5, neighbors)
        found = acc.epsilon(events, 1e-5, neighbors, grid=1e-3)
        assert again.lower <= found
        assert found == pytest.approx(again.epsilon, rel=0.01)


# Contraction, on which it rests


def step(rows, targets, loss, weights, *, clip, rate):
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, arithmetic="fast")
    total = engine.gradient_sum(weights, clip).float()
    return weights - rate / len(rows) * total


@pytest.mark.parametrize("clip", [0.05, 0.4, 10.0])
@pytest.mark.parametrize("name", ["logistic", "huber-hinge", "huber", "squared", "softmax"])
def test_steps_at_the_largest_rate_bring_no_weights_farther_apart(name, clip):
    loss, rng = get_loss(name), np.random.default_rng(0)
    outputs = 3 if name == "softmax" else 1
    facts = PublicFacts(8, 2, outputs, 1.0, 1.0, loss=loss, limit=1.0)
    if name == "softmax":
        clip = loss.lipschitz(3) * math.hypot(1.0, 0.1) * 1.001  # the only one allowed
    trainer = IteratedSGD(steps=1, clip=clip)
    rate = trainer.largest_rate(loss, facts, 1, 0.1) * (1.0 + 0.1**2)  # no constant feature here
    worst = 0.0
    for _ in range(100):
        rows = rng.normal(size=(8, 2))
        rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
        rows[:4] = rows[0] / np.linalg.norm(rows[0])
        values = rng.normal(size=8) if loss.task == "regression" else rng.integers(0, 2, 8)
        targets = loss.targets(values, outputs)
        one = rng.normal(size=(1, 2, outputs)) * rng.choice([0.1, 1, 5])
        other = one + rng.normal(size=one.shape) * rng.choice([1e-2, 1, 5])
        moved = [step(rows, targets, loss, w, clip=clip, rate=rate) for w in (one, other)]
        worst = max(worst, np.linalg.norm(moved[0] - moved[1]) / np.linalg.norm(one - other))
    assert worst <= 1 + 1e-4  # float32


def test_clipped_softmax_does_not_contract_which_is_why_it_is_refused():
    facts = PublicFacts(50, 2, 3, 1.0, 1.0, loss=get_loss("softmax"), limit=1.0)
    with pytest.raises(InputError, match="those of no convex loss; pass clip="):
        IteratedSGD(clip=0.5).resolve(facts)
    assert IteratedSGD().resolve(facts).clip >= math.sqrt(2)
    each = PublicFacts(50, 2, 3, 1.0, 1.0, loss=get_loss("logistic"), limit=1.0)
    with pytest.raises(InputError, match="or clipping='per-class'"):
        IteratedSGD(clip=0.5).resolve(each)
    assert IteratedSGD(clip=0.5, clipping="per-class").resolve(each).clip == 0.5


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"momentum": 0.9}, "a heavy ball does not contract"),
        ({"average": "uniform"}, "only one iterate"),
        ({"average": "converged"}, "only one iterate"),
        ({"schedule": "linear"}, "must be constant"),
        ({"steps": 51}, "there are 50 rows"),
        ({"learning_rate": 8.0, "steps": 50, "intercept_fraction": 0.1}, "farther apart"),
        (
            {"learning_rate": 7.9, "steps": 30, "intercept_fraction": 0.1},
            "farther apart",
        ),  # uneven groups
        (
            {"learning_rate": 7.9, "steps": 50, "intercept_fraction": 0.1, "alpha": 0.1},
            "farther apart",
        ),
        (
            {"learning_rate": 7.9, "steps": 50, "intercept_fraction": 0.1, "anchor": 0.1},
            "farther apart",
        ),
    ],
)
def test_what_breaks_the_argument_is_refused(given, text):
    facts = PublicFacts(50, 2, 1, 1.0, 1.0, loss=get_loss("logistic"), limit=1.0)
    with pytest.raises(InputError, match=text):
        IteratedSGD(**given).resolve(facts)
    assert (
        IteratedSGD(learning_rate=7.9, steps=50, intercept_fraction=0.1).resolve(facts).steps == 50
    )


@pytest.mark.parametrize("name", ["hinge", "savage"])
def test_losses_without_the_constants_are_refused(name):
    with pytest.raises(InputError, match="convex and smooth losses only"):
        IteratedSGD().resolve(PublicFacts(50, 2, 1, 1.0, 1.0, loss=get_loss(name)))


def test_stages_that_break_the_argument_are_refused():
    loss, budget = get_loss("logistic"), Budget(1.0, 1e-5)
    with pytest.raises(InputError, match="a noiseless stage, here SoftPCA"):
        Plan(budget, (Normalize(), SoftPCA(0.1)), IteratedSGD(), loss, "replace_one", True, "fast")
    with pytest.raises(InputError, match="whose norm is certain"):
        Plan(budget, (Normalize(), PrivateCenter()), IteratedSGD(), loss, arithmetic="fast")
    with pytest.raises(InputError, match="not for 'add_or_remove_one'"):
        Plan(budget, (Normalize(),), IteratedSGD(), loss, "add_or_remove_one", arithmetic="fast")


# What runs


def test_every_row_is_met_once_and_in_order():
    trainer = IteratedSGD(steps=7).resolve(PublicFacts(50, 2, 1, 1.0, 1.0))
    groups = [trainer.members(step, 50) for step in range(7)]
    np.testing.assert_array_equal(np.concatenate(groups), np.arange(50))
    assert {len(group) for group in groups} == {7, 8}


def test_a_trace_is_hidden_by_the_noise_of_every_later_step(monkeypatch):
    """Gradients that are always clipped make a walk: its spread after k steps is √k·z clips."""
    loss, n = get_loss("logistic"), 16
    rows = np.ones((n, 1))
    facts = PublicFacts(n, 1, 1, 1.0, 1.0)
    trainer = IteratedSGD(steps=n, learning_rate=1e-3, clip=1e-4, intercept_fraction=0.1).resolve(
        facts
    )
    engine = Engine(as_rows(rows, bound=1.0), loss.targets(np.zeros(n, int), 1), loss)
    real = Stream.uniform
    for stop in (1, 4, 16):
        monkeypatch.setattr(
            Stream, "uniform", lambda self, count, at=stop: np.full(count, (at - 0.5) / n)
        )
        ends = [
            trainer.train(engine, run_of(trainer, 2.0, facts, Key.from_seed(seed)), facts)[0, 0]
            for seed in range(60)
        ]
        spread = 1e-3 * 2.0 * 1e-4 * math.sqrt(stop)
        centred = (np.array(ends) + 1e-3 * 1e-4 * stop) / spread
        assert kstest(centred, norm.cdf).pvalue > 1e-6
    monkeypatch.setattr(Stream, "uniform", real)


def test_the_certificate_verifies():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 3))
    labels = (rows[:, 0] > 0).astype(int)
    model = DPLinearClassifier(
        epsilon=4.0, stages=[ClipNorm(1.0)], trainer=IteratedSGD(), arithmetic="fast"
    ).fit(rows, labels)
    certificate = model.certificate_
    assert certificate.accountant == "pld"
    assert certificate.verify().holds
    assert any("no iterate but the released one" in text for text in certificate.assumptions)
    assert 3.9 < certificate.verify().recomputed["recheck"] <= 4.0
