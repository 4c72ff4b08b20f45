"""What a step on a cluster takes beyond its computation: two worker processes on this machine.

A full-batch sum of clipped gradients is timed where the fit runs, from the weights to the sum. The
worker of every partition times its own computation of the same sum. The difference between the
first and the slowest of the second is what the cluster costs: messages, scheduling, the reduction.
Steps follow one another as in training; the median counts, and the shortest is told besides, since
other work on the machine only ever adds time.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from tacit.data.rows import as_rows
from tacit.engine.dask import ClusterEngine
from tacit.losses import get_loss


def seconds_of(part: Any) -> float:
    return float(part.seconds)


def measure(options: argparse.Namespace, client: Client) -> dict[str, float]:
    """Milliseconds of a step, of its slowest partition, and the difference."""
    n, d, outputs = options.rows, options.features, options.outputs
    size = -(-n // options.partitions)
    table = da.random.default_rng(0).random((n, d), chunks=(size, d)) / np.sqrt(d)
    rows = as_rows(table, bound=1.0)
    loss = get_loss("softmax" if outputs > 1 else "logistic")
    rng = np.random.default_rng(0)
    targets = loss.targets(rng.integers(0, max(outputs, 2), n), outputs)
    engine = ClusterEngine(rows, rows.source.alike(targets), loss, intercept=1.0)
    weights = rng.normal(size=(1, d + 1, outputs))
    steps, slowest = [], []
    for _ in range(options.steps):
        began = time.perf_counter()
        engine.gradient_sum(weights, 0.1)
        steps.append(time.perf_counter() - began)
        slowest.append(max(client.gather(client.map(seconds_of, engine.engines, pure=False))))
    beyond = np.array(steps) - np.array(slowest)
    return {
        "step": 1e3 * float(np.median(steps)),
        "slowest partition": 1e3 * float(np.median(slowest)),
        "beyond": 1e3 * float(np.median(beyond)),
        "beyond, at best": 1e3 * float(beyond.min()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--outputs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with (
        LocalCluster(
            n_workers=options.workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=60,
        ) as cluster,
        Client(cluster) as client,
    ):
        found = measure(options, client)
    if options.json:
        shape = {k: v for k, v in vars(options).items() if k != "json"}
        print(json.dumps({"shape": shape, "ms": found}, indent=2))
        return
    for name, value in found.items():
        print(f"{name:<20}{value:>10.1f} ms")


if __name__ == "__main__":
    main()
