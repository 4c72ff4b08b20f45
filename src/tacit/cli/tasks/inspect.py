"""What a table is like, without noise or through it, and a page of plots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tacit import diagnostics
from tacit.cli.tasks.outputs import BASE, CERTIFICATE, PathLike, output_in, written
from tacit.cli.tasks.tables import identifiers_of, labels_of, read, unit_rows, with_target
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.diagnostics import Inspection, PrivateInspection
from tacit.diagnostics.advice import TRAIN_DELTA, TRAIN_EPSILON
from tacit.diagnostics.page import render_page

PAGE = "inspection.html"


def inspect(
    table: Table | PathLike,
    schema: Schema | PathLike,
    *,
    target: str | None = None,
    out: PathLike | None = None,
    force: bool = False,
    **options: Any,
) -> Inspection:
    """Look at a table without noise, and write a page of plots into ``out``.

    ``options`` go to `tacit.diagnostics.inspect` as they are.
    """
    schema = with_target(Schema.of(schema), target)
    with output_in(out, (PAGE,), force) as output:
        given = read(table)
        rows, labels = unit_rows(given, schema), labels_of(given, schema, schema.classes)
        bounds = schema.target_bounds
        if bounds is not None:  # numbers between -1 and 1, as a regressor has them
            middle, half = sum(bounds) / 2, (bounds[1] - bounds[0]) / 2
            labels = np.clip((labels - middle) / half, -1.0, 1.0)
        found = diagnostics.inspect(
            rows, labels, regression=bounds is not None, unit=False, **options
        )
        found = replace(found, unit=True)
        if output is not None:
            output.commit({PAGE: render_page(found, title="Inspection").encode()})
    return found


def inspect_privately(
    table: Table | PathLike,
    schema: Schema | PathLike,
    *,
    target: str | None = None,
    out: PathLike | None = None,
    train: tuple[float | None, float | None] = (None, None),
    force: bool = False,
    person: str | None = None,
    rows_per_person: int = 10,
    **options: Any,
) -> PrivateInspection:
    """Look at a table through noise; ``out`` gets a page and the certificate.

    ``options`` go to `tacit.diagnostics.inspect_privately` as they are; ``train`` is the budget of
    the training to come. The target is not looked at. ``person`` is the column that says whose a
    row is, of whom as many rows are told apart as ``rows_per_person``.
    """
    schema = Schema.of(schema)
    schema = schema if schema.target is None and target is None else with_target(schema, target)
    with output_in(out, (PAGE, CERTIFICATE), force, options) as output:
        if output is not None:
            output.set_aside({PAGE: 8 * BASE, CERTIFICATE: BASE})
        epsilon, delta = train
        budget = (
            TRAIN_EPSILON if epsilon is None else epsilon,
            TRAIN_DELTA if delta is None else delta,
        )
        given = read(table)
        if person is not None:
            columns = {k: v for k, v in schema.columns.items() if k != person}
            schema = replace(schema, columns=columns, identifier=person)
            options["groups"] = identifiers_of(given, schema)
            options |= {"max_rows_per_group": rows_per_person, "identifier": person}
        rows = unit_rows(given, schema)
        found = diagnostics.inspect_privately(rows, train=budget, **options)
        if output is not None:
            page = render_page(found, title="Inspection through noise").encode()
            output.commit({PAGE: page, CERTIFICATE: written(found.certificate)})
    return found
