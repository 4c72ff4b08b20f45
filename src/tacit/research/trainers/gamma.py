"""Descent with gamma noise: a baseline that shows what the shape of noise is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tacit.mechanisms.release import BoundedSum, Token
from tacit.privacy.events import Event, Gamma
from tacit.trainers.dpsgd import DPSGD
from tacit.trainers.settings import PublicFacts


@dataclass
class GammaSGD(DPSGD):
    """Descent on Poisson samples with noise of density e^(−‖z‖/s) (Song et al. 2021, Appendix E).

    Its length has a gamma distribution of shape D, the number of weights, so in every direction it
    has a deviation of s·√(D + 1), where Gaussian noise has one that does not depend on D. Columns
    that are always zero then do harm, and more of them more. Use `DPSGD`.

    Notes
    -----
    *What it costs.* A step is purely private, by the ratio of densities, and counted by Rényi
    divergences (`tacit.privacy.accounting.renyi`), which is how the appendix does it. In truth the
    loss of a step falls with D, since noise in many dimensions hardly ever points at the row: it is
    this account, which does not see it, that makes the noise too long.

    There is no exact sampler for it: ``arithmetic="fast"`` only, and not for release of anything
    that matters.

    Examples
    --------
    >>> GammaSGD(steps=100, batch_size=50).batch_size
    50
    """

    takes_drift: ClassVar[bool] = False
    arithmetics: ClassVar[tuple[str, ...]] = ("fast",)

    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        return super().suggest(replace(facts, mu=facts.mu / self.noise(1.0, facts)), given)

    def event(self, noise_multiplier: float, facts: PublicFacts) -> Event:
        q = self.sampling_probability(facts)
        return Gamma(noise_multiplier, int(self.steps), sampling_probability=q)

    def draws(self, features: int, outputs: int) -> int:
        return 0  # none of them exact

    def noise(self, noise_multiplier: float, facts: PublicFacts) -> float:
        # E‖z‖² = s²·D(D + 1), spread over D coordinates.
        return noise_multiplier * math.sqrt((facts.features + 1) * facts.outputs + 1)

    def noisy(self, total: BoundedSum, token: Token, step: int, rows: int) -> np.ndarray:
        return token.gamma(total)

    def remark(self) -> str:
        return (
            "That noise is so large because it is long in every direction at once, and the longer "
            "the more columns there are; Gaussian noise (DPSGD) is not."
        )
