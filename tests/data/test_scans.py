"""Tables and arrays in files: the same rows as in memory, and a clear error for every bad file."""

from __future__ import annotations

import bz2
import gc
import gzip
import os
import threading
import time

import numpy as np
import pytest

from tacit.data import Table, as_rows, read_table, readers, scan, text_files
from tacit.data import parquet as parquet_module
from tacit.data.rows import shares_memory
from tacit.data.streams import Ahead, pieces
from tacit.exceptions import FileError, InputError
from tacit.preprocessing import Encode

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N, D = 230, 3
RNG = np.random.default_rng(0)
ARRAY = RNG.normal(size=(N, D)).astype(np.float32)
NAMES = [f"x{i}" for i in range(D)]
LABELS = RNG.choice(["no", "yes"], N)
SCHEMA = {
    "columns": {
        "age": {"kind": "number", "low": 0, "high": 100, "missing": "indicator"},
        "job": {"kind": "category", "categories": ["cook", "7"], "missing": "level"},
    },
}
CELLS = {
    "age": [None if i % 7 == 3 else float(i % 90) for i in range(N)],
    "job": [["cook", " 7 ", None, "nurse", "7.0"][i % 5] for i in range(N)],
    "label": LABELS.tolist(),
}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(parquet_module, "BATCH_ROWS", 32)
    monkeypatch.setattr(text_files, "BLOCK_ROWS", 32)


def numbers():
    return pa.table([*(pa.array(c) for c in ARRAY.T), pa.array(LABELS)], names=[*NAMES, "label"])


def write_folder(folder, table, cuts=(90, 100)):
    folder.mkdir()
    for i, (start, stop) in enumerate(zip((0, *cuts), (*cuts, N), strict=True)):
        pq.write_table(table.slice(start, stop - start), folder / f"part-{i}.parquet", None)
    (folder / "_SUCCESS").write_text("")
    (folder / ".part-9.parquet").write_text("a hidden file is none of the table")
    return folder


def write_csv(path, table, opener=open):
    lines = [",".join(table.column_names)]
    for row in table.to_pylist():
        lines.append(",".join("" if cell is None else str(cell) for cell in row.values()))
    with opener(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def store(kind, folder, table=None):
    """The rows as a file of some kind."""
    table = numbers() if table is None else table
    if kind == "parquet":
        pq.write_table(table, folder / "t.parquet", row_group_size=50)
        return folder / "t.parquet"
    if kind == "one row group":
        pq.write_table(table, folder / "t.parquet", compression="zstd")
        return folder / "t.parquet"
    if kind == "folder":
        return write_folder(folder / "t", table)
    if kind == "csv":
        return write_csv(folder / "t.csv", table)
    if kind == "csv.gz":
        return write_csv(folder / "t.csv.gz", table, gzip.open)
    np.save(folder / "t.npy", ARRAY if kind == "npy" else np.asfortranarray(ARRAY))
    return folder / "t.npy"


TABLES = ["parquet", "one row group", "folder", "csv", "csv.gz"]
ARRAYS = ["npy", "fortran npy"]


@pytest.fixture(params=TABLES + ARRAYS)
def stored(request, tmp_path):
    path = store(request.param, tmp_path)
    return scan(path) if request.param in ARRAYS else scan(path, target="label")


def test_rows_of_a_file_are_those_of_the_array(stored):
    rows = as_rows(stored, bound=9.0)
    assert (rows.n, rows.d, rows.bound, rows.sparse) == (N, D, 9.0, False)
    assert (len(stored), stored.shape) == (N, (N, D))
    for size in (1, 7, 32, 100, 4096):
        seen = [chunk for _, chunk in rows.chunks(size)]
        assert all(chunk.dtype == np.float64 and chunk.flags.c_contiguous for chunk in seen)
        assert np.array_equal(np.concatenate(seen), ARRAY)
    assert rows.hidden().n == 0
    assert rows.hidden().d == D
    assert rows.hidden().collect().shape == (0, D)


def test_any_slice_can_be_had_in_any_order(stored):
    rows = as_rows(stored)
    for start, stop in [(100, 140), (0, 3), (140, 141), (3, 230), (229, 230), (5, 5), (50, 60)]:
        assert np.array_equal(rows.read(start, stop), ARRAY[start:stop])
    two = zip(rows.chunks(11), rows.chunks(11), strict=True)  # two readers of one file
    assert all(np.array_equal(one, other) for (_, one), (_, other) in two)


@pytest.mark.parametrize("index", [None, [], [0], [229], [0, 31, 32, 33, 120, 229], range(N)])
def test_pieces_hold_the_rows_that_were_asked_for(stored, index):
    index = None if index is None else np.array(index, dtype=np.intp)
    wanted = ARRAY if index is None else ARRAY[index]
    cuts = [0, *range(3, len(wanted), 40), len(wanted)] if len(wanted) > 3 else [0, len(wanted)]
    if not len(wanted):
        cuts = []
    found = [piece.slice(0, piece.n) for piece in pieces(as_rows(stored).source, cuts, index)]
    assert [len(piece) for piece in found] == np.diff(cuts).tolist()
    assert np.array_equal(np.concatenate([np.empty((0, D)), *found]), wanted)


def test_only_row_groups_with_a_row_that_is_asked_for_are_read(tmp_path):
    source = as_rows(scan(store("parquet", tmp_path), target="label")).source
    firsts = [first for first, _ in source.batches(0, np.array([7, 120, 149]))]
    assert firsts == [0, 32, 100, 132]  # groups of 50 rows, batches of 32
    folder = as_rows(scan(store("folder", tmp_path), target="label")).source
    assert [first for first, _ in folder.batches(0, np.array([95]))] == [90]
    assert [first for first, _ in folder.batches(101)] == [100, 132, 164, 196, 228]


@pytest.mark.parametrize("shape", ["straight", "hat"])
@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_encoded_as_in_memory(kind, shape, tmp_path):
    path = store(kind, tmp_path, pa.table(CELLS))
    found = scan(path, target="label")
    assert found.column_names == ("age", "job")
    age = {**SCHEMA["columns"]["age"], "shape": shape}
    stage = Encode({"columns": {**SCHEMA["columns"], "age": age}})
    rows = stage.fit(found.as_table_rows()).through(found.as_table_rows())
    expected = _dense(stage.transform(Table.from_columns(CELLS).drop("label")))
    for size in (13, 32, 4096):
        assert np.array_equal(np.concatenate([_dense(c) for _, c in rows.chunks(size)]), expected)
    assert stage.transform(found.as_table_rows()).n == N
    picked = np.array([1, 30, 31, 64, 200])
    (piece,) = pieces(found.as_table_rows().source, [0, 5], picked)
    assert np.array_equal(_dense(stage.apply(piece.slice(0, 5))), expected[picked])


def _dense(chunk):
    return chunk if isinstance(chunk, np.ndarray) else chunk.toarray()


def test_a_cell_of_text_at_the_end_of_a_file_makes_its_column_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 100 + "x,2\n")
    assert scan(path).source.kinds == {"a": "text", "b": "number"}
    with pytest.raises(InputError, match=r"'a' of .* holds text"):
        as_rows(scan(path))
    assert as_rows(scan(path, drop="a")).collect().shape == (101, 1)
    table = scan(path).read(["a", "b"])
    assert table.column("a").tolist() == read_table(path).column("a").tolist()


def test_columns_can_be_chosen_in_any_order(tmp_path):
    found = scan(store("parquet", tmp_path), target="label").select(["x2", "x0"])
    assert np.array_equal(as_rows(found).collect(), ARRAY[:, [2, 0]])
    assert np.array_equal(as_rows(found.drop("x2")).collect(), ARRAY[:, [0]])
    assert found.aim("x0").column_names == ("x2",)
    for wrong in (lambda: found.select(["y"]), lambda: found.drop("y"), lambda: found.aim("y")):
        with pytest.raises(InputError, match="no column 'y'"):
            wrong()


def test_other_tables_in_memory_are_rows_too():
    table = pa.table(dict(zip(NAMES, ARRAY.T, strict=True)))
    assert np.array_equal(as_rows(table).collect(), ARRAY)

    class Stream:  # what polars and others offer
        def __arrow_c_stream__(self, requested=None):
            return table.__arrow_c_stream__(requested)

    assert np.array_equal(as_rows(Stream()).collect(), ARRAY)


@pytest.mark.parametrize("kind", TABLES)
def test_labels_are_matched_with_the_classes_that_were_given(kind, tmp_path):
    found = scan(store(kind, tmp_path), target="label")
    for classes in (None, ["yes", "no"]):
        names, index = found.labels(classes)
        assert names.tolist() == ["no", "yes"]
        assert (names[index] == LABELS).all()
    with pytest.raises(InputError, match="not among its classes"):
        found.labels(["no", "maybe"])
    with pytest.raises(InputError, match="holds text"):
        found.numbers()
    with pytest.raises(InputError, match=r"scan\(.*, target=\.\.\.\)"):
        scan(found.path).labels()


def test_labels_of_numbers(tmp_path):
    for name, cells, kind in (("whole", [3, 1, 3, None], "i"), ("parts", [0.5, 1.0, 2.0, 1], "f")):
        pq.write_table(pa.table({"y": cells[:3], "x": [1.0, 2, 3]}), tmp_path / f"{name}.parquet")
        found = scan(tmp_path / f"{name}.parquet", target="y")
        assert found.numbers().tolist() == cells[:3]
        if kind == "i":
            assert found.labels()[0].tolist() == [1, 3]
            assert found.labels(["3", "1"])[1].tolist() == [1, 0, 1]
        else:
            with pytest.raises(InputError, match="fractions"):
                found.labels()
    pq.write_table(pa.table({"y": [1, None], "x": [1.0, 2]}), tmp_path / "gap.parquet")
    with pytest.raises(InputError, match="missing value"):
        scan(tmp_path / "gap.parquet", target="y").labels()


def test_labels_that_are_none(tmp_path):
    """Long words are as long as the longest in an array, and float64 is wider than int64."""
    long = "x" * 100_000
    for cells, said in (
        ([1e300, 1.0], "numbers too large"),
        ([10**400, 1], "fractions"),
        ([0.5, 1.0], "fractions"),
        ([long, *(f"w{i}" for i in range(100))], "too long labels"),
    ):
        path = tmp_path / "t.csv"
        path.write_text("x,y\n" + "".join(f"1,{cell}\n" for cell in cells))
        with pytest.raises(InputError, match=f"'y' holds .*{said}") as refusal:
            scan(path, target="y").labels()
        assert len(str(refusal.value)) < 200
    assert scan(path, target="y").labels([long, *(f"w{i}" for i in range(100))])[1][0] == 100


def test_gaps_pass_if_a_stage_fills_them_and_infinity_never_does(tmp_path):
    cells = ARRAY.copy()
    cells[150, 1] = np.nan
    np.save(tmp_path / "t.npy", cells)
    pq.write_table(pa.table(dict(zip(NAMES, cells.T, strict=True))), tmp_path / "t.parquet")
    for name in ("t.npy", "t.parquet"):
        rows = as_rows(scan(tmp_path / name))
        assert np.array_equal(rows.read(0, 150), cells[:150])  # found where it stands
        with pytest.raises(InputError, match="NaN or infinity"):
            rows.collect()
        filled = as_rows(scan(tmp_path / name), gaps=True)
        assert np.array_equal(filled.collect(), cells, equal_nan=True)
    cells[150, 1] = np.inf
    np.save(tmp_path / "t.npy", cells)
    with pytest.raises(InputError, match="infinity"):
        as_rows(scan(tmp_path / "t.npy"), gaps=True).collect()
    assert as_rows(np.load(tmp_path / "t.npy", mmap_mode="r")).n == N  # not read ahead of time


def test_two_scans_of_one_file_are_the_same_rows(tmp_path):
    path = store("parquet", tmp_path)
    os.link(path, tmp_path / "other.parquet")
    one, other = scan(path), scan(tmp_path / "other.parquet", drop="label")
    assert shares_memory(one, other)
    assert shares_memory(as_rows(other), one)
    np.save(tmp_path / "t.npy", ARRAY)
    first, second = (np.load(tmp_path / "t.npy", mmap_mode="r") for _ in range(2))
    assert shares_memory(first, as_rows(second))
    assert not shares_memory(first, one)


# --- files that are not what they should be ------------------------------------------------------


def test_files_of_a_folder_must_have_the_same_columns(tmp_path):
    for number, (other, said) in enumerate(
        [
            ({"a": [1.0], "c": [2.0]}, "different columns: only one of them has 'b'"),
            ({"b": [1.0], "a": [2.0]}, "different orders"),
            ({"a": [1.0], "b": ["x"]}, "'b' holds text in"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        pq.write_table(pa.table({"a": [1.0], "b": [2]}), folder / "0.parquet")
        pq.write_table(pa.table(other), folder / "1.parquet")
        with pytest.raises(FileError, match=said):
            scan(folder)


def test_folders_that_are_no_table(tmp_path):
    with pytest.raises(FileError, match=r"without \.parquet files"):
        scan(tmp_path)
    (tmp_path / "year=2024").mkdir()
    with pytest.raises(FileError, match="partitions"):
        scan(tmp_path)
    with pytest.raises(FileError, match="no such file"):
        scan(tmp_path / "nowhere")
    with pytest.raises(FileError, match="unknown kind"):
        (tmp_path / "a.xlsx").write_bytes(b"?")
        scan(tmp_path / "a.xlsx")


def corrupt(path, group=3):
    """Overwrite the data of a row group, whose place the footer tells."""
    column = pq.ParquetFile(path).metadata.row_group(group).column(0)
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)
    return path


def test_a_corrupt_row_group_is_found_when_it_is_read(tmp_path):
    rows = as_rows(scan(corrupt(store("parquet", tmp_path)), target="label"))
    assert np.array_equal(rows.read(0, 150), ARRAY[:150])
    with pytest.raises(FileError, match="damaged or cut short"):
        rows.collect()


def test_a_parquet_file_that_is_cut_short_is_refused(tmp_path):
    path = store("parquet", tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FileError, match="damaged"):
        scan(path)
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(FileError, match="not a Parquet file"):
        scan(path)
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), path)
    with pytest.raises(FileError, match="no rows"):
        scan(path)
    pq.write_table(pa.table({"a": [[1.0, 2.0]]}), path)
    with pytest.raises(InputError, match="Tacit reads numbers, dates and text"):
        scan(path)


def test_a_csv_with_ragged_rows_is_refused_before_anything_is_spent(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 100 + "1,2,3\n" + "1,2\n")
    with pytest.raises(FileError, match="the header has 2 fields, and a row has another number"):
        scan(path)
    path.write_text("a,b\n")
    with pytest.raises(FileError, match="no rows"):
        scan(path)
    path.write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(FileError, match="UTF-8"):
        scan(path)


def test_an_array_that_is_shorter_than_it_says_is_refused(tmp_path):
    path = store("npy", tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    with pytest.raises(FileError, match="shorter than it says"):
        scan(path)
    for array, said in (
        (ARRAY[0], "two dimensions"),
        (np.array([["a", "b"]]), "not numbers"),
        (np.array([[None]]), "damaged"),
        (ARRAY[:0], "no rows"),
        (ARRAY[:, :0], "no columns"),
    ):
        np.save(path, array)
        with pytest.raises(InputError, match=said):
            scan(path)


@pytest.mark.parametrize("shape", [(2**60, 0), (2**62, 1), (2**63, 4), (2**70, 1)])
def test_an_array_larger_than_integers_are_is_refused(shape, tmp_path):
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    with open(tmp_path / "t.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(FileError, match=r"t\.npy"):
        scan(tmp_path / "t.npy")


@pytest.mark.skipif(
    np.finfo(np.longdouble).max == np.finfo(np.float64).max, reason="long double is double here"
)
def test_a_map_of_numbers_that_float64_cannot_hold_is_refused(tmp_path):
    np.save(tmp_path / "t.npy", np.array([[1, 2]], dtype=np.longdouble) * np.longdouble("1e400"))
    for rows in (as_rows(scan(tmp_path / "t.npy")), as_rows(np.load(tmp_path / "t.npy", "r"))):
        with pytest.raises(InputError, match="NaN or infinity"):
            rows.collect()
        with pytest.raises(InputError, match="NaN or infinity"):
            list(pieces(rows.source, [0, 1]))


def test_a_map_whose_file_shrinks_is_an_error_and_not_the_end_of_the_process(tmp_path):
    path = store("npy", tmp_path)
    mapped = np.load(path, mmap_mode="r")
    rows = as_rows(mapped)
    assert np.array_equal(rows.read(0, 10), ARRAY[:10])
    os.truncate(path, 200)
    with pytest.raises(FileError, match="has changed"):
        rows.read(100, 200)


@pytest.mark.parametrize("kind", [*TABLES, "npy"])
def test_a_file_that_changes_between_passes_is_an_error(kind, tmp_path):
    path = store(kind, tmp_path)
    rows = as_rows(scan(path) if kind == "npy" else scan(path, target="label"))
    assert np.array_equal(rows.collect(), ARRAY)
    file = path / "part-1.parquet" if path.is_dir() else path
    found = os.stat(file)
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns + 1000))
    with pytest.raises(FileError, match="has changed"):
        rows.collect()
    file.unlink()
    with pytest.raises(FileError, match="no such file"):
        rows.collect()


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps no time of change")
@pytest.mark.parametrize("kind", [*TABLES, "npy"])
def test_a_file_edited_in_place_is_an_error_even_if_its_time_is_put_back(kind, tmp_path):
    path = store(kind, tmp_path)
    rows = as_rows(scan(path) if kind == "npy" else scan(path, target="label"))
    assert np.array_equal(rows.collect(), ARRAY)
    file = path / "part-1.parquet" if path.is_dir() else path
    found, data = os.stat(file), file.read_bytes()
    after(found.st_ctime_ns, tmp_path)
    with open(file, "r+b") as whole:
        whole.write(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert os.stat(file).st_mtime_ns == found.st_mtime_ns
    with pytest.raises(FileError, match="has changed"):
        rows.collect()


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps no time of change")
def test_another_mode_or_name_cannot_be_told_from_an_edit(tmp_path):
    for number, change in enumerate([lambda p: p.chmod(0o600), lambda p: os.link(p, f"{p}.2")]):
        (tmp_path / str(number)).mkdir()
        path = store("csv", tmp_path / str(number))
        rows = as_rows(scan(path, target="label"))
        after(os.stat(path).st_ctime_ns, tmp_path)
        change(path)
        with pytest.raises(FileError, match="has changed"):
            rows.collect()


def after(moment, folder):
    """Wait until the clock of the file system, which ticks slowly, has moved on."""
    clock = folder / "clock"
    while True:
        clock.touch()
        if os.stat(clock).st_ctime_ns > moment:
            return


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_that_changes_within_a_pass_is_an_error(kind, tmp_path):
    path = store(kind, tmp_path)
    chunks = as_rows(scan(path, target="label")).chunks(16)
    next(chunks)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(FileError, match="has changed"):
        list(chunks)


def test_what_cannot_be_asked_of_a_scan_is_said(tmp_path):
    array, table = store("npy", tmp_path), store("csv", tmp_path)
    for wrong, said in (
        (lambda: scan(array, target="x0"), "give y to fit"),
        (lambda: scan(array).select(["x0"]), "without names"),
        (lambda: scan(array).as_table_rows(), "is an array"),
        (lambda: scan(table, target="y"), "no column 'y'"),
        (lambda: scan(table, drop=[*NAMES, "label"]), "no column left"),
        (lambda: scan(table, memory=0), "positive"),
        (lambda: Encode(SCHEMA).fit(as_rows(scan(table, target="label"))), "needs a table"),
    ):
        with pytest.raises(InputError, match=said):
            wrong()
    assert "230 rows of 3 columns, target 'label'" in repr(scan(table, target="label"))


def test_small_files_that_unpack_without_end_are_refused(tmp_path, monkeypatch):
    path = store("csv.gz", tmp_path)
    for name in ("FREE", "FREE_TEXT"):
        monkeypatch.setattr(readers, name, 1000)
    for name in ("TIMES", "TIMES_TEXT"):
        monkeypatch.setattr(readers, name, 1)
    for read in (scan, read_table):
        with pytest.raises(FileError, match=r"unpacks to more than .* unpack it first"):
            read(path)
        assert read(path, limit=1e6).n == N
    pq.write_table(pa.table({"a": np.zeros(200_000)}), tmp_path / "zeros.parquet")
    monkeypatch.setattr(parquet_module, "MOST_ROWS", 100_000)
    with pytest.raises(FileError, match="declares 200000 rows"):
        scan(tmp_path / "zeros.parquet")
    assert scan(tmp_path / "zeros.parquet", limit=1.6e6).n == 200_000


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "1 GB", 1j, [1]])
def test_a_limit_is_a_number_of_bytes(limit, tmp_path):
    path = store("csv", tmp_path)
    for read in (scan, read_table):
        with pytest.raises(InputError, match=r"limit=.* must be a positive number of bytes"):
            read(path, limit=limit)


def test_text_unpacks_to_a_thousand_times_its_size_and_no_further(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "FREE_TEXT", 1000)
    text = b"a,b\n" + b"0.00000,1.00000\n" * 10_000
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text))  # some hundred times smaller
    (tmp_path / "t.csv.bz2").write_bytes(bz2.compress(text))  # thousands of times
    for read in (scan, read_table):
        assert read(tmp_path / "t.csv.gz").n == 10_000
        with pytest.raises(FileError, match=r"0\.\d* MB of text, a line counted as 8 bytes"):
            read(tmp_path / "t.csv.bz2")
        assert read(tmp_path / "t.csv.bz2", limit=1 << 20).n == 10_000
    assert len(as_rows(scan(tmp_path / "t.csv.bz2", limit=1 << 20)).collect()) == 10_000


def test_files_of_a_folder_may_declare_as_many_rows_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_module, "MOST_ROWS", 100_000)
    part = tmp_path / "0.parquet"
    pq.write_table(pa.table({"a": np.zeros(90_000), "b": np.ones(90_000)}), part)
    assert scan(tmp_path).n == 90_000
    os.link(part, tmp_path / "1.parquet")  # takes no bytes, and allows for none
    with pytest.raises(FileError, match=r"2 files up to .*1\.parquet declares 180000") as no:
        scan(tmp_path)
    assert f"in {part.stat().st_size} bytes" in str(no.value)
    assert scan(tmp_path, limit=2.88e6).n == 180_000
    with pytest.raises(FileError, match="180000 rows and 180000 values are allowed"):
        scan(tmp_path, limit=1.44e6)  # of both columns
    monkeypatch.setattr(parquet_module, "ROWS_PER_BYTE", 1000)
    assert scan(tmp_path).n == 180_000
    monkeypatch.setattr(parquet_module, "MOST_CELLS", 300_000)
    monkeypatch.setattr(parquet_module, "CELLS_PER_BYTE", 1)
    with pytest.raises(FileError, match="180000 rows of 2 columns"):
        scan(tmp_path)


# --- reading ahead -------------------------------------------------------------------------------


def test_items_are_made_ahead_of_their_use():
    made = []

    def items():
        for i in range(10):
            made.append(i)
            yield i

    with Ahead(items(), depth=3) as ahead:
        assert next(ahead) == 0
        for _ in range(500):
            if len(made) == 5:  # one taken, three ready, one waiting for room
                break
            time.sleep(0.01)
        assert made == [0, 1, 2, 3, 4]
        assert list(ahead) == list(range(1, 10))


def test_what_goes_wrong_ahead_is_raised_in_its_place():
    def items():
        yield 1
        raise FileError("gone")

    ahead = Ahead(items())
    assert next(ahead) == 1
    for _ in range(2):
        with pytest.raises(FileError, match="gone"):
            next(ahead)


def test_no_thread_is_left_behind(stored):
    before = threading.active_count()
    rows = as_rows(stored)
    for leave in (lambda c: c.close(), lambda c: None):
        chunks = rows.chunks(16)
        next(chunks)
        leave(chunks)
    del rows, chunks
    found = pieces(as_rows(stored).source, [0, 20, 230])
    next(found)
    found.close()
    gc.collect()
    for _ in range(500):
        if threading.active_count() <= before:
            break
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_rows_know_the_memory_they_may_take(tmp_path):
    for kind in ("parquet", "csv", "npy"):
        found = scan(store(kind, tmp_path), memory=1e9)
        rows = as_rows(found if kind == "npy" else found.drop("label"))
        assert rows.source.memory == 10**9
