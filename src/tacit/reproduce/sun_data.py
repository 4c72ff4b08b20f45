"""The data sets of paper 000, read once in a process."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np

from tacit.data.datasets import load_fashion_mnist, load_mnist

__all__ = ["images"]


def load_cifar100() -> tuple[np.ndarray, ...]:
    with np.load(Path(os.environ["TACIT_DATA"]) / "cifar100" / "features_u8.npz") as stored:
        levels = (6 * (np.arange(256) / 255) ** 2).astype(np.float32)
        names = ("x_train", "y_train", "x_test", "y_test")
        X, y, X_test, y_test = (stored[name] for name in names)
    return levels[X], y, levels[X_test], y_test


_LOADERS = {"mnist": load_mnist, "fashion_mnist": load_fashion_mnist, "cifar100": load_cifar100}


@lru_cache(maxsize=1)
def images(name: str, rows: int | None) -> tuple[np.ndarray, ...]:
    """``X_train, y_train, X_test, y_test``, the first rows of both if not all are wanted."""
    X, y, X_test, y_test = _LOADERS[name]()
    return X[:rows], y[:rows], X_test[:rows], y_test[:rows]
