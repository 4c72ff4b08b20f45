"""Which rows a model is trained on and which it is tested on, and the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.rows import can_take
from tacit.data.tables import Table
from tacit.exceptions import InputError, of_rows
from tacit.mechanisms.release import Releases
from tacit.metrics.evaluate import (
    NAME,
    EvaluationPlan,
    most_draws,
    numbers,
    plan_evaluation,
    positions,
    require_groups,
)
from tacit.metrics.evaluation import Evaluation
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event, Gaussian

if TYPE_CHECKING:
    from tacit.linear_model.base import Problem

MOST_FOUND = 64  # classes that may still be found


def require_share(share: Any, trainer: Any) -> float:
    """The share of rows that is set aside, checked.

    Parameters
    ----------
    share : float
        As given.
    trainer : Trainer
        A local one has nobody who could set rows aside.

    Returns
    -------
    float
        Above 0, and at most one half.
    """
    number = isinstance(share, Real) and not isinstance(share, bool)
    if not (number and 0 < float(share) <= 0.5):
        raise InputError(f"holdout={share!r:.80} must lie above 0 and be at most 0.5, such as 0.2")
    if trainer.local:
        raise InputError("holdout= is for rows that somebody holds, and these never leave people")
    return float(share)


@dataclass(frozen=True)
class Split:
    """Rows in two parts, those of one person in the same.

    Attributes
    ----------
    away : ndarray of bool of shape (units,)
        Rows that are tested on, or people.
    public : int
        Number of all of them, or its public stand-in.
    share : float
        Chance of each to be tested on.
    counted : bool
        Whether their number is public; if so, how many are on either side is, too.
    by : mapping of str to sequence, or None
        A column, and values of it that are groups.
    """

    away: np.ndarray
    public: int
    share: float
    counted: bool
    by: Any = None

    def __post_init__(self) -> None:
        if self.by is not None and not (isinstance(self.by, Mapping) and len(self.by) == 1):
            raise InputError("holdout_by= names one column and its values: {'sex': ['f', 'm']}")
        if self.by is not None:
            require_groups(next(iter(self.by.values())))

    @property
    def train_size(self) -> int:
        """Public number of units that are trained on, or its stand-in."""
        if self.counted:
            return int((~self.away).sum())
        return max(round(self.public * (1 - self.share)), 1)

    @property
    def test_size(self) -> int:
        """Public number of units that are tested on, or its stand-in."""
        if self.counted:
            return int(self.away.sum())
        return max(round(self.public * self.share), 1)

    def problems(self, problem: Problem) -> tuple[Problem, Problem]:
        """What is trained on, and what is tested on.

        Parameters
        ----------
        problem : Problem
            All rows and targets, checked.

        Returns
        -------
        Problem, Problem
            Both parts.
        """
        if self.by is not None:
            (column,) = self.by
            table = problem.rows.source
            if not (isinstance(table, Table) and column in table.column_names):
                raise InputError(f"holdout_by names {column!r:.80}, which is no column of a table")
        if not 0 < self.away.sum() < len(self.away):
            few = InputError("there are too few rows to set some of them aside")
            raise few if self.counted else of_rows(few)
        if not can_take(problem.rows):
            raise InputError(
                "rows can be set aside in memory only: pass an array or a data frame, or test "
                "with tacit.metrics.evaluate on a table of its own"
            )
        owners = problem.rows.owners
        away = self.away if owners is None else self.away[owners.codes]
        parts = []
        for index in (np.flatnonzero(~away), np.flatnonzero(away)):
            rows = problem.rows.taken(index)
            if rows.owners is not None:
                rows = replace(rows, owners=rows.owners.renumbered())
            parts.append(problem._replace(rows=rows, values=np.asarray(problem.values)[index]))
        return parts[0], parts[1]

    def draws(self, classes: int) -> int:
        """How many noise values the test draws at most, which does not depend on rows.

        Parameters
        ----------
        classes : int
            Of the model, as far as they are known.

        Returns
        -------
        int
            For as many classes and groups as there may be.
        """
        groups = 1 if self.by is None else len(require_groups(next(iter(self.by.values()))))
        return most_draws(max(classes, MOST_FOUND), groups)

    def spent(self, noise: float) -> tuple[tuple[str, Event], ...]:
        """What the test costs.

        Parameters
        ----------
        noise : float
            Its noise multiplier.

        Returns
        -------
        tuple of (str, Event)
            One release.
        """
        return ((NAME, Gaussian(noise)),)

    def test(
        self,
        model: Any,
        rest: Problem,
        scores: np.ndarray,
        run: Releases,
        *,
        noise: float,
        budget: Budget,
    ) -> Evaluation:
        """Test a fitted model on rows that were set aside.

        Parameters
        ----------
        model : DPLinearModel
            Fitted to the others.
        rest : Problem
            Rows and targets that were set aside.
        scores : ndarray of shape (m,) or (m, classes)
            What the model says of them.
        run : Releases
            What may be drawn.
        noise : float
            Noise multiplier.
        budget : Budget
            Of the fit.

        Returns
        -------
        Evaluation
            Without a certificate: that of the fit covers it.
        """
        groups = None if self.by is None else next(iter(self.by.values()))
        neighbors = "replace_special" if self.counted else "add_or_remove_one"
        plan = plan_evaluation(
            model, self.test_size, budget, neighbors, noise_multiplier=noise, by_values=groups
        )
        names = None
        if self.by is not None:
            (column,) = self.by
            names = rest.rows.source.texts(column)
        return plan.run(self._truth(model, rest, plan), scores, names, run, rest.rows.owners)

    def _truth(self, model: Any, rest: Problem, plan: EvaluationPlan) -> np.ndarray:
        values = np.asarray(rest.values)
        if plan.classes:
            return values if rest.classes is not None else positions(values, plan.classes)
        if rest.finder is not None:
            return numbers(values)
        low, high = model.target_bounds_
        return values.reshape(-1) * (high / 2 - low / 2) + (low / 2 + high / 2)
