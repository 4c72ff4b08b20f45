"""scikit-learn's own checks of an estimator, on every version that is supported."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import tacit.plan.plan
from tacit import DPLinearClassifier, DPLinearRegressor, DPSearch
from tacit.trainers import DPGD, DPSGD

ESTIMATORS = [
    DPLinearClassifier(),
    DPLinearClassifier(loss="hinge"),
    DPLinearRegressor(target_bounds=(-1000, 1000)),
    DPLinearRegressor(target_bounds=(-1000, 1000), trainer=DPSGD()),
    DPSearch(
        DPLinearClassifier(trainer=DPGD(steps=20), random_state=0),
        {"trainer__clip": [0.04, 0.1]},
        trials=1.5,
    ),
]


def exceptions(estimator):
    """Checks that an estimator may fail, by name, each with the reason. There are none."""
    return {}


@pytest.fixture(autouse=True, scope="module")
def _calibrated_once():
    """The same public facts give the same noise, which takes most of the time for samples."""
    known = {}
    find = tacit.plan.plan.calibrate

    def calibrate(events, budget, neighbors):
        facts = (tuple(events(1.0)), budget, neighbors)
        if facts not in known:
            known[facts] = find(events, budget, neighbors)
        return known[facts]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tacit.plan.plan, "calibrate", calibrate)
        yield


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=exceptions)
def test_estimators_do_what_scikit_learn_expects(estimator, check):
    check(estimator)
