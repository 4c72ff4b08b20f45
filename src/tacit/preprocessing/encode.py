"""From a table to rows of numbers, with nothing but the schema and the row itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.rows import Rows
from tacit.data.schema import CategoryColumn, Column, NumberColumn, Schema, did_you_mean
from tacit.data.tables import ABSENT, UNSEEN, PathLike, Table, as_table
from tacit.exceptions import InputError, SchemaError, of_rows
from tacit.preprocessing.base import Kind, Stage

__all__ = ["Encode"]

LISTED = 20  # names in a message: looking for one that is near takes as long as there are columns


@dataclass(init=False)
class Encode(Stage):
    """Encode a table by its schema: numbers to [-1, 1], categories to 0/1 columns.

    A free stage: every constant is in the schema, so it costs no privacy.

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

    @property
    def makes_gaps(self) -> bool:
        return any(column.missing == "gap" for column in self.schema.columns.values())

    def width(self, d: int | None = None) -> int:
        """Columns of an encoded row, whatever the table has."""
        return sum(column.width for column in self.schema.columns.values())

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns, such as ``age`` and ``job=cook``."""
        columns = self.schema.columns
        return [part for name in columns for part in columns[name].feature_names(name)]

    def bound(self, radius: float | None = None, d: int | None = None) -> float:
        """Public bound on the norm of an encoded row, whatever the table holds.

        Each column contributes at most 1, since of its encoded values only one is not
        zero: a number or its mark of being missing, one category or level.
        """
        count = len(self.schema.columns)
        root = math.sqrt(count)
        return root if math.isqrt(count) ** 2 == count else math.nextafter(root, math.inf)

    def fit(self, rows: Any, context: Any = None) -> Self:
        """Check that the table has the columns of the schema, stored as it says.

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
        for name, column in schema.columns.items():
            if isinstance(column, NumberColumn):
                _require_numbers(table, name)
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
                values = chunk.column(name)
                low, high = column.ends
                found |= (values < low) | (values > high)
            elif isinstance(column, CategoryColumn):
                found |= chunk.match(name, column.known) == UNSEEN
        return found

    def apply(self, chunk: Table) -> np.ndarray:
        """Encode a slice of the table: float64, one row for each row."""
        self._require_columns(chunk)
        out = np.zeros((chunk.n, self.width()))
        start = 0
        for name, column in self.schema.columns.items():
            stop = start + column.width
            _FILL[type(column)](chunk, name, column, out[:, start:stop])
            start = stop
        return out

    def transform(self, rows: Any) -> Any:
        """Encode a whole table to an array; what is given as `Rows` stays lazy."""
        table = _table(rows)
        self._require_columns(table)
        return super().transform(rows if isinstance(rows, Rows) else table)

    def note(self) -> str:
        return "the table is encoded by its schema, row by row"

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
    return column.known[0] if isinstance(column, CategoryColumn) else 0.0


def _list(first: Iterable[str], count: int) -> str:
    return ", ".join(first) + (f", ... ({count} in all)" if count > LISTED else "")


def _require_numbers(table: Table, name: str) -> None:
    if table.kind(name) != "number":
        raise of_rows(
            SchemaError(
                f"column {name!r} is a number in the schema and holds text in the table; clean it, "
                "or describe it as a category"
            )
        )


def _fill_numbers(table: Table, name: str, column: NumberColumn, out: np.ndarray) -> None:
    _require_numbers(table, name)
    values = np.ascontiguousarray(table.column(name))
    missing = np.isnan(values)
    least, most = column.ends
    span = most - least
    share = np.clip(values, least, most) - least
    if column.scale == "log":
        encoded, low, high = np.clip(np.log1p(share) / np.log1p(span), 0.0, 1.0), 0.0, 1.0
    else:
        encoded, low, high = 2.0 * (share / span) - 1.0, -1.0, 1.0
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


def _fill_categories(table: Table, name: str, column: CategoryColumn, out: np.ndarray) -> None:
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
    (rows,) = np.nonzero(codes >= 0)
    out[rows, codes[rows]] = 1.0


_FILL: dict[type[Column], Callable[[Table, str, Any, np.ndarray], None]] = {
    NumberColumn: _fill_numbers,
    CategoryColumn: _fill_categories,
}
