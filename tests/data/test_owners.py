"""Whose rows are whose, and which of them count."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse as sp

from tacit.data import read_table
from tacit.data.owners import Owners, choose_rows
from tacit.data.rows import as_rows
from tacit.data.tables import Table
from tacit.exceptions import InputError, ReleaseError
from tacit.linear_model.groups import take_groups
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import BoundedSum, PublicRandomness, Releases
from tacit.privacy.events import Gaussian
from tacit.privacy.unit import ROW, Unit

TWO = Unit("person", 2)


def hashed(seed=0):
    return PublicRandomness(Key.from_seed(seed)).hashed("rows of people")


@pytest.mark.parametrize(
    "ids",
    [
        [7, 3, 7, 9, 3],
        [7.0, 3.0, 7.0, 9.0, 3.0],
        ["7", "3", "7", "9", "3"],
        np.array([7, 3, 7, 9, 3], dtype=np.uint8),
        np.array([7, "3", 7.0, 9, 3], dtype=object),
        [7, "3", 7.0, 9, 3],
        (7, "3", 7.0, 9.0, 3),
        np.array(["7", "3", "7", "9", "3"]).astype("S"),
    ],
)
def test_people_are_numbered_as_they_appear_whatever_the_type_of_their_identifiers(ids):
    owners = Owners.of(ids, TWO)
    assert owners.codes.tolist() == [0, 1, 0, 2, 1] and owners.people == 3
    assert (owners.marks == Owners.of([7, 3, 7, 9, 3], TWO).marks).all()


@pytest.mark.parametrize("more", ["A1", "2.5", "2020-01-01"])
def test_what_a_file_holds_besides_leaves_people_who_they_are(tmp_path, more):
    found = []
    for last in ("5", more):
        path = tmp_path / "table.csv"
        path.write_text("\n".join(["a,who", "1,7", "2,7.0", "3,07", "4,8.0", f"5,{last}"]))
        owners = take_groups(read_table(path), "who", None, 2)[1].owners
        found.append((owners.codes[:4].tolist(), owners.marks[:2].tolist()))
    assert found[0] == found[1]
    assert found[0][0] == [0, 0, 0, 1]


def test_people_with_similar_identifiers_are_not_confused():
    close = [2**60, 2**60 + 1, "01", "1", "a", "A"]
    assert Owners.of(np.array(close, dtype=object), TWO).people == len(close)


@pytest.mark.parametrize(
    "ids",
    [
        [1.0, np.nan],
        ["a", ""],
        [None, "a"],
        [np.nan, "a"],
        [2.0**60, 1.0],
        [2.0**60, "a"],
        np.array([2.0**60, "a"], object),
        [Decimal(2**60), Decimal(2**60 + 1)],
    ],
)
def test_identifiers_that_are_missing_or_cannot_be_told_apart_are_refused(ids):
    with pytest.raises(InputError) as refused:
        Owners.of(ids, TWO)
    assert "2**60" not in str(refused.value) and "115292" not in str(refused.value)
    with pytest.raises(InputError, match="such a unit"):
        Owners.of([1, 2], ROW)


def test_identifiers_are_forgotten():
    owners = Owners.of(["Ada Lovelace", "Grace Hopper"], TWO)
    assert "Ada" not in repr(owners) and all(
        "Ada" not in str(value) for value in vars(owners).values()
    )


def test_at_most_so_many_rows_of_a_person_are_kept_the_rows_of_everybody_together():
    ids = np.random.default_rng(0).integers(0, 40, 300)
    owners = Owners.of(ids, Unit("person", 3))
    kept = owners.kept(hashed())
    assert len(set(kept.tolist())) == len(kept)
    counts = np.bincount(owners.codes[kept])
    assert (counts == np.minimum(np.bincount(owners.codes), 3)).all()
    assert (np.diff(owners.codes[kept]) >= 0).all()


def test_every_row_of_a_person_is_equally_likely_to_stand_for_it():
    ids = ["a", "b", "a", "b", "a", "b", "b"]
    first = np.zeros(7)
    both = np.zeros((7, 7))
    for seed in range(600):
        kept = Owners.of(ids, TWO).kept(hashed(seed))
        first[kept[[0, 2]]] += 1
        both[kept[0], kept[2]] += 1
    for who in ([0, 2, 4], [1, 3, 5, 6]):
        share = first[who] / 600
        assert np.abs(share - 1 / len(who)).max() < 5 * np.sqrt(0.25 / 600)
    assert np.abs(both[np.ix_([0, 2, 4], [1, 3, 5, 6])] / 600 - 1 / 12).max() < 0.06  # independent


def test_nobody_shifts_the_draw_of_another():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 30, 200)
    whole = Owners.of(ids, TWO)
    kept = whole.kept(hashed())
    for person in range(5):
        rest = np.flatnonzero(ids != person)
        others = rest[Owners.of(ids[rest], TWO).kept(hashed())]
        mine = kept[ids[kept] != person]
        assert others.tolist() == mine.tolist()
    longer = np.concatenate([[99] * 7, ids, [99] * 5])  # somebody who comes, anywhere
    after = Owners.of(longer, TWO).kept(hashed()) - 7
    assert [i for i in after.tolist() if 0 <= i < 200] == kept.tolist()


def test_the_choice_follows_the_key():
    owners = Owners.of(np.arange(300) % 50, TWO)
    assert owners.kept(hashed(1)).tolist() == owners.kept(hashed(1)).tolist()
    assert owners.kept(hashed(1)).tolist() != owners.kept(hashed(2)).tolist()


@pytest.mark.parametrize("kind", ["dense", "sparse", "table"])
def test_what_rows_carry_goes_where_they_go(kind):
    X = np.arange(12.0).reshape(6, 2)
    data = {"dense": X, "sparse": sp.csr_array(X), "table": Table.from_columns({"a": X[:, 0]})}
    rows = replace(as_rows(data[kind]), owners=Owners.of([5, 6, 5, 6, 5, 8], TWO))
    assert rows.units == 3 and rows.unit == TWO and rows.hidden().n == 0
    kept, index = choose_rows(rows, hashed())
    assert kept.n == 5 and kept.owners.codes.tolist() == rows.owners.codes[index].tolist()
    each = kept.one_each()
    assert each.n == 3 and each.owners.each_once and not kept.owners.each_once
    assert each.taken(np.array([2, 0])).owners.codes.tolist() == [2, 0]
    if kind != "table":
        found = each.collect()
        found = found.toarray() if sp.issparse(found) else found
        assert (found == X[index][kept.standing]).all()
    with pytest.raises(InputError, match="as many as they are"):
        replace(rows, owners=Owners.of([1, 2], TWO))


def test_a_token_for_people_takes_bounds_on_rows_where_everybody_has_one():
    rows = replace(as_rows(np.eye(3)), owners=Owners.of([1, 1, 2], TWO))
    run = Releases(Key.from_seed(0), [("it", Gaussian(1.0))], unit=TWO)
    token, total = run.token("it").at("example"), BoundedSum(np.array([1]), 2.0**-20, 1.0, 1.0)
    with pytest.raises(ReleaseError, match="several rows of one person"):
        token.per_row(rows)
    with pytest.raises(ReleaseError, match="counts for"):
        token.per_row(replace(rows, owners=Owners.of([1, 2, 3], Unit("person", 3))))
    token.per_row(rows.one_each()).gaussian(total)
    run.close()
