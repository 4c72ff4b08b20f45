"""The choice of the flattest iterate: sensitivity, joint account, attack, and that it is flat."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.seam import run_of

from tacit.audit import audit
from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.selection import masses
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm, Normalize, SoftPCA
from tacit.privacy import Budget, Gaussian, Selection
from tacit.privacy.accounting.accountants import gaussian_delta, gaussian_mu, selection_mu, total_mu
from tacit.research.trainers import FlattestDPGD
from tacit.research.trainers import flattest as module
from tacit.trainers.settings import PublicFacts

LOSS = get_loss("savage")


def engine_of(rows, labels, arithmetic="exact", loss=LOSS):
    return Engine(as_rows(rows, bound=1.0), loss.targets(labels, 1), loss, arithmetic=arithmetic)


def lengths(rows, labels, weights, clip):
    engine = engine_of(rows, labels)
    sums = [engine.gradient_sum(w[None], clip) for w in weights]
    return np.array([module.norm_of(s) for s in sums], dtype=object), sums[0].lattice[0]


@pytest.mark.parametrize("seed", range(20))
def test_no_row_moves_a_utility_by_more_than_is_counted(seed):
    """Random and aligned rows, so short and so long that all are clipped."""
    rng = np.random.default_rng(seed)
    n, d, clip = int(rng.integers(1, 6)), int(rng.integers(1, 4)), float(rng.choice([1e-3, 0.1, 3]))
    rows = rng.normal(size=(n, d)) * rng.choice([1e-4, 1.0])
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    labels = rng.integers(0, 2, n)
    weights = rng.normal(size=(8, d, 1)) * rng.choice([0, 1, 10])
    one, lattice = lengths(rows, labels, weights, clip)
    unit = clip / lattice + 1
    for swap, reach in ((np.zeros(d), 1), (-rows[0], 2), (rows[0] * -3, 2)):
        moved = rows.copy()
        moved[0] = swap / max(1, np.linalg.norm(swap))
        other, _ = lengths(moved, labels, weights, clip)
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= reach * unit


def test_the_worst_row_moves_a_utility_nearly_as_far():
    rows, labels = np.array([[1.0], [1.0]]), np.array([0, 0])
    one, lattice = lengths(rows, labels, [np.zeros((1, 1))], 0.1)
    rows[0] = 0
    other, _ = lengths(rows, labels, [np.zeros((1, 1))], 0.1)
    assert one[0] - other[0] == pytest.approx(0.1 / lattice, rel=1e-3)


def test_lengths_are_exact_where_floats_are_not():
    from tacit.engine.engine import LatticeSum

    big = np.array([[[2**55 + 1], [1]]])
    assert module.norm_of(LatticeSum(big, np.ones(1), np.ones(1))) == 2**55 + 1


def test_probabilities_of_neighbours_stay_within_the_account():
    """Exact masses of both worlds: δ(ε) of the choice, at every ε, in both orders."""
    rng = np.random.default_rng(1)
    beta = 1.3
    mu = selection_mu(1 / beta)
    for _ in range(50):
        utilities = rng.uniform(-5, 0, size=6)
        other = utilities + rng.choice([-1.0, 1.0], size=6)
        p, q = (np.array(masses(u, beta), dtype=float) for u in (utilities, other))
        p, q = p / p.sum(), q / q.sum()
        for epsilon in (0.0, 0.2, 0.7, 1.5):
            for a, b in ((p, q), (q, p)):
                spent = np.maximum(a - math.exp(epsilon) * b, 0).sum()
                assert spent <= gaussian_delta(mu, epsilon) + 1e-12


def plan(trainer, stages=None, neighbors="replace_special", **more):
    stages = (ClipNorm(1.0),) if stages is None else stages
    return Plan(Budget(1.0, 1e-5), stages, trainer, LOSS, neighbors, **more)


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one", "add_or_remove_one"])
def test_steps_and_choice_are_one_account(neighbors):
    calibrated = plan(FlattestDPGD(steps=9), neighbors=neighbors).calibrate(
        size=50, columns=3, classes=2
    )
    (_, steps), (name, choice) = calibrated.spent
    assert steps == Gaussian(calibrated.noise_multiplier, 9)
    assert (name, type(choice)) == ("FlattestDPGD choice", Selection)
    mu = gaussian_mu(1.0, 1e-5)
    assert total_mu([choice], neighbors) == pytest.approx(0.2 * mu, rel=0.02)
    assert total_mu([steps, choice], neighbors) == pytest.approx(mu, rel=1e-3)
    rows = np.random.default_rng(0).normal(size=(50, 3))
    fit = calibrated.run(as_rows(rows), LOSS.targets((rows[:, 0] > 0).astype(int), 1))
    assert fit.certificate.verify().holds


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_without_noise_the_flattest_iterate_is_returned(arithmetic, monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-0.5, 0.5, size=(40, 2))
    engine = engine_of(rows, (rows[:, 0] > 0).astype(int), arithmetic)
    trainer = FlattestDPGD(steps=12, learning_rate=3.0, clip=0.1, choice_noise=1e-4).resolve(
        PublicFacts(40, 2, 1, 1.0, 0.5)
    )
    seen = []
    real = module.train_together

    def watched(*given, **more):
        visit = more["visit"]
        more["visit"] = lambda w, s: (seen.append((w[0], np.linalg.norm(s.float()))), visit(w, s))
        return real(*given, **more)

    monkeypatch.setattr(module, "train_together", watched)
    chosen = trainer.train(
        engine,
        run_of(trainer, 0.5, PublicFacts(40, 2, 1, 1.0, 0.5), Key.from_seed(0)),
        PublicFacts(40, 2, 1, 1.0, 0.5),
    )
    last = engine.gradient_sum(chosen[None], 0.1)
    among = [length for _, length in seen[1:]]  # not the zero weights
    assert np.linalg.norm(last.float()) <= min(among) + 1e-6
    assert (seen[0][0] == 0).all() and (chosen != 0).any()


def test_settings_follow_the_corrected_theorem():
    facts = PublicFacts(2000, 4, 1, 1.0, 0.3, loss=LOSS)
    found = FlattestDPGD().resolve(facts)
    square = 1 + 0.1**2
    assert found.learning_rate == pytest.approx(1 / (LOSS.smoothness * square))
    assert found.clip == pytest.approx(LOSS.lipschitz(1) * math.sqrt(square))
    left = 0.3 * math.sqrt(1 - 0.2**2)
    start = float(LOSS.value(np.zeros((1, 1)), np.ones((1, 1)))[0])
    steps = math.sqrt(2 * LOSS.smoothness * square * start / 5) * 2000 * left / found.clip
    assert found.steps == round(steps)
    with pytest.raises(InputError, match="needs a smooth loss"):
        FlattestDPGD().resolve(PublicFacts(2000, 4, 1, 1.0, 0.3, loss=get_loss("hinge")))
    with pytest.raises(InputError, match="a single iterate is returned"):
        FlattestDPGD(average="uniform").resolve(facts)
    with pytest.raises(InputError, match="a noiseless stage, here SoftPCA"):
        plan(FlattestDPGD(), (Normalize(), SoftPCA(0.1)), "replace_one")


def test_the_choice_finds_a_flat_place_within_the_bound():
    from tacit.research.theory import flatness

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = (rows[:, 0] + 0.2 * rng.normal(size=2000) > 0).astype(int)
    calibrated = Plan(
        Budget(2.0, 1e-5), (ClipNorm(1.0),), FlattestDPGD(), LOSS, fit_intercept=False
    ).calibrate(size=2000, columns=3, classes=2)
    bound = flatness.risk(
        2000, 3, epsilon=2.0, delta=1e-5, smoothness=LOSS.smoothness, failure=1e-6
    ).value
    for seed in range(3):
        fit = calibrated.run(as_rows(rows), LOSS.targets(labels, 1), key=Key.from_seed(seed))
        total = engine_of(rows, labels).gradient_sum(fit.coef.T[None], 10.0)
        assert np.linalg.norm(total.float()) / 2000 <= bound


def test_no_attack_on_steps_and_choice_exceeds_the_claim():
    trainer = FlattestDPGD(steps=2, learning_rate=0.1, clip=0.1, choice_noise=3.0)
    whole = Plan(Budget(2.0, 1e-5), (Normalize(),), trainer, get_loss("logistic"))
    for seed in range(3):
        assert audit(whole, runs=120, seed=seed).holds
