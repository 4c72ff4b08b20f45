"""Large tables in 16 bits: the same integers with and without Numba, and never more than a clip."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import array_api_compat.numpy as xp
import numpy as np
import pytest

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.data.streams import Columns
from tacit.engine import quantization as quantize
from tacit.engine import storage
from tacit.engine.array_api import ArrayEngine
from tacit.engine.engine import Engine
from tacit.engine.kernels import compact
from tacit.engine.quantization import EXACT_BITS, LATTICE_ROWS, Clipping, Scale, Weights
from tacit.engine.storage import DenseStore, Rounding, with_norms
from tacit.exceptions import MachineError
from tacit.losses import get_loss
from tacit.trainers import DPGD

try:
    from tacit.engine.kernels import vectors
except ImportError:  # no Numba
    WAYS = [False]
else:
    WAYS = [True, False]

compiled_only = pytest.mark.skipif(len(WAYS) < 2, reason="needs Numba")


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(quantize, "COMPACT", 0)


@pytest.fixture
def way(monkeypatch):
    """Switch the compiled loops on or off."""
    real = compact.loops

    def switch(compiled):
        monkeypatch.setattr(compact, "loops", real if compiled else lambda: None)

    return switch


def problem(name, outputs, *, n=333, d=21, settings=1, seed=0):
    rng = np.random.default_rng(seed + outputs)
    loss = get_loss(name)
    rows = rng.normal(size=(n, d)) / np.sqrt(d)
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    given = rng.normal(size=n) if loss.task == "regression" else rng.integers(0, max(outputs, 2), n)
    return rows, loss.targets(given, outputs), loss, rng.normal(size=(settings, d + 1, outputs))


def sums(given, *, clips=(0.4,), batch=None, per_class=False, size=1000, **options):
    rows, targets, loss, weights = given
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, intercept=0.5, size=size, **options)
    found = engine.gradient_sums(weights, clips, batch=batch, per_class=per_class)
    return [s.values for s in found]


def both(way, given, **options):
    """Sums with and without compiled loops, or only without."""
    found = []
    for compiled in WAYS:
        way(compiled)
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
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, size=1000)
    assert isinstance(engine._store, compact.CompactStore)
    assert engine._store.vectors.shape == (333, 32)
    way(False)
    engine = Engine(as_rows(rows, bound=1.0), targets, loss, size=1000)
    assert type(engine._store) is DenseStore


def test_settings_trained_together_are_as_alone(way):
    given = problem("softmax", 4, settings=3)
    for compiled in WAYS:
        way(compiled)
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
    for compiled in WAYS:
        way(compiled)
        (kept,) = sums(given)
        (again,) = sums(given, memory=0)
        assert np.array_equal(kept, again)
        there = ArrayEngine(
            as_rows(rows, bound=1.0), targets, loss, xp=xp, intercept=0.5, size=1000
        )
        assert np.array_equal(kept, there.gradient_sum(weights, 0.4).values)


@pytest.mark.parametrize("name", ["softmax", "squared"])
def test_removing_a_row_removes_exactly_its_own_sum(way, name, monkeypatch):
    """Although the table without it is a small one: the public size decides, not the rows."""
    outputs = 10 if name == "softmax" else 1
    rows, targets, *more = given = problem(name, outputs, n=61)
    monkeypatch.setattr(quantize, "COMPACT", 61 * 22)
    for compiled in WAYS:
        way(compiled)
        (whole,) = sums(given, size=61)
        for i in (0, 16, 60):
            rest = np.delete(np.arange(61), i)
            (without,) = sums((rows[rest], targets[rest], *more), size=61)
            (alone,) = sums(given, batch=np.array([i]), size=61)
            assert np.array_equal(whole - without, alone)


def test_only_a_public_size_makes_a_table_large():
    assert not quantize.compact(None, 1000, "exact")
    assert not quantize.compact(10**9, 1000, "fast")
    assert not quantize.compact(10**9, 1000, "rounded")
    assert not quantize.compact(10**9, quantize.COMPACT_FEATURES - 1, "exact")
    assert quantize.compact(1, 100, "strict")


@pytest.mark.parametrize("size", [299, 300])
def test_a_plan_goes_by_the_public_size_where_the_number_of_rows_is_private(monkeypatch, size):
    monkeypatch.setattr(quantize, "COMPACT", 300 * 22)
    rows, *_ = problem("logistic", 1)
    labels = (rows[:, 0] > 0).astype(int)
    seen, real = [], Engine.__init__

    def spy(self, *given, **options):
        real(self, *given, **options)
        seen.append(self.compact)

    monkeypatch.setattr(Engine, "__init__", spy)
    plan = {"neighbors": "add_or_remove_one", "public_size": size, "trainer": DPGD(steps=2)}
    for n in (299, 301):
        DPLinearClassifier(8.0, 1e-4, **plan).fit(rows[:n], labels[:n])
    assert seen == [size == 300] * 2


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
    for compiled in WAYS:
        way(compiled)
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
    scale = Scale.of(1.0, 22, None, 0.5, small=True)
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
                scale = Scale.of(bound, d + 1, None, intercept, small=True)
                constant = np.full((50, 1), intercept)
                kept = scale.integers(np.hstack([rows * np.float32(bound), constant]))
                assert np.linalg.norm(kept, axis=1).max() < scale.longest


def test_scores_fit_32_bits_and_weights_16():
    """The largest score there is: a row along the weights, of the largest norm of rows."""
    rng = np.random.default_rng(2)
    for d in (16, 57, 784, 20_000):
        for bound in (1.0, 0.51, 3.0):
            for intercept in (0.0, 1.0):
                scale = Scale.of(bound, d, None, intercept, small=True)
                for power in (1, 9):
                    weights = rng.normal(size=(1, d, 1)) ** power * np.exp2(rng.integers(-30, 30))
                    grid = Weights.of(weights, scale, "exact")
                    assert np.abs(grid.columns).max() < 2**15
                    assert scale.longest * np.linalg.norm(grid.columns) < 2**31
                    rounded = grid.columns * grid.unit / scale.unit
                    wrong = np.linalg.norm(rounded - weights[0].T)
                    assert wrong <= np.linalg.norm(weights) * 2.0**-14 * np.sqrt(d)


@compiled_only
@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_multipliers_beyond_two_parts_are_summed_as_ever(way, name, monkeypatch):
    """A short row with a large residual and a small clip: more than 28 bits."""
    rows, targets, loss, weights = problem(name, 1)
    rows[3], rows[3, 0] = 0.0, 2.0**-14
    weights[:] = 0.0
    calls, real = [], compact.CompactStore._widened
    monkeypatch.setattr(
        compact.CompactStore, "_widened", lambda *given: calls.append(1) or real(*given)
    )
    found = []
    for compiled in (True, False):
        way(compiled)
        engine = Engine(as_rows(rows, bound=1.0), targets, loss, size=1000)
        found.append(engine.gradient_sum(weights[:, :-1], 1e-4).values)
        assert len(calls) == 1
    assert np.array_equal(*found)


@compiled_only
def test_products_are_exact_at_the_largest_operands():
    loops = compact.loops()
    many = 4096
    rows = np.zeros((many, 16), dtype=np.int16)
    rows[:, 3] = quantize.FEATURE_MAX
    largest = 2**39 // quantize.FEATURE_MAX
    for value in (largest, -largest, largest - 4096, largest - 4097):
        parts, total = np.empty((2, many), np.int16), np.zeros((1, 16), np.int64)
        assert loops.limbs(np.full((1, many), float(value)), parts)
        loops.sums(rows, np.arange(many), parts, np.empty((1, 16 * many), np.int16), total)
        assert total[0].tolist() == [0] * 3 + [many * quantize.FEATURE_MAX * value] + [0] * 12


@compiled_only
@pytest.mark.parametrize("name", ["softmax", "logistic"])
def test_residuals_in_the_loops_are_those_of_numpy_to_the_bit(name):
    rng = np.random.default_rng(3)
    loss, loops = get_loss(name), compact.loops()
    for outputs in (2, 3, 30) if name == "softmax" else (1, 5):
        for settings in (1, 3):
            many = 160
            raw = rng.integers(1 - 2**31, 2**31, (settings * outputs, many)).astype(np.int32)
            raw[:, ::5] = 0
            unit = np.exp2(rng.integers(-40, -22, settings * outputs).astype(float))
            targets = loss.targets(rng.integers(0, max(outputs, 2), many), outputs)
            inverse = 1 / np.exp2(rng.uniform(11, 16, many))
            for per_class in (False, True):
                clip = np.exp2(rng.uniform(-3, 3, settings))
                scale = Scale.of(1.0, 100, None, 0.0)
                terms = Clipping.of(clip, outputs, scale, "exact", per_class)
                wide = raw * unit[:, None]
                cube = wide.reshape(settings, outputs, many)
                for setting in cube:
                    loss.portable().residual(setting.T, targets, out=setting.T)
                terms.apply(cube, inverse)
                wide[:, 150:] = 0
                parts = np.empty((2 * settings * outputs, many), np.int16)
                aside = np.empty((outputs, compact.LANES))
                how = (inverse, compact._terms(terms), 150, aside, parts)
                assert getattr(loops, name)(raw, unit, compact._lines(targets), *how)
                found = (parts[::2].astype(np.int64) << compact.LIMB) + parts[1::2]
                assert np.array_equal(found, wide)


def test_small_tables_do_not_load_a_compiler(monkeypatch):
    monkeypatch.setattr(quantize, "COMPACT", 1 << 24)
    monkeypatch.setattr(compact, "loops", lambda: pytest.fail("loaded"))
    rows, targets, loss, _ = problem("softmax", 3)
    assert type(Engine(as_rows(rows, bound=1.0), targets, loss, size=333)._store) is DenseStore


def test_without_numba_there_are_no_compiled_loops(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert compact.loops.__wrapped__() is None


@compiled_only
@pytest.mark.parametrize(
    "wrong", ["scores", "sums", "softmax", "logistic", "rounded_rows", "rounded_columns"]
)
def test_loops_that_are_wrong_are_refused(wrong):
    real = compact.loops()
    broken = SimpleNamespace(**{name: getattr(real, name) for name in real.__all__})

    def off_by_one(*given):
        found = getattr(real, wrong)(*given)
        given[-1][..., -1] += 1
        return found

    setattr(broken, wrong, off_by_one)
    with pytest.raises(MachineError, match="numba"):
        compact._try(broken)


@compiled_only
def test_a_row_is_shortened_by_its_own_length_alone():
    """Beside a longer row, one of just the largest norm stays as it is."""
    d = 22
    scale = Scale.of(1.0, d, None, 0.0, small=True)
    edge = np.zeros(d)
    edge[:2] = 32_767, np.floor(np.sqrt(scale.longest**2 - 32_767**2))
    for longest in (np.linalg.norm(edge), scale.longest):
        longer = np.full(d, 20_000.0)
        alone, _ = with_norms(edge[None], (slice(0, d),), True, longest)
        beside, _ = with_norms(np.stack([longer, edge]), (slice(0, d),), True, longest)
        assert np.array_equal(alone[0], edge)
        assert np.array_equal(beside[1], edge)
        assert np.linalg.norm(beside[0]) <= longest


def wide_products():
    found = compact._wide() if len(WAYS) > 1 else None
    if found is None:
        pytest.skip("this processor has no instruction for it")
    return found


def lengthened(rng, rows, multipliers):
    """Multipliers as large as clipping lets them be beside these rows: |x| |z| up to 2^39."""
    norms = np.sqrt((rows.astype(float) ** 2).sum(axis=1))
    most = np.minimum(2.0**39 / np.maximum(norms, 1), (32_767 << compact.LIMB) + 4095)
    return np.trunc(multipliers * most * rng.choice([1.0, 0.999, 0.01], len(rows))).astype(np.int64)


@pytest.mark.parametrize("seed", range(40))
def test_many_columns_give_the_integers_that_they_should(seed):
    """Of rows of the largest norm, in one feature or in many, in any number."""
    made, rng = wide_products(), np.random.default_rng(seed)
    many, d = 16 * rng.integers(1, 60), 16 * rng.integers(1, 40)
    outputs = int(rng.integers(compact.MANY, 50))
    rows = np.clip(rng.normal(size=(many + 5, d)) * 32_767 / d**0.5, -32_767, 32_767)
    peaks = rng.random(many + 5) < (0.0, 0.1, 1.0)[seed % 3]
    rows[peaks] = 0
    rows[peaks, rng.integers(0, d, peaks.sum())] = rng.choice([-32_767, 32_767], peaks.sum())
    if seed % 2:  # every row's largest feature is in one column, with one sign
        rows = np.abs(np.sort(rows, axis=1))
    rows = np.trunc(rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True) / 32_767))
    rows = rows.astype(np.int16)
    index = rng.permutation(many + 5)[:many]
    weights = rng.normal(size=(outputs, d))
    weights *= 65_000 / np.linalg.norm(weights, axis=1, keepdims=True)
    weights = np.clip(np.trunc(weights), -32_767, 32_767).astype(np.int16)
    sign = rng.choice([-1.0, 1.0], (outputs, many)) if seed % 2 else np.ones((outputs, many))
    z = lengthened(rng, rows[index], sign)
    upper = z + (1 << compact.LIMB - 1) >> compact.LIMB
    parts = np.stack([upper, z - (upper << compact.LIMB)], axis=1).reshape(-1, many)
    assert np.abs(parts).max() <= 32_767
    work, onto = storage.Workspace(), made.nothing(outputs, d)
    onto += 7
    found = made.scores(rows, index, made.padded(weights), work)[:outputs]
    made.add(rows, index, parts.astype(np.int16), onto, work)
    whole = rows[index].astype(np.int64)
    assert np.array_equal(found, weights.astype(np.int64) @ whole.T)
    assert np.array_equal(onto[:outputs] - 7, z @ whole)


@pytest.mark.parametrize("settings", [4, 7, 16])
@pytest.mark.parametrize("name", ["softmax", "logistic"])
def test_many_settings_together_are_as_alone(way, name, settings):
    outputs = 5 if name == "softmax" else 4
    given = problem(name, outputs, settings=settings, d=43)
    clips = np.geomspace(0.01, 9.0, settings)
    for compiled in WAYS:
        way(compiled)
        for batch in (None, np.arange(0, 333, 4)):
            (together,) = sums(given, clips=(clips,), batch=batch)
            for s, clip in enumerate(clips):
                alone = (*given[:3], given[3][s : s + 1])
                assert np.array_equal(together[s], sums(alone, clips=(clip,), batch=batch)[0][0])


@compiled_only
def test_processors_without_the_instruction_use_other_loops(way, monkeypatch):
    given = problem("softmax", 6, settings=5)
    (first,) = sums(given)
    monkeypatch.setattr(compact, "_wide", lambda: None)
    assert type(compact.products(30)) is compact.Products
    assert np.array_equal(first, sums(given)[0])


@compiled_only
def test_machine_code_for_another_processor_does_without_the_instruction(tmp_path):
    """A compiler that is asked for an instruction which there is not ends the process."""
    code = """
import tacit.engine.kernels.wide
from tacit.engine.kernels import compact
assert not tacit.engine.kernels.wide.AVAILABLE
assert type(compact.products(compact.MANY)) is compact.Products
"""
    env = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


@compiled_only
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tile_of_two(left == 0", "tile_of_two(True"),
        (
            "z, v = there + k * length + 2 * start",
            "z, v = there + k * length + 2 * (start - first)",
        ),
        ("for first in range(0, many, 2 * chunk)", "for first in range(0, 2 * chunk, 2 * chunk)"),
        ("max(LANES, together", "max(4 * LANES, together"),
    ],
)
def test_planted_faults_of_many_columns_are_found_out(tmp_path, old, new):
    wide_products()
    from tacit.engine.kernels import wide

    source = Path(wide.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    place = tmp_path / f"planted_{abs(hash((old, new)))}.py"
    place.write_text(source.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(place.stem, place)
    planted = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(planted)
    with pytest.raises(MachineError, match="not exact"):
        compact._try_products(compact.WideProducts(planted), (16, 43))


def test_numbers_without_a_counterpart_are_counted(monkeypatch):
    """-2**15 is no number of ours, but the bound on sums must not rest on that."""
    made = wide_products()
    rows, index = np.full((384, 16), -(2**15), np.int16), np.arange(384)
    parts = np.full((32, 384), 4095, np.int16)
    onto = made.nothing(16, 16)
    made.add(rows, index, parts, onto, storage.Workspace())
    assert (onto == -(2**15) * 384 * ((4095 << compact.LIMB) + 4095)).all()


@compiled_only
def test_wrong_products_of_many_columns_are_found_out():
    made = compact.WideProducts(wide_products()._loops)

    class Wrong(compact.WideProducts):
        def add(self, rows, index, parts, onto, work):
            super().add(rows, index, parts, onto, work)
            onto[3, 5] += 1

    compact._try_products(made, (16, 43))
    with pytest.raises(MachineError, match="not exact"):
        compact._try_products(Wrong(made._loops), (16,))


@compiled_only
def test_machine_code_that_is_kept_is_forgotten_when_its_sources_change():
    """Numba looks at the file of a loop only. Put the digest there that this asks for."""
    from tacit.engine.kernels import compiled, wide
    from tacit.losses import elementary

    names = ("BIAS", "EXP", "LN2_HIGH", "LN2_LOW", "LOG2E", "LOWEST", "MANTISSA", "SQUARINGS")
    constants = [getattr(elementary, name) for name in names]
    constants += [compact.LIMB, quantize.TINY["exact"], quantize.FEATURE_MAX]
    here = Path(vectors.__file__).read_text(encoding="utf-8") + repr(constants)
    tiles = Path(vectors.__file__).with_name("tiles.py").read_text(encoding="utf-8")
    for module, source in ((compiled, here), (wide, here + tiles)):
        digest = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
        assert digest == module.BUILT_FROM


@compiled_only
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_rounded_alike_however_they_lie(dtype, tmp_path):
    """One after the other, in columns, read-only, in any number; beside nothing but zeros."""
    rng = np.random.default_rng(5)
    d = 37
    values = (rng.normal(size=(301, d)) * np.exp2(rng.integers(-20, 3, (301, d)))).astype(dtype)
    values[7] = 0.0
    values.flags.writeable = False
    scale = Scale.of(2.0, d + 1, None, 0.5, small=True)
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
        for chunk in (*arrays, Columns(columns, False)):
            store = compact.CompactStore(301, d + 1, "exact", right.parts, scale.longest)
            store.vectors[:] = -1
            store.vectors[:, d + 1 :] = 0
            store.take(slice(0, 301), chunk, rounding)
            assert np.array_equal(store.values, right.values)
            assert np.array_equal(store.inverse_norms[0], right.inverse_norms[0])
            assert not store.vectors[:, d + 1 :].any()


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
scale = Scale.of(1.0, 300, None, 0.0, small=True)
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
    for compiled in WAYS:
        way(compiled)
        (one,) = sums((rows, targets, loss, weights))
        (other,) = sums((rows, np.asfortranarray(targets), loss, weights))
        assert np.array_equal(one, other)
