"""Time of whole epochs and whole fits, beside Opacus, diffprivlib, scikit-learn and bare products.

    python -m venv .venv-rivals
    .venv-rivals/bin/pip install -e . opacus==1.6.0 diffprivlib==0.6.6 "scikit-learn<1.8"
    .venv-rivals/bin/python benchmarks/bench_time.py

Who is not installed is left out. Everybody has the same rows and as many threads, and takes turns;
the shortest turn of each counts. With one thread, the default, that is processor time, which other
work on the machine disturbs least; with more, the clock on the wall. An epoch is n / batch Poisson
batches in expectation: drawing them, clipped gradients, noise, update.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Releases
from tacit.trainers import DPSGD
from tacit.trainers.settings import PublicFacts

Run = Callable[[], object]
THREADS = {"each": 1}
PAUSE = 0.3  # seconds, in which threads of whoever was last stop spinning on the other's core


def rows_of(n: int, d: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = rng.random((n, d), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, rng.integers(0, classes, n)


def ours(rows: np.ndarray, labels: np.ndarray, classes: int, batch: int, arithmetic: str) -> Run:
    n, d = rows.shape
    loss = get_loss("softmax" if classes > 2 else "logistic")
    outputs = loss.outputs(classes)
    engine = Engine(
        as_rows(rows, bound=1.0),
        loss.targets(labels, outputs),
        loss,
        intercept=1.0,
        arithmetic=arithmetic,  # type: ignore[arg-type]
        threads=THREADS["each"],
    )
    facts = PublicFacts(n, d, outputs, typical_norm=1.0, mu=0.25)
    trainer = DPSGD(steps=round(n / batch), batch_size=batch).resolve(facts)

    def run() -> np.ndarray:
        return trainer.train(engine, Releases(Key.fresh(), trainer.events(1.0, facts)), facts)

    return run


def bare(rows: np.ndarray, classes: int, batch: int) -> Run:
    """The two float32 products of every batch, on rows already gathered."""
    n, d = rows.shape
    outputs = classes if classes > 2 else 1
    weights, multipliers = np.ones((d, outputs), np.float32), np.ones((batch, outputs), np.float32)
    blocks = [rows[i : i + batch] for i in range(0, n - batch + 1, batch)]
    return lambda: [(block @ weights, block.T @ multipliers) for block in blocks]


def opacus(rows: np.ndarray, labels: np.ndarray, classes: int, batch: int, mode: str) -> Run | None:
    try:
        import torch
        from opacus import PrivacyEngine
    except ImportError:
        return None
    torch.set_num_threads(THREADS["each"])
    data = torch.utils.data.TensorDataset(torch.from_numpy(rows), torch.from_numpy(labels))
    loader = torch.utils.data.DataLoader(data, batch_size=batch)
    model: Any = torch.nn.Linear(rows.shape[1], classes)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion: Any = torch.nn.CrossEntropyLoss()
    settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "poisson_sampling": True}
    private = PrivacyEngine().make_private
    if mode == "ghost":
        model, optimizer, criterion, loader = private(
            module=model,
            optimizer=optimizer,
            criterion=criterion,
            data_loader=loader,
            grad_sample_mode="ghost",
            **settings,
        )
    else:
        model, optimizer, loader = private(
            module=model, optimizer=optimizer, data_loader=loader, **settings
        )

    def epoch() -> None:
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()

    return epoch


def diffprivlib(rows: np.ndarray, labels: np.ndarray) -> Run | None:
    try:
        from diffprivlib.models import LogisticRegression
    except ImportError:
        return None
    return lambda: LogisticRegression(epsilon=1.0, data_norm=1.0).fit(rows, labels)


def scikit_learn(rows: np.ndarray, labels: np.ndarray, which: str) -> Run:
    from sklearn.linear_model import LogisticRegression, SGDClassifier

    if which == "sgd":  # one pass, as the epochs above
        return lambda: SGDClassifier(loss="log_loss", max_iter=1, tol=None).fit(rows, labels)
    return lambda: LogisticRegression(max_iter=100).fit(rows, labels)


def whole(rows: np.ndarray, labels: np.ndarray) -> Run:
    """A fit by default settings: a plan, a private mean, descent on all rows, a certificate."""
    return lambda: DPLinearClassifier(epsilon=1.0, delta=1e-5).fit(rows, labels)


def take_turns(runs: dict[str, Run | None], rounds: int) -> dict[str, float]:
    """Shortest time of each, in seconds."""
    clock = time.process_time if THREADS["each"] == 1 else time.perf_counter
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in runs.items():
            if run is not None:
                time.sleep(PAUSE)
                with threadpool_limits(THREADS["each"]):
                    start = clock()
                    run()
                    best[name] = min(best.get(name, np.inf), clock() - start)
    return best


def epochs(n: int, d: int, classes: int, batch: int, rounds: int) -> dict[str, float]:
    rows, labels = rows_of(n, d, classes)
    return take_turns(
        {
            "bare products": bare(rows, classes, batch),
            "tacit, exact": ours(rows, labels, classes, batch, "exact"),
            "tacit, float32": ours(rows, labels, classes, batch, "fast"),
            "Opacus, ghost clipping": opacus(rows, labels, classes, batch, "ghost"),
            "Opacus, default": opacus(rows, labels, classes, batch, "hooks"),
            "SGDClassifier": scikit_learn(rows, labels, "sgd"),
        },
        rounds,
    )


def fits(n: int, d: int, classes: int, rounds: int) -> dict[str, float]:
    rows, labels = rows_of(n, d, classes)
    labels = np.asarray(rows[:, :classes].argmax(axis=1))
    return take_turns(
        {
            "tacit, exact": whole(rows, labels),
            "LogisticRegression": scikit_learn(rows, labels, "lbfgs"),
            "diffprivlib": diffprivlib(rows, labels),
        },
        rounds,
    )


GROWTH = {
    "rows": [(n, 200, 10) for n in (10_000, 30_000, 100_000, 300_000)],
    "columns": [(30_000, d, 10) for d in (50, 200, 800, 2_000)],
    "classes": [(30_000, 200, k) for k in (2, 10, 30, 100)],
}


def growth(rounds: int) -> dict[str, list[dict[str, float]]]:
    """Time of an epoch of batches of a fifteenth of the rows, along rows, columns and classes."""
    found: dict[str, list[dict[str, float]]] = {}
    for axis, shapes in GROWTH.items():
        for n, d, classes in shapes:
            rows, labels = rows_of(n, d, classes)
            batch = n // 15
            runs = {"bare": bare(rows, classes, batch)}
            for arithmetic in ("exact", "fast"):
                runs[arithmetic] = ours(rows, labels, classes, batch, arithmetic)
            times = take_turns(runs, rounds)
            found.setdefault(axis, []).append(
                {"rows": n, "columns": d, "classes": classes, **times}
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of everybody")
    parser.add_argument("--growth", action="store_true", help="only the curves over the shape")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    THREADS["each"] = options.threads
    found: dict[str, Any]
    if options.growth:
        found = growth(options.rounds)
    else:
        found = {
            "epoch": epochs(60_000, 784, 10, 4096, options.rounds),
            "fit": fits(30_000, 100, 2, options.rounds),
        }
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for title, times in found.items():
        print(title)
        if isinstance(times, list):
            for row in times:
                print("  ", {k: round(v, 4) for k, v in row.items()})
            continue
        for name, seconds in times.items():
            print(f"  {name:<24}{seconds * 1e3:>10.1f} ms {seconds / times['tacit, exact']:>8.2f}")


if __name__ == "__main__":
    main()
