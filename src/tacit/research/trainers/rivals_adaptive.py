"""GEP and AdaDPS as their papers have them: what public rows say is asked anew along the way.

The gradients of a linear model turn little, so `GEP` and `AdaDPS` look at public rows once, before
a run. Here they are looked at every ``refresh`` steps, at the weights that the run has reached.
Those weights are released values, and public rows are public: whatever follows from the two costs
nothing. Private rows are seen through a map of each row by itself, and clipped behind it, so that
the events are those of `GEP` and `DPGD`, or of their samples.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Unpack

import numpy as np

from tacit.data.rows import Chunk, RowMap, Rows, as_rows
from tacit.engine.engine import Engine
from tacit.exceptions import InputError, MissingBound
from tacit.losses import Loss
from tacit.mechanisms.release import PublicRandomness, Releases
from tacit.preprocessing.base import densify
from tacit.preprocessing.projection import Projection
from tacit.preprocessing.public_rows import fingerprint_of
from tacit.progress import silent
from tacit.research.trainers.rivals import GEP, Batched
from tacit.trainers.averaging import Averages
from tacit.trainers.base import Training, is_positive, is_whole
from tacit.trainers.settings import PublicFacts

BITS = 16  # of a random label


class Mapped:
    """Private rows, in the place of an engine: one is made whenever they are seen in a new way.

    Parameters are those of `tacit.engine.engine.Engine`.
    """

    def __init__(
        self,
        rows: Rows,
        targets: np.ndarray,
        loss: Loss,
        *,
        intercept: float = 0.0,
        arithmetic: Any = "exact",
        shift: np.ndarray | None = None,
        split: int | None = None,
    ) -> None:
        if rows.bound is None:
            raise MissingBound("the engine", "rows with a bound, e.g. after ClipNorm(radius)")
        if rows.distributed:
            raise InputError("rows on a cluster cannot be mapped anew in every step; use GEP")
        self.rows, self.targets, self.loss, self.shift = rows, targets, loss, shift
        self.intercept, self.arithmetic = float(intercept), arithmetic
        self.n, self.d, self.split = rows.n, rows.d + bool(intercept), split

    @property
    def bound(self) -> float:
        """Norm that no row exceeds, its shift included."""
        far = 0.0 if self.shift is None else float(np.linalg.norm(self.shift))
        return float(self.rows.bound or 0.0) + far

    def seen(self, row_map: RowMap, *, d: int, bound: float, split: int | None) -> Engine:
        """An engine of the rows behind one more map."""
        rows = self.rows
        if self.shift is not None:
            rows = rows.through(_Shifted(self.shift), d=rows.d, bound=self.bound)
        return Engine(
            rows.through(row_map, d=d, bound=bound),
            self.targets,
            self.loss,
            intercept=self.intercept,
            arithmetic=self.arithmetic,
            split=split,
        )


class View(Protocol):
    """How private rows are seen until public rows are asked again."""

    engine: Engine

    def weights(self, weights: np.ndarray) -> np.ndarray:
        """Those that the engine's rows meet, for weights (d, K) of the rows as they are."""

    def gradient(self, parts: list[np.ndarray]) -> np.ndarray:
        """What the weights move by, (d, K), from noisy sums of every part."""


@dataclass
class Following(Batched):
    """Descent that looks at public rows again along the way.

    Parameters
    ----------
    public : array of shape (m, d)
        Public rows *as the stages leave them*: a trainer does not see stages.
    refresh : int
        For how many steps what they say is taken to hold; 1 as in the papers.
    """

    public: Any = field(default=None, repr=False, compare=False)
    refresh: int = 1
    takes_drift: ClassVar[bool] = False
    takes_strict: ClassVar[bool] = False
    takes_start: ClassVar[bool] = False
    source: ClassVar[Any] = Mapped

    def check(self, facts: PublicFacts) -> None:
        super().check(facts)
        self._check("refresh", lambda v: is_whole(v) and v >= 1, "an integer from 1")
        if self.public is None:
            raise InputError(f"{self.name} needs public=: rows that are not private")
        rows = as_rows(self.public)
        if rows.n < 1 or rows.d != facts.features:
            raise InputError(
                f"{self.name}(public=…) has {rows.n} rows of {rows.d} columns; it needs rows of "
                f"{facts.features}, as the stages leave the private ones"
            )

    def parameters(self) -> dict[str, Any]:
        plain = replace(self, public=None)
        named = super(Following, plain).parameters()
        return {**named, "public": None if self.public is None else fingerprint_of(self.public)}

    def assumptions(self) -> tuple[str, ...]:
        return (
            f"the rows with fingerprint {fingerprint_of(self.public)}, which {self.name} looks at, "
            "are public",
        )

    @abstractmethod
    def look(self, rows: Mapped, weights: np.ndarray, facts: PublicFacts, last: Any) -> View:
        """How private rows are seen from these weights on.

        Parameters
        ----------
        rows : Mapped
            Private rows, of which nothing is read here.
        weights : ndarray of shape (d, K)
            Where the run is.
        facts : PublicFacts
            What is public.
        last : object
            How they were seen before.

        Returns
        -------
        View
            A map of rows, and what takes noisy sums back.
        """

    def ready(self, rows: Mapped, facts: PublicFacts, draws: PublicRandomness) -> Any:
        """What the first look is given in the place of one before.

        Parameters
        ----------
        rows : Mapped
            Private rows, of which nothing is read here.
        facts : PublicFacts
            What is public.
        draws : PublicRandomness
            Signs that anybody may know.

        Returns
        -------
        object
            Public rows, their targets, and where to begin.
        """

    def train(
        self, engine: Any, run: Releases, facts: PublicFacts, **how: Unpack[Training]
    ) -> np.ndarray:
        rows: Mapped = engine
        token, progress = run.token(self.name), how.get("progress", silent)
        steps, rates, normaliser = int(self.steps), self.rates(), self.normaliser(facts)
        clips = [np.array([clip]) for clip in self.clips]
        weights = np.zeros((rows.d, facts.outputs))
        velocity = np.zeros_like(weights)
        averages = Averages([str(self.average)], (1, *weights.shape), steps, facts.features)
        view: Any = self.ready(rows, facts, run.public)
        for step in range(steps):
            if step % self.refresh == 0:
                view = self.look(rows, weights, facts, view)
            batch = token.at("batch", step).batch(rows.n) if token.samples else None
            sums = view.engine.gradient_sums(
                view.weights(weights)[None],
                clips,
                batch=batch,
                per_class=self.clipping == "per-class",
            )
            noisy = []
            for part, total in enumerate(sums):
                paid, share = token.at("noise", step * len(sums) + part), self.shares[part]
                paid = paid if share == 1 else paid.part(share)
                bounded = total.bounded(0, self.reaches(0.0, None)[part])
                noisy.append(self.noisy(bounded, paid, step, rows.n))
            gradient = view.gradient(noisy) / normaliser + (self.alpha + self.anchor) * weights
            entries = [total.values[0].size for total in sums]
            spread = np.square(self.deviations(token.noise_multiplier, 0.0, None))
            averages.look(step, gradient[None], [float(spread @ entries) / normaliser**2])
            velocity = float(self.momentum) * velocity + gradient
            weights = weights - rates[step] * velocity
            if self.radius is not None:
                norm = max(float(np.linalg.norm(weights)), 1e-300)
                weights = weights * min(1.0, float(self.radius) / norm)
            averages.add(step, weights[None])
            progress("training", step + 1, steps)
        return averages.result()[0]


@dataclass
class PowerGEP(Following, GEP):
    """GEP with a subspace found by power iteration (Yu et al. 2021, Algorithms 1 and 2).

    At the weights that the run has reached, gradients of public rows with random labels are formed,
    and power iteration finds the strongest ``n_components`` directions of rows in them: of
    Σᵢ‖rᵢ‖²·xᵢxᵢᵀ for residuals rᵢ. (Yu et al. look for directions of whole gradients, of d·K
    numbers; for one output that is the same.) Private gradients are split there and outside, and
    each part is clipped and has its noise, as for `GEP`.

    Parameters
    ----------
    iterations : int
        Steps of power iteration at a look, from the subspace of the look before.

    Examples
    --------
    >>> PowerGEP(public=np.eye(3), n_components=2, refresh=5).iterations
    2
    """

    iterations: int = 2

    def check(self, facts: PublicFacts) -> None:
        super().check(facts)
        self._check("iterations", lambda v: is_whole(v) and v >= 1, "an integer from 1")

    def suggest(self, facts: PublicFacts, given: Mapping[str, Any]) -> dict[str, Any]:
        return GEP.suggest(self, facts, given)

    def ready(self, rows: Mapped, facts: PublicFacts, draws: PublicRandomness) -> Any:
        public = np.asarray(as_rows(self.public).collect(), dtype=np.float64)
        shape = facts.features, int(self.n_components)
        start = draws.signs("subspace", 0, shape[0] * shape[1]).reshape(shape)
        bits = draws.signs("labels", 0, len(public) * BITS).reshape(-1, BITS) > 0
        chosen = (bits @ (1 << np.arange(BITS))) % max(facts.outputs, 2)
        values = chosen if rows.loss.task == "classification" else 2.0 * (chosen > 0) - 1
        return _Start(public, rows.loss.targets(values, facts.outputs), start.astype(np.float64))

    def look(self, rows: Mapped, weights: np.ndarray, facts: PublicFacts, last: Any) -> View:
        seen = last.public @ weights[: facts.features]
        if rows.intercept:
            seen = seen + rows.intercept * weights[-1]
        sizes = (rows.loss.residual(seen, last.targets) ** 2).sum(axis=1, keepdims=True)
        basis = np.linalg.qr(last.basis)[0]
        for _ in range(int(self.iterations)):
            basis = np.linalg.qr(last.public.T @ (sizes * (last.public @ basis)))[0]
        parted = _Parted(basis, rows.bound)
        wide = facts.features + basis.shape[1]
        engine = rows.seen(parted, d=wide, bound=2 * rows.bound, split=facts.features)
        return _Beside(engine, last.public, last.targets, parted.basis)


@dataclass
class LabelledAdaDPS(Following):
    """AdaDPS with scales from labelled public rows (Li, Zaheer et al. 2022, Algorithm 1).

    At the weights that the run has reached, v ← ``decay``·v + (1 − ``decay``)·ĝ² for the mean
    gradient ĝ of the public rows with their labels, as RMSProp has it. Private gradients are
    divided by A_j = √v_j/rms(√v) + ``floor`` before they are clipped; v_j is the mean of column j
    over the outputs. (Li et al. have one number for every weight; for one output that is the same.)

    **Event.** That of `DPGD` or `DPSGD`, one sum per step.

    Parameters
    ----------
    labels : sequence of int or float
        Class indices of the public rows, from 0, or numbers.
    decay : float
        How much of what earlier looks have found is kept.
    floor : float
        Added to every A_j, which are one on average.

    Examples
    --------
    >>> LabelledAdaDPS(public=np.eye(3), labels=[0, 1, 1]).floor
    0.1
    """

    labels: Any = field(default=None, repr=False, compare=False)
    decay: float = 0.9
    floor: float = 0.1

    def check(self, facts: PublicFacts) -> None:
        super().check(facts)
        self._check("decay", lambda v: v == 0 or (is_positive(v) and v < 1), "in [0, 1)")
        self._check("floor", is_positive, "a positive number")
        if self.labels is None or len(self.labels) != as_rows(self.public).n:
            raise InputError(f"{self.name} needs labels=: one for each of its public rows")

    def parameters(self) -> dict[str, Any]:
        named = super(LabelledAdaDPS, replace(self, labels=None)).parameters()
        found = np.asarray(self.labels, dtype=np.float64)[:, None]
        return {**named, "labels": fingerprint_of(found)}

    def ready(self, rows: Mapped, facts: PublicFacts, draws: PublicRandomness) -> Any:
        public = np.asarray(as_rows(self.public).collect(), dtype=np.float64)
        targets = rows.loss.targets(np.asarray(self.labels), facts.outputs)
        return _Start(public, targets, np.zeros(facts.features))

    def look(self, rows: Mapped, weights: np.ndarray, facts: PublicFacts, last: Any) -> View:
        seen = last.public @ weights[: facts.features]
        if rows.intercept:
            seen = seen + rows.intercept * weights[-1]
        mean = last.public.T @ rows.loss.residual(seen, last.targets) / len(last.public)
        squares = self.decay * last.basis + (1 - self.decay) * (mean**2).mean(axis=1)
        size = np.sqrt(squares)
        scales = size / max(float(np.sqrt((size**2).mean())), 1e-300) + self.floor
        bound = rows.bound / float(scales.min()) * (1 + 1e-9)
        engine = rows.seen(_Divided(scales), d=facts.features, bound=bound, split=None)
        return _Scaled(engine, last.public, last.targets, squares, scales)


@dataclass
class _Start:
    """Public rows and their targets, and what a look begins with."""

    public: np.ndarray
    targets: np.ndarray
    basis: np.ndarray


@dataclass
class _Beside:
    """Rows as (x − VVᵀx, Vᵀx), for the weights (w, Vᵀw) and the constant's."""

    engine: Engine
    public: np.ndarray
    targets: np.ndarray
    basis: np.ndarray

    def weights(self, weights: np.ndarray) -> np.ndarray:
        own = weights[: len(self.basis)]
        return np.concatenate([own, self.basis.T @ own, weights[len(self.basis) :]])

    def gradient(self, parts: list[np.ndarray]) -> np.ndarray:
        outside, inside = parts
        k = self.basis.shape[1]
        # Rows have nothing of the subspace outside of it: what is there is noise.
        outside = outside - self.basis @ (self.basis.T @ outside)
        return np.concatenate([outside + self.basis @ inside[:k], inside[k:]])


@dataclass
class _Scaled:
    """Rows as x/A, for the weights A·w."""

    engine: Engine
    public: np.ndarray
    targets: np.ndarray
    basis: np.ndarray
    scales: np.ndarray

    def weights(self, weights: np.ndarray) -> np.ndarray:
        found = weights.copy()
        found[: len(self.scales)] *= self.scales[:, None]
        return found

    def gradient(self, parts: list[np.ndarray]) -> np.ndarray:
        return parts[0]


class _Turn(Projection):
    """A product with a public matrix that is the same for a row whatever stands beside it."""

    def __init__(self, matrix: np.ndarray, radius: float) -> None:
        empty = as_rows(np.empty((0, len(matrix))), bound=radius)
        self._set(matrix, empty, None)


class _Parted:
    """x → (x − VVᵀx, Vᵀx)."""

    def __init__(self, basis: np.ndarray, radius: float) -> None:
        self.into = _Turn(basis, radius)
        self.back = _Turn(self.into.matrix_.T, 1.01 * radius)
        self.basis = self.into.matrix_

    def apply(self, chunk: Chunk) -> Chunk:
        inside = self.into.apply(chunk)
        return np.hstack([densify(chunk) - self.back.apply(inside), inside])


@dataclass
class _Divided:
    """x → x/A."""

    scales: np.ndarray

    def apply(self, chunk: Chunk) -> Chunk:
        return densify(chunk) / self.scales


@dataclass
class _Shifted:
    """x → x − s."""

    shift: np.ndarray

    def apply(self, chunk: Chunk) -> Chunk:
        return densify(chunk) - self.shift
