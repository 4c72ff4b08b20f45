"""From a table to rows of numbers: named columns, each group of them mapped in its own way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.rows import Rows
from tacit.data.tables import Table, as_table
from tacit.exceptions import InputError
from tacit.preprocessing.base import Kind, Stage
from tacit.preprocessing.column_maps import (
    ColumnMap,
    Load,
    Numbers,
    RowFunction,
    Span,
    centred,
    from_dict,
    to_dict,
)


@dataclass(frozen=True)
class Branch:
    """Columns of a table and the maps that they go through, in order.

    Parameters
    ----------
    load : Numbers, Codes or Levels
        Which columns, and as what.
    maps : tuple of maps
        What becomes of them.
    gaps : bool
        Whether missing values stay gaps, for a later stage to fill; else they are zero, the
        middle of their interval.
    """

    load: Load
    maps: tuple[ColumnMap, ...] = ()
    gaps: bool = False

    def __post_init__(self) -> None:
        _ = self.end  # maps that do not go together are refused at once

    @cached_property
    def spans(self) -> list[Span]:
        """What is public of the columns in front of every map and, at last, behind them all."""
        found = [self.load.span()]
        for step in self.maps:
            found.append(step.span(found[-1]))
        return found

    @property
    def end(self) -> Span:
        return self.spans[-1]

    @property
    def square(self) -> float:
        """Bound on the squared norm of this branch's part of a row: numbers end in [-1, 1]."""
        end = self.end
        return float(end.width) if end.square is None else end.square

    def apply(self, table: Table) -> np.ndarray:
        cells = self.load.load(table)
        spans = self.spans
        for step, span in zip(self.maps, spans, strict=False):
            cells = step.apply(cells, span)
        end = spans[-1]
        if end.square is None:
            cells = centred(cells, end)
        return cells if self.gaps else np.where(np.isnan(cells), 0.0, cells)

    def to_dict(self) -> dict[str, Any]:
        maps = [to_dict(step) for step in self.maps]
        return {"load": to_dict(self.load), "maps": maps, "gaps": self.gaps}

    @classmethod
    def of(cls, given: Any) -> Branch:
        if isinstance(given, Branch):
            return given
        maps = tuple(map(from_dict, given["maps"]))
        return cls(from_dict(given["load"]), maps, bool(given["gaps"]))


@dataclass
class ByColumns(Stage):
    """Named columns of a table, each group of them mapped in its own way, side by side.

    A free stage: every constant is public, and a row out needs nothing but that row. No value of
    a cell stops it. Numbers end in [-1, 1], categories and splines in weights of norm one a
    column. A row out is no longer than √(Σ B²), with B the bounds of the groups. A column that is
    in two of them counts in both.

    Parameters
    ----------
    branches : sequence of Branch
        Columns and maps, or what `parameters` tells of them.

    Examples
    --------
    >>> from tacit.preprocessing.column_maps import Levels, Numbers, Ufunc
    >>> stage = ByColumns([
    ...     Branch(Numbers(("income",), (0.0,), (99.0,)), (Ufunc("log1p"),)),
    ...     Branch(Levels(("job",), (("cook", "nurse"),), (None,), (None,))),
    ... ])
    >>> stage.feature_names
    ['income', 'job=cook', 'job=nurse']
    >>> stage.transform({"income": [9.0, "?"], "job": ["nurse", "pilot"]})
    array([[0., 0., 1.],
           [0., 0., 0.]])
    """

    branches: Any = ()
    kind: ClassVar[Kind] = "free"
    keeps_gaps: ClassVar[bool] = True
    must_be_first: ClassVar[bool] = True
    takes_tables = True

    def __post_init__(self) -> None:
        if not isinstance(self.branches, list | tuple) or not self.branches:
            raise InputError("ByColumns: branches must be a list of branches, at least one")
        self._branches = tuple(map(Branch.of, self.branches))

    @property
    def listed(self) -> tuple[Branch, ...]:
        """The branches."""
        return self._branches

    @property
    def columns(self) -> list[str]:
        """Columns of the table that are used, each once."""
        return list(dict.fromkeys(name for each in self._branches for name in each.load.columns))

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns out."""
        return [name for branch in self._branches for name in branch.end.names]

    @property
    def widths(self) -> list[int]:
        """Columns out of every branch."""
        return [branch.end.width for branch in self._branches]

    @property
    def makes_gaps(self) -> bool:
        return any(branch.gaps for branch in self._branches)

    def width(self, d: int | None = None) -> int:
        """Columns of a row out, whatever the table has."""
        return sum(self.widths)

    def bound(self, radius: float | None = None, d: int | None = None) -> float:
        """Public bound on the norm of a row out, whatever the table holds."""
        return math.sqrt(math.fsum(branch.square for branch in self._branches)) * (1 + 1e-12)

    def fit(self, rows: Any, context: Any = None) -> Self:
        """Check that the table has the columns; nothing is learned from the rows."""
        self._require_columns(table_of(rows))
        return self

    def example(self, d: int) -> Table:
        cells: dict[str, list[Any]] = {}
        for branch in self._branches:
            load = branch.load
            for i, name in enumerate(load.columns):
                cell = load.low[i] if isinstance(load, Numbers) else load.categories[i][0]
                cells.setdefault(name, [cell])
        return Table.from_columns(cells)

    def apply(self, chunk: Table) -> np.ndarray:
        """Map a slice of the table: float64, one row for each row."""
        self._require_columns(chunk)
        return np.hstack([branch.apply(chunk) for branch in self._branches])

    def transform(self, rows: Any) -> Any:
        """Map a whole table to an array; what is given as `Rows` stays lazy."""
        table = table_of(rows)
        self._require_columns(table)
        return super().transform(rows if isinstance(rows, Rows) else table)

    def note(self) -> str:
        return "columns of the table are mapped row by row, with public constants"

    def assumption(self) -> str:
        titles = list(dict.fromkeys(step.title for step in self._functions))
        declared = f", and {' and '.join(titles)} look at one row at a time" if titles else ""
        return f"names and types of columns do not depend on the rows{declared}"

    @property
    def _functions(self) -> list[RowFunction]:
        return [s for branch in self._branches for s in branch.maps if isinstance(s, RowFunction)]

    def parameters(self) -> dict[str, Any]:
        return {"branches": [branch.to_dict() for branch in self._branches]}

    def arrays(self) -> dict[str, np.ndarray]:
        if self._functions:
            raise InputError(
                f"the model maps columns by {self._functions[0].title}, a function that no file "
                "holds; apply it to the rows before, and leave it out of the pipeline"
            )
        return {}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        return cls(**parameters)

    def _require_columns(self, table: Table) -> None:
        have = set(table.column_names)
        gone = [name for name in self.columns if name not in have]
        if gone:
            raise InputError(f"the table lacks columns: {', '.join(map(repr, gone[:20]))}")


def table_of(rows: Any) -> Table:
    """The table that rows are, or one without rows where they are in a file."""
    if not isinstance(rows, Rows):
        return as_table(rows)
    source = rows.source
    if not isinstance(source, Table) and hasattr(source, "kinds") and not source.numbers:
        source = source.empty()
    if rows.maps or not isinstance(source, Table):
        raise InputError("ByColumns must be the first stage and needs a table with named columns")
    return source
