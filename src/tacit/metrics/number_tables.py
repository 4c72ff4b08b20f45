"""Tables of a regressor: errors and targets, counted at knots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.metrics.bins import dither, signed_knots
from tacit.metrics.counts import Counts, Plain
from tacit.metrics.errors import Errors
from tacit.metrics.tables import Groups, Reading, Tables

FEWEST_GAPS = 12  # between knots of targets: what squares are known up to


@dataclass(frozen=True)
class NumberTables(Tables):
    """Tables of a regressor: residuals, and targets, between bounds.

    A value is counted at one of the two knots beside it, by a coin of its unit's, such that it is
    there on the average: means are then those of the values, and squares too large by what lies
    between.

    Parameters
    ----------
    bounds : (float, float)
        Of the target, public or released.
    cap : float
        Sizes of errors beyond it count as much: public, or released.
    bins : int
        Of residuals, and of targets.
    groups : sequence of str
        Names of groups that are told apart.
    confidence : float
        Of intervals.
    """

    bounds: tuple[float, float]
    cap: float
    bins: int
    groups: Sequence[str] = ("",)
    confidence: float = 0.95

    @property
    def residuals(self) -> np.ndarray:
        """Knots of truth − prediction."""
        return signed_knots(self.cap, self.bins)

    @property
    def targets(self) -> np.ndarray:
        """Knots of the target."""
        return np.linspace(*self.bounds, max(self.bins // 2, FEWEST_GAPS) + 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(self.groups) * len(knots) + 1 for knots in (self.residuals, self.targets))

    def cells(self, truth: np.ndarray, scores: np.ndarray, coins: np.ndarray) -> list[np.ndarray]:
        known = np.isfinite(truth)
        inside, guess = (np.clip(x, *self.bounds) for x in (truth, np.nan_to_num(scores)))
        other = (coins * 2**26) % 1.0  # the lower bits of the same coin
        found = [
            dither(np.where(known, inside - guess, 0.0), self.residuals, coins),
            dither(np.where(known, inside, 0.0), self.targets, other),
        ]
        return [np.where(known, cells, -1) for cells in found]

    def read(self, noisy: Sequence[np.ndarray], deviation: float, total: int | None) -> Groups:
        return Groups(self, [Plain.of(table, deviation, total=total) for table in noisy])

    def reading(self, tables: Sequence[Counts]) -> Reading:
        residuals, targets = tables
        errors = Errors(residuals, targets, self.residuals, self.targets, self.confidence)
        return Reading(errors.figures(), {"error": errors.distribution()})

    def strangeness(self) -> tuple[list[np.ndarray | None], np.ndarray]:
        knots = self.residuals
        sizes = knots[len(knots) // 2 :]
        # Who is counted at a knot has an error up to the next one; beyond the last, any.
        inside = np.abs(knots) <= sizes[:, None] * (1 + 1e-12)
        return [inside.astype(np.float64), None], np.append(sizes[1:], math.inf)
