"""Tests of models on tables that differ in one row, with every release the same: see `replays`.

The model is fixed: what is attacked are the tables of counts, for any number of classes, for
numbers, and for groups.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from tests.soundness import replays

from tacit import DPLinearClassifier, save
from tacit.audit.recorder import Recorder
from tacit.cli.tasks.evaluate import evaluate as evaluate_table
from tacit.data.tables import Table
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import PublicRandomness, Releases
from tacit.metrics import evaluate, tables
from tacit.metrics.bins import probability_edges
from tacit.metrics.class_tables import ClassTables
from tacit.metrics.evaluate import plan_evaluation, scores_of
from tacit.metrics.evaluate import release as released
from tacit.privacy import Budget
from tacit.privacy.events import NEIGHBORS
from tacit.trainers import DPGD

CLASSES = [0, 2, 3, 7, 11, 101]
ODD = [np.nan, np.inf, -np.inf, 1e308, -1.0, 0.0, 0.5, 1.0]


def drawn(seed):
    """A plan, and two lists of truth, scores and groups that differ in row 0."""
    rng = np.random.default_rng([seed, 62])
    n, many = int(rng.choice([60, 200])), int(CLASSES[seed % len(CLASSES)])
    neighbors = list(NEIGHBORS)[rng.integers(3)]
    model = SimpleNamespace()
    if many:
        model.classes_ = tuple(range(many))
        if rng.random() < 0.8:
            model.predict_proba = None
    else:
        model.target_bounds_ = (-10.0, 10.0)
    named = ["f", "m"] if rng.random() < 0.5 else None
    how = {"noise_multiplier": float(rng.choice([0.3, 3.0])), "by_values": named}
    plan = plan_evaluation(model, n, Budget(1.0, 1e-5), neighbors, **how)
    sides = []
    truth = rng.integers(0, many, n) if many else rng.normal(size=n) * 5
    shape = (n,) if many in (0, 2) else (n, many)
    scores = rng.random(shape)
    scores = scores / scores.sum(axis=1, keepdims=True) if scores.ndim == 2 else scores
    groups = rng.choice(np.array(["f", "m", "nobody asked", None], dtype=object), n)
    for _ in range(2):
        odd = [rng.integers(-1, max(many, 1)) if many else ODD[rng.integers(8)]]
        strange = scores.copy()
        strange[0] = ODD[rng.integers(8)]
        who = groups.copy()
        who[0] = ["f", "m", "", None, 7][rng.integers(5)]
        sides.append((np.concatenate([odd, truth[1:]]), strange, who if named else None))
    if neighbors != "replace_one":  # the row is there, or is not
        whole = sides[0]
        sides[1] = tuple(None if part is None else part[1:] for part in whole)
    return plan, neighbors, sides, n


def run(plan, side, draws, n, patch):
    """Everything that anybody could see; coins belong to rows."""
    seen, honest = {}, PublicRandomness.coins
    with patch.context() as patched, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        patched.setattr(
            PublicRandomness, "coins", lambda self, what, k: honest(self, what, n)[n - k :]
        )
        releases = Releases(Key.from_seed("replay"), plan.spent, draws=draws)
        try:
            found = plan.run(*side, releases)
            releases.close()
            cutoffs = [found.cutoff(c) for c in (0.5, 0.9, 0.99)]
            seen["figures"] = repr((found.to_dict(), cutoffs, found.beats_majority))
        except StopIteration:
            seen["error"] = "went on where the recorded run had ended"
    seen["warned"] = [str(each.message) for each in warned]
    return seen


def compared(seed, patch):
    plan, neighbors, sides, n = drawn(seed)
    recorder = Recorder()
    run(plan, sides[0], recorder, n, patch)
    assert recorder.tape.draws <= plan.draws
    outcomes = []
    for side in sides:
        watching = replays.Watching(recorder.tape, np.arange(0))
        outcomes.append(replays.Outcome(watching, run(plan, side, watching, n, patch)))
    asked = SimpleNamespace(neighbors=neighbors)
    spent = SimpleNamespace(plan=asked, spent=plan.spent, arithmetic="exact")
    spent.trainer = SimpleNamespace(local=False)
    case = SimpleNamespace(plan=spent, rows=(range(n), range(len(sides[1][0]))))
    return replays.judged(case, recorder.tape, outcomes), len(plan.classes)


def test_tables_of_any_kind_are_covered_by_their_account(monkeypatch):
    met = Counter()
    for seed in range(24):
        wrong, many = compared(seed, monkeypatch)
        assert not wrong, (seed, wrong)
        met[many] += 1
    assert set(met) == set(CLASSES)


@pytest.mark.long
def test_nor_are_two_thousand_of_them(monkeypatch):
    for seed in range(10**4, 10**4 + 2000):
        assert not compared(seed, monkeypatch)[0], seed


# Faults that are planted


def found_in(seeds, patch):
    """Whether any pair tells."""
    for seed in seeds:
        try:
            if compared(seed, patch)[0]:
                return True
        except ValueError:  # releases of another shape
            return True
    return False


def test_a_table_more_than_was_counted_is_found(monkeypatch):
    honest = released

    def uncounted(counts, token):  # as if there were one table
        joined = np.concatenate(counts)
        (noisy,) = honest([joined], token)
        return np.split(noisy, np.cumsum([len(table) for table in counts])[:-1])

    monkeypatch.setattr(sys.modules["tacit.metrics.evaluate"], "release", uncounted)
    assert found_in(range(100, 130), monkeypatch)


def test_a_row_in_two_cells_of_a_loss_is_found(monkeypatch):
    honest = tables.Tables.count

    def both_knots(self, truth, scores, by, coins):
        counted = honest(self, truth, scores, by, coins)
        return [table + np.roll(table, 1) * (len(table) < 60) for table in counted]

    monkeypatch.setattr(tables.Tables, "count", both_knots)
    assert found_in(range(100, 130), monkeypatch)


def test_knots_that_follow_the_largest_loss_are_found(monkeypatch):
    honest = ClassTables.cells

    def following(self, truth, scores, coins):
        found = honest(self, truth, scores, coins)
        shift = int(np.nanmax(np.where(np.isfinite(scores), scores, 0.0)) > 1)
        return [np.where(cells > 0, cells - shift, cells) for cells in found]

    monkeypatch.setattr(ClassTables, "cells", following)
    assert found_in(range(100, 160), monkeypatch)


@pytest.mark.parametrize("way", ["list", "file"])
@pytest.mark.parametrize("odd", ["x", 2.5, True, None])
def test_a_label_of_another_kind_leaves_others_what_they_are(way, odd, tmp_path, monkeypatch):
    """A list, or a column of a file, is of one kind only if all of its values are."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    labels = [float(value) for value in X[:, 0] > 0]
    rows = Table.from_columns(dict(zip("ab", X.T.tolist(), strict=True)))
    model = DPLinearClassifier(5.0, 1e-5, schema={"a": [-3, 3], "b": [-3, 3]}, random_state=0)
    save(model.fit(rows, np.array(labels, dtype=int)), tmp_path / "model.safetensors")
    seen, honest = [], tables.Tables.count

    def watched(self, *given):
        seen.append(np.concatenate(honest(self, *given)))
        return honest(self, *given)

    monkeypatch.setattr(tables.Tables, "count", watched)
    how = {"epsilon": 1.0, "delta": 1e-5, "random_state": 0}
    for last in (labels[-1], odd):
        targets = [*labels[:-1], last]
        if way == "list":
            evaluate(model, rows, targets, by=targets, by_values=["1.0"], **how)
            continue
        table = tmp_path / "table.csv"
        lines = [f"{a},{b},{y}" for (a, b), y in zip(X, targets, strict=True)]
        table.write_text("\n".join(["a,b,y", *lines]))
        evaluate_table(tmp_path / "model.safetensors", table, target="y", **how)
    assert np.abs(seen[0] - seen[1]).sum() <= 4  # one cell less and one more, in two tables


def linear_model(coef, intercept):
    """A fitted classifier with these coefficients."""
    classes = max(2, len(coef))
    trainer = DPGD(steps=1, learning_rate=1.0)
    loss = "softmax" if classes > 2 else "logistic"
    model = DPLinearClassifier(1.0, 1e-5, loss=loss, trainer=trainer, random_state=0)
    model.fit(np.eye(50, coef.shape[1]), np.arange(50) % classes)
    model.coef_, model.intercept_, model.stages_ = coef, intercept, ()
    return model


@pytest.mark.parametrize("kind", ["edge", "tie"])
def test_a_row_less_moves_no_other_one_into_another_cell(kind):
    """Rows that are all alike, at the edge of a bin or between two classes, to the last bit."""
    rng = np.random.default_rng(5)
    worst = 0.0
    for d in (50, 100, 300):
        row = rng.normal(size=d)
        if kind == "tie":
            model = linear_model(np.tile(rng.normal(size=d), (5, 1)), np.zeros(5))
        else:
            model = linear_model(rng.normal(size=(1, d)), np.zeros(1))
            edge = probability_edges(plan_of(model).tables(None, 1.0).bins)[1]
            middle = np.log(edge / (1 - edge)) - float(row @ model.coef_[0])
            near = middle + np.arange(-40, 40) * np.spacing(abs(middle))
            model.intercept_ = near[np.argmax([spread_of(model, row, edge, b) for b in near])][None]
        tables = plan_of(model).tables(None, 1.0)
        before = None
        for n in range(20, 50):
            scores, zeros = scores_of(model, np.tile(row, (n, 1))), np.zeros(n, dtype=np.int64)
            counts = tables.count(zeros, scores, zeros, np.full(n, 0.5))
            if before is not None:
                pairs = zip(counts, before, strict=True)
                worst = max(worst, *(np.abs(a - b).sum() for a, b in pairs))
            before = counts
    assert worst == 1


def plan_of(model):
    return plan_evaluation(model, 40, Budget(1.0, 1e-5), "add_or_remove_one")


def spread_of(model, row, edge, intercept):
    """Whether equal rows are on both sides of an edge."""
    model.intercept_ = np.array([intercept])
    return len(np.unique(scores_of(model, np.tile(row, (43, 1))) > edge))
