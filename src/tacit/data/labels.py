"""What belongs to the rows: labels and targets, here or in partitions on a cluster."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from tacit.data.arrays import is_array, readable, to_numpy
from tacit.data.checks import as_floats, column_of
from tacit.data.cluster import is_dask
from tacit.data.dask_rows import Parts, dask_parts
from tacit.data.rows import Rows, each
from tacit.exceptions import InputError, of_rows

MOST_LABELS = 10_000  # different labels that a cluster is asked for


def labels_of(y: Any, rows: Rows) -> Any:
    """One value for every row: an array, or `Parts` where the rows are on a cluster."""
    if is_dask(y) and rows.distributed:
        return dask_parts(y, rows)
    labels = column_of(to_numpy(readable(y, "y")) if is_array(y) else y, rows.n)
    return rows.source.alike(labels) if rows.distributed else labels


def distinct(labels: Any) -> np.ndarray:
    """The different labels of all partitions."""
    return np.unique(np.concatenate(labels.map(_few).gather()))


def positions_of(labels: Any, classes: np.ndarray) -> Any:
    """The place of every label among the classes."""
    return _settled(each(labels, partial(_positions, classes=classes)))


def scaled(targets: Any, middle: float, half: float) -> Any:
    """Targets mapped to [-1, 1] and clamped there."""
    return _settled(each(targets, partial(_scaled, middle=middle, half=half)))


def _settled(values: Any) -> Any:
    """The same values, once it is known that no partition has come to grief."""
    if isinstance(values, Parts):
        values.require()
    return values


def _few(labels: np.ndarray) -> np.ndarray:
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise of_rows(InputError("y contains NaN or infinity; leave out such rows"))
    found = np.unique(labels)
    if len(found) > MOST_LABELS:
        raise of_rows(
            InputError(
                f"y has more than {MOST_LABELS:,} different labels; is it a number to predict?"
            )
        )
    return found


def _positions(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    known: Any = False
    with suppress(TypeError, ValueError):
        if len(classes) == 2:  # in a sixth of the time
            found = np.asarray(labels == classes[1])
            index, known = found.astype(np.intp), found | (labels == classes[0])
        else:
            index = np.clip(np.searchsorted(classes, labels), 0, len(classes) - 1)
            known = classes[index] == labels
    if not np.all(known):
        raise of_rows(
            InputError("y holds a label that is not in classes=; add it or drop those rows")
        )
    return index


def _scaled(targets: np.ndarray, middle: float, half: float) -> np.ndarray:
    targets = as_floats(targets, "the target")
    if not np.isfinite(targets).all():
        raise of_rows(InputError("the target contains NaN or infinity; leave out such rows"))
    with np.errstate(over="ignore"):  # what lies beyond the bounds is clamped, however far
        return np.clip((targets - middle) / half, -1.0, 1.0)
