r"""Training on the projection of private rows: what the part that was projected away costs.

Hu et al. 2024, Proposition 9, corrected. Rows are projected on their first k components, all noise
is in the full space, and the weights are used on the rows as they were. With Λ the sum of the other
eigenvalues of XᵀX/n, N ≥ ‖θ*‖, and the rate of `tacit.research.theory.descent` for rank k,

    E[excess] ≤ N·G·R·√((1 + 1/T)(1/T + k(Δ/(nμ))²)) + G·N·√Λ·(1 + √((2 + 1/T)/(6k))).

*Proof.* On projected rows θ* itself has norm ‖Pθ*‖ ≤ N, so the first term is that of descent with
rank k. Going back to the rows costs G·(1/n)Σ|⟨θ, (I − P)xᵢ⟩| twice. For θ* that is at most
G·N·√Λ, since (1/n)Σ‖(I − P)xᵢ‖ ≤ √Λ by Jensen. The trained weights have outside the subspace
nothing but noise: the mean of θ₁…θ_T there is Gaussian, independent of the rows, of variance
η²σ²(T + 1)(2T + 1)/(6T) ≤ N²(2 + 1/T)/(6k) in each direction. ∎

Three things differ from the paper. It has 2LΛ: a reconstruction error of squares where one of
norms belongs ((64)), which is smaller exactly when it matters, Λ < 1. It has no N, since it
projects weights onto the unit ball; but projecting full-dimensional noise is what brings the
dimension back (Song et al. 2021, section 3.1), so that its two steps exclude each other. And
Algorithm 1's threshold log(2/δ) makes its test fail with probability (1/δ)·exp(−(δ_k − β)nε/12.2),
twice as much as it says.
"""

from __future__ import annotations

import math

from tacit.diagnostics.base import require_positive
from tacit.exceptions import InputError
from tacit.privacy.budget import Budget
from tacit.privacy.relation import Neighbors
from tacit.research.theory.risk import Risk, noise_of


def risk(
    n: int,
    k: int,
    *,
    epsilon: float,
    delta: float,
    tail: float,
    norm: float = 1.0,
    lipschitz: float = 1.0,
    bound: float = 1.0,
    inflation: float = 1.0,
    neighbors: Neighbors = "replace_one",
    steps: int | None = None,
    failure: float = 0.0,
) -> Risk:
    """Excess empirical risk of descent behind PCA, in units of the loss (Proposition 9).

    Parameters
    ----------
    epsilon, delta : float
        Budget of projection and descent together.
    tail : float
        Λ, sum of all eigenvalues of the rows' second moment behind the first k.
    lipschitz, bound : float
        G, largest slope of the loss in the score; R, largest norm of a row.
    inflation : float
        Times the noise that descent alone would need: what the projection costs, by
        `tacit.research.price.price` ("pca": 1 + 1/(2·gap) for unit rows and G = R = 1).
    steps : int, optional
        Instead of (nε)².
    failure : float
        Probability that the test of the eigengap fails and nothing is trained.
    n : int
        Number of rows.
    k : int
        Number of components.
    norm : float
        N, at least the norm of the best weights, the intercept's included.
    neighbors : str
        The relation of neighbouring data sets.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(risk(10_000, 10, epsilon=1.0, delta=1e-6, tail=0.01).value, 3)
    0.121
    """
    require_positive(k=k, norm=norm, lipschitz=lipschitz, bound=bound, steps=steps)
    require_positive(zero=True, tail=tail, failure=failure)
    if not 1 <= inflation < math.inf:
        raise InputError(f"inflation={inflation!r} must be at least 1")
    unit = noise_of(n, epsilon, delta, neighbors) * inflation
    count = max(1, math.ceil((n * epsilon) ** 2)) if steps is None else int(steps)
    trained = norm * lipschitz * bound
    trained *= math.sqrt((1 + 1 / count) * (1 / count + k * unit**2))
    away = lipschitz * norm * math.sqrt(tail) * (1 + math.sqrt((2 + 1 / count) / (6 * k)))
    log = math.log(1 / delta)
    slope = lipschitz * bound
    return Risk(
        trained + away,
        kind="empirical",
        constant="exact",
        source="Hu et al. 2024, Proposition 9",
        neighbors=neighbors,
        assumes=(
            "loss convex in the score, of slope at most G",
            "rows projected on their first k components, noise in all dimensions",
            "weights not projected, used on the rows as they were",
            "noise as the projection asks for (inflation)",
        ),
        failure=failure,
        printed=slope * math.sqrt(1 + k * log) / (epsilon * n) + 2 * slope * tail,
        correction="√Λ in place of Λ, the norm of the weights, and no projection of weights; "
        "the first printed term is an order only",
    )


def chance_of_failure(
    n: int, *, gap: float, threshold: float, epsilon: float, delta: float
) -> float:
    """Probability that Hu et al.'s Algorithm 1 finds the eigengap too small, or a bound on it.

    (1/δ)·exp(−(δ_k − β)nε/12.2), at most 1. (`tacit.privacy.ptr` has a test that needs less room.)

    Parameters
    ----------
    gap, threshold : float
        δ_k, the eigengap of these rows; β, what the test asks for.
    epsilon, delta : float
        Of the test.
    n : int
        Number of rows.

    Returns
    -------
    float
        A number.

    Examples
    --------
    >>> round(chance_of_failure(10_000, gap=0.2, threshold=0.1, epsilon=1.0, delta=1e-6), 32)
    2.52e-30
    """
    Budget(epsilon, delta)
    require_positive(n=n, threshold=threshold)
    require_positive(zero=True, gap=gap)
    room = (gap - threshold) * n / 12.2
    return min(1.0, math.exp(min(0.0, math.log(1 / delta) - room * epsilon)))
