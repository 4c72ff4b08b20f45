"""Runs for Sun et al. 2024, Tables 1 and 2."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.diagnostics import concentration
from tacit.linear_model import DPLinearClassifier
from tacit.losses import get_loss
from tacit.mechanisms import Key
from tacit.plan import CalibratedPlan, Plan
from tacit.preprocessing import Normalize, PrivateCenter, Stage
from tacit.privacy import Budget
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.research.reproduce.pinto_sets import read_split
from tacit.research.reproduce.together import fit_together, scores_of
from tacit.trainers import DPSGD

DELTA = 1e-5
METHODS = {"DPSGD": 0.0, "DPSGD-F": 0.05}  # ε_F of the mean: at 0.02 or 0.05 the paper was best


@lru_cache(maxsize=1)
def images(name: str, rows: int | None) -> tuple[np.ndarray, ...]:
    """``X_train, y_train, X_test, y_test``, the first rows of both if not all are wanted."""
    X, y, X_test, y_test = read_split(name)
    return X[:rows], y[:rows], X_test[:rows], y_test[:rows]


@lru_cache
def _plan(
    *,
    size: int,
    columns: int,
    classes: int,
    epsilon: float,
    method: str,
    norm: float,
    batch: int,
    epochs: int,
) -> CalibratedPlan:
    """Algorithm 1, or 3, of Sun et al. 2024, with what its appendix C fixes."""
    stages: list[Stage] = [Normalize(float(norm))]
    spent = METHODS[method]
    if spent:
        stages.append(PrivateCenter(gaussian_mu(spent, DELTA) / gaussian_mu(epsilon, DELTA)))
    trainer = DPSGD(
        steps=round(epochs * size / batch),
        batch_size=float(batch),
        clip=1.0,
        learning_rate=1.0,
        momentum=0.0,
        average="last",
        schedule="constant",
        intercept_fraction=1 / norm,  # a constant feature of 1 beside rows of norm C_F
    )
    loss = get_loss("softmax")
    plan = Plan(Budget(epsilon, DELTA), tuple(stages), trainer, loss, arithmetic="fast")
    return plan.calibrate(size=size, columns=columns, classes=classes)


def as_in_the_paper(
    *, data: str, rows: int | None, rates: list[float], seed: int, **setting: Any
) -> list[float]:
    """Test accuracy for each of some learning rates; ``setting`` is that of `_plan`."""
    X, y, X_test, y_test = images(data, rows)
    classes = int(y.max()) + 1
    plan = _plan(size=len(X), columns=X.shape[1], classes=classes, **setting)
    targets = plan.plan.loss.targets(y, outputs=classes)
    fits = fit_together(
        plan,
        X,
        targets,
        Key.from_seed(seed),
        lambda own: [replace(own, learning_rate=rate) for rate in rates],
    )
    guesses = (scores_of(fit, X_test).argmax(axis=1) for fit in fits)
    return [100 * float((guess == y_test).mean()) for guess in guesses]


def by_default(data: str, rows: int | None, epsilon: float, arithmetic: str, seed: int) -> float:
    """Test accuracy with nothing chosen by anybody; of all rows, the noise is fresh."""
    X, y, X_test, y_test = images(data, rows)
    seeded = None if rows is None else seed
    model = DPLinearClassifier(epsilon, DELTA, arithmetic=arithmetic, random_state=seeded)
    return 100 * float(model.fit(X, y).score(X_test, y_test))


def spread(data: str, rows: int | None) -> dict[str, Any]:
    """Diameter and distances to the mean of training rows, scaled to unit norm."""
    X = images(data, rows)[0].astype(np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    found = concentration(X)
    shares = np.linspace(0.005, 0.995, 100)
    return {
        "values": [found.diameter, found.max_distance, found.mean_distance],
        "at most": found.diameter_at_most,
        "quantiles": [float(q) for q in np.quantile(found.distances, shares)],
        "shares": [float(share) for share in shares],
    }
