"""Whether a run can be made at all, by public facts: what cannot is refused before it costs."""

from __future__ import annotations

import cmath
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.memory import machine_memory
from tacit.engine.checks import MOST_ROWS
from tacit.engine.people import clipping_of
from tacit.engine.quantization import LIMIT, ROUNDED_ROWS, Scale, check_range
from tacit.exceptions import InputError
from tacit.mechanisms.lattice import sigma_for
from tacit.trainers.settings import PublicFacts

if TYPE_CHECKING:
    from tacit.trainers.gradient import GradientTrainer

ARRAYS = 12  # as large as the weights: these, their velocity and mean, sums, noise, gradients
ROOM = 2.0**10  # between what is planned and the limits: what stages release moves rows a little
LARGEST_SQUARABLE = 1e150  # whose square is a number


def require_feasible(
    trainer: GradientTrainer,
    facts: PublicFacts,
    noise_multiplier: float,
    *,
    intercept_scaling: float,
    arithmetic: str,
) -> None:
    """Refuse a run of descent that cannot be made: `Trainer.require_feasible`.

    Parameters
    ----------
    trainer : GradientTrainer
        With every setting fixed.
    facts : PublicFacts
        What is known before any row is read.
    noise_multiplier : float
        That of the event.
    intercept_scaling : float
        Size of the constant feature; 0 for none.
    arithmetic : str
        Of the engine: exact, strict, rounded or fast.

    Raises
    ------
    InputError
        If there are too many rows for the arithmetic, too little memory, or numbers that may
        leave its range.
    """
    kind = "exact" if arithmetic == "strict" else arithmetic
    most = {"strict": MOST_ROWS - 1, "rounded": ROUNDED_ROWS}.get(arithmetic, math.inf)
    if facts.size > most:
        raise InputError(f"{facts.size} rows are too many for arithmetic={arithmetic!r}: {most:,}")
    if intercept_scaling > LIMIT:
        raise InputError(
            f"{trainer.name}(intercept_fraction={trainer.intercept_fraction!r}) is too large for "
            "these rows"
        )
    width, bound = facts.features + bool(intercept_scaling), _bound(facts)
    for size in (bound / ROOM, bound * ROOM):
        check_range("the norm bound of the rows", size)
    _require_memory(trainer, facts, width)
    scale = Scale.of(bound, width, None, intercept_scaling)
    deviations = trainer.deviations(noise_multiplier, 0.0, None)
    for clip, deviation in zip(trainer.clips, deviations, strict=True):
        per_class = trainer.clipping == "per-class"
        how: dict[str, Any] = {"arithmetic": kind, "per_class": per_class}
        how["rows"] = facts.unit.rows
        clipping = clipping_of(np.array([clip]), facts.outputs, scale, **how)
        if kind != "fast":
            sigma_for(deviation / float(clipping.lattice[0]))
    _require_bounded(trainer, facts, width, math.hypot(*trainer.clips), math.hypot(*deviations))


def require_startable(
    coef: np.ndarray, intercept: np.ndarray, facts: PublicFacts, scaling: float
) -> None:
    """Refuse a model to start from whose scores would be out of range."""
    with np.errstate(over="ignore"):
        score = np.linalg.norm(coef) * _bound(facts)
        constant = np.linalg.norm(intercept) / scaling * _bound(facts) if scaling else 0.0
        if not math.hypot(score, constant) * math.sqrt(coef.shape[1]) * ROOM <= LIMIT:
            raise InputError(
                "the model to start from has coefficients or intercepts that are too large: scores "
                f"must stay below {LIMIT / ROOM:.1g}"
            )


def _require_memory(trainer: GradientTrainer, facts: PublicFacts, width: int) -> None:
    kept = ARRAYS + (int(trainer.steps) if trainer.keeps_iterates else 0)
    needed = 8 * (width * facts.outputs * kept + 2 * int(trainer.steps))
    if needed > machine_memory():
        raise InputError(
            f"{width} features and {facts.outputs} outputs, in {trainer.steps} steps of "
            f"{trainer.name}, need {needed / 2**30:.3g} GB, and this machine has "
            f"{machine_memory() / 2**30:.3g}: project the rows, or take fewer classes or steps"
        )


def _require_bounded(
    trainer: GradientTrainer, facts: PublicFacts, width: int, clip: float, deviation: float
) -> None:
    """Refuse rates with which weights leave the range in which scores can be computed.

    A step adds a mean gradient, of norm C and ten deviations of its noise at most, and a pull of
    λ times the weights, λ being alpha and anchor together; momentum m adds up 1/(1 − m) of it. With
    a pull, weights grow by the larger root of x² − (1 + m − ηλ)x + m in every step, if it
    exceeds 1.
    """
    rate, momentum = float(trainer.learning_rate), float(trainer.momentum)
    pull = float(trainer.alpha) + float(trainer.anchor)
    steps = int(trainer.steps)
    noise = 10 * deviation * math.sqrt(width * facts.outputs) / trainer.normaliser(facts)
    step = rate * (clip + noise) / (1 - momentum)
    middle = 1 + momentum - rate * pull
    root = cmath.sqrt(middle**2 - 4 * momentum) if abs(middle) < LARGEST_SQUARABLE else middle
    growth = math.log(max(abs(middle + root) / 2, abs(middle - root) / 2, 1.0)) * steps
    reach = (math.log(step * steps) if step else 0.0) + growth
    largest = trainer.largest_norm(width * facts.outputs)
    if math.isfinite(largest):
        held = rate * pull * largest / (1 - momentum)
        most = math.log(largest) if step + held < LARGEST_SQUARABLE else math.inf
        reach = min(reach, most)
    longest = _bound(facts) * math.sqrt(width) * 8
    if reach + math.log(longest) > math.log(LIMIT):
        raise InputError(
            f"{trainer.name}: with learning_rate={rate:g}, clip={clip:g}, momentum={momentum:g}, "
            f"alpha={float(trainer.alpha):g}, anchor={float(trainer.anchor):g} and {steps} steps, "
            "weights may grow beyond what scores can be computed with; lower the learning rate, or "
            "alpha and anchor"
        )


def _bound(facts: PublicFacts) -> float:
    """Norm that no row exceeds, or that of a typical one."""
    return facts.typical_norm if facts.limit is None else facts.limit
