"""A plan: stages, then a trainer, under one budget and one neighbouring relation.

`Plan.calibrate` uses public facts only and leaves nothing open; the result says
what it will spend before any row is read. `CalibratedPlan.run` does what was
calibrated, and nothing else draws noise.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, cast

import numpy as np

from tacit import __version__
from tacit.data.arrays import ArraySource
from tacit.data.memory import require_room
from tacit.data.rows import Rows, each
from tacit.engine.array_api import ArrayEngine, require_device
from tacit.engine.dask import ClusterEngine
from tacit.engine.engine import Engine
from tacit.engine.sensitivity import TARGET, GradientSensitivity
from tacit.exceptions import BudgetError, InputError, PrivateTestError, of_public_facts
from tacit.ledger import Ledger, Reservation
from tacit.losses import Loss
from tacit.mechanisms.checksum import check_places
from tacit.mechanisms.lattice import require_precision
from tacit.mechanisms.noise import Key
from tacit.mechanisms.release import Draws, Releases
from tacit.plan import bounds as chain
from tacit.preprocessing.base import Context, NoiselessStage, PrivateStage, Stage
from tacit.preprocessing.private_center import PrivateCenter
from tacit.preprocessing.public import PublicPrecondition
from tacit.privacy.accounting.accountants import (
    PLD_SLACK,
    accountant_for,
    gaussian_epsilon,
    gaussian_mu,
)
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event, sensitivity
from tacit.privacy.ptr import TEST, Test
from tacit.privacy.sensitivity.drift import Drift
from tacit.progress import Progress, silent
from tacit.trainers.defaults import Facts, noise_left, outlook, prospect
from tacit.trainers.feasible import require_feasible, require_startable
from tacit.trainers.gradient import DPGD, DPSGD, GradientTrainer, is_auto, train_together
from tacit.trainers.sufficient_statistics import Moments

__all__ = ["CalibratedPlan", "Fit", "Plan", "Prepared", "apply_stages"]

MOST = 10**15  # of rows, columns or classes: whole numbers that floats can hold
MOST_NOISE = 1e8  # of a stage, in contributions of a row, which are up to 2^30 lattice units

ARITHMETIC = ("exact", "strict", "fast")


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
    fitted: bool = False  # the stages are: what they released before is not released again
    remarks: tuple[str, ...] = ()  # what public facts chose in place of a stage, in words

    def __post_init__(self) -> None:
        sensitivity(self.neighbors)
        if self.arithmetic not in ARITHMETIC:
            raise InputError(f"arithmetic={self.arithmetic!r} must be one of {ARITHMETIC}")
        for stage in self.stages:
            if not isinstance(stage, Stage):
                raise InputError(f"stages must be stages of tacit.preprocessing, not {stage!r}")
            known = isinstance(stage, PrivateStage | NoiselessStage)
            if stage.kind not in ("free", "public") and not known:
                raise InputError(
                    f"{stage.name} looks at private rows and does not say at what cost"
                )
        if not isinstance(self.trainer, GradientTrainer):
            raise InputError(f"trainer must be one of tacit.trainers, not {self.trainer!r}")
        if self.fitted and self.noiseless:
            raise InputError(
                "what a noiseless stage has learned is private, so nothing can go on from it: fit "
                "anew, or use stages that release what they learn"
            )
        if not self.fit_intercept and any(stage.carries_constant for stage in self.stages):
            raise InputError(
                "a stage appends the constant feature that carries the intercept: leave out its "
                "constant, or fit an intercept"
            )
        chain.check(self.stages, self.neighbors)
        chain.suits(self.stages, self.trainer, self.neighbors, self.arithmetic)
        if self.noiseless and self.arithmetic == "strict":
            raise InputError(
                "arithmetic='strict' checks sums of integers; rows behind a noiseless stage are "
                "not "
                "rounded to integers, so use arithmetic='exact', or stages without a noiseless one"
            )
        if self.arithmetic == "strict" and not self.trainer.takes_strict:
            raise InputError(
                f"arithmetic='strict' does not check everything that {self.trainer.name} sums: use "
                "arithmetic='exact', or DPGD or DPSGD"
            )

    @property
    def noiseless(self) -> bool:
        """Whether any stage looks at the rows without noise, so that they drift."""
        return any(isinstance(stage, NoiselessStage) for stage in self.stages)

    @property
    def adds_constant(self) -> bool:
        """Whether the trainer adds the feature that carries the intercept; a stage may have."""
        return self.fit_intercept and not any(stage.carries_constant for stage in self.stages)

    def expanded(self, *, size: int, columns: int) -> Plan:
        """The same plan with the stages that public facts choose, where one stands for several."""
        mu = gaussian_mu(self.budget.epsilon, self.budget.delta) / sensitivity(self.neighbors)
        facts: dict[str, Any] = {"size": size, "mu": mu, "intercept": self.fit_intercept}
        stages, remarks = chain.expand(self.stages, columns=columns, **facts)
        if len(stages) == len(self.stages) and all(map(operator.is_, stages, self.stages)):
            return self
        return replace(self, stages=stages, remarks=(*self.remarks, *remarks))

    def stage_noise(self) -> dict[int, float]:
        """Noise multiplier of every stage that pays, by position."""
        unit, mu = sensitivity(self.neighbors), gaussian_mu(self.budget.epsilon, self.budget.delta)
        return {
            i: getattr(stage, "noise_multiplier", None) or unit / (_share(stage) * mu)
            for i, stage in enumerate(self.stages)
            if stage.pays and not self.fitted
        }

    def stage_events(self) -> list[tuple[str, Event]]:
        """What the stages spend that pay, by name."""
        noise = self.stage_noise().items()
        return [(self.stages[i].name, self.stages[i].event(z)) for i, z in noise]

    @of_public_facts
    def calibrate(
        self, *, size: int, columns: int, classes: int = 0, training: float | None = None
    ) -> CalibratedPlan:
        """Fix every setting and all noise from public facts.

        Parameters
        ----------
        size : int
            Number of rows, or the public normaliser that stands for it.
        columns : int
            Columns of the table or array.
        classes : int
            Number of classes; 0 for regression.
        training : float, optional
            What training by itself may cost, as Gaussian μ, whatever the stages leave of the
            budget: for a plan that is one of several trials (`tacit.model_selection.search`).
        """
        if size < 1:
            raise InputError("there are no rows to learn from")
        if max(size, columns, classes) > MOST:
            raise InputError(f"rows, columns and classes must be at most 10**{len(str(MOST)) - 1}")
        expanded = self.expanded(size=size, columns=columns)
        if expanded is not self:
            return expanded.calibrate(
                size=size, columns=columns, classes=classes, training=training
            )
        outputs = self.loss.outputs(classes) if self.loss.task == "classification" else 1
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
        test_share = max((_share(stage) for stage in self.stages if stage.tested), default=0.0)
        spent = math.fsum((unit / (z * mu)) ** 2 for z in noise.values()) + test_share**2
        if spent >= 1:
            raise BudgetError(
                "the stages before training ask for the whole budget; lower their shares",
                remaining=0.0,
            )
        free = (mu * math.sqrt(1 - spent) if training is None else training) / unit
        stages = chain.settle(self.stages, columns=columns, size=size, outputs=outputs, mu=free)
        way = chain.walk(stages, size, columns)
        drift, factor = way.settings()
        last = way.drifts[-1]
        facts = Facts(
            size,
            way.d,
            outputs,
            way.typical,
            free / factor,
            self.loss.task,
            drift,
            loss=self.loss,
            limit=None if last is None else last.bound,
            lean=_lean(stages, noise, way),
        )
        trainer = self.trainer.resolve(facts)
        draws = way.draws + trainer.draws(way.d + self.adds_constant, outputs)
        draws = 0 if self.arithmetic == "fast" else draws + bool(test_share)
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
            test = Test(1 / (test_share * mu), left_over.delta / 10)
            test.require(self.budget.epsilon)
            fixed.append((TEST, test.event))
        moves = None
        if self.noiseless:
            bias = float(trainer.bias) * way.typical if self.adds_constant else 0.0
            moves = way.movement(self.loss, outputs, bias, rounded=self.arithmetic != "fast")
            facts = chain.sampled(facts, trainer, moves, left_over)

        counted = fixed
        if training is not None:
            left_over = Budget(gaussian_epsilon(training, left_over.delta), left_over.delta)
            counted = []

        def events(z: float) -> list[Event]:
            return [event for _, event in (*counted, *trainer.events(z, facts))]

        z = calibrate(events, left_over, self.neighbors)
        listed = (*fixed, *trainer.events(z, facts))
        found = CalibratedPlan(
            replace(self, stages=stages),
            columns,
            classes,
            facts,
            trainer,
            noise,
            z,
            listed,
            slack,
            drifts=way.drifts,
            moves=moves,
            test=test,
            draws=draws,
        )
        require_feasible(trainer, facts, z, bias=found.bias, arithmetic=found.arithmetic)
        return found


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
    drifts : tuple of (Drift or None)
        In front of every stage and, at last, of the trainer; None where rows have no bound.
    moves : GradientSensitivity or None
        What that drift does to the trainer's sums; None without noiseless stages.
    test : Test or None
        The private test of the noiseless stages' conditions, if they have any.
    draws : int
        Discrete Gaussians that will be drawn; 0 with ideal arithmetic.
    search : mapping or None
        What this plan was chosen from by private trials, in public words; None if it was not.
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
    drifts: tuple[Drift | None, ...] = ()
    moves: GradientSensitivity | None = None
    test: Test | None = None
    draws: int = 0
    search: Mapping[str, Any] | None = None

    @property
    def arithmetic(self) -> Literal["exact", "strict", "rounded", "fast"]:
        """How sums are taken: rows that move must not jump from integer to integer."""
        asked = cast(Literal["exact", "strict", "fast"], self.plan.arithmetic)
        return "rounded" if asked == "exact" and self.moves is not None else asked

    def run(
        self,
        rows: Rows,
        targets: Any,
        *,
        key: Key | None = None,
        assumptions: Sequence[str] = (),
        progress: Progress = silent,
        ledger: Ledger | None = None,
        start: tuple[np.ndarray, np.ndarray] | None = None,
        watch: Callable[[np.ndarray], None] | None = None,
        draws: Draws | None = None,
    ) -> Fit:
        """Fit stages and model on private rows, and certify it.

        Training begins at ``start``, public coefficients and intercepts as in `Fit`, or at zero.
        With a ledger, the budget is reserved there before a stage is fitted or any noise drawn,
        and counts as spent from then on, whatever happens. ``watch`` is shown the noisy mean
        gradient of every step, of shape (1, features, outputs); the certificate covers it.
        ``draws`` is for audits, which look on.
        """
        if watch is not None and type(self.trainer) not in (DPGD, DPSGD):
            raise InputError(
                f"the event of {self.trainer.name} does not cover the gradients of its steps: "
                "watch DPGD or DPSGD"
            )
        key = key or Key.fresh()
        self.suits(rows)
        self.starts(start)
        how: dict[str, Any] = {"assumptions": assumptions, "progress": progress}
        how |= {"start": start, "watch": watch}
        run = self.releases(key, draws)
        if ledger is None:
            return self._fit(rows, targets, run, entry=None, **how)
        entry = self.reserve(ledger, key)
        try:
            fit = self._fit(rows, targets, run, entry=entry, **how)
        except PrivateTestError as failed:
            entry.settle("test failed", failed.certificate.digest)
            raise
        entry.settle("model", fit.certificate.digest)
        return fit

    def suits(self, rows: Rows) -> None:
        """Refuse rows that the plan was not made for, before anything is spent."""
        plan, size = self.plan, self.facts.size
        if plan.neighbors != "add_or_remove_one" and rows.n != size:
            raise InputError(f"the plan was calibrated for {size} rows, not {rows.n}")
        if rows.d != self.columns:
            raise InputError(f"the plan was calibrated for {self.columns} columns, not {rows.d}")
        chain.separate(plan.stages, rows)
        chain.require_spread(plan.stages, rows)
        if self._on_arrays(rows):  # before anything is spent
            xp, device = rows.source.namespace
            require_device(xp, device, self.arithmetic)
        if not self.trainer.descends and rows.spread:
            raise InputError(
                f"{self.trainer.name} needs all rows in one place, and they are on the workers of "
                "a cluster: train with DPGD, or pass X.compute()"
            )
        for stage in plan.stages:
            if stage.holds:  # the same
                require_room(rows, stage.name, self.columns)
        if plan.stages and plan.stages[0].first:
            copy.copy(plan.stages[0]).fit(rows.hidden())  # what it cannot take costs nothing

    def starts(self, start: tuple[np.ndarray, np.ndarray] | None) -> None:
        """Refuse, before anything is spent, a start of another shape, or one that is not taken."""
        if start is None:
            return
        if not self.trainer.takes_start:
            raise InputError(f"{self.trainer.name} begins at zero: it takes no model to start from")
        coef = start[0]
        stages, wide = list(self.plan.stages), self.columns
        while stages and stages[-1].affine:
            stages.pop()
        for stage in stages:
            wide = stage.width(wide)
        if coef.shape != (self.facts.outputs, wide):
            raise InputError(
                f"the model to start from has coefficients of shape {coef.shape}, not "
                f"{(self.facts.outputs, wide)}, scores by the columns behind "
                f"{', '.join(stage.name for stage in stages) or 'no stage'}"
            )
        require_startable(*start, self.facts, self.bias)

    def reserve(self, ledger: Ledger, key: Key) -> Reservation:
        """Set aside in a ledger what this plan will spend."""
        if not isinstance(ledger, Ledger):
            raise InputError(f"ledger must be a tacit.Ledger with a data set, not {ledger!r:.80}")
        if key.seeded:
            raise InputError(
                "a seeded run is not private, so no account of it can be kept: leave out "
                "random_state, or the ledger"
            )
        plan = self.plan
        steps = [stage.name for stage in plan.stages] + [self.trainer.name]
        said: dict[str, Any] = {"steps": steps, "loss": plan.loss.name, "rows": self.facts.size}
        if self.search is not None:
            said["search"] = {k: v for k, v in self.search.items() if k != "grid"}
        return ledger.reserve(
            self.spent,
            neighbors=plan.neighbors,
            draws=self.draws,
            failure=0.0 if self.test is None else self.test.delta,
            budget=plan.budget,
            plan={**said, "columns": self.columns, "arithmetic": self.arithmetic},
        )

    def releases(self, key: Key, draws: Draws | None = None) -> Releases:
        """What one run may draw: all that was counted, and nothing else."""
        return Releases(key, self.spent, draws=draws)

    def _fit(
        self,
        rows: Rows,
        targets: Any,
        run: Releases,
        *,
        assumptions: Sequence[str],
        progress: Progress,
        entry: Reservation | None,
        start: tuple[np.ndarray, np.ndarray] | None,
        watch: Callable[[np.ndarray], None] | None,
    ) -> Fit:
        """Do what was planned; nothing else draws noise."""
        seen = self.prepare(rows, run, assumptions=assumptions, progress=progress, entry=entry)
        plan = self.settled(seen)
        engine, facts = plan.engine(seen, targets), plan.facts_for(seen)
        how: dict[str, Any] = {"progress": progress, "moves": plan.moves}
        how["start"] = plan.weights(start, seen)
        if watch is None:
            weights = plan.trainer.train(engine, run, facts, **how)
        else:  # what DPGD and DPSGD do, in sight
            alone = [plan.trainer], [run.token(plan.trainer.name)]
            weights = train_together(engine, *alone, facts, **how, watch=watch)[0]
        run.close()
        how = {"seeded": run.seeded, "assumptions": assumptions, "entry": entry}
        return plan.conclude(seen, weights, **how)

    def settled(self, prepared: Prepared) -> CalibratedPlan:
        """The same plan with settings for rows as long as stages have shown them to be.

        Rows of norm R have a mean square of R² − |m|² around their mean m. What is left open by
        the user is chosen again for that length, by the mean that was released, with its noise:
        that is post-processing. Nothing changes that was counted: noise is in clips. A given size
        of the constant feature is in units of the norm that was promised, so all stays as it is.
        """
        facts, told = self.facts, self.plan.trainer
        follows = told.follows and is_auto(told.bias) and self.moves is None
        if not follows or facts.task != "classification":
            return self
        length = chain.length(prepared.fitted, self.columns)
        if length is None or length == facts.bound:
            return self
        facts = replace(facts, bound=length, settled=True)
        trainer = replace(told, steps=self.trainer.steps).resolve(facts)
        if trainer.events(1.0, facts) != self.trainer.events(1.0, self.facts):
            return self
        return replace(self, facts=facts, trainer=trainer)

    def prepare(
        self,
        rows: Rows,
        run: Releases,
        *,
        assumptions: Sequence[str] = (),
        progress: Progress = silent,
        entry: Reservation | None = None,
    ) -> Prepared:
        """Fit the stages; what a test finds goes into a certificate."""
        plan, size = self.plan, self.facts.size
        strict = self.arithmetic == "strict"
        fitted: list[Stage] = []  # what maps rows at prediction
        told: list[Stage] = []  # what the certificate may describe
        seen, margin = rows, math.inf
        last = max((i for i, stage in enumerate(plan.stages) if stage.tested), default=-1)
        for i, stage in enumerate(plan.stages):
            progress("stages", i, len(plan.stages))
            stage = copy.copy(stage)
            drift = self.drifts[i] if plan.noiseless else None
            counted = plan.neighbors != "add_or_remove_one"
            token = run.token(stage.name) if stage.pays and not plan.fitted else None
            context = Context(size, token, run.public, tuple(fitted), i, drift, counted, strict)
            # Free and public stages are shown no rows: they could not look if they tried.
            looks = isinstance(stage, PrivateStage | NoiselessStage)
            if strict and looks:
                check_places(seen)
            crash = None
            try:
                if not plan.fitted:
                    stage.fit(seen if looks else seen.hidden(), context)
                stage.warm(seen, context, progress)
                before, seen = seen, stage.through(seen)
            except (ArithmeticError, np.linalg.LinAlgError) as error:
                crash = error
            if crash is not None:
                if i <= last:  # rows on which a stage cannot run fail the test like any others
                    self._require_pass(-math.inf, run, assumptions, entry)
                raise crash
            if isinstance(stage, NoiselessStage):
                margin = min(margin, stage.margin)
            if i == last:
                self._require_pass(margin, run, assumptions, entry)
            if isinstance(stage, NoiselessStage):
                told.append(plan.stages[i])  # what a noiseless stage has seen, nobody is told
                stand_in = stage.release(before, context)
                fitted += [] if stand_in is None else [stand_in]
            else:
                told.append(stage)
                fitted.append(stage)
        progress("stages", len(plan.stages), len(plan.stages))
        shift = None
        if self.moves is None and fitted and isinstance(fitted[-1], PrivateCenter):
            seen, shift = before, fitted[-1].mean_  # centre implicitly: sparse stays so
        if strict:
            check_places(seen)
        return Prepared(seen, tuple(fitted), tuple(told), shift)

    @property
    def bias(self) -> float:
        """Size of the constant feature that carries the intercept; 0 for none."""
        size = float(self.trainer.bias) * self.facts.bound
        return size if self.plan.adds_constant else 0.0

    def engine(self, prepared: Prepared, targets: Any) -> Any:
        """Sums over the prepared rows, wherever they are."""
        plan = self.plan
        if self.moves is not None and plan.loss.task == "regression":
            targets = each(targets, _in_range)  # what the constants of drift rest on
        make: Any = ClusterEngine if prepared.rows.spread else Engine
        if self._on_arrays(prepared.rows):
            xp, device = prepared.rows.source.namespace
            make = partial(ArrayEngine, xp=xp, device=device)
        return (make if self.trainer.descends else Moments)(
            prepared.rows,
            targets,
            plan.loss,
            intercept=self.bias,
            arithmetic=self.arithmetic,
            shift=prepared.shift,
            split=self.trainer.split(self.facts),
        )

    def _on_arrays(self, rows: Rows) -> bool:
        """Whether sums are taken where arrays of another library are, and not by NumPy."""
        return isinstance(rows.source, ArraySource) and self.arithmetic in ("exact", "fast")

    def weights(
        self, start: tuple[np.ndarray, np.ndarray] | None, prepared: Prepared
    ) -> np.ndarray | None:
        """Coefficients and intercepts of a model as weights (d, K) behind the fitted stages."""
        if start is None:
            return None
        coef, intercept = start
        tail: list[Stage] = []
        for stage in reversed(prepared.fitted):
            if not stage.affine:
                break
            tail.append(stage)
        for stage in reversed(tail):
            coef, intercept = stage.unfold(coef, intercept)
        bias = self.bias
        return np.vstack([coef.T, intercept[None] / bias]) if bias else coef.T.copy()

    def facts_for(self, prepared: Prepared) -> Facts:
        """Facts, with the public scales of the last stage."""
        last = prepared.fitted[-1] if prepared.fitted else None
        if isinstance(last, PublicPrecondition):
            return replace(self.facts, scales=tuple(last.scale_.tolist()))
        return self.facts

    def conclude(
        self,
        prepared: Prepared,
        weights: np.ndarray,
        *,
        seeded: bool,
        assumptions: Sequence[str] = (),
        entry: Reservation | None = None,
        created: datetime | None = None,
    ) -> Fit:
        """The model of these weights, and its certificate, of now or of an earlier time."""
        coef = weights[: self.facts.features].T.copy()
        intercept = weights[-1] * self.bias if self.plan.adds_constant else np.zeros(len(coef))
        certificate = self.certify(seeded, prepared.told, assumptions, entry, created)
        fitted = list(prepared.fitted)
        while fitted and fitted[-1].affine:
            coef, intercept = fitted.pop().fold(coef, intercept)
        return Fit(coef, intercept, tuple(fitted), certificate, self, prepared.told)

    def _require_pass(
        self, margin: float, run: Releases, assumptions: Sequence[str], entry: Reservation | None
    ) -> None:
        """Propose, test, release: go on only if the noisy margin exceeds the threshold."""
        assert self.test is not None
        test = self.test
        if not run.token(TEST).at("test").above(margin, test.threshold):
            run.close(failed=True)
            stages = [stage.name for stage in self.plan.stages if stage.tested]
            raise PrivateTestError(
                f"the private test of what {' and '.join(stages)} asks of the rows did not pass, "
                "so nothing was trained. Nothing more may be said about the rows, and the budget "
                "is spent. Declare less (a smaller gap or floor, more rows_with_gaps), or use "
                "SoftPCA, strategy='ridge' or 'shrunk-mean', which need no test",
                certificate=self.certify(run.seeded, self.plan.stages, assumptions, entry),
            )

    def certify(
        self,
        seeded: bool,
        fitted: Sequence[Stage],
        assumptions: Sequence[str] = (),
        entry: Reservation | None = None,
        created: datetime | None = None,
    ) -> Certificate:
        """The certificate of one run with these fitted stages, and its entry in a ledger."""
        plan, budget = self.plan, self.plan.budget
        reasons = ["seeded: not for release"] if seeded else []
        cautions = []
        if budget.delta > 1 / self.facts.size:
            cautions.append(
                f"delta = {budget.delta:g} is larger than one over the number of rows, "
                f"{1 / self.facts.size:.3g}: releasing a whole row would be within it"
            )
        cautions += dict.fromkeys(text for stage in fitted for text in stage.cautions())
        return Certificate.issue(
            epsilon=budget.epsilon,
            delta=budget.delta,
            neighbors=plan.neighbors,
            spent=self.spent,
            releasable=not reasons,
            reasons=tuple(reasons),
            assumptions=(*self.assumptions(), *assumptions),
            warnings=tuple(cautions),
            numerical_delta=self.numerical_delta,
            plan=self.to_dict(fitted) | ({} if entry is None else {"ledger": entry.to_dict()}),
            versions=dict(_versions()),
            created=(created or datetime.now(UTC)).isoformat(timespec="seconds"),
        )

    def assumptions(self) -> list[str]:
        """What the guarantee takes for granted, in words, besides that a person is one row."""
        size, plan = self.facts.size, self.plan
        said: list[str] = []
        if plan.neighbors == "add_or_remove_one":
            said.append(f"the normaliser {size} was chosen without looking at the rows")
        else:
            said.append(f"the number of rows, {size}, is public")
        said.append(f"the names and the number of the columns, {self.columns}, are public")
        said.append(
            "all settings of the plan were chosen without looking at the private rows"
            if self.search is None
            else "what was to be tried, and how the number of trials was drawn, were chosen "
            "without looking at the private rows"
        )
        if self.search is not None:
            said.append(
                "how many trials were made, how long they took, and every trial but the best stay "
                "unknown"
            )
        said += [
            f"{stage.name}: {stage.assumption()}" for stage in plan.stages if stage.assumption()
        ]
        paid = [stage.name for stage in plan.stages if stage.pays]
        if plan.fitted and paid:
            said.append(
                f"what {' and '.join(paid)} released before is counted in the certificate that "
                "this one continues"
            )
        said += self.trainer.assumptions()
        if self.moves is not None:
            said.append(
                "what the noiseless stages learned from the rows is kept from everybody, and so is "
                "how "
                "long they took"
            )
        if self.test is not None:
            said.append(
                f"a private test of the stages' conditions passes wrongly with probability "
                f"{self.test.delta:.3g} at most, which delta covers"
            )
        if plan.arithmetic == "fast":
            said.append("ideal arithmetic assumed: sums and noise are in floating point")
        elif self.moves is not None:
            said.append(
                "sums are in float64 with a proven bound on their rounding, which is part of the "
                "sensitivity, and the noise is an exact discrete Gaussian, from AES-256 in counter "
                "mode keyed by the operating system: the guarantee is computational"
            )
        else:
            said.append(
                "sums are exact integers and the noise an exact discrete Gaussian, from AES-256 "
                "in counter mode keyed by the operating system: the guarantee is computational"
            )
            said.append(
                "strict: every product behind a sum was checked, with probability 2^-30 at most "
                "that an error passes, and gradients come from correctly rounded operations"
                if plan.arithmetic == "strict"
                else "elementary functions give a row the same value wherever it stands, and the "
                "linear algebra library adds products in float64"
            )
        return said

    def to_dict(self, fitted: Sequence[Stage] = ()) -> dict[str, Any]:
        """Everything public about the plan, as plain JSON values."""
        stages = []
        for i, stage in enumerate(fitted or self.plan.stages):
            entry = {
                "name": stage.name,
                "kind": stage.kind,
                "parameters": stage.parameters(),
                "note": stage.note(),
            }
            behind = self.drifts[i + 1] if self.drifts and self.plan.noiseless else None
            if behind is not None and behind.total:
                entry["drift"] = behind.to_dict()
            stages.append(entry)
        chosen = {} if self.search is None else {"search": dict(self.search)}
        if self.test is not None:
            chosen["test"] = {"deviation": self.test.deviation, "delta": self.test.delta}
        return {
            "rows": self.facts.size,
            "columns": self.columns,
            "features": self.facts.features,
            "classes": self.classes,
            "loss": self.plan.loss.name,
            "arithmetic": self.arithmetic,
            "intercept": self.plan.fit_intercept,
            "stages": stages,
            "trainer": {"name": self.trainer.name, "parameters": self.trainer.parameters()},
            **chosen,
        }

    @property
    def outlook(self) -> str:
        """What the model cannot be expected to do, from public facts; empty as a rule."""
        trainer, facts = self.trainer, self.facts
        weak = outlook(trainer.signal(facts), facts.size, self.classes, trainer.rows_for)
        return " ".join(text for text in (self.shortage, weak) if text)

    @property
    def shortage(self) -> str:
        """Which stages have too few rows for their noise, from public facts; empty as a rule."""
        d, said = self.columns, []
        for i, stage in enumerate(self.plan.stages):
            if i in self.stage_noise:
                said.append(stage.shortage(self.facts.size, d, self.stage_noise[i]))
            d = stage.width(d)
        return " ".join(text for text in said if text)

    @of_public_facts
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
        lines += plan.remarks
        for i, stage in enumerate(plan.stages):
            lines.append(f"Stage {i + 1}, {stage.name} ({stage.kind}): {self._cost(i)}.")
        if self.test is not None:
            lines.append(
                f"Test: what the stages ask of the rows must hold with {self.test.slack():.3g} "
                "rows to spare to pass 99 times in 100; if it fails, nothing is trained."
            )
        lines += trainer.explain(self.noise_multiplier, facts)
        lines += [self._why()] if trainer.follows and self.moves is None else []
        if self.search is not None:
            lines.append(
                f"Chosen by private trials from {self.search['settings']} settings; about "
                f"{self.search['expected_trials']:.3g} were expected, each with this noise and a "
                "noisy score, and all of them are in the account."
            )
        drawn = [b for _, b in facts.shifts]
        if drawn:
            lines.append(
                "What the noiseless stages do to the rows of everybody else moves a sum of drawn "
                "rows "
                f"by up to {max(drawn):.3g} clips more, {min(drawn):.3g} or less as a rule, which "
                "this noise includes; it grows when the weights grow."
            )
        elif self.moves is not None:
            near, far = (self.inflation(norm) for norm in (1.0, 10.0))
            lines.append(
                "What the noiseless stages do to the rows of everybody else makes every sum "
                f"{near:.3g} times as sensitive at weights of norm 1, {far:.3g} times at norm 10; "
                "the noise follows the weights."
            )
        expected = self.outlook or prospect(trainer.signal(facts), self.classes)
        lines += [f"Outlook: {expected}"] if expected else []
        return "\n".join(lines)

    def _why(self) -> str:
        """What the settings are chosen for, in words."""
        facts, trainer, told = self.facts, self.trainer, self.plan.trainer
        names = ("steps", "learning_rate", "clip", "momentum", "bias")
        if not any(is_auto(getattr(told, name)) for name in names):
            return "Settings: all of them were given."
        length = "as the stages leave it"
        if facts.settled:
            length = "as the released mean shows it"
        elif facts.lean and facts.task == "classification" and is_auto(told.bias):
            length = "and less once a mean is released"
        left = noise_left(trainer, facts)
        constant = f", the constant feature {float(trainer.bias):.3g}" * self.plan.adds_constant
        return (
            f"Settings, where not given: all rows together weigh {facts.size * facts.mu:.4g} times "
            f"the noise. A typical row has norm {facts.bound:.3g}, {length}. The clip is "
            f"{float(trainer.clip) / facts.bound:.2g} of such a row{constant}. Rate and steps are "
            f"to leave noise of {left:.2g} in its score: more would drown what rows say, less "
            "would stop before they have said it." + WANDERING * (trainer.average == "converged")
        )

    def inflation(self, norm: float) -> float:
        """How many times more noise drift asks for, at weights of that norm."""
        if self.moves is None:
            return 1.0
        return self.trainer.deviation(1.0, norm, self.moves) / float(self.trainer.clip)

    def _cost(self, i: int) -> str:
        """What a stage costs, in words."""
        stage, said = self.plan.stages[i], []
        if i in self.stage_noise:
            said.append(f"adds noise of {self.stage_noise[i]:.4g} contributions of a row")
        behind = self.drifts[i + 1]
        if stage.kind == "noiseless" and behind is not None:
            said.append(
                f"one row moves all others by {behind.total:.4g} together, "
                f"{behind.each:.3g} at most each"
            )
        cost = " and ".join(said) or "costs nothing"
        return f"{cost}; {stage.why()}" if stage.why() else cost


WANDERING = (
    " If weights have stopped growing by half of the run, the mean of the rest is returned, which "
    "has less noise than the last."
)


@dataclass(frozen=True)
class Prepared:
    """Rows behind their stages, as the trainer sees them.

    ``fitted`` maps rows at prediction; ``told`` is what a certificate may describe; ``shift`` is a
    public vector that the engine subtracts, so that sparse rows stay sparse.
    """

    rows: Rows
    fitted: tuple[Stage, ...]
    told: tuple[Stage, ...]
    shift: np.ndarray | None


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
    told: tuple[Stage, ...] = ()  # all stages as they were fitted, noiseless ones excepted


def _in_range(targets: np.ndarray) -> np.ndarray:
    return np.clip(targets, -TARGET, TARGET)


def _lean(stages: Sequence[Stage], noise: Mapping[int, float], way: chain.Way) -> float:
    """How far noise leaves the rows from the origin that are centred at last."""
    last = len(stages) - 1
    if last not in noise or not isinstance(stages[last], PrivateCenter):
        return 0.0
    return math.sqrt(way.d) * noise[last] * way.typical / way.size


def _share(stage: Stage) -> float:
    """Part of the plan's μ that a stage spends which pays or is tested."""
    return float(getattr(stage, "share", 0.0))


def apply_stages(rows: Rows, stages: Sequence[Stage]) -> Rows:
    for stage in stages:
        rows = stage.through(rows)
    return rows


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    found = {"tacit": __version__}  # of the code that runs, whatever was last installed
    for name in ("numpy", "scipy", "scikit-learn", "dp-accounting", "cryptography"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
