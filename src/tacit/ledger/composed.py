r"""What the events of an account that are not Gaussian cost together, kept as one distribution.

Composing a thousand kinds of sampled steps takes half a minute, and adding one more to what is
composed already a few milliseconds. So the composed distribution is kept: in the process, and in
the ledger beside its entries. Gaussian events stay apart, as one number μ²: δ(ε) of both is
Σ p·δ_μ(ε − loss), a closed form for every loss (`tacit.privacy.accounting.loss_pmf`).

Searches stand in it for one of their trials each: they multiply δ and add to ε
(`tacit.privacy.accounting.repeated`). Where a search draws settings with unlike events, each of
them makes a branch, and the worst counts; so does each part of a parallel event, whose searches
weigh on that part alone. Too many branches become one that is no better than any of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from tacit.files import parse_json
from tacit.privacy.accounting.accountants import gaussian_delta, total_mu, unfolded
from tacit.privacy.accounting.loss_pmf import LossPmf, dyadic, event_losses, power
from tacit.privacy.accounting.repeated import MOST_COMBINATIONS
from tacit.privacy.events import Event, Failure, Parallel, PoissonGaussian, Repeated
from tacit.privacy.relation import Neighbors

FORMAT = "tacit-composed/2"  # of the bytes, and of the arithmetic that made them
LARGEST_KEPT = 1 << 23  # bytes
POINTS_TO_LIMIT = 2**12  # of the grid, from a loss of zero to the account's ε
UP = 1 + 1e-12

Losses = tuple[LossPmf, ...]


def grid_for(epsilon: float) -> float:
    """The grid of an account that allows so much."""
    return dyadic(epsilon / POINTS_TO_LIMIT)


class Branch(NamedTuple):
    """One trial of every search, beside all other events.

    Attributes
    ----------
    square : float
        μ² of the Gaussian steps of its trials.
    losses : tuple of LossPmf
        Of all other steps: none, one, or one for either order of the neighbours.
    log_weight, shift : float
        Of its searches: δ(ε) is at most e^log_weight times that of these steps at ε − shift.
    """

    square: float = 0.0
    losses: Losses = ()
    log_weight: float = 0.0
    shift: float = 0.0

    def beside(self, other: Branch) -> Branch:
        """Both, composed."""
        square = (self.square + other.square) * (1 + 1e-15)
        searches = (
            (self.log_weight + other.log_weight) * (1 + 1e-15),
            (self.shift + other.shift) * (1 + 1e-15),
        )
        if not (self.losses and other.losses):
            return Branch(square, self.losses or other.losses, *searches)
        pairs = zip(*_orders(self.losses, other.losses), strict=True)
        return Branch(square, tuple(one.compose(two) for one, two in pairs), *searches)

    def joined(self, other: Branch) -> Branch:
        """One that is no better than either."""
        square = max(self.square, other.square)
        none = (LossPmf(grid_for(1.0), 0, np.ones(1), 0.0),)
        pairs = zip(*_orders(self.losses or none, other.losses or none), strict=True)
        worse = max(self.log_weight, other.log_weight), max(self.shift, other.shift)
        return Branch(square, tuple(one.joined(two) for one, two in pairs), *worse)

    def delta(self, epsilon: float, square: float, failure: float) -> float:
        """δ at ε beside Gaussian events of that μ², and what may fail."""
        left, mu = epsilon - self.shift, math.sqrt(self.square + square) * (1 + 2e-15)
        if left < 0 or self.log_weight > 700:
            return 1.0
        worst = max((loss.delta(left, mu) for loss in self.losses), default=None)
        if worst is None:
            worst = gaussian_delta(mu, left)
        return min(math.exp(self.log_weight) * (worst + failure) * UP, 1.0)


def _orders(one: Losses, two: Losses) -> tuple[Losses, Losses]:
    """Both for as many orders of the neighbours."""
    most = max(len(one), len(two))
    return one * (most // len(one)), two * (most // len(two))


@dataclass(frozen=True, eq=False)
class Composed:
    """Events that are not Gaussian, composed.

    Attributes
    ----------
    neighbors, grid : str, float
        The relation, and the grid that was asked for.
    failure : float
        Probability that the drift of any step did not hold.
    branches : tuple of Branch
        The worst counts.
    """

    neighbors: Neighbors
    grid: float
    failure: float = 0.0
    branches: tuple[Branch, ...] = (Branch(),)

    def beside(self, other: Composed) -> Composed:
        """Both together."""
        mine, others = self.branches, other.branches
        if len(mine) * len(others) > MOST_COMBINATIONS:  # what is new becomes one
            others = (reduce(Branch.joined, others),)
        return Composed(
            self.neighbors,
            max(self.grid, other.grid),
            (self.failure + other.failure) * (1 + 1e-15),
            tuple(one.beside(two) for one in mine for two in others),
        )

    def either(self, other: Composed) -> Composed:
        """One or the other, nobody knows which: the worst counts, whatever is beside it."""
        branches = (*self.branches, *other.branches)
        if len(branches) > MOST_COMBINATIONS:
            branches = (reduce(Branch.joined, branches),)
        return Composed(
            self.neighbors,
            max(self.grid, other.grid),
            max(self.failure, other.failure),
            branches,
        )

    def delta(self, epsilon: float, square: float) -> float:
        """δ at ε of these events beside Gaussian ones of that μ², never below the truth."""
        return max(branch.delta(epsilon, square, self.failure) for branch in self.branches)

    def epsilon(self, delta: float, square: float, first: float = 1.0) -> float:
        """The least ε at ``delta``, rounded up; ``first`` is tried first, and is enough if it is.

        Infinite where it lies beyond any that is of use.
        """
        if self.delta(0.0, square) <= delta:
            return 0.0
        low, high = 0.0, first
        while self.delta(high, square) > delta:
            low, high = high, 2 * high
            if high > 1e4:
                return math.inf
        return _least(lambda e: self.delta(e, square), delta, low, high)

    # --- bytes: a line of JSON, then masses as doubles ------------------------------------------

    def to_bytes(self) -> bytes:
        branches, masses = [], []
        for branch in self.branches:
            losses = []
            for loss in branch.losses:
                losses.append([loss.grid, loss.first, len(loss.mass), loss.infinity])
                masses.append(loss.mass)
            branches.append([branch.square, branch.log_weight, branch.shift, losses])
        numbers = {"grid": self.grid, "failure": self.failure}
        head = {"format": FORMAT, "neighbors": self.neighbors, **numbers}
        line = json.dumps({**head, "branches": branches}, allow_nan=False)
        return line.encode() + b"\n" + b"".join(m.astype("<f8").tobytes() for m in masses)

    @staticmethod
    def from_bytes(data: bytes) -> Composed | None:
        """What `to_bytes` made, or nothing if it is of another version, or damaged."""
        line, _, rest = data.partition(b"\n")
        try:
            return _read(parse_json(line.decode("ascii")), rest)
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
            return None


def _read(head: Any, rest: bytes) -> Composed:
    if head["format"] != FORMAT:
        raise ValueError
    masses, at = np.frombuffer(rest, dtype="<f8").astype(np.float64), 0
    if not (np.isfinite(masses).all() and (masses >= 0).all()):
        raise ValueError
    branches = []
    for square, log_weight, shift, listed in head["branches"]:
        losses = []
        for grid, first, size, infinity in listed:
            if not (isinstance(first, int) and abs(first) < 2**40 and 0 < size <= len(masses) - at):
                raise ValueError
            mass = masses[at : at + size]
            losses.append(LossPmf(_number(grid), first, mass, _number(infinity)))
            at += size
        if len(losses) > 2:
            raise ValueError
        searches = _number(log_weight), _number(shift)
        branches.append(Branch(_number(square), tuple(losses), *searches))
    if at != len(masses) or not 0 < len(branches) <= MOST_COMBINATIONS:
        raise ValueError
    numbers = {name: _number(head[name]) for name in ("grid", "failure")}
    return Composed(str(head["neighbors"]), **numbers, branches=tuple(branches))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError
    return float(value)


def _least(delta_at: Callable[[float], float], delta: float, low: float, high: float) -> float:
    """Where a δ that falls in ε comes down to ``delta``, rounded up; at most ``high``."""

    def excess(e: float) -> float:
        return math.log(max(delta_at(e), 1e-300)) - math.log(delta)

    if excess(high) >= 0 or excess(low) <= 0:
        return high
    found = float(brentq(excess, low, high, xtol=1e-12, rtol=1e-9))
    step = 1e-9
    while delta_at(found) > delta:
        found = min(found * (1 + step), high)
        step *= 2
    return found


@lru_cache(maxsize=64)
def composed_event(event: Event, neighbors: Neighbors, grid: float, fine: bool = False) -> Composed:
    """One event that is not Gaussian, by itself; ``fine`` is closer, and takes longer.

    What may fail within parallel parts is left to the tally, drift included.
    """
    if isinstance(event, Parallel):
        one = reduce(Composed.either, (_part(p, neighbors, grid, fine) for p in event.parts))
        # Not the same part so many times: it may have been another, each time.
        return power(one, event.count, Composed.beside)
    if not isinstance(event, Repeated):
        failure = event.failure if isinstance(event, PoissonGaussian) else 0.0
        losses = event_losses(event, neighbors, grid, fine)
        return Composed(neighbors, grid, failure=failure, branches=(Branch(0.0, losses),))
    found = unfolded([replace(event, count=1)], neighbors, max(grid, 1e-4))
    if not found.shift < math.inf:
        raise OverflowError("a search that costs more than any account allows")
    searched = Branch(log_weight=math.log(found.weight) * UP, shift=found.shift)
    branches = tuple(
        _branch(plain, neighbors, grid, fine).beside(searched) for plain in found.events
    )
    one = Composed(neighbors, grid, branches=branches)
    # Not the same trial so many times: two searches may have drawn different settings.
    return power(one, event.count, Composed.beside)


def _part(events: Sequence[Event], neighbors: Neighbors, grid: float, fine: bool) -> Composed:
    gaussian = [event for event in events if event.gaussian]
    others = [e for e in events if not (e.gaussian or isinstance(e, Failure))]
    whole = Composed(neighbors, grid, branches=(_branch(gaussian, neighbors, grid, fine),))
    made = (composed_event(event, neighbors, grid, fine) for event in others)
    return replace(reduce(Composed.beside, made, whole), failure=0.0)


def _branch(events: Sequence[Event], neighbors: Neighbors, grid: float, fine: bool) -> Branch:
    gaussian = [event for event in events if event.gaussian]
    square = total_mu(gaussian, neighbors) ** 2 * (1 + 4e-16) if gaussian else 0.0
    whole = Branch(square)
    for event in events:
        if not event.gaussian:
            whole = whole.beside(Branch(0.0, event_losses(event, neighbors, grid, fine)))
    return whole
