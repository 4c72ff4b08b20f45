"""Trainers: rows and labels into weights, with the event that says what it cost."""

from tacit.trainers.auto import Facts
from tacit.trainers.engine import Engine
from tacit.trainers.gradient import DPGD, DPSGD, GradientTrainer, train_together
from tacit.trainers.noisy_sgd import NoisySGD
from tacit.trainers.rivals import DPRAFT, GEP, AdaDPS

__all__ = [
    "DPGD",
    "DPRAFT",
    "DPSGD",
    "GEP",
    "AdaDPS",
    "Engine",
    "Facts",
    "GradientTrainer",
    "NoisySGD",
    "train_together",
]
