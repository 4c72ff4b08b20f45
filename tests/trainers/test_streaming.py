"""Rows that are read again for every sum: the same sums, models and errors, in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import yaml

from tacit import DPLinearClassifier, DPLinearRegressor, Ledger
from tacit.cli.settings import Settings
from tacit.cli.tasks import tables
from tacit.cli.tasks.fit import fit as fit_table
from tacit.cli.tasks.predict import predict
from tacit.data import as_rows, parquet, scan
from tacit.data.rows import DenseSource, Rows
from tacit.engine.engine import Engine
from tacit.engine.quantization import Scale
from tacit.engine.storage import DenseStore
from tacit.engine.streaming import Streamed, held
from tacit.exceptions import FileError, InputError, SchemaError
from tacit.losses import get_loss
from tacit.preprocessing import (
    ClipNorm,
    Dedup,
    NoiselessImpute,
    Normalize,
    PrivateCenter,
    PrivatePCA,
    RandomProjection,
    SoftPCA,
)
from tacit.trainers import DPGD, DPSGD

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N, D = 12_011, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = (X[:, 0] + RNG.normal(size=N) > 0).astype(int)
WIDE = X.astype(np.float64)
KINDS = ["parquet", "npy", "csv"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same rows as Parquet, as an array and as text."""
    folder = tmp_path_factory.mktemp("rows")
    names = [f"x{i}" for i in range(D)]
    table = pa.table([*(pa.array(c) for c in X.T), pa.array(Y)], names=[*names, "y"])
    pq.write_table(table, folder / "parquet", row_group_size=3000)
    np.save(folder / "npy", X)
    with open(folder / "csv", "w", encoding="utf-8") as file:
        file.write(",".join([*names, "y"]) + "\n")
        file.writelines(
            ",".join(map(repr, row)) + f",{y}\n" for row, y in zip(WIDE.tolist(), Y, strict=True)
        )
    for kind in ("parquet", "csv"):
        os.rename(folder / kind, folder / f"rows.{kind}")
    os.rename(folder / "npy.npy", folder / "rows.npy")
    return folder


def stored(files, kind, memory=1):
    target = None if kind == "npy" else "y"
    return scan(files / f"rows.{kind}", target=target, memory=memory)


def sums(rows, targets, loss, weights, batch, **options):
    split = options.get("split")
    clips = [1.0] if split is None else [1.0, 0.5]
    with Engine(rows, targets, loss, **options) as engine:
        kept = isinstance(engine.store, DenseStore)
        found = engine.gradient_sums(weights, clips)
        found += engine.gradient_sums(weights, clips, batch=batch)
        found += engine.gradient_sums(weights, clips, batch=batch[:0])
        if rows.blanked is not None:
            with pytest.raises(InputError, match="blanked would count"):
                engine.loss_sum(weights, 3.0)
            return kept, [total.values for total in found]
        return kept, [total.values for total in found] + [engine.loss_sum(weights, 3.0)]


@pytest.mark.parametrize("arithmetic", ["exact", "strict", "rounded", "fast"])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_the_same_bit_for_bit(files, kind, arithmetic):
    loss = get_loss("logistic")
    targets = loss.targets(Y, outputs=1)
    weights = np.random.default_rng(1).normal(size=(2, D + 1, 1))
    batch = np.flatnonzero(np.random.default_rng(2).random(N) < 0.03)
    options = {"intercept": 1.0, "arithmetic": arithmetic, "split": 2}
    kept, expected = sums(as_rows(WIDE, bound=2.5), targets, loss, weights, batch, **options)
    streamed, found = sums(
        as_rows(stored(files, kind), bound=2.5), targets, loss, weights, batch, **options
    )
    assert kept
    assert not streamed
    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("threads", [1, 3])
def test_sums_of_mapped_shifted_and_blank_rows_are_the_same(files, threads):
    loss = get_loss("softmax")
    targets = loss.targets(Y, outputs=2)
    weights = np.random.default_rng(1).normal(size=(1, 3, 2))
    batch = np.arange(5, N, 17)
    cells = WIDE.copy()
    cells[::50] = 0.0
    np.save(files / "blank.npy", cells)
    stages = (ClipNorm(2.0), RandomProjection(n_components=2, seed=3))
    options = {"intercept": 0.5, "shift": np.array([0.1, -0.2])}
    blanked = np.arange(N) % 7 == 3  # not the rows that are zero
    found = []
    for source in (cells, np.load(files / "blank.npy", mmap_mode="r"), scan(files / "blank.npy")):
        rows = as_rows(source)
        for stage in stages:
            stage.fit(rows.hidden())
            rows = stage.through(rows)
        rows = replace(rows, blanked=blanked)
        memory = None if source is cells else 1
        how = {"memory": memory, "threads": threads, **options}
        kept, values = sums(rows, targets, loss, weights, batch, **how)
        assert kept == (source is cells)
        found.append(values)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))
    left = as_rows(cells[~blanked])
    for stage in stages:
        left = stage.through(left)
    _, values = sums(left, targets[~blanked], loss, weights, batch[:9], **options)
    assert np.array_equal(found[0][0], values[0])  # the sum over all rows is that of the others


def test_rows_that_begin_wide_are_read_a_few_at_a_time(monkeypatch):
    read = []

    class Narrow:
        def apply(self, chunk):
            read.append(chunk.shape)
            return chunk[:, :2]

    monkeypatch.setattr("tacit.engine.streaming.TILE_CELLS", 4000)
    cells = np.random.default_rng(0).normal(size=(500, 100))
    rows = Rows(DenseSource(cells), (Narrow(),), d=2, bound=4.0)
    loss = get_loss("logistic")
    weights = np.ones((1, 2, 1))
    found = []
    for memory in (None, 1):
        with Engine(rows, loss.targets(Y[:500], 1), loss, memory=memory) as engine:
            read.clear()
            found.append(engine.gradient_sum(weights, 1.0).values)
    assert np.array_equal(*found)
    assert max(count for count, _ in read) <= 40


def test_single_precision_is_rounded_to_the_same_integers():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    halves = (rng.integers(-(1 << 16), 1 << 16, 20_000) / 2).astype(np.float32)
    for bound in (2.0**-60, 1.0, 3.7, 2.0**60):
        scale = Scale.of(bound, 10, None, 0.0)
        for values in (bits[np.isfinite(bits)], halves * np.float32(scale.unit)):
            single, double = scale.integers(values), scale.integers(values.astype(np.float64))
            assert single.dtype == np.float32
            assert np.array_equal(single, double)


def test_whether_rows_are_kept_is_decided_by_public_facts(files):
    rows = as_rows(stored(files, "parquet", memory=None), bound=1.0)
    assert held(rows, D, "exact")
    for arithmetic, size in (("exact", 2), ("fast", 4), ("rounded", 8)):
        assert held(rows, D, arithmetic, memory=N * D * size)
        assert not held(rows, D, arithmetic, memory=N * D * size - 1)
    assert held(as_rows(sp.csr_array(WIDE), bound=1.0), D, "exact", memory=1)
    assert isinstance(
        Engine(rows, get_loss("squared").targets(X[:, 0], 1), get_loss("squared"), memory=1).store,
        Streamed,
    )


def test_a_map_that_is_not_shared_is_asked_by_one_thread_at_a_time():
    busy, most = [0], [0]

    class Network:
        thread_safe = False

        def apply(self, chunk):
            busy[0] += 1
            most[0] = max(most[0], busy[0])
            time.sleep(0.002)
            busy[0] -= 1
            return chunk

    rows = Rows(DenseSource(WIDE), (Network(),), d=D, bound=1.0)
    loss = get_loss("logistic")
    with Engine(rows, loss.targets(Y, 1), loss, memory=1, threads=4) as engine:
        engine.gradient_sum(np.zeros((1, D, 1)), 1.0)
    assert most == [1]


# --- models ------------------------------------------------------------------------------------


@cache
def in_memory(name):
    return model(name).fit(WIDE, Y)


def model(name):
    how = {"random_state": 0}
    rows = how | {"stages": [Normalize(), PrivateCenter()]}  # of numbers, wherever they are
    return {
        "auto": lambda: DPLinearClassifier(trainer=DPGD(steps=5), **rows),
        "samples": lambda: DPLinearClassifier(
            0.3, trainer=DPSGD(steps=20, batch_size=1200), stages=[ClipNorm(2.0)], **how
        ),
        "strict": lambda: DPLinearClassifier(
            trainer=DPGD(steps=2), arithmetic="strict", classes=[0, 1], **rows
        ),
        "plain": lambda: DPLinearClassifier(
            trainer=DPGD(steps=3), stages=[Normalize(), SoftPCA(0.1)], **how
        ),
        "private": lambda: DPLinearClassifier(
            trainer=DPGD(steps=3), stages=[Normalize(), PrivatePCA(2), PrivateCenter()], **how
        ),
        "numbers": lambda: DPLinearRegressor(trainer=DPGD(steps=3), target_bounds=(0, 1), **rows),
    }[name]()


@pytest.mark.parametrize("name", ["auto", "samples", "strict", "plain", "private", "numbers"])
@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_models_are_the_same_bit_for_bit(files, kind, name):
    data = stored(files, kind)
    made = model(name).fit(data, Y) if kind == "npy" else model(name).fit(data)
    expected = in_memory(name)
    assert np.array_equal(made.coef_, expected.coef_)
    assert np.array_equal(made.intercept_, expected.intercept_)
    assert made.certificate_.events == expected.certificate_.events
    assert np.array_equal(made.predict(stored(files, kind)), expected.predict(WIDE))
    names = [f"x{i}" for i in range(D)]
    assert made.get_feature_names_out().tolist() == names


def test_a_memory_map_is_fitted_as_it_is(files, monkeypatch):
    monkeypatch.setattr("tacit.data.memory.SHARE", 1 << 60)
    mapped = np.load(files / "rows.npy", mmap_mode="r")
    made = model("auto").fit(mapped, Y)
    assert np.array_equal(made.coef_, in_memory("auto").coef_)
    assert np.array_equal(made.predict(mapped), made.predict(WIDE))
    with pytest.raises(InputError, match="has 2 features"):
        made.predict(mapped[:, :2])
    with pytest.raises(InputError, match="one value for each row"):
        model("auto").fit(mapped)


def test_bytes_in_files_are_bytes(tmp_path):
    cells = np.random.default_rng(0).integers(0, 256, (500, 3), dtype=np.uint8)
    y = np.arange(500) % 2
    np.save(tmp_path / "rows.npy", cells)
    table = pa.table({f"x{i}": column for i, column in enumerate(cells.T)})
    pq.write_table(table, tmp_path / "rows.parquet")
    expected = model("auto").fit(cells, y).coef_
    for name in ("rows.npy", "rows.parquet"):
        assert as_rows(scan(tmp_path / name)).bytes
        assert np.array_equal(model("auto").fit(scan(tmp_path / name), y).coef_, expected)
    pq.write_table(table.append_column("z", pa.array(y)), tmp_path / "rows.parquet")
    assert not as_rows(scan(tmp_path / "rows.parquet")).bytes
    assert as_rows(scan(tmp_path / "rows.parquet", target="z")).bytes


def test_a_scan_can_be_gone_on_with(files):
    made = model("auto").fit(stored(files, "parquet"))
    made.partial_fit(stored(files, "parquet"), epsilon=1.0, delta=1e-5)
    other = model("auto").fit(WIDE, Y).partial_fit(WIDE, Y, epsilon=1.0, delta=1e-5)
    assert np.array_equal(made.coef_, other.coef_)


def test_y_is_taken_from_the_target_or_given(files):
    with pytest.raises(InputError, match="y is missing"):
        model("auto").fit(scan(files / "rows.npy"))
    data = scan(files / "rows.parquet", drop="y")
    assert np.array_equal(model("auto").fit(data, Y).coef_, in_memory("auto").coef_)
    with pytest.raises(InputError, match="not among its classes"):
        DPLinearClassifier(classes=[0, 2]).fit(stored(files, "parquet"))
    with pytest.raises(InputError, match="at least two"):
        DPLinearClassifier(classes=[0]).fit(stored(files, "parquet"))
    said = DPLinearClassifier(trainer=DPGD(steps=1), classes=[0, 1]).fit(stored(files, "parquet"))
    assert "the set of labels was given in advance" in said.certificate_.assumptions


def test_stages_that_hold_all_rows_say_so_before_anything_is_spent(files, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db").create("rows", epsilon=3.0, delta=1e-4)
    median = NoiselessImpute(
        "median", rows_with_gaps=10, median_change=0.1, columns=[0], at_prediction=0.0
    )
    for stage in (Dedup(radius=0.1, crowd=3), median):
        made = DPLinearClassifier(1.0, 1e-5, stages=[ClipNorm(1.0), stage], ledger=ledger)
        with pytest.raises(InputError, match=r"looks at all rows at once, and 12011 of"):
            made.fit(stored(files, "parquet"))
    assert ledger.charges() == []
    with pytest.raises(InputError, match="looks at all rows at once"):
        Dedup(radius=0.1, crowd=3).fit(stored(files, "npy"))


def test_public_rows_must_not_be_the_private_file(files):
    from tacit.preprocessing import PublicCenter

    made = DPLinearClassifier(stages=[ClipNorm(1.0), PublicCenter(scan(files / "rows.npy"))])
    with pytest.raises(InputError, match="its public rows are the private rows"):
        made.fit(stored(files, "npy"), Y)


# --- what goes wrong in the middle ---------------------------------------------------------------


def spoil(path, cells=None):
    """Write rows, some of them bad."""
    pq.write_table(
        pa.table({f"x{i}": c for i, c in enumerate(cells.T)} | {"y": Y}), path, row_group_size=4000
    )
    return path


def bad_value(path):
    cells = X.copy()
    cells[9_000, 2] = np.nan
    return scan(spoil(path, cells), target="y", memory=1)


def bad_row_group(path):
    spoil(path, X)
    column = pq.ParquetFile(path).metadata.row_group(2).column(1)
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)
    return scan(path, target="y", memory=1)


def changing(path):
    found = scan(spoil(path, X), target="y", memory=1)
    before = parquet.ParquetFiles.batches
    seen = []

    def watched(self, start=0, index=None):
        seen.append(start)
        if len(seen) == 4:  # labels, the centre, then steps
            spoil(path, X + 1)
        return before(self, start, index)

    parquet.ParquetFiles.batches = watched
    return found, before


@pytest.mark.parametrize("make", [bad_value, bad_row_group, changing])
def test_a_run_that_fails_in_the_middle_is_spent_and_leaves_no_model(make, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db").create("rows", epsilon=3.0, delta=1e-4)
    stages = [Normalize(), PrivateCenter()]
    made = DPLinearClassifier(1.0, 1e-5, stages=stages, trainer=DPGD(steps=5), ledger=ledger)
    data = make(tmp_path / "t.parquet")
    data, restore = data if isinstance(data, tuple) else (data, None)
    threads = threading.active_count()
    try:
        with pytest.raises(InputError) as error:
            made.fit(data)
    finally:
        if restore is not None:
            parquet.ParquetFiles.batches = restore
    said = {bad_value: "NaN or infinity", bad_row_group: "damaged", changing: "has changed"}[make]
    assert said in str(error.value)
    assert not hasattr(made, "coef_")
    (charge,) = ledger.charges()
    assert charge.outcome == "not finished"
    assert ledger.remaining().spent > 0
    del error
    for _ in range(300):
        if threading.active_count() <= threads:
            break
        time.sleep(0.01)
    assert threading.active_count() <= threads


def test_workers_stop_where_one_of_them_failed():
    rows = as_rows(WIDE, bound=1.0)
    seen = []

    class Fails:
        def apply(self, chunk):
            seen.append(len(chunk))
            raise FileError("gone")

    rows = Rows(rows.source, (Fails(),), d=D, bound=1.0)
    loss = get_loss("logistic")
    engine = Engine(rows, loss.targets(Y, 1), loss, memory=1, threads=2)
    with pytest.raises(FileError, match="gone"):
        engine.gradient_sum(np.zeros((1, D, 1)), 1.0)
    assert len(seen) <= 16  # groups


# --- the command -------------------------------------------------------------------------------

SCHEMA = {
    "target": "rich",
    "classes": ["no", "yes"],
    "columns": {
        "age": {"kind": "number", "low": 0, "high": 100},
        "job": {"kind": "category", "categories": ["cook", "nurse"]},
    },
    "ignore": ["id"],
}


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """One table: as a folder of Parquet files, and as text; and its schema."""
    folder = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, 3000)
    job = rng.choice(["cook", "nurse", "smith"], 3000)
    rich = np.where(age + 30 * (job == "cook") > 60, "yes", "no")
    table = pa.table({"id": np.arange(3000), "age": age, "job": job, "rich": rich})
    (folder / "people").mkdir()
    for i in range(3):
        pq.write_table(table.slice(1000 * i, 1000), folder / "people" / f"{i}.parquet")
    with open(folder / "people.csv", "w", encoding="utf-8") as file:
        file.write("id,age,job,rich\n")
        file.writelines(",".join(map(str, row.values())) + "\n" for row in table.to_pylist())
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    return folder


def test_the_command_scans_folders_and_large_files(people, monkeypatch, tmp_path):
    settings = Settings(2.0, 1e-4, steps=10)
    how = {"schema": people / "schema.yaml", "random_state": 0, "test": people / "people.csv"}
    usual = fit_table(people / "people.csv", settings, out=tmp_path / "a", **how)
    folder = fit_table(people / "people", settings, out=tmp_path / "b", **how, memory=10)
    monkeypatch.setattr(tables, "LARGE_FILE", 1000)
    large = fit_table(people / "people.csv", settings, out=tmp_path / "c", **how)
    for other in (folder, large):
        assert np.array_equal(usual.estimator.coef_, other.estimator.coef_)
        assert usual.results == other.results
    for name in ("people", "people.csv"):
        count = predict(tmp_path / "b", people / name, tmp_path / "p.csv", force=True)
        assert count == 3000
    without = {k: v for k, v in SCHEMA.items() if k != "classes"}
    (tmp_path / "open.yaml").write_text(yaml.safe_dump(without))
    how |= {"schema": tmp_path / "open.yaml", "test": people / "people"}
    read = fit_table(people / "people", settings, out=tmp_path / "d", **how)
    assert read.estimator.classes_.tolist() == ["no", "yes"]
    assert read.results == usual.results


def test_the_command_refuses_before_anything_is_written(people, tmp_path):
    settings = Settings(2.0, 1e-4, steps=10)
    how = {"schema": people / "schema.yaml", "out": tmp_path / "out"}
    with pytest.raises(SchemaError, match="lacks the target"):
        fit_table(people / "people", settings, **how | {"schema": {**SCHEMA, "target": "poor"}})
    with pytest.raises(InputError, match="baseline"):
        fit_table(people / "people", settings, **how, test=people / "people", baseline=True)
    with pytest.raises(InputError, match="private table itself"):
        inside = people / "people" / "1.parquet"
        fit_table(people / "people", Settings(2.0, 1e-4, recipe="pillar"), **how, public=inside)
    with pytest.raises(InputError, match="not among its classes"):
        fit_table(
            people / "people", settings, **how | {"schema": {**SCHEMA, "classes": ["no", "maybe"]}}
        )
    np.save(tmp_path / "rows.npy", X)
    with pytest.raises(FileError, match="is an array"):
        fit_table(tmp_path / "rows.npy", settings, **how, memory=1e9)
    assert not (tmp_path / "out").exists()


# --- memory ------------------------------------------------------------------------------------

FIT = """
import json, sys
import numpy as np
from tacit import DPLinearClassifier
from tacit.data import scan
from tacit.preprocessing import ClipNorm, PrivateCenter
from tacit.trainers import DPGD
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
small, data = (scan(path, target="y", memory=1) for path in sys.argv[1:])
trainer, stages = DPGD(steps=1), [ClipNorm(5.0), PrivateCenter()]
for _ in range(6):  # how many batches lie in memory is up to the threads: as many as ever do
    DPLinearClassifier(trainer=trainer, stages=stages).fit(small)
before = peak()
DPLinearClassifier(trainer=trainer, stages=stages).fit(data)
print(json.dumps([before, peak()]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_does_not_grow_with_the_table(tmp_path):
    cells = np.random.default_rng(0).standard_normal((100, 25_000), dtype=np.float32)
    names = [f"x{i}" for i in range(100)]
    table = pa.table([*map(pa.array, cells), pa.array(cells[0] > 0).cast("int8")], [*names, "y"])
    pq.write_table(table, tmp_path / "rows", use_dictionary=False, compression="none")
    paths = [str(tmp_path / "few"), str(tmp_path / "many")]
    for path, count in zip(paths, (12, 34), strict=True):  # 440 MB more, as float64
        os.mkdir(path)
        for i in range(count):
            os.link(tmp_path / "rows", Path(path, f"{i}.parquet"))
    done = subprocess.run(
        [sys.executable, "-c", FIT, *paths], capture_output=True, text=True, check=True
    )
    before, after = json.loads(done.stdout)
    assert after - before < 45
