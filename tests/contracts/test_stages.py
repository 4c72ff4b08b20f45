"""What every stage promises: one suite for all of them."""

from __future__ import annotations

import copy
import json
import math
import sys
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from tests.examples.private_rescale import PrivateRescale
from tests.features import nets
from tests.seam import paid, paid_for

from tacit import preprocessing as stages
from tacit.data.rows import Rows, as_rows
from tacit.exceptions import InputError
from tacit.features.onnx_files import open_onnx
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key, Stream
from tacit.plan import Plan
from tacit.preprocessing import (
    Bound,
    ClipNorm,
    Dedup,
    FillGaps,
    NoiselessImpute,
    NoiselessPCA,
    NoiselessScale,
    Normalize,
    PrivateBlocks,
    PrivateBounds,
    PrivateCenter,
    PrivateCheckedPCA,
    PrivateClip,
    PrivateEqualize,
    PrivateImpute,
    PrivatePCA,
    PrivatePrecondition,
    PrivateScale,
    PublicCenter,
    PublicFeatures,
    PublicPCA,
    PublicPrecondition,
    PublicRotation,
    PublicScale,
    Quantize,
    RandomProjection,
    Root,
    SoftPCA,
    Stage,
)
from tacit.preprocessing.base import NoiselessStage, PrivateStage
from tacit.privacy import Budget, Event
from tacit.privacy.accounting.accountants import total_mu
from tacit.privacy.events import NEIGHBORS
from tacit.privacy.sensitivity.drift import Drift
from tacit.trainers import DPGD

D, RADIUS = 6, 2.0

# One of the stages is made to find its public rows unlike the private ones, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:the public rows of PrivateCheckedPCA")


def public_rows(d=D):
    return np.random.default_rng(9).normal(size=(60, d)) * np.linspace(0.5, 2, d) + 0.1


@cache
def network(d):
    """A small public network of vectors."""
    return open_onnx(Path("net.onnx"), nets.of_vectors(d))


def _blocks(d):
    return [
        (2, [ClipNorm(1.0), PrivateImpute(0.2), PrivateScale(0.1, strength=0.4)]),
        (1, []),
        (d - 3, [PrivateCenter(0.3), PrivateScale(0.1, strength=0.5)]),
    ]


# One of each, as made by hand: settings that are not the defaults. A stage that works in several
# ways is here several times, with the way behind its name.
MAKERS = {
    "Bound": lambda d: Bound(np.linspace(-1, 0, d), np.linspace(0.5, 3, d)),
    "ClipNorm": lambda d: ClipNorm(0.7),
    "Dedup": lambda d: Dedup(0.05, crowd=9),
    "FillGaps": lambda d: FillGaps(0.25),
    "Normalize": lambda d: Normalize(0.7),
    "Root": lambda d: Root(),
    "NoiselessImpute": lambda d: NoiselessImpute("ridge", columns=[1, 4], strength=0.3),
    "NoiselessPCA": lambda d: NoiselessPCA(2, gap=0.01, centered=True),
    "NoiselessScale": lambda d: NoiselessScale(0.4, radius=1.5),
    "PrivateBlocks": lambda d: PrivateBlocks(0.2, 3.0, _blocks(d)),
    "PrivateBounds": lambda d: PrivateBounds(0.2, noise_multiplier=3.0),
    "PrivateBounds, exponential": lambda d: PrivateBounds(0.2, 3.0, "exponential"),
    "PrivateCenter": lambda d: PrivateCenter(0.2, noise_multiplier=3.0),
    "PrivateCenter, located": lambda d: PrivateCenter(0.2, 3.0, method="instance-optimal"),
    "PrivateCheckedPCA": lambda d: PrivateCheckedPCA(public_rows(d), 3, noise_multiplier=3.0),
    "PrivateCheckedPCA, unlike": lambda d: PrivateCheckedPCA(
        public_rows(d) * np.eye(d)[0], 1, noise_multiplier=3.0
    ),
    "PrivateClip": lambda d: PrivateClip(0.2, noise_multiplier=3.0),
    "PrivateClip, constant": lambda d: PrivateClip(0.2, 3.0, constant=True),
    "PrivateClip, exponential": lambda d: PrivateClip(0.2, 3.0, "exponential"),
    "PrivatePrecondition": lambda d: PrivatePrecondition(0.2, noise_multiplier=3.0),
    "PrivateEqualize": lambda d: PrivateEqualize(0.2, noise_multiplier=3.0, strength=0.4),
    "PrivateImpute": lambda d: PrivateImpute(0.2, noise_multiplier=3.0, columns=[1, 4]),
    "PrivatePCA": lambda d: PrivatePCA(3, share=0.2, noise_multiplier=3.0),
    "PrivateRescale": lambda d: PrivateRescale(0.2, noise_multiplier=3.0, strength=0.4),
    "PrivateScale": lambda d: PrivateScale(0.2, noise_multiplier=3.0, strength=0.4),
    "PublicCenter": lambda d: PublicCenter(public_rows(d)),
    "PublicFeatures": lambda d: PublicFeatures(network(d), cache=False),
    "PublicPCA": lambda d: PublicPCA(public_rows(d), n_components=3),
    "PublicPrecondition": lambda d: PublicPrecondition(public_rows(d), floor=0.2),
    "PublicRotation": lambda d: PublicRotation(public_rows(d)),
    "PublicScale": lambda d: PublicScale(public_rows(d)),
    "Quantize": lambda d: Quantize(0.05, crowd=9),
    "RandomProjection": lambda d: RandomProjection(4, seed=5),
    "SoftPCA": lambda d: SoftPCA(0.4),
}
# Tables: tests/preprocessing/test_encode.py and test_by_columns.py, tests/soundness.
ELSEWHERE = {"ByColumns", "Encode", "PrivateByColumns", "PrivateEncode"}
EXAMPLES = {"PrivateRescale"}  # of CONTRIBUTING.md
EVERY_STAGE = sorted(MAKERS)
PLAIN = [name for name in EVERY_STAGE if MAKERS[name](D).kind == "noiseless"]
OTHERS = [name for name in EVERY_STAGE if name not in PLAIN]
PRIVATE = [name for name in OTHERS if MAKERS[name](D).kind == "private"]
# Which row is a duplicate depends on all of them, so these map no single rows.
TOGETHER = ["Dedup", "Quantize"]
# Rows that have moved may cross an edge together, so these take none of them.
COUNTS_ROWS = [n for n in PRIVATE if n.startswith(("PrivateBounds", "PrivateClip"))]
COUNTS_ROWS += ["PrivateCenter, located", "PrivateCheckedPCA", "PrivateCheckedPCA, unlike"]
ROW_WISE = [name for name in EVERY_STAGE if name not in TOGETHER]


def private_rows(n=40, d=D, seed=0):
    """Rows of norm at most RADIUS, some of them at it, some zero."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    rows[rng.random(size=(n, d)) < 0.3] = 0.0
    rows[:4] = 0.0
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled = RADIUS * rng.uniform(size=(n, 1)) * rows / np.maximum(lengths, 1e-9)
    scaled[::3] = RADIUS * (rows / np.maximum(lengths, 1e-9))[::3]
    return scaled


def fitted(name, d=D, rows=None, seed=0):
    stage = MAKERS[name](d)
    rows = as_rows(private_rows(d=d) if rows is None else rows, bound=RADIUS)
    shown = rows if stage.kind in ("private", "noiseless") else rows.hidden()
    return stage.fit(shown, paid_for(stage, rows.n, Key.from_seed(seed), 3.0))


@pytest.mark.parametrize("name", EVERY_STAGE)
def test_settings_can_be_read_and_set_and_clones_have_them(name):
    stage = fitted(name) if name not in TOGETHER else MAKERS[name](D)
    same = clone(stage)
    assert type(same) is type(stage)
    assert same.parameters() == stage.parameters()
    assert stage.set_params(**same.get_params()) is stage
    assert [*same.get_params()] == [item.name for item in fields(stage)]
    with pytest.raises(InputError, match="has no setting 'nothing'"):
        stage.set_params(nothing=1)


def dense(chunk):
    return chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk)


def test_every_public_stage_is_under_this_contract():
    public = {name for name in stages.__all__ if name not in ("Context", "Stage")}
    assert public == {name.partition(",")[0] for name in MAKERS} - EXAMPLES | ELSEWHERE
    for name in public:
        assert issubclass(getattr(stages, name), Stage)


# Row by row


LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "float32 F": lambda a: np.asfortranarray(a.astype(np.float32)),
    "int F": lambda a: np.asfortranarray(np.rint(a * 9).astype(np.int64)),
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "sparse": sp.csr_array,
}


def assert_same(stage, one, other):
    """Bit for bit; after a noiseless stage rows may be off by its rounding bound, which is
    part of the price.
    """
    if stage.kind != "noiseless":
        assert one.tobytes() == other.tobytes()
        return
    off = np.linalg.norm(one - other, axis=1)
    assert off.max(initial=0.0) <= stage.rounding_bound(RADIUS) * stage.bound(RADIUS, D)


def assert_row_by_row(stage, rows, sizes=(1, 2, 3, 16)):
    """Every row is the same, however the table is cut."""
    seen = stage.through(as_rows(rows, bound=RADIUS, gaps=True))
    whole = np.concatenate([dense(chunk) for _, chunk in seen.chunks(rows.shape[0])])
    assert whole.shape == (rows.shape[0], seen.d)
    for size in sizes:
        cut = np.concatenate([dense(chunk) for _, chunk in seen.chunks(size)])
        assert_same(stage, cut, whole)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ROW_WISE)
def test_a_row_alone_is_the_row_in_a_block(name, layout):
    rows = LAYOUTS[layout](private_rows(n=33) * 1.7)  # some beyond the bound
    assert_row_by_row(fitted(name), rows)


WIDE = ["ClipNorm", "Normalize", "RandomProjection", "PrivateClip", "PrivateImpute", "PrivateScale"]
WIDE += ["PublicFeatures"]


@pytest.mark.parametrize("name", WIDE)
def test_a_wide_row_alone_is_the_row_in_a_block(name):
    # Beyond 8192 columns NumPy works in buffers.
    rows = private_rows(n=17, d=9000)
    assert_row_by_row(fitted(name, d=9000), rows * 1.7, sizes=(1, 2))


FIRST = ["Bound", "FillGaps", "PrivateCenter", "PrivateImpute", "PrivateScale", "PublicScale"]
FIRST += ["PrivateBounds", "PrivateClip"]
FIRST += ["PublicCenter"]


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("second", ["Normalize", "ClipNorm"])
def test_a_row_alone_is_the_row_in_a_block_after_two_stages(first, second):
    rows = np.asfortranarray(private_rows(n=33) * 1.7)
    seen = fitted(second).through(fitted(first).through(as_rows(rows, bound=RADIUS)))
    whole = np.concatenate([chunk for _, chunk in seen.chunks(33)])
    cut = np.concatenate([chunk for _, chunk in seen.chunks(1)])
    assert cut.tobytes() == whole.tobytes()


@pytest.mark.parametrize("name", ROW_WISE)
def test_another_row_changes_nothing_for_the_rest(name):
    stage, rows = fitted(name), private_rows(n=20)
    before = dense(stage.apply(rows))
    for wild in (0.0, 1e-200, 1e6, 1e200):
        other = rows.copy()
        other[7] = wild
        after = dense(stage.apply(other))
        assert_same(stage, np.delete(after, 7, axis=0), np.delete(before, 7, axis=0))


@pytest.mark.parametrize("name", ROW_WISE)
def test_rows_are_not_changed_in_place(name):
    rows = private_rows()
    sparse = sp.csr_array(rows)
    before, before_sparse = rows.copy(), sparse.copy()
    fitted(name).transform(rows)
    fitted(name).transform(sparse)
    assert (rows == before).all()
    assert (sparse != before_sparse).nnz == 0


@pytest.mark.parametrize("name", ROW_WISE)
def test_sparse_rows_give_what_dense_rows_give(name):
    rows, stage = private_rows(), fitted(name)
    assert dense(stage.transform(sp.csr_array(rows))) == pytest.approx(
        dense(stage.transform(rows)), rel=1e-12, abs=1e-6
    )


# Any finite row


LARGEST_FLOAT = sys.float_info.max
EDGES = [
    1e308,
    -1e308,
    LARGEST_FLOAT,
    -LARGEST_FLOAT,
    5e-324,
    -5e-324,
    1e-310,
    0.0,
    -0.0,
    1e200,
    1e-200,
]
EDGES += [float(np.finfo(np.float32).max), -(2.0**63)]


def finite_rows(d=D):
    """Rows at the edges of the floats: of one size, of two, of one cell, of every size."""
    rng = np.random.default_rng(12)
    rows = [np.full(d, edge) for edge in EDGES]
    rows += [
        np.where(np.arange(d) % 2, LARGEST_FLOAT, other) for other in (-LARGEST_FLOAT, 5e-324, 1.0)
    ]
    rows += [
        np.eye(d)[i] * edge
        for i, edge in enumerate((LARGEST_FLOAT, -LARGEST_FLOAT, 5e-324, 1e-310))
    ]
    rows += list(10.0 ** rng.uniform(-323, 308, (20, d)) * rng.choice([-1.0, 1.0], (20, d)))
    return np.array(rows)


LOUD = {"over": "raise", "invalid": "raise", "divide": "raise"}


def norms(rows):
    """Without overflow."""
    return np.array([math.hypot(*row) for row in dense(rows).tolist()])


def assert_total(stage, rows):
    """Finite, silent, within the bound, and a matter of each row alone."""
    seen = as_rows(rows)
    with np.errstate(**LOUD):
        whole = dense(stage.apply(seen.read(0, seen.n)))
        alone = [dense(stage.apply(seen.read(i, i + 1))) for i in range(seen.n)]
    assert np.isfinite(whole).all()
    assert_same(stage, np.concatenate(alone), whole)
    bound = stage.bound(None, seen.d)
    if bound is not None:
        assert norms(whole).max() <= bound * (1 + 1e-12)
    return whole


@pytest.mark.parametrize("layout", ["C", "F", "sparse"])
@pytest.mark.parametrize("name", ROW_WISE)
def test_any_finite_row_gives_a_finite_row_without_a_word(name, layout):
    assert_total(fitted(name), LAYOUTS[layout](finite_rows()))


def edges_of(dtype):
    info = np.iinfo(dtype) if np.dtype(dtype).kind == "i" else np.finfo(dtype)
    rows = np.zeros((6, D), dtype=dtype)
    rows[0], rows[1], rows[2, ::2], rows[3, 1::2] = info.max, info.min, info.max, info.min
    rows[4] = np.finfo(dtype).tiny if np.dtype(dtype).kind == "f" else 1
    return rows


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.float32, np.float16])
@pytest.mark.parametrize("name", ROW_WISE)
def test_the_edges_of_other_types_are_rows_like_others(name, dtype):
    rows = edges_of(dtype)
    assert_total(fitted(name), rows)
    assert_total(fitted(name), sp.csr_array(rows.astype(np.float32)))


AFFINE = ["PrivateCenter", "PrivateScale", "PublicCenter", "PublicScale", "NoiselessScale"]
AFFINE += ["PrivateEqualize", "PublicPrecondition"]


@pytest.mark.parametrize("layout", ["C", "sparse"])
@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1.0, 1e300])
@pytest.mark.parametrize("mean", [1e308, -1e308, 5e-324])
@pytest.mark.parametrize("name", AFFINE)
def test_whatever_is_subtracted_and_divided_by_rows_stay_finite(name, mean, scale, layout):
    stage = fitted(name)
    for key in {"mean_", "_mean", "scale_", "_scale"} & vars(stage).keys():
        setattr(stage, key, np.full(D, mean if "mean" in key else scale))
    stage.bound = lambda radius, d=None: None if radius is None else math.inf  # none to keep
    seen = assert_total(stage, LAYOUTS[layout](finite_rows()))
    if name in ("PrivateScale", "PublicScale"):
        # Saturated twice, not once: a larger cell never comes out smaller, nor by a jump.
        cells = np.sort(
            np.concatenate([EDGES, np.linspace(-LARGEST_FLOAT / 2, LARGEST_FLOAT / 2, 50)])
        )
        column = stage.apply(np.repeat(cells[:, None], D, axis=1))[:, 0]
        assert (np.diff(column) >= 0).all()
        assert np.abs(seen).max() <= LARGEST_FLOAT / max(scale, 1.0)


@pytest.mark.parametrize("second", ROW_WISE)
def test_any_finite_row_passes_any_two_stages(second):
    rows = finite_rows()
    for first in ROW_WISE:
        if MAKERS[first](D).width(D) == D and not MAKERS[second](D).must_be_first:
            given = as_rows(rows)
            seen = fitted(second).through(fitted(first).through(given))
            with np.errstate(**LOUD):
                assert np.isfinite(dense(seen.collect())).all()


@pytest.mark.parametrize("name", PRIVATE + PLAIN)
def test_one_finite_row_never_stops_a_stage_from_being_fitted(name):
    for row in finite_rows():
        rows = private_rows()
        rows[7] = row
        given = as_rows(rows, bound=RADIUS)  # which the row may break, and is not trusted
        if name in TOGETHER:
            given = ClipNorm(RADIUS).through(given)
        with np.errstate(**LOUD):
            stage = MAKERS[name](D).fit(given, paid(40, Key.from_seed(0), 3.0))
            seen = dense(stage.through(given).collect())
        assert np.isfinite(seen).all()
        assert norms(np.delete(seen, 7, axis=0)).max() <= stage.bound(RADIUS, D) * (1 + 1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bound(0, 5e-324),
        lambda: Bound([0, 0], [1, 1e-310]),
        lambda: Bound(-5e-324, 5e-324),
        lambda: Bound(0, 1e-310),
        lambda: ClipNorm(5e-324),
        lambda: ClipNorm(1e308),
        lambda: Normalize(5e-324),
        lambda: Normalize(10**400),
        lambda: SoftPCA(5e-324),
        lambda: PrivateScale(strength=1e-310),
        lambda: PrivateEqualize(strength=1e308),
        lambda: PublicPrecondition(public_rows(), floor=5e-324),
        lambda: NoiselessScale(1e-320),
    ],
)
def test_settings_that_arithmetic_breaks_on_are_refused(make):
    with pytest.raises(InputError, match=r"too close|must be a positive number"):
        make()


@pytest.mark.parametrize("stage", [PublicScale, PublicCenter, PublicPrecondition])
def test_public_rows_too_large_to_compute_with_are_refused(stage):
    rows = public_rows() * 1e160
    with pytest.raises(InputError, match="beyond 1e\\+100"):
        stage(rows).fit(as_rows(private_rows(), bound=RADIUS).hidden())


def test_a_bound_that_no_arithmetic_can_use_is_none():
    stage = fitted("PublicScale")
    stage.scale_ = np.full(D, 1e-200)
    seen = stage.through(as_rows(private_rows(), bound=RADIUS))
    assert stage.bound(RADIUS, D) > 1e150 and seen.bound is None
    assert ClipNorm(1.0).through(seen).bound == 1.0
    with pytest.raises(InputError, match="needs a public bound"):
        MAKERS["PrivateCenter"](D).fit(seen)


# Shape and bound


@pytest.mark.parametrize("name", ROW_WISE)
def test_the_width_is_what_comes_out(name):
    stage, rows = fitted(name), private_rows()
    assert dense(stage.transform(rows)).shape == (40, stage.width(D))
    seen = stage.through(as_rows(rows, bound=RADIUS))
    assert isinstance(seen, Rows)
    assert seen.d == stage.width(D) and seen.n == 40
    assert isinstance(stage.transform(as_rows(rows, bound=RADIUS)), Rows)


@pytest.mark.parametrize("name", ROW_WISE)
def test_no_row_comes_out_longer_than_the_bound(name):
    stage = fitted(name)
    bound = stage.bound(RADIUS, D)
    if bound is None:
        assert name == "PublicFeatures"  # the one that says so: a bound must come behind it
        return
    rng = np.random.default_rng(1)
    rows = np.concatenate([private_rows(n=3000, seed=2), RADIUS * np.eye(D), -RADIUS * np.eye(D)])
    longest = rows[:1]
    for _ in range(30):  # climb towards the row that comes out longest
        tried = np.concatenate([rows, longest, longest + rng.normal(size=(300, D)) * 0.1])
        tried *= np.minimum(1, RADIUS / np.maximum(np.linalg.norm(tried, axis=1), 1e-9))[:, None]
        lengths = np.linalg.norm(dense(stage.apply(tried)), axis=1)
        longest = tried[lengths.argmax()][None]
    assert lengths.max() <= bound * (1 + (D + 8) * 2.0**-52)
    if stage.bound(None, D) is not None:  # then it holds for any row at all
        assert np.linalg.norm(dense(stage.apply(rows * 1e6)), axis=1).max() <= bound * (1 + 1e-12)


@pytest.mark.parametrize("name", ROW_WISE)
def test_a_bound_given_before_fitting_is_never_the_smaller_one(name):
    before = MAKERS[name](D).bound(RADIUS, D)
    assert before is None or before >= fitted(name).bound(RADIUS, D) * (1 - 1e-12)


@pytest.mark.parametrize("name", EVERY_STAGE)
def test_the_typical_size_is_no_larger_than_the_bound(name):
    for stage in (MAKERS[name](D), fitted(name)):
        bound, typical = stage.bound(RADIUS, D), stage.typical(RADIUS, D)
        assert typical is None if bound is None else 0 < typical <= bound


# Cost


@pytest.mark.parametrize("name", EVERY_STAGE)
def test_only_what_adds_noise_has_an_event(name):
    stage = MAKERS[name](D)
    assert stage.kind in ("free", "public", "private", "noiseless")
    if stage.kind in ("public", "private"):  # what costs nothing or much says so in its name
        assert name.startswith(stage.kind.title())
    assert isinstance(stage, PrivateStage) == (stage.kind == "private")
    assert isinstance(stage, NoiselessStage) == (stage.kind == "noiseless")
    # A model of rows that were scaled exactly needs scales that may be released.
    assert stage.pays == (stage.kind == "private" or name == "NoiselessScale")
    if stage.pays:
        event = stage.event(3.0)
        assert isinstance(event, Event)
        # By whatever mechanism, noise of 3 costs what Gaussian noise of 3 does.
        for neighbors, unit in NEIGHBORS.items():
            assert total_mu([event], neighbors) <= unit / 3.0 * (1 + 1e-12)
            assert total_mu([event], neighbors) == pytest.approx(unit / 3.0, rel=0.05)
        assert stage.draws(D) >= 1
        assert 0 < stage.share < 1
        return
    with pytest.raises(TypeError, match="what it costs"):
        stage.event(3.0)
    with pytest.raises(TypeError, match="how much noise"):
        stage.draws(D)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_stage_draws_as_many_numbers_as_it_says_and_no_others(name, monkeypatch):
    counts, words = [], []

    def nothing(self, sigma, count):
        counts.append(count)
        return np.zeros(count, dtype=np.int64)

    def some(self, count):
        words.append(repr(self))
        return np.zeros(count, dtype=np.uint64)

    monkeypatch.setattr(Stream, "discrete_gaussian", nothing)
    monkeypatch.setattr(Stream, "words", some)
    for other in ("normal", "uniform"):
        monkeypatch.setattr(Stream, other, None)
    stage = fitted(name)
    if name == "PrivateCenter, located":  # its rotation is public, and in a stream of its own
        assert len(words) == 1 and "rotation" in words.pop()
    assert sum(counts) + len(words) == stage.draws(D)  # a selection takes one uniform number


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_stage_needs_a_bound_and_noise(name):
    rows = private_rows()
    if name.startswith("PrivateBounds"):  # made for rows without a bound
        assert MAKERS[name](D).fit(rows).bound(None, D) == math.sqrt(D)
    else:
        with pytest.raises(InputError, match="never read from the private rows"):
            MAKERS[name](D).fit(rows)
    stage = MAKERS[name](D)
    stage.noise_multiplier = None
    with pytest.raises(InputError, match="needs noise_multiplier="):
        stage.fit(as_rows(rows, bound=RADIUS))
    MAKERS[name](D).fit(as_rows(rows, bound=RADIUS))  # outside a plan, with its own


@pytest.mark.parametrize("name", PRIVATE)
def test_each_place_in_a_plan_has_noise_of_its_own(name):
    def learned(position):
        rows = as_rows(private_rows(), bound=RADIUS)
        stage = MAKERS[name](D)
        return stage.fit(rows, paid_for(stage, 40, Key.from_seed(0), 3.0, position=position))

    first, again, second = (learned(i).arrays() for i in (0, 0, 1))
    assert all((first[key] == again[key]).all() for key in first)
    assert any((first[key] != second[key]).any() for key in first)


@pytest.mark.parametrize("kind", ["private", "noiseless", "other"])
def test_a_stage_that_looks_and_does_not_say_at_what_cost_is_refused(kind):
    spy = type("Unpaid", (Spy,), {"kind": kind})()
    with pytest.raises(InputError, match="does not say at what cost"):
        Plan(Budget(1.0, 1e-5), (ClipNorm(1.0), spy), DPGD(steps=2), get_loss("logistic"))


@pytest.mark.parametrize("name", [n for n in OTHERS if n not in PRIVATE])
def test_stages_that_do_not_pay_learn_nothing_from_private_rows(name):
    one, other = fitted(name), fitted(name, rows=private_rows(n=7, seed=3))
    for key, value in one.arrays().items():
        assert (value == other.arrays()[key]).all()
    assert one.parameters() == other.parameters()


# Noiseless stages: nothing leaves, and the drift holds


@pytest.mark.parametrize("name", PLAIN)
def test_what_a_plain_stage_learned_is_never_exported(name):
    stage, other = fitted(name), fitted(name, rows=private_rows(n=7, seed=3))
    for seen in (stage, other, MAKERS[name](D)):
        with pytest.raises(InputError, match="never written to a file"):
            seen.arrays()
    # Attributes that end in an underscore are what files and certificates take.
    assert not [key for key in vars(stage) if key.endswith("_")]
    assert stage.parameters() == other.parameters() == MAKERS[name](D).parameters()
    assert stage.note() == other.note() and stage.note()


def tighter(name, n):
    """The stage with its condition, if it has one, set so that ordinary rows keep it."""
    return {"Dedup": Dedup(0.3, crowd=n), "Quantize": Quantize(0.3, crowd=n)}.get(name) or (
        MAKERS[name](D)
    )


@pytest.mark.parametrize("name", PLAIN)
def test_rows_that_neighbours_share_move_no_farther_than_the_drift_says(name):
    n, rng, worst = 12, np.random.default_rng(4), 0.0
    context = paid_for(MAKERS[name](D), n, Key.from_seed(0), 3.0)
    for _ in range(200):
        rows = rng.normal(size=(n, D)) * rng.uniform(0, 2, size=D)
        if name in TOGETHER:
            rows = rows[rng.integers(0, 5, n)] + rng.normal(size=(n, D)) * 0.05
        rows *= RADIUS / np.maximum(np.linalg.norm(rows, axis=1), RADIUS)[:, None]
        if name == "NoiselessImpute":
            rows[:, [1, 4]] = np.where(rng.random((n, 2)) < 0.3, np.nan, rows[:, [1, 4]])
        other = rows.copy()
        other[5] = rng.normal(size=D)
        other[5] *= RADIUS / np.linalg.norm(other[5])
        seen, margins = [], []
        for table in (rows, other):
            given = as_rows(table, bound=RADIUS, gaps=True)
            stage = tighter(name, n).fit(given, context)
            seen.append(dense(stage.through(given).collect()))
            margins.append(stage.margin)
        if min(margins) < 0:
            continue  # what the test would refuse
        drift = stage.drift(Drift(RADIUS), n, D)
        moved = np.linalg.norm(np.delete(seen[0] - seen[1], 5, axis=0), axis=1)
        assert np.linalg.norm(np.concatenate(seen), axis=1).max() <= drift.bound * (1 + 1e-12)
        assert moved.max() <= drift.linf * (1 + 1e-9)
        assert np.linalg.norm(moved) <= drift.l2 * (1 + 1e-9)
        assert (moved > 1e-9).sum() <= drift.l0
        worst = max(worst, moved.sum() / drift.l1)
    assert 0 < worst <= 1


@pytest.mark.parametrize("name", PLAIN)
def test_drift_is_positive_and_grows_with_what_comes_in(name):
    stage = MAKERS[name](D)
    still = stage.drift(Drift(RADIUS), 1000, D)
    assert still.bound == pytest.approx(stage.bound(RADIUS, D))
    assert 0 < still.l1 < math.inf
    incoming = Drift(RADIUS, 0.5, 0.01, 999)
    if name in TOGETHER:
        with pytest.raises(InputError, match="before any other noiseless stage"):
            stage.drift(incoming, 1000, D)
        return
    shaken = stage.drift(incoming, 1000, D)
    assert shaken.l1 > still.l1


# Rows that have moved


@pytest.mark.parametrize("name", OTHERS)
def test_rows_that_lie_close_together_stay_as_close_as_the_constant_says(name):
    stage = fitted(name)
    for seen in (MAKERS[name](D), stage):
        if seen.bound(RADIUS, D) is None:
            with pytest.raises(InputError, match="does not bound its rows"):
                seen.drift(Drift(RADIUS, 0.5, 0.01, 99), 100, D)
            continue
        if seen.lipschitz(D) is None or name in COUNTS_ROWS:
            with pytest.raises(InputError, match="cannot follow a noiseless stage"):
                seen.drift(Drift(RADIUS, 0.5, 0.01, 99), 100, D)
            assert seen.drift(Drift(RADIUS), 100, D).l1 == 0
            continue
        rng = np.random.default_rng(6)
        one = private_rows(n=500, seed=5)
        other = one + rng.normal(size=one.shape) * 10.0 ** rng.uniform(-8, 0, size=(len(one), 1))
        other *= RADIUS / np.maximum(np.linalg.norm(other, axis=1), RADIUS)[:, None]
        before = np.linalg.norm(one - other, axis=1)
        after = np.linalg.norm(dense(stage.apply(one)) - dense(stage.apply(other)), axis=1)
        for a, b in zip(before.tolist(), after.tolist(), strict=True):
            behind = seen.drift(Drift(RADIUS, a, a, 1), 100, D)  # nothing else moves
            assert b <= behind.rounded(seen.rounding_bound(RADIUS) * behind.bound).l1
        assert seen.drift(Drift(RADIUS), 100, D).l1 == 0


@pytest.mark.parametrize("name", COUNTS_ROWS)
def test_counts_of_rows_that_moved_are_refused_by_the_plan_and_by_the_stage(name):
    stages_ = (ClipNorm(RADIUS), SoftPCA(0.4), MAKERS[name](D))
    plan = Plan(Budget(20.0, 1e-5), stages_, DPGD(steps=2), get_loss("logistic"), "replace_one")
    with pytest.raises(InputError, match="cannot follow a noiseless stage"):
        plan.calibrate(size=60, columns=D, classes=2)
    stage, drift = MAKERS[name](D), Drift(RADIUS, 0.5, 0.01, 39)
    with pytest.raises(InputError, match="cannot follow a noiseless stage"):
        stage.fit(
            as_rows(private_rows(), bound=RADIUS),
            paid_for(stage, 40, Key.from_seed(0), 3.0, drift=drift),
        )
    # In front of it they may stand.
    order = (ClipNorm(RADIUS), MAKERS[name](D), ClipNorm(1.0), SoftPCA(0.4))
    plan = Plan(Budget(20.0, 1e-5), order, DPGD(steps=2), get_loss("logistic"), "replace_one")
    plan.calibrate(size=60, columns=D, classes=2)


# Gaps and zeros


def gappy_rows(n=33):
    rows = private_rows(n=n)
    rows[np.random.default_rng(8).random(rows.shape) < 0.2] = np.nan
    return rows


@pytest.mark.parametrize("name", ROW_WISE)
def test_gaps_are_filled_or_kept_or_refused(name):
    stage, rows = fitted(name), gappy_rows()
    if not (stage.keeps_gaps or stage.fills_gaps):
        with pytest.raises(InputError, match="NaN"):
            stage.transform(rows)
        return
    for given in (rows, sp.csr_array(rows)):
        seen = dense(stage.through(as_rows(given, bound=RADIUS, gaps=True)).collect())
        if stage.fills_gaps:
            assert np.isfinite(seen).all()
            assert np.isfinite(dense(stage.transform(given))).all()
        else:
            assert (np.isnan(seen) == np.isnan(rows)).all()
    assert np.linalg.norm(np.nan_to_num(seen), axis=1).max() <= stage.bound(RADIUS, D) * (1 + 1e-12)


@pytest.mark.parametrize("layout", ["C", "F", "float32 F", "strided", "sparse"])
@pytest.mark.parametrize("name", [n for n in ROW_WISE if MAKERS[n](D).keeps_gaps])
def test_a_gap_in_one_row_changes_nothing_for_the_rest(name, layout):
    # Wide enough for norms to depend on the order of their terms.
    stage, rows = fitted(name, d=50), private_rows(n=20, d=50) * 1.7
    gappy = rows.copy()
    gappy[7, [0, 2]] = np.nan
    before, after = (dense(stage.apply(LAYOUTS[layout](r))) for r in (rows, gappy))
    assert np.delete(after, 7, axis=0).tobytes() == np.delete(before, 7, axis=0).tobytes()


@pytest.mark.parametrize("layout", ["C", "F", "float32 F", "strided", "sparse"])
@pytest.mark.parametrize("name", [n for n in ROW_WISE if MAKERS[n](D).fills_gaps])
def test_a_row_with_gaps_alone_is_the_row_in_a_block(name, layout):
    assert_row_by_row(fitted(name), LAYOUTS[layout](gappy_rows() * 1.7))


@pytest.mark.parametrize("name", ROW_WISE)
def test_zeros_stay_zeros_where_a_stage_says_so(name):
    stage = fitted(name)
    if stage.keeps_zero:
        assert not dense(stage.apply(np.zeros((3, D)))).any()


# Folding


@pytest.mark.parametrize("name", ROW_WISE)
def test_folded_coefficients_give_the_same_scores(name):
    # Short rows: what is clipped in training rows only is not folded.
    stage, rows = fitted(name), 1e-3 * private_rows()
    rng = np.random.default_rng(0)
    coef, intercept = rng.normal(size=(3, stage.width(D))), rng.normal(size=3)
    if not stage.affine:
        with pytest.raises(TypeError, match="not affine"):
            stage.fold(coef, intercept)
        return
    before = dense(stage.transform(rows)) @ coef.T + intercept
    folded, moved = stage.fold(coef, intercept)
    assert folded.shape == (3, D)
    assert rows @ folded.T + moved == pytest.approx(before, abs=1e-5 * np.abs(coef).sum())
    half = np.zeros((2, 3))
    assert stage.fold(coef, half[0])[0].shape == (3, D)


# Files and copies


@pytest.mark.parametrize("name", EVERY_STAGE)
def test_parameters_are_json_and_make_the_stage_again(name):
    stage = MAKERS[name](D)
    parameters = json.loads(json.dumps(stage.parameters(), allow_nan=False))
    unsaved = {key: getattr(stage, key) for key in stage.unsaved}
    assert type(stage)(**parameters, **unsaved).parameters() == stage.parameters()


@pytest.mark.parametrize("name", OTHERS)
def test_parameters_are_json_and_restore_the_map(name):
    stage, rows = fitted(name), private_rows()
    parameters = json.loads(json.dumps(stage.parameters(), allow_nan=False))
    again = type(stage).restore(parameters, stage.arrays())
    if name == "PublicFeatures":  # the network is no part of any file
        again.supply(stage.extractor)
        again.cache = False
    assert dense(again.transform(rows)).tobytes() == dense(stage.transform(rows)).tobytes()
    assert again.parameters() == stage.parameters()
    assert again.bound(RADIUS, D) == stage.bound(RADIUS, D)
    assert isinstance(stage.note(), str) and stage.note()


@pytest.mark.parametrize("name", EVERY_STAGE)
def test_fitting_a_copy_leaves_the_original_as_it_was(name):
    original = MAKERS[name](D)
    before = copy.deepcopy(vars(original))
    twin = copy.copy(original)
    rows = as_rows(private_rows(), bound=RADIUS)
    twin.fit(rows, paid_for(twin, 40, Key.from_seed(0), 3.0))
    assert vars(original).keys() == before.keys()
    if name not in PLAIN:
        assert original.arrays() == {}


@pytest.mark.parametrize("name", ROW_WISE)
def test_a_stage_that_needs_fitting_says_so(name):
    stage = MAKERS[name](D)
    if vars(stage).keys() == vars(fitted(name)).keys():
        return
    with pytest.raises(InputError, match="not fitted yet"):
        stage.apply(private_rows())


# What stages see inside a plan


@dataclass
class Spy(Stage):
    """A stage that writes down what it is shown, and tries to see more."""

    seen: list = field(default_factory=list)
    kind: ClassVar[Any] = "free"

    def bound(self, radius, d=None):
        return radius

    def fit(self, rows, context=None):
        cells = sum(dense(chunk).size for _, chunk in rows.chunks())
        self.seen.append((rows.n, cells, rows.d, context.position, len(context.before)))
        return self

    def apply(self, chunk):
        return chunk


@dataclass
class PublicSpy(Spy):
    kind: ClassVar[Any] = "public"


@dataclass
class PrivateSpy(PrivateCenter):
    seen: list = field(default_factory=list)

    def fit(self, rows, context=None):
        self.seen.append((rows.n, rows.d, context.token.noise_multiplier))
        return super().fit(rows, context)


def test_free_and_public_stages_are_never_shown_a_row():
    n = 60
    rows = private_rows(n=n)
    free, public, private, last = Spy(), PublicSpy(), PrivateSpy(0.2), Spy()
    stages_ = (ClipNorm(1.0), free, public, private, ClipNorm(1.5), last)
    plan = Plan(Budget(1.0, 1e-5), stages_, DPGD(steps=2), get_loss("logistic"))
    calibrated = plan.calibrate(size=n, columns=D, classes=2)
    targets = plan.loss.targets(np.arange(n) % 2, 1)
    calibrated.run(as_rows(rows), targets, key=Key.from_seed(0))
    assert free.seen == [(0, 0, D, 1, 1)]
    assert public.seen == [(0, 0, D, 2, 2)]
    assert last.seen == [(0, 0, D, 5, 5)]
    assert private.seen == [(n, D, calibrated.stage_noise[3])]
    assert math.isclose(calibrated.spent[0][1].noise_multiplier, calibrated.stage_noise[3])
