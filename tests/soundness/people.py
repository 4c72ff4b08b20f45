"""Whole plans on tables that differ in one person, with all rows: see `replays`.

The rows of the odd person lie anywhere in the table. In its neighbour they are gone, or they are
those of another person, as many or not, in the same places or in others. Nobody else's rows change,
but where they lie does. Tables are made to hurt: rows of one person that cancel or that add up,
more rows than count, people who share all of their values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from tests.soundness import plans, replays
from tests.soundness.replays import Case, Outcome, Watching, judged, run

from tacit.audit.recorder import Recorder
from tacit.data.columns import UnknownColumn, default_column
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.exceptions import BudgetError, InputError
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.plan.targets import PrivateClasses, PrivateTargetBounds
from tacit.preprocessing import (
    Bound,
    ClipNorm,
    FillGaps,
    Normalize,
    PrivateBlocks,
    PrivateBounds,
    PrivateCenter,
    PrivateCheckedPCA,
    PrivateClip,
    PrivateEncode,
    PrivateEqualize,
    PrivateImpute,
    PrivatePCA,
    PrivatePrecondition,
    PrivateScale,
    RandomProjection,
    Stage,
)
from tacit.privacy import Budget
from tacit.privacy.events import NEIGHBORS
from tacit.privacy.unit import Unit
from tacit.trainers import DPGD, DPSGD, SufficientStatistics

D = 3
ODD = "odd"  # identifier of the person who is replaced
OTHER = "other"
PUBLIC = np.random.default_rng(11).normal(size=(30, D)) * [1.0, 0.3, 0.01]


def _stages(rng: np.random.Generator) -> list[Stage]:
    first = [ClipNorm(1.0), Normalize(), Bound(-1.0, 1.0), PrivateBounds(), ClipNorm(9.0)]
    filling: list[Stage] = [FillGaps(0.0), PrivateImpute(columns=[2])]
    later: list[Stage] = [
        ClipNorm(0.7),
        Normalize(),
        RandomProjection(2, seed=3),
        PrivateCenter(),
        PrivateCenter(method="instance-optimal"),
        PrivateScale(),
        PrivateEqualize(),
        PrivateClip(),
        PrivateClip(method="exponential"),
        PrivatePCA(2),
        PrivateCheckedPCA(PUBLIC, 2, share=0.4),
        PrivateBlocks(blocks=[(2, [ClipNorm(0.5), PrivateBounds(), PrivateCenter()]), (1, [])]),
        PrivatePrecondition(),
    ]
    made: list[Stage] = [first[rng.integers(len(first))]]
    if rng.random() < 0.2:
        made.append(filling[rng.integers(len(filling))])
    made += [later[rng.integers(len(later))] for _ in range(int(rng.integers(0, 4)))]
    return made[:4]


def _trainer(rng: np.random.Generator) -> tuple[Any, str]:
    trainers: list[tuple[Any, str]] = [
        (DPGD(steps=2), "logistic"),
        (DPGD(steps=2), "softmax"),
        (DPGD(steps=2, clipping="per-class"), "softmax"),
        (DPGD(steps=2, clip=1e-3), "logistic"),  # rows are limited on their way
        (DPGD(steps=2, radius=0.5, momentum=0.5, average="uniform"), "hinge"),
        (DPGD(steps=2), "squared"),
        (DPGD(steps=2, clip=0.01), "squared"),
        (DPSGD(steps=2, batch_size=3), "logistic"),
        (DPSGD(steps=2, batch_size=3), "softmax"),
        (SufficientStatistics(), "squared"),
    ]
    return trainers[rng.integers(len(trainers))]


def _several(rng: np.random.Generator, kind: int) -> np.ndarray:
    """Rows of one person: aligned, opposing, one direction and its opposite, huge, tiny."""
    m = int(rng.integers(1, 9))
    e = rng.normal(size=D)
    e /= np.linalg.norm(e)
    made = [
        np.tile(e, (m, 1)),
        e * np.where(np.arange(m) % 2, 1.0, -1.0)[:, None],
        e * np.where(np.arange(m) % 2, 1.0, -1.0)[:, None] + 1e-6 * rng.normal(size=(m, D)),
        rng.normal(size=(m, D)),
        1e308 * np.tile(e, (m, 1)),
        np.zeros((m, D)),
        np.eye(D)[np.arange(m) % D],
    ]
    return made[kind % len(made)]


def _joined(
    common: np.ndarray, odd: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Common rows in their order with odd ones between them; which are odd."""
    n = len(common) + len(odd)
    is_odd = np.zeros(n, dtype=bool)
    is_odd[rng.choice(n, len(odd), replace=False)] = True
    order = np.empty(n, dtype=np.intp)
    order[~is_odd], order[is_odd] = np.arange(len(common)), len(common) + np.arange(len(odd))
    return order, is_odd


@lru_cache(maxsize=4096)
def draw(seed: int) -> Case | None:
    """A plan for people, and two tables that differ in one of them; None if it is refused."""
    rng = np.random.default_rng([seed, 60])
    stages, (trainer, loss) = _stages(rng), _trainer(rng)
    neighbors = list(NEIGHBORS)[rng.integers(3)]
    people, n = int(rng.choice([3, 20, 40])), int(rng.choice([8, 40, 90]))
    pairs = plans.hostile(n, D, seed)
    common = pairs[rng.integers(len(pairs))].rows[0][1:].copy()
    owner = rng.integers(0, people, len(common))
    if rng.random() < 0.3:  # each person's rows cancel
        common[1::2], owner[1::2] = -common[: 2 * (n // 2) : 2], owner[: 2 * (n // 2) : 2]
    if any(stage.fills_gaps for stage in stages):
        common[rng.random(len(common)) < 0.05, 2] = np.nan
    unit = Unit("person", int(rng.choice([1, 2, 3, 5])), "who")
    task = get_loss(loss).task
    count = len(np.unique(owner)) + 1
    try:
        plan = Plan(
            Budget(float(rng.choice([1.0, 8.0])), 1e-5),
            tuple(stages),
            trainer,
            get_loss(loss),
            neighbors,
            fit_intercept=bool(rng.integers(2)),
            arithmetic=["exact", "exact", "exact", "fast"][rng.integers(4)],
            unit=unit,
        ).calibrate(size=count, columns=D, classes=3 if task == "classification" else 0)
    except (InputError, BudgetError):
        return None
    odd = _several(rng, int(rng.integers(7)))
    other = odd if rng.random() < 0.3 else _several(rng, int(rng.integers(7)))
    gone = neighbors != "replace_one"
    if gone:
        other = other[:0]
    labels = rng.integers(0, 3, len(common)) if rng.random() < 0.5 else np.ones(n, dtype=int)
    sides = []
    for rows, name in ((odd, ODD), (other, [ODD, OTHER][rng.integers(2)])):
        theirs = rng.integers(0, 3, len(rows))
        order, _ = _joined(common, rows, rng)
        ids = np.array([f"p{i}" for i in owner.tolist()] + [name] * len(rows), dtype=object)
        table = np.vstack([common, rows])[order]
        sides.append((table, np.concatenate([labels, theirs])[order], ids[order]))
    tables, both, groups = zip(*sides, strict=True)
    return Case(plan, f"people {seed}", tables, both, groups)


@lru_cache(maxsize=4096)
def draw_table(seed: int) -> Case | None:
    """The same of a table of which little is known."""
    rng = np.random.default_rng([seed, 61])
    n = int(rng.choice([300, 600]))
    common = replays.cells(rng, n)
    owner = rng.integers(0, n // 2, n)
    columns = {
        "year": default_column("number", **[{}, {"low": 0.0}][seed % 2]),
        "amount": default_column("number", shape=["auto", "straight"][seed % 2]),
        "job": default_column("category", **[{}, {"categories": ["cook", "nurse"]}][seed % 2]),
        "town": default_column("category"),
        "any": [UnknownColumn(), default_column("category")][seed % 2],
    }
    first = PrivateEncode(Schema(columns), noise_multiplier=float(rng.choice([0.2, 0.5])))
    behind: list[list[Stage]] = [[], [Normalize()], [PrivateCenter()]]
    trainer, loss = [(DPGD(steps=2), "logistic"), (DPGD(steps=2), "squared")][rng.integers(2)]
    neighbors = list(NEIGHBORS)[rng.integers(3)]
    finder = None
    if rng.random() < 0.4:
        finder = PrivateClasses() if loss == "logistic" else PrivateTargetBounds()
    unit = Unit("person", int(rng.choice([1, 2, 4])), "who")
    try:
        plan = Plan(
            Budget(float(rng.choice([20.0, 80.0])), 1e-5),
            (first, *behind[rng.integers(3)]),
            trainer,
            get_loss(loss),
            neighbors,
            target=finder,
            unit=unit,
        ).calibrate(size=len(np.unique(owner)) + 1, columns=5, classes=2 * (loss == "logistic"))
    except (InputError, BudgetError):
        return None
    labels: Any = rng.integers(0, 2, n)
    if finder is not None and loss == "logistic":
        labels = np.array(["no", "yes"], dtype=object)[labels]
    elif finder is not None:
        labels = labels * 1e9 + rng.normal(size=n)
    sides = []
    for side in (0, 1):
        m = 0 if side and neighbors != "replace_one" else int(rng.integers(1, 7))
        rows = [replays.ODD[i] for i in rng.integers(0, len(replays.ODD), m)]
        theirs: Any = rng.integers(0, 2, m)
        if finder is not None and loss == "logistic":
            theirs = np.array(["mine", "own", "yes", "no"], dtype=object)[rng.integers(0, 4, m)]
        elif finder is not None:
            theirs = rng.choice([1e308, -1e300, 5.0], m)
        order, _ = _joined(np.empty(n), np.empty(m), rng)
        ids = np.array([f"p{i}" for i in owner.tolist()] + [ODD] * m, dtype=object)
        cells = {k: [*common[k], *(row[k] for row in rows)] for k in common}
        table = Table.from_columns({k: [cells[k][i] for i in order] for k in cells})
        sides.append((table, np.concatenate([labels, theirs])[order], ids[order]))
    tables, both, groups = zip(*sides, strict=True)
    return Case(plan, f"table of people {seed}", tables, both, groups)


def _numbers(ids: np.ndarray) -> dict[Any, int]:
    """People in the order in which they first appear."""
    return {name: i for i, name in enumerate(dict.fromkeys(ids.tolist()))}


def compare(case: Case, seed: int = 0) -> list[str]:
    """What is wrong: empty if the account covers these neighbours."""
    rng = np.random.default_rng(seed)
    recorder = Recorder()
    run(case, 0, recorder)
    assert case.groups is not None
    numbers = [_numbers(ids) for ids in case.groups]
    common = [name for name in numbers[0] if name != ODD]
    drawn = [name for name in common if rng.random() < 0.5]
    wrong = []
    for with_odd in (True, False) if replays.samples(case) else (True,):
        outcomes = []
        for side in (0, 1):
            odd = [name for name in (ODD, OTHER) if name in numbers[side]] if with_odd else []
            batch = np.sort([numbers[side][name] for name in [*drawn, *odd]]).astype(np.intp)
            watching = Watching(recorder.tape, batch)
            outcomes.append(Outcome(watching, run(case, side, watching)))
        wrong += judged(case, recorder.tape, outcomes, with_odd)
    return [f"{case}: {text}" for text in wrong]
