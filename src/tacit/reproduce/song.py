"""Paper 001: the error of private descent follows the rank; what clipping optimises."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tacit.estimators import DPLinearClassifier
from tacit.instances import clipping_bias
from tacit.losses import clipped, get_loss
from tacit.reproduce.claim import Check, Claim, Figure, Finding, Measured, Table
from tacit.reproduce.work import Work
from tacit.stages import ClipNorm
from tacit.trainers import DPGD

__all__ = ["CLAIMS"]

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
            said = sizes[own] > clip and (sizes[others] < clip).any()
        else:
            said = clip < size and np.ptp(scores[others]) > 0
        (inside if said else outside).append(float(np.abs(jacobian - jacobian.T).max()) / clip)
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
        said = clipping_bias(3, clip).facts["clipped_optimum"]
        rows.append((f"B = {clip:g}", 0.0, round(said, 3), end, cost))
        ends.append(end.mean - said)
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


CLAIMS: tuple[Claim, ...] = (
    Claim(
        name="song-clipping",
        source="paper 001, Theorems D.4, 5.3 and D.5",
        title="What clipping optimises",
        says="With gradients clipped to B < 1/4, logistic regression ends at another minimum, at "
        "2·log(1/B − 1) on the proof's rows, and loses Ω(log(1/B)); clipped softmax gradients are "
        "the gradient of no function at all, whether clipped together or class by class.",
        test=clipping,
    ),
)
