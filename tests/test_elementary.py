"""Elementary functions of correctly rounded operations: accurate, and the same everywhere."""

from __future__ import annotations

from typing import ClassVar

import mpmath as mp
import numpy as np
import pytest

from tacit.losses import LOSSES, Softmax, clipped, elementary, get_loss

RNG = np.random.default_rng(0)
POINTS = np.concatenate(
    [
        -RNG.exponential(5, 2000),
        -RNG.uniform(0, 708, 500),
        -(10.0 ** RNG.uniform(-300, 2, 500)),
        -np.arange(709) * np.log(2) / 2,  # where k changes
        [0.0, -0.0, -708.0, -0.5 * np.log(2), -5e-324],
    ]
)
POINTS = np.maximum(POINTS, elementary.LOWEST)
FUNCTIONS = [elementary.exp, elementary.sigmoid, elementary.log_sigmoid, elementary.arctan]


def test_the_parts_of_log_two_are_what_they_are_said_to_be():
    with mp.workprec(200):
        assert abs(mp.log(2) - elementary.LN2_HIGH - elementary.LN2_LOW) < mp.mpf(2) ** -97
    assert (float(elementary.LN2_HIGH) * 2**42).is_integer()
    k = np.arange(-1024, 1024)
    with mp.workprec(200):
        assert all(
            float(v) * elementary.LN2_HIGH == mp.mpf(int(v)) * elementary.LN2_HIGH for v in k
        )


def test_the_exponential_is_accurate():
    with mp.workprec(120):
        exact = [mp.exp(mp.mpf(float(x))) for x in POINTS]
        found = elementary.exp(POINTS)
        worst = max(abs(mp.mpf(float(f)) / e - 1) for f, e in zip(found, exact, strict=True))
    assert worst < 2.0**-48
    assert elementary.exp(np.zeros(1)) == 1.0
    assert elementary.exp(np.array([-1e300])) == elementary.exp(np.array([-708.0])) > 0
    with np.errstate(invalid="ignore"):
        assert np.isnan(elementary.exp(np.array([np.nan]))).all()


def test_the_sigmoid_is_accurate():
    x = np.concatenate([POINTS, -POINTS])
    with mp.workprec(120):
        exact = [1 / (1 + mp.exp(-mp.mpf(float(v)))) for v in x]
        found = elementary.sigmoid(x)
        assert all(abs(float(f) / e - 1) < 2.0**-47 for f, e in zip(found, exact, strict=True))


def test_the_logarithm_of_the_sigmoid_is_accurate():
    x = np.concatenate([POINTS, -POINTS, [1e18, -1e18]])
    with mp.workprec(1200):
        exact = [-mp.log1p(mp.exp(-mp.mpf(float(v)))) if v > -1e9 else mp.mpf(v) for v in x]
        found = elementary.log_sigmoid(x)
        assert all(
            abs(float(f) - e) <= 2.0**-46 * abs(e) + 2.0**-1020
            for f, e in zip(found, exact, strict=True)
        )


def test_the_arctangent_is_accurate():
    x = np.concatenate([POINTS, -POINTS, 1 / POINTS[:2000], [1e300, -1e300, 1.0, -1.0, 0.0]])
    with mp.workprec(120):
        exact = [mp.atan(mp.mpf(float(v))) for v in x]
        found = elementary.arctan(x)
        assert all(
            abs(float(f) - e) <= 2.0**-49 * abs(e) + 2.0**-1020
            for f, e in zip(found, exact, strict=True)
        )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_number_has_the_same_bits_in_every_place(function):
    x = POINTS[:640].copy()
    expected = function(x.copy())
    for start in range(17):
        for stop in (start + 1, start + 7, start + 16, start + 333):
            assert (function(x[start:stop].copy()) == expected[start:stop]).all()
            assert (function(x[start:stop]) == expected[start:stop]).all()  # not aligned
    assert (function(x[::3]) == expected[::3]).all()
    assert (function(x[::-1]) == expected[::-1]).all()
    table = x.reshape(20, 32)
    assert (function(np.asfortranarray(table)).ravel() == expected).all()
    assert (function(table.T.copy()).T.ravel() == expected).all()


def test_results_may_be_written_over_the_input():
    for function in FUNCTIONS:
        x = POINTS.copy()
        expected = function(x)
        assert (x == POINTS).all()
        assert function(x, out=x) is x
        assert (x == expected).all()


EVERY = [get_loss(name) for name in sorted(LOSSES)]
EVERY += [clipped("softmax", 0.3), clipped("logistic", 0.3), get_loss("tempered", temperature=0.9)]
EVERY += [get_loss("tempered", temperature=0.3, tail=tail) for tail in (1.5, 4.0)]


def problem(loss, outputs, n=200):
    outputs = 1 if loss.task == "regression" else outputs
    scores = RNG.normal(size=(n, outputs)) * 10.0 ** RNG.uniform(-3, 2, (n, 1))
    given = RNG.normal(size=n) if loss.task == "regression" else np.arange(n) % outputs
    return scores, loss.targets(given, outputs)


@pytest.mark.parametrize("outputs", [2, 5, 30])
@pytest.mark.parametrize("loss", EVERY, ids=lambda loss: loss.name)
def test_portable_losses_are_the_same_to_rounding(loss, outputs):
    scores, targets = problem(loss, outputs)
    found = loss.portable().residual(scores, targets)
    np.testing.assert_allclose(found, loss.residual(scores, targets), rtol=1e-11, atol=1e-14)
    assert loss.portable() == loss or loss.name.startswith("clipped")
    assert type(loss.portable()) is type(loss)


#: Operations whose result IEEE 754 fixes, or that only choose, compare or move bits.
FIXED = {"add", "subtract", "multiply", "divide", "sqrt", "square", "rint", "negative", "absolute"}
FIXED |= {"maximum", "minimum", "clip", "sign", "copysign", "less", "greater", "left_shift"}
FIXED |= {"frexp"}  # the bits of a number, taken apart


class Watched(np.ndarray):
    """An array that tells which operations it goes through."""

    seen: ClassVar[set[str]] = set()

    def __array_ufunc__(self, ufunc, method, *given, out=None, **named):
        Watched.seen.add(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}")
        plain = [v.view(np.ndarray) if isinstance(v, Watched) else v for v in given]
        if out is not None:
            named["out"] = tuple(v.view(np.ndarray) if isinstance(v, Watched) else v for v in out)
        found = getattr(ufunc, method)(*plain, **named)
        if out is not None:
            return out[0]
        return found.view(Watched) if isinstance(found, np.ndarray) else found


@pytest.mark.parametrize("loss", EVERY, ids=lambda loss: loss.name)
def test_portable_residuals_are_made_of_fixed_operations(loss):
    for outputs in (2, 30):
        scores, targets = problem(loss, outputs, n=64)
        Watched.seen = set()
        loss.portable().residual(scores.view(Watched), targets)
        assert Watched.seen
        assert Watched.seen <= FIXED


def test_other_residuals_are_not():
    for name in ("logistic", "softmax", "savage", "tangent", "tempered"):
        scores, targets = problem(get_loss(name), 30, n=64)
        Watched.seen = set()
        get_loss(name).residual(scores.view(Watched), targets)
        assert Watched.seen - FIXED


def test_a_loss_that_was_changed_stays_as_it_is():
    class Mine(Softmax):
        def residual(self, scores, targets, out=None):
            return np.zeros_like(scores)

    assert not Mine().portable().residual(np.ones((3, 2)), np.zeros(3, dtype=int)).any()
