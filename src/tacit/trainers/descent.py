"""Noisy steps: several settings at once, as extra columns of one product.

A step is sample → residual → clip → sum → noise → move. Everything after the noise (momentum,
averaging, projection, pulls towards zero or the start) works on released values and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.engine.engine import GradientSource, LatticeSum
from tacit.engine.sensitivity import GradientSensitivity
from tacit.exceptions import InputError
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Draws, Releases, Token
from tacit.progress import Progress, silent
from tacit.trainers.averaging import Averages
from tacit.trainers.monotone import monotone
from tacit.trainers.precondition import Preconditioner
from tacit.trainers.settings import PublicFacts

if TYPE_CHECKING:
    from tacit.trainers.gradient import GradientTrainer

PIECE = 1 << 15  # weights that are moved together
SHARED = ("steps", "batch_size", "clipping", "n_components")  # by settings trained together


def train_together(
    engine: GradientSource,
    trainers: Sequence[GradientTrainer],
    tokens: Sequence[Token],
    facts: PublicFacts,
    *,
    progress: Progress = silent,
    moves: GradientSensitivity | None = None,
    init: np.ndarray | None = None,
    run: int = 0,
    visit: Callable[[np.ndarray, LatticeSum], None] | None = None,
    on_gradient: Callable[[np.ndarray], None] | None = None,
) -> np.ndarray:
    """Train several settings on the same batches, as extra columns of one product.

    They must agree in kind, steps, batch size and way of clipping. Each adds its own noise, as its
    token says. On all rows, releasing S of them costs the composition of their events. On *samples*
    it does not: a row is then in the batch of all of them or of none, which is one event of noise
    z/√S, and may cost more. ``run`` numbers the runs of one key, each with batches and noise of its
    own.
    They begin at ``init``, public weights (d, K), or at zero.
    ``visit`` is shown the weights of every step and their sums, which are private.
    ``on_gradient`` is shown the noisy mean gradients (S, d, K) of every step, as the weights follow
    from them: the events of `DPGD` and `DPSGD` cover them, those of other trainers may not.

    Returns
    -------
    ndarray of shape (S, d, K)
    """
    first = trainers[0]
    for other in trainers:
        for name in SHARED:
            if getattr(other, name, None) != getattr(first, name, None):
                raise InputError(f"settings trained together must have the same {name}")
    if engine.split != first.split(facts):
        raise InputError(f"{first.name} needs an engine with split={first.split(facts)}")
    steps = int(first.steps)
    clips = [np.array(part) for part in zip(*(t.clips for t in trainers), strict=True)]
    scales = _stacked([trainer.scales(facts, engine.d) for trainer in trainers], engine.d)
    momentum = _column([trainer.momentum for trainer in trainers])
    kept_going = momentum.any()
    alpha = _column([trainer.alpha for trainer in trainers])
    anchor = _column([trainer.anchor for trainer in trainers])
    pulled = alpha.any() or anchor.any()
    rates = np.stack([trainer.rates() for trainer in trainers], axis=1)[..., None, None]
    normaliser = first.normaliser(facts)
    weights = np.zeros((len(trainers), engine.d, facts.outputs))
    if init is not None:
        weights = _project(weights + (init if scales is None else init / scales), trainers)
        weights = monotone(weights, facts.monotone)
    else:
        weights = _hold(weights, trainers)  # zero need not be in a set
    # In a ball or a set, if any of them is.
    held = [t for t in trainers if t.radius is not None or t.convex_set is not None] and trainers
    begin, velocity = weights, np.zeros(1)
    move = None
    follows = facts.loss is not None and first.takes_moment(facts.loss, facts.outputs)
    if facts.moment is not None and follows:
        move = Preconditioner(facts, [trainer.constant(facts.typical_norm) for trainer in trainers])
    names = [str(trainer.average) for trainer in trainers]
    wandering, noise = "converged" in names, list[float]()
    averages = Averages(names, weights.shape, steps, min(facts.features, engine.d))
    # Steps that only divide, multiply and subtract: as modules with millions of parameters have.
    bare = (
        move is None
        and moves is None
        and visit is None
        and on_gradient is None
        and not (pulled or kept_going or wandering)
        and len(clips) == 1
    )

    def draw(step: int) -> np.ndarray:
        return tokens[0].at("batch", run * steps + step).batch(engine.n, engine.unit)

    with engine, ThreadPoolExecutor(1) if tokens[0].samples else nullcontext() as ahead:
        drawn = None if ahead is None else ahead.submit(draw, 0)
        for step in range(steps):
            batch = first.members(step, engine.n) if drawn is None else drawn.result()
            seen = weights if scales is None else weights * scales
            sums = engine.gradient_sums(
                seen, clips, batch=batch, per_class=first.clipping == "per-class"
            )
            if ahead is not None and step + 1 < steps:
                drawn = ahead.submit(draw, step + 1)  # while one core draws this step's noise
            if visit is not None:
                visit(weights, sums[0])
            norms = _norms(seen)  # public: the last step's outcome
            rows = engine.n if batch is None else batch.size
            first_sum = (run * steps + step) * len(sums)
            noisy = []
            for part, total in enumerate(sums):
                released = []
                for s, (trainer, token) in enumerate(zip(trainers, tokens, strict=True)):
                    token, share = token.at("noise", first_sum + part, s), trainer.shares[part]
                    bounded = total.bounded(s, trainer.reaches(norms[s], moves)[part])
                    paid = token if share == 1 else token.part(share)
                    released.append(trainer.noisy(bounded, paid, step, rows))
                noisy.append(released[0][None] if len(released) == 1 else np.stack(released))
            entries = [total.values[0].size for total in sums]
            del sums, total, bounded  # the next step's lie in their memory
            if bare:
                _move(weights, noisy[0], normaliser, rates[step])
                weights = _project(weights, held)
                weights = monotone(weights, facts.monotone)
                averages.add(step, weights)
                progress("training", step + 1, steps)
                continue
            mean = (noisy[0] if len(noisy) == 1 else np.concatenate(noisy, axis=1)) / normaliser
            if on_gradient is not None:
                on_gradient(mean)
            gradient = mean
            if pulled:
                # ∇f + α(x − x⁽⁰⁾) + noise: Li et al. 2022, Algorithm 1, line 4, with α = anchor.
                gradient = mean + alpha * weights + anchor * (weights - begin)
            if wandering and (moves is not None or not noise):  # else it is that of every step
                deviations = [
                    trainer.deviations(token.noise_multiplier, norm, moves)
                    for trainer, token, norm in zip(trainers, tokens, norms, strict=True)
                ]
                noise = [float(np.square(d) @ entries) / normaliser**2 for d in deviations]
            averages.look(step, gradient, noise)
            velocity = momentum * velocity + gradient if kept_going else gradient
            if move is None:
                # In memory that nobody else looks at, where there is some.
                kept = kept_going or (velocity is mean and on_gradient is not None)
                moved = np.multiply(rates[step], velocity, out=None if kept else velocity)
            else:
                moved = move(velocity, rates[step], step)
            weights = _project(np.subtract(weights, moved, out=moved), held)
            weights = monotone(weights, facts.monotone)  # in the ball it stays in the ball
            averages.add(step, weights)
            progress("training", step + 1, steps)
    found = _hold(averages.result(), trainers)  # a mean of them is in the set, up to rounding
    found = monotone(found, facts.monotone)
    return found if scales is None else found * scales


def _move(weights: np.ndarray, noisy: np.ndarray, normaliser: float, rate: np.ndarray) -> None:
    """Subtract rate · (noisy / normaliser), with every number in the cache until it is done."""
    for start in range(0, weights.shape[1], PIECE):
        some = slice(start, start + PIECE)
        moved = noisy[:, some] / normaliser
        weights[:, some] -= np.multiply(rate, moved, out=moved)


def rehearsal(
    trainers: Sequence[GradientTrainer],
    noise_multipliers: Sequence[float],
    facts: PublicFacts,
    key: Key,
    *,
    draws: Draws | None = None,
) -> list[Token]:
    """Tokens for `train_together` outside any plan: for experiments, which nothing certifies."""
    pairs = zip(trainers, noise_multipliers, strict=True)
    run = Releases(key, [(t.name, t.event(z, facts)) for t, z in pairs], draws=draws)
    return [run.token(trainer.name) for trainer in trainers]


def _project(weights: np.ndarray, trainers: Sequence[GradientTrainer]) -> np.ndarray:
    weights = _hold(weights, trainers)
    if all(t.radius is None for t in trainers):
        return weights
    radii = np.array([np.inf if t.radius is None else t.radius for t in trainers])
    norms = _norms(weights)
    return weights * np.minimum(1.0, radii / np.maximum(norms, 1e-300))[:, None, None]


def _hold(weights: np.ndarray, trainers: Sequence[GradientTrainer]) -> np.ndarray:
    sets = [trainer.convex_set for trainer in trainers]
    if all(held is None for held in sets):
        return weights
    pairs = zip(weights, sets, strict=True)
    return np.stack([each if held is None else held.project(each) for each, held in pairs])


def _norms(weights: np.ndarray) -> np.ndarray:
    pieces = (weights[:, i : i + PIECE] for i in range(0, weights.shape[1], PIECE))
    return np.sqrt(sum((piece**2).sum(axis=(1, 2)) for piece in pieces))


def _stacked(scales: Sequence[np.ndarray | None], d: int) -> np.ndarray | None:
    if all(given is None for given in scales):
        return None
    return np.stack([np.ones((d, 1)) if given is None else given for given in scales])


def _column(values: Sequence[Any]) -> np.ndarray:
    return np.array([float(value) for value in values])[:, None, None]
