"""What a theorem promises, as data: a number, and all that one must know before comparing it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tacit.diagnostics.base import require_positive
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Neighbors


@dataclass(frozen=True)
class Risk:
    """A bound on how much worse a private model is than the best one.

    Attributes
    ----------
    value : float
        The bound, in `unit`.
    kind : {"empirical", "population"}
        Over the rows trained on, or over fresh rows of the same distribution.
    constant : {"exact", "up to a constant"}
        Whether the value itself is the bound, or only its order.
    source : str
        Where it is from.
    side : {"upper", "lower"}
        What some algorithm attains, or what none can improve on for all data sets.
    unit : {"loss", "clipped loss", "gradient norm", "error rate"}
        Expected excess of the mean loss (or of the objective that clipping optimises); norm of
        the mean gradient; probability of a wrong label.
    neighbors : str or None
        The relation that the budget is for; None where an order does not depend on it.
    assumes : tuple of str
        What must be true of data and algorithm.
    failure : float
        Probability with which the bound may fail, over the algorithm's noise or the sample.
    printed : float or None
        What the paper's own formula gives, where it is not this one.
    correction : str
        Why it is not.

    Examples
    --------
    >>> from tacit.research.theory import descent
    >>> found = descent.risk(10_000, 50, epsilon=1.0, delta=1e-6)
    >>> found.kind, found.constant, round(found.value, 4)
    ('empirical', 'exact', 0.003)
    """

    value: float
    kind: Literal["empirical", "population"]
    constant: Literal["exact", "up to a constant"]
    source: str
    side: Literal["upper", "lower"] = "upper"
    unit: Literal["loss", "clipped loss", "gradient norm", "error rate"] = "loss"
    neighbors: Neighbors | None = None
    assumes: tuple[str, ...] = ()
    failure: float = 0.0
    printed: float | None = None
    correction: str = ""

    def comparable(self, other: Risk) -> bool:
        """Whether the two values may be set against each other.

        Parameters
        ----------
        other : Risk
            Another bound.

        Returns
        -------
        bool
            Whether kind and unit are the same and both constants are known.
        """
        exact = self.constant == other.constant == "exact"
        return exact and all(
            getattr(self, name) == getattr(other, name) for name in ("kind", "unit", "neighbors")
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; a bound without a value is None.

        Returns
        -------
        dict
            Attributes by name.
        """
        given = asdict(self)
        for name in ("value", "printed"):
            number = given[name]
            given[name] = number if number is None or math.isfinite(number) else None
        return {**given, "assumes": list(self.assumes)}


def noise_of(n: float, epsilon: float, delta: float, neighbors: Neighbors) -> float:
    r"""Noise of a mean gradient, for gradients of norm at most one and a single step.

    σ = Δ/(nμ): Δ is 1, or 2 where any row may replace any other; μ is the Gaussian budget,
    exactly. T steps take √T times as much each.

    Notes
    -----
    Song et al. 2021, Theorem 2.6, has √(2·log(1/δ))/(nε). That suits Δ = 1; its Definition 2.5
    replaces rows, for which it is too little: meant for ε = 1, δ = 1e-5 it spends ε = 1.63.
    """
    given = Budget(epsilon, delta)
    require_positive(n=n)
    return sensitivity(neighbors) / (n * gaussian_mu(given.epsilon, given.delta))
