"""Tables of the same people share an account: a charge to one is a charge to all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit import Ledger
from tacit.cli.main import app
from tacit.exceptions import BudgetError, LedgerError
from tacit.ledger import ledger as module
from tacit.privacy import Gaussian, Unit
from tacit.privacy.accounting.accountants import epsilon
from tacit.privacy.events import PoissonGaussian

RELATION = "replace_special"


def spend(ledger, noise=5.0):
    held = ledger.reserve([("step", Gaussian(noise))], neighbors=RELATION)
    held.commit("model", "0" * 64)
    return held


def test_what_is_spent_on_one_table_is_spent_on_all(url):
    people = Ledger(url).create("people", epsilon=2.0, delta=1e-5)
    tables = [people.join(name, "people") for name in ("2024", "2025")]
    for table in (people, *tables):
        spend(table)
    together = epsilon([Gaussian(5.0, 3)], 1e-5, RELATION)
    for table in (people, *tables):
        assert table.remaining().spent == pytest.approx(together, rel=1e-6)
        assert table.remaining().tables == ("2024", "2025")
    assert [charge.plan.get("table") for charge in people.charges()] == [None, "2024", "2025"]
    assert people.datasets() == ["people"] and people.tables() == {
        "2024": "people",
        "2025": "people",
    }
    with pytest.raises(BudgetError):
        spend(tables[1], noise=0.8)
    assert people.check() == []


def test_a_table_brings_along_what_was_spent_on_it(url):
    people = Ledger(url).create("people", epsilon=2.0, delta=1e-5)
    visits = people.create("visits", epsilon=9.0, delta=1e-5)
    spend(people)
    held = visits.reserve([("step", Gaussian(5.0))], neighbors=RELATION)
    visits.reserve([("step", PoissonGaussian(2.0, 10, 0.01))], neighbors=RELATION)
    before = visits.remaining().spent
    visits = people.join("visits", "people")
    held.commit("model", "1" * 64)  # what was running when the table joined
    assert people.remaining().spent > before and people.remaining().plans == 3
    assert visits.limits().epsilon == 2.0
    module.BOOKS.clear()  # another process reads the same
    assert Ledger(url, "visits").remaining().spent == pytest.approx(people.remaining().spent)
    assert people.check() == []


def test_what_does_not_fit_does_not_join(url):
    people = Ledger(url).create("people", epsilon=1.0, delta=1e-5)
    visits = people.create("visits", epsilon=9.0, delta=1e-5)
    spend(visits, noise=1.0)
    with pytest.raises(BudgetError, match="raise that first"):
        people.join("visits", "people")
    other = people.create("other", epsilon=1.0, delta=1e-5, neighbors="replace_one")
    with pytest.raises(LedgerError, match="cannot be added up"):
        other.join("people", "other")
    unit = Unit("person", 5, "patient")
    persons = people.create("persons", epsilon=1.0, delta=1e-5, unit=unit)
    with pytest.raises(LedgerError, match="unit of privacy"):
        persons.join("people", "persons")
    people.join("fresh", "people")
    with pytest.raises(LedgerError, match="already"):
        people.join("fresh", "people")
    with pytest.raises(LedgerError, match="already"):
        people.join("people", "people")
    with pytest.raises(LedgerError, match="already"):
        people.create("fresh", epsilon=1.0, delta=1e-5)


def test_populations_join_with_all_of_their_tables(url):
    first = Ledger(url).create("first", epsilon=3.0, delta=1e-5)
    second = first.create("second", epsilon=3.0, delta=1e-5)
    table = second.join("table", "second")
    spend(table)
    first.join("second", "first")
    spend(table)
    assert table.remaining().dataset == "first" and table.remaining().plans == 2
    assert first.check() == []


def test_three_tables_of_one_population_are_never_overspent(url, tmp_path):
    """Processes race for the same budget under three names, and some of them are killed."""
    limit = 1.0
    people = Ledger(url).create("people", epsilon=limit, delta=1e-5)
    for name in ("2024", "2025"):
        people.join(name, "people")
    script, runs = Path(__file__).with_name("torture.py"), []
    for k, name in enumerate(("people", "2024", "2025")):
        folder = tmp_path / name
        folder.mkdir()
        words = [url, name, str(folder), "3", "8", "1", str(k)]
        runs.append(subprocess.Popen([sys.executable, script, *words], stdout=subprocess.DEVNULL))
    assert all(run.wait(120) == 0 for run in runs)
    module.BOOKS.clear()
    left = people.remaining()
    assert left.spent <= limit and left.plans >= 6
    got = [line for log in tmp_path.glob("*/*.log") for line in log.read_text().split("\n")]
    got = {line.split()[1] for line in got if line.startswith("got")}
    assert got <= {charge.id for charge in people.charges()}
    assert people.check() == []


def test_an_officer_sees_it_in_one_place(tmp_path):
    place, run = str(tmp_path / "l.db"), CliRunner().invoke
    budget = ["--epsilon", "2", "--delta", "1e-5"]
    assert run(app, ["ledger", "create", place, "--dataset", "people", *budget]).exit_code == 0
    joined = run(app, ["ledger", "join", place, "--dataset", "2025", "--population", "people"])
    assert joined.exit_code == 0 and "people (with 2025)" in joined.output
    spend(Ledger(place, "2025"))
    shown = run(app, ["ledger", "show", place, "--dataset", "people"])
    assert "model: 2025, step" in shown.output
    assert "and 2025" in run(app, ["ledger", "list", place]).output
    told = json.loads(run(app, ["ledger", "show", place, "--dataset", "2025", "--json"]).output)
    assert told["dataset"] == "people" and told["tables"] == ["2025"]
    unit = ["--person", "patient", "--rows-per-person", "5"]
    opened = run(app, ["ledger", "create", place, "--dataset", "visits", *budget, *unit])
    assert opened.exit_code == 0 and Ledger(place, "visits").limits().unit.rows == 5
