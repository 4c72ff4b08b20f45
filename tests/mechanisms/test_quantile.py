"""Quantiles: exact votes of sensitivity one, noise as stated, and errors in rank as promised."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare, kstest
from tests.seam import run_for, token

from tacit.exceptions import InputError
from tacit.mechanisms import quantile
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.quantile import (
    BETA,
    VOTE,
    Floats,
    Linear,
    Targets,
    event,
    exponential_search,
    margin,
    noisy_search,
    search,
)
from tacit.mechanisms.random_streams import Stream
from tacit.mechanisms.release import BoundedSum
from tacit.mechanisms.selection import masses
from tacit.privacy import Gaussian, Selection
from tacit.privacy.accounting.accountants import total_mu
from tacit.privacy.events import NEIGHBORS

QUIET = 1e-4  # noise of less than one row


@pytest.fixture
def silence(monkeypatch):
    """No noise, and a record of what was asked for."""
    asked = []

    def nothing(self, sigma, count):
        asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(Stream, "discrete_gaussian", nothing)
    return asked


def at(cells):
    """Cells as the searches read them."""
    cells = np.asarray(cells, dtype=np.int64)
    cells = cells if cells.ndim == 2 else cells[:, None]
    return lambda: [cells[:7], cells[7:]]


# Grids


GRIDS = [
    Linear(-3.0, 5.0, 12),
    Linear(0.0, 1e300, 40),
    Floats(3),
    Floats(0),
    Floats(4, 10, 1e-3),
    Floats(4, 10, 5e-300),
    Floats(2, 12, 1.7e308),
]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_cells_keep_the_order_and_edges_enclose_them(grid):
    rng = np.random.default_rng(0)
    values = rng.normal(size=3000) * 10.0 ** rng.uniform(-308, 307, size=3000)
    values = np.concatenate([values, [0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, 1.7e308, -1.7e308]])
    values.sort()
    cells = grid.cells(values)
    assert cells.min() >= 0 and cells.max() < 2**grid.bits
    assert (np.diff(cells) >= 0).all()
    low, high = (np.array([grid.edge(int(t)) for t in cells + i]) for i in (0, 1))
    inside = (cells > 0) & (cells < 2**grid.bits - 1)
    # A float next to an edge may fall on either side of it.
    low, values, high = (x[inside] / 2 for x in (low, values, high))
    slack = 1e-12 * np.maximum(np.abs(low), np.abs(high))
    assert (low - slack <= values).all() and (values <= high + slack).all()


def test_the_grid_of_floats_is_fine_everywhere_and_ends_at_its_top():
    grid = Floats(3)
    first, last = grid.finite
    edges = np.array([grid.edge(t) for t in range(first, last + 2)])
    assert (np.diff(edges) > 0).all()
    ordinary = edges[(np.abs(edges) > 1e-300) & (np.abs(edges) < 1e300)]
    ratio = np.maximum(ordinary[1:] / ordinary[:-1], ordinary[:-1] / ordinary[1:])
    assert ratio[ratio > 0].max() <= 1.125 + 1e-12
    for top in (1.0, 0.7, 1e9, 3e-5):
        grid = Floats(4, 10, top)
        assert grid.edge(1023) <= top < grid.edge(1024) <= top * (1 + 1 / 16)
        assert grid.cells(np.array([top, 2 * top, 0.0, top * 2.0**-70])).tolist() == [
            1023,
            1023,
            0,
            0,
        ]
        assert top * 2.0**-65 < grid.edge(0) < top * 2.0**-63


@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_what_is_no_number_has_a_cell_like_any_other(grid, value):
    (cell,) = grid.cells(np.array([value]))
    assert 0 <= cell < 2**grid.bits


@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(1.0, 1.0),
        lambda: Linear(0.0, math.inf),
        lambda: Linear(0.0, 1.0, 60),
        lambda: Floats(40),
        lambda: Floats(4, 10, 0.0),
        lambda: Floats(4, 20, 1.0),
        lambda: Targets(()),
        lambda: Targets((1.5,)),
        lambda: Targets((0.5, 0.5), (0,)),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(InputError):
        make()


# Sensitivity: one row contributes one vote to each target, exactly


def votes_at(cells, targets, edges):
    below = np.array(
        [int((cells[:, c] < e).sum()) for c, e in zip(targets.columns, edges, strict=True)]
    )
    return targets.votes(below, len(cells))


@pytest.mark.parametrize("size", [30, None], ids=["public n", "private n"])
@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_votes_of_neighbours_lie_within_the_norm(neighbors, size):
    """The attack: any table, any other row, any edges. In integers."""
    rng, worst = np.random.default_rng(1), Fraction(0)
    for _ in range(400):
        fractions = tuple(rng.choice([0.0, 0.01, 0.5, 0.9, 1.0], size=4))
        targets = Targets(fractions, (0, 1, 1, 0), size)
        cells, edges = rng.integers(0, 64, size=(30, 2)), rng.integers(0, 65, size=4)
        other = cells[1:]
        if neighbors == "replace_one":
            other = np.vstack([rng.integers(0, 64, size=(1, 2)), other])
        apart = votes_at(cells, targets, edges) - votes_at(other, targets, edges)
        square = Fraction(int((apart.astype(object) ** 2).sum()), VOTE**2)
        limit = Fraction(NEIGHBORS[neighbors]) ** 2 * 4
        assert square <= limit
        assert Fraction(targets.norm) ** 2 >= 4
        worst = max(worst, square / limit)
    assert worst == 1 if size else worst > 0.5


def test_a_null_row_has_no_vote_and_sums_are_those_of_single_rows():
    rng = np.random.default_rng(2)
    cells, edges = rng.integers(0, 64, size=(50, 3)), rng.integers(0, 65, size=3)
    for size in (50, None):
        targets = Targets((0.1, 0.5, 0.9), size=size)
        one_by_one = sum(votes_at(cells[i : i + 1], targets, edges) for i in range(50))
        assert (one_by_one == votes_at(cells, targets, edges)).all()
        assert (votes_at(cells[:0], targets, edges) == 0).all()


def test_the_counts_of_a_pass_are_those_of_its_edges():
    rng = np.random.default_rng(3)
    cells = rng.integers(0, 2**12, size=(200, 2))
    targets = Targets((0.5, 0.5, 0.1), (0, 1, 1), 200)
    low = np.array([0, 1024, 2048])
    below, count = quantile.counted_below(at(cells), targets, low, left=6, step=4)
    assert count.tolist() == [200] * 3
    for j, column in enumerate(targets.columns):
        wanted = [(cells[:, column] < low[j] + (k << 6)).sum() for k in range(17)]
        assert below[j].tolist() == wanted


# Noisy search


@pytest.mark.parametrize("bits", [1, 3, 10, 11, 24])
def test_without_noise_the_search_finds_the_cell(silence, bits):
    rng = np.random.default_rng(bits)
    cells = rng.integers(0, 2**bits, size=(101, 3))
    for fractions in ((0.5, 0.5, 0.5), (0.1, 0.9, 0.99)):
        for size in (101, None):
            found = noisy_search(at(cells), bits, Targets(fractions, size=size), token(1.0))
            for j, q in enumerate(fractions):
                assert (cells[:, j] < found[j]).sum() < q * 101 + 1e-3
                assert (cells[:, j] <= found[j]).sum() >= q * 101 - 1e-3


def test_the_noise_of_all_rounds_together_is_what_the_event_says(silence):
    z, bits = 3.3, 13
    targets = Targets((0.5, 0.2, 0.7), size=20)
    run, paid = run_for(Gaussian(z))
    noisy_search(at(np.zeros((20, 3))), bits, targets, paid)
    run.close()
    assert [count for _, count in silence] == [3] * bits
    # In each round one row contributes √3 votes; μ² of the rounds add up.
    square = sum(3 / (accounted_sigma(sigma) / VOTE) ** 2 for sigma, _ in silence)
    assert square <= 1 / z**2
    assert square == pytest.approx(1 / z**2, rel=1e-9)
    assert event("gaussian", z) == Gaussian(z)


def test_the_noise_of_votes_is_normal_with_the_stated_scale():
    m, z, norm = 50_000, 2.5, math.sqrt(50_000)
    votes = BoundedSum(np.full(m, 7 * VOTE), 1 / VOTE, norm, norm, "votes")
    noisy = token(z).multiples(votes) / VOTE
    error = (noisy - 7) / (z * norm)
    assert error.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * m))
    assert kstest(error, "norm").pvalue > 0.01


def rank_errors(find, cells, q, size, runs):
    n = len(cells)
    found = np.array([int(find(i)[0]) for i in range(runs)])
    lower, upper = (np.array([(cells < c + k).sum() for c in found]) for k in (0, 1))
    return np.maximum(np.maximum(lower - q * n, q * n - upper), 0)


@pytest.mark.parametrize("size", [2000, None], ids=["public n", "private n"])
@pytest.mark.parametrize("q", [0.5, 0.97])
@pytest.mark.parametrize("method", quantile.METHODS)
def test_errors_in_rank_are_as_promised(method, q, size):
    grid, z = Floats(4, 10, 1e6), 8.0
    values = np.exp(np.random.default_rng(0).normal(size=2000))
    cells, targets = grid.cells(values)[:, None], Targets((q,), size=size)

    def find(i):
        return search(at(cells), 10, targets, token(event(method, z), i))

    errors = rank_errors(find, cells, q, size, 60)
    share = 0.5 if size else max(q, 1 - q)
    if method == "gaussian":
        deviation = z * math.sqrt(10) * share
        assert targets.rank_deviation(10, z)[0] == pytest.approx(deviation, rel=1e-6)
        limit = 5 * deviation
    else:
        limit = BETA * z * share * (10 * math.log(2) + 14)
    assert errors.max() <= limit
    assert errors.max() > 0


@pytest.mark.parametrize("method", quantile.METHODS)
def test_with_a_margin_the_search_does_not_end_in_empty_space(method):
    """All rows in one cell far from the ends: what lies above is empty."""
    n, z, bits = 4000, 20.0, 10
    cells = np.full((n, 1), 300)
    spare = margin(event(method, z), bits, Targets((1.0,), size=n))
    assert spare < n / 8
    targets = Targets((1 - spare / n,), size=n)
    found = {
        int(search(at(cells), bits, targets, token(event(method, z), i))[0]) for i in range(200)
    }
    assert found == {300}


def test_margins_are_the_rows_that_docstrings_name():
    for counted, factor in ((10**6, 1.0), (None, 2.0)):
        one = Targets((1.0,), size=counted)
        assert margin(event("gaussian", 1.0), 10, one) == pytest.approx(7.115 * factor, rel=1e-3)
        assert margin(event("exponential", 1.0), 10, one) == pytest.approx(10.79 * factor, rel=1e-3)
    both = Targets((0.0,) * 9 + (1.0,) * 9, tuple(range(9)) * 2, 10**6)
    assert margin(event("gaussian", 1.0), 15, both) == pytest.approx(12.32 * 3, rel=1e-3)
    assert margin(event("exponential", 1.0), 15, both) == pytest.approx(25.4 * 9, rel=2e-3)


# Selection


def cell_chances(cells, bits, targets, beta, j=0):
    """The probability of every single cell, as integers that need no rounding."""
    first, weights, gaps = quantile.utilities(np.asarray(cells), bits, targets, j)
    found = masses([-g for g in gaps], beta * len(targets.fractions) * VOTE, weights)
    single = []
    for count, mass in zip(weights, found, strict=True):
        single += [mass // count] * count
    assert len(single) == 2**bits and first[0] == 0
    return single


def plain_utility(cells, cell, q, size):
    """From the definition: votes beyond the goal at the lower edge, or short of it at the upper."""
    if size is None:
        m = max(q, 1 - q)
        up, down, goal = (1 - q) / m, q / m, 0.0
    else:
        up, down, goal = 1.0, 1.0, (2 * q - 1) * size
    votes = [up * (cells < e).sum() - down * (cells >= e).sum() for e in (cell, cell + 1)]
    return -max(0.0, votes[0] - goal, goal - votes[1])


@pytest.mark.parametrize("size", [20, None])
def test_utilities_are_those_of_the_definition(size):
    rng = np.random.default_rng(5)
    for q in (0.0, 0.3, 0.5, 1.0):
        cells = rng.integers(0, 32, size=(20, 1))
        targets = Targets((q,), size=size)
        first, weights, gaps = quantile.utilities(cells, 5, targets, 0)
        assert sum(weights) == 32
        for start, count, gap in zip(first, weights, gaps, strict=True):
            for cell in range(start, start + count):
                assert -gap / VOTE == pytest.approx(plain_utility(cells, cell, q, size), abs=1e-5)


@pytest.mark.parametrize("size", [25, None], ids=["public n", "private n"])
@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_selections_of_neighbours_are_as_likely_as_counted(neighbors, size):
    """Exact probabilities of all cells, for any table and any other row."""
    unit, rng, worst = NEIGHBORS[neighbors], np.random.default_rng(6), 0.0
    for _ in range(150):
        q, beta = float(rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])), float(rng.uniform(1, 20))
        targets = Targets((q,), size=size)
        cells = rng.integers(0, 64, size=(25, 1)) // rng.integers(1, 9)
        other = cells[1:]
        if neighbors == "replace_one":
            other = np.vstack([rng.integers(0, 64, size=(1, 1)), other])
        p, q_ = (cell_chances(c, 6, targets, beta) for c in (cells, other))
        limit = (Decimal(2 * unit) / Decimal(beta)).exp() * (1 + Decimal(10) ** -20)
        for a, b in zip(p, q_, strict=True):
            ratio = Decimal(a) * sum(q_) / (Decimal(b) * sum(p))
            assert 1 / limit <= ratio <= limit
            worst = max(worst, abs(float(ratio.ln())) * beta / (2 * unit))
    assert worst > 0.7


def test_cells_are_chosen_with_the_stated_probabilities():
    cells = np.array([3, 3, 4, 9, 9, 9, 12, 15])[:, None]
    targets, beta = Targets((0.6,), size=8), 3.0
    wanted = np.array([float(Fraction(m, 2**320)) for m in cell_chances(cells, 4, targets, beta)])
    one = token(Selection(beta, count=3000))
    drawn = [int(exponential_search(at(cells), 4, targets, one)[0]) for _ in range(3000)]
    counts = np.bincount(drawn, minlength=16)
    assert chisquare(counts, wanted / wanted.sum() * 3000).pvalue > 1e-3


def test_several_targets_are_chosen_with_the_noise_of_all_of_them(monkeypatch):
    used = []
    real = quantile.masses

    def spy(utilities, beta, weights):
        used.append(beta / VOTE)
        return real(utilities, beta, weights)

    monkeypatch.setattr(quantile, "masses", spy)
    exponential_search(at(np.zeros((9, 3))), 4, Targets((0.5,) * 3, size=9), token(Selection(2.0)))
    assert all(6.0 <= beta <= 6.0 * (1 + 1e-12) for beta in used) and len(used) == 3


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize("z", [0.5, 3.0, 40.0])
def test_both_methods_cost_the_same(z, neighbors):
    made = event("exponential", z)
    assert isinstance(made, Selection)
    assert total_mu([made], neighbors) <= total_mu([event("gaussian", z)], neighbors) * (1 + 1e-12)


def test_no_rows_are_rows_too():
    none = np.zeros((0, 1), dtype=np.int64)
    for method in quantile.METHODS:
        found = search(lambda: [none], 8, Targets((0.5,)), token(event(method, 2.0)))
        assert 0 <= found[0] < 256
