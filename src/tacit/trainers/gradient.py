"""Noisy gradient descent on linear models: full batches, or Poisson samples.

A step is sample → residual → clip → sum → noise → move. Everything after the
noise (momentum, averaging, projection, pulls towards zero or the start) works on
released values and costs nothing. The trainer that runs is the one that states the
event, so sampler, clipping, noise and normaliser cannot part from the account.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tacit.engine.sensitivity import GradientSensitivity
from tacit.exceptions import InputError
from tacit.mechanisms.release import BoundedSum, Releases, Token
from tacit.privacy.events import Event, Gaussian
from tacit.trainers.averaging import AVERAGES
from tacit.trainers.base import (
    RANGE,
    OrAuto,
    Trainer,
    is_auto,
    is_in_range,
    is_number,
    is_positive,
    is_whole,
)
from tacit.trainers.constraints import SETS, ConvexSet, as_set, describe
from tacit.trainers.descent import SHARED, train_together
from tacit.trainers.feasible import require_feasible
from tacit.trainers.settings import PublicFacts, noise_left, suggest

LARGEST_STEPS = 10**7  # weeks on a table of any size
SCHEDULES = ("constant", "late", "linear", "cosine", "sqrt")
WANDERING = (
    " If weights have stopped growing by half of the run, the mean of the rest is returned, which "
    "has less noise than the last."
)


@dataclass
class GradientTrainer(Trainer):
    """Noisy descent; settings that full batches and samples share.

    Parameters
    ----------
    steps : int
        Noisy steps T.
    learning_rate : float
        Rate of the first step, on the *mean* clipped gradient.
    clip : float
        Bound C on the norm of one row's gradient.
    momentum : float
        Heavy-ball momentum in [0, 1).
    average : {"last", "uniform", "weighted", "converged"}
        Which iterate is returned: the last, the mean of all, the mean with weight t on iterate t
        (Lacoste-Julien, Schmidt & Bach 2012), or the mean of the second half if weights had
        stopped growing by then, and otherwise the last (`tacit.trainers.averaging`).
    schedule : {"constant", "late", "linear", "cosine", "sqrt"}
        How the rate falls over the run; ``"late"``: not before its last quarter.
    radius : float, optional
        Weights, the intercept's included, are projected onto the ball of this radius.
    alpha : float
        Strength α of the penalty α‖θ‖²/2 on the mean loss, which pulls towards zero: what
        scikit-learn calls ``alpha``. The intercept's weight is part of θ.
    anchor : float
        Strength of the penalty on ‖θ − θ₀‖²/2, which pulls towards the weights that a run begins
        at (Li et al. 2022, Algorithm 1). From zero, it is the same as ``alpha``.
    clipping : {"flat", "per-class"}
        Clip a row's whole gradient to C, or every class's part to C/√K.
    intercept_fraction : float
        Size of the constant feature that carries the intercept, as a part of
        the row bound.
    constraint : ConvexSet, optional
        Any other set that weights are projected onto (`tacit.trainers.constraints`), in place of a
        ``radius``: `Box`, `Simplex`, `L1Ball`, or a class of one's own.

    Examples
    --------
    >>> GradientTrainer(steps=4, learning_rate=2.0, schedule="linear").rates()
    array([2. , 1.5, 1. , 0.5])
    """

    steps: OrAuto = "auto"
    learning_rate: OrAuto = "auto"
    clip: OrAuto = "auto"
    momentum: OrAuto = "auto"
    average: OrAuto = "auto"
    schedule: OrAuto = "auto"
    radius: float | None = None
    alpha: float = 0.0
    anchor: float = 0.0
    clipping: str = "flat"
    intercept_fraction: OrAuto = "auto"
    constraint: Any = None
    #: Whether the weights of all steps are kept until the last.
    keeps_iterates: ClassVar[bool] = False
    takes_drift: ClassVar[bool] = True
    takes_strict: ClassVar[bool] = True
    takes_start: ClassVar[bool] = True
    descends: ClassVar[bool] = True
    require_feasible = require_feasible

    @property
    def by_rule(self) -> bool:
        """Whether what is left open follows the rule of `tacit.trainers.settings` as it is."""
        return False

    @property
    def follows(self) -> bool:
        return self.by_rule and is_auto(self.intercept_fraction)

    def resolve_again(self, facts: PublicFacts, resolved: Any) -> GradientTrainer:
        return replace(self, steps=resolved.steps).resolve(facts)

    @property
    def takes_monotone(self) -> bool:
        own = type(self)
        return own.train is Trainer.train and own.train_group is GradientTrainer.train_group

    @property
    def shared_settings(self) -> tuple[Any, ...]:
        if type(self).train is not Trainer.train or self.samples:
            return ()
        return self.name, *(getattr(self, name, None) for name in SHARED)

    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        return suggest(facts, given)

    def check(self, facts: PublicFacts) -> None:
        allowed = f"an integer from 1 to {LARGEST_STEPS:,}"
        self._check("steps", lambda v: is_whole(v) and 1 <= v <= LARGEST_STEPS, allowed)
        for name in ("learning_rate", "intercept_fraction"):
            self._check(name, is_positive, "a positive number")
        self._check("clip", is_in_range, RANGE)
        self._check("momentum", lambda v: is_number(v) and 0 <= v < 1, "in [0, 1)")
        self._check("average", lambda v: v in AVERAGES, f"one of {', '.join(AVERAGES)}")
        self._check("schedule", lambda v: v in SCHEDULES, f"one of {', '.join(SCHEDULES)}")
        self._check("radius", lambda v: v is None or is_positive(v), "a positive number or None")
        self._check_constraint(facts)
        for name in ("alpha", "anchor"):
            self._check(name, lambda v: is_number(v) and v >= 0, "0 or a positive number")
        self._check("clipping", lambda v: v in ("flat", "per-class"), "flat or per-class")

    def _check_constraint(self, facts: PublicFacts) -> None:
        held = as_set(self.constraint)
        if held is None:
            return
        if not isinstance(held, ConvexSet):
            raise InputError(
                f"{self.name}(constraint={held!r}) must be a convex set, such as Box(-1.0, 1.0), "
                "or have its methods project and reach"
            )
        if self.radius is not None:
            raise InputError(f"{self.name}: pass radius= or constraint=, not both")
        if facts.monotone:
            raise InputError(
                f"{self.name}: weights that must not fall or rise are projected already; leave out "
                "constraint= or the shapes"
            )
        if self.contracts and type(held) not in SETS.values():
            raise InputError(
                f"{self.name} is private only if projections bring no weights farther apart: "
                f"constraint= must be one of {', '.join(SETS)}"
            )

    @property
    def convex_set(self) -> ConvexSet | None:
        """What weights are projected onto, if not a ball."""
        return as_set(self.constraint)

    def largest_norm(self, count: int) -> float:
        """Norm that weights do not exceed, by ``radius`` and ``constraint``.

        Parameters
        ----------
        count : int
            Number of weights.

        Returns
        -------
        float
            Infinite if nothing holds them.
        """
        if self.radius is not None:
            return float(self.radius)
        held = self.convex_set
        return math.inf if held is None else float(held.reach(count))

    def parameters(self) -> dict[str, Any]:
        found = super().parameters()
        held = found.pop("constraint")
        return found if held is None else {**found, "constraint": describe(self.constraint)}

    def constant(self, bound: float) -> float:
        return float(self.intercept_fraction) * bound

    def event(self, noise_multiplier: float, facts: PublicFacts) -> Event:
        """What all steps together cost.

        Noise is in units of half the distance between neighbouring sums, which is
        the clip, and more where rows drifted (`deviation`).

        Parameters
        ----------
        noise_multiplier : float
            Standard deviation of the noise, in those units.
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        Event
            As an accountant takes it.
        """
        return Gaussian(noise_multiplier, count=int(self.steps))

    def draws(self, features: int, outputs: int) -> int:
        return int(self.steps) * features * outputs

    def members(self, step: int, n: int) -> np.ndarray | None:
        """Rows of a step that is not drawn at random; None for all of them.

        Parameters
        ----------
        step : int
            From 0.
        n : int
            Number of rows.

        Returns
        -------
        ndarray of int, of shape (m,), or None
            Their positions.
        """
        return None

    def normaliser(self, facts: PublicFacts) -> float:
        """What sums are divided by: the rows that a step expects.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        float
            Public.
        """
        return self.sampling_probability(facts) * facts.size

    def noise(self, noise_multiplier: float, facts: PublicFacts) -> float:
        """Standard deviation of the noise on a step's sum, in clips.

        Parameters
        ----------
        noise_multiplier : float
            That of the event.
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        float
            In clips.
        """
        return noise_multiplier

    def sampled(self, facts: PublicFacts) -> str:
        """Which rows a step looks at, in words.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.

        Returns
        -------
        str
            For `explain`.
        """
        q = self.sampling_probability(facts)
        unit = facts.unit
        return f"all {unit.plural}" if q == 1 else f"each {unit.kind} with probability {q:.3g}"

    def noisy(self, total: BoundedSum, token: Token, step: int, rows: int) -> np.ndarray:
        """A sum over that many rows, with its noise.

        Parameters
        ----------
        total : BoundedSum
            A sum whose bound was enforced.
        token : Token
            What may be drawn.
        step, rows : int
            Number of the step, from 0; rows that were summed.

        Returns
        -------
        ndarray of shape (d, K)
            The sum, through noise.
        """
        return token.gaussian(total)

    def remark(self) -> str:
        """What a plan should say of it besides its steps and their noise.

        Returns
        -------
        str
            A sentence, or nothing.
        """
        return ""

    def explain(self, noise_multiplier: float, facts: PublicFacts) -> list[str]:
        clips = self.clips
        in_parts = "" if len(clips) == 1 else " in two parts (outside and in the subspace)"
        added = self.deviations(noise_multiplier, 0.0, None)
        scaled = [deviation / clip for deviation, clip in zip(added, clips, strict=True)]
        noise = [self.noise(z, facts) for z in scaled]
        mean = [z / self.normaliser(facts) for z in noise]
        joint = "" if len(clips) == 1 else f", which count as one sum with {noise_multiplier:.4g}"
        lines = [
            f"Training, {self.name}: {self.steps} steps on {self.sampled(facts)}, each "
            f"{facts.unit.kind}'s gradient clipped{in_parts} to {_listed(clips, 3)}, first rate "
            f"{float(self.learning_rate):.3g} ({self.schedule}), momentum "
            f"{float(self.momentum):g}.",
            f"Noise on every step's sum: {_listed(noise, 4)} clipped gradients{joint}; on the mean "
            f"gradient that is {_listed(mean, 3)} clips a coordinate.",
        ]
        return [*lines, self.remark()] if self.remark() else lines

    def explain_settings(self, asked: Any, facts: PublicFacts, *, constant: bool) -> list[str]:
        if not self.by_rule:
            return []
        names = ("steps", "learning_rate", "clip", "momentum", "intercept_fraction")
        if not any(is_auto(getattr(asked, name)) for name in names):
            return ["Settings: all of them were given."]
        norm = "as the stages leave it"
        if facts.measured:
            norm = "as the released mean shows it"
        elif (
            facts.mean_noise_norm
            and facts.task == "classification"
            and is_auto(asked.intercept_fraction)
        ):
            norm = "and less once a mean is released"
        wandering = WANDERING * (self.average == "converged")
        feature = f", the constant feature {float(self.intercept_fraction):.3g}" * constant
        return [
            f"Settings, where not given: all {facts.unit.plural} together weigh "
            f"{facts.size * facts.mu:.4g} times the noise. A typical row has norm "
            f"{facts.typical_norm:.3g}, {norm}. The clip is "
            f"{float(self.clip) / facts.typical_norm:.2g} of such a row{feature}. Rate and steps "
            f"are to leave noise of {noise_left(self, facts):.2g} in its score: more would drown "
            f"what rows say, less would stop before they have said it.{wandering}"
        ]

    @property
    def clips(self) -> tuple[float, ...]:
        """The clip of every part of a row's gradient that is clipped by itself."""
        return (float(self.clip),)

    def scales(self, facts: PublicFacts, d: int) -> np.ndarray | None:
        """What the d columns of the rows were divided by, if the weights move as if they were not.

        Public numbers of shape (d, 1). Whatever is done to weights, only the engine
        sees them scaled.

        Parameters
        ----------
        facts : PublicFacts
            What is known before any row is read.
        d : int
            Columns, the constant feature included.

        Returns
        -------
        ndarray of shape (d, 1), or None
            Divisors.
        """
        return None

    @property
    def shares(self) -> tuple[float, ...]:
        """What each part of a gradient takes of a step's budget, 1/z²; they sum to one."""
        return (1.0,)

    def reaches(self, norm: float, moves: GradientSensitivity | None) -> tuple[float, ...]:
        """Half of how far neighbours' sums of every part lie apart, at weights of that norm.

        Parameters
        ----------
        norm : float
            Of the weights.
        moves : GradientSensitivity or None
            What drift does to sums; None without noiseless stages.

        Returns
        -------
        tuple of float
            One for each part.
        """
        return (self.reach(norm, moves),)

    def reach(self, norm: float, moves: GradientSensitivity | None) -> float:
        """Half of how far neighbours' sums lie apart, at weights of that norm.

        They lie within 2C + b, b following the weights: so every step has the same privacy,
        whatever weights it meets (``docs/drift.md``, section 5).

        Parameters
        ----------
        norm : float
            Of the weights.
        moves : GradientSensitivity or None
            What drift does to sums; None without noiseless stages.

        Returns
        -------
        float
            The clip, or more.
        """
        half = float(self.clip)
        if moves is not None:
            half += moves.distance(norm, half, per_class=self.clipping == "per-class") / 2
        return half

    def deviations(
        self, noise_multiplier: float, norm: float, moves: GradientSensitivity | None
    ) -> tuple[float, ...]:
        """Standard deviation of the noise on the sum of every part, for reading.

        Parameters
        ----------
        noise_multiplier : float
            That of the event.
        norm : float
            Of the weights.
        moves : GradientSensitivity or None
            What drift does to sums; None without noiseless stages.

        Returns
        -------
        tuple of float
            One for each part.
        """
        shares, reaches = self.shares, self.reaches(norm, moves)
        pairs = zip(shares, reaches, strict=True)
        return tuple(noise_multiplier / math.sqrt(share) * reach for share, reach in pairs)

    def deviation(
        self, noise_multiplier: float, norm: float, moves: GradientSensitivity | None
    ) -> float:
        """Standard deviation of the noise on the sum of the only part, or of the first.

        Parameters
        ----------
        noise_multiplier : float
            That of the event.
        norm : float
            Of the weights.
        moves : GradientSensitivity or None
            What drift does to sums; None without noiseless stages.

        Returns
        -------
        float
            The first of `deviations`.
        """
        return self.deviations(noise_multiplier, norm, moves)[0]

    def inflation(self, norm: float, moves: GradientSensitivity) -> float:
        return self.deviation(1.0, norm, moves) / float(self.clip)

    def rates(self) -> np.ndarray:
        """Learning rate of every step.

        Returns
        -------
        ndarray of shape (steps,)
            Positive.
        """
        steps = int(self.steps)
        done = np.arange(steps) / steps
        shapes: dict[str, Callable[[], np.ndarray]] = {
            "constant": lambda: np.ones_like(done),
            "late": lambda: np.minimum(1.0, 4 * (1.0 - done)),
            "linear": lambda: 1.0 - done,
            "cosine": lambda: (1 + np.cos(np.pi * done)) / 2,
            "sqrt": lambda: 1 / np.sqrt(1 + done * steps),
        }
        return float(self.learning_rate) * shapes[self.schedule]()

    def train_group(
        self,
        others: Sequence[Any],
        engine: Any,
        runs: Sequence[Releases],
        facts: PublicFacts,
        **how: Any,
    ) -> np.ndarray:
        trainers = [self, *others]
        tokens = [run.token(trainer.name) for run, trainer in zip(runs, trainers, strict=True)]
        return train_together(engine, trainers, tokens, facts, **how)


def require_descent(trainer: Trainer) -> GradientTrainer:
    """The trainer, which must take steps."""
    if not isinstance(trainer, GradientTrainer):
        raise InputError(f"{trainer.name} takes no steps: use DPGD or DPSGD")
    return trainer


def _listed(numbers: Sequence[float], digits: int) -> str:
    return " and ".join(f"{number:.{digits}g}" for number in numbers)
