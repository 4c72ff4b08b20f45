"""Diagnoses against brute force on small data, and what they make of bad input."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from tacit.diagnostics import (
    Moments,
    NotReleasable,
    clipping,
    concentration,
    crowding,
    diameter,
    inspect,
    power_law_fit,
    restricted_lipschitz,
    separability,
    spectrum,
)
from tacit.exceptions import FileError, InputError
from tacit.privacy import Certificate, Expense, Gaussian
from tacit.trainers import DPGD

MODULE = sys.modules["tacit.diagnostics.concentration"]


def rows_of(kind: str, n: int = 300, d: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    made = {
        "gaussian": lambda: rng.normal(size=(n, d)),
        "positive": lambda: rng.random((n, d)) ** 3,
        "unit positive": lambda: np.eye(d)[rng.integers(0, d, n)],
        "low rank": lambda: rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)),
        "far away": lambda: 1e6 + rng.normal(size=(n, d)),
        "constant": lambda: np.ones((n, d)),
        "zero": lambda: np.zeros((n, d)),
        "binary": lambda: rng.integers(0, 2, (n, d)).astype(float),
        "heavy": lambda: rng.standard_t(1.5, size=(n, d)),
    }
    return made[kind]()


KINDS = ["gaussian", "positive", "unit positive", "low rank", "constant", "zero", "binary", "heavy"]


def brute_diameter(x: np.ndarray) -> float:
    return max(float(np.linalg.norm(x - row, axis=1).max()) for row in x)


@pytest.mark.parametrize("kind", [*KINDS, "far away"])
@pytest.mark.parametrize("small", [False, True])
def test_the_diameter_is_that_of_all_pairs(kind, small, monkeypatch):
    if small:  # so that many blocks, bounds by few columns and both ways of measuring are met
        for name, value in {"BLOCK": 16, "SHORT": 3, "FEW": 5, "STARTS": 1, "HELD": 100}.items():
            monkeypatch.setattr(MODULE, name, value)
    for seed in range(3):
        x = rows_of(kind, seed=seed)
        low, high = diameter(x)
        truth = brute_diameter(x)
        assert low == pytest.approx(truth, rel=1e-9, abs=1e-9)
        assert high == pytest.approx(truth, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("work", [1e3, 1e5, 1e6])
def test_a_search_that_is_given_up_still_encloses_the_diameter(work, monkeypatch):
    monkeypatch.setattr(MODULE, "BLOCK", 16)
    monkeypatch.setattr(MODULE, "SHORT", 2)
    for seed in range(5):
        x = rows_of("gaussian", seed=seed)
        low, high = diameter(x, work=work)
        assert low <= brute_diameter(x) * (1 + 1e-12)
        assert brute_diameter(x) <= high * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_concentration_is_what_its_words_say(kind):
    x = rows_of(kind)
    found, around = concentration(x), np.linalg.norm(x - x.mean(0), axis=1)
    assert found.max_distance == pytest.approx(around.max(), abs=1e-12)
    assert found.mean_distance == pytest.approx(around.mean(), abs=1e-12)
    assert found.rms_distance == pytest.approx(np.sqrt((around**2).mean()), abs=1e-12)
    assert found.longest == pytest.approx(np.linalg.norm(x, axis=1).max())
    assert found.exact


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("centred", [False, True])
def test_spectra_are_those_of_singular_values(kind, centred):
    x = rows_of(kind)
    y = x - x.mean(0) if centred else x
    singular = np.linalg.svd(y, compute_uv=False)
    found = spectrum(x, centred=centred)
    np.testing.assert_allclose(
        found.eigenvalues, singular**2 / len(x), atol=1e-9 * (1 + x.max() ** 2)
    )
    assert found.rank == np.linalg.matrix_rank(y)
    assert found.tails[0] == pytest.approx((singular**2).sum() / len(x))
    assert found.gaps.sum() == pytest.approx(found.eigenvalues[0])
    share = singular**2 / max((singular**2).sum(), 1e-300)
    if found.rank:
        assert found.effective_rank == pytest.approx(1 / (share**2).sum())
        positive = share[share > 1e-12]
        assert found.entropy_rank == pytest.approx(
            np.exp(-(positive * np.log(positive)).sum()), rel=1e-6
        )


def test_moments_of_parts_add_up_and_sparse_rows_are_like_dense_ones():
    x = rows_of("positive")
    x[x < 0.3] = 0.0
    whole, parts = Moments.of(x), Moments.of(x[:100]) + Moments.of(sp.csr_array(x[100:]))
    np.testing.assert_allclose(whole.second, parts.second, rtol=1e-12)
    np.testing.assert_allclose(whole.total, parts.total, rtol=1e-12)
    assert (whole.n, whole.longest, whole.least, whole.zeros) == (
        parts.n,
        parts.longest,
        parts.least,
        parts.zeros,
    )
    with pytest.raises(InputError, match="columns"):
        whole + Moments.of(x[:, :3])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "zero"])
def test_coefficients_bound_gradients_outside_the_subspace(kind):
    """Over many residuals of size at most G, as Definition 3.1 of Li et al. 2022 asks."""
    x, rng = rows_of(kind), np.random.default_rng(1)
    found, vectors = restricted_lipschitz(x, lipschitz=2.0), spectrum(x).vectors
    scale = np.linalg.norm(x, axis=1).max()
    for k in range(x.shape[1] + 1):
        outside = x - x @ vectors[:, :k] @ vectors[:, :k].T
        norms = np.linalg.norm(outside, axis=1)
        assert found.rows_max[k] == pytest.approx(2 * norms.max(), abs=1e-6 * scale)
        assert found.rows_mean[k] == pytest.approx(2 * norms.mean(), abs=1e-6 * scale)
        worst = np.sign(outside @ np.linalg.svd(outside, full_matrices=False)[2][0])
        for residual in [worst, *rng.choice([-1.0, 1.0], (20, len(x)))]:
            gradient = np.linalg.norm(2 * residual @ outside) / len(x)
            assert gradient <= found.mean_gradient[k] * (1 + 1e-9) + 1e-6 * scale


def test_a_power_law_is_found_again_and_too_little_is_refused():
    k = np.arange(1, 400)
    noisy = 3 * k**-0.7 * np.exp(0.01 * np.random.default_rng(0).normal(size=len(k)))
    found = power_law_fit(noisy)
    assert found.decay == pytest.approx(0.7, abs=0.02)
    assert found.scale == pytest.approx(3, rel=0.05)
    assert found.fit > 0.99
    with pytest.raises(InputError, match="three"):
        power_law_fit([1.0, 0.5, 0.0])


@pytest.mark.parametrize("classes", [2, 4])
def test_separability_is_that_of_support_vector_machines(classes):
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, 400)
    x = rng.normal(size=(400, 8)) * 0.3 + 2 * np.eye(8)[y]
    found, ridge = separability(x, y, ridge=0.01), 0.01
    vectors = spectrum(x).vectors
    columns = [1] if classes == 2 else range(classes)
    margins, xi = [], []
    for c in columns:
        machine = LinearSVC(C=1 / (ridge * 400), fit_intercept=False, tol=1e-8, max_iter=100_000)
        side = np.where(y == c, 1, -1)
        w = machine.fit(x, side).coef_[0]
        margins.append(side * (x @ w) / np.linalg.norm(w) / np.linalg.norm(x, axis=1))
        inside = [np.linalg.norm(vectors[:, :k].T @ w) / np.linalg.norm(w) for k in range(9)]
        xi.append(1 - np.array(inside))
    assert found.margin == pytest.approx(np.min(margins), abs=5e-3)
    assert found.separated == pytest.approx((np.min(margins, axis=0) > 0).mean(), abs=0.01)
    np.testing.assert_allclose(found.xi, np.mean(xi, axis=0), atol=5e-3)
    np.testing.assert_allclose(found.xi_most, np.max(xi, axis=0), atol=5e-3)
    assert found.xi[0] == 1 and found.xi[-1] == 0
    w = found.weights / np.linalg.norm(found.weights, axis=0)
    for k in range(9):
        outside = x - x @ vectors[:, :k] @ vectors[:, :k].T
        assert found.lost[k] == pytest.approx(np.sqrt(((outside @ w) ** 2).mean(0)).max(), abs=1e-6)


def test_separators_from_some_of_the_rows_are_measured_on_all():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 9000)
    x = rng.normal(size=(9000, 5)) * 0.2 + np.where(y[:, None], 1.0, -1.0) * [1, 0, 0, 0, 0]
    all_rows, some = separability(x, y), separability(x, y, most_values=5000)
    assert some.rows_used == 1000 and all_rows.rows_used == 9000
    assert some.separated == pytest.approx(all_rows.separated, abs=0.01)


def test_the_share_of_clipped_rows_is_counted_at_the_weights_of_each_step():
    x, y = rows_of("gaussian"), np.random.default_rng(2).integers(0, 2, 300)
    trainer = DPGD(steps=5, clip=0.8, learning_rate=0.5, momentum=0.0, intercept_fraction=0.1)
    found = clipping(x, y, trainer=trainer, centre=False)
    bound = np.linalg.norm(x, axis=1).max()
    rows, w = np.column_stack([x, np.full(300, 0.1 * bound)]), np.zeros(13)
    for step in range(5):
        side = np.where(y == 1, 1.0, -1.0)
        residual = -side / (1 + np.exp(side * (rows @ w)))
        norms = np.abs(residual) * np.linalg.norm(rows, axis=1)
        assert found.clipped[step] == pytest.approx((norms > 0.8).mean())
        assert found.median_norm[step] == pytest.approx(np.median(norms))
        w -= 0.5 * rows.T @ (residual * np.minimum(1, 0.8 / norms)) / 300


def test_copies_and_crowds_are_counted():
    x = np.array([[0.0, 0.0]] * 3 + [[1.0, 0.0]] * 2 + [[9.0, 9.0]])
    found = crowding(x, radii=[0.0, 0.01])
    assert found.crowd == (3, 3)
    assert found.copies == (0.5, 0.5)


BAD = {
    "NaN": np.array([[1.0, np.nan], [0.0, 1.0]]),
    "infinity": np.array([[1.0, np.inf], [0.0, 1.0]]),
    "no rows": np.empty((0, 3)),
    "no columns": np.empty((3, 0)),
    "one dimension": np.ones(3),
    "too wide": sp.csr_array((2, 10_000)),
    "too long": np.array([[1e200, 0.0], [0.0, 1e200]]),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize(
    "diagnose", [spectrum, concentration, restricted_lipschitz, Moments.of, diameter]
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid:RuntimeWarning")
def test_bad_rows_are_refused_in_words(what, diagnose):
    with pytest.raises(InputError):
        diagnose(BAD[what])


def test_too_few_rows_or_classes_are_refused():
    x = rows_of("gaussian")
    with pytest.raises(InputError, match="two rows"):
        inspect(x[:1])
    for diagnose in (separability, clipping, inspect):
        with pytest.raises(InputError, match="classes"):
            diagnose(x, np.zeros(300))
        with pytest.raises(InputError, match="one for each"):
            diagnose(x, np.zeros(3))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_rows_can_be_inspected(kind):
    x, y = rows_of(kind), np.arange(300) % 3
    found = inspect(x, y)
    assert found.advice.best.recipe in ("dp-gd", "dpsgd-f", "dp-pca")
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["releasable"] is False and "NOT RELEASABLE" in data["notice"]
    assert "NOT RELEASABLE" in str(found)
    sparse = inspect(sp.csr_array(x), y)
    assert sparse.spectrum.rank == found.spectrum.rank
    assert sparse.concentration.diameter == pytest.approx(found.concentration.diameter)


def test_inspecting_numbers_and_inspecting_without_labels():
    x = rows_of("gaussian")
    found = inspect(x, x[:, 0] / 10, regression=True)
    assert found.separability is None and found.clipping is not None
    assert inspect(x).clipping is None


def test_no_certificate_takes_what_was_seen_without_noise():
    found = spectrum(rows_of("gaussian"))
    assert isinstance(found, NotReleasable) and found.releasable is False
    spent = (Expense("DPGD", Gaussian(40.0)),)
    with pytest.raises(TypeError):
        Certificate(1.0, 1e-5, "replace_one", events=spent, plan={"spectrum": found}).to_json()


# Sun et al. 2024, Table 2: unit rows; diameter, largest and mean distance to the mean.
TABLE2 = {"mnist": (1.41, 1.03, 0.77), "fashion_mnist": (1.41, 1.10, 0.62)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", pytest.param("fashion_mnist", marks=pytest.mark.long)])
def test_table_2_of_paper_000(name):
    from tacit.data import as_rows
    from tacit.datasets import load_fashion_mnist, load_mnist
    from tacit.preprocessing import Normalize

    try:
        pixels, *_ = (load_mnist if name == "mnist" else load_fashion_mnist)(download=False)
    except FileError:
        pytest.skip("set TACIT_DATA to a directory with the image files")
    found = concentration(Normalize().through(as_rows(pixels)))
    assert found.exact
    seen = (found.diameter, found.max_distance, found.mean_distance)
    assert tuple(round(value, 2) for value in seen) == TABLE2[name]
