"""`DPLinearClassifier`: private linear models of classes."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from tacit.data.arrays import is_array
from tacit.data.cells import as_number
from tacit.data.dask_rows import Parts
from tacit.data.labels import distinct, labels_of, positions_of
from tacit.data.rows import Rows
from tacit.data.scans import Scan
from tacit.exceptions import InputError, of_rows, raise_alone
from tacit.ledger import Ledger
from tacit.linear_model import warm_start as starting
from tacit.linear_model.base import DPLinearModel, Problem
from tacit.losses import Loss, Softmax, get_loss
from tacit.metrics.evaluate import squeezed
from tacit.metrics.evaluation import Evaluation
from tacit.plan import Fit
from tacit.plan.defaults import resolve_loss
from tacit.plan.targets import PrivateClasses

PRIVATE = "private"  # of classes: to be found through noise


class DPLinearClassifier(ClassifierMixin, DPLinearModel):
    """A linear classifier whose whole pipeline is (ε, δ)-differentially private.

    By default every row is scaled to unit norm, a private mean is subtracted,
    and noisy gradient descent is run on all rows; one guarantee covers it all.
    Unsigned bytes are taken for intensities, such as pixels: their roots come first. Columns of
    sparse matrices are taken for words, and are brought to one size by private mean squares.

    Parameters
    ----------
    loss : "auto", str or Loss
        ``"auto"`` is logistic for two classes and softmax for more. Also ``"hinge"``,
        ``"huber-hinge"``, and the bounded ``"savage"``, ``"tangent"`` and ``"tempered"``,
        which are not convex and forgive wrong labels.
    classes : sequence or "private", optional
        The labels that may occur. If None they are read from ``y`` and taken as
        public, which the certificate says. ``"private"``: those that enough rows have are found
        through noise, and rows of others count nothing.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d) or (classes, d)
        Coefficients of the d columns behind ``stages_``: one row for two classes.
    intercept_ : ndarray of shape (1,) or (classes,)
        Scores are ``stages_(row) @ coef_.T + intercept_``.
    classes_ : ndarray of shape (classes,)
        Labels.

    Notes
    -----
    With gᵢ the gradient of row i, clipped to a norm of C, every step takes the weights θ to
    θ − η·(Σᵢ gᵢ + z·C·N(0, I))/n, for a noise multiplier z (Song, Steinke, Thakkar & Thakurta 2021,
    Algorithm 1). The private mean in front is that of Sun, Suresh & Menon 2024, Algorithm 3.

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
        schema: Any = None,
        bounds: Any = None,
        categories: Any = None,
        shapes: bool | str = "auto",
        loss: str | Loss = "auto",
        trainer: Any = "auto",
        neighbors: str = "auto",
        classes: Any = None,
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
        self.stages = stages
        self.schema = schema
        self.bounds = bounds
        self.categories = categories
        self.shapes = shapes
        self.loss = loss
        self.trainer = trainer
        self.neighbors = neighbors
        self.classes = classes
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

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit on private rows and labels, spending the budget.

        Parameters
        ----------
        X : array, sparse matrix, table, memory map, or `tacit.data.scan` of files, of shape (n, d)
            A tensor of PyTorch, or another array that is not NumPy's, is trained on where it is:
            see ``docs/gpu.md``.
            A Dask array or data frame is fitted on the cluster of the current client: see
            ``docs/dask.md``. Of features from `tacit.features.load_features` the certificate
            names the network.
        y : sequence of n labels
            May be left out if X is a scan that names its target, or features with labels.
        groups : str or sequence of n identifiers, optional
            Whose rows are whose, with ``max_rows_per_group``: a column of X, by its name, or an
            identifier for every row. Never learned from, and never written anywhere.

        Returns
        -------
        Self
            The fitted estimator.
        """
        return self._go(self._budget(), self._problem(X, y, self.classes, groups=groups))

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
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
        y : sequence of n labels
            Their labels.
        classes : sequence, optional
            The labels that may occur, at the first call.
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
            known = self.classes if classes is None else classes
            problem = self._problem(X, y, known, groups=groups)
            return self._go(self._budget(epsilon, delta), problem)
        before = self._before()
        problem = self._problem(X, y, self.classes_, groups=groups, reset=False)
        return self._go(self._more(epsilon, delta), problem, before)

    def _problem(
        self, X: Any, y: Any, given: Any = None, *, groups: Any = None, reset: bool = True
    ) -> Problem:
        """Rows and labels, checked; ``given`` are the classes, if they are known."""
        self._require_account()
        self._require_separate(X)
        rows, y, schema = self._checked(X, y, groups, reset=reset)
        if isinstance(given, str) and given == PRIVATE:
            scanned = isinstance(X, Scan) and y is None
            labels = _scanned_labels(X) if scanned else labels_of(_each(y), rows)
            return Problem(rows, labels, None, (), schema, PrivateClasses())
        if isinstance(X, Scan) and y is None:
            classes, index, assumption = self._scanned_classes(X, given)
        else:
            classes, index, assumption = self._classes(labels_of(y, rows), given)
        return Problem(rows, index, classes, (assumption,), schema)

    def _init(self, problem: Problem, loss: Loss) -> tuple[np.ndarray, np.ndarray] | None:
        if self.init is None:
            return None
        if problem.classes is None:
            raise InputError("a model to begin at is one of classes that are known: pass classes=")
        return starting.for_classes(self.init, problem.classes, problem.outputs(loss))

    def _keep(self, fit: Fit, problem: Problem) -> None:
        super()._keep(fit, problem)
        found = problem.classes if fit.target is None else fit.target.classes
        self.classes_ = np.asarray(found)
        if len(self.classes_) == 2 and len(fit.coef) == 2:  # softmax: only the difference matters
            self.coef_, self.intercept_ = np.diff(fit.coef, axis=0), np.diff(fit.intercept)

    def _classes(self, labels: Any, given: Any) -> tuple[np.ndarray, Any, str]:
        seen = labels
        kinds = "y does not hold labels of one kind; make all of them text, or all numbers"
        alike = False
        with suppress(TypeError):  # some of them missing, or of another kind
            if isinstance(labels, Parts):
                seen = distinct(labels) if given is None else np.asarray(given)
            if getattr(seen, "dtype", np.dtype(object)).kind not in "iub":  # of those, any will do
                _require_labels(seen)
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

    def _loss_of(self, classes: int) -> Loss:
        loss = resolve_loss(self.loss, classes)
        if loss.task != "classification":
            raise InputError(f"loss={loss.name!r} is for regression; use DPLinearRegressor")
        return loss

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of rows.

        Parameters
        ----------
        X : array, sparse matrix, table or scan, of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,) or (n, classes)
            One score for two classes, positive for the second of them; one for each of more.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """The label with the highest score.

        Parameters
        ----------
        X : array, sparse matrix, table or scan, of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels, out of ``classes_``.
        """
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index]

    def predict_set(
        self, X: Any, coverage: float = 0.9, *, evaluation: Evaluation | None = None
    ) -> np.ndarray:
        """Sets of labels that hold the true one with a stated probability.

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
        ndarray of bool of shape (n, classes)
            Which labels of ``classes_`` are in the set of every row.
        """
        found = self.predict_proba(X)
        return found >= 1 - self._tested(evaluation).cutoff(coverage)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Part of these rows whose label is predicted, without noise.

        Parameters
        ----------
        X : array, sparse matrix, table or scan, of shape (n, d)
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
        from sklearn.metrics import accuracy_score

        return self._scored(accuracy_score, X, y, sample_weight)

    def _has_probabilities(self) -> bool:
        try:
            loss = self._loss_of(len(getattr(self, "classes_", (0, 1))))
        except InputError:
            return False
        return type(loss).probabilities is not Loss.probabilities

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of every class, where the loss defines one.

        Parameters
        ----------
        X : array, sparse matrix, table or scan, of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, classes)
            Probabilities, in the order of ``classes_``.
        """
        return self._probabilities(self._scores(X))

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        loss = self._loss_of(len(self.classes_))
        if isinstance(loss, Softmax) and scores.shape[1] == 1:
            loss = get_loss("logistic")  # of two classes, softmax leaves one difference
        return loss.probabilities(scores)

    def _rows_scores(self, rows: Rows) -> np.ndarray:
        scores = self._linear(rows)
        found = self._probabilities(scores) if self._has_probabilities() else squeezed(scores)
        return found[:, -1] if len(self.classes_) == 2 else found


def _require_labels(seen: Any) -> None:
    """Refuse what are no labels, as scikit-learn does, and be silent about how many there are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check_classification_targets(seen)
        except ValueError as error:  # of the kind of all labels: a single one decides it
            raise_alone(of_rows(InputError(str(error))))


def _each(y: Any) -> Any:
    """Labels without a type as objects: NumPy would choose one for all of them, by their values."""
    return y if hasattr(y, "dtype") or is_array(y) else np.asarray(y, dtype=object)


def _scanned_labels(X: Scan) -> np.ndarray:
    """Labels in a file, each read by itself: how the column is stored may depend on any of them."""
    words = X.targets().texts(str(X.target)).tolist()
    numbers = {word: as_number(word) for word in set(words) if word is not None}
    labels = np.empty(len(words), dtype=object)
    labels[:] = [numbers.get(word) if numbers.get(word) is not None else word for word in words]
    return labels


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
