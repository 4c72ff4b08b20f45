"""The contract that every loss keeps."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, asdict

import numpy as np
import pytest
from scipy import special
from tests.examples.log_cosh import LogCosh

from tacit.exceptions import InputError
from tacit.losses import LOSSES, Huber, HuberHinge, Tempered, get_loss
from tacit.losses.elementary import FEW_OUTPUTS

ALL = [
    *map(get_loss, LOSSES),
    HuberHinge(half_width=0.1),
    Huber(threshold=2.5),
    Tempered(temperature=0.0),
    Tempered(temperature=0.9),
    Tempered(temperature=0.8, tail=1.2),
    Tempered(temperature=0.2, tail=4.0),
    LogCosh(),  # of CONTRIBUTING.md
]
every_loss = pytest.mark.parametrize("loss", ALL, ids=repr)
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
PROBABILISTIC = {"logistic", "softmax", "savage", "tempered"}
NOT_CONVEX = {"savage", "tangent", "tempered"}


def widths(loss, *more):
    """Numbers of outputs to try: the fewest that the loss has, and more."""
    return (loss.outputs(2), *more) if loss.task == "classification" else (1,)


def draw(loss, rows, outputs, *, settings=(), scale=3.0, dtype=np.float64, seed=0):
    """Random scores, and targets in the form that the loss reads."""
    rng = np.random.default_rng([seed, rows, outputs])
    scores = scale * rng.standard_normal((rows, *settings, outputs))
    if loss.task == "regression":
        targets = loss.targets(rng.standard_normal((rows, outputs)), outputs, dtype)
    else:
        classes = outputs if loss.name == "softmax" else max(outputs, 2)
        targets = loss.targets(rng.integers(classes, size=rows), outputs, dtype)
    return scores.astype(dtype), targets


def norms(array):
    return np.sqrt(np.sum(np.square(array, dtype=np.float64), axis=-1))


def bits(array):
    return array.view(f"u{array.itemsize}")


# Mathematics


def definition(loss, s, y):
    """The value as a textbook writes it, for moderate scores."""
    if loss.name == "softmax":
        return special.logsumexp(s, axis=-1) - s[np.arange(len(s)), y]
    m, r = s * y, s - y
    terms = {
        "logistic": lambda: np.log(1 + np.exp(-m)),
        "hinge": lambda: np.where(m < 1, 1 - m, 0),
        "huber-hinge": lambda: np.select(
            [m > 1 + loss.half_width, m < 1 - loss.half_width],
            [0, 1 - m],
            (1 + loss.half_width - m) ** 2 / (4 * loss.half_width),
        ),
        "savage": lambda: 1 / (1 + np.exp(2 * m)) ** 2,
        "tangent": lambda: (2 * np.arctan(m) - 1) ** 2,
        "tempered": lambda: tempered(tempered_sigmoid(m, loss.tail), 1 - loss.temperature),
        "squared": lambda: r**2 / 2,
        "absolute": lambda: np.abs(r),
        "huber": lambda: special.huber(loss.threshold, r),
        "log-cosh": lambda: np.log(np.cosh(r)),
    }
    return terms[loss.name]().sum(axis=-1)


def tempered(p, a):
    """-log_t p with a = 1 - t, less what keeps it proper (Amid et al. 2019)."""
    return (1 - p**a) / a - (1 - p ** (1 + a) - (1 - p) ** (1 + a)) / (1 + a)


def tempered_sigmoid(m, t):
    """The p of log_t p - log_t (1 - p) = m, by bisection over log(p / (1 - p))."""
    if t == 1:
        return special.expit(m)
    low, high = np.full(m.shape, -200.0), np.full(m.shape, 200.0)
    for _ in range(80):
        z = (low + high) / 2
        logs = [np.expm1((1 - t) * special.log_expit(way * z)) / (1 - t) for way in (1, -1)]
        below = logs[0] - logs[1] < m
        low, high = np.where(below, z, low), np.where(below, high, z)
    return special.expit(low)


@every_loss
def test_value_is_its_definition(loss):
    for outputs in widths(loss, 3, 40):
        scores, targets = draw(loss, 500, outputs)
        expected = definition(loss, scores, targets)
        np.testing.assert_allclose(loss.value(scores, targets), expected, rtol=1e-12, atol=1e-14)


def slope(function, scores, targets, k, h):
    """Central difference in output k."""
    step = h * np.eye(scores.shape[-1])[k]
    return (function(scores + step, targets) - function(scores - step, targets)) / (2 * h)


@every_loss
def test_residual_and_curvature_are_derivatives_of_the_value(loss):
    for outputs in widths(loss, 5):
        scores, targets = draw(loss, 300, outputs)
        residual, curvature = loss.residual(scores, targets), loss.curvature(scores, targets)
        for k in range(outputs):
            coarse, fine = (slope(loss.value, scores, targets, k, h) for h in (1e-3, 5e-4))
            numeric = (4 * fine - coarse) / 3  # Richardson
            wide, bend = (slope(loss.residual, scores, targets, k, h)[:, k] for h in (2e-3, 1e-3))
            if loss.smoothness < math.inf:
                bend = (4 * bend - wide) / 3
            if loss.name == "softmax":
                smooth = bend <= curvature[:, k]
                assert smooth.all()
            else:
                smooth = np.abs(bend - curvature[:, k]) < 1e-5  # false beside kinks only
                assert smooth.mean() > 0.95
            np.testing.assert_allclose(numeric[smooth], residual[smooth, k], rtol=1e-6, atol=1e-10)


def test_curvature_of_softmax_dominates_the_hessian():
    loss = get_loss("softmax")
    scores, targets = draw(loss, 200, 4)
    p = loss.probabilities(scores)
    hessian = p[:, :, None] * np.eye(4) - p[:, :, None] * p[:, None, :]
    gap = loss.curvature(scores, targets)[:, :, None] * np.eye(4) - hessian
    assert np.linalg.eigvalsh(gap).min() > -1e-12


@every_loss
def test_a_convex_value_is_convex_and_its_residual_a_subgradient(loss):
    assert loss.convex == (loss.name not in NOT_CONVEX)
    if not loss.convex:
        scores, targets = draw(loss, 500, 1)
        assert loss.curvature(scores, targets).min() < -0.05 * loss.smoothness
        return
    for outputs in widths(loss, 4):
        a, targets = draw(loss, 2000, outputs, seed=1)
        b, _ = draw(loss, 2000, outputs, seed=2)
        a[::2] = np.round(a[::2])  # onto the kinks
        if loss.task == "regression":
            targets[::4] = np.round(targets[::4])
        at_a, at_b = loss.value(a, targets), loss.value(b, targets)
        rise = np.sum(loss.residual(a, targets) * (b - a), axis=-1)
        assert np.all(at_b >= at_a + rise - 1e-9)
        for t in (0.1, 0.5, 0.8):
            assert np.all(loss.value(a + t * (b - a), targets) <= at_a + t * (at_b - at_a) + 1e-9)


@every_loss
def test_lipschitz_constant_holds_and_is_attained(loss):
    for outputs in widths(loss, 3, 10, 30):
        largest = 0.0
        for scale in (0.1, 1.0, 10.0, 1e3):
            scores, targets = draw(loss, 500, outputs, scale=scale)
            for _ in range(5):  # steepest ascent: a convex loss gets steeper that way
                residual = loss.residual(scores, targets)
                largest = max(largest, norms(residual).max())
                scores += 100 * residual
        if not loss.convex:  # flat far out, and steepest somewhere near
            few = targets[:3]
            for margin in np.linspace(-3, 1, 2001):
                largest = max(largest, norms(loss.residual(margin * few, few)).max())
        bound = loss.lipschitz(outputs)
        assert largest <= bound * (1 + 1e-12)
        assert largest >= min(0.99 * bound, 1e6)


@every_loss
def test_smoothness_constant_holds_and_is_attained(loss):
    for outputs in widths(loss, 3, 10):
        largest = 0.0
        for scale in (0.1, 1.0, 3.0):
            a, targets = draw(loss, 20_000, outputs, scale=scale, seed=3)
            for step in (1e-3, 1.0):
                b = a + step * draw(loss, 20_000, outputs, scale=1.0, seed=4)[0]
                change = norms(loss.residual(b, targets) - loss.residual(a, targets))
                assert np.all(change <= loss.smoothness * norms(b - a) + 1e-12)
                largest = max(largest, (change / norms(b - a)).max())
        if outputs == loss.outputs(2):  # more outputs are the same numbers, or rarer
            assert largest >= min(0.95 * loss.smoothness, 100)


# Arithmetic


@both_dtypes
@every_loss
@pytest.mark.parametrize("outputs", [1, 2, 3, 10, FEW_OUTPUTS, FEW_OUTPUTS + 1, 100])
def test_residual_of_a_row_is_the_same_bits_wherever_it_stands(loss, outputs, dtype):
    scores, targets = draw(loss, 61, outputs, scale=5.0, dtype=dtype)
    whole = loss.residual(scores, targets)
    alone = [loss.residual(scores[i : i + 1], targets[i : i + 1]) for i in range(61)]
    np.testing.assert_array_equal(bits(np.concatenate(alone)), bits(whole))

    buffer = np.empty(64 * outputs + 3, dtype)
    for start, stop, offset in [(0, 17, 1), (5, 61, 2), (30, 33, 3)]:
        block = buffer[offset : offset + (stop - start) * outputs].reshape(-1, outputs)
        block[...] = scores[start:stop]
        loss.residual(block, targets[start:stop], out=block)
        np.testing.assert_array_equal(bits(block), bits(whole[start:stop]))

    for order in "CF":
        stacked = np.array(np.stack([scores, -scores, scores], axis=1), order=order)
        together = loss.residual(stacked, targets)
        for setting in (0, 2):
            np.testing.assert_array_equal(bits(together[:, setting].copy()), bits(whole))


@both_dtypes
@every_loss
def test_residual_may_be_written_over_the_scores(loss, dtype):
    for outputs in widths(loss, 3, 40):
        scores, targets = draw(loss, 33, outputs, settings=(2,), dtype=dtype)
        kept, elsewhere = scores.copy(), np.empty_like(scores)
        expected = loss.residual(scores, targets)
        assert loss.residual(scores, targets, out=elsewhere) is elsewhere
        np.testing.assert_array_equal(scores, kept)
        assert loss.residual(scores, targets, out=scores) is scores
        np.testing.assert_array_equal(scores, expected)
        np.testing.assert_array_equal(elsewhere, expected)


@pytest.mark.parametrize("method", ["value", "residual", "curvature"])
@pytest.mark.parametrize("settings", [(4,), (2, 3)])
@every_loss
def test_settings_trained_together_agree_with_each_alone(loss, settings, method):
    for outputs in widths(loss, 3, 40):
        scores, targets = draw(loss, 4, outputs, settings=settings)  # as many rows as settings
        together = getattr(loss, method)(scores, targets)
        assert together.shape == (scores.shape[:-1] if method == "value" else scores.shape)
        for at in np.ndindex(settings):
            alone = getattr(loss, method)(scores[(slice(None), *at)], targets)
            np.testing.assert_array_equal(together[(slice(None), *at)], alone)


@both_dtypes
@every_loss
def test_extreme_scores_stay_finite_and_in_their_dtype(loss, dtype):
    for outputs in widths(loss, 3, 40):
        scores, _ = draw(loss, 300, outputs, dtype=dtype)
        _, targets = draw(loss, 300, outputs)  # float64: must not widen float32 scores
        size = np.array([[1e4], [1e2], [1]], dtype)
        scores = np.concatenate([np.sign(scores[:150]), scores[150:] / 10])
        scores *= np.tile(size, (100, 1))
        scores[:3] = size
        scores[3:6] = -size
        methods = [loss.value, loss.residual, loss.curvature]
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            results = [method(scores, targets) for method in methods]
            if loss.name in PROBABILISTIC:
                results.append(loss.probabilities(scores))
        for result in results:
            assert np.isfinite(result).all()
            assert result.dtype == dtype


@every_loss
def test_an_empty_block_is_no_error(loss):
    for outputs in widths(loss, 3, 40):
        scores, targets = draw(loss, 0, outputs)
        assert loss.residual(scores, targets, out=scores).shape == (0, outputs)
        assert loss.value(scores, targets).shape == (0,)


# Targets, outputs, probabilities


@pytest.mark.parametrize("name", ["logistic", "hinge", "huber-hinge", *sorted(NOT_CONVEX)])
def test_margin_targets_are_signs(name):
    loss = get_loss(name)
    assert (loss.outputs(2), loss.outputs(3)) == (1, 3)
    np.testing.assert_array_equal(loss.targets([0, 1, 1], 1), [[-1], [1], [1]])
    np.testing.assert_array_equal(loss.targets([2, 0], 3), [[-1, -1, 1], [1, -1, -1]])
    assert loss.targets([True, False], 1, np.float32).dtype == np.float32
    assert loss.lipschitz(9) == 3.0 * loss.lipschitz(1)
    assert loss.lipschitz(1) == 1.0 or not loss.convex


def test_softmax_targets_are_indices():
    loss = get_loss("softmax")
    assert (loss.outputs(2), loss.outputs(3)) == (2, 3)
    targets = loss.targets(np.array([2, 0], np.uint8), 3)
    assert targets.dtype == np.intp
    np.testing.assert_array_equal(targets, [2, 0])
    assert loss.lipschitz(3) == math.sqrt(2)


@pytest.mark.parametrize("name", ["squared", "absolute", "huber"])
def test_regression_targets_are_one_column(name):
    loss = get_loss(name)
    assert loss.outputs(0) == 1
    for values in ([1, 2.5], [[1], [2.5]]):
        np.testing.assert_array_equal(loss.targets(values, 1), [[1.0], [2.5]])
    for values in (3.0, [[1.0, 2.0]], [[[1.0]]]):
        with pytest.raises(InputError, match="one number per row"):
            loss.targets(values, 1)


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_class_targets_outside_the_classes_are_errors(name):
    loss = get_loss(name)
    for values in ([-1, 1], [0, 3]):
        with pytest.raises(InputError, match=r"0\.\.2"):
            loss.targets(values, 3)
    for values in ([0.0, 1.0], ["a", "b"], [[0], [1]]):
        with pytest.raises(InputError, match="one class index per row"):
            loss.targets(values, 3)
    with pytest.raises(InputError, match="at least 2 classes, got 1"):
        loss.outputs(1)


def test_probabilities_match_scipy_and_sum_to_one():
    scores = 5 * np.random.default_rng(0).standard_normal((50, 2, 4))
    p = special.expit(scores)
    expected = {
        ("softmax", 4): special.softmax(scores, axis=-1),
        ("logistic", 4): p / p.sum(axis=-1, keepdims=True),
        ("logistic", 1): np.concatenate([1 - p[..., :1], p[..., :1]], axis=-1),
        ("tempered", 1): np.concatenate([1 - p[..., :1], p[..., :1]], axis=-1),
        ("tempered", 4): p / p.sum(axis=-1, keepdims=True),
    }
    for (name, outputs), reference in expected.items():
        result = get_loss(name).probabilities(scores[..., :outputs])
        np.testing.assert_allclose(result, reference, rtol=1e-10)
        np.testing.assert_allclose(result.sum(axis=-1), 1, rtol=1e-14)


@pytest.mark.parametrize("name", ["savage", "tempered"])
def test_probabilities_are_those_that_the_loss_is_proper_for(name):
    """With odds of p to 1 - p, the score of least expected loss is the one that says p."""
    loss, scores = get_loss(name), np.linspace(-8, 8, 200_001)[:, None]
    cost = {y: loss.value(scores, np.full_like(scores, y)) for y in (-1, 1)}
    for p in (0.03, 0.2, 0.5, 0.7, 0.95):
        best = np.argmin(p * cost[1] + (1 - p) * cost[-1])
        np.testing.assert_allclose(loss.probabilities(scores[best : best + 1])[0, 1], p, atol=1e-4)
    several = loss.probabilities(np.random.default_rng(0).normal(size=(50, 2, 3)))
    np.testing.assert_allclose(several.sum(axis=-1), 1, rtol=1e-14)
    assert several.min() >= 0


@every_loss
def test_other_losses_define_no_probabilities(loss):
    if loss.name not in PROBABILISTIC:
        with pytest.raises(InputError, match=f"'{loss.name}' defines no probabilities"):
            loss.probabilities(np.zeros((1, 1)))


# Names


@every_loss
def test_losses_are_values(loss):
    assert get_loss(loss) is loss
    make = LOSSES.get(loss.name, type(loss))
    assert make is type(loss)
    twin = make(**asdict(loss))
    assert twin == loss
    assert hash(twin) == hash(loss)
    with pytest.raises(FrozenInstanceError):
        loss.smoothness = 0.0


@pytest.mark.parametrize(
    ("args", "params", "message"),
    [
        (["log"], {}, "'log'; use one of 'logistic', 'softmax', 'hinge', 'huber-hinge', 'squared'"),
        ([None], {}, "Unknown loss None"),
        ([["hinge"]], {}, "Unknown loss"),
        (["hinge"], {"h": 1.0}, "'hinge' takes no parameters; got h"),
        (["huber"], {"half_width": 1.0}, "'huber' takes threshold; got half_width"),
        (["huber"], {"threshold": 0.0}, "threshold must be positive and finite, got 0.0"),
        (["huber-hinge"], {"half_width": math.nan}, "half_width must be positive and finite"),
        ([Huber()], {"threshold": 2.0}, r"Huber\(threshold=1.0\) is complete; to set threshold"),
    ],
)
def test_get_loss_says_what_is_allowed(args, params, message):
    with pytest.raises(InputError, match=message):
        get_loss(*args, **params)
