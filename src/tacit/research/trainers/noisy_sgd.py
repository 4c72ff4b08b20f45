"""Several runs, of which the rows choose one, through noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self, Unpack

import numpy as np

from tacit.engine.engine import LOSS_UNIT, Engine
from tacit.mechanisms.release import Releases
from tacit.privacy.events import Event, Gaussian, Selection
from tacit.progress import Progress, silent
from tacit.trainers.base import RANGE, OrAuto, Training, is_auto, is_in_range, is_whole
from tacit.trainers.descent import train_together
from tacit.trainers.dpsgd import DPSGD
from tacit.trainers.settings import PublicFacts

SHARE = 0.2  # part of the Gaussian budget that the choice takes
FAILURE = 0.05  # chance that no run is any good, if each of them is with chance 1 - 1/e


@dataclass
class NoisySGD(DPSGD):
    """Repeated noisy descent with a private choice (Pinto et al. 2024, Algorithm 2).

    ``runs`` models are trained, each with batches and noise of its own, and the exponential
    mechanism chooses among them by the loss of the private rows. That turns a bound that holds on
    average into one that holds with high probability (Bassily, Smith & Thakurta 2014, Appendix D),
    which is what Theorem 1 of Pinto et al. 2024 rests on. It is no way to a better model: every run
    has to make do with the noise of a fraction of the budget.

    Parameters
    ----------
    runs : int
        How many models; ``"auto"``: ⌈ln(1/β)⌉ for a chance of failure β of 1 in 20, that is 3.
    choice_noise : float
        β of the exponential mechanism, in contributions of one row; ``"auto"`` spends a fifth of
        the Gaussian budget on the choice.
    ceiling : float
        Losses of single rows are cut to [0, ceiling] in the choice. ``"auto"``: twice the loss
        of a model that knows nothing.
    batch_size : float
        Expected number of rows in a batch; the number of rows for full batches.

    Notes
    -----
    *What it costs.* The runs together are ``runs``·``steps`` sampled sums, an ordinary composition.
    A row counts in the utility of a run by −1 to 1, according to its loss (`Engine.loss_sum`), in
    integers: the choice is ``Selection(choice_noise)``. As printed, Algorithm 2 gives the runs
    (ε/k, δ/k) each and the choice ε more: that is (2ε, δ) by its own composition, not the (ε, δ) of
    its Lemma 1.

    Examples
    --------
    >>> NoisySGD(runs=3, steps=50).runs
    3
    """

    runs: OrAuto = "auto"
    choice_noise: OrAuto = "auto"
    ceiling: OrAuto = "auto"
    takes_drift: ClassVar[bool] = False
    takes_start: ClassVar[bool] = False
    takes_strict: ClassVar[bool] = False

    @classmethod
    def printed(
        cls,
        n: int,
        columns: int,
        *,
        epsilon: float,
        delta: float,
        failure: float = FAILURE,
        lipschitz: float = 1.0,
        diameter: float = 1.0,
    ) -> Self:
        """Algorithm 2 with its own steps and rates: n² − 1 steps on one row each, expected.

        η(t) = D/√(t(n²L² + dσ²)) on n times a row's gradient, σ being `printed_noise` of each of
        the ⌈log(1/β)⌉ runs; weights stay in the ball of radius D. The noise that is drawn is what
        the account asks for, which is less. Rows are drawn by Poisson sampling, where Algorithm 2
        draws one uniformly; and its line 15 lacks D, which is one there.

        Parameters
        ----------
        n, columns : int
            Rows, and their columns d.
        epsilon, delta : float
            The whole budget; the algorithm divides it by the number of runs.
        failure : float
            β.
        lipschitz : float
            L, largest norm of a row's gradient.
        diameter : float
            D.

        Returns
        -------
        NoisySGD
            For small n: steps grow as its square.

        Examples
        --------
        >>> NoisySGD.printed(30, 2, epsilon=1.0, delta=1e-5).steps
        899
        """
        runs = max(2, math.ceil(math.log(1 / failure)))
        sigma = printed_noise(n, epsilon=epsilon / runs, delta=delta / runs) * lipschitz * n
        rate = n * diameter / math.sqrt((n * lipschitz) ** 2 + columns * sigma**2)
        return cls(
            steps=n * n - 1,
            learning_rate=rate,
            clip=lipschitz,
            momentum=0.0,
            average="last",
            schedule="sqrt",
            radius=diameter,
            runs=runs,
            batch_size=1.0,
        )

    def check(self, facts: PublicFacts) -> None:
        super().check(facts)
        self._check("runs", lambda v: is_whole(v) and 2 <= v <= 1000, "an integer from 2")
        for name in ("choice_noise", "ceiling"):
            self._check(name, is_in_range, RANGE)

    def resolve(self, facts: PublicFacts) -> Self:
        self.check(facts)
        runs = math.ceil(math.log(1 / FAILURE)) if is_auto(self.runs) else int(self.runs)
        # Selection(b) costs at most sqrt(pi/2)/b in units of mu (docs/decisions/0014).
        unit = math.sqrt(math.pi / 2) / facts.mu
        noise = unit / SHARE if is_auto(self.choice_noise) else float(self.choice_noise)
        left = math.sqrt(max(1 - (unit / noise) ** 2, 0.01) / runs)
        ceiling = 2 * _ignorant(facts) if is_auto(self.ceiling) else self.ceiling
        own = replace(self, runs=runs, choice_noise=noise, ceiling=ceiling)
        return super(NoisySGD, own).resolve(replace(facts, mu=facts.mu * left))

    def event(self, noise_multiplier: float, facts: PublicFacts) -> Event:
        if self.sampling_probability(facts) == 1:
            return Gaussian(noise_multiplier, int(self.runs) * int(self.steps))
        return super().event(noise_multiplier, facts).times(int(self.runs))

    def events(self, noise_multiplier: float, facts: PublicFacts) -> tuple[tuple[str, Event], ...]:
        choice = (f"{self.name} choice", Selection(float(self.choice_noise)))
        return (*super().events(noise_multiplier, facts), choice)

    def draws(self, features: int, outputs: int) -> int:
        return int(self.runs) * super().draws(features, outputs) + 1

    def remark(self) -> str:
        return (
            f"{self.runs} such runs are made, each with noise of its own. One of them is chosen by "
            f"the losses of the rows, cut at {float(self.ceiling):.3g}, through noise of "
            f"{float(self.choice_noise):.4g} rows."
        )

    def train(
        self, engine: Engine, run: Releases, facts: PublicFacts, **how: Unpack[Training]
    ) -> np.ndarray:
        runs, steps, token = int(self.runs), int(self.steps), run.token(self.name)
        how["init"] = None
        if self.sampling_probability(facts) == 1:  # the same batches for all: all rows
            found = train_together(engine, [self] * runs, [token] * runs, facts, **how)
        else:
            parts, progress = [], how.get("progress", silent)
            for turn in range(runs):
                how["progress"] = _later(progress, turn * steps, runs * steps)
                parts += [*train_together(engine, [self], [token], facts, run=turn, **how)]
            found = np.stack(parts)
        utilities = -engine.loss_sum(found, float(self.ceiling))
        choice = run.token(f"{self.name} choice").at("choice")
        return found[choice.choose(utilities, LOSS_UNIT)]


def printed_noise(n: int, *, epsilon: float, delta: float) -> float:
    """Noise of Algorithm 2's base procedure, in gradients of norm L: √(32·log(n/δ)·log(1/δ))/ε.

    Bassily, Smith & Thakurta 2014, Algorithm 1, whose σ is n times as much on n times a gradient.

    Parameters
    ----------
    n : int
        Number of rows.
    epsilon, delta : float
        Budget of the base procedure.

    Returns
    -------
    float
        A noise multiplier.

    Examples
    --------
    >>> round(printed_noise(1000, epsilon=1.0, delta=1e-5), 1)
    82.4
    """
    return math.sqrt(32 * math.log(n / delta) * math.log(1 / delta)) / epsilon


def _ignorant(facts: PublicFacts) -> float:
    """Loss of scores that are all zero: ln K among K classes, and at most 1/2 for a number."""
    if facts.task == "regression":
        return 0.5
    return math.log(max(facts.outputs, 2))


def _later(progress: Progress, done: int, total: int) -> Progress:
    """Progress of one run among others."""
    return lambda what, step, _: progress(what, done + step, total)
