"""`DPSearch`: settings chosen by private trials, as a scikit-learn estimator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tacit.data.rows import Rows
from tacit.data.schema import Schema, did_you_mean
from tacit.exceptions import InputError, MissingBound
from tacit.ledger import Reservation
from tacit.linear_model import DPLinearClassifier, DPLinearRegressor
from tacit.linear_model.copies import Copied
from tacit.linear_model.held_out import HELD_OUT_BY
from tacit.mechanisms.release import Releases
from tacit.metrics import Evaluation
from tacit.model_selection.calibrated import CalibratedSearch, Found
from tacit.model_selection.search import MOST_SETTINGS, Search, Trials
from tacit.params import ShowsBudget
from tacit.privacy.budget import Budget

TUNED = ("fit_intercept", "loss", "stages", "trainer")
FIXED = {
    "epsilon": "the budget is the search's",
    "delta": "the budget is the search's",
    "neighbors": "it says what the guarantee means",
    "arithmetic": "it says what the guarantee rests on",
    "classes": "it is a public fact, not a choice",
    "target_bounds": "they are a public fact, and scores would not compare",
    "public_size": "it is a public fact, not a choice",
    "max_rows_per_group": "it says what the guarantee means",
    "init": "it is a public fact, not a choice",
    "holdout": "rows are set aside for the best of all settings",
    "holdout_by": "it is a public fact, not a choice",
    "random_state": "noise is not a setting",
    "ledger": "the account is that of the rows",
    "verbose": "it changes nothing",
}


def _offers(name: str) -> Any:
    """Whether the model in use has that method."""

    def has(self: DPSearch) -> bool:
        getattr(getattr(self, "best_estimator_", self.estimator), name)
        return True

    return available_if(has)


class DPSearch(Copied, ShowsBudget, MetaEstimatorMixin, BaseEstimator):
    """Settings chosen by private trials; the whole search is (ε, δ)-differentially private.

    A random number of trials is made. Each draws one of the settings of the grid, trains with it,
    and scores the model on the private rows through noise. The best is kept, and nothing of the
    others: neither their scores nor how many there were. Training and score of all trials are in
    the certificate.

    Parameters
    ----------
    estimator : DPLinearClassifier or DPLinearRegressor
        What is tuned. Its ledger and its random_state are the search's, and so is its ``holdout``:
        trials see the other rows only, and the best model is tested once.
    param_grid : dict or list of dicts
        Lists of values for ``trainer``, ``stages``, ``loss``, ``fit_intercept``, and for settings
        of the trainer and of stages as ``set_params`` names them: ``trainer__learning_rate``,
        ``stages__clipnorm__radius``. If only the trainer is tuned, stages are fitted once, before
        the trials.
    epsilon, delta : float, optional
        The budget of the whole search; the estimator's unless given.
    trials : float
        How many trials are expected, at least 1.
    distribution : {"geometric", "logarithmic", "poisson"} or float
        Of their number; a float is the shape of a negative binomial. See
        `tacit.model_selection.search.Trials`.

    Attributes
    ----------
    best_estimator_ : estimator
        The model of the best trial, with the certificate of the whole search.
    best_params_ : dict
        Its setting.
    best_score_ : float
        Its noisy score, part of what was paid for: the share of rows that it labels rightly, or 1
        less the mean squared error in units of half the target's range, cut at 1.
    certificate_ : Certificate
        What the whole search spent.
    evaluation_ : Evaluation
        How the best model does on rows that none of the trials saw; if the estimator has
        ``holdout``.
    search_ : CalibratedSearch
        What was run; ``search_.explain()`` says it in words.

    Notes
    -----
    It is no cross-validation: models are scored on the rows that they were
    trained on. Linear models that are trained through noise hardly overfit, and rows that are
    held out would be missed. A score of a model that may be published is that of ``evaluation_``.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit import DPLinearClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 5000)
    >>> X = rng.normal(size=(5000, 5)) + 2.0 * y[:, None]
    >>> grid = {"trainer__clip": [0.01, 0.1, 1.0]}
    >>> search = DPSearch(DPLinearClassifier(), grid, epsilon=1.0, delta=1e-6).fit(X, y)
    >>> search.score(X, y) > 0.8
    True
    >>> search.certificate_.verify().holds
    True
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        trials: float = 10.0,
        distribution: str | float = "geometric",
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.trials = trials
        self.distribution = distribution

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Make the trials on private rows, spending the budget, and keep the best.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n, d), or rows of Dask on a cluster
            Private rows.
        y : sequence of n labels or numbers
            What they should be predicted to be.
        groups : str or sequence of n identifiers, optional
            Whose rows are whose, if the estimator has ``max_rows_per_group``.

        Returns
        -------
        Self
            The fitted search.
        """
        candidates, settings = self._candidates()
        first = candidates[0]
        self._count_fit(Budget(first.epsilon, first.delta), first.ledger, first.random_state)
        chosen = choose(candidates, _words(settings), self._trials(), X, y, groups=groups)
        self.best_estimator_ = chosen.estimator
        self.best_params_ = settings[chosen.setting]
        self.best_score_ = chosen.score
        self.certificate_ = chosen.estimator.certificate_
        self.__dict__.pop("evaluation_", None)  # of a search that was
        if hasattr(chosen.estimator, "evaluation_"):
            self.evaluation_ = chosen.estimator.evaluation_
        self.search_ = chosen.search
        return self

    def plan(self, *, size: int, columns: int, classes: int = 2) -> CalibratedSearch:
        """What a fit would do and spend, from public facts alone.

        Parameters
        ----------
        size, columns : int
            Of the table.
        classes : int
            Number of classes; 0 for a regressor.

        Returns
        -------
        CalibratedSearch
            What would be run; ``explain()`` says it in words.
        """
        candidates, settings = self._candidates()
        count = classes if isinstance(candidates[0], DPLinearClassifier) else 0
        search = planned(candidates, _words(settings), self._trials(), count)
        return search.calibrate(size=size, columns=columns, classes=count)

    def _trials(self) -> Trials:
        return Trials(self.trials, self.distribution)

    def _candidates(self) -> tuple[list[Any], list[dict[str, Any]]]:
        """An estimator for every setting, none of them fitted, and the settings."""
        if not isinstance(self.estimator, DPLinearClassifier | DPLinearRegressor):
            raise InputError(
                "estimator must be a DPLinearClassifier or a DPLinearRegressor, not "
                f"{type(self.estimator).__name__}"
            )
        settings = _settings(self.param_grid)
        for name in {name for setting in settings for name in setting}:
            self._require_tunable(name)
        base = clone(self.estimator)
        given = {"epsilon": self.epsilon, "delta": self.delta}
        base.set_params(**{name: value for name, value in given.items() if value is not None})
        return [_configured(base, setting) for setting in settings], settings

    def _require_tunable(self, name: str) -> None:
        if name in FIXED:
            raise InputError(f"{name} cannot be tuned: {FIXED[name]}")
        head, _, setting = name.partition("__")
        if head not in TUNED or (setting and head not in ("stages", "trainer")):
            raise InputError(
                f"{name!r:.80} is not a setting that can be tuned{did_you_mean(name, TUNED)}. "
                f"Settings are {', '.join(TUNED)}, or one of the trainer or of a stage, such as "
                "trainer__learning_rate or stages__clipnorm__radius"
            )

    # --- the model that was found -----------------------------------------------------------------

    @property
    def classes_(self) -> np.ndarray:
        """Labels."""
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.classes_)

    @property
    def n_features_in_(self) -> int:
        """Columns of the rows that were fitted."""
        try:
            check_is_fitted(self, "best_estimator_")
        except ValueError as error:  # what `hasattr` understands
            raise AttributeError(str(error)) from error
        return int(self.best_estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Their names, if they had any."""
        return np.asarray(self.best_estimator_.feature_names_in_)

    def predict(self, X: Any) -> np.ndarray:
        """What the best model predicts.

        Parameters
        ----------
        X : array, sparse matrix or table, of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels or numbers.
        """
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict(X))

    @_offers("decision_function")
    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the best model.

        Parameters
        ----------
        X : array, sparse matrix or table, of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,) or (n, classes)
            One score for two classes, one for each of more.
        """
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.decision_function(X))

    @_offers("predict_proba")
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of every class, where the best model has them.

        Parameters
        ----------
        X : array, sparse matrix or table, of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n, classes)
            Probabilities, in the order of ``classes_``.
        """
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict_proba(X))

    def score(self, X: Any, y: Any) -> float:
        """Accuracy or R² of the best model on these rows, without noise.

        Parameters
        ----------
        X : array, sparse matrix or table, of shape (n, d)
            Rows.
        y : sequence of n labels or numbers
            What they should be predicted to be.

        Returns
        -------
        float
            Accuracy, or R².
        """
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            inner = self.estimator.__sklearn_tags__()
            tags.estimator_type = inner.estimator_type
            tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
            tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


TARGETS = "classes=[...] or target_bounds=(low, high)"


class Choice(NamedTuple):
    """The estimator of the best trial, fitted; its number; its noisy score; what was run."""

    estimator: Any
    setting: int
    score: float
    search: CalibratedSearch


def planned(
    candidates: Sequence[Any],
    words: Sequence[Mapping[str, str]],
    trials: Trials,
    classes: int,
    *,
    rows: Rows | None = None,
    schema: Schema | None = None,
) -> Search:
    """A search among estimators; stages that are one object for all are fitted once."""
    known: Any = {"rows": rows, "schema": schema}
    plans = [each._plan(each._loss_of(classes), **known) for each in candidates]
    if all(candidate.stages is candidates[0].stages for candidate in candidates):
        # What "auto" stands for was made anew for each of them.
        plans = [dataclasses.replace(plan, stages=plans[0].stages) for plan in plans]
    return Search(tuple(plans), trials, tuple(words))


def choose(
    candidates: Sequence[Any],
    words: Sequence[Mapping[str, str]],
    trials: Trials,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
) -> Choice:
    """The best of a random number of trials of estimators that differ in their settings only.

    Parameters
    ----------
    candidates : sequence of DPLinearClassifier or DPLinearRegressor
        Not fitted, all with the budget, ledger and random_state of the search.
    words : sequence of mappings
        What each of them sets, for the certificate.
    trials : Trials
        How many are made.
    X, y, groups
        Private rows, labels or targets, and whose rows they are.
    """
    first = candidates[0]
    Budget(first.epsilon, first.delta)
    if first.holdout is None and first.holdout_by is not None:
        raise InputError(HELD_OUT_BY)
    problem = first._problem(X, y, getattr(first, "classes", None), groups=groups)
    if problem.finder is not None:
        raise MissingBound("a search, whose trials would each look at the targets,", TARGETS)
    search = planned(
        candidates, words, trials, problem.many, rows=problem.rows, schema=problem.schema
    )
    key, begin = first._key(), first._init(problem, search.plans[0].loss)
    assumed = [*problem.assumptions, *first._public_assumptions(problem.rows, begin)]
    how: dict[str, Any] = {"assumptions": assumed, "init": lambda loss: first._init(problem, loss)}
    split, train = None, problem
    if first.holdout is not None:
        split = first._split(search.plans[0], problem.rows, key)
        train, rest = split.problems(problem)
        budget = search.plans[0].budget
        part = split.training_budget(problem.many, budget)
        plans = (dataclasses.replace(plan, budget=part) for plan in search.plans)
        search = dataclasses.replace(search, plans=tuple(plans))
    size = first._size(search.plans[0].neighbors, problem.rows.units)
    size = size if split is None else split.train_size
    made = search.calibrate(size=size, columns=problem.rows.d, classes=problem.many)

    def keep(found: Found) -> Any:
        best = candidates[found.setting]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(first, name):
                setattr(best, name, getattr(first, name))
        best._keep(found.fit, problem)
        return best

    if split is None:
        found = made.run(train.rows, train.targets, key=key, ledger=first.ledger, **how)
        return Choice(keep(found), found.setting, found.score, made)
    both = split.held_out_plan(made, problem.many, budget)
    made.validate(train.rows, how["init"])

    def tried(run: Releases, entry: Reservation | None) -> Found:
        rows = train.rows, train.targets
        return made.fit_with(*rows, run, entry=entry, account=both.account, **how)

    def test(found: Found, run: Releases) -> Evaluation:
        assert split is not None
        return split.test(keep(found), rest, run, both)

    whole = both.account(made.winner(0))
    found, tested = both.run(whole, tried, test, key=key, ledger=first.ledger)
    best = candidates[found.setting]
    best.evaluation_ = dataclasses.replace(tested, certificate=found.certificate)
    return Choice(best, found.setting, found.score, made)


def _words(settings: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [{name: f"{value!r:.120}" for name, value in setting.items()} for setting in settings]


def _settings(grid: Any) -> list[dict[str, Any]]:
    """Every setting of a grid."""
    parts = [grid] if isinstance(grid, Mapping) else grid
    if not isinstance(parts, list | tuple) or not all(isinstance(p, Mapping) for p in parts):
        raise InputError("param_grid must be a dict of lists, or a list of such dicts")
    if not parts or not all(parts):
        raise InputError("param_grid is empty: there is nothing to choose from")
    for part in parts:
        for name, values in part.items():
            if not isinstance(name, str):
                raise InputError(f"param_grid has a name that is no text: {name!r:.80}")
            listed = isinstance(values, list | tuple) or (
                isinstance(values, np.ndarray) and values.ndim == 1
            )
            if not listed or len(values) == 0:
                raise InputError(f"param_grid: {name!r:.80} needs a list of values, one at least")
    combinations = ParameterGrid(list(parts))
    if len(combinations) > MOST_SETTINGS:
        raise InputError(f"param_grid has more than {MOST_SETTINGS} settings to try")
    return [dict(setting) for setting in combinations]


def _configured(base: Any, setting: Mapping[str, Any]) -> Any:
    """The estimator with a setting."""
    values = {n: v.item() if isinstance(v, np.generic) else v for n, v in setting.items()}
    candidate = clone(base).set_params(**values)
    if not any(name.startswith("stages") for name in setting):
        candidate.stages = base.stages  # the same objects, so that they are fitted once
    return candidate
