"""The stage and the loss that CONTRIBUTING.md adds, in whole plans on neighbouring tables."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tests.examples import private_rescale
from tests.examples.log_cosh import LogCosh
from tests.examples.private_rescale import PrivateRescale
from tests.soundness import plans, replays

from tacit import DPLinearClassifier, DPLinearRegressor
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm, Normalize, PrivateCenter, SoftPCA
from tacit.privacy import Budget
from tacit.privacy.events import NEIGHBORS
from tacit.trainers import DPGD, DPSGD

N, D = 40, 3
STAGES = {
    "bounded rows": (ClipNorm(1.0), PrivateRescale()),
    "centred rows": (Normalize(), PrivateCenter(), PrivateRescale(), ClipNorm(1.0)),
    "behind a noiseless stage": (ClipNorm(1.0), SoftPCA(0.05), PrivateRescale()),
}
FULL, SAMPLED = DPGD(steps=2), DPSGD(steps=2, batch_size=5)
#: Behind a noiseless stage one relation is analysed, and one arithmetic.
PLANS = [
    *product(("bounded rows", "centred rows"), NEIGHBORS, ("exact",)),
    ("centred rows", "replace_special", "strict"),
    ("behind a noiseless stage", "replace_one", "exact"),
]


def cases(stages, loss, neighbors, arithmetic, trainer):
    """A plan on every pair of tables that are made to hurt."""
    classes = 3 if loss.task == "classification" else 0
    plan = Plan(
        Budget(8.0, 1e-5), tuple(stages), trainer, loss, neighbors, arithmetic=arithmetic
    ).calibrate(size=N + 1, columns=D, classes=classes)
    labels = np.arange(N + 1) % 3
    other = labels.copy()
    other[0] = 2
    for pair in plans.hostile(N, D, 0):
        if neighbors == "replace_one":
            yield replays.Case(plan, pair.name, pair.rows, (labels, other))
        else:
            rows = pair.rows[0]
            yield replays.Case(plan, pair.name, (rows, rows[1:]), (labels, labels[1:]))


@pytest.mark.parametrize(("name", "neighbors", "arithmetic"), PLANS)
def test_plans_with_the_stage_are_covered_by_their_account(name, neighbors, arithmetic):
    for case in cases(STAGES[name], get_loss("logistic"), neighbors, arithmetic, SAMPLED):
        assert not replays.compare(case)


@pytest.mark.parametrize(("name", "neighbors", "arithmetic"), PLANS)
def test_plans_with_the_loss_are_covered_by_their_account(name, neighbors, arithmetic):
    for case in cases(STAGES[name], LogCosh(), neighbors, arithmetic, FULL):
        assert not replays.compare(case)


def test_the_attack_finds_a_stage_that_looks_at_the_largest_row(monkeypatch):
    """So what is not found above is not there."""
    real = private_rescale.squared_norms

    def relative(chunk, bound):
        found = real(chunk, bound)
        return found / max(found.max(), 1e-9)

    monkeypatch.setattr(private_rescale, "squared_norms", relative)
    leaky = cases(STAGES["bounded rows"], get_loss("logistic"), "replace_special", "exact", SAMPLED)
    assert any("were counted" in text for case in leaky for text in replays.compare(case))


def test_a_loss_whose_gradients_change_at_an_unknown_rate_is_refused_where_that_counts():
    name = "behind a noiseless stage"
    with pytest.raises(InputError, match="not known how fast gradients of loss='log-cosh'"):
        list(cases(STAGES[name], LogCosh(), "replace_one", "exact", SAMPLED))


def test_the_stage_is_fitted_certified_and_folded_by_an_estimator():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 4000)
    rows = rng.normal(size=(4000, 4)) / 4
    rows[:, 0] += 0.3 * labels
    model = DPLinearClassifier(1.0, 1e-5, stages=[ClipNorm(1.0), PrivateRescale()])
    model.fit(rows, labels)
    certificate = model.certificate_
    assert certificate.verify().holds
    events = certificate.to_dict()["events"]
    assert [event["stage"] for event in events] == ["PrivateRescale", "DPGD"]
    assert [stage.name for stage in model.stages_] == ["ClipNorm"]
    assert model.score(rows, labels) > 0.65


def test_the_loss_is_fitted_and_certified_by_an_estimator():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 3)) / 3
    targets = np.clip(rows[:, 0] + 0.1 * rng.normal(size=4000), -1, 1)
    model = DPLinearRegressor(4.0, 1e-5, loss=LogCosh(), target_bounds=(-1, 1))
    model.fit(rows, targets)
    assert model.certificate_.verify().holds
    assert model.certificate_.to_dict()["plan"]["loss"] == "log-cosh"
    assert model.score(rows, targets) > 0.5
