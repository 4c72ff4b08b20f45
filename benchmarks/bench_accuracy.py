"""Test accuracy of default settings: nothing tuned, nothing unaccounted.

    python benchmarks/bench_accuracy.py [--runs 5] [--data MNIST ...] [--json]

Beside it, what there is to reach without privacy: logistic regression to convergence behind the
*same* stages, fitted without noise. Its penalty is chosen on a sixth of the training rows; test
rows choose nothing. ``--runs 0`` measures that alone.

The census table is bundled. MNIST and Fashion-MNIST are taken from the directory
named by TACIT_DATA, and left out where it is not set.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.datasets import load_adult, load_fashion_mnist, load_mnist
from tacit.exceptions import FileError
from tacit.preprocessing import Encode, Stage
from tacit.preprocessing.base import Context

DELTA = 1e-5
PENALTIES = (1.0, 10.0, 100.0, 1000.0)  # scikit-learn's C, for rows of norm 1
SILENT = 1e-6  # noise multiplier: a millionth of one row


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


def default_stages(X: np.ndarray, y: np.ndarray) -> list[Stage]:
    """What a default plan does to such rows, read off the plan of a fit to few of them."""
    few = np.random.default_rng(0).permutation(len(X))[:1000]
    return list(DPLinearClassifier(1.0, DELTA).fit(X[few], y[few]).plan_.plan.stages)


def behind(stages: Sequence[Stage], X: np.ndarray, others: np.ndarray) -> list[np.ndarray]:
    """Both behind the stages, which are fitted to the first as good as without noise."""
    rows, seen = as_rows(X), as_rows(others)
    for stage in stages:
        stage.fit(rows, Context(size=rows.n, noise_multiplier=SILENT))
        rows, seen = stage.through(rows), stage.through(seen)
    return [np.asarray(part.collect(), dtype=np.float32) for part in (rows, seen)]


def converged(penalty: float, rows: np.ndarray, labels: np.ndarray) -> LogisticRegression:
    model = LogisticRegression(C=penalty, tol=1e-5, max_iter=3000).fit(rows, labels)
    assert (model.n_iter_ < 3000).all()
    return model


def without_privacy(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray
) -> dict[str, float]:
    stages = default_stages(X, y)
    order = np.random.default_rng(0).permutation(len(y))
    held, rest = order[: len(y) // 6], order[len(y) // 6 :]
    rows, unseen = behind(stages, X[rest], X[held])
    scores = {c: converged(c, rows, y[rest]).score(unseen, y[held]) for c in PENALTIES}
    chosen = max(scores, key=scores.__getitem__)
    rows, unseen = behind(stages, X, X_test)
    accuracy = 100 * float(converged(chosen, rows, y).score(unseen, y_test))
    return {"accuracy": accuracy, "penalty": chosen}


def measure(names: Sequence[str], runs: int) -> Iterator[dict[str, Any]]:
    for name in names:
        load, budgets = SETS[name]
        try:
            X, y, X_test, y_test = load()
        except FileError:
            continue
        for epsilon in budgets if runs else ():
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
        start = time.perf_counter()
        found = without_privacy(X, y, X_test, y_test)
        seconds = time.perf_counter() - start
        yield {"data": name, "epsilon": None, "runs": 1, **found, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for row in measure(options.data, options.runs):
        results.append(row)
        if options.json:
            continue
        if row["epsilon"] is None:
            print(
                f"{row['data']:<14} without privacy {row['accuracy']:.2f}% "
                f"(C = {row['penalty']:g}, {row['seconds']:.0f} s)",
                flush=True,
            )
        else:
            print(
                f"{row['data']:<14} epsilon {row['epsilon']:<4g} "
                f"{row['accuracy']:.2f}% ± {row['spread']:.2f} ({row['seconds']:.1f} s a fit)",
                flush=True,
            )
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
