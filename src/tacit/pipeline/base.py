"""What privatized classifiers and regressors share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tacit.diagnostics.base import require_positive
from tacit.exceptions import InputError
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
from tacit.linear_model.copies import Copied
from tacit.params import ShowsBudget
from tacit.pipeline.choosing import Problem
from tacit.pipeline.frames import Frame, table_of
from tacit.pipeline.parts import Given, Last, Part
from tacit.pipeline.reading import by_columns, read
from tacit.pipeline.rows import bound_stage, column_names, public_rows, shape
from tacit.plan.propagate import propagate_bounds
from tacit.preprocessing import ByColumns, PrivateByColumns, Stage
from tacit.privacy.accounting.accountants import gaussian_mu
from tacit.privacy.budget import Budget

BY_COLUMNS = (ByColumns, PrivateByColumns)


class Privatized(Copied, ShowsBudget, BaseEstimator):
    """A pipeline, a budget, and what is declared about the rows.

    Parameters
    ----------
    pipeline : Pipeline or estimator
        Its last step is a linear classifier or regressor.
    epsilon, delta : float
        The budget for everything that touches the rows.
    bounds : float, pair or dict
        Public bounds of the rows, which are needed: the largest norm of a row; or
        ``(low, high)``, numbers or sequences with one for each column; or
        ``{column: (low, high)}`` for data frames. Behind a ColumnTransformer: of columns
        of numbers, by column or one pair for all; those not given are found through noise.
    public : array of shape (m, d) or data frame, optional
        Public rows like the private ones: scales and components taken from them
        cost nothing.
    target_bounds : (float, float), optional
        Public limits of the target; needed for regression.
    classes : sequence, optional
        The labels that may occur; if None they are read from ``y`` and taken as public.
    categories : dict of str to sequence, optional
        Public categories by column, for encoders that list none; those not given are found
        through noise.
    row_wise : dict of callable to (float, float), optional
        Functions of a FunctionTransformer that look at one row at a time, which is taken
        for granted, each with public bounds of its results.
    rows_with_gaps : int, optional
        Most rows that lack any value; a private test makes sure.
    median_change : float, optional
        Most that one row may move a median by, in units of the rows that reach the
        imputer: columns mapped to [-1, 1] if ``bounds`` are pairs. A private test
        makes sure; with ``rows_with_gaps`` it allows exact medians in training.
    gap : float, optional
        Least eigengap behind the components of a PCA, in squared norms of the rows
        that reach it; a private test makes sure.
    random_state : int, optional
        Makes a run repeatable *and not private*: for tests.
    ledger : Ledger, optional
        The account of the data set, from which the budget is reserved before any noise is drawn.
    arithmetic : {"exact", "strict", "fast"}
        Whether noise is exact, exact and checked, or in floating point.
    verbose : bool
        Show progress.

    Attributes
    ----------
    choices_ : tuple of Choice
        What every step became, and why.
    certificate_ : Certificate
        What was spent, on what, under which assumptions.
    plan_ : CalibratedPlan
        What was run; ``plan_.explain()`` says it in words.
    """

    task: ClassVar[str]
    plan_: Any

    def __init__(
        self,
        pipeline: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        bounds: Any = None,
        public: Any = None,
        target_bounds: tuple[float, float] | None = None,
        classes: Any = None,
        categories: Mapping[str, Any] | None = None,
        row_wise: Mapping[Any, Any] | None = None,
        rows_with_gaps: int | None = None,
        median_change: float | None = None,
        gap: float | None = None,
        random_state: Any = None,
        ledger: Any = None,
        arithmetic: str = "exact",
        verbose: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.public = public
        self.target_bounds = target_bounds
        self.classes = classes
        self.categories = categories
        self.row_wise = row_wise
        self.rows_with_gaps = rows_with_gaps
        self.median_change = median_change
        self.gap = gap
        self.random_state = random_state
        self.ledger = ledger
        self.arithmetic = arithmetic
        self.verbose = verbose

    def check(self) -> Self:
        """Refuse what cannot be done, whatever the rows are.

        Returns
        -------
        Self
            The estimator, not fitted.
        """
        names = list(self.bounds) if isinstance(self.bounds, Mapping) else None
        self._read(self._given(names, self.public))
        return self

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Choose counterparts by public facts, then fit on private rows, spending the budget.

        Parameters
        ----------
        X : array, sparse matrix or data frame, of shape (n, d)
            Missing values are NaN.
        y : sequence of n labels or numbers
            What they should be predicted to be.
        **params
            None are taken: weights of rows have no private counterpart, and people with several
            rows are for estimators.

        Returns
        -------
        Self
            The fitted estimator.
        """
        if "groups" in params:
            raise InputError(
                "pipelines are fitted to rows, not to people with several: DPLinearClassifier and "
                "DPLinearRegressor take groups=, with max_rows_per_group="
            )
        if params:
            raise InputError(
                f"fit takes no {', '.join(params)}: weights would let one row count more than "
                "another, and the guarantee is for rows that count alike"
            )
        budget = Budget(self.epsilon, self.delta)
        table = by_columns(self.pipeline)
        names, (n, d) = column_names(X), shape(X, table=table)
        public = self.public if table else public_rows(self.public, names, d)
        given = self._given(names, public)
        if table:
            mu = gaussian_mu(budget.epsilon, budget.delta)
            given = replace(given, frame=Frame.of(X), size=n, mu=mu)
        first, parts, last = self._read(given)
        assert first is not None
        if isinstance(first, BY_COLUMNS):
            X = table_of(X, first.columns)
            d = X.d
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] > 1:
            raise InputError(
                f"y has {labels.shape[1]} columns: several targets in one model (multi-output) are "
                "not offered; fit one for each, and split the budget"
            )
        classes = self._count_classes(labels)
        propagate_bounds([first], n, d)  # bounds that do not fit the columns
        problem = Problem(budget, n, d, classes, first, parts, last, self.arithmetic)
        chosen, trainer, choices = problem.solve()
        self._count_fit(budget, self.ledger, self.random_state)
        estimator = self._estimator(
            epsilon=self.epsilon,
            delta=self.delta,
            stages=chosen.stages,
            loss=chosen.loss,
            trainer=trainer,
            fit_intercept=last.fit_intercept,
            arithmetic=self.arithmetic,
            random_state=self.random_state,
            ledger=self.ledger,
            verbose=self.verbose,
        ).fit(X, y)
        self.estimator_ = estimator
        self.choices_ = choices
        self._facts = f"{problem.facts}, so mu = {problem.mu:.4g}"
        self._left = chosen.left
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        own = ("certificate_", "plan_", "coef_", "intercept_", "n_features_in_")
        for name in (*own, "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))
        return self

    def explain(self) -> str:
        """What every step became, what its rivals would have cost, and why.

        Returns
        -------
        str
            A line for every step, then the plan.
        """
        check_is_fitted(self, "estimator_")
        lines = [
            f"Known in advance: {self._facts}. The choices rest on that, the bounds and public "
            "rows, never on private rows.",
        ]
        for choice in self.choices_:
            lines.append(f"{choice.step} -> {choice.chosen}: {choice.why}.")
            lines += [f"    not {name}: {why}." for name, why in choice.alternatives]
        lines.append(f"{self._left:.3g} of the budget's mu is left for training.")
        if self.plan_.plan.noiseless:
            lines.append(
                "A noiseless stage looks at private rows without noise, so neighbours differ by "
                "replacing a row; that takes twice the noise and is included in this figure."
            )
        return "\n".join([*lines, "", self.plan_.explain()])

    def predict(self, X: Any) -> np.ndarray:
        """The predicted label or target.

        Parameters
        ----------
        X : array, sparse matrix or data frame, of shape (n, d)
            Rows; missing values are NaN.

        Returns
        -------
        ndarray of shape (n,)
            Labels or numbers.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict(self._rows(X))

    def _rows(self, X: Any) -> Any:
        """Rows as the fitted estimator takes them: a table behind a ColumnTransformer."""
        first = next(iter(self.estimator_.stages_), None)
        return table_of(X, first.columns) if isinstance(first, BY_COLUMNS) else X

    def _given(self, names: Sequence[str] | None, public: Any) -> Given:
        """What is declared, checked."""
        gaps = self.rows_with_gaps
        whole = isinstance(gaps, Integral) and not isinstance(gaps, bool)
        if gaps is not None and not (whole and gaps >= 1):
            raise InputError(f"rows_with_gaps={gaps!r} must be an integer of at least 1")
        require_positive(median_change=self.median_change, gap=self.gap)
        table = by_columns(self.pipeline)
        return Given(
            None if table else bound_stage(self.bounds, names),
            public,
            self.target_bounds,
            None if gaps is None else int(gaps),
            self.median_change,
            self.gap,
            declared=self.bounds,
            categories=self.categories,
            row_wise=self.row_wise,
        )

    def _read(self, given: Given) -> tuple[Stage | None, tuple[Part, ...], Last]:
        """Counterparts of the steps, of which the last must fit this estimator."""
        first, parts, last = read(self.pipeline, given)
        if last.task != self.task:
            raise InputError(f"{type(self).__name__} takes no {last.step}; call privatize instead")
        if last.task == "regression" and self.classes is not None:
            raise InputError(f"classes= is for classifiers, and {last.step} is none")
        if last.task == "classification" and self.target_bounds is not None:
            raise InputError(f"target_bounds= is for regressors, and {last.step} is none")
        return first, parts, last

    def _count_classes(self, labels: np.ndarray) -> int:
        raise NotImplementedError

    def _estimator(self, **settings: Any) -> DPLinearClassifier | DPLinearRegressor:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags
