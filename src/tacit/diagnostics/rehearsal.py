"""Rows made ready for a run that only the diagnoses see: no guarantee, nothing to release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.diagnostics.base import require_rows
from tacit.exceptions import InputError
from tacit.losses import Loss
from tacit.plan.defaults import resolve_loss
from tacit.preprocessing.base import densify

MOST_VALUES = 1 << 21
MOST_PRODUCTS = 1 << 26  # of them with all outputs, in a step


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Some rows that stand for all of them.

    Attributes
    ----------
    rows : ndarray of shape (m, d)
    given : ndarray of shape (m,)
        Numbers of classes, or numbers.
    loss : Loss
    outputs : int
    size : int
        How many rows they stand for.
    bound : float
        Norm that none exceeds.
    """

    rows: np.ndarray
    given: np.ndarray
    loss: Loss
    outputs: int
    size: int
    bound: float

    @property
    def targets(self) -> np.ndarray:
        return self.loss.targets(self.given, outputs=self.outputs)


def rehearse(
    data: Any,
    labels: Any,
    *,
    loss: str | Loss | None,
    centre: bool,
    most_values: int,
) -> Rehearsal:
    """Evenly spaced rows, not more than the numbers to use allow, less their mean if wanted."""
    rows, names = require_rows(data), np.asarray(labels)
    if names.shape != (rows.n,):
        raise InputError(f"labels must be one for each of the {rows.n} rows")
    many = 1 if names.dtype.kind == "f" else len(np.unique(names))
    most = max(min(int(most_values), MOST_PRODUCTS // many), 1)
    step = max(1, -(-rows.n * rows.d // most))
    some = np.concatenate([densify(c)[(-span.start) % step :: step] for span, c in rows.chunks()])
    names = names[::step]
    loss = resolve_loss("auto" if loss is None else loss, max(2, len(np.unique(names))))
    outputs = 1
    if loss.task == "classification":
        classes, given = np.unique(names, return_inverse=True)
        if len(classes) < 2:
            raise InputError("a run needs two classes or more")
        outputs = loss.outputs(len(classes))
    else:
        given = names.astype(np.float64)
    if centre:
        some = some - some.mean(axis=0)
    bound = float(rows.bound or np.linalg.norm(some, axis=1).max() or 1.0)
    return Rehearsal(some, given, loss, outputs, rows.n, bound)
