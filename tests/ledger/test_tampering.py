"""Whoever changes a ledger behind its back is found out."""

from __future__ import annotations

import json
import shutil

import pytest

from tacit import Ledger
from tacit.exceptions import LedgerError
from tacit.ledger.ledger import BOOKS
from tacit.ledger.links import canonical, digest
from tacit.ledger.store import Store
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
    BOOKS.clear()  # as another process would see it
    return one


def body(book, number):
    (entry,) = [entry for entry in Ledger(book.address.place).entries() if entry.number == number]
    return dict(entry.facts)


@pytest.fixture
def restored(book, edit):
    """Put everything back as it was."""
    rows, head = Store(book.address).read(lambda journal: (journal.rows(), journal.head))

    def run():
        edit(book, "DELETE FROM tacit_entries")
        insert = "INSERT INTO tacit_entries (number, dataset, id, body, hash) VALUES "
        for row in rows:
            edit(book, insert + "(:number, :dataset, :id, :body, :hash)", **row._asdict())
        edit(book, "UPDATE tacit_ledger SET count = :n, head = :h", n=len(rows), h=head)
        assert book.check() == []
        BOOKS.clear()

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
    BOOKS.clear()
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


# --- a ledger that is not the one that this process has seen ------------------------------------


def write_over(ledger, other, edit):
    """Put another ledger in the place of this one, hashes and all."""
    rows, head = Store(other.address).read(lambda journal: (journal.rows(), journal.head))
    edit(ledger, "DELETE FROM tacit_entries")
    insert = "INSERT INTO tacit_entries (number, dataset, id, body, hash) VALUES "
    for row in rows:
        edit(ledger, insert + "(:number, :dataset, :id, :body, :hash)", **row._asdict())
    edit(ledger, "UPDATE tacit_ledger SET count = :n, head = :h", n=len(rows), h=head)


def all_uses(ledger, held, spend):
    """Everything that can be asked of a ledger."""
    return {
        "reserve": lambda: spend(ledger),
        "commit": held.commit,
        "amend": lambda: ledger.amend(epsilon=3.0, reason="more"),
        "create": lambda: ledger.create("new", epsilon=1.0, delta=1e-5),
        "remaining": ledger.remaining,
        "limits": ledger.limits,
        "charges": ledger.charges,
        "entries": ledger.entries,
        "datasets": ledger.datasets,
        "head": lambda: ledger.head,
    }


@pytest.mark.parametrize("more", [0, 5], ids=["as long", "longer"])
def test_another_ledger_in_its_place_is_refused_however_long_it_is(
    url, tmp_path, spend, edit, more
):
    ledger = Ledger(url).create("a", epsilon=2.0, delta=1e-5)
    held = [spend(ledger, 20.0) for _ in range(3)][-1]
    other = Ledger(tmp_path / "other.db").create("a", epsilon=2.0, delta=1e-5)
    for _ in range(3 + more):
        spend(other, 1000.0)
    write_over(ledger, other, edit)
    for name, use in all_uses(ledger, held, spend).items():
        with pytest.raises(LedgerError, match="entry 4 is not the one that this process has seen"):
            use()
            pytest.fail(name)
    (problem, *_) = ledger.check()
    assert "entry 4 is not the one that this process has seen" in problem
    # The object is not what has seen it: another one, in the same process, refuses as well.
    with pytest.raises(LedgerError, match="rewritten, or another one was put in its place"):
        Ledger(url, "a").remaining()
    BOOKS.clear()  # a process that has seen nothing cannot know
    assert ledger.check() == []


def test_a_ledger_rewritten_from_some_entry_on_and_longer_than_before(url, tmp_path, spend, edit):
    ledger = Ledger(url).create("a", epsilon=2.0, delta=1e-5)
    spend(ledger, 20.0)
    rows, head = Store(ledger.address).read(lambda journal: (journal.rows(), journal.head))
    spend(ledger, 3.0)  # this is what somebody wants to be forgotten
    write_back = "UPDATE tacit_ledger SET count = 2, head = :head"
    edit(ledger, "DELETE FROM tacit_entries WHERE number > 2", write_back, head=head)
    seen = dict(BOOKS)
    BOOKS.clear()
    for _ in range(4):
        spend(ledger, 1000.0)  # by another process
    BOOKS.clear()
    assert ledger.check() == []
    BOOKS.update(seen)
    assert len(rows) == 2
    with pytest.raises(LedgerError, match="entry 3 is not the one that this process has seen"):
        spend(ledger, 1000.0)
    assert any("entry 3" in problem for problem in ledger.check())


def test_the_text_of_the_entry_last_seen_is_compared_too(ledger, edit, spend):
    spend(ledger, 20.0)
    edit(ledger, "UPDATE tacit_entries SET body = '{}' WHERE number = 2")
    with pytest.raises(LedgerError, match="entry 2"):
        spend(ledger, 20.0)


def test_another_file_put_in_place_of_the_file(path, tmp_path, spend):
    ledger = Ledger(path).create("a", epsilon=1.0, delta=1e-5)
    spend(ledger, 20.0)
    other = Ledger(tmp_path / "other.db").create("a", epsilon=1.0, delta=1e-5)
    for _ in range(3):
        spend(other, 50.0)
    shutil.copy(tmp_path / "other.db", path)
    with pytest.raises(LedgerError, match="another one was put in its place"):
        spend(ledger, 20.0)
    assert ledger.check()


def test_an_older_copy_that_others_have_written_to_since(path, spend):
    ledger = Ledger(path).create("a", epsilon=1.0, delta=1e-5)
    spend(ledger, 20.0)
    shutil.copy(path, path.with_suffix(".old"))
    spend(ledger, 20.0)
    shutil.copy(path.with_suffix(".old"), path)
    seen = dict(BOOKS)
    BOOKS.clear()
    for _ in range(3):
        spend(ledger, 50.0)  # by another process
    BOOKS.clear()
    BOOKS.update(seen)
    with pytest.raises(LedgerError, match="entry 3 is not the one"):
        spend(ledger, 20.0)


def test_a_file_begun_anew_is_refused_by_a_process_that_has_seen_the_old_one(path, spend):
    ledger = Ledger(path).create("a", epsilon=1.0, delta=1e-5)
    spend(ledger, 20.0)
    path.unlink()
    with pytest.raises(LedgerError, match=r"begun anew.*another address"):
        Ledger(path).create("a", epsilon=1.0, delta=1e-5)
    # At another address it is another ledger.
    other = Ledger(path.with_name("second.db")).create("a", epsilon=1.0, delta=1e-5)
    assert other.remaining().plans == 0


def test_what_others_add_is_no_rewriting(ledger, spend):
    spend(ledger, 20.0)
    seen = dict(BOOKS)
    BOOKS.clear()
    spend(ledger, 20.0).commit()  # by another process
    BOOKS.clear()
    BOOKS.update(seen)
    assert ledger.remaining().plans == 2
    assert ledger.check() == []


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
    BOOKS.clear()
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
    BOOKS.clear()
    assert ledger.check()
    with pytest.raises(LedgerError):
        spend(ledger)


@pytest.mark.parametrize("value", ["count = 'many'", "head = x'00'", "format = 'tacit-ledger/9'"])
def test_a_head_of_another_type_in_a_file(path, edit, spend, value):
    ledger = Ledger(path).create("a", epsilon=2.0, delta=1e-5)
    edit(ledger, f"UPDATE tacit_ledger SET {value}")
    with pytest.raises(LedgerError):
        spend(ledger)
