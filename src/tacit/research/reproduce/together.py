"""Many settings of descent on rows prepared once: for experiments, which nothing certifies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tacit.data.rows import as_rows
from tacit.mechanisms.random_streams import Key
from tacit.plan import CalibratedPlan, Fit
from tacit.plan.fit import apply_stages
from tacit.trainers import GradientTrainer
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.gradient import require_descent

#: Settings to be tried, from the one that the plan resolved.
Variants = Callable[[GradientTrainer], Sequence[GradientTrainer]]


def fit_together(
    plan: CalibratedPlan,
    rows: np.ndarray,
    targets: np.ndarray,
    key: Key,
    variants: Variants = lambda own: [own],
) -> list[Fit]:
    """Models of all settings, each with the noise of the plan."""
    prepared = plan.prepare(as_rows(rows), plan.releases(key))
    plan = plan.resolve(prepared)
    trainers, facts = variants(require_descent(plan.trainer)), plan.facts_for(prepared)
    tokens = rehearsal(trainers, [plan.noise_multiplier] * len(trainers), facts, key)
    engine = plan.engine(prepared, targets)
    weights = train_together(engine, trainers, tokens, facts, moves=plan.moves)
    return [plan.conclude(prepared, each, seeded=True) for each in weights]


def scores_of(fit: Fit, rows: np.ndarray) -> np.ndarray:
    """What a model gives rows, (rows, outputs)."""
    seen = np.asarray(apply_stages(as_rows(rows), fit.stages).collect())
    return np.asarray(seen @ fit.coef.T + fit.intercept)
