"""Plans for people on tables that differ in one person with all rows: see `people`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.soundness import people
from tests.soundness.replays import run

from tacit.audit.recorder import Recorder
from tacit.data.cluster import Cluster, Failure, careful
from tacit.data.owners import Owners
from tacit.data.regrouped import Move
from tacit.data.rows import Rows
from tacit.engine import dask
from tacit.engine.people import People, PersonClipping
from tacit.exceptions import ReleaseError
from tacit.mechanisms.release import Token
from tacit.plan import CalibratedPlan
from tacit.privacy.events import NEIGHBORS


def cases(seeds, draw=people.draw):
    return ((seed, case) for seed in seeds if (case := draw(seed)) is not None)


def test_a_quick_selection_of_plans_for_people_is_covered_by_their_account():
    met = Counter()
    for seed, case in cases(range(90)):
        assert not people.compare(case, seed)
        met.update({stage.name for stage in case.plan.plan.stages} | {case.plan.trainer.name})
        met[case.plan.plan.neighbors] += 1
        met[case.plan.plan.unit.rows] += 1
    assert {*NEIGHBORS, "DPGD", "DPSGD", "SufficientStatistics", 1, 2, 3, 5} <= set(met)
    assert sum(met[name] for name in NEIGHBORS) > 50


def test_plans_that_find_out_about_a_table_of_people_are_covered_by_their_account():
    met = Counter()
    for seed, case in cases(range(16), people.draw_table):
        assert not people.compare(case, seed)
        met[case.plan.plan.neighbors] += 1
    assert set(NEIGHBORS) <= set(met)


@pytest.mark.long
def test_two_thousand_pairs_of_tables_that_differ_in_a_person_are_covered_by_their_account():
    met, wrong = Counter(), []
    for seed, case in cases(range(10**4, 10**4 + 3200)):
        wrong += people.compare(case, seed)
        met[case.plan.plan.neighbors] += 1
    for seed, case in cases(range(10**4, 10**4 + 400), people.draw_table):
        wrong += people.compare(case, seed)
        met[case.plan.plan.neighbors] += 1
    print(f"\n{sum(met.values()):,} pairs; {dict(met)}")
    assert not wrong
    assert sum(met.values()) >= 2000


# Faults that are planted, to see that they are found, or stopped before anything is drawn


def found(seeds=range(90), like=lambda case: True, draw=people.draw):
    for seed, case in cases(seeds, draw):
        if like(case):
            try:
                wrong = people.compare(case, seed)
            except ReleaseError as error:
                return f"stopped: {error}"
            if wrong:
                return " ".join(wrong)
    return ""


def full(case):
    """Whether steps are on all people."""
    return case.plan.trainer.name == "DPGD"


def test_a_clip_of_single_rows_is_found(monkeypatch):
    def each(self, residual, inverse, m, gram):
        self.clipping.apply(residual, inverse)

    monkeypatch.setattr(PersonClipping, "apply", each)
    assert "were counted" in found(like=full)


def test_inner_products_that_are_forgotten_are_found(monkeypatch):
    real = PersonClipping.apply

    def apart(self, residual, inverse, m, gram):
        real(self, residual, inverse, m, np.zeros_like(gram))

    monkeypatch.setattr(PersonClipping, "apply", apart)
    assert "were counted" in found(like=full)


def test_identifiers_that_are_dropped_are_found(monkeypatch):
    real = Owners.of

    def nobody(identifiers, unit, n=None):
        return real([str(i) for i in range(len(identifiers))], unit, n)

    monkeypatch.setattr(Owners, "of", staticmethod(nobody))
    assert "were counted" in found(like=full)


def test_a_choice_of_rows_that_depends_on_others_is_found(monkeypatch):
    real = Owners.kept

    def shared(self, hashed):
        turned = np.roll(np.arange(len(self.marks), dtype=np.uint64), len(self.codes))
        return real(
            self, lambda marks, places: hashed(turned[marks.argsort() % len(turned)], places)
        )

    monkeypatch.setattr(Owners, "kept", shared)
    assert "were counted" in found(like=full)


def test_stages_that_are_shown_all_rows_of_a_person_are_stopped_or_found(monkeypatch):
    monkeypatch.setattr(Rows, "one_each", lambda self: self)

    def several(case):
        return full(case) and case.plan.plan.unit.rows > 1

    assert "several rows of one person" in found(like=several)
    monkeypatch.setattr(Token, "per_row", lambda self, rows: self)
    monkeypatch.setattr(Token, "require_unit", lambda self, owner: None)
    assert "were counted" in found(like=several)


def test_sums_that_bound_rows_where_people_are_counted_are_stopped(monkeypatch):
    monkeypatch.setattr(Token, "per_row", lambda self, rows: self)
    assert "counts for, and was counted for" in found()


def test_labels_of_all_rows_that_vote_are_found(monkeypatch):
    real = CalibratedPlan.find_target

    def every(self, targets, rows, run):
        with monkeypatch.context() as patched:
            patched.setattr(Rows, "standing", property(lambda rows: np.arange(rows.n)))
            patched.setattr(Rows, "one_each", lambda rows: rows)
            patched.setattr(Token, "per_row", lambda self, rows: self)
            patched.setattr(Token, "require_unit", lambda self, owner: None)
            return real(self, targets, rows, run)

    monkeypatch.setattr(CalibratedPlan, "find_target", every)

    def finds(case):
        return case.plan.plan.target is not None and case.plan.plan.unit.rows > 1

    assert found(range(60), finds, people.draw_table)


def test_batches_of_rows_in_the_place_of_people_are_found(monkeypatch):
    real = People.batch

    def some(self, chosen, block_rows):
        index, *_ = real(self, chosen, block_rows)
        return real(self, np.unique(index % self.count), block_rows)

    monkeypatch.setattr(People, "batch", some)
    assert "sampled step" in found(like=lambda case: case.plan.trainer.name == "DPSGD")


def test_more_rows_of_a_person_than_count_are_refused(monkeypatch):
    monkeypatch.setattr(Owners, "kept", lambda self, hashed: np.argsort(self.codes, kind="stable"))
    many = next(
        case
        for _, case in cases(range(90))
        if max(Counter(case.groups[0].tolist()).values()) > case.plan.plan.unit.rows
    )
    assert "more" in run(many, 0, Recorder())["error"]


# The same on a cluster, where rows of a person come from any partitions


class Here(Cluster):
    """A cluster without workers: its tasks are done at once, where they are asked for."""

    threads = 1

    def __init__(self):
        pass

    def read(self, function, pieces, *others):
        return [careful(function, each.compute(scheduler="sync"), *others) for each in pieces]

    def each(self, function, *arguments):
        return [careful(function, *given) for given in zip(*arguments, strict=True)]

    def values(self, futures):
        for value in futures:
            if isinstance(value, Failure):
                raise value.error
        return list(futures)


@pytest.fixture
def cluster(monkeypatch):
    pytest.importorskip("dask.array")
    pytest.importorskip("cloudpickle")
    monkeypatch.setattr(Cluster, "current", Here)


def spread(seeds):
    """Cases whose tables are cut into partitions of a few rows."""
    for seed, case in cases(seeds):
        yield seed, replace(case, block=max(2, max(map(len, case.rows)) // (2 + seed % 3)))


def judged_there(seeds, like=lambda case: True):
    for seed, case in spread(seeds):
        if like(case) and case.plan.trainer.descends:
            yield case, people.compare(case, seed)


def test_plans_for_people_on_a_cluster_are_covered_by_their_account(cluster):
    met = Counter()
    for case, wrong in judged_there(range(400, 432)):
        assert not wrong
        met[case.plan.plan.neighbors] += 1
        met.update({stage.name for stage in case.plan.plan.stages} | {case.plan.trainer.name})
    assert {*NEIGHBORS, "DPGD", "DPSGD", "PrivateCenter", "PrivateBounds"} <= set(met)


@pytest.mark.long
def test_a_thousand_pairs_of_tables_on_a_cluster_are_covered_by_their_account(cluster):
    met, wrong = Counter(), []
    for case, found in judged_there(range(20_000, 21_500)):
        wrong += found
        met[case.plan.plan.neighbors] += 1
    print(f"\n{sum(met.values()):,} pairs; {dict(met)}")
    assert not wrong and sum(met.values()) >= 1000


def test_rows_of_a_person_that_are_split_over_two_partitions_are_found(cluster, monkeypatch):
    parted = Move.of
    monkeypatch.setattr(Move, "of", lambda sizes, index, codes: parted(sizes, index, None))

    def several(case):
        return full(case) and case.plan.plan.unit.rows > 2

    stopped = (found for _, found in judged_there(range(400, 440), several))
    assert any("in several partitions" in str(found) for found in stopped)

    def heedless(rows):
        codes = np.split(rows.owners.codes, rows.source.offsets[1:])
        parts = [Owners(rows.owners.unit, some, rows.owners.marks).renumbered() for some in codes]
        return np.array([0, *(some[0] for some in codes[1:])]), parts

    monkeypatch.setattr(dask, "dealt", heedless)
    wrong = (found for _, found in judged_there(range(400, 460), several))
    assert any("were counted" in text for found in wrong for text in found)
