"""Estimators, searches, the command line and audits for people with several rows."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp

from tacit import DPLinearClassifier, DPLinearRegressor
from tacit.audit import audit
from tacit.data import scan
from tacit.data.owners import Owners
from tacit.data.readers import read_table
from tacit.diagnostics import inspect_privately
from tacit.exceptions import InputError, LedgerError, MissingBound
from tacit.ledger import Ledger
from tacit.metrics import evaluate
from tacit.model_selection import DPSearch
from tacit.persistence import load, save
from tacit.preprocessing import SoftPCA
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.unit import Unit
from tacit.report import render_html
from tacit.trainers import DPGD, DPSGD


@pytest.fixture(scope="module")
def visits():
    """Rows of 900 people, one to eight of each, in any order."""
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(900) + 10**9, rng.integers(1, 9, 900))
    rng.shuffle(ids)
    X = rng.normal(size=(len(ids), 4))
    y = (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=len(ids)) > 0).astype(int)
    return X, y, ids


@pytest.fixture(scope="module")
def fitted(visits):
    X, y, ids = visits
    how = {"epsilon": 2.0, "max_rows_per_group": 3, "random_state": 0}
    return DPLinearClassifier(**how).fit(X, y, groups=ids)


def test_a_model_of_people_says_so_wherever_it_goes(fitted, visits, tmp_path):
    X, y, _ = visits
    assert fitted.score(X, y) > 0.75
    claim = fitted.certificate_
    assert claim.verify().holds and claim.unit == Unit("person", 3)
    assert claim.plan["people"] == 900 and "rows" not in claim.plan
    assert "the number of people, 900, is public; how many rows each has" in " ".join(
        claim.assumptions
    )
    words = fitted.plan_.explain()
    assert "person, at most 3 rows each" in words and "each person's gradient clipped" in words
    assert "contributions of a person" in words and "all people together weigh" in words
    page = render_html(claim.to_dict())
    assert "the rows of 900 people" in page and "every person has at most 3 rows" in page
    save(fitted, tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").certificate_.unit == Unit("person", 3)


def test_identifiers_are_written_nowhere(fitted, visits, tmp_path):
    save(fitted, tmp_path / "model.safetensors")
    kept = (tmp_path / "model.safetensors").read_bytes()
    kept += fitted.certificate_.to_json().encode()
    kept += repr({k: v for k, v in vars(fitted).items() if k != "plan_"}).encode()
    kept += pickle.dumps(fitted)  # numbers as they lie in memory, and what is private of people
    marks = Owners.of(visits[2], Unit("person", 3)).marks.tolist()
    for i, mark in zip(dict.fromkeys(visits[2].tolist()), marks, strict=True):
        assert not any(each in kept for each in (str(i).encode(), *map(_bytes, (i, mark))))


def _bytes(number):
    return number.to_bytes(8, "little")


def test_one_row_of_everybody_is_what_a_row_is(visits):
    X, y, ids = visits
    first = np.unique(ids, return_index=True)[1]
    how = {"epsilon": 1.0, "random_state": 0}
    people = DPLinearClassifier(**how, max_rows_per_group=1)
    people.fit(X[np.sort(first)], y[np.sort(first)], groups=ids[np.sort(first)])
    rows = DPLinearClassifier(**how).fit(X[np.sort(first)], y[np.sort(first)])
    assert (people.coef_ == rows.coef_).all() and people.certificate_.unit.kind == "person"


def test_several_rows_of_people_are_worth_more_than_one(visits):
    X, y, ids = visits
    scores = []
    for rows in (1, 8):
        how = {"epsilon": 1.0, "max_rows_per_group": rows}
        models = [DPLinearClassifier(**how, random_state=s).fit(X, y, groups=ids) for s in range(4)]
        wanted = np.array([1.0, -1.0, 0.5, 0.0]) / 1.5
        scores.append(np.mean([m.coef_[0] @ wanted / np.linalg.norm(m.coef_) for m in models]))
    assert scores[1] > scores[0]


@pytest.mark.parametrize("trainer", [DPGD(steps=5), DPSGD(steps=5, batch_size=200)])
@pytest.mark.parametrize("kind", ["dense", "sparse", "fast"])
def test_people_are_taken_by_every_trainer_and_arithmetic(visits, trainer, kind):
    X, y, ids = visits
    data = sp.csr_array(X) if kind == "sparse" else X
    how = {"arithmetic": "fast"} if kind == "fast" else {}
    model = DPLinearClassifier(2.0, max_rows_per_group=4, trainer=trainer, random_state=0, **how)
    assert model.fit(data, y, groups=ids).certificate_.verify().holds


def test_numbers_of_people_are_predicted(visits):
    X, _, ids = visits
    y = X @ [0.5, -0.5, 0.2, 0.0]
    for bounds in ((-3.0, 3.0), None):
        model = DPLinearRegressor(4.0, target_bounds=bounds, max_rows_per_group=4, random_state=0)
        assert model.fit(X, y, groups=ids).score(X, y) > 0.6
        assert model.certificate_.unit == Unit("person", 4)


def test_going_on_with_people_adds_up_and_does_not_mix_units(visits):
    X, y, ids = visits
    model = DPLinearClassifier(1.0, max_rows_per_group=3, random_state=0).fit(X, y, groups=ids)
    model.partial_fit(X, y, groups=ids, epsilon=1.0, delta=1e-5)
    assert model.certificate_.unit == Unit("person", 3) and model.certificate_.epsilon > 1.2
    model.max_rows_per_group = None
    with pytest.raises(InputError, match="unit"):
        model.partial_fit(X, y, epsilon=1.0, delta=1e-5)
    schema = {"columns": {f"x{i}": [-3, 3] for i in range(4)}, "identifier": "patient"}
    frame = {f"x{i}": X[:, i] for i in range(4)} | {"patient": ids}
    named = DPLinearClassifier(1.0, schema=schema, max_rows_per_group=3, random_state=0)
    named.fit(frame, y).partial_fit(frame, y, epsilon=1.0, delta=1e-5)
    assert named.certificate_.unit == Unit("person", 3, "patient")


def test_ledgers_keep_people_apart_from_rows(visits, tmp_path):
    X, y, ids = visits
    book = Ledger(tmp_path / "ledger.db")
    rows = book.create("rows", epsilon=3.0, delta=1e-4)
    people = book.create("people", epsilon=3.0, delta=1e-4, unit=Unit("person", 3))
    how = {"epsilon": 1.0, "max_rows_per_group": 3, "trainer": DPGD(steps=2)}
    with pytest.raises(LedgerError, match="what is hidden differs"):
        DPLinearClassifier(**how, ledger=rows).fit(X, y, groups=ids)
    DPLinearClassifier(**how, ledger=people).fit(X, y, groups=ids)
    assert people.remaining().spent > 0.5


def test_a_search_tries_settings_on_people(visits):
    X, y, ids = visits
    base = DPLinearClassifier(8.0, max_rows_per_group=3, classes=[0, 1], random_state=0)
    search = DPSearch(base, {"trainer": [DPGD(steps=4), DPGD(steps=8)]}, trials=3)
    search.fit(X, y, groups=ids)
    assert search.certificate_.verify().holds
    assert search.certificate_.unit == Unit("person", 3)


def test_what_is_missing_of_people_is_asked_for(visits):
    X, y, ids = visits
    with pytest.raises(MissingBound, match="max_rows_per_group"):
        DPLinearClassifier().fit(X, y, groups=ids)
    with pytest.raises(InputError, match="whose rows are whose"):
        DPLinearClassifier(max_rows_per_group=3).fit(X, y)
    for wrong in (0, 2.5, True, "3"):
        with pytest.raises(InputError, match="max_rows_per_group"):
            DPLinearClassifier(max_rows_per_group=wrong).fit(X, y, groups=ids)
    with pytest.raises(InputError, match="one value for each row"):
        DPLinearClassifier(max_rows_per_group=3).fit(X, y, groups=ids[1:])
    with pytest.raises(InputError, match="an identifier for each row"):
        DPLinearClassifier(max_rows_per_group=3).fit(X, y, groups=0)
    with pytest.raises(InputError, match="no named columns"):
        DPLinearClassifier(max_rows_per_group=3).fit(X, y, groups="patient")
    with pytest.raises(InputError, match="without noise"):
        stages = [SoftPCA(0.1)]
        DPLinearClassifier(max_rows_per_group=3, stages=stages, neighbors="replace_one").fit(
            X, y, groups=ids
        )
    schema = {"columns": {f"x{i}": [-3, 3] for i in range(4)}, "identifier": "patient"}
    frame = {f"x{i}": X[:, i] for i in range(4)} | {"patient": ids}
    with pytest.raises(MissingBound, match=r"identifier 'patient' says .* max_rows_per_group"):
        DPLinearClassifier(schema=schema).fit(frame, y)
    with pytest.raises(InputError, match="public number"):
        DPLinearClassifier(max_rows_per_group=3, public_size=7).fit(X, y, groups=ids)


def test_identifiers_in_another_order_than_the_rows_are_refused(visits):
    X, y, ids = visits
    pandas = pytest.importorskip("pandas")
    frame, whose = pandas.DataFrame(X), pandas.Series(ids)
    how = {"max_rows_per_group": 3, "trainer": DPGD(steps=2), "random_state": 0}
    moved = whose.sample(frac=1.0, random_state=0)
    with pytest.raises(InputError, match="another index than X"):
        DPLinearClassifier(4.0, **how).fit(frame, y, groups=moved)
    shuffled = frame.loc[moved.index]
    DPLinearClassifier(4.0, **how).fit(shuffled, y[moved.index], groups=moved)
    model = DPLinearClassifier(4.0, **how)
    model.fit(shuffled, y[moved.index], groups=moved.to_numpy())
    spent = {"epsilon": 4.0, "delta": 1e-5, "max_rows_per_group": 3}
    for groups, refused in ((moved, True), (whose, False), (moved.to_numpy(), False)):
        with pytest.raises(InputError, match="another index than X") if refused else nullcontext():
            evaluate(model, frame, y, groups=groups, **spent)
        with pytest.raises(InputError, match="another index than X") if refused else nullcontext():
            inspect_privately(frame, bound=3.0, groups=groups, **spent)


def test_a_test_of_rows_says_that_the_model_protects_people(visits, caplog):
    X, y, ids = visits
    model = DPLinearClassifier(4.0, max_rows_per_group=3, random_state=0).fit(X, y, groups=ids)
    how = {"epsilon": 4.0, "delta": 1e-5}
    evaluate(model, X, y, groups=ids, max_rows_per_group=3, **how)
    assert "protects people" not in caplog.text
    evaluate(model, X, y, **how)
    assert "max_rows_per_group=3 (--person" in caplog.text


class Series(list):
    """A column with a name, as data frames have them."""

    name = "patient"


def test_identifiers_are_never_learned_from(visits):
    X, y, ids = visits
    frame = {f"x{i}": X[:, i] for i in range(4)} | {"patient": ids}
    how = {"max_rows_per_group": 3, "trainer": DPGD(steps=2), "random_state": 0}
    model = DPLinearClassifier(4.0, **how).fit(frame, y, groups="patient")
    assert list(model.feature_names_in_) == ["x0", "x1", "x2", "x3"]
    assert model.certificate_.unit == Unit("person", 3, "patient")
    assert "person, by 'patient', at most 3 rows each" in model.plan_.explain()
    assert model.predict(frame).shape == y.shape
    schema = {"columns": {f"x{i}": [-3, 3] for i in range(4)}, "identifier": "patient"}
    named = DPLinearClassifier(4.0, schema=schema, **how).fit(frame, y)
    assert named.certificate_.unit == Unit("person", 3, "patient")
    with pytest.raises(InputError, match="are not learned from"):
        DPLinearClassifier(4.0, **how).fit(frame, y, groups=Series(ids.tolist()))
    pandas = pytest.importorskip("pandas").DataFrame(frame)
    with pytest.raises(InputError, match="are not learned from"):
        DPLinearClassifier(4.0, **how).fit(pandas, y, groups=pandas["patient"])
    apart = DPLinearClassifier(4.0, **how)
    apart.fit(pandas.drop(columns="patient"), y, groups=pandas["patient"])
    assert (apart.coef_ == model.coef_).all()
    polars = pytest.importorskip("polars").DataFrame(frame)
    with pytest.raises(InputError, match="are not learned from"):
        DPLinearClassifier(4.0, **how).fit(polars, y, groups=polars["patient"])
    apart.fit(polars.drop("patient"), y, groups=polars["patient"])
    assert apart.certificate_.unit == Unit("person", 3, "patient")
    with pytest.raises(InputError, match="no column of X"):
        DPLinearClassifier(4.0, **how).fit(frame, y, groups="somebody")


@pytest.fixture(scope="module")
def file(visits, tmp_path_factory):
    X, y, ids = visits
    path = tmp_path_factory.mktemp("people") / "visits.csv"
    lines = ["patient,a,b,job,sick"]
    for i, row, label in zip(ids.tolist(), X.tolist(), y.tolist(), strict=True):
        lines.append(f"{i},{row[0]:.4f},{row[1]:.4f},{'xyz'[int(row[2] > 0)]},{'ny'[label]}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_rows_of_people_in_a_file_are_those_in_memory(file):
    how = {"max_rows_per_group": 3, "trainer": DPGD(steps=3), "random_state": 0}
    table = read_table(file)
    bounds = {"a": (-3, 3), "b": (-3, 3)}
    how |= {"bounds": bounds, "categories": {"job": ["x", "y"]}}
    here = DPLinearClassifier(4.0, **how)
    here.fit(table.drop("sick"), table.column("sick"), groups="patient")
    there = DPLinearClassifier(4.0, **how).fit(scan(file, target="sick"), groups="patient")
    assert (here.coef_ == there.coef_).all()


def test_rows_of_people_in_a_memory_map_are_those_in_memory(visits, tmp_path):
    X, y, ids = visits
    np.save(tmp_path / "X.npy", X)
    how = {"max_rows_per_group": 3, "trainer": DPGD(steps=3), "random_state": 0}
    here = DPLinearClassifier(4.0, **how).fit(X, y, groups=ids)
    for mapped in (np.load(tmp_path / "X.npy", mmap_mode="r"), scan(tmp_path / "X.npy")):
        there = DPLinearClassifier(4.0, **how).fit(mapped, y, groups=ids)
        assert (here.coef_ == there.coef_).all()
    how["holdout"] = 0.3
    here, there = (DPLinearClassifier(4.0, **how).fit(data, y, groups=ids) for data in (X, mapped))
    assert (here.coef_ == there.coef_).all()
    assert repr(here.evaluation_["accuracy"]) == repr(there.evaluation_["accuracy"])
    del how["holdout"]
    spoiled = X.copy()
    spoiled[ids == ids[0], 1] = np.nan
    np.save(tmp_path / "spoiled.npy", spoiled)
    with pytest.raises(InputError, match="NaN") as refused:
        DPLinearClassifier(4.0, **how).fit(scan(tmp_path / "spoiled.npy"), y, groups=ids)
    assert refused.value.depends_on_rows


def test_rows_of_people_that_may_not_fit_into_memory_are_refused_for_free(
    visits, file, tmp_path, monkeypatch
):
    X, y, ids = visits
    path = tmp_path / "X.npy"
    how = {"epsilon": 4.0, "max_rows_per_group": 3, "trainer": DPGD(steps=2)}
    unit = Unit("person", 3)
    book = Ledger(tmp_path / "book.db").create("visits", epsilon=8.0, delta=1e-4, unit=unit)
    spent = DPLinearClassifier(**how, delta=1e-6, ledger=book)
    few = np.unique(ids, return_index=True)[1]  # one row of each: how many there are is private
    for rows in (np.arange(len(y)), few):
        np.save(path, X[rows])
        with pytest.raises(InputError, match="3 rows of each of 900 people take up to") as refused:
            spent.fit(scan(path, memory=50_000), y[rows], groups=ids[rows])
        assert not refused.value.depends_on_rows and "memory=" in str(refused.value)
    DPLinearClassifier(**how).fit(scan(path, memory=1e6), y[few], groups=ids[few])
    with monkeypatch.context() as machine:
        machine.setattr("tacit.data.memory.machine_memory", lambda: 50_000)
        with pytest.raises(InputError, match="3 rows of each of 900 people") as refused:
            spent.fit(X, y, groups=ids)
        assert "memory=" not in str(refused.value)
        DPLinearClassifier(**how).fit(sp.csr_array(X), y, groups=ids)  # is there already
    with pytest.raises(InputError, match="8 bytes a value") as refused:
        spent.fit(scan(file, target="sick", memory=50_000), groups="patient")
    assert refused.value.depends_on_rows
    assert not book.charges()


def tacit(*arguments):
    command = [sys.executable, "-m", "tacit.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_people_on_the_command_line(file, tmp_path):
    budget = ("--epsilon", 4, "--delta", "1e-5")
    who = ("--person", "patient", "--rows-per-person", 3)
    made = tacit(
        "fit", file, "--target", "sick", *budget, *who, "--out", tmp_path / "m", "--seed", 1,
        "--steps", 3, "--quiet", "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    assert facts["train_people"] == 900
    assert facts["unit"] == {"kind": "person", "rows": 3, "identifier": "patient"}
    assert tacit("verify", tmp_path / "m").returncode == 0
    planned = tacit("plan", *budget, *who, "--rows", 900, "--columns", 4)
    assert "person, by 'patient', at most 3 rows each" in planned.stdout, planned.stderr
    lacking = tacit("plan", *budget, "--person", "patient", "--rows", 900, "--columns", 4)
    assert lacking.returncode and "rows_per_person" in lacking.stderr


def test_an_inspection_tells_by_the_column_or_by_the_schema_how_many_rows_people_have(
    file, tmp_path
):
    schema = tmp_path / "schema.yaml"
    columns = "columns: {a: [-3, 3], b: [-3, 3], job: [x, y, z]}\nignore: [sick]\n"
    schema.write_text(f"{columns}identifier: patient\n")
    look = ("inspect", file, "--private", "--epsilon", 2, "--delta", "1e-5", "--seed", 1)
    told = []
    for who in (("--person", "patient", "--rows-per-person", 4), ("--rows-per-person", 4)):
        shown = tacit(*look, "--schema", schema, *who)
        assert shown.returncode == 0, shown.stderr
        assert "4: " in shown.stdout and "--person patient --rows-per-person 4" in shown.stdout
        told.append(shown.stdout)
    assert told[0] == told[1]
    schema.write_text(f"{columns.replace('sick', 'sick, patient')}")
    nobody = tacit(*look, "--schema", schema, "--rows-per-person", 4)
    assert nobody.returncode and "whose a row is" in nobody.stderr


def test_how_many_rows_people_have_is_told_through_noise(visits):
    X, _, ids = visits
    how = {"epsilon": 4.0, "delta": 1e-5, "bound": 3.0, "random_state": 0}
    found = inspect_privately(X, groups=ids, max_rows_per_group=6, **how)
    sizes = np.minimum(np.unique(ids, return_counts=True)[1], 6)
    noise = found.certificate.events[1].event.noise_multiplier
    assert np.abs(found.people - np.bincount(sizes, minlength=7)[1:]).max() < 6 * noise
    assert found.n == 900 and found.certificate.verify().holds
    assert found.certificate.unit == Unit("person", 6)
    with pytest.raises(InputError, match="belong together"):
        inspect_privately(X, groups=ids, **how)


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
def test_an_audit_of_people_stays_below_the_claim_and_is_near_it(neighbors):
    unit = Unit("person", 3)
    how = {"epsilon": 4.0, "delta": 1e-5, "neighbors": neighbors, "seed": 1}
    found = audit("dp-gd", unit=unit, runs=700, **how)
    assert 0.3 * found.claimed < found.lower <= found.claimed
    assert max(found.details["separation"].values()) > 0.95 * gaussian_mu(4.0, 1e-5)
    with pytest.raises(InputError, match="many-runs"):
        audit("dp-gd", unit=unit, method="one-run", runs=100, **how)


@pytest.mark.long
@pytest.mark.parametrize("recipe", ["dp-gd", "dpsgd-f", "dpsgd"])
@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one", "add_or_remove_one"])
def test_long_audits_of_people_stay_below_the_claim(recipe, neighbors):
    how = {"epsilon": 4.0, "delta": 1e-5, "neighbors": neighbors, "seed": 2}
    found = audit(recipe, unit=Unit("person", 5), runs=3000, **how)
    assert found.lower <= found.claimed
    if recipe != "dpsgd":  # Gaussian noise alone
        assert found.lower > 0.3 * found.claimed
