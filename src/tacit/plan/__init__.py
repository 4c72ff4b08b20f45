"""What is to be done: a plan, calibrated, run and certified."""

from tacit.plan.plan import CalibratedPlan, Fit, Plan

__all__ = ["CalibratedPlan", "Fit", "Plan"]
