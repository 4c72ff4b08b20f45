"""Fits to tables: every refusal before the rows are learned from, files all or none."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from tests.tasks.people import AMOUNT, CLASSES, COLUMNS, QUICK, people, table, without, write_csv

from tacit.cli.settings import Settings
from tacit.cli.tasks.fit import fit as fit_table
from tacit.cli.tasks.outputs import FILES
from tacit.data.schema import Schema
from tacit.exceptions import FileError, InputError, SchemaError
from tacit.files import MANIFEST
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
from tacit.persistence import load
from tacit.privacy import Certificate


def test_a_fit_writes_model_certificate_and_report_and_nothing_else(fitted):
    assert sorted(os.listdir(fitted.out)) == sorted([*FILES, MANIFEST])
    model = load(fitted.out / "model.safetensors")
    certificate = Certificate.load(fitted.out / "certificate.json")
    assert certificate == model.certificate_ == fitted.estimator.certificate_
    assert certificate.releasable and (certificate.epsilon, certificate.delta) == (2.0, 1e-4)
    page = (fitted.out / "report.html").read_text(encoding="utf-8")
    assert "report.html" in page and "200" in page


def test_results_count_the_test_rows_alone(fitted):
    results = fitted.results
    truth, guess = table(200, seed=1).column("rich"), fitted.estimator.predict(table(200, seed=1))
    assert results["test_rows"] == 200 and results["class_names"] == ["no", "yes"]
    assert results["test_accuracy"] == pytest.approx((truth == guess).mean())
    assert results["majority_accuracy"] == max((truth == c).mean() for c in ("no", "yes"))
    assert results["confusion"][0][1] == ((truth == "no") & (guess == "yes")).sum()
    assert "nonprivate_accuracy" not in results
    assert set(fitted.to_dict()) == {
        *("epsilon", "delta", "neighbors", "train_rows", "out"),
        *("test_accuracy", "majority_accuracy"),
    }


def test_without_a_test_table_there_are_no_results(tmp_path):
    fitted = fit_table(table(), QUICK, schema=Schema.from_dict(CLASSES), out=tmp_path / "m")
    assert fitted.results == {}
    assert "accuracy" not in json.dumps(fitted.to_dict())


def test_csv_and_parquet_give_the_same_model(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = without(people(), "amount")
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    Schema.from_dict(CLASSES).save(tmp_path / "s.yaml")
    models = [
        fit_table(path, QUICK, schema=tmp_path / "s.yaml", out=tmp_path / str(i), random_state=7)
        for i, path in enumerate([write_csv(tmp_path / "t.csv", columns), tmp_path / "t.parquet"])
    ]
    assert np.array_equal(*(model.estimator.coef_ for model in models))
    assert not models[0].estimator.certificate_.releasable


def test_a_target_with_bounds_is_regression(tmp_path):
    schema = Schema.from_dict(AMOUNT)
    tables = [table(n, seed=n, drop=("rich",)) for n in (900, 200)]
    fitted = fit_table(
        tables[0], Settings(5.0, 1e-4), schema=schema, out=tmp_path / "m", test=tables[1]
    )
    assert isinstance(fitted.estimator, DPLinearRegressor)
    results = fitted.to_dict()
    assert results["test_r2"] > 0 and 0 < results["test_rmse"] < 40


def test_the_target_may_come_from_the_caller(tmp_path):
    schema = Schema.from_dict({"columns": COLUMNS, "ignore": ["id"]})
    fitted = fit_table(table(), QUICK, schema=schema, target="rich", out=tmp_path / "m")
    assert list(fitted.estimator.classes_) == ["no", "yes"]
    said = " ".join(fitted.estimator.certificate_.assumptions)
    assert "labels was read from the data" in said


def test_numbers_as_classes_stay_numbers(tmp_path):
    labels = [int(value == "yes") for value in people()["rich"]]
    schema = Schema.from_dict(CLASSES | {"classes": [0, 1]})
    given = fit_table(table(rich=labels), QUICK, schema=schema, out=tmp_path / "a")
    bare = Schema.from_dict({"target": "rich", "columns": COLUMNS, "ignore": ["id"]})
    read = fit_table(table(rich=labels), QUICK, schema=bare, out=tmp_path / "b")
    for fitted in (given, read):
        assert fitted.estimator.classes_.tolist() == [0, 1]
        assert fitted.estimator.classes_.dtype.kind == "i"


def test_public_rows_pass_the_schema_too(tmp_path):
    public = table(300, seed=2, drop=("rich", "amount", "id"))  # neither labels nor ids
    settings = replace(QUICK, recipe="pillar", components=3)
    schema = Schema.from_dict(CLASSES)
    fits = [
        fit_table(table(), settings, schema=schema, public=public, out=tmp_path / name)
        for name in "ab"
    ]
    stages = [fit.estimator.certificate_.to_dict()["plan"]["stages"] for fit in fits]
    names = [stage["name"] for stage in stages[0]]
    assert names == ["Encode", "Normalize", "PublicCenter", "PrivateCheckedPCA"]
    settings = [entries[3]["parameters"] for entries in stages]
    assert settings[0] == settings[1]  # the fingerprint of the same public rows is the same
    assert "of the energy of the private rows" in stages[0][3]["note"]
    predictions = fits[0].estimator.predict(table(50, seed=3))
    assert set(predictions) <= {"no", "yes"}


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"rich": ["no", None] * 300}, InputError, "missing value"),
        ({"rich": ["no", "SECRET"] * 300}, InputError, "not among its classes"),
    ],
)
def test_bad_rows_are_refused_without_showing_them(tmp_path, changes, error, words):
    with pytest.raises(error, match=words) as caught:
        fit_table(table(**changes), QUICK, schema=Schema.from_dict(CLASSES), out=tmp_path / "a/b")
    assert "SECRET" not in str(caught.value) and "300" not in str(caught.value)
    assert os.listdir(tmp_path) == []  # not even the folders that were made for it


@pytest.mark.parametrize(
    ("schema", "drop", "target", "words"),
    [
        (CLASSES, ("amount", "job"), None, "lacks columns of the schema: 'job'"),
        (CLASSES, ("amount", "rich"), None, "lacks the target 'rich'"),
        (CLASSES, ("amount",), "job", "the schema's target is 'rich'"),
        ({"columns": COLUMNS}, ("amount",), None, "which column is to be predicted"),
        (AMOUNT | {"target": "rich"}, ("amount",), None, "holds text"),
        ({"columns": COLUMNS, "ignore": ["id"]}, ("rich",), "amount", "fractions"),
    ],
)
def test_a_schema_that_does_not_match_is_refused(tmp_path, schema, drop, target, words):
    with pytest.raises(InputError, match=words):
        fit_table(
            table(drop=drop),
            QUICK,
            schema=Schema.from_dict(schema),
            target=target,
            out=tmp_path / "m",
        )
    assert os.listdir(tmp_path) == []


def test_one_class_in_the_data_is_refused_unless_the_schema_lists_more(tmp_path):
    bare = Schema.from_dict({"target": "rich", "columns": COLUMNS, "ignore": ["id"]})
    same = table(rich=["yes"] * 600)
    with pytest.raises(InputError, match="only one class"):
        fit_table(same, QUICK, schema=bare, out=tmp_path / "m")
    fitted = fit_table(same, QUICK, schema=Schema.from_dict(CLASSES), out=tmp_path / "m")
    assert list(fitted.estimator.classes_) == ["no", "yes"]


def test_a_column_that_the_schema_does_not_name_is_taken_by_its_type(tmp_path):
    more = table(extra=np.arange(600.0))
    found = fit_table(more, QUICK, schema=Schema.from_dict(CLASSES), out=tmp_path / "m")
    assert "extra" in found.estimator.feature_names_in_


def test_missing_cells_follow_the_schema(tmp_path):
    gaps = {"age": [None if i % 2 else 40 for i in range(600)]}
    for policy in ("middle", "low", "high", "indicator"):
        columns = COLUMNS | {"age": COLUMNS["age"] | {"missing": policy}}
        schema = Schema.from_dict(CLASSES | {"columns": columns})
        assert fit_table(table(**gaps), QUICK, schema=schema, out=tmp_path / policy).out.is_dir()
    columns = COLUMNS | {"age": COLUMNS["age"] | {"missing": "error"}}
    schema = Schema.from_dict(CLASSES | {"columns": columns})
    with pytest.raises(SchemaError, match="'age' has a missing value"):
        fit_table(table(**gaps), QUICK, schema=schema, out=tmp_path / "error")
    assert not (tmp_path / "error").exists()


@pytest.mark.parametrize("changes", [{"rich": ["no", None] * 50}, {"rich": ["no", "maybe"] * 50}])
def test_a_bad_test_table_is_refused_before_anything_is_fitted(tmp_path, monkeypatch, changes):
    monkeypatch.setattr(DPLinearClassifier, "fit", lambda *_: pytest.fail("it was fitted"))
    for classes in ({}, {"classes": ["no", "yes"]}):
        schema = Schema.from_dict(
            {"target": "rich", "columns": COLUMNS, "ignore": ["id"], **classes}
        )
        with pytest.raises(InputError):
            test = table(100, **changes)
            fit_table(table(), QUICK, schema=schema, out=tmp_path / "m", test=test)


def test_options_that_a_recipe_does_not_take_are_refused(tmp_path):
    schema = Schema.from_dict(CLASSES)
    with pytest.raises(InputError, match="components are for the recipe pillar or jl"):
        fit_table(table(), replace(QUICK, components=3), schema=schema, out=tmp_path / "m")
    with pytest.raises(InputError, match="public rows are for the recipe pillar"):
        fit_table(table(), QUICK, schema=schema, out=tmp_path / "m", public=table())
    with pytest.raises(InputError, match="needs public rows"):
        fit_table(table(), replace(QUICK, recipe="pillar"), schema=schema, out=tmp_path / "m")
    with pytest.raises(InputError, match="no recipe is called 'magic'"):
        fit_table(table(), replace(QUICK, recipe="magic"), schema=schema, out=tmp_path / "m")


# --- files, all or none ------------------------------------------------------------------------


def test_nothing_is_fitted_if_the_directory_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(DPLinearClassifier, "fit", lambda *_: pytest.fail("it was fitted"))
    (tmp_path / "file").write_text("in the way")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError, match="cannot write into"):
            fit_table(table(), QUICK, schema=Schema.from_dict(CLASSES), out=out)
    assert os.listdir(tmp_path) == ["file"]


def test_a_path_through_a_folder_that_does_not_exist_is_no_way_round(tmp_path):
    schema = Schema.from_dict(CLASSES)
    fit_table(table(), QUICK, schema=schema, out=tmp_path / "m")
    with pytest.raises(FileError, match="already holds"):
        fit_table(table(), QUICK, schema=schema, out=tmp_path / "x" / ".." / "m")
    assert os.listdir(tmp_path) == ["m"]


def test_a_model_is_overwritten_only_by_force(tmp_path):
    schema = Schema.from_dict(CLASSES)
    first = fit_table(table(), QUICK, schema=schema, out=tmp_path)
    with pytest.raises(FileError, match="already holds"):
        fit_table(table(), QUICK, schema=schema, out=tmp_path)
    second = fit_table(table(), QUICK, schema=schema, out=tmp_path, force=True)
    now = load(tmp_path / "model.safetensors")
    assert np.array_equal(now.coef_, second.estimator.coef_)
    assert not np.array_equal(now.coef_, first.estimator.coef_)
    assert sorted(os.listdir(tmp_path)) == sorted([*FILES, MANIFEST])


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_whatever_happens_nothing_is_half_written(tmp_path, monkeypatch, error):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr("tacit.cli.tasks.fit.dumps", fail)
    with pytest.raises(error):
        fit_table(table(), QUICK, schema=Schema.from_dict(CLASSES), out=tmp_path / "m")
    assert os.listdir(tmp_path) == []
