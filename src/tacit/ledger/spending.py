r"""What an account has spent, and what would still fit.

**Everything is composed at once.** Let an account allow (ε, δ). Its events, of all plans, are
composed as one list, which costs δ₁(ε). To this come

- *numerics*: m draws of all plans together are within total variation τ = m·2⁻¹⁸⁰ of exact ones,
  which costs (1 + e^ε)·τ at the account's ε, and not at a plan's smaller one
  (`tacit.mechanisms.lattice.numerical_delta`);
- *tests*: the probabilities δ_t with which private tests pass wrongly;
- *failures*: what may reveal everything, with the probabilities that the plans state, which add up
  in any composition (`tacit.privacy.events.Failure`);
- `PLD_SLACK` for every plan with events that are not Gaussian, as in its certificate.

Searches among them multiply all of δ₁, and the slack with it, by the trials that they expect, and
add to ε (`tacit.privacy.accounting.repeated`).

Of *parallel* parts the worst counts, beside all that an account ever composes: a person is in one
part of each split, and nobody knows which. Parts of Gaussian noise only are one number, the largest
μ. All others are kept as branches of what is composed, each part beside each of the other splits';
too many of them become one that is no better than any (`tacit.ledger.composed`). If parts differ in
what may fail in them, the largest of these chances counts, whatever else their part costs.

The account holds as long as δ₁(ε) and these sum to at most δ. All of it is about the same unit of
privacy, row or person: plans of another unit are refused.

*Why tests add up.* Fix two neighbours and one plan with a test. If both satisfy its conditions, the
plan is dominated by its events, the test's own among them (`tacit.privacy.ptr`). If not, both fail
the test but for probability δ_t: the laws p, p′ of its outcome x have total variation δ_t at most.
Let what is run besides have the laws P_x, P′_x, given x. Then, with a₊ = max(a, 0),

    ∫(pP_x − e^ε·p′P′_x)₊ ≤ ∫ min(p, p′)·(P_x − e^ε·P′_x)₊ + ∫(p − p′)₊ ≤ δ₁(ε) + δ_t,

where δ₁ need not even count the plan's events, and counting them makes it no smaller. Plan by plan
this gives the sum. ∎

*Plans chosen in the light of earlier results.* Composition is stated for lists of events that are
fixed in advance. If all of them are Gaussian, the same limit holds for plans that are chosen one
by one (Smith & Thakurta 2022, "Fully adaptive composition for Gaussian differential privacy").
For loss distributions of sampled steps we know of no such theorem: ``docs/ledger.md`` says what
to do.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

from tacit.exceptions import InputError
from tacit.ledger.composed import Composed, composed_event, grid_for
from tacit.mechanisms.lattice import numerical_delta
from tacit.privacy.accounting.accountants import (
    MOST_STEPS,
    PLD_SLACK,
    epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    step_mu,
)
from tacit.privacy.accounting.calibrate import MARGIN
from tacit.privacy.accounting.renyi import pure_step
from tacit.privacy.accounting.repeated import weight
from tacit.privacy.certificate import check_guarantee
from tacit.privacy.events import (
    EVENTS,
    LARGEST_COUNT,
    Event,
    Failure,
    Gamma,
    Gaussian,
    Iterated,
    Parallel,
    PoissonGaussian,
    Repeated,
    sensitivity,
)
from tacit.privacy.relation import Neighbors
from tacit.privacy.unit import ROW, Unit

MOST_EVENTS = 1000  # of one plan
MOST_KINDS = 10_000  # of sampled steps in an account: to compose them anew takes minutes
FARTHEST = 1e4  # loss of a step, in multiples of which a grid is laid
NEAR = 1.02  # times the limit: what a closer look may bring down
DIGITS, LEAST_OFFER = 3, 1e-4  # of an epsilon that is offered


@dataclass(frozen=True)
class Limits:
    """What an account allows, for which neighbours, and for which unit of privacy.

    Attributes
    ----------
    epsilon, delta : float
        Most that all plans together may spend.
    neighbors : str
        The relation that the account is kept in.
    unit : Unit
        Whose contributions are counted.
    """

    epsilon: float
    delta: float
    neighbors: Neighbors
    unit: Unit = ROW

    def __post_init__(self) -> None:
        check_guarantee(self)

    def to_dict(self) -> dict[str, Any]:
        """As an entry states it; accounts of rows do not say so, as they never did.

        Returns
        -------
        dict
            Attributes by name, as plain JSON values; without ``unit`` if that is a row.
        """
        facts = {"epsilon": self.epsilon, "delta": self.delta, "neighbors": self.neighbors}
        return facts | unit_facts(self.unit)


def unit_facts(unit: Unit) -> dict[str, Any]:
    """What an entry says of a unit: nothing of rows."""
    return {} if unit == ROW else {"unit": unit.to_dict()}


@dataclass(frozen=True)
class Spending:
    """What one plan spends.

    Attributes
    ----------
    events : tuple of (str, Event)
        Everything that touches private rows, by name.
    draws : int
        Discrete Gaussians drawn; 0 if ideal arithmetic is assumed.
    failure : float
        Probability that its private test passes wrongly; 0 without one.
    """

    events: tuple[tuple[str, Event], ...]
    draws: int = 0
    failure: float = 0.0

    def __post_init__(self) -> None:
        try:
            pairs = tuple((str(name)[:200], event) for name, event in self.events)
        except (TypeError, ValueError):
            raise InputError("events must be pairs of a name and an event") from None
        if not all(type(event) in EVENTS.values() for _, event in pairs):
            raise InputError("events must be those of tacit.privacy.events")
        draws, failure = checked(len(pairs), self.draws, self.failure)
        object.__setattr__(self, "events", pairs)
        object.__setattr__(self, "draws", draws)
        object.__setattr__(self, "failure", failure)

    def to_dict(self) -> dict[str, Any]:
        events = [{"stage": name, **event.to_dict()} for name, event in self.events]
        return {"events": events, "draws": self.draws, "failure": self.failure}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Spending:
        events = tuple((item["stage"], Event.from_dict(item)) for item in data["events"])
        return Spending(events, data["draws"], data["failure"])


def checked(events: int, draws: Any, failure: Any) -> tuple[int, float]:
    """``draws`` and ``failure``, if they may be believed."""
    if not 0 < events <= MOST_EVENTS:
        raise InputError(f"a plan has from 1 to {MOST_EVENTS} events")
    if isinstance(draws, bool) or not isinstance(draws, int) or not 0 <= draws <= 10**18:
        raise InputError(f"draws={draws!r:.80} must be an integer from 0 on")
    if isinstance(failure, bool) or not isinstance(failure, int | float) or not 0 <= failure < 1:
        raise InputError(f"failure={failure!r:.80} must be a number from 0 to 1")
    return draws, float(failure)


class _Kept(NamedTuple):
    """What the first so many events that are not Gaussian were composed to.

    ``last`` has those that were composed last, and to what: to be done again, closer, where little
    is missing.
    """

    composed: Composed | None = None
    events: int = 0
    last: tuple[Composed, tuple[Event, ...]] | None = None

    def usable(self, limits: Limits) -> bool:
        """Whether it is for these neighbours, on a grid that is fine enough."""
        if self.composed is None:
            return True
        same = self.composed.neighbors == limits.neighbors
        return same and self.composed.grid <= grid_for(limits.epsilon)


class Tally:
    """All that was spent in an account. It only grows.

    Gaussian steps become one, exactly. The others are composed one after another, and what they
    came to is kept (`tacit.ledger.composed`).
    """

    def __init__(self) -> None:
        self._squares: list[float] = []  # count/noise² of Gaussian noise: μ² in units of one row
        # Selections, and parallel parts of Gaussian noise: one of them, and how many there were.
        self._gaussians: dict[Event, int] = {}
        # One step, how often it was taken, and the chance that its drift failed to hold.
        self._sampled: dict[PoissonGaussian, tuple[int, float]] = {}
        self._others: dict[Event, int] = {}  # gamma noise, passes, searches: one, and how many
        self._failures: list[float] = []
        self._draws = 0
        self._plans = 0  # with losses that are composed on a grid
        self._others_in_order: list[Event] = []  # all that is not Gaussian
        self._kept = _Kept()  # replaced as a whole: threads may share a tally

    def copy(self) -> Tally:
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list | dict):
                setattr(other, name, value.copy())
        return other

    def add(self, events: Iterable[Event], draws: int, failure: float) -> None:
        sampled = False
        for event in events:
            if type(event) is Gaussian:
                self._squares.append(event.count * (1 / event.noise_multiplier) ** 2)
                continue
            if event.gaussian:
                one = replace(event, count=1)
                self._gaussians[one] = self._gaussians.get(one, 0) + event.count
                continue
            if isinstance(event, Failure | Parallel):
                self._failures.append(event.failure)
            if isinstance(event, Failure):
                continue
            sampled = sampled or event.sampled
            self._others_in_order.append(event)
            if not isinstance(event, PoissonGaussian):
                one = replace(event, count=1)
                self._others[one] = self._others.get(one, 0) + event.count
                continue
            step = replace(event, count=1, failure=0.0)
            count, chance = self._sampled.get(step, (0, 0.0))
            self._sampled[step] = count + event.count, (chance + event.failure) * (1 + 1e-15)
        self._failures.append(failure)
        self._draws += draws
        self._plans += sampled

    def plus(self, spending: Spending) -> Tally:
        other = self.copy()
        other.add((event for _, event in spending.events), spending.draws, spending.failure)
        return other

    def mu(self, neighbors: Neighbors) -> float:
        """μ of all Gaussian events: μ² = Σ count·(sensitivity/noise)² (Dong, Roth & Su 2022,
        Cor. 3.3), rounded up."""
        unit = sensitivity(neighbors)
        chosen = (count * step_mu(one, neighbors) ** 2 for one, count in self._gaussians.items())
        return math.sqrt(math.fsum([unit**2 * math.fsum(self._squares), *chosen])) * (1 + 2e-15)

    def events(self, neighbors: Neighbors, *, gaussian: bool = True) -> tuple[Event, ...]:
        """As few events as cost the same, with those that are Gaussian or without."""
        mu = self.mu(neighbors) if gaussian else 0.0
        found: list[Event] = [Gaussian(sensitivity(neighbors) / mu)] if mu > 1e-150 else []
        for step, (count, chance) in self._sampled.items():
            while count > 0:
                part = min(count, LARGEST_COUNT)
                failure = min(chance, math.nextafter(1.0, 0.0))  # above every δ
                found.append(replace(step, count=part, failure=failure))
                count, chance = count - part, 0.0
        for one, count in self._others.items():
            while count > 0:
                found.append(replace(one, count=min(count, MOST_STEPS)))
                count -= MOST_STEPS
        return tuple(found)

    def slack(self, epsilon: float) -> float:
        """What numerics and tests take from δ at the account's ε, rounded up."""
        parts = [*self._failures, numerical_delta(self._draws, epsilon)]
        return math.fsum([*parts, self._plans * PLD_SLACK * self._weight()]) * (1 + 1e-12)

    def _weight(self) -> float:
        """What searches multiply δ by: the product of the trials that they expect."""
        log = math.fsum(count * _log_weight(one) for one, count in self._others.items())
        return math.exp(min(log * (1 + 1e-12), 700.0))

    def left_of(self, limits: Limits) -> float:
        """The δ that events may use."""
        return limits.delta - self.slack(limits.epsilon)

    # --- what is not Gaussian ------------------------------------------------------------------

    @property
    def others(self) -> int:
        """How many events are not Gaussian."""
        return len(self._others_in_order)

    @property
    def composed_events(self) -> int:
        """How many of these were composed already."""
        return self._kept.events

    def behind(self, limits: Limits) -> bool:
        """Whether there are events that were not composed yet: it may take long."""
        return self._kept.events < self.others or not self._kept.usable(limits)

    def adopt(self, composed: Composed, events: int) -> None:
        """Use what the first so many events that are not Gaussian were composed to."""
        if self._kept.events < events <= self.others:
            self._kept = _Kept(composed, events)

    def starting_from(self, composed: Composed, events: int) -> Tally:
        """The same, with what its first events were composed to elsewhere."""
        other = self.copy()
        other._kept = _Kept(composed, events)
        return other

    def composed(self, limits: Limits) -> Composed:
        """All events that are not Gaussian, composed: those that are new to what is kept.

        Raises
        ------
        OverflowError
            If they cost so much more than the limits allow that no grid holds them.
        """
        kept, everything = self._kept, self._others_in_order
        whole, fresh = Composed(limits.neighbors, grid_for(limits.epsilon)), self
        if kept.usable(limits):
            whole = kept.composed or whole
            if kept.events == len(everything):
                return whole
            fresh = Tally()
            fresh.add(everything[kept.events :], 0, 0.0)
        if len(self._sampled) + len(self._others) > MOST_KINDS:
            raise OverflowError("too many kinds of events")
        events = fresh.events(limits.neighbors, gaussian=False)
        if _hopeless(events, limits.neighbors, limits.epsilon):
            raise OverflowError("hardly any noise")
        found = _fold(whole, events)
        self._kept = _Kept(found, len(everything), (whole, events))
        return found

    def _closer(self) -> bool:
        """Compose what was composed last once more, closer; whether there was anything."""
        _, events, last = self._kept
        if last is None:
            return False
        self._kept = _Kept(_fold(*last, fine=True), events)
        return True

    # --- what everything costs -----------------------------------------------------------------

    def fits(self, limits: Limits) -> bool:
        """Whether all of it lies within the limits."""
        left = self.left_of(limits)
        if not left > 0:
            return False
        try:
            return self._delta(limits, self.mu(limits.neighbors)) <= left
        except OverflowError:
            return False

    def _delta(self, limits: Limits, mu: float) -> float:
        """δ at the account's ε, if the Gaussian events had this μ."""
        if not self.others:
            return gaussian_delta(mu, limits.epsilon)
        return self.composed(limits).delta(limits.epsilon, mu**2 * (1 + 4e-16))

    def epsilon(self, limits: Limits) -> float:
        """ε of everything at the account's δ, never below the truth; infinite if δ is used up."""
        left, mu = self.left_of(limits), self.mu(limits.neighbors)
        # Far beyond the limits no search for the precise ε is needed.
        if not left > 0 or mu > 1e4:
            return math.inf
        if not self.others:
            return gaussian_epsilon(mu, left)
        square, first = mu**2 * (1 + 4e-16), limits.epsilon
        try:
            found = self.composed(limits).epsilon(left, square, first)
            if first < found < NEAR * first and self._closer():
                found = min(found, self.composed(limits).epsilon(left, square, first))
        except OverflowError:
            return math.inf
        return found

    def room(self, limits: Limits, delta: float, spending: Spending | None = None) -> float:
        """About the largest ε at ``delta`` that one more plan may have, rounded down.

        The plan is taken for one Gaussian mechanism, besides the draws and tests of ``spending``:
        exact if its events are Gaussian. Whatever is offered was tried, as a Gaussian; a search,
        or parallel parts, as the same with more noise.
        """
        unit = sensitivity(limits.neighbors)
        draws, failure, sampled = 0, 0.0, False
        if spending is not None:
            draws, failure = spending.draws, spending.failure
            sampled = any(event.sampled for _, event in spending.events)
            failure += math.fsum(
                e.failure for _, e in spending.events if isinstance(e, Failure | Parallel)
            )
        left = self.left_of(limits) - failure - numerical_delta(draws, limits.epsilon)
        left -= PLD_SLACK * sampled
        if not left > 0 or not self.fits(limits):
            return 0.0
        if spending is not None and any(
            isinstance(e, Repeated | Parallel) and not e.gaussian for _, e in spending.events
        ):
            return self._room_for_search(limits, delta, spending)
        used = self.mu(limits.neighbors)
        mu = math.sqrt(max(self._most(limits, left) ** 2 - used**2, 0.0))
        mu *= 0.99 if sampled else 1 - 1e-9
        for _ in range(8):
            whole = gaussian_epsilon(mu, delta)
            if whole < LEAST_OFFER:
                break
            scale = 10.0 ** (DIGITS - 1 - math.floor(math.log10(whole)))
            offered = math.floor(whole * scale * (1 + 1e-6)) / scale
            # A plan for this calibrates its events for a δ without its own numerics.
            own = numerical_delta(draws, offered) + PLD_SLACK * sampled
            mu = gaussian_mu(offered * (1 - MARGIN), max(delta - own, delta / 2))
            tried = self.copy()
            tried.add([Gaussian(unit / mu)], draws, failure + PLD_SLACK * sampled)
            if tried.fits(limits):
                return offered
            mu *= 0.97
        return 0.0

    def _most(self, limits: Limits, left: float) -> float:
        """The largest μ that Gaussian events may have beside the others, rounded down."""
        if not self.others:
            return gaussian_mu(limits.epsilon, left)
        low, high = self.mu(limits.neighbors), gaussian_mu(limits.epsilon, left)
        if not self._delta(limits, low) < left:
            return low
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self._delta(limits, middle) <= left else (low, middle)
            if high - low < 1e-6 * high:
                break
        return low

    def _room_for_search(self, limits: Limits, delta: float, spending: Spending) -> float:
        low, high, offered = 0.0, math.log(64), 0.0  # log of how many times the noise
        for _ in range(12):
            middle = (low + high) / 2
            more = tuple((name, event.scaled(math.exp(middle))) for name, event in spending.events)
            if self.plus(replace(spending, events=more)).fits(limits):
                high = middle
                found = epsilon([event for _, event in more], delta, limits.neighbors) * 0.99
                offered = found if found < math.inf else offered
            else:
                low = middle
        if offered < LEAST_OFFER:
            return 0.0
        scale = 10.0 ** (DIGITS - 1 - math.floor(math.log10(offered)))
        return math.floor(offered * scale) / scale


def _log_weight(event: Event) -> float:
    """ln of the trials that a search expects; of parallel parts, of the most in one."""
    if isinstance(event, Parallel):
        sums = (math.fsum(e.count * _log_weight(e) for e in part) for part in event.parts)
        return max(sums)
    return math.log(weight(event)) if isinstance(event, Repeated) else 0.0


def _fold(whole: Composed, events: Iterable[Event], fine: bool = False) -> Composed:
    try:
        made = (composed_event(event, whole.neighbors, whole.grid, fine) for event in events)
        return reduce(Composed.beside, made, whole)
    except MemoryError:
        raise OverflowError("a grid that does not fit") from None


def _hopeless(events: Sequence[Event], neighbors: Neighbors, limit: float) -> bool:
    """Whether so little noise was added that a grid of losses would be too large.

    In noise multipliers: a step has losses up to about r²/2 + 10r, r = sensitivity/noise, and all
    of them together have a mean of about half the squared distance of their means.
    """
    found = [_losses(event, neighbors) for event in events]
    mean = math.fsum(middle for _, middle in found)
    return mean > 10 * limit + 10 or any(far > FARTHEST for far, _ in found)


def _losses(event: Event, neighbors: Neighbors) -> tuple[float, float]:
    """About the largest loss of one step, and the mean loss of all its steps."""
    if isinstance(event, Repeated | Parallel):
        lists = event.trial if isinstance(event, Repeated) else event.parts
        found = [
            [_losses(e, neighbors) for e in some if not isinstance(e, Failure)] for some in lists
        ]
        means = [math.fsum(middle for _, middle in each) for each in found]
        return max(far for each in found for far, _ in each), event.count * max(means)
    reach = sensitivity(neighbors) / event.noise_multiplier
    often = event.count * getattr(event, "sampling_probability", 1.0) ** 2
    if isinstance(event, Gamma):
        reach, often = pure_step(event, neighbors), event.count
    elif isinstance(event, Iterated):
        often *= (1 + math.log(event.steps)) / event.steps
    return reach**2 / 2 + 10 * reach, often * reach**2 / 2
