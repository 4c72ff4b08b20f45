"""The papers' constructions: each has the optimum, bound, margin and rank that it states."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy import optimize
from sklearn.svm import LinearSVC

from tacit.exceptions import InputError
from tacit.losses import clipped
from tacit.research import instances

EVERY = {
    "two_clusters": instances.two_clusters(20, 30.0),
    "two_clusters, flipped": instances.two_clusters(20, 30.0, flipped=True),
    "fingerprinting": instances.fingerprinting(300, 12, epsilon=0.05, columns=15, seed=0),
    "clipping_bias": instances.clipping_bias(30, 0.1),
    "large_margin_mixture": instances.large_margin_mixture(200, 20, stretch=0.2, seed=0),
    "low_rank": instances.low_rank(120, 40, rank=5, noise=0.0, seed=1),
    "median": instances.median(100, 30, decay=0.5, seed=0),
}
every = pytest.mark.parametrize("instance", EVERY.values(), ids=EVERY)


def numerically(instance, start):
    """The least mean loss that a search without derivatives finds."""
    options = {"maxiter": 4000, "maxfev": 8000, "xatol": 1e-9, "fatol": 1e-12}
    found = optimize.minimize(instance.mean_loss, start, method="Nelder-Mead", options=options)
    return float(found.fun)


@every
def test_rows_keep_their_bound_and_labels_their_kind(instance):
    assert np.linalg.norm(instance.rows, axis=1).max() <= instance.bound * (1 + 1e-12)
    if instance.labels is not None:
        assert set(np.unique(instance.labels)) <= {0, 1}
        assert len(instance.labels) == len(instance.rows)
    assert instance.optimum.shape == instance.rows.shape[1:]


@every
def test_nothing_beats_the_optimum(instance):
    assert instance.excess(instance.optimum) == pytest.approx(0.0, abs=1e-12)
    ridge = instance.facts.get("ridge", 0.0) / 2
    rng = np.random.default_rng(0)
    for scale in (1e-4, 1e-2, 1.0, 10.0):
        for step in scale * rng.normal(size=(200, *instance.optimum.shape)):
            weights = instance.optimum + step
            pull = ridge * (weights @ weights - instance.optimum @ instance.optimum)
            assert instance.excess(weights) + pull >= -1e-9


@every
def test_the_rank_is_the_one_stated(instance):
    if "rank" in instance.facts:
        assert np.linalg.matrix_rank(instance.rows) <= instance.facts["rank"]
        if instance.labels is not None:  # of medians, differences from a point span the space
            assert np.linalg.matrix_rank(instance.rows) == instance.facts["rank"]


@every
def test_instances_are_values(instance):
    with pytest.raises(FrozenInstanceError):
        instance.least = 0.0
    with pytest.raises(TypeError):
        instance.facts["rank"] = 3
    with pytest.raises(InputError, match="weights must be"):
        instance.excess(np.zeros(instance.optimum.size + 1))


# Two clusters


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("mean", [0.0, 1.0, 1e3])
def test_two_clusters_are_separable_by_their_second_column_only(mean, flipped):
    instance = instances.two_clusters(10, mean, flipped=flipped)
    assert instance.excess(instance.optimum) == 0.0
    assert instance.excess(-instance.optimum) == 2.0
    apart = instance.rows[:, None] - instance.rows[None]
    assert np.linalg.norm(apart, axis=2).max() == instance.facts["diameter"]
    # Lemma 2: the excess is at least 1 unless the second weight has the right sign.
    rng = np.random.default_rng(0)
    for first, second in rng.normal(size=(300, 2)) * [10.0, 3.0]:
        wrong = second * instance.optimum[1] <= 0
        assert instance.excess([first, second]) >= (1.0 if wrong else 0.0)


# Fingerprinting


def test_fingerprinting_rows_are_unit_vectors_or_zero_as_often_as_said():
    instance = instances.fingerprinting(40_000, 8, epsilon=0.001, means=np.full(8, 0.3), seed=3)
    assert instance.facts["active"] == pytest.approx(8 / (10 * math.expm1(0.001) * 40_000))
    shown = instance.rows.sum(axis=1)
    assert set(np.unique(shown)) == {0.0, 1.0}
    share = instance.facts["active"]
    assert shown.mean() == pytest.approx(share, abs=6 * math.sqrt(share / 40_000))
    positive = instance.labels[shown > 0].mean()
    assert positive == pytest.approx(0.3, abs=6 * 0.46 / math.sqrt(shown.sum()))
    assert not instance.labels[shown == 0].any()


def test_majorities_are_the_best_weights_column_by_column():
    instance = instances.fingerprinting(500, 6, epsilon=0.02, means=np.linspace(0, 1, 6), seed=2)
    for j in range(6):
        weights = instance.optimum.copy()
        for value in np.linspace(-0.5, 1.5, 41):
            weights[j] = value
            assert instance.excess(weights) >= -1e-12
    assert set(instance.optimum) <= {0.0, 1.0}


def test_ties_go_to_the_smaller_weight_and_padding_counts_nothing():
    instance = instances.fingerprinting(4, 1, epsilon=1e-9, columns=3, means=[0.5], seed=0)
    ones = instance.labels.sum()
    assert instance.facts["active"] == 1.0
    assert instance.optimum[0] == (ones > 2)
    assert not instance.rows[:, 1:].any()
    assert instance.facts["rank"] == 1


def test_fresh_rows_lose_what_the_population_says():
    p = np.array([0.1, 0.9, 0.4])
    instance = instances.fingerprinting(200_000, 3, epsilon=1e-7, means=p, seed=1)
    for weights in ([0.0, 1.0, 0.0], [0.5, 0.5, 0.5], p, [2.0, -1.0, 0.3]):
        exact = instance.facts["population"](weights)
        measured = instance.mean_loss(weights) - instance.mean_loss(p)
        assert exact == pytest.approx(measured, abs=0.02)
    assert instance.facts["population"](p) == pytest.approx(0.0, abs=1e-15)


# Clipping


@pytest.mark.parametrize("clip", [0.01, 0.1, 0.24, 0.26, 0.49, 0.5, 2.0])
def test_clipping_moves_the_optimum_to_where_it_says(clip):
    instance = instances.clipping_bias(30, clip)
    norms = np.linalg.norm(instance.rows, axis=1)
    targets = instance.loss.targets(instance.labels, 1)
    objective = clipped(instance.loss, clip)

    def mean(theta):
        return float(objective.value(theta * instance.rows, targets, norms=norms).mean())

    far = instance.facts["clipped_optimum"]
    found = optimize.minimize_scalar(mean, bounds=(-30, 30), method="bounded").x
    assert found == pytest.approx(far, abs=1e-4)
    assert numerically(instance, [1.0]) == pytest.approx(math.log(2), abs=1e-9)
    if clip < 0.25:  # the end of the proof of Theorem D.4
        assert instance.excess([far]) >= math.log(1 / clip) / 60


# Mixtures


@pytest.mark.parametrize(("d", "stretch"), [(2, 0.0), (20, 0.3), (200, 0.0)])
def test_mixtures_have_their_margin_along_the_mean_and_none_along_the_stretch(d, stretch):
    instance = instances.large_margin_mixture(2000, d, stretch=stretch, seed=5)
    sign = 2 * instance.labels - 1
    mu, w = instance.facts["separator"], instance.facts["stretched"]
    assert np.linalg.norm(mu) == pytest.approx(1.0)
    assert abs(mu @ w) < 1e-12
    margins = sign * (instance.rows @ mu)
    assert margins.min() >= instance.facts["margin"] * (1 - 1e-12)
    # What Example 1 takes for the separator has the classes mixed.
    assert np.mean(sign * (instance.rows @ w) > 0) == pytest.approx(0.5, abs=0.06)
    assert instance.least == instance.excess(instance.optimum) == 0.0


def test_the_first_component_of_a_mixture_is_its_separator():
    instance = instances.large_margin_mixture(20_000, 30, stretch=0.3, seed=6)
    values, vectors = np.linalg.eigh(instance.rows.T @ instance.rows / 20_000)
    assert abs(vectors[:, -1] @ instance.facts["separator"]) > 0.999
    assert values[-1] - values[-2] == pytest.approx(instance.facts["gap"], rel=0.1)
    assert instance.facts["xi"] == 0.0


def test_no_separator_of_a_mixture_has_a_much_larger_margin():
    instance = instances.large_margin_mixture(300, 5, margin=0.2, spread=0.1, seed=7)
    svm = LinearSVC(C=1e6, fit_intercept=False, max_iter=200_000, tol=1e-6)
    direction = svm.fit(instance.rows, instance.labels).coef_[0]
    margins = (2 * instance.labels - 1) * (instance.rows @ direction) / np.linalg.norm(direction)
    assert instance.facts["margin"] <= margins.min() * 1.001
    assert margins.min() < 2 * instance.facts["margin"]


# Low rank


def test_without_noise_low_rank_rows_have_that_rank_and_no_tail():
    instance = EVERY["low_rank"]
    assert instance.facts["tail"] < 1e-12
    np.testing.assert_allclose(np.linalg.norm(instance.rows, axis=1), 1.0)
    values = np.sort(np.linalg.eigvalsh(instance.rows.T @ instance.rows / 120))[::-1]
    assert instance.facts["gap"] == pytest.approx(values[4] - values[5], rel=1e-9)


def test_with_noise_they_fill_all_columns_a_little():
    instance = instances.low_rank(100, 60, rank=4, noise=0.05, seed=2)
    values = np.sort(np.linalg.eigvalsh(instance.rows.T @ instance.rows / 100))[::-1]
    assert np.linalg.matrix_rank(instance.rows) == 60
    assert instance.facts["tail"] == pytest.approx(values[4:].sum(), rel=1e-9)
    assert 0 < instance.facts["tail"] < 0.05
    assert instance.least < math.log(2)


# Medians


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_medians_are_where_they_say_and_the_same_for_every_d(decay):
    small = instances.median(40, 4, decay=decay, occupied=4, seed=3)
    assert numerically(small, np.zeros(4)) == pytest.approx(small.least, abs=1e-7)
    large = instances.median(40, 200, decay=decay, occupied=4, seed=3)
    assert large.least == pytest.approx(small.least, rel=1e-12)
    np.testing.assert_allclose(large.optimum[:4], small.optimum)
    assert not large.optimum[4:].any()
    assert np.abs(large.facts["gradient"](large.optimum)).max() < 1e-12


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_gradients_of_medians_keep_to_their_coefficients(decay):
    instance = instances.median(30, 25, decay=decay, seed=4)
    coefficients, gradient = instance.facts["coefficients"], instance.facts["gradient"]
    assert len(coefficients) == 26
    rng = np.random.default_rng(0)
    nearly = np.zeros(26)
    for scale in (0.1, 1.0, 100.0):
        for x in rng.normal(size=(40, 25)) * scale:
            h = 1e-6 * scale
            numeric = [
                (instance.mean_loss(x + h * e) - instance.mean_loss(x - h * e)) / (2 * h)
                for e in np.eye(25)[:3]
            ]
            np.testing.assert_allclose(gradient(x)[:3], numeric, atol=1e-5)
            left = [np.linalg.norm(gradient(x)[k:]) for k in range(26)]
            assert np.all(left <= coefficients * (1 + 1e-9) + 1e-12)
            nearly = np.maximum(nearly, left)
    assert nearly[0] > 0.7 * coefficients[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: instances.two_clusters(3, 1.0), "must be even"),
        (lambda: instances.clipping_bias(4, 0.1), "multiple of 3"),
        (lambda: instances.clipping_bias(3, 0.0), "clip=0.0 must be positive"),
        (lambda: instances.fingerprinting(3, 2, epsilon=0.0), "epsilon > 0"),
        (lambda: instances.fingerprinting(3, 2, epsilon=1.0, means=[2.0, 0.0]), "2 probabilities"),
        (lambda: instances.large_margin_mixture(3, 1), "d ≥ 2"),
        (lambda: instances.large_margin_mixture(3, 2, stretch=1.0), r"stretch in \[0, 1\)"),
        (lambda: instances.large_margin_mixture(3, 2, margin=0.99), "too few rows"),
        (lambda: instances.low_rank(5, 4, rank=6), "rank of at most n and d"),
        (lambda: instances.median(4, 3), "d ≥ occupied"),
    ],
)
def test_what_cannot_be_made_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_rows_of_a_subspace_are_what_they_say():
    made = instances.subspace(60, 12, 3, norm=2.0, noise=0.5, shortest=0.4, seed=1)
    assert np.linalg.matrix_rank(made.rows) == 3
    sizes = np.linalg.norm(made.rows, axis=1)
    assert sizes.min() >= 0.4 and sizes.max() <= 1 + 1e-12
    assert np.linalg.norm(made.optimum) == pytest.approx(2.0)
    assert np.abs(made.labels - made.rows @ made.optimum).max() <= 0.5
    assert made.excess(made.optimum) == 0
    lost = made.facts["fresh"]
    assert lost(made.optimum) == 0 < lost(0.5 * made.optimum) < lost(np.zeros(12))
    outside = made.optimum + 9 * np.linalg.svd(made.facts["basis"])[2][-1]
    assert lost(outside) == pytest.approx(0, abs=1e-20)
