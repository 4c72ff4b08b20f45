r"""What no private algorithm avoids: fingerprinting data for the absolute loss.

Song et al. 2021, Theorem 3.3, with the constants of its Theorem B.1 (fresh rows) and Corollary B.4
(the rows themselves). The data are `tacit.research.instances.fingerprinting`.

Both are for L = 1 and best weights within [0, 1]^r, of norm at most √r. Taking t·L·|z/t − y| for
the loss, t = N/√r, scales best weights and risk by t: hence the factor L·N/√r for other norms.

A condition is missing in the paper. The last step of Theorem B.1 needs 160·δ·α·n/r ≤ 0.02·α, which
with n = r/(10(e^ε − 1)α) is δ ≤ α(e^ε − 1)/1000; it prints (e^ε − 1)/1000, where an α got lost. As
α = min(1, r/(10(e^ε − 1)n)), δ must be at most r/(10⁴·n) too. (Theorem 3.3 asks for δ ≤ cε/n.)
"""

from __future__ import annotations

import math

from tacit.diagnostics.base import require_positive
from tacit.exceptions import InputError
from tacit.privacy.budget import Budget
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Neighbors
from tacit.research.theory.risk import Risk

INSTANCE = "the hardest data set: absolute loss, rows that are unit vectors or zero, labels 0 or 1"
REPLACED = "private for one row replaced, or blanked out at half the ε"


def risk(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    norm: float | None = None,
    lipschitz: float = 1.0,
    neighbors: Neighbors = "replace_one",
) -> Risk:
    """Least excess empirical risk, in units of the loss (Song et al. 2021, Corollary B.4).

    L·N/√r·(min(1/20, r/(210·ε·n)) − 2δ), zero if negative.

    Parameters
    ----------
    norm : float, optional
        N, norm that the best weights do not exceed; √rank if not given.
    neighbors : str
        The relation that the algorithm is private for. Where a row is blanked out, added or
        removed, replacing it is two steps: (2ε, (1 + e^ε)δ).
    n : int
        Number of rows.
    rank : int
        Of the rows with their constant feature.
    epsilon, delta : float
        The budget.
    lipschitz : float
        L, largest norm of a row's gradient.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(risk(10_000, 50, epsilon=0.02, delta=1e-8).value, 5)
    0.00119
    """
    require_positive(n=n, rank=rank, norm=norm, lipschitz=lipschitz)
    epsilon, delta = _replaced(Budget(epsilon, delta), neighbors)
    if epsilon > 1 / 21:
        raise InputError(f"epsilon={epsilon:g}, a row replaced, is beyond the corollary: 1/21")
    _small(delta, min(epsilon / 1000, rank / (1e4 * n)))
    base = min(1 / 20, rank / (210 * epsilon * n)) - 2 * delta
    return Risk(
        max(0.0, base) * _scale(rank, norm, lipschitz),
        kind="empirical",
        constant="exact",
        source="Song et al. 2021, Theorem 3.3 and Corollary B.4",
        side="lower",
        neighbors=neighbors,
        assumes=(INSTANCE, REPLACED, "ε at most 1/21, δ at most ε/1000 and rank/(10⁴·n)"),
        correction="the condition δ ≤ rank/(10⁴·n) is missing in the corollary",
    )


def population_risk(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    norm: float | None = None,
    lipschitz: float = 1.0,
    neighbors: Neighbors = "replace_one",
) -> Risk:
    """Least excess risk over fresh rows, in units of the loss (Song et al. 2021, Theorem B.1).

    L·N/√r·min(1/10, r/(100(e^ε − 1)n)).

    Parameters
    ----------
    n : int
        Number of rows.
    rank : int
        Of the rows with their constant feature.
    epsilon, delta : float
        The budget.
    norm : float, optional
        N, at least the norm of the best weights, the intercept's included.
    lipschitz : float
        L, largest norm of a row's gradient.
    neighbors : str
        The relation of neighbouring data sets.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(population_risk(10_000, 50, epsilon=1.0, delta=1e-7).value, 7)
    2.91e-05
    """
    require_positive(n=n, rank=rank, norm=norm, lipschitz=lipschitz)
    epsilon, delta = _replaced(Budget(epsilon, delta), neighbors)
    grown = math.expm1(min(epsilon, 700.0))
    active = min(1.0, rank / (10 * grown * n))
    _small(delta, active * grown / 1000)
    return Risk(
        active / 10 * _scale(rank, norm, lipschitz),
        kind="population",
        constant="exact",
        source="Song et al. 2021, Theorem B.1",
        side="lower",
        neighbors=neighbors,
        assumes=(INSTANCE, REPLACED, "δ at most (e^ε − 1)/1000 and rank/(10⁴·n)"),
        correction="the condition δ ≤ rank/(10⁴·n) is missing in the theorem",
    )


def _replaced(given: Budget, neighbors: Neighbors) -> tuple[float, float]:
    """What privacy for this relation comes to where a row is replaced by another."""
    if sensitivity(neighbors) == 2:
        return given.epsilon, given.delta
    return 2 * given.epsilon, (1 + math.exp(min(given.epsilon, 700.0))) * given.delta


def _scale(rank: int, norm: float | None, lipschitz: float) -> float:
    return lipschitz * (1.0 if norm is None else norm / math.sqrt(rank))


def _small(delta: float, most: float) -> None:
    if delta > most:
        raise InputError(f"delta={delta:g} is too large for the lower bound: at most {most:.2g}")
