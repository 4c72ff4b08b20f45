"""The geometric median of a table's rows, in the units of the table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.cli.tasks.outputs import BASE, CERTIFICATE, PathLike, output_in, written
from tacit.cli.tasks.tables import features_of, read
from tacit.data.schema import NumberColumn, Schema
from tacit.data.tables import Table
from tacit.exceptions import InputError
from tacit.preprocessing import Encode
from tacit.privacy.certificate import Certificate
from tacit.research.median import DPGeometricMedian

MEDIAN = "median.json"


@dataclass(frozen=True)
class Middle:
    """The median of a table's rows, in the units of the table.

    Attributes
    ----------
    location : mapping of str to float
        Numbers in their own units; for a category, how near the median is to it.
    certificate : Certificate
    weights : mapping of str to float
        Of columns that do not weigh 1.
    """

    location: Mapping[str, float]
    certificate: Certificate
    weights: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        claim = self.certificate
        facts = {"epsilon": claim.epsilon, "delta": claim.delta, "neighbors": claim.neighbors}
        weights = {"weights": dict(self.weights)} if self.weights else {}
        location = {"location": dict(self.location)}
        return {**facts, "releasable": claim.releasable, **weights, **location}


def median(
    table: Table | PathLike,
    schema: Schema | PathLike,
    *,
    out: PathLike,
    epsilon: float,
    delta: float,
    weights: Mapping[str, float] | None = None,
    force: bool = False,
    **options: Any,
) -> Middle:
    """Find the geometric median of a table's rows; ``out`` gets it, and its certificate.

    ``weights`` are of the schema's columns by name, each that of all features that its column
    becomes, and 1 for columns that are not named. ``options`` go to `DPGeometricMedian` as they
    are. The target is not looked at.
    """
    encode = Encode(Schema.of(schema))
    if weights:
        options["weights"] = weights_of(encode.schema, weights)
    if encode.makes_gaps:
        raise InputError("the schema says missing: gap; a median needs another way to fill gaps")
    with output_in(out, (MEDIAN, CERTIFICATE), force, options) as output:
        output.set_aside(
            {MEDIAN: 2 * len(json.dumps(encode.schema.to_dict())) + BASE, CERTIFICATE: BASE}
        )
        features = features_of(read(table), encode.schema)
        rows = encode.fit(features).transform(features)
        # The schema bounds the norm of every row, whatever the table holds.
        found = DPGeometricMedian(epsilon, delta, radius=encode.bound(), **options).fit(rows)
        location = _decoded(encode.schema, found.location_)
        middle = Middle(location, found.certificate_, weights or {})
        text = json.dumps(middle.to_dict(), indent=2, allow_nan=False).encode() + b"\n"
        output.commit({MEDIAN: text, CERTIFICATE: written(found.certificate_)})
    return middle


def weights_of(schema: Schema, weights: Mapping[str, float]) -> list[float]:
    """Weights of features, by those of the columns that they come from."""
    unknown = [name for name in weights if name not in schema.columns]
    if unknown:
        raise InputError(
            f"there is no column {unknown[0]!r} to weight; the schema has "
            f"{', '.join(schema.columns)}"
        )
    for name, weight in weights.items():
        if not (weight > 0 and math.isfinite(weight)):
            raise InputError(f"the weight of {name!r} is {weight:g}; it must be a positive number")
    return [
        float(weights.get(name, 1.0))
        for name, column in schema.columns.items()
        for _ in column.feature_names(name)
    ]


def _decoded(schema: Schema, location: np.ndarray) -> dict[str, float]:
    """Encoded values by the names of their columns, numbers in their own units."""
    values, found = iter(location.tolist()), {}
    for name, column in schema.columns.items():
        for i, part in enumerate(column.feature_names(name)):
            value = next(values)
            if isinstance(column, NumberColumn) and i == 0:
                low, high = column.ends
                span = high - low
                if column.scale == "log":
                    value = math.expm1(min(max(value, 0.0), 1.0) * math.log1p(span))
                else:
                    value = min(max((value + 1) / 2, 0.0), 1.0) * span
                value += low
            found[part] = value
    return found
