"""What is declared about rows: their bounds and public examples, against their columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit.data.tables import as_table
from tacit.exceptions import InputError, MissingBound
from tacit.preprocessing import Bound, ClipNorm, Stage

FORMS = "a row's largest norm, a pair (low, high) of numbers or sequences, or a dict of pairs by "
FORMS += "column"


def bound_stage(bounds: Any, names: Sequence[str] | None) -> Stage:
    """The first stage: public bounds in any of their three forms."""
    if bounds is None:
        raise MissingBound("privatize", f"bounds= ({FORMS})")
    if isinstance(bounds, Mapping):
        return _named(bounds, names)
    if isinstance(bounds, Real) and not isinstance(bounds, bool):
        if not 0 < float(bounds) < math.inf:
            raise InputError(f"bounds={bounds!r} must be positive and finite, the norm of a row")
        return ClipNorm(float(bounds))
    try:
        if isinstance(bounds, str):
            raise TypeError
        low, high = bounds
    except (TypeError, ValueError):
        raise InputError(f"bounds={bounds!r:.80} must be {FORMS}") from None
    return Bound(_plain_numbers(low), _plain_numbers(high))


def _named(bounds: Mapping[Any, Any], names: Sequence[str] | None) -> Bound:
    if names is None:
        raise InputError("bounds= names columns, and X has none: pass a data frame, or a pair")
    if lost := [str(name) for name in names if name not in bounds]:
        raise MissingBound(
            f"column {', '.join(map(repr, lost[:5]))}", "bounds={column: (low, high)}"
        )
    if extra := [str(name) for name in bounds if name not in set(names)]:
        raise InputError(f"bounds= names {', '.join(map(repr, extra[:5]))}, which X does not have")
    try:
        pairs = np.array([tuple(map(float, bounds[name])) for name in names])
        low, high = pairs.reshape(len(names), 2).T
    except (TypeError, ValueError):
        raise InputError("bounds= must hold a pair of numbers (low, high) by column") from None
    return Bound(low.tolist(), high.tolist())


def _plain_numbers(values: Any) -> Any:
    """Numbers as Python has them, so that settings go into a certificate as they are."""
    try:
        return np.asarray(values, dtype=float).tolist()
    except (TypeError, ValueError):
        raise InputError(
            "bounds=(low, high): both must be numbers, or one for each column"
        ) from None


def column_names(X: Any) -> list[str] | None:
    """Names of a data frame's columns, if all of them are text."""
    names = getattr(X, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return list(names)


def public_rows(public: Any, names: Sequence[str] | None, d: int) -> Any:
    """The public rows, checked against the shape of the private ones."""
    if public is None:
        return None
    other = column_names(public)
    if names is not None and other is not None and list(names) != other:
        raise InputError("public= must have the columns of X, in their order")
    rows = public
    if not sp.issparse(public):
        try:
            rows = np.asarray(public, dtype=float)
        except (TypeError, ValueError):
            raise InputError("public= must hold numbers, with the columns of X") from None
    if rows.ndim != 2 or rows.shape[1] != d or not rows.shape[0]:
        raise InputError(f"public= has shape {rows.shape}; it must be rows of {d} columns")
    if not np.isfinite(rows.data if sp.issparse(rows) else rows).all():
        raise InputError("public= contains NaN or infinity; leave those rows out")
    return rows


def shape(X: Any, *, table: bool = False) -> tuple[int, int]:
    """Numbers of rows and columns, of a table with named columns where one is taken."""
    if table and (isinstance(X, Mapping) or not hasattr(X, "shape")) and not isinstance(X, list):
        named = as_table(X)
        if not (named.n and named.d):
            raise InputError("there are no rows, or they have no columns")
        return named.n, named.d
    if hasattr(X, "column_names") and not table:
        raise InputError(
            "privatize takes arrays and data frames of numbers; for a table with a schema use "
            "DPLinearClassifier(stages=[Encode(schema), ...])"
        )
    try:
        found = X.shape if hasattr(X, "shape") else np.shape(X)
    except ValueError:
        found = ()
    if len(found) != 2:
        raise InputError(f"rows must be a table of two dimensions, not {len(found)}")
    if not min(found):
        raise InputError(f"there are no rows, or they have no columns: X has shape {found}")
    return int(found[0]), int(found[1])
