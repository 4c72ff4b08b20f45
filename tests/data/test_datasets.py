"""The bundled census table, and readers of idx files."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from tacit.data import datasets
from tacit.data.datasets import load_adult, load_fashion_mnist, load_mnist
from tacit.exceptions import FileError


@pytest.fixture(scope="module")
def adult():
    return load_adult()


def test_adult_has_the_published_rows(adult):
    train, test, schema = adult
    assert (train.n, test.n) == (32_561, 16_281)
    assert "split" not in train.column_names
    assert set(train.column_names) == {*schema.columns, *schema.ignore, schema.target} - {"split"}
    # adult.names: 23.93% of all rows earn more than 50K; 45,222 rows have no missing cell
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
    folder = Path(datasets.__file__).parent / "census"
    assert (folder / "adult.csv.xz").stat().st_size < 500_000
    notice = (folder / "ATTRIBUTION.md").read_text()
    for fact in ("Becker", "Kohavi", "10.24432/C5XW20", "CC BY 4.0", "Changes made"):
        assert fact in notice


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny data set in the layout of MNIST, half of it compressed."""
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    for name in ("mnist", "fashion_mnist"):
        path = tmp_path / name
        path.mkdir()
        for half, n in (("train", 3), ("t10k", 2)):
            images = idx(np.arange(n * 784).reshape(n, 28, 28))
            (path / f"{half}-images-idx3-ubyte").write_bytes(images)
            labels = gzip.compress(idx(np.arange(n)))
            (path / f"{half}-labels-idx1-ubyte.gz").write_bytes(labels)
    return tmp_path / "mnist"


@pytest.mark.parametrize("load", [load_mnist, load_fashion_mnist])
def test_idx_files_plain_and_compressed(folder, load):
    X_train, y_train, X_test, y_test = load()
    assert X_train.shape == (3, 784) and X_test.shape == (2, 784)
    assert X_train.dtype == np.uint8
    assert X_train[1, 0] == 784 % 256
    assert y_train.tolist() == [0, 1, 2] and y_test.tolist() == [0, 1]


def test_without_the_variable_the_message_names_it(monkeypatch):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    with pytest.raises(FileError, match=r"TACIT_DATA .*mnist/.*published at http"):
        load_mnist()


def test_without_the_folder_the_message_names_it(monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    with pytest.raises(FileError, match=r"no folder .*fashion_mnist .*TACIT_DATA.*published at"):
        load_fashion_mnist()


def test_damaged_idx_files(folder):
    images, labels = folder / "train-images-idx3-ubyte", folder / "train-labels-idx1-ubyte.gz"
    whole = images.read_bytes()
    for damaged in (whole[:-1], whole + b"x", b"", b"\0\0\x0d" + whole[3:], idx(np.arange(3))):
        images.write_bytes(damaged)
        with pytest.raises(FileError, match="images-idx3-ubyte is not a whole idx file"):
            load_mnist()
    images.write_bytes(idx(np.zeros((4, 28, 28))))
    with pytest.raises(FileError, match="train has 4 images and 3 labels"):
        load_mnist()
    images.write_bytes(whole)
    labels.write_bytes(labels.read_bytes()[:-3])
    with pytest.raises(FileError, match="cannot be read or is damaged"):
        load_mnist()
    labels.unlink()
    with pytest.raises(FileError, match="no file train-labels-idx1-ubyte or"):
        load_mnist()
