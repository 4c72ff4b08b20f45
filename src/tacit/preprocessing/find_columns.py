"""Named columns mapped in their own ways, where bounds or categories of some are found first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tacit.data.columns import CategoryColumn, NumberColumn, default_column
from tacit.data.rows import Rows
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.exceptions import InputError
from tacit.preprocessing.base import Context, PrivateStage, require_unmoved
from tacit.preprocessing.by_columns import Branch, ByColumns, table_of
from tacit.preprocessing.column_maps import Levels, Numbers
from tacit.preprocessing.private_encode import EXPECTED_CATEGORIES, MOST_CATEGORIES, PrivateEncode
from tacit.privacy.events import Event
from tacit.privacy.sensitivity.drift import Drift


@dataclass
class PrivateByColumns(PrivateStage):
    """What `ByColumns` does, with bounds and categories that are found through noise.

    They are found in one release, as `PrivateEncode` finds them, and with its failure
    probability where categories are searched; rows are then mapped by them, one by one.

    Parameters
    ----------
    branches : sequence of Branch
        Columns and maps; what they say of the columns below stands in for what is found.
    bounds : sequence of str
        Columns of numbers whose bounds are found.
    within : sequence of str
        Those of them that lie between what the branches say: public bounds, maybe far too wide.
    categories : sequence of str
        Columns whose categories are found; missing values have a level of their own.

    Examples
    --------
    >>> branch = Branch(Numbers(("born",), (0.0,), (1.0,)))
    >>> stage = PrivateByColumns(noise_multiplier=1.0, branches=[branch], bounds=["born"])
    >>> stage = stage.fit({"born": list(range(1950, 1990)) * 100})
    >>> stage.transform({"born": [1900, 2050]})
    array([[-1.],
           [ 1.]])
    """

    branches: Any = ()
    bounds: Sequence[str] = ()
    categories: Sequence[str] = ()
    within: Sequence[str] = ()
    keeps_gaps: ClassVar[bool] = True
    must_be_first: ClassVar[bool] = True
    takes_tables = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._branches = ByColumns(self.branches).listed
        if not (self.bounds or self.categories):
            raise InputError("PrivateByColumns: nothing is to be found; use ByColumns")
        if both := set(self.bounds) & set(self.categories):
            raise InputError(
                f"column {min(both)!r} would be searched for bounds and for categories: declare "
                f"bounds={{{min(both)!r}: (low, high)}} or categories={{{min(both)!r}: [...]}}"
            )
        loads = [branch.load for branch in self._branches]
        known = {
            name: {"low": low, "high": high}
            for load in loads
            if isinstance(load, Numbers)
            for name, low, high in zip(load.columns, load.low, load.high, strict=True)
            if name in self.within
        }
        columns = {name: default_column("number", **known.get(name, {})) for name in self.bounds}
        columns |= {name: default_column("category") for name in self.categories}
        self._finder = self._search(Schema(columns))

    def _search(self, schema: Schema) -> PrivateEncode:
        settings = {"narrow": bool(self.within), "shapes": False}
        return PrivateEncode(schema, self.share, self.noise_multiplier, **settings)

    @property
    def stage(self) -> ByColumns:
        """What maps rows: by what was found or, before that, by what stands in for it."""
        found = getattr(self, "found_", None)
        return self._filled(EXPECTED_CATEGORIES) if found is None else found

    def _filled(self, count: int) -> ByColumns:
        """Branches with so many categories where they are private."""
        words = tuple(f"c{i}" for i in range(count))
        return ByColumns(
            [_complete(b, {}, dict.fromkeys(self.categories, words)) for b in self._branches]
        )

    @property
    def columns(self) -> list[str]:
        """Columns of the table that are used, each once."""
        return self.stage.columns

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns out, once it is fitted."""
        return self.stage.feature_names

    @property
    def makes_gaps(self) -> bool:
        return self.stage.makes_gaps

    @property
    def fails(self) -> bool:
        return self._finder.fails

    def event(self, noise_multiplier: float) -> Event:
        return self._finder.event(noise_multiplier)

    def draws(self, d: int) -> int:
        return self._finder.draws(d)

    def width(self, d: int | None = None) -> int:
        return self.stage.width(d)

    def widest(self, d: int) -> int:
        return self._filled(MOST_CATEGORIES).width(d)

    def bound(self, radius: float | None = None, d: int | None = None) -> float:
        return self.stage.bound(radius, d)

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        require_unmoved(self, incoming)
        return super().drift(incoming, n, d)

    def require_rows(self, size: int, d: int, noise_multiplier: float, failure: float) -> None:
        self._finder.require_rows(size, d, noise_multiplier, failure)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        self.stage.fit(rows.hidden() if isinstance(rows, Rows) else rows)
        if context is None and isinstance(rows, Rows) and not rows.n:
            return self  # asked whether it takes such a table
        known = self._finder.schema.columns
        others = [name for name in table_of(rows).column_names if name not in known]
        finder = self._search(Schema(known, ignore=tuple(others))).fit(rows, context)
        ends, words = {}, {}
        for name, column in finder.schema_.columns.items():
            if isinstance(column, NumberColumn):
                assert column.low is not None and column.high is not None
                ends[name] = (float(column.low), float(column.high))
            elif isinstance(column, CategoryColumn):
                words[name] = tuple(column.categories or ())
        self.found_ = ByColumns([_complete(branch, ends, words) for branch in self._branches])
        return self

    def apply(self, chunk: Table) -> np.ndarray:
        self._require("found_")
        return self.stage.apply(chunk)

    def transform(self, rows: Any) -> Any:
        self._require("found_")
        return self.stage.transform(rows)

    def example(self, d: int) -> Table:
        return self.stage.example(d)

    def note(self) -> str:
        rare = "; a category that one row alone has is seen with the probability that is counted"
        return (
            "columns of the table are mapped row by row; bounds or categories of "
            f"{len([*self.bounds, *self.categories])} of them are found in the rows, through noise"
            + rare
            * bool(self.categories)
        )

    def assumption(self) -> str:
        return self.stage.assumption()

    def parameters(self) -> dict[str, Any]:
        found = getattr(self, "found_", None)
        told = {**super().parameters(), **ByColumns(self.branches).parameters()}
        return told if found is None else {**told, "found": found.parameters()["branches"]}

    def arrays(self) -> dict[str, np.ndarray]:
        return self.stage.arrays()

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        settings = dict(parameters)
        found = settings.pop("found")
        stage = cls(**settings)
        stage.found_ = ByColumns(found)
        return stage


def _complete(
    branch: Branch,
    ends: Mapping[str, tuple[float, float]],
    words: Mapping[str, tuple[str, ...]],
) -> Branch:
    """A branch with bounds and categories in place of those that stand in for them."""
    load = branch.load
    if isinstance(load, Numbers):
        pairs = [
            ends.get(name, pair)
            for name, pair in zip(load.columns, zip(load.low, load.high, strict=True), strict=True)
        ]
        low, high = (tuple(pair[i] for pair in pairs) for i in (0, 1))
        return replace(branch, load=replace(load, low=low, high=high))
    if isinstance(load, Levels) and any(name in words for name in load.columns):
        levels = [
            words.get(name, own) for name, own in zip(load.columns, load.categories, strict=True)
        ]
        missing = [
            len(words[name]) if name in words else place
            for name, place in zip(load.columns, load.missing, strict=True)
        ]
        dropped = [
            None if name in words and not words[name] else place  # the level of gaps stays
            for name, place in zip(load.columns, load.dropped, strict=True)
        ]
        whole = Levels(load.columns, tuple(levels), tuple(missing), tuple(dropped))
        return replace(branch, load=whole)
    return branch
