"""Rows for Pinto et al. 2024: a tenth of them public and without labels, the others private."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tacit import datasets

#: As tables and figures call them.
NAMES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "fashion_mnist": "Fashion-MNIST pixels",
    "mnist": "MNIST pixels",
    "chest_xray": "chest X-rays",
    "w8a": "w8a (area under the curve)",
}
MOST_TEST_ROWS = 5_000  # rows to test with, where private ones are few


class Split(NamedTuple):
    """Rows of norm one in float32, and labels 0, 1, …; test rows in two halves."""

    public: np.ndarray
    public_y: np.ndarray
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    X_search: np.ndarray
    y_search: np.ndarray

    @property
    def classes(self) -> int:
        return int(self.y_test.max()) + 1


class Turned(NamedTuple):
    """Private and test rows in the coordinates of public components, the strongest first."""

    X: np.ndarray
    X_test: np.ndarray
    X_search: np.ndarray


@lru_cache(maxsize=2)
def split(name: str, private: int | None = None) -> Split:
    """A data set; with ``private``, so many private rows only, and a ninth as many public ones."""
    X, y, X_test, y_test = read_split(name)
    order = np.random.default_rng(0).permutation(len(X))
    tenth = len(X) // 10
    own = order[tenth:]
    if private is not None:
        order, own = order[: private // 9], own[:private]
        X_test, y_test = X_test[:MOST_TEST_ROWS], y_test[:MOST_TEST_ROWS]
    public = order[:tenth]
    X_test = _unit(X_test)
    test, search = slice(0, None, 2), slice(1, None, 2)
    return Split(
        *(_unit(X[public]), y[public], _unit(X[own]), y[own]),
        *(X_test[test], y_test[test], X_test[search], y_test[search]),
    )


@lru_cache(maxsize=3)
def turned(name: str, private: int | None, source: str, count: int | None, center: bool) -> Turned:
    """Rows in the components of ``count`` public rows of ``source``, about zero or their mean.

    This is `tacit.preprocessing.PublicPCA` of all components, or `tacit.preprocessing.PublicCenter`
    and it, done once for every number of them. Rows of ``"random"`` are none: axes are drawn.
    """
    data = split(name, private)
    if source == "random":
        d = data.X.shape[1]
        noise = np.random.default_rng(1).standard_normal((d, d))
        axes = np.linalg.qr(noise)[0].astype(np.float32)
        return Turned(*(rows @ axes for rows in (data.X, data.X_test, data.X_search)))
    near = source == name and (count or 0) <= len(data.public)
    public = (data if near else split(source)).public[:count].astype(np.float64)
    mean = public.mean(axis=0) if center else np.zeros(public.shape[1])
    public -= mean
    axes = np.linalg.eigh(public.T @ public)[1][:, ::-1].astype(np.float32)
    shift = mean.astype(np.float32) @ axes
    return Turned(*(rows @ axes - shift for rows in (data.X, data.X_test, data.X_search)))


def _unit(rows: np.ndarray) -> np.ndarray:
    rows = np.asarray(rows, dtype=np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


@lru_cache(maxsize=1)
def read_split(name: str) -> tuple[np.ndarray, ...]:
    """``X_train, y_train, X_test, y_test`` with labels from 0."""
    X, y, *test = getattr(datasets, f"load_{name}")()
    if test:
        return X, y, *test[:2]
    X, y = X.toarray().astype(np.float32), (y > 0).astype(int)
    order = np.random.default_rng(1).permutation(len(X))  # there are no test rows
    return X[order[10_000:]], y[order[10_000:]], X[order[:10_000]], y[order[:10_000]]
