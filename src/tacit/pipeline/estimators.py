"""Pipelines as estimators whose preprocessing and training are private."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tacit.exceptions import InputError, of_rows
from tacit.ledger import Ledger
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
from tacit.pipeline.base import Privatized
from tacit.pipeline.models import LAST, regression
from tacit.pipeline.reading import last_step


class PrivatizedClassifier(ClassifierMixin, Privatized):
    """A pipeline that ends in a classifier, made private; see `privatize`.

    Attributes
    ----------
    estimator_ : DPLinearClassifier
        What was fitted; `tacit.save` writes it to a file.
    coef_, intercept_, classes_
        Those of ``estimator_``, in the same shapes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> y = np.arange(4000) % 2
    >>> X = np.random.default_rng(0).normal(size=(4000, 2)) + 2.0 * y[:, None]
    >>> PrivatizedClassifier(LogisticRegression(), bounds=(-3, 5)).fit(X, y).score(X, y) > 0.8
    True
    """

    task = "classification"

    def _count_classes(self, labels: np.ndarray) -> int:
        with suppress(TypeError):
            return max(2, len(np.unique(labels if self.classes is None else self.classes)))
        raise of_rows(InputError("y does not hold labels of one kind"))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Part of these rows whose label is predicted, without noise.

        Parameters
        ----------
        X : array, sparse matrix or data frame, of shape (n, d)
            Rows.
        y : sequence of n labels
            Their labels.
        sample_weight : sequence of n numbers, optional
            How much every row counts.

        Returns
        -------
        float
            Between 0 and 1.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.score(self._rows(X), y, sample_weight)

    def _estimator(self, **settings: Any) -> DPLinearClassifier:
        return DPLinearClassifier(classes=self.classes, **settings)

    @property
    def classes_(self) -> np.ndarray:
        """Labels."""
        return self.estimator_.classes_

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame, of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,) or (n, classes)
            One score for two classes, one for each of more.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.decision_function(self._rows(X))

    def _has_probabilities(self) -> bool:
        if hasattr(self, "estimator_"):
            return hasattr(self.estimator_, "predict_proba")
        last = last_step(self.pipeline)
        return isinstance(last, LogisticRegression) or getattr(last, "loss", "") == "log_loss"

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of every class, where the loss defines one.

        Parameters
        ----------
        X : array, sparse matrix or data frame, of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, classes)
            Probabilities, in the order of ``classes_``.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.predict_proba(self._rows(X))


class PrivatizedRegressor(RegressorMixin, Privatized):
    """A pipeline that ends in a regressor, made private; see `privatize`.

    Attributes
    ----------
    estimator_ : DPLinearRegressor
        What was fitted; `tacit.save` writes it to a file.
    coef_, intercept_
        Those of ``estimator_``, in the same shapes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(9000, 2))
    >>> y = X @ [1.0, -0.5]
    >>> model = PrivatizedRegressor(Ridge(), bounds=(-1, 1), target_bounds=(-1.5, 1.5))
    >>> model.fit(X, y).score(X, y) > 0.8
    True
    """

    task = "regression"

    def _count_classes(self, labels: np.ndarray) -> int:
        return 0

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions of these rows, without noise.

        Parameters
        ----------
        X : array, sparse matrix or data frame, of shape (n, d)
            Rows.
        y : sequence of n numbers
            Their targets.
        sample_weight : sequence of n numbers, optional
            How much every row counts.

        Returns
        -------
        float
            At most 1.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.score(self._rows(X), y, sample_weight)

    def _estimator(self, **settings: Any) -> DPLinearRegressor:
        return DPLinearRegressor(target_bounds=self.target_bounds, **settings)


def privatize(
    pipeline: Any,
    *,
    epsilon: float,
    delta: float,
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
    ledger: Ledger | None = None,
    arithmetic: str = "exact",
    verbose: bool = False,
) -> PrivatizedClassifier | PrivatizedRegressor:
    """A scikit-learn pipeline as an estimator whose preprocessing and training are private.

    Every step becomes stages of `tacit.preprocessing`. Where it may become several, the
    combination is taken that leaves most of the budget for training; ``explain()``
    of the fitted estimator says what was chosen and what the rivals would have
    cost. Steps without a private counterpart are refused by name. What the
    pipeline may have learned before is not used.

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

    Returns
    -------
    PrivatizedClassifier or PrivatizedRegressor
        Not fitted yet.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 5000)
    >>> X = rng.normal(size=(5000, 4)) + 2.0 * y[:, None]
    >>> pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    >>> model = privatize(pipeline, epsilon=1.0, delta=1e-6, bounds=(-4, 6)).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    >>> [stage.name for stage in model.plan_.plan.stages]
    ['Bound', 'PrivateScale']
    >>> model.certificate_.verify().holds
    True
    """
    kind = PrivatizedClassifier
    if LAST.get(type(last_step(pipeline))) is regression:
        kind = PrivatizedRegressor
    return kind(
        pipeline,
        epsilon=epsilon,
        delta=delta,
        bounds=bounds,
        public=public,
        target_bounds=target_bounds,
        classes=classes,
        categories=categories,
        row_wise=row_wise,
        rows_with_gaps=rows_with_gaps,
        median_change=median_change,
        gap=gap,
        random_state=random_state,
        ledger=ledger,
        arithmetic=arithmetic,
        verbose=verbose,
    ).check()
