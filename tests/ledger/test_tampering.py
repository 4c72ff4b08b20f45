"""Whoever changes a ledger behind its back is found out."""

from __future__ import annotations

import json
import shutil

import pytest

from tacit import Ledger
from tacit.exceptions import LedgerError
from tacit.ledger.ledger import _SEEN
from tacit.ledger.links import canonical, digest
from tacit.privacy import Gaussian

COUNT = 9


@pytest.fixture
def book(url, spend):
    """Two accounts, reservations with and without outcomes, an amendment."""
    one = Ledger(url).create("one", epsilon=2.0, delta=1e-5)
    two = one.create("two", epsilon=1.0, delta=1e-5, neighbors="replace_one")
    for k in range(2):
        held = spend(one, 10.0 + k)
        two.reserve([("step", Gaussian(30.0 + k))], neighbors="replace_one")
        held.commit("model", f"{k}" * 64)
    one.amend(epsilon=3.0, reason="why not")
    assert len(Ledger(url).entries()) == COUNT
    assert one.check() == []
    _SEEN.clear()  # as another process would see it
    return one


def body(book, number):
    (entry,) = [entry for entry in Ledger(book._address.place).entries() if entry.number == number]
    return dict(entry.facts)


@pytest.fixture
def restored(book, edit):
    """Put everything back as it was."""
    rows, head = book._store().read(lambda journal: (journal.rows(), journal.head))

    def run():
        edit(book, "DELETE FROM tacit_entries")
        insert = "INSERT INTO tacit_entries (number, dataset, id, body, hash) VALUES "
        for row in rows:
            edit(book, insert + "(:number, :dataset, :id, :body, :hash)", **row._asdict())
        edit(book, "UPDATE tacit_ledger SET count = :n, head = :h", n=len(rows), h=head)
        assert book.check() == []
        _SEEN.clear()

    return run


COLUMNS = {"number": "number + 100", "dataset": "'x'", "id": "'x'", "hash": "'x'", "body": "'{}'"}


@pytest.mark.parametrize("column", COLUMNS)
def test_an_edit_of_any_column_of_any_entry(book, edit, restored, column, spend):
    for number in (1, 2, 5, 6, COUNT - 1, COUNT):
        statement = f"UPDATE tacit_entries SET {column} = {COLUMNS[column]} WHERE number = "
        edit(book, f"{statement}{number}")
        assert book.check(), number
        with pytest.raises(LedgerError, match="tacit ledger check"):
            spend(book)
        restored()


def test_an_edit_of_a_text_whose_own_hash_is_made_good(book, edit, restored, spend):
    for number in (1, 2, 5, 6, COUNT - 1, COUNT):
        text = canonical(body(book, number) | {"at": "1999-01-01T00:00:00+00:00"})
        statement = "UPDATE tacit_entries SET body = :body, hash = :hash WHERE number = :number"
        edit(book, statement, body=text, hash=digest(text), number=number)
        assert book.check(), number
        with pytest.raises(LedgerError, match="tacit ledger check"):
            spend(book)
        restored()


def test_a_deletion_of_any_entry_and_nothing_more_is_spent(book, edit, restored, spend):
    for number in range(1, COUNT + 1):
        edit(book, f"DELETE FROM tacit_entries WHERE number = {number}")
        assert book.check(), number
        for use in (lambda: spend(book), book.remaining):
            with pytest.raises(LedgerError, match="tacit ledger check"):
                use()
        restored()


def test_two_entries_swapped(book, edit, restored, spend):
    for first, second in [(2, 3), (3, 5), (1, 9), (8, 9)]:
        edit(
            book,
            f"UPDATE tacit_entries SET number = -1 WHERE number = {first}",
            f"UPDATE tacit_entries SET number = {first} WHERE number = {second}",
            f"UPDATE tacit_entries SET number = {second} WHERE number = -1",
        )
        assert book.check()
        with pytest.raises(LedgerError, match="tacit ledger check"):
            spend(book)
        restored()


def test_two_entries_swapped_and_their_numbers_and_hashes_made_good(book, edit, spend):
    third, fourth = body(book, 3), body(book, 4)
    for number, facts in ((3, fourth | {"number": 3}), (4, third | {"number": 4})):
        text = canonical(facts)
        edit(book, f"UPDATE tacit_entries SET id = 'free{number}' WHERE number = {number}")
        edit(
            book,
            f"UPDATE tacit_entries SET body = :body, hash = :hash, dataset = :dataset "
            f"WHERE number = {number}",
            body=text,
            hash=digest(text),
            dataset=facts["dataset"],
        )
    edit(book, f"UPDATE tacit_entries SET id = '{fourth['id']}' WHERE number = 3")
    edit(book, f"UPDATE tacit_entries SET id = '{third['id']}' WHERE number = 4")
    assert book.check()
    with pytest.raises(LedgerError, match="tacit ledger check"):
        spend(book)


def test_edited_limits(book, edit):
    facts = body(book, 1) | {"epsilon": 100.0}
    text = canonical(facts)
    edit(book, "UPDATE tacit_entries SET body = :b WHERE number = 1", b=text)
    assert any("entry 1 was edited" in problem for problem in book.check())
    with pytest.raises(LedgerError, match="entry 1 was edited"):
        book.remaining()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tacit_ledger SET head = 'x'",
        "UPDATE tacit_ledger SET count = count - 1",
        "UPDATE tacit_ledger SET count = count + 1",
        "DELETE FROM tacit_ledger",
    ],
)
def test_an_edited_head(book, edit, statement, spend):
    edit(book, statement)
    assert book.check()
    with pytest.raises(LedgerError, match="tacit ledger check"):
        spend(book)


def test_an_account_deleted_to_begin_anew(book, edit):
    edit(book, "DELETE FROM tacit_entries WHERE dataset = 'two'")
    assert book.check()
    with pytest.raises(LedgerError, match="tacit ledger check"):
        book.create("two", epsilon=5.0, delta=1e-5)


def test_an_end_cut_off_with_care_shows_against_a_head_that_was_written_down(book, edit, spend):
    head = book.head
    certified = spend(book).head
    for known in (head, certified, [head, certified]):
        assert book.check(known) == []
    cut = body(book, COUNT - 2)
    edit(
        book,
        f"DELETE FROM tacit_entries WHERE number > {COUNT - 2}",
        f"UPDATE tacit_ledger SET count = {COUNT - 2}, head = :head",
        head=digest(canonical(cut)),
    )
    _SEEN.clear()
    assert book.check() == []  # it is a ledger as it once was
    assert len(book.check([head, certified])) == 2
    assert "cut short, rewritten or replaced" in book.check(head)[0]


def test_an_end_cut_off_with_care_shows_to_a_process_that_has_seen_more(book, edit, spend):
    spend(book)
    cut = body(book, COUNT)
    edit(
        book,
        f"DELETE FROM tacit_entries WHERE number > {COUNT}",
        f"UPDATE tacit_ledger SET count = {COUNT}, head = :head",
        head=digest(canonical(cut)),
    )
    with pytest.raises(LedgerError, match="has lost entries"):
        spend(book)


def test_an_older_copy_put_in_place_of_the_file(path, spend):
    ledger = Ledger(path).create("a", epsilon=1.0, delta=1e-5)
    spend(ledger, 20.0)
    shutil.copy(path, path.with_suffix(".old"))
    spend(ledger, 20.0)
    shutil.copy(path.with_suffix(".old"), path)
    with pytest.raises(LedgerError, match="older copy"):
        spend(ledger, 20.0)
    # A file that is begun anew is another ledger, and is used as one.
    path.unlink()
    again = Ledger(path).create("a", epsilon=1.0, delta=1e-5)
    assert again.remaining().plans == 0


def test_an_entry_slipped_in(book, edit):
    facts = body(book, COUNT)
    facts |= {"number": COUNT + 1, "id": "0" * 32, "previous": book.head, "epsilon": 50.0}
    text = canonical(facts)
    edit(
        book,
        "INSERT INTO tacit_entries (number, dataset, id, body, hash) "
        "VALUES (:number, 'one', :id, :body, :hash)",
        number=COUNT + 1,
        id="0" * 32,
        body=text,
        hash=digest(text),
    )
    assert book.check()
    with pytest.raises(LedgerError, match="tacit ledger check"):
        book.limits()


# --- hostile rows whose hashes are right ------------------------------------------------------


def event(**parameters):
    return {"stage": "a", "kind": "gaussian", "parameters": {"noise_multiplier": 5.0} | parameters}


DAMAGE = {
    "no JSON": "{",
    "NaN": '{"kind":NaN}',
    "a list": "[1]",
    "an unknown kind": {"kind": "gift"},
    "deep": "[" * 100_000,
    "no events": {"events": None},
    "an unknown event": {"events": [{"stage": "a", "kind": "laplace", "parameters": {}}]},
    "negative noise": {"events": [event(noise_multiplier=-1.0)]},
    "strange parameters": {"events": [event(sigma=1)]},
    "an event without a name": {"events": [{**event(), "stage": None}]},
    "an event that is none": {"events": [7]},
    "no failure": {"failure": None},
    "negative draws": {"draws": -5},
    "text for draws": {"draws": "many"},
    "failure of two": {"failure": 2.0},
    "a plan that is none": {"plan": 7},
    "a number twice": {"nth": 2},
    "a second opening": {"kind": "open", "epsilon": 1.0, "delta": 0.1, "neighbors": "replace_one"},
    "a budget that is none": {"budget": [1]},
    "a total that is none": {"together": "much"},
    "an outcome of nothing": {"kind": "commit", "reservation": "x", "outcome": "model"},
    "unhashable": {"kind": "commit", "reservation": [], "outcome": "model", "certificate": None},
}


@pytest.mark.parametrize("what", DAMAGE)
def test_hostile_entries_are_clear_errors(what, url, edit, spend):
    ledger = Ledger(url).create("a", epsilon=2.0, delta=1e-5)
    spend(ledger)
    spend(ledger)
    (_, _, last) = ledger.entries()
    damage = DAMAGE[what]
    text = damage if isinstance(damage, str) else json.dumps(dict(last.facts) | damage)
    edit(
        ledger,
        "UPDATE tacit_entries SET body = :body, hash = :hash WHERE number = 3",
        "UPDATE tacit_ledger SET head = :hash",
        body=text,
        hash=digest(text),
    )
    _SEEN.clear()
    (problem, *_) = ledger.check()
    assert "entry 3" in problem or "'a'" in problem
    with pytest.raises(LedgerError, match="entry 3"):
        ledger.charges()
    with pytest.raises(LedgerError, match="entry 3"):
        spend(ledger)


@pytest.mark.parametrize("column", ["number", "dataset", "id", "body", "hash"])
@pytest.mark.parametrize("value", ["x'00ff'", "'words'", "1.5", "-3"])
def test_cells_of_another_type_in_a_file(path, edit, spend, column, value):
    ledger = Ledger(path).create("a", epsilon=2.0, delta=1e-5)
    spend(ledger)
    edit(ledger, f"UPDATE tacit_entries SET {column} = {value} WHERE number = 2")
    _SEEN.clear()
    assert ledger.check()
    with pytest.raises(LedgerError):
        spend(ledger)


@pytest.mark.parametrize("value", ["count = 'many'", "head = x'00'", "format = 'tacit-ledger/9'"])
def test_a_head_of_another_type_in_a_file(path, edit, spend, value):
    ledger = Ledger(path).create("a", epsilon=2.0, delta=1e-5)
    edit(ledger, f"UPDATE tacit_ledger SET {value}")
    with pytest.raises(LedgerError):
        spend(ledger)
