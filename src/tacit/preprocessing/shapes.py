"""Columns as shapes: a number becomes weights of the knots around it, and a gap has its own.

A *hat* column of m knots has two shapes (`tacit.data.shaped`): a *line* between its ends, of two
weights, and a *curve* of m weights between neighbours of which a value is divided. The line says
nothing that the curve could not; but noise is the same in every weight, and few weights that many
rows share are learned before many that few rows share, so that curves bend only where rows say so
(docs/decisions/0053). One more weight, at the end of the curve's, is that of a missing value.

Of every shape the weights of a row are not negative and sum to one, or are all zero: their squares
sum to at most one. So the squared norm of a row is at most the number of shapes, whatever the
table holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from tacit.data.columns import CategoryColumn, Column, DateColumn, NumberColumn
from tacit.data.schema import Schema
from tacit.data.shaped import GAP, ONE, Layout, ShapedChunk
from tacit.data.tables import ABSENT, UNSEEN, Table
from tacit.exceptions import SchemaError, of_rows

Cone: TypeAlias = tuple[int, int, int]  # the first weight, the one behind the last, and a sign

LINE = 2  # weights of a straight line: its ends
LEAST_KNOTS, MOST_KNOTS = 10, 24
#: What n·μ must be for a curve to be of use at all: below, straight lines did as well.
ENOUGH = 100.0


@dataclass(frozen=True)
class Block:
    """Where a column is in the encoded rows.

    Attributes
    ----------
    name : str
    column : Column
    start, stop : int
        Its encoded columns.
    """

    name: str
    column: Column
    start: int
    stop: int


def is_hat(column: Column) -> bool:
    """Whether a column is a number, or a date, with a curve."""
    return isinstance(column, NumberColumn) and column.shape == "hat"


def _is_straight(column: Column) -> bool:
    return isinstance(column, NumberColumn) and column.shape != "hat"


def blocks_of(columns: Mapping[str, Column]) -> list[Block]:
    """Every column's place: as they come or, if there are curves, straight numbers last."""
    names = list(columns)
    if any(map(is_hat, columns.values())):
        names.sort(key=lambda name: _is_straight(columns[name]))
    found, start = [], 0
    for name in names:
        stop = start + columns[name].width
        found.append(Block(name, columns[name], start, stop))
        start = stop
    return found


def layout_of(columns: Mapping[str, Column]) -> Layout | None:
    """How encoded rows lie; None where there are no curves."""
    if not any(map(is_hat, columns.values())):
        return None
    widths, straight = [], 0
    for block in blocks_of(columns):
        if _is_straight(block.column):
            straight += block.column.width
        elif is_hat(block.column):
            widths += [LINE, block.column.width - LINE]
        else:
            widths.append(block.column.width)
    return Layout(tuple(widths), straight)


def row_bound(columns: Mapping[str, Column]) -> float:
    """The largest norm of an encoded row: the root of how many shapes and straight numbers it has.

    Each contributes at most 1 to its square. Of a straight number or a category only one encoded
    value is not zero: the number or its mark of being missing, one category or level. The weights
    of a line, or of a curve, are not negative and sum to one at most.
    """
    count = len(columns) + sum(map(is_hat, columns.values()))
    root = math.sqrt(count)
    return root if math.isqrt(count) ** 2 == count else math.nextafter(root, math.inf)


def monotone_of(columns: Mapping[str, Column]) -> tuple[Cone, ...]:
    """Which weights must not fall, or not rise, so that every column goes the way it says.

    A sum of a line and a curve that do not fall does not fall, and any curve that does not fall is
    such a sum.
    """
    found = []
    for block in blocks_of(columns):
        column = block.column
        if not isinstance(column, NumberColumn) or column.monotone is None:
            continue
        sign = 1 if column.monotone == "increasing" else -1
        cuts = [0, LINE, LINE + column.knot_count] if is_hat(column) else [0, 1]
        found += [(block.start + a, block.start + b, sign) for a, b in pairwise(cuts)]
    return tuple(found)


def numbers_of(table: Table, name: str, column: NumberColumn) -> np.ndarray:
    """The values of a column of numbers or dates, whatever it holds; NaN for what is none."""
    return table.values(name, dates=isinstance(column, DateColumn))


def knots_of(column: NumberColumn) -> np.ndarray:
    """Where the knots are, between 0 and 1 on the column's own scale."""
    if isinstance(column.knots, tuple):
        return part_of(np.array(column.knots), column)
    return np.linspace(0.0, 1.0, column.knot_count)


def knot_values(column: NumberColumn) -> np.ndarray:
    """Where the knots are, in the column's own units."""
    if isinstance(column.knots, tuple):
        return np.array(column.knots)
    low, high = column.ends
    part = knots_of(column)
    if column.scale == "log":
        return np.minimum(low + np.expm1(part * np.log1p(high - low)), high)
    return low * (1 - part) + high * part


def part_of(values: np.ndarray, column: NumberColumn) -> np.ndarray:
    """How far along values lie, from 0 at the low end to 1 at the high one; NaN stays."""
    knots = column.knots
    low, high = (knots[0], knots[-1]) if isinstance(knots, tuple) else column.ends
    share = np.clip(values, low, high) - low
    if column.scale == "log":
        return np.clip(np.log1p(share) / np.log1p(high - low), 0.0, 1.0)
    return share / (high - low)


def curve_cells(part: np.ndarray, column: NumberColumn) -> tuple[np.ndarray, np.ndarray]:
    """The knot below each part, and the fraction of the way to the next one; no gaps."""
    last = column.knot_count - 2
    if not isinstance(column.knots, tuple):
        way = part * (last + 1)
        index = np.minimum(way.astype(np.int64), last)
        return index, way - index
    knots = knots_of(column)
    index = np.searchsorted(knots[1:-1], part, side="right")
    fraction = (part - knots[index]) / (knots[index + 1] - knots[index])
    return index, np.clip(fraction, 0.0, 1.0)


def category_codes(table: Table, name: str, column: CategoryColumn) -> np.ndarray:
    """The encoded column that every value belongs to; negative where it is none."""
    codes = table.match(name, column.known)
    level = len(column.known)
    for code, policy, what in (
        (ABSENT, column.missing, "missing"),
        (UNSEEN, column.unseen, "unseen"),
    ):
        rows = codes == code
        if policy == "level":
            codes[rows] = level
            level += 1
        elif policy == "error" and rows.any():
            raise of_rows(
                SchemaError(
                    f"column {name!r} has a value that is {what}; its schema says {what}: error"
                )
            )
    return codes


def shaped_rows(
    table: Table, columns: Mapping[str, Column], layout: Layout, straight: np.ndarray
) -> ShapedChunk:
    """Rows of a table in that layout, beside straight columns that were encoded already.

    Parameters
    ----------
    table : Table
        n rows.
    columns : mapping of str to Column
        Of the schema.
    layout : Layout
        What `layout_of` says of them.
    straight : ndarray of shape (n, straight)
        Straight numbers, in the order of `blocks_of`.
    """
    index = np.empty((table.n, len(layout.widths)), dtype=np.uint16)
    fraction = np.zeros_like(index)
    at = 0
    for name, column in columns.items():
        if isinstance(column, CategoryColumn):
            codes = category_codes(table, name, column)
            index[:, at] = np.where(codes < 0, GAP, codes)
            at += 1
        elif isinstance(column, NumberColumn) and is_hat(column):
            values = numbers_of(table, name, column)
            missing = np.isnan(values)
            gaps = bool(missing.any())
            if gaps and column.missing == "error":
                raise of_rows(
                    SchemaError(
                        f"column {name!r} has a missing value; its schema says missing: error"
                    )
                )
            part = part_of(np.where(missing, 0.0, values) if gaps else values, column)
            below, rest = curve_cells(part, column)
            index[:, at], index[:, at + 1] = 0, below
            fraction[:, at], fraction[:, at + 1] = np.rint(part * ONE), np.rint(rest * ONE)
            if gaps:
                index[missing, at], index[missing, at + 1] = GAP, column.knot_count
                fraction[missing, at : at + 2] = 0
            at += 2
    return ShapedChunk(layout, index, fraction, straight)


def choose_shapes(schema: Schema, size: int, mu: float) -> Schema:
    """The schema with every shape and number of knots decided, by public facts alone.

    Curves need rows: with too few for the budget a number is straight. The number of knots is the
    cube root of 2nμ, within limits: nμ is what all rows together weigh beside the noise.

    Parameters
    ----------
    schema : Schema
        In which ``shape: auto`` and knots that are not given are left to this rule.
    size : int
        Number of rows n, or the public stand-in for it.
    mu : float
        Gaussian budget of the whole plan, per unit of sensitivity.

    Returns
    -------
    Schema
        With ``hat`` or ``straight`` for every number.
    """
    weight = size * mu
    shape = "hat" if weight >= ENOUGH else "straight"
    knots = min(max(round((2 * weight) ** (1 / 3)), LEAST_KNOTS), MOST_KNOTS)
    columns = dict(schema.columns)
    for name, column in columns.items():
        if isinstance(column, NumberColumn):
            asked = column.shape if column.knots is None or column.shape != "auto" else "hat"
            wanted = shape if asked == "auto" else asked
            count = knots if column.knots is None and wanted == "hat" else column.knots
            if (wanted, count) != (column.shape, column.knots):
                columns[name] = replace(column, shape=wanted, knots=count)
    return schema if columns == dict(schema.columns) else replace(schema, columns=columns)
