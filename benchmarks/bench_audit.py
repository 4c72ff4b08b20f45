"""Audits of every recipe, twenty times each; of plans that no recipe has, and of pipelines that
ignore their preprocessing, once.

    python benchmarks/bench_audit.py [--repetitions 20] [--epsilon 4] [--only NAME ...] [--quick]
        [--json] [--plot FILE]

Each repetition is an audit with new noise, on the worst neighbours that were found for the recipe:
a lower bound on ε. All of them together hold with 95% confidence: for twenty, each has one of
99.75% (at 95% each, one in twenty may exceed a claim that is true). None should exceed the claim,
and for plans of Gaussian noise alone they should come near it. Naive pipelines should be caught.
About half an hour on two idle cores.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from tacit.audit import audit, audit_leaky, prepare
from tacit.audit.leaky_pipelines import LEAKY_PIPELINES
from tacit.audit.picture import plot_audits
from tacit.losses import get_loss
from tacit.plan import Plan
from tacit.plan.recipes import RECIPES
from tacit.preprocessing import ClipNorm, PrivateEqualize
from tacit.privacy import Budget
from tacit.privacy.accounting.accountants import accountant_for, gaussian_mu
from tacit.research.trainers import GammaSGD, IteratedSGD
from tacit.trainers import DPGD, SufficientStatistics

DELTA = 1e-5
RUNS = 800
#: Where bounds on drift leave room, it takes more runs to come as close.
MORE = {"ptr-pca": 1200}
CALM = {"clip": 0.1, "learning_rate": 0.01, "steps": 2}
#: What no recipe has: stages behind ClipNorm(1.0), trainer, loss, relation, arithmetic.
OTHERS: dict[str, tuple[Any, ...]] = {
    "`PrivateEqualize(0.7)` and `DPGD`": (
        [PrivateEqualize(0.7)],
        DPGD(**CALM),
        "logistic",
        "replace_special",
        "exact",
    ),
    "`SufficientStatistics`": ([], SufficientStatistics(), "squared", "replace_special", "exact"),
    "`GammaSGD`, all rows": (
        [],
        GammaSGD(batch_size=16.0, **CALM),
        "logistic",
        "replace_special",
        "fast",
    ),
    "`IteratedSGD`, 2 steps": (
        [],
        IteratedSGD(steps=2, clip=0.1),
        "logistic",
        "replace_one",
        "fast",
    ),
}


def measure(
    names: list[str], repetitions: int, epsilon: float, *, quick: bool, jobs: int, plot: str | None
) -> dict[str, Any]:
    found, drawn = [], []
    for name in (name for name in RECIPES if name in names):
        _, plan = prepare(name, epsilon=epsilon, delta=DELTA)
        runs = 200 if quick else MORE.get(name, RUNS)
        each = {"runs": runs, "confidence": 1 - 0.05 / repetitions, "jobs": jobs}
        audits = [audit(plan, **each, seed=i) for i in range(repetitions)]
        lower = np.array([one.lower for one in audits])
        events = [event for _, event in plan.spent]
        row = {
            "recipe": name,
            "neighbors": plan.plan.neighbors,
            "account": accountant_for(events),
            "claimed": epsilon,
            "runs": runs,
            "repetitions": repetitions,
            "held": sum(one.holds for one in audits),
            "median": float(np.median(lower)),
            "least": float(lower.min()),
            "largest": float(lower.max()),
            "lower": lower.tolist(),
        }
        show(row)
        found.append(row)
        drawn.append(sorted(audits, key=lambda one: one.lower)[repetitions // 2])
    naive = []
    for name in (name for name in LEAKY_PIPELINES if name in names):
        caught = audit_leaky(
            name, epsilon=epsilon, delta=DELTA, runs=200 if quick else 800, jobs=jobs, seed=0
        )
        naive.append({"pipeline": name, "claimed": epsilon, "lower": caught.lower})
        show_naive(naive[-1])
        drawn.append(caught)
    if plot is not None:
        plot_audits(drawn, plot)
    others = [audit_other(name, epsilon, quick, jobs) for name in OTHERS if name in names]
    return {"recipes": found, "naive": naive, "others": others}


def audit_other(name: str, epsilon: float, quick: bool, jobs: int) -> dict[str, Any]:
    """One audit; where the account is Gaussian, how far apart the tables are in it."""
    stages, trainer, loss, neighbors, arithmetic = OTHERS[name]
    plan = Plan(
        Budget(epsilon, DELTA),
        (ClipNorm(1.0), *stages),
        trainer,
        get_loss(loss),
        neighbors,
        arithmetic=arithmetic,
    )
    one = audit(plan, runs=200 if quick else 600, jobs=jobs, seed=0)
    account = accountant_for([event for _, event in prepare(plan)[1].spent])
    apart = max(one.details["separation"].values()) / gaussian_mu(epsilon, DELTA)
    row = {
        "plan": name,
        "neighbors": neighbors,
        "account": account,
        "claimed": epsilon,
        "separation": apart if account == "gaussian-dp" else None,
        "lower": one.lower,
    }
    show_other(row)
    return row


def show(row: dict[str, Any]) -> None:
    print(
        f"{row['recipe']:<15}{row['neighbors']:<17}{row['account']:<12} claimed "
        f"{row['claimed']:<4g} held {row['held']} of {row['repetitions']}, lower bound "
        f"{row['least']:.2f} to {row['largest']:.2f}, median {row['median']:.2f} "
        f"({row['median'] / row['claimed']:.0%})",
        flush=True,
    )


def show_naive(row: dict[str, Any]) -> None:
    print(
        f"naive {row['pipeline']:<12} claimed {row['claimed']:<4g} lower bound {row['lower']:.2f} "
        f"({row['lower'] / row['claimed']:.1f} times)",
        flush=True,
    )


def show_other(row: dict[str, Any]) -> None:
    print(
        f"{row['plan']:<35} claimed {row['claimed']:<4g} lower bound {row['lower']:.2f}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--only", action="append", choices=[*RECIPES, *LEAKY_PIPELINES, *OTHERS])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot")
    options = parser.parse_args()
    if options.json:
        for name in ("show", "show_naive", "show_other"):
            globals()[name] = lambda row: None
    result = measure(
        options.only or [*RECIPES, *LEAKY_PIPELINES, *OTHERS],
        options.repetitions,
        options.epsilon,
        quick=options.quick,
        jobs=options.jobs,
        plot=options.plot,
    )
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
