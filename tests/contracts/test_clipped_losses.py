"""Every loss, clipped: gradients of the clipped objective are the clipped gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, optimize
from tests.examples.log_cosh import LogCosh

from tacit.exceptions import InputError
from tacit.losses import LOSSES, Clipped, Huber, HuberHinge, Tempered, clipped, get_loss
from tacit.losses.base import ScalarLoss

ALL = [*map(get_loss, LOSSES), HuberHinge(0.1), Huber(2.5), Tempered(0.0), Tempered(0.9)]
ALL += [Tempered(0.5, tail=2.0)]
ALL += [LogCosh()]  # of CONTRIBUTING.md
SCALAR = [loss for loss in ALL if isinstance(loss, ScalarLoss)]
every_scalar_loss = pytest.mark.parametrize("loss", SCALAR, ids=repr)


def draw(loss, rows, outputs=1, *, seed=0, scale=3.0):
    rng = np.random.default_rng([seed, rows, outputs])
    scores = scale * rng.standard_normal((rows, outputs))
    if loss.task == "regression":
        return scores, loss.targets(rng.standard_normal((rows, outputs)), outputs)
    return scores, loss.targets(rng.integers(max(outputs, 2), size=rows), outputs)


def slope(function, at, h):
    """Derivative by Richardson's rule."""
    coarse, fine = ((function(at + t) - function(at - t)) / (2 * t) for t in (h, h / 2))
    return (4 * fine - coarse) / 3


@every_scalar_loss
def test_lemma_5_1_at_ten_thousand_points(loss):
    """Song et al. 2021: for random θ, x, y and B, ∇ of the clipped objective is the clipped
    gradient.
    """
    rng = np.random.default_rng(7)
    n, d = 10_000, 4
    rows = rng.standard_normal((n, d)) * np.exp(rng.uniform(-2, 2, (n, 1)))
    weights = rng.standard_normal((n, d)) * np.exp(rng.uniform(-2, 1, (n, 1)))
    norms = np.linalg.norm(rows, axis=1)
    _, targets = draw(loss, n)
    scores = np.sum(rows * weights, axis=1, keepdims=True)
    towards = rng.standard_normal((n, d))
    for clip in (0.1, 1.5):
        objective = clipped(loss, clip)
        gradient = loss.residual(scores, targets) * rows
        size = np.linalg.norm(gradient, axis=1, keepdims=True)
        expected = gradient * np.minimum(1, clip / np.maximum(size, 1e-300))
        found = objective.residual(scores, targets, norms=norms) * rows
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)

        def along(t, objective=objective):
            moved = np.sum(rows * (weights + t * towards), axis=1, keepdims=True)
            return objective.value(moved, targets, norms=norms)

        error = np.abs(slope(along, 0.0, 1e-4) - np.sum(expected * towards, axis=1)) / clip
        assert np.mean(error < 1e-4) > 0.995  # not within a step of a kink, that is
        assert np.median(error) < 1e-7


@every_scalar_loss
def test_the_clipped_objective_is_the_integral_of_the_clipped_slope(loss):
    target = np.ones((1, 1)) if loss.task == "classification" else np.zeros((1, 1))
    for clip in (0.02, 0.1, 0.4, 1.1, 5.0):
        objective = clipped(loss, clip)

        def phi(u, objective=objective):
            return float(objective.value(np.array([[u]]), target)[0])

        def phi1(u, objective=objective):
            return float(objective.residual(np.array([[u]]), target)[0, 0])

        (a, b), (c, d) = loss.steep(np.array(clip))
        kinks = [float(end) for end in (a, b, c, d) if np.isfinite(end)]
        for low, high in [(-30.0, -1.0), (-1.0, 0.5), (0.5, 2.0), (2.0, 30.0)]:
            points = [p for p in (*kinks, 0.0, 1.0) if low < p < high]
            area, _ = integrate.quad(phi1, low, high, points=points or None, limit=500)
            assert phi(high) - phi(low) == pytest.approx(area, rel=1e-6, abs=1e-7)


@every_scalar_loss
def test_where_no_gradient_exceeds_the_norm_the_loss_is_itself(loss):
    scores, targets = draw(loss, 500, scale=1.0)
    most = float(np.abs(loss.residual(scores, targets)).max())
    objective = clipped(loss, most * 1.001)
    for method in ("value", "residual", "curvature"):
        expected = getattr(loss, method)(scores, targets)
        np.testing.assert_allclose(getattr(objective, method)(scores, targets), expected)


@every_scalar_loss
def test_blank_rows_are_never_clipped(loss):
    scores, targets = draw(loss, 20)
    objective = clipped(loss, 0.1)
    value = objective.value(scores, targets, norms=np.zeros(20))
    np.testing.assert_array_equal(value, loss.value(scores, targets))


@every_scalar_loss
def test_clipping_keeps_convexity_and_bounds_the_slope(loss):
    objective = clipped(loss, 0.2)
    assert objective.convex == loss.convex
    assert objective.task == loss.task
    assert objective.smoothness == loss.smoothness
    assert objective.lipschitz(4) <= 2 * min(0.2, loss.lipschitz(1))
    scores, targets = draw(loss, 4000, seed=2)
    assert np.abs(objective.residual(scores, targets)).max() <= 0.2
    if loss.convex:
        other, _ = draw(loss, 4000, seed=3)
        rise = np.sum(objective.residual(scores, targets) * (other - scores), axis=-1)
        line = objective.value(scores, targets) + rise
        assert np.all(objective.value(other, targets) >= line - 1e-9)


@every_scalar_loss
def test_several_outputs_and_settings_are_clipped_one_by_one(loss):
    if loss.task == "regression":
        return
    objective, (scores, targets) = clipped(loss, 0.15), draw(loss, 30, 3)
    stacked = np.stack([scores, -scores], axis=1)
    norms = np.linspace(0.1, 4.0, 30)
    for method in ("residual", "curvature"):
        found = getattr(objective, method)(stacked, targets, norms=norms)
        for k in range(3):
            one = getattr(objective, method)(
                scores[:, k : k + 1], targets[:, k : k + 1], norms=norms
            )
            np.testing.assert_allclose(found[:, 0, k], one[:, 0], rtol=1e-12)
    parts = [
        objective.value(-scores[:, k : k + 1], targets[:, k : k + 1], norms=norms) for k in range(3)
    ]
    np.testing.assert_allclose(
        objective.value(stacked, targets, norms=norms)[:, 1], sum(parts), rtol=1e-12
    )


@pytest.mark.parametrize("loss", ALL, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_residuals_keep_their_dtype_and_may_be_written_over_the_scores(loss, dtype):
    outputs = 3 if loss.name == "softmax" else 1
    scores, targets = draw(loss, 33, outputs)
    scores = scores.astype(dtype)
    objective = clipped(loss, 0.1)
    expected = objective.residual(scores, targets)
    assert expected.dtype == dtype
    alone = [objective.residual(scores[i : i + 1], targets[i : i + 1]) for i in range(33)]
    np.testing.assert_array_equal(np.concatenate(alone), expected)
    assert objective.residual(scores, targets, out=scores) is scores
    np.testing.assert_array_equal(scores, expected)


# Theorem D.4: what clipping does to logistic regression


@pytest.mark.parametrize("clip", [0.01, 0.1, 0.2, 0.24, 0.3, 0.45, 0.5, 0.9])
def test_the_clipped_minimum_of_theorem_d4_is_where_it_says(clip):
    """Two rows (1/2, +1) for each (1, -1): least at 0, clipped at 2·log(1/B − 1) if B < 1/2."""
    objective, rows = clipped("logistic", clip), np.array([0.5, 0.5, 1.0])
    targets = np.array([[1.0], [1.0], [-1.0]])

    def mean(theta):
        return float(objective.value(theta * rows[:, None], targets, norms=rows).mean())

    found = optimize.minimize_scalar(mean, bounds=(-30, 30), method="bounded").x
    expected = 2 * math.log(1 / clip - 1) if clip < 0.5 else 0.0
    assert found == pytest.approx(expected, abs=1e-4)


# Theorem 5.3: softmax


def jacobian(objective, scores, target, h=1e-6):
    """Of the clipped residual in the scores, numerically."""
    k = scores.size
    columns = []
    for step in h * np.eye(k):
        moved = [objective.residual((scores + s * step)[None], target)[0] for s in (1, -1)]
        columns.append((moved[0] - moved[1]) / (2 * h))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("classes", [2, 3, 4, 7])
def test_the_clipped_softmax_field_is_asymmetric_exactly_where_theorem_5_3_says(classes):
    """Clipped, and the scores of the other classes not all equal: then, and only then."""
    loss, rng = get_loss("softmax"), np.random.default_rng(classes)
    seen = set()
    for trial in range(300):
        scores = rng.standard_normal(classes)
        target = loss.targets(rng.integers(classes, size=1), classes)
        if trial % 3 == 0:  # equal scores for all classes but the row's own
            own = scores[target[0]]
            scores[:] = scores[0]
            scores[target[0]] = own
        size = float(np.linalg.norm(loss.residual(scores[None], target)))
        clip = size * rng.choice([0.4, 0.8, 1.2, 2.0])
        others = np.delete(scores, target[0])
        asymmetric = clip < size and np.ptp(others) > 0
        j = jacobian(clipped(loss, clip), scores, target)
        gap = np.abs(j - j.T).max()
        if asymmetric:
            assert gap > 1e-6 * clip
        else:
            assert gap < 1e-8
        seen.add(asymmetric)
    assert seen == ({False} if classes == 2 else {False, True})


@pytest.mark.parametrize("classes", [3, 5])
def test_clipping_class_by_class_does_not_mend_it(classes):
    """Theorem D.5: asymmetric where the row's own class is clipped and another is not."""
    loss, rng = get_loss("softmax"), np.random.default_rng(1)

    class PerClass(Clipped):
        def residual(self, scores, targets, out=None, norms=1.0):
            return np.clip(self.loss.residual(scores, targets), -self.clip, self.clip)

    for _ in range(100):
        scores, target = rng.standard_normal(classes), np.zeros(1, dtype=int)
        size = np.abs(loss.residual(scores[None], target)[0])
        clip = rng.uniform(0.05, 0.9)
        if np.abs(size - clip).min() < 1e-3:
            continue
        j = jacobian(PerClass(loss, clip), scores, target)
        mixed = size[0] > clip and (size[1:] < clip).any()
        assert (np.abs(j - j.T).max() > 1e-8) == mixed


def test_clipped_softmax_has_a_field_and_no_objective():
    objective = clipped("softmax", 0.5)
    scores, targets = np.zeros((2, 3)), np.array([0, 2])
    sizes = np.linalg.norm(objective.residual(scores, targets), axis=1)
    np.testing.assert_allclose(sizes, 0.5)
    assert objective.lipschitz(3) == 0.5
    assert not objective.convex
    for method in (objective.value, objective.curvature):
        with pytest.raises(InputError, match=r"no function \(Song et al. 2021, Theorem 5.3\)"):
            method(scores, targets)


# Names


def test_clipped_losses_are_values():
    one = clipped("huber", 0.5)
    assert one == clipped(get_loss("huber"), 0.5)
    assert hash(one) == hash(clipped("huber", 0.5))
    assert one.name == "clipped huber"
    assert get_loss(one) is one
    assert repr(one) == "Clipped(loss=Huber(threshold=1.0), clip=0.5)"


def test_clipping_twice_is_clipping_once():
    assert clipped(clipped("logistic", 0.5), 0.2) == clipped("logistic", 0.2)
    assert clipped(clipped("logistic", 0.2), 0.5) == clipped("logistic", 0.2)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.inf, math.nan])
def test_the_norm_must_be_positive(clip):
    with pytest.raises(InputError, match="clip must be positive and finite"):
        clipped("logistic", clip)
