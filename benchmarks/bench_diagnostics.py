"""Diagnostics at full size: time, peak memory, and Sun et al.'s Table 2.

    TACIT_DATA=... python benchmarks/bench_diagnostics.py [mnist] [fashion_mnist] [cifar100]

Each data set is inspected in a process of its own, so that the peak is its own. `cifar100` are
60,000 rows of 1,280 features (train and test); the target is 60 s and 2 GB. Table 2 has, for rows
of unit norm: MNIST 1.41, 1.03, 0.77; Fashion-MNIST 1.41, 1.10, 0.62.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np

from tacit.datasets import load_cifar100, load_fashion_mnist, load_mnist
from tacit.diagnostics import inspect

NAMES = ("mnist", "fashion_mnist", "cifar100")


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == "cifar100":
        X, y, X_test, y_test = load_cifar100()
        return np.concatenate([X, X_test]), np.concatenate([y, y_test])
    rows, labels, *_ = load_mnist() if name == "mnist" else load_fashion_mnist()
    return rows, labels


def run(name: str) -> dict[str, Any]:
    rows, labels = load(name)
    begun, busy, marks = time.perf_counter(), time.process_time(), []
    found = inspect(
        rows, labels, progress=lambda what, *_: marks.append((what, time.perf_counter()))
    )
    took, used = time.perf_counter() - begun, time.process_time() - busy
    around = found.concentration
    return {
        "data": name,
        "rows": found.n,
        "columns": found.d,
        "seconds": took,
        "processor": used,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "load": os.getloadavg()[0],
        "parts": {what: after - at for (what, at), (_, after) in pairwise(marks)},
        "diameter": around.diameter,
        "diameter_at_most": around.diameter_at_most,
        "largest": around.max_distance,
        "mean": around.mean_distance,
        "rank": found.spectrum.rank,
        "effective": found.spectrum.effective_rank,
    }


def show(found: dict[str, Any]) -> None:
    parts = ", ".join(f"{what} {seconds:.1f}" for what, seconds in found["parts"].items())
    print(
        "{data}: {rows} x {columns}, {seconds:.1f} s, {megabytes:.0f} MB\n"
        "  {processor:.1f} s of processor time; load {load:.1f}".format(**found),
        f"on {os.cpu_count()} cores\n  seconds: {parts}",
    )
    print(
        "  diameter {diameter:.4f} (at most {diameter_at_most:.4f}), largest and mean distance to "
        "the mean {largest:.4f}, {mean:.4f}\n  rank {rank}, effective {effective:.1f}".format(
            **found
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if len(options.names) == 1:
        found = [run(options.names[0])]
    else:
        found = []
        for name in options.names:
            command = [sys.executable, __file__, name, "--json"]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            found += json.loads(done.stdout)
            if not options.json:
                show(found[-1])
    if options.json:
        print(json.dumps(found))
    elif len(options.names) == 1:
        show(found[0])


if __name__ == "__main__":
    main()
