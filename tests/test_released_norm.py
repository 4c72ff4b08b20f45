"""Settings for the norm of rows that a released mean shows: units change, costs do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit import DPLinearClassifier, DPLinearRegressor, DPSearch
from tacit.data.rows import as_rows
from tacit.mechanisms.random_streams import Key
from tacit.persistence import load, save
from tacit.preprocessing import Normalize, PrivateCenter, SoftPCA
from tacit.research.trainers import LocalDPGD
from tacit.trainers import DPGD, DPSGD
from tacit.trainers.settings import RULE_CONSTANTS

RNG = np.random.default_rng(0)
N, D = 5000, 6
#: Rows that point nearly the same way, so that they are short around their mean.
NEAR = np.array([5.0, 0, 0, 0, 0, 0]) + RNG.normal(size=(N, D))
SIGNS = (NEAR[:, 1] > 0).astype(int)


def fitted(**given):
    return DPLinearClassifier(4.0, 1e-6, random_state=1, **given).fit(NEAR, SIGNS)


def planned(model):
    """What was calibrated before a row was read."""
    return model.plan_.plan.calibrate(size=N, columns=D, classes=2)


def test_a_typical_row_is_as_long_as_the_mean_leaves_it():
    rows = NEAR / np.linalg.norm(NEAR, axis=1, keepdims=True)
    stage = PrivateCenter()
    stage.mean_ = rows.mean(axis=0)
    spread = np.sqrt(((rows - stage.mean_) ** 2).sum(axis=1).mean())
    assert stage.shown(1.0, D) == pytest.approx(spread)
    stage.mean_ = rows[0]  # on the sphere, whatever rounding makes of it
    assert 0 < stage.shown(1.0, D) < 0.06
    assert stage.typical(1.0, D) == 1.0  # what settings rest on that are not chosen again


@pytest.mark.parametrize("trainer", [DPGD(), DPSGD(batch_size=500)])
def test_clip_rate_and_constant_are_in_lengths_of_centred_rows(trainer):
    model = fitted(trainer=trainer)
    plan, at_first = model.plan_, planned(model)
    length = plan.facts.typical_norm
    rows = NEAR / np.linalg.norm(NEAR, axis=1, keepdims=True)
    spread = np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert length == pytest.approx(spread, rel=0.02)
    assert length < 0.6
    assert plan.trainer.clip == pytest.approx(RULE_CONSTANTS["two classes"].clip * length)
    assert plan.trainer.learning_rate == pytest.approx(at_first.trainer.learning_rate / length**2)
    assert plan.intercept_scaling == pytest.approx(plan.trainer.intercept_fraction * length)
    assert plan.spent == at_first.spent  # nothing that was counted has changed
    assert plan.noise_multiplier == at_first.noise_multiplier
    before = at_first.certify(True, at_first.plan.stages)
    assert model.certificate_.events == before.events


def test_no_private_row_is_looked_at_for_it():
    plan = planned(DPLinearClassifier(1.0, 1e-6, random_state=1).fit(NEAR, SIGNS))
    seen = plan.prepare(as_rows(NEAR), plan.releases(Key.from_seed(1)))
    assert plan.resolve(replace(seen, rows=None)).trainer == plan.resolve(seen).trainer


@pytest.mark.parametrize(
    "given",
    [
        {"trainer": DPGD(intercept_fraction=0.1)},  # in units of the norm that was promised
        {"trainer": DPGD(norm=3.0)},  # by a theorem about that norm
        {"trainer": LocalDPGD(), "stages": [Normalize()]},
        {"stages": [Normalize(), SoftPCA(strength=0.5)]},  # where clips are part of the account
        {"stages": [Normalize(), PrivateCenter(), Normalize()]},
        {"trainer": DPGD(clip=0.3, learning_rate=2.0, intercept_fraction=0.2)},
    ],
)
def test_what_was_given_or_counted_stays(given):
    model = fitted(**given)
    at_first = planned(model)
    assert model.plan_.trainer == at_first.trainer
    assert model.plan_.intercept_scaling == at_first.intercept_scaling


def test_a_given_clip_is_kept_and_the_rate_follows_it():
    model = fitted(trainer=DPGD(clip=0.3))
    at_first = planned(model)
    assert model.plan_.trainer.clip == 0.3
    assert model.plan_.trainer.learning_rate > at_first.trainer.learning_rate


def test_numbers_keep_their_settings():
    model = DPLinearRegressor(4.0, 1e-6, target_bounds=(-3, 3), trainer=DPGD(), random_state=1)
    plan = model.fit(NEAR, NEAR[:, 1]).plan_
    assert plan.facts.typical_norm == 1.0


def test_going_on_keeps_to_the_same_length():
    model = fitted()
    length = model.plan_.facts.typical_norm
    model.partial_fit(NEAR, SIGNS, epsilon=1.0, delta=1e-6)
    assert model.plan_.facts.typical_norm == length
    assert "as the released mean shows it" in model.plan_.explain()
    theorem = fitted(trainer=DPGD(norm=3.0))  # and so do those that follow from a promise
    theorem.partial_fit(NEAR, SIGNS, epsilon=1.0, delta=1e-6)
    assert theorem.plan_.facts.typical_norm == 1.0


def test_searches_try_what_fits_would_do():
    search = DPSearch(
        DPLinearClassifier(4.0, 1e-6, random_state=1), {"trainer__momentum": [0.8, 0.9]}
    ).fit(NEAR, SIGNS)
    best = search.best_estimator_
    length = best.plan_.facts.typical_norm
    assert best.plan_.trainer.clip == pytest.approx(RULE_CONSTANTS["two classes"].clip * length)
    assert length < 0.6
    assert np.mean(search.predict(NEAR) == SIGNS) > 0.9


def test_the_certificate_and_the_saved_model_say_what_ran(tmp_path):
    model = fitted()
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.decision_function(NEAR), model.decision_function(NEAR))
    said = model.certificate_.plan["trainer"]["parameters"]
    assert said["clip"] == model.plan_.trainer.clip < 0.3


def test_a_plan_says_why():
    model = fitted()
    before, after = planned(model).explain(), model.plan_.explain()
    assert "norm 1, and less once a mean is released" in before
    assert f"norm {model.plan_.facts.typical_norm:.3g}, as the released mean shows it" in after
    for text in (before, after):
        assert "The clip is 0.5 of such a row, the constant feature 0.15" in text
        assert "leave noise of 0.8 in its score" in text
    given = DPGD(steps=5, learning_rate=1.0, clip=1.0, momentum=0.0, intercept_fraction=0.1)
    assert "all of them were given" in fitted(trainer=given).plan_.explain()
