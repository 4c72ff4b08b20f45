"""What the commands do: every refusal before the rows are learned from, files all or none."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from tacit.cli import tasks
from tacit.cli.tasks import FILES, Settings
from tacit.data.readers import read_table
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.exceptions import BudgetError, FileError, InputError, SchemaError
from tacit.files import MANIFEST
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
from tacit.persistence import load, save
from tacit.privacy import Certificate

COLUMNS = {
    "age": {"kind": "number", "low": 0, "high": 100},
    "hours": {"kind": "number", "low": 0, "high": 80, "missing": "indicator"},
    "job": {"kind": "category", "categories": ["cook", "nurse", "smith"]},
}
CLASSES = {"target": "rich", "classes": ["no", "yes"], "columns": COLUMNS, "ignore": ["id"]}
AMOUNT = {"target": "amount", "target_bounds": [0, 200], "columns": COLUMNS, "ignore": ["id"]}
QUICK = Settings(2.0, 1e-4, steps=30)


def people(n: int = 600, seed: int = 0) -> dict[str, list]:
    rng = np.random.default_rng(seed)
    age, hours = rng.uniform(18, 90, n), rng.uniform(0, 80, n)
    job = rng.choice(["cook", "nurse", "smith"], n)
    amount = age + hours / 2 + 20 * (job == "smith")
    return {
        "id": list(range(n)),
        "age": age.round(1).tolist(),
        "hours": [h if i % 9 else None for i, h in enumerate(hours.round(1).tolist())],
        "job": job.tolist(),
        "rich": np.where(amount > 80, "yes", "no").tolist(),
        "amount": amount.round(2).tolist(),
    }


def without(columns: dict[str, list], *names: str) -> dict[str, list]:
    return {name: values for name, values in columns.items() if name not in names}


def write_csv(path, columns):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def table(n=600, seed=0, drop=("amount",), **changes) -> Table:
    return Table.from_columns(without(people(n, seed), *drop) | changes)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "model"
    test = table(200, seed=1)
    return tasks.fit(table(), QUICK, schema=Schema.from_dict(CLASSES), out=out, test=test)


# --- fit ---------------------------------------------------------------------------------------


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
    fitted = tasks.fit(table(), QUICK, schema=Schema.from_dict(CLASSES), out=tmp_path / "m")
    assert fitted.results == {}
    assert "accuracy" not in json.dumps(fitted.to_dict())


def test_csv_and_parquet_give_the_same_model(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = without(people(), "amount")
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    Schema.from_dict(CLASSES).save(tmp_path / "s.yaml")
    models = [
        tasks.fit(path, QUICK, schema=tmp_path / "s.yaml", out=tmp_path / str(i), random_state=7)
        for i, path in enumerate([write_csv(tmp_path / "t.csv", columns), tmp_path / "t.parquet"])
    ]
    assert np.array_equal(*(model.estimator.coef_ for model in models))
    assert not models[0].estimator.certificate_.releasable


def test_a_target_with_bounds_is_regression(tmp_path):
    schema = Schema.from_dict(AMOUNT)
    tables = [table(n, seed=n, drop=("rich",)) for n in (900, 200)]
    fitted = tasks.fit(
        tables[0], Settings(5.0, 1e-4), schema=schema, out=tmp_path / "m", test=tables[1]
    )
    assert isinstance(fitted.estimator, DPLinearRegressor)
    results = fitted.to_dict()
    assert results["test_r2"] > 0 and 0 < results["test_rmse"] < 40


def test_the_target_may_come_from_the_caller(tmp_path):
    schema = Schema.from_dict({"columns": COLUMNS, "ignore": ["id"]})
    fitted = tasks.fit(table(), QUICK, schema=schema, target="rich", out=tmp_path / "m")
    assert list(fitted.estimator.classes_) == ["no", "yes"]
    said = " ".join(fitted.estimator.certificate_.assumptions)
    assert "labels was read from the data" in said


def test_numbers_as_classes_stay_numbers(tmp_path):
    labels = [int(value == "yes") for value in people()["rich"]]
    schema = Schema.from_dict(CLASSES | {"classes": [0, 1]})
    given = tasks.fit(table(rich=labels), QUICK, schema=schema, out=tmp_path / "a")
    bare = Schema.from_dict({"target": "rich", "columns": COLUMNS, "ignore": ["id"]})
    read = tasks.fit(table(rich=labels), QUICK, schema=bare, out=tmp_path / "b")
    for fitted in (given, read):
        assert fitted.estimator.classes_.tolist() == [0, 1]
        assert fitted.estimator.classes_.dtype.kind == "i"


def test_public_rows_pass_the_schema_too(tmp_path):
    public = table(300, seed=2, drop=("rich", "amount", "id"))  # neither labels nor ids
    settings = replace(QUICK, recipe="pillar", components=3)
    schema = Schema.from_dict(CLASSES)
    fits = [
        tasks.fit(table(), settings, schema=schema, public=public, out=tmp_path / name)
        for name in "ab"
    ]
    stages = [fit.estimator.certificate_.to_dict()["plan"]["stages"] for fit in fits]
    names = [stage["name"] for stage in stages[0]]
    assert names == ["Encode", "Normalize", "PublicCenter", "PublicPCA"]
    assert stages[0] == stages[1]  # the fingerprint of the same public rows is the same
    predictions = fits[0].estimator.predict(table(50, seed=3))
    assert set(predictions) <= {"no", "yes"}


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"rich": ["no", None] * 300}, InputError, "missing value"),
        ({"rich": ["no", "SECRET"] * 300}, InputError, "not among its classes"),
        ({"age": ["31", "SECRET"] * 300}, SchemaError, "'age' is a number in the schema"),
        ({"extra": [1] * 600}, SchemaError, "'extra'"),
    ],
)
def test_bad_rows_are_refused_without_showing_them(tmp_path, changes, error, words):
    with pytest.raises(error, match=words) as caught:
        tasks.fit(table(**changes), QUICK, schema=Schema.from_dict(CLASSES), out=tmp_path / "a/b")
    assert "SECRET" not in str(caught.value) and "300" not in str(caught.value)
    assert os.listdir(tmp_path) == []  # not even the folders that were made for it


@pytest.mark.parametrize(
    ("schema", "drop", "target", "words"),
    [
        (CLASSES, ("amount", "job"), None, "lacks columns of the schema: 'job'"),
        (CLASSES, ("amount", "rich"), None, "lacks the target 'rich'"),
        (CLASSES, ("amount",), "job", "the schema's target is 'rich'"),
        ({"columns": COLUMNS}, ("amount",), None, "which column is to be predicted"),
        ({"columns": COLUMNS}, ("amount",), "job", "listed twice"),
        (AMOUNT | {"target": "rich"}, ("amount",), None, "holds text"),
        ({"columns": COLUMNS, "ignore": ["id"]}, ("rich",), "amount", "fractions"),
    ],
)
def test_a_schema_that_does_not_match_is_refused(tmp_path, schema, drop, target, words):
    with pytest.raises(InputError, match=words):
        tasks.fit(
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
        tasks.fit(same, QUICK, schema=bare, out=tmp_path / "m")
    fitted = tasks.fit(same, QUICK, schema=Schema.from_dict(CLASSES), out=tmp_path / "m")
    assert list(fitted.estimator.classes_) == ["no", "yes"]


def test_missing_cells_follow_the_schema(tmp_path):
    gaps = {"age": [None if i % 2 else 40 for i in range(600)]}
    for policy in ("middle", "low", "high", "indicator"):
        columns = COLUMNS | {"age": COLUMNS["age"] | {"missing": policy}}
        schema = Schema.from_dict(CLASSES | {"columns": columns})
        assert tasks.fit(table(**gaps), QUICK, schema=schema, out=tmp_path / policy).out.is_dir()
    columns = COLUMNS | {"age": COLUMNS["age"] | {"missing": "error"}}
    schema = Schema.from_dict(CLASSES | {"columns": columns})
    with pytest.raises(SchemaError, match="'age' has a missing cell"):
        tasks.fit(table(**gaps), QUICK, schema=schema, out=tmp_path / "error")
    assert not (tmp_path / "error").exists()


@pytest.mark.parametrize(
    "changes", [{"rich": ["no", None] * 50}, {"age": ["x"] * 100}, {"rich": ["no", "maybe"] * 50}]
)
def test_a_bad_test_table_is_refused_before_anything_is_fitted(tmp_path, monkeypatch, changes):
    monkeypatch.setattr(DPLinearClassifier, "fit", lambda *_: pytest.fail("it was fitted"))
    for classes in ({}, {"classes": ["no", "yes"]}):
        schema = Schema.from_dict(
            {"target": "rich", "columns": COLUMNS, "ignore": ["id"], **classes}
        )
        with pytest.raises(InputError):
            test = table(100, **changes)
            tasks.fit(table(), QUICK, schema=schema, out=tmp_path / "m", test=test)


def test_options_that_a_recipe_does_not_take_are_refused(tmp_path):
    schema = Schema.from_dict(CLASSES)
    with pytest.raises(InputError, match="components are for the recipe pillar or jl or dp-pca"):
        tasks.fit(table(), replace(QUICK, components=3), schema=schema, out=tmp_path / "m")
    with pytest.raises(InputError, match="public rows are for the recipe pillar"):
        tasks.fit(table(), QUICK, schema=schema, out=tmp_path / "m", public=table())
    with pytest.raises(InputError, match="needs public rows"):
        tasks.fit(table(), replace(QUICK, recipe="pillar"), schema=schema, out=tmp_path / "m")
    with pytest.raises(InputError, match="no recipe is called 'magic'"):
        tasks.fit(table(), replace(QUICK, recipe="magic"), schema=schema, out=tmp_path / "m")


# --- files, all or none ------------------------------------------------------------------------


def test_nothing_is_fitted_if_the_directory_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(DPLinearClassifier, "fit", lambda *_: pytest.fail("it was fitted"))
    (tmp_path / "file").write_text("in the way")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError, match="cannot write into"):
            tasks.fit(table(), QUICK, schema=Schema.from_dict(CLASSES), out=out)
    assert os.listdir(tmp_path) == ["file"]


def test_a_path_through_a_folder_that_does_not_exist_is_no_way_round(tmp_path):
    schema = Schema.from_dict(CLASSES)
    tasks.fit(table(), QUICK, schema=schema, out=tmp_path / "m")
    with pytest.raises(FileError, match="already holds"):
        tasks.fit(table(), QUICK, schema=schema, out=tmp_path / "x" / ".." / "m")
    assert os.listdir(tmp_path) == ["m"]


def test_a_model_is_overwritten_only_by_force(tmp_path):
    schema = Schema.from_dict(CLASSES)
    first = tasks.fit(table(), QUICK, schema=schema, out=tmp_path)
    with pytest.raises(FileError, match="already holds"):
        tasks.fit(table(), QUICK, schema=schema, out=tmp_path)
    second = tasks.fit(table(), QUICK, schema=schema, out=tmp_path, force=True)
    now = load(tmp_path / "model.safetensors")
    assert np.array_equal(now.coef_, second.estimator.coef_)
    assert not np.array_equal(now.coef_, first.estimator.coef_)
    assert sorted(os.listdir(tmp_path)) == sorted([*FILES, MANIFEST])


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_whatever_happens_nothing_is_half_written(tmp_path, monkeypatch, error):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(tasks, "render_html", fail)
    with pytest.raises(error):
        tasks.fit(table(), QUICK, schema=Schema.from_dict(CLASSES), out=tmp_path / "m")
    assert os.listdir(tmp_path) == []


# --- plan --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "settings"),
    [
        (CLASSES, Settings(1.0, 1e-5)),
        (AMOUNT, Settings(1.0, 1e-5)),
        (CLASSES, Settings(0.3, 1e-6, "dp-gd", neighbors="replace_one", steps=20)),
        (CLASSES, Settings(1.0, 1e-5, "dpsgd", steps=5, arithmetic="fast")),
        (AMOUNT, Settings(1.0, 1e-5, "jl", components=4, steps=20, loss="huber")),
        (CLASSES, Settings(1.0, 1e-5, neighbors="add_or_remove_one", loss="huber-hinge")),
    ],
    ids=lambda case: f"{case.recipe}-{case.neighbors}" if isinstance(case, Settings) else "",
)
def test_a_plan_lists_what_a_fit_then_spends(tmp_path, facts, settings):
    schema = Schema.from_dict(facts)
    calibrated = tasks.plan(settings, 600, schema=schema)
    size = {"size": 600} if settings.neighbors == "add_or_remove_one" else {}
    drop = ("rich",) if schema.target_bounds else ("amount",)
    fitted = tasks.fit(table(drop=drop), settings, schema=schema, out=tmp_path / "m", **size)
    certificate = fitted.estimator.certificate_.to_dict()
    assert tasks.events(calibrated) == certificate["events"]
    planned = calibrated.to_dict()
    ran = certificate["plan"]["trainer"]["parameters"]
    if settings.recipe == "auto" and schema.classes:  # they follow the length of centred rows
        told = planned["trainer"]["parameters"]
        told |= {name: ran[name] for name in ("clip", "learning_rate", "bias", "average")}
    assert planned["trainer"] == certificate["plan"]["trainer"]
    assert planned["columns"] == certificate["plan"]["columns"]
    assert calibrated.numerical_delta == certificate["numerical_delta"]


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("columns", [2, 40])
def test_defaults_are_those_of_the_estimators(classes, columns):
    """Of few columns least squares take sums, on the command line as in Python: one rule."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12_000, columns))
    labels = np.arange(12_000) % classes if classes else np.clip(rows[:, 0], -1, 1)
    model = DPLinearClassifier if classes else DPLinearRegressor
    own = {"classes": range(classes)} if classes else {"target_bounds": (-1, 1)}
    plan = model(8.0, 1e-5, **own).fit(rows, labels).plan_.plan
    fitted = plan.calibrate(size=12_000, columns=columns, classes=classes)
    planned = tasks.plan(Settings(8.0, 1e-5), 12_000, columns=columns, classes=classes)
    assert planned.to_dict() == fitted.to_dict()
    assert planned.spent == fitted.spent
    name = "SufficientStatistics" if (classes, columns) == (0, 2) else "DPGD"
    assert planned.trainer.name == name


def test_a_table_of_numbers_is_fitted_with_the_default_of_python(tmp_path):
    few = {"columns": {"age": COLUMNS["age"]}, "ignore": ["id", "hours", "job"]}
    schema, settings = Schema.from_dict({**AMOUNT, **few}), Settings(20.0, 1e-5)
    fitted = tasks.fit(table(2_000, drop=("rich",)), settings, schema=schema, out=tmp_path / "m")
    plan = fitted.estimator.certificate_.plan
    assert plan["trainer"]["name"] == "SufficientStatistics"
    assert plan["trainer"] == tasks.plan(settings, 2_000, schema=schema).to_dict()["trainer"]


def test_a_recipe_or_a_setting_that_is_asked_for_is_what_runs():
    facts = {"columns": 2, "classes": 0}
    for asked in (
        Settings(8.0, 1e-5, "dpsgd-f"),
        Settings(8.0, 1e-5, steps=7),
        Settings(8.0, 1e-5, trainer="dp-gd", options=("clip=0.5",)),
    ):
        assert tasks.plan(asked, 12_000, **facts).trainer.name == "DPGD"
    tried = tasks.tuning(Settings(8.0, 1e-5, tune=("radius=1,2",)), 12_000, **facts)
    assert {plan.trainer.name for plan in tried.plans} == {"DPGD"}  # trials are of descent


def test_a_plan_needs_columns_from_one_source():
    schema = Schema.from_dict(CLASSES)
    assert tasks.plan(Settings(1.0, 1e-5), 100, columns=7, classes=3).facts.outputs == 3
    assert tasks.plan(Settings(1.0, 1e-5), 100, columns=7, classes=0).plan.loss.name == "squared"
    for options in (
        {},
        {"columns": 0},
        {"columns": 3, "schema": schema},
        {"classes": 3, "schema": schema},
        {"classes": 1, "columns": 3},
    ):
        with pytest.raises(InputError):
            tasks.plan(Settings(1.0, 1e-5), 100, **options)
    with pytest.raises(InputError, match="does not suit the target"):
        tasks.plan(Settings(1.0, 1e-5, loss="squared"), 100, schema=schema)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"epsilon": value} for value in (0.0, -1.0, float("nan"), float("inf"))),
        *({"delta": value} for value in (0.0, 1.0, -1e-5, float("nan"))),
        *({"neighbors": "friends"}, {"steps": 0}, {"components": 0}),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused_at_once(wrong):
    with pytest.raises(InputError):
        Settings(**{"epsilon": 1.0, "delta": 1e-5, **wrong})


def test_a_budget_below_the_noise_is_refused():
    with pytest.raises(BudgetError):
        tasks.plan(Settings(1.0, 1e-300), 100, columns=3)


# --- predict, draft ----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_are_those_of_the_estimator(fitted, tmp_path, suffix):
    rows = without(people(70, seed=5), "rich", "amount", "id")
    source = write_csv(tmp_path / "new.csv", rows)
    out = tmp_path / f"p.{suffix}"
    assert tasks.predict(fitted.out, source, out, proba=True) == 70
    written, truth = read_table(out), read_table(source)
    assert written.column_names == ("prediction", "probability_no", "probability_yes")
    assert written.column("prediction").tolist() == fitted.estimator.predict(truth).tolist()
    expected = fitted.estimator.predict_proba(truth)
    assert np.array_equal(written.column("probability_yes"), expected[:, 1])
    with pytest.raises(FileError, match="exists"):
        tasks.predict(fitted.out, source, out)
    tasks.predict(fitted.out / "model.safetensors", source, out, force=True)
    assert read_table(out).column_names == ("prediction",)


def test_predictions_that_cannot_be_made_leave_no_file(fitted, tmp_path):
    good = write_csv(tmp_path / "new.csv", without(people(20), "amount"))
    bad = write_csv(tmp_path / "bad.csv", without(people(20), "age"))
    (tmp_path / "folder.csv").mkdir()
    before = sorted(os.listdir(tmp_path))
    for model, rows, out in [
        (fitted.out, bad, "p.csv"),
        (fitted.out, tmp_path / "none.csv", "p.csv"),
        (fitted.out, good, "p.txt"),
        (fitted.out, good, "no/such/folder/p.csv"),
        (fitted.out, good, "new.csv/p.csv"),
        (fitted.out, good, "folder.csv"),
        (tmp_path, good, "p.csv"),
        (good, good, "p.csv"),
    ]:
        with pytest.raises(InputError):
            tasks.predict(model, rows, tmp_path / out)
    assert sorted(os.listdir(tmp_path)) == before


def test_no_probabilities_where_there_are_none(tmp_path):
    rows = write_csv(tmp_path / "t.csv", without(people(), "rich"))
    tasks.fit(rows, QUICK, schema=Schema.from_dict(AMOUNT), out=tmp_path / "m")
    with pytest.raises(InputError, match="no probabilities"):
        tasks.predict(tmp_path / "m", rows, tmp_path / "p.csv", proba=True)
    assert tasks.predict(tmp_path / "m", rows, tmp_path / "p.csv") == 600


def test_a_model_of_arrays_is_not_for_tables(tmp_path):
    rng = np.random.default_rng(0)
    model = DPLinearClassifier(random_state=0).fit(rng.normal(size=(50, 2)), [0, 1] * 25)
    save(model, tmp_path / "m.safetensors")
    rows = write_csv(tmp_path / "t.csv", {"x": [1], "y": [2]})
    with pytest.raises(InputError, match="takes arrays"):
        tasks.predict(tmp_path / "m.safetensors", rows, tmp_path / "p.csv")


def test_a_draft_leaves_the_facts_to_a_person(tmp_path):
    source = write_csv(tmp_path / "t.csv", without(people(), "amount"))
    text = tasks.draft(source, "rich", tmp_path / "s.yaml")
    assert (tmp_path / "s.yaml").read_text(encoding="utf-8") == text
    assert "smith" not in text and "low: ~" in text
    with pytest.raises(SchemaError, match="blanks"):
        Schema.load(tmp_path / "s.yaml")
    with pytest.raises(FileError, match="exists"):
        tasks.draft(source, "rich", tmp_path / "s.yaml")
    assert "target" in tasks.draft(source, None, tmp_path / "s.yaml", force=True)


# --- verify ------------------------------------------------------------------------------------


def copied(fitted, tmp_path):
    for name in (*FILES, MANIFEST):
        (tmp_path / name).write_bytes((fitted.out / name).read_bytes())
    return tmp_path


def test_an_honest_claim_holds(fitted):
    for path in (fitted.out, *(fitted.out / name for name in FILES[:2])):
        verdict = tasks.verify(path)
        assert verdict.problems == () and verdict.to_dict()["claimed"] == 2.0
        assert set(verdict.recomputed) == {"dp-accounting", "recheck"}
        assert all(value <= 2.0 for value in verdict.recomputed.values())


def test_a_forged_claim_does_not_hold(fitted, tmp_path):
    forged = replace(fitted.estimator.certificate_, epsilon=1.0)  # with a digest that fits
    forged.save(tmp_path / "certificate.json")
    verdict = tasks.verify(tmp_path / "certificate.json")
    assert verdict.to_dict()["holds"] is False
    assert any("above the claimed 1" in problem for problem in verdict.problems)


def test_an_edited_certificate_is_found(fitted, tmp_path):
    path = copied(fitted, tmp_path) / "certificate.json"
    path.write_text(path.read_text().replace('"epsilon": 2.0', '"epsilon": 1.0'))
    verdict = tasks.verify(path)
    assert verdict.certificate is None and "wrong digest" in verdict.problems[0]
    assert tasks.verify(tmp_path).problems  # though the model beside it is sound
    path.write_text(path.read_text()[:-40])
    assert "not valid JSON" in tasks.verify(path).problems[0]


@pytest.mark.parametrize("where", [8, 0.5, -1])
def test_an_edited_model_is_found(fitted, tmp_path, where):
    path = copied(fitted, tmp_path) / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[int(where * len(data)) if where == 0.5 else where] ^= 1
    path.write_bytes(data)
    assert tasks.verify(path).problems
    assert tasks.verify(tmp_path).to_dict()["holds"] is False


def test_model_and_certificate_must_belong_together(fitted, tmp_path):
    copied(fitted, tmp_path)
    other = replace(fitted.estimator.certificate_, created="2001-01-01T00:00:00+00:00")
    other.save(tmp_path / "certificate.json")
    (problem,) = tasks.verify(tmp_path).problems
    assert "certificate.json is not the file that manifest.json names" in problem
    # Nor does it help to forge a manifest as well.
    said = json.loads((tmp_path / MANIFEST).read_text())
    said["files"]["certificate.json"] = sha256(
        (tmp_path / "certificate.json").read_bytes()
    ).hexdigest()
    (tmp_path / MANIFEST).write_text(json.dumps(said))
    assert "different certificate" in tasks.verify(tmp_path).problems[0]


@pytest.mark.parametrize("content", [b"", b"{}", b"\0\1\2" * 100, b"some text", b"[1, 2]"])
def test_what_is_not_ours_is_bad_input(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    for path in (tmp_path / "file", tmp_path / "none", tmp_path):
        with pytest.raises(FileError):
            tasks.verify(path)
