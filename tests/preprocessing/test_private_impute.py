"""PrivateImpute: noisy means of columns for missing values, in training and prediction."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import kstest
from tests.seam import paid

from tacit import DPLinearClassifier, load, save
from tacit.data.rows import as_rows
from tacit.exceptions import InputError
from tacit.mechanisms.additive import BITS, lattice_sum
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Key, Stream
from tacit.preprocessing import ClipNorm, PrivateCenter, PrivateImpute
from tacit.preprocessing.private_impute import lifted_rows
from tacit.privacy import Gaussian
from tacit.privacy.sensitivity.drift import Drift


def rows_of(n=200, d=5, radius=2.0, missing=0.3, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * 0.3 + np.linspace(-1, 1, d)
    rows[rng.random(size=(n, d)) < missing] = np.nan
    lengths = np.linalg.norm(np.nan_to_num(rows), axis=1, keepdims=True)
    return rows * np.minimum(1, radius / np.maximum(lengths, 1e-9))


def fitted(rows, z=1.0, *, seed=0, bound=2.0, size=None, drift=None, **settings):
    rows = as_rows(rows, bound=bound, gaps=True)
    context = paid(size or rows.n, Key.from_seed(seed), z, drift=drift)
    return PrivateImpute(**settings).fit(rows, context)


@pytest.fixture
def silence(monkeypatch):
    asked = []

    def nothing(self, sigma, count):
        asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(Stream, "discrete_gaussian", nothing)
    return asked


# What is filled in


def test_with_little_noise_gaps_get_the_means_of_observed_cells():
    rows = rows_of()
    stage = fitted(rows, 1e-5)
    assert stage.fill_ == pytest.approx(np.nanmean(rows, axis=0), abs=1e-3)
    found = stage.transform(rows)
    expected = np.where(np.isnan(rows), stage.fill_, rows)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    assert found == pytest.approx(expected * np.minimum(1, 2.0 / lengths), abs=1e-14)
    assert (lengths > 2.0).any()  # filled rows are clipped again


def test_rows_to_predict_are_filled_in_the_same_way():
    stage = fitted(rows_of(missing=0.0), 1e-5)  # gaps where training rows had none
    row = np.array([[np.nan, 0.1, np.nan, 0.2, -0.1]])
    assert stage.transform(row)[0, 0] == pytest.approx(stage.fill_[0])
    assert stage.transform(row)[0, 1] == 0.1
    assert stage.transform([[0.1, 0.2, 0.3, 0.4, 0.5]])[0].tolist() == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_the_fill_is_the_ratio_shrunk_where_the_count_is_within_its_noise(silence):
    rows = rows_of(n=60)
    rows[:, 2] = np.nan
    rows[0, 2] = 0.5  # one cell to go by
    for z in (0.1, 1.0, 30.0):
        stage = fitted(rows, z)
        sums, counts = np.nansum(rows, axis=0), (~np.isnan(rows)).sum(axis=0)
        deviation = math.sqrt(2) * z * math.sqrt(5)
        expected = sums * counts / (counts**2 + deviation**2)
        assert stage.fill_ == pytest.approx(expected, abs=1e-7)
    assert abs(stage.fill_[2]) < 1e-3


def test_sparse_rows_give_what_dense_rows_give(silence):
    rows = rows_of()
    rows[np.random.default_rng(1).random(rows.shape) < 0.3] = 0.0  # observed zeros
    dense, sparse = fitted(rows), fitted(sp.csr_array(rows))
    assert (dense.fill_ == sparse.fill_).all()
    assert sparse.transform(sp.csr_array(rows)) == pytest.approx(dense.transform(rows), abs=1e-15)


def test_only_the_named_columns_are_learned_and_gaps_elsewhere_count_as_zero(silence):
    rows = rows_of()
    stage = fitted(rows, columns=(3, 1))
    whole = fitted(rows)
    assert stage.draws(5) == 4 and whole.draws(5) == 10
    assert [count for _, count in silence] == [4, 10]
    assert not stage.fill_[[0, 2, 4]].any()
    assert stage.fill_[[1, 3]] == pytest.approx(whole.fill_[[1, 3]], rel=0.1)
    assert stage.transform([[np.nan, np.nan, 0.1, 0.1, 0.1]])[0, 0] == 0.0
    assert stage.parameters()["columns"] == [3, 1]


def test_fewer_columns_have_less_noise_in_their_counts():
    rows = np.full((50, 400), np.nan)
    rows[:, 0] = 0.5
    few, many = (
        [fitted(rows, 1.0, bound=1.0, seed=s, columns=c).fill_[0] for s in range(200)]
        for c in ([0], None)
    )
    assert np.std(few) < np.std(many)
    assert np.mean(few) == pytest.approx(0.5, abs=0.02)


def test_observed_cells_are_clipped_to_the_bound_first(silence):
    rows = rows_of()
    rows[0] = [np.nan, 0.0, 2.0, 0.0, 0.0]
    wild = rows.copy()
    wild[0, 2] = 1e250
    assert fitted(wild).fill_ == pytest.approx(fitted(rows).fill_, abs=1e-8)
    assert fitted(rows).transform(wild)[0] == pytest.approx(fitted(rows).transform(rows)[0])


def test_a_row_without_any_cell_and_a_column_without_any(silence):
    rows = rows_of()
    rows[3] = np.nan
    rows[:, 4] = np.nan
    stage = fitted(rows, 1.0)
    assert stage.fill_[4] == 0.0
    assert stage.transform(rows)[3] == pytest.approx(stage.fill_)
    assert not fitted(np.full((20, 3), np.nan)).fill_.any()


# Noise


def test_noise_is_drawn_once_and_is_what_the_event_says(silence):
    stage = fitted(rows_of(), 3.3)
    ((sigma, count),) = silence
    assert count == stage.draws(5) == 10
    # One row is at most 2^30 lattice units, each of √2·R/2^30.
    assert accounted_sigma(sigma) / 2.0**BITS >= 3.3
    assert accounted_sigma(sigma) / 2.0**BITS == pytest.approx(3.3, rel=1e-12)
    assert stage.event(3.3) == Gaussian(3.3)


def test_the_error_is_normal_with_the_scale_the_docstring_says():
    n, c, z, bound = 400, 300, 0.02, 2.0
    rng = np.random.default_rng(0)
    rows = np.broadcast_to(rng.normal(size=c), (n, c)).copy()
    rows *= bound / np.linalg.norm(rows[0])
    rows[rng.random(size=rows.shape) < 0.5] = np.nan
    means, counts = np.nanmean(rows, axis=0), (~np.isnan(rows)).sum(axis=0)
    deviation = math.sqrt(2) * z * bound * np.sqrt(1 + c * means**2 / bound**2) / counts
    errors = [(fitted(rows, z, seed=s).fill_ - means) / deviation for s in range(10)]
    assert kstest(np.concatenate(errors), "norm").pvalue > 0.01
    assert np.std(errors) == pytest.approx(1.0, abs=0.05)


def test_with_no_cell_to_go_by_the_fill_stays_small():
    d, bound = 20_000, 2.0
    for z in (0.1, 1.0, 100.0):
        fill = fitted(np.full((3, d), np.nan), z, bound=bound).fill_
        size = math.sqrt(np.mean(fill**2))
        assert 0.5 * bound / math.sqrt(8 * d) < size < bound / math.sqrt(8 * d) * 1.05


def test_no_fill_is_longer_than_the_bound():
    for seed in range(50):
        stage = fitted(rows_of(n=2, d=1), 0.7, seed=seed)
        assert np.abs(stage.fill_).max() <= 2.0


# Sensitivity


def lifted(rows, columns, bound=2.0):
    """The exact sum, in integers; one row is at most 2^30."""
    seen = as_rows(rows, bound=bound, gaps=True)
    length = math.sqrt(2) * bound * (1 + 1e-12)
    return lattice_sum(lifted_rows(seen, columns, bound), 2 * len(columns), length)


@pytest.mark.parametrize("columns", [[0, 1, 2, 3, 4], [1, 3], [2]])
def test_no_row_contributes_more_than_the_bound(columns):
    rest = rows_of(n=20)
    before = lifted(rest, columns)
    rng, worst, row = np.random.default_rng(0), 0.0, np.full((1, 5), 1.0)
    for step in range(500):
        tried = row + rng.normal(size=(1, 5)) if step % 3 else rng.normal(size=(1, 5)) * 100
        if step % 4 == 0:  # any pattern
            tried[rng.random((1, 5)) < 0.3] = np.nan
        tried = np.where(np.isnan(tried) & (rng.random((1, 5)) < 0.5), 1.0, tried)
        change = (lifted(np.concatenate([rest, tried]), columns) - before).astype(float)
        if np.linalg.norm(change) > worst:
            worst, row = float(np.linalg.norm(change)), tried
    assert worst <= 2.0**BITS
    assert worst > 0.97 * 2.0**BITS


def test_rows_that_have_moved_move_the_sums_and_not_the_counts(silence):
    rng, worst = np.random.default_rng(0), 0.0
    columns = list(range(5))
    for step in range(200):
        total = 10.0 ** rng.uniform(-6, 1)
        rows = rows_of(n=20, seed=step)
        moves = rng.normal(size=rows.shape)
        if step % 2:
            moves = np.broadcast_to(rng.normal(size=5), rows.shape) * 1.0
            rows = rows * 0.1
        moves = np.where(np.isnan(rows), 0.0, moves)  # gaps stay where they are
        moves *= total / np.linalg.norm(moves, axis=1).sum()
        one, other = lifted(rows, columns), lifted(rows + moves, columns)
        assert (one[5:] == other[5:]).all()
        silence.clear()
        fitted(rows, 1.0, drift=Drift(2.0, total, total, 20))
        # Noise of one row and half the drift: sums may lie two rows and the drift apart.
        allowed = 2 * (accounted_sigma(silence[0][0]) - 2.0**BITS)
        worst = max(worst, float(np.linalg.norm((one - other).astype(float))) / allowed)
    assert 0.5 < worst <= 1


# What is refused


@pytest.mark.parametrize("columns", [[0, 0], [-1], [True], [1.5], ["a"]])
def test_columns_are_different_indices(columns):
    with pytest.raises(InputError, match="different indices"):
        PrivateImpute(columns=columns)


def test_columns_that_are_not_there_or_none():
    stage = PrivateImpute(columns=[5])
    for asked in (stage.width, stage.draws):
        with pytest.raises(InputError, match="names column 5; there are 5"):
            asked(5)
    with pytest.raises(InputError, match="names column 5"):
        fitted(rows_of(), columns=[5])
    with pytest.raises(InputError, match="names no column"):
        PrivateImpute(columns=[])
    with pytest.raises(InputError, match="share must lie"):
        PrivateImpute(1.0)


def test_infinity_is_no_gap():
    with pytest.raises(InputError, match="infinity"):
        fitted(np.array([[np.inf, np.nan]]))


# In a plan


def test_a_model_with_gaps_is_saved_and_predicts_as_before(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 4)) + np.array([1.0, -1.0, 0.0, 0.5])
    labels = rows[:, 0] > 1.0
    rows[rng.random(rows.shape) < 0.2] = np.nan
    stages = [ClipNorm(2.0), PrivateImpute(columns=[0, 1, 2, 3]), PrivateCenter()]
    model = DPLinearClassifier(3.0, 1e-5, stages=stages, random_state=0).fit(rows, labels)
    assert model.score(rows, labels) > 0.7
    assert [event.stage for event in model.certificate_.events][:1] == ["PrivateImpute"]
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert (again.decision_function(rows) == model.decision_function(rows)).all()


def test_a_stage_that_cannot_pass_over_gaps_comes_after_it():
    rows, labels = rows_of(), np.arange(200) % 2
    stages = [ClipNorm(2.0), PrivateCenter(), PrivateImpute()]
    with pytest.raises(InputError, match="PrivateImpute must come before PrivateCenter"):
        DPLinearClassifier(1.0, 1e-5, stages=stages).fit(rows, labels)
