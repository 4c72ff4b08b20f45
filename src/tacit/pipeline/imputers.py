"""Counterparts of SimpleImputer."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
from sklearn.impute import SimpleImputer

from tacit.pipeline.parts import Given, Option, Part, Place, refusal
from tacit.pipeline.refusals import REFUSED
from tacit.preprocessing import Bound, ClipNorm, FillGaps, NoiselessImpute, PrivateImpute, Stage

NOISY = "means are released with noise once, and fill gaps in training and prediction alike"
KEPT = "gaps in rows to predict take the middle of the public bounds, since what fills those of "
KEPT += "training rows is kept from everybody"


def imputer(name: str, step: SimpleImputer, given: Given) -> Part:
    if step.add_indicator:
        raise refusal(name, "add_indicator=True", REFUSED["MissingIndicator"])
    missing = step.missing_values
    if not (isinstance(missing, Real) and math.isnan(float(missing))):
        raise refusal(name, f"missing_values={missing!r}", "put NaN into missing values")
    few = f"at most {given.rows_with_gaps} rows have gaps"
    if step.strategy == "constant":
        return _constant(name, step, given)
    if step.strategy == "mean":
        return Part.of(
            name,
            Option("PrivateImpute", _private, NOISY),
            _plain("mean", given, f"a test that {few} is part of the plan", "rows_with_gaps"),
            _plain("shrunk-mean", given, "it needs no declaration"),
        )
    if step.strategy == "median":
        steady = f"that one row moves no median by more than {given.median_change or 0:g}"
        tested = f"a test that {few}, and {steady}, is part of the plan"
        means = "the counterpart fills means, not medians, which differ in skewed columns"
        return Part.of(
            name,
            Option("PrivateImpute", _private, f"{NOISY}; {means}"),
            _plain("median", given, tested, "rows_with_gaps", "median_change"),
        )
    advice = "use strategy='mean' or 'median', or 'constant' with a value"
    raise refusal(name, f"strategy={step.strategy!r}", advice)


def _private(place: Place) -> list[Stage]:
    # Noise of a mean, √2·R·z/n, within a tenth of R/√d, what a value measures on average.
    noise = 0.1 / math.sqrt(place.d) * place.n / math.sqrt(2)
    return [PrivateImpute(share=place.share("the means", noise))]


def _plain(strategy: str, given: Given, note: str, *declared: str) -> Option:
    """NoiselessImpute by a strategy that rests on declarations."""

    def build(place: Place) -> list[Stage]:
        known = {key: getattr(given, key) for key in declared}
        return [NoiselessImpute(strategy, at_prediction=0.0, **known)]

    title, needs = f"NoiselessImpute({strategy!r})", given.lacks(*declared)
    return Option(title, build, f"{note}; {KEPT}", noiseless=True, needs=needs)


def _constant(name: str, step: SimpleImputer, given: Given) -> Part:
    value = 0.0 if step.fill_value is None else step.fill_value
    if isinstance(value, bool) or not (isinstance(value, Real) and math.isfinite(float(value))):
        raise refusal(name, f"fill_value={value!r}", "pass a finite number")
    if scaled := [kind for kind in given.before if kind in ("MinMaxScaler", "MaxAbsScaler")]:
        raise refusal(name, "a constant in the units of another step", f"put it before {scaled[0]}")
    value, said = float(value), "a constant costs nothing"
    if isinstance(given.bounds, Bound):
        low, high = (np.asarray(v, dtype=float) for v in (given.bounds.low, given.bounds.high))
        inside = np.clip(value, low, high)
        places = np.unique((inside - (low / 2 + high / 2)) / (high / 2 - low / 2))
        if np.ptp(places) > 1e-12:
            raise refusal(
                name,
                f"fill_value={value:g} with different bounds for the columns",
                "it would be another constant in every column once they are mapped to [-1, 1]; "
                "fill the gaps yourself, row by row, which costs nothing, or use strategy='mean'",
            )
        said = f"{value:g} lies at {places[0]:.4g} once columns are mapped to [-1, 1]; {said}"
        value = float(places[0])

    def build(place: Place) -> list[Stage]:
        # The ClipNorm undoes the loose bound of filled rows.
        return [FillGaps(value), *([ClipNorm(place.bound)] if value else [])]

    return Part.of(name, Option("FillGaps", build, said))
