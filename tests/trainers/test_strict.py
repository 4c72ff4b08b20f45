"""Strict arithmetic: nothing right is refused, and nothing wrong is released."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import scipy.sparse as sp
from tests.seam import paid, run_of, token
from threadpoolctl import threadpool_limits

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.engine import checks as strict
from tacit.engine import selftest, storage
from tacit.engine.engine import Engine
from tacit.engine.kernels import compact
from tacit.engine.storage import SparseStore
from tacit.exceptions import InputError, MachineError
from tacit.losses import LOSSES, Softmax, get_loss
from tacit.mechanisms import covariance
from tacit.mechanisms.covariance import noisy_second_moment
from tacit.mechanisms.random_streams import Key, Stream
from tacit.preprocessing import (
    ClipNorm,
    Normalize,
    PrivatePCA,
    PublicPCA,
    RandomProjection,
    SoftPCA,
)
from tacit.preprocessing import projection as linear
from tacit.preprocessing.projection import ProductCheck
from tacit.trainers import DPGD, DPSGD
from tacit.trainers.settings import PublicFacts

N, D, K = 300, 12, 4


def problem(name="softmax", *, n=N, d=D, settings=2, seed=0):
    rng = np.random.default_rng(seed)
    loss = get_loss(name)
    outputs = 1 if loss.task == "regression" else K
    rows = rng.normal(size=(n, d))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    given = rng.normal(size=n) if loss.task == "regression" else rng.integers(0, outputs, n)
    return rows, loss.targets(given, outputs), loss, rng.normal(size=(settings, d, outputs))


def engine_for(data, targets, loss, arithmetic="strict", **options):
    return Engine(as_rows(data, bound=1.0), targets, loss, arithmetic=arithmetic, **options)


STORES = ["dense", "sparse", "shifted"]


def stored(rows, store):
    """Rows and options of an engine that keeps them in this way."""
    data = rows if store == "dense" else sp.csr_array(np.where(np.abs(rows) > 0.2, rows, 0.0))
    return data, {"shift": np.linspace(-0.5, 0.5, rows.shape[1])} if store == "shifted" else {}


BATCH = np.flatnonzero(np.random.default_rng(1).random(N) < 0.4)


# --- What is right passes ------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_strict_sums_are_the_exact_ones(name, store):
    rows, targets, loss, weights = problem(name)
    data, options = stored(rows, store)
    strictly = engine_for(data, targets, loss, **options)
    exactly = engine_for(data, targets, loss.portable(), "exact", **options)
    for per_class in (False, True):
        for batch in (None, BATCH, BATCH[:1], BATCH[:0], None):
            how = {"batch": batch, "per_class": per_class}
            found = strictly.gradient_sum(weights, [0.3, 2.0], **how)
            expected = exactly.gradient_sum(weights, [0.3, 2.0], **how)
            assert (found.values == expected.values).all()
            assert (found.lattice == expected.lattice).all()


@pytest.mark.parametrize("store", STORES)
def test_blocks_and_threads_make_no_difference(store):
    rows, targets, loss, weights = problem(n=700)
    data, options = stored(rows, store)
    expected = engine_for(data, targets, loss, threads=1, **options).gradient_sum(weights, 0.5)
    for threads, block, group in ((1, 16, 64), (2, 64, 64), (3, 333, 333), (2, 1, 700)):
        engine = engine_for(data, targets, loss, threads=threads, **options)
        engine.store.block_rows, engine.store.group_rows = block, group
        for batch in (None, None, np.arange(700)):
            found = engine.gradient_sum(weights, 0.5, batch=batch)
            assert (found.values == expected.values).all()


@pytest.mark.parametrize("store", STORES)
def test_parts_that_are_clipped_by_themselves_are_checked_together(store, monkeypatch):
    rows, targets, loss, weights = problem()
    data, options = stored(rows, store)
    options = {**options, "intercept": 0.5, "split": 5}
    weights = np.concatenate([weights, weights[:, :1]], axis=1)
    strictly = engine_for(data, targets, loss, **options)
    exactly = engine_for(data, targets, loss.portable(), "exact", **options)
    clips = [np.array([0.3, 2.0]), np.array([0.1, 0.7])]
    for batch in (None, BATCH, None):
        found = strictly.gradient_sums(weights, clips, batch=batch)
        expected = exactly.gradient_sums(weights, clips, batch=batch)
        assert len(found) == len(expected) == 2
        for one, other in zip(found, expected, strict=True):
            assert (one.values == other.values).all()
    cls = type(strictly.store)
    real = cls.backward
    for place in (0, 4, 5, -1):  # at either end of either part

        def wrong(*given, place=place):
            found = real(*given)
            found[place, 0] += 1
            return found

        monkeypatch.setattr(cls, "backward", wrong)
        for batch in (None, BATCH):
            with pytest.raises(MachineError, match="came out wrong"):
                strictly.gradient_sums(weights, clips, batch=batch)


def test_the_largest_operands_pass():
    n, d = 8192, 24
    loss = get_loss("squared")
    targets = loss.targets(np.full(n, -1e6), 1)
    weights = np.full((1, d, 1), 1e3)
    for data in (np.full((n, d), 1e9), sp.csr_array(np.full((n, d), 1e9))):
        engine = engine_for(data, targets, loss, intercept=1.0)
        weights = np.full((1, d + 1, 1), 1e3)
        one = engine.gradient_sum(weights, 1.999, batch=np.array([5])).values
        for batch in (None, np.arange(n)):
            total = engine.gradient_sum(weights, 1.999, batch=batch).values
            assert (total == n * one).all()


def test_a_sparse_row_close_to_a_large_shift_passes():
    rng = np.random.default_rng(4)
    n, d = 3000, 6
    shift = np.full(d, 1.0)
    rows = shift + rng.integers(-2, 3, (n, d)) * 2.0**-12
    loss = get_loss("squared")
    targets = loss.targets(np.full(n, -1e12), 1)
    weights = rng.normal(size=(1, d, 1))
    for batch in (None, np.arange(0, n, 2)):
        totals = [
            Engine(as_rows(data, bound=3.0), targets, loss, shift=shift, arithmetic="strict")
            .gradient_sum(weights, 1.9, batch=batch)
            .values
            for data in (sp.csr_array(rows), rows)
        ]
        assert (totals[0] == totals[1]).all()


def test_rows_wider_than_a_slab_are_probed_exactly(monkeypatch):
    rng = np.random.default_rng(0)
    rows, targets, loss, weights = problem(d=40)
    expected = engine_for(rows, targets, loss).gradient_sum(weights, 0.5).values
    monkeypatch.setattr(storage, "SLAB", 7)
    engine = engine_for(rows, targets, loss)
    assert (engine.gradient_sum(weights, 0.5).values == expected).all()
    store = engine.store
    numbers = [int(w) for w in engine.watch.columns.residues.word]
    for i in rng.integers(0, N, 20):
        exact = sum(int(x) * r for x, r in zip(store.values[i], numbers, strict=True))
        assert int(engine.watch.along[0].word[i]) == exact % 2**64
        assert int(engine.watch.along[0].rest[i]) == exact % (2**31 - 1)


@pytest.mark.parametrize("cls", [DPGD, DPSGD])
def test_training_is_that_of_exact_arithmetic_with_portable_losses(cls):
    rows, targets, loss, _ = problem("logistic", n=500)
    facts = PublicFacts(500, D, K, typical_norm=1.0, mu=1.0)
    trainer = cls(steps=6).resolve(facts)
    found = [
        trainer.train(
            engine_for(rows, targets, kind, name),
            run_of(trainer, 3.0, facts, Key.from_seed(1)),
            facts,
        )
        for kind, name in ((loss, "strict"), (loss.portable(), "exact"))
    ]
    assert (found[0] == found[1]).all()


def test_more_rows_than_can_be_checked_are_refused(monkeypatch):
    rows, targets, loss, _ = problem()
    monkeypatch.setattr(strict, "MOST_ROWS", N)
    with pytest.raises(InputError, match="arithmetic='exact'"):
        engine_for(rows, targets, loss)


# --- What is wrong does not ----------------------------------------------------------------------


def off_by_one(real, rng):
    def product(self, *given):
        found = real(self, *given)
        part = found[1] if isinstance(found, tuple) else found
        i = int(rng.integers(0, part.shape[0]))
        j = int(rng.integers(0, max(1, part.shape[1] - 16)))  # not in the padding, which is dropped
        part[i, j] += _unit(self, given, found, i)
        return found

    return product


def two_that_cancel(real, rng):
    def product(self, *given):
        found = real(self, *given)
        part = found[1] if isinstance(found, tuple) else found
        unit = _unit(self, given, found, 0)
        part[0, 0] += unit
        part[0, 1] -= unit
        part[1, 0] -= unit
        part[1, 1] += unit
        return found

    return product


def single_precision(real, rng):
    def product(self, *given):
        found = real(self, *given)
        part = found[1] if isinstance(found, tuple) else found
        part[...] = part.astype(np.float32)
        return found

    return product


def not_a_number(real, rng):
    def product(self, *given):
        found = real(self, *given)
        if isinstance(found, tuple):
            found[1][-1, 0] = np.nan
            return found
        found = found.astype(np.float64)
        found[0, 0] = np.nan
        return found

    return product


def _unit(store, given, found, output):
    """The smallest error that a product can have: one unit of the lattice."""
    if not isinstance(found, tuple):
        return 1
    operand = given[1]
    if isinstance(operand, tuple):
        return float(operand[-1][output, 0])
    scores = found[1]
    return float(np.spacing(np.abs(scores[output]).max()))  # a multiple of the unit


FAULTS = [off_by_one, two_that_cancel, single_precision, not_a_number]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize("store", STORES)
def test_a_wrong_product_is_found_every_time(store, which, fault, monkeypatch):
    """An error passes once in 2^30 times: in all of these trials together, once in a million."""
    rows, targets, loss, weights = problem()
    data, options = stored(rows, store)
    engine = engine_for(data, targets, loss, threads=1, **options)
    engine.gradient_sum(weights, 0.5)  # right, and what it found is kept for steps on all rows
    cls = type(engine.store)
    monkeypatch.setattr(cls, which, fault(getattr(cls, which), np.random.default_rng(0)))
    for batch in (None, BATCH):
        for _ in range(25):
            with pytest.raises(MachineError, match="came out wrong"):
                engine.gradient_sum(weights, 0.5, batch=batch)
    fresh = engine_for(data, targets, loss, threads=2, **options)
    with pytest.raises(MachineError, match="came out wrong"):
        fresh.gradient_sum(weights, 0.5)


def strassen(a, b):
    """Strassen's method, whose intermediate sums are not those of the operands."""
    m, n, k = (size // 2 * 2 for size in (a.shape[0], a.shape[1], b.shape[1]))
    if min(m, n, k) == 0:
        return a @ b
    h, i, j = m // 2, n // 2, k // 2
    a11, a12, a21, a22 = a[:h, :i], a[:h, i:n], a[h:m, :i], a[h:m, i:n]
    b11, b12, b21, b22 = b[:i, :j], b[:i, j:k], b[i:n, :j], b[i:n, j:k]
    p = [strassen(a11 + a22, b11 + b22), strassen(a21 + a22, b11), strassen(a11, b12 - b22)]
    p += [strassen(a22, b21 - b11), strassen(a11 + a12, b22), strassen(a21 - a11, b11 + b12)]
    p += [strassen(a12 - a22, b21 + b22)]
    out = a @ b
    out[:h, :j] = p[0] + p[3] - p[4] + p[6]
    out[:h, j:k] = p[2] + p[4]
    out[h:m, :j] = p[1] + p[3]
    out[h:m, j:k] = p[0] - p[1] + p[2] + p[5]
    out[:m, :k] += a[:m, n:] @ b[n:, :k]
    return out


def in_single_precision(a, b):
    return np.asarray(a, dtype=np.float32) @ np.asarray(b, dtype=np.float32)


class Library:
    """NumPy with another matrix product."""

    def __init__(self, product):
        self.product = product

    def __getattr__(self, name):
        return getattr(np, name)

    def matmul(self, a, b, out):
        out[...] = self.product(a, b)
        return out


@pytest.mark.parametrize("product", [strassen, in_single_precision])
def test_a_library_that_is_not_conventional_is_found(product, monkeypatch):
    # Large operands: where there is room to spare, Strassen's method is exact as well.
    n, d = 8192, 8
    rng = np.random.default_rng(0)
    loss = get_loss("squared")
    targets = loss.targets(-rng.uniform(1e6, 2e6, n), 1)
    rows = rng.uniform(0.9, 1.0, (n, d))
    weights = rng.uniform(0.9e3, 1e3, size=(16, d, 1))
    monkeypatch.setattr(compact, "level", lambda: None)  # by a library, not by loops of ours
    engine = engine_for(rows, targets, loss)
    expected = engine.gradient_sum(weights, 1.999)
    monkeypatch.setattr(storage, "np", Library(product))
    plain = engine_for(rows, targets, loss, "exact").gradient_sum(weights, 1.999)
    assert (plain.values != expected.values).any()  # this would have been released
    for batch in (None, np.arange(1, n)):
        with pytest.raises(MachineError, match="came out wrong"):
            engine.gradient_sum(weights, 1.999, batch=batch)


class Placed(Softmax):
    """A residual that is another one in odd places of an array."""

    def residual(self, scores, targets, out=None):
        found = super().residual(scores, targets, out)
        found[1::2] *= 1 + 2.0**-9
        return found


class Social(Softmax):
    """A residual that depends on the rows beside it."""

    def residual(self, scores, targets, out=None):
        found = super().residual(scores, targets, out)
        found *= 1 + 2.0**-9 * np.abs(found).mean()
        return found


@pytest.mark.parametrize(("loss", "share"), [(Placed(), 0.5), (Social(), 1.0)])
def test_a_residual_that_depends_on_its_place_is_found_as_often_as_stated(loss, share):
    rows, targets, _, weights = problem(n=96)
    engine = engine_for(rows, targets, loss, threads=1)
    engine.store.block_rows = 96  # one block in a step
    trials, found = 600, 0
    with engine:
        for _ in range(trials):
            try:
                engine.gradient_sum(weights, 0.5)
            except MachineError as error:
                assert "where the row stands" in str(error)
                found += 1
    # The stated probability is share/4: below five standard deviations once in 3 million runs.
    chance = share / strict.AGAIN
    assert found > trials * chance - 5 * math.sqrt(trials * chance * (1 - chance))


def test_a_loss_of_one_s_own_passes_if_it_keeps_to_its_rows():
    class Mine(Softmax):
        def residual(self, scores, targets, out=None):
            found = super().residual(scores, targets, out)
            np.multiply(found, 0.5, out=found)
            return found

    rows, targets, _, weights = problem()
    engine = engine_for(rows, targets, Mine())
    for _ in range(50):
        engine.gradient_sum(weights, 0.5)


def test_nothing_of_the_step_is_released(monkeypatch):
    rows, targets, loss, _ = problem(n=200)
    facts = PublicFacts(200, D, K, typical_norm=1.0, mu=1.0)
    engine = engine_for(rows, targets, loss, threads=1)
    cls, calls, opened = type(engine.store), [], []
    real = cls.backward
    stream = Key.stream

    def backward(self, held, multipliers, work):
        found = real(self, held, multipliers, work)
        calls.append(1)
        if len(calls) == 4:  # one block in a step: the fourth
            found[0, 0] += 1
        return found

    def watched(self, label, step=0, worker=0):
        opened.append((label, step))
        return stream(self, label, step, worker)

    engine.store.block_rows = 208
    monkeypatch.setattr(cls, "backward", backward)
    monkeypatch.setattr(Key, "stream", watched)
    with pytest.raises(MachineError):
        DPGD(steps=10).resolve(facts).train(
            engine, run_of(DPGD(steps=10).resolve(facts), 3.0, facts, Key.fresh()), facts
        )
    assert [step for label, step in opened if label == "noise"] == [0, 1, 2]


# --- Stages --------------------------------------------------------------------------------------


CLASSES = np.random.default_rng(5).integers(0, 3, 400)
ROWS = np.random.default_rng(6).normal(size=(400, 8)) + np.eye(3, 8)[CLASSES] * 3


def fitted(*stages, **options):
    model = DPLinearClassifier(
        5.0, 1e-3, stages=list(stages), trainer=DPGD(steps=3), arithmetic="strict", **options
    )
    return model.fit(ROWS, CLASSES)


PROJECTIONS = [RandomProjection(3, seed=0), PublicPCA(ROWS[:50] / 2, 3), PrivatePCA(3)]


@pytest.mark.parametrize("stage", PROJECTIONS, ids=lambda stage: stage.name)
def test_projections_are_checked(stage, monkeypatch):
    fitted(ClipNorm(3.0), stage)

    class Wrong(Library):
        def asarray(self, product):
            product[-1, -1] += 1
            return product

    monkeypatch.setattr(linear, "np", Wrong(None))
    with pytest.raises(MachineError, match="projection"):
        fitted(ClipNorm(3.0), stage)


def test_sparse_projections_are_checked():
    rows = as_rows(sp.csr_array(np.where(np.abs(ROWS) > 1, ROWS, 0.0)), bound=3.0)
    stage = RandomProjection(3, seed=0)
    stage.fit(rows, paid(400, Key.from_seed(0), strict=True))
    plain = RandomProjection(3, seed=0).fit(rows)
    assert (stage.transform(rows).collect() == plain.transform(rows).collect()).all()
    chunk = next(iter(rows.chunks()))[1]
    product = np.zeros((400, 3))
    with pytest.raises(MachineError, match="projection"):
        ProductCheck(stage.matrix_ / stage.unit_)(np.round(chunk * 100), product)


@pytest.mark.parametrize("error", [1.0, 2.0**40, np.nan, 0.5])
def test_second_moments_are_checked(error, monkeypatch):
    monkeypatch.setattr(covariance, "added", lambda *given: False)  # loops, if there are any
    real = covariance.dsyrk

    def wrong(*given, **named):
        found = real(*given, **named)
        found[0, 3] += error
        return found

    def moment(**how):
        return noisy_second_moment([ROWS[:150], ROWS[150:]], 8, 3.0, token(1.0), size=400, **how)

    assert (moment(strict=True) == moment()).all()
    covariance.self_test()
    monkeypatch.setattr(covariance, "dsyrk", wrong)
    with pytest.raises(MachineError, match="second moment"):
        moment(strict=True)


def test_second_moments_collected_in_parts_are_checked(monkeypatch):
    monkeypatch.setattr(covariance, "TOGETHER", 64)
    noisy_second_moment([ROWS[:150], ROWS[150:]], 8, 3.0, token(1.0), size=400, strict=True)


class Misplaced(Normalize):
    def apply(self, chunk):
        found = super().apply(chunk)
        found[::2] *= 1 - 2.0**-40
        return found


@pytest.mark.parametrize("later", [[], [PrivatePCA(3)]], ids=["trainer", "private stage"])
def test_stages_that_depend_on_the_place_are_found_before_anything_is_drawn(later, monkeypatch):
    drawn = []
    real = Stream.discrete_gaussian

    def watched(self, sigma, count):
        drawn.append(count)
        return real(self, sigma, count)

    monkeypatch.setattr(Stream, "discrete_gaussian", watched)
    failures = 0
    for _ in range(40):
        try:
            fitted(Misplaced(), *later)
        except MachineError:
            failures += 1
            assert not drawn
        drawn.clear()
    assert failures >= 4  # a cut shows it with probability 1/2 or more


def test_strict_arithmetic_is_written_down():
    model = fitted(Normalize())
    claim = model.certificate_
    assert claim.plan["arithmetic"] == "strict"
    assert any(said.startswith("strict: every product") for said in claim.assumptions)
    assert not any("wherever it stands" in said for said in claim.assumptions)
    assert claim.numerical_delta > 0
    assert claim.verify().holds


def test_strict_arithmetic_costs_no_noise():
    model = fitted(Normalize())
    exact = DPLinearClassifier(5.0, 1e-3, stages=[Normalize()], trainer=DPGD(steps=3))
    exact.fit(ROWS, CLASSES)
    assert model.plan_.noise_multiplier == exact.plan_.noise_multiplier
    assert model.certificate_.numerical_delta == exact.certificate_.numerical_delta


def test_noiseless_stages_are_refused():
    with pytest.raises(InputError, match="arithmetic='strict' checks sums of integers"):
        fitted(ClipNorm(1.0), SoftPCA())


# --- The self-test -------------------------------------------------------------------------------


def test_the_engine_tests_itself_once_before_the_first_sum(monkeypatch):
    rows, targets, loss, _ = problem()
    calls = []
    monkeypatch.setattr(selftest, "self_test", lambda: calls.append(1))
    selftest.tested.cache_clear()
    try:
        engine_for(rows, targets, loss, "fast")
        assert not calls
        for arithmetic in ("exact", "strict", "rounded"):
            engine_for(rows, targets, loss, arithmetic)
        assert len(calls) == 1
    finally:
        selftest.tested.cache_clear()


@pytest.mark.parametrize("product", [strassen, in_single_precision, lambda a, b: a @ b + 1])
def test_a_wrong_library_does_not_pass_the_self_test(product, monkeypatch):
    selftest.self_test()
    monkeypatch.setattr(storage, "np", Library(product))
    with pytest.raises(MachineError, match="dense matrix product is not exact"):
        selftest.self_test()


def test_a_wrong_sparse_product_does_not_pass_the_self_test(monkeypatch):
    real = SparseStore.backward
    monkeypatch.setattr(SparseStore, "backward", lambda *given: real(*given) + 1)
    with pytest.raises(MachineError, match="sparse matrix product is not exact"):
        selftest.self_test()


@pytest.mark.parametrize("kind", [Placed, Social])
def test_a_loss_that_depends_on_places_does_not_pass_the_self_test(kind, monkeypatch):
    monkeypatch.setitem(LOSSES, "softmax", kind)
    with pytest.raises(MachineError, match="softmax loss depends on where a row stands"):
        selftest.self_test()


def test_a_wrong_second_moment_does_not_pass_its_self_test(monkeypatch):
    real = covariance.dsyrk
    monkeypatch.setattr(covariance, "dsyrk", lambda *a, **k: np.float32(real(*a, **k)))
    covariance.self_test.cache_clear()
    try:
        with pytest.raises(MachineError, match="second moment"):
            noisy_second_moment([ROWS], 8, 3.0, token(1.0, Key.from_seed(0), "it"), size=400)
    finally:
        covariance.self_test.cache_clear()


def test_operands_of_the_self_test_are_as_large_as_may_be():
    for shape in ((48, 37, 3), (256, 384, 10)):
        for alike in (True, False):
            rows, columns, multipliers = selftest.operands(*shape, alike=alike)
            for found in (np.abs(columns) @ np.abs(rows).T, np.abs(multipliers) @ np.abs(rows)):
                assert 2**51 < found.max() <= 2**52
            for found in (columns @ rows.T, multipliers @ rows):
                assert np.abs(found).max() > 2**51
                assert 0.2 < (found % 2).mean() < 0.8  # the last bit counts


def test_the_self_test_is_short():
    def once():
        start = time.process_time()
        selftest.self_test()
        return time.process_time() - start

    with threadpool_limits(1, user_api="blas"):
        assert min(once() for _ in range(5)) < 0.05
