"""A plan on some of the rows and a test on the others: each row is in one of the two.

A coin for every row, drawn without looking at it, decides which. The guarantee is that of parallel
parts (`tacit.privacy.events.Parallel` has the proof): the plan was calibrated for all of the budget
and so was the test, and nobody's row is in both. Under the relations that replace a row coins
belong to places; where rows come and go they belong to the rows, and how many are on either side
is as private as their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from tacit.data.rows import Rows
from tacit.exceptions import PrivateTestError
from tacit.ledger import Ledger
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Draws, PublicRandomness, Releases
from tacit.plan.fit import Fit
from tacit.plan.run import CalibratedPlan
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event, Parallel
from tacit.progress import Progress, silent

T = TypeVar("T")
NAME = "Held-out split"


def held_out(key: Key, units: int, share: float) -> np.ndarray:
    """Which units are set aside, by a coin each.

    Parameters
    ----------
    key : Key
        Of the run.
    units : int
        How many there are.
    share : float
        Chance of every one of them.

    Returns
    -------
    ndarray of bool of shape (units,)
        True for those that are tested on.

    Examples
    --------
    >>> round(float(held_out(Key.from_seed(0), 10_000, 0.2).mean()), 2)
    0.2
    """
    return PublicRandomness(key).coins("held out", units) < share


@dataclass(frozen=True)
class HeldOutPlan:
    """A calibrated plan, and a test of its model on units that it does not see.

    Attributes
    ----------
    plan : CalibratedPlan
        Of the units that are trained on, for all of the budget but ``test_delta``.
    test : tuple of (str, Event)
        What the test spends, calibrated for all of the budget as well.
    test_draws : int
        Noise values that it draws.
    test_delta : float
        What drawing them adds to δ, which was set aside.
    share : float
        Chance of a unit to be set aside.
    budget : Budget
        All of it, which the certificate states.
    """

    plan: CalibratedPlan
    test: tuple[tuple[str, Event], ...]
    test_draws: int
    test_delta: float
    share: float
    budget: Budget

    @property
    def whole(self) -> CalibratedPlan:
        """The same plan, with the account of both parts."""
        parts = tuple(tuple(event for _, event in part) for part in (self.plan.spent, self.test))
        return replace(
            self.plan,
            plan=replace(self.plan.plan, budget=self.budget),
            spent=((NAME, Parallel(parts)),),
            draws=self.plan.draws + self.test_draws,
            numerical_delta=self.plan.numerical_delta + self.test_delta,
            holdout=self.share,
        )

    def run(
        self,
        rows: Rows,
        targets: Any,
        test: Callable[[Fit, Releases], T],
        *,
        key: Key,
        assumptions: Sequence[str] = (),
        progress: Progress = silent,
        ledger: Ledger | None = None,
        init: tuple[np.ndarray, np.ndarray] | None = None,
        draws: Draws | None = None,
    ) -> tuple[Fit, T]:
        """Train on some units, and test on the others.

        Parameters
        ----------
        rows : Rows
            Those that are trained on.
        targets : ndarray
            As the loss takes them.
        test : callable
            Takes the fit and what may be drawn, and looks at units that were set aside only.
        key : Key
            The one that the split was made with.
        assumptions : sequence of str
            What the certificate says besides.
        progress : callable
            Told how far it is.
        ledger : Ledger, optional
            Account that the budget of both is taken from.
        init : (ndarray of shape (K, d), ndarray of shape (K,)), optional
            Public coefficients and intercepts.
        draws : Draws, optional
            Another source of noise, for audits.

        Returns
        -------
        Fit
            With a certificate of both parts.
        T
            What the test gave.
        """
        whole = self.whole
        whole.validate(rows, init)
        run = whole.releases(key, draws)
        token = run.token(NAME)
        trained = token.side(0, self.plan.spent)
        tested = token.side(1, self.test)
        entry = None if ledger is None else whole.reserve(ledger, key)
        how: dict[str, Any] = {"assumptions": assumptions, "progress": progress, "init": init}
        try:
            fit = whole.fit_with(rows, targets, trained, entry=entry, **how)
        except PrivateTestError as failed:
            if entry is not None:
                entry.settle("test failed", failed.certificate.digest)
            raise
        found = test(fit, tested)
        run.close()
        if entry is not None:
            entry.settle("model", fit.certificate.digest)
        return fit, found
