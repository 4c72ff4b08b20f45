"""Which ledgers a run can be charged to."""

from __future__ import annotations

from typing import Any

from tacit.exceptions import InputError
from tacit.ledger.ledger import Ledger


def require_ledger(ledger: Any, *, seeded: bool) -> None:
    """Refuse, before anything is spent, what is no ledger, and a run that is not private."""
    if not isinstance(ledger, Ledger):
        raise InputError(f"ledger must be a tacit.Ledger with a data set, not {ledger!r:.80}")
    if seeded:
        raise InputError(
            "a seeded run is not private, so no account of it can be kept: leave out "
            "random_state, or the ledger"
        )
