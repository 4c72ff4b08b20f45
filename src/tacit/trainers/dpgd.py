"""Noisy gradient descent on all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.exceptions import InputError
from tacit.losses import Logistic, Loss
from tacit.trainers.base import is_positive, is_whole
from tacit.trainers.gradient import GradientTrainer
from tacit.trainers.settings import INTERCEPT_FRACTION, PLAIN_STEPS, PublicFacts, constant_rate

MOST_STEPS = 10_000  # beyond them, what the bound of Theorem 3.1 gains is a hundredth of N·L


@dataclass
class DPGD(GradientTrainer):
    """Noisy gradient descent on all rows (Song et al. 2021, Algorithm 1).

    Parameters
    ----------
    norm : float, optional
        N, at least the norm of the best weights, the intercept's included. Whatever else is left
        to be chosen is then as in Song et al. 2021, Theorem 3.1, whose bound holds for losses that
        are convex in one score: plain steps of constant rate (`tacit.trainers.settings`), their
        mean, no gradient clipped. With a ``clip`` the bound is that of the clipped objective.
    rank : int, optional
        At least the rank of the rows with their constant feature, if that is publicly known; the
        number of columns if not given. It only sets the rate.

    Notes
    -----
    The theorem's (nε)² steps are taken with ε as the Gaussian budget has it, nμ squared, and not
    beyond 10,000: its bound is N·L·√((1 + 1/T)(1/T + r/(nμ)²)) for any T at the rate that suits T.

    Examples
    --------
    >>> DPGD(steps=100, clip=0.5).steps
    100
    """

    norm: float | None = None
    rank: int | None = None

    @property
    def by_rule(self) -> bool:
        return type(self) is DPGD and self.norm is None

    @property
    def covers_steps(self) -> bool:
        return type(self) is DPGD

    @property
    def takes_people(self) -> bool:
        return type(self) is DPGD

    def takes_moment(self, loss: Loss, outputs: int) -> bool:
        return self.by_rule and isinstance(loss, Logistic) and outputs == 1

    def check(self, facts: PublicFacts) -> None:
        super().check(facts)
        self._check("norm", lambda v: v is None or is_positive(v), "a positive number or None")
        self._check("rank", lambda v: v is None or (is_whole(v) and v >= 1), "at least 1, or None")
        if self.rank is not None and self.norm is None:
            raise InputError(f"{self.name}(rank={self.rank!r}) is of use with norm= only")
        if self.norm is not None and facts.loss is not None and not facts.loss.convex:
            raise InputError(
                f"{self.name}(norm={self.norm!r}) is for convex losses, not {facts.loss.name!r}"
            )

    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        if self.norm is None:
            return super().suggest(facts, given)
        fraction = float(given.get("intercept_fraction", INTERCEPT_FRACTION))
        slope = 1.0 if facts.loss is None else facts.loss.lipschitz(facts.outputs)
        reach = slope * facts.typical_norm * math.sqrt(1 + fraction**2)
        clip = float(given.get("clip", reach))
        if not math.isfinite(clip):
            raise InputError(
                f"{self.name}(norm={self.norm}): gradients of this loss have no bound; pass clip="
            )
        rank = min(facts.features + 1, facts.size) if self.rank is None else int(self.rank)
        steps = int(given.get("steps", min(math.ceil((facts.size * facts.mu) ** 2), MOST_STEPS)))
        rate = constant_rate(
            facts.mu,
            facts.size,
            rank * facts.outputs,  # every output has noise of its own
            norm=float(self.norm),
            clip=clip,
            steps=steps,
        )
        # Heavy balls go 1/(1 - momentum) times as far.
        rate *= 1 - float(given.get("momentum", 0.0))
        chosen = {"steps": steps, "learning_rate": rate, "clip": clip}
        chosen["intercept_fraction"] = fraction
        return {**PLAIN_STEPS, **chosen, **given}
