"""Trainers: rows and labels into weights, with the event that says what it cost."""

from tacit.trainers.base import Trainer
from tacit.trainers.constraints import Ball, Box, L1Ball, Simplex
from tacit.trainers.dpgd import DPGD
from tacit.trainers.dpsgd import DPSGD
from tacit.trainers.gradient import GradientTrainer
from tacit.trainers.sufficient_statistics import SufficientStatistics

__all__ = [
    "DPGD",
    "DPSGD",
    "Ball",
    "Box",
    "GradientTrainer",
    "L1Ball",
    "Simplex",
    "SufficientStatistics",
    "Trainer",
]
