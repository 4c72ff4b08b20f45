"""`DPLinearRegressor`: private linear models of numbers."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from tacit.data.checks import as_floats
from tacit.data.labels import labels_of, scaled
from tacit.data.rows import Rows
from tacit.data.scans import Scan
from tacit.exceptions import InputError, MissingBound
from tacit.ledger import Ledger
from tacit.linear_model import warm_start as starting
from tacit.linear_model.base import DPLinearModel, Problem
from tacit.losses import Loss, get_loss
from tacit.metrics.evaluation import Evaluation
from tacit.plan import Fit
from tacit.plan.defaults import resolve_trainer
from tacit.plan.targets import PrivateTargetBounds


class DPLinearRegressor(RegressorMixin, DPLinearModel):
    """A linear regressor whose whole pipeline is (ε, δ)-differentially private.

    By default every row is scaled to unit norm and a private mean is subtracted; then least
    squares are solved from a noisy second moment, or noisy gradient descent is run, whichever
    public facts speak for.

    Parameters
    ----------
    target_bounds : (float, float), optional
        Public limits of the target. They set its scale: targets are mapped to
        [-1, 1] and clamped there. Without them limits are found through noise, near the
        smallest and the largest value, which takes some of the budget.
    loss : {"squared", "huber", "absolute"} or Loss
        On the mapped target.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        Coefficients of the d columns behind ``stages_``, in units of the target.
    intercept_ : float
        Predictions are ``stages_(row) @ coef_ + intercept_``.
    target_bounds_ : (float, float)
        Limits of the target, as given or as found.

    Notes
    -----
    The target y is mapped to (y − m)/h for the middle m and the half-width h of its limits.
    Descent is that of Song, Steinke, Thakkar & Thakurta 2021, Algorithm 1.

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
        schema: Any = None,
        bounds: Any = None,
        categories: Any = None,
        shapes: bool | str = "auto",
        loss: str | Loss = "squared",
        trainer: Any = "auto",
        neighbors: str = "auto",
        fit_intercept: bool = True,
        public_size: int | None = None,
        max_rows_per_group: int | None = None,
        arithmetic: str = "exact",
        random_state: Any = None,
        ledger: Ledger | None = None,
        init: Any = None,
        holdout: float | None = None,
        holdout_by: Any = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.stages = stages
        self.schema = schema
        self.bounds = bounds
        self.categories = categories
        self.shapes = shapes
        self.loss = loss
        self.trainer = trainer
        self.neighbors = neighbors
        self.fit_intercept = fit_intercept
        self.public_size = public_size
        self.max_rows_per_group = max_rows_per_group
        self.arithmetic = arithmetic
        self.random_state = random_state
        self.ledger = ledger
        self.init = init
        self.holdout = holdout
        self.holdout_by = holdout_by
        self.verbose = verbose

    def _target_scale(self, bounds: Any) -> tuple[float, float]:
        """Middle and half-width of the target's range."""
        try:
            low, high = (float(value) for value in bounds)
        except (TypeError, ValueError):
            raise InputError(f"target_bounds={bounds!r:.80} must be two numbers") from None
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        if not 1e-100 <= half <= 1e100:  # coefficients are multiplied by it
            raise InputError(
                f"target_bounds={bounds!r:.80} must be finite, low below high, and from "
                "1e-100 to 1e100 apart"
            )
        return middle, half

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit on private rows and targets, spending the budget.

        Parameters
        ----------
        X : array, sparse matrix, table, memory map, or `tacit.data.scan` of files, of shape (n, d)
            A tensor of PyTorch, or another array that is not NumPy's, is trained on where it is:
            see ``docs/gpu.md``. A Dask array or data frame is fitted on the cluster of the
            current client: see ``docs/dask.md``.
        y : sequence of n numbers
            May be left out if X is a scan that names its target, or features with targets.
        groups : str or sequence of n identifiers, optional
            Whose rows are whose, with ``max_rows_per_group``: a column of X, by its name, or an
            identifier for every row. Never learned from, and never written anywhere.

        Returns
        -------
        Self
            The fitted estimator.
        """
        return self._go(self._budget(), self._problem(X, y, groups=groups))

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> Self:
        """Go on from where the model is, for a budget more; at first, the same as `fit`.

        Stages stay as they were fitted, training begins at the present weights, and the
        certificate covers everything spent so far, composed jointly.

        Parameters
        ----------
        X : array, sparse matrix, table or scan, of shape (n, d)
            Private rows: of the same people, or of others.
        y : sequence of n numbers
            Their targets.
        groups : str or sequence of n identifiers, optional
            Whose rows are whose: a column of X, by its name, or an identifier for every row.
        epsilon, delta : float
            What is spent *in addition*; the model's own budget, with a warning, if not given.

        Returns
        -------
        Self
            The fitted estimator.
        """
        if not hasattr(self, "certificate_"):
            return self._go(self._budget(epsilon, delta), self._problem(X, y, groups=groups))
        before, problem = self._before(), self._problem(X, y, groups=groups, reset=False)
        return self._go(self._more(epsilon, delta), problem, before)

    def _problem(
        self, X: Any, y: Any, given: Any = None, *, groups: Any = None, reset: bool = True
    ) -> Problem:
        """Rows and targets, checked and mapped to [-1, 1]."""
        self._require_account()
        self._require_separate(X)
        self._loss_of(0)
        bounds = self.target_bounds if reset else self.target_bounds_
        scale = None if bounds is None else self._target_scale(bounds)
        rows, y, schema = self._checked(X, y, groups, reset=reset)
        values = X.numbers() if isinstance(X, Scan) and y is None else y
        targets = labels_of(values, rows)
        if scale is None:
            self._require_finder(rows)
            numbers = as_floats(targets, "the target")
            return Problem(rows, numbers, None, (), schema, PrivateTargetBounds())
        targets = scaled(targets, *scale)
        said = ("the limits of the target were given in advance",)
        return Problem(rows, targets, None, said, schema)

    def _init(self, problem: Problem, loss: Loss) -> tuple[np.ndarray, np.ndarray] | None:
        if self.init is None:
            return None
        if self.target_bounds is None:
            raise MissingBound("a model to begin at", "target_bounds=(low, high)")
        return starting.for_target(self.init, *self._target_scale(self.target_bounds))

    def _require_finder(self, rows: Rows) -> None:
        """Refuse to look for limits of targets where nobody may, or can, look at all of them."""
        if rows.distributed or resolve_trainer(self.trainer).local:
            raise MissingBound("DPLinearRegressor", "target_bounds=(low, high)")

    def _loss_of(self, classes: int) -> Loss:
        loss = get_loss(self.loss)
        if loss.task != "regression":
            raise InputError(f"loss={loss.name!r} is for classification; use DPLinearClassifier")
        return loss

    def _keep(self, fit: Fit, problem: Problem) -> None:
        super()._keep(fit, problem)
        if fit.target is not None:
            self.target_bounds_ = fit.target.bounds
        elif self.target_bounds is not None:
            low, high = self.target_bounds
            self.target_bounds_ = float(low), float(high)
        middle, half = self._target_scale(self.target_bounds_)
        self.coef_ = fit.coef[0] * half
        self.intercept_ = float(fit.intercept[0] * half + middle)

    def predict(self, X: Any) -> np.ndarray:
        """The predicted target.

        Parameters
        ----------
        X : array, sparse matrix, table or scan, of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Numbers, in units of the target.
        """
        return self._scores(X)[:, 0]

    def _rows_scores(self, rows: Rows) -> np.ndarray:
        return self._linear(rows)[:, 0]

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, evaluation: Evaluation | None = None
    ) -> np.ndarray:
        """Intervals that hold the target with a stated probability.

        That is over the draw of the row, of those tested on, and of the noise; not for every
        kind of row by itself (split conformal prediction, `tacit.metrics.conformal`).

        Parameters
        ----------
        X : array, sparse matrix, table or scan, of shape (n, d)
            Rows.
        coverage : float
            The probability.
        evaluation : Evaluation, optional
            On rows that the model has not seen; that of ``holdout`` if not given.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends, within the limits of the target.
        """
        tested = self._tested(evaluation)
        assert tested.bounds is not None
        least, most = tested.bounds
        guess, reach = np.clip(self.predict(X), least, most), tested.cutoff(coverage)
        low, high = guess - reach, guess + reach
        # What counted as a limit of the test may lie anywhere beyond it.
        low, high = np.where(low <= least, -math.inf, low), np.where(high >= most, math.inf, high)
        first, last = getattr(self, "target_bounds_", tested.bounds)  # not in earlier files
        return np.clip(np.column_stack([low, high]), first, last)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions of these rows, without noise.

        Parameters
        ----------
        X : array, sparse matrix, table or scan, of shape (n, d)
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
        from sklearn.metrics import r2_score

        return self._scored(r2_score, X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn asks for a good fit to 200 rows, which are few for a private one.
        tags.regressor_tags.poor_score = True
        return tags
