"""Sun et al. 2024, section 4: two clusters far from the origin, which DPSGD cannot tell apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtr

from tacit.losses import get_loss
from tacit.mechanisms import Key
from tacit.plan import CalibratedPlan, Plan
from tacit.plan.recipes import recipe
from tacit.privacy import Budget
from tacit.research.instances import two_clusters
from tacit.research.reproduce.claim import Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.together import fit_together, scores_of
from tacit.research.reproduce.work import Work
from tacit.trainers import GradientTrainer
from tacit.trainers.gradient import require_descent

EPSILON, DELTA, N = 1.0, 1e-5, 2000
TIMES = (0.01, 0.1, 1.0, 10.0, 100.0)  # μ/(nε)
STEPS, BATCH = 100, 200.0  # of DPSGD
STUCK = 0.3  # an excess loss that does not go away; at zero weights it is 1
# Of DPSGD: the clip as a part of the longest gradient, and rate × clip for rows of unit norm.
GRID = [(part, rate) for part in (0.1, 1.0) for rate in (0.03, 0.3, 3.0, 30.0, 300.0)]


@cache
def _plan(name: str, intercept: bool, arithmetic: str = "exact", **options: Any) -> CalibratedPlan:
    made = recipe(name, **options)
    return Plan(
        Budget(EPSILON, DELTA),
        tuple(made["stages"]),
        made["trainer"],
        get_loss("hinge"),
        fit_intercept=intercept,
        arithmetic=arithmetic,
    ).calibrate(size=N, columns=2, classes=2)


def _trained(
    plan: CalibratedPlan, far: float, seed: int, trainers: Sequence[GradientTrainer] = ()
) -> list[dict[str, list[float]]]:
    """Of every trainer, on D′ and on D″, whose labels are exchanged.

    Hinge loss (the best weights have none), that of the same weights on the other of the two, and
    the weight of the second column, with the sign that it should have.
    """
    found: list[dict[str, list[float]]] = [
        {"loss": [], "other": [], "weight": []} for _ in range(len(trainers) or 1)
    ]
    for flipped in (False, True):
        made = two_clusters(N, far, flipped=flipped)
        assert made.labels is not None
        signs, key = 2.0 * made.labels - 1, Key.from_seed(2 * seed + flipped)
        fits = fit_together(plan, made.rows, signs[:, None], key, lambda own: trainers or [own])
        for each, fit in zip(found, fits, strict=True):
            scores = scores_of(fit, made.rows)[:, 0]
            each["loss"].append(float(np.maximum(1 - signs * scores, 0).mean()))
            each["other"].append(float(np.maximum(1 + signs * scores, 0).mean()))
            each["weight"].append(float(fit.coef[0, 1]) * (-1 if flipped else 1))
    return found


def _descent_plan(norm: float) -> CalibratedPlan:
    """Of Algorithm 1; no intercept, as in the paper: the best one is zero."""
    how: dict[str, Any] = {"radius": norm, "steps": STEPS, "batch_size": BATCH, "momentum": 0.0}
    how |= {"clip": norm, "learning_rate": 1.0, "average": "uniform", "schedule": "constant"}
    return _plan("dpsgd", False, "fast", **how)


def wrong_sign(times: float) -> float:
    """Lemma 8: least probability that the mean iterate has the wrong sign, by the noise it has.

    Each of T steps moves the second weight by η·C/√(μ² + 1) at most, and by noise of η·z·C/B.
    """
    far = math.hypot(times * N * EPSILON, 1.0)
    noise = _descent_plan(1.0).noise_multiplier / BATCH  # in clips: the same however far
    mean = (STEPS + 1) / 2 / far
    spread = noise * math.sqrt((STEPS + 1) * (2 * STEPS + 1) / (6 * STEPS))
    return float(ndtr(-mean / spread))


def descent(
    times: float, settings: list[list[float]], automatic: bool, seed: int
) -> list[dict[str, list[float]]]:
    """DPSGD at clips and rates, and by its automatic settings."""
    far = times * N * EPSILON
    norm = math.hypot(far, 1.0)
    found = []
    if settings:
        plan = _descent_plan(norm)
        own = require_descent(plan.trainer)
        trainers = [
            replace(own, clip=part * norm, learning_rate=rate / (part * norm**2))
            for part, rate in settings
        ]
        found += _trained(plan, far, seed, trainers)
    if automatic:
        found += _trained(_plan("dpsgd", False, "fast", radius=norm), far, seed)
    return found


def centred(times: float, method: str, seed: int) -> list[dict[str, list[float]]]:
    """The same of DPSGD-F: as in its theory (Algorithm 2), or Algorithm 3 by its defaults."""
    far = times * N * EPSILON
    # Algorithm 2 looks for mean and scale itself: a bound beyond the rows is enough.
    theory = method == "dpsgd-f-theory"
    radius = math.hypot(far, 1.0) * (5 if theory else 1)
    options: dict[str, Any] = {"algorithm": 2} if theory else {}
    return _trained(_plan(method, True, radius=radius, **options), far, seed)


def _worse(runs: Sequence[Sequence[Mapping[str, Sequence[float]]]]) -> list[np.ndarray]:
    """Of every setting, the runs' losses on the data set on which it loses more."""
    losses = np.array([[each["loss"] for each in run] for run in runs])  # run, setting, labelling
    return [losses[:, i, int(of.argmax())] for i, of in enumerate(losses.mean(axis=0))]


def counterexample(work: Work) -> Finding:
    """Theorem 3, and what follows from Theorem 1."""
    times = (0.01, 10.0) if work.quick else TIMES
    seeds = work.run_seeds(work.seeds if work.quick else 2 * work.seeds)
    grid = [(1.0, 0.3), (1.0, 300.0)] if work.quick else GRID
    names = [*(f"clip {part:g}, rate {rate:g}" for part, rate in grid), "automatic"]
    excess: dict[str, list[Measured]] = {"DPSGD": [], "DPSGD-F": [], "DPSGD-F*": []}
    chosen, every, signs = [], [], {}
    for t in times:
        tried = work.map(
            descent,
            [
                {
                    "times": t,
                    "settings": [list(each) for each in grid],
                    "automatic": True,
                    "seed": s,
                }
                for s in work.search_seeds(3 if work.quick else 8)
            ],
        )
        weights = np.array([each["weight"] for run in tried for each in run[: len(grid)]])
        signs[t] = (
            float((weights <= 0).mean()),
            weights.size,
            work.map(wrong_sign, [{"times": t}])[0],
        )
        every += [each for run in tried for each in run]
        best = int(np.argmin([losses.mean() for losses in _worse(tried)]))
        chosen.append(names[best])
        how: dict[str, Any] = {"times": t, "settings": [], "automatic": True}
        if best < len(grid):
            how |= {"settings": [list(grid[best])], "automatic": False}
        runs = work.map(descent, [{**how, "seed": seed} for seed in seeds])
        excess["DPSGD"].append(Measured.of(_worse(runs)[0], 2))
        for name, method in (("DPSGD-F", "dpsgd-f-theory"), ("DPSGD-F*", "dpsgd-f")):
            runs = work.map(centred, [{"times": t, "method": method, "seed": s} for s in seeds])
            excess[name].append(Measured.of(_worse(runs)[0], 2))
    table = [
        (f"{t:g}", "Ω(1)" if t > 1 else "no bound", excess["DPSGD"][i],
         chosen[i], excess["DPSGD-F"][i], excess["DPSGD-F*"][i])
        for i, t in enumerate(times)
    ]  # fmt: skip
    beyond = [i for i, t in enumerate(times) if t > 1]
    far = {name: [many[i] for i in beyond] for name, many in excess.items()}
    near = excess["DPSGD"][0]
    return Finding(
        tables=[
            Table(
                (
                    "μ/(nε)",
                    "paper: DPSGD loses",
                    "DPSGD, best of a grid (search not accounted)",
                    "chosen on other runs",
                    "DPSGD-F, Algorithm 2",
                    "DPSGD-F*, Algorithm 3",
                ),
                table,
                f"Excess hinge loss on the worse of D′ and D″, n = {N}, ε = 1, δ = 1e-5",
            )
        ],
        checks=[
            Check.judge(
                f"DPSGD loses a constant, at least {STUCK:g}, once μ > nε, at any setting tried",
                _stuck,
                far["DPSGD"],
                null=far["DPSGD-F"],
                without="rows centred first: DPSGD-F",
                changed="2026-11-18: settings are chosen on runs of their own, not on those shown",
            ),
            Check.judge(
                "DPSGD-F does not, however far the clusters are",
                _free,
                excess["DPSGD-F"],
                null=excess["DPSGD"],
                without="rows not centred: DPSGD",
            ),
            Check.judge(
                "Lemma 2: weights whose second entry has the wrong sign lose 1 at least, in every "
                "run",
                _lemma2,
                [(loss, w) for e in every for loss, w in zip(e["loss"], e["weight"], strict=True)],
                null=[
                    (loss, w)
                    for e in every
                    for loss, w in zip(e["other"], e["weight"], strict=True)
                ],
                without="losses on the other labelling",
            ),
            Check.judge(
                "Lemma 8: the second entry has the wrong sign as often as noise beyond its steps "
                "gives it, to two standard errors; beyond nε that is nearly half of the runs",
                _as_often,
                [signs[times[i]] for i in beyond],
                null=[(signs[times[0]][0], *signs[times[i]][1:]) for i in beyond],
                without="clusters near the origin",
            ),
            Check.judge(
                "near the origin DPSGD loses no constant either",
                lambda at: (at.mean < STUCK, f"{at.mean:.2f} at μ = {times[0]:g}·nε"),
                near,
                null=far["DPSGD"][-1],
                without="clusters beyond nε",
                paper=False,
                changed="2026-11-18: eight runs choose a setting; three chose one that fails now "
                "and then",
            ),
        ],
        figures=[
            Figure(
                "Excess hinge loss as the clusters move away",
                "μ/(nε)",
                {
                    # Powers of ten have no zero.
                    name: (list(times), [max(at.mean, 1e-4) for at in many])
                    for name, many in excess.items()
                },
                log=True,
            )
        ],
        runs=len(seeds),
    )


def _stuck(many: Sequence[Measured]) -> tuple[bool, str]:
    least = min(many, key=lambda each: each.mean)
    sure = least.mean - 2 * least.spread / math.sqrt(least.runs)
    return sure >= STUCK, f"at least {least}"


def _free(many: Sequence[Measured]) -> tuple[bool, str]:
    most = max(each.mean for each in many)
    return most < STUCK / 3, f"at most {most:.3f}"


def _lemma2(pairs: Sequence[tuple[float, float]]) -> tuple[bool, str]:
    wrong = [loss for loss, weight in pairs if weight <= 0]
    if not wrong:
        return False, f"none of {len(pairs)} runs has"
    return min(
        wrong
    ) >= 1 - 1e-9, f"{len(wrong)} of {len(pairs)} have; the least is {min(wrong):.9g}"


def _as_often(many: Sequence[tuple[float, int, float]]) -> tuple[bool, str]:
    holds = all(share >= least - 1 / math.sqrt(runs) for share, runs, least in many)
    return holds, ", ".join(f"{share:.2f} of {n} runs, at least {p:.2f}" for share, n, p in many)
