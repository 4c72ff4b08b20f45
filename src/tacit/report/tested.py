"""How good the model is, as a test through noise found it: figures with their intervals."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.exceptions import InputError
from tacit.report.show import clean, percent

FIGURES = {
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced accuracy",
    "precision": "Precision",
    "recall": "Recall",
    "specificity": "Specificity",
    "f1": "F1",
    "roc_auc": "Area under the ROC curve",
    "average_precision": "Average precision",
    "brier_score": "Brier score",
    "log_loss": "Log loss, capped",
    "prevalence": "Share of the second class",
    "r2": "R²",
    "rmse": "Root mean square error",
    "mae": "Mean absolute error",
    "mean_error": "Mean error",
    "median_error": "Median size of errors",
    "error_90": "Nine in ten errors up to",
}
OF_A_CLASS = "Share of the class"
MOST_SHOWN, MOST_WITH_LIMITS = 20, 4  # classes in a table of all pairs
MAJORITY = {
    True: "It is right more often than always saying the most common class would be.",
    False: "It is right less often than always saying the most common class would be.",
    None: "Whether it is better than always saying the most common class cannot be told.",
}


@dataclass(frozen=True)
class Grid:
    """A table: a caption, heads of columns, and rows that begin with their own."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Tested:
    """An evaluation in words."""

    confidence: str
    grids: list[Grid]
    remarks: list[str]
    pictures: list[str]  # SVG, in base 64


def read_evaluation(evaluation: Mapping[str, Any]) -> Tested:
    """An evaluation, as `Evaluation.to_dict` gives it, in words.

    Parameters
    ----------
    evaluation : mapping
        With ``pictures``, a list of SVG texts, where there are any.

    Returns
    -------
    Tested
        Tables, remarks and pictures.

    Raises
    ------
    InputError
        If it is not what an evaluation gives.

    Examples
    --------
    >>> figure = {"value": 0.85, "low": 0.84, "high": 0.86}
    >>> found = read_evaluation({"confidence": 0.95, "figures": {"accuracy": figure}})
    >>> found.grids[0].rows
    [['Accuracy', '0.850', '0.840 to 0.860']]
    """
    try:
        return _read(evaluation)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"this is not an evaluation: {error!s:.200}") from error


def _read(evaluation: Mapping[str, Any]) -> Tested:
    sure = percent(float(evaluation["confidence"]))
    figures = [[label_of(name), *_shown(each)] for name, each in evaluation["figures"].items()]
    grids = [
        Grid("All rows that were tested on", ("Figure", "Estimate", f"{sure} interval"), figures)
    ]
    for heading, key in (("By group", "by_group"), ("By class", "by_class")):
        if evaluation.get(key):
            grids.append(_across(heading, evaluation[key], key))
    if evaluation.get("gaps"):
        rows = [
            [label_of(name), clean(pair), *_shown(gap)]
            for name, pairs in evaluation["gaps"].items()
            for pair, gap in pairs.items()
        ]
        heads = ("Figure", "Groups", "Difference", f"{sure} interval")
        grids.append(Grid("Differences between groups", heads, rows))
    names = [clean(name) for name in evaluation.get("classes", ())]
    grids += _confusion(names, evaluation, "all rows")
    grids += _calibration(evaluation, sure, "all rows")
    if len(names) <= MOST_WITH_LIMITS:  # of more, in the JSON output
        for whose, part in evaluation.get("groups", {}).items():
            grids += _confusion(names, part, clean(whose))
            grids += _calibration(part, sure, clean(whose)) if len(names) == 2 else []
    remarks = []
    if len(names) == 2:
        remarks.append(second_class(names))
    if "accuracy" in evaluation["figures"]:
        remarks.append(MAJORITY[evaluation.get("beats_majority")])
    if len(names) > MOST_SHOWN and evaluation.get("confusion"):
        remarks.append("Shares of pairs of true and predicted classes are in the JSON output.")
    if evaluation.get("error_cap") is not None:
        remarks.append(capped(float(evaluation["error_cap"])))
    drawn = [b64encode(str(svg).encode()).decode() for svg in evaluation.get("pictures", ())]
    return Tested(sure, grids, remarks, drawn)


def _confusion(names: Sequence[str], part: Mapping[str, Any], whose: str) -> list[Grid]:
    """Shares of pairs of classes, with intervals where there is room for them."""
    if not part.get("confusion") or len(names) > MOST_SHOWN:
        return []
    rows = []
    for name, cells in zip(names, part["confusion"], strict=True):
        pairs = [_shown(cell) for cell in cells]
        wide = len(names) > MOST_WITH_LIMITS
        rows.append([name, *(value if wide else f"{value} ({ends})" for value, ends in pairs)])
    caption = f"Shares by true class (down) and predicted class (across), of {whose}"
    return [Grid(caption, ("True class", *names), rows)]


def _calibration(part: Mapping[str, Any], sure: str, whose: str) -> list[Grid]:
    """Observed shares in bins of the predicted probability."""
    found = []
    for name, bins in part.get("calibration", {}).items():
        rows = [
            [f"{each['low']:.3f} to {each['high']:.3f}", *_shown(each["observed"])] for each in bins
        ]
        heads = ("Predicted", "Observed", f"{sure} interval")
        caption = f"Calibration: predicted and observed share of {clean(name)}, of {whose}"
        found += [Grid(caption, heads, rows)] if rows else []
    return found


def capped(cap: float) -> str:
    """Beyond which size errors count as much.

    Examples
    --------
    >>> capped(12.5)
    'Errors of more than 12.5 count as that much.'
    """
    return f"Errors of more than {cap:.4g} count as that much."


def second_class(names: Sequence[str]) -> str:
    """Of two classes, whose precision, recall and areas are shown.

    Examples
    --------
    >>> second_class(["no", "yes"])
    'The second class, of which precision, recall, F1 and areas are, is yes.'
    """
    return f"The second class, of which precision, recall, F1 and areas are, is {names[1]}."


def label_of(name: str) -> str:
    """A figure's name in words.

    Examples
    --------
    >>> label_of("roc_auc"), label_of("other")
    ('Area under the ROC curve', 'other')
    """
    return FIGURES.get(name, clean(name))


def _across(heading: str, groups: Mapping[str, Mapping[str, Any]], key: str) -> Grid:
    """Figures down, groups across."""
    names = list(dict.fromkeys(name for figures in groups.values() for name in figures))
    rows = []
    for name in names:
        cells = [
            _shown(figures[name]) if name in figures else ("–", "") for figures in groups.values()
        ]
        label = OF_A_CLASS if key == "by_class" and name == "prevalence" else label_of(name)
        rows.append([label, *(f"{value} ({limits})" for value, limits in cells)])
    return Grid(heading, ("Figure", *map(clean, groups)), rows)


def _shown(figure: Mapping[str, Any]) -> tuple[str, str]:
    value, low, high = (figure[key] for key in ("value", "low", "high"))
    ends = [f"{end:.3f}" if end is not None else None for end in (low, high)]
    limits = f"{ends[0] or 'anything'} to {ends[1] or 'anything'}"
    return ("not known" if value is None else f"{value:.3f}"), limits
