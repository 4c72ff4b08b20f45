"""Time to calibrate the plan of every recipe, for typical facts.

Processor time of the second of two plans: the first also loads dp-accounting. Recipes whose plans
are all Gaussian have a closed account; those that sample rows need loss distributions.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.plan.recipes import RECIPES, recipe
from tacit.preprocessing.noiseless import NoiselessStage
from tacit.privacy import Budget
from tacit.privacy.accounting.accountants import accountant_for

FACTS = {"Adult": (32_561, 105, 2), "MNIST": (60_000, 784, 10)}  # rows, columns, classes
EPSILONS = (0.1, 1.0, 8.0)
SAMPLED = [{"steps": t, "batch_size": b} for t in (100, 1000) for b in (600, 3000)]
LIMITS = {"gaussian-dp": 0.05, "pld": 2.0}  # seconds


def needs(columns: int) -> dict[str, dict[str, Any]]:
    """What recipes cannot do without."""
    public = np.random.default_rng(0).normal(size=(500, columns))
    return {
        "dpsgd-f-theory": {"radius": 100.0},
        "pillar": {"public": public, "n_components": 40},
        "gep": {"public": public},
        "adadps": {"public": public},
        "dp-raft+pillar": {"public": public},
        "ptr-pca": {"gap": 1e-3},
    }


def measure(name: str, epsilon: float, data: str, **options: Any) -> dict[str, Any]:
    rows, columns, classes = FACTS[data]
    made = recipe(name, **needs(columns).get(name, {}), **options)
    replaced = name == "local" or any(isinstance(s, NoiselessStage) for s in made["stages"])
    plan = Plan(
        Budget(epsilon, 1e-5),
        tuple(made["stages"]),
        made["trainer"],
        get_loss("softmax" if classes > 2 else "logistic"),
        neighbors="replace_one" if replaced else "replace_special",
    )
    start = time.process_time()
    found = plan.calibrate(size=rows, columns=columns, classes=classes)
    seconds = time.process_time() - start
    kind = accountant_for([event for _, event in found.spent])
    given = {"recipe": name, "epsilon": epsilon, "data": data, **options}
    return {**given, "accountant": kind, "noise": found.noise_multiplier, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    measure("dpsgd", 1.0, "Adult")
    cases = [(name, e, data, {}) for data in FACTS for e in EPSILONS for name in RECIPES]
    cases += [("dpsgd", e, "MNIST", settings) for e in EPSILONS for settings in SAMPLED]
    results = [measure(name, e, data, **more) for name, e, data, more in cases]
    if options.json:
        print(json.dumps({"limits": LIMITS, "results": results}, indent=2))
        return
    for r in sorted(results, key=lambda r: r["seconds"]):
        words = " ".join(f"{k}={v}" for k, v in r.items() if k not in ("noise", "seconds"))
        print(f"{r['seconds'] * 1e3:8.0f} ms  {words}  z = {r['noise']:.3f}")


if __name__ == "__main__":
    main()
