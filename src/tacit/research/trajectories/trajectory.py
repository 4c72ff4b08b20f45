r"""In how few directions a run moves: singular values of its gradients (Li et al. 2022, section
4.2).

The gradients of r steps with p parameters are a matrix that is never held: a `Sketch` sees them as
they come, and further passes run the same descent again. The singular values are fitted by a power
law, and the run is repeated with gradients projected onto the first k directions. As in the paper,
the gradients are those before the noise, averaged and clipped, along a noisy run; and the noise of
the repeated runs is in all directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.rows import as_rows
from tacit.diagnostics.base import DIAGNOSES, Diagnosis
from tacit.diagnostics.lipschitz import PowerLaw, power_law_fit
from tacit.diagnostics.picture import draw_curves
from tacit.diagnostics.rehearsal import MOST_VALUES, Rehearsal, rehearse
from tacit.engine.engine import Engine, GradientSource, LatticeSum
from tacit.exceptions import InputError
from tacit.losses import Loss
from tacit.mechanisms.random_streams import Key, Stream
from tacit.mechanisms.release import BoundedSum, Draws
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.unit import ROW, Unit
from tacit.progress import Progress, silent
from tacit.report.show import number, percent
from tacit.research.trajectories.row_file import RowFile
from tacit.research.trajectories.sketch import Directions, Pass, Sketch
from tacit.trainers import DPGD, DPSGD, GradientTrainer
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.settings import PublicFacts

COMPONENTS = 100
RETRAIN = (1, 10, 20, 100)
HELD_OUT = 5  # one row in so many is not trained on


@dataclass(frozen=True, eq=False)
class Trajectory(Diagnosis):
    """What the gradients of a run are like, and how far a few directions get.

    Attributes
    ----------
    steps, parameters : int
        Rows and columns of the matrix of gradients.
    singular_values, at_most : ndarray of shape (k,)
        Its largest, falling; the true ones lie between these two.
    explained : ndarray of shape (k + 1,)
        Part of the squared norm of all gradients in the first 0 … k directions, at least.
    law : PowerLaw or None
        Fitted to the singular values; None if fewer than three are positive.
    score : float
        Of the run itself, on rows that it was not trained on.
    kept : tuple of int
        Numbers of directions that it was repeated with,
    scores : tuple of float
        and how well.
    measure : str
        Of these scores: ``accuracy`` or ``R²``.
    noise : float
        Standard deviation of the noise on a coordinate of the mean gradient.
    clip : float
    rows_used : int
        Rows trained on.
    passes : int
        How often the run was gone through to find the directions.
    directions : Directions
        Not shown. Of gradients in a folder it has as many vectors as the run was repeated with.
    """

    steps: int
    parameters: int
    singular_values: np.ndarray
    at_most: np.ndarray
    explained: np.ndarray
    law: PowerLaw | None
    score: float
    kept: tuple[int, ...]
    scores: tuple[float, ...]
    measure: str
    noise: float
    clip: float
    rows_used: int
    passes: int
    directions: Directions = field(repr=False, metadata={"hidden": True})

    def findings(self) -> list[tuple[str, str]]:
        """How a run moves, line by line."""
        size = f"{number(self.steps)} steps, {number(self.parameters)} parameters"
        law = "" if self.law is None else f"k^-{self.law.decay:.2f} (R² {self.law.fit:.2f}), "
        some = [k for k in (1, 10, 20, 100) if k < len(self.explained)]
        kept = [f"{k}: {percent(float(self.explained[k]))}" for k in some]
        scores = [
            f"{k}: {_score(score, self.measure)}"
            for k, score in zip(self.kept, self.scores, strict=True)
        ]
        scores.append(f"all: {_score(self.score, self.measure)}")
        return [
            ("gradients of a run fall as", law + size),
            ("of them, in first k directions", ", ".join(kept)),
            (f"{self.measure} with k directions", ", ".join(scores)),
        ]

    def pictures(self) -> list[str]:
        """Figure 2 of Li et al. 2022: how singular values fall, and how well few directions do."""
        k = np.arange(1, len(self.singular_values) + 1)
        curves = {"singular value": (k, self.singular_values), "at most": (k, self.at_most)}
        if (law := self.law) is not None:
            x = np.array([law.first, law.last])
            curves[f"k^-{law.decay:.2f}"] = (x, law.scale * x**-law.decay)
        drawn = [draw_curves("Singular values of a run's gradients", curves, across="k", log=True)]
        if len(self.kept) > 1:
            ends = np.array([self.kept[0], self.kept[-1]])
            scores = {
                f"{self.measure} with k directions": (np.array(self.kept), np.array(self.scores)),
                "with all": (ends, np.full(2, self.score)),
            }
            drawn.append(
                draw_curves("Retrained with gradients in k directions", scores, across="k")
            )
        return drawn


def _score(value: float, measure: str) -> str:
    return percent(value) if measure == "accuracy" else number(value, digits=2)


@dataclass(frozen=True)
class Run:
    """A descent that can be repeated, noise and batches included: for rehearsals only.

    Attributes
    ----------
    engine : GradientSource
    trainer : GradientTrainer
        With every setting fixed.
    facts : PublicFacts
    noise_multiplier : float
    score : callable
        Of the weights (d, K).
    seed : int
    """

    engine: GradientSource
    trainer: GradientTrainer
    facts: PublicFacts
    noise_multiplier: float
    score: Callable[[np.ndarray], float]
    seed: int = 0

    def train(
        self,
        *,
        on_gradient: Callable[[np.ndarray], None] | None = None,
        within: Directions | None = None,
        progress: Progress = silent,
    ) -> np.ndarray:
        """Weights (d, K); ``on_gradient`` is shown mean clipped gradients, projected if asked."""
        normaliser = self.trainer.normaliser(self.facts)

        def visit(weights: np.ndarray, total: LatticeSum) -> None:
            if on_gradient is not None:
                on_gradient(total.float().reshape(-1) / normaliser)

        # The same noise again and again; where there is none, its event stands for any.
        key, silence = Key.from_seed(self.seed), not self.noise_multiplier
        noise, draws = [self.noise_multiplier or 1.0], NoNoise() if silence else None
        return train_together(
            self.engine if within is None else Projected(self.engine, within),
            [self.trainer],
            rehearsal([self.trainer], noise, self.facts, key, draws=draws),
            self.facts,
            progress=progress,
            visit=visit,
        )[0]


class NoNoise(Draws):
    """For rehearsals without privacy: batches are drawn, and sums are as they are."""

    def gaussian(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        return total.values


class Projected:
    """An engine whose sums are projected onto some directions, before any noise."""

    split: int | None = None
    unit: Unit = ROW

    def __init__(self, engine: GradientSource, directions: Directions) -> None:
        self.engine, self.directions = engine, directions
        self.n, self.d = engine.n, engine.d
        self._entered = ExitStack()

    def __enter__(self) -> Projected:
        self._entered.enter_context(self.engine)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.close()

    def gradient_sums(
        self,
        weights: np.ndarray,
        clips: Sequence[float | np.ndarray],
        *,
        batch: np.ndarray | None = None,
        per_class: bool = False,
    ) -> list[LatticeSum]:
        (total,) = self.engine.gradient_sums(weights, clips, batch=batch, per_class=per_class)
        whole = total.float()
        part = self.directions.project(whole.reshape(-1)).astype(np.float64)
        return [LatticeSum(part.reshape(whole.shape), np.ones(1), total.clip)]


def trajectory(
    data: Any,
    labels: Any,
    *,
    loss: str | Loss | None = None,
    trainer: GradientTrainer | None = None,
    epsilon: float | None = 1.0,
    delta: float = 1e-6,
    components: int = COMPONENTS,
    retrain: Sequence[int] = RETRAIN,
    passes: int = 1,
    centre: bool = True,
    most_values: int = MOST_VALUES,
    seed: int = 0,
    progress: Progress = silent,
) -> Trajectory:
    """Follow noisy descent of a linear model, and find the directions of its gradients.

    The run is a rehearsal: fast arithmetic, seeded noise, no guarantee. One row in five is held
    out for the scores.

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d)
        Private rows.
    labels : sequence
        Classes, or numbers for a loss of numbers.
    loss : str or Loss, optional
        Logistic for two classes, softmax for more.
    trainer : DPGD or DPSGD, optional
        Settings; those left to the rule follow the budget.
    epsilon, delta : float
        Budget of the run; ``epsilon=None``: no noise, and the rule is that of μ = 1.
    components : int
        Directions to find, as far as there are steps and parameters.
    retrain : sequence of int
        Numbers of directions to repeat the run with; larger ones than were found are left out.
    passes : int
        How often to go through the run; from the second on the directions found are improved.
    centre : bool
        Whether the mean is subtracted first, as the recipe dpsgd-f does.
    most_values : int
        Numbers in the rows that are used; of more rows, evenly spaced ones are taken.
    seed : int
        Of the noise of the rehearsal.
    progress : callable
        Told how far it is.

    Returns
    -------
    Trajectory
        Not releasable.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 500)
    >>> X = rng.normal(size=(500, 10)) * 0.5 ** np.arange(10) + y[:, None]
    >>> found = trajectory(X, y, trainer=DPGD(steps=30), retrain=[1])
    >>> found.releasable, found.steps, found.parameters, found.kept
    (False, 30, 11, (1,))
    """
    if epsilon is not None:
        Budget(epsilon, delta)
    ready = rehearse(data, labels, loss=loss, centre=centre, most_values=most_values)
    if len(ready.rows) < 2 * HELD_OUT:
        raise InputError(f"{2 * HELD_OUT} rows or more are needed, some to be held out")
    train, test = split_rows(ready)
    run = linear_run(train, test, trainer or DPGD(), (epsilon, delta), seed)
    return follow(
        run,
        components=components,
        retrain=retrain,
        passes=passes,
        measure="R²" if ready.loss.task == "regression" else "accuracy",
        progress=progress,
    )


def follow(
    run: Run,
    *,
    components: int,
    retrain: Sequence[int],
    passes: int,
    measure: str,
    dtype: type = np.float64,
    folder: str | Path | None = None,
    progress: Progress = silent,
) -> Trajectory:
    """Directions of a run's gradients, and the run again with some of them."""
    for name, value in (("components", components), ("passes", passes), *_named(retrain)):
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise InputError(f"{name}={value!r} must be an integer from 1")
    if folder is not None and int(passes) != 1:
        raise InputError(f"passes={passes!r}: where gradients are kept in a folder, one is enough")
    steps, size = int(run.trainer.steps), run.engine.d * run.facts.outputs
    most = min(int(components), steps, size)
    runs, done = int(passes) + len(retrain), 0
    sketch: Sketch | RowFile
    if folder is None:
        sketch = Sketch(most, dtype=dtype)
    else:  # vectors are for repeating the run
        sketch = RowFile(folder, vectors=max((int(k) for k in retrain if k <= most), default=0))
    progress("trajectory", 0, runs)
    weights = run.train(on_gradient=sketch.add)
    found = sketch.directions()
    for done in range(1, int(passes)):
        progress("trajectory", done, runs)
        again = Pass(found)
        run.train(on_gradient=again.add)
        found = again.directions()
    found = found.first(most)
    if not len(found.values):
        raise InputError("all gradients of the run are zero")
    kept = tuple(sorted({int(k) for k in retrain if k <= len(found.values)}))
    scores = []
    for k in kept:
        done += 1
        progress("trajectory", done, runs)
        scores.append(run.score(run.train(within=found.first(k))))
    progress("trajectory", runs, runs)
    law = power_law_fit(found.values) if len(found.values) > 2 else None
    deviation = run.trainer.deviation(run.noise_multiplier, 0.0, None)
    return Trajectory(
        steps=steps,
        parameters=size,
        singular_values=found.values,
        at_most=found.at_most,
        explained=found.explained,
        law=law,
        score=run.score(weights),
        kept=kept,
        scores=tuple(scores),
        measure=measure,
        noise=deviation / run.trainer.normaliser(run.facts),
        clip=float(run.trainer.clip),
        rows_used=run.engine.n,
        passes=int(passes),
        directions=found,
    )


def noise_for(
    trainer: GradientTrainer, facts: PublicFacts, budget: tuple[float | None, float]
) -> float:
    """Noise multiplier of a rehearsal; without an ε, none to speak of."""
    epsilon, delta = budget
    if epsilon is None:
        return 0.0
    return calibrate(lambda z: [trainer.event(z, facts)], Budget(epsilon, delta), "replace_special")


def linear_run(
    train: Rehearsal,
    test: Rehearsal,
    trainer: GradientTrainer,
    budget: tuple[float | None, float],
    seed: int,
) -> Run:
    if type(trainer) not in (DPGD, DPSGD):
        raise InputError(f"a trajectory is that of DPGD or DPSGD, not of {trainer.name}")
    epsilon, delta = budget
    mu = 1.0 if epsilon is None else gaussian_mu(epsilon, delta)
    loss = train.loss
    facts = PublicFacts(
        train.size, train.rows.shape[1], train.outputs, train.bound, mu, loss.task, loss=loss
    )
    settings = replace(trainer).resolve(facts)
    intercept_scaling = float(settings.intercept_fraction) * train.bound
    longest = float(np.linalg.norm(train.rows, axis=1).max()) or 1.0
    engine = Engine(
        as_rows(train.rows, bound=longest),
        train.targets,
        loss,
        intercept=intercept_scaling,
        arithmetic="fast",
    )
    # Some rows stand for all: batches of the same size where they last, and the same noise on the
    # mean gradient.
    noise, many = noise_for(settings, facts, budget), len(train.rows)
    fewer = replace(facts, size=many)
    if isinstance(settings, DPSGD):
        batch = min(float(settings.batch_size), many)
        noise *= batch / float(settings.batch_size)
        settings = replace(settings, batch_size=batch)
    else:
        noise *= many / train.size

    def score(weights: np.ndarray) -> float:
        scores = test.rows @ weights[:-1] + intercept_scaling * weights[-1]
        if loss.task == "regression":
            left = float(((scores[:, 0] - test.given) ** 2).sum())
            whole = float(((test.given - test.given.mean()) ** 2).sum())
            return 1 - left / whole if whole else math.nan
        guess = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0)
        return float((guess == test.given).mean())

    return Run(engine, settings, fewer, noise, score, seed)


def split_rows(ready: Rehearsal) -> tuple[Rehearsal, Rehearsal]:
    held = np.arange(len(ready.rows)) % HELD_OUT == HELD_OUT - 1
    size = max(1, round(ready.size * float((~held).mean())))
    return (
        replace(ready, rows=ready.rows[~held], given=ready.given[~held], size=size),
        replace(ready, rows=ready.rows[held], given=ready.given[held]),
    )


def _named(retrain: Sequence[int]) -> list[tuple[str, int]]:
    return [("retrain", k) for k in retrain]


DIAGNOSES.add("trajectory", trajectory)
