"""Tables: what is read, what is refused, and that nothing is half-written."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
from datetime import date
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from tacit.data import readers
from tacit.data.readers import read_table, write_predictions
from tacit.data.rows import as_rows
from tacit.data.scans import scan
from tacit.data.tables import UNSEEN, Table, as_table
from tacit.exceptions import FileError, InputError
from tacit.preprocessing import Encode

CSV = "age,job,pay\n31, cook ,1.5\n?,NA,\n-2,nurse,NaN\n"


def same(left, right):
    assert left.column_names == right.column_names
    for name in left.column_names:
        assert left.kind(name) == right.kind(name)
        np.testing.assert_array_equal(left.column(name), right.column(name))


@pytest.fixture
def table():
    return Table.from_columns({"x": [1.0, 2.0, None], "word": ["a", None, " b "]})


# The store


def test_a_table_knows_its_columns(table):
    assert (table.n, table.d, table.sparse, len(table)) == (3, 2, False, 3)
    assert table.column_names == ("x", "word")
    assert (table.kind("x"), table.kind("word")) == ("number", "text")
    assert table.column("x").dtype == np.float64
    assert table.column("word").tolist() == ["a", None, "b"]


def test_slices_and_drops_are_tables(table):
    same(table.slice(1, 3), Table.from_columns({"x": [2.0, None], "word": [None, "b"]}))
    assert table.slice(1, 3).kind("word") == table.slice(1, 2).kind("word") == "text"
    assert table.take(np.array([True, False, True])).column("word").tolist() == ["a", "b"]
    assert table.drop("x").column_names == table.drop(["x"]).column_names == ("word",)
    assert table.drop(["x", "word"]).slice(0, 2).n == 2


def test_a_table_cannot_be_changed(table):
    with pytest.raises(ValueError, match="read-only"):
        table.column("x")[0] = 9
    with pytest.raises(AttributeError):
        table.n = 9
    table.column("word")[0] = "other"
    assert table.column("word")[0] == "a"


def test_a_slice_of_numbers_shares_memory():
    array = np.arange(10.0)
    assert np.shares_memory(Table.from_columns({"x": array}).slice(2, 5).column("x"), array)


def test_repr_shows_no_values(table):
    assert repr(table) == "Table(3 rows: x, word)"


def test_an_unknown_column_is_named(table):
    for use in (table.column, table.kind, table.drop):
        with pytest.raises(InputError, match=r"no column 'y'.*it has x, word"):
            use("y")


def test_rows_read_a_table_in_chunks(table):
    rows = as_rows(table)
    assert (rows.n, rows.d) == (3, 2)
    assert [chunk.n for _, chunk in rows.chunks(2)] == [2, 1]


def test_match_gives_positions_missing_and_unseen(table):
    assert table.match("word", ["b", "c"]).tolist() == [-2, -1, 0]
    assert table.match("x", [2, "1.0"]).tolist() == [1, 0, -1]
    assert table.match("x", ["a"]).tolist() == [-2, -2, -1]


def test_a_number_and_its_text_match_the_same_category():
    for cells in (["1", "02", "x"], ["1.0", "2", "x"], [1, 2.0, "x"]):
        assert as_table({"c": cells}).match("c", ["1", 2]).tolist() == [0, 1, -2]
    assert as_table({"c": [True, False]}).match("c", ["False", "True"]).tolist() == [1, 0]


# From other tables


def test_columns_of_every_plain_type():
    table = Table.from_columns(
        {
            "int": np.arange(2, dtype=np.int8),
            "mixed": np.array([1, "a"], dtype=object),
            "masked": np.ma.masked_array([1, 2], [False, True]),
            "flag": np.array([True, False]),
            "day": [date(2020, 1, 2), None],
            "time": np.array(["2020-01-02", "NaT"], dtype="datetime64[ns]"),
            "empty": [None, float("nan")],
            "bytes": np.array(["a", "?"]),
        }
    )
    kinds = [table.kind(name) for name in table.column_names]
    assert kinds == ["number", "text", "number", "text", "text", "text", "number", "text"]
    assert table.column("mixed").tolist() == ["1", "a"]
    assert np.isnan(table.column("masked")[1])
    assert table.column("flag").tolist() == ["true", "false"]
    assert table.column("day").tolist() == table.column("time").tolist() == ["2020-01-02", None]
    assert table.column("bytes").tolist() == ["a", None]


HUGE = 10**400
EXTENDED = np.finfo(np.longdouble).max > np.finfo(np.float64).max


@pytest.mark.parametrize(
    "cells",
    [
        [HUGE, -HUGE, None],
        [Fraction(HUGE), Fraction(-HUGE, 3), None],
        [Decimal(HUGE), Decimal("-1e400"), Decimal("sNaN")],
        np.array([HUGE, -HUGE, 0.0], dtype=object) * np.array([1, 1, np.nan], dtype=object),
    ],
    ids=["integers", "fractions", "decimals", "objects"],
)
def test_numbers_beyond_double_precision_are_infinite_as_in_a_file(cells, tmp_path):
    pd = pytest.importorskip("pandas")
    (tmp_path / "t.csv").write_text(f"a\n{HUGE}\n-1e400\nNaN\n")
    spelled = read_table(tmp_path / "t.csv").column("a")
    assert np.array_equal(spelled, [np.inf, -np.inf, np.nan], equal_nan=True)
    for table in ({"a": cells}, pd.DataFrame({"a": cells})):
        found = as_table(table).column("a")
        assert np.array_equal(found, spelled, equal_nan=True)
    words = Table.from_columns({"a": [*cells, "x"]}).column("a").tolist()
    assert words == ["inf", "-inf", None, "x"]
    schema = {"columns": {"a": {"kind": "number", "low": 0, "high": 10}}}
    stage = Encode(schema).fit({"a": [1.0]})
    assert stage.transform({"a": cells}).ravel().tolist() == [1.0, -1.0, 0.0]


@pytest.mark.skipif(not EXTENDED, reason="long double is double here")
def test_numbers_of_extended_precision(tmp_path):
    cells = np.array([1, -2], dtype=np.longdouble) * np.longdouble("1e400")
    assert Table.from_columns({"a": cells}).column("a").tolist() == [np.inf, -np.inf]
    pd = pytest.importorskip("pandas")
    assert as_table(pd.DataFrame({"a": cells})).column("a").tolist() == [np.inf, -np.inf]


def test_categories_beyond_double_precision_match_infinity():
    numbers, words = Table.from_columns({"a": [1, HUGE], "b": ["x", "1e400"]}), [HUGE, Fraction(1)]
    assert numbers.match("a", words).tolist() == [1, 0]
    assert numbers.match("b", words).tolist() == [UNSEEN, 0]


def test_arrow_decimals_in_units_beyond_double_precision_are_refused():
    pa = pytest.importorskip("pyarrow")
    plain = pa.array([Decimal(7), Decimal(0), None], pa.decimal256(40, 0))
    for scale, found in ((-5, 7e5), (-290, 7e290), (290, 7e-290), (-380, None), (380, None)):
        cells = pa.Array.from_buffers(pa.decimal256(40, scale), 3, plain.buffers())
        if found is None:
            with pytest.raises(InputError, match=r"'a' holds decimal256.*cast it to float64"):
                as_table(pa.table({"a": cells}))
        else:
            numbers = as_table(pa.table({"a": cells})).column("a")
            np.testing.assert_allclose(numbers, [found, 0.0, np.nan], rtol=1e-13)


def test_polars_integers_that_arrow_cannot_hold_are_numbers():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": pl.Series([10**38], dtype=pl.Int128)})
    assert as_table(frame).column("a").tolist() == [1e38]


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"same length, not \[1, 2\]"):
        Table.from_columns({"a": [1], "b": [1, 2]})
    with pytest.raises(InputError, match="more than one column called 'a'"):
        Table.from_columns({"a": [1], " a": [1]})
    with pytest.raises(InputError, match="'a' must have one dimension, not 2"):
        Table.from_columns({"a": np.zeros((2, 2))})
    with pytest.raises(InputError, match="cannot read a table from int"):
        as_table(3)


def test_pandas_and_arrow_tables_equal_the_dict():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    columns = {"x": [1.5, None], "n": [1, 2], "w": ["a", " ?"], "b": [True, None], "z": [None] * 2}
    expected = as_table(columns)
    frame = pd.DataFrame(columns)
    same(as_table(frame), expected)
    same(as_table(frame.convert_dtypes()), expected)
    same(as_table(frame.astype({"w": "category"})), expected)
    same(as_table(pa.table(columns)), expected)
    same(as_table(pa.table(columns).to_batches()[0]), expected)
    coded = pa.table({**columns, "w": pa.array(["a", None]).dictionary_encode()})
    same(as_table(coded), expected)
    frame.columns = ["x", "x", "w", "b", "z"]
    with pytest.raises(InputError, match="more than one column called 'x'"):
        as_table(frame)
    with pytest.raises(InputError, match="'v' holds list"):
        as_table(pa.table({"v": [[1], [2]]}))


def test_polars_tables_equal_the_dict():
    pl = pytest.importorskip("polars")
    columns = {"x": [1.5, None], "n": [1, 2], "w": ["a", " ?"], "b": [True, None], "z": [None] * 2}
    frame = pl.DataFrame(columns)
    same(as_table(frame), as_table(columns))
    same(as_table(frame.with_columns(pl.col("w").cast(pl.Categorical))), as_table(columns))
    dates = pl.DataFrame({"day": [date(2020, 1, 2), None], "cost": [Decimal("1.25"), None]})
    assert as_table(dates).column("day").tolist() == ["2020-01-02", None]
    np.testing.assert_array_equal(as_table(dates).column("cost"), [1.25, np.nan])
    with pytest.raises(InputError, match="'v' holds"):
        as_table(pl.DataFrame({"v": [[1], [2]]}))


def test_pandas_dates_and_arrow_decimals():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    times = pd.DataFrame({"t": pd.to_datetime(["2020-01-02", None])})
    assert as_table(times).column("t").tolist() == ["2020-01-02", None]
    assert as_table(pa.Table.from_pandas(times)).column("t").tolist() == ["2020-01-02", None]
    decimal = pa.array([Decimal("1.25"), None])
    np.testing.assert_array_equal(as_table(pa.table({"d": decimal})).column("d"), [1.25, np.nan])


def test_an_object_with_an_arrow_stream_is_read():
    pa = pytest.importorskip("pyarrow")

    class Frame:  # as polars and others offer it
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table({"x": [1, 2]}).__arrow_c_stream__(requested_schema)

    assert as_table(Frame()).column("x").tolist() == [1, 2]


# Reading files


@pytest.mark.parametrize(
    ("name", "opener"),
    [
        ("t.csv", open),
        ("T.CSV", open),
        ("t.v1.csv", open),
        ("t.csv.gz", gzip.open),
        ("t.csv.bz2", bz2.open),
        ("t.csv.xz", lzma.open),
    ],
)
def test_csv_plain_and_compressed(tmp_path, name, opener):
    with opener(tmp_path / name, "wt") as file:
        file.write(CSV)
    table = read_table(tmp_path / name)
    np.testing.assert_array_equal(table.column("age"), [31, np.nan, -2])
    np.testing.assert_array_equal(table.column("pay"), [1.5, np.nan, np.nan])
    assert table.column("job").tolist() == ["cook", None, "nurse"]


def test_tsv_quotes_marks_and_blank_lines(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes('\ufeffa\tb\r\n"x\ty"\t1\r\n\r\n  \r\nz\t2\r\n'.encode())
    table = read_table(str(path))
    assert table.column("a").tolist() == ["x\ty", "z"]
    assert table.column("b").tolist() == [1, 2]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_header_line_alone_says_what_separates_fields(tmp_path, mark):
    for name in ("t.csv", "t.tsv"):
        lines = [mark.join(cells) for cells in (['"a,;|\t b"', "c d", "e"], ["x", "1.5", '"2,5"'])]
        (tmp_path / name).write_text("\n".join([*lines, mark.join(["; ; ; ;", "1", "3"])]))
        if mark != ";":
            table = read_table(tmp_path / name)
            assert table.column_names == ("a,;|\t b", "c d", "e")
            assert table.texts("a,;|\t b").tolist() == ["x", "; ; ; ;"]
            np.testing.assert_array_equal(table.values("e"), [np.nan, 3])


@pytest.mark.parametrize("store", [read_table, lambda path, **how: as_whole(scan(path, **how))])
def test_decimal_commas_are_declared_or_follow_from_semicolons(tmp_path, store):
    def values(header, decimal):
        cells = ["1,5", "-1.234,25", "93.994", "1,2,3", "a,5", "2e3", ","]
        quote = cells if ";" in header else [f'"{cell}"' for cell in cells]
        (tmp_path / "t.csv").write_text(
            "\n".join([header, *(quote[i] + header[-2] + "0" for i in range(7))])
        )
        return store(tmp_path / "t.csv", decimal=decimal).values("x").tolist()

    points = [np.nan, np.nan, 93.994, np.nan, np.nan, 2000, np.nan]
    commas = [1.5, -1234.25, 93.994, np.nan, np.nan, 2000, np.nan]
    for header, decimal, expected in (
        ("x,y", None, points),
        ("x,y", ",", commas),
        ("x;y", None, commas),
        ("x;y", ".", points),
    ):
        np.testing.assert_array_equal(values(header, decimal), expected)
    with pytest.raises(InputError, match="decimal='x' must be"):
        store(tmp_path / "t.csv", decimal="x")


def as_whole(rows):
    return rows.read(rows.column_names)


def test_numbers_are_recognised_cell_by_cell(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,c,d\n1e3,1_000,inf,-nan\n 7 ,2,-inf,5\n")
    table = read_table(path)
    assert [table.kind(name) for name in "abcd"] == ["number", "text", "number", "number"]
    assert table.column("c").tolist() == [np.inf, -np.inf]
    assert np.isnan(table.column("d")[0])


def test_a_column_that_turns_to_text_late_keeps_its_first_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "BLOCK_ROWS", 2)
    path = tmp_path / "t.csv"
    path.write_text("code,x\n01,1\n02,2\n03,3\nnone,4\n05,5\n")
    table = read_table(path)
    assert table.column("code").tolist() == ["01", "02", "03", "none", "05"]
    assert table.column("x").tolist() == [1, 2, 3, 4, 5]


def test_parquet_equals_csv(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"age": [31, None, -2], "job": ["cook", None, "nurse"], "pay": [1.5, None, None]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text(CSV)
    same(read_table(tmp_path / "t.parquet"), read_table(tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b" \n\n", "is empty"),
        ("t.parquet", b"", "is empty"),
        ("t.csv", b"a,b\n", "has a header and no rows"),
        ("t.csv", b"\x89PNG\x00\x01", "is binary, not text"),
        ("t.csv", b"a,b\n\xff\xfe,1\n", "is not text in UTF-8"),
        ("t.csv", b"PAR1\x00\x00", "holds Parquet, not text; rename it"),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", "the header has 2 fields, and a row has another number"),
        ("t.csv", b"a,b\n1\n", "the header has 2 fields, and a row has another number"),
        ("t.csv", b"a,b, a\n1,2,3\n", "more than one column called 'a'"),
        ("t.csv", b",b\n1,2\n", "column 1 has no name"),
        ("t.csv", b'a,b\n"1,2\n3,4\n', "is not well-formed"),
        ("t.csv.gz", b"a,b\n1,2\n", "is damaged or cut short"),
        ("t.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:-12], "is damaged or cut short"),
        ("t.csv.xz", b"a,b\n1,2\n", "is damaged or cut short"),
        ("t.csv.xz", lzma.compress(CSV.encode())[:-20], "is damaged or cut short"),
        ("t.csv.bz2", b"a,b\n1,2\n", "damaged"),
        ("t.xlsx", b"PK", "unknown kind of table.*must end in .csv"),
        ("t", b"a\n1\n", "unknown kind of table"),
        ("t.parquet.gz", gzip.compress(b"PAR1", mtime=0), "unknown kind of table"),
        ("t.parquet", b"a,b\n1,2\n", "is not a Parquet file; if it is text"),
        ("t.parquet", b"PAR1 and nothing else", "is damaged or cut short"),
    ],
)
def test_bad_files_are_named_and_explained(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileError, match=message) as error:
        read_table(path)
    assert str(path) in str(error.value)


def test_missing_files_directories_and_pipes(tmp_path):
    with pytest.raises(FileError, match=r"no such file: .*nowhere\.csv"):
        read_table(tmp_path / "nowhere.csv")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(FileError, match="is a directory"):
        read_table(tmp_path / "d.csv")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "p.csv")
        with pytest.raises(FileError, match="not a regular file"):
            read_table(tmp_path / "p.csv")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
def test_a_file_without_permission(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # the superuser may read anything
    try:
        with pytest.raises(FileError, match="may not be read by this user"):
            read_table(path)
    finally:
        os.seteuid(user)


def test_damaged_parquet(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.random.default_rng(0).normal(size=5000)}), path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-4], whole[:100] + whole[200:]):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"t\.parquet is damaged or cut short"):
            read_table(path)
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), path)
    with pytest.raises(FileError, match="has columns and no rows"):
        read_table(path)


@pytest.mark.parametrize("words", [["x", "y"], [1.0, 2.0]], ids=["words", "numbers"])
@pytest.mark.parametrize("index", [[0, 2], [-1, 1], [60, None]])
def test_codes_that_stand_for_no_word_are_refused(words, index):
    """Arrow believes them: they would be missing, another word, or whatever lies there."""
    pa = pytest.importorskip("pyarrow")
    codes = pa.DictionaryArray.from_arrays(pa.array(index, pa.int8()), words, safe=False)
    with pytest.raises(InputError, match="column 'a' is damaged"):
        as_table(pa.table({"a": codes}))
    right = pa.DictionaryArray.from_arrays(pa.array([1, None], pa.int8()), words)
    assert as_table(pa.table({"a": right})).column("a")[0] == words[1]


def test_parquet_whose_words_or_names_are_no_text(tmp_path):
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    names = {"wwww": ["vvvv", "vvvv"], "x": [1.0, 2.0]}
    pa.parquet.write_table(pa.table(names), path, store_schema=False, write_statistics=False)
    whole = path.read_bytes()

    def collected(path):
        return as_rows(scan(path, drop="x").as_table_rows()).read(0, 2)

    assert collected(path).column("wwww").tolist() == ["vvvv", "vvvv"]
    for old, new in ((b"wwww", b"\xf5www"), (b"vvvv", b"vvv\xeb")):
        assert old in whole
        path.write_bytes(whole.replace(old, new))
        for read in (read_table, collected):
            with pytest.raises(InputError, match=r"damaged|not text in UTF-8"):
                read(path)


def test_parquet_with_two_columns_of_one_name(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(
        pa.table([pa.array([1]), pa.array([2])], names=["x", "x"]), tmp_path / "t.parquet"
    )
    with pytest.raises(FileError, match="more than one column called 'x'"):
        read_table(tmp_path / "t.parquet")


def test_without_pyarrow_the_message_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"PAR1....PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(FileError, match=r'pip install "tacit\[tables\]"'):
        read_table(tmp_path / "t.parquet")
    with pytest.raises(FileError, match=r'pip install "tacit\[tables\]"'):
        write_predictions(tmp_path / "p.parquet", {"x": [1]})
    (tmp_path / "t.csv").write_text(CSV)
    assert read_table(tmp_path / "t.csv").n == 3


# Writing


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predictions_come_back(tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    columns = {"label": np.array(["a", "b,c"]), "score": np.array([0.1, np.nan]), "n": [1, 2]}
    write_predictions(tmp_path / name, columns)
    same(read_table(tmp_path / name), as_table(columns))
    write_predictions(tmp_path / name, {"other": [3]})
    assert read_table(tmp_path / name).column("other").tolist() == [3]
    assert os.listdir(tmp_path) == [name]


def test_csv_is_plain_text(tmp_path):
    write_predictions(tmp_path / "p.csv", {"id": [1, 2], "p": [0.25, None]})
    assert (tmp_path / "p.csv").read_text() == "id,p\n1,0.25\n2,\n"


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "p.csv"
    path.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"cannot write .*p\.csv: No space left"):
        write_predictions(path, {"x": [1]})
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["p.csv"]


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(FileError, match=r"cannot write .*p\.csv"):
        write_predictions(tmp_path / "no" / "p.csv", {"x": [1]})
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(FileError, match=r"cannot write .*d\.csv"):
        write_predictions(tmp_path / "d.csv", {"x": [1]})
    with pytest.raises(FileError, match=r"written as \.csv or \.parquet"):
        write_predictions(tmp_path / "p.xlsx", {"x": [1]})
    with pytest.raises(InputError, match=r"one length, not \[1, 2\]"):
        write_predictions(tmp_path / "p.csv", {"x": [1], "y": [1, 2]})
    with pytest.raises(InputError, match="not none"):
        write_predictions(tmp_path / "p.csv", {})
    assert os.listdir(tmp_path) == ["d.csv"]
