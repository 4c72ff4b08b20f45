"""Counterparts of the last step: its loss, and its penalty as the trainer's alpha."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from sklearn.linear_model import (
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    Ridge,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.svm import LinearSVC

from tacit.exceptions import MissingBound
from tacit.linear_model import DPLinearRegressor
from tacit.losses import Huber, Loss
from tacit.pipeline.parts import Given, Last, refusal

LOGISTIC = "logistic loss, softmax for more than two classes"
PULL = "the penalty is a pull towards zero in the scaled space, on the intercept too, and weighs "
PULL += "more than it did, since gradients are clipped"

#: Of SGDClassifier: the loss, the one behind noiseless stages, and words for it.
MARGINS = {
    "log_loss": ("auto", "auto", LOGISTIC),
    "hinge": (
        "hinge",
        "huber-hinge",
        "hinge loss; behind a noiseless stage huber-hinge, since at a kink gradients jump",
    ),
    "squared_hinge": (
        "huber-hinge",
        "huber-hinge",
        "huber-hinge, since gradients of the squared hinge have no bound",
    ),
}


def logistic(name: str, step: LogisticRegression, given: Given) -> Last:
    _require_l2(name, step)
    if step.l1_ratio not in (None, 0, 0.0):
        raise refusal(
            name, f"l1_ratio={step.l1_ratio!r}", "an L1 penalty is not offered; use l1_ratio=0"
        )
    # Versions before 1.8 still have one-versus-rest.
    loss = "logistic" if getattr(step, "multi_class", None) == "ovr" else "auto"
    alpha = _inverse(name, math.inf if step.penalty is None else step.C)
    return _classification(name, step, (loss, loss, LOGISTIC), alpha)


def sgd_classifier(name: str, step: SGDClassifier, given: Given) -> Last:
    _require_l2(name, step)
    if step.loss not in MARGINS:
        raise refusal(name, f"loss={step.loss!r}", "use 'log_loss', 'hinge' or 'squared_hinge'")
    return _classification(name, step, MARGINS[step.loss], _times(name, _alpha(step)))


def svc(name: str, step: LinearSVC, given: Given) -> Last:
    _require_l2(name, step)
    if step.multi_class != "ovr":
        raise refusal(name, f"multi_class={step.multi_class!r}", "use multi_class='ovr'")
    losses = ("huber-hinge", "huber-hinge", "huber-hinge, a hinge with a bounded slope and no kink")
    return _classification(name, step, losses, _inverse(name, step.C))


def _classification(
    name: str, step: Any, losses: tuple[str, str, str], alpha: Callable[[int], float]
) -> Last:
    loss, smooth, note = losses
    intercept = bool(step.fit_intercept)
    return Last(name, "classification", loss, smooth, alpha, intercept, f"{note}; {PULL}")


def regression(name: str, step: Any, given: Given) -> Last:
    """Ridge, LinearRegression, SGDRegressor and HuberRegressor."""
    if given.target_bounds is None:
        raise MissingBound(name, "target_bounds=(low, high)")
    _, half = DPLinearRegressor()._target_scale(given.target_bounds)
    if getattr(step, "positive", False):
        raise refusal(name, "positive=True", "leave it out")
    loss: str | Loss = "squared"
    note = "squared error of the target, mapped to [-1, 1] by target_bounds="
    if isinstance(step, LinearRegression):
        alpha = _times(name, 0.0)
    elif isinstance(step, Ridge):
        alpha = _times(name, step.alpha, rows=True)
    elif isinstance(step, HuberRegressor):
        # It divides by a scale read from the private rows: a tenth of the half-range instead.
        loss = Huber(0.1 * float(step.epsilon))
        note = (
            "Huber loss, its threshold epsilon times a tenth of half the target's range, since "
            "the scale of the errors is not read from private rows"
        )
        # It minimises sum r²/s + alpha |w|² within the threshold: mean r²/2 + (alpha s/2n) |w|².
        alpha = _times(name, step.alpha, 0.1 * half, rows=True)
    else:
        _require_l2(name, step)
        if step.loss not in ("squared_error", "huber"):
            raise refusal(name, f"loss={step.loss!r}", "use 'squared_error' or 'huber'")
        if step.loss == "huber":
            loss, note = Huber(float(step.epsilon) / half), "Huber loss of the mapped target"
        alpha = _times(name, _alpha(step))
    if not isinstance(step, LinearRegression):
        note = f"{note}; {PULL}"
    return Last(name, "regression", loss, loss, alpha, bool(step.fit_intercept), note)


LAST: dict[type, Callable[[str, Any, Given], Last]] = {
    LogisticRegression: logistic,
    SGDClassifier: sgd_classifier,
    LinearSVC: svc,
    Ridge: regression,
    LinearRegression: regression,
    SGDRegressor: regression,
    HuberRegressor: regression,
}


def _require_l2(name: str, step: Any) -> None:
    if step.penalty not in ("l2", None, "deprecated"):
        raise refusal(
            name, f"penalty={step.penalty!r}", "an L1 penalty is not offered; use penalty='l2'"
        )
    if getattr(step, "class_weight", None) is not None:
        raise refusal(
            name,
            f"class_weight={step.class_weight!r}",
            "weights would let one row count more than another; move the threshold of "
            "decision_function instead",
        )


def _alpha(step: SGDClassifier | SGDRegressor) -> Any:
    return 0.0 if step.penalty is None else step.alpha


def _inverse(name: str, c: Any) -> Callable[[int], float]:
    """1/(C·n): scikit-learn adds up the losses of n rows, a trainer takes their mean."""
    if not _number(c) or not c > 0:
        raise refusal(name, f"C={c!r}", "pass one positive number")
    return lambda n: 1 / (float(c) * n)


def _times(
    name: str, alpha: Any, factor: float = 1.0, *, rows: bool = False
) -> Callable[[int], float]:
    """A multiple of alpha, over n where scikit-learn adds up the losses of n rows."""
    if not _number(alpha) or not alpha >= 0:
        raise refusal(name, f"alpha={alpha!r}", "pass one number of at least 0")
    return lambda n: factor * float(alpha) / (n if rows else 1)


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
