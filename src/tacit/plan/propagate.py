"""How widths, bounds and drift pass along the stages, from public facts, before any row is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit.engine.quantization import LIMIT
from tacit.engine.sensitivity import GradientSensitivity
from tacit.exceptions import InputError, MissingBound
from tacit.losses import Loss
from tacit.preprocessing.base import NoiselessStage, Stage
from tacit.privacy.sensitivity.drift import Drift

# Of δ, for accidents of all stages together; more would leave little for those with k rows.
FAILING = 0.01


def expand_stages(
    stages: Sequence[Stage],
    *,
    columns: int,
    size: int,
    mu: float,
    intercept: bool,
    takes_moment: bool,
) -> tuple[tuple[Stage, ...], list[str]]:
    """Stages in place of those that stand for several, by public facts, and why."""
    expanded: list[Stage] = []
    remarks: list[str] = []
    for stage in stages:
        facts: dict[str, Any] = {"columns": columns, "size": size, "intercept": intercept}
        own, why = stage.expand(tuple(expanded), **facts, mu=mu, takes_moment=takes_moment)
        expanded += own
        remarks += [why] if why else []
    return tuple(expanded), remarks


def resolve_settings(
    stages: Sequence[Stage], *, columns: int, size: int, outputs: int, mu: float
) -> tuple[Stage, ...]:
    """Stages with every ``"auto"`` replaced, by public facts and public rows."""
    resolved: list[Stage] = []
    d = columns
    for stage in stages:
        facts = {"columns": d, "size": size, "outputs": outputs}
        resolved.append(stage.resolve(tuple(resolved), **facts, mu=mu))
        d = resolved[-1].width(d)
    return tuple(resolved)


@dataclass(frozen=True)
class BoundTrace:
    """What becomes of rows on their way through the stages.

    Attributes
    ----------
    stages : tuple of Stage
    size : int
        Number of rows.
    d : int
        Columns that reach the trainer, as far as is known before stages are fitted.
    widest : int
        How many there can be at most.
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
    widest: int
    typical: float
    draws: int
    drifts: tuple[Drift | None, ...]

    @property
    def drift_l1(self) -> float:
        """How far the rows that neighbours share have moved apart in all."""
        return 0.0 if self.drifts[-1] is None else self.drifts[-1].l1

    @property
    def _noiseless(self) -> list[int]:
        return [i for i, stage in enumerate(self.stages) if isinstance(stage, NoiselessStage)]

    @property
    def flips(self) -> float:
        """Most rows that are blanked out in one of two neighbours only."""
        behind = [self.drifts[i + 1] for i in self._noiseless if self.stages[i].blanks]
        return math.fsum(drift.l0 for drift in behind if drift is not None)

    @property
    def only_flips(self) -> bool:
        """Whether rows move in no other way than by being blanked out."""
        return all(self.stages[i].blanks for i in self._noiseless)

    def settings(self) -> tuple[float, float]:
        """Drift to choose settings by, and the noise that comes on top whatever is chosen.

        A row that is blanked out moves a sum by a clip: that is a factor, and no reason
        to choose a larger clip.
        """
        return (0.0, 1 + self.flips / 2) if self.only_flips else (self.drift_l1, 1.0)

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
            self.widest + bool(intercept),
            self.size,
            intercept,
            rounded=rounded,
            flips=self.flips,
            blanks=self.only_flips,
        )


def propagate_bounds(stages: Sequence[Stage], size: int, columns: int) -> BoundTrace:
    """Widths, bounds and drift behind every stage."""
    if size < 2 and any(isinstance(stage, NoiselessStage) for stage in stages):
        raise InputError("a noiseless stage needs at least two rows")
    d, widest, draws = columns, columns, 0
    typical: float | None = None
    drifts: list[Drift | None] = [None]
    for stage in stages:
        width = stage.width(d)
        typical = stage.typical(typical, d)
        draws += stage.draws(widest) if stage.pays else 0
        # The more columns, the more of them are rounded, or filled: as many as there can be.
        drifts.append(_behind(stage, drifts[-1], size, widest))
        d, widest = width, stage.widest(widest)
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
    return BoundTrace(tuple(stages), size, d, widest, typical, draws, tuple(drifts))


def released_norm(stages: Sequence[Stage], columns: int) -> float | None:
    """Norm of a typical row behind stages, by what they have released; None if unknown."""
    d, norm = columns, None
    for stage in stages:
        norm = stage.typical(None, d) if norm is None else stage.shown(norm, d)
        d = stage.width(d)
    return norm


def _behind(stage: Stage, incoming: Drift | None, n: int, d: int) -> Drift | None:
    """Drift behind a stage; None while rows have no bound."""
    if incoming is None:
        if isinstance(stage, NoiselessStage):
            raise MissingBound(stage.name, "ClipNorm(radius) or Normalize() as a stage before it")
        bound = stage.bound(None, d)
        return None if bound is None else Drift(bound)
    if not incoming.l1 and stage.bound(incoming.bound, d) is None:
        return None  # known only once it is fitted; a later ClipNorm gives a new bound
    outgoing = stage.drift(incoming, n, d)
    # Rows that move at all are computed in floating point, and that far off.
    return outgoing.rounded(stage.rounding_bound(incoming.bound) * outgoing.bound)
