"""Sun et al. 2024, Theorem 1 with the constants of its proof, and Theorem 2."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import minimize

from tacit.data.rows import as_rows
from tacit.losses import get_loss
from tacit.mechanisms import Key
from tacit.plan import CalibratedPlan, Plan
from tacit.plan.recipes import recipe
from tacit.preprocessing import ClipNorm, PrivateCenter, Stage
from tacit.privacy import Budget
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.research.instances import fingerprinting
from tacit.research.reproduce.claim import Cell, Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.together import fit_together, scores_of
from tacit.research.reproduce.work import Work
from tacit.research.theory import centring, lower
from tacit.trainers import DPGD

EPSILON, DELTA = 1.0, 1e-5
COLUMNS = 4  # the first is the same for all rows: how far they are from the origin
DIAMETER = 2.0
PARTS = (1e-4, 1e-2, 0.1, 1.0)  # of the automatic rate, for descent on rows as they come


@lru_cache(maxsize=2)
def _rows(n: int, far: float) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Rows of a ball of radius 1 far from the origin, labels by a logistic model, and the optimum.

    Weights of least norm put nothing on the first column, nearly: how far the rows are changes
    neither their norm nor the least loss.
    """
    rng = np.random.default_rng(0)
    around = rng.standard_normal((n, COLUMNS - 1))
    around *= rng.random((n, 1)) ** (1 / (COLUMNS - 1)) / np.linalg.norm(
        around, axis=1, keepdims=True
    )
    labels = (rng.random(n) < 1 / (1 + np.exp(-4 * around[:, 0]))).astype(int)
    seen, signs = np.column_stack([around, np.ones(n)]), 2.0 * labels - 1

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins = signs * (seen @ weights)
        return float(np.logaddexp(0, -margins).mean()), -(
            seen.T @ (signs / (1 + np.exp(margins))) / n
        )

    best = minimize(loss, np.zeros(COLUMNS), jac=True, tol=1e-12)
    size = math.hypot(float(np.linalg.norm(best.x[:-1])), best.x[-1] / math.hypot(far, 1.0))
    return np.column_stack([np.full(n, far), around]), labels, float(best.fun), size


def _plan(n: int, far: float, method: str) -> CalibratedPlan:
    radius = math.hypot(far, 1.0)
    stages: Sequence[Stage] = (ClipNorm(radius),)
    trainer: Any = DPGD()
    if method == "DPSGD-F":
        made = recipe("dpsgd-f-theory", algorithm=2, radius=5 * radius)
        stages, trainer = made["stages"], made["trainer"]
    elif method == "gaussian mean":
        stages = (*stages, PrivateCenter(0.3))
    loss, budget = get_loss("logistic"), Budget(EPSILON, DELTA)
    exact = "exact" if method == "DPSGD-F" else "fast"
    plan = Plan(budget, tuple(stages), trainer, loss, fit_intercept=True, arithmetic=exact)
    return plan.calibrate(size=n, columns=COLUMNS, classes=2)


def excess(n: int, far: float, method: str, parts: list[float], seed: int) -> list[float]:
    """Excess logistic loss for each rate, in parts of the automatic one."""
    rows, labels, least, _ = _rows(n, far)
    plan, signs = _plan(n, far, method), 2.0 * labels - 1
    fits = fit_together(
        plan,
        rows,
        plan.plan.loss.targets(labels, outputs=1),
        Key.from_seed(seed),
        lambda own: [replace(own, learning_rate=own.learning_rate * part) for part in parts],
    )
    margins = (signs * scores_of(fit, rows)[:, 0] for fit in fits)
    return [float(np.logaddexp(0, -each).mean()) - least for each in margins]


def steps_before(n: int, far: float, method: str, seed: int) -> dict[str, float]:
    """What steps 1 and 2 of Algorithm 2 find: a mean, and a scale τ, by its own two stages."""
    rows, *_ = _rows(n, far)
    plan = _plan(n, far, method)
    prepared = plan.prepare(as_rows(rows), plan.releases(Key.from_seed(seed)))
    mean = next(np.asarray(s.mean_) for s in prepared.fitted if hasattr(s, "mean_"))
    around = np.linalg.norm(rows - mean, axis=1)
    found = {"off": float(np.linalg.norm(rows.mean(axis=0) - mean)), "largest": float(around.max())}
    scales = [float(s.radius_) for s in prepared.fitted if hasattr(s, "radius_")]
    for name, scale in (("tau", scales[-1] if scales else None), ("middle", np.median(around))):
        if scale is not None:
            found |= {name: float(scale), f"beyond {name}": int((around > scale).sum())}
    return found


def lemmas(seed: int) -> dict[str, float]:
    """Lemmas 5, 6 and 7 on rows of rank 3 in 40 columns: loss and rank, as translated and not."""
    rng = np.random.default_rng(seed)
    n, d = 200, 40
    rows = rng.standard_normal((n, 3)) @ rng.standard_normal((3, d)) + rng.standard_normal(d)
    w, b, mean, tau = rng.standard_normal(d), 0.7, rng.standard_normal(d), 2.0
    moved = np.column_stack([rows - mean, np.full(n, tau)])
    sizes = np.linalg.norm(moved, axis=1, keepdims=True)
    clipped = moved * np.minimum(1, math.sqrt(2) * tau / sizes)
    scores = rows @ w + b
    noisy = moved + 0.1 * rng.standard_normal(moved.shape)
    apart = {
        name: float(np.abs(moved @ np.append(w, end / tau) - scores).max())
        for name, end in (("moved", b + w @ mean), ("not moved", b))
    }
    ranks = {
        name: int(np.linalg.matrix_rank(each))
        for name, each in (("D", rows), ("D′", moved), ("D″", clipped), ("noisy", noisy))
    }
    return {**apart, **ranks}


def constants(work: Work) -> Finding:
    """Theorem 1, Algorithm 2 and Lemmas 3 to 7."""
    sizes = (2_000, 20_000) if work.quick else (20_000, 200_000, 1_000_000)
    fars = (1.0, 1e6)
    table: list[Sequence[Cell]] = []
    found: dict[tuple[str, int, float], Measured] = {}
    bounds: dict[tuple[int, float], Any] = {}
    zero: dict[int, float] = {}
    # Of a million rows those far from the origin alone, and two runs.
    cases = {n: fars if n <= 200_000 else fars[1:] for n in sizes}
    for n in sizes:
        runs = work.run_seeds(min(work.seeds, 2 if n > 200_000 else work.seeds))
        for far in cases[n]:
            _, _, least, norm = _rows(n, far)
            zero[n] = math.log(2) - least
            bounds[n, far] = centring.centred_bound(
                n,
                COLUMNS,
                epsilon=EPSILON,
                delta=DELTA,
                diameter=DIAMETER,
                norm=norm,
                bound=math.hypot(far, 1.0),
                at_zero=math.log(2),
            )
            for method in ("DPSGD-F", "DPSGD"):
                how = {"n": n, "far": far, "method": method}
                part = 1.0
                if method == "DPSGD":
                    (seed,) = work.search_seeds(1)
                    tried = work.map(excess, [{**how, "parts": list(PARTS), "seed": seed}])[0]
                    part = PARTS[int(np.argmin(tried))]
                each = work.map(excess, [{**how, "parts": [part], "seed": seed} for seed in runs])
                found[method, n, far] = Measured.of(np.ravel(each), digits=6)
            table.append(
                (
                    f"n = {n:,}, norm {far:g}",
                    f"{bounds[n, far].printed:.3g}",
                    f"{bounds[n, far].value:.3g}",
                    found["DPSGD-F", n, far],
                    found["DPSGD", n, far],
                )
            )
    n = sizes[1]
    how = {"n": sizes[0], "far": fars[1]}
    settings = [{**how, "seed": seed} for seed in work.run_seeds()]
    theirs = work.map(steps_before, [{**each, "method": "DPSGD-F"} for each in settings])
    plain = work.map(steps_before, [{**each, "method": "gaussian mean"} for each in settings])
    exact = work.map(lemmas, [{"seed": seed} for seed in work.run_seeds()])
    allowed = DIAMETER + 2 * math.hypot(fars[1], 1.0) / sizes[0] ** 2
    few = 125 / EPSILON * math.log(sizes[0])
    by = {
        method: {(n, far): found[method, n, far] for n in sizes for far in cases[n]}
        for method in ("DPSGD-F", "DPSGD")
    }
    return Finding(
        tables=[
            Table(
                (
                    "ε = 1, δ = 1e-5, diameter 2",
                    "bound with the proof's constants",
                    "the same at ε/3",
                    "DPSGD-F, Algorithm 2",
                    "DPSGD, best of four rates (search not accounted)",
                ),
                table,
                "Excess logistic loss of rows in a ball of radius 1, at a distance of the origin",
            )
        ],
        checks=[
            Check.judge(
                "Theorem 1: the excess of DPSGD-F is within the bound, with the constants that its "
                "proof prints",
                lambda many: _below(many, {at: bounds[at].printed for at in bounds}),
                by["DPSGD-F"],
                null=by["DPSGD"],
                without="no preprocessing: DPSGD",
            ),
            Check.judge(
                "it follows the diameter and not the norm: rows a million times as far from the "
                "origin lose at most twice as much",
                lambda many: _unmoved(many, n, fars),
                by["DPSGD-F"],
                null=by["DPSGD"],
                without="no preprocessing: DPSGD",
            ),
            Check.judge(
                f"it falls like log(n)/n or faster, to a factor of two, from n = {sizes[0]:,} to "
                f"{n:,}",
                lambda losses: (
                    losses[1] / losses[0] <= 2 * _order(n) / _order(sizes[0]),
                    f"from {losses[0]:.2g} to {losses[1]:.2g}",
                ),
                [found["DPSGD-F", each, fars[0]].mean for each in sizes[:2]],
                null=[zero[each] for each in sizes[:2]],
                without="an untrained model",
            ),
            Check.judge(
                "Lemma 3: the private mean is off by the diameter + 2R/n² at most, on average",
                lambda offs: (np.mean(offs) <= allowed, f"{np.mean(offs):.3g} of {allowed:.3g}"),
                [each["off"] for each in theirs],
                null=[each["off"] for each in plain],
                without="a mean with Gaussian noise for rows of norm R",
            ),
            Check.judge(
                "Lemma 4: τ is at most twice the largest distance to that mean (+ 2R/n²), and "
                "125·log(n)/ε rows at most lie beyond it",
                lambda pairs: (
                    all(t <= 2 * m + allowed - DIAMETER and z <= few for t, m, z in pairs),
                    f"τ comes to {max(t / m for t, m, _ in pairs):.2f} of the largest distance, "
                    f"and {max(z for *_, z in pairs):,} of {few:,.0f} rows lie beyond",
                ),
                [(each["tau"], each["largest"], each["beyond tau"]) for each in theirs],
                null=[(e["middle"], e["largest"], e["beyond middle"]) for e in theirs],
                without="the median distance in the place of τ",
            ),
            Check.judge(
                "Lemma 5: translated rows with a constant have the same scores, and losses",
                lambda most: (most < 1e-9, f"they differ by {most:.1g} at most"),
                max(each["moved"] for each in exact),
                null=max(each["not moved"] for each in exact),
                without="an intercept that is not moved with the rows",
            ),
            Check.judge(
                "Lemmas 6 and 7: their rank is 5 higher at most, and clipping does not change it",
                lambda pairs: (
                    all(after <= before + 5 for before, after in pairs),
                    f"{pairs[0][0]} becomes {max(after for _, after in pairs)}",
                ),
                [(each["D"], each[name]) for each in exact for name in ("D′", "D″")],
                null=[(each["D"], each["noisy"]) for each in exact],
                without="rows with noise",
            ),
            Check.judge(
                "the bound holds with ε/3 for descent, as Algorithm 2 has it, too",
                lambda many: _below(many, {at: bounds[at].value for at in bounds}),
                by["DPSGD-F"],
                null=by["DPSGD"],
                without="no preprocessing: DPSGD",
                paper=False,
            ),
        ],
        figures=[
            Figure(
                "Excess logistic loss at a distance of a million",
                "rows",
                {
                    "bound": (list(sizes), [bounds[n, fars[1]].value for n in sizes]),
                    **{
                        method: (
                            list(sizes),
                            [max(found[method, n, fars[1]].mean, 1e-7) for n in sizes],
                        )
                        for method in ("DPSGD-F", "DPSGD")
                    },
                },
                log=True,
            )
        ],
    )


def _order(n: int) -> float:
    return math.log(n) / n


def _below(
    many: Mapping[tuple[int, float], Measured], bounds: Mapping[tuple[int, float], float]
) -> tuple[bool, str]:
    parts = {at: each.mean / bounds[at] for at, each in many.items()}
    worst = max(parts, key=lambda at: parts[at])
    return parts[worst] <= 1, (
        f"at most {parts[worst]:.2g} of the bound: {many[worst].mean:.2g} of {bounds[worst]:.2g} "
        f"at n = {worst[0]:,}, norm {worst[1]:g}"
    )


def _unmoved(
    many: Mapping[tuple[int, float], Measured], n: int, fars: Sequence[float]
) -> tuple[bool, str]:
    near, far = (many[n, each].mean for each in fars)
    return far <= 2 * near, f"{near:.2g} at norm 1, {far:.2g} at norm {fars[-1]:g} (n = {n:,})"


# --- Theorem 2 --------------------------------------------------------------------------------

HARD = {"epsilon": 0.04, "delta": 1e-8}
RATES = (0.03, 0.3, 3.0)  # of descent, times the number of steps
ALGORITHMS = ("noisy majorities", "noisy descent", "one half", "zero")
UNTRAINED = ALGORITHMS[2:]
SHARES = tuple(2.0**-k for k in range(9))  # of rows that are not zero
STEPS = 50
CHANGED = (
    "2026-11-19: on the rows of the proof, so few of which are not zero that nobody learns from "
    "them, untrained weights passed as well: the slope was that of the rows"
)


def hard_rows(
    n: int, rank: int, rates: list[float], seed: int, active: float | None = None
) -> dict[str, Any]:
    """Excess of ℓ′ on the rows of Theorem 2, for algorithms that are private and one that is not.

    ``active`` is the share of rows that are not zero, in place of the theorem's. Rows are unit
    vectors or zero, so that everything follows from the labels of each column:
    ℓ′ = max(1 − y(2θx − 1), 0) is 2·max(1 − θⱼ, 0) for a row of label 1, 2·max(θⱼ, 0) for −1.
    """
    made = fingerprinting(n, rank, epsilon=HARD["epsilon"], active=active, seed=seed)
    assert made.labels is not None
    ones = made.labels @ made.rows
    zeros = made.rows.sum(axis=0) - ones
    rng = np.random.default_rng([seed, 1])
    mu = gaussian_mu(HARD["epsilon"], HARD["delta"])

    def lost(theta: np.ndarray) -> float:
        each = ones * np.maximum(2 - 2 * theta, 0) + zeros * np.maximum(2 * theta, 0)
        return float((each - 2 * np.minimum(ones, zeros)).sum() / n)

    votes = ones - zeros  # one row replaced moves them by 2 at most
    theta, total = np.zeros((len(rates), rank)), np.zeros((len(rates), rank))
    for _ in range(STEPS):
        sums = 2 * zeros * (theta > 0) - 2 * ones * (theta < 1)  # gradients of norm 2 at most
        noisy = sums + 4 * math.sqrt(STEPS) / mu * rng.standard_normal(theta.shape)
        theta = theta - np.array(rates)[:, None] / STEPS * noisy / n
        total += theta / STEPS
    return {
        "noisy majorities": lost(1.0 * (votes + 2 / mu * rng.standard_normal(rank) > 0)),
        "noisy descent": [lost(each) for each in total],
        "one half": lost(np.full(rank, 0.5)),
        "zero": lost(np.zeros(rank)),
        "majorities": lost(1.0 * (votes > 0)),
    }


def reduction(draws: int, seed: int) -> dict[str, float]:
    """Steps of the proof, at random: the most that ℓ′ differs from 2|θx − y| or grows by (4)."""
    rng = np.random.default_rng(seed)
    rank = 6
    unit = np.vstack([np.zeros(rank), np.eye(rank)])[rng.integers(rank + 1, size=draws)]
    cube = rng.random((draws, rank))
    inside, anywhere = rng.random((draws, rank)), rng.uniform(-3, 4, (draws, rank))
    y = rng.integers(2, size=draws)

    def margin_loss(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        scores = (theta * x).sum(axis=1)
        return np.asarray(np.maximum(1 - (2 * y - 1) * (2 * scores - 1), 0))

    def absolute(theta: np.ndarray) -> np.ndarray:
        return np.asarray(2 * np.abs((theta * unit).sum(axis=1) - y))

    def grown(x: np.ndarray, project: bool = True) -> float:
        moved = np.clip(anywhere, 0, 1) if project else 2 * anywhere
        return float((margin_loss(moved, x) - margin_loss(anywhere, x)).max())

    return {
        "inside": float(np.abs(margin_loss(inside, unit) - absolute(inside)).max()),
        "outside": float(np.abs(margin_loss(anywhere, unit) - absolute(anywhere)).max()),
        "grown, its rows": grown(unit),
        "grown, any rows": grown(cube),
        "grown, doubled": grown(unit, project=False),
    }


def _losses(work: Work, draws: int, **how: Any) -> dict[str, Measured]:
    """What every algorithm loses on such rows, descent at the rate that is best on others."""
    tried = work.map(
        hard_rows,
        [{**how, "rates": list(RATES), "seed": s} for s in work.search_seeds(draws // 2)],
    )
    rate = RATES[int(np.mean([each["noisy descent"] for each in tried], axis=0).argmin())]
    runs = work.map(hard_rows, [{**how, "rates": [rate], "seed": s} for s in work.run_seeds(draws)])
    return {
        name: Measured.of(np.ravel([each[name] for each in runs]), digits=4)
        for name in (*ALGORITHMS, "majorities")
    }


def lower_bound(work: Work) -> Finding:
    """Theorem 2."""
    cases = (
        [(2_000, 5), (2_000, 80)]
        if work.quick
        else [(5_000, 5), (5_000, 20), (5_000, 80), (5_000, 320), (500, 320)]
    )
    draws = (10 if work.quick else 20) * work.seeds  # instances are random, and small
    table: list[Sequence[Cell]] = []
    found: dict[str, dict[tuple[int, int], Measured]] = {
        name: {} for name in (*ALGORITHMS, "majorities")
    }
    bounds = {}
    for n, rank in cases:
        for name, lost in _losses(work, draws, n=n, rank=rank).items():
            found[name][n, rank] = lost
        bounds[n, rank] = (
            2 * lower.risk(n, rank, epsilon=HARD["epsilon"], delta=HARD["delta"]).value
        )  # ℓ′ is twice the absolute loss
        table.append(
            (
                f"n = {n:,}, rank {rank}",
                f"{bounds[n, rank]:.4f}",
                *(many[n, rank] for many in found.values()),
            )
        )
    along = [at for at in cases if at[0] == cases[0][0]]
    many, ranks = (5_000, (2, 8)) if work.quick else (50_000, (5, 20, 80))
    shares = {
        (rank, share): _losses(work, draws // 5, n=many, rank=rank, active=share)
        for rank in ranks
        for share in SHARES
    }
    hardest, untrained = (
        {
            rank: max((min(shares[rank, s][name].mean for name in names), s) for s in SHARES)
            for rank in ranks
        }
        for names in (ALGORITHMS, UNTRAINED)
    )
    (steps,) = work.map(reduction, [{"draws": 20_000, "seed": work.first_seed}])
    none = "majorities without noise, which are not private"
    return Finding(
        tables=[
            Table(
                (
                    "ε = 0.04, δ = 1e-8",
                    "lower bound",
                    *(name for name in ALGORITHMS),
                    "majorities, not private",
                ),
                table,
                "Excess of ℓ′ (G = 2, diameter √2) over the best weights, mean over random data "
                "sets; the bound has the constants of Song et al. 2021, Corollary B.4",
            ),
            Table(
                (
                    f"n = {many:,}",
                    "rows that are not zero",
                    *(name for name in ALGORITHMS),
                    "majorities, not private",
                ),
                [
                    (f"rank {rank}", f"{share:.1%}", *shares[rank, share].values())
                    for rank, (_, share) in hardest.items()
                ],
                "The same where the best private algorithm loses most: of more rows it learns, of "
                "fewer there is less to lose",
            ),
        ],
        checks=[
            Check.judge(
                "no private algorithm loses less than the bound, by more than two standard errors",
                lambda many: _above(many, bounds),
                {name: found[name] for name in ALGORITHMS},
                null={"majorities": found["majorities"]},
                without=none,
            ),
            Check.judge(
                "with as many rows that are not zero as are worst for it, what the best of them "
                "loses grows like ‖θ*‖√rank/(nε), which is rank/(nε) here",
                _slope,
                [(rank, lost) for rank, (lost, _) in hardest.items()],
                null=[(rank, lost) for rank, (lost, _) in untrained.items()],
                without="untrained weights, with as many rows as are worst for those",
                changed=CHANGED,
            ),
            Check.judge(
                "ℓ′ is twice the absolute loss for weights of the cube, on the rows of the "
                "construction",
                lambda most: (most < 1e-12, f"they differ by {most:.2g} at most"),
                steps["inside"],
                null=steps["outside"],
                without="weights outside of the cube",
            ),
            Check.judge(
                "projecting weights on the cube raises no loss, for all x of [0, 1]^d (4)",
                lambda most: (
                    most <= 1e-12,
                    f"it raises one by {most:.2g}; on the rows of the construction, which are all "
                    f"that the theorem needs, by {max(steps['grown, its rows'], 0):.2g}",
                ),
                steps["grown, any rows"],
                null=steps["grown, doubled"],
                without="doubled weights in the place of projected ones",
            ),
        ],
        figures=[
            Figure(
                f"Excess of ℓ′ at n = {cases[0][0]:,}",
                "rank",
                {
                    "lower bound": ([r for _, r in along], [bounds[at] for at in along]),
                    **{
                        name: (
                            [r for _, r in along],
                            [max(found[name][at].mean, 1e-5) for at in along],
                        )
                        for name in ALGORITHMS
                    },
                },
                log=True,
            )
        ],
        runs=draws,
    )


def _above(
    many: Mapping[str, Mapping[tuple[int, int], Measured]], bounds: Mapping[tuple[int, int], float]
) -> tuple[bool, str]:
    lead = {
        (name, at): (each.mean - 2 * each.spread / math.sqrt(each.runs)) / bounds[at]
        for name, of in many.items()
        for at, each in of.items()
    }
    name, at = min(lead, key=lambda key: lead[key])
    return lead[name, at] >= 1, (
        f"the nearest is {name} at n = {at[0]:,}, rank {at[1]}: {many[name][at]}, where the bound "
        f"is {bounds[at]:.4f}"
    )


def _slope(pairs: Sequence[tuple[int, float]]) -> tuple[bool, str]:
    if min(value for _, value in pairs) <= 0:
        return False, "it loses nothing"
    x, y = (np.log(np.array(side, dtype=float)) for side in zip(*pairs, strict=True))
    power = float(np.polyfit(x, y, 1)[0])
    return abs(power - 1) <= 0.2, f"like rank^{power:.2f}"
