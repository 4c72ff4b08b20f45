"""How many rows are clipped along a run, and how long gradients are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.diagnostics.base import NotReleasable
from tacit.diagnostics.rehearsal import MOST_VALUES, rehearse
from tacit.exceptions import InputError
from tacit.losses import Loss
from tacit.trainers import DPGD
from tacit.trainers.gradient import GradientTrainer
from tacit.trainers.settings import PublicFacts

POINTS = 24  # of the run that are kept


@dataclass(frozen=True, eq=False)
class Clipping(NotReleasable):
    """What clipping does along a run.

    Attributes
    ----------
    clip : float
        The bound on the norm of a row's gradient.
    steps : ndarray of int, of shape (m,)
        Steps that are told of, from 0.
    clipped : ndarray of shape (m,)
        Part of the rows whose gradient was longer than the bound, at each of them.
    median_norm : ndarray of shape (m,)
        Median norm of the gradients there, before clipping.
    kept : ndarray of shape (m,)
        Norm of the mean clipped gradient over that of the mean gradient.
    rows_used : int
    """

    clip: float
    steps: np.ndarray
    clipped: np.ndarray
    median_norm: np.ndarray
    kept: np.ndarray
    rows_used: int


def clipping(
    data: Any,
    labels: Any,
    *,
    loss: str | Loss | None = None,
    trainer: GradientTrainer | None = None,
    mu: float = math.inf,
    centre: bool = True,
    most_values: int = MOST_VALUES,
    seed: int = 0,
) -> Clipping:
    """Follow noisy descent on all rows, and count whom it clips.

    The run is a rehearsal: ordinary floating point, ordinary random numbers, no guarantee.

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d)
        Private rows.
    labels : sequence
        Classes, or numbers for a loss of numbers.
    loss : str or Loss, optional
        Logistic for two classes, softmax for more.
    trainer : GradientTrainer, optional
        Settings; those left to the rule follow ``mu``.
    mu : float
        Gaussian budget of the run; without one there is no noise, and the rule is that of μ = 1.
    centre : bool
        Whether the mean is subtracted first, as the recipe dpsgd-f does.
    most_values : int
        Numbers in the rows that are used; of more rows, evenly spaced ones are taken.
    seed : int
        Of the noise of the rehearsal.

    Returns
    -------
    Clipping
        Not releasable.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0]] * 50)
    >>> found = clipping(rows, [0, 1] * 50, trainer=DPGD(steps=10, clip=0.04, learning_rate=1.0))
    >>> float(found.clipped[0])
    1.0
    """
    if not mu > 0:
        raise InputError(f"mu={mu!r} must be positive")
    ready = rehearse(data, labels, loss=loss, centre=centre, most_values=most_values)
    some, size, bound = ready.rows, ready.size, ready.bound
    rule = mu if math.isfinite(mu) else 1.0
    facts = PublicFacts(size, some.shape[1], ready.outputs, bound, rule, ready.loss.task)
    settings = replace(trainer or DPGD()).resolve(facts)
    some = np.column_stack([some, np.full(len(some), float(settings.intercept_fraction) * bound)])
    # Noise of the real number of rows: the sample stands for all of them.
    steps, clip = int(settings.steps), float(settings.clip)
    noise = math.sqrt(steps) * clip / (mu * size) if math.isfinite(mu) else 0.0
    rng = np.random.default_rng(seed)
    return _follow(ready.loss, settings, rows=some, targets=ready.targets, noise=noise, rng=rng)


def _follow(
    loss: Loss,
    trainer: GradientTrainer,
    *,
    rows: np.ndarray,
    targets: np.ndarray,
    noise: float,
    rng: np.random.Generator,
) -> Clipping:
    steps, clip = int(trainer.steps), float(trainer.clip)
    lengths = np.linalg.norm(rows, axis=1)
    outputs = targets.shape[1] if targets.ndim == 2 else int(targets.max()) + 1
    weights = np.zeros((rows.shape[1], outputs))
    velocity = np.zeros_like(weights)
    shown = np.unique(np.linspace(0, steps - 1, min(POINTS, steps)).round().astype(int))
    share, median, kept = [], [], []
    for step, rate in enumerate(trainer.rates()):
        residual = loss.residual(rows @ weights, targets)
        norms = np.linalg.norm(residual, axis=1) * lengths
        factor = np.minimum(1.0, clip / np.maximum(norms, 1e-300))
        gradient = rows.T @ (residual * factor[:, None]) / len(rows)
        if step in shown:
            whole = float(np.linalg.norm(rows.T @ residual)) / len(rows)
            share.append(float((norms > clip).mean()))
            median.append(float(np.median(norms)))
            kept.append(float(np.linalg.norm(gradient)) / whole if whole else 1.0)
        gradient += noise * rng.standard_normal(gradient.shape)
        gradient += (trainer.alpha + trainer.anchor) * weights  # it begins at zero
        velocity = float(trainer.momentum) * velocity + gradient
        weights -= rate * velocity
    found = (np.array(share), np.array(median), np.array(kept))
    return Clipping(clip, shown, *found, rows_used=len(rows))
