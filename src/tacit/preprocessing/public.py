"""Stages fitted on separate public rows: they cost nothing and say where from.

Public rows pass through the stages in front first, as the private rows do.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from tacit.data.rows import Chunk, Rows, as_rows
from tacit.exceptions import InputError, MissingBound
from tacit.preprocessing.affine import AffineStage
from tacit.preprocessing.base import Context, Stage, densify, require_positive, saturated
from tacit.preprocessing.free import RandomProjection
from tacit.preprocessing.projection import Projection, Subspace
from tacit.preprocessing.public_components import Spectrum, rank
from tacit.preprocessing.public_rows import Look, PublicStage


def _components(public: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of the public rows' second moment, rising, and an orthonormal basis."""
    moment = np.zeros((public.d, public.d))
    for _, chunk in public.chunks():
        dense = densify(chunk)
        moment += dense.T @ dense
    values, vectors = np.linalg.eigh(moment)
    return values, vectors


@dataclass
class PublicPCA(PublicStage, Subspace):
    """PILLAR's projection: top eigenvectors of the public rows' second moment.

    Uncentred, as in Pinto et al. 2024, Algorithm 1, line 2; put `PublicCenter` in front for
    components about the mean. The private rows are never looked at, so the stage is free of charge;
    what it assumes, that the public rows are public, is in the certificate with their fingerprint.

    Parameters
    ----------
    n_components : int or "auto"
        Columns out. ``"auto"`` lets a plan choose when it is calibrated, from the public rows, the
        number of private ones, the budget and the number of classes: see
        `tacit.preprocessing.public_components`.
    reason : str, optional
        Why there are so many, once a plan has chosen.

    Examples
    --------
    >>> public = np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> rows = as_rows([[0.5, 0.2]], bound=1.0)
    >>> abs(PublicPCA(public, 1).fit(rows).through(rows).collect()).round(6)
    array([[0.5]])
    """

    n_components: int | str = "auto"
    reason: str = field(default="", kw_only=True)

    def width(self, d: int) -> int:
        if self.n_components == "auto":
            raise InputError(
                "PublicPCA(n_components='auto') is for a plan to choose; outside of one, pass a "
                "number"
            )
        return super().width(d)

    def resolve(
        self, before: Sequence[Stage], *, columns: int, size: int, outputs: int, mu: float
    ) -> Self:
        if self.n_components != "auto":
            return self
        if self.public is None:
            raise InputError(
                "PublicPCA(n_components='auto') is chosen by the public rows: give them as "
                "public=, or a number of components"
            )
        rows = self._given()
        fitted: list[Stage] = []
        for i, stage in enumerate(before):
            if stage.kind not in ("free", "public"):
                raise InputError(
                    "PublicPCA(n_components='auto') is chosen before a private row is read, so "
                    f"{stage.name} cannot stand in front of it; put it behind, or pass a number"
                )
            if isinstance(stage, RandomProjection) and stage.seed is None:
                raise InputError(
                    "PublicPCA(n_components='auto') is chosen before the matrix of "
                    "RandomProjection is drawn; give that a seed, or pass a number"
                )
            context = Context(size, before=tuple(fitted), position=i)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what there is to say, it says when it is fitted
                fitted.append(copy.copy(stage).fit(rows.hidden(), context))
            rows = fitted[-1].through(rows)
        Look.at(self._given(), fitted).require_variety(self)
        spectrum = Spectrum.of(rows)
        k = spectrum.choose(size=size, outputs=outputs, mu=mu)
        reason = f"{k} components were chosen for {size} rows, scores of width {outputs} and "
        if k < len(spectrum.kept):
            reason += (
                f"this budget: they keep {spectrum.kept[k - 1]:.0%} of the energy of public rows "
                "that they were not made from, and noise would outweigh what more of them keep"
            )
        else:
            reason += "this budget: as many as the public rows have, for noise outweighs none"
        return replace(self, n_components=k, reason=reason)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        self._project(self._see(rows, context), rows, context)
        return self

    def _project(self, public: Rows, rows: Rows, context: Context | None) -> None:
        k = self.width(rows.d)
        if public.n < k:
            raise InputError(
                f"PublicPCA: {public.n} public rows cannot give {k} components; "
                f"pass n_components={public.n} or fewer, or more public rows"
            )
        values, vectors = _components(public)
        if k > (real := rank(values)):
            raise InputError(
                f"PublicPCA: the public rows have rank {real}; pass n_components={real} or fewer"
            )
        self._set(vectors[:, ::-1][:, :k].copy(), rows, context)

    def why(self) -> str:
        return self.reason

    def note(self) -> str:
        source = f"components come from public rows with fingerprint {self.fingerprint}"
        return f"{source}; {self.reason}" if self.reason else source


@dataclass
class PublicRotation(PublicStage, Projection):
    """Turn rows to the axes of the public rows' second moment, the strongest ones last.

    Nothing is lost: as many columns come out as go in. The last k of them are what
    `PublicPCA` would keep, and where there are fewer public rows than columns, the
    first ones span what no public row has. Made for `tacit.research.trainers.GEP`, which
    treats the last columns apart.

    Examples
    --------
    >>> public = np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> rows = as_rows([[0.5, 0.2]], bound=1.0)
    >>> abs(PublicRotation(public).fit(rows).through(rows).collect()).round(6)
    array([[0.2, 0.5]])
    """

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        _, vectors = _components(self._see(rows, context))
        self._set(vectors, rows, context)
        return self

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if hasattr(self, "norm_"):
            return super().bound(radius, d)
        if radius is None or d is None:
            return None
        return radius * (1 + d * 2.0**-25 + 1e-8)  # orthonormal but for the cut: `_set`

    def note(self) -> str:
        return f"axes come from public rows with fingerprint {self.fingerprint}"


@dataclass
class PublicPrecondition(PublicStage, AffineStage):
    """Divide columns by the public rows' root mean squares, plus a floor.

    Column j is divided by A_j = √d·rms_j / R + ``floor``, R being the norm bound of
    the rows, so rows like the public ones keep about their length. Nothing is
    centred. With `tacit.research.trainers.AdaDPS` behind it this is the preconditioner of
    Li et al. 2022 for public rows without labels: what a label adds to a row's
    gradient is the same factor in every column. (A constant factor in all A_j
    is one in clip and rate.)

    Parameters
    ----------
    floor : float
        Added to every A_j, one on average; no row becomes longer than 1/``floor``
        times its bound.

    Examples
    --------
    >>> stage = PublicPrecondition(np.array([[0.8, 0.1], [-0.8, 0.1]]), floor=0.1)
    >>> stage.fit(as_rows([[0.5, 0.2]], bound=1.0)).scale_.round(2)
    array([1.23, 0.24])
    """

    floor: float = 0.1
    keeps_zero: ClassVar[bool] = True
    scales_columns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(self, "floor")

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        public = self._see(rows, context)
        if rows.bound is None:
            raise MissingBound(self.name, "ClipNorm(radius) or Normalize() as a stage before it")
        squares = sum((densify(chunk) ** 2).sum(axis=0) for _, chunk in public.chunks())
        size = np.sqrt(squares / public.n) * math.sqrt(rows.d) / rows.bound
        self.scale_ = size + self.floor
        return self

    @property
    def column_scales(self) -> tuple[float, ...]:
        return tuple(self._require("scale_").tolist())

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None:
            return None
        least = float(self.scale_.min()) if hasattr(self, "scale_") else self.floor
        return radius / least * (1 + 1e-9)

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        return radius

    def lipschitz(self, d: int | None = None) -> float | None:
        return self.bound(1.0, d)

    def apply(self, chunk: Chunk) -> Chunk:
        inverse = 1.0 / self._require("scale_")
        with np.errstate(over="ignore"):
            if not sp.issparse(chunk):
                return saturated(np.asarray(chunk) * inverse)
            scaled = sp.csr_array(chunk.multiply(inverse))
            scaled.data = saturated(scaled.data)
            return scaled

    def note(self) -> str:
        return f"scales come from public rows with fingerprint {self.fingerprint}"


@dataclass
class PublicCenter(PublicStage, AffineStage):
    """Subtract the mean of the public rows.

    What all rows have in common tells no classes apart, and would be stretched by noise all the
    same. A public mean costs nothing; `PrivateCenter` is the way without public rows.

    Examples
    --------
    >>> stage = PublicCenter(np.array([[1.0, 2.0], [3.0, 2.0]])).fit(np.ones((3, 2)))
    >>> stage.transform([[2.0, 3.0]])
    array([[0., 1.]])
    """

    translates: ClassVar[bool] = True

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        public = self._see(as_rows(rows), context)
        total = sum(densify(chunk).sum(axis=0) for _, chunk in public.chunks())
        self.mean_ = np.asarray(total) / public.n
        return self

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None:
            return None
        # Public rows pass the stages in front, so before it is known their mean is no longer
        # than the rows.
        length = float(np.linalg.norm(self.mean_)) if hasattr(self, "mean_") else radius
        return (radius + length) * (1 + 1e-9)

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        return radius  # centred rows are seldom longer than they were

    def lipschitz(self, d: int | None = None) -> float:
        return 1.0

    def note(self) -> str:
        return f"the mean comes from public rows with fingerprint {self.fingerprint}"


@dataclass
class PublicScale(PublicStage, AffineStage):
    """Centre and scale columns by the public rows' means and standard deviations.

    Columns that do not vary in the public rows are left at their own scale.

    Parameters
    ----------
    with_mean : bool
        Whether means are subtracted.

    Examples
    --------
    >>> PublicScale(np.array([[1.0, 2.0], [3.0, 2.0]])).fit(np.ones((3, 2))).transform([[4.0, 3.0]])
    array([[2., 1.]])
    """

    with_mean: bool = True

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        public = self._see(rows, context)
        mean = sum(densify(chunk).sum(axis=0) for _, chunk in public.chunks()) / public.n
        squares = sum(((densify(c) - mean) ** 2).sum(axis=0) for _, c in public.chunks())
        deviation = np.sqrt(squares / public.n)
        varies = deviation > 1e-9 * np.maximum(np.abs(mean), 1e-300)
        self.scale_ = np.where(varies, deviation, 1.0)
        self.mean_ = mean if self.with_mean else np.zeros(rows.d)
        return self

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None or not hasattr(self, "scale_"):
            return None
        length = float(np.linalg.norm(self.mean_))
        return (radius + length) / float(self.scale_.min()) * (1 + 1e-9)

    def note(self) -> str:
        return f"means and scales come from public rows with fingerprint {self.fingerprint}"
