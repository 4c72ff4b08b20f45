r"""What several rows of one person cost: ε at the same δ.

A certificate is about one row. Tables that differ in k rows are joined by a path of k steps, each
between neighbours, and the account of one step bounds the whole path.

*Most plans.* The events themselves tell what k rows cost, if all of them are there or all of them
are null, absent or replaced (`Event.several`). A μ-Gaussian plan is kμ-Gaussian for k rows (Dong,
Roth & Su 2022, Theorem 2.14); sampled steps are mixtures with as many Gaussians as rows may be
drawn (`tacit.privacy.accounting.mixtures`); searches are what they are, with such trials. ε at the
same δ grows faster than k.

*All others.* If δ(x) is the privacy curve of one row, k rows have (kx, δ(x)·Σ_{j<k} e^(jx)) for
every x on it (Vadhan 2017, Lemma 2.2, with the sum as it is). The least x at which that δ is at
most the stated one is the least fixed point of x ↦ ε₁((δ/Σ_{j<k} e^(jx))), where ε₁(δ) is ε of one
row: an increasing map, so that repeating it from zero climbs there, or passes all bounds if there
is none. Then nothing is stated.

*A private test* passes wrongly, for k rows, with the probability that `tacit.privacy.ptr` proves;
δ covers it by a maximum, as it does for one row.

*Numerical errors.* What is released is within η in total variation of what was counted, on either
end of the path, so that δ grows by (1 + e^ε)·η, at the ε of k rows. A certificate states
(1 + e^ε)·η ≥ 2η for one row. What a grid may get wrong is added once, or, by the general rule, in
each step of the path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal

from tacit.exceptions import InputError
from tacit.privacy.accounting import accountants
from tacit.privacy.events import Event
from tacit.privacy.ptr import StabilityTest
from tacit.privacy.relation import Neighbors
from tacit.privacy.unit import ROW

ROWS = (2, 5, 10)  # of one person: what certificates state
MOST_ROWS = 1000
LARGEST_LOG = 700.0  # logarithm: beyond it e^ε overflows, and nothing is promised anyhow
TRIES = 100
GRID_PER_ROW = 3.0  # several times faster than 1, and at most 0.3% larger
UP, BARELY_UP = 1 + 1e-6, 1 + 1e-8  # of a claim, so that the rounding of others confirms it

Cost = Callable[[float], float]


def _cost(events: Sequence[Event], neighbors: Neighbors, grid: float) -> tuple[Cost, float]:
    """ε as a function of δ, never below the truth; and what δ must spare for a grid."""
    kind = accountants.accountant_for(events)
    if kind in ("gaussian-dp", "rdp") or accountants.closed_form(events):
        return (lambda delta: accountants.epsilon(events, delta, neighbors)), 0.0
    loss = accountants.loss_distribution(events, neighbors, grid)
    many = float(getattr(loss, "weight", 1.0))  # of a search, whose δ is so many times that
    return (lambda delta: float(loss.get_epsilon(delta))), accountants.PLD_SLACK * many


def group_epsilon(
    events: Sequence[Event],
    delta: float,
    neighbors: Neighbors,
    rows: int,
    *,
    numerical_delta: float = 0.0,
    sampler_delta: float | None = None,
    test: StabilityTest | None = None,
    grid: float = accountants.FINE_GRID,
    allowance: float = 1.0,
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
    sampler_delta : float, optional
        The part of it that the drawing of noise has, if it is known.
    test : StabilityTest, optional
        The private test of the plan's conditions.
    grid : float
        Distance between losses, for one row; for more it is so many times GRID_PER_ROW of it.
    allowance : float
        Times what a grid may get wrong that is set aside. Above one, for a claim, ε is rounded up
        by a millionth besides, so that recomputing confirms it.

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
        raise InputError(f"rows={rows!r:.80} must be an integer from 1 to {MOST_ROWS}")
    if not events:
        return 0.0
    wrongly = 0.0 if test is None else test.wrongly(rows)
    least = -math.log1p(-wrongly) if wrongly < 1 else math.inf  # below it the test's proof is void
    grouped = [event.several(rows) for event in events]
    known = [event for event in grouped if event is not None]
    path = rows if len(known) < len(grouped) else 1
    if path > 1 or rows == 1:
        spend, slack = _cost(events, neighbors, grid)
    else:
        spend, slack = _cost(known, neighbors, GRID_PER_ROW * rows * grid)
    slack *= allowance
    # How much of the numerical error is that of a grid, a certificate does not say: what exceeds
    # one grid's counts as both.
    rest = numerical_delta - min(accountants.PLD_SLACK, slack) + 1e-15 * numerical_delta
    ends = (max(rest, 0.0) if slack else numerical_delta) / 2
    if sampler_delta is not None:
        ends = min(ends, sampler_delta / 2)
    within = max(slack, numerical_delta) if slack else 0.0

    def left_at(x: float) -> float:
        """δ that a step of the path may have, if each is given ε = x."""
        whole = path * x
        if whole > LARGEST_LOG:
            return 0.0
        left = delta - (1 + math.exp(whole)) * ends
        if not left > wrongly:
            return 0.0
        return (left / _path(path, x) - within) * (1 - 1e-12)

    x = least / path
    for _ in range(TRIES):
        tried = x * (UP if allowance > 1 else BARELY_UP) + 1e-12
        left = left_at(tried)
        if not left > 0:
            return math.inf
        needed = spend(left)
        if needed <= tried:
            return path * tried * (1 + 1e-12)
        if not needed < math.inf:  # nor is NaN an answer
            return math.inf
        x = max(needed, x)
    return math.inf


def _path(steps: int, epsilon: float) -> float:
    """Σ_{j<k} e^(jε), what a path of k steps makes of the δ of one, rounded up."""
    if steps * epsilon > LARGEST_LOG:
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
    parts = [ROW.sentence]
    if known:
        promises = [
            f"{value} for somebody with {rows}" + " rows" * (not i)
            for i, (rows, value) in enumerate(known)
        ]
        parts.append(f"at the same delta epsilon is {_listed(promises)}")
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
