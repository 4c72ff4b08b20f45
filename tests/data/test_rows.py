"""One protocol for rows: the same numbers however they are stored, cut or mapped."""

from __future__ import annotations

import dataclasses
import gc
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from tacit.data import as_table
from tacit.data.rows import CHUNK_ROWS, Rows, as_rows
from tacit.exceptions import InputError

ARRAY = np.arange(30.0).reshape(10, 3) - 7

STORED = {
    "float64": ARRAY,
    "float32": ARRAY.astype(np.float32),
    "float16": ARRAY.astype(np.float16),
    "int64": ARRAY.astype(np.int64),
    "int8": ARRAY.astype(np.int8),
    "fortran": np.asfortranarray(ARRAY),
    "strided": np.repeat(ARRAY, 2, axis=0)[::2],
    "read-only": np.frombuffer(ARRAY.tobytes()).reshape(10, 3),
    "list": ARRAY.tolist(),
    "csr_array": sp.csr_array(ARRAY),
    "csr_matrix": sp.csr_matrix(ARRAY),
    "csc": sp.csc_array(ARRAY),
    "coo": sp.coo_array(ARRAY),
    "sparse int": sp.csr_array(ARRAY.astype(np.int32)),
    "sparse float32": sp.csr_array(ARRAY.astype(np.float32)),
}


def dense(chunk):
    return chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk)


class Double:
    def apply(self, chunk):
        return chunk * 2


class AddRow:
    """Not linear, and of another width."""

    def apply(self, chunk):
        return np.column_stack([dense(chunk), np.ones(chunk.shape[0])])


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("size", [1, 3, 10, 4096])
def test_chunks_are_the_rows_in_order_as_float64(kind, size):
    rows = as_rows(STORED[kind])
    assert (rows.n, rows.d, rows.bound) == (10, 3, None)
    assert rows.sparse == sp.issparse(STORED[kind])
    seen = []
    for span, chunk in rows.chunks(size):
        assert span.start == sum(len(part) for part in seen)
        assert chunk.shape == (span.stop - span.start, 3)
        assert chunk.dtype == np.float64
        assert sp.issparse(chunk) == rows.sparse
        seen.append(dense(chunk))
    assert max(map(len, seen)) <= size
    assert (np.concatenate(seen) == ARRAY).all()


@pytest.mark.parametrize("kind", STORED)
def test_collect_gives_all_rows_and_stays_sparse(kind):
    collected = as_rows(STORED[kind]).collect()
    assert sp.issparse(collected) == sp.issparse(STORED[kind])
    assert (dense(collected) == ARRAY).all()


def test_more_rows_than_a_chunk():
    array = np.arange(2.0 * CHUNK_ROWS + 1)[:, None]
    sizes = [chunk.shape[0] for _, chunk in as_rows(array).chunks()]
    assert sizes == [CHUNK_ROWS, CHUNK_ROWS, 1]
    assert (as_rows(array).collect() == array).all()


def test_maps_are_applied_in_order_and_only_when_read():
    rows = as_rows(ARRAY, bound=40.0)
    seen = rows.through(Double(), d=3, bound=80.0).through(AddRow(), d=4, bound=81.0)
    assert (seen.d, seen.bound, seen.n) == (4, 81.0, 10)
    assert (seen.collect() == np.column_stack([ARRAY * 2, np.ones(10)])).all()
    assert rows.maps == () and rows.bound == 40.0
    assert (rows.collect() == ARRAY).all()


def test_dense_float64_rows_are_not_copied():
    for _, chunk in as_rows(ARRAY).chunks(4):
        assert np.shares_memory(chunk, ARRAY)


def test_rows_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        as_rows(ARRAY).bound = 1.0


def test_rows_stay_the_rows_they_are():
    rows = as_rows(ARRAY, bound=2.0)
    assert as_rows(rows) is rows
    assert as_rows(rows, bound=3.0) == dataclasses.replace(rows, bound=3.0)


def test_no_rows():
    for empty in (np.empty((0, 3)), sp.csr_array((0, 3))):
        rows = as_rows(empty)
        assert (rows.n, rows.d) == (0, 3)
        assert list(rows.chunks()) == []
        assert rows.collect().shape == (0, 3)


# What is refused


@pytest.mark.parametrize("data", [np.zeros(3), np.zeros((2, 2, 2)), 5.0, []])
def test_rows_have_two_dimensions(data):
    with pytest.raises(InputError, match="two dimensions"):
        as_rows(data)


@pytest.mark.parametrize(
    "data", [np.array([["a"]]), np.array([[None]]), np.array([[1j]]), np.array([["2020"]], "M8[D]")]
)
def test_what_is_no_number_needs_a_schema(data):
    with pytest.raises(InputError, match=r"are not numbers.*Encode"):
        as_rows(data)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("how", [np.asarray, sp.csr_array, lambda a: a.astype(np.float32)])
def test_nan_and_infinity_are_refused_wherever_they_stand(value, how):
    for place in ((0, 0), (9, 2), (5, 1)):
        array = ARRAY.copy()
        array[place] = value
        with pytest.raises(InputError, match="NaN or infinity"):
            as_rows(how(array))


def test_the_search_for_nan_covers_arrays_larger_than_a_block(monkeypatch):
    from tacit.data import rows as module

    array = np.zeros((50, 3))
    array[49, 2] = np.nan
    monkeypatch.setattr(module.require_finite, "__defaults__", (7,))
    with pytest.raises(InputError):
        as_rows(array)
    assert as_rows(np.zeros((50, 3))).n == 50


@pytest.mark.skipif(
    np.finfo(np.longdouble).max == sys.float_info.max, reason="long double is double here"
)
def test_numbers_that_float64_cannot_hold_are_refused():
    with pytest.raises(InputError, match="NaN or infinity"), np.errstate(over="ignore"):
        as_rows(np.array([[np.longdouble("1e400")]]))


def test_sparse_entries_stored_twice_are_added_before_they_are_checked():
    huge = np.array([1.5e308, 1.5e308])
    matrix = sp.csr_array((huge, np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    with pytest.raises(InputError, match="NaN or infinity"), np.errstate(over="ignore"):
        as_rows(matrix)


def test_complex_sparse_rows_are_refused_like_dense_ones():
    with pytest.raises(InputError, match="are not numbers"):
        as_rows(sp.csr_array(np.array([[1j, 2]])))


# What a stage that must not look is shown


@pytest.mark.parametrize("kind", STORED)
def test_hidden_rows_have_the_shape_and_not_a_single_row(kind):
    rows = as_rows(STORED[kind]).through(Double(), d=3, bound=9.0)
    hidden = rows.hidden()
    assert (hidden.n, hidden.d, hidden.bound, hidden.maps) == (0, 3, 9.0, rows.maps)
    assert hidden.sparse == rows.sparse
    assert list(hidden.chunks()) == []
    assert rows.n == 10


def reachable(start):
    """Every object that can be had from one, without leaving through modules and classes."""
    seen, todo = {}, [start]
    while todo:
        found = todo.pop()
        if id(found) in seen or isinstance(found, type) or type(found).__name__ == "module":
            continue
        seen[id(found)] = found
        todo += [item for item in gc.get_referents(found) if not callable(item)]
        if isinstance(found, np.ndarray) and found.base is not None:
            todo.append(found.base)
    return list(seen.values())


@pytest.mark.parametrize("kind", STORED)
def test_nothing_in_hidden_rows_leads_back_to_the_table(kind):
    hidden = as_rows(STORED[kind]).hidden()
    sizes = [item.size for item in reachable(hidden) if isinstance(item, np.ndarray)]
    assert all(size <= 1 for size in sizes)  # a sparse matrix without rows has one row pointer


def test_a_hidden_table_has_its_columns_and_no_rows():
    table = as_table({"a": [1.0, 2.0], "b": ["x", "y"]})
    hidden = as_rows(table).hidden()
    assert isinstance(hidden, Rows)
    assert (hidden.n, hidden.d) == (0, 2)


def test_nothing_in_a_hidden_table_leads_back_to_its_cells():
    table = as_table({"number": np.arange(5.0), "text": ["rare", "words", "of", "one", "person"]})
    found = reachable(as_rows(table).hidden())
    assert all(item.size <= 1 for item in found if isinstance(item, np.ndarray))
    assert not {"rare", "words", "person"} & {item for item in found if isinstance(item, str)}
