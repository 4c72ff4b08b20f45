"""A private geometric median, under any Mahalanobis norm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tacit import __version__
from tacit.exceptions import InputError, MissingBound
from tacit.ledger import Ledger, Reservation
from tacit.ledger.required import require_ledger
from tacit.linear_model.inputs import rows_of
from tacit.mechanisms.additive import noisy_sum, row_norms, shorten
from tacit.mechanisms.lattice import accounted_probability, require_precision, sampler_delta
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Releases
from tacit.params import ShowsBudget
from tacit.privacy import sentences
from tacit.privacy.accounting.accountants import PLD_SLACK
from tacit.privacy.accounting.calibrate import calibrate
from tacit.privacy.budget import Budget
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Event, Gaussian, PoissonGaussian
from tacit.privacy.relation import Neighbors
from tacit.trainers.base import is_number, is_positive, is_whole

__all__ = ["DPGeometricMedian"]

CHUNK = 1 << 18  # numbers held at a time: what a cache holds
STEPS = 100


class DPGeometricMedian(ShowsBudget, BaseEstimator):
    """The point of least mean distance to private rows, ‖x − xᵢ‖_A (Li et al. 2022, section 4.1).

    Noisy descent from zero with a pull towards it (Li et al. 2022, Algorithm 1, on all rows), in
    columns times √aₖ, where all of them need as much noise as the heaviest alone; the answer is
    the mean of the second half of the iterates, where the paper has that of all. Weights say
    which columns matter, as the coefficients G_k of the paper's Theorem 3.3 do: the answer keeps
    the first k of them, for the k that the noisy iterates show best, and is zero behind. So
    columns that say nothing cost nothing, unless they weigh as much as those that do.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    radius : float
        Norm that rows are shortened to, and that the answer is kept within. It must be known
        without looking at the rows.
    weights : array-like of shape (d,) or (d, d), optional
        A, public: its diagonal, of positive numbers, or a symmetric positive definite matrix, whose
        eigenvectors take the place of columns. All ones if not given, the ordinary median.
    steps : int
        Noisy steps.
    batch_size : float, optional
        Rows of a step on average, each drawn by itself with probability ``batch_size`` / n. If not
        given, every step takes all rows.
    learning_rate : float, optional
        Of columns times √aₖ. If not given, the rate that balances the way to go, ``radius``
        times √max aₖ, against gradients and the noise.
    anchor : float
        Strength of the pull towards zero, where it begins.
    neighbors : {"replace_special", "replace_one"}
        What differing in one row means.
    random_state : int, optional
        Makes a run repeatable, and not private.
    ledger : Ledger, optional
        Account that the budget is taken from, before any noise is drawn.

    Attributes
    ----------
    location_ : ndarray of shape (d,)
        The median.
    kept_ : ndarray of shape (d,)
        Whether each column stood out of the noise, with those of its weight or more; of a matrix,
        each eigenvector, from the largest eigenvalue down.
    certificate_ : Certificate
    n_features_in_ : int

    Notes
    -----
    In columns times √aₖ the gradient of a row is of norm at most 1: one row cannot count for
    more, and sums of rows are exact integers with exact noise. Which columns are kept is read
    off the iterates alone. What is left out is never longer, in ‖·‖_A, than √2 times the distance
    between the means of the third and the fourth quarter of the iterates.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal([0.3, 0.0], 0.1, size=(2000, 2))
    >>> median = DPGeometricMedian(radius=1.0, random_state=0).fit(X)
    >>> median.location_.round(1) + 0.0
    array([0.3, 0. ])
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        radius: float | None = None,
        weights: Any = None,
        steps: int = STEPS,
        batch_size: float | None = None,
        learning_rate: float | None = None,
        anchor: float = 0.0,
        neighbors: Neighbors = "replace_special",
        random_state: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.weights = weights
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.anchor = anchor
        self.neighbors = neighbors
        self.random_state = random_state
        self.ledger = ledger

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the median of private rows, spending the budget.

        Parameters
        ----------
        X : array, sparse matrix or table, of shape (n, d)
            Private rows.
        y : None
            Not used.

        Returns
        -------
        Self
            The fitted estimator.
        """
        budget = Budget(self.epsilon, self.delta)
        self._check()
        X = self._read(X, reset=True)
        n, d = X.shape
        shape = self._shape(d)
        weights, roots = shape.weights, np.sqrt(shape.weights)
        reach = float(self.radius or 0.0) * float(roots.max())
        steps, size = int(self.steps), float(self.batch_size or n)
        if size > n:
            raise InputError(f"batch_size={self.batch_size!r} must be at most the {n} rows")
        slack = require_precision(
            budget.epsilon, budget.delta, steps * d, grid=PLD_SLACK * self._sampled
        )
        left = Budget(budget.epsilon, budget.delta - slack)
        z = calibrate(lambda z: [self._event(z, n)], left, self.neighbors)
        rate = self._rate(d, reach, z / size)
        key = Key.fresh() if self.random_state is None else Key.from_seed(self.random_state)
        spent = [("DPGeometricMedian", self._event(z, n))]
        run = Releases(key, spent)
        token = run.token("DPGeometricMedian")
        entry = None
        if self.ledger is not None:
            described = {"kind": "median", "rows": n, "columns": d}
            entry = self.ledger.reserve(
                spent, neighbors=self.neighbors, draws=steps * d, budget=budget, plan=described
            )
        rows = shape.turned(shorten(X, float(self.radius or 0.0))) * roots
        held = 1 + rate * float(self.anchor) / weights  # the anchor's own step, solved for its end
        y, burn = np.zeros(d), steps // 2
        third, fourth = np.zeros(d), np.zeros(d)  # sums over quarters of the iterates
        turn = burn + (steps - burn) // 2
        for step in range(steps):
            some = rows[token.at("batch", step).batch(n)] if token.samples else rows
            total = noisy_sum(row_gradients(some, y), d, 1.0, token.at("noise", step))
            y = (y - rate * total / size) / held
            y *= min(1.0, reach / max(float(np.linalg.norm(y)), 1e-300))
            if step >= burn:
                (third if step < turn else fourth)[:] += y
        run.close()
        mean = (third + fourth) / (steps - burn)
        moved = fourth / (steps - turn) - third / (turn - burn) if turn > burn else np.zeros(d)
        self.kept_ = kept_columns(mean, moved, weights)
        found = shape.back(np.where(self.kept_, mean, 0.0) / roots)
        self.location_ = shorten(found[None], float(self.radius or 0.0))[0]
        self.certificate_ = self._certify(n, d, spent, rate, slack=slack, entry=entry)
        if entry is not None:
            entry.settle("summary", self.certificate_.digest)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Distance of every row to the median, negated; it looks at nothing but these rows.

        Parameters
        ----------
        X : array, sparse matrix or table, of shape (n, d)
            Rows.

        Returns
        -------
        ndarray of shape (n,)
            At most 0.
        """
        check_is_fitted(self)
        X = self._read(X, reset=False)
        shape = self._shape(X.shape[1])
        with np.errstate(over="ignore"):
            apart = shape.turned(X - self.location_) * np.sqrt(shape.weights)
        return -row_norms(apart)

    def _read(self, X: Any, *, reset: bool) -> np.ndarray:
        """Rows as numbers, checked."""
        rows, _ = rows_of(self, X, [], reset=reset)
        if rows.sparse:
            raise InputError("rows are sparse: pass X.toarray(), for the median is not")
        return np.concatenate([chunk for _, chunk in rows.chunks()])

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`: the larger, the nearer.

        Parameters
        ----------
        X : array, sparse matrix or table, of shape (n, d)
            Rows.
        y : None
            Not used.

        Returns
        -------
        float
            At most 0.
        """
        return float(self.score_samples(X).mean())

    def _check(self) -> None:
        if self.radius is None:
            raise MissingBound(
                "DPGeometricMedian", "radius=, a norm that rows have as a rule, known in advance"
            )
        if not (is_number(self.radius) and 1e-100 <= self.radius <= 1e100):
            raise InputError(
                f"radius={self.radius!r} must be a positive number, from 1e-100 to 1e100"
            )
        if not (is_whole(self.steps) and self.steps >= 1):
            raise InputError(f"steps={self.steps!r} must be an integer from 1")
        if self.batch_size is not None and not is_positive(self.batch_size):
            raise InputError(f"batch_size={self.batch_size!r} must be positive, or None: all rows")
        if self.learning_rate is not None and not is_positive(self.learning_rate):
            raise InputError(f"learning_rate={self.learning_rate!r} must be positive, or None")
        if not (is_number(self.anchor) and self.anchor >= 0):
            raise InputError(f"anchor={self.anchor!r} must be 0 or a positive number")
        if self.ledger is not None:
            require_ledger(self.ledger, seeded=self.random_state is not None)
        if self.neighbors not in ("replace_special", "replace_one"):
            raise InputError(
                f"neighbors={self.neighbors!r} must be 'replace_special' or 'replace_one'"
            )

    @property
    def _sampled(self) -> bool:
        return self.batch_size is not None

    def _event(self, z: float, n: int) -> Event:
        steps = int(self.steps)
        if self.batch_size is None:
            return Gaussian(z, steps)
        return PoissonGaussian(z, steps, accounted_probability(float(self.batch_size) / n))

    def _shape(self, d: int) -> Shape:
        if self.weights is None:
            return Shape(np.ones(d))
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.ndim == 2:
            return Shape.of(weights, d)
        if weights.shape != (d,) or not np.all((weights > 0) & np.isfinite(weights)):
            raise InputError(
                f"weights must be {d} positive numbers, one for each column, or a symmetric "
                f"positive definite matrix of {d} by {d}"
            )
        return Shape(weights)

    def _rate(self, d: int, reach: float, noise: float) -> float:
        """D/√(T(G² + dσ²)), as for descent (`tacit.research.theory.descent`); G = 1 here."""
        if self.learning_rate is not None:
            return float(self.learning_rate)
        return reach / math.sqrt(int(self.steps) * (1 + d * noise**2))

    def _certify(
        self,
        n: int,
        d: int,
        spent: list[tuple[str, Event]],
        rate: float,
        *,
        slack: float,
        entry: Reservation | None,
    ) -> Certificate:
        seeded = self.random_state is not None
        settings = {"steps": int(self.steps), "learning_rate": rate, "anchor": float(self.anchor)}
        settings |= {"radius": float(self.radius or 0.0)}
        if self.batch_size is not None:
            settings |= {"batch_size": float(self.batch_size)}
        budget = Budget(float(self.epsilon), float(self.delta))
        return Certificate.issue(
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            neighbors=self.neighbors,
            spent=spent,
            releasable=not seeded,
            reasons=sentences.reasons(seeded),
            assumptions=(
                f"the number of rows, {n}, is public, and so is that of columns, {d}",
                "radius, weights and all settings were chosen without looking at the rows",
                sentences.EXACT,
            ),
            warnings=(),
            numerical_delta=slack,
            sampler_delta=sampler_delta(int(self.steps) * d, spent, budget),
            plan={"rows": n, "columns": d, "median": settings}
            | ({} if entry is None else {"ledger": entry.to_dict()}),
            versions={"tacit": __version__, "numpy": np.__version__},
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )


@dataclass(frozen=True)
class Shape:
    """A = V diag(weights) Vᵀ: columns are turned to the eigenvectors, if A is no diagonal.

    Attributes
    ----------
    weights : ndarray of shape (d,)
        Positive.
    vectors : ndarray of shape (d, d), or None
        Eigenvectors as columns.
    """

    weights: np.ndarray
    vectors: np.ndarray | None = None

    @classmethod
    def of(cls, matrix: np.ndarray, d: int) -> Self:
        """Of a dense A, with the largest eigenvalue first."""
        wrong = f"weights must be a symmetric positive definite matrix of {d} by {d}"
        if matrix.shape != (d, d) or not np.all(np.isfinite(matrix)):
            raise InputError(wrong)
        if not np.allclose(matrix, matrix.T, rtol=1e-10, atol=1e-12 * np.abs(matrix).max()):
            raise InputError(f"{wrong}; this one is not symmetric")
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        if not values[0] > d * 2.0**-50 * values[-1]:
            raise InputError(
                f"{wrong}; the least eigenvalue of this one is {values[0]:.3g}, beside "
                f"{values[-1]:.3g}"
            )
        return cls(values[::-1], vectors[:, ::-1])

    def turned(self, rows: np.ndarray) -> np.ndarray:
        """Rows in eigenvectors. A row's own values alone count: shapes and places are public."""
        return rows if self.vectors is None else rows @ self.vectors

    def back(self, point: np.ndarray) -> np.ndarray:
        """A point in columns."""
        return point if self.vectors is None else self.vectors @ point


def row_gradients(rows: np.ndarray, y: np.ndarray) -> Iterator[np.ndarray]:
    """Of every row at y, in chunks: of norm one, and zero where a row lies at y."""
    size = max(1, CHUNK // max(rows.shape[1], 1))
    for start in range(0, len(rows), size):
        apart = y - rows[start : start + size]
        lengths = row_norms(apart)
        inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 1e-150)
        yield apart * inverse[:, None]


def kept_columns(mean: np.ndarray, moved: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The columns in front that stand out: the k of Li et al. 2022, Theorem 3.3, read off the
    iterates.

    Two quarters differ by four times the variance of their mean in all, so that ``moved`` measures
    the noise. A column is worth keeping if it has twice as much, near three standard deviations;
    the best k has the most to spare over its columns together. Equal weights stay together, and
    those of the heaviest columns always.
    """
    order = np.argsort(-weights, kind="stable")
    spare = np.cumsum(np.square(mean[order]) - 2 * np.square(moved).mean())
    ends = np.flatnonzero(np.append(np.diff(weights[order]) != 0, True))
    last = ends[np.argmax(spare[ends])]
    kept: np.ndarray = weights >= weights[order][last]
    return kept
