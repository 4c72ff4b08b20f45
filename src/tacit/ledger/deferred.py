"""A ledger for plans that end in files: what came of one is recorded once its files are there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tacit.ledger.ledger import Ledger, Reservation


class DeferredLedger(Ledger):
    """The same account, in which outcomes wait for `record`.

    Budget is reserved at once, and spent from then on. That a plan has become a model is known
    when its training ends, and true when the model can be read: a process that is killed in
    between leaves an entry that is not finished.

    Parameters
    ----------
    ledger : Ledger
        The account.

    Attributes
    ----------
    asked : bool
        Whether a reservation was asked for.
    entry : Reservation or None
        What was set aside, as soon as it is.
    spent : str
        The budget of that plan, in words.

    Examples
    --------
    >>> import tempfile
    >>> from tacit.ledger import Ledger
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(f"{folder}/ledger.db", dataset="people")
    ...     _ = ledger.create(epsilon=2.0, delta=1e-5)
    ...     DeferredLedger(ledger).asked
    False
    """

    def __init__(self, ledger: Ledger) -> None:
        self.__dict__.update(ledger.__dict__)
        self.asked = False
        self.entry: Reservation | None = None
        self.spent = "this plan"
        self._ledger = ledger
        self._outcome: tuple[str, str | None] | None = None

    def reserve(self, *events: Any, **facts: Any) -> Reservation:
        """Set aside what a plan will spend; its outcome waits for `record`.

        Parameters
        ----------
        *events, **facts
            Those of `Ledger.reserve`.

        Returns
        -------
        Reservation
            Which is spent from now on.
        """
        self.asked = True
        budget = facts.get("budget")
        if budget is not None:
            self.spent = f"epsilon={budget.epsilon:g}, delta={budget.delta:g}"
        self.entry = super().reserve(*events, **facts)
        return self.entry

    def _commit(self, reservation: Reservation, outcome: str, certificate: str | None) -> None:
        self._outcome = outcome, certificate

    def record(self) -> None:
        """Record what came of the plan, if it came to an end; warn if that is not possible."""
        if self.entry is not None and self._outcome is not None:
            replace(self.entry, ledger=self._ledger).settle(*self._outcome)
