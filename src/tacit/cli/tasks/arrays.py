"""Features in files, as commands are given them: rows that are ready, and no table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from tacit.cli.tasks.outputs import PathLike
from tacit.data.npz import npz_names
from tacit.data.rows import Rows, as_rows
from tacit.exceptions import InputError, of_rows
from tacit.features import FeatureSet, load_features
from tacit.features.stored import rows_in
from tacit.preprocessing import Normalize


def is_features(path: Any) -> TypeGuard[str | Path]:
    """Whether a file is named as those of features are."""
    return isinstance(path, str | Path) and Path(path).suffix.lower() == ".npz"


def refuse(path: PathLike, **given: Any) -> None:
    """Refuse what is said of tables only."""
    for name, value in given.items():
        if value not in (None, False):
            if name == "person":
                raise InputError(
                    f"{path} holds features, which have no column that says whose a row is: "
                    "protect people in Python, fit(X, y, groups=...) with max_rows_per_group="
                )
            raise InputError(
                f"{name} is for tables, and {path} holds features, which are ready as they are: "
                "leave it out"
            )


def unit_rows(path: PathLike, labels: str | None = None) -> tuple[Rows, np.ndarray | None]:
    """Rows as recipes have them, scaled to norm one, and their labels."""
    found = load_features(path, part="train", labels=labels)
    rows = replace(as_rows(found.features), origin=found.assumption())
    return Normalize().through(rows), found.labels


def public_rows(public: PathLike, schema: Any = None, beside: FeatureSet | None = None) -> Any:
    """Features of public rows, by the same network as the private ones if both name theirs."""
    if schema is not None:
        raise InputError(f"{public} holds features, and the private rows are a table of a schema")
    found = load_features(public, part="train")
    if beside is not None:
        _require_like(public, found, beside)
    return found.features


def test_rows(
    test: Any, train: PathLike, beside: FeatureSet, *, key: str | None, labels: str | None
) -> FeatureSet:
    """Features to test on, of the same names or of those of test rows; not those of the fit."""
    if not is_features(test):
        raise InputError(f"{train} holds features, so rows to test on must be features, too")
    names, same = npz_names(Path(test)), Path(test).samefile(train)
    own = key if key in names and not same else rows_in(Path(test), "test")
    if same and own == (key or rows_in(Path(train), "train")):
        raise InputError(
            f"{test} holds the private rows alone: test on another file, or on x_test and y_test "
            "of the same"
        )
    aim = labels if labels in names and not same else None
    found = load_features(test, key=own, labels=aim)
    _require_like(test, found, beside)
    return found


def targets_of(labels: np.ndarray | None, path: PathLike, *, number: bool) -> np.ndarray:
    """Labels, or numbers; messages say nothing of a value, a row or a count."""
    if labels is None:
        raise InputError(
            f"{path} holds no labels: name their array as target, or give a table of them as "
            "labels and its column as target"
        )
    if not number and labels.dtype.kind == "f":
        whole = np.isfinite(labels) & (labels == np.round(labels))
        if not whole.all():
            raise of_rows(
                InputError(f"the labels of {path} are fractions; a number needs target_bounds")
            )
        return labels.astype(np.int64)
    if number and labels.dtype.kind == "U":
        raise InputError(f"the labels of {path} are words; target_bounds are for numbers")
    if number and not np.isfinite(labels).all():
        raise of_rows(InputError(f"a target of {path} is missing or not finite"))
    return labels


def _require_like(path: PathLike, found: FeatureSet, beside: FeatureSet) -> None:
    if found.network and beside.network and found.assumption() != beside.assumption():
        raise InputError(
            f"{path} holds features of another network, or of other settings, than the private "
            "rows: make them by the same network"
        )
    if found.features.shape[1] != beside.features.shape[1]:
        raise InputError(
            f"{path} holds rows of {found.features.shape[1]} features, and the private rows have "
            f"{beside.features.shape[1]}"
        )
