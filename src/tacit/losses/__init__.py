"""Losses of linear models, as functions of the scores."""

from tacit.losses.base import Loss
from tacit.losses.clipped import Clipped, clipped
from tacit.losses.margin import Hinge, HuberHinge, Logistic
from tacit.losses.multinomial import Softmax
from tacit.losses.names import LOSSES, get_loss
from tacit.losses.nonconvex import Savage, Tangent, Tempered
from tacit.losses.regression import Absolute, Huber, Squared

__all__ = [
    "LOSSES",
    "Absolute",
    "Clipped",
    "Hinge",
    "Huber",
    "HuberHinge",
    "Logistic",
    "Loss",
    "Savage",
    "Softmax",
    "Squared",
    "Tangent",
    "Tempered",
    "clipped",
    "get_loss",
]
