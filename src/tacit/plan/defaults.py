"""What ``"auto"`` stands for, by public facts: decided here alone."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.preprocessing.base import NoiselessStage, Stage
from tacit.trainers.gradient import GradientTrainer

__all__ = ["resolve_relation"]


def resolve_relation(
    neighbors: str, stages: Sequence[Stage], trainer: GradientTrainer | None = None
) -> str:
    """The neighbouring relation that ``"auto"`` stands for."""
    if neighbors != "auto":
        return neighbors
    noiseless = any(isinstance(stage, NoiselessStage) for stage in stages)
    if trainer is not None and "replace_special" not in trainer.relations:
        return trainer.relations[0]
    return "replace_one" if noiseless else "replace_special"
