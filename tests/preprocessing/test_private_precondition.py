"""PrivatePrecondition: a second moment that steps follow, and when a plan has one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.seam import paid

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm, Normalize, PrivateCenter, PrivatePrecondition, SoftPCA
from tacit.privacy import Budget
from tacit.privacy.sensitivity.drift import Drift
from tacit.trainers import DPGD, DPSGD
from tacit.trainers.precondition import SETTLED, WARM, Preconditioner
from tacit.trainers.settings import CLEAR, HIDDEN, PublicFacts

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4000, 6)) * 0.5 ** np.arange(6)
Y = (X[:, 0] - X[:, 3] + 0.2 * RNG.normal(size=4000) > 0).astype(int)


def fitted(rows, z, *, bound=1.0, norm=None, seed=0, **more):
    rows = as_rows(rows, bound=bound)
    return PrivatePrecondition().fit(rows, paid(rows.n, Key.from_seed(seed), z, norm=norm, **more))


def steps_of(model, X=X, y=Y):
    return [name for name, _ in model.fit(X, y).plan_.spent]


def planned(epsilon, columns):
    stages = (Normalize(), PrivateCenter(), PrivatePrecondition())
    plan = Plan(Budget(epsilon, 1e-5), stages, DPGD(), get_loss("logistic"))
    return plan.calibrate(size=4000, columns=columns, classes=2)


# What is released


def test_with_little_noise_it_is_the_second_moment():
    rows = X / 5
    stage = fitted(rows, 1e-3)
    found = (stage.vectors_ * stage.values_) @ stage.vectors_.T
    assert found == pytest.approx(rows.T @ rows / len(rows), abs=1e-5)
    assert stage.transform(rows) is not None and (stage.transform(rows) == rows).all()


def test_rows_are_shortened_to_the_norm_of_a_typical_one():
    rows = np.tile([[3.0, 4.0], [0.0, 0.1]], (500, 1))
    stage = fitted(rows, 1e-3, bound=9.0, norm=1.0)
    assert stage.values_.max() == pytest.approx(0.5, rel=0.02)


def test_what_lies_below_the_noise_is_left_out():
    noise = fitted(np.zeros((400, 30)), 1.0)
    assert len(noise.values_) <= 2  # the largest eigenvalue of noise is about its norm
    one = fitted(np.tile(np.eye(30)[0], (400, 1)), 1.0)
    assert one.values_.max() == pytest.approx(1.0, abs=0.05)
    assert noise.noise_ == pytest.approx(np.sqrt(60) / 400)


def test_rows_that_have_moved_are_refused():
    with pytest.raises(InputError, match="PrivatePrecondition"):
        fitted(X / 5, 1.0, drift=Drift(1.0, 0.5, 0.5, 1.0, 0.5))


# Steps


def test_a_step_is_damped_as_curvature_asks():
    vectors = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    values, rate = np.array([0.0, 0.1, 1.0, 9.0]), np.array([2.0, 5.0])
    facts = PublicFacts(9, 4, 1, 1.0, 1.0, loss=get_loss("logistic"), moment=(values, vectors))
    move = Preconditioner(facts, [0.5, 0.25])
    velocity = RNG.normal(size=(2, 5, 1))
    for step, curvature in ((0, 0.25), (WARM, 0.25 * SETTLED)):
        found = move(velocity, rate[:, None, None], step)
        for s, eta in enumerate(rate):
            square = np.zeros((5, 5))
            square[:4, :4], square[4, 4] = (vectors * values) @ vectors.T, (0.5, 0.25)[s] ** 2
            expected = np.linalg.solve(curvature * square + np.eye(5) / eta, velocity[s])
            assert found[s] == pytest.approx(expected)


def test_steps_are_few_and_a_few_more_where_noise_hides_the_rows():
    assert steps_of(DPLinearClassifier(8.0))[1:] == ["PrivatePrecondition", "DPGD"]
    assert DPLinearClassifier(8.0).fit(X, Y).plan_.trainer.steps == CLEAR.steps
    little = planned(0.1, 6)
    assert (little.trainer.steps, little.trainer.momentum) == (HIDDEN.steps, HIDDEN.momentum)
    given = DPLinearClassifier(8.0, trainer=DPGD(steps=7, momentum=0.0)).fit(X, Y).plan_.trainer
    assert (given.steps, given.momentum) == (7, 0.0)


def test_twenty_steps_do_what_a_hundred_did():
    """On columns of very different size, where twenty plain steps fall short."""
    X = RNG.normal(size=(20_000, 12)) * 0.6 ** np.arange(12) + 0.3
    y = ((X - 0.3) @ (1.3 ** np.arange(12)) > 0).astype(int)
    plain = [Normalize(), PrivateCenter()]

    def right(**how):
        return np.mean(
            [DPLinearClassifier(4.0, random_state=s, **how).fit(X, y).score(X, y) for s in range(3)]
        )

    few, many = right(), right(stages=plain)
    short = right(stages=plain, trainer=DPGD(steps=20))
    assert few > many - 0.003 and few > short + 0.003


# Plans with and without it


def test_a_plan_leaves_it_out_where_nobody_follows_it():
    def kept(loss="logistic", trainer=DPGD(), before=(Normalize(),), columns=6, classes=2):  # noqa: B008
        stages = (*before, PrivatePrecondition())
        near = "replace_one" if any(s.kind == "noiseless" for s in before) else "replace_special"
        plan = Plan(Budget(1.0, 1e-5), stages, trainer, get_loss(loss), near)
        return plan.expanded(size=4000, columns=columns, classes=classes).stages != before

    assert kept() and kept(columns=256)
    assert not any(map(kept, ("softmax", "hinge", "squared")))
    assert not kept(trainer=DPSGD(steps=3)) and not kept(trainer=DPGD(norm=5.0))
    assert not kept(before=(ClipNorm(1.0), SoftPCA(0.05)))
    assert not kept(columns=257) and not kept(classes=3)
    assert "600 columns" in planned(1.0, 600).explain()


def test_it_must_be_last():
    stages = [Normalize(), PrivatePrecondition(), PrivateCenter()]
    with pytest.raises(InputError, match="last stage"):
        DPLinearClassifier(stages=stages).fit(X, Y)


def test_a_model_goes_on_with_the_moment_that_was_paid_for():
    model = DPLinearClassifier(4.0).fit(X, Y)
    model.partial_fit(X, Y, epsilon=1.0, delta=1e-6)
    assert [name for name, _ in model.plan_.spent] == ["DPGD"]
    assert model.plan_.trainer.steps in (CLEAR.steps, HIDDEN.steps)
    assert model.score(X, Y) > 0.9
