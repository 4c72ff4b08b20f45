r"""Privacy losses of sampled steps: mixtures of Gaussians on the line, by connect-the-dots.

*Domination.* Let P = Σ pᵢ N(uᵢ, I) and Q = Σ qⱼ N(vⱼ, I) with ‖uᵢ‖ ≤ sᵢ and ‖vⱼ‖ ≤ tⱼ. Then for
every α ≥ 0 the hockey-stick divergence of P from Q is at most that of Σ pᵢ N(sᵢ, 1) from
Σ qⱼ N(−tⱼ, 1), on the line, in both orders (``docs/drift.md``, Theorem A; Ganesh 2024 has the case
of tⱼ = 0). It grows with each sᵢ and tⱼ, so that weights may be moved to larger ones.

*Sampled rows.* A step draws every row with probability q. Reveal which of the rows that both tables
have were drawn: that is independent of the data, and divergences are jointly convex. Given it, a
unit of k rows, of which J ~ Bin(k, q) are drawn, moves the sum by at most J contributions, in units
of noise J/z. Tables with its rows against tables in which they are null or absent: Bin(k, q)
mixtures of N(j/z) against N(0). Rows replaced by k others: against the mirror image, and with b,
by which preprocessing moved the sums over common rows, seen from half-way: N((j + b/2)/z). The law
of b is drawn afresh in each step, so that the δ(ε) of *one step* average over it.

*On a grid.* The loss ℓ = ln dP/dQ increases on the line, so δ(ε) = P(X > x) − e^ε·Q(X > x) where
ℓ(x) = ε: exact points of a curve that is convex in e^ε. Chords between them lie above it.
Doroshenko, Ghazi, Kamath, Kumar & Manurangsi 2022 make of such points a distribution of losses that
dominates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from tacit.privacy.events import PoissonGaussian
from tacit.privacy.relation import Neighbors

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

TAIL = 9.8  # standard deviations: beyond lie 1e-22 of the mass, counted as an infinite loss
LONGEST_GRID = 2**20  # grid steps up to the largest finite loss
LEAST_NOISE = 1e-3  # of a contribution: with less, nothing is claimed but δ ≤ 1
RATIO = 2048  # dots lie this fraction of their loss apart, or a grid step
MOST_DRAWN = 64  # numbers of drawn rows that are told apart

Array = NDArray[np.float64]
Mixture = tuple[tuple[float, float], ...]  # (weight, mean ≥ 0) of each N(mean, 1)
NULL: Mixture = ((1.0, 0.0),)


def loss_of_sampled_step(
    event: PoissonGaussian, neighbors: Neighbors, grid: float
) -> PrivacyLossDistribution:
    """One step, in both orders of the neighbours, on multiples of ``grid``; never too low.

    Parameters
    ----------
    event : PoissonGaussian
        Its count is left aside.
    neighbors : str
        The neighbouring relation. Only ``"replace_one"`` knows drift.
    grid : float
        Distance between losses.
    """
    from dp_accounting.pld import privacy_loss_distribution

    z = event.noise_multiplier
    drawn = binomial(event.rows, event.sampling_probability)
    parts = [
        (weight, tuple((chance, (j + shift / 2) / z) for chance, j in drawn))
        for weight, shift in whole(event.drift)
    ]
    replaced = neighbors == "replace_one"
    pairs = [(weight, with_rows, with_rows if replaced else NULL) for weight, with_rows in parts]
    orders = [pairs] if replaced else [pairs, [(weight, q, p) for weight, p, q in pairs]]
    dots = max(
        (dots_of(p, q, grid) for order in orders for _, p, q in order), key=lambda found: found[-1]
    )
    points = np.asarray(grid * dots, dtype=np.float64)
    curves = [
        np.sum([weight * curve(p, q, points) for weight, p, q in order], axis=0) for order in orders
    ]
    made = [
        _connected(dots, points, there, back, grid)
        for there, back in zip(curves, reversed(curves), strict=True)
    ]
    return privacy_loss_distribution.PrivacyLossDistribution(*made)


def binomial(count: int, probability: float) -> Mixture:
    """The law of how many of ``count`` rows are drawn, stochastically no smaller.

    Weights are rounded up, beginning with the largest number; none of them takes what is left.
    Beyond 64 rows, several numbers count as the largest of them.
    """
    if probability == 1:
        return ((1.0, float(count)),)
    width = -(-count // MOST_DRAWN)
    ends = range(count, 0, -width)
    left, law = 1.0, []
    for end in ends:
        some = range(max(end - width, 0) + 1, end + 1)
        chance = math.fsum(
            math.comb(count, j) * probability**j * (1 - probability) ** (count - j) for j in some
        )
        weight = min(chance * (1 + 1e-15 * (count + 8)) + 1e-300, left)
        left -= weight
        law.append((weight, float(end)))
    law.append((left, 0.0))
    return tuple((weight, j) for weight, j in reversed(law) if weight > 0)


def whole(drift: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Shifts in order, with their weights; what these lack of one goes to the largest."""
    shifts = sorted(drift or [(1.0, 0.0)], key=lambda pair: pair[1])
    *others, (weight, largest) = shifts
    rest = 1 - math.fsum(weight for weight, _ in others)
    return [*others, (max(weight, rest), largest)]


def _connected(
    dots: NDArray[np.int64], points: Array, there: Array, back: Array, grid: float
) -> PLDPmf:
    """Losses of one order. Below zero: δ(−ε) = 1 − e^(−ε) + e^(−ε)·δ′(ε), δ′ of the other."""
    from dp_accounting.pld import pld_pmf

    above = points[:0:-1]
    mirrored = -np.expm1(-above) + np.exp(-above) * back[:0:-1]
    deltas = np.concatenate([mirrored, there * (1 + 1e-13)]) * (1 + 1e-15)
    # Nor is it 1, whose logarithm dp-accounting takes; `get_delta` rounds up again.
    deltas = np.minimum(np.maximum.accumulate(deltas[::-1])[::-1], 1 - 2.0**-53)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(
        grid, np.concatenate([-dots[:0:-1], dots]), deltas
    )
    # Dense, because a sparse one begins by computing its size to the power of the count.
    return pmf.to_dense_pmf()


def _densities(p: Mixture, q: Mixture, x: Array) -> tuple[Array, Array]:
    """ln of dP/dN(0, 1) and dQ/dN(0, 1) at x, Q with the means −t."""
    up = [math.log(weight) - s * s / 2 + s * x for weight, s in p]
    down = [math.log(weight) - t * t / 2 - t * x for weight, t in q]
    return np.logaddexp.reduce(up), np.logaddexp.reduce(down)


def _range(p: Mixture, q: Mixture) -> tuple[float, float]:
    """Between these the loss is zero somewhere; beyond the second P has next to no mass.

    At x = −max t/2 every density of P is at most that of N(0, 1), and none of Q's is below it.
    """
    return -max(t for _, t in q) / 2, max(s for _, s in p) + TAIL


def _claims(p: Mixture, q: Mixture) -> bool:
    return max(mean for _, mean in (*p, *q)) * LEAST_NOISE < 1


def dots_of(p: Mixture, q: Mixture, grid: float) -> NDArray[np.int64]:
    """Losses to connect, in grid steps from zero: each, then ever fewer.

    Moving a loss by up to a fraction of itself costs the square of that fraction of its second
    moment, so that few dots do as well as all.
    """
    most = 0.0
    if _claims(p, q):
        up, down = _densities(p, q, np.array([_range(p, q)[1]]))
        most = float(up[0] - down[0])
    last = min(max(math.ceil(most / grid), 1), LONGEST_GRID)
    dense = min(RATIO, last)
    number = math.ceil(RATIO * math.log(last / dense)) + 2
    sparse = np.rint(np.geomspace(dense, last, number)) if last > dense else [last]
    return np.unique(np.concatenate([np.arange(dense + 1), sparse])).astype(np.int64)


def curve(p: Mixture, q: Mixture, losses: Array) -> Array:
    """δ at each of ``losses`` ≥ 0, never below the truth.

    Points (ℓ(x), δ) are exact for any x. It is placed where ℓ(x) is about the loss in question, so
    that chords lie hardly above the curve.
    """
    if not _claims(p, q):
        return np.ones_like(losses)
    table = np.linspace(*_range(p, q), 2**13)
    up, down = _densities(p, q, table)
    x = np.interp(losses, np.maximum.accumulate(up - down), table)
    x = np.append(table[0], x)  # where the loss is not above zero
    up, down = _densities(p, q, x)
    loss = up - down
    upper = sum(weight * ndtr(s - x) for weight, s in p)
    # e^ℓ·Q(X > x), term by term as a logarithm: neither e^ℓ nor Φ leaves its range.
    lower = sum(np.exp(loss + math.log(weight) + log_ndtr(-t - x)) for weight, t in q)
    # Rounding of Φ, log Φ and exp, whose arguments are good to a few ulps, and of ℓ(x) itself.
    far = max(mean for _, mean in (*p, *q))
    small = min(weight for weight, _ in (*p, *q))
    size = 1 + (np.abs(x) + far) ** 2 - math.log(small)
    delta = np.clip(upper - lower + 64 * 2.0**-53 * size * upper + 1e-300, 0.0, 1.0)
    keep = np.append(True, np.diff(np.maximum.accumulate(loss)) > 0)
    loss, delta = loss[keep], delta[keep]
    left = np.clip(np.searchsorted(loss, losses, "right") - 1, 0, max(len(loss) - 2, 0))
    right = np.minimum(left + 1, len(loss) - 1)
    done, gap = losses - loss[left], loss[right] - loss[left]
    with np.errstate(all="ignore"):  # (e^done − 1)/(e^gap − 1), without overflow
        part = np.exp(done - gap) * np.expm1(-done) / np.expm1(-gap)
    part = np.clip(np.nan_to_num(part), 0.0, 1.0)  # beyond the last point: its δ
    return np.asarray(delta[left] + part * (delta[right] - delta[left]), dtype=np.float64)
