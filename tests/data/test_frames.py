"""Any frame: what its types say, and that no value of a cell stops or changes anything else."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import DPLinearClassifier
from tacit.data import Schema, as_table, declared_schema, read_table, scan
from tacit.data.columns import CategoryColumn, DateColumn, NumberColumn
from tacit.data.rows import as_rows
from tacit.exceptions import InputError
from tacit.mechanisms.random_streams import Key
from tacit.preprocessing import Context, Encode, PrivateEncode

DAY = datetime(2020, 1, 2, tzinfo=UTC).timestamp()


def kinds(frame):
    return {name: says.kind for name, says in as_table(frame).types.items()}


# Types


def test_types_of_pandas():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    days = ["2020-01-02", None]
    frame = pd.DataFrame(
        {
            "int": [1, 2],
            "Int": pd.array([1, None], dtype="Int64"),
            "float": np.array([1, np.nan], np.float16),
            "sparse": pd.arrays.SparseArray([1.0, np.nan]),
            "decimal": pd.array([Decimal("1.0"), None], pd.ArrowDtype(pa.decimal128(5, 2))),
            "delta": pd.to_timedelta([1, None], unit="s"),
            "bool": [True, False],
            "boolean": pd.array([True, None], dtype="boolean"),
            "str": pd.array(["a", None], dtype="string"),
            "object": np.array([1, 2], dtype=object),
            "category": pd.Categorical(["a", None]),
            "codes": pd.Categorical([1, None]),
            "cut": pd.cut([1, 20], [0, 10, 30]),
            "day": pd.to_datetime(days),
            "zone": pd.to_datetime(["2020-01-02T01:00+01:00", None]).tz_convert("Asia/Tokyo"),
            "period": pd.PeriodIndex(days, freq="D"),
            "date": pd.array([date(2020, 1, 2), None], pd.ArrowDtype(pa.date32())),
        }
    )
    names = list(frame)
    expected = ["number"] * 6 + ["boolean"] * 2 + ["category"] * 5 + ["date"] * 4
    assert list(kinds(frame).values()) == expected
    table = as_table(frame)
    for name in names[:6]:
        assert table.values(name)[0] == 1
    for name in names[13:]:
        assert table.values(name)[0] == DAY and np.isnan(table.values(name)[1])
        assert table.texts(name).tolist() == ["2020-01-02", None]
    assert table.texts("codes").tolist() == ["1", None]
    assert table.texts("cut").tolist() == ["(0, 10]", "(10, 30]"]
    assert table.values("boolean")[0] == 1 and np.isnan(table.values("boolean")[1])
    with pytest.raises(InputError, match="'z' holds complex128"):
        as_table(pd.DataFrame({"z": [1j]}))


def test_types_of_polars_with_and_without_arrow():
    pl = pytest.importorskip("polars")
    columns = {
        "int": pl.Series([1, None], dtype=pl.UInt8),
        "decimal": pl.Series([Decimal("1.0"), None]),
        "delta": pl.Series([timedelta(seconds=1), None]),
        "null": pl.Series([None, None]),
        "bool": pl.Series([True, None]),
        "str": pl.Series(["a", None]),
        "category": pl.Series(["a", None], dtype=pl.Categorical),
        "date": pl.Series([date(2020, 1, 2), None]),
        "zone": pl.Series([datetime(2020, 1, 2), None]).dt.replace_time_zone("UTC"),
        "enum": pl.Series(["a", None], dtype=pl.Enum(["b", "a", "?", " a"])),
    }
    frame = pl.DataFrame(columns)
    expected = ["number"] * 4 + ["boolean"] + ["category"] * 2 + ["date"] * 2 + ["category"]
    arrow = frame.drop("enum").to_arrow()
    for form in (frame, frame.lazy(), columns):
        assert list(kinds(form).values()) == expected
        assert as_table(form).types["enum"].categories == ("b", "a")
        assert as_table(form).types["category"].categories is None
    assert list(kinds(arrow).values()) == expected[:-1]
    for form in (frame, arrow):
        table = as_table(form)
        assert table.values("delta")[0] == table.values("decimal")[0] == table.values("int")[0] == 1
        assert table.values("date")[0] == table.values("zone")[0] == DAY
        assert np.isnan(table.values("null")).all()
    schema = declared_schema(frame)
    assert schema.columns["enum"].categories == ("b", "a")
    assert schema.columns["category"].private


@pytest.mark.parametrize("cells", [[[1], [2]], [{"a": 1}, None], [b"x", None]])
def test_types_that_cannot_be_read_are_refused_whatever_they_hold(cells):
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    for frame in (pl.DataFrame({"v": cells}), pa.table({"v": cells})):
        for some in (frame, frame[:0]):
            with pytest.raises(InputError, match=r"'v' holds .*drop it"):
                as_table(some)


def test_what_has_no_type_is_of_a_private_kind(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,x\n")
    for table in ({"a": [1], "b": ["x"]}, read_table(tmp_path / "t.csv"), scan(tmp_path / "t.csv")):
        assert set(declared_schema(table).to_dict()["columns"]) == {"a", "b"}
        assert all(column.kind == "private" for column in declared_schema(table).columns.values())


def test_types_travel_with_rows_and_files(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"n": [1, None], "w": ["a", None], "d": [date(2020, 1, 2), None], "b": [True, None]}
    whole = pa.table(columns)
    pq.write_table(whole, tmp_path / "t.parquet")
    rows = scan(tmp_path / "t.parquet")
    table = as_table(whole)
    chunks = [chunk for _, chunk in rows.as_table_rows().chunks(1)]
    parts = [table.slice(0, 1), table.take(np.array([1])), table.empty(), *chunks]
    parts += [
        read_table(tmp_path / "t.parquet"),
        rows.read(list(columns)),
        rows.as_table_rows().source.empty(),
    ]
    for part in parts:
        assert part.types == table.types == rows.types
    assert table.drop(["n", "b"]).types == rows.drop(["n", "b"]).types
    assert rows.read(["d"]).values("d")[0] == DAY


# Totality


class Nasty:
    """An object that cannot be looked at."""

    def _raise(self, *args):
        raise RuntimeError("secret")

    __hash__ = object.__hash__
    __repr__ = object.__repr__  # of failing examples
    __str__ = __eq__ = __float__ = __bool__ = __len__ = __iter__ = _raise


marks = ["", " ? ", "nan", "-NaN", "1e400", "1_0", "01", " 1.0", "true", "TRUE", "inf", "٣", "1,5"]
marks += [
    "2020-01-02",
    "2020-02-30",
    "2020-01",
    "9999-12-31T23:59:59.999999+00:01",
    "2020",
    "\ud800",
]
cells = st.one_of(
    st.sampled_from([*marks, None, True, 1, 1.0, {1}, [1], object, 1j]),
    st.builds(Nasty) | st.just(uuid.UUID(int=7)),
    st.sampled_from([np.float32(0.1), np.bool_(True), np.int64(3), np.datetime64("NaT"), time(1)]),
    st.sampled_from([np.datetime64("2020-01-02"), np.timedelta64(3, "h"), timedelta.max, b"\xff"]),
    st.sampled_from([Decimal("sNaN"), Decimal("1e999"), 10**400, Fraction(1, 3), date.max]),
    st.floats(),
    st.integers(),
    st.text(max_size=4),
    st.datetimes(timezones=st.none() | st.just(UTC)),
)


def dense(rows):
    return rows if isinstance(rows, np.ndarray) else rows.toarray()


WORDS = ("1", "true", "a", "2020-01-02")


def answers(table):
    return [
        table.values("x"),
        table.values("x", dates=True),
        table.texts("x"),
        table.match("x", WORDS),
    ]


@settings(max_examples=80, deadline=None)
@given(st.lists(cells, min_size=1, max_size=6))
def test_no_value_stops_a_table_or_changes_what_becomes_of_another(values):
    whole = as_table({"x": values})
    assert kinds({"x": values}) == {"x": "private"}
    alone = [as_table({"x": [value]}) for value in values]
    for found, single in zip(answers(whole), zip(*map(answers, alone), strict=True), strict=True):
        np.testing.assert_array_equal(found, np.concatenate(single))


@settings(max_examples=40, deadline=None)
@given(st.lists(cells, min_size=1, max_size=6))
def test_no_value_of_an_object_column_of_pandas_stops_it(values):
    pd = pytest.importorskip("pandas")
    objects = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        objects[i] = value
    frame = pd.DataFrame({"x": pd.Series(objects, dtype=object)})
    assert kinds(frame) == {"x": "category"}
    for found, same in zip(answers(as_table(frame)), answers(as_table({"x": values})), strict=True):
        np.testing.assert_array_equal(found, same)
    assert declared_schema(frame) == declared_schema(frame[:0])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(marks[:-1]) | st.floats().map(str), min_size=1, max_size=5))
def test_no_value_of_a_text_file_changes_what_becomes_of_another(tmp_path_factory, values):
    folder = tmp_path_factory.getbasetemp()

    def stored(lines):
        (folder / "t.csv").write_text("x,y\n" + "".join(f'"{v}",0\n' for v in lines), "utf-8")
        return read_table(folder / "t.csv"), scan(folder / "t.csv").read(["x"])

    alone = [stored([value])[0] for value in values]
    for whole in stored(values):
        for found, one in zip(answers(whole), zip(*map(answers, alone), strict=True), strict=True):
            np.testing.assert_array_equal(found, np.concatenate(one))


def test_a_word_beside_it_does_not_change_the_sign_of_zero():
    alone, beside = as_table({"x": [-0.0]}), as_table({"x": [-0.0, "word"]})
    assert np.signbit(alone.values("x")[0]) == np.signbit(beside.values("x")[0])


def test_numbers_dates_and_words_of_a_text():
    cells = ["1", " 01 ", "1.50", "true", "2020-01-02", "2020", "cook", "?", "1577923200"]
    table = as_table({"x": cells})
    nan = np.nan
    numbers = [1, 1, 1.5, nan, nan, 2020, nan, nan, DAY]
    np.testing.assert_array_equal(table.values("x"), numbers)
    year = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
    moments = [1, 1, 1.5, nan, DAY, year, nan, nan, DAY]
    np.testing.assert_array_equal(table.values("x", dates=True), moments)
    words = ["1", "1", "1.5", "true", "2020-01-02", "2020", "cook", None, "1577923200"]
    assert table.texts("x").tolist() == words
    codes, found = table.coded("x")
    assert [None if code < 0 else found[code] for code in codes] == words
    assert len(set(found)) == len(found)


@settings(max_examples=60, deadline=None)
@given(st.lists(cells, min_size=1, max_size=6))
def test_no_value_stops_an_encoding_and_no_row_is_longer_than_its_bound(values):
    pd = pytest.importorskip("pandas")
    objects = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        objects[i] = value
    columns = {
        "number": NumberColumn(-5, 120, "indicator"),
        "shaped": NumberColumn(-5, 120, "indicator", shape="hat", knots=4),
        "date": DateColumn("1900-01-01", "2030-01-01"),
        "word": CategoryColumn(WORDS, "level", "level"),
    }
    frame = pd.DataFrame({name: pd.Series(objects, dtype=object) for name in columns})
    stage = Encode(Schema(columns))
    rows = dense(stage.fit(frame).transform(frame))
    assert rows.shape == (len(values), stage.width())
    assert (np.linalg.norm(rows, axis=1) <= stage.bound()).all()
    for i in range(len(values)):
        np.testing.assert_array_equal(rows[i], dense(stage.transform(frame[i : i + 1]))[0])


@settings(max_examples=40, deadline=None)
@given(st.lists(cells, min_size=1, max_size=6))
def test_no_value_stops_what_is_found_through_noise(values):
    kinds = ("number", "date", "category", "private")
    table = as_table(dict.fromkeys(kinds, values * 20))
    schema = declared_schema(table, schema={kind: kind for kind in kinds})
    stage = PrivateEncode(schema, 0.1, narrow=False)
    context = Context.paid(stage.event(1.0), table.n, failure=1e-6, key=Key.from_seed(0))
    stage.fit(as_rows(table), context)
    assert not stage.schema_.private
    assert Schema.from_dict(stage.schema_.to_dict()) == stage.schema_
    rows = dense(stage.transform(table))
    assert rows.shape[0] == table.n and np.isfinite(rows).all()


def test_a_fit_remarks_on_columns_that_look_like_identifiers(caplog):
    rows = {"row_id": np.arange(2000), "age": np.linspace(0, 1, 2000)}
    model = DPLinearClassifier(epsilon=4, random_state=0)
    model.fit(rows, rows["age"] > 0.5)
    assert "'row_id': looks like an identifier by its name" in caplog.text
    caplog.clear()
    model.set_params(schema={"ignore": ["row_id"]}).fit(rows, rows["age"] > 0.5)
    assert not caplog.text and "row_id" not in model.stages_[0].schema_.columns


@pytest.mark.parametrize("stored", ["pandas", "lists", "scan"])
def test_no_value_stops_a_fit(tmp_path, stored):
    pd, n = pytest.importorskip("pandas"), 2000
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=n), "b": rng.choice(["x", "y"], n)}
    y = np.where(columns["a"] > 0, "no", "yes")
    for name, words in columns.items():
        cells = np.array(words, dtype=object)
        odd = marks[:-1] if stored == "scan" else [*marks, Nasty(), {1}, None, 10**400, b"\xff", 1j]
        for i, value in enumerate(odd):
            cells[i] = value
        columns[name] = cells
    table = {name: list(cells) for name, cells in columns.items()}
    if stored == "pandas":
        table = pd.DataFrame(columns)
    elif stored == "scan":
        rows = zip(columns["a"], columns["b"], y, strict=True)
        lines = ["a,b,y", *(f'"{a}","{b}",{label}' for a, b, label in rows)]
        (tmp_path / "t.csv").write_text("\n".join(lines), "utf-8")
        table = scan(tmp_path / "t.csv", target="y")
    model = DPLinearClassifier(epsilon=4, random_state=0, classes=["no", "yes"])
    model.fit(table, None if stored == "scan" else y)
    if stored != "scan":
        assert np.isfinite(model.predict_proba(table)).all()


@pytest.mark.parametrize("dtype", ["str", "string", "string[python]"])
def test_text_of_pandas_is_read_as_the_same_cells_in_a_list(dtype):
    pd = pytest.importorskip("pandas")
    cells = ["nurse", None, " cook", "?", "cook", "", "1", "1.0", "nan"]
    table = as_table(pd.DataFrame({"job": pd.Series(cells, dtype=dtype)}))
    assert table.texts("job").tolist() == as_table({"job": cells}).texts("job").tolist()
    assert table.types["job"].kind == "category"
