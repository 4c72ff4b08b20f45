"""What a run returns: one of its iterates, or a mean of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

AVERAGES = ("last", "uniform", "weighted", "converged")


class Averages:
    """Collects the iterates of settings that are trained together.

    ``"converged"`` looks at the noisy gradients, which weights are made of and which were paid for:
    do those of the second half still point the way that those of the first half went? Their noise
    is new in every step, so on average it adds nothing to the product of the two sums. While
    weights grow the product is positive, and the last iterate has learned most. Once weights only
    wander around what they have found, the product is zero or below (Pflug 1983 has this test for
    successive gradients), and the mean of the second half has less noise. Descent may take back the
    noise of the first half, once: if it takes back more, weights are on their way elsewhere, and
    the last are best again. The constant feature has no part in it: it settles first, and
    outweighs all others where one class is rare.

    Parameters
    ----------
    names : sequence of str
        For each of S settings one of `AVERAGES`.
    shape : tuple of int
        Of all weights, (S, d, K).
    steps : int
        Length of the run.
    features : int
        Rows of the weights that are not the constant feature's.
    """

    def __init__(
        self, names: Sequence[str], shape: tuple[int, ...], steps: int, features: int
    ) -> None:
        self._names, self._steps, self._features = names, steps, features
        self._half = steps // 2
        self._mean = np.zeros(shape)
        self._last = self._mean
        self._asked = np.array([name == "converged" for name in names])
        self._late = bool(self._asked.all())  # no mean has anything of the first half
        # How far weights have gone in the first half, and then; nowhere if nobody asks.
        self._gone = np.zeros((2, shape[0], features * int(self._asked.any()), shape[2]))
        self._noise = np.zeros(shape[0])

    def look(self, step: int, gradient: np.ndarray, noise: Sequence[float]) -> None:
        """See the gradient of a step, and its squared noise."""
        if not self._asked.any():
            return
        self._gone[int(step >= self._half)] += gradient[:, : self._features]
        if step < self._half:
            self._noise += noise

    def add(self, step: int, weights: np.ndarray) -> None:
        """Take the iterate behind a step."""
        self._last = weights
        if self._late and step < self._half:
            return
        parts = self._weights(step)
        if (parts == 1).all():
            self._mean = weights  # of nothing else
        elif parts.any():
            self._mean += parts[:, None, None] * weights

    def result(self) -> np.ndarray:
        """What the run returns, of every setting."""
        product = (self._gone[0] * self._gone[1]).sum(axis=(1, 2))
        wanders = (product <= 0) & (product >= -self._noise)
        return np.where((wanders | ~self._asked)[:, None, None], self._mean, self._last)

    def _weights(self, step: int) -> np.ndarray:
        """Those of this iterate in the means; over a run they sum to one."""
        steps = self._steps
        weight = {
            "last": float(step == steps - 1),
            "uniform": 1.0 / steps,
            "weighted": 2.0 * (step + 1) / (steps * (steps + 1)),
            "converged": float(step >= self._half) / (steps - self._half),
        }
        return np.array([weight[name] for name in self._names])
