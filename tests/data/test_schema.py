"""Schemas: round trips, drafts, and errors that point at the column."""

from __future__ import annotations

import copy
import pickle

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.cells import is_missing, match_key
from tacit.data.schema import (
    CATEGORY_POLICIES,
    NUMBER_MISSING,
    NUMBER_SCALES,
    CategoryColumn,
    NumberColumn,
    Schema,
)
from tacit.data.tables import Table
from tacit.exceptions import FileError, SchemaError

AGE = {"kind": "number", "low": 0, "high": 100}
JOB = {"kind": "category", "categories": ["cook", "nurse"]}


def schema(**changes):
    return Schema.from_dict({"columns": {"age": AGE, "job": JOB}, **changes})


def column(**changes):
    return Schema.from_dict({"columns": {"pay": {**AGE, **changes}}})


# Round trips

names = st.text(min_size=1, max_size=12).map(str.strip).filter(bool)
finite = st.floats(-1e12, 1e12)
numbers = st.builds(
    lambda ends, missing, scale: NumberColumn(min(ends), max(ends), missing, scale),
    st.tuples(finite, finite).filter(lambda ends: ends[0] != ends[1]),
    st.sampled_from(NUMBER_MISSING),
    st.sampled_from(NUMBER_SCALES),
)
labels = st.lists(
    (names | st.integers(-99, 99)).filter(lambda label: not is_missing(str(label))),
    min_size=2,
    max_size=5,
    unique_by=match_key,
)
policies = st.sampled_from(CATEGORY_POLICIES)
categories = st.builds(CategoryColumn, labels, policies, policies)


@st.composite
def schemas(draw):
    columns = draw(st.dictionaries(names, numbers | categories, min_size=1, max_size=4))
    spare = draw(st.lists(names.filter(lambda name: name not in columns), max_size=3, unique=True))
    target, ignore = (spare[0], spare[1:]) if spare else (None, ())
    about = draw(st.sampled_from(["classes", "target_bounds", None])) if target else None
    values = {"classes": labels, "target_bounds": st.just((-1.5, 2e9))}
    facts = {about: draw(values[about])} if about else {}
    return Schema(columns, target=target, ignore=tuple(ignore), **facts)


@settings(max_examples=60, deadline=None)
@given(schemas())
def test_a_schema_survives_dict_file_copy_and_pickle(tmp_path_factory, schema):
    path = tmp_path_factory.getbasetemp() / "schema.yaml"
    schema.save(path)
    again = Schema.load(path)
    assert again == schema == Schema.from_dict(schema.to_dict())
    assert list(again.columns) == list(schema.columns)
    assert copy.deepcopy(schema) == schema == pickle.loads(pickle.dumps(schema))
    assert hash(again) == hash(schema)


def test_the_order_of_columns_is_part_of_a_schema():
    turned = Schema.from_dict({"columns": {"job": JOB, "age": AGE}})
    assert turned != schema()
    assert list(turned.columns) == ["job", "age"]


def test_of_takes_a_schema_a_dict_or_a_path(tmp_path):
    schema().save(tmp_path / "s.yaml")
    for given_as in (schema(), schema().to_dict(), tmp_path / "s.yaml", str(tmp_path / "s.yaml")):
        assert Schema.of(given_as) == schema()


def test_defaults_and_readings():
    assert schema().columns["age"] == NumberColumn(0.0, 100.0, "middle", "linear")
    assert schema().columns["job"] == CategoryColumn(("cook", "nurse"), "zeros", "zeros")
    assert column(high="1e5").columns["pay"].high == 1e5  # YAML reads 1e5 as text
    assert CategoryColumn([1, 2.0, 0.5, " a "]).categories == ("1", "2", "0.5", "a")
    labelled = schema(target="sick", classes=[0, 1.0, "x"])
    assert labelled.classes == (0, 1, "x")
    assert schema(target="y", target_bounds=[-1, 3]).target_bounds == (-1.0, 3.0)


# Drafts


def table():
    return Table.from_columns({"age": [61.25], "job: now": ["astronaut"], "no": [7], "y": ["sick"]})


@pytest.mark.parametrize("target", [None, "y", "age"])
def test_a_draft_holds_names_and_kinds_and_no_values(target):
    text = Schema.draft(table(), target)
    for value in ("61", "astronaut", "7", "sick"):
        assert value not in text
    data = yaml.safe_load(text)
    assert list(data["columns"]) == [n for n in ("age", "job: now", "no", "y") if n != target]
    assert data["columns"]["no"] == {"kind": "number", "low": None, "high": None}
    assert data["columns"]["job: now"] == {"kind": "category", "categories": []}
    assert data.get("target") == target


def test_loading_a_draft_lists_every_blank_at_once(tmp_path):
    (tmp_path / "s.yaml").write_text(Schema.draft(table(), "y"))
    with pytest.raises(SchemaError, match=r"s\.yaml: .*public knowledge") as error:
        Schema.load(tmp_path / "s.yaml")
    for blank in ("classes", "low of column 'age'", "high of column 'age'", "low of column 'no'"):
        assert blank in str(error.value)
    assert "categories of column 'job: now'" in str(error.value)


def test_a_draft_filled_in_loads(tmp_path):
    for target, blank, fact in (
        ("y", "classes: []", "classes: [sick, well]"),
        ("age", "target_bounds: [~, ~]", "target_bounds: [0, 120]"),
    ):
        text = Schema.draft(table().drop("no"), target).replace(blank, fact)
        text = text.replace("low: ~", "low: 0").replace("high: ~", "high: 1e2")
        (tmp_path / "s.yaml").write_text(text.replace("categories: []", "categories: [a, b]"))
        assert Schema.load(tmp_path / "s.yaml").target == target


@pytest.mark.parametrize(
    "name", ["yes", "1", "a b", "#x", "é", "null", "~", "a\nb", "😀", "- x", "="]
)
def test_any_column_name_can_be_drafted(name):
    assert list(yaml.safe_load(Schema.draft({name: [1.0]}))["columns"]) == [name]


def test_a_draft_for_an_unknown_target():
    with pytest.raises(
        SchemaError, match=r"'aeg' is not a column of the table \(did you mean 'age'"
    ):
        Schema.draft(table(), "aeg")


# Errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"low": 100}, "column 'pay': low must be less than high.* 100 and 100"),
        ({"low": -1.7e308, "high": 1.7e308}, "column 'pay': low must be less than high"),
        ({"low": "abc"}, "column 'pay': low must be a finite number"),
        ({"high": float("inf")}, "column 'pay': high must be a finite number"),
        ({"high": True}, "column 'pay': high must be a finite number"),
        ({"high": None}, "blanks.*high of column 'pay'"),
        ({"missing": "midle"}, "column 'pay': missing may be .*did you mean 'middle'"),
        ({"missing": ["low"]}, "column 'pay': missing may be"),
        ({"scale": "sqrt"}, "column 'pay': scale may be linear, log, not 'sqrt'"),
        ({"kind": "numbr"}, "column 'pay': kind may be .*did you mean 'number'"),
        ({"hihg": 3}, "column 'pay': unknown key 'hihg' .*did you mean 'high'"),
        ({"unseen": "zeros"}, "column 'pay': unknown key 'unseen' in a number column"),
    ],
)
def test_errors_in_a_number_column(changes, message):
    with pytest.raises(SchemaError, match=message):
        column(**changes)


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        ([], "blanks.*categories of column 'job'"),
        ("cook", "column 'job': categories must be a list"),
        (["a", " a"], "column 'job': categories: 'a' and 'a' are the same"),
        (["1", "01"], "'1' and '01' are the same"),
        (["a", "?"], "'\\?' marks a missing value"),
        (["a", " nan"], "marks a missing value"),
        ([True, False], "put True in quotes"),
        (["a", None], "put None in quotes"),
        (["a", ["b"]], "in quotes"),
    ],
)
def test_errors_in_a_category_column(categories, message):
    with pytest.raises(SchemaError, match=message):
        Schema.from_dict({"columns": {"job": {**JOB, "categories": categories}}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colums": {}}, "unknown key 'colums' in the schema.*did you mean 'columns'"),
        ({"columns": {}}, "at least one column"),
        ({"columns": []}, "a key 'columns' with a mapping"),
        (
            {"columns": {"a": None}},
            "column 'a': must be a list.*the key 'kind'",
        ),
        (
            {"columns": {"a": {"low": 1}}},
            "column 'a': must be a list.*the key 'kind'",
        ),
        ({"columns": {True: AGE}}, "True is not a column name; put it in quotes"),
        ({"target": "age"}, "column 'age' is listed twice"),
        ({"ignore": ["job"]}, "column 'job' is listed twice"),
        ({"ignore": ["y"], "target": "y"}, "column 'y' is listed twice"),
        ({"ignore": "job"}, "ignore must be a list"),
        ({"classes": ["a", "b"]}, "name it in target"),
        ({"target": None}, "blanks.*target"),
        ({"target": "y", "classes": []}, "blanks.*classes"),
        ({"target": "y", "classes": ["a"]}, "target 'y': classes must list at least two"),
        ({"target": "y", "classes": ["a", True]}, "target 'y': classes: put True in quotes"),
        ({"target": "y", "target_bounds": [None, 1]}, "blanks.*target_bounds"),
        ({"target": "y", "target_bounds": [2, 1]}, "target 'y': low must be less than high"),
        ({"target": "y", "target_bounds": 3}, "target_bounds must be a pair"),
        ({"target": "y", "target_bounds": [0, 1], "classes": [0, 1]}, "not both"),
    ],
)
def test_errors_in_the_schema(changes, message):
    with pytest.raises(SchemaError, match=message):
        schema(**changes)


def test_columns_must_be_columns():
    with pytest.raises(SchemaError, match="'a' must be a NumberColumn or a CategoryColumn"):
        Schema({"a": AGE})
    with pytest.raises(SchemaError, match="ignore must be a list"):
        Schema({"a": NumberColumn(0, 1)}, ignore="b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("columns: [", "not well-formed YAML at line 1"),
        ("", "a schema is a YAML mapping"),
        ("- 1", "a schema is a YAML mapping"),
        ("columns:\n  a: {kind: number}\n  a: {kind: number}\n", "'a' is given more than once"),
        ("columns: {a: {kind: category, categories: [yes, no]}}", "put True in quotes"),
        ("columns: {a: {kind: category, categories: [2020-01-01]}}", "column 'a'.*in quotes"),
        ("columns: !!python/object/apply:os.getcwd []", "not well-formed YAML"),
        ("x: " + "[" * 1200, "not well-formed YAML"),
    ],
)
def test_errors_in_the_file_name_the_file(tmp_path, text, message):
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(SchemaError, match=message) as error:
        Schema.load(path)
    assert str(path) in str(error.value)


def test_aliases_that_multiply_do_no_harm(tmp_path):
    path = tmp_path / "s.yaml"
    lines = ["l0: &l0 [x, x]"] + [f"l{i}: &l{i} [*l{i - 1}, *l{i - 1}]" for i in range(1, 40)]
    path.write_text("\n".join(lines))
    with pytest.raises(SchemaError, match="aliases stand for more than 4 MB"):
        Schema.load(path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileError, match=r"cannot read .*none\.yaml"):
        Schema.load(tmp_path / "none.yaml")
    with pytest.raises(FileError, match="not a regular file"):
        Schema.load(tmp_path)
    (tmp_path / "s.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not a text file"):
        Schema.load(tmp_path / "s.yaml")
    with pytest.raises(FileError, match="cannot write"):
        schema().save(tmp_path / "no" / "s.yaml")
