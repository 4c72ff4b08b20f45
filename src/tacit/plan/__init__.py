"""What is to be done: a plan, calibrated, run and certified."""

from tacit.plan.fit import Fit
from tacit.plan.plan import Plan
from tacit.plan.run import CalibratedPlan

__all__ = ["CalibratedPlan", "Fit", "Plan"]
