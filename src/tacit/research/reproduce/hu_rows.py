"""Runs for Hu et al. 2024, Figure 3 and Table 4: private logistic regression on rows of low
rank.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from tacit.data.rows import as_rows
from tacit.exceptions import PrivateTestError
from tacit.losses import get_loss
from tacit.mechanisms import Key
from tacit.plan import CalibratedPlan, Plan
from tacit.preprocessing import ClipNorm, NoiselessPCA, Normalize, PrivatePCA, SoftPCA, Stage
from tacit.privacy import Budget
from tacit.research.instances import Instance, low_rank
from tacit.research.reproduce.together import Scoring, fit_together, scores_of, with_noise
from tacit.trainers import DPGD, DPSGD

DELTA, RANK = 1e-5, 50
BATCH, EPOCHS, RATE, CLIP = 100, 10, 1e-2, 10.0  # appendix F.1 but for the batch, not printed
TRAVEL = (0.3, 1.0, 3.0, 10.0, 30.0)  # rate × clip × steps: how far weights may go


@lru_cache(maxsize=1)
def _unit(n: int, d: int) -> Instance:
    return low_rank(n, d, rank=RANK)


@lru_cache(maxsize=1)
def _raw(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The rows of `low_rank` before they are scaled, labels, components and all eigenvalues."""
    from sklearn.datasets import make_classification

    rows, labels = make_classification(
        n_samples=n,
        n_features=d,
        n_informative=RANK,
        n_redundant=d - RANK,
        n_clusters_per_class=1,
        random_state=0,
    )
    rows += 0.01 * rows.std() * np.random.default_rng(0).normal(size=rows.shape)
    _, values, vectors = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    return rows, labels, vectors[:RANK].T, values**2 / (n - 1)


def facts(n: int, d: int) -> dict[str, float]:
    """Largest norm R and eigengap of the rows as they come, and the gap once they have norm 1."""
    rows, _, _, values = _raw(n, d)
    return {
        "norm": float(np.linalg.norm(rows, axis=1).max()),
        "gap": float(values[RANK - 1] - values[RANK]),
        "unit gap": float(_unit(n, d).facts["gap"]),
    }


def _judge(fit: Scoring, rows: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    margins = scores_of(fit, rows)[:, 0] * (2 * labels - 1)
    return {
        "loss": float(np.logaddexp(0, -margins).mean()),
        "accuracy": float((margins > 0).mean()),
    }


@lru_cache
def _plan(n: int, columns: int, method: str, epsilon: float, norm: float) -> CalibratedPlan:
    """DP-SGD by the settings of appendix F.1, after DP-PCA if that is the method."""
    stages: list[Stage] = [ClipNorm(norm)]
    if method == "dp-pca":
        stages.append(PrivatePCA(n_components=RANK, share=0.5**0.5))  # half of μ²
    trainer = DPSGD(
        steps=EPOCHS * n // BATCH,
        batch_size=float(BATCH),
        learning_rate=RATE,
        clip=CLIP,
        momentum=0.0,
        average="last",
        schedule="constant",
        intercept_fraction=1 / norm,
    )
    loss = get_loss("logistic")
    plan = Plan(Budget(epsilon, DELTA), tuple(stages), trainer, loss, arithmetic="fast")
    return plan.calibrate(size=n, columns=columns, classes=2)


def as_in_the_paper(
    *,
    n: int,
    d: int,
    method: str,
    epsilon: float,
    clipping: float | None,
    inflation: float,
    seed: int,
) -> dict[str, float]:
    """Loss and accuracy on the rows themselves, which keep their size, by the paper's settings.

    The largest norm and, for ``pca``, the components are read off the rows: ``epsilon`` is what
    training may spend, and covers nothing else. The noise of training is ``inflation`` times what
    that takes.
    """
    rows, labels, components, _ = _raw(n, d)
    norm = float(np.linalg.norm(rows, axis=1).max())
    used = rows
    if clipping is not None:
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        used = rows * np.minimum(1.0, clipping * norm / lengths)
    if method == "pca":
        rows, used = rows @ components, used @ components
    calibrated = _plan(n, used.shape[1], method, epsilon, norm)
    louder = with_noise(calibrated, inflation * calibrated.noise_multiplier)
    targets = louder.plan.loss.targets(labels, outputs=1)
    fit = louder.run(as_rows(used), targets, key=Key.from_seed(seed))
    return _judge(fit, rows, labels)


def counted(n: int, d: int, method: str, epsilon: float, seed: int) -> list[float] | str:
    """Excess empirical loss for every way to travel, one row replaced; rows of norm 1."""
    made = _unit(n, d)
    rows, labels = made.rows, made.labels
    assert labels is not None
    stages: dict[str, list[Stage]] = {
        "none": [],
        "dp-pca": [PrivatePCA(n_components=RANK, share=0.5**0.5)],
        "soft-pca": [SoftPCA(0.05)],
        "pca": [NoiselessPCA(RANK, gap=0.9 * float(made.facts["gap"]))],
    }
    loss = get_loss("logistic")
    trainer = DPGD(steps=100, clip=0.5, learning_rate=1.0)
    plan = Plan(
        Budget(epsilon, DELTA), (Normalize(), *stages[method]), trainer, loss, "replace_one"
    ).calibrate(size=n, columns=d, classes=2)
    try:
        fits = fit_together(
            plan,
            rows,
            loss.targets(labels, outputs=1),
            Key.from_seed(seed),
            lambda own: [replace(own, learning_rate=far / 0.5 / 100) for far in TRAVEL],
        )
    except PrivateTestError:
        return "test fails"
    return [_judge(fit, rows, labels)["loss"] - made.least for fit in fits]
