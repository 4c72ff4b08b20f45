"""Losses of linear models, as functions of the scores.

The gradient of one row's loss in the weights is ``outer(row, residual)``, so a
trainer asks for no more than the residual. Scores are ``(rows, ..., K)``; targets
belong to the rows, whatever settings stand on the axes between.

Bit for bit, the residual of a row is the same wherever the row stands and
whatever stands beside it: sensitivity is a statement about one row, and rounding
that depends on position would void it. Hence elementwise functions only, and
sums over the outputs in an order that depends on K alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from scipy.special import expit, log_expit

from tacit.exceptions import InputError

__all__ = [
    "LOSSES",
    "Absolute",
    "Hinge",
    "Huber",
    "HuberHinge",
    "Logistic",
    "Loss",
    "Softmax",
    "Squared",
    "get_loss",
]

Array: TypeAlias = Any  # ndarray of float32 or float64, kept as it comes
FEW_OUTPUTS = 24  # up to here, folding whole columns beats NumPy's reduction of short rows


@dataclass(frozen=True)
class Loss(ABC):
    """A convex loss of the scores of one row, with its constants.

    Examples
    --------
    >>> loss = get_loss("logistic")
    >>> loss.residual(np.zeros((2, 1)), loss.targets([0, 1], outputs=1)).ravel()
    array([ 0.5, -0.5])
    """

    name: ClassVar[str]
    task: ClassVar[Literal["classification", "regression"]]

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Largest operator norm of the Hessian in the scores; infinite with a kink."""

    @abstractmethod
    def lipschitz(self, outputs: int) -> float:
        """Largest L2 norm of the residual of one row, over all scores and targets.

        A constant of real arithmetic: rounding may pass it in the last place, so it
        can suggest a clipping threshold but not stand in for clipping.
        """

    @abstractmethod
    def value(self, scores: Array, targets: Array) -> Array:
        """Loss of each row, of shape ``scores.shape[:-1]``."""

    @abstractmethod
    def residual(self, scores: Array, targets: Array, out: Array | None = None) -> Array:
        """Derivative of the value in the scores; a subgradient where there is none.

        Parameters
        ----------
        scores : ndarray of shape (rows, ..., K)
            float32 or float64, as will be the result.
        targets : ndarray
            As made by `targets`; those in the dtype of the scores need no cast.
        out : ndarray, optional
            Contiguous, of the shape and dtype of the scores; may be the scores themselves.
        """

    @abstractmethod
    def curvature(self, scores: Array, targets: Array) -> Array:
        """Diagonal of a matrix not below the Hessian, in the shape of the scores.

        It is the Hessian for every loss but softmax, with 0 where undefined.
        """

    @abstractmethod
    def outputs(self, classes: int) -> int:
        """Scores per row, K; one in regression, whatever `classes` is."""

    @abstractmethod
    def targets(self, values: Any, outputs: int, dtype: Any = np.float64) -> Array:
        """Class indices or numbers, one per row, in the form that `residual` reads."""

    def probabilities(self, scores: Array) -> Array:
        """Probability of each class, of shape ``(rows, ..., classes)``."""
        raise InputError(f"{self.name!r} defines no probabilities; use 'logistic' or 'softmax'.")


class _Scalar(Loss):
    """A sum over the outputs of phi(u), with u = y s or u = s - y."""

    _join: ClassVar[np.ufunc]  # makes u of scores and targets

    @property
    @abstractmethod
    def _slope(self) -> float:
        """Largest size of phi'."""

    @abstractmethod
    def _phi(self, u: Array) -> Array: ...

    @abstractmethod
    def _phi1(self, u: Array) -> Array: ...  # written over u

    def _phi2(self, u: Array) -> Array:
        return np.zeros_like(u)

    def lipschitz(self, outputs: int) -> float:
        return math.sqrt(outputs) * self._slope  # K entries, each of them up to the slope

    def value(self, scores: Array, targets: Array) -> Array:
        return _fold(np.add, self._phi(self._join(scores, _spread(targets, scores))))

    def residual(self, scores: Array, targets: Array, out: Array | None = None) -> Array:
        return self._phi1(self._join(scores, _spread(targets, scores), out=out))

    def curvature(self, scores: Array, targets: Array) -> Array:
        return self._phi2(self._join(scores, _spread(targets, scores)))  # (du/ds)^2 = 1


class _Margin(_Scalar):
    """phi(y s) for y = 1 or -1: one output for two classes, else one-versus-rest."""

    task = "classification"
    _join = np.multiply
    _slope = 1.0  # phi is convex and decreasing, with slope -1 far on the wrong side

    def residual(self, scores: Array, targets: Array, out: Array | None = None) -> Array:
        y = _spread(targets, scores)
        slopes = super().residual(scores, y, out)
        return np.multiply(slopes, y, out=slopes)

    def outputs(self, classes: int) -> int:
        return 1 if _check_classes(classes) == 2 else classes

    def targets(self, values: Any, outputs: int, dtype: Any = np.float64) -> Array:
        positive = np.arange(outputs) if outputs > 1 else np.ones(1)
        own = _class_index(values, max(outputs, 2))[:, None] == positive
        return np.where(own, 1, -1).astype(dtype)


class _Regression(_Scalar):
    """phi(s - y)."""

    task = "regression"
    _join = np.subtract

    def outputs(self, classes: int) -> int:
        return 1

    def targets(self, values: Any, outputs: int, dtype: Any = np.float64) -> Array:
        numbers = np.array(values, dtype=dtype)
        columns = numbers[:, None] if numbers.ndim == 1 else numbers
        if columns.shape[1:] != (outputs,):
            raise InputError(f"Targets must be one number per row, got shape {numbers.shape}.")
        return columns


@dataclass(frozen=True)
class Logistic(_Margin):
    """log(1 + exp(-m)) of the margin m = y s."""

    name = "logistic"
    smoothness = 0.25  # phi'' = p (1 - p) for p = sigmoid(m), largest at p = 1/2

    def _phi(self, u: Array) -> Array:
        return np.logaddexp(0, -u)

    def _phi1(self, u: Array) -> Array:
        return np.negative(expit(np.negative(u, out=u), out=u), out=u)

    def _phi2(self, u: Array) -> Array:
        return expit(u) * expit(-u)

    def probabilities(self, scores: Array) -> Array:
        """Sigmoids of -s and s for one output; else one of each score, normalised."""
        if scores.shape[-1] == 1:
            return expit(np.concatenate([-scores, scores], axis=-1))
        return _softmax(log_expit(scores))  # in logarithms: the sigmoids may all underflow


@dataclass(frozen=True)
class Hinge(_Margin):
    """max(0, 1 - m) of the margin m = y s; the residual at the kink is 0."""

    name = "hinge"
    smoothness = math.inf  # the slope jumps at m = 1

    def _phi(self, u: Array) -> Array:
        return np.maximum(1 - u, 0)

    def _phi1(self, u: Array) -> Array:
        return np.negative(np.less(u, 1, out=u), out=u)


@dataclass(frozen=True)
class HuberHinge(_Margin):
    """Hinge rounded off: (1 + h - m)^2 / (4 h) for margins between 1 - h and 1 + h.

    Zero above, 1 - m below (Chaudhuri, Monteleoni and Sarwate 2011, equation 7).

    Parameters
    ----------
    half_width : float
        h, half the width of the quadratic part.
    """

    name = "huber-hinge"
    half_width: float = 0.5

    def __post_init__(self) -> None:
        _check_positive(half_width=self.half_width)

    @property
    def smoothness(self) -> float:
        return 0.5 / self.half_width  # the slope rises evenly from -1 to 0 over a width of 2 h

    def _phi(self, u: Array) -> Array:
        linear = np.maximum(1 - self.half_width - u, 0)
        return self.half_width * np.square(self._phi1(u)) + linear

    def _phi1(self, u: Array) -> Array:
        np.subtract(u, 1 + self.half_width, out=u)
        np.multiply(u, self.smoothness, out=u)
        return np.clip(u, -1, 0, out=u)

    def _phi2(self, u: Array) -> Array:
        return np.multiply(np.abs(u - 1) < self.half_width, self.smoothness, dtype=u.dtype)


@dataclass(frozen=True)
class Softmax(Loss):
    """log(sum_k exp(s_k)) - s_y, the multinomial logistic loss."""

    name = "softmax"
    task = "classification"
    smoothness = 0.5  # by `curvature`: 2 p (1 - p) <= 1/2, met by p = (1/2, 1/2); Boehning 1992

    def lipschitz(self, outputs: int) -> float:
        # |p - e_y|^2 = (1 - p_y)^2 + sum_{k != y} p_k^2 <= 2 (1 - p_y)^2, met by p = e_k.
        return math.sqrt(2) if outputs > 1 else 0.0

    def value(self, scores: Array, targets: Array) -> Array:
        shifted = scores - _fold(np.maximum, scores)[..., None]
        own = shifted[np.arange(len(targets)), ..., targets]
        return np.log(_fold(np.add, np.exp(shifted))) - own

    def residual(self, scores: Array, targets: Array, out: Array | None = None) -> Array:
        out = _softmax(scores, out)
        out[np.arange(len(targets)), ..., targets] -= 1
        return out

    def curvature(self, scores: Array, targets: Array) -> Array:
        # D = 2 diag(p (1 - p)) >= H = diag(p) - p p': each row of D - H has p_k (1 - p_k) on the
        # diagonal and entries p_j p_k >= 0 of that very sum beside it: diagonally dominant.
        p = _softmax(scores)
        return 2 * p * (1 - p)

    def outputs(self, classes: int) -> int:
        return _check_classes(classes)

    def targets(self, values: Any, outputs: int, dtype: Any = np.float64) -> Array:
        return _class_index(values, outputs)

    def probabilities(self, scores: Array) -> Array:
        return _softmax(scores)


@dataclass(frozen=True)
class Squared(_Regression):
    """r^2 / 2 of the error r = s - y."""

    name = "squared"
    smoothness = 1.0  # phi'' = 1
    _slope = math.inf  # phi' = r

    def _phi(self, u: Array) -> Array:
        return np.square(u) / 2

    def _phi1(self, u: Array) -> Array:
        return u

    def _phi2(self, u: Array) -> Array:
        return np.ones_like(u)


@dataclass(frozen=True)
class Absolute(_Regression):
    """|r| of the error r = s - y; the residual at the kink is 0."""

    name = "absolute"
    smoothness = math.inf  # the slope jumps at r = 0
    _slope = 1.0  # phi' = sign(r)

    def _phi(self, u: Array) -> Array:
        return np.abs(u)

    def _phi1(self, u: Array) -> Array:
        return np.sign(u, out=u)


@dataclass(frozen=True)
class Huber(_Regression):
    """r^2 / 2 of the error r = s - y up to a threshold, linear beyond (Huber 1964).

    Parameters
    ----------
    threshold : float
        The error at which the quadratic part ends.
    """

    name = "huber"
    smoothness = 1.0  # phi'' = 1 within the threshold, 0 beyond
    threshold: float = 1.0

    def __post_init__(self) -> None:
        _check_positive(threshold=self.threshold)

    @property
    def _slope(self) -> float:
        return self.threshold  # phi' = clip(r, -threshold, threshold)

    def _phi(self, u: Array) -> Array:
        size = np.abs(u)
        inner = np.minimum(size, self.threshold)
        return inner * (size - inner / 2)

    def _phi1(self, u: Array) -> Array:
        return np.clip(u, -self.threshold, self.threshold, out=u)

    def _phi2(self, u: Array) -> Array:
        return (np.abs(u) < self.threshold).astype(u.dtype)


LOSSES: dict[str, type[Loss]] = {
    kind.name: kind for kind in (Logistic, Softmax, Hinge, HuberHinge, Squared, Absolute, Huber)
}


def get_loss(loss: str | Loss, **params: float) -> Loss:
    """The loss of that name with these parameters, or a loss as it is.

    Examples
    --------
    >>> get_loss("huber", threshold=2.0)
    Huber(threshold=2.0)
    """
    if isinstance(loss, Loss):
        if params:
            raise InputError(f"{loss!r} is complete; to set {', '.join(params)}, pass its name.")
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise InputError(f"Unknown loss {loss!r}; use one of {', '.join(map(repr, LOSSES))}.")
    allowed = [field.name for field in fields(LOSSES[loss])]
    if not set(params) <= set(allowed):
        takes = ", ".join(allowed) or "no parameters"
        raise InputError(f"The loss {loss!r} takes {takes}; got {', '.join(params)}.")
    return LOSSES[loss](**params)


def _fold(ufunc: np.ufunc, array: Array) -> Array:
    """Fold the last axis, for each row by the same operations in the same order."""
    outputs = array.shape[-1]
    if outputs > FEW_OUTPUTS:  # in C order, or the shape would choose the order of the sum
        return ufunc.reduce(np.ascontiguousarray(array), axis=-1)
    folded = array[..., 0].copy()
    for k in range(1, outputs):
        ufunc(folded, array[..., k], out=folded)
    return folded


def _softmax(scores: Array, out: Array | None = None) -> Array:
    out = np.subtract(scores, _fold(np.maximum, scores)[..., None], out=out)
    np.exp(out, out=out)
    return np.divide(out, _fold(np.add, out)[..., None], out=out)


def _spread(targets: Array, scores: Array) -> Array:
    """Targets of the rows with axes for the settings, in the dtype of the scores."""
    if missing := scores.ndim - targets.ndim:
        targets = targets.reshape(targets.shape[:1] + (1,) * missing + targets.shape[1:])
    return targets.astype(scores.dtype, copy=False)


def _class_index(values: Any, classes: int) -> Array:
    index = np.asarray(values)
    if index.ndim != 1 or index.dtype.kind not in "biu":
        given = f"{index.dtype} of shape {index.shape}"
        raise InputError(f"Targets must be one class index per row, got {given}.")
    if index.size and not 0 <= index.min() <= index.max() < classes:
        raise InputError(f"Class indices must lie in 0..{classes - 1}; some do not.")
    return index.astype(np.intp)


def _check_classes(classes: int) -> int:
    if classes < 2:
        raise InputError(f"Classification needs at least 2 classes, got {classes}.")
    return classes


def _check_positive(**param: float) -> None:
    for name, value in param.items():
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be positive and finite, got {value!r}.")
