"""What is public of a table before a row is read: names of its columns, and their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit.data.cells import as_seconds, is_date
from tacit.data.tables import Table, as_table
from tacit.exceptions import InputError


@dataclass(frozen=True)
class Frame:
    """Names and types of columns, and a table without rows for whoever selects by them."""

    names: tuple[str, ...]
    text: frozenset[str] = frozenset()  # of a type that holds words
    truth: frozenset[str] = frozenset()  # of a type that holds true and false
    empty: Any = None
    framed: bool = False

    @classmethod
    def of(cls, X: Any) -> Frame:
        """From a table or an array; values are not looked at."""
        if isinstance(X, Table | Mapping) or any(
            hasattr(X, k) for k in ("columns", "column_names")
        ):
            empty = _without_rows(X)
            types = as_table(empty).types
            text, truth = (
                frozenset(name for name, type_ in types.items() if type_.kind == kind)
                for kind in ("category", "boolean")
            )
            framed = hasattr(X, "iloc")  # pandas
            return cls(tuple(types), text, truth, empty if framed else None, framed)
        if sp.issparse(X):
            raise InputError("a ColumnTransformer takes a data frame or a dense array here")
        d = X.shape[1] if len(getattr(X, "shape", ())) == 2 else np.ndim(X) == 2 and len(X[0])
        if not d:
            raise InputError("rows must be a table of two dimensions")
        return cls(tuple(f"x{i}" for i in range(int(d))))

    def pick(self, where: str, columns: Any) -> list[str]:
        """Names of the columns that a transformer is given, however they are told."""
        if callable(columns):
            if self.empty is None:
                raise InputError(f"{where} selects columns of a pandas frame; name them instead")
            columns = columns(self.empty)
        if isinstance(columns, str | int | np.integer):
            columns = [columns]
        if isinstance(columns, slice):
            return self._slice(where, columns)
        listed = list(columns)
        if listed and all(isinstance(c, bool | np.bool_) for c in listed):
            if len(listed) != len(self.names):
                raise InputError(f"{where} has a mask of {len(listed)} columns, not of all")
            return [name for name, on in zip(self.names, listed, strict=True) if on]
        return [self._name(where, column) for column in listed]

    def _slice(self, where: str, columns: slice) -> list[str]:
        start, stop = columns.start, columns.stop
        if isinstance(start, str) or isinstance(stop, str):  # labels, both ends of which belong
            start = None if start is None else self.names.index(self._name(where, start))
            stop = None if stop is None else self.names.index(self._name(where, stop)) + 1
        return list(self.names[start : stop : columns.step])

    def _name(self, where: str, column: Any) -> str:
        if isinstance(column, int | np.integer) and -len(self.names) <= column < len(self.names):
            return self.names[int(column)]
        if str(column) not in self.names:
            raise InputError(f"{where} names column {column!r}, which X does not have")
        return str(column)

    def limits(self, bounds: Any, columns: Sequence[str]) -> list[tuple[float, float] | None]:
        """Public bounds of these columns; None where none are declared."""
        if isinstance(bounds, Mapping) and (extra := [n for n in bounds if n not in self.names]):
            raise InputError(f"bounds= names {extra[0]!r}, which X does not have")
        return [self._limit(bounds, name) for name in columns]

    def _limit(self, bounds: Any, name: str) -> tuple[float, float] | None:
        pair = bounds.get(name) if isinstance(bounds, Mapping) else bounds
        if pair is None and name in self.truth:
            return 0.0, 1.0
        if pair is None:
            return None
        try:
            low, high = map(_end, pair)
        except (TypeError, ValueError):
            raise InputError(
                f"a ColumnTransformer needs bounds={{{name!r}: (low, high), ...}}, a pair of "
                "numbers by column, or one pair for all"
            ) from None
        return low, high


def _named(X: Any) -> bool:
    """Whether columns have names."""
    return isinstance(X, Mapping) or hasattr(X, "columns") or hasattr(X, "column_names")


def _without_rows(X: Any) -> Any:
    if isinstance(X, Table):
        return X.empty()
    if hasattr(X, "iloc"):
        return X.iloc[:0]
    return X if isinstance(X, Mapping) else X.head(0) if hasattr(X, "head") else X.slice(0, 0)


def _end(value: Any) -> float:
    """A bound as a number: that of a date, in seconds since 1970."""
    text = value.isoformat() if hasattr(value, "isoformat") else value
    if isinstance(text, str) and is_date(text):
        return float(as_seconds(text) or 0.0)
    return float(value)


def table_of(X: Any, columns: Sequence[str]) -> Table:
    """The named columns of rows as a table; those of an array are x0, x1 and so on."""
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):  # what others hold is not looked at
        kept = [i for i, name in enumerate(X.columns) if str(name).strip() in columns]
        return as_table(X.iloc[:, kept])
    if not _named(X):
        cells = np.asarray(X)
        X = {f"x{i}": cells[:, i] for i in range(cells.shape[1])}
    table = as_table(X)
    return table.drop([name for name in table.column_names if name not in columns])
