"""Trainers: rows and labels into weights, with the event that says what it cost."""

from tacit.engine.engine import Engine
from tacit.trainers.defaults import Facts
from tacit.trainers.gradient import DPGD, DPSGD, GradientTrainer, rehearsal, train_together
from tacit.trainers.sufficient_statistics import SufficientStatistics

__all__ = [
    "DPGD",
    "DPSGD",
    "Engine",
    "Facts",
    "GradientTrainer",
    "SufficientStatistics",
    "rehearsal",
    "train_together",
]
