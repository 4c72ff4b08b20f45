"""Public models to start from, as coefficients and intercepts for the plan's scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.exceptions import InputError


def coefficients(init: Any) -> tuple[np.ndarray, np.ndarray]:
    """coef (K, d) and intercept (K,) of a fitted linear model, or of such a pair."""
    pair = init
    if hasattr(init, "coef_") and hasattr(init, "intercept_"):
        pair = (init.coef_, init.intercept_)
    try:
        coef, intercept = (np.asarray(part, dtype=np.float64) for part in pair)
    except (TypeError, ValueError):
        raise InputError(
            "init= must be a fitted linear model with coef_ and intercept_, or a pair of them"
        ) from None
    coef = np.atleast_2d(coef)
    intercept = np.atleast_1d(intercept)
    shaped = coef.ndim == 2 and intercept.shape in ((1,), (len(coef),))
    if not shaped or not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise InputError("init= must hold finite coefficients (K, d) and K finite intercepts")
    return coef, np.broadcast_to(intercept, (len(coef),))


def for_classes(init: Any, classes: np.ndarray, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of ``outputs`` columns, for these classes in their order."""
    coef, intercept = coefficients(init)
    theirs = getattr(init, "classes_", None)
    if theirs is not None and not np.array_equal(np.asarray(theirs), classes):
        raise InputError("init= was fitted to other classes; pass the same ones as classes=")
    if len(classes) == 2 and len(coef) == 1 and outputs == 2:  # one score, for the second class
        coef, intercept = (np.concatenate([-part / 2, part / 2]) for part in (coef, intercept))
    if len(classes) == 2 and len(coef) == 2 and outputs == 1:
        coef, intercept = np.diff(coef, axis=0), np.diff(intercept)
    if len(coef) != outputs:
        raise InputError(f"init= has {len(coef)} scores; this model has {outputs}")
    return coef, intercept


def for_target(init: Any, middle: float, half: float) -> tuple[np.ndarray, np.ndarray]:
    """One score, on targets that are mapped from middle ± half to [-1, 1]."""
    coef, intercept = coefficients(init)
    if len(coef) != 1:
        raise InputError(f"init= has {len(coef)} scores; this model has one")
    return coef / half, (intercept - middle) / half
