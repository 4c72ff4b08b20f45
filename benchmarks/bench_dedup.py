"""Time and memory of near-duplicate search on KDD Cup 1999: 494,021 rows, 70% of them duplicates.

    python benchmarks/bench_dedup.py [--radius 0.001 ...] [--json]

`load_kdd99` says where the file is taken from; without it there is nothing to do. Times
are processor time of one run. Memory is the peak beyond the rows themselves, from a run
of its own because counting slows it down. The reference is scikit-learn's brute-force
neighbours within three radii, on the first rows only, since it takes time in proportion
to their number squared; it finds centres, and neither clusters nor the limit.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from tacit.datasets import load_kdd99
from tacit.exceptions import FileError
from tacit.preprocessing.good_clusters import crowd_limit, good_clusters

WORDS = (1, 2, 3)  # protocol, service, flag
# What a column is divided by, after log1p: from the published description, not from the rows.
LARGEST_VALUES = {0: 1e5, 4: 1e10, 5: 1e10, 22: 511, 23: 511, 31: 255, 32: 255}
COUNTS = (7, 8, 9, 10, 12, 15, 16, 17, 18, 19)


def load() -> np.ndarray:
    """41 features as numbers in [0, 1], words one-hot, rows of norm at most 1."""
    table, schema = load_kdd99()
    parts = []
    for j, name in enumerate(schema.columns):
        column = table.column(name)
        if j in WORDS:
            parts.append(pd.get_dummies(column, dtype=float).to_numpy())
        else:
            largest = LARGEST_VALUES.get(j, 1e3 if j in COUNTS else 1.0)
            scaled = np.log1p(column) / np.log1p(largest)
            parts.append(np.minimum(scaled, 1.0)[:, None])
    rows = np.concatenate(parts, axis=1)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def peak(call: Callable[[], Any]) -> float:
    """Megabytes allocated at most."""
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 1e6


def brute(rows: np.ndarray, radius: float) -> int:
    """The number of centres by scikit-learn's neighbours, a thousand rows at a time."""
    search = NearestNeighbors(radius=3 * radius, algorithm="brute").fit(rows)
    centres = 0
    for start in range(0, len(rows), 1000):
        distances, _ = search.radius_neighbors(rows[start : start + 1000])
        centres += sum(bool((some <= radius).all()) for some in distances)
    return centres


def measure(rows: np.ndarray, radius: float, options: argparse.Namespace) -> dict[str, Any]:
    label, clusters = timed(lambda: good_clusters(rows, radius))
    limit, limit_time = timed(lambda: crowd_limit(rows, radius))
    some = rows[: options.subset]
    reference = timed(lambda: brute(some, radius))[1]
    ours = timed(lambda: good_clusters(some, radius))[1]
    none = int((label == -1).sum())
    calls = [] if options.no_memory else [good_clusters, crowd_limit]
    memory = [peak(partial(call, rows, radius)) for call in calls]
    return {
        "radius": radius,
        "clusters_s": clusters,
        "limit_s": limit_time,
        "megabytes": max(memory, default=None),
        "survivors": none + len(np.unique(label[label >= 0])),
        "in_no_cluster": none,
        "limit": limit,
        "brute_ratio": reference / ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--radius", type=float, nargs="+", default=[0.0, 1e-6, 1e-3, 1e-2, 0.1])
    parser.add_argument("--rows", type=int, default=None, help="only the first; default: all")
    parser.add_argument("--subset", type=int, default=20_000, help="rows for the reference")
    parser.add_argument("--no-memory", action="store_true", help="leave out the run that counts it")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    try:
        rows = load()[: options.rows]
    except FileError as error:
        reason = f"skipped: {error}"
        print(json.dumps({"results": [], "reason": reason}) if options.json else reason)
        return
    with threadpool_limits(1, user_api="blas"):
        results = [measure(rows, radius, options) for radius in options.radius]
    if options.json:
        print(json.dumps({"shape": rows.shape, "results": results}, indent=2))
        return
    print(f"{len(rows):,} rows × {rows.shape[1]}, {rows.nbytes / 1e6:.0f} MB")
    print(
        f"{'radius':>8}{'clusters s':>12}{'limit s':>9}{'+MB':>7}{'survivors':>11}"
        f"{'in none':>9}{'limit':>9}{'brute/ours':>12}"
    )
    for r in results:
        memory = "" if r["megabytes"] is None else f"{r['megabytes']:.0f}"
        print(
            f"{r['radius']:>8g}{r['clusters_s']:>12.1f}{r['limit_s']:>9.1f}{memory:>7}"
            f"{r['survivors']:>11,}{r['in_no_cluster']:>9,}{r['limit']:>9,}"
            f"{r['brute_ratio']:>12.1f}"
        )
    print(f"brute/ours: time of scikit-learn's brute force on {options.subset:,} rows to ours")


if __name__ == "__main__":
    main()
