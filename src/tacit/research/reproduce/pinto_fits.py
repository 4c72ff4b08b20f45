"""Experiments of Pinto et al. 2024: accuracies of PILLAR and its rivals, and of no privacy at all.

Settings that a paper would search are trained together on one engine; each has the noise of its
own budget, as if it were the only one. Accuracies are in per cent of the test rows. On w8a, where
one row in thirty is of the second class, they are areas under the curve of hits over false alarms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score

from tacit.diagnostics.separability import separability
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.plan import Plan
from tacit.plan.recipes import recipe
from tacit.preprocessing import ClipNorm
from tacit.privacy import Budget
from tacit.research.reproduce.pinto_sets import Split, Turned, split, turned
from tacit.research.reproduce.together import fit_together, scores_of
from tacit.research.trainers import DPRAFT, GEP
from tacit.trainers import DPSGD, GradientTrainer

DELTA = 1e-5  # as in the paper
RARE = ("w8a",)  # sets on which hardly anybody is of the second class


def private(
    *,
    data: str,
    method: str,
    epsilon: float,
    seeds: list[int],
    factors: list[float],
    k: int | None = None,
    steps: int | None = None,
    private: int | None = None,
    source: str | None = None,
    count: int | None = None,
    center: bool = False,
) -> list[list[float]]:
    """Accuracies (factors × seeds) of a method, at multiples of its automatic rate.

    Parameters
    ----------
    k : int, optional
        Components; all columns if not given.
    steps : int, optional
        Of those that take all rows in a step; others choose.
    private : int, optional
        So many private rows only.
    source, count : optional
        Where public rows come from, and how many.
    center : bool
        Whether their mean is subtracted, and components are about it: scikit-learn's PCA, which
        the paper's experiments use, does so; its Algorithm 1 does not.
    """
    found = []
    alone = method in ("jl", "dp-pca")  # their stages draw as well
    for group in [[seed] for seed in seeds] if alone else [seeds]:
        rows, plan = _plan(
            split(data, private),
            method,
            partial(turned, data, private, source or data, count, center),
            k=k,
            seed=group[0],
            **({} if steps is None else {"steps": steps}),
        )
        how: dict[str, Any] = {"seeds": group, "factors": factors, "rare": data in RARE}
        found.append(_fits(rows, plan, epsilon, **how)[0])
    both: list[list[float]] = np.concatenate(found, axis=1).round(3).tolist()
    return both


def ours(
    *,
    data: str,
    epsilon: float,
    seeds: list[int],
    private: int | None = None,
    source: str | None = None,
    count: int | None = None,
) -> dict[str, Any]:
    """Accuracies of `recipe("pillar")` without its check, all else left to it, in exact numbers."""
    rows = split(data, private)
    public = (rows if source in (None, data) else split(source)).public[:count]
    how: dict[str, Any] = {"seeds": seeds, "factors": [1.0], "rare": data in RARE}
    made = recipe("pillar", public=public, check=0)
    found, k = _fits(rows, made, epsilon, **how, arithmetic="exact")
    return {"accuracy": found[0].round(3).tolist(), "components": k}


def public_descent(
    data: str, ks: list[int], ridge: float = 1e-6, private: int | None = None
) -> list[float]:
    """Accuracies without privacy: the best softmax regression in the first k components."""
    rows, seen = split(data, private), turned(data, private, data, None, False)
    codes, classes, found = rows.y.astype(int), rows.classes, []
    weights = np.zeros((1, classes))
    for k in ks:
        X, X_test = _with_constant(seen.X[:, :k]), _with_constant(seen.X_test[:, :k])
        start = np.zeros((k + 1, classes))
        start[: len(weights) - 1], start[-1] = weights[:-1], weights[-1]
        objective = partial(_cross_entropy, X=X, codes=codes, ridge=ridge)
        options = {"maxiter": 150, "maxcor": 10}
        done = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options)
        weights = done.x.reshape(k + 1, classes)
        found.append(100 * float((np.argmax(X_test @ weights, axis=1) == rows.y_test).mean()))
    return found


def xi(
    data: str, pair: list[int], ks: list[int], ridge: float, private: int | None = None
) -> dict[str, Any]:
    """ξ_k of a support vector machine between two classes, and how well it separates them."""
    rows = split(data, private)
    some = np.isin(rows.y, pair)
    found = separability(rows.X[some].astype(np.float64), rows.y[some], ridge=ridge)
    return {
        "xi": [float(found.xi[k]) for k in ks],
        "columns": rows.X.shape[1],
        "separated": found.separated,
        "margin": found.margins["0.1"],
    }


def _plan(
    rows: Split,
    method: str,
    turn: Callable[[], Turned],
    *,
    k: int | None,
    seed: int,
    **given: Any,
) -> tuple[Split, dict[str, Any]]:
    """Rows as a method is given them, and its stages and trainer."""
    if method == "jl":
        return rows, recipe("jl", n_components=k, seed=seed, trainer="dpsgd")
    if method == "dp-pca":
        return rows, recipe("dp-pca", n_components=k, trainer="dpsgd")
    if method == "adadps":
        return rows, recipe("adadps", public=rows.public, **given)
    # Turned to public components, rows are of norm one, and seldom longer about a mean.
    X, X_test = turn()
    trainer: GradientTrainer
    if method == "gep":  # all columns, the strongest last
        X, X_test, trainer = X[:, ::-1], X_test[:, ::-1], GEP(n_components=k, **given)
    else:
        X, X_test = X[:, :k], X_test[:, :k]
        probe = method in ("dp-raft", "dp-raft+pillar")
        trainer = DPRAFT(**given) if probe else DPSGD(**given)
    X, X_test = np.ascontiguousarray(X), np.ascontiguousarray(X_test)
    return rows._replace(X=X, X_test=X_test), {"stages": [ClipNorm(1.0)], "trainer": trainer}


def _fits(
    rows: Split,
    plan: dict[str, Any],
    epsilon: float,
    *,
    seeds: list[int],
    factors: list[float],
    rare: bool,
    arithmetic: str = "fast",
) -> tuple[np.ndarray, int]:
    """Results (factors × seeds) of one plan, whose stages draw with the first seed; its columns."""
    classes = rows.classes
    loss = get_loss("logistic" if classes == 2 else "softmax")
    stages, budget = tuple(plan["stages"]), Budget(epsilon, DELTA)
    ready = Plan(budget, stages, plan["trainer"], loss, arithmetic=arithmetic).calibrate(
        size=len(rows.X), columns=rows.X.shape[1], classes=classes
    )
    targets = loss.targets(rows.y.astype(int), outputs=loss.outputs(classes))
    fits = fit_together(
        ready,
        rows.X,
        targets,
        Key.from_seed(seeds[0]),
        lambda own: [
            replace(own, learning_rate=factor * own.learning_rate)
            for factor in factors
            for _ in seeds
        ],
    )
    found = [_score(scores_of(fit, rows.X_test), rows.y_test, rare=rare) for fit in fits]
    return np.reshape(found, (len(factors), len(seeds))), ready.facts.features


def _score(scores: np.ndarray, labels: np.ndarray, *, rare: bool) -> float:
    if rare:
        return 100 * float(roc_auc_score(labels, scores[:, 0]))
    guess = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
    return 100 * float((guess == labels).mean())


def _with_constant(rows: np.ndarray) -> np.ndarray:
    return np.column_stack([rows, np.ones(len(rows), dtype=np.float32)])


def _cross_entropy(
    flat: np.ndarray, X: np.ndarray, codes: np.ndarray, ridge: float
) -> tuple[float, np.ndarray]:
    weights = flat.reshape(X.shape[1], -1)
    scores = X @ weights.astype(np.float32)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    own = np.arange(len(X)), codes
    value = -float(np.log(np.maximum(scores[own], 1e-30)).mean(dtype=np.float64))
    scores[own] -= 1.0
    slope = (X.T @ scores).astype(np.float64) / len(X) + ridge * weights
    return value + ridge / 2 * float((weights**2).sum()), slope.ravel()
