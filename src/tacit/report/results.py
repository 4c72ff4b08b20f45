"""How good the model is, as far as results were given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.exceptions import InputError
from tacit.report.show import clean, number, percent, setting

ACCURACIES = {
    "test_accuracy": "This model, with privacy",
    "nonprivate_accuracy": "The same without privacy",
    "majority_accuracy": "Always the most common class",
}
FIGURES = {
    "test_r2": "R² (1 is perfect, 0 no better than the average)",
    "test_rmse": "Typical error (root mean square)",
    "test_rows": "Test rows",
}
NOT_COVERED = (
    "The certificate does not cover these figures. That is no matter if the test rows are "
    "public. If they are private, publishing the figures is a release of its own about the "
    "people in them."
)
NOT_COVERED_BASELINE = (
    "The figure without privacy also comes from a second model, trained on the private rows "
    "with no protection at all: it is for comparison, not for publication."
)


@dataclass(frozen=True)
class Bar:
    """One row of a picture: a label, and a part of one."""

    label: str
    value: float
    text: str


@dataclass(frozen=True)
class Scores:
    """Results in words; what was not given is empty."""

    bars: list[Bar]
    figures: list[tuple[str, str]]
    caveats: list[str]
    class_names: list[str]
    confusion: list[list[str]]
    features: list[tuple[str, str, float]]  # name, weight, and weight over the largest
    files: list[str]


def read_results(results: Mapping[str, Any]) -> Scores:
    """Results in words: every key is optional, unknown ones are ignored."""
    given = {key: value for key, value in results.items() if value is not None}
    bars = []
    for key, label in ACCURACIES.items():
        if key in given:
            if not 0 <= given[key] <= 1:
                raise InputError(f"{key} must lie between 0 and 1, not {given[key]!r}")
            bars.append(Bar(label, float(given[key]), percent(given[key])))
    figures = [(bar.label, bar.text) for bar in bars]
    figures += [(label, number(given[key])) for key, label in FIGURES.items() if key in given]
    names = [clean(name) for name in given.get("class_names", ())]
    confusion = [[setting(cell) for cell in row] for row in given.get("confusion", ())]
    if confusion and len(names) != len(confusion):
        names = [f"class {index}" for index in range(len(confusion))]
    caveats = [NOT_COVERED] if figures or confusion else []
    if "nonprivate_accuracy" in given:
        caveats.append(NOT_COVERED_BASELINE)
    top = [(clean(item["name"]), float(item["weight"])) for item in given.get("top_features", ())]
    largest = max((abs(weight) for _, weight in top), default=0.0) or 1.0
    features = [(name, number(weight, digits=3), weight / largest) for name, weight in top]
    files = [clean(name) for name in given.get("files", ())]
    return Scores(bars, figures, caveats, names, confusion, features, files)
