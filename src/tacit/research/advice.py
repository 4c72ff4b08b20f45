r"""Recipes weighed by theorems: bounds on their excess risk.

Every option is priced by a theorem of `tacit.research.theory` with a known constant, per unit of N,
the norm of the best weights (all of them grow with N alike), for slope G = 1 of the loss:

- rows as they are: descent on their rank (Song et al. 2021, Theorem 3.1), gradients of norm up to
  the longest row;
- centred: the same for gradients clipped to the root mean square distance to the mean (Song et al.
  2021, Corollary 5.2, on the objective that clipping optimises), with one dimension more for the
  intercept; the mean itself costs the recipe's share of the budget. The largest distance would
  count if nothing were clipped, but Sun et al. 2024 find that the mean one tells what is gained;
- projected on k components, public (Pinto et al. 2024) or noisy: descent on rank k, and the scores
  that the best weights θ* lose. Weights within the components give projected rows and rows the same
  score, so only θ* loses: (1/n)Σ|⟨θ*, (I − P)xᵢ⟩| ≤ √(θ*ᵀ(I − P)M(I − P)θ*) ≤ N·√λ_{k+1}, with
  M = XᵀX/n, by Jensen's inequality; where separators were trained, the root itself is taken.
  Noisy components, of M + E, lose √(λ_{k+1} + 2‖E‖) at most, and leave less of the budget;
- exact components of the private rows: Hu et al. 2024, Proposition 9, corrected, with more noise by
  their eigengap, and noise in all dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.diagnostics.advice import ADVISERS, Option, RowFacts
from tacit.plan.recipes import recipe
from tacit.privacy.accounting.accountants import gaussian_epsilon, gaussian_mu
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Neighbors
from tacit.research.theory import Risk, decay, descent, halfspaces, projection

FAILURE = 0.05  # of statements about the noise of dp-pca


def weigh(
    facts: RowFacts, epsilon: float, delta: float, neighbors: Neighbors
) -> tuple[list[Option], list[str]]:
    """What theorems promise for each recipe, and remarks."""
    context = _Context(facts, epsilon, delta, neighbors, gaussian_mu(epsilon, delta))
    options = [_as_they_are(context), _centred(context), _public(context), _noisy(context)]
    if (tested := _tested(context)) is not None:
        options.append(tested)
    return options, _remarks(context)


@dataclass(frozen=True)
class _Context:
    facts: RowFacts
    epsilon: float
    delta: float
    neighbors: Neighbors
    mu: float

    def budget(self, name: str, **settings: Any) -> dict[str, Any]:
        """What a recipe leaves of the budget for training, by the shares that its stages have."""
        share = _share(name, **settings)
        left = self.mu * math.sqrt(1 - share**2)
        epsilon = self.epsilon if not share else gaussian_epsilon(left, self.delta)
        return {"epsilon": max(epsilon, 1e-9), "delta": self.delta}


def _share(name: str, **settings: Any) -> float:
    """Part of μ that the stages of a recipe spend in all; the recipe says so, and nobody else."""
    stages = recipe(name, **settings)["stages"]
    return math.hypot(*(stage.share for stage in stages if stage.pays or stage.tested))


def _as_they_are(c: _Context) -> Option:
    f, rank = c.facts, max(c.facts.rank, 1)
    left = c.budget("dp-gd")
    found = descent.risk(f.n, rank, **left, lipschitz=f.longest or 1.0, neighbors=c.neighbors)
    return Option("dp-gd", {}, found, f"rows of norm {f.longest:.3g} and rank {f.rank}")


def _centred(c: _Context) -> Option:
    f = c.facts
    rank = min(max(f.rank, 1) + 1, max(f.n, 2))
    found = descent.clipped_risk(
        f.n, rank, **c.budget("dpsgd-f"), clip=max(f.typical, 1e-12), neighbors=c.neighbors
    )
    assumes = (*found.assumes, "the mean is taken off exactly; its noise is left out here")
    found = replace(found, assumes=assumes)
    why = f"rows are {f.typical:.3g} away from their mean, in the mean square"
    return Option("dpsgd-f", {}, found, why)


def _public(c: _Context) -> Option:
    f = c.facts
    found, k = _best_projection(c, f.lost, c.budget("pillar"))
    assumes = (*found.assumes, "the public rows have the components of the private ones")
    kept = 1 - f.tails[k] / f.tails[0] if f.tails[0] else 1.0
    why = f"{k} components keep {kept:.1%} of the squared norm"
    option = Option("pillar", {"n_components": k}, replace(found, assumes=assumes), why)
    return replace(option, needs="public rows like the private ones")


def _tested(c: _Context) -> Option | None:
    """Exact components of the private rows, behind a test: more noise by 1/gap, replace-one."""
    f = c.facts
    usable = np.flatnonzero(f.gaps[: max(f.rank, 1)] > 1e-6)
    if not len(usable):
        return None
    best: tuple[Risk, int] | None = None
    for at in usable:
        k, gap = int(at) + 1, float(f.gaps[at]) / max(f.longest, 1e-300) ** 2
        # `tacit.research.price`, "pca": 1 + 1/(2·gap) for unit rows and data-Lipschitz constant 1.
        found = projection.risk(
            f.n,
            k,
            **c.budget("ptr-pca", gap=gap),
            tail=max(float(f.tails[k]), 0.0),
            bound=f.longest or 1.0,
            inflation=1 + 1 / (2 * gap),
        )
        if best is None or found.value < best[0].value:
            best = found, k
    assert best is not None
    found, k = best
    gap = float(f.gaps[k - 1])
    why = f"the {k}. eigengap is {gap:.3g}: {1 + f.longest**2 / (2 * gap):.3g} times the noise"
    return Option(
        "ptr-pca",
        {"n_components": k, "gap": gap / 2},
        found,
        why,
        needs="a gap declared from public knowledge; it is counted for replace_one",
    )


def _noisy(c: _Context) -> Option:
    """Components of a noisy second moment: what it costs, and eigenvalues that noise may hide."""
    f = c.facts
    noise = sensitivity(c.neighbors) * f.longest**2 / (_share("dp-pca") * c.mu)
    # ‖E‖ ≤ σ(√(2d) + t) but for e^(−t²/2) on either side, see `tacit.preprocessing.PrivatePCA`.
    edge = noise * (math.sqrt(2 * f.d) + math.sqrt(2 * math.log(2 / FAILURE))) / f.n
    # ‖(I − P̂)M(I − P̂)‖ ≤ λ̂_{k+1} + ‖E‖ ≤ λ_{k+1} + 2‖E‖: whatever the best weights are.
    hidden = np.append(np.sqrt(f.eigenvalues[1:] + 2 * edge), [0.0])
    found, k = _best_projection(c, np.append(f.longest, hidden), c.budget("dp-pca"))
    why = f"noise hides eigenvalues below {edge:.3g}; {k} components"
    return Option("dp-pca", {"n_components": k}, replace(found, failure=FAILURE), why)


def _best_projection(c: _Context, lost: np.ndarray, budget: dict[str, Any]) -> tuple[Risk, int]:
    """The number of components for which descent on them, and what they lose, is least."""
    f = c.facts
    most = max(1, min(f.d, f.rank))
    best: tuple[Risk, int] | None = None
    for k in np.unique(np.geomspace(1, most, 64).round().astype(int)).tolist():
        found = descent.risk(f.n, k, **budget, lipschitz=f.longest or 1.0, neighbors=c.neighbors)
        found = replace(
            found,
            value=found.value + float(lost[k]),
            assumes=(*found.assumes, "rows projected; the best weights lose what lies outside"),
        )
        if best is None or found.value < best[0].value:
            best = found, k
    assert best is not None
    return best


def _remarks(c: _Context) -> list[str]:
    f, remarks = c.facts, []
    if f.typical and f.longest:
        ratio = f.typical / f.longest
        helps = "much" if ratio < 0.7 else "somewhat" if ratio < 0.9 else "little"
        remarks.append(
            f"Centring helps {helps}: rows are {ratio:.2f} of their length away from their mean "
            "(Sun et al. 2024 find that the smaller this is, the more DPSGD-F gains)."
        )
    if f.rank < f.d:
        remarks.append(
            f"Rank {f.rank} of {f.d} columns: the other columns cost nothing (Song et al. 2021, "
            "Theorem 3.1), so nothing is gained by leaving them out."
        )
    if f.decay > 0.5:
        remarks.append(
            f"Restricted Lipschitz coefficients fall as k^-{f.decay:.2f}: above 1/2, so the risk "
            "of descent does not grow with the number of columns (Li et al. 2022, Theorem 3.3)."
        )
    elif f.decay <= 0.5:
        remarks.append(
            f"Restricted Lipschitz coefficients fall as k^-{f.decay:.2f}, not faster than 1/2: "
            "Li et al. 2022 promise no freedom from the dimension here."
        )
    if f.coefficients is not None and f.longest and c.epsilon <= 10 and c.delta <= 0.5:
        k = decay.best_k(f.coefficients, f.n, epsilon=c.epsilon, delta=c.delta)
        remarks.append(f"The bound of their theorem is least for {k} directions.")
    if f.margin > 0 and f.xi is not None:
        remarks.append(_halfspaces(c, f.xi))
    if f.copies > 0.01:
        remarks.append(
            f"{f.copies:.1%} of the rows are copies of others. If a person may have several rows, "
            "the guarantee is for rows; Dedup(radius=0, crowd=...) takes copies out, at a price: "
            "tacit price dedup."
        )
    return remarks


def _halfspaces(c: _Context, xi: np.ndarray) -> str:
    """Orders of error rates for rows that are separable (Pinto et al. 2024, Table V, corrected)."""
    f = c.facts
    given: dict[str, Any] = {"epsilon": c.epsilon, "margin": min(f.margin, 1.0), "d": f.d}
    tried = []
    for k in np.unique(np.geomspace(1, f.d, 48).round().astype(int)).tolist():
        part = min(float(xi[k]), 1 - 1e-9)
        tried.append((halfspaces.error_rates(f.n, **given, k=k, xi=part), k))
    names = {"noisy descent": "all columns", "random projection": "jl"}
    orders = [f"{names[name]} {tried[0][0][name].value:.2g}" for name in names]
    rates, k = min(tried, key=lambda item: item[0]["public components"].value)
    public = rates["public components"].value
    if math.isfinite(public):
        orders.append(f"pillar with {k} components {public:.2g}")
    return (
        f"The classes are separable with margin {f.margin:.3g}. Orders of the error rate by Pinto "
        f"et al. 2024, Table V: {', '.join(orders)}."
    )


ADVISERS.add("theorems", weigh)
