"""Noisy gradient descent on linear models: full batches, or Poisson samples.

A step is sample → residual → clip → sum → noise → move. Everything after the
noise (momentum, averaging, projection, pulls towards zero or the start) works on
released values and costs nothing. The trainer that runs is the one that states the
event, so sampler, clipping, noise and normaliser cannot part from the account.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from tacit.engine.engine import Engine, GradientSource, LatticeSum
from tacit.engine.quantization import LIMIT
from tacit.engine.sensitivity import GradientSensitivity
from tacit.exceptions import InputError
from tacit.mechanisms.lattice import accounted_probability
from tacit.mechanisms.noise import Key
from tacit.mechanisms.release import BoundedSum, Draws, Releases, Token
from tacit.privacy.events import NEIGHBORS, Event, Gaussian, PoissonGaussian
from tacit.progress import Progress, silent
from tacit.theory import descent
from tacit.trainers.averaging import AVERAGES, Averages
from tacit.trainers.defaults import BIAS, Facts, suggest

__all__ = [
    "DPGD",
    "DPSGD",
    "GradientTrainer",
    "is_auto",
    "is_in_range",
    "is_positive",
    "is_whole",
    "train_together",
]

OrAuto: TypeAlias = Any  # a value, or "auto" until `resolve` replaces it
MOST_STEPS = 10_000  # beyond them, what the bound of Theorem 3.1 gains is a hundredth of N·L
RANGE = "a positive number within 2**-60 and 2**60"
LARGEST_STEPS = 10**7  # weeks on a table of any size
SCHEDULES = ("constant", "late", "linear", "cosine", "sqrt")


@dataclass
class GradientTrainer:
    """Settings that full-batch and sampled descent share; ``"auto"`` is filled by `resolve`.

    Parameters
    ----------
    steps : int
        Noisy steps T.
    learning_rate : float
        Rate of the first step, on the *mean* clipped gradient.
    clip : float
        Bound C on the norm of one row's gradient.
    momentum : float
        Heavy-ball momentum in [0, 1).
    average : {"last", "uniform", "weighted", "converged"}
        Which iterate is returned: the last, the mean of all, the mean with weight t on iterate t
        (Lacoste-Julien, Schmidt & Bach 2012), or the mean of the second half if weights had
        stopped growing by then, and otherwise the last (`tacit.trainers.averaging`).
    schedule : {"constant", "late", "linear", "cosine", "sqrt"}
        How the rate falls over the run; ``"late"``: not before its last quarter.
    radius : float, optional
        Weights, the intercept's included, are projected onto the ball of this radius.
    alpha : float
        Strength α of the penalty α‖θ‖²/2 on the mean loss, which pulls towards zero: what
        scikit-learn calls ``alpha``. The intercept's weight is part of θ.
    anchor : float
        Strength of the penalty on ‖θ − θ₀‖²/2, which pulls towards the weights that a run begins
        at (Li et al. 2022, Algorithm 1). From zero, it is the same as ``alpha``.
    clipping : {"flat", "per-class"}
        Clip a row's whole gradient to C, or every class's part to C/√K.
    bias : float
        Size of the constant feature that carries the intercept, as a part of
        the row bound.
    """

    steps: OrAuto = "auto"
    learning_rate: OrAuto = "auto"
    clip: OrAuto = "auto"
    momentum: OrAuto = "auto"
    average: OrAuto = "auto"
    schedule: OrAuto = "auto"
    radius: float | None = None
    alpha: float = 0.0
    anchor: float = 0.0
    clipping: str = "flat"
    bias: OrAuto = "auto"
    #: Whether `deviation` covers rows that moved, so that noiseless stages may come first.
    takes_drift: ClassVar[bool] = True
    #: Whether strict arithmetic checks all that it sums.
    takes_strict: ClassVar[bool] = True
    #: Whether every row is private before it leaves its owner, so that nobody else may look.
    local: ClassVar[bool] = False
    #: Whether its account needs steps that bring no two weights farther apart.
    contracts: ClassVar[bool] = False
    #: Whether a run may begin at given weights instead of zero.
    takes_start: ClassVar[bool] = True
    #: Whether it takes steps along sums of gradients, which an engine gives it.
    descends: ClassVar[bool] = True
    #: Whether the weights of all steps are kept until the last.
    keeps_iterates: ClassVar[bool] = False
    #: Relations for which its event is stated, and arithmetic in which it holds.
    relations: ClassVar[tuple[str, ...]] = tuple(NEIGHBORS)
    arithmetics: ClassVar[tuple[str, ...]] = ("exact", "strict", "fast")

    @property
    def name(self) -> str:
        return type(self).__name__

    def parameters(self) -> dict[str, Any]:
        """Settings as plain JSON values."""
        return {k: v.item() if isinstance(v, np.generic) else v for k, v in asdict(self).items()}

    def resolve(self, facts: Facts) -> Self:
        """The same trainer with every ``"auto"`` replaced, by public facts only."""
        self.check(facts)
        given = {k: v for k, v in asdict(self).items() if not is_auto(v)}
        filled = self.suggest(facts, given)
        return replace(self, **{k: filled[k] for k, v in asdict(self).items() if is_auto(v)})

    @property
    def follows(self) -> bool:
        """Whether its settings are chosen again once stages have shown how long rows are.

        Only where its event does not depend on them: clip, rate and the size of the constant.
        """
        return False

    def suggest(self, facts: Facts, given: Mapping[str, Any]) -> dict[str, Any]:
        """A value for every setting; those given stay."""
        return suggest(facts, given)

    def check(self, facts: Facts) -> None:
        """Refuse settings that make no sense, naming the one to change."""
        allowed = f"a whole number from 1 to {LARGEST_STEPS:,}"
        self._check("steps", lambda v: is_whole(v) and 1 <= v <= LARGEST_STEPS, allowed)
        for name in ("learning_rate", "bias"):
            self._check(name, is_positive, "a positive number")
        self._check("clip", is_in_range, RANGE)
        self._check("momentum", lambda v: _number(v) and 0 <= v < 1, "in [0, 1)")
        self._check("average", lambda v: v in AVERAGES, f"one of {', '.join(AVERAGES)}")
        self._check("schedule", lambda v: v in SCHEDULES, f"one of {', '.join(SCHEDULES)}")
        self._check("radius", lambda v: v is None or is_positive(v), "a positive number or None")
        for name in ("alpha", "anchor"):
            self._check(name, lambda v: _number(v) and 0 <= v < math.inf, "0 or a positive number")
        self._check("clipping", lambda v: v in ("flat", "per-class"), "flat or per-class")

    def _check(self, name: str, valid: Callable[[Any], bool], allowed: str) -> None:
        value = getattr(self, name)
        may_be_auto = any(f.name == name and f.default == "auto" for f in fields(self))
        if not ((may_be_auto and is_auto(value)) or valid(value)):
            raise InputError(f"{self.name}({name}={value!r}): {name} must be {allowed}")

    def sampling_probability(self, facts: Facts) -> float:
        """Chance of a row to be in a step's batch."""
        return 1.0

    def event(self, noise_multiplier: float, facts: Facts) -> Event:
        """What all steps together cost.

        Noise is in units of half the distance between neighbouring sums, which is
        the clip, and more where rows drifted (`deviation`).
        """
        return Gaussian(noise_multiplier, count=int(self.steps))

    def events(self, noise_multiplier: float, facts: Facts) -> tuple[tuple[str, Event], ...]:
        """Everything that it spends, by name."""
        return ((self.name, self.event(noise_multiplier, facts)),)

    def draws(self, features: int, outputs: int) -> int:
        """How many noise values it draws, for that many columns, the intercept's included."""
        return int(self.steps) * features * outputs

    def members(self, step: int, n: int) -> np.ndarray | None:
        """Rows of a step that is not drawn at random; None for all of them."""
        return None

    def normaliser(self, facts: Facts) -> float:
        """What sums are divided by: the rows that a step expects."""
        return self.sampling_probability(facts) * facts.size

    def noise(self, noise_multiplier: float, facts: Facts) -> float:
        """Standard deviation of the noise on a step's sum, in clips."""
        return noise_multiplier

    def signal(self, facts: Facts) -> float:
        """What all rows together can say in a score, in units of the noise of all steps."""
        return facts.size * facts.mu

    def rows_for(self, times: float) -> float:
        """How many times as many rows bring so many times the `signal`."""
        return times

    def sampled(self, facts: Facts) -> str:
        """Which rows a step looks at, in words."""
        q = self.sampling_probability(facts)
        return "all rows" if q == 1 else f"each row with probability {q:.3g}"

    def noisy(self, total: BoundedSum, token: Token, step: int, rows: int) -> np.ndarray:
        """A sum over that many rows, with its noise."""
        return token.gaussian(total)

    def assumptions(self) -> tuple[str, ...]:
        """What its guarantee takes for granted, or gives, beyond what every plan says."""
        return ()

    def remark(self) -> str:
        """What a plan should say of it besides its steps and their noise."""
        return ""

    def explain(self, noise_multiplier: float, facts: Facts) -> list[str]:
        """What is done with the rows, and with how much noise, in words."""
        clips = self.clips
        in_parts = "" if len(clips) == 1 else " in two parts (outside and in the subspace)"
        added = self.deviations(noise_multiplier, 0.0, None)
        scaled = [deviation / clip for deviation, clip in zip(added, clips, strict=True)]
        noise = [self.noise(z, facts) for z in scaled]
        mean = [z / self.normaliser(facts) for z in noise]
        joint = "" if len(clips) == 1 else f", which count as one sum with {noise_multiplier:.4g}"
        said = [
            f"Training, {self.name}: {self.steps} steps on {self.sampled(facts)}, each row's "
            f"gradient clipped{in_parts} to {_listed(clips, 3)}, first rate "
            f"{float(self.learning_rate):.3g} ({self.schedule}), momentum "
            f"{float(self.momentum):g}.",
            f"Noise on every step's sum: {_listed(noise, 4)} clipped gradients{joint}; on the mean "
            f"gradient that is {_listed(mean, 3)} clips a coordinate.",
        ]
        return [*said, self.remark()] if self.remark() else said

    @property
    def clips(self) -> tuple[float, ...]:
        """The clip of every part of a row's gradient that is clipped by itself."""
        return (float(self.clip),)

    def split(self, facts: Facts) -> int | None:
        """Column that begins the second part, where there are two."""
        return None

    def scales(self, facts: Facts, d: int) -> np.ndarray | None:
        """What the d columns of the rows were divided by, if the weights move as if they were not.

        Public numbers of shape (d, 1). Whatever is done to weights, only the engine
        sees them scaled.
        """
        return None

    @property
    def shares(self) -> tuple[float, ...]:
        """What each part of a gradient takes of a step's budget, 1/z²; they sum to one."""
        return (1.0,)

    def reaches(self, norm: float, moves: GradientSensitivity | None) -> tuple[float, ...]:
        """Half of how far neighbours' sums of every part lie apart, at weights of that norm."""
        return (self.reach(norm, moves),)

    def reach(self, norm: float, moves: GradientSensitivity | None) -> float:
        """Half of how far neighbours' sums lie apart, at weights of that norm.

        They lie within 2C + b, b following the weights: so every step has the same privacy,
        whatever weights it meets (``docs/drift.md``, section 5).
        """
        half = float(self.clip)
        if moves is not None:
            half += moves.distance(norm, half, per_class=self.clipping == "per-class") / 2
        return half

    def deviations(
        self, noise_multiplier: float, norm: float, moves: GradientSensitivity | None
    ) -> tuple[float, ...]:
        """Standard deviation of the noise on the sum of every part, for reading."""
        shares, reaches = self.shares, self.reaches(norm, moves)
        pairs = zip(shares, reaches, strict=True)
        return tuple(noise_multiplier / math.sqrt(share) * reach for share, reach in pairs)

    def deviation(
        self, noise_multiplier: float, norm: float, moves: GradientSensitivity | None
    ) -> float:
        """The same, of the only part or the first."""
        return self.deviations(noise_multiplier, norm, moves)[0]

    def rates(self) -> np.ndarray:
        """Learning rate of every step."""
        steps = int(self.steps)
        done = np.arange(steps) / steps
        shapes: dict[str, Callable[[], np.ndarray]] = {
            "constant": lambda: np.ones_like(done),
            "late": lambda: np.minimum(1.0, 4 * (1.0 - done)),
            "linear": lambda: 1.0 - done,
            "cosine": lambda: (1 + np.cos(np.pi * done)) / 2,
            "sqrt": lambda: 1 / np.sqrt(1 + done * steps),
        }
        return float(self.learning_rate) * shapes[self.schedule]()

    def train(
        self,
        engine: Engine,
        run: Releases,
        facts: Facts,
        *,
        progress: Progress = silent,
        moves: GradientSensitivity | None = None,
        start: np.ndarray | None = None,
    ) -> np.ndarray:
        """Weights (d, K) after a run from ``start``, which is public, or from zero."""
        how: dict[str, Any] = {"progress": progress, "moves": moves, "start": start}
        return train_together(engine, [self], [run.token(self.name)], facts, **how)[0]


@dataclass
class DPGD(GradientTrainer):
    """Noisy gradient descent on all rows (Song et al. 2021, Algorithm 1).

    Parameters
    ----------
    norm : float, optional
        N, at least the norm of the best weights, the intercept's included. Whatever else is left
        to be chosen is then as in Song et al. 2021, Theorem 3.1, whose bound holds for losses that
        are convex in one score (`tacit.theory.descent`): plain steps of constant rate, their mean,
        no gradient clipped. With a ``clip`` the bound is that of the clipped objective.
    rank : int, optional
        At least the rank of the rows with their constant feature, if that is publicly known; the
        number of columns if not given. It only sets the rate.

    Notes
    -----
    The theorem's (nε)² steps are taken with ε as the Gaussian budget has it, nμ squared, and not
    beyond 10,000: its bound is N·L·√((1 + 1/T)(1/T + r/(nμ)²)) for any T at the rate that suits T.

    Examples
    --------
    >>> DPGD(steps=100, clip=0.5).steps
    100
    """

    norm: float | None = None
    rank: int | None = None

    @property
    def follows(self) -> bool:
        return type(self) is DPGD and self.norm is None

    def check(self, facts: Facts) -> None:
        super().check(facts)
        self._check("norm", lambda v: v is None or is_positive(v), "a positive number or None")
        self._check("rank", lambda v: v is None or (is_whole(v) and v >= 1), "at least 1, or None")
        if self.rank is not None and self.norm is None:
            raise InputError(f"{self.name}(rank={self.rank!r}) is of use with norm= only")
        if self.norm is not None and facts.loss is not None and not facts.loss.convex:
            raise InputError(
                f"{self.name}(norm={self.norm!r}) is for convex losses, not {facts.loss.name!r}"
            )

    def suggest(self, facts: Facts, given: Mapping[str, Any]) -> dict[str, Any]:
        if self.norm is None:
            return super().suggest(facts, given)
        bias = float(given.get("bias", BIAS))
        slope = 1.0 if facts.loss is None else facts.loss.lipschitz(facts.outputs)
        reach = slope * facts.bound * math.sqrt(1 + bias**2)
        clip = float(given.get("clip", reach))
        if not math.isfinite(clip):
            raise InputError(
                f"{self.name}(norm={self.norm}): gradients of this loss have no bound; pass clip="
            )
        rank = min(facts.features + 1, facts.size) if self.rank is None else int(self.rank)
        steps = given.get("steps", min(math.ceil((facts.size * facts.mu) ** 2), MOST_STEPS))
        found = descent.within(
            facts.mu,
            facts.size,
            rank * facts.outputs,  # every output has noise of its own
            norm=float(self.norm),
            lipschitz=clip,
            steps=int(steps),
        )
        # Heavy balls go 1/(1 - momentum) times as far.
        rate = found.learning_rate * (1 - float(given.get("momentum", 0.0)))
        chosen = {**found.settings, "learning_rate": rate, "bias": bias}
        return {**chosen, **given}


@dataclass
class DPSGD(GradientTrainer):
    """Noisy gradient descent on Poisson samples (Abadi et al. 2016).

    Every row enters every batch independently, with probability
    ``batch_size`` / n, as the accounting assumes; an empty batch still adds its
    noise, and sums are divided by the *expected* batch size.

    Parameters
    ----------
    batch_size : float
        Expected number of rows in a batch.
    """

    batch_size: OrAuto = "auto"

    @property
    def follows(self) -> bool:
        return type(self) is DPSGD

    def check(self, facts: Facts) -> None:
        super().check(facts)
        allowed = f"above 0 and at most the number of rows, {facts.size}"
        self._check("batch_size", lambda v: is_positive(v) and v <= facts.size, allowed)

    def sampling_probability(self, facts: Facts) -> float:
        return accounted_probability(min(1.0, self.batch_size / facts.size))

    def event(self, noise_multiplier: float, facts: Facts) -> Event:
        return PoissonGaussian(
            noise_multiplier,
            int(self.steps),
            sampling_probability=self.sampling_probability(facts),
            drift=facts.shifts,
            failure=facts.failure,
        )

    def reference_norm(self, moves: GradientSensitivity) -> float:
        """Norm of the weights that ``event`` states the drift for: the radius, or 1/R."""
        return 1 / moves.bound if self.radius is None else float(self.radius)

    def reach(self, norm: float, moves: GradientSensitivity | None) -> float:
        """As accounted at weights of the `reference_norm`; larger by μ/μ₀ beyond.

        Divided by that ratio, clip and drift are at most those accounted for, and the
        dominating pair grows with both (``docs/drift.md``, section 2).
        """
        scale = 1.0
        if moves is not None:
            clip, per_class = float(self.clip), self.clipping == "per-class"
            base = self.reference_norm(moves)
            ratio = moves.constant(norm, clip, per_class=per_class) / moves.constant(
                base, clip, per_class=per_class
            )
            grown = moves.rounding(norm, clip) / max(moves.rounding(base, clip), 1e-300)
            scale = max(1.0, ratio, grown)
        return float(self.clip) * scale


def train_together(
    engine: GradientSource,
    trainers: Sequence[GradientTrainer],
    tokens: Sequence[Token],
    facts: Facts,
    *,
    progress: Progress = silent,
    moves: GradientSensitivity | None = None,
    start: np.ndarray | None = None,
    run: int = 0,
    visit: Callable[[np.ndarray, LatticeSum], None] | None = None,
    watch: Callable[[np.ndarray], None] | None = None,
) -> np.ndarray:
    """Train several settings on the same batches, as extra columns of one product.

    They must agree in kind, steps, batch size and way of clipping. Each adds its own noise, as its
    token says. On all rows, releasing S of them costs the composition of their events. On *samples*
    it does not: a row is then in the batch of all of them or of none, which is one event of noise
    z/√S, and may cost more. ``run`` numbers the runs of one key, each with batches and noise of its
    own.
    They begin at ``start``, public weights (d, K), or at zero.
    ``visit`` is shown the weights of every step and their sums, which are private. ``watch`` is
    shown the noisy mean gradients (S, d, K) of every step, as the weights follow from them: the
    events of `DPGD` and `DPSGD` cover them, those of other trainers may not.

    Returns
    -------
    ndarray of shape (S, d, K)
    """
    first = trainers[0]
    for other in trainers:
        for name in ("steps", "batch_size", "clipping", "n_components"):
            if getattr(other, name, None) != getattr(first, name, None):
                raise InputError(f"settings trained together must have the same {name}")
    if engine.split != first.split(facts):
        raise InputError(f"{first.name} needs an engine with split={first.split(facts)}")
    steps = int(first.steps)
    clips = [np.array(part) for part in zip(*(t.clips for t in trainers), strict=True)]
    scales = _stacked([trainer.scales(facts, engine.d) for trainer in trainers], engine.d)
    momentum = _column([trainer.momentum for trainer in trainers])
    alpha = _column([trainer.alpha for trainer in trainers])
    anchor = _column([trainer.anchor for trainer in trainers])
    pulled = alpha.any() or anchor.any()
    rates = np.stack([trainer.rates() for trainer in trainers], axis=1)[..., None, None]
    normaliser = first.normaliser(facts)
    weights = np.zeros((len(trainers), engine.d, facts.outputs))
    if start is not None:
        weights = _project(weights + (start if scales is None else start / scales), trainers)
    begin, velocity = weights, np.zeros_like(weights)
    names = [str(trainer.average) for trainer in trainers]
    averages = Averages(names, weights.shape, steps, min(facts.features, engine.d))

    def draw(step: int) -> np.ndarray:
        return tokens[0].at("batch", run * steps + step).batch(engine.n)

    with engine, ThreadPoolExecutor(1) as ahead:
        drawn = ahead.submit(draw, 0) if tokens[0].samples else None
        for step in range(steps):
            batch = first.members(step, engine.n) if drawn is None else drawn.result()
            seen = weights if scales is None else weights * scales
            sums = engine.gradient_sums(
                seen, clips, batch=batch, per_class=first.clipping == "per-class"
            )
            if drawn is not None and step + 1 < steps:
                drawn = ahead.submit(draw, step + 1)  # while one core draws this step's noise
            if visit is not None:
                visit(weights, sums[0])
            norms = _norms(seen)  # public: the last step's outcome
            rows = engine.n if batch is None else batch.size
            first_sum = (run * steps + step) * len(sums)
            noisy = []
            for part, total in enumerate(sums):
                released = np.empty(total.values.shape)
                for s, (trainer, token) in enumerate(zip(trainers, tokens, strict=True)):
                    token, share = token.at("noise", first_sum + part, s), trainer.shares[part]
                    bounded = total.bounded(s, trainer.reaches(norms[s], moves)[part])
                    paid = token if share == 1 else token.part(share)
                    released[s] = trainer.noisy(bounded, paid, step, rows)
                noisy.append(released)
            mean = (noisy[0] if len(noisy) == 1 else np.concatenate(noisy, axis=1)) / normaliser
            if watch is not None:
                watch(mean)
            gradient = mean
            if pulled:
                # ∇f + α(x − x⁽⁰⁾) + noise: Li et al. 2022, Algorithm 1, line 4, with α = anchor.
                gradient = mean + alpha * weights + anchor * (weights - begin)
            velocity = momentum * velocity + gradient
            weights = _project(weights - rates[step] * velocity, trainers)
            entries = [total.values[0].size for total in sums]
            deviations = [
                trainer.deviations(token.noise_multiplier, norm, moves)
                for trainer, token, norm in zip(trainers, tokens, norms, strict=True)
            ]
            noise = [float(np.square(d) @ entries) / normaliser**2 for d in deviations]
            averages.add(step, weights, gradient, noise)
            progress("training", step + 1, steps)
    found = averages.result()
    return found if scales is None else found * scales


def rehearsal(
    trainers: Sequence[GradientTrainer],
    noise_multipliers: Sequence[float],
    facts: Facts,
    key: Key,
    *,
    draws: Draws | None = None,
) -> list[Token]:
    """Tokens for `train_together` outside any plan: for experiments, which nothing certifies."""
    pairs = zip(trainers, noise_multipliers, strict=True)
    run = Releases(key, [(t.name, t.event(z, facts)) for t, z in pairs], draws=draws)
    return [run.token(trainer.name) for trainer in trainers]


def _project(weights: np.ndarray, trainers: Sequence[GradientTrainer]) -> np.ndarray:
    if all(t.radius is None for t in trainers):
        return weights
    radii = np.array([np.inf if t.radius is None else t.radius for t in trainers])
    norms = _norms(weights)
    return weights * np.minimum(1.0, radii / np.maximum(norms, 1e-300))[:, None, None]


def _norms(weights: np.ndarray) -> np.ndarray:
    return np.sqrt((weights**2).sum(axis=(1, 2)))


def _stacked(scales: Sequence[np.ndarray | None], d: int) -> np.ndarray | None:
    if all(given is None for given in scales):
        return None
    return np.stack([np.ones((d, 1)) if given is None else given for given in scales])


def _column(values: Sequence[Any]) -> np.ndarray:
    return np.array([float(value) for value in values])[:, None, None]


def _listed(numbers: Sequence[float], digits: int) -> str:
    return " and ".join(f"{number:.{digits}g}" for number in numbers)


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _number(value: Any) -> bool:
    """Whether a value is a number that a float can hold."""
    try:
        real = not isinstance(value, bool) and isinstance(value, int | float | np.number)
        return real and math.isfinite(float(value))
    except (OverflowError, TypeError):
        return False


def is_positive(value: Any) -> bool:
    return _number(value) and value > 0


def is_in_range(value: Any) -> bool:
    """Whether a number is neither so small nor so large that products with it leave the range."""
    return is_positive(value) and 1 / LIMIT <= value <= LIMIT


def is_whole(value: Any) -> bool:
    return _number(value) and int(value) == value
