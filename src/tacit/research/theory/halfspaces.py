r"""Halfspaces with a margin: what a projection to public components buys.

Pinto et al. 2024, Theorems 1, 2 and 4, Corollary 2, Table V; rows of unit norm, error rates over
fresh rows. Everything here is up to constants and logarithms, but for margins and public samples.

**Margin after projection, corrected.** Let w* separate with margin γ and P project on k components
with ‖Pw*‖ ≥ 1 − ξ. The paper has margin γ(1 − ξ) for the projected rows: its (2) takes Pb ⊥ Pw*
for granted when b ⊥ w*. In truth y⟨Px, w*⟩ ≥ γ − ‖(I − P)w*‖, and ‖(I − P)w*‖ ≤ √(ξ(2 − ξ)), so

    ζ = γ − √(ξ(2 − ξ)),

and this is sharp: the row (I − P)w*/‖(I − P)w*‖ has margin √(ξ(2 − ξ)) and projects to zero. With
larger ξ projected rows need not be separable at all. For ξ = 0 nothing changes. Components
estimated from n public rows add their error, at most 4(1 + √(log(2/β)/2))/(Δ_k√n) with probability
1 − β/2 (Lemma 4), and public rows of another distribution, within η in total variation, add 2η/Δ_k:
on the unit ball second moments then differ by at most η in norm, where Lemma 6 has 7η and needs
third moments.

**Losses.** The guarantee is for the hinge loss scaled by ζ, which separable rows bring to zero. For
cross-entropy the paper compares with weights of norm one, whose loss is at least 0.45, so that the
error rate it infers does not follow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from tacit.diagnostics.base import require_fraction, require_positive
from tacit.exceptions import InputError
from tacit.privacy.budget import Budget
from tacit.research.theory.risk import Risk

UNIT = "rows of unit norm, separable with the given margin"
LOGS = "constants and logarithms left out"
#: Of an error rate over fresh rows.
ORDER = partial(Risk, kind="population", constant="up to a constant", unit="error rate")


def projected_margin(
    margin: float,
    xi: float = 0.0,
    *,
    gap: float | None = None,
    public: int | None = None,
    shift: float = 0.0,
    failure: float = 0.05,
) -> float:
    """ζ, margin that unit rows keep under a projection; zero or less means none is promised.

    Parameters
    ----------
    margin : float
        γ, of unit rows and unit weights w*.
    xi : float
        ξ, where ‖Pw*‖ ≥ 1 − ξ for the population's first k components.
    gap : float, optional
        Δ_k, eigengap of the population behind them.
    public : int, optional
        Public rows that they are estimated from; without, they are known.
    shift : float
        η, total variation between public and private rows.
    failure : float
        β of the whole guarantee.

    Returns
    -------
    float
        A number.

    Examples
    --------
    >>> round(projected_margin(0.5, 0.02), 3)
    0.301
    """
    if not 0 < margin <= 1:
        raise InputError(f"margin={margin!r} must lie above 0 and at most at 1")
    if not 0 <= xi < 1:
        raise InputError(f"xi={xi!r} must lie in [0, 1)")
    require_fraction(failure=failure)
    require_positive(gap=gap, public=public)
    require_positive(zero=True, shift=shift)
    if gap is None and (public is not None or shift):
        raise InputError("components of other rows need gap=, the eigengap behind them")
    left = margin - math.sqrt(xi * (2 - xi))
    if shift and gap is not None:
        left -= 2 * shift / gap  # ‖ΔP‖ ≤ 2‖ΔΣ‖/Δ, and ‖ΔΣ‖ ≤ η on the unit ball
    if public is not None and gap is not None:
        left -= 4 * (1 + math.sqrt(math.log(2 / failure) / 2)) / (gap * math.sqrt(public))
    return left


def risk(
    n: int,
    k: int,
    *,
    epsilon: float,
    delta: float,
    margin: float,
    xi: float = 0.0,
    gap: float | None = None,
    public: int | None = None,
    shift: float = 0.0,
    failure: float = 0.05,
) -> Risk:
    """Order of PILLAR's error rate (Pinto et al. 2024, Theorem 1; with a shift Theorems 2 and 4).

    √k/(n·ε·ζ) + k/n; the second term, for fresh rows, is what the paper's condition ε < 1/√k
    hides.

    Parameters
    ----------
    n, k : int
        Private rows; components.
    epsilon, delta : float
        The budget.
    margin : float
        γ, of unit rows and unit weights.
    xi : float
        ξ, where the projection keeps 1 − ξ of the norm of the best weights.
    gap : float, optional
        Δ_k, eigengap of the population behind the first k components.
    public : int, optional
        Public rows that components are estimated from; without, they are known.
    shift : float
        η, total variation between public and private rows.
    failure : float
        Chance that the bound does not hold.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(risk(10_000, 10, epsilon=1.0, delta=1e-6, margin=0.5).value, 5)
    0.00163
    """
    Budget(epsilon, delta)
    require_positive(n=n, k=k)
    zeta = projected_margin(margin, xi, gap=gap, public=public, shift=shift, failure=failure)
    printed = 0.9 * (1 - xi) - (14 * shift / gap if shift and gap is not None else 0.0)
    root = math.sqrt(k)
    return ORDER(
        root / (n * epsilon * zeta) + k / n if zeta > 0 else math.inf,
        source=f"Pinto et al. 2024, Theorem {'4 (and 2)' if shift else '1'}",
        assumes=(
            UNIT,
            "first components of rows like the private ones, which keep all but ξ of w*",
            "hinge loss scaled by the projected margin, weights within the unit ball",
            LOGS,
        ),
        failure=failure,
        printed=root / (n * epsilon * margin * printed) if printed > 0 else math.inf,
        correction="projected rows keep margin γ − √(ξ(2 − ξ)), not 0.9γ(1 − ξ)"
        + ("; a shift costs 2η/Δ, not 14η/Δ (Theorem 2 has lost 0.9)" if shift else ""),
    )


@dataclass(frozen=True)
class Sizes:
    """Rows that a guarantee asks for.

    Attributes
    ----------
    private : float
        Labelled rows, up to constants and logarithms.
    public : float
        Unlabelled ones, with their constant.
    """

    private: float
    public: float


def sizes(
    error: float,
    k: int,
    *,
    epsilon: float,
    margin: float,
    gap: float,
    xi: float = 0.0,
    shift: float = 0.0,
    failure: float = 0.05,
) -> Sizes:
    """Sample sizes for an error rate (Pinto et al. 2024, Theorems 1 and 4, corrected).

    A tenth of the margin that ξ and the shift leave is given to the error of the components:
    1600(1 + √(log(2/β)/2))²/(Δ_k·(γ − √(ξ(2 − ξ)) − 2η/Δ_k))² public rows. The paper has 1 − ξ in
    place of that margin in its Theorem 1 and γ in its Theorem 4.

    Parameters
    ----------
    error : float
        The error rate that is wanted.
    k : int
        Number of components.
    epsilon : float
        Of the budget.
    margin : float
        γ, of unit rows and unit weights.
    gap : float
        Δ_k, eigengap of the population behind the first k components.
    xi : float
        ξ, where the projection keeps 1 − ξ of the norm of the best weights.
    shift : float
        η, total variation between public and private rows.
    failure : float
        Chance that the bound does not hold.

    Returns
    -------
    Sizes
        Private and public rows.

    Examples
    --------
    >>> sizes(0.1, 10, epsilon=1.0, margin=0.5, gap=0.1).public
    3558812
    """
    require_fraction(error=error)
    require_positive(k=k, epsilon=epsilon, gap=gap)
    left = projected_margin(margin, xi, gap=gap, shift=shift, failure=failure)
    if left <= 0:
        raise InputError(f"no margin is left after the projection: {left:.3g}; lower xi or shift")
    public = (40 * (1 + math.sqrt(math.log(2 / failure) / 2)) / (gap * left)) ** 2
    private = math.sqrt(k) / (error * epsilon * 0.9 * left) + k / error
    return Sizes(private, math.ceil(public))


@dataclass(frozen=True)
class Mixture:
    """Two Gaussians at ±μ, ‖μ‖ = 1, with covariance θww′ + σ²I, w ⊥ μ (Pinto et al. 2024, Example
    1).

    The paper takes w for the separator, but y⟨w, x⟩ is as often negative as positive: it is μ that
    separates, the first component (eigenvalue 1 + σ², then θ + σ²), so that k = 1 is enough. Its
    Lemma 8 has ‖Σ‖ where the deviation √‖Σ‖ belongs.

    Attributes
    ----------
    d : int
        Dimensions.
    stretch, spread : float
        θ and σ², variances.
    """

    d: int
    stretch: float
    spread: float

    def __post_init__(self) -> None:
        require_positive(d=self.d, spread=self.spread)
        require_positive(zero=True, stretch=self.stretch)
        if self.d < 2 or self.stretch >= 1:
            raise InputError("a mixture has at least two dimensions and stretch below 1")

    def margin(self, n: int, failure: float = 0.05) -> float:
        """Least y⟨μ, x⟩ of n rows, with probability 1 − failure/4 or more.

        Parameters
        ----------
        n : int
            Rows.
        failure : float
            Chance of failure of the whole guarantee.

        Returns
        -------
        float
            A margin.
        """
        return 1 - math.sqrt(2 * self.spread * math.log(4 * n / failure))

    def radius(self, n: int, failure: float = 0.05) -> float:
        """Largest norm of n rows, with probability 1 − failure/4 or more.

        ‖x‖ ≤ 1 + √tr(Σ) + √(2‖Σ‖·log(4n/β)), by Gaussian concentration.

        Parameters
        ----------
        n : int
            Rows.
        failure : float
            Chance of failure of the whole guarantee.

        Returns
        -------
        float
            A norm.
        """
        far = math.sqrt(2 * (self.stretch + self.spread) * math.log(4 * n / failure))
        return 1 + math.sqrt(self.stretch + self.d * self.spread) + far

    def gap(self, radius: float) -> float:
        """Δ₁ of rows divided by the radius: (1 − θ)/M².

        Parameters
        ----------
        radius : float
            M, that rows are divided by.

        Returns
        -------
        float
            An eigengap.
        """
        return (1 - self.stretch) / radius**2


def mixture_risk(
    n: int,
    mixture: Mixture,
    *,
    epsilon: float,
    delta: float,
    failure: float = 0.05,
) -> Risk:
    """Order of PILLAR's error rate on a mixture of Gaussians (Pinto et al. 2024, Corollary 2,
    corrected).

    M/(n·ε·γ) + 1/n, free of d as long as σ² is at most of order 1/d (the paper says 1/√d, by its
    Lemma 8).

    Parameters
    ----------
    n : int
        Number of rows.
    mixture : Mixture
        Of two Gaussians.
    epsilon, delta : float
        The budget.
    failure : float
        Chance that the bound does not hold.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(mixture_risk(10_000, Mixture(100, 0.0, 0.0001), epsilon=1.0, delta=1e-6).value, 6)
    0.000222
    """
    Budget(epsilon, delta)
    require_positive(n=n)
    require_fraction(failure=failure)
    gamma, radius = mixture.margin(n, failure), mixture.radius(n, failure)
    value = radius / (n * epsilon * gamma) + 1 / n if gamma > 0 else math.inf
    moved = 4 * math.sqrt(mixture.d) + 2 * math.sqrt(math.log(2 * n / delta))
    moved *= mixture.spread + mixture.stretch
    claimed = (1 - moved) * (1 - 0.1 * (1 - moved))
    return ORDER(
        value,
        source="Pinto et al. 2024, Corollary 2",
        assumes=("two Gaussians of Example 1, rows divided by their radius", "k = 1", LOGS),
        failure=failure,
        printed=(1 + moved) * math.sqrt(2) / (n * epsilon * claimed) if moved < 1 else math.inf,
        correction="the mean separates, not w; deviations in place of variances in Lemma 8",
    )


def error_rates(
    n: int,
    *,
    epsilon: float,
    margin: float,
    d: int,
    k: int,
    xi: float = 0.0,
    tail: float = 0.0,
    residual: float = 0.0,
    width: float | None = None,
    distortion: float = 1.0,
) -> dict[str, Risk]:
    """Orders of error rates of six ways to learn a halfspace (Pinto et al. 2024, Table V).

    Parameters
    ----------
    tail : float
        c₂, bound on ΣG²_{2ˢ⁻¹k}, for restricted Lipschitz descent.
    residual : float
        c₁, norm of gradients outside their public subspace, for gradient embedding.
    width : float, optional
        ω, Gaussian width of the set that weights come from: √d for a ball, as it is unless given;
        √(2·log(2d)) for weights of bounded sum.
    distortion : float
        Of gradients, by their random projection; the table calls it β.
    n : int
        Number of rows.
    epsilon : float
        Of the budget.
    margin : float
        γ, of unit rows and unit weights.
    d : int
        Number of columns.
    k : int
        Number of components.
    xi : float
        ξ, where the projection keeps 1 − ξ of the norm of the best weights.

    Returns
    -------
    dict of str to Risk
        By the way of learning.

    Examples
    --------
    >>> round(error_rates(10_000, epsilon=1.0, margin=0.2, d=300, k=9)["noisy descent"].value, 5)
    0.00866
    """
    require_positive(n=n, epsilon=epsilon, d=d, k=k)
    require_positive(zero=True, tail=tail, residual=residual)
    require_positive(width=width, distortion=distortion)
    wide = (math.sqrt(d) if width is None else width) / distortion
    zeta = projected_margin(margin, xi)
    scale, root = 1 / (n * epsilon), math.sqrt(k)
    generic = math.sqrt(d) * scale / margin
    rows = {
        "noisy descent": (generic, (), ""),
        "restricted Lipschitz descent": (
            root * scale / margin + math.sqrt(tail * d / k),
            ("gradients of bounded restricted Lipschitz coefficients",),
            "√(c₂d/k) is an error that more rows do not lower; the table adds it to their number",
        ),
        "random projection": (scale / margin**2, (), ""),
        "random projection of gradients": (
            min(wide, math.sqrt(d)) * scale / margin,
            ("weights from a set of that Gaussian width",),
            "",
        ),
        "gradient embedding": (
            (root + residual * math.sqrt(d)) * scale / margin,
            ("gradients that mostly lie in a public subspace",),
            "noise in k and in d dimensions multiplies 1/(nεγ); the table adds it",
        ),
        "public components": (
            root * scale / zeta if zeta > 0 else math.inf,
            ("components that keep all but ξ of the separator",),
            "margin γ − √(ξ(2 − ξ)) after projection; the table has γ(1 − ξ)",
        ),
    }
    printed = {"public components": root * scale / (margin * (1 - xi))}
    return {
        name: ORDER(
            value,
            source="Pinto et al. 2024, Table V",
            assumes=(UNIT, *more, LOGS),
            printed=printed.get(name),
            correction=correction,
        )
        for name, (value, more, correction) in rows.items()
    }


def sample_sizes(
    error: float,
    *,
    epsilon: float,
    margin: float,
    d: int,
    k: int,
    xi: float = 0.0,
    tail: float = 0.0,
    residual: float = 0.0,
    width: float | None = None,
) -> dict[str, float]:
    """Orders of the private rows that an error rate takes (Pinto et al. 2024, Table V, corrected).

    `error_rates` solved for n; infinite where no number of rows is enough.

    Parameters
    ----------
    error : float
        The error rate that is wanted.
    epsilon : float
        Of the budget.
    margin : float
        γ, of unit rows and unit weights.
    d : int
        Number of columns.
    k : int
        Number of components.
    xi : float
        ξ, where the projection keeps 1 − ξ of the norm of the best weights.
    tail : float
        c₂, bound on ΣG²_{2ˢ⁻¹k}, for restricted Lipschitz descent.
    residual : float
        c₁, norm of gradients outside their public subspace.
    width : float, optional
        ω, Gaussian width of the set that weights come from.

    Returns
    -------
    dict of str to float
        By the way of learning.

    Examples
    --------
    >>> round(sample_sizes(0.1, epsilon=1.0, margin=0.2, d=300, k=10)["random projection"], 0)
    250.0
    """
    require_fraction(error=error)
    given = {"epsilon": epsilon, "margin": margin, "xi": xi, "residual": residual}
    at_one = error_rates(1, d=d, k=k, width=width, **given)
    floor = {"restricted Lipschitz descent": math.sqrt(tail * d / k)}
    left = {name: error - floor.get(name, 0.0) for name in at_one}
    return {
        name: found.value / left[name] if left[name] > 0 else math.inf
        for name, found in at_one.items()
    }
