"""A search for neighbouring tables that break a claimed drift.

A `Pair` holds two tables that differ by replacing row 0; the other rows are common, aligned, and
may have drifted already. `outcome` sends both copies through the *real* stages, fitted on each
copy by itself, and compares what became of the common rows with what the stages claim. `worst`
looks for the pair with the largest ratio: random tables, tables made to hurt, and hill climbing
from the best of them.

Conditions (a gap, a floor, few gaps) are not guessed: a stage is made for the pair at hand, with
the strongest condition that both copies satisfy, so each pair is held against the smallest claim
that could be made for it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from tests.seam import paid

from tacit.data.rows import Rows, as_rows
from tacit.mechanisms.random_streams import Key
from tacit.preprocessing import (
    ClipNorm,
    NoiselessImpute,
    NoiselessPCA,
    NoiselessScale,
    SoftPCA,
    Stage,
)
from tacit.preprocessing.base import Context, NoiselessStage
from tacit.privacy.sensitivity import drift as rules
from tacit.privacy.sensitivity.drift import Drift

NUMBERS = ("l1", "linf", "l2")
KEY = Key.from_seed("attack")  # noiseless stages draw nothing

#: A stage for two copies of the rows that come in, and their norm bound; None if they satisfy no
#: condition at all.
Maker = Callable[[np.ndarray, np.ndarray, float], "Stage | None"]


@dataclass(frozen=True)
class Pair:
    """Neighbours: row 0 is replaced, the others are the same people's."""

    first: np.ndarray
    second: np.ndarray
    bound: float = 1.0

    @property
    def n(self) -> int:
        return len(self.first)

    @property
    def d(self) -> int:
        return self.first.shape[1]

    def drift(self) -> Drift:
        """What the common rows have drifted by, exactly."""
        total, each, moved, energy = moves(self.first, self.second)
        return Drift(self.bound, total, each, moved, energy)


@dataclass(frozen=True)
class Outcome:
    """What became of a pair, and what had been claimed."""

    pair: Pair
    claimed: Drift
    actual: dict[str, float]
    moved: int
    rows: tuple[np.ndarray, np.ndarray]
    margins: tuple[float, float] = (math.inf, math.inf)

    def ratio(self, name: str) -> float:
        claim = getattr(self.claimed, name)
        if not claim:
            return math.inf if self.actual[name] else 0.0
        return self.actual[name] / claim

    @property
    def sound(self) -> bool:
        """Whether the claim held."""
        return self.moved <= self.claimed.l0 and all(
            self.ratio(name) <= 1 + 1e-9 for name in NUMBERS
        )


def moves(first: np.ndarray, second: np.ndarray) -> tuple[float, float, int, float]:
    """Σ‖dᵢ‖, max‖dᵢ‖, how many dᵢ are not zero, and (Σ‖dᵢ‖²)^½, over the common rows."""
    gaps = np.isnan(first[1:])
    assert (gaps == np.isnan(second[1:])).all(), "common rows lack the same values"
    apart = np.where(gaps, 0.0, first[1:] - second[1:])
    lengths = np.sqrt((apart**2).sum(axis=1))
    changed = int(apart.any(axis=1).sum())
    return float(lengths.sum()), float(lengths.max(initial=0.0)), changed, float(_norm(lengths))


def outcome(makers: Sequence[Maker], pair: Pair, incoming: Drift | None = None) -> Outcome | None:
    """Both copies through the stages; None where no condition can be satisfied."""
    drift = pair.drift() if incoming is None else incoming
    copies = [as_rows(table, bound=pair.bound, gaps=True) for table in (pair.first, pair.second)]
    margins = [math.inf, math.inf]
    for make in makers:
        assert copies[0].bound is not None
        stage = make(_held(copies[0]), _held(copies[1]), copies[0].bound)
        if stage is None:
            return None
        d = copies[0].d
        for i, rows in enumerate(copies):
            fitted = copy.copy(stage).fit(rows, paid(pair.n, KEY, drift=drift))
            if isinstance(fitted, NoiselessStage):
                margins[i] = min(margins[i], fitted.margin)
            copies[i] = as_rows(_held(fitted.through(rows)), gaps=True)
            copies[i] = replace(copies[i], bound=stage.bound(rows.bound, d))
        drift = stage.drift(drift, pair.n, d)
    if min(margins) < 0:
        return None
    tables = (_held(copies[0]), _held(copies[1]))
    total, each, moved, energy = moves(*tables)
    actual = {"l1": total, "linf": each, "l2": energy}
    return Outcome(pair, drift, actual, moved, tables, (margins[0], margins[1]))


def worst(
    makers: Sequence[Maker],
    starts: Iterable[Pair],
    *,
    by: str = "l1",
    rounds: int = 100,
    climbs: int = 2,
    drifts: bool = False,
    seed: int = 0,
) -> Outcome:
    """The pair with the largest ratio found; a pair that breaks the claim on the way is raised."""

    def score(pair: Pair) -> float:
        result = checked(makers, pair)
        return -math.inf if result is None else result.ratio(by)

    best = climb(score, starts, rounds=rounds, climbs=climbs, drifts=drifts, seed=seed)
    result = outcome(makers, best)
    assert result is not None, "no pair satisfies the condition"
    return result


def climb(
    score: Callable[[Pair], float],
    starts: Iterable[Pair],
    *,
    rounds: int = 100,
    climbs: int = 2,
    drifts: bool = False,
    seed: int = 0,
) -> Pair:
    """The pair with the highest score: the best starts, then steps that lead upwards."""
    rng = np.random.default_rng(seed)
    met = sorted(((score(pair), i, pair) for i, pair in enumerate(starts)), reverse=True)
    best, _, peak = met[0]
    for high, _, start in met[:climbs]:
        step, here = 0.2, start
        for _ in range(rounds):
            tried = nudged(here, rng, step, drifts=drifts)
            found = score(tried)
            step = max(step * 0.9, 1e-4)
            if found > high:
                high, here, step = found, tried, min(step * 1.6, 0.5)
        if high > best:
            best, peak = high, here
    return peak


class Broken(AssertionError):
    """A pair moved farther than claimed."""


def checked(makers: Sequence[Maker], pair: Pair) -> Outcome | None:
    """As `outcome`, and raises if the claim does not hold."""
    result = outcome(makers, pair)
    if result is not None and not result.sound:
        ratios = {name: result.ratio(name) for name in NUMBERS}
        raise Broken(f"{ratios}, moved {result.moved} of {result.claimed.l0}\n{pair}")
    return result


# --- pairs --------------------------------------------------------------------------------------


def random_pairs(
    rng: np.random.Generator,
    count: int,
    *,
    drift: float = 0.0,
    gaps: float = 0.0,
    columns: Sequence[int] | None = None,
    shape: tuple[int, int] | None = None,
    bound: float = 1.0,
) -> Iterable[Pair]:
    """Tables of all sorts: long or short rows, in a few directions or all, near each other or not.

    ``drift`` is how far common rows may lie apart, in bounds; ``gaps`` which part of them lacks
    cells, in ``columns`` only if those are given.
    """
    for _ in range(count):
        n, d = shape or (int(rng.integers(4, 40)), int(rng.integers(2, 5)))
        spectrum = rng.random(d) ** rng.integers(0, 4)
        rows = rng.normal(size=(n + 1, d)) * spectrum + rng.normal(size=d) * rng.integers(0, 2)
        if rng.random() < 0.4:
            rows = rng.choice([-1.0, 0.0, 1.0], size=(n + 1, d)) * spectrum
        if rng.random() < 0.5:
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        rows = into_ball(rows * bound, bound)
        first, second = rows[:n].copy(), np.vstack([rows[n:], rows[1:n]])
        if drift:
            which = rng.random((n - 1, 1)) < rng.random()
            apart = rng.normal(size=(n - 1, d)) * which * rng.random() * drift
            second[1:] = into_ball(second[1:] + apart * bound, bound)
        if gaps:
            lacking = (rng.random((n + 1, d)) < 0.6) & (rng.random((n + 1, 1)) < gaps)
            if columns is not None:
                lacking[:, [j for j in range(d) if j not in columns]] = False
            first[lacking[:n]] = np.nan
            second[1:][lacking[1:n]] = np.nan
            second[0][lacking[n]] = np.nan
        yield Pair(first, second, bound)


def nudged(pair: Pair, rng: np.random.Generator, step: float, *, drifts: bool) -> Pair:
    """A pair nearby: rows moved a little, brought back into the ball; gaps stay where they are."""
    first, second = pair.first.copy(), pair.second.copy()
    n, d = first.shape
    size = step * pair.bound
    kind = rng.integers(0, 4)
    if kind <= 1:  # the replaced row
        for table in (first, second):
            table[0] += rng.normal(size=d) * size * (rng.random() < 0.7)
    which = rng.random((n, 1)) < (1.0 if kind == 2 else min(1.0, 3 / n))
    which[0] = False
    if kind >= 1:
        common = rng.normal(size=(n, d)) * which * size
        first += common
        second += common
    if drifts and kind >= 1:
        second += rng.normal(size=(n, d)) * which * size
    return Pair(into_ball(first, pair.bound), into_ball(second, pair.bound), pair.bound)


def into_ball(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows whose observed values are longer than the bound, shortened to it."""
    lengths = np.sqrt(np.nansum(rows**2, axis=1, keepdims=True))
    return rows * np.minimum(1.0, bound / np.maximum(lengths, 1e-300))


# --- pairs made to hurt: the cases of equality in the proofs, docs/drift.md ---------------------


def pair_of(first: ArrayLike, second: ArrayLike, common: np.ndarray, drifted: Any = None) -> Pair:
    """z₁ against z₂, on common rows that are the same or have drifted."""
    other = common if drifted is None else drifted
    return Pair(np.vstack([first, common]), np.vstack([second, other]))


def opposite(n: int = 200) -> Pair:
    """z = ±e and all others at e: the mean moves by 2/n (rule c1)."""
    return pair_of([1.0, 0.0], [-1.0, 0.0], np.tile([1.0, 0.0], (n - 1, 1)))


def mean_against_patterns(n: int = 4000, lacking: int = 40) -> Pair:
    """z₁ and z₂ lack different values, and all others pull the other way (rule c2)."""
    h = math.sqrt(0.5)
    common = np.tile([0.0, -h, -h], (n - 1, 1))
    common[:lacking] = np.nan
    return pair_of([h, h, np.nan], [-h, np.nan, h], common)


def trimmed_jump(n: int = 400, lacking: int = 5) -> Pair:
    """Half the rows at one end and half at the other, and z changes sides (rule c2, trimmed)."""
    common = np.full((n - 1, 1), -1.0)
    common[: n // 2] = 1.0
    common[-lacking:] = np.nan
    return pair_of([1.0], [-1.0], common)


def median_jump(n: int = 41, lacking: int = 5) -> Pair:
    """As many rows at one end as at the other, so that z decides the median (rule c3)."""
    h = math.sqrt(0.5)
    common = np.full((n - 1, 2), np.nan)
    half = (n - 1 - lacking) // 2
    common[:half], common[half : 2 * half] = h, -h
    return pair_of([h, h], [-h, -h], common)


def lonely_column(n: int = 300) -> Pair:
    """No common row has the second cell, so z alone decides what fills it (rule c2, shrunk)."""
    common = np.zeros((n - 1, 2))
    common[:, 1] = np.nan
    return pair_of([0.0, 1.0], [0.0, -1.0], common)


def drifted_column(n: int = 100, lacking: int = 10, step: float = 0.5) -> Pair:
    """Every row moves the same way, and so do the means that fill gaps."""
    common = np.zeros((n - 1, 2))
    common[:lacking, 1] = np.nan
    drifted = common.copy()
    drifted[lacking:, 1] = step
    return pair_of([0.0, 1.0], [0.0, 1.0], common, drifted)


def turned(n: int = 200, share: float = 0.6) -> Pair:
    """z = (1, ±1)/√2 turns the first component, and no row is spared (rule d1)."""
    common = np.zeros((n - 1, 2))
    along = round(share * (n - 1))
    common[:along, 0] = common[along:, 1] = 1.0
    common[::2] *= -1
    h = math.sqrt(0.5)
    return pair_of([h, h], [h, -h], common)


def turned_about_the_mean(n: int = 401, share: float = 0.548, wide: float = 1.8795) -> Pair:
    """Rows on a circle about a mean that lies far out, z on the other side of it (rule d1)."""
    along = round(share * (n - 1) / 2) * 2
    angles = np.full(n - 1, wide)
    angles[:along] = 0.0
    angles[along::2] *= -1
    common = np.column_stack([np.cos(angles), np.sin(angles)])
    s = 0.9111
    return pair_of([-math.cos(s), math.sin(s)], [-math.cos(s), -math.sin(s)], common)


def soft_pca_swap(strength: float, n: int = 401) -> Pair:
    """Rows ±√λ·e₁ and z = (e₁ ± e₂)/√2: the case of equality of rule d2."""
    common = np.zeros((n - 1, 2))
    common[:, 0] = math.sqrt(strength)
    common[::2] *= -1
    h = math.sqrt(0.5)
    return pair_of([h, h], [h, -h], common)


def soft_pca_stretch(strength: float, n: int = 401, step: float = 0.3) -> Pair:
    """Rows where the gain is steepest, v = 3λ, all of them stretched (rule d2)."""
    common = np.zeros((n - 1, 2))
    common[:, 0] = math.sqrt(3 * strength)
    common[::2] *= -1
    z = [math.sqrt(0.5), math.sqrt(0.5)]
    return pair_of(z, z, common * (1 - step / 2), common * (1 + step / 2))


def stretched(length: float, n: int = 2001, step: float = 0.5) -> Pair:
    """Short rows on both sides of zero, all of them stretched: means stay, scales hardly move."""
    common = np.zeros((n - 1, 1))
    common[:, 0] = length
    common[::2] *= -1
    return pair_of([0.0], [0.0], common * (1 - step / 2), common * (1 + step / 2))


def second_moment_swap(strength: float, n: int = 400) -> Pair:
    """Two columns of second moment λ/2; z moves from one to the other (rule e)."""
    common = np.zeros((n - 1, 2))
    common[:] = math.sqrt(strength / 2)
    common[::2, 0] *= -1
    common[::4] *= -1
    return pair_of([1.0, 0.0], [0.0, 1.0], common)


def variance_swap(variance: float, n: int = 400) -> Pair:
    """A column of this variance far from its mean's mirror image, where z may stand (rule e)."""
    deviation = math.sqrt(variance)
    common = np.zeros((n - 1, 1))
    common[:, 0] = 1 - 2 * deviation
    common[::2, 0] = 1.0
    return pair_of([-1.0], [1.0], common)


def ridge_lever(strength: float, n: int = 1000, lacking: int = 5) -> Pair:
    """Weights of the largest norm there is, along e₁; z turns them towards e₂ (rule f)."""
    a = math.sqrt(strength)
    common = np.tile([a, 0.0, math.sqrt(1 - strength)], (n - 1, 1))
    common[:lacking] = [0.0, 1.0, np.nan]
    weight = common[-1, 2] * a * (n - 1 - lacking) / (2 * strength * n - strength * lacking)
    s = np.array([weight, 0.0, -1.0]) / math.hypot(weight, 1.0)
    p = np.array([0.0, 1.0, 0.0])
    h = math.sqrt(0.5)
    return pair_of((p + s) * h, (p - s) * h, common)


def regression_lever(least: float, n: int = 1000, lacking: int = 5) -> Pair:
    """The same for least squares: both predictors at the floor (rule f)."""
    share = 0.35
    along = round(share * (n - 1 - lacking))
    a = math.sqrt(least / share)
    b = math.sqrt(least / (1 - share))
    common = np.zeros((n - 1, 3))
    common[:lacking] = [0.0, 1.0, np.nan]
    common[lacking : lacking + along] = [a, 0.0, math.sqrt(1 - a * a)]
    common[lacking + along :, 1] = b
    weight = math.sqrt(1 - a * a) / a
    s = np.array([weight, 0.0, -1.0]) / math.hypot(weight, 1.0)
    p = np.array([0.0, 1.0, 0.0])
    h = math.sqrt(0.5)
    return pair_of((p + s) * h, (p - s) * h, common)


# --- stages, each with the strongest condition that both copies satisfy -------------------------


def always(stage: Stage) -> Maker:
    return lambda first, second, bound: stage


def clip(radius: float) -> Maker:
    return always(ClipNorm(radius))


def soft_pca(strength: float) -> Maker:
    return always(SoftPCA(strength))


def scale(strength: float, **more: Any) -> Maker:
    return always(NoiselessScale(strength, **more))


def shrunk_mean(strength: float, **more: Any) -> Maker:
    return always(NoiselessImpute("shrunk-mean", strength=strength, **more))


@dataclass
class Center(NoiselessStage):
    """Rows less their mean: rule c1, which no stage uses by itself."""

    def bound(self, radius: float | None, d: int | None = None) -> float | None:
        return None if radius is None else 2 * radius

    def drift(self, incoming: Drift, n: int, d: int | None = None) -> Drift:
        return rules.center(incoming, n)

    def fit(self, rows: Any, context: Context | None = None) -> Self:
        self._mean = _held(rows).mean(axis=0)
        return self

    def apply(self, chunk: np.ndarray) -> np.ndarray:
        return chunk - self._mean


def pca(components: int = 1, *, centered: bool = False) -> Maker:
    """With the lesser of both copies' eigengaps."""

    def make(first: np.ndarray, second: np.ndarray, bound: float) -> Stage | None:
        gap = min(eigengap(rows, components, centered=centered) for rows in (first, second))
        gap -= 2e-11 * bound**2  # what the stage sets aside for its solver
        enough = gap > 1e-6 * bound**2
        return NoiselessPCA(components, gap=gap, centered=centered) if enough else None

    return make


def eigengap(rows: np.ndarray, components: int, *, centered: bool) -> float:
    held = rows - rows.mean(axis=0) * centered
    values = np.linalg.eigvalsh(held.T @ held / (len(rows) - centered))[::-1]
    return float(values[components - 1] - values[components]) if len(values) > components else 0.0


def floor_scale(radius: float | None = None) -> Maker:
    """With the least of both copies' variances."""

    def make(first: np.ndarray, second: np.ndarray, bound: float) -> Stage | None:
        floor = min(float(rows.var(axis=0).min()) for rows in (first, second))
        floor -= 2e-11 * bound**2
        return NoiselessScale(floor=floor, radius=radius) if floor > 1e-6 * bound**2 else None

    return make


def impute(strategy: str, **more: Any) -> Maker:
    """With as many rows with gaps as either copy has, and the steadiness that both have."""

    def make(first: np.ndarray, second: np.ndarray, bound: float) -> Stage | None:
        n, columns = len(first), more.get("columns")
        which = list(range(first.shape[1])) if columns is None else columns
        lacking = max(int(np.isnan(rows[:, which]).any(axis=1).sum()) for rows in (first, second))
        lacking = max(lacking, 1)
        given: dict[str, Any] = {"rows_with_gaps": lacking} | more
        trim = 2 * more.get("trim", 1) if strategy == "trimmed-mean" else 0
        if strategy in ("mean", "trimmed-mean", "median") and n - lacking - 1 - trim < 1:
            return None
        if strategy == "median":
            given["median_change"] = max(
                _unsteady(rows[:, j]) for rows in (first, second) for j in which
            )
            if not 0 < given["median_change"] < math.inf:
                return None
        if strategy == "regression":
            floor = min(least_eigenvalue(rows, which) for rows in (first, second))
            floor -= 2e-11 * bound**2
            if floor < 1e-6 * bound**2:
                return None
            given["floor"] = floor
        return NoiselessImpute(strategy, **given)

    return make


def least_eigenvalue(rows: np.ndarray, which: Sequence[int]) -> float:
    """Of the complete rows' second moment over the columns that are always there."""
    rest = [j for j in range(rows.shape[1]) if j not in which]
    complete = rows[~np.isnan(rows).any(axis=1)][:, rest]
    return float(np.linalg.eigvalsh(complete.T @ complete / len(rows))[0])


def _unsteady(column: np.ndarray) -> float:
    """How wide the middle of a column is, with one place more on either side."""
    ranked = np.sort(column[~np.isnan(column)])
    low, high = (len(ranked) - 1) // 2 - 1, len(ranked) // 2 + 1
    return float(ranked[high] - ranked[low]) if low >= 0 and high < len(ranked) else math.inf


def _held(rows: Rows) -> np.ndarray:
    return np.asarray(rows.collect())


def _norm(values: np.ndarray) -> float:
    return math.sqrt(float((values**2).sum()))
