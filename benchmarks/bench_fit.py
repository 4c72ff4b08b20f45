"""Time of whole default fits, beside LogisticRegression of scikit-learn and of diffprivlib.

    python benchmarks/bench_fit.py              # all cores, by the clock on the wall
    OMP_NUM_THREADS=1 python benchmarks/bench_fit.py --threads 1    # processor time

Rows are standardised. diffprivlib is left out where it is not installed (`bench_time.py` says how
that is done); it has its default settings, and is told the norm of the longest row.

All take turns, and the shortest turn of each counts: other work on the machine only adds time.
Labels follow a logistic model of the rows, with as much noise as signal. The first fit of a new
process is timed as well, beside its second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

SHAPES = [
    (10_000, 20, 2),
    (30_000, 100, 2),
    (30_000, 100, 10),
    (200_000, 50, 2),
    (1_000_000, 30, 2),
]
FIRST = """
import sys, time
sys.path.insert(0, {folder!r})
from bench_fit import ours, table
rows, labels = table({n}, {d}, {classes})
fit = ours(rows, labels, {classes}, {threads})
for _ in range(3):
    began = time.perf_counter()
    fit()
    print(time.perf_counter() - began)
"""


def table(n: int, d: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardised rows, and labels that follow a logistic model."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, d))
    scores = rows @ rng.normal(size=(d, classes)) / d**0.5
    return rows, np.asarray((scores + rng.gumbel(size=scores.shape)).argmax(axis=1))


def ours(
    rows: np.ndarray, labels: np.ndarray, classes: int, threads: int | None
) -> Callable[[], object]:
    from contextlib import nullcontext

    from tacit import DPLinearClassifier
    from tacit.engine.engine import one_thread

    def fit() -> object:
        with one_thread() if threads == 1 else nullcontext():
            model = DPLinearClassifier(epsilon=1.0, delta=1e-6, classes=list(range(classes)))
            return model.fit(rows, labels)

    return fit


def diffprivlib(rows: np.ndarray, labels: np.ndarray) -> dict[str, Callable[[], object]]:
    """A fit by default settings, if it is installed."""
    try:
        from diffprivlib.models import LogisticRegression as Private
    except ImportError:
        return {}
    longest = float(np.linalg.norm(rows, axis=1).max())
    return {"diffprivlib": lambda: Private(epsilon=1.0, data_norm=longest).fit(rows, labels)}


def take_turns(
    runs: dict[str, Callable[[], object]], rounds: int, threads: int | None
) -> dict[str, float]:
    """Shortest time of each, in seconds."""
    clock = time.process_time if threads == 1 else time.perf_counter
    best: dict[str, float] = {}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            with threadpool_limits(threads):
                began = clock()
                run()
                taken = clock() - began
            if turn:  # the first turn of either loads what it needs
                best[name] = min(best.get(name, np.inf), taken)
    return best


def first_and_second(n: int, d: int, classes: int, threads: int | None) -> list[float]:
    """Times of the first fits of a process."""
    from pathlib import Path

    code = FIRST.format(
        folder=str(Path(__file__).parent), n=n, d=d, classes=classes, threads=threads
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(line) for line in found.stdout.split()]


def measure(rounds: int, threads: int | None, most: int) -> list[dict[str, float]]:
    found = []
    for n, d, classes in SHAPES:
        if n * d > most:
            continue
        rows, labels = table(n, d, classes)
        runs = {
            "tacit": ours(rows, labels, classes, threads),
            "sklearn": lambda: LogisticRegression(max_iter=1000).fit(rows, labels),  # noqa: B023
            **diffprivlib(rows, labels),
        }
        times = take_turns(runs, rounds, threads)
        shape = {"rows": n, "columns": d, "classes": classes}
        found.append({**shape, **times, "ratio": times["tacit"] / times["sklearn"]})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None, help="of both; default: all cores")
    parser.add_argument("--most", type=int, default=1 << 30, help="values of the largest table")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = measure(options.rounds, options.threads, options.most)
    first, second, *_ = first_and_second(10_000, 20, 2, options.threads)
    if options.json:
        print(json.dumps({"fits": found, "first": first, "second": second}, indent=2))
        return
    for row in found:
        shape = f"{row['rows']:,} x {row['columns']}, {row['classes']} classes"
        print(
            f"{shape:<32}{row['tacit'] * 1e3:>9.1f} ms{row['sklearn'] * 1e3:>9.1f} ms"
            f"{row['ratio']:>7.2f}",
            end="",
        )
        rival = row.get("diffprivlib")
        print(f"{rival * 1e3:>9.1f} ms{row['tacit'] / rival:>7.2f}" if rival else "")
    print(f"first fit of a process {first:.3f} s, second {second:.3f} s")


if __name__ == "__main__":
    main()
