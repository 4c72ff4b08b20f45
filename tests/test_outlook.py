"""Plans that cannot learn say so before they spend anything."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from tacit import DPLinearClassifier, DPLinearRegressor
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.privacy import Budget
from tacit.stages import Normalize
from tacit.trainers import DPGD, DPSGD, LocalDPGD


def plan(size, epsilon, classes=2, trainer=None, neighbors="replace_special"):
    loss = get_loss("logistic" if classes == 2 else "softmax" if classes else "squared")
    whole = Plan(Budget(epsilon, 1e-6), (Normalize(),), trainer or DPGD(), loss, neighbors)
    return whole.calibrate(size=size, columns=5, classes=classes)


def test_few_rows_or_little_budget_are_named():
    assert "cannot be expected" in plan(200, 0.1).outlook
    assert "hardly" in plan(1000, 0.2).outlook
    assert plan(100_000, 0.2).outlook == ""
    assert "Outlook" in plan(200, 0.1).explain()
    assert "Outlook" not in plan(100_000, 1.0).explain()


def test_what_it_says_would_change_it_does():
    for size, epsilon, classes in [(200, 0.1, 2), (3000, 0.3, 100), (400, 0.2, 0)]:
        said = plan(size, epsilon, classes).outlook
        more = float(said.split("About ")[1].split(" times")[0])
        assert plan(math.ceil(1.1 * more * size), epsilon, classes).outlook == ""


def test_many_classes_need_more_rows():
    assert plan(2000, 0.3, 2).outlook == ""
    assert "largest class" in plan(2000, 0.3, 100).outlook


def test_replaced_rows_count_half_and_local_rows_less():
    both = (plan(1500, 0.2, neighbors=n).outlook for n in ("replace_special", "replace_one"))
    assert [bool(said) for said in both] == [False, True]
    local = plan(1500, 1.0, trainer=LocalDPGD(steps=5), neighbors="replace_one")
    assert local.outlook
    assert plan(1500, 1.0, trainer=DPSGD(steps=5, batch_size=100)).outlook == ""


@pytest.mark.parametrize("model", [DPLinearClassifier, DPLinearRegressor])
def test_fits_say_it_in_the_log(caplog, model):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 3)), np.arange(100) % 2
    options = {"target_bounds": (0, 1)} if model is DPLinearRegressor else {}
    with caplog.at_level(logging.WARNING, logger="tacit"):
        model(0.1, 1e-6, trainer=DPGD(steps=2), **options).fit(X, y)
    assert "do better than guessing" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="tacit"):
        model(8.0, 1e-3, trainer=DPGD(steps=2), **options).fit(X, y)
    assert caplog.text == ""
