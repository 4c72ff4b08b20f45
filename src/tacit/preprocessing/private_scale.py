"""Means and scales of columns, released with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tacit.data.rows import Rows
from tacit.mechanisms.additive import lattice_drift, squared_norm
from tacit.mechanisms.moments import Moments, lifted, lifted_bound, noisy_moments
from tacit.mechanisms.passes import Passes
from tacit.preprocessing.affine import AffineStage
from tacit.preprocessing.base import Context, PrivateStage, block_rows, require_positive


def exact_moments(rows: Rows) -> Moments:
    """Without noise: for noiseless stages, which never release them."""
    assert rows.bound is not None
    total = lifted_rows(rows).merged(_column_sums, np.zeros(2 * rows.d)) / rows.n
    return Moments(total[: rows.d], total[rows.d :] * rows.bound)


def released_moments(rows: Rows, context: Context) -> Moments:
    """With noise; as ‖x² − y²‖ ≤ 2R‖x − y‖, lifted rows move √5 times as far as the rows."""
    assert rows.bound is not None
    moved = context.drift.l1 if context.drift else 0.0
    moved = math.sqrt(5) * moved * (1 + 1e-12)
    return noisy_moments(
        rows.passes(block_rows(rows.d)),
        rows.d,
        rows.bound,
        context.release("scale"),
        size=context.size,
        drift=lattice_drift(moved, rows.n, 2 * rows.d, lifted_bound(rows.bound)),
    )


def lifted_rows(rows: Rows) -> Passes:
    assert rows.bound is not None
    return lifted(rows.passes(block_rows(rows.d)), rows.bound)


def _column_sums(chunk: np.ndarray) -> np.ndarray:
    return chunk.sum(axis=0)


@dataclass
class PrivateScale(PrivateStage, AffineStage):
    """Centre columns and divide them by √(variance + λ), both from one noisy sum.

    The noise of the mean and of the mean square has standard deviation
    √2·R·``noise_multiplier``/n a column (times R for the square); a variance that the
    noise has driven below zero counts as zero, and λ keeps its column in bounds.

    Parameters
    ----------
    strength : float
        λ, in squared row norms.
    centered : bool
        Subtract means and use variances, or use mean squares alone.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows(np.tile([[0.5, 0.1], [-0.5, -0.1]], (5000, 1)), bound=1.0)
    >>> PrivateScale(noise_multiplier=1.0, strength=0.01).fit(rows).scale_.round(1)
    array([0.5, 0.1])
    """

    strength: float = 0.01
    centered: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "strength")

    def draws(self, d: int) -> int:
        return 2 * d

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None:
            return None
        if not hasattr(self, "scale_"):
            return (2 if self.centered else 1) * radius / math.sqrt(self.strength) * (1 + 1e-12)
        length = math.sqrt(squared_norm(self.mean_))
        return (radius + length) / float(self.scale_.min()) * (1 + 1e-12)

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        bound = self.bound(radius, d)
        return bound if bound is None or d is None else min(bound, math.sqrt(d))

    def lipschitz(self, d: int | None = None) -> float:
        return 1 / math.sqrt(self.strength)  # the scales are public by then

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, bound, context = self._prepare(rows, context)
        found = released_moments(rows, context)
        mean = found.mean if self.centered else np.zeros(rows.d)
        length = math.sqrt(squared_norm(mean))
        self.mean_ = mean * min(1.0, bound / length) if length else mean
        spread = found.variance if self.centered else found.square
        self.scale_ = np.sqrt(spread + self.strength)
        return self

    def note(self) -> str:
        return "means and scales of the columns were released with Gaussian noise"
