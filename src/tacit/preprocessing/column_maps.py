"""Row-wise maps of named columns with public constants, and what they do to bounds.

A branch of `ByColumns` loads columns of a table as numbers or as categories, and maps them on. A
map is told the public interval of every column that comes in, and says those of the columns that
go out, before any row is read. Every map is total: what is not a number is a gap (NaN), what lies
beyond its interval is clamped, and a gap stays a gap or becomes zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import combinations, combinations_with_replacement, pairwise
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tacit.data.tables import Table
from tacit.exceptions import InputError, of_rows

#: Functions of one number, and which interval becomes which: those that only grow.
GROWING: tuple[str, ...] = ("arcsinh", "arctan", "cbrt", "ceil", "exp", "expm1", "floor", "log")
GROWING += ("log10", "log1p", "log2", "rint", "sqrt", "tanh")
WAVES = ("sin", "cos")
EVEN = ("abs", "absolute", "fabs", "square")
FUNCTIONS = (*GROWING, *WAVES, *EVEN)


MOST_DEGREE = 25
MOST_COLUMNS = 1 << 16  # that one map makes of a few


@dataclass(frozen=True)
class Span:
    """What is public of the columns of a branch.

    Attributes
    ----------
    names : tuple of str
    low, high : tuple of float
        The interval of every column.
    square : float or None
        Bound on the squared norm of weights, which stay as they are; None of numbers, which are
        mapped to [-1, 1] in the end.
    """

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    square: float | None = None

    @property
    def width(self) -> int:
        return len(self.names)

    def numbers(self, what: str) -> Span:
        """The same, unless they are weights already."""
        if self.square is not None:
            raise InputError(f"{what} takes numbers, and these columns are weights of categories")
        return self


@dataclass(frozen=True)
class Numbers:
    """Columns of numbers between public bounds: clamped, gaps and what is no number as NaN.

    Dates count as seconds since 1970, true and false as 1 and 0.
    """

    kind: ClassVar[str] = "numbers"
    columns: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, low, high in zip(self.columns, self.low, self.high, strict=True):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise InputError(f"bounds of {name!r} must be finite, the low below the high")

    def span(self) -> Span:
        return Span(self.columns, self.low, self.high)

    def load(self, table: Table) -> np.ndarray:
        cells = np.empty((table.n, len(self.columns)))
        for i, name in enumerate(self.columns):
            cells[:, i] = table.values(name)
        return np.clip(cells, self.low, self.high)


@dataclass(frozen=True)
class Codes:
    """Categories as their places 0, 1, ...; what is missing or none of them as given, or a gap."""

    kind: ClassVar[str] = "codes"
    columns: tuple[str, ...]
    categories: tuple[tuple[str | float, ...], ...]
    missing: float | None = None
    unseen: float | None = None

    def span(self) -> Span:
        others = [code for code in (self.missing, self.unseen) if code is not None]
        ends = [(min([0.0, *others]), max([1.0, len(c) - 1.0, *others])) for c in self.categories]
        return Span(self.columns, tuple(e[0] for e in ends), tuple(e[1] for e in ends))

    def load(self, table: Table) -> np.ndarray:
        cells = np.empty((table.n, len(self.columns)))
        others = [np.nan if code is None else code for code in (self.unseen, self.missing)]
        for i, (name, levels) in enumerate(zip(self.columns, self.categories, strict=True)):
            places = np.array([*range(len(levels)), *others])  # -2 is unseen, -1 missing
            cells[:, i] = places[table.match(name, levels)]
        return cells


@dataclass(frozen=True)
class Levels:
    """Categories as one 0/1 column each: of a column's, at most one is not zero.

    Parameters
    ----------
    missing : tuple of (int or None)
        Where missing values of every column go: to the category of that place; one beyond the
        last is a further column; None for zeros.
    dropped : tuple of (int or None)
        Which column of its own a column's categories do without.
    """

    kind: ClassVar[str] = "levels"
    columns: tuple[str, ...]
    categories: tuple[tuple[str | float, ...], ...]
    missing: tuple[int | None, ...]
    dropped: tuple[int | None, ...]

    def _kept(self, i: int) -> list[int]:
        count = len(self.categories[i]) + (self.missing[i] == len(self.categories[i]))
        return [place for place in range(count) if place != self.dropped[i]]

    def span(self) -> Span:
        names: list[str] = []
        for i, (name, levels) in enumerate(zip(self.columns, self.categories, strict=True)):
            texts = [*map(str, levels), "<missing>"]
            names += [f"{name}={texts[place]}" for place in self._kept(i)]
        zeros, ones = (0.0,) * len(names), (1.0,) * len(names)
        return Span(tuple(names), zeros, ones, float(len(self.columns)))

    def load(self, table: Table) -> np.ndarray:
        blocks = []
        for i, (name, levels) in enumerate(zip(self.columns, self.categories, strict=True)):
            codes = table.match(name, levels)
            if (level := self.missing[i]) is not None:
                codes = np.where(codes == -1, level, codes)
            blocks.append(codes[:, None] == np.array(self._kept(i), dtype=np.int64))
        return np.hstack(blocks).astype(np.float64)


@dataclass(frozen=True)
class Fill:
    """Gaps filled with a constant, in a column's own units, and on demand marked beside."""

    kind: ClassVar[str] = "fill"
    value: float | None = None
    mark: bool = False

    def span(self, given: Span) -> Span:
        given.numbers("an imputer")
        low, high = list(given.low), list(given.high)
        if self.value is not None:
            low = [min(end, self.value) for end in low]
            high = [max(end, self.value) for end in high]
        if not self.mark:
            return Span(given.names, tuple(low), tuple(high))
        names = [*given.names, *(f"{name}=<missing>" for name in given.names)]
        zeros, ones = [0.0] * given.width, [1.0] * given.width
        return Span(tuple(names), (*low, *zeros), (*high, *ones))

    def apply(self, cells: np.ndarray, given: Span) -> np.ndarray:
        gaps = np.isnan(cells)
        filled = cells if self.value is None else np.where(gaps, self.value, cells)
        return np.hstack([filled, gaps]) if self.mark else filled


@dataclass(frozen=True)
class Ufunc:
    """A function of every number by itself, one of `FUNCTIONS`."""

    kind: ClassVar[str] = "ufunc"
    name: str

    def __post_init__(self) -> None:
        if self.name not in FUNCTIONS:
            raise InputError(f"no function {self.name!r:.80}; there are {', '.join(FUNCTIONS)}")

    def span(self, given: Span) -> Span:
        given.numbers(self.name)
        ends = np.array([given.low, given.high])
        with np.errstate(all="ignore"):
            low, high = getattr(np, self.name)(ends)
        if self.name in WAVES:
            low, high = np.full((2, given.width), 1.0) * [[-1.0], [1.0]]
        elif self.name in EVEN:
            low, high = (
                np.where(ends[0] * ends[1] <= 0, 0.0, np.minimum(low, high)),
                np.maximum(low, high),
            )
        bad = ~(np.isfinite(low) & np.isfinite(high) & (low < high))
        if bad.any():
            at = int(np.argmax(bad))
            raise InputError(
                f"{self.name} of {given.names[at]!r} has no bounds where it lies between "
                f"{given.low[at]:g} and {given.high[at]:g}; give it bounds within which "
                f"{self.name} is finite"
            )
        return Span(given.names, tuple(low.tolist()), tuple(high.tolist()))

    def apply(self, cells: np.ndarray, given: Span) -> np.ndarray:
        found: np.ndarray = getattr(np, self.name)(cells)
        return found


@dataclass(frozen=True)
class RowFunction:
    """A function of rows that somebody has declared to look at one row at a time.

    Its results are clamped to the bounds that were declared with it. No file holds it.
    """

    kind: ClassVar[str] = "function"
    function: Callable[..., Any] = field(compare=False)
    low: float
    high: float
    framed: bool = False
    kwargs: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def title(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def span(self, given: Span) -> Span:
        given.numbers("a function")
        middle = [(low + high) / 2 for low, high in zip(given.low, given.high, strict=True)]
        width = self._call(np.array([middle]), given).shape[1]
        names = given.names if width == given.width else [f"{self.title}{i}" for i in range(width)]
        return Span(tuple(names), (self.low,) * width, (self.high,) * width)

    def apply(self, cells: np.ndarray, given: Span) -> np.ndarray:
        found = self._call(cells, given)
        if len(found) != len(cells):
            raise InputError(f"{self.title} must give as many rows as it takes")
        return np.clip(found, self.low, self.high)

    def _call(self, cells: np.ndarray, given: Span) -> np.ndarray:
        rows: Any = cells
        if self.framed:
            import pandas as pd

            rows = pd.DataFrame(cells, columns=list(given.names))
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(self.function(rows, **self.kwargs), dtype=np.float64)
        except Exception:
            raise of_rows(InputError(f"{self.title} failed on some row")) from None
        return found.reshape(len(found), -1)


@dataclass(frozen=True)
class Bins:
    """Numbers cut at even public edges: their bin as a 0/1 column, or as its place."""

    kind: ClassVar[str] = "bins"
    count: int
    weights: bool = True

    def span(self, given: Span) -> Span:
        given.numbers("bins")
        if self.count < 2:
            raise InputError("there must be two bins at least")
        _require_few(given.width * self.count)
        if not self.weights:
            return Span(given.names, (0.0,) * given.width, (self.count - 1.0,) * given.width)
        names = [f"{name}[{i}]" for name in given.names for i in range(self.count)]
        return Span(tuple(names), (0.0,) * len(names), (1.0,) * len(names), float(given.width))

    def apply(self, cells: np.ndarray, given: Span) -> np.ndarray:
        low, high = np.array(given.low), np.array(given.high)
        with np.errstate(invalid="ignore"):
            place = np.clip(np.floor((cells - low) / (high - low) * self.count), 0, self.count - 1)
        if not self.weights:
            return place
        hot = place[:, :, None] == np.arange(self.count)  # of a gap none
        return hot.reshape(len(cells), -1).astype(np.float64)


@dataclass(frozen=True)
class Splines:
    """B-splines on public knots: weights that are not negative and add up to one at most.

    So the weights of a column have norm one at most. A gap has none.
    """

    kind: ClassVar[str] = "splines"
    knots: tuple[tuple[float, ...], ...]
    degree: int
    bias: bool = True

    def span(self, given: Span) -> Span:
        given.numbers("splines")
        if not 0 <= self.degree <= MOST_DEGREE:
            raise InputError(f"splines have a degree from 0 to {MOST_DEGREE}")
        if len(self.knots) != given.width:
            raise InputError(f"splines have knots of {len(self.knots)} columns, not {given.width}")
        names = []
        for name, knots in zip(given.names, self.knots, strict=True):
            if len(knots) < 2 or not all(a < b for a, b in pairwise(knots)):
                raise InputError(f"knots of {name!r} must be two or more that increase")
            names += [f"{name}~{i}" for i in range(len(knots) + self.degree - 2 + self.bias)]
        return Span(tuple(names), (0.0,) * len(names), (1.0,) * len(names), float(given.width))

    def apply(self, cells: np.ndarray, given: Span) -> np.ndarray:
        from scipy.interpolate import BSpline

        blocks = []
        for i, knots in enumerate(self.knots):
            # As SplineTransformer continues them: by the first and the last distance.
            first, last = knots[1] - knots[0], knots[-1] - knots[-2]
            before = [knots[0] - first * k for k in range(self.degree, 0, -1)]
            behind = [knots[-1] + last * k for k in range(1, self.degree + 1)]
            whole = np.array([*before, *knots, *behind])
            gaps = np.isnan(cells[:, i])
            inside = np.clip(np.where(gaps, knots[0], cells[:, i]), knots[0], knots[-1])
            found = BSpline.design_matrix(inside, whole, self.degree).toarray()
            found[gaps] = 0.0
            blocks.append(found if self.bias else found[:, :-1])
        return np.clip(np.hstack(blocks), 0.0, 1.0)


@dataclass(frozen=True)
class Products:
    """Products of columns that were mapped to [-1, 1], up to a degree; a gap counts as zero."""

    kind: ClassVar[str] = "products"
    degree: int
    different: bool = False

    def _terms(self, width: int) -> list[tuple[int, ...]]:
        pick = combinations if self.different else combinations_with_replacement
        return [term for k in range(1, self.degree + 1) for term in pick(range(width), k)]

    def span(self, given: Span) -> Span:
        given.numbers("products")
        if not 1 <= self.degree <= MOST_DEGREE:
            raise InputError(f"products have a degree from 1 to {MOST_DEGREE}")
        _require_few(math.comb(given.width + self.degree, self.degree))
        terms = self._terms(given.width)
        names = ["*".join(given.names[i] for i in term) for term in terms]
        return Span(tuple(names), (-1.0,) * len(terms), (1.0,) * len(terms))

    def apply(self, cells: np.ndarray, given: Span) -> np.ndarray:
        ends = centred(cells, given)
        ends = np.where(np.isnan(ends), 0.0, ends)
        columns = [np.prod(ends[:, list(term)], axis=1) for term in self._terms(given.width)]
        return np.stack(columns, axis=1)


def _require_few(columns: int) -> None:
    if columns > MOST_COLUMNS:
        raise InputError(f"{columns} columns would come out, and {MOST_COLUMNS} are taken at most")


Load: TypeAlias = Numbers | Codes | Levels
ColumnMap: TypeAlias = Fill | Ufunc | RowFunction | Bins | Splines | Products
_KINDS: dict[str, Any] = {
    kind.kind: kind for kind in (Numbers, Codes, Levels, Fill, Ufunc, Bins, Splines, Products)
}


def to_dict(given: Load | ColumnMap) -> dict[str, Any]:
    """A map as plain JSON values; a function by its name alone."""
    if isinstance(given, RowFunction):
        return {"map": given.kind, "name": given.title, "low": given.low, "high": given.high}
    return {"map": given.kind, **{k: _listed(v) for k, v in asdict(given).items()}}


def from_dict(data: Mapping[str, Any]) -> Any:
    """The inverse of `to_dict`, except for functions."""
    kind = _KINDS.get(data["map"])
    if kind is None:
        raise InputError(f"{data['map']!r:.80} is no map of columns that a file holds")
    return kind(**{key: _tupled(value) for key, value in data.items() if key != "map"})


def centred(cells: np.ndarray, span: Span) -> np.ndarray:
    """Columns mapped linearly from their intervals to [-1, 1]; gaps stay gaps."""
    low, high = np.array(span.low), np.array(span.high)
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    return np.clip((np.clip(cells, low, high) - middle) / half, -1.0, 1.0)


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple | list) else value


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list | tuple) else value
