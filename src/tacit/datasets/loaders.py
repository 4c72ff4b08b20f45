"""Data sets that are arrays or texts."""

from __future__ import annotations

import math
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tacit.datasets.archives import unpacked
from tacit.datasets.store import read_arrays, read_files
from tacit.exceptions import FileError
from tacit.files import first_bytes

Arrays: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Texts: TypeAlias = tuple[list[str], np.ndarray]

LARGEST_IDX = 1 << 32  # bytes


def load_mnist(*, download: bool = True) -> Arrays:
    """Handwritten digits: ``X_train, y_train, X_test, y_test``.

    Pixels are uint8 of shape (rows, 784), labels 0 to 9.

    Parameters
    ----------
    download : bool
        Whether files that are neither in ``TACIT_DATA`` nor in the user's cache are fetched.

    Returns
    -------
    X_train, y_train, X_test, y_test : ndarray of shape (n, 784) or (n,)
        Pixels and labels.

    Examples
    --------
    >>> X_train, y_train, X_test, y_test = load_mnist()  # doctest: +SKIP
    """
    return _load_images("mnist", download)


def load_fashion_mnist(*, download: bool = True) -> Arrays:
    """Pictures of clothes: ``X_train, y_train, X_test, y_test``.

    Parameters
    ----------
    download : bool
        Whether files that are neither in ``TACIT_DATA`` nor in the user's cache are fetched.

    Returns
    -------
    X_train, y_train, X_test, y_test : ndarray of shape (n, 784) or (n,)
        Pixels in uint8, and labels 0 to 9.

    Examples
    --------
    >>> X_train, y_train, X_test, y_test = load_fashion_mnist()  # doctest: +SKIP
    """
    return _load_images("fashion_mnist", download)


def load_cifar10(*, codes: bool = False, download: bool = True) -> Arrays:
    """Features of CIFAR-10 by a network that was trained on other images.

    ``X_train, y_train, X_test, y_test`` with 1,280 features, float32 between 0 and 6;
    classes are numbered in alphabetical order.

    Parameters
    ----------
    codes : bool
        Features as they are stored, a byte each, which `decode_features` turns into numbers.
    download : bool
        Whether to look for a public source, though none holds these features.

    Returns
    -------
    X_train, y_train, X_test, y_test : ndarray of shape (n, 1280) or (n,)
        Features and labels.

    Examples
    --------
    >>> X_train, y_train, X_test, y_test = load_cifar10()  # doctest: +SKIP
    """
    return _load_features("cifar10", codes, download)


def load_cifar100(*, codes: bool = False, download: bool = True) -> Arrays:
    """Features of CIFAR-100 by a network that was trained on other images.

    Parameters
    ----------
    codes : bool
        Features as they are stored, a byte each, which `decode_features` turns into numbers.
    download : bool
        Whether to look for a public source, though none holds these features.

    Returns
    -------
    X_train, y_train, X_test, y_test : ndarray of shape (n, 1280) or (n,)
        Features between 0 and 6, and labels; classes are numbered in alphabetical order.

    Examples
    --------
    >>> X_train, y_train, X_test, y_test = load_cifar100()  # doctest: +SKIP
    """
    return _load_features("cifar100", codes, download)


def load_chest_xray(
    *, download: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features of chest X-rays, with pneumonia (1) or without (0), and whose they are.

    ``X_train, y_train, X_test, y_test, patients_train, patients_test``: 1,280 features
    in float32. There are several rows of some patients, all of them in the same half:
    a guarantee for a row is weaker for a patient.

    Parameters
    ----------
    download : bool
        Whether to look for a public source, though none holds these features.

    Returns
    -------
    X_train, y_train, X_test, y_test : ndarray of shape (n, 1280) or (n,)
        Features and labels.
    patients_train, patients_test : ndarray of shape (n,)
        Numbers of the patients.

    Examples
    --------
    >>> X_train, y_train, *rest = load_chest_xray()  # doctest: +SKIP
    """
    found = read_arrays("chest_xray", download=download)
    X_train, X_test = (found[key].astype(np.float32) for key in ("x_train", "x_test"))
    patients = found["patient_train"], found["patient_test"]
    return X_train, found["y_train"], X_test, found["y_test"], *patients


def decode_features(codes: np.ndarray) -> np.ndarray:
    """Numbers x = 6 (q / 255)² from bytes q, in float32: a fixed quantiser of public range.

    Parameters
    ----------
    codes : ndarray of uint8, of any shape
        Bytes q.

    Returns
    -------
    ndarray of float32, of the same shape
        Numbers from 0 to 6.

    Examples
    --------
    >>> decode_features(np.array([0, 255], dtype=np.uint8))
    array([0., 6.], dtype=float32)
    """
    levels = 6 * (np.arange(256, dtype=np.float32) / np.float32(255)) ** 2
    return levels.astype(np.float32)[codes]


def load_cod_rna(*, download: bool = True) -> Arrays:
    """RNA sequences by 8 numbers: ``X_train, y_train, X_test, y_test``, labels -1 and 1.

    Parameters
    ----------
    download : bool
        Whether files that are neither in ``TACIT_DATA`` nor in the user's cache are fetched.

    Returns
    -------
    X_train, y_train, X_test, y_test : ndarray of shape (n, 8) or (n,)
        Numbers and labels.

    Examples
    --------
    >>> X_train, y_train, X_test, y_test = load_cod_rna()  # doctest: +SKIP
    """
    files = read_files("cod_rna", download=download)
    (X_train, y_train), (X_test, y_test) = (_svmlight(data, 8) for data in files.values())
    return X_train.toarray(), y_train, X_test.toarray(), y_test


def load_w8a(*, download: bool = True) -> tuple[Any, np.ndarray]:
    """Web pages by 300 keywords, 0 or 1: a sparse array (CSR) and labels -1 and 1.

    Parameters
    ----------
    download : bool
        Whether files that are neither in ``TACIT_DATA`` nor in the user's cache are fetched.

    Returns
    -------
    X : csr_array of shape (n, 300)
        Keywords.
    y : ndarray of shape (n,)
        Labels.

    Examples
    --------
    >>> X, y = load_w8a()  # doctest: +SKIP
    """
    return _svmlight(read_files("w8a", download=download)["w8a"], 300)


def load_sst2(*, download: bool = True) -> tuple[Texts, Texts, Texts]:
    """Phrases of film reviews to train with, to validate and to test.

    Each is a list of texts and an array of labels, 1 for praise and 0 otherwise.

    Parameters
    ----------
    download : bool
        Whether to look for a public source, though this split is not published by itself.

    Returns
    -------
    train, validation, test : (list of str, ndarray of shape (n,))
        Texts and labels.

    Examples
    --------
    >>> (texts, labels), validation, test = load_sst2()  # doctest: +SKIP
    """
    files = read_files("sst2", download=download)
    train, valid, test = (_phrases(data) for data in files.values())
    return train, valid, test


def _phrases(data: bytes) -> Texts:
    lines = [row.split("\t") for row in data.decode("utf-8").rstrip("\n").split("\n")[1:]]
    return [text for text, _ in lines], np.array([int(label) for _, label in lines])


def _svmlight(data: bytes, columns: int) -> tuple[Any, np.ndarray]:
    import scipy.sparse as sp
    from sklearn.datasets import load_svmlight_file

    rows, labels = load_svmlight_file(BytesIO(data), n_features=columns, zero_based=False)
    return sp.csr_array(rows), labels.astype(np.int64)


def _load_features(name: str, codes: bool, download: bool) -> Arrays:
    found = read_arrays(name, download=download)
    X_train, X_test = (
        found[key] if codes else decode_features(found[key]) for key in ("x_train", "x_test")
    )
    return X_train, found["y_train"], X_test, found["y_test"]


def _load_images(name: str, download: bool) -> Arrays:
    files = read_files(name, download=download)
    images, labels, test_images, test_labels = (
        _parse_idx(f"{file} of {name}", data) for file, data in files.items()
    )
    flat, test_flat = (some.reshape(len(some), -1) for some in (images, test_images))
    return flat, labels, test_flat, test_labels


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes in the idx format: 0, 0, type, dimensions, sizes, data."""
    try:
        data = unpacked(str(path), first_bytes(path, LARGEST_IDX), LARGEST_IDX)
    except FileError:
        raise FileError(f"{path} cannot be read or is damaged") from None
    return _parse_idx(str(path), data)


def _parse_idx(where: str, data: bytes) -> np.ndarray:
    start = 4 + 4 * (data[3] if len(data) > 3 else 0)
    sizes = [int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4)]
    if data[:3] != b"\0\0\x08" or not sizes or len(data) != start + math.prod(sizes):
        raise FileError(f"{where} is not a whole idx file of bytes")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(sizes)
