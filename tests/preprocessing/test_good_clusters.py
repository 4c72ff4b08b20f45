"""Good clusters and crowds: exact against brute force, and attacked with neighbouring data."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

import numpy as np
import pytest

from tacit.exceptions import InputError
from tacit.preprocessing import good_clusters as crowds
from tacit.preprocessing.good_clusters import crowd_limit, good_clusters


def squared(x, y):
    """Squared distances of all pairs, column by column."""
    return sum((x[:, None, j] - y[None, :, j]) ** 2 for j in range(x.shape[1])) + np.zeros(
        (len(x), len(y))
    )


def brute_clusters(points, radius):
    """The definition, by all pairs."""
    gap = squared(points, points)
    near, wide = gap <= radius**2, gap <= (3 * radius) ** 2
    centres = np.flatnonzero((near == wide).all(axis=1))
    label = np.full(len(points), -1)
    for c in centres[::-1]:  # the first one is written last
        label[near[c]] = c
    return label


def brute_crowd(points, radius, more=()):
    """Most rows in a ball of four radii around a row, a midpoint of two, or points given."""
    middles = (points[:, None] + points[None]).reshape(-1, points.shape[1]) / 2
    tries = np.concatenate([middles, *([more] if len(more) else [])])
    return int((squared(tries, points) <= (4 * radius) ** 2 * (1 + 1e-12)).sum(axis=1).max())


def messy(rng):
    """Rows in groups of all sizes around η = 1, with duplicates, in 1 to 5 dimensions."""
    d = int(rng.integers(1, 6))
    groups = int(rng.integers(1, 12))
    centres = rng.normal(size=(groups, d)) * rng.choice([1.0, 5.0, 20.0])
    n = int(rng.integers(2, 120))
    spread = rng.choice([0.0, 0.2, 0.5, 1.0, 2.0], size=(groups, 1))
    own = rng.integers(groups, size=n)
    rows = centres[own] + rng.uniform(-1, 1, size=(n, d)) * spread[own] / np.sqrt(d)
    return rows[rng.integers(n, size=n)] if rng.random() < 0.3 else rows


def lattice(rng):
    """Rows with integers: many distances are exactly η = 1 or 3η."""
    d = int(rng.integers(1, 6))
    n = int(rng.integers(1, 80))
    wide = int(rng.integers(2, 30))
    return rng.integers(-wide, wide + 1, size=(n, d)).astype(float)


# Good clusters


@pytest.mark.parametrize("make", [messy, lattice])
@pytest.mark.parametrize("block", [64, 2])  # small blocks: all of the tree, even with few rows
def test_clusters_are_those_of_the_definition(make, block, monkeypatch):
    monkeypatch.setattr(crowds, "BLOCK_ROWS", block)
    monkeypatch.setattr(crowds, "BATCH_ROWS", 8 * block)
    monkeypatch.setattr(crowds, "BATCH_PAIRS", 100 if block == 2 else 1 << 14)
    monkeypatch.setattr(crowds, "FIRST_TRIES", 2 if block == 2 else 16)
    kinds = set()
    for seed in range(300):
        rows = make(np.random.default_rng(seed))
        expected = brute_clusters(rows, 1.0)
        np.testing.assert_array_equal(good_clusters(rows, 1.0), expected, err_msg=f"seed {seed}")
        kinds |= {"none"} if (expected == -1).any() else set()
        kinds |= (
            {"crowd"} if (np.bincount(expected[expected >= 0], minlength=1) > 3).any() else kinds
        )
    assert kinds == {"none", "crowd"}


@pytest.mark.parametrize("d", [1, 2, 3, 20])
def test_clusters_of_more_rows(d):
    rng = np.random.default_rng(d)
    for radius in (0.003, 0.02, 0.1, 0.3):
        centres = rng.random((40, d))
        rows = centres[rng.integers(40, size=1500)]
        rows = rows + rng.normal(size=rows.shape) * rng.choice([0.1, 0.4, 1.0]) * radius / d**0.5
        np.testing.assert_array_equal(good_clusters(rows, radius), brute_clusters(rows, radius))


def test_ties_count_as_within():
    rows = np.array([[0.0], [1.0], [5.0], [7.0], [20.0], [23.0], [40.0], [43.5], [60.0], [61.0]])
    # within η: a cluster, either may be the centre; 2η and 3η apart: none; more than 3η: alone
    assert good_clusters(rows, 1.0).tolist() == [0, 0, -1, -1, -1, -1, 6, 7, 8, 8]


def test_only_the_middle_row_is_a_centre():
    rows = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    assert good_clusters(rows, 1.0).tolist() == [2, 2, 2, 2]


def test_one_row_no_row_equal_rows_and_no_columns():
    for radius in (0, 0.5):
        assert good_clusters(np.zeros((0, 3)), radius).tolist() == []
        assert good_clusters(np.ones((1, 3)), radius).tolist() == [0]
        assert good_clusters(np.ones((5, 3)), radius).tolist() == [0] * 5
        assert good_clusters(np.zeros((4, 0)), radius).tolist() == [0] * 4
        assert crowd_limit(np.zeros((0, 3)), radius) == 0
        assert crowd_limit(np.ones((1, 3)), radius) == 1
        assert crowd_limit(np.ones((5, 3)), radius) == 5
        assert crowd_limit(np.zeros((4, 0)), radius) == 4


def test_radius_zero_finds_equal_rows():
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -0.0], [1.0, 1e-300], [0.0, 1.0]])
    assert good_clusters(rows, 0).tolist() == [0, 1, 0, 3, 1]
    assert crowd_limit(rows, 0) == 2
    assert good_clusters(rows, 1e-100).tolist() == [0, 1, 0, 0, 1]


def test_equal_rows_are_found_without_luck(monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, size=(500, 3)).astype(float)
    expected = good_clusters(rows, 0)

    class Unlucky:
        def integers(self, *args, size, dtype, **kwargs):
            return np.full(size, (1 << 63) - 1, dtype)  # the same factor, -1, for every column

    found = []
    slow = crowds.sort_rows
    monkeypatch.setattr(crowds, "sort_rows", lambda points: found.append(1) or slow(points))
    monkeypatch.setattr(crowds.np.random, "default_rng", lambda seed: Unlucky())
    np.testing.assert_array_equal(good_clusters(rows, 0), expected)
    assert found
    np.testing.assert_array_equal(brute_clusters(rows, 0), expected)


def test_distances_are_symmetric_and_the_same_wherever_rows_stand():
    rng = np.random.default_rng(0)
    for d in (1, 3, 17, 130):
        x = rng.normal(size=(700, d))
        i, j = rng.integers(700, size=(2, 5000))
        all_at_once = crowds.squared_distances(x, i, x, j)
        np.testing.assert_array_equal(all_at_once, crowds.squared_distances(x, j, x, i))
        for k in range(0, 5000, 997):
            first = np.array([0])
            one = crowds.squared_distances(x[i[k]][None], first, x[j[k]][None], first)
            assert one[0] == all_at_once[k]


def test_decisions_at_the_last_bit_are_those_of_the_definition():
    """Pairs whose distance is η or 3η up to rounding, far from the origin."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        d = int(rng.integers(2, 9))
        radius = 10.0 ** rng.uniform(-7, -1)
        start = rng.normal(size=(150, d))
        way = rng.normal(size=(150, d))
        way *= (
            radius
            * rng.choice([1.0, 2.0, 3.0], size=(150, 1))
            / np.linalg.norm(way, axis=1)[:, None]
        )
        rows = np.concatenate([start, start + way])
        np.testing.assert_array_equal(good_clusters(rows, radius), brute_clusters(rows, radius))


def test_centres_follow_the_order_of_the_rows():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = messy(rng)
        label = good_clusters(rows, 1.0)
        order = rng.permutation(len(rows))
        again = good_clusters(rows[order], 1.0)
        np.testing.assert_array_equal(again, good_clusters(rows[order].copy(order="F"), 1.0))
        # the same clusters, whoever stands for them
        np.testing.assert_array_equal(again == -1, label[order] == -1)
        same = label[order][:, None] == label[order][None]
        np.testing.assert_array_equal(same, again[:, None] == again[None])
        centres = np.unique(label[label >= 0])
        np.testing.assert_array_equal(label[centres], centres)


def test_what_is_refused():
    rows = np.zeros((2, 2))
    for call in (good_clusters, crowd_limit):
        for radius in (-1.0, np.inf, np.nan, 1e-200):
            with pytest.raises(InputError, match="radius"):
                call(rows, radius)
        with pytest.raises(InputError, match="two dimensions"):
            call(np.zeros(3), 1.0)
        for bad in (np.nan, np.inf, 1e200):
            with pytest.raises(InputError, match="finite"):
                call(np.array([[bad, 0.0]]), 1.0)


# Neighbours: how many rows change, and how far they move


def changes(one, other, radius, row):
    """Rows but ``row`` that de-duplication keeps in one only; most a quantised row moves."""
    a, b = good_clusters(one, radius), good_clusters(other, radius)
    here = np.arange(len(one))
    common = here != row
    kept_a, kept_b = (a == -1) | (a == here), (b == -1) | (b == here)
    flips = int((kept_a != kept_b)[common].sum())
    to_a, to_b = one[np.where(a >= 0, a, here)], other[np.where(b >= 0, b, here)]
    moves = np.sqrt(((to_a - to_b) ** 2).sum(axis=1))[common]
    moved = int((moves > 0).sum())
    return flips, moved, float(moves.max(initial=0.0))


def check_neighbours(one, row, new, radius):
    other = one.copy()
    other[row] = new
    flips, moved, furthest = changes(one, other, radius, row)
    ball = max(
        int((squared(z[None], some) <= (4 * radius) ** 2 * (1 + 1e-9)).sum())
        for z, some in ((one[row], one), (other[row], other))
    )  # what the proof uses; the largest crowd is at least that
    assert flips <= 2 * (ball - 1)
    assert moved <= 2 * (ball - 1)
    assert furthest <= 2 * radius * (1 + 1e-9)
    return flips, moved, furthest, ball


@pytest.mark.parametrize("make", [messy, lattice])
def test_few_rows_change_and_not_far(make):
    most = furthest = 0.0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rows = make(rng)
        if len(rows) < 3:
            continue
        row = int(rng.integers(len(rows)))
        target = rows[rng.integers(len(rows))]
        way = rng.normal(size=rows.shape[1])
        way /= np.linalg.norm(way)
        new = target + way * rng.choice([0.0, 0.5, 1.0, 2.0, 2.9, 3.0, 4.0])
        flips, moved, far, ball = check_neighbours(rows, row, new, 1.0)
        most = max(most, (max(flips, moved)) / max(2 * (ball - 1), 1))
        furthest = max(furthest, far)
    assert most > 0.4
    assert furthest > 0.5


def test_a_row_moves_by_two_radii_and_no_more():
    rows = np.array([[-1.0], [0.0]])
    assert check_neighbours(rows, 0, np.array([1.0]), 1.0)[2] == 2.0
    for seed in range(200):  # a few rows close to that case, in one or two dimensions
        rng = np.random.default_rng(seed)
        rows = rng.uniform(-1.1, 1.1, size=(int(rng.integers(2, 5)), int(rng.integers(1, 3))))
        check_neighbours(rows, 0, rng.uniform(-3, 3, size=rows.shape[1]), 1.0)


def many_small_clusters(m):
    """One dimension, η = 1: clusters of m rows in reach of one row, but not of each other."""
    side = np.linspace(-0.5, 0.5, m - 1)
    blocks = [at + side for at in (-2.3, 2.3)]
    return np.concatenate([np.concatenate(blocks) + where for where in (0.0, 100.0)])[:, None]


def test_the_paper_counts_too_few():
    """Two clusters of m rows fall to one z, and two others to the z it replaces.

    Proposition 3 of the paper allows twice the largest good cluster.
    """
    m = 20
    rows = many_small_clusters(m)
    one, other = np.append(rows, [[0.0]], axis=0), np.append(rows, [[100.0]], axis=0)
    flips, moved, _, ball = check_neighbours(one, len(rows), other[-1], 1.0)
    sizes = max(
        np.bincount(label[label >= 0]).max()
        for label in (good_clusters(one, 1.0), good_clusters(other, 1.0))
    )
    paper, ours = 2 * sizes, 2 * (ball - 1)
    assert sizes <= m
    assert moved > 1.7 * paper
    assert flips > 1.7 * paper
    assert moved <= ours == 4 * (m - 1)
    assert crowd_limit(one, 1.0) >= ball


# The limit on crowds


def test_the_limit_is_at_least_every_crowd():
    for seed in range(150):
        rng = np.random.default_rng(seed)
        rows = (messy if seed % 2 else lattice)(rng)[:40]
        more = rows[rng.integers(len(rows), size=200)] + rng.normal(size=(200, rows.shape[1])) * 2
        assert crowd_limit(rows, 1.0) >= brute_crowd(rows, 1.0, more)


@pytest.mark.parametrize("d", [1, 2, 5, 9, 15, 40])
def test_the_limit_holds_for_balls_filled_to_the_brim(d):
    """All rows on the surface of one ball, wherever the grid has its lines."""
    rng = np.random.default_rng(d)
    for radius in (0.001, 0.1, 7.0):
        for _ in range(40):
            way = rng.normal(size=(30, d))
            way /= np.linalg.norm(way, axis=1, keepdims=True)
            middle = rng.normal(size=d) * rng.choice([0.0, 1.0, 100.0])
            rows = np.concatenate([middle + 4 * radius * way, middle - 4 * radius * way])
            assert crowd_limit(rows, radius) == 60


def test_the_limit_is_exact_in_one_dimension():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.random(200))
        radius = 10.0 ** rng.uniform(-4, -2)
        most = max(int(((x >= a) & (x <= a + 8 * radius)).sum()) for a in x)
        wider = max(int(((x >= a) & (x <= a + 8.04 * radius)).sum()) for a in x)
        assert most <= crowd_limit(x[:, None], radius) <= wider


def test_the_limit_is_not_far_off():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(300, 10))
    rows = np.repeat(centres, rng.integers(1, 12, size=300), axis=0)
    rows += rng.normal(size=rows.shape) * 1e-4
    assert crowd_limit(rows, 0.001) == 11
    assert crowd_limit(rng.random((2000, 3)), 1e-4) <= 2


@pytest.mark.parametrize("d", [1, 2, 4, 8, 20])
def test_one_row_changes_the_limit_by_at_most_one(d):
    for seed in range(60):
        rng = np.random.default_rng(1000 * d + seed)
        n = int(rng.integers(2, 60))
        radius = rng.choice([0, 1e-13, 0.01, 0.05, 0.3])
        rows = rng.integers(0, 4, size=(n, d)) * rng.choice([8.0, 4.0, 0.5]) * max(radius, 0.1)
        rows += rng.normal(size=(n, d)) * radius * rng.choice([0.0, 0.5, 3.0])
        before = crowd_limit(rows, radius)
        for _ in range(6):
            other = rows.copy()
            at = rng.integers(n)
            near = rows[rng.integers(n)]
            other[at] = rng.choice([0.0, 1.0, 1e6]) * near + rng.normal(
                size=d
            ) * radius * rng.choice([0.0, 1.0, 8.0])
            assert abs(crowd_limit(other, radius) - before) <= 1
            assert 0 <= before - crowd_limit(np.delete(rows, at, axis=0), radius) <= 1


def test_a_greedy_attack_cannot_move_the_limit_faster():
    """Take rows out of the fullest cell one by one: every step is at most one."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(40, 3)) * 0.1, rng.normal(size=(60, 3))])
    limit = crowd_limit(rows, 0.05)
    while len(rows) > 1:
        options = [crowd_limit(np.delete(rows, at, axis=0), 0.05) for at in range(0, len(rows), 7)]
        assert all(limit - 1 <= option <= limit for option in options)
        worst = int(np.argmin(options)) * 7
        rows, limit = np.delete(rows, worst, axis=0), min(options)
    assert limit == 1


def test_the_limit_is_the_same_in_any_order():
    rng = np.random.default_rng(0)
    for d in (1, 3, 30):
        rows = rng.normal(size=(400, d)) * 0.2
        rows = rows[rng.integers(400, size=700)]
        for radius in (0, 0.01, 0.1):
            limit = crowd_limit(rows, radius)
            assert limit == crowd_limit(rows, radius)
            assert limit == crowd_limit(rows[rng.permutation(700)], radius)
            assert limit == crowd_limit(np.asfortranarray(rows), radius)


def test_the_limit_is_the_fullest_cell(monkeypatch):
    """All cells by brute force, and the same in small batches."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(150, 3)) * rng.choice([0.05, 0.2, 1.0])
        rows = rows[rng.integers(150, size=150)]
        bins = 2 + seed % 3
        monkeypatch.setattr(crowds, "grid_of", lambda d, bins=bins: (np.eye(d), bins))
        monkeypatch.setattr(crowds, "BATCH_MEMBERS", [1 << 20, 20][seed // 6])
        width = 0.16 * (1 + crowds.SLACK)
        grid = np.floor(rows[:, :2] / (width / (bins - 1)))
        best = 0
        for low in np.unique(grid, axis=0):
            for shift in itertools.product(range(bins), repeat=2):
                ahead = grid - (low - shift)
                line = np.sort(rows[((ahead >= 0) & (ahead < bins)).all(axis=1), 2])
                until = np.searchsorted(line, line + width, "right")
                best = max(best, int((until - np.arange(len(line))).max()))
        assert crowd_limit(rows, 0.02) == best


def test_the_unit_vectors_are_unit_vectors():
    for d in (1, 2, 6, 7, 12, 13, 300):
        vectors, _ = crowds.grid_of(d)
        for vector in vectors:
            length = sum(Fraction(float(v)) ** 2 for v in vector)
            assert abs(float(length) - 1) < 1e-13
        np.testing.assert_array_equal(vectors, crowds.grid_of(d)[0])


# Scale


def test_twenty_thousand_rows_take_a_moment():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4000, 3)) @ rng.normal(size=(3, 30)) / 10
    rows = centres[rng.integers(4000, size=20_000)] + rng.normal(size=(20_000, 30)) * 1e-4
    start = time.process_time()
    label = good_clusters(rows, 0.002)
    limit = crowd_limit(rows, 0.002)
    assert time.process_time() - start < 2
    assert 3000 < len(np.unique(label)) <= 4001
    assert limit >= np.bincount(label[label >= 0]).max()


@pytest.mark.parametrize(
    "crowd",
    [
        pytest.param(lambda ball: 0.5 * ball, id="as wide as can be"),
        pytest.param(lambda ball: np.vstack([0.5 * ball, [[2.9, 0, 0, 0, 0]]]), id="one outsider"),
        pytest.param(lambda ball: 0.55 * ball, id="a little too wide"),
        pytest.param(lambda ball: ball, id="too wide"),
        pytest.param(lambda ball: 8 * ball, id="far too wide"),
    ],
)
def test_one_crowd_of_many_different_rows_is_no_trouble(crowd):
    rng = np.random.default_rng(0)
    ball = rng.normal(size=(20_000, 5))
    ball *= rng.random((20_000, 1)) ** 0.2 / np.linalg.norm(ball, axis=1, keepdims=True)
    rows = crowd(ball)
    start = time.process_time()
    label = good_clusters(rows, 1.0)
    assert time.process_time() - start < 4
    assert len(np.unique(label)) <= 2
