r"""How far apart the sums over *drawn* rows may lie, once the rows have drifted.

Every step of a sampling trainer draws each row with probability q. Let J be the drawn rows among
those that both neighbours have, and b_J the distance between the two neighbours' sums of clipped
gradients over J. Given J the step is dominated by a pair that grows with b_J, and J is drawn
afresh in each step, independently of the data and of everything released before; so it may be
revealed, and a step costs at most the mixture, over the law of b_J, of these pairs. Because they
grow with b, any law that is stochastically larger will do (``docs/drift.md``).

Each function below gives such a law, as `tacit.privacy.PoissonGaussian` takes it: pairs (weight,
shift), shifts in units of the clip, and the probability that in any step the law is exceeded.
None of them is best for all drifts; `cheapest` compares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.exceptions import InputError
from tacit.privacy.accounting.accountants import COARSE_GRID, epsilon
from tacit.privacy.events import Event
from tacit.privacy.sensitivity.drift import Drift

Array = NDArray[np.float64]
Shifts = tuple[tuple[float, float], ...]
Law = tuple[Shifts, float]

SHARE = 0.01  # of δ, spent on laws being exceeded
BINS = 32
UP = 1 + 2.0**-45  # more than the rounding of any formula here
SURE = 1 + 1e-6  # more than the error of SciPy's binomial tails


class _Moves(NamedTuple):
    """The drift of clipped gradients, in units of the clip: what a row's may be, and all rows'."""

    l1: float
    linf: float
    l2: float


def _moves(drift: Drift, constant: float, clip: float, most: float | None) -> _Moves:
    """A row that moves by d moves its clipped gradient by at most min(μd, 2C)."""
    if not (constant >= 0 and 0 < clip < math.inf):
        raise InputError(
            f"constant={constant!r} must be at least 0, clip={clip!r} positive and finite"
        )
    if most is not None and not 0 <= most <= 2 * clip:
        raise InputError(f"most={most!r} must lie between 0 and twice the clip, {2 * clip!r}")
    if not drift.l1 or not constant:
        return _Moves(0.0, 0.0, 0.0)
    assert drift.l2 is not None  # filled on the way in
    linf = min(constant * drift.linf, 2 * clip if most is None else most) / clip
    l1 = min(constant * drift.l1 / clip, drift.l0 * linf if linf else 0.0)
    l2 = min(constant * drift.l2 / clip, math.sqrt(linf * l1))
    return _Moves(l1 * UP, linf * UP, l2 * UP)


def flat(drift: Drift, *, constant: float, clip: float, most: float | None = None) -> float:
    """b/C that no draw exceeds: min(μτ, m·min(μt, 2C))/C.

    *Proof.* Clipped gradients move by min(μ‖dᵢ‖, 2C) a row; over any rows J these sum to at most
    μ·Σ‖dᵢ‖ ≤ μτ and, as at most m rows move at all, to m·min(μt, 2C).
    """
    return _moves(drift, constant, clip, most).l1


def crowded(
    drift: Drift,
    *,
    constant: float,
    clip: float,
    probability: float,
    n: int,
    steps: int,
    delta: float,
    most: float | None = None,
) -> Law:
    """By how many of the moved rows are drawn.

    *Proof.* Of m′ ≤ m moved rows K ~ Bin(m′, q) are drawn, stochastically less than Bin(m, q).
    Then b_J ≤ b(K) = min(μτ, K·min(μt, 2C)), which increases. Rounding K up within bins makes it
    larger still. Beyond the last bin lie e of the mass: all steps together fail with T·e at most.
    """
    _check(probability, n, steps, delta)
    from scipy.stats import binom  # a second to import

    moves = _moves(drift, constant, clip, most)
    rows = int(min(drift.l0, n - 1))
    if not (moves.l1 and rows):
        return ((1.0, moves.l1),), 0.0
    allowed = SHARE * delta / steps
    top = max(int(binom.isf(allowed / SURE, rows, probability)), 0)
    while top < rows and binom.sf(top, rows, probability) * SURE > allowed:
        top += 1
    low = int(binom.ppf(1e-9, rows, probability))
    drawn = np.unique(np.rint(np.linspace(min(low, top), top, 2**12)))
    tails = binom.sf(drawn, rows, probability) * SURE
    if top == rows:
        tails[-1] = 0.0
    return _law(drawn * moves.linf * UP, tails, moves.l1, steps, BINS)


def bernstein(
    drift: Drift,
    *,
    constant: float,
    clip: float,
    probability: float,
    steps: int,
    delta: float,
    levels: int = 1,
    most: float | None = None,
) -> Law:
    """By a tail bound on Σ‖dᵢ‖ over the drawn rows; ``levels`` of it, or just the last.

    *Proof.* Σξᵢ‖dᵢ‖, ξᵢ ~ Bernoulli(q) independent, has mean ≤ qτ, variance ≤ q(1−q)φ² and terms
    that exceed their mean by ≤ t. By Bernstein (Boucheron, Lugosi & Massart 2013, Thm 2.10) it
    exceeds b(L) = qτ + √(2q(1−q)φ²L) + tL/3 with probability ≤ e^(−L). For L₀ = 0 < L₁ < … < Lⱼ,
    the law of b(Lᵢ) with weights e^(−Lᵢ₋₁) − e^(−Lᵢ) is thus stochastically larger; e^(−Lⱼ) fail.
    """
    _check(probability, 1, steps, delta)
    moves = _moves(drift, constant, clip, most)
    last = math.log(steps * SURE / (SHARE * delta))
    roots = np.linspace(0.0, math.sqrt(last), 2**12)  # of L
    rates = (math.sqrt(2 * probability * (1 - probability)) * moves.l2, moves.linf / 3)
    bounds = (probability * moves.l1 + rates[0] * roots + rates[1] * roots**2) * UP
    return _law(bounds, np.exp(-(roots**2)) * SURE, moves.l1, steps, levels)


def candidates(
    drift: Drift,
    *,
    constant: float,
    clip: float,
    probability: float,
    n: int,
    steps: int,
    delta: float,
    most: float | None = None,
    extra: float = 0.0,
) -> list[Law]:
    """Laws of b_J/C to choose from, all of them valid.

    Parameters
    ----------
    drift : Drift
        Of the rows that are drawn from.
    constant : float
        μ, Lipschitz constant of a row's clipped gradient in the row; may be infinite.
    clip : float
        C, bound of a row's gradient.
    probability : float
        q, with which each row is drawn.
    n, steps : int
        Rows, and draws.
    delta : float
        Of the whole plan; a hundredth of it may be spent on failures.
    most : float, optional
        How far one row that moved can carry a sum, if less than 2C.
    extra : float
        By how much more the sums may lie apart whatever is drawn, such as by rounding.

    Examples
    --------
    >>> from tacit.privacy.sensitivity.drift import Drift, soft_pca
    >>> drift = soft_pca(Drift(1.0), 10_000, 0.05)
    >>> options = dict(constant=1.0, clip=1.0, probability=0.025, n=10_000, steps=400, delta=1e-5)
    >>> for shifts, failure in candidates(drift, **options):
    ...     print(len(shifts), round(sum(w * b for w, b in shifts), 3), f"{failure:.0e}")
    1 2.236 0e+00
    32 0.501 8e-08
    1 0.094 1e-07
    32 0.061 1e-07
    """
    _check(probability, n, steps, delta)
    if not 0 <= extra < math.inf:
        raise InputError(f"extra={extra!r} must be at least 0 and finite")
    whole = flat(drift, constant=constant, clip=clip, most=most)
    if not whole and not extra:
        return [((), 0.0)]
    laws: list[Law] = [(((1.0, whole),), 0.0)]
    if whole and probability < 1:
        given: dict[str, Any] = {"constant": constant, "clip": clip, "most": most}
        given |= {"probability": probability, "steps": steps, "delta": delta}
        laws.append(crowded(drift, n=n, **given))
        laws += [bernstein(drift, levels=levels, **given) for levels in (1, BINS)]
    unlike = list(dict.fromkeys(laws))
    return [
        (tuple((weight, (b + extra / clip) * UP) for weight, b in shifts), failure)
        for shifts, failure in unlike
    ]


def cheapest(
    laws: Sequence[Law], make_event: Callable[[Shifts, float], Event], delta: float
) -> Law:
    """The law that costs least ε at ``delta``, by itself, at the noise of ``make_event``.

    Which one that is hardly depends on the noise: a first guess at it will do.
    """

    def cost(law: Law) -> tuple[float, float]:
        event = make_event(*law)
        spent = epsilon([event], delta, "replace_one", grid=COARSE_GRID)
        return spent, math.fsum(weight * b for weight, b in law[0])

    return laws[0] if len(laws) == 1 else min(laws, key=cost)


def _check(probability: float, n: int, steps: int, delta: float) -> None:
    if not (0 < probability <= 1 and n >= 1 and steps >= 1 and 0 < delta < 1):
        raise InputError(
            f"probability={probability!r} must lie in (0, 1], n={n!r} and steps={steps!r} be at "
            f"least 1, delta={delta!r} lie between 0 and 1"
        )


def _law(values: Array, tails: Array, cap: float, steps: int, bins: int) -> Law:
    """The law that exceeds values[i] with probability tails[i], in at most ``bins`` shifts.

    ``cap`` is never exceeded at all. Values within a bin are rounded up to its end; ends are
    placed so as to raise the mean least: bins of width f^(−½) where the density is f. What
    exceeds the last value is a failure, and counted in the last bin as well.
    """
    if values[-1] >= cap:
        enough = int(np.argmax(values >= cap))
        values = np.append(values[:enough], cap)
        tails = np.append(tails[:enough], 0.0)
    tails = np.minimum.accumulate(np.minimum(tails, 1.0))
    roots = np.cumsum(np.sqrt(-np.diff(tails, prepend=1.0)))
    ends = np.searchsorted(roots, roots[-1] * np.arange(1, bins) / bins)
    ends = np.unique(np.append(ends, len(values) - 1))
    beyond = np.append(tails[ends[:-1]], 0.0)
    weights = -np.diff(beyond, prepend=1.0)
    kept = weights > 0
    shifts = zip(weights[kept].tolist(), values[ends][kept].tolist(), strict=True)
    return tuple(shifts), min(steps * float(tails[-1]) * UP, 1.0)
