"""Stages that never look at the data: row by row, with public constants."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from tacit.data.rows import Chunk, as_rows
from tacit.exceptions import InputError
from tacit.mechanisms.additive import Step, compiled_as, normalize, row_norms, shorten
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import PublicRandomness
from tacit.preprocessing.base import (
    Context,
    Kind,
    Stage,
    around_gaps,
    densify,
    require_count,
    require_positive,
)
from tacit.preprocessing.projection import Projection, components


@dataclass
class _OfNorm(Stage):
    """Each row by itself is brought to a norm that everybody knows."""

    radius: float = 1.0
    kind: ClassVar[Kind] = "free"
    keeps_gaps: ClassVar[bool] = True
    keeps_zero: ClassVar[bool] = True
    certain_norm: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(self, "radius")


@dataclass
class ClipNorm(_OfNorm):
    """Shorten rows longer than ``radius``; leave the others as they are.

    Parameters
    ----------
    radius : float
        Largest norm of a row out.

    Examples
    --------
    >>> ClipNorm(1.0).transform([[3.0, 4.0], [0.3, 0.4]])
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """

    def bound(self, radius: float | None, d: int | None = None) -> float:
        return self.radius if radius is None else min(radius, self.radius)

    def lipschitz(self, d: int | None = None) -> float:
        return 1.0  # a projection on a convex set

    def beyond(self, chunk: Chunk) -> np.ndarray:
        return np.asarray(row_norms(np.nan_to_num(densify(chunk), nan=0.0)) > self.radius)

    @compiled_as(lambda self: Step.shorten(self.radius))
    def apply(self, chunk: Chunk) -> Chunk:
        return around_gaps(lambda cells: shorten(cells, self.radius), chunk)

    def note(self) -> str:
        return f"each row by itself is shortened to norm {self.radius:g} at most"


@dataclass
class Normalize(_OfNorm):
    """Scale every row to norm ``radius`` (Sun et al. 2024, appendix C, "Feature normalization").

    Rows of zeros stay zero. The scale of a row is lost: what separates the
    classes must lie in its direction.

    Parameters
    ----------
    radius : float
        Norm of every row out.

    Examples
    --------
    >>> Normalize().transform([[3.0, 4.0], [0.0, 0.0]])
    array([[0.6, 0.8],
           [0. , 0. ]])
    """

    def bound(self, radius: float | None, d: int | None = None) -> float:
        return self.radius

    @compiled_as(lambda self: Step.normalize(self.radius))
    def apply(self, chunk: Chunk) -> Chunk:
        return around_gaps(lambda cells: normalize(cells, self.radius), chunk)

    def note(self) -> str:
        return f"each row by itself is scaled to norm {self.radius:g}"


@dataclass
class Root(Stage):
    """The square root of every value, with its sign.

    Where values are intensities or counts, as in pictures, few large ones drown the others; roots
    even them out. With rows scaled to unit norm afterwards this is the power normalisation of
    Perronnin, Sánchez & Mensink (2010). A root is correctly rounded wherever it is computed.

    Examples
    --------
    >>> Root().transform([[4.0, -9.0, 0.0]])
    array([[ 2., -3.,  0.]])
    """

    kind: ClassVar[Kind] = "free"
    keeps_gaps: ClassVar[bool] = True
    keeps_zero: ClassVar[bool] = True

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None or d is None:
            return None
        # The squared norm of the roots is the sum of |values|, at most sqrt(d) times their norm.
        return math.nextafter(math.sqrt(radius * math.sqrt(d)) * (1 + 2.0**-50), math.inf)

    def apply(self, chunk: Chunk) -> Chunk:
        if sp.issparse(chunk):
            rooted = sp.csr_array(chunk, copy=True)
            rooted.data = _signed_root(rooted.data)
            return rooted
        return _signed_root(np.asarray(chunk))

    def note(self) -> str:
        return "each value by itself becomes its square root, with its sign"


def _signed_root(cells: np.ndarray) -> np.ndarray:
    return np.copysign(np.sqrt(np.abs(cells)), cells)


@dataclass
class Bound(Stage):
    """Clamp columns to public bounds and map them linearly to [-1, 1].

    Parameters
    ----------
    low, high : float or sequence of float
        Public bounds, one pair for all columns or one per column. They come
        from what the columns mean, never from the private rows.

    Examples
    --------
    >>> Bound(low=[0, 10], high=[100, 20]).transform([[50.0, 25.0]])
    array([[0., 1.]])
    """

    low: Any = None
    high: Any = None
    kind: ClassVar[Kind] = "free"
    keeps_gaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            if getattr(self, name) is None:
                raise InputError(
                    f"Bound needs {name}=: a public bound for every column. Reading it from the "
                    "private rows would leak it; PrivateBounds() reads it through noise."
                )
        low, high = self._limits()
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise InputError("Bound: low and high must be finite")
        if not (low < high).all():
            raise InputError("Bound: every low must be below its high")
        if not (high / 2 - low / 2 >= sys.float_info.min).all():
            raise InputError(
                "Bound: a low and its high are too close to divide by what is between them, less "
                f"than {2 * sys.float_info.min:.3g}; take a larger unit, or wider bounds"
            )

    def _limits(self) -> tuple[np.ndarray, np.ndarray]:
        try:
            low, high = np.broadcast_arrays(
                np.asarray(self.low, dtype=float), np.asarray(self.high, dtype=float)
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"Bound: low and high must be numbers of one shape: {error}") from None
        if low.ndim > 1:
            raise InputError("Bound: low and high must be single numbers or one per column")
        return low, high

    def width(self, d: int) -> int:
        low, _ = self._limits()
        if low.ndim and low.size != d:
            raise InputError(f"Bound has limits for {low.size} columns, the rows have {d}")
        return d

    def bound(self, radius: float | None, d: int | None = None) -> float:
        low, _ = self._limits()
        columns = low.size if low.ndim else d
        if columns is None:
            raise InputError("Bound with one pair of limits needs the number of columns")
        return math.sqrt(columns)

    def lipschitz(self, d: int | None = None) -> float:
        low, high = self._limits()
        return float(1 / np.min(high / 2 - low / 2)) * (1 + 1e-12)

    def beyond(self, chunk: Chunk) -> np.ndarray:
        low, high = self._limits()
        cells = densify(chunk)
        return np.asarray(((cells < low) | (cells > high)).any(axis=1))

    def apply(self, chunk: Chunk) -> np.ndarray:
        return clamp(chunk, *self._limits())

    def note(self) -> str:
        return "columns are clamped to public bounds"


def clamp(chunk: Chunk, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Columns clamped to [low, high] and mapped linearly to [-1, 1]."""
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    # Clamp at the end as well: the division may round past one.
    return np.clip((np.clip(densify(chunk), low, high) - middle) / half, -1.0, 1.0)


@dataclass
class RandomProjection(Projection):
    """Johnson–Lindenstrauss projection to ``n_components`` by a random sign matrix.

    The matrix is drawn without looking at any row, so it costs nothing; the
    rival "JL" of Pinto et al. 2024. Rows grow by at most its largest singular value.

    Parameters
    ----------
    n_components : int or "auto"
        Columns out. ``"auto"``: 40, or as many as columns in if there are fewer.
    seed : int, optional
        Fixes the matrix. It is public either way, so fixing it harms nobody.

    Examples
    --------
    >>> rows = Normalize().through(as_rows(np.ones((3, 8))))
    >>> RandomProjection(2, seed=0).fit(rows).through(rows).d
    2
    """

    n_components: int | str = "auto"
    seed: int | None = None
    kind: ClassVar[Kind] = "free"

    def __post_init__(self) -> None:
        if self.n_components != "auto":
            require_count(self, "n_components")

    def width(self, d: int) -> int:
        return components(self, d)

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if hasattr(self, "norm_") or radius is None or d is None:
            return super().bound(radius, d)
        return radius * math.sqrt(d)  # before it is drawn: the Frobenius norm of any sign matrix

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        return radius  # lengths are nearly kept: that is what the projection is for

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows)
        place, k = context or Context(rows.n), self.width(rows.d)
        public = place.public if self.seed is None else PublicRandomness(Key.from_seed(self.seed))
        signs = public.signs("init", place.position, rows.d * k).reshape(rows.d, k)
        self._set(signs / math.sqrt(k), rows, context)
        return self

    def note(self) -> str:
        return f"rows are projected to {self.n_components} columns by a random public matrix"
