r"""Privacy losses as probabilities on a grid, kept and composed one after another.

A `LossPmf` is a pair of laws P, Q by the law of ln dP/dQ under P: masses at multiples of a grid, a
power of two, and the mass of an infinite loss. Whatever is done to it errs upwards:

- *Another grid.* An atom between two points of it is split between them such that both its mass
  under P and that under Q stay (Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022, "connect the
  dots"). What was before is a function of what is after, so the new pair dominates the old one.
- *Composition* is a convolution, by FFT. By Higham 2002, Theorem 24.2, a transform of length n has
  a relative error of at most 7u·log₂n in the Euclidean norm, and no spectrum exceeds one. So the
  sum of all errors is at most √n·8u·log₂n·(‖a‖ + ‖b‖ + ‖a∗b‖), which joins the infinite loss;
  negative values become zero.
- *Tails*: a mass of at most `TAIL` on the right becomes infinite, and as much on the left moves up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import log_ndtr

from tacit.privacy.accounting import renyi
from tacit.privacy.accounting.accountants import FINE_GRID, MOST_STEPS, loss_of_step
from tacit.privacy.events import Event, Gamma, Iterated, PoissonGaussian, sensitivity
from tacit.privacy.relation import Neighbors

Array = NDArray[np.float64]
T = TypeVar("T")

UNIT = 2.0**-53
TAIL = 1e-13  # a hundredth of the slack that every plan with such losses sets aside
MOST_POINTS = 2**16  # of a distribution that is kept: half a megabyte
QUERY_POINTS = 2**12  # of one that is asked: a split that happens once costs next to nothing
STEP_POINTS, COMPOSED_POINTS = 2**12, 2**17  # of one step, and of all its repetitions
FINE_STEP_POINTS, FINE_COMPOSED_POINTS = 2**18, 2**21
FARTHEST = 1e100  # standard deviations; the tail is zero long before


def dyadic(size: float) -> float:
    """The largest power of two that is not above ``size``."""
    return float(2.0 ** math.floor(math.log2(size)))


@dataclass(frozen=True, eq=False)
class LossPmf:
    """Masses at ``grid·first``, ``grid·(first + 1)``, … and at infinity.

    Examples
    --------
    >>> coin = LossPmf(0.5, 0, np.array([0.5, 0.5]), 0.0)
    >>> coin.compose(coin).mass.round(6).tolist()
    [0.25, 0.5, 0.25]
    """

    grid: float
    first: int
    mass: Array
    infinity: float

    @staticmethod
    def of_atoms(losses: Array, mass: Array, infinity: float, grid: float) -> LossPmf:
        """Atoms at any losses, split between the points of a grid."""
        place = losses / grid
        low = np.floor(place)
        # Q keeps its mass: (1−w)·e^(−low) + w·e^(−high) = e^(−loss). Rounded up.
        share = np.expm1(-(place - low) * grid) / math.expm1(-grid)
        share += 8 * UNIT * (1 + np.abs(place)) * (place != low)
        share = np.clip(share, 0.0, 1.0)
        first = int(low.min())
        index = (low - first).astype(np.int64)
        size = int(index.max()) + 2
        made = np.zeros(size)
        made += np.bincount(index, mass * (1 - share), size)
        made += np.bincount(index + 1, mass * share, size)
        made *= 1 + 4 * UNIT
        return LossPmf(grid, first, made, infinity)

    @property
    def losses(self) -> Array:
        return np.asarray(self.grid * (self.first + np.arange(len(self.mass))), dtype=np.float64)

    def on(self, grid: float) -> LossPmf:
        """The same on another grid."""
        if grid == self.grid:
            return self
        return LossPmf.of_atoms(self.losses, self.mass, self.infinity, grid)

    def trimmed(self, points: int = MOST_POINTS) -> LossPmf:
        """Without tails, and on a coarser grid if there are more than so many points."""
        summed = np.cumsum(self.mass)
        left = int(np.searchsorted(summed, TAIL, "right"))
        backwards = np.cumsum(self.mass[::-1])
        right = len(self.mass) - int(np.searchsorted(backwards, TAIL, "right"))
        left = min(left, len(self.mass) - 1)
        right = max(right, left + 1)
        mass = self.mass[left:right].copy()
        mass[0] += self.mass[:left].sum() * (1 + 1e-12)
        infinity = self.infinity + float(self.mass[right:].sum()) * (1 + 1e-12)
        made = LossPmf(self.grid, self.first + left, mass, infinity)
        while len(made.mass) > points:
            made = made.on(2 * made.grid)
        return made

    def compose(self, other: LossPmf) -> LossPmf:
        """Both, one beside the other."""
        grid = max(self.grid, other.grid)
        one, two = self.on(grid), other.on(grid)
        size = len(one.mass) + len(two.mass) - 1
        fast = next_fast_len(size, real=True)
        mass = irfft(rfft(one.mass, fast) * rfft(two.mass, fast), fast)[:size]
        norms = [float(np.linalg.norm(m)) for m in (one.mass, two.mass)]
        error = math.sqrt(fast) * 8 * UNIT * math.log2(max(fast, 2)) * (sum(norms) + min(norms))
        infinity = (one.infinity + two.infinity) * (1 + 2 * UNIT) + error
        whole = LossPmf(grid, one.first + two.first, np.maximum(mass, 0.0), infinity)
        return whole.trimmed()

    def joined(self, other: LossPmf) -> LossPmf:
        """Losses no smaller than either's: the larger of both chances to exceed any loss.

        δ(ε) = E(1 − e^(ε−Y))₊ grows with Y, whatever is added to it, so it is no smaller either.
        """
        grid = max(self.grid, other.grid)
        one, two = self.on(grid), other.on(grid)
        first = min(one.first, two.first)
        size = max(pmf.first + len(pmf.mass) for pmf in (one, two)) - first
        tails = np.zeros((2, size + 1))
        for tail, pmf in zip(tails, (one, two), strict=True):
            begin = pmf.first - first
            tail[begin : begin + len(pmf.mass)] = pmf.mass
            tail[-1] = pmf.infinity
            tail[:] = np.cumsum(tail[::-1])[::-1]
        worst = tails.max(axis=0)
        return LossPmf(grid, first, -np.diff(worst), float(worst[-1]) * (1 + 1e-12))

    @cached_property
    def _asked(self) -> tuple[Array, Array, float]:
        few = self.trimmed(QUERY_POINTS)
        return few.losses, few.mass, few.infinity

    def delta(self, epsilon: float, mu: float) -> float:
        """δ at ε of this beside a μ-Gaussian mechanism: Σ p·δ_μ(ε − loss), rounded up."""
        losses, mass, infinity = self._asked
        spent = float(mass @ _gaussian_deltas(mu, epsilon - losses))
        return min(infinity + spent * (1 + 1e-12), 1.0)


def _gaussian_deltas(mu: float, epsilons: Array) -> Array:
    """δ_μ(ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2) (Balle & Wang 2018, Thm 8), any sign of ε.

    Rounded up, as `tacit.privacy.accounting.accountants.gaussian_delta` is.
    """
    if mu == 0:
        return np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)
    far = np.clip(epsilons / mu, -FARTHEST, FARTHEST)
    log_a, log_b = log_ndtr(mu / 2 - far), log_ndtr(-mu / 2 - far)
    slack = 1e-14 * (1 + np.abs(log_a) + np.abs(log_b) + np.abs(epsilons))
    kept: Array = np.exp(log_a) * (slack - np.expm1(np.minimum(epsilons + log_b - log_a, 0.0)))
    return np.minimum(kept, 1.0)


def power(one: T, count: int, join: Callable[[T, T], T]) -> T:
    """So many times the same, joined: by squaring."""
    whole = None
    while True:
        if count & 1:
            whole = one if whole is None else join(whole, one)
        count >>= 1
        if not count:
            assert whole is not None
            return whole
        one = join(one, one)


# --- one event -------------------------------------------------------------------------------


@lru_cache(maxsize=128)
def event_losses(
    event: Event, neighbors: Neighbors, grid: float, fine: bool = False
) -> tuple[LossPmf, ...]:
    """All steps of an event together, on a grid that is a power of two.

    One distribution if it is the same for both orders of the neighbours, otherwise two. Steps are
    composed on a grid of their own, as fine as a few thousand points make it, and moved to ``grid``
    once: what moving costs is counted once for the event, not for every step. ``fine`` takes up to
    a second, and is as close as a certificate of the same event.
    """
    often = min(event.count, MOST_STEPS)
    whole, rest = divmod(event.count, often)
    made = []
    for step in loss_of_step(event, neighbors, _own_grid(event, neighbors, often, fine)):
        pmf = step.to_dense_pmf()
        total = power(_repeated(pmf, often, grid), whole, LossPmf.compose)
        made.append(total.compose(_repeated(pmf, rest, grid)) if rest else total)
    return tuple(made)


def _repeated(pmf: Any, count: int, grid: float) -> LossPmf:
    return _dense(pmf.self_compose(count) if count > 1 else pmf, grid).trimmed()


def _dense(pmf: Any, grid: float) -> LossPmf:
    """dp-accounting's distribution, which has no other way to be read (0.6)."""
    mass = np.maximum(np.asarray(pmf._probs, dtype=np.float64), 0.0)
    losses = pmf._discretization * (pmf._lower_loss + np.arange(len(mass)))
    return LossPmf.of_atoms(losses, mass, float(pmf._infinity_mass), grid)


def _own_grid(event: Event, neighbors: Neighbors, often: int, fine: bool) -> float:
    """A grid that is fine against the spread of one step, with not too many points.

    Splits add about grid²/6 to the variance of a step: for a sixteenth of its standard deviation
    less than 7e-4 of it.
    """
    reach = sensitivity(neighbors) / event.noise_multiplier
    q = getattr(event, "sampling_probability", 1.0)
    if isinstance(event, Gamma):
        return renyi.pure_step(event, neighbors)  # all losses are multiples of this one
    if isinstance(event, PoissonGaussian):
        reach *= 1 + max((shift for _, shift in event.drift), default=0.0) / 2
    far = reach * reach / 2 + 9 * reach
    # ln(1 − q + q·e^far), on both sides
    span = 2 * (math.log1p(q * math.expm1(far)) if far < 500 else far + math.log(q))
    if isinstance(event, Iterated):
        q = math.sqrt((1 + math.log(event.steps)) / event.steps)
    spread = min(q * math.sqrt(math.expm1(min(reach * reach, 100.0))), span)
    whole = 20 * spread * math.sqrt(often) + often * spread * min(spread, 1.0)
    if fine:
        wanted = min(spread / 16, FINE_GRID)
        points, composed = FINE_STEP_POINTS, FINE_COMPOSED_POINTS
    else:
        wanted, points, composed = spread / 16, STEP_POINTS, COMPOSED_POINTS
        if neighbors == "replace_one":  # few of the points cost time there
            points *= 4
    return dyadic(max(wanted, span / points, whole / composed, 1e-300))
