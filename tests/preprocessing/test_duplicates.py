"""Near-duplicates: what becomes of them, and what one row can do to everybody else's."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.exceptions import InputError, MissingBound, PrivateTestError
from tacit.preprocessing import ClipNorm, Dedup, Normalize, PrivateCenter, Quantize, SoftPCA
from tacit.preprocessing.base import Context
from tacit.privacy import Drift
from tacit.trainers import DPGD, DPSGD


def clustered(rng, groups=6, members=3, d=2, radius=0.01):
    """Rows in tight groups that lie far apart, in no order."""
    centres = rng.uniform(-0.6, 0.6, size=(groups, d))
    rows = np.repeat(centres, members, axis=0)
    rows += rng.uniform(-1, 1, size=rows.shape) * radius / (2 * np.sqrt(d))
    return rng.permutation(rows)


def changed(stage, rows):
    held = as_rows(rows, bound=1.0)
    return stage.fit(held, Context(len(rows))).through(held).collect()


def crowd(rows, radius):
    """The exact crowd: most rows within 4 radii of any point, searched over many."""
    near = np.linalg.norm(rows[:, None] - rows[None], axis=2) <= 8 * radius * (1 + 1e-9)
    return int(near.sum(axis=1).max())  # at least the crowd of any ball that holds a row


def test_one_row_of_each_group_stays_in_its_place():
    rng = np.random.default_rng(0)
    rows = clustered(rng)
    left = changed(Dedup(radius=0.01, crowd=20), rows)
    kept = left.any(axis=1)
    assert left.shape == rows.shape
    assert kept.sum() == 6
    np.testing.assert_array_equal(left[kept], rows[kept])


def test_equal_rows_alone_are_duplicates_at_radius_zero():
    rows = np.array([[0.1, 0.0], [0.2, 0.0], [0.1, 0.0], [0.1, 1e-12]])
    left = changed(Dedup(crowd=9), rows)
    np.testing.assert_array_equal(left, [[0.1, 0.0], [0.2, 0.0], [0.0, 0.0], [0.1, 1e-12]])


def test_quantised_rows_become_rows_of_their_group():
    rng = np.random.default_rng(1)
    rows = clustered(rng)
    moved = changed(Quantize(radius=0.01, crowd=20), rows)
    assert len(np.unique(moved, axis=0)) == 6
    assert np.linalg.norm(moved - rows, axis=1).max() <= 0.01
    assert {tuple(row) for row in moved} <= {tuple(row) for row in rows}


@pytest.mark.parametrize("kind", [Dedup, Quantize])
def test_no_neighbour_moves_more_rows_or_farther_than_was_said(kind):
    rng = np.random.default_rng(2)
    worst = 0.0
    for trial in range(300):
        radius = 10 ** rng.uniform(-3, -1.3)
        rows = clustered(rng, groups=int(rng.integers(1, 5)), radius=radius, d=1 + trial % 3)
        other = rows.copy()
        # A row that lands between groups, or in the ring around one, breaks most.
        at, near = rng.integers(len(rows), size=2)
        step = rng.normal(size=rows.shape[1])
        other[at] = rows[near] + step / np.linalg.norm(step) * radius * rng.uniform(0, 3.5)
        common = np.arange(len(rows)) != at
        most = max(crowd(rows, radius), crowd(other, radius))
        stage = kind(radius=radius, crowd=most)
        apart = (changed(stage, rows) - changed(stage, other))[common]
        lengths = np.linalg.norm(apart, axis=1)
        claim = stage.drift(Drift(1.0), len(rows), rows.shape[1])
        assert lengths.sum() <= claim.l1 + 1e-12
        assert lengths.max(initial=0.0) <= claim.linf + 1e-12
        assert (lengths > 0).sum() <= claim.l0
        worst = max(worst, (lengths > 0).sum() / max(claim.l0, 1))
    assert worst > 0.25  # the search does reach rows


def test_the_margin_counts_rows_and_changes_by_one():
    rng = np.random.default_rng(3)
    rows = clustered(rng)
    stage = Dedup(radius=0.01, crowd=50)
    for _ in range(100):
        other = rows.copy()
        other[rng.integers(len(rows))] = rows[rng.integers(len(rows))] + 0.01 * rng.normal(size=2)
        one, two = (stage.fit(as_rows(r, bound=1.0)).margin for r in (rows, other))
        assert abs(one - two) <= 1
        rows = other


def table(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[: n // 10] = X[n // 10 : n // 5]
    return X, (X[:, 0] > 0).astype(int)


def test_blanked_rows_count_nothing_in_training():
    X, y = table()
    taken = ~changed(Dedup(crowd=2000), X).any(axis=1)
    assert taken.sum() == len(X) // 10
    stages = [Normalize(), Dedup(crowd=2000)]
    trainer = DPGD(steps=3, learning_rate=1.0, clip=0.5)
    one, other, kept = (
        DPLinearClassifier(epsilon=8.0, stages=stages, trainer=trainer, random_state=0).fit(
            X, labels
        )
        for labels in (y, np.where(taken, 1 - y, y), np.where(np.arange(len(y)) < 9, 1 - y, y))
    )
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    assert (one.coef_ != kept.coef_).any()


@pytest.mark.parametrize("trainer", ["auto", DPSGD(steps=20, batch_size=300)])
def test_a_plan_with_duplicates_taken_out_is_certified(trainer):
    X, y = table()
    stages = [Normalize(), Dedup(crowd=60, share=0.5)]
    model = DPLinearClassifier(epsilon=8.0, stages=stages, trainer=trainer).fit(X, y)
    assert model.certificate_.neighbors == "replace_one"
    assert model.certificate_.verify().holds
    assert [stage.name for stage in model.stages_] == ["Normalize"]
    # One contribution, not two, for every row that is blank on one side.
    assert model.plan_.moves.most(0.1) == 0.1


def test_too_large_a_crowd_fails_the_test():
    X, y = table()
    X[:1500] = X[0]
    with pytest.raises(PrivateTestError):
        DPLinearClassifier(stages=[Normalize(), Dedup(crowd=500)]).fit(X, y)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(MissingBound, match="crowd="):
        Dedup(radius=0.1)
    with pytest.raises(InputError, match="radius must be a positive number"):
        Quantize(radius=-1.0, crowd=3)
    X, y = table()
    with pytest.raises(InputError, match="before any other noiseless stage"):
        DPLinearClassifier(stages=[ClipNorm(), SoftPCA(), Dedup(crowd=9)]).fit(X, y)
    with pytest.raises(InputError, match="blanked out; leave it out"):
        DPLinearClassifier(stages=[ClipNorm(), Dedup(crowd=9), PrivateCenter()]).fit(X, y)
    with pytest.raises(InputError, match="maps no single rows"):
        Dedup(crowd=3).fit(as_rows(X, bound=9.0)).apply(X)
