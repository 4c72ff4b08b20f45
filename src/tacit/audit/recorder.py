"""What a plan releases on its way, and what it would have released from another table.

Nothing in `tacit` is patched: a run is handed other `tacit.mechanisms.release.Draws`. A `Recorder`
draws real noise and keeps what was released. A `Replayer` releases it again, without noise, and
keeps what the sums were: given what was released before, that is a function of the table alone,
since all noise enters there. A mechanism that is new is seen the day it is written.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import log_ndtr, logsumexp

from tacit.mechanisms.random_streams import Stream
from tacit.mechanisms.release import BoundedSum, Draws
from tacit.plan import CalibratedPlan
from tacit.privacy.ptr import TEST

Kind = Literal["step", "sum", "rank", "keys", "test", "score", "weights"]
KINDS: dict[str, Kind] = {"step": "step", "sum": "sum", "votes": "rank", "score": "score"}


@dataclass(frozen=True)
class Release:
    """One noisy number, vector or matrix.

    Attributes
    ----------
    kind : {"step", "sum", "rank", "keys", "test", "score", "weights"}
        A step of training, what a private stage released, votes of its search for a quantile,
        counts of keys that reached a threshold,
        what was chosen (whether a test passed, a cell, or a model), the score of a trial, or the
        weights of a run whose steps stay hidden.
    value : ndarray
        As released, in numbers; votes in votes.
    deviation : float
        Standard deviation of the noise that was counted, for vectors and matrices.
    start : int
        First column, for a step's sum over a part of the columns.
    source : str
        Label and number of the stream that its noise is from.
    gamma : bool
        Whether the noise has a density of e^(−‖z‖/deviation), and is no Gaussian.
    keys : tuple
        What was released besides, and whose counts the values are.
    """

    kind: Kind
    value: np.ndarray
    deviation: float = 1.0
    start: int = 0
    source: str = "'noise', 0, 0"
    gamma: bool = False
    keys: tuple[Hashable, ...] = ()


class Tape(list[Release]):
    """Releases in their order, and how many noise values were drawn for them."""

    draws: int = 0

    def events(self, plan: CalibratedPlan) -> dict[str, int]:
        """Names of the events that releases belong to, and how often each was met."""
        trainer = plan.trainer
        own = {"noise": trainer.name, "moment": trainer.name, "weights": trainer.name}
        own |= {"choice": f"{trainer.name} choice", "test": TEST}
        finder = plan.plan.target
        own |= {} if finder is None else {"target": finder.name}
        found: dict[str, set[object]] = {}
        for number, release in enumerate(self):
            label, step, _ = ast.literal_eval(f"({release.source},)")
            if label not in own:  # all that a stage releases is one event
                found.setdefault(plan.plan.stages[step].name, set()).add(step)
            elif label == "target":  # all of it is one event
                found.setdefault(own[label], set()).add(step)
            elif not release.start:  # of a step in two parts, the first
                found.setdefault(own[label], set()).add(number)
        counts = {name: len(seen) for name, seen in found.items()}
        if trainer.groups > 1:  # a row is met in the steps of its group
            counts[trainer.name] = math.ceil(counts[trainer.name] / trainer.groups)
        return counts


def _numbers(total: BoundedSum, values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64) * total.unit if total.exact else values


def _full(upper: np.ndarray) -> np.ndarray:
    """A symmetric matrix: every number beside the diagonal twice, with half the variance."""
    return np.triu(upper) + np.triu(upper, 1).T


class Recorder(Draws):
    """Draws as ever, and keeps what was released on `tape`."""

    def __init__(self) -> None:
        self.tape = Tape()

    def _keep(
        self,
        kind: Kind,
        value: Any,
        stream: Stream,
        deviation: float = 1.0,
        start: int = 0,
        *,
        gamma: bool = False,
    ) -> None:
        kept = Release(kind, np.array(value), deviation, start, stream.name, gamma)
        self.tape.append(kept)

    def gaussian(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        noisy = super().gaussian(total, deviation, stream)
        self.tape.draws += noisy.size
        self._keep(KINDS[total.kind], _numbers(total, noisy), stream, deviation, total.start)
        return noisy

    def keys(
        self,
        total: BoundedSum,
        keys: Sequence[Hashable],
        deviation: float,
        threshold: int,
        stream: Stream,
    ) -> dict[Hashable, int]:
        found = super().keys(total, keys, deviation, threshold, stream)
        self.tape.draws += len(keys)
        counts = np.array(list(found.values()), dtype=np.int64)
        release = Release("keys", _numbers(total, counts), deviation, 0, stream.name)
        self.tape.append(replace(release, keys=tuple(found)))
        return found

    def hidden(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        self.tape.draws += total.values.size
        return super().hidden(total, deviation, stream)

    def iterate(self, weights: np.ndarray, deviation: float) -> np.ndarray:
        source = "'weights', 0, 0"
        self.tape.append(Release("weights", weights.copy(), deviation, source=source))
        return weights

    def symmetric(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        noisy = super().symmetric(total, deviation, stream)
        self.tape.draws += len(noisy) * (len(noisy) + 1) // 2
        self._keep("sum", _full(_numbers(total, noisy)), stream, deviation)
        return noisy

    def reports(self, total: BoundedSum, deviation: float, rows: int, stream: Stream) -> np.ndarray:
        """Of reports, a listener who only sees their sum; each of them hides no less."""
        noisy = super().reports(total, deviation, rows, stream)
        self.tape.draws += noisy.size * (rows if total.exact else 1)
        self._keep("step", _numbers(total, noisy), stream, deviation * math.sqrt(rows))
        return noisy

    def gamma(self, total: BoundedSum, scale: float, stream: Stream) -> np.ndarray:
        noisy = super().gamma(total, scale, stream)
        self.tape.draws += noisy.size
        self._keep("step", noisy, stream, scale, total.start, gamma=True)
        return noisy

    def above(self, value: float, threshold: float, deviation: float, stream: Stream) -> bool:
        passed = super().above(value, threshold, deviation, stream)
        self.tape.draws += 1
        self._keep("test", passed, stream)
        return passed

    def choose(self, utilities: Any, noise: float, stream: Stream) -> int:
        chosen = super().choose(utilities, noise, stream)
        self.tape.draws += 1
        self._keep("test", chosen, stream)
        return chosen

    def cell(
        self, first: Sequence[int], weights: Sequence[int], masses: Sequence[int], stream: Stream
    ) -> int:
        found = super().cell(first, weights, masses, stream)
        self.tape.draws += 1
        self._keep("test", found, stream)
        return found


class Replayer(Draws):
    """Releases what is on the tape, whatever the table; keeps the sums behind it as `sums`.

    Batches are all rows: which ones were drawn is secret. Steps that nobody sees have no noise. For
    a test or a selection, the logarithm of the probability of its outcome is kept.
    """

    def __init__(self, tape: Sequence[Release]) -> None:
        self.sums: list[np.ndarray] = []
        self._left = iter(tape)

    def _again(self, total: BoundedSum) -> np.ndarray:
        """In units of the lattice: released numbers are multiples of them, so none is lost."""
        value = next(self._left).value.reshape(total.values.shape)
        return np.rint(value / total.unit).astype(np.int64) if total.exact else value

    def gaussian(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        self.sums.append(_numbers(total, total.values))
        return self._again(total)

    def keys(
        self,
        total: BoundedSum,
        keys: Sequence[Hashable],
        deviation: float,
        threshold: int,
        stream: Stream,
    ) -> dict[Hashable, int]:
        """The keys that were released, whether or not they occur here; of them, their sums."""
        release = next(self._left)
        here = dict(zip(keys, _numbers(total, total.values).tolist(), strict=True))
        self.sums.append(np.array([here.get(key, 0.0) for key in release.keys]))
        noisy = np.rint(release.value / total.unit).astype(np.int64)
        return dict(zip(release.keys, noisy.tolist(), strict=True))

    def hidden(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        return total.numbers()

    def iterate(self, weights: np.ndarray, deviation: float) -> np.ndarray:
        self.sums.append(weights.copy())  # of a run without noise: what the table alone led to
        return next(self._left).value.copy()

    def symmetric(self, total: BoundedSum, deviation: float, stream: Stream) -> np.ndarray:
        self.sums.append(_full(_numbers(total, total.values)))
        return self._again(total)

    def reports(self, total: BoundedSum, deviation: float, rows: int, stream: Stream) -> np.ndarray:
        return self.gaussian(total, deviation, stream)

    def gamma(self, total: BoundedSum, scale: float, stream: Stream) -> np.ndarray:
        self.sums.append(total.numbers())
        return next(self._left).value

    def above(self, value: float, threshold: float, deviation: float, stream: Stream) -> bool:
        passed = bool(next(self._left).value)
        room = -math.inf if math.isnan(value) else (value - threshold) / deviation
        side = 1 if passed else -1
        self.sums.append(np.asarray(log_ndtr(side * max(min(room, 1e6), -1e6))))
        return passed

    def choose(self, utilities: Any, noise: float, stream: Stream) -> int:
        chosen = int(next(self._left).value)
        exponents = np.asarray(utilities, dtype=np.float64) / noise
        self.sums.append(np.asarray(exponents[chosen] - logsumexp(exponents)))
        return chosen

    def cell(
        self, first: Sequence[int], weights: Sequence[int], masses: Sequence[int], stream: Stream
    ) -> int:
        found = int(next(self._left).value)
        run = int(np.searchsorted(first, found, "right")) - 1
        chance = math.log(max(masses[run], 1)) - math.log(weights[run]) - math.log(sum(masses))
        self.sums.append(np.asarray(chance))
        return found

    def batch(self, n: int, probability: float, stream: Stream) -> np.ndarray:
        return np.arange(n, dtype=np.intp)
