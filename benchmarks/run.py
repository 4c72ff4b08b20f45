"""All benchmarks in one run, written to benchmarks/RESULTS.md.

    python benchmarks/run.py [SECTION ...]

Sections are named below; without any, all of them run. A section that does not run keeps what
it said before. Ratios are measured within a section's run; absolute times depend on the machine.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_field import METHODS
from comparison import OURS, verdict
from growth_picture import picture

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
LIMITS = {"exact full": 1.8, "fast full": 1.2, "exact batch": 2.2, "fast batch": 1.7}
FIELD = HERE.parent / "docs" / "field.md"
CACHE = HERE / ".cache"
RIVALS = HERE.parent / ".venv-rivals" / "bin" / "python"  # bench_time.py says what is in it
VERDICTS = ("ahead", "level", "behind", "not judged")
#: What a count of verdicts on classes rests on; stands beside it wherever it is printed.
CAVEAT = (
    "That is a count, no factor, and no forecast: the rule for Tacit's settings (and for DP-SGD's)",
    "was chosen on these data sets, runs were added where results were close, and the strongest",
    "rivals for tables took no part: DP-EBM (Nori et al. 2021) for one, which is not linear.",
)
CASES = {
    "exact full": "full batch, exact arithmetic (default)",
    "fast full": "full batch, float32",
    "exact batch": "Poisson batch of 4,096, exact arithmetic (default)",
    "fast batch": "Poisson batch of 4,096, float32",
}


def run(script: str, *options: str, python: str = sys.executable) -> Any:
    print(f"running {script} ...", flush=True)
    command = [python, str(HERE / script), "--json", *options]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def table(*rows: tuple[Any, ...]) -> list[str]:
    head, *body = rows
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ("---",) * len(head), *body)]


def idle() -> bool:
    """Whether the clock on the wall would tell of us, and not of other work."""
    return os.getloadavg()[0] < 0.7


def number(ratios: dict[str, float], name: str) -> str:
    return f"{ratios[name]:.2f}" if name in ratios else "–"


def step() -> list[str]:
    cores = run("bench_step.py")["ratio"] if idle() else {}  # before we are the other work
    alone = run("bench_step.py", "--threads", "1", "--clock", "cpu")["ratio"]
    small = run("bench_step.py", "--outputs", "1", "--threads", "1", "--clock", "cpu")["ratio"]
    together = [(which, f"{which} settings") for which in ("exact", "fast", "bare")]
    return [
        "Sampling, clipped sum, noise and update, relative to the bare float32 pair of matrix",
        "products on the same rows (60,000 × 784, 10 classes); shortest of many, one run.",
        "Processor time of one thread, and the clock on the wall with all cores, if nothing else",
        "ran.",
        "",
        *table(
            ("step", "one thread", "all cores", "at most"),
            *((CASES[k], number(alone, k), number(cores, k), LIMITS[k]) for k in CASES),
        ),
        "",
        "16 settings trained together, in times of one (bare: the products alone):",
        "",
        *table(
            ("arithmetic", "two classes, one thread", "ten, one thread", "ten, all cores"),
            *(
                (which, number(small, key), number(alone, key), number(cores, key))
                for which, key in together
            ),
        ),
        "",
        "`docs/speed.md` says what that depends on.",
    ]


def fits() -> list[str]:
    cores = run("bench_fit.py")["fits"] if idle() else []
    alone = run("bench_fit.py", "--threads", "1")
    beside = run("bench_fit.py", "--threads", "1", python=rival_python())["fits"]
    body = []
    for i, row in enumerate(alone["fits"]):
        shape = f"{row['rows']:,} × {row['columns']}, {row['classes']}"
        all_cores = f"{cores[i]['ratio']:.1f}" if cores else "–"
        private = f"{beside[i]['tacit'] / beside[i]['diffprivlib']:.2f}"
        body.append((shape, f"{row['ratio']:.1f}", all_cores, private))
    return [
        "A default fit relative to LogisticRegression on the same standardised rows: processor",
        "time of one thread, and the clock on the wall with all cores, if nothing else ran. Last:",
        "relative to LogisticRegression of diffprivlib by its default settings, one thread.",
        "",
        *table(("rows × columns, classes", "one thread", "all cores", "diffprivlib"), *body),
        "",
        f"First fit of a process: {alone['first']:.2f} s, second: {alone['second']:.2f} s",
        "(10,000 × 20).",
    ]


def rivals() -> list[str]:
    python = rival_python()
    threads = str(os.cpu_count())
    cores = run("bench_time.py", "--threads", threads, python=python) if idle() else {}
    alone = run("bench_time.py", python=python)
    lines = [
        "Times relative to Tacit's exact arithmetic in the same run: processor time of one thread,",
        "and the clock on the wall with all cores, if nothing else ran. An epoch is 15 Poisson",
        "batches of 4,096 of 60,000 × 784 rows with 10 classes, everything included. SGDClassifier",
        "makes one pass over the rows, without privacy.",
        "",
    ]
    for kind, title in (("epoch", "one epoch"), ("fit", "one fit, 30,000 × 100, two classes")):
        ratios = [
            {name: seconds / found[kind]["tacit, exact"] for name, seconds in found[kind].items()}
            for found in (alone, cores)
            if found
        ]
        ratios += [{}] * (2 - len(ratios))
        body = [(name, *(number(ratio, name) for ratio in ratios)) for name in alone[kind]]
        lines += [*table((title, "one thread", "all cores"), *body), ""]
    missing = {"Opacus, default", "Opacus, ghost clipping"} - alone["epoch"].keys()
    if missing:
        lines.append("Opacus was not installed: `benchmarks/bench_time.py` says how.")
    return lines


def modules() -> list[str]:
    found = run("bench_modules.py", python=rival_python())
    small = run("bench_modules.py", "--spectrum", "2000", "100000", "1000", str(HERE))
    wide = run("bench_modules.py", "--spectrum", "200", "7000000", "100", str(HERE))
    return [
        "Time of a step of `fit_module` (sampling, clipped sum, noise, update) relative to Opacus",
        "1.6 with ghost clipping: Poisson batches of 128 rows, of 32 tokens for encoders;",
        "processor time of one thread, one run.",
        "",
        *table(
            ("module", "parameters", "exact", "fast"),
            *(
                (
                    name,
                    f"{each['parameters'] / 1e6:.1f} million",
                    *(number(each["ratio"], which) for which in ("exact", "fast")),
                )
                for name, each in found.items()
            ),
        ),
        "",
        "Peak memory of the singular values of gradients in a file (Gram matrix, one thread):",
        f"{small['GiB']:.1f} GiB for 1,000 values and 100 vectors of 2,000 gradients of 100,000",
        f"parameters, {wide['GiB']:.1f} GiB for 100 of 200 gradients of 7 million.",
    ]


def growth() -> list[str]:
    found = run("bench_time.py", "--growth")
    picture(found, HERE / "growth.svg")
    rows = [
        (
            axis,
            *(f"{r[k]:,}" for k in ("rows", "columns", "classes")),
            *(f"{r[k] * 1e3:.1f}" for k in ("bare", "exact", "fast")),
        )
        for axis, results in found.items()
        for r in results
    ]
    return [
        "Milliseconds of an epoch of 15 Poisson batches, processor time of one thread.",
        "",
        "![Time of an epoch over rows, columns and classes](growth.svg)",
        "",
        *table(("along", "rows", "columns", "classes", "bare", "exact", "float32"), *rows),
    ]


def calibration() -> list[str]:
    found = run("bench_calibrate.py")
    rows = []
    for kind, words in (("gaussian-dp", "Gaussian noise alone"), ("pld", "Poisson samples")):
        times = [r["seconds"] * 1e3 for r in found["results"] if r["accountant"] == kind]
        limit = found["limits"][kind] * 1e3
        rows.append(
            (
                words,
                len(times),
                f"{sum(times) / len(times):.0f}",
                f"{max(times):.0f}",
                f"{limit:.0f}",
            )
        )
    return [
        "Milliseconds to calibrate the plan of every recipe for the facts of Adult and MNIST at",
        "ε = 0.1, 1 and 8, and of DP-SGD for more steps and batch sizes.",
        "",
        *table(("plans with", "number", "mean", "slowest", "at most"), *rows),
    ]


def ledger() -> list[str]:
    found = run("bench_ledger.py")
    names = ("first", "reserve", "reserve again", "remaining", "remaining again")
    rows = [
        (r["plans"], f"{r['number']:,}", *(f"{r[name] * 1e3:.0f}" for name in names))
        for r in found["results"]
    ]
    most = ", ".join(f"{s * 1e3:.0f} for {name}" for name, s in found["limits"].items())
    return [
        "Milliseconds of processor time for one more sampled plan (`reserve`) and for what is left",
        "(`remaining`), beside so many plans in the ledger: all of different kinds. In a new",
        "process, and again in the same; first, where nothing was kept and all is composed.",
        f"At most {most} with 1,000 kinds.",
        "",
        *table(("plans", "number", *names), *rows),
    ]


def strict() -> list[str]:
    rows = []
    for features, outputs in ((784, 10), (784, 1), (88, 1)):
        shape = ["--features", str(features), "--outputs", str(outputs), "--settings", "1"]
        ratio = run("bench_step.py", *shape, "--threads", "1", "--clock", "cpu")["ratio"]
        times = [f"{ratio[f'strict {k}'] / ratio[f'exact {k}']:.2f}" for k in ("full", "batch")]
        rows.append((features, outputs, *times))
    return [
        "Time of a step that checks every sum, relative to the exact one: 60,000 rows, Poisson",
        "batches of 4,096, processor time of one thread.",
        "",
        *table(("features", "outputs", "full batch", "Poisson batch"), *rows),
    ]


def noise() -> list[str]:
    found = run("bench_noise.py")
    return [
        "Draws of the exact discrete Gaussian, in nanoseconds, beside NumPy's float64 normals",
        f"(PCG64) in the same run; their speed should be at least {found['least']:g} of that. The",
        "smallest size is one step of training, its stream opened anew.",
        "",
        *table(
            ("draws", "σ", "normal", "discrete", "speed"),
            *(
                (
                    f"{r['draws']:,}",
                    r["sigma"],
                    f"{r['normal_ns']:.1f}",
                    f"{r['discrete_ns']:.1f}",
                    f"{r['speed']:.2f}",
                )
                for r in found["results"]
            ),
        ),
    ]


def accuracy() -> list[str]:
    return [
        "Default settings, δ = 1e-5, nothing tuned, nothing unaccounted; mean and standard",
        "deviation over runs with fresh noise. *Without privacy* is logistic regression to",
        "convergence behind the same stages, fitted without noise, its penalty chosen on a sixth",
        "of the training rows.",
        "",
        *table(("data", "ε", "test accuracy", "runs"), *map(_accuracy, run("bench_accuracy.py"))),
    ]


def _accuracy(r: dict[str, Any]) -> tuple[Any, ...]:
    if r["epsilon"] is None:
        return r["data"], "without privacy", f"{r['accuracy']:.2f}", r["runs"]
    found = f"{r['accuracy']:.2f} ± {r['spread']:.2f}"
    return r["data"], f"{r['epsilon']:g}", found, r["runs"]


def dedup() -> list[str]:
    found = run("bench_dedup.py")
    if not found["results"]:
        return [f"Not measured: {found['reason']}"]
    return [
        f"Near-duplicate search and crowd test on {found['shape'][0]:,} rows of KDD-99 with "
        f"{found['shape'][1]} columns.",
        "",
        *table(
            ("radius", "clusters, s", "test, s", "MB beyond the rows", "rows left", "brute / ours"),
            *(
                (
                    f"{r['radius']:g}",
                    f"{r['clusters_s']:.1f}",
                    f"{r['limit_s']:.1f}",
                    f"{r['megabytes']:.0f}",
                    f"{r['survivors']:,}",
                    f"{r['brute_ratio']:.0f}",
                )
                for r in found["results"]
            ),
        ),
        "",
        "The last column is scikit-learn's brute force against ours on 20,000 rows.",
    ]


def lowrank() -> list[str]:
    found = run("bench_lowrank.py")
    rows: dict[str, list[str]] = {}
    for r in found["results"]:
        cell = "test fails" if r["excess"] is None else f"{r['excess']:.2f}"
        rows.setdefault(r["method"], []).append(cell)
    return [
        f"{found['rows']:,} rows of {found['columns']:,} columns and rank 50, δ = 1e-5, one row",
        "replaced: excess empirical loss, every method at its best learning rate, chosen on the",
        f"outcome. Always saying ½ has {found['zero']:.2f}.",
        "",
        *table(
            ("method", "ε = 1", "ε = 2", "ε = 5"),
            *((name, *cells) for name, cells in rows.items()),
        ),
    ]


PUBLIC_SETS = ("cifar10", "fashion_mnist", "cifar100")


def public_check() -> list[str]:
    return public_table(run("bench_public_check.py", "--data", *PUBLIC_SETS))


def public_table(found: list[dict[str, Any]]) -> list[str]:
    """Accuracies with the check and without, by where public rows come from."""
    ways = ("projected", "checked", "no projection")
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for r in found:
        rows.setdefault((r["data"], r["public"], f"{r['epsilon']:g}"), {})[r["way"]] = r
    cells = [
        (
            *key,
            *(f"{r[w]['accuracy']:.1f} ± {r[w]['spread']:.1f}" if w in r else "" for w in ways),
            f"{r['checked']['unlike']} of {len(r['checked']['runs'])}" if "checked" in r else "",
        )
        for key, r in rows.items()
    ]
    return [
        "Test accuracy in per cent by the recipe `pillar`, δ = 1e-5: mean and standard deviation",
        "over runs, each of which draws public rows anew. Without the check, with it, and with no",
        "projection (`dp-gd`); and in how many runs public rows were found to be unlike.",
        "",
        *table(("private rows", "public rows", "ε", *ways, "found unlike"), *cells),
    ]


def statistics() -> list[str]:
    found = run("bench_statistics.py")
    methods = list(dict.fromkeys(r["method"] for r in found["clusters"]))
    loss = {(r["mu"], r["method"]): r for r in found["clusters"]}
    places = list(dict.fromkeys(r["mu"] for r in found["clusters"]))
    ranks = [
        (
            r["quantile"],
            {"gaussian": "search", "exponential": "selection"}[r["method"]],
            f"{r['mean']:.1f} ({r['often']:.0f})",
            "" if r["outside"] is None else f"{r['outside']:.0f}",
        )
        for r in found["ranks"]
    ]
    return [
        "Two clusters 2 apart, at distance μ from the origin; 2,000 rows, ε = 1, δ = 1e-5. Excess",
        "hinge loss over ten runs: mean (least to most). A model of zeros has 1.",
        "",
        *table(
            ("μ / nε", *methods),
            *(
                (
                    f"{place:g}",
                    *(
                        "{mean:.3f} ({least:.3f} to {most:.3f})".format(**loss[place, m])
                        for m in methods
                    ),
                )
                for place in places
            ),
        ),
        "",
        "Error of a private mean of 5,000 rows of norm one around a point at some distance.",
        "",
        *table(
            ("distance", "Gaussian, exact norm bound", "instance-optimal, bound 1e7"),
            *(
                (f"{r['shift']:g}", f"{r['gaussian']:.4g}", f"{r['instance-optimal']:.4g}")
                for r in found["shifts"]
            ),
        ),
        "",
        "Error in rank of private quantiles of 5,000 numbers at μ = 0.1, mean (99 %).",
        "",
        *table(("quantile", "method", "error in rank", "rows left outside"), *ranks),
    ]


def cluster() -> list[str]:
    small, large = (
        run("bench_cluster.py", *options)["ms"]
        for options in (("--rows", "2000", "--features", "20"), ())
    )
    return [
        "A full-batch sum of clipped gradients on two worker processes of a Dask cluster, 10",
        "classes, in milliseconds: the step, the slowest partition's own computation, and what the",
        "step takes beyond it (median; at most 60, and at best).",
        "",
        *table(
            ("rows", *small),
            ("2,000 × 20", *(f"{value:.0f}" for value in small.values())),
            ("60,000 × 784", *(f"{value:.0f}" for value in large.values())),
        ),
    ]


def arrays() -> list[str]:
    found = run("bench_arrays.py", "--clock", "cpu", "--rounds", "5")
    kinds = {"full": "full batch", "batch": "Poisson batch of 4,096"}
    return [
        "Exact sums of clipped gradients in other array libraries, relative to NumPy's engine on",
        "the same rows (60,000 × 784, 10 classes): processor time of one thread, shortest of five.",
        "",
        *table(
            ("rows in", *kinds.values()),
            *(
                (name, *(f"{times[kind] / found['NumPy'][kind]:.2f}" for kind in kinds))
                for name, times in found.items()
            ),
        ),
    ]


def stream() -> list[str]:
    found = run("bench_stream.py")
    return [
        "One exact sum of clipped gradients over Parquet files (100 columns of float32), none of",
        "whose rows are kept, relative to pyarrow reading and decoding the same files with one",
        "thread; shortest of several. Processor time is of all threads, memory the most ever.",
        "",
        *table(
            ("rows", "reading, s", "sum, s", "ratio", "processor, s", "µs a row", "memory, MB"),
            *(
                (
                    f"{r['rows']:,}",
                    f"{r['read']:.2f}",
                    f"{r['sum']:.2f}",
                    f"{r['sum'] / r['read']:.2f}",
                    f"{r['read cpu']:.2f} and {r['sum cpu']:.2f}",
                    f"{r['sum'] / r['rows'] * 1e6:.2f}",
                    f"{r['memory']:.0f}",
                )
                for r in found
            ),
        ),
        "",
        *_together(found),
    ]


def _together(found: list[dict[str, float]]) -> list[str]:
    """What sixteen settings cost where rows are read anew for every sum."""
    names = [[f"{settings} settings, {k} classes" for settings in (16, 1)] for k in (2, 10)]
    (row,) = (r for r in found if r["rows"] == 1_000_000 and names[0][0] in r)
    two, ten = (row[many] / row[one] for many, one in names)
    return [
        f"16 settings trained together on a million rows cost {two:.2f} times one with two classes",
        f"and {ten:.2f} times one with ten.",
    ]


def tuning() -> list[str]:
    found = run("bench_tuning.py")
    names = [name for name in found["rows"][0] if name != "epsilon"]
    return [
        "Census table, δ = 1e-5, test accuracy: mean, and from the worst tenth to the best of",
        f"{found['runs']} runs (a guess: of every setting of the grid). The grid has 12 settings,",
        "clips of 0.01 to 1 and rates of 1 to 1000. Noise is that of a trial, in single fits.",
        "",
        *table(
            ("", *(f"ε = {row['epsilon']:g}" for row in found["rows"]), "noise"),
            *(
                (
                    name,
                    *(_spread(row[name]) for row in found["rows"]),
                    " / ".join(f"{row[name].get('noise', 1.0):.2f}" for row in found["rows"]),
                )
                for name in names
            ),
        ),
    ]


def _spread(score: dict[str, float]) -> str:
    return f"{score['mean']:.1f} ({score['low']:.1f} to {score['high']:.1f})"


def oracle() -> list[str]:
    """The rule beside what nobody may know; a long run, which goes on where it stopped."""
    said = [
        "Default settings beside the best of 200 (steps × rate × clip × bias), chosen on the test",
        "rows, which no budget covers. δ = 1e-5, five seeds: accuracy, or the area under the",
        "curve where a class has less than 15% of the rows. Sets of more rows than listed are",
        "used in part, with as much less noise.",
    ]
    for title, *options in (("data",), ("held out", "--held-out")):
        found = run("bench_oracle.py", *options)
        if not found["lines"]:
            return ["Not measured: TACIT_DATA names no directory."]
        said += [
            "",
            *table(
                (title, "rows", "ε", "measure", "default", "best", "gap"),
                *(
                    (
                        r["data"],
                        f"{r['rows']:,}",
                        f"{r['epsilon']:g}",
                        r["measure"],
                        f"{r['rule']:.2f} ± {r['spread']:.2f}",
                        f"{r['best']:.2f}",
                        f"{r['gap']:.2f}",
                    )
                    for r in found["lines"]
                ),
            ),
            "",
            f"Mean gap {found['mean']:.2f}, largest {found['worst']:.2f}.",
        ]
    return said


def diagnostics() -> list[str]:
    if not os.environ.get("TACIT_DATA"):
        return ["Not measured: TACIT_DATA names no directory."]
    return [
        "All of `inspect`, each data set in a process of its own; distances of rows of unit norm.",
        "",
        *table(
            ("data", "rows", "columns", "processor, s", "MB", "diameter", "largest", "mean"),
            *(
                (
                    r["data"],
                    f"{r['rows']:,}",
                    r["columns"],
                    f"{r['processor']:.0f}",
                    f"{r['megabytes']:.0f}",
                    f"{r['diameter']:.2f}",
                    f"{r['largest']:.2f}",
                    f"{r['mean']:.2f}",
                )
                for r in run("bench_diagnostics.py")
            ),
        ),
    ]


def rival_python() -> str:
    return os.environ.get("TACIT_RIVALS", str(RIVALS) if RIVALS.exists() else sys.executable)


def cached(name: str) -> tuple[str, ...]:
    """Where a long benchmark keeps its fits, so that it may be interrupted."""
    CACHE.mkdir(exist_ok=True)
    only = ("--cached",) if os.environ.get("TACIT_CACHED") else ()  # nothing new is fitted
    return "--cache", str(CACHE / f"{name}.json"), *only


def outcome(found: list[dict[str, Any]], digits: int) -> str:
    """In how many comparisons each verdict was given, and where not everybody was left behind."""
    counts = [(sum(r["verdict"] == word for r in found), word) for word in VERDICTS]
    said = ", ".join(f"{word} in {count}" for count, word in counts if count)
    behind = [
        f"{r['data']} at ε = {r['epsilon']:g} ({r['lead']:+.{digits}f} to {r['best_rival']})"
        for r in found
        if r["verdict"] == "behind"
    ]
    lost = f" Behind: {'; '.join(behind)}." if behind else ""
    return f"Of {len(found)} comparisons Tacit is {said}.{lost}"


def several(found: list[dict[str, Any]]) -> str:
    """How many runs there were, of any row."""
    counts = sorted({r["runs"] for r in found})
    return " or ".join(map(str, counts))


def judgement(r: dict[str, Any], digits: int) -> str:
    spread = "" if r["runs"] == 1 else f" ± {r['error']:.{digits}f}"
    return f"{r['verdict']}: {r['lead']:+.{digits}f}{spread} to {r['best_rival']}"


def field() -> list[str]:
    found = run("bench_field.py", *cached("field"), python=rival_python())
    if not found:
        return ["Not measured: no data set was found."]
    methods = list(dict.fromkeys(name for r in found for name in r["scores"]))

    def cell(r: dict[str, Any], name: str) -> str:
        if name not in r["scores"]:
            return "–"
        score = r["scores"][name]
        accuracy = f"{score['accuracy']:.1f}"
        return accuracy if r["by"] == "accuracy" else f"{score['auc']:.1f} ({accuracy})"

    lines = [
        f"Test accuracy in percent, mean of {several(found)} runs, δ = 1e-5 (diffprivlib: 0),",
        "nobody's settings tuned. Where fewer than 15% of the rows are of one class, the area",
        "under the ROC curve, with accuracy in brackets. *Level* is whoever is within two",
        "standard errors of the best rival.",
        "",
        *table(
            ("data", "ε", *methods, "Tacit is"),
            *(
                (
                    f"{r['data']}, {r['rows']:,} × {r['columns']}",
                    f"{r['epsilon']:g}",
                    *(cell(r, name) for name in methods),
                    judgement(r, 1),
                )
                for r in found
            ),
        ),
        "",
        outcome(found, 1),
        *CAVEAT,
        "",
        *whole_sets(found),
    ]
    insert("field", lines)
    return lines


def whole_sets(found: list[dict[str, Any]]) -> list[str]:
    """Every data set as one: means over its budgets, and who is ahead."""
    rows, judged = [], []
    for data in dict.fromkeys(r["data"] for r in found):
        some = [r for r in found if r["data"] == data]
        by = some[0]["by"]
        methods = [m for m in some[0]["scores"] if all(m in r["scores"] for r in some)]
        mean = {m: sum(r["scores"][m][by] for r in some) / len(some) for m in methods}
        rival = max((m for m in methods if m != OURS), key=mean.__getitem__)
        pair = [r["scores"][m] for r in some for m in (OURS, rival)]
        error = math.sqrt(sum(s["spread"] ** 2 / max(s["runs"] - 1, 1) for s in pair)) / len(some)
        lead = mean[OURS] - mean[rival]
        judged.append(verdict(lead, error))
        said = f"{judged[-1]}: {lead:+.2f} ± {error:.2f} to {rival}"
        rows.append((data, *(f"{mean[m]:.1f}" if m in mean else "–" for m in METHODS), said))
    ahead = sum(word == "ahead" for word in judged)
    return [
        "Every data set as one, by the means over its budgets:",
        "",
        *table(("data", *METHODS, "Tacit is"), *rows),
        "",
        f"Ahead on {ahead} of {len(judged)} data sets.",
    ]


def regression() -> list[str]:
    found = run("bench_regression.py", *cached("regression"), python=rival_python())
    methods = list(dict.fromkeys(name for r in found for name in r["scores"]))

    def cell(r: dict[str, Any], name: str) -> str:
        if name not in r["scores"]:
            return "–"
        score = r["scores"][name]
        return "below −1" if score["r2"] < -1 else f"{score['r2']:.3f} ({score['rmse']:.3g})"

    lines = [
        f"R² on held-out rows (root mean square error), mean of {several(found)} runs, δ = 1e-5",
        "(diffprivlib and OpenDP: δ = 0). Same rows, same public bounds, nothing tuned. *Without",
        "privacy* is least squares on rows of norm 1. *Level* is whoever is within two standard",
        "errors of the best rival.",
        "",
        *table(
            ("data", "ε", *methods, "without privacy", "Tacit is"),
            *(
                (
                    f"{r['data']}, {r['rows']:,} × {r['columns']}",
                    f"{r['epsilon']:g}",
                    *(cell(r, name) for name in methods),
                    f"{r['plain']['r2']:.3f}",
                    judgement(r, 3),
                )
                for r in found
            ),
        ),
        "",
        outcome(found, 3),
        "Settings of descent were chosen on these four tables: no forecast for others.",
    ]
    insert("regression", lines)
    return lines


def shapes() -> list[str]:
    command = [rival_python(), str(HERE / "bench_shapes.py"), "--results", str(CACHE / "shapes")]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    return [
        "Defaults of both, δ = 1e-5, on the same rows with the same public bounds and categories;",
        "ten seeds, each another split where no test rows are published (`bench_shapes.py` has the",
        "protocol). *Ahead* is by more than two standard errors of the mean difference. Settings",
        "of Tacit were chosen on these data sets, those of shapes on other splits of them: that is",
        "no forecast for others.",
        "",
        *found.splitlines(),
    ]


def tables() -> list[str]:
    def found(part: str) -> list[str]:
        print(f"running bench_tables.py {part} ...", flush=True)
        kept = ["--results", str(CACHE / part), "--before", str(CACHE / f"{part}-before")]
        command = [sys.executable, str(HERE / "bench_tables.py"), part, *kept]
        return (
            subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode().split("\n")
        )

    return [
        "Frames as pandas reads them, with nothing declared, beside the same tables with a",
        "careful schema, and that schema with bounds too wide: area under the ROC curve,",
        "δ = 1e-5, twenty seeds, paired (`bench_tables.py` has the protocol). Diabetes-130 gains",
        "from what its schema leaves out: numbers of stays and patients, which say when a stay",
        "was (of the last fifth few came back: there was little time), and codes of diagnoses.",
        "",
        *found("accuracy"),
        "The data sets of *Accuracy beside others* with Tacit's defaults, now and before tables",
        "and second moments, in percent; thirty seeds, paired, or one where nothing changed.",
        "",
        *found("field"),
        "Processor time of a fit at ε = 1 on one thread, the least of rounds that take turns: as",
        "it is; straight, with the schema; and `Encode`, `Normalize`, `PrivateCenter` alone.",
        "",
        *found("time"),
        "Tables that nothing was chosen on (`data_lists.py`), ε = 1, five seeds, three quarters",
        "of at most 100,000 rows; mean and standard error. *Without privacy* is scikit-learn's",
        "logistic or ridge regression on the same frame, scaled and one-hot; the baseline is the",
        "largest class, or the mean. Each seed is another split, the same for all three.",
        "",
        *found("held-out"),
    ]


def insert(name: str, lines: list[str]) -> None:
    """Put a table into the page of docs that has a place for it."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = FIELD.read_text(encoding="utf-8")
    head, rest = text.split(start)
    _, tail = rest.split(end)
    FIELD.write_text("\n".join([f"{head}{start}", *lines, f"{end}{tail}"]), encoding="utf-8")


def people() -> list[str]:
    found = run("bench_people.py")
    names = {"diabetes130": "Diabetes-130", "randhie": "RAND HIE", "chest_xray": "Chest X-ray"}
    lines = []
    for name, by_epsilon in found["sets"].items():
        for epsilon, one in by_epsilon.items():
            areas = [f"{one['auc'][way]:.4f}" for way in ("person", "one row", "rows")]
            ahead = [
                f"{one['ahead'][way]:+.4f} ± {one['error'][way]:.4f}" for way in ("one row", "rows")
            ]
            lines.append((names[name], f"{one['people']:,}", epsilon, *areas, *ahead))
    return [
        "Area under the ROC curve on rows of people who were held out, ten seeds, δ = 1e-5,",
        "default settings; of everybody at most five rows, drawn at random. *Person*: the whole",
        "gradient of a person is clipped. *One row* of everybody. *Rows*: all five, each as if it",
        "were a person, at a fifth of μ, which makes that honest. Differences seed by seed, with",
        "standard errors.",
        "",
        *table(
            ("data", "people", "ε", "person", "one row", "rows", "to one row", "to rows"), *lines
        ),
    ]


def people_steps() -> list[str]:
    steps = [
        (
            f"{e['rows']:,} × {e['columns']}",
            e["outputs"],
            f"{e['batch']:,} of {e['people']:,}" if e["batch"] else f"all {e['people']:,}",
            f"{e['ms_people']:.2f}",
            f"{e['ratio']:.2f}",
        )
        for e in run("bench_people.py", "--data")["steps"]
    ]
    return [
        "Processor time of a step of exact sums on one thread with people of one to five rows, in",
        "times of that of the same rows taken for people; the aim is 1.5 at most. Sampled batches",
        "(Poisson, so many people in expectation) beside as many rows drawn from the table.",
        "",
        *table(("rows", "outputs", "people", "ms", "times"), *steps),
    ]


def scores() -> list[str]:
    parts = {name: run("bench_scores.py", name) for name in ("coverage", "held-out", "conformal")}
    return shown_scores(*parts.values())


def shown_scores(
    coverage: list[dict[str, Any]], held: list[dict[str, Any]], conformal: list[dict[str, Any]]
) -> list[str]:
    """What `bench_scores.py` found, as tables."""
    rows = []
    for r in coverage:
        open_ended = not math.isfinite(r["width"]) and not math.isfinite(r["best"])
        ratio = "both are infinite" if open_ended else f"{r['width'] / r['best']:.2f}"
        said = (r["case"], f"{r['n']:,}", f"{r['epsilon']:g}", r["figure"], f"{r['truth']:.3f}")
        rows.append((*said, f"{r['coverage']:.1%}", f"{r['width']:.3f}", f"{r['said']:.0%}", ratio))
    least = min(r["p"] for r in coverage)
    corrected = min(1.0, least * len(coverage))
    finite = [r for r in coverage if math.isfinite(r["width"])]
    widest = max(r["width"] / r["best"] for r in finite)
    far = [
        [abs(r[key] - r[f"true_{key}"]) for r in held if r["data"] == name]
        for name in dict.fromkeys(r["data"] for r in held)
        for key in ("accuracy", "area")
    ]
    names = list(dict.fromkeys(r["data"] for r in held))
    tested = [
        (name, *(f"{max(far[2 * i + k]):.4f}" for k in (0, 1))) for i, name in enumerate(names)
    ]
    sets = [
        (
            f"{r['n']:,}",
            f"{r['coverage']:.2%} ± {r['error']:.2%}",
            f"{r['exact_coverage']:.2%}",
            f"{r['size'] / r['exact_size']:.3f}",
        )
        for r in conformal
    ]
    return [
        "Intervals of `tacit.metrics.evaluate` at 95%, 500 repetitions with fresh rows and noise",
        "(`bench_scores.py` has the protocol): how often they hold the truth, their median width,",
        "in how many repetitions there is an estimate, and the width in times of the best possible",
        "interval for the same counts and noise, which is all of the range where estimates are",
        f"missing too often to tell. Over all {len(coverage)} figures together, the smallest",
        f"p-value of covering less than 95% is {least:.2g}, and {corrected:.2g} corrected for",
        "their number.",
        f"The widest interval is {widest:.2f} times the best possible one.",
        "",
        *table(
            ("rows", "n", "ε", "figure", "truth", "covered", "width", "estimate", "times"), *rows
        ),
        "",
        "Held-out rows at ε = 1, `holdout=0.2`, the largest difference of five seeds between what",
        "was released and the same figure of the very rows that were set aside:",
        "",
        *table(("data", "accuracy", "area"), *tested),
        "",
        "Conformal sets of two classes at 90%, ε = 1, 200 repetitions; sizes in times of those",
        "without noise:",
        "",
        *table(("rows tested on", "coverage", "without noise", "size"), *sets),
    ]


SECTIONS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "step": ("Time of one step", step),
    "fits": ("Time of a default fit", fits),
    "rivals": ("Time beside others", rivals),
    "modules": ("Modules of PyTorch", modules),
    "growth": ("Time as data grow", growth),
    "calibration": ("Time of calibration", calibration),
    "ledger": ("Time of a ledger", ledger),
    "strict": ("Strict arithmetic", strict),
    "noise": ("Time of noise", noise),
    "accuracy": ("Accuracy", accuracy),
    "field": ("Accuracy beside others", field),
    "regression": ("Regression beside others", regression),
    "shapes": ("Shapes against DP-EBM", shapes),
    "tables": ("Tables as they come", tables),
    "people": ("People with several rows", people),
    "people-steps": ("Steps of people", people_steps),
    "scores": ("Scores through noise", scores),
    "dedup": ("De-duplication", dedup),
    "lowrank": ("Projections on low-rank rows", lowrank),
    "public": ("A check of public rows", public_check),
    "statistics": ("Private statistics", statistics),
    "arrays": ("Other array libraries", arrays),
    "cluster": ("Steps on a cluster", cluster),
    "stream": ("Data larger than memory", stream),
    "tuning": ("Private tuning", tuning),
    "oracle": ("The rule beside an oracle", oracle),
    "diagnostics": ("Diagnoses", diagnostics),
}


def before() -> dict[str, str]:
    """What every section said last time, by title."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    return dict(re.findall(r"^## (.+?)\n\n(.*?)(?=\n+## |\Z)", text, re.MULTILINE | re.DOTALL))


def main() -> None:
    chosen = sys.argv[1:] or list(SECTIONS)
    if unknown := set(chosen) - SECTIONS.keys():
        sys.exit(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    said = before()
    for name in chosen:
        title, measure = SECTIONS[name]
        said[title] = "\n".join(measure())
    where = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    parts = ["# Results", f"Written by `make bench` on {where}."]
    order = [title for title, _ in SECTIONS.values() if title in said]
    order += [title for title in said if title not in order]  # what others wrote
    parts += [f"## {title}\n\n{said[title].strip()}" for title in order]
    RESULTS.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
