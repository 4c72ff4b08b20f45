"""What people pass as rows and targets, as arrays of numbers: or refused without quoting a value.

Libraries put what they were given into their messages: a value, a whole array. So they are never
handed anything that they might refuse. What is wrong is found here, and said in our own words; and
an error that another one led to is raised alone (`tacit.exceptions.raise_alone`).
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit.data.cells import is_absent
from tacit.exceptions import InputError, NotNumbers, of_rows

TEXT = (
    "rows hold text where numbers belong; describe the table in a schema and start the stages with "
    "Encode(schema)"
)
COMPLEX = "Complex data not supported: {what} must hold real numbers"
NEITHER = (
    "{what} holds values that are neither numbers nor text: every value, an argument must be a "
    "string or a real number; leave out whatever is something else"
)
RAGGED = (
    "{what} cannot be read as an array: pass numbers in rows that are equally long, or a table "
    "with named columns"
)


def matrix_of(X: Any) -> np.ndarray | sp.csr_array:
    """Rows of numbers, (n, d), as they are stored; no library is asked what it thinks of them."""
    if sp.issparse(X):
        _require_shape(X.shape)
        _require_kind(X.dtype, "X")
        return sp.csr_array(X)
    array = _array(X, "X")
    _require_shape(array.shape)
    if array.dtype.kind == "O":
        array = as_floats(array, "X")
    _require_kind(array.dtype, "X")
    return array


def column_of(y: Any, n: int, what: str = "y") -> np.ndarray:
    """One value for each of n rows, (n,); a column of them is taken with a warning."""
    if sp.issparse(y):
        raise InputError(f"{what} is a sparse matrix; pass an array, one value for each row")
    column = _array(y, what)
    if column.ndim == 2 and column.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of "
            "y to (n_samples, ), for example using ravel().",
            DataConversionWarning,
            stacklevel=2,
        )
        column = column[:, 0]
    if column.ndim != 1 or len(column) != n:
        raise of_rows(
            InputError(f"{what} must hold one value for each row: {n}, not shape {column.shape}")
        )
    if column.dtype.kind == "c":
        raise InputError(COMPLEX.format(what=what))
    if column.dtype.kind == "O" and any(map(is_absent, column.tolist())):
        raise of_rows(InputError(f"{what} contains NaN or lacks a value; leave out such rows"))
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise of_rows(InputError(f"{what} contains NaN or infinity; leave out such rows"))
    return column


def as_floats(values: np.ndarray, what: str) -> np.ndarray:
    """Any real numbers, or words that spell them, as float64; missing ones as NaN."""
    if values.dtype.kind in "cmMV":
        raise of_rows(NotNumbers(NEITHER.format(what=what)))
    if values.dtype.kind == "O":
        flat = [np.nan if is_absent(value) else value for value in values.ravel().tolist()]
        cells = np.empty(len(flat), dtype=object)
        cells[:] = flat
        values = cells.reshape(values.shape)
    problem: InputError
    try:
        with np.errstate(all="ignore"):
            return values.astype(np.float64)
    except OverflowError:
        problem = InputError(f"{what} holds an integer that is larger than any float")
    except ValueError:
        problem = InputError(TEXT if what == "X" else f"{what} must be numbers, and holds text")
    except Exception:
        problem = NotNumbers(NEITHER.format(what=what))
    raise of_rows(problem)


def _array(data: Any, what: str) -> np.ndarray:
    """Data as an array of NumPy; a masked value is a missing one."""
    if isinstance(data, np.ma.MaskedArray) and data.mask.any():
        return np.where(np.ma.getmaskarray(data), np.array(None), data.data)
    with suppress(ValueError, TypeError, OverflowError, AttributeError, NotImplementedError):
        return np.asarray(data)
    raise of_rows(InputError(RAGGED.format(what=what)))


def _require_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise InputError(
            "rows must be a table of two dimensions: expected 2D array, got "
            f"{f'{len(shape)}D' if shape else 'scalar'} array instead. Reshape your data: "
            "X.reshape(-1, 1) if it has a single column, X.reshape(1, -1) if it is a single row"
        )
    for count, what in zip(shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise InputError(
                f"Found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required."
            )


def _require_kind(dtype: np.dtype, what: str) -> None:
    if dtype.kind == "c":
        raise InputError(COMPLEX.format(what=what))
    if dtype.kind in "US":
        raise of_rows(InputError(TEXT))
    if dtype.kind not in "fiub":
        raise of_rows(NotNumbers(NEITHER.format(what=what)))
