"""The exponential mechanism as a Gaussian one: never less than it costs, no looser than it is."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.special import log_expit, log_ndtr, logsumexp

from tacit.ledger.spending import Limits, Spending, Tally
from tacit.privacy.accounting.accountants import (
    accountant_for,
    epsilon,
    gaussian_delta,
    loss_distribution,
    selection_mu,
    total_mu,
)
from tacit.privacy.events import Event, Gaussian, PoissonGaussian, Selection
from tacit.privacy.verification import recheck


def choice(utilities: np.ndarray, beta: float) -> np.ndarray:
    return np.exp(utilities / beta - logsumexp(utilities / beta))


def delta_of(p: np.ndarray, q: np.ndarray, at: float) -> float:
    return float(np.maximum(p - math.exp(at) * q, 0).sum())


@pytest.mark.parametrize("beta", [0.2, 1.0, 7.0, 50.0])
def test_no_choice_is_easier_to_see_through_than_the_gaussian(beta: float) -> None:
    rng = np.random.default_rng(3)
    mu = selection_mu(1 / beta)
    for _ in range(300):
        k = int(rng.integers(2, 12))
        ours = rng.normal(scale=3 * beta, size=k)
        theirs = ours + rng.choice([-1.0, 0.0, 1.0], size=k)
        p, q = choice(ours, beta), choice(theirs, beta)
        for at in np.linspace(-2, 2, 9) * mu:
            assert delta_of(p, q, at) <= gaussian_delta(mu, at) + 1e-12


@pytest.mark.parametrize("beta", [0.2, 1.0, 7.0, 50.0])
def test_no_smaller_mu_would_do(beta: float) -> None:
    """Two candidates that move in opposite directions touch the Gaussian's trade-off."""
    p, q = choice(np.array([0.5, -0.5]), beta), choice(np.array([-0.5, 0.5]), beta)
    less = selection_mu(1 / beta) * 0.999
    # At this epsilon the line through the corner is steepest against the Gaussian's curve.
    wide = np.linspace(-3, 3, 4001) * less
    assert any(delta_of(p, q, at) > gaussian_delta(less, at) for at in wide)


def test_mu_is_rounded_up_at_both_ends() -> None:
    assert selection_mu(1e-6) == pytest.approx(math.sqrt(math.pi / 2) * 1e-6, rel=1e-9)
    for reach in (1e-6, 1e-3, 0.1, 1.0, 20.0, 500.0, 1e6):
        mu = selection_mu(reach)
        # Phi(mu/2) must reach 1/(1+e^-reach); compared by the other tail in logarithms.

        assert log_ndtr(-mu / 2) <= log_expit(-reach) + 1e-12
        assert mu <= math.sqrt(math.pi / 2) * reach * (1 + 1e-14)


def test_it_composes_with_gaussians_exactly_and_with_samples_by_loss_distributions() -> None:
    chosen, noise = Selection(20.0, 3), Gaussian(5.0)
    assert accountant_for([chosen, noise]) == "gaussian-dp"
    both = total_mu([chosen, noise], "replace_special")
    assert both**2 == pytest.approx(3 * selection_mu(1 / 20) ** 2 + 1 / 25, rel=1e-12)
    sampled = PoissonGaussian(2.0, 50, sampling_probability=0.05)
    alone = loss_distribution([sampled], "replace_special").get_epsilon(1e-5)
    together = loss_distribution([chosen, sampled], "replace_special").get_epsilon(1e-5)
    same = [Gaussian(1 / (math.sqrt(3) * selection_mu(1 / 20))), sampled]
    assert alone < together
    assert together == pytest.approx(
        loss_distribution(same, "replace_special").get_epsilon(1e-5), rel=1e-9
    )


@pytest.mark.parametrize("neighbors", ["replace_special", "add_or_remove_one", "replace_one"])
def test_verify_agrees_by_its_own_route(neighbors: str) -> None:
    events: list[Event] = [Selection(9.0), Gaussian(8.0, 4)]
    ours = epsilon(events, 1e-5, neighbors)
    steps = [(e.kind, e.to_dict()["parameters"]) for e in events]
    other = recheck.epsilon(steps, 1e-5, neighbors)
    assert other.upper <= ours * (1 + 1e-9)
    assert ours == pytest.approx(other.epsilon, rel=1e-6)


def test_json_round_trip() -> None:
    event = Selection(3.5, 2)
    assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
def test_the_ledger_counts_it(neighbors: str) -> None:
    limits = Limits(2.0, 1e-5, neighbors)
    events = (("clip", Selection(30.0)), ("clip", Selection(30.0)), ("noise", Gaussian(9.0)))
    spent = Tally().plus(Spending(events))
    assert spent.mu(neighbors) == pytest.approx(
        total_mu([event for _, event in events], neighbors), rel=1e-12
    )
    alone = epsilon([event for _, event in events], 1e-5, neighbors)
    assert spent.epsilon(limits) == pytest.approx(alone, rel=1e-9)
    assert Spending.from_dict(json.loads(json.dumps(Spending(events).to_dict()))).events == events
