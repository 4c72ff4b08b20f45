"""Test accuracy beside diffprivlib, Opacus and bare DP-SGD: same rows, same ε and δ, no tuning.

    python benchmarks/bench_field.py [--data adult ...] [--epsilon 0.1 0.5 1] [--rows N]
                                     [--seeds 10] [--cache FILE] [--json]

Everybody gets the same rows, a few thousand of them, within public bounds of their columns:
numbers to [-1, 1], categories to 0 and 1, pixels and features to [0, 1]. What each does with them
is its own affair: Tacit its default; DP-SGD the recipe of that name, without centring; Opacus the
settings of its own example (a linear layer; batches of 64, 10 epochs, rate 0.1, clip 1), with the
noise that the budget asks for; diffprivlib its defaults, rows brought to norm 1 for its logistic
regression, which needs a bound on it. diffprivlib's models are for δ = 0. OpenDP (0.16) has no
classifier. Whoever is not installed is left out: ``bench_time.py`` says how to install them.
Every fit is kept in the cache, so an interrupted run goes on where it stopped. Data are looked for
in the directory named by TACIT_DATA.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from comparison import OURS, Comparison, compare

from tacit import DPLinearClassifier, datasets, recipe
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.preprocessing import Encode

DELTA = 1e-5
TESTED = 10_000
TOP = np.float32(255)  # of a pixel
RARE = 0.15  # below this share of the smaller class, accuracy says little
COD_RNA = np.array([[-1500, 0], [0, 250], *([[0, 1]] * 6)], dtype=float)  # energies, lengths, parts
Scores = Callable[["Data"], np.ndarray]


@dataclass(frozen=True)
class Data:
    """Rows as Tacit gets them, the same between public bounds, and labels 0 to K-1."""

    rows: Any  # an array, or a sparse matrix where the data come as one
    bounded: np.ndarray
    low: float
    labels: np.ndarray

    def take(self, which: np.ndarray) -> Data:
        return Data(self.rows[which], self.bounded[which], self.low, self.labels[which])

    @property
    def classes(self) -> int:
        return len(np.unique(self.labels))

    @property
    def unit(self) -> np.ndarray:
        norms = np.linalg.norm(self.bounded, axis=1, keepdims=True)
        return self.bounded / np.maximum(norms, 1e-300)


def table(load: Callable[[], Any]) -> tuple[Data, Data]:
    *parts, schema = load()
    found = [_encoded(part, schema) for part in parts]
    return (found[0], found[1]) if len(found) == 2 else _split(found[0])


def _encoded(part: Table, schema: Schema) -> Data:
    rows = Encode(schema).transform(part)
    return Data(rows, rows, -1.0, part.match(str(schema.target), list(schema.classes or ())))


def pixels(load: Callable[[], Any]) -> tuple[Data, Data]:
    X, y, X_test, y_test = load()
    return Data(X, X / TOP, 0.0, y), Data(X_test, X_test / TOP, 0.0, y_test)


def features(load: Callable[[], Any]) -> tuple[Data, Data]:
    """Features of a network that ends in a mean of numbers in [0, 6]."""
    X, y, X_test, y_test = load()[:4]
    X, X_test = X / np.float32(6), X_test / np.float32(6)
    return Data(X, X, 0.0, y), Data(X_test, X_test, 0.0, y_test)


def cod_rna() -> tuple[Data, Data]:
    X, y, X_test, y_test = datasets.load_cod_rna()
    low, high = COD_RNA.T
    halves = [np.clip((2 * rows - low - high) / (high - low), -1, 1) for rows in (X, X_test)]
    pairs = zip(halves, (y, y_test), strict=True)
    train, test = (Data(rows, rows, -1.0, (signs > 0).astype(int)) for rows, signs in pairs)
    return train, test


def w8a() -> tuple[Data, Data]:
    X, y = datasets.load_w8a()
    return _split(Data(X, X.toarray(), 0.0, (y > 0).astype(int)))


def _split(whole: Data) -> tuple[Data, Data]:
    """A fifth to test with."""
    order = np.random.default_rng(0).permutation(len(whole.labels))
    cut = len(order) * 4 // 5
    return whole.take(order[:cut]), whole.take(order[cut:])


#: Title, rows to fit to at most (some rivals are slow), and where they are from.
SETS: dict[str, tuple[str, int, Callable[[], tuple[Data, Data]]]] = {
    "adult": ("Adult", 20_000, lambda: table(datasets.load_adult)),
    "bank": ("Bank", 20_000, lambda: table(datasets.load_bank)),
    "census_kdd": ("Census-KDD", 20_000, lambda: table(datasets.load_census_kdd)),
    "cod_rna": ("Cod-RNA", 20_000, cod_rna),
    "w8a": ("w8a", 20_000, w8a),
    "chest_xray": ("Chest X-ray", 20_000, lambda: features(datasets.load_chest_xray)),
    "mnist": ("MNIST", 10_000, lambda: pixels(datasets.load_mnist)),
    "fashion_mnist": ("Fashion-MNIST", 10_000, lambda: pixels(datasets.load_fashion_mnist)),
    "cifar10": ("CIFAR-10 features", 10_000, lambda: features(datasets.load_cifar10)),
}


def tacit(data: Data, epsilon: float, seed: int, **plan: Any) -> Scores:
    model = DPLinearClassifier(epsilon, DELTA, random_state=seed, **plan)
    model.fit(data.rows, data.labels)
    return lambda test: model.decision_function(test.rows)


def bare(data: Data, epsilon: float, seed: int) -> Scores:
    return tacit(data, epsilon, seed, **recipe("dpsgd"))


def opacus(data: Data, epsilon: float, seed: int) -> Scores:
    import torch
    from opacus import PrivacyEngine

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rows = torch.from_numpy(np.ascontiguousarray(data.bounded, dtype=np.float32))
    labels = torch.from_numpy(data.labels.astype(np.int64))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(rows, labels), batch_size=64
    )
    model: Any = torch.nn.Linear(rows.shape[1], data.classes)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        target_epsilon=epsilon,
        target_delta=DELTA,
        epochs=10,
        max_grad_norm=1.0,
    )
    criterion = torch.nn.CrossEntropyLoss()
    for _ in range(10):
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()

    def scores(test: Data) -> np.ndarray:
        with torch.no_grad():
            found = model(torch.from_numpy(test.bounded.astype(np.float32))).numpy()
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    return scores


def logistic(data: Data, epsilon: float, seed: int) -> Scores:
    from diffprivlib.models import LogisticRegression

    model = LogisticRegression(epsilon=epsilon, data_norm=1.0, random_state=seed)
    # Its own bound, which a rounding must not break.
    model.fit(data.unit * (1 - 1e-12), data.labels)
    return lambda test: model.decision_function(test.unit)


def naive_bayes(data: Data, epsilon: float, seed: int) -> Scores:
    from diffprivlib.models import GaussianNB

    model = GaussianNB(epsilon=epsilon, bounds=(data.low, 1.0), random_state=seed)
    model.fit(data.bounded, data.labels)

    def scores(test: Data) -> np.ndarray:
        found = model.predict_joint_log_proba(test.bounded)
        return found[:, 1] - found[:, 0] if found.shape[1] == 2 else found

    return scores


METHODS: dict[str, tuple[str | None, Callable[[Data, float, int], Scores]]] = {
    OURS: (None, tacit),
    "DP-SGD": (None, bare),
    "Opacus": ("opacus", opacus),
    "diffprivlib logistic": ("diffprivlib", logistic),
    "diffprivlib naive Bayes": ("diffprivlib", naive_bayes),
}


def judged(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Accuracy and, for two classes, the area under the ROC curve, in percent."""
    from sklearn.metrics import roc_auc_score

    scores = np.nan_to_num(scores)
    if scores.ndim == 1:
        right = (scores > 0) == (labels == 1)
        return {"accuracy": 100 * float(right.mean()), "auc": 100 * roc_auc_score(labels, scores)}
    return {"accuracy": 100 * float((scores.argmax(axis=1) == labels).mean())}


class Classes(Comparison):
    """Classifiers on one data set."""

    methods = METHODS

    def __init__(self, name: str, rows: int | None = None, *where: Any) -> None:
        title, usual, self._read = SETS[name]
        self.rows = rows or usual
        super().__init__(title, f"{name} {self.rows}", *(where or (None,)))

    def load(self) -> tuple[Data, Data]:
        rng = np.random.default_rng(1)
        train, test = self._read()
        some = [rng.permutation(len(half.labels)) for half in (train, test)]
        return train.take(some[0][: self.rows]), test.take(some[1][:TESTED])

    def describe(self, train: Data, test: Data) -> dict[str, Any]:
        share = np.bincount(test.labels) / len(test.labels)
        return {
            "rows": len(train.labels),
            "columns": train.rows.shape[1],
            "classes": train.classes,
            "largest": 100 * float(share.max()),
            "rare": bool(share.min() < RARE and len(share) == 2),
        }

    def judge(self, model: Scores, test: Data) -> dict[str, float]:
        return judged(model(test), test.labels)

    def by(self) -> str:
        return "auc" if self.facts()["rare"] else "accuracy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=None, help="at most, for every data set")
    compare(
        parser,
        SETS,
        lambda name, given: Classes(name, given.rows, given.cache, given.cached),
        seeds=10,
        digits=1,
    )


if __name__ == "__main__":
    main()
