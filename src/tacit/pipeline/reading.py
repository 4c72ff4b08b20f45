"""The steps of a pipeline and their counterparts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from tacit.exceptions import InputError
from tacit.pipeline.columns import ENCODERS, check_columns, read_columns
from tacit.pipeline.expansions import EXPANSIONS
from tacit.pipeline.imputers import imputer
from tacit.pipeline.models import LAST
from tacit.pipeline.parts import Given, Last, Part, refusal
from tacit.pipeline.projections import components, random_projection
from tacit.pipeline.refusals import LINEAR, REFUSED, REFUSED_LAST, UNKNOWN
from tacit.pipeline.scalers import extremes, normalizer, standard
from tacit.preprocessing import Stage

SINGLE = (*ENCODERS, *EXPANSIONS, FunctionTransformer)
STEPS: dict[type, Callable[[str, Any, Given], Part]] = {
    SimpleImputer: imputer,
    StandardScaler: standard,
    MinMaxScaler: extremes,
    MaxAbsScaler: extremes,
    Normalizer: normalizer,
    PCA: components,
    TruncatedSVD: components,
    GaussianRandomProjection: random_projection,
    SparseRandomProjection: random_projection,
}


def read(pipeline: Any, given: Given) -> tuple[Stage | None, tuple[Part, ...], Last]:
    """The first stage and counterparts of all steps; a step without one is refused by name."""
    steps = _by_columns(list(_steps(pipeline)))
    if not steps:
        raise InputError(f"the pipeline has no steps; end it in {LINEAR}")
    parts: list[Part] = []
    before: tuple[str, ...] = ()
    for title, step in steps[:-1]:
        kind = type(step)
        if kind is ColumnTransformer:
            if parts:
                raise refusal(title, f"a place behind {before[0]}", "put it first")
            given, part = _columns(title, step, given)
            parts.append(part)
        elif kind not in STEPS:
            raise refusal(title, "", REFUSED.get(kind.__name__, UNKNOWN))
        elif kind is SimpleImputer and "ColumnTransformer" in before:
            parts.append(Part.nothing(title, "behind a ColumnTransformer no gap is left"))
        else:
            parts.append(STEPS[kind](title, step, replace(given, before=before)))
        before += (kind.__name__,)
    title, last = steps[-1]
    kind = type(last)
    if kind in (*STEPS, ColumnTransformer) or kind.__name__ in REFUSED:
        raise InputError(f"the pipeline ends in {title}; end it in {LINEAR}")
    if kind not in LAST:
        advice = REFUSED_LAST.get(kind.__name__, f"end the pipeline in {LINEAR}")
        raise refusal(title, "", advice)
    return given.bounds, tuple(parts), LAST[kind](title, last, given)


def by_columns(pipeline: Any) -> bool:
    """Whether a ColumnTransformer is among the steps, so that rows are those of a table."""
    steps = _by_columns(list(_steps(pipeline)))
    return any(isinstance(step, ColumnTransformer) for _, step in steps)


def _by_columns(steps: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Steps, those up to the last that takes single columns as one ColumnTransformer of all."""
    single = [isinstance(step, SINGLE) for _, step in steps]
    if not any(single) or any(isinstance(step, ColumnTransformer) for _, step in steps):
        return steps
    stop = len(single) - single[::-1].index(True)
    inner = Pipeline([(f"{i}", step) for i, (_, step) in enumerate(steps[:stop])])
    title = " and ".join(title for title, _ in steps[:stop])
    return [(title, ColumnTransformer([("all", inner, slice(None))])), *steps[stop:]]


def _columns(title: str, step: ColumnTransformer, given: Given) -> tuple[Given, Part]:
    """What is known behind a ColumnTransformer, and its counterpart once there are columns."""
    if given.public is not None:
        raise refusal(title, "public=", "public rows are not mapped by columns; leave them out")
    if given.frame is None:
        check_columns(title, step)
        return given, Part.nothing(title, "its columns are not there yet")
    stage, part = read_columns(title, step, given)
    return replace(given, bounds=stage), part


def last_step(pipeline: Any) -> Any:
    """The step that becomes the model; None if there are no steps."""
    steps = list(_steps(pipeline))
    return steps[-1][1] if steps else None


def _steps(pipeline: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Steps of a pipeline and of those inside it, with titles; without those skipped."""
    if isinstance(pipeline, type) or not hasattr(pipeline, "get_params"):
        raise InputError(f"privatize takes a pipeline or an estimator, not {pipeline!r:.80}")
    if not isinstance(pipeline, Pipeline):
        yield type(pipeline).__name__, pipeline
        return
    for name, step in pipeline.steps:
        if isinstance(step, Pipeline):
            yield from _steps(step, f"{prefix}{name}.")
        elif step is None or isinstance(step, str):
            if step not in (None, "passthrough"):
                raise InputError(f"step {name!r} of the pipeline is {step!r}, not a step")
        else:
            yield _titled(f"{prefix}{name}", step), step


def _titled(name: str, step: Any) -> str:
    """``StandardScaler ('scale')``, or the class alone where the name says no more."""
    kind = type(step).__name__
    return kind if name.lower() in ("", kind.lower()) else f"{kind} ({name!r})"
