r"""The best of a random number of trials: what it costs beyond one trial.

K trials of a mechanism Q are made, independently, and the outcome of the best score is released; K
is drawn without looking at the rows and is not released (Liu & Talwar 2019, Papernot & Steinke
2022). Let f be the generating function of K, and q the chance that a trial's outcome ranks below
the outcome y, a coin deciding between equals. Then y is released with density Q(y)·f′(q), and for
a neighbour with Q′(y)·f′(q′).

*Two facts are enough.* (1) f′ increases, so f′(q) ≤ f′(1) = E K, the *weight*. (2) Suppose that
ln f′(q) − ln f′(q′) ≤ c for all outcomes: the *shift*. Then, whatever else is released, with P
against P′, before or afterwards, adaptively or not,

    P·Q·f′(q) − e^ε·P′·Q′·f′(q′) ≤ f′(q)·(P·Q − e^(ε−c)·P′·Q′).

Hence δ(ε) ≤ E K·δ₁(ε − c), where δ₁ counts *one* trial beside everything else. Several searches
multiply their weights and add their shifts.

*The shift.* Let s = 1 − q and s′ = 1 − q′. The profile δ_Q of a trial says s′ ≤ e^x·s + δ_Q(x) for
every x ≥ 0. A negative binomial K has f′(q) in proportion to (γ + (1−γ)s)^(−1−η) (Papernot &
Steinke 2022, Definition 1), and

    γ + (1−γ)s′ ≤ e^x·(γ + (1−γ)s) − γ·(e^x − 1) + (1−γ)·δ_Q(x).

So c = (1+η)·x for any x with (1−γ)·δ_Q(x) ≤ γ·(e^x − 1), and the least such x is the best that the
profile allows. A Poisson K has f′(q) in proportion to e^(−λs), so c = λ·δ_Q(0). That no trial is
made at all is excluded in both, which changes f′ by a constant factor only.

Koskela, Redberg & Wang 2024 ("Privacy profiles for private selection") bound the profile of a
search by that of a trial in the same spirit; the least x and the composition with other events
are worked out above and in ``docs/decisions/0021``. Rényi divergences (`renyi_epsilon`) ask for a
quarter to a half more noise; they are kept to show that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement, product
from typing import NamedTuple

from scipy.optimize import brentq, minimize_scalar

from tacit.exceptions import InputError
from tacit.privacy.events import MOST_TRIALS, SLOWEST_STOP, Event, Repeated

Profile = Callable[[float], float]  # δ as a function of ε

UP = 1 + 1e-12  # covers the rounding of a few elementary functions
MOST_COMBINATIONS = 32
FARTHEST = 500.0  # a shift beyond which nothing is claimed
LARGEST_LOG = 700.0  # logarithm of a weight: a δ divided by so much is none


class Unfolded(NamedTuple):
    """Events in which every search stands for one trial, and what it costs beyond that.

    Attributes
    ----------
    weight, shift : float
        δ(ε) is at most ``weight`` times that of the events at ε − ``shift``.
    events : tuple of tuples of events
        The worst of these lists counts.
    """

    weight: float
    shift: float
    events: tuple[tuple[Event, ...], ...]


def weight(event: Repeated) -> float:
    """Expected number of trials, E K, rounded up.

    Negative binomial: η(1−γ)/(γ(1−γ^η)), or (1−γ)/(γ·ln(1/γ)) for η = 0 (Papernot & Steinke 2022,
    Definition 1). Poisson, given that it is not zero: λ/(1 − e^−λ).
    """
    return max(_mean(event.distribution, event.shape, event.rate) * UP, 1.0)


def _mean(distribution: str, shape: float, rate: float) -> float:
    if distribution == "poisson":
        return rate / -math.expm1(-rate)
    if rate == 1:
        return 1.0
    log = math.log(rate)
    lost = -math.expm1(shape * log) / shape if abs(shape) > 1e-300 else -log
    return (1 - rate) / (rate * lost)


def rate_for(trials: float, distribution: str, shape: float = 0.0) -> float:
    """γ of the negative binomial, or λ of the Poisson, with which that many trials are expected.

    Examples
    --------
    >>> rate_for(10, "negative-binomial", 1.0)
    0.1
    """
    low, high = SLOWEST_STOP, 1.0
    if distribution == "poisson":
        low, high = 1e-9, MOST_TRIALS
    least, most = sorted(_mean(distribution, shape, rate) for rate in (low, high))
    if not least * (1 - 1e-9) <= trials <= most * (1 + 1e-9):
        raise InputError(
            f"trials={trials:g}: of this distribution {least:.4g} to {most:.4g} can be expected"
        )
    if distribution != "poisson" and (trials == 1 or shape == 1):
        return max(1 / trials, low)

    def excess(log_rate: float) -> float:
        return math.log(_mean(distribution, shape, math.exp(log_rate)) / trials)

    ends = (math.log(low), math.log(high))
    for end, rate in zip(ends, (low, high), strict=True):
        if abs(excess(end)) <= 1e-9:
            return rate
    found = math.exp(float(brentq(excess, *ends, xtol=1e-14)))
    return min(max(found, low), high)


def shift(event: Repeated, profile: Profile) -> float:
    """c, for trials of that profile, rounded up."""
    if event.distribution == "poisson":
        return event.rate * profile(0.0) * UP
    stop, go = event.rate, 1 - event.rate
    if go == 0:
        return 0.0

    def missing(x: float) -> bool:
        """Whether x is too small. Any x that is not will do."""
        return not go * profile(x) * UP <= stop * math.expm1(x)

    low, high = 0.0, 1e-3
    while missing(high):
        low, high = high, high * 2
        if high > FARTHEST:
            return math.inf
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if missing(middle) else (low, middle)
    return (1 + event.shape) * high * UP


def unfold(
    events: Sequence[Event],
    profile: Callable[[Sequence[Event]], Profile],
    merge: Callable[[Sequence[tuple[Event, ...]]], Sequence[tuple[Event, ...]]],
) -> Unfolded:
    """``events`` with every search taken for one of its trials, and what to add.

    Parameters
    ----------
    events : sequence of Event
        Repeated ones among others.
    profile : callable
        Gives the profile δ(ε) of a trial's events, never below the truth.
    merge : callable
        Makes of lists of events fewer, the worst of which is no better.
    """
    logs, moved = 0.0, 0.0
    choices: list[tuple[Sequence[tuple[Event, ...]], int]] = []
    for event in events:
        if not isinstance(event, Repeated):
            choices.append(([(event,)], 1))
            continue
        lists = merge(event.trial)
        curves = [profile(trial) for trial in lists]
        moved += event.count * shift(event, _worst(curves))
        logs += event.count * math.log(weight(event))
        choices.append((lists, event.count))
    combined = tuple(every_combination(choices))
    return Unfolded(math.exp(min(logs * UP, LARGEST_LOG)) * UP, moved * UP, combined)


def every_combination(
    choices: Sequence[tuple[Sequence[tuple[Event, ...]], int]],
) -> list[tuple[Event, ...]]:
    """All lists of events that a choice of one list at every turn may come to.

    Of each (lists, count) one list is taken, ``count`` times anew: not the same one every time, for
    two unlike ones may together cost more than either of them twice.

    Examples
    --------
    >>> from tacit.privacy.events import Gaussian
    >>> one, two = (Gaussian(1.0),), (Gaussian(2.0),)
    >>> [len(events) for events in every_combination([([one, two], 2)])]
    [1, 2, 1]
    """
    turns: list[list[tuple[Event, ...]]] = []
    unlike: Counter[tuple[tuple[Event, ...], ...]] = Counter()
    for lists, count in choices:
        if len(lists) == 1:
            turns.append([tuple(_times(e, count) for e in lists[0])])
        else:
            unlike[tuple(lists)] += count
    many = math.prod(math.comb(n + len(lists) - 1, n) for lists, n in unlike.items())
    if many > MOST_COMBINATIONS:
        raise InputError(
            "so many searches over unlike settings, or unlike parallel parts, cannot be counted "
            "together"
        )
    for several, count in unlike.items():
        drawn = combinations_with_replacement(range(len(several)), count)
        turns.append(
            [
                tuple(_times(e, taken.count(i)) for i in dict.fromkeys(taken) for e in several[i])
                for taken in drawn
            ]
        )
    return [tuple(e for part in parts for e in part) for parts in product(*turns)]


def _times(event: Event, count: int) -> Event:
    return event if count == 1 else event.times(count)


def _worst(curves: Sequence[Profile]) -> Profile:
    return lambda x: max(curve(x) for curve in curves)


def renyi_epsilon(event: Repeated, mu: float, delta: float) -> float:
    """ε by Rényi divergences, for trials that are μ-Gaussian: for comparison.

    ε(λ) + (1+η)(1 − 1/λ₂)ε(λ₂) + (1+η)ln(1/γ)/λ₂ + ln(E K)/(λ−1) at orders λ > 1, λ₂ ≥ 1 (Papernot
    & Steinke 2022, Theorem 2), ε(λ) = λμ²/2, both at their best.
    """
    if event.distribution != "negative-binomial":
        raise InputError("the comparison is for negative binomial numbers of trials")
    stop = -math.log(event.rate)
    second = max(1.0, math.sqrt(2 * stop) / mu)
    fixed = (1 + event.shape) * ((second - 1) * mu**2 / 2 + stop / second)

    def at(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        gain = (math.log(1 / delta) - math.log(order)) / (order - 1) + math.log1p(-1 / order)
        return order * mu**2 / 2 + fixed + math.log(weight(event)) / (order - 1) + gain

    bounds = (math.log(1e-3), math.log(1e6))
    return max(float(minimize_scalar(at, bounds=bounds, method="bounded").fun), 0.0)
