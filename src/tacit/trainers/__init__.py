"""Trainers: rows and labels into weights, with the event that says what it cost."""

from tacit.trainers.flattest import FlattestDPGD
from tacit.trainers.gamma import GammaSGD
from tacit.trainers.gradient import DPGD, DPSGD, GradientTrainer
from tacit.trainers.iterated import IteratedSGD
from tacit.trainers.local import LocalDPGD
from tacit.trainers.noisy_sgd import NoisySGD
from tacit.trainers.rivals import DPRAFT, GEP, AdaDPS
from tacit.trainers.sufficient_statistics import SufficientStatistics

__all__ = [
    "DPGD",
    "DPRAFT",
    "DPSGD",
    "GEP",
    "AdaDPS",
    "FlattestDPGD",
    "GammaSGD",
    "GradientTrainer",
    "IteratedSGD",
    "LocalDPGD",
    "NoisySGD",
    "SufficientStatistics",
]
