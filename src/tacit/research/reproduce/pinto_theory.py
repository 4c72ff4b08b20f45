"""Pinto et al. 2024, Theorem 1, Corollary 2, Lemmas 2, 4, 6 and 8, Example 1, appendix A-F: on
instances that are made.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.linear_model import DPLinearClassifier
from tacit.preprocessing import ClipNorm, PublicPCA, RandomProjection, Stage
from tacit.research.instances import large_margin_mixture
from tacit.research.reproduce.claim import Cell, Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.pinto_rules import Arms, ahead, no_worse
from tacit.research.reproduce.work import Work
from tacit.research.theory import halfspaces
from tacit.research.theory.learner import HalfspaceLearner, halfspace_learner
from tacit.research.theory.separability import lipschitz_xi

ERROR, D = 0.25, 20  # what the learner is asked for, in so many columns
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
DIMENSIONS = (20, 200, 2_000)
ROWS, PUBLIC, FRESH, TIGHT = 1_000, 500, 5_000, 0.05


def _mixture(
    n: int, d: int, seed: int, spread: float | None = None
) -> tuple[np.ndarray, np.ndarray, Any]:
    made = large_margin_mixture(n, d, spread=spread, seed=seed)
    assert made.labels is not None
    return made.rows, made.labels, made.facts


def plan_of(d: int) -> HalfspaceLearner:
    """The learner for the mixture of that many dimensions."""
    _, _, facts = _mixture(2, d, 0)
    return halfspace_learner(
        ERROR, 1, **BUDGET, margin=facts["margin"], gap=facts["gap"], steps=4_000
    )


def learned(seed: int, permuted: bool = False) -> float:
    """Error of the learner on fresh rows in per cent, with as many rows as it asks for."""
    plan = plan_of(D)
    rows, labels, _ = _mixture(plan.private + plan.public + FRESH, D, seed)
    own, rest = slice(plan.private), rows[plan.private :]
    fresh, fresh_labels = rest[:FRESH], labels[plan.private :][:FRESH]
    targets = labels[own]
    if permuted:
        targets = np.random.default_rng(seed).permutation(targets)
    model = plan.estimator(rest[FRESH:], random_state=seed).fit(rows[own], targets)
    return 100 * float((model.predict(fresh) != fresh_labels).mean())


def by_dimension(d: int, way: str, seed: int) -> float:
    """Error in per cent of a halfspace in all columns, in a public one, or in a random one."""
    rows, labels, _ = _mixture(ROWS + PUBLIC + FRESH, d, seed, 1 / d)
    stages: list[Stage] = [ClipNorm(1.0)]
    if way == "public":
        stages.append(PublicPCA(rows[ROWS : ROWS + PUBLIC], 1))
    elif way == "random":
        stages.append(RandomProjection(1, seed))
    model = DPLinearClassifier(
        TIGHT, 1e-6, stages=stages, fit_intercept=False, random_state=seed, arithmetic="fast"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the budget is small: it is meant to be
        model.fit(rows[:ROWS], labels[:ROWS])
    return 100 * float((model.predict(rows[-FRESH:]) != labels[-FRESH:]).mean())


def components_error(seed: int, flat: bool = False) -> float:
    """Lemma 4: error of components of 400 rows, over what is allowed with β = 0.1."""
    rng = np.random.default_rng(seed)
    d, k, n = 10, 2, 400
    scales = np.array([1.0, 0.8, *[0.2] * (d - k)])
    rows = _unit(rng.standard_normal((100_000, d)) * scales)
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    gap = float(values[-k] - values[-k - 1])
    allowed = 0.9 - halfspaces.projected_margin(0.9, gap=gap, public=n, failure=0.1)
    sample = rows[rng.integers(len(rows), size=n)]
    if flat:
        sample = _unit(rng.standard_normal((n, d)))
    first = np.linalg.eigh(sample.T @ sample)[1][:, -k:]
    true = vectors[:, -k:] @ vectors[:, -k:].T
    return float(np.linalg.norm(first @ first.T - true)) / allowed


def moments_apart(seed: int, radius: float = 1.0) -> float:
    """Lemma 6: distance of the second moments of two distributions, over their total variation."""
    rng = np.random.default_rng(seed)
    atoms = radius * _unit(rng.standard_normal((30, 5)))
    f, g = rng.dirichlet(np.full(30, 0.3), 2)
    apart = (atoms * (f - g)[:, None]).T @ atoms
    return float(np.linalg.norm(apart, 2) / (np.abs(f - g).sum() / 2))


def radius_of(d: int, seed: int, times: float = 1.0) -> float:
    """Lemma 8: ‖X − μ‖ over its bound for δ = 0.05, Σ = I/(40√d), as its Corollary 2 has it."""
    rng = np.random.default_rng(seed)
    variance = times / (40 * math.sqrt(d))
    allowed = 4 * variance * math.sqrt(d) + 2 * variance * math.sqrt(math.log(20))
    return float(np.linalg.norm(math.sqrt(variance) * rng.standard_normal(d)) / allowed)


def margin_kept(xi: float = 0.1, turned: bool = False) -> dict[str, float]:
    """Lemma 2: least margin of four projected rows, what is promised, and what can be."""
    signed = _unit(np.array([[0.995, 0.1], [0.995, -0.1], [-0.1, 0.995], [0.1, 0.995]]))
    counts = np.array([40, 40, 1, 1])
    first = np.linalg.eigh((signed * counts[:, None]).T @ signed)[1][:, -1]
    w = np.array([1 - xi, math.sqrt(xi * (2 - xi))])
    w = w[::-1] if turned else w
    gamma = float((signed @ w).min())
    along = signed @ first * np.sign(first @ w)
    return {"kept": float(along.min()), "printed": 0.9 * gamma * (1 - xi), "gamma": gamma}


def lipschitz_kept(seed: int, turned: bool = False) -> list[float]:
    """Appendix A-F: ‖Aw*‖ above γ − √Λ, and above what is printed, for k of ten columns."""
    rng = np.random.default_rng(seed)
    d, k = 10, int(rng.integers(1, 6))
    w = _unit(rng.standard_normal(d))
    rows = _unit(rng.standard_normal((200, d)) * 0.6 ** np.arange(d) + 2 * w)
    signs = np.sign(rows @ w)
    gamma = float((signs * (rows @ w)).min())
    axes = np.linalg.eigh(rows.T @ rows)[1][:, ::-1]
    left = [0.0] * (d + 1)
    for i in range(d + 1):
        outside = rows - rows @ axes[:, :i] @ axes[:, :i].T
        left[i] = float(np.linalg.norm(outside, axis=1).max())
    if turned:  # a direction that the rows have little of
        w = axes[:, -1]
    kept = float(np.linalg.norm(axes[:, :k].T @ w))
    own, printed = lipschitz_xi(gamma, left, k, scale=1.0)
    return [kept - (1 - own), kept - (1 - printed)]


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def theory(work: Work) -> Finding:
    """What can be tested of the paper's theory."""
    seeds, many = list(work.run_seeds()), list(work.run_seeds(50 if not work.quick else 10))
    plan = plan_of(D)
    dims = DIMENSIONS[: 2 if work.quick else None]
    found = work.map(learned, [{"seed": seed} for seed in seeds[: 1 if work.quick else 3]])
    # One component leaves a sign to be learned, which luck may find: several runs.
    deals = work.run_seeds(2 if work.quick else 6)
    lost = work.map(learned, [{"seed": seed, "permuted": True} for seed in deals])
    errors = {
        (d, way): Measured.of(
            work.map(by_dimension, [{"d": d, "way": way, "seed": seed} for seed in seeds])
        )
        for way in ("all", "public", "random")
        for d in dims
    }
    four = work.map(components_error, [{"seed": s} for s in many])
    flat = work.map(components_error, [{"seed": s, "flat": True} for s in many])
    six = work.map(moments_apart, [{"seed": s} for s in many])
    outside = work.map(moments_apart, [{"seed": s, "radius": 4.0} for s in many])
    eight = work.map(radius_of, [{"d": 10_000, "seed": s} for s in many])
    wider = work.map(radius_of, [{"d": 10_000, "seed": s, "times": 0.01} for s in many])
    kept, turned = work.map(margin_kept, [{}, {"turned": True}])
    rlc = work.map(lipschitz_kept, [{"seed": s} for s in many])
    away = work.map(lipschitz_kept, [{"seed": s, "turned": True} for s in many])
    stretched = large_margin_mixture(4_000, 30, stretch=0.5, seed=seeds[0])
    signs = 2 * np.asarray(stretched.labels) - 1
    right = 100 * float((signs * (stretched.rows @ stretched.facts["stretched"]) > 0).mean())
    shuffled = np.random.default_rng(0).permutation(signs)
    chance = 100 * float((shuffled * (stretched.rows @ stretched.facts["stretched"]) > 0).mean())
    near, far = dims[0], dims[-1]

    def rises(way: str) -> Mapping[str, Any]:
        return {"all": Arms(errors[far, "all"], errors[near, "all"]), "way": way}

    def free_of_d(measured: Mapping[str, Any]) -> tuple[bool, str]:
        way = measured["way"]
        stays = {"projected": (Arms(errors[near, way], errors[far, way]), 1.0)}
        grows, shown = ahead({"in all columns": measured["all"]})
        still, words = no_worse(stays)
        return grows and still, f"error from {near} to {far} columns: {shown}; {words}"

    checks = [
        Check.judge(
            f"Theorem 1, with constants from its proof: with as many rows as it asks for, errors "
            f"stay below {100 * ERROR:g} per cent",
            lambda some: (max(some) <= 100 * ERROR, f"at most {max(some):.1f} per cent"),
            found,
            null=lost,
            without="labels permuted",
        ),
        Check.judge(
            "Corollary 2: more columns cost nothing once rows are projected, and something before",
            free_of_d,
            rises("public"),
            null=rises("all"),
            without="no projection in the place of the projection",
        ),
        Check.judge(
            "Lemma 2, (2) and (6): projected rows keep a margin of 0.9γ(1 − ξ)",
            lambda it: (
                it["kept"] >= it["printed"] > 0,
                f"{it['kept']:.2f}, where {it['printed']:.2f} is promised",
            ),
            kept,
            null=turned,
            without="weights turned away from the components",
        ),
        Check.judge(
            "Lemma 4: components of public rows are as near to the population's as it says",
            lambda some: (max(some) < 1, f"at most {max(some):.2f} of what is allowed"),
            four,
            null=flat,
            without="rows without a gap",
        ),
        Check.judge(
            "Lemma 6: second moments differ by at most 7η (here by at most η)",
            lambda some: (max(some) <= 7, f"at most {max(some):.2f} η"),
            six,
            null=outside,
            without="rows of norm 4",
        ),
        Check.judge(
            "Lemma 8: rows lie within its radius, but for one in twenty",
            lambda some: (
                float(np.mean(np.array(some) > 1)) < 0.2,
                f"{min(some):.1f} to {max(some):.1f} times its radius",
            ),
            eight,
            null=wider,
            without="a hundredth of the variance, of which deviations are a tenth",
        ),
        Check.judge(
            "Example 1: the direction that it names separates the classes",
            lambda part: (part > 99, f"{part:.1f} per cent of the rows are on the right side"),
            right,
            null=chance,
            without="labels permuted",
        ),
        Check.judge(
            "appendix A-F: decaying gradients imply that components keep γ of the separator, but "
            "for what they leave of rows",
            lambda some: (
                min(each[0] for each in some) >= 0 and min(each[1] for each in some) >= 0,
                f"by {min(each[0] for each in some):.2f} or more as corrected, by "
                f"{min(each[1] for each in some):.2f} as printed",
            ),
            rlc,
            null=away,
            without="weights that the rows have little of",
        ),
    ]
    rows: list[Sequence[Cell]] = [
        (f"{d}", *(errors[d, way] for way in ("all", "public", "random"))) for d in dims
    ]
    asked: list[Sequence[Cell]] = [
        ("private rows", f"{plan.private:,}"),
        ("public rows", f"{plan.public:,}"),
        ("margin ζ after projection", f"{plan.margin:.3f}"),
        ("runs × steps", f"{plan.runs} × {plan.steps:,}"),
        ("error promised, with probability 0.95", f"{100 * plan.guarantee.value:.1f} per cent"),
        ("error found", Measured.of(found)),
    ]
    curves = {
        name: (dims, [errors[d, way].mean for d in dims])
        for way, name in (("all", "all columns"), ("public", "one public component"))
    }
    return Finding(
        [
            Table(("the learner of Theorem 1", "value"), asked, f"Two Gaussians in {D} columns"),
            Table(
                ("columns", "all columns", "one public component", "one random direction"),
                rows,
                f"Error in per cent at ε = {TIGHT:g} with {ROWS:,} private rows",
            ),
        ],
        checks,
        [Figure("Error in per cent by columns", "columns", curves, log=True)],
    )
