"""PILLAR and its rivals on CIFAR features: every method at its best over one shared grid.

    python benchmarks/bench_rivals.py [--data cifar10 cifar100] [--method NAME ...]
                                      [--epsilon 0.1 0.7] [--seeds 5] [--cache FILE] [--json]

A tenth of the training rows is public and without labels, the others are private. The grid is the
same for all: a number of components for those that project, then a factor on the automatic
learning rate. It is searched with one seed on the *test* rows, as papers do: an oracle that
nobody may use on private data, and that no method here has to pay for. The best setting is then
run with every seed. Every fit is kept in the cache, so an interrupted run goes on where it stopped.
Features are read from the directory named by TACIT_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit import DPLinearClassifier, recipe
from tacit.data.rows import as_rows
from tacit.datasets import load_cifar10, load_cifar100
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.privacy import Budget

DELTA = 1e-5
PUBLIC = 5_000
FACTORS = (1.0, 0.25, 0.5, 2.0)  # the automatic rate first
COMPONENTS = (20, 40, 80, 160, 320)
#: What a method takes beside the learning rate: public rows, components, other settings.
METHODS: dict[str, tuple[bool, bool, dict[str, Any]]] = {
    "dpsgd": (False, False, {}),
    "pillar": (True, True, {"center": False}),  # as Pinto et al. 2024 have it
    "jl": (False, True, {}),
    "dp-pca": (False, True, {}),
    "gep": (True, True, {}),
    "adadps": (True, False, {}),
    "dp-raft": (False, False, {}),
    "dp-raft+pillar": (True, True, {}),
}


def load(name: str) -> tuple[np.ndarray, ...]:
    """Public rows, private rows and labels, test rows and labels."""
    rows, labels, test, y_test = load_cifar10() if name == "cifar10" else load_cifar100()
    return rows[:PUBLIC], rows[PUBLIC:], labels[PUBLIC:], test, y_test


class Comparison:
    """Fits of one data set, each made once and remembered."""

    def __init__(self, name: str, cache: Path | None) -> None:
        self.name, self.cache = name, cache
        self.public, self.X, self.y, self.X_test, self.y_test = load(name)
        self.known = json.loads(cache.read_text()) if cache and cache.exists() else {}

    def score(
        self, method: str, epsilon: float, components: int | None, factor: float, seed: int
    ) -> float:
        place = f"{self.name} {method} {epsilon:g} {components} {factor:g} {seed}"
        if place not in self.known:
            public, _, options = METHODS[method]
            given = {**options, **({"public": self.public} if public else {})}
            if components:
                given["n_components"] = components
            plan = recipe(method, **given)
            trainer = self._resolved(plan, epsilon)
            plan["trainer"] = replace(trainer, learning_rate=factor * trainer.learning_rate)
            start = time.perf_counter()
            model = DPLinearClassifier(
                epsilon, DELTA, arithmetic="fast", random_state=seed, **plan
            ).fit(self.X, self.y)
            self.known[place] = 100 * float(model.score(self.X_test, self.y_test))
            print(
                f"# {place}: {self.known[place]:.2f} ({time.perf_counter() - start:.0f} s)",
                flush=True,
            )
            if self.cache:
                self.cache.write_text(json.dumps(self.known, indent=1))
        return float(self.known[place])

    def _resolved(self, plan: dict[str, Any], epsilon: float) -> Any:
        """The trainer with its automatic settings, from public facts alone."""
        classes = len(np.unique(self.y))
        whole = Plan(
            Budget(epsilon, DELTA),
            tuple(plan["stages"]),
            plan["trainer"],
            get_loss("softmax"),
            arithmetic="fast",
        )
        rows = as_rows(self.X)
        return whole.calibrate(size=rows.n, columns=rows.d, classes=classes).trainer

    def best(self, method: str, epsilon: float, seeds: int) -> dict[str, Any]:
        projects = METHODS[method][1]

        def first(at: tuple[int | None, float]) -> float:
            return self.score(method, epsilon, *at, seed=0)

        # One after the other: components at the automatic rate, then the rate.
        k = max(((k, FACTORS[0]) for k in (COMPONENTS if projects else (None,))), key=first)[0]
        chosen = max(((k, factor) for factor in FACTORS), key=first)
        scores = [self.score(method, epsilon, *chosen, seed=seed) for seed in range(seeds)]
        return {
            "data": self.name,
            "method": method,
            "epsilon": epsilon,
            "components": chosen[0],
            "factor": chosen[1],
            "accuracy": float(np.mean(scores)),
            "spread": float(np.std(scores)),
        }


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in options.data:
        compared = Comparison(name, options.cache)
        for epsilon in options.epsilon:
            for method in options.method:
                yield compared.best(method, epsilon, options.seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["cifar10", "cifar100"])
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 0.7])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not os.environ.get("TACIT_DATA"):
        print("skipped: set TACIT_DATA to the folder that holds cifar10/ and cifar100/")
        return
    results = []
    for row in measure(options):
        results.append(row)
        if not options.json:
            k = "" if row["components"] is None else f"k = {row['components']}, "
            print(
                f"{row['data']:<9} epsilon {row['epsilon']:<4g} {row['method']:<15} "
                f"{row['accuracy']:.2f}% ± {row['spread']:.2f} ({k}rate × {row['factor']:g})",
                flush=True,
            )
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
