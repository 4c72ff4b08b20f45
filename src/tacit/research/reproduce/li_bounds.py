"""Li et al. 2022, Theorems 3.3 and 3.5: their schedule, run against their bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.research.reproduce.claim import Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.li_walks import drawn, walk, weights_of
from tacit.research.reproduce.work import Work
from tacit.research.theory import decay as theory

EPSILON, DELTA = 8.0, 1e-5
ROWS = 200
SPEEDS = (0.75, 1.0, 1.5)  # c, of G_k = (k + 1)^−c ≤ G₀k^−c
EQUAL = 0.0
LEVEL = 1.1  # how much more the excess may be, from the last but one number of columns to the last
SLACK = 0.1  # of a power
CONSTANT = 2.0  # which the theorems do not state
KINDS = ("empirical", "population")


def scheduled(
    *, n: int, d: int, speeds: Sequence[float], rows: int, seed: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Excess of Algorithm 1 with each theorem's own steps, noise, rate and pull, and its bound.

    The instance is the median of section 4.1 with A = diag(k^−2c), for which G_k = (k + 1)^−c.
    Draws and noise are the same for all.
    """
    data = drawn(n, rows)
    distance = float(np.linalg.norm(data.centre))  # from the start, which is zero
    cases = [(kind, c) for kind in KINDS for c in speeds]
    weights = np.stack([weights_of(d, 2 * c) for _, c in cases])
    plans, bounds = [], []
    for (kind, _), each in zip(cases, weights, strict=True):
        coefficients = np.append(np.sqrt(each), 0.0)
        fresh = kind == "population"
        plan = theory.schedule(
            coefficients,
            n,
            epsilon=EPSILON,
            delta=DELTA,
            distance=distance,
            population=fresh,
            one_row=True,
        )
        bound = theory.risk(
            coefficients, n, epsilon=EPSILON, delta=DELTA, distance=distance, population=fresh
        )
        plans.append(plan)
        bounds.append(bound.value)
    found = walk(
        data,
        weights,
        whole=False,
        steps=plans[0].steps,
        rates=np.array([plan.learning_rate for plan in plans]),
        pulls=np.array([plan.anchor for plan in plans]),
        noise=plans[0].noise_multiplier,
        seed=seed,
    )
    excess, start = (data.losses(at, weights) for at in (found, np.zeros_like(found)))
    told: dict[str, dict[str, dict[str, float]]] = {kind: {} for kind in KINDS}
    for i, (kind, c) in enumerate(cases):
        told[kind][f"{c:g}"] = {
            "excess": float(excess[f"excess {kind}"][i]),
            "start": float(start[f"excess {kind}"][i]),
            "bound": bounds[i],
            "k": float(plans[i].k or 0),
        }
    return told


def empirical(work: Work) -> Finding:
    """Theorem 3.3."""
    return _against(work, "empirical")


def population(work: Work) -> Finding:
    """Theorem 3.5."""
    return _against(work, "population")


def _against(work: Work, kind: str) -> Finding:
    n = 20 if work.quick else ROWS
    columns = (10, 20) if work.quick else (10, 100, 1_000, 2_000)
    sizes = (10, 20) if work.quick else (50, 100, 200, 400)
    wide = columns[-1] if work.quick else 100
    seeds = work.run_seeds(min(work.seeds, 3))
    speeds = [EQUAL, *SPEEDS]
    common = {"speeds": speeds, "rows": work.first_seed}
    asked = {
        (m, d, seed): {**common, "n": m, "d": d, "seed": seed}
        for m, d in dict.fromkeys([*((n, d) for d in columns), *((m, wide) for m in sizes)])
        for seed in seeds
    }
    runs = {key: both[kind] for key, both in work.each(scheduled, asked).items()}

    def mean(c: float, m: int, d: int, what: str) -> float:
        return float(np.mean([runs[m, d, seed][f"{c:g}"][what] for seed in seeds]))

    def below(what: str) -> tuple[bool, str]:
        ratios = {
            c: max(mean(c, n, d, what) / mean(c, n, d, "bound") for d in columns) for c in speeds
        }
        return max(ratios.values()) <= CONSTANT, ", ".join(
            f"c = {c:g}: {r:.2f}" for c, r in ratios.items()
        )

    def level(chosen: Sequence[float]) -> tuple[bool, str]:
        more = {
            c: mean(c, n, columns[-1], "excess") / mean(c, n, columns[-2], "excess") for c in chosen
        }
        return max(more.values()) <= LEVEL, ", ".join(
            f"c = {c:g}: {value:.2f}-fold" for c, value in more.items()
        )

    def falls(what: str) -> tuple[bool, str]:
        powers = {
            c: float(
                np.polyfit(np.log(sizes), np.log([mean(c, m, wide, what) for m in sizes]), 1)[0]
            )
            for c in SPEEDS
        }
        holds = all(power <= -_power(c, kind) + SLACK for c, power in powers.items())
        return holds, ", ".join(
            f"c = {c:g}: n^{power:.2f} (at most n^{-_power(c, kind):.2f})"
            for c, power in powers.items()
        )

    theorem = {"empirical": "3.3", "population": "3.5"}[kind]

    def cell(c: float, d: int) -> str:
        excess = Measured.of([runs[n, d, seed][f"{c:g}"]["excess"] for seed in seeds], digits=4)
        return f"{excess}; {mean(c, n, d, 'bound'):.4f}, k = {mean(c, n, d, 'k'):.0f}"

    return Finding(
        tables=[
            Table(
                ("coefficients", *(f"{d:,} columns" for d in columns)),
                [(_named(c), *(cell(c, d) for d in columns)) for c in speeds],
                f"Excess {kind} loss; its bound and the best k; {n} rows",
            ),
            Table(
                ("coefficients", *(f"{m:,} rows" for m in sizes)),
                [
                    (
                        _named(c),
                        *(
                            f"{mean(c, m, wide, 'excess'):.4f}; {mean(c, m, wide, 'bound'):.4f}"
                            for m in sizes
                        ),
                    )
                    for c in speeds
                ],
                f"The same at {wide} columns, by rows",
            ),
        ],
        checks=[
            Check.judge(
                "for every c and every number of columns the excess is at most "
                f"{CONSTANT:g} times the bound",
                below,
                "excess",
                null="start",
                without="no step taken",
            ),
            Check.judge(
                f"with c above 1/2 the excess does not depend on the columns: from {columns[-2]:,} "
                f"to {columns[-1]:,} it grows by {LEVEL - 1:.0%} at the most",
                level,
                SPEEDS,
                null=(EQUAL,),
                without="equal coefficients",
            ),
            Check.judge(
                "with c above 1/2 it falls with the rows as fast as the bound or faster, to "
                f"{SLACK:g} of a power",
                falls,
                "excess",
                null="start",
                without="no step taken",
            ),
        ],
        figures=[
            Figure(
                f"Excess of the schedule of Theorem {theorem}, and its bound",
                "columns",
                {
                    f"{_named(c)}{', bound' if what == 'bound' else ''}": (
                        [float(d) for d in columns],
                        [mean(c, n, d, what) for d in columns],
                    )
                    for c in (EQUAL, 1.0)
                    for what in ("excess", "bound")
                },
                log=True,
            )
        ],
        runs=len(seeds),
    )


def _power(c: float, kind: str) -> float:
    """Of 1/n in (2); over fresh rows no more than 1/2, of the term G₀D/√n."""
    power = 2 * c / (1 + 2 * c)
    return min(power, 0.5) if kind == "population" else power


def _named(c: float) -> str:
    return f"(k + 1)^-{c:g}" if c else "equal"
