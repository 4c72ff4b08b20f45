"""The estimators as people meet them: data in, models and certificates out."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from tests.seam import paid

from tacit import DPLinearClassifier, DPLinearRegressor
from tacit.data.rows import as_rows
from tacit.datasets import load_adult
from tacit.exceptions import BudgetError, InputError, MissingBound, SchemaError
from tacit.losses import Hinge, Huber, Logistic, Tempered, clipped
from tacit.mechanisms.random_streams import Key
from tacit.preprocessing import (
    Bound,
    ClipNorm,
    Encode,
    Normalize,
    PrivateCenter,
    PrivateEqualize,
    PublicPCA,
    PublicScale,
    RandomProjection,
    SoftPCA,
    Stage,
)
from tacit.research.trainers import LocalDPGD
from tacit.trainers import DPGD, DPSGD

QUICK = DPGD(steps=3)
STEADY = DPGD(steps=100, learning_rate=1.0, clip=0.1)
N, D = 400, 5
RNG = np.random.default_rng(0)
KIND = RNG.integers(0, 3, N)
CENTERS = np.array([[2, 0, 0, 0, 0], [0, 2, 0, 0, 0], [0, 0, 2, 0, 0]], dtype=float)
X = CENTERS[KIND] + 0.5 * RNG.normal(size=(N, D))
TWO = (KIND > 0).astype(int)
TARGET = X @ [3.0, -2.0, 0.0, 1.0, 0.0] / np.linalg.norm(X, axis=1)
TASKS = {
    "two classes": (DPLinearClassifier, TWO, {}),
    "three classes": (DPLinearClassifier, KIND, {}),
    "numbers": (DPLinearRegressor, TARGET, {"target_bounds": (-5, 5)}),
}
PIPELINES = {
    "auto": "auto",
    "clip": [ClipNorm(2.0)],
    "bound": [Bound(-4, 4), ClipNorm(1.0)],
    "pca": [Normalize(), PublicPCA(X[:50].copy(), 3)],
    "projection": [Normalize(), RandomProjection(4), PrivateCenter()],
    "centred": [ClipNorm(3.0), PrivateCenter(0.2)],
    "unfoldable": [ClipNorm(3.0), PublicPCA(X[:50].copy(), 3), Normalize()],
    "scale": [PublicScale(X[:50].copy()), ClipNorm(2.0), PrivateCenter()],
}


@pytest.fixture(params=TASKS.values(), ids=TASKS)
def task(request):
    """A kind of estimator, ready to take more options, and its target."""
    cls, target, options = request.param
    return (lambda **more: cls(**{"trainer": QUICK, **options, **more})), target


def classifier(**options):
    return DPLinearClassifier(**{"trainer": QUICK, **options})


def seen(model, rows):
    """Rows as the coefficients meet them."""
    for stage in model.stages_:
        rows = stage.transform(rows)
    return rows


# What can be given


def test_defaults_learn():
    assert DPLinearClassifier(random_state=0).fit(X, TWO).score(X, TWO) > 0.9
    assert DPLinearClassifier(random_state=0).fit(X, KIND).score(X, KIND) > 0.9


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_defaults_learn_numbers(epsilon):
    rows, target = np.tile(X, (25, 1)), np.tile(TARGET, 25)
    scores = [
        DPLinearRegressor(epsilon, target_bounds=(-5, 5), random_state=seed)
        .fit(rows, target)
        .score(rows, target)
        for seed in range(3)
    ]
    assert min(scores) > 0.8


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.csc_array, sp.coo_array])
@pytest.mark.parametrize("stages", ["default", "even", "clip", "pca", "projection"])
def test_sparse_rows_give_the_model_of_dense_ones(form, stages, task):
    make, target = task
    known = {
        "default": [Normalize(), PrivateCenter()],
        "even": [Normalize(), PrivateEqualize(0.2), Normalize(), PrivateCenter(0.12)],
    }
    chosen = known.get(stages) or PIPELINES[stages]
    rows = np.where(np.abs(X) > 0.6, X, 0.0)
    dense = make(stages=chosen, random_state=1).fit(rows, target)
    sparse = make(stages=chosen, random_state=1).fit(form(rows), target)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(dense.predict(form(rows)), dense.predict(rows))


def test_any_numbers_will_do(task):
    make, target = task
    rows = np.round(4 * X)
    reference = make(random_state=1).fit(rows, target)
    for dtype in (np.float32, np.int8, np.int64, object):
        model = make(random_state=1).fit(rows.astype(dtype), target)
        np.testing.assert_array_equal(model.coef_, reference.coef_)
    model = make(random_state=1).fit(np.asfortranarray(rows), list(target))
    np.testing.assert_array_equal(model.coef_, reference.coef_)


def test_frames_of_numbers_keep_their_names(task):
    make, target = task
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = make(random_state=1).fit(frame, pd.Series(target))
    np.testing.assert_array_equal(model.coef_, make(random_state=1).fit(X, target).coef_)
    assert model.feature_names_in_.tolist() == list("abcde")
    assert model.get_feature_names_out().tolist() == list("abcde")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("edcba")])


LABELS = {
    "strings": np.array(["no", "yes"]),
    "objects": np.array(["no", "yes"], dtype=object),
    "integers": np.array([-1, 7]),
    "booleans": np.array([False, True]),
    "floats": np.array([0.0, 2.0]),
}


@pytest.mark.parametrize("names", LABELS.values(), ids=LABELS)
def test_labels_of_any_kind(names):
    model = DPLinearClassifier(random_state=0).fit(X, names[TWO])
    assert model.classes_.tolist() == names.tolist()
    assert set(model.predict(X)) <= set(names)
    assert model.score(X, names[TWO]) > 0.9
    series = DPLinearClassifier(random_state=0).fit(X, pd.Series(names[TWO]))
    np.testing.assert_array_equal(series.coef_, model.coef_)


def test_given_classes_need_not_all_occur():
    model = classifier(classes=["c", "a", "b"]).fit(X, np.array(["a", "b"])[TWO])
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.coef_.shape == (3, D)
    assert model.predict_proba(X).shape == (N, 3)
    assert "the set of labels was given in advance" in model.certificate_.assumptions
    found = classifier().fit(X, TWO).certificate_.assumptions
    assert "the set of labels was read from the data and is taken as public" in found


def test_one_class_is_enough_if_the_others_are_named():
    model = classifier(classes=[0, 1]).fit(X, np.zeros(N, dtype=int))
    assert model.classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("classes", "labels"),
    [([0, 2], TWO), (["0", "1"], TWO), ([0, 1], TWO.astype(str)), (["a", "b"], KIND)],
)
def test_labels_that_were_not_named_are_refused(classes, labels):
    with pytest.raises(InputError, match=r"y holds a label that is not in classes="):
        classifier(classes=classes).fit(X, labels)


# What comes out


@pytest.mark.parametrize("stages", PIPELINES.values(), ids=PIPELINES)
def test_scores_are_linear_in_the_rows_that_the_kept_stages_give(stages, task):
    make, target = task
    model = make(stages=stages).fit(X, target)
    scores = seen(model, X) @ np.atleast_2d(model.coef_).T + model.intercept_
    got = getattr(model, "decision_function", model.predict)(X)
    np.testing.assert_allclose(got, scores if scores.shape[1] > 1 else scores[:, 0], rtol=1e-9)
    if len(scores.T) > 1:
        assert model.predict(X).tolist() == model.classes_[scores.argmax(axis=1)].tolist()


BOUNDED = ("savage", "tangent", "tempered")


@pytest.mark.parametrize("loss", ["auto", "logistic", "softmax", "hinge", "huber-hinge", *BOUNDED])
def test_shapes_are_those_of_scikit_learn(loss):
    for labels, outputs in ((TWO, 1), (KIND, 3)):
        model = classifier(loss=loss).fit(X, labels)
        assert model.coef_.shape == (outputs, D)
        assert model.intercept_.shape == (outputs,)
        assert model.decision_function(X).shape == ((N,) if outputs == 1 else (N, 3))
        assert model.n_features_in_ == D
    number = DPLinearRegressor(target_bounds=(-5, 5), trainer=QUICK).fit(X, TARGET)
    assert number.coef_.shape == (D,)
    assert isinstance(number.intercept_, float)


@pytest.mark.parametrize(
    "stages",
    [
        [Normalize(), PublicPCA(X[:50].copy(), 2)],
        [Normalize(), RandomProjection(2)],
        [Normalize(), PrivateCenter(shrink=False)],
        [Normalize(), RandomProjection(3), PrivateCenter(shrink=False)],
    ],
    ids=["pca", "projection", "centre", "both"],
)
def test_affine_stages_fold_into_the_coefficients(stages, task):
    make, target = task
    model = make(stages=stages, fit_intercept=False).fit(X, target)
    assert [stage.name for stage in model.stages_] == ["Normalize"]
    assert np.atleast_2d(model.coef_).shape[1] == D
    assert model.get_feature_names_out().tolist() == [f"x{i}" for i in range(D)]
    if isinstance(stages[-1], PrivateCenter):
        assert np.all(model.intercept_)  # the mean's share, though no intercept was fitted


def test_coefficients_after_public_pca_lie_in_its_components():
    public = X[:50] / np.linalg.norm(X[:50], axis=1, keepdims=True)
    model = classifier(stages=[Normalize(), PublicPCA(X[:50].copy(), 2)]).fit(X, KIND)
    _, _, components = np.linalg.svd(public, full_matrices=False)
    inside = model.coef_ @ components[:2].T @ components[:2]
    np.testing.assert_allclose(model.coef_, inside, atol=1e-6)


def test_coefficients_without_names_are_numbered():
    frame = pd.DataFrame(X, columns=list("abcde"))
    stages = [ClipNorm(3.0), PublicPCA(frame.copy(), D), Normalize()]
    model = classifier(stages=stages).fit(frame, TWO)
    assert model.coef_.shape == (1, D)  # as many components as columns, and none of them a column
    assert model.get_feature_names_out().tolist() == ["x0", "x1", "x2", "x3", "x4"]


def test_without_an_intercept_there_is_none(task):
    make, target = task
    model = make(stages=[Normalize()], fit_intercept=False).fit(X, target)
    assert not np.any(model.intercept_)


@pytest.mark.parametrize("labels", [TWO, KIND], ids=["two", "three"])
@pytest.mark.parametrize(
    "loss", ["auto", "logistic", "softmax", Logistic(), "savage", Tempered(0.2)], ids=str
)
def test_probabilities_agree_with_the_labels(loss, labels):
    model = classifier(loss=loss).fit(X, labels)
    chances = model.predict_proba(X)
    assert chances.shape == (N, len(model.classes_))
    assert (chances >= 0).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert model.classes_[chances.argmax(axis=1)].tolist() == model.predict(X).tolist()


def test_softmax_of_two_classes_is_the_logistic_function_of_their_difference():
    model = classifier(loss="softmax").fit(X, TWO)
    np.testing.assert_allclose(
        model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-model.decision_function(X)))
    )


@pytest.mark.parametrize(
    "stages", [[Normalize(), SoftPCA(0.05)], [Normalize()]], ids=["plain", "free"]
)
@pytest.mark.parametrize("loss", [*BOUNDED, clipped("logistic", 0.2)], ids=str)
def test_losses_that_are_not_convex_learn_as_well(loss, stages):
    """Also behind a noiseless stage, on full batches and on samples: their constants are known."""
    rows = np.random.default_rng(0).normal(size=(2000, 3))
    y = rows[:, 0] > 0
    trainers = {20.0: DPGD(steps=40, learning_rate=1.0, momentum=0.0, clip=0.5)}
    if loss == "tempered" and len(stages) == 2:  # sampled steps take long to account for
        trainers[3.0] = DPSGD(steps=5, batch_size=400, learning_rate=4.0, clip=0.5)
    for epsilon, trainer in trainers.items():
        model = DPLinearClassifier(epsilon, 1e-3, stages=stages, trainer=trainer, loss=loss)
        model.set_params(arithmetic="fast", random_state=1)
        assert model.fit(rows, y).score(rows, y) > 0.8


def test_probabilities_follow_the_link_of_the_loss():
    model = classifier(loss="savage").fit(X, TWO)
    expected = 1 / (1 + np.exp(-2 * model.decision_function(X)))
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected)


@pytest.mark.parametrize("loss", ["hinge", "huber-hinge", Hinge(), "tangent"], ids=str)
def test_there_are_no_probabilities_without_a_likelihood(loss):
    model = classifier(loss=loss)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model.fit(X, TWO), "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        model.predict_proba(X)


def test_an_unknown_loss_has_no_probabilities_either():
    assert hasattr(DPLinearClassifier(), "predict_proba")
    assert not hasattr(DPLinearClassifier(loss="?"), "predict_proba")


def test_regression_comes_back_in_the_units_of_the_target():
    rows, target = np.tile(X, (25, 1)), np.tile(1000 + 100 * TARGET, 25)
    model = DPLinearRegressor(target_bounds=(500, 1500), trainer=STEADY, random_state=0)
    model.fit(rows, target)
    assert 900 < model.predict(rows).mean() < 1100
    assert model.score(rows, target) > 0.8


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", Huber(0.5)], ids=str)
def test_losses_of_regression(loss):
    rows, target = np.tile(X, (25, 1)), np.tile(TARGET, 25)
    model = DPLinearRegressor(target_bounds=(-5, 5), loss=loss, trainer=STEADY, random_state=0)
    assert model.fit(rows, target).score(rows, target) > 0.8


def test_progress_can_be_shown(capsys):
    classifier(verbose=True).fit(X, TWO)
    assert capsys.readouterr().out == ""


# As scikit-learn's tools see them


def test_cloning_and_copying(task):
    make, target = task
    model = make(stages=[Normalize(), PublicPCA(X[:50].copy(), 3)], random_state=0)
    again = clone(model)
    assert again.stages is not model.stages
    fitted = model.fit(X, target)
    np.testing.assert_array_equal(again.fit(X, target).coef_, fitted.coef_)
    assert not hasattr(clone(fitted), "coef_")
    for twin in (copy.copy(fitted), copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        assert twin.predict(X).tolist() == fitted.predict(X).tolist()
        assert twin.certificate_ == fitted.certificate_
        assert twin.plan_.explain() == fitted.plan_.explain()


def test_grid_search():
    grid = {
        "epsilon": [0.5, 5.0],
        "stages": ["auto", [ClipNorm(2.0)], [Normalize(), PrivateCenter()]],
        "trainer": [DPGD(steps=2), DPGD(steps=20)],
    }
    search = GridSearchCV(DPLinearClassifier(random_state=0), grid, cv=2).fit(X, TWO)
    assert search.best_score_ > 0.85
    assert len(search.cv_results_["params"]) == 12
    assert search.best_estimator_.certificate_.epsilon in (0.5, 5.0)


def test_pipelines_and_cross_validation(task):
    make, target = task
    pipe = make_pipeline(FunctionTransformer(np.tanh), make(trainer="auto", random_state=0))
    assert np.isfinite(cross_val_score(pipe, X, target, cv=2)).all()
    frame = pd.DataFrame(X, columns=list("abcde"))
    assert pipe.fit(frame, target).predict(frame).shape == (N,)


def test_fitting_leaves_the_parameters_alone(task):
    make, target = task
    stages = [Normalize(), PublicPCA(X[:50].copy(), 3), RandomProjection(2), PrivateCenter()]
    trainer = DPGD(steps=2)
    model = make(stages=stages, trainer=trainer)
    before = model.get_params()
    inside = [dict(vars(stage)) for stage in stages]
    model.fit(X, target)
    assert all(model.get_params()[name] is value for name, value in before.items())
    assert [vars(stage).keys() for stage in stages] == [dict.keys(names) for names in inside]
    assert stages[1].fingerprint is None
    assert trainer == DPGD(steps=2)


def test_fitting_again_starts_anew():
    model = classifier(stages=[Encode(SCHEMA), Normalize()]).fit(TABLE, ILL)
    assert model.feature_names_in_.tolist() == ["age", "dose", "ward", "smokes"]
    model.set_params(stages="auto").fit(X, KIND)
    assert model.coef_.shape == (3, D)
    assert not hasattr(model, "feature_names_in_")
    assert model.get_feature_names_out().tolist() == ["x0", "x1", "x2", "x3", "x4"]


def test_nothing_is_predicted_before_fitting(task):
    make, _ = task
    for call in ("predict", "decision_function", "predict_proba", "get_feature_names_out"):
        if hasattr(make(), call):
            with pytest.raises(NotFittedError):
                getattr(make(), call)(X)


# Certificates and randomness


def test_a_fit_carries_its_plan_and_certificate(task):
    make, target = task
    model = make(epsilon=0.7, delta=1e-6).fit(X, target)
    claim = model.certificate_
    assert (claim.epsilon, claim.delta, claim.neighbors) == (0.7, 1e-6, "replace_special")
    assert claim.releasable and not claim.warnings
    moment = ["PrivatePrecondition"] if model.plan_.facts.moment_noise else []  # of two classes
    assert [expense.stage for expense in claim.events] == ["PrivateCenter", *moment, "DPGD"]
    assert [expense.event for expense in claim.events] == [event for _, event in model.plan_.spent]
    assert claim.plan["rows"] == N
    assert claim.verify().holds
    assert "DPGD" in model.plan_.explain()


def test_a_seed_repeats_a_run_and_forbids_its_release(task):
    make, target = task
    first, second = (make(random_state=3).fit(X, target) for _ in range(2))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert not first.certificate_.releasable
    assert first.certificate_.reasons == ("seeded: not for release",)
    assert np.any(make(random_state=4).fit(X, target).coef_ != first.coef_)


def test_without_a_seed_no_two_runs_are_alike(task):
    make, target = task
    first, second = (make().fit(X, target) for _ in range(2))
    assert np.all(first.coef_ != second.coef_)


@pytest.mark.parametrize(
    "source", [lambda: 7, lambda: np.int64(7), lambda: np.random.RandomState(7)]
)
def test_sources_of_seeds(source):
    first, second = (classifier(random_state=source()).fit(X, TWO) for _ in range(2))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert not first.certificate_.releasable


def test_a_generator_gives_a_new_seed_each_time():
    generator = np.random.default_rng(7)
    first, second = (classifier(random_state=generator).fit(X, TWO) for _ in range(2))
    assert np.any(first.coef_ != second.coef_)
    assert not second.certificate_.releasable


@pytest.mark.parametrize("neighbors", ["replace_special", "add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.1, 5.0])
@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_noise_has_the_size_that_was_calibrated(epsilon, neighbors, arithmetic):
    """Rows of zeros give gradients of zero: all that is left is noise."""
    steps, size, d = 4, 50, 3000
    trainer = DPGD(steps, learning_rate=2.0, clip=0.3, momentum=0.0, schedule="constant")
    model = DPLinearClassifier(
        epsilon,
        stages=[Normalize()],
        trainer=trainer,
        neighbors=neighbors,
        public_size=size,
        arithmetic=arithmetic,
        fit_intercept=False,
        random_state=0,
    ).fit(np.zeros((size, d)), np.arange(size) % 2)
    noise = model.plan_.noise_multiplier
    # Balle & Wang 2018, Theorem 8, with the sensitivity of the relation.
    mu = math.sqrt(steps) * (2 if neighbors == "replace_one" else 1) / noise
    tail = math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) / 2
    other = math.erfc((epsilon / mu + mu / 2) / math.sqrt(2)) / 2
    assert tail - math.exp(epsilon) * other == pytest.approx(1e-5, rel=0.01)
    expected = 2.0 * math.sqrt(steps) * noise * 0.3 / size
    assert model.coef_.std() == pytest.approx(expected, rel=0.05)
    assert abs(model.coef_.mean()) < 4 * expected / math.sqrt(d)


def test_a_smaller_epsilon_costs_accuracy():
    labels = np.where(RNG.random(N) < 0.1, 1 - TWO, TWO)

    def score(epsilon):
        models = [DPLinearClassifier(epsilon, random_state=seed) for seed in range(3)]
        return np.mean([model.fit(X, labels).score(X, TWO) for model in models])

    assert score(0.01) < 0.85 < score(3.0)


def test_fast_arithmetic_is_written_down(task):
    make, target = task
    claim = make(arithmetic="fast").fit(X, target).certificate_
    assert any("ideal arithmetic assumed" in said for said in claim.assumptions)
    assert claim.plan["arithmetic"] == "fast"
    assert claim.numerical_delta == 0
    exact = make().fit(X, target).certificate_
    assert not any("ideal arithmetic" in said for said in exact.assumptions)
    assert exact.plan["arithmetic"] == "exact"
    assert exact.numerical_delta > 0


def test_a_large_delta_is_warned_of_in_the_certificate(task):
    make, target = task
    claim = make(delta=0.01).fit(X, target).certificate_
    assert len(claim.warnings) == 1
    assert "larger than one over the number of rows" in claim.warnings[0]


def test_the_number_of_rows_can_stay_private(task, counted):
    make, target = task
    model = make(neighbors="add_or_remove_one", public_size=500).fit(X, target)
    text = model.certificate_.to_json()
    assert model.certificate_.plan["rows"] == 500
    assert "the normaliser 500 was chosen" in text
    assert f" {N}," not in text
    fewer = make(neighbors="add_or_remove_one", public_size=500).fit(X[:300], target[:300])
    assert counted(fewer.plan_) == counted(model.plan_)


def test_the_plan_depends_on_public_facts_only(task, counted):
    make, target = task
    model = make().fit(X, target)
    other = make().fit(1e6 * RNG.random((N, D)), target[::-1])
    assert counted(other.plan_) == counted(model.plan_)


# Tables

M = 600
AGE, DOSE = RNG.uniform(0, 100, M), RNG.uniform(0, 10, M)
ILL = np.where(AGE / 10 - DOSE > 0, "yes", "no")
TABLE = {
    "age": AGE,
    "dose": np.where(RNG.random(M) < 0.05, np.nan, DOSE),
    "ward": RNG.choice(["east", "west", "?"], M),
    "smokes": RNG.random(M) < 0.3,
}
SCHEMA = {
    "columns": {
        "age": {"kind": "number", "low": 0, "high": 100},
        "dose": {"kind": "number", "low": 0, "high": 10, "missing": "indicator"},
        "ward": {"kind": "category", "categories": ["east", "west"], "missing": "level"},
        "smokes": {"kind": "category", "categories": ["true", "false"]},
    }
}


def frame(**changes):
    return pd.DataFrame({**TABLE, **changes})


def of_tables(**options):
    return DPLinearClassifier(stages=[Encode(SCHEMA), Normalize(), PrivateCenter()], **options)


def test_frames_of_mixed_types_end_to_end():
    model = of_tables(epsilon=3.0, random_state=0).fit(frame(), pd.Series(ILL))
    assert model.score(frame(), ILL) > 0.9
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == list(TABLE)
    assert model.get_feature_names_out().tolist() == Encode(SCHEMA).feature_names
    assert model.coef_.shape == (1, len(Encode(SCHEMA).feature_names))
    assert model.certificate_.plan["columns"] == 4
    assert set(model.predict(frame().head(7))) <= {"yes", "no"}


def test_the_same_table_in_other_clothes():
    model = of_tables(random_state=0).fit(frame(), ILL)
    categorical = frame().astype({"ward": "category", "dose": "Float64", "smokes": "boolean"})
    shuffled = frame()[["smokes", "ward", "dose", "age"]]
    others = [dict(TABLE), categorical, shuffled, pytest.importorskip("pyarrow").table(frame())]
    for table in others:
        other = of_tables(random_state=0).fit(table, ILL)
        np.testing.assert_array_equal(other.coef_, model.coef_)
        assert model.predict(table).tolist() == model.predict(frame()).tolist()


def test_polars_frames():
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({name: np.asarray(values) for name, values in TABLE.items()})
    model = of_tables(random_state=0).fit(table, polars.Series(ILL))
    np.testing.assert_array_equal(model.coef_, of_tables(random_state=0).fit(frame(), ILL).coef_)


def test_regression_on_tables():
    model = DPLinearRegressor(
        epsilon=3.0, target_bounds=(0, 10), stages=[Encode(SCHEMA), ClipNorm(2.0)], random_state=0
    ).fit(frame(dose=DOSE), DOSE)
    assert model.score(frame(dose=DOSE), DOSE) > 0.8


def test_a_table_needs_its_columns_and_its_encoding():
    model = of_tables().fit(frame(), ILL)
    with pytest.raises(SchemaError, match="lacks columns of the schema: 'ward'"):
        model.predict(frame().drop(columns="ward"))
    with pytest.raises(SchemaError, match="does not name: 'name'"):
        of_tables().fit(frame(name="Ada"), ILL)
    of_tables().fit(frame(age="old"), ILL)  # no value of a cell stops a fit: it is a gap
    with pytest.raises(SchemaError, match="lacks columns of the schema"):
        of_tables().fit(X, TWO)
    with pytest.raises(InputError, match=r"rows are too few to find, .* Nothing was spent"):
        DPLinearClassifier(epsilon=0.01).fit(frame(), ILL)
    with pytest.raises(InputError, match="Encode must be the first stage"):
        classifier(stages=[Normalize(), Encode(SCHEMA)]).fit(frame(), ILL)
    with pytest.raises(InputError, match="there are no rows"):
        of_tables().fit(frame().head(0), ILL[:0])
    with pytest.raises(InputError, match="there are no rows"):
        model.predict(frame().head(0))


@pytest.mark.parametrize("labels", [ILL[:-1], None, np.stack([ILL, ILL], axis=1)])
def test_labels_must_match_the_table(labels):
    with pytest.raises(InputError, match=f"y must hold one value for each row: {M}"):
        of_tables().fit(frame(), labels)


def test_the_census_at_epsilon_one():
    train, test, schema = load_adult()
    rows, labels = train.drop("income"), train.column("income")
    stages = [Encode(schema), Normalize(), PrivateCenter()]
    scores = [
        DPLinearClassifier(1.0, 1e-5, stages=stages, classes=schema.classes, random_state=seed)
        .fit(rows, labels)
        .score(test.drop("income"), test.column("income"))
        for seed in range(3)
    ]
    assert np.mean(scores) >= 0.83


# Bounds are enforced, never trusted


class Liar(Stage):
    """Says that rows have norm 1 at most, and leaves them as they are."""

    kind = "free"

    def bound(self, radius, d=None):
        return 1.0

    def apply(self, chunk):
        return chunk


def one_step(rows, arithmetic="exact"):
    """One step at a rate of n, without momentum: minus the sum of clipped gradients, and noise."""
    trainer = DPGD(1, learning_rate=float(len(rows)), clip=0.25, momentum=0.0)
    model = DPLinearClassifier(
        stages=[Liar()],
        trainer=trainer,
        fit_intercept=False,
        arithmetic=arithmetic,
        random_state=0,
    )
    return model.fit(rows, np.arange(len(rows)) % 2).coef_[0]


@pytest.mark.parametrize("size", [1.0, 1e3, 1e9, 1e150, 1e300])
@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_a_row_above_the_declared_bound_counts_for_one_clip(size, arithmetic):
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    blank = one_step(np.vstack([np.zeros(D), rows[1:]]), arithmetic)
    for direction in (np.eye(D)[0], np.ones(D), np.array([1, -1, 1, -1, 1e-3])):
        attacked = one_step(np.vstack([size * direction, rows[1:]]), arithmetic)
        moved = float(np.linalg.norm(attacked - blank))
        assert moved <= 0.25 * (1 + (1e-9 if arithmetic == "exact" else 1e-4))
    assert moved > 0.2  # while it did count


def test_many_rows_above_the_bound_do_not_disturb_the_others():
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    attacked = rows.copy()
    attacked[:10] *= 1e12
    difference = one_step(attacked) - one_step(rows)
    assert np.linalg.norm(difference) <= 2 * 10 * 0.25


@pytest.mark.parametrize("stage", [ClipNorm(1.0), Normalize()], ids=lambda stage: stage.name)
@pytest.mark.parametrize("size", [2.0**10, 2.0**200, 2.0**1000])
def test_stages_clip_what_is_beyond_them(stage, size, task):
    make, target = task
    inside, outside = X.copy(), X.copy()
    inside[0], outside[0] = np.eye(D)[1], size * np.eye(D)[1]
    for stages in ([stage], [stage, PrivateCenter()]):
        expected = make(stages=stages, random_state=0).fit(inside, target)
        got = make(stages=stages, random_state=0).fit(outside, target)
        np.testing.assert_array_equal(got.coef_, expected.coef_)


def test_a_private_mean_trusts_no_bound_either():
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)

    def mean(first, seed=0):
        seen = Liar().through(as_rows(np.vstack([first, rows[1:]])))
        context = paid(N, Key.from_seed(seed), z=0.1)
        return PrivateCenter(shrink=False).fit(seen, context).mean_

    assert np.linalg.norm(mean(1e12 * np.ones(D)) - mean(np.zeros(D))) <= 1 / N
    assert np.linalg.norm(mean(-1e200 * np.eye(D)[0]) - mean(np.zeros(D))) <= 1 / N


def test_cells_beyond_their_schema_are_clamped():
    def fit(age):
        ages = AGE.copy()
        ages[0] = age
        return of_tables(random_state=0, trainer=QUICK).fit(frame(age=ages), ILL).coef_

    np.testing.assert_array_equal(fit(1e300), fit(100.0))
    np.testing.assert_array_equal(fit(-np.inf), fit(0.0))


def test_targets_beyond_their_bounds_are_clamped():
    def fit(first):
        target = TARGET.copy()
        target[0] = first
        return DPLinearRegressor(target_bounds=(-1, 1), random_state=0).fit(X, target).coef_

    np.testing.assert_array_equal(fit(1e308), fit(1.0))
    np.testing.assert_array_equal(fit(-1e9), fit(-1.0))


# What is refused, and in which words


def spoiled(value):
    rows = X.copy()
    rows[7, 2] = value
    return rows


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_must_be_finite(value, task):
    make, target = task
    for rows in (spoiled(value), sp.csr_array(spoiled(value)), pd.DataFrame(spoiled(value))):
        with pytest.raises(InputError, match="contain NaN or infinity"):
            make().fit(rows, target)
        with pytest.raises(InputError, match="contain NaN or infinity"):
            make().fit(X, target).predict(rows)


def test_targets_must_be_finite():
    for value in (np.nan, np.inf):
        target = np.append(TARGET[:-1], value)
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            DPLinearRegressor(target_bounds=(-5, 5)).fit(X, target)
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            DPLinearRegressor(target_bounds=(0, 10), stages=[Encode(SCHEMA), Normalize()]).fit(
                frame(), np.append(DOSE[:-1], value)
            )
        with pytest.raises(ValueError, match="NaN"):
            classifier().fit(X, np.where(TWO, np.nan, 1.0))


def test_there_must_be_rows_and_columns(task):
    make, target = task
    with pytest.raises(ValueError, match="0 sample"):
        make().fit(X[:0], target[:0])
    with pytest.raises(ValueError, match="0 feature"):
        make().fit(X[:, :0], target)
    with pytest.raises(ValueError, match="1D array"):
        make().fit(X[0], target)
    with pytest.raises(ValueError, match="one value for each row"):
        make().fit(X, target[:-1])
    with pytest.raises(ValueError, match="requires y"):
        make().fit(X, None)


def test_one_class_is_not_enough():
    with pytest.raises(InputError, match="only one class is present"):
        classifier().fit(X, np.ones(N))
    for classes in ([1], [], ["a", "a"], "ab"):
        with pytest.raises(InputError, match="at least two labels"):
            classifier(classes=classes).fit(X, np.ones(N))


def test_text_where_numbers_belong(task):
    make, target = task
    with pytest.raises(ValueError, match="text where numbers belong"):
        make().fit(np.full((N, 2), "a"), target)
    with pytest.raises(InputError, match="text where numbers belong"):
        make().fit(np.full((N, 2), "a", dtype=object), target)
    with pytest.raises(InputError, match="the target must be numbers"):
        DPLinearRegressor(target_bounds=(0, 1)).fit(X, np.full(N, "a"))


def test_numbers_where_labels_belong():
    with pytest.raises(ValueError, match="Unknown label type"):
        classifier().fit(X, TARGET)


@pytest.mark.parametrize("labels", [["a", None], [1, "a"], ["a", math.nan]])
def test_labels_must_be_of_one_kind(labels):
    names = np.array(labels, dtype=object)
    for chosen in (names[TWO], names[1 - TWO]):  # whichever comes first
        with pytest.raises(ValueError, match=r"label|NaN"):
            classifier().fit(X, chosen)
        with pytest.raises(ValueError, match=r"label|NaN"):
            of_tables().fit(frame().head(N), chosen)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None, True])
def test_epsilon_must_be_positive(epsilon, task):
    make, target = task
    with pytest.raises(InputError, match="epsilon must be"):
        make(epsilon=epsilon).fit(X, target)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, 1.5, math.nan, "1e-5", None])
def test_delta_must_lie_between_zero_and_one(delta, task):
    make, target = task
    with pytest.raises(InputError, match="delta must"):
        make(delta=delta).fit(X, target)


REFUSED = {
    "no bound": ({"stages": []}, MissingBound, "needs a public bound"),
    "centre without a bound": ({"stages": [PrivateCenter()]}, MissingBound, "public bound"),
    "no size": ({"neighbors": "add_or_remove_one"}, MissingBound, "public_size=, a public guess"),
    "another size": (
        {"public_size": N + 1},
        InputError,
        f"public_size={N + 1}, but there are {N} rows",
    ),
    "half a row": ({"public_size": 0.5}, InputError, "public_size=0.5 must be an integer"),
    "no rows": ({"public_size": 0, "neighbors": "add_or_remove_one"}, InputError, "at least 1"),
    "size in words": (
        {"public_size": "many"},
        InputError,
        "public_size='many' must be an integer",
    ),
    "a relation": ({"neighbors": "swap"}, InputError, "neighbors='swap' is not a relation"),
    "stages in words": ({"stages": "none"}, InputError, "must be 'auto' or a list of stages"),
    "no stages": ({"stages": None}, InputError, "a list of stages, not None"),
    "a class for a stage": ({"stages": [Normalize]}, InputError, "must be stages of"),
    "a trainer in words": ({"trainer": "sgd"}, InputError, "must be 'auto' or one of"),
    "a class for a trainer": ({"trainer": DPGD}, InputError, "must be 'auto' or one of"),
    "no steps": ({"trainer": DPGD(steps=0)}, InputError, "steps must be an integer"),
    "large batches": ({"trainer": DPSGD(batch_size=N + 1)}, InputError, "batch_size must be"),
    "a loss": ({"loss": "zero-one"}, InputError, "Unknown loss 'zero-one'"),
    "arithmetic": ({"arithmetic": "slow"}, InputError, "arithmetic='slow' must be one of"),
    "half a seed": ({"random_state": 0.5}, InputError, "seed is 0.5"),
    "few public rows": (
        {"stages": [Normalize(), PublicPCA(X[:2].copy(), 3)]},
        InputError,
        "2 public rows cannot give 3 components",
    ),
    "other public columns": (
        {"stages": [Normalize(), PublicPCA(X[:, :3].copy(), 3)]},
        InputError,
        "public rows have 3 columns, private ones 5",
    ),
    "no public rows": ({"stages": [Normalize(), PublicPCA(None, 3)]}, InputError, "needs public="),
    "the whole budget": (
        {"stages": [Normalize(), PrivateCenter(0.8), PrivateCenter(0.8)]},
        BudgetError,
        "ask for the whole budget",
    ),
}


@pytest.mark.parametrize(("options", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_settings_that_make_no_sense_are_refused(options, error, words, task):
    make, target = task
    model = make(**options)
    with pytest.raises(error, match=words):
        model.fit(X, target)
    assert not hasattr(model, "coef_")


def test_losses_belong_to_their_task():
    with pytest.raises(InputError, match="is for regression; use DPLinearRegressor"):
        classifier(loss="squared").fit(X, TWO)
    with pytest.raises(InputError, match="is for classification; use DPLinearClassifier"):
        DPLinearRegressor(target_bounds=(-5, 5), loss="hinge").fit(X, TARGET)


def test_limits_of_the_target_that_are_not_given_are_found_or_asked_for():
    with pytest.raises(InputError, match=r"too few .* pass target_bounds=\(low, high\)"):
        DPLinearRegressor(epsilon=0.01).fit(X, TARGET)
    with pytest.raises(MissingBound, match="target_bounds=") as caught:
        DPLinearRegressor(trainer=LocalDPGD()).fit(X, TARGET)
    assert "target_bounds" in caught.value.parameter
    many = np.tile(X, (20, 1)), np.tile(TARGET, 20)
    found = DPLinearRegressor(epsilon=5.0, random_state=0).fit(*many)
    assert found.target_bounds_[0] <= np.quantile(TARGET, 0.1)
    assert found.target_bounds_[1] >= np.quantile(TARGET, 0.9)
    assert found.certificate_.verify().holds
    for bounds in (
        (1, 1),
        (2, 1),
        (0, math.inf),
        (math.nan, 1),
        (0, 5e-324),
        3,
        (1,),
        "ab",
        (0, "x"),
    ):
        with pytest.raises(InputError, match="target_bounds="):
            DPLinearRegressor(target_bounds=bounds).fit(X, TARGET)


def test_prediction_needs_the_columns_of_the_fit(task):
    make, target = task
    model = make().fit(X, target)
    for rows in (X[:, :-1], np.hstack([X, X]), sp.csr_array(X[:, :2])):
        with pytest.raises(ValueError, match=f"expecting {D} features"):
            model.predict(rows)
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(X[:0])


def test_an_error_about_text_quotes_no_cell():
    X = np.array([["1.0", "secret-4711"], ["2.0", "3.0"]], dtype=object)
    with pytest.raises(InputError, match="text where numbers belong") as caught:
        DPLinearClassifier().fit(X, [0, 1])
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_missing_values_are_not_sent_to_an_uncounted_imputer():
    with pytest.raises(InputError, match="not covered by the certificate"):
        DPLinearClassifier().fit([[np.nan], [1.0]], [0, 1])


# What the type of the cells says


@pytest.mark.parametrize("given", [np.asarray, sp.csr_matrix, pd.DataFrame])
def test_bytes_are_intensities_and_their_roots_come_first(given):
    pixels = np.clip(40 * np.abs(X), 0, 255).astype(np.uint8)
    clf = DPLinearClassifier(trainer=QUICK, random_state=0).fit(given(pixels), KIND)
    names = [stage.name for stage in clf.plan_.plan.stages]
    assert names == ["Root", "Normalize", "PrivateCenter", "PrivateEqualize", "Normalize"]
    assert any("bytes" in said for said in clf.certificate_.assumptions)
    same = clf.predict(given(pixels.astype(float)))  # what was fitted does not change with the type
    assert (same == clf.predict(given(pixels))).all()


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.int8, np.uint16, bool])
def test_other_numbers_are_not_taken_for_intensities(kind):
    clf = DPLinearClassifier(trainer=QUICK, random_state=0).fit(np.abs(X).astype(kind), KIND)
    assert [stage.name for stage in clf.plan_.plan.stages] == ["Normalize", "PrivateCenter"]
    assert not any("bytes" in said for said in clf.certificate_.assumptions)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array])
def test_columns_of_sparse_rows_are_brought_to_one_size(form):
    words = (np.abs(X) > 1.0).astype(float)
    clf = DPLinearClassifier(trainer=QUICK, random_state=0).fit(form(words), KIND)
    names = [stage.name for stage in clf.plan_.plan.stages]
    assert names == ["Normalize", "PrivateEqualize", "Normalize", "PrivateCenter"]
    assert any("sparse" in said for said in clf.certificate_.assumptions)
    assert clf.certificate_.verify().holds
    assert (clf.predict(form(words)) == clf.predict(words)).all()
    dense = DPLinearClassifier(trainer=QUICK, random_state=0).fit(words, KIND)
    assert not any("sparse" in said for said in dense.certificate_.assumptions)


def test_sparse_rows_of_a_regression_are_as_dense_ones():
    words = (np.abs(X) > 1.0).astype(float)
    model = DPLinearRegressor(target_bounds=(-5, 5), random_state=0).fit(
        sp.csr_array(words), TARGET
    )
    assert [stage.name for stage in model.plan_.plan.stages] == ["Normalize", "PrivateCenter"]


def test_sparse_rows_that_nobody_may_see_are_only_scaled():
    words = sp.csr_array((np.abs(X) > 1.0).astype(float))
    clf = DPLinearClassifier(trainer=LocalDPGD(steps=3), random_state=0).fit(words, TWO)
    assert [stage.name for stage in clf.plan_.plan.stages] == ["Normalize"]


def test_a_private_number_of_rows_chooses_nothing(caplog):
    """Not even whether rows are enough for what columns do not say."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    with pytest.raises(MissingBound, match="public_size="):
        DPLinearClassifier(neighbors="add_or_remove_one").fit(frame, TWO)
    assert not caplog.records


def test_many_columns_of_numbers_are_features():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 257))
    wide = pandas.DataFrame(rows, columns=[f"c{i}" for i in range(257)])
    made = [classifier(random_state=0).fit(X, np.arange(300) % 2) for X in (wide, rows)]
    np.testing.assert_array_equal(made[0].coef_, made[1].coef_)
