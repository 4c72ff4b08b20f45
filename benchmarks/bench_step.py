"""Time of one gradient step, relative to the two matrix products it cannot do without.

A step is all of it: draw the batch, sum clipped gradients, add noise, move. The
reference is the bare float32 pair ``X @ W`` and ``X.T @ Z`` with the BLAS
library's own threads; for a batch, on rows already gathered into one block, a
new batch each time as in training, so that none of it waits in the cache.
Rounds alternate between all cases and the shortest time of each counts, since
other work on the machine only ever adds time. On a busy machine ``--threads 1
--clock cpu`` still tells the ratio of the work done.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.data.rows import as_rows
from tacit.data.shaped import Layout, ShapedChunk
from tacit.engine.engine import Engine
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.trainers import DPGD, DPSGD, GradientTrainer
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.settings import PublicFacts

BATCHES = 12  # 150 MB in all: more than any cache
PAUSE = 0.05  # seconds until the BLAS library's own threads stop spinning


SHAPES = (15, 30, 60, 100)  # columns
KNOTS = 12
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def shortest(call: Callable[[], object], times: int, clock: Callable[[], float]) -> float:
    best = float("inf")
    for _ in range(times):
        start = clock()
        call()
        best = min(best, clock() - start)
    return best


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Shortest time of every case, in seconds."""
    rng = np.random.default_rng(0)
    n, d, outputs = options.rows, options.features, options.outputs
    rows = rng.random((n, d), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    loss = get_loss("softmax" if outputs > 1 else "logistic")
    targets = loss.targets(rng.integers(0, max(outputs, 2), n), outputs)
    batches = [np.flatnonzero(rng.random(n) < options.batch / n) for _ in range(BATCHES)]
    narrow = rng.normal(size=(d, outputs)).astype(np.float32)
    residuals = rng.normal(size=(n, outputs)).astype(np.float32)
    wide = rng.normal(size=(d, outputs * options.settings)).astype(np.float32)
    many = rng.normal(size=(n, outputs * options.settings)).astype(np.float32)
    gathered = itertools.cycle([(rows[batch], residuals[batch]) for batch in batches])
    facts = PublicFacts(n, d, outputs, typical_norm=1.0, mu=0.25)
    best: dict[str, float] = {}

    def record(name: str, seconds: float) -> None:
        best[name] = min(best.get(name, float("inf")), seconds)

    def products(some: np.ndarray, multipliers: np.ndarray, weights: np.ndarray = narrow) -> object:
        return some @ weights, some.T @ multipliers

    def step(engine: Engine, trainer: GradientTrainer, settings: int = 1) -> float:
        """Shortest of the steps of one run, from the end of one to the end of the next."""
        trainers = [trainer.resolve(facts)] * settings
        ends: list[float] = []
        train_together(
            engine,
            trainers,
            rehearsal(trainers, [40.0] * settings, facts, Key.fresh()),
            facts,
            progress=lambda *_: ends.append(clock()),
        )
        return float(np.diff(ends).min())

    clock = CLOCKS[options.clock]
    engines = {
        arithmetic: Engine(
            as_rows(rows, bound=1.0),
            targets,
            loss,
            intercept=1.0,
            arithmetic=arithmetic,
            threads=options.threads,
        )
        for arithmetic in ("exact", "strict", "fast")
    }
    full, sampled = DPGD(steps=5), DPSGD(steps=40, batch_size=options.batch)
    for _ in range(options.rounds):
        with threadpool_limits(options.threads, user_api="blas"):
            record("bare full", shortest(lambda: products(rows, residuals), 4, clock))
            record("bare batch", shortest(lambda: products(*next(gathered)), 40, clock))
            if options.settings > 1:
                record("bare settings", shortest(lambda: products(rows, many, wide), 2, clock))
        for name, engine in engines.items():
            time.sleep(PAUSE)
            record(f"{name} full", step(engine, full))
            record(f"{name} batch", step(engine, sampled))
            if options.settings > 1:
                record(f"{name} settings", step(engine, full, options.settings))
    return best


def shapes(options: argparse.Namespace) -> dict[int, tuple[float, float]]:
    """Sums over rows of shaped columns and of as many straight ones: shortest seconds of each.

    Two classes; every shape has `KNOTS` knots, between which values lie evenly.
    """
    rng, loss, clock = np.random.default_rng(0), get_loss("logistic"), CLOCKS[options.clock]
    targets = loss.targets(rng.integers(0, 2, options.rows), 1)
    found = {}
    for columns in SHAPES:
        values = rng.random((options.rows, columns))
        place = values * (KNOTS - 1)
        index = np.minimum(place.astype(int), KNOTS - 2)
        chunk = ShapedChunk.of(Layout((KNOTS,) * columns), index, place - index)
        sums = []
        for given in (values, chunk):
            rows = as_rows(given, bound=columns**0.5)
            engine = Engine(rows, targets, loss, intercept=1.0, threads=options.threads)
            weights = rng.normal(size=(1, engine.d, 1)) / columns
            sums.append(partial(engine.gradient_sum, weights, 1.0))
        best = [float("inf")] * 2
        for _ in range(options.rounds):
            for kind, call in enumerate(sums):
                best[kind] = min(best[kind], shortest(call, 10, clock))
        found[columns] = best[0], best[1]
    return found


def ratios(best: dict[str, float]) -> dict[str, float]:
    """Times relative to the bare products; of several settings, relative to one."""
    result = {}
    for name, seconds in best.items():
        arithmetic, kind = name.split()
        if arithmetic == "bare" and kind != "settings":
            continue
        reference = f"{arithmetic} full" if kind == "settings" else f"bare {kind}"
        result[name] = seconds / best[reference]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--outputs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=4096, help="expected size of a Poisson batch")
    parser.add_argument("--settings", type=int, default=16, help="settings in one step; 1 to skip")
    parser.add_argument("--threads", type=int, default=None, help="for both; default: all cores")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    shaped = shapes(options)
    best = measure(options)
    relative = ratios(best)
    if options.json:
        shape = {k: v for k, v in vars(options).items() if k != "json"}
        found = {"shape": shape, "seconds": best, "ratio": relative, "shapes": shaped}
        print(json.dumps(found, indent=2))
        return
    print(f"{'case':<16}{'ms':>10}{'ratio':>10}")
    for name, seconds in best.items():
        note = f"{relative[name]:>10.2f}" if name in relative else ""
        print(f"{name:<16}{seconds * 1e3:>10.2f}{note}")
    for columns, (straight, with_shapes) in shaped.items():
        name, ratio = f"shapes, {columns}", with_shapes / straight
        print(f"{name:<16}{with_shapes * 1e3:>10.2f}{ratio:>10.2f}")
    print(f"shapes: sums of so many columns of {KNOTS} knots relative to straight ones")
    print(f"settings: {options.settings} settings relative to one; the rest: to the bare products")


if __name__ == "__main__":
    main()
