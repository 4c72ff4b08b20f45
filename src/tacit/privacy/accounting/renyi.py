r"""Rényi accounting, for noise that has a worst-case loss and no better description.

Gamma noise, of density e^(−‖z‖/s), hides a vector of norm one with a loss of at most 1/s: purely.
Any pair of distributions with losses of at most ε is a post-processing of randomised response,
chances e^ε/(1 + e^ε) and 1/(1 + e^ε) against their swap (Kairouz, Oh & Viswanath 2015), so its
Rényi divergence is at most that of two points (`two_points`), in closed form. Rényi divergences
add up (Mironov 2017), and turn into (ε, δ) by Canonne, Kamath & Steinke 2020, Proposition 12.

Song et al. 2021, Appendix E, does the same with α·ε²/2, which is larger than the two points have.
Its losses of a sampled step are for rows that are added or removed; its Definition 2.5 replaces
them, for which `pure_step` has another formula. Both forget the dimension: in many dimensions the
loss is near its bound for hardly any noise, so neither account is tight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scipy.optimize import minimize_scalar

from tacit.exceptions import InputError
from tacit.privacy.events import Event, Gamma, sensitivity
from tacit.privacy.relation import Neighbors

UP = 1 + 1e-12  # covers the rounding of a few elementary functions
ORDERS = (math.log(1e-4), math.log(1e7))  # of α − 1; any order gives a true bound


def pure_step(event: Gamma, neighbors: Neighbors) -> float:
    """Largest privacy loss of one step of gamma noise, rounded up.

    A row is drawn with probability q; noise then hides its contribution up to e^(1/s). Added or
    removed: 1 − q + q·e^(1/s) (Ullman 2017). Replaced: with a the density without the row, those
    with it, b and b′, lie within e^(±1/s) of a, so ((1−q)a + qb)/((1−q)a + qb′) is largest where
    they lie at opposite ends. At q = 1 that is 2/s.
    """
    reach, q = 1 / event.noise_multiplier, event.sampling_probability
    with_row = _log_mix(q, reach)
    if sensitivity(neighbors) == 1.0:
        return with_row * UP + 1e-300
    return (with_row - _log_mix(q, -reach)) * UP + 1e-300


def two_points(pure: float, order: float) -> float:
    """Rényi divergence of randomised response: ln((e^(αε) + e^((1−α)ε))/(1 + e^ε))/(α − 1).

    With c = α − 1/2 it is ln(cosh(cε)/cosh(ε/2))/(α − 1), and ln cosh a − ln cosh b =
    ln(1 + 2·sinh((a+b)/2)·sinh((a−b)/2)/cosh b), without cancellation where ε is small.
    """
    far, near = order * pure / 2, (order - 1) * pure / 2
    if max(far, near, pure) > 300:
        return pure  # no divergence is larger than the loss
    ratio = 2 * math.sinh(far) * math.sinh(near) / math.cosh(pure / 2)
    return min(math.log1p(ratio) / (order - 1) * UP, pure)


def divergence(events: Sequence[Event], neighbors: Neighbors) -> Callable[[float], float]:
    """Rényi divergence of all events together, as a function of the order."""
    # Which asks this module where it has to.
    from tacit.privacy.accounting.accountants import total_mu

    steps = [(event.count, pure_step(event, neighbors)) for event in events if type(event) is Gamma]
    others = [event for event in events if type(event) is not Gamma]
    if not all(event.gaussian for event in others):
        raise InputError(
            "gamma noise and sampled Gaussian noise have no common account; sample in one of the "
            "two only"
        )
    square = total_mu(others, neighbors) ** 2 if others else 0.0

    def at(order: float) -> float:
        gamma = math.fsum(count * two_points(pure, order) for count, pure in steps)
        return (gamma + order * square / 2) * UP  # of Gaussians: αμ²/2

    return at


def epsilon(events: Sequence[Event], delta: float, neighbors: Neighbors) -> float:
    """ε of all events together at ``delta``, never below the truth.

    Examples
    --------
    >>> steps = Gamma(0.57, 2382, sampling_probability=250 / 59535)
    >>> round(epsilon([steps], 1e-5, "replace_special"), 2)
    4.56
    """
    if not 0 < delta < 1:
        raise InputError(f"delta must lie between 0 and 1, not {delta!r}")
    spent = divergence(events, neighbors)

    def at(order: float) -> float:
        gain = (math.log(1 / delta) - math.log(order)) / (order - 1) + math.log1p(-1 / order)
        return spent(order) + gain

    return max(_least(at) * UP, 0.0)


def delta(events: Sequence[Event], epsilon: float, neighbors: Neighbors) -> float:
    """δ of all events together at ``epsilon``, never below the truth."""
    spent = divergence(events, neighbors)

    def at(order: float) -> float:
        return (order - 1) * (spent(order) - epsilon + math.log1p(-1 / order)) - math.log(order)

    return min(math.exp(min(_least(at), 0.0)) * (1 + 1e-9), 1.0)


def _least(bound: Callable[[float], float]) -> float:
    """The least of a family of bounds that was found: each of them holds."""
    found = minimize_scalar(
        lambda v: bound(1 + math.exp(v)), bounds=ORDERS, method="bounded", options={"xatol": 1e-9}
    )
    return float(found.fun)


def _log_mix(q: float, loss: float) -> float:
    """ln(1 − q + q·e^loss)."""
    if loss > 600:
        return min(loss, loss + math.log(q) + 1e-12)
    return math.log1p(q * math.expm1(loss))
