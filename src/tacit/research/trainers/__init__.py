"""Trainers that a paper has: variants to compare with, and rivals of PILLAR."""

from tacit.plan.recipes import TRAINERS as _TRAINERS
from tacit.research.trainers.flattest import FlattestDPGD
from tacit.research.trainers.gamma import GammaSGD
from tacit.research.trainers.iterated import IteratedSGD
from tacit.research.trainers.local import LocalDPGD
from tacit.research.trainers.noisy_sgd import NoisySGD
from tacit.research.trainers.rivals import DPRAFT, GEP, AdaDPS
from tacit.research.trainers.rivals_adaptive import LabelledAdaDPS, PowerGEP

__all__ = [
    "DPRAFT",
    "GEP",
    "AdaDPS",
    "FlattestDPGD",
    "GammaSGD",
    "IteratedSGD",
    "LabelledAdaDPS",
    "LocalDPGD",
    "NoisySGD",
    "PowerGEP",
]

_TRAINERS.add("noisy-sgd", NoisySGD)
_TRAINERS.add("flattest", FlattestDPGD)
_TRAINERS.add("gamma", GammaSGD)
_TRAINERS.add("iterated", IteratedSGD)
_TRAINERS.add("local", LocalDPGD)
