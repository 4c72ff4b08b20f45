"""Data sets on which formulas of Hu, Sanyal & Schölkopf (2024) fail, and Tacit's rules hold.

Each test builds two tables that differ in one row, preprocesses both, and measures.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import trapezoid
from sklearn.decomposition import PCA

from tacit.privacy.sensitivity import drift as rules
from tacit.privacy.sensitivity.drift import Drift
from tacit.research.price.claims import preprocessor, table2
from tacit.research.price.price import price
from tacit.research.price.smooth import GaussianMechanism, GradientDescent, SampledSGD, subsample

UNIT = Drift(1.0)


def neighbours(common, z1, z2):
    """The two tables; the row in which they differ is the last."""
    return (np.vstack([common, np.atleast_2d(z)]) for z in (z1, z2))


def moves(first, second):
    """How far each common row moves."""
    return np.linalg.norm(first[:-1] - second[:-1], axis=1)


# --- imputation ------------------------------------------------------------------------------


def filled(rows, statistic):
    return np.where(np.isnan(rows), statistic(rows, axis=0), rows)


def test_mean_imputation_moves_farther_where_gaps_lie_in_different_columns():
    n, h, gap = 1000, math.sqrt(0.5), math.nan
    common = np.vstack([np.tile([0, -h, -h], (n - 2, 1)), [gap] * 3])
    tables = list(neighbours(common, [h, h, gap], [-h, gap, h]))
    for table in tables:
        assert np.sqrt(np.nansum(table**2, axis=1)).max() <= 1 + 1e-12
        assert np.isnan(table).sum() == 4
    found = moves(*(filled(table, np.nanmean) for table in tables)).max()
    claim = preprocessor("mean", n=n, missing=4)
    assert round(found, 6) == 0.002452
    assert round(claim.linf, 6) == 0.002008
    assert found > claim.linf and not claim.sound
    assert found <= rules.impute_mean(UNIT, n, gaps=1).linf


def test_a_median_moves_a_row_with_gaps_in_sixteen_columns_four_times_as_far():
    d, n = 16, 9
    low, high = -0.25, 0.25
    common = np.vstack([np.full((4, d), low), np.full((3, d), high), np.full((1, d), math.nan)])
    tables = list(neighbours(common, np.full(d, low), np.full(d, high)))
    medians = [np.nanmedian(table, axis=0) for table in tables]
    claim = preprocessor("median", missing=d, high=medians[1].max(), low=medians[0].min())
    found = moves(*(filled(table, np.nanmedian) for table in tables)).max()
    assert len(tables[0]) == n
    assert found == pytest.approx(4 * claim.linf)
    assert not claim.sound


def test_the_trimmed_mean_of_table_3_is_negative():
    values = np.linspace(-1, 1, 101)  # sorted upwards: x(m) of the few, x(n−m) of the many
    claim = preprocessor("trimmed-mean", n=101, missing=1, trim=5, high=values[5], low=values[96])
    assert claim.linf < 0 and not claim.sound


# --- principal components --------------------------------------------------------------------


def test_pca_coordinates_turn_their_sign():
    n = 200
    along, across = np.array([1, -1]) / math.sqrt(2), np.array([1, 1]) / math.sqrt(2)
    signs = np.where(np.arange(n - 1) % 2, 1.0, -1.0)
    common = 0.9 * signs[:, None] * along
    tables = list(neighbours(common, 0.7 * (along + across), 0.7 * (along - across)))
    spectra = [np.linalg.eigvalsh(np.cov(table.T)) for table in tables]
    gap = min(values[-1] - values[-2] for values in spectra)
    first, second = (PCA(1, svd_solver="full").fit(table).components_[0] for table in tables)
    claim = preprocessor("pca-dim", n=n, gap=gap)
    assert round(gap, 2) == 0.81
    assert round(claim.linf, 3) == 0.149
    assert round(float(np.linalg.norm(first - second)), 3) == 2.0
    assert not claim.sound
    # The projection, which has no sign, moves as little as promised.
    turn = np.linalg.norm(np.outer(first, first) - np.outer(second, second), 2)
    assert turn <= preprocessor("pca-rank", n=n, gap=gap).linf


def test_the_rule_for_projections_is_attained():
    n = 50
    common = np.vstack([np.tile([0.9, 0.0], (30, 1)), np.tile([0.0, 0.9], (19, 1))])
    h = math.sqrt(0.5)
    projectors, gaps = [], []
    for table in neighbours(common, [h, h], [h, -h]):
        values, vectors = np.linalg.eigh(table.T @ table / n)
        gaps.append(values[1] - values[0])
        projectors.append(np.outer(vectors[:, 1], vectors[:, 1]))
    turn = np.linalg.norm(projectors[0] - projectors[1], 2)
    assert turn == pytest.approx(rules.pca(UNIT, n, min(gaps)).linf)
    assert turn < preprocessor("pca-rank", n=n, gap=min(gaps)).linf / 11


# --- scaling ---------------------------------------------------------------------------------


def standard(rows):
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def test_standard_scaling_moves_a_row_twice_as_far_as_claimed():
    n, few = 10_000, 30
    common = np.concatenate([np.ones(few), -np.ones(n - few - 1)])[:, None]
    tables = list(neighbours(common, -1.0, 1.0))
    sigma = min(table.std() for table in tables)
    found = moves(*map(standard, tables))
    claim = preprocessor("scale", n=n, deviation=sigma)
    assert round(sigma, 3) == 0.109
    assert round(found.max(), 3) == 0.297
    assert round(claim.linf, 3) == 0.155
    assert not claim.sound
    # ... yet the product with n does bound the sum, and so does Tacit's rule.
    assert found.sum() <= rules.scale_by_floor(UNIT, n, sigma**2, 1.0).l1 < claim.l1
    # Without clipping, the replaced row itself moves out of any bounds.
    assert abs(standard(tables[1])[-1] - standard(tables[0])[-1])[0] > 17


def test_table_2_forgets_a_square_for_standard_scaling():
    n, sigma = 10**6, 0.05
    half = (n - 1) // 2
    common = np.concatenate([np.full(half, -1.0), np.full(n - 1 - half, -1 + 2 * sigma)])[:, None]
    tables = list(neighbours(common, -1 + sigma, 1.0))
    assert min(table.std() for table in tables) == pytest.approx(sigma, rel=1e-6)
    first, second = (np.clip(standard(table), -1, 1)[:, 0] for table in tables)  # clipped again
    # f = ½Σ±xᵢ has global sensitivity 1 and is ½-Lipschitz, the Gaussian mechanism of Table 2.
    signs = np.sign(first - second)
    found = (0.5 * (signs @ first - signs @ second)) ** 2 / 2  # of αε², by Lemma C
    claim = table2("gaussian", "scale", n=n, deviation=sigma, alpha=11.0, epsilon=1.0)
    assert round(found) == 72_178
    assert round(claim.epsilon / 11) == 33_601
    assert not claim.sound
    assert found <= (0.5 * rules.scale_by_floor(UNIT, n, sigma**2, 1.0).l1 + 1) ** 2 / 2


@pytest.mark.parametrize("n", [101, 1001, 10_001])
def test_min_max_scaling_moves_half_of_all_rows_whatever_their_number(n):
    common = np.tile([[0.0], [0.01]], ((n - 1) // 2, 1))
    first, second = (
        (table - table.min()) / (table.max() - table.min())
        for table in neighbours(common, 0.0, 1.0)
    )
    found = moves(first, second)
    assert found.max() == pytest.approx(0.99)
    assert found.sum() == pytest.approx(0.495 * (n - 1))
    assert preprocessor("min-max", n=n).linf == math.inf


# --- near-duplicates -------------------------------------------------------------------------


def good_clusters(rows, eta):
    """Every centre, by index, with the rows of its good cluster: B(x, η) = B(x, 3η)."""
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    return {
        i: np.flatnonzero(apart[i] <= eta)
        for i in range(len(rows))
        if (apart[i] <= eta).sum() == (apart[i] <= 3 * eta).sum()
    }


def survivors(rows, eta):
    kept = np.ones(len(rows), dtype=bool)
    taken = np.zeros(len(rows), dtype=bool)
    for centre, members in good_clusters(rows, eta).items():
        if not taken[members].any():
            taken[members] = True
            kept[members] = members == centre
    return kept


def quantized(rows, eta):
    moved = rows.copy()
    taken = np.zeros(len(rows), dtype=bool)
    for centre, members in good_clusters(rows, eta).items():
        if not taken[members].any():
            taken[members] = True
            moved[members] = rows[centre]
    return moved


GOLDEN = (1 + math.sqrt(5)) / 2
AROUND = {  # centres more than 3η from each other and at most 3η from the origin, in η
    1: np.array([[-2.0], [2.0]]),
    2: 2.8 * np.array([[math.cos(t), math.sin(t)] for t in 2 * math.pi * np.arange(5) / 5]),
    3: 2.95
    / math.hypot(1, GOLDEN)
    * np.array(
        [np.roll([0.0, s, t * GOLDEN], turn) for turn in range(3) for s in (-1, 1) for t in (-1, 1)]
    ),
}


@pytest.mark.parametrize(("d", "size", "changes"), [(1, 20, 76), (2, 10, 90), (3, 5, 96)])
def test_one_row_breaks_every_good_cluster_around_it(d, size, changes):
    eta = 0.01
    rng = np.random.default_rng(d)
    spots = np.zeros((2, d))
    spots[1, 0] = 0.5  # far from the first
    rows = [
        spot + eta * (centre + rng.uniform(-1e-4, 1e-4, d))
        for spot in spots
        for centre in AROUND[d]
        for _ in range(size)
    ]
    first, second = neighbours(np.array(rows), *spots)
    kept = [survivors(table, eta)[:-1] for table in (first, second)]
    largest = max(len(found) for t in (first, second) for found in good_clusters(t, eta).values())
    claim = preprocessor("dedup", cluster=largest)
    found = int((kept[0] != kept[1]).sum())
    assert (largest, claim.l0, found) == (size, 2 * size, changes)
    assert not claim.sound
    apart = np.linalg.norm(first[:, None] - first[None], axis=2)
    crowd = int((apart <= 4 * eta).sum(axis=1).max())  # at least; the ball may lie anywhere
    assert found <= rules.deduplicate(UNIT, len(first), crowd).l0


def test_quantised_rows_move_between_the_two_replaced_rows():
    eta, apart = 0.01, 1.73
    height = eta * math.sqrt(1 - (apart / 2) ** 2) * (1 - 1e-9)
    common = np.array([[0.0, height], [0.0, -height], [0.5, 0.0], [0.8, 0.0]])
    z = np.array([apart * eta / 2, 0.0])
    tables = list(neighbours(common, -z, z))
    for table in tables:
        assert [i for i, rows in good_clusters(table, eta).items() if len(rows) > 1] == [4]
    found = moves(*(quantized(table, eta) for table in tables)).max()
    claim = preprocessor("quantize", radius=eta, cluster=3)
    assert found == pytest.approx(1.73 * eta)
    assert found > claim.linf and not claim.sound
    assert found <= rules.quantize(UNIT, 5, eta, 3).linf


# --- mechanisms ------------------------------------------------------------------------------


def test_theorem_13_as_stated_is_a_quarter_of_the_divergence():
    n, steps, epsilon, alpha = 50, 7, 0.3, 5.0
    noise = math.sqrt(steps) / (epsilon * n)  # L = 1
    true = steps * alpha * (2 / n / noise) ** 2 / 2  # gradients of norm 1 that point oppositely
    assert true == pytest.approx(4 * alpha * epsilon**2 / 2)
    assert GradientDescent(epsilon).rdp(alpha) == pytest.approx(true)


@pytest.mark.parametrize("alpha", [2.0, 4.0])
def test_sampled_sgd_diverges_more_than_table_1_says(alpha):
    n, epsilon = 1000, 1.0
    mechanism = SampledSGD(epsilon, n=n, steps=n**2)
    noise = 1.0  # σ = L√T/(εn) with L = 1
    x = np.linspace(-12, 13, 200_001)

    def density(shift):
        replaced = np.exp(-((x - shift) ** 2) / (2 * noise**2))
        return ((1 - 1 / n) * np.exp(-(x**2) / (2 * noise**2)) + replaced / n) / (
            noise * math.sqrt(2 * math.pi)
        )

    p, q = density(1.0), density(-1.0)
    w = p / q - 1
    excess = trapezoid(q * (np.expm1(alpha * np.log1p(w)) - alpha * w), x)
    found = n**2 * math.log1p(excess) / (alpha - 1)
    assert alpha <= mechanism.largest_order(0.0)
    assert found > 1.15 * mechanism.rdp(alpha)
    assert not mechanism.sound


def test_rows_drawn_twice_lie_farther_apart_than_lemma_3_allows():
    tau, n = 1.0, 10
    first, second = np.zeros(n), np.zeros(n)
    second[0] = tau
    drawn = np.array([0, 0])  # with probability 1/n²
    assert np.abs(first[drawn] - second[drawn]).sum() == 2 * tau
    assert not subsample(GaussianMechanism(0.1), 4.0, tau, n=n, batch=2).sound


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["pca-dim", "min-max"])
def test_what_has_no_price_is_refused(stage):
    with pytest.raises(ValueError, match=r"is refused: .* no price.* Use '?p"):
        price(stage, n=100, delta=1e-5, base_epsilon=1.0)
