"""scikit-learn estimators: thin shells over a plan."""

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
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from tacit.data.checks import as_floats, column_of
from tacit.data.cluster import is_dask
from tacit.data.dask_rows import Parts
from tacit.data.labels import distinct, labels_of, positions_of, scaled
from tacit.data.rows import Rows, each
from tacit.data.scans import Scan
from tacit.exceptions import InputError, MissingBound, of_rows
from tacit.ledger import Ledger
from tacit.linear_model import warm_start as starting
from tacit.linear_model.inputs import cells_of, rows_of
from tacit.losses import Loss, Softmax, get_loss
from tacit.mechanisms.noise import Key
from tacit.plan import Fit, Plan, apply_stages
from tacit.plan.defaults import resolve_loss, resolve_relation, resolve_stages, resolve_trainer
from tacit.plan.validate import validate_public_rows
from tacit.preprocessing import Encode, PublicFeatures
from tacit.preprocessing.projection import Projection
from tacit.privacy.budget import Budget
from tacit.progress import Progress, progress_bar, silent

__all__ = ["DPLinearClassifier", "DPLinearRegressor"]


class Problem(NamedTuple):
    """Rows and targets of a fit, checked; ``classes`` is None for regression."""

    rows: Rows
    values: Any  # an array, or parts of one on a cluster
    classes: np.ndarray | None
    said: tuple[str, ...]

    @property
    def many(self) -> int:
        """Number of classes; 0 for regression."""
        return 0 if self.classes is None else len(self.classes)

    def targets(self, loss: Loss) -> Any:
        """Targets as a loss takes them."""
        return each(self.values, partial(loss.targets, outputs=self.outputs(loss)))

    def outputs(self, loss: Loss) -> int:
        """Scores of a row."""
        return 1 if self.classes is None else loss.outputs(len(self.classes))


class _DPLinear(BaseEstimator):
    """What classifier and regressor share."""

    intercept_: Any

    def _start(self, problem: Problem, loss: Loss) -> tuple[np.ndarray, np.ndarray] | None:
        """The public model to begin at, for the scores of a loss."""
        raise NotImplementedError

    def _loss_of(self, classes: int) -> Loss:
        """The loss that is minimised, for so many classes."""
        raise NotImplementedError

    def _go(self, budget: Budget, problem: Problem, before: Fit | None = None) -> Self:
        """Fit to a problem, or go on from ``before``."""
        loss = self._loss_of(problem.many)
        plan = self._plan(loss, problem.rows, budget, before)
        start = None if before is None else (before.coef, before.intercept)
        if before is None:
            start = self._start(problem, loss)
        if start is None and not problem.rows.spread:
            plan = self._from_zero(plan)
        fit = self._fit_rows(
            plan,
            problem.rows,
            problem.targets(loss),
            problem.many,
            problem.said if before is None else (),
            start=start,
            before=before,
        )
        self._keep(fit, problem)
        return self

    def _from_zero(self, plan: Plan) -> Plan:
        """The plan of a fit that begins at zero, to rows at hand: ``"auto"`` may stand for more."""
        task, closed_form = plan.loss.task, not plan.noiseless
        return replace(plan, trainer=resolve_trainer(self.trainer, task, closed_form=closed_form))

    def _plan(
        self,
        loss: Loss,
        rows: Rows | None = None,
        budget: Budget | None = None,
        before: Fit | None = None,
    ) -> Plan:
        """The whole plan, or what comes after ``before`` for a budget more."""
        trainer = resolve_trainer(self.trainer)
        given = self.stages if before is None else before.public_stages
        stages = resolve_stages(given, loss.task, trainer, rows)
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
                "a model from a file holds no stages to go on with: fit anew with start=model"
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
        size = self.size
        whole = isinstance(size, Integral) and not isinstance(size, bool)
        if size is not None and not (whole and size >= 1):
            raise InputError(f"size={size!r} must be a whole number of at least 1")
        if neighbors == "add_or_remove_one":
            if size is None:
                raise MissingBound(
                    "neighbors='add_or_remove_one' keeps the number of rows private and",
                    "size=, a public guess of it",
                )
            return int(size)
        if size not in (None, n):
            raise InputError(f"size={size}, but there are {n} rows, a public number")
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
        start: tuple[np.ndarray, np.ndarray] | None = None,
        before: Fit | None = None,
    ) -> Fit:
        calibrated = plan.calibrate(
            size=self._size(plan.neighbors, rows.n), columns=rows.d, classes=classes
        )
        assumptions = [*assumptions, *self._taken(rows, start if before is None else None)]
        if warning := calibrated.outlook if start is None else calibrated.shortage:
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
                start=start,
            )
        if whole is not None:
            said, created = fit.certificate.plan, fit.certificate.created
            said = {**said, "continues": whole.plan["continues"]}
            fit = replace(fit, certificate=replace(whole, plan=said, created=created))
        return fit

    def _taken(self, rows: Rows, start: tuple[np.ndarray, np.ndarray] | None) -> list[str]:
        """What is taken as public besides what every plan says."""
        said = [] if start is None else ["the model that training starts from is public"]
        if isinstance(self.stages, str) and rows.bytes:
            said.append("that the cells are bytes, 0 to 255, is public")
        elif isinstance(self.stages, str) and rows.sparse:
            said.append("that the rows are kept as a sparse matrix is public")
        said += [rows.origin] if rows.origin else []
        return said

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
        rows, _ = self._rows(X, reset=False)
        coef = np.atleast_2d(self.coef_)
        seen = apply_stages(rows, self.stages_)
        if seen.d != coef.shape[1]:
            raise InputError(f"rows have {seen.d} features, the model {coef.shape[1]}")
        parts = [np.asarray(chunk @ coef.T) for _, chunk in seen.chunks()]
        return np.concatenate(parts) + self.intercept_

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

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of ``coef_``."""
        check_is_fitted(self, "coef_")
        count = np.atleast_2d(self.coef_).shape[1]
        names = getattr(self, "feature_names_in_", input_features)
        for stage in self.stages_:
            if isinstance(stage, Encode):
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


class DPLinearClassifier(ClassifierMixin, _DPLinear):
    """A linear classifier whose whole pipeline is (ε, δ)-differentially private.

    By default every row is scaled to unit norm, a private mean is subtracted,
    and noisy gradient descent is run on all rows; one guarantee covers it all.
    Unsigned bytes are taken for intensities, such as pixels: their roots come first. Columns of
    sparse matrices are taken for words, and are brought to one size by private mean squares.

    Parameters
    ----------
    epsilon, delta : float
        The budget for everything that touches the rows.
    stages : "auto" or list of stages
        What happens to the rows before training; see `tacit.preprocessing`.
    loss : "auto", str or Loss
        ``"auto"`` is logistic for two classes and softmax for more. Also ``"hinge"``,
        ``"huber-hinge"``, and the bounded ``"savage"``, ``"tangent"`` and ``"tempered"``,
        which are not convex and forgive wrong labels.
    trainer : "auto" or trainer
        See `tacit.trainers`. Settings left at ``"auto"`` follow from public facts.
    neighbors : {"auto", "replace_special", "add_or_remove_one", "replace_one"}
        What it means for two data sets to differ in one row. ``"auto"`` is
        ``"replace_special"``: one row is blanked out, their number is public; with
        a noiseless stage it is ``"replace_one"``, for which those are analysed.
    classes : sequence, optional
        The labels that may occur. If None they are read from ``y`` and taken as
        public, which the certificate says.
    fit_intercept : bool
        Whether to fit an intercept.
    size : int, optional
        Public stand-in for the number of rows, needed with
        ``"add_or_remove_one"``.
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
    start : fitted linear model or (coef, intercept), optional
        A *public* model to begin at, on the same columns behind the same stages, as far as those
        are not affine: what another model released, or one fitted to public rows.
    verbose : bool
        Show progress.

    Attributes
    ----------
    coef_, intercept_ : ndarray
        Scores are ``stages_(row) @ coef_.T + intercept_``, where ``stages_`` holds what
        is not affine and what comes before it; affine stages behind that are folded in.
        Behind `Normalize`, as by default, coefficients are for rows of norm one and not
        for rows as passed: the effect of a column then depends on the rest of its row.
        Shapes as in scikit-learn.
    classes_ : ndarray
        Labels.
    certificate_ : Certificate
        What was spent, on what, under which assumptions.
    plan_ : CalibratedPlan
        What was run; ``plan_.explain()`` says it in words.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 5000)
    >>> X = rng.normal(size=(5000, 5)) + 2.0 * y[:, None]
    >>> clf = DPLinearClassifier(epsilon=1.0, delta=1e-6).fit(X, y)
    >>> clf.score(X, y) > 0.8
    True
    >>> clf.certificate_.verify().holds
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        stages: Any = "auto",
        loss: str | Loss = "auto",
        trainer: Any = "auto",
        neighbors: str = "auto",
        classes: Any = None,
        fit_intercept: bool = True,
        size: int | None = None,
        arithmetic: str = "exact",
        random_state: Any = None,
        ledger: Ledger | None = None,
        start: Any = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.stages = stages
        self.loss = loss
        self.trainer = trainer
        self.neighbors = neighbors
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.size = size
        self.arithmetic = arithmetic
        self.random_state = random_state
        self.ledger = ledger
        self.start = start
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on private rows and labels, spending the budget.

        Parameters
        ----------
        X : array, sparse matrix, table, memory map, or `tacit.data.scan` of files; n rows
            A tensor of PyTorch, or another array that is not NumPy's, is trained on where it is:
            see ``docs/accelerators.md``.
            A Dask array or data frame is fitted on the cluster of the current client: see
            ``docs/cluster.md``. Of features from `tacit.features.load_features` the certificate
            names the network.
        y : sequence of n labels
            May be left out if X is a scan that names its target, or features with labels.
        """
        return self._go(self._budget(), self._problem(X, y, self.classes))

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> Self:
        """Go on from where the model is, for a budget more; at first, the same as `fit`.

        Stages stay as they were fitted, training begins at the present weights, and the
        certificate covers everything spent so far, composed jointly.

        Parameters
        ----------
        X, y
            Private rows and labels: the same people, or others.
        classes : sequence, optional
            The labels that may occur, at the first call.
        epsilon, delta : float
            What is spent *in addition*; the model's own budget, with a warning, if not given.
        """
        if not hasattr(self, "certificate_"):
            known = self.classes if classes is None else classes
            return self._go(self._budget(epsilon, delta), self._problem(X, y, known))
        before, problem = self._before(), self._problem(X, y, self.classes_, reset=False)
        return self._go(self._more(epsilon, delta), problem, before)

    def _problem(self, X: Any, y: Any, given: Any = None, *, reset: bool = True) -> Problem:
        """Rows and labels, checked; ``given`` are the classes, if they are known."""
        self._require_account()
        self._require_separate(X)
        rows, y = self._rows(X, reset=reset, y=y)
        if isinstance(X, Scan) and y is None:
            classes, index, assumption = self._scanned_classes(X, given)
        else:
            classes, index, assumption = self._classes(labels_of(y, rows), given)
        return Problem(rows, index, classes, (assumption,))

    def _start(self, problem: Problem, loss: Loss) -> tuple[np.ndarray, np.ndarray] | None:
        if self.start is None:
            return None
        assert problem.classes is not None
        return starting.for_classes(self.start, problem.classes, problem.outputs(loss))

    def _loss_of(self, classes: int) -> Loss:
        return self._loss(classes)

    def _keep(self, fit: Fit, problem: Problem) -> None:
        super()._keep(fit, problem)
        self.classes_ = np.asarray(problem.classes)
        if problem.many == 2 and len(fit.coef) == 2:  # softmax: only the difference matters
            self.coef_, self.intercept_ = np.diff(fit.coef, axis=0), np.diff(fit.intercept)

    def _classes(self, labels: Any, given: Any) -> tuple[np.ndarray, Any, str]:
        seen = labels
        kinds = "y does not hold labels of one kind; make all of them text, or all numbers"
        alike = False
        with suppress(TypeError):  # some of them missing, or of another kind
            if isinstance(labels, Parts):
                seen = distinct(labels) if given is None else np.asarray(given)
            check_classification_targets(seen)
            alike = True
        if not alike:
            raise of_rows(InputError(kinds))
        if given is None:
            classes, index = np.unique(seen, return_inverse=True)
            said = _require_two(classes, given)
            return classes, index if seen is labels else positions_of(labels, classes), said
        classes = np.unique(np.asarray(given))
        said = _require_two(classes, given)
        return classes, positions_of(labels, classes), said

    def _scanned_classes(self, X: Scan, given: Any) -> tuple[np.ndarray, np.ndarray, str]:
        if given is not None:
            _require_two(np.unique(np.asarray(given)), given)
        classes, index = X.labels(given)
        return classes, index, _require_two(classes, given)

    def _loss(self, classes: int) -> Loss:
        loss = resolve_loss(self.loss, classes)
        if loss.task != "classification":
            raise InputError(f"loss={loss.name!r} is for regression; use DPLinearRegressor")
        return loss

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores: (n,) for two classes, (n, classes) for more."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """The label with the highest score."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Part of these rows whose label is predicted, without noise."""
        from sklearn.metrics import accuracy_score

        return self._scored(accuracy_score, X, y, sample_weight)

    def _has_probabilities(self) -> bool:
        try:
            loss = self._loss(len(getattr(self, "classes_", (0, 1))))
        except InputError:
            return False
        return type(loss).probabilities is not Loss.probabilities

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of every class, where the loss defines one."""
        scores, loss = self._scores(X), self._loss(len(self.classes_))
        if isinstance(loss, Softmax) and scores.shape[1] == 1:
            loss = get_loss("logistic")  # of two classes, softmax leaves one difference
        return loss.probabilities(scores)


class DPLinearRegressor(RegressorMixin, _DPLinear):
    """A linear regressor whose whole pipeline is (ε, δ)-differentially private.

    Parameters
    ----------
    epsilon, delta : float
        The budget for everything that touches the rows.
    target_bounds : (float, float)
        Public limits of the target. They set its scale: targets are mapped to
        [-1, 1] and clamped there. They are needed; reading them from ``y``
        would leak the smallest and the largest value.
    loss : {"squared", "huber", "absolute"} or Loss
        On the mapped target.
    stages, trainer, neighbors, fit_intercept, size, arithmetic, random_state, ledger, start,
    verbose
        As for `DPLinearClassifier`.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    intercept_ : float
    certificate_, plan_
        As for `DPLinearClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20000, 3))
    >>> y = X @ [1.0, -1.0, 0.5] / np.linalg.norm(X, axis=1)
    >>> model = DPLinearRegressor(epsilon=1.0, target_bounds=(-1.5, 1.5)).fit(X, y)
    >>> model.score(X, y) > 0.8
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        target_bounds: tuple[float, float] | None = None,
        stages: Any = "auto",
        loss: str | Loss = "squared",
        trainer: Any = "auto",
        neighbors: str = "auto",
        fit_intercept: bool = True,
        size: int | None = None,
        arithmetic: str = "exact",
        random_state: Any = None,
        ledger: Ledger | None = None,
        start: Any = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.stages = stages
        self.loss = loss
        self.trainer = trainer
        self.neighbors = neighbors
        self.fit_intercept = fit_intercept
        self.size = size
        self.arithmetic = arithmetic
        self.random_state = random_state
        self.ledger = ledger
        self.start = start
        self.verbose = verbose

    def _target_scale(self) -> tuple[float, float]:
        """Middle and half-width of the target's public range."""
        if self.target_bounds is None:
            raise MissingBound("DPLinearRegressor", "target_bounds=(low, high)")
        try:
            low, high = (float(value) for value in self.target_bounds)
        except (TypeError, ValueError):
            raise InputError(f"target_bounds={self.target_bounds!r} must be two numbers") from None
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        if not 1e-100 <= half <= 1e100:  # coefficients are multiplied by it
            raise InputError(
                f"target_bounds={self.target_bounds!r} must be finite, low below high, and from "
                "1e-100 to 1e100 apart"
            )
        return middle, half

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit on private rows and targets, spending the budget; X and y as for the classifier."""
        return self._go(self._budget(), self._problem(X, y))

    def partial_fit(
        self, X: Any, y: Any = None, *, epsilon: float | None = None, delta: float | None = None
    ) -> Self:
        """Go on for a budget more, as `DPLinearClassifier.partial_fit` does."""
        if not hasattr(self, "certificate_"):
            return self._go(self._budget(epsilon, delta), self._problem(X, y))
        before, problem = self._before(), self._problem(X, y, reset=False)
        return self._go(self._more(epsilon, delta), problem, before)

    def _problem(self, X: Any, y: Any, given: Any = None, *, reset: bool = True) -> Problem:
        """Rows and targets, checked and mapped to [-1, 1]."""
        self._require_account()
        self._require_separate(X)
        self._loss_of(0)
        middle, half = self._target_scale()
        rows, y = self._rows(X, reset=reset, y=y)
        values = X.numbers() if isinstance(X, Scan) and y is None else y
        targets = scaled(labels_of(values, rows), middle, half)
        return Problem(rows, targets, None, ("the limits of the target were given in advance",))

    def _start(self, problem: Problem, loss: Loss) -> tuple[np.ndarray, np.ndarray] | None:
        return (
            None if self.start is None else starting.for_target(self.start, *self._target_scale())
        )

    def _loss_of(self, classes: int) -> Loss:
        loss = get_loss(self.loss)
        if loss.task != "regression":
            raise InputError(f"loss={loss.name!r} is for classification; use DPLinearClassifier")
        return loss

    def _keep(self, fit: Fit, problem: Problem) -> None:
        super()._keep(fit, problem)
        middle, half = self._target_scale()
        self.coef_ = fit.coef[0] * half
        self.intercept_ = float(fit.intercept[0] * half + middle)

    def predict(self, X: Any) -> np.ndarray:
        """The predicted target."""
        return self._scores(X)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions of these rows, without noise."""
        from sklearn.metrics import r2_score

        return self._scored(r2_score, X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn asks for a good fit to 200 rows, which are few for a private one.
        tags.regressor_tags.poor_score = True
        return tags


def _require_two(classes: np.ndarray, given: Any) -> str:
    """Refuse a single class; where the classes are from, in words."""
    if given is not None:
        if len(classes) < 2:
            raise InputError("classes= must name at least two labels")
        return "the set of labels was given in advance"
    if len(classes) < 2:
        raise of_rows(
            InputError(
                "Classifier can't train when only one class is present. If others exist, "
                "pass all of them as classes="
            )
        )
    return "the set of labels was read from the data and is taken as public"
