"""Stages that look at the private rows through noise, and pay for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.rows import Chunk
from tacit.mechanisms.additive import lattice_drift, noisy_sum
from tacit.privacy.events import Gaussian
from tacit.stages.base import Context, PrivateStage, densify

__all__ = ["PrivateCenter"]


@dataclass
class PrivateCenter(PrivateStage):
    """Subtract a noisy mean (paper 000, Algorithm 3, steps 1 and 2).

    The sum of the rows, each of norm at most R, is released with Gaussian noise
    of standard deviation ``noise_multiplier``·R and divided by the public number
    of rows. (The paper prints the noise without the division by n.) Two kinds of
    post-processing, which cost nothing, follow: the noisy mean is shrunk towards
    zero by the noise it is known to carry (James & Stein 1961, positive part),
    so a mean that is mostly noise does little harm; and it is brought back into
    the R-ball, where the true mean lies.

    Parameters
    ----------
    share, noise_multiplier
        What is spent: a share of the plan's budget, or a fixed amount of noise.
    shrink : bool
        Whether to shrink the noisy mean as described.
    """

    shrink: bool = True
    affine: ClassVar[bool] = True

    def event(self, noise_multiplier: float) -> Gaussian:
        return Gaussian(noise_multiplier)

    def draws(self, d: int) -> int:
        return d

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None:
            return None
        length = float(np.linalg.norm(self.mean_)) if hasattr(self, "mean_") else radius
        return (radius + length) * (1 + 1e-12)

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        return radius  # centred rows are seldom longer than they were

    def lipschitz(self, d: int | None = None) -> float:
        return 1.0  # the mean is public by then

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, bound, context, noise_multiplier = self._prepare(rows, context)
        chunks = (chunk for _, chunk in rows.chunks())
        stream = context.key.stream("center", context.position)
        moved = context.drift.total if context.drift else 0.0
        drift = lattice_drift(moved, rows.n, rows.d, bound)
        total = noisy_sum(chunks, rows.d, bound, noise_multiplier, stream, drift=drift)
        mean = total / context.size
        if self.shrink:
            deviation = noise_multiplier * (bound + drift / 2) / context.size
            variance = rows.d * deviation**2
            mean *= max(0.0, 1.0 - variance / max(float(mean @ mean), 1e-300))
        length = float(np.linalg.norm(mean))
        self.mean_ = mean * min(1.0, bound / length) if length else mean
        return self

    def apply(self, chunk: Chunk) -> np.ndarray:
        return densify(chunk) - self._require("mean_")

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return coef, intercept - coef @ self._require("mean_")

    def note(self) -> str:
        return "a mean of the rows was released with Gaussian noise and subtracted"
