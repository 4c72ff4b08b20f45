r"""What clipping optimises: the loss whose gradients are clipped gradients.

A row's gradient is its residual times the row, so clipping it to norm B bounds the residual of a
row x by B/‖x‖. Where the loss is a function of one number, the bounded residual is again a
derivative: of the loss continued by straight lines from where its slope reaches the bound (Song et
al. 2021, Lemma 5.1, where the loss is convex; a derivative in one variable needs no convexity). So
clipped descent finds the least of *that* objective, which may lie elsewhere: Song et al. 2021,
Theorem D.4, has rows on which the clipped logistic loss is least at 2·log(1/B − 1) and the logistic
loss at 0 (`tacit.research.instances.clipping_bias`).

The softmax residual is a vector. Clipped, it is the gradient of nothing as soon as there are three
classes (Theorem 5.3): its Jacobian is asymmetric wherever a row is clipped and the scores of the
classes other than its own are not all equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tacit.exceptions import InputError
from tacit.losses.base import Array, Loss, ScalarLoss, check_positive, fold, spread
from tacit.losses.names import get_loss


@dataclass(frozen=True)
class Clipped(Loss):
    """A loss whose gradients, for rows of a given norm, are the clipped gradients of another.

    Several outputs of a scalar loss are clipped one by one, as with a trainer's
    ``clipping="per-class"``; the outputs of softmax together.

    Parameters
    ----------
    loss : Loss
    clip : float
        B, the norm that gradients are clipped to.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.losses import get_loss
    >>> loss = clipped(get_loss("squared"), 1.0)  # the Huber loss, for rows of norm 1
    >>> loss.value(np.array([[3.0]]), np.array([[0.0]]))
    array([2.5])
    >>> loss.residual(np.array([[3.0]]), np.array([[0.0]]), norms=np.array([2.0]))
    array([[0.5]])
    """

    loss: Loss
    clip: float

    def __post_init__(self) -> None:
        check_positive(clip=self.clip)

    @property
    def name(self) -> str:  # type: ignore[override]
        """ "clipped", and the name of the loss."""
        return f"clipped {self.loss.name}"

    @property
    def task(self) -> Any:  # type: ignore[override]
        """Task of the loss that is clipped."""
        return self.loss.task

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether it is convex: if the loss is, and is a sum of functions of one score each."""
        return self.loss.convex and isinstance(self.loss, ScalarLoss)

    @property
    def smoothness(self) -> float:
        return self.loss.smoothness  # clipping is a projection: no two residuals move apart

    def lipschitz(self, outputs: int) -> float:
        """For rows of norm 1."""
        if isinstance(self.loss, ScalarLoss):
            return math.sqrt(outputs) * min(self.loss.lipschitz(1), self.clip)
        return min(self.loss.lipschitz(outputs), self.clip)

    def value(self, scores: Array, targets: Array, norms: Array = 1.0) -> Array:
        """Song et al. 2021, Lemma 5.1: the loss where its slope is within the bound, lines beyond.

        Parameters
        ----------
        norms : float or ndarray of shape (rows,)
            Norms of the rows that the scores belong to.
        scores : ndarray of shape (rows, ..., K)
            Scores.
        targets : ndarray of shape (rows,) or (rows, K)
            As made by `targets`.

        Returns
        -------
        ndarray of shape (rows, ...)
            Losses.
        """
        loss = self._scalar("value")
        u, limit = loss._join(scores, spread(targets, scores)), self._limit(scores, norms)
        (fall, fell), (rise, risen) = loss.steep(limit)
        # What the loss changes by within a stretch too steep, and what a line would there.
        left = np.clip(u, fall, fell).astype(u.dtype)
        right = np.clip(u, rise, risen).astype(u.dtype)
        top, bottom = (np.broadcast_to(end, u.shape).astype(u.dtype) for end in (fell, rise))
        lost = loss._phi(left) - loss._phi(top) - limit * (top - left)
        lost += loss._phi(right) - loss._phi(bottom) - limit * (right - bottom)
        return fold(np.add, loss._phi(u) - lost)

    def residual(
        self, scores: Array, targets: Array, out: Array | None = None, norms: Array = 1.0
    ) -> Array:
        """The residual of the loss, shortened to B/norm if it is longer.

        Parameters
        ----------
        scores : ndarray of shape (rows, ..., K)
            Scores.
        targets : ndarray of shape (rows,) or (rows, K)
            As made by `targets`.
        out : ndarray of shape (rows, ..., K), optional
            Where the result is written.
        norms : float or ndarray of shape (rows,)
            Norms of the rows that the scores belong to.

        Returns
        -------
        ndarray of shape (rows, ..., K)
            Derivatives.
        """
        limit = self._limit(scores, norms)
        residual = self.loss.residual(scores, targets, out)
        if isinstance(self.loss, ScalarLoss):
            return np.clip(residual, -limit, limit, out=residual)
        size = np.sqrt(self._by.fold(np.add, np.square(residual)))[..., None]
        tiny = np.finfo(size.dtype).tiny
        shorter = np.minimum(limit / np.maximum(size, tiny), 1)
        return np.multiply(residual, shorter, out=residual)

    def curvature(self, scores: Array, targets: Array, norms: Array = 1.0) -> Array:
        """Second derivatives of the clipped loss: those of the loss, and 0 where it is clipped.

        Parameters
        ----------
        scores : ndarray of shape (rows, ..., K)
            Scores.
        targets : ndarray of shape (rows,) or (rows, K)
            As made by `targets`.
        norms : float or ndarray of shape (rows,)
            Norms of the rows that the scores belong to.

        Returns
        -------
        ndarray of shape (rows, ..., K)
            Second derivatives.
        """
        loss = self._scalar("curvature")
        free = np.abs(loss.residual(scores, targets)) < self._limit(scores, norms)
        return np.where(free, loss.curvature(scores, targets), 0).astype(scores.dtype)

    def portable(self) -> Self:
        same = super().portable()
        object.__setattr__(same, "loss", self.loss.portable())
        return same

    def outputs(self, classes: int) -> int:
        return self.loss.outputs(classes)

    def targets(self, values: Any, outputs: int, dtype: Any = np.float64) -> Array:
        return self.loss.targets(values, outputs, dtype)

    def _limit(self, scores: Array, norms: Array) -> Array:
        """Largest residual of each row, with axes to match the scores; blank rows have none."""
        size = np.asarray(norms, dtype=scores.dtype)
        if size.ndim:
            size = size.reshape(size.shape + (1,) * (scores.ndim - 1))
        largest = math.sqrt(np.finfo(scores.dtype).max)  # no loss or line overflows there
        with np.errstate(divide="ignore", over="ignore"):
            return np.minimum(self.clip / size, largest).astype(scores.dtype)

    def _scalar(self, what: str) -> ScalarLoss:
        if isinstance(self.loss, ScalarLoss):
            return self.loss
        raise InputError(
            f"A clipped {self.loss.name} loss has no {what}: clipped gradients of three or more "
            "classes together are the gradient of no function (Song et al. 2021, Theorem 5.3). Its "
            "residual is there; 'logistic' in its place, one class against the rest, has both."
        )


def clipped(loss: str | Loss, clip: float) -> Clipped:
    """The loss whose gradients are those of another, clipped (Song et al. 2021, Lemma 5.1).

    Parameters
    ----------
    loss : str or Loss
        The other loss.
    clip : float
        B, the norm that gradients are clipped to.

    Returns
    -------
    Clipped
        A loss like any other.

    Examples
    --------
    >>> clipped("logistic", 0.2).lipschitz(1)
    0.2
    """
    inner = get_loss(loss)
    if isinstance(inner, Clipped):  # twice is once, at the smaller norm
        return Clipped(inner.loss, min(clip, inner.clip))
    return Clipped(inner, clip)
