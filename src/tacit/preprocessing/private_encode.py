"""From a table to rows of numbers, where some of what the schema should say is private."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.cells import as_number, is_date
from tacit.data.columns import (
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    UnknownColumn,
    default_column,
)
from tacit.data.rows import Rows, as_rows
from tacit.data.schema import Schema
from tacit.data.shaped import Layout
from tacit.data.tables import PathLike, Table
from tacit.exceptions import InputError
from tacit.mechanisms.bounds import bounds_draws, bounds_rows, bounds_spare, noisy_bounds
from tacit.mechanisms.histogram import MOST_KEYS, key_failure, key_rows, noisy_keys
from tacit.mechanisms.quantile import UP, VOTE
from tacit.mechanisms.release import BoundedSum, Token
from tacit.preprocessing.base import Context, PrivateStage, Stage, require_unmoved
from tacit.preprocessing.encode import Encode
from tacit.preprocessing.shapes import Cone, choose_shapes, is_hat
from tacit.privacy.events import Event, Failure, Gaussian
from tacit.privacy.sensitivity.drift import Drift

MOST_CATEGORIES = 64  # of a column that are kept, those of the largest noisy counts
EXPECTED_CATEGORIES = 8  # for choosing settings before they are known
OUTSIDE = 1e-9  # chance of an accident of a stage by itself, outside any plan
READ_ROWS = 1 << 18  # at a time: text is looked up once for all of them
READ_CELLS = 1 << 22  # of numbers at a time

LEAST_SHARE, LARGEST_SHARE = 0.1, 0.4  # of μ
FEW = 0.01  # of the rows, that may lie beyond a bound or be of a category that is not seen
_NUMBER = NumberColumn(missing="indicator")
NARROW = 0.2  # the same, up to which bounds are searched behind public ones


@dataclass(init=False)
class PrivateEncode(PrivateStage):
    """Encode a table by its schema, and find what is private in that: through noise.

    Bounds of numbers and dates are private quantiles near their ends, categories those that a noisy
    histogram sees above a threshold, and a kind is what a noisy count says that most values are.
    All of it is one release; `schema_` then has everything, and rows are encoded by it as by
    `Encode`.

    Parameters
    ----------
    schema : Schema, dict, or path of a YAML file
        What is public; the rest is ``private`` in it.
    share : float or "auto"
        Part of the plan's μ that is spent here; by the number of rows and of columns of each kind.
    noise_multiplier : float, optional
        Noise in contributions of one row, instead of a share.
    narrow : bool or "auto"
        Whether bounds are searched behind public ones as well, which may be far too wide: if there
        are rows enough to see them well.
    shapes : bool
        Whether numbers whose ``shape`` is ``auto`` become curves where public facts speak for it
        (`tacit.preprocessing.shapes.choose_shapes`); else they stay straight.

    Attributes
    ----------
    schema_ : Schema
        After `fit`, with nothing private in it.

    Notes
    -----
    *What it costs.* One ``Gaussian`` event, divided by squared noise among kinds, bounds and
    categories (`tacit.mechanisms.bounds`, `tacit.mechanisms.histogram`), and a ``Failure`` where
    categories are searched: one that a single row has is seen with that probability at most, in any
    of the columns.

    Examples
    --------
    >>> table = {"born": list(range(1950, 1990)) * 100, "job": ["cook", "nurse"] * 2000}
    >>> schema = {"columns": {"born": "number", "job": "category"}}
    >>> stage = PrivateEncode(schema, noise_multiplier=1.0).fit(table)
    >>> stage.schema_.columns["job"].categories
    ('cook', 'nurse')
    """

    keeps_gaps: ClassVar[bool] = True
    must_be_first: ClassVar[bool] = True
    takes_tables = True
    schema: Schema
    share: Any
    noise_multiplier: float | None
    narrow: bool | str
    shapes: bool

    def __init__(
        self,
        schema: Schema | Mapping[str, Any] | PathLike,
        share: float | str = "auto",
        noise_multiplier: float | None = None,
        narrow: bool | str = "auto",
        shapes: bool = True,
    ) -> None:
        self.schema = Schema.of(schema)
        self.share, self.noise_multiplier = share, noise_multiplier
        self.narrow, self.shapes = narrow, shapes
        self._number = _NUMBER  # what a column of unknown kind becomes, if it is a number
        if share != "auto":
            super().__post_init__()
        if narrow not in (True, False, "auto"):
            raise InputError(f"{self.name}: narrow={narrow!r} must be True, False or 'auto'")

    # --- What is public before any row is read ---------------------------------------------------

    @property
    def _unknown(self) -> list[str]:
        return [k for k, c in self.schema.columns.items() if isinstance(c, UnknownColumn)]

    def _numbers(self, columns: Mapping[str, Column]) -> list[str]:
        """Numbers and dates whose bounds are searched."""
        found = []
        for name, column in columns.items():
            if isinstance(column, NumberColumn):
                placed = isinstance(column.knots, tuple)
                if column.private or (self.narrow is True and not placed):
                    found.append(name)
        return found

    @staticmethod
    def _categories(columns: Mapping[str, Column]) -> list[str]:
        return [k for k, c in columns.items() if isinstance(c, CategoryColumn) and c.private]

    def _counts(self) -> tuple[int, int, int]:
        """Columns whose kinds, bounds and categories are searched, of unknown kinds all three."""
        unknown, columns = len(self._unknown), self.schema.columns
        return (
            unknown,
            len(self._numbers(columns)) + unknown,
            len(self._categories(columns)) + unknown,
        )

    @property
    def fails(self) -> bool:
        return self._counts()[2] > 0

    def _complete(self, categories: int, *, widest: bool = False) -> Schema:
        """The schema as it may become, with so many categories where they are private.

        What is of unknown kind becomes what has the largest norm, or the most columns.
        """
        if hasattr(self, "schema_"):
            return self.schema_
        words = tuple(f"c{i}" for i in range(categories))
        columns: dict[str, Column] = {}
        for name, column in self.schema.columns.items():
            if isinstance(column, UnknownColumn):
                number = _bounded(self._number)
                category = default_column("category", categories=words)
                column = category
                if (number.width > category.width) if widest else is_hat(number):
                    column = number
            elif isinstance(column, NumberColumn) and column.private:
                column = _bounded(column)
            elif isinstance(column, CategoryColumn) and column.private:
                column = replace(column, categories=words)
            columns[name] = column
        return replace(self.schema, columns=columns)

    @property
    def encode(self) -> Encode:
        """What maps rows: by the schema that was found or, before that, by one like it."""
        held = vars(self).get("_encode")
        if held is None or held[0] is not hasattr(self, "schema_"):
            stage = Encode(self._complete(EXPECTED_CATEGORIES))
            held = self._encode = (hasattr(self, "schema_"), stage)
        return held[1]

    @property
    def makes_gaps(self) -> bool:
        return self.encode.makes_gaps

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns, once it is fitted."""
        self._require("schema_")
        return self.encode.feature_names

    def width(self, d: int | None = None) -> int:
        return self.encode.width(d)

    def widest(self, d: int) -> int:
        return Encode(self._complete(MOST_CATEGORIES, widest=True)).width(d)

    def bound(self, radius: float | None = None, d: int | None = None) -> float | None:
        return self.encode.bound(radius, d)

    @property
    def layout(self) -> Layout | None:
        """How encoded rows lie, if some of their columns are curves."""
        return self.encode.layout

    @property
    def monotone(self) -> tuple[Cone, ...]:
        return self.encode.monotone

    def typical(self, radius: float | None, d: int | None = None) -> float | None:
        return self.encode.typical(radius, d)

    def event(self, noise_multiplier: float) -> Event:
        return Gaussian(noise_multiplier)

    def failure(self, probability: float, noise_multiplier: float) -> Failure:
        kinds, _, categories = self._counts()
        if kinds:  # how many columns vote for categories is known only once kinds are
            return Failure(probability)
        part = noise_multiplier / math.sqrt(self._shares(1, noise_multiplier)[2])
        return key_failure(part, categories, probability)

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        require_unmoved(self, incoming)
        return super().drift(incoming, n, d)

    def draws(self, d: int) -> int:
        kinds, numbers, categories = self._counts()
        drawn = 3 * kinds + bounds_draws(numbers, gaps=True)
        return drawn + (MOST_KEYS if categories else 0)

    def expand(
        self, before: Sequence[Stage], *, size: int, mu: float, **more: Any
    ) -> tuple[tuple[Stage, ...], str]:
        """Itself, with share and narrowing chosen by public facts; `Encode`, if all is public.

        Parameters
        ----------
        before : sequence of Stage
            Stages in front, which there are none of.
        size : int
            Public number of rows.
        mu : float
            Gaussian budget of the plan.
        **more
            Other public facts, by which nothing is chosen here.

        Returns
        -------
        tuple of a tuple of Stage, and str
            The stage, and nothing to say.
        """
        if hasattr(self, "schema_"):
            return (self,), ""
        stage, own = self, self.noise_multiplier
        if self.shapes:
            stage = self._as(schema=choose_shapes(self.schema, size, mu), shapes=False)
            number = choose_shapes(Schema({"x": _NUMBER}), size, mu).columns["x"]
            assert isinstance(number, NumberColumn)
            stage._number = number
        if self.narrow == "auto":
            wide = stage._as(narrow=True)
            z = own or 1 / (wide._share(size, mu) * mu)
            stage = wide if wide._outside(size, z) <= NARROW else stage._as(narrow=False)
        if not any(stage._counts()):
            return (Encode(stage.schema),), ""
        share = stage._share(size, mu)
        if share != stage.share:
            stage = stage._as(share=share)
        return (stage,), ""

    def _as(self, **settings: Any) -> PrivateEncode:
        names = ("schema", "share", "noise_multiplier", "narrow", "shapes")
        made = PrivateEncode(**{**{name: getattr(self, name) for name in names}, **settings})
        made._number = self._number
        return made

    def _share(self, size: int, mu: float) -> float:
        """The least part of μ that sees all but a few rows, within limits."""
        if self.share != "auto":
            return float(self.share)
        whole = max(self._outside(size, 1 / mu), self._rare(size, 1 / mu, 1e-7))
        return min(max(whole / FEW, LEAST_SHARE), LARGEST_SHARE)

    def _outside(self, size: int, noise_multiplier: float) -> float:
        """Part of the rows that lie beyond a bound, at most half."""
        _, numbers, _ = self._counts()
        if not numbers:
            return 0.0
        part = noise_multiplier / math.sqrt(self._shares(size, noise_multiplier)[1])
        return bounds_spare(numbers, part, gaps=True) / size

    def _rare(self, size: int, noise_multiplier: float, chance: float) -> float:
        """Part of the rows that a category must have to be seen."""
        _, _, categories = self._counts()
        if not categories:
            return 0.0
        part = noise_multiplier / math.sqrt(self._shares(size, noise_multiplier)[2])
        return key_rows(part, categories, chance, size) / size

    def _shares(
        self,
        size: int,
        noise_multiplier: float,
        counts: tuple[int, int, int] | None = None,
    ) -> tuple[float, float, float]:
        """Parts of the release for kinds, bounds and categories.

        Kinds need as much as tells a twentieth of the rows from noise. Of the rest, a part s leaves
        A/√s rows unseen, for bounds and for categories, and the sum of both is least for
        s ∝ A^(2/3).
        """
        kinds, numbers, categories = counts or self._counts()
        first = 0.0
        if kinds:
            first = min(max((20 * noise_multiplier / size) ** 2 * kinds, 0.01), 0.25)
        needs = [
            bounds_spare(numbers, 1.0, gaps=True) if numbers else 0.0,
            key_rows(1.0, categories, 1e-7, 1) if categories else 0.0,
        ]
        weights = [need ** (2 / 3) for need in needs]
        if not any(weights):
            return 1.0, 0.0, 0.0
        rest = [(1 - first) * weight / sum(weights) for weight in weights]
        return first, rest[0], rest[1]

    def require_rows(self, size: int, d: int, noise_multiplier: float, failure: float) -> None:
        columns, unknown = self.schema.columns, self._unknown
        half = math.ceil(len(unknown) / 2)  # of unknown kind: as many numbers as not
        numbers, words = self._numbers(columns), self._categories(columns)
        counts = (len(unknown), len(numbers) + half, len(words) + half)
        _, bounds, keys = self._shares(size, noise_multiplier, counts)
        texts = []
        if counts[1]:
            needed = bounds_rows(counts[1], noise_multiplier / math.sqrt(bounds), gaps=True)
            if size < needed:
                private = [name for name in numbers if columns[name].private]
                texts.append(f"bounds of {counts[1]} columns, which take about {needed:,}: pass ")
                texts[-1] += _lines("bounds", private, "(low, high)")
        if counts[2]:
            part = noise_multiplier / math.sqrt(keys)
            needed = math.ceil(2 * key_rows(part, counts[2], failure or OUTSIDE, size))
            if size < needed:
                texts.append(f"categories of {counts[2]} columns, which take about {needed:,}: ")
                texts[-1] += "pass " + _lines("categories", words, "[...]")
        if texts:
            kinds = (
                f". {len(unknown)} columns are of unknown kind: pass a schema" if unknown else ""
            )
            raise InputError(
                f"{size:,} rows are too few to find, through this noise, the "
                f"{'; nor the '.join(texts)}{kinds}. Declare what is public of them, leave columns "
                "out, or raise epsilon. Nothing was spent"
            )

    # --- What is found ---------------------------------------------------------------------------

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        given = rows if isinstance(rows, Rows) else as_rows(_table(rows))
        self.encode.fit(given.hidden())
        if context is None and not given.n:
            return self  # asked whether it takes such a table
        context = self._context(given, context)
        require_unmoved(self, context.drift)
        if self.narrow == "auto" or self.share == "auto":
            raise InputError(f"{self.name}: a plan chooses what is 'auto'; outside, say it")
        self.schema_ = self._found(given, context)
        return self

    def _context(self, rows: Rows, context: Context | None) -> Context:
        if context is not None:
            return context
        if self.noise_multiplier is None:
            raise InputError(f"{self.name} outside a plan needs noise_multiplier=")
        if self.share == "auto":
            self.share = LEAST_SHARE
        self.narrow = self.narrow is True
        event, failure = self.event(self.noise_multiplier), OUTSIDE if self.fails else 0.0
        return Context.paid(event, rows.n, failure=failure)

    def _found(self, rows: Rows, context: Context) -> Schema:
        token, passes = context.release("encode"), rows.passes(READ_ROWS)
        z, size, unknown = token.noise_multiplier, context.size, self._unknown
        columns = dict(self.schema.columns)
        first = self._shares(size, z)[0]
        if unknown:
            columns |= _kinds(passes, unknown, token.part(first), self._number)
        numbers, categories = self._numbers(columns), self._categories(columns)
        # What is left is divided again, now that kinds are known.
        counts = (len(unknown), len(numbers), len(categories))
        _, bounds, keys = self._shares(size, z, counts)
        scale = (1 - first) / (bounds + keys) if bounds + keys else 0.0
        if numbers:
            held = [
                column for column in map(columns.get, numbers) if isinstance(column, NumberColumn)
            ]
            known = [(column.low, column.high) for column in held]
            dates = [isinstance(column, DateColumn) for column in held]
            low, high = noisy_bounds(
                rows.passes(max(1, READ_CELLS // len(numbers))).map(
                    partial(_values, names=numbers, dates=dates)
                ),
                len(numbers),
                token.part(bounds * scale),
                size=size,
                counted=context.counted,
                known=known,
                gaps=True,
            )
            for j, name in enumerate(numbers):
                columns[name] = replace(held[j], low=float(low[j]), high=float(high[j]))
        if categories:
            found = noisy_keys(
                passes,
                partial(_keys, names=categories),
                len(categories),
                token.part(keys * scale),
                size=size,
                probability=token.failure,
                most=MOST_CATEGORIES,
            )
            for name, words in zip(categories, found, strict=True):
                column = columns[name]
                assert isinstance(column, CategoryColumn)
                columns[name] = replace(column, categories=words)
        return replace(self.schema, columns=columns)

    def apply(self, chunk: Table) -> Any:
        self._require("schema_")
        return self.encode.apply(chunk)

    def beyond(self, chunk: Table) -> np.ndarray:
        return self.encode.beyond(chunk)

    def example(self, d: int) -> Table:
        return self.encode.example(d)

    def transform(self, rows: Any) -> Any:
        self._require("schema_")
        return self.encode.transform(rows)

    def note(self) -> str:
        kinds, numbers, categories = self._counts()
        parts = [f"the kinds of {kinds}"] * bool(kinds)
        parts += [f"the bounds of {numbers}"] * bool(numbers)
        parts += [f"the categories of {categories}"] * bool(categories)
        rare = (
            "; a category that one row alone has is seen with the probability that is counted"
            if categories
            else ""
        )
        return (
            f"the table is encoded by its schema, row by row; {', '.join(parts)} columns are found "
            f"in the rows, through noise{rare}"
        )

    def why(self) -> str:
        kinds, numbers, categories = self._counts()
        known = sum(
            not self.schema.columns[name].private for name in self._numbers(self.schema.columns)
        )
        parts = [f"kinds of {kinds}"] * bool(kinds)
        within = f", {known} of the bounds within public ones" if known else ""
        parts += [f"bounds of {numbers}"] * bool(numbers)
        parts += [f"categories of {categories}"] * bool(categories)
        return f"finds {' and '.join(parts)} columns{within}" if parts else ""

    def assumption(self) -> str:
        return " ".join(self.schema.assumptions())

    def parameters(self) -> dict[str, Any]:
        found = {"found": self.schema_.to_dict()} if hasattr(self, "schema_") else {}
        return {**super().parameters(), **found}

    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        settings = dict(parameters)
        schema, found = settings.pop("schema"), settings.pop("found")
        if not isinstance(schema, Mapping) or not isinstance(found, Mapping):
            raise ValueError("the schema must be in the file itself")  # no path of another one
        stage = cls(Schema.from_dict(schema), **settings)
        stage.schema_ = Schema.from_dict(found)
        if stage.schema_.private:
            raise ValueError("a fitted stage has found its schema")
        return stage


def _table(rows: Any) -> Any:
    from tacit.data.tables import as_table

    return as_table(rows)


def _lines(key: str, names: Sequence[str], value: str) -> str:
    """What to pass, for some columns."""
    some = ", ".join(f"{name!r}: {value}" for name in names[:3]) or f"column: {value}"
    return f"{key}={{{some}{', ...' if len(names) > 3 else ''}}}"


def _bounded(column: NumberColumn) -> NumberColumn:
    """Bounds in place of private ones, beside a public one if there is one."""
    low, high = column.low, column.high
    if low is None:
        low = 0.0 if high is None else high - max(1.0, abs(high))
    return replace(column, low=low, high=low + max(1.0, abs(low)) if high is None else high)


def _values(chunk: Table, names: Sequence[str], dates: Sequence[bool]) -> np.ndarray:
    """Numbers and dates (rows, columns), NaN where there is none."""
    read = [chunk.values(name, dates=date) for name, date in zip(names, dates, strict=True)]
    return np.stack(read, axis=1)


def _keys(chunk: Table, names: Sequence[str]) -> list[dict[str, int]]:
    """How many rows have which words, column by column."""
    found = []
    for name in names:
        codes, words = chunk.coded(name)
        held, counts = np.unique(codes[codes >= 0], return_counts=True)
        column: dict[str, int] = {}
        for i, n in zip(held.tolist(), counts.tolist(), strict=True):
            column[words[i]] = column.get(words[i], 0) + n
        found.append(column)
    return found


def _kinds(
    passes: Any, names: Sequence[str], token: Token, number: NumberColumn
) -> dict[str, Column]:
    """Kinds by what most values spell, through noise: a row has one vote in each column."""
    counts = passes.merged(partial(_spelled, names=names), np.zeros((len(names), 3), np.int64))
    norm = math.sqrt(len(names)) * UP
    noisy = token.gaussian(BoundedSum(counts * VOTE, 1 / VOTE, norm, norm * UP, "votes"))
    date = default_column("date", shape=number.shape, knots=number.knots)
    kinds: list[Column] = [number, date, default_column("category")]
    return {name: kinds[int(v.argmax())] for name, v in zip(names, noisy, strict=True)}


def _spelled(chunk: Table, names: Sequence[str]) -> np.ndarray:
    found = np.zeros((len(names), 3), dtype=np.int64)
    for j, name in enumerate(names):
        codes, words = chunk.coded(name)
        held, counts = np.unique(codes[codes >= 0], return_counts=True)
        for i, n in zip(held.tolist(), counts.tolist(), strict=True):
            word = words[i]
            kind = 0 if as_number(word) is not None else 1 if is_date(word) else 2
            found[j, kind] += n
    return found
