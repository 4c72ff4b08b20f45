"""Linear regression beside AdaSSP, diffprivlib and OpenDP: same rows, same bounds, same ε and δ.

    python benchmarks/bench_regression.py [--data adult ...] [--epsilon 0.1 0.5 1] [--seeds 5]
                                          [--cache FILE] [--json]

R² and root mean square error on held-out rows, of targets cut to public bounds. Nothing is tuned.

Tacit has its default settings. AdaSSP is Algorithm 2 of Wang (2018), "Revisiting differentially
private linear regression", for added or removed rows, on rows of norm 1 and a constant, which
suit it better than columns between bounds. *Sharp* statistics are what becomes of it with
everything that Tacit knows: rows centred by a private mean, one Gaussian release of the second
moment of rows and targets together, no budget for the least eigenvalue (the noise is known), noise
that counts the symmetry of a matrix. diffprivlib's and OpenDP's models are for δ = 0. OpenDP's
takes one column only, which is named below; it is the numeric one that a person would guess.
Whoever is not installed is left out: ``bench_time.py`` says how to install them, and ``pip install
"opendp[scikit-learn]"`` does the rest.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench_field import COD_RNA
from comparison import OURS, Comparison, compare

from tacit import DPLinearRegressor, datasets
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.preprocessing import Encode
from tacit.privacy.accounting.accountants import gaussian_mu

DELTA = 1e-5
Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Task:
    """Rows in [-1, 1], targets between public bounds, and the one column that OpenDP gets."""

    rows: np.ndarray
    targets: np.ndarray
    bounds: tuple[float, float]
    guess: int

    def take(self, which: np.ndarray) -> Task:
        return Task(self.rows[which], self.targets[which], self.bounds, self.guess)

    @property
    def scaled(self) -> np.ndarray:
        low, high = self.bounds
        return (2 * self.targets - low - high) / (high - low)

    def unscaled(self, values: np.ndarray) -> np.ndarray:
        low, high = self.bounds
        return (values * (high - low) + low + high) / 2


def table(target: str, guess: str, *parts: Table, schema: Schema) -> list[Task]:
    """A number of a table to be predicted; what its schema calls the target is left out."""
    facts = schema.to_dict()
    low, high = (float(facts["columns"][target][end]) for end in ("low", "high"))
    del facts["columns"][target], facts["classes"]
    facts |= {"target": target, "target_bounds": [low, high]}
    facts["ignore"] = [*facts.get("ignore", []), schema.target]
    encode = Encode(Schema.from_dict(facts))
    at = encode.feature_names.index(guess)
    return [
        Task(
            encode.transform(part),
            np.clip(np.asarray(part.column(target), dtype=float), low, high),
            (low, high),
            at,
        )
        for part in parts
    ]


def adult() -> tuple[Task, Task]:
    *parts, schema = datasets.load_adult()
    train, test = table("age", "hours-per-week", *parts, schema=schema)
    return train, test


def bank() -> tuple[Task, Task]:
    part, schema = datasets.load_bank()
    return _split(*table("age", "previous", part, schema=schema))


def diabetes130() -> tuple[Task, Task]:
    part, schema = datasets.load_diabetes130(one_per_patient=True)
    return _split(*table("time_in_hospital", "num_medications", part, schema=schema))


def cod_rna() -> tuple[Task, Task]:
    """The free energy of folding, from the lengths and frequencies of two sequences."""
    low, high = COD_RNA.T
    X, _, X_test, _ = datasets.load_cod_rna()
    halves = [np.clip((2 * rows - low - high) / (high - low), -1, 1) for rows in (X, X_test)]
    train, test = (
        Task(scaled[:, 1:], np.clip(rows[:, 0], low[0], high[0]), (low[0], high[0]), 0)
        for scaled, rows in zip(halves, (X, X_test), strict=True)
    )
    return train, test


def _split(whole: Task) -> tuple[Task, Task]:
    """A fifth to test with."""
    order = np.random.default_rng(0).permutation(len(whole.targets))
    cut = len(order) * 4 // 5
    return whole.take(order[:cut]), whole.take(order[cut:])


SETS: dict[str, tuple[str, Callable[[], tuple[Task, Task]]]] = {
    "adult": ("Adult: age", adult),
    "bank": ("Bank: age", bank),
    "diabetes130": ("Diabetes: days in hospital", diabetes130),
    "cod_rna": ("Cod-RNA: energy", cod_rna),
}


def tacit(task: Task, epsilon: float, seed: int) -> Predict:
    model = DPLinearRegressor(epsilon, DELTA, target_bounds=task.bounds, random_state=seed)
    return model.fit(task.rows, task.targets).predict  # type: ignore[no-any-return]


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)


def with_constant(rows: np.ndarray, constant: float) -> np.ndarray:
    return np.hstack([rows, np.full((len(rows), 1), constant)])


def adassp(task: Task, epsilon: float, seed: int) -> Predict:
    """Wang (2018), Algorithm 2, with ρ = 0.05; rows have norm 1, targets lie in [-1, 1]."""

    def prepared(rows: np.ndarray) -> np.ndarray:
        return with_constant(unit(rows), 1.0) / np.sqrt(2)

    rng, rows = np.random.default_rng(seed), prepared(task.rows)
    d, third, log = rows.shape[1], epsilon / 3, np.log(6 / DELTA)
    scale = np.sqrt(log) / third
    moment, products = rows.T @ rows, rows.T @ task.scaled
    least = np.linalg.eigvalsh(moment)[0] + scale * rng.normal() - log / third
    upper = np.triu(rng.normal(size=(d, d)))
    noisy = moment + scale * (upper + np.triu(upper, 1).T)
    ridge = np.sqrt(d * log * np.log(2 * d**2 / 0.05)) / third - max(least, 0.0)
    weights = np.linalg.solve(
        noisy + max(ridge, 0.0) * np.eye(d), products + scale * rng.normal(size=d)
    )
    return lambda test: task.unscaled(prepared(test) @ weights)


def sharp(task: Task, epsilon: float, seed: int) -> Predict:
    """One release of Σzzᵀ, z = (row, constant, target); constants as served these tables best."""
    constant, weight, share, damping = 0.5, 0.5, 0.1, 0.35
    rng, rows, mu = np.random.default_rng(seed), unit(task.rows), gaussian_mu(epsilon, DELTA)
    mean = rows.mean(axis=0) + rng.normal(size=rows.shape[1]) / (share * mu * len(rows))

    def prepared(some: np.ndarray) -> np.ndarray:
        return with_constant(some - mean, constant)

    joint = np.hstack([prepared(rows), weight * task.scaled[:, None]])
    joint /= np.maximum(np.linalg.norm(joint, axis=1, keepdims=True), 1.0)
    d = joint.shape[1] - 1
    deviation = 1 / (mu * np.sqrt(1 - share**2))
    noise = rng.normal(size=(d + 1, d + 1)) * deviation
    noisy = joint.T @ joint + (noise + noise.T) / 2
    values, vectors = np.linalg.eigh(noisy[:d, :d])
    damped = np.maximum(values, 0) + damping * deviation * np.sqrt(2 * d)
    weights = vectors @ (vectors.T @ noisy[:d, d] / weight / damped)
    return lambda test: task.unscaled(prepared(unit(test)) @ weights)


def diffprivlib(task: Task, epsilon: float, seed: int) -> Predict:
    from diffprivlib.models import LinearRegression

    model = LinearRegression(
        epsilon=epsilon, bounds_X=(-1.0, 1.0), bounds_y=task.bounds, random_state=seed
    )
    return model.fit(task.rows, task.targets).predict  # type: ignore[no-any-return]


def opendp(task: Task, epsilon: float, seed: int) -> Predict:
    import opendp.prelude as dp

    dp.enable_features("contrib", "idealized-numerics", "honest-but-curious")

    def made(scale: float) -> Any:
        return dp.sklearn.linear_model.LinearRegression(
            dp.max_divergence(), x_bounds=[(-1.0, 1.0)], y_bounds=task.bounds, scale=scale
        )

    scale = made(1.0).measurement.map(1) / epsilon  # a row added or removed
    column = [task.guess]
    model = made(scale).fit(task.rows[:, column], task.targets)
    return lambda test: model.predict(test[:, column])  # type: ignore[no-any-return]


METHODS: dict[str, tuple[str | None, Callable[[Task, float, int], Predict]]] = {
    OURS: (None, tacit),
    "AdaSSP": (None, adassp),
    "sharp statistics": (None, sharp),
    "diffprivlib": ("diffprivlib", diffprivlib),
    "OpenDP, one column": ("opendp", opendp),
}


def judged(predicted: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    errors = float(np.square(predicted - targets).mean())
    return {"r2": 1 - errors / float(targets.var()), "rmse": errors**0.5}


def least_squares(train: Task, test: Task) -> dict[str, float]:
    """Without privacy, on the same rows of norm 1."""
    rows = with_constant(unit(train.rows), 1.0)
    weights = np.linalg.lstsq(rows, train.targets, rcond=None)[0]
    return judged(with_constant(unit(test.rows), 1.0) @ weights, test.targets)


class Numbers(Comparison):
    """Regressions on one table."""

    methods = METHODS

    def __init__(self, name: str, *where: Any) -> None:
        title, self._read = SETS[name]
        super().__init__(title, name, *where)

    def load(self) -> tuple[Task, Task]:
        return self._read()

    def describe(self, train: Task, test: Task) -> dict[str, Any]:
        rows, columns = train.rows.shape
        return {"rows": rows, "columns": columns, "plain": least_squares(train, test)}

    def judge(self, model: Predict, test: Task) -> dict[str, float]:
        return judged(model(test.rows), test.targets)

    def by(self) -> str:
        return "r2"


def main() -> None:
    compare(
        argparse.ArgumentParser(description=__doc__.splitlines()[0]),
        SETS,
        lambda name, given: Numbers(name, given.cache, given.cached),
        seeds=5,
        digits=3,
    )


if __name__ == "__main__":
    main()
