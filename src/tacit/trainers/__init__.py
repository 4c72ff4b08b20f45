"""Trainers: rows and labels into weights, with the event that says what it cost."""

from tacit.engine.engine import Engine
from tacit.trainers.base import Trainer
from tacit.trainers.defaults import Facts
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.dpgd import DPGD
from tacit.trainers.dpsgd import DPSGD
from tacit.trainers.flattest import FlattestDPGD
from tacit.trainers.gamma import GammaSGD
from tacit.trainers.gradient import GradientTrainer
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
    "Engine",
    "Facts",
    "FlattestDPGD",
    "GammaSGD",
    "GradientTrainer",
    "IteratedSGD",
    "LocalDPGD",
    "NoisySGD",
    "SufficientStatistics",
    "Trainer",
    "rehearsal",
    "train_together",
]
