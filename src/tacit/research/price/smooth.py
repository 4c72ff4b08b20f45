r"""The calculus of Hu, Sanyal & Schölkopf, "Provable Privacy with Non-Private Pre-Processing".

Equations, tables, lemmas and theorems are those of that paper (ICML 2024, PMLR 235). It
writes α ↦ ε(α) for a Rényi curve (Def. 2) and (α, τ) ↦ ε̃(α, τ) for a *smooth* one, which holds
for tables whose rows lie τ apart in all, Σ‖xᵢ − xᵢ′‖ ≤ τ (Def. 3). Theorem 2 joins the two.

This is a calculator, for putting the paper's numbers beside others. Some of its formulas are
wrong; they are computed as printed, and whatever comes out of them says so (``sound``,
``note``). No certificate rests on anything here. ``tests/soundness`` has the counterexamples.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

from tacit.exceptions import InputError
from tacit.privacy.accounting.accountants import gaussian_epsilon


@dataclass(frozen=True)
class Priced:
    """What a formula says, and whether it may be believed.

    Attributes
    ----------
    epsilon : float
        Its value; infinite where it says nothing.
    formula : str
        Where it stands.
    sound : bool
        Whether it is a true upper bound, under the conditions of ``note``.
    note : str
        Why not, or under which conditions, in a sentence.
    """

    epsilon: float
    formula: str
    sound: bool
    note: str


def number(name: str, value: Any, *, most: float = 1e15, advice: str = "") -> float:
    """A positive parameter of at most ``most``, and of a size that arithmetic can bear."""
    try:
        found = float("nan" if isinstance(value, bool) or not isinstance(value, Real) else value)
    except OverflowError:
        found = math.inf
    if not 1e-15 <= found <= most:
        limits = f"above 0 (from 1e-15) and at most {most:g}"
        raise InputError(f"{name} must be a number {limits}, not {value!r:.40}{advice}")
    return found


def whole(name: str, value: Any, low: int, high: int = 10**15, *, advice: str = "") -> int:
    """A whole-numbered parameter between ``low`` and ``high``."""
    plain = not isinstance(value, bool) and isinstance(value, Integral)
    if not (plain and low <= int(value) <= high):
        limit = f"from {low:,}" + (f" to {high:,}" if high < 10**15 else "")
        raise InputError(f"{name} must be an integer {limit}, not {value!r:.40}{advice}")
    return int(value)


def choose(
    what: str, name: str, known: Mapping[str, Callable[..., Any]], given: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function registered under ``name``, once its parameters are known to fit."""
    if name not in known:
        raise InputError(f"unknown {what} {name!r}; known are {', '.join(known)}")
    takes = inspect.signature(known[name]).parameters
    if extra := [key for key in given if key not in takes]:
        expected = ", ".join(key for key in takes if key != "n") or "no parameters"
        raise InputError(f"{what} {name!r} takes {expected}; it does not know {extra[0]!r}")
    for key, parameter in takes.items():
        if parameter.default is parameter.empty and key not in given:
            raise InputError(f"{what} {name!r} needs {key}")
    return known[name]


# --- mechanisms: Table 1 ---------------------------------------------------------------------


class Mechanism:
    """A private algorithm by its two curves, as in Table 1."""

    formula: ClassVar[str]
    sound: ClassVar[bool] = True
    note: ClassVar[str] = ""

    def rdp(self, alpha: float) -> float:
        """ε(α): neighbouring tables (Def. 2)."""
        raise NotImplementedError

    def srdp(self, alpha: float, tau: float) -> float:
        """ε̃(α, τ): tables that lie τ apart (Def. 3)."""
        raise NotImplementedError

    def largest_order(self, tau: float) -> float:
        """The greatest α for which both curves hold."""
        return math.inf

    def _check(self, *names: str) -> None:
        for name in names:
            object.__setattr__(self, name, number(name, getattr(self, name)))


@dataclass(frozen=True)
class _OnOutputs(Mechanism):
    """Noise on f(S), f ``lipschitz`` with global ``sensitivity`` Δ."""

    epsilon: float
    lipschitz: float = 1.0
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        self._check("epsilon", "lipschitz", "sensitivity")


@dataclass(frozen=True)
class GaussianMechanism(_OnOutputs):
    """f(S) + N(0, Δ²/ε²), f ``lipschitz`` with global ``sensitivity`` Δ (Theorem 10).

    Examples
    --------
    >>> GaussianMechanism(0.5).rdp(8.0), GaussianMechanism(0.5).srdp(8.0, 2.0)
    (1.0, 4.0)
    """

    formula: ClassVar[str] = "Table 1, Gaussian mechanism; Theorem 10"

    def rdp(self, alpha: float) -> float:
        return alpha * self.epsilon**2 / 2

    def srdp(self, alpha: float, tau: float) -> float:
        return alpha * (self.lipschitz * tau * self.epsilon / self.sensitivity) ** 2 / 2  # (10)


@dataclass(frozen=True)
class LaplaceMechanism(_OnOutputs):
    """f(S) + Lap(Δ/ε), the same for every order (Theorem 11).

    Examples
    --------
    >>> LaplaceMechanism(0.5).rdp(8.0), LaplaceMechanism(0.5).srdp(8.0, 3.0)
    (0.5, 1.5)
    """

    formula: ClassVar[str] = "Table 1, Laplace mechanism; Theorem 11"

    def rdp(self, alpha: float) -> float:
        return self.epsilon

    def srdp(self, alpha: float, tau: float) -> float:
        return self.lipschitz * tau * self.epsilon / self.sensitivity  # (12) and (14)


@dataclass(frozen=True)
class ExponentialMechanism(LaplaceMechanism):
    """h with probability ∝ exp(εQ(S, h)/2Δ), Q ``lipschitz`` (Theorem 12).

    Examples
    --------
    >>> ExponentialMechanism(0.5, sensitivity=2.0).srdp(8.0, 3.0)
    0.75
    """

    formula: ClassVar[str] = "Table 1, exponential mechanism; Theorem 12"


@dataclass(frozen=True)
class GradientDescent(Mechanism):
    """T full-batch steps on mean gradients with noise σ = L√T/(εn) (Theorem 13).

    Neighbouring gradient sums lie up to 2L apart, so all steps together are 2ε-Gaussian DP.

    Examples
    --------
    >>> GradientDescent(0.5).rdp(8.0), GradientDescent(0.5).srdp(8.0, 2.0)
    (4.0, 4.0)
    """

    epsilon: float
    lipschitz: float = 1.0
    smoothness: float = 1.0
    formula: ClassVar[str] = "Table 1, DP-GD; Theorem 13"
    note: ClassVar[str] = "2αε² as in Table 1; the αε²/2 printed in Theorem 13 is a quarter of it."

    def __post_init__(self) -> None:
        self._check("epsilon", "lipschitz", "smoothness")

    def rdp(self, alpha: float) -> float:
        return 2 * alpha * self.epsilon**2  # (15), summed over the steps

    def srdp(self, alpha: float, tau: float) -> float:
        return alpha * (self.smoothness * tau * self.epsilon / self.lipschitz) ** 2 / 2  # (16)


@dataclass(frozen=True)
class SampledSGD(Mechanism):
    """``steps`` steps on one sampled row each, σ = L√T/(εn) (Theorem 14).

    ``divergence`` is γ = n / k, no row moving farther than τ/k (Def. 7).

    Examples
    --------
    >>> mechanism = SampledSGD(1.0, n=1000, steps=10**6)
    >>> mechanism.rdp(4.0), round(mechanism.largest_order(0.0), 2), mechanism.sound
    (8.0, 6.91, False)
    """

    epsilon: float
    n: int
    steps: int
    lipschitz: float = 1.0
    smoothness: float = 1.0
    divergence: float = 1.0
    formula: ClassVar[str] = "Table 1, DP-SGD with subsampling; Theorem 14"
    sound: ClassVar[bool] = False
    note: ClassVar[str] = (
        "The noise is given as Ω(L√T/(εn)), without its constant; with 1 for the constant, as "
        "here, the curve lies below the true divergence."
    )

    def __post_init__(self) -> None:
        self._check("epsilon", "lipschitz", "smoothness", "divergence")
        whole("n", self.n, 2)
        whole("steps", self.steps, 1)

    def largest_order(self, tau: float) -> float:
        noise = self.lipschitz * math.sqrt(self.steps) / (self.epsilon * self.n)
        return min(math.sqrt(self.steps) / self.epsilon, noise**2 * math.log(self.n / noise))

    def rdp(self, alpha: float) -> float:
        return (alpha * self.epsilon) ** 2 / 2  # (18)

    def srdp(self, alpha: float, tau: float) -> float:
        moved = self.smoothness * tau * self.divergence / self.lipschitz
        return alpha * (moved * self.epsilon) ** 2 / 2  # (20)


@dataclass(frozen=True)
class IteratedSGD(Mechanism):
    """One pass in a fixed order, stopped at random, ``moved`` = κ rows differing (Theorem 15).

    Examples
    --------
    >>> mechanism = IteratedSGD(0.01, n=1000, moved=10)
    >>> mechanism.rdp(4.0), round(mechanism.srdp(4.0, 0.5), 3), mechanism.sound
    (0.0002, 0.504, False)
    """

    epsilon: float
    n: int
    moved: int
    lipschitz: float = 1.0
    smoothness: float = 1.0
    formula: ClassVar[str] = "Table 1, DP-SGD with iteration; Theorem 15"
    sound: ClassVar[bool] = False
    note: ClassVar[str] = (
        "Needs the rows that move to be consecutive and to move equally far, (24), which no "
        "preprocessor guarantees; besides, the smooth curve has lost the factor ε² of (23)."
    )

    def __post_init__(self) -> None:
        self._check("epsilon", "lipschitz", "smoothness")
        whole("moved", self.moved, 1, whole("n", self.n, 2))

    def largest_order(self, tau: float) -> float:
        # max(1, τ)·L·√(2α(α−1)) < σ = 8L√(2 ln n/n)/ε, from Theorem 15
        square = 64 * math.log(self.n) / (self.n * (self.epsilon * max(1.0, tau)) ** 2)
        return (1 + math.sqrt(1 + 4 * square)) / 2

    def rdp(self, alpha: float) -> float:
        return alpha * self.epsilon**2 / 2  # Lemma H

    def srdp(self, alpha: float, tau: float) -> float:
        left = self.n - self.moved + 1
        shape = self.n * math.log(left + 1) / (left * math.log(self.n))
        return alpha * (tau * self.smoothness / self.lipschitz) ** 2 * shape / 2


# --- properties: Lemmas 1 and 3 --------------------------------------------------------------


@dataclass(frozen=True)
class Composed(Mechanism):
    """Several mechanisms on the same table, one after the other."""

    parts: tuple[Mechanism, ...]
    formula: ClassVar[str] = "Lemma 1, composition"

    @property
    def sound(self) -> bool:  # type: ignore[override]
        return all(part.sound for part in self.parts)

    @property
    def note(self) -> str:  # type: ignore[override]
        return " ".join(dict.fromkeys(part.note for part in self.parts if part.note))

    def largest_order(self, tau: float) -> float:
        return min(part.largest_order(tau) for part in self.parts)

    def rdp(self, alpha: float) -> float:
        return math.fsum(part.rdp(alpha) for part in self.parts)

    def srdp(self, alpha: float, tau: float) -> float:
        return math.fsum(part.srdp(alpha, tau) for part in self.parts)


def compose(*mechanisms: Mechanism) -> Composed:
    """Both curves add up (Lemma 1).

    The paper proves it for mechanisms that do not see each other's output, (5); as the curves
    hold for every such output, it is true of adaptive ones too.

    Examples
    --------
    >>> compose(GaussianMechanism(0.3), GaussianMechanism(0.4)).rdp(2.0)
    0.25
    """
    if not mechanisms:
        raise InputError("compose() needs at least one mechanism")
    return Composed(mechanisms)


def subsample(mechanism: Mechanism, alpha: float, tau: float, *, n: int, batch: int = 1) -> Priced:
    """The smooth curve on ``batch`` rows drawn with replacement, the best k chosen (Lemma 3).

    Examples
    --------
    >>> found = subsample(GaussianMechanism(0.1), 4.0, 1.0, n=1000)
    >>> round(found.epsilon, 6), found.sound
    (0.000714, True)
    >>> subsample(GaussianMechanism(0.1), 4.0, 1.0, n=1000, batch=2).sound
    False
    """
    whole("n", n, 2)
    whole("batch", batch, 1, n - 1, advice="; with n or more rows there is nothing to gain")
    whole_batch = mechanism.srdp(alpha, tau)
    note = "Needs ε̃(α, τ) ≤ 1/(α − 1)."
    if batch > 1:
        note = "A row drawn twice counts twice: the drawn rows may lie batch·τ apart, not τ."
    best = math.inf
    if 1 < alpha <= mechanism.largest_order(tau) and whole_batch <= 1 / (alpha - 1):
        for k in _candidates((n - 1) // batch):
            few = (1 - (k * batch - 1) / n) ** batch  # (9)
            best = min(best, 2 * few * mechanism.srdp(alpha, tau / k) + 2 * (1 - few) * whole_batch)
    return Priced(best, "Lemma 3", mechanism.sound and batch == 1, note)


def _candidates(most: int) -> list[int]:
    """Integers up to ``most``: all small ones, then ever fewer. Any of them is a bound."""
    spaced = (round(1.02**i) for i in range(int(math.log(most) / math.log(1.02)) + 1))
    return sorted({k for k in spaced if k <= most} | set(range(1, min(most, 100) + 1)))


# --- Theorem 2, Lemma M, group privacy -------------------------------------------------------


def overall_rdp(mechanism: Mechanism, tau: float, alpha: float) -> float:
    """ε̂(α) of a mechanism on rows that drift by ``tau``, best c₁ and c₂: Theorem 2, (3).

    As printed, the greater of two bounds; as neighbours may swap their parts, the lesser of the
    two is a bound as well. For Gaussian noise both are α(s₁ + s₂)²/2, the direct analysis.

    Examples
    --------
    >>> round(overall_rdp(GaussianMechanism(0.1), 2.0, 8.0), 6)  # 8·(0.2 + 0.1)²/2
    0.36
    """
    if not alpha > 1 or not tau >= 0:
        raise InputError(f"alpha must be above 1 and tau from 0, not {alpha!r} and {tau!r}")
    largest = mechanism.largest_order(tau)
    low, high = 1e-15, 1e15  # of x = c − 1
    if largest < math.inf:  # orders αc and (αc − 1)/(c − 1) must not exceed it
        if largest <= alpha:
            return math.inf
        low, high = (alpha - 1) / (largest - alpha) * (1 + 1e-12), (largest / alpha - 1)
        if low > high:
            return math.inf

    def joined(first: Callable[[float], float], second: Callable[[float], float]) -> float:
        def bound(x: float) -> float:
            top = alpha - 1 + alpha * x  # αc − 1
            return top / ((1 + x) * (alpha - 1)) * first(alpha * (1 + x)) + second(top / x)

        return _least(bound, low, high)

    def smooth(order: float) -> float:
        return mechanism.srdp(order, tau)

    return max(joined(smooth, mechanism.rdp), joined(mechanism.rdp, smooth))


def theorem2(mechanism: Mechanism, tau: float, delta: float) -> Priced:
    """ε at ``delta`` of a mechanism on rows that drift by ``tau``, best α, c₁ and c₂.

    Examples
    --------
    >>> round(theorem2(GradientDescent(0.01), 120.0, 1e-5).epsilon, 3)
    6.598
    """

    def curve(alpha: float) -> float:
        return overall_rdp(mechanism, tau, alpha)

    largest = mechanism.largest_order(tau)
    if largest < math.inf:  # beyond α²/(2α − 1) no c is left
        largest = largest**2 / (2 * largest - 1)
    value = rdp_to_dp(curve, delta, largest=largest)
    return Priced(value, "Theorem 2, eq. (3)", mechanism.sound, mechanism.note)


def rdp_to_dp(
    curve: Callable[[float], float],
    delta: float,
    *,
    least: float = 1.0,
    largest: float = math.inf,
) -> float:
    """min over α of ε(α) + ln(1/δ)/(α − 1): Lemma M, which is Mironov (2017), Prop. 3.

    Examples
    --------
    >>> round(rdp_to_dp(GaussianMechanism(0.1).rdp, 1e-5), 6)  # s²/2 + s·√(2 ln(1/δ))
    0.484853
    """
    if not 0 < delta < 1:
        raise InputError(f"delta must lie strictly between 0 and 1, not {delta!r}")
    low, high = max(least - 1, 1e-9), min(largest - 1, 1e12)
    if low > high:
        return math.inf
    return _least(lambda x: curve(1 + x) - math.log(delta) / x, low, high)


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a function with one valley, by golden sections of ln x."""
    step = (math.sqrt(5) - 1) / 2
    a, b = math.log(low), math.log(high)
    c, d = b - step * (b - a), a + step * (b - a)
    at_c, at_d = function(math.exp(c)), function(math.exp(d))
    best = min(at_c, at_d, function(low), function(high))
    while b - a > 1e-7:
        if at_c <= at_d:
            b, d, at_d = d, c, at_c
            c = b - step * (b - a)
            at_c = function(math.exp(c))
        else:
            a, c, at_c = c, d, at_d
            d = a + step * (b - a)
            at_d = function(math.exp(d))
        best = min(best, at_c, at_d)
    return best


def group_privacy(mu: float, size: int, delta: float) -> Priced:
    """ε at ``delta`` of a μ-Gaussian mechanism, for ``size`` rows changing together.

    Examples
    --------
    >>> round(group_privacy(0.05, 20, 1e-5).epsilon, 3)
    4.377
    """
    try:
        value = gaussian_epsilon(mu * size, delta) if mu * size < 1e150 else math.inf
    except OverflowError:
        value = math.inf
    note = f"As if {size:,} rows were replaced; {size:,}-fold μ in Gaussian DP."
    return Priced(value, "Dong, Roth & Su 2022, Thm 2.14", True, note)
