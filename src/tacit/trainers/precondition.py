"""Steps divided by a released second moment, so that few of them go far in every direction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.trainers.settings import PublicFacts

WARM = 2  # steps at the full curvature of the loss, as it is where weights are zero
SETTLED = 0.32  # of it behind them: scores have grown, and losses are flatter there


class Preconditioner:
    """Moves weights by (κM + I/η)⁻¹v in place of ηv, for the released second moment M.

    A loss of smoothness κ has a Hessian of κM at most, so that no step is larger than what is
    stable along any direction that M shows, and ηv where it shows none: that is damped Newton
    with a matrix that bounds the Hessian (Böhning & Lindsay 1988), from released values. The
    constant feature has a second moment by itself, its square, which is public; centred rows have
    none together with it.

    Parameters
    ----------
    facts : PublicFacts
        With a `moment`: eigenvalues (k,) and eigenvectors (f, k).
    constants : sequence of float
        Size of the constant feature of each of S settings.

    Examples
    --------
    >>> facts = PublicFacts(100, 1, 1, 1.0, 1.0, moment=(np.array([1.0]), np.eye(1)))
    >>> move = Preconditioner(facts, [0.5])
    >>> move(np.ones((1, 2, 1)), np.full((1, 1, 1), 2.0), 0).ravel().round(2)
    array([1.33, 1.78])
    """

    def __init__(self, facts: PublicFacts, constants: Sequence[float]) -> None:
        assert facts.moment is not None
        self._values, self._vectors = facts.moment
        self._squares = [constant**2 for constant in constants]
        self._smoothness = 0.25 if facts.loss is None else facts.loss.smoothness

    def __call__(self, velocity: np.ndarray, rate: np.ndarray, step: int) -> np.ndarray:
        """How far a step goes: velocity (S, d, K) and rates (S, 1, 1) to (S, d, K)."""
        curvature = self._smoothness * (1.0 if step < WARM else SETTLED)
        moved = rate * velocity
        basis, f = self._vectors[:, :, None], len(self._vectors)
        for each, eta, square in zip(moved, rate.ravel(), self._squares, strict=True):
            # NumPy's additions, whose order no BLAS chooses.
            along = np.add.reduce(basis * each[:f, None], axis=0)
            steep = curvature * self._values[:, None] * eta
            along *= steep
            along /= 1 + steep
            each[:f] -= np.add.reduce(basis * along, axis=1)
            each[f:] /= 1 + curvature * square * eta
        return moved
