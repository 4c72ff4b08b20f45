"""Does a projection without noise pay on rows of low rank? Hu et al. 2024, Figure 3, counted in
full.

    python benchmarks/bench_lowrank.py [--runs 1] [--quick] [--json]

1,000 rows of 6,000 columns and, up to a little noise, rank 50, after the paper's appendix F.1
(`tacit.research.instances.low_rank`). Excess empirical loss of private logistic regression at the
same (ε, δ), one row replaced. Every method is shown at its best over one grid of learning rates,
chosen on the outcome: for comparing methods, not for quoting.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from tacit import DPLinearClassifier
from tacit.exceptions import PrivateTestError
from tacit.preprocessing import NoiselessPCA, Normalize, PrivatePCA, SoftPCA
from tacit.research.instances import low_rank
from tacit.trainers import DPGD

DELTA = 1e-5
RANK = 50
TRAVEL = (0.3, 1.0, 3.0, 10.0, 30.0)  # rate × clip × steps: how far weights may go


def methods(gap: float) -> dict[str, list[Any]]:
    return {
        "no preprocessing": [Normalize()],
        "DP-PCA, half of the budget": [Normalize(), PrivatePCA(n_components=RANK, share=0.7)],
        "soft PCA, strength 0.05": [Normalize(), SoftPCA(0.05)],
        "soft PCA, strength 0.5": [Normalize(), SoftPCA(0.5)],
        "rank-50 PCA, gap known and tested": [Normalize(), NoiselessPCA(RANK, gap=0.9 * gap)],
    }


def loss(model: DPLinearClassifier, X: np.ndarray, y: np.ndarray) -> float:
    margins = model.decision_function(X) * np.where(y == model.classes_[1], 1, -1)
    return float(np.logaddexp(0, -margins).mean())


def measure(runs: int, quick: bool) -> dict[str, Any]:
    n, d = (400, 600) if quick else (1000, 6000)
    instance = low_rank(n, d, rank=RANK)
    X, y, gap = instance.rows, instance.labels, instance.facts["gap"]
    best = LogisticRegression(C=1e4, max_iter=1000).fit(X, y)  # with an intercept, as below
    least = float(np.logaddexp(0, -best.decision_function(X) * (2 * y - 1)).mean())
    found = []
    for epsilon in (1.0,) if quick else (1.0, 2.0, 5.0):
        for name, stages in methods(gap).items():
            outcomes: dict[float, list[float]] = {}
            inflation = 1.0
            try:
                slow = quick or any(isinstance(stage, PrivatePCA) for stage in stages)
                for travel in TRAVEL[1:4:2] if slow else TRAVEL:
                    clip = 0.5
                    trainer = DPGD(steps=100, clip=clip, learning_rate=travel / clip / 100)
                    for _ in range(runs):
                        model = DPLinearClassifier(
                            epsilon, DELTA, stages=stages, trainer=trainer, neighbors="replace_one"
                        ).fit(X, y)
                        outcomes.setdefault(travel, []).append(loss(model, X, y) - least)
                    inflation = model.plan_.inflation(1.0)
            except PrivateTestError:
                outcomes = {}
            means = [float(np.mean(values)) for values in outcomes.values()]
            found.append(
                {
                    "epsilon": epsilon,
                    "method": name,
                    "excess": min(means) if means else None,
                    "noise": inflation,
                }
            )
            print_row(found[-1])
    zero = float(np.log(2)) - least
    return {"rows": n, "columns": d, "gap": gap, "zero": zero, "results": found}


def print_row(row: dict[str, Any]) -> None:
    excess = "test fails" if row["excess"] is None else f"{row['excess']:.3f}"
    print(f"eps {row['epsilon']:<4g}{row['method']:<36}{excess:>12}  noise x{row['noise']:.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.json:
        globals()["print_row"] = lambda row: None
    result = measure(options.runs, options.quick)
    if options.json:
        print(json.dumps(result))
    else:
        print(f"a model that always says 1/2: {result['zero']:.3f}; eigengap {result['gap']:.2g}")


if __name__ == "__main__":
    main()
