"""From how often a test errs to an ε that a mechanism cannot have less of.

Whoever tells two neighbouring tables apart with few errors refutes a small ε. The errors are
counted, so every bound holds with a stated confidence, whatever the test was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, binom

from tacit.diagnostics.base import require_fraction
from tacit.exceptions import InputError
from tacit.privacy.accounting.accountants import COARSE_GRID, gaussian_epsilon, loss_distribution
from tacit.privacy.events import Event
from tacit.privacy.relation import Neighbors

STEP = 1.05  # between the noise of two accounts that are tried
LEAST_CONFIDENCE = 0.75  # confidence from which errors may be counted together


def highest_rate(count: int, trials: int, confidence: float) -> float:
    """Clopper & Pearson (1934), one-sided: the rate is at most this, with that confidence.

    Examples
    --------
    >>> round(highest_rate(0, 100, 0.95), 4)  # the rule of three
    0.0295
    """
    if not 0 <= count <= trials or trials < 1:
        raise InputError(f"{count} of {trials} is not a rate")
    require_fraction(confidence=confidence)
    return 1.0 if count == trials else float(beta.ppf(confidence, count + 1, trials - count))


def epsilon_of_rates(false_positive: float, false_negative: float, delta: float) -> float:
    """The least ε that allows a test with these error rates (Kairouz, Oh & Viswanath 2015).

    1 − FNR ≤ e^ε·FPR + δ, and the same with the tables swapped.
    """
    found = 0.0
    for one, other in ((false_positive, false_negative), (false_negative, false_positive)):
        if 1 - delta - one > other:
            found = max(found, math.log((1 - delta - one) / other) if other > 0 else math.inf)
    return found


def mu_of_rates(false_positive: float, false_negative: float) -> float:
    """The least μ of Gaussian DP that allows them: FNR ≥ Φ(Φ⁻¹(1 − FPR) − μ)."""
    return max(0.0, float(-ndtri(false_positive) - ndtri(false_negative)))


class Errors(NamedTuple):
    """How often the tables were mistaken for each other.

    Attributes
    ----------
    false_positives, negatives : int
        How often the second table was taken for the first, of how many runs.
    false_negatives, positives : int
        How often the first was taken for the second, of how many.
    """

    false_positives: int
    negatives: int
    false_negatives: int
    positives: int


def rates(errors: Errors, confidence: float, *, together: bool) -> tuple[float, float]:
    """Both error rates at most, with that confidence; or ``together``, their mean, twice.

    Where a claim is symmetric, as all here are, it allows two rates only if it allows their mean
    in place of both. Errors of as many runs on either table have that mean. They are independent
    but not alike, and so their number is no likelier to be small than if they were: Hoeffding
    (1956), Theorem 4, for numbers that fall short of the mean by one or more. At a confidence of
    75% all that lie beyond Clopper and Pearson's limit do, so the limit holds; for a limit below
    a half, that is, and a higher one refutes nothing.
    """
    if together:
        taken, negatives, missed, positives = errors
        if negatives != positives:
            raise InputError(
                f"errors of {negatives} and of {positives} runs cannot be counted together"
            )
        if confidence < LEAST_CONFIDENCE:
            raise InputError(
                f"counted together, errors need a confidence of at least {LEAST_CONFIDENCE}"
            )
        both = highest_rate(taken + missed, negatives + positives, confidence)
        return both, both
    each = (1 + confidence) / 2
    return highest_rate(*errors[:2], each), highest_rate(*errors[2:], each)


def lower(
    errors: Errors, *, delta: float, confidence: float = 0.95, together: bool = False
) -> float:
    """A lower bound on ε at ``delta``, for any mechanism.

    Parameters
    ----------
    errors : Errors
        What was counted.
    delta : float
        δ of the claim.
    confidence : float
        Probability, over the runs, with which the true ε is at least what is returned.
    together : bool
        Count errors of both kinds as one, which takes half as many runs where they are about as
        frequent. To be decided before they are counted, for as many runs on either table.

    Examples
    --------
    >>> round(lower(Errors(10, 1000, 700, 1000), delta=1e-5), 2)
    2.7
    """
    found = rates(errors, confidence, together=together)
    return epsilon_of_rates(*found, delta)


def gaussian_lower(
    errors: Errors, *, delta: float, confidence: float = 0.95, together: bool = False
) -> float:
    """The same for a mechanism whose account is Gaussian DP (Nasr et al. 2023, section 4).

    The rates bound μ, and ε follows from μ and δ. It says that *this account* needs at least that
    ε: many fewer runs refute it than a claim about arbitrary mechanisms.

    Examples
    --------
    >>> round(gaussian_lower(Errors(300, 1000, 300, 1000), delta=1e-5), 2)
    3.79
    >>> round(gaussian_lower(Errors(300, 1000, 300, 1000), delta=1e-5, together=True), 2)
    4.13
    """
    found = rates(errors, confidence, together=together)
    mu = mu_of_rates(*found) * (1 - 1e-12)
    return 0.0 if mu == 0 else gaussian_epsilon(mu, delta) * (1 - 1e-9)  # rounded down


def accounted_lower(
    errors: Errors,
    *,
    events: Sequence[Event],
    neighbors: Neighbors,
    delta: float,
    confidence: float = 0.95,
    together: bool = False,
) -> float:
    """The same for a mechanism whose account is a list of events.

    With all noise scaled by s, the account has an ε that falls as s grows. An s is refuted if its
    loss distribution does not allow the error rates: FNR < 1 − δ(ε) − e^ε·FPR at some ε. What is
    returned is the ε of the least s refuted. For Gaussian events this is `gaussian_lower`.
    """
    listed = tuple(events)
    if all(event.gaussian for event in listed):
        return gaussian_lower(errors, delta=delta, confidence=confidence, together=together)
    found = rates(errors, confidence, together=together)

    def refuted(power: int) -> bool:
        curve = _account(listed, neighbors, delta, power)[1]
        return any(epsilon_of_rates(*found, at) > epsilon for epsilon, at in curve)

    low, high = -24, 64  # noise of a third to 23 times what was counted
    if not refuted(high):
        return 0.0
    if refuted(low):
        high = low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if refuted(middle) else (middle, high)
    # Loss distributions round ε up, by less than this.
    return _account(listed, neighbors, delta, high)[0] * (1 - 1e-3)


@lru_cache(maxsize=512)
def _account(
    events: tuple[Event, ...], neighbors: Neighbors, delta: float, power: int
) -> tuple[float, tuple[tuple[float, float], ...]]:
    """ε at ``delta``, and δ at several ε, with all noise times STEP^power."""
    scaled = [event.scaled(STEP**power) for event in events]
    found = loss_distribution(scaled, neighbors, 4 * COARSE_GRID)
    curve = tuple((float(e), float(found.get_delta(float(e)))) for e in np.linspace(0, 6, 25))
    return float(found.get_epsilon(delta)), curve


def one_run_lower(
    canaries: int, guesses: int, right: int, *, delta: float, confidence: float = 0.95
) -> float:
    """A lower bound on ε from one run (Steinke, Nasr & Jagielski 2023, Theorem 5.2).

    Each of the canaries was put in or left out by a fair coin of its own. Of ``guesses`` about
    them, ``right`` were right.

    Examples
    --------
    >>> round(one_run_lower(1000, 100, 95, delta=1e-5), 2)
    2.17
    """
    if not 0 <= right <= guesses <= canaries:
        raise InputError(f"{right} right of {guesses} guesses about {canaries} canaries?")

    def refuted(epsilon: float) -> bool:
        return _one_run_p(canaries, guesses, right, epsilon, delta) < 1 - confidence

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _one_run_p(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Probability of so many right guesses at most, if the mechanism has (ε, δ).

    P[W ≥ v] + 2mδ·max over i of P[v − i ≤ W < v]/i, for W ~ Binomial(r, e^ε/(1 + e^ε)).
    """
    rate = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, rate))
    if delta == 0 or right == 0:
        return min(1.0, tail)
    below = binom.pmf(range(right - 1, -1, -1), guesses, rate).cumsum()
    worst = max(total / i for i, total in enumerate(below, start=1))
    return min(1.0, tail + 2 * canaries * delta * float(worst))
