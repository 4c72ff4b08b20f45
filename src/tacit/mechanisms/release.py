"""The one seam through which private randomness enters a run.

A calibrated plan has paid for certain events. `Releases` holds them, and the key of the run;
stages, trainers, searches and tests are handed a `Token` for theirs and see no random stream. A
token derives the deviation of the noise from its event and from a `BoundedSum`, whose bound was
enforced by whoever summed; it counts what it draws, and refuses, *before* it draws, what was not
paid for. At the end of a run `Releases.close` compares what was used with what was counted. This
makes a run a privacy filter (Rogers, Roth, Ullman & Vadhan 2016) with a budget fixed in advance.

Randomness that is public, such as the signs of a projection, comes from `PublicRandomness`.
What draws can be replaced: an audit passes `Draws` that record, or that replay.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import numpy as np

from tacit.exceptions import ReleaseError
from tacit.mechanisms.lattice import sigma_for
from tacit.mechanisms.memory import Memory
from tacit.mechanisms.random_streams import Key, Stream
from tacit.mechanisms.selection import exponential_choice, pick
from tacit.mechanisms.threshold import key_threshold, noisy_above
from tacit.mechanisms.trials import draw_setting, draw_trials
from tacit.privacy.events import Event, Failure, Gaussian, Iterated, Parallel, Repeated, Selection
from tacit.privacy.unit import ROW, Unit

UP = 1 + 1e-14  # more than the rounding of a root and a product
SLACK = 1e-13  # shares are rounded: they add up to one but for that, and never to one unit more
TOGETHER = 1 << 16  # values that noise is added to together: pieces of streams, some of them
BLOCK = 1 << 22  # noise values of reports that are drawn together

Kind = Literal["step", "sum", "votes", "score"]
Runs: TypeAlias = tuple[Sequence[int], Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class BoundedSum:
    """A sum in which no row counts for more than a bound, which the code that summed enforced.

    Attributes
    ----------
    values : ndarray
        int64 multiples of ``unit``; or float64 or float32, where arithmetic is fast.
    unit : float
        Spacing of the lattice, a positive number; 1.0 for floats.
    bound : float
        Norm of what one row contributes at most.
    reach : float
        Half of how far the sums of two tables may lie apart that differ by replacing a row: the
        bound, and more where the rows that they share have moved. Rounded up.
    kind : {"step", "sum", "votes", "score"}
        What an audit calls it.
    start : int
        First column, where the sum is over a part of the columns.
    owner : Unit
        Whose contributions the bound is on: those of a row, or of a person with all rows.
    """

    values: np.ndarray
    unit: float
    bound: float
    reach: float
    kind: Kind = "sum"
    start: int = 0
    owner: Unit = ROW

    def __post_init__(self) -> None:
        if not 0 < self.bound <= self.reach < math.inf:
            raise ReleaseError(
                f"a reach of {self.reach:g} does not cover a bound of {self.bound:g}"
            )

    @property
    def exact(self) -> bool:
        return self.values.dtype.kind == "i"

    def numbers(self) -> np.ndarray:
        """The sum as numbers."""
        return self.values * self.unit if self.exact else self.values


class Draws:
    """What a run draws, from streams that `Releases` opens. Audits put others in its place."""

    @cached_property
    def _memory(self) -> Memory:
        return Memory()

    def gaussian(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        """Sum and noise, in units of the lattice where there is one: a new array."""
        values = total.values.reshape(-1)
        noisy = self._memory.empty(values.size, np.int64 if total.exact else np.float64)
        sigma = sigma_for(deviation / total.unit) if total.exact else 0.0
        single = total.values.dtype == np.float32
        for start in range(0, values.size, TOGETHER):  # sum and noise while they are in the cache
            part = values[start : start + TOGETHER]
            drawn: np.ndarray
            if total.exact:
                drawn = stream.discrete_gaussian(sigma, part.size)
            else:
                drawn = stream.single_normal(part.size) if single else stream.normal(part.size)
                drawn *= deviation
            np.add(part, drawn, out=noisy[start : start + TOGETHER])
        return noisy.reshape(total.values.shape)

    def hidden(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        """Sum and noise as numbers, where nobody sees the outcome."""
        noise = deviation * stream.normal(total.values.size)
        return total.numbers() + noise.reshape(total.values.shape)

    def iterate(self, weights: np.ndarray, deviation: float) -> np.ndarray:
        """Weights with noise in them already, at last to be seen."""
        return weights

    def symmetric(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        """Upper triangle and noise: of that deviation on the diagonal, and 1/√2 of it above."""
        noisy, d = total.values.copy(), len(total.values)
        sigma = deviation / total.unit
        every = np.arange(d)
        noisy[every, every] += stream.discrete_gaussian(sigma_for(sigma), d)
        beside = sigma_for(sigma * math.sqrt(0.5) * UP)
        # One column above the diagonal after the other.
        drawn = stream.discrete_gaussian(beside, d * (d - 1) // 2)
        noisy.T[np.tri(d, k=-1, dtype=bool)] += drawn
        return noisy

    def reports(self, total: BoundedSum, deviation: float, rows: int, stream: Stream) -> np.ndarray:
        """The sum of so many reports, each with noise of its own."""
        values = total.values.reshape(-1)
        if not total.exact:  # the sum of ideal Gaussians is a Gaussian
            noise = deviation * math.sqrt(rows) * stream.normal(values.size)
            return total.values + noise.reshape(total.values.shape)
        sigma, noisy = sigma_for(deviation / total.unit), values.copy()
        block = max(1, BLOCK // values.size)
        for start in range(0, rows, block):
            count = min(block, rows - start)
            drawn = stream.discrete_gaussian(sigma, count * values.size)
            noisy += drawn.reshape(count, values.size).sum(axis=0)
        return noisy.reshape(total.values.shape)

    def gamma(self, total: BoundedSum, scale: float, stream: Stream) -> np.ndarray:
        """Sum and noise of density e^(−‖z‖/scale): a direction, and a length."""
        size = total.values.size
        direction = stream.normal(size)
        direction /= np.linalg.norm(direction)
        # As many exponentials as there are coordinates: a gamma distribution of that shape.
        length = -np.log1p(-stream.uniform(size)).sum()
        return total.numbers() + (scale * length * direction).reshape(total.values.shape)

    def keys(
        self,
        total: BoundedSum,
        keys: Sequence[Hashable],
        deviation: float,
        threshold: int,
        stream: Stream,
    ) -> dict[Hashable, int]:
        """Keys whose sum and noise reach a threshold, with both; in units of the lattice."""
        drawn = stream.discrete_gaussian(sigma_for(deviation / total.unit), len(keys))
        noisy = total.values + drawn
        return {keys[i]: int(noisy[i]) for i in np.flatnonzero(noisy >= threshold).tolist()}

    def above(self, value: float, threshold: float, deviation: float, stream: Stream) -> bool:
        return noisy_above(value, threshold, deviation, stream)

    def choose(self, utilities: Any, noise: float, stream: Stream) -> int:
        return exponential_choice(utilities, noise, stream)

    def cell(
        self, first: Sequence[int], weights: Sequence[int], masses: Sequence[int], stream: Stream
    ) -> int:
        """A cell among runs of equally likely ones, of which each run has its mass."""
        index, rest = pick(masses, stream)
        return first[index] + rest * weights[index] // masses[index]

    def batch(self, n: int, probability: float, stream: Stream) -> np.ndarray:
        return stream.include(n, probability)

    def stop(self, steps: int, stream: Stream) -> int:
        return 1 + int(stream.uniform(1)[0] * steps)

    def trials(self, event: Repeated, stream: Stream) -> int:
        return draw_trials(event, stream)

    def setting(self, count: int, stream: Stream) -> int:
        return draw_setting(count, stream)


class PublicRandomness:
    """Signs, coins and hashes from the key of the run: guarantees hold whatever they are.

    What is drawn so is fixed before anything that protects. It may be known, each coin with its
    row or person; by number only if numbers are public (`tacit.privacy.events.Parallel`).
    """

    def __init__(self, key: Key) -> None:
        self._key = key

    def signs(self, label: str, step: int, count: int) -> np.ndarray:
        """So many of −1 and 1."""
        words = self._key.stream(label, step).words(count)
        return np.where(words >> np.uint64(63), np.int64(1), np.int64(-1))

    def coins(self, label: str, count: int) -> np.ndarray:
        """So many numbers from 0 to 1."""
        return self._key.stream(label).uniform(count)

    def hashed(self, label: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """A keyed hash of pairs of 64-bit integers (m,), (m,): each pair's is its own affair."""
        secret = self._key.stream(label).words(4).tobytes()

        def found(marks: np.ndarray, places: np.ndarray) -> np.ndarray:
            pairs = np.stack([marks.astype("<u8"), places.astype("<u8")], axis=1).tobytes()
            each = (pairs[i : i + 16] for i in range(0, len(pairs), 16))
            digests = (blake2b(p, digest_size=8, key=secret).digest() for p in each)
            return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)

        return found


class _Budget:
    """Units of an event that may still be drawn; what is used is added up exactly."""

    def __init__(self, name: str, units: float) -> None:
        self.name, self.units = name, float(units)
        self.used: int | Fraction = 0
        self._lock = threading.Lock()

    def take(self, share: float) -> None:
        with self._lock:
            used: Any = math.inf
            if 0 < share < math.inf:
                used = self.used + (1 if share == 1 else Fraction(share))
                used = used.numerator if used.denominator == 1 else used  # in less time
            if not used <= self.units * (1 + SLACK):
                raise ReleaseError(
                    f"{self.name} asks for a release that was not counted: {float(self.used):g} of "
                    f"{self.units:g} are used"
                )
            self.used = used

    @property
    def spent(self) -> bool:
        return self.used >= self.units * (1 - SLACK)


class Token:
    """What one stage, trainer, test or search may release, and how much of it is left.

    Made by `Releases.token`. A draw costs one of the event's ``count`` units; `part` and `rounds`
    divide a unit among several releases of more noise each.
    """

    def __init__(
        self,
        releases: Releases,
        event: Event,
        budget: _Budget,
        place: tuple[str, int, int] | None = None,
    ) -> None:
        self.event, self._releases, self._budget = event, releases, budget
        self._place = place
        self._unit = releases.unit
        self._opened: list[Stream] = []
        self._batches = _Budget(budget.name, event.count)
        self._stops = _Budget(budget.name, event.count)
        self._trials, self._settings = _Budget(budget.name, 0), _Budget(budget.name, 0)
        self._chance = _Budget(budget.name, 0)  # of failures: probabilities, not units
        self._law: Failure | None = None  # of the threshold that was counted
        parts = event.parts if isinstance(event, Parallel) else ()
        self._sides = [_Budget(budget.name, event.count) for _ in parts]

    @property
    def noise_multiplier(self) -> float:
        """Noise in contributions of one row."""
        return self.event.noise_multiplier

    @property
    def unit(self) -> Unit:
        """Whose contributions were counted."""
        return self._unit

    @property
    def failure(self) -> float:
        """Probability that was counted for accidents of what this token releases."""
        return self._chance.units

    @property
    def samples(self) -> bool:
        """Whether steps were counted on batches of rows, drawn at random."""
        return hasattr(self.event, "sampling_probability")

    def at(self, label: str, step: int = 0, worker: int = 0) -> Token:
        """The same token, that draws from the stream of this name."""
        other = object.__new__(Token)  # all that is left is shared, the stream is not
        other.__dict__.update(self.__dict__, _place=(label, step, worker), _opened=[])
        return other

    def per_row(self, rows: Any) -> Token:
        """The same token, for sums over rows of which every person has one: then rows are people.

        Parameters
        ----------
        rows : Rows
            What is summed; without owners, the token stays what it is.

        Returns
        -------
        Token
            Which takes bounds on rows, if everybody has one of these at most.
        """
        if rows.owners is None:
            return self
        self.require_unit(rows.unit)
        if not rows.owners.each_once:
            raise ReleaseError(f"{self._budget.name} sums several rows of one person")
        place = self._place or ("", 0, 0)
        other = self.at(*place)
        other._place, other._unit = self._place, ROW
        return other

    def part(self, share: float) -> Token:
        """A token for a part of one unit, by squared noise: 1/z² = Σ share/z²."""
        self._budget.take(share)
        noise = self.noise_multiplier / math.sqrt(share) * UP
        return self._divided(noise, 1)

    def rounds(self, count: int) -> Token:
        """A token for so many releases that cost one unit together (Dong, Roth & Su 2022, 3.3)."""
        self._budget.take(1.0)
        return self._divided(self.noise_multiplier * math.sqrt(count) * UP, count)

    def _divided(self, noise: float, count: int) -> Token:
        event = replace(self.event, noise_multiplier=noise, count=count)
        budget = _Budget(self._budget.name, count)
        self._releases.track(budget)
        child = Token(self._releases, event, budget, self._place)
        child._batches, child._chance, child._law = self._batches, self._chance, self._law
        child._opened = self._opened  # one stream, drawn from in turn
        child._unit = self._unit
        return child

    @property
    def _stream(self) -> Stream:
        if not self._opened:
            if self._place is None:
                raise ReleaseError(f"{self._budget.name} draws without saying from which stream")
            self._opened.append(self._releases.open(*self._place))
        return self._opened[0]

    def require_unit(self, owner: Unit) -> None:
        """Refuse a bound on what another unit counts for than was counted."""
        if owner != self._unit:
            raise ReleaseError(
                f"{self._budget.name} bounds what a {owner.kind} counts for, and was counted for "
                f"{self._unit}"
            )

    def deviation_of(self, total: BoundedSum) -> float:
        self.require_unit(total.owner)
        return math.nextafter(self.noise_multiplier * total.reach, math.inf)

    def _require(self, *kinds: type[Event]) -> None:
        if not isinstance(self.event, kinds):
            raise ReleaseError(
                f"{self._budget.name} was counted as {self.event.kind}, and draws something else"
            )

    # --- What is drawn ---------------------------------------------------------------------------

    def gaussian(self, total: BoundedSum) -> np.ndarray:
        """Sum and Gaussian noise, as numbers; multiples of the unit if it is exact."""
        noisy = self.multiples(total)
        if not total.exact:
            return noisy
        whole = noisy.reshape(-1)
        if whole.size <= TOGETHER or type(self._releases.draws) is not Draws:  # may be kept there
            return noisy.astype(np.float64) * total.unit
        numbers = whole.view(np.float64)  # in the same memory: fresh one takes longer to come by
        for start in range(0, whole.size, TOGETHER):
            part = whole[start : start + TOGETHER].astype(np.float64)
            np.multiply(part, total.unit, out=numbers[start : start + TOGETHER])
        return numbers.reshape(noisy.shape)

    def multiples(self, total: BoundedSum) -> np.ndarray:
        """The same, in units of the lattice."""
        if self.event.kind not in ("gaussian", "poisson-gaussian"):
            self._require(Gaussian)
        self._budget.take(1.0)
        return self._releases.draws.gaussian(total, self.deviation_of(total), self._stream)

    def keys(
        self,
        total: BoundedSum,
        keys: Sequence[Hashable],
        probability: float,
        *,
        each: int,
        least: int = 1,
    ) -> dict[Hashable, int]:
        """Keys that occur, and their noisy sums, where these reach a threshold.

        Which keys occur is private, and a key that one unit has may pass: an accident, which must
        have been counted as a `Failure` of the same name (`tacit.mechanisms.histogram` has the
        proof). The threshold is derived here, from the noise that is drawn here.

        Parameters
        ----------
        total : BoundedSum
            How many units have each key, as integers.
        keys : sequence
            Distinct, as many as there are sums.
        probability : float
            Of the accident, at most; taken from what was counted.
        each : int
            How many keys one unit has at most.
        least : int
            Units that every one of the keys has at least: others were left out.

        Returns
        -------
        dict
            From keys to noisy sums in units of the lattice.
        """
        self._require(Gaussian)
        if not total.exact or total.bound**2 * UP < each or least < 1:
            raise ReleaseError(f"{self._budget.name} counts keys without a bound on them")
        self._chance.take(probability)
        self._budget.take(1.0)
        deviation = self.deviation_of(total)
        sigma = sigma_for(deviation / total.unit)
        room = key_threshold(sigma, probability / each)
        law = self._law
        less = law is not None and (each > law.keys or room < law.room * sigma)
        if law is not None and law.keys and (less or law.step * deviation < 1):
            raise ReleaseError(f"{self._budget.name} has another threshold than was counted")
        threshold = math.ceil(least / total.unit) + room
        return self._releases.draws.keys(total, keys, deviation, threshold, self._stream)

    def symmetric(self, total: BoundedSum) -> np.ndarray:
        """Upper triangle of a symmetric matrix and its noise, in units of the lattice.

        ``total.reach`` is in the Frobenius norm: noise of deviation σ on the diagonal and σ/√2
        above it is isotropic there.
        """
        self._require(Gaussian)
        self._budget.take(1.0)
        return self._releases.draws.symmetric(total, self.deviation_of(total), self._stream)

    def reports(self, total: BoundedSum, rows: int, turn: int) -> np.ndarray:
        """The sum of reports of disjoint groups of rows, as numbers; each row's noise is its own.

        A row is in one group, and its ``turn`` is how often its group has reported before: units
        are those of a row, not of all groups together.
        """
        self._require(Gaussian)
        if turn + 1 > self._budget.used:
            self._budget.take(1.0)
        noisy = self._releases.draws.reports(total, self.deviation_of(total), rows, self._stream)
        return noisy.astype(np.float64) * total.unit if total.exact else noisy

    def gamma(self, total: BoundedSum) -> np.ndarray:
        """Sum and noise of `tacit.privacy.events.Gamma`."""
        if self.event.kind != "gamma":
            raise ReleaseError(f"{self._budget.name} was not counted as gamma noise")
        self._budget.take(1.0)
        return self._releases.draws.gamma(total, self.deviation_of(total), self._stream)

    def hidden(self, total: BoundedSum) -> np.ndarray:
        """Sum and Gaussian noise of a step whose outcome stays hidden (`Iterated`)."""
        self._require(Iterated)
        self._budget.take(1.0 / self.event.steps)  # type: ignore[attr-defined]
        return self._releases.draws.hidden(total, self.deviation_of(total), self._stream)

    def iterate(self, weights: np.ndarray, deviation: float) -> np.ndarray:
        """The one iterate of a hidden pass that is seen, with about that much noise in it."""
        self._require(Iterated)
        return self._releases.draws.iterate(weights, deviation)

    def stop(self) -> int:
        """After how many steps a hidden pass is released: any of them, equally likely."""
        self._require(Iterated)
        self._stops.take(1.0)
        return self._releases.draws.stop(self.event.steps, self._stream)  # type: ignore[attr-defined]

    def choose(self, utilities: Any, reach: float) -> int:
        """A candidate by the exponential mechanism; a row moves utilities by ``reach`` at most."""
        self._require(Selection)
        self.require_unit(ROW)
        self._budget.take(1.0)
        noise = self.noise_multiplier * reach
        return self._releases.draws.choose(utilities, noise, self._stream)

    def cells(self, runs: Sequence[Runs]) -> list[int]:
        """A cell for each of several targets, among (first, weights, masses) of its runs.

        Masses are for m targets with m times the noise each: one selection together.
        """
        self._require(Selection)
        self.require_unit(ROW)
        self._budget.take(1.0)
        return [self._releases.draws.cell(*run, self._stream) for run in runs]

    def above(self, margin: float, threshold: float) -> bool:
        """Whether a margin that a row moves by one exceeds a threshold, through noise.

        The event counts half distances (`tacit.privacy.ptr`), so its noise is twice the deviation.
        """
        self._require(Gaussian)
        self.require_unit(ROW)
        self._budget.take(1.0)
        deviation = self.noise_multiplier / 2
        return self._releases.draws.above(margin, threshold, deviation, self._stream)

    def batch(self, n: int, owner: Unit = ROW) -> np.ndarray:
        """Rows of a step, or people, each drawn independently with the probability counted."""
        if not self.samples:
            raise ReleaseError(f"{self._budget.name} was counted on all rows, and draws batches")
        self.require_unit(owner)
        self._batches.take(1.0)
        probability = self.event.sampling_probability  # type: ignore[attr-defined]
        return self._releases.draws.batch(n, probability, self._stream)

    def trials(self) -> int:
        """How many trials are made; secret."""
        self._require(Repeated)
        self._budget.take(1.0)
        number = self._releases.draws.trials(self.event, self._stream)  # type: ignore[arg-type]
        self._trials.units = self._settings.units = float(number)
        return number

    def trial(self, counted: Sequence[tuple[str, Event]]) -> Releases:
        """What one trial may draw: all of what one was counted to spend."""
        self._require(Repeated)
        if tuple(event for _, event in counted) not in self.event.trial:  # type: ignore[attr-defined]
            raise ReleaseError(f"{self._budget.name} makes a trial that was not counted")
        self._trials.take(1.0)
        if self._settings.used < self._trials.used:
            raise ReleaseError(f"{self._budget.name} makes a trial whose setting was not drawn")
        return self._releases.run(counted)

    def side(self, index: int, counted: Sequence[tuple[str, Event]]) -> Releases:
        """What one part of a parallel event may draw, once for each of its ``count``.

        That a part is computed from the rows of its own units only, is for whoever splits them.
        Each of the runs is closed with the one that it is part of.
        """
        self._require(Parallel)
        if not (0 <= index < len(self._sides)) or (
            tuple(event for _, event in counted) != self.event.parts[index]  # type: ignore[attr-defined]
        ):
            raise ReleaseError(f"{self._budget.name} runs a part that was not counted")
        self._sides[index].take(1.0)
        return self._releases.part_of(counted)

    def setting(self, count: int) -> int:
        """Which of ``count`` settings a trial tries, each equally likely; secret."""
        self._require(Repeated)
        self._settings.take(1.0)
        return self._releases.draws.setting(count, self._stream)


class Releases:
    """All private randomness of one run, drawn from what was counted.

    Parameters
    ----------
    key : Key
        Of this run.
    counted : sequence of (name, Event)
        What the plan spends, in its order.
    draws : Draws, optional
        What draws: real noise, unless an audit looks on.
    unit : Unit
        Whose contributions were counted; what bounds another's is refused.

    Failures draw nothing: what may fail is taken from the token of the same name (`Token.keys`).
    Of a parallel event every part runs (`Token.side`): all of them look at rows, each at its own.

    Examples
    --------
    >>> from tacit.mechanisms.random_streams import Key
    >>> run = Releases(Key.from_seed(0), [("Mean", Gaussian(1.0))])
    >>> token = run.token("Mean").at("mean")
    >>> total = BoundedSum(np.array([5]), 2.0**-20, bound=1.0, reach=1.0)
    >>> token.gaussian(total).shape
    (1,)
    >>> run.close()
    >>> token.gaussian(total)
    Traceback (most recent call last):
    ...
    tacit.exceptions.ReleaseError: Mean asks for a release that was not counted: 1 of 1 are used
    """

    def __init__(
        self,
        key: Key,
        counted: Sequence[tuple[str, Event]],
        *,
        draws: Draws | None = None,
        unit: Unit = ROW,
    ) -> None:
        self._key, self.unit = key, unit
        self.draws = Draws() if draws is None else draws
        self._waiting = [item for item in counted if not isinstance(item[1], Failure)]
        self._failures = [(n, event) for n, event in counted if isinstance(event, Failure)]
        self._budgets: list[_Budget] = []
        self._open: list[Releases] = []  # runs of parallel parts
        self._public = PublicRandomness(key)

    @property
    def seeded(self) -> bool:
        """Whether the run can be repeated, or others draw in the place of `Draws`: not private."""
        return self._key.seeded or type(self.draws) is not Draws

    @property
    def public(self) -> PublicRandomness:
        return self._public

    def token(self, name: str) -> Token:
        """The next event of that name that was counted, to be drawn from."""
        for i, (each, event) in enumerate(self._waiting):
            if each == name:
                del self._waiting[i]
                budget = _Budget(name, event.count)
                token = Token(self, event, budget)
                token._law = self._failing(name)
                token._chance.units = 0.0 if token._law is None else token._law.failure
                if not token._sides:
                    self.track(budget)
                if token.samples:  # as many batches as steps
                    self.track(token._batches)
                if isinstance(event, Iterated):  # and each pass ends at random, once
                    self.track(token._stops)
                for side in token._sides:  # it draws nothing by itself, and each part once
                    self.track(side)
                return token
        raise ReleaseError(f"{name} asks for a release that was not counted")

    def _failing(self, name: str) -> Failure | None:
        """The next failure of that name that was counted."""
        for i, (each, event) in enumerate(self._failures):
            if each == name:
                del self._failures[i]
                return event
        return None

    def run(self, counted: Sequence[tuple[str, Event]]) -> Releases:
        """A run of the same key with what was counted for it; for this module alone."""
        return Releases(self._key, counted, draws=self.draws, unit=self.unit)

    def part_of(self, counted: Sequence[tuple[str, Event]]) -> Releases:
        """The same, which this one waits for; for this module alone."""
        self._open.append(self.run(counted))
        return self._open[-1]

    def child(self, label: str, step: int = 0) -> Releases:
        """A run with a key of its own, and nothing that it may draw by itself."""
        return Releases(self._key.child(label, step), (), draws=self.draws, unit=self.unit)

    def keyed(self, other: Releases) -> Releases:
        """What this run may draw, from the streams of another."""
        same = copy.copy(self)
        same._key, same._public = other._key, other._public
        return same

    def track(self, budget: _Budget) -> None:
        self._budgets.append(budget)

    def open(self, label: str, step: int, worker: int) -> Stream:
        """A stream of the run; for this module alone."""
        return self._key.stream(label, step, worker)

    def close(self, *, failed: bool = False) -> None:
        """Require that all that was counted was drawn; or, at a failed test, what was begun before.

        Whether this holds is a matter of the plan, never of the rows.
        """
        for part in self._open:
            part.close(failed=failed)
        begun = [budget for budget in self._budgets if budget.used or not failed]
        unused = [budget.name for budget in begun if not budget.spent]
        unused += [] if failed else [name for name, _ in self._waiting]
        if unused:
            raise ReleaseError(
                f"{' and '.join(dict.fromkeys(unused))} was counted and not drawn: the account "
                "and the run have parted"
            )
