"""Clipped gradient sums: exact integers, one row bounded, the same however they are computed."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from tacit.data.rows import as_rows
from tacit.engine import engine as engine_module
from tacit.engine.engine import Engine
from tacit.engine.quantization import FEATURE_MAX, LATTICE_ROWS, Clipping, Scale, Weights
from tacit.exceptions import InputError, MissingBound
from tacit.losses import LOSSES, get_loss

EVERY_LOSS = sorted(LOSSES)


def make_targets(loss, rng, n, outputs):
    if loss.task == "regression":
        return loss.targets(rng.normal(size=n), 1)
    return loss.targets(rng.integers(0, max(outputs, 2), n), outputs)


def outputs_of(loss):
    return 1 if loss.task == "regression" else 4


def problem(name="softmax", *, n=300, d=7, outputs=None, settings=2):
    rng = np.random.default_rng(0)
    loss = get_loss(name)
    outputs = outputs_of(loss) if outputs is None else outputs
    rows = rng.normal(size=(n, d))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    return rows, make_targets(loss, rng, n, outputs), loss, rng.normal(size=(settings, d, outputs))


def with_intercept(weights, seed=1):
    rng = np.random.default_rng(seed)
    extra = rng.normal(size=(weights.shape[0], 1, weights.shape[2]))
    return np.concatenate([weights, extra], axis=1)


def sparse_rows(n=300, d=40, seed=0):
    matrix = sp.random_array((n, d), density=0.1, format="csr", rng=np.random.default_rng(seed))
    matrix.data -= 0.5
    return sp.csr_array(matrix)


def on_grid(engine, weights):
    """Weights as rows meet them."""
    if engine.arithmetic == "fast":
        return weights
    grid = Weights.of(weights, engine.scale, "exact")
    lines = (grid.columns * grid.unit / engine.scale.unit).reshape(*weights.shape[::2], -1)
    return lines.transpose(0, 2, 1)


def float_reference(rows, targets, loss, weights, clip, *, per_class=False):
    """The clipped sum in plain float64, one gradient per row."""
    total = []
    for setting, bound in zip(weights, np.broadcast_to(clip, len(weights)), strict=True):
        residual = loss.residual(rows @ setting, targets)
        gradients = rows[:, :, None] * residual[:, None, :]
        axes, limit = ((1,), bound / math.sqrt(setting.shape[1])) if per_class else ((1, 2), bound)
        norms = np.sqrt((gradients**2).sum(axis=axes, keepdims=True))
        total.append((gradients * np.minimum(1, limit / np.maximum(norms, 1e-300))).sum(axis=0))
    return np.array(total)


def integer_rows(engine):
    """Rows as the engine counts them, as Python integers."""
    store = engine.store
    if hasattr(store, "values"):
        return store.values.astype(object)
    rows = store.matrix.toarray().astype(np.int64).astype(object)
    return rows if store.shift is None else rows - store.shift.astype(np.int64).astype(object)


def big_integer_sum(engine, weights, clip):
    """The same sum with every product in Python integers."""
    settings, _, outputs = weights.shape
    rows = integer_rows(engine)
    grid = Weights.of(weights, engine.scale, "exact")
    columns = grid.columns.astype(np.int64).astype(object)
    scores = (rows @ columns.T).astype(np.float64) * grid.unit[:, 0]
    norms = np.array([math.sqrt(max(1, sum(v * v for v in row))) for row in rows])
    scores = scores.reshape(-1, settings, outputs)
    residual = engine.loss.residual(scores, engine.targets)
    cube = np.ascontiguousarray(residual.transpose(1, 2, 0))
    clips = np.broadcast_to(np.asarray(clip, float), (settings,))
    Clipping.of(clips, outputs, engine.scale, "exact", False).apply(cube, 1 / norms)
    multipliers = cube.astype(np.int64).astype(object)
    return np.array([rows.T @ z.T for z in multipliers])


def squared_norm(values):
    return sum(int(v) ** 2 for v in np.ravel(values))


def assert_within(total, clip):
    """Every setting's exact norm is at most its clip."""
    clips = np.broadcast_to(clip, total.lattice.shape)
    for values, bound, lattice in zip(total.values, clips, total.lattice, strict=True):
        assert squared_norm(values) <= (Fraction(float(bound)) / Fraction(float(lattice))) ** 2


# Exact integers


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_dense_sums_equal_big_integer_arithmetic(name):
    rows, targets, loss, weights = problem(name, n=90)
    weights = with_intercept(weights)
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, intercept=0.7)
    total = engine.gradient_sum(weights, [0.3, 2.0])
    assert total.values.dtype == np.int64
    assert (total.values == big_integer_sum(engine, weights, [0.3, 2.0])).all()


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("name", ["softmax", "squared"])
def test_sparse_sums_equal_big_integer_arithmetic(name, shifted):
    matrix = sparse_rows(n=80)
    _, targets, loss, weights = problem(name, n=80, d=40)
    weights = with_intercept(weights)
    shift = np.random.default_rng(3).normal(size=40) if shifted else None
    engine = Engine(as_rows(matrix, bound=3.0), targets, loss, intercept=1.0, shift=shift)
    total = engine.gradient_sum(weights, 0.4)
    assert (total.values == big_integer_sum(engine, weights, 0.4)).all()


def test_sums_are_exact_when_every_row_is_aligned_at_the_largest_norm():
    n, d = LATTICE_ROWS, 24
    loss = get_loss("squared")
    targets = loss.targets(np.full(n, -1e6), 1)
    weights = np.full((1, d, 1), 1e3)
    clip = 1.999  # just below a power of two, where C / g is largest
    engine = Engine(as_rows(np.full((n, d), 1e9), bound=1.0), targets, loss)
    norms = np.linalg.norm(engine.store.values.astype(float), axis=1)  # rows are shortened to it
    assert 0.999 * engine.scale.longest < norms.min() <= norms.max() <= engine.scale.longest
    one = engine.gradient_sum(weights, clip, batch=np.array([5])).values
    reach = n * math.isqrt(squared_norm(one))
    assert 2**51 < reach <= 2**52
    for block in (engine.store.block_rows, n):  # many groups, then all rows in one product
        engine.store.block_rows = block
        total = engine.gradient_sum(weights, clip).values
        assert [int(v) for v in total.ravel()] == [n * int(v) for v in one.ravel()]


def test_a_sparse_row_close_to_a_large_shift_is_exact_although_its_products_are_not_small():
    rng = np.random.default_rng(4)
    n, d = 3000, 6
    shift = np.full(d, 1.0)
    rows = shift + rng.integers(-2, 3, (n, d)) * 2.0**-12
    loss = get_loss("squared")
    targets = loss.targets(np.full(n, -1e12), 1)  # every row is clipped: multipliers are huge
    weights = rng.normal(size=(1, d, 1))
    engine = Engine(as_rows(sp.csr_array(rows), bound=3.0), targets, loss, shift=shift)
    total = engine.gradient_sum(weights, 1.9)
    multipliers = np.abs(total.values).sum() / 2  # at least this, since |x - m| is at most 2 units
    assert multipliers * FEATURE_MAX / 4 > 2.0**53
    assert (total.values == big_integer_sum(engine, weights, 1.9)).all()
    dense = Engine(as_rows(rows, bound=3.0), targets, loss, shift=shift)
    assert (dense.gradient_sum(weights, 1.9).values == total.values).all()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["softmax", "logistic", "squared"])
def test_order_blocks_and_threads_do_not_change_the_sum(name, sparse):
    n, d = 700, 40
    rows, targets, loss, weights = problem(
        name, n=n, d=d, outputs=30 if name == "softmax" else None
    )
    data = sparse_rows(n=n) if sparse else rows
    shift = np.linspace(-1, 1, d)

    def total(order=None, threads=1, block=None, group=None, batch=None):
        chosen = np.arange(n) if order is None else order
        engine = Engine(
            as_rows(data[chosen], bound=1.0), targets[chosen], loss, shift=shift, threads=threads
        )
        engine.store.block_rows = block or engine.store.block_rows
        engine.store.group_rows = group or engine.store.group_rows
        return engine.gradient_sum(weights, [0.5, 3.0], batch=batch).values

    expected = total()
    order = np.random.default_rng(5).permutation(n)
    for other in (
        total(order),
        total(threads=2, block=64),
        total(order, threads=2, block=333, group=333),
        total(block=1),
        total(block=50, group=100, threads=3),
        total(batch=np.arange(n)),
        total(batch=np.arange(n), block=17, threads=2),
    ):
        assert (other == expected).all()


CUTS = [
    {"threads": 1},
    {"threads": 1, "block": 16, "group": 16},
    {"threads": 2, "block": 16, "group": 32},
    {"threads": 3, "block": 37, "group": 1000},
]


STORES = ["dense", "sparse", "shifted", "shifted sparse"]
KEPT = [("exact", store) for store in STORES] + [("strict", "dense"), ("strict", "shifted sparse")]


@pytest.mark.parametrize("per_class", [False, True], ids=["flat", "per-class"])
@pytest.mark.parametrize(("arithmetic", "store"), KEPT, ids=" ".join)
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_removing_a_row_removes_exactly_its_own_sum(name, arithmetic, store, per_class):
    """Deleted or left out of a batch, however sums are cut: the very integers of that row."""
    n, d, clip = 61, 5, [0.05, 0.6, 40.0]  # nearly all rows clipped, some, none
    rows, targets, loss, weights = problem(name, n=n, d=d, settings=3)
    rows[7] = 0.0
    rows[8] *= 1e9  # far beyond the bound
    weights = with_intercept(weights)
    shift = np.linspace(-0.7, 0.5, d) if "shifted" in store else None

    def engine(which, *, threads, block=None, group=None):
        part = rows[which]
        part = sp.csr_array(np.where(np.abs(part) > 0.2, part, 0.0)) if "sparse" in store else part
        made = Engine(
            as_rows(part, bound=1.0),
            targets[which],
            loss,
            intercept=0.7,
            shift=shift,
            threads=threads,
            arithmetic=arithmetic,
        )
        made.store.block_rows = block or made.store.block_rows
        made.store.group_rows = group or made.store.group_rows
        return made

    def total(made, batch=None, count=3):
        found = made.gradient_sum(weights[:count], clip[:count], batch=batch, per_class=per_class)
        summed = made.n if batch is None else len(batch)
        assert_within(found, np.array(clip[:count]) * summed)
        return found.values

    batch = np.arange(0, n, 2)
    for turn, i in enumerate((7, 8, 16, n - 1)):
        cut, other = CUTS[turn % len(CUTS)], CUTS[(turn + 1) % len(CUTS)]
        rest = np.delete(np.arange(n), i)
        every, without = engine(np.arange(n), **cut), engine(rest, **other)
        own = total(engine([i], **other))
        assert (total(every) - total(without) == own).all()  # deleted: later rows move up
        assert (total(every) - total(every, rest) == own).all()  # left out
        assert (total(every, np.array([i])) == own).all()
        with_it, without_it = np.union1d(batch, [i]), np.setdiff1d(batch, [i])
        assert (total(every, with_it) - total(every, without_it) == own).all()
        assert (total(every, count=1) - total(without, count=1) == own[:1]).all()
    if arithmetic == "exact" and shift is None:  # blanked out, it counts nothing at all
        blank = replace(as_rows(np.ones((1, d)), bound=1.0), blanked=np.array([True]))
        assert not total(Engine(blank, targets[:1], loss, intercept=0.7)).any()
        # Nothing but what a row carries makes it count nothing: not that it is zero.
        zero = Engine(as_rows(np.zeros((1, d)), bound=1.0), targets[:1], loss, intercept=0.7)
        assert total(zero).any()


# One row is bounded


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_no_row_counts_for_more_than_the_clip_whatever_rows_and_weights(name, per_class):
    rng = np.random.default_rng(sum(map(ord, name)))
    loss = get_loss(name)
    largest = 0.0
    for _ in range(25):
        d, n = int(rng.integers(1, 40)), 12
        outputs = 1 if loss.task == "regression" else int(rng.integers(2, 30))
        sizes = 10.0 ** rng.integers(-12, 13, (n, 1))
        rows = rng.normal(size=(n, d)) * sizes
        rows[0] = 0.0
        rows[1] = 1e300
        rows[2, 0] = 2.0**-20
        bound = float(10.0 ** rng.uniform(-3, 3))
        clip = float(2.0 ** rng.uniform(-8, 8))
        if loss.task == "regression":
            targets = loss.targets(rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n), 1)
        else:
            targets = make_targets(loss, rng, n, outputs)
        weights = rng.normal(size=(1, d, outputs)) * 10.0 ** rng.integers(-3, 4)
        shift = rng.normal(size=d) * 10.0 ** rng.integers(-2, 2) if rng.random() < 0.5 else None
        data = sp.csr_array(rows) if rng.random() < 0.5 else rows
        engine = Engine(as_rows(data, bound=bound), targets, loss, shift=shift, threads=1)
        with engine:
            for i in range(n):
                one = engine.gradient_sum(weights, clip, batch=np.array([i]), per_class=per_class)
                assert_within(one, clip)
                largest = max(largest, float(np.linalg.norm(one.float())) / clip)
    assert 0.999 < largest <= 1  # the search does reach the bound


def test_rounding_never_lifts_a_multiplier_above_its_limit():
    """Close to the smallest limits allowed, where the allowance for rounding matters most."""
    rng = np.random.default_rng(7)
    for _ in range(150):
        outputs = int(rng.integers(1, 40))
        per_class = bool(rng.random() < 0.3)
        separate = per_class or outputs == 1
        square = rng.integers(1, 10**6, 64)
        least = 2 * math.sqrt(outputs) * 1000
        ceiling = float(rng.uniform(least, 4 * least))
        share = ceiling / math.sqrt(outputs) if per_class else ceiling
        clipping = Clipping(
            lattice=np.ones(1),
            ceiling=np.array([[share]]),
            multiplier=np.array([[float(2.0 ** rng.integers(0, 30))]]),
            allowance=0.5 if separate else math.sqrt(outputs) / 2,
            separate=separate,
            arithmetic="exact",
            clip=np.array([ceiling]),
        )
        residual = rng.normal(size=(1, outputs, 64)) * 10.0 ** rng.integers(-9, 9, 64)
        clipping.apply(residual, 1 / np.sqrt(square.astype(float)))
        for i, norm in enumerate(square):
            assert squared_norm(residual[..., i]) * int(norm) <= Fraction(ceiling) ** 2


def test_residuals_that_are_not_numbers_count_nothing():
    scale = Scale.of(1.0, 3, None, 0.0)
    for outputs in (1, 3):
        clipping = Clipping.of(np.ones(1), outputs, scale, "exact", False)
        residual = np.ones((1, outputs, 4))
        residual[0, 0, :3] = [np.nan, np.inf, -np.inf]
        clipping.apply(residual, np.ones(4))
        assert not residual[..., :3].any()
        assert residual[..., 3].all()


def test_entries_of_a_sparse_matrix_stored_twice_are_one_feature():
    parts = (np.array([0.9, 0.9, 0.1]), np.array([0, 0, 1]), np.array([0, 3]))
    matrix = sp.csr_array(parts, shape=(1, 2))
    loss = get_loss("squared")
    targets = loss.targets([-1e6], 1)
    twice = Engine(as_rows(matrix, bound=2.0), targets, loss)
    once = Engine(as_rows(matrix.toarray(), bound=2.0), targets, loss)
    weights = np.zeros((1, 2, 1))
    assert_within(twice.gradient_sum(weights, 1.0), 1.0)
    assert (twice.gradient_sum(weights, 1.0).values == once.gradient_sum(weights, 1.0).values).all()
    assert matrix.nnz == 3  # the caller's matrix is left alone


@pytest.mark.parametrize("name", EVERY_LOSS)
@pytest.mark.parametrize("outputs", [1, 2, 10, 40])
def test_the_residual_of_a_row_does_not_depend_on_its_place(name, outputs):
    rng = np.random.default_rng(8)
    loss = get_loss(name)
    outputs = 1 if loss.task == "regression" else outputs
    if name == "softmax" and outputs == 1:
        pytest.skip("softmax has at least two outputs")
    n = 512
    targets = make_targets(loss, rng, n, outputs)
    scores = rng.normal(size=(3, outputs, n)) * 10.0 ** rng.uniform(-3, 2, n)

    def residuals(index):
        cube = np.ascontiguousarray(scores[:, :, index])
        for setting in cube:
            loss.residual(setting.T, targets[index], out=setting.T)
        return cube

    expected = residuals(np.arange(n))
    order = rng.permutation(n)
    assert (residuals(order) == expected[:, :, order]).all()
    for start in rng.integers(0, n, 20):
        index = np.full(16, start)
        assert (residuals(index) == expected[:, :, index]).all()


# Agreement


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
@pytest.mark.parametrize("name", EVERY_LOSS)
def test_sums_are_close_to_plain_float64(name, arithmetic, per_class):
    n = 1500
    rows, targets, loss, weights = problem(name, n=n, d=20)
    weights = with_intercept(weights)
    clip = np.array([0.2, 1.5])
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, intercept=0.5, arithmetic=arithmetic)
    total = engine.gradient_sum(weights, clip, per_class=per_class)
    full = np.column_stack([rows, np.full(n, 0.5)])
    rounded = on_grid(engine, weights)
    expected = float_reference(full, targets, loss, rounded, clip, per_class=per_class)
    kinked = loss.smoothness == math.inf  # there a rounded score can change a row's residual
    error = np.abs(total.float() - expected).max(axis=(1, 2)) / clip
    smooth = 2e-3 * max(1.0, loss.smoothness) if arithmetic == "exact" else n * 2.0**-15
    assert error.max() < (2.5 if kinked else smooth)
    assert total.values.dtype == (np.int64 if arithmetic == "exact" else np.float64)
    assert (total.lattice == 1).all() == (arithmetic == "fast")


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_sparse_rows_give_what_the_same_rows_give_when_dense(arithmetic):
    matrix = sparse_rows()
    _, targets, loss, weights = problem(d=40)
    weights = with_intercept(weights)
    options = {"intercept": 1.0, "arithmetic": arithmetic}
    sparse = Engine(as_rows(matrix, bound=2.0), targets, loss, **options)
    dense = Engine(as_rows(matrix.toarray(), bound=2.0), targets, loss, **options)
    batch = np.arange(0, 300, 7)
    for chosen in (None, batch):
        left = sparse.gradient_sum(weights, 0.5, batch=chosen)
        right = dense.gradient_sum(weights, 0.5, batch=chosen)
        assert (left.lattice == right.lattice).all()
        if arithmetic == "exact":
            assert (left.values == right.values).all()
        else:
            np.testing.assert_allclose(left.values, right.values, atol=1e-3)


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_an_implicit_shift_is_close_to_centred_rows(arithmetic):
    matrix = sparse_rows()
    _, targets, loss, weights = problem(d=40)
    shift = np.random.default_rng(9).normal(size=40) / 20
    bound = 2.0 - np.linalg.norm(shift)  # so that both bounds make the same scale
    sparse = Engine(as_rows(matrix, bound=bound), targets, loss, shift=shift, arithmetic=arithmetic)
    dense = Engine(
        as_rows(matrix.toarray(), bound=bound), targets, loss, shift=shift, arithmetic=arithmetic
    )
    by_hand = Engine(
        as_rows(matrix.toarray() - shift, bound=2.0), targets, loss, arithmetic=arithmetic
    )
    expected = by_hand.gradient_sum(weights, 0.5).float()
    np.testing.assert_allclose(dense.gradient_sum(weights, 0.5).float(), expected, atol=1e-9)
    np.testing.assert_allclose(sparse.gradient_sum(weights, 0.5).float(), expected, atol=5e-3)


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_settings_together_equal_settings_alone(arithmetic):
    rows, targets, loss, weights = problem(settings=5, n=1000, d=30)
    clip = np.array([0.01, 0.3, 0.5, 1.0, 3.0])
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, arithmetic=arithmetic)
    together = engine.gradient_sum(weights, clip)
    for s in range(5):
        alone = engine.gradient_sum(weights[s : s + 1], clip[s])
        assert alone.lattice[0] == together.lattice[s]
        if arithmetic == "exact":
            assert (alone.values[0] == together.values[s]).all()
        else:
            np.testing.assert_allclose(alone.values[0], together.values[s], atol=1e-2 * clip[s])


def test_fast_sums_repeat_for_any_number_of_threads():
    rows, targets, loss, weights = problem(n=3000, d=30)
    totals = []
    for threads in (1, 2, 3):
        engine = Engine(as_rows(rows, bound=1.0), targets, loss, arithmetic="fast", threads=threads)
        engine.store.block_rows = 128
        totals.append(engine.gradient_sum(weights, 1.0).values)
    assert (totals[0] == totals[1]).all() and (totals[0] == totals[2]).all()


def test_float32_rows_give_the_sum_of_their_values():
    rows, targets, loss, weights = problem()
    narrow = rows.astype(np.float32)
    left = Engine(as_rows(narrow, bound=1.0), targets, loss).gradient_sum(weights, 1.0)
    wide = narrow.astype(np.float64)
    right = Engine(as_rows(wide, bound=1.0), targets, loss).gradient_sum(weights, 1.0)
    assert (left.values == right.values).all()


# Shapes and edges


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
@pytest.mark.parametrize("sparse", [False, True])
def test_an_empty_batch_sums_to_zero(arithmetic, sparse):
    rows, targets, loss, weights = problem()
    data = sp.csr_array(rows) if sparse else rows
    engine = Engine(as_rows(data, bound=1.0), targets, loss, arithmetic=arithmetic)
    for empty in (np.array([], dtype=int), np.array([])):
        total = engine.gradient_sum(weights, 1.0, batch=empty)
        assert total.values.shape == weights.shape and not total.values.any()


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("d", [1, 2])
def test_the_smallest_tables(arithmetic, n, d):
    rows, targets, loss, weights = problem("logistic", n=n, d=d, outputs=1)
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, arithmetic=arithmetic)
    assert (engine.n, engine.d, engine.outputs) == (n, d, 1)
    total = engine.gradient_sum(weights, 1.0)
    expected = float_reference(rows, targets, loss, weights, 1.0)
    np.testing.assert_allclose(total.float(), expected, atol=1e-3)


def test_the_intercept_is_one_more_feature_and_class_indices_leave_outputs_open():
    rows, targets, loss, weights = problem()
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, intercept=2.0)
    assert engine.d == rows.shape[1] + 1
    assert engine.outputs is None
    assert engine.gradient_sum(with_intercept(weights), 1.0).values.shape == (2, 8, 4)


def test_progress_reports_rows_read():
    rows, targets, loss, _ = problem(n=9000, d=2)
    seen = []
    Engine(as_rows(rows, bound=1.0), targets, loss, progress=lambda *step: seen.append(step))
    assert seen[-1] == ("rows", 9000, 9000) and len(seen) == 3


def test_the_context_restores_the_number_of_blas_threads():
    rows, targets, loss, weights = problem()
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, threads=2, arithmetic="fast")

    def blas_threads():
        controller = engine_module.blas().select(user_api="blas")
        return [library["num_threads"] for library in controller.info()]

    before = blas_threads()
    with engine, engine:
        assert set(blas_threads()) <= {1}
        inside = engine.gradient_sum(weights, 1.0).values
    assert blas_threads() == before
    assert (engine.gradient_sum(weights, 1.0).values == inside).all()
    assert blas_threads() == before


def test_a_bound_is_required():
    rows, targets, loss, _ = problem()
    with pytest.raises(MissingBound, match="bound"):
        Engine(as_rows(rows), targets, loss)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_weights_out_of_range_are_an_error(value):
    rows, targets, loss, weights = problem()
    for arithmetic in ("exact", "fast"):
        engine = Engine(as_rows(rows, bound=1.0), targets, loss, arithmetic=arithmetic)
        weights[0, 1, 2] = value
        with pytest.raises(InputError, match="weights"):
            engine.gradient_sum(weights, 1.0)


@pytest.mark.parametrize(
    "batch", [[3, 3], [5, 4], [-1, 2], [0, 300], [0.5, 1.5], [[1, 2]]], ids=str
)
def test_a_batch_that_could_count_a_row_twice_is_an_error(batch):
    rows, targets, loss, weights = problem()
    engine = Engine(as_rows(rows, bound=1.0), targets, loss)
    with pytest.raises(InputError, match="batch"):
        engine.gradient_sum(weights, 1.0, batch=np.array(batch))


@pytest.mark.parametrize("clip", [0.0, -1.0, np.nan, np.inf, [1.0, 2.0, 3.0], [1.0, 0.0]], ids=str)
def test_a_clip_that_is_no_bound_is_an_error(clip):
    rows, targets, loss, weights = problem()
    engine = Engine(as_rows(rows, bound=1.0), targets, loss)
    with pytest.raises(InputError, match="clip"):
        engine.gradient_sum(weights, clip)


def test_input_that_does_not_fit_is_an_error():
    rows, targets, loss, weights = problem()
    good = as_rows(rows, bound=1.0)
    with pytest.raises(InputError, match="arithmetic"):
        Engine(good, targets, loss, arithmetic="slow")
    with pytest.raises(InputError, match="intercept"):
        Engine(good, targets, loss, intercept=-1.0)
    with pytest.raises(InputError, match="shift"):
        Engine(good, targets, loss, shift=np.ones(3))
    with pytest.raises(InputError, match="targets"):
        Engine(good, targets[1:], loss)
    with pytest.raises(InputError, match="targets"):
        Engine(good, np.full((300, 1), np.nan), get_loss("squared"))
    with pytest.raises(InputError, match="norm bound"):
        Engine(as_rows(rows, bound=0.0), targets, loss)
    engine = Engine(good, targets, loss)
    with pytest.raises(InputError, match="shape"):
        engine.gradient_sum(weights[0], 1.0)
    with pytest.raises(InputError, match="later class"):
        engine.gradient_sum(weights[:, :, :2], 1.0)


# Two parts, each clipped by itself


def parts_of(split, d):
    return [slice(0, split), slice(split, d)]


def big_integer_parts(engine, weights, clips):
    """The sums of both parts with every product in Python integers."""
    settings, _, outputs = weights.shape
    rows = integer_rows(engine)
    grid = Weights.of(weights, engine.scale, "exact")
    columns = grid.columns.astype(np.int64).astype(object)
    scores = (rows @ columns.T).astype(np.float64) * grid.unit[:, 0]
    residual = engine.loss.residual(scores.reshape(-1, settings, outputs), engine.targets)
    found = []
    for part, clip in zip(engine.parts, clips, strict=True):
        some = rows[:, part]
        norms = np.array([math.sqrt(max(1, sum(v * v for v in row))) for row in some])
        cube = np.ascontiguousarray(residual.transpose(1, 2, 0))
        limits = np.broadcast_to(np.asarray(clip, float), (settings,))
        Clipping.of(limits, outputs, engine.scale, "exact", False).apply(cube, 1 / norms)
        multipliers = cube.astype(np.int64).astype(object)
        found.append(np.array([some.T @ z.T for z in multipliers]))
    return found


def float_parts(rows, targets, loss, weights, clips, *, split, per_class=False):
    """Both parts of every row's gradient, clipped one by one in plain float64."""
    found = []
    for part, clip in zip(parts_of(split, rows.shape[1]), clips, strict=True):
        total = []
        for setting, bound in zip(weights, np.broadcast_to(clip, len(weights)), strict=True):
            residual = loss.residual(rows @ setting, targets)
            gradients = (rows[:, :, None] * residual[:, None, :])[:, part]
            axes = (1,) if per_class else (1, 2)
            limit = bound / math.sqrt(setting.shape[1]) if per_class else bound
            norms = np.sqrt((gradients**2).sum(axis=axes, keepdims=True))
            total.append((gradients * np.minimum(1, limit / np.maximum(norms, 1e-300))).sum(axis=0))
        found.append(np.array(total))
    return found


@pytest.mark.parametrize("kind", ["dense", "sparse", "shifted"])
@pytest.mark.parametrize("name", ["softmax", "squared"])
def test_the_sums_of_both_parts_equal_big_integer_arithmetic(name, kind):
    matrix = sparse_rows(n=80)
    _, targets, loss, weights = problem(name, n=80, d=40)
    weights = with_intercept(weights)
    shift = np.random.default_rng(3).normal(size=40) if kind == "shifted" else None
    data = matrix.toarray() if kind == "dense" else matrix
    options = {"intercept": 1.0, "shift": shift, "split": 25}
    engine = Engine(as_rows(data, bound=3.0), targets, loss, **options)
    clips = [[0.05, 1.0], 0.4]
    sums = engine.gradient_sums(weights, clips)
    expected = big_integer_parts(engine, weights, clips)
    assert [total.start for total in sums] == [0, 25]
    for total, values in zip(sums, expected, strict=True):
        assert total.values.dtype == np.int64
        assert (total.values == values).all()


def test_both_parts_are_exact_when_every_row_is_aligned_at_the_largest_norm():
    n, d = LATTICE_ROWS, 24
    loss = get_loss("squared")
    targets = loss.targets(np.full(n, -1e6), 1)
    weights, clips = np.full((1, d, 1), 1e3), [1.999, 0.4999]
    engine = Engine(as_rows(np.full((n, d), 1e9), bound=1.0), targets, loss, split=23)
    one = engine.gradient_sums(weights, clips, batch=np.array([5]))
    for block in (engine.store.block_rows, n):
        engine.store.block_rows = block
        for single, total in zip(one, engine.gradient_sums(weights, clips), strict=True):
            assert 2**51 < n * math.isqrt(squared_norm(single.values)) <= 2**52
            assert [int(v) for v in total.values.ravel()] == [
                n * int(v) for v in single.values.ravel()
            ]


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
@pytest.mark.parametrize("name", ["softmax", "logistic", "squared"])
def test_both_parts_are_close_to_plain_float64(name, arithmetic, per_class):
    rows, targets, loss, weights = problem(name, n=1500, d=20)
    weights = with_intercept(weights)
    clips = [np.array([0.1, 1.0]), np.array([0.3, 0.02])]
    options = {"intercept": 0.5, "arithmetic": arithmetic, "split": 14}
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, **options)
    sums = engine.gradient_sums(weights, clips, per_class=per_class)
    full = np.column_stack([rows, np.full(1500, 0.5)])
    rounded = on_grid(engine, weights)
    expected = float_parts(full, targets, loss, rounded, clips, split=14, per_class=per_class)
    for total, values, clip in zip(sums, expected, clips, strict=True):
        error = np.abs(total.float() - values).max(axis=(1, 2)) / clip
        # A short part is rounded to as many units as a long one: its direction is less exact.
        assert error.max() < (2e-2 if arithmetic == "exact" else 1500 * 2.0**-15)


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_no_part_of_a_row_counts_for_more_than_its_clip(name):
    rng = np.random.default_rng(sum(map(ord, name)))
    loss = get_loss(name)
    largest = np.zeros(2)
    for _ in range(20):
        d, n = int(rng.integers(2, 30)), 10
        outputs = 1 if loss.task == "regression" else int(rng.integers(2, 20))
        rows = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-12, 13, (n, 1))
        split = int(rng.integers(1, d))
        rows[0] = 0.0
        rows[1] = 1e300
        rows[2, :split] = 0.0  # all in one part
        rows[3, :split] *= 1e-6
        rows[4, split:] *= 1e-6
        clips = [float(c) for c in 2.0 ** rng.uniform(-8, 8, 2)]
        if loss.task == "regression":
            targets = loss.targets(rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n), 1)
        else:
            targets = make_targets(loss, rng, n, outputs)
        weights = rng.normal(size=(1, d, outputs)) * 10.0 ** rng.integers(-3, 4)
        shift = rng.normal(size=d) if rng.random() < 0.5 else None
        data = sp.csr_array(rows) if rng.random() < 0.5 else rows
        per_class = bool(rng.random() < 0.3)
        options = {"shift": shift, "split": split, "threads": 1}
        engine = Engine(as_rows(data, bound=1.5), targets, loss, **options)
        with engine:
            for i in range(n):
                one = engine.gradient_sums(weights, clips, batch=np.array([i]), per_class=per_class)
                for p in range(2):
                    assert_within(one[p], clips[p])
                    norm = float(np.linalg.norm(one[p].float())) / clips[p]
                    largest[p] = max(largest[p], norm)
    assert (largest > 0.999).all() and (largest <= 1).all()  # the search reaches both bounds


def test_removing_a_row_removes_exactly_its_own_parts():
    rows, targets, loss, weights = problem(n=40, d=5)
    clips = [0.1, 0.6]

    def total(index, **options):
        engine = Engine(as_rows(rows[index], bound=1.0), targets[index], loss, split=2, **options)
        return engine.gradient_sums(weights, clips)

    everything = total(np.arange(40))
    for other in (total(np.arange(40)[::-1]), total(np.arange(40), threads=2)):
        assert all((a.values == b.values).all() for a, b in zip(everything, other, strict=True))
    for i in range(0, 40, 3):
        without, own = total(np.delete(np.arange(40), i)), total(np.array([i]))
        for whole, rest, one in zip(everything, without, own, strict=True):
            assert (whole.values - rest.values == one.values).all()


@pytest.mark.parametrize("arithmetic", ["exact", "fast"])
def test_parts_that_are_not_clipped_are_parts_of_the_whole(arithmetic):
    rows, targets, loss, weights = problem()
    whole = Engine(as_rows(rows, bound=1.0), targets, loss, arithmetic=arithmetic)
    split = Engine(as_rows(rows, bound=1.0), targets, loss, arithmetic=arithmetic, split=3)
    sums = split.gradient_sums(weights, [50.0, 50.0])
    joined = np.concatenate([total.float() for total in sums], axis=1)
    np.testing.assert_allclose(joined, whole.gradient_sum(weights, 50.0).float(), atol=1e-3)


def test_a_split_leaves_columns_on_either_side_and_asks_for_two_clips():
    rows, targets, loss, weights = problem()
    good = as_rows(rows, bound=1.0)
    for split in (0, 7, -1, 8):
        with pytest.raises(InputError, match="split"):
            Engine(good, targets, loss, split=split)
    assert Engine(good, targets, loss, split=7, intercept=0.1).parts == (slice(0, 7), slice(7, 8))
    engine = Engine(good, targets, loss, split=3)
    for clips in ([1.0], [1.0, 1.0, 1.0]):
        with pytest.raises(InputError, match="clips do not suit 2 parts"):
            engine.gradient_sums(weights, clips)
    with pytest.raises(InputError, match="1 clips do not suit 2 parts"):
        engine.gradient_sum(weights, 1.0)
    with pytest.raises(InputError, match="clip"):
        engine.gradient_sums(weights, [1.0, 0.0])
