"""What is refused before anything is spent, by public facts: each says what to do instead."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.cluster import Parcel
from tacit.data.dask_rows import without_rows
from tacit.data.memory import allowed_memory, require_room
from tacit.data.rows import ELSEWHERE, Rows, can_take, shares_memory
from tacit.engine.arithmetic import Arithmetic
from tacit.engine.array_api import require_device
from tacit.engine.kernels.compact import padded_width
from tacit.engine.people import MOST_ROWS, memory_of
from tacit.engine.streaming import CELL
from tacit.exceptions import InputError
from tacit.preprocessing.base import NoiselessStage, PrivateStage, Stage
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Neighbors, Relation
from tacit.privacy.unit import ROW
from tacit.trainers.base import Trainer
from tacit.trainers.feasible import require_startable

if TYPE_CHECKING:
    from tacit.plan.plan import Plan
    from tacit.plan.run import CalibratedPlan

ARITHMETIC = (Arithmetic.EXACT, Arithmetic.STRICT, Arithmetic.FAST)


def validate_plan(plan: Plan) -> None:
    """Refuse parts that do not go together."""
    sensitivity(plan.neighbors)
    if plan.arithmetic not in ARITHMETIC:
        raise InputError(f"arithmetic={plan.arithmetic!r} must be one of {ARITHMETIC}")
    for stage in plan.stages:
        if not isinstance(stage, Stage):
            raise InputError(f"stages must be stages of tacit.preprocessing, not {stage!r}")
        known = isinstance(stage, PrivateStage | NoiselessStage)
        if stage.kind not in ("free", "public") and not known:
            raise InputError(f"{stage.name} looks at private rows and does not say at what cost")
    if plan.target is not None and plan.target.task != plan.loss.task:
        raise InputError(
            f"{plan.target.name} is for {plan.target.task}, and loss={plan.loss.name!r} is not"
        )
    if plan.target is not None and (plan.noiseless or plan.trainer.local or plan.fitted):
        raise InputError(
            f"{plan.target.name} is an event of its own, for which there is no place here: say "
            "what is public of the targets (classes=, target_bounds=)"
        )
    if not isinstance(plan.trainer, Trainer):
        raise InputError(f"trainer must be one of tacit.trainers, not {plan.trainer!r}")
    if plan.fitted and plan.noiseless:
        raise InputError(
            "what a noiseless stage has learned is private, so nothing can go on from it: fit "
            "anew, or use stages that release what they learn"
        )
    if not plan.fit_intercept and any(stage.carries_constant for stage in plan.stages):
        raise InputError(
            "a stage appends the constant feature that carries the intercept: leave out its "
            "constant, or fit an intercept"
        )
    validate_unit(plan)
    validate_stages(plan.stages, plan.neighbors)
    validate_trainer(plan.stages, plan.trainer, plan.neighbors, plan.arithmetic)
    if plan.noiseless and plan.arithmetic == Arithmetic.STRICT:
        raise InputError(
            "arithmetic='strict' checks sums of integers; rows behind a noiseless stage are "
            "not rounded to integers, so use arithmetic='exact', or stages without a noiseless one"
        )
    if plan.arithmetic == Arithmetic.STRICT and not plan.trainer.takes_strict:
        raise InputError(
            f"arithmetic='strict' does not check everything that {plan.trainer.name} sums: use "
            "arithmetic='exact', or DPGD or DPSGD"
        )


def validate_unit(plan: Plan) -> None:
    """Refuse what does not bound what a person with several rows counts for."""
    if plan.unit == ROW:
        return
    if plan.noiseless:
        name = next(s.name for s in plan.stages if isinstance(s, NoiselessStage))
        raise InputError(
            f"{name} is fitted on the rows without noise, which is analysed for tables that differ "
            "in one row, not in all rows of a person: use a private or a public stage"
        )
    if not plan.trainer.takes_people:
        raise InputError(
            f"{plan.trainer.name} bounds what a row counts for, not a person with all rows: train "
            "with DPGD or DPSGD"
        )
    if plan.unit.rows > MOST_ROWS:
        raise InputError(
            f"at most {MOST_ROWS} rows of a person can be counted together, not {plan.unit.rows}: "
            "lower max_rows_per_group"
        )
    if plan.arithmetic == Arithmetic.STRICT:
        raise InputError(
            "arithmetic='strict' checks sums over rows, not over people: use arithmetic='exact'"
        )


def validate_stages(stages: Sequence[Stage], neighbors: Neighbors) -> None:
    """Refuse an order of stages that no rule covers, and say what to do instead."""
    noiseless = [stage for stage in stages if isinstance(stage, NoiselessStage)]
    if noiseless and neighbors != Relation.REPLACE_ONE:
        raise InputError(
            f"{noiseless[0].name} is fitted on the rows without noise, which is analysed for "
            "tables that differ by replacing a row: neighbors must be 'replace_one', not "
            f"{neighbors!r}"
        )
    filler = max((i for i, stage in enumerate(stages) if stage.fills_gaps), default=-1)
    makers = [stage.name for stage in stages[filler + 1 :] if stage.makes_gaps]
    if makers:
        raise InputError(
            f"{makers[0]} leaves missing values as gaps, and no stage behind it fills them: add "
            "NoiselessImpute, PrivateImpute or FillGaps, or let the schema say another 'missing'"
        )
    late = next((stage.name for stage in stages[1:] if stage.must_be_first), None)
    if late is not None:
        raise InputError(
            f"{late} must be the first stage: it takes rows as they come, and {stages[0].name} "
            "would have changed them"
        )
    early = next((stage.name for stage in stages[:-1] if stage.keeps_rows), None)
    if early is not None:
        raise InputError(
            f"{early} must be the last stage: what it releases is of the rows that are trained on"
        )
    released: Stage | None = None
    blanked: Stage | None = None
    for i, stage in enumerate(stages):
        if stage.tested and released is not None:
            raise InputError(
                f"{stage.name} rests on a private test, which must come before any release; put "
                f"it in front of {released.name}"
            )
        if i < filler and not stage.keeps_gaps:
            raise InputError(
                f"{stages[filler].name} must come before {stage.name}, which cannot pass over "
                "missing values"
            )
        if blanked is not None and not stage.keeps_zero:
            elsewhere = "" if stage.pays else f", or put it in front of {blanked.name}"
            raise InputError(
                f"{stage.name} would move the rows that {blanked.name} has blanked out; leave it "
                f"out{elsewhere}"
            )
        released = stage if stage.pays else released
        blanked = stage if stage.blanks else blanked


def validate_monotone(stages: Sequence[Stage], trainer: Trainer, outputs: int) -> None:
    """Refuse columns that may go one way only where nothing would hold them to it."""
    first = next((i for i, stage in enumerate(stages) if stage.monotone), None)
    if first is None:
        return
    mixed = next((stage.name for stage in stages[first + 1 :] if not stage.translates), None)
    if mixed is not None:
        raise InputError(
            f"a column that is monotone in the schema would not be behind {mixed}, which changes "
            "what its weights mean: leave that stage out, or monotone"
        )
    if outputs > 1:
        raise InputError(
            "monotone is for two classes and for numbers: of several classes, one grows at the "
            "others' expense"
        )
    if not trainer.takes_monotone:
        raise InputError(f"{trainer.name} cannot keep weights in an order: use DPGD or DPSGD")


def validate_trainer(
    stages: Sequence[Stage],
    trainer: Trainer,
    neighbors: Neighbors,
    arithmetic: Arithmetic | str,
) -> None:
    """Refuse a trainer where its account does not hold."""
    noiseless = [stage.name for stage in stages if isinstance(stage, NoiselessStage)]
    if noiseless and not trainer.takes_drift:
        raise InputError(
            f"{trainer.name} is not analysed for rows that a noiseless stage, here {noiseless[0]}, "
            "has moved; train with DPGD, or leave the stage out"
        )
    last = stages[-1] if stages else None
    if trainer.needs_scales and not (last and last.scales_columns):
        raise InputError(
            f"{trainer.name} needs PublicPrecondition(public) as the last stage, which divides the "
            "columns"
        )
    curated = [stage.name for stage in stages if stage.pays]
    if curated and trainer.local:
        raise InputError(
            f"{curated[0]} needs somebody who sees all rows, and {trainer.name} trusts nobody: use "
            "free and public stages only"
        )
    if trainer.contracts and not (last and last.certain_norm):
        raise InputError(
            f"{trainer.name} needs rows whose norm is certain: end the stages in ClipNorm(radius)"
        )
    if neighbors not in trainer.relations:
        raise InputError(
            f"{trainer.name} is analysed for neighbors={' or '.join(map(repr, trainer.relations))}"
            f", not for {neighbors!r}"
        )
    if arithmetic not in trainer.arithmetics:
        raise InputError(
            f"{trainer.name} has no exact noise: pass arithmetic='fast', and its certificate says "
            "that ideal arithmetic is assumed"
        )


def validate_public_rows(stages: Sequence[Stage], rows: Any) -> None:
    """Refuse public rows that are the private ones, or some of them, in the same memory.

    Values are not compared: see ``docs/decisions/0018-public-rows.md``.
    """
    for stage in stages:
        public = getattr(stage, "public", None)
        if public is not None and shares_memory(public, rows):
            raise InputError(
                f"{stage.name}: its public rows are the private rows, or some of them: they share "
                "memory. Take the public rows out of the table that is fitted to. If everybody may "
                "see them although they are in it, pass a copy of them"
            )


def validate_placement(stages: Sequence[Stage], rows: Any) -> None:
    """Refuse stages that need all rows in one place, where rows are on a cluster."""
    if not (isinstance(rows, Rows) and rows.distributed):
        return
    sent = without_rows(replace(rows, maps=tuple(stages)))
    Parcel.of(sent.maps)  # refuses what cannot be sent there
    for i, stage in enumerate(stages):
        if stage.gathers(moved=any(isinstance(other, NoiselessStage) for other in stages[:i])):
            raise InputError(
                f"{stage.name} needs all rows in one place, and they are on the workers of a "
                "cluster: leave it out, or pass X.compute()"
            )


def validate_rows(plan: CalibratedPlan, rows: Rows) -> None:
    """Refuse rows that the plan was not made for."""
    asked, size = plan.plan, plan.facts.size
    if rows.unit != asked.unit:
        raise InputError(
            f"the plan was calibrated for another unit of privacy than these rows have: for "
            f"{asked.unit}, not {rows.unit}"
        )
    people = asked.unit != ROW
    if asked.neighbors is not Relation.ADD_OR_REMOVE_ONE and rows.units != size:
        what = "people" if people else "rows"
        raise InputError(f"the plan was calibrated for {size} {what}, not {rows.units}")
    here = can_take(rows) or hasattr(rows.source, "chosen")
    if people and not rows.distributed and (plan.on_arrays(rows) or not here):
        raise InputError(ELSEWHERE)
    if rows.d != plan.columns:
        raise InputError(f"the plan was calibrated for {plan.columns} columns, not {rows.d}")
    validate_public_rows(asked.stages, rows)
    validate_placement(asked.stages, rows)
    if asked.target is not None and rows.distributed:
        raise InputError(
            f"{asked.target.name} needs all targets in one place, and they are on the workers of a "
            "cluster: say what is public of them (classes=, target_bounds=)"
        )
    if people:
        validate_memory(plan, rows)
    if plan.on_arrays(rows):  # before anything is spent
        xp, device = rows.source.namespace
        require_device(xp, device, plan.arithmetic)
    if not plan.trainer.descends and rows.distributed:
        raise InputError(
            f"{plan.trainer.name} needs all rows in one place, and they are on the workers of "
            "a cluster: train with DPGD, or pass X.compute()"
        )
    for stage in asked.stages:
        if stage.in_memory:  # the same
            require_room(rows, stage.name, plan.columns)
    if asked.stages and asked.stages[0].must_be_first:
        copy.copy(asked.stages[0]).fit(rows.hidden())  # what it cannot take costs nothing


def validate_memory(plan: CalibratedPlan, rows: Rows) -> None:
    """Refuse people whose rows may not fit into memory, if everybody has as many as count.

    How many they have is private, so it does not decide. Sparse rows are in memory already; rows
    of shapes take no less than is reckoned here.
    """
    unit, clips = plan.plan.unit, getattr(plan.trainer, "clips", ())  # of descent
    if rows.distributed or unit.rows == 1 or not clips:
        return
    width = 0 if rows.sparse else padded_width(plan.facts.features + plan.plan.adds_constant)
    layout = getattr(plan.plan.stages[0], "layout", None) if plan.plan.stages else None
    if layout is not None:
        width = min(width, 2 * len(layout.widths) + padded_width(layout.straight + 2))
    cell = CELL["fast" if plan.arithmetic == Arithmetic.FAST else "exact"]
    needed = memory_of(plan.facts.size, unit, width, cell, len(clips))
    allowed = allowed_memory(rows)
    if needed > allowed:
        more = ", allow more with scan(path, memory=...)" if hasattr(rows.source, "stamps") else ""
        raise InputError(
            f"rows of people are summed in memory: {unit.rows} rows of each of "
            f"{plan.facts.size} people take up to {needed / 2**30:.3g} GB, and there are "
            f"{allowed / 2**30:.3g}: lower max_rows_per_group, learn from fewer columns{more}, or "
            "take the rows to Dask"
        )


def validate_init(plan: CalibratedPlan, init: tuple[np.ndarray, np.ndarray] | None) -> None:
    """Refuse a start of another shape, or one that is not taken."""
    if init is None:
        return
    if not plan.trainer.takes_start:
        raise InputError(f"{plan.trainer.name} begins at zero: it takes no model to start from")
    coef = init[0]
    stages, wide = list(plan.plan.stages), plan.columns
    while stages and stages[-1].affine:
        stages.pop()  # coefficients are for the columns in front of these, however many come out
    open_stages = [s.name for s in stages if s.widest(wide) != s.width(wide)]
    if open_stages or plan.plan.target is not None:
        raise InputError(
            "a model to start from has a coefficient for every column, and how many there are is "
            f"found out first, by {(*open_stages, plan.plan.target and plan.plan.target.name)[0]}: "
            "go on from a fitted model instead, with partial_fit, or describe the columns"
        )
    for stage in stages:
        wide = stage.width(wide)
    if coef.shape != (plan.facts.outputs, wide):
        raise InputError(
            f"the model to start from has coefficients of shape {coef.shape}, not "
            f"{(plan.facts.outputs, wide)}, scores by the columns behind "
            f"{', '.join(stage.name for stage in stages) or 'no stage'}"
        )
    require_startable(*init, plan.facts, plan.intercept_scaling)
