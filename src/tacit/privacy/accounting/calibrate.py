"""The one unknown of a plan: the trainer's noise multiplier."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from scipy.optimize import brentq

from tacit.exceptions import BudgetError
from tacit.privacy.accounting.accountants import FINE_GRID, closed_form, epsilon, gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event, Failure, Parallel, Repeated, sensitivity
from tacit.privacy.relation import Neighbors

# Exact Gaussian DP leaves no slack at all, and a sceptic's discretised accountant
# rounds up: this much less ε keeps the claim above any recomputation on a 1e-4 grid.
MARGIN = 1e-5
PRECISION = 5e-4  # of the noise multiplier, where each trial costs a convolution
# Grids of loss distributions, relative to ε. A trial takes time in inverse proportion to its grid
# and errs, upwards, with the square of it: nearly all trials are made on the first.
GRIDS = (1e-2, 1e-3, FINE_GRID)
TRIALS = 12
LEAST_EPSILON = 1e-11  # ε that can be had, with whatever noise


def calibrate(
    events: Callable[[float], Sequence[Event]], budget: Budget, neighbors: Neighbors
) -> float:
    """The least noise multiplier whose events fit the budget.

    Parameters
    ----------
    events : callable
        All events of the plan as a function of the trainer's noise multiplier.
    budget : Budget
        What they may spend together.
    neighbors : str
        The neighbouring relation.

    Returns
    -------
    float
        A noise multiplier that was *checked* to satisfy the budget, on the fine
        grid where a grid is involved.

    Examples
    --------
    >>> from tacit.privacy.events import Gaussian
    >>> z = calibrate(lambda z: [Gaussian(z, count=100)], Budget(1.0, 1e-5), "replace_special")
    >>> round(z, 2)
    37.31
    """
    target = budget.epsilon * (1 - MARGIN)

    def excess(log_noise: float, grid: float) -> float:
        spent = epsilon(events(math.exp(log_noise)), budget.delta, neighbors, grid=grid)
        return math.log(min(max(spent, LEAST_EPSILON / 10), 1e300) / target)

    failure = math.fsum(getattr(event, "failure", 0.0) for event in events(1.0))
    if failure >= budget.delta:
        raise BudgetError(
            f"delta={budget.delta:g} is not enough: with probability {failure:.2g} something "
            "happens that no noise covers, such as that rows drift farther than is counted. Bound "
            "it with less chance of failure.",
            remaining=0.0,
        )
    if closed_form(events(1.0)):
        return math.exp(_least(partial(excess, grid=FINE_GRID), 0.0, 1.0, 1e-12, budget))
    unknown = [one for one, other in zip(events(1.0), events(2.0), strict=True) if one != other]
    guess = _central_limit(unknown[-1], budget, neighbors)
    # In proportion to the answer: as fine as it takes, and no finer than a sceptic's.
    first, *finer = dict.fromkeys(max(FINE_GRID, budget.epsilon * grid) for grid in GRIDS)
    try:
        found = _least(partial(excess, grid=first), guess, 0.2, PRECISION, budget)
    except BudgetError:
        if not finer:
            raise
        # The stages left so little that a coarse grid cannot see it.
        return math.exp(_least(partial(excess, grid=finer[-1]), guess, 0.2, PRECISION, budget))
    slope = (excess(found - 0.01, first) - excess(found, first)) / 0.01 if finer else 0.0
    coarser, drop = first, 0.0
    for grid in finer:
        start = found - drop * (coarser**2 - grid**2)
        closer, slope = _closer(partial(excess, grid=grid), start, slope, budget)
        drop = (found - closer) / (coarser**2 - grid**2)
        coarser, found = grid, closer
    return math.exp(found)


def _central_limit(event: Event, budget: Budget, neighbors: Neighbors) -> float:
    """Where to begin: subsampled noise is nearly Gaussian, μ = √T·(q·sensitivity + b)/noise.

    q·sensitivity is how far apart the *means* of neighbouring sums lie; rows that
    drifted add b, their mean shift.
    """
    if isinstance(event, Parallel):
        return max(_central_limit(e, budget, neighbors) for part in event.parts for e in part)
    if isinstance(event, Repeated | Failure):  # of the former the unknown is a factor, near one
        return 0.0
    apart = getattr(event, "sampling_probability", 1.0) * sensitivity(neighbors)
    apart += math.fsum(weight * shift for weight, shift in getattr(event, "drift", ()))
    mu = gaussian_mu(budget.epsilon, budget.delta)
    return math.log(max(0.5, math.sqrt(event.count) * apart / mu))


def _closer(
    excess: Callable[[float], float], start: float, slope: float, budget: Budget
) -> tuple[float, float]:
    """The least x with excess(x) ≤ 0, to `PRECISION`, near one found on another grid.

    It was itself tried and fits; by the slope, at which the excess falls, less would not. The
    slope is returned as well.
    """
    x, slope = start, max(slope, 0.1)
    before: tuple[float, float] | None = None
    for _ in range(TRIALS):
        over = excess(x)
        if -PRECISION * slope <= over <= 0:
            return x, slope
        if before is not None and abs(before[0] - x) > PRECISION / 2:
            seen = (before[1] - over) / (x - before[0])
            slope = min(max(seen, slope / 4, 0.1), slope * 4)
        before = x, over
        x += over / slope + PRECISION / 4
    return _least(excess, x, 0.003, PRECISION, budget), slope


def _least(
    excess: Callable[[float], float], start: float, step: float, precision: float, budget: Budget
) -> float:
    """The least x with excess(x) ≤ 0, to ``precision``; it was itself tried and fits."""
    low = high = start
    while excess(high) > 0:
        low, high, step = high, high + step, step * 2
        if high > math.log(1e9):
            why = (
                "the stages before training alone spend it. Lower their shares or raise the budget."
                if budget.epsilon > LEAST_EPSILON and excess(2 * high) > 0
                else "it would take noise of more than 10^9 times what a row can count for. Raise "
                "the budget, or take fewer steps."
            )
            raise BudgetError(
                f"epsilon={budget.epsilon:g}, delta={budget.delta:g} is not enough: {why}",
                remaining=0.0,
            )
    while low == high or excess(low) <= 0:
        high, low, step = low, low - step, step * 2
        if low < math.log(1e-2):
            return high
    root = float(brentq(excess, low, high, xtol=precision / 2, rtol=1e-14))
    while excess(root) > 0:
        root += precision / 2
    return root
