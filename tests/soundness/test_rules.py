"""No neighbours drift farther than a stage claims, and some come close.

Every stage runs as it is, on both copies; conditions are those that both copies satisfy. The
search starts from random tables and from the cases of equality of the proofs (docs/drift.md).
"""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from tests.seam import paid
from tests.soundness import attack

from tacit.data.rows import as_rows
from tacit.mechanisms.additive import BITS, lattice_drift, lattice_sum
from tacit.mechanisms.lattice import sigma_for
from tacit.mechanisms.random_streams import Key, Stream
from tacit.plan.propagate import propagate_bounds
from tacit.preprocessing import (
    ClipNorm,
    NoiselessImpute,
    NoiselessPCA,
    NoiselessScale,
    PrivateCenter,
    SoftPCA,
)
from tacit.privacy.sensitivity import drift as rules
from tacit.privacy.sensitivity.drift import Drift

LEVER = [2]  # the column with gaps, where a regression fills them


@pytest.fixture
def rng():
    return np.random.default_rng(20)


#: By rule of drift.py: its stage, and what random tables look like.
STAGES = {
    "lipschitz": ([attack.clip(0.5)], {}),
    "center": ([attack.always(attack.Center())], {}),
    "impute_mean": ([attack.impute("mean")], {"gaps": 0.3}),
    "impute_shrunk_mean": ([attack.shrunk_mean(8.0)], {"gaps": 0.7}),
    "impute_shrunk_mean, few gaps": (
        [attack.impute("shrunk-mean", strength=8.0)],
        {"gaps": 0.3},
    ),
    "impute_trimmed_mean": ([attack.impute("trimmed-mean")], {"gaps": 0.3}),
    "impute_median": ([attack.impute("median")], {"gaps": 0.3}),
    "impute_ridge": (
        [attack.impute("ridge", columns=[1], strength=0.05)],
        {"gaps": 0.3, "columns": [1]},
    ),
    "impute_regression": (
        [attack.impute("regression", columns=[0])],
        {"gaps": 0.3, "columns": [0]},
    ),
    "pca": ([attack.pca(1)], {}),
    "pca, centred": ([attack.pca(1, centered=True)], {}),
    "soft_pca": ([attack.soft_pca(0.05)], {}),
    "scale": ([attack.scale(0.1, centered=False)], {}),
    "scale, clipped": ([attack.scale(0.1, centered=False, radius=1.0)], {}),
    "scale_centered": ([attack.scale(0.1)], {}),
    "scale_centered, clipped": ([attack.scale(0.1, radius=1.0)], {}),
    "scale_by_floor": ([attack.floor_scale()], {}),
    "scale_by_floor, clipped": ([attack.floor_scale(1.0)], {}),
}

#: By rule: a case of equality or nearly so, without drift, and what its total must reach.
TIGHT = {
    "center": ([attack.always(attack.Center())], attack.opposite(), 0.99),
    "impute_mean": ([attack.impute("mean")], attack.mean_against_patterns(), 0.95),
    "impute_shrunk_mean": ([attack.shrunk_mean(300.0)], attack.lonely_column(300), 0.9),
    "impute_trimmed_mean": ([attack.impute("trimmed-mean")], attack.trimmed_jump(), 0.95),
    "impute_median": ([attack.impute("median")], attack.median_jump(), 0.99),
    "impute_ridge": (
        [attack.impute("ridge", columns=LEVER, strength=0.05)],
        attack.ridge_lever(0.05),
        0.9,
    ),
    "impute_regression": (
        [attack.impute("regression", columns=LEVER)],
        attack.regression_lever(0.05),
        0.5,
    ),
    "pca": ([attack.pca(1)], attack.turned(), 0.999),
    "pca, centred": ([attack.pca(1, centered=True)], attack.turned_about_the_mean(), 0.5),
    "soft_pca": ([attack.soft_pca(0.05)], attack.soft_pca_swap(0.05), 0.95),
    "scale": ([attack.scale(0.1, centered=False)], attack.second_moment_swap(0.1), 0.95),
    "scale_centered": ([attack.scale(0.1)], attack.variance_swap(0.04), 0.5),
    "scale_by_floor": ([attack.floor_scale()], attack.variance_swap(0.01, n=2000), 0.7),
}

#: The same where drift that came in is what counts.
TIGHT_WITH_DRIFT = {
    "center": ([attack.always(attack.Center())], attack.stretched(0.5), 0.95),
    "scale": ([attack.scale(0.1, centered=False)], attack.stretched(0.1), 0.8),
    "scale_centered": ([attack.scale(0.1)], attack.stretched(0.1), 0.8),
    "impute_mean": ([attack.impute("mean")], attack.drifted_column(), 0.95),
    "impute_shrunk_mean": (
        [attack.impute("shrunk-mean", strength=30.0)],
        attack.drifted_column(),
        0.9,
    ),
    "soft_pca": ([attack.soft_pca(0.05)], attack.soft_pca_stretch(0.05), 0.9),
}


@pytest.mark.parametrize("name", STAGES)
def test_no_neighbours_drift_farther_than_claimed(name, rng):
    makers, tables = STAGES[name]
    if name != "lipschitz":  # which keeps rows together that are together
        attack.worst(makers, attack.random_pairs(rng, 40, **tables))


@pytest.mark.parametrize("by", attack.NUMBERS)
@pytest.mark.parametrize("name", [name for name in STAGES if name != "impute_median"])
def test_neither_do_rows_that_have_drifted_already(name, by, rng):
    makers, tables = STAGES[name]
    pairs = attack.random_pairs(rng, 25, drift=0.4, **tables)
    attack.worst(makers, pairs, by=by, rounds=40, drifts=True)


def test_rows_of_any_norm_bound_obey_the_rules(rng):
    """A unit is a choice: thousandths of the bound, or thousands."""
    for bound in (1e-3, 1e3):
        for makers in (
            [attack.soft_pca(0.05 * bound**2)],
            [attack.pca(1, centered=True)],
            [attack.scale(0.1 * bound**2)],
        ):
            pairs = attack.random_pairs(rng, 15, drift=0.3, bound=bound)
            attack.worst(makers, pairs, rounds=15, drifts=True)


@pytest.mark.parametrize("shape", [(2, 2), (4, 9)])
def test_tables_of_two_rows_or_wider_than_long_obey_the_rules(shape, rng):
    for name in ("soft_pca", "pca", "pca, centred", "scale_centered", "scale_by_floor", "center"):
        makers, _ = STAGES[name]
        for pair in attack.random_pairs(rng, 40, drift=0.3, shape=shape):
            attack.checked(makers, pair)


@pytest.mark.parametrize("name", TIGHT)
def test_some_neighbours_come_close_to_the_claim(name):
    makers, pair, least = TIGHT[name]
    assert attack.checked(makers, pair).ratio("l1") >= least


@pytest.mark.parametrize("name", TIGHT_WITH_DRIFT)
def test_some_drifted_rows_come_close_to_the_claim(name):
    makers, pair, least = TIGHT_WITH_DRIFT[name]
    assert attack.checked(makers, pair).ratio("l1") >= least


def test_climbing_from_a_hurtful_pair_stays_within_the_claim():
    """Near a case of equality a wrong constant would show first."""
    for name in ("pca", "soft_pca", "impute_ridge", "scale"):
        makers, pair, least = TIGHT[name]
        found = attack.worst(makers, [pair], rounds=30, climbs=1, drifts=True)
        assert found.ratio("l1") >= least


def shrunk(rule, by):
    """A rule that claims less."""

    def claims_less(*args, **more):
        claim = rule(*args, **more)
        return replace(claim, **{name: getattr(claim, name) * by for name in attack.NUMBERS})

    return claims_less


@pytest.mark.parametrize("name", TIGHT)
def test_the_attack_notices_a_claim_of_less_than_half(name, monkeypatch):
    makers, pair, _ = TIGHT[name]
    function = name.partition(",")[0]
    monkeypatch.setattr(rules, function, shrunk(getattr(rules, function), 0.45))
    with pytest.raises(attack.Broken):
        attack.checked(makers, pair)


@pytest.mark.parametrize("name", TIGHT_WITH_DRIFT)
def test_the_attack_notices_drift_that_is_passed_on_by_half(name, monkeypatch):
    makers, pair, _ = TIGHT_WITH_DRIFT[name]
    real = getattr(rules, name)

    def halves(rows, *args, **more):
        less = {number: getattr(rows, number) * 0.45 for number in attack.NUMBERS}
        return real(replace(rows, **less), *args, **more)

    monkeypatch.setattr(rules, name, halves)
    with pytest.raises(attack.Broken):
        attack.checked(makers, pair)


def test_the_attack_notices_a_clip_that_claims_to_bring_rows_together(rng, monkeypatch):
    monkeypatch.setattr(ClipNorm, "lipschitz", lambda self, d=None: 0.45)
    with pytest.raises(attack.Broken):
        attack.worst([attack.clip(0.9)], attack.random_pairs(rng, 20, drift=0.3), drifts=True)


def test_the_attack_notices_a_row_too_few(monkeypatch):
    makers, pair, _ = TIGHT["impute_median"]
    assert attack.checked(makers, pair).moved == 6
    real = rules.impute_median

    def one_less(*args):
        claim = real(*args)
        return replace(claim, l0=claim.l0 - 1)

    monkeypatch.setattr(rules, "impute_median", one_less)
    with pytest.raises(attack.Broken):
        attack.checked(makers, pair)


@pytest.mark.parametrize("name", ["pca", "soft_pca", "impute_mean", "scale"])
def test_the_search_alone_notices_a_claim_of_a_third(name, monkeypatch, rng):
    """Without being told where to look."""
    makers, tables = STAGES[name]
    monkeypatch.setattr(rules, name, shrunk(getattr(rules, name), 0.33))
    with pytest.raises(attack.Broken):
        attack.worst(makers, attack.random_pairs(rng, 60, **tables), rounds=150)


# The calculus itself


def test_numbers_are_tightened_to_what_the_rows_can_do(rng):
    """Whatever rows do, a drift that is stated for them holds after tightening too."""
    for pair in attack.random_pairs(rng, 200, drift=0.5):
        total, each, moved, energy = attack.moves(pair.first, pair.second)
        loose = rng.uniform(1, 3, size=4) ** rng.integers(0, 2, size=4)
        stated = Drift(1.0, total * loose[0], each * loose[1], moved, energy * loose[3])
        tolerance = 1 + 1e-12
        assert stated.l1 * tolerance >= total
        assert stated.linf * tolerance >= each
        assert stated.l2 * tolerance >= energy
        assert stated.l0 >= moved
        implied = Drift(1.0, total * loose[0], each * loose[1], moved)
        assert implied.l2 * tolerance >= energy


def test_rounding_moves_both_copies_of_every_moved_row(rng):
    for pair in attack.random_pairs(rng, 100, drift=0.3):
        slip = 10 ** rng.uniform(-8, -1)
        before = pair.drift()
        moved = (pair.first[1:] != pair.second[1:]).any(axis=1)
        off = [rng.normal(size=pair.first.shape) for _ in range(2)]
        off = [slip * o / np.linalg.norm(o, axis=1, keepdims=True) for o in off]
        off[1] = np.where(rng.random() < 0.5, -off[0], off[1])
        for o in off:
            o[1:][~moved] = 0.0
        total, each, count, energy = attack.moves(pair.first + off[0], pair.second + off[1])
        after = before.rounded(slip)
        tolerance = 1 + 1e-12
        assert total <= after.l1 * tolerance
        assert each <= after.linf * tolerance
        assert energy <= after.l2 * tolerance
        assert count <= after.l0
        assert np.linalg.norm(pair.first + off[0], axis=1)[1:].max() <= after.bound * tolerance


def test_any_map_of_single_rows_is_covered_by_the_rule_for_any_map(rng):
    for pair in attack.random_pairs(rng, 100, drift=0.3):
        total, each, count, energy = attack.moves(np.sign(pair.first), np.sign(pair.second))
        claim = pair.drift().row_wise(math.sqrt(pair.d))
        assert total <= claim.l1 and each <= claim.linf
        assert count <= claim.l0 and energy <= claim.l2 * (1 + 1e-12)


def test_statistics_of_drifted_rows_change_no_more_than_stated(rng):
    best = {"sum": 0.0, "second_moment": 0.0}
    for pair in attack.random_pairs(rng, 400, drift=0.3):
        drift, n = pair.drift(), pair.n
        moment = (pair.first.T @ pair.first - pair.second.T @ pair.second) / n
        change = {
            "sum": np.linalg.norm(pair.first.sum(axis=0) - pair.second.sum(axis=0)) / drift.sum,
            "second_moment": np.linalg.norm(moment) / drift.second_moment(n),
        }
        best = {name: max(best[name], change[name]) for name in best}
        above = pair.first[:, 0] > 0.1
        assert abs(int(above.sum()) - int((pair.second[:, 0] > 0.1).sum())) <= drift.count()
    assert 0.8 < best["sum"] <= 1 and 0.8 < best["second_moment"] <= 1


# Releases of drifted rows


def lifted(rows, bound):
    """As `NoiselessScale` releases them: (x, x²/R)."""
    return np.hstack([rows, rows * rows / bound])


def test_noisy_sums_of_drifted_rows_are_as_sensitive_as_counted(rng):
    """Mean and mean square together: 2·√2·R for the replaced row, √5 times the drift."""
    largest = 0.0
    for pair in attack.random_pairs(rng, 200, drift=0.5):
        tables = [lifted(table, 1.0) for table in (pair.first, pair.second)]
        d, bound = 2 * pair.d, math.sqrt(2) * (1 + 1e-12)
        assert max(np.linalg.norm(table, axis=1).max() for table in tables) <= bound
        drift = pair.drift().l1
        total, *_ = attack.moves(*tables)
        assert total <= math.sqrt(5) * drift * (1 + 1e-12)
        sums = [lattice_sum([table], d, bound) for table in tables]
        apart = np.linalg.norm((sums[0] - sums[1]).astype(float)) * 2.0**-BITS
        allowed = 2 + lattice_drift(math.sqrt(5) * drift, pair.n, d, bound) / bound
        assert apart <= allowed
        largest = max(largest, apart / allowed)
    assert largest > 0.5


def test_lifted_rows_do_move_five_to_the_half_times_as_far():
    first, second = np.array([[1.0]]), np.array([[1.0 - 1e-6]])
    apart = np.linalg.norm(lifted(first, 1.0) - lifted(second, 1.0))
    assert apart / 1e-6 == pytest.approx(math.sqrt(5), rel=1e-5)


#: What is released, the norm of a row's part, how much farther it moves than the row, its width.
RELEASES = [(NoiselessScale(0.1), math.sqrt(2), math.sqrt(5), 6), (PrivateCenter(), 1.0, 1.0, 3)]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release[0].name)
def test_the_noise_of_a_release_covers_the_drift(release, rng, monkeypatch):
    """Standard deviation z·(bound + drift/2) on the sum."""
    stage, bound, stretch, columns = release
    drawn = []
    real = Stream.discrete_gaussian

    def draw(self, sigma, count):
        drawn.append((sigma, count))
        return real(self, sigma, count)

    monkeypatch.setattr(Stream, "discrete_gaussian", draw)
    n, z = 200, 4.0
    rows = as_rows(attack.into_ball(rng.normal(size=(n, 3)), 1.0), bound=1.0)
    context = paid(n, Key.fresh(), z=z, drift=Drift(1.0, 3.0, 0.1, n - 1))
    if isinstance(stage, NoiselessScale):
        stage.release(rows, context)
    else:
        stage.fit(rows, context)
    drift = lattice_drift(stretch * 3.0, n, columns, bound)
    ((sigma, count),) = drawn
    assert count == columns
    assert sigma >= z * (1 + drift / (2 * bound)) * 2.0**BITS * (1 - 1e-11)
    assert sigma == pytest.approx(sigma_for(z * (1 + drift / (2 * bound)) * 2.0**BITS), rel=1e-9)


# Rows that are said not to move


def test_rows_without_gaps_stay_bit_for_bit(rng):
    """What counts as not moved is the same number, not nearly the same."""
    makers = [attack.clip(0.7), attack.impute("mean")]
    for pair in attack.random_pairs(rng, 60, gaps=0.3):
        result = attack.outcome(makers, pair)
        if result is not None:
            complete = ~np.isnan(pair.first[1:]).any(axis=1)
            assert (result.rows[0][1:][complete] == result.rows[1][1:][complete]).all()


def test_a_gap_in_one_sparse_row_leaves_the_others_bit_for_bit(rng):
    rows = rng.normal(size=(64, 40))
    copies = []
    for lacking in (False, True):
        given = rows.copy()
        given[0, 0] = np.nan if lacking else 1.0
        seen = ClipNorm(1.0).through(as_rows(sp.csr_array(given), gaps=True))
        stage = NoiselessImpute("mean", rows_with_gaps=1).fit(seen)
        copies.append(np.asarray(stage.through(seen).collect()))
    assert (copies[0][1:] == copies[1][1:]).all()


# Computed rows against ideal ones


def exactly(matrix):
    return mpmath.matrix(np.asarray(matrix).tolist())


def floats(matrix):
    return np.array(matrix.tolist(), dtype=float).reshape(matrix.rows, matrix.cols)


def ideal(stage, rows):
    """The rows out, to 50 digits."""
    n, d = rows.shape
    x = exactly(rows)
    if isinstance(stage, NoiselessImpute):  # the last column by ridge regression on the others
        complete = ~np.isnan(rows[:, -1])
        a, y = exactly(rows[complete, :-1]), exactly(rows[complete, -1:])
        gram = a.T * a + mpmath.mpf(stage.strength) * n * mpmath.eye(d - 1)
        guess = exactly(rows[:, :-1]) * (gram**-1 * (a.T * y))
        for i in np.flatnonzero(~complete).tolist():
            x[i, d - 1] = guess[i]
            length = mpmath.sqrt(mpmath.fsum(x[i, j] ** 2 for j in range(d)))
            for j in range(d):
                x[i, j] /= max(1, length)
        return floats(x)
    if isinstance(stage, NoiselessScale):
        for j in range(d):
            mean = mpmath.fsum(x[:, j]) / n
            variance = mpmath.fsum((v - mean) ** 2 for v in x[:, j]) / n
            scale = mpmath.sqrt(variance + mpmath.mpf(stage.strength))
            x[:, j] = (x[:, j] - mean * mpmath.ones(n, 1)) / scale
        return floats(x)
    moment = x.T * x / n
    if isinstance(stage, SoftPCA):
        return floats(x * (moment * (moment + mpmath.mpf(stage.strength) * mpmath.eye(d)) ** -1))
    _, vectors = mpmath.eigsy(moment)
    first = vectors[:, d - 1]
    return floats(x * first * first.T)


def hard_rows(stage, rng, n=150):
    """Rows on which the stage's arithmetic is worst conditioned, turned off the axes."""
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    if isinstance(stage, NoiselessPCA):
        rows = rng.normal(size=(n, 3))
        white = rows @ np.linalg.inv(np.linalg.cholesky(rows.T @ rows / n)).T
        rows = white * np.sqrt([0.1, 0.1 - 2 * stage.gap, 0.05]) @ turn
        return rows / np.linalg.norm(rows, axis=1).max()
    least = math.sqrt(stage.strength)
    if isinstance(stage, NoiselessImpute):
        big = np.arange(n) % 2 == 0
        predictors = np.where(big[:, None], [0.97, least], [0.0, least])
        rows = np.column_stack([predictors @ turn[:2, :2], np.where(big, 0.2, 0.99)])
        rows = attack.into_ball(rows, 1.0)
        angles = rng.uniform(0, math.pi, 40)
        rows[:40] = np.column_stack([np.cos(angles), np.sin(angles), np.full(40, np.nan)])
        rows[:40] *= rng.choice([1.0, 0.1, 0.01], size=(40, 1))
        return rows
    rows = rng.normal(size=(n, 3)) * [0.5, 1.5 * least, least]
    rows[:, 0] += 0.5 * isinstance(stage, NoiselessScale)
    return attack.into_ball(rows @ turn, 1.0)


def check_slip(stage, rng):
    """How far the worst computed row is off, in what the drift allows for it."""
    worst = 0.0
    for _ in range(3):
        table = hard_rows(stage, rng)
        rows = as_rows(table, bound=1.0, gaps=True)
        with mpmath.workdps(50):
            expected = ideal(stage, table)
        off = np.linalg.norm(stage.fit(rows).through(rows).collect() - expected, axis=1).max()
        before, after = (
            stage.drift(Drift(1.0), *table.shape),
            propagate_bounds([ClipNorm(1.0), stage], *table.shape).drifts[-1],
        )
        worst = max(worst, off / (after.bound - before.bound))
    return worst


@pytest.mark.parametrize(
    "stage",
    [
        SoftPCA(0.05),
        SoftPCA(1e-6),
        NoiselessPCA(1, gap=0.01),
        NoiselessScale(0.1),
        NoiselessScale(1e-4),
        NoiselessImpute("ridge", columns=[2], strength=0.05),
        NoiselessImpute("ridge", columns=[2], strength=1e-3),
    ],
    ids=str,
)
def test_computed_rows_lie_as_near_to_ideal_ones_as_the_drift_allows(stage, rng):
    assert check_slip(stage, rng) <= 1


@pytest.mark.parametrize(
    "stage",
    [NoiselessPCA(1, gap=1e-8), NoiselessImpute("ridge", columns=[2], strength=1e-7)],
    ids=str,
)
def test_so_do_rows_behind_an_ill_conditioned_stage(stage, rng):
    assert check_slip(stage, rng) <= 1
