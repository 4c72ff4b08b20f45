"""Fits with a ledger: everything that spends is in it, whatever becomes of it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tacit import (
    Budget,
    DPLinearClassifier,
    DPLinearRegressor,
    DPSearch,
    Ledger,
    load,
    privatize,
    save,
)
from tacit.data.rows import as_rows
from tacit.diagnostics import inspect_privately
from tacit.engine.kernels.compact import CompactStore
from tacit.engine.storage import DenseStore
from tacit.exceptions import BudgetError, InputError, LedgerError, MachineError, PrivateTestError
from tacit.ledger import Reservation
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.plan import CalibratedPlan, Plan
from tacit.preprocessing import ClipNorm, NoiselessPCA, PrivateCenter, SoftPCA
from tacit.privacy import Certificate, Gaussian, Unit
from tacit.privacy.accounting.accountants import gaussian_epsilon
from tacit.research.median import DPGeometricMedian
from tacit.research.trainers import GammaSGD, IteratedSGD
from tacit.trainers import DPGD, DPSGD

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture
def ledger(path):
    return Ledger(path).create("people", epsilon=3.0, delta=1e-5)


def classifier(ledger, epsilon=0.5, **options):
    options = {"trainer": DPGD(steps=3), "stages": [ClipNorm(1.0)]} | options
    return DPLinearClassifier(epsilon, 1e-5, ledger=ledger, **options)


def calibrated(*stages, trainer=None, epsilon=0.5, **options):
    trainer = DPGD(steps=5) if trainer is None else trainer
    whole = Plan(
        Budget(epsilon, 1e-5), (ClipNorm(1.0), *stages), trainer, get_loss("logistic"), **options
    )
    return whole.calibrate(size=300, columns=4, classes=2)


def run(plan, ledger, **options):
    targets = plan.plan.loss.targets(Y, 1)
    return plan.run(as_rows(X), targets, ledger=ledger, **options)


def test_a_fit_is_reserved_before_and_committed_after(ledger, monkeypatch):
    seen = []
    usual = CalibratedPlan.prepare

    def watched(self, *args, **kwargs):
        (charge,) = ledger.charges()
        seen.append(charge.outcome)
        return usual(self, *args, **kwargs)

    monkeypatch.setattr(CalibratedPlan, "prepare", watched)
    model = classifier(ledger, stages=[ClipNorm(1.0), PrivateCenter()]).fit(X, Y)
    assert seen == ["not finished"]
    (charge,) = ledger.charges()
    assert charge.outcome == "model"
    assert charge.certificate == model.certificate_.digest
    assert charge.budget == Budget(0.5, 1e-5)
    assert charge.plan["steps"] == ["ClipNorm", "PrivateCenter", "DPGD"]
    assert charge.plan["rows"] == 300
    assert charge.spending.events == model.plan_.spent
    assert charge.spending.draws == model.plan_.draws > 0


def test_the_certificate_names_its_entry_and_no_place(ledger, path, tmp_path):
    model = classifier(ledger).fit(X, Y)
    entry = model.certificate_.plan["ledger"]
    (charge,) = ledger.charges()
    assert dict(entry) == {
        "dataset": "people",
        "entry": charge.number,
        "id": charge.id,
        "head": ledger.entries()[charge.number - 1].hash,
    }
    assert ledger.check(entry["head"]) == []
    assert str(path) not in model.certificate_.to_json()
    assert model.certificate_.verify().holds
    save(model, tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").certificate_ == model.certificate_
    assert str(path).encode() not in (tmp_path / "model.safetensors").read_bytes()
    assert "ledger" not in DPLinearClassifier(random_state=0).fit(X, Y).certificate_.plan


def test_fits_until_nothing_fits_and_what_is_offered_does(ledger):
    fits = 0
    with pytest.raises(BudgetError) as refused:
        while True:
            classifier(ledger, 1.0).fit(X, Y)
            fits += 1
    assert fits > 3  # adding epsilons would have stopped here
    room = refused.value.remaining
    assert 0 < room < 1
    classifier(ledger, room).fit(X, Y)
    assert ledger.remaining().spent <= 3.0
    with pytest.raises(BudgetError):
        classifier(ledger, room).fit(X, Y)
    assert ledger.check() == []


def test_a_refused_fit_looks_at_no_row_and_draws_nothing(ledger, monkeypatch):
    classifier(ledger, 2.9).fit(X, Y)
    spent = ledger.entries()

    class Untouchable:
        n, d, source = 300, 4, None  # how many they are, and in which library
        units, unit, owners = 300, Unit(), None  # and that they are nobody's in particular

        def __getattr__(self, name):
            pytest.fail(f"the rows were asked for {name}")

    monkeypatch.setattr(Key, "stream", lambda *_, **__: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetError):
        calibrated(PrivateCenter(), epsilon=2.0).run(Untouchable(), Y, ledger=ledger)
    assert ledger.entries() == spent


def test_all_kinds_of_plans_are_counted(ledger, path):
    classifier(ledger, trainer=DPSGD(steps=20, batch_size=60)).fit(X, Y)
    DPLinearRegressor(0.4, 1e-5, target_bounds=(-3, 3), trainer=DPGD(steps=3), ledger=ledger).fit(
        X, X[:, 1]
    )
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    options = {"epsilon": 0.5, "delta": 1e-5, "bounds": (-4, 4), "ledger": ledger}
    model = privatize(pipeline, **options).fit(X, Y)
    assert [charge.outcome for charge in ledger.charges()] == ["model"] * 3
    assert ledger.charges()[-1].certificate == model.certificate_.digest
    assert clone(model).ledger is ledger


def test_noiseless_stages_need_an_account_of_their_relation(ledger):
    with pytest.raises(LedgerError, match="noiseless stage"):
        classifier(ledger, stages=[ClipNorm(1.0), SoftPCA(0.1)]).fit(X, Y)
    assert ledger.remaining().plans == 0
    other = ledger.create("swapped", epsilon=3.0, delta=1e-5, neighbors="replace_one")
    classifier(other, stages=[ClipNorm(1.0), SoftPCA(0.1)]).fit(X, Y)
    with pytest.raises(LedgerError, match="Pass neighbors='replace_one'"):
        classifier(other).fit(X, Y)
    classifier(other, neighbors="replace_one").fit(X, Y)
    assert other.remaining().plans == 2


def test_a_failed_test_is_recorded_as_such(ledger):
    other = ledger.create("swapped", epsilon=3.0, delta=1e-5, neighbors="replace_one")
    with pytest.raises(PrivateTestError) as failed:
        classifier(other, stages=[ClipNorm(1.0), NoiselessPCA(2, gap=0.5)]).fit(X, Y)
    (charge,) = other.charges()
    assert charge.outcome == "test failed"
    assert charge.certificate == failed.value.certificate.digest
    assert failed.value.certificate.plan["ledger"]["id"] == charge.id
    assert charge.spending.failure > 0
    assert other.remaining().spent > 0.5  # with what the test may do wrongly


def test_an_interrupted_fit_stays_spent(ledger):
    def interrupt(label, done, total):
        if label == "training" or done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(calibrated(PrivateCenter()), ledger, progress=interrupt)
    (charge,) = ledger.charges()
    assert charge.outcome == "not finished"
    assert ledger.remaining().unfinished == 1
    assert ledger.remaining().spent == pytest.approx(0.5, rel=1e-4)


def test_a_fit_that_fails_stays_spent(ledger, monkeypatch):
    monkeypatch.setattr(DPGD, "train", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(calibrated(), ledger)
    assert ledger.remaining().unfinished == 1


def test_a_fit_killed_in_the_middle_stays_spent(ledger, path):
    code = f"""
import os, signal
import numpy as np
from tacit import Ledger, Budget
from tacit.data.rows import as_rows
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.preprocessing import ClipNorm
from tacit.trainers import DPGD
X = np.random.default_rng(0).normal(size=(300, 4))
loss = get_loss("logistic")
plan = Plan(Budget(0.5, 1e-5), (ClipNorm(1.0),), DPGD(steps=50), loss)
def die(label, done, total):
    if label != "stages" and done >= 10:
        os.kill(os.getpid(), signal.SIGKILL)
plan.calibrate(size=300, columns=4, classes=2).run(
    as_rows(X), loss.targets((X[:, 0] > 0).astype(int), 1), progress=die,
    ledger=Ledger({str(path)!r}, "people"),
)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -9
    (charge,) = ledger.charges()
    assert charge.outcome == "not finished"
    assert ledger.remaining().spent == pytest.approx(0.5, rel=1e-4)
    assert ledger.check() == []


BUDGET = {"epsilon": 0.5, "delta": 1e-6}
GRID = {"trainer": [DPGD(steps=2), DPGD(steps=3)]}
MAKERS = {
    "model": lambda ledger: classifier(ledger).fit(X, Y).certificate_,
    "search": lambda ledger: DPSearch(classifier(ledger), GRID).fit(X, Y).certificate_,
    "median": lambda ledger: (
        DPGeometricMedian(**BUDGET, radius=2.0, steps=3, ledger=ledger).fit(X).certificate_
    ),
    "inspection": lambda ledger: (
        inspect_privately(X, **BUDGET, bound=2.0, ledger=ledger).certificate
    ),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_was_made_is_kept_though_its_outcome_cannot_be_recorded(ledger, monkeypatch, make):
    def broken(self, outcome="model", certificate=None):
        raise LedgerError("the disk is full")

    monkeypatch.setattr(Reservation, "commit", broken)
    with pytest.warns(UserWarning, match="not finished, and spent: the disk is full"):
        certificate = make(ledger)
    assert isinstance(certificate, Certificate)
    monkeypatch.undo()
    assert ledger.remaining().unfinished == 1


def test_settling_commits_or_warns_and_hides_no_other_error(ledger):
    held = ledger.reserve([("a", Gaussian(20.0))], neighbors="replace_special")
    held.settle("summary", "0" * 64)
    (charge,) = ledger.charges()
    assert (charge.outcome, charge.certificate) == ("summary", "0" * 64)
    with pytest.warns(UserWarning, match=f"entry {held.number} as not finished"):
        held.settle("model", "1" * 64)  # which is not what was recorded
    with pytest.raises(InputError, match="outcome="):
        held.settle("success")


def test_seeded_runs_have_no_account(ledger):
    with pytest.raises(InputError, match="not private"):
        classifier(ledger, random_state=0).fit(X, Y)
    with pytest.raises(InputError, match="not private"):
        run(calibrated(), ledger, key=Key.from_seed(0))
    assert ledger.remaining().plans == 0


def test_ledgers_that_are_none(ledger, path):
    for wrong in (str(path), 7, Ledger):
        with pytest.raises(InputError, match=r"tacit\.Ledger"):
            classifier(wrong).fit(X, Y)
        with pytest.raises(InputError, match=r"tacit\.Ledger"):
            run(calibrated(), wrong)
    with pytest.raises(InputError, match="which data set"):
        classifier(Ledger(path)).fit(X, Y)
    with pytest.raises(LedgerError, match="no account of 'others'"):
        classifier(Ledger(path, "others")).fit(X, Y)


def test_every_trial_of_a_search_is_counted(ledger):
    search = GridSearchCV(
        classifier(ledger, 0.2), {"epsilon": [0.1, 0.2]}, cv=3, error_score="raise"
    ).fit(X, Y)
    charges = ledger.charges()
    assert len(charges) == 2 * 3 + 1  # and the last fit, to all rows
    assert {charge.outcome for charge in charges} == {"model"}
    assert charges[-1].certificate == search.best_estimator_.certificate_.digest
    assert search.best_estimator_.ledger == ledger
    cross_val_score(classifier(ledger, 0.1), X, Y, cv=2)
    assert len(ledger.charges()) == 9
    assert ledger.remaining().spent < 7 * 0.2


@pytest.mark.slow
def test_every_trial_of_a_search_in_many_processes_is_counted(ledger):
    search = GridSearchCV(classifier(ledger, 0.1), {"fit_intercept": [True, False]}, cv=2, n_jobs=2)
    search.fit(X, Y)
    assert len(ledger.charges()) == 5
    assert ledger.remaining().unfinished == 0
    assert ledger.check() == []


def test_a_fitted_estimator_keeps_its_account_through_pickling(ledger):
    model = pickle.loads(pickle.dumps(classifier(ledger).fit(X, Y)))
    model.fit(X, Y)
    clone(model).fit(X, Y)
    assert len(ledger.charges()) == 3
    assert model.certificate_.plan["ledger"]["entry"] == ledger.charges()[1].number


def test_a_machine_that_computes_wrongly_has_spent_all_the_same(ledger, monkeypatch):
    """Steps before the wrong one were drawn: nobody has seen them, and nobody can be sure of it."""
    calls = []
    for store in (DenseStore, CompactStore):  # without compiled loops, and with them

        def wrong(*given, real=store.backward):
            found = real(*given)
            calls.append(1)
            found[0, 0] += len(calls) > 3
            return found

        monkeypatch.setattr(store, "backward", wrong)
    model = classifier(ledger, arithmetic="strict", trainer=DPGD(steps=6))
    with pytest.raises(MachineError, match="came out wrong"):
        model.fit(X, Y)
    assert not hasattr(model, "coef_")
    assert ledger.remaining().unfinished == 1
    assert ledger.remaining().spent == pytest.approx(0.5, rel=1e-3)


def test_fitting_again_costs_again_jointly(ledger):
    for _ in range(4):
        classifier(ledger, 0.5, arithmetic="fast").fit(X, Y)
    mu = 2 * float(np.sqrt(_mu_squared(classifier(None, 0.5).fit(X, Y).plan_)))
    assert ledger.remaining().spent == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-6)
    assert all(charge.spending.draws == 0 for charge in ledger.charges())


def _mu_squared(plan):
    return sum(event.count / event.noise_multiplier**2 for _, event in plan.spent)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing can be forked here")
def test_a_forked_child_uses_the_ledger_of_its_parent(ledger, path):
    code = f"""
import os
from tacit import Ledger
from tacit.privacy import Gaussian
ledger = Ledger({str(path)!r}, "people")
def spend():
    ledger.reserve([("a", Gaussian(20.0))], neighbors="replace_special").commit()
spend()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        spend()
        os._exit(0)
    children.append(child)
spend()
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
spend()
assert ledger.check() == []
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert ledger.remaining().plans == 6
    assert ledger.remaining().unfinished == 0


@pytest.mark.parametrize("trainer", [GammaSGD(steps=4, batch_size=60), IteratedSGD(steps=6)])
def test_every_trainer_can_be_charged(ledger, trainer):
    options = {"trainer": trainer, "arithmetic": "fast", "fit_intercept": False}
    classifier(ledger, 0.5, **options).fit(X, Y)
    classifier(ledger, 0.5).fit(X, Y)
    spent = ledger.remaining().spent
    assert 0.5 < spent < 1.0  # composed jointly
    assert [charge.outcome for charge in ledger.charges()] == ["model", "model"]
    assert ledger.check() == []
