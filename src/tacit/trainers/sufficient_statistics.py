"""Least squares from one noisy second moment of rows and targets: sufficient statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
import scipy.sparse as sp

from tacit.data.rows import Rows
from tacit.engine.sensitivity import GradientSensitivity
from tacit.exceptions import InputError, MissingBound
from tacit.losses import Loss, Squared
from tacit.mechanisms.covariance import noisy_second_moment
from tacit.mechanisms.release import Releases, Token
from tacit.privacy.events import Event, Gaussian
from tacit.progress import silent
from tacit.trainers.base import OrAuto, Trainer, Training, is_positive
from tacit.trainers.settings import PublicFacts

BLOCK = 1 << 22  # cells of a chunk
MOST_COLUMNS = 5_000  # of a second moment in memory


class Moments:
    """Rows with their constant and target, in the place of an engine: one sum of their squares.

    Parameters are those of `tacit.engine.engine.Engine`; ``targets`` are numbers (n, 1).
    """

    def __init__(
        self,
        rows: Rows,
        targets: np.ndarray,
        loss: Loss,
        *,
        intercept: float = 0.0,
        arithmetic: str = "exact",
        shift: np.ndarray | None = None,
        split: int | None = None,
    ) -> None:
        if rows.bound is None:
            raise MissingBound(
                "the second moment", "rows with a bound, e.g. after ClipNorm(radius)"
            )
        if rows.blanked is not None or split is not None:  # stages that blank rows drift: refused
            raise InputError("second moments count every row, and whole rows")
        # Of a person one row counts, the one that stands for all of them.
        targets = np.asarray(targets, dtype=np.float64)[rows.standing]
        self.rows, self.targets, self.shift = rows.one_each(), targets, shift
        self.intercept, self.strict = float(intercept), arithmetic == "strict"
        self.n, self.d = self.rows.n, rows.d + bool(intercept)

    def noisy(self, bound: float, weight: float, size: int, token: Token) -> np.ndarray:
        """Σzzᵀ + noise for z = (row, constant, weight·target), shortened to ``bound``.

        One Gaussian release, whatever rows and targets are: z is made of one row and its target
        alone, and its norm is cut by `noisy_second_moment`.
        """

        def joint() -> Iterator[np.ndarray]:
            for span, chunk in self.rows.chunks(max(1, BLOCK // (self.d + 1))):
                part = np.asarray(chunk.toarray() if sp.issparse(chunk) else chunk, np.float64)
                if self.shift is not None:
                    part = part - self.shift
                constant = np.full((len(part), int(self.intercept > 0)), self.intercept)
                yield np.hstack([part, constant, weight * self.targets[span]])

        how: dict[str, Any] = {"size": size, "strict": self.strict}
        return noisy_second_moment(joint, self.d + 1, bound, token.per_row(self.rows), **how)


@dataclass
class SufficientStatistics(Trainer):
    """Ridge regression on a second moment that was released once, with noise.

    The idea of AdaSSP (Wang 2018, Algorithm 2), with all of its budget in one Gaussian release.
    For z = (x, constant, weight·y) of norm at most C, the matrix Σzzᵀ holds XᵀX, Xᵀy and yᵀy. It
    is released with symmetric Gaussian noise, and everything behind is computed from it: AdaSSP's
    third of the budget for the least eigenvalue is not needed, since the noise, and so how much
    damping keeps it in check, is public.

    It passes over the rows once. With many columns `DPGD` is better: noise for whole targets on
    Xᵀy, and for whole rows on XᵀX, is more than noise for clipped residuals.

    Parameters
    ----------
    clip : float
        C, to which z is shortened, row and target together: so a long row counts as if it were
        there a part of a time, and what is learned stays the same line.
    intercept_fraction : float
        Size of the constant, as a part of the row bound.
    weight : float
        What targets in [-1, 1] are multiplied by, as a part of the row bound.
    damping : float
        What is added to XᵀX in all directions, in units of σ√(2d), about the norm of its noise.

    Notes
    -----
    *What it costs.* A row contributes zzᵀ, of Frobenius norm ‖z‖² ≤ C². Noise of standard deviation
    σ = m·C² on the diagonal and σ/√2 beside it has the event ``Gaussian(m)`` (Dwork, Talwar,
    Thakurta & Zhang 2014, Algorithm 1, with the symmetry counted: `tacit.mechanisms.covariance`).
    Under ``replace_one`` two contributions lie √2·C² apart at most, and 2C² are counted.

    Examples
    --------
    >>> SufficientStatistics(damping=1.0).damping
    1.0
    """

    clip: OrAuto = "auto"
    intercept_fraction: OrAuto = "auto"
    weight: OrAuto = "auto"
    damping: OrAuto = "auto"
    takes_strict: ClassVar[bool] = True
    source: ClassVar[Callable[..., Moments]] = Moments

    @property
    def takes_people(self) -> bool:
        return True

    def check(self, facts: PublicFacts) -> None:
        if facts.loss is not None and not isinstance(facts.loss, Squared):
            raise InputError(
                f"{self.name} is for loss='squared', whose minimum second moments determine, not "
                f"for {facts.loss.name!r}: use DPGD"
            )
        for name in ("clip", "intercept_fraction", "weight", "damping"):
            self._check(name, is_positive, "a positive number")
        if facts.features > MOST_COLUMNS:
            raise InputError(
                f"{self.name} is for at most {MOST_COLUMNS:,} columns, not {facts.features:,}: use "
                "DPGD"
            )

    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "clip": facts.typical_norm,
            "intercept_fraction": 0.3,
            "weight": 0.5,
            "damping": 0.35,
            **given,
        }

    def constant(self, bound: float) -> float:
        return float(self.intercept_fraction) * bound

    def event(self, noise_multiplier: float, facts: PublicFacts) -> Event:
        return Gaussian(noise_multiplier)

    def draws(self, features: int, outputs: int) -> int:
        return (features + 1) * (features + 2) // 2  # the target is a column more

    def deviation(
        self, noise_multiplier: float, norm: float, moves: GradientSensitivity | None
    ) -> float:
        """Standard deviation of the noise on the diagonal of the second moment, m·C².

        Parameters
        ----------
        noise_multiplier : float
            m, that of the event.
        norm : float
            Of weights, on which it does not depend.
        moves : GradientSensitivity or None
            None: rows that moved are refused.

        Returns
        -------
        float
            1/√2 of it is the deviation beside the diagonal.
        """
        return noise_multiplier * float(self.clip) ** 2

    def explain(self, noise_multiplier: float, facts: PublicFacts) -> list[str]:
        noise = self.deviation(noise_multiplier, 0.0, None)
        return [
            f"Training, {self.name}: one pass, which sums the squares of every row together with "
            f"its constant and its target, shortened to {float(self.clip):.3g}; then ridge "
            "regression on what was released.",
            f"Noise on every sum of squares: {noise:.4g}, and 0.71 of that on sums of products.",
        ]

    def train(
        self, engine: Any, run: Releases, facts: PublicFacts, **how: Unpack[Training]
    ) -> np.ndarray:
        moved, started = (how.get(name) is not None for name in ("moves", "init"))
        if not isinstance(engine, Moments) or moved or started:
            raise InputError(f"{self.name} takes rows that have not moved, and no start")
        clip, weight = float(self.clip), float(self.weight) * facts.typical_norm
        token = run.token(self.name).at("moment")
        moment = engine.noisy(clip, weight, facts.size, token)
        how.get("progress", silent)("training", 1, 1)
        d = engine.d  # the rest is computed from released numbers
        values, vectors = np.linalg.eigh(moment[:d, :d])
        noise = self.deviation(token.noise_multiplier, 0.0, None)
        damped = np.maximum(values, 0.0) + float(self.damping) * noise * math.sqrt(2 * d)
        along = vectors.T @ moment[:d, d] / weight
        return (vectors @ (along / damped))[:, None]
