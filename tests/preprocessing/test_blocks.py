"""Stages on blocks of columns: bounds of all of them, noise of their own, one event together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.seam import Quiet

from tacit.data.rows import as_rows
from tacit.exceptions import InputError
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Releases
from tacit.preprocessing import (
    ClipNorm,
    Context,
    NoiselessScale,
    PrivateBlocks,
    PrivateBounds,
    PrivateCenter,
    PrivateImpute,
    PrivatePCA,
    PrivateScale,
    PublicCenter,
)
from tacit.privacy import Gaussian

TWICE = [(2, [ClipNorm(1.0), PrivateCenter(0.1)]), (2, [ClipNorm(1.0), PrivateCenter(0.3)])]


def rows(n=200, d=4, seed=0):
    cells = np.random.default_rng(seed).normal(size=(n, d))
    return as_rows(cells / np.linalg.norm(cells, axis=1, keepdims=True), bound=1.0)


def context(z=2.0, n=200, draws=None):
    run = Releases(Key.from_seed(3), [("PrivateBlocks", Gaussian(z))], draws=draws)
    return Context(n, run.token("PrivateBlocks"), run.public)


def test_the_bound_counts_every_block():
    stage = PrivateBlocks(blocks=[(1, [PrivateBounds()]), (2, []), (1, [ClipNorm(0.5)])])
    assert stage.bound(3.0) == pytest.approx(math.sqrt(1 + 9 + 0.25))
    stage.fit(rows(), context())
    wild = np.random.default_rng(1).normal(size=(500, 4)) * 9
    seen = stage.through(as_rows(wild, bound=np.linalg.norm(wild, axis=1).max()))
    longest = np.linalg.norm(np.asarray(seen.collect()), axis=1).max()
    assert longest <= seen.bound
    assert longest > np.hypot(1, 0.5)  # a bound that forgets a block is broken by these rows


def test_noise_of_all_stages_costs_what_one_event_does():
    quiet = Quiet()
    PrivateBlocks(blocks=TWICE).fit(rows(), context(2.0, draws=quiet))
    ratios = [deviation / total.reach for total, deviation in quiet.asked]
    assert math.fsum(1 / z**2 for z in ratios) <= 1 / 2.0**2
    assert math.fsum(1 / z**2 for z in ratios) == pytest.approx(1 / 2.0**2, rel=1e-6)
    assert ratios[0] == pytest.approx(3 * ratios[1])  # in proportion to their shares


def test_two_blocks_never_draw_the_same_noise():
    blocks = [(2, [PrivateCenter(0.2, shrink=False)])] * 2
    same = as_rows(np.tile(rows(d=2).collect(), (1, 2)), bound=2.0)
    stage = PrivateBlocks(blocks=blocks).fit(same, context(50.0))
    zero = stage.transform(np.zeros((1, 4)))[0]
    assert np.abs(zero[:2] - zero[2:]).max() > 1e-3


def test_a_block_is_what_the_stage_would_be_on_its_columns_alone():
    given = rows()
    part = as_rows(np.asarray(given.collect())[:, 1:3], bound=1.0)
    alone = PrivateScale(strength=0.1).fit(part, context(1e-5))
    stage = PrivateBlocks(blocks=[(1, []), (2, [PrivateScale(strength=0.1)]), (1, [])])
    seen = stage.fit(given, context(1e-5)).transform(given).collect()
    assert seen[:, 1:3] == pytest.approx(alone.transform(part).collect(), abs=1e-3)
    assert np.array_equal(seen[:, [0, 3]], given.collect()[:, [0, 3]])


def test_gaps_are_filled_in_their_block_and_count_as_zero_elsewhere():
    cells = np.asarray(rows().collect()).copy()
    cells[::3] = np.nan
    given = as_rows(cells, bound=1.0, gaps=True)
    stage = PrivateBlocks(blocks=[(2, [PrivateImpute()]), (2, [PrivateCenter(shrink=False)])])
    assert stage.fills_gaps
    seen = stage.fit(given, context()).transform([[np.nan] * 4])
    assert np.isfinite(seen).all()


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([(2, [NoiselessScale()])], "takes no NoiselessScale"),
        ([(2, [PublicCenter(np.ones((3, 2)))])], "takes no PublicCenter"),
        ([(2, [PrivateBlocks(blocks=TWICE)])], "takes no PrivateBlocks"),
        ([(2, [ClipNorm(1.0)])], "no stage pays"),
        ([(0, [PrivateCenter()])], "must be pairs"),
        ([(2, PrivateCenter())], "must be pairs"),
        ([(2, [PrivateCenter(noise_multiplier=2.0)])], "give its share"),
        ([(2, [PrivateBounds(method="exponential")])], "Gaussian event"),
        ([(2, [PrivatePCA(1), PrivateImpute()])], "PrivateImpute must come before PrivatePCA"),
    ],
)
def test_what_no_block_takes(blocks, message):
    with pytest.raises(InputError, match=message):
        PrivateBlocks(blocks=blocks)


def test_blocks_must_be_all_columns():
    with pytest.raises(InputError, match="blocks of 4 columns, the rows have 3"):
        PrivateBlocks(blocks=TWICE).width(3)
