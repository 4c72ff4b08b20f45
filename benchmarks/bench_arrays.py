"""Time of one exact step with rows in other libraries, relative to the same step on NumPy.

Both sums of a step, as in ``bench_step.py`` but without noise, on one thread. Rounds alternate and
the shortest time counts. PyTorch is measured if it is installed; with a graphics card, that as
well, by the clock on the wall. On a busy machine ``--clock cpu`` tells of all others.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.data.rows import as_rows
from tacit.engine.array_api import ArrayEngine
from tacit.engine.engine import Engine
from tacit.losses import get_loss

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def places() -> dict[str, dict[str, Any]]:
    """Namespaces and devices, by what they are called in the table."""
    found = {"array API on NumPy": ("array_api_compat.numpy", "cpu")}
    try:
        import torch
    except ImportError:
        return {name: _place(*place) for name, place in found.items()}
    torch.set_num_threads(1)
    found["PyTorch, processor"] = ("array_api_compat.torch", "cpu")
    if torch.cuda.is_available():
        found["PyTorch, CUDA"] = ("array_api_compat.torch", "cuda")
    return {name: _place(*place) for name, place in found.items()}


def _place(module: str, device: str) -> dict[str, Any]:
    return {"xp": importlib.import_module(module), "device": device}


def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Shortest time of every case, in seconds."""
    rng, clock = np.random.default_rng(0), CLOCKS[options.clock]
    n, d, k = options.rows, options.features, options.outputs
    values = rng.random((n, d), dtype=np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    loss = get_loss("softmax" if k > 1 else "logistic")
    made = loss.targets(rng.integers(0, max(k, 2), n), k), loss
    rows, weights = as_rows(values, bound=1.0), rng.normal(size=(1, d, k))
    engines: dict[str, Any] = {"NumPy": Engine(rows, *made, threads=1)}
    engines["NumPy, strict"] = Engine(rows, *made, threads=1, arithmetic="strict")
    engines |= {name: ArrayEngine(rows, *made, **place) for name, place in places().items()}
    batch = np.flatnonzero(rng.random(n) < options.batch / n)
    best: dict[str, dict[str, float]] = {name: {} for name in engines}
    known = engines["NumPy, strict"].gradient_sum(weights, 0.1).values
    for _ in range(options.rounds):
        for name, engine in engines.items():
            for kind, some in (("full", None), ("batch", batch)):
                start = clock()
                total = engine.gradient_sum(weights, 0.1, batch=some)
                best[name][kind] = min(best[name].get(kind, np.inf), clock() - start)
                if kind == "full" and name != "NumPy" and not np.array_equal(total.values, known):
                    raise SystemExit(f"the sums of {name} are other ones")
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--outputs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4096, help="expected size of a Poisson batch")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with threadpool_limits(1, user_api="blas"):
        best = measure(options)
    if options.json:
        print(json.dumps(best, indent=2))
        return
    print(f"{'rows in':<24}{'full, ms':>12}{'ratio':>8}{'batch, ms':>12}{'ratio':>8}")
    for name, times in best.items():
        cells = [
            f"{times[kind] * 1e3:>12.2f}{times[kind] / best['NumPy'][kind]:>8.2f}"
            for kind in ("full", "batch")
        ]
        print(f"{name:<24}{''.join(cells)}")


if __name__ == "__main__":
    main()
