"""Song et al. 2021, Theorem 3.3: what no private algorithm avoids, beside what descent attains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from tacit.research.instances import fingerprinting
from tacit.research.reproduce.claim import Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.song_runs import (
    FULL_RANK,
    UNTRAINED,
    above,
    below,
    descend,
    fresh,
    least,
    left_over,
    no_matter,
    over_instances,
    pooled,
    power,
    same_part,
    unchanged,
)
from tacit.research.reproduce.work import Work
from tacit.research.theory import descent, lower

EPSILON, DELTA = 1 / 21, 1e-8  # the largest ε of Corollary B.4
SLOWER = (1.0, 0.1, 0.01, 0.001)  # times the rate of Theorem 3.1, on the rows of the proof


def codes(
    *, n: int, steps: int, rank: int, columns: int, active: bool, times: float, seed: int
) -> dict[str, Any]:
    """Excess of private descent on fingerprinting rows; ``active``: none of them is zero.

    As many columns are mostly ones as mostly zeros: without that, weights of zero would be right by
    chance where columns are few.
    """
    where = fresh(seed, n, rank, columns, active)
    half = np.random.default_rng(where).beta(1 / 80, 1 / 80, size=rank // 2)
    made = fingerprinting(
        n,
        rank,
        epsilon=EPSILON,
        columns=columns,
        means=np.concatenate([half, 1 - half]),
        active=1.0 if active else None,
        seed=where,
    )
    plan = descent.schedule(
        n,
        rank,
        epsilon=EPSILON,
        delta=DELTA,
        norm=math.sqrt(rank),
        neighbors="replace_one",
        steps=steps,
    )
    found = descend(
        made,
        steps=plan.steps,
        rate=times * plan.learning_rate,
        noise=plan.noise_multiplier,
        runs=1,
        seed=fresh(where, 1),
        sparse=True,
    )
    excess = [made.excess(weights) for weights in found]
    return {
        "excess": excess,
        "zero": made.excess(np.zeros(columns)),
        "best": made.excess(made.optimum),
        "population": made.facts["population"](found[0]),
        "known": made.facts["population"](made.facts["means"]),
    }


def fingerprinting_lemma(bits: int, spread: float, seed: int) -> float:
    """Lemma B.2 for a random function of so many bits: largest of its gaps, in its size.

    P is from Beta(spread, spread), where the lemma has β = 1/80 on both sides. Expectations are
    sums over all bits of moments of P.
    """
    rng, beta = np.random.default_rng(seed), 1 / 80
    left, middle, right, size = 0.0, 0.0, 0.0, 0.0
    for code in range(2**bits):
        value, ones = rng.normal(), code.bit_count()

        def moment(k: int, ones: int = ones) -> float:
            """E[P^k · P^ones · (1 − P)^(bits − ones)]."""
            above_ = special.beta(spread + ones + k, spread + bits - ones)
            return float(above_ / special.beta(spread, spread))

        left += value * (ones * moment(0) - bits * moment(1))
        middle += 2 * beta * value * (moment(1) - moment(0) / 2)
        centred = moment(2) - moment(1) + moment(0) / 4  # of (P − 1/2)²
        missed = moment(2) - 2 * value * moment(1) + value**2 * moment(0)  # of (f − P)²
        right += beta * ((value - 0.5) ** 2 * moment(0) + centred - missed)
        size += abs(value) * moment(0)
    return float(max(abs(left - middle), abs(middle - right)) / size)


def closeness_lemma(pairs: int, with_delta: bool, seed: int) -> float:
    """Lemma B.3 for random pairs of distributions: |E U − E V| at most, in units of its bound."""
    rng = np.random.default_rng(seed)
    at, worst = np.linspace(-1, 1, 9), 0.0
    for _ in range(pairs):
        u, v = rng.dirichlet(np.full(9, 0.3), size=2)
        grown = math.exp(rng.uniform(0.01, 2.0))
        delta = max(np.maximum(a - grown * b, 0).sum() for a, b in ((u, v), (v, u)))
        bound = (grown - 1) * (u @ np.abs(at)) + 2 * delta * with_delta
        worst = max(worst, abs((u - v) @ at) / bound)
    return float(worst)


def lower_bound(work: Work) -> Finding:
    """Theorem 3.3: more rank, more error, for everybody."""
    n, steps = (2_000, 200) if work.quick else (6_000, 1_000)
    ranks, few, many = ((2, 4), 16, 64) if work.quick else ((2, 4, 8), 8, 64)
    middle, size = ranks[-1], {"n": n, "steps": steps}
    places = [(rank, many, True) for rank in ranks]
    places += [(middle, few, True), (many, many, True)]
    places += [(rank, many, False) for rank in ranks]
    (search,) = work.search_seeds(1)
    tries = {
        (rank, times): {**size, "rank": rank, "columns": many, "active": False, "times": times}
        for rank in ranks
        for times in SLOWER
    }
    tried = work.each(codes, {at: {**given, "seed": search} for at, given in tries.items()})
    best = {r: least(SLOWER, [tried[r, t]["excess"] for t in SLOWER]) for r in ranks}
    settings = [
        {**size, "rank": r, "columns": p, "active": active, "times": 1.0 if active else best[r]}
        for r, p, active in places
    ]
    each = dict(zip(places, over_instances(work, codes, settings, 2), strict=True))
    found = {at: pooled(each[at], "excess", 5) for at in places}
    zero = {at: pooled(each[at], "zero", 5) for at in places}
    given: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "neighbors": "replace_one"}
    floor = {rank: lower.risk(n, rank, **given).value for rank in (*ranks, many)}
    upper = {
        rank: descent.risk(n, rank, **given, norm=math.sqrt(rank), steps=steps).value
        for rank in (*ranks, many)
    }
    fresh_floor = {rank: lower.population_risk(n, rank, **given).value for rank in ranks}
    lemma = {"bits": 4, "seed": work.first_seed}
    exact, wrong = work.map(
        fingerprinting_lemma, [{**lemma, "spread": 1 / 80}, {**lemma, "spread": 1.0}]
    )
    close, closer = work.map(
        closeness_lemma,
        [{"pairs": 2_000, "with_delta": way, "seed": work.first_seed} for way in (True, False)],
    )
    learnt = [(rank, many, True) for rank in ranks]
    proof = [(rank, many, False) for rank in ranks]

    arms = [
        {**size, "rank": middle, "columns": p, "active": True, "times": 1.0} for p in (few, many)
    ]
    part = [*same_part(work, codes, arms), left_over(each[many, many, True])]

    def helps(pairs: Sequence[tuple[Measured, Measured]]) -> tuple[bool, str]:
        leads = [(other.mean - mine.mean, mine.error_beside(other)) for mine, other in pairs]
        text = ", ".join(f"{lead:+.4f} ± {error:.4f}" for lead, error in leads)
        return all(lead > 2 * error for lead, error in leads), text

    def grows(means: Sequence[Measured]) -> tuple[bool, str]:
        slope, error = power(ranks, means)
        return slope - 2 * error > 0.7, f"as rank^({slope:.2f} ± {error:.2f})"

    def equal(gap: float) -> tuple[bool, str]:
        return gap < 1e-9, f"sides at most {gap:.1g} apart"

    def at_most(part: float) -> tuple[bool, str]:
        return part <= 1 + 1e-12, f"at most {part:.2f} of its bound"

    def rows_of(which: Sequence[tuple[int, int, bool]]) -> list[tuple[Any, ...]]:
        return [
            (f"rank {r}, {p} columns", zero[r, p, a], f"{floor[r]:.2g}", found[r, p, a], upper[r])
            for r, p, a in which
        ]

    heads = ("rows", "zero weights", "paper: at least", "private descent", "at most, Theorem 3.1")
    about = f"Excess empirical risk, {n:,} rows, ε = 1/21, δ = {DELTA:g}, rows replaced"
    everywhere = [*learnt, *proof]
    return Finding(
        tables=[
            Table(heads, rows_of(places[: len(ranks) + 2]), f"{about}; no row is zero"),
            Table(heads, rows_of(proof), f"{about}; the proof's rows, most of which are zero"),
        ],
        checks=[
            Check.judge(
                "no error is below the bound",
                above,
                [(found[at], floor[at[0]]) for at in everywhere],
                null=[(pooled(each[at], "best"), floor[at[0]]) for at in everywhere],
                without="the best weights, which are not private",
            ),
            Check.judge(
                "over fresh rows no error is below that of Theorem B.1",
                above,
                [(pooled(each[at], "population"), fresh_floor[at[0]]) for at in proof],
                null=[(pooled(each[at], "known"), fresh_floor[at[0]]) for at in proof],
                without="the probabilities of the labels, which are not private",
            ),
            Check.judge(
                "the error grows with the rank, in proportion",
                grows,
                [found[at] for at in learnt],
                null=[zero[at] for at in learnt],
                without=UNTRAINED,
                changed="2026-11-18: on rows of which none is zero, so that the error of weights "
                "of zero does not grow by itself; the exponent less two standard errors",
            ),
            Check.judge(
                "it is below the upper bound that is to match (Theorem 3.1, in T steps)",
                below,
                [(found[at], upper[at[0]]) for at in learnt],
                null=[(zero[at], upper[at[0]]) for at in learnt],
                without=UNTRAINED,
            ),
            Check.judge(
                no_matter(middle, few, many),
                unchanged,
                (part[0], part[1]),
                null=(part[0], part[2]),
                without=FULL_RANK,
                changed="2026-11-18: from a tenth to a quarter, with two standard errors, draws "
                "that are not shared, and 40 instances of its own: ten left no room for two errors",
            ),
            Check.judge(
                "Lemma B.2 holds for a random function of four bits",
                equal,
                exact,
                null=wrong,
                without="a uniform law of P",
            ),
            Check.judge(
                "Lemma B.3 holds for random pairs of distributions",
                at_most,
                close,
                null=closer,
                without="no δ",
            ),
            Check.judge(
                "training helps where no row is zero",
                helps,
                [(found[at], zero[at]) for at in learnt],
                null=[(found[at], zero[at]) for at in proof],
                without="the rows of the proof, of which nothing is learned",
                paper=False,
            ),
        ],
        figures=[
            Figure(
                "Fingerprinting rows, none of them zero",
                "rank",
                {
                    "private descent": (ranks, [found[at].mean for at in learnt]),
                    "zero weights": (ranks, [zero[at].mean for at in learnt]),
                    "at most (Theorem 3.1)": (ranks, [upper[r] for r in ranks]),
                    "at least (Theorem 3.3)": (ranks, [floor[r] for r in ranks]),
                },
                log=True,
            )
        ],
    )
