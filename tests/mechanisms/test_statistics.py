"""Private statistics by themselves: the mechanisms of the stages, one event each."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import kstest

from tacit import mechanisms
from tacit.exceptions import InputError, TacitError
from tacit.mechanisms import (
    Key,
    private_bounds,
    private_mean,
    private_quantile,
    private_radius,
    private_scale,
    private_second_moment,
)

ROWS = np.random.default_rng(0).normal(size=(4000, 3)) * [0.1, 0.2, 0.3]

CALLS = {
    "private_mean": lambda rows, z, **more: private_mean(rows, 2.0, z, **more),
    "private_quantile": lambda rows, z, **more: private_quantile(rows[:, [0]], 0.5, z, **more),
    "private_radius": lambda rows, z, **more: private_radius(rows, 2.0, z, **more),
    "private_bounds": private_bounds,
    "private_scale": lambda rows, z, **more: private_scale(rows, 2.0, z, **more),
    "private_second_moment": lambda rows, z, **more: private_second_moment(rows, 2.0, z, **more),
}


def test_all_of_them_are_here_and_say_what_they_cost():
    named = {name for name in mechanisms.__all__ if name.startswith("private_")}
    assert named == CALLS.keys()
    for name in named:
        assert "Examples" in inspect.getdoc(getattr(mechanisms, name))
    assert "event" in inspect.getdoc(inspect.getmodule(private_mean))


@pytest.mark.parametrize("name", CALLS)
def test_one_key_gives_one_result_and_serves_once(name):
    key = Key.from_seed(0)
    one = CALLS[name](ROWS, 2.0, key=key)
    with pytest.raises(TacitError, match="opened before"):
        CALLS[name](ROWS, 2.0, key=key)
    assert np.array_equal(one, CALLS[name](ROWS, 2.0, key=Key.from_seed(0)))
    few = [CALLS[name](ROWS[:50], 20.0, key=Key.from_seed(seed)) for seed in (1, 2)]
    assert not np.array_equal(*few)


@pytest.mark.parametrize("name", [n for n in CALLS if n != "private_quantile"])
def test_sparse_rows_and_guesses_of_the_size_are_taken(name):
    CALLS[name](sp.csr_array(ROWS), 2.0)
    CALLS[name](ROWS, 2.0, size=3000)
    CALLS[name](ROWS[:0], 2.0, size=3000)


@pytest.mark.parametrize("name", CALLS)
def test_nonsense_is_refused(name):
    for rows in (ROWS * math.nan, ROWS[:0]):
        with pytest.raises(InputError):
            CALLS[name](rows, 2.0)
    for z in (0.0, -1.0, math.nan):
        with pytest.raises(TacitError):
            CALLS[name](ROWS, z)


def test_more_nonsense_is_refused():
    with pytest.raises(InputError, match="two dimensions"):
        private_mean(ROWS[0], 2.0, 1.0)
    with pytest.raises(InputError, match="method="):
        private_mean(ROWS, 2.0, 1.0, method="median")
    with pytest.raises(InputError, match="method="):
        private_quantile(ROWS[:, 0], 0.5, 1.0, method="median")
    with pytest.raises(InputError, match="both low and high"):
        private_quantile(ROWS[:, 0], 0.5, 1.0, low=0.0)


# What they find


@pytest.mark.parametrize("method", ["gaussian", "exponential"])
@pytest.mark.parametrize("limits", [{}, {"low": -10.0, "high": 10.0}])
@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_quantiles(q, limits, method):
    values = ROWS[:, 1]
    found = private_quantile(values, q, 3.0, method=method, key=Key.from_seed(1), **limits)
    assert abs((values < found).mean() - q) < 0.02


def test_means_scales_and_moments():
    mean = private_mean(ROWS + 1e3, 1e6, 2.0)
    assert np.linalg.norm(mean - (ROWS + 1e3).mean(axis=0)) < 0.05
    mean, deviation = private_scale(ROWS, 2.0, 1.0)
    assert mean == pytest.approx(ROWS.mean(axis=0), abs=0.01)
    assert deviation == pytest.approx(ROWS.std(axis=0), abs=0.03)
    moment = private_second_moment(ROWS, 2.0, 1.0)
    assert moment == pytest.approx(ROWS.T @ ROWS / len(ROWS), abs=0.01)


def test_the_gaussian_mean_has_noise_of_the_stated_scale():
    d, z, n = 20_000, 3.0, 10
    found = private_mean(np.zeros((n, d)), 2.0, z, method="gaussian", key=Key.from_seed(1))
    error = found / (z * 2.0 / n)
    assert error.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * d))
    assert kstest(error, "norm").pvalue > 0.01


def test_the_second_moment_has_noise_of_the_stated_scale():
    d, z, n = 200, 3.0, 10
    found = private_second_moment(np.zeros((n, d)), 2.0, z, key=Key.from_seed(0)) * n / (z * 4.0)
    beside = found[np.triu_indices(d, 1)] * math.sqrt(2)
    assert beside.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * beside.size))
    assert kstest(beside, "norm").pvalue > 0.01
