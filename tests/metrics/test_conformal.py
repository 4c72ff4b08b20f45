"""Sets and intervals of predictions: what they hold, and whose test they are taken from."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import DPLinearClassifier, DPLinearRegressor
from tacit.exceptions import InputError
from tacit.metrics import evaluate
from tacit.persistence import load, save
from tacit.trainers import DPGD

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
PLENTY = {"epsilon": 100.0, "delta": 1e-6, "random_state": 0}  # hardly any noise


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 3))
    return X, X @ [1.0, -1.0, 0.5] + rng.normal(size=6000)


@pytest.fixture(scope="module")
def model(numbers):
    return DPLinearRegressor(50.0, 1e-6, target_bounds=(-6, 6), random_state=0).fit(*numbers)


def held(ends, y):
    return np.mean((ends[:, 0] <= y) & (y <= ends[:, 1]))


def test_an_interval_holds_targets_that_a_test_within_narrower_limits_has_clamped(model, numbers):
    X, y = numbers
    for bounds in [(-6, 6), (-20, 20), (-0.5, 0.5)]:
        found = evaluate(model, X, y, bounds=bounds, **PLENTY)
        assert held(model.predict_interval(X, 0.9, evaluation=found), np.clip(y, -6, 6)) > 0.89


def test_a_regressor_from_a_file_knows_the_limits_of_its_target(model, numbers, tmp_path):
    X, y = numbers
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.target_bounds_ == (-6.0, 6.0)
    one, other = (evaluate(each, X, y, **PLENTY) for each in (model, again))
    assert one.figures == other.figures
    ends = [each.predict_interval(X, 0.9, evaluation=one) for each in (model, again)]
    assert np.array_equal(*ends)
    del again.target_bounds_  # as in a file of an earlier version
    assert held(again.predict_interval(X, 0.9, evaluation=one), y) > 0.89


def test_sets_are_not_taken_from_the_test_of_a_model_that_predicts_something_else(model, numbers):
    X, y = numbers
    labels = (y > 0).astype(int)
    quick = {"trainer": DPGD(steps=2), "random_state": 0, **BUDGET}
    sick = DPLinearClassifier(**quick).fit(X, labels)
    grade = DPLinearClassifier(**quick).fit(X, labels + (y > 1))
    tests = {
        each: evaluate(each, X, truth, **PLENTY)
        for each, truth in ((model, y), (sick, labels), (grade, labels))
    }
    for each in (sick, grade):
        for other, found in tests.items():
            if other is each:
                assert each.predict_set(X, evaluation=found).any()
                continue
            with pytest.raises(InputError, match="another model"):
                each.predict_set(X, evaluation=found)
    with pytest.raises(InputError, match="another model"):
        model.predict_interval(X, evaluation=tests[sick])
