"""Which rows a model is trained on and which it is tested on, and the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.rows import Rows, followed
from tacit.exceptions import InputError, of_rows
from tacit.mechanisms.lattice import require_precision
from tacit.mechanisms.release import Releases
from tacit.metrics.evaluate import (
    NAME,
    EvaluationPlan,
    evaluation_noise,
    most_draws,
    numbers,
    plan_evaluation,
    positions,
    require_groups,
    warn_if_few,
)
from tacit.metrics.evaluation import Evaluation
from tacit.plan.holdout import HeldOutPlan
from tacit.privacy.budget import Budget
from tacit.privacy.events import Gaussian
from tacit.privacy.relation import Neighbors, Relation

if TYPE_CHECKING:
    from tacit.linear_model.base import Problem

HELD_OUT_BY = "holdout_by= is of rows that are set aside: pass holdout=0.2, too"
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


def texts_of(rows: Rows, column: str) -> np.ndarray:
    """A column of the rows of a table as words.

    Parameters
    ----------
    rows : Rows
        Of a table, as it was read.
    column : str
        Its name.

    Returns
    -------
    ndarray of object, of shape (n,)
        None where one is missing.
    """
    found = [chunk.texts(column) for _, chunk in rows.chunks()]
    return np.concatenate(found) if found else np.empty(0, dtype=object)


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
    neighbors : str
        The relation. Where it makes the number of units public, so is that on either side.
    by : mapping of str to sequence, or None
        A column, and values of it that are groups.
    """

    away: np.ndarray
    public: int
    share: float
    neighbors: Neighbors
    by: Any = None

    def __post_init__(self) -> None:
        if self.by is not None and not (isinstance(self.by, Mapping) and len(self.by) == 1):
            raise InputError("holdout_by= names one column and its values: {'sex': ['f', 'm']}")
        if self.by is not None:
            require_groups(next(iter(self.by.values())))

    @property
    def counted(self) -> bool:
        """Whether the number of units is public."""
        return self.neighbors != Relation.ADD_OR_REMOVE_ONE

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

    @property
    def groups(self) -> int:
        """How many groups are told apart."""
        return 1 if self.by is None else len(require_groups(next(iter(self.by.values()))))

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
            known = getattr(problem.rows.source.empty(), "column_names", ())
            if column not in known:
                raise InputError(f"holdout_by names {column!r:.80}, which is no column of a table")
        if not 0 < self.away.sum() < len(self.away):
            few = InputError("there are too few rows to set some of them aside")
            raise few if self.counted else of_rows(few)
        owners = problem.rows.owners
        away = self.away if owners is None else self.away[owners.codes]
        parts = []
        for index in (np.flatnonzero(~away), np.flatnonzero(away)):
            own = followed(problem.values, replace(problem.rows, owners=None), index)
            rows = problem.rows.part(index)
            if rows.owners is not None:
                rows = replace(rows, owners=rows.owners.renumbered())
            parts.append(problem._replace(rows=rows, values=own))
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
        return most_draws(max(classes, MOST_FOUND), self.groups)

    def held_out_plan(self, plan: Any, classes: int, budget: Budget) -> HeldOutPlan:
        """A calibrated plan, or search, and a test that may cost as much.

        Parameters
        ----------
        plan : CalibratedPlan or CalibratedSearch
            For `training_budget`.
        classes : int
            Of the model, as far as they are known.
        budget : Budget
            All of it.

        Returns
        -------
        HeldOutPlan
            Of both parts.
        """
        draws = self.draws(classes)
        lost = require_precision(budget.epsilon, budget.delta, draws)
        left = Budget(budget.epsilon, budget.delta - plan.numerical_delta)
        noise = evaluation_noise(left, self.neighbors, draws)
        warn_if_few(self.test_size, noise, self.groups)
        return HeldOutPlan(plan, ((NAME, Gaussian(noise)),), draws, lost, self.share, budget)

    def training_budget(self, classes: int, budget: Budget) -> Budget:
        """What training may cost: what finite precision takes is added up over both parts.

        Parameters
        ----------
        classes : int
            Of the model, as far as they are known.
        budget : Budget
            All of it.

        Returns
        -------
        Budget
            Less what drawing the noise of the test takes from δ.
        """
        lost = require_precision(budget.epsilon, budget.delta, self.draws(classes))
        return Budget(budget.epsilon, budget.delta - lost)

    def test(
        self,
        model: Any,
        rest: Problem,
        run: Releases,
        both: HeldOutPlan,
    ) -> Evaluation:
        """Test a fitted model on rows that were set aside.

        Parameters
        ----------
        model : DPLinearModel
            Fitted to the others.
        rest : Problem
            Rows and targets that were set aside.
        run : Releases
            What may be drawn.
        both : HeldOutPlan
            That the test is a part of.

        Returns
        -------
        Evaluation
            Without a certificate: that of the fit covers it.
        """
        groups = None if self.by is None else next(iter(self.by.values()))
        ((_, event),) = both.test
        assert isinstance(event, Gaussian)
        how: dict[str, Any] = {"noise_multiplier": event.noise_multiplier, "by_values": groups}
        plan = plan_evaluation(model, self.test_size, both.budget, self.neighbors, **how)
        names = None
        if self.by is not None:
            (column,) = self.by
            names = np.concatenate(rest.rows.collected(partial(texts_of, column=column)))
        truth, scores = self._truth(model, rest, plan), model._rows_scores(rest.rows)
        return plan.run(truth, scores, names, run, rest.rows.owners)

    def _truth(self, model: Any, rest: Problem, plan: EvaluationPlan) -> np.ndarray:
        values: Any = rest.values
        values = np.asarray(
            np.concatenate(values.gather()) if hasattr(values, "gather") else values
        )
        if plan.classes:
            return values if rest.classes is not None else positions(values, plan.classes)
        if rest.finder is not None:
            return numbers(values)
        low, high = model.target_bounds_
        return values.reshape(-1) * (high / 2 - low / 2) + (low / 2 + high / 2)
