"""PILLAR with public rows of its own kind, of a like kind, and of another: with the check, without.

    python benchmarks/bench_public_check.py [--data cifar10] [--public chest_xray] [--runs 5]

In every run, the seed draws the public rows: a tenth of the training rows, which are then not
private ones, or rows of another set. The private rows are the other nine tenths in either case.
Accuracy is of the test rows, δ is 1e-5, and nothing is searched. «projected» is the recipe without
its check, «checked» the recipe as it comes; «no projection» are all columns about the origin
(recipe dp-gd). Floating-point arithmetic is used, for speed.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tacit import DPLinearClassifier, recipe
from tacit.datasets import (
    load_chest_xray,
    load_cifar10,
    load_cifar100,
    load_fashion_mnist,
    load_mnist,
)
from tacit.preprocessing import PrivateCheckedPCA

DELTA = 1e-5
SETS: dict[str, Callable[[], tuple[np.ndarray, ...]]] = {
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "chest_xray": load_chest_xray,
    "fashion_mnist": load_fashion_mnist,
    "mnist": load_mnist,
}
#: Where public rows come from, and how many: its own, then others (Pinto et al. 2024, Table III).
SOURCES = {
    "cifar10": {"cifar10": 5_000, "cifar100": 2_000, "chest_xray": 4_145},
    "cifar100": {"cifar100": 5_000, "cifar10": 2_000, "chest_xray": 4_145},
    "fashion_mnist": {"fashion_mnist": 6_000, "mnist": 2_000},
    "chest_xray": {"chest_xray": 414, "cifar10": 2_000, "cifar100": 2_000},
}


def measure(
    name: str, wanted: list[str] | None, epsilons: list[float], runs: int
) -> Iterator[dict[str, Any]]:
    X, y, X_test, y_test = SETS[name]()[:4]
    for source, count in SOURCES[name].items():
        if wanted and source not in wanted:
            continue
        others = X if source == name else SETS[source]()[0]
        for epsilon in epsilons:
            ways = ("projected", "checked", *(["no projection"] if source == name else []))
            for way in ways:
                yield {
                    "data": name,
                    "public": source,
                    "epsilon": epsilon,
                    "way": way,
                    **_runs(way, (X, y, X_test, y_test), (others, count), epsilon, runs),
                }


def _runs(
    way: str,
    table: tuple[np.ndarray, ...],
    source: tuple[np.ndarray, int],
    epsilon: float,
    runs: int,
) -> dict[str, Any]:
    others, count = source
    X, y, X_test, y_test = table
    found: list[dict[str, Any]] = []
    for seed in range(runs):
        order = np.random.default_rng(seed).permutation(len(X))
        private = order[len(X) // 10 :]
        own = order[: len(X) // 10]
        picked = own if others is X else np.random.default_rng(seed).permutation(len(others))
        public = others[picked[:count]].astype(float)
        check = {"check": 0} if way == "projected" else {}
        made = (
            recipe("dp-gd") if way == "no projection" else recipe("pillar", public=public, **check)
        )
        model = DPLinearClassifier(
            epsilon,
            DELTA,
            arithmetic="fast",
            random_state=seed,
            classes=range(int(y.max()) + 1),
            **made,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X[private].astype(float), y[private])
        each = {
            "accuracy": 100 * model.score(X_test, y_test),
            "columns": model.plan_.facts.features,
        }
        for stage in model.certificate_.plan["stages"]:
            each |= {"note": stage["note"]} if stage["name"] == PrivateCheckedPCA.__name__ else {}
        each["unlike"] = any("unlike" in text for text in model.certificate_.warnings)
        found.append(each)
    scores = [each["accuracy"] for each in found]
    summary: dict[str, Any] = {
        "accuracy": float(np.mean(scores)),
        "spread": float(np.std(scores, ddof=1)) if runs > 1 else 0.0,
        "columns": found[-1]["columns"],
        "unlike": sum(each["unlike"] for each in found),
        "runs": found,
    }
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["cifar10"], choices=SOURCES)
    parser.add_argument("--public", nargs="+", choices=SETS)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 1.0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for name in options.data:
        for row in measure(name, options.public, options.epsilon, options.runs):
            results.append(row)
            if not options.json:
                print(
                    f"{row['data']:<14} public {row['public']:<14} epsilon {row['epsilon']:<4g} "
                    f"{row['way']:<14} {row['accuracy']:.1f}% ± {row['spread']:.1f}, "
                    f"{row['columns']} columns, unlike in {row['unlike']} of {options.runs}; "
                    f"{row['runs'][-1].get('note', '')[-180:]}",
                    flush=True,
                )
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
