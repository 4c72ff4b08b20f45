"""Norms and columns bounded by private quantiles, for rows whose scale is not known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np

from tacit.data.rows import Chunk, as_rows
from tacit.exceptions import InputError
from tacit.mechanisms.additive import shorten
from tacit.mechanisms.bounds import bounds_draws, bounds_rows, noisy_bounds
from tacit.mechanisms.extent import noisy_radius, radius_draws, radius_rows
from tacit.mechanisms.quantile import METHODS, Method, event
from tacit.preprocessing.base import (
    Context,
    PrivateStage,
    Stage,
    block_rows,
    densify,
    require_unmoved,
)
from tacit.preprocessing.free import clamp
from tacit.privacy.events import Event
from tacit.privacy.sensitivity.drift import Drift

JOINT = math.sqrt(2)  # a row of norm τ and its constant τ, in units of τ
MOST_LENGTHS = 2.0**60  # beyond, a constant beside the row is less than its rounding


@dataclass
class RankStage(PrivateStage):
    """A stage that finds quantiles of the private rows, by noisy search or by selection."""

    method: str = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in METHODS:
            raise InputError(f"{self.name}: method={self.method!r} must be {' or '.join(METHODS)}")

    @property
    def _method(self) -> Method:
        return cast("Method", self.method)

    def event(self, noise_multiplier: float) -> Event:
        return event(self._method, noise_multiplier)

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        require_unmoved(self, incoming)
        return super().drift(incoming, n, d)


@dataclass
class PrivateClip(RankStage):
    """Clip rows to a private quantile τ of their norms, and divide them by it.

    Step 2 of Algorithm 2 of Sun et al. 2024, and with ``constant`` its steps 3 and 4: a row x
    becomes (x, τ)/τ, shortened to √2 where x is longer than τ, row and constant together. Almost
    all rows keep their direction and relative length, the longest have norm one (√2 with their
    constant), and so the bound on rows out is known before any row was read: settings that are
    chosen from bounds fit the rows that there really are, even if the public bound on rows in is
    far too large.

    The clip is for training rows. The model is folded back through the division alone, as the
    algorithm does it, so rows to predict are not clipped (unless a stage that is not linear
    follows).

    Parameters
    ----------
    share, noise_multiplier
        What is spent: a share of the plan's budget, or a fixed amount of noise z.
    method : {"gaussian", "exponential"}
        How τ is found: noisy binary search, or the exponential mechanism (Dick et al. 2023), at
        the same cost. Near the largest norm the search leaves out fewer rows.
    constant : bool
        Append the constant feature that carries the intercept, and clip it with the row, as the
        algorithm does: a row that is twice too long then counts less, intercept and all. The
        trainer adds none.

    Notes
    -----
    *Error.* τ is at most 1 + 1/16 times the largest norm, and at most 14.3·z rows are longer than
    it, with probability 1 − 7·10⁻⁵ (`tacit.mechanisms.extent.noisy_radius`). That is the rank
    n − O(log n/ε) of the paper's Lemma 4, with smaller constants: its grid has cells of one width,
    R/n², ours of one *ratio*, so a search takes ten rounds however large R is.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows([[0.0, 3.0], [4.0, 0.0]] * 500, bound=1e9)
    >>> stage = PrivateClip(noise_multiplier=2.0).fit(rows)
    >>> stage.transform([[0.0, 2.0], [0.0, 1e9]]).round(1)
    array([[0. , 0.5],
           [0. , 1. ]])
    """

    constant: bool = False
    affine: ClassVar[bool] = True

    @property
    def keeps_zero(self) -> bool:  # type: ignore[override]
        """Whether a row of zeros stays one."""
        return not self.constant

    @property
    def carries_constant(self) -> bool:
        return self.constant

    def draws(self, d: int) -> int:
        return radius_draws(self._method)

    def width(self, d: int) -> int:
        return d + self.constant

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None and not hasattr(self, "radius_"):
            return None
        return JOINT * (1 + 1e-12) if self.constant else 1.0

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        known = self.bound(radius, d) is not None
        return (JOINT if self.constant else 1.0) if known else None

    def shortage(self, size: int, d: int, noise_multiplier: float) -> str:
        return _shortage(self, size, radius_rows(noise_multiplier, self._method))

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, bound, context = self._prepare(rows, context)
        require_unmoved(self, context.drift)
        self.radius_ = noisy_radius(
            rows.passes(block_rows(rows.d)),
            bound,
            context.release("clip"),
            size=context.size,
            counted=context.counted,
        )
        return self

    def apply(self, chunk: Chunk) -> Chunk:
        radius = self._require("radius_")
        if not self.constant:
            return shorten(chunk, radius) / radius
        # Clip((x, τ), √2·τ)/τ: Sun et al. 2024, Algorithm 2, steps 3 and 4, in units of τ.
        rows = densify(shorten(chunk, MOST_LENGTHS * radius)) / radius
        return shorten(np.hstack([rows, np.ones((len(rows), 1))]), JOINT)

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Step 6: b = θ[d]·τ − ⟨w, μ̂⟩, of which the mean's stage has the second part.
        d = coef.shape[1] - self.constant
        return coef[:, :d] / self._require("radius_"), intercept + coef[:, d:].sum(axis=1)

    def unfold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scaled = coef * self._require("radius_")
        if not self.constant:
            return scaled, intercept
        return np.hstack([scaled, intercept[:, None]]), np.zeros_like(intercept)

    def note(self) -> str:
        joint = ", together with a constant," * self.constant
        return (
            f"rows{joint} are clipped to a private quantile of their norms, near the largest, and "
            "divided by it; rows to predict are divided only"
        )


@dataclass
class PrivateBounds(RankStage):
    """Clamp columns to private quantiles near their ends, and map them linearly to [-1, 1].

    For people who have no public bounds: what `Bound` does, with bounds that are found in the
    rows, through noise. Nothing needs to be known of the rows but their number: columns may have
    any unit and lie anywhere, as birth years and seconds since 1970 do.

    Parameters
    ----------
    share, noise_multiplier
        What is spent: a share of the plan's budget, or a fixed amount of noise z.
    method : {"gaussian", "exponential"}
        How bounds are found: noisy binary search, or the exponential mechanism, at the same cost.
        The search is better from two columns on.

    Notes
    -----
    *Error.* With probability 1 − 10⁻³·d, at most 20·z·√d rows lie beyond either bound of a column,
    and no bound is farther beyond the column's values than a thirty-second of their largest
    distance from the median (`tacit.mechanisms.bounds.noisy_bounds`). With fewer than 75·z·√d rows
    or so there is nothing to be seen, and public bounds are the only way.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = np.stack([np.linspace(0, 1e6, 5000), np.linspace(-2e-3, -1e-3, 5000)], axis=1)
    >>> stage = PrivateBounds(noise_multiplier=1.0).fit(rows)
    >>> stage.through(as_rows(rows)).bound
    1.4142135623730951
    """

    def draws(self, d: int) -> int:
        return bounds_draws(d, self._method)

    def shortage(self, size: int, d: int, noise_multiplier: float) -> str:
        return _shortage(self, size, bounds_rows(d, noise_multiplier, self._method))

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        columns = len(self.low_) if hasattr(self, "low_") else d
        if columns is None:
            raise InputError("PrivateBounds needs the number of columns")
        return math.sqrt(columns)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        context = self._context(rows, context)
        require_unmoved(self, context.drift)
        self.low_, self.high_ = noisy_bounds(
            rows.passes(block_rows(2 * rows.d)),
            rows.d,
            context.release("bounds"),
            size=context.size,
            counted=context.counted,
        )
        return self

    def apply(self, chunk: Chunk) -> np.ndarray:
        return clamp(chunk, self._require("low_"), self.high_)

    def note(self) -> str:
        return "columns are clamped to private quantiles near their ends"


def _shortage(stage: Stage, size: int, needed: int) -> str:
    if size >= needed:
        return ""
    return (
        f"{stage.name} needs about {needed} rows to see how far they reach through its noise, and "
        f"there are {size}: what it finds is noise. Use public bounds, more rows, or more of the "
        "budget."
    )
