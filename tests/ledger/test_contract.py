"""What every ledger does, in a file and on a server."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from contextlib import contextmanager
from datetime import datetime

import pytest
import sqlalchemy as sa
from sklearn.base import clone

from tacit import Budget, DPLinearClassifier, Ledger
from tacit.exceptions import BudgetError, InputError, LedgerError
from tacit.ledger import store
from tacit.ledger.ledger import BOOKS
from tacit.ledger.links import ORIGIN
from tacit.ledger.spending import Spending
from tacit.privacy import Gaussian, PoissonGaussian
from tacit.privacy.accounting.accountants import gaussian_epsilon


def test_an_account_from_its_opening_to_its_limit(ledger, spend):
    assert ledger.dataset == "census"
    assert ledger.datasets() == ["census"]
    fresh = ledger.remaining()
    assert (fresh.epsilon, fresh.delta, fresh.neighbors) == (2.0, 1e-5, "replace_special")
    assert (fresh.spent, fresh.left, fresh.plans) == (0.0, 2.0, 0)
    first = spend(ledger, 4.0, budget=Budget(1.0, 1e-6), plan={"steps": ["mean"]})
    assert (first.number, first.dataset) == (2, "census")
    assert first.head == ledger.head
    assert ledger.remaining().unfinished == 1
    first.commit("model", "ab" * 32)
    now = ledger.remaining()
    assert (now.plans, now.unfinished) == (1, 0)
    assert now.spent == pytest.approx(gaussian_epsilon(0.25, 1e-5))
    assert now.left > 2.0 - now.spent  # together is cheaper than added up
    (charge,) = ledger.charges()
    assert charge.outcome == "model"
    assert charge.certificate == "ab" * 32
    assert charge.plan == {"steps": ["mean"]}
    assert charge.budget == Budget(1.0, 1e-6)
    assert charge.spending.events == (("mean", Gaussian(4.0)),)
    assert charge.together == pytest.approx(now.spent)
    assert datetime.fromisoformat(charge.at).tzinfo is not None
    with pytest.raises(BudgetError) as refused:
        spend(ledger, 1.0)
    room = refused.value.remaining
    assert 0 < room < 2
    words = str(refused.value)
    assert "'census'" in words and f"epsilon={room:g}" in words and "limit is 2" in words
    assert "No row was looked at" in words
    assert len(ledger.charges()) == 1  # a refusal leaves no trace
    assert ledger.check() == []


def test_entries_name_their_kind_and_time_and_follow_each_other(ledger, spend):
    spend(ledger).commit("test failed")
    ledger.amend(epsilon=3.0, reason="the board, 12 May")
    entries = ledger.entries()
    assert [entry.kind for entry in entries] == ["open", "reserve", "commit", "amend"]
    assert [entry.number for entry in entries] == [1, 2, 3, 4]
    before = [ORIGIN, *(entry.hash for entry in entries)]
    assert [entry.facts["previous"] for entry in entries] == before[:-1]
    assert before[-1] == ledger.head
    assert entries[3].facts["reason"] == "the board, 12 May"
    assert ledger.limits().epsilon == 3.0


def test_accounts_are_apart_and_the_chain_runs_through_all(url, spend):
    one = Ledger(url).create("one", epsilon=1.0, delta=1e-6)
    two = one.create("two", epsilon=1.0, delta=1e-6)
    assert two.dataset == "two"
    spend(one, 10.0)
    assert two.remaining().plans == 0
    spend(two, 10.0).commit()
    assert one.remaining().plans == two.remaining().plans == 1
    assert one.datasets() == ["one", "two"]
    assert [entry.dataset for entry in Ledger(url).entries()] == ["one", "two", "one", "two", "two"]
    assert len(one.entries()) == 2
    assert two.check() == []
    assert two.at("one") == one


def test_opening_twice_is_refused(ledger):
    with pytest.raises(LedgerError, match="already"):
        ledger.create("census", epsilon=100.0, delta=1e-3)
    assert ledger.limits().epsilon == 2.0


def test_an_account_that_is_not_there(ledger, spend):
    with pytest.raises(LedgerError, match="no account of 'other'"):
        ledger.remaining("other")
    with pytest.raises(LedgerError, match="no account of 'other'"):
        spend(ledger.at("other"))
    with pytest.raises(InputError, match="which data set"):
        Ledger(ledger.address.place).remaining()


def test_a_ledger_that_is_not_there(url, spend):
    for use in (lambda: spend(Ledger(url, "x")), lambda: Ledger(url).head, Ledger(url).check):
        with pytest.raises(LedgerError, match="tacit ledger create"):
            use()


def test_the_relation_must_be_the_account_s(ledger, url):
    with pytest.raises(LedgerError, match="noiseless stage") as refused:
        ledger.reserve([("a", Gaussian(10.0))], neighbors="replace_one")
    assert "'replace_special'" in str(refused.value)
    other = ledger.create("other", epsilon=1.0, delta=1e-5, neighbors="replace_one")
    with pytest.raises(LedgerError, match="Pass neighbors='replace_one'"):
        other.reserve([("a", Gaussian(10.0))], neighbors="replace_special")
    other.reserve([("a", Gaussian(10.0))], neighbors="replace_one")
    # Replaced rows count double.
    assert other.remaining().spent == pytest.approx(gaussian_epsilon(0.2, 1e-5))


def test_limits_change_only_by_amendments_and_never_below_what_is_spent(ledger, spend):
    spend(ledger, 2.5)
    spent = ledger.remaining().spent
    with pytest.raises(BudgetError, match="cannot be lower"):
        ledger.amend(epsilon=spent * 0.99, reason="too low")
    with pytest.raises(BudgetError, match="cannot be lower"):
        ledger.amend(delta=1e-9, reason="too low")
    with pytest.raises(InputError, match="reason"):
        ledger.amend(epsilon=3.0, reason=" ")
    with pytest.raises(InputError, match="already"):
        ledger.amend(epsilon=2.0, reason="the same")
    ledger.amend(epsilon=spent * 1.01, reason="closed")
    assert ledger.remaining().left < 0.5
    with pytest.raises(BudgetError):
        spend(ledger, 5.0)
    ledger.amend(epsilon=4.0, delta=1e-6, reason="reopened")
    spend(ledger, 5.0)
    assert ledger.check() == []


def test_an_outcome_is_recorded_once(ledger, spend):
    held = spend(ledger)
    with pytest.raises(InputError, match="outcome"):
        held.commit("success")
    held.commit("model", "0" * 64)
    held.commit("model", "0" * 64)  # told twice is told once
    with pytest.raises(LedgerError, match="recorded already"):
        held.commit("test failed")
    assert [entry.kind for entry in ledger.entries()].count("commit") == 1


def test_sampled_events(ledger):
    step = [("DPSGD", PoissonGaussian(3.0, 100, 0.02))]
    first = ledger.reserve(step, neighbors="replace_special")
    second = ledger.reserve(step, neighbors="replace_special")
    assert first.together < second.together < 2 * first.together
    BOOKS.clear()  # as another process would see it
    assert ledger.remaining().spent == pytest.approx(second.together, rel=1e-3)
    assert ledger.charges()[0].spending.events == tuple(step)
    with pytest.raises(BudgetError) as refused:
        ledger.reserve([("DPSGD", PoissonGaussian(0.7, 500, 0.05))], neighbors="replace_special")
    assert 0.5 < refused.value.remaining < 2
    assert ledger.check() == []


def test_drift_survives_the_database(url):
    ledger = Ledger(url).create("a", epsilon=3.0, delta=1e-5, neighbors="replace_one")
    event = PoissonGaussian(5.0, 20, 0.05, drift=((0.75, 0.1), (0.25, 0.5)), failure=1e-8)
    ledger.reserve([("DPSGD", event)], neighbors="replace_one", failure=1e-7, draws=10**6)
    BOOKS.clear()
    (charge,) = ledger.charges()
    assert charge.spending.events == (("DPSGD", event),)
    assert (charge.spending.failure, charge.spending.draws) == (1e-7, 10**6)
    assert ledger.check() == []


NAMES = ["naïve café", "a'b\"c;--", "日本", "x" * 200, "%s {0} \\u0000", "🜏"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_all_sorts(url, name, spend):
    ledger = Ledger(url).create(name, epsilon=1.0, delta=1e-6)
    spend(ledger, 10.0, plan={"note": "a\0b\ud800", "größe": [1, None, True, 0.1]})
    BOOKS.clear()
    assert ledger.datasets() == [name]
    assert ledger.charges()[0].plan["note"] == "a\0b\ud800"
    assert ledger.check() == []


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 201, "\0", "\x1b[31m", 7, "\ud800"])
def test_names_that_are_none(path, name):
    with pytest.raises(InputError, match="printable"):
        Ledger(path, name)


@pytest.mark.parametrize(
    "plan", [{"a": object()}, {"a": float("nan")}, {"a": "x" * 20_000}, {"a": {1, 2}}]
)
def test_plans_that_are_not_short_and_plain(ledger, spend, plan):
    with pytest.raises(InputError, match="plan"):
        spend(ledger, plan=plan)
    assert ledger.remaining().plans == 0


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", True])
def test_timeouts_that_are_none(path, timeout):
    with pytest.raises(InputError, match="timeout"):
        Ledger(path, timeout=timeout)


@pytest.mark.parametrize("limits", [(0, 1e-5), (1, 0), (1, 1), (float("inf"), 0.1), ("1", 0.1)])
def test_limits_that_are_none(path, limits):
    with pytest.raises(InputError):
        Ledger(path).create("a", epsilon=limits[0], delta=limits[1])
    assert not path.exists()


# --- the object itself -----------------------------------------------------------------------


def test_the_object_holds_only_where_the_ledger_is(ledger, spend):
    again = pickle.loads(pickle.dumps(ledger))
    for other in (again, copy.copy(ledger), copy.deepcopy(ledger), clone(ledger, safe=False)):
        assert other == ledger
        assert hash(other) == hash(ledger)
        spend(other, 40.0)
    assert ledger.remaining().plans == 4
    assert ledger != ledger.at("other")
    assert ledger != "ledger"
    assert clone(ledger, safe=False) is ledger
    held = pickle.loads(pickle.dumps(spend(ledger, 40.0)))
    held.commit()
    assert ledger.remaining().unfinished == 4
    estimator = DPLinearClassifier(ledger=ledger)
    assert clone(estimator).ledger is ledger
    assert pickle.loads(pickle.dumps(estimator)).ledger == ledger


def test_many_threads_race_for_the_last_of_the_budget(url):
    # Room for five steps and a half.
    limit = gaussian_epsilon((5.5 / 16) ** 0.5, 1e-5)
    ledger = Ledger(url).create("census", epsilon=limit, delta=1e-5)
    start, outcomes = threading.Barrier(12), []

    def ask():
        start.wait()
        try:
            held = ledger.reserve([("a", Gaussian(4.0))], neighbors="replace_special")
            held.commit()
            outcomes.append("held")
        except BudgetError:
            outcomes.append("refused")

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["held"] * 5 + ["refused"] * 7
    assert ledger.remaining().plans == 5
    assert ledger.check() == []


# --- transactions whose end is not known --------------------------------------------------------


class Lost(Exception):
    """What a driver says when the connection is gone; SQLite's words for a passing trouble."""

    def __str__(self):
        return "database is locked"


@pytest.fixture
def fragile(monkeypatch):
    """Connections that are lost: right before a transaction is committed, or right after."""
    moments: list[str] = []
    usual = store.Store.transaction

    @contextmanager
    def transaction(self, left, progress, write, make):
        moment = moments.pop(0) if write and moments else "never"
        with usual(self, left, progress, write, make) as connection:
            yield connection
            if moment == "before":
                raise sa.exc.OperationalError("COMMIT", {}, Lost(), connection_invalidated=True)
        if moment == "after":
            raise sa.exc.OperationalError("COMMIT", {}, Lost(), connection_invalidated=True)

    monkeypatch.setattr(store.Store, "transaction", transaction)
    return moments


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_connection_lost_in_a_commit_loses_nothing_and_counts_nothing_twice(
    ledger, spend, fragile, moment
):
    fragile += [moment, moment]
    held = spend(ledger, 4.0)
    fragile += [moment]
    held.commit()
    fragile += [moment]
    ledger.amend(epsilon=3.0, reason="more")
    fragile += [moment]
    ledger.create("other", epsilon=1.0, delta=1e-5)
    assert not fragile
    kinds = [entry.kind for entry in Ledger(ledger.address.place).entries()]
    assert kinds == ["open", "reserve", "commit", "amend", "open"]
    assert ledger.charges()[0].id == held.id
    assert ledger.check() == []


def test_a_connection_that_stays_lost_is_an_error_and_what_was_written_counts(
    ledger, spend, fragile
):
    short = Ledger(ledger.address.place, "census", timeout=0.2)
    fragile += ["after", *["before"] * 1000]
    with pytest.raises(LedgerError, match="cannot be found out now; if it was, it counts"):
        spend(short, 4.0)
    fragile.clear()
    assert ledger.remaining().plans == 1
    assert ledger.remaining().unfinished == 1


@pytest.mark.slow
def test_an_account_with_a_thousand_plans_answers_at_once(path):
    ledger = Ledger(path).create("census", epsilon=5.0, delta=1e-6)

    def fill(journal):
        for k in range(1000):
            events = (("mean", Gaussian(5000.0 + k)), ("DPGD", Gaussian(9000.0 + k, 100)))
            facts = Spending(events, draws=1000).to_dict()
            facts |= {"at": "2026-01-01T00:00:00+00:00", "budget": [0.1, 1e-6], "plan": {}}
            journal.append("census", k + 2, f"{k:032x}", kind="reserve", together=0.1, **facts)

    store.Store(ledger.address).write(fill)

    def seconds(before=lambda: None):
        before()
        start = time.process_time()
        ledger.reserve([("a", Gaussian(1000.0))], neighbors="replace_special")
        return time.process_time() - start

    seconds()
    assert min(seconds() for _ in range(8)) < 0.05
    assert min(seconds(BOOKS.clear) for _ in range(4)) < 0.2  # as a new process would see it
    assert ledger.remaining().plans == 1013
    assert ledger.check() == []
