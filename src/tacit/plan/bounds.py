"""How stages stand in a row: what may follow what, and how drift and bounds pass along.

Everything here is computed from public facts, before any row is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.data.cluster import Parcel
from tacit.data.dask_rows import lean
from tacit.data.rows import Rows, shares_memory
from tacit.engine.quantization import LIMIT
from tacit.engine.sensitivity import GradientSensitivity
from tacit.exceptions import InputError, MissingBound
from tacit.losses import Loss
from tacit.preprocessing.base import NoiselessStage, Stage
from tacit.privacy.sensitivity.drift import Drift
from tacit.trainers.gradient import GradientTrainer

__all__ = ["Way", "check", "relation", "separate", "settle", "suits", "walk"]


def relation(
    neighbors: str, stages: Sequence[Stage], trainer: GradientTrainer | None = None
) -> str:
    """The neighbouring relation that ``"auto"`` stands for."""
    if neighbors != "auto":
        return neighbors
    plain = any(isinstance(stage, NoiselessStage) for stage in stages)
    if trainer is not None and "replace_special" not in trainer.relations:
        return trainer.relations[0]
    return "replace_one" if plain else "replace_special"


def check(stages: Sequence[Stage], neighbors: str) -> None:
    """Refuse an order of stages that no rule covers, and say what to do instead."""
    plain = [stage for stage in stages if isinstance(stage, NoiselessStage)]
    if plain and neighbors != "replace_one":
        raise InputError(
            f"{plain[0].name} is fitted on the rows without noise, which is analysed for tables "
            f"that differ by replacing a row: neighbors must be 'replace_one', not {neighbors!r}"
        )
    filler = max((i for i, stage in enumerate(stages) if stage.fills_gaps), default=-1)
    makers = [stage.name for stage in stages[filler + 1 :] if stage.makes_gaps]
    if makers:
        raise InputError(
            f"{makers[0]} leaves missing cells as gaps, and no stage behind it fills them: add "
            "NoiselessImpute, PrivateImpute or FillGaps, or let the schema say another 'missing'"
        )
    late = next((stage.name for stage in stages[1:] if stage.first), None)
    if late is not None:
        raise InputError(
            f"{late} must be the first stage: it takes rows as they come, and {stages[0].name} "
            "would have changed them"
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
                "missing cells"
            )
        if blanked is not None and not stage.keeps_zero:
            elsewhere = "" if stage.pays else f", or put it in front of {blanked.name}"
            raise InputError(
                f"{stage.name} would move the rows that {blanked.name} has blanked out; leave it "
                f"out{elsewhere}"
            )
        released = stage if stage.pays else released
        blanked = stage if stage.blanks else blanked


def suits(
    stages: Sequence[Stage], trainer: GradientTrainer, neighbors: str, arithmetic: str
) -> None:
    """Refuse a trainer where its account does not hold."""
    plain = [stage.name for stage in stages if isinstance(stage, NoiselessStage)]
    if plain and not trainer.takes_drift:
        raise InputError(
            f"{trainer.name} is not analysed for rows that a noiseless stage, here {plain[0]}, has "
            "moved; train with DPGD, or leave the stage out"
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


def expand(
    stages: Sequence[Stage], *, columns: int, size: int, mu: float, intercept: bool
) -> tuple[tuple[Stage, ...], list[str]]:
    """Stages in place of those that stand for several, by public facts, and why."""
    found: list[Stage] = []
    said: list[str] = []
    for stage in stages:
        facts: dict[str, Any] = {"columns": columns, "size": size, "intercept": intercept}
        own, why = stage.expand(tuple(found), **facts, mu=mu)
        found += own
        said += [why] if why else []
    return tuple(found), said


def settle(
    stages: Sequence[Stage], *, columns: int, size: int, outputs: int, mu: float
) -> tuple[Stage, ...]:
    """Stages with every ``"auto"`` replaced, by public facts and public rows."""
    settled: list[Stage] = []
    d = columns
    for stage in stages:
        facts = {"columns": d, "size": size, "outputs": outputs}
        settled.append(stage.settle(tuple(settled), **facts, mu=mu))
        d = settled[-1].width(d)
    return tuple(settled)


def separate(stages: Sequence[Stage], rows: Any) -> None:
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


def require_spread(stages: Sequence[Stage], rows: Any) -> None:
    """Refuse stages that need all rows in one place, where rows are on a cluster."""
    if not (isinstance(rows, Rows) and rows.spread):
        return
    Parcel.of(lean(replace(rows, maps=tuple(stages))).maps)  # refuses what cannot be sent there
    for i, stage in enumerate(stages):
        if stage.gathers(moved=any(isinstance(other, NoiselessStage) for other in stages[:i])):
            raise InputError(
                f"{stage.name} needs all rows in one place, and they are on the workers of a "
                "cluster: leave it out, or pass X.compute()"
            )


@dataclass(frozen=True)
class Way:
    """What becomes of rows on their way through the stages.

    Attributes
    ----------
    stages : tuple of Stage
    size : int
        Number of rows.
    d : int
        Columns that reach the trainer.
    typical : float
        Scale of the rows that reach it, for choosing settings.
    draws : int
        Noise values that the stages draw.
    drifts : tuple of (Drift or None)
        In front of every stage and, at last, of the trainer; None where rows have no bound.
    """

    stages: tuple[Stage, ...]
    size: int
    d: int
    typical: float
    draws: int
    drifts: tuple[Drift | None, ...]

    @property
    def total(self) -> float:
        """How far the rows that neighbours share have moved apart in all."""
        return 0.0 if self.drifts[-1] is None else self.drifts[-1].total

    @property
    def _plain(self) -> list[int]:
        return [i for i, stage in enumerate(self.stages) if isinstance(stage, NoiselessStage)]

    @property
    def flips(self) -> float:
        """Most rows that are blanked out in one of two neighbours only."""
        behind = [self.drifts[i + 1] for i in self._plain if self.stages[i].blanks]
        return math.fsum(drift.moved for drift in behind if drift is not None)

    @property
    def only_flips(self) -> bool:
        """Whether rows move in no other way than by being blanked out."""
        return all(self.stages[i].blanks for i in self._plain)

    def settings(self) -> tuple[float, float]:
        """Drift to choose settings by, and the noise that comes on top whatever is chosen.

        A row that is blanked out moves a sum by a clip: that is a factor, and no reason
        to choose a larger clip.
        """
        return (0.0, 1 + self.flips / 2) if self.only_flips else (self.total, 1.0)

    def movement(
        self, loss: Loss, outputs: int, intercept: float, *, rounded: bool
    ) -> GradientSensitivity:
        """What the drift does to a trainer's sums."""
        last = self.drifts[-1]
        if last is None:
            raise MissingBound(
                "Training after a noiseless stage", "ClipNorm(radius) as a last stage"
            )
        return GradientSensitivity(
            last,
            loss,
            outputs,
            self.d + bool(intercept),
            self.size,
            intercept,
            rounded=rounded,
            flips=self.flips,
            blanks=self.only_flips,
        )


def walk(stages: Sequence[Stage], size: int, columns: int) -> Way:
    """Widths, bounds and drift behind every stage."""
    if size < 2 and any(isinstance(stage, NoiselessStage) for stage in stages):
        raise InputError("a noiseless stage needs at least two rows")
    d, draws = columns, 0
    typical: float | None = None
    drifts: list[Drift | None] = [None]
    for stage in stages:
        width = stage.width(d)
        typical = stage.typical(typical, d)
        draws += stage.draws(d) if stage.pays else 0
        drifts.append(_behind(stage, drifts[-1], size, d))
        d = width
    if typical is None:
        raise MissingBound(
            "Training",
            "stages that end in rows of bounded norm, such as ClipNorm(radius)",
            "PrivateBounds() as a first stage, which finds bounds through noise",
        )
    if not 1 / LIMIT <= typical <= LIMIT:
        raise InputError(
            f"rows that reach the trainer have norms of about {typical:g}; that must lie between "
            "2**-60 and 2**60: scale them, with Normalize(), ClipNorm(radius) or Bound(low, high)"
        )
    return Way(tuple(stages), size, d, typical, draws, tuple(drifts))


def length(stages: Sequence[Stage], columns: int) -> float | None:
    """Norm of a typical row behind stages, by what they have released; None if unknown."""
    d, found = columns, None
    for stage in stages:
        found = stage.typical(None, d) if found is None else stage.shown(found, d)
        d = stage.width(d)
    return found


def _behind(stage: Stage, incoming: Drift | None, n: int, d: int) -> Drift | None:
    """Drift behind a stage; None while rows have no bound."""
    if incoming is None:
        if isinstance(stage, NoiselessStage):
            raise MissingBound(stage.name, "ClipNorm(radius) or Normalize() as a stage before it")
        bound = stage.bound(None, d)
        return None if bound is None else Drift(bound)
    if not incoming.total and stage.bound(incoming.bound, d) is None:
        return None  # known only once it is fitted; a later ClipNorm gives a new bound
    outgoing = stage.drift(incoming, n, d)
    # Rows that move at all are computed in floating point, and that far off.
    return outgoing.rounded(stage.slip(incoming.bound) * outgoing.bound)
