r"""Halfspaces beside Theorem 1: learning them without privacy, and what decaying gradients imply.

Pinto et al. 2024, Proposition 3 and appendix A-F; rows of unit norm, margin γ, components that keep
all but ξ of the separator, ζ the margin behind them (`halfspaces.projected_margin`).

**Without privacy, corrected.** A halfspace that has no loss at margin ζ on n rows is wrong on fresh
ones with probability at most 2/(ζ√n) + √(log(1/β)/(2n)) (Mohri, Rostamizadeh & Talwalkar 2012,
Theorem 4.4), so that n ≥ ((2/ζ + √(log(1/β)/2))/α)²: neither d nor k is in it, which is the
proposition's point. It has 1/(ζα²), by Rademacher complexities of 1/n ((10)) where 1/√n belongs.

**Restricted Lipschitz coefficients, corrected.** Let the gradients of the hinge loss scaled by ζ₀,
±x/ζ₀, have coefficients G_k: some projector of rank k leaves no more than ζ₀G_k of any row. Then
Λ = Σ_{i>k}λᵢ ≤ E‖(I − P)x‖² ≤ ζ₀²G_k² for that projector, the first k components leaving least on
average, and with A their projector

    ‖Aw*‖ ≥ E|⟨Ax, w*⟩| ≥ γ − E‖(I − A)x‖ ≥ γ − √Λ,

so that ξ ≤ 1 − γ + ζ₀G_k. The paper arrives at γ − (4ζ₀²/β)ΣG²: its eigenvalues are squared where a
psd matrix has them as they are, (42) bounds ‖(I − A)x‖² and is put in for ‖(I − A)x‖ in (43), and
Markov's inequality brings a β that a mean does without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tacit.diagnostics.base import require_fraction, require_positive
from tacit.exceptions import InputError
from tacit.research.theory.halfspaces import UNIT, projected_margin
from tacit.research.theory.risk import Risk


def nonprivate_risk(
    n: int,
    *,
    margin: float,
    xi: float = 0.0,
    gap: float | None = None,
    public: int | None = None,
    shift: float = 0.0,
    failure: float = 0.05,
) -> Risk:
    """Error rate of a separator that is found without privacy (Proposition 3, corrected).

    Parameters
    ----------
    n : int
        Rows with labels.
    margin : float
        γ, of unit rows and unit weights.
    xi : float
        ξ, where the projection keeps 1 − ξ of the norm of the best weights.
    gap : float, optional
        Δ_k, eigengap of the population behind the components.
    public : int, optional
        Public rows that components are estimated from; without, they are known.
    shift : float
        η, total variation between public and private rows.
    failure : float
        β, half of it for components.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(nonprivate_risk(10_000, margin=0.5).value, 4)
    0.0536
    """
    require_positive(n=n)
    require_fraction(failure=failure)
    zeta = projected_margin(margin, xi, gap=gap, public=public, shift=shift, failure=failure)
    value = math.inf
    if zeta > 0:
        value = (2 / zeta + math.sqrt(math.log(2 / failure) / 2)) / math.sqrt(n)
    return Risk(
        value,
        kind="population",
        constant="exact",
        source="Pinto et al. 2024, Proposition 3",
        unit="error rate",
        assumes=(UNIT, "weights that lose nothing at the projected margin", "no privacy"),
        failure=failure,
        printed=1 / math.sqrt(n * margin * (1 - xi)),
        correction="n grows as 1/ζ², not 1/ζ; the margin is γ − √(ξ(2 − ξ)), not γ(1 − ξ); the "
        "printed value is an order only",
    )


def nonprivate_size(
    error: float,
    *,
    margin: float,
    xi: float = 0.0,
    failure: float = 0.05,
) -> int:
    """Rows with labels for an error rate without privacy (Proposition 3, corrected).

    Parameters
    ----------
    error : float
        α, the error rate that is wanted.
    margin : float
        γ, of unit rows and unit weights.
    xi : float
        ξ, where the projection keeps 1 − ξ of the norm of the best weights.
    failure : float
        β.

    Returns
    -------
    int
        As many as `nonprivate_risk` needs.

    Examples
    --------
    >>> nonprivate_size(0.1, margin=0.5)
    2871
    """
    require_fraction(error=error)
    at_one = nonprivate_risk(1, margin=margin, xi=xi, failure=failure).value
    if math.isinf(at_one):
        raise InputError("no margin is left after the projection; lower xi")
    return math.ceil((at_one / error) ** 2)


def lipschitz_xi(
    margin: float, coefficients: Sequence[float], k: int, *, scale: float
) -> tuple[float, float]:
    """ξ that restricted Lipschitz coefficients imply, and what appendix A-F prints.

    Parameters
    ----------
    margin : float
        γ, of unit rows and unit weights.
    coefficients : sequence of float
        G₀, G₁, …, of the hinge loss scaled by ``scale``.
    k : int
        Number of components.
    scale : float
        ζ₀, that margins are divided by in the loss.

    Returns
    -------
    tuple of (float, float)
        Bounds on ξ, at most 1: 1 − γ + ζ₀G_k; and 1 − γ + 4ζ₀²ΣG²ᵢ over i > k, the printed one
        without its 1/β.

    Examples
    --------
    >>> lipschitz_xi(0.75, [2.0, 0.5, 0.0], 1, scale=0.5)
    (0.5, 0.25)
    """
    if not 0 < margin <= 1:
        raise InputError(f"margin={margin!r} must lie above 0 and at most at 1")
    require_positive(scale=scale, k=k)
    if not 0 <= k < len(coefficients):
        raise InputError(f"k={k} must lie below the {len(coefficients)} coefficients")
    behind = sum(each**2 for each in coefficients[k + 1 :])
    own = 1 - margin + scale * coefficients[k]
    return min(1.0, own), min(1.0, 1 - margin + 4 * scale**2 * behind)
