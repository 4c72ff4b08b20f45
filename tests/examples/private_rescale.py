"""A private stage: rows divided by the root of their mean squared norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.rows import Chunk
from tacit.mechanisms.additive import lattice_drift, noisy_sum, row_norms, shorten
from tacit.preprocessing.base import Context, PrivateStage, affine, block_rows, require_positive
from tacit.privacy.events import Gaussian


@dataclass
class PrivateRescale(PrivateStage):
    """Divide rows by √(m + λ), m being the mean of ‖x‖²/R², released with noise.

    One row adds at most 1 to the sum of ‖x‖²/R², so Gaussian noise of standard deviation
    ``noise_multiplier`` is added to it, and the sum divided by the public number of rows.

    Parameters
    ----------
    share, noise_multiplier
        What is spent: a share of the plan's budget, or a fixed amount of noise.
    strength : float
        λ. It keeps rows in bounds, whatever the noise was.
    """

    strength: float = 0.1
    affine: ClassVar[bool] = True  # the map is x / scale_, so `fold` can carry coefficients back
    keeps_zero: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "strength")

    # What it costs. The plan composes the event and hands `fit` a token that draws it once.

    def event(self, noise_multiplier: float) -> Gaussian:
        return Gaussian(noise_multiplier)

    def draws(self, d: int) -> int:
        return 1

    # What is known of the rows out before any row is read: scale_ is at least √λ.

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None:
            return None
        scale = getattr(self, "scale_", math.sqrt(self.strength))
        return radius / scale * (1 + 1e-12)

    def lipschitz(self, d: int | None = None) -> float:
        return 1 / math.sqrt(self.strength) * (1 + 1e-12)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, bound, context = self._prepare(rows, context)
        # Behind a noiseless stage rows move: |‖x‖² − ‖y‖²| ≤ 2R‖x − y‖.
        moved = 2 * context.drift.l1 / bound * (1 + 1e-12) if context.drift else 0.0
        total = noisy_sum(
            rows.passes(block_rows(rows.d)).map(partial(squared_norms, bound=bound)),
            1,
            1.0,
            context.release("rescale"),
            drift=lattice_drift(moved, rows.n, 1, 1.0),
        )
        mean = min(max(float(total[0]) / context.size, 0.0), 1.0)  # post-processing
        self.scale_ = math.sqrt(mean + self.strength)
        return self

    # The map, row by row: the same bits wherever a row stands and whatever stands beside it.

    def apply(self, chunk: Chunk) -> np.ndarray:
        return affine(chunk, 0.0, self._require("scale_"))

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return coef / self._require("scale_"), intercept

    def unfold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return coef * self._require("scale_"), intercept

    def note(self) -> str:
        return "the mean squared norm of the rows was released with Gaussian noise"


def squared_norms(chunk: Chunk, bound: float) -> np.ndarray:
    """‖x‖²/R² of every row, as a column."""
    return np.square(row_norms(shorten(chunk, bound)) / bound)[:, None]
