"""Pinto et al. 2024, Figures 4, 8 and 9, Table IX: how many components, and DP-RAFT behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, TypeVar

import numpy as np

from tacit.research.reproduce.claim import Cell, Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.pinto_fits import ours, private, public_descent
from tacit.research.reproduce.pinto_sets import NAMES
from tacit.research.reproduce.printed import PRINTED
from tacit.research.reproduce.work import Work

K = TypeVar("K")
FACTORS = [1.0, 0.5]  # of the automatic learning rate
COLUMNS = 1280
EPSILONS = (0.1, 0.3, 0.7)
KS = (20, 40, 80, 160, 320, 640, COLUMNS)
PUBLIC_KS = (20, 160, COLUMNS)
MNIST_KS = (20, 40, 80, 160, 320)
MNIST_EPSILONS = (0.1, 0.3, 0.7, 2.0)
RAFT_EPSILONS = (0.1, 0.7, 1.0)
RAFT_KS = (40, 100, 200, 400)


def best_of_each(work: Work, settings: Mapping[K, Mapping[str, Any]]) -> dict[K, Measured]:
    """Of factors × seeds of every setting, the factor with the best mean."""
    grids = work.each(private, settings)
    return {cell: Measured.of(max(grid, key=np.mean)) for cell, grid in grids.items()}


def dimension(work: Work) -> Finding:
    """Figure 4."""
    sets = ("cifar10",) if work.quick else ("cifar10", "cifar100")
    epsilons = (0.4,) if work.quick else EPSILONS
    ks, open_ks = ((20, 80, COLUMNS), (20, COLUMNS)) if work.quick else (KS, PUBLIC_KS)
    few: dict[str, Any] = {"private": 5_000} if work.quick else {}
    tables, checks, figures = [], [], []
    gains: dict[str, list[float]] = {}
    for data in sets:
        runs = list(range(min(work.seeds, 3 if data == "cifar10" else 2)))
        how = {"data": data, "method": "pillar", "seeds": runs, "factors": FACTORS, **few}
        found = best_of_each(
            work, {(eps, k): {**how, "epsilon": eps, "k": k} for eps, k in product(epsilons, ks)}
        )
        (plain,) = work.map(public_descent, [{"data": data, "ks": list(open_ks), **few}])
        known = dict(zip(open_ks, plain, strict=True))
        peak = {eps: max(ks, key=lambda k, eps=eps: found[eps, k].mean) for eps in epsilons}
        gains[data] = [found[eps, peak[eps]].mean - found[eps, COLUMNS].mean for eps in epsilons]
        tables += [
            Table(
                ("k", *(f"ε = {eps:g}" for eps in epsilons), "no privacy"),
                [(f"{k}", *(found[eps, k] for eps in epsilons), known.get(k)) for k in ks],
                f"{NAMES[data]}: test accuracy in the first k public components",
            ),
            Table(
                ("ε", "paper: best k", "paper: none", "paper: gain", "best k here", "gain"),
                [
                    _gained(data, eps, peak[eps], gain)
                    for eps, gain in zip(epsilons, gains[data], strict=True)
                ],
                f"{NAMES[data]}: what projection gains",
            ),
        ]
        curves = {f"ε = {eps:g}": (ks, [found[eps, k].mean for k in ks]) for eps in epsilons} | {
            "no privacy": (open_ks, plain)
        }
        figures.append(Figure(f"Test accuracy in per cent, {NAMES[data]}", "components", curves))
        errors = [found[eps, peak[eps]].error_beside(found[eps, COLUMNS]) for eps in epsilons]
        checks += [
            Check(
                f"private accuracy is best in few components: {NAMES[data]}",
                min(gains[data]) > 0,
                ", ".join(
                    f"ε = {eps:g}: {gain:+.1f} ± {error:.1f} with k = {peak[eps]}"
                    for eps, gain, error in zip(epsilons, gains[data], errors, strict=True)
                ),
            ),
            Check(
                f"without privacy, fewer components are no better: {NAMES[data]}",
                known[COLUMNS] >= max(plain) - 0.5 and known[open_ks[0]] < known[COLUMNS] - 1,
                f"{known[open_ks[0]]:.1f} with {open_ks[0]}, {known[COLUMNS]:.1f} with all",
            ),
        ]
        if len(epsilons) > 1:
            checks.append(
                Check(
                    f"the tighter the budget, the more is gained: {NAMES[data]}",
                    all(a > b for a, b in pairwise(gains[data])),
                    ", ".join(f"{gain:+.1f}" for gain in gains[data]),
                )
            )
    return Finding(tables, checks, figures, runs=min(work.seeds, 3))


def _gained(data: str, epsilon: float, peak: int, gain: float) -> Sequence[Cell]:
    printed: tuple[Cell, ...] = (None, None, None)
    if epsilon in EPSILONS:  # Table II: PILLAR at its best k, and DP-SGD without projection
        found = PRINTED["pinto-methods"][data]
        best_k, plain = (found[way][EPSILONS.index(epsilon)] for way in ("pillar", "dpsgd"))
        printed = (best_k, plain, round(best_k - plain, 1))
    return (f"{epsilon:g}", *printed, f"{peak}", round(gain, 1))


def mnist(work: Work) -> Finding:
    """Figures 8 (a) and 9 (a): pixels."""
    epsilons = (0.1, 2.0) if work.quick else MNIST_EPSILONS
    ks = (20, 160) if work.quick else MNIST_KS
    runs = list(range(min(work.seeds, 3)))
    few: dict[str, Any] = {"private": 6_000} if work.quick else {}
    how = {"data": "mnist", "seeds": runs, "factors": FACTORS, **few}
    pillar = {**how, "method": "pillar", "center": True}
    found = best_of_each(
        work, {(eps, k): {**pillar, "epsilon": eps, "k": k} for eps, k in product(epsilons, ks)}
    )
    dpsgd = {eps: {**how, "method": "dpsgd", "epsilon": eps} for eps in epsilons}
    plain = list(best_of_each(work, dpsgd).values())
    default = [{"data": "mnist", "epsilon": eps, "seeds": runs, **few} for eps in epsilons]
    own = work.map(ours, default)
    peak = [max(ks, key=lambda k, eps=eps: found[eps, k].mean) for eps in epsilons]
    top = [found[eps, k] for eps, k in zip(epsilons, peak, strict=True)]
    gains = [one.mean - other.mean for one, other in zip(top, plain, strict=True)]
    chosen = [each["components"] for each in own]
    rows: list[Sequence[Cell]] = [
        (
            f"{eps:g}",
            plain[i],
            top[i],
            f"{peak[i]}",
            Measured.of(own[i]["accuracy"]),
            f"{chosen[i]}",
        )
        for i, eps in enumerate(epsilons)
    ]
    words = ("ε", "DP-SGD", "PILLAR", "best k", "Tacit's recipe, not searched", "k it chose")
    by_k: list[Sequence[Cell]] = [(f"{k}", *(found[eps, k] for eps in epsilons)) for k in ks]
    return Finding(
        tables=[
            Table(words, rows, "Test accuracy on MNIST pixels; the paper prints curves only"),
            Table(("k", *(f"ε = {eps:g}" for eps in epsilons)), by_k, "PILLAR by components"),
        ],
        checks=[
            Check(
                "PILLAR is ahead of DP-SGD at every ε",
                min(gains) > 0,
                ", ".join(f"{g:+.1f} at ε = {e:g}" for e, g in zip(epsilons, gains, strict=True)),
            ),
            Check(
                "the gain is larger for smaller ε",
                gains[0] > gains[-1],
                f"{gains[0]:+.1f} at ε = {epsilons[0]:g}, {gains[-1]:+.1f} at {epsilons[-1]:g}",
            ),
            Check(
                "the best number of components grows with ε",
                all(a <= b for a, b in pairwise(peak)) and peak[0] < peak[-1],
                ", ".join(map(str, peak)),
            ),
            Check(
                "so does the number that Tacit chooses from public facts",
                all(a < b for a, b in pairwise(chosen)),
                ", ".join(map(str, chosen)),
                paper=False,
            ),
        ],
        figures=[
            Figure(
                "Test accuracy in per cent, MNIST pixels (Figure 8a)",
                "ε",
                {
                    "DP-SGD": (epsilons, [each.mean for each in plain]),
                    "PILLAR": (epsilons, [each.mean for each in top]),
                },
            ),
            Figure(
                "Components (Figure 9a)",
                "ε",
                {"best of the grid": (epsilons, peak), "chosen by Tacit": (epsilons, chosen)},
            ),
        ],
        runs=len(runs),
    )


def raft(work: Work) -> Finding:
    """Table IX."""
    epsilons = (1.0,) if work.quick else RAFT_EPSILONS
    ks = (100,) if work.quick else RAFT_KS
    n = 4_000 if work.quick else 45_000
    part = 1 if work.quick else 5
    few: dict[str, Any] = {"private": n // part} if n // part < 45_000 else {}
    whole: dict[str, Any] = {"private": n} if work.quick else {}
    factors = [2.0, 1.0]
    runs = list(range(min(work.seeds, 2)))
    ways: dict[str, Iterable[dict[str, Any]]] = {
        "dp-raft": [{"method": "dp-raft"}],
        "dp-raft+pillar": [{"method": "dp-raft+pillar", "k": k, "center": True} for k in ks],
        "about zero": [{"method": "dp-raft+pillar", "k": k} for k in ks],
    }
    if work.quick:
        del ways["about zero"]
    names = {
        "dp-raft": "DP-RAFT",
        "dp-raft+pillar": "DP-RAFT + PILLAR",
        "about zero": "the same about zero",
    }
    how: dict[str, Any] = {"data": "cifar100", "steps": 30 if work.quick else 50}
    cells = [(way, eps, each) for way, some in ways.items() for eps in epsilons for each in some]
    tried = [
        {**how, **few, **each, "epsilon": part * eps, "seeds": [100], "factors": factors}
        for _, eps, each in cells
    ]
    grids = work.map(private, tried)
    chosen: dict[tuple[str, float], tuple[float, dict[str, Any]]] = {}
    for (way, eps, each), grid in zip(cells, grids, strict=True):
        for factor, (score,) in zip(factors, grid, strict=True):
            if score > chosen.get((way, eps), (-1.0, {}))[0]:
                chosen[way, eps] = score, {**each, "epsilon": eps, "factors": [factor]}
    settings = {at: {**how, **whole, **it, "seeds": runs} for at, (_, it) in chosen.items()}
    found = best_of_each(work, settings)
    rows = []
    for way in ways:
        printed = dict(zip(RAFT_EPSILONS, PRINTED["pinto-raft"].get(way, ()), strict=False))
        row: list[Cell] = [names[way]]
        for eps in epsilons:
            k = chosen[way, eps][1].get("k")
            row += [printed.get(eps), found[way, eps], "–" if k is None else f"{k}"]
        rows.append(row)
    columns = ["method"]
    for eps in epsilons:
        columns += [f"ε = {eps:g}, paper", f"ε = {eps:g}, here", "k"]
    plain = [found["dp-raft", eps].mean for eps in epsilons]
    gains = {
        way: [found[way, eps].mean - mean for eps, mean in zip(epsilons, plain, strict=True)]
        for way in list(ways)[1:]
    }
    checks = [
        Check(f"PILLAR improves DP-RAFT at ε = {eps:g}", gain > 0, f"{gain:+.1f} points")
        for eps, gain in zip(epsilons, gains["dp-raft+pillar"], strict=True)
    ]
    if not work.quick:
        zero = gains["about zero"]
        checks.append(
            Check(
                "with components about zero, as in Algorithm 1, it does so as well",
                min(zero) > 0,
                ", ".join(f"{gain:+.1f}" for gain in zero) + " points",
                paper=False,
            )
        )
    return Finding(
        tables=[Table(columns, rows, "CIFAR-100: test accuracy in per cent")],
        checks=checks,
        figures=[
            Figure(
                "Test accuracy in per cent, CIFAR-100",
                "ε",
                {
                    name: (epsilons, [found[way, eps].mean for eps in epsilons])
                    for way, name in (("dp-raft", "DP-RAFT"), ("dp-raft+pillar", "with PILLAR"))
                },
            )
        ],
        runs=len(runs),
    )
