"""Margins under projection: the corrected one holds and is sharp, the printed one fails."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.exceptions import InputError
from tacit.research.instances import large_margin_mixture
from tacit.research.theory import halfspaces

BUDGET = {"epsilon": 0.1, "delta": 1e-6}


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def lost(projector, w):
    """ξ of Definition 3."""
    return 1 - float(np.linalg.norm(projector @ w))


@pytest.mark.parametrize("seed", range(20))
def test_no_row_has_less_margin_after_projection_than_is_promised(seed):
    rng = np.random.default_rng(seed)
    d, k = 8, int(rng.integers(1, 8))
    basis = np.linalg.qr(rng.standard_normal((d, k)))[0]
    projector = basis @ basis.T
    w = unit(projector @ rng.standard_normal(d) + rng.uniform(0, 0.3) * rng.standard_normal(d))
    rows = unit(rng.standard_normal((4000, d)) + 2 * w)
    signs = np.sign(rows @ w)
    xi = lost(projector, w)
    for row, sign in zip(rows[:500], signs[:500], strict=True):
        gamma = float(sign * (row @ w))
        zeta = halfspaces.projected_margin(gamma, xi)
        kept = sign * (projector @ row) @ w
        assert kept >= zeta - 1e-12
        if zeta > 0:  # normalising only widens it
            narrow = np.linalg.norm(projector @ row) * np.linalg.norm(projector @ w)
            assert kept / narrow >= zeta - 1e-12


def test_the_corrected_margin_is_sharp():
    """(I − P)w*, scaled to norm one, has margin √(ξ(2 − ξ)) and projects to zero."""
    for angle in (0.05, 0.3, 1.0):
        w = np.array([math.cos(angle), math.sin(angle)])
        projector = np.diag([1.0, 0.0])
        row = np.array([0.0, 1.0])
        xi = lost(projector, w)
        assert row @ w == pytest.approx(math.sqrt(xi * (2 - xi)))
        assert not (projector @ row).any()
        assert halfspaces.projected_margin(float(row @ w), xi) == pytest.approx(0.0, abs=1e-12)


def test_projected_rows_need_not_be_separable_where_the_paper_promises_a_margin():
    """Four unit rows in the plane, y·x listed; the second moment is diagonal, e₁ its first."""
    signed = unit(np.array([[0.995, 0.1], [0.995, -0.1], [-0.1, 0.995], [0.1, 0.995]]))
    counts = np.array([40, 40, 1, 1])
    moment = (signed * counts[:, None]).T @ signed / counts.sum()
    values, vectors = np.linalg.eigh(moment)
    first = vectors[:, -1]
    assert abs(first[0]) > 0.999
    assert values[-1] - values[-2] > 0.9
    xi = 0.1
    w = np.array([1 - xi, math.sqrt(xi * (2 - xi))])
    gamma = float((signed @ w).min())
    assert gamma > 0.3
    projector = np.outer(first, first)
    assert lost(projector, w) == pytest.approx(xi, abs=1e-6)
    printed = 0.9 * gamma * (1 - xi)
    assert printed > 0.2
    along = signed @ first
    assert along.min() < -0.05 < 0.05 < along.max()  # no sign of v separates the projected rows
    assert halfspaces.projected_margin(gamma, xi) < 0
    found = halfspaces.risk(10**6, 1, **BUDGET, margin=gamma, xi=xi)
    assert found.value == math.inf
    assert found.printed < 1


def test_without_loss_both_margins_agree_but_for_the_tenth():
    found = halfspaces.risk(10**5, 20, **BUDGET, margin=0.4)
    assert found.printed == pytest.approx((found.value - 20 / 10**5) / 0.9)


@pytest.mark.parametrize("seed", range(10))
def test_second_moments_differ_by_no_more_than_the_distributions(seed):
    """On the unit ball: ‖Σ_f − Σ_g‖ ≤ TV(f, g), where Lemma 6 has 7η and third moments."""
    rng = np.random.default_rng(seed)
    atoms = unit(rng.standard_normal((30, 5))) * rng.uniform(0, 1, (30, 1))
    f, g = rng.dirichlet(np.full(30, 0.3), 2)
    eta = np.abs(f - g).sum() / 2
    apart = (atoms * (f - g)[:, None]).T @ atoms
    assert np.linalg.norm(apart, 2) <= eta + 1e-15


def test_a_shift_moves_components_by_no_more_than_is_counted():
    rng = np.random.default_rng(3)
    for _ in range(50):
        base = np.diag(np.sort(rng.uniform(0, 1, 6))[::-1]) / 6
        gap = float(base[1, 1] - base[2, 2])
        noise = rng.standard_normal((6, 6))
        eta = rng.uniform(0.01, 2) * gap / 2
        other = base + eta * (noise + noise.T) / np.linalg.norm(noise + noise.T, 2)
        first = [np.linalg.eigh(m)[1][:, -2:] for m in (base, other)]
        moved = np.linalg.norm(first[0] @ first[0].T - first[1] @ first[1].T, 2)
        assert moved <= 2 * eta / gap + 1e-12
    clean = halfspaces.projected_margin(0.5, 0.01)
    assert halfspaces.projected_margin(0.5, 0.01, gap=0.2, shift=0.01) == pytest.approx(clean - 0.1)


def test_public_rows_estimate_components_as_well_as_lemma_4_says():
    rng = np.random.default_rng(5)
    d, k, n, failure = 10, 2, 400, 0.1
    scales = np.array([1.0, 0.8, *[0.2] * 8])
    big = unit(rng.standard_normal((200_000, d)) * scales)
    values, vectors = np.linalg.eigh(big.T @ big / len(big))
    gap = float(values[-k] - values[-k - 1])
    true = vectors[:, -k:] @ vectors[:, -k:].T
    clean = halfspaces.projected_margin(0.9, gap=gap)
    allowed = clean - halfspaces.projected_margin(0.9, gap=gap, public=n, failure=failure)
    worst = 0.0
    for _ in range(100):
        sample = big[rng.integers(len(big), size=n)]
        first = np.linalg.eigh(sample.T @ sample)[1][:, -k:]
        worst = max(worst, float(np.linalg.norm(first @ first.T - true)))
    assert worst < allowed  # it may fail with probability 0.05, and is loose


def test_sizes_and_risks_belong_together():
    given = {"margin": 0.5, "xi": 0.01}
    sizes = halfspaces.sizes(0.05, 20, epsilon=0.1, gap=0.1, **given)
    reached = halfspaces.risk(
        math.ceil(sizes.private), 20, **BUDGET, gap=0.1, public=int(sizes.public), **given
    )
    assert reached.value == pytest.approx(0.05, rel=1e-3)
    # Without any loss: 1600(1 + √(log(2/β)/2))²/(γΔ)², which Theorem 4 prints the order of.
    plain = halfspaces.sizes(0.05, 20, epsilon=0.1, gap=0.1, margin=0.5)
    expected = 1600 * (1 + math.sqrt(math.log(2 / 0.05) / 2)) ** 2 / (0.5 * 0.1) ** 2
    assert plain.public == math.ceil(expected)
    with pytest.raises(InputError, match="no margin is left"):
        halfspaces.sizes(0.05, 20, epsilon=0.1, gap=0.1, margin=0.3, xi=0.1)


def test_the_second_term_is_what_the_condition_on_epsilon_hides():
    for epsilon in (0.01, 0.2):
        found = halfspaces.risk(10**4, 25, epsilon=epsilon, delta=1e-6, margin=1.0)
        first = 5 / (10**4 * epsilon)
        assert found.value - first == pytest.approx(25 / 10**4)
        assert (first >= 25 / 10**4) == (epsilon <= 1 / 5)


# Mixtures


@pytest.mark.parametrize(("d", "stretch", "spread"), [(5, 0.0, 0.01), (50, 0.3, 0.002)])
def test_rows_of_a_mixture_keep_to_their_margin_and_radius(d, stretch, spread):
    mixture = halfspaces.Mixture(d, stretch, spread)
    n, failure = 500, 0.2
    rng = np.random.default_rng(0)
    mu, w = np.eye(d)[:2]
    beyond = 0
    for _ in range(200):
        noise = math.sqrt(spread) * rng.standard_normal((n, d))
        noise += math.sqrt(stretch) * rng.standard_normal((n, 1)) * w
        rows = mu + noise  # those of the other class are their mirror images
        low = (rows @ mu).min() < mixture.margin(n, failure)
        far = np.linalg.norm(rows, axis=1).max() > mixture.radius(n, failure)
        beyond += low or far
    # Each fails with probability 0.05 at most: 0.1 of 200 is 20; 45 has probability below 1e-7.
    assert beyond < 45


def test_the_direction_that_example_1_names_separates_nothing():
    instance = large_margin_mixture(4000, 30, stretch=0.5, seed=2)
    signs = 2 * instance.labels - 1
    right = np.mean(signs * (instance.rows @ instance.facts["stretched"]) > 0)
    assert right == pytest.approx(0.5, abs=0.05)


def test_rows_of_the_papers_spread_lie_farther_out_than_its_lemma_8_says():
    """σ² = θ = 1/(2C√d): deviations, not variances, decide. Here ‖x − μ‖ ≈ √(dσ²) = d^¼/√(2C)."""
    d, n, constant = 10_000, 20, 20.0
    variance = 1 / (2 * constant * math.sqrt(d))
    rng = np.random.default_rng(0)
    noise = math.sqrt(variance) * rng.standard_normal((n, d))
    claimed = 4 * 2 * variance * math.sqrt(d) + 4 * variance * math.sqrt(math.log(4 * n / 0.05))
    assert np.linalg.norm(noise, axis=1).min() > 3 * claimed
    mixture = halfspaces.Mixture(d, variance, variance)
    assert np.linalg.norm(noise, axis=1).max() < mixture.radius(n)


def test_a_mixture_needs_no_more_rows_in_more_dimensions_if_its_spread_shrinks_with_them():
    values = [
        halfspaces.mixture_risk(10**4, halfspaces.Mixture(d, 0.0, 1 / (16 * d)), **BUDGET).value
        for d in (10, 10**3, 10**5)
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] < 3 * values[-1]
    wide = halfspaces.mixture_risk(10**4, halfspaces.Mixture(10, 0.0, 0.2), **BUDGET)
    assert wide.value == math.inf
    assert wide.printed == math.inf


# Table V


def test_table_v_has_its_closed_forms():
    given = {"epsilon": 0.2, "margin": 0.25, "d": 900, "k": 16}
    rates = halfspaces.error_rates(1000, **given, xi=0.001, tail=1e-9, residual=0.1)
    scale = 1 / (1000 * 0.2)
    expected = {
        "noisy descent": 30 * scale / 0.25,
        "restricted Lipschitz descent": 4 * scale / 0.25 + math.sqrt(1e-9 * 900 / 16),
        "random projection": scale / 0.25**2,
        "random projection of gradients": 30 * scale / 0.25,
        "gradient embedding": (4 + 0.1 * 30) * scale / 0.25,
        "public components": 4 * scale / (0.25 - math.sqrt(0.001 * 1.999)),
    }
    assert {name: risk.value for name, risk in rates.items()} == pytest.approx(expected)
    assert rates["public components"].printed == pytest.approx(4 * scale / (0.25 * 0.999))


def test_sample_sizes_invert_error_rates():
    given = {"epsilon": 0.2, "margin": 0.25, "d": 900, "k": 16, "xi": 0.001, "tail": 1e-6}
    needed = halfspaces.sample_sizes(0.03, **given)
    for name, n in needed.items():
        assert halfspaces.error_rates(n, **given)[name].value == pytest.approx(0.03)
    given["tail"] = 1e-3
    blocked = halfspaces.sample_sizes(0.03, **given)["restricted Lipschitz descent"]
    assert blocked == math.inf


def test_few_components_beat_a_random_projection_where_the_margin_is_small():
    """The paper's point: √k/γ against 1/γ², so k below 1/γ²."""
    for margin, better in [(0.05, True), (0.5, False)]:
        rates = halfspaces.error_rates(10**4, epsilon=0.1, margin=margin, d=10**4, k=40)
        public, random = (rates[name].value for name in ("public components", "random projection"))
        assert (public < random) == better


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: halfspaces.projected_margin(1.5), "margin=1.5"),
        (lambda: halfspaces.projected_margin(0.5, 1.0), "xi=1.0"),
        (lambda: halfspaces.projected_margin(0.5, public=10), "need gap="),
        (lambda: halfspaces.projected_margin(0.5, failure=0.0), "failure"),
        (lambda: halfspaces.sample_sizes(0.0, epsilon=1.0, margin=0.5, d=2, k=1), "error=0.0"),
        (lambda: halfspaces.Mixture(1, 0.0, 0.1), "two dimensions"),
        (lambda: halfspaces.Mixture(5, 1.0, 0.1), "stretch below 1"),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
