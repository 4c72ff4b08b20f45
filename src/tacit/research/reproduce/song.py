"""Song et al. 2021: the error of private descent follows the rank; what clipping optimises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit.data.rows import as_rows
from tacit.datasets import load_cod_rna
from tacit.engine.engine import Engine
from tacit.linear_model import DPLinearClassifier
from tacit.losses import clipped, get_loss
from tacit.mechanisms.random_streams import Key
from tacit.preprocessing import ClipNorm
from tacit.privacy import Budget
from tacit.privacy.accounting.accountants import epsilon as spent
from tacit.privacy.accounting.calibrate import calibrate
from tacit.research.instances import clipping_bias, fingerprinting
from tacit.research.reproduce.claim import Check, Figure, Finding, Measured, Table
from tacit.research.reproduce.work import Work
from tacit.research.theory import lower
from tacit.research.trainers import GammaSGD
from tacit.trainers import DPGD, DPSGD
from tacit.trainers.descent import rehearsal, train_together
from tacit.trainers.settings import PublicFacts

# song-dimension
BATCH, EPOCHS, DELTA = 250, 10, 1e-5
NOISE: dict[str, tuple[Any, float]] = {"Gaussian": (DPSGD, 0.63), "gamma": (GammaSGD, 0.57)}
RATES = (0.5, 1.0, 2.0, 5.0, 10.0)
COLUMNS = (9, 100, 1_000, 10_000, 50_000)


@lru_cache(1)
def cod_rna() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of 9 columns and norm at most one, as in the paper's appendix E, and labels 0 and 1."""
    train, y, test, y_test = load_cod_rna(download=False)
    # The paper reads these bounds off its training rows; here they pass for public.
    low, high = train.min(axis=0), train.max(axis=0)

    def scaled(data: np.ndarray) -> np.ndarray:
        data = (data - low) / (high - low) - 0.5
        norms = np.linalg.norm(data, axis=1, keepdims=True)
        data = data * np.minimum(1, math.sqrt(8 / 9) / np.maximum(norms, 1e-12))
        return np.hstack([data, np.full((len(data), 1), 1 / 3)])

    return scaled(train), (y > 0).astype(int), scaled(test), (y_test > 0).astype(int)


def padded_columns(kind: str, d: int, rates: Sequence[float], seed: int) -> list[float]:
    """Test accuracy of the last iterate for each rate, with columns of zeros appended."""
    X, y, test, y_test = cod_rna()
    trainer, noise = NOISE[kind]
    n = len(X)
    loss, narrow = get_loss("logistic"), sp.csr_array(X)
    padded = sp.csr_array((narrow.data, narrow.indices, narrow.indptr), shape=(n, d))
    settings = [
        trainer(
            steps=math.ceil(EPOCHS * n / BATCH),
            batch_size=BATCH,
            learning_rate=rate,
            clip=1.0,
            momentum=0.0,
            average="last",
            schedule="constant",
        )
        for rate in rates
    ]
    engine = Engine(as_rows(padded, bound=1.0), loss.targets(y, 1), loss, arithmetic="fast")
    facts = PublicFacts(n, d, 1, 1.0, 1.0)
    key = Key.from_seed(seed)
    tokens = rehearsal(settings, [noise] * len(rates), facts, key)
    weights = train_together(engine, settings, tokens, facts)
    right = (test @ weights[:, :9, 0].T > 0) == (y_test == 1)[:, None]
    return [100 * float(share) for share in right.mean(axis=0)]


def budget_spent(kind: str, n: int) -> float:
    """ε of a run, at δ = 1e-5."""
    trainer, noise = NOISE[kind]
    run = trainer(steps=math.ceil(EPOCHS * n / BATCH), batch_size=BATCH)
    return spent([run.event(noise, PublicFacts(n, 9, 1, 1.0, 1.0))], DELTA, "replace_special")


def dimension(work: Work) -> Finding:
    """Figure 2: Cod-RNA with columns that say nothing."""
    columns, rates = ((9, 10_000), (5.0,)) if work.quick else (COLUMNS, RATES)
    seeds = 1 if work.quick else work.seeds
    settings = [
        {"kind": kind, "d": d, "rates": rates, "seed": seed}
        for kind in NOISE
        for d in columns
        for seed in range(seeds)
    ]
    runs = work.map(padded_columns, settings)
    costs = work.map(budget_spent, [{"kind": kind, "n": len(cod_rna()[0])} for kind in NOISE])
    table: list[list[Any]] = [[f"{d:,} columns"] for d in columns]
    curves, change = {}, {}
    for k, kind in enumerate(NOISE):
        means = []
        for i in range(len(columns)):
            at = (k * len(columns) + i) * seeds
            each = np.array(runs[at : at + seeds])
            best = each[:, each.mean(axis=0).argmax()]
            table[i].append(Measured.of(best, digits=2))
            means.append(float(best.mean()))
        curves[f"{kind} noise"] = (list(map(float, columns)), means)
        change[kind] = means[-1] - means[0]
    flat = max(abs(value - curves["Gaussian noise"][1][0]) for value in curves["Gaussian noise"][1])
    return Finding(
        tables=[
            Table(
                ("Cod-RNA", *(f"{kind} noise" for kind in NOISE)),
                table,
                f"Test accuracy, %; the best of {len(rates)} learning rates, chosen on the outcome",
            )
        ],
        checks=[
            Check("with Gaussian noise it is flat, within a point", flat < 1, f"{flat:.2f} points"),
            Check(
                "with gamma noise it falls, by more than five points",
                change["gamma"] < -5,
                f"{change['gamma']:+.1f} points",
            ),
            Check(
                "both spend ε of about 5",
                all(4 < cost < 6 for cost in costs),
                " and ".join(f"{cost:.2f}" for cost in costs),
            ),
        ],
        figures=[Figure("Cod-RNA with columns of zeros", "columns", curves, log=True)],
        runs=seeds,
    )


# song-lower-bound
HARD = {"n": 5_000, "epsilon": 0.04, "delta": 1e-8}
REACH = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # rate × steps


def hard_instance(rank: int, columns: int, n: int, seed: int) -> dict[str, Any]:
    """Excess of private descent on fingerprinting rows, for each rate; and of saying 0."""
    made = fingerprinting(n, rank, epsilon=HARD["epsilon"], columns=columns, seed=seed)
    steps = 50
    settings = [
        DPGD(
            steps=steps,
            learning_rate=reach / steps,
            clip=1.0,
            momentum=0.0,
            average="uniform",
            schedule="constant",
        )
        for reach in REACH
    ]
    facts = PublicFacts(n, columns, 1, 1.0, 1.0, task="regression")
    noise = calibrate(
        lambda z: [settings[0].event(z, facts)],
        Budget(HARD["epsilon"], HARD["delta"]),
        "replace_one",
    )
    assert made.loss is not None
    targets = made.loss.targets(made.labels, 1)
    rows = as_rows(sp.csr_array(made.rows), bound=1.0)
    engine = Engine(rows, targets, made.loss, arithmetic="fast")
    key = Key.from_seed(seed)
    tokens = rehearsal(settings, [noise] * len(settings), facts, key)
    weights = train_together(engine, settings, tokens, facts)
    return {
        "descent": [made.excess(each[:columns, 0]) for each in weights],
        "zero": made.excess(np.zeros(columns)),
    }


def lower_bound(work: Work) -> Finding:
    """Theorem 3.3: more rank, more error, for everybody."""
    n = 2_000 if work.quick else int(HARD["n"])
    ranks = (5, 20, 80) if work.quick else (5, 10, 20, 40, 80, 160)
    wide = (200, 800)
    draws = (5 if work.quick else 10) * work.seeds  # instances are random, and small
    settings = [
        {"rank": rank, "columns": columns, "n": n, "seed": seed}
        for columns in wide
        for rank in ranks
        for seed in range(draws)
    ]
    runs = work.map(hard_instance, settings)
    rows: list[tuple[str | Measured, ...]] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    means: dict[int, list[float]] = {columns: [] for columns in wide}
    bounds = [
        lower.risk(n, rank, epsilon=HARD["epsilon"], delta=HARD["delta"]).value for rank in ranks
    ]
    best: dict[tuple[int, int], Measured] = {}
    for i, (columns, rank) in enumerate((c, r) for c in wide for r in ranks):
        each = np.array([run["descent"] for run in runs[i * draws : (i + 1) * draws]])
        chosen = each[:, each.mean(axis=0).argmin()]
        best[columns, rank] = Measured.of(chosen, digits=5)
        means[columns].append(float(chosen.mean()))
    for rank, bound in zip(ranks, bounds, strict=True):
        rows.append((f"rank {rank}", f"{bound:.5f}", *(best[columns, rank] for columns in wide)))
    for columns in wide:
        curves[f"private descent, {columns} columns"] = (list(map(float, ranks)), means[columns])
    curves["no algorithm is below"] = (list(map(float, ranks)), bounds)
    slopes = [float(np.polyfit(np.log(ranks), np.log(means[c]), 1)[0]) for c in wide]
    above = min(m / b for c in wide for m, b in zip(means[c], bounds, strict=True))
    alike = max(abs(a / b - 1) for a, b in zip(*means.values(), strict=True))
    return Finding(
        tables=[
            Table(
                ("rows", "paper: at least", *(f"ours, {columns} columns" for columns in wide)),
                rows,
                f"Excess empirical risk, {n:,} rows, ε = {HARD['epsilon']}; rates chosen on the "
                "outcome",
            )
        ],
        checks=[
            Check(
                "the error grows with the rank, in proportion",
                all(slope > 0.7 for slope in slopes),
                " and ".join(f"as rank^{slope:.2f}" for slope in slopes),
            ),
            Check(
                "no error is below the bound",
                above >= 1,
                f"at least {above:.1f} times as large",
            ),
            Check(
                "at one rank, four times the columns change nothing",
                alike < 0.1,
                f"by at most {alike:.1%}",
            ),
        ],
        figures=[Figure("Fingerprinting rows", "rank", curves, log=True)],
        runs=draws,
    )


# song-clipping
CLIPS = (0.24, 0.1, 0.03, 0.01)


def clipped_descent(clip: float, n: int, seed: int) -> dict[str, float]:
    """Where clipped private descent ends on the rows of Theorem D.4, and what that costs."""
    made = clipping_bias(n, clip)
    far = made.facts["clipped_optimum"]
    # Both pulls are B at most, so the rate must follow 1/B for the run to arrive.
    trainer = DPGD(steps=600, clip=clip, learning_rate=0.05 * far / clip, momentum=0.0)
    model = DPLinearClassifier(
        1.0,
        1e-6,
        stages=[ClipNorm(1.0)],
        trainer=trainer,
        fit_intercept=False,
        random_state=seed,
    ).fit(made.rows, made.labels)
    weight = model.coef_.ravel()
    return {"weight": float(weight[0]), "excess": made.excess(weight)}


def asymmetry(classes: int, per_class: bool, trials: int, seed: int) -> dict[str, float]:
    """Of the Jacobian of clipped softmax gradients, where the theorems say so and elsewhere."""
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


def clipping(work: Work) -> Finding:
    """Theorems D.4, 5.3 and D.5."""
    clips, n = (CLIPS[:2], 3_000) if work.quick else (CLIPS, 30_000)
    runs = work.map(clipped_descent, work.over_seeds({"clip": clip, "n": n} for clip in clips))
    rows, ends, costs = [], [], []
    for i, clip in enumerate(clips):
        mine = runs[i * work.seeds : (i + 1) * work.seeds]
        end = Measured.of([run["weight"] for run in mine], digits=2)
        cost = Measured.of([run["excess"] for run in mine], digits=3)
        optimum = clipping_bias(3, clip).facts["clipped_optimum"]
        rows.append((f"B = {clip:g}", 0.0, round(optimum, 3), end, cost))
        ends.append(end.mean - optimum)
        costs.append(cost.mean)
    kinds = [{"classes": k, "per_class": per_class} for per_class in (False, True) for k in (3, 7)]
    found = work.map(asymmetry, [{**kind, "trials": 300, "seed": 0} for kind in kinds])
    fields = [
        (
            f"{kind['classes']} classes, {'each clipped' if kind['per_class'] else 'clipped'}",
            f"{each['least where said']:.2g}",
            f"{each['most elsewhere']:.2g}",
        )
        for kind, each in zip(kinds, found, strict=True)
    ]
    growth = np.polyfit(np.log(1 / np.array(clips)), costs, 1)[0]
    least = min(each["least where said"] for each in found)
    most = max(each["most elsewhere"] for each in found)
    return Finding(
        tables=[
            Table(
                ("clip", "best weight", "paper: clipped minimum", "private descent", "excess loss"),
                rows,
                "Theorem D.4: two rows pull one way, one row the other",
            ),
            Table(
                ("gradients", "least asymmetry where claimed", "most elsewhere"),
                fields,
                "Theorems 5.3 and D.5: the Jacobian of clipped softmax gradients, in clips",
            ),
        ],
        checks=[
            Check(
                "clipped descent ends at 2·log(1/B − 1), not at the best weight 0",
                max(map(abs, ends)) < 0.5,
                f"at most {max(map(abs, ends)):.2f} away",
            ),
            Check(
                "the excess loss grows like log(1/B)",
                growth > 0.1 and all(a < b for a, b in pairwise(costs)),
                f"by {growth:.2f} for each unit of log(1/B)",
            ),
            Check(
                "clipped gradients of three or more classes are the gradient of no function",
                least > 1e-6 and most < 1e-5 * max(least, 1e-3) + 1e-7,
                f"asymmetry at least {least:.1g} where said, elsewhere at most {most:.1g}",
            ),
        ],
        figures=[
            Figure(
                "Excess loss of clipped private descent",
                "1/B",
                {"private descent": ([1 / clip for clip in clips], costs)},
            )
        ],
    )
