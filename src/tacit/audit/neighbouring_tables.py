"""Neighbouring tables on which one row moves everything as far as it can.

A `Pair` is two tables that differ in their first row, or person. What differing means is the
relation's:
another row in its place (``replace_one``), or no row at all under the same public number of rows.
The latter is what ``replace_special`` means, too: a null row counts nothing in any sum, so sums
with it are sums without it, divided by the same number.

The tables are tiny and strange on purpose: a guarantee is about the worst ones. Which of them is
worst depends on the plan's settings, so several are made and a few trial runs choose
(`tacit.audit.distinguish`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tacit.data.rows import as_rows
from tacit.exceptions import InputError
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import PublicRandomness
from tacit.plan import CalibratedPlan, Plan
from tacit.preprocessing import (
    Bound,
    Dedup,
    NoiselessImpute,
    NoiselessPCA,
    NoiselessScale,
    PrivateClip,
    PrivatePCA,
    Quantize,
    RandomProjection,
    SoftPCA,
    Stage,
)
from tacit.preprocessing.base import Context, NoiselessStage
from tacit.preprocessing.public_rows import PublicStage
from tacit.privacy.unit import ROW
from tacit.trainers import DPSGD
from tacit.trainers.base import is_auto

HALF = math.sqrt(0.5)
SMALL, LARGE = 16, 400  # rows


@dataclass(frozen=True)
class Table:
    """Rows, and a class of 0 or 1 for each.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
        Numbers.
    labels : ndarray of shape (n,)
        Classes.
    owners : ndarray of shape (n,), optional
        Whose rows they are, if people have several.
    """

    rows: np.ndarray
    labels: np.ndarray
    owners: np.ndarray | None = None

    def several(self, count: int) -> Table:
        """Every row so many times, as rows of one person: nobody can count for more.

        Parameters
        ----------
        count : int
            Rows of a person.

        Returns
        -------
        Table
            With owners.
        """
        rows, labels = (np.repeat(each, count, axis=0) for each in (self.rows, self.labels))
        return Table(rows, labels, np.repeat(np.arange(len(self.rows)), count))


@dataclass(frozen=True)
class Pair:
    """Two tables that differ in their first row, which the second one may lack.

    Attributes
    ----------
    name : str
        What makes the pair a hard one.
    first, second : Table
        The tables.
    """

    name: str
    first: Table
    second: Table

    @property
    def common(self) -> Table:
        """The rows that both tables have."""
        first, owners = self.first, self.first.owners
        if owners is None:
            return Table(first.rows[1:], first.labels[1:])
        rest = owners != owners[0]
        return Table(first.rows[rest], first.labels[rest], owners[rest])


def targets(plan: Plan, labels: np.ndarray, classes: int) -> np.ndarray:
    """Labels in the form that the plan's loss reads."""
    loss = plan.loss
    if loss.task == "regression":
        return np.asarray(loss.targets(2.0 * labels - 1.0, 1))
    return np.asarray(loss.targets(labels, loss.outputs(classes)))


def shape(plan: Plan) -> tuple[int, int]:
    """Rows and columns for which the plan can be put to a hard test."""
    n, d = SMALL, 2
    steps = plan.trainer.parameters().get("steps", "auto")
    if plan.trainer.local and not is_auto(steps):
        # As many rows as steps: each has a step, and so a report, of its own to be seen.
        n = int(steps)
    for stage in plan.stages:
        if stage.must_be_first:
            raise InputError(
                f"an audit makes its own tables of numbers; leave out {stage.name}, which is free"
            )
        public = getattr(stage, "public", None)
        if public is not None:
            d = max(d, np.shape(public)[1])
        if isinstance(stage, Bound):
            d = max(d, np.size(stage.low), np.size(stage.high))
        if isinstance(stage, NoiselessPCA | PrivatePCA | RandomProjection):
            d = max(d, 3 if stage.n_components == "auto" else int(stage.n_components) + 1)
        if isinstance(stage, NoiselessImpute):
            columns = [] if stage.columns is None else list(stage.columns)
            d = max(d, 3, len(columns) + 2, *(int(c) + 1 for c in columns))
        if isinstance(stage, NoiselessStage) and not isinstance(stage, Dedup | Quantize):
            n = max(n, LARGE)
        if isinstance(stage, PrivatePCA):
            n = max(n, 64)
    return max(n, _room(plan, d)), d


def _room(plan: Plan, d: int) -> int:
    """Rows with which a private test passes although the conditions hold just so."""
    if not any(stage.tested for stage in plan.stages):
        return 0
    slack = _slack(plan.calibrate(size=10 * LARGE, columns=d, classes=2))
    need = 20 * slack
    for stage in plan.stages:
        if isinstance(stage, Dedup | Quantize):
            need = 4 * stage_crowd(stage, slack) + 1
        if isinstance(stage, NoiselessImpute) and stage.rows_with_gaps is not None:
            need = max(need, 2.0 * stage.rows_with_gaps + 4)
    return math.ceil(need)


def _slack(plan: CalibratedPlan) -> float:
    return 0.0 if plan.test is None else plan.test.slack(0.9999)


def stage_crowd(stage: Dedup | Quantize, slack: float) -> int:
    """Rows of one of two clusters in a ball that leaves the test its slack."""
    return max(1, int((stage.crowd or 1) - slack - 2) // 2)


def pairs(plan: CalibratedPlan) -> list[Pair]:
    """Hard pairs for a plan, in raw rows.

    Examples
    --------
    >>> from tacit.losses import get_loss
    >>> from tacit.plan import Plan
    >>> from tacit.privacy.budget import Budget
    >>> from tacit.preprocessing import Normalize
    >>> from tacit.trainers import DPGD
    >>> plan = Plan(Budget(1.0, 1e-5), (Normalize(),), DPGD(steps=2), get_loss("logistic"))
    >>> [pair.name for pair in pairs(plan.calibrate(size=8, columns=2, classes=2))]
    ['alone', 'alone, in a crowd of the like', 'alone, along all columns']
    """
    relation = plan.plan.neighbors
    found = []
    for name, first, second in _tables(plan):
        if relation != "replace_one":
            second = first[1:]
        first, second = raw(plan, first), raw(plan, second)
        if relation != "replace_one":
            labels = np.zeros(len(second), dtype=int)
            found.append(Pair(name, Table(first, np.append(1, labels)), Table(second, labels)))
            continue
        for aligned, labels in _aligned(plan, first, second):
            variants = ((1, 1), (1, 0), (0, 0), (0, 1)) if aligned else ((1, 1), (1, 0))
            for mine, other in variants:
                variant = f"{name}{aligned}, labels {mine} and {other}"
                tables = (
                    Table(first, np.append(mine, labels)),
                    Table(second, np.append(other, labels)),
                )
                found.append(Pair(variant, *tables))
    if plan.plan.unit == ROW:
        return found
    count = plan.plan.unit.rows
    return [Pair(p.name, p.first.several(count), p.second.several(count)) for p in found]


def radius(plan: CalibratedPlan) -> float:
    """Norm that rows may have before they are shortened."""
    for stage in plan.plan.stages:
        if not isinstance(stage, PublicStage | RandomProjection):
            bound = stage.bound(None, plan.columns)
            if bound is not None:
                return bound
    return 1.0


def raw(plan: CalibratedPlan, rows: np.ndarray) -> np.ndarray:
    """Rows that columns' bounds map to these."""
    first = plan.plan.stages[0] if plan.plan.stages else None
    if not isinstance(first, Bound):
        return rows
    low, high = np.asarray(first.low, dtype=float), np.asarray(first.high, dtype=float)
    return (low + high) / 2 + rows * (high - low) / 2


class _Space(NamedTuple):
    """Rows, columns, and the norm that rows may have."""

    n: int
    d: int
    r: float


_Named = tuple[str, np.ndarray, np.ndarray]
_Tables = tuple[np.ndarray, np.ndarray]


def _tables(plan: CalibratedPlan) -> Iterator[_Named]:
    """Named pairs of tables, one row replaced, in the ball of the rows' bound."""
    space = _Space(plan.facts.size, plan.columns, radius(plan))
    n, d, r = space
    e1 = np.zeros(d)
    e1[0] = r
    zero = np.zeros((n - 1, d))
    yield "alone", np.vstack([e1, zero]), np.vstack([-e1, zero])
    if d > 1 and not isinstance(plan.trainer, DPSGD):
        like = np.tile(e1, (n - 1, 1))
        like[::2] *= -1
        yield "alone, in a crowd of the like", np.vstack([e1, like]), np.vstack([-e1, like])
    ones = np.full(d, r / math.sqrt(d))
    yield "alone, along all columns", np.vstack([ones, zero]), np.vstack([-ones, zero])
    for stage in plan.plan.stages:
        yield from _against(stage, plan, space)


def _against(stage: Stage, plan: CalibratedPlan, space: _Space) -> Iterator[_Named]:
    """Pairs made for one stage: the cases of equality in ``docs/drift.md``."""
    n, d, r = space
    if isinstance(stage, SoftPCA):
        length = min(1.0, math.sqrt(stage.strength) / r)
        for share, size in ((1.0, 1.0), (min(1.0, 4 * stage.strength), 1.0), (1.0, length)):
            yield ("SoftPCA: a turned axis", *_turned(space, 1, share, size))
        # Found by a search over rows of full length: at strength 0.05, at larger ones, and at R².
        wide = math.atan(0.75 * math.sqrt(stage.strength) / r)
        for beam, one, other in (
            (wide, -1.28, -0.06),
            (1.1 * wide, wide, -wide),
            (0.89 * wide, 0.77 * wide, -0.77 * wide),
        ):
            yield ("SoftPCA: two beams", *_beams(space, beam, one, other))
    elif isinstance(stage, NoiselessPCA):
        k = int(stage.n_components)
        # Its gap with the room that the test asks for: share/k of the squared norm.
        gap = float(stage.gap or 0.0) / r**2 + 2.2 * _slack(plan) / n
        for share in (k * gap, 1.0):
            for angle in (math.pi / 4, math.pi / 7):
                tables = _turned(space, k, min(1.0, share), 1.0, angle)
                yield ("NoiselessPCA: a turned axis", *tables)
    elif isinstance(stage, NoiselessScale):
        least = stage.strength if stage.floor is None else float(stage.floor)
        for variance in (least / 2, least, 1.5 * least):
            s = min(r, math.sqrt(variance))
            common = np.zeros((n - 1, d))
            common[:, 0] = r - 2 * s
            common[::2, 0] = r
            e1 = np.zeros(d)
            e1[0] = r
            yield (
                "NoiselessScale: a stretched column",
                np.vstack([e1, common]),
                np.vstack([-e1, common]),
            )
    elif isinstance(stage, NoiselessImpute):
        yield from _gaps(stage, plan, space)
    elif isinstance(stage, PrivateClip):
        # Behind it the constant may have the norm of a row: then labels tell more than rows.
        row = np.zeros((n, d))
        row[0, 0] = r
        yield "PrivateClip: the same row", row, row
    elif isinstance(stage, Dedup | Quantize):
        yield ("clusters that one row breaks", *_clusters(stage, plan, space))


def _turned(
    space: _Space, k: int, share: float, length: float, angle: float = math.pi / 4
) -> _Tables:
    """z, leaning from e_k to ±e_k+1, turns the k-th axis; rows lie along the first k (d1 and d2).

    At 45° it turns the axis most; leaning less, its own gradient is longer.
    """
    n, d, r = space
    common = np.zeros((n - 1, d))
    along = round(share * (n - 1))
    common[np.arange(along), np.arange(along) % k] = length * r
    common[::2] *= -1
    first, second = np.zeros(d), np.zeros(d)
    first[k - 1], first[k] = r * math.cos(angle), r * math.sin(angle)
    second[k - 1], second[k] = first[k - 1], -first[k]
    return np.vstack([first, common]), np.vstack([second, common])


def _beams(space: _Space, beam: float, one: float, other: float) -> _Tables:
    """Rows of full length at two angles, and a row that goes from one angle to another."""
    n, d, r = space
    angles = np.full(n + 1, beam)
    angles[:2] = one, other
    angles[2::2] *= -1
    rows = np.zeros((n + 1, d))
    rows[:, 0], rows[:, 1] = r * np.cos(angles), r * np.sin(angles)
    return np.vstack([rows[0], rows[2:]]), np.vstack([rows[1], rows[2:]])


def _gaps(stage: NoiselessImpute, plan: CalibratedPlan, space: _Space) -> Iterator[_Named]:
    """Rows that lack values, which the replaced row fills (rules c2 and f)."""
    n, d, r = space
    few = n // 2
    if stage.rows_with_gaps is not None:
        few = max(1, int(stage.rows_with_gaps - _slack(plan) - 2))
    columns = list(range(d)) if stage.columns is None else [int(c) for c in stage.columns]
    lacking = columns[-1]
    z = np.zeros(d)
    z[lacking] = r
    common = np.zeros((n - 1, d))
    common[:few, lacking] = np.nan
    yield "NoiselessImpute: gaps filled by one row", np.vstack([z, common]), np.vstack([-z, common])
    if stage.regresses:
        one, other, *_ = (c for c in range(d) if c not in columns)
        strength = stage.floor or stage.strength or 0.05
        yield "NoiselessImpute: a lever", *_lever(strength, (one, other, lacking), few, space)
    elif stage.rows_with_gaps is None:
        lonely = np.zeros((n - 1, d))
        lonely[:, lacking] = np.nan
        yield "NoiselessImpute: a column of gaps", np.vstack([z, lonely]), np.vstack([-z, lonely])


def _lever(strength: float, columns: tuple[int, int, int], few: int, space: _Space) -> _Tables:
    """Regression weights of the largest norm there is along one column; z turns them to another."""
    n, d, r = space
    one, other, lacking = columns
    part = min(0.99, strength / r**2)
    common = np.zeros((n - 1, d))
    common[:, one], common[:, lacking] = math.sqrt(part), math.sqrt(1 - part)
    common[:few] = 0.0
    common[:few, other], common[:few, lacking] = 1.0, np.nan
    slope = math.sqrt((1 - part) / part) * (n - 1 - few) / (2 * n - few)
    first, second = np.zeros(d), np.zeros(d)
    first[other] = second[other] = HALF
    side = HALF / math.hypot(slope, 1.0)
    first[one], first[lacking] = slope * side, -side
    second[one], second[lacking] = -slope * side, side
    return r * np.vstack([first, common]), r * np.vstack([second, common])


def _clusters(stage: Dedup | Quantize, plan: CalibratedPlan, space: _Space) -> _Tables:
    """Two places with two clusters each; a row between two breaks both (rule g).

    Rows lie on a circle of radius r, so that scaling them to that norm moves nothing.
    """
    n, d, r = space
    eta = stage.radius or 1e-3 * r
    k = min(stage_crowd(stage, _slack(plan)), (n - 1) // 4)
    reach = 2.5 if stage.radius else 0.0
    inside = np.zeros(k)
    if isinstance(stage, Quantize):
        inside[1:] = 0.49  # rows move to the first of them

    def points(angles: np.ndarray) -> np.ndarray:
        rows = np.zeros((len(angles), d))
        rows[:, 0], rows[:, 1] = np.cos(angles), np.sin(angles)
        return r * rows

    step = eta / r
    sides = np.concatenate([reach + inside, -reach - inside]) * step
    places = (math.pi / 4, math.pi * 5 / 4)
    common = points(np.concatenate([place + sides for place in places]))
    z = points(np.array(places))
    rest = points(np.linspace(math.pi / 2, math.pi, n - 1 - len(common)))  # far from both
    common = np.vstack([common, rest])
    return np.vstack([z[0], common]), np.vstack([z[1], common])


def _aligned(
    plan: CalibratedPlan, first: np.ndarray, second: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Labels by which all that the common rows do adds up, in either of two directions.

    At weights of zero a gradient is half the row, with its label's sign. Rows may move most
    in a direction in which the replaced row itself does not: then less may come to more.
    """
    same = np.zeros(len(first) - 1, dtype=int)
    last = max(
        (i for i, s in enumerate(plan.plan.stages) if isinstance(s, NoiselessStage)), default=-1
    )
    if last < 0:
        yield "", same
        return
    seen = []
    for table in (first, second):
        rows = as_rows(table, gaps=True)
        for i, stage in enumerate(plan.plan.stages[: last + 1]):
            stage = copy.copy(stage)
            public = PublicRandomness(Key.from_seed("labels"))
            context = Context(plan.facts.size, None, public, position=i, drift=plan.drifts[i])
            looks = isinstance(stage, NoiselessStage)
            try:
                stage.fit(rows if looks else rows.hidden(), context)
                rows = stage.through(rows)
            except (ArithmeticError, np.linalg.LinAlgError, InputError):
                yield "", same
                return
        seen.append(np.asarray(rows.collect()))
    apart = seen[0][1:] - seen[1][1:]
    if not np.abs(apart).max(initial=0.0) > 0:
        yield "", same
        return
    _, sizes, directions = np.linalg.svd(apart, full_matrices=False)
    yield ", along", (apart @ directions[0] > 0).astype(int)
    if sizes[1:2] > sizes[0] / 10:
        yield ", across", (apart @ directions[1] > 0).astype(int)
