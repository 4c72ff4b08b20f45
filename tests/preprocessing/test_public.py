"""Public stages: fitted on public rows alone, which pass the stages in front first."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from tacit.data import as_table
from tacit.data.rows import as_rows
from tacit.exceptions import InputError, MissingBound
from tacit.preprocessing import (
    ClipNorm,
    Context,
    Normalize,
    PublicPCA,
    PublicPrecondition,
    PublicRotation,
    PublicScale,
)

EVERY_STAGE = [PublicPCA, PublicPrecondition, PublicRotation, PublicScale]


def public_rows(n=200, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.array([5.0, 3.0, 1.0, 0.5, 0.1, 0.01])[:d] + 0.3


def none_of(d, bound=1.0):
    """What a plan shows a public stage: the shape of the private rows."""
    return as_rows(np.zeros((5, d)), bound=bound).hidden()


# What both refuse


@pytest.mark.parametrize("stage", EVERY_STAGE)
def test_public_rows_are_needed(stage):
    with pytest.raises(InputError, match="needs public="):
        stage().fit(none_of(6))
    with pytest.raises(InputError, match="no public rows"):
        stage(public=np.zeros((0, 6))).fit(none_of(6))


@pytest.mark.parametrize("stage", EVERY_STAGE)
def test_public_rows_have_the_columns_of_the_private_ones(stage):
    with pytest.raises(InputError, match="public rows have 6 columns, private ones 5"):
        stage(public_rows()).fit(none_of(5))


@pytest.mark.parametrize("stage", EVERY_STAGE)
def test_public_rows_are_numbers(stage):
    with pytest.raises(InputError, match="NaN"):
        stage(np.full((9, 6), np.nan)).fit(none_of(6))


@pytest.mark.parametrize(
    "stage",
    [partial(PublicPCA, n_components=2), PublicPrecondition, PublicRotation, PublicScale],
)
def test_the_fingerprint_is_that_of_the_values(stage):
    rows = public_rows()
    first = stage(rows).fit(none_of(6)).fingerprint
    assert first == stage(rows.copy()).fit(none_of(6)).fingerprint
    assert first == stage(sp.csr_array(rows)).fit(none_of(6)).fingerprint
    rows[-1, -1] = np.nextafter(rows[-1, -1], 9)
    changed = stage(rows).fit(none_of(6))
    assert first != changed.fingerprint
    assert changed.fingerprint in changed.note()
    assert "public" not in changed.parameters()


def test_the_fingerprint_of_a_table_is_that_of_its_cells():
    from tacit.preprocessing.public_rows import fingerprint_of as _fingerprint

    cells = {"age": [31.0, 40.0], "job": ["cook", "smith"]}
    first = _fingerprint(as_table(cells))
    assert first == _fingerprint(as_table(cells))
    assert first != _fingerprint(as_table({**cells, "job": ["cook", "cook"]}))
    assert first != _fingerprint(as_table({**cells, "age": [31.0, 41.0]}))


@pytest.mark.parametrize(
    "stage",
    [PublicPCA(n_components=3), PublicPrecondition(), PublicRotation(), PublicScale()],
)
def test_public_rows_pass_the_stages_in_front(stage):
    rows = public_rows()
    stage.public = rows
    front = (Normalize(),)
    hidden = Normalize().through(none_of(6, bound=None))
    inside = stage.fit(hidden, Context(5, before=front))
    outside = type(stage)(Normalize().transform(rows), **_settings(stage)).fit(none_of(6))
    for name, value in inside.arrays().items():
        assert (value == outside.arrays()[name]).all()
    raw = type(stage)(rows, **_settings(stage)).fit(none_of(6))
    assert any((value != raw.arrays()[name]).any() for name, value in inside.arrays().items())


def _settings(stage):
    return {k: v for k, v in stage.parameters().items() if k != "fingerprint"}


def test_public_rows_are_compared_with_the_table_not_with_what_the_stages_made_of_it():
    narrow = PublicPCA(public_rows(), n_components=4)
    first = narrow.fit(none_of(6))
    after = first.through(none_of(6))
    assert after.d == 4
    second = PublicPCA(public_rows(), n_components=2).fit(after, Context(5, before=(first,)))
    assert second.matrix_.shape == (4, 2)


# PublicPCA


def test_components_are_the_top_eigenvectors_uncentred():
    rows = public_rows() + 2.0
    stage = PublicPCA(rows, n_components=3).fit(none_of(6))
    _, _, right = np.linalg.svd(rows)
    assert np.abs(stage.matrix_.T @ right[:3].T) == pytest.approx(np.eye(3), abs=1e-7)
    assert stage.matrix_.T @ stage.matrix_ == pytest.approx(np.eye(3), abs=1e-7)


def test_more_components_than_public_rows_are_refused():
    with pytest.raises(InputError, match="2 public rows cannot give 3 components"):
        PublicPCA(public_rows(n=2), n_components=3).fit(none_of(6))


def test_more_components_than_the_rank_are_refused_with_the_rank():
    rows = public_rows()[:, :2] @ np.random.default_rng(0).normal(size=(2, 6))
    with pytest.raises(InputError, match="have rank 2; pass n_components=2 or fewer"):
        PublicPCA(rows, n_components=3).fit(none_of(6))
    assert PublicPCA(rows, n_components=2).fit(none_of(6)).matrix_.shape == (6, 2)


def test_public_rows_of_zeros_are_refused():
    with pytest.raises(InputError, match="all zero"):
        PublicPCA(np.zeros((50, 6)), n_components=1).fit(none_of(6))


@pytest.mark.parametrize("components", [0, -1, 7, True])
def test_components_lie_between_one_and_the_columns(components):
    with pytest.raises(InputError, match=r"between 1 and 6|at least 1"):
        PublicPCA(public_rows(), n_components=components).fit(none_of(6))


def test_a_projection_needs_a_bound():
    with pytest.raises(MissingBound, match="ClipNorm"):
        PublicPCA(public_rows(), n_components=2).fit(none_of(6, bound=None))


def test_projected_rows_are_within_the_bound():
    # Integers in place of the matrix may stretch a row a little: the bound must allow for it.
    worst = 0.0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(2, 8))
        k = int(rng.integers(1, d + 1))
        stage = PublicPCA(rng.normal(size=(50, d)), n_components=k).fit(none_of(d))
        images = stage.apply(np.eye(d))
        longest = np.linalg.svd(images)[0][:, :1].T  # the direction that is stretched most
        # Just beyond a lattice point, where the row itself loses nothing.
        longest = (np.trunc(longest * 2.0**25) + np.sign(longest) * 1e-3) / 2.0**25
        length = float(np.linalg.norm(longest))
        assert length <= 1
        worst = max(worst, float(np.linalg.norm(stage.apply(longest))) / stage.bound(length, d))
    assert worst <= 1.0
    assert worst > 1 - 1e-6


# PublicRotation


def test_the_last_columns_of_a_rotation_are_the_top_components():
    rows = public_rows()
    turned = PublicRotation(rows).fit(none_of(6))
    assert turned.matrix_.shape == (6, 6)
    assert turned.matrix_.T @ turned.matrix_ == pytest.approx(np.eye(6), abs=1e-6)
    top = PublicPCA(rows, n_components=2).fit(none_of(6))
    assert np.abs(top.matrix_.T @ turned.matrix_[:, :3:-1]) == pytest.approx(np.eye(2), abs=1e-6)
    energy = (turned.transform(as_rows(rows, bound=30.0)).collect() ** 2).sum(axis=0)
    assert (np.diff(energy) > 0).all()


def test_fewer_public_rows_than_columns_are_completed_to_a_rotation():
    rows = public_rows(n=2)
    turned = PublicRotation(rows).fit(none_of(6))
    assert turned.matrix_.T @ turned.matrix_ == pytest.approx(np.eye(6), abs=1e-6)
    assert (rows @ turned.matrix_)[:, :4] == pytest.approx(0.0, abs=1e-5)
    with pytest.raises(InputError, match="all zero"):
        PublicRotation(np.zeros((5, 6))).fit(none_of(6))
    with pytest.raises(MissingBound, match="ClipNorm"):
        PublicRotation(rows).fit(none_of(6, bound=None))


def test_turned_rows_are_within_the_bound_known_before():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(2, 8))
        stage = PublicRotation(rng.normal(size=(50, d)))
        before = stage.bound(1.0, d)
        stage.fit(none_of(d))
        assert stage.bound(1.0, d) <= before <= 1 + 1e-6
        rows = rng.normal(size=(20, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        assert np.linalg.norm(stage.apply(rows), axis=1).max() <= stage.bound(1.0, d)
    assert PublicRotation(public_rows()).bound(None, 6) is None


# PublicPrecondition


def test_columns_are_divided_by_their_public_root_mean_square_and_the_floor():
    rows = public_rows()
    stage = PublicPrecondition(rows, floor=0.3).fit(none_of(6, bound=2.0))
    scale = np.sqrt(6) * np.sqrt((rows**2).mean(axis=0)) / 2.0 + 0.3
    assert stage.scale_ == pytest.approx(scale, rel=1e-12)
    assert stage.transform(rows) == pytest.approx(rows / scale, rel=1e-12)
    coef, intercept = stage.fold(np.ones((1, 6)), np.ones(1))
    assert rows @ coef.T + intercept == pytest.approx((rows / scale) @ np.ones((6, 1)) + 1)


def test_rows_like_the_public_ones_keep_about_their_length():
    rows = ClipNorm(2.0).transform(public_rows())
    stage = PublicPrecondition(rows, floor=1e-6).fit(none_of(6, bound=2.0))
    squares = (stage.transform(rows) ** 2).sum(axis=1)
    assert squares.mean() == pytest.approx(4.0, rel=1e-3)
    assert stage.typical(2.0, 6) == 2.0


def test_no_row_becomes_longer_than_the_floor_allows():
    rng = np.random.default_rng(0)
    stage = PublicPrecondition(public_rows(), floor=0.05)
    before = stage.bound(2.0, 6)
    assert before == pytest.approx(40.0)
    stage.fit(none_of(6, bound=2.0))
    rows = rng.normal(size=(1000, 6))
    rows[0] = np.eye(6)[5]
    rows *= 2.0 / np.linalg.norm(rows, axis=1, keepdims=True)
    longest = np.linalg.norm(stage.transform(rows), axis=1).max()
    assert 0.99 * stage.bound(2.0) < longest <= stage.bound(2.0) <= before
    assert stage.lipschitz() == stage.bound(1.0)
    assert stage.bound(None) is None
    for floor in (0, -1.0, np.nan, None):
        with pytest.raises(InputError, match="floor must be a positive number"):
            PublicPrecondition(public_rows(), floor=floor)
    with pytest.raises(MissingBound, match="ClipNorm"):
        PublicPrecondition(public_rows()).fit(none_of(6, bound=None))


# PublicScale


def test_columns_are_centred_and_scaled_by_the_public_ones():
    rows = public_rows()
    stage = PublicScale(rows).fit(none_of(6))
    found = stage.transform(rows)
    assert found.mean(axis=0) == pytest.approx(0.0, abs=1e-12)
    assert found.std(axis=0) == pytest.approx(1.0, rel=1e-9)
    kept = PublicScale(rows, with_mean=False).fit(none_of(6)).transform(rows)
    assert kept == pytest.approx(rows / rows.std(axis=0), rel=1e-9)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1 / 3, -1e6, 1e-200])
def test_columns_that_do_not_vary_keep_their_scale(value):
    rows = np.column_stack([np.full(1000, value), np.linspace(-1, 1, 1000)])
    stage = PublicScale(rows).fit(none_of(2))
    assert stage.scale_[0] == 1.0


def test_a_large_mean_does_not_hide_the_scale():
    rows = 1e8 + np.random.default_rng(0).normal(size=(1000, 1))
    stage = PublicScale(rows).fit(none_of(1))
    assert stage.scale_[0] == pytest.approx(rows.std(), rel=1e-3)


def test_scaled_rows_are_within_the_bound():
    rng = np.random.default_rng(0)
    stage = PublicScale(public_rows()).fit(none_of(6))
    rows = rng.normal(size=(1000, 6))
    rows[0] = np.eye(6)[5]
    rows[1] = -stage.mean_
    rows *= 2.0 / np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.linalg.norm(stage.transform(rows), axis=1).max() <= stage.bound(2.0)
    assert stage.bound(None) is None
    assert PublicScale(public_rows()).bound(2.0) is None


def test_an_unfitted_stage_says_so():
    for stage in (kind(public_rows()) for kind in EVERY_STAGE):
        with pytest.raises(InputError, match="not fitted yet"):
            stage.apply(np.zeros((1, 6)))
