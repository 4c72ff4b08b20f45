"""A model tested on a private table, through noise: figures, certificate and report, in files."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.cli.tasks import outputs
from tacit.cli.tasks.arrays import is_features, refuse, targets_of
from tacit.cli.tasks.outputs import PathLike
from tacit.cli.tasks.predict import open_model
from tacit.cli.tasks.tables import read
from tacit.data.schema import Schema, did_you_mean
from tacit.data.tables import Table
from tacit.diagnostics.picture import COLOURS, draw_curves, standing_alone
from tacit.exceptions import InputError, SchemaError
from tacit.features import load_features
from tacit.metrics import Evaluation
from tacit.metrics import evaluate as evaluate_model
from tacit.metrics.class_tables import MOST_CONFUSED
from tacit.report import render_html

FIGURES = "evaluation.json"
FILES = (FIGURES, outputs.CERTIFICATE, outputs.REPORT)
ROOM = 1 << 18  # bytes of figures and pictures of everybody, or of one group
PAIR = 256  # bytes of what is said of a pair of classes
LETTERS = "svg { font-family: system-ui, sans-serif; }"  # as on the page they stand in
MODEL = "this model"
EVEN = ([0.0, 1.0], [0.0, 1.0])


def evaluate(
    model: PathLike,
    table: PathLike,
    *,
    target: str | None = None,
    out: PathLike | None = None,
    by: str | None = None,
    person: str | None = None,
    force: bool = False,
    extractor: PathLike | None = None,
    decimal: str | None = None,
    **options: Any,
) -> Evaluation:
    """Test a model on the rows of a table, and write figures, certificate and report.

    ``target`` is the column that the model predicts; features need none, unless labels are in an
    array of another name. ``by``, such as ``sex=female,male``, names a column and public values of
    it; ``person`` the column that says whose rows are whose. ``options`` go to
    `tacit.metrics.evaluate` as they are.
    """
    with outputs.output_in(out, FILES, force, options) as output:
        estimator = open_model(model, extractor)
        if is_features(table):
            refuse(table, by=by, person=person, decimal=decimal)
            rows: Any = load_features(table, part="test", labels=target)
            truth = targets_of(rows.labels, table, number=not hasattr(estimator, "classes_"))
            _require_alike(truth, getattr(estimator, "classes_", truth), table)
        else:
            if (person is None) != (options.get("max_rows_per_group") is None):
                raise InputError("--person and --rows-per-person go together")
            known = getattr(estimator, "classes_", ())
            rows, truth, said = _of_table(
                table, decimal, target, known, groups=groups_of(by), person=person
            )
            _require_apart(estimator, target, person)
            options |= said
            require_known(_schema_of(estimator), groups_of(by))
        if output is not None:
            many = len(getattr(estimator, "classes_", ()))
            room = room_of(many, len(options.get("by_values", ())))
            output.set_aside(dict.fromkeys(FILES, room))
        found = evaluate_model(estimator, rows, truth, **options)
        assert found.certificate is not None
        if output is not None:
            figures = json.dumps(found.to_dict(), indent=1, ensure_ascii=False)
            certificate = outputs.written(found.certificate)
            tested = {FIGURES: f"{figures}\n".encode(), outputs.CERTIFICATE: certificate}
            with outputs.paid_for(output, tested) as files:
                files[outputs.REPORT] = render_html(
                    found.certificate.to_dict(), title="Test of a model", evaluation=shown(found)
                ).encode()
    return found


def _of_table(
    table: PathLike,
    decimal: str | None,
    target: str | None,
    classes: Sequence[Any],
    *,
    groups: Mapping[str, list[str]],
    person: str | None,
) -> tuple[Any, Any, dict[str, Any]]:
    """Rows and targets of a table, and what else it says of every row."""
    if target is None:
        raise InputError("which column does the model predict? Name it as target: --target")
    rows = read(table, decimal)
    for column in (target, *groups, *([person] if person else [])):
        if column not in rows.column_names:
            near = did_you_mean(column, rows.column_names)
            raise SchemaError(f"the table lacks the column {column!r:.80}{near}")
    if person in groups:
        raise InputError(f"{person!r:.80} says whose a row is, and identifiers are written nowhere")
    said: dict[str, Any] = {}
    for column, values in groups.items():
        said |= {"by": rows.texts(column), "by_values": values}
    if person is not None:
        said |= {"groups": rows.identifiers(person), "identifier": person}
    gone = [target] if person is None else [target, person]
    return rows.drop(gone), _truth(rows, target, classes), said


def _truth(rows: Table, target: str, classes: Sequence[Any]) -> np.ndarray:
    """Labels or numbers, every cell by itself: what the column is kept as depends on all cells."""
    if not len(classes):
        return rows.values(target)
    names = [label.item() if isinstance(label, np.generic) else label for label in classes]
    found = np.array([*names, None], dtype=object)
    return found.take(np.maximum(rows.match(target, names), -1))  # the last one is none of them


def _require_alike(labels: np.ndarray, classes: np.ndarray, path: PathLike) -> None:
    """Refuse words for numbers, and numbers for words: none is a class, and all would be paid for.

    It is the type of the array that tells, whatever its values are.
    """
    given, known = ("words" if a.dtype.kind in "UO" else "numbers" for a in (labels, classes))
    if given != known:
        raise InputError(f"the labels of {path} are {given}, and the model's classes are {known}")


def _require_apart(model: Any, *columns: str | None) -> None:
    """Refuse a target or an identifier that the model learned from."""
    for column in columns:
        if column in list(getattr(model, "feature_names_in_", ())):
            raise SchemaError(
                f"the model learned from the column {column!r:.80}: it is neither what the model "
                "predicts nor an identifier"
            )


def _schema_of(model: Any) -> Schema | None:
    """What a model knows of the columns of a table, declared or found."""
    first = next(iter(getattr(model, "stages_", ())), None)
    known = getattr(first, "schema_", getattr(first, "schema", None))
    return known if isinstance(known, Schema) else None


def require_known(schema: Schema | None, groups: Mapping[str, list[str]]) -> None:
    """Refuse groups none of which is a category that is known, and say which others are not.

    A name that is misspelt has nobody in it, and costs as much as any other.
    """
    for column, values in groups.items():
        declared = None if schema is None else schema.columns.get(column)
        listed = getattr(declared, "categories", None)
        if not isinstance(listed, Sequence) or isinstance(listed, str):
            continue
        known = list(map(str, listed))
        lost = [value for value in values if value not in known]
        if not lost:
            continue
        near = did_you_mean(lost[0], known)
        text = f"{lost[0]!r:.80} is no known category of {column!r:.80}{near}"
        if len(lost) == len(values):
            raise InputError(f"{text}, nor is any other of the groups")
        logging.getLogger("tacit").warning(f"{text}: it may be that nobody is in this group")


def groups_of(by: str | None) -> dict[str, list[str]]:
    """A column and its values: ``sex=female,male``."""
    if by is None:
        return {}
    column, equals, values = by.partition("=")
    listed = [value.strip() for value in values.split(",") if value.strip()]
    if not (equals and column.strip() and listed):
        raise InputError(
            f"{by!r:.80} names no groups: write a column and its public values, sex=female,male"
        )
    return {column.strip(): listed}


def room_of(classes: int, groups: int) -> int:
    """Bytes of the figures of a model of so many classes, and of its pictures, at most."""
    return (1 + groups) * (ROOM + PAIR * min(classes, MOST_CONFUSED) ** 2)


def shown(found: Evaluation) -> dict[str, Any]:
    """An evaluation as a report takes it: figures, and pictures of the curves."""
    return {**found.to_dict(), "pictures": pictures(found)}


def pictures(found: Evaluation) -> list[str]:
    """Curves as SVG: of this model and of every group, or of every class."""
    drawn: list[str] = []
    if "error" in found.curves:
        apart = {name: reading.curves["error"] for name, reading in found.groups.items()}
        drawn += _drawn(
            "Share of rows by size of error",
            {MODEL: found.curves["error"], **apart},
            "size of the error, at most",
        )
    elif found.curves:
        two = "roc" in found.curves
        sides = {MODEL: found.curves} if two else found.curves
        apart = {name: reading.curves for name, reading in found.groups.items()} if two else {}
        sides = {**sides, **apart}
        drawn += _drawn(
            "True positives over false positives",
            {name: side["roc"] for name, side in sides.items()} | {"chance": EVEN},
            "share of the others that is chosen",
        )
        share = found["prevalence"].value if two else None
        chance = {} if share is None else {"chance": ([0.0, 1.0], [share, share])}
        drawn += _drawn(
            "Precision over recall",
            {name: side["precision_recall"] for name, side in sides.items()} | chance,
            "share of the class that is found",
        )
    for title, shown in _calibrations(found):
        drawn += _drawn(title, shown | {"perfect": EVEN}, "predicted probability")
    return drawn


def _calibrations(found: Evaluation) -> Iterator[tuple[str, dict[str, Any]]]:
    """Observed shares over predicted ones: with limits, and of groups, if there is one curve."""
    fields = {"observed": "value", "at least": "low", "at most": "high"}
    if len(found.calibration) == 1:
        (parts,) = found.calibration.values()
        yield "Observed over predicted", {name: _over(parts, f) for name, f in fields.items()}
        apart = {
            name: _over(next(iter(reading.calibration.values())))
            for name, reading in found.groups.items()
        }
        if apart:
            yield "Observed over predicted, by group", apart
    elif found.calibration:
        classes = {name: _over(parts) for name, parts in found.calibration.items()}
        yield "Observed over predicted, by class", classes


def _over(parts: Sequence[Mapping[str, Any]], field: str = "value") -> tuple[list[float], Any]:
    """Middles of bins, and what was observed there."""
    return (
        [(part["low"] + part["high"]) / 2 for part in parts],
        [getattr(part["observed"], field) for part in parts],
    )


def _drawn(title: str, curves: Mapping[str, Any], across: str) -> list[str]:
    """One picture, as a file of its own; colours come again, and then lines are dashed."""
    again = list(curves)[COLOURS:]
    drawn = draw_curves(title, curves, across=across, dashed=again)
    return [standing_alone(drawn, LETTERS)]


def facts_of(found: Evaluation, out: PathLike | None) -> dict[str, Any]:
    """What the command prints as JSON."""
    claim = found.certificate
    assert claim is not None
    budget: Mapping[str, Any] = {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "neighbors": claim.neighbors,
        "releasable": claim.releasable,
    }
    return {**budget, **found.to_dict(), "out": None if out is None else str(Path(out))}
