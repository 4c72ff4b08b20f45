"""Principal components and scales read from the private rows themselves, without noise.

Nothing that is fitted here leaves the fit. The rows keep all their columns, and noise is added in
all of them, so the model works on raw rows: a basis of k columns would be a release by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.rows import Chunk, Rows, as_rows
from tacit.exceptions import InputError, MissingBound
from tacit.mechanisms.additive import shorten
from tacit.preprocessing.base import (
    Context,
    NoiselessStage,
    Stage,
    affine,
    densify,
    require_count,
    require_positive,
    require_share,
)
from tacit.preprocessing.private_scale import PrivateScale, exact_moments
from tacit.preprocessing.projection import USUAL, components
from tacit.privacy.events import Gaussian
from tacit.privacy.sensitivity import drift as rules
from tacit.privacy.sensitivity.drift import Drift


def _bounded(stage: Stage, rows: Any, context: Context | None) -> tuple[Rows, Drift]:
    """Rows with their norm bound, and their drift."""
    rows = as_rows(rows)
    if rows.bound is None:
        raise MissingBound(stage.name, "ClipNorm(radius) or Normalize() as a stage before it")
    incoming = context.drift if context and context.drift else Drift(rows.bound)
    return rows, incoming


def _spectrum(rows: Rows, *, centered: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, eigenvalues (falling) and eigenvectors (d, r) of the rows' second moment.

    Uncentred it is (1/n)Σxxᵀ with mean zero; centred it is the covariance, over n − 1.
    LAPACK's symmetric solver is exact for a matrix within a few d·2^-53 of the given one.
    """
    assert rows.bound is not None
    radius, mean = rows.bound, np.zeros(rows.d)
    if centered:
        mean = rows.merged(partial(_sum, radius=radius), mean) / rows.n
    weight = max(rows.n - centered, 1)
    if rows.n < rows.d and not rows.distributed:  # wide: the rows themselves are the smaller matrix
        held = shorten(densify(rows.collect()), radius) - mean
        _, singular, basis = np.linalg.svd(held, full_matrices=False)
        return mean, singular**2 / weight, basis.T
    moment = rows.merged(partial(_moment, radius=radius, mean=mean), np.zeros((rows.d, rows.d)))
    values, vectors = np.linalg.eigh(moment / weight)
    return mean, np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def _sum(span: slice, chunk: Chunk, radius: float) -> np.ndarray:
    total: np.ndarray = shorten(densify(chunk), radius).sum(axis=0)
    return total


def _moment(span: slice, chunk: Chunk, radius: float, mean: np.ndarray) -> np.ndarray:
    dense: np.ndarray = shorten(densify(chunk), radius) - mean
    return dense.T @ dense


@dataclass
class SoftPCA(NoiselessStage):
    """Shrink every principal direction by v/(v + λ), v its second moment: x → M(M+λI)⁻¹x.

    The smooth form of a projection on the first components. It needs no eigengap
    and so no test: whatever the rows, all the others move by at most R²/(2√λ)
    *together* when one is replaced, however many there are (``docs/drift.md``,
    rule d2).

    Parameters
    ----------
    strength : float
        λ, in squared row norms: directions whose mean square lies well below it
        vanish, those well above it stay.

    Examples
    --------
    >>> from tacit.privacy.sensitivity.drift import Drift
    >>> round(SoftPCA(strength=0.05).drift(Drift(1.0), 60_000).l1, 3)
    2.236
    """

    strength: float = 0.05
    keeps_zero: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(self, "strength")

    def rounding_bound(self, radius: float) -> float:
        return self._slip(1 + radius**2 / self.strength)

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        return rules.soft_pca(incoming, n, self.strength)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, _ = _bounded(self, rows, context)
        self._radius = rows.bound
        _, values, self._basis = _spectrum(rows, centered=False)
        self._gains = values / (values + self.strength)
        return self

    def apply(self, chunk: Chunk) -> np.ndarray:
        basis = self._require("_basis")
        dense = shorten(densify(chunk), self._radius)
        return shorten((dense @ basis * self._gains) @ basis.T, self._radius)

    def note(self) -> str:
        return (
            f"rows were shrunk along their own principal directions, strength {self.strength:g}, "
            "which makes training more sensitive; the directions are not released"
        )


@dataclass
class NoiselessPCA(NoiselessStage):
    """Project rows on their first k principal components, in the original coordinates.

    How far the projection turns when one row is replaced depends on the gap
    between the k-th and the next eigenvalue. A plan *tests* privately that it is
    at least ``gap``, with room to spare, and refuses to train otherwise; use
    `SoftPCA` to do without.

    Parameters
    ----------
    n_components : int or "auto"
        k, the rank that rows keep. ``"auto"``: 40, or all but one if there are fewer columns.
    gap : float
        Least difference of the k-th and the next eigenvalue of (1/n)Σxxᵀ, or of
        the covariance if centred. Chosen without looking at the rows.
    centered : bool
        Project on the subspace through the mean instead of the origin.
    share : float
        Part of the plan's μ spent on the test.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows(np.array([[0.9, 0.1], [0.9, -0.1]]), bound=1.0)
    >>> NoiselessPCA(1, gap=0.1).fit(rows).through(rows).collect().round(6)
    array([[0.9, 0. ],
           [0.9, 0. ]])
    """

    n_components: int | str = 10
    gap: float | None = None
    centered: bool = False
    share: float = 0.1

    def __post_init__(self) -> None:
        if self.n_components != "auto":
            require_count(self, "n_components")
        if self.gap is None:
            raise MissingBound("NoiselessPCA", "gap=, the least eigengap", "SoftPCA(strength)")
        require_positive(self, "gap")
        require_share(self)

    @property
    def tested(self) -> bool:
        return True

    def resolve(
        self, before: Sequence[Stage], *, columns: int, size: int, outputs: int, mu: float
    ) -> Self:
        auto = self.n_components == "auto"
        return replace(self, n_components=components(self, columns - 1)) if auto else self

    def width(self, d: int) -> int:
        if components(self, d - 1) >= d:
            raise InputError(
                f"NoiselessPCA(n_components={self.n_components}): rows have {d} columns, and "
                "keeping all of them is no projection; pass fewer, or leave the stage out"
            )
        return d

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        # λ_k ≤ trace/k, and the trace of the second moment is at most R², of the covariance
        # n/(n − 1) times that.
        k = components(self, d - 1 if d else USUAL)
        most = incoming.bound**2 / k * (n / max(n - 1, 1) if self.centered else 1)
        gap = self._gap()
        if gap > most:
            raise InputError(
                f"NoiselessPCA(gap={gap:g}): rows of norm {incoming.bound:g} cannot have an "
                f"eigengap above {most:.4g} behind {k} components; pass a smaller gap, or use "
                "SoftPCA(strength), which needs none"
            )
        return rules.pca(incoming, n, gap, centered=self.centered)

    def rounding_bound(self, radius: float) -> float:
        return self._slip(radius**2 / self._gap())

    def _gap(self) -> float:
        assert self.gap is not None
        return float(self.gap)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, incoming = _bounded(self, rows, context)
        k, r = components(self, rows.d - 1), incoming.bound
        self._radius = rows.bound
        self._mean, values, vectors = _spectrum(rows, centered=self.centered)
        self._basis = vectors[:, :k]
        values = np.append(values, np.zeros(max(0, k + 1 - len(values))))
        # Weyl: the gap changes by at most the spread of the difference (docs/drift.md, section 4).
        spread = 3 * math.sqrt(3) * r**2 + 4 * r * incoming.l1
        if not self.centered:
            spread = 2 * r * (r + incoming.l1)
        error = 1e-11 * r**2  # of the solver, on either side
        found = values[k - 1] - values[k] - error
        self._margin = (found - self._gap()) / (spread / rows.n + 2 * error)
        return self

    def apply(self, chunk: Chunk) -> np.ndarray:
        basis = self._require("_basis")
        dense = shorten(densify(chunk), self._radius)
        inside = ((dense - self._mean) @ basis) @ basis.T + self._mean
        return shorten(inside, self._radius)

    def note(self) -> str:
        return (
            f"rows were projected on their own first {self.n_components} components, behind a "
            f"private test that the eigengap is at least {self._gap():g}; the components are not "
            "released"
        )


@dataclass
class NoiselessScale(NoiselessStage):
    """Scale columns by their own deviation for training; release a noisy one for prediction.

    A model of scaled rows needs the scales whenever it predicts, so they are
    released with noise as an event of their own. (`PrivateScale` uses the noisy
    ones for training too, and leaves the rows undrifted: it is mostly the better
    buy, and `tacit.privatize` compares them.)

    Parameters
    ----------
    strength : float
        λ: columns are divided by √(variance + λ). Unconditional.
    centered : bool
        Subtract means and use variances, or use mean squares alone.
    floor : float, optional
        Divide by the deviation itself, behind a private test that every column's
        variance is at least this. Needs ``centered``.
    radius : float, optional
        Clip scaled rows to this norm. By default they are left as they are, which
        bounds them by R/√λ, twice that if centred.
    share : float
        Part of the plan's μ spent on the release, and on the test if there is one.

    Examples
    --------
    >>> from tacit.data.rows import as_rows
    >>> rows = as_rows(np.array([[0.5, 0.1], [-0.5, -0.1]]), bound=1.0)
    >>> NoiselessScale(0.11).fit(rows).through(rows).collect().round(2)
    array([[ 0.83,  0.29],
           [-0.83, -0.29]])
    """

    strength: float = 0.1
    centered: bool = True
    floor: float | None = None
    radius: float | None = None
    share: float = 0.1
    pays: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(self, "strength")
        for name in ("floor", "radius"):
            if getattr(self, name) is not None:
                require_positive(self, name)
        if self.floor is not None and not self.centered:
            raise InputError("NoiselessScale(floor=) is for centred columns; leave centered=True")
        require_share(self)

    @property
    def tested(self) -> bool:
        return self.floor is not None

    def event(self, noise_multiplier: float) -> Gaussian:
        """What the released scales cost."""
        return Gaussian(noise_multiplier)

    def draws(self, d: int) -> int:
        return 2 * d

    def rounding_bound(self, radius: float) -> float:
        return self._slip(1 + radius**2 / self._least)

    @property
    def _ridge(self) -> float:
        """What is added to a variance: nothing behind a tested floor."""
        return self.strength if self.floor is None else 0.0

    @property
    def _least(self) -> float:
        return self.strength if self.floor is None else float(self.floor)

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None:
            return None
        natural = (2 if self.centered else 1) * radius / math.sqrt(self._least) * (1 + 1e-12)
        return natural if self.radius is None else min(natural, self.radius)

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        bound = self.bound(radius, d)
        return bound if bound is None or d is None else min(bound, math.sqrt(d))

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        bound = self.bound(incoming.bound, d)
        assert bound is not None
        if self.floor is not None:
            if self.floor > incoming.bound**2:
                raise InputError(
                    f"NoiselessScale(floor={self.floor:g}): columns of rows of norm "
                    f"{incoming.bound:g} cannot all vary that much; pass a smaller floor"
                )
            return rules.scale_by_floor(incoming, n, self.floor, bound)
        if self.centered:
            return rules.scale_centered(incoming, n, self.strength, bound)
        return rules.scale(incoming, n, self.strength).clipped(bound)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows, incoming = _bounded(self, rows, context)
        exact = exact_moments(rows)
        self._mean = exact.mean if self.centered else np.zeros(rows.d)
        variance = exact.variance if self.centered else exact.square
        least = self._least if self.tested else 0.0
        self._scale = np.sqrt(np.maximum(variance, least) + self._ridge)
        self._clip = None if self.radius is None else self.bound(rows.bound, rows.d)
        r = incoming.bound
        # docs/drift.md, section 4: a variance changes by at most 4R(R+τ)/n.
        error = 1e-11 * r**2
        change = 4 * r * (r + incoming.l1) / rows.n + 2 * error
        found = float(variance.min(initial=math.inf)) - error
        self._margin = (found - self._least) / change if self.tested else math.inf
        return self

    def apply(self, chunk: Chunk) -> np.ndarray:
        scaled = affine(chunk, self._require("_mean"), self._scale)
        return scaled if self._clip is None else shorten(scaled, self._clip)

    def release(self, rows: Rows, context: Context) -> Stage:
        noisy = PrivateScale(share=self.share, strength=self._least, centered=self.centered)
        noisy.fit(rows, context)
        if self.tested:  # the deviation itself, as in training
            noisy.scale_ = np.sqrt(np.maximum(noisy.scale_**2 - self._least, self._least))
        return noisy

    def note(self) -> str:
        return (
            "columns were scaled exactly for training, which makes it more sensitive; for "
            "prediction their scales were released with Gaussian noise"
        )
