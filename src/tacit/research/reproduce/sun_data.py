"""The data sets of Sun et al. 2024, read once in a process."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tacit.datasets import load_cifar100, load_fashion_mnist, load_mnist

__all__ = ["images"]


_LOADERS = {"mnist": load_mnist, "fashion_mnist": load_fashion_mnist, "cifar100": load_cifar100}


@lru_cache(maxsize=1)
def images(name: str, rows: int | None) -> tuple[np.ndarray, ...]:
    """``X_train, y_train, X_test, y_test``, the first rows of both if not all are wanted."""
    X, y, X_test, y_test = _LOADERS[name]()
    return X[:rows], y[:rows], X_test[:rows], y_test[:rows]
