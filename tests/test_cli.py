"""The command line as people and scripts meet it: words, JSON, exit codes."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tacit
from tacit.cli.main import app
from tacit.data.readers import read_table
from tacit.engine.kernels.compact import CompactStore
from tacit.engine.storage import DenseStore
from tacit.ledger import Ledger
from tacit.linear_model import DPLinearClassifier
from tacit.persistence import load
from tacit.privacy import Certificate

FILES = ["certificate.json", "manifest.json", "model.safetensors", "report.html"]
SCHEMA = """\
target: ill
classes: ["no", "yes"]
columns:
  age: {kind: number, low: 0, high: 100}
  dose: {kind: number, low: 0, high: 10}
  ward: {kind: category, categories: [east, west]}
"""


def write(path, columns):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def patients(n=600, seed=0, **changes):
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 100, n), rng.uniform(0, 10, n)
    ill = age / 10 - dose + rng.normal(size=n) > 0
    columns = {
        "age": age.round(1).tolist(),
        "dose": dose.round(2).tolist(),
        "ward": rng.choice(["east", "west"], n).tolist(),
        "ill": np.where(ill, "yes", "no").tolist(),
    }
    return columns | changes


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("train.csv", patients())
    write("test.csv", patients(200, seed=1))
    (tmp_path / "s.yaml").write_text(SCHEMA)
    return tmp_path


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def parsed(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code).stdout)


def refused(*arguments, code=2):
    """The message of a command that must refuse; it is one line and starts with 'error: '."""
    result = run(*arguments, code=code)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def fitting(*more, table="train.csv", epsilon=2, delta=1e-4, out="model"):
    options = ["--schema", "s.yaml", "--epsilon", epsilon, "--delta", delta, "--steps", 30]
    return ["fit", table, *options, "--quiet", "--out", out, *more]


# --- end to end, as separate processes -----------------------------------------------------------


def python(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def tacit_process(*arguments):
    return python("-m", "tacit.cli", *arguments)


def test_a_table_becomes_a_model_predictions_and_a_verified_claim(here):
    done = tacit_process(*fitting("--test", "test.csv", "--json"))
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert sorted(os.listdir("model")) == FILES
    assert facts["train_rows"] == 600 and facts["test_accuracy"] > facts["majority_accuracy"]
    done = tacit_process("predict", "model", "test.csv", "--out", "p.csv")
    assert done.returncode == 0, done.stderr
    expected = load("model/model.safetensors").predict(read_table("test.csv"))
    assert read_table("p.csv").column("prediction").tolist() == expected.tolist()
    done = tacit_process("verify", "model")
    assert done.returncode == 0 and done.stdout.endswith("The claim holds.\n")


def test_a_refusal_shows_one_line_and_no_traceback(here):
    write("train.csv", patients(ill=["SECRET"] * 600))
    done = tacit_process(*fitting())
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert "SECRET" not in done.stderr
    assert not os.path.exists("model")


def test_help_is_cheap():
    heavy = "dp_accounting", "pyarrow", "sklearn", "numpy", "scipy", "pandas"
    script = (
        "import sys; from tacit.cli.main import app\n"
        "try: app(['fit', '--help'])\n"
        f"except SystemExit: print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = python("-c", script)
    assert done.stdout.endswith("[]\n"), done.stdout + done.stderr


# --- help ----------------------------------------------------------------------------------------


def test_version():
    assert run("--version").stdout == f"tacit {tacit.__version__}\n"


@pytest.mark.parametrize(
    "command", ["schema", "fit", "predict", "plan", "verify", "demo", "features"]
)
def test_every_command_explains_itself(command):
    text = run(command, "--help").stdout
    assert f"tacit {command} " in text and "Example" in text
    assert "--json" in text


def test_help_says_why_and_what():
    text = " ".join(run("fit", "--help").stdout.split())
    assert "through noise" in text and "e^epsilon" in text and "small probability" in text


@pytest.mark.parametrize("arguments", [["fit"], ["frobnicate"], ["plan", "--epsilon", "one"]])
def test_wrong_usage_exits_with_2(arguments):
    result = run(*arguments, code=2)
    assert result.stdout == "" and "Usage" in result.stderr


# --- fit -----------------------------------------------------------------------------------------


def test_fit_says_what_it_did_in_words(here):
    result = run(*fitting("--test", "test.csv"))
    assert "epsilon 2, delta 0.0001 (replace_special)" in result.stdout
    assert "test accuracy" in result.stdout and "tacit verify model" in result.stdout


def test_fit_gives_the_promised_json(here):
    assert parsed(*fitting()) == {
        "epsilon": 2.0,
        "delta": 1e-4,
        "neighbors": "replace_special",
        "train_rows": 600,
        "out": "model",
    }


def test_a_private_number_of_rows_is_not_told(here):
    options = ["--neighbors", "add_or_remove_one", "--public-size", 500]
    assert parsed(*fitting(*options))["train_rows"] == 500
    assert not re.search(r"\b600\b", (here / "model/certificate.json").read_text())
    assert "public_size=" in refused(*fitting("--neighbors", "add_or_remove_one", out="other"))


def test_regression_from_a_parquet_table(here):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = patients()
    columns["ill"] = [a - 5 * d for a, d in zip(columns["age"], columns["dose"], strict=True)]
    pq.write_table(pa.table(columns), "t.parquet")
    (here / "s.yaml").write_text(
        SCHEMA.replace('classes: ["no", "yes"]', "target_bounds: [-50, 100]")
    )
    facts = parsed(*fitting("--test", "t.parquet", table="t.parquet", epsilon=8))
    assert set(facts) >= {"test_r2", "test_rmse"} and facts["test_r2"] > 0
    assert run("predict", "model", "t.parquet", "--out", "p.parquet").exit_code == 0


def test_a_seed_is_warned_of_loudly(here):
    result = run(*fitting("--seed", 1, "--json"))
    assert "NOT FOR RELEASE" in result.stderr
    assert json.loads(result.stdout)["epsilon"] == 2.0
    assert not Certificate.load("model/certificate.json").releasable
    assert "NOT FOR RELEASE: seeded" in run("verify", "model").stderr


def test_progress_goes_to_standard_error(here):
    loud = [argument for argument in fitting("--json") if argument != "--quiet"]
    result = run(*loud)
    assert "training" in result.stderr
    json.loads(result.stdout)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": -1}, "epsilon must be positive"),
        ({"delta": 0}, "delta must lie strictly between 0 and 1"),
        ({"delta": 1}, "delta must lie strictly between 0 and 1"),
        ({"table": "none.csv"}, "no such file"),
        ({"table": "folder"}, "a directory without .parquet files"),
        ({"table": "."}, "damaged"),
        ({"table": "empty.csv"}, "is empty"),
        ({"table": "binary.csv"}, "is binary"),
        ({"table": "broken.parquet"}, "damaged"),
        ({"table": "s.yaml"}, "unknown kind of table"),
        ({"out": "train.csv"}, "cannot write into"),
        ({"out": "train.csv/below"}, "cannot write into"),
    ],
    ids=str,
)
def test_bad_input_is_refused(here, more, words):
    (here / "empty.csv").touch()
    (here / "folder").mkdir()
    (here / "binary.csv").write_bytes(bytes(range(256)) * 8)
    (here / "broken.parquet").write_bytes(b"PAR1" + b"x" * 100)
    before = sorted(os.listdir(here))
    assert words in refused(*fitting(**more))
    assert sorted(os.listdir(here)) == before


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--recipe", "magic"], "no recipe is called 'magic'"),
        (["--components", 3], "components are for the recipe"),
        (["--recipe", "pillar"], "needs public rows"),
        (["--recipe", "adadps"], "needs public rows"),
        (["--recipe", "dp-raft", "--public", "test.csv"], "public rows are for the recipe"),
        (["--recipe", "jl", "--components", 0], "components=0"),
        (["--neighbors", "friends"], "not a relation"),
        (["--loss", "squared"], "regression"),
        (["--loss", "magic"], "Unknown loss"),
        (["--arithmetic", "vague"], "arithmetic='vague'"),
        (["--steps", 0], "steps=0"),
        (["--public-size", 7], "public_size=7"),
        (["--target", "ward"], "the schema's target is 'ill'"),
        (["--test", "none.csv"], "no such file"),
        (["--schema", "none.yaml"], "cannot read none.yaml"),
        (["--schema", "train.csv"], "schema"),
    ],
    ids=str,
)
def test_bad_options_are_refused(here, more, words):
    assert words in refused(*fitting(*more))
    assert not os.path.exists("model")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ill": ["yes", ""] * 300}, "missing value"),
        ({"ill": ["yes", "SECRET"] * 300}, "not among its classes"),
    ],
)
def test_cells_are_never_shown(here, changes, words):
    write("train.csv", patients(**changes))
    message = refused(*fitting())
    assert words in message
    assert "SECRET" not in message and "300" not in message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  dose:", "  doze:", "did you mean 'dose'"),
        ("high: 100", "high: ~", "high of column 'age'"),
        ('["no", "yes"]', '["yes"]', "at least two"),
        ("kind: number, low: 0, high: 10}", "kind: string}", "kind may be"),
        ("high: 10}", "high: 10, missing: guess}", "missing may be"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(here, old, new, words):
    (here / "s.yaml").write_text(SCHEMA.replace(old, new))
    assert words in refused(*fitting())


def test_one_class_is_refused(here):
    (here / "s.yaml").write_text(SCHEMA.replace('classes: ["no", "yes"]\n', ""))
    write("train.csv", patients(ill=["yes"] * 600))
    assert "only one class" in refused(*fitting())


def test_an_existing_model_is_kept(here):
    run(*fitting())
    before = (here / "model/model.safetensors").read_bytes()
    assert "already holds" in refused(*fitting())
    assert (here / "model/model.safetensors").read_bytes() == before
    run(*fitting("--force"))
    assert (here / "model/model.safetensors").read_bytes() != before


def test_a_budget_that_refuses_exits_with_3(here):
    refused(*fitting(delta=1e-300), code=3)
    assert not os.path.exists("model")


def test_an_interruption_leaves_nothing(here, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(DPLinearClassifier, "fit", interrupt)
    result = run(*fitting(), code=130)
    assert result.stderr == "interrupted; nothing was written\n"
    assert not os.path.exists("model")


def test_a_mistake_of_ours_is_named_and_shows_no_values(here, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("SECRET")

    monkeypatch.setattr(DPLinearClassifier, "fit", fail)
    message = refused(*fitting(), code=4)
    assert "ZeroDivisionError in fit.py, line" in message and "please report" in message
    assert "SECRET" not in message
    assert not os.path.exists("model")
    monkeypatch.setenv("TACIT_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError, match="SECRET"):
        run(*fitting())


def test_want_of_memory_is_one_line(here, monkeypatch):
    def fail(*_):
        raise MemoryError("Unable to allocate SECRET")

    monkeypatch.setattr(DPLinearClassifier, "fit", fail)
    message = refused(*fitting())
    assert message == "error: the memory of this machine is not enough for that\n"
    assert not os.path.exists("model")


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("pillar", ["--components", 3]),
        ("gep", ["--components", 3]),
        ("adadps", []),
        ("dp-raft+pillar", ["--components", 3]),
    ],
)
def test_recipes_with_public_rows_from_the_command_line(here, recipe, more):
    write("public.csv", {k: v for k, v in patients(300, seed=4).items() if k != "ill"})
    run(*fitting("--recipe", recipe, "--public", "public.csv", *more))
    run("verify", "model/certificate.json")
    run("predict", "model", "public.csv", "--out", "p.csv")
    assert read_table("p.csv").n == 300


def test_dpsgd_f_as_the_theory_has_it_from_the_command_line(here):
    run(*fitting("--recipe", "dpsgd-f-theory"))
    run("verify", "model/certificate.json")
    plan = Certificate.load("model/certificate.json").plan
    # 600 rows are too few for the mean of Algorithm 2, so it is Algorithm 3, unless told otherwise.
    assert [s["name"] for s in plan["stages"]] == ["Encode", "Normalize", "PrivateCenter"]
    said = run(
        "plan",
        "--epsilon",
        2,
        "--delta",
        1e-4,
        "--rows",
        600,
        "--columns",
        3,
        "--recipe",
        "dpsgd-f-theory",
    ).output
    assert "Algorithm 3 of Sun et al. 2024 in place of Algorithm 2" in said
    run(*fitting("--recipe", "dpsgd-f-theory", "--option", "algorithm=2", "--force"))
    plan = Certificate.load("model/certificate.json").plan
    assert [s["name"] for s in plan["stages"]] == ["Encode", "PrivateCenter", "PrivateClip"]


@pytest.mark.parametrize(
    ("trainer", "name", "more"),
    [
        ("flattest", "FlattestDPGD", ("--loss", "savage")),
        ("gamma", "GammaSGD", ("--option", "batch_size=50", "--arithmetic", "fast")),
        ("iterated", "IteratedSGD", ("--arithmetic", "fast")),
        ("local", "LocalDPGD", ("--option", "reports=1")),
    ],
)
def test_every_trainer_can_be_named_on_the_command_line(here, trainer, name, more):
    given = ("--recipe", "dp-gd", "--trainer", trainer, *more)
    facts = ("--epsilon", 3, "--delta", 1e-5, "--rows", 400, "--schema", "s.yaml")
    if trainer != "iterated":  # whose calibration takes seconds
        assert parsed("plan", *facts, *given)["plan"]["trainer"]["name"] == name
    run(*fitting(*given))
    certificate = Certificate.load("model/certificate.json")
    assert certificate.plan["trainer"]["name"] == name
    assert "The claim holds." in run("verify", "model").stdout
    run("predict", "model", "train.csv", "--out", "guesses.csv")


def test_a_trainer_that_does_not_suit_the_stages_is_refused_before_a_row_is_read(here):
    said = refused(*fitting("--recipe", "dpsgd-f", "--trainer", "local"))
    assert "PrivateCenter needs somebody who sees all rows" in said
    assert not (here / "model").exists()


def test_the_median_of_a_table_in_its_own_units(here):
    columns = {name: values for name, values in patients(3000, ward=["west"] * 3000).items()}
    columns["age"] = [70 + value / 100 for value in columns["age"]]
    write("train.csv", columns)
    Ledger("ledger.db").create("rows", epsilon=4.01, delta=2e-5)
    given = ("median", "train.csv", "--schema", "s.yaml", "--epsilon", 4, "--delta", 1e-5)
    book = ("--ledger", "ledger.db", "--dataset", "rows")
    found = parsed(*given, "--out", "middle", *book)
    where = found["location"]
    assert list(where) == ["age", "dose", "ward=east", "ward=west"]
    assert where["age"] == pytest.approx(70.5, abs=3) and where["dose"] == pytest.approx(5, abs=1)
    assert where["ward=west"] > 0.7 and where["ward=east"] < 0.3
    assert json.loads((here / "middle" / "median.json").read_text())["location"] == where
    assert "The claim holds." in run("verify", "middle").stdout
    assert "ledger" in Certificate.load("middle/certificate.json").plan
    refused(*given, "--out", "middle")  # nothing is overwritten
    assert run(*given, "--out", "again", *book, code=3).stdout == ""  # and nothing overspent
    shown = run(*given, "--out", "seeded", "--seed", 1).stdout
    assert "NOT FOR RELEASE" in shown and "ward=west" in shown


def test_pillar_chooses_its_components_from_the_command_line(here):
    write("public.csv", {k: v for k, v in patients(300, seed=4).items() if k != "ill"})
    given = ("--recipe", "pillar", "--public", "public.csv", "--steps", 3)
    facts = ("--epsilon", 3, "--delta", 1e-5, "--rows", 400, "--schema", "s.yaml")
    assert "components were chosen for 400 rows" in run("plan", *facts, *given).stdout
    for extra in ((), ("--components", "auto"), ("--option", "n_components=auto")):
        found = parsed("plan", *facts, *given, *extra)
        assert found["plan"]["stages"][-1]["parameters"]["n_components"] >= 1
    options = ("--option", "n_components=2", "--option", "center=False", "--option", "clip=0.3")
    found = parsed("plan", *facts, *given, *options, "--option", "check=0")
    assert [s["name"] for s in found["plan"]["stages"]] == ["Encode", "Normalize", "PublicPCA"]
    assert found["plan"]["features"] == 2
    assert found["plan"]["trainer"]["parameters"]["clip"] == 0.3
    extra = ("--trainer", "noisy-sgd", "--option", "runs=2", "--option", "batch_size=600")
    shown = run(*fitting(*given, *extra)).stdout
    assert "components of public rows keep" in shown and "of the energy of the private" in shown
    certificate = Certificate.load("model/certificate.json")
    assert certificate.plan["trainer"]["name"] == "NoisySGD"
    assert "components were chosen" in certificate.plan["stages"][-1]["note"]
    assert [expense.event.kind for expense in certificate.events][-1] == "selection"
    assert "The claim holds." in run("verify", "model").stdout


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--components", "many"), "components=many must be an integer or auto"),
        (("--components", "0"), "components=0 must be at least 1"),
        (("--option", "n_components"), "is not a setting; write for instance n_components=20"),
        (("--components", "2", "--option", "n_components=3"), "n_components is given twice"),
        (("--option", "depth=3"), "unexpected keyword argument 'depth'"),
        (("--trainer", "adam"), "no trainer is called 'adam'"),
        (("--public", "train.csv"), "is the private table itself"),
    ],
)
def test_mistakes_about_public_rows_are_named(here, given, words):
    write("public.csv", {k: v for k, v in patients(300, seed=4).items() if k != "ill"})
    public = () if "--public" in given else ("--public", "public.csv")
    assert words in refused(*fitting("--recipe", "pillar", *public, *given))
    assert not os.path.exists("model")


def test_public_rows_of_a_plan_may_be_an_array_of_numbers(here):
    rows = np.random.default_rng(0).normal(size=(200, 5))
    write("numbers.csv", {f"x{i}": column for i, column in enumerate(rows.T)})
    facts = ("--epsilon", 1, "--delta", 1e-5, "--rows", 400, "--recipe", "pillar")
    run("plan", *facts, "--columns", 5, "--public", "numbers.csv")
    assert "give them as public=" in refused("plan", *facts, "--columns", 5)
    words = refused("plan", *facts, "--columns", 5, "--public", "train.csv")
    assert "give a schema" in words


# --- the other commands --------------------------------------------------------------------------


def test_schema_drafts_once(here):
    text = run("schema", "train.csv", "--target", "ill").stdout
    assert "target: ill" in text and ": private" in text
    assert "Wrote d.yaml" in run("schema", "train.csv", "--target", "ill", "--out", "d.yaml").stdout
    assert (here / "d.yaml").read_text() == text
    assert "exists" in refused("schema", "train.csv", "--out", "d.yaml")
    assert parsed("schema", "train.csv", "--target", "ill", "--out", "d.yaml", "--force") == {
        "out": "d.yaml",
        "schema": text,
    }
    budget = ["--schema", "d.yaml", "--epsilon", "0.01"]
    assert "rows are too few to find" in refused(*fitting(*budget))
    assert "did you mean 'ill'" in refused("schema", "train.csv", "--target", "il")
    assert "no such file" in refused("schema", "none.csv")


def test_predict_writes_once(here):
    run(*fitting())
    assert parsed("predict", "model", "test.csv", "--out", "p.csv", "--proba") == {
        "rows": 200,
        "out": "p.csv",
    }
    assert read_table("p.csv").column_names == ("prediction", "probability_no", "probability_yes")
    assert "exists" in refused("predict", "model", "test.csv", "--out", "p.csv")
    assert "200 rows" in run("predict", "model", "test.csv", "--out", "p.csv", "--force").stdout
    assert ".csv or .parquet" in refused("predict", "model", "test.csv", "--out", "p.json")
    assert "cannot read" in refused("predict", "nowhere", "test.csv", "--out", "q.csv")


def test_plan_shows_what_fit_will_spend(here):
    budget = ["--epsilon", 2, "--delta", 1e-4, "--steps", 30, "--rows", 600, "--schema", "s.yaml"]
    planned = parsed("plan", *budget)
    run(*fitting())
    certificate = json.loads((here / "model/certificate.json").read_text())
    assert planned["events"] == certificate["events"]
    assert planned["events"][-1]["stage"] == "DPGD"
    text = run("plan", *budget).stdout
    assert "PrivateCenter" in text and "epsilon alone" in text and "6.3%" in text


def test_plan_without_a_schema(here):
    budget = ["--epsilon", 1, "--delta", 1e-5, "--rows", 1000]
    planned = parsed("plan", *budget, "--columns", 20, "--classes", 4, "--recipe", "dpsgd")
    assert planned["plan"]["loss"] == "softmax"
    assert planned["events"][0]["parameters"]["sampling_probability"] < 1
    assert "give a schema" in refused("plan", *budget)
    assert "no rows" in refused("plan", *budget, "--columns", 3, "--rows", 0)
    refused("plan", *budget, "--columns", 3, "--delta", 1e-300, code=3)


def test_verify_tells_the_claim_and_both_recomputations(here):
    run(*fitting())
    report = parsed("verify", "model")
    assert set(report) == {"holds", "claimed", "recomputed", "groups", "revoked", "problems"}
    assert report["holds"] and report["claimed"] == 2.0 and report["problems"] == []
    assert set(report["groups"]) == {"2", "5", "10"} and report["revoked"] == []
    assert report["groups"]["2"] > 4.0
    assert set(report["recomputed"]) == {"dp-accounting", "recheck"}
    text = run("verify", "model/certificate.json").stdout
    assert "claimed" in text and "dp-accounting" in text and "recheck" in text
    assert re.search(r"with 5 rows +epsilon \d\d\.\d+, at the same delta", text)


def test_verify_exits_with_1_if_the_claim_is_false(here):
    run(*fitting())
    replace(Certificate.load("model/certificate.json"), epsilon=1.0).save("forged.json")
    assert parsed("verify", "forged.json", code=1)["holds"] is False
    assert "DOES NOT HOLD" in run("verify", "forged.json", code=1).stdout


OLD = Path(__file__).parent / "privacy" / "old"


def test_verify_exits_with_1_for_a_certificate_that_was_revoked(here):
    revoked = OLD / "dedup-soft-pca-0.1.0.json"
    told = run("verify", revoked, code=1).stdout
    assert "\nrevoked: TACIT-2026-001 of 2026-11-17: " in told and "DOES NOT HOLD" in told
    assert "problem:" not in told
    report = parsed("verify", revoked, code=1)
    assert report["holds"] is False and report["revoked"] == report["problems"]
    assert report["revoked"][0].startswith("revoked: ") and report["recomputed"]
    assert "The claim holds." in run("verify", OLD / "normalize-0.1.0.json").stdout
    versions = {"tacit": tacit.__version__}
    replace(Certificate.load(revoked), versions=versions).save("fixed.json")
    assert parsed("verify", "fixed.json")["revoked"] == []


def test_verify_does_without_no_list_of_what_was_revoked(here, monkeypatch):
    (here / "advisories.json").write_text('{"format": "tacit-advisories/1"')
    monkeypatch.setattr("tacit.privacy.advisories.PATH", here / "advisories.json")
    assert "Reinstall tacit" in refused("verify", OLD / "normalize-0.1.0.json")


def test_verify_exits_with_1_if_a_file_was_changed(here):
    run(*fitting())
    certificate = here / "model/certificate.json"
    sound = certificate.read_text()
    certificate.write_text(sound.replace('"epsilon": 2.0', '"epsilon": 0.1'))
    report = parsed("verify", certificate, code=1)
    assert report["holds"] is False and report["claimed"] is None and report["problems"]
    certificate.write_text(sound)
    model = here / "model/model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"!")
    assert "wrong digest" in parsed("verify", model, code=1)["problems"][0]
    assert parsed("verify", "model", code=1)["claimed"] == 2.0


def test_verify_of_something_else_is_bad_input(here):
    for path in ("train.csv", "none.json", "."):
        refused("verify", path)


def test_a_certificate_cannot_steer_the_terminal(here):
    run(*fitting())
    evil = replace(
        Certificate.load("model/certificate.json"), releasable=False, reasons=("\x1b[2Jboo",)
    )
    evil.save("evil.json")
    result = run("verify", "evil.json")
    assert "boo" in result.stderr and "\x1b" not in result.stderr


@pytest.mark.slow
def test_the_demo_runs_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tacit-demo").mkdir()
    (tmp_path / "tacit-demo" / "report.html").write_text("of an earlier demo: overwritten")
    result = run("demo")
    assert "training" in result.stderr  # the progress bar
    assert result.stdout.endswith("tacit verify tacit-demo\n")
    scores = {
        label.strip(): float(value)
        for label, value in re.findall(r"^  (.*?)([0-9.]+)%$", result.stdout, re.M)
    }
    assert scores["test accuracy, with privacy"] > scores["always the most common class"] + 5
    assert scores["the same without privacy"] > 84
    assert sorted(os.listdir("tacit-demo")) == FILES
    assert "earlier" not in (tmp_path / "tacit-demo" / "report.html").read_text(encoding="utf-8")
    assert parsed("verify", "tacit-demo")["claimed"] == 1.0
    assert "already holds" in refused("demo", "--out", tmp_path / "tacit-demo")


# --- strict arithmetic ---------------------------------------------------------------------------


def test_strict_arithmetic_from_the_command_line(here):
    parsed(*fitting("--arithmetic", "strict"))
    assert Certificate.load("model/certificate.json").plan["arithmetic"] == "strict"
    report = (here / "model" / "report.html").read_text(encoding="utf-8")
    assert "strict: exact, and every sum was checked" in report
    assert run("verify", "model").exit_code == 0
    asked = ["--epsilon", 2, "--delta", 1e-4, "--rows", 600, "--schema", "s.yaml"]
    assert parsed("plan", *asked, "--arithmetic", "strict")["plan"]["arithmetic"] == "strict"


def test_a_machine_that_computes_wrongly_writes_nothing(here, monkeypatch):
    for store in (DenseStore, CompactStore):  # without compiled loops, and with them

        def wrong(*given, real=store.backward):
            found = real(*given)
            found[0, 0] += 1
            return found

        monkeypatch.setattr(store, "backward", wrong)
    before = sorted(os.listdir(here))
    said = refused(*fitting("--arithmetic", "strict"))
    assert "the sum of gradients came out wrong on this machine" in said
    assert "Nothing of this step was released" in said
    assert sorted(os.listdir(here)) == before


# --- preprocessing without noise -----------------------------------------------------------------


def test_stages_of_ones_own_from_the_command_line(here):
    stages = ["--stage", "ClipNorm(1.0)", "--stage", "SoftPCA(strength=0.05)"]
    facts = parsed(*fitting(*stages))
    assert facts["neighbors"] == "replace_one"
    plan = Certificate.load("model/certificate.json").plan
    assert [stage["name"] for stage in plan["stages"]] == ["Encode", "ClipNorm", "SoftPCA"]
    assert plan["stages"][2]["drift"]["total"] == pytest.approx(2.2361, abs=1e-3)
    assert plan["arithmetic"] == "rounded"
    assert run("verify", "model").exit_code == 0
    report = (here / "model" / "report.html").read_text(encoding="utf-8")
    assert "Swapping one row moves all others" in report
    run("predict", "model", "test.csv", "--out", "p.csv")


def test_gaps_of_a_table_are_filled_by_a_stage(here):
    holes = patients()
    holes["age"] = ["" if i % 60 == 0 else value for i, value in enumerate(holes["age"])]
    write("holes.csv", holes)
    (here / "s.yaml").write_text(SCHEMA.replace("high: 100}", "high: 100, missing: gap}"))
    assert "no stage behind it fills them" in refused(*fitting(table="holes.csv"))
    fill = "NoiselessImpute(columns=[0])"
    facts = parsed(*fitting("--stage", "ClipNorm(1.0)", "--stage", fill, table="holes.csv"))
    assert facts["train_rows"] == 600
    run("predict", "model", "test.csv", "--out", "p.csv")
    assert "missing values" in refused("predict", "model", "holes.csv", "--out", "q.csv")
    # Rows to test on that cannot be predicted are found before the budget is spent.
    words = refused(
        *fitting("--stage", "ClipNorm(1.0)", "--stage", fill, "--test", "holes.csv", out="other")
    )
    assert "missing values" in words and not (here / "other").exists()


def test_a_test_that_fails_exits_with_3_and_leaves_the_certificate(here):
    words = refused(*fitting("--recipe", "ptr-pca", "--components", 1, "--gap", 0.9), code=3)
    assert "did not pass" in words and "budget is spent" in words
    assert sorted(os.listdir("model")) == ["certificate.json", "manifest.json"]
    assert run("verify", "model").exit_code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SoftPCA(strength=0)", "strength must be a positive number"),
        ("SoftPCA(strangeness=1)", "unexpected keyword"),
        ("Hadamard()", "no stage is called 'Hadamard'"),
        ("__import__('os').system('true')", "is not a stage"),
        ("SoftPCA(strength=open('x'))", "is not a stage"),
        ("ClipNorm(", "is not a stage"),
        ("NoiselessPCA(2)", "pass gap="),
        ("Encode('s.yaml')", "no stage is called 'Encode'"),
    ],
)
def test_stages_are_words_and_not_programs(here, text, words):
    assert words in refused(*fitting("--stage", text))
    assert not (here / "model").exists()


def test_noiseless_stages_refuse_other_relations(here):
    more = ["--recipe", "soft-pca", "--neighbors", "replace_special"]
    assert "must be 'replace_one'" in refused(*fitting(*more))
    facts = parsed(
        "plan", "--epsilon", 1, "--delta", 1e-5, "--rows", 9000, "--columns", 9, *more[:2]
    )
    assert facts["neighbors"] == "replace_one"


def test_price_answers_both_questions():
    asked = ["price", "pca", "--n", 10_000, "--gap", 0.1, "--delta", 1e-5]
    found = parsed(*asked, "--base-epsilon", 1)
    assert {"base_epsilon", "delta", "inflation", "overall"} <= found.keys()
    assert found["overall"]["tacit"] == pytest.approx(7.67, rel=0.01)
    back = parsed(*asked, "--epsilon", found["overall"]["tacit"])
    assert back["base_epsilon"] == pytest.approx(1.0, rel=1e-6)
    words = run(*asked, "--base-epsilon", 1).stdout
    assert "Theorem 2" in words and "Group privacy" in words


def test_price_draws_a_picture_and_refuses_what_has_no_price(here):
    asked = ["price", "soft-pca", "--n", 10_000, "--strength", 0.05, "--delta", 1e-5]
    run(*asked, "--base-epsilon", 1, "--plot", "price.svg")
    assert (here / "price.svg").read_text(encoding="utf-8").lstrip().startswith("<svg")
    assert "public rows" in refused(
        "price", "pca-dim", "--n", 100, "--gap", 0.1, "--delta", 1e-5, "--base-epsilon", 1
    )
    assert "base_epsilon" in refused(*asked)


# --- tuning ---------------------------------------------------------------------------------------


def test_plan_says_when_tuning_is_worth_it(here):
    options = ["--rows", 600, "--schema", "s.yaml", "--epsilon", 1, "--delta", 1e-5]
    grid = ["--tune", "clip=0.02,0.1", "--tune", "momentum=0,0.9"]
    said = run("plan", *options, *grid, "--trials", 5).stdout
    assert "one of 4 settings" in said and "5 trials are expected" in said
    assert "worth it" in said
    facts = parsed("plan", *options, *grid)["tuning"]
    assert facts["settings"] == 4 and facts["expected_trials"] == 10
    assert 1.4 < facts["noise_ratio"] < 1.8
    assert facts["shared_stages"]
    assert [event["stage"] for event in facts["events"]][-1] == "Search"
    assert facts["grid"][0] == {"clip": "0.02", "momentum": "0"}
    assert "tuning" not in parsed("plan", *options)


def test_fit_chooses_by_private_trials_and_certifies_all_of_them(here):
    tuned = fitting("--tune", "clip=0.02,0.1", "--trials", 3, "--test", "test.csv")
    facts = parsed(*tuned)
    assert facts["chosen"]["clip"] in ("0.02", "0.1")
    assert 0 <= facts["noisy_score"] <= 1
    assert facts["test_accuracy"] > 0.6
    claim = Certificate.load("model/certificate.json")
    assert [expense.stage for expense in claim.events][-1] == "Search"
    assert claim.plan["search"]["grid"] == ({"clip": "0.02"}, {"clip": "0.1"})
    assert parsed("verify", "model")["holds"]
    run("predict", "model", "test.csv", "--out", "p.csv")
    said = run(*fitting("--tune", "clip=0.02,0.1", "--trials", 3, "--force")).stdout
    assert "chosen by private trials" in said


def test_stages_can_be_tuned_and_a_search_is_in_the_ledger(here):
    run("ledger", "create", "l.db", "--dataset", "a", "--epsilon", 3, "--delta", 1e-3)
    book = ["--ledger", "l.db", "--dataset", "a"]
    facts = parsed(*fitting("--recipe", "jl", "--tune", "n_components=2,3", *book))
    assert facts["chosen"]["n_components"] in ("2", "3")
    claim = Certificate.load("model/certificate.json")
    assert not claim.plan["search"]["shared_stages"]
    (entry,) = parsed("ledger", "show", "l.db", "--dataset", "a")["charges"]
    assert entry["outcome"] == "model" and entry["events"][-1]["kind"] == "repeated"
    assert "does not allow" in refused(
        *fitting("--tune", "clip=0.02,0.1", *book, out="other"), code=3
    )


@pytest.mark.parametrize(
    "words, says",
    [
        (["--tune", "clip"], "clip=0.1,1"),
        (["--tune", "clip="], "clip=0.1,1"),
        (["--tune", "=1,2"], "clip=0.1,1"),
        (["--tune", "clip=0.1,,1"], "clip=0.1,1"),
        (["--tune", "clip=0.1,0.1"], "twice"),
        (["--tune", "clip=0.1", "--tune", "clip=1"], "twice"),
        (["--tune", "clip=0.1", "--option", "clip=1"], "twice"),
        (["--tune", "clip=0.1,-1"], "clip must be"),
        (["--tune", "clip=nan,1"], "clip must be"),
        (["--tune", "epsilon=1,2"], "epsilon"),
        (["--tune", "clip=0.1,1", "--trials", "0.5"], "at least 1"),
        (["--trials", "5"], "say which"),
        (["--tune", "clip=0.1,1", "--recipe", "soft-pca"], "noiseless stage"),
    ],
)
def test_grids_that_make_no_sense_are_refused_before_a_row_is_read(here, words, says):
    assert says in refused(*fitting(*words))
    assert not (here / "model").exists()


def test_a_table_as_it_is_needs_no_schema(here):
    rng, n = np.random.default_rng(0), 3000
    age, dose = rng.integers(18, 90, n), rng.normal(5, 2, n)
    columns = {
        "age": age.tolist(),
        "dose": [f"{value:.2f}".replace(".", ",") for value in dose],
        "seen": [f"{2000 + year}-05-17" for year in rng.integers(0, 20, n)],
        "ward": rng.choice(["east", "west"], n).tolist(),
        "ill": np.where(age + rng.normal(scale=8, size=n) > 55, "yes", "no").tolist(),
    }
    with open("raw.csv", "w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    budget = ["--epsilon", 4, "--delta", 1e-5, "--quiet"]
    found = parsed("fit", "raw.csv", "--target", "ill", *budget, "--test", "raw.csv", "--out", "m")
    assert found["test_accuracy"] > 0.85
    assert parsed("verify", "m")["holds"]
    claim = Certificate.load("m/certificate.json")
    found = claim.plan["stages"][0]["parameters"]["found"]["columns"]
    kinds = {name: column["kind"] for name, column in found.items()}
    assert kinds == {"age": "number", "dose": "number", "seen": "date", "ward": "category"}
    number = ["--target", "dose", "--target-bounds", "private"]
    found = parsed("fit", "raw.csv", *number, *budget, "--test", "raw.csv", "--out", "n")
    assert found["test_rmse"] < 3
    number[-1] = "x"
    assert "no limits" in refused("fit", "raw.csv", *number, *budget, "--out", "o")
