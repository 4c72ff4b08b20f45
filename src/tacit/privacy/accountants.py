"""What a list of events costs: exact Gaussian DP, or privacy loss distributions.

Every function rounds to the safe side: an ε or δ that is returned is never
below the true one (for loss distributions: once `PLD_SLACK` is set aside in δ),
a μ that may be spent never above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from scipy.optimize import brentq
from scipy.special import log_ndtr

from tacit.exceptions import InputError
from tacit.privacy.events import Event, Gaussian, PoissonGaussian, sensitivity

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld import PLDAccountant

__all__ = [
    "COARSE_GRID",
    "FINE_GRID",
    "PLD_SLACK",
    "accountant_for",
    "delta",
    "epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "total_mu",
]

FINE_GRID = 1e-4  # what certificates are confirmed on
COARSE_GRID = 1e-3  # about five times faster, costs 0.2% of noise: for searching
# dp-accounting rounds its grids up but convolves them in floating point: at δ = 1e-12 its ε was
# seen 0.26% too small after 10,000 steps, as if 2e-13 of δ were missing. Plans set this aside.
PLD_SLACK = 1e-11


# --- exact Gaussian differential privacy (Dong, Roth & Su 2022) -----------------------------


def total_mu(events: Sequence[Event], neighbors: str) -> float:
    """μ of Gaussian events together: μ² = Σ count·(sensitivity/noise)² (Cor. 3.3)."""
    squares = (e.count * (sensitivity(neighbors) / e.noise_multiplier) ** 2 for e in events)
    return math.sqrt(math.fsum(squares)) * (1 + 1e-15)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2) (Balle & Wang 2018, Thm 8), rounded up.

    Computed as Φ(a)·(1 − exp(ε + ln Φ(b) − ln Φ(a))), which does not overflow;
    the last term covers the rounding of the exponent.
    """
    if mu == 0:
        return 0.0
    log_a = float(log_ndtr(-epsilon / mu + mu / 2))
    log_b = float(log_ndtr(-epsilon / mu - mu / 2))
    slack = 1e-14 * (1 + abs(log_a) + abs(log_b) + epsilon)
    return math.exp(log_a) * (-math.expm1(min(epsilon + log_b - log_a, 0.0)) + slack)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least ε that a μ-Gaussian mechanism satisfies at ``delta``, rounded up."""
    if not delta > 0:
        raise InputError(f"no Gaussian noise is enough for delta={delta!r}; it must be positive")
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    return _safe_root(lambda e: gaussian_delta(mu, e) - delta, 0.0, high, step=1.0)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The greatest μ whose Gaussian mechanism is (ε, δ)-private, rounded down."""
    high = 1.0
    while gaussian_delta(high, epsilon) < delta:
        high *= 2
    low = high
    while gaussian_delta(low, epsilon) > delta:
        low /= 2
        if low < 1e-12:
            raise InputError(f"no Gaussian mechanism of use is ({epsilon}, {delta})-private")
    return _safe_root(lambda m: gaussian_delta(m, epsilon) - delta, low, high, step=-1.0)


def _safe_root(excess: Callable[[float], float], low: float, high: float, step: float) -> float:
    """A root of ``excess``, moved in the direction ``step`` until nothing exceeds."""
    root = high if low == high else brentq(excess, low, high, xtol=1e-15, rtol=1e-13)
    nudge = 1e-13
    while excess(root) > 0:
        root *= 1 + step * nudge
        nudge *= 2
    return float(root)


# --- privacy loss distributions, by dp-accounting --------------------------------------------


def _gaussian(event: Gaussian) -> DpEvent:
    import dp_accounting as dpa

    return dpa.GaussianDpEvent(event.noise_multiplier)


def _poisson_gaussian(event: PoissonGaussian) -> DpEvent:
    import dp_accounting as dpa

    base = dpa.GaussianDpEvent(event.noise_multiplier)
    return dpa.PoissonSampledDpEvent(event.sampling_probability, base)


_AS_DP_EVENT: dict[type[Event], Callable[[Any], DpEvent]] = {
    Gaussian: _gaussian,
    PoissonGaussian: _poisson_gaussian,
}


def loss_distribution(
    events: Sequence[Event], neighbors: str, grid: float = FINE_GRID
) -> PLDAccountant:
    """dp-accounting's pessimistic accountant, with ``events`` composed.

    Its PLD accountant doubles the sensitivity under ``replace_one`` by itself;
    its RDP accountant does not, which is why no certificate rests on it.
    """
    import dp_accounting as dpa
    from dp_accounting import pld

    sensitivity(neighbors)
    accountant = pld.PLDAccountant(dpa.NeighboringRelation[neighbors.upper()], grid)
    # Gaussians together are one Gaussian, exactly: no need to convolve them on a grid.
    gaussians = [event for event in events if type(event) is Gaussian]
    if len(gaussians) > 1:
        noise = sensitivity(neighbors) / total_mu(gaussians, neighbors)
        events = [Gaussian(noise), *(event for event in events if type(event) is not Gaussian)]
    for event in events:
        accountant.compose(dpa.SelfComposedDpEvent(_AS_DP_EVENT[type(event)](event), event.count))
    return accountant


# --- either, whichever is exact ----------------------------------------------------------------


def accountant_for(events: Sequence[Event]) -> str:
    """``gaussian-dp`` where it is exact, ``pld`` otherwise."""
    return "gaussian-dp" if all(type(e) is Gaussian for e in events) else "pld"


def epsilon(
    events: Sequence[Event], delta: float, neighbors: str, *, grid: float = FINE_GRID
) -> float:
    """ε of all events together at ``delta``, never below the truth.

    Examples
    --------
    >>> round(epsilon([Gaussian(5.0)], 1e-5, "replace_one"), 3)
    1.555
    """
    if not events:
        return 0.0
    if accountant_for(events) == "gaussian-dp":
        return gaussian_epsilon(total_mu(events, neighbors), delta)
    return float(loss_distribution(events, neighbors, grid).get_epsilon(delta))


def delta(
    events: Sequence[Event], epsilon: float, neighbors: str, *, grid: float = FINE_GRID
) -> float:
    """δ of all events together at ``epsilon``, never below the truth."""
    if not events:
        return 0.0
    if accountant_for(events) == "gaussian-dp":
        return gaussian_delta(total_mu(events, neighbors), epsilon)
    return float(loss_distribution(events, neighbors, grid).get_delta(epsilon))
