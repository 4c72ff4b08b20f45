"""What the theorems of the five papers promise: excess risk, lower bounds, steps and sizes.

Each bound is a function of public facts that returns a `Risk`: a number with its kind, its unit,
whether its constant is known, and what it assumes. Where a paper's formula is wrong the corrected
one is computed, and `Risk.printed` and `Risk.correction` tell the difference.
"""

from tacit.research.theory import (
    centring,
    decay,
    descent,
    flatness,
    halfspaces,
    lower,
    projection,
    separability,
)
from tacit.research.theory.compare import Comparison, Setting, compare
from tacit.research.theory.learner import HalfspaceLearner, halfspace_learner
from tacit.research.theory.risk import Risk

__all__ = [
    "Comparison",
    "HalfspaceLearner",
    "Risk",
    "Setting",
    "centring",
    "compare",
    "decay",
    "descent",
    "flatness",
    "halfspace_learner",
    "halfspaces",
    "lower",
    "projection",
    "separability",
]
