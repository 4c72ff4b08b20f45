"""One full sum over Parquet files larger than memory, relative to reading and decoding them.

Rows are written to files of a temporary folder and deleted afterwards. For each of three
sizes a new process alternates between pyarrow alone, which reads and decodes all columns with
one thread, and a sum of clipped gradients in exact arithmetic over the same files, whose rows
one thread reads as well. The shortest time of each counts, since other work on the machine
only ever adds time; on a machine whose cores are all busy nothing can be done at the same time,
and only processor time ("cpu") says how much there is to do. Memory is the most that the
process has ever had resident, Python and its libraries included.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES = 100
TOGETHER = 1_000_000  # rows on which several settings are tried


def write(folder: Path, rows: int, features: int) -> None:
    """Files of ``rows`` / 100 rows each, and a label."""
    count = max(1, rows // FILES)
    names = [*(f"x{i}" for i in range(features)), "y"]
    for number in range(FILES):
        rng = np.random.default_rng(number)
        cells = rng.standard_normal((features, count), dtype=np.float32)
        label = (cells[0] + rng.standard_normal(count, dtype=np.float32) > 0).astype(np.int8)
        table = pa.table([*map(pa.array, cells), pa.array(label)], names)
        pq.write_table(table, folder / f"{number:03d}.parquet", use_dictionary=False)


def shortest(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, call in calls.items():
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            found = {name: time.perf_counter() - wall, f"{name} cpu": time.process_time() - cpu}
            for key, seconds in found.items():
                best[key] = min(best.get(key, np.inf), seconds)
    return best


def measure(folder: Path, rounds: int, threads: int | None) -> dict[str, float]:
    """Times of a pass, and the memory of this process."""
    from tacit.data import as_rows, scan
    from tacit.engine.engine import Engine
    from tacit.losses import get_loss

    data = scan(folder, target="y", memory=1)
    columns = list(data.column_names or ())
    loss = get_loss("logistic")
    _, index = data.labels([0, 1])
    rows = as_rows(data, bound=16.0)
    engine = Engine(rows, loss.targets(index, 1), loss, threads=threads)
    weights = np.zeros((1, data.d, 1))
    paths = [stamp.path for stamp in data.stamps]

    def read() -> None:
        for path in paths:
            with pq.ParquetFile(path) as file:
                for _ in file.iter_batches(1 << 16, columns=columns, use_threads=False):
                    pass

    def total() -> None:
        with engine:
            engine.gradient_sum(weights, clip=1.0)

    found = shortest({"read": read, "sum": total}, rounds)
    found |= {"rows": data.n, "memory": resident()}
    if data.n <= TOGETHER:
        found |= together(rows, index, threads)
    return found


def together(rows: Any, index: np.ndarray, threads: int | None) -> dict[str, float]:
    """Times of a pass for one setting and for sixteen, of two classes and of ten."""
    from tacit.engine.engine import Engine
    from tacit.losses import get_loss

    found: dict[str, float] = {}
    for classes in (2, 10):
        loss = get_loss("logistic" if classes == 2 else "softmax")
        outputs = loss.outputs(classes)
        targets = loss.targets((index + np.arange(index.size)) % classes, outputs)
        engine = Engine(rows, targets, loss, threads=threads)
        for settings in (1, 16):
            weights = np.zeros((settings, rows.d, outputs))

            def total(engine: Any = engine, weights: np.ndarray = weights) -> None:
                with engine:
                    engine.gradient_sum(weights, clip=1.0)

            name = f"{settings} settings, {classes} classes"
            found |= {name: shortest({name: total}, 3)[name]}
    return found


def resident() -> float:
    """MB."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None, help="that sum; default: all cores")
    parser.add_argument("--folder", type=Path, default=None, help="for the files; 4 GB by default")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--measure", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure, options.rounds, options.threads)))
        return
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        whole = Path(name, "whole")
        whole.mkdir()
        write(whole, options.rows, options.features)
        for part in (1, 10, 100):
            folder = Path(name, str(part))
            folder.mkdir()
            for file in sorted(whole.iterdir())[:part]:
                os.link(file, folder / file.name)
            command = [sys.executable, __file__, "--measure", str(folder)]
            command += ["--rounds", str(options.rounds * (1 if part == 100 else 3))]
            command += [] if options.threads is None else ["--threads", str(options.threads)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            results.append(json.loads(done.stdout))
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'rows':>10}{'read, s':>10}{'sum, s':>10}{'ratio':>8}", end="")
    print(f"{'read cpu':>10}{'sum cpu':>10}{'us/row':>8}{'MB':>8}")
    for row in results:
        print(f"{row['rows']:>10}{row['read']:>10.2f}{row['sum']:>10.2f}", end="")
        print(f"{row['sum'] / row['read']:>8.2f}{row['read cpu']:>10.2f}", end="")
        print(f"{row['sum cpu']:>10.2f}{row['sum'] / row['rows'] * 1e6:>8.2f}", end="")
        print(f"{row['memory']:>8.0f}")
    for row, classes in itertools.product(results, (2, 10)):
        one, many = (row.get(f"{s} settings, {classes} classes") for s in (1, 16))
        if one and row["rows"] >= TOGETHER:
            print(f"16 settings, {classes} classes: {many / one:.2f} times one")


if __name__ == "__main__":
    main()
