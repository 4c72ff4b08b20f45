"""Does the number of columns matter? Paper 001, Figure 2, and paper 002, Figure 1.

    python benchmarks/bench_dimension.py [--runs 3] [--quick] [--json]

*Cod-RNA* with columns of zeros appended, up to 50,000: test accuracy of logistic regression with
Gaussian noise of 0.63 and with gamma noise of scale 0.57 on sums over batches of 250 rows, for ten
epochs. Each is shown at its best over one grid of learning rates, chosen on the outcome, as in the
paper. `load_cod_rna` says where it is read from.

*Geometric medians* under A = diag(k^-a): excess of the mean distance, for a = 0, 1/2 and 1, by the
settings of `DPGeometricMedian` itself; for a = 1 also after twice as many steps. At least five
runs, with the same noise in the first columns whatever comes behind.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit import DPGeometricMedian
from tacit.data.datasets import load_cod_rna
from tacit.data.rows import as_rows
from tacit.exceptions import FileError
from tacit.instances import median
from tacit.losses import get_loss
from tacit.mechanisms.noise import Key
from tacit.median import STEPS
from tacit.privacy.accountants import epsilon
from tacit.trainers import DPSGD, Engine, Facts, GammaSGD, train_together

BATCH, EPOCHS, DELTA = 250, 10, 1e-5
NOISE = {"Gaussian": (DPSGD, 0.63), "gamma": (GammaSGD, 0.57)}
RATES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
COLUMNS = (9, 100, 1000, 10_000, 50_000)


def cod_rna() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of 9 columns and norm at most one, as in the paper's appendix E, and labels 0 and 1."""
    train, y, test, y_test = load_cod_rna()
    # The paper reads these bounds off its training rows; here they pass for public.
    low, high = train.min(axis=0), train.max(axis=0)

    def scaled(rows: np.ndarray) -> np.ndarray:
        rows = (rows - low) / (high - low) - 0.5
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows * np.minimum(1, math.sqrt(8 / 9) / np.maximum(norms, 1e-12))
        return np.hstack([rows, np.full((len(rows), 1), 1 / 3)])

    return scaled(train), (y > 0).astype(int), scaled(test), (y_test > 0).astype(int)


def accuracies(kind: str, d: int, data: Any, *, rates: tuple[float, ...], seed: int) -> list[float]:
    """Test accuracy of the last iterate, for each rate; all share batches and differ in noise."""
    rows, y, test, y_test = data
    trainer, noise = NOISE[kind]
    n = len(rows)
    steps = math.ceil(EPOCHS * n / BATCH)
    loss = get_loss("logistic")
    narrow = sp.csr_array(rows)
    padded = sp.csr_array((narrow.data, narrow.indices, narrow.indptr), shape=(n, d))
    facts = Facts(n, d, 1, 1.0, 1.0)
    settings = [
        trainer(
            steps=steps,
            batch_size=BATCH,
            learning_rate=rate,
            clip=1.0,
            momentum=0.0,
            average="last",
            schedule="constant",
            bias=0.1,
        )
        for rate in rates
    ]
    engine = Engine(as_rows(padded, bound=1.0), loss.targets(y, 1), loss, arithmetic="fast")
    key = Key.from_seed(seed)
    weights = train_together(engine, settings, [noise] * len(rates), facts, key)
    found = (test @ weights[:, :9, 0].T > 0) == (y_test == 1)[:, None]
    return [float(value) for value in found.mean(axis=0)]


def dimension(runs: int, quick: bool) -> dict[str, Any]:
    data = cod_rna()
    n = len(data[0])
    steps = math.ceil(EPOCHS * n / BATCH)
    facts = Facts(n, 9, 1, 1.0, 1.0)
    found: dict[str, Any] = {"rows": n, "spent": {}, "accuracy": {}}
    for kind, (trainer, noise) in NOISE.items():
        event = trainer(steps=steps, batch_size=BATCH).event(noise, facts)
        found["spent"][kind] = epsilon([event], DELTA, "replace_special")
        found["accuracy"][kind] = {}
        for d in COLUMNS[:3] if quick else COLUMNS:
            rates = RATES[2:7] if d > 1000 or quick else RATES
            each = [accuracies(kind, d, data, rates=rates, seed=seed) for seed in range(runs)]
            best = float(np.mean(each, axis=0).max())
            found["accuracy"][kind][d] = best
            say(f"Cod-RNA, {kind:<9}{d:>7} columns {100 * best:.2f}%")
    return found


def medians(runs: int, quick: bool) -> list[dict[str, Any]]:
    """Excess of the mean distance and its standard error, n = 10,000, ε = 2, δ = 1e-6."""
    found = []
    for decay, steps in ((0.0, STEPS), (0.5, STEPS), (1.0, STEPS), (1.0, 2 * STEPS)):
        by = {}
        for d in (10, 100) if quick else (10, 100, 1000):
            made = median(10_000, d, decay=decay, seed=0)
            how = {"radius": 1.0, "weights": made.facts["weights"], "steps": steps}
            each = [
                made.excess(
                    DPGeometricMedian(2.0, 1e-6, **how, random_state=seed).fit(made.rows).location_
                )
                for seed in range(runs if quick else max(runs, 5))
            ]
            by[d] = float(np.mean(each)), float(np.std(each, ddof=1) / math.sqrt(len(each)))
            say(
                f"median, weights k^-{decay:g}, {steps} steps, {d:>5} columns: "
                f"excess {by[d][0]:.3g} ± {by[d][1]:.1g}"
            )
        found.append({"decay": decay, "steps": steps, "excess": by})
    return found


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.json:
        globals()["say"] = lambda text: None
    result: dict[str, Any] = {}
    try:
        result["cod-rna"] = dimension(options.runs, options.quick)
    except FileError as error:
        say(f"skipped: {error}")
    result["median"] = medians(options.runs, options.quick)
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
