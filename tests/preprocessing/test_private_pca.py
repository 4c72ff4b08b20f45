"""PrivatePCA: components of a noisy second moment, and how good they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from tests.seam import paid, token

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.exceptions import InputError, MissingBound
from tacit.mechanisms.covariance import noisy_second_moment
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Key, Stream
from tacit.preprocessing import Normalize, PrivatePCA, SoftPCA
from tacit.privacy import Gaussian
from tacit.privacy.sensitivity.drift import Drift


def rows_of(n=400, d=12, seed=0):
    """Rows of norm at most 1 with a spectrum that falls."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    rows = rng.normal(size=(n, d)) * 0.8 ** np.arange(d) @ basis
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def fitted(rows, k=3, z=1.0, *, seed=0, bound=1.0, size=None, position=0, drift=None):
    rows = as_rows(rows, bound=bound)
    context = paid(size or rows.n, Key.from_seed(seed), z, position=position, drift=drift)
    return PrivatePCA(k).fit(rows, context)


@pytest.fixture
def silence(monkeypatch):
    asked = []

    def nothing(self, sigma, count):
        asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(Stream, "discrete_gaussian", nothing)
    return asked


def top(rows, k):
    return np.linalg.svd(rows, full_matrices=False)[2][:k].T


# Components


@pytest.mark.parametrize("k", [1, 3, 12])
def test_without_noise_they_are_the_top_eigenvectors_uncentred(silence, k):
    rows = rows_of()
    stage = fitted(rows + 0.0, k)
    assert np.abs(stage.matrix_.T @ top(rows, k)) == pytest.approx(np.eye(k), abs=1e-4)
    assert stage.matrix_.T @ stage.matrix_ == pytest.approx(np.eye(k), abs=1e-6)
    assert stage.transform(rows) == pytest.approx(rows @ stage.matrix_, abs=1e-6)


def test_sparse_and_wide_rows(silence):
    rows = rows_of(n=20, d=60)
    found = fitted(rows, 4).matrix_
    assert np.abs(found.T @ top(rows, 4)) == pytest.approx(np.eye(4), abs=1e-3)
    sparse = fitted(sp.csr_array(rows), 4).matrix_
    assert np.abs(found.T @ sparse) == pytest.approx(np.eye(4), abs=1e-6)


def test_a_wide_table_takes_little_time():
    stage = fitted(rows_of(n=30, d=1000), 5)
    assert stage.matrix_.shape == (1000, 5)
    assert PrivatePCA(5).draws(6000) == 18_003_000


def test_folding_takes_coefficients_back_to_the_columns():
    stage, rows = fitted(rows_of()), rows_of(seed=1)
    coef = np.random.default_rng(0).normal(size=(2, 3))
    folded, moved = stage.fold(coef, np.ones(2))
    assert rows @ folded.T + moved == pytest.approx(stage.transform(rows) @ coef.T + 1, abs=1e-5)


def test_the_bound_known_before_is_one_and_next_to_nothing():
    for k, d in ((1, 2), (3, 12), (12, 12)):
        before = PrivatePCA(k).bound(1.0, d)
        assert 1 < before < 1 + 1e-6
        for seed in range(10):
            assert fitted(rows_of(n=9, d=d, seed=seed), k, 5.0, seed=seed).bound(1.0, d) <= before
    assert PrivatePCA(3).bound(None, 12) is None
    assert PrivatePCA(3).bound(1.0) is None  # how far off depends on the columns


# Noise and what it does


def test_noise_is_what_the_event_says_whatever_the_rows(silence):
    for rows in (rows_of(), np.zeros((400, 12))):
        silence.clear()
        stage = fitted(rows, z=3.3, bound=0.5)
        assert stage.event(3.3) == Gaussian(3.3)
        assert sum(count for _, count in silence) == stage.draws(12) == 78
        assert accounted_sigma(silence[0][0]) / 4.0**20 == pytest.approx(3.3, rel=1e-12)


def test_noise_grows_with_the_drift_of_the_rows(silence):
    drift = Drift(1.0, l1=2.0, linf=0.1, l0=399)
    fitted(rows_of(), z=3.0, drift=drift)
    found = accounted_sigma(silence[0][0]) / 4.0**20
    assert found == pytest.approx(3.0 * drift.second_moment(1) / 2, rel=1e-6)


def test_rows_beyond_the_bound_count_as_rows_at_it(silence):
    rows = rows_of()
    rows[0] = 0.0
    rows[0, 0] = 1.0
    wild = rows.copy()
    wild[0, 0] = 1e200
    assert (fitted(wild).matrix_ == fitted(rows).matrix_).all()


def test_the_public_size_not_the_number_of_rows_decides_how_fine_numbers_are(silence):
    rows = rows_of()
    for n in (100, 400):
        silence.clear()
        fitted(rows[:n], size=10**9)
        assert accounted_sigma(silence[0][0]) == pytest.approx(4.0**16, rel=1e-9)


def test_the_noise_has_the_largest_eigenvalue_the_docstring_says():
    d, seen = 60, []
    for seed in range(100):
        noise = noisy_second_moment([], d, 1.0, token(1.0, seed), size=1)
        seen.append(np.linalg.eigvalsh(noise)[-1])
    most = math.sqrt(2 * d)
    assert 0.9 * most < np.mean(seen) <= most
    for t in (1.0, 2.0):
        assert np.mean(np.array(seen) > most + t) <= math.exp(-(t**2) / 2)


@pytest.mark.parametrize("z", [0.3, 3.0])
def test_components_capture_as_much_as_the_docstring_says(z):
    n, d, k, t = 2000, 12, 3, 2.0
    rows = rows_of(n, d)
    best = np.linalg.norm(rows @ top(rows, k)) ** 2 / n
    values = np.linalg.eigvalsh(rows.T @ rows / n)[::-1]
    lost, turned = [], []
    for seed in range(40):
        matrix = fitted(rows, k, z, seed=seed).matrix_
        lost.append(best - np.linalg.norm(rows @ matrix) ** 2 / n)
        outside = matrix - top(rows, k) @ (top(rows, k).T @ matrix)
        turned.append(np.linalg.norm(outside, 2))
    reach = z * (math.sqrt(2 * d) + t) / n
    failures = 2 * math.exp(-(t**2) / 2)
    assert np.mean(np.array(lost) > 2 * k * reach) <= failures
    assert np.mean(np.array(turned) > 2 * reach / (values[k - 1] - values[k])) <= failures
    assert np.mean(lost) > 0


def test_with_much_noise_they_say_nothing_about_the_rows():
    rows = rows_of()
    matrices = [fitted(r, 3, 1e6).matrix_ for r in (rows, rows[::-1] * 0.5)]
    assert matrices[0] == pytest.approx(matrices[1], abs=1e-3)


# What is refused


@pytest.mark.parametrize("k", [0, -1, 2.5, True, None])
def test_components_are_an_integer(k):
    with pytest.raises(InputError, match="at least 1"):
        PrivatePCA(k)


def test_more_components_than_columns_are_refused():
    with pytest.raises(InputError, match="n_components=13 must lie between 1 and 12"):
        fitted(rows_of(), 13)
    with pytest.raises(InputError, match="between 1 and 12"):
        PrivatePCA(13).width(12)
    with pytest.raises(MissingBound, match="PrivatePCA"):
        PrivatePCA(3, noise_multiplier=1.0).fit(rows_of())


def test_the_first_argument_is_the_number_of_components_and_the_price_has_a_name():
    assert PrivatePCA(7).n_components == 7
    assert PrivatePCA(7, share=0.3).share == 0.3
    with pytest.raises(TypeError):
        PrivatePCA(7, 0.3)
    with pytest.raises(InputError, match="share must lie between 0 and 1"):
        PrivatePCA(7, share=1.5)
    with pytest.raises(InputError, match="positive number"):
        PrivatePCA(7, noise_multiplier=0.0)


# In a plan


@pytest.mark.parametrize("before", [[], [SoftPCA(0.5)]])
def test_a_model_after_it_works_on_raw_rows(before):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 8)) * np.array([5, 4, 1, 1, 1, 1, 1, 1])
    labels = rows[:, 0] + rows[:, 1] > 0
    stages = [Normalize(), *before, PrivatePCA(2, share=0.4)]
    model = DPLinearClassifier(3.0, 1e-5, stages=stages, random_state=0).fit(rows, labels)
    assert model.coef_.shape == (1, 8)
    assert model.score(rows, labels) > 0.8
    names = [event.stage for event in model.certificate_.events]
    assert "PrivatePCA" in names
