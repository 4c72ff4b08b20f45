"""Settings from public facts, where the user gives none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.losses import Loss
from tacit.privacy.unit import ROW, Unit

INTERCEPT_FRACTION = 0.1  # size of the constant feature, in row bounds
#: Of the descent that theorems are about, which bounds the mean of its iterates.
PLAIN_STEPS = {"momentum": 0.0, "average": "uniform", "schedule": "constant"}


@dataclass(frozen=True)
class PublicFacts:
    """What is known before any row is read.

    Attributes
    ----------
    size : int
        Number of rows, or of people, or the public stand-in for it.
    features : int
        Columns of the rows that reach the trainer, without the intercept's.
    outputs : int
        Columns of scores: 1, or the number of classes.
    typical_norm : float
        Norm of a typical one of those rows.
    mu : float
        The Gaussian budget left for training (Gaussian DP's μ), per unit of
        sensitivity under the plan's relation.
    task : str
        ``classification`` or ``regression``.
    drift : float
        How far the rows of neighbours may lie apart in all, after noiseless stages.
    shifts, failure
        What that does to sampled sums, as `tacit.privacy.PoissonGaussian` states it.
    scales : tuple of float
        What `tacit.preprocessing.PublicPrecondition`, as last stage, divided the columns by.
    loss : Loss, optional
        What is minimised, for settings that follow from its constants.
    limit : float, optional
        Norm that no row exceeds.
    mean_noise_norm : float
        How far from the origin a mean that was subtracted with its noise leaves all rows.
    measured : bool
        Whether ``typical_norm`` is what a released mean shows.
    monotone : tuple of (int, int, int)
        Which weights must not fall from one to the next (`tacit.trainers.monotone`).
    moment_noise : float
        Norm of the noise on a second moment of the rows, in squared norms of a typical one; 0 if
        none is released.
    moment : (ndarray of shape (k,), ndarray of shape (f, k)), optional
        Its eigenvalues and eigenvectors above the noise, once it is.
    unit : Unit
        Whose gradients are clipped: those of rows, or of people with so many rows at most.
    """

    size: int
    features: int
    outputs: int
    typical_norm: float
    mu: float
    task: str = "classification"
    drift: float = 0.0
    shifts: tuple[tuple[float, float], ...] = ()
    failure: float = 0.0
    scales: tuple[float, ...] = ()
    loss: Loss | None = None
    limit: float | None = None
    mean_noise_norm: float = 0.0
    measured: bool = False
    monotone: tuple[tuple[int, int, int], ...] = ()
    moment_noise: float = 0.0
    moment: tuple[np.ndarray, np.ndarray] | None = field(default=None, compare=False)
    unit: Unit = ROW


@dataclass(frozen=True)
class RuleConstants:
    """The constants of the rule, for one kind of target.

    Attributes
    ----------
    noise : float
        Noise that a run may leave in the score of a row of the norm of the bound.
    reach : float
        Largest first rate × clip × bound: steps stay stable up to here.
    clip : float
        Bound on one row's gradient, in row bounds.
    room : float
        What n·μ must be for the clip to grow, as its cube root and up to half the row bound.
    rate : float
        Largest first rate, in squared row bounds.
    intercept_fraction : float
        Size of the constant feature, in row bounds.
    intercept_per_mean_noise : float
        That fraction is at least so many times the norm of the noise left in the mean over the
        row bound, up to `LARGEST_INTERCEPT_FRACTION`: where one class is rare, nearly all
        gradients push scores one way, and what noise has left of the mean is a way that they
        must not take.
    least : float
        Score that rows which all said the same would reach, at least: where there are few of
        them for the budget, a run has more noise rather than get nowhere.
    most : float
        Noise beyond which that is no use.
    """

    noise: float
    reach: float
    clip: float
    room: float = math.inf
    rate: float = math.inf
    intercept_fraction: float = INTERCEPT_FRACTION
    intercept_per_mean_noise: float = 0.0
    least: float = 0.0
    most: float = math.inf


# Scores of classes are compared with each other and may be large; targets lie in [-1, 1], so
# their noise must be small, and squared errors bound the rate by two over the squared norm. A
# clip pulls predictions from means towards medians: that is worth its noise only while there is
# much of it. The mean of the targets may be far from the middle of their bounds, which is where
# descent begins, and the intercept has all that way to go (docs/decisions/0029). Of two classes
# the order of the scores suffers from a small clip, of many the choice does from a large one
# (docs/decisions/0032). Rows that drift make noise grow with the weights.
RULE_CONSTANTS = {
    "two classes": RuleConstants(
        noise=0.8,
        reach=48.0,
        clip=0.5,
        intercept_fraction=0.15,
        intercept_per_mean_noise=4.0,
        least=200.0,
        most=4.0,
    ),
    "classes": RuleConstants(
        noise=1.4, reach=48.0, clip=0.1, intercept_fraction=0.15, least=200.0, most=4.0
    ),
    "drift": RuleConstants(noise=1.05, reach=48.0, clip=0.1),
    "regression": RuleConstants(
        noise=0.25, reach=math.inf, clip=0.1, room=300.0, rate=2.0, intercept_fraction=0.3
    ),
    "regression with drift": RuleConstants(
        noise=0.25 / 3, reach=math.inf, clip=0.1, room=300.0, rate=2.0, intercept_fraction=0.3
    ),
}


@dataclass(frozen=True)
class FewSteps:
    """Steps along a released second moment: how many, their momentum, their part of the noise."""

    steps: int
    momentum: float
    noise: float = 1.0


# Where noise hides the first directions of the rows, a few steps more keep their share of it down
# (docs/decisions/0051).
CLEAR, HIDDEN = FewSteps(20, 0.5), FewSteps(24, 0.6, noise=0.8)
HIDING = 0.03  # noise of a second moment from which on it does, in squared norms of a typical row
# Eigenvalues below the noise are not told from zero, so that the rate times the noise is at most
# 2(1 + m) over the curvature, 1/4 for two classes (Polyak 1964).
MOST_HIDDEN = 12.0
MOST_PULL = 0.5  # of the way to where alpha and anchor pull, in one step: more would swing
LARGEST_INTERCEPT_FRACTION = 0.3
# Of two classes, the sum of a person's rows is clipped to half of what a row's gradient would be:
# rows of one person say much the same, and a larger clip pays for it in noise (decision 61).
PEOPLE_CLIP = 0.5


# What all rows together can say in a score, in units of its noise, with a curator or without:
# below the first of these, models of the census table did worse than always guessing the more
# common class; up to the second no better, while classes that lie apart were told apart as well as
# they can be (docs/decisions/0026).
HOPELESS, POOR = 20.0, 60.0
EACH = 3.0  # the same for one of many classes


def outlook(
    signal: float,
    size: int,
    classes: int,
    rows: Callable[[float], float] = float,
    units: str = "rows",
) -> str:
    """A warning of a plan whose rows can say too little, in words; nothing if they may do.

    Parameters
    ----------
    signal : float
        What all rows together can say in a score, in units of its noise: n·μ as a rule.
    size : int
        Number of rows, or of people.
    classes : int
        Number of classes; 0 for regression.
    rows : callable
        How many times as many rows say so many times as much.
    units : str
        What there are so many of: rows or people.
    """
    if signal >= HOPELESS and (classes <= 2 or signal >= EACH * classes):
        return ""
    more = max(POOR, EACH * classes) / signal
    guess = "guessing the middle of its range" if classes == 0 else "guessing the largest class"
    easy = (
        "the target all but follows from the columns" if classes == 0 else "classes lie far apart"
    )
    return (
        f"The noise in a score weighs as much as {size / signal:.3g} of the {size} {units} would "
        f"if all of them said the same: unless {easy}, this model cannot be expected to do better "
        f"than {guess} every time. About {rows(more):.2g} times as many {units}, or a budget "
        f"{more:.2g} times as large, would change it."
    )


def prospect(signal: float, classes: int) -> str:
    """What a plan says of itself where rows may say enough, or not; nothing if it is a lot."""
    if not HOPELESS <= signal < POOR or signal < EACH * classes:
        return ""
    enough = "a target that follows the columns closely" if classes == 0 else "classes well apart"
    return (
        f"All rows together weigh {signal:.3g} times the noise in a score. That is enough for "
        f"{enough}; on a table as hard as the census, models with less than {POOR:g} did no better "
        "than guessing."
    )


def noise_left(trainer: Any, facts: PublicFacts) -> float:
    """What a run leaves in the score of a row of that norm, if its rate is constant."""
    way = (
        float(trainer.learning_rate) * float(trainer.clip) * facts.typical_norm * int(trainer.steps)
    )
    return way / ((1 - float(trainer.momentum)) * facts.mu * facts.size)


def suggest(
    facts: PublicFacts, given: Mapping[str, Any], constants: RuleConstants | None = None
) -> dict[str, Any]:
    """A value for every setting, those in ``given`` kept and taken into account.

    The rule weighs noise against time. T steps at rate η, momentum m and clip C
    on n rows of norm R leave noise of about η·C·R·T / ((1−m)·μ·n) in a score:
    it depends on the product η·T, not on T alone, and so does the way that the
    weights have gone. Hence the noise is set to a constant (`RULE_CONSTANTS`), which
    serves data sets of very different size, and T is only as large as stable
    steps need. Where n·μ is so small that scores would stay near zero, there is
    more of it. All of it is in norms of a typical row, as the stages leave rows
    and, once a mean is released, as it shows them (docs/decisions/0032). The
    rate stays constant while noise is what limits it, since decay would spend
    noise on steps that hardly move; beyond that, and where errors pull weights
    back from wherever noise has brought them, the last quarter cools down.
    """
    constants = constants or RULE_CONSTANTS[_kind(facts)]
    few = _few_steps(facts)
    momentum = float(given.get("momentum", few.momentum if few else 0.9))
    grown = max(1.0, facts.size * facts.mu / constants.room) ** (1 / 3)
    several = facts.unit.rows > 1 and constants is RULE_CONSTANTS["two classes"]
    least = constants.clip * grown * facts.typical_norm * (PEOPLE_CLIP if several else 1.0)
    # Rows that drift bring noise of their own, about that of a clip of half the drift: a smaller
    # clip would only lose signal beside it. It grows with the weights (μ is about 3 at norm 10/R),
    # so a run that went as far as without drift would drown in what it has stirred up.
    clip = float(given.get("clip", min(max(least, facts.drift / 2), facts.typical_norm / 2)))
    mu = facts.mu / (1 + 1.5 * facts.drift / clip)
    noise = constants.noise * (few.noise if few else 1.0)
    noise = max(noise, min(constants.most, constants.least / (mu * facts.size)))
    travel = noise * (1 - momentum) * mu * facts.size  # η·C·R·T
    reach = min(constants.reach, constants.rate * clip / facts.typical_norm)
    if few:  # stable whatever noise may hide
        reach = MOST_HIDDEN / facts.moment_noise * clip / facts.typical_norm
    usual = few.steps if few else min(300, max(100, math.ceil(travel / reach)))
    steps = int(given.get("steps", usual))
    limited = few is not None or (travel / steps <= constants.reach and math.isinf(constants.rate))
    fraction = constants.intercept_per_mean_noise * facts.mean_noise_norm / facts.typical_norm
    fraction = max(constants.intercept_fraction, min(LARGEST_INTERCEPT_FRACTION, fraction))
    rate = min(travel / steps, reach) / (clip * facts.typical_norm)
    pull = float(given.get("alpha", 0.0)) + float(given.get("anchor", 0.0))
    if rate * pull > MOST_PULL:
        rate = MOST_PULL / pull
    return {
        "steps": steps,
        "momentum": momentum,
        "clip": clip,
        "learning_rate": rate,
        "average": "converged" if facts.measured else "last",
        "schedule": "constant" if limited else "late",
        "intercept_fraction": fraction,
        "batch_size": min(float(facts.size), max(256.0, facts.size / 16)),
        **given,
    }


def constant_rate(
    mu: float, size: int, rank: int, *, norm: float, clip: float, steps: int
) -> float:
    r"""The rate of plain steps for which the bound of Song et al. 2021, Theorem 3.1, is least.

    η = N/√((T + 1)(C² + rσ²)) for T steps, gradients of norm at most C, the best weights of norm at
    most N, rows of rank r, and noise of deviation σ = C√T/(nμ) on the mean gradient.
    """
    unit = 1 / (size * mu)
    strength = clip * math.sqrt(1 + rank * steps * unit**2)  # √(C² + rσ²)
    return norm / (math.sqrt(steps + 1) * strength)


def _few_steps(facts: PublicFacts) -> FewSteps | None:
    """Steps that follow a second moment, if one is released."""
    if not facts.moment_noise:
        return None
    return HIDDEN if facts.moment_noise > HIDING else CLEAR


def _kind(facts: PublicFacts) -> str:
    """Which constants are for them."""
    if facts.task == "regression":
        return "regression with drift" if facts.drift else "regression"
    if facts.drift:
        return "drift"
    return "two classes" if facts.outputs == 1 else "classes"
