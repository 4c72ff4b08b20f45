"""What counts as ahead in Pinto et al. 2024, and how settings are found before.

A difference of two means counts if it exceeds two standard errors. Settings are chosen with seeds
and on rows that no result has: half of the test rows are for searches, the other half for results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.research.reproduce.claim import Measured
from tacit.research.reproduce.pinto_fits import private
from tacit.research.reproduce.work import Work

SEARCHES = 2  # seeds of a search
PART = 10  # on large sets it is made on so many times fewer rows, with as much less noise
LARGE = 20_000  # private rows
SIZES = {
    "cifar10": 45_000,
    "cifar100": 45_000,
    "mnist": 54_000,
    "fashion_mnist": 54_000,
    "w8a": 35_775,
    "chest_xray": 3_731,
}
BATCHES: Sequence[dict[str, Any]] = ({}, {"all_rows": True, "steps": 20})
RATES = [2.0, 1.0, 0.5]  # of the automatic one
QUICK = {"all_rows": True, "steps": 12}  # where seconds must do: nothing to calibrate on samples


class Arms(NamedTuple):
    """What is said to be ahead, and what it is said to be ahead of."""

    ours: Measured
    theirs: Measured

    @property
    def lead(self) -> float:
        return self.ours.mean - self.theirs.mean

    @property
    def error(self) -> float:
        return self.ours.error_beside(self.theirs)

    def __str__(self) -> str:
        return f"{self.lead:+.1f} ± {self.error:.1f}"


def ahead(arms: Mapping[str, Arms]) -> tuple[bool, str]:
    """Whether every lead exceeds two standard errors; the leads by name."""
    holds = all(each.lead > 2 * each.error for each in arms.values())
    return holds, ", ".join(f"{each} {name}".strip() for name, each in arms.items())


def larger(pairs: Mapping[str, tuple[Arms, Arms]]) -> tuple[bool, str]:
    """Whether the first of two leads exceeds the second by two standard errors, in every pair."""
    holds = all(
        one.lead - other.lead > 2 * float(np.hypot(one.error, other.error))
        for one, other in pairs.values()
    )
    words = (f"{name}: {one} against {other}" for name, (one, other) in pairs.items())
    return holds, "; ".join(words)


def no_worse(arms: Mapping[str, tuple[Arms, float]]) -> tuple[bool, str]:
    """Whether nothing is behind by as much as its limit, two standard errors taken into account."""
    holds = all(each.lead - 2 * each.error > -limit for each, limit in arms.values())
    return holds, ", ".join(f"{each} {name}".strip() for name, (each, _) in arms.items())


def scores(
    work: Work, settings: Sequence[Mapping[str, Any]], rates: Sequence[float] = RATES
) -> np.ndarray:
    """Means (settings × rates) over `SEARCHES` seeds, on the rows for searches."""
    tried = []
    for setting in settings:
        rows = int(setting.get("private") or SIZES[str(setting["data"])])
        seeds = list(work.search_seeds(1 if work.quick else SEARCHES))
        here: dict[str, Any] = {"on": "search", "seeds": seeds, **(QUICK if work.quick else {})}
        if not work.quick and rows >= LARGE:
            here |= {"private": rows // PART, "whole": rows}
        tried.append({**setting, **here, "factors": list(rates)})
    return np.mean(work.map(private, tried), axis=2)


def search(
    work: Work,
    setting: Mapping[str, Any],
    grids: Sequence[Sequence[Mapping[str, Any]]] = (),
    rates: Sequence[float] = RATES,
) -> dict[str, Any]:
    """The setting with the best of every grid, one grid after the other, and the best rate.

    Every alternative is tried with all rates.
    """
    chosen, factor = dict(setting), rates[0]
    for grid in grids or [[{}]]:
        found = scores(work, [{**chosen, **each} for each in grid], rates)
        at, rate = divmod(int(found.argmax()), len(rates))
        chosen, factor = {**chosen, **grid[at]}, rates[rate]
    return {**chosen, "factors": [factor]}


def measure(
    work: Work, settings: Mapping[Any, Mapping[str, Any]], runs: int | range
) -> dict[Any, Measured]:
    """Means over seeds of settings with one rate each."""
    seeds = list(runs if isinstance(runs, range) else work.run_seeds(runs))
    how = {"seeds": seeds, **(QUICK if work.quick else {})}
    found = work.each(private, {at: {**each, **how} for at, each in settings.items()})
    return {at: Measured.of(scores) for at, (scores,) in found.items()}


def elsewhere(setting: Mapping[str, Any]) -> dict[str, Any]:
    """The same in a random subspace, which no public row has a part in."""
    return {**setting, "source": "random", "count": None}
