"""What features are taken of: folders and lists of images, arrays, texts.

A source is a list of rows that are read one by one, each with the key by which
its features are kept, and with names and labels where they are known.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.npz import read_npz
from tacit.data.readers import read_table
from tacit.datasets.loaders import read_idx
from tacit.exceptions import FileError, InputError
from tacit.features.pictures import decode, pixels
from tacit.files import first_bytes, read_text

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
TABLES = (".csv", ".tsv", ".parquet")
PACKED = (".gz", ".bz2", ".xz")


@dataclass(frozen=True)
class Row:
    """One row: where it is from, and how to get at it."""

    key: Callable[[], bytes]
    load: Callable[[], Any]
    name: str


@dataclass(frozen=True)
class Source:
    """Rows, and what is known about them.

    Attributes
    ----------
    rows : sequence of Row
    takes : str
        What an extractor must take: "image", "text" or "vector".
    names : ndarray or None
        Paths of image files, relative to the folder or the list.
    labels : ndarray or None
    skipped : int
        Files of a folder that are no images.
    """

    rows: Sequence[Row]
    takes: str
    names: np.ndarray | None = None
    labels: np.ndarray | None = None
    skipped: int = 0


def _key(kind: bytes, *parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=32, person=kind)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def image_row(image: np.ndarray, name: str = "") -> Row:
    """A row of pixels, (height, width[, channels]) of uint8."""

    def key() -> bytes:
        cells = pixels(image)
        return _key(b"image", repr(cells.shape).encode(), cells.tobytes())

    return Row(key, lambda: pixels(image), name)


def text_row(text: str | None, name: str = "") -> Row:
    """A row of text; a missing one is empty."""
    words = text or ""
    return Row(lambda: _key(b"text", words.encode("utf-8", "surrogatepass")), lambda: words, name)


def vector_row(values: np.ndarray, name: str = "") -> Row:
    """A row of numbers."""
    cells = np.ascontiguousarray(values, dtype=np.float64)
    return Row(lambda: _key(b"vector", cells.tobytes()), lambda: cells, name)


def file_row(path: Path, name: str) -> Row:
    """A row that is an image file. Its key is of the file, so what is known is not decoded."""

    def read() -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise FileError(f"cannot read the image {name}: {error.strerror or error}") from None

    return Row(lambda: _key(b"file", read()), lambda: decode(read(), name), name)


def open_source(
    path: str | os.PathLike[str],
    takes: str,
    *,
    column: str | None = None,
    key: str | None = None,
    labels: str | None = None,
) -> Source:
    """Rows for an extractor that takes images, text or vectors.

    Parameters
    ----------
    path : path
        For images a folder, a ``.txt`` list of image files, an ``.npy`` or ``.npz``
        array of uint8, an idx file. For text a table, or a ``.txt`` with a line per
        row. For vectors an array of two dimensions.
    takes : {"image", "text", "vector"}
    column : str, optional
        The column of a table that holds the text.
    key : str, optional
        The array of an ``.npz``, if it has more than one.
    labels : str, optional
        ``"folders"`` for the first folder below the path; the name of a column, or of
        an array of the ``.npz``; or a file with a label per row: text, ``.npy`` or idx.
    """
    path = Path(path)
    kind = _kind(path)
    for name, value, where in (
        ("column", column, kind in TABLES),
        ("key", key, kind == ".npz"),
    ):
        if value is not None and (path.is_dir() or not where):
            raise InputError(f"{name} is not for {path}")
    more = {} if path.is_dir() or kind != ".npz" else read_npz(path)
    if path.is_dir():
        source = _folder(path, labels == "folders")
        labels = None if labels == "folders" else labels
    elif kind in TABLES:
        return _require(_table(path, column, labels), takes, path)
    elif kind == ".txt":
        source = _lines(path) if takes == "text" else _list(path)
    elif kind == ".npz":
        source = _array(_pick(path, more, key), path)
    elif kind == ".npy":
        source = _array(_npy(path), path)
    elif kind in IMAGES:
        source = _paths([(path, path.name)])
    elif first_bytes(path, 6 << 2)[:2] in (b"\0\0", b"\x1f\x8b"):
        source = _array(read_idx(path), path)
    else:
        raise FileError(
            f"{path}: unknown kind of file. Images: a folder, a .txt that lists files, .npy, .npz, "
            "idx. Text: .csv, .tsv, .parquet, or .txt with a line per row"
        )
    source = _require(source, takes, path)
    if labels is None:
        return source
    if labels == "folders":
        raise InputError("labels from folders need a folder of images")
    found = np.asarray(more[labels]) if labels in more else _label_file(Path(labels))
    return _labelled(source, found, labels)


def is_table(path: Path) -> bool:
    """Whether a file is named as tables are."""
    return _kind(path) in TABLES


def _kind(path: Path) -> str:
    """How the name of a file ends, but for its compression."""
    kinds = [suffix.lower() for suffix in path.suffixes]
    return next((suffix for suffix in reversed(kinds) if suffix not in PACKED), "")


def _require(source: Source, takes: str, path: Path) -> Source:
    if not len(source.rows):
        raise FileError(f"{path} holds no rows")
    if source.takes != takes:
        raise InputError(f"{path} holds {source.takes}s; the extractor takes {takes}s")
    return source


def _labelled(source: Source, labels: np.ndarray, where: str) -> Source:
    if labels.ndim != 1 or len(labels) != len(source.rows):
        raise InputError(
            f"{where} holds labels of shape {labels.shape}; there are {len(source.rows)} rows"
        )
    if labels.dtype.kind not in "biufU":
        raise InputError(f"{where} holds labels of type {labels.dtype}; they are numbers or words")
    return Source(source.rows, source.takes, source.names, labels, source.skipped)


def _folder(path: Path, labelled: bool) -> Source:
    """All images below a folder, in the order of their names."""
    images: list[tuple[Path, str]] = []
    skipped = 0
    for folder, inside, files in os.walk(path, onerror=_unreadable):
        inside[:] = [name for name in inside if not name.startswith(".")]
        for name in files:
            if name.startswith("."):
                continue
            if name.lower().endswith(IMAGES):
                file = Path(folder, name)
                images.append((file, file.relative_to(path).as_posix()))
            else:
                skipped += 1
    if not images:
        raise FileError(f"{path} holds no images: no names that end in {', '.join(IMAGES)}")
    source = _paths(sorted(images, key=lambda image: image[1]), skipped)
    if not labelled:
        return source
    assert source.names is not None
    loose = next((name for name in source.names if "/" not in name), None)
    if loose is not None:
        raise InputError(f"{loose} is in no folder below {path}, so it has no label")
    return _labelled(source, np.array([name.split("/")[0] for name in source.names]), str(path))


def _unreadable(error: OSError) -> None:
    raise FileError(f"cannot read {error.filename}: {error.strerror}") from None


def _paths(images: Sequence[tuple[Path, str]], skipped: int = 0) -> Source:
    rows = [file_row(path, name) for path, name in images]
    return Source(rows, "image", np.array([name for _, name in images]), skipped=skipped)


def _list(path: Path) -> Source:
    """Image files named in a text file, one a line, with a label behind a tab if there is one."""
    lines = [line.split("\t") for line in read_text(path).splitlines() if line.strip()]
    widths = {len(line) for line in lines}
    if not lines or widths - {1, 2} or len(widths) > 1:
        raise FileError(
            f"{path} must name an image file on every line, or on every line an image, a tab and "
            "a label"
        )
    images = [(path.parent / line[0].strip(), line[0].strip()) for line in lines]
    lost = next((name for file, name in images if not file.is_file()), None)
    if lost is not None:
        raise FileError(f"{path} names {lost}, and there is no such file")
    source = _paths(images)
    if widths == {1}:
        return source
    return _labelled(source, np.array([line[1].strip() for line in lines]), str(path))


def _lines(path: Path) -> Source:
    lines = read_text(path, limit=2 << 30).split("\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    return Source([text_row(line, f"line {i + 1}") for i, line in enumerate(lines)], "text")


def _table(path: Path, column: str | None, labels: str | None) -> Source:
    table = read_table(path)
    names = ", ".join(table.column_names)
    if column is None:
        raise InputError(f"which column of {path} holds the text? It has {names}")
    if table.kind(column) != "text":
        raise InputError(f"column {column!r} of {path} holds numbers, not text")
    rows = [text_row(cell, f"row {i + 1}") for i, cell in enumerate(table.column(column))]
    source = Source(rows, "text")
    if labels is None:
        return source
    if labels not in table.column_names:
        return _labelled(source, _label_file(Path(labels)), labels)
    found = table.column(labels)
    if table.kind(labels) == "text":
        found = np.array([cell or "" for cell in found])
    elif (np.isfinite(found) & (found == np.round(found))).all():
        found = found.astype(np.int64)
    return _labelled(source, found, labels)


def _array(array: np.ndarray, path: Path) -> Source:
    """Images (n, height, width[, channels]) of uint8, or vectors (n, columns)."""
    if array.ndim == 2 and array.dtype.kind in "fiu":
        return Source([vector_row(row, f"row {i + 1}") for i, row in enumerate(array)], "vector")
    if array.ndim not in (3, 4) or array.dtype != np.uint8:
        raise InputError(
            f"{path} holds {array.dtype} of shape {array.shape}; images are uint8 of shape "
            "(rows, height, width) or (rows, height, width, channels)"
        )
    rows = [image_row(image, f"row {i + 1}") for i, image in enumerate(array)]
    if rows:
        rows[0].load()  # one look tells whether the shape is that of an image
    return Source(rows, "image")


def _npy(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(f"{path} is damaged or not an array of numbers: {error}") from None


def _pick(path: Path, arrays: dict[str, np.ndarray], key: str | None) -> np.ndarray:
    if key is None:
        large = [name for name, array in arrays.items() if array.ndim > 1]
        if len(large) != 1:
            raise InputError(f"which array of {path}? Name it as key: {', '.join(arrays)}")
        key = large[0]
    if key not in arrays:
        raise InputError(f"{path} has no array {key!r}; it has {', '.join(arrays)}")
    return arrays[key]


def _label_file(path: Path) -> np.ndarray:
    if not path.is_file():
        raise InputError(
            f"labels={str(path)!r} is neither 'folders', nor a column or an array, nor a file"
        )
    if path.suffix.lower() == ".npy":
        return np.asarray(_npy(path))
    if path.suffix.lower() == ".txt":
        return np.array([line.strip() for line in read_text(path).splitlines()])
    return read_idx(path)
