"""Encoding: values, policies, the norm bound, and that each row stands alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.readers import read_table
from tacit.data.rows import as_rows
from tacit.data.schema import CategoryColumn, NumberColumn, Schema
from tacit.data.tables import Table
from tacit.exceptions import InputError, SchemaError
from tacit.preprocessing.encode import Encode


def number(values, low=0, high=10, **settings):
    column = NumberColumn(low, high, **settings)
    return Encode(Schema({"x": column})).transform({"x": np.array(values, dtype=float)})


def category(values, **settings):
    stage = Encode(Schema({"c": CategoryColumn(("a", "b"), **settings)}))
    return stage.transform(Table.from_columns({"c": values})).tolist()


# Numbers


def test_numbers_map_linearly_to_minus_one_and_one():
    assert number([0, 5, 10, 2.5]).ravel().tolist() == [-1, 0, 1, -0.5]


def test_asymmetric_bounds():
    assert number([-3, 5, -1], -3, 5).ravel().tolist() == [-1, 1, -0.5]
    assert number([100, 101, 104], 100, 104).ravel().tolist() == [-1, -0.5, 1]
    assert number([-9, -8], -9, -1).ravel().tolist() == [-1, -0.75]


def test_values_outside_the_bounds_are_clamped():
    assert number([-1, 11, 1e300, np.inf, -np.inf]).ravel().tolist() == [-1, 1, 1, 1, -1]


def test_a_log_scale_maps_to_zero_and_one():
    values = number([-5, 0, 9, 99, 1e9], 0, 99, scale="log").ravel()
    np.testing.assert_allclose(values, [0, 0, 0.5, 1, 1], rtol=1e-15)


@pytest.mark.parametrize(
    ("policy", "linear", "log"),
    [("middle", [0], [0.5]), ("low", [-1], [0]), ("high", [1], [1]), ("indicator", [0, 1], [0, 1])],
)
def test_missing_numbers(policy, linear, log):
    for scale, expected in (("linear", linear), ("log", log)):
        encoded = number([np.nan, 10], missing=policy, scale=scale).tolist()
        assert encoded == [expected, [1, 0][: len(expected)]]


# Categories


def test_categories_become_columns():
    assert category(["b", "a", " a "]) == [[0, 1], [1, 0], [1, 0]]


@pytest.mark.parametrize("missing", ["zeros", "level"])
@pytest.mark.parametrize("unseen", ["zeros", "level"])
def test_missing_and_unseen_categories(missing, unseen):
    rows = category(["a", None, "secret"], missing=missing, unseen=unseen)
    levels = (missing == "level") + (unseen == "level")
    expected = np.zeros((3, 2 + levels))
    expected[0, 0] = 1
    if missing == "level":
        expected[1, 2] = 1
    if unseen == "level":
        expected[2, -1] = 1
    assert rows == expected.tolist()


def test_categories_that_are_numbers():
    stage = Encode({"columns": {"c": {"kind": "category", "categories": [1, "02", 0.5]}}})
    for cells in ([1, 2, 0.5, 7], ["1", "2.0", ".5", "7"], ["01", "2", "0.50", "x"]):
        assert stage.transform({"c": cells}).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0] * 3]


# The stage


@pytest.fixture
def stage():
    return Encode(
        Schema(
            {
                "age": NumberColumn(0, 100, missing="indicator"),
                "job": CategoryColumn(("cook", "nurse"), missing="level", unseen="level"),
                "pay": NumberColumn(0, 1000, scale="log"),
            },
            target="sick",
            ignore=("id",),
        )
    )


def table(**changes):
    columns = {"age": [75, None], "job": ["nurse", "spy"], "pay": [0, None]}
    return Table.from_columns({**columns, **changes})


def test_names_width_and_bound_come_from_the_schema_alone(stage):
    jobs = ["job=cook", "job=nurse", "job=<missing>", "job=<unseen>"]
    assert stage.feature_names == ["age", "age=<missing>", *jobs, "pay"]
    assert stage.width() == len(stage.feature_names) == 7
    assert stage.kind == "free"
    assert stage.bound() == stage.bound(99.0) == pytest.approx(math.sqrt(3))
    assert stage.bound() ** 2 >= 3


def test_transform_and_rows_agree(stage):
    expected = [[0.5, 0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1, 0.5]]
    assert stage.fit(table()).transform(table()).tolist() == expected
    rows = as_rows(table())
    seen = stage.fit(rows).transform(rows)
    assert (seen.n, seen.d, seen.bound) == (2, 7, stage.bound())
    assert np.concatenate([c for _, c in seen.chunks()]).tolist() == expected


def test_column_order_target_and_ignored_columns_do_not_matter(stage):
    mixed = {"id": [1, 2], "pay": [0, None], "sick": ["y", "n"]}
    mixed |= {"job": ["nurse", "spy"], "age": [75, None]}
    assert (stage.fit(mixed).transform(mixed) == stage.transform(table())).all()


def test_a_stage_survives_a_dict(stage):
    assert Encode.restore(stage.parameters(), stage.arrays()) == stage


def test_an_empty_slice_has_the_right_width(stage):
    assert stage.apply(table().slice(0, 0)).shape == (0, 7)
    assert stage.transform(table().slice(0, 0)).shape == (0, 7)


def test_files_of_one_row_encode_as_files_of_many(tmp_path):
    schema = {"columns": {"c": {"kind": "category", "categories": ["1", "x", "true"]}}}
    cells = ["1", "01", "1.0", "x", "true", "TRUE", "?", "nan", "2", "1_0"]
    (tmp_path / "all.csv").write_text("\n".join(["c", *cells]))
    together = Encode(schema).transform(read_table(tmp_path / "all.csv"))
    for row, cell in zip(together, cells, strict=True):
        (tmp_path / "one.csv").write_text(f"c\n{cell}\n")
        alone = Encode(schema).transform(read_table(tmp_path / "one.csv"))
        assert (alone[0] == row).all()


# Errors


def test_missing_columns_are_named(stage):
    with pytest.raises(SchemaError, match=r"lacks .*'age' \(did you mean 'aeg'\?\), 'pay'"):
        stage.fit({"aeg": [1], "job": ["cook"]})
    with pytest.raises(SchemaError, match="lacks columns of the schema: 'job'"):
        stage.transform(table().drop("job"))


def test_extra_columns_are_named_unless_ignored(stage):
    with pytest.raises(SchemaError, match=r"schema does not name: 'more'; .* list them in ignore"):
        stage.fit(table(id=[1, 2], sick=["y", "n"], more=[1, 2]))


def test_text_in_a_number_column_is_a_gap_unless_it_spells_a_number(stage):
    stage.fit(table(age=["secret", "3"]))
    found = stage.transform(table(age=["secret", "3"]))
    assert np.array_equal(found, stage.transform(table(age=[None, 3])))


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        (NumberColumn(0, 1, missing="error"), [0.123, None], "'c' has a missing value"),
        (CategoryColumn(("a",), missing="error"), ["a", None], "'c' has a value that is missing"),
        (CategoryColumn(("a",), unseen="error"), ["a", "secret"], "'c' has a value that is unseen"),
    ],
)
def test_the_policy_error_names_only_the_column(column, cells, message):
    stage = Encode(Schema({"c": column}))
    assert stage.transform({"c": cells[:1]}).shape == (1, 1)
    with pytest.raises(SchemaError, match=message) as error:
        stage.transform({"c": cells})
    assert "secret" not in str(error.value) and "0.123" not in str(error.value)


def test_encode_must_see_a_table_first(stage):
    with pytest.raises(InputError, match="must be the first stage"):
        stage.fit(as_rows(np.zeros((2, 2))))
    with pytest.raises(InputError, match="must be the first stage"):
        stage.fit(stage.transform(as_rows(table())))


# For every schema and every row

cells = st.none() | st.floats(allow_nan=True, allow_infinity=True, width=64)
words = (
    st.none() | st.sampled_from(["a", "b", "c", "?", " a", "1", "1.0", ""]) | st.text(max_size=3)
)
number_columns = st.builds(
    lambda low, span, missing, scale: NumberColumn(low, low + span, missing, scale),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e9),
    st.sampled_from(["middle", "low", "high", "indicator"]),
    st.sampled_from(["linear", "log"]),
)
category_columns = st.builds(
    CategoryColumn,
    st.lists(st.sampled_from(["a", "b", "c", "1"]), min_size=1, unique=True),
    st.sampled_from(["zeros", "level"]),
    st.sampled_from(["zeros", "level"]),
)


@st.composite
def encoded_tables(draw):
    columns = draw(st.lists(number_columns | category_columns, min_size=1, max_size=5))
    n = draw(st.integers(1, 8))
    schema = Schema({f"c{i}": column for i, column in enumerate(columns)})
    data = {}
    for name, column in schema.columns.items():
        if isinstance(column, NumberColumn):
            inside = st.floats(column.low, column.high) | st.sampled_from([column.low, column.high])
            values = draw(st.lists(cells | inside, min_size=n, max_size=n))
            data[name] = np.array([np.nan if v is None else v for v in values])
        else:
            data[name] = draw(st.lists(words, min_size=n, max_size=n))
    return Encode(schema), Table.from_columns(data)


@settings(max_examples=120, deadline=None)
@given(encoded_tables())
def test_no_row_exceeds_the_bound_and_each_row_stands_alone(case):
    stage, table = case
    rows = stage.transform(table)
    assert rows.shape == (table.n, stage.width())
    assert np.isfinite(rows).all() and (np.abs(rows) <= 1).all()
    assert (np.linalg.norm(rows, axis=1) <= stage.bound()).all()
    for i in range(table.n):
        assert np.array_equal(stage.apply(table.slice(i, i + 1))[0], rows[i])


@settings(max_examples=50, deadline=None)
@given(st.lists(number_columns | category_columns, min_size=1, max_size=6))
def test_the_bound_is_reached(columns):
    schema = Schema({f"c{i}": column for i, column in enumerate(columns)})
    row = {
        name: [c.high if isinstance(c, NumberColumn) else c.categories[0]]
        for name, c in schema.columns.items()
    }
    stage = Encode(schema)
    assert np.linalg.norm(stage.transform(row)) == pytest.approx(stage.bound(), rel=1e-12)
