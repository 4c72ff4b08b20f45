"""Whole plans with noiseless stages: what leaves them, what they refuse, and what a failure
tells.
"""

from __future__ import annotations

import json
import pickle
import struct
from dataclasses import fields

import numpy as np
import pytest

import tacit
from tacit import DPLinearClassifier, DPLinearRegressor
from tacit.exceptions import InputError, MissingBound, PrivateTestError
from tacit.plan import Fit
from tacit.plan.targets import TargetFacts
from tacit.preprocessing import (
    ClipNorm,
    FillGaps,
    NoiselessImpute,
    NoiselessPCA,
    NoiselessScale,
    Normalize,
    PrivateCenter,
    PrivateEqualize,
    PrivateScale,
    SoftPCA,
)
from tacit.preprocessing.base import NoiselessStage
from tacit.trainers import DPGD, DPSGD

N, D = 4000, 5
PRIVATE = ("_basis", "_gains", "_mean", "_margin", "_scale", "_fill", "_weights")
QUICK = DPGD(steps=3)


def table(seed=0, *, gaps=0.0, n=N):
    """Rows with one strong direction, and labels that follow another."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, D)) * [0.6, 0.3, 0.3, 0.25, 0.25]
    labels = (rows[:, 1] > 0).astype(int)
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    lacking = rng.random(n) < gaps
    rows[lacking, 2] = np.nan
    return rows, labels


#: Stages of a plan, whether its rows lack values, and the private numbers it must keep.
PLANS = {
    "soft PCA": ([ClipNorm(1.0), SoftPCA(0.05)], 0.0),
    "PCA behind a test": ([ClipNorm(1.0), NoiselessPCA(1, gap=0.05, share=0.3)], 0.0),
    "PCA about the mean": (
        [ClipNorm(1.0), NoiselessPCA(1, gap=0.05, centered=True, share=0.5)],
        0.0,
    ),
    "imputation and soft PCA": (
        [ClipNorm(1.0), NoiselessImpute("mean", rows_with_gaps=600, share=0.3), SoftPCA(0.05)],
        0.05,
    ),
    "ridge imputation": ([ClipNorm(1.0), NoiselessImpute("ridge", columns=[2])], 0.05),
    "scaling": ([ClipNorm(1.0), NoiselessScale(0.1, radius=2.0)], 0.0),
    "scaling by the deviation": (
        [ClipNorm(1.0), NoiselessScale(floor=0.005, radius=2.0, share=0.6)],
        0.0,
    ),
}


@pytest.fixture
def seen(monkeypatch):
    """Every private number that a noiseless stage learns."""
    learned: set[float] = set()
    for stage in (SoftPCA, NoiselessPCA, NoiselessScale, NoiselessImpute):

        def fit(self, rows, context=None, *, _real=stage.fit):
            _real(self, rows, context)
            for name in PRIVATE:
                values = np.ravel(np.asarray(vars(self).get(name, 0.0), dtype=float))
                learned.update(float(v) for v in values if np.isfinite(v) and v % 1)
            return self

        monkeypatch.setattr(stage, "fit", fit)
    return learned


def fitted(stages, gaps=0.0, **settings):
    rows, labels = table(gaps=gaps)
    settings = {"epsilon": 2.0, "delta": 1e-5, "trainer": QUICK, **settings}
    return DPLinearClassifier(stages=stages, **settings).fit(rows, labels)


@pytest.mark.parametrize("name", PLANS)
def test_nothing_that_a_plain_stage_learned_leaves_the_plan(name, seen, tmp_path):
    stages, gaps = PLANS[name]
    model = fitted(stages, gaps)
    assert len(seen) > 2
    blob = pickle.dumps(model)
    tacit.save(model, tmp_path / "model")
    blob += (tmp_path / "model").read_bytes()
    text = model.certificate_.to_json() + json.dumps(model.plan_.to_dict()) + model.plan_.explain()
    for value in seen:
        for sign in (value, -value):
            assert struct.pack("<d", sign) not in blob
            assert repr(sign).lstrip("-") not in text


@pytest.mark.parametrize("name", PLANS)
def test_the_model_holds_no_plain_stage(name):
    stages, gaps = PLANS[name]
    model = fitted(stages, gaps)
    assert not any(isinstance(stage, NoiselessStage) for stage in model.stages_)
    assert model.certificate_.neighbors == "replace_one"
    assert model.certificate_.verify().holds
    for given in stages:  # the caller's own stages stay as they were
        assert set(vars(given)) == {field.name for field in fields(given)}
    complete = np.nan_to_num(table()[0])
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(complete) == model.predict(complete)).all()


def test_the_spy_would_find_a_basis_that_is_kept(seen, monkeypatch):
    """So what is not found above is not there."""
    kept = []
    real = SoftPCA.apply

    def apply(self, chunk):
        kept.append(self._basis)
        return real(self, chunk)

    monkeypatch.setattr(SoftPCA, "apply", apply)
    model = fitted([ClipNorm(1.0), SoftPCA(0.05)])
    model.kept_ = kept[-1]
    blob = pickle.dumps(model)
    assert any(struct.pack("<d", value) in blob for value in seen)


@pytest.mark.parametrize(
    "stage", [SoftPCA(), NoiselessPCA(1, gap=0.1), NoiselessScale(), NoiselessImpute()]
)
def test_what_a_plain_stage_learned_cannot_be_written_to_a_file(stage):
    with pytest.raises(InputError, match="never written"):
        stage.arrays()


def test_a_fit_is_coefficients_stages_a_certificate_and_the_plan():
    """Whoever adds to it must think about what it gives away."""
    known = ["coef", "intercept", "stages", "certificate", "plan", "public_stages", "target"]
    assert [f.name for f in fields(Fit)] == known  # stages as fitted, noiseless ones as given
    assert [f.name for f in fields(TargetFacts)] == ["classes", "bounds"]  # what was released
    labels = np.repeat(["a", "b"], 2000)
    rows = np.where(labels == "a", 1.0, -1.0)[:, None]
    model = DPLinearClassifier(classes="private", random_state=0).fit(rows, labels)
    assert len(pickle.dumps(model)) < labels.nbytes / 2  # no label of a row is kept


def test_scales_for_prediction_are_noisy_and_counted(monkeypatch):
    released = []
    real = NoiselessScale.release

    def release(self, rows, context):
        noisy = real(self, rows, context)
        released.append((self._mean, self._scale, noisy.mean_, noisy.scale_))
        return noisy

    monkeypatch.setattr(NoiselessScale, "release", release)
    model = fitted([ClipNorm(1.0), NoiselessScale(0.1)])
    spent = [event["stage"] for event in model.certificate_.to_dict()["events"]]
    assert spent == ["NoiselessScale", "DPGD"]
    fitted([ClipNorm(1.0), NoiselessScale(0.1)])
    (mean, scale, *first), (*_, mean_again, scale_again) = released
    assert (first[0] != mean).all() and (first[1] != scale).all()
    assert (first[0] != mean_again).all() and (first[1] != scale_again).all()
    assert first[1] == pytest.approx(scale, rel=0.2)


# A test that fails


def failing(rows, labels):
    with pytest.raises(PrivateTestError) as raised:
        DPLinearClassifier(
            stages=[ClipNorm(1.0), NoiselessPCA(1, gap=0.9)], trainer=QUICK, epsilon=1.0
        ).fit(rows, labels)
    return raised.value


def test_a_failed_test_tells_that_it_failed_and_what_it_cost():
    errors = [failing(*table(seed)) for seed in (1, 2)]
    told = [error.certificate.to_dict() for error in errors]
    for error, certificate in zip(errors, told, strict=True):
        assert set(vars(error)) == {"certificate"}
        assert error.args == (str(error),)
        assert error.__cause__ is None and error.__context__ is None
        for key in ("created", "digest"):
            certificate.pop(key, None)
    assert str(errors[0]) == str(errors[1])
    assert told[0] == told[1]
    assert errors[0].certificate.verify().holds
    spent = {event["stage"] for event in told[0]["events"]}
    assert spent == {"Test", "DPGD"}


class Crashing(NoiselessPCA):
    """A stage that cannot run on these rows, and would say why."""

    def fit(self, rows, context=None):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")


def test_a_stage_that_cannot_run_fails_the_test_like_any_other():
    """Were it to show, "failed" would be two outcomes, one of which a neighbour cannot have."""
    rows, labels = table()
    usual = failing(rows, labels)
    with pytest.raises(PrivateTestError) as raised:
        DPLinearClassifier(
            stages=[ClipNorm(1.0), Crashing(1, gap=0.9)], trainer=QUICK, epsilon=1.0
        ).fit(rows, labels)
    assert str(raised.value).replace("Crashing", "NoiselessPCA") == str(usual)
    assert raised.value.__cause__ is None and raised.value.__context__ is None


def test_a_failed_test_leaves_no_half_fitted_model():
    rows, labels = table()
    model = DPLinearClassifier(stages=[ClipNorm(1.0), NoiselessPCA(1, gap=0.9)], trainer=QUICK)
    with pytest.raises(PrivateTestError):
        model.fit(rows, labels)
    assert not any(name.startswith("coef") for name in vars(model))
    assert not hasattr(model, "plan_") and not hasattr(model, "stages_")


def test_more_rows_with_gaps_than_declared_fail_the_test():
    with pytest.raises(PrivateTestError):
        fitted([ClipNorm(1.0), NoiselessImpute("mean", rows_with_gaps=5)], gaps=0.5)


@pytest.mark.parametrize("strategy", ["mean", "trimmed-mean", "median"])
def test_a_column_without_any_value_fails_the_test_instead_of_crashing(strategy):
    rows, labels = table()
    rows[:, 2] = np.nan
    stage = NoiselessImpute(strategy, rows_with_gaps=5, median_change=0.5)
    with pytest.raises(PrivateTestError):
        DPLinearClassifier(stages=[ClipNorm(1.0), stage], trainer=QUICK).fit(rows, labels)


@pytest.mark.parametrize("strategy", ["shrunk-mean", "ridge"])
def test_strategies_that_hold_for_any_rows_hold_for_an_empty_column(strategy):
    rows, labels = table()
    rows[:, 2] = np.nan
    stage = NoiselessImpute(strategy, columns=[2], at_prediction=0.0)
    model = DPLinearClassifier(stages=[ClipNorm(1.0), stage], trainer=QUICK).fit(rows, labels)
    assert np.isfinite(model.coef_).all()
    assert len(model.predict(rows)) == N


def test_rows_that_no_regression_can_be_fitted_to_fail_the_test():
    rows, labels = table(gaps=0.1)
    rows[:, [0, 1, 3, 4]] = 0.0
    stage = NoiselessImpute("regression", columns=[2], floor=0.01)
    with pytest.raises(PrivateTestError):
        DPLinearClassifier(stages=[ClipNorm(1.0), stage], trainer=QUICK).fit(rows, labels)


def test_constant_columns_fail_the_test_of_their_variance():
    rows, labels = table()
    rows[:, 3] = 0.25
    with pytest.raises(PrivateTestError):
        DPLinearClassifier(stages=[ClipNorm(1.0), NoiselessScale(floor=0.01)], trainer=QUICK).fit(
            rows, labels
        )


# What is refused, before any row is read


def refused(stages, match, error=InputError, **settings):
    rows, labels = table()
    with pytest.raises(error, match=match):
        DPLinearClassifier(stages=stages, **{"trainer": QUICK, **settings}).fit(rows, labels)


def test_a_gap_that_no_rows_can_have_is_refused():
    refused([ClipNorm(1.0), NoiselessPCA(2, gap=0.6)], "cannot have an eigengap above 0.5")
    refused([ClipNorm(1.0), NoiselessScale(floor=1.5)], "cannot all vary that much")


def test_a_projection_that_keeps_everything_is_refused():
    for k in (D, D + 3):
        refused([ClipNorm(1.0), NoiselessPCA(k, gap=0.01)], "no projection")


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_components_must_be_counted(k):
    with pytest.raises(InputError, match="n_components"):
        NoiselessPCA(k, gap=0.1)


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf")])
def test_a_radius_must_be_positive(radius):
    with pytest.raises(InputError, match="radius"):
        ClipNorm(radius)
    with pytest.raises(InputError, match="radius"):
        NoiselessScale(radius=radius)


@pytest.mark.parametrize("strength", [0.0, -1.0, float("nan")])
def test_a_strength_must_be_positive(strength):
    for stage in (SoftPCA, NoiselessScale):
        with pytest.raises(InputError, match="strength"):
            stage(strength)
    with pytest.raises(InputError, match="strength"):
        NoiselessImpute("ridge", columns=[1], strength=strength)


def test_conditions_must_be_declared():
    with pytest.raises(MissingBound, match="gap"):
        NoiselessPCA(1)
    for strategy, missing in (("mean", "rows_with_gaps"), ("regression", "floor")):
        with pytest.raises(MissingBound, match=missing):
            NoiselessImpute(strategy, columns=[0])
    with pytest.raises(MissingBound, match="median_change"):
        NoiselessImpute("median", rows_with_gaps=3)
    with pytest.raises(MissingBound, match="columns"):
        NoiselessImpute("ridge")


@pytest.mark.parametrize(
    "stage", [SoftPCA(), NoiselessPCA(1, gap=0.1), NoiselessScale(), NoiselessImpute("shrunk-mean")]
)
def test_rows_without_a_bound_are_refused(stage):
    refused([stage, ClipNorm(1.0)], "needs a public bound", MissingBound)


@pytest.mark.parametrize("neighbors", ["replace_special", "add_or_remove_one"])
def test_relations_that_are_not_analysed_are_refused(neighbors):
    refused([ClipNorm(1.0), SoftPCA()], "must be 'replace_one'", neighbors=neighbors, public_size=N)


def test_what_tears_rows_apart_cannot_follow_a_plain_stage():
    refused([ClipNorm(1.0), SoftPCA(), Normalize()], "may tear apart")
    refused([ClipNorm(1.0), NoiselessScale(), Normalize()], "may tear apart")


def test_a_test_must_come_before_any_release():
    for release in (PrivateCenter(), PrivateScale(), PrivateEqualize(), NoiselessScale()):
        refused(
            [ClipNorm(1.0), release, ClipNorm(1.0), NoiselessPCA(1, gap=0.1)],
            "must come before any release",
        )


def test_gaps_must_be_filled_before_columns_mix():
    rows, labels = table(gaps=0.1)
    for early in (SoftPCA(), NoiselessScale()):
        with pytest.raises(InputError, match="cannot pass over missing values"):
            DPLinearClassifier(stages=[ClipNorm(1.0), early, NoiselessImpute()]).fit(rows, labels)
    with pytest.raises(InputError, match="NaN or infinity"):
        DPLinearClassifier(stages=[ClipNorm(1.0), SoftPCA()]).fit(rows, labels)


def test_a_median_on_rows_that_moved_is_refused_by_its_rule():
    from tacit.privacy.sensitivity.drift import Drift

    stage = NoiselessImpute("median", rows_with_gaps=3, median_change=0.1)
    with pytest.raises(InputError, match="before any other noiseless stage"):
        stage.drift(Drift(1.0, 0.1, 0.1, 1), 100, 3)


def test_a_kinked_loss_is_refused_on_batches_and_pays_on_all_rows():
    stages = [ClipNorm(1.0), SoftPCA()]
    refused(stages, "full batches", loss="hinge", trainer=DPSGD(steps=3, batch_size=100))
    model = fitted(stages, loss="hinge")
    assert model.certificate_.verify().holds
    drift = model.plan_.moves.drift
    clip = float(model.plan_.trainer.clip)
    paid = model.plan_.moves.distance(0.0, clip)
    assert paid == pytest.approx(drift.l0 * 2 * clip, rel=1e-6)


def test_targets_that_are_no_numbers_are_refused():
    rows, labels = table()
    stages = [ClipNorm(1.0), SoftPCA()]
    targets = labels.astype(float)
    targets[7] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        DPLinearRegressor(stages=stages, target_bounds=(0, 1), trainer=QUICK).fit(rows, targets)
    with pytest.raises(ValueError, match=r"NaN|label"):
        DPLinearClassifier(stages=stages, trainer=QUICK).fit(rows, targets)


def test_rows_to_predict_take_a_public_constant_or_are_refused():
    rows, _ = table(gaps=0.2)
    stage = NoiselessImpute("shrunk-mean")
    model = fitted([ClipNorm(1.0), stage], gaps=0.2)
    assert model.stages_[-1] == FillGaps(None)
    with pytest.raises(InputError, match="missing values"):
        model.predict(rows)


def test_a_regressor_behind_plain_stages_works_as_well():
    rows, labels = table()
    model = DPLinearRegressor(
        epsilon=4.0, target_bounds=(0, 1), stages=[ClipNorm(1.0), SoftPCA()], trainer=QUICK
    ).fit(rows, labels)
    assert model.certificate_.verify().holds
