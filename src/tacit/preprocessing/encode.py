"""From a table to rows of numbers, with nothing but the schema and the row itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.rows import Rows
from tacit.data.schema import CategoryColumn, Column, NumberColumn, Schema, did_you_mean
from tacit.data.shaped import Layout, ShapedChunk
from tacit.data.tables import UNSEEN, PathLike, Table, as_table
from tacit.exceptions import InputError, SchemaError, of_rows
from tacit.preprocessing.base import Kind, Stage
from tacit.preprocessing.shapes import (
    Block,
    Cone,
    blocks_of,
    category_codes,
    is_hat,
    layout_of,
    monotone_of,
    numbers_of,
    part_of,
    row_bound,
    shaped_rows,
)

LISTED = 20  # names in a message: looking for one that is near takes as long as there are columns


@dataclass(init=False)
class Encode(Stage):
    """Encode a table by its schema: numbers to [-1, 1] or to curves, categories to 0/1 columns.

    A free stage: every constant is in the schema, so it costs no privacy. A number of shape
    ``hat`` becomes a line and a curve (`tacit.preprocessing.shapes`): weights of its two ends, and
    of the two knots that it lies between. Where there is one, straight numbers come last.

    Parameters
    ----------
    schema : Schema, dict, or path of a YAML file

    Examples
    --------
    >>> stage = Encode({"columns": {
    ...     "age": {"kind": "number", "low": 0, "high": 100},
    ...     "job": {"kind": "category", "categories": ["cook", "nurse"]},
    ... }})
    >>> stage.feature_names
    ['age', 'job=cook', 'job=nurse']
    >>> stage.transform({"age": [75, 200], "job": ["nurse", None]})
    array([[0.5, 0. , 1. ],
           [1. , 0. , 0. ]])
    """

    kind: ClassVar[Kind] = "free"
    keeps_gaps: ClassVar[bool] = True
    must_be_first: ClassVar[bool] = True
    takes_tables = True
    schema: Schema

    def __init__(self, schema: Schema | Mapping[str, Any] | PathLike) -> None:
        self.schema = Schema.of(schema)
        columns = self.schema.columns
        if self.makes_gaps and any(map(is_hat, columns.values())):
            raise SchemaError(
                "missing: gap leaves gaps to a later stage, which cannot be where another column "
                "is a curve (shape: hat); use missing: indicator"
            )

    @property
    def makes_gaps(self) -> bool:
        return any(column.missing == "gap" for column in self.schema.columns.values())

    def width(self, d: int | None = None) -> int:
        """Columns of an encoded row, whatever the table has."""
        return sum(column.width for column in self.schema.columns.values())

    @cached_property
    def blocks(self) -> list[Block]:
        """Where every column of the table is in an encoded row."""
        return blocks_of(self.schema.columns)

    @cached_property
    def layout(self) -> Layout | None:
        """How encoded rows lie, if some of their columns are curves."""
        return layout_of(self.schema.columns)

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns, such as ``age`` and ``job=cook``."""
        return [part for b in self.blocks for part in b.column.feature_names(b.name)]

    def bound(self, radius: float | None = None, d: int | None = None) -> float:
        """Public bound on the norm of an encoded row, whatever the table holds (`row_bound`)."""
        return row_bound(self.schema.columns)

    @cached_property
    def monotone(self) -> tuple[Cone, ...]:
        return monotone_of(self.schema.columns)

    def fit(self, rows: Any, context: Any = None) -> Self:
        """Check that the table has the columns of the schema, and no others.

        Nothing is learned from the rows.
        """
        table = _table(rows)
        schema = self.schema
        self._require_columns(table)
        known = {*schema.columns, *schema.ignore, schema.target}
        extra = [name for name in table.column_names if name not in known]
        if extra:
            raise SchemaError(
                "the table has columns that the schema does not name: "
                f"{_list(map(repr, extra[:LISTED]), len(extra))}; describe "
                "them in columns or list them in ignore"
            )
        return self

    def example(self, d: int) -> Table:
        cells = {name: [_some_cell(column)] for name, column in self.schema.columns.items()}
        return Table.from_columns(cells)

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        if not isinstance(parameters["schema"], Mapping):
            raise ValueError("the schema must be in the file itself")  # no path of another one
        return super().restore(parameters, arrays)

    def beyond(self, chunk: Table) -> np.ndarray:
        found = np.zeros(chunk.n, dtype=bool)
        for name, column in self.schema.columns.items():
            if isinstance(column, NumberColumn):
                values = numbers_of(chunk, name, column)
                low, high = column.ends
                found |= (values < low) | (values > high)
            elif isinstance(column, CategoryColumn):
                found |= chunk.match(name, column.known) == UNSEEN
        return found

    def apply(self, chunk: Table) -> np.ndarray | ShapedChunk:
        """Encode a slice of the table: float64 or, with curves, weights of the knots around it."""
        self._require_columns(chunk)
        if self.layout is not None:
            straight = np.zeros((chunk.n, self.layout.straight))
            self._fill(chunk, straight, self.width() - self.layout.straight)
            return shaped_rows(chunk, self.schema.columns, self.layout, straight)
        out = np.zeros((chunk.n, self.width()))
        self._fill(chunk, out)
        return out

    def _fill(self, chunk: Table, out: np.ndarray, first: int = 0) -> None:
        """Encode what is behind the first columns, into an array of those alone."""
        for block in self.blocks:
            if block.start >= first:
                cells = out[:, block.start - first : block.stop - first]
                if isinstance(block.column, NumberColumn):
                    _fill_numbers(chunk, block.name, block.column, cells)
                elif isinstance(block.column, CategoryColumn):
                    codes = category_codes(chunk, block.name, block.column)
                    (rows,) = np.nonzero(codes >= 0)
                    cells[rows, codes[rows]] = 1.0

    def transform(self, rows: Any) -> Any:
        """Encode a whole table to an array; what is given as `Rows` stays lazy."""
        table = _table(rows)
        self._require_columns(table)
        return super().transform(rows if isinstance(rows, Rows) else table)

    def note(self) -> str:
        return "the table is encoded by its schema, row by row"

    def assumption(self) -> str:
        return " ".join(self.schema.assumptions())

    def _require_columns(self, table: Table) -> None:
        have = set(table.column_names)
        gone = [name for name in self.schema.columns if name not in have]
        if gone:
            spare = have - self.schema.columns.keys()
            hints = [f"{name!r}{did_you_mean(name, spare)}" for name in gone[:LISTED]]
            raise SchemaError(f"the table lacks columns of the schema: {_list(hints, len(gone))}")


def _table(rows: Any) -> Table:
    if isinstance(rows, Rows):
        source = rows.source
        if not isinstance(source, Table) and hasattr(source, "kinds") and not source.numbers:
            source = source.empty()  # a table in a file: what is asked of it does not need rows
        if rows.maps or not isinstance(source, Table):
            raise InputError("Encode must be the first stage and needs a table with named columns")
        return source
    return as_table(rows)


def _some_cell(column: Column) -> str | float:
    if isinstance(column, NumberColumn):
        return column.ends[0]
    return (*column.known, "")[0] if isinstance(column, CategoryColumn) else 0.0


def _list(first: Iterable[str], count: int) -> str:
    return ", ".join(first) + (f", ... ({count} in all)" if count > LISTED else "")


def _fill_numbers(table: Table, name: str, column: NumberColumn, out: np.ndarray) -> None:
    values = np.ascontiguousarray(numbers_of(table, name, column))
    missing = np.isnan(values)
    part = part_of(values, column)
    low, high = (0.0, 1.0) if column.scale == "log" else (-1.0, 1.0)
    encoded = part if column.scale == "log" else 2.0 * part - 1.0
    if missing.any():
        if column.missing == "error":
            raise of_rows(
                SchemaError(f"column {name!r} has a missing value; its schema says missing: error")
            )
        if column.missing == "indicator":
            out[:, 1] = missing
        fill = {"low": low, "high": high, "middle": (low + high) / 2, "indicator": 0.0}
        fill["gap"] = np.nan
        encoded[missing] = fill[column.missing]
    out[:, 0] = encoded
