"""What was spent, and on what: events, accountants, budgets, certificates."""

from tacit.privacy.budget import Budget
from tacit.privacy.calibrate import calibrate
from tacit.privacy.certificate import Certificate, Expense, Verification
from tacit.privacy.drift import Drift
from tacit.privacy.events import (
    Event,
    Gamma,
    Gaussian,
    Iterated,
    PoissonGaussian,
    Repeated,
    Selection,
)

__all__ = [
    "Budget",
    "Certificate",
    "Drift",
    "Event",
    "Expense",
    "Gamma",
    "Gaussian",
    "Iterated",
    "PoissonGaussian",
    "Repeated",
    "Selection",
    "Verification",
    "calibrate",
]
