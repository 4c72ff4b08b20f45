"""PILLAR with a tenth of the training rows public: components chosen, fixed, centred or not.

    python benchmarks/bench_pillar.py [--data fashion_mnist] [--epsilon 0.1 0.7] [--runs 2] [--json]

Fashion-MNIST, and features of CIFAR-10, CIFAR-100 and chest X-rays; `tacit data list` says where
they are taken from. Floating-point arithmetic is used, for speed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tacit import DPLinearClassifier, recipe
from tacit.datasets import (
    load_chest_xray,
    load_cifar10,
    load_cifar100,
    load_fashion_mnist,
)

DELTA = 1e-5
SETS: dict[str, Callable[[], tuple[np.ndarray, ...]]] = {
    "fashion_mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "chest_xray": load_chest_xray,
}
WAYS: dict[str, dict[str, Any]] = {
    "no public rows": {},
    "as in the paper, k = 40": {"n_components": 40, "center": False},
    "centred, k = 40": {"n_components": 40},
    "centred, k chosen": {},
    "the same, NoisySGD": {"trainer": "noisy-sgd"},
}


def load(name: str) -> tuple[np.ndarray, ...]:
    return SETS[name]()[:4]


def measure(names: list[str], budgets: list[float], runs: int) -> Iterator[dict[str, Any]]:
    for name in names:
        X, y, X_test, y_test = load(name)
        order = np.random.default_rng(0).permutation(len(X))
        public, private = order[: len(X) // 10], order[len(X) // 10 :]
        rows, labels = X[private].astype(float), y[private]
        for epsilon in budgets:
            for way, options in WAYS.items():
                start, scores = time.perf_counter(), []
                for _ in range(runs):
                    kind = "dpsgd-f" if way == "no public rows" else "pillar"
                    given = {} if kind == "dpsgd-f" else {"public": X[public].astype(float)}
                    made = recipe(kind, **given, **options)
                    model = DPLinearClassifier(epsilon, DELTA, arithmetic="fast", **made)
                    scores.append(100 * model.fit(rows, labels).score(X_test, y_test))
                yield {
                    "data": name,
                    "epsilon": epsilon,
                    "way": way,
                    "components": model.plan_.facts.features,
                    "accuracy": float(np.mean(scores)),
                    "spread": float(np.std(scores)),
                    "seconds": (time.perf_counter() - start) / runs,
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["fashion_mnist"], choices=SETS)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 0.3, 0.7, 2.0])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for row in measure(options.data, options.epsilon, options.runs):
        results.append(row)
        if not options.json:
            print(
                f"{row['data']:<14} epsilon {row['epsilon']:<4g} {row['way']:<24} "
                f"k = {row['components']:<5} {row['accuracy']:.1f}% ± {row['spread']:.1f} "
                f"({row['seconds']:.0f} s)",
                flush=True,
            )
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
