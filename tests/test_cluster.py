"""Fits on a cluster: the same model and certificate as on one machine, whoever is lost."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from tests.seam import run_of

from tacit import Budget, DPLinearClassifier, DPLinearRegressor, DPSearch, Ledger
from tacit.data import CategoryColumn, NumberColumn, Schema, as_rows
from tacit.data.cluster import Cluster, Parcel
from tacit.data.dask_rows import DaskSource
from tacit.data.shaped import Layout, ShapedChunk
from tacit.engine.dask import ClusterEngine
from tacit.engine.engine import LOSS_UNIT, Engine
from tacit.exceptions import ClusterError, InputError, MachineError, MissingBound, TacitError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Draws
from tacit.model_selection.calibrated import right_or_wrong
from tacit.plan import Plan
from tacit.preprocessing import (
    ClipNorm,
    Dedup,
    Encode,
    NoiselessImpute,
    NoiselessPCA,
    Normalize,
    PrivateBounds,
    PrivateCenter,
    PrivateClip,
    PrivateEncode,
    PrivateImpute,
    PrivatePCA,
    PrivateScale,
    PublicPCA,
    RandomProjection,
    SoftPCA,
)
from tacit.research.trainers import NoisySGD
from tacit.trainers import DPGD, DPSGD
from tacit.trainers.settings import PublicFacts

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

# A worker that is killed closes no connection.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 901)
X = RNG.normal(size=(901, 5)) + Y[:, None]
FEW = DPGD(steps=4)


def settings(**options):
    """Of a local cluster that is small, and silent about those who are killed."""
    return {
        "dashboard_address": ":0",
        "silence_logs": 60,
        "threads_per_worker": 1,
        "worker_dashboard_address": None,
        **options,
    }


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(**settings(n_workers=2, processes=True)) as cluster,
        distributed.Client(cluster) as connected,
    ):
        yield connected
    gc.collect()  # connections to those who were killed, while nobody minds


@pytest.fixture
def brief():
    """A cluster within this process, to be taken away."""
    with (
        distributed.LocalCluster(**settings(n_workers=1, processes=False)) as cluster,
        distributed.Client(cluster, set_as_default=True),
        dask.config.set({"tacit.patience": 1.0}),
    ):
        yield cluster
    gc.collect()


def blocks(table=X, rows=300, columns=None):
    return da.from_array(table, chunks=(rows, columns or table.shape[1]))


def certified(model):
    """What a certificate says but for when it was made."""
    said = model.certificate_.to_dict()
    return {key: value for key, value in said.items() if key not in ("created", "digest")}


def fitted(rows, y, kind=DPLinearClassifier, **options):
    return kind(random_state=7, **({"trainer": FEW} | options)).fit(rows, y)


def same(one, other):
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.intercept_, other.intercept_)
    assert certified(one) == certified(other)


WAYS = {
    "by default": {},
    "runs to choose from": {"trainer": NoisySGD(steps=2, runs=2, batch_size=901)},
    "strict": {"arithmetic": "strict"},
    "a mean that is located": {"stages": [ClipNorm(3.0), PrivateCenter(method="instance-optimal")]},
    "bounds": {"stages": [PrivateBounds(), Normalize(), RandomProjection(3)]},
    "chosen bounds": {"stages": [PrivateBounds(method="exponential"), PrivateClip()]},
    "scales and public components": {
        "stages": [ClipNorm(9.0), PrivateScale(), PublicPCA(X[::2] + 0.1, 2)]
    },
    "components": {"stages": [ClipNorm(3.0), PrivatePCA(2)], "arithmetic": "strict"},
    "one class at a time": {"trainer": DPGD(steps=3, clipping="per-class"), "loss": "hinge"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_is_that_of_one_machine_bit_for_bit(client, way):
    local = fitted(X, Y, **WAYS[way])
    same(local, fitted(blocks(), da.from_array(Y, chunks=300), **WAYS[way]))


def test_partitions_may_be_cut_in_any_way(client):
    local = fitted(X, Y)
    uneven = da.concatenate([blocks(X[:13], 5, 2), blocks(X[13:], 111, 2)])
    assert uneven.numblocks[0] == 11  # so sums go through two levels of a tree
    same(local, fitted(uneven, da.from_array(Y, chunks=300)))
    same(local, fitted(blocks(), Y.tolist()))


def test_targets_that_are_numbers(client):
    options = {"kind": DPLinearRegressor, "target_bounds": (-4.0, 4.0)}
    local = fitted(X, X[:, 0], **options)
    rows = blocks()
    same(local, fitted(rows, rows[:, 0], **options))


def test_bytes_are_bytes_on_a_cluster(client):
    pixels = (X.clip(0, 5) * 50).astype(np.uint8)
    local = fitted(pixels, Y)
    assert local.plan_.plan.stages[0].name == "Root"
    same(local, fitted(blocks(pixels), Y))
    assert as_rows(dd.from_pandas(pd.DataFrame(pixels), npartitions=2)).bytes


def test_a_model_goes_on_where_other_rows_are(client):
    more = {"epsilon": 0.5, "delta": 1e-6}
    local, spread = fitted(X, Y), fitted(blocks(), Y)
    local.partial_fit(X, Y, **more)
    spread.partial_fit(blocks(rows=500), Y, **more)
    assert np.array_equal(local.coef_, spread.coef_)
    assert local.certificate_.events == spread.certificate_.events
    with pytest.raises(InputError, match="features"):
        spread.partial_fit(blocks()[:, :3], Y, **more)


GRIDS = {
    "settings trained together": {
        "trainer__clip": [0.05, 0.5],
        "trainer__learning_rate": [1.0, 8.0],
    },
    "stages in every trial": {"stages": [[Normalize()], [ClipNorm(3.0), PrivateCenter()]]},
}


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_a_search_finds_on_a_cluster_what_it_finds_here(client, grid):
    model = DPLinearClassifier(random_state=9, trainer=DPGD(steps=2))  # seven trials
    local = DPSearch(model, grid, trials=3).fit(X, Y)
    spread = DPSearch(model, grid, trials=3).fit(blocks(), da.from_array(Y, chunks=300))
    assert spread.best_params_ == local.best_params_
    assert spread.best_score_ == local.best_score_
    same(local.best_estimator_, spread.best_estimator_)


def test_scores_are_summed_where_rows_lie(client):
    loss, weights = get_loss("softmax"), RNG.normal(size=(4, 5, 3))
    rows = as_rows(blocks(rows=226), bound=9.0)
    spread = ClusterEngine(rows, rows.source.alike(Y), loss)
    here = Engine(as_rows(X, bound=9.0), Y, loss)
    sums = [engine.row_sum(weights, right_or_wrong) for engine in (spread, here)]
    assert np.array_equal(*sums)
    hits = [(X @ w).argmax(axis=1) == Y for w in weights]
    assert np.allclose(sums[0] / LOSS_UNIT, [2 * hit.sum() - 901 for hit in hits], atol=4)


class Shaping:
    """Every number of five becomes two neighbouring weights of six."""

    layout = Layout((6,) * 5)

    def apply(self, chunk):
        place = np.clip(np.asarray(chunk) + 2.0, 0.0, 4.0) * 1.25
        index = np.minimum(place.astype(int), 4)
        return ShapedChunk.of(self.layout, index, place - index)


def test_sums_over_shapes_on_a_cluster_are_those_here(client):
    loss, weights = get_loss("softmax"), RNG.normal(size=(1, 31, 3))
    how = {"intercept": 1.0, "shift": np.linspace(0.0, 0.4, 30)}
    sums = []
    for data in (X, blocks(rows=226)):
        rows = as_rows(data).through(Shaping(), d=30, bound=5**0.5)
        targets = Y if data is X else rows.source.alike(Y)
        engine = (Engine if data is X else ClusterEngine)(rows, targets, loss, **how)
        sums.append(engine.gradient_sum(weights, 0.5, batch=np.arange(3, 880, 2)).values)
    assert np.array_equal(*sums)


def test_a_search_of_numbers_on_a_cluster(client):
    model = DPLinearRegressor(random_state=3, trainer=DPGD(steps=2), target_bounds=(-4.0, 4.0))
    rows, grid = blocks(), {"trainer__clip": [0.1, 1.0]}
    local = DPSearch(model, grid, trials=2).fit(X, X[:, 0])
    spread = DPSearch(model, grid, trials=2).fit(rows, rows[:, 0])
    assert spread.best_score_ == local.best_score_
    same(local.best_estimator_, spread.best_estimator_)


def test_samples_are_drawn_here_and_cut_to_the_partitions(client):
    loss = get_loss("softmax")
    facts = PublicFacts(901, 5, 3, typical_norm=9.0, mu=1.0, loss=loss)
    trainer = DPSGD(steps=4, batch_size=60).resolve(facts)
    rows = as_rows(blocks(rows=226), bound=9.0)
    spread = ClusterEngine(rows, rows.source.alike(Y), loss)
    here = Engine(as_rows(X, bound=9.0), Y, loss)
    one, other = (
        trainer.train(e, run_of(trainer, 2.0, facts, Key.from_seed(1)), facts)
        for e in (spread, here)
    )
    assert np.array_equal(one, other)
    nobody = spread.gradient_sum(one[None], 1.0, batch=np.empty(0, dtype=int))
    assert not nobody.values.any()


def test_sums_of_all_workers_are_those_of_one_engine(client):
    wide = RNG.normal(size=(901, 20)) / 9
    loss = get_loss("softmax")
    rows = as_rows(blocks(wide), bound=1.0)
    spread = ClusterEngine(rows, rows.source.alike(Y), loss, intercept=0.3)
    here = Engine(as_rows(wide, bound=1.0), Y, loss, intercept=0.3)
    weights = RNG.normal(size=(1, 21, 3))
    for batch in (None, np.arange(0, 901, 7)):
        found, right = (
            engine.gradient_sum(weights, 0.3, batch=batch).values for engine in (spread, here)
        )
        assert np.array_equal(found, right)


def test_sparse_blocks(client):
    matrix = sp.random_array((600, 20), density=0.2, rng=np.random.default_rng(1), format="csr")
    labels = Y[:600] > 0
    rows = blocks(matrix.toarray(), 250).map_blocks(sp.csr_array)
    assert as_rows(rows).sparse
    same(fitted(matrix, labels), fitted(rows, da.from_array(labels, chunks=250)))


def frame():
    age = np.where(RNG.random(901) < 0.1, np.nan, RNG.uniform(0, 90, 901).round())
    return pd.DataFrame({"age": age, "job": np.array(["cook", "smith", "?"])[Y], "y": Y})


def test_data_frames_whose_sizes_nobody_knows(client):
    table = frame()
    ages = NumberColumn(0, 100, shape="hat")
    schema = Schema({"age": ages, "job": CategoryColumn(("cook", "smith"))})
    stages = [Encode(schema), PrivateCenter()]
    spread = dd.from_pandas(table, npartitions=4)
    spread = spread[spread["age"] != 17.0]  # one partition has fewer rows than the others
    here = spread.compute()
    local = fitted(here[["age", "job"]], here["y"], stages=stages)
    same(local, fitted(spread[["age", "job"]], spread["y"], stages=stages))
    numbers = spread[["age"]].fillna(0.0)
    model = fitted(numbers, spread["y"])
    same(fitted(here[["age"]].fillna(0.0), here["y"]), model)
    assert model.feature_names_in_.tolist() == ["age"]
    usual = {"stages": [Normalize(), PrivateCenter()]}  # for rows of numbers, in whatever they are
    chunks = numbers.to_dask_array(), spread["y"].to_dask_array()  # of unknown sizes
    same(fitted(numbers, spread["y"], **usual), fitted(*chunks, **usual))


def test_what_is_private_of_a_data_frame_is_found_from_counts(client):
    table = frame()
    schema = Schema({"age": NumberColumn(), "job": CategoryColumn()})
    stages = [PrivateEncode(schema, 0.5), PrivateCenter()]
    spread = dd.from_pandas(table, npartitions=4)
    how = {"stages": stages, "epsilon": 40.0}
    local = fitted(table[["age", "job"]], table["y"], **how)
    same(local, fitted(spread[["age", "job"]], spread["y"], **how))
    assert local.stages_[0].schema_.columns["job"].categories


def test_gaps_are_filled_through_noise(client):
    holes = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
    stages = [ClipNorm(3.0), PrivateImpute()]
    same(fitted(holes, Y, stages=stages), fitted(blocks(holes), Y, stages=stages))


@pytest.mark.parametrize(
    "stages",
    [
        [Normalize(), SoftPCA()],
        [ClipNorm(3.0), NoiselessImpute(), PrivateScale()],
        [ClipNorm(3.0), NoiselessImpute(strategy="ridge", columns=[0])],
    ],
    ids=lambda stages: stages[1].name,
)
def test_noiseless_stages_agree_up_to_rounding(client, stages):
    holes = X.copy()
    if stages[1].fills_gaps:
        holes[::50, 0] = np.nan
    options = {"stages": stages, "epsilon": 20.0}
    local, spread = fitted(holes, Y, **options), fitted(blocks(holes), Y, **options)
    assert certified(local) == certified(spread)
    assert np.allclose(local.coef_, spread.coef_, rtol=0, atol=1e-8)


def test_components_are_found_from_moments(client):
    spread = as_rows(blocks(X[:4], 2), bound=9.0)  # fewer rows than columns
    one, other = (
        NoiselessPCA(2, gap=1e-3, centered=True).fit(rows).apply(X)
        for rows in (spread, as_rows(X[:4], bound=9.0))
    )
    assert np.allclose(one, other, rtol=0, atol=1e-9)


def test_sums_of_moved_rows_are_rounded_once(client):
    loss = get_loss("logistic")
    targets = loss.targets(Y > 0, 1)
    rows, local = as_rows(blocks(rows=50), bound=9.0), as_rows(X, bound=9.0)
    spread = ClusterEngine(rows, rows.source.alike(targets), loss, arithmetic="rounded")
    here = Engine(local, targets, loss, arithmetic="rounded")
    weights = RNG.normal(size=(2, 5, 1))
    one, other = (engine.gradient_sum(weights, 0.3) for engine in (spread, here))
    assert one.values.dtype == np.int64
    assert (one.lattice == other.lattice).all()
    assert np.abs(one.values - other.values).max() <= 1


def test_blanked_rows_count_nothing_on_any_worker(client):
    """No stage blanks rows on a cluster yet; what a row carries goes to its worker all the same."""
    loss = get_loss("softmax")
    blanked = np.arange(len(X)) % 7 == 3
    here = replace(as_rows(X, bound=3.0), blanked=blanked)
    there = replace(as_rows(blocks(), bound=3.0), blanked=blanked)
    targets = loss.targets(Y, outputs=3)
    weights, batch = RNG.normal(size=(1, 6, 3)), np.arange(0, len(X), 3)
    one = Engine(here, targets, loss, intercept=0.5)
    many = ClusterEngine(there, there.source.alike(targets), loss, intercept=0.5)
    for some in (None, batch):
        expected = one.gradient_sum(weights, 0.5, batch=some).values
        assert np.array_equal(many.gradient_sum(weights, 0.5, batch=some).values, expected)
    with pytest.raises(InputError, match="blanked would count"):
        many.loss_sum(weights, 1.0)


def test_what_needs_all_rows_is_refused_before_anything_is_spent(client, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db").create("people", epsilon=9.0, delta=1e-5)
    for stages in (
        [ClipNorm(3.0), Dedup(crowd=5)],
        [ClipNorm(3.0), NoiselessImpute(strategy="median", rows_with_gaps=9, median_change=0.1)],
        [ClipNorm(3.0), SoftPCA(), PrivatePCA(2)],
    ):
        with pytest.raises(InputError, match="needs all rows in one place"):
            DPLinearClassifier(stages=stages, trainer=FEW, ledger=ledger).fit(blocks(), Y)
    stage = ClipNorm(3.0)
    stage.lock = threading.Lock()
    with pytest.raises(InputError, match="cannot be sent"):
        DPLinearClassifier(stages=[stage], trainer=FEW, ledger=ledger).fit(blocks(), Y)
    with pytest.raises(InputError, match="all rows in one place"):
        as_rows(blocks()).collect()
    assert not ledger.charges()


# What is wrong with rows


def test_numbers_are_checked_where_they_lie_and_no_log_quotes_them(client):
    secret = 4711.0815
    spoiled = X.copy()
    spoiled[0], spoiled[700, 2] = secret, np.inf
    with pytest.raises(InputError, match="NaN or infinity") as refused:
        fitted(blocks(spoiled, 901), Y)
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    assert str(secret) not in str(refused.value) + logs
    assert "Compute Failed" not in logs  # where Dask would quote them


def test_what_does_not_fit_is_refused(client):
    rows = blocks()
    for y, what in (
        (da.from_array(Y[:900], chunks=(300, 300, 299, 1)), "one value for each row"),
        (Y[:900], "one value for each row"),
        (dd.from_pandas(pd.Series(Y), npartitions=2), "partitions"),
        (da.from_array(np.where(Y, np.nan, 1.5), chunks=300), "NaN"),
        (da.from_array(Y + 0.5, chunks=300), "(?i)unknown label"),
    ):
        with pytest.raises(ValueError, match=what):
            fitted(rows, y)
    with pytest.raises(InputError, match="not in classes="):
        fitted(rows, da.from_array(Y, chunks=300), classes=[0, 1])
    with pytest.raises(InputError, match="two dimensions"):
        fitted(rows[:, 0], Y)
    with pytest.raises(InputError, match="not numbers"):
        fitted(dd.from_pandas(frame(), npartitions=2), Y, stages=[Normalize()])
    with pytest.raises(InputError, match="cannot be sent"):
        Cluster.current().parcel(threading.Lock())
    with pytest.raises(MissingBound):
        fitted(rows, Y, stages=[PrivateCenter()])
    model = fitted(rows, Y)
    with pytest.raises(InputError, match="map_blocks"):
        model.predict(rows)
    there = rows.map_blocks(model.predict, drop_axis=1, dtype=Y.dtype).compute()
    assert (there == model.predict(X)).all()


def test_without_a_client_there_is_no_cluster(monkeypatch):
    def none():
        raise ValueError("no clients found")

    monkeypatch.setattr(distributed, "default_client", none)
    with pytest.raises(InputError, match="connect to one first"):
        fitted(blocks(), Y)


def test_errors_of_partitions_keep_their_kind(client):
    def faulty(rows):
        raise MachineError("came out wrong")

    rows = as_rows(blocks())
    with pytest.raises(MachineError, match="came out wrong"):
        rows.source.everywhere(rows, faulty)


def test_noise_cannot_be_sent_anywhere():
    key = Key.from_seed(0)
    for secret in (key, key.stream("noise")):
        with pytest.raises(TacitError, match="cannot be pickled"):
            Parcel.of((secret,))


# Workers that are lost


class Watched:
    """Sums of steps that met noise, each with its number."""

    def __init__(self, monkeypatch):
        self.sums = {}
        real = Draws.gaussian

        def add(draws, total, deviation, stream):
            if total.kind == "step":
                number = int(repr(stream).split(", ")[1])
                assert number not in self.sums, "noise for a second sum"
                self.sums[number] = total.values.copy()
            return real(draws, total, deviation, stream)

        monkeypatch.setattr(Draws, "gaussian", add)


def plan(trainer):
    whole = Plan(Budget(1.0, 1e-5), (Normalize(), PrivateCenter()), trainer, get_loss("softmax"))
    return whole.calibrate(size=901, columns=5, classes=3)


def kill_one(client):
    """The worker that holds most, at once."""
    held = client.has_what()
    address = max(held, key=lambda worker: len(held[worker]))
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)


TRAINERS = [
    DPGD(steps=8),
    pytest.param(DPSGD(steps=8, batch_size=300), marks=pytest.mark.long),
]


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.name)
def test_a_killed_worker_changes_nothing(client, monkeypatch, trainer):
    whole = plan(trainer)
    with monkeypatch.context() as patch:
        here = Watched(patch)
        local = whole.run(as_rows(X), Y, key=Key.from_seed(3))
    killed = []
    real = Cluster.values

    def deadly(self, futures):
        if self.client.status == "running" and sum(map(len, killed)) == 0 and len(there.sums) == 3:
            killed.append([len(there.sums)])
            kill_one(client)  # while the tasks of a step are on their way
        return real(self, futures)

    with monkeypatch.context() as patch:
        there = Watched(patch)
        patch.setattr(Cluster, "values", deadly)
        rows = as_rows(blocks(rows=226))
        spread = whole.run(rows, rows.source.alike(Y), key=Key.from_seed(3))
    assert killed
    assert np.array_equal(local.coef, spread.coef)
    assert np.array_equal(local.intercept, spread.intercept)
    assert local.certificate.plan == spread.certificate.plan
    assert local.certificate.events == spread.certificate.events
    assert here.sums.keys() == there.sums.keys() == set(range(8))
    assert all(np.array_equal(here.sums[step], there.sums[step]) for step in here.sums)


def test_a_partition_that_has_changed_is_refused(client):
    rows = as_rows(blocks(), bound=9.0)
    others = as_rows(blocks(X + 0.1), bound=9.0)  # as if they had been read again
    changed = replace(rows, source=replace(rows.source, parts=others.source.parts))
    with pytest.raises(ClusterError, match="partition had to be read again"):
        changed.merged(lambda span, chunk: len(chunk), 0)
    engine, loss = None, get_loss("softmax")
    for labels in (Y, (Y + 1) % 3):
        engine, last = ClusterEngine(rows, rows.source.alike(labels), loss), engine
    last.engines = engine.engines
    with pytest.raises(ClusterError, match="targets had to be read again"):
        last.gradient_sum(np.zeros((1, 5, 3)), 1.0)


def taken_away(cluster, ledger, away):
    """A fit whose cluster goes away in the middle, and how long it took to notice."""
    model = DPLinearClassifier(trainer=DPGD(steps=50), ledger=ledger)
    gone = []
    real = ClusterEngine.gradient_sums

    def going(self, *args, **how):
        gone.append(time.monotonic())
        if len(gone) == 3:
            away(cluster)
        return real(self, *args, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterEngine, "gradient_sums", going)
        rows = blocks()
        with pytest.raises(ClusterError, match="ledger counts as spent") as lost:
            model.fit(rows, da.from_array(Y, chunks=300))
    assert lost.value
    return model, time.monotonic() - gone[2]


AWAY = {
    "its workers": lambda cluster: cluster.scale(0),
    "all of it": lambda cluster: cluster.close(),
}


@pytest.mark.parametrize("away", AWAY.values(), ids=AWAY)
def test_a_cluster_that_goes_away_for_good(brief, tmp_path, away):
    ledger = Ledger(tmp_path / "ledger.db").create("people", epsilon=3.0, delta=1e-5)
    model, seconds = taken_away(brief, ledger, away)
    assert seconds < 30
    assert not hasattr(model, "coef_") and not hasattr(model, "certificate_")
    (charge,) = ledger.charges()
    assert charge.outcome == "not finished"
    assert ledger.remaining().spent > 0.99


def test_rows_of_dask_are_rows_on_a_cluster(client):
    rows = as_rows(blocks(), bound=2.0)
    assert isinstance(rows.source, DaskSource)
    assert (rows.n, rows.d, rows.bound, rows.distributed, rows.sparse) == (901, 5, 2.0, True, False)
    assert rows.hidden().n == 0
    spans = rows.merged(lambda span, chunk: np.array([span.stop - span.start, len(chunk)]), [0, 0])
    assert list(spans) == [901, 901]
