"""What was spent, and on what: events, accountants, budgets, certificates."""

from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate, Expense, Verification
from tacit.privacy.events import (
    Event,
    Failure,
    Gamma,
    Gaussian,
    Iterated,
    Parallel,
    PoissonGaussian,
    Repeated,
    Selection,
)
from tacit.privacy.sensitivity.drift import Drift
from tacit.privacy.unit import Unit

__all__ = [
    "Budget",
    "Certificate",
    "Drift",
    "Event",
    "Expense",
    "Failure",
    "Gamma",
    "Gaussian",
    "Iterated",
    "Parallel",
    "PoissonGaussian",
    "Repeated",
    "Selection",
    "Unit",
    "Verification",
    "calibrate",
]
