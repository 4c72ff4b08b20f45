"""Copies of one estimator that are fitted one after the other, as in a cross-validation."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Self

from tacit.privacy.accounting.accountants import gaussian_epsilon, gaussian_mu
from tacit.privacy.budget import Budget

FITS = (2, 5, 10, 50)


@dataclass
class Copies:
    """How often copies of an estimator were fitted without a ledger, in this process.

    Attributes
    ----------
    fits : int
        So many times.
    """

    fits: int = 0

    def fitted(self, budget: Budget) -> None:
        """Count one more, and say once what several of them spend together.

        Parameters
        ----------
        budget : Budget
            Of each.
        """
        self.fits += 1
        if self.fits == 2:
            logging.getLogger("tacit").warning(spending(budget))


class Copied:
    """An estimator whose copies, as scikit-learn makes them, know how often others were fitted."""

    _copies: Copies | None

    def __sklearn_clone__(self) -> Self:
        """A copy with the same settings, which counts its fits with those of the others."""
        made: Self = super().__sklearn_clone__()  # type: ignore[misc]
        made._copies = self._copies = getattr(self, "_copies", None) or Copies()
        return made

    def _count_fit(self, budget: Budget, ledger: Any, random_state: Any) -> None:
        """Count a fit that spends something of which nobody keeps an account."""
        copies: Copies | None = getattr(self, "_copies", None)
        if copies is not None and ledger is None and random_state is None:
            copies.fitted(budget)


def spending(budget: Budget) -> str:
    """What several fits spend on rows that they share, in words.

    Parameters
    ----------
    budget : Budget
        Of each.

    Returns
    -------
    str
        A sentence, for plans of Gaussian noise, which others do not exceed by much.

    Examples
    --------
    >>> print(spending(Budget(1.0, 1e-5))[:76])
    Copies of one estimator are being fitted, as in cross_val_score or GridSearc
    """
    mu = gaussian_mu(budget.epsilon, budget.delta)
    listed = ", ".join(
        f"{fits} fits about {gaussian_epsilon(mu * fits**0.5, budget.delta):.2g}" for fits in FITS
    )
    return (
        "Copies of one estimator are being fitted, as in cross_val_score or GridSearchCV, and each "
        f"fit spends epsilon = {budget.epsilon:g} of its own. Together they spend, at delta = "
        f"{budget.delta:g} and on rows that all of them see: {listed}. Scores without noise are "
        "not covered at all. A ledger keeps the account; DPSearch chooses settings within one "
        "budget, and holdout= tests a model at no cost"
    )
