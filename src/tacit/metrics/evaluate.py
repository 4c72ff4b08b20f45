"""`evaluate`: how good a model is, on private rows, through noise.

One release: tables of counts, each unit in one cell of each (`tacit.metrics.tables`), with
Gaussian noise on every count. All figures, intervals and curves are read from it: post-processing.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit import __version__
from tacit.data.arrays import is_array, readable, to_numpy
from tacit.data.owners import Owners, require_same_order
from tacit.data.tables import Table, as_table
from tacit.exceptions import (
    InputError,
    MissingBound,
    ReleaseError,
    TacitError,
    of_rows,
    raise_alone,
)
from tacit.ledger import Ledger
from tacit.ledger.required import require_ledger
from tacit.mechanisms.lattice import require_precision
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import BoundedSum, Releases, Token
from tacit.metrics.bins import MOST, bins_for, place, scale_edges, scale_from
from tacit.metrics.class_tables import class_tables, most_cells
from tacit.metrics.evaluation import Evaluation
from tacit.metrics.number_tables import NumberTables
from tacit.metrics.tables import OTHER, Tables
from tacit.privacy import sentences
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event, Gaussian
from tacit.privacy.public_size import resolve_size
from tacit.privacy.relation import Neighbors
from tacit.privacy.unit import ROW, Unit

NAME = "Evaluation"
VOTE = 1 << 24  # lattice units of one unit's count
UP = 1 + 1e-14
SCALE_SHARE = 0.15  # of the squared budget, to find how large errors are
FEWEST_KNOTS = 16  # of errors: squares and quantiles are known up to the gaps between them
MOST_GROUPS = 16
FEW = 20  # deviations of a count: with fewer units, accuracy is known to about 0.15 at best
HARDLY = (
    "{size:,} are few to be tested on through this noise, which changes every count by {noise:.2g} "
    "or so: intervals will be wide. Test on more, tell fewer groups apart, or raise epsilon"
)
ROWS_ONLY = (
    "the model protects people with all of their rows, and this test every row by itself: unless "
    "everybody has one, say whose they are, with groups= and max_rows_per_group={0} "
    "(--person, --rows-per-person {0})"
)


@dataclass(frozen=True)
class EvaluationPlan:
    """What will be counted, from public facts alone, and with how much noise.

    Attributes
    ----------
    task : {"classification", "regression"}
        What the model predicts.
    classes : tuple
        Labels, in their order; empty for regression.
    bounds : (float, float) or None
        Of the target, for regression.
    cap : float or None
        Public size beyond which errors count as much; found through noise if None.
    groups : tuple of str
        Groups that are told apart; the last one is everybody else.
    size : int
        Public number of units, or its stand-in.
    counted : bool
        Whether that is how many there are.
    noise_multiplier : float
        In contributions of one unit to all tables.
    probabilities : bool
        Whether scores are probabilities.
    confidence : float
        Of every interval.
    """

    task: str
    classes: tuple[Any, ...]
    bounds: tuple[float, float] | None
    cap: float | None
    groups: tuple[str, ...]
    size: int
    counted: bool
    noise_multiplier: float
    probabilities: bool = True
    confidence: float = 0.95

    @property
    def spent(self) -> tuple[tuple[str, Event], ...]:
        """What it costs."""
        return ((NAME, Gaussian(self.noise_multiplier)),)

    @property
    def draws(self) -> int:
        """Noise values that are drawn at most."""
        return most_draws(len(self.classes), len(self.groups))

    def run(
        self,
        truth: np.ndarray,
        scores: np.ndarray,
        by: Any,
        run: Releases,
        owners: Owners | None = None,
    ) -> Evaluation:
        """Count units through noise, and read what the counts say.

        Parameters
        ----------
        truth : ndarray of shape (n,)
            Positions among the classes, −1 for none of them; or numbers.
        scores : ndarray of shape (n,) or (n, classes)
            What the model says: of two classes the probability of the second.
        by : sequence of n names, or None
            Their groups.
        run : Releases
            That has a token for `spent`.
        owners : Owners, optional
            Whose rows are whose, where people are counted: one row of each is, drawn here.

        Returns
        -------
        Evaluation
            Without a certificate as yet.
        """
        if (ROW if owners is None else owners.unit) != run.unit:
            raise ReleaseError(f"{NAME} was counted for {run.unit}, and is given others' rows")
        if owners is not None:
            one = owners.one_of_each(run.public.hashed("rows tested on"))
            truth, scores, by = truth[one], scores[one], None if by is None else by[one]
        n = len(scores)
        token = run.token(NAME).at("evaluation")
        coins = run.public.coins("evaluation coins", n)
        group = np.zeros(n, dtype=np.int64) if by is None else positions(by, self.groups[:-1])
        group = np.where(group < 0, len(self.groups) - 1, group)
        cap = self.cap
        if self.bounds is not None and cap is None:
            part = token.part(SCALE_SHARE)
            cap = self._find_cap(truth, scores, part)
            token = token.part(1 - SCALE_SHARE)
        tables = self.tables(cap, token.noise_multiplier)
        counts = tables.count(truth, scores, group, coins)
        noisy = release(counts, token)
        deviation = token.noise_multiplier * math.sqrt(len(counts))
        total = self.size if self.counted else None
        read = tables.read(noisy, deviation, total)
        named = self.groups[:-1]
        by_group = {name: read.reading(i) for i, name in enumerate(named)}
        scores_below = read.scores(deviation, total)
        return Evaluation.of(self, read.reading(), by_group, cap=cap, scores=scores_below)

    def tables(self, cap: float | None, noise_multiplier: float) -> Tables:
        """The tables, for so much noise on their release.

        Parameters
        ----------
        cap : float or None
            Of errors, for regression.
        noise_multiplier : float
            In contributions of one unit to all tables.

        Returns
        -------
        Tables
            Of classes or of numbers.
        """
        if self.bounds is None:
            return class_tables(
                [str(name) for name in self.classes],
                self.size,
                noise_multiplier,
                self.groups,
                probabilities=self.probabilities,
                confidence=self.confidence,
            )
        assert cap is not None
        deviation = noise_multiplier * math.sqrt(2)
        bins = max(bins_for(max(self.size // len(self.groups), 1), deviation) // 2, FEWEST_KNOTS)
        return NumberTables(self.bounds, cap, bins, self.groups, self.confidence)

    def _find_cap(self, truth: np.ndarray, scores: np.ndarray, token: Token) -> float:
        """How large errors are as a rule, through noise."""
        assert self.bounds is not None
        low, high = self.bounds
        edges = scale_edges(high - low)
        inside, guess = (np.clip(x, low, high) for x in (truth, np.nan_to_num(scores)))
        known = np.isfinite(truth)
        bins = place(np.abs(inside - guess)[known], edges)
        (noisy,) = release([np.bincount(bins, minlength=len(edges) - 1)], token)
        return scale_from(noisy, edges, token.noise_multiplier)

    def describe(self, unit: Unit = ROW) -> dict[str, Any]:
        """What a certificate says of it, in public words and numbers.

        Parameters
        ----------
        unit : Unit
            What was counted: rows, or people.

        Returns
        -------
        dict
            Plain JSON values.
        """
        facts: dict[str, Any] = {"kind": "evaluation", "task": self.task, unit.plural: self.size}
        if self.classes:
            facts["classes"] = [str(name) for name in self.classes]
        if self.bounds is not None:
            facts["target_bounds"] = list(self.bounds)
        if len(self.groups) > 1:
            facts["groups"] = list(self.groups)
        return {**facts, "confidence": self.confidence, "arithmetic": "exact"}


def most_draws(classes: int, groups: int) -> int:
    """Noise values of an evaluation at most.

    Parameters
    ----------
    classes : int
        Of the model; 0 for numbers.
    groups : int
        That are told apart.

    Returns
    -------
    int
        From public facts.

    Examples
    --------
    >>> most_draws(2, 1) <= most_draws(64, 1)
    True
    """
    return groups * (most_cells(classes) if classes else 3 * (2 * MOST + 2))


def require_groups(by_values: Sequence[Any]) -> tuple[str, ...]:
    """Names of groups, and one for everybody else.

    Parameters
    ----------
    by_values : sequence
        Public names.

    Returns
    -------
    tuple of str
        Without repetitions.

    Examples
    --------
    >>> require_groups(["f", "m", "f"])
    ('f', 'm', 'other')
    """
    listed = not isinstance(by_values, str) and isinstance(by_values, Sequence | np.ndarray)
    names = tuple(dict.fromkeys(str(value) for value in by_values)) if listed else ()
    if not 1 <= len(names) <= MOST_GROUPS:
        raise InputError(
            f"groups are named by a list of 1 to {MOST_GROUPS} public values, such as ['f', 'm'], "
            f"not {by_values!r:.80}"
        )
    return (*names, OTHER)


def release(counts: Sequence[np.ndarray], token: Token) -> list[np.ndarray]:
    """Tables of counts with noise; each unit is in one cell of each.

    `EvaluationPlan.run` has taken one row of every person, where people are the units.

    Parameters
    ----------
    counts : sequence of ndarray of int
        One for each table: c of them have a norm of √c together.
    token : Token
        For one Gaussian release.

    Returns
    -------
    list of ndarray
        Of the same shapes.
    """
    norm = math.sqrt(len(counts)) * UP
    values = np.concatenate(counts).astype(np.int64) * VOTE
    total = BoundedSum(values, 1 / VOTE, norm, norm * UP, "votes", owner=token.unit)
    noisy = token.gaussian(total)
    return np.split(noisy, np.cumsum([len(table) for table in counts])[:-1])


def evaluation_noise(budget: Budget, neighbors: Neighbors, draws: int) -> float:
    """The noise multiplier of one release of counts, for a budget.

    Parameters
    ----------
    budget : Budget
        What it may cost.
    neighbors : str
        The relation.
    draws : int
        Noise values that are drawn at most.

    Returns
    -------
    float
        In contributions of one unit to all tables.
    """
    slack = require_precision(budget.epsilon, budget.delta, draws)
    left = Budget(budget.epsilon, budget.delta - slack)
    return calibrate(lambda z: [Gaussian(z)], left, neighbors)


def warn_if_few(size: int, noise_multiplier: float, groups: int = 1) -> None:
    """Say, before anything is spent, that so few units can hardly be seen through the noise.

    Parameters
    ----------
    size : int
        Public number of units, or its stand-in.
    noise_multiplier : float
        In contributions of one unit to all tables.
    groups : int
        That are told apart.
    """
    noise = math.sqrt(2) * noise_multiplier  # of two tables, the fewest
    if size < FEW * groups * noise:
        logging.getLogger("tacit").warning(HARDLY.format(size=size, noise=noise))


def plan_evaluation(
    model: Any,
    size: int,
    budget: Budget,
    neighbors: Neighbors,
    *,
    noise_multiplier: float | None = None,
    by_values: Sequence[Any] | None = None,
    bounds: tuple[float, float] | None = None,
    error_bound: float | None = None,
    confidence: float = 0.95,
) -> EvaluationPlan:
    """What evaluating a model will count, and the noise that a budget asks for.

    Parameters
    ----------
    model : fitted classifier or regressor
        Of which classes and bounds of the target are read.
    size : int
        Public number of units, or its stand-in.
    budget : Budget
        What it may cost.
    neighbors : str
        The relation.
    noise_multiplier : float, optional
        If it was found before.
    by_values : sequence, optional
        Public names of groups.
    bounds : (float, float), optional
        Of the target; those of the model if not given.
    error_bound : float, optional
        Public size beyond which errors count as much; found through noise if not given.
    confidence : float
        Of every interval.

    Returns
    -------
    EvaluationPlan
        Which reads no row.
    """
    if not (isinstance(confidence, Real) and 0 < confidence < 1):
        raise InputError(f"confidence={confidence!r:.80} must lie between 0 and 1, such as 0.95")
    classes = tuple(getattr(model, "classes_", ()))
    task = "classification" if classes else "regression"
    limits = None
    if not classes:
        limits = _target_bounds(
            getattr(model, "target_bounds_", None) if bounds is None else bounds
        )
    elif bounds is not None or error_bound is not None:
        raise InputError("bounds and error_bound are of numbers, and this model predicts classes")
    if error_bound is not None and not (isinstance(error_bound, Real) and 0 < error_bound < 1e100):
        raise InputError(f"error_bound={error_bound!r:.80} must be a positive number")
    groups = () if by_values is None else require_groups(by_values)
    probabilities = hasattr(model, "predict_proba")
    plan = EvaluationPlan(
        task,
        classes,
        limits,
        None if error_bound is None else float(error_bound),
        groups or ("",),
        size,
        neighbors != "add_or_remove_one",
        1.0,
        probabilities,
        float(confidence),
    )
    noise = noise_multiplier or evaluation_noise(budget, neighbors, plan.draws)
    return replace(plan, noise_multiplier=noise)


def evaluate(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilon: float,
    delta: float,
    by: Any = None,
    by_values: Sequence[Any] | None = None,
    bounds: tuple[float, float] | None = None,
    error_bound: float | None = None,
    confidence: float = 0.95,
    neighbors: Neighbors = "replace_special",
    public_size: int | None = None,
    groups: Any = None,
    max_rows_per_group: int | None = None,
    identifier: str | None = None,
    ledger: Ledger | None = None,
    random_state: int | None = None,
) -> Evaluation:
    """Test a model on private rows, with figures that may be published.

    Rows must not have been used to fit the model, or figures are too good: pass others, or fit
    with ``holdout=``. Every figure has an interval that covers noise, sampling and the width of
    bins: it is about the population that the rows are from.

    Parameters
    ----------
    model : fitted classifier or regressor
        One of Tacit's, or of scikit-learn's.
    X : array, sparse matrix or table of shape (n, d)
        Private rows, as the model takes them.
    y : sequence of n labels or numbers
        Their targets. A label that the model does not know counts nowhere.
    epsilon, delta : float
        What it may cost.
    by : str or sequence of n names, optional
        Groups of the rows, for figures of each; the name of a column of a table X.
    by_values : sequence, optional
        Public names of these groups; whoever has another is in none of them.
    bounds : (float, float), optional
        Of a target that is a number; those of the model if not given. Targets and predictions are
        clamped to them.
    error_bound : float, optional
        Public size beyond which errors count as much; found through noise if not given.
    confidence : float
        Of every interval by itself.
    neighbors : str
        The relation. With ``add_or_remove_one`` ``public_size`` must be given.
    public_size : int, optional
        Public number that stands for the number of rows, or of people.
    groups : str or sequence of n identifiers, optional
        Whose rows are whose, or the name of a column of a table X: then people are protected with
        all of their rows, and one row of each, drawn at random, counts. Never written anywhere.
    max_rows_per_group : int, optional
        With ``groups``: most rows of a person, as in the fit.
    identifier : str, optional
        With ``groups``: name of the column that they are from, for the certificate. Their own
        name, if they have one.
    ledger : Ledger, optional
        Account that the budget is taken from, before any noise is drawn.
    random_state : int, optional
        Repeatable noise: for tests, not for release.

    Returns
    -------
    Evaluation
        Figures with intervals, curves, and a certificate.

    Notes
    -----
    Released are c tables of counts n_t + z·√c·N(0, I), in which one unit adds one to one count of
    each table: their norm is √c, and the noise multiplier z is that of `Gaussian`.

    Examples
    --------
    >>> from tacit import DPLinearClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 6000)
    >>> X = rng.normal(size=(6000, 3)) + y[:, None]
    >>> clf = DPLinearClassifier(1.0, 1e-6, random_state=0).fit(X[:4000], y[:4000])
    >>> found = evaluate(clf, X[4000:], y[4000:], epsilon=1.0, delta=1e-6, random_state=0)
    >>> found["accuracy"].low < clf.score(X[4000:], y[4000:]) < found["accuracy"].high
    True
    >>> found.certificate.verify().holds
    True
    """
    budget = Budget(epsilon, delta)
    scores = scores_of(model, X)
    n = len(scores)
    truth = _column(y, n, "y")
    if (by is None) != (by_values is None):
        raise MissingBound(
            "figures of groups", "by=, the group of every row, and by_values=, their public names"
        )
    names = None if by is None else _column(_named(X, by, "by", Table.texts), n, "by")
    owners, unit = None, ROW
    if groups is not None or max_rows_per_group is not None:
        if groups is None or max_rows_per_group is None:
            raise MissingBound(
                "testing on people with several rows",
                "groups=, whose rows are whose, and max_rows_per_group=, as in the fit",
            )
        name = groups if isinstance(groups, str) else getattr(groups, "name", None)
        if identifier is None and isinstance(name, str) and name.isprintable() and name:
            identifier = name
        if isinstance(by, str) and by == identifier:
            raise InputError(f"by={by!r:.80} says whose a row is, and identifiers are no groups")
        unit = Unit("person", max_rows_per_group, identifier)
        require_same_order(X, groups)
        owners = Owners.of(_named(X, groups, "groups", Table.identifiers), unit, n)
    elif (theirs := getattr(getattr(model, "certificate_", None), "unit", ROW)) != ROW:
        logging.getLogger("tacit").warning(ROWS_ONLY.format(theirs.rows))
    size = resolve_size(n if owners is None else owners.people, neighbors, public_size)
    plan = plan_evaluation(
        model,
        size,
        budget,
        neighbors,
        by_values=by_values,
        bounds=bounds,
        error_bound=error_bound,
        confidence=confidence,
    )
    warn_if_few(size, plan.noise_multiplier, len(plan.groups))
    key = Key.fresh() if random_state is None else Key.from_seed(random_state)
    entry = None
    if ledger is not None:
        require_ledger(ledger, seeded=key.seeded)
        entry = ledger.reserve(
            plan.spent,
            neighbors=neighbors,
            draws=plan.draws,
            budget=budget,
            plan=plan.describe(unit),
            unit=unit,
        )
    run = Releases(key, plan.spent, unit=unit)
    known = positions(truth, plan.classes) if plan.classes else numbers(truth)
    found = plan.run(known, scores, names, run, owners)
    run.close()
    certificate = Certificate.issue(
        epsilon=budget.epsilon,
        delta=budget.delta,
        neighbors=neighbors,
        spent=plan.spent,
        releasable=not key.seeded,
        reasons=sentences.reasons(key.seeded),
        unit=unit,
        assumptions=assumptions_of(plan, neighbors, unit, ours=hasattr(model, "certificate_")),
        warnings=sentences.cautions(budget.delta, size),
        numerical_delta=require_precision(budget.epsilon, budget.delta, plan.draws),
        plan=plan.describe(unit) | ({"ledger": entry.to_dict()} if entry else {}),
        versions={"tacit": __version__, "numpy": np.__version__},
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if entry is not None:
        entry.settle("summary", certificate.digest)
    return replace(found, certificate=certificate)


def assumptions_of(
    plan: EvaluationPlan, neighbors: Neighbors, unit: Unit = ROW, *, ours: bool = True
) -> tuple[str, ...]:
    """What the guarantee takes for granted.

    Parameters
    ----------
    plan : EvaluationPlan
        What was counted.
    neighbors : str
        The relation.
    unit : Unit
        What was counted: rows, or people.
    ours : bool
        Whether the model is one of Tacit's, which look at every row by itself.

    Returns
    -------
    tuple of str
        Clauses of a certificate.
    """
    known = sentences.rows_known(plan.size, neighbors, unit)
    texts = [known, sentences.SETTINGS, sentences.EXACT]
    texts.append(sentences.SCORED if ours else sentences.NOT_OURS)
    if unit != ROW:
        texts.append("of every person one row was tested on, drawn at random")
    texts.append("the model was made without these rows, or its certificate is counted besides")
    if plan.classes:
        texts.append("the labels that the model knows are public")
    if plan.bounds is not None:
        texts.append("the bounds of the target are public, or were released with the model")
    if len(plan.groups) > 1:
        texts.append("the names of the groups are public")
    return tuple(texts)


def scores_of(model: Any, X: Any) -> np.ndarray:
    """What a model says of rows: probabilities, scores squeezed into (0, 1), or numbers.

    Parameters
    ----------
    model : fitted classifier or regressor
        With ``predict_proba`` or ``decision_function`` if it has ``classes_``.
    X : array, sparse matrix or table of shape (n, d)
        Rows.

    Returns
    -------
    ndarray of shape (n,) or (n, classes)
        Of two classes that of the second.

    Raises
    ------
    InputError
        If a model that is not Tacit's fails. What it says of rows, or warns of, may quote them.
    """
    if hasattr(model, "certificate_"):
        return _asked(model, X)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return _asked(model, X)
    except TacitError:
        raise
    except Exception as error:
        kinds = type(model).__name__, type(error).__name__
    raise_alone(of_rows(InputError("{} cannot say anything of these rows: {}".format(*kinds))))


def _asked(model: Any, X: Any) -> np.ndarray:
    if not hasattr(model, "classes_"):
        return _shaped(model, model.predict(X))
    many = len(model.classes_)
    if hasattr(model, "predict_proba"):
        found = _shaped(model, model.predict_proba(X), many)
        return found[:, 1] if many == 2 else found
    if not hasattr(model, "decision_function"):
        raise InputError(
            f"{type(model).__name__} gives neither predict_proba nor decision_function, so that "
            "there is nothing to rank rows by"
        )
    return squeezed(_shaped(model, model.decision_function(X), *([] if many == 2 else [many])))


def _shaped(model: Any, said: Any, *width: int) -> np.ndarray:
    """What a model says, if it is one number for every row, or one for each of its classes."""
    found = np.asarray(said, dtype=np.float64)
    if not width and found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1 + len(width) or found.shape[1:] != width:
        wanted = f"a number for each of its {width[0]} classes" if width else "one number"
        raise of_rows(
            InputError(f"{type(model).__name__} must say {wanted} of every row, not something else")
        )
    return found


def squeezed(scores: np.ndarray) -> np.ndarray:
    """Scores in their order, between 0 and 1, zero at 1/2: no probabilities.

    Parameters
    ----------
    scores : ndarray
        Of any size.

    Returns
    -------
    ndarray
        Of the same shape.

    Examples
    --------
    >>> squeezed(np.array([-1.0, 0.0]))
    array([0.25, 0.5 ])
    """
    return 0.5 + np.arctan(scores) / np.pi


def positions(values: Any, names: Sequence[Any]) -> np.ndarray:
    """The place of every value among names; −1 for one that is not there.

    Parameters
    ----------
    values : sequence of n values
        Labels.
    names : sequence
        Known ones.

    Returns
    -------
    ndarray of shape (n,)
        Places.

    Examples
    --------
    >>> positions(["b", "c", None], ["a", "b"])
    array([ 1, -1, -1])
    """
    texts = {name: i for i, name in enumerate(names)} | {str(n): i for i, n in enumerate(names)}
    listed = np.asarray(values, dtype=object).tolist()
    return np.fromiter((_place_of(value, texts) for value in listed), np.int64, len(listed))


def _named(X: Any, values: Any, what: str, read: Callable[[Table, str], np.ndarray]) -> Any:
    """Values, or those of a column of X if its name is given: every cell of it by itself."""
    if not isinstance(values, str):
        return values
    if isinstance(X, np.ndarray | list | tuple) or is_array(X) or sp.issparse(X):
        raise InputError(
            f"{what}={values!r:.80} names a column, and X has no named columns: pass a value for "
            "each row"
        )
    table = X if isinstance(X, Table) else as_table(X)
    if values not in table.column_names:
        raise InputError(f"{what}={values!r:.80} is no column of X")
    return read(table, values)


def _column(values: Any, n: int, what: str) -> np.ndarray:
    """One value for every row; those that are missing stay so, and count nowhere."""
    if isinstance(values, list | tuple):  # each by itself: NumPy would make one kind of all
        values = np.fromiter(map(_alone, values), dtype=object, count=len(values))
        several = any(isinstance(value, list | tuple) for value in values)
        array = None if several else values
    else:
        array = to_numpy(readable(values, what)) if is_array(values) else np.asarray(values)
    if array is not None and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array is None or array.shape != (n,):
        raise of_rows(
            InputError(f"{what} must have a value for each of the {n} rows, in one column")
        )
    return array


def _alone(value: Any) -> Any:
    """What a row of one column holds."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _place_of(value: Any, places: dict[Any, int]) -> int:
    try:
        return places.get(value, places.get(str(value), -1))
    except (TypeError, ValueError):  # what cannot be a key, or has no text, is no label
        return -1


def numbers(values: Any) -> np.ndarray:
    """Targets as numbers; what is none is not a number, and counts nowhere.

    Parameters
    ----------
    values : sequence of n values
        Targets.

    Returns
    -------
    ndarray of shape (n,)
        Floats.

    Examples
    --------
    >>> numbers([1, "2.5", None])
    array([1. , 2.5, nan])
    """
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        with np.errstate(over="ignore"):  # infinite where float64 cannot hold it: nobody is told
            return array.astype(np.float64)
    return np.array([_number(value) for value in array.tolist()], dtype=np.float64)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _target_bounds(bounds: Any) -> tuple[float, float]:
    if bounds is None:
        raise MissingBound("evaluating a model of numbers", "bounds=(low, high) of the target")
    try:
        low, high = (float(value) for value in bounds)
    except (TypeError, ValueError):
        raise InputError(f"bounds={bounds!r:.80} must be two numbers") from None
    if not (math.isfinite(high - low) and high - low > 0):
        raise InputError(f"bounds={bounds!r:.80} must be finite, low below high")
    return low, high
