"""Pinto et al. 2024, Tables III and IV, Figures 3 and 7: how many public rows, which ones, and
why.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from tacit.research.reproduce.claim import Cell, Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.pinto_dimension import FACTORS, best_of_each
from tacit.research.reproduce.pinto_fits import ours, xi
from tacit.research.reproduce.pinto_sets import NAMES
from tacit.research.reproduce.printed import PRINTED
from tacit.research.reproduce.work import Work

COMPONENTS = 40
COUNTS: dict[float, int] = {0.2: 100, 1: 500, 5: 2_500, 10: 5_000}  # of 50,000 training rows
PRIVATE = {10: 4_500, 50: 22_500}  # of 45,000 private rows
#: For every set, where public rows come from and how many: its own, then others.
SOURCES: dict[str, tuple[tuple[str, int | None], ...]] = {
    "cifar10": (("cifar10", 5_000), ("cifar100", 2_000), ("chest_xray", None)),
    "cifar100": (("cifar100", 5_000), ("cifar10", 2_000), ("chest_xray", None)),
    "fashion_mnist": (("fashion_mnist", 6_000), ("mnist", 2_000)),
}
XI_KS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640)
RIDGES = (1e-4, 1e-2)
PAIRS = ((0, 1), (2, 3), (4, 7), (5, 8), (6, 9))


def public_rows(work: Work) -> Finding:
    """Table IV and Figure 7."""
    sets = ("cifar10",) if work.quick else ("cifar10", "cifar100")
    few: dict[str, Any] = {"private": 6_000} if work.quick else {}
    counts = {part: n for part, n in COUNTS.items() if part in (1, 10) or not work.quick}
    epsilon, runs = (0.7 if work.quick else 0.1), list(range(work.seeds))
    how: dict[str, Any] = {"epsilon": epsilon, "seeds": runs, "factors": FACTORS, **few}
    how |= {"method": "pillar", "k": COMPONENTS, "center": True}
    cells = product(sets, counts)
    found = best_of_each(work, {(d, p): {**how, "data": d, "count": counts[p]} for d, p in cells})
    rows: list[Sequence[Cell]] = [
        (
            f"{part:g}%",
            *PRINTED["pinto-public"].get(f"{part:g}", (None,) * 4),
            *(found[data, part] for data in sets),
        )
        for part in counts
    ]
    words = ("CIFAR-10, SL", "CIFAR-10, BYOL", "GTSRB, SL", "GTSRB, BYOL")
    columns = ("public rows", *(f"paper: {each}" for each in words), *(NAMES[d] for d in sets))
    lost = {data: found[data, 10].mean - found[data, 1].mean for data in sets}
    checks = [
        Check(
            "a tenth of the public rows costs little, at most about the paper's 1.3 points: "
            f"{NAMES[data]}",
            loss < 1.5,
            f"{loss:.1f} points from {counts[10]} public rows to {counts[1]}",
            paper=data == "cifar10",
        )
        for data, loss in lost.items()
    ]
    tables = [Table(columns, rows, f"ε = {epsilon:g}, {COMPONENTS} components")]
    figures = [
        Figure(
            "Test accuracy in per cent by public rows",
            "public rows",
            {
                NAMES[data]: (list(counts.values()), [found[data, part].mean for part in counts])
                for data in sets
            },
        )
    ]
    if not work.quick:
        table, more = _fewer(work, list(range(min(work.seeds, 3))))
        tables.append(table)
        checks += more
    return Finding(tables, checks, figures)


def _fewer(work: Work, runs: list[int]) -> tuple[Table, list[Check]]:
    """Figure 7: fewer private rows of CIFAR-100, and fewer public ones with them."""
    how: dict[str, Any] = {"data": "cifar100", "seeds": runs, "factors": FACTORS}
    ways: dict[str, dict[str, Any]] = {"DP-SGD": {"method": "dpsgd"}}
    ways["PILLAR"] = {"method": "pillar", "k": COMPONENTS, "center": True}
    settings = {
        (part, epsilon, way): {**how, "private": n, "epsilon": epsilon, **given}
        for part, n in PRIVATE.items()
        for epsilon in (0.1, 0.7)
        for way, given in ways.items()
    }
    found = best_of_each(work, settings)
    rows: list[Sequence[Cell]] = []
    gains = []
    for part, epsilon in product(PRIVATE, (0.1, 0.7)):
        printed = (7.53, 18.3) if (part, epsilon) == (10, 0.7) else (None, None)
        one, other = found[part, epsilon, "DP-SGD"], found[part, epsilon, "PILLAR"]
        rows.append((f"{part}%, ε = {epsilon:g}", *printed, one, other))
        gains.append(other.mean - one.mean)
    columns = ("private rows", "paper: DP-SGD", "paper: PILLAR", "DP-SGD", "PILLAR")
    check = Check(
        "with fewer private rows PILLAR is ahead of DP-SGD as well: CIFAR-100",
        min(gains) > 0,
        ", ".join(f"{gain:+.1f}" for gain in gains),
    )
    return Table(columns, rows, "CIFAR-100 with a part of its rows (Figure 7)"), [check]


def shift(work: Work) -> Finding:
    """Table III."""
    sources = {"cifar100": SOURCES["cifar100"][:2]} if work.quick else SOURCES
    few: dict[str, Any] = {"private": 6_000} if work.quick else {}
    epsilon, runs = (1.0 if work.quick else 0.1), list(range(min(work.seeds, 3)))
    how: dict[str, Any] = {"epsilon": epsilon, "seeds": runs, "factors": FACTORS, **few}
    how |= {"method": "pillar", "k": COMPONENTS, "center": True}
    plain = {**how, "method": "dpsgd", "k": None, "center": False}
    found: dict[tuple[str, str], Measured] = {}
    rows: list[Sequence[Cell]] = []
    for data, some in sources.items():
        given = [{"data": data, "source": source, "count": n} for source, n in some]
        tried = {(data, str(each["source"])): {**how, **each} for each in given}
        found |= best_of_each(work, {**tried, (data, "none"): {**plain, "data": data}})
        own = {"epsilon": epsilon, "seeds": runs, **few}
        defaults = [] if work.quick else work.map(ours, [{**own, **each} for each in given])
        for i, (source, _) in enumerate(some):
            printed = PRINTED["pinto-shift"].get(data, {}).get(source, (None, None))
            default = Measured.of(defaults[i]["accuracy"]) if defaults else None
            name = f"{NAMES[data]}, public rows of {NAMES[source]}"
            rows.append((name, *printed, found[data, source], default))
        if data == "cifar10":
            rows.append((f"{NAMES[data]}, public rows of CIFAR-10v1", 81.18, 73.24, None, None))
        rows.append((f"{NAMES[data]}, DP-SGD", None, None, found[data, "none"], None))
    moved = {
        (data, source): found[data, source].mean - found[data, data].mean
        for data, some in sources.items()
        for source, _ in some[1:]
    }
    checks = [
        Check(
            f"public rows of {NAMES[source]} do for {NAMES[data]}: within a point",
            change > -1,
            f"{change:+.1f} points",
            paper=source in PRINTED["pinto-shift"].get(data, {}),
        )
        for (data, source), change in moved.items()
    ]
    checks += [
        Check(
            f"better than none: public rows of {NAMES[source]} for {NAMES[data]}",
            found[data, source].mean > found[data, "none"].mean,
            f"{found[data, source].mean - found[data, 'none'].mean:+.1f} points on DP-SGD",
            paper=False,
        )
        for data, source in moved
    ]
    columns = ("rows", "paper: SL", "paper: BYOL", "PILLAR, k = 40", "recipe, not searched")
    table = Table(columns, rows, f"Test accuracy at ε = {epsilon:g}")
    return Finding([table], checks, runs=len(runs))


def separable(work: Work) -> Finding:
    """Figure 3."""
    sets = ("cifar10", "fashion_mnist") if work.quick else tuple(NAMES)[:4]
    few: dict[str, Any] = {"private": 4_000} if work.quick else {}
    pairs = PAIRS[: 2 if work.quick else None]
    cells = list(product(sets, RIDGES, pairs))
    runs = work.map(
        xi,
        [
            {"data": data, "pair": list(pair), "ks": list(XI_KS), "ridge": ridge, **few}
            for data, ridge, pair in cells
        ],
    )
    found: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for (data, ridge, _), each in zip(cells, runs, strict=True):
        found.setdefault((data, ridge), []).append(each)
    mean = {cell: np.mean([one["xi"] for one in some], axis=0) for cell, some in found.items()}
    at = XI_KS.index(COMPONENTS)
    rows = []
    for (data, ridge), some in found.items():
        d = some[0]["columns"]
        rows.append(
            (
                f"{NAMES[data]}, ridge {ridge:g}",
                *(round(float(mean[data, ridge][XI_KS.index(k)]), 3) for k in (10, 40, 160)),
                round(1 - (COMPONENTS / d) ** 0.5, 3),
                Measured.of([100 * one["separated"] for one in some]),
            )
        )
    features = [data for data in sets if data.startswith("cifar")]
    pixels = [data for data in sets if data.endswith("mnist")]
    ridge = RIDGES[0]
    worst = max(float(mean[data, ridge][at]) for data in features)
    least = min(float(mean[data, ridge][at]) for data in pixels)
    chance = 1 - (COMPONENTS / 1280) ** 0.5
    return Finding(
        tables=[
            Table(
                ("two classes of", "ξ, k = 10", "k = 40", "k = 160", "any direction", "separated"),
                rows,
                "Mean ξ over pairs of classes; ξ of a random direction at k = 40; rows on the "
                "right side in per cent. The paper prints curves only.",
            )
        ],
        checks=[
            Check(
                f"on features, the separator lies largely in few components: ξ < 1/2 at "
                f"k = {COMPONENTS}",
                worst < 0.5,
                f"ξ at most {worst:.2f}, where a random direction has {chance:.2f}",
            ),
            Check(
                f"features are better than pixels, of other and simpler pictures: ξ at "
                f"k = {COMPONENTS}",
                worst < least,
                f"at most {worst:.2f} on features, at least {least:.2f} on pixels",
                paper=False,
            ),
            Check(
                "how much depends on the separator: a stronger penalty makes ξ smaller",
                all(mean[data, RIDGES[1]][at] < mean[data, RIDGES[0]][at] for data in sets),
                ", ".join(
                    f"{NAMES[data]} {mean[data, RIDGES[0]][at]:.2f} to "
                    f"{mean[data, RIDGES[1]][at]:.2f}"
                    for data in sets
                ),
                paper=False,
            ),
        ],
        figures=[
            Figure(
                f"ξ by components (separator with ridge {RIDGES[0]:g})",
                "components",
                {NAMES[data]: (XI_KS, mean[data, ridge].round(4).tolist()) for data in sets},
            )
        ],
        runs=len(pairs),
    )
