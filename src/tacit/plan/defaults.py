"""What ``"auto"`` stands for: stages, trainer and neighbouring relation, by public facts.

It is decided here alone, for estimators, the command line and recipes. Settings that a stage or a
trainer leaves at ``"auto"`` are its own to resolve, when a plan is calibrated.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from tacit.data.rows import Rows
from tacit.data.schema import Schema
from tacit.exceptions import InputError
from tacit.losses import Loss, Squared, get_loss
from tacit.plan.propagate import FAILING
from tacit.preprocessing import (
    Encode,
    Normalize,
    PrivateCenter,
    PrivateEncode,
    PrivateEqualize,
    PrivatePrecondition,
    Root,
)
from tacit.preprocessing.base import NoiselessStage, Stage
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Relation
from tacit.trainers import DPGD, SufficientStatistics, Trainer
from tacit.trainers.base import is_auto
from tacit.trainers.settings import PublicFacts

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
    stages: Any,
    task: str,
    trainer: Trainer,
    rows: Rows | None = None,
    schema: Schema | None = None,
    *,
    shapes: bool | str = "auto",
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
    schema : Schema, optional
        Of rows that are those of a table, as it is.
    shapes : {"auto", True, False}
        Whether numbers of a table have shapes that need not be straight.
    """
    if isinstance(stages, Stage):
        return (stages,)
    if not isinstance(stages, str | list | tuple):
        raise InputError(f"stages must be 'auto' or a list of stages, not {stages!r}")
    if not isinstance(stages, str):
        return tuple(stages)
    if not is_auto(stages):
        raise InputError(f"stages={stages!r} must be 'auto' or a list of stages")
    if schema is not None:
        return table_stages(schema, trainer, shapes)
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
    # DPSGD-F*: Sun et al. 2024, Algorithm 3. A second moment makes steps few (decision 51), and is
    # left out of plans that have no use for it.
    return (*first, PrivateCenter(), PrivatePrecondition())


def table_stages(
    schema: Schema, trainer: Trainer, shapes: bool | str = "auto"
) -> tuple[Stage, ...]:
    """What tables go through as they are: a place for every value, and what is private is found."""
    if not is_auto(shapes):
        shape = "hat" if shapes else "straight"
        columns: dict[str, Any] = dict(schema.columns)
        for name, column in columns.items():
            if getattr(column, "shape", "") == "auto":
                columns[name] = replace(column, shape=shape)
        schema = replace(schema, columns=columns)
    if trainer.local:  # nobody may see all rows
        return (Encode(schema),)
    ordered = any(getattr(column, "monotone", None) for column in schema.columns.values())
    # Steps along a second moment are not those that a projection onto ordered weights is made for.
    last = () if ordered else (PrivatePrecondition(),)
    return (PrivateEncode(schema, shapes=shapes is not False), PrivateCenter(), *last)


def enough_rows(schema: Schema, size: int, budget: Budget, neighbors: Relation) -> bool:
    """Whether rows are enough to find, through noise, what a schema does not say."""
    mu = gaussian_mu(budget.epsilon, budget.delta) / sensitivity(neighbors)
    facts: dict[str, Any] = {"columns": len(schema.columns), "size": size, "mu": mu}
    (stage, *_), _ = PrivateEncode(schema).expand((), **facts, intercept=True, takes_moment=False)
    if not isinstance(stage, PrivateEncode):
        return True
    with suppress(InputError):
        chance = FAILING * budget.delta
        stage.require_rows(size, len(schema.columns), 1 / (stage.share * mu), chance)
        return True
    return False


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

    @property
    def takes_people(self) -> bool:
        return True

    def resolve(self, facts: PublicFacts) -> Self:
        chosen: Any = SufficientStatistics() if few_columns(facts) else DPGD()
        return chosen.resolve(facts)


def few_columns(facts: PublicFacts) -> bool:
    """Whether the noise on a second moment is small beside what it says of every column.

    Its norm is about √(2d)/μ for rows of norm 1, of which n say n/d along each of d columns.
    """
    squared = isinstance(facts.loss, Squared) and not facts.drift and not facts.monotone
    return squared and ROOM * (facts.features + 1) ** 1.5 <= facts.size * facts.mu
