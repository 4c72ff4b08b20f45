"""A calibrated plan and its run: stages, sums, training, and the model that comes of it.

What was calibrated is done, and nothing else draws noise.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.arrays import ArraySource
from tacit.data.owners import choose_rows
from tacit.data.rows import Rows, each, followed
from tacit.engine.arithmetic import Arithmetic
from tacit.engine.array_api import ArrayEngine
from tacit.engine.dask import ClusterEngine
from tacit.engine.engine import Engine
from tacit.engine.sensitivity import TARGET, GradientSensitivity
from tacit.exceptions import InputError, PrivateTestError, of_public_facts
from tacit.ledger import Ledger, Reservation
from tacit.ledger.required import require_ledger
from tacit.mechanisms.checksum import check_places
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Draws, Releases
from tacit.plan.certify import assumptions_of, certify, describe
from tacit.plan.explain import explain, outlook, shortage
from tacit.plan.fit import Fit, Prepared
from tacit.plan.propagate import released_norm
from tacit.plan.targets import FoundTarget
from tacit.plan.validate import validate_init, validate_rows
from tacit.preprocessing.base import Context, NoiselessStage, PrivateStage, Stage
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event
from tacit.privacy.ptr import TEST, StabilityTest
from tacit.privacy.relation import Relation
from tacit.privacy.sensitivity.drift import Drift
from tacit.progress import Progress, silent
from tacit.trainers.base import Trainer
from tacit.trainers.settings import PublicFacts

if TYPE_CHECKING:
    from tacit.plan.plan import Plan


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
    test : StabilityTest or None
        The private test of the noiseless stages' conditions, if they have any.
    draws : int
        Discrete Gaussians that will be drawn; 0 with ideal arithmetic.
    found : mapping or None
        What was found out about the targets, through noise; None before it was.
    search : mapping or None
        What this plan was chosen from by private trials, in public words; None if it was not.
    holdout : float or None
        Chance of a unit to be set aside for a test, which the account includes; None without one.
    plan : Plan
        What was asked for.
    columns, classes : int
        Of the table; 0 classes for regression.
    facts : PublicFacts
        What is known before any row is read.
    trainer : GradientTrainer
        With every setting fixed.
    """

    plan: Plan
    columns: int
    classes: int
    facts: PublicFacts
    trainer: Trainer
    stage_noise: dict[int, float]
    noise_multiplier: float
    spent: tuple[tuple[str, Event], ...]
    numerical_delta: float
    drifts: tuple[Drift | None, ...] = ()
    moves: GradientSensitivity | None = None
    test: StabilityTest | None = None
    draws: int = 0
    search: Mapping[str, Any] | None = None
    found: Mapping[str, Any] | None = None
    holdout: float | None = None

    @property
    def arithmetic(self) -> Arithmetic:
        """How sums are taken: rows that move must not jump from integer to integer."""
        asked = Arithmetic(self.plan.arithmetic)
        moved = asked is Arithmetic.EXACT and self.moves is not None
        return Arithmetic.ROUNDED if moved else asked

    def run(
        self,
        rows: Rows,
        targets: Any,
        *,
        key: Key | None = None,
        assumptions: Sequence[str] = (),
        progress: Progress = silent,
        ledger: Ledger | None = None,
        init: tuple[np.ndarray, np.ndarray] | None = None,
        on_gradient: Callable[[np.ndarray], None] | None = None,
        draws: Draws | None = None,
    ) -> Fit:
        """Fit stages and model on private rows, and certify it.

        Training begins at ``init``, public coefficients and intercepts as in `Fit`, or at zero.
        With a ledger, the budget is reserved there before a stage is fitted or any noise drawn,
        and counts as spent from then on, whatever happens. ``on_gradient`` is shown the noisy mean
        gradient of every step, of shape (1, features, outputs); the certificate covers it.
        ``draws`` is for audits, which look on.

        Parameters
        ----------
        rows : Rows
            Private rows, n of them.
        targets : ndarray of shape (n,) or (n, K)
            As the loss takes them.
        key : Key, optional
            Where randomness comes from; a fresh one unless given.
        assumptions : sequence of str
            What the certificate says besides.
        progress : callable
            Told how far it is.
        ledger : Ledger, optional
            Account that the budget is taken from.
        init : (ndarray of shape (K, d), ndarray of shape (K,)), optional
            Public coefficients and intercepts.
        on_gradient : callable, optional
            Shown noisy gradients.
        draws : Draws, optional
            Another source of noise, for audits.

        Returns
        -------
        Fit
            With its certificate.
        """
        if on_gradient is not None and not self.trainer.covers_steps:
            raise InputError(
                f"the event of {self.trainer.name} does not cover the gradients of its steps: "
                "watch DPGD or DPSGD"
            )
        key = key or Key.fresh()
        self.validate(rows, init)
        how: dict[str, Any] = {"assumptions": assumptions, "progress": progress}
        how |= {"init": init, "on_gradient": on_gradient}
        run = self.releases(key, draws)
        if ledger is None:
            return self.fit_with(rows, targets, run, **how)
        entry = self.reserve(ledger, key)
        try:
            fit = self.fit_with(rows, targets, run, entry=entry, **how)
        except PrivateTestError as failed:
            entry.settle("test failed", failed.certificate.digest)
            raise
        entry.settle("model", fit.certificate.digest)
        return fit

    def validate(self, rows: Rows, init: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        """Refuse, before anything is spent, rows or a start that the plan was not made for.

        Parameters
        ----------
        rows : Rows
            Private rows.
        init : (ndarray of shape (K, d), ndarray of shape (K,)), optional
            Public coefficients and intercepts.
        """
        validate_rows(self, rows)
        validate_init(self, init)

    def reserve(self, ledger: Ledger, key: Key) -> Reservation:
        """Set aside in a ledger what this plan will spend.

        Parameters
        ----------
        ledger : Ledger
            Account that the budget is taken from.
        key : Key
            Of the run: a seeded one is refused.

        Returns
        -------
        Reservation
            Which is spent from now on.
        """
        require_ledger(ledger, seeded=key.seeded)
        plan = self.plan
        steps = [stage.name for stage in plan.stages] + [self.trainer.name]
        described: dict[str, Any] = {
            "steps": steps,
            "loss": plan.loss.name,
            plan.unit.plural: self.facts.size,
        }
        if self.search is not None:
            described["search"] = {k: v for k, v in self.search.items() if k != "grid"}
        return ledger.reserve(
            self.spent,
            neighbors=plan.neighbors,
            draws=self.draws,
            failure=0.0 if self.test is None else self.test.delta,
            budget=plan.budget,
            plan={**described, "columns": self.columns, "arithmetic": self.arithmetic},
            unit=plan.unit,
        )

    def releases(self, key: Key, draws: Draws | None = None) -> Releases:
        """What one run may draw: all that was counted, and nothing else.

        Parameters
        ----------
        key : Key
            Where randomness comes from.
        draws : Draws, optional
            Another source of noise, for audits.

        Returns
        -------
        Releases
            From which stages and trainer take tokens.
        """
        return Releases(key, self.spent, draws=draws, unit=self.plan.unit)

    def fit_with(
        self,
        rows: Rows,
        targets: Any,
        run: Releases,
        *,
        assumptions: Sequence[str] = (),
        progress: Progress = silent,
        entry: Reservation | None = None,
        init: tuple[np.ndarray, np.ndarray] | None = None,
        on_gradient: Callable[[np.ndarray], None] | None = None,
    ) -> Fit:
        """Do what was planned, with what a run may draw; nothing else draws noise.

        Parameters
        ----------
        rows : Rows
            Private rows, n of them, which were checked.
        targets : ndarray of shape (n,) or (n, K)
            As the loss takes them.
        run : Releases
            What may be drawn; closed at the end.
        assumptions : sequence of str
            What the certificate says besides.
        progress : callable
            Told how far it is.
        entry : Reservation, optional
            In the ledger.
        init : (ndarray of shape (K, d), ndarray of shape (K,)), optional
            Public coefficients and intercepts.
        on_gradient : callable, optional
            Shown noisy gradients.

        Returns
        -------
        Fit
            With its certificate.
        """
        rows, kept = self.choose(rows, run)
        targets = kept(targets)
        told, found = self.find_target(targets, rows, run)
        seen = told.prepare(rows, run, assumptions=assumptions, progress=progress, entry=entry)
        if found is not None:
            targets, blanked = found.targets, seen.rows.blanked
            gone = found.gone if blanked is None or found.gone is None else found.gone | blanked
            if gone is not None:
                seen = replace(seen, rows=replace(seen.rows, blanked=gone))
        plan = told.resolve(seen)
        engine, facts = plan.engine(seen, targets), plan.facts_for(seen)
        how: dict[str, Any] = {"progress": progress, "moves": plan.moves}
        how["init"] = plan.weights(init, seen)
        if on_gradient is None:
            weights = plan.trainer.train(engine, run, facts, **how)
        else:  # the same, in sight
            weights = plan.trainer.train_group(
                [], engine, [run], facts, **how, on_gradient=on_gradient
            )[0]
        run.close()
        how = {"seeded": run.seeded, "assumptions": assumptions, "entry": entry}
        fit = plan.conclude(seen, weights, **how)
        return fit if found is None else replace(fit, target=found.facts)

    def choose(self, rows: Rows, run: Releases) -> tuple[Rows, Callable[[Any], Any]]:
        """Of people with more rows than count, those that do; everybody's lie together.

        Parameters
        ----------
        rows : Rows
            Private rows.
        run : Releases
            Whose key decides, together with each person's identifier alone.

        Returns
        -------
        rows : Rows
            The same, if they are nobody's in particular.
        kept : callable
            Of what belongs to all rows, such as targets, that which belongs to these.
        """
        if rows.owners is None:
            return rows, lambda values: values
        kept, index = choose_rows(rows, run.public.hashed("rows of people"))
        return kept, partial(followed, before=rows, index=index)

    def find_target(
        self, targets: Any, rows: Rows, run: Releases
    ) -> tuple[CalibratedPlan, FoundTarget | None]:
        """What is found out about the targets, if the plan asks, and the plan that knows it.

        Parameters
        ----------
        targets : ndarray of shape (n,)
            Labels or numbers as they come.
        rows : Rows
            Private rows.
        run : Releases
            What may be drawn.

        Returns
        -------
        plan : CalibratedPlan
            With as many outputs as there are; the same events.
        found : FoundTarget or None
            Targets as the loss takes them, and what was released.
        """
        finder, facts = self.plan.target, self.facts
        if finder is None:
            return self, None
        counted = self.plan.neighbors is not Relation.ADD_OR_REMOVE_ONE
        token = run.token(finder.name).at("target").per_row(rows.one_each())
        how: dict[str, Any] = {"size": facts.size, "counted": counted, "voting": rows.standing}
        found = finder.find(targets, self.plan.loss, token, **how)
        plan = replace(self, found=found.describe())
        if found.classes is not None:
            plan = replace(plan, classes=len(found.classes))
        if found.outputs == facts.outputs:
            return plan, found
        facts = replace(facts, outputs=found.outputs)
        asked, trainer = self.plan.trainer, self.trainer
        if asked.follows and self.moves is None:
            trainer = asked.resolve_again(facts, trainer)
            if trainer.events(1.0, facts) != self.trainer.events(1.0, self.facts):
                trainer = self.trainer
        return replace(plan, facts=facts, trainer=trainer), found

    def resolve(self, prepared: Prepared) -> CalibratedPlan:
        """The same plan with settings for the norm and width of rows that stages have shown.

        Rows of norm R have a mean square of R² − |m|² around their mean m. What is left open by
        the user is chosen again for that length, by the mean that was released, with its noise:
        that is post-processing. Nothing changes that was counted: noise is in clips. A given size
        of the constant feature is in units of the norm that was promised, so all stays as it is.

        Parameters
        ----------
        prepared : Prepared
            What `prepare` gave.

        Returns
        -------
        CalibratedPlan
            With the same events; the same object, if nothing is chosen again.
        """
        facts, asked = self.facts, self.plan.trainer
        plan, d = self, self.columns
        for stage in prepared.fitted:
            d = stage.width(d)
        wider = d != facts.features
        if wider:  # categories that a stage has found: what is counted does not depend on them
            facts = replace(facts, features=d)
            plan = replace(self, facts=facts)
        if not asked.follows or self.moves is not None or facts.task != "classification":
            return plan
        length = released_norm(prepared.fitted, self.columns)
        if length is None or (length == facts.typical_norm and not wider):
            return plan
        if length != facts.typical_norm:
            facts = replace(facts, typical_norm=length, measured=True)
        trainer = asked.resolve_again(facts, self.trainer)
        if trainer.events(1.0, facts) != self.trainer.events(1.0, self.facts):
            return plan
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
        """Fit the stages; what a test finds goes into a certificate.

        Parameters
        ----------
        rows : Rows
            Private rows.
        run : Releases
            What may be drawn.
        assumptions : sequence of str
            What the certificate of a failed test says besides.
        progress : callable
            Told how far it is.
        entry : Reservation, optional
            In the ledger.

        Returns
        -------
        Prepared
            Fitted stages, and rows seen through them.
        """
        plan, size = self.plan, self.facts.size
        strict = self.arithmetic is Arithmetic.STRICT
        fitted: list[Stage] = []  # what maps rows at prediction
        public: list[Stage] = []  # what the certificate may describe
        seen, margin = rows, math.inf
        shown = rows.one_each()  # what private stages count: everybody once
        last = max((i for i, stage in enumerate(plan.stages) if stage.tested), default=-1)
        for i, stage in enumerate(plan.stages):
            progress("stages", i, len(plan.stages))
            stage = copy.copy(stage)
            drift = self.drifts[i] if plan.noiseless else None
            counted = plan.neighbors is not Relation.ADD_OR_REMOVE_ONE
            token = None
            if stage.pays and not plan.fitted:
                token = run.token(stage.name).per_row(shown)
            norm = released_norm(fitted, self.columns)
            context = Context(
                size, token, run.public, tuple(fitted), i, drift, counted, strict, norm
            )
            # Free and public stages are shown no rows: they could not look if they tried.
            looks = isinstance(stage, PrivateStage | NoiselessStage)
            if strict and looks:
                check_places(seen)
            crash = None
            try:
                if not plan.fitted:
                    stage.fit(shown if looks else seen.hidden(), context)
                stage.precompute(seen, context, progress)
                if not stage.keeps_rows:
                    before, seen = seen, stage.through(seen)
                    shown = seen if rows.owners is None else stage.through(shown)
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
                public.append(plan.stages[i])  # what a noiseless stage has seen, nobody is told
                stand_in = stage.release(before, context)
                fitted += [] if stand_in is None else [stand_in]
            else:
                public.append(stage)
                fitted.append(stage)
        progress("stages", len(plan.stages), len(plan.stages))
        changing = [stage for stage in fitted if not stage.keeps_rows]
        shift = changing[-1].shift if self.moves is None and changing else None
        if shift is not None:
            seen = before  # centre implicitly: sparse stays so
        if strict:
            check_places(seen)
        return Prepared(seen, tuple(fitted), tuple(public), shift)

    @property
    def intercept_scaling(self) -> float:
        """Size of the constant feature that carries the intercept; 0 for none."""
        return self.trainer.constant(self.facts.typical_norm) if self.plan.adds_constant else 0.0

    def engine(self, prepared: Prepared, targets: Any) -> Any:
        """Sums over the prepared rows, wherever they are.

        Parameters
        ----------
        prepared : Prepared
            What `prepare` gave.
        targets : ndarray of shape (n,) or (n, K)
            As the loss takes them.

        Returns
        -------
        GradientSource
            Clipped sums of gradients.
        """
        plan = self.plan
        if self.moves is not None and plan.loss.task == "regression":
            targets = each(targets, _in_range)  # what the constants of drift rest on
        make: Any = ClusterEngine if prepared.rows.distributed else Engine
        if self.on_arrays(prepared.rows):
            xp, device = prepared.rows.source.namespace
            make = partial(ArrayEngine, xp=xp, device=device)
        return (self.trainer.source or make)(
            prepared.rows,
            targets,
            plan.loss,
            intercept=self.intercept_scaling,
            arithmetic=self.arithmetic,
            shift=prepared.shift,
            split=self.trainer.split(self.facts),
        )

    def on_arrays(self, rows: Rows) -> bool:
        """Whether sums are taken where arrays of another library are, and not by NumPy.

        Parameters
        ----------
        rows : Rows
            Behind their stages.

        Returns
        -------
        bool
            True if they are such arrays, and the arithmetic is exact or fast.
        """
        return isinstance(rows.source, ArraySource) and self.arithmetic in (
            Arithmetic.EXACT,
            Arithmetic.FAST,
        )

    def weights(
        self, init: tuple[np.ndarray, np.ndarray] | None, prepared: Prepared
    ) -> np.ndarray | None:
        """Coefficients and intercepts of a model as weights (d, K) behind the fitted stages.

        Parameters
        ----------
        init : (ndarray of shape (K, d), ndarray of shape (K,)), or None
            Public coefficients and intercepts.
        prepared : Prepared
            What `prepare` gave.

        Returns
        -------
        ndarray of shape (features, K), or None
            The intercept's row included.
        """
        if init is None:
            return None
        coef, intercept = init
        tail: list[Stage] = []
        for stage in reversed(prepared.fitted):
            if not stage.affine:
                break
            tail.append(stage)
        for stage in reversed(tail):
            coef, intercept = stage.unfold(coef, intercept)
        scaling = self.intercept_scaling
        return np.vstack([coef.T, intercept[None] / scaling]) if scaling else coef.T.copy()

    def facts_for(self, prepared: Prepared) -> PublicFacts:
        """Facts, with what the last stages have to say to steps: scales, or a second moment.

        Parameters
        ----------
        prepared : Prepared
            What `prepare` gave.

        Returns
        -------
        PublicFacts
            For the trainer.
        """
        last = prepared.fitted[-1] if prepared.fitted else None
        if last is None:
            return self.facts
        cones = tuple(cone for stage in prepared.fitted for cone in stage.monotone)
        return replace(self.facts, scales=last.column_scales, moment=last.moment, monotone=cones)

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
        """The model of these weights, and its certificate, of now or of an earlier time.

        Parameters
        ----------
        prepared : Prepared
            What `prepare` gave.
        weights : ndarray of shape (features, K)
            What was trained.
        seeded : bool
            Whether the key was, so that nothing may go out.
        assumptions : sequence of str
            What the certificate says besides.
        entry : Reservation, optional
            In the ledger.
        created : datetime, optional
            When; now unless given.

        Returns
        -------
        Fit
            With its certificate.
        """
        certificate = self.certify(seeded, prepared.public_stages, assumptions, entry, created)
        model = self.fold(prepared, weights)
        return Fit(*model, certificate, self, prepared.public_stages)

    def fold(
        self, prepared: Prepared, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, tuple[Stage, ...]]:
        """What weights say of rows in front of the last stages that are affine.

        Parameters
        ----------
        prepared : Prepared
            What `prepare` gave.
        weights : ndarray of shape (features, K)
            What was trained.

        Returns
        -------
        tuple of (ndarray of shape (K, d), ndarray of shape (K,), tuple of Stage)
            Coefficients, intercepts, and the stages in front of them.
        """
        coef = weights[: self.facts.features].T.copy()
        intercept = (
            weights[-1] * self.intercept_scaling if self.plan.adds_constant else np.zeros(len(coef))
        )
        fitted = list(prepared.fitted)
        while fitted and fitted[-1].affine:
            coef, intercept = fitted.pop().fold(coef, intercept)
        return coef, intercept, tuple(fitted)

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

    def inflation(self, norm: float) -> float:
        """How many times more noise drift asks for, at weights of that norm.

        Parameters
        ----------
        norm : float
            Of the weights.

        Returns
        -------
        float
            At least 1.
        """
        if self.moves is None:
            return 1.0
        return self.trainer.inflation(norm, self.moves)

    def certify(
        self,
        seeded: bool,
        fitted: Sequence[Stage],
        assumptions: Sequence[str] = (),
        entry: Reservation | None = None,
        created: datetime | None = None,
    ) -> Certificate:
        """The certificate of one run with these fitted stages, and its entry in a ledger.

        Parameters
        ----------
        seeded : bool
            Whether the key was, so that nothing may go out.
        fitted : sequence of Stage
            The stages after fitting.
        assumptions : sequence of str
            What the certificate says besides.
        entry : Reservation, optional
            In the ledger.
        created : datetime, optional
            When; now unless given.

        Returns
        -------
        Certificate
            Of the whole plan.
        """
        return certify(self, seeded, fitted, assumptions, entry=entry, created=created)

    def assumptions(self) -> list[str]:
        """What the guarantee takes for granted, in words, besides that a person is one row.

        Returns
        -------
        list of str
            Clauses of the certificate.
        """
        return assumptions_of(self)

    def to_dict(self, fitted: Sequence[Stage] = ()) -> dict[str, Any]:
        """Everything public about the plan, as plain JSON values.

        Parameters
        ----------
        fitted : sequence of Stage
            The stages after fitting, if they are.

        Returns
        -------
        dict
            What the certificate holds as ``plan``.
        """
        return describe(self, fitted)

    @of_public_facts
    def explain(self) -> str:
        """What was chosen and why, in words.

        Returns
        -------
        str
            Sentences, a line each.
        """
        return explain(self)

    @property
    def outlook(self) -> str:
        """What the model cannot be expected to do, from public facts; empty as a rule."""
        return outlook(self)

    @property
    def shortage(self) -> str:
        """Which stages have too few rows for their noise, from public facts; empty as a rule."""
        return shortage(self)


def _in_range(targets: np.ndarray) -> np.ndarray:
    return np.clip(targets, -TARGET, TARGET)
