"""Song et al. 2021, section 5: what clipping optimises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import minimize

from tacit.linear_model import DPLinearClassifier
from tacit.losses import clipped, get_loss
from tacit.losses.base import ScalarLoss
from tacit.losses.names import CONVEX
from tacit.preprocessing import ClipNorm
from tacit.research.instances import Instance, clipping_bias, subspace
from tacit.research.reproduce.claim import Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.song_runs import (
    FULL_RANK,
    MORE_RUNS,
    UNTRAINED,
    above,
    below,
    descend,
    fresh,
    left_over,
    no_matter,
    over_instances,
    pooled,
    power,
    printed_bound,
    printed_noise,
    printed_rate,
    same_part,
    unchanged,
)
from tacit.research.reproduce.work import Work
from tacit.trainers import DPGD

NOT_CLIPPED = "no clipping: B = 1, beyond all gradients"

# song-clipping
CLIPS = (0.24, 0.1, 0.03, 0.01)


def clipped_descent(clip: float, n: int, seed: int) -> dict[str, float]:
    """Where clipped private descent ends on the rows of Theorem D.4, and what that costs."""
    made = clipping_bias(n, clip)
    far = made.facts["clipped_optimum"]
    # Both pulls are B at most, so the rate must follow 1/B for the run to arrive.
    rate = 0.05 * far / clip if far else 1.0
    trainer = DPGD(steps=600, clip=clip, learning_rate=rate, momentum=0.0)
    model = DPLinearClassifier(
        1.0,
        1e-6,
        stages=[ClipNorm(1.0)],
        trainer=trainer,
        fit_intercept=False,
        random_state=fresh(seed, n, round(1000 * clip)),
    ).fit(made.rows, made.labels)
    weight = model.coef_.ravel()
    return {"weight": float(weight[0]), "excess": made.excess(weight)}


def asymmetry(
    classes: int, per_class: bool, trials: int, seed: int, clips: bool = True
) -> dict[str, float]:
    """Of the Jacobian of clipped softmax gradients, where the theorems say so and elsewhere.

    Without ``clips`` gradients stay as they are, at the same points.
    """
    loss, rng = get_loss("softmax"), np.random.default_rng(seed)
    inside: list[float] = []
    outside: list[float] = []
    for trial in range(trials):
        scores, own = rng.standard_normal(classes), int(rng.integers(classes))
        if trial % 3 == 0:  # all other classes alike: a potential exists there
            scores = np.where(np.arange(classes) == own, scores[own], scores[0])
        target = loss.targets(np.array([own]), classes)
        sizes = np.abs(loss.residual(scores[None], target)[0])
        size = float(np.linalg.norm(sizes))
        clip = float(size * rng.choice([0.4, 0.8, 1.2]))
        if per_class and np.abs(sizes - clip).min() < 1e-3:
            continue  # a kink: no Jacobian there

        def field(at: np.ndarray, clip: float = clip, target: np.ndarray = target) -> np.ndarray:
            if not clips:
                return np.asarray(loss.residual(at[None], target)[0])
            if per_class:
                return np.clip(loss.residual(at[None], target)[0], -clip, clip)
            return np.asarray(clipped(loss, clip).residual(at[None], target)[0])

        steps = 1e-6 * np.eye(classes)
        jacobian = np.stack([field(scores + s) - field(scores - s) for s in steps], axis=1) / 2e-6
        others = np.arange(classes) != own
        if per_class:
            claimed = sizes[own] > clip and (sizes[others] < clip).any()
        else:
            claimed = clip < size and np.ptp(scores[others]) > 0
        (inside if claimed else outside).append(float(np.abs(jacobian - jacobian.T).max()) / clip)
    return {"least where said": min(inside), "most elsewhere": max(outside)}


def no_gradient(found: Sequence[dict[str, float]]) -> tuple[bool, str]:
    """Whether Jacobians are asymmetric just where the theorems say so."""
    least = min(each["least where said"] for each in found)
    most = max(each["most elsewhere"] for each in found)
    holds = least > 1e-6 and most < 1e-5 * max(least, 1e-3) + 1e-7
    return holds, f"asymmetry at least {least:.1g} where said, elsewhere at most {most:.1g}"


def clipping(work: Work) -> Finding:
    """Theorems D.4, 5.3 and D.5."""
    clips, sizes = (CLIPS[:2], (300, 3_000)) if work.quick else (CLIPS, (3_000, 30_000))
    few, n = sizes
    places = [(clip, n) for clip in clips] + [(1.0, n), (1.0, few), (clips[1], few)]
    flat = work.map(clipped_descent, work.over_seeds({"clip": b, "n": m} for b, m in places))
    each = {at: flat[i * work.seeds : (i + 1) * work.seeds] for i, at in enumerate(places)}
    ends = {at: Measured.of([run["weight"] for run in each[at]], digits=2) for at in places}
    costs = {at: Measured.of([run["excess"] for run in each[at]], digits=5) for at in places}
    optimum = {clip: clipping_bias(3, clip).facts["clipped_optimum"] for clip in clips}
    logs = {clip: math.log(1 / clip) for clip in clips}
    kinds = [{"classes": k, "per_class": per_class} for per_class in (False, True) for k in (3, 7)]
    trials = [{**kind, "trials": 300, "seed": work.first_seed} for kind in kinds]
    found = work.map(asymmetry, trials)
    smooth = work.map(asymmetry, [{**trial, "clips": False} for trial in trials])
    fields = [
        (
            f"{kind['classes']} classes, {'each clipped' if kind['per_class'] else 'clipped'}",
            f"{mine['least where said']:.2g}",
            f"{mine['most elsewhere']:.2g}",
            f"{other['least where said']:.2g}",
        )
        for kind, mine, other in zip(kinds, found, smooth, strict=True)
    ]

    def shown(clip: float, rows: int) -> str:
        return f"B = {clip:g}, {rows:,} rows"

    def minimum(clip: float) -> float:
        return float(round(optimum.get(clip, 0.0), 3))

    def arrives(given: Sequence[Measured]) -> tuple[bool, str]:
        off = [abs(end.mean - optimum[b]) for end, b in zip(given, clips, strict=True)]
        return max(off) < 0.5, f"at most {max(off):.2f} away"

    def grows(given: Sequence[Measured]) -> tuple[bool, str]:
        means = [cost.mean for cost in given]
        growth = np.polyfit(list(logs.values()), means, 1)[0]
        steady = all(a < b for a, b in pairwise(means))
        return bool(growth > 0.1 and steady), f"by {growth:.2f} for each unit of log(1/B)"

    def vanishes(given: Sequence[Measured]) -> tuple[bool, str]:
        slope, error = power(sizes, given)
        return slope <= -1 + 2 * error, f"as n^({slope:.2f} ± {error:.2f})"

    main, without = [(clip, n) for clip in clips], [(1.0, n)] * len(clips)
    return Finding(
        tables=[
            Table(
                ("clip", "best weight", "paper: clipped minimum", "private descent", "excess loss"),
                [(shown(b, m), 0.0, minimum(b), ends[b, m], costs[b, m]) for b, m in places],
                "Theorem D.4: two rows pull one way, one row the other",
            ),
            Table(
                ("gradients", "least asymmetry where claimed", "most elsewhere", "not clipped"),
                fields,
                "Theorems 5.3 and D.5: the Jacobian of clipped softmax gradients, in clips",
            ),
        ],
        checks=[
            Check.judge(
                "clipped descent ends at 2·log(1/B − 1), not at the best weight 0",
                arrives,
                [ends[at] for at in main],
                null=[ends[at] for at in without],
                without=NOT_CLIPPED,
            ),
            Check.judge(
                "the excess loss grows like log(1/B)",
                grows,
                [costs[at] for at in main],
                null=[costs[at] for at in without],
                without=NOT_CLIPPED,
            ),
            Check.judge(
                "it is at least log(1/B)/60, as in the proof",
                above,
                [(costs[at], logs[at[0]] / 60) for at in main],
                null=[(costs[1.0, n], logs[clip] / 60) for clip in clips],
                without=NOT_CLIPPED,
            ),
            Check.judge(
                "without clipping it falls as 1/n or faster",
                vanishes,
                [costs[1.0, few], costs[1.0, n]],
                null=[costs[clips[1], few], costs[clips[1], n]],
                without=f"clipping, at B = {clips[1]:g}",
            ),
            Check.judge(
                "clipped gradients of three or more classes are the gradient of no function",
                no_gradient,
                found,
                null=smooth,
                without="no clipping",
            ),
        ],
        figures=[
            Figure(
                "Excess loss of clipped private descent",
                "1/B",
                {
                    "private descent": (
                        [1 / clip for clip in clips],
                        [costs[at].mean for at in main],
                    )
                },
            )
        ],
    )


# song-clipped-risk
EPSILON, DELTA, CLIP, NORM = 1.0, 1e-5, 0.2, 2.0


def with_outliers(n: int, rank: int, columns: int, seed: int) -> Instance:
    """Rows of norms from 0.3 to 1, and targets of which a tenth are off by 5: squared loss."""
    made = subspace(n, columns, rank, norm=NORM, noise=0.1, shortest=0.3, loss="squared", seed=seed)
    assert made.labels is not None
    rng = np.random.default_rng([seed, 1])
    labels = made.labels + 5 * (rng.random(n) < 0.1) * rng.choice([-1, 1], n)
    return Instance(
        made.rows, labels, 1.0, made.loss, made.optimum, 0.0, facts={"basis": made.facts["basis"]}
    )


def clipped_excess(*, n: int, rank: int, columns: int, seed: int) -> dict[str, Any]:
    """Excess of the clipped objective after n²ε² steps of clipped descent, and the bound's norm."""
    where = fresh(seed, n, rank, columns)
    made = with_outliers(n, rank, columns, where)
    assert made.loss is not None
    objective, norms = clipped(made.loss, CLIP), np.linalg.norm(made.rows, axis=1)
    targets, basis = made.loss.targets(made.labels, 1), made.facts["basis"]

    def mean(weights: np.ndarray) -> float:
        return float(objective.value((made.rows @ weights)[:, None], targets, norms=norms).mean())

    def slope(inner: np.ndarray) -> np.ndarray:
        scores = (made.rows @ (inner @ basis))[:, None]
        residual = objective.residual(scores, targets, norms=norms)[:, 0]
        return np.asarray(basis @ (made.rows.T @ residual) / n)

    best = minimize(lambda z: mean(z @ basis), np.zeros(rank), jac=slope, method="BFGS")
    steps = math.ceil((n * EPSILON) ** 2)
    noise = printed_noise(steps, EPSILON, DELTA)
    far = float(np.linalg.norm(best.x))
    found = descend(
        made,
        steps=steps,
        rate=printed_rate(n, rank, steps, far, noise) / CLIP,
        noise=noise,
        runs=2,
        seed=fresh(where, 1),
        clip=CLIP,
    )
    return {
        "excess": [mean(weights) - best.fun for weights in found],
        "zero": mean(np.zeros(columns)) - best.fun,
        "bound": CLIP * printed_bound(n, rank, EPSILON, DELTA, far),
    }


def lemma(name: str, clip: float, points: int, seed: int) -> dict[str, float]:
    """Lemma 5.1 of one loss, at random scores of rows of random norms.

    ``gap``: between slopes of the clipped loss and clipped slopes, ``unclipped gap`` those of the
    loss itself; ``bend``: least second difference of the clipped loss.
    """
    loss, rng = get_loss(name), np.random.default_rng(seed)
    assert isinstance(loss, ScalarLoss)
    scores, norms = 3 * rng.standard_normal((points, 1)), rng.uniform(0.2, 2.0, points)
    given = (
        rng.standard_normal(points) if loss.task == "regression" else rng.integers(2, size=points)
    )
    targets, step = loss.targets(given, 1), 1e-7
    objective = clipped(loss, clip)

    def value(at: np.ndarray, own: bool = True) -> np.ndarray:
        return objective.value(at, targets, norms=norms) if own else loss.value(at, targets)

    low, middle, high = (loss.residual(scores + way * step, targets)[:, 0] for way in (-1, 0, 1))
    limit = clip / norms
    wanted = np.clip(middle, -limit, limit)
    away = np.abs(high - low) < 1e-2  # of kinks
    away &= np.minimum(np.abs(middle - limit), np.abs(middle + limit)) > 1e-2

    def gap(own: bool) -> float:
        slopes = (value(scores + step, own) - value(scores - step, own)) / (2 * step)
        return float(np.abs(slopes - wanted)[away].max())

    bends = value(scores + 0.1) + value(scores - 0.1) - 2 * value(scores)
    return {"gap": gap(True), "unclipped gap": gap(False), "bend": float(bends.min())}


def clipped_risk(work: Work) -> Finding:
    """Lemma 5.1 and Corollary 5.2: clipped descent minimises a convex objective, by the rank."""
    n = 20 if work.quick else 48
    ranks, columns, rank = ((1, 4), (4, 16), 4) if work.quick else ((1, 2, 4, 8), (4, 16), 4)
    few, most = columns
    places = list(dict.fromkeys([*((r, most) for r in ranks), (rank, few), (most, most)]))
    settings = [{"n": n, "rank": r, "columns": p} for r, p in places]
    each = dict(zip(places, over_instances(work, clipped_excess, settings, 2), strict=True))
    found = {at: pooled(each[at], "excess") for at in places}
    zero = {at: pooled(each[at], "zero") for at in places}
    bound = {at: float(np.mean([run["bound"] for run in each[at]])) for at in places}
    tested = [at for at in places if at != (most, most)]
    arms = [{"n": n, "rank": rank, "columns": p} for p in columns]
    part = [*same_part(work, clipped_excess, arms), left_over(each[most, most])]
    names = [kind.name for kind in CONVEX if issubclass(kind, ScalarLoss)]
    points = {"points": 300 if work.quick else 20_000, "seed": work.first_seed}
    tried = work.each(
        lemma, {name: {"name": name, "clip": 0.3, **points} for name in (*names, "savage")}
    )
    wide = work.each(lemma, {name: {"name": name, "clip": 3.0, **points} for name in ("logistic",)})

    def same(gaps: Sequence[float]) -> tuple[bool, str]:
        return max(gaps) < 1e-6, f"slopes at most {max(gaps):.1g} apart"

    def convex(bends: Sequence[float]) -> tuple[bool, str]:
        return min(bends) > -1e-9, f"second differences of at least {min(bends):.1g}"

    return Finding(
        tables=[
            Table(
                ("rows", "zero weights", "paper, B for L: at most", "ours"),
                [
                    (f"rank {at[0]}, {at[1]} columns", zero[at], bound[at], found[at])
                    for at in places
                ],
                f"Excess of the clipped squared loss; {n} rows, ε = {EPSILON:g}, δ = {DELTA:g}, "
                f"B = {CLIP:g}, T = {math.ceil((n * EPSILON) ** 2):,}, a tenth of the targets off "
                "by 5",
            ),
            Table(
                ("loss", "slopes apart", "without clipping", "least second difference"),
                [
                    (name, *(f"{tried[name][key]:.1g}" for key in ("gap", "unclipped gap", "bend")))
                    for name in (*names, "savage")
                ],
                "Lemma 5.1: slopes of the clipped loss against clipped slopes, B = 0.3",
            ),
        ],
        checks=[
            Check.judge(
                "no excess of the clipped objective is above B·‖θ*‖·√(1 + 2·rank·log(1/δ))/(εn)",
                below,
                [(found[at], bound[at]) for at in tested],
                null=[(zero[at], bound[at]) for at in tested],
                without=UNTRAINED,
            ),
            Check.judge(
                no_matter(rank, few, most),
                unchanged,
                (part[0], part[1]),
                null=(part[0], part[2]),
                without=FULL_RANK,
                changed=MORE_RUNS,
            ),
            Check.judge(
                "clipped gradients of convex losses are those of the clipped loss",
                same,
                [tried[name]["gap"] for name in names],
                null=[tried[name]["unclipped gap"] for name in names],
                without="the loss itself, without lines beyond the clip",
            ),
            Check.judge(
                "the clipped loss of a convex loss is convex",
                convex,
                [tried[name]["bend"] for name in names],
                null=[tried["savage"]["bend"]],
                without="savage, which is not convex",
            ),
            Check.judge(
                "a clip beyond all gradients leaves the loss as it is",
                same,
                [wide["logistic"]["unclipped gap"]],
                null=[tried["logistic"]["unclipped gap"]],
                without="a clip of B = 0.3",
            ),
        ],
        figures=[
            Figure(
                f"Clipped squared loss, {most} columns",
                "rank",
                {
                    "private descent": (ranks, [found[r, most].mean for r in ranks]),
                    "Corollary 5.2": (ranks, [bound[r, most] for r in ranks]),
                    "zero weights": (ranks, [zero[r, most].mean for r in ranks]),
                },
                log=True,
            )
        ],
    )
