r"""Gradients that span all dimensions, but mostly a few: restricted Lipschitz coefficients.

Li et al. 2022, Theorems 3.3 and 3.5. The coefficient G_k bounds what is left of the mean gradient
when the best k directions are taken out. Descent with a pull towards its start has excess risk of
order

    G₀D√(k·log(1/δ))/(nε) + D√(Σₛ s²·2ˢ·G²_{2ˢ⁻¹k}),   s = 1 … ⌊log₂(d/k)⌋ + 1,

for every k at once, so for the best one. If G_k ≤ G₀k⁻ᶜ with c > 1/2, the sum converges and no
dimension is left in the bound. All of it holds up to a constant that is not given (and grows as c
nears 1/2).

The paper's medians (section 4.1, `tacit.research.instances.median`) have G_k = (k + 1)^(−a/2) for
A = diag(k^−a): that is c = 1/4 and c = 1/2 for its A_sqrt and A_linear, and neither exceeds 1/2.
For those only the first bound applies, and it grows with d, though slowly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from tacit.diagnostics.base import require_positive
from tacit.exceptions import InputError
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.events import PoissonGaussian
from tacit.privacy.relation import Neighbors
from tacit.research.theory.descent import Schedule
from tacit.research.theory.risk import Risk, noise_of

ASSUMES = (
    "loss convex, gradients of norm at most G₀",
    "mean gradient restricted Lipschitz with the given coefficients",
    "descent with a pull towards its start, mean of the iterates (`decay.schedule`)",
    "ε at most 10, δ at most 1/2",
)


def power_law(d: int, decay: float, first: float = 1.0) -> np.ndarray:
    """Coefficients G₀, G₀·k⁻ᶜ for k = 1 … d − 1, and G_d = 0.

    Parameters
    ----------
    d : int
        Number of columns.
    decay : float
        c, the power by which coefficients fall; above 1/2.
    first : float
        G₀, of every single row.

    Returns
    -------
    ndarray of shape (d + 1,)
        Falling.

    Examples
    --------
    >>> power_law(4, 1.0).round(3).tolist()
    [1.0, 1.0, 0.5, 0.333, 0.0]
    """
    require_positive(d=d, first=first)
    require_positive(zero=True, decay=decay)
    return np.concatenate([[first], first * np.arange(1.0, d) ** -decay, [0.0]])


def best_k(
    coefficients: Sequence[float] | np.ndarray,
    n: int,
    *,
    epsilon: float,
    delta: float,
) -> int:
    """The k for which the bound is least, out of all of 1 … d.

    Parameters
    ----------
    coefficients : sequence of float
        G₀ ≥ G₁ ≥ … ≥ G_d, d + 1 of them.
    n : int
        Number of rows.
    epsilon, delta : float
        The budget.

    Returns
    -------
    int
        From 1 to d.

    Examples
    --------
    >>> best_k(power_law(50, 1.0), 1000, epsilon=1.0, delta=1e-5)
    50
    """
    return int(np.argmin(_for_every_k(_checked(coefficients), n, epsilon, delta))) + 1


def risk(
    coefficients: Sequence[float] | np.ndarray,
    n: int,
    *,
    epsilon: float,
    delta: float,
    distance: float = 1.0,
    k: int | None = None,
    population: bool = False,
) -> Risk:
    """Order of the excess empirical risk, in units of the loss (Li et al. 2022, Theorem 3.3, (1)).

    Over fresh rows (Theorem 3.5) it is G₀D/√n more.

    Parameters
    ----------
    coefficients : sequence of float
        G₀ ≥ G₁ ≥ … ≥ G_d, d + 1 of them.
    distance : float
        D, from the start to the best weights; their norm, if descent starts at zero.
    k : int, optional
        Directions counted in full; the best number if not given.
    n : int
        Number of rows.
    epsilon, delta : float
        The budget.
    population : bool
        Whether the risk is that over fresh rows.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(risk(power_law(50, 1.0), 1000, epsilon=1.0, delta=1e-5).value, 4)
    0.024
    >>> round(risk(power_law(50, 1.0), 1000, epsilon=1.0, delta=1e-5, population=True).value, 4)
    0.0556
    """
    values = _checked(coefficients)
    require_positive(distance=distance)
    every = _for_every_k(values, n, epsilon, delta)
    if k is not None and not 1 <= k <= len(every):
        raise InputError(f"k={k!r} must lie in 1..{len(every)}, the number of dimensions")
    found = float(every.min() if k is None else every[k - 1])
    fresh = float(values[0]) / math.sqrt(n) if population else 0.0
    return Risk(
        distance * (found + fresh),
        kind="population" if population else "empirical",
        constant="up to a constant",
        source=f"Li et al. 2022, Theorem {'3.5' if population else '3.3, (1)'}",
        assumes=ASSUMES,
    )


def power_law_risk(
    n: int,
    decay: float,
    *,
    epsilon: float,
    delta: float,
    distance: float = 1.0,
    first: float = 1.0,
    population: bool = False,
) -> Risk:
    """Order of the excess empirical risk if G_k ≤ G₀k⁻ᶜ (Li et al. 2022, Theorem 3.3, (2)).

    G₀D·(√log(1/δ)/(nε))^(2c/(1 + 2c)), for any number of dimensions; over fresh rows
    (Theorem 3.5) G₀D/√n more.

    Parameters
    ----------
    decay : float
        c, above 1/2.
    n : int
        Number of rows.
    epsilon, delta : float
        The budget.
    distance : float
        D, from the start to the best weights.
    first : float
        G₀, of every single row.
    population : bool
        Whether the risk is that over fresh rows.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(power_law_risk(1000, 1.0, epsilon=1.0, delta=1e-5).value, 4)
    0.0226
    >>> round(power_law_risk(1000, 1.0, epsilon=1.0, delta=1e-5, population=True).value, 4)
    0.0542
    """
    scale = first * distance
    _check_budget(n, epsilon, delta)
    require_positive(decay=decay, scale=scale)
    if decay <= 0.5:
        raise InputError(
            f"decay={decay:g} is too slow: it must exceed 1/2, or the sum grows with the "
            "dimension; pass the coefficients themselves to `risk`"
        )
    small = math.sqrt(math.log(1 / delta)) / (epsilon * n)
    if small > 1:
        raise InputError(f"n={n} rows are too few: at least √log(1/δ)/ε")
    fresh = 1 / math.sqrt(n) if population else 0.0
    return Risk(
        scale * (small ** (2 * decay / (1 + 2 * decay)) + fresh),
        kind="population" if population else "empirical",
        constant="up to a constant",
        source=f"Li et al. 2022, Theorem {'3.5' if population else '3.3, (2)'}",
        assumes=(*ASSUMES, "coefficients fall at least as fast as G₀·k⁻ᶜ, c above 1/2"),
    )


def schedule(
    coefficients: Sequence[float] | np.ndarray,
    n: int,
    *,
    epsilon: float,
    delta: float,
    distance: float = 1.0,
    population: bool = False,
    neighbors: Neighbors = "replace_special",
    steps: int | None = None,
    one_row: bool = False,
) -> Schedule:
    """Steps, rate and anchor of Li et al. 2022, Theorem 3.3 (or 3.5), for the best k.

    T = n² + d·log²(d) steps of one sampled row each; full batches need no more. Constants are
    taken to be one, and noise is that of full batches by exact Gaussian DP, where the theorems
    have Θ(·).

    Parameters
    ----------
    steps : int, optional
        Instead of n² + d·log²(d), which grows large: fewer steps at the rate that suits them. The
        theorem's rate has noise alone in its root, which is far larger than the gradient after so
        many steps; after fewer, the gradient counts as well.
    coefficients : sequence of float
        G₀ ≥ G₁ ≥ … ≥ G_d, d + 1 of them.
    n : int
        Number of rows.
    epsilon, delta : float
        The budget.
    distance : float
        D, from the start to the best weights.
    population : bool
        Whether the risk over fresh rows is meant (Theorem 3.5).
    neighbors : str
        The relation of neighbouring data sets.
    one_row : bool
        Whether a step draws one row, as printed, with the noise of `one_row_noise`; neighbours are
        those of ``replace_one`` then.

    Returns
    -------
    Schedule
        Steps and rate, as ``settings`` of a trainer.

    Examples
    --------
    >>> plan = schedule(power_law(50, 1.0), 1000, epsilon=1.0, delta=1e-5, steps=200)
    >>> plan.steps, plan.settings["average"]
    (200, 'uniform')
    """
    values = _checked(coefficients)
    require_positive(steps=steps)
    d = len(values) - 1
    k = best_k(values, n, epsilon=epsilon, delta=delta)
    gradient = 0.0 if steps is None else 1.0  # in units of G₀²
    steps = n**2 + math.ceil(d * math.log(d) ** 2) if steps is None else int(steps)
    if one_row:
        noise = one_row_noise(n, steps, epsilon=epsilon, delta=delta) ** 2  # σ², in units of G₀²
    else:
        noise = steps * noise_of(n, epsilon, delta, neighbors) ** 2
    spread = k * noise + gradient + (steps / n if population else 0.0)
    rate = distance / (values[0] * math.sqrt(steps * spread))
    anchor = math.sqrt(_tails(values)[k - 1]) / distance
    rows = 1 if one_row else n  # of a step
    return Schedule(steps, rate, float(values[0]), rows * math.sqrt(noise), anchor, k)


def one_row_noise(n: int, steps: int, *, epsilon: float, delta: float) -> float:
    """σ of Li et al. 2022, Algorithm 1: one row a step, drawn from all, noise of deviation σG.

    Their Lemma 2.4 has it up to constants. Steps that do not draw the row in which neighbours
    differ draw another one: take its gradient for the origin, and both of theirs have norm at most
    2G, with probability 1/n. That is a Poisson sample at rate 1/n of a row that is replaced, at
    twice the norm (by joint convexity, over which row else is drawn).

    Parameters
    ----------
    n, steps : int
        Rows, and how often one of them is drawn.
    epsilon, delta : float
        The budget, where any row may replace any other.

    Returns
    -------
    float
        In units of G.

    Examples
    --------
    >>> round(one_row_noise(200, 40_000, epsilon=8.0, delta=1e-5), 2)
    2.48
    """
    require_positive(n=n, steps=steps)
    return _one_row_noise(int(n), int(steps), Budget(epsilon, delta))


@cache
def _one_row_noise(n: int, steps: int, budget: Budget) -> float:
    return 2 * calibrate(lambda z: [PoissonGaussian(z, steps, 1 / n)], budget, "replace_one")


def _for_every_k(values: np.ndarray, n: int, epsilon: float, delta: float) -> np.ndarray:
    """The bound for D = 1 and each k of 1 … d."""
    _check_budget(n, epsilon, delta)
    k = np.arange(1, len(values))
    return values[0] * np.sqrt(k * math.log(1 / delta)) / (epsilon * n) + np.sqrt(_tails(values))


def _tails(values: np.ndarray) -> np.ndarray:
    """Σₛ s²·2ˢ·G²_{2ˢ⁻¹k} for each k of 1 … d."""
    d = len(values) - 1
    total, squares = np.zeros(d), values**2
    s, at = 1, np.arange(1, d + 1)
    while at.size:
        total[: at.size] += s**2 * 2.0**s * squares[at]
        s, at = s + 1, 2 * at
        at = at[at <= d]
    return total


def _checked(coefficients: Sequence[float] | np.ndarray) -> np.ndarray:
    values = np.asarray(coefficients, dtype=np.float64)
    falling = values.ndim == 1 and len(values) > 1 and np.all(np.isfinite(values))
    if not (falling and values[0] > 0 and values[-1] >= 0 and np.all(np.diff(values) <= 1e-12)):
        raise InputError("coefficients must be G₀ ≥ G₁ ≥ … ≥ G_d ≥ 0, d + 1 finite numbers")
    return values


def _check_budget(n: int, epsilon: float, delta: float) -> None:
    Budget(epsilon, delta)
    require_positive(n=n)
    if epsilon > 10 or delta > 0.5:
        raise InputError("the theorems are for epsilon up to 10 and delta up to 1/2")
