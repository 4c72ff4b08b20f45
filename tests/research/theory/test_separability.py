"""Halfspaces without privacy, and what decaying gradients say of their separators."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.exceptions import InputError
from tacit.research.theory import halfspaces, separability


def test_the_size_is_the_least_that_reaches_the_error():
    for given in ({"margin": 0.5}, {"margin": 0.6, "xi": 0.02}):
        n = separability.nonprivate_size(0.05, **given)
        assert separability.nonprivate_risk(n, **given).value <= 0.05
        assert separability.nonprivate_risk(n - 1, **given).value > 0.05


def test_dimensions_are_not_in_it_and_the_margin_is_squared():
    one, half = (separability.nonprivate_size(0.01, margin=m, failure=0.9) for m in (1.0, 0.5))
    assert half / one == pytest.approx(4, rel=0.5)  # the paper has a factor of 2
    printed = [separability.nonprivate_risk(10**4, margin=m).printed for m in (1.0, 0.25)]
    assert printed[1] / printed[0] == pytest.approx(2)


def test_separable_rows_are_learned_within_the_bound():
    """The hardest margin classifier at hand: the mean of the signed rows, on few of them."""
    rng = np.random.default_rng(0)
    n, d, margin = 2_000, 50, 0.3
    w = np.eye(d)[0]

    def rows(count):
        x = rng.standard_normal((count, d))
        x[:, 0] = 0
        x *= math.sqrt(1 - 0.36**2) / np.linalg.norm(x, axis=1, keepdims=True)
        signs = rng.choice([-1.0, 1.0], count)
        return x + 0.36 * signs[:, None] * w, signs

    x, y = rows(n)
    found = (x * y[:, None]).mean(axis=0)
    found /= np.linalg.norm(found)
    assert (y * (x @ found)).min() >= margin
    fresh, signs = rows(20_000)
    wrong = float((signs * (fresh @ found) <= 0).mean())
    assert wrong <= separability.nonprivate_risk(n, margin=margin).value


def test_components_that_lose_the_margin_promise_nothing():
    assert separability.nonprivate_risk(10**6, margin=0.2, xi=0.1).value == math.inf
    with pytest.raises(InputError, match="no margin is left"):
        separability.nonprivate_size(0.1, margin=0.2, xi=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_components_keep_of_the_separator_what_coefficients_imply(seed):
    rng = np.random.default_rng(seed)
    d, k, scale = 8, int(rng.integers(1, 6)), float(rng.uniform(0.2, 2))
    w = rng.standard_normal(d)
    w /= np.linalg.norm(w)
    x = rng.standard_normal((300, d)) * 0.6 ** np.arange(d) + 2 * w
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    gamma = float(np.abs(x @ w).min())
    axes = np.linalg.eigh(x.T @ x)[1][:, ::-1]
    left = [
        float(np.linalg.norm(x - x @ axes[:, :i] @ axes[:, :i].T, axis=1).max()) / scale
        for i in range(d + 1)
    ]
    xi, _ = separability.lipschitz_xi(max(gamma, 1e-9), left, k, scale=scale)
    kept = float(np.linalg.norm(axes[:, :k].T @ w))
    assert kept >= 1 - xi - 1e-12
    tail = float(np.linalg.eigvalsh(x.T @ x / len(x))[: d - k].sum())
    assert tail <= (scale * left[k]) ** 2 + 1e-12  # Λ ≤ ζ²G²


def test_the_row_that_table_v_has_for_gradients_projected_at_random():
    given = {"epsilon": 0.2, "margin": 0.25, "d": 900, "k": 16}
    name = "random projection of gradients"
    ball = halfspaces.error_rates(1_000, **given)[name].value
    assert ball == halfspaces.error_rates(1_000, **given)["noisy descent"].value
    narrow = math.sqrt(2 * math.log(1_800))
    thin = halfspaces.error_rates(1_000, **given, width=narrow)[name].value
    assert thin == pytest.approx(narrow / (1_000 * 0.2 * 0.25))
    n = halfspaces.sample_sizes(0.03, **given, width=narrow)[name]
    assert halfspaces.error_rates(n, **given, width=narrow)[name].value == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: separability.lipschitz_xi(0.0, [1.0, 0.5], 1, scale=1.0), "margin=0.0"),
        (lambda: separability.lipschitz_xi(0.5, [1.0, 0.5], 2, scale=1.0), "k=2"),
        (lambda: separability.nonprivate_risk(0, margin=0.5), "n"),
        (lambda: separability.nonprivate_size(1.5, margin=0.5), "error"),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
