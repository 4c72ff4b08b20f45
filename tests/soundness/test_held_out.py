"""Models that are fitted to some rows and tested on others, on tables that differ in one row."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.soundness import replays
from tests.soundness.test_replayed_estimators import fitted, pair_of

from tacit.audit.recorder import Recorder
from tacit.linear_model.held_out import Split
from tacit.mechanisms.random_streams import Key
from tacit.metrics import tables
from tacit.plan.holdout import held_out

pytest.importorskip("pandas")
SHARE = 0.4


def compared(seed, patch):
    """Where the odd row was, and what is wrong with the pair."""
    model, frames, targets, n = pair_of(seed)
    if model.neighbors != "replace_one":  # coins belong to places, and there all of them move up
        return "skipped", []
    model.set_params(holdout=SHARE, random_state=seed)
    recorder, probe, outcomes = Recorder(), frames[0], []
    _, plan = fitted(model, (frames[0], targets[0]), recorder, probe, patch)
    for table in zip(frames, targets, strict=True):
        watching = replays.Watching(recorder.tape, np.arange(0))
        seen, _ = fitted(model, table, watching, probe, patch)
        if "error" not in seen:
            seen["evaluation"] = repr(model.evaluation_.to_dict())
        outcomes.append(replays.Outcome(watching, seen))
    if plan is None:
        return "refused", [] if outcomes[0].left == outcomes[1].left else ["refusals differ"]
    tested = bool(held_out(Key.from_seed(seed), n, SHARE)[0])
    parts = plan.spent[0][1].parts
    own = replace(plan, spent=tuple(("part", event) for event in parts[int(tested)]))
    case = SimpleNamespace(plan=own, rows=(range(n), range(n)))
    wrong = replays.judged(case, recorder.tape, outcomes)
    sums = zip(recorder.tape, *(outcome.draws.sums for outcome in outcomes), strict=True)
    for release, one, other in sums:
        evaluated = release.source.startswith("'evaluation'")
        if evaluated != tested and not np.array_equal(one, other):
            wrong.append(f"{release.source} looks at a row of the other part")
    return "tested" if tested else "trained", wrong


def test_a_row_moves_what_its_own_part_releases_and_by_no_more_than_was_counted(monkeypatch):
    met = Counter()
    for seed in range(40):
        where, wrong = compared(seed, monkeypatch)
        assert not wrong, (seed, wrong)
        met[where] += 1
        if met["trained"] >= 4 and met["tested"] >= 4:
            break
    assert met["trained"] and met["tested"]


@pytest.mark.long
def test_nor_in_six_hundred_pairs(monkeypatch):
    for seed in range(5000, 6200):
        assert not compared(seed, monkeypatch)[1], seed


def test_a_test_on_rows_that_were_trained_on_is_found(monkeypatch):
    honest = Split.problems

    def leaky(self, problem):
        return honest(self, problem)[0], problem

    monkeypatch.setattr(Split, "problems", leaky)
    assert any(compared(seed, monkeypatch)[1] for seed in range(12))


def test_a_row_that_counts_twice_is_found(monkeypatch):
    honest = tables.Tables.count

    def twice(self, truth, scores, by, coins):
        return [2 * table for table in honest(self, truth, scores, by, coins)]

    monkeypatch.setattr(tables.Tables, "count", twice)
    assert any(compared(seed, monkeypatch)[1] for seed in range(40, 60))
