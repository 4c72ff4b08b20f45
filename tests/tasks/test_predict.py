"""Predictions of a model for a table, and the draft of a schema."""

from __future__ import annotations

import os

import numpy as np
import pytest
from tests.tasks.people import AMOUNT, QUICK, people, without, write_csv

from tacit.cli.tasks.fit import fit as fit_table
from tacit.cli.tasks.predict import predict
from tacit.cli.tasks.schema import draft
from tacit.data.readers import read_table
from tacit.data.schema import Schema
from tacit.exceptions import FileError, InputError
from tacit.linear_model import DPLinearClassifier
from tacit.persistence import save


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_are_those_of_the_estimator(fitted, tmp_path, suffix):
    rows = without(people(70, seed=5), "rich", "amount", "id")
    source = write_csv(tmp_path / "new.csv", rows)
    out = tmp_path / f"p.{suffix}"
    assert predict(fitted.out, source, out, proba=True) == 70
    written, truth = read_table(out), read_table(source)
    assert written.column_names == ("prediction", "probability_no", "probability_yes")
    assert written.column("prediction").tolist() == fitted.estimator.predict(truth).tolist()
    expected = fitted.estimator.predict_proba(truth)
    assert np.array_equal(written.column("probability_yes"), expected[:, 1])
    with pytest.raises(FileError, match="exists"):
        predict(fitted.out, source, out)
    predict(fitted.out / "model.safetensors", source, out, force=True)
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
            predict(model, rows, tmp_path / out)
    assert sorted(os.listdir(tmp_path)) == before


def test_no_probabilities_where_there_are_none(tmp_path):
    rows = write_csv(tmp_path / "t.csv", without(people(), "rich"))
    fit_table(rows, QUICK, schema=Schema.from_dict(AMOUNT), out=tmp_path / "m")
    with pytest.raises(InputError, match="no probabilities"):
        predict(tmp_path / "m", rows, tmp_path / "p.csv", proba=True)
    assert predict(tmp_path / "m", rows, tmp_path / "p.csv") == 600


def test_a_model_of_arrays_is_not_for_tables(tmp_path):
    rng = np.random.default_rng(0)
    model = DPLinearClassifier(random_state=0).fit(rng.normal(size=(50, 2)), [0, 1] * 25)
    save(model, tmp_path / "m.safetensors")
    rows = write_csv(tmp_path / "t.csv", {"x": [1], "y": [2]})
    with pytest.raises(InputError, match="takes features that are ready"):
        predict(tmp_path / "m.safetensors", rows, tmp_path / "p.csv")


def test_a_draft_leaves_the_facts_to_a_person(tmp_path):
    source = write_csv(tmp_path / "t.csv", without(people(), "amount"))
    text = draft(source, "rich", tmp_path / "s.yaml")
    assert (tmp_path / "s.yaml").read_text(encoding="utf-8") == text
    assert "smith" not in text
    assert Schema.load(tmp_path / "s.yaml").private
    with pytest.raises(FileError, match="exists"):
        draft(source, "rich", tmp_path / "s.yaml")
    assert "target" in draft(source, None, tmp_path / "s.yaml", force=True)
