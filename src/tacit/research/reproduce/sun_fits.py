"""Runs for Sun et al. 2024, Tables 1 and 2."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import minimize

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
HELD_OUT = 6  # a sixth of the training rows, on which settings are chosen


@lru_cache(maxsize=2)
def images(name: str, rows: int | None, searching: bool = False) -> tuple[np.ndarray, ...]:
    """``X, y, X_test, y_test``, the first rows of both if not all are wanted.

    For a search, training rows alone: a sixth of them in the place of test rows.
    """
    X, y, X_test, y_test = read_split(name)
    X, y = X[:rows], y[:rows]
    if not searching:
        return X, y, X_test[:rows], y_test[:rows]
    order = np.random.default_rng(0).permutation(len(X))
    held, kept = np.sort(order[: len(X) // HELD_OUT]), np.sort(order[len(X) // HELD_OUT :])
    return X[kept], y[kept], X[held], y[held]


@lru_cache
def _plan(
    *,
    size: int,
    columns: int,
    classes: int,
    epsilon: float,
    mean_epsilon: float,
    norm: float,
    batch: int,
    epochs: int,
) -> CalibratedPlan:
    """Algorithm 1, or with ``mean_epsilon`` 3, of Sun et al. 2024, with what appendix C fixes."""
    stages: list[Stage] = [Normalize(float(norm))]
    if mean_epsilon:
        share = gaussian_mu(mean_epsilon, DELTA) / gaussian_mu(epsilon, DELTA)
        stages.append(PrivateCenter(share))
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
    *,
    data: str,
    rows: int | None,
    rates: list[float],
    seed: int,
    searching: bool = False,
    permuted: bool = False,
    **setting: Any,
) -> list[float]:
    """Accuracy for each of some learning rates; ``setting`` is that of `_plan`.

    Of test rows, or of held-out ones for a search. With ``permuted``, labels of training rows
    have changed places.
    """
    X, y, X_test, y_test = images(data, rows, searching)
    if permuted:
        y = np.random.default_rng(seed).permutation(y)
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


def without_privacy(data: str, rows: int | None) -> dict[str, float]:
    """Test accuracy of softmax regression, stopped where held-out rows are best."""
    counts = (10, 20, 40, 80, 160)
    held = _descended(images(data, rows, searching=True), counts)
    best = counts[int(np.argmax(held))]
    return {"accuracy": _descended(images(data, rows), (best,))[0], "iterations": best}


def _descended(split: tuple[np.ndarray, ...], counts: tuple[int, ...]) -> list[float]:
    """Accuracy after so many iterations of L-BFGS."""
    X, y, X_test, y_test = split
    classes = int(y.max()) + 1
    seen, seen_test = _with_ones(X), _with_ones(X_test)
    hot = np.eye(classes, dtype=np.float32)[y]
    reached: list[np.ndarray] = []

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        scores = seen @ flat.reshape(-1, classes).astype(np.float32)
        scores -= scores.max(axis=1, keepdims=True)
        shares = np.exp(scores)
        totals = shares.sum(axis=1, keepdims=True)
        value = float((np.log(totals[:, 0]) - (scores * hot).sum(axis=1)).mean())
        gradient = seen.T @ (shares / totals - hot) / len(hot)
        return value, gradient.astype(np.float64).ravel()

    minimize(
        loss,
        np.zeros(seen.shape[1] * classes),
        jac=True,
        method="L-BFGS-B",
        callback=lambda flat: reached.append(np.array(flat)),
        options={"maxiter": max(counts), "ftol": 0.0, "gtol": 0.0},
    )
    found = [reached[min(count, len(reached)) - 1].reshape(-1, classes) for count in counts]
    return [100 * float(((seen_test @ each).argmax(axis=1) == y_test).mean()) for each in found]


def _with_ones(rows: np.ndarray) -> np.ndarray:
    """Rows of norm ten beside a constant of one."""
    scaled = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return np.hstack([10 * scaled, np.ones((len(rows), 1))]).astype(np.float32)


def random_directions(rows: int, columns: int, seed: int) -> list[float]:
    """The same distances of rows that point anywhere."""
    made = np.random.default_rng(seed).standard_normal((rows, columns))
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    found = concentration(made)
    return [found.diameter, found.max_distance, found.mean_distance]


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
