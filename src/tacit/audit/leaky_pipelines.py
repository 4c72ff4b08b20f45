"""Pipelines that ignore their preprocessing: the leak that motivates this library.

Each does something to the private rows, exactly and for nothing, and then trains by the same
engine with noise for (ε, δ), which it claims for the whole. On the tables here, one row decides
what the preprocessing does to all the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit.audit.neighbouring_tables import Pair, Table
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.plan import CalibratedPlan, Plan
from tacit.preprocessing import ClipNorm, Dedup, PrivateCenter, SoftPCA, Stage
from tacit.privacy.budget import Budget
from tacit.trainers import DPGD

RADIUS = 0.05  # within which rows are duplicates
HALF = math.sqrt(0.5)


def centre(table: Table) -> Table:
    """Rows less their exact mean."""
    return Table(table.rows - table.rows.mean(axis=0), table.labels)


def deduplicate(table: Table) -> Table:
    """Rows without those that lie near an earlier one that was kept."""
    kept: list[int] = []
    for i, row in enumerate(table.rows):
        if all(np.linalg.norm(row - table.rows[j]) > RADIUS for j in kept):
            kept.append(i)
    return Table(table.rows[kept], table.labels[kept])


def components(table: Table, k: int = 1) -> Table:
    """Rows in coordinates of their first k principal components.

    Signs are those that make the largest loading positive, as in scikit-learn.
    """
    centred = table.rows - table.rows.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    largest = np.abs(axes).argmax(axis=1)
    axes *= np.sign(axes[np.arange(len(axes)), largest])[:, None]
    return Table(centred @ axes[:k].T, table.labels)


def _mean_pair(n: int = 64) -> Pair:
    """All rows at one place, and one that draws the mean away."""
    common, labels = np.zeros((n - 1, 2)), np.zeros(n - 1, dtype=int)
    first, second = (np.vstack([[s, 0.0], common]) for s in (1.0, -1.0))
    return Pair("centring", Table(first, np.append(1, labels)), Table(second, np.append(1, labels)))


def _duplicates_pair(d: int = 16) -> Pair:
    """Rows about a target, near it but not near each other (Debenedetti et al. 2023)."""
    about = np.zeros((d - 1, d))
    away = 0.95 * RADIUS
    about[:, 0] = math.sqrt(1 - away**2)
    about[np.arange(d - 1), np.arange(1, d)] = away
    target = np.eye(1, d)
    labels = np.ones(d - 1, dtype=int)
    tables = (np.vstack([row, about]) for row in (target, -target))
    first, second = (Table(rows, np.append(0, labels)) for rows in tables)
    return Pair("dedup", first, second)


def _sign_pair(n: int = 200) -> Pair:
    """Rows along (1, −1), and one that tips which of the two loadings is larger."""
    along, across = np.array([HALF, -HALF]), np.array([HALF, HALF])
    signs = np.where(np.arange(n - 1) % 2, 1.0, -1.0)
    common, labels = 0.9 * signs[:, None] * along, (signs > 0).astype(int)
    first, second = (np.vstack([0.7 * (along + s * across), common]) for s in (1.0, -1.0))
    return Pair("pca", Table(first, np.append(1, labels)), Table(second, np.append(1, labels)))


@dataclass(frozen=True)
class LeakyPipeline:
    """One such pipeline.

    Attributes
    ----------
    name : str
    description : str
        What it does, in words.
    prepare : callable
        What it does to a table.
    pair : Pair
        Raw tables on which it leaks.
    ours : tuple of Stage
        Stages that do the same and pay for it.
    """

    name: str
    description: str
    prepare: Callable[[Table], Table]
    pair: Pair
    ours: tuple[Stage, ...]

    def plan(self, epsilon: float, delta: float) -> CalibratedPlan:
        """What it claims: training on rows of norm 1, one of which may be replaced."""
        # With a small clip every row counts fully, wherever the weights are.
        trainer = DPGD(steps=2, learning_rate=0.1, clip=0.1, intercept_fraction=0.1)
        plan = Plan(
            Budget(epsilon, delta), (ClipNorm(1.0),), trainer, get_loss("logistic"), "replace_one"
        )
        columns = self.prepare(self.pair.first).rows.shape[1]
        return plan.calibrate(size=len(self.pair.first.rows), columns=columns, classes=2)

    def prepared(self) -> Pair:
        """The tables as training sees them."""
        return Pair(self.name, self.prepare(self.pair.first), self.prepare(self.pair.second))


LEAKY_PIPELINES: dict[str, LeakyPipeline] = {
    item.name: item
    for item in (
        LeakyPipeline(
            "centring",
            "rows less their exact mean",
            centre,
            _mean_pair(),
            (ClipNorm(1.0), PrivateCenter()),
        ),
        LeakyPipeline(
            "dedup",
            "rows without near-duplicates of others",
            deduplicate,
            _duplicates_pair(),
            (ClipNorm(1.0), Dedup(RADIUS, crowd=400)),
        ),
        LeakyPipeline(
            "pca",
            "rows in coordinates of their first principal component",
            components,
            _sign_pair(),
            (ClipNorm(1.0), SoftPCA(0.05)),
        ),
    )
}


def leaky_pipeline(name: str) -> LeakyPipeline:
    """A pipeline by name."""
    if name not in LEAKY_PIPELINES:
        raise InputError(
            f"no leaky pipeline is called {name!r}; there are {', '.join(LEAKY_PIPELINES)}"
        )
    return LEAKY_PIPELINES[name]
