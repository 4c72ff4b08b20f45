"""Li et al. 2022 at small size: records that are well formed, walks and nulls that are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.research.instances import median
from tacit.research.reproduce import li_median, li_spectrum, li_walks
from tacit.research.theory import decay


def checks(record):
    return [check for check in record["checks"] if check["paper"]]


@pytest.mark.parametrize("name", ["li-empirical", "li-population"])
def test_schedules_are_told_beside_their_bounds(quick, name):
    record = quick(name)
    assert all(check["null"] for check in checks(record))
    falls = checks(record)[-1]
    assert not falls["null"]["holds"]  # who does not move does not learn from more rows
    for curve in record["figures"][0]["curves"].values():
        assert all(value > 0 for value in curve[1])


def test_medians_are_told_with_both_losses_and_settings_of_other_rows(quick):
    record = quick("li-median")
    titles = [table["title"] for table in record["tables"]]
    for way in li_median.WAYS:
        assert {f"{way}: empirical loss", f"{way}: population loss"} <= set(titles)
    assert sum("chosen on other rows" in title for title in titles) == 2
    for check in checks(record):
        if "stay almost constant" in check["text"]:
            assert not check["null"]["holds"]  # the same weights on both sides
    assert not any("Tacit" in check["text"] for check in checks(record))


@pytest.mark.torch
def test_the_spectrum_is_told_with_its_null_and_its_density(quick):
    record = quick("li-spectrum")
    values = record["figures"][0]["curves"]["gradients"][1]
    assert values == sorted(values, reverse=True)
    law, share, *_ = checks(record)
    assert not law["null"]["holds"] and not share["null"]["holds"]  # Gaussians do not fall
    x, density = (np.array(part) for part in record["figures"][1]["curves"]["gradients"])
    assert np.trapezoid(density, x) == pytest.approx(1.0, abs=0.02)
    rows = [row[0] for row in record["tables"][0]["rows"]]
    assert {"untrained", "all", "all, no noise", "5 at random"} <= set(rows)


# walks


def test_a_walk_takes_the_steps_of_algorithm_1():
    """By rows of all columns, one after the other, in the words of the paper."""
    data, d, steps = li_walks.drawn(20, 3), 25, 60
    weights = li_walks.weights_of(d, 1.0, 2.0)
    rates, pulls = np.array([0.1, 0.02]), np.array([0.0, 0.3])
    for whole in (False, True):
        found = li_walks.walk(
            data,
            weights,
            whole=whole,
            steps=steps,
            rates=rates,
            pulls=pulls,
            noise=0.7,
            seed=5,
        )
        rows = np.zeros((20, d))
        rows[:, :10] = data.rows
        rng = np.random.default_rng(5)
        drawn, draws = rng.integers(20, size=steps), rng.standard_normal((steps, d))
        for rate, pull, answer in zip(rates, pulls, found, strict=True):
            x, path = np.zeros(d), []
            for row, zeta in zip(drawn, draws, strict=True):
                some = rows if whole else rows[row : row + 1]
                apart = x - some
                norms = np.sqrt(np.square(apart) @ weights)
                gradient = (apart * weights / norms[:, None]).mean(axis=0)
                x = x - rate * (gradient + pull * x + math.sqrt(4.0) * 0.7 * zeta)
                path.append(x)
            assert answer == pytest.approx(np.mean(path, axis=0), abs=1e-12)
        losses = data.losses(found, weights)
        by_hand = np.sqrt(np.square(rows[None] - found[:, None]) @ weights).mean(axis=1)
        assert losses["empirical"] == pytest.approx(by_hand, rel=1e-12)


def test_the_median_of_a_walk_s_rows_is_known_for_both_losses():
    data = li_walks.drawn(400, 1)
    weights = li_walks.weights_of(30, 0.5)
    rng = np.random.default_rng(0)
    near = np.zeros((20, 30))
    near[:, :10] = data.centre
    near += 0.1 * rng.standard_normal(near.shape)
    losses = data.losses(near, weights)
    assert (losses["excess empirical"] > 0).all() and (losses["excess population"] > 0).all()
    made = median(400, 10, seed=1)
    assert data.rows == pytest.approx(made.rows) and data.centre == pytest.approx(made.optimum)
    assert not np.isin(data.fresh[:, 0], data.rows[:, 0]).any()


def test_without_noise_columns_that_say_nothing_change_nothing():
    how = {"whole": False, "n": 50, "decay": 0.0, "steps": 200, "settings": [[0.01, 0.0]]}
    few, many = (li_walks.walked(**how, d=d, budget=None, rows=0, seed=0)[0] for d in (10, 40))
    assert few == pytest.approx(many, rel=1e-12)


# spectra


def test_gaussians_by_their_gram_matrix_are_those_of_rows():
    values, shares = li_spectrum.isotropic(60, 4000, 0)
    rows = np.random.default_rng(1).standard_normal((60, 4000))
    assert values == pytest.approx(np.linalg.svd(rows, compute_uv=False), rel=0.03)
    assert shares[-1] == pytest.approx(1.0) and shares[30] == pytest.approx(0.5, abs=0.1)
    assert li_spectrum.power(np.arange(1.0, 50) ** -0.6) == pytest.approx(0.6)


# noise of one row a step


@pytest.mark.parametrize("others", [-1.0, 0.0, 1.0, "spread"])
def test_one_drawn_row_is_as_private_as_its_noise_says(others):
    """Exactly, in one dimension: the row in which neighbours differ swaps ends."""
    n, epsilon, delta = 12, 0.5, 1e-3
    sigma = decay.one_row_noise(n, 1, epsilon=epsilon, delta=delta)
    rest = np.linspace(-1, 1, n - 1) if others == "spread" else np.full(n - 1, others)
    x = np.linspace(-12 * sigma, 12 * sigma, 200_001)

    def law(row):
        centres = np.append(rest, row)
        parts = np.exp(-0.5 * ((x[:, None] - centres) / sigma) ** 2)
        return parts.mean(axis=1) / (sigma * math.sqrt(2 * math.pi))

    for one, other in [(1.0, -1.0), (-1.0, 1.0)]:
        gap = np.maximum(law(one) - math.exp(epsilon) * law(other), 0.0)
        assert np.trapezoid(gap, x) <= delta
