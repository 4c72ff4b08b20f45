"""Counterparts of steps that expand numbers by public constants: functions, bins, splines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    PolynomialFeatures,
    SplineTransformer,
)

from tacit.exceptions import InputError
from tacit.pipeline.frames import Frame
from tacit.pipeline.parts import Given, refusal
from tacit.preprocessing.column_maps import (
    FUNCTIONS,
    Bins,
    ColumnMap,
    Products,
    RowFunction,
    Span,
    Splines,
    Ufunc,
)

EXPANSIONS = (KBinsDiscretizer, PolynomialFeatures, SplineTransformer)


def expansion(title: str, step: Any, span: Span, given: Given, frame: Frame) -> list[ColumnMap]:
    """The maps that stand for a step, behind columns of these intervals."""
    if isinstance(step, FunctionTransformer):
        return _function(title, step, given, frame)
    if isinstance(step, KBinsDiscretizer):
        if step.strategy != "uniform":
            raise refusal(
                title,
                f"strategy={step.strategy!r}",
                "its edges are read from the private rows; use strategy='uniform', whose edges "
                "lie evenly between the bounds",
            )
        if not isinstance(step.n_bins, int):
            raise refusal(title, "several n_bins", "pass one integer")
        return [Bins(step.n_bins, weights=step.encode != "ordinal")]
    if isinstance(step, PolynomialFeatures):
        if not isinstance(step.degree, int):
            raise refusal(title, f"degree={step.degree!r}", "pass one integer")
        return [Products(step.degree, different=bool(step.interaction_only))]
    return [_splines(title, step, span)]


def _splines(title: str, step: SplineTransformer, span: Span) -> Splines:
    if step.extrapolation == "periodic":
        raise refusal(title, "extrapolation='periodic'", "use 'constant'")
    if isinstance(step.knots, str):
        if step.knots != "uniform":
            raise refusal(
                title,
                f"knots={step.knots!r}",
                "its knots are read from the private rows; use knots='uniform', which lie evenly "
                "between the bounds, or pass an array of public knots",
            )
        ends = zip(span.low, span.high, strict=True)
        rows = [np.linspace(low, high, step.n_knots).tolist() for low, high in ends]
    else:
        rows = np.asarray(step.knots, dtype=float).T.tolist()
    knots = tuple(tuple(own) for own in rows)
    return Splines(knots, int(step.degree), bias=bool(step.include_bias))


def _function(title: str, step: FunctionTransformer, given: Given, frame: Frame) -> list[ColumnMap]:
    function = step.func
    if function is None:
        return []
    if isinstance(function, np.ufunc) and function.__name__ in FUNCTIONS and not step.kw_args:
        return [Ufunc(function.__name__)]
    name = getattr(function, "__name__", "function")
    declared: Mapping[Any, Any] = given.row_wise or {}
    if function not in declared:
        raise refusal(
            title,
            f"func={name}",
            "nobody can tell whether it looks at one row only; if it does, declare it with public "
            f"bounds of its results, privatize(..., row_wise={{{name}: (low, high)}}), or use one "
            f"of NumPy's {', '.join(FUNCTIONS)}",
        )
    try:
        low, high = map(float, declared[function])
    except (TypeError, ValueError):
        raise InputError(f"row_wise={{{name}: (low, high)}} needs a pair of numbers") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise InputError(f"row_wise={{{name}: (low, high)}}: low must be below high")
    return [RowFunction(function, low, high, frame.framed, dict(step.kw_args or {}))]
