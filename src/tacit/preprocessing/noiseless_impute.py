"""Gaps filled from the private rows themselves, without noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.memory import require_room
from tacit.data.rows import Chunk, Rows, as_rows
from tacit.exceptions import InputError, MissingBound, of_rows
from tacit.mechanisms.additive import shorten
from tacit.mechanisms.passes import Passes
from tacit.preprocessing.base import (
    Context,
    Kind,
    NoiselessStage,
    Stage,
    around_gaps,
    densify,
    require_columns,
    require_count,
    require_positive,
    require_share,
)
from tacit.privacy.sensitivity import drift as rules
from tacit.privacy.sensitivity.drift import Drift

STRATEGIES = ("shrunk-mean", "mean", "trimmed-mean", "median", "ridge", "regression")
SINGULAR = 1e-12  # of the squared norm of rows: with less added, a system may have no solution
#: What each strategy must be told, because it holds only where a test says so.
NEEDS = {
    "mean": ("rows_with_gaps",),
    "trimmed-mean": ("rows_with_gaps",),
    "median": ("rows_with_gaps", "median_change"),
    "regression": ("floor",),
}


@dataclass
class FillGaps(Stage):
    """Fill missing values with a public constant; a constant of None refuses them.

    Parameters
    ----------
    value : float or None
        What missing values become.

    Examples
    --------
    >>> FillGaps(0.5).fit([[1.0, 2.0]]).apply(np.array([[np.nan, 1.0]]))
    array([[0.5, 1. ]])
    """

    value: float | None = 0.0
    kind: ClassVar[Kind] = "free"
    keeps_gaps: ClassVar[bool] = True
    fills_gaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number = isinstance(self.value, Real) and not isinstance(self.value, bool)
        if self.value is not None and not (number and math.isfinite(self.value)):
            raise InputError(f"FillGaps(value={self.value!r}): value must be a finite number")

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        if radius is None or not self.value:
            return radius
        if d is None:
            return None
        return radius + abs(self.value) * math.sqrt(d)

    def apply(self, chunk: Chunk) -> np.ndarray:
        dense = densify(chunk)
        gaps = np.isnan(dense)
        if self.value is None and gaps.any():
            raise of_rows(
                InputError(
                    "rows to predict have missing values. What filled them in training was read "
                    "from private rows and is not released: fill them yourself, or fit with "
                    "NoiselessImpute(at_prediction=value), a public constant"
                )
            )
        return np.where(gaps, self.value or 0.0, dense)

    def note(self) -> str:
        return "missing values are filled with a public constant"


@dataclass
class NoiselessImpute(NoiselessStage):
    """Fill missing values (NaN) of training rows by statistics of the private rows.

    Missing patterns stay as they are between neighbours, so this stage comes
    before any that mixes columns. Filled rows are clipped back to the norm bound.
    What was filled in is not released: rows to predict must be complete, or take
    a public constant.

    Parameters
    ----------
    strategy : str
        ``"shrunk-mean"`` (sum / (count + κ)) and ``"ridge"`` (regression on the
        complete columns, penalty λ) hold for any rows. The others hold behind a
        private test: ``"mean"``, ``"trimmed-mean"``, ``"median"``, ``"regression"``.
    rows_with_gaps : int, optional
        Most rows that have any gap; tested. Without it every row may have gaps,
        which the first two strategies allow at a higher price.
    columns : sequence of int, optional
        Columns that may have gaps, all by default. Gaps elsewhere count as zero.
        ``"ridge"`` and ``"regression"`` predict these from the others and need it.
    strength : float, optional
        κ (by default the number of rows) or λ (by default 0.05).
    trim : int
        Values left out at either end by ``"trimmed-mean"``.
    median_change : float, optional
        Most that one row may move a median by; tested.
    floor : float, optional
        Least eigenvalue of the predictors' second moment; tested.
    at_prediction : float, optional
        Public constant for missing values of rows to predict; refused if None.
    share : float
        Part of the plan's μ spent on the test, if there is one.

    Examples
    --------
    >>> stages = [NoiselessImpute("ridge", columns=[1], strength=0.1)]
    >>> stages[0].kind
    'noiseless'
    """

    strategy: str = "shrunk-mean"
    rows_with_gaps: int | None = None
    columns: Sequence[int] | None = None
    strength: float | None = None
    trim: int = 1
    median_change: float | None = None
    floor: float | None = None
    at_prediction: float | None = None
    share: float = 0.1
    fills_gaps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            allowed = ", ".join(STRATEGIES)
            raise InputError(
                f"NoiselessImpute(strategy={self.strategy!r}): choose one of {allowed}"
            )
        for name in NEEDS.get(self.strategy, ()):
            if getattr(self, name) is None:
                raise MissingBound(
                    f"NoiselessImpute(strategy={self.strategy!r})",
                    f"{name}=",
                    "strategy='shrunk-mean' or 'ridge', which hold for any rows",
                )
        for name in ("strength", "median_change", "floor"):
            if getattr(self, name) is not None:
                require_positive(self, name)
        if self.rows_with_gaps is not None:
            require_count(self, "rows_with_gaps")
        require_count(self, "trim")
        if not require_columns(self) and self.regresses:
            raise MissingBound(f"NoiselessImpute(strategy={self.strategy!r})", "columns=")
        FillGaps(self.at_prediction)  # refuses now what would otherwise fail after training
        require_share(self)

    @property
    def in_memory(self) -> bool:
        return self.strategy in ("median", "trimmed-mean")  # which sort whole columns

    @property
    def regresses(self) -> bool:
        """Whether missing values are predicted from the columns that are complete."""
        return self.strategy in ("ridge", "regression")

    def _columns(self, d: int) -> np.ndarray:
        """Indices of the columns that may have gaps."""
        given = require_columns(self, d)
        if self.regresses and len(given) >= d:
            raise InputError(
                f"NoiselessImpute(strategy={self.strategy!r}) needs complete columns to predict "
                "from"
            )
        return np.array(given, dtype=int)

    @property
    def tested(self) -> bool:
        return self.rows_with_gaps is not None or self.strategy == "regression"

    def rounding_bound(self, radius: float) -> float:
        if not self.regresses:
            return super().rounding_bound(radius)
        least = self.floor if self.strategy == "regression" else self._strength(0)
        ratio = radius**2 / float(least or 1.0)
        return self._slip(ratio * (1 + math.sqrt(ratio)))

    def _strength(self, n: int) -> float:
        if self.strength is not None:
            return float(self.strength)
        return 0.05 if self.strategy == "ridge" else float(n)

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        gaps, cells = self.rows_with_gaps, 0 if d is None else len(self._columns(d))
        if d is None and self.strategy in ("trimmed-mean", "median"):
            raise InputError(f"NoiselessImpute(strategy={self.strategy!r}).drift needs d=")
        if gaps is not None and gaps >= n:
            gaps = n - 1 if self.regresses or self.strategy == "shrunk-mean" else gaps
        strength = self._strength(n)
        if self.strategy == "shrunk-mean":
            return rules.impute_shrunk_mean(incoming, n, strength, gaps)
        if self.strategy == "ridge":
            if strength < SINGULAR * incoming.bound**2:
                raise InputError(
                    f"NoiselessImpute(strength={strength:g}): rows of norm {incoming.bound:g} "
                    "drown so small a penalty in rounding; pass a larger one, or a smaller "
                    "ClipNorm(radius)"
                )
            return rules.impute_ridge(incoming, n, strength, gaps)
        if self.strategy == "regression":
            return rules.impute_regression(incoming, n, float(self.floor or 0), gaps)
        assert gaps is not None
        if self.strategy == "mean":
            return rules.impute_mean(incoming, n, gaps)
        if self.strategy == "trimmed-mean":
            return rules.impute_trimmed_mean(incoming, n, gaps, self.trim, cells)
        return rules.impute_median(incoming, n, gaps, float(self.median_change or 0), cells)

    def gathers(self, *, moved: bool) -> bool:
        return self.strategy in ("trimmed-mean", "median")

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        rows = as_rows(rows, gaps=True)
        if rows.bound is None:
            raise MissingBound(self.name, "ClipNorm(radius) or Bound(low, high) before it")
        incoming = context.drift if context and context.drift else Drift(rows.bound)
        self._radius = rows.bound
        self._which = self._columns(rows.d)
        with_gaps = self._seen(rows).merged(self._rows_with_gaps, 0)
        self._margin = math.inf if self.rows_with_gaps is None else self.rows_with_gaps - with_gaps
        if self.regresses:
            self._fit_regression(rows, incoming)
        elif self.strategy in ("mean", "shrunk-mean"):
            self._fit_means(rows)
        else:
            self._fit_ranks(rows)
        return self

    def _seen(self, rows: Rows) -> Passes:
        """Chunks of observed values within the bound, with gaps in the named columns only."""
        elsewhere = np.ones(rows.d, dtype=bool)
        elsewhere[self._which] = False
        return rows.passes().map(partial(self._clipped, elsewhere=elsewhere))

    def _rows_with_gaps(self, cells: np.ndarray) -> int:
        return int(np.isnan(cells[:, self._which]).any(axis=1).sum())

    def _clipped(self, chunk: Chunk, elsewhere: np.ndarray) -> np.ndarray:
        cells = around_gaps(lambda c: shorten(c, self._radius), densify(chunk))
        return np.where(np.isnan(cells) & elsewhere, 0.0, cells)

    def _fit_means(self, rows: Rows) -> None:
        total, count = self._seen(rows).merged(_sums_and_counts, np.zeros((2, rows.d)))
        if self.strategy == "shrunk-mean":
            self._fill = total / (count + self._strength(rows.n))
        else:  # a column without any value fails the test; it must not crash before
            self._fill = total / np.maximum(count, 1.0)

    def _fit_ranks(self, rows: Rows) -> None:
        """Trimmed means or medians, column by column."""
        require_room(rows, f"{self.name}(strategy={self.strategy!r})", len(self._which))
        table = np.concatenate([cells[:, self._which] for cells in self._seen(rows)])
        fill = np.zeros(rows.d)
        steady = math.inf
        for column, values in zip(self._which, table.T, strict=True):
            ranked = np.sort(values[~np.isnan(values)])
            if self.strategy == "trimmed-mean":
                kept = ranked[self.trim : len(ranked) - self.trim]
                fill[column] = kept.mean() if len(kept) else 0.0
            else:
                fill[column] = np.median(ranked) if len(ranked) else 0.0
                steady = min(steady, steady_changes(ranked, float(self.median_change or 0)))
        self._fill = fill
        self._margin = min(self._margin, steady)

    def _fit_regression(self, rows: Rows, incoming: Drift) -> None:
        """One fit of all columns with gaps on the others, over rows that lack nothing."""
        rest = np.setdiff1d(np.arange(rows.d), self._which)
        summary = partial(_products, rest=rest, which=self._which)
        both = self._seen(rows).merged(summary, np.zeros((len(rest), rows.d)))
        gram = np.ascontiguousarray(both[:, : len(rest)])
        cross = np.ascontiguousarray(both[:, len(rest) :])
        ridge = self._strength(rows.n) * rows.n if self.strategy == "ridge" else 0.0
        if self.strategy == "regression":
            r, floor = incoming.bound, float(self.floor or 0)
            error = 1e-11 * r**2
            least = float(np.linalg.eigvalsh(gram / rows.n)[0]) - error
            change = (r**2 + 2 * r * incoming.l1) / rows.n + 2 * error
            self._margin = min(self._margin, (least - floor) / change)
            ridge = max(0.0, floor - least) * rows.n  # solvable where the test will fail anyway
        self._rest = rest
        self._weights = np.linalg.solve(gram + ridge * np.eye(len(rest)), cross)

    def apply(self, chunk: Chunk) -> np.ndarray:
        which = self._require("_which")
        elsewhere = np.ones(chunk.shape[1], dtype=bool)
        elsewhere[which] = False
        cells = self._clipped(chunk, elsewhere)
        gaps = np.isnan(cells)
        if self.regresses:
            guess = np.zeros_like(cells)
            guess[:, which] = cells[:, self._rest] @ self._weights
        else:
            guess = np.broadcast_to(self._fill, cells.shape)
        return shorten(np.where(gaps, guess, cells), self._radius)

    def release(self, rows: Rows, context: Context) -> Stage:
        return FillGaps(self.at_prediction)

    def note(self) -> str:
        return (
            f"missing values of training rows were filled ({self.strategy}) from the rows "
            "themselves, which makes training more sensitive; what was filled in is not released"
        )


def _sums_and_counts(cells: np.ndarray) -> np.ndarray:
    """Of the observed values of every column: (2, d)."""
    observed = ~np.isnan(cells)
    return np.stack([np.where(observed, cells, 0.0).sum(axis=0), observed.sum(axis=0)])


def _products(cells: np.ndarray, rest: np.ndarray, which: Any) -> np.ndarray:
    """Over rows that lack nothing, of the other columns: with themselves, and with those."""
    complete = cells[~np.isnan(cells).any(axis=1)]
    others = complete[:, rest]
    return np.hstack([others.T @ complete[:, rest], others.T @ complete[:, which]])


def steady_changes(ranked: np.ndarray, change: float) -> float:
    """How many rows may change before one more could move this median beyond ``change``.

    k rows moved, dropped or added shift the middle by at most k places, so the largest k with
    x[high+k+1] − x[low−k−1] ≤ change changes by at most one a row (docs/drift.md, rule c3).
    −1 if a single row could already do it.
    """
    low, high = (len(ranked) - 1) // 2, len(ranked) // 2
    reach = np.arange(min(low, len(ranked) - 1 - high) + 1) if len(ranked) else np.arange(0)
    narrow = ranked[high + reach] - ranked[low - reach] <= change
    # narrow[0] looks at the middle alone; one place more allows for the row in question.
    return float(np.argmin(np.append(narrow, False))) - 2.0
