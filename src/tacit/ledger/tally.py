r"""What an account has spent, and what would still fit.

**Everything is composed at once.** Let an account allow (ε, δ). Its events, of all plans, are
composed as one list, which costs δ₁(ε). To this come

- *numerics*: m draws of all plans together are within total variation τ = m·2⁻¹⁸⁰ of exact ones,
  which costs (1 + e^ε)·τ at the account's ε, and not at a plan's smaller one
  (`tacit.mechanisms.lattice.numerical_delta`);
- *tests*: the probabilities δ_t with which private tests pass wrongly;
- `PLD_SLACK` for every plan with events that are not Gaussian, as in its certificate.

Searches among them multiply all of δ₁, and the slack with it, by the trials that they expect, and
add to ε (`tacit.privacy.repeated`).

The account holds as long as δ₁(ε) and these sum to at most δ.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from tacit.exceptions import InputError
from tacit.mechanisms.lattice import numerical_delta
from tacit.privacy.accountants import (
    COARSE_GRID,
    FINE_GRID,
    MOST_STEPS,
    PLD_SLACK,
    epsilon,
    gaussian_epsilon,
    gaussian_mu,
    loss_distribution,
    selection_mu,
    unfolded,
)
from tacit.privacy.budget import Budget
from tacit.privacy.calibrate import MARGIN
from tacit.privacy.events import (
    EVENTS,
    LARGEST_COUNT,
    Event,
    Gamma,
    Gaussian,
    Iterated,
    PoissonGaussian,
    Repeated,
    Selection,
    sensitivity,
)
from tacit.privacy.renyi import pure_step
from tacit.privacy.repeated import weight

__all__ = ["Limits", "Spending", "Tally", "checked"]

MOST_EVENTS = 1000  # of one plan
MOST_KINDS = 1000  # of sampled steps in an account: their composition takes minutes
FARTHEST = 1e4  # loss of a step, in multiples of which a grid is laid
DIGITS, LEAST = 3, 1e-4  # of an epsilon that is offered


@dataclass(frozen=True)
class Limits:
    """What an account allows, and for which neighbours."""

    epsilon: float
    delta: float
    neighbors: str

    def __post_init__(self) -> None:
        budget = Budget(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", budget.epsilon)
        object.__setattr__(self, "delta", budget.delta)
        sensitivity(self.neighbors)


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
        raise InputError(f"draws={draws!r:.80} must be a whole number from 0 on")
    if isinstance(failure, bool) or not isinstance(failure, int | float) or not 0 <= failure < 1:
        raise InputError(f"failure={failure!r:.80} must be a number from 0 to 1")
    return draws, float(failure)


class Tally:
    """All that was spent in an account. It only grows.

    Gaussian steps become one, exactly; equal sampled ones are counted together.
    """

    def __init__(self) -> None:
        self._squares: list[float] = []  # count/noise² of Gaussian noise: μ² in units of one row
        self._selections: dict[Selection, int] = {}  # one of them, and how many there were
        # One step, how often it was taken, and the chance that its drift failed to hold.
        self._sampled: dict[PoissonGaussian, tuple[int, float]] = {}
        self._others: dict[Event, int] = {}  # gamma noise, passes, searches: one, and how many
        self._failures: list[float] = []
        self._draws = 0
        self._plans = 0  # with losses that are composed on a grid

    def copy(self) -> Tally:
        other = copy.copy(self)
        for name in ("_squares", "_selections", "_sampled", "_others", "_failures"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def add(self, events: Iterable[Event], draws: int, failure: float) -> None:
        sampled = False
        for event in events:
            if type(event) is Gaussian:
                self._squares.append(event.count * (1 / event.noise_multiplier) ** 2)
                continue
            if isinstance(event, Selection):
                choice = replace(event, count=1)
                self._selections[choice] = self._selections.get(choice, 0) + event.count
                continue
            sampled = sampled or not all(part.gaussian for part in event.parts)
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

    def mu(self, neighbors: str) -> float:
        """μ of all Gaussian events: μ² = Σ count·(sensitivity/noise)² (Dong, Roth & Su 2022,
        Cor. 3.3), rounded up."""
        unit = sensitivity(neighbors)
        chosen = (
            count * selection_mu(unit / one.noise_multiplier) ** 2
            for one, count in self._selections.items()
        )
        return math.sqrt(math.fsum([unit**2 * math.fsum(self._squares), *chosen])) * (1 + 2e-15)

    def events(self, neighbors: str) -> tuple[Event, ...]:
        """As few events as cost the same."""
        mu = self.mu(neighbors)
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
        log = math.fsum(
            count * math.log(weight(one))
            for one, count in self._others.items()
            if isinstance(one, Repeated)
        )
        return math.exp(min(log * (1 + 1e-12), 700.0))

    def left_of(self, limits: Limits) -> float:
        """The δ that events may use."""
        return limits.delta - self.slack(limits.epsilon)

    def epsilon(self, limits: Limits) -> float:
        """ε of everything at the account's δ, never below the truth; infinite if δ is used up.

        Sampled steps are composed on a coarse grid first, which errs upwards by about 0.2%:
        within the limits that is good enough, and beyond them it decides nothing yet.
        """
        left = self.left_of(limits)
        if not left > 0:
            return math.inf
        if not (self._sampled or self._others):
            mu = self.mu(limits.neighbors)
            # Far beyond the limits no search for the precise ε is needed.
            return math.inf if mu > 1e4 else gaussian_epsilon(mu, left)
        grids = (max(FINE_GRID, limits.epsilon * step) for step in (COARSE_GRID, FINE_GRID))
        found, events = math.inf, self.events(limits.neighbors)
        for grid in grids:
            found = min(found, _composed(events, left, limits.neighbors, grid, limits.epsilon))
            if found <= limits.epsilon:
                break
        return found

    def room(self, limits: Limits, delta: float, spending: Spending | None = None) -> float:
        """About the largest ε at ``delta`` that one more plan may have, rounded down.

        The plan is taken for one Gaussian mechanism, besides the draws and tests of
        ``spending``: exact if all events are Gaussian. Otherwise what is spent is taken for one
        too, and a little less is offered. Whatever is offered was tried, as a Gaussian; a search,
        as the same search with more noise.
        """
        unit, spent = sensitivity(limits.neighbors), self.epsilon(limits)
        draws, failure, sampled = 0, 0.0, False
        if spending is not None:
            draws, failure = spending.draws, spending.failure
            sampled = any(not event.gaussian for _, event in spending.events)
        left = self.left_of(limits) - failure - numerical_delta(draws, limits.epsilon)
        left -= PLD_SLACK * sampled
        if not left > 0 or not spent < limits.epsilon:
            return 0.0
        if spending is not None and any(isinstance(e, Repeated) for _, e in spending.events):
            return self._room_for_search(limits, delta, spending)
        estimated = bool(self._sampled or self._others)
        # Beside searches, what is left has to do with less of both (`tacit.privacy.repeated`).
        grid = max(COARSE_GRID, limits.epsilon * COARSE_GRID)
        many, shift, _ = unfolded(self.events(limits.neighbors), limits.neighbors, grid)
        most = gaussian_mu(limits.epsilon - shift, left / many)
        used = (
            gaussian_mu(max(spent - shift, 0.0), left / many)
            if estimated
            else self.mu(limits.neighbors)
        )
        mu = math.sqrt(max(most**2 - used**2, 0.0))
        mu *= 0.99 if sampled or estimated else 1 - 1e-9
        for _ in range(8):
            whole = gaussian_epsilon(mu, delta)
            if whole < LEAST:
                break
            scale = 10.0 ** (DIGITS - 1 - math.floor(math.log10(whole)))
            offered = math.floor(whole * scale * (1 + 1e-6)) / scale
            # A plan for this calibrates its events for a δ without its own numerics.
            own = numerical_delta(draws, offered) + PLD_SLACK * sampled
            mu = gaussian_mu(offered * (1 - MARGIN), max(delta - own, delta / 2))
            tried = self.copy()
            tried.add([Gaussian(unit / mu)], draws, failure + PLD_SLACK * sampled)
            if tried.epsilon(limits) <= limits.epsilon:
                return offered
            mu *= 0.97
        return 0.0

    def _room_for_search(self, limits: Limits, delta: float, spending: Spending) -> float:
        low, high, offered = 0.0, math.log(64), 0.0  # log of how many times the noise
        for _ in range(12):
            middle = (low + high) / 2
            more = tuple((name, event.scaled(math.exp(middle))) for name, event in spending.events)
            if self.plus(replace(spending, events=more)).epsilon(limits) <= limits.epsilon:
                high = middle
                offered = epsilon([event for _, event in more], delta, limits.neighbors) * 0.99
            else:
                low = middle
        if offered < LEAST:
            return 0.0
        scale = 10.0 ** (DIGITS - 1 - math.floor(math.log10(offered)))
        return math.floor(offered * scale) / scale


@lru_cache(maxsize=64)
def _composed(
    events: tuple[Event, ...], delta: float, neighbors: str, grid: float, limit: float
) -> float:
    """ε by loss distributions; infinite where it is so far beyond the limit that no grid fits."""
    parts = list(islice(_parts(events), MOST_KINDS + 1))
    if len(parts) > MOST_KINDS or _hopeless(events, neighbors, limit):
        return math.inf
    try:
        found = epsilon(parts, delta, neighbors, grid=grid)
        if any(isinstance(event, Gamma) for event in parts):  # less than by Rényi divergences
            found = min(found, loss_distribution(parts, neighbors, grid).get_epsilon(delta))
    except MemoryError:
        return math.inf
    return found if found >= 0 else math.inf  # NaN is no answer


def _parts(events: Iterable[Event]) -> Iterator[Event]:
    """Sampled steps in parts of as many as a grid takes."""
    for event in events:
        if isinstance(event, PoissonGaussian):
            while event.count > MOST_STEPS:
                yield replace(event, count=MOST_STEPS)
                # What may fail in all of them together was counted in the first part.
                event = replace(event, count=event.count - MOST_STEPS, failure=0.0)
        yield event


def _hopeless(events: Sequence[Event], neighbors: str, limit: float) -> bool:
    """Whether so little noise was added that a grid of losses would be too large.

    In noise multipliers: a step has losses up to about r²/2 + 10r, r = sensitivity/noise, and all
    of them together have a mean of about half the squared distance of their means.
    """
    mean = 0.0
    for event in events:
        lists = event.trial if isinstance(event, Repeated) else ((event,),)
        found = [[_losses(part, neighbors) for part in trial] for trial in lists]
        if any(far > FARTHEST for trial in found for far, _ in trial):
            return True
        times = event.count if isinstance(event, Repeated) else 1
        mean += times * max(math.fsum(middle for _, middle in trial) for trial in found)
    return mean > 10 * limit + 10


def _losses(event: Event, neighbors: str) -> tuple[float, float]:
    """About the largest loss of one step, and the mean loss of all its steps."""
    reach = sensitivity(neighbors) / event.noise_multiplier
    often = event.count * getattr(event, "sampling_probability", 1.0) ** 2
    if isinstance(event, Gamma):
        reach, often = pure_step(event, neighbors), event.count
    elif isinstance(event, Iterated):
        often *= (1 + math.log(event.steps)) / event.steps
    return reach**2 / 2 + 10 * reach, often * reach**2 / 2
