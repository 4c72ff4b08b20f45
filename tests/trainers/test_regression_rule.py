"""Settings of regressions: the clip follows rows and budget, steps stay stable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit import DPLinearRegressor
from tacit.trainers import DPGD
from tacit.trainers.settings import PublicFacts

FACTS = PublicFacts(10_000, 20, 1, 1.0, 0.1, task="regression")


def settings(facts=FACTS, **given):
    return DPGD(**given).resolve(facts)


def test_the_clip_grows_as_the_cube_root_of_rows_times_budget():
    few, many = (settings(replace(FACTS, size=n)).clip for n in (10_000, 80_000))
    assert many == pytest.approx(2 * few)
    assert settings(replace(FACTS, size=80_000)).clip == settings(replace(FACTS, mu=0.8)).clip


@pytest.mark.parametrize("size, clip", [(1, 0.1), (3_000, 0.1), (10**9, 0.5)])
def test_the_clip_has_a_least_and_a_most(size, clip):
    assert settings(replace(FACTS, size=size)).clip == pytest.approx(clip)


@pytest.mark.parametrize("size", [1, 100, 10_000, 10**6, 10**9])
def test_no_step_is_too_long_for_squared_errors(size):
    found = settings(replace(FACTS, size=size))
    # Heavy balls of momentum 0.9 are stable up to rates of 3.8 over the largest curvature, which
    # is the squared norm of a row with its constant feature at most.
    assert 0 < found.learning_rate * (1 + found.intercept_fraction**2) < 3.8
    assert 100 <= found.steps <= 300
    assert found.schedule == "late"


@pytest.mark.parametrize("bound", [0.01, 7.0])
def test_the_same_rows_in_other_units_get_the_same_training(bound):
    here, there = settings(), settings(replace(FACTS, typical_norm=bound))
    assert there.clip == pytest.approx(here.clip * bound)
    assert there.learning_rate == pytest.approx(here.learning_rate / bound**2)
    assert there.steps == here.steps


def test_a_given_clip_stays_and_the_rate_goes_with_it():
    assert settings(clip=0.3).clip == 0.3
    noise = [s.learning_rate * s.steps * s.clip for s in (settings(), settings(clip=0.3))]
    assert noise[0] == pytest.approx(noise[1])


def test_classes_keep_a_small_clip():
    clips = {settings(PublicFacts(n, 20, 1, 1.0, 0.1)).clip for n in (1_000, 10**7)}
    assert len(clips) == 1


def test_an_intercept_far_from_the_middle_of_the_bounds_is_reached():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5_000, 4))
    y = rng.normal(1.0, 0.3, size=len(X))  # of targets that may lie between 0 and 10
    model = DPLinearRegressor(0.1, 1e-5, target_bounds=(0, 10), random_state=0).fit(X, y)
    assert np.mean(model.predict(X)) == pytest.approx(1.0, abs=0.3)
