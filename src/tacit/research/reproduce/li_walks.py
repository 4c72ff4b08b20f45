"""Algorithm 1 of Li et al. 2022 on its geometric medians, several settings side by side.

Rows are zero behind the first columns (section 4.1), so what a point has there matters by one
number, Σ aₖxₖ²: a step takes time for the occupied columns of the rows and for one point of all d.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.events import sensitivity
from tacit.research.instances import median
from tacit.research.theory.decay import one_row_noise

OCCUPIED, RADIUS = 10, 1.0
FRESH, FRESH_SEED = 20_000, 900_000  # rows that stand for the population
TOGETHER = 256  # draws at a time


def weights_of(d: int, decay: float, scale: float = 1.0) -> np.ndarray:
    """Diagonal of A: scale²·k^−decay."""
    found: np.ndarray = scale**2 * np.arange(1.0, d + 1) ** -decay
    return found


@dataclass(frozen=True)
class Rows:
    """Occupied columns of rows and of fresh ones, and the median of both.

    Attributes
    ----------
    rows, fresh : ndarray of shape (n, 10)
    centre : ndarray of shape (10,)
        Of least mean distance, over the rows and over all that might have been drawn.
    """

    rows: np.ndarray
    fresh: np.ndarray
    centre: np.ndarray

    def losses(self, points: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Mean distances at points (R, d), and how much more they are than the least."""
        least = np.zeros_like(points)
        least[:, :OCCUPIED] = self.centre
        found = {}
        for name, rows in (("empirical", self.rows), ("population", self.fresh)):
            found[name] = _distances(rows, points, weights).mean(axis=0)
            found[f"excess {name}"] = found[name] - _distances(rows, least, weights).mean(axis=0)
        return found


@lru_cache(8)
def drawn(n: int, seed: int) -> Rows:
    """The rows of `instances.median`, and fresh ones around the same centre."""
    made = median(n, OCCUPIED, radius=RADIUS, seed=seed)
    other = median(FRESH, OCCUPIED, radius=RADIUS, seed=FRESH_SEED + seed)
    return Rows(made.rows, other.rows - other.optimum + made.optimum, made.optimum)


def walk(
    data: Rows,
    weights: np.ndarray,
    *,
    whole: bool,
    steps: int,
    rates: np.ndarray,
    pulls: np.ndarray,
    noise: float | np.ndarray,
    seed: int,
) -> np.ndarray:
    """Mean of the iterates x⁽¹⁾ … x⁽ᵀ⁾ from zero, for every setting: (R, d).

    One row is drawn for a step, as printed, or all of them are taken (Remark 3.8). Settings share
    draws and noise; ``noise`` is σ, in units of G.

    Parameters
    ----------
    weights : ndarray of shape (d,) or (R, d)
        Diagonals of A.
    rates, pulls : ndarray of shape (R,)
        η and α.
    """
    rng = np.random.default_rng(seed)
    count, d = len(rates), weights.shape[-1]
    largest = np.sqrt(weights.max(axis=-1))  # G = G₀
    scale = np.broadcast_to(noise * largest, (count,))[:, None]
    point, total = np.zeros((count, d)), np.zeros((count, d))
    rates, pulls = rates[:, None], pulls[:, None]
    for row, draw in _draws(rng, len(data.rows), steps, d, whole):
        if row is None:
            gradient = _mean_gradient(data.rows, point, weights)
        else:
            apart = point.copy()
            apart[:, :OCCUPIED] -= data.rows[row]
            gradient = apart * weights
            length = np.sqrt(np.einsum("rd,rd->r", apart, gradient))
            gradient /= np.maximum(length, 1e-300)[:, None]
        # Line 4: x ← x − η(∇f + α(x − x⁽⁰⁾) + G·ζ), x⁽⁰⁾ = 0.
        gradient += pulls * point
        gradient += scale * draw
        gradient *= rates
        point -= gradient
        total += point
    return total / steps


def noise_for(whole: bool, n: int, steps: int, epsilon: float, delta: float) -> float:
    """σ, where any row may replace any other: on one row's gradient, or on the mean of all."""
    if not whole:
        return one_row_noise(n, steps, epsilon=epsilon, delta=delta)
    return float(sensitivity("replace_one") * np.sqrt(steps) / (n * gaussian_mu(epsilon, delta)))


def walked(
    *,
    whole: bool,
    n: int,
    d: int,
    decay: float,
    scale: float = 1.0,
    steps: int,
    settings: Sequence[Sequence[float]],
    budget: Sequence[float] | None,
    rows: int,
    seed: int,
) -> list[dict[str, float]]:
    """Losses for every setting, a rate and a pull; without a budget there is no noise."""
    data, weights = drawn(n, rows), weights_of(d, decay, scale)
    rates, pulls = np.array(settings, dtype=float).T
    found = walk(
        data,
        weights,
        whole=whole,
        steps=steps,
        rates=rates,
        pulls=pulls,
        noise=0.0 if budget is None else noise_for(whole, n, steps, *budget),
        seed=seed,
    )
    losses = data.losses(found, weights)
    return [{k: float(v[i]) for k, v in losses.items()} for i in range(len(rates))]


def _draws(
    rng: np.random.Generator, n: int, steps: int, d: int, whole: bool
) -> Iterator[tuple[int | None, Any]]:
    """A row and noise for every step."""
    for start in range(0, steps, TOGETHER):
        many = min(TOGETHER, steps - start)
        rows = rng.integers(n, size=many).tolist()
        for row, draw in zip(rows, rng.standard_normal((many, d)), strict=True):
            yield None if whole else row, draw


def _distances(rows: np.ndarray, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """‖xᵢ − x‖_A for all rows and points: (n, R)."""
    weights = np.broadcast_to(weights, points.shape)
    head, tail = weights[:, :OCCUPIED], weights[:, OCCUPIED:]
    behind = np.einsum("rd,rd,rd->r", points[:, OCCUPIED:], points[:, OCCUPIED:], tail)
    squares = np.square(rows) @ head.T - 2 * rows @ (head * points[:, :OCCUPIED]).T
    squares += (head * points[:, :OCCUPIED] ** 2).sum(axis=1) + behind
    found: np.ndarray = np.sqrt(np.maximum(squares, 0.0))
    return found


def _mean_gradient(rows: np.ndarray, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    inverse = 1 / np.maximum(_distances(rows, points, weights), 1e-150)
    gradient = points * inverse.mean(axis=0)[:, None]
    gradient[:, :OCCUPIED] -= inverse.T @ rows / len(rows)
    found: np.ndarray = gradient * weights
    return found
