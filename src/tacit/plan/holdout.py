"""A plan on some of the rows and a test on the others: each row is in one of the two.

A coin for every row, drawn without looking at it, decides which. The guarantee is that of parallel
parts (`tacit.privacy.events.Parallel` has the proof): the plan was calibrated for all of the budget
and so was the test, and nobody's row is in both. Under the relations that replace a row coins
belong to places; where rows come and go they belong to the rows, and how many are on either side
is as private as their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from tacit.exceptions import PrivateTestError
from tacit.ledger import Ledger, Reservation
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Draws, PublicRandomness, Releases
from tacit.plan.run import CalibratedPlan
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event, Parallel

NAME = "Held-out split"


class Certified(Protocol):
    """What came of training."""

    @property
    def certificate(self) -> Certificate: ...


T = TypeVar("T", bound=Certified)
S = TypeVar("S")


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


class Trained(Protocol):
    """What was calibrated: a plan, or a search."""

    @property
    def spent(self) -> tuple[tuple[str, Event], ...]: ...

    @property
    def draws(self) -> int: ...

    @property
    def numerical_delta(self) -> float: ...


@dataclass(frozen=True)
class HeldOutPlan:
    """A calibrated plan or search, and a test of its model on units that it does not see.

    Attributes
    ----------
    trained : CalibratedPlan or CalibratedSearch
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

    trained: Trained
    test: tuple[tuple[str, Event], ...]
    test_draws: int
    test_delta: float
    share: float
    budget: Budget

    def account(self, plan: CalibratedPlan) -> CalibratedPlan:
        """A plan with the account of both parts.

        Parameters
        ----------
        plan : CalibratedPlan
            That is trained, or that a search chose.

        Returns
        -------
        CalibratedPlan
            The same, whose certificate covers the test.
        """
        both = (self.trained.spent, self.test)
        parts = tuple(tuple(event for _, event in part) for part in both)
        return replace(
            plan,
            plan=replace(plan.plan, budget=self.budget),
            spent=((NAME, Parallel(parts)),),
            draws=self.trained.draws + self.test_draws,
            numerical_delta=self.trained.numerical_delta + self.test_delta,
            holdout=self.share,
        )

    def run(
        self,
        whole: CalibratedPlan,
        train: Callable[[Releases, Reservation | None], T],
        test: Callable[[T, Releases], S],
        *,
        key: Key,
        ledger: Ledger | None = None,
        draws: Draws | None = None,
    ) -> tuple[T, S]:
        """Train on some units, and test on the others.

        Parameters
        ----------
        whole : CalibratedPlan
            From `account`: what is taken from the ledger.
        train : callable
            Takes what may be drawn and the reservation, and looks at units that are trained on
            only. What it gives has a ``certificate``.
        test : callable
            Takes that and what may be drawn, and looks at units that were set aside only.
        key : Key
            The one that the split was made with.
        ledger : Ledger, optional
            Account that the budget of both is taken from.
        draws : Draws, optional
            Another source of noise, for audits.

        Returns
        -------
        T
            What training gave.
        S
            What the test gave.
        """
        run = whole.releases(key, draws)
        token = run.token(NAME)
        trained = token.side(0, self.trained.spent)
        tested = token.side(1, self.test)
        entry = None if ledger is None else whole.reserve(ledger, key)
        try:
            made = train(trained, entry)
        except PrivateTestError as failed:
            if entry is not None:
                entry.settle("test failed", failed.certificate.digest)
            raise
        found = test(made, tested)
        run.close()
        if entry is not None:
            entry.settle("model", made.certificate.digest)
        return made, found
