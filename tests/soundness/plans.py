"""Neighbouring tables sent through whole plans, as far as the noise of training.

Rules are attacked one by one in `attack`; here stages, intercept, labels, arithmetic and engine are
those that a plan puts together. What lies before the noise of a step is compared with what the
account of that step allows, at the very deviation that the trainer would add.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any
from unittest.mock import patch

import numpy as np

from tacit.data.rows import as_rows
from tacit.exceptions import BudgetError, InputError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.plan import CalibratedPlan, Plan
from tacit.preprocessing import (
    ClipNorm,
    Dedup,
    NoiselessImpute,
    NoiselessPCA,
    NoiselessScale,
    Quantize,
    SoftPCA,
)
from tacit.preprocessing.base import Stage
from tacit.privacy import Budget
from tacit.trainers import DPGD

RADIUS = 1e-3
CROWD = 30


@dataclass(frozen=True)
class Neighbours:
    """Two tables that differ in row 0."""

    name: str
    rows: tuple[np.ndarray, np.ndarray]

    @property
    def n(self) -> int:
        return len(self.rows[0])

    @property
    def d(self) -> int:
        return self.rows[0].shape[1]


@dataclass(frozen=True)
class Comparison:
    """How far apart the sums of neighbours lie, and how far they may; in units of numbers."""

    apart: float
    allowed: float
    norm: float  # of the weights
    where: str

    @property
    def ratio(self) -> float:
        return self.apart / self.allowed


def neighbours(name: str, common: np.ndarray, odd: Any, other: Any) -> Neighbours:
    """Common rows behind one or the other odd row."""
    first, second = (np.vstack([np.asarray(row, float)[None], common]) for row in (odd, other))
    return Neighbours(name, (first, second))


def hostile(n: int = 400, d: int = 3, seed: int = 0) -> list[Neighbours]:
    """Tables that have broken something, or might: each is made for a way to go wrong."""
    rng = np.random.default_rng(seed)
    e = np.eye(d)
    ball = rng.normal(size=(n, d))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    step = np.arange(1.0, n + 1)[:, None]
    line = step * e[1] / n
    spaced = np.zeros((n, d))
    spaced[:, 1] = 0.1 + 6 * RADIUS * np.arange(n) % 0.8
    some = min(CROWD - 2, n)  # as many in one place as the crowd allows
    crowd = np.vstack([np.tile(0.5 * e[1], (some, 1)), ball[: n - some]])
    between = np.vstack([c * np.ones((CROWD // 4, d)) for c in (0.3, 0.3 + 4 * RADIUS / d**0.5)])
    between = np.vstack([between, ball])[:n]
    found = [
        neighbours("denormal", 1e-170 * step * e[1], e[0], e[1]),
        neighbours("small", 1e-4 * line, e[0], e[1]),
        neighbours("subnormal and zero", np.where(step % 2, 5e-324, -0.0) * e[1], e[0], 0 * e[1]),
        neighbours(
            "huge", np.where(step % 3, 1e308, -1e308) * e[1] * (step / n), e[0], 1e308 * e[1]
        ),
        neighbours("at the bound", ball, e[0], -e[0]),
        neighbours("full crowd", crowd, 0.5 * e[1], e[0]),
        neighbours("one row of the crowd less", crowd, 0.5 * e[1] + 3 * RADIUS * e[0], -e[1]),
        neighbours(
            "between two clusters", between, (0.3 + 2 * RADIUS / d**0.5) * np.ones(d), -e[0]
        ),
        neighbours("no crowds", spaced, 0.1 * e[1], e[0]),
        neighbours("random", 0.5 * ball * rng.random((n, 1)), e[0], -e[1]),
        neighbours("zeros", np.zeros((n, d)), 0 * e[0], e[1]),
        neighbours(
            "one direction",
            np.tile(0.05**0.5 * e[0], (n, 1)) * np.sign(step % 2 - 0.5),
            (e[0] + e[1]) / 2**0.5,
            (e[0] - e[1]) / 2**0.5,
        ),
    ]
    return found


def with_gaps(pair: Neighbours, seed: int = 1) -> Neighbours:
    """The same with gaps in some rows, the odd one among them in one of the tables."""
    rng = np.random.default_rng(seed)
    lacking = np.flatnonzero(rng.random(pair.n) < 0.04)
    tables = []
    for i, table in enumerate(pair.rows):
        table = table.copy()
        table[lacking[lacking > 0], 2] = np.nan
        if i:
            table[0, 2] = np.nan
        tables.append(table)
    return Neighbours(f"{pair.name}, with gaps", (tables[0], tables[1]))


#: Every noiseless stage; those that rest on a test with a generous condition.
NOISELESS: dict[str, Stage] = {
    "dedup": Dedup(RADIUS, crowd=CROWD, share=0.2),
    "dedup, equal rows": Dedup(0.0, crowd=CROWD, share=0.2),
    "quantize": Quantize(RADIUS, crowd=CROWD, share=0.2),
    "shrunk mean": NoiselessImpute("shrunk-mean", columns=[2]),
    "mean": NoiselessImpute("mean", columns=[2], rows_with_gaps=60, share=0.2),
    "trimmed mean": NoiselessImpute("trimmed-mean", columns=[2], rows_with_gaps=60, share=0.2),
    "median": NoiselessImpute(
        "median", columns=[2], rows_with_gaps=60, median_change=0.5, share=0.2
    ),
    "ridge": NoiselessImpute("ridge", columns=[2]),
    "soft PCA": SoftPCA(0.05),
    "PCA": NoiselessPCA(1, gap=0.02, share=0.2),
    "PCA about the mean": NoiselessPCA(1, gap=0.02, centered=True, share=0.2),
    "scale": NoiselessScale(0.1, centered=False, radius=1.0),
    "scale about the mean": NoiselessScale(0.1, radius=1.0),
    "scale by a floor": NoiselessScale(floor=1e-4, radius=1.0, share=0.2),
}


def calibrated(
    stages: Sequence[Stage],
    n: int,
    d: int,
    *,
    loss: str = "logistic",
    intercept: bool = True,
    epsilon: float = 4.0,
    trainer: Any = None,
) -> CalibratedPlan:
    """The plan of these stages, behind a clip of rows to norm one.

    As many rows with gaps are declared as leave most of so few rows complete.
    """
    stages = [
        replace(stage, rows_with_gaps=min(stage.rows_with_gaps, n // 3))
        if getattr(stage, "rows_with_gaps", None)
        else stage
        for stage in stages
    ]
    plan = Plan(
        Budget(epsilon, 1e-5),
        (ClipNorm(1.0), *stages),
        DPGD(steps=2) if trainer is None else trainer,
        get_loss(loss),
        "replace_one",
        fit_intercept=intercept,
    )
    classes = 2 if get_loss(loss).task == "classification" else 0
    return plan.calibrate(size=n, columns=d, classes=classes)


def chains(length: int, between: Sequence[Stage] = ()) -> Iterator[tuple[str, tuple[Stage, ...]]]:
    """Chains of so many noiseless stages that a plan accepts, with free stages behind each."""
    for names in permutations(NOISELESS, length):
        stages = [s for name in names for s in (NOISELESS[name], *between)]
        try:
            calibrated(stages, 400, 3)
        except (InputError, BudgetError):
            continue
        yield ", ".join(names), tuple(stages)


def compare(
    plan: CalibratedPlan, pair: Neighbours, *, seed: int = 0, batches: int = 1
) -> list[Comparison] | None:
    """Sums of both tables at hostile weights; None where a tested condition fails on either.

    A private test makes such neighbours as good as equal whatever is trained on them.
    """
    margins: list[float] = []
    both = [prepared(plan, rows, margins) for rows in pair.rows]
    if min(margins, default=math.inf) < 0:
        return None
    first, second = (np.asarray(each.rows.collect()) for each in both)
    moved = first[1:] - second[1:]
    found: list[Comparison] = []
    for kind, labels in _labels(moved, np.random.default_rng(seed)):
        rng = np.random.default_rng(seed)
        engines = [plan.engine(each, _targets(plan, labels, odd)) for odd, each in enumerate(both)]
        d, outputs = engines[0].d, plan.facts.outputs
        for where, weights in _weights(moved, d, outputs, bool(plan.intercept_scaling), rng):
            # The deviation for a noise multiplier of one is half of what sums may lie apart.
            norm = float(np.sqrt((weights**2).sum()))
            allowed = 2 * plan.trainer.deviation(1.0, norm, plan.moves)
            for turn in range(batches + 1):
                batch = None if turn == 0 else np.flatnonzero(rng.random(pair.n) < 0.5)
                clip = float(plan.trainer.clip)
                sums = [e.gradient_sum(weights, clip, batch=batch).float() for e in engines]
                apart = float(np.sqrt(((sums[0] - sums[1]) ** 2).sum()))
                rows = "a batch" if turn else "all rows"
                found.append(Comparison(apart, allowed, norm, f"{kind}, weights {where}, {rows}"))
    return found


def prepared(plan: CalibratedPlan, rows: np.ndarray, margins: list[float] | None = None) -> Any:
    """Rows behind the fitted stages; ``margins`` is told what tests found, and nothing is drawn."""
    found = [] if margins is None else margins

    def judge(self: Any, margin: float, *_: Any) -> None:
        found.append(margin)

    with patch.object(CalibratedPlan, "_require_pass", judge):
        return plan.prepare(as_rows(rows, gaps=True), plan.releases(Key.from_seed("neighbours")))


def _labels(moved: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Labels of the common rows, by which what moved adds up."""
    yield "one class", np.ones(len(moved), dtype=int)
    yield "random classes", rng.integers(0, 2, len(moved))
    whole = np.nan_to_num(moved)
    column = int(np.argmax(np.abs(whole).sum(axis=0)))
    if whole[:, column].any():
        yield "classes along the drift", (whole[:, column] > 0).astype(int)


def _targets(plan: CalibratedPlan, labels: np.ndarray, odd: int) -> np.ndarray:
    """Targets of the common rows behind that of the odd one, which is replaced as well."""
    values = np.concatenate([[odd], labels])
    loss = plan.plan.loss
    return loss.targets(
        2.0 * values - 1 if loss.task == "regression" else values, plan.facts.outputs
    )


def _weights(
    moved: np.ndarray, d: int, outputs: int, intercept: bool, rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    """Weights at which rows that moved, or constants that vanished, show most."""
    shape = (1, d, outputs)
    yield "zero", np.zeros(shape)
    along = np.zeros(d)
    along[: moved.shape[1]] = np.nan_to_num(moved).sum(axis=0)
    if along.any():
        along /= np.abs(along).max()  # or squares of denormal numbers would vanish
        along /= np.linalg.norm(along)
        for size in (1.0, 30.0, -30.0):
            yield f"along the drift, {size:g}", np.broadcast_to(size * along[:, None], shape).copy()
    if intercept:
        for size in (100.0, -100.0):
            weights = np.zeros(shape)
            weights[:, -1] = size
            yield f"intercept {size:g}", weights
    for power in (-1, 0, 1, 2):
        weights = rng.normal(size=shape)
        yield f"random, 1e{power}", weights * 10.0**power / np.sqrt((weights**2).sum())
