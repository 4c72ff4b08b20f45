"""Durable accounts of what was spent on data sets, that refuse what would pass their limits."""

from tacit.ledger.account import Charge, Remaining
from tacit.ledger.deferred import DeferredLedger
from tacit.ledger.ledger import Entry, Ledger, Reservation
from tacit.ledger.spending import Limits

__all__ = [
    "Charge",
    "DeferredLedger",
    "Entry",
    "Ledger",
    "Limits",
    "Remaining",
    "Reservation",
]
