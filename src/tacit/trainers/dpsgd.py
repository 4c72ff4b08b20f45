"""Noisy gradient descent on Poisson samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from tacit.engine.sensitivity import GradientSensitivity
from tacit.mechanisms.lattice import accounted_probability
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event, PoissonGaussian
from tacit.privacy.sensitivity.sampling import candidates, cheapest
from tacit.trainers.base import OrAuto, is_positive
from tacit.trainers.gradient import GradientTrainer
from tacit.trainers.settings import PublicFacts


@dataclass
class DPSGD(GradientTrainer):
    """Noisy gradient descent on Poisson samples (Abadi et al. 2016).

    Every row enters every batch independently, with probability
    ``batch_size`` / n, as the accounting assumes; an empty batch still adds its
    noise, and sums are divided by the *expected* batch size.

    Parameters
    ----------
    batch_size : float
        Expected number of rows in a batch.

    Examples
    --------
    >>> DPSGD(batch_size=500, steps=100).batch_size
    500
    """

    batch_size: OrAuto = "auto"
    samples: ClassVar[bool] = True

    @property
    def by_rule(self) -> bool:
        return type(self) is DPSGD

    @property
    def covers_steps(self) -> bool:
        return type(self) is DPSGD

    @property
    def takes_people(self) -> bool:
        return type(self) is DPSGD

    def check(self, facts: PublicFacts) -> None:
        super().check(facts)
        allowed = f"above 0 and at most the number of rows, {facts.size}"
        self._check("batch_size", lambda v: is_positive(v) and v <= facts.size, allowed)

    def sampling_probability(self, facts: PublicFacts) -> float:
        return accounted_probability(min(1.0, self.batch_size / facts.size))

    def event(self, noise_multiplier: float, facts: PublicFacts) -> Event:
        return PoissonGaussian(
            noise_multiplier,
            int(self.steps),
            sampling_probability=self.sampling_probability(facts),
            drift=facts.shifts,
            failure=facts.failure,
        )

    def account_drift(
        self, facts: PublicFacts, moves: GradientSensitivity, budget: Budget
    ) -> PublicFacts:
        """The cheapest way to bound what drift does to sampled sums."""
        moves.require_smooth()
        clip, norm = float(self.clip), self.reference_norm(moves)
        steps, q = int(self.steps), self.sampling_probability(facts)
        laws = candidates(
            moves.rows,
            constant=moves.constant(norm, clip, per_class=self.clipping == "per-class"),
            clip=clip,
            probability=q,
            n=facts.size,
            steps=steps,
            delta=budget.delta,
            most=moves.most(clip),
            extra=moves.rounding(norm, clip),
        )
        # About the noise that the budget will ask for: subsampled steps are nearly Gaussian.
        least = min(math.fsum(weight * b for weight, b in shifts) for shifts, _ in laws)
        noise = max(0.5, math.sqrt(steps) * (2 * q + least) / (2 * facts.mu))

        def event(shifts: tuple[tuple[float, float], ...], failure: float) -> Event:
            return self.event(noise, replace(facts, shifts=shifts, failure=failure))

        shifts, failure = cheapest(laws, event, budget.delta)
        return replace(facts, shifts=shifts, failure=failure)

    def reference_norm(self, moves: GradientSensitivity) -> float:
        """Norm of the weights that ``event`` states the drift for: the radius, or 1/R.

        Parameters
        ----------
        moves : GradientSensitivity
            What drift does to sums.

        Returns
        -------
        float
            A norm of weights.
        """
        largest = self.largest_norm(moves.features * moves.outputs)
        return largest if math.isfinite(largest) else 1 / moves.bound

    def reach(self, norm: float, moves: GradientSensitivity | None) -> float:
        """As accounted at weights of the `reference_norm`; larger by μ/μ₀ beyond.

        Divided by that ratio, clip and drift are at most those accounted for, and the
        dominating pair grows with both (``docs/drift.md``, section 2).
        """
        scale = 1.0
        if moves is not None:
            clip, per_class = float(self.clip), self.clipping == "per-class"
            base = self.reference_norm(moves)
            ratio = moves.constant(norm, clip, per_class=per_class) / moves.constant(
                base, clip, per_class=per_class
            )
            grown = moves.rounding(norm, clip) / max(moves.rounding(base, clip), 1e-300)
            scale = max(1.0, ratio, grown)
        return float(self.clip) * scale
