"""Curves of single columns: Tacit's shapes against DP-EBM, on the same rows, knowing the same.

    python benchmarks/bench_shapes.py --results FILE [--methods Tacit DP-EBM] [--seeds 10]

The protocol, which was written before the first figure:

* Both methods get the same table, the same (ε, δ) with δ = 1e-5, and the same public knowledge:
  bounds, logarithmic scales and categories of one schema. Neither is tuned: Tacit's defaults, and
  those of DP-EBM (interpret 0.7.8: Nori, Caruana, Bu, Shen & Kulkarni 2021), which is given
  numbers as ``continuous`` with ``privacy_bounds`` on the schema's scale, and categories as
  ``nominal``, with values beyond them and gaps as categories of their own.
* Published test rows where there are some; otherwise a quarter of the rows, drawn by the seed.
  Seeds 0 to 9 are splits and runs at once, the same for both methods.
* Area under the ROC curve and log loss for classes, R² for numbers, all on test rows.
* Ahead or behind means by more than two standard errors of the mean difference over seeds, which
  are paired; otherwise level.

Every fit is a line of the file of results, so that an interrupted run goes on where it stopped.
DP-EBM needs ``pip install interpret==0.7.8``. Data are taken from the directory named by
TACIT_DATA.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench_field import COD_RNA
from comparison import verdict
from sklearn.metrics import log_loss, r2_score, roc_auc_score
from threadpoolctl import threadpool_limits

from tacit import DPLinearClassifier, DPLinearRegressor, datasets
from tacit.data.readers import parse_table
from tacit.data.schema import CategoryColumn, NumberColumn, Schema
from tacit.data.tables import ABSENT, Table
from tacit.datasets.store import folders

DELTA = 1e-5
EPSILONS = (0.1, 0.5, 1.0, 4.0)
TEST = 0.25  # of the rows, where no test rows are published


@dataclass(frozen=True)
class Task:
    """Rows to fit to and to test with, and what is public about them."""

    train: Table
    test: Table
    y: np.ndarray
    y_test: np.ndarray
    schema: Schema
    bounds: tuple[float, float] | None = None  # of a target that is a number


Load = Callable[[int], Task]


def _split(table: Table, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(table.n)
    cut = round(table.n * (1 - TEST))
    return order[:cut], order[cut:]


def _classes(train: Table, test: Table, schema: Schema, positive: Sequence[str]) -> Task:
    """Is the target one of these?"""
    labels = [
        np.isin(
            part.match(schema.target, schema.classes),
            [schema.classes.index(name) for name in positive],
        ).astype(int)
        for part in (train, test)
    ]
    return Task(train, test, *labels, _features(schema, train))


def _features(schema: Schema, table: Table) -> Schema:
    """The columns alone: all others are ignored."""
    return Schema(
        schema.columns,
        ignore=tuple(name for name in table.column_names if name not in schema.columns),
    )


def adult(seed: int) -> Task:
    train, test, schema = datasets.load_adult()
    return _classes(train, test, schema, [">50K"])


def bank(seed: int) -> Task:
    table, schema = datasets.load_bank()
    train, test = _split(table, seed)
    return _classes(table.take(train), table.take(test), schema, ["yes"])


def census_kdd(seed: int) -> Task:
    train, test, schema = datasets.load_census_kdd()
    return _classes(train, test, schema, ["50000+"])


def diabetes130(seed: int) -> Task:
    """Is a patient readmitted at all, after the first stay?"""
    table, schema = datasets.load_diabetes130(one_per_patient=True)
    train, test = _split(table, seed)
    return _classes(table.take(train), table.take(test), schema, [">30", "<30"])


def cod_rna(seed: int) -> Task:
    X, y, X_test, y_test = datasets.load_cod_rna()
    names = ["energy", "length", *(f"part{i}" for i in range(6))]
    schema = Schema({name: NumberColumn(*ends) for name, ends in zip(names, COD_RNA, strict=True)})
    train, test = (
        Table.from_columns(dict(zip(names, np.ascontiguousarray(rows.T), strict=True)))
        for rows in (X, X_test)
    )
    return Task(train, test, (y > 0).astype(int), (y_test > 0).astype(int), schema)


def _number(name: str, columns: dict[str, Any], target: str, seed: int) -> Task:
    data = lzma.decompress((folders(name)[0] / f"{name}.csv.xz").read_bytes())
    table = parse_table(name, data.replace(b'""', b'"row"', 1))
    facts = dict(columns)
    low, high = facts.pop(target)
    schema = Schema(
        {
            key: NumberColumn(*value) if isinstance(value, tuple) else CategoryColumn(value)
            for key, value in facts.items()
        }
    )
    train, test = (table.take(part) for part in _split(table, seed))
    y, y_test = (np.asarray(part.column(target), dtype=float) for part in (train, test))
    return Task(train, test, y, y_test, _features(schema, table), (float(low), float(high)))


DIAMONDS = {
    "carat": (0, 5),
    "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
    "color": list("DEFGHIJ"),
    "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    "depth": (40, 80),  # in percent
    "table": (40, 100),
    "x": (0, 12),  # in mm
    "y": (0, 12),
    "z": (0, 8),
    "price": (0, 20_000),
}
BIKE = {
    "season": ["1", "2", "3", "4"],
    "yr": ["2011", "2012"],
    "mnth": (1, 12),
    "hr": (0, 23),
    "holiday": ["0", "1"],
    "weekday": ["0", "1", "2", "3", "4", "5", "6"],
    "workingday": ["0", "1"],
    "weathersit": ["1", "2", "3", "4"],
    "temp": (0, 1),  # these four are published as parts of their largest values
    "atemp": (0, 1),
    "hum": (0, 1),
    "windspeed": (0, 1),
    "cnt": (0, 1_000),
}


def diamonds(seed: int) -> Task:
    return _number("diamonds", DIAMONDS, "price", seed)


def bike(seed: int) -> Task:
    return _number("bike", BIKE, "cnt", seed)


SETS: dict[str, tuple[str, Load]] = {
    "adult": ("Adult", adult),
    "bank": ("Bank", bank),
    "diabetes130": ("Diabetes-130", diabetes130),
    "cod_rna": ("Cod-RNA", cod_rna),
    "diamonds": ("Diamonds", diamonds),
    "bike": ("Bike", bike),
    "census_kdd": ("Census-KDD", census_kdd),
}


def _cells(table: Table, schema: Schema) -> Any:
    """What DP-EBM is given: numbers between their bounds, names of categories."""
    import pandas as pd

    cells: dict[str, Any] = {}
    for name, column in schema.columns.items():
        if isinstance(column, CategoryColumn):
            words = np.array([*column.categories, "<unseen>", "<missing>"], dtype=object)
            codes = table.match(name, column.categories)  # -2 and -1 pick the last two
            cells[name] = words[codes]
            assert ABSENT == -1
        else:
            values = np.clip(table.column(name), column.low, column.high)
            cells[name] = np.log1p(values - column.low) if column.scale == "log" else values
    return pd.DataFrame(cells)


def dp_ebm(task: Task, epsilon: float, seed: int) -> np.ndarray:
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    bounds, kinds = {}, []
    for name, column in task.schema.columns.items():
        kinds.append("nominal" if isinstance(column, CategoryColumn) else "continuous")
        if isinstance(column, NumberColumn):
            span = column.high - column.low
            logarithmic = column.scale == "log"
            bounds[name] = (
                (0.0, float(np.log1p(span))) if logarithmic else (column.low, column.high)
            )
    rows, rows_test = (_cells(part, task.schema) for part in (task.train, task.test))
    settings: dict[str, Any] = {
        "feature_names": list(rows),
        "feature_types": kinds,
        "privacy_bounds": bounds,
        "epsilon": epsilon,
        "delta": DELTA,
        "random_state": seed,
        "n_jobs": 1,
    }
    if task.bounds is None:
        model = DPExplainableBoostingClassifier(**settings).fit(rows, task.y)
        return np.asarray(model.predict_proba(rows_test)[:, 1])
    low, high = task.bounds
    model = DPExplainableBoostingRegressor(
        **settings, privacy_target_min=low, privacy_target_max=high
    ).fit(rows, np.clip(task.y, low, high))
    return np.asarray(model.predict(rows_test))


def tacit(task: Task, epsilon: float, seed: int) -> np.ndarray:
    how: dict[str, Any] = {"schema": task.schema, "random_state": seed}
    if task.bounds is None:
        model = DPLinearClassifier(epsilon, DELTA, **how).fit(task.train, task.y)
        return np.asarray(model.predict_proba(task.test)[:, 1])
    numbers = DPLinearRegressor(epsilon, DELTA, target_bounds=task.bounds, **how)
    return np.asarray(numbers.fit(task.train, task.y).predict(task.test))


METHODS: dict[str, Callable[[Task, float, int], np.ndarray]] = {"Tacit": tacit, "DP-EBM": dp_ebm}


def judge(task: Task, found: np.ndarray) -> dict[str, float]:
    if task.bounds is not None:
        return {"r2": float(r2_score(task.y_test, found))}
    return {
        "auc": float(roc_auc_score(task.y_test, found)),
        "log_loss": float(log_loss(task.y_test, np.clip(found, 1e-7, 1 - 1e-7))),
    }


def runs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every fit that is not in the file yet: first two seeds of all data, then more."""
    known = {
        tuple(line[k] for k in ("data", "method", "epsilon", "seed")) for line in read(options)
    }
    seeds = list(range(options.seeds))
    for part in (seeds[:1], seeds[1:2], seeds[2:4], seeds[4:7], seeds[7:]):
        for name in options.data:
            for seed in part:
                todo = [
                    (method, epsilon)
                    for method in options.methods
                    for epsilon in options.epsilon
                    if (name, method, epsilon, seed) not in known
                ]
                task = SETS[name][1](seed) if todo else None
                for method, epsilon in todo:
                    start = time.process_time()
                    with threadpool_limits(1), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        found = judge(task, METHODS[method](task, epsilon, seed))
                    yield {
                        "data": name,
                        "method": method,
                        "epsilon": epsilon,
                        "seed": seed,
                        **found,
                        "seconds": time.process_time() - start,
                    }


def read(options: argparse.Namespace) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in options.results
        if file.exists()
        for line in file.read_text().splitlines()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, nargs="+", required=True, help="written: the first")
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    for line in runs(options):
        with options.results[0].open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(line, file=sys.stderr, flush=True)
    print("\n".join(table(read(options))))


SCORES = {"auc": ("area under the curve", 1), "log_loss": ("log loss", -1), "r2": ("R²", 1)}


def table(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Means of both methods over the seeds that both have, and who is ahead."""
    yield "| data | ε | score | Tacit | DP-EBM | lead ± standard error | seeds | |"
    yield "|---|---|---|---|---|---|---|---|"
    held = {(x["data"], x["epsilon"], x["method"], x["seed"]): x for x in lines}
    for name, (title, _) in SETS.items():
        for epsilon in EPSILONS:
            ours, theirs = (
                {x[3]: held[x] for x in held if x[:3] == (name, epsilon, method)}
                for method in ("Tacit", "DP-EBM")
            )
            seeds = sorted(ours.keys() & theirs.keys())
            for score, (words, sign) in SCORES.items():
                if len(seeds) > 1 and score in ours[seeds[0]]:
                    pair = np.array([[run[s][score] for s in seeds] for run in (ours, theirs)])
                    lead = sign * (pair[0] - pair[1])
                    error = lead.std(ddof=1) / np.sqrt(len(seeds))
                    yield (
                        f"| {title} | {epsilon:g} | {words} | {pair[0].mean():.4f} | "
                        f"{pair[1].mean():.4f} | {lead.mean():+.4f} ± {error:.4f} | {len(seeds)} | "
                        f"{verdict(float(lead.mean()), float(error))} |"
                    )


if __name__ == "__main__":
    main()
