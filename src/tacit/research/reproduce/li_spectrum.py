"""Li et al. 2022, Figure 2: in how few directions private fine-tuning moves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.research.reproduce.claim import Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.li_tuning import accuracy, fine_tuning
from tacit.research.reproduce.printed import PRINTED
from tacit.research.reproduce.work import Work
from tacit.research.trajectories import spectral_density

RATES = (0.06, 0.25, 1.0)
KEPT = (10, 20, 100)
FULL: dict[str, Any] = {
    "sizes": {"layers": 4, "every": 4, "tested": 872},
    "batch": 32,
    "steps": 2_000,
    "short": 200,
    "components": 1_000,
}
QUICK: dict[str, Any] = {
    "sizes": {"layers": 1, "every": 300, "tested": 30},
    "batch": 8,
    "steps": 30,
    "short": 5,
    "components": 20,
}
NEAR, POINT, HELPS = 0.15, 1.0, 3.0
SIMILAR = 2.0  # points


def spectrum(work: Work) -> Finding:
    """Singular values of a long run's gradients, and shorter runs in the first directions."""
    asked = QUICK if work.quick else FULL
    kept = [2, 5] if work.quick else list(KEPT)
    seeds = work.run_seeds(
        min(work.seeds, 1 if work.quick else 3)
    )  # one takes a quarter of an hour
    common = {key: asked[key] for key in ("sizes", "batch")}
    short = {**common, "steps": asked["short"]}
    (search,) = work.search_seeds(1)
    rates = RATES[1:2] if work.quick else RATES
    tried = work.each(
        accuracy,
        {
            rate: {**short, "on": "validation", "private": True, "rate": rate, "seed": search}
            for rate in rates
        },
    )
    rate = max(tried, key=lambda each: tried[each])
    runs = work.map(
        fine_tuning,
        [{**asked, "rate": rate, "kept": kept, "again": 1, "seed": seed} for seed in seeds],
    )
    public = work.map(
        accuracy,
        [{**short, "on": "test", "private": False, "rate": rate, "seed": seed} for seed in seeds],
    )
    scores = {
        name: Measured.of([score for run in runs for score in run["scores"][name]])
        for name in runs[0]["scores"]
    }
    scores["long"] = Measured.of([run["long"] for run in runs])
    scores["public"] = Measured.of(public)
    scores["untrained"] = Measured.of([run["untrained"] for run in runs])
    size, count = int(runs[0]["parameters"]), int(asked["steps"])
    values = [np.array(run["values"]) for run in runs]
    shares = [run["explained"][kept[-1]] for run in runs]
    # Gradients of one size and no direction in common: r rows of Gaussians in p columns.
    nothing = [isotropic(count, size, seed) for seed in seeds]
    return Finding(
        tables=[
            _scores(scores, kept, asked),
            Table(
                ("rate", "accuracy on phrases of the validation file, %"),
                [(f"{each:g}", score) for each, score in tried.items()],
                "The rate, chosen on other rows with other noise",
            ),
            _values(values, shares, kept[-1]),
        ],
        checks=_checks(
            (values, [each[0] for each in nothing]),
            (shares, [each[1][kept[-1]] for each in nothing]),
            scores,
            kept,
            asked,
        ),
        figures=_figures(values, nothing[0][0]),
        runs=len(seeds),
    )


def isotropic(rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Singular values of independent Gaussians, and the share of their square in the first k.

    Their Gram matrix is LLᵀ with independent χ on L's diagonal and Gaussians below (Bartlett 1933).
    """
    rng = np.random.default_rng(seed)
    lower = np.tril(rng.standard_normal((rows, rows)), -1)
    lower[np.diag_indices(rows)] = np.sqrt(rng.chisquare(columns - np.arange(rows)))
    values = np.linalg.svd(lower, compute_uv=False)
    return values, np.append(0.0, np.cumsum(values**2)) / (values**2).sum()


def power(values: np.ndarray) -> float:
    """By least squares of logarithms, as the paper fits it."""
    ranks = np.arange(1, len(values) + 1)
    return -float(np.polyfit(np.log(ranks), np.log(values), 1)[0])


def _checks(
    values: tuple[Sequence[np.ndarray], Sequence[np.ndarray]],
    shares: tuple[Sequence[float], Sequence[float]],
    scores: Mapping[str, Measured],
    kept: Sequence[int],
    asked: Mapping[str, Any],
) -> list[Check]:
    least, start = PRINTED["li-spectrum"]["power"], scores["untrained"].mean
    many = min(int(asked["components"]), *map(len, values[0]))  # as many as are told from rounding

    def falls(each: Sequence[np.ndarray]) -> tuple[bool, str]:
        found = Measured.of([power(some[:many]) for some in each], digits=2)
        return abs(found.mean - least) <= NEAR, f"k^-{found}"

    def few(each: Sequence[float]) -> tuple[bool, str]:
        return min(each) > 0.5, " and ".join(f"{share:.0%}" for share in each)

    def recovers(name: str) -> tuple[bool, str]:
        part, whole = scores[name], scores["all"]
        holds = part.mean >= whole.mean - POINT and part.mean >= start + HELPS
        return holds, f"{part}% in {kept[-1]}, {whole}% in all, {start:.1f}% untrained"

    def near(name: str) -> tuple[bool, str]:
        part, whole = scores[name], scores["public"]
        return part.mean >= whole.mean - 2 * SIMILAR, f"{part}% beside {whole}%"

    def alike(name: str) -> tuple[bool, str]:
        part, whole = scores[name], scores["long"]
        return abs(part.mean - whole.mean) <= SIMILAR, f"{part}% beside {whole}%"

    noise, without = "gradients of independent Gaussians", f"{kept[-1]} directions at random"
    short, long = asked["short"], asked["steps"]
    return [
        Check.judge(
            f"the first {many:,} singular values fall as k^-{least:g}, to {NEAR:g} of a power",
            falls,
            values[0],
            null=values[1],
            without=noise,
        ),
        Check.judge(
            f"a few directions carry the gradients: the first {kept[-1]} of {long:,} more than "
            "half of their square",
            few,
            shares[0],
            null=shares[1],
            without=noise,
        ),
        Check.judge(
            f"training in the first {kept[-1]} directions, noise in all, recovers what training in "
            f"all reaches, to {POINT:g} point; both beat no training by {HELPS:g}",
            recovers,
            str(kept[-1]),
            null="random",
            without=without,
        ),
        Check.judge(
            f"private accuracy is close to that without privacy: {2 * SIMILAR:g} points at most, "
            "where the paper has 2",
            near,
            "all",
            null="random",
            without=without,
        ),
        Check.judge(
            f"{short:,} and {long:,} steps end alike, to {SIMILAR:g} points",
            alike,
            "all",
            null="untrained",
            without="no step taken",
        ),
    ]


def _scores(scores: Mapping[str, Measured], kept: Sequence[int], asked: Mapping[str, Any]) -> Table:
    printed = PRINTED["li-spectrum"]
    rows: list[tuple[str, float | None, Measured]] = [("untrained", None, scores["untrained"])]
    rows += [(f"first {k}", None, scores[str(k)]) for k in kept]
    rows += [
        (f"{kept[-1]} at random", None, scores["random"]),
        ("all", None, scores["all"]),
        (f"all, {asked['steps']:,} steps", printed["private"], scores["long"]),
        ("all, no noise", printed["public"], scores["public"]),
    ]
    title = (
        f"Accuracy, %, after {asked['short']:,} steps; gradients in these directions, noise in all"
    )
    return Table(("directions", "paper", "ours"), rows, title)


def _values(values: Sequence[np.ndarray], shares: Sequence[float], k: int) -> Table:
    return Table(
        ("singular values", "paper", "ours"),
        [
            (
                "fall as k to the power of",
                -PRINTED["li-spectrum"]["power"],
                Measured.of([-power(each) for each in values], digits=2),
            ),
            (f"share of the square in the first {k}, %", None, Measured.of(100 * np.array(shares))),
        ],
    )


def _figures(values: Sequence[np.ndarray], noise: np.ndarray) -> list[Figure]:
    first = values[0]
    ranks = np.arange(1.0, len(first) + 1)
    fall = power(first)
    fit = math.exp(float(np.log(first).mean())) * np.exp(
        -fall * (np.log(ranks) - float(np.log(ranks).mean()))
    )
    alone = noise[: len(first)] * first[0] / noise[0]
    places, density = spectral_density(first)
    return [
        Figure(
            "Singular values of a run's gradients",
            "k",
            {
                "gradients": (ranks.tolist(), first.tolist()),
                f"k^-{fall:.2f}": (ranks.tolist(), fit.tolist()),
                "of Gaussians, to the same first": (ranks.tolist(), alone.tolist()),
            },
            log=True,
        ),
        Figure(
            "Density of singular values, per power of ten",
            "decimal logarithm of the singular value",
            {"gradients": (np.log10(places).tolist(), density.tolist())},
        ),
    ]
