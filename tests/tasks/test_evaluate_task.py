"""``tacit evaluate`` and ``tacit fit --holdout``, as their users call them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli.main import app

BUDGET = ["--epsilon", "2", "--delta", "1e-5"]


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two tables and a model that was tested on held-out rows."""
    place = tmp_path_factory.mktemp("scores")
    rng = np.random.default_rng(0)
    for name in ("train", "other"):
        sick = rng.random(3000) < 0.3
        age = 40 + 15 * sick + rng.normal(0, 10, 3000)
        sex = np.where(rng.random(3000) < 0.5, "f", "m")
        lines = [
            f"{a:.1f},{s},{'yes' if x else 'no'}" for a, s, x in zip(age, sex, sick, strict=True)
        ]
        (place / f"{name}.csv").write_text("\n".join(["age,sex,sick", *lines]) + "\n")
    how = ["--out", place / "model", "--holdout", 0.3, "--by", "sex=f,m", "--json"]
    done = invoke("fit", place / "train.csv", "--target", "sick", *BUDGET, *how)
    assert done.exit_code == 0, done.output
    (place / "fit.json").write_text(done.stdout)
    return place


def test_a_fit_tells_what_held_out_rows_say_and_the_report_shows_it(folder):
    told = json.loads((folder / "fit.json").read_text())
    found = told["evaluation"]
    accuracy = found["figures"]["accuracy"]
    assert 0.65 < accuracy["low"] < accuracy["value"] < accuracy["high"] < 0.95
    assert set(found["by_group"]) == {"f", "m"} and "f - m" in found["gaps"]["recall"]
    page = (folder / "model" / "report.html").read_text("utf-8")
    assert "Area under the ROC curve" in page and "Differences between groups" in page
    assert "they may be published" in page
    assert invoke("verify", folder / "model").exit_code == 0


def test_another_table_is_tested_with_a_certificate_of_its_own(folder):
    out = folder / "tested"
    words = ["evaluate", folder / "model", folder / "other.csv", "--target", "sick", *BUDGET]
    done = invoke(*words, "--out", out)
    assert done.exit_code == 0, done.output
    assert "The second class, of which precision" in done.stdout and "is yes." in done.stdout
    assert "Accuracy" in done.stdout and "always saying the most common class" in done.stdout
    written = json.loads((out / "evaluation.json").read_text("utf-8"))
    assert written["figures"]["recall"]["low"] <= written["figures"]["recall"]["high"]
    assert invoke("verify", out).exit_code == 0
    again = invoke(*words, "--json", "--by", "sex=f,m")
    assert json.loads(again.stdout)["releasable"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "sock"], "did you mean"),
        (["--target", "sick", "--by", "sex"], "sex=female,male"),
        (["--target", "sick", "--by", "sax=f"], "lacks the column"),
        (["--target", "sick", "--target-bounds", "0,1"], "predicts classes"),
        (["--target", "sick", "--error-bound", "5"], "predicts classes"),
        (["--target", "sick", "--confidence", "2"], "between 0 and 1"),
        (["--target", "age"], "the model learned from the column 'age'"),
        (["--target", "sick", "--person", "sex"], "--person and --rows-per-person go together"),
        (["--target", "sick", "--person", "sex", "--rows-per-person", 2], "learned from"),
        (
            ["--target", "sick", "--person", "sex", "--rows-per-person", 2, "--by", "sex=f"],
            "identifiers are written nowhere",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(folder, words, said):
    done = invoke("evaluate", folder / "model", folder / "other.csv", *BUDGET, *words)
    assert done.exit_code == 2 and said in done.output.replace("\n", " ")


def test_a_target_of_many_numbers_is_not_taken_for_classes(folder):
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal():.2f},{rng.integers(0, 50)}" for _ in range(2000)]
    (folder / "visits.csv").write_text("\n".join(["age,visits", *lines]) + "\n")
    words = ["fit", folder / "visits.csv", "--target", "visits", *BUDGET, "--out", folder / "v"]
    for more in ([], ["--memory", 1]):
        done = invoke(*words, *more)
        assert done.exit_code == 2 and "--target-bounds 0,100" in done.output.replace("\n", " ")
    done = invoke(*words, "--target-bounds", "0,50", "--steps", 2, "--quiet")
    assert done.exit_code == 0, done.output
    words = ["evaluate", folder / "v", folder / "visits.csv", "--target", "visits", *BUDGET]
    done = invoke(*words, "--error-bound", 30)
    assert done.exit_code == 0 and "more than 30 count" in done.stdout, done.output


def test_who_is_tested_by_rows_is_said_where_the_model_protects_people(folder, caplog):
    rng = np.random.default_rng(0)
    lines = [
        f"p{rng.integers(0, 900)},{rng.normal():.2f},{rng.integers(0, 2)}" for _ in range(3000)
    ]
    (folder / "stays.csv").write_text("\n".join(["patient,age,sick", *lines]) + "\n")
    who = ["--person", "patient", "--rows-per-person", 3]
    table = [folder / "stays.csv", "--target", "sick", *BUDGET]
    done = invoke("fit", *table, *who, "--steps", 2, "--quiet", "--out", folder / "stays")
    assert "people, at most 3 rows each, with epsilon 2" in done.stdout, done.output
    assert "person, by 'patient', at most 3 rows each" in invoke("verify", folder / "stays").stdout
    for more, warned in ((who, False), ([], True)):
        caplog.clear()
        done = invoke("evaluate", folder / "stays", *table, *more)
        assert done.exit_code == 0, done.output
        assert ("(--person, --rows-per-person 3)" in caplog.text) is warned


def test_groups_that_nobody_can_be_in_are_refused_or_remarked_upon(folder, caplog):
    words = ["evaluate", folder / "model", folder / "other.csv", "--target", "sick", *BUDGET]
    none = invoke(*words, "--by", "sex=F,M")
    assert none.exit_code == 2 and "'F' is no known category of 'sex'" in none.output
    assert invoke(*words, "--by", "sex=f,mm").exit_code == 0
    assert "'mm' is no known category of 'sex' (did you mean 'm'?)" in caplog.text
    (folder / "s.yaml").write_text("target: sick\ncolumns: {age: [0, 100], sex: [f, m]}\n")
    how = ["--schema", folder / "s.yaml", *BUDGET, "--holdout", 0.3, "--out", folder / "none"]
    none = invoke("fit", folder / "train.csv", *how, "--by", "sex=female,male")
    assert none.exit_code == 2 and "is no known category of 'sex'" in none.output
    assert not (folder / "none").exists()


def test_a_delta_that_is_too_large_is_said_on_the_command_line(folder):
    budget = ["--epsilon", 1, "--delta", 0.1]
    words = [folder / "other.csv", "--target", "sick", *budget]
    done = invoke("evaluate", folder / "model", *words)
    assert done.exit_code == 0 and "Warning: delta = 0.1 is larger than one" in done.stderr
    done = invoke("fit", *words, "--steps", 2, "--quiet", "--out", folder / "loose")
    assert done.exit_code == 0 and "Warning: delta = 0.1 is larger than one" in done.stderr


def test_groups_need_a_test_that_can_be_made(folder):
    words = ["fit", folder / "train.csv", "--target", "sick", *BUDGET, "--out", folder / "no"]
    assert "give holdout" in invoke(*words, "--by", "sex=f,m").output


def test_the_best_of_private_trials_is_tested_on_held_out_rows(folder):
    words = ["fit", folder / "train.csv", "--target", "sick", *BUDGET, "--out", folder / "tuned"]
    tuned = invoke(*words, "--holdout", 0.2, "--tune", "clip=0.1,1", "--trials", 2, "--json")
    assert tuned.exit_code == 0, tuned.output
    told = json.loads(tuned.stdout)
    assert told["chosen"] and told["evaluation"]["figures"]["accuracy"]["low"] > 0.5
