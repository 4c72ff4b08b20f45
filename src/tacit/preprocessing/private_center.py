"""A noisy mean of the private rows, subtracted from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.rows import Rows
from tacit.exceptions import InputError
from tacit.mechanisms.additive import lattice_drift, noisy_sum, squared_norm
from tacit.mechanisms.mean import instance_optimal_mean, locating_draws, locating_rows
from tacit.preprocessing.affine import AffineStage
from tacit.preprocessing.base import Context, PrivateStage, block_rows, require_unmoved
from tacit.privacy.sensitivity.drift import Drift

METHODS = ("gaussian", "instance-optimal")
SHORTEST = 0.05  # of a typical row around the mean, in bounds: closer, noise hides it


@dataclass
class PrivateCenter(PrivateStage, AffineStage):
    """Subtract a noisy mean (Sun et al. 2024, Algorithm 3, steps 1 and 2, or Algorithm 2, step 1).

    ``method="gaussian"``: the sum of the rows, each of norm at most R, is released with Gaussian
    noise of standard deviation ``noise_multiplier``·R and divided by the public number of rows.
    (The paper prints the noise without the division by n.)

    ``method="instance-optimal"``: location and radius of the rows are found first, and the noise
    of the mean is in proportion to that radius, not to R (`tacit.mechanisms.mean`). It takes
    `tacit.mechanisms.mean.locating_rows` to find them; with fewer, a plan says so. This is for
    rows that lie far from the origin compared with how far they lie apart; put `PrivateClip` behind
    it, which makes use of that.

    Two kinds of post-processing, which cost nothing, follow. What was summed is shrunk by the noise
    it is known to carry (James & Stein 1961, positive part): towards zero, or towards the location
    that was found first. So a mean that is mostly noise does little harm. And it is brought back
    into the R-ball, where the true mean lies.

    Parameters
    ----------
    shrink : bool
        Whether to shrink the noisy mean as described.
    method : {"gaussian", "instance-optimal"}
        As described.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows(np.tile([0.6, 0.8], (10000, 1)), bound=1.0)
    >>> PrivateCenter(noise_multiplier=1.0).fit(rows).mean_.round(1)
    array([0.6, 0.8])
    """

    share: float = 0.25  # docs/decisions/0027: what a wrong mean costs uneven classes
    shrink: bool = True
    method: str = "gaussian"
    translates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in METHODS:
            raise InputError(f"{self.name}: method={self.method!r} must be {' or '.join(METHODS)}")

    def draws(self, d: int) -> int:
        return d if self.method == "gaussian" else locating_draws(d)

    def shortage(self, size: int, d: int, noise_multiplier: float) -> str:
        needed = locating_rows(d, noise_multiplier)
        if self.method == "gaussian" or size >= needed:
            return ""
        return (
            f"{self.name}(method='instance-optimal') needs about {needed} rows of {d} columns to "
            f"find where they are at this budget, and there are {size}: what it finds is noise. "
            "Use method='gaussian' behind Normalize, more rows, or more of the budget."
        )

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        if self.method != "gaussian":
            require_unmoved(self, incoming)
        return super().drift(incoming, n, d)

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None:
            return None
        length = math.sqrt(squared_norm(self.mean_)) if hasattr(self, "mean_") else radius
        return (radius + length) * (1 + 1e-12)

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        return radius  # centred rows are seldom longer than they were

    def shown(self, radius: float, d: int) -> float:
        """Of rows of that norm with mean m, √(R² − |m|²) in the mean square."""
        mean = self._require("mean_")
        left = 1 - squared_norm(mean) / radius**2
        return radius * math.sqrt(max(left, SHORTEST**2))

    @property
    def shift(self) -> np.ndarray:
        return np.asarray(self._require("mean_"))

    def mean_noise_norm(self, noise_multiplier: float, radius: float, size: int, d: int) -> float:
        """√d·z·R/n: each of d coordinates of the mean has noise of deviation z·R/n."""
        return math.sqrt(d) * noise_multiplier * radius / size

    def lipschitz(self, d: int | None = None) -> float:
        return 1.0  # the mean is public by then

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, bound, context = self._prepare(rows, context)
        find = self._gaussian if self.method == "gaussian" else self._located
        mean = find(rows, bound, context)
        length = math.sqrt(squared_norm(mean))
        self.mean_ = mean * min(1.0, bound / length) if length else mean
        return self

    def _gaussian(self, rows: Rows, bound: float, context: Context) -> np.ndarray:
        token = context.release("center")
        moved = context.drift.l1 if context.drift else 0.0
        drift = lattice_drift(moved, rows.n, rows.d, bound)
        total = noisy_sum(rows.pending(), rows.d, bound, token, drift=drift)
        deviation = token.noise_multiplier * (bound + drift / 2) / context.size
        return self._shrunk(total / context.size, deviation)

    def _located(self, rows: Rows, bound: float, context: Context) -> np.ndarray:
        require_unmoved(self, context.drift)
        found = instance_optimal_mean(
            rows.passes(block_rows(4 * rows.d)),
            rows.d,
            bound,
            context.release("center"),
            signs=context.public.signs("rotation", context.position, rows.d),
            size=context.size,
            counted=context.counted,
        )
        return found.location + self._shrunk(found.mean - found.location, found.deviation)

    def _shrunk(self, mean: np.ndarray, deviation: float) -> np.ndarray:
        """A noisy vector, shortened by the part of its square that noise is expected to be."""
        if not self.shrink:
            return mean
        variance = len(mean) * deviation**2
        return mean * max(0.0, 1.0 - variance / max(squared_norm(mean), 1e-300))

    def note(self) -> str:
        near = "" if self.method == "gaussian" else ", of the size of their spread,"
        return f"a mean of the rows was released with Gaussian noise{near} and subtracted"
