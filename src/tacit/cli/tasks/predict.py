"""Predictions for a table, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.cli.tasks.arrays import is_features, refuse
from tacit.cli.tasks.outputs import MODEL, PathLike
from tacit.cli.tasks.tables import open_table
from tacit.data.readers import write_predictions
from tacit.exceptions import FileError, InputError
from tacit.features import load_features
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
    key: str | None = None,
) -> int:
    """Write predictions for a table to a CSV or Parquet file, and say how many."""
    target = new_file(Path(out), force, (".csv", ".parquet"))
    estimator = open_model(model, extractor)
    takes_tables = any(stage.takes_tables for stage in estimator.stages_)
    rows = rows_for(Path(model), takes_tables, table, decimal, key)
    columns = {"prediction": estimator.predict(rows)}
    if proba:
        if not hasattr(estimator, "predict_proba"):
            raise InputError(f"a model with loss {estimator.loss!r} gives no probabilities")
        for name, column in zip(estimator.classes_, estimator.predict_proba(rows).T, strict=True):
            columns[f"probability_{name}"] = column
    write_predictions(target, columns)
    return len(columns["prediction"])


def rows_for(
    model: Path, takes_tables: bool, table: PathLike, decimal: str | None, key: str | None
) -> Any:
    """Rows of the kind that the model was fitted to."""
    if is_features(table):
        refuse(table, decimal=decimal)
        if takes_tables:
            raise InputError(f"{model} takes tables with named columns, and {table} holds features")
        return load_features(table, key=key)
    if not takes_tables:
        raise InputError(
            f"{model} takes features that are ready, not tables: give an .npz of them, or load the "
            "model in Python with tacit.load"
        )
    if key is not None:
        raise InputError("key is for features (.npz); this is a table")
    return open_table(table, decimal=decimal)


def open_model(model: PathLike, extractor: PathLike | None = None) -> Any:
    """A model, from the directory of a fit or from its file."""
    path = Path(model)
    return load(_model_in(path) if path.is_dir() else path, extractor=extractor)


def _model_in(directory: Path) -> Path:
    """The model of an output that is complete."""
    found, problems = find_output(directory)
    if problems or MODEL not in found:
        raise FileError("; ".join(problems) or f"{directory} holds no {MODEL}")
    return found[MODEL]
