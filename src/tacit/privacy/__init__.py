"""What was spent, and on what: events, accountants, budgets, certificates."""

from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate, Expense, Verification
from tacit.privacy.events import (
    Event,
    Gamma,
    Gaussian,
    Iterated,
    PoissonGaussian,
    Repeated,
    Selection,
)
from tacit.privacy.sensitivity.drift import Drift

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
