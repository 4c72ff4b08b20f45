r"""Does it help to subtract a private mean first? Norm against diameter of the rows.

Sun et al. 2024. Noisy descent on rows as they come pays for their largest norm (Lemma 1, Theorem
3); with a private mean subtracted it pays for their diameter (Theorem 1), and no private algorithm
can do better by more than logarithms (Theorem 2). All with an intercept, that is a constant feature
1.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tacit.diagnostics.base import require_positive
from tacit.privacy.budget import Budget
from tacit.privacy.relation import Neighbors
from tacit.research.theory import descent
from tacit.research.theory.risk import Risk

MARGIN = "margin loss φ(y·score), convex, of slope at most G, with an intercept"


def uncentred_risk(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    norm: float = 1.0,
    lipschitz: float = 1.0,
    bound: float = 1.0,
    neighbors: Neighbors = "add_or_remove_one",
) -> Risk:
    """Excess empirical risk of descent on rows as they come, in units of the loss (Lemma 1).

    Parameters
    ----------
    rank : int
        Of the rows with their constant feature.
    norm : float
        N, at least the norm of the best weights, the intercept's included.
    lipschitz : float
        G, largest slope of the loss in the score.
    bound : float
        R, largest norm of a row without its constant feature.
    n : int
        Number of rows.
    epsilon, delta : float
        The budget.
    neighbors : str
        The relation of neighbouring data sets.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Notes
    -----
    The lemma prints 2G·N·R·√(rank·log(1/δ))/(nε). Its gradients have norm up to G√(R² + 1), as it
    says itself: for R = 0 it would promise an intercept without error. Here that norm goes into
    Song et al. 2021, Theorem 3.1, from which the lemma is taken.

    Examples
    --------
    >>> round(uncentred_risk(10_000, 50, epsilon=1.0, delta=1e-6).value, 5)
    0.00423
    """
    require_positive(bound=bound, zero=True)
    require_positive(norm=norm, lipschitz=lipschitz)
    steep = lipschitz * math.hypot(bound, 1.0)
    given: dict[str, Any] = {"norm": norm, "lipschitz": steep, "neighbors": neighbors}
    found = descent.risk(n, rank, epsilon=epsilon, delta=delta, **given)
    log = math.log(1 / delta)
    return replace(
        found,
        source="Sun et al. 2024, Lemma 1",
        assumes=(MARGIN, *found.assumes),
        printed=2 * lipschitz * norm * bound * math.sqrt(rank * log) / (n * epsilon),
        correction="gradients with an intercept have norm G√(R² + 1), not G·R; exact noise",
    )


def centred_risk(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    diameter: float,
    norm: float = 1.0,
    lipschitz: float = 1.0,
    bound: float = 1.0,
    at_zero: float = 1.0,
) -> Risk:
    """Order of the excess empirical risk of DPSGD-F, in units of the loss (Theorem 1).

    G·N·(diam + R/n²)·(√(rank·log(1/δ)) + log n)/(nε) + φ(0)·log(n)/(nε).

    Parameters
    ----------
    diameter : float
        Largest distance of two rows.
    at_zero : float
        φ(0), the loss of a score of zero.
    n : int
        Number of rows.
    rank : int
        Of the rows with their constant feature.
    epsilon, delta : float
        The budget.
    norm : float
        N, at least the norm of the best weights, the intercept's included.
    lipschitz : float
        G, largest slope of the loss in the score.
    bound : float
        R, largest norm of a row.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(centred_risk(10_000, 50, epsilon=1.0, delta=1e-6, diameter=0.1).value, 5)
    0.00128
    """
    Budget(epsilon, delta)
    require_positive(n=n, rank=rank, norm=norm, lipschitz=lipschitz)
    require_positive(zero=True, diameter=diameter, bound=bound, at_zero=at_zero)
    spread = math.sqrt(rank * math.log(1 / delta)) + math.log(n)
    value = lipschitz * norm * (diameter + bound / n**2) * spread / (n * epsilon)
    value += at_zero * math.log(n) / (n * epsilon)
    return Risk(
        value,
        kind="empirical",
        constant="up to a constant",
        source="Sun et al. 2024, Theorem 1",
        assumes=(
            MARGIN,
            "two rows on different sides of the best hyperplane, or on it (Assumption 1)",
            "n at least of the order √d·log(1/δ)·log(R)·log(d)/ε, and ε of order 1",
            "a third of the budget each for the mean, the radius and descent",
        ),
        correction="the order as printed; `centred_bound` has the constants of the proof",
    )


def centred_bound(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    diameter: float,
    norm: float = 1.0,
    lipschitz: float = 1.0,
    bound: float = 1.0,
    at_zero: float = 1.0,
) -> Risk:
    """Excess empirical risk of DPSGD-F with the constants of Theorem 1's proof (appendix B.5).

    180√2·G·N·(diam + R/n²)·√(rank·log(3/δ))/(nε) for descent, 500·G·N·(2·diam + 2R/n²)·log(n)/(nε)
    for rows that are clipped, and 125·φ(0)·log(n)/(nε).

    Parameters
    ----------
    diameter : float
        Largest distance of two rows.
    at_zero : float
        φ(0), the loss of a score of zero.
    n : int
        Number of rows.
    rank : int
        Of the rows with their constant feature.
    epsilon, delta : float
        The budget.
    norm : float
        N, at least the norm of the best weights, the intercept's included.
    lipschitz : float
        G, largest slope of the loss in the score.
    bound : float
        R, largest norm of a row.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Notes
    -----
    The proof prints 60√2 for descent, from (6), where ε stands for the ε/3 that Algorithm 2 gives
    to it; the last but one display leaves that term out altogether.

    Examples
    --------
    >>> given = {"epsilon": 1.0, "delta": 1e-5, "diameter": 2.0}
    >>> found = centred_bound(1_000_000, 4, **given)
    >>> round(found.value, 4), round(found.printed, 4)
    (0.033, 0.0306)
    """
    order = centred_risk(
        n,
        rank,
        epsilon=epsilon,
        delta=delta,
        diameter=diameter,
        norm=norm,
        lipschitz=lipschitz,
        bound=bound,
        at_zero=at_zero,
    )
    unit, far = 1 / (n * epsilon), diameter + bound / n**2
    weight = lipschitz * norm * far * unit
    steps = 60 * math.sqrt(2) * weight * math.sqrt(rank * math.log(3 / delta))
    clipped = 1000 * weight * math.log(n) + 125 * at_zero * math.log(n) * unit
    return replace(
        order,
        value=3 * steps + clipped,
        constant="exact",
        source="Sun et al. 2024, Theorem 1, appendix B.5",
        assumes=(*order.assumes, "enough rows for Lemma 3, whose constant is not printed"),
        neighbors="add_or_remove_one",
        printed=steps + clipped,
        correction="60√2 is for ε; descent has a third of it, and so three times the noise",
    )


def lower_bound(
    n: int,
    rank: int,
    *,
    epsilon: float,
    diameter: float,
    norm: float | None = None,
    lipschitz: float = 1.0,
) -> Risk:
    """Order of what no private algorithm avoids on all margin losses (Theorem 2).

    G·diam·N·min(1/√rank, √rank/(nε)).

    Parameters
    ----------
    norm : float, optional
        N, norm of the best weights; √rank if not given, as in the paper's construction.
    n : int
        Number of rows.
    rank : int
        Of the rows with their constant feature.
    epsilon : float
        Of the budget.
    diameter : float
        Largest distance of two rows.
    lipschitz : float
        G, largest slope of the loss in the score.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Notes
    -----
    The theorem prints G·diam·min(1, N·√rank/(nε)), which is the same at N = √rank. For a smaller
    N its first branch cannot hold: zero weights lose at most G·N·R. Scaling the construction's loss
    as t·φ(z/t) scales its best weights and its risk by t, which gives the form above for every N.

    Examples
    --------
    >>> round(lower_bound(10_000, 50, epsilon=1.0, diameter=0.1).value, 6)
    0.0005
    """
    require_positive(
        n=n, rank=rank, epsilon=epsilon, norm=norm, lipschitz=lipschitz, diameter=diameter
    )
    size = math.sqrt(rank) if norm is None else norm
    scale = lipschitz * diameter
    return Risk(
        scale * size * min(1 / math.sqrt(rank), math.sqrt(rank) / (n * epsilon)),
        kind="empirical",
        constant="up to a constant",
        source="Sun et al. 2024, Theorem 2",
        side="lower",
        assumes=("ε at most a constant and δ at most of the order ε/n", "the hardest data set"),
        printed=scale * min(1.0, size * math.sqrt(rank) / (n * epsilon)),
        correction="for weights of norm N other than √rank the first branch scales with N too",
    )
