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
from tacit.research.reproduce.together import next_rate
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
FURTHER = 4  # rates beyond the grid, where the best lies at an end of it
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


def suited(
    work: Work, settings: Sequence[Mapping[str, Any]], rates: Sequence[float] = RATES
) -> list[tuple[float, float]]:
    """The best score of every setting, and the rate that has it.

    Means over `SEARCHES` seeds, on the rows for searches. Where the best of the rates is the
    largest or the smallest, further ones are tried, until it has worse on either side.
    """
    tried = [list(rates) for _ in settings]
    found = _scores(work, settings, tried)
    for _ in range(0 if work.quick else FURTHER):
        ends = [next_rate(some, got) for some, got in zip(tried, found, strict=True)]
        left = {i: rate for i, rate in enumerate(ends) if rate is not None}
        if not left:
            break
        more = _scores(work, [settings[i] for i in left], [[rate] for rate in left.values()])
        for (i, rate), got in zip(left.items(), more, strict=True):
            tried[i], found[i] = [*tried[i], rate], [*found[i], *got]
    return [max(zip(got, some, strict=True)) for got, some in zip(found, tried, strict=True)]


def _scores(
    work: Work, settings: Sequence[Mapping[str, Any]], rates: Sequence[Sequence[float]]
) -> list[list[float]]:
    tried = []
    for setting, factors in zip(settings, rates, strict=True):
        rows = int(setting.get("private") or SIZES[str(setting["data"])])
        seeds = list(work.search_seeds(1 if work.quick else SEARCHES))
        here: dict[str, Any] = {"on": "search", "seeds": seeds, **(QUICK if work.quick else {})}
        if not work.quick and rows >= LARGE:
            here |= {"private": rows // PART, "whole": rows}
        tried.append({**setting, **here, "factors": list(factors)})
    return [np.mean(line, axis=1).tolist() for line in work.map(private, tried)]


def search(
    work: Work,
    setting: Mapping[str, Any],
    grids: Sequence[Sequence[Mapping[str, Any]]] = (),
    rates: Sequence[float] = RATES,
) -> dict[str, Any]:
    """The setting with the best of every grid, one grid after the other, and the best rate."""
    chosen, factor = dict(setting), rates[0]
    for grid in grids or [[{}]]:
        found = suited(work, [{**chosen, **each} for each in grid], rates)
        at = max(range(len(grid)), key=found.__getitem__)
        chosen, factor = {**chosen, **grid[at]}, found[at][1]
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
