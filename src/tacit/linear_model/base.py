"""What classifier and regressor share: a thin shell over a plan."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tacit.data.checks import as_floats, column_of
from tacit.data.cluster import is_dask, read_together
from tacit.data.rows import Rows, each
from tacit.data.schema import Schema, declared_schema
from tacit.data.tables import Table
from tacit.exceptions import InputError, MissingBound, of_rows
from tacit.ledger import Ledger, Reservation
from tacit.linear_model.copies import Copied
from tacit.linear_model.curves import ShapeCurves, shape_curves
from tacit.linear_model.groups import take_groups
from tacit.linear_model.held_out import HELD_OUT_BY, Split, require_share
from tacit.linear_model.inputs import cells_of, has_columns, rows_of, table_types
from tacit.losses import Loss
from tacit.mechanisms.additive import row_products
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Releases
from tacit.metrics.evaluation import Evaluation
from tacit.params import Composed
from tacit.plan import Fit, Plan
from tacit.plan.defaults import (
    enough_rows,
    resolve_relation,
    resolve_stages,
    resolve_trainer,
)
from tacit.plan.fit import apply_stages
from tacit.plan.holdout import held_out
from tacit.plan.targets import PrivateClasses, TargetFinder
from tacit.plan.validate import validate_public_rows
from tacit.preprocessing import (
    Encode,
    PrivateEncode,
    PublicFeatures,
)
from tacit.preprocessing.projection import Projection
from tacit.privacy.budget import Budget
from tacit.privacy.unit import ROW
from tacit.progress import Progress, progress_bar, silent
from tacit.trainers import Trainer
from tacit.trainers.base import is_auto

MOST_COLUMNS = 256  # of numbers, and nothing else: more are pixels, or features of a network
FEW_ROWS = (
    "Rows are too few to find bounds of the columns through noise, so columns are learned from as "
    "they are, and one of large numbers outweighs all others: declare what is public, for instance "
    "bounds={'age': (0, 120)}, or more of it with schema="
)


class Problem(NamedTuple):
    """Rows and targets of a fit, checked; ``classes`` is None where there are none to be known."""

    rows: Rows
    values: Any  # an array, or parts of one on a cluster
    classes: np.ndarray | None
    assumptions: tuple[str, ...]
    schema: Schema | None = None  # of a table as it is, which stages are still to be made for
    finder: TargetFinder | None = None  # of what is not known of the targets

    @property
    def many(self) -> int:
        """Number of classes; 0 for regression."""
        if isinstance(self.finder, PrivateClasses):
            return self.finder.expected
        return 0 if self.classes is None else len(self.classes)

    def targets(self, loss: Loss) -> Any:
        """Targets as a loss takes them, or as they came where something is to be found first."""
        if self.finder is not None:
            return self.values
        return each(self.values, partial(loss.targets, outputs=self.outputs(loss)))

    def outputs(self, loss: Loss) -> int:
        """Scores of a row."""
        return 1 if self.classes is None else loss.outputs(len(self.classes))


class DPLinearModel(Copied, Composed, BaseEstimator):
    """What classifier and regressor share.

    Parameters
    ----------
    epsilon, delta : float
        The budget for everything that touches the rows.
    stages : "auto" or list of stages
        What happens to the rows before training; see `tacit.preprocessing`.
    schema : Schema, dict or path of a YAML file, optional
        What is public of the columns of a table; the rest is found through noise. Columns that it
        does not describe are taken for what their types say.
    bounds : mapping of str to (low, high), or one pair, optional
        Public bounds of columns of numbers, beside those of the schema; one pair is for all.
    categories : mapping of str to sequence, optional
        Public lists of categories, by column.
    shapes : {"auto", True, False}
        Whether a number has an effect that need not be straight: a line between knots. ``"auto"``:
        in tables, if rows are enough for it. Arrays are taken for features that are ready to be
        learned from, and left as they are, unless this is True or something of their columns is
        declared.
    trainer : "auto" or trainer
        See `tacit.trainers`. Settings left at ``"auto"`` follow from public facts.
    neighbors : {"auto", "replace_special", "add_or_remove_one", "replace_one"}
        What it means for two data sets to differ in one row. ``"auto"`` is
        ``"replace_special"``: one row is blanked out, their number is public; with
        a noiseless stage it is ``"replace_one"``, for which those are analysed.
    fit_intercept : bool
        Whether to fit an intercept.
    public_size : int, optional
        Public stand-in for the number of rows, or of people, needed with
        ``"add_or_remove_one"``.
    max_rows_per_group : int, optional
        Protect people with all of their rows, of which so many count at most. Public. Whose rows
        are whose is said by ``groups`` of `fit`, or by the identifier of the schema. Without it,
        every row is taken for a person.
    arithmetic : {"exact", "strict", "fast"}
        ``"exact"`` proves the noise on real computers; ``"strict"`` checks besides,
        step by step, what that proof takes for granted of the machine, in 1.3 to 2.4
        times the time; ``"fast"`` uses float32 and writes "ideal arithmetic assumed"
        into the certificate.
    random_state : int, optional
        Makes a run repeatable *and not private*: for tests. The certificate
        then says "seeded: not for release".
    ledger : Ledger, optional
        The account of the data set, ``Ledger(url, dataset=...)``: the budget is reserved there
        before any noise is drawn, and a fit that would pass the account's limit is refused.
    init : fitted linear model or (coef, intercept), optional
        A *public* model to begin at, on the same columns behind the same stages, as far as those
        are not affine: what another model released, or one fitted to public rows.
    holdout : float, optional
        Chance of every row to be set aside for testing the model: at no cost, since nobody is
        both trained on and tested on. ``evaluation_`` then has figures that may be published.
    holdout_by : mapping of str to sequence, optional
        One column of a table and public values of it: figures of each of these groups.
    verbose : bool
        Show progress.

    Attributes
    ----------
    evaluation_ : Evaluation
        How the model does on rows that were set aside; with ``holdout`` only.
    stages_ : tuple of Stage
        What rows go through before the coefficients meet them: what is not affine, and what
        comes before it; affine stages behind that are folded into the coefficients. Behind
        `Normalize`, as by default, coefficients are for rows of norm one and not for rows as
        passed: the effect of a column then depends on the rest of its row.
    certificate_ : Certificate
        What was spent, on what, under which assumptions.
    plan_ : CalibratedPlan
        What was run; ``plan_.explain()`` says it in words.
    n_features_in_ : int
        Columns of the rows that were fitted.
    """

    intercept_: Any

    def _init(self, problem: Problem, loss: Loss) -> tuple[np.ndarray, np.ndarray] | None:
        """The public model to begin at, for the scores of a loss."""
        raise NotImplementedError

    def _loss_of(self, classes: int) -> Loss:
        """The loss that is minimised, for so many classes."""
        raise NotImplementedError

    def _go(self, budget: Budget, problem: Problem, before: Fit | None = None) -> Self:
        """Fit to a problem, or go on from ``before``."""
        self.__dict__.pop("evaluation_", None)  # of a model that was
        if self.holdout is None and self.holdout_by is not None:
            raise InputError(HELD_OUT_BY)
        loss = self._loss_of(problem.many)
        plan = self._plan(loss, problem.rows, budget, before, problem.schema)
        self._count_fit(budget, self.ledger, self.random_state)
        init = None if before is None else (before.coef, before.intercept)
        if before is None:
            init = self._init(problem, loss)
        if init is None and not problem.rows.distributed:
            plan = self._from_zero(plan)
        if problem.finder is not None:
            plan = replace(plan, target=problem.finder)
        if self.holdout is not None and before is None:
            return self._go_held_out(plan, problem, loss, init)
        fit = self._fit_rows(
            plan,
            problem.rows,
            problem.targets(loss),
            problem.many,
            problem.assumptions if before is None else (),
            init=init,
            before=before,
        )
        self._keep(fit, problem)
        return self

    def _split(self, plan: Plan, rows: Rows, key: Key) -> Split:
        """Which rows are set aside for a test."""
        share = require_share(self.holdout, plan.trainer)
        away = held_out(key, rows.units, share)
        public = self._size(plan.neighbors, rows.units)
        return Split(away, public, share, plan.neighbors, self.holdout_by)

    def _go_held_out(self, plan: Plan, problem: Problem, loss: Loss, init: Any) -> Self:
        """Fit to some of the rows, and test on the others."""
        key, rows = self._key(), problem.rows
        split = self._split(plan, rows, key)
        train, rest = split.problems(problem)
        part = replace(plan, budget=split.training_budget(problem.many, plan.budget))
        calibrated = part.calibrate(size=split.train_size, columns=rows.d, classes=problem.many)
        both = split.held_out_plan(calibrated, problem.many, plan.budget)
        whole = both.account(calibrated)
        whole.validate(train.rows, init)
        how: dict[str, Any] = {"init": init}
        how["assumptions"] = [*problem.assumptions, *self._public_assumptions(rows, init)]
        if warning := calibrated.outlook if init is None else calibrated.shortage:
            logging.getLogger("tacit").warning(warning)  # before anything is spent
        targets = train.targets(loss)

        def test(fit: Fit, run: Releases) -> Evaluation:
            self._keep(fit, train)
            return split.test(self, rest, run, both)

        with progress_bar() if self.verbose else nullcontext(silent) as progress:
            show: Progress = progress

            def fitted(run: Releases, entry: Reservation | None) -> Fit:
                return whole.fit_with(train.rows, targets, run, entry=entry, progress=show, **how)

            fit, found = both.run(whole, fitted, test, key=key, ledger=self.ledger)
        self.evaluation_ = replace(found, certificate=fit.certificate)
        return self

    def _tested(self, evaluation: Evaluation | None) -> Evaluation:
        """The evaluation that was given, or that of rows that were set aside."""
        found = getattr(self, "evaluation_", None) if evaluation is None else evaluation
        if not isinstance(found, Evaluation):
            raise InputError(
                "sets and intervals need a test on rows that the model has not seen: fit with "
                "holdout=0.2, or pass evaluation=tacit.metrics.evaluate(...)"
            )
        if found.classes != tuple(str(name) for name in getattr(self, "classes_", ())):
            raise InputError("evaluation= is that of another model: what it predicts is not this")
        return found

    def _rows_scores(self, rows: Rows) -> np.ndarray:
        """What the model says of rows, for an evaluation."""
        raise NotImplementedError

    def _from_zero(self, plan: Plan) -> Plan:
        """The plan of a fit that begins at zero, to rows at hand: ``"auto"`` may stand for more."""
        task, closed_form = plan.loss.task, not plan.noiseless
        return replace(plan, trainer=resolve_trainer(self.trainer, task, closed_form=closed_form))

    def _auto_trainer(self) -> Trainer:
        return resolve_trainer("auto")

    def _plan(
        self,
        loss: Loss,
        rows: Rows | None = None,
        budget: Budget | None = None,
        before: Fit | None = None,
        schema: Schema | None = None,
    ) -> Plan:
        """The whole plan, or what comes after ``before`` for a budget more."""
        trainer = resolve_trainer(self.trainer)
        given = self.stages if before is None else before.public_stages
        stages = resolve_stages(given, loss.task, trainer, rows, schema, shapes=self.shapes)
        neighbors = resolve_relation(self.neighbors, stages, trainer)
        return Plan(
            budget or self._budget(),
            stages,
            trainer,
            loss,
            neighbors,
            bool(self.fit_intercept),
            self.arithmetic,
            fitted=before is not None,
            unit=ROW if rows is None else rows.unit,
        )

    def _budget(self, epsilon: float | None = None, delta: float | None = None) -> Budget:
        """What a fit spends: the model's own budget, as far as no other is given."""
        return Budget(
            self.epsilon if epsilon is None else epsilon, self.delta if delta is None else delta
        )

    def _before(self) -> Fit:
        """What a budget more is added to."""
        before: Fit | None = getattr(self, "_last", None)
        if before is None:
            raise InputError(
                "a model from a file holds no stages to go on with: fit anew with init=model"
            )
        return before

    def _more(self, epsilon: float | None, delta: float | None) -> Budget:
        """The budget that is added."""
        more = self._budget(epsilon, delta)
        if epsilon is None or delta is None:  # scikit-learn wants this to work
            warnings.warn(
                f"partial_fit spends another epsilon={more.epsilon:g}, delta={more.delta:g} on top "
                "of what this model has cost; say so with epsilon= and delta=",
                stacklevel=3,
            )
        return more

    def _size(self, neighbors: str, n: int) -> int:
        """The public normaliser."""
        public_size = self.public_size
        whole = isinstance(public_size, Integral) and not isinstance(public_size, bool)
        if public_size is not None and not (whole and public_size >= 1):
            raise InputError(f"public_size={public_size!r} must be an integer of at least 1")
        if neighbors == "add_or_remove_one":
            if public_size is None:
                raise MissingBound(
                    "neighbors='add_or_remove_one' keeps the number of rows private and",
                    "public_size=, a public guess of it",
                )
            return int(public_size)
        if public_size not in (None, n):
            what = "rows" if self.max_rows_per_group is None else "people"
            raise InputError(
                f"public_size={public_size}, but there are {n} {what}, a public number"
            )
        return n

    def _require_account(self) -> None:
        """Refuse, before any row is read, a ledger that this fit could not use."""
        if self.ledger is None:
            return
        if not isinstance(self.ledger, Ledger):
            raise InputError(
                f"ledger must be a tacit.Ledger with a data set, not {self.ledger!r:.80}"
            )
        if self.random_state is not None:
            raise InputError(
                "with random_state a run is not private, so no account of it can be kept: leave "
                "out random_state, or the ledger"
            )
        self.ledger.limits()

    def _key(self) -> Key:
        state = self.random_state
        if state is None:
            return Key.fresh()
        if isinstance(state, np.random.RandomState):
            state = state.randint(np.iinfo(np.int32).max)
        elif isinstance(state, np.random.Generator):
            state = state.integers(np.iinfo(np.int64).max)
        return Key.from_seed(state)

    def _rows(self, X: Any, *, reset: bool, **targets: Any) -> tuple[Rows, Any]:
        """Rows of X, checked for the stages to be fitted, or for those that are."""
        stages = self.stages if reset else self.stages_
        return rows_of(self, X, stages, reset=reset, **targets)

    def _declared(self, X: Any, people: int | None = None) -> tuple[Any, Schema | None]:
        """X, read once if it is a table as it is, and what is known of its columns.

        None of rows that are features. ``people`` is how many there are, if rows are theirs.
        """
        told = {"schema": self.schema, "bounds": self.bounds, "categories": self.categories}
        given = [name for name, value in told.items() if value is not None]
        given += ["shapes"] if self.shapes is True else []
        if self.shapes not in ("auto", True, False):
            raise InputError(f"shapes={self.shapes!r:.80} must be 'auto', True or False")
        if not is_auto(self.stages):
            if given:
                raise InputError(
                    f"{given[0]}= is for stages='auto'; stages of your own begin with "
                    "Encode(schema), or with PrivateEncode(schema) where some of it is private"
                )
            return X, None
        if not given and not has_columns(X):
            return X, None
        table = table_types(X)
        here = isinstance(table, Table) and has_columns(X) and not is_dask(X)
        read = table if here else X
        schema = declared_schema(table, **told)
        for remark in schema.remarks():
            logging.getLogger("tacit").warning(remark)
        if given or any(kind.kind != "number" for kind in table.types.values()):
            return read, schema
        if len(schema.columns) > MOST_COLUMNS:
            return X, None
        # Numbers alone could be learned from as they are, where nothing can be found out of them.
        neighbors = resolve_relation(self.neighbors, (), resolve_trainer(self.trainer))
        size = self._size(neighbors, len(read) if people is None else people)
        if enough_rows(schema, size, self._budget(), neighbors):
            return read, schema
        logging.getLogger("tacit").warning(FEW_ROWS)
        return X, None

    def _checked(
        self, X: Any, y: Any, groups: Any, *, reset: bool
    ) -> tuple[Rows, Any, Schema | None]:
        """Rows with their owners, targets, and what is known of the columns of a table."""
        X, y, groups = read_together(X, y, groups)
        seen, owned = take_groups(X, groups, self.schema, self.max_rows_per_group)
        table, schema = self._declared(seen, owned.people) if reset else (seen, None)
        rows, y = self._rows(table, reset=reset, y=y, table=schema is not None)
        return owned.own(rows), y, schema

    def _require_separate(self, X: Any) -> None:
        """Refuse public rows that are the private ones, before those are copied anywhere."""
        stages = self.stages if isinstance(self.stages, list | tuple) else [self.stages]
        validate_public_rows(stages, cells_of(X))

    def _fit_rows(
        self,
        plan: Plan,
        rows: Rows,
        targets: Any,
        classes: int,
        assumptions: Sequence[str],
        *,
        init: tuple[np.ndarray, np.ndarray] | None = None,
        before: Fit | None = None,
    ) -> Fit:
        calibrated = plan.calibrate(
            size=self._size(plan.neighbors, rows.units), columns=rows.d, classes=classes
        )
        assumptions = [
            *assumptions,
            *self._public_assumptions(rows, init if before is None else None),
        ]
        if warning := calibrated.outlook if init is None else calibrated.shortage:
            logging.getLogger("tacit").warning(warning)  # before anything is spent
        key, whole = self._key(), None
        if before is not None:  # composed before anything is spent, since it may be refused
            more = calibrated.certify(key.seeded, plan.stages, assumptions)
            whole = before.certificate.then(more)
        with progress_bar() if self.verbose else nullcontext(silent) as progress:
            show: Progress = progress
            fit = calibrated.run(
                rows,
                targets,
                key=key,
                assumptions=assumptions,
                progress=show,
                ledger=self.ledger,
                init=init,
            )
        if whole is not None:
            said, created = fit.certificate.plan, fit.certificate.created
            said = {**said, "continues": whole.plan["continues"]}
            fit = replace(fit, certificate=replace(whole, plan=said, created=created))
        return fit

    def _public_assumptions(
        self, rows: Rows, init: tuple[np.ndarray, np.ndarray] | None
    ) -> list[str]:
        """What is taken as public besides what every plan says."""
        public = [] if init is None else ["the model that training starts from is public"]
        if isinstance(self.stages, str) and rows.bytes:
            public.append("that the values are bytes, 0 to 255, is public")
        elif isinstance(self.stages, str) and rows.sparse:
            public.append("that the rows are kept as a sparse matrix is public")
        public += [rows.origin] if rows.origin else []
        return public

    def _keep(self, fit: Fit, problem: Problem) -> None:
        self._last = fit
        self.plan_ = fit.plan
        self.certificate_ = fit.certificate
        self.stages_ = fit.stages
        self.coef_ = fit.coef
        self.intercept_ = fit.intercept

    def _scores(self, X: Any) -> np.ndarray:
        """coef_ · stages_(row) + intercept_, for every row: (n, K)."""
        check_is_fitted(self, "coef_")
        if is_dask(X):
            raise InputError(
                "rows of Dask are predicted where they lie: X.map_blocks(model.predict, "
                "drop_axis=1, dtype=...), or X.map_partitions(model.predict) of a data frame"
            )
        return self._linear(self._rows(X, reset=False)[0])

    def _linear(self, rows: Rows) -> np.ndarray:
        """Scores of rows in front of the fitted stages."""
        coef = np.atleast_2d(self.coef_)
        seen = apply_stages(rows, self.stages_)
        if seen.d != coef.shape[1]:
            raise InputError(f"rows have {seen.d} features, the model {coef.shape[1]}")
        return np.concatenate(seen.collected(partial(_products, coef=coef))) + self.intercept_

    def _scored(self, figure: Any, X: Any, y: Any, weights: Any) -> float:
        """A figure of scikit-learn, whose own words about targets would quote them."""
        found = self.predict(X)
        truth = column_of(y, len(found))
        if isinstance(self, RegressorMixin):
            truth = as_floats(truth, "y")
        if weights is not None:
            weights = as_floats(column_of(weights, len(found), "sample_weight"), "sample_weight")
        with suppress(TypeError, ValueError, OverflowError):
            return float(figure(truth, found, sample_weight=weights))
        raise of_rows(
            InputError(
                "y cannot be compared with what is predicted: it must hold values of the same kind"
            )
        )

    def shape_curves(self) -> ShapeCurves:
        """What every column of a table adds to the score, up to a constant, in its own units.

        A score is the sum of these curves and a constant, exactly, as long as nothing that looks
        at a whole row, such as `tacit.preprocessing.Normalize`, is behind the encoding.

        Returns
        -------
        ShapeCurves
            By column: a grid of values, their effects, and that of a missing value; ``plot`` draws
            all of them.
        """
        check_is_fitted(self, "coef_")
        return shape_curves(self.stages_, self.coef_, self.intercept_)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of ``coef_``.

        Parameters
        ----------
        input_features : sequence of str, optional
            Names of the columns of the rows, if those that were fitted had none.

        Returns
        -------
        ndarray of shape (d,)
            A name for every coefficient; ``x0, x1, ...`` where columns were mixed.
        """
        check_is_fitted(self, "coef_")
        count = np.atleast_2d(self.coef_).shape[1]
        names = getattr(self, "feature_names_in_", input_features)
        for stage in self.stages_:
            if isinstance(stage, Encode | PrivateEncode):
                names = stage.feature_names
            elif isinstance(stage, Projection | PublicFeatures):
                names = None  # mixtures of columns, which have no names
        if names is None or len(names) != count:
            names = [f"x{i}" for i in range(count)]
        return np.asarray(names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _products(rows: Rows, coef: np.ndarray) -> np.ndarray:
    """Rows times coefficients, (n, K)."""
    parts = [row_products(chunk, coef) for _, chunk in rows.chunks()]
    return np.concatenate(parts) if parts else np.empty((0, len(coef)))
