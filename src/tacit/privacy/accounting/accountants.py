"""What a list of events costs: exact Gaussian DP, loss distributions, or Rényi divergences.

Every function rounds to the safe side: an ε or δ that is returned is never
below the true one (for loss distributions: once `PLD_SLACK` is set aside in δ),
a μ that may be spent never above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_expit, log_ndtr, ndtri_exp

from tacit.exceptions import InputError
from tacit.privacy.accounting import renyi
from tacit.privacy.accounting.mixtures import loss_of_sampled_step
from tacit.privacy.accounting.repeated import Profile, Unfolded, every_combination, unfold
from tacit.privacy.events import (
    Event,
    Failure,
    Gamma,
    Gaussian,
    Iterated,
    Parallel,
    PoissonGaussian,
    Repeated,
    Selection,
    sensitivity,
)
from tacit.privacy.relation import Neighbors

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

FINE_GRID = 1e-4  # what certificates are confirmed on
COARSE_GRID = 1e-3  # about five times faster, costs 0.2% of noise: for searching
# dp-accounting rounds its grids up but convolves them in floating point: at δ = 1e-12 its ε was
# seen 0.26% too small after 10,000 steps, as if 2e-13 of δ were missing. Plans set this aside.
PLD_SLACK = 1e-11
MOST_STEPS = 10**6  # sampled steps of one kind; a grid of so many is slow, and far too careful
STEP_POINTS, ALL_POINTS = 2**20, 2**23  # of a grid: up to half a minute, and half a gigabyte

# --- exact Gaussian differential privacy (Dong, Roth & Su 2022) -----------------------------


def total_mu(events: Sequence[Event], neighbors: Neighbors) -> float:
    """μ of Gaussian events together: μ² = Σ count·μᵢ², μᵢ = sensitivity/noise (Cor. 3.3)."""
    squares = math.fsum(e.count * step_mu(e, neighbors) ** 2 for e in events)
    return math.sqrt(squares) * (1 + 1e-15)


def step_mu(event: Event, neighbors: Neighbors) -> float:
    """μ of a Gaussian event, taken once; of parallel parts, that of the worst.

    N(μ, 1) against N(0, 1) is made of the same with a larger μ, by scaling it and adding noise: so
    the part of the largest μ dominates all, whatever is beside it.
    """
    if type(event) is Gaussian:
        return sensitivity(neighbors) / event.noise_multiplier
    if not event.gaussian:
        raise InputError(f"an event of kind {event.kind!r} has no Gaussian account")
    if isinstance(event, Parallel):
        return max(total_mu(part, neighbors) for part in event.parts)
    reach = sensitivity(neighbors) / event.noise_multiplier
    return selection_mu(reach) if isinstance(event, Selection) else reach


def selection_mu(reach: float) -> float:
    """μ of an exponential mechanism whose exponents move by at most ``reach``, rounded up.

    Its privacy loss lies in an interval of length 2·reach (Durfee & Rogers 2019), so it is
    dominated by a pair on two points, chances p against q with logit p − logit q = 2·reach (Dong,
    Durfee & Rogers 2020). The trade-off of such a pair has one corner, at which N(0, 1) against
    N(μ, 1) is as hard to tell apart iff μ = Φ⁻¹(p) − Φ⁻¹(q). The slope of Φ⁻¹ as a function of the
    logit is even and falls on both sides of zero, from √(2π)/4, so the worst pair is symmetric:
    μ = 2·Φ⁻¹(1/(1 + e^−reach)). ``docs/decisions/0014`` has the proof.
    """
    exact = -2 * float(ndtri_exp(log_expit(-reach))) * (1 + 1e-12) + 1e-14
    return min(exact, math.sqrt(math.pi / 2) * reach * (1 + 1e-15))


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


@lru_cache(maxsize=1 << 12)  # of public numbers: the next fit asks for the same ones
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


@lru_cache(maxsize=1 << 12)
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


AS_DP_EVENT: dict[type[Event], Callable[[Any], DpEvent]] = {
    Gaussian: _gaussian,
    PoissonGaussian: _poisson_gaussian,
}


class LossDistribution(Protocol):
    """What is asked of composed events."""

    def get_epsilon(self, target_delta: float) -> float: ...

    def get_delta(self, target_epsilon: float) -> float: ...


def loss_distribution(
    events: Sequence[Event], neighbors: Neighbors, grid: float = FINE_GRID
) -> LossDistribution:
    """dp-accounting's pessimistic accountant, with ``events`` composed.

    Its PLD accountant doubles the sensitivity under ``replace_one`` by itself;
    its RDP accountant does not, which is why no certificate rests on it. A
    coarser grid is used where losses reach too far for this one.
    """
    import dp_accounting as dpa
    from dp_accounting import pld

    sensitivity(neighbors)
    if _compound(events):
        found = alternatives(events, neighbors)
        cases = [(loss_distribution(plain, neighbors, grid), p) for plain, p in found]
        return _Worst(tuple(cases))
    if any(isinstance(event, Repeated) for event in events):
        return _searched(events, neighbors, grid)
    # Gaussians together are one Gaussian, exactly: no need to convolve them on a grid.
    gaussians = [event for event in events if event.gaussian]
    if len(gaussians) > 1 or any(type(event) is not Gaussian for event in gaussians):
        noise = sensitivity(neighbors) / total_mu(gaussians, neighbors)
        events = [Gaussian(noise), *(event for event in events if not event.gaussian)]
    drifts = _drifts(events, neighbors)
    most = 10 * MOST_STEPS if drifts else MOST_STEPS
    for event in events:
        if not event.gaussian and event.count > most:
            raise InputError(
                f"{event.count} sampled steps are too many to be counted on a grid: take "
                f"{most} at most, or all rows in every step"
            )
    pure = [renyi.pure_step(event, neighbors) for event in events if isinstance(event, Gamma)]
    if pure and pure[0] < 50:  # a grid that has these losses on it, or all steps would round up
        grid = pure[0] / math.ceil(pure[0] / grid)
    several = any(getattr(event, "rows", 1) > 1 for event in events)
    if pure or drifts or several or any(isinstance(event, Iterated) for event in events):
        return _one_by_one(events, neighbors, grid)
    grid = _affordable(events, neighbors, grid)
    accountant = pld.PLDAccountant(dpa.NeighboringRelation[neighbors.upper()], grid)
    for event in events:
        accountant.compose(dpa.SelfComposedDpEvent(AS_DP_EVENT[type(event)](event), event.count))
    return accountant


def _affordable(events: Sequence[Event], neighbors: Neighbors, grid: float) -> float:
    """``grid``, or a coarser one that bounds time and memory: each errs upwards.

    With r = sensitivity/noise a step has losses up to r²/2 + 10r on either side, beyond which
    lies next to nothing, and a mean loss of at most q·r²/2, as KL divergence is convex.
    """
    one = whole = 0.0
    for event in events:
        q = getattr(event, "sampling_probability", 1.0)
        square = (sensitivity(neighbors) / event.noise_multiplier) ** 2
        square *= event.count if type(event) is Gaussian else 1  # they are one step, exactly
        one += square + 20 * math.sqrt(square)
        whole += q * square / 2 * (1 if type(event) is Gaussian else event.count)
    return max(grid, one / STEP_POINTS, whole / ALL_POINTS)


# --- one by one: kinds of steps that dp-accounting has no event for --------------------------


class _Drifted(NamedTuple):
    """A loss distribution, and the probability that it does not hold."""

    loss: PrivacyLossDistribution
    failure: float

    def get_epsilon(self, target_delta: float) -> float:
        left = math.nextafter(target_delta - self.failure, -math.inf)
        return float(self.loss.get_epsilon_for_delta(left)) if left > 0 else math.inf

    def get_delta(self, target_epsilon: float) -> float:
        spent = float(self.loss.get_delta_for_epsilon(target_epsilon))
        return min((spent + self.failure) * (1 + 1e-15), 1.0)


def _drifts(events: Sequence[Event], neighbors: Neighbors) -> bool:
    """Whether any step is one on rows that drifted; only replaced rows have a rule for it."""
    if not any(isinstance(event, PoissonGaussian) and event.drifts for event in events):
        return False
    if neighbors != "replace_one":
        raise InputError(
            "steps on rows that drifted are counted for neighbors='replace_one' only, "
            f"not for {neighbors!r}: drift is stated for tables of equally many rows"
        )
    return True


def _one_by_one(events: Sequence[Event], neighbors: Neighbors, grid: float) -> _Drifted:
    """Losses of kinds that dp-accounting has no event for, beside any others."""
    first, *others = (AS_LOSS[type(event)](event, neighbors, grid) for event in events)
    for loss in others:
        first = first.compose(loss)
    failure = math.fsum(getattr(event, "failure", 0.0) for event in events)
    return _Drifted(first, failure * (1 + 1e-15))


def _gaussian_loss(event: Gaussian, neighbors: Neighbors, grid: float) -> PrivacyLossDistribution:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        event.noise_multiplier / math.sqrt(event.count) * (1 - 1e-15),
        value_discretization_interval=grid,
        neighboring_relation=NeighboringRelation[neighbors.upper()],
    )


def _poisson_loss(
    event: PoissonGaussian, neighbors: Neighbors, grid: float
) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution

    if neighbors == "replace_one" or event.rows > 1:
        return _often(loss_of_sampled_step(event, neighbors, grid), event.count)
    step = privacy_loss_distribution.from_gaussian_mechanism(
        event.noise_multiplier,
        value_discretization_interval=grid,
        sampling_prob=event.sampling_probability,
    )
    return _often(step, event.count)


def _often(step: PrivacyLossDistribution, count: int) -> PrivacyLossDistribution:
    """So many steps; one stays as it is, without an error of its own."""
    return step.self_compose(count) if count > 1 else step


def _gamma_loss(event: Gamma, neighbors: Neighbors, grid: float) -> PrivacyLossDistribution:
    """Gamma steps as what they are at worst, randomised response.

    Rényi accounts, which certificates of gamma noise rest on, are less tight: this checks them.
    """
    from dp_accounting.pld import common, privacy_loss_distribution

    two = common.DifferentialPrivacyParameters(renyi.pure_step(event, neighbors))
    made = privacy_loss_distribution.from_privacy_parameters(two, grid)
    return _often(made, event.count)


_STOPS = 80  # numbers of steps that are told apart


def _iterated_loss(event: Iterated, neighbors: Neighbors, grid: float) -> PrivacyLossDistribution:
    """A pass over rows in their order, which hides all iterates but one.

    k steps behind a row, its trace is as hard to see as through Gaussian noise of √k·z (Bok, Su &
    Altschuler 2024, Theorem 3.3 with shifts of equal size), for k = 1 … m, each with probability
    1/m, for the first row; for others k may also be none. k may be revealed, so the δ(ε) average
    over it. That is a step of replaced rows in which all are drawn and shifts b are random:
    (2 + b)/z′ = Δ/(z√k), with the least shift at the largest k.
    """
    stops = np.unique(np.floor(np.geomspace(1, event.steps, _STOPS)))
    weights = np.diff(np.append(stops, event.steps + 1)) / event.steps  # k rounded down
    last = stops[-1]
    noise = 2 * event.noise_multiplier * math.sqrt(last) / sensitivity(neighbors) * (1 - 1e-15)
    shifts = 2 * (np.sqrt(last / stops) - 1) * (1 + 1e-14)
    drift = tuple(zip(weights.tolist(), shifts.tolist(), strict=True))
    step = PoissonGaussian(noise, event.count, sampling_probability=1.0, drift=drift)
    return _often(loss_of_sampled_step(step, "replace_one", grid), event.count)


AS_LOSS: dict[type[Event], Callable[[Any, str, float], PrivacyLossDistribution]] = {
    Gaussian: _gaussian_loss,
    PoissonGaussian: _poisson_loss,
    Gamma: _gamma_loss,
    Iterated: _iterated_loss,
}


def loss_of_step(event: Event, neighbors: Neighbors, grid: float) -> tuple[PLDPmf, ...]:
    """The loss of one step, for either order of the neighbours; one, if both are the same."""
    _drifts([event], neighbors)
    loss = AS_LOSS[type(event)](replace(event, count=1), neighbors, grid)
    one, two = loss._pmf_remove, loss._pmf_add  # which has no other way to be read (0.6)
    return (one,) if one is two else (one, two)


# --- searches: the best of a random number of trials (tacit.privacy.accounting.repeated)
# ------------------

_LEAST_DELTA = 1e-300  # divided among so many trials that nothing is left


class _Searched(NamedTuple):
    """Loss distributions with one trial for every search, and what searching costs beyond."""

    weight: float
    shift: float
    losses: tuple[LossDistribution, ...]

    def get_epsilon(self, target_delta: float) -> float:
        left = target_delta / self.weight
        if not left > _LEAST_DELTA:
            return math.inf
        found = max(float(loss.get_epsilon(left)) for loss in self.losses)
        return (found + self.shift) * (1 + 1e-15)

    def get_delta(self, target_epsilon: float) -> float:
        left = target_epsilon - self.shift
        if left < 0:
            return 1.0
        return min(self.weight * max(float(loss.get_delta(left)) for loss in self.losses), 1.0)


def _searched(events: Sequence[Event], neighbors: Neighbors, grid: float) -> _Searched:
    found = unfolded(events, neighbors, grid)
    losses = tuple(loss_distribution(plain, neighbors, grid) for plain in found.events)
    return _Searched(found.weight, found.shift, losses)


def unfolded(events: Sequence[Event], neighbors: Neighbors, grid: float = FINE_GRID) -> Unfolded:
    """Events with one trial for every search among them, and what searching costs beyond."""

    def profile(trial: Sequence[Event]) -> Profile:
        kind = accountant_for(trial)
        if kind == "pld":
            curve = loss_distribution(trial, neighbors, grid)
            return lambda x: float(curve.get_delta(x)) + PLD_SLACK
        if kind == "rdp":
            return lambda x: renyi.delta(trial, x, neighbors)
        mu = total_mu(trial, neighbors)
        return lambda x: gaussian_delta(mu, x)

    return unfold(events, profile, lambda lists: _worst_lists(lists, neighbors))


# --- parallel parts, of which a unit is in one; what may fail ------------------------------------


class Alternative(NamedTuple):
    """What neighbours may see that differ in a unit of certain parts.

    Attributes
    ----------
    events : tuple of Event
        All others, and those of these parts: neither parallel nor failures.
    failure : float
        What is to be added to their δ.
    """

    events: tuple[Event, ...]
    failure: float


def _compound(events: Sequence[Event]) -> bool:
    return any(
        isinstance(event, Failure) or (isinstance(event, Parallel) and not event.gaussian)
        for event in events
    )


def alternatives(events: Sequence[Event], neighbors: Neighbors) -> tuple[Alternative, ...]:
    """Lists of events of which the worst counts, in the place of parallel parts and failures.

    δ(ε) is at most the largest of δ(ε; events) + failure over all of them: proofs are in the
    docstrings of `tacit.privacy.events.Parallel` and `Failure`. Parts of Gaussian noise only are
    dominated by that of the largest μ, whatever is beside them, and equal parts are one.
    """
    choices: list[tuple[Sequence[tuple[Event, ...]], int]] = []
    for event in events:
        if isinstance(event, Parallel) and not event.gaussian:
            choices.append((_worst_lists(event.parts, neighbors), event.count))
        else:
            choices.append(([(event,)], 1))
    found = []
    for listed in every_combination(choices):
        plain = tuple(event for event in listed if not isinstance(event, Failure))
        chances = [event.failure for event in listed if isinstance(event, Failure)]
        found.append(Alternative(plain, min(math.fsum(chances) * (1 + 1e-15), 1.0)))
    return tuple(dict.fromkeys(found))


def _worst_lists(
    lists: Sequence[tuple[Event, ...]], neighbors: Neighbors
) -> list[tuple[Event, ...]]:
    """Without repetitions; those of Gaussian noise only become one, of the largest μ."""
    distinct = list(dict.fromkeys(lists))
    gaussian = [events for events in distinct if all(e.gaussian for e in events)]
    others = [events for events in distinct if events not in gaussian]
    if not gaussian:
        return others
    mu = max(total_mu(events, neighbors) for events in gaussian)
    return [*others, (Gaussian(sensitivity(neighbors) / mu * (1 - 1e-15)),)]


class _Worst(NamedTuple):
    """Loss distributions of which the worst counts, each with what is added to its δ."""

    cases: tuple[tuple[LossDistribution, float], ...]

    @property
    def weight(self) -> float:
        """What searches multiply δ by, in the worst case."""
        return max(float(getattr(loss, "weight", 1.0)) for loss, _ in self.cases)

    def get_epsilon(self, target_delta: float) -> float:
        return max(_less(target_delta, p, loss.get_epsilon) for loss, p in self.cases)

    def get_delta(self, target_epsilon: float) -> float:
        return _more((float(loss.get_delta(target_epsilon)), p) for loss, p in self.cases)


def _less(delta: float, failure: float, epsilon_at: Callable[[float], float]) -> float:
    """ε at what a failure leaves of δ; infinite if that is nothing."""
    left = math.nextafter(delta - failure, -math.inf) if failure else delta
    return float(epsilon_at(left)) if left > 0 else math.inf


def _more(found: Iterable[tuple[float, float]]) -> float:
    return max(min((spent + p) * (1 + 1e-15 * (p > 0)), 1.0) for spent, p in found)


# --- either, whichever is exact ----------------------------------------------------------------


def accountant_for(events: Sequence[Event]) -> str:
    """``gaussian-dp`` where it is exact, ``rdp`` for gamma noise, ``pld`` otherwise.

    ``profile`` if trials are repeated: one of the others, for one trial of each. Parallel parts are
    taken together.
    """
    if all(type(event) is Gaussian for event in events):  # mostly, and asked for again and again
        return "gaussian-dp"
    events = [
        step
        for event in events
        for part in (event.parts if isinstance(event, Parallel) else ((event,),))
        for step in part
        if not isinstance(step, Failure)
    ]
    if any(isinstance(event, Repeated) for event in events):
        return "profile"
    others = [event for event in events if not isinstance(event, Gamma)]
    if len(others) == len(events):
        return "gaussian-dp" if all(e.gaussian for e in events) else "pld"
    return "rdp" if all(event.gaussian for event in others) else "pld"


def closed_form(events: Sequence[Event]) -> bool:
    """Whether no grid of losses is needed."""
    return not any(event.sampled for event in events)


def searched_trials(events: Sequence[Event], neighbors: Neighbors) -> float:
    """What searches multiply δ by, and with it the error of a grid, rounded up; 1 without any."""
    return max(unfolded(plain, neighbors).weight for plain, _ in alternatives(events, neighbors))


def epsilon(
    events: Sequence[Event], delta: float, neighbors: Neighbors, *, grid: float = FINE_GRID
) -> float:
    """ε of all events together at ``delta``, never below the truth.

    Examples
    --------
    >>> round(epsilon([Gaussian(5.0)], 1e-5, "replace_one"), 3)
    1.555
    """
    if not events:
        return 0.0
    if _compound(events):

        def cost(plain: Sequence[Event], failure: float) -> float:
            return _less(delta, failure, lambda left: epsilon(plain, left, neighbors, grid=grid))

        return max(cost(*found) for found in alternatives(events, neighbors))
    if accountant_for(events) == "gaussian-dp":
        return gaussian_epsilon(total_mu(events, neighbors), delta)
    if accountant_for(events) == "rdp":
        return renyi.epsilon(events, delta, neighbors)
    if accountant_for(events) == "profile":
        found = unfolded(events, neighbors, grid)
        left = delta / found.weight
        if not (left > _LEAST_DELTA and found.shift < math.inf):
            return math.inf
        return found.shift + max(
            epsilon(plain, left, neighbors, grid=grid) for plain in found.events
        )
    return float(loss_distribution(events, neighbors, grid).get_epsilon(delta))


def delta(
    events: Sequence[Event], epsilon: float, neighbors: Neighbors, *, grid: float = FINE_GRID
) -> float:
    """δ of all events together at ``epsilon``, never below the truth."""
    if not events:
        return 0.0
    if _compound(events):
        cases = alternatives(events, neighbors)
        return _more((delta(plain, epsilon, neighbors, grid=grid), p) for plain, p in cases)
    if accountant_for(events) == "gaussian-dp":
        return gaussian_delta(total_mu(events, neighbors), epsilon)
    if accountant_for(events) == "rdp":
        return renyi.delta(events, epsilon, neighbors)
    if accountant_for(events) == "profile":
        found = unfolded(events, neighbors, grid)
        if epsilon < found.shift:
            return 1.0
        left = epsilon - found.shift
        one = max(delta(plain, left, neighbors, grid=grid) for plain in found.events)
        return min(found.weight * one, 1.0)
    return float(loss_distribution(events, neighbors, grid).get_delta(epsilon))
