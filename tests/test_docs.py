"""The documentation: its Python runs, its links lead somewhere, and it names what is public.

And its figures are those of the program: what a comment says of a value, what a page shows as
output, and what it repeats of `benchmarks/RESULTS.md` and of the records of the reproduction.
"""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit import DPLinearClassifier, DPSearch
from tacit.audit.leaky_pipelines import LEAKY_PIPELINES
from tacit.cli.main import app
from tacit.losses import get_loss
from tacit.model_selection.calibrated import SCORE_SHARE
from tacit.plan import Plan
from tacit.plan.recipes import RECIPES
from tacit.preprocessing import Normalize, PrivateCenter
from tacit.privacy import Budget, Gaussian
from tacit.privacy.accounting.accountants import epsilon, gaussian_mu
from tacit.privacy.accounting.group import group_epsilon
from tacit.trainers import DPGD

ROOT = Path(__file__).resolve().parents[1]
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
RUNNABLE = [
    "README.md",
    "docs/gpu.md",
    "docs/audit.md",
    "docs/dask.md",
    "docs/datasets.md",
    "docs/diagnostics.md",
    "docs/evaluation.md",
    "docs/exact-noise.md",
    "docs/features.md",
    "docs/index.md",
    "docs/large-data.md",
    "docs/ledger.md",
    "docs/noiseless-stages.md",
    "docs/preprocessing-cost.md",
    "docs/private-statistics.md",
    "docs/people.md",
    "docs/pipelines.md",
    "docs/public-data.md",
    "docs/reproduction.md",
    "docs/shapes.md",
    "docs/baselines.md",
    "docs/excess-risk.md",
    "docs/trainers.md",
    "docs/spectral-analysis.md",
    "docs/tables.md",
    "docs/tuning.md",
    "docs/tutorial.md",
]

NUMBER = re.compile(r"(?<![\w.^])\d(?:[\d,]*\d)?(?:\.\d+)?")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def what_readers_have() -> dict[str, object]:
    """The README and the index speak of rows that their reader has."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    rows = rng.normal(size=(800, 50))
    rows[:400, 0] += 3.0 * y
    return {"X": rows[:400], "y": y, "X_public": rows[400:]}


def rows_and_others() -> dict[str, object]:
    """The page on evaluation speaks of rows, and of others that a model has not seen."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    X = rng.normal(size=(4000, 5)) + y[:, None]
    return {"X": X[:3000], "y": y[:3000], "X_other": X[3000:], "y_other": y[3000:]}


def a_frame() -> dict[str, object]:
    """The README speaks of a frame as it is."""
    pandas = pytest.importorskip("pandas")
    rng, n = np.random.default_rng(0), 3000
    y = rng.integers(0, 2, n)
    pay = np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(8 + y, 1))
    seen = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(rng.integers(0, 900, n), "D")
    job = rng.choice(["cook", "nurse"], n)
    return {"X": pandas.DataFrame({"pay": pay, "seen": seen, "job": job}), "y": y}


#: Output that a page shows, by its first words, and the command that prints it, if it is one.
SHOWN = {
    "docs/features.md": [
        (
            "Fitted to 1,500 rows",
            "tacit fit digits.npz --epsilon 2 --delta 1e-5 --out model --quiet",
        ),
        (
            "Wrote predictions",
            "tacit predict model digits.npz --key x_test --out guesses.csv",
        ),
    ],
    "docs/noiseless-stages.md": [("Stage 2, SoftPCA", None)],
    "docs/tutorial.md": [
        ("target: income", "tacit schema people.csv --target income --out draft.yaml"),
        (
            "                    noise",
            "tacit plan --schema people.yaml --rows 32561 --epsilon 1 --delta 1e-5",
        ),
    ],
}
#: What a comment says of a value: ``print(score)  # about 0.84, of all rows``. Up to a colon, the
#: numbers are those of the value: ``far.bound, far.facts["diameter"]  # 50.01; 2: of all rows``.
REMARK = re.compile(r"  # (?:(about|more than) )?([(\d][^:]*)")


class Remarked(ast.NodeTransformer):
    """Has every value that stands or is printed on a line of its own pass by `said`."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        call = node.value
        printed = isinstance(call, ast.Call) and getattr(call.func, "id", "") == "print"
        value = call.args[0] if printed else call
        line = ast.Constant(node.end_lineno)
        seen = ast.Call(ast.Name("said", ast.Load()), [line, value], [])
        if printed:
            call.args[0] = seen
        else:
            node.value = seen
        return node


@pytest.mark.parametrize("name", RUNNABLE)
def test_python_blocks_run_in_order_as_one_script(name, tmp_path, monkeypatch, capsys):
    """And give what their comments say, and print what the page shows."""
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = [match for match in FENCE.finditer(text) if match[1] == "python"]
    assert blocks
    monkeypatch.chdir(tmp_path)
    has = {
        "README.md": a_frame,
        "docs/index.md": what_readers_have,
        "docs/evaluation.md": rows_and_others,
    }
    scope = has[name]() if name in has else {}
    values: dict[int, Any] = {}
    scope["said"] = values.setdefault
    for block in blocks:
        above = text.count("\n", 0, block.start(2))  # so that an error names the line of the page
        tree = Remarked().visit(ast.parse("\n" * above + block[2], name))
        exec(compile(ast.fix_missing_locations(tree), name, "exec"), scope)
    lines = text.splitlines()
    for line, value in values.items():
        assert as_remarked(lines[line - 1], value), (lines[line - 1], value)
    printed = capsys.readouterr().out
    for first, command in SHOWN.get(name, []):
        (fence,) = (f[2] for f in FENCE.finditer(text) if f[2].startswith(first))
        if command is not None:
            assert command in text
            done = CliRunner().invoke(app, shlex.split(command)[1:])
            assert done.exit_code == 0, done.output
            written = [path.read_text("utf-8") for path in tmp_path.glob("draft.yaml")]
            printed = "".join([done.output, *written])
        for part in fence.split("..."):
            assert part.strip("\n") in printed


def as_remarked(line: str, value: Any) -> bool:
    """Whether the comment of a line, if it tells of a value, tells of this one."""
    remark = REMARK.search(line)
    if remark is None:
        word = line.partition("  # ")[2].partition(":")[0]
        return not (isinstance(value, str) and word and len(value) < 20) or word == value
    parts = value if isinstance(value, tuple | list) else [value]
    shown = NUMBER.findall(remark[2])
    found = [float(number) for part in parts for number in np.ravel(part)]
    if remark[1] == "more than" or " or more" in remark[2]:
        return found[0] > float(shown[0]) * (1 - 1e-9)
    units = 2.5 if remark[1] else 0.5
    shown = shown[: len(found)] if len(found) == 1 else shown
    return len(shown) == len(found) and all(
        agree(one, other, units=units) for one, other in zip(shown, found, strict=True)
    )


def agree(shown: str, value: float, units: float = 0.5) -> bool:
    """Whether a number as shown is ``value``, to so many units of its last digit."""
    digits = len(shown.partition(".")[2])
    return abs(float(shown.replace(",", "")) - value) <= units * 10.0**-digits + 1e-9


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_relative_links_point_to_files(page):
    text = SPAN.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    targets = [target for target in LINK.findall(text) if "://" not in target]
    paths = [target.partition("#")[0] for target in targets]
    lost = [path for path in paths if path and not (page.parent / path).exists()]
    assert not lost


@pytest.mark.parametrize(
    "module",
    [
        "tacit",
        "tacit.preprocessing",
        "tacit.trainers",
        "tacit.mechanisms",
        "tacit.losses",
        "tacit.research.theory",
        "tacit.research.instances",
        "tacit.research.trainers",
        "tacit.research.price",
        "tacit.research.trajectories",
        "tacit.research.reproduce",
        "tacit.research.median",
        "tacit.diagnostics",
        "tacit.networks.fit",
    ],
)
def test_public_names_are_documented(module):
    """In code, that is: "load" and "save" are ordinary words elsewhere."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES if page.name != "CONTRIBUTING.md"]
    code = [block[2] for text in texts for block in FENCE.finditer(text)]
    code += [span for text in texts for span in SPAN.findall(FENCE.sub("", text))]
    words = {word for piece in code for word in re.findall(r"\w+", piece)}
    assert not set(import_module(module).__all__) - words


RESULTS = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """What RESULTS.md says under a title."""
    (found,) = re.findall(rf"^## {title}\n\n(.*?)(?=\n+## |\Z)", RESULTS, re.M | re.S)
    return found


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def measured(title: str, *first: str, under: str = "") -> list[float]:
    """Numbers of the row of RESULTS.md that begins with these cells; of the table under a head."""
    start = "".join(f"| {cell} " for cell in first) + "|"
    tables = section(title).split("\n\n")
    lines = [line for text in tables if f"| {under}" in text for line in text.splitlines()]
    (line,) = (line for line in lines if line.startswith(start))
    return numbers(line[len(start) :])


def record(claim: str) -> dict[str, Any]:
    return json.loads((ROOT / "docs" / "reproduction" / f"{claim}.json").read_text("utf-8"))


def recorded(claim: str, label: str, *columns: str, table: str | int = 0) -> list[float]:
    """Cells of a row in the record of a claim, a measured one with its spread."""
    tables = record(claim)["tables"]
    named = {found["title"]: found for found in tables}
    chosen = named[table] if isinstance(table, str) else tables[table]
    (cells,) = (row for row in chosen["rows"] if row[0] == label)
    found = [cells[chosen["columns"].index(column)] for column in columns]
    pairs = [(c["mean"], c["spread"]) if isinstance(c, dict) else (c,) for c in found]
    return [number for pair in pairs for number in pair]


def accuracies(data: str) -> list[float]:
    rows = [measured("Accuracy", data, at) for at in ("0.1", "1", "without privacy")]
    return [row[0] for row in rows]


def oracle(data: str) -> list[float]:
    """Default and best, by budget."""
    lines = [line.split(" | ") for line in section("The rule beside an oracle").splitlines()]
    found = [cells for cells in lines if cells[0] == f"| {data}"]
    return [number for cells in found for cell in cells[4:6] for number in numbers(cell)[:1]]


def methods(method: str, *sets: str) -> list[float]:
    here = ("ε = 0.1, here", "ε = 0.7, here")
    return [n for one in sets for n in recorded("pinto-methods", method, *here, table=one)]


def public_rows(data: str, epsilon: str) -> list[float]:
    ways = ("DP-SGD", "PILLAR about zero", "PILLAR", "Tacit's recipe, not searched")
    column = f"ε = {epsilon}, here"
    return [n for way in ways for n in recorded("pinto-methods", way, column, table=data)]


def searches(trials: int) -> list[Any]:
    """Plans of a search, by how the number of trials is drawn."""
    grid = {"trainer__clip": [0.01, 0.1, 1.0]}
    base = DPLinearClassifier(1.0, 1e-5)
    laws = ("logarithmic", "geometric", "poisson")
    found = [DPSearch(base, grid, trials=trials, distribution=law) for law in laws]
    return [search.plan(size=32_561, columns=88) for search in found]


def slowdowns(trials: int) -> list[float]:
    """What a trial's noise is in that of a single fit; at last, if all trials are counted."""
    fixed = math.sqrt(trials / (1 - SCORE_SHARE**2))
    return [*(search.slowdown for search in searches(trials)), fixed]


def quantiles(which: str) -> list[float]:
    """Errors in rank by search and selection, or rows left outside where those are measured."""
    rows = [measured(STATISTICS, which, way) for way in ("search", "selection")]
    return [row[2] for row in rows] if len(rows[0]) > 2 else [*rows[0], *rows[1]]


def several_rows(*rows: int) -> list[float]:
    """ε of so many rows of one person, in the default plan at ε = 1."""
    stages = [Normalize(), PrivateCenter()]
    plan = Plan(Budget(1.0, 1e-5), tuple(stages), DPGD(), get_loss("logistic"))
    events = [event for _, event in plan.calibrate(size=32_561, columns=88, classes=2).spent]
    found = [group_epsilon(events, 1e-5, plan.neighbors, many) for many in rows]
    return [math.ceil(10 * value) / 10 for value in found]  # to the safe side


def minutes() -> list[float]:
    records = (ROOT / "docs" / "reproduction").glob("*.json")
    return [sum(json.loads(path.read_text("utf-8"))["seconds"] for path in records) / 60]


STEP, TIME, STRICT = "Time of one step", "Time beside others", "Strict arithmetic"
FULL = "full batch, exact arithmetic (default)"
BATCH = "Poisson batch of 4,096, exact arithmetic (default)"
LOWRANK, STATISTICS, TUNING = "Projections on low-rank rows", "Private statistics", "Private tuning"
SETS = {"Adult", "MNIST", "Fashion-MNIST"}
ORACLE = "The rule beside an oracle"
CHECK = "A check of public rows"
RIVALS = {
    "`dpsgd`": "DP-SGD",
    "`dp-pca`": "DP-PCA",
    "`jl`": "JL",
    "`gep`": "GEP",
    "`adadps`": "AdaDPS",
    "`pillar` about zero": "PILLAR about zero",
    "`pillar`": "PILLAR",
    "`pillar`, not searched": "Tacit's recipe, not searched",
}
PUBLIC = {
    "CIFAR-10 features": "CIFAR-10",
    "CIFAR-100 features": "CIFAR-100",
    "chest X-ray features": "chest X-rays (Pneumonia)",
    "w8a (area under the curve)": "w8a (area under the curve)",
}
TUNED = {
    'the rule of public facts (`"auto"`, the default)': "rule",
    "a guess out of the grid": "guess",
    "`DPSearch`, 5 trials expected, geometric": "geometric 5",
    "`DPSearch`, 10 trials, geometric": "geometric 10",
    "`DPSearch`, 10 trials, logarithmic": "logarithmic 10",
    "the best of the grid in hindsight, which no budget covers": "hindsight",
}


def cells(*first: str, then: int = 0) -> str:
    """The numbers of a page's row that begins so; no more than ``then`` cells, if given."""
    start = "".join(re.escape(f"| {cell} ") for cell in first)
    rest = r"[^|]*\|" * then or ".*"
    return rf"^{start}\| (?=\**\d)({rest})"


#: What pages repeat: the page, where (the numbers in the groups count), and what they must be.
REPEATED: list[tuple[str, str, Callable[[], Sequence[float]]]] = [
    ("docs/index.md", cells("Adult (bundled census table)"), lambda: accuracies("Adult")),
    ("docs/index.md", cells("MNIST"), lambda: accuracies("MNIST")),
    ("docs/index.md", cells("Fashion-MNIST"), lambda: accuracies("Fashion-MNIST")),
    (
        "docs/index.md",
        r"the default, takes ([\d.]+ to [\d.]+) times .*4,096 rows ([\d.]+ to [\d.]+) times",
        lambda: [*sorted(measured(STEP, FULL)[:2]), *sorted(measured(STEP, BATCH)[:2])],
    ),
    (
        "docs/index.md",
        r"Opacus with ghost clipping takes (\d+) times .* two cores, and (\d+) times with one",
        lambda: measured(TIME, "Opacus, ghost clipping")[::-1],
    ),
    (
        "docs/index.md",
        r"checks every sum while it trains, takes ([\d.]+ to [\d.]+) times",
        lambda: sorted(measured(STRICT, "784", "10")),
    ),
    (
        "docs/index.md",
        r"five rows have ε = ([\d.]+) at the same δ, ten have ([\d.]+)\.",
        lambda: several_rows(5, 10),
    ),
    (
        "docs/ledger.md",
        r"Two fits with ε = 1 cost about ([\d.]+) together",
        lambda: [epsilon([Gaussian(1 / gaussian_mu(1.0, 1e-6), count=2)], 1e-6, "replace_special")],
    ),
    (
        "docs/large-data.md",
        r"takes ([\d.]+) times as long as reading and decoding the files, in (\d+) MB",
        lambda: measured("Data larger than memory", "10,000,000")[2::4],
    ),
    (
        "docs/exact-noise.md",
        r"a draw takes (\d+) ns, against (\d+) ns .*: \[([\d.]+ to [\d.]+) of its speed",
        lambda: [
            *measured("Time of noise", "7,850", "2^30")[1::-1],
            *sorted(
                measured("Time of noise", draws, size)[2]
                for draws in ("7,850", "1,000,000", "10,000,000")
                for size in ("2^30", "2^40")
            )[::5],
        ],
    ),
    (
        "docs/speed.md",
        r"a default fit takes (\d+ to \d+) times as long as scikit-learn's",
        lambda: sorted(1 / ratio for ratio in measured(TIME, "LogisticRegression")),
    ),
    (
        "docs/exact-noise.md",
        r"a step takes \[([\d.]+ to [\d.]+) times .*; ([\d.]+ to [\d.]+) times with one output",
        lambda: [
            *sorted(measured(STRICT, "784", "10")),
            *sorted([*measured(STRICT, "784", "1"), *measured(STRICT, "88", "1")])[::3],
        ],
    ),
    (
        "docs/speed.md",
        cells("full batch", then=2),
        lambda: [measured(STEP, which)[0] for which in (FULL, "full batch, float32")],
    ),
    (
        "docs/speed.md",
        cells("Poisson batch of 4,096", then=2),
        lambda: [measured(STEP, which)[0] for which in (BATCH, "Poisson batch of 4,096, float32")],
    ),
    ("docs/speed.md", cells("exact"), lambda: measured(STEP, "exact")),
    ("docs/speed.md", cells("float32"), lambda: measured(STEP, "fast")),
    (
        "docs/speed.md",
        cells("bare float32 products, 16 against 1"),
        lambda: measured(STEP, "bare"),
    ),
    (
        "docs/speed.md",
        r"Opacus takes ([\d.]+) times .* ghost clipping, and (\d+) times by default; on one thread"
        r" ([\d.]+ and \d+) times",
        lambda: [
            measured(TIME, f"Opacus, {way}")[thread]
            for thread in (1, 0)
            for way in ("ghost clipping", "default")
        ],
    ),
    (
        "docs/speed.md",
        r"sixteen settings cost ([\d.]+) times one with two classes, and ([\d.]+) times",
        lambda: numbers(section("Data larger than memory").rpartition("million rows cost")[2]),
    ),
    (
        "docs/gpu.md",
        r"exact sums of a step take ([\d.]+ to [\d.]+) times",
        lambda: sorted(measured("Other array libraries", "PyTorch, processor")),
    ),
    (
        "docs/dask.md",
        r"\[(\d+ to \d+) ms a step\]",
        lambda: [
            measured("Steps on a cluster", rows)[2] for rows in ("2,000 × 20", "60,000 × 784")
        ],
    ),
    *(
        ("docs/tuning.md", cells(str(trials)), lambda trials=trials: slowdowns(trials))
        for trials in (3, 10, 30)
    ),
    (
        "docs/tuning.md",
        cells("chance that 10 expected trials are a single one"),
        lambda: [100 * search.chances(1)[0][1] for search in searches(10)],
    ),
    *(
        ("docs/tuning.md", cells(label), lambda name=name: measured(TUNING, name)[:6])
        for label, name in TUNED.items()
    ),
    *(
        ("docs/tuning.md", cells(data, measure), lambda data=data: oracle(data))
        for data, measure in (
            ("Adult", "accuracy"),
            ("Bank", "area"),
            ("Census-KDD", "area"),
            ("Cod-RNA", "accuracy"),
            ("w8a", "area"),
            ("Chest X-ray", "accuracy"),
            ("MNIST", "accuracy"),
            ("Fashion-MNIST", "accuracy"),
            ("CIFAR-10 features", "accuracy"),
        )
    ),
    (
        "docs/tuning.md",
        r"On average ([\d.]+) points are lost to the best of 200, at most ([\d.]+) ",
        lambda: numbers(re.findall("Mean gap.*", section(ORACLE))[0].rstrip(".")),
    ),
    (
        "docs/tuning.md",
        r"nothing was chosen\].*? ([\d.]+) are lost on average; ([\d.]+) and",
        lambda: numbers(re.findall("Mean gap.*", section(ORACLE))[1].rstrip(".")),
    ),
    *(
        ("docs/noiseless-stages.md", cells(label), lambda label=label: measured(LOWRANK, label))
        for label in (
            "no preprocessing",
            "soft PCA, strength 0.05",
            "soft PCA, strength 0.5",
            "DP-PCA, half of the budget",
        )
    ),
    *(
        (
            "docs/private-statistics.md",
            cells(at),
            lambda at=at: measured(STATISTICS, at, under="μ")[::3],
        )
        for at in ("0.01", "1", "100")
    ),
    *(
        (
            "docs/private-statistics.md",
            cells(label),
            lambda i=i: [
                measured(STATISTICS, at, under="distance")[i]
                for at in ("0", "1", "10", "100", "1000", "1e+06")
            ],
        )
        for i, label in enumerate(("Gaussian", "instance-optimal"))
    ),
    *(
        ("docs/private-statistics.md", cells(label), lambda name=name: quantiles(name))
        for label, name in (
            ("median, 2²⁴ cells: error in rank, mean (99 %)", "median, 2^24 cells of one width"),
            ("0.9-quantile, 2²⁴ cells", "0.9-quantile, 2^24 cells of one width"),
            (
                "near the largest, 2¹⁰ cells: rows left outside",
                "near the largest, 2^10 cells of one ratio",
            ),
        )
    ),
    (
        "docs/noiseless-stages.md",
        cells("a model that always says ½"),
        lambda: numbers(section(LOWRANK).partition("Always saying ½ has ")[2])[:1] * 3,
    ),
    (
        "docs/audit.md",
        r"PCA to k coordinates are caught at ([\d.]+, [\d.]+) and ([\d.]+),",
        lambda: [measured("Audits", f"`{name}`")[0] for name in ("centring", "dedup", "pca")],
    ),
    (
        "docs/diagnostics.md",
        r"with 100 classes took (\d+) s on two cores and ([\d.]+) GB",
        lambda: [
            measured("Diagnoses", "CIFAR-100 features")[2],
            measured("Diagnoses", "CIFAR-100 features")[4] / 1000,
        ],
    ),
    (
        "docs/trainers.md",
        r"(?s)stays at ([\d.]+)% up to 50,000 columns; with gamma noise it falls from"
        r" ([\d.]+)% to ([\d.]+)%",
        lambda: [
            recorded("song-dimension", label, column)[0]
            for label, column in (
                ("50,000 columns", "Gaussian noise"),
                ("9 columns", "gamma noise"),
                ("50,000 columns", "gamma noise"),
            )
        ],
    ),
    ("docs/reproduction.md", r"(\d+) minutes of processor time", minutes),
    *(
        (
            "docs/baselines.md",
            cells(label),
            lambda name=name: methods(name, "CIFAR-10", "CIFAR-100"),
        )
        for label, name in RIVALS.items()
    ),
    *(
        (
            "docs/baselines.md",
            cells(label, "–", "–"),
            lambda name=name: recorded("pinto-raft", name, "ε = 0.1, here", "ε = 0.7, here"),
        )
        for label, name in (("`dp-raft`", "DP-RAFT"), ("`dp-raft+pillar`", "DP-RAFT + PILLAR"))
    ),
    *(
        (
            "docs/public-data.md",
            cells(label, public, epsilon),
            lambda where=where, epsilon=epsilon: measured(CHECK, *where, epsilon)[:4],
        )
        for label, public, epsilon, where in (
            ("CIFAR-10 features", "CIFAR-10", "0.1", ("cifar10", "cifar10")),
            ("CIFAR-10 features", "CIFAR-100", "0.1", ("cifar10", "cifar100")),
            ("CIFAR-10 features", "chest X-rays", "0.1", ("cifar10", "chest_xray")),
            ("CIFAR-10 features", "chest X-rays", "1", ("cifar10", "chest_xray")),
            ("Fashion-MNIST pixels", "MNIST", "0.1", ("fashion_mnist", "mnist")),
            ("Fashion-MNIST pixels", "MNIST", "1", ("fashion_mnist", "mnist")),
        )
    ),
    (
        "docs/public-data.md",
        r"without a projection, CIFAR-10 has ([\d.]+ ± [\d.]+) at",
        lambda: measured(CHECK, "cifar10", "cifar10", "0.1")[4:6],
    ),
    *(
        (
            "docs/public-data.md",
            cells(label, epsilon),
            lambda name=name, epsilon=epsilon: public_rows(name, epsilon),
        )
        for label, name in PUBLIC.items()
        for epsilon in ("0.1", "0.7")
    ),
]


@pytest.mark.parametrize(
    ("page", "where", "source"),
    REPEATED,
    ids=[f"{page}-{i}" for i, (page, *_) in enumerate(REPEATED)],
)
def test_figures_that_a_page_repeats_are_those_of_the_record(page, where, source):
    text = (ROOT / page).read_text(encoding="utf-8")
    (match,) = re.finditer(where, text, re.MULTILINE)
    shown = [number for group in match.groups() for number in NUMBER.findall(group)]
    wanted = source()
    assert len(shown) == len(wanted), (shown, wanted)
    wrong = [pair for pair in zip(shown, wanted, strict=True) if not agree(*pair, units=0.55)]
    assert not wrong


@pytest.mark.parametrize(
    ("name", "title"),
    [("field", "Accuracy beside others"), ("regression", "Regression beside others")],
)
def test_comparisons_with_others_are_those_of_the_results(name, title):
    text = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    (shown,) = re.findall(rf"<!-- {name} -->\n(.*?)\n<!-- end", text, re.DOTALL)
    assert shown.strip() == section(title).strip()


def test_audits_are_those_of_the_results():
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    recipes, others, naive = re.findall(r"(?:^\|.*\n)+", section("Audits") + "\n", re.MULTILINE)
    assert recipes.count("\n") == 2 + len(RECIPES)
    assert naive.count("\n") == 2 + len(LEAKY_PIPELINES)
    for table in (recipes, others):
        assert re.sub(" ?--- ?", "---", table) in text


def test_a_count_of_verdicts_says_beside_it_what_it_rests_on():
    said = section("Accuracy beside others").replace("\n", " ")
    (beside,) = re.findall(r"Of \d+ comparisons Tacit is ahead in \d+\.(.*?)  ", said)
    assert "chosen on these data sets" in beside
    assert "runs were added where results were close" in beside
    assert "DP-EBM" in beside
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    assert not [text for text in (RESULTS, *pages) if re.search(r"Tacit is \d+ times", text)]


def test_a_private_model_is_not_better_than_the_same_without_privacy():
    """If it were, the two would not stand behind the same stages."""
    lines = [re.split(r" \| | ± ", line.strip("| ")) for line in section("Accuracy").splitlines()]
    found = [(row[0], row[1], float(row[2])) for row in lines if row[0] in SETS]
    limits = {data: score for data, epsilon, score in found if epsilon == "without privacy"}
    assert set(limits) == SETS
    assert all(score <= limits[data] for data, _, score in found)
