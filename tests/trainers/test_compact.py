"""Tables in 16 bits: the same integers from every kernel and NumPy, and never more than a clip."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import array_api_compat.numpy as xp
import numpy as np
import pytest

from tacit.data.rows import as_rows
from tacit.data.streams import Columns
from tacit.engine import quantization as quantize
from tacit.engine.array_api import ArrayEngine
from tacit.engine.engine import Engine
from tacit.engine.kernels import compact
from tacit.engine.quantization import (
    EXACT_BITS,
    FEATURE_MAX,
    LATTICE_ROWS,
    Clipping,
    Scale,
    Weights,
)
from tacit.engine.storage import DenseStore, Rounding, with_norms
from tacit.exceptions import InputError, MachineError
from tacit.losses import elementary, get_loss

LEVELS = compact.levels()
WAYS = [*LEVELS.values(), None]
compiled_only = pytest.mark.skipif(not LEVELS, reason="no compiler where this was installed")
native = compact.native


@pytest.fixture
def way(monkeypatch):
    """Switch to a level of the compiled loops, or to NumPy."""
    return lambda level: monkeypatch.setattr(compact, "level", lambda: level)


def problem(name, outputs, *, n=333, d=21, settings=1, seed=0):
    rng = np.random.default_rng(seed + outputs)
    loss = get_loss(name)
    rows = rng.normal(size=(n, d)) / np.sqrt(d)
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    given = rng.normal(size=n) if loss.task == "regression" else rng.integers(0, max(outputs, 2), n)
    return rows, loss.targets(given, outputs), loss, rng.normal(size=(settings, d + 1, outputs))


def sums(given, *, clips=(0.4,), batch=None, per_class=False, **options):
    rows, targets, loss, weights = given
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, intercept=0.5, **options)
    found = engine.gradient_sums(weights, clips, batch=batch, per_class=per_class)
    return [s.values for s in found]


def both(way, given, **options):
    """Sums of every level of the compiled loops, and of NumPy."""
    found = []
    for level in WAYS:
        way(level)
        found.append(sums(given, **options))
    return found


@pytest.mark.parametrize("arithmetic", ["exact", "strict"])
@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        *[("softmax", k) for k in (2, 3, 5, 7, 11)],
        *[("logistic", k) for k in (1, 4)],
        *[("squared", 1), ("hinge", 1), ("hinge", 3), ("savage", 1)],
    ],
)
def test_sums_are_the_same_with_and_without_compiled_loops(way, name, outputs, arithmetic):
    given = problem(name, outputs)
    for batch in (None, np.arange(0, 333, 3), np.array([7]), np.empty(0, dtype=int)):
        for per_class in (False, True):
            options = {"batch": batch, "arithmetic": arithmetic, "threads": 2}
            first, *others = both(way, given, per_class=per_class, **options)
            for other in others:
                assert np.array_equal(first[0], other[0])


@compiled_only
def test_large_tables_are_kept_for_the_compiled_loops(way):
    rows, targets, loss, _ = problem("softmax", 3)
    engine = Engine(as_rows(rows, bound=1.0), targets, loss)
    assert isinstance(engine.store, compact.CompactStore)
    assert engine.store.vectors.shape == (333, 32)
    assert engine.store.vectors.ctypes.data % 64 == 0
    way(None)
    engine = Engine(as_rows(rows, bound=1.0), targets, loss)
    assert type(engine.store) is DenseStore


def test_settings_trained_together_are_as_alone(way):
    given = problem("softmax", 4, settings=3)
    for level in WAYS:
        way(level)
        (together,) = sums(given, clips=(np.array([0.1, 0.4, 2.0]),))
        for s, clip in enumerate((0.1, 0.4, 2.0)):
            alone = (*given[:3], given[3][s : s + 1])
            assert np.array_equal(together[s], sums(alone, clips=(clip,))[0][0])


def test_both_parts_of_a_split_row_are_the_same(way):
    first, *others = both(way, problem("softmax", 4, settings=3), clips=(0.3, 0.2), split=9)
    for other in others:
        assert all(np.array_equal(one, two) for one, two in zip(first, other, strict=True))


def test_rows_that_are_read_again_and_arrays_elsewhere_give_the_same(way):
    given = rows, targets, loss, weights = problem("softmax", 4)
    for level in WAYS:
        way(level)
        (kept,) = sums(given)
        (again,) = sums(given, memory=0)
        assert np.array_equal(kept, again)
        there = ArrayEngine(as_rows(rows, bound=1.0), targets, loss, xp=xp, intercept=0.5)
        assert np.array_equal(kept, there.gradient_sum(weights, 0.4).values)


@pytest.mark.parametrize("name", ["softmax", "squared"])
def test_removing_a_row_removes_exactly_its_own_sum(way, name):
    outputs = 10 if name == "softmax" else 1
    rows, targets, *more = given = problem(name, outputs, n=61)
    for level in WAYS:
        way(level)
        (whole,) = sums(given)
        for i in (0, 16, 60):
            rest = np.delete(np.arange(61), i)
            (without,) = sums((rows[rest], targets[rest], *more))
            (alone,) = sums(given, batch=np.array([i]))
            assert np.array_equal(whole - without, alone)


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("outputs", [1, 10])
@pytest.mark.parametrize("clip", [1e-6, 0.05, 1.0, 300.0])
def test_no_row_counts_for_more_than_the_clip(way, outputs, clip, per_class):
    """Rows of all lengths, also beyond what was promised, and steep weights."""
    rng = np.random.default_rng(7)
    rows, targets, loss, weights = problem("softmax" if outputs > 1 else "logistic", outputs, n=40)
    rows *= np.exp2(rng.integers(-16, 6, 40))[:, None]
    rows[5] = 100.0
    rows[6] = 0.0
    given = rows, targets, loss, weights * 50
    for level in WAYS:
        way(level)
        for i in range(40):
            (alone,) = sums(given, clips=(clip,), batch=np.array([i]), per_class=per_class)
            lattice = 2.0 ** (quantize.ceil_log2(LATTICE_ROWS * clip) - EXACT_BITS)
            square = int((alone.astype(object) ** 2).sum())
            assert square * lattice**2 <= clip**2


def test_rows_beyond_their_bound_are_shortened_in_the_same_way(way):
    given = problem("softmax", 5)
    rows = given[0]
    rows[::7] *= 1000.0
    first, *others = both(way, (rows, *given[1:]))
    for other in others:
        assert np.array_equal(first[0], other[0])
    scale = Scale.of(1.0, 22, None, 0.5)
    store = DenseStore(333, 22, "exact", (slice(0, 22),), scale.longest)
    kept = scale.integers(np.column_stack([rows, np.full(333, 0.5)]))
    store.fill(slice(0, 333), kept)
    norms = np.linalg.norm(store.values.astype(float), axis=1)
    assert norms.max() <= scale.longest < np.linalg.norm(kept, axis=1).max()
    honest = np.ones(333, dtype=bool)
    honest[::7] = False
    assert np.array_equal(store.values[honest], kept[honest])


def test_promised_rows_are_not_shortened():
    """At the very bound, in single precision, in whatever direction, with an intercept."""
    rng = np.random.default_rng(1)
    for d in (16, 100, 3000):
        rows = rng.normal(size=(50, d)).astype(np.float32) ** 3
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        for bound in (1.0, 0.75, 1.0001):
            for intercept in (0.0, 0.3, 1.5):
                scale = Scale.of(bound, d + 1, None, intercept)
                constant = np.full((50, 1), intercept)
                kept = scale.integers(np.hstack([rows * np.float32(bound), constant]))
                assert np.linalg.norm(kept, axis=1).max() < scale.longest


def test_scores_fit_32_bits_and_weights_16():
    """The largest score there is: a row along the weights, of the largest norm of rows."""
    rng = np.random.default_rng(2)
    for d in (16, 57, 784, 20_000):
        for bound in (1.0, 0.51, 3.0):
            for intercept in (0.0, 1.0):
                scale = Scale.of(bound, d, None, intercept)
                for power in (1, 9):
                    weights = rng.normal(size=(1, d, 1)) ** power * np.exp2(rng.integers(-30, 30))
                    grid = Weights.of(weights, scale, "exact")
                    assert np.abs(grid.columns).max() < 2**15
                    assert scale.longest * np.linalg.norm(grid.columns) < 2**31
                    rounded = grid.columns * grid.unit / scale.unit
                    wrong = np.linalg.norm(rounded - weights[0].T)
                    assert wrong <= np.linalg.norm(weights) * 2.0**-14 * np.sqrt(d)


@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_multipliers_beyond_two_parts_are_summed_as_ever(way, name):
    """Short rows with large residuals and a small clip: more than 28 bits."""
    rows, targets, loss, weights = problem(name, 1)
    rows[3], rows[3, 0] = 0.0, 2.0**-14
    rows[4] = 0.0
    weights[:] = 0.0
    first, *others = both(way, (rows, targets, loss, weights), clips=(1e-4,))
    assert all(np.array_equal(first[0], other[0]) for other in others)


def lengthened(rng, rows, lines):
    """Multipliers as large as clipping lets them be beside these rows: |x| |z| up to 2^39."""
    norms = np.sqrt((rows.astype(float) ** 2).sum(axis=1))
    signs = rng.choice([-1.0, 1.0], (lines, 1)) * np.ones(len(rows))
    size = 2.0**39 / np.maximum(norms, 1) * rng.choice([1.0, 0.999, 0.01], len(rows))
    return np.trunc(signs * size)


@compiled_only
@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("seed", range(24))
def test_products_are_the_integers_that_they_should_be(level, seed):
    """Of rows as long as they may be, in one feature or in many, in any number, one after the other
    or out of order."""
    rng = np.random.default_rng(seed)
    n, d, lines = rng.integers(1, 900), 16 * rng.integers(1, 40), rng.integers(1, (4, 25)[seed % 2])
    rows = np.clip(rng.normal(size=(n, d)) * FEATURE_MAX / d**0.5, -FEATURE_MAX, FEATURE_MAX)
    peaks = rng.random(n) < (0.0, 0.1, 1.0)[seed % 3]
    rows[peaks] = 0
    rows[peaks, rng.integers(0, d, peaks.sum())] = rng.choice([-FEATURE_MAX, FEATURE_MAX])
    rows[rng.random(n) < 0.05] = 0
    if seed % 2:  # every row's largest feature is in one column, with one sign
        rows = np.abs(np.sort(rows, axis=1))
    rows = np.trunc(rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True) / FEATURE_MAX))
    rows = rows.astype(np.int16)
    index = rng.permutation(n)[: rng.integers(0, n + 1)] if seed % 4 else None
    start, stop = sorted(rng.integers(0, (n if index is None else len(index)) + 1, 2))
    chosen = (rows if index is None else rows[index])[start:stop].astype(np.int64)
    weights = rng.normal(size=(lines, d))
    weights *= 65_000 / np.linalg.norm(weights, axis=1, keepdims=True)
    weights = np.clip(np.trunc(weights), -FEATURE_MAX, FEATURE_MAX).astype(np.int16)
    scores = np.empty((lines, len(chosen)), np.int32)
    native.scores(level, rows, index, start, stop, weights, scores)
    assert np.array_equal(scores, weights.astype(np.int64) @ chosen.T)
    highest = np.abs(rows).max(axis=1).astype(np.uint16)
    z, onto = lengthened(rng, chosen, lines), np.full((lines, d), 7)
    native.sums(level, rows, index, start, stop, highest, z, onto)
    assert np.array_equal(onto - 7, z.astype(np.int64) @ chosen)


@compiled_only
@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_products_are_exact_at_the_largest_operands(level):
    n = 4096
    rows = np.zeros((n, 16), dtype=np.int16)
    rows[:, 3] = FEATURE_MAX
    peaks = np.full(n, FEATURE_MAX, dtype=np.uint16)
    largest = 2**39 // FEATURE_MAX
    for value in (largest, -largest, largest - 4096, largest - 4097, (FEATURE_MAX << 13) + 4095):
        total = np.zeros((1, 16), np.int64)
        native.sums(level, rows, None, 0, n, peaks, np.full((1, n), float(value)), total)
        assert total[0].tolist() == [0] * 3 + [n * FEATURE_MAX * value] + [0] * 12


@compiled_only
@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("name", ["softmax", "logistic", "squared"])
def test_steps_are_those_of_numpy_to_the_bit(level, name):
    """Of random scores of all sizes, clips and settings; rows of one feature show multipliers."""
    rng = np.random.default_rng(3)
    loss, n = get_loss(name), 149
    for outputs in {"softmax": (2, 3, 30), "logistic": (1, 5), "squared": (1,)}[name]:
        for settings in (1, 3):
            rows = np.zeros((n, 16), np.int16)
            rows[:, 0] = rng.integers(-FEATURE_MAX, FEATURE_MAX + 1, n)
            rows[::9] = 0
            weights = np.zeros((settings * outputs, 16), np.int16)
            weights[:, 0] = rng.integers(-FEATURE_MAX, FEATURE_MAX + 1, len(weights))
            unit = np.exp2(rng.integers(-40, -22, len(weights)).astype(float))
            given = rng.normal(size=n) if name == "squared" else rng.integers(0, max(outputs, 2), n)
            targets = loss.targets(given, outputs)
            norms = np.maximum(1.0, np.abs(rows[:, 0].astype(float)))
            for per_class in (False, True):
                clip = np.exp2(rng.uniform(-9, 3, settings))
                clipping = Clipping.of(
                    clip, outputs, Scale.of(1.0, 16, None, 0.0), "exact", per_class
                )
                right = weights[:, :1].astype(float) * rows[:, 0] * unit[:, None]
                cube = right.reshape(settings, outputs, n)
                for setting in cube:
                    loss.portable().residual(setting.T, targets, out=setting.T)
                clipping.apply(cube, 1 / norms)
                fused = compact.Fused(loss, clipping, (weights, None, unit))
                peaks = np.abs(rows[:, 0]).astype(np.uint16)
                for i in (None, 0, 8, 148):  # all rows, or one
                    span = range(n) if i is None else range(i, i + 1)
                    onto = np.zeros(weights.shape, np.int64)
                    held = rows, None, span.start, span.stop, peaks, *fused.weights, targets
                    native.step(level, fused.loss, *held, 1 / norms, *fused.terms, onto)
                    exact = right.astype(np.int64)[:, span] @ rows.astype(np.int64)[span]
                    assert np.array_equal(onto, exact)


@compiled_only
def test_constants_in_the_loops_are_those_of_numpy():
    source = Path(compact.__file__).with_name("native.c").read_text(encoding="utf-8")
    found = dict(re.findall(r"#define (\w+) \(?(-?[0-9a-fx.p+-]+)\)?", source))
    for name in ("LOWEST", "LOG2E", "LN2_HIGH", "LN2_LOW"):
        assert float.fromhex(found[name]) == getattr(elementary, name)
    assert float.fromhex(found["TINY"]) == quantize.TINY["exact"]
    series = re.search(r"EXP\[8\] = \{(.*?)\}", source).group(1).split(",")
    terms = [float(t.split("/")[0]) / float((t + "/1").split("/")[1]) for t in series]
    assert terms == elementary.EXP
    assert elementary.SQUARINGS == 4  # 0x1p-4 and four loops


@compiled_only
@pytest.mark.parametrize("wrong", ["scores", "sums", "step"])
def test_loops_that_are_wrong_are_refused(monkeypatch, wrong):
    real = getattr(native, wrong)

    def off_by_one(*given):
        real(*given)
        given[-1][..., -1] += 1

    monkeypatch.setattr(compact, "native", type("Broken", (), dict(vars(native)))())
    for name in ("scores", "sums", "step"):
        function = off_by_one if name == wrong else getattr(native, name)
        monkeypatch.setattr(compact.native, name, function)
    with pytest.raises(MachineError, match="TACIT_KERNELS=numpy"):
        compact.self_test(0)


def test_the_environment_names_a_level(monkeypatch):
    monkeypatch.setenv("TACIT_KERNELS", "numpy")
    assert compact.level.__wrapped__() is None
    for name, number in LEVELS.items():
        monkeypatch.setenv("TACIT_KERNELS", name)
        assert compact.level.__wrapped__() == number
    monkeypatch.setenv("TACIT_KERNELS", "abacus")
    with pytest.raises(InputError, match="abacus"):
        compact.level.__wrapped__()


def test_without_the_extension_numpy_does_it(monkeypatch):
    monkeypatch.delenv("TACIT_KERNELS", raising=False)
    monkeypatch.setattr(compact, "native", None)
    assert compact.level.__wrapped__() is None


GUARDED = """
import sys; sys.path[:0] = {folders!r}
import numpy as np
from test_compact import *
from tests.guarded import guarded
rng = np.random.default_rng(0)
for level in LEVELS.values():
    for n, d, lines in ((1, 16, 1), (17, 48, 2), (33, 80, 3), (170, 784, 11), (5, 112, 19)):
        rows = guarded(rng.integers(-999, 999, (n, d)).astype(np.int16))
        peaks, inverse = guarded(np.full(n, 999, np.uint16)), guarded(np.full(n, 2.0**-12))
        weights = guarded(rng.integers(-9, 9, (lines, d)).astype(np.int16))
        for index in (None, guarded(np.arange(n)[::-1])):
            out, onto = guarded(np.zeros((lines, n), np.int32)), guarded(np.zeros((lines, d), int))
            native.scores(level, rows, index, 0, n, weights, out)
            native.sums(level, rows, index, 0, n, peaks, guarded(np.ones((lines, n))), onto)
            ones, targets = guarded(np.ones(lines)), guarded(np.ones((n, lines)))
            terms = (guarded(np.ones(1) * 2.0**39), guarded(np.ones(1) * 2.0**24), 0.5, 1.0, False)
            for loss, given in ((0, targets), (1, guarded(np.zeros(n, int))), (2, targets)):
                how = (peaks, weights, ones, given, inverse, *terms, onto)
                native.step(level, loss, rows, index, 0, n, *how)
        for kind in (np.float32, np.float64):
            values = rng.normal(size=(n, d - 3)).astype(kind)
            for given in (guarded(values), [guarded(c) for c in values.T]):
                how = (guarded(np.zeros(d - 3)), 1000.0, 7, rows, guarded(np.zeros(n)), peaks)
                assert native.rounded(level, given, *how)
    kinds = ((1, 1, 1, 64), (17, 3, 2, 1 << 14), (33, 20, 5, 4096), (170, 37, 11, 8192))
    for n, shapes, lines, one in (*kinds, (170, 9, 1, 1 << 14), (700, 2, 1, 4096)):
        ends = guarded(np.concatenate([[0], np.cumsum(rng.integers(1, 70, shapes))]))
        reach = 16 + -(-(int(ends[-1]) + 33) // 16) * 16
        rows = guarded(rng.integers(-999, 999, (n, 16)).astype(np.int16))
        peaks, inverse = guarded(np.full(n, 4096, np.uint16)), guarded(np.full(n, 2.0**-12))
        weights = guarded(rng.integers(-9, 9, (lines, reach)).astype(np.int16))
        own, hold = np.diff(ends) - 1, 0xFFFF // one
        planes = int(np.where(own > 48, 2, np.maximum(-(-own // hold), 1)).sum())
        cells = guarded(rng.integers(0, 2**16, (-(-n // 16), planes, 16), dtype=np.uint16))
        for cells in (cells, guarded(cells & 7)):  # places that no shape has, and some
            held = (rows, cells, ends, one, guarded(np.zeros(lines, np.int32)))
            for index, start in ((None, 0), (None, n // 2), (guarded(np.arange(n)[::-1]), 0)):
                out = guarded(np.zeros((lines, n - start), np.int32))
                onto, z = guarded(np.zeros((lines, reach), int)), np.ones((lines, n - start))
                native.scores(level, held, index, start, n, weights, out)
                native.sums(level, held, index, start, n, peaks, guarded(z * 2.0**40), onto)
                native.sums(level, held, index, start, n, peaks, guarded(z), onto)
                terms = (guarded(np.ones(1) * 2.0**39), guarded(np.ones(1) * 2.0**24), 0.5, 1.0)
                how = (peaks, weights, guarded(np.ones(lines)), guarded(np.ones((n, lines))))
                native.step(level, 0, held, index, start, n, *how, inverse, *terms, False, onto)
"""


@compiled_only
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_nothing_is_read_or_written_beyond_the_buffers():
    here = Path(__file__).parent
    code = GUARDED.format(folders=[str(here), str(here.parents[1])])
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@compiled_only
def test_buffers_that_do_not_suit_each_other_are_refused():
    n, d = 20, 32
    rows, peaks = np.zeros((n, d), np.int16), np.zeros(n, np.uint16)
    weights, out = np.zeros((2, d), np.int16), np.zeros((2, n), np.int32)
    z, onto = np.zeros((2, n)), np.zeros((2, d), np.int64)
    index = np.arange(n)
    read_only = np.zeros((2, n), np.int32)
    read_only.flags.writeable = False
    for error, given in (
        (ValueError, (0, rows[:, :31].copy(), None, 0, n, weights[:, :31].copy(), out)),
        (ValueError, (0, rows, None, 0, n + 1, weights, out)),
        (ValueError, (0, rows, None, -1, n, weights, out)),
        (ValueError, (0, rows, None, 5, 4, weights, out)),
        (ValueError, (0, rows, index + 1, 0, n, weights, out)),
        (ValueError, (0, rows, index - 1, 0, n, weights, out)),
        (ValueError, (0, rows, None, 0, n, weights[:, :16].copy(), out)),
        (ValueError, (0, rows, None, 0, n, weights, out[:, :-1].copy())),
        (ValueError, (0, rows, None, 0, n, weights, out[:1])),
        (ValueError, (7, rows, None, 0, n, weights, out)),
        (TypeError, (0, rows.astype(np.int32), None, 0, n, weights, out)),
        (TypeError, (0, rows, index.astype(np.int32), 0, n, weights, out)),
        (ValueError, (0, np.asfortranarray(rows), None, 0, n, weights, out)),
        (ValueError, (0, rows, None, 0, n, weights, read_only)),
        (TypeError, (0, None, None, 0, n, weights, out)),
    ):
        with pytest.raises((error, BufferError)):
            native.scores(*given)
    cells, ends = np.zeros((2, 3, 16), np.uint16), np.array([0, 2, 5, 9])
    wide, base = np.zeros((2, d + 48), np.int16), np.zeros(2, np.int32)
    native.scores(0, (rows, cells, ends, 64, base), None, 0, n, wide, out)
    for shaped, used in (
        ((rows, cells[:1], ends, 64, base), wide),
        ((rows, cells[:, :2].copy(), ends, 64, base), wide),
        ((rows, cells, ends[::-1].copy(), 64, base), wide),
        ((rows, cells, ends + 1, 64, base), wide),
        ((rows, cells, ends, 0, base), wide),
        ((rows, cells, ends, 1 << 15, base), wide),
        ((rows, cells, np.array([0, 2, 5, 10]), 1 << 14, base), wide),  # two planes
        ((rows, cells, ends, 48, base), wide),
        ((rows, cells, ends[:0], 64, base), wide),
        ((rows, cells, ends, 64, base[:1]), wide),
        ((rows, cells, ends, 64, None), wide),
        ((rows, cells, ends, 64, base), weights),
    ):
        with pytest.raises(ValueError):
            native.scores(0, shaped, None, 0, n, used, out)
    for given in (
        (0, rows, None, 0, n, peaks[:-1].copy(), z, onto),
        (0, rows, None, 0, n, peaks, z[:, 1:].copy(), onto),
        (0, rows, None, 0, n, peaks, z, onto[:, :16].copy()),
        (0, rows, None, 0, n, peaks, z, onto[:1]),
        (0, rows, None, 0, n, peaks, z + 2.0**47, onto),
        (0, rows, None, 0, n, peaks, z * np.nan, onto),
    ):
        with pytest.raises(ValueError):
            native.sums(*given)
    right = {
        "peaks": peaks, "weights": weights, "unit": np.ones(2), "targets": np.ones((n, 2)),
        "inverse": np.ones(n), "ceiling": np.ones(1), "multiplier": np.ones(1),
        "allowance": 0.5, "shrink": 1.0, "separate": False, "onto": onto,
    }  # fmt: skip
    native.step(0, 0, rows, None, 0, n, *right.values())
    for name, value in (
        ("peaks", peaks[1:].copy()),
        ("unit", np.ones(3)),
        ("targets", np.ones((n, 1))),
        ("targets", np.ones((n - 1, 2))),
        ("inverse", np.ones(n + 1)),
        ("ceiling", np.ones(3)),
        ("ceiling", np.full(1, 2.0**47)),
        ("ceiling", np.ones(0)),
        ("multiplier", np.ones(2)),
        ("allowance", 0.0),
        ("shrink", 2.0),
        ("onto", onto[:1]),
    ):
        with pytest.raises(ValueError):
            native.step(0, 0, rows, None, 0, n, *{**right, name: value}.values())
    for loss in (-1, 3):
        with pytest.raises(ValueError):
            native.step(0, loss, rows, None, 0, n, *right.values())
    values, shift, squares = np.zeros((n, 20)), np.zeros(20), np.zeros(n)
    for given in (
        (values[1:].copy(), shift, 1.0, None, rows, squares, peaks),
        (values, shift[1:].copy(), 1.0, None, rows, squares, peaks),
        (values, shift, 1.0, 40_000, rows, squares, peaks),
        (values, shift, 1.0, None, rows, squares[1:].copy(), peaks),
        (values, shift, 1.0, None, rows, squares, peaks[1:].copy()),
        (np.zeros((n, 40)), np.zeros(40), 1.0, None, rows, squares, peaks),
        (list(values.T[1:].copy()), shift, 1.0, None, rows, squares, peaks),
        ([np.zeros(n - 1)] * 20, shift, 1.0, None, rows, squares, peaks),
        ([*[np.zeros(n)] * 19, np.zeros(n, np.float32)], shift, 1.0, None, rows, squares, peaks),
        (values.astype(np.int64), shift, 1.0, None, rows, squares, peaks),
    ):
        with pytest.raises(ValueError):
            native.rounded(0, *given)


@compiled_only
def test_a_row_is_shortened_by_its_own_length_alone():
    """Beside a longer row, one of just the largest norm stays as it is."""
    d = 22
    scale = Scale.of(1.0, d, None, 0.0)
    edge = np.zeros(d)
    edge[:2] = 32_767, np.floor(np.sqrt(scale.longest**2 - 32_767**2))
    for longest in (np.linalg.norm(edge), scale.longest):
        longer = np.full(d, 20_000.0)
        alone, _ = with_norms(edge[None], (slice(0, d),), True, longest)
        beside, _ = with_norms(np.stack([longer, edge]), (slice(0, d),), True, longest)
        assert np.array_equal(alone[0], edge)
        assert np.array_equal(beside[1], edge)
        assert np.linalg.norm(beside[0]) <= longest


@pytest.mark.parametrize("settings", [4, 7, 16])
@pytest.mark.parametrize("name", ["softmax", "logistic"])
def test_many_settings_together_are_as_alone(way, name, settings):
    outputs = 5 if name == "softmax" else 4
    given = problem(name, outputs, settings=settings, d=43)
    clips = np.geomspace(0.01, 9.0, settings)
    for level in WAYS:
        way(level)
        for batch in (None, np.arange(0, 333, 4)):
            (together,) = sums(given, clips=(clips,), batch=batch)
            for s, clip in enumerate(clips):
                alone = (*given[:3], given[3][s : s + 1])
                assert np.array_equal(together[s], sums(alone, clips=(clip,), batch=batch)[0][0])


@compiled_only
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_rounded_alike_however_they_lie(dtype, tmp_path):
    """One after the other, in columns, read-only, in any number; beside nothing but zeros."""
    rng = np.random.default_rng(5)
    d = 37
    values = (rng.normal(size=(301, d)) * np.exp2(rng.integers(-20, 3, (301, d)))).astype(dtype)
    values[7] = 0.0
    values.flags.writeable = False
    scale = Scale.of(2.0, d + 1, None, 0.5)
    shift = rng.normal(size=d) * 0.01
    shift.flags.writeable = False
    for moved in (None, shift):
        rounding = Rounding(scale, True, 0.5, moved)
        right = DenseStore(301, d + 1, "exact", (slice(0, d + 1),), scale.longest)
        right.take(slice(0, 301), values, rounding)
        columns = [np.ascontiguousarray(column) for column in values.T]
        np.save(tmp_path / "rows.npy", values)
        odd = np.frombuffer(b" " + values.tobytes(), np.uint8)[1:].view(dtype).reshape(values.shape)
        swapped = values.astype(np.dtype(dtype).newbyteorder())
        mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
        arrays = [values, np.asfortranarray(values), mapped, odd, swapped]
        for chunk in (*arrays, values[:, ::-1][:, ::-1], Columns(columns, False)):
            store = compact.CompactStore(301, d + 1, "exact", right.parts, scale.longest)
            store.vectors[:] = -1
            store.vectors[:, d + 1 :] = 0
            store.take(slice(0, 301), chunk, rounding)
            assert np.array_equal(store.values, right.values)
            assert np.array_equal(store.inverse_norms[0], right.inverse_norms[0])
            assert not store.vectors[:, d + 1 :].any()
            assert np.array_equal(store.peaks, np.abs(right.values).max(axis=1))


@compiled_only
def test_memory_that_is_let_go_of_is_not_read(tmp_path):
    """Where the C library fills what is freed, and all threads share what they free."""
    code = """
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from tacit.data.streams import Columns
from tacit.engine.kernels.compact import CompactStore
from tacit.engine.quantization import Scale
from tacit.engine.storage import Rounding
scale = Scale.of(1.0, 300, None, 0.0)
cells = np.random.default_rng(0).normal(size=(300, 640)) / 30
def fill(_):
    store = CompactStore(640, 300, "exact", (slice(0, 300),), scale.longest)
    store.take(slice(0, 640), Columns(list(cells), False), Rounding(scale, True, 0.0, None))
    return store.vectors
right = np.clip(np.rint(cells.T / scale.unit), -32767, 32767)
with ThreadPoolExecutor(4) as pool:
    for found in pool.map(fill, range(40)):
        assert (found[:, :300] == right).all() and not found[:, 300:].any()
"""
    memory = {"MALLOC_PERTURB_": "165", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **memory})


def test_targets_in_any_order_in_memory(way):
    rows, targets, loss, weights = problem("logistic", 4, n=320)
    for level in WAYS:
        way(level)
        (one,) = sums((rows, targets, loss, weights))
        (other,) = sums((rows, np.asfortranarray(targets), loss, weights))
        assert np.array_equal(one, other)
