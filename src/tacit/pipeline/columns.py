"""Counterparts of ColumnTransformer: free maps of columns, and private stages on their blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    SplineTransformer,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from tacit.data.columns import default_column
from tacit.data.schema import Schema
from tacit.exceptions import InputError, MissingBound
from tacit.pipeline.encoders import encoder, is_missing
from tacit.pipeline.expansions import EXPANSIONS, expansion
from tacit.pipeline.frames import Frame
from tacit.pipeline.imputers import imputer
from tacit.pipeline.parts import Given, Option, Part, Place, refusal
from tacit.pipeline.projections import components, random_projection
from tacit.pipeline.refusals import REFUSED, UNKNOWN
from tacit.pipeline.scalers import standard
from tacit.plan.plan import share_of
from tacit.preprocessing import (
    ByColumns,
    ClipNorm,
    PrivateBlocks,
    PrivateByColumns,
    PrivateEncode,
    Stage,
)
from tacit.preprocessing.base import PrivateStage
from tacit.preprocessing.by_columns import Branch
from tacit.preprocessing.column_maps import ColumnMap, Fill, Load, Numbers, RowFunction, Splines

ENCODERS = (OneHotEncoder, OrdinalEncoder)
FREE_SCALERS = (MinMaxScaler, MaxAbsScaler)
#: Steps whose counterpart looks at the block through noise, or at no row at all.
BLOCKED: dict[type, Callable[[str, Any, Given], Part]] = {
    SimpleImputer: imputer,
    StandardScaler: standard,
    PCA: components,
    TruncatedSVD: components,
    GaussianRandomProjection: random_projection,
    SparseRandomProjection: random_projection,
}
#: Maps whose constants were made of the bounds in front of them.
FIXED = (RowFunction, Splines)
KNOWN = (*ENCODERS, *FREE_SCALERS, *BLOCKED, *EXPANSIONS, FunctionTransformer)


@dataclass
class _Reading:
    """One transformer as far as it has been read."""

    title: str
    load: Load
    maps: list[ColumnMap] = field(default_factory=list)
    private: list[Option] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gaps: bool = False
    bounds: list[str] = field(default_factory=list)  # columns whose bounds are to be found
    categories: list[str] = field(default_factory=list)

    @property
    def branch(self) -> Branch:
        return Branch(self.load, tuple(self.maps), self.gaps)


def check_columns(title: str, step: ColumnTransformer) -> None:
    """Refuse what has no counterpart, whatever the columns are."""
    if step.transformer_weights is not None:
        raise refusal(title, "transformer_weights", "leave them out: scales are bounds= here")
    for name, transformer, _ in _listed(step):
        for inner, each in _steps(f"{title}.{name}", transformer):
            if type(each) not in KNOWN:
                raise refusal(inner, "", REFUSED.get(type(each).__name__, UNKNOWN))


def read_columns(title: str, step: ColumnTransformer, given: Given) -> tuple[Stage, Part]:
    """The stage that stands first, free if all is declared, and the part that follows it."""
    check_columns(title, step)
    frame = given.frame
    assert frame is not None
    readings: list[_Reading] = []
    taken: set[str] = set()
    for name, transformer, columns in _listed(step):
        rest = columns is _REST
        picked = (
            [n for n in frame.names if n not in taken]
            if rest
            else frame.pick(f"{title}.{name}", columns)
        )
        taken |= set(picked)
        if picked and transformer != "drop":
            steps = list(_steps(f"{title}.{name}", transformer))
            readings.append(_read(f"{title}.{name}", steps, picked, given, frame))
    if not readings:
        raise InputError(f"{title} keeps no column")
    # Blocks are found by their place, so what has no width yet comes last.
    fixed = [reading for reading in readings if not reading.categories]
    readings = [*fixed, *(reading for reading in readings if reading.categories)]
    stage = _first(readings, given)

    def build(place: Place) -> list[Stage]:
        blocks: list[Any] = [(r.branch.end.width, _chain(r, place)) for r in fixed]
        shares = [s.share for _, chain in blocks for s in chain if isinstance(s, PrivateStage)]
        if not shares:
            return []
        if rest := readings[len(fixed) :]:
            radius = math.sqrt(math.fsum(r.branch.square for r in rest))
            blocks.append((None, [ClipNorm(radius * (1 + 1e-9))]))
        return [PrivateBlocks(share=math.hypot(*shares), blocks=blocks)]

    told = [f"{r.title}: {'; '.join(r.notes)}" for r in readings if r.notes]
    said = ". ".join(["columns are mapped row by row by public constants: no cost", *told])
    return stage, Part.of(title, Option("PrivateBlocks", build, said))


def _first(readings: Sequence[_Reading], given: Given) -> Stage:
    """The stage that maps columns; private if something is to be found, or worth being narrowed."""
    branches = [reading.branch for reading in readings]
    categories = list(dict.fromkeys(name for r in readings for name in r.categories))
    missing = list(dict.fromkeys(name for r in readings for name in r.bounds))
    declared = {
        name: {"low": low, "high": high}
        for r in readings
        if isinstance(r.load, Numbers) and not any(isinstance(m, FIXED) for m in r.maps)
        for name, low, high in zip(r.load.columns, r.load.low, r.load.high, strict=True)
    }
    held = {name for r in readings for name in r.load.columns if name not in declared}
    within = [name for name in declared if name not in {*missing, *held, *categories}]
    columns = {name: default_column("number", **declared[name]) for name in within}
    columns |= {name: default_column("number") for name in missing}
    columns |= {name: default_column("category") for name in categories}
    if not columns:
        return ByColumns(branches)
    facts: dict[str, Any] = {"columns": len(columns), "size": given.size, "mu": given.mu}
    ((chosen,), _) = PrivateEncode(Schema(columns), shapes=False).expand(
        (), **facts, intercept=True
    )
    if not isinstance(chosen, PrivateEncode):
        return ByColumns(branches)
    within = within if chosen.narrow is True else []
    return PrivateByColumns(
        share=share_of(chosen),
        branches=branches,
        bounds=[*within, *missing],
        categories=categories,
        within=within,
    )


def _chain(reading: _Reading, place: Place) -> list[Stage]:
    """The stages on one block, each for the place where it stands."""
    if not reading.private:
        return []
    radius = math.sqrt(reading.branch.square) * (1 + 1e-9)
    chain: list[Stage] = [ClipNorm(radius)]  # changes nothing: it makes the block's bound certain
    here = replace(place, d=reading.branch.end.width, bound=radius, typical=radius)
    for option in reading.private:
        for stage in option.build(here):
            bound, typical = stage.bound(here.bound, here.d), stage.typical(here.typical, here.d)
            assert bound is not None and typical is not None
            here = replace(here, d=stage.width(here.d), bound=bound, typical=typical)
            chain.append(stage)
    return chain


_REST = object()  # all columns that no transformer takes


def _listed(step: ColumnTransformer) -> Iterator[tuple[str, Any, Any]]:
    yield from step.transformers
    yield "remainder", step.remainder, _REST


def _steps(title: str, transformer: Any) -> Iterator[tuple[str, Any]]:
    """The steps of a transformer, those of pipelines inside it one after the other."""
    if transformer is None or isinstance(transformer, str):
        if transformer not in ("passthrough", "drop", None):
            raise InputError(f"{title} is {transformer!r}, not a transformer")
    elif isinstance(transformer, Pipeline):
        for name, step in transformer.steps:
            yield from _steps(f"{title}.{name}", step)
    else:
        yield f"{type(transformer).__name__} ({title!r})", transformer


def _read(
    title: str, steps: Sequence[tuple[str, Any]], columns: list[str], given: Given, frame: Frame
) -> _Reading:
    at = next((i for i, (_, step) in enumerate(steps) if isinstance(step, ENCODERS)), None)
    if at is not None:
        load, notes = encoder(*steps[at], [step for _, step in steps[:at]], columns, given)
        reading = _Reading(title, load, notes=notes)
        if isinstance(steps[at][1].categories, str):
            reading.categories = [n for n in columns if n not in (given.categories or {})]
        steps = steps[at + 1 :]
    else:
        _require_numbers(title, columns, frame)
        pairs = frame.limits(given.declared, columns)
        low, high = zip(*[pair or (-1.0, 1.0) for pair in pairs], strict=True)
        reading = _Reading(title, Numbers(tuple(columns), low, high))
        reading.bounds = [name for name, pair in zip(columns, pairs, strict=True) if pair is None]
    expanding = [isinstance(step, (*EXPANSIONS, FunctionTransformer)) for _, step in steps]
    for i, (inner, step) in enumerate(steps):
        _add(reading, inner, step, given, frame, later=any(expanding[i + 1 :]))
    return reading


def _add(
    reading: _Reading, title: str, step: Any, given: Given, frame: Frame, *, later: bool
) -> None:
    """One more step of a transformer."""
    if isinstance(step, FREE_SCALERS):
        reading.notes.append("bounds= maps every column to [-1, 1] already")
    elif isinstance(step, SimpleImputer) and _constant(step):
        reading.maps.append(_fill(title, step))
    elif isinstance(step, (*EXPANSIONS, FunctionTransformer)):
        if reading.private:
            kind = reading.private[0].name
            raise refusal(title, f"a place behind {kind}", "put it in front of that")
        if reading.bounds and isinstance(step, SplineTransformer | FunctionTransformer):
            name = reading.bounds[0]
            raise MissingBound(f"{title} of column {name!r}", f"bounds={{{name!r}: (low, high)}}")
        reading.maps += expansion(title, step, reading.branch.end, given, frame)
    elif later and isinstance(step, SimpleImputer | StandardScaler):
        if isinstance(step, SimpleImputer) and step.strategy not in ("mean", "median"):
            raise refusal(
                title, f"strategy={step.strategy!r}", "use 'mean', 'median' or 'constant'"
            )
        what = "a gap has no weight" if isinstance(step, SimpleImputer) else "no scale is needed"
        reading.notes.append(f"{type(step).__name__} stands in front of a public expansion: {what}")
    elif reading.categories:
        raise refusal(
            title,
            "a place behind categories that are to be found",
            f"list them, categories={{{reading.categories[0]!r}: [...]}}",
        )
    elif type(step) in BLOCKED:
        reading.private.append(_blocked(reading, title, step, given))
    else:
        raise refusal(title, "", REFUSED.get(type(step).__name__, UNKNOWN))


def _blocked(reading: _Reading, title: str, step: Any, given: Given) -> Option:
    if isinstance(step, SimpleImputer):
        reading.gaps = True
        if step.add_indicator:
            reading.maps.append(Fill(None, mark=True))
            step = SimpleImputer(strategy=step.strategy)
    part = BLOCKED[type(step)](title, step, replace(given, public=None))
    option = next(option for option in part.options if not option.noiseless)
    reading.notes.append("; ".join(filter(None, [f"{option.name}: {option.note}", part.note])))
    return option


def _constant(step: SimpleImputer) -> bool:
    return bool(step.strategy == "constant")


def _fill(title: str, step: SimpleImputer) -> Fill:
    value = 0.0 if step.fill_value is None else step.fill_value
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise refusal(title, f"fill_value={value!r}", "pass a finite number, or an encoder behind")
    if not is_missing(step.missing_values):
        raise refusal(title, f"missing_values={step.missing_values!r}", "put NaN into them")
    return Fill(float(value), mark=bool(step.add_indicator))


def _require_numbers(title: str, columns: Sequence[str], frame: Frame) -> None:
    words = [name for name in columns if name in frame.text]
    if words:
        raise InputError(
            f"{title} takes column {words[0]!r} as it is, and its type holds words: add "
            f"OneHotEncoder(categories=[[...]]) for it, leave it out, or give it a type of numbers"
        )
