"""Tokens for parts by themselves: what a plan would hand them; and draws that are not random."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.mechanisms.random_streams import Key, Stream
from tacit.mechanisms.release import BoundedSum, Draws, Releases, Token
from tacit.preprocessing.base import Context, Stage
from tacit.privacy.events import Event, Gaussian
from tacit.trainers import GradientTrainer
from tacit.trainers.settings import PublicFacts


def token(
    cost: float | Event, key: Key | int = 0, label: str = "example", step: int = 0, **more: Any
) -> Token:
    """For one event, or for Gaussian noise of so many contributions, drawn from a stream."""
    event = cost if isinstance(cost, Event) else Gaussian(cost)
    return run_for(event, key, label, step, **more)[1]


def run_for(
    event: Event, key: Key | int = 0, label: str = "example", step: int = 0, **more: Any
) -> tuple[Releases, Token]:
    """A run of one event, and its token."""
    key = key if isinstance(key, Key) else Key.from_seed(key)
    run = Releases(key, [("test", event)], **more)
    return run, run.token("test").at(label, step)


def paid(size: int, key: Key | None = None, z: float | None = None, **more: Any) -> Context:
    """The context of a stage that may release one Gaussian event, if z is given."""
    if z is None:
        run = Releases(key or Key.fresh(), [])
        return Context(size, None, run.public, **more)
    return Context.paid(Gaussian(z), size, key=key, **more)


def paid_for(stage: Stage, size: int, key: Key, z: float, **more: Any) -> Context:
    """The same for the event that a stage states, if it does."""
    if not stage.pays:
        return paid(size, key, **more)
    return Context.paid(stage.event(z), size, key=key, **more)


def run_of(
    trainer: GradientTrainer, z: float, facts: PublicFacts, key: Key, draws: Draws | None = None
) -> Releases:
    """What a trainer may draw, with noise of so many clips."""
    return Releases(key, trainer.events(z, facts), draws=draws)


class Quiet(Draws):
    """Adds no noise, and keeps every sum with the deviation that its noise would have had."""

    def __init__(self) -> None:
        self.asked: list[tuple[BoundedSum, float]] = []

    def gaussian(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        self.asked.append((total, deviation))
        return total.values

    def hidden(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        self.asked.append((total, deviation))
        return total.numbers()
