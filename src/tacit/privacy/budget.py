"""A budget: the (ε, δ) that everything together may spend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from tacit.exceptions import InputError


@dataclass(frozen=True)
class Budget:
    """What a plan may spend in all.

    Parameters
    ----------
    epsilon : float
        Positive.
    delta : float
        Between 0 and 1, far below one over the number of rows.

    Notes
    -----
    For neighbouring tables D and D′ and any set S of outcomes, Pr[M(D) ∈ S] is at most
    e^ε·Pr[M(D′) ∈ S] + δ (Dwork, Kenthapadi, McSherry, Mironov & Naor 2006).

    Examples
    --------
    >>> Budget(1.0, 1e-5)
    Budget(epsilon=1.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise InputError(f"{name} must be a number, not {value!r}")
            try:
                object.__setattr__(self, name, float(value))
            except OverflowError:
                raise InputError(f"{name} is larger than any float") from None
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError(f"epsilon must be positive and finite, not {self.epsilon!r}")
        if not 0 < self.delta < 1:
            raise InputError(
                f"delta must lie strictly between 0 and 1, not {self.delta!r}; "
                "well below one over the number of rows is customary"
            )
