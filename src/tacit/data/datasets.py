"""Data sets: one that comes with the package, and readers for two that do not.

The census table (UCI Adult; see ``census/ATTRIBUTION.md``) is read with the
standard library alone. MNIST and Fashion-MNIST are for development and read from
the folder that the environment variable ``TACIT_DATA`` names.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tacit.data.readers import read_table
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.exceptions import FileError

__all__ = ["load_adult", "load_fashion_mnist", "load_mnist", "read_idx"]

Images: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

_CENSUS = Path(__file__).parent / "census"
_SOURCES = {
    "mnist": "http://yann.lecun.com/exdb/mnist/",
    "fashion_mnist": "https://github.com/zalandoresearch/fashion-mnist",
}


def load_adult() -> tuple[Table, Table, Schema]:
    """The census table: does a person earn more than 50,000 dollars a year?

    Returns
    -------
    train, test : Table
        32,561 and 16,281 rows, split as published; the column ``income`` is
        ``<=50K`` or ``>50K``.
    schema : Schema
        Public bounds and categories from the published description.

    Examples
    --------
    >>> train, test, schema = load_adult()
    >>> train.n, test.n, schema.target
    (32561, 16281, 'income')
    """
    table = read_table(_CENSUS / "adult.csv.xz")
    train = table.match("split", ["test", "train"]).astype(bool)
    rows = table.drop("split")
    return rows.take(train), rows.take(~train), Schema.load(_CENSUS / "schema.yaml")


def load_mnist() -> Images:
    """Handwritten digits: ``X_train, y_train, X_test, y_test``.

    Pixels are uint8 of shape (rows, 784), labels 0 to 9. The four idx files
    (plain or ``.gz``) are expected in the folder ``mnist`` of ``TACIT_DATA``.
    """
    return _load_images("mnist")


def load_fashion_mnist() -> Images:
    """Pictures of clothes, in the shape of `load_mnist`, from ``fashion_mnist``."""
    return _load_images("fashion_mnist")


def _load_images(name: str) -> Images:
    source = f"the idx files are published at {_SOURCES[name]}"
    root = os.environ.get("TACIT_DATA")
    if not root:
        raise FileError(
            f"set the environment variable TACIT_DATA to a folder that holds {name}/; {source}"
        )
    folder = Path(root) / name
    if not folder.is_dir():
        raise FileError(f"no folder {folder} (TACIT_DATA is {root}); {source}")
    parts: list[np.ndarray] = []
    for half in ("train", "t10k"):
        images = _read_idx(folder, f"{half}-images-idx3-ubyte", 3, source)
        labels = _read_idx(folder, f"{half}-labels-idx1-ubyte", 1, source)
        if len(images) != len(labels):
            raise FileError(
                f"{folder}: {half} has {len(images)} images and {len(labels)} labels; {source}"
            )
        parts += [images.reshape(len(images), -1), labels]
    return parts[0], parts[1], parts[2], parts[3]


def _read_idx(folder: Path, name: str, ndim: int, source: str) -> np.ndarray:
    path = next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
    if path is None:
        raise FileError(f"no file {name} or {name}.gz in {folder}; {source}")
    try:
        found = read_idx(path)
    except FileError as error:
        raise FileError(f"{error}; {source}") from None
    if found.ndim != ndim:
        raise FileError(f"{path} is not a whole idx file of bytes; {source}")
    return found


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes in the idx format: 0, 0, type, dimensions, sizes, data."""
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        raise FileError(f"{path} cannot be read or is damaged") from None
    start = 4 + 4 * (data[3] if len(data) > 3 else 0)
    sizes = [int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4)]
    if data[:3] != b"\0\0\x08" or not sizes or len(data) != start + math.prod(sizes):
        raise FileError(f"{path} is not a whole idx file of bytes")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(sizes)
