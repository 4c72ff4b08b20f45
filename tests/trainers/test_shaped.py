"""Rows of shapes: the integers of their dense expansion, however they are kept and multiplied."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tacit.data.rows import Rows, as_rows
from tacit.data.shaped import GAP, ONE, Layout, ShapedChunk
from tacit.engine.engine import Engine
from tacit.engine.kernels import compact
from tacit.engine.quantization import Scale
from tacit.engine.shaped import rounded
from tacit.engine.storage import Rounding
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.additive import lattice_sum

LAYOUTS = {
    "knots": Layout((12,) * 5),
    "mixed": Layout((12, 3, 1, 40, 2, 17, 12), straight=3),
    "wide": Layout((2, 700, 33)),
    "many": Layout((12,) * 37, straight=20),
    "edges": Layout((14, 15, 16, 30, 31, 32, 33, 45, 46, 47, 48, 49, 50, 4, 3, 6, 7, 8)),
}
WAYS = [*compact.levels().values(), None]


def chunk_of(layout, n=150, seed=0):
    rng = np.random.default_rng(seed)
    widths = np.array(layout.widths)
    index = rng.integers(0, np.maximum(widths - 1, 1), (n, widths.size))
    fraction = np.where((widths > 1) & (rng.random(index.shape) > 0.1), rng.random(index.shape), 0)
    last = rng.random(index.shape) < 0.05  # the last knot, or the last category
    index, fraction = np.where(last, widths - 1, index), np.where(last, 0.0, fraction)
    gap = rng.random(index.shape) < 0.05
    straight = rng.uniform(-1, 1, size=(n, layout.straight)) / max(layout.straight, 1) ** 0.5
    index, fraction = np.where(gap, GAP, index), np.where(gap, 0.0, fraction)
    return ShapedChunk.of(layout, index, fraction, straight)


def bound_of(layout):
    return (len(layout.widths) + bool(layout.straight)) ** 0.5


def problem(layout, name, outputs, n=150):
    rng = np.random.default_rng(outputs)
    loss = get_loss(name)
    given = rng.normal(size=n) if name == "squared" else rng.integers(0, max(outputs, 2), n)
    weights = rng.normal(size=(2, layout.d + 1, outputs))
    return chunk_of(layout, n), loss.targets(given, outputs), loss, weights


def sums(rows, given, *, clip=0.3, batch=None, intercept=0.7, **options):
    chunk, targets, loss, weights = given
    if not isinstance(rows, Rows):
        rows = as_rows(rows, bound=bound_of(chunk.layout))
    engine = Engine(rows, targets, loss, intercept=intercept, **options)
    return engine.gradient_sum(weights, clip, batch=batch).values


@pytest.fixture
def way(monkeypatch):
    return lambda level: monkeypatch.setattr(compact, "level", lambda: level)


def same_everywhere(way, given, right, **options):
    for level in WAYS:
        way(level)
        for how in ({}, {"threads": 1}, {"memory": 0}, {"arithmetic": "strict"}):
            np.testing.assert_array_equal(sums(given[0], given, **options, **how), right)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize(
    ("loss", "outputs"),
    [("logistic", 1), ("softmax", 3), ("softmax", 10), ("squared", 1), ("hinge", 1)],
)
def test_sums_are_those_of_the_dense_expansion(way, name, loss, outputs):
    given = problem(LAYOUTS[name], loss, outputs)
    for batch in (None, np.array([0, 3, 4, 77, 149])):
        right = sums(given[0].toarray(), given, batch=batch)
        same_everywhere(way, given, right, batch=batch)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("far", [0.01, 3.0])
def test_a_shift_is_subtracted_as_from_sparse_rows(way, name, far):
    given = problem(LAYOUTS[name], "logistic", 1)
    shift = np.random.default_rng(1).normal(size=LAYOUTS[name].d) * far / LAYOUTS[name].d ** 0.5
    right = sums(given[0].tocsr(), given, shift=shift, clip=1e-3)
    same_everywhere(way, given, right, shift=shift, clip=1e-3)


@pytest.mark.parametrize("shifted", [False, True])
def test_blanked_rows_count_nothing_even_with_a_shift(way, shifted):
    layout = LAYOUTS["mixed"]
    given = problem(layout, "softmax", 3)
    blanked = np.arange(150) % 4 == 1
    shift = np.linspace(-0.1, 0.1, layout.d) if shifted else None
    kept = np.flatnonzero(~blanked)
    right = sums(given[0], given, shift=shift, batch=kept)
    for level in WAYS:
        way(level)
        for how in ({}, {"memory": 0}, {"arithmetic": "strict"}):
            rows = as_rows(given[0], bound=bound_of(layout))
            rows = Rows(rows.source, d=rows.d, bound=rows.bound, blanked=blanked)
            np.testing.assert_array_equal(sums(rows, given, shift=shift, **how), right)


def test_both_parts_of_a_split_row_are_those_of_sparse_rows(way):
    given = problem(LAYOUTS["mixed"], "logistic", 1)
    chunk, targets, loss, weights = given

    def split(rows, **options):
        rows = as_rows(rows, bound=3.0)
        engine = Engine(rows, targets, loss, intercept=0.5, split=20, **options)
        return [s.values for s in engine.gradient_sums(weights, [0.3, 0.1])]

    right = split(chunk.tocsr())
    for level in WAYS:
        way(level)
        for how in ({}, {"memory": 0}):
            for found, expected in zip(split(chunk, **how), right, strict=True):
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("arithmetic", ["rounded", "fast"])
def test_floating_point_takes_the_dense_expansion(arithmetic):
    given = problem(LAYOUTS["mixed"], "logistic", 1)
    right = sums(given[0].toarray(), given, arithmetic=arithmetic)
    for how in ({}, {"memory": 0}):
        np.testing.assert_array_equal(sums(given[0], given, arithmetic=arithmetic, **how), right)


def test_large_multipliers_are_summed_as_ever(way):
    """Beyond two parts of 16 bits: short rows, in tiny units, whose residuals are large."""
    layout = Layout((3, 2), straight=2)
    rng = np.random.default_rng(0)
    index = rng.choice([0, GAP], size=(150, 2), p=[0.1, 0.9])
    chunk = ShapedChunk.of(layout, index, np.zeros((150, 2)), rng.normal(size=(150, 2)) * 1e-3)
    loss = get_loss("squared")
    given = chunk, loss.targets(rng.normal(size=150) * 1e3, 1), loss, rng.normal(size=(1, 8, 1))
    right = sums(chunk.toarray(), given, intercept=1e-4, clip=50.0)
    same_everywhere(way, given, right, intercept=1e-4, clip=50.0)


@pytest.mark.parametrize("straight", [1, 4])
def test_rows_beyond_their_bound_are_shortened_alike_and_count_for_the_clip(way, straight):
    layout = Layout((12, 5, 4, 2), straight=straight)
    chunk = chunk_of(layout)
    long = ShapedChunk(layout, chunk.index, chunk.fraction, chunk.straight * 1e3)
    loss = get_loss("logistic")
    weights = np.random.default_rng(0).normal(size=(1, layout.d + 1, 1))
    given = long, loss.targets(np.arange(150) % 2, 1), loss, weights
    found = []
    for level in WAYS:
        way(level)
        for how in ({}, {"memory": 0}, {"arithmetic": "strict"}):
            found.append(sums(as_rows(long, bound=2.0), given, **how))
            assert (found[-1] == found[0]).all()
    engine = Engine(as_rows(long, bound=2.0), given[1], loss, intercept=0.7)
    for row in range(20):
        total = engine.gradient_sum(weights, 0.3, batch=np.array([row]))
        assert sum(int(v) ** 2 for v in total.values.ravel()) * total.lattice[0] ** 2 <= 0.3**2


def test_removing_a_row_removes_exactly_its_own_sum(way):
    given = problem(LAYOUTS["mixed"], "softmax", 3)
    shift = np.linspace(-0.2, 0.2, LAYOUTS["mixed"].d)
    for level in WAYS:
        way(level)
        everything, rest, alone = (
            sums(given[0], given, batch=batch, shift=shift)
            for batch in (None, np.delete(np.arange(150), 7), np.array([7]))
        )
        np.testing.assert_array_equal(everything - rest, alone)


def test_losses_are_summed_alike(way):
    chunk, targets, loss, weights = problem(LAYOUTS["mixed"], "softmax", 3)
    found = []
    for level in WAYS:
        way(level)
        for rows in (chunk, chunk.tocsr()):
            rows = as_rows(rows, bound=bound_of(chunk.layout))
            found.append(Engine(rows, targets, loss, intercept=1.0).loss_sum(weights, 3.0))
    assert all((each == found[0]).all() for each in found)


class Shaping:
    """A stage as it will be: straight numbers in, shapes out."""

    layout = Layout((12,) * 4)

    def apply(self, chunk):
        place = np.clip(np.asarray(chunk), 0, 1) * 11
        index = np.minimum(place.astype(int), 10)
        return ShapedChunk.of(self.layout, index, place - index)


def test_rows_that_a_stage_shapes_are_sparse_to_those_who_do_not_know():
    values = np.random.default_rng(0).random((150, 4))
    rows = as_rows(values).through(Shaping(), d=48, bound=2.0)
    expanded = Shaping().apply(values)
    np.testing.assert_array_equal(rows.collect().toarray(), expanded.toarray())
    np.testing.assert_array_equal(expanded.toarray().sum(axis=1), 4.0)
    sums_ = lattice_sum(rows.passes(), 48, 2.0)
    np.testing.assert_allclose(sums_ * 2.0**-29, expanded.toarray().sum(axis=0), rtol=1e-6)
    given = problem(Shaping.layout, "logistic", 1)
    np.testing.assert_array_equal(sums(rows, given), sums(expanded.toarray(), given))
    np.testing.assert_array_equal(
        sums(rows, given, memory=0), sums(expanded.toarray(), given, memory=0)
    )


def test_sums_are_the_same_where_memory_ends():
    """Shapes take a few bytes a cell: rows are kept where their expansion would not be."""
    given = problem(LAYOUTS["many"], "logistic", 1)
    needed = 150 * (37 * 2 + 32 * 2)
    np.testing.assert_array_equal(
        sums(given[0], given, memory=needed), sums(given[0], given, memory=needed - 1)
    )


@pytest.mark.parametrize("n", [1, 16, 17, 48, 1031, 2100])
def test_sums_end_where_the_rows_do(way, monkeypatch, n):
    """Vectors take 16 to 64 rows at once; what lies behind the last one counts nothing."""
    monkeypatch.setattr("tacit.engine.engine.SHARED", 1)  # however few: two threads
    for layout in (LAYOUTS["edges"], LAYOUTS["mixed"]):
        for outputs in (1, 5):
            given = problem(layout, "softmax" if outputs > 1 else "logistic", outputs, n)
            for batch in (None, np.arange(1, n, 3)):
                right = sums(given[0].tocsr(), given, batch=batch)
                for level in compact.levels().values():
                    way(level)
                    found = sums(given[0], given, batch=batch, threads=2)
                    np.testing.assert_array_equal(found, right)


@pytest.mark.skipif(compact.native is None, reason="needs the compiled loops")
def test_every_place_comes_back_from_the_numbers_it_takes(way):
    way(0)
    found = set()
    for shapes, one in ((3, 1 << 14), (10, 1 << 13), (20, 1 << 12), (200, 1 << 11)):
        for width in (1, 2, 3, 4, 7, 8, 12, 15, 16, 31, 32, 48, 49, 65_534):
            layout = Layout((width,) + (2,) * (shapes - 1))
            index = np.r_[GAP, np.arange(width)[:60], max(width - 2, 0), width - 1]
            fraction = np.where(index < width - 1, np.arange(index.size) * 5001 % (ONE + 1), 0)
            chunk = ShapedChunk.of(
                layout,
                np.column_stack([index, np.zeros((index.size, shapes - 1), int)]),
                np.column_stack([fraction / ONE, np.zeros((index.size, shapes - 1))]),
            )
            rows = as_rows(chunk, bound=shapes**0.5)
            store = Engine(rows, np.zeros((index.size, 1)), get_loss("logistic")).store
            assert store.one == one and store.cells.ctypes.data % 64 == 0
            found.add((one, width, store.cells.shape[1] - shapes + 1))
            right = rounded(
                chunk, Rounding(Scale.of(shapes**0.5, layout.d, None, 0.0), True, 0.0, None)
            )
            assert abs(store.expanded(np.arange(index.size)) - right.sparse()).nnz == 0
    # Twelve knots, and more, take one number from seventeen shapes on.
    assert {(1 << 12, 12, 1), (1 << 12, 15, 1), (1 << 12, 16, 2), (1 << 11, 31, 1)} <= found
    assert {(1 << 13, 7, 1), (1 << 13, 12, 2), (1 << 14, 48, 16), (1 << 14, 49, 2)} <= found


@pytest.mark.skipif(compact.native is None, reason="needs the compiled loops")
@pytest.mark.parametrize("one", [1 << 11, 1 << 13, 1 << 14])
def test_the_largest_products_are_added_up_exactly(one):
    """Every row meets one weight with all it has, and has the largest two parts there are."""
    n, largest = 2048, 32767 << 13
    rows, peaks, ends = np.zeros((n, 16), np.int16), np.full(n, one, np.uint16), np.array([0, 4])
    cells = np.full((n // 16, 1, 16), 3 * one, dtype=np.uint16)
    signs = np.array([1, -1, 1, 1, -1])
    z = np.repeat(largest * signs[:, None].astype(float), n, axis=1)
    for level in compact.levels().values():
        onto = np.zeros((5, 64), dtype=np.int64)
        compact.native.sums(level, (rows, cells, ends, one, None), None, 0, n, peaks, z, onto)
        right = np.zeros((5, 64), dtype=np.int64)
        right[:, 16 + 3] = n * one * largest * signs
        np.testing.assert_array_equal(onto, right)


def test_one_shape_alone_is_expanded_where_one_has_no_room_in_16_bits(way):
    given = problem(Layout((12,)), "logistic", 1)
    right = sums(given[0].toarray(), given)
    same_everywhere(way, given, right)


def test_what_is_outside_its_shape_is_refused():
    layout = Layout((3, 2))
    for index, fraction in (
        ([[3, 0]], [[0, 0]]),
        ([[2, 0]], [[1, 0]]),
        ([[0, 0]], [[ONE + 1, 0]]),
        ([[GAP, 0]], [[1, 0]]),
    ):
        with pytest.raises(InputError, match="outside its shape"):
            ShapedChunk(
                layout,
                np.array(index, dtype=np.uint16),
                np.array(fraction, dtype=np.uint16),
                np.empty((1, 0)),
            )
    with pytest.raises(InputError, match="straight columns"):
        ShapedChunk.of(layout, [[0, 0]], [[0, 0]], [[1.0]])
    with pytest.raises(InputError, match="weights"):
        Layout((0,))


def test_chunks_are_sent_and_cut():
    chunk = chunk_of(LAYOUTS["mixed"])
    again = pickle.loads(pickle.dumps(chunk))
    np.testing.assert_array_equal(again[10:20].toarray(), chunk.toarray()[10:20])
    assert chunk.shape == (150, LAYOUTS["mixed"].d)
