"""The steps of a pipeline and their counterparts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from tacit.exceptions import InputError
from tacit.pipeline.imputers import imputer
from tacit.pipeline.models import LAST
from tacit.pipeline.parts import Given, Last, Part, refusal
from tacit.pipeline.projections import components, random_projection
from tacit.pipeline.refusals import LINEAR, REFUSED, REFUSED_LAST, UNKNOWN
from tacit.pipeline.scalers import extremes, normalizer, standard

__all__ = ["last_step", "read"]

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


def read(pipeline: Any, given: Given) -> tuple[tuple[Part, ...], Last]:
    """Counterparts of all steps; a step without one is refused by name."""
    steps = list(_steps(pipeline))
    if not steps:
        raise InputError(f"the pipeline has no steps; end it in {LINEAR}")
    parts: list[Part] = []
    before: tuple[str, ...] = ()
    for title, step in steps[:-1]:
        kind = type(step)
        if kind not in STEPS:
            raise refusal(title, "", REFUSED.get(kind.__name__, UNKNOWN))
        parts.append(STEPS[kind](title, step, replace(given, before=before)))
        before += (kind.__name__,)
    title, last = steps[-1]
    kind = type(last)
    if kind in STEPS or kind.__name__ in REFUSED:
        raise InputError(f"the pipeline ends in {title}; end it in {LINEAR}")
    if kind not in LAST:
        advice = REFUSED_LAST.get(kind.__name__, f"end the pipeline in {LINEAR}")
        raise refusal(title, "", advice)
    return tuple(parts), LAST[kind](title, last, given)


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
