"""People whose rows lie in any partitions of a cluster: the same model as in memory."""

from __future__ import annotations

import gc
import os
import re
import signal
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tacit import DPLinearClassifier, DPLinearRegressor, DPSearch, Ledger
from tacit.data.cluster import Cluster
from tacit.data.owners import Owners, choose_rows
from tacit.data.regrouped import Move
from tacit.data.rows import as_rows, followed
from tacit.engine.dask import ClusterEngine
from tacit.engine.engine import LOSS_UNIT, Engine
from tacit.exceptions import ClusterError, InputError
from tacit.linear_model.groups import take_groups
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import PublicRandomness
from tacit.model_selection.calibrated import right_or_wrong
from tacit.preprocessing import (
    ClipNorm,
    Normalize,
    PrivateBounds,
    PrivateCenter,
    PrivateClip,
    PrivatePCA,
    PrivatePrecondition,
    SoftPCA,
)
from tacit.privacy.unit import Unit
from tacit.trainers import DPGD, DPSGD, SufficientStatistics

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

# A worker that is killed closes no connection.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

RNG = np.random.default_rng(5)
IDS = np.repeat(np.arange(200) + 10**9, RNG.integers(1, 9, 200))
RNG.shuffle(IDS)
N = len(IDS)
X = RNG.normal(size=(N, 5))
Y = (X @ [1.0, -1.0, 0.5, 0.0, 0.0] + RNG.normal(size=N) > 0).astype(int)


@pytest.fixture(scope="module")
def client():
    how = {"n_workers": 2, "processes": True, "threads_per_worker": 1, "dashboard_address": ":0"}
    how |= {"silence_logs": 60, "worker_dashboard_address": None}
    with (
        distributed.LocalCluster(**how) as cluster,
        distributed.Client(cluster) as connected,
    ):
        yield connected
    gc.collect()  # connections to those who were killed, while nobody minds


def blocks(table=X, rows=230):
    return da.from_array(table, chunks=(rows, *table.shape[1:]))


def certified(model):
    """What a certificate says but for when it was made."""
    said = model.certificate_.to_dict()
    return {key: value for key, value in said.items() if key not in ("created", "digest")}


def fitted(rows, y, ids, kind=DPLinearClassifier, **options):
    how = {"epsilon": 2.0, "max_rows_per_group": 3, "trainer": DPGD(steps=3), "random_state": 7}
    return kind(**(how | options)).fit(rows, y, groups=ids)


def same(one, other):
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.intercept_, other.intercept_)
    assert certified(one) == certified(other)
    tests = [getattr(model, "evaluation_", None) for model in (one, other)]
    figures = [None if test is None else test.to_dict()["figures"] for test in tests]
    assert repr(figures[0]) == repr(figures[1])


WAYS = {
    "everything by default": {"trainer": "auto"},
    "one row of everybody": {"max_rows_per_group": 1},
    "people who are held out": {"holdout": 0.3},
    "batches of people": {"trainer": DPSGD(steps=2, batch_size=60)},
    "people who come and go": {"neighbors": "add_or_remove_one", "public_size": 200},
    "bounds and scales": {"stages": [PrivateBounds(), PrivateClip(), PrivatePrecondition()]},
    "a mean that is located": {"stages": [ClipNorm(3.0), PrivateCenter(method="instance-optimal")]},
    "components": {"stages": [ClipNorm(3.0), PrivatePCA(2)], "neighbors": "replace_one"},
    "one class at a time": {"trainer": DPGD(steps=2, clipping="per-class"), "loss": "hinge"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_of_people_is_that_of_one_machine_bit_for_bit(client, way):
    local = fitted(X, Y, IDS, **WAYS[way])
    assert local.certificate_.unit.rows == WAYS[way].get("max_rows_per_group", 3)
    same(local, fitted(blocks(), blocks(Y), blocks(IDS, 500), **WAYS[way]))


def test_partitions_of_people_may_be_cut_in_any_way(client):
    local = fitted(X, Y, IDS)
    uneven = da.concatenate([blocks(X[:13], 5), blocks(X[13:], 301)])
    same(local, fitted(uneven, da.from_array(Y, chunks=300), IDS.tolist()))
    sparse = blocks(rows=300).map_blocks(sp.csr_array)
    same(fitted(sp.csr_array(X), Y, IDS), fitted(sparse, Y, IDS))
    everybody = np.arange(N) // 3  # already together, but for those at a border
    same(fitted(X, Y, everybody), fitted(blocks(), Y, everybody))
    few = np.arange(N) % 2  # fewer people than partitions
    same(fitted(X, Y, few, epsilon=50.0), fitted(blocks(), Y, few, epsilon=50.0))


def frame():
    numbers = {name: X[:, i] for i, name in enumerate("abcde")}
    job = np.array(["cook", "smith", "nurse"])[RNG.integers(0, 3, N)]
    return pd.DataFrame({**numbers, "job": job, "patient": [f"id {i}" for i in IDS], "y": Y})


def test_identifiers_are_taken_out_of_a_data_frame(client):
    table = frame()
    spread = dd.from_pandas(table, npartitions=4)
    spread = spread[spread["a"] > -1.5]  # of sizes that nobody knows
    here = spread.compute()
    how = {"epsilon": 20.0}
    local = fitted(here[["a", "job", "patient"]], here["y"], "patient", **how)
    found = fitted(spread[["a", "job", "patient"]], spread["y"], "patient", **how)
    same(local, found)
    assert found.certificate_.unit == Unit("person", 3, "patient")
    assert found.feature_names_in_.tolist() == ["a", "job"]
    apart = fitted(spread[["a", "b"]], spread["y"], spread["patient"])
    same(fitted(here[["a", "b"]], here["y"], here["patient"]), apart)
    named = {"schema": {"columns": {"a": [-3, 3]}, "identifier": "patient"}}
    kept = ["a", "patient"]
    same(
        fitted(here[kept], here["y"], None, **named),
        fitted(spread[kept], spread["y"], None, **named),
    )
    with pytest.raises(InputError, match="no column of X"):
        fitted(spread, spread["y"], "somebody")
    with pytest.raises(InputError, match="are not learned from"):
        fitted(spread, spread["y"], spread["patient"])


def test_columns_that_are_words_in_some_partitions_only(client):
    codes = np.array([str(i % 7) for i in range(N)], dtype=object)
    codes[:20] = "none"  # the first partition has words, all others numbers
    table = pd.DataFrame({"a": X[:, 0], "code": codes})
    table["code"] = [word if word == "none" else int(word) for word in codes]
    schema = {"columns": {"a": [-3, 3], "code": ["none", "1", "2", "3"]}}
    spread = dd.concat([dd.from_pandas(table[:20], 1), dd.from_pandas(table[20:], 3)])
    same(fitted(table, Y, IDS, schema=schema), fitted(spread, Y, IDS, schema=schema))


def test_numbers_of_people_on_a_cluster(client):
    options = {"kind": DPLinearRegressor, "target_bounds": (-3.0, 3.0)}
    same(fitted(X, X[:, 0], IDS, **options), fitted(blocks(), X[:, 0], IDS, **options))


def test_a_search_over_people_finds_on_a_cluster_what_it_finds_here(client):
    how = {"max_rows_per_group": 3, "classes": [0, 1], "random_state": 0}
    base = DPLinearClassifier(8.0, **how)
    base.stages = [ClipNorm(3.0)]
    grid = {"trainer": [DPGD(steps=1), DPGD(steps=2)]}
    local, spread = (
        DPSearch(base, grid, trials=1.5).fit(data, Y, groups=IDS) for data in (X, blocks())
    )
    assert local.best_score_ == spread.best_score_
    same(local.best_estimator_, spread.best_estimator_)


def test_going_on_with_people_on_a_cluster(client):
    local, spread = fitted(X, Y, IDS), fitted(blocks(), Y, IDS)
    more = {"groups": IDS, "epsilon": 0.5, "delta": 1e-6}
    assert np.array_equal(
        local.partial_fit(X, Y, **more).coef_, spread.partial_fit(blocks(), Y, **more).coef_
    )


def engines(k=3):
    """Sums over people here and on the workers."""
    loss, made = get_loss("logistic"), []
    hashed = PublicRandomness(Key.from_seed(1)).hashed("rows of people")
    for data in (X, blocks()):
        rows = replace(as_rows(data, bound=9.0), owners=Owners.of(IDS, Unit("person", k)))
        targets = loss.targets(Y, outputs=1)
        targets = rows.source.alike(targets) if rows.distributed else targets
        kept, index = choose_rows(rows, hashed)
        how = {"intercept": 0.3}
        kind = ClusterEngine if rows.distributed else Engine
        made.append(kind(kept, followed(targets, rows, index), loss, **how))
    return made


@pytest.mark.parametrize("k", [1, 4])
def test_sums_and_scores_of_people_are_those_of_one_engine(client, k):
    here, there = engines(k)
    assert there.n == here.n == 200 and there.unit == here.unit
    weights = RNG.normal(size=(2, 6, 1))
    for batch in (None, np.arange(0, 200, 3), np.arange(60), np.empty(0, dtype=int)):
        sums = [engine.gradient_sum(weights, 0.3, batch=batch) for engine in (here, there)]
        assert np.array_equal(sums[0].values, sums[1].values)
        assert sums[1].owner == Unit("person", k)
    scores = [engine.row_sum(weights, right_or_wrong) for engine in (here, there)]
    assert np.array_equal(*scores) and np.abs(scores[0]).max() <= 200 * LOSS_UNIT
    with pytest.raises(InputError, match="from 0 to 199"):
        there.gradient_sum(weights, 0.3, batch=np.array([200]))


def test_rows_of_a_person_are_never_in_two_partitions(client):
    rows = replace(as_rows(blocks()), owners=Owners.of(IDS, Unit("person", 3)))
    kept, _ = choose_rows(rows, PublicRandomness(Key.from_seed(1)).hashed("rows of people"))
    parts = np.split(kept.owners.codes, kept.source.offsets[1:])
    assert len(parts) == 4 and sum(len(np.unique(part)) for part in parts) == 200
    one = kept.one_each()
    assert one.owners.each_once and one.n == 200
    targets = rows.source.alike(Y)
    with pytest.raises(InputError, match="in several partitions"):
        ClusterEngine(replace(rows, bound=9.0), targets, get_loss("softmax"))
    for sizes, codes in (((0, 3, 0, 4), [0, 0, 0, 0, 1, 2, 2]), ((7,), [0] * 7)):
        move = Move.of(sizes, np.arange(7), np.array(codes))
        inside = np.array(codes)[move.cuts[1:-1]] != np.array(codes)[move.cuts[1:-1] - 1]
        assert inside.all() and sum(move.new_sizes) == 7 and min(move.new_sizes) > 0


def test_what_people_cannot_have_on_a_cluster_is_refused_before_anything_is_spent(client, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db").create(
        "people", epsilon=9.0, delta=1e-4, unit=Unit("person", 3)
    )
    how = {"ledger": ledger, "random_state": None}
    for more, words in (
        ({"classes": "private"}, "in one place"),
        ({"arithmetic": "strict"}, "not over people"),
        ({"stages": [Normalize(), SoftPCA(0.1)], "neighbors": "replace_one"}, "without noise"),
        ({"max_rows_per_group": 513}, "lower max_rows_per_group"),
    ):
        with pytest.raises(InputError, match=words):
            fitted(blocks(), Y, IDS, **(how | more))
    numbers = {"kind": DPLinearRegressor, "target_bounds": (-3.0, 3.0)}
    with pytest.raises(InputError, match="in one place"):
        fitted(blocks(), X[:, 0], IDS, trainer=SufficientStatistics(), **numbers, **how)
    with pytest.raises(InputError, match=r"groups\.compute"):
        fitted(X, Y, blocks(IDS), **how)
    with pytest.raises(InputError, match="one value for each row") as refused:
        fitted(blocks(), Y, IDS[1:], **how)
    missing = np.where(IDS[0] == IDS, np.nan, IDS.astype(float))
    with pytest.raises(InputError, match="groups contains NaN") as lacking:
        fitted(blocks(), Y, blocks(missing), **how)
    assert lacking.value.depends_on_rows and refused.value.depends_on_rows
    assert str(N) not in str(refused.value) and str(N - 1) not in str(refused.value)
    assert not ledger.charges()


def test_nothing_of_people_is_in_certificates_warnings_or_logs(client, caplog):
    wide = np.column_stack([X] * 60)  # more than Dask sends without a word
    many = np.tile(np.arange(N), 8)
    with warnings.catch_warnings(record=True) as warned, caplog.at_level(0):
        warnings.simplefilter("always")
        model = fitted(da.from_array(wide[many], chunks=(7000, 300)), Y[many], IDS[many])
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    said = " ".join([*map(str, (each.message for each in warned)), caplog.text, logs])
    said += model.certificate_.to_json() + model.plan_.explain()
    private = [len(many), N, *np.unique(IDS)[:20].tolist()]
    assert not re.search(rf"\b({'|'.join(map(str, private))})\b", said)
    assert "Sending large graph" not in said


def kill_one(client):
    """The worker that holds most, at once."""
    held = client.has_what()
    address = max(held, key=lambda worker: len(held[worker]))
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)


def test_a_killed_worker_changes_nothing_of_people(client, monkeypatch):
    local = fitted(X, Y, IDS, trainer=DPGD(steps=6))
    steps, real = [], ClusterEngine.gradient_sums

    def deadly(self, *args, **how):
        steps.append(None)
        if len(steps) == 3:
            kill_one(client)
        return real(self, *args, **how)

    monkeypatch.setattr(ClusterEngine, "gradient_sums", deadly)
    same(local, fitted(blocks(), Y, IDS, trainer=DPGD(steps=6)))
    assert len(steps) == 6


def test_a_partition_that_has_changed_is_refused_before_its_rows_are_dealt_out(client):
    rows = as_rows(blocks())
    other = as_rows(blocks(X + 0.1))  # as if they had been read again
    changed = replace(rows.source, parts=other.source.parts)
    owned = replace(rows, source=changed, owners=Owners.of(IDS, Unit("person", 3)))
    with pytest.raises(ClusterError, match="had to be read again"):
        choose_rows(owned, PublicRandomness(Key.from_seed(1)).hashed("rows of people"))
    assert Cluster.current()


def shuffled_anew(place, rows):
    """Rows of a query without an order: another one whenever it is asked."""
    table = np.column_stack([X, IDS.astype(float), Y])[place : place + rows]
    names = [*"abcde", "who", "y"]
    return pd.DataFrame(np.random.default_rng().permutation(table), columns=names)


@pytest.mark.parametrize("named", [True, False])
def test_rows_and_identifiers_are_of_one_reading(client, named):
    lots = [dask.delayed(shuffled_anew)(place, 300) for place in range(0, N, 300)]
    frame = dd.from_delayed(lots, meta=shuffled_anew(0, 1))
    frame = frame.assign(a=frame.who)  # a feature that tells who it is
    wanted = frame[["a", "b", "who"]] if named else frame[["a", "b"]]
    seen, owned = take_groups(wanted, "who" if named else frame.who, None, 3)
    rows = owned.own(as_rows(seen))
    told = np.concatenate(rows.collected(first_column))
    met = {(code, who) for code, who in zip(rows.owners.codes.tolist(), told, strict=True)}
    assert len(met) == rows.owners.people == len(set(told))


def noted(place, rows, folder):
    """Rows of a source that writes down how often it is asked."""
    (folder / f"{place}-{time.time_ns()}").touch()
    return shuffled_anew(place, rows)


def test_rows_and_targets_are_of_one_reading(client, tmp_path):
    lots = [dask.delayed(noted)(place, 300, tmp_path) for place in range(0, N, 300)]
    frame = dd.from_delayed(lots, meta=shuffled_anew(0, 1), verify_meta=False)
    for groups in (None, frame.who):
        for file in tmp_path.iterdir():
            file.unlink()
        model = DPLinearClassifier(1.0, 1e-6, classes=[0.0, 1.0], trainer=DPGD(steps=1))
        if groups is not None:
            model.set_params(max_rows_per_group=3)
        model.fit(frame[["a", "b"]], frame.y, groups=groups)
        assert len(list(tmp_path.iterdir())) == len(lots)


def first_column(rows):
    return rows.collect()[:, 0]
