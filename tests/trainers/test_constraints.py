"""Weights held in a convex set: projections, where training leads with them, what is recorded."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from tests.seam import run_of

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.engine.sensitivity import GradientSensitivity
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.persistence import load, save
from tacit.preprocessing import ClipNorm
from tacit.privacy.sensitivity.drift import Drift
from tacit.research.trainers import IteratedSGD
from tacit.trainers import DPGD, DPSGD, Ball, Box, L1Ball, Simplex
from tacit.trainers.constraints import ConvexSet
from tacit.trainers.settings import PublicFacts

SETS = [Ball(0.7), Box(-0.2, 0.4), Box(0.0, math.inf), Simplex(0.9), L1Ball(0.8)]
every_set = pytest.mark.parametrize("held", SETS, ids=repr)


def inside(held, weights, slack=1e-12):
    """Whether weights are in a set, by its definition."""
    match held:
        case Ball():
            return np.linalg.norm(weights) <= held.radius + slack
        case Box():
            return weights.min() >= held.low - slack and weights.max() <= held.high + slack
        case Simplex():
            return weights.min() >= -slack and abs(weights.sum() - held.total) <= slack
        case L1Ball():
            return np.abs(weights).sum() <= held.radius + slack


@every_set
def test_a_projection_is_the_nearest_point_of_its_set(held):
    """w is the projection of v if and only if ⟨v − w, x − w⟩ ≤ 0 for every x of the set."""
    rng = np.random.default_rng(0)
    assert isinstance(held, ConvexSet)
    for _ in range(200):
        given = rng.normal(size=(5, 2)) * 10.0 ** rng.uniform(-2, 1)
        found = held.project(given)
        assert inside(held, found)
        np.testing.assert_allclose(held.project(found), found, atol=1e-12)
        assert np.linalg.norm(found) <= held.reach(10) + 1e-12
        for _ in range(20):
            other = held.project(rng.normal(size=(5, 2)))
            assert np.sum((given - found) * (other - found)) <= 1e-9


@every_set
def test_projections_bring_no_weights_farther_apart(held):
    rng = np.random.default_rng(1)
    for _ in range(200):
        a, b = rng.normal(size=(2, 6, 1))
        apart = np.linalg.norm(held.project(a) - held.project(b))
        assert apart <= np.linalg.norm(a - b) + 1e-12


def trained(trainer, **more):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(80, 4)) / 4
    loss, facts = get_loss("logistic"), PublicFacts(80, 4, 1, 1.0, 0.5, **more)
    targets = loss.targets((rows[:, 0] > 0).astype(int), 1)
    engine = Engine(as_rows(rows, bound=1.0), targets, loss)
    return trainer.train(engine, run_of(trainer, 1.0, facts, Key.from_seed(0)), facts)


PLAIN = {"steps": 12, "learning_rate": 2.0, "clip": 1.0, "momentum": 0.0, "schedule": "constant"}


@every_set
@pytest.mark.parametrize("average", ["last", "uniform"])
def test_training_stays_in_the_set(held, average):
    found = trained(DPGD(**PLAIN, average=average, intercept_fraction=1.0, constraint=held))
    assert inside(held, found)


def test_a_ball_is_what_radius_stands_for():
    given = {**PLAIN, "average": "last", "intercept_fraction": 1.0}
    by_radius = trained(DPGD(**given, radius=0.3))
    np.testing.assert_allclose(trained(DPGD(**given, constraint=Ball(0.3))), by_radius, rtol=1e-12)


def test_a_set_without_zero_is_entered_before_the_first_step():
    rate = {**PLAIN, "steps": 1, "learning_rate": 1e-9}
    found = trained(DPGD(**rate, average="last", intercept_fraction=1.0, constraint=Simplex(1.0)))
    np.testing.assert_allclose(found, 0.25, atol=1e-6)


@dataclass(frozen=True)
class Halfspace:
    """A set of one's own: weights that sum to no more than ``most``."""

    most: float

    def project(self, weights):
        return weights - max(weights.sum() - self.most, 0.0) / weights.size

    def reach(self, count):
        return math.inf


def test_a_set_of_one_s_own_holds_weights_and_is_recorded(tmp_path):
    trainer = DPGD(**PLAIN, average="last", intercept_fraction=1.0, constraint=Halfspace(-0.5))
    assert trained(trainer).sum() <= -0.5 + 1e-12
    assert trainer.parameters()["constraint"] == {"set": "Halfspace", "most": -0.5}
    with pytest.raises(InputError, match="bring no weights farther apart"):
        IteratedSGD(constraint=Halfspace(1.0)).resolve(PublicFacts(80, 4, 1, 1.0, 0.5))
    IteratedSGD(constraint=Box(-1.0, 1.0)).resolve(PublicFacts(80, 4, 1, 1.0, 0.5))


def test_certificates_and_models_record_the_set(tmp_path):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(400, 3)) / 3
    labels = (rows[:, 0] > 0).astype(int)
    model = DPLinearClassifier(
        4.0,
        1e-5,
        stages=[ClipNorm(1.0)],
        trainer=DPGD(steps=20, constraint=Box(0.0, 2.0)),
        random_state=0,
    ).fit(rows, labels)
    assert model.coef_.min() >= 0 and model.certificate_.verify().holds
    recorded = model.certificate_.plan["trainer"]["parameters"]
    assert recorded["constraint"] == {"set": "Box", "low": 0.0, "high": 2.0}
    written = json.loads(json.dumps(model.certificate_.to_dict()))
    again = DPGD(**written["plan"]["trainer"]["parameters"])
    assert again.convex_set == Box(0.0, 2.0)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    assert "constraint" not in DPGD().parameters()  # records of others are as they were


def test_sampled_steps_behind_noiseless_stages_count_on_the_set_s_reach():
    moves = GradientSensitivity(Drift(1.0, 0.1, 0.1, 1), get_loss("logistic"), 1, 4, 80)
    assert DPSGD(constraint=Box(-0.5, 0.5)).reference_norm(moves) == 1.0  # √4 · 0.5
    assert DPSGD(constraint=Box(0.0, math.inf)).reference_norm(moves) == DPSGD().reference_norm(
        moves
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"constraint": 3.0}, "must be a convex set, such as Box"),
        ({"constraint": Ball(1.0), "radius": 1.0}, "radius= or constraint=, not both"),
        ({"constraint": {"set": "Cone"}}, "no convex set is called 'Cone'; there are Ball"),
    ],
)
def test_what_is_no_set_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        DPGD(**given).resolve(PublicFacts(80, 4, 1, 1.0, 0.5))


def test_shapes_that_must_not_fall_take_no_other_set():
    facts = PublicFacts(80, 4, 1, 1.0, 0.5, monotone=((0, 2, 1),))
    with pytest.raises(InputError, match="leave out constraint= or the shapes"):
        DPGD(constraint=Box(0.0, 1.0)).resolve(facts)


@pytest.mark.parametrize(
    "wrong", [lambda: Ball(0.0), lambda: Box(1.0, 1.0), lambda: L1Ball(-1.0), lambda: Simplex(0.0)]
)
def test_sets_of_nothing_are_refused(wrong):
    with pytest.raises(InputError):
        wrong()
