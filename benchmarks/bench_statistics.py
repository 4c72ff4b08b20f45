"""Private statistics and DPSGD-F as the theory has it: what Sun et al. 2024 claim, measured.

    python benchmarks/bench_statistics.py [--quick] [--json]

*Clusters.* The two clusters of section 4, at distance μ from the origin and 2 from each other;
excess hinge loss over ten runs, DP-SGD at its best over a grid of rates and clips, chosen on the
outcome. *Shifts.* Error of private means of the same rows, moved away from the origin. *Ranks.*
Error in rank of private quantiles, by noisy search and by selection, at the same cost.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np

from tacit import recipe
from tacit.data.rows import as_rows
from tacit.losses import get_loss
from tacit.mechanisms import Key, private_mean
from tacit.mechanisms.quantile import METHODS, Floats, Linear, Targets, event, margin, search
from tacit.mechanisms.release import Releases
from tacit.plan import Plan
from tacit.plan.fit import apply_stages
from tacit.privacy import Budget
from tacit.privacy.accounting.accountants import gaussian_mu

EPSILON, DELTA, ROWS = 1.0, 1e-5, 2000
RATES = (0.03, 1.0, 30.0)  # rate × clip, for rows of unit norm


def two_clusters(far: float, turned: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows μ·e₁ ± e₂; the sign is the class, or its opposite."""
    signs = np.where(np.arange(ROWS) % 2, -1.0, 1.0)
    return np.stack([np.full(ROWS, far), signs], axis=1), -signs if turned else signs


def excess(name: str, far: float, seeds: int, **options: Any) -> list[float]:
    """Hinge loss of several runs; the best model has none."""
    made = recipe(name, **options)
    plan = Plan(
        Budget(EPSILON, DELTA), tuple(made["stages"]), made["trainer"], get_loss("hinge")
    ).calibrate(size=ROWS, columns=2, classes=2)
    found = []
    for seed in range(seeds):
        rows, labels = two_clusters(far, turned=bool(seed % 2))
        fit = plan.run(as_rows(rows), labels[:, None], key=Key.from_seed(seed))
        seen = np.asarray(apply_stages(as_rows(rows), fit.stages).collect())
        scores = (seen @ fit.coef.T + fit.intercept)[:, 0]
        found.append(float(np.maximum(1 - labels * scores, 0).mean()))
    return found


def clusters(quick: bool) -> list[dict[str, Any]]:
    seeds = 4 if quick else 10
    found = []
    for times in (0.01, 1.0, 100.0):
        far = times * ROWS * EPSILON
        norm = math.hypot(far, 1.0)
        tried = []
        for part in (0.1,) if quick else (0.1, 1.0):
            for rate in RATES[1:2] if quick else RATES:
                # Normalised rows have norm μ, and so have their gradients.
                how = {"clip": part * norm, "learning_rate": rate / (part * norm**2), "steps": 100}
                tried.append(excess("dpsgd", far, seeds, radius=norm, batch_size=200.0, **how))
        tried.append(excess("dpsgd", far, seeds, radius=norm))
        for name, runs in (
            ("dpsgd, best of a grid", min(tried, key=np.mean)),
            ("dpsgd-f", excess("dpsgd-f", far, seeds, radius=norm)),
            ("dpsgd-f-theory", excess("dpsgd-f-theory", far, seeds, radius=5 * norm)),
        ):
            row = {"mu": times, "method": name, "mean": float(np.mean(runs))}
            found.append({**row, "least": min(runs), "most": max(runs)})
            show(found[-1])
    return found


def shifts(quick: bool) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(5000, 10))
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    along, z = np.full(10, 1 / math.sqrt(10)), 1 / gaussian_mu(EPSILON, DELTA)
    found = []
    for shift in (0.0, 1.0, 10.0, 100.0, 1000.0, 1e6):
        rows = base + shift * along
        row: dict[str, Any] = {"shift": shift}
        for method in ("gaussian", "instance-optimal"):
            bound = 1.0 + shift if method == "gaussian" else 1e7
            off = [
                private_mean(rows, bound, z, method=method, key=Key.from_seed(seed))
                - rows.mean(axis=0)
                for seed in range(3 if quick else 20)
            ]
            row[method] = float(np.mean(np.linalg.norm(off, axis=1)))
        found.append(row)
        show(row)
    return found


def ranks(quick: bool) -> list[dict[str, Any]]:
    n, mu = 5000, 0.1
    values = np.exp(np.random.default_rng(0).normal(size=n))
    grids: dict[str, tuple[Any, float | None]] = {
        "median, 2^24 cells of one width": (Linear(0.0, 1000.0, 24), 0.5),
        "0.9-quantile, 2^24 cells of one width": (Linear(0.0, 1000.0, 24), 0.9),
        "near the largest, 2^10 cells of one ratio": (Floats(4, 10, 1e6), None),
    }
    found = []
    for name, (grid, q) in grids.items():
        cells = grid.cells(values)[:, None]
        for method in METHODS:
            wanted, cost = q, event(method, 1 / mu)
            if wanted is None:
                wanted = 1 - margin(cost, grid.bits, Targets((1.0,), size=n)) / n
            errors, outside = [], []
            for seed in range(20 if quick else 400):
                token = Releases(Key.from_seed(seed), [(method, cost)]).token(method).at(method)
                targets = Targets((wanted,), size=n)
                (cell,) = search(lambda cells=cells: [cells], grid.bits, targets, token)
                lower, upper = int((cells < cell).sum()), int((cells <= cell).sum())
                errors.append(max(0.0, lower - wanted * n, wanted * n - upper))
                outside.append(n - upper)
            row = {"quantile": name, "method": method, "mean": float(np.mean(errors))}
            row |= {"often": float(np.quantile(errors, 0.99))}
            found.append({**row, "outside": float(np.mean(outside)) if q is None else None})
            show(found[-1])
    return found


def show(row: dict[str, Any]) -> None:
    said = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
    print("  ".join(said), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.json:
        globals()["show"] = lambda row: None
    parts = {"clusters": clusters, "shifts": shifts, "ranks": ranks}
    found = {name: part(options.quick) for name, part in parts.items()}
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
