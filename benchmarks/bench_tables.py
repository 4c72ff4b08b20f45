"""Tables as they come: nothing declared beside a careful schema, bounds too wide, and the time.

    python benchmarks/bench_tables.py accuracy --results FILE [--data adult ...] [--epsilon 1]
    python benchmarks/bench_tables.py field --results FILE --before FILE [--seeds 30]
    python benchmarks/bench_tables.py time
    python benchmarks/bench_tables.py held-out

The protocol, which was written before the first figure:

* *As it is*: a data frame as pandas reads it from the published file (``read_csv`` with its
  defaults, ``?`` for a gap), without the target and without what is known only after the fact
  (Bank's ``duration``); `DPLinearClassifier` with nothing declared. Columns that the careful schema
  leaves out stay in: on Adult ``education`` and ``fnlwgt``, on Diabetes-130 the codes of payers,
  and the codes of diagnoses instead of their groups. *Suggested*: without the columns that Tacit
  itself suggests to leave out, by their names (Diabetes-130 alone has any).
* *Careful*: the same rows as `tacit.datasets` reads them, with its schema. *10 times* and
  *100 times*: the same schema, every number's bounds that many times as wide, about their middle.
* δ = 1e-5, nothing tuned, area under the ROC curve on test rows: the published ones, or a quarter
  drawn by the seed. Seeds 0 to 19 are splits and runs at once, the same for all ways; differences
  are paired, with the standard error of their mean. Asked for at ε = 1: as it is, at most 0.01
  below careful; bounds too wide, at most 0.005. ε = 0.5 and 4 are there to be seen.
  Added once these figures were known: *no identifiers*, without the numbers of stays and patients,
  which say when a stay was, and so how much time there was to come back; and ε = 0.1.
* *field* runs the data sets of ``bench_field.py`` with Tacit's defaults, as that benchmark prepares
  them, with seeds 0 to 29, once with this version and once with the one before tables: paired
  differences, of which none may be below -0.2 points. Data sets whose default plan is what it was
  are not measured: a seeded fit has the same coefficients, bit by bit, in both versions. Results
  of the version before (commit 9aac118) are those of this script run with that version's ``src``.
* *time* is processor time of one thread, fits interleaved, the least of rounds: as it is, straight
  (the careful schema with ``shapes=False``), and the plan without any of it (``Encode``,
  ``Normalize``, ``PrivateCenter``), all on one frame. Asked for: at most 3 times straight.
* *held-out* reports on tables that nothing is chosen on (``data_lists.py``), as they are, at ε = 1,
  and with their schemas, beside scikit-learn without privacy on the same frame (logistic or ridge
  regression behind a scaler and one-hot columns) and the largest class or the mean. Seeds 0 to 4,
  at most 100,000 rows, a quarter of them to test with. Nothing follows from it.

Every fit is a line of the file of results, so that an interrupted run goes on where it stopped.
Data are taken from the directory named by TACIT_DATA.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import r2_score, roc_auc_score
from threadpoolctl import threadpool_limits

from tacit import DPLinearClassifier, DPLinearRegressor, datasets
from tacit.data.schema import Schema
from tacit.data.tables import Table, joined
from tacit.datasets.store import read_files
from tacit.exceptions import FileError, TacitError

CENSUS = Path(datasets.__file__).parents[1] / "data" / "census" / "adult.csv.xz"
DELTA = 1e-5
TEST = 0.25
EPSILONS = (0.1, 0.5, 1.0, 4.0)
SEEDS = 20
MOST_ROWS = 100_000  # of a table held out


@dataclass(frozen=True)
class Frame:
    """Rows of a published file twice: as pandas reads it, and as the schema describes it."""

    rows: pd.DataFrame
    y: np.ndarray
    table: Table
    schema: Schema
    test: np.ndarray | None = None  # a mask, where test rows are published

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        if self.test is not None:
            return np.flatnonzero(~self.test), np.flatnonzero(self.test)
        order = np.random.default_rng(seed).permutation(len(self.y))
        cut = round(len(order) * (1 - TEST))
        return order[:cut], order[cut:]


def _csv(data: bytes, **how: Any) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(data), skipinitialspace=True, na_values=["?"], **how)


def _frame(
    rows: pd.DataFrame,
    positive: Sequence[str],
    table: Table,
    schema: Schema,
    test: np.ndarray | None = None,
) -> Frame:
    target = str(schema.target)
    y = rows[target].isin(list(positive)).to_numpy().astype(int)
    labels = [str(name) for name in table.texts(target)]
    assert np.array_equal(np.isin(labels, list(positive)), y), "the same rows in the same order"
    ignored = tuple(name for name in table.column_names if name not in schema.columns)
    return Frame(rows.drop(columns=target), y, table, Schema(schema.columns, ignore=ignored), test)


def adult() -> Frame:
    data = lzma.decompress(CENSUS.read_bytes())
    *halves, schema = datasets.load_adult()
    rows = _csv(data).sort_values("split", ascending=False, kind="stable", ignore_index=True)
    test = (rows["split"] == "test").to_numpy()
    return _frame(rows.drop(columns="split"), [">50K"], joined(halves, len(rows)), schema, test)


def bank() -> Frame:
    (data,) = read_files("bank").values()
    rows = _csv(data, sep=";").drop(columns="duration")
    return _frame(rows, ["yes"], *datasets.load_bank())


def diabetes130() -> Frame:
    """Is a patient readmitted at all, after the first stay?"""
    (data,) = read_files("diabetes130").values()
    rows = _csv(data, low_memory=False)
    first = rows.sort_values("encounter_id", kind="stable").drop_duplicates("patient_nbr").index
    rows = rows.loc[np.sort(first)].reset_index(drop=True)
    return _frame(rows, [">30", "<30"], *datasets.load_diabetes130(one_per_patient=True))


def census_kdd() -> Frame:
    from tacit.datasets.tables import header_of

    names = [name.strip() for name in header_of("census_kdd").split(",")]
    parts = [
        _csv(data.replace(b".\n", b"\n"), header=None, names=names)
        for data in read_files("census_kdd").values()
    ]
    test = np.repeat([False, True], [len(part) for part in parts])
    rows = pd.concat(parts, ignore_index=True).drop(columns="instance weight")
    *halves, schema = datasets.load_census_kdd()
    return _frame(rows, ["50000+"], joined(halves, len(rows)), schema, test)


FRAMES: dict[str, tuple[str, Callable[[], Frame]]] = {
    "adult": ("Adult", adult),
    "bank": ("Bank", bank),
    "diabetes130": ("Diabetes-130", diabetes130),
    "census_kdd": ("Census-KDD", census_kdd),
}


def widened(schema: Schema, times: float) -> Schema:
    columns: dict[str, Any] = dict(schema.columns)
    for name, column in columns.items():
        if column.kind == "number":
            middle, half = (column.low + column.high) / 2, (column.high - column.low) / 2
            columns[name] = replace(column, low=middle - times * half, high=middle + times * half)
    return replace(schema, columns=columns)


def suggested(rows: pd.DataFrame) -> pd.DataFrame:
    from tacit.data.identifiers import likely_identifiers  # of this version alone

    return rows.drop(columns=list(likely_identifiers(rows.columns)))


WAYS: dict[str, Callable[[Frame], tuple[Any, Schema | None]]] = {
    "careful": lambda data: (data.table, data.schema),
    "as it is": lambda data: (data.rows, None),
    "suggested": lambda data: (suggested(data.rows), None),
    "no identifiers": lambda data: (data.rows.drop(columns=["encounter_id", "patient_nbr"]), None),
    "10 times": lambda data: (data.table, widened(data.schema, 10)),
    "100 times": lambda data: (data.table, widened(data.schema, 100)),
}

IDENTIFIED = ("suggested", "no identifiers")  # ways of a table that has identifiers


def area(data: Frame, way: str, epsilon: float, seed: int) -> float:
    rows, schema = WAYS[way](data)
    train, test = (
        rows.take(part) if isinstance(rows, Table) else rows.iloc[part] for part in data.split(seed)
    )
    y, y_test = (data.y[part] for part in data.split(seed))
    model = DPLinearClassifier(epsilon, DELTA, schema=schema, random_state=seed).fit(train, y)
    return float(roc_auc_score(y_test, model.decision_function(test)))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def record(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(line, file=sys.stderr, flush=True)


def accuracy(options: argparse.Namespace) -> None:
    known = {(x["data"], x["way"], x["epsilon"], x["seed"]) for x in read(options.results)}
    for epsilon in options.epsilon:
        for name in options.data:
            data = FRAMES[name][1]()
            ways = [way for way in WAYS if way not in IDENTIFIED or name == "diabetes130"]
            if epsilon not in (0.1, 1.0):
                ways = [way for way in ways if "times" not in way]
            for seed in range(SEEDS):
                for way in ways:
                    if (name, way, epsilon, seed) in known:
                        continue
                    start = time.process_time()
                    found = area(data, way, epsilon, seed)
                    record(
                        options.results,
                        {
                            "data": name,
                            "way": way,
                            "epsilon": epsilon,
                            "seed": seed,
                            "auc": found,
                            "seconds": time.process_time() - start,
                        },
                    )
    print("\n".join(accuracies(read(options.results))))


def accuracies(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| data | ε | way | area under the curve | beside careful | seeds |"
    yield "| --- | --- | --- | --- | --- | --- |"
    held = {(x["data"], x["epsilon"], x["way"], x["seed"]): x["auc"] for x in lines}
    for name, (title, _) in FRAMES.items():
        for epsilon in EPSILONS:
            runs = {
                way: {k[3]: v for k, v in held.items() if k[:3] == (name, epsilon, way)}
                for way in WAYS
            }
            for way, found in runs.items():
                seeds = sorted(found.keys() & runs["careful"].keys())
                if len(seeds) < 2:
                    continue
                beside = np.array([found[s] - runs["careful"][s] for s in seeds])
                error = beside.std(ddof=1) / np.sqrt(len(seeds))
                lead = "" if way == "careful" else f"{beside.mean():+.4f} ± {error:.4f}"
                mean = np.mean([found[s] for s in seeds])
                yield f"| {title} | {epsilon:g} | {way} | {mean:.4f} | {lead} | {len(seeds)} |"


def field(options: argparse.Namespace) -> None:
    """Scores, and fingerprints of coefficients, of Tacit's default on the data of bench_field."""
    from bench_field import Classes

    known = {(x["data"], x["epsilon"], x["seed"]) for x in read(options.results)}
    for name in options.data:
        compared = Classes(name)
        train, test = compared.halves
        for epsilon in options.epsilon:
            for seed in range(options.seeds):
                if (name, epsilon, seed) in known:
                    continue
                model = DPLinearClassifier(epsilon, DELTA, random_state=seed)
                model.fit(train.rows, train.labels)
                coef = np.ascontiguousarray(model.coef_)
                whole = coef.tobytes() + np.ascontiguousarray(model.intercept_).tobytes()
                found = compared.judge(lambda part, m=model: m.decision_function(part.rows), test)
                record(
                    options.results,
                    {
                        "data": name,
                        "epsilon": epsilon,
                        "seed": seed,
                        "score": found[compared.by()],
                        "by": compared.by(),
                        "coefficients": hashlib.sha256(whole).hexdigest()[:16],
                        "stages": [type(s).__name__ for s in model.plan_.plan.stages],
                        **found,
                    },
                )
    print("\n".join(fields(read(options.results), read(options.before))))


def fields(after: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]) -> Iterator[str]:
    from bench_field import SETS

    yield "| data | ε | score | before | now | difference | runs |"
    yield "| --- " * 7 + "|"
    now, then = ({(x["data"], x["epsilon"], x["seed"]): x for x in xs} for xs in (after, before))
    for name, epsilon in dict.fromkeys(key[:2] for key in now if key in then):
        keys = [key for key in now if key[:2] == (name, epsilon) and key in then]
        first, last = (np.array([xs[key]["score"] for key in keys]) for xs in (then, now))
        same = all(now[key]["coefficients"] == then[key]["coefficients"] for key in keys)
        error = (last - first).std(ddof=1) / np.sqrt(len(keys)) if len(keys) > 1 else np.nan
        change = f"{(last - first).mean():+.2f} ± {error:.2f}"
        yield (
            f"| {SETS[name][0]} | {epsilon:g} | {now[keys[0]]['by']} | "
            + ("| | none: the same bits" if same else f"{first.mean():.2f} | {last.mean():.2f} | ")
            + ("" if same else change)
            + f" | {len(keys)} |"
        )


def seconds(options: argparse.Namespace) -> None:
    from tacit.preprocessing import Encode, Normalize, PrivateCenter

    print("| data | rows | as it is | straight | before | as it is / straight |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in options.data:
        data = FRAMES[name][1]()
        train, _ = data.split(0)
        y, schema = data.y[train], data.schema
        raw = data.rows.iloc[train].reset_index(drop=True)
        # What the schema describes, with the types that pandas gives to the same cells.
        added = [key for key in schema.columns if key not in raw]
        more = {key: data.table.texts(key)[train] for key in added}
        whole = raw.assign(**{key: pd.array(value, dtype="str") for key, value in more.items()})
        schema = Schema(
            schema.columns, ignore=tuple(key for key in whole if key not in schema.columns)
        )
        ways: dict[str, Callable[[], Any]] = {
            "as it is": lambda r=raw, y=y: DPLinearClassifier(1.0, DELTA).fit(r, y),
            "straight": lambda r=whole, y=y, s=schema: DPLinearClassifier(
                1.0, DELTA, schema=s, shapes=False
            ).fit(r, y),
            "before": lambda r=whole, y=y, s=schema: DPLinearClassifier(
                1.0, DELTA, stages=[Encode(s), Normalize(), PrivateCenter()]
            ).fit(r, y),
        }
        least = dict.fromkeys(ways, np.inf)
        for _ in range(options.rounds):
            for way, fit in ways.items():
                start = time.process_time()
                fit()
                least[way] = min(least[way], time.process_time() - start)
        ratio = least["as it is"] / least["straight"]
        print(
            f"| {FRAMES[name][0]} | {len(y):,} | "
            + " | ".join(f"{least[way]:.2f} s" for way in ways)
            + f" | {ratio:.2f} |",
            flush=True,
        )


def held_out(options: argparse.Namespace) -> None:
    from data_lists import HELD_OUT

    known = {(x["data"], x["seed"]) for x in read(options.results)}
    for name in HELD_OUT:
        try:
            data = _held_out(name)
        except FileError as error:
            print(f"# {name} is left out: {error}", file=sys.stderr, flush=True)
            continue
        for seed in range(5):
            if (name, seed) not in known:
                found = _beside(data, seed)
                record(options.results, {"data": name, "seed": seed, **found})
    print("\n".join(held_outs(read(options.results))))


def _held_out(name: str) -> Frame:
    table, schema = datasets.load_table(name)
    target = str(schema.target)
    y = table.match(target, list(schema.classes)) if schema.classes else table.values(target)
    rows = pd.DataFrame({key: table.column(key) for key in table.column_names if key != target})
    return Frame(rows, y, table, schema)


def _plain(classes: bool) -> Any:
    """What a person would do without privacy."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    words = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=10)
    front = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (words, make_column_selector(dtype_exclude="number")),
    )
    return make_pipeline(front, LogisticRegression(max_iter=200) if classes else Ridge())


def _beside(data: Frame, seed: int) -> dict[str, Any]:
    schema, target = data.schema, str(data.schema.target)
    classes = schema.classes is not None
    order = np.random.default_rng(seed).permutation(len(data.y))[:MOST_ROWS]
    train, test = np.split(order, [round(len(order) * (1 - TEST))])
    y, y_test = data.y[train], data.y[test]
    rows, rows_test = data.rows.iloc[train], data.rows.iloc[test]
    table, table_test = (data.table.take(part).drop(target) for part in (train, test))
    columns = schema.columns
    ignored = tuple(key for key in table.column_names if key not in columns)
    told: dict[str, Any] = {"schema": Schema(columns, ignore=ignored), "random_state": seed}
    bare: dict[str, Any] = {"random_state": seed}
    if not classes:
        told["target_bounds"] = schema.target_bounds
    ours = DPLinearClassifier if classes else DPLinearRegressor
    fits: dict[str, tuple[Callable[[], Any], Any]] = {
        "as it is": (lambda: ours(1.0, DELTA, **bare).fit(rows, y), rows_test),
        "careful": (lambda: ours(1.0, DELTA, **told).fit(table, y), table_test),
        "without privacy": (lambda: _plain(classes).fit(rows, y), rows_test),
    }
    largest = float(np.bincount(y_test).max() / len(y_test)) if classes else 0.0
    found: dict[str, Any] = {"rows": len(y), "columns": rows.shape[1], "largest": largest}
    for way, (fit, given) in fits.items():
        try:
            model = fit()
        except TacitError as error:
            found[way] = str(error)[:300]
            continue
        if not classes:
            found[way] = {"R²": float(r2_score(y_test, model.predict(given)))}
            continue
        found[way] = {"accuracy": float(np.mean(model.predict(given) == y_test))}
        if len(schema.classes) == 2:
            found[way]["area"] = float(roc_auc_score(y_test, model.decision_function(given)))
    return found


def held_outs(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    ways = ("as it is", "careful", "without privacy")
    yield f"| data | rows × columns | score | {' | '.join(ways)} | baseline | seeds |"
    yield "| --- " * 8 + "|"
    for name in dict.fromkeys(x["data"] for x in lines):
        runs = [x for x in lines if x["data"] == name]
        for score in runs[0]["without privacy"]:
            cells = []
            for way in ways:
                every = np.array([x[way][score] for x in runs if isinstance(x[way], dict)])
                error = every.std(ddof=1) / np.sqrt(len(every)) if len(every) > 1 else np.nan
                cells.append(f"{every.mean():.4f} ± {error:.4f}" if len(every) else "too few rows")
            base = 0.5 if score == "area" else np.mean([x["largest"] for x in runs])
            size = f"{runs[0]['rows']:,} × {runs[0]['columns']}"
            yield f"| {name} | {size} | {score} | {' | '.join(cells)} | {base:.4f} | {len(runs)} |"


TABLES = ["adult", "bank", "diabetes130"]
#: What runs, on which data and budgets unless told otherwise.
PARTS: dict[str, tuple[Callable[[argparse.Namespace], None], list[str], list[float]]] = {
    "accuracy": (accuracy, TABLES, list(EPSILONS)),
    "field": (field, ["adult", "bank", "cod_rna"], [0.1, 0.5, 1.0]),
    "time": (seconds, [*TABLES, "census_kdd"], [1.0]),
    "held-out": (held_out, [], [1.0]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--results", type=Path, default=Path("tables.jsonl"))
    parser.add_argument("--before", type=Path, default=Path("before.jsonl"), help="of the field")
    parser.add_argument("--data", nargs="+", help="by default, those that have something to show")
    parser.add_argument("--epsilon", nargs="+", type=float)
    parser.add_argument("--seeds", type=int, default=30, help="of the field")
    parser.add_argument("--rounds", type=int, default=5, help="of timing")
    options = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part, data, epsilons = PARTS[options.part]
        options.data, options.epsilon = options.data or data, options.epsilon or epsilons
        part(options)


if __name__ == "__main__":
    main()
