"""Many settings of descent on rows prepared once: for experiments, which nothing certifies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from tacit.data.rows import as_rows
from tacit.mechanisms.random_streams import Key
from tacit.plan import CalibratedPlan
from tacit.plan.fit import apply_stages
from tacit.preprocessing import Stage
from tacit.trainers import GradientTrainer
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.gradient import require_descent

#: Settings to be tried, from the one that the plan resolved.
Variants = Callable[[GradientTrainer], Sequence[GradientTrainer]]


class Scoring(Protocol):
    """What a row's score takes: `tacit.plan.Fit` has it, too."""

    @property
    def coef(self) -> np.ndarray: ...
    @property
    def intercept(self) -> np.ndarray: ...
    @property
    def stages(self) -> tuple[Stage, ...]: ...


class Model(NamedTuple):
    """A model without a certificate, which takes seconds that experiments need not spend."""

    coef: np.ndarray
    intercept: np.ndarray
    stages: tuple[Stage, ...]


def fit_together(
    plan: CalibratedPlan,
    rows: np.ndarray,
    targets: np.ndarray,
    key: Key,
    variants: Variants = lambda own: [own],
) -> list[Model]:
    """Models of all settings, each with the noise of the plan."""
    prepared = plan.prepare(as_rows(rows), plan.releases(key))
    plan = plan.resolve(prepared)
    trainers, facts = variants(require_descent(plan.trainer)), plan.facts_for(prepared)
    tokens = rehearsal(trainers, [plan.noise_multiplier] * len(trainers), facts, key)
    engine = plan.engine(prepared, targets)
    weights = train_together(engine, trainers, tokens, facts, moves=plan.moves)
    return [Model(*plan.fold(prepared, each)) for each in weights]


def fit_alone(plan: CalibratedPlan, rows: np.ndarray, targets: np.ndarray, key: Key) -> Model:
    """The model of a trainer that makes engines of its own, as it goes."""
    run = plan.releases(key)
    prepared = plan.prepare(as_rows(rows), run)
    plan = plan.resolve(prepared)
    engine, facts = plan.engine(prepared, targets), plan.facts_for(prepared)
    weights = plan.trainer.train(engine, run, facts, moves=plan.moves)
    run.close()
    return Model(*plan.fold(prepared, weights))


def next_rate(rates: Sequence[float], scores: Sequence[float]) -> float | None:
    """A rate to be tried as well, if the best of some is the largest or the smallest of them."""
    best = rates[int(np.argmax(scores))]
    if best == max(rates):
        return 2 * best
    return best / 2 if best == min(rates) else None


def with_noise(plan: CalibratedPlan, noise_multiplier: float) -> CalibratedPlan:
    """The plan with another noise of training, whatever that costs."""
    events = plan.trainer.events(noise_multiplier, plan.facts)
    spent = (*plan.spent[: -len(events)], *events)
    return replace(plan, noise_multiplier=noise_multiplier, spent=spent)


def scores_of(fit: Scoring, rows: np.ndarray) -> np.ndarray:
    """What a model gives rows, (rows, outputs)."""
    seen = np.asarray(apply_stages(as_rows(rows), fit.stages).collect())
    return np.asarray(seen @ fit.coef.T + fit.intercept)
