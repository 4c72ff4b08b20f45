"""The five papers' tables and figures, tested: ``tacit reproduce``."""

from tacit.reproduce.claim import Check, Claim, Figure, Finding, Measured, Table
from tacit.reproduce.claims import CLAIMS
from tacit.reproduce.run import Outcome, reproduce
from tacit.reproduce.work import Work

__all__ = [
    "CLAIMS",
    "Check",
    "Claim",
    "Figure",
    "Finding",
    "Measured",
    "Outcome",
    "Table",
    "Work",
    "reproduce",
]
