"""Columns brought to about the same size by their noisy mean squares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from tacit.data.rows import Chunk
from tacit.mechanisms.additive import lattice_drift, noisy_sum, shorten, squared_norm
from tacit.preprocessing.affine import AffineStage
from tacit.preprocessing.base import (
    Context,
    PrivateStage,
    block_rows,
    densify,
    require_positive,
    saturated,
)


@dataclass
class PrivateEqualize(PrivateStage, AffineStage):
    """Divide columns by the root of their mean square, released with noise.

    Descent learns along a column as fast as its square is large, and its noise is the same along
    all of them: columns of one size are learned together. This is the diagonal preconditioner of
    adaptive methods, applied to the rows instead of the gradients, so that clipping and noise see
    it too. Put `Normalize` behind it.

    The squares of a row, as one vector, are clipped to norm ``evenness``·R²/√d and summed with
    Gaussian noise of ``noise_multiplier`` times that. A row whose values are all of one size has
    R²/√d, so a small bound costs little where no few values make up a row, and buys noise that is
    √d times smaller than that of rows bounded by R² (as in `PrivateScale`).

    Two kinds of post-processing follow. Mean squares are drawn to their average by the noise that
    they are known to carry (James & Stein 1961, positive part), so that columns stay as they are
    where the noise says more than the rows. And ``strength`` averages are added to all of them,
    so that a column that hardly varies is not blown up.

    Parameters
    ----------
    strength : float
        What is added to every mean square, in averages of them.
    evenness : float
        Norm bound of a row's squares, in those of a row of equal values.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows(np.tile([0.8, 0.1], (1000, 1)), bound=1.0)
    >>> (PrivateEqualize(noise_multiplier=1.0).fit(rows).scale_ > 1).tolist()
    [True, False]
    """

    strength: float = 0.2
    evenness: float = 1.0
    keeps_zero: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "strength")
        require_positive(self, "evenness")

    def draws(self, d: int) -> int:
        return d

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None:
            return None
        smallest = float(self.scale_.min()) if hasattr(self, "scale_") else 1 / self.lipschitz()
        return radius / smallest * (1 + 1e-12)

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        return radius  # the squares of the scales are 1 on average

    def lipschitz(self, d: int | None = None) -> float:
        return math.sqrt(1 + 1 / self.strength) * (1 + 1e-12)  # the scales are public by then

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, bound, context = self._prepare(rows, context)
        token = context.release("equalize")
        # In units of R, whose square may be no number to compute with: ‖x²‖ ≤ ‖x‖² ≤ 1 for any
        # row, so a larger bound would be noise for nothing.
        most = min(1.0, self.evenness / math.sqrt(rows.d)) * (1 + 1e-12)
        # ‖x² − y²‖ ≤ 2‖x − y‖, and clipping brings no two vectors farther apart.
        moved = 2 * context.drift.l1 / bound * (1 + 1e-12) if context.drift else 0.0
        drift = lattice_drift(moved, rows.n, rows.d, most)
        total = noisy_sum(
            rows.passes(block_rows(rows.d)).map(partial(_squares, bound=bound)),
            rows.d,
            most,
            token,
            drift=drift,
        )
        deviation = token.noise_multiplier * (most + drift / 2) / context.size
        self.scale_ = scales_of(total / context.size, deviation, self.strength)
        return self

    def apply(self, chunk: Chunk) -> Chunk:
        scale = self._require("scale_")
        with np.errstate(over="ignore"):
            if not sp.issparse(chunk):
                return saturated(np.asarray(chunk) / scale)
            found = sp.csr_array(chunk, copy=True)
            found.data = saturated(found.data / scale[found.indices])
            return found

    def note(self) -> str:
        return "mean squares of the columns were released with Gaussian noise; columns were divided"


def _squares(chunk: Chunk, bound: float) -> np.ndarray:
    dense = shorten(densify(chunk), bound) / bound
    return dense * dense


def scales_of(squares: np.ndarray, deviation: float, strength: float) -> np.ndarray:
    """Roots of mean squares in units of their average, at least √(λ/(1 + λ))."""
    average = float(squares.mean())
    if average <= 0:  # nothing but noise
        return np.ones_like(squares)
    apart = squares - average
    noise = len(squares) * deviation**2
    kept = max(0.0, 1.0 - noise / max(squared_norm(apart), 1e-300))
    relative = np.maximum(1 + kept * apart / average, 0.0)
    return np.sqrt((relative + strength) / (1 + strength))
