"""PILLAR's rivals (Pinto et al. 2024, section V and appendix B-F) on the same engine and the same
account.

Each differs from `DPGD` in one place: `GEP` clips two parts of a gradient separately, `AdaDPS`
moves weights as if the rows had not been rescaled, `DPRAFT` has settings of its own. All take
all rows in a step; `GEP` and `AdaDPS` take Poisson samples if told how large. Those that follow
public rows from step to step, as their papers have it, are in
`tacit.research.trainers.rivals_adaptive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tacit.engine.sensitivity import GradientSensitivity
from tacit.exceptions import InputError
from tacit.mechanisms.lattice import accounted_probability
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event
from tacit.trainers.base import OrAuto, is_positive, is_whole
from tacit.trainers.dpsgd import DPSGD
from tacit.trainers.gradient import GradientTrainer
from tacit.trainers.settings import PublicFacts, RuleConstants, suggest

UP = 1 + 2.0**-48  # a few roundings
# Sums that are hardly clipped shrink as the model fits, while the noise stays: it must be smaller.
# The reach is that of stable steps on rows of norm 1.
PROBE = {
    "classification": RuleConstants(noise=0.8, reach=8.0, clip=1.0),
    "regression": RuleConstants(noise=0.2, reach=2.0, clip=1.0),
}


@dataclass
class Batched(DPSGD):
    """Descent on all rows, or on Poisson samples of them.

    Parameters
    ----------
    batch_size : float, optional
        Expected number of rows in a Poisson sample; all rows are in every step if not given.

    Examples
    --------
    >>> Batched(batch_size=500).samples, Batched().samples
    (True, False)
    """

    batch_size: float | None = None

    @property
    def samples(self) -> bool:  # type: ignore[override]
        """Whether a step has a Poisson sample of the rows."""
        return self.batch_size is not None

    @property
    def by_rule(self) -> bool:
        return False

    @property
    def covers_steps(self) -> bool:
        return False

    def check(self, facts: PublicFacts) -> None:
        GradientTrainer.check(self, facts)
        allowed = f"None, or above 0 and at most the number of rows, {facts.size}"
        fits = lambda v: v is None or (is_positive(v) and v <= facts.size)  # noqa: E731
        self._check("batch_size", fits, allowed)

    def sampling_probability(self, facts: PublicFacts) -> float:
        if self.batch_size is None:
            return 1.0
        return accounted_probability(min(1.0, self.batch_size / facts.size))

    def event(self, noise_multiplier: float, facts: PublicFacts) -> Event:
        kind: type[GradientTrainer] = DPSGD if self.samples else GradientTrainer
        return kind.event(self, noise_multiplier, facts)

    def account_drift(
        self, facts: PublicFacts, moves: GradientSensitivity, budget: Budget
    ) -> PublicFacts:
        return super().account_drift(facts, moves, budget) if self.samples else facts

    def reach(self, norm: float, moves: GradientSensitivity | None) -> float:
        kind: type[GradientTrainer] = DPSGD if self.samples else GradientTrainer
        return kind.reach(self, norm, moves)


@dataclass
class GEP(Batched):
    """Gradient embedding perturbation (Yu, Zhang, Chen & Liu 2021).

    Gradients are split into an *embedding*, their part in a public anchor subspace, and
    the *residual* outside it; each is clipped to its own bound and gets its own noise.

    The gradient of a row x of a linear model is residual ⊗ x, so the span of k public
    directions, for all outputs, is a subspace of gradients: here the last
    ``n_components`` columns of the rows and the intercept's, which
    `tacit.preprocessing.PublicRotation` makes the public rows' strongest directions. Yu et al.
    find theirs anew in every step, by power iteration on gradients of public rows with
    random labels, because those of a deep network turn with its weights
    (`tacit.research.trainers.PowerGEP` does so). A linear model's stay in the span of the rows
    whatever the weights, and at weights of zero, where descent begins, all residuals of softmax
    or logistic loss are equally long whatever the labels, so that the rows' own directions are
    the gradients'. Here they are found once, exactly.

    **Event.** A step releases two Gaussian sums over the same rows. With deviations
    d₁ and d₂ it is one Gaussian mechanism on the joint vector (s₁/d₁, s₂/d₂), to which
    a row contributes at most (C₁/d₁)² + (C₂/d₂)² = 1/z² in squared norm, and may do so:
    the event is ``Gaussian(z, count=steps)``. For ``balance`` 1/2, as in the paper, both
    parts have noise √2·z·C, and that is the same as ``Gaussian(√2·z, count=2·steps)``. On
    Poisson samples both sums are over one sample, so the same joint vector is sampled:
    ``PoissonGaussian(z, steps, q)``.

    Parameters
    ----------
    n_components : int
        Dimension k of the anchor subspace, in columns.
    residual_clip : float
        Bound on the norm of the residual; ``clip`` is that of the embedding. By default a
        fifth of it (Pinto et al. 2024, appendix B-G).
    balance : float
        Part of a step's budget, 1/z², that goes to the embedding.

    Examples
    --------
    >>> from tacit import DPLinearClassifier, recipe
    >>> public = np.random.default_rng(0).normal(size=(50, 4))
    >>> DPLinearClassifier(**recipe("gep", public=public)).trainer.name
    'GEP'
    """

    n_components: OrAuto = "auto"
    residual_clip: OrAuto = "auto"
    balance: float = 0.5
    takes_drift: ClassVar[bool] = False

    def check(self, facts: PublicFacts) -> None:
        super().check(facts)
        if facts.features < 2:
            raise InputError("GEP needs rows of two columns or more; use DPGD")
        below = f"an integer from 1 to {facts.features - 1}, fewer than the columns"
        self._check("n_components", lambda v: is_whole(v) and 0 < v < facts.features, below)
        self._check("residual_clip", is_positive, "a positive number")
        self._check("balance", lambda v: is_positive(v) and v < 1, "between 0 and 1")

    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        # Most of a row lies in the anchor subspace, whose noise is larger by 1/√balance.
        filled = suggest(replace(facts, mu=facts.mu * math.sqrt(self.balance)), given)
        few = min(40, facts.features // 2)
        return {"n_components": few, "residual_clip": filled["clip"] / 5, **filled}

    @property
    def clips(self) -> tuple[float, ...]:
        return float(self.residual_clip), float(self.clip)

    def split(self, facts: PublicFacts) -> int:
        return facts.features - int(self.n_components)

    @property
    def shares(self) -> tuple[float, ...]:
        return 1 - self.balance, self.balance  # so Σ (C/d)² ≤ 1/z²

    def reaches(self, norm: float, moves: GradientSensitivity | None) -> tuple[float, ...]:
        if moves is not None:
            raise InputError("GEP is not analysed for rows that noiseless stages have moved")
        return self.clips


@dataclass
class AdaDPS(Batched):
    """Descent with a public preconditioner (Li, Zaheer, Reddi & Smith 2022, Algorithm 1).

    A row's gradient is divided by A, coordinate by coordinate, *before* it is clipped and
    the noise comes. Behind `tacit.preprocessing.PublicPrecondition`, which divides the columns of
    the rows by A, the engine's gradients are those: residual ⊗ x/A. The weights w that
    move belong to the rows as they were, so the engine sees A·w; momentum, averaging, pulls
    and radius are about w.

    Li et al. estimate A from labelled public rows along the way, or from what is known
    about the columns beforehand. Here it is fixed and takes no labels;
    `tacit.research.trainers.LabelledAdaDPS` has the first of the two.

    **Event.** That of `DPGD`, one Gaussian sum per step, ``Gaussian(z, count=steps)``; on Poisson
    samples that of `DPSGD`.

    Examples
    --------
    >>> from tacit import DPLinearClassifier, recipe
    >>> public = np.random.default_rng(0).normal(size=(50, 4))
    >>> DPLinearClassifier(**recipe("adadps", public=public)).trainer.name
    'AdaDPS'
    """

    needs_scales: ClassVar[bool] = True

    def scales(self, facts: PublicFacts, d: int) -> np.ndarray | None:
        if not facts.scales:
            return None
        found = np.ones((d, 1))  # the intercept's column is as it was
        found[: facts.features, 0] = facts.scales
        return found


@dataclass
class DPRAFT(GradientTrainer):
    """A linear probe by DP-RAFT (Panda, Tang, Sehwag, Mahloujifar & Mittal 2022).

    Weights begin at zero, batches are full, momentum is 0.9, the rate constant, and
    gradients are clipped to norm 1, which for rows of norm 1 (`tacit.preprocessing.Normalize`)
    shortens few of them.

    Their scaling rule (`scaling_rule`) says that the best rate × steps is linear in ε. They
    find the line by runs at small ε on the private rows, which costs budget; then rate
    and steps are any two numbers with that product. Here nothing is tuned on private
    rows. The factor follows from public facts, as for the other trainers
    (`tacit.trainers.settings`): rate × steps = 0.8·(1−m)·μ·n / (C·R), in proportion to the
    budget μ (nearly to ε, at a fixed δ), in 100 to 300 steps.

    **Event.** That of `DPGD`: one Gaussian sum per step, ``Gaussian(z, count=steps)``.

    Examples
    --------
    >>> from tacit import DPLinearClassifier, recipe
    >>> DPLinearClassifier(**recipe("dp-raft")).trainer.name
    'DPRAFT'
    """

    clip: OrAuto = 1.0
    momentum: OrAuto = 0.9
    average: OrAuto = "last"
    schedule: OrAuto = "constant"

    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        return suggest(facts, given, PROBE[facts.task])


def scaling_rule(best: Mapping[float, float]) -> Callable[[float], float]:
    """DP-RAFT's linear scaling rule: rate × steps for a budget, from what was best at others.

    Parameters
    ----------
    best : mapping of float to float
        ε to the best rate × steps, at two budgets or more: small ones, which trial runs can afford.
        What those runs cost is not counted here.

    Returns
    -------
    callable
        From ε to rate × steps: the line of least squares through the points, and never below the
        smallest of them.

    Examples
    --------
    >>> rule = scaling_rule({0.1: 2.0, 0.3: 6.0})
    >>> round(rule(1.0), 6)
    20.0
    """
    if len(best) < 2:
        raise InputError(f"a line needs two budgets or more, not {len(best)}")
    slope, start = np.polyfit(list(best), list(best.values()), 1)
    least = min(best.values())
    return lambda epsilon: max(least, float(slope * epsilon + start))
