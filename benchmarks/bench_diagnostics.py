"""Diagnostics at full size: time, peak memory, and paper 000's Table 2.

    TACIT_DATA=... python benchmarks/bench_diagnostics.py [mnist] [fashion_mnist] [cifar100]

Each data set is inspected in a process of its own, so that the peak is its own. `cifar100` are
60,000 rows of 1,280 features (train and test); the target is 60 s and 2 GB. Table 2 has, for rows
of unit norm: MNIST 1.41, 1.03, 0.77; Fashion-MNIST 1.41, 1.10, 0.62.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from tacit.data.datasets import load_fashion_mnist, load_mnist
from tacit.diagnostics import inspect

NAMES = ("mnist", "fashion_mnist", "cifar100")


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name.startswith("cifar"):
        with np.load(Path(os.environ["TACIT_DATA"]) / name / "features_u8.npz") as stored:
            coded = np.concatenate([stored["x_train"], stored["x_test"]])
            labels = np.concatenate([stored["y_train"], stored["y_test"]])
        levels = (6 * (np.arange(256) / 255) ** 2).astype(np.float32)
        return levels[coded], labels
    rows, labels, *_ = load_mnist() if name == "mnist" else load_fashion_mnist()
    return rows, labels


def run(name: str) -> None:
    rows, labels = load(name)
    begun, busy, marks = time.perf_counter(), time.process_time(), []
    found = inspect(
        rows, labels, progress=lambda what, *_: marks.append((what, time.perf_counter()))
    )
    took, used = time.perf_counter() - begun, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    parts = [f"{what} {after - at:.1f}" for (what, at), (_, after) in pairwise(marks)]
    around, load_now = found.concentration, os.getloadavg()[0]
    print(f"{name}: {found.n} x {found.d}, {took:.1f} s, {peak:.0f} MB")
    print(f"  {used:.1f} s of processor time; load {load_now:.1f} on {os.cpu_count()} cores")
    print(f"  seconds: {', '.join(parts)}")
    print(
        f"  diameter {around.diameter:.4f} (at most {around.diameter_at_most:.4f}), largest and "
        f"mean distance to the mean {around.max_distance:.4f}, {around.mean_distance:.4f}"
    )
    print(
        f"  rank {found.spectrum.rank}, effective {found.spectrum.effective_rank:.1f}", flush=True
    )


if __name__ == "__main__":
    chosen = sys.argv[1:] or NAMES
    if len(chosen) == 1:
        run(chosen[0])
    for name in chosen if len(chosen) > 1 else ():
        subprocess.run([sys.executable, __file__, name], check=True)
