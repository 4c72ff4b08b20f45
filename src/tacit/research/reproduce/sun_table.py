"""Sun et al. 2024, Tables 1 and 2: what centring gains, and how tightly features lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from tacit.research.reproduce.claim import Cell, Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.printed import PRINTED
from tacit.research.reproduce.sun_fits import (
    as_in_the_paper,
    by_default,
    random_directions,
    spread,
    without_privacy,
)
from tacit.research.reproduce.together import next_rate
from tacit.research.reproduce.work import Work

Arms: TypeAlias = dict[tuple[str, float], tuple[Measured, Measured]]  # by data set and ε
Gains: TypeAlias = dict[tuple[str, float], float]

SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar100": "CIFAR-100 features"}
METHODS = ("DPSGD", "DPSGD-F")

EPSILONS = (1.0, 2.0)
#: What default settings should reach: at least the paper's best, nothing unaccounted.
TARGETS = {"mnist": {1.0: 92.0, 2.0: 92.3}, "fashion_mnist": {1.0: 84.5, 2.0: 85.0}}
TABLE1, TABLE2 = PRINTED["sun-table1"], PRINTED["sun-table2"]

#: A part of the grid of appendix C, where the best settings were found to lie: norms C_F of the
#: rows, batches, epochs and rates.
GRID: dict[str, Sequence[tuple[int, int, int, list[float]]]] = {
    "pixels": (
        (10, 1024, 20, [2.0, 4.0, 8.0]),
        (10, 4096, 20, [4.0, 8.0, 16.0]),
        (100, 4096, 20, [0.5, 1.0, 2.0]),
    ),
    "cifar100": ((100, 16_384, 20, [2.0, 4.0, 8.0]),),
    "quick": ((100, 750, 10, [0.5, 1.0]),),
}
MEAN = 0.05  # ε_F: at 0.02 or 0.05 the paper was best
FURTHER = 3  # rates beyond those of the grid, where the best is the largest or the smallest
FINALISTS, SEARCHES = 3, 3  # settings that are run again, and runs of each of these


def _settings(grid: str, method: str) -> Iterator[dict[str, Any]]:
    for norm, batch, epochs, rates in GRID[grid]:
        mean = MEAN if method == "DPSGD-F" else 0.0
        how = {"norm": norm, "batch": batch, "epochs": epochs, "mean_epsilon": mean}
        yield {**how, "rates": rates}


def _search(work: Work, common: Mapping[str, Any], method: str) -> dict[str, Any]:
    """The best setting by rows that are held out: all of the grid once, the best several times."""
    grid = "quick" if work.quick else "cifar100" if common["data"] == "cifar100" else "pixels"
    first, *others = work.search_seeds(1 if work.quick else 2 if grid == "cifar100" else SEARCHES)
    settings = list(_settings(grid, method))
    searched = {**common, "searching": True}

    def once(some: Sequence[Mapping[str, Any]]) -> list[list[float]]:
        return work.map(as_in_the_paper, [{**searched, **how, "seed": first} for how in some])

    found = once(settings)
    for _ in range(0 if work.quick else FURTHER):
        ends = [next_rate(how["rates"], got) for how, got in zip(settings, found, strict=True)]
        left = {i: rate for i, rate in enumerate(ends) if rate is not None}
        if not left:
            break
        more = once([{**settings[i], "rates": [rate]} for i, rate in left.items()])
        for (i, rate), got in zip(left.items(), more, strict=True):
            settings[i] = {**settings[i], "rates": [*settings[i]["rates"], rate]}
            found[i] = [*found[i], *got]
    options = [
        (score, i, rate)
        for i, (how, scores) in enumerate(zip(settings, found, strict=True))
        for rate, score in zip(how["rates"], scores, strict=True)
    ]
    finalists = sorted(options, reverse=True)[: FINALISTS if others else 1]
    again = [
        {**searched, **settings[i], "rates": [rate], "seed": seed}
        for _, i, rate in finalists
        for seed in others
    ]
    rest = np.reshape(work.map(as_in_the_paper, again), (len(finalists), -1))
    means = [np.mean([score, *each]) for (score, _, _), each in zip(finalists, rest, strict=True)]
    _, i, rate = finalists[int(np.argmax(means))]
    return {**settings[i], "rates": [rate]}


def _described(how: Mapping[str, Any]) -> str:
    mean = f", ε_F {how['mean_epsilon']:g}" if how["mean_epsilon"] else ""
    batch = f"batches of {how['batch']:,}, {how['epochs']} epochs"
    return f"C_F {how['norm']}, rate {how['rates'][0]:g}, {batch}{mean}"


def accuracy(work: Work) -> Finding:
    """Table 1."""
    names = [name for name in SETS if not (work.quick and name == "cifar100")]
    rows = 3000 if work.quick else None
    table: list[Sequence[Cell]] = []
    arms: Arms = {}
    same: Arms = {}  # DPSGD in both arms
    ours: dict[tuple[str, float], Measured] = {}
    public: dict[str, float] = {}
    for name in names:
        # CIFAR-100 has 16 times the products of the others: fewer runs, in float32.
        large = name == "cifar100"
        runs = min(work.seeds, 3) if large else work.seeds
        for at, epsilon in enumerate(EPSILONS[: 1 if work.quick else None]):
            common = {"data": name, "rows": rows, "epsilon": epsilon}
            chosen = {method: _search(work, common, method) for method in METHODS}
            found = {
                method: np.ravel(
                    work.map(
                        as_in_the_paper,
                        [{**common, **how, "seed": seed} for seed in work.run_seeds(count)],
                    )
                )
                # DPSGD twice as often: once more as what it is compared with where nothing differs.
                for (method, how), count in zip(chosen.items(), (2 * runs, runs), strict=True)
            }
            without, again = (Measured.of(part) for part in np.split(found["DPSGD"], 2))
            centred = Measured.of(found["DPSGD-F"])
            arms[name, epsilon], same[name, epsilon] = (without, centred), (without, again)
            how = {**common, "arithmetic": "fast" if large else "exact"}
            seeds = work.run_seeds(min(runs, 2) if large else runs)
            mine = Measured.of(work.map(by_default, [{**how, "seed": seed} for seed in seeds]))
            ours[name, epsilon] = mine
            for method, paper, measured in zip(
                METHODS, TABLE1[name][at], (without, centred), strict=True
            ):
                last = mine if method == "DPSGD-F" else None
                label = f"{SETS[name]}, ε = {epsilon:g}, {method}"
                table.append((label, paper, measured, _described(chosen[method]), last))
        (plain,) = work.map(without_privacy, [{"data": name, "rows": rows}])
        printed = PRINTED["sun-table1-without-privacy"][name]
        public[name] = plain["accuracy"]
        steps = f"{plain['iterations']} steps of L-BFGS"
        label = f"{SETS[name]}, without privacy"
        table.append((label, printed, round(public[name], 1), steps, None))
    printed_gains = {(name, e): _gain(*TABLE1[name][EPSILONS.index(e)]) for name, e in arms}
    other = "DPSGD in both arms, with other noise"
    checks = [
        Check.judge(
            "DPSGD-F is ahead of DPSGD on every set and at every ε, by more than two standard "
            "errors",
            _leads,
            arms,
            null=same,
            without=other,
            changed="2026-11-18: a lead counts beyond two standard errors, not beyond zero; "
            "settings are chosen on held-out training rows over several seeds, not on test rows; "
            "rates of CIFAR-100 are 2, 4 and 8, as 4 was best of 1, 2 and 4",
        ),
        Check.judge(
            "and by as much as printed, to within half of that",
            lambda found: _as_printed(found, printed_gains),
            arms,
            null=same,
            without=other,
        ),
        Check.judge(
            "the nearer rows lie to their mean, the more it gains: Fashion-MNIST before MNIST"
            + (" before CIFAR-100" if "cifar100" in names else "")
            + " (appendix C), by more than two standard errors",
            _ordered,
            arms,
            null=same,
            without=other,
            changed="2026-11-18: an order counts beyond two standard errors, not beyond zero",
        ),
    ]
    if not work.quick:
        checks.append(
            Check.judge(
                "without privacy MNIST and Fashion-MNIST have what is printed, to a point",
                _as_public,
                public,
                null={name: 10.0 for name in public},
                without="a guess",
            )
        )
    for (name, epsilon), mine in ours.items():
        if name in TARGETS and not work.quick:
            target = TARGETS[name][epsilon]
            checks.append(
                Check.judge(
                    f"default settings reach {target} on {SETS[name]} at ε = {epsilon:g}",
                    partial(_reached, target=target),
                    mine,
                    null=arms[name, epsilon][0],
                    without="DPSGD, best of the grid",
                    paper=False,
                )
            )
    gains = _gains(arms)
    return Finding(
        tables=[
            Table(
                (
                    "test accuracy",
                    "paper (search not accounted)",
                    "as in the paper (search not accounted)",
                    "chosen on held-out training rows",
                    "ours: default settings, all accounted",
                ),
                table,
            )
        ],
        checks=checks,
        figures=[
            Figure(
                "What DPSGD-F gains over DPSGD, in points, at ε = 1",
                "mean distance to the mean (Table 2)",
                {
                    "paper": _curve(names, printed_gains),
                    "as in the paper, here": _curve(names, gains),
                },
            )
        ],
    )


def _reached(accuracy: Measured, target: float) -> tuple[bool, str]:
    return round(accuracy.mean, 1) >= target, f"{accuracy}"


def _gains(arms: Arms) -> Gains:
    return {at: centred.mean - without.mean for at, (without, centred) in arms.items()}


def _leads(arms: Arms) -> tuple[bool, str]:
    gains = _gains(arms)
    errors = {at: one.error_beside(other) for at, (one, other) in arms.items()}
    shown = ", ".join(
        f"{SETS[name]} ε={e:g}: {gain:+.1f} ± {errors[name, e]:.1f}"
        for (name, e), gain in gains.items()
    )
    return all(gain > 2 * errors[at] for at, gain in gains.items()), shown


def _as_printed(arms: Arms, printed: Gains) -> tuple[bool, str]:
    gains = _gains(arms)
    near = all(abs(gains[at] - printed[at]) <= printed[at] / 2 for at in gains)
    return near, f"{_signed(gains)}; printed {_signed(printed)}"


def _ordered(arms: Arms) -> tuple[bool, str]:
    """Whether gains at ε = 1 fall from the set whose rows lie nearest to their mean."""
    gains = {at: gain for at, gain in _gains(arms).items() if at[1] == 1.0}
    names = [name for name in ("fashion_mnist", "mnist", "cifar100") if (name, 1.0) in gains]
    squares = {name: arms[name, 1.0][0].error_beside(arms[name, 1.0][1]) ** 2 for name in names}
    falls = all(
        gains[near, 1.0] - gains[far, 1.0] > 2 * (squares[near] + squares[far]) ** 0.5
        for near, far in pairwise(names)
    )
    return falls, _signed(gains)


def _as_public(found: Mapping[str, float]) -> tuple[bool, str]:
    pixels = [name for name in found if name != "cifar100"]  # whose features are not the paper's
    printed = {name: float(PRINTED["sun-table1-without-privacy"][name][:4]) for name in pixels}
    near = all(abs(found[name] - printed[name]) <= 1 for name in pixels)
    return near, ", ".join(f"{found[name]:.1f}, printed {printed[name]}" for name in pixels)


def _gain(without: str, with_it: str) -> float:
    return round(float(with_it[:4]) - float(without[:4]), 1)


def _signed(gains: Gains) -> str:
    return ", ".join(f"{SETS[name]} ε={e:g}: {gain:+.1f}" for (name, e), gain in gains.items())


def _curve(names: list[str], gains: Gains) -> tuple[list[float], list[float]]:
    placed = sorted((TABLE2[name][2], gains[name, 1.0]) for name in names)
    return [x for x, _ in placed], [y for _, y in placed]


# --- Table 2 ----------------------------------------------------------------------------------


def concentrated(work: Work) -> Finding:
    """Table 2."""
    rows = 4000 if work.quick else None
    names = [name for name in TABLE2 if not (work.quick and name == "cifar100")]
    found = work.each(spread, {name: {"data": name, "rows": rows} for name in names})
    columns = {"cifar100": 1280, "mnist": 784, "fashion_mnist": 784}
    nowhere = work.each(
        random_directions,
        {
            name: {"rows": 4000, "columns": columns[name], "seed": work.first_seed + i}
            for i, name in enumerate(names)
        },
    )
    what = ("diameter", "largest distance to the mean", "mean distance to the mean")
    table: list[Sequence[Cell]] = [
        (f"{SETS[name]}: {label}", paper, round(value, 3))
        for name in names
        for label, paper, value in zip(what, TABLE2[name], found[name]["values"], strict=True)
    ]
    values = {name: found[name]["values"] for name in names}
    random = "rows of random directions"
    return Finding(
        tables=[Table(("rows of unit norm", "paper", "ours"), table)],
        checks=[
            Check.judge(
                "MNIST and Fashion-MNIST have the distances printed, to 0.02",
                _near_printed,
                values,
                null=nowhere,
                without=random,
            ),
            Check.judge(
                "by their mean distance, sets come in the order of the gains that Table 1 prints, "
                "at least 0.02 apart",
                _by_distance,
                {name: each[2] for name, each in values.items()},
                null={name: each[2] for name, each in nowhere.items()},
                without=random,
                changed="2026-11-18: the order asks for 0.02 between sets, so that ties are none",
            ),
            Check.judge(
                "their diameters do not tell MNIST from Fashion-MNIST, to two digits",
                lambda sizes: (
                    round(sizes["mnist"], 2) == round(sizes["fashion_mnist"], 2),
                    ", ".join(f"{SETS[name]} {sizes[name]:.4f}" for name in names),
                ),
                {name: each[0] for name, each in values.items()},
                null={name: each[2] for name, each in values.items()},
                without="mean distances in the place of diameters",
            ),
            Check.judge(
                "diameters are exact, over all pairs",
                lambda most: (most < 1e-6, f"bounds from above and below differ by {most:.1g}"),
                max(found[name]["at most"] - each[0] for name, each in values.items()),
                null=max(2 * each[1] - each[0] for each in values.values()),
                without="twice the largest distance to the mean, which bounds them as well",
                paper=False,
                changed="2026-11-18: it had no null",
            ),
        ],
        figures=[
            Figure(
                "Share of rows within a distance of the mean",
                "distance",
                {SETS[name]: (found[name]["quantiles"], found[name]["shares"]) for name in names},
            )
        ],
        runs=1,
    )


def _near_printed(values: Mapping[str, Sequence[float]]) -> tuple[bool, str]:
    off = {
        name: max(abs(a - b) for a, b in zip(values[name], TABLE2[name], strict=True))
        for name in ("mnist", "fashion_mnist")
    }
    shown = ", ".join(f"{SETS[name]}: at most {most:.3f} off" for name, most in off.items())
    return max(off.values()) <= 0.02, shown


def _by_distance(means: Mapping[str, float]) -> tuple[bool, str]:
    names = [name for name in ("fashion_mnist", "mnist", "cifar100") if name in means]
    apart = all(means[far] - means[near] >= 0.02 for near, far in pairwise(names))
    return apart, ", ".join(f"{SETS[name]} {means[name]:.2f}" for name in names)
