"""What ``"auto"`` stands for: stages, trainer and neighbouring relation, by public facts.

It is decided here alone, for estimators, the command line and recipes. Settings that a stage or a
trainer leaves at ``"auto"`` are its own to resolve, when a plan is calibrated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from tacit.data.rows import Rows
from tacit.exceptions import InputError
from tacit.losses import Loss, Squared, get_loss
from tacit.preprocessing import Normalize, PrivateCenter, PrivateEqualize, Root
from tacit.preprocessing.base import NoiselessStage, Stage
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Relation
from tacit.trainers import DPGD, SufficientStatistics, Trainer
from tacit.trainers.base import is_auto
from tacit.trainers.defaults import PublicFacts

__all__ = [
    "AUTO_RECIPE",
    "AutoRegression",
    "few_columns",
    "resolve_loss",
    "resolve_relation",
    "resolve_stages",
    "resolve_trainer",
]

AUTO_RECIPE = "dpsgd-f"  # which has the stages that tables have by default

SPARSE_EVEN, SPARSE_MEAN = 0.2, 0.12  # shares of μ for columns and mean of sparse rows
# Where columns are so few, the noise on a second moment hardly counts along any of them, and
# descent would only lose what its clip cuts off skewed targets (docs/decisions/0029).
ROOM = 2_000.0


def resolve_loss(loss: str | Loss, classes: int) -> Loss:
    """The loss that was given, or the one that ``"auto"`` stands for: of labels, so many."""
    if is_auto(loss):
        loss = "logistic" if classes == 2 else "softmax"
    return get_loss(loss)


def resolve_relation(
    neighbors: str, stages: Sequence[Stage], trainer: Trainer | None = None
) -> Relation:
    """The neighbouring relation that ``"auto"`` stands for."""
    if neighbors != "auto":
        sensitivity(neighbors)  # refuses what is none
        return Relation(neighbors)
    if trainer is not None and Relation.REPLACE_SPECIAL not in trainer.relations:
        return Relation(trainer.relations[0])
    noiseless = any(isinstance(stage, NoiselessStage) for stage in stages)
    return Relation.REPLACE_ONE if noiseless else Relation.REPLACE_SPECIAL


def resolve_stages(
    stages: Any, task: str, trainer: Trainer, rows: Rows | None = None
) -> tuple[Stage, ...]:
    """The stages that were given, or those that ``"auto"`` stands for.

    Parameters
    ----------
    stages : "auto", Stage or sequence of Stage
    task : str
        ``classification`` or ``regression``.
    trainer : Trainer
        What comes behind them.
    rows : Rows, optional
        Of which it is public whether they are bytes, or sparse; neither, if not given.
    """
    if isinstance(stages, Stage):
        return (stages,)
    if not isinstance(stages, str | list | tuple):
        raise InputError(f"stages must be 'auto' or a list of stages, not {stages!r}")
    if not isinstance(stages, str):
        return tuple(stages)
    if not is_auto(stages):
        raise InputError(f"stages={stages!r} must be 'auto' or a list of stages")
    classes = task == "classification"
    intensities = rows is not None and rows.bytes  # pixels, or counts
    first = (Root(), Normalize()) if intensities else (Normalize(),)
    if trainer.local:
        return first  # nobody may see all rows
    if classes and not intensities and rows is not None and rows.sparse:
        # Columns are words, or the like: the rarer, the more one says (decision 35).
        return (*first, PrivateEqualize(SPARSE_EVEN), Normalize(), PrivateCenter(SPARSE_MEAN))
    if classes and intensities:
        # Values that hardly vary in most rows would be learned last (decision 28).
        return (*first, PrivateCenter(), PrivateEqualize(), Normalize())
    return (*first, PrivateCenter())  # DPSGD-F*: Sun et al. 2024, Algorithm 3


def resolve_trainer(
    trainer: Any, task: str = "classification", *, closed_form: bool = False
) -> Trainer:
    """The trainer that was given, or the one that ``"auto"`` stands for.

    Parameters
    ----------
    trainer : "auto" or Trainer
    task : str
        ``classification`` or ``regression``.
    closed_form : bool
        Whether it may do without steps: training begins at zero, on rows that are at hand and
        that no noiseless stage has moved.
    """
    if isinstance(trainer, str):
        if not is_auto(trainer):
            raise InputError(f"trainer={trainer!r} must be 'auto' or one of tacit.trainers")
        return AutoRegression() if closed_form and task == "regression" else DPGD()
    if not isinstance(trainer, Trainer):
        raise InputError(f"trainer must be 'auto' or one of tacit.trainers, not {trainer!r}")
    return trainer


@dataclass
class AutoRegression(DPGD):
    """Whichever of `SufficientStatistics` and `DPGD` public facts speak for."""

    def resolve(self, facts: PublicFacts) -> Self:
        chosen: Any = SufficientStatistics() if few_columns(facts) else DPGD()
        return chosen.resolve(facts)


def few_columns(facts: PublicFacts) -> bool:
    """Whether the noise on a second moment is small beside what it says of every column.

    Its norm is about √(2d)/μ for rows of norm 1, of which n say n/d along each of d columns.
    """
    squared = isinstance(facts.loss, Squared) and not facts.drift and not facts.monotone
    return squared and ROOM * (facts.features + 1) ** 1.5 <= facts.size * facts.mu
