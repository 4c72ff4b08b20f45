"""A model tested on a private table, through noise: figures, certificate and report, in files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.cli.tasks import outputs
from tacit.cli.tasks.arrays import is_features, refuse, targets_of
from tacit.cli.tasks.outputs import PathLike
from tacit.cli.tasks.predict import open_model
from tacit.cli.tasks.tables import read
from tacit.data.schema import did_you_mean
from tacit.diagnostics.picture import draw_curves, standing_alone
from tacit.exceptions import InputError, SchemaError
from tacit.features import load_features
from tacit.metrics import Evaluation
from tacit.metrics import evaluate as evaluate_model
from tacit.report import render_html

FIGURES = "evaluation.json"
FILES = (FIGURES, outputs.CERTIFICATE, outputs.REPORT)
ROOM = 1 << 20  # bytes of figures and pictures


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
        else:
            rows, truth, said = _of_table(table, decimal, target, groups_of(by), person)
            options |= said
        if output is not None:
            output.set_aside(dict.fromkeys(FILES, ROOM))
        found = evaluate_model(estimator, rows, truth, **options)
        assert found.certificate is not None
        if output is not None:
            page = render_html(
                found.certificate.to_dict(), title="Test of a model", evaluation=shown(found)
            )
            figures = json.dumps(found.to_dict(), indent=1, ensure_ascii=False)
            contents = (f"{figures}\n".encode(), outputs.written(found.certificate), page.encode())
            output.commit(dict(zip(FILES, contents, strict=True)))
    return found


def _of_table(
    table: PathLike,
    decimal: str | None,
    target: str | None,
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
    said: dict[str, Any] = {}
    for column, values in groups.items():
        said |= {"by": rows.texts(column), "by_values": values}
    if person is not None:
        said |= {"groups": rows.column(person), "identifier": person}
    gone = [target] if person is None else [target, person]
    return rows.drop(gone), rows.column(target), said


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


def shown(found: Evaluation) -> dict[str, Any]:
    """An evaluation as a report takes it: figures, and pictures of the curves."""
    return {**found.to_dict(), "pictures": pictures(found)}


def pictures(found: Evaluation) -> list[str]:
    """Curves as SVG."""
    drawn = []
    if "roc" in found.curves:
        chance = ([0.0, 1.0], [0.0, 1.0])
        drawn.append(
            draw_curves(
                "True positives over false positives",
                {"this model": found.curves["roc"], "chance": chance},
                across="share of the others that is chosen",
            )
        )
        recall, precision = found.curves["precision_recall"]
        share = found["prevalence"].value
        drawn.append(
            draw_curves(
                "Precision over recall",
                {"this model": (recall, precision), "chance": ([0.0, 1.0], [share, share])},
                across="share of the class that is found",
            )
        )
    if found.calibration:
        middle = [(part["low"] + part["high"]) / 2 for part in found.calibration]
        curves: dict[str, Any] = {
            name: (middle, [getattr(part["observed"], field) for part in found.calibration])
            for name, field in (("observed", "value"), ("at least", "low"), ("at most", "high"))
        }
        curves["perfect"] = ([0.0, 1.0], [0.0, 1.0])
        drawn.append(draw_curves("Observed over predicted", curves, across="predicted"))
    if "error" in found.curves:
        drawn.append(
            draw_curves(
                "Share of rows by size of error",
                {"this model": found.curves["error"]},
                across="size of the error, at most",
            )
        )
    return [standing_alone(svg) for svg in drawn]


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
