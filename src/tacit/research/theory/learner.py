r"""A learner of halfspaces with its guarantee: Pinto et al. 2024, Theorem 1, with every constant.

The theorem has orders; `sizes` in `tacit.research.theory.halfspaces` has them corrected. To act on
one, constants are needed. Let unit rows be separable with margin γ, and let public components keep
all of it but for what leaves ζ > 0 (`halfspaces.projected_margin`, with probability 1 − β/2). The
learner is the paper's: project on k components, make m runs of noisy descent on the hinge loss
within the ball of radius 1/ζ (which is the loss scaled by ζ within the unit ball), choose one by
the exponential mechanism (Algorithm 2). Then, with probability 1 − β,

    error ≤ Ê + 2/(ζ√n) + √(log(6/β)/(2n)),   or   2Ê + 8(log(24/β) + k·log(2en/k))/n,
    Ê = (e/ζ)·√((1 + 1/T)(1/T + k/(nμ₁)²)) + b·log(6m/β)/(2n).

*Proof.* Projected rows lose nothing at P̂w*/ζ, which lies in the ball. Each run of T plain steps has
an expected hinge loss of at most B = (1/ζ)√(…) (Song et al. 2021, Theorem 3.1, with rank k; a
projection on a convex set that holds the optimum brings no step farther from it), μ₁ being its
Gaussian budget. By Markov's inequality and independence all m = ⌈log(6/β)⌉ exceed e·B with
probability β/6 at most. The choice looks at min(loss, 1), which a row changes by one contribution
as twice that less one; its noise b brings it at most b·log(6m/β)/(2n) behind the best with
probability 1 − β/6 (McSherry & Talwar 2007, Theorem 7). That loss is a ramp above the error, so
that with probability 1 − β/6 fresh rows are wrong no more often than its mean + 2/(ζ√n) +
√(log(6/β)/(2n)) (Mohri, Rostamizadeh & Talwalkar 2012, Theorem 4.4), or by Lemma 7 of the paper
with ζ = 1, and VC dimension k, 2Ê + 8·log(4(2en/k)^k·6/β)/n. Which of the two is taken is decided
before any row is read. ∎
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tacit.diagnostics.base import require_fraction, require_positive
from tacit.exceptions import InputError
from tacit.linear_model import DPLinearClassifier
from tacit.preprocessing import ClipNorm, PublicPCA
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Neighbors
from tacit.research.theory.halfspaces import UNIT, projected_margin
from tacit.research.theory.risk import Risk
from tacit.research.trainers.noisy_sgd import SHARE, NoisySGD
from tacit.trainers.settings import PLAIN_STEPS, constant_rate

MOST_STEPS = 20_000  # of a run; more are hardly worth their time
MOST_ROWS = 2**40
SAFE = 0.99  # of the Gaussian budget: what rounding and numerical terms may take


@dataclass(frozen=True)
class HalfspaceLearner:
    """Everything that Theorem 1 leaves open, and what it promises for it.

    Attributes
    ----------
    private, public : int
        Rows with labels, and public ones without.
    k : int
        Components.
    epsilon, delta : float
        The budget.
    neighbors : str
        The relation that it is for.
    margin : float
        ζ, what projected rows keep: the hinge loss is scaled by it.
    runs, steps : int
        Of noisy descent.
    choice_noise : float
        b of the exponential mechanism.
    failure : float
        β, chance that the guarantee does not hold.

    Examples
    --------
    >>> found = halfspace_learner(0.2, 1, epsilon=1.0, delta=1e-6, margin=0.5, gap=0.5)
    >>> found.runs, round(found.radius, 2), found.guarantee.value <= 0.2
    (5, 2.22, True)
    """

    private: int
    public: int
    k: int
    epsilon: float
    delta: float
    neighbors: Neighbors
    margin: float
    runs: int
    steps: int
    choice_noise: float
    failure: float

    @property
    def radius(self) -> float:
        """Of the ball that weights stay in, for the hinge loss as it is: 1/ζ."""
        return 1 / self.margin

    @property
    def run_mu(self) -> float:
        """μ₁, Gaussian budget of one run, per unit of sensitivity."""
        whole = SAFE * gaussian_mu(self.epsilon, self.delta) / sensitivity(self.neighbors)
        return whole * math.sqrt((1 - SHARE**2) / self.runs)

    @property
    def noise_multiplier(self) -> float:
        """Largest noise on a step's sum, in rows, that the guarantee allows for."""
        return math.sqrt(self.steps) / self.run_mu

    @property
    def guarantee(self) -> Risk:
        """Bound on the error rate over fresh rows, exact."""
        n, k, part = self.private, self.k, self.failure / 6
        spread = 1 / self.steps + k / (n * self.run_mu) ** 2
        loss = math.e * self.radius * math.sqrt((1 + 1 / self.steps) * spread)
        loss += self.choice_noise * math.log(self.runs / part) / (2 * n)
        ramp = loss + 2 * self.radius / math.sqrt(n) + math.sqrt(math.log(1 / part) / (2 * n))
        count = 2 * loss
        count += 8 * (math.log(4 / part) + k * max(math.log(2 * math.e * n / k), 0.0)) / n
        return Risk(
            min(ramp, count),
            kind="population",
            constant="exact",
            source="Pinto et al. 2024, Theorem 1",
            unit="error rate",
            neighbors=self.neighbors,
            assumes=(
                UNIT,
                "public rows like the private ones, as many as asked for",
                "hinge loss scaled by the projected margin, weights within the unit ball",
            ),
            failure=self.failure,
            correction="margin γ − √(ξ(2 − ξ)) after projection; constants from the proof",
        )

    def trainer(self) -> NoisySGD:
        """Noisy descent and the choice, ready for a plan of ``private`` rows.

        Returns
        -------
        NoisySGD
            With nothing left open.
        """
        rate = constant_rate(
            self.run_mu, self.private, self.k, norm=self.radius, clip=1.0, steps=self.steps
        )
        plain: dict[str, Any] = PLAIN_STEPS
        return NoisySGD(
            steps=self.steps,
            learning_rate=rate,
            clip=1.0,
            radius=self.radius,
            runs=self.runs,
            choice_noise=self.choice_noise,
            ceiling=1.0,
            batch_size=float(self.private),
            intercept_fraction=0.1,
            **plain,
        )

    def estimator(self, public: Any, **options: Any) -> DPLinearClassifier:
        """An estimator that is the learner, for rows of norm at most one.

        Parameters
        ----------
        public : array of shape (public, d)
            Public rows.
        **options
            Of `tacit.DPLinearClassifier`, such as ``random_state``.

        Returns
        -------
        DPLinearClassifier
            To be fitted to ``private`` rows and two classes.
        """
        return DPLinearClassifier(
            self.epsilon,
            self.delta,
            stages=[ClipNorm(1.0), PublicPCA(public, self.k)],
            trainer=self.trainer(),
            loss="hinge",
            fit_intercept=False,
            neighbors=self.neighbors,
            **options,
        )


def halfspace_learner(
    error: float,
    k: int,
    *,
    epsilon: float,
    delta: float,
    margin: float,
    gap: float,
    xi: float = 0.0,
    shift: float = 0.0,
    failure: float = 0.05,
    neighbors: Neighbors = "replace_special",
    private: int | None = None,
    public: int | None = None,
    steps: int | None = None,
) -> HalfspaceLearner:
    """The learner of Theorem 1 for an error rate: loss, radius, runs, steps and sample sizes.

    Parameters
    ----------
    error : float
        α, the error rate over fresh rows that is wanted.
    k : int
        Number of components.
    epsilon, delta : float
        The budget.
    margin : float
        γ, of unit rows and unit weights.
    gap : float
        Δ_k, eigengap of the population behind the first k components.
    xi : float
        ξ, where the projection keeps 1 − ξ of the norm of the best weights.
    shift : float
        η, total variation between public and private rows.
    failure : float
        β, chance that the guarantee does not hold.
    neighbors : str
        The relation of neighbouring data sets.
    private, public : int, optional
        Rows at hand. If not given, public ones are as many as leave nine tenths of the margin, and
        private ones as few as reach the error rate. If given, the guarantee is what they reach.
    steps : int, optional
        Of a run; by default as many as noise makes worthwhile, 20,000 at most.

    Returns
    -------
    HalfspaceLearner
        With a `guarantee`, a `trainer` and an `estimator`.

    Examples
    --------
    >>> found = halfspace_learner(0.2, 1, epsilon=1.0, delta=1e-6, margin=0.5, gap=0.5)
    >>> found.public, found.steps
    (142353, 20000)
    """
    Budget(epsilon, delta)
    require_fraction(error=error, failure=failure)
    require_positive(k=k, gap=gap, private=private, public=public, steps=steps)
    left = projected_margin(margin, xi, gap=gap, shift=shift, failure=failure)
    if left <= 0:
        raise InputError(f"no margin is left after the projection: {left:.3g}; lower xi or shift")
    if public is None:
        reach = 40 * (1 + math.sqrt(math.log(2 / failure) / 2)) / (gap * left)
        public = math.ceil(reach**2)
    zeta = projected_margin(margin, xi, gap=gap, public=public, shift=shift, failure=failure)
    if zeta <= 0:
        raise InputError(
            f"{public} public rows leave no margin: {zeta:.3g}; leave public= open to see how many "
            "would"
        )
    runs = max(2, math.ceil(math.log(6 / failure)))
    noise = math.sqrt(math.pi / 2) / (SHARE * SAFE * gaussian_mu(epsilon, delta))
    noise *= sensitivity(neighbors)

    def learner(n: int) -> HalfspaceLearner:
        given = (n, public, k, epsilon, delta, neighbors, zeta, runs)
        count = steps
        if count is None:
            first = HalfspaceLearner(*given, 1, noise, failure)
            count = min(MOST_STEPS, max(1, math.ceil((n * first.run_mu) ** 2 / k)))
        return HalfspaceLearner(*given, count, noise, failure)

    if private is not None:
        return learner(private)
    low, high = 1, 2
    while learner(high).guarantee.value > error:
        low, high = high, 2 * high
        if high > MOST_ROWS:
            found = learner(high).guarantee.value
            raise InputError(
                f"no number of rows reaches error={error:g}: with {high} the guarantee is "
                f"{found:.3g}, for {learner(high).steps} steps; pass more steps="
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if learner(middle).guarantee.value <= error else (middle, high)
    return learner(high)
