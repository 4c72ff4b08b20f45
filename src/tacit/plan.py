"""A plan: stages, then a trainer, under one budget and one neighbouring relation.

`Plan.calibrate` uses public facts only and leaves nothing open; the result says
what it will spend before any row is read. `CalibratedPlan.run` does what was
calibrated, and nothing else draws noise.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from tacit.data.rows import Rows
from tacit.exceptions import BudgetError, InputError, MissingBound
from tacit.losses import Loss
from tacit.mechanisms.lattice import numerical_delta
from tacit.mechanisms.noise import Key
from tacit.privacy.accountants import PLD_SLACK, accountant_for, gaussian_mu
from tacit.privacy.budget import Budget
from tacit.privacy.calibrate import calibrate
from tacit.privacy.certificate import Certificate, Expense
from tacit.privacy.events import Event, sensitivity
from tacit.progress import Progress, silent
from tacit.stages.base import Context, PrivateStage, Stage
from tacit.stages.private import PrivateCenter
from tacit.trainers.auto import Facts
from tacit.trainers.engine import Engine
from tacit.trainers.gradient import GradientTrainer

__all__ = ["CalibratedPlan", "Fit", "Plan", "apply_stages"]

ARITHMETIC = ("exact", "fast")


@dataclass(frozen=True)
class Plan:
    """What is to be done, before any number of rows is known."""

    budget: Budget
    stages: tuple[Stage, ...]
    trainer: GradientTrainer
    loss: Loss
    neighbors: str = "replace_special"
    fit_intercept: bool = True
    arithmetic: str = "exact"

    def __post_init__(self) -> None:
        sensitivity(self.neighbors)
        if self.arithmetic not in ARITHMETIC:
            raise InputError(f"arithmetic={self.arithmetic!r} must be one of {ARITHMETIC}")
        for stage in self.stages:
            if not isinstance(stage, Stage):
                raise InputError(f"stages must be stages of tacit.stages, not {stage!r}")
            if stage.kind not in ("free", "public") and not isinstance(stage, PrivateStage):
                raise InputError(
                    f"{stage.name} looks at private rows and does not say at what cost"
                )
        if not isinstance(self.trainer, GradientTrainer):
            raise InputError(f"trainer must be one of tacit.trainers, not {self.trainer!r}")

    def calibrate(self, *, size: int, columns: int, classes: int = 0) -> CalibratedPlan:
        """Fix every setting and all noise from public facts.

        Parameters
        ----------
        size : int
            Number of rows, or the public normaliser that stands for it.
        columns : int
            Columns of the table or array.
        classes : int
            Number of classes; 0 for regression.
        """
        if size < 1:
            raise InputError("there are no rows to learn from")
        outputs = self.loss.outputs(classes) if self.loss.task == "classification" else 1
        d, bound, draws = columns, None, 0
        for stage in self.stages:
            before = d
            d = stage.width(d)
            bound = stage.typical(bound, before)
            draws += stage.draws(before) if isinstance(stage, PrivateStage) else 0
        if bound is None:
            raise MissingBound(
                "Training", "stages that end in rows of bounded norm, such as ClipNorm(radius)"
            )
        unit = sensitivity(self.neighbors)
        mu = gaussian_mu(self.budget.epsilon, self.budget.delta)
        noise = {
            i: stage.noise_multiplier or unit / (stage.share * mu)
            for i, stage in enumerate(self.stages)
            if isinstance(stage, PrivateStage)
        }
        left = 1.0 - math.fsum((unit / (z * mu)) ** 2 for z in noise.values())
        if left <= 0:
            raise BudgetError(
                "the stages before training ask for the whole budget; lower their shares",
                remaining=0.0,
            )
        facts = Facts(size, d, outputs, bound, mu * math.sqrt(left) / unit, self.loss.task)
        trainer = self.trainer.resolve(facts)
        draws += int(trainer.steps) * (d + self.fit_intercept) * outputs
        slack = numerical_delta(draws, self.budget.epsilon) if self.arithmetic == "exact" else 0.0
        fixed = [
            (stage.name, stage.event(noise[i]))
            for i, stage in enumerate(self.stages)
            if isinstance(stage, PrivateStage)
        ]

        def events(z: float) -> list[Event]:
            return [*(event for _, event in fixed), trainer.event(z, facts)]

        if accountant_for(events(1.0)) == "pld":
            slack += PLD_SLACK
        if slack >= self.budget.delta:
            raise BudgetError(
                f"delta={self.budget.delta:g} is below what can be computed for this plan at "
                f"epsilon={self.budget.epsilon:g}, {slack:.3g}; raise delta, lower epsilon, or "
                "train on full batches"
            )
        left_over = Budget(self.budget.epsilon, self.budget.delta - slack)
        z = calibrate(events, left_over, self.neighbors)
        spent = (*fixed, (trainer.name, trainer.event(z, facts)))
        return CalibratedPlan(self, columns, classes, facts, trainer, noise, z, spent, slack)


@dataclass(frozen=True)
class CalibratedPlan:
    """A plan with every number fixed: what will run, and what it will cost.

    Attributes
    ----------
    stage_noise : dict of int to float
        Noise multiplier of each private stage, by position.
    noise_multiplier : float
        Noise multiplier of the trainer, the one unknown that was solved for.
    spent : tuple of (str, Event)
        Everything that touches private rows, by name.
    numerical_delta : float
        What the noise sampler's own error adds to δ.
    """

    plan: Plan
    columns: int
    classes: int
    facts: Facts
    trainer: GradientTrainer
    stage_noise: dict[int, float]
    noise_multiplier: float
    spent: tuple[tuple[str, Event], ...]
    numerical_delta: float

    def run(
        self,
        rows: Rows,
        targets: np.ndarray,
        *,
        key: Key | None = None,
        assumptions: Sequence[str] = (),
        progress: Progress = silent,
    ) -> Fit:
        """Fit stages and model on private rows, and certify it."""
        key = key or Key.fresh()
        plan, size = self.plan, self.facts.size
        if plan.neighbors != "add_or_remove_one" and rows.n != size:
            raise InputError(f"the plan was calibrated for {size} rows, not {rows.n}")
        if rows.d != self.columns:
            raise InputError(f"the plan was calibrated for {self.columns} columns, not {rows.d}")
        fitted: list[Stage] = []
        seen = rows
        for i, stage in enumerate(plan.stages):
            progress("stages", i, len(plan.stages))
            stage = copy.copy(stage)
            context = Context(size, key, self.stage_noise.get(i), tuple(fitted), i)
            # Only a private stage is shown rows: the others could not look if they tried.
            stage.fit(seen if isinstance(stage, PrivateStage) else seen.hidden(), context)
            fitted.append(stage)
            before, seen = seen, stage.through(seen)
        progress("stages", len(plan.stages), len(plan.stages))
        shift = None
        if fitted and isinstance(fitted[-1], PrivateCenter):  # centre implicitly: sparse stays so
            seen, shift = before, fitted[-1].mean_
        bias = float(self.trainer.bias) * self.facts.bound if plan.fit_intercept else 0.0
        engine = Engine(
            seen,
            targets,
            plan.loss,
            intercept=bias,
            arithmetic="exact" if plan.arithmetic == "exact" else "fast",
            shift=shift,
        )
        weights = self.trainer.train(engine, self.noise_multiplier, self.facts, key, progress)
        coef = weights[: self.facts.features].T.copy()
        intercept = weights[-1] * bias if plan.fit_intercept else np.zeros(len(coef))
        certificate = self.certify(key, fitted, assumptions)
        while fitted and fitted[-1].affine:
            coef, intercept = fitted.pop().fold(coef, intercept)
        return Fit(coef, intercept, tuple(fitted), certificate, self)

    def certify(
        self, key: Key, fitted: Sequence[Stage], assumptions: Sequence[str] = ()
    ) -> Certificate:
        """The certificate of one run with these fitted stages."""
        plan, budget = self.plan, self.plan.budget
        reasons = ["seeded: not for release"] if key.seeded else []
        warnings = []
        if budget.delta > 1 / self.facts.size:
            warnings.append(
                f"delta = {budget.delta:g} is larger than one over the number of rows, "
                f"{1 / self.facts.size:.3g}: releasing a whole row would be within it"
            )
        return Certificate(
            epsilon=budget.epsilon,
            delta=budget.delta,
            neighbors=plan.neighbors,
            events=tuple(Expense.weigh(self.spent, budget.delta, plan.neighbors)),
            releasable=not reasons,
            reasons=tuple(reasons),
            assumptions=(*self.assumptions(), *assumptions),
            warnings=tuple(warnings),
            accountant=accountant_for([event for _, event in self.spent]),
            numerical_delta=self.numerical_delta,
            plan=self.to_dict(fitted),
            versions=_versions(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def assumptions(self) -> list[str]:
        """What the guarantee takes for granted, in words."""
        size, plan = self.facts.size, self.plan
        said = ["every person is one row; somebody with k rows has a k-fold weaker guarantee"]
        if plan.neighbors == "add_or_remove_one":
            said.append(f"the normaliser {size} was chosen without looking at the rows")
        else:
            said.append(f"the number of rows, {size}, is public")
        said.append(f"the names and the number of the columns, {self.columns}, are public")
        said.append("all settings of the plan were chosen without looking at the private rows")
        said += [
            f"{stage.name}: its public rows are public"
            for stage in plan.stages
            if stage.kind == "public"
        ]
        if plan.arithmetic == "exact":
            said.append(
                "sums are exact integers and the noise an exact discrete Gaussian, from AES-256 "
                "in counter mode keyed by the operating system: the guarantee is computational"
            )
            said.append("elementary functions give a row the same value wherever it stands")
        else:
            said.append("ideal arithmetic assumed: sums and noise are in floating point")
        return said

    def to_dict(self, fitted: Sequence[Stage] = ()) -> dict[str, Any]:
        """Everything public about the plan, as plain JSON values."""
        stages = [
            {
                "name": stage.name,
                "kind": stage.kind,
                "parameters": stage.parameters(),
                "note": stage.note(),
            }
            for stage in fitted or self.plan.stages
        ]
        return {
            "rows": self.facts.size,
            "columns": self.columns,
            "features": self.facts.features,
            "classes": self.classes,
            "loss": self.plan.loss.name,
            "arithmetic": self.plan.arithmetic,
            "intercept": self.plan.fit_intercept,
            "stages": stages,
            "trainer": {"name": self.trainer.name, "parameters": self.trainer.parameters()},
        }

    def explain(self) -> str:
        """What was chosen and why, in words."""
        plan, facts, trainer = self.plan, self.facts, self.trainer
        budget = plan.budget
        lines = [
            f"Budget: epsilon = {budget.epsilon:g}, delta = {budget.delta:g}, {plan.neighbors}; "
            f"as Gaussian DP, mu = {gaussian_mu(budget.epsilon, budget.delta):.4g}.",
            f"Rows: {facts.size} of {self.columns} columns; {facts.features} features reach the "
            f"trainer, scores of width {facts.outputs} come out.",
        ]
        for i, stage in enumerate(plan.stages):
            cost = "costs nothing"
            if i in self.stage_noise:
                cost = f"adds noise of {self.stage_noise[i]:.4g} row norms to its sum"
            lines.append(f"Stage {i + 1}, {stage.name} ({stage.kind}): {cost}.")
        q = trainer.sampling_probability(facts)
        sampled = "all rows" if q == 1 else f"each row with probability {q:.3g}"
        lines.append(
            f"Training, {trainer.name}: {trainer.steps} steps on {sampled}, each row's gradient "
            f"clipped to {float(trainer.clip):.3g}, first rate {float(trainer.learning_rate):.3g} "
            f"({trainer.schedule}), momentum {float(trainer.momentum):g}."
        )
        lines.append(
            f"Noise on every step's sum: {self.noise_multiplier:.4g} clipped gradients; on the "
            f"mean gradient that is {self.noise_multiplier / (q * facts.size):.3g} clips a "
            "coordinate."
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class Fit:
    """A model: scores of a row are coef · stages(row) + intercept.

    ``stages`` holds what cannot be folded into the coefficients (scaling a row
    to a norm, encoding a table); all of it is free or public.
    """

    coef: np.ndarray
    intercept: np.ndarray
    stages: tuple[Stage, ...]
    certificate: Certificate
    plan: CalibratedPlan | None = None


def apply_stages(rows: Rows, stages: Sequence[Stage]) -> Rows:
    for stage in stages:
        rows = stage.through(rows)
    return rows


def _versions() -> dict[str, str]:
    found = {}
    for name in ("tacit", "numpy", "scipy", "scikit-learn", "dp-accounting", "cryptography"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
