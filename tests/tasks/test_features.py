"""From features in a file to a model and its predictions, on the command line."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import replace

import numpy as np
import pytest
from tests.tasks.people import QUICK, people, write_csv
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.cli.tasks.evaluate import evaluate
from tacit.cli.tasks.fit import fit
from tacit.cli.tasks.inspect import inspect, inspect_privately
from tacit.cli.tasks.plan import plan
from tacit.cli.tasks.predict import predict
from tacit.cli.tasks.schema import draft
from tacit.data.readers import read_table
from tacit.exceptions import FileError, InputError
from tacit.features import FeatureSet, load_features, save_features
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
from tacit.trainers import DPGD

NETWORK = {"extractor": "net.onnx", "digest": "ab" * 16, "weights_sha256": "cd" * 32}
SEEDED = {"random_state": 0}


def rows_of(n=300, d=6, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    return (rng.normal(size=(n, d)) + 3 * np.eye(3, d)[labels]).astype(np.float32), labels


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = rows_of()
    other, truth = rows_of(80, seed=1)
    facts = {"format": "tacit-features/1", **NETWORK}
    save_features(FeatureSet(x, labels=np.array(["a", "b", "c"])[y], metadata=facts), "f.npz")
    np.savez("both.npz", X_train=x, y_train=y, X_test=other, y_test=truth, other=y % 2)
    np.savez("new.npz", x=other)
    np.savez("odd.npz", rows=x, aim=y * 0.5)
    write_csv("labels.csv", {"id": np.arange(300), "aim": [f"c{v}" for v in y]})
    return tmp_path


# Which arrays


def test_arrays_are_found_by_the_names_that_people_give_them(here):
    both = np.load("both.npz")
    train, test = (load_features("both.npz", part=part) for part in ("train", "test"))
    assert (train.features == both["X_train"]).all() and (train.labels == both["y_train"]).all()
    assert (test.features == both["X_test"]).all() and (test.labels == both["y_test"]).all()
    assert (load_features("both.npz", part="train", labels="other").labels < 2).all()
    assert load_features("new.npz").labels is None
    assert load_features("f.npz", part="test").labels[0] in "abc"
    odd = load_features("odd.npz", key="rows", labels="aim")
    assert odd.features.shape == (300, 6) and odd.metadata == {}
    with pytest.raises(FileError, match=r"which array of both\.npz .* 'X_train', 'y_train'"):
        load_features("both.npz")
    with pytest.raises(FileError, match=r"which array of odd\.npz"):
        load_features("odd.npz", part="train")
    with pytest.raises(FileError, match="has no array 'stars'; it has 'features', 'metadata'"):
        load_features("f.npz", labels="stars")
    with pytest.raises(FileError, match="'aim' holds no rows of numbers"):
        load_features("odd.npz", key="aim")
    with pytest.raises(InputError, match="one number or word for every row"):
        load_features("both.npz", part="train", labels="y_test")


# Fits


def test_a_fit_to_a_file_is_that_of_python(here):
    done = fit("f.npz", QUICK, out="m", **SEEDED)
    found = load_features("f.npz")
    model = DPLinearClassifier(
        QUICK.epsilon, QUICK.delta, trainer=DPGD(steps=QUICK.steps), **SEEDED
    ).fit(found)
    assert (done.estimator.coef_ == model.coef_).all()
    assert done.estimator.classes_.tolist() == ["a", "b", "c"]
    said = [text for text in done.estimator.certificate_.assumptions if "net.onnx" in text]
    assert said == [found.assumption()]
    names = [stage["name"] for stage in done.estimator.certificate_.plan["stages"]]
    assert names == ["Normalize", "PrivateCenter"]
    assert predict("m", "new.npz", "p.csv", proba=True) == 80
    guess = read_table("p.csv").column("prediction").tolist()
    assert guess == model.predict(np.load("new.npz")["x"]).tolist()


def test_a_model_of_features_is_tested_on_features_through_noise(here):
    fit("both.npz", QUICK, out="m", **SEEDED)
    given = {"epsilon": 20.0, "delta": 1e-5}
    for table, target in (("both.npz", None), ("both.npz", "y_test")):
        found = evaluate("m", table, target=target, **given)
        assert found.figures["accuracy"].value > 0.5
    with pytest.raises(InputError, match="no labels"):
        evaluate("m", "new.npz", **given)
    with pytest.raises(InputError, match="which column does the model predict"):
        evaluate("m", "labels.csv", **given)


def test_words_are_not_tested_as_numbers_at_a_price(here):
    fit("f.npz", QUICK, out="m")
    x, y = rows_of(seed=4)
    np.savez("numbers.npz", x=x, y=y)
    with pytest.raises(InputError, match=r"labels of numbers.npz are numbers, .* are words"):
        evaluate("m", "numbers.npz", epsilon=1.0, delta=1e-5)


def test_rows_of_a_file_are_tested_on_others_of_it(here):
    done = fit("both.npz", QUICK, out="m", test="both.npz")
    assert done.results["test_rows"] == 80 and done.results["test_accuracy"] > 0.5
    (said,) = (t for t in done.estimator.certificate_.assumptions if t.startswith("features"))
    assert "nothing is known of what made them" in said
    assert predict("m", "both.npz", "p.csv", key="X_test") == 80
    with pytest.raises(FileError, match="which array"):
        predict("m", "both.npz", "q.csv")


def test_labels_may_stand_in_a_table_or_in_another_array(here):
    named = fit("odd.npz", QUICK, out="a", key="rows", labels="labels.csv", target="aim")
    assert named.estimator.classes_.tolist() == ["c0", "c1", "c2"]
    assert fit("both.npz", QUICK, out="b", target="other").estimator.classes_.tolist() == [0, 1]
    number = fit("odd.npz", QUICK, out="c", key="rows", target="aim", target_bounds="0,1")
    assert isinstance(number.estimator, DPLinearRegressor)
    assert number.estimator.target_bounds == (0.0, 1.0)
    unknown = fit("odd.npz", QUICK, out="d", key="rows", target="aim", target_bounds="private")
    assert unknown.estimator.plan_.spent[0][0] == "PrivateTargetBounds"


def test_public_features_are_those_of_the_same_network(here):
    pillar = replace(QUICK, recipe="pillar")
    facts = {"format": "tacit-features/1", **NETWORK}
    save_features(FeatureSet(rows_of(60, seed=3)[0], metadata=facts), "public.npz")
    done = fit("f.npz", pillar, out="m", public="public.npz")
    assert "of the energy of the private rows" in done.to_dict()["found"][0]
    other = {**facts, "digest": "00" * 16}
    save_features(FeatureSet(rows_of(60, seed=3)[0], metadata=other), "other.npz")
    with pytest.raises(InputError, match="of another network"):
        fit("f.npz", pillar, out="n", public="other.npz")
    with pytest.raises(InputError, match="of another network"):
        predict("m", "other.npz", "p.csv")
    with pytest.raises(InputError, match="of another network"):
        fit("f.npz", QUICK, out="n", test="other.npz")
    with pytest.raises(InputError, match="is the private table itself"):
        fit("f.npz", pillar, out="n", public="f.npz")
    planned = plan(pillar, 300, columns=6, classes=3, public="public.npz")
    assert planned.facts.features >= 1
    assert not os.path.exists("n")


def test_the_command_warns_once_of_public_rows_that_are_unlike_the_private_ones(here):
    np.savez("unlike.npz", x=np.random.default_rng(0).normal(size=(60, 6)) * [0, 0, 0, 1, 1, 1])
    call = ["fit", "f.npz", "--recipe", "pillar", "--public", "unlike.npz", "--out", "m", "--quiet"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(app, [*call, "--epsilon", "50", "--delta", "1e-5"])
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stderr.splitlines() if "unlike the private ones" in line]
    assert line.startswith("Warning: the public rows of PrivateCheckedPCA are unlike")


def test_settings_may_be_tuned(here):
    done = fit("f.npz", replace(QUICK, tune=["clip=0.1,0.5"], trials=2), out="m")
    assert done.best["chosen"]["clip"] in ("0.1", "0.5")
    assert any("net.onnx" in text for text in done.estimator.certificate_.assumptions)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schema": "s.yaml"}, "schema is for tables, and f.npz holds features"),
        ({"memory": 1e9}, "memory is for tables"),
        ({"target": "stars"}, "has no array 'stars'"),
        ({"labels": "labels.csv"}, "which column of labels.csv holds the labels.*id, aim"),
        ({"labels": "labels.csv", "target": "id", "key": "names"}, "has no array 'names'"),
        ({"test": "f.npz"}, "holds the private rows alone"),
        ({"test": "labels.csv"}, "rows to test on must be features, too"),
        ({"test": "both.npz"}, "a label that is not among the classes"),
        ({"target_bounds": "0,1"}, "are words; target_bounds are for numbers"),
        ({"public": "f2.npz"}, "public rows are for the recipe|no file"),
    ],
)
def test_what_does_not_go_together_is_refused(here, given, words):
    with pytest.raises(InputError, match=words):
        fit("f.npz", QUICK, out="m", **given)
    assert not os.path.exists("m")


def test_people_are_not_told_apart_in_features(here):
    with pytest.raises(InputError, match=r"protect people in Python, fit\(X, y, groups="):
        fit("f.npz", replace(QUICK, person="patient", rows_per_person=2), out="m")


def test_labels_that_are_missing_or_no_classes_are_refused_without_showing_them(here):
    with pytest.raises(InputError, match="holds no labels: name their array as target"):
        fit("new.npz", QUICK, out="m")
    with pytest.raises(InputError, match="are fractions; a number needs target_bounds"):
        fit("odd.npz", QUICK, out="m", key="rows", target="aim")
    write_csv("short.csv", {"aim": ["a", "b"] * 20})
    with pytest.raises(InputError, match="not one row for every row") as caught:
        fit("odd.npz", QUICK, out="m", key="rows", target="aim", labels="short.csv")
    assert "300" not in str(caught.value) and "40" not in str(caught.value)
    x, y = rows_of()
    x[7, 2] = np.nan
    np.savez("gap.npz", x=x, y=y)
    with pytest.raises(InputError, match="NaN"):
        fit("gap.npz", QUICK, out="m")


def test_tables_and_features_are_not_taken_for_each_other(here, fitted):
    table = write_csv("people.csv", people(20))
    with pytest.raises(InputError, match="takes tables with named columns"):
        predict(fitted.out, "new.npz", "p.csv")
    fit("f.npz", QUICK, out="m")
    with pytest.raises(InputError, match=r"takes features .* not tables: give an \.npz"):
        predict("m", table, "p.csv")
    with pytest.raises(InputError, match="labels and key are for features"):
        fit(table, QUICK, out="n", target="rich", labels="labels.csv")
    with pytest.raises(InputError, match="need no schema: give the file to tacit fit"):
        draft("f.npz")


def test_features_are_inspected_without_a_schema(here):
    assert inspect("both.npz").to_dict()["releasable"] is False
    found = inspect_privately("f.npz", epsilon=1.0, delta=1e-5)
    assert any("net.onnx" in text for text in found.certificate.assumptions)
    with pytest.raises(InputError, match="a table needs its schema"):
        inspect("labels.csv")


def test_the_commands_go_from_features_to_predictions(here):
    def run(*arguments):
        done = CliRunner().invoke(app, [str(a) for a in arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    budget = ("--epsilon", 4, "--delta", 1e-5, "--steps", 5, "--quiet")
    shown = run("fit", "both.npz", "--test", "both.npz", *budget, "--out", "m")
    assert "Fitted to 300 rows" in shown and "test accuracy" in shown
    assert "80 rows" in run("predict", "m", "both.npz", "--key", "X_test", "--out", "p.csv")
    assert "The claim holds." in run("verify", "m")
    labels = ("--key", "rows", "--labels", "labels.csv", "--target", "aim")
    run("fit", "odd.npz", *labels, *budget, "--out", "n")
    assert json.loads(run("inspect", "both.npz", "--json"))["releasable"] is False
