"""Schemas: round trips, drafts, and errors that point at the column."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from datetime import date

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.cells import is_missing, match_key
from tacit.data.identifiers import likely_identifiers
from tacit.data.schema import (
    CATEGORY_POLICIES,
    NUMBER_MISSING,
    NUMBER_SCALES,
    CategoryColumn,
    DateColumn,
    NumberColumn,
    Schema,
    UnknownColumn,
    declared_schema,
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
    st.tuples(finite, finite).filter(lambda ends: abs(ends[0] - ends[1]) >= sys.float_info.min),
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


# Short forms


@pytest.mark.parametrize(
    ("short", "column"),
    [
        ([0, 120], NumberColumn(0, 120, "indicator")),
        ([0, "1e6"], NumberColumn(0, 1e6, "indicator")),
        ([0, "private"], NumberColumn(0, None, "indicator")),
        (["cook", "nurse"], CategoryColumn(("cook", "nurse"), "level", "level")),
        ([1, 2, 3], CategoryColumn(("1", "2", "3"), "level", "level")),
        (["0", "1"], CategoryColumn(("0", "1"), "level", "level")),
        ([date(1900, 1, 1), "2010-12-31"], DateColumn("1900-01-01", "2010-12-31")),
        ("number", NumberColumn(missing="indicator")),
        ("category", CategoryColumn(None, "level", "level")),
        ("boolean", CategoryColumn(("false", "true"), "level", "level")),
        ("date", DateColumn()),
        ("private", UnknownColumn()),
        ({"kind": "number", "low": 0, "high": "private"}, NumberColumn(0, None)),
        ({"kind": "category", "categories": "private"}, CategoryColumn(None)),
        ({"kind": "date", "low": 1900, "high": date(2011, 1, 1)}, DateColumn(1900, 2011)),
        ({"kind": "boolean", "missing": "level"}, CategoryColumn(("false", "true"), "level")),
        ({"kind": "private"}, UnknownColumn()),
        ({"kind": "category", "categories": "none"}, CategoryColumn(())),
    ],
)
def test_short_forms_say_what_long_ones_do(short, column):
    found = Schema.from_dict({"columns": {"x": short}})
    assert found == Schema.from_dict({"x": short}) == Schema({"x": column})
    assert Schema.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert found.private == column.private


def test_short_forms_in_a_file(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "columns:\n  age: [0, 120]\n  born: {kind: date, low: 1900-01-01, high: 2010-12-31}\n"
        "  PAY_AMT*: [0, 1e6]\n  job: [cook, nurse]\nidentifier: person\nignore: ['*_id']\n"
    )
    schema = Schema.load(tmp_path / "s.yaml").expanded(
        ["PAY_AMT2", "row_id", "age", "born", "PAY_AMT1", "job", "person", "PAY"]
    )
    assert list(schema.columns) == ["age", "born", "PAY_AMT2", "PAY_AMT1", "job"]
    assert schema.columns["PAY_AMT1"].high == 1e6
    assert schema.columns["born"].ends == (-2208988800.0, 1293753600.0)
    assert schema.ignore == ("row_id", "person")
    assert schema.expanded(["age"]) is schema
    with pytest.raises(SchemaError, match=r"'PAY_AMT\*' fits no column"):
        Schema.load(tmp_path / "s.yaml").expanded(["age"])


def test_a_name_with_a_star_that_the_table_has_is_that_column():
    schema = Schema.from_dict({"a*": [0, 1], "*": "number"})
    assert list(schema.expanded(["a*", "ab"]).columns) == ["a*", "ab"]
    assert schema.expanded(["a*", "*"]) is schema


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("*", ["", "a", "b\nc"], []),
        ("PAY*", ["PAY", "PAY_1"], ["pay", "XPAY"]),
        ("*_id", ["_id", "a_id"], ["a_ids"]),
        ("a*b*a", ["aba", "aXbXa"], ["ab", "aXa", "a"]),
        ("a.*", ["a.b"], ["axb"]),
        ("ab*ba", ["abba"], ["aba"]),
    ],
)
def test_a_star_stands_for_any_text(pattern, fits, fails):
    names = [name for name in (*fits, *fails) if name]
    spare = {name: "number" for name in names if name in fails}
    schema = Schema.from_dict({"columns": {"x": [0, 1], pattern: "number"}})
    found = schema.expanded(["x", *names]).columns
    assert set(found) == {"x", *fits} - {""}
    assert not spare.keys() & found.keys()
    with pytest.raises(SchemaError, match="fits no column"):
        Schema.from_dict({"x": [0, 1], "a" + "*a" * 3000 + "b": "number"}).expanded(
            ["x", "a" * 9999]
        )


def test_columns_whose_facts_are_private_have_no_width_yet():
    for column in (CategoryColumn(), UnknownColumn()):
        with pytest.raises(SchemaError, match="private"):
            column.width  # noqa: B018
        with pytest.raises(SchemaError, match="private"):
            column.feature_names("x")
    with pytest.raises(SchemaError, match="bounds are private"):
        NumberColumn(0).ends  # noqa: B018


def test_a_hat_has_a_weight_for_its_ends_each_knot_and_gaps():
    for knots, count in ((3, 3), ((0, 1, 5, 9), 4)):
        column = NumberColumn(0, 9, shape="hat", knots=knots)
        assert column.width == len(column.feature_names("x")) == count + 3
        assert column.feature_names("x")[-1] == "x=<missing>"
        again = Schema.from_dict(Schema({"x": column}).to_dict()).columns["x"]
        assert again == column
    for knots in (1, [0], [2, 1], "x", [0, "a"], 10**6):
        with pytest.raises(SchemaError, match="knots"):
            NumberColumn(0, 9, shape="hat", knots=knots)
    with pytest.raises(SchemaError, match="monotone may be increasing, decreasing"):
        NumberColumn(0, 9, monotone="up")


@settings(max_examples=60, deadline=None)
@given(st.floats(-1e11, 1e11), st.floats(1e-3, 1e11))
def test_bounds_of_dates_come_back_to_the_bit(low, span):
    column = DateColumn(low, low + span)
    again = Schema.from_dict(json.loads(json.dumps(Schema({"x": column}).to_dict())))
    assert again.columns["x"] == column


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([120, 0], "low must be less than high"),
        ([True, False], "put True in quotes"),
        ([], "categories must be a list of at least one"),
        ("numbr", "kind may be .*did you mean 'number'"),
        ({"kind": "date", "low": "yesterday"}, "low must be a date, such as 2010-12-31"),
        ({"kind": "private", "low": 1}, "unknown key 'low'"),
        ({"kind": "number", "shape": "round"}, "shape may be auto, straight, hat"),
    ],
)
def test_errors_in_short_forms(entry, message):
    with pytest.raises(SchemaError, match=f"column 'x': .*{message}"):
        Schema.from_dict({"columns": {"x": entry}})


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.datetimes()
    | st.binary(max_size=2)
    | st.sampled_from(
        [10**400, "private", "none", "1e5", "2020-01-01", "number", "date", "*", "a*"]
    )
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)
keys = ["kind", "low", "high", "categories", "missing", "scale", "shape", "knots", "monotone"]
entries = values | st.fixed_dictionaries(
    {"kind": st.sampled_from(["number", "date", "category", "boolean", "private"])},
    optional={key: values for key in keys[1:]},
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=3) | st.integers(), entries, min_size=1, max_size=3))
def test_whatever_a_schema_says_is_read_or_refused(columns):
    try:
        schema = Schema.from_dict({"columns": columns})
    except SchemaError:
        return
    assert Schema.from_dict(schema.to_dict()) == schema
    hash(schema)


# What is declared


def frame(**columns):
    arrays = {"n": np.ones(2), "w": np.array(["a", "b"]), "f": np.array([True, False])}
    arrays["d"] = np.array(["2020-01-01", "NaT"], "datetime64[D]")
    return {**arrays, **columns}


def test_types_say_kinds_and_nothing_else_is_known():
    schema = declared_schema(frame(u=["1", "2"], y=np.ones(2)), target="y")
    assert schema.columns == {
        "n": NumberColumn(missing="indicator"),
        "w": CategoryColumn(None, "level", "level"),
        "f": CategoryColumn(("false", "true"), "level", "level"),
        "d": DateColumn(),
        "u": UnknownColumn(),
    }
    assert (schema.target, schema.typed) == ("y", ("n", "w", "f", "d"))
    (sentence,) = schema.assumptions()
    assert "kinds of 4 of 5 columns (n, w, f, d)" in sentence
    assert Schema.from_dict(schema.to_dict()) == schema
    assert not Schema({"x": NumberColumn(0, 1)}).assumptions()


def test_what_is_declared_takes_the_place_of_what_is_private():
    schema = declared_schema(
        frame(u=["1", "2"]),
        schema={"d": "number", "w": ["a", "c"]},
        bounds={"n": (0, "private"), "u": ("1990-01-01", "2000-01-01")},
        categories={"f": ["true"]},
    )
    assert list(schema.columns) == ["d", "w", "n", "f", "u"]  # a schema says in which order
    assert schema.columns["d"] == NumberColumn(missing="indicator")
    assert schema.columns["n"].low == 0 and schema.columns["n"].high is None
    assert isinstance(schema.columns["u"], DateColumn)
    assert schema.columns["f"].categories == ("true",)
    assert schema.typed == ()
    assert declared_schema(frame(), bounds=(0, 5)).columns["n"].ends == (0, 5)
    assert declared_schema(frame(), bounds={"*": (0, 5)}, schema={"w": "number"}).columns["w"].high


def test_a_schema_may_tell_of_the_target_alone():
    told = {"target": "f", "ignore": ["w"], "classes": ["false", "true"]}
    schema = declared_schema(frame(), schema=told)
    assert list(schema.columns) == ["n", "d"]
    assert (schema.target, schema.classes, schema.ignore) == ("f", ("false", "true"), ("w",))


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"bounds": {"m": (0, 1)}}, "bounds: 'm' is no column of the table"),
        ({"bounds": {"n": 3}}, "bounds of column 'n' must be a pair"),
        ({"bounds": 3}, "bounds must be a pair"),
        ({"categories": ["a"]}, "categories must be a mapping"),
        ({"categories": {"w": "a"}}, "column 'w': categories must be a list"),
        ({"schema": {"columns": {"nn": [0, 1]}}}, "lacks columns of the schema: 'nn'"),
        ({"schema": {"n": ["a", "b"]}, "bounds": {"n": (0, 1)}}, "says category, and other"),
        ({"schema": {"n": [0, 1]}, "target": "n"}, "column 'n' is listed twice"),
        ({"schema": {"target": "n"}, "target": "w"}, "target 'w', but the schema's target is 'n'"),
    ],
)
def test_declarations_that_contradict_the_table_or_each_other(told, message):
    with pytest.raises(SchemaError, match=message):
        declared_schema(frame(), **told)


@pytest.mark.parametrize(
    ("name", "likely"),
    [
        *((name, True) for name in ("id", "ID", "patient_id", "customerID", "uuid", "SSN", "key")),
        *((name, True) for name in ("name", "last name", "E-mail", "phone_number", "Unnamed: 0")),
        *((name, False) for name in ("age", "paid", "width", "job_name", "number", "monkey", "")),
        *((name, False) for name in ("admission_type_id", "kind", "valid", "email_opened")),
    ],
)
def test_identifiers_are_told_by_their_names(name, likely):
    assert bool(likely_identifiers([name])) is likely


def test_likely_identifiers_are_remarked_on_and_not_left_out():
    schema = declared_schema(frame(row_id=np.ones(2), key_date=frame()["d"]))
    assert "row_id" in schema.columns
    (remark,) = schema.remarks()
    assert "'row_id'" in remark and "key_date" not in remark
    assert not declared_schema(frame(row_id=np.ones(2)), bounds={"row_id": (0, 9)}).remarks()


# Drafts


def table(**columns):
    cells = {"age": np.array([61.25]), "job: now": np.array(["astronaut"]), "no": [7]}
    return Table.from_columns({**cells, "y": np.array(["sick"]), **columns})


@pytest.mark.parametrize("target", [None, "y", "age"])
def test_a_draft_has_a_line_for_each_column_and_no_values(target):
    text = Schema.draft(table(row_id=[99]), target)
    for value in ("61", "astronaut", "7", "sick", "99"):
        assert value not in text.partition("columns:")[2]
    data = yaml.safe_load(text)
    kinds = {"age": "number", "job: now": "category", "no": "private", "y": "category"}
    assert data["columns"] == {name: kind for name, kind in kinds.items() if name != target}
    assert data.get("target") == target
    assert data["ignore"] == ["row_id"]
    schema = Schema.from_dict(data)
    assert schema.private and list(schema.columns) == list(data["columns"])


def test_a_draft_depends_on_names_and_types_alone():
    one, other = (table(flag=np.array([flag])) for flag in (True, False))
    assert Schema.draft(one) == Schema.draft(other) == Schema.draft(one.types)
    assert 'classes: ["false", "true"]' in Schema.draft(one, "flag")
    assert "# classes: [0, 1]" in Schema.draft(one, "y")
    assert "# target: y " in Schema.draft(one)


def test_a_draft_says_how_a_column_becomes_the_identifier_of_people():
    drafted = Schema.draft({"age": [3.0], "Patient: id": ["a"]}, None)
    assert Schema.from_dict(yaml.safe_load(drafted)).identifier is None
    named = Schema.from_dict(yaml.safe_load(drafted.replace("# identifier:", "identifier:")))
    assert named.identifier == "Patient: id" and list(named.columns) == ["age"]


def test_a_draft_of_identifiers_alone_keeps_them():
    assert list(Schema.from_dict(yaml.safe_load(Schema.draft({"id": [1]}))).columns) == ["id"]


def test_loading_a_schema_with_blanks_lists_them_all_at_once(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "target: y\nclasses: []\ncolumns:\n  age: {kind: number, low: ~, high: ~}\n"
        "  job: {kind: category, categories: []}\n"
    )
    with pytest.raises(SchemaError, match=r"s\.yaml: .*public knowledge") as error:
        Schema.load(tmp_path / "s.yaml")
    for blank in ("classes", "low of column 'age'", "high of column 'age'"):
        assert blank in str(error.value)
    assert "categories of column 'job'" in str(error.value)


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
