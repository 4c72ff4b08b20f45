"""How good a model is, on private rows, through noise."""

from tacit.metrics.evaluate import evaluate
from tacit.metrics.evaluation import Evaluation
from tacit.metrics.intervals import Estimate

__all__ = ["Estimate", "Evaluation", "evaluate"]
