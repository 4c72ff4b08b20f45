"""What a loss is: a function of the scores of a row, with its derivatives and constants.

The gradient of one row's loss in the weights is ``outer(row, residual)``, so a
trainer asks for no more than the residual. Scores are ``(rows, ..., K)``; targets
belong to the rows, whatever settings stand on the axes between.

Bit for bit, the residual of a row is the same wherever the row stands and
whatever stands beside it: sensitivity is a statement about one row, and rounding
that depends on position would void it. Hence elementwise functions only, and
sums over the outputs in an order that depends on K alone. `Loss.portable` has
the same loss from operations that cannot be otherwise.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from tacit.exceptions import InputError
from tacit.losses.elementary import LIBRARY, PORTABLE, Array, Functions, fold

Interval: TypeAlias = tuple[Array, Array]  # open, by its ends
NOWHERE: Interval = (0.0, 0.0)


@dataclass(frozen=True)
class Loss(ABC):
    """A loss of the scores of one row, with its constants.

    Examples
    --------
    >>> from tacit.losses import get_loss
    >>> loss = get_loss("logistic")
    >>> loss.residual(np.zeros((2, 1)), loss.targets([0, 1], outputs=1)).ravel()
    array([ 0.5, -0.5])
    """

    name: ClassVar[str]
    task: ClassVar[Literal["classification", "regression"]]
    convex: ClassVar[bool] = True
    _by: ClassVar[Functions] = LIBRARY  # what residuals are computed by

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Largest operator norm of the Hessian in the scores; infinite with a kink."""

    @abstractmethod
    def lipschitz(self, outputs: int) -> float:
        """Largest L2 norm of the residual of one row, over all scores and targets.

        A constant of real arithmetic: rounding may pass it in the last place, so it
        can suggest a clipping threshold but not stand in for clipping.

        Parameters
        ----------
        outputs : int
            Scores per row, K.

        Returns
        -------
        float
            Infinite if there is no bound.
        """

    @abstractmethod
    def value(self, scores: Array, targets: Array) -> Array:
        """Loss of each row.

        Parameters
        ----------
        scores : ndarray of shape (rows, ..., K)
            Scores.
        targets : ndarray of shape (rows,) or (rows, K)
            As made by `targets`.

        Returns
        -------
        ndarray of shape (rows, ...)
            Losses.
        """

    @abstractmethod
    def residual(self, scores: Array, targets: Array, out: Array | None = None) -> Array:
        """Derivative of the value in the scores; a subgradient where there is none.

        Parameters
        ----------
        scores : ndarray of shape (rows, ..., K)
            float32 or float64, as will be the result.
        targets : ndarray of shape (rows,) or (rows, K)
            As made by `targets`; those in the dtype of the scores need no cast.
        out : ndarray, optional
            Contiguous, of the shape and dtype of the scores; may be the scores themselves.

        Returns
        -------
        ndarray of shape (rows, ..., K)
            Derivatives; ``out``, if that was given.
        """

    @abstractmethod
    def curvature(self, scores: Array, targets: Array) -> Array:
        """Diagonal of a matrix not below the Hessian, in the shape of the scores.

        It is the Hessian for every loss but softmax, with 0 where undefined.

        Parameters
        ----------
        scores : ndarray of shape (rows, ..., K)
            Scores.
        targets : ndarray of shape (rows,) or (rows, K)
            As made by `targets`.

        Returns
        -------
        ndarray of shape (rows, ..., K)
            Second derivatives.
        """

    @abstractmethod
    def outputs(self, classes: int) -> int:
        """Scores per row, K; one in regression, whatever `classes` is.

        Parameters
        ----------
        classes : int
            Number of classes.

        Returns
        -------
        int
            K.
        """

    @abstractmethod
    def targets(self, values: Any, outputs: int, dtype: Any = np.float64) -> Array:
        """Class indices or numbers, one per row, in the form that `residual` reads.

        Parameters
        ----------
        values : sequence of n class indices or numbers
            What is to be predicted.
        outputs : int
            Scores per row, K.
        dtype : dtype
            Of the result, where it holds signs or numbers.

        Returns
        -------
        ndarray of shape (n,) or (n, K)
            Class indices for softmax, signs for margins, numbers for regression.
        """

    def portable(self) -> Self:
        """The same loss with its residual from correctly rounded operations alone.

        They are fixed to the last bit, so the result cannot depend on where a row stands or on
        the machine. For float64. A loss that is defined elsewhere may do otherwise: a strict
        engine watches it.

        Returns
        -------
        Self
            A copy.
        """
        same = copy.copy(self)
        object.__setattr__(same, "_by", PORTABLE)
        return same

    def probabilities(self, scores: Array) -> Array:
        """Probability of each class.

        Parameters
        ----------
        scores : ndarray of shape (rows, ..., K)
            Scores.

        Returns
        -------
        ndarray of shape (rows, ..., classes)
            They sum to one.
        """
        raise InputError(f"{self.name!r} defines no probabilities; use 'logistic' or 'softmax'.")


class ScalarLoss(Loss):
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

    @abstractmethod
    def steep(self, limit: Array) -> tuple[Interval, Interval]:
        """Where phi falls, and where it rises, by more than a limit; `NOWHERE` if it does not.

        Parameters
        ----------
        limit : ndarray of any shape
            Positive slopes.

        Returns
        -------
        falls, rises : (ndarray, ndarray), of the shape of ``limit``
            The ends of two intervals.
        """

    def lipschitz(self, outputs: int) -> float:
        return math.sqrt(outputs) * self._slope  # K entries, each of them up to the slope

    def value(self, scores: Array, targets: Array) -> Array:
        return fold(np.add, self._phi(self._join(scores, spread(targets, scores))))

    def residual(self, scores: Array, targets: Array, out: Array | None = None) -> Array:
        return self._phi1(self._join(scores, spread(targets, scores), out=out))

    def curvature(self, scores: Array, targets: Array) -> Array:
        return self._phi2(self._join(scores, spread(targets, scores)))  # (du/ds)^2 = 1


class MarginLoss(ScalarLoss):
    """phi(y s) for y = 1 or -1: one output for two classes, else one-versus-rest."""

    task = "classification"
    _join = np.multiply

    def residual(self, scores: Array, targets: Array, out: Array | None = None) -> Array:
        y = spread(targets, scores)
        slopes = super().residual(scores, y, out)
        return np.multiply(slopes, y, out=slopes)

    def outputs(self, classes: int) -> int:
        return 1 if check_classes(classes) == 2 else classes

    def targets(self, values: Any, outputs: int, dtype: Any = np.float64) -> Array:
        positive = np.arange(outputs) if outputs > 1 else np.ones(1)
        own = class_index(values, max(outputs, 2))[:, None] == positive
        return np.where(own, 1, -1).astype(dtype)


class RegressionLoss(ScalarLoss):
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


def softmax(scores: Array, out: Array | None = None, by: Functions = LIBRARY) -> Array:
    out = np.subtract(scores, by.fold(np.maximum, scores)[..., None], out=out)
    by.exp(out, out=out)
    # One division for all outputs of a row: no share exceeds 1, since no total is below it.
    return np.multiply(out, (1 / by.fold(np.add, out))[..., None], out=out)


def falling_below(end: Array, limit: Array, slope: float) -> Interval:
    """From minus infinity to the end where a slope exceeds the limit, which it may not."""
    return np.where(limit < slope, -math.inf, 0), np.where(limit < slope, end, 0)


def beyond(size: Array, limit: Array, slope: float) -> tuple[Interval, Interval]:
    """Both sides of zero from a size on, where a slope exceeds the limit."""
    low, high = falling_below(-size, limit, slope)
    return (low, high), (-high, -low)


def spread(targets: Array, scores: Array) -> Array:
    """Targets of the rows with axes for the settings, in the dtype of the scores."""
    if missing := scores.ndim - targets.ndim:
        targets = targets.reshape(targets.shape[:1] + (1,) * missing + targets.shape[1:])
    return targets.astype(scores.dtype, copy=False)


def class_index(values: Any, classes: int) -> Array:
    index = np.asarray(values)
    if index.ndim != 1 or index.dtype.kind not in "biu":
        given = f"{index.dtype} of shape {index.shape}"
        raise InputError(f"Targets must be one class index per row, got {given}.")
    if index.size and not 0 <= index.min() <= index.max() < classes:
        raise InputError(f"Class indices must lie in 0..{classes - 1}; some do not.")
    return index.astype(np.intp)


def check_classes(classes: int) -> int:
    if classes < 2:
        raise InputError(f"Classification needs at least 2 classes, got {classes}.")
    return classes


def check_positive(**param: float) -> None:
    for name, value in param.items():
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be positive and finite, got {value!r}.")
