"""What a model says of each column of a table: one curve each, in the column's own units."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.columns import CategoryColumn, Column, DateColumn, NumberColumn
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.exceptions import InputError
from tacit.files import svg_file, write_bytes
from tacit.preprocessing import ClipNorm, Encode, Stage
from tacit.preprocessing.shapes import is_hat, knot_values

FINE = 8  # points between two knots of a logarithmic scale, along which a piece is no line


@dataclass(frozen=True)
class Curve:
    """The effect of one column on a score, up to a constant.

    Attributes
    ----------
    name : str
        Of the column.
    kind : {"number", "date", "category"}
        What it holds.
    grid : ndarray of shape (g,)
        Values in units of the column, dates as ``datetime64[s]``, or names of categories.
        Between two of them the effect of a number is a straight line.
    effect : ndarray of shape (g,), or (g, K) for K > 2 classes
        What each adds to a score: to log odds of the second class of two, or to a prediction.
    missing : ndarray of shape (), or (K,)
        What a missing value adds.
    offset : ndarray of shape (), or (K,)
        What was subtracted from all of them, so that the mean over the grid is zero.
    """

    name: str
    kind: str
    grid: np.ndarray
    effect: np.ndarray
    missing: np.ndarray
    offset: np.ndarray
    column: Column
    weights: np.ndarray

    def __call__(self, values: Any) -> np.ndarray:
        """The effect of any values, as predictions have it.

        Parameters
        ----------
        values : sequence of m values
            In units of the column; None or NaN where one is missing.

        Returns
        -------
        ndarray of shape (m,), or (m, K)
            Whatever is beyond the bounds has the effect of the nearest.
        """
        table = Table.from_columns({self.name: values})
        return _effect(self.name, self.column, self.weights, table) - self.offset


class ShapeCurves(Mapping[str, Curve]):
    """Curves of all columns, by name: a score is their sum, and a constant.

    Attributes
    ----------
    constant : ndarray of shape (), or (K,)
        Score of a row all of whose effects are zero.
    """

    def __init__(self, curves: Mapping[str, Curve], constant: np.ndarray) -> None:
        self._curves, self.constant = dict(curves), constant

    def __getitem__(self, name: str) -> Curve:
        return self._curves[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._curves)

    def __len__(self) -> int:
        return len(self._curves)

    def svg(self) -> str:
        """A picture of all curves.

        Returns
        -------
        str
            SVG that needs nothing but itself.
        """
        from tacit.linear_model.picture import draw_curves

        return draw_curves(self)

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Write a picture of all curves.

        Parameters
        ----------
        path : path
            A file whose name ends in ``.svg``.

        Returns
        -------
        Path
            Of that file.
        """
        target = svg_file(path, "a model's curves")
        write_bytes(target, self.svg().encode())
        return target


def shape_curves(stages: tuple[Stage, ...], coef: Any, intercept: Any) -> ShapeCurves:
    """The curves of a model that is a sum of them.

    Parameters
    ----------
    stages : tuple of Stage
        What rows go through, affine stages folded into the coefficients: encoding, and no more.
    coef : ndarray of shape (d,) or (K, d)
        Coefficients.
    intercept : float or ndarray of shape (K,)
        Intercepts.
    """
    encode = _encoder(stages)
    weights = np.atleast_2d(coef).T  # (d, K)
    constant = np.atleast_1d(np.asarray(intercept, dtype=np.float64)).copy()
    curves = {}
    for block in encode.blocks:
        curve = _curve(block.name, block.column, weights[block.start : block.stop])
        constant = constant + curve.offset
        curves[block.name] = curve
    ordered = {name: curves[name] for name in encode.schema.columns}
    return ShapeCurves(ordered, constant if weights.shape[1] > 1 else constant[0])


def _encoder(stages: tuple[Stage, ...]) -> Encode:
    """The encoding behind which a model is a sum of curves."""
    first = getattr(stages[0], "encode", stages[0]) if stages else None
    if not isinstance(first, Encode):
        raise InputError(
            "curves are those of the columns of a table: fit to a table, or begin the stages with "
            "Encode(schema)"
        )
    for stage in stages[1:]:
        if not (isinstance(stage, ClipNorm) and stage.radius >= first.bound()):
            raise InputError(
                f"behind {stage.name} the effect of a column depends on the rest of its row, so "
                "that it has no curve: leave that stage out"
            )
    return first


def _curve(name: str, column: Column, weights: np.ndarray) -> Curve:
    grid, cells = _grid(column)
    table = Table.from_columns({name: cells})
    found = _effect(name, column, weights, table)
    effect, missing = found[:-1], found[-1]
    offset = effect.mean(axis=0)
    facts = {"column": column, "weights": weights, "offset": offset}
    return Curve(name, column.kind, grid, effect - offset, missing - offset, **facts)


def _grid(column: Column) -> tuple[np.ndarray, Any]:
    """Where a curve is shown, and cells of a table that hold these values and a missing one."""
    if isinstance(column, CategoryColumn):
        words = list(column.known)
        return np.array(words, dtype=object), [*words, None]
    assert isinstance(column, NumberColumn)
    values = knot_values(column) if is_hat(column) else np.array(column.ends)
    if column.scale == "log":
        low, high = column.ends
        places = np.log1p(np.clip(values, low, high) - low)
        fine = np.interp(np.arange((len(values) - 1) * FINE + 1) / FINE, range(len(values)), places)
        values = np.clip(low + np.expm1(fine), low, high)
    if isinstance(column, DateColumn):
        moments = np.round(values).astype(np.int64).astype("datetime64[s]")
        return moments, np.append(moments, np.datetime64("NaT"))
    return values, np.append(values, np.nan)


def _effect(name: str, column: Column, weights: np.ndarray, table: Table) -> np.ndarray:
    """What values add to scores: (n,), or (n, K)."""
    if isinstance(column, CategoryColumn):
        lenient = {"error": "zeros"}
        missing, unseen = (lenient.get(p, p) for p in (column.missing, column.unseen))
        column = replace(column, missing=missing, unseen=unseen)
    elif isinstance(column, NumberColumn) and column.missing == "error":
        column = replace(column, missing="middle")
    seen = Encode(Schema({name: column})).apply(table)
    rows = seen.toarray() if hasattr(seen, "toarray") else seen
    found = np.asarray(rows)[:, : len(weights)] @ weights
    return found if weights.shape[1] > 1 else found[:, 0]
