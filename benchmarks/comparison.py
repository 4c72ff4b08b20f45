"""Several methods on the same rows at the same ε and δ: fits that are remembered, and who is ahead.

A benchmark names its methods, says how to load data and what a fit is worth, and leaves the rest
to `compare`: every fit is kept in a file, so an interrupted run goes on where it stopped.

A verdict is about these methods on these rows. It says nothing about rivals that are left out, and
where the data are those by which settings were chosen, it says less than it seems: whoever counts
verdicts says so beside the count (``CAVEAT`` in ``run.py``).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.exceptions import FileError

OURS = "Tacit"


def installed(package: str | None) -> bool:
    try:
        return package is None or bool(__import__(package))
    except ImportError:
        return False


def verdict(lead: float, error: float) -> str:
    """Who is ahead: nobody, unless by more than two standard errors."""
    if np.isnan(error):
        return "not judged"
    if abs(lead) <= 2 * error:
        return "level"
    return "ahead" if lead > 0 else "behind"


def standard_error(runs: int, *spreads: float) -> float:
    """Of a difference of means over so many runs, each with such a standard deviation."""
    return float(np.sqrt(np.square(spreads).sum() / (runs - 1))) if runs > 1 else float("nan")


class Comparison(ABC):
    """Fits of one data set, each made once and remembered.

    ``only`` asks for nothing but what the cache has. ``place`` names the data in it.
    """

    #: Package that is needed, if any, and what makes a model of rows, ε and a seed.
    methods: ClassVar[Mapping[str, tuple[str | None, Callable[[Any, float, int], Any]]]]

    def __init__(self, title: str, place: str, cache: Path | None, only: bool = False) -> None:
        self.title, self.place, self.cache, self.only = title, place, cache, only
        self.known = json.loads(cache.read_text()) if cache and cache.exists() else {}
        self._halves: tuple[Any, Any] | None = None

    @abstractmethod
    def load(self) -> tuple[Any, Any]:
        """Rows to fit to, and rows to test with."""

    @abstractmethod
    def describe(self, train: Any, test: Any) -> dict[str, Any]:
        """What to say of them."""

    @abstractmethod
    def judge(self, model: Any, test: Any) -> dict[str, float]:
        """What a model is worth."""

    @abstractmethod
    def by(self) -> str:
        """The score that decides; more is better."""

    @property
    def halves(self) -> tuple[Any, Any]:
        if self._halves is None:
            self._halves = self.load()
        return self._halves

    def facts(self) -> dict[str, Any]:
        place = f"{self.place} facts"
        if place not in self.known:
            self.known[place] = self.describe(*self.halves)
            self._write()
        return dict(self.known[place])

    def score(self, method: str, epsilon: float, seed: int) -> dict[str, float] | None:
        place = f"{self.place} {method} {epsilon:g} {seed}"
        package, fit = self.methods[method]
        if place not in self.known:
            if self.only or not installed(package):
                return None
            train, test = self.halves
            start = time.process_time()
            with threadpool_limits(1), warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = self.judge(fit(train, epsilon, seed), test)
            self.known[place] = {**found, "seconds": time.process_time() - start}
            print(f"# {place}: {self.known[place]}", file=sys.stderr, flush=True)
            self._write()
        return dict(self.known[place])

    def _write(self) -> None:
        if self.cache:
            self.cache.write_text(json.dumps(self.known, indent=1))

    def result(self, epsilon: float, seeds: int) -> dict[str, Any] | None:
        """All methods at one ε, and who is ahead; None where there is nobody to compare."""
        found: dict[str, dict[str, float]] = {}
        by = self.by()
        for method in self.methods:
            every = [self.score(method, epsilon, seed) for seed in range(seeds)]
            kept = [run for run in every if run is not None]
            if kept:
                names = [name for name in kept[0] if name != "seconds"]
                found[method] = {name: float(np.mean([r[name] for r in kept])) for name in names}
                found[method] |= {"spread": float(np.std([r[by] for r in kept])), "runs": len(kept)}
        rivals = {name: score[by] for name, score in found.items() if name != OURS}
        if OURS not in found or not rivals:
            return None
        best = max(rivals, key=rivals.__getitem__)
        lead = found[OURS][by] - rivals[best]
        runs = int(min(score["runs"] for score in found.values()))
        error = standard_error(runs, found[OURS]["spread"], found[best]["spread"])
        return {
            "data": self.title,
            "epsilon": epsilon,
            **self.facts(),
            "runs": runs,
            "by": by,
            "scores": found,
            "best_rival": best,
            "lead": lead,
            "error": error,
            "verdict": verdict(lead, error),
        }


def _measured(
    make: Callable[[str, argparse.Namespace], Comparison], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    for name in options.data:
        compared = make(name, options)
        try:
            compared.facts()
        except FileError as error:
            print(f"# {name} is left out: {error}", file=sys.stderr)
            continue
        for epsilon in options.epsilon:
            found = compared.result(epsilon, options.seeds)
            if found is not None:
                yield found


def compare(
    parser: argparse.ArgumentParser,
    sets: Mapping[str, Any],
    make: Callable[[str, argparse.Namespace], Comparison],
    *,
    seeds: int,
    digits: int,
) -> None:
    """The command line of such a benchmark."""
    parser.add_argument("--data", nargs="+", default=list(sets), choices=list(sets))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 0.5, 1.0])
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--cached", action="store_true", help="only fits that the cache has")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for row in _measured(make, options):
        results.append(row)
        if not options.json:
            by = row["by"]
            scores = ", ".join(f"{name} {s[by]:.{digits}f}" for name, s in row["scores"].items())
            print(
                f"{row['data']:<27} epsilon {row['epsilon']:<4g} {by:<8} {scores}; "
                f"{row['verdict']}, {row['lead']:+.{digits}f} ± {row['error']:.{digits}f} "
                f"to {row['best_rival']}",
                flush=True,
            )
    if options.json:
        print(json.dumps(results, indent=2))
