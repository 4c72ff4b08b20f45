"""Default settings beside the best of 200, chosen on the test rows, which no budget covers.

    python benchmarks/bench_oracle.py [SET ...] [--epsilon E ...] [--quick] [--cache DIR] [--json]

For every data set and every ε: five fits by the rule of public facts, and the best of a grid of
200 settings (steps × rate × clip × bias) behind the same stages. The best is found in rounds. The
first tries every rate, clip and bias with fewer steps on a part of the rows, with the noise
that this part would have to bear; the second tries the most promising with all steps on more rows;
the last has the most promising of these on all rows, with fresh noise: two seeds for each, and
three more for those that are ahead. The best is the one with the best mean of five. All of it in
float32, several settings in one product.

Scores are accuracies in per cent and, where less than 15% of the rows are of one class, areas
under the curve. What is found is kept in files, so a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.data.schema import Schema
from tacit.data.tables import Table
from tacit.datasets import (
    load_adult,
    load_bank,
    load_census_kdd,
    load_chest_xray,
    load_cifar10,
    load_cifar100,
    load_cod_rna,
    load_diabetes130,
    load_fashion_mnist,
    load_mnist,
    load_w8a,
)
from tacit.exceptions import FileError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.plan import CalibratedPlan
from tacit.plan.fit import apply_stages
from tacit.preprocessing import Encode
from tacit.trainers import DPGD
from tacit.trainers.descent import rehearsal, train_together

Halves: TypeAlias = tuple[Any, np.ndarray, Any, np.ndarray]  # rows may be sparse

DELTA = 1e-5
BUDGETS = (0.1, 0.5, 1.0, 4.0)
SEEDS = range(1, 6)
STEPS = (100, 300)
FIRST = 50  # steps of the first round
NOISES = tuple(0.1 * 2**k for k in range(10))  # that a rate leaves in the score of a row
CLIPS = (0.01, 0.04, 0.15, 0.4, 1.0)
BIASES = (0.1, 0.3)
RARE = 0.15  # share of a class below which accuracy says little
WIDE = 4_000  # weights beyond which a round takes fewer rows, and fewer are kept
MOST_ROWS = 8_000  # rows of such sets; others have six times as many
TOGETHER = 40  # settings in one product
TESTED = 20_000  # test rows
MOMENTUM = 0.9
NAMES = ("accuracy", "area")


@dataclass(frozen=True)
class Data:
    """A data set, and what is asked of its models."""

    name: str
    rows: Any  # an array, or a sparse matrix
    labels: np.ndarray  # 0 to classes - 1
    test_rows: Any
    test_labels: np.ndarray

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def rare(self) -> bool:
        """Whether one class of two is."""
        least = np.bincount(self.labels).min() / len(self.labels)
        return bool(self.classes == 2 and least < RARE)

    @property
    def wide(self) -> bool:
        """Whether its models have many weights, so that every round is long."""
        outputs = 1 if self.classes == 2 else self.classes
        return self.rows.shape[1] * outputs > WIDE

    def some(self, count: int) -> tuple[Any, np.ndarray]:
        """That many rows at random, always the same."""
        if count >= len(self.labels):
            return self.rows, self.labels
        chosen = np.sort(np.random.default_rng(0).permutation(len(self.labels))[:count])
        return self.rows[chosen], self.labels[chosen]


class Trial:
    """Settings, trained on some rows with the noise of all of them in proportion.

    As many rows fewer, as much less noise: what the rows say in a score is then the
    same in units of its noise, so that settings compare as they would on all rows.
    """

    def __init__(self, data: Data, epsilon: float, count: int) -> None:
        self.data, self.epsilon = data, epsilon
        self.rows, self.labels = data.some(count)
        self.part = len(self.labels) / len(data.labels)
        self.loss = get_loss("logistic" if data.classes == 2 else "softmax")

    def scores(self, trainers: Sequence[DPGD], seed: int) -> np.ndarray:
        """Accuracy and area of every one, of shape (S, 2)."""
        plans = [self.calibrated(trainer) for trainer in trainers]
        groups: dict[float, dict[int, list[int]]] = {}
        for place, plan in enumerate(plans):
            by_steps = groups.setdefault(plan.intercept_scaling, {})
            by_steps.setdefault(int(plan.trainer.steps), []).append(place)
        found = np.empty((len(trainers), 2))
        for by_steps in groups.values():
            first = plans[next(iter(by_steps.values()))[0]]
            lessened = self.lessened(first)
            run = lessened.releases(Key.from_seed(seed))
            seen = lessened.prepare(as_rows(self.rows), run)
            settled = self.lessened(first.resolve(seen))
            engine = settled.engine(seen, self._targets())
            engine.threads = 1
            chunks = apply_stages(as_rows(self.data.test_rows), seen.fitted).chunks()
            test = np.vstack([_dense(chunk) for _, chunk in chunks])
            for places in by_steps.values():
                for start in range(0, len(places), TOGETHER):
                    some = places[start : start + TOGETHER]
                    key = Key.from_seed((seed + 1) * 10**6 + some[0])
                    tried = [plans[i].resolve(seen).trainer for i in some]
                    noise = [self.lessened(plans[i]).noise_multiplier for i in some]
                    tokens = rehearsal(tried, noise, settled.facts, key)
                    weights = train_together(engine, tried, tokens, settled.facts)
                    weights = weights.astype(np.float32)
                    for place, each in zip(some, weights, strict=True):
                        scores = test @ each[:-1] + np.float32(settled.intercept_scaling) * each[-1]
                        found[place] = judge(scores, self.data.test_labels)
        return found

    def _targets(self) -> np.ndarray:
        return self.loss.targets(self.labels, outputs=self.loss.outputs(self.data.classes))

    def calibrated(self, trainer: DPGD) -> CalibratedPlan:
        """The plan that an estimator would make for all rows."""
        model = DPLinearClassifier(self.epsilon, DELTA, trainer=trainer, arithmetic="fast")
        return model._plan(self.loss, as_rows(self.rows)).calibrate(
            size=len(self.data.labels), columns=self.rows.shape[1], classes=self.data.classes
        )

    def lessened(self, plan: CalibratedPlan) -> CalibratedPlan:
        """The same settings, with the noise of these rows."""
        return replace(
            plan,
            noise_multiplier=plan.noise_multiplier * self.part,
            spent=tuple((name, event.scaled(self.part)) for name, event in plan.spent),
            stage_noise={i: noise * self.part for i, noise in plan.stage_noise.items()},
            facts=replace(plan.facts, size=len(self.labels)),
        )


def _dense(chunk: Any) -> np.ndarray:
    return np.asarray(chunk.toarray() if sp.issparse(chunk) else chunk, dtype=np.float32)


def judge(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Accuracy, and the area under the curve of two classes, in per cent."""
    if scores.shape[1] > 1:
        return 100 * float(np.mean(scores.argmax(axis=1) == labels)), np.nan
    flat = scores[:, 0]
    ranks = np.empty(len(flat))
    ranks[np.argsort(flat, kind="stable")] = np.arange(1, len(flat) + 1)
    positive = labels == 1
    ones, zeros = positive.sum(), (~positive).sum()
    area = (ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros)
    return 100 * float(np.mean((flat > 0) == positive)), 100 * float(area)


def setting(data: Data, mu: float, place: tuple[int, float, float, float]) -> DPGD:
    """A point of the grid; its rate is the one that leaves so much noise in a score."""
    steps, noise, clip, bias = place
    rate = noise * (1 - MOMENTUM) * mu * len(data.labels) / (steps * clip)
    return DPGD(
        steps=steps, learning_rate=rate, clip=clip, intercept_fraction=bias, momentum=MOMENTUM
    )


def search(data: Data, epsilon: float, rows: int) -> dict[str, Any]:
    """The best of the grid by each measure."""
    wide = data.wide
    measures = (0, 1) if data.rare else (0,)

    def best(places: Sequence[Any], found: np.ndarray, count: int) -> list[Any]:
        chosen: dict[Any, None] = {}
        for measure in measures:
            order = np.argsort(-found[:, measure], kind="stable")[:count]
            chosen |= dict.fromkeys(places[i] for i in order)
        return list(chosen)

    def tried(places: Sequence[Any], count: int, seed: int) -> np.ndarray:
        trial = Trial(data, epsilon, count)
        mu = trial.calibrated(DPGD()).facts.mu  # what the stages leave to training
        return trial.scores([setting(data, mu, place) for place in places], seed)

    places = list(product((FIRST,), NOISES, CLIPS, BIASES))
    places = best(places, tried(places, 2_000 if wide else 5_000, 101), 6)
    places = [(steps, *rest) for _, *rest in places for steps in STEPS]
    places = best(places, tried(places, 4_000 if wide else 12_000, 102), 3 if wide else 4)
    found = [tried(places, rows, seed) for seed in SEEDS[:2]]
    left = best(places, np.mean(found, axis=0), 1 if wide else 2)
    kept = [places.index(place) for place in left]
    found = [each[kept] for each in found]
    found += [tried(left, rows, seed) for seed in SEEDS[2:]]
    means = np.mean(found, axis=0)
    return {
        NAMES[measure]: {
            "score": float(means[:, measure].max()),
            "setting": left[int(means[:, measure].argmax())],
            "scores": [float(each[means[:, measure].argmax(), measure]) for each in found],
        }
        for measure in measures
    }


def default(data: Data, epsilon: float, rows: int) -> dict[str, Any]:
    """What the rule of public facts makes of it."""
    trial = Trial(data, epsilon, rows)
    found = np.concatenate([trial.scores([DPGD()], seed) for seed in SEEDS])
    return {NAMES[measure]: found[:, measure].tolist() for measure in range(2)}


def encoded(train: Table, test: Table, schema: Schema) -> Halves:
    """Tables as numbers, by their schema."""
    encode, parts = Encode(schema), []
    for table in (train, test):
        parts.append(encode.transform(table).astype(np.float32))
        parts.append(table.match(schema.target, schema.classes))
    return parts[0], parts[1], parts[2], parts[3]


def apart(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Four fifths of the rows to train with and a fifth to test, for sets without halves."""
    test = np.zeros(count, dtype=bool)
    test[np.random.default_rng(0).permutation(count)[: count // 5]] = True
    return ~test, test


def w8a() -> Halves:
    rows, labels = load_w8a()
    cells, labels = sp.csr_array(rows, dtype=np.float32), (labels > 0).astype(int)
    train, test = apart(len(labels))
    return cells[train], labels[train], cells[test], labels[test]


def cod_rna() -> Halves:
    """Energies and lengths between round numbers, frequencies between 0 and 1, to [-1, 1]."""
    rows, labels, test, test_labels = load_cod_rna()
    low, high = np.array([-1500.0, 50] + [0] * 6), np.array([0.0, 300] + [1] * 6)

    def scaled(cells: np.ndarray) -> np.ndarray:
        return np.clip(2 * (cells - low) / (high - low) - 1, -1, 1).astype(np.float32)

    return scaled(rows), (labels > 0).astype(int), scaled(test), (test_labels > 0).astype(int)


SETS: dict[str, Callable[[], Halves]] = {
    "Adult": lambda: encoded(*load_adult()),
    "Bank": lambda: whole(*load_bank()),
    "Census-KDD": lambda: encoded(*load_census_kdd()),
    "Cod-RNA": cod_rna,
    "w8a": w8a,
    "Chest X-ray": lambda: load_chest_xray()[:4],
    "MNIST": load_mnist,
    "Fashion-MNIST": load_fashion_mnist,
    "CIFAR-10 features": load_cifar10,
}
QUICK = ["Bank", "Cod-RNA", "w8a"]


def part(halves: Halves, count: int, *, again: bool = False, classes: int = 0) -> Halves:
    """Some of the rows (drawn with replacement, if they may come again), and of the classes."""
    rows, labels, test, test_labels = halves
    rng = np.random.default_rng(2)
    if classes:
        few, few_test = labels < classes, test_labels < classes
        rows, labels, test, test_labels = (
            rows[few],
            labels[few],
            test[few_test],
            test_labels[few_test],
        )
    chosen = rng.integers(0, len(rows), count) if again else rng.permutation(len(rows))[:count]
    return rows[chosen], labels[chosen], test, test_labels


def whole(table: Table, schema: Schema) -> Halves:
    """A table without halves, encoded and divided."""
    train, test = apart(table.n)
    return encoded(table.take(train), table.take(test), schema)


# Tables, sizes and numbers of classes by which no constant of the rule was chosen.
HELD_OUT: dict[str, Callable[[], Halves]] = {
    "Diabetes-130, 3 classes, 6,000 rows": lambda: part(
        whole(*load_diabetes130(one_per_patient=True)), 6_000
    ),
    "CIFAR-100 features, 5 classes, 2,500 rows": lambda: part(load_cifar100(), 2_500, classes=5),
    "Census-KDD, 10,000 rows with replacement": lambda: part(
        SETS["Census-KDD"](), 10_000, again=True
    ),
    "Fashion-MNIST, 3 classes, 5,000 rows": lambda: part(load_fashion_mnist(), 5_000, classes=3),
}
ODD = (0.05, 0.3, 2.0, 8.0)  # budgets of these


class Kept:
    """What was found, in files named by what it was found for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, what: list[Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        name = sha256(json.dumps(what).encode()).hexdigest()[:16]
        path = self.folder / f"{what[0]}-{what[1]:g}-{what[2]}-{name}.json"
        if path.exists():
            return dict(json.loads(path.read_text(encoding="utf-8")))
        start = time.process_time()
        found = make() | {"seconds": time.process_time() - start}
        part = path.with_suffix(".part")
        part.write_text(json.dumps(found), encoding="utf-8")
        part.replace(path)
        return found


def compare(data: Data, epsilon: float, kept: Kept, most: int) -> dict[str, Any]:
    """One line of the table; at most so many rows are used, six times as many if not wide."""
    used = min(most if data.wide else 6 * most, len(data.labels))
    rows = [used, *data.rows.shape, str(data.rows.dtype), float(data.rows[:1000].sum())]
    rule = Trial(data, epsilon, len(data.labels)).calibrated(DPGD())
    grid = [STEPS, NOISES, CLIPS, BIASES]
    stages = [[stage.name, getattr(stage, "share", None)] for stage in rule.plan.stages]
    best = kept.get(
        [data.name, epsilon, "grid", rows, [*grid, stages]], lambda: search(data, epsilon, used)
    )
    told = [rule.trainer.parameters(), stages]
    ours = kept.get([data.name, epsilon, "rule", rows, told], lambda: default(data, epsilon, used))
    name = NAMES[data.rare]
    line = {
        "data": data.name,
        "epsilon": epsilon,
        "rows": used,
        "measure": name,
        "rule": float(np.mean(ours[name])),
        "spread": float(np.std(ours[name])),
        "best": best[name]["score"],
        "setting": best[name]["setting"],
        "seconds": best["seconds"] + ours["seconds"],
    }
    if data.rare:
        line["accuracy"] = [float(np.mean(ours["accuracy"])), best["accuracy"]["score"]]
    line["gap"] = line["best"] - line["rule"]
    return line


def measure(
    names: Sequence[str], budgets: Sequence[float], kept: Kept, most: int
) -> Iterator[dict[str, Any]]:
    for name in names:
        try:
            train, labels, test, test_labels = (SETS | HELD_OUT)[name]()
        except FileError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        few = np.random.default_rng(1).permutation(len(test_labels))[:TESTED]
        data = Data(name, train, labels, test[few], test_labels[few])
        for epsilon in budgets:
            yield compare(data, epsilon, kept, most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument("--epsilon", type=float, nargs="+")
    parser.add_argument("--quick", action="store_true", help="three small sets at two budgets")
    parser.add_argument("--held-out", action="store_true", help="what the rule was not made by")
    parser.add_argument(
        "--rows",
        type=int,
        default=MOST_ROWS,
        help="at most, of sets with many weights; of others six times as many",
    )
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "tacit-oracle")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.sets) - (SETS | HELD_OUT).keys():
        parser.error(f"no set is called {', '.join(unknown)}; there are {', '.join(SETS)}")
    names = options.sets or list(HELD_OUT if options.held_out else QUICK if options.quick else SETS)
    usual = ODD if options.held_out else (0.1, 1.0) if options.quick else BUDGETS
    budgets = options.epsilon or usual
    lines = []
    for line in measure(names, budgets, Kept(options.cache), options.rows):
        lines.append(line)
        if not options.json:
            print(
                f"{line['data']:<15} epsilon {line['epsilon']:<4g} {line['measure']:<9}"
                f"rule {line['rule']:6.2f} ± {line['spread']:.2f}  best {line['best']:6.2f}  "
                f"gap {line['gap']:5.2f}  {line['setting']}",
                flush=True,
            )
    gaps = [line["gap"] for line in lines]
    mean, worst = float(np.mean(gaps or [np.nan])), max(gaps, default=np.nan)
    found = {"lines": lines, "mean": mean, "worst": worst}
    if options.json:
        print(json.dumps(found))
    else:
        print(f"mean gap {found['mean']:.2f}, worst {found['worst']:.2f}")


if __name__ == "__main__":
    main()
