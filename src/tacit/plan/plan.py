"""A plan: stages, then a trainer, under one budget and one neighbouring relation.

`Plan.calibrate` uses public facts only and leaves nothing open; the result says
what it will spend before any row is read. `CalibratedPlan.run` does what was
calibrated, and nothing else draws noise.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any

from tacit.engine.arithmetic import Arithmetic
from tacit.exceptions import BudgetError, InputError, of_public_facts
from tacit.losses import Loss
from tacit.mechanisms.lattice import require_precision
from tacit.plan.propagate import FAILING, expand_stages, propagate_bounds, resolve_settings
from tacit.plan.run import CalibratedPlan
from tacit.plan.targets import TargetFinder
from tacit.plan.validate import validate_monotone, validate_plan
from tacit.preprocessing.base import NoiselessStage, Stage
from tacit.privacy.accounting.accountants import (
    PLD_SLACK,
    accountant_for,
    gaussian_epsilon,
    gaussian_mu,
)
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.events import Event, sensitivity
from tacit.privacy.ptr import TEST, StabilityTest
from tacit.privacy.relation import Neighbors, Relation
from tacit.privacy.unit import ROW, Unit
from tacit.trainers.base import Trainer
from tacit.trainers.settings import PublicFacts

MOST_IN_TABLE = 10**15  # of rows, columns or classes: integers that floats can hold
MOST_NOISE = 1e8  # of a stage, in contributions of a row, which are up to 2^30 lattice units


@dataclass(frozen=True)
class Plan:
    """What is to be done, before any number of rows is known.

    Attributes
    ----------
    budget : Budget
        For everything that touches the rows.
    stages : tuple of Stage
        Before training, in order.
    trainer : GradientTrainer
        What makes weights of rows and targets.
    loss : Loss
        What is minimised.
    neighbors : str
        The relation.
    fit_intercept : bool
        Whether there is an intercept.
    arithmetic : {"exact", "strict", "fast"}
        Whether noise is exact, exact and checked, or in floating point.
    fitted : bool
        Whether the stages are fitted already, and cost nothing.
    remarks : tuple of str
        What `CalibratedPlan.explain` says besides.
    unit : Unit
        Whose contributions are bounded and counted.
    target : TargetFinder or None
        What is found out about the targets first, through noise.
    """

    budget: Budget
    stages: tuple[Stage, ...]
    trainer: Trainer
    loss: Loss
    neighbors: Neighbors = Relation.REPLACE_SPECIAL
    fit_intercept: bool = True
    arithmetic: Arithmetic | str = Arithmetic.EXACT
    fitted: bool = False  # the stages are: what they released before is not released again
    remarks: tuple[str, ...] = ()  # what public facts chose in place of a stage, in words
    unit: Unit = ROW  # of privacy: whose contributions are bounded and counted
    target: TargetFinder | None = None

    def __post_init__(self) -> None:
        validate_plan(self)  # and then names are taken for what they stand for
        object.__setattr__(self, "neighbors", Relation(self.neighbors))
        object.__setattr__(self, "arithmetic", Arithmetic(self.arithmetic))

    @property
    def noiseless(self) -> bool:
        """Whether any stage looks at the rows without noise, so that they drift."""
        return any(isinstance(stage, NoiselessStage) for stage in self.stages)

    @property
    def adds_constant(self) -> bool:
        """Whether the trainer adds the feature that carries the intercept; a stage may have."""
        return self.fit_intercept and not any(stage.carries_constant for stage in self.stages)

    def _outputs(self, classes: int) -> int:
        """Scores of a row."""
        return self.loss.outputs(classes) if self.loss.task == "classification" else 1

    def expanded(self, *, size: int, columns: int, classes: int = 0) -> Plan:
        """The same plan with the stages that public facts choose, where one stands for several.

        Parameters
        ----------
        size, columns : int
            Of the table; ``size`` may be a public stand-in.
        classes : int
            Number of classes; 0 for regression.

        Returns
        -------
        Plan
            The same object, if none stands for several.
        """
        mu = gaussian_mu(self.budget.epsilon, self.budget.delta) / sensitivity(self.neighbors)
        facts: dict[str, Any] = {"size": size, "mu": mu, "intercept": self.fit_intercept}
        facts["takes_moment"] = self.trainer.takes_moment(self.loss, self._outputs(classes))
        stages, remarks = expand_stages(self.stages, columns=columns, **facts)
        target = None if self.target is None else self.target.resolve(size, mu)
        same = len(stages) == len(self.stages) and all(map(operator.is_, stages, self.stages))
        if same and target is self.target:
            return self
        return replace(self, stages=stages, target=target, remarks=(*self.remarks, *remarks))

    def stage_noise(self) -> dict[int, float]:
        """Noise multiplier of every stage that pays, by position.

        Returns
        -------
        dict of int to float
            Multipliers.
        """
        unit, mu = sensitivity(self.neighbors), gaussian_mu(self.budget.epsilon, self.budget.delta)
        return {
            i: getattr(stage, "noise_multiplier", None) or unit / (share_of(stage) * mu)
            for i, stage in enumerate(self.stages)
            if stage.pays and not self.fitted
        }

    def stage_events(self) -> list[tuple[str, Event]]:
        """What the stages spend that pay, by name.

        Returns
        -------
        list of (str, Event)
            In order.
        """
        chances, listed = self.stage_failures(), []
        if self.target is not None:
            listed.append((self.target.name, self.target.event(self.target_noise())))
            if self.target.fails:
                failure = self.target.failure(self._chance(), self.target_noise())
                listed.append((self.target.name, failure))
        for i, z in self.stage_noise().items():
            listed.append((self.stages[i].name, self.stages[i].event(z)))
            if i in chances:
                listed.append((self.stages[i].name, self.stages[i].failure(chances[i], z)))
        return listed

    def stage_failures(self) -> dict[int, float]:
        """Probability of an accident of every stage that may have one, by position.

        Returns
        -------
        dict of int to float
            Probabilities, which are part of δ.
        """
        return dict.fromkeys(self._failing(), self._chance())

    def target_noise(self) -> float:
        """Noise multiplier of what finds out about the targets; 0 if nothing does.

        Returns
        -------
        float
            A multiplier.
        """
        if self.target is None:
            return 0.0
        mu = gaussian_mu(self.budget.epsilon, self.budget.delta)
        return self.target.noise(mu / sensitivity(self.neighbors))

    def _failing(self) -> list[int]:
        return [i for i in self.stage_noise() if self.stages[i].fails]

    def _chance(self) -> float:
        """Probability of an accident of each of those that may have one."""
        count = len(self._failing()) + (self.target is not None and self.target.fails)
        return FAILING * self.budget.delta / max(count, 1)

    @of_public_facts
    def calibrate(
        self, *, size: int, columns: int, classes: int = 0, training: float | None = None
    ) -> CalibratedPlan:
        """Fix every setting and all noise from public facts.

        Parameters
        ----------
        size : int
            Number of rows, or of people, or the public normaliser that stands for it.
        columns : int
            Columns of the table or array.
        classes : int
            Number of classes; 0 for regression.
        training : float, optional
            What training by itself may cost, as Gaussian μ, whatever the stages leave of the
            budget: for a plan that is one of several trials (`tacit.model_selection.search`).

        Returns
        -------
        CalibratedPlan
            Ready to be run.
        """
        if size < 1:
            raise InputError("there are no rows to learn from")
        if max(size, columns, classes) > MOST_IN_TABLE:
            raise InputError(
                f"rows, columns and classes must be at most 10**{len(str(MOST_IN_TABLE)) - 1}"
            )
        expanded = self.expanded(size=size, columns=columns, classes=classes)
        if expanded is not self:
            return expanded.calibrate(
                size=size, columns=columns, classes=classes, training=training
            )
        outputs = self._outputs(classes)
        validate_monotone(self.stages, self.trainer, outputs)
        unit = sensitivity(self.neighbors)
        mu = gaussian_mu(self.budget.epsilon, self.budget.delta)
        noise = self.stage_noise()
        for i, multiplier in noise.items():
            if multiplier > MOST_NOISE:
                raise InputError(
                    f"{self.stages[i].name} would add noise of {multiplier:.3g} contributions of a "
                    f"row; at most {MOST_NOISE:.0e} can be drawn: raise its share, or the budget"
                )
        fixed = self.stage_events()
        # The margin of a test changes by one, whatever the unit of the other noise.
        test_share = max((share_of(stage) for stage in self.stages if stage.tested), default=0.0)
        first = [] if self.target is None else [self.target_noise()]
        paid = [*first, *noise.values()]
        spent = math.fsum((unit / (z * mu)) ** 2 for z in paid) + test_share**2
        if spent >= 1:
            raise BudgetError(
                "the stages before training ask for the whole budget; lower their shares",
                remaining=0.0,
            )
        free = (mu * math.sqrt(1 - spent) if training is None else training) / unit
        stages = resolve_settings(self.stages, columns=columns, size=size, outputs=outputs, mu=free)
        trace = propagate_bounds(stages, size, columns)
        if self.target is not None:
            self.target.require_rows(size, first[0], self._chance())
        chances, d = self.stage_failures(), columns
        for i, stage in enumerate(stages):
            if i in noise:
                stage.require_rows(size, d, noise[i], chances.get(i, 0.0))
            d = stage.width(d)
        drift, factor = trace.settings()
        last = trace.drifts[-1]
        # What changes rows last; what only looks at them stands behind it.
        changing = sum(not stage.keeps_rows for stage in stages)
        center = noise.get(changing - 1)
        facts = PublicFacts(
            size,
            trace.d,
            outputs,
            trace.typical,
            free / factor,
            self.loss.task,
            drift,
            loss=self.loss,
            limit=None if last is None else last.bound,
            mean_noise_norm=0.0
            if center is None
            else stages[changing - 1].mean_noise_norm(center, trace.typical, size, trace.d),
            moment_noise=math.fsum(
                stage.moment_noise(noise.get(i), size, trace.d) for i, stage in enumerate(stages)
            ),
            monotone=tuple(cone for stage in stages for cone in stage.monotone),
            unit=self.unit,
        )
        trainer = self.trainer.resolve(facts)
        most = outputs if self.target is None else self.target.outputs(self.loss)
        draws = trace.draws + trainer.draws(trace.widest + self.adds_constant, most)
        draws += 0 if self.target is None else self.target.draws()
        draws = 0 if self.arithmetic is Arithmetic.FAST else draws + bool(test_share)
        pld = accountant_for([event for _, event in trainer.events(1.0, facts)]) == "pld"
        slack = require_precision(
            self.budget.epsilon,
            self.budget.delta,
            draws,
            grid=PLD_SLACK * pld,
            ideal=not self.noiseless,
        )
        left_over = Budget(self.budget.epsilon, self.budget.delta - slack)
        test = None
        if test_share:
            # δ covers it by a maximum, not a sum. A tenth costs the threshold little and leaves the
            # rest to whatever else is ever fitted to these rows.
            test = StabilityTest(1 / (test_share * mu), left_over.delta / 10)
            test.require(self.budget.epsilon)
            fixed.append((TEST, test.event))
        moves = None
        if self.noiseless:
            intercept_scaling = trainer.constant(trace.typical) if self.adds_constant else 0.0
            exact = self.arithmetic is not Arithmetic.FAST
            moves = trace.movement(self.loss, outputs, intercept_scaling, rounded=exact)
            facts = trainer.account_drift(facts, moves, left_over)

        counted = fixed
        if training is not None:
            left_over = Budget(gaussian_epsilon(training, left_over.delta), left_over.delta)
            counted = []

        def events(z: float) -> list[Event]:
            return [event for _, event in (*counted, *trainer.events(z, facts))]

        z = calibrate(events, left_over, self.neighbors)
        listed = (*fixed, *trainer.events(z, facts))
        calibrated = CalibratedPlan(
            replace(self, stages=stages),
            columns,
            classes,
            facts,
            trainer,
            noise,
            z,
            listed,
            slack,
            drifts=trace.drifts,
            moves=moves,
            test=test,
            draws=draws,
        )
        how: dict[str, Any] = {
            "intercept_scaling": calibrated.intercept_scaling,
            "arithmetic": calibrated.arithmetic,
        }
        trainer.require_feasible(facts, z, **how)
        return calibrated


def share_of(stage: Stage) -> float:
    """Part of the plan's μ that a stage spends which pays or is tested."""
    return float(getattr(stage, "share", 0.0))
