"""``tacit ledger`` and ``tacit fit --ledger``: words, JSON, exit codes."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit import Certificate, Ledger
from tacit.cli.main import app
from tacit.ledger.ledger import BOOKS
from tacit.linear_model import DPLinearClassifier

SCHEMA = """\
target: ill
classes: ["no", "yes"]
columns:
  age: {kind: number, low: 0, high: 100}
  dose: {kind: number, low: 0, high: 10}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    age, dose = rng.uniform(0, 100, 400).round(1), rng.uniform(0, 10, 400).round(2)
    ill = np.where(age / 10 > dose, "yes", "no")
    with open("train.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "dose", "ill"])
        writer.writerows(zip(age.tolist(), dose.tolist(), ill.tolist(), strict=True))
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
    result = run(*arguments, code=code)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    return result.stderr


def create(*more, dataset="patients", epsilon=2, delta=1e-4):
    options = ["--dataset", dataset, "--epsilon", epsilon, "--delta", delta]
    return ["ledger", "create", "ledger.db", *options, *more]


def fitting(*more, epsilon=1, out="model"):
    options = ["--schema", "s.yaml", "--epsilon", epsilon, "--delta", 1e-4, "--steps", 10]
    options += ["--quiet", "--out", out, "--ledger", "ledger.db", "--dataset", "patients"]
    return ["fit", "train.csv", *options, *more]


def test_an_account_of_people_says_so(here):
    said = run(*create("--person", "patient_id", "--rows-per-person", 5)).stdout
    unit = "person, by 'patient_id', at most 5 rows each"
    assert unit in said and "--person 'patient_id' --rows-per-person 5 --ledger" in said
    assert unit in run("ledger", "show", "ledger.db", "--dataset", "patients").stdout


def test_from_an_account_to_its_limit(here):
    said = run(*create()).stdout
    assert "Opened the account of patients" in said
    assert "--dataset 'patients'" in said
    said = run(*fitting()).stdout
    assert re.search(r"Ledger: patients: epsilon 1\.?0* spent of 2 at delta 0\.0001", said)
    facts = parsed(*fitting(out="second"))
    entry = facts["ledger"]
    assert entry["dataset"] == "patients" and entry["entry"] == 4
    certificate = Certificate.load("second/certificate.json")
    assert dict(certificate.plan["ledger"]) == entry
    shown = parsed("ledger", "show", "ledger.db", "--dataset", "patients")
    assert [charge["outcome"] for charge in shown["charges"]] == ["model", "model"]
    assert shown["charges"][1]["certificate"] == certificate.digest
    assert shown["charges"][1]["together"] == shown["spent"] < 2
    message = refused(*fitting(epsilon=1.9, out="third"), code=3)
    assert "does not allow" in message and "would fit" in message
    assert not (here / "third").exists()
    room = re.search(r"epsilon=([\d.]+), delta=0.0001 would fit", message)[1]
    run(*fitting(epsilon=room, out="third"))
    listed = parsed("ledger", "list", "ledger.db")["accounts"]
    assert [(one["dataset"], one["plans"]) for one in listed] == [("patients", 3)]
    assert listed[0]["spent"] <= 2


def test_the_table_of_spendings(here):
    run(*create())
    run(*fitting())
    ledger = Ledger("ledger.db", "patients")
    ledger.amend(epsilon=3.0, reason="the board, 12 May")
    lines = run("ledger", "show", "ledger.db", "--dataset", "patients").stdout.splitlines()
    assert " ".join(lines[0].split()) == "entry when epsilon delta together outcome and plan"
    assert re.match(r" +2  \d{4}-\d\d-\d\dT[\d:]+ +1 +0.0001 +1  model: Encode, .*DPGD$", lines[1])
    assert lines[2].endswith("new limits: the board, 12 May")
    assert lines[3].startswith("patients: epsilon 1 spent of 3 at delta 0.0001 (replace_special)")
    assert lines[4] == f"Head: {ledger.head}"
    said = run("ledger", "list", "ledger.db").stdout.splitlines()
    assert said[1].split()[0] == "patients"


def test_checking(here):
    run(*create())
    run(*fitting())
    said = run("ledger", "check", "ledger.db").stdout
    head = re.search(r"written down elsewhere: ([0-9a-f]{64})", said)[1]
    assert parsed("ledger", "check", "ledger.db")["head"] == head
    known = ["--head", head, "--certificate", "model", "--certificate", "model/certificate.json"]
    run("ledger", "check", "ledger.db", *known)
    (here / "ledger.db").unlink()
    BOOKS.clear()  # each command is a process of its own
    run(*create())
    said = run("ledger", "check", "ledger.db", *known, code=1).stdout
    assert said.count("problem: no entry has the hash") == 3
    assert said.endswith("The ledger WAS CHANGED or damaged.\n")
    answer = parsed("ledger", "check", "ledger.db", *known, code=1)
    assert not answer["holds"] and len(answer["problems"]) == 3


def test_a_certificate_without_an_entry(here):
    run(*create())
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = DPLinearClassifier(random_state=0).fit(X, X[:, 0] > 0)
    model.certificate_.save("c.json")
    message = refused("ledger", "check", "ledger.db", "--certificate", "c.json")
    assert "names no entry" in message


def test_edits_are_found(here, edit):
    run(*create())
    ledger = Ledger("ledger.db", "patients")
    edit(ledger, "UPDATE tacit_entries SET body = replace(body, '2.0', '9.0')")
    BOOKS.clear()
    said = run("ledger", "check", "ledger.db", code=1).stdout
    assert "problem: entry 1 was edited" in said
    assert "tacit ledger check" in refused(*fitting())


def test_amending(here):
    run(*create())
    options = ["ledger", "amend", "ledger.db", "--dataset", "patients"]
    said = run(*options, "--epsilon", 3, "--reason", "why not").stdout
    assert "of 3 at delta" in said
    assert parsed(*options, "--delta", 1e-5, "--reason", "stricter")["delta"] == 1e-5
    assert "reason" in refused(*options, "--epsilon", 4, "--reason", " ")
    run(*options, "--epsilon", 4, code=2)  # Typer asks for the reason itself
    run(*fitting(epsilon=1))
    assert "cannot be lower" in refused(*options, "--epsilon", 0.1, "--reason", "x", code=3)


def test_refusals(here):
    message = refused(*fitting())
    assert "there is no ledger at" in message and "tacit ledger create" in message
    run(*create())
    assert "already" in refused(*create())
    assert "no account of 'others'" in refused(*fitting("--dataset", "others"))
    assert "go together" in refused(*fitting()[:-2])
    assert "not private" in run(*fitting("--seed", 1), code=2).stderr
    assert "noiseless stage" in refused(*fitting("--stage", "SoftPCA(strength=0.1)"))
    assert "relation" in refused(*create("--neighbors", "cousins", dataset="x"))
    assert not (here / "model").exists()
    assert Ledger("ledger.db", "patients").remaining().plans == 0


def test_an_interrupted_fit_says_that_it_counts(here, monkeypatch):
    run(*create())

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.plan.run.Engine", interrupt)
    result = run(*fitting(), code=130)
    assert result.stderr.startswith("interrupted. The budget of epsilon=")
    assert "was spent and nothing was written: entry 2 of the ledger" in result.stderr
    assert Ledger("ledger.db", "patients").remaining().unfinished == 1


@pytest.mark.parametrize("command", ["create", "list", "show", "check", "amend"])
def test_help_teaches(command):
    said = run("ledger", command, "--help").stdout
    assert f"tacit ledger {command} ledger.db" in said
    assert "--json" in said
