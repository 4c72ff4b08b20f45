"""Speed of the exact discrete Gaussian, relative to NumPy's floating-point normals.

    python benchmarks/bench_noise.py [--rounds R] [--clock wall] [--json]

The reference is ``Generator(PCG64()).standard_normal`` in float64, in the same process. Rounds
alternate between the two and the shortest time of each counts, since other work on the machine
only ever adds time. Three sizes: one step of a trainer (784 features, an intercept and 10
classes, its stream opened anew as in training), a million and ten million draws.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable

import numpy as np

from tacit.mechanisms.random_streams import Key

SIGMAS = {"0.75": 0.75, "20": 20.0, "1000.3": 1000.3, "2^30": 2.0**30, "2^40": 2.0**40}
SIZES = {7_850: 150, 1_000_000: 4, 10_000_000: 1}  # and how often in a round
LEAST_SPEED = 0.5  # of NumPy's speed


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def shortest(call: Callable[[], object], times: int, clock: Callable[[], float]) -> float:
    best = float("inf")
    for _ in range(times):
        start = clock()
        call()
        best = min(best, clock() - start)
    return best


def measure(rounds: int, clock: Callable[[], float]) -> list[dict[str, float | int | str]]:
    normals = np.random.Generator(np.random.PCG64(0))
    key, steps = Key.fresh(), itertools.count()
    found = []
    for (size, times), (name, sigma) in itertools.product(SIZES.items(), SIGMAS.items()):

        def ours(size: int = size, sigma: float = sigma) -> object:
            return key.stream("noise", next(steps)).discrete_gaussian(sigma, size)

        def theirs(size: int = size) -> object:
            return normals.standard_normal(size)

        ours()  # prepares the table of this sigma, which a training does once
        best = [float("inf")] * 2
        for _ in range(rounds):
            best[0] = min(best[0], shortest(theirs, times, clock))
            best[1] = min(best[1], shortest(ours, times, clock))
        nanoseconds = [seconds / size * 1e9 for seconds in best]
        found.append(
            {
                "draws": size,
                "sigma": name,
                "normal_ns": nanoseconds[0],
                "discrete_ns": nanoseconds[1],
                "speed": best[0] / best[1],
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    found = measure(options.rounds, CLOCKS[options.clock])
    if options.json:
        print(json.dumps({"results": found, "least": LEAST_SPEED}, indent=2))
        return
    print(f"{'draws':>12}{'sigma':>10}{'normal, ns':>12}{'discrete, ns':>14}{'speed':>8}")
    for r in found:
        print(
            f"{r['draws']:>12,}{r['sigma']:>10}{r['normal_ns']:>12.2f}{r['discrete_ns']:>14.2f}"
            f"{r['speed']:>8.2f}"
        )
    print(f"speed: of NumPy's normals; it should be at least {LEAST_SPEED}")


if __name__ == "__main__":
    main()
