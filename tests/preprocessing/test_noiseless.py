"""SoftPCA, NoiselessPCA, NoiselessScale: what they do to rows, against NumPy; what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from tests.seam import paid

from tacit.data.rows import as_rows
from tacit.exceptions import InputError, MissingBound
from tacit.mechanisms.random_streams import Key, Stream
from tacit.preprocessing import NoiselessPCA, NoiselessScale, PrivateScale, SoftPCA
from tacit.privacy import Gaussian
from tacit.privacy.sensitivity.drift import Drift

SHAPES = {"tall": (200, 5), "wide": (6, 30), "square": (8, 8), "two chunks": (5000, 3)}


def rows_of(n=200, d=5, radius=1.0, seed=0):
    """Rows of norm at most ``radius`` with a mean, and a spectrum that falls."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * 0.7 ** np.arange(d) + 0.2
    return radius * rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def through(stage, rows, bound=1.0, drift=None):
    """Fitted on the rows and applied to them."""
    seen = as_rows(rows, bound=bound)
    stage.fit(seen, paid(seen.n, Key.from_seed(0), 1.0, drift=drift))
    return stage.through(seen).collect()


def clip(rows, radius):
    return rows * np.minimum(1, radius / np.maximum(np.linalg.norm(rows, axis=1), 1e-99))[:, None]


@pytest.fixture
def silence(monkeypatch):
    asked = []

    def nothing(self, sigma, count):
        asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(Stream, "discrete_gaussian", nothing)
    return asked


# SoftPCA


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strength", [1e-4, 0.05, 3.0])
def test_soft_pca_shrinks_every_direction_by_its_second_moment(shape, strength):
    n, d = SHAPES[shape]
    rows = rows_of(n, d)
    moment = rows.T @ rows / n
    expected = rows @ moment @ np.linalg.inv(moment + strength * np.eye(d))
    assert through(SoftPCA(strength), rows) == pytest.approx(expected, abs=1e-10)
    assert through(SoftPCA(strength), sp.csr_array(rows)) == pytest.approx(expected, abs=1e-10)


def test_soft_pca_leaves_no_direction_the_rows_do_not_have():
    rows = rows_of(4, 9)
    stage = SoftPCA(0.01)
    through(stage, rows)
    outside = np.linalg.svd(rows)[2][4:]
    assert stage.apply(outside) == pytest.approx(np.zeros((5, 9)), abs=1e-12)
    assert not through(SoftPCA(0.01), np.zeros((5, 3))).any()


def test_soft_pca_brings_rows_back_into_the_ball():
    stage = SoftPCA(1e-6)
    through(stage, rows_of())
    assert np.linalg.norm(stage.apply(rows_of() * 100), axis=1).max() <= 1 + 1e-12


# NoiselessPCA


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("k", [1, 2])
def test_noiseless_pca_projects_on_the_first_components(shape, k):
    rows = rows_of(*SHAPES[shape])
    basis = np.linalg.svd(rows, full_matrices=False)[2][:k]
    assert through(NoiselessPCA(k, gap=1e-3), rows) == pytest.approx(
        rows @ basis.T @ basis, abs=1e-10
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("k", [1, 2])
def test_centred_it_projects_on_the_plane_through_the_mean(shape, k):
    rows = rows_of(*SHAPES[shape])
    mean = rows.mean(axis=0)
    basis = np.linalg.svd(rows - mean, full_matrices=False)[2][:k]
    expected = clip((rows - mean) @ basis.T @ basis + mean, 1.0)
    found = through(NoiselessPCA(k, gap=1e-3, centered=True), rows)
    assert found == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("centered", [False, True])
def test_the_margin_is_the_eigengap_beyond_the_declared_one_in_rows(shape, centered):
    n, d = SHAPES[shape]
    rows, k, gap = rows_of(n, d), 2, 0.01
    moment = np.cov(rows.T) if centered else rows.T @ rows / n
    values = np.linalg.eigvalsh(moment)[::-1]
    stage = NoiselessPCA(k, gap, centered=centered)
    through(stage, rows)
    spread = 3 * math.sqrt(3) if centered else 2.0
    expected = (values[k - 1] - values[k] - gap) * n / spread
    assert stage.margin == pytest.approx(expected, rel=1e-6)
    moved = NoiselessPCA(k, gap, centered=centered)
    through(moved, rows, drift=Drift(1.0, 2.0, 2.0, n))
    change = 3 * math.sqrt(3) + 8 if centered else 6.0
    assert moved.margin == pytest.approx(expected * spread / change, rel=1e-6)


def test_fewer_rows_than_components_keep_what_they_have():
    rows = rows_of(3, 10)
    stage = NoiselessPCA(5, gap=0.01)
    assert through(stage, rows) == pytest.approx(rows, abs=1e-12)
    assert stage.margin < 0


def test_the_map_of_other_rows_is_that_of_the_fit():
    rows, other = rows_of(), rows_of(seed=1)
    stage = NoiselessPCA(2, gap=0.01)
    through(stage, rows)
    basis = np.linalg.svd(rows, full_matrices=False)[2][:2]
    assert stage.transform(other) == pytest.approx(other @ basis.T @ basis, abs=1e-12)


def test_all_columns_are_no_projection_and_a_gap_must_be_possible():
    with pytest.raises(InputError, match="no projection"):
        NoiselessPCA(5, gap=0.1).width(5)
    assert NoiselessPCA(4, gap=0.1).width(5) == 5  # rows keep their columns
    with pytest.raises(InputError, match=r"cannot have an eigengap above 0\.25"):
        NoiselessPCA(4, gap=0.3).drift(Drift(1.0), 100, 5)
    with pytest.raises(MissingBound, match="SoftPCA"):
        NoiselessPCA(4)


# NoiselessScale


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("radius", [None, 1.2])
def test_noiseless_scale_divides_by_the_deviation_and_the_strength(shape, centered, radius):
    rows = rows_of(*SHAPES[shape])
    mean = rows.mean(axis=0) if centered else 0.0
    scale = np.sqrt(((rows - mean) ** 2).mean(axis=0) + 0.2)
    expected = (rows - mean) / scale
    if radius is not None:
        expected = clip(expected, radius)
    for given in (rows, sp.csr_array(rows)):
        stage = NoiselessScale(0.2, centered=centered, radius=radius)
        assert through(stage, given) == pytest.approx(expected, abs=1e-10)
        assert stage.margin == math.inf
        assert not stage.tested


def test_behind_a_floor_it_divides_by_the_deviation_itself():
    rows = rows_of()
    least = float(rows.var(axis=0).min())
    stage = NoiselessScale(floor=least / 2)
    expected = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    assert through(stage, rows) == pytest.approx(expected, abs=1e-10)
    assert stage.tested
    assert stage.margin == pytest.approx(least / 2 * 200 / 4, rel=1e-6)
    moved = NoiselessScale(floor=least / 2)
    through(moved, rows, drift=Drift(1.0, 2.0, 0.1, 199))
    assert moved.margin == pytest.approx(least / 2 * 200 / 12, rel=1e-6)


def test_a_column_that_does_not_vary_fails_the_test_and_nothing_else():
    rows = rows_of() * 0.9
    rows[:, 1] = 0.25
    stage = NoiselessScale(floor=0.01)
    assert np.isfinite(through(stage, rows)).all()
    assert stage.margin < 0
    found = through(NoiselessScale(0.1), rows)
    assert found[:, 1] == pytest.approx(0.0, abs=1e-12)


def test_the_bound_is_what_the_docstring_says():
    assert NoiselessScale(0.25).bound(1.0, 5) == pytest.approx(4.0)
    assert NoiselessScale(0.25, centered=False).bound(1.0, 5) == pytest.approx(2.0)
    assert NoiselessScale(0.25, floor=0.04).bound(1.0, 5) == pytest.approx(10.0)
    assert NoiselessScale(0.25, radius=1.5).bound(1.0, 5) == 1.5
    assert NoiselessScale(0.25, radius=9.0).bound(1.0, 5) == pytest.approx(4.0)
    assert NoiselessScale(0.01).typical(1.0, 4) == 2.0
    assert NoiselessScale().bound(None) is None


@pytest.mark.parametrize("settings", [{}, {"centered": False}, {"floor": 0.005}])
def test_for_prediction_it_releases_what_it_did_in_training_with_noise(silence, settings):
    rows = rows_of()
    stage = NoiselessScale(0.2, share=0.3, **settings)
    seen = through(stage, rows)
    context = paid(200, Key.from_seed(1), 3.3, position=4, drift=Drift(1.0))
    silence.clear()
    noisy = stage.release(as_rows(rows, bound=1.0), context)
    assert type(noisy) is PrivateScale
    assert noisy.transform(rows) == pytest.approx(seen, abs=1e-4)
    ((_, count),) = silence
    assert count == stage.draws(5) == noisy.draws(5) == 10
    assert stage.event(3.3) == noisy.event(3.3) == Gaussian(3.3)
    assert noisy.share == 0.3
    assert set(noisy.arrays()) == {"mean_", "scale_"}


def test_what_it_releases_carries_noise():
    rows = rows_of()
    stage = NoiselessScale(0.2)
    through(stage, rows)
    released = [
        stage.release(as_rows(rows, bound=1.0), paid(200, Key.from_seed(s), 3.0)).scale_
        for s in (0, 1)
    ]
    assert (released[0] != released[1]).all()


def test_a_floor_needs_centred_columns_and_must_be_possible():
    with pytest.raises(InputError, match="centred columns"):
        NoiselessScale(floor=0.1, centered=False)
    with pytest.raises(InputError, match="cannot all vary that much"):
        NoiselessScale(floor=1.1).drift(Drift(1.0), 100, 5)


# Conditions change slowly


@pytest.mark.parametrize(
    ("make", "d"),
    [
        (lambda: NoiselessPCA(1, gap=0.05), 3),
        (lambda: NoiselessPCA(2, gap=0.05), 3),
        (lambda: NoiselessPCA(1, gap=0.05, centered=True), 3),
        (lambda: NoiselessScale(floor=0.02), 1),
        (lambda: NoiselessScale(floor=0.02), 2),
    ],
)
def test_one_row_changes_the_margin_by_one_at_the_most(make, d):
    rng, worst = np.random.default_rng(0), 0.0
    for step in range(300):
        n = int(rng.integers(2, 9))
        rows = clip(rng.normal(size=(n, d)) * rng.uniform(0, 3, size=d), 1.0)
        if step % 3 == 1:
            rows[1:] = rows[1]
        if step % 3 == 2:
            rows = np.round(rows)  # corners
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        other = rows.copy()
        other[0] = rng.normal(size=d)
        other[0] /= np.linalg.norm(other[0])
        margins = []
        for table in (rows, other):
            stage = make()
            through(stage, table)
            margins.append(stage.margin)
        worst = max(worst, abs(margins[0] - margins[1]))
    assert 0.3 < worst <= 1


# What is refused


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "1"])
def test_constants_are_positive_numbers(value):
    for make in (
        SoftPCA,
        lambda v: NoiselessPCA(2, gap=v),
        NoiselessScale,
        lambda v: NoiselessScale(floor=v),
        lambda v: NoiselessScale(radius=v),
    ):
        with pytest.raises(InputError, match="must be a positive number"):
            make(value)


@pytest.mark.parametrize("share", [0, 1, -0.5, True, math.nan])
def test_a_share_is_part_of_the_budget(share):
    for make in (lambda s: NoiselessPCA(2, gap=0.1, share=s), lambda s: NoiselessScale(share=s)):
        with pytest.raises(InputError, match="share must lie between 0 and 1"):
            make(share)


@pytest.mark.parametrize("k", [0, -2, 1.5, True])
def test_components_are_an_integer(k):
    with pytest.raises(InputError, match="at least 1"):
        NoiselessPCA(k, gap=0.1)


@pytest.mark.parametrize("stage", [SoftPCA(), NoiselessPCA(2, gap=0.1), NoiselessScale()])
def test_a_bound_is_needed_and_fitting_comes_first(stage):
    with pytest.raises(MissingBound, match="ClipNorm"):
        stage.fit(rows_of())
    with pytest.raises(InputError, match="not fitted yet"):
        stage.apply(rows_of())
    if stage.tested:
        with pytest.raises(InputError, match="not fitted yet"):
            _ = stage.margin
