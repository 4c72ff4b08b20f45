"""What a plan releases on its way, and what it would have released from another table.

Nothing in `tacit` is changed: while a plan is watched, the few places where noise is added are
wrapped. `recorded` keeps what they return. `replayed` makes them return it again, without noise,
and keeps what the sums were: given what was released before, that is a function of the table
alone, since all noise enters there. That it does is checked: noise that is drawn anywhere else
while a plan is watched raises an error, so no mechanism can be added past the audit. One plan can
be watched at a time in a process.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
from scipy.special import log_ndtr, logsumexp

from tacit.engine import engine
from tacit.exceptions import TacitError
from tacit.mechanisms import mean, moments, quantile, selection
from tacit.mechanisms.additive import BITS, lattice_sum, shorten
from tacit.mechanisms.noise import Key, Stream
from tacit.mechanisms.passes import Passes
from tacit.mechanisms.quantile import VOTE
from tacit.model_selection import search
from tacit.model_selection.search import LOSS_UNIT
from tacit.plan import plan
from tacit.plan.plan import CalibratedPlan
from tacit.preprocessing import private_center as private
from tacit.preprocessing import private_equalize as equalize
from tacit.preprocessing import private_impute, private_pca
from tacit.preprocessing.base import densify
from tacit.privacy.ptr import TEST
from tacit.trainers import flattest, gamma, gradient, iterated, local, noisy_sgd
from tacit.trainers import sufficient_statistics as statistics

__all__ = ["Release", "Tape", "recorded", "replayed"]


@dataclass(frozen=True)
class Release:
    """One noisy number, vector or matrix.

    Attributes
    ----------
    kind : {"step", "sum", "rank", "test", "score", "weights"}
        A step of training, what a private stage released, votes of its search for a quantile,
        what was chosen (whether a test passed, a cell, or a model), the score of a trial, or the
        weights of a run whose steps stay hidden.
    value : ndarray
        As released; votes in votes.
    deviation : float
        Standard deviation of the noise that was counted, for vectors and matrices.
    start : int
        First column, for a step's sum over a part of the columns.
    source : str
        Label and number of the stream that its noise is from.
    gamma : bool
        Whether the noise has a density of e^(−‖z‖/deviation), and is no Gaussian.
    """

    kind: Literal["step", "sum", "rank", "test", "score", "weights"]
    value: np.ndarray
    deviation: float = 1.0
    start: int = 0
    source: str = "'noise', 0, 0"
    gamma: bool = False


class Tape(list[Release]):
    """Releases in their order, and how many noise values were drawn for them."""

    draws: int = 0

    def events(self, plan: CalibratedPlan) -> dict[str, int]:
        """Names of the events that releases belong to, and how often each was met."""
        trainer = plan.trainer
        own = {"noise": trainer.name, "moment": trainer.name, "weights": trainer.name}
        own |= {"choice": f"{trainer.name} choice", "test": TEST}
        found: dict[str, set[object]] = {}
        for number, release in enumerate(self):
            label, step, _ = ast.literal_eval(f"({release.source},)")
            if label not in own:  # all that a stage releases is one event
                found.setdefault(plan.plan.stages[step].name, set()).add(step)
            elif not release.start:  # of a step in two parts, the first
                found.setdefault(own[label], set()).add(number)
        counts = {name: len(seen) for name, seen in found.items()}
        if isinstance(trainer, local.LocalDPGD):  # a row is met in the steps of its group
            counts[trainer.name] = math.ceil(counts[trainer.name] / trainer.groups)
        return counts


def _moment(chunks: Any, bound: float) -> np.ndarray:
    every = Passes.over(chunks)
    rows = np.concatenate([np.asarray(shorten(densify(chunk), bound)) for chunk in every])
    return rows.T @ rows


def _deviation(noise_multiplier: float, bound: float, drift: float) -> float:
    return noise_multiplier * (bound + drift / 2)


# Each wrapper is made for a real function; `keep` is told what was released, or, where `again` is
# given, `again` says what was released and `keep` is told the sum.
Keep = Callable[..., None]
Again = Callable[[], Release]


def _step(real: Any, keep: Keep, again: Again | None) -> Any:
    def add(total: Any, deviations: Sequence[float], key: Any, step: int) -> np.ndarray:
        if again is not None:
            keep(total.float())
            return again().value
        noisy: np.ndarray = real(total, deviations, key, step)
        keep(Release("step", noisy.copy(), float(deviations[0]), total.start))
        return noisy

    return add


def _gamma(real: Any, keep: Keep, again: Again | None) -> Any:
    def add(total: Any, scales: Sequence[float], key: Any, step: int) -> np.ndarray:
        if again is not None:
            keep(total.float())
            return again().value
        noisy: np.ndarray = real(total, scales, key, step)
        keep(Release("step", noisy.copy(), float(scales[0]), total.start, gamma=True))
        return noisy

    return add


def _hidden(real: Any, keep: Keep, again: Again | None) -> Any:
    """Steps that nobody sees: they leave nothing on the tape, and have no noise in a replay."""

    def add(total: Any, deviations: Sequence[float], key: Any, step: int) -> np.ndarray:
        found: np.ndarray = total.float() if again else real(total, deviations, key, step)
        return found

    return add


def _weights(real: Any, keep: Keep, again: Again | None) -> Any:
    def release(weights: np.ndarray, deviation: float) -> np.ndarray:
        if again is not None:
            keep(weights.copy())  # of a run without noise: what the table alone would have led to
            return again().value.copy()
        keep(Release("weights", weights.copy(), deviation, source="'weights', 0, 0"))
        return weights

    return release


def _score(real: Any, keep: Keep, again: Again | None) -> Any:
    def add(total: int, noise_multiplier: float, stream: Any) -> int:
        if again is not None:
            keep(np.asarray(total / LOSS_UNIT))
            return round(float(again().value) * LOSS_UNIT)
        noisy = int(real(total, noise_multiplier, stream))
        value = np.asarray(noisy / LOSS_UNIT)
        keep(Release("score", value, noise_multiplier, source=stream.name))
        return noisy

    return add


def _reports(real: Any, keep: Keep, again: Again | None) -> Any:
    """Of reports, a listener who only sees their sum; each of them hides no less."""

    def add(total: Any, deviations: Sequence[float], key: Any, step: int, rows: int) -> np.ndarray:
        if again is not None:
            keep(total.float())
            return again().value
        noisy: np.ndarray = real(total, deviations, key, step, rows)
        keep(Release("step", noisy.copy(), float(deviations[0]) * math.sqrt(rows)))
        return noisy

    return add


def _sum(real: Any, keep: Keep, again: Again | None) -> Any:
    def add(
        chunks: Any, d: int, bound: float, z: float, stream: Any, *, drift: float = 0.0
    ) -> np.ndarray:
        if again is not None:
            keep(lattice_sum(chunks, d, bound) * math.ldexp(bound, -BITS))
            return again().value.copy()
        noisy: np.ndarray = real(chunks, d, bound, z, stream, drift=drift)
        keep(Release("sum", noisy.copy(), _deviation(z, bound, drift), source=stream.name))
        return noisy

    return add


def _ranks(real: Any, keep: Keep, again: Again | None) -> Any:
    def add(votes: np.ndarray, norm: float, z: float, stream: Any) -> np.ndarray:
        if again is not None:
            keep(votes / VOTE)
            return again().value * VOTE
        noisy: np.ndarray = real(votes, norm, z, stream)
        keep(Release("rank", noisy / VOTE, z * norm, source=stream.name))
        return noisy

    return add


def _cells(real: Any, keep: Keep, again: Again | None) -> Any:
    def choose(cells: Any, bits: int, targets: Any, beta: float, stream: Any) -> np.ndarray:
        if again is not None:
            found = again().value
            keep(np.asarray(_log_chance(cells, bits, targets, beta, found)))
            return found
        found = real(cells, bits, targets, beta, stream)
        keep(Release("test", found, source=stream.name))
        return found

    return choose


def _log_chance(cells: Any, bits: int, targets: Any, beta: float, found: np.ndarray) -> float:
    """Logarithm of the probability with which the exponential mechanism chooses these cells."""
    held, total = Passes.over(cells).merged(quantile.Tally.of, quantile.Tally()), 0.0
    scale = beta * len(targets.fractions) * VOTE
    for j, cell in enumerate(found.tolist()):
        first, weights, gaps = quantile.utilities(held, bits, targets, j)
        exponents = -np.array(gaps, dtype=np.float64) / scale
        run = int(np.searchsorted(first, cell, "right")) - 1
        total += float(exponents[run] - logsumexp(exponents, b=weights))
    return total


def _second_moment(real: Any, keep: Keep, again: Again | None) -> Any:
    def add(chunks: Any, d: int, bound: float, z: float, stream: Any, **more: Any) -> np.ndarray:
        if again is not None:
            keep(_moment(chunks, bound))
            return again().value.copy()
        noisy: np.ndarray = real(chunks, d, bound, z, stream, **more)
        drift = more.get("drift")
        moved = drift.total if drift is not None else 0.0
        # On the diagonal; beside it, every number is there twice with half the variance.
        apart = bound**2 if not moved else math.sqrt(0.5) * bound**2 + bound * moved
        keep(Release("sum", noisy.copy(), z * apart, source=stream.name))
        return noisy

    return add


def _above(real: Any, keep: Keep, again: Again | None) -> Any:
    def above(value: float, threshold: float, deviation: float, stream: Any) -> bool:
        if again is not None:
            passed = bool(again().value)
            side = 1 if passed else -1
            room = -math.inf if math.isnan(value) else (value - threshold) / deviation
            keep(np.asarray(log_ndtr(side * max(min(room, 1e6), -1e6))))
            return passed
        passed = bool(real(value, threshold, deviation, stream))
        keep(Release("test", np.asarray(passed), source=stream.name))
        return passed

    return above


def _choice(real: Any, keep: Keep, again: Again | None) -> Any:
    def choose(utilities: Any, noise_multiplier: float, stream: Any) -> int:
        if again is not None:
            chosen = int(again().value)
            exponents = np.asarray(utilities, dtype=np.float64) / noise_multiplier
            keep(np.asarray(exponents[chosen] - logsumexp(exponents)))
            return chosen
        chosen = int(real(utilities, noise_multiplier, stream))
        keep(Release("test", np.asarray(chosen), source=stream.name))
        return chosen

    return choose


SITES: list[tuple[ModuleType, str, Any]] = [
    (gradient, "_add_noise", _step),
    (gamma, "_add_gamma", _gamma),
    (iterated, "_hidden", _hidden),
    (iterated, "_released", _weights),
    (local, "_add_reports", _reports),
    (statistics, "noisy_second_moment", _second_moment),
    (search, "_noisy_score", _score),
    (equalize, "noisy_sum", _sum),
    (private, "noisy_sum", _sum),
    (moments, "noisy_sum", _sum),
    (mean, "noisy_sum", _sum),
    (quantile, "noisy_ranks", _ranks),
    (quantile, "exponential_search", _cells),
    (private_impute, "noisy_sum", _sum),
    (private_pca, "noisy_second_moment", _second_moment),
    (plan, "noisy_above", _above),
    (flattest, "exponential_choice", _choice),
    (noisy_sgd, "exponential_choice", _choice),
]


@contextmanager
def _replaced(changes: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    kept = [(where, name, getattr(where, name)) for where, name, _ in changes]
    try:
        for where, name, value in changes:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in kept:
            setattr(where, name, value)


#: One thread: tables are tiny, and audits run in several processes.
_ALONE = (engine, "_available_cores", lambda: 1)


class _Guard:
    """Lets noise be drawn at watched places only, and counts its values."""

    def __init__(self) -> None:
        self.draws, self._depth = 0, 0
        Key.fresh()  # which tests the generators, once in a process, with numbers of their own

    def watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **options: Any) -> Any:
            self._depth += 1
            try:
                return real(*given, **options)
            finally:
                self._depth -= 1

        return run

    def changes(self) -> list[tuple[Any, str, Any]]:
        """What is replaced so that nothing draws noise unseen."""
        return [
            (Stream, "discrete_gaussian", self._drawing(Stream.discrete_gaussian, lambda n: n)),
            (Stream, "normal", self._drawing(Stream.normal, lambda n: n)),
            *((m, "pick", self._drawing(selection.pick, lambda _: 1)) for m in CHOICES),
        ]

    def _drawing(self, real: Callable[..., Any], count: Callable[[Any], int]) -> Any:
        def draw(*given: Any) -> Any:
            if not self._depth:
                stream = next(part for part in given if isinstance(part, Stream))
                raise TacitError(
                    f"an audit would not see what {stream.name} is drawn for: name the function "
                    "that adds this noise in tacit.audit.recorder.SITES"
                )
            self.draws += count(given[-1])
            return real(*given)

        return draw


CHOICES = (selection, quantile)  # where an index is drawn by its probability


@contextmanager
def recorded() -> Iterator[Tape]:
    """Keep what is released while a plan runs."""
    tape, guard = Tape(), _Guard()
    wrapped = [
        (m, name, make(guard.watched(getattr(m, name)), tape.append, None))
        for m, name, make in SITES
    ]
    with _replaced([*guard.changes(), *wrapped, _ALONE]):
        yield tape
        tape.draws = guard.draws


@contextmanager
def replayed(tape: Sequence[Release]) -> Iterator[list[np.ndarray]]:
    """Release what is on the tape, whatever the table; keep the sums behind it.

    Batches are all rows: which ones were drawn is secret. For a test or a selection, the logarithm
    of the probability of its outcome is kept.
    """
    sums: list[np.ndarray] = []
    left = iter(tape)
    wrapped = [
        (m, name, make(getattr(m, name), sums.append, lambda: next(left)))
        for m, name, make in SITES
    ]
    everyone = (Stream, "include", lambda self, n, probability: np.arange(n, dtype=np.intp))
    with _replaced([*_Guard().changes(), *wrapped, everyone, _ALONE]):
        yield sums
