"""What a table is like, without noise or through it, and a page of plots."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from tacit import diagnostics
from tacit.cli.tasks.arrays import is_features, refuse, targets_of
from tacit.cli.tasks.arrays import unit_rows as unit_features
from tacit.cli.tasks.outputs import BASE, CERTIFICATE, PathLike, output_in, paid_for, written
from tacit.cli.tasks.tables import identifiers_of, labels_of, read, unit_rows, with_target
from tacit.data.rows import Rows
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.diagnostics import Inspection, PrivateInspection
from tacit.diagnostics.advice import TRAIN_DELTA, TRAIN_EPSILON
from tacit.diagnostics.page import render_page
from tacit.exceptions import InputError

PAGE = "inspection.html"
MOST_TOLD = 10  # rows of a person that are told apart
BY_ROW = "The schema says whose rows are whose, by {!r}; rows are counted unless --person says so"


def inspect(
    table: Table | PathLike,
    schema: Schema | PathLike | None = None,
    *,
    target: str | None = None,
    out: PathLike | None = None,
    force: bool = False,
    **options: Any,
) -> Inspection:
    """Look at a table without noise, and write a page of plots into ``out``.

    Features (``.npz``) have no schema. ``options`` go to `tacit.diagnostics.inspect` as they are.
    """
    known = None if is_features(table) else with_target(_known(schema), target)
    with output_in(out, (PAGE,), force) as output:
        if known is None:
            rows, found_labels = _features(table, schema, target)
            labels, bounds = targets_of(found_labels, str(table), number=False), None
        else:
            given = read(table)
            rows, labels = unit_rows(given, known), labels_of(given, known, known.classes)
            bounds = known.target_bounds
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
    schema: Schema | PathLike | None = None,
    *,
    target: str | None = None,
    out: PathLike | None = None,
    train: tuple[float | None, float | None] = (None, None),
    force: bool = False,
    person: str | None = None,
    rows_per_person: int | None = None,
    **options: Any,
) -> PrivateInspection:
    """Look at a table through noise; ``out`` gets a page and the certificate.

    ``options`` go to `tacit.diagnostics.inspect_privately` as they are; ``train`` is the budget of
    the training to come. The target is not looked at. ``person`` is the column that says whose a
    row is, of whom as many rows are told apart as ``rows_per_person``; it may be the identifier
    of the schema.
    """
    known = None if is_features(table) else _known(schema)
    if known is not None and not (known.target is None and target is None):
        known = with_target(known, target)
    with output_in(out, (PAGE, CERTIFICATE), force, options) as output:
        if output is not None:
            output.set_aside({PAGE: 8 * BASE, CERTIFICATE: BASE})
        epsilon, delta = train
        budget = (
            TRAIN_EPSILON if epsilon is None else epsilon,
            TRAIN_DELTA if delta is None else delta,
        )
        if known is None:
            if person is not None or rows_per_person is not None:
                raise InputError("people are told apart by a column of a table, and these are not")
            rows = _features(table, schema, target)[0]
        else:
            given = read(table)
            if rows_per_person is not None:
                person = known.identifier if person is None else person
                if person is None:
                    raise InputError("which column says whose a row is? Name it as person")
            if person is not None:
                columns = {k: v for k, v in known.columns.items() if k != person}
                known = replace(known, columns=columns, identifier=person)
                options["groups"] = identifiers_of(given, known)
                most = MOST_TOLD if rows_per_person is None else rows_per_person
                options |= {"max_rows_per_group": most, "identifier": person}
            elif known.identifier is not None:
                logging.getLogger("tacit").warning(BY_ROW.format(known.identifier))
            rows = unit_rows(given, known)
        found = diagnostics.inspect_privately(rows, train=budget, **options)
        if output is not None:
            with paid_for(output, {CERTIFICATE: written(found.certificate)}) as files:
                files[PAGE] = render_page(found, title="Inspection through noise").encode()
    return found


def _known(schema: Schema | PathLike | None) -> Schema:
    if schema is None:
        raise InputError("a table needs its schema: see tacit schema")
    return Schema.of(schema)


def _features(table: Any, schema: Any, target: str | None) -> tuple[Rows, np.ndarray | None]:
    refuse(table, schema=schema)
    return unit_features(table, labels=target)
