"""One run with many canaries (Steinke, Nasr & Jagielski 2023).

Each of m strange rows is put in or left out by a coin of its own (or, where a row is replaced,
takes one of two forms). The plan runs once. From what it released, the adversary guesses the
coins of those rows of which it is surest. More right guesses than (ε, δ) allows refute it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from tacit.audit import bounds
from tacit.audit.distinguish import Bare, Observe
from tacit.audit.neighbouring_tables import radius, raw, targets
from tacit.audit.recorder import Recorder, Release
from tacit.data.rows import as_rows
from tacit.exceptions import InputError, PrivateTestError
from tacit.mechanisms.random_streams import Key
from tacit.plan import CalibratedPlan, Fit
from tacit.plan.fit import apply_stages
from tacit.preprocessing import PrivateCheckedPCA, PrivateEqualize
from tacit.preprocessing.base import NoiselessStage
from tacit.preprocessing.private_extent import RankStage
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.trainers import SufficientStatistics
from tacit.trainers.gradient import require_descent


@dataclass(frozen=True)
class Guessed:
    """What one run showed."""

    lower: float
    canaries: int
    guesses: int
    right: int


def best_guesses(canaries: int, mu: float, *, delta: float, confidence: float) -> int:
    """How many guesses to make, were each coin hidden by noise of Gaussian DP μ.

    Decided from the claim, before anything is run.

    Examples
    --------
    >>> best_guesses(1000, 1.0, delta=1e-5, confidence=0.95)
    100
    """
    best, most = 2, -1.0
    for part in (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0):
        half = max(1, round(canaries * part / 2))
        rate = half / canaries  # of all canaries, on either side

        def share(x: float, rate: float = rate) -> float:
            return float(ndtr(mu / 2 - x) + ndtr(-mu / 2 - x)) / 2 - rate

        at = brentq(share, -40.0, 40.0 + mu)
        right = int(2 * half * float(ndtr(mu / 2 - at)) / 2 / rate)
        found = bounds.one_run_lower(
            canaries, 2 * half, min(right, 2 * half), delta=delta, confidence=confidence
        )
        if found > most:
            best, most = 2 * half, found
    return min(best, canaries)


def one_run(
    plan: CalibratedPlan,
    *,
    observe: Observe = "steps",
    confidence: float = 0.95,
    seed: int | str | None = None,
) -> Guessed:
    """A lower bound on the plan's ε from a single run; every row is a canary."""
    m, d, budget = plan.facts.size, plan.columns, plan.plan.budget
    if m < 2:
        raise InputError("one run needs at least two canaries")
    # No rows but canaries; which ones they are is no secret, so any generator will do.
    rng = np.random.default_rng(None if seed is None else list(f"canaries {seed}".encode()))
    rows = np.zeros((m, d))
    if d >= m:
        rows[np.arange(m), np.arange(m)] = radius(plan)
    else:
        rows = rng.normal(size=(m, d))
        rows *= radius(plan) / np.linalg.norm(rows, axis=1, keepdims=True)
    coins = rng.random(m) < 0.5
    replaced = plan.plan.neighbors == "replace_one"
    table = np.where(coins[:, None], rows, -rows) if replaced else rows[coins]
    rows, table = raw(plan, rows), raw(plan, table)
    labels = np.ones(len(table), dtype=int)
    bare = Bare.of(plan, len(table))
    recorder = Recorder()
    try:
        fit = bare.run(
            as_rows(table, gaps=any(stage.fills_gaps for stage in plan.plan.stages)),
            targets(plan.plan, labels, plan.classes),
            key=Key.fresh() if seed is None else Key.from_seed(f"one run {seed}"),
            draws=recorder,
        )
    except PrivateTestError:
        return Guessed(0.0, m, 0, 0)
    tape = recorder.tape
    if observe == "model":
        scores = _margins(fit, rows)
    else:
        assert fit.plan is not None
        scores = _evidence(fit.plan, tape, bare.fitted[-1], rows)
    mu = gaussian_mu(budget.epsilon, budget.delta)
    guesses = best_guesses(m, mu, delta=budget.delta, confidence=confidence)
    order = np.argsort(scores)
    out, into = order[: guesses // 2], order[m - guesses // 2 :]
    right = int(coins[into].sum() + (~coins[out]).sum())
    made = 2 * (guesses // 2)
    lower = bounds.one_run_lower(m, made, right, delta=budget.delta, confidence=confidence)
    return Guessed(lower, m, made, right)


def _margins(fit: Fit, rows: np.ndarray) -> np.ndarray:
    """How well the released model fits each canary with its label, which is 1."""
    seen = np.asarray(apply_stages(as_rows(rows), fit.stages).collect())
    scores = seen @ fit.coef.T + fit.intercept
    return np.asarray(scores[:, -1] - (scores[:, 0] if scores.shape[1] > 1 else 0.0))


def _evidence(
    plan: CalibratedPlan, tape: list[Release], fitted: Any, rows: np.ndarray
) -> np.ndarray:
    """How much each canary's contribution shows in what was released, noise weighed."""
    total = np.zeros(len(rows))
    seen = as_rows(rows)
    sums = iter([release for release in tape if release.kind == "sum"])
    for stage in fitted:
        if isinstance(stage, NoiselessStage):
            continue  # what it learned is not released
        if isinstance(stage, PrivateCheckedPCA):
            next(sums)  # two numbers of all rows show little of any
        elif stage.kind == "private" and not isinstance(stage, RankStage):  # nor does a quantile
            held = np.asarray(seen.collect())
            if isinstance(stage, PrivateEqualize):
                held = held**2
            release = next(sums)
            value, variance = release.value, release.deviation**2
            if value.ndim == 2:
                total += np.einsum("ij,jk,ik->i", held, value, held) / variance
            else:
                total += held @ value[: held.shape[1]] / variance
        seen = stage.through(seen)
    held = np.asarray(seen.collect())
    if plan.intercept_scaling:
        held = np.hstack([held, np.full((len(held), 1), plan.intercept_scaling)])
    for release in tape:
        if release.kind == "step":
            value = release.value
            pull = value[:, 0] - value[:, -1] if value.shape[1] > 1 else -value[:, 0]
            clip = require_descent(plan.trainer).clips[-1 if release.start else 0]
            part = _clipped(held[:, release.start : release.start + len(value)], clip)
            total += part @ pull / release.deviation**2 / math.sqrt(value.shape[1])
        elif release.kind == "weights":
            total += held @ release.value[:, -1] / release.deviation
    if isinstance(plan.trainer, SufficientStatistics):  # squares of rows and targets, which are 1
        release = next(sums)
        aim = np.full((len(held), 1), float(plan.trainer.weight) * plan.facts.typical_norm)
        joined = np.hstack([held, aim])
        total += np.einsum("ij,jk,ik->i", joined, release.value, joined) / release.deviation**2
    return total


def _clipped(rows: np.ndarray, clip: float) -> np.ndarray:
    """Gradients of rows of label 1 at weights of zero, but for their sign."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(0.5, clip / np.maximum(lengths, 1e-300))
