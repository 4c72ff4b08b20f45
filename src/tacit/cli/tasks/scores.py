"""How a model does on rows to test on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.cli.tasks.plan import Estimator
from tacit.cli.tasks.tables import features_of, labels_of
from tacit.data.rows import as_rows
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.linear_model import DPLinearRegressor
from tacit.preprocessing import Encode, FillGaps, NoiselessImpute, Stage


def rows_to_test_on(
    test: Table,
    schema: Schema,
    classes: Sequence[Any] | None,
    stages: Sequence[Stage],
    *,
    number: bool = False,
) -> tuple[Table, np.ndarray]:
    """Rows and labels to test on; what is wrong with them shows before budget is spent."""
    rows, truth = features_of(test, schema), labels_of(test, schema, classes, number=number)
    if schema.private:  # every value has its place, once it is known which there are
        return rows, truth
    for _, chunk in Encode(schema).fit(rows).transform(as_rows(rows)).chunks():
        for stage in stages:
            if isinstance(stage, NoiselessImpute):
                FillGaps(stage.at_prediction).apply(chunk)
    return rows, truth


def score(estimator: Estimator, test: Any, truth: np.ndarray) -> dict[str, Any]:
    """Results for the report; they read the test rows and nothing else."""
    guess = estimator.predict(test)
    if isinstance(estimator, DPLinearRegressor):
        error, variance = float(((truth - guess) ** 2).mean()), float(truth.var())
        r2 = {"test_r2": 1 - error / variance} if variance else {}
        return {"task": "regression", "test_rows": len(truth), **r2, "test_rmse": error**0.5}
    classes = estimator.classes_
    confusion = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(confusion, (np.searchsorted(classes, truth), np.searchsorted(classes, guess)), 1)
    return {
        "task": "classification",
        "test_rows": len(truth),
        "test_accuracy": float(confusion.trace() / len(truth)),
        "majority_accuracy": float(confusion.sum(axis=1).max() / len(truth)),
        "class_names": [str(name) for name in classes],
        "confusion": confusion.tolist(),
    }


def nonprivate_accuracy(
    encode: Stage, rows: Table, labels: np.ndarray, test: Table, truth: np.ndarray
) -> float:
    """What a model without privacy gets right: for rows that are public anyway."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(solver="newton-cholesky").fit(encode.transform(rows), labels)
    return float(model.score(encode.transform(test), truth))
