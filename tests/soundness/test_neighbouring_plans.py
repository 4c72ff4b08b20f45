"""Hostile neighbours through whole plans: no sum lies farther from its twin than was counted."""

from __future__ import annotations

import numpy as np
import pytest
from tests.soundness import plans

from tacit.losses import get_loss
from tacit.plan import CalibratedPlan
from tacit.preprocessing import ClipNorm, RandomProjection, SoftPCA
from tacit.trainers import DPSGD

#: Free stages that may stand behind each noiseless one.
BETWEEN = {
    "nothing between": (),
    "a projection behind each": (RandomProjection(2, seed=3),),
    "a clip behind each": (ClipNorm(0.7),),
}
SHORT = [
    (name, between, stages)
    for between, free in BETWEEN.items()
    for length in (1, 2)
    for name, stages in plans.chains(length, free)
]
LONG = list(plans.chains(3))


def assert_within(stages, pairs, **settings):
    """Every pair stays within the account; how many could be compared, and the largest ratio."""
    compared, largest = 0, 0.0
    n, d = pairs[0].n, pairs[0].d
    for intercept in (True, False):
        plan = plans.calibrated(stages, n, d, intercept=intercept, **settings)
        for pair in pairs:
            found = plans.compare(plan, pair)
            if found is None:
                continue
            compared += 1
            worst = max(found, key=lambda each: each.ratio)
            assert worst.ratio <= 1 + 1e-9, f"{pair.name}, intercept {intercept}: {worst}"
            largest = max(largest, worst.ratio)
    return compared, largest


def pairs_for(stages, pairs):
    gaps = any(stage.fills_gaps for stage in stages)
    return [*pairs, *map(plans.with_gaps, pairs)] if gaps else pairs


def test_every_noiseless_stage_is_in_some_chain():
    together = {stage.name for _, _, stages in SHORT for stage in stages}
    assert {stage.name for stage in plans.NOISELESS.values()} <= together
    assert len(SHORT) > 100
    assert len(LONG) > 100
    assert any(stages[0].blanks and len(stages) > 1 for _, _, stages in SHORT)


def test_a_quick_selection_of_chains_stays_within_the_account():
    """Every twelfth chain of one or two noiseless stages, and three of three."""
    pairs = plans.hostile(120)
    compared = 0
    for i, stages in enumerate([*(s for *_, s in SHORT[::12]), *(s for _, s in LONG[::90])]):
        some = pairs_for(stages, pairs[i % 3 :: 3])
        compared += assert_within(stages, some)[0]
    assert compared > 50


@pytest.mark.long
@pytest.mark.parametrize("n", [12, 120, 3000])
def test_all_chains_of_up_to_three_noiseless_stages_stay_within_the_account(n):
    pairs = plans.hostile(n)
    compared = 0
    for stages in [*(s for *_, s in SHORT), *(s for _, s in LONG)]:
        compared += assert_within(stages, pairs_for(stages, pairs))[0]
    print(f"\n{compared:,} pairs compared, {n} rows")
    assert compared > 2000


@pytest.mark.parametrize("loss", ["hinge", "huber-hinge", "squared", "huber", "absolute"])
def test_plans_of_other_losses_stay_within_the_account(loss):
    for name in ("dedup, equal rows", "quantize", "shrunk mean"):
        stages = (plans.NOISELESS[name], SoftPCA(0.05))
        compared, _ = assert_within(stages, plans.hostile(120)[::3], loss=loss)
        assert compared > 3


# Rows that are blanked, and rows that happen to be zero


@pytest.mark.parametrize("tail", [(), (RandomProjection(2, seed=3),)])
@pytest.mark.parametrize("pair", plans.hostile(8000)[:2], ids=lambda pair: pair.name)
def test_rows_that_a_later_stage_brings_to_zero_keep_their_constant(pair, tail):
    """SoftPCA brings all common rows to zero in one table and not in the other."""
    stages = (plans.NOISELESS["dedup, equal rows"], SoftPCA(0.05), *tail)
    compared, largest = assert_within(stages, [pair])
    assert compared == 2
    assert largest < 0.1


def test_the_attack_notices_a_mask_that_is_inferred_from_values(monkeypatch):
    """As the engine once did: a row that is zero at last lost its constant, too."""
    real = CalibratedPlan.prepare

    def inferred(self, rows, *args, **settings):
        prepared = real(self, rows, *args, **settings)
        blanked = ~np.asarray(prepared.rows.collect()).any(axis=1)
        object.__setattr__(prepared.rows, "blanked", blanked)
        return prepared

    monkeypatch.setattr(CalibratedPlan, "prepare", inferred)
    pair = plans.hostile(8000)[0]
    plan = plans.calibrated((plans.NOISELESS["dedup, equal rows"], SoftPCA(0.05)), pair.n, pair.d)
    worst = max(plans.compare(plan, pair), key=lambda each: each.ratio)
    assert worst.ratio > 3
    assert "one class" in worst.where


@pytest.mark.parametrize(
    ("name", "hurt"),
    [("dedup", "between two clusters"), ("soft PCA", "one direction")],
)
def test_the_attack_notices_drift_that_nobody_paid_for(name, hurt):
    """Two clips are not enough for these pairs: the comparison can fail."""
    stages = (plans.NOISELESS[name],)
    ratios = []
    for pair in pairs_for(stages, [p for p in plans.hostile(1000) if p.name == hurt]):
        plan = plans.calibrated(stages, pair.n, pair.d)
        two_clips = 2 * float(plan.trainer.clip)
        ratios += [each.apart / two_clips for each in plans.compare(plan, pair) or []]
    assert max(ratios) > 1


def test_batches_of_sampled_trainers_stay_within_clip_and_drift():
    """Whatever batch is drawn, the common rows in it move by no more than the drift of all."""
    pairs = plans.hostile(120)[::2]
    for name in ("dedup, equal rows", "soft PCA"):
        trainer = DPSGD(steps=2, batch_size=30)
        plan = plans.calibrated((plans.NOISELESS[name],), 121, 3, trainer=trainer)
        moves, clip = plan.moves, float(plan.trainer.clip)
        for pair in pairs:
            for each in plans.compare(plan, pair, batches=2) or []:
                # Given the batch, whether or not the odd row is in it.
                assert each.apart <= (2 * clip + moves.distance(each.norm, clip)) * (1 + 1e-9)


def test_labels_of_blanked_rows_are_never_looked_at():
    """A duplicate's label may be anything: it is part of a row that counts nothing."""
    pair = plans.hostile(120)[5]
    plan = plans.calibrated((plans.NOISELESS["dedup, equal rows"],), pair.n, pair.d)
    prepared = plans.prepared(plan, pair.rows[0])
    blanked = prepared.rows.blanked
    assert blanked.sum() == plans.CROWD - 2
    loss = get_loss("logistic")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, pair.n)
    other = np.where(blanked, 1 - labels, labels)
    weights = rng.normal(size=(1, pair.d + 1, 1))
    sums = [
        plan.engine(prepared, loss.targets(some, 1)).gradient_sum(weights, 0.1).values
        for some in (labels, other)
    ]
    assert np.array_equal(*sums)
