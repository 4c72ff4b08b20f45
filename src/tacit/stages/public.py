"""Stages fitted on separate public rows: they cost nothing and say where from.

Public rows pass through the stages in front first, as the private rows do.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from tacit.data.rows import Chunk, Rows, as_rows
from tacit.data.tables import Table
from tacit.exceptions import InputError, MissingBound
from tacit.stages.base import Context, Kind, Stage, densify, require_positive
from tacit.stages.linear import Projection, Subspace

__all__ = ["PublicPCA", "PublicPrecondition", "PublicRotation", "PublicScale"]


def _public_rows(stage: Stage, public: Any, rows: Rows, context: Context | None) -> Rows:
    """The public rows as the stage sees them, checked against the private ones' shape."""
    if public is None:
        raise InputError(f"{stage.name} needs public=: rows that are not private")
    seen = as_rows(public)
    if seen.n == 0:
        raise InputError(f"{stage.name}: there are no public rows")
    first = rows.source.d
    if seen.d != first:
        raise InputError(f"{stage.name}: public rows have {seen.d} columns, private ones {first}")
    for earlier in context.before if context else ():
        seen = earlier.through(seen)
    return seen


def _fingerprint(public: Any) -> str:
    """A digest of the public rows as they were given."""
    digest = hashlib.blake2b(digest_size=16)
    rows = as_rows(public)
    if isinstance(rows.source, Table):
        for name in rows.source.column_names:
            column = rows.source.column(name)
            cells = column.tobytes() if column.dtype.kind == "f" else "\0".join(map(str, column))
            digest.update(name.encode() + b"\0")
            digest.update(cells if isinstance(cells, bytes) else cells.encode())
    else:
        for _, chunk in rows.chunks():
            digest.update(np.ascontiguousarray(densify(chunk)).tobytes())
    return digest.hexdigest()


def _components(stage: Stage, public: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of the public rows' second moment, rising, and an orthonormal basis."""
    moment = np.zeros((public.d, public.d))
    for _, chunk in public.chunks():
        dense = densify(chunk)
        moment += dense.T @ dense
    values, vectors = np.linalg.eigh(moment)
    if not values[-1] > 0:
        raise InputError(f"{stage.name}: the public rows are all zero")
    return values, vectors


@dataclass
class PublicPCA(Subspace):
    """PILLAR's projection: top eigenvectors of the public rows' second moment.

    Uncentred, as in paper 003, Algorithm 1, line 2. The private rows are never
    looked at, so the stage is free of charge; what it assumes, that the public
    rows are public, is in the certificate with their fingerprint.

    Parameters
    ----------
    public : array, sparse matrix or table
        Unlabelled public rows with the columns of the private ones.
    n_components : int
        Columns out.
    """

    public: Any = None
    n_components: int = 40
    fingerprint: str | None = None
    kind: ClassVar[Kind] = "public"
    unsaved: ClassVar[tuple[str, ...]] = ("public",)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        public = _public_rows(self, self.public, rows, context)
        k = self.width(rows.d)
        if public.n < k:
            raise InputError(
                f"PublicPCA: {public.n} public rows cannot give {k} components; "
                f"pass n_components={public.n} or fewer, or more public rows"
            )
        values, vectors = _components(self, public)
        if values[-k] <= values[-1] * 1e-12:
            rank = int((values > values[-1] * 1e-12).sum())
            raise InputError(
                f"PublicPCA: the public rows have rank {rank}; pass n_components={rank} or fewer"
            )
        self._set(vectors[:, ::-1][:, :k].copy(), rows, context)
        self.fingerprint = _fingerprint(self.public)
        return self

    def note(self) -> str:
        return f"components come from public rows with fingerprint {self.fingerprint}"


@dataclass
class PublicRotation(Projection):
    """Turn rows to the axes of the public rows' second moment, the strongest ones last.

    Nothing is lost: as many columns come out as go in. The last k of them are what
    `PublicPCA` would keep, and where there are fewer public rows than columns, the
    first ones span what no public row has. Made for `tacit.trainers.GEP`, which
    treats the last columns apart.

    Parameters
    ----------
    public : array, sparse matrix or table
        Unlabelled public rows with the columns of the private ones.
    """

    public: Any = None
    fingerprint: str | None = None
    kind: ClassVar[Kind] = "public"
    unsaved: ClassVar[tuple[str, ...]] = ("public",)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        _, vectors = _components(self, _public_rows(self, self.public, rows, context))
        self._set(vectors, rows, context)
        self.fingerprint = _fingerprint(self.public)
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
class PublicPrecondition(Stage):
    """Divide columns by the public rows' root mean squares, plus a floor.

    Column j is divided by A_j = √d·rms_j / R + ``floor``, R being the norm bound of
    the rows, so rows like the public ones keep about their length. Nothing is
    centred. With `tacit.trainers.AdaDPS` behind it this is the preconditioner of
    Li et al. 2022 for public rows without labels: what a label adds to a row's
    gradient is the same factor in every column. (A constant factor in all A_j
    is one in clip and rate.)

    Parameters
    ----------
    public : array, sparse matrix or table
        Unlabelled public rows with the columns of the private ones.
    floor : float
        Added to every A_j, one on average; no row becomes longer than 1/``floor``
        times its bound.
    """

    public: Any = None
    floor: float = 0.1
    fingerprint: str | None = None
    kind: ClassVar[Kind] = "public"
    affine: ClassVar[bool] = True
    keeps_zero: ClassVar[bool] = True
    unsaved: ClassVar[tuple[str, ...]] = ("public",)

    def __post_init__(self) -> None:
        require_positive(self, "floor")

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        public = _public_rows(self, self.public, rows, context)
        if rows.bound is None:
            raise MissingBound(self.name, "ClipNorm(radius) or Normalize() as a stage before it")
        squares = sum((densify(chunk) ** 2).sum(axis=0) for _, chunk in public.chunks())
        size = np.sqrt(squares / public.n) * math.sqrt(rows.d) / rows.bound
        self.scale_ = size + self.floor
        self.fingerprint = _fingerprint(self.public)
        return self

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
        if sp.issparse(chunk):
            return sp.csr_array(chunk.multiply(inverse))
        return np.asarray(chunk) * inverse

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return coef / self._require("scale_"), intercept

    def note(self) -> str:
        return f"scales come from public rows with fingerprint {self.fingerprint}"


@dataclass
class PublicScale(Stage):
    """Centre and scale columns by the public rows' means and standard deviations.

    Columns that do not vary in the public rows are left at their own scale.
    """

    public: Any = None
    with_mean: bool = True
    fingerprint: str | None = None
    kind: ClassVar[Kind] = "public"
    affine: ClassVar[bool] = True
    unsaved: ClassVar[tuple[str, ...]] = ("public",)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        public = _public_rows(self, self.public, rows, context)
        mean = sum(densify(chunk).sum(axis=0) for _, chunk in public.chunks()) / public.n
        squares = sum(((densify(c) - mean) ** 2).sum(axis=0) for _, c in public.chunks())
        deviation = np.sqrt(squares / public.n)
        varies = deviation > 1e-9 * np.maximum(np.abs(mean), 1e-300)
        self.scale_ = np.where(varies, deviation, 1.0)
        self.mean_ = mean if self.with_mean else np.zeros(rows.d)
        self.fingerprint = _fingerprint(self.public)
        return self

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None or not hasattr(self, "scale_"):
            return None
        return float((radius + np.linalg.norm(self.mean_)) / self.scale_.min() * (1 + 1e-9))

    def apply(self, chunk: Chunk) -> np.ndarray:
        return (densify(chunk) - self._require("mean_")) / self.scale_

    def fold(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scaled = coef / self._require("scale_")
        return scaled, intercept - scaled @ self.mean_

    def note(self) -> str:
        return f"means and scales come from public rows with fingerprint {self.fingerprint}"
