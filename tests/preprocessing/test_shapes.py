"""Numbers as lines and curves between knots: what rows become, and what is chosen."""

from __future__ import annotations

import math
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.columns import CategoryColumn, DateColumn, NumberColumn
from tacit.data.rows import as_rows
from tacit.data.schema import Schema
from tacit.data.tables import as_table
from tacit.exceptions import SchemaError
from tacit.preprocessing import Encode
from tacit.preprocessing.shapes import choose_shapes


def hat(low=0.0, high=10.0, knots=6, **more):
    return NumberColumn(low, high, shape="hat", knots=knots, **more)


def encoded(column, values):
    return np.asarray(Encode(Schema({"x": column})).transform({"x": values}).toarray())


def test_a_number_becomes_its_place_between_the_ends_and_between_two_knots():
    rows = encoded(hat(), [0.0, 1.0, 10.0])
    assert rows[:, :2] == pytest.approx(np.array([[1, 0], [0.9, 0.1], [0, 1]]), abs=2**-15)
    assert rows[:, 2:8].argmax(axis=1).tolist() == [0, 0, 5]
    assert rows[1, 2:8] == pytest.approx([0.5, 0.5, 0, 0, 0, 0], abs=2**-15)
    assert rows[:, 8].tolist() == [0, 0, 0]


def test_what_is_no_number_has_a_weight_of_its_own_and_what_is_beyond_counts_as_the_end():
    rows = encoded(hat(), [None, math.nan, "n/a", 1e308, -math.inf, "3"])
    assert rows[:3, 8].tolist() == [1, 1, 1] and not rows[:3, :8].any()
    assert np.array_equal(rows[3], encoded(hat(), [10.0])[0])
    assert np.array_equal(rows[4], encoded(hat(), [0.0])[0])
    assert np.array_equal(rows[5], encoded(hat(), [3.0])[0])


def test_knots_may_be_given_and_scales_may_be_logarithmic():
    rows = encoded(hat(0, 100, (0.0, 10.0, 100.0)), [5.0, 55.0, 1000.0])
    assert rows[:, 2:5] == pytest.approx(
        np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]]), abs=2**-15
    )
    rows = encoded(hat(0, 99, 3, scale="log"), [9.0])  # half of the way from log 1 to log 100
    assert rows[0, 2:5] == pytest.approx([0, 1, 0], abs=2**-14)


def test_dates_are_numbers_of_seconds():
    column = DateColumn("2000-01-01", "2000-01-11", shape="hat", knots=11)
    rows = encoded(column, [date(2000, 1, 3), None])
    assert rows[0, 2:13].argmax() == 2 and rows[1, 13] == 1


columns = st.one_of(
    st.builds(hat, knots=st.integers(2, 30), scale=st.sampled_from(["linear", "log"])),
    st.just(NumberColumn(-1, 3, missing="indicator")),
    st.just(CategoryColumn(("a", "b"), missing="level", unseen="level")),
    st.just(CategoryColumn(("a", "b"))),
)
cells = st.one_of(st.none(), st.floats(), st.sampled_from(["a", "b", "c", "", "7"]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(columns, cells), min_size=1, max_size=6))
def test_no_value_leads_to_a_row_beyond_the_public_bound(drawn):
    schema = Schema({f"c{i}": column for i, (column, _) in enumerate(drawn)})
    stage = Encode(schema)
    table = as_table({f"c{i}": [cell, None] for i, (_, cell) in enumerate(drawn)})
    found = stage.apply(table)
    rows = np.asarray(found.toarray() if hasattr(found, "toarray") else found)
    assert rows.shape == (2, stage.width()) == (2, len(stage.feature_names))
    assert (np.square(rows).sum(axis=1) <= stage.bound() ** 2).all()


def test_straight_numbers_come_last_and_names_follow():
    schema = Schema({"a": NumberColumn(0, 1), "b": hat(knots=2), "c": CategoryColumn(("u",))})
    stage = Encode(schema)
    assert stage.feature_names == [
        *("b[low]", "b[high]", "b[0]", "b[1]", "b=<missing>"),
        "c=u",
        "a",
    ]
    assert stage.bound() == 2.0  # a, c, and both shapes of b
    row = stage.transform({"a": [1.0], "b": [10.0], "c": ["u"]}).toarray()
    assert row.tolist() == [[0, 1, 0, 1, 0, 1, 1]]


def test_rows_reach_the_engine_without_a_dense_expansion():
    stage = Encode(Schema({"x": hat()}))
    rows = stage.through(as_rows(as_table({"x": [1.0, 2.0]})))
    assert rows.layout == stage.layout and stage.layout.widths == (2, 7)
    _, chunk = next(rows.chunks(shaped=True))
    assert chunk.index.tolist() == [[0, 0], [0, 1]]


def test_curves_and_gaps_for_a_later_stage_are_refused_together():
    with pytest.raises(SchemaError, match="missing: gap"):
        Encode(Schema({"x": hat(), "y": NumberColumn(0, 1, missing="gap")}))


def test_a_model_file_has_the_knots(tmp_path):
    stage = Encode(Schema({"x": hat(0, 9, (0.0, 4.0, 9.0), monotone="increasing")}))
    again = Encode.restore(stage.parameters(), stage.arrays())
    assert again.schema == stage.schema and again.layout == stage.layout


# --- what is chosen --------------------------------------------------------------------------


def test_curves_need_rows_and_knots_grow_with_them():
    schema = Schema(
        {
            "x": NumberColumn(0, 1),
            "given": NumberColumn(0, 1, knots=3),
            "line": NumberColumn(0, 1, shape="straight"),
            "word": CategoryColumn(("a",)),
        }
    )
    shapes = {
        n: {
            k: (c.shape, c.knots)
            for k, c in choose_shapes(schema, n, 1.0).columns.items()
            if k != "word"
        }
        for n in (50, 1_000, 10**6)
    }
    assert shapes[50]["x"] == ("straight", None)
    assert shapes[1_000]["x"] == ("hat", 13)
    assert shapes[10**6]["x"] == ("hat", 24)
    for found in shapes.values():
        assert found["given"] == ("hat", 3) and found["line"] == ("straight", None)
    chosen = choose_shapes(schema, 1_000, 1.0)
    assert choose_shapes(chosen, 10**6, 1.0) is chosen  # nothing is left to choose
