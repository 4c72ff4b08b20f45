"""Li et al. 2022, Figure 1: what columns cost a private geometric median, by their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from tacit.research.median import DPGeometricMedian
from tacit.research.reproduce.claim import Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.li_walks import OCCUPIED, drawn, walked, weights_of
from tacit.research.reproduce.work import Work

BUDGET = (2.0, 1e-6)
EQUAL = "A = I"
DECAYS = {EQUAL: 0.0, "1/√k": 0.5, "1/k": 1.0}
OURS = {EQUAL: 0.0, "1/k": 1.0}
#: As the authors' published code has them: roots 3k where the paper has equal ones, 3/√k and 3/k.
PUBLISHED = {"roots 3k": -2.0, "roots 3/√k": 1.0, "roots 3/k": 2.0}
PULLS = (0.0, 0.03)
#: For one row a step, and for all rows: those of the published code.
RATES = {
    False: (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    True: (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0),
}
WAYS = {"one row a step": False, "all rows": True}
LOSSES = ("empirical", "population")
GROWS, FLAT, LESS, LEVEL = 0.05, 0.05, 5.0, 1.1


def ours(*, n: int, d: int, decay: float, rows: int, seed: int) -> dict[str, float]:
    """The same losses of Tacit's own estimator, which walks in columns times √aₖ and cuts."""
    data, weights = drawn(n, rows), weights_of(d, decay)
    table = np.zeros((n, d))
    table[:, :OCCUPIED] = data.rows
    found = DPGeometricMedian(
        *BUDGET, radius=1.0, weights=weights, neighbors="replace_one", random_state=seed
    ).fit(table)
    return {k: float(v[0]) for k, v in data.losses(found.location_[None], weights).items()}


def tuned(
    work: Work,
    n: int,
    columns: Sequence[int],
    powers: Mapping[str, float],
    *,
    whole: bool,
    scale: float = 1.0,
) -> dict[tuple[str, int], dict[str, Any]]:
    """For weights and columns, the steps, rate and pull of least loss on other rows."""
    count = {False: (n, 10 * n), True: (10, 40, 160, 640)}[whole]
    settings = [list(pair) for pair in product(RATES[whole], PULLS)]
    (seed,) = work.search_seeds(1)
    common = {"whole": whole, "n": n, "scale": scale, "budget": BUDGET, "rows": seed, "seed": seed}
    asked = {
        (name, d, steps): {**common, "d": d, "decay": power, "steps": steps, "settings": settings}
        for name, power in powers.items()
        for d in columns
        for steps in (count[-1:] if work.quick else count)
    }
    found = work.each(walked, asked)
    best: dict[tuple[str, int], tuple[float, dict[str, Any]]] = {}
    for (name, d, steps), losses in found.items():
        for setting, loss in zip(settings, losses, strict=True):
            known = best.get((name, d))
            if known is None or loss["population"] < known[0]:
                best[name, d] = (loss["population"], {"steps": steps, "settings": [setting]})
    return {
        (name, d): {**common, **how, "d": d, "decay": powers[name], "rows": work.first_seed}
        for (name, d), (_, how) in best.items()
    }


def measured(
    work: Work, settings: Mapping[tuple[str, int], Mapping[str, Any]]
) -> dict[tuple[str, int], dict[str, list[float]]]:
    """Losses of every run that is reported."""
    asked = {
        (*key, s): {**how, "seed": s} for key, how in settings.items() for s in work.run_seeds()
    }
    found = work.each(walked, asked)
    return {
        key: {
            loss: [found[*key, seed][0][loss] for seed in work.run_seeds()]
            for loss in (*LOSSES, *(f"excess {name}" for name in LOSSES))
        }
        for key in settings
    }


Found = Mapping[tuple[str, int], Mapping[str, Sequence[float]]]


def growth(found: Found, name: str, columns: Sequence[int], loss: str) -> float:
    """From the fewest columns to the most, relative to the loss there."""
    first, last = (float(np.mean(found[name, d][loss])) for d in (columns[0], columns[-1]))
    return last / first - 1


def medians(work: Work) -> Finding:
    """Algorithm 1 as printed, and on all rows (Remark 3.8); Tacit's own estimator beside them."""
    n = 100 if work.quick else 10_000
    columns = (10, 20, 50) if work.quick else (10, 30, 100, 300, 1_000)
    tables, checks, curves = [], [], {}
    for way, whole in WAYS.items():
        settings = tuned(work, n, columns, DECAYS, whole=whole)
        found = measured(work, settings)
        silent = {
            (EQUAL, d): {**settings[EQUAL, d], "budget": None} for d in (columns[0], columns[-1])
        }
        without = measured(work, silent)
        tables += [_table(found, loss, columns, way) for loss in (*LOSSES, "excess empirical")]
        tables.append(_chosen(settings, columns, way))
        checks += judged(found, without, columns, way)
        for name in DECAYS:
            means = [float(np.mean(found[name, d]["excess empirical"])) for d in columns]
            curves[f"{name}, {way}"] = ([float(d) for d in columns], means)
    few = columns[::2]
    published = measured(work, tuned(work, n, few, PUBLISHED, whole=True, scale=3.0))
    tables.append(_table(published, "empirical", few, "all rows, weights of the published code"))
    few = (columns[0], columns[-2])
    own = _ours(work, n, few)
    tables.append(_table(own, "excess empirical", few, "Tacit's estimator (ours)"))
    checks.append(
        Check.judge(
            "ours: Tacit's estimator, which leaves out columns that do not stand out of the noise, "
            "has an excess with weights 1/k that grows by less than 15%",
            lambda name: (
                growth(own, name, few, "excess empirical") < 0.15,
                f"{growth(own, name, few, 'excess empirical'):+.0%}",
            ),
            "1/k",
            null=EQUAL,
            without="equal weights",
            paper=False,
        )
    )
    return Finding(
        tables=tables,
        checks=checks,
        figures=[Figure("Excess of private medians", "columns", curves, log=True)],
    )


def judged(found: Found, without: Found, columns: Sequence[int], way: str) -> list[Check]:
    """What Figure 1 and the text beside it say, of one way to walk."""

    def grows(runs: Found) -> tuple[bool, str]:
        each = [growth(runs, EQUAL, columns, loss) for loss in LOSSES]
        return min(each) >= GROWS, " and ".join(f"{value:+.2%}" for value in each)

    def flat(name: str) -> tuple[bool, str]:
        each = [growth(found, name, columns, loss) for loss in LOSSES]
        equal = [growth(found, EQUAL, columns, loss) for loss in LOSSES]
        holds = all(a <= FLAT and LESS * a <= b for a, b in zip(each, equal, strict=True))
        return holds, " and ".join(
            f"{a:+.2%} (with equal weights {b:+.2%})" for a, b in zip(each, equal, strict=True)
        )

    def levels(name: str) -> tuple[bool, str]:
        before, last = (float(np.mean(found[name, d]["excess empirical"])) for d in columns[-2:])
        return last <= LEVEL * before, f"{last / before:.2f}-fold"

    wide = f"{columns[0]} to {columns[-1]:,} columns"
    checks = [
        Check.judge(
            f"{way}: with equal weights, empirical and population loss grow from {wide}, by "
            f"{GROWS:.0%} or more",
            grows,
            found,
            null=without,
            without="no noise",
        )
    ]
    for name in list(DECAYS)[1:]:
        checks += [
            Check.judge(
                f"{way}: with weights {name}, both stay almost constant: within {FLAT:.0%}, and "
                f"grow by no more than a fifth of what they do with equal weights",
                flat,
                name,
                null=EQUAL,
                without="equal weights",
            ),
            Check.judge(
                f"{way}: with weights {name}, the excess does not grow any more from "
                f"{columns[-2]:,} to {columns[-1]:,} columns, by {LEVEL - 1:.0%} at the most",
                levels,
                name,
                null=EQUAL,
                without="equal weights",
            ),
        ]
    return checks


def _ours(work: Work, n: int, columns: Sequence[int]) -> Found:
    seeds = work.run_seeds(min(work.seeds, 3))
    asked = {
        (name, d, seed): {"n": n, "d": d, "decay": power, "rows": work.first_seed, "seed": seed}
        for name, power in OURS.items()
        for d in columns
        for seed in seeds
    }
    found = work.each(ours, asked)
    return {
        (name, d): {
            loss: [found[name, d, seed][loss] for seed in seeds]
            for loss in found[name, d, work.first_seed]
        }
        for name in OURS
        for d in columns
    }


def _table(found: Found, loss: str, columns: Sequence[int], way: str) -> Table:
    excess = loss.startswith("excess")
    scale, digits = (1e6, 1) if excess else (1.0, 4)
    names = list(dict.fromkeys(name for name, _ in found))
    title = f"{way}: {'excess of the empirical' if excess else loss} loss"
    return Table(
        ("weights", *(f"{d:,} columns" for d in columns)),
        [
            (name, *(Measured.of(scale * np.array(found[name, d][loss]), digits) for d in columns))
            for name in names
        ],
        title + (", in 10⁻⁶" if excess else ""),
    )


def _chosen(
    settings: Mapping[tuple[str, int], Mapping[str, Any]], columns: Sequence[int], way: str
) -> Table:
    def told(how: Mapping[str, Any]) -> str:
        rate, pull = how["settings"][0]
        return f"{how['steps']:,}, {rate:g}, {pull:g}"

    return Table(
        ("weights", *(f"{d:,} columns" for d in columns)),
        [(name, *(told(settings[name, d]) for d in columns)) for name in DECAYS],
        f"{way}: steps, rate and pull, chosen on other rows with other noise",
    )
