r"""Propose, test, release: conditions on private rows that hold by a private test.

A rule of drift may need a condition, such as an eigengap of at least β. Its *margin* J counts how
many rows would have to change before it could fail: J = (q − β)/G for a quantity q that changes by
at most G when a row is replaced and that must be at least β. Several conditions take the least
margin, in the order of the stages.

**The test.** Pass if J + N(0, σ²) > t with t = 1 + σ·Φ⁻¹(1 − δ_t); otherwise output nothing but
"failed". **Its price**: together with what runs after a pass, whose pair of neighbours is D
wherever both satisfy all conditions, it is (ε, max(δ_t, δ′))-private for every ε ≥ −ln(1 − δ_t),
where δ′ is that of D and a Gaussian of sensitivity 1 and deviation σ together.

*Proof.* Let both neighbours satisfy all conditions. Then J changes by at most 1 between them, and
the outcome is computed from J + N and the rest. Otherwise, at the first condition that fails on
either, all earlier ones hold on both, so its margin changes by at most 1 there, is at most 0 on
one and so at most 1 on the other: both pass with probability at most δ_t. An event O without
"failed" has P(O) ≤ δ_t. One with it has e^ε·P′(O) ≥ e^ε(1 − δ_t) ≥ 1 ≥ P(O). ∎

**Several rows.** For tables that differ in k rows the same holds with δ_k = Φ((k − t)/σ) in the
place of δ_t, and with the δ′ of a path of k steps, each of which has the pair D.

*Proof.* Take a path of k neighbouring steps from one table to the other. If all tables on it
satisfy all conditions, each step has the pair D. Otherwise take the first condition, in the order
of the stages, that fails on any of them. All earlier ones hold on the whole path, so along it this
margin changes by at most 1 in each step; it is at most 0 somewhere, hence at most k on both ends,
which pass with probability at most P(k + N > t) = δ_k. Go on as above. ∎

Hu et al. 2024, Theorem 8, shows one of these directions only. See ``docs/drift.md``, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtr, ndtri

from tacit.exceptions import BudgetError, InputError
from tacit.privacy.events import Gaussian

TEST = "Test"  # what a plan's account calls the event of its test


@dataclass(frozen=True)
class StabilityTest:
    """A private test that a margin is positive.

    Attributes
    ----------
    deviation : float
        σ, noise on the margin.
    delta : float
        δ_t, probability to pass wrongly.

    Examples
    --------
    >>> round(StabilityTest(deviation=5.0, delta=1e-6).threshold, 2)
    24.77
    """

    deviation: float
    delta: float

    def __post_init__(self) -> None:
        if not 0 < self.deviation < math.inf:
            raise InputError(f"deviation={self.deviation!r} must be positive and finite")
        if not 0 < self.delta < 1:
            raise InputError(f"delta={self.delta!r} must lie between 0 and 1")

    @property
    def threshold(self) -> float:
        """t: what the noisy margin must exceed, rounded up."""
        return (1.0 - self.deviation * float(ndtri(self.delta))) * (1 + 1e-12) + 1e-9

    def wrongly(self, rows: int = 1) -> float:
        """δ_k: most probability to pass within ``rows`` rows of a failing table, rounded up.

        The factor covers the little variance that noise on a lattice has besides.
        """
        return min(float(ndtr((rows - self.threshold) / self.deviation)) * (1 + 1e-6), 1.0)

    @property
    def event(self) -> Gaussian:
        """Cost between neighbours that satisfy the conditions.

        The margin changes by 1, and noise counts in half distances (`tacit.privacy.events`:
        under replace-one a unit of noise faces a distance of two).
        """
        return Gaussian(2.0 * self.deviation)

    def require(self, epsilon: float) -> None:
        """Refuse an ε so small that the proof does not cover it."""
        if epsilon < -math.log1p(-self.delta):
            raise BudgetError(
                f"epsilon={epsilon:g} is too small for a test at delta={self.delta:g}; it must be "
                f"at least {-math.log1p(-self.delta):.3g}"
            )

    def slack(self, probability: float = 0.99) -> float:
        """Margin that passes with this probability: room that a condition should have."""
        return self.threshold + self.deviation * float(ndtri(probability))
