"""Public rows in a plan: what is chosen by them, what is said of them, and what is refused."""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from tacit import DPLinearClassifier, DPLinearRegressor, Ledger, recipe
from tacit.data import as_rows, as_table
from tacit.data.rows import shares_memory
from tacit.data.schema import Schema
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.plan import Plan
from tacit.preprocessing import (
    Bound,
    ClipNorm,
    Encode,
    Normalize,
    PrivateCenter,
    PublicCenter,
    PublicPCA,
    PublicScale,
    RandomProjection,
    SoftPCA,
)
from tacit.privacy import Budget
from tacit.trainers import DPGD

N, D = 300, 8
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)) * np.linspace(2, 0.2, D) + 1.0
Y = (X[:, 0] > 1).astype(int)
PUBLIC = np.random.default_rng(1).normal(size=(120, D)) * np.linspace(2, 0.2, D) + 1.0
QUICK = DPGD(steps=2)


def plan_of(*stages, epsilon=1.0, size=N, columns=D, neighbors="replace_special", trainer=QUICK):
    plan = Plan(Budget(epsilon, 1e-5), stages, trainer, get_loss("logistic"), neighbors)
    return plan.calibrate(size=size, columns=columns, classes=2)


def fit(*stages, rows=X, **settings):
    settings = {"epsilon": 1.0, "delta": 1e-5, "trainer": QUICK, **settings}
    return DPLinearClassifier(stages=list(stages), **settings).fit(rows, Y)


# What is chosen


def test_components_are_resolved_before_a_private_row_is_read():
    calibrated = plan_of(Normalize(), PublicCenter(PUBLIC), PublicPCA(PUBLIC))
    *_, pca = calibrated.plan.stages
    assert isinstance(pca.n_components, int)
    assert calibrated.facts.features == pca.n_components
    said = [line for line in calibrated.explain().splitlines() if "PublicPCA" in line]
    assert pca.reason in said[0]
    stated = calibrated.to_dict()["stages"][2]["parameters"]
    assert (stated["n_components"], stated["reason"]) == (pca.n_components, pca.reason)


def test_the_choice_follows_the_public_facts():
    wide = np.random.default_rng(2).normal(size=(400, 60)) * np.arange(1, 61) ** -0.7

    def chosen(**facts):
        calibrated = plan_of(Normalize(), PublicPCA(wide), columns=60, **facts)
        return calibrated.plan.stages[1].n_components

    base = chosen(size=400)
    assert 1 < base < 60
    assert chosen(size=4000) > base
    assert chosen(size=400, epsilon=8.0) > base
    assert chosen(size=400, neighbors="replace_one") < base
    assert chosen(size=400) == base


def test_the_stages_in_front_see_the_public_rows_first():
    lengths = np.exp(np.random.default_rng(3).normal(size=(400, 1)) * 3)
    rows = np.random.default_rng(2).normal(size=(400, 30)) * np.arange(1, 31) ** -0.8
    choices = [
        plan_of(Normalize(), PublicPCA(given), columns=30).plan.stages[1].n_components
        for given in (rows, rows * lengths)
    ]
    assert choices[0] == choices[1]


def test_a_random_projection_in_front_must_be_known():
    front = (Normalize(), RandomProjection(5, seed=1))
    chosen = {plan_of(*front, PublicPCA(PUBLIC)).plan.stages[2].n_components for _ in range(3)}
    assert len(chosen) == 1
    assert fit(*front, PublicPCA(PUBLIC)).plan_.facts.features in chosen
    with pytest.raises(InputError, match="give that a seed"):
        plan_of(Normalize(), RandomProjection(5), PublicPCA(PUBLIC))


@pytest.mark.parametrize("stage", [PrivateCenter(), SoftPCA()])
def test_nothing_that_looks_at_private_rows_may_stand_in_front(stage):
    neighbors = "replace_one" if stage.kind == "noiseless" else "replace_special"
    with pytest.raises(InputError, match=f"{stage.name} cannot stand in front"):
        plan_of(Normalize(), stage, PublicPCA(PUBLIC), neighbors=neighbors)
    plan_of(Normalize(), stage, PublicPCA(PUBLIC, 3), neighbors=neighbors)  # a number is fine


def test_the_choice_needs_public_rows_and_a_plan():
    with pytest.raises(InputError, match="give them as public=, or a number"):
        plan_of(Normalize(), PublicPCA())
    with pytest.raises(InputError, match="outside of one, pass a number"):
        PublicPCA(PUBLIC).fit(as_rows(X, bound=9.0))
    with pytest.raises(InputError, match="all public rows are the same"):
        plan_of(Normalize(), PublicPCA(np.ones((50, D))))


def test_the_stages_that_were_passed_in_stay_automatic():
    stages = [Normalize(), PublicCenter(PUBLIC), PublicPCA(PUBLIC)]
    first = fit(*stages)
    assert stages[2].n_components == "auto" and stages[2].reason == ""
    assert fit(*stages).plan_.plan.stages[2] == first.plan_.plan.stages[2]


def test_tables_settle_behind_their_schema():
    names = list("abcdefgh")
    schema = Schema.from_dict(
        {"columns": {name: {"kind": "number", "low": -6, "high": 8} for name in names}}
    )
    public = as_table(dict(zip(names, PUBLIC.T, strict=True)))
    table = as_table(dict(zip(names, X.T, strict=True)))
    made = recipe("pillar", public=public, steps=2)
    model = DPLinearClassifier(stages=[Encode(schema), *made["stages"]], trainer=made["trainer"])
    model.fit(table, Y)
    assert model.certificate_.verify().holds
    assert model.plan_.facts.features <= D


def test_components_for_a_regression_are_resolved_too():
    model = DPLinearRegressor(
        epsilon=5.0, target_bounds=(-9, 9), **recipe("pillar", public=PUBLIC, steps=2)
    )
    model.fit(X, X[:, 0])
    assert model.coef_.shape == (D,)


# Centring


def test_the_public_mean_is_subtracted_and_folded_back():
    model = fit(Normalize(), PublicCenter(PUBLIC), PublicPCA(PUBLIC, 3), random_state=0)
    assert [stage.name for stage in model.stages_] == ["Normalize"]
    center = PublicCenter(Normalize().transform(PUBLIC)).fit(as_rows(np.zeros((0, D))))
    assert center.mean_ == pytest.approx(Normalize().transform(PUBLIC).mean(axis=0))
    direction = model.coef_[0]
    at_mean = center.mean_ @ direction + model.intercept_[0]
    bias = model.plan_.trainer.intercept_fraction
    assert abs(at_mean) < 10 * bias * np.linalg.norm(direction)  # only the intercept is left there


def test_the_bound_before_fitting_holds_for_any_public_rows():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        public = rng.normal(size=(5, 3)) + 10 * rng.normal(size=3)
        before = PublicCenter(public).bound(2.0, 3)
        stage = PublicCenter(ClipNorm(2.0).transform(public)).fit(as_rows(np.zeros((0, 3))))
        assert stage.bound(2.0, 3) <= before
        worst = -2.0 * stage.mean_ / np.linalg.norm(stage.mean_)
        assert np.linalg.norm(stage.apply(worst[None])) <= stage.bound(2.0, 3)


# What is said


def warnings_of(*stages, rows=X):
    with pytest.warns(UserWarning, match="public rows"):
        return fit(*stages, rows=rows).certificate_.warnings


def test_public_rows_beyond_the_declared_bounds_are_mentioned():
    (said,) = warnings_of(ClipNorm(0.5), PublicPCA(PUBLIC, 3))
    assert said.startswith("100% of the public rows lie beyond what ClipNorm was told")
    (said,) = warnings_of(Bound(-0.1, 0.1), ClipNorm(3.0), PublicPCA(PUBLIC, 3))
    assert "Bound was told" in said


def test_public_rows_beyond_the_schema_are_mentioned():
    columns = {name: {"kind": "number", "low": 10, "high": 20} for name in "ab"}
    job = {"kind": "category", "categories": ["cook"]}
    schema = Schema.from_dict({"columns": {**columns, "job": job}})

    def table(numbers, jobs):
        return as_table({"a": numbers[:, 0].copy(), "b": numbers[:, 1].copy(), "job": jobs})

    inside = np.random.default_rng(0).uniform(10, 20, size=(N, 2))
    private = table(inside, ["cook"] * N)
    for public in (table(inside + 30, ["cook"] * N), table(inside, ["smith"] * N)):
        if public.column("a")[0] > 20:  # everything is cut to the same corner
            with pytest.raises(InputError, match=r"the same when they reach it.*Encode was told"):
                fit(Encode(schema), PublicPCA(public, 1), rows=private)
            continue
        (said,) = warnings_of(Encode(schema), PublicPCA(public, 1), rows=private)
        assert "Encode was told" in said


def test_public_rows_far_shorter_than_the_bound_are_mentioned():
    (said,) = warnings_of(ClipNorm(5000.0), PublicPCA(PUBLIC, 3))
    assert "drown" in said and "bound is 5e+03" in said


def test_what_two_stages_have_to_say_is_said_once():
    said = warnings_of(ClipNorm(0.5), PublicCenter(PUBLIC), PublicPCA(PUBLIC, 3))
    assert len(said) == len(set(said)) == 1


def test_half_of_the_rows_may_lie_beyond_without_a_word():
    lengths = np.linalg.norm(PUBLIC, axis=1)
    model = fit(ClipNorm(float(np.median(lengths))), PublicPCA(PUBLIC, 3))
    assert model.certificate_.warnings == ()


def test_a_caution_does_not_depend_on_private_rows():
    texts = {
        tuple(warnings_of(ClipNorm(0.5), PublicPCA(PUBLIC, 3), rows=rows))
        for rows in (X, X * 100, np.zeros_like(X))
    }
    assert len(texts) == 1


# What is refused


@pytest.mark.parametrize("stage", [PublicCenter, PublicScale, lambda p: PublicPCA(p, 2)])
@pytest.mark.parametrize(
    ("public", "words"),
    [
        (np.zeros((20, D)), "all zero"),
        (np.ones((20, D)), "all public rows are the same"),
        (PUBLIC[:1].copy(), "all public rows are the same"),
        (PUBLIC[:, :3].copy(), "public rows have 3 columns, private ones 8"),
        (np.zeros((0, D)), "there are no public rows"),
        (None, "needs public="),
    ],
)
def test_public_rows_that_say_nothing_are_refused(stage, public, words):
    with pytest.raises(InputError, match=words):
        fit(ClipNorm(3.0), stage(public), ClipNorm(3.0))


SAME = {
    "the same object": lambda rows: rows,
    "a view": lambda rows: rows[:],
    "some rows": lambda rows: rows[:50],
    "every third row": lambda rows: rows[::3],
    "rows and columns turned": lambda rows: rows.T.T,
    "as rows": as_rows,
}


@pytest.mark.parametrize("stage", [PublicCenter, PublicScale, lambda p: PublicPCA(p, 2)])
@pytest.mark.parametrize("how", SAME)
def test_public_rows_that_are_private_rows_are_refused(how, stage):
    with pytest.raises(InputError, match="are the private rows, or some of them"):
        fit(ClipNorm(3.0), stage(SAME[how](X)), ClipNorm(3.0))


def test_a_plan_that_is_run_by_hand_refuses_them_too():
    calibrated = plan_of(ClipNorm(3.0), PublicPCA(X[:50], 2))
    targets = calibrated.plan.loss.targets(Y, 1)
    with pytest.raises(InputError, match="share memory"):
        calibrated.run(as_rows(X), targets, key=Key.from_seed(0))


def test_nothing_is_spent_when_they_are_refused(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db").create("people", epsilon=2.0, delta=1e-5)
    with pytest.raises(InputError, match="share memory"):
        fit(ClipNorm(3.0), PublicPCA(X[:50], 2), ledger=ledger)
    assert ledger.remaining().spent == 0


def test_tables_frames_and_sparse_matrices_are_seen_through():
    frame = pd.DataFrame(X)
    assert shares_memory(frame, frame.iloc[:10])
    assert not shares_memory(frame, frame.copy())
    table = as_table({"a": X[:, 0].copy(), "b": ["x"] * N})
    assert shares_memory(table, table.drop("b"))
    assert shares_memory(table, table.slice(0, 5))
    assert not shares_memory(table, as_table({"a": X[:, 0].copy()}))
    matrix = sp.csr_array(X)
    assert shares_memory(matrix, as_rows(matrix))
    assert not shares_memory(matrix, sp.csr_array(X))
    assert not shares_memory(X.tolist(), X)
    assert not shares_memory(X, None)


@pytest.mark.parametrize(
    "cut",
    [(X[:100], X[100:]), (X[::2], X[1::2]), (X[:100].copy(), X)],
    ids=["parts", "odd", "copy"],
)
def test_parts_of_one_array_and_copies_are_fine(cut):
    # Whether values agree is never looked at: that would be a look at the private rows.
    public, private = cut
    labels = Y[: len(private)]
    stages = [Normalize(), PublicPCA(public, 2)]
    model = DPLinearClassifier(stages=stages, trainer=QUICK, classes=[0, 1])
    assert model.fit(private, labels).certificate_.verify().holds


def test_the_reason_and_the_cautions_survive_a_certificate():
    with pytest.warns(UserWarning, match="drown"):
        model = fit(ClipNorm(5000.0), PublicPCA(PUBLIC))
    again = json.loads(model.certificate_.to_json())
    assert "components were chosen" in again["plan"]["stages"][1]["note"]
    assert len(again["warnings"]) == 1


def test_a_link_to_the_private_file_is_the_private_file(tmp_path):
    from tacit.cli.settings import Settings
    from tacit.cli.tasks.fit import fit

    names = [f"x{i}" for i in range(D)]
    lines = [
        ",".join([*names, "y"]),
        *(",".join(map(str, [*r, k])) for r, k in zip(X, Y, strict=True)),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    os.symlink(tmp_path / "rows.csv", tmp_path / "link.csv")
    os.link(tmp_path / "rows.csv", tmp_path / "hard.csv")
    columns = {name: {"kind": "number", "low": -8, "high": 8} for name in names}
    schema = Schema.from_dict({"target": "y", "classes": [0, 1], "columns": columns})
    settings = Settings(1.0, 1e-5, recipe="pillar", steps=2)
    how = {"schema": schema, "out": tmp_path / "m"}
    for name in ("rows.csv", "link.csv", "hard.csv"):
        with pytest.raises(InputError, match="is the private table itself"):
            fit(tmp_path / "rows.csv", settings, public=tmp_path / name, **how)
    assert not (tmp_path / "m").exists()
