"""A scikit-learn pipeline made private: each step becomes stages that are paid for.

A step may have several counterparts: one fitted on public rows, one through noise, one on the
private rows themselves. Which of them leave the most of the budget for training is found out by
trying all combinations on public facts: numbers of rows, columns and classes, the budget, the
bounds, and how many public rows there are. The private rows have no say in it.
"""

from tacit.pipeline.estimators import PrivatizedClassifier, PrivatizedRegressor, privatize
from tacit.pipeline.parts import Choice

__all__ = ["Choice", "PrivatizedClassifier", "PrivatizedRegressor", "privatize"]
