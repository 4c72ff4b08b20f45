"""Descent on any smooth loss, convex or not: of all iterates, the rows choose the flattest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

import numpy as np

from tacit.engine.engine import Engine, LatticeSum
from tacit.exceptions import InputError
from tacit.losses import Loss
from tacit.mechanisms.release import Releases
from tacit.privacy.events import Event, Selection
from tacit.research.theory import flatness
from tacit.trainers.base import RANGE, OrAuto, Training, is_in_range
from tacit.trainers.descent import train_together
from tacit.trainers.dpgd import MOST_STEPS
from tacit.trainers.gradient import GradientTrainer
from tacit.trainers.settings import INTERCEPT_FRACTION, PublicFacts

SHARE = 0.2  # part of the Gaussian budget that the choice takes


@dataclass
class FlattestDPGD(GradientTrainer):
    """Noisy descent that returns the iterate of least gradient (Song et al. 2021, Theorem 4.1).

    Without convexity the last iterate or the mean of all may be anywhere. Some iterate, though, has
    a small gradient, and the exponential mechanism finds it: ‖Σ gᵢ(θₜ)‖ is the utility, negated.
    Steps and rate are those of `tacit.research.theory.flatness`, which corrects the theorem.

    Parameters
    ----------
    choice_noise : float
        β of the exponential mechanism, in clips; ``"auto"`` spends a fifth of the Gaussian budget
        on the choice.

    Notes
    -----
    *What it costs.* The steps are those of `DPGD`. One row contributes a vector of norm at most C
    to a sum, so by the triangle inequality it moves the sum's norm by at most C, at every iterate;
    replacing it, by 2C. Norms are rounded down to whole lattice spacings g, which adds one at most:
    they are told in units of C/g + 1, and the choice is ``Selection(choice_noise)``. The theorem
    adds Laplace noise of 4L/n, private at ε = 1 only, whatever ε is.

    Candidates are θ₁ … θ_T. The theorem's are θ₀ … θ_{T−1}; its bound holds for both, since one
    more step without noise from θ_T could be taken, and θ₀ = 0 is no model.

    Examples
    --------
    >>> FlattestDPGD(steps=50).steps
    50
    """

    choice_noise: OrAuto = "auto"
    takes_drift: ClassVar[bool] = False
    takes_start: ClassVar[bool] = False
    takes_strict: ClassVar[bool] = False
    keeps_iterates: ClassVar[bool] = True

    def check(self, facts: PublicFacts) -> None:
        super().check(facts)
        self._check("choice_noise", is_in_range, RANGE)
        self._check("average", lambda v: v == "last", "last: a single iterate is returned")

    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        # Selection(b) costs at most √(π/2)/b in units of μ (docs/decisions/0014).
        unit = math.sqrt(math.pi / 2) / facts.mu
        choice = float(given.get("choice_noise", unit / SHARE))
        left = facts.mu * math.sqrt(max(1 - (unit / choice) ** 2, 0.01))
        chosen = super().suggest(
            replace(facts, mu=left), {"intercept_fraction": INTERCEPT_FRACTION, **given}
        )
        chosen |= {"average": "last", "choice_noise": choice}
        if facts.loss is not None:
            chosen |= _by_theorem(facts.loss, replace(facts, mu=left), given)
        return {**chosen, **given}

    def events(self, noise_multiplier: float, facts: PublicFacts) -> tuple[tuple[str, Event], ...]:
        choice = (f"{self.name} choice", Selection(float(self.choice_noise)))
        return (*super().events(noise_multiplier, facts), choice)

    def draws(self, features: int, outputs: int) -> int:
        return super().draws(features, outputs) + 1

    def remark(self) -> str:
        return (
            f"Of the {self.steps} iterates the flattest is returned, chosen through noise of "
            f"{float(self.choice_noise):.4g} clips."
        )

    def train(
        self, engine: Engine, run: Releases, facts: PublicFacts, **how: Unpack[Training]
    ) -> np.ndarray:
        found: list[np.ndarray] = []
        lengths: list[float] = []

        def visit(weights: np.ndarray, total: LatticeSum) -> None:
            found.append(weights[0])
            lengths.append(norm_of(total))

        how["init"] = None
        last = train_together(engine, [self], [run.token(self.name)], facts, visit=visit, **how)
        per_class = self.clipping == "per-class"
        total = engine.gradient_sum(last, float(self.clip), per_class=per_class)
        visit(last, total)
        spacings = float(self.clip) / float(total.lattice[0])
        if total.values.dtype.kind == "i":
            spacings += 1  # norms were rounded down
        utilities = [-length for length in lengths[1:]]
        choice = run.token(f"{self.name} choice").at("choice")
        return found[1 + choice.choose(utilities, spacings * (1 + 1e-15))]


def norm_of(total: LatticeSum) -> float:
    """Norm of the first setting's sum; in whole spacings, rounded down, where sums are exact."""
    values = total.values[0].reshape(-1)
    if values.dtype.kind == "i":
        return math.isqrt(sum(value * value for value in values.tolist()))
    return float(np.linalg.norm(values))


def _by_theorem(loss: Loss, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
    """Steps, rate and clip of the corrected theorem."""
    square = facts.typical_norm**2 * (
        1 + float(given.get("intercept_fraction", INTERCEPT_FRACTION)) ** 2
    )
    smoothness = loss.smoothness * square
    clip = float(given.get("clip", loss.lipschitz(facts.outputs) * math.sqrt(square)))
    if not (math.isfinite(smoothness) and math.isfinite(clip)):
        if {"learning_rate", "clip"} <= given.keys():
            return {}
        raise InputError(
            f"FlattestDPGD needs a smooth loss with bounded gradients, not {loss.name!r}; or pass "
            "learning_rate= and clip="
        )
    zero = np.zeros((1, facts.outputs))
    start = float(loss.value(zero, loss.targets(np.zeros(1, dtype=int), facts.outputs)).mean())
    rank = min(facts.features + 1, facts.size) * facts.outputs
    found = flatness.within(
        facts.mu, facts.size, rank, smoothness=smoothness, start=max(start, 0.1), lipschitz=clip
    )
    settings = {**found.settings, "average": "last"}
    return {**settings, "steps": min(found.steps, MOST_STEPS)}
