r"""What several rows of one person cost: ε at the same δ.

A certificate is about one row. Tables that differ in k rows are joined by a path of k steps, each
between neighbours, and the account of one step bounds the whole path.

*Gaussian plans.* A plan that is μ-Gaussian private for one row is kμ-Gaussian private for k (Dong,
Roth & Su 2022, Theorem 2.14). That is exact, and ε at the same δ grows faster than k.

*All others.* If δ(x) is the privacy curve of one row, k rows have (kx, δ(x)·Σ_{j<k} e^(jx)) for
every x on it (Vadhan 2017, Lemma 2.2, with the sum as it is). The least x at which that δ is at
most the stated one is the least fixed point of x ↦ ε₁((δ/Σ_{j<k} e^(jx))), where ε₁(δ) is ε of one
row: an increasing map, so that repeating it from zero climbs there, or passes all bounds if there
is none. Then nothing is stated.

*A private test* passes wrongly, for k rows, with the probability that `tacit.privacy.ptr` proves;
δ covers it by a maximum, as it does for one row.

*Numerical errors.* What is released is within η in total variation of what was counted, on either
end of the path, so that δ grows by (1 + e^ε)·η, at the ε of k rows. A certificate states
(1 + e^ε)·η ≥ 2η for one row. What a grid may get wrong is part of δ(x), in each step of the path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal

from tacit.exceptions import InputError
from tacit.privacy.accounting import accountants
from tacit.privacy.events import Event
from tacit.privacy.ptr import Test

__all__ = [
    "MOST_ROWS",
    "ROWS",
    "UNIT",
    "Cost",
    "group_epsilon",
    "one_row",
    "rounded_up",
    "sentence",
]

ROWS = (2, 5, 10)  # of one person: what certificates state
MOST_ROWS = 1000
UNIT = "every person is one row"  # how the sentence about them begins
LARGEST = 700.0  # logarithm: beyond it e^ε overflows, and nothing is promised anyhow
TRIES = 100
UP = 1 + 1e-6  # so that another accountant's rounding confirms it

Cost = Callable[[float], float]


def one_row(
    events: Sequence[Event], neighbors: str, grid: float = accountants.FINE_GRID
) -> tuple[Cost, float]:
    """ε of one row as a function of δ, never below the truth; and what δ must spare for a grid."""
    if accountants.accountant_for(events) in ("gaussian-dp", "rdp") or accountants.closed_form(
        events
    ):
        return (lambda delta: accountants.epsilon(events, delta, neighbors)), 0.0
    loss = accountants.loss_distribution(events, neighbors, grid)
    many = float(getattr(loss, "weight", 1.0))  # of a search, whose δ is so many times that
    return (lambda delta: float(loss.get_epsilon(delta))), accountants.PLD_SLACK * many


def group_epsilon(
    events: Sequence[Event],
    delta: float,
    neighbors: str,
    rows: int,
    *,
    numerical_delta: float = 0.0,
    test: Test | None = None,
    cost: tuple[Cost, float] | None = None,
) -> float:
    """ε of somebody with ``rows`` rows at ``delta``, never below the truth; infinite if unknown.

    Parameters
    ----------
    events : sequence of Event
        All that one plan spends.
    delta : float
        The stated δ, of which ``numerical_delta`` is part.
    neighbors : str
        The neighbouring relation.
    rows : int
        Rows of one person, at least 1.
    numerical_delta : float
        What the certificate sets aside for numerical errors.
    test : Test, optional
        The private test of the plan's conditions.
    cost : tuple, optional
        `one_row` of the events, if it is known already.

    Examples
    --------
    >>> from tacit.privacy.events import Gaussian
    >>> mu = accountants.gaussian_mu(1.0, 1e-5)
    >>> for rows in (1, 5, 40):
    ...     print(round(group_epsilon([Gaussian(1 / mu)], 1e-5, "replace_special", rows), 1))
    1.0
    6.2
    102.4
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= MOST_ROWS:
        raise InputError(f"rows={rows!r:.80} must be a whole number from 1 to {MOST_ROWS}")
    if not events:
        return 0.0
    wrongly = 0.0 if test is None else test.wrongly(rows)
    least = -math.log1p(-wrongly) if wrongly < 1 else math.inf  # below it the test's proof is void
    if accountants.accountant_for(events) == "gaussian-dp":
        together = rows * accountants.total_mu(events, neighbors) * (1 + 1e-15)
        ends, within, steps = numerical_delta / 2, 0.0, 1
        spend: Cost = lambda left: accountants.gaussian_epsilon(together, left)  # noqa: E731
    else:
        spend, slack = cost or one_row(events, neighbors)
        # How much of the numerical error is that of a grid, a certificate does not say: what
        # exceeds one grid's counts as both.
        rest = numerical_delta - min(accountants.PLD_SLACK, slack) + 1e-15 * numerical_delta
        ends, steps = max(rest, 0.0) / 2, rows
        within = max(slack, numerical_delta) if slack else 0.0

    def left_at(x: float) -> float:
        """δ that a step of the path may have, if each is given ε = x."""
        whole = steps * x
        if whole > LARGEST:
            return 0.0
        left = delta - (1 + math.exp(whole)) * ends
        if not left > wrongly:
            return 0.0
        return (left / _path(steps, x) - within) * (1 - 1e-12)

    x = least / steps
    for _ in range(TRIES):
        tried = x * UP + 1e-12
        left = left_at(tried)
        if not left > 0:
            return math.inf
        needed = spend(left)
        if needed <= tried:
            return steps * tried * (1 + 1e-12)
        if not needed < math.inf:  # nor is NaN an answer
            return math.inf
        x = max(needed, x)
    return math.inf


def _path(steps: int, epsilon: float) -> float:
    """Σ_{j<k} e^(jε), what a path of k steps makes of the δ of one, rounded up."""
    if steps * epsilon > LARGEST:
        return math.inf
    return math.fsum(math.exp(j * epsilon) for j in range(steps)) * (1 + 1e-12)


def sentence(groups: Mapping[str, float | None]) -> str:
    """What a certificate says of several rows, in words.

    Examples
    --------
    >>> sentence({"2": 2.1547})
    'every person is one row; at the same delta epsilon is 2.155 for somebody with 2 rows'
    """
    known = [(rows, rounded_up(value)) for rows, value in groups.items() if value is not None]
    open_ended = [rows for rows, value in groups.items() if value is None]
    parts = [UNIT]
    if known:
        said = [
            f"{value} for somebody with {rows}" + " rows" * (not i)
            for i, (rows, value) in enumerate(known)
        ]
        parts.append(f"at the same delta epsilon is {_listed(said)}")
    if open_ended:
        more = " rows" * (not known)
        parts.append(f"nothing is promised to somebody with {_listed(open_ended, 'or')}{more}")
    return "; ".join(parts)


def _listed(words: Sequence[str], last: str = "and") -> str:
    *others, final = words
    return f"{', '.join(others)} {last} {final}" if others else final


def rounded_up(value: float) -> str:
    """To four digits, rounded up."""
    return f"{Context(4, ROUND_CEILING).plus(Decimal(repr(value))).normalize():f}"
