"""Test accuracy of default settings: nothing tuned, nothing unaccounted.

    python benchmarks/bench_accuracy.py [--runs 5] [--json]

The census table is bundled. MNIST and Fashion-MNIST are taken from the directory
named by TACIT_DATA, and left out where it is not set.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tacit import DPLinearClassifier
from tacit.data.datasets import load_adult, load_fashion_mnist, load_mnist
from tacit.exceptions import FileError
from tacit.stages import Encode

DELTA = 1e-5


def adult() -> tuple[np.ndarray, ...]:
    train, test, schema = load_adult()
    encode = Encode(schema)
    label = np.asarray(schema.classes)
    return (
        encode.transform(train),
        label[train.match(schema.target, schema.classes)],
        encode.transform(test),
        label[test.match(schema.target, schema.classes)],
    )


SETS: dict[str, tuple[Callable[[], tuple[np.ndarray, ...]], tuple[float, ...]]] = {
    "Adult": (adult, (0.1, 1.0)),
    "MNIST": (load_mnist, (0.1, 1.0, 2.0)),
    "Fashion-MNIST": (load_fashion_mnist, (0.1, 1.0, 2.0)),
}


def measure(runs: int) -> Iterator[dict[str, Any]]:
    for name, (load, budgets) in SETS.items():
        try:
            X, y, X_test, y_test = load()
        except FileError:
            continue
        for epsilon in budgets:
            start = time.perf_counter()
            fits = [DPLinearClassifier(epsilon, DELTA).fit(X, y) for _ in range(runs)]
            seconds = (time.perf_counter() - start) / runs
            scores = [100 * float(fit.score(X_test, y_test)) for fit in fits]
            yield {
                "data": name,
                "epsilon": epsilon,
                "accuracy": float(np.mean(scores)),
                "spread": float(np.std(scores)),
                "runs": runs,
                "seconds": seconds,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for row in measure(options.runs):
        results.append(row)
        if not options.json:
            print(
                f"{row['data']:<14} epsilon {row['epsilon']:<4g} "
                f"{row['accuracy']:.2f}% ± {row['spread']:.2f} ({row['seconds']:.1f} s a fit)"
            )
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
