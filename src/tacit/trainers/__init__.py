"""Trainers: rows and labels into weights, with the event that says what it cost."""

from tacit.trainers.gradient import DPGD, DPSGD, GradientTrainer
from tacit.trainers.sufficient_statistics import SufficientStatistics

__all__ = ["DPGD", "DPSGD", "GradientTrainer", "SufficientStatistics"]
