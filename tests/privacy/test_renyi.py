"""Gamma noise: divergences by integration, in one to three dimensions, never exceed the account."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln

from tacit.exceptions import InputError
from tacit.privacy import Budget, Gamma, Gaussian, PoissonGaussian, Selection
from tacit.privacy.accounting import accountants as acc
from tacit.privacy.accounting import renyi
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.verification import recheck

RELATIONS = ("replace_special", "add_or_remove_one", "replace_one")


def grid(d, s):
    """Points and weights for integrals over R^d, symmetric about the line of all centres."""
    x = np.linspace(-1 - 30 * s, 1 + 30 * s, 1201)  # a centre, -1, 0 or 1, is always on it
    if d == 1:
        return x, np.zeros_like(x), np.full_like(x, x[1] - x[0])
    r = (np.arange(250) + 0.5) * 30 * s / 250
    area = {2: 2 * np.ones_like(r), 3: 2 * np.pi * r}[d]
    across, along = np.meshgrid(r, x)
    return along, across, np.broadcast_to(area * (r[1] - r[0]) * (x[1] - x[0]), along.shape)


def density(d, s, centre, points):
    """e^(−‖z‖/s), normalised: the sphere's area times Γ(d)·s^d."""
    area = {1: 2.0, 2: 2 * np.pi, 3: 4 * np.pi}[d]
    apart = np.hypot(points[0] - centre, points[1])
    return np.exp(-apart / s) / (area * math.gamma(d) * s**d)


def integrated(d, s, q, order, neighbors):
    """Both orders of the worst neighbours, whose contributions have norm one."""
    along, across, weight = grid(d, s)
    at = {c: density(d, s, c, (along, across)) for c in (-1.0, 0.0, 1.0)}
    one = (1 - q) * at[0.0] + q * at[1.0]
    other = (1 - q) * at[0.0] + q * at[-1.0] if neighbors == "replace_one" else at[0.0]
    assert (one * weight).sum() == pytest.approx(1, abs=2e-3)
    both = [(p * (p / r) ** (order - 1) * weight).sum() for p, r in ((one, other), (other, one))]
    return math.log(max(both)) / (order - 1)


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(("s", "q"), [(0.57, 0.1), (0.57, 1.0), (2.0, 0.5)])
def test_divergences_by_integration_are_below_the_account(d, s, q, neighbors):
    spent = renyi.divergence([Gamma(s, sampling_probability=q)], neighbors)
    for order in (1.5, 2.0, 6.0, 20.0):
        assert integrated(d, s, q, order, neighbors) <= spent(order) * 1.01 + 1e-3


def test_the_account_is_what_two_points_have():
    for pure in (1e-3, 0.02, 1.0, 8.0):
        p = math.exp(pure) / (1 + math.exp(pure))
        for order in (1.01, 2.0, 30.0):
            direct = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
            found = renyi.two_points(pure, order)
            assert found == pytest.approx(math.log(direct) / (order - 1), rel=1e-4)
            assert found <= min(pure, order * pure**2 / 2) * (1 + 1e-9)  # the appendix's
    assert renyi.two_points(2000.0, 5.0) == 2000.0
    assert renyi.two_points(1e-9, 2.0) == pytest.approx(1e-18, rel=1e-6)  # no cancellation


def test_losses_of_a_sampled_step_are_the_largest_ratios():
    rng = np.random.default_rng(0)
    for s, q in ((0.5, 0.01), (0.57, 0.3), (3.0, 1.0)):
        a = 1.0
        b, c = np.exp(rng.uniform(-1 / s, 1 / s, size=(2, 10_000)))
        ratios = np.abs(np.log(((1 - q) * a + q * b) / ((1 - q) * a + q * c)))
        event = Gamma(s, sampling_probability=q)
        assert 0.9 * renyi.pure_step(event, "replace_one") <= ratios.max()
        assert ratios.max() <= renyi.pure_step(event, "replace_one")
        alone = np.abs(np.log((1 - q) * a + q * b))
        assert alone.max() <= renyi.pure_step(event, "replace_special")
    assert renyi.pure_step(Gamma(0.25), "replace_one") == pytest.approx(8.0)
    assert renyi.pure_step(Gamma(0.25), "replace_special") == pytest.approx(4.0)
    assert renyi.pure_step(Gamma(1e-4), "replace_special") == pytest.approx(1e4)


def test_the_setting_of_the_paper():
    """Appendix E: ε about 5 by its own formula. Replaced rows, which it defines, cost more."""
    q, steps = 250 / 59535, 2382
    event = Gamma(0.57, steps, sampling_probability=q)
    pure = math.log(1 + q * (math.exp(1 / 0.57) - 1))
    printed = min(
        steps * order * pure**2 / 2 + math.log(1e5) / (order - 1)
        for order in np.linspace(1.1, 40, 1000)
    )
    assert printed == pytest.approx(5.12, abs=0.01)
    assert acc.epsilon([event], 1e-5, "replace_special") == pytest.approx(4.56, abs=0.01)
    assert acc.epsilon([event], 1e-5, "replace_one") == pytest.approx(5.49, abs=0.01)
    tight = acc.loss_distribution([event], "replace_special").get_epsilon(1e-5)
    assert tight == pytest.approx(4.22, abs=0.02)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_three_routes_agree_on_gamma_and_gaussian_noise(neighbors):
    events = [Gamma(3.0, 50, sampling_probability=0.2), Gaussian(12.0, 4), Selection(40.0)]
    claimed = acc.epsilon(events, 1e-5, neighbors)
    assert acc.accountant_for(events) == "rdp"
    steps = [(e.kind, e.to_dict()["parameters"]) for e in events]
    again = recheck.epsilon(steps, 1e-5, neighbors)
    assert again.upper == pytest.approx(claimed, rel=1e-6)
    tight = acc.loss_distribution(events, neighbors).get_epsilon(1e-5)
    assert 0.6 * claimed < tight <= claimed
    back = acc.delta(events, claimed, neighbors)
    assert back == pytest.approx(1e-5, rel=1e-4)
    assert recheck.delta(steps, claimed, neighbors).upper == pytest.approx(back, rel=1e-4)


def test_a_budget_is_met():
    z = calibrate(
        lambda z: [Gamma(z, 300, sampling_probability=0.05)], Budget(2.0, 1e-5), "replace_one"
    )
    spent = acc.epsilon([Gamma(z, 300, sampling_probability=0.05)], 1e-5, "replace_one")
    assert 1.99 < spent <= 2.0


def test_sampled_gaussian_noise_beside_it_is_counted_by_losses():
    gamma, sampled = Gamma(3.0, 2), PoissonGaussian(2.0, 3, sampling_probability=0.1)
    for neighbors in ("replace_special", "replace_one"):
        pure = 2 * renyi.pure_step(gamma, neighbors)
        alone = acc.loss_distribution([sampled], neighbors)
        curve = acc.loss_distribution([gamma, sampled], neighbors)
        for at in (pure, pure + 0.3):
            # Randomised response twice: losses of ±2r and 0, chances p², 2p(1−p), (1−p)².
            p = 1 / (1 + math.exp(-pure / 2))
            exact = sum(
                chance * alone.get_delta(at - loss)
                for chance, loss in ((p * p, pure), (2 * p * (1 - p), 0.0), ((1 - p) ** 2, -pure))
                if at - loss >= 0
            )
            assert exact * (1 - 1e-3) <= curve.get_delta(at) <= exact * 1.01
        assert acc.epsilon([gamma, sampled], 1e-5, neighbors) == pytest.approx(
            curve.get_epsilon(1e-5), rel=1e-9
        )
    with pytest.raises(InputError, match="no common account"):
        renyi.epsilon([gamma, sampled], 1e-5, "replace_special")
    steps = [(e.kind, e.to_dict()["parameters"]) for e in (gamma, sampled)]
    with pytest.raises(InputError, match="cannot be checked"):
        recheck.epsilon(steps, 1e-5, "replace_special")


def test_in_many_dimensions_a_step_costs_far_less_than_its_largest_loss():
    """KL divergence of d-dimensional gamma noise, by integration over the angle: about 1/(2ds²)."""
    s, d = 0.57, 400

    def loss(cosine, length):
        return (math.sqrt(length**2 - 2 * length * cosine + 1) - length) / s

    log_area = gammaln(d / 2) - gammaln((d - 1) / 2) - math.log(math.pi) / 2

    def weight(cosine):
        return math.exp(log_area + (d - 3) / 2 * math.log1p(-(cosine**2)))

    length = d * s  # its deviation is √d·s: a twentieth
    mean = quad(lambda c: weight(c) * loss(c, length), -0.999, 0.999, epsabs=1e-12)[0]
    assert mean == pytest.approx(1 / (2 * d * s**2), rel=0.1)
    assert mean < 0.01 * renyi.pure_step(Gamma(s), "replace_special")
