"""Experiments of Pinto et al. 2024: accuracies of PILLAR and its rivals, and of no privacy at all.

Rates that a paper would search are trained together on one engine; each has the noise of its own
budget, as if it were the only one. Every seed has a key of its own, for batches and for noise.
Accuracies are in per cent of half of the test rows; the other half is for searches. On w8a, where
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
from tacit.plan import CalibratedPlan, Plan
from tacit.plan.recipes import recipe
from tacit.preprocessing import ClipNorm, Normalize, Stage
from tacit.preprocessing.base import PrivateStage
from tacit.privacy import Budget
from tacit.research.reproduce.pinto_sets import Split, Turned, split, turned
from tacit.research.reproduce.together import Model, fit_alone, fit_together, scores_of, with_noise
from tacit.research.trainers import DPRAFT, GEP, LabelledAdaDPS, PowerGEP
from tacit.trainers import DPGD, DPSGD, GradientTrainer

DELTA = 1e-5  # as in the paper
RARE = ("w8a",)  # sets on which hardly anybody is of the second class
LEAST, PARTS = 256, 16  # rows of a sample, as `tacit.trainers.settings` has them: n/16, at least so
FOLLOWING = ("gep-power", "adadps-labelled")  # that look at public rows along the way
LOOKS = 6  # of theirs in a run


def private(
    *,
    data: str,
    method: str,
    epsilon: float,
    seeds: list[int],
    factors: list[float],
    on: str = "test",
    k: int | None = None,
    all_rows: bool = False,
    steps: int | None = None,
    private: int | None = None,
    source: str | None = None,
    count: int | None = None,
    center: bool = False,
    permuted: bool = False,
    whole: int | None = None,
    options: dict[str, Any] | None = None,
) -> list[list[float]]:
    """Accuracies (factors × seeds) of a method, at multiples of its automatic rate.

    Parameters
    ----------
    on : str
        ``"test"``, or ``"search"`` for the half of the test rows that no result has.
    k : int, optional
        Components; all columns if not given.
    all_rows : bool
        Whether all rows are in every step, in the place of Poisson samples of a sixteenth.
    steps : int, optional
        As the automatic rule has them, if not given.
    private : int, optional
        So many private rows only.
    source, count : optional
        Where public rows come from, and how many; ``"random"``: no rows, a random subspace.
    center : bool
        Whether their mean is subtracted, and components are about it: scikit-learn's PCA, which
        the paper's experiments use, does so; its Algorithm 1 does not.
    permuted : bool
        Whether labels of private rows are dealt at random.
    whole : int, optional
        How many rows the private ones stand for, in a search. Settings are those of all of them,
        samples the same part of the rows, and noise on sums is smaller by as much as they are
        fewer, so that it weighs the same.
    options : dict, optional
        What else a recipe takes.
    """
    found = []
    rows = split(data, private)
    if permuted:
        rows = rows._replace(y=np.random.default_rng(2).permutation(rows.y))
    seen = partial(turned, data, private, source or data, count, center)
    given = {**(options or {}), **({} if steps is None else {"steps": steps})}
    ready: tuple[CalibratedPlan, np.ndarray] | None = None
    for seed in seeds:
        if ready is None or method == "jl":  # its matrix is part of a run
            own, stages, trainer = _given(
                rows, method, seen, k=k, all_rows=all_rows, seed=seed, **given
            )
            ready = _calibrated(own, stages, trainer, epsilon, whole=whole)
        test = (own.X_test, own.y_test) if on == "test" else (own.X_search, own.y_search)
        fits = _fits(own, *ready, seed=seed, factors=factors)
        found.append([_score(scores_of(fit, test[0]), test[1], data in RARE) for fit in fits])
    both: list[list[float]] = np.transpose(found).round(3).tolist()
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
    plan, found, k = recipe("pillar", public=public, check=0), [], 0
    for seed in seeds:
        ready, targets = _calibrated(
            rows, plan["stages"], plan["trainer"], epsilon, arithmetic="exact"
        )
        (fit,) = fit_together(ready, rows.X, targets, Key.from_seed(seed))
        found.append(_score(scores_of(fit, rows.X_test), rows.y_test, data in RARE))
        k = ready.facts.features
    return {"accuracy": np.round(found, 3).tolist(), "components": k}


def public_descent(
    data: str,
    ks: list[int],
    ridge: float = 1e-6,
    private: int | None = None,
    permuted: bool = False,
) -> list[float]:
    """Accuracies without privacy: the best softmax regression in the first k components."""
    rows, seen = split(data, private), turned(data, private, data, None, False)
    codes, classes, found = rows.y.astype(int), rows.classes, []
    if permuted:
        codes = np.random.default_rng(2).permutation(codes)
    weights = np.zeros((1, classes))
    for k in ks:
        X, X_test = _with_constant(seen.X[:, :k]), _with_constant(seen.X_test[:, :k])
        start = np.zeros((k + 1, classes))
        start[: len(weights) - 1], start[-1] = weights[:-1], weights[-1]
        objective = partial(_cross_entropy, X=X, codes=codes, ridge=ridge)
        options = {"maxiter": 60, "maxcor": 10}
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
    X = rows.X[some].astype(np.float64)
    found = separability(X, rows.y[some], ridge=ridge)
    # A direction that has nothing to do with the rows, in their components.
    axes = np.linalg.eigh(X.T @ X)[1][:, ::-1]
    other = axes.T @ np.random.default_rng(pair).standard_normal(X.shape[1])
    kept = np.sqrt(np.cumsum(other**2) / (other**2).sum())
    return {
        "xi": [float(found.xi[k]) for k in ks],
        "random": [1 - float(kept[k - 1]) for k in ks],
        "columns": rows.X.shape[1],
        "separated": found.separated,
        "margin": found.margins["0.1"],
    }


def _given(
    rows: Split,
    method: str,
    turn: Callable[[], Turned],
    *,
    k: int | None,
    all_rows: bool,
    seed: int,
    **given: Any,
) -> tuple[Split, list[Stage], GradientTrainer]:
    """Rows as a method is given them, its stages and its trainer."""
    n = len(rows.X)
    sample = None if all_rows else min(float(n), max(LEAST, n / PARTS))
    if method in ("jl", "dp-pca"):
        own = {"seed": seed} if method == "jl" else {}
        trainer = "dp-gd" if all_rows else "dpsgd"
        plan = recipe(method, n_components=k, trainer=trainer, **own, **given)
        return rows, plan["stages"], plan["trainer"]
    if method == "adadps":
        plan = recipe("adadps", public=rows.public, batch_size=sample, **given)
        return rows, plan["stages"], plan["trainer"]
    if method in FOLLOWING:
        public: dict[str, Any] = {"public": rows.public, "batch_size": sample, **given}
        public["refresh"] = max(1, -(-int(given.get("steps", 100)) // LOOKS))
        stages: list[Stage] = [ClipNorm(1.0)]
        if method == "gep-power":
            return rows, stages, PowerGEP(n_components=k, **public)
        return rows, stages, LabelledAdaDPS(labels=rows.public_y, **public)
    # Turned to public components, rows are of norm one, and seldom longer about a mean.
    found = turn()
    if method == "gep":  # all columns, the strongest last
        found = Turned(*(part[:, ::-1] for part in found))
        own_trainer: GradientTrainer = GEP(n_components=k, batch_size=sample, **given)
    else:
        found = Turned(*(part[:, :k] for part in found))
        probe = method.startswith("dp-raft")
        kind: type[GradientTrainer] = DPRAFT if probe else DPGD if all_rows else DPSGD
        own_trainer = kind(**given)
    X, X_test, X_search = (np.ascontiguousarray(part) for part in found)
    again = method == "dp-raft+pillar"  # rows of norm one once more, as its clip of one is for
    rows = rows._replace(X=X, X_test=X_test, X_search=X_search)
    return rows, [Normalize(1.0) if again else ClipNorm(1.0)], own_trainer


def _calibrated(
    rows: Split,
    stages: list[Stage],
    trainer: Any,
    epsilon: float,
    *,
    arithmetic: str = "fast",
    whole: int | None = None,
) -> tuple[CalibratedPlan, np.ndarray]:
    classes = rows.classes
    loss = get_loss("logistic" if classes == 2 else "softmax")
    plan = Plan(Budget(epsilon, DELTA), tuple(stages), trainer, loss, arithmetic=arithmetic)
    ready = _for_size(plan, rows) if whole is None else _standing_for(plan, rows, whole)
    return ready, loss.targets(rows.y.astype(int), outputs=loss.outputs(classes))


def _for_size(plan: Plan, rows: Split, size: int | None = None) -> CalibratedPlan:
    n, columns = rows.X.shape
    return plan.calibrate(size=size or n, columns=columns, classes=rows.classes)


def _standing_for(plan: Plan, rows: Split, whole: int) -> CalibratedPlan:
    """A plan for ``whole`` rows, with fewer of them and as much less noise on their sums."""
    fewer = whole / len(rows.X)
    of_all = _for_size(replace(plan, trainer=_sampled(plan.trainer, fewer)), rows, whole)
    trainer = _sampled(of_all.trainer, 1 / fewer)
    stages = [
        replace(stage, noise_multiplier=of_all.stage_noise[i] / fewer)
        if isinstance(stage, PrivateStage)
        else stage
        for i, stage in enumerate(plan.stages)
    ]
    budget = Budget(fewer * plan.budget.epsilon, DELTA)  # enough for the stages; noise is given
    here = replace(plan, stages=tuple(stages), trainer=trainer, budget=budget)
    return with_noise(_for_size(here, rows), of_all.noise_multiplier / fewer)


def _sampled(trainer: Any, times: float) -> Any:
    """With samples so many times as large, if their size is known."""
    size = getattr(trainer, "batch_size", None)
    return replace(trainer, batch_size=times * size) if isinstance(size, float) else trainer


def _fits(
    rows: Split, ready: CalibratedPlan, targets: np.ndarray, *, seed: int, factors: list[float]
) -> list[Model]:
    """Models of one plan, at multiples of its rate."""

    def at(own: Any, factor: float) -> Any:
        return replace(own, learning_rate=factor * own.learning_rate)

    if isinstance(ready.trainer, PowerGEP | LabelledAdaDPS):
        plans = [replace(ready, trainer=at(ready.trainer, factor)) for factor in factors]
        return [fit_alone(plan, rows.X, targets, Key.from_seed(seed)) for plan in plans]
    return fit_together(
        ready,
        rows.X,
        targets,
        Key.from_seed(seed),
        lambda own: [at(own, factor) for factor in factors],
    )


def _score(scores: np.ndarray, labels: np.ndarray, rare: bool) -> float:
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
