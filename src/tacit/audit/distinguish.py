"""Many runs on two neighbouring tables, and how well they can be told apart.

After each run an adversary who knows both tables and everything that was released says how much
it speaks for the first. Part of the runs choose how to decide, the others count the errors.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields, replace
from itertools import combinations
from multiprocessing import get_context
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.audit import bounds
from tacit.audit.neighbouring_tables import Pair, Table, targets
from tacit.audit.recorder import Recorder, Release, Replayer
from tacit.data.owners import Owners
from tacit.data.rows import Rows, as_rows
from tacit.engine.engine import one_thread
from tacit.exceptions import InputError, PrivateTestError, TacitError
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Draws
from tacit.plan import CalibratedPlan, Fit
from tacit.plan.fit import Prepared
from tacit.progress import Progress, silent

Observe = Literal["steps", "model"]
#: Confidence from which errors are counted together. That limit is wrong as often as it says: at
#: 95%, one true and tight claim in twenty would be refuted, and far fewer are by two limits.
SURE = 0.99
CHOOSING = 0.2  # part of the runs that choose the test
TRIALS = 2  # runs by which a pair is chosen
TESTS = (
    "likelihood ratio",
    "likelihood ratio of the stages",
    "likelihood ratio of the steps",
    "repeated noise",
)
BATCH = 25  # runs that a process does at once


class Bare(CalibratedPlan):
    """The same plan, without a certificate for each of thousands of runs.

    A null row is one that counts nothing, so a table that lacks it is let in, under the same
    public number of rows.
    """

    @classmethod
    def of(cls, plan: CalibratedPlan, rows: int) -> Bare:
        """The plan, for a table of that many rows."""
        values = {item.name: getattr(plan, item.name) for item in fields(plan)}
        if rows != plan.facts.size and "add_or_remove_one" not in plan.trainer.relations:
            raise InputError(
                f"{plan.trainer.name} takes rows by their position, so a null row cannot be "
                "left out of a table: audit it with neighbors='replace_one'"
            )
        bare = cls(**values)
        object.__setattr__(bare, "fitted", [])
        return bare

    fitted: ClassVar[list[Any]]  # stages as they were fitted, one entry a run

    def validate(self, rows: Rows, init: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        plan = self
        if rows.units != self.facts.size:  # as if their number were private; all else stays public
            plan = replace(self, plan=replace(self.plan, neighbors="add_or_remove_one"))
        super(Bare, plan).validate(rows, init)

    def resolve(self, prepared: Prepared) -> CalibratedPlan:
        found = super().resolve(prepared)
        object.__setattr__(found, "fitted", self.fitted)
        return found

    def certify(self, seeded: bool, fitted: Sequence[Any], *_: Any, **__: Any) -> Any:
        self.fitted.append(fitted)


@dataclass(frozen=True)
class Subject:
    """What is audited: a plan, on two tables."""

    plan: CalibratedPlan
    pair: Pair
    observe: Observe = "steps"

    def run(self, table: Table, key: str, draws: Draws) -> Fit | None:
        """One fit; None if a private test did not pass."""
        plan = self.plan.plan
        rows = as_rows(table.rows, gaps=any(stage.fills_gaps for stage in plan.stages))
        if table.owners is not None:
            rows = replace(rows, owners=Owners.of(table.owners, plan.unit))
        wanted = targets(plan, table.labels, self.plan.classes)
        try:
            with one_thread():  # tables are tiny, and audits run in several processes
                bare = Bare.of(self.plan, rows.units)
                return bare.run(rows, wanted, key=Key.from_seed(key), draws=draws)
        except PrivateTestError:
            return None

    def released(self, table: Table, key: str) -> tuple[list[Release], Fit | None]:
        recorder = Recorder()
        fit = self.run(table, key, recorder)
        return recorder.tape, fit

    def behind(self, table: Table, tape: Sequence[Release], key: str) -> list[np.ndarray]:
        """The sums of a table, had it released what is on the tape."""
        replayer = Replayer(tape)
        self.run(table, key, replayer)
        return replayer.sums

    def scores(self, table: Table, key: str) -> np.ndarray:
        """How much one run on this table speaks for the first one, in several ways."""
        tape, fit = self.released(table, key)
        if self.observe == "model":
            parts = [np.atleast_1d(float(fit is not None))]
            if fit is not None:
                parts += [fit.coef.ravel(), np.ravel(fit.intercept)]
            return np.concatenate(parts)
        first, second = (self.behind(t, tape, key) for t in (self.pair.first, self.pair.second))
        q = float(self.plan.trainer.sampling_probability(self.plan.facts))
        rest = None
        if q < 1 and self.plan.moves is None:
            rest = self.behind(self.pair.common, tape, key)
        ratios = _likelihood(tape, first, second, q, rest)
        stages, steps = (
            sum(ratios[i] for i in _of(tape, *kinds))
            for kinds in (("sum", "rank"), ("step", "weights"))
        )
        return np.array([sum(ratios), stages, steps, _collision(tape, first, second)])


def _of(tape: Sequence[Release], *kinds: str) -> list[int]:
    return [i for i, release in enumerate(tape) if release.kind in kinds]


def _likelihood(
    tape: Sequence[Release],
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    q: float,
    rest: Sequence[np.ndarray] | None,
) -> list[float]:
    """Log-likelihood ratios of what was released: their sum is the best test (Neyman & Pearson).

    Exactly so on full batches. On samples a step holds the row in question with probability q;
    what the others add is left out, along the direction that they all share in the tables of
    `tacit.audit.neighbouring_tables`. After noiseless stages every row is taken for its part q.
    """
    found = []
    for i, (release, one, other) in enumerate(zip(tape, first, second, strict=True)):
        if release.kind in ("test", "choice"):
            found.append(float(one - other))
            continue
        variance = release.deviation**2
        seen, a, b = release.value.ravel(), one.ravel(), other.ravel()
        if release.gamma:  # a density of e^(−‖z‖/scale)
            far = [float(np.linalg.norm(seen - q * total)) for total in (b, a)]
            found.append((far[0] - far[1]) / release.deviation)
            continue
        if release.kind == "step" and q < 1 and rest is not None:
            c = rest[i].ravel()
            a, b = a - c, b - c
            length = float(c @ c)
            if length > 0:
                seen, a, b = (v - c * float(v @ c) / length for v in (seen, a, b))
            found.append(_mixture(seen, a, variance, q) - _mixture(seen, b, variance, q))
            continue
        if release.kind == "step":
            a, b = q * a, q * b
        found.append(float((seen - b) @ (seen - b) - (seen - a) @ (seen - a)) / (2 * variance))
    return found


def _mixture(seen: np.ndarray, shift: np.ndarray, variance: float, q: float) -> float:
    """ln of (1 − q) + q·N(shift)/N(0)."""
    gain = float(seen @ shift - shift @ shift / 2) / variance
    return float(np.logaddexp(math.log1p(-q), math.log(q) + gain))


def _collision(
    tape: Sequence[Release], first: Sequence[np.ndarray], second: Sequence[np.ndarray]
) -> float:
    """Whose sums leave noise that repeats itself: for noise that is used twice."""
    nearest = []
    for sums in (first, second):
        noise = [
            (release.value - total).ravel() / release.deviation
            for release, total in zip(tape, sums, strict=True)
            if release.kind == "step"
        ]
        pairs = [(a, b) for a, b in combinations(noise[:16], 2) if a.size == b.size]
        apart = [float(np.linalg.norm(a - b)) for a, b in pairs]
        nearest.append(math.log(max(min(apart, default=1.0), 1e-9)))
    return nearest[1] - nearest[0]


def separation(subject: Subject, trials: int = TRIALS) -> float:
    """How far apart the two tables' releases lie, in deviations of the noise that was counted.

    For a plan of full batches it is the μ that an unlimited number of runs would find.
    """
    watched = replace(subject, observe="steps")
    found = []
    for i in range(trials):
        key = f"trial {i}"
        tape, _ = watched.released(watched.pair.first, key)
        both = [watched.behind(t, tape, key) for t in (watched.pair.first, watched.pair.second)]
        square = 0.0
        for release, one, other in zip(tape, *both, strict=True):
            if release.kind in ("test", "choice"):
                square += float(one - other) ** 2
            else:
                square += float(((one - other) ** 2).sum()) / release.deviation**2
        found.append(square)
    return math.sqrt(sum(found) / trials)


def worst(subjects: Sequence[Subject]) -> tuple[Subject, dict[str, float]]:
    """The subject whose tables lie farthest apart, and how far each pair's do."""
    apart = [separation(subject) for subject in subjects]
    far: dict[str, float] = {}
    for subject, value in zip(subjects, apart, strict=True):
        far[subject.pair.name] = max(value, far.get(subject.pair.name, 0.0))
    return subjects[int(np.argmax(apart))], far


# --- many runs -----------------------------------------------------------------------------------


def _batch(subject: Subject, secret: str, start: int, stop: int) -> list[np.ndarray]:
    """Runs of these numbers; the even ones are on the first table."""
    tables = (subject.pair.first, subject.pair.second)
    return [subject.scores(tables[i % 2], f"{secret} {i}") for i in range(start, stop)]


def _all_scores(
    subject: Subject, runs: int, jobs: int, secret: str, progress: Progress
) -> list[np.ndarray]:
    spans = [(start, min(start + BATCH, runs)) for start in range(0, runs, BATCH)]
    found: dict[int, list[np.ndarray]] = {}

    def note(start: int, scores: list[np.ndarray]) -> None:
        found[start] = scores
        progress("audit", sum(map(len, found.values())), runs)

    if jobs == 1:
        for start, stop in spans:
            note(start, _batch(subject, secret, start, stop))
    else:
        try:
            with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
                asked = {pool.submit(_batch, subject, secret, *span): span[0] for span in spans}
                for done in as_completed(asked):
                    note(asked[done], done.result())
        except BrokenProcessPool:
            raise TacitError(
                "a process of the audit ended early. In a script, several processes need its "
                "code behind  if __name__ == '__main__':  ; or pass jobs=1"
            ) from None
    return [score for start, _ in spans for score in found[start]]


def processes(jobs: int | None) -> int:
    """How many processes to use: the one that we are in, unless more are asked for; −1 is all."""
    if jobs is None:
        return 1
    if jobs == -1:
        try:
            return len(os.sched_getaffinity(0))
        except AttributeError:  # not on every platform
            return os.cpu_count() or 1
    if jobs < 1:
        raise TacitError(f"jobs={jobs!r} must be at least 1, or -1 for all cores")
    return int(jobs)


@dataclass(frozen=True)
class Found:
    """What many runs showed.

    Attributes
    ----------
    lower : float
        Lower bound on the ε of the plan's account, whatever noise it has.
    assuming_nothing : float
        Lower bound on the ε of any mechanism that errs so rarely, from the same runs.
    false_positives, negatives, false_negatives, positives : int
        How often the second table was taken for the first, of how many; and the reverse.
    test : str
        By which score.
    together : bool
        Whether errors of both kinds were counted as one.
    """

    lower: float
    assuming_nothing: float
    false_positives: int
    negatives: int
    false_negatives: int
    positives: int
    test: str
    together: bool


def distinguish(
    subject: Subject,
    *,
    runs: int,
    confidence: float,
    jobs: int = 1,
    seed: int | str | None = None,
    progress: Progress = silent,
) -> Found:
    """A lower bound on ε from this many runs, half of them on each table."""
    secret = secrets.token_hex(16) if seed is None else f"audit {seed}"
    scores = _all_scores(subject, runs, jobs, secret, progress)
    first, second = _matrix(scores[::2], scores[1::2])
    cut = [max(1, round(CHOOSING * len(side))) for side in (first, second)]
    chosen, held = (first[: cut[0]], second[: cut[1]]), (first[cut[0] :], second[cut[1] :])
    if subject.observe == "model":
        rotate = _contrast(*chosen)
        chosen = (rotate(chosen[0]), rotate(chosen[1]))
        held = (rotate(held[0]), rotate(held[1]))
    column, threshold, together = _choose(chosen, held, confidence)
    missed = int((held[0][:, column] <= threshold).sum())
    taken = int((held[1][:, column] > threshold).sum())
    count = bounds.Errors(taken, len(held[1]), missed, len(held[0]))
    claim = subject.plan.plan
    events = [event for _, event in subject.plan.spent]
    how: dict[str, Any] = {"delta": claim.budget.delta, "confidence": confidence}
    how["together"] = together
    lower = bounds.accounted_lower(count, events=events, neighbors=claim.neighbors, **how)
    test = "linear contrast" if subject.observe == "model" else TESTS[column]
    return Found(lower, bounds.lower(count, **how), *count, test, together)


def _choose(
    chosen: tuple[np.ndarray, np.ndarray], held: tuple[np.ndarray, np.ndarray], confidence: float
) -> tuple[int, float, bool]:
    """Which score to use, above which value to say "first", and how to count the errors.

    From the chosen runs alone. The first score, half-way between the tables, with errors
    counted together, unless something else is clearly better.
    """
    n, m = len(held[1]), len(held[0])
    ways = (True, False) if n == m and confidence >= SURE else (False,)
    found = []
    for j in range(chosen[0].shape[1]):
        first, second = chosen[0][:, j], chosen[1][:, j]
        both = np.quantile(np.concatenate([first, second]), np.linspace(0.1, 0.9, 9))
        for value in [(np.median(first) + np.median(second)) / 2, *both]:
            # Half an error more: a rate of zero in a few runs is luck.
            missed = (float((first <= value).sum()) + 0.5) / (len(first) + 1)
            taken = (float((second > value).sum()) + 0.5) / (len(second) + 1)
            count = bounds.Errors(math.ceil(taken * n), n, math.ceil(missed * m), m)
            for together in ways:
                mu = bounds.mu_of_rates(*bounds.rates(count, confidence, together=together))
                found.append((mu, j, float(value), together))
    best = max(found)
    _, column, threshold, how = best if best[0] > 1.25 * found[0][0] + 0.1 else found[0]
    return column, threshold, how


def _matrix(*sides: list[np.ndarray]) -> list[np.ndarray]:
    """One row a run; where a test failed there is nothing to see, which is seen as zeros."""
    width = max(len(row) for side in sides for row in side)
    return [np.array([np.pad(row, (0, width - len(row))) for row in side]) for side in sides]


def _contrast(first: np.ndarray, second: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The direction that tells two clouds apart (Fisher 1936), learned on runs set aside."""
    spread = (np.cov(first.T) + np.cov(second.T)) / 2
    size = np.trace(spread) / len(spread)
    spread = spread + 1e-6 * (size or 1.0) * np.eye(len(spread))
    direction = np.linalg.solve(spread, first.mean(axis=0) - second.mean(axis=0))
    return lambda rows: (rows @ direction)[:, None]
