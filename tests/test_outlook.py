"""Plans that cannot learn say so before they spend anything."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import numpy as np
import pytest

from tacit import DPLinearClassifier, DPLinearRegressor
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.preprocessing import Normalize
from tacit.privacy import Budget
from tacit.privacy.unit import Unit
from tacit.research.trainers import LocalDPGD
from tacit.trainers import DPGD, DPSGD


def plan(size, epsilon, classes=2, trainer=None, neighbors="replace_special"):
    loss = get_loss("logistic" if classes == 2 else "softmax" if classes else "squared")
    whole = Plan(Budget(epsilon, 1e-6), (Normalize(),), trainer or DPGD(), loss, neighbors)
    return whole.calibrate(size=size, columns=5, classes=classes)


def test_few_rows_or_little_budget_are_named():
    assert "cannot be expected" in plan(200, 0.1).outlook
    assert plan(1000, 0.2).outlook == ""  # enough for some tables, not for others: it says so
    assert "enough for classes well apart" in plan(1000, 0.2).explain()
    assert "closely; on a table as hard as" in plan(1000, 0.2, 0).explain()
    assert plan(100_000, 0.2).outlook == ""
    assert "Outlook" in plan(200, 0.1).explain()
    assert "Outlook" not in plan(100_000, 1.0).explain()


def test_people_are_called_people():
    of_people = Unit("person", 3)
    said = replace(plan(200, 0.1).plan, unit=of_people).calibrate(size=200, columns=5, classes=2)
    assert "of the 200 people would" in said.outlook and "times as many people" in said.outlook


LOCAL = {"trainer": LocalDPGD(), "neighbors": "replace_one"}


def test_what_it_says_would_change_it_does():
    cases = [(200, 0.1, 2, {}), (3000, 0.3, 100, {}), (300, 0.1, 0, {}), (3000, 2.0, 2, LOCAL)]
    for size, epsilon, classes, how in cases:
        said = plan(size, epsilon, classes, **how).outlook
        rows, budget = (
            float(said.split(f"{what} ")[1].split(" times")[0]) for what in ("About", "a budget")
        )
        for many, more in ((math.ceil(1.1 * rows * size), epsilon), (size, 1.3 * budget * epsilon)):
            assert "Outlook" not in plan(many, more, classes, **how).explain(), (many, more)
        assert "Outlook" in plan(math.ceil(0.8 * rows * size), epsilon, classes, **how).explain()


def blobs(n, far, seed):
    """Two classes, ``far`` deviations from the middle between them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 5)) + far * (2 * y[:, None] - 1) * np.eye(5)[0], y


@pytest.mark.parametrize("far", [3.0, 0.5])
@pytest.mark.parametrize("epsilon", [4.0, 0.3])
def test_rows_that_trust_nobody_are_foretold(caplog, epsilon, far):
    """No warning where 97% are reached; one where the same rows do better with a curator."""

    def mean_accuracy(trainer):
        runs = []
        for seed in range(4):
            model = DPLinearClassifier(epsilon, 1e-6, trainer=trainer, random_state=seed)
            runs.append(model.fit(*blobs(6000, far, seed)).score(*blobs(2000, far, 9)))
        return np.mean(runs)

    with caplog.at_level(logging.WARNING, logger="tacit"):
        found = mean_accuracy(LocalDPGD(steps=30))
    assert ("better than guessing" in caplog.text) == (epsilon == 0.3)
    assert found > 0.97 or (epsilon, far) != (4.0, 3.0)
    if (epsilon, far) == (0.3, 0.5):
        assert found < 0.6 and mean_accuracy(DPGD(steps=30)) > 0.66


def test_many_classes_need_more_rows():
    assert plan(2000, 0.3, 2).outlook == ""
    assert "largest class" in plan(2000, 0.3, 100).outlook


def test_replaced_rows_count_half_and_local_rows_less():
    both = (plan(600, 0.2, neighbors=n).outlook for n in ("replace_special", "replace_one"))
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
