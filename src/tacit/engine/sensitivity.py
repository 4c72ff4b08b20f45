r"""What a trainer pays for rows that moved: how far apart two neighbours' gradient sums lie.

The clipped gradient of a row x is a Lipschitz function of x; with μ its constant, rows that
drifted by τ in all move a sum over them by at most μτ, and never by more than 2C a row. So the
sums of two neighbouring tables lie within 2C + b, b = min(μτ, m·min(μt, 2C)), of each other
(``docs/drift.md``, section 5). μ grows with the norm of the weights, which are public when a step
begins: the noise of a step follows them, and no projection is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scipy.special import expit

from tacit.engine.quantization import rounding_error
from tacit.exceptions import InputError
from tacit.losses import (
    Clipped,
    Huber,
    HuberHinge,
    Logistic,
    Loss,
    Savage,
    Softmax,
    Squared,
    Tangent,
    Tempered,
)
from tacit.privacy.sensitivity.drift import UP, Drift

TARGET = 1.0  # targets of regressions are mapped to [-1, 1]


def _logistic(_: Logistic, norm: float, bound: float, clip: float) -> float:
    """max over u = |ℓ′| ≤ S of u + (1−u)·B·min(uR, C): ℓ″ = u(1−u), and uR ≤ C if unclipped.

    Beyond the threshold the gradient is ±Cx/‖x‖, of slope C/‖x‖ ≤ u whatever the weights.
    """
    reach = norm * bound
    most = float(expit(reach))
    corner = min(most, clip / bound)
    candidates = [most, corner]
    if reach:
        candidates.append(min(corner, (1 + reach) / (2 * reach)))
    return max(u + (1 - u) * norm * min(u * bound, clip) for u in candidates)


def _softmax(_: Softmax, norm: float, bound: float, clip: float) -> float:
    """‖p − e‖ + ‖x‖·λ·B with λ ≤ min(½, 1−Σp²), ‖p − e‖² ≤ 1+Σp²; and λ ≤ √2·‖p − e‖."""
    reach = norm * bound
    if reach >= 1 / math.sqrt(6):
        plain = math.sqrt(1.5) + reach / 2
    elif reach <= 1 / math.sqrt(8):
        plain = math.sqrt(2)
    else:
        plain = 2 * reach + 1 / (4 * reach)
    return min(plain, math.sqrt(2) * (1 + norm * clip))


def _squared(_: Loss, norm: float, bound: float, clip: float) -> float:
    """|r| + ‖x‖B, |r| ≤ B‖x‖ + Y; rows longer than ρ, where Bρ² + Yρ = C, have |r| ≤ C/‖x‖."""
    rho = bound
    if norm and clip < math.inf:
        rho = 2 * clip / (TARGET + math.sqrt(TARGET**2 + 4 * norm * clip))
    elif clip < math.inf:
        rho = clip / TARGET
    if rho >= bound:
        return 2 * norm * bound + TARGET
    return max(2 * norm * rho + TARGET, clip / bound + norm * bound)


def _huber(loss: Huber, norm: float, bound: float, clip: float) -> float:
    """As for the squared loss, and never more than the threshold plus ‖x‖B."""
    return min(_squared(loss, norm, bound, clip), loss.threshold + norm * bound)


def _huber_hinge(loss: HuberHinge, norm: float, bound: float, clip: float) -> float:
    """u + ‖x‖B/(2h), u ≤ 1 and u‖x‖ ≤ C where unclipped: convex in ‖x‖, so largest at an end."""
    slope = norm / (2 * loss.half_width)
    if clip >= bound:
        return 1 + slope * bound
    return max(clip / bound + slope * bound, 1 + slope * clip)


def _bounded(loss: Loss, norm: float, bound: float, clip: float) -> float:
    """S + β‖x‖B: the derivative ℓ′I + ℓ″xθᵀ, with |ℓ′| ≤ S and |ℓ″| ≤ β. Clipping only shortens."""
    return loss.lipschitz(1) + loss.smoothness * norm * bound


def _clipped(loss: Clipped, norm: float, bound: float, clip: float) -> float:
    """As a bounded loss: residuals are projected, which moves no two of them apart."""
    if not math.isfinite(loss.smoothness):
        return math.inf
    return loss.lipschitz(2 if isinstance(loss.loss, Softmax) else 1) + (
        loss.smoothness * norm * bound
    )


CONSTANTS: dict[type[Loss], Callable[[Any, float, float, float], float]] = {
    Logistic: _logistic,
    Softmax: _softmax,
    Squared: _squared,
    Huber: _huber,
    HuberHinge: _huber_hinge,
    Savage: _bounded,
    Tangent: _bounded,
    Tempered: _bounded,
    Clipped: _clipped,
}


def data_lipschitz(
    loss: Loss, *, norm: float, bound: float, clip: float = math.inf, outputs: int = 1
) -> float:
    """μ: Lipschitz constant of a row's clipped gradient, as a function of the row.

    Parameters
    ----------
    loss : Loss
        Targets of a regression lie in [-1, 1].
    norm : float
        B, bound on the norm of the weights, the intercept's included.
    bound : float
        R, norm bound of the rows, the constant feature included.
    clip : float
        C; infinite if each output is clipped by itself.
    outputs : int
        Several outputs of a scalar loss share the weights' norm: their constants
        add in squares. (The whole is then bounded without clipping.)

    Returns
    -------
    float
        Infinite for losses with a kink, whose gradients jump, and for losses of one's own.

    Examples
    --------
    >>> from tacit.losses import get_loss
    >>> round(data_lipschitz(get_loss("logistic"), norm=1.0, bound=1.0), 3)
    0.928
    >>> round(data_lipschitz(get_loss("logistic"), norm=10.0, bound=1.0, clip=0.1), 2)
    1.0
    """
    if not (norm >= 0 and bound > 0 and clip > 0):
        raise InputError("norm must be at least 0, bound and clip positive")
    rule = CONSTANTS.get(type(loss))
    if rule is None:
        return math.inf
    if outputs > 1 and not isinstance(loss, Softmax):
        return math.sqrt(outputs) * rule(loss, norm, bound, math.inf) * UP
    return rule(loss, norm, bound, clip) * UP


@dataclass(frozen=True)
class GradientSensitivity:
    """How far apart the gradient sums of neighbours lie, over the rows that they share.

    Attributes
    ----------
    drift : Drift
        Of the rows that reach the trainer, without the constant feature.
    loss : Loss
    outputs, features, size : int
        Columns of scores; columns of rows, the constant one included; rows.
    intercept : float
        Size of the constant feature.
    rounded : bool
        Whether sums are taken in float64, whose error then counts as well.
    flips : float
        Rows that are blanked out in one of the copies only, constant feature and all.
    blanks : bool
        Whether every row that moved is such a row. It counts nothing where it is
        blank, so it moves a sum by C, not 2C.
    """

    drift: Drift
    loss: Loss
    outputs: int
    features: int
    size: int
    intercept: float = 0.0
    rounded: bool = True
    flips: float = 0.0
    blanks: bool = False

    @property
    def rows(self) -> Drift:
        """Drift of the rows with their constant feature, which moves where a row is blanked."""
        drift = self.drift
        if not self.flips:
            return drift
        total = drift.l1 + self.intercept * self.flips
        return Drift(self.bound, total, drift.linf + self.intercept, drift.l0)

    @property
    def bound(self) -> float:
        """Norm bound of the rows with their constant feature."""
        return math.hypot(self.drift.bound, self.intercept) * UP

    def constant(self, norm: float, clip: float, *, per_class: bool = False) -> float:
        """μ at weights of that norm."""
        limit = math.inf if per_class else clip
        return data_lipschitz(
            self.loss, norm=norm * UP, bound=self.bound, clip=limit, outputs=self.outputs
        )

    def most(self, clip: float) -> float:
        """How far one moved row can carry a sum: from one end of the clipping ball to the other."""
        reach = min(clip, self.loss.lipschitz(self.outputs) * self.bound)
        return reach if self.blanks else 2 * reach

    def distance(self, norm: float, clip: float, *, per_class: bool = False) -> float:
        """b, at weights of that norm; rounding of the sums included."""
        drift, mu = self.rows, self.constant(norm, clip, per_class=per_class)
        if not drift.l1:
            return self.rounding(norm, clip)
        total = mu * drift.l1 if math.isfinite(mu) else math.inf
        each = min(mu * drift.linf if math.isfinite(mu) else math.inf, self.most(clip))
        return min(total, drift.l0 * each) * UP + self.rounding(norm, clip)

    def rounding(self, norm: float, clip: float) -> float:
        """What float64 sums of both copies may add to their distance."""
        if not self.rounded:
            return 0.0
        smooth = self.loss.smoothness
        return 2 * rounding_error(
            clip,
            n=self.size,
            d=self.features,
            outputs=self.outputs,
            reach=norm * self.bound**2,
            # A kinked loss sees rows that did not move at the very same scores.
            curvature=smooth if math.isfinite(smooth) else 0.0,
        )

    def require_smooth(self) -> None:
        """Refuse losses without a constant where batches are drawn: noise must grow with it."""
        if not math.isfinite(self.loss.smoothness):
            raise InputError(
                f"loss={self.loss.name!r} has a kink, so rows that moved a little may change "
                "their gradients altogether: after a noiseless stage train on full batches (DPGD), "
                "or "
                "use loss='logistic' or 'huber-hinge'"
            )
        if not math.isfinite(self.constant(1.0, 1.0)):
            raise InputError(
                f"it is not known how fast gradients of loss={self.loss.name!r} change with a row, "
                "so nothing bounds what a noiseless stage does to them: train on full batches "
                "(DPGD), "
                "or use loss='logistic', 'huber-hinge' or another loss of tacit.losses"
            )
