"""What was spent, and on what: events, accountants, budgets, certificates."""

from tacit.privacy.budget import Budget
from tacit.privacy.calibrate import calibrate
from tacit.privacy.certificate import Certificate, Expense, Verification
from tacit.privacy.drift import Drift
from tacit.privacy.events import Event, Gaussian, PoissonGaussian, Selection

__all__ = [
    "Budget",
    "Certificate",
    "Drift",
    "Event",
    "Expense",
    "Gaussian",
    "PoissonGaussian",
    "Selection",
    "Verification",
    "calibrate",
]
