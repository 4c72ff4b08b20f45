"""When does private tuning pay? The census table, at equal epsilon, with and without it.

    python benchmarks/bench_tuning.py [--runs 5] [--json]

Four ways to come to a setting: the rule of public facts (the default), a guess out of a wide grid,
private trials of that grid (`DPSearch`), and the best of it in hindsight, which no budget covers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from bench_accuracy import adult

from tacit import DPLinearClassifier, DPSearch
from tacit.trainers import DPGD

DELTA = 1e-5
BUDGETS = (0.1, 1.0)
GRID = {
    "trainer__clip": [0.01, 0.1, 1.0],
    "trainer__learning_rate": [1.0, 10.0, 100.0, 1000.0],
}
TRIALS = ((5, "geometric"), (10, "geometric"), (10, "logarithmic"))


def measure(runs: int) -> Iterator[dict[str, Any]]:
    X, y, X_test, y_test = adult()

    def accuracy(estimator: Any) -> list[float]:
        return [100 * float(estimator.fit(X, y).score(X_test, y_test)) for _ in range(runs)]

    for epsilon in BUDGETS:
        budget = (epsilon, DELTA)
        fixed = [
            accuracy(DPLinearClassifier(*budget, trainer=DPGD(clip=clip, learning_rate=rate)))
            for clip in GRID["trainer__clip"]
            for rate in GRID["trainer__learning_rate"]
        ]
        found: dict[str, Any] = {
            "epsilon": epsilon,
            "rule": _summary(accuracy(DPLinearClassifier(*budget))),
            "guess": _summary([score for scores in fixed for score in scores]),
            "hindsight": _summary(max(fixed, key=np.mean)),
        }
        for trials, law in TRIALS:
            search = DPSearch(DPLinearClassifier(*budget), GRID, trials=trials, distribution=law)
            noise = search.plan(size=len(X), columns=X.shape[1]).slowdown
            found[f"{law} {trials}"] = _summary(accuracy(search)) | {"noise": noise}
        yield found


def _summary(scores: list[float]) -> dict[str, float]:
    low, high = np.quantile(scores, [0.1, 0.9])
    return {"mean": float(np.mean(scores)), "low": float(low), "high": float(high)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = list(measure(options.runs))
    if options.json:
        print(json.dumps({"rows": rows, "runs": options.runs}))
        return
    for row in rows:
        print(f"epsilon {row.pop('epsilon')}")
        for name, score in row.items():
            noise = f"  noise x {score['noise']:.2f}" if "noise" in score else ""
            spread = f"{score['low']:.1f} to {score['high']:.1f}"
            print(f"  {name:<16}{score['mean']:6.1f}  {spread}{noise}")


if __name__ == "__main__":
    main()
