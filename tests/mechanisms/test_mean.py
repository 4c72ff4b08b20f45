"""The mean that follows the rows: exact votes, one event, and an error that ignores the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import hadamard as matrix
from tests.seam import run_for

from tacit.audit.recorder import Recorder, Replayer
from tacit.mechanisms import mean as module
from tacit.mechanisms.additive import BITS as SUM_BITS
from tacit.mechanisms.bounds import noisy_bounds
from tacit.mechanisms.extent import noisy_radius
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.mean import BITS, hadamard, instance_optimal_mean, locating_draws
from tacit.mechanisms.quantile import VOTE
from tacit.mechanisms.random_streams import Stream
from tacit.privacy.events import NEIGHBORS, Gaussian


@pytest.fixture
def silence(monkeypatch):
    asked = []

    def nothing(self, sigma, count):
        asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(Stream, "discrete_gaussian", nothing)
    return asked


def cloud(n=2000, d=5, seed=0):
    """Rows within a ball of radius one."""
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))


def mean_of(rows, z=3.0, *, bound=1e6, seed=0, size=None, counted=True):
    n, d = rows.shape
    run, token = run_for(Gaussian(z), seed)
    signs = run.public.signs("rotation", 0, d)
    chunks = [rows[: n // 3], rows[n // 3 :]]
    return instance_optimal_mean(
        lambda: chunks, d, bound, token, signs=signs, size=size or n, counted=counted
    )


# The rotation


@pytest.mark.parametrize("width", [1, 2, 8, 64])
def test_the_rotation_is_a_hadamard_matrix_in_integers(width):
    rows = np.random.default_rng(0).integers(-(2**40), 2**40, size=(9, width))
    turned = rows.copy()
    hadamard(turned)
    assert (turned == rows @ matrix(width)).all()
    lengths = [sum(int(v) ** 2 for v in row) for row in rows]
    assert [sum(int(v) ** 2 for v in row) for row in turned] == [width * x for x in lengths]
    hadamard(turned)
    assert (turned == width * rows).all()


def cells_of(rows, bound, monkeypatch):
    """What the search for the location is given."""
    seen = []

    def spy(cells, bits, targets, token):
        seen.extend(cells)
        return np.zeros(len(targets.fractions), dtype=np.int64)

    with monkeypatch.context() as patch:
        patch.setattr(module, "noisy_search", spy)
        mean_of(rows, bound=bound)
    return np.concatenate(seen)


@pytest.mark.parametrize("d", [1, 2, 3, 7, 33])
def test_every_row_however_long_lies_on_the_grid(d, monkeypatch):
    rows = np.concatenate([cloud(60, d) * 10.0 ** np.linspace(-9, 9, 60)[:, None], np.eye(d) * 7])
    wide = 1 << (d - 1).bit_length()
    for given in (rows, sp.csr_array(rows)):
        cells = cells_of(given, 7.0, monkeypatch)
        assert cells.shape == (len(rows), wide)
        assert cells.min() >= 0 and cells.max() < 2**BITS


def test_the_place_of_a_row_does_not_matter(monkeypatch):
    rows = cloud(40, 6) * 100
    whole = cells_of(rows, 50.0, monkeypatch)
    alone = np.concatenate([cells_of(rows[i : i + 1], 50.0, monkeypatch) for i in range(40)])
    assert (whole == alone).all()


# One event


@pytest.mark.parametrize("d", [1, 3, 16])
def test_all_noise_together_is_what_the_event_says(silence, d):
    z, wide = 2.7, 1 << (d - 1).bit_length()
    found = mean_of(cloud(50, d), z)
    assert sum(count for _, count in silence) == locating_draws(d)
    squares = []
    for sigma, count in silence[:BITS]:
        assert count == wide
        squares.append(wide / (accounted_sigma(sigma) / VOTE) ** 2)
    squares += [1 / (accounted_sigma(sigma) / VOTE) ** 2 for sigma, _ in silence[BITS:-1]]
    last = accounted_sigma(silence[-1][0]) / 2.0**SUM_BITS
    squares.append(1 / last**2)
    assert math.fsum(squares) <= 1 / z**2
    assert math.fsum(squares) == pytest.approx(1 / z**2, rel=1e-9)
    assert found.deviation == pytest.approx(last * found.radius / 50)


ATTACKED = {
    "mean": lambda rows, token, signs, **known: instance_optimal_mean(
        lambda: [rows], 3, 2.0, token, signs=signs, **known
    ),
    "radius": lambda rows, token, signs, **known: noisy_radius(lambda: [rows], 2.0, token, **known),
    "bounds": lambda rows, token, signs, **known: noisy_bounds(lambda: [rows], 3, token, **known),
}


def attacked(name, rows, seed, draws, **known):
    run, token = run_for(Gaussian(1.0), seed, draws=draws)
    ATTACKED[name](rows, token, run.public.signs("rotation", 0, 3), **known)
    run.close()
    return draws


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("name", ATTACKED)
def test_neighbours_lie_no_farther_apart_than_the_event_says(name, neighbors):
    """Given what one table released, what would its neighbour have released? Noise of 1: μ ≤ Δ."""
    unit, rng, worst = NEIGHBORS[neighbors], np.random.default_rng(7), 0.0
    counted = neighbors != "add_or_remove_one"
    for i in range(40):
        n = int(rng.integers(2, 60))
        rows = rng.normal(size=(n, 3)) * 10.0 ** rng.uniform(-12, 1) + rng.normal(size=3)
        if i % 4 == 0:
            rows[1:] = 0.0
        rows[0] = rng.normal(size=3) * 10.0 ** rng.uniform(-12, 300 if i % 5 == 0 else 1)
        other = rows[1:]
        if neighbors == "replace_one":
            other = np.vstack([-rows[:1] if i % 2 else rng.normal(size=(1, 3)), other])
        known = {"size": n, "counted": counted}
        tape = attacked(name, rows, i, Recorder(), **known).tape
        sums = [attacked(name, table, i, Replayer(tape), **known).sums for table in (rows, other)]
        square = sum(
            float(((a - b) ** 2).sum()) / release.deviation**2
            for release, a, b in zip(tape, *sums, strict=True)
        )
        assert square <= unit**2 * (1 + 1e-9)
        worst = max(worst, square / unit**2)
    # Under replace_one a row can be at one end of a column in either table, not at both: bounds by
    # middle, radius and ends reach 0.47 there.
    assert worst > (0.4 if (name, neighbors) == ("bounds", "replace_one") else 0.5)


# The error


@pytest.mark.parametrize(("d", "z"), [(2, 6.0), (20, 3.0)])
def test_the_error_is_flat_as_the_rows_move_away(d, z):
    rows, far = cloud(2000, d), np.full(d, 1 / math.sqrt(d))
    errors = []
    for shift in (0.0, 1.0, 30.0, 1000.0, 1e5):
        moved = rows + shift * far
        off = [mean_of(moved, z, seed=s).mean - moved.mean(axis=0) for s in range(5)]
        errors.append(float(np.mean(np.linalg.norm(off, axis=1))))
    assert max(errors) < 1.2 * min(errors)
    # Two hundred rows' worth of noise, and not a millionth of the bound.
    assert max(errors) < 2 * z * 1.2 * (math.sqrt(d) + 3) / 2000 + 30 * z / 2000


def test_the_radius_is_that_of_the_rows():
    for scale in (1e-6, 1.0, 1e3):
        found = mean_of(scale * cloud() + 1e3, z=1.0)
        largest = np.linalg.norm(scale * cloud() + 1e3 - found.location, axis=1).max()
        assert found.radius <= largest * (1 + 1 / 16) + 1e-5
        assert np.linalg.norm(found.location - 1e3) <= 2 * scale + 1e-5


def test_rows_that_are_all_the_same_have_that_mean():
    rows = np.tile([3e5, -1e-3, 7.0], (4000, 1))
    found = mean_of(rows, z=5.0)
    assert np.linalg.norm(found.mean - rows[0]) < 1e-5


def test_without_noise_it_is_the_mean(silence):
    rows = cloud() + 1e4
    # Nothing is left outside: so few rows would be.
    assert mean_of(rows, z=1e-3).mean == pytest.approx(rows.mean(axis=0), abs=1e-6)


def test_a_guess_of_the_size_will_do_where_the_number_is_private():
    rows = cloud(3000) + 500.0
    for guess in (1500, 3000, 6000):
        found = mean_of(rows, z=2.0, size=guess, counted=False)
        assert np.linalg.norm(found.mean - rows.mean(axis=0)) < 1.0
        assert found.radius < 2.5


def test_rows_beyond_the_bound_count_no_more_than_any():
    rows = cloud() + 5.0
    wild = rows.copy()
    wild[:3] = [[1e300] * 5, [np.inf] * 5, [np.nan] * 5]
    with np.errstate(all="ignore"):
        one, other = mean_of(rows, z=3.0, bound=100.0), mean_of(wild, z=3.0, bound=100.0)
    assert np.linalg.norm(one.mean - other.mean) < 0.05
