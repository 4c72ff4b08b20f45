r"""Noisy gradient descent on convex generalised linear models: rank in place of dimension.

Song et al. 2021, Theorems 2.7, 3.1 and 3.2, Corollary 5.2, and the local variant. Noise is
isotropic and gradients lie in the span of the rows, so only the noise within that span does harm:
r = rank directions of it, whatever the number of columns.

With gradients of norm at most L, N ≥ ‖θ*‖, T steps at rate η and noise of deviation σ,

    E[excess] ≤ N²/(2ηT) + (η/2)(1 + 1/T)(L² + rσ²),

least at η = N/√((T + 1)(L² + rσ²)). The paper averages θ₁…θ_T, as trainers here do, but bounds the
average of θ₀…θ_{T−1}, where the gradients are; the factor 1 + 1/T is the difference (θ₁ is at most
η²(L² + rσ²) farther from θ*, in squares, than θ₀).

Where weights are projected onto a set after every step, the argument within the span breaks, since
a projection mixes directions. Projections bring weights no farther from θ* in the whole space,
though, so the same bound holds with the number of columns p for r: Theorem 2.7, of Bassily, Smith &
Thakurta 2014.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tacit.diagnostics.base import require_positive
from tacit.privacy.relation import Neighbors
from tacit.research.theory.risk import Risk, noise_of
from tacit.trainers.settings import PLAIN_STEPS, constant_rate

CONVEX = "loss convex in the score"
FROM_ZERO = "descent from zero on all rows, mean of the iterates, rate as in `descent.schedule`"
NOISE = (
    "noise by exact Gaussian DP: the paper's variance is for rows blanked out, its definition for "
    "rows replaced; and 1 + 1/T, see the module"
)


@dataclass(frozen=True)
class Schedule:
    """The steps that a theorem prescribes.

    Attributes
    ----------
    steps : int
        T.
    learning_rate : float
        η, on the mean gradient.
    clip : float
        L: with the theorem's assumption, nothing is clipped.
    noise_multiplier : float
        Of each step's sum, in clips.
    anchor : float or None
        α, strength of the pull towards the start: `anchor` of a trainer; None without one.
    k : int or None
        Directions that the bound is least for, where it depends on their number.
    """

    steps: int
    learning_rate: float
    clip: float
    noise_multiplier: float
    anchor: float | None = None
    k: int | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of `tacit.trainers.DPGD`, or of `DPSGD` beside a ``batch_size``."""
        pull = {} if self.anchor is None else {"anchor": self.anchor}
        given = {"steps": self.steps, "learning_rate": self.learning_rate, "clip": self.clip}
        return {**given, **pull, **PLAIN_STEPS}


def schedule(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    norm: float = 1.0,
    lipschitz: float = 1.0,
    neighbors: Neighbors = "replace_special",
    steps: int | None = None,
) -> Schedule:
    """T and η of Song et al. 2021, Theorem 3.1: T = (nε)², η as it minimises the bound.

    Parameters
    ----------
    n, rank : int
        Rows, and the rank of their matrix.
    epsilon, delta : float
        Budget of the descent.
    norm : float
        N, at least the norm of the best weights, in their units.
    lipschitz : float
        L, largest norm of a row's gradient: that of the loss in the score, times the row bound.
    neighbors : str
        The relation of neighbouring data sets.
    steps : int, optional
        Instead of (nε)², which grows large: fewer steps at the rate that suits them.

    Returns
    -------
    Schedule
        Steps and rate, as ``settings`` of a trainer.

    Examples
    --------
    >>> plan = schedule(500, 10, epsilon=1.0, delta=1e-5, norm=2.0)
    >>> plan.steps
    250000
    """
    count = max(1, math.ceil((n * epsilon) ** 2)) if steps is None else int(steps)
    require_positive(n=n, rank=rank, norm=norm, lipschitz=lipschitz, steps=count)
    mu = 1 / (n * noise_of(n, epsilon, delta, neighbors))
    rate = constant_rate(mu, n, rank, norm=norm, clip=lipschitz, steps=count)
    return Schedule(count, rate, lipschitz, math.sqrt(count) / mu)


def risk(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    norm: float = 1.0,
    lipschitz: float = 1.0,
    neighbors: Neighbors = "replace_special",
    steps: int | None = None,
) -> Risk:
    """Excess empirical risk of noisy descent, in units of the loss (Song et al. 2021, Theorem 3.1).

    N·L·√((1 + 1/T)(1/T + r(Δ/(nμ))²)); T = (nε)² makes it about L·N·√(1 + 2r·log(1/δ))/(nε).
    `schedule` attains it.

    Parameters
    ----------
    n : int
        Number of rows.
    rank : int
        Of the rows with their constant feature.
    epsilon, delta : float
        The budget.
    norm : float
        N, at least the norm of the best weights, the intercept's included.
    lipschitz : float
        L, largest norm of a row's gradient.
    neighbors : str
        The relation of neighbouring data sets.
    steps : int, optional
        Instead of the theorem's number, which grows large.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(risk(10_000, 50, epsilon=1.0, delta=1e-6).value, 5)
    0.00299
    """
    require_positive(rank=rank, norm=norm, lipschitz=lipschitz, steps=steps)
    unit = noise_of(n, epsilon, delta, neighbors)
    count = max(1, math.ceil((n * epsilon) ** 2)) if steps is None else int(steps)
    value = norm * lipschitz * math.sqrt((1 + 1 / count) * (1 / count + rank * unit**2))
    printed = lipschitz * norm * math.sqrt(1 + 2 * rank * math.log(1 / delta)) / (epsilon * n)
    return Risk(
        value,
        kind="empirical",
        constant="exact",
        source="Song et al. 2021, Theorem 3.1",
        neighbors=neighbors,
        assumes=(CONVEX, "gradients of norm at most L, weights not projected", FROM_ZERO),
        printed=printed if steps is None else None,
        correction=NOISE,
    )


def constrained_risk(
    n: int,
    columns: int,
    *,
    epsilon: float,
    delta: float,
    norm: float = 1.0,
    lipschitz: float = 1.0,
    neighbors: Neighbors = "replace_special",
    steps: int | None = None,
) -> Risk:
    """Excess of noisy descent with projections, in units of the loss (Song et al. 2021, 2.7).

    `risk` with the number of columns for the rank; see the module. `schedule` with it attains it.

    Parameters
    ----------
    n : int
        Number of rows.
    columns : int
        p, number of weights, the intercept's included.
    epsilon, delta : float
        The budget.
    norm : float
        N, at least the distance of the best weights of the set from zero, which is in it.
    lipschitz : float
        L, largest norm of a row's gradient.
    neighbors : str
        The relation of neighbouring data sets.
    steps : int, optional
        Instead of (nε)².

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(constrained_risk(10_000, 50, epsilon=1.0, delta=1e-6).value, 5)
    0.00299
    """
    given: dict[str, Any] = {"norm": norm, "neighbors": neighbors, "steps": steps}
    found = risk(n, columns, epsilon=epsilon, delta=delta, lipschitz=lipschitz, **given)
    printed = lipschitz * norm * math.sqrt(columns * math.log(1 / delta)) / (epsilon * n)
    return replace(
        found,
        source="Song et al. 2021, Theorem 2.7",
        assumes=(
            CONVEX,
            "gradients of norm at most L, weights projected onto a convex set with zero in it",
            FROM_ZERO,
        ),
        printed=printed,
        correction=f"constants from the proof, which the theorem leaves out: √2 and 1/T; {NOISE}",
    )


def local_schedule(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    norm: float = 1.0,
    lipschitz: float = 1.0,
    steps: int | None = None,
) -> Schedule:
    """Steps and rate of `local_risk`: T = nε², all rows reporting in every step.

    Parameters
    ----------
    n, rank : int
        Rows, and the rank of their matrix.
    epsilon, delta : float
        Budget of every row's reports together.
    norm : float
        N, at least the norm of the best weights.
    lipschitz : float
        L, largest norm of a row's gradient.
    steps : int, optional
        Instead of nε².

    Returns
    -------
    Schedule
        For `tacit.research.trainers.LocalDPGD`, with ``reports=steps``; the noise multiplier is
        that of a report.

    Examples
    --------
    >>> local_schedule(500, 10, epsilon=1.0, delta=1e-5, norm=2.0).steps
    500
    """
    count = max(1, math.ceil(n * epsilon**2)) if steps is None else int(steps)
    require_positive(n=n, rank=rank, norm=norm, lipschitz=lipschitz, steps=count)
    unit = math.sqrt(n) * noise_of(n, epsilon, delta, "replace_one")
    rate = constant_rate(1 / (n * unit), n, rank, norm=norm, clip=lipschitz, steps=count)
    return Schedule(count, rate, lipschitz, math.sqrt(n * count) * unit)


def local_risk(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    norm: float = 1.0,
    lipschitz: float = 1.0,
    steps: int | None = None,
) -> Risk:
    """Excess empirical risk where every row adds its own noise (Song et al. 2021, section 3.1).

    A report has noise of deviation 2L√T/μ in every coordinate, for two values that its row may
    have, so the mean of n reports has √n times the noise of `risk` for replaced rows: N·L·√((1 +
    1/T)(1/T + r(2/(μ√n))²)). T = nε² makes it about L·N·√(1 + 8r·log(1/δ))/(ε√n). The paper has no
    formula, and says that risk grows by √n.

    Parameters
    ----------
    n, rank : int
        Rows, and the rank of their matrix.
    epsilon, delta : float
        Budget of every row's reports together.
    norm : float
        N, at least the norm of the best weights.
    lipschitz : float
        L, largest norm of a row's gradient.
    steps : int, optional
        Instead of nε².

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(local_risk(10_000, 50, epsilon=1.0, delta=1e-6).value, 3)
    0.598
    """
    plan = local_schedule(
        n, rank, epsilon=epsilon, delta=delta, norm=norm, lipschitz=lipschitz, steps=steps
    )
    count, unit = plan.steps, math.sqrt(n) * noise_of(n, epsilon, delta, "replace_one")
    value = norm * lipschitz * math.sqrt((1 + 1 / count) * (1 / count + rank * unit**2))
    logs = 1 + 2 * rank * math.log(1 / delta)
    return Risk(
        value,
        kind="empirical",
        constant="exact",
        source="Song et al. 2021, section 3.1, local variant",
        neighbors="replace_one",
        assumes=(
            CONVEX,
            "gradients of norm at most L, weights not projected",
            "every row reports in every step; mean of the iterates",
        ),
        printed=lipschitz * norm * math.sqrt(logs / n) / epsilon if steps is None else None,
        correction="printed is √n times Theorem 3.1; reports are for replaced rows: Δ = 2",
    )


def clipped_risk(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    clip: float,
    norm: float = 1.0,
    neighbors: Neighbors = "replace_special",
    steps: int | None = None,
) -> Risk:
    """Excess of the *clipped* objective, in its units (Song et al. 2021, Corollary 5.2).

    Parameters
    ----------
    clip : float
        B, the norm that gradients are clipped to.
    norm : float
        At least the norm of the weights of least clipped objective (`tacit.losses.clipped`).
    n : int
        Number of rows.
    rank : int
        Of the rows with their constant feature.
    epsilon, delta : float
        The budget.
    neighbors : str
        The relation of neighbouring data sets.
    steps : int, optional
        Instead of the theorem's number, which grows large.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(clipped_risk(10_000, 50, epsilon=1.0, delta=1e-6, clip=0.5).value, 5)
    0.00149
    """
    given: dict[str, Any] = {"norm": norm, "neighbors": neighbors, "steps": steps}
    found = risk(n, rank, epsilon=epsilon, delta=delta, lipschitz=clip, **given)
    return replace(
        found,
        source="Song et al. 2021, Corollary 5.2",
        unit="clipped loss",
        assumes=(
            CONVEX,
            "one output, so that clipped gradients have an objective (Lemma 5.1)",
            "norm of the weights that minimise that objective, not the loss",
            FROM_ZERO,
        ),
        printed=None,
        correction=f"B where the corollary prints L; {NOISE}",
    )


def population_risk(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    norm: float = 1.0,
    lipschitz: float = 1.0,
    neighbors: Neighbors = "replace_special",
) -> Risk:
    r"""Excess risk over fresh rows, in units of the loss (Song et al. 2021, Theorem 3.2).

    T = n² steps. Uniform argument stability 4Lη(T/n + √T) (Lemma A.2) times L bounds what is lost
    on fresh rows; with the bound of the module for the rest, and the best rate, the sum is
    (N·L/n)·√((1 + 1/n²)(1 + k(Δ/μ)²) + 16n), k = min(rank, n).

    Parameters
    ----------
    rank : int
        Of the rows' second moment in the population.
    norm : float
        At least the norm of the best weights for the population.
    n : int
        Number of rows.
    epsilon, delta : float
        The budget.
    lipschitz : float
        L, largest norm of a row's gradient.
    neighbors : str
        The relation of neighbouring data sets.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(population_risk(10_000, 50, epsilon=1.0, delta=1e-6).value, 4)
    0.0401
    """
    require_positive(rank=rank, norm=norm, lipschitz=lipschitz)
    unit = noise_of(n, epsilon, delta, neighbors)
    k = min(rank, n)
    inner = (1 + 1 / n**2) * (1 + k * (n * unit) ** 2) + 16 * n
    order = max(1 / math.sqrt(n), lipschitz * math.sqrt(k * math.log(1 / delta)) / (epsilon * n))
    return Risk(
        norm * lipschitz * math.sqrt(inner) / n,
        kind="population",
        constant="exact",
        source="Song et al. 2021, Theorem 3.2",
        neighbors=neighbors,
        assumes=(
            CONVEX,
            "rows drawn independently",
            "gradients of norm at most L, weights not projected",
            "n² steps of descent from zero, mean of the iterates",
        ),
        printed=norm * order,
        correction="constants from the proof, which loses a factor L twice: in (11) and in 1/√n; "
        "printed is an order only",
    )
