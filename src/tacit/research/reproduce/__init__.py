"""The five papers' tables and figures, tested: ``tacit reproduce``."""

from tacit.research.reproduce.claim import Check, Claim, Figure, Finding, Measured, Null, Table
from tacit.research.reproduce.claims import CLAIMS
from tacit.research.reproduce.run import Outcome, reproduce
from tacit.research.reproduce.work import Work

__all__ = [
    "CLAIMS",
    "Check",
    "Claim",
    "Figure",
    "Finding",
    "Measured",
    "Null",
    "Outcome",
    "Table",
    "Work",
    "reproduce",
]
