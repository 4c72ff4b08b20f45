"""Rows as an estimator is given them: checked, and left where they are.

What is learned of the columns, their number and names, is kept on the estimator, under
scikit-learn's names and by its rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from tacit.data.arrays import is_array, readable, to_numpy
from tacit.data.checks import column_of, matrix_of
from tacit.data.cluster import is_dask
from tacit.data.dask_rows import dask_rows
from tacit.data.rows import Rows, as_rows
from tacit.data.scans import Scan
from tacit.data.tables import Table, as_table
from tacit.exceptions import InputError
from tacit.features.stored import NAMED, FeatureSet
from tacit.preprocessing import Stage

NO_TARGETS = "no_validation"  # scikit-learn's word for it


def cells_of(X: Any) -> Any:
    """What of X holds the values: features come with what is known of them."""
    return X.features if isinstance(X, FeatureSet) else X


def has_columns(X: Any) -> bool:
    """Whether X is a table with named columns, in memory, in files or on a cluster."""
    if isinstance(X, Scan):
        return X.column_names is not None
    if isinstance(X, Table | Mapping):
        return True
    return (hasattr(X, "columns") and hasattr(X, "dtypes")) or hasattr(X, "column_names")


def table_types(X: Any) -> Any:
    """X as a table of which names and types of the columns can be read."""
    if is_dask(X):
        return as_table(X._meta)  # of which Dask keeps a frame without rows
    if isinstance(X, Scan) and X.column_names is not None:
        return X.as_table_rows().source
    if isinstance(X, Table) or has_columns(X):
        return as_table(X)
    return _named(X, None)


def _named(X: Any, names: Iterable[str] | None) -> Table:
    """An array as a table; its columns are ``x0``, ``x1`` and so on unless they have names."""
    array = matrix_of(X)
    if sp.issparse(array):
        raise InputError("a sparse matrix is no table: pass its columns as a data frame")
    listed = [f"x{j}" for j in range(array.shape[1])] if names is None else list(names)
    if len(listed) != array.shape[1]:
        raise InputError(f"X has {array.shape[1]} features, and {len(listed)} were fitted")
    return Table.from_columns(dict(zip(listed, np.asarray(array).T, strict=True)))


def rows_of(
    model: Any,
    X: Any,
    stages: Any,
    *,
    reset: bool,
    y: Any = NO_TARGETS,
    table: bool = False,
) -> tuple[Rows, Any]:
    """Rows of X and targets, checked.

    Parameters
    ----------
    model : estimator
        Told of the columns if ``reset``; otherwise X must have those that it knows.
    X
        Whatever an estimator takes. A table stays one if a stage takes tables.
    stages : "auto", stage or list of stages
        What the rows will go through.
    y, optional
        Targets; those of rows in memory are checked beside them.
    table : bool
        Whether rows are those of a table, whatever the stages take.
    """
    if isinstance(X, FeatureSet):
        labels = X.labels if y is None else y
        if not reset:
            _require_same_network(model, X)
        rows, y = rows_of(model, X.features, stages, reset=reset, y=labels, table=table)
        return replace(rows, origin=X.assumption()), y
    tables, gaps = table or _any(stages, "takes_tables"), _any(stages, "fills_gaps")
    if is_dask(X):
        return _on_cluster(model, X, reset, tables, gaps), y
    if is_array(y):
        y = to_numpy(readable(y, "y"))
    if isinstance(X, Scan | np.memmap):
        return _in_place(model, X, reset, tables, gaps), y
    if is_array(X) and not tables:
        return _in_place(model, readable(X), reset, tables, gaps), y
    if tables:
        return _of_table(model, X, reset), y
    if y is None or type(X) is not np.ndarray or hasattr(model, "feature_names_in_"):
        # scikit-learn looks at the names of columns alone: what it refuses, it prints.
        validate_data(model, X, y, reset=reset, skip_check_array=True, ensure_2d=False)
    cells = matrix_of(X)
    if reset:
        model.n_features_in_ = cells.shape[1]
    _require_known(model, cells.shape[1])
    if not (isinstance(y, str) and y == NO_TARGETS):
        y = column_of(y, cells.shape[0])
    return as_rows(cells, gaps=gaps), y


def _on_cluster(model: Any, X: Any, reset: bool, tables: bool, gaps: bool) -> Rows:
    """Rows that stay on the workers of a cluster."""
    rows = dask_rows(X, gaps=gaps, table=tables)
    if rows.n == 0:
        raise InputError("there are no rows")
    if reset:
        names = getattr(X, "columns", None)
        texts = names is not None and all(isinstance(name, str) for name in names)
        _learn(model, rows.d, names if texts else None)
    elif rows.d != model.n_features_in_:
        raise InputError(f"rows have {rows.d} features, the model {model.n_features_in_}")
    return rows


def _in_place(model: Any, X: Any, reset: bool, tables: bool, gaps: bool) -> Rows:
    """Rows that stay in their files, or on their device, and are checked as they are read."""
    if X.ndim != 2:
        raise InputError(f"rows must be a table of two dimensions, not {X.ndim}")
    names = X.column_names if isinstance(X, Scan) else None
    if reset:
        _learn(model, X.shape[1], names)
    elif isinstance(X, Scan) and names is not None and hasattr(model, "feature_names_in_"):
        X = X.select(model.feature_names_in_)  # the target may be there, or not
    else:
        _require_known(model, X.shape[1])
    return X.as_table_rows() if isinstance(X, Scan) and tables else as_rows(X, gaps=gaps)


def _of_table(model: Any, X: Any, reset: bool) -> Rows:
    """Rows of a table in memory; an array counts as one with the columns that were fitted."""
    if not has_columns(X):  # scikit-learn warns where an array has no names
        validate_data(model, X, reset=reset, skip_check_array=True, ensure_2d=False)
    if has_columns(X):  # columns are found by their names, in whatever order
        table = as_table(X)
        names: Iterable[str] | None = table.column_names
    else:
        names = None if reset else getattr(model, "feature_names_in_", None)
        table = _named(X, names)
    if reset:
        _learn(model, table.d, names)
    elif names is None:
        _require_known(model, table.d)
    if table.n == 0:
        raise InputError("there are no rows")
    return as_rows(table)


def _require_same_network(model: Any, X: FeatureSet) -> None:
    """Refuse features of another network than the one that the certificate names."""
    named = [text for text in model.certificate_.assumptions if text.startswith(NAMED)]
    if X.network and named and X.assumption() not in named:
        raise InputError(
            "these features are of another network, or of other settings, than those of the fit. "
            f"The model takes {named[0]}"
        )


def _require_known(model: Any, columns: int) -> None:
    """Refuse another number of columns than the model was fitted to."""
    if columns != model.n_features_in_:
        raise InputError(
            f"X has {columns} features, but {type(model).__name__} is expecting "
            f"{model.n_features_in_} features as input"
        )


def _learn(model: Any, columns: int, names: Iterable[str] | None) -> None:
    """Tell the estimator of its columns; names of an earlier fit are forgotten."""
    model.n_features_in_ = columns
    if names is not None:
        model.feature_names_in_ = np.asarray(list(names), dtype=object)
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_


def _any(stages: Any, trait: str) -> bool:
    """Whether any of the stages has a trait."""
    listed = stages if isinstance(stages, list | tuple) else [stages]
    return any(isinstance(stage, Stage) and getattr(stage, trait) for stage in listed)
