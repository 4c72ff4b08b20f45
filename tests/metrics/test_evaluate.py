"""`tacit.metrics.evaluate`: figures with a certificate, and what is refused."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    roc_auc_score,
)
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC

from tacit import DPLinearClassifier, DPLinearRegressor, Ledger, privatize
from tacit.data import read_table, scan
from tacit.exceptions import BudgetError, InputError, MissingBound
from tacit.metrics import evaluate
from tacit.model_selection import DPSearch
from tacit.privacy.events import Gaussian
from tacit.privacy.unit import Unit
from tacit.trainers import DPGD

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
PLENTY = {"epsilon": 100.0, "delta": 1e-6, "random_state": 0}  # hardly any noise


def rows(n=4000, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    X = rng.normal(size=(n, 4))
    X[:, 0] += 1.5 * y
    X[:, 1] -= y
    return X, y


@pytest.fixture(scope="module")
def two():
    X, y = rows()
    return LogisticRegression().fit(X, y), *rows(seed=1)


def test_figures_with_hardly_any_noise_are_those_of_scikit_learn(two):
    model, X, y = two
    found = evaluate(model, X, y, **PLENTY)
    guess, chance = model.predict(X), model.predict_proba(X)[:, 1]
    truth = {
        "accuracy": model.score(X, y),
        "balanced_accuracy": balanced_accuracy_score(y, guess),
        "f1": f1_score(y, guess),
        "roc_auc": roc_auc_score(y, chance),
        "average_precision": average_precision_score(y, chance),
        "brier_score": np.mean((chance - y) ** 2),
    }
    for name, value in truth.items():
        assert found[name].value == pytest.approx(value, abs=0.004), name
        assert found[name].low <= value <= found[name].high, name
    shares = np.array([[cell.value for cell in row] for row in found.confusion])
    expected = [[np.mean((y == i) & (guess == j)) for j in (0, 1)] for i in (0, 1)]
    assert shares == pytest.approx(np.array(expected), abs=0.004)


def test_more_than_two_classes_have_a_curve_each():
    X, y = rows(6000, 3)
    model = LogisticRegression().fit(X, y)
    named = LogisticRegression().fit(X, np.array(["a", "b", "c"])[y])
    found = evaluate(named, X, np.array(["a", "b", "c"])[y], **PLENTY)
    area = roc_auc_score(y, named.predict_proba(X), multi_class="ovr", average="macro")
    assert found["accuracy"].value == pytest.approx(model.score(X, y), abs=0.01)
    assert found["roc_auc"].value == pytest.approx(area, abs=0.01)
    assert set(found.by_class) == {"a", "b", "c"} and len(found.confusion) == 3


def test_losses_of_three_classes_and_more_are_those_of_scikit_learn_whatever_the_bins():
    class Known:
        def __init__(self, chances):
            self.chances, self.classes_ = chances, np.arange(chances.shape[1])

        def predict_proba(self, X):
            return self.chances[X[:, 0]]

        def predict(self, X):
            return self.predict_proba(X).argmax(axis=1)

    for many in (3, 15):
        rng = np.random.default_rng(many)
        y, X = rng.integers(0, many, 4000), rng.random((4000, many))
        X[np.arange(4000), y] += 1
        model = Known(X**6 / (X**6).sum(axis=1, keepdims=True))
        X = np.arange(4000)[:, None]
        found = evaluate(model, X, y, **PLENTY)
        chance = np.clip(model.predict_proba(X)[np.arange(len(y)), y], 1e-3, 1)
        brier = np.mean(np.sum((model.predict_proba(X) - np.eye(many)[y]) ** 2, axis=1))
        truth = {"log_loss": -np.log(chance).mean(), "brier_score": brier}
        truth["f1"] = f1_score(y, model.predict(X), average="macro")
        for name, value in truth.items():
            assert found[name].low <= value <= found[name].high, name
            assert found[name].value == pytest.approx(value, abs=0.03), name
        assert len(found.calibration) == (3 if many == 3 else 1)


def test_a_thousand_classes_are_tested_without_a_table_of_pairs():
    rng = np.random.default_rng(0)

    class Guessing:
        classes_ = np.arange(1000)

        def predict_proba(self, X):
            return X

    y = rng.integers(0, 1000, 5000)
    X = rng.random((5000, 1000))
    X[np.arange(5000), y] += 100 * (rng.random(5000) < 0.7)
    X /= X.sum(axis=1, keepdims=True)
    found = evaluate(Guessing(), X, y, **PLENTY)
    right = np.mean(X.argmax(axis=1) == y)
    assert found["accuracy"].low <= right <= found["accuracy"].high < right + 0.1
    assert not found.confusion and found.beats_majority is None
    assert {"log_loss", "brier_score"} <= set(found)
    inside = 1 - found.cutoff(0.9) <= X
    assert inside[np.arange(5000), y].mean() > 0.89


def test_a_model_that_always_says_one_class_is_not_better_than_that():
    class Same:
        classes_ = np.arange(3)

        def predict_proba(self, X):
            return np.tile([0.6, 0.3, 0.1], (len(X), 1))

    rng = np.random.default_rng(1)
    y = rng.choice(3, 5000, p=[0.5, 0.3, 0.2])
    assert evaluate(Same(), np.zeros((5000, 1)), y, **PLENTY).beats_majority is None
    assert evaluate(Same(), np.zeros((5000, 1)), (y + 1) % 3, **PLENTY).beats_majority is False


def test_numbers_have_errors_between_limits():
    X, _ = rows(8000)
    rng = np.random.default_rng(5)
    y = 3 * X[:, 0] + rng.normal(size=len(X))
    model = LinearRegression().fit(X, y)
    error = y - model.predict(X)
    found = evaluate(model, X, y, bounds=(-30, 30), **PLENTY)
    assert found["rmse"].value == pytest.approx(np.sqrt(np.mean(error**2)), rel=0.03)
    assert found["mae"].value == pytest.approx(np.mean(np.abs(error)), rel=0.03)
    assert found["r2"].value == pytest.approx(model.score(X, y), abs=0.02)
    assert found["error_90"].low <= np.quantile(np.abs(error), 0.9) <= found["error_90"].high
    assert found.cap is not None and np.abs(error).max() <= 2 * found.cap
    capped = evaluate(model, X, y, bounds=(-30, 30), error_bound=5.0, **PLENTY)
    assert capped.cap == 5.0


def test_the_certificate_counts_one_release_and_verifies(two):
    model, X, y = two
    found = evaluate(model, X, y, **BUDGET)
    assert [type(expense.event) for expense in found.certificate.events] == [Gaussian]
    assert found.certificate.verify().holds and found.releasable
    assert found.certificate.groups["2"] > 1
    json.dumps(found.to_dict(), allow_nan=False)
    seeded = evaluate(model, X, y, random_state=1, **BUDGET)
    assert not seeded.releasable
    assert seeded.figures == evaluate(model, X, y, random_state=1, **BUDGET).figures


def test_a_ledger_is_charged_before_anything_is_drawn(two, tmp_path):
    model, X, y = two
    ledger = Ledger(tmp_path / "l.db", dataset="d")
    ledger.create(epsilon=1.1, delta=1e-5, neighbors="replace_special")
    evaluate(model, X, y, ledger=ledger, **BUDGET)
    with pytest.raises(BudgetError):
        evaluate(model, X, y, ledger=ledger, **BUDGET)
    with pytest.raises(InputError, match="random_state"):
        evaluate(model, X, y, ledger=ledger, random_state=0, **BUDGET)


def test_groups_have_figures_and_gaps_and_others_are_in_none(two):
    model, X, y = two
    group = np.where(X[:, 2] > 0, "one", "two").astype(object)
    group[:50] = "nobody asked"
    found = evaluate(model, X, y, by=group, by_values=["one", "two"], **PLENTY)
    inside = group == "one"
    assert found.by_group["one"]["accuracy"].value == pytest.approx(
        model.score(X[inside], y[inside]), abs=0.01
    )
    gap = found.gaps["accuracy"]["one - two"]
    assert gap.low <= gap.value <= gap.high and abs(gap.value) < 0.1
    own = found.groups["two"]
    assert {"roc", "precision_recall"} <= set(own.curves) and own.calibration and own.confusion


def test_labels_that_the_model_does_not_know_count_nowhere(two):
    model, X, y = two
    odd = y.astype(object)
    odd[:100] = "unheard of"
    odd[100:200] = None
    found = evaluate(model, X, odd, **PLENTY)
    assert found["accuracy"].value == pytest.approx(model.score(X[200:], y[200:]), abs=0.005)


def test_scores_without_probabilities_are_ranked_only():
    X, y = rows()
    found = evaluate(LinearSVC().fit(X, y), X, y, **PLENTY)
    assert "roc_auc" in found and "brier_score" not in found and not found.calibration


def test_under_a_private_number_of_rows_none_is_reported(two):
    model, X, y = two
    how = {"neighbors": "add_or_remove_one", "public_size": 5000}
    found = evaluate(model, X, y, **how, **PLENTY)
    assert found["accuracy"].value == pytest.approx(model.score(X, y), abs=0.005)
    assert found.certificate.plan["rows"] == 5000
    with pytest.raises(MissingBound, match="public_size"):
        evaluate(model, X, y, neighbors="add_or_remove_one", **BUDGET)


def test_what_follows_from_the_counts_for_free(two):
    model, X, y = two
    found = evaluate(model, X, y, **PLENTY)
    assert found.beats_majority is True
    chance = model.predict_proba(X)[:, 1]
    cut = found.threshold(recall=0.9)
    assert np.mean(chance[y == 1] > cut) >= 0.89
    assert found.threshold(cost=(1.0, 9.0)) < 0.3
    assert found.threshold(cost=(9.0, 1.0)) > 0.7
    better = found.recalibrated(chance**3)
    assert better.shape == chance.shape and (np.diff(better[np.argsort(chance)]) >= 0).all()
    with pytest.raises(InputError, match="recall="):
        found.threshold()
    for cost in (5, (-1, 2), (0, 0), (1, math.inf), ("a", 1)):
        with pytest.raises(InputError, match="two costs"):
            found.threshold(cost=cost)
    for probability in (model.predict_proba(X), [1.5], [math.nan]):
        with pytest.raises(InputError, match="predict_proba"):
            found.recalibrated(probability)


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"epsilon": 0.0}, InputError, "epsilon"),
        ({"delta": 1.0}, InputError, "delta"),
        ({"confidence": 1.5}, InputError, "confidence"),
        ({"by": ["a"] * 4000}, MissingBound, "by_values"),
        ({"by": ["a"] * 4000, "by_values": []}, InputError, "1 to 16"),
        ({"by": ["a"] * 4000, "by_values": "am"}, InputError, "list"),
        ({"by": ["a"] * 3, "by_values": ["a"]}, InputError, "rows"),
        ({"bounds": (0, 1)}, InputError, "classes"),
        ({"neighbors": "nobody"}, InputError, "relation"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_spent(two, how, error, words):
    model, X, y = two
    with pytest.raises(error, match=words):
        evaluate(model, X, y, **{**BUDGET, **how})


@pytest.mark.parametrize(
    ("classes", "width"), [(None, (2,)), (None, ()), (2, ()), (2, (3,)), (3, (2,)), (4, (3,))]
)
def test_a_model_that_says_too_much_or_too_little_is_refused_before_anything_is_spent(
    classes, width, tmp_path
):
    class Odd:
        def predict(self, X):
            return np.zeros((len(X), *width)) if width else 0.0

        def predict_proba(self, X):
            return np.full((len(X), *width), 0.3)

    if classes:
        Odd.classes_ = np.arange(classes)
    ledger = Ledger(tmp_path / "l.db", dataset="d")
    ledger.create(epsilon=2.0, delta=1e-5, neighbors="replace_special")
    how = {} if classes else {"bounds": (0, 1)}
    with pytest.raises(InputError, match="Odd must say") as refused:
        evaluate(Odd(), np.zeros((50, 1)), np.zeros(50), ledger=ledger, **how, **BUDGET)
    assert refused.value.depends_on_rows and ledger.remaining().spent == 0


def test_numbers_may_be_predicted_as_one_column():
    X = np.random.default_rng(0).normal(size=(500, 2))
    y = X @ [1.0, -1.0]
    flat, column = (LinearRegression().fit(X, each) for each in (y, y[:, None]))
    one, other = (evaluate(each, X, y, bounds=(-5, 5), **PLENTY) for each in (flat, column))
    assert one.figures == other.figures


def test_a_target_that_is_a_number_needs_bounds():
    X, y = rows()
    with pytest.raises(MissingBound, match="bounds="):
        evaluate(LinearRegression().fit(X, y), X, y, **BUDGET)


# rows that are held out


@pytest.mark.parametrize("bounds", [(-3.0, 3.0), (1e16, 1e16 + 4)])
def test_no_warning_tells_of_targets_beyond_the_floats_or_between_knots_that_are_one(bounds):
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = DPLinearRegressor(1.0, 1e-5, target_bounds=(-3, 3), trainer=DPGD(steps=2))
    model.fit(X, X[:, 0])
    odd = np.concatenate([[np.longdouble("1e4000"), 1e16 + 4], X[2:, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(model, X, odd, epsilon=1.0, delta=1e-5, bounds=bounds)


def test_a_held_out_test_costs_nothing_and_trains_with_the_same_noise():
    X, y = rows(5000)
    model = DPLinearClassifier(**BUDGET, holdout=0.2, random_state=3).fit(X, y)
    trained = model.certificate_.plan["rows"]
    alone = DPLinearClassifier(**BUDGET, random_state=3).fit(X[:trained], y[:trained])
    assert model.plan_.noise_multiplier == alone.plan_.noise_multiplier
    assert model.certificate_.verify().holds and model.certificate_.epsilon == 1.0
    assert 800 < 5000 - trained < 1200
    assert any("set aside 0.2" in text for text in model.certificate_.assumptions)
    assert (
        model.evaluation_["accuracy"].low < model.score(X, y) < model.evaluation_["accuracy"].high
    )


def test_both_parts_of_a_split_leave_room_for_what_finite_precision_takes():
    X, y = rows(2000)
    ordinary = DPLinearClassifier(**BUDGET, holdout=0.2, random_state=0).fit(X, y).certificate_
    alone = DPLinearClassifier(**BUDGET, random_state=0).fit(X, y).certificate_
    assert ordinary.numerical_delta > alone.numerical_delta  # the test draws, too
    # Here the drawing of noise takes two fifths of delta, and the calibration leaves nothing over.
    edge = DPLinearClassifier(104.0, 1e-5, holdout=0.2, random_state=0).fit(X, y).certificate_
    assert edge.delta == 1e-5 and edge.numerical_delta > 1e-6 and edge.verify().holds
    with pytest.raises(BudgetError, match="finite precision"):
        DPLinearClassifier(110.0, 1e-5, holdout=0.2, random_state=0).fit(X, y)


def test_rows_of_files_and_other_libraries_are_held_out_as_those_in_memory_are(tmp_path):
    pa, dask = pytest.importorskip("pyarrow"), pytest.importorskip("dask.dataframe")
    pd, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    distributed = pytest.importorskip("distributed")
    X, y = rows(3000)
    how = {"holdout": 0.3, "random_state": 3, "trainer": DPGD(steps=3), **BUDGET}
    frame = pd.DataFrame(X, columns=list("abcd")).assign(sex=np.where(X[:, 2] > 0, "f", "m"))
    whole = frame.assign(sick=y)
    whole.to_csv(tmp_path / "t.csv", index=False)
    parquet.write_table(pa.Table.from_pandas(whole), tmp_path / "t.parquet", row_group_size=700)
    np.save(tmp_path / "x.npy", X)
    bare = DPLinearClassifier(**how).fit(X, y)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for given in (mapped, scan(tmp_path / "x.npy", memory=50_000)):
        _same(DPLinearClassifier(**how).fit(given, y), bare)
    how["holdout_by"] = {"sex": ["f", "m"]}
    for name, given in (
        ("t.csv", read_table(tmp_path / "t.csv").drop("sick")),
        ("t.parquet", frame),
    ):
        table = DPLinearClassifier(**how).fit(given, y)
        assert {"f", "m"} == set(table.evaluation_.groups)
        _same(DPLinearClassifier(**how).fit(scan(tmp_path / name, target="sick")), table)
    quiet = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(**quiet):
        parts = dask.from_pandas(whole, npartitions=4)
        model = DPLinearClassifier(**how).fit(parts[list(frame)], parts["sick"])
        _same(model, table)


def _same(one, other):
    assert np.array_equal(one.coef_, other.coef_)
    assert one.evaluation_.to_dict() == other.evaluation_.to_dict()


def test_the_best_of_a_search_is_tested_on_rows_that_no_trial_saw(tmp_path):
    X, y = rows(5000)
    model = DPLinearClassifier(holdout=0.2, trainer=DPGD(steps=20))
    search = DPSearch(model, {"trainer__clip": [0.01, 0.1]}, trials=3.0, **BUDGET)
    ledger = Ledger(tmp_path / "l.db", dataset="d")
    ledger.create(epsilon=1.05, delta=1e-5, neighbors="replace_special")
    search.set_params(estimator__ledger=ledger).fit(X, y)
    found, certificate = search.evaluation_, search.certificate_
    accuracy = found["accuracy"]  # of 95% confidence: three times as wide, it always holds
    assert abs(accuracy.value - search.score(X, y)) < 1.5 * accuracy.width
    assert certificate.verify().holds and found.certificate is certificate
    assert ledger.remaining().spent < 1.0  # no more than the certificate says
    assert certificate.plan["search"]["settings"] == 2 and certificate.plan["holdout"] == 0.2
    search.set_params(estimator__ledger=None, estimator__holdout=None).fit(X, y)
    assert not hasattr(search, "evaluation_")
    with pytest.raises(InputError, match="holdout cannot be tuned"):
        DPSearch(model, {"holdout": [0.1, 0.2]}, **BUDGET).fit(X, y)


def test_a_model_that_is_fitted_again_forgets_the_test_of_the_one_before():
    X, y = rows(1000)
    model = DPLinearClassifier(**BUDGET, holdout=0.2, random_state=0).fit(X, y)
    model.set_params(holdout=None).fit(X, y)
    assert not hasattr(model, "evaluation_")
    with pytest.raises(InputError, match="set aside"):
        model.set_params(holdout_by={"sex": ["f", "m"]}).fit(X, y)


def test_a_model_of_numbers_is_tested_between_the_limits_it_has_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20000, 3))
    y = X @ [3.0, -2.0, 1.0] + rng.normal(size=20000)
    model = DPLinearRegressor(8.0, 1e-6, holdout=0.3, random_state=0).fit(X, y)
    score = model.score(X, y)
    assert model.evaluation_["r2"].low < score < model.evaluation_["r2"].high
    ends = model.predict_interval(X, 0.9)
    assert np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])) > 0.89


def test_sets_hold_the_label_as_often_as_they_say():
    X, y = rows(20000, 3)
    model = DPLinearClassifier(4.0, 1e-6, holdout=0.3, random_state=0).fit(X, y)
    inside = model.predict_set(X, 0.9)
    assert inside.shape == (20000, 3)
    assert 0.89 < inside[np.arange(20000), y].mean() < 0.97
    assert inside.sum(axis=1).mean() < 2.5


def test_a_ledger_counts_the_worse_part_once(tmp_path):
    ledger = Ledger(tmp_path / "l.db", dataset="d")
    ledger.create(epsilon=1.05, delta=1e-5, neighbors="replace_special")
    X, y = rows(3000)
    DPLinearClassifier(**BUDGET, holdout=0.2, ledger=ledger).fit(X, y)
    assert ledger.remaining().left < 0.6  # and no less than after a fit without a test


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"holdout": 0.0}, "above 0"),
        ({"holdout": 0.7}, "at most 0.5"),
        ({"holdout": True}, "above 0"),
        ({"holdout": 0.2, "holdout_by": {"sex": ["m"]}}, "no column of a table"),
        ({"holdout": 0.2, "holdout_by": "sex"}, "one column"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(how, words):
    X, y = rows(300)
    with pytest.raises(InputError, match=words):
        DPLinearClassifier(**BUDGET, **how).fit(X, y)


def test_sets_need_a_test():
    X, y = rows(500)
    model = DPLinearClassifier(**BUDGET).fit(X, y)
    with pytest.raises(InputError, match=r"holdout=0\.2"):
        model.predict_set(X)
    found = evaluate(model, X, y, **BUDGET)
    assert model.predict_set(X, evaluation=found).shape == (500, 2)
    assert math.isinf(found.cutoff(0.9999))


def test_cross_validation_says_once_what_its_fits_spend_together(caplog):
    X, y = rows(600)
    cross_val_score(DPLinearClassifier(**BUDGET), X, y, cv=4)
    said = [text for text in caplog.messages if "Copies of one estimator" in text]
    assert len(said) == 1 and "5 fits about 2.4" in said[0]
    caplog.clear()
    DPLinearClassifier(**BUDGET).fit(X, y)
    clone(DPLinearClassifier(**BUDGET)).fit(X, y)
    cross_val_score(DPLinearClassifier(**BUDGET, random_state=0), X, y, cv=4)  # is not private
    assert not [text for text in caplog.messages if "Copies" in text]


@pytest.mark.parametrize("kind", ["search", "pipeline"])
def test_so_it_does_of_searches_and_of_pipelines(kind, caplog):
    X, y = rows(600)
    if kind == "search":
        quick = DPLinearClassifier(trainer=DPGD(steps=2))
        model = DPSearch(quick, {"trainer__clip": [0.1, 1.0]}, trials=2.0, **BUDGET)
    else:
        model = privatize(LogisticRegression(), bounds=(-9, 9), **BUDGET)
    cross_val_score(model, X, y, cv=3)
    assert sum("Copies of one estimator" in text for text in caplog.messages) == 1


# people


def test_of_people_with_several_rows_one_row_counts(two):
    model, X, y = two
    ids = np.repeat(np.arange(1000), 4)
    how = {"groups": ids, "max_rows_per_group": 5, "identifier": "patient"}
    found = evaluate(model, X, y, **how, **PLENTY)
    assert found.certificate.unit.rows == 5 and found.certificate.plan["people"] == 1000
    assert "'patient'" in found.certificate.unit.sentence
    assert found["accuracy"].value == pytest.approx(model.score(X, y), abs=0.05)
    lopsided = np.where(np.arange(4000) < 3000, 0, np.arange(4000))  # one has most of the rows
    found = evaluate(model, X, y, groups=lopsided, max_rows_per_group=5, **PLENTY)
    assert found.certificate.plan["people"] == 1001
    with pytest.raises(MissingBound, match="max_rows_per_group"):
        evaluate(model, X, y, groups=ids, **BUDGET)


def test_groups_and_people_may_be_columns_of_the_table():
    X, y = rows(2000)
    table = {
        "a": X[:, 0],
        "b": X[:, 1],
        "sex": np.where(y, "f", "m"),
        "patient": np.arange(2000) // 2,
    }
    learned = {name: table[name] for name in ("a", "b")}
    model = DPLinearClassifier(50.0, 1e-6, trainer=DPGD(steps=5), random_state=0).fit(learned, y)
    how = {"by": "sex", "by_values": ["f", "m"], "groups": "patient", "max_rows_per_group": 2}
    found = evaluate(model, table, y, **how, **PLENTY)
    assert found.certificate.unit == Unit("person", 2, "patient")
    assert found.certificate.plan["people"] == 1000 and set(found.groups) == {"f", "m"}
    with pytest.raises(InputError, match="'who' is no column"):
        evaluate(model, table, y, groups="who", max_rows_per_group=2, **BUDGET)
    with pytest.raises(InputError, match="identifiers are no groups"):
        evaluate(model, table, y, **{**how, "by": "patient", "by_values": ["1"]}, **BUDGET)
    bare = LogisticRegression().fit(X, y)
    with pytest.raises(InputError, match="no named columns"):
        evaluate(bare, X, y, by="sex", by_values=["f", "m"], **BUDGET)


def test_few_rows_are_said_to_be_few_before_they_are_tested_on(two, caplog):
    model, X, y = two
    with caplog.at_level("WARNING", "tacit"):
        evaluate(model, X[:2000], y[:2000], **BUDGET)
        assert not caplog.text
        evaluate(model, X[:50], y[:50], **BUDGET)
        assert caplog.text.count("50 are few to be tested on") == 1
        DPLinearClassifier(1.0, 1e-5, holdout=0.1, trainer=DPGD(steps=2)).fit(X[:500], y[:500])
        assert caplog.text.count("are few to be tested on") == 2


def test_people_are_held_out_with_all_of_their_rows():
    X, y = rows(6000)
    ids = np.arange(6000) // 3
    how = {"max_rows_per_group": 3, "holdout": 0.25, "random_state": 1}
    model = DPLinearClassifier(4.0, 1e-6, **how).fit(X, y, groups=ids)
    assert 1400 < model.certificate_.plan["people"] < 1600
    assert model.certificate_.verify().holds
    assert (
        model.evaluation_["accuracy"].low < model.score(X, y) < model.evaluation_["accuracy"].high
    )
