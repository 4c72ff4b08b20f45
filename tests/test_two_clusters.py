"""Sun et al. 2024, section 4: two clusters far from the origin, which DP-SGD cannot tell apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit import DPLinearClassifier, recipe
from tacit.data.rows import as_rows
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.plan import Plan
from tacit.plan.fit import apply_stages
from tacit.preprocessing import PrivateCenter, PrivateClip
from tacit.privacy import Budget
from tacit.trainers import DPGD

EPSILON, DELTA, N = 1.0, 1e-5, 2000
FAR = 100 * N * EPSILON  # μ of the paper; DP-SGD fails from n·ε on
SEEDS = range(10)


def two_clusters(n, far, turned):
    """μ·e₁ ± e₂, the sign being the class; or its opposite."""
    signs = np.where(np.arange(n) % 2, -1.0, 1.0)
    rows = np.stack([np.full(n, far), signs], axis=1)
    return rows, (-signs if turned else signs).astype(int)


def excess(scores, labels):
    """Hinge loss; the best linear model has none."""
    return float(np.maximum(1 - labels * np.ravel(scores), 0).mean())


def losses(name, **options):
    """Of ten runs of one plan, on either labelling in turn."""
    made = recipe(name, **options)
    plan = Plan(
        Budget(EPSILON, DELTA), tuple(made["stages"]), made["trainer"], get_loss("hinge")
    ).calibrate(size=N, columns=2, classes=2)
    found = []
    for seed in SEEDS:
        rows, labels = two_clusters(N, FAR, turned=seed % 2)
        fit = plan.run(as_rows(rows), labels[:, None].astype(float), key=Key.from_seed(seed))
        seen = apply_stages(as_rows(rows), fit.stages).collect()
        found.append(excess(seen @ fit.coef.T + fit.intercept, labels))
    return found


def fitted(seed):
    rows, labels = two_clusters(N, FAR, turned=False)
    made = recipe("dpsgd-f-theory", radius=5 * FAR)
    model = DPLinearClassifier(EPSILON, DELTA, loss="hinge", random_state=seed, **made)
    return model.fit(rows, labels)


def test_dpsgd_does_not_learn_them():
    assert min(losses("dpsgd", radius=math.hypot(FAR, 1))) > 0.3


def test_dpsgd_f_as_the_theory_has_it_does():
    assert max(losses("dpsgd-f-theory", radius=5 * FAR)) < 0.1


def test_one_plan_counts_all_of_it():
    model = fitted(0)
    certificate = model.certificate_
    assert [e.stage for e in certificate.events] == ["PrivateCenter", "PrivateClip", "DPGD"]
    assert certificate.accountant == "gaussian-dp" and certificate.verify().holds
    trainer = model.plan_.trainer
    assert trainer.clip == pytest.approx(math.sqrt(2))
    assert model.plan_.facts.typical_norm == pytest.approx(math.sqrt(2))  # a row and its constant
    assert model.plan_.intercept_scaling == 0.0  # the trainer adds no other


def test_the_way_back_is_that_of_algorithm_2_with_its_intercept_corrected(monkeypatch):
    """b = θ[d]·τ − ⟨w, μ̂⟩, where the paper prints −μ̂."""
    kept = {}
    for stage, name in ((PrivateCenter, "mean_"), (PrivateClip, "radius_")):

        def fit(self, rows, context=None, real=stage.fit, name=name):
            kept[name] = getattr(real(self, rows, context), name)
            return self

        monkeypatch.setattr(stage, "fit", fit)
    real = DPGD.train

    def train(self, *given, **more):
        kept["theta"] = real(self, *given, **more)
        return kept["theta"]

    monkeypatch.setattr(DPGD, "train", train)
    model = fitted(0)
    theta = kept["theta"][:, 0] / kept["radius_"]  # on rows (x − μ̂, τ), before the division by τ
    w = theta[:2]
    assert model.coef_[0] == pytest.approx(w)
    assert model.intercept_[0] == pytest.approx(theta[2] * kept["radius_"] - w @ kept["mean_"])


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
def test_under_the_other_relations_as_well(neighbors):
    rows, labels = two_clusters(2 * N, FAR, turned=False)
    more = {"public_size": 3 * N} if neighbors == "add_or_remove_one" else {}
    model = DPLinearClassifier(
        2.0,
        DELTA,
        loss="hinge",
        neighbors=neighbors,
        random_state=0,
        **recipe("dpsgd-f-theory", radius=5 * FAR),
        **more,
    ).fit(rows, labels)
    assert excess(model.decision_function(rows), labels) < 0.1
