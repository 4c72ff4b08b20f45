r"""Noisy descent on losses that are not convex: how flat a place it finds.

Song et al. 2021, Theorem 4.1, corrected. Steps at rate 1/β on a β-smooth objective satisfy

    (1/T) Σ ‖∇L(θₜ)‖² ≤ 2β(L(0) − L*)/T + (1/T) Σ ‖bₜ‖²_M.

The noise of a step has variance σ² = T·(LΔ/(nμ))² in each of r directions, so the last term is
about r·T·(LΔ/(nμ))². The paper's (14) drops that T, and with it the trade-off: it prescribes so
many steps, βn²ε²L(0)/(2L²·log(1/δ)), that the noise of each has norm √(β·L(0)·r), more than the
gradient ‖∇L(0)‖ ≤ √(2β·L(0)) where descent begins. With T balanced the norm falls as
(β·L(0)·r)^¼·√(L/(nμ)), not as L√r/(nμ).

Its choice of the flattest iterate adds Laplace noise of 4L/n, which is private at ε = 1 whatever ε
is; it must be divided by ε.
"""

from __future__ import annotations

import math

from tacit.diagnostics.base import require_fraction, require_positive
from tacit.privacy.events import sensitivity
from tacit.privacy.relation import Neighbors
from tacit.research.theory.descent import Schedule
from tacit.research.theory.risk import Risk, noise_of


def schedule(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    smoothness: float,
    start: float = math.log(2),
    lipschitz: float = 1.0,
    neighbors: Neighbors = "replace_special",
) -> Schedule:
    """Steps that balance progress and noise, at rate 1/β.

    Parameters
    ----------
    epsilon, delta : float
        Budget of descent and choice together; descent has (ε/2, δ), the choice ε/2.
    smoothness : float
        β of the mean loss in the weights: that in the score, times the squared row bound.
    start : float
        L(0) − L*, or the loss at zero weights if losses are not negative.
    lipschitz : float
        L, largest norm of a row's gradient.
    n : int
        Number of rows.
    rank : int
        Of the rows with their constant feature.
    neighbors : str
        The relation of neighbouring data sets.

    Returns
    -------
    Schedule
        Steps and rate, as ``settings`` of a trainer.

    Examples
    --------
    >>> schedule(10_000, 50, epsilon=1.0, delta=1e-6, smoothness=0.25).steps
    103
    """
    mu = 1 / (n * noise_of(n, epsilon / 2, delta, neighbors))
    return within(mu, n, rank, smoothness=smoothness, start=start, lipschitz=lipschitz)


def within(
    mu: float, n: int, rank: int, *, smoothness: float, start: float, lipschitz: float
) -> Schedule:
    """The same, where all steps together may spend ``mu``, a Gaussian budget per sensitivity.

    Parameters
    ----------
    mu : float
        Gaussian budget of all steps together, per unit of sensitivity.
    n : int
        Number of rows.
    rank : int
        Of the rows with their constant feature.
    smoothness : float
        β of the mean loss in the weights.
    start : float
        L(0) − L*, or the loss at zero weights if losses are not negative.
    lipschitz : float
        L, largest norm of a row's gradient.

    Returns
    -------
    Schedule
        Steps and rate, as ``settings`` of a trainer.

    Examples
    --------
    >>> within(0.2, 10_000, 50, smoothness=0.25, start=0.7, lipschitz=1.0).steps
    167
    """
    require_positive(mu=mu, n=n, rank=rank, smoothness=smoothness, start=start, lipschitz=lipschitz)
    unit = 1 / (n * mu)
    steps = max(1, round(math.sqrt(2 * smoothness * start / rank) / (lipschitz * unit)))
    return Schedule(steps, 1 / smoothness, lipschitz, unit * n * math.sqrt(steps))


def risk(
    n: int,
    rank: int,
    *,
    epsilon: float,
    delta: float,
    smoothness: float,
    start: float = math.log(2),
    lipschitz: float = 1.0,
    neighbors: Neighbors = "replace_special",
    failure: float = 0.05,
    steps: int | None = None,
) -> Risk:
    """Norm of the mean gradient at the chosen iterate (Song et al. 2021, Theorem 4.1, corrected).

    Noise over all steps is χ² with rT degrees of freedom (Laurent & Massart 2000, Lemma 1); the
    choice, by report-noisy-min with Laplace noise b = 4LΔ/(nε), misses the least norm by at most
    2b·log(2T/failure).

    Parameters
    ----------
    n : int
        Number of rows.
    rank : int
        Of the rows with their constant feature.
    epsilon, delta : float
        The budget.
    smoothness : float
        β of the mean loss in the weights.
    start : float
        L(0) − L*, or the loss at zero weights if losses are not negative.
    lipschitz : float
        L, largest norm of a row's gradient.
    neighbors : str
        The relation of neighbouring data sets.
    failure : float
        Chance that the bound does not hold.
    steps : int, optional
        Instead of the theorem's number, which grows large.

    Returns
    -------
    Risk
        A bound: its value, and what it assumes.

    Examples
    --------
    >>> round(risk(10_000, 50, epsilon=1.0, delta=1e-6, smoothness=0.25).value, 4)
    0.0897
    """
    require_fraction(failure=failure)
    require_positive(steps=steps)
    unit = noise_of(n, epsilon / 2, delta, neighbors)
    about = {"smoothness": smoothness, "start": start, "lipschitz": lipschitz}
    balanced = within(1 / (n * unit), n, rank, **about).steps
    count = balanced if steps is None else int(steps)
    tail = math.log(2 / failure)
    directions = rank + 2 * math.sqrt(rank * tail / count) + 2 * tail / count
    noise = count * (lipschitz * unit) ** 2 * directions
    choice = 4 * lipschitz * sensitivity(neighbors) / (n * epsilon)
    value = math.sqrt(2 * smoothness * start / count + noise)
    value += 2 * choice * math.log(2 * count / failure)
    half = epsilon / 2
    printed_steps = smoothness * (n * half) ** 2 * start / (2 * lipschitz**2 * math.log(1 / delta))
    logs = math.log(1 / delta) * math.log(max(printed_steps, 1) / failure)
    return Risk(
        value,
        kind="empirical",
        constant="exact",
        source="Song et al. 2021, Theorem 4.1",
        neighbors=neighbors,
        unit="gradient norm",
        assumes=(
            "mean loss β-smooth in the weights, convex or not",
            "gradients of norm at most L, weights not projected",
            "steps of rate 1/β from zero; the flattest iterate is chosen with noise",
        ),
        failure=failure,
        printed=lipschitz * math.sqrt(rank * logs) / (half * n),
        correction="(14) drops a factor T from the noise and the choice lacks ε: with T balanced "
        "the norm falls as the root of what is printed",
    )
