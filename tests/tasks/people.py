"""A table of people, and what fits are told of it."""

from __future__ import annotations

import csv

import numpy as np

from tacit.cli.settings import Settings
from tacit.data.tables import Table

COLUMNS = {
    "age": {"kind": "number", "low": 0, "high": 100},
    "hours": {"kind": "number", "low": 0, "high": 80, "missing": "indicator"},
    "job": {"kind": "category", "categories": ["cook", "nurse", "smith"]},
}
CLASSES = {"target": "rich", "classes": ["no", "yes"], "columns": COLUMNS, "ignore": ["id"]}
AMOUNT = {"target": "amount", "target_bounds": [0, 200], "columns": COLUMNS, "ignore": ["id"]}
QUICK = Settings(2.0, 1e-4, steps=30)


def people(n: int = 600, seed: int = 0) -> dict[str, list]:
    rng = np.random.default_rng(seed)
    age, hours = rng.uniform(18, 90, n), rng.uniform(0, 80, n)
    job = rng.choice(["cook", "nurse", "smith"], n)
    amount = age + hours / 2 + 20 * (job == "smith")
    return {
        "id": list(range(n)),
        "age": age.round(1).tolist(),
        "hours": [h if i % 9 else None for i, h in enumerate(hours.round(1).tolist())],
        "job": job.tolist(),
        "rich": np.where(amount > 80, "yes", "no").tolist(),
        "amount": amount.round(2).tolist(),
    }


def without(columns: dict[str, list], *names: str) -> dict[str, list]:
    return {name: values for name, values in columns.items() if name not in names}


def write_csv(path, columns):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def table(n=600, seed=0, drop=("amount",), **changes) -> Table:
    return Table.from_columns(without(people(n, seed), *drop) | changes)
