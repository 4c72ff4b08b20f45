"""Tables from data frames: pandas, polars, Arrow, and whatever else narwhals reads.

What a column is comes from its type alone, never from its values. A type that Tacit cannot
read is refused; a value that does not fit its type is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from tacit.data.arrow import ArrowColumn, from_arrow, load_pyarrow
from tacit.data.cells import cell_text, is_missing, match_key
from tacit.data.tables import (
    ABSENT,
    Coder,
    ColumnType,
    Stored,
    Table,
    Text,
    stored_array,
    stored_objects,
    text_column,
    truths,
    unique_names,
)
from tacit.exceptions import InputError

NUMBER, CATEGORY = ColumnType("number"), ColumnType("category")


def from_frame(data: Any) -> Table:
    """A table from a data frame of any library that narwhals, or Arrow, reads."""
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # pandas: narwhals wants other names
        names = unique_names(data.columns)
        return _table(names, [_of_pandas(n, data.iloc[:, i]) for i, n in enumerate(names)], data)
    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, nw.DataFrame):
        if frame.implementation.is_pandas_like():
            return from_frame(frame.to_pandas())
        if frame.implementation.is_polars():
            names = unique_names(frame.columns)
            made = [_of_polars(n, c) for n, c in zip(names, frame.iter_columns(), strict=True)]
            return _table(names, made, frame)
        data = frame.to_arrow()
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        pa = load_pyarrow(f"a table of type {type(data).__name__}")
        try:
            return from_arrow(pa.table(data))
        except pa.ArrowException:
            raise InputError(
                f"the {type(data).__name__} has a column of a type that arrow cannot hold; cast "
                "it to float64, or to text"
            ) from None
    raise InputError(
        f"cannot read a table from {type(data).__name__}; pass a dict of columns, a pandas, "
        "polars or pyarrow table, or the result of read_table(path)"
    )


def from_series(name: str, values: Any) -> tuple[Stored, ColumnType] | None:
    """A column from a series or an array of one of these libraries; None if it is none."""
    pa = sys.modules.get("pyarrow")
    if pa is not None and isinstance(values, pa.Array | pa.ChunkedArray):
        return _of_arrow(name, values)
    series = nw.from_native(values, series_only=True, pass_through=True)
    if not isinstance(series, nw.Series):
        return stored_array(name, np.asarray(values)) if hasattr(values, "dtype") else None
    if series.implementation.is_pandas_like():
        return _of_pandas(name, series.to_pandas())
    return _of_polars(name, series)


def _table(names: list[str], made: list[tuple[Stored, ColumnType]], frame: Any) -> Table:
    columns = {name: stored for name, (stored, _) in zip(names, made, strict=True)}
    types = {name: says for name, (_, says) in zip(names, made, strict=True)}
    return Table(columns, len(frame), types)


def _of_pandas(name: str, series: Any) -> tuple[Stored, ColumnType]:
    stored = series.dtype
    kind = getattr(stored, "kind", "O")
    if hasattr(stored, "pyarrow_dtype"):
        return _of_arrow(name, series.array.__arrow_array__())
    if hasattr(stored, "categories") and hasattr(series, "cat"):
        return _of_words(series.cat.codes.to_numpy(), series.cat.categories.tolist()), CATEGORY
    if str(stored).startswith("period["):
        return stored_array(name, series.dt.start_time.to_numpy())
    if kind in "iuf":
        with np.errstate(over="ignore"):  # of extended precision
            numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return np.asarray(numbers), NUMBER
    if kind in "Mm":
        return stored_array(name, series.to_numpy(dtype=f"{kind}8[s]"))
    if kind == "b":
        missing = series.isna().to_numpy()
        return truths(series.to_numpy(dtype=bool, na_value=False), missing), ColumnType("boolean")
    if kind == "O" and hasattr(stored, "storage"):  # text of pandas: a word is read once
        codes, words = series.factorize()
        return _of_words(codes, words.tolist()), CATEGORY
    if kind in "OUST":
        return stored_objects(series.to_numpy(dtype=object).tolist()), CATEGORY
    return stored_array(name, np.asarray(series))


def _of_polars(name: str, series: Any) -> tuple[Stored, ColumnType]:
    stored = series.dtype
    if stored.is_numeric() or stored == nw.Unknown:  # unknown: of polars, a column of nulls
        return series.cast(nw.Float64).to_numpy(), NUMBER
    if stored in (nw.Date, nw.Datetime, nw.Duration):
        return stored_array(name, series.to_numpy())
    if stored == nw.Time:
        return series.cast(nw.Int64).cast(nw.Float64).to_numpy() / 1e9, NUMBER
    if stored == nw.Boolean:
        missing = series.is_null().to_numpy()
        return truths(series.fill_null(False).to_numpy(), missing), ColumnType("boolean")
    if isinstance(stored, nw.Enum):
        return text_column(series.to_list()), ColumnType("category", _declared(stored.categories))
    if stored in (nw.String, nw.Categorical, nw.Object):
        return text_column(series.to_list()), CATEGORY
    raise InputError(
        f"column {name!r} holds {stored!s:.80}; Tacit reads numbers, dates and text: drop it"
    )


def _declared(words: Iterable[str]) -> tuple[str, ...] | None:
    """Categories of a type, without those that are one to Tacit, or mark a missing value."""
    texts = (word.strip() for word in words)
    found = {match_key(text): text for text in texts if not is_missing(text)}
    return tuple(found.values()) or None


def _of_arrow(name: str, values: Any) -> tuple[Stored, ColumnType]:
    column = ArrowColumn(name, values.type)
    for chunk in getattr(values, "chunks", [values]):
        column.add(chunk)
    return column.stored(), column.type


def _of_words(codes: np.ndarray, words: list[Any]) -> Text:
    """A column of codes, -1 where missing, into a list of any values."""
    coder = Coder()
    found = np.append(coder.encode([cell_text(word) for word in words]), np.int32(ABSENT))
    return Text(found[codes], coder.words)
