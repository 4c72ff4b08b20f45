"""Drift adds up over several stages as claimed, each rule taking what the last one states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.soundness import attack

from tacit.engine.sensitivity import GradientSensitivity
from tacit.losses import get_loss
from tacit.privacy.sensitivity import drift as rules
from tacit.privacy.sensitivity.drift import Drift

GAPS = {"gaps": 0.3}
LEVER = {"gaps": 0.3, "columns": [1]}

CHAINS = {
    "impute, soft PCA": ([attack.impute("mean"), attack.soft_pca(0.05)], GAPS),
    "impute, PCA": ([attack.impute("mean"), attack.pca(1)], GAPS),
    "impute, clip, soft PCA": (
        [attack.shrunk_mean(8.0), attack.clip(0.6), attack.soft_pca(0.05)],
        GAPS,
    ),
    "trimmed, clip, scale": (
        [attack.impute("trimmed-mean"), attack.clip(0.8), attack.scale(0.1)],
        GAPS,
    ),
    "median, soft PCA": ([attack.impute("median"), attack.soft_pca(0.05)], GAPS),
    "ridge, soft PCA": (
        [attack.impute("ridge", columns=[1], strength=0.1), attack.soft_pca(0.05)],
        LEVER,
    ),
    "ridge, PCA about the mean": (
        [attack.impute("ridge", columns=[1], strength=0.1), attack.pca(1, centered=True)],
        LEVER,
    ),
    "clip, PCA, soft PCA": ([attack.clip(0.9), attack.pca(1), attack.soft_pca(0.05)], {}),
    "soft PCA, scale": ([attack.soft_pca(0.05), attack.scale(0.1, centered=False)], {}),
    "soft PCA, centred scale": ([attack.soft_pca(0.05), attack.scale(0.1, radius=2.0)], {}),
    "soft PCA, scale by deviation": ([attack.soft_pca(0.5), attack.floor_scale(2.0)], {}),
    "soft PCA, soft PCA": ([attack.soft_pca(0.1), attack.soft_pca(0.05)], {}),
    "soft PCA, PCA about the mean": ([attack.soft_pca(0.05), attack.pca(1, centered=True)], {}),
    "scale, clip, soft PCA": ([attack.scale(0.2), attack.clip(1.0), attack.soft_pca(0.05)], {}),
    "PCA, PCA": ([attack.pca(2), attack.pca(1)], {}),
    "scale, PCA": ([attack.scale(0.2, radius=1.0), attack.pca(1)], {}),
}


@pytest.mark.parametrize("name", CHAINS)
def test_rows_behind_several_stages_stay_within_the_claim(name):
    makers, tables = CHAINS[name]
    rng = np.random.default_rng(30)
    attack.worst(makers, attack.random_pairs(rng, 40, **tables), rounds=60)


@pytest.mark.parametrize("by", attack.NUMBERS)
@pytest.mark.parametrize("name", [name for name in CHAINS if "median" not in name])
def test_so_do_chains_behind_rows_that_have_drifted(name, by):
    makers, tables = CHAINS[name]
    rng = np.random.default_rng(31)
    pairs = attack.random_pairs(rng, 15, drift=0.3, **tables)
    attack.worst(makers, pairs, by=by, rounds=25, climbs=1, drifts=True)


#: Chains on a pair that is a case of equality for their last stage or their first.
HURTFUL = [
    ([attack.clip(1.0), attack.soft_pca(0.05)], attack.soft_pca_swap(0.05), 0.9),
    ([attack.pca(1), attack.clip(1.0)], attack.turned(), 0.99),
    ([attack.impute("median"), attack.clip(1.0)], attack.median_jump(), 0.99),
    ([attack.always(attack.Center()), attack.clip(1.0)], attack.opposite(), 0.99),
]


@pytest.mark.parametrize(("makers", "pair", "least"), HURTFUL)
def test_several_stages_come_close_where_their_stages_do(makers, pair, least):
    assert attack.checked(makers, pair).ratio("l1") >= least


@pytest.mark.parametrize("name", ["clip, PCA, soft PCA", "impute, soft PCA", "soft PCA, soft PCA"])
def test_the_attack_notices_stages_that_forget_what_came_before(name, monkeypatch):
    """Each rule by itself right, and drift that comes in ignored."""
    forgetful = {rule: getattr(rules, rule) for rule in ("soft_pca", "pca")}
    for rule, real in forgetful.items():
        monkeypatch.setattr(
            rules, rule, lambda rows, *a, _real=real, **k: _real(Drift(rows.bound), *a, **k)
        )
    makers, tables = CHAINS[name]
    rng = np.random.default_rng(32)
    with pytest.raises(attack.Broken):
        attack.worst(makers, attack.random_pairs(rng, 60, drift=1.0, **tables), drifts=True)


def test_the_attack_notices_half_the_claim_of_a_chain(monkeypatch):
    makers, pair, _ = HURTFUL[0]
    real = rules.soft_pca

    def half(*args):
        claim = real(*args)
        return replace(claim, l1=claim.l1 * 0.5, l2=claim.l2 * 0.5)

    monkeypatch.setattr(rules, "soft_pca", half)
    with pytest.raises(attack.Broken):
        attack.checked(makers, pair)


def test_the_worked_example_comes_out_at_its_numbers():
    """docs/drift.md, section 3: 10,000 rows, mean imputation of 500 of them, then soft PCA."""
    n = 10_000
    filled = rules.impute_mean(Drift(1.0), n, 500)
    assert (filled.l1, filled.linf, filled.l2) == pytest.approx((0.130, 2.6e-4, 0.0058), rel=0.01)
    shrunk = rules.soft_pca(filled, n, 0.05)
    assert (shrunk.l1, shrunk.linf, shrunk.l2) == pytest.approx((2.74, 2.5e-3, 0.029), rel=0.02)
    # With μ = C = 1 neighbouring sums lie 2 + τ apart instead of 2.
    moves = GradientSensitivity(shrunk, get_loss("logistic"), 1, 10, n, rounded=False)
    mu = moves.constant(1.0, 1.0)
    assert (2 + moves.distance(1.0, 1.0) / mu) / 2 == pytest.approx(2.37, abs=0.005)
