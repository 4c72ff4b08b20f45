"""Predictions for a table, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.cli.tasks.outputs import MODEL, PathLike
from tacit.cli.tasks.tables import open_table
from tacit.data.readers import write_predictions
from tacit.exceptions import FileError, InputError
from tacit.files import find_output, new_file
from tacit.persistence import load


def predict(
    model: PathLike,
    table: PathLike,
    out: PathLike,
    *,
    proba: bool = False,
    force: bool = False,
    extractor: PathLike | None = None,
    decimal: str | None = None,
) -> int:
    """Write predictions for a table to a CSV or Parquet file, and say how many."""
    target = new_file(Path(out), force, (".csv", ".parquet"))
    estimator = open_model(model, extractor)
    rows = open_table(table, decimal=decimal)
    columns = {"prediction": estimator.predict(rows)}
    if proba:
        if not hasattr(estimator, "predict_proba"):
            raise InputError(f"a model with loss {estimator.loss!r} gives no probabilities")
        for name, column in zip(estimator.classes_, estimator.predict_proba(rows).T, strict=True):
            columns[f"probability_{name}"] = column
    write_predictions(target, columns)
    return rows.n


def open_model(model: PathLike, extractor: PathLike | None = None) -> Any:
    """A model of tables, from the directory of a fit or from its file."""
    path = Path(model)
    estimator = load(_model_in(path) if path.is_dir() else path, extractor=extractor)
    if not any(stage.takes_tables for stage in estimator.stages_):
        raise InputError(f"{path} takes arrays, not tables; load it in Python with tacit.load")
    return estimator


def _model_in(directory: Path) -> Path:
    """The model of an output that is complete."""
    found, problems = find_output(directory)
    if problems or MODEL not in found:
        raise FileError("; ".join(problems) or f"{directory} holds no {MODEL}")
    return found[MODEL]
