"""Data sets that the papers construct: each with the optimum that a private model is held against.

An instance is made, not measured: its rows are nobody's, and what is said about it (bound, optimum,
least loss, margin, rank) is public. Constructions are corrected where the text of a paper does not
have the property that it claims; the docstrings say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from tacit.exceptions import InputError
from tacit.losses import Loss, get_loss

__all__ = [
    "Instance",
    "clipping_bias",
    "fingerprinting",
    "large_margin_mixture",
    "low_rank",
    "median",
    "two_clusters",
]


@dataclass(frozen=True)
class Instance:
    """Rows and labels whose best weights are known.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
    labels : ndarray of shape (n,), or None
        Classes 0 and 1, or numbers; None where rows have none.
    bound : float
        At least the norm of every row.
    loss : Loss or None
        Of scores without an intercept; None if the loss is no function of scores.
    optimum : ndarray of shape (d,)
        Weights of least mean loss.
    least : float
        That mean loss.
    facts : mapping
        What else is known, such as ``margin``, ``rank`` or ``diameter``.
    """

    rows: np.ndarray
    labels: np.ndarray | None
    bound: float
    loss: Loss | None
    optimum: np.ndarray
    least: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    _mean: Callable[[np.ndarray], float] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))

    def mean_loss(self, weights: Any) -> float:
        """Mean loss of the rows at weights.

        Parameters
        ----------
        weights : array-like of shape (d,)
            Weights.

        Returns
        -------
        float
            The mean.
        """
        theta = np.asarray(weights, dtype=np.float64).ravel()
        if theta.shape != self.rows.shape[1:]:
            raise InputError(f"weights must be {self.rows.shape[1]} numbers, got {theta.size}")
        if self._mean is not None:
            return self._mean(theta)
        assert self.loss is not None
        targets = self.loss.targets(self.labels, 1)
        return float(self.loss.value((self.rows @ theta)[:, None], targets).mean())

    def excess(self, weights: Any) -> float:
        """How much more the rows lose at these weights than at the best.

        Parameters
        ----------
        weights : array-like of shape (d,)
            Weights.

        Returns
        -------
        float
            At least 0, up to rounding.
        """
        return self.mean_loss(weights) - self.least


def two_clusters(n: int, mean: float, *, flipped: bool = False) -> Instance:
    """Two points far out and close together (Sun et al. 2024, section 4): hinge loss.

    Half of the rows are (mean, 1) and of class 1, half are (mean, -1) and of class 0; or the
    other way round. Weights (0, 1), or (0, -1), lose nothing. The rows are 2 apart and of norm
    √(mean² + 1), so clipped gradients point mostly along the mean, which is no use.

    Parameters
    ----------
    n : int
        Rows, an even number.
    mean : float
        How far out they are.
    flipped : bool
        Whether the classes change places.

    Returns
    -------
    Instance
        Of two columns.

    Examples
    --------
    >>> two_clusters(4, 100.0).excess([0.0, 1.0])
    0.0
    """
    half = _even(n) // 2
    sign = np.repeat([1.0, -1.0], half)
    rows = np.column_stack([np.full(n, float(mean)), sign])
    labels = (sign > 0).astype(int)
    return Instance(
        rows,
        1 - labels if flipped else labels,
        bound=math.hypot(mean, 1.0),
        loss=get_loss("hinge"),
        optimum=np.array([0.0, -1.0 if flipped else 1.0]),
        least=0.0,
        facts={"diameter": 2.0, "rank": 2 if mean else 1},
    )


def fingerprinting(
    n: int,
    d: int,
    *,
    epsilon: float,
    columns: int | None = None,
    means: Any = None,
    active: float | None = None,
    seed: int | None = None,
) -> Instance:
    """Data on which every private model errs (Song et al. 2021, Theorem B.1): absolute loss.

    Each row is zero, or with probability α = min(1, d/(10(e^ε − 1)n)) one of d unit vectors; the
    label of the j-th is 1 with probability pⱼ, where p is drawn from Beta(1/80, 1/80). The best
    weights are majorities, 0 where there is a tie.

    Parameters
    ----------
    columns : int, optional
        Columns in all; those behind the d-th are zero.
    means : array-like of shape (d,), optional
        p, in place of a draw.
    active : float, optional
        α, in place of the theorem's. With more rows that are not zero a private model can learn.
    n, d : int
        Rows, and columns that are not always zero.
    epsilon : float
        The ε of the models to err.
    seed : int, optional
        Makes the draw repeatable.

    Returns
    -------
    Instance
        With absolute loss.

    Notes
    -----
    ``facts["means"]`` and ``facts["active"]`` are p and α; ``facts["population"]`` gives the
    excess over fresh rows against p itself, which the theorem bounds from below.

    Examples
    --------
    >>> fingerprinting(100, 5, epsilon=1.0, seed=0).rows.shape
    (100, 5)
    """
    if not (n >= 1 and d >= 1 and epsilon > 0 and (columns is None or columns >= d)):
        raise InputError("fingerprinting needs n and d of at least 1, epsilon > 0, columns ≥ d")
    rng = np.random.default_rng(seed)
    if active is None:
        active = min(1.0, d / (10 * math.expm1(min(epsilon, 700.0)) * n))
    if not 0 < active <= 1:
        raise InputError(f"active={active!r} must be a probability above 0")
    p = rng.beta(1 / 80, 1 / 80, size=d) if means is None else np.asarray(means, dtype=float)
    if p.shape != (d,) or not np.all((p >= 0) & (p <= 1)):
        raise InputError(f"means must be {d} probabilities")
    width = d if columns is None else columns
    where, shown = rng.integers(d, size=n), rng.random(n) < active
    labels = ((rng.random(n) < p[where]) & shown).astype(np.float64)
    rows = np.zeros((n, width))
    rows[np.flatnonzero(shown), where[shown]] = 1.0
    ones = np.bincount(where[shown], weights=labels[shown], minlength=d)
    seen = np.bincount(where[shown], minlength=d)
    optimum = np.zeros(width)
    optimum[:d] = 2 * ones > seen

    def population(weights: Any) -> float:
        theta = np.asarray(weights, dtype=np.float64)[:d]
        lost = p * np.abs(theta - 1) + (1 - p) * np.abs(theta)
        return float(active * np.mean(lost - 2 * p * (1 - p)))

    return Instance(
        rows,
        labels,
        bound=1.0,
        loss=get_loss("absolute"),
        optimum=optimum,
        least=float(np.minimum(ones, seen - ones).sum() / n),
        facts={
            "means": p,
            "active": active,
            "rank": int(np.count_nonzero(seen)),
            "population": population,
        },
    )


def subspace(
    n: int,
    d: int,
    rank: int,
    *,
    norm: float = 1.0,
    noise: float = 0.0,
    shortest: float = 1.0,
    loss: str = "absolute",
    seed: int | None = None,
) -> Instance:
    """Rows that lie in a random subspace of their columns: a regression whose answer is known.

    Directions are uniform in ``rank`` of d dimensions, and no column is zero unless d = rank = 1.
    Targets are ⟨x, θ⟩ for a θ of the subspace, plus uniform noise.

    Parameters
    ----------
    n, d, rank : int
        Rows, columns, dimension of the subspace.
    norm : float
        Of θ.
    noise : float
        h: targets are off by at most h, on either side.
    shortest : float
        Norms of rows are uniform from here to 1.
    loss : str
        Of the error.
    seed : int, optional
        Makes the draw repeatable.

    Returns
    -------
    Instance
        θ is the best of all weights over fresh rows, and over these as well without noise;
        ``facts["basis"]`` spans the subspace, (rank, d), and ``facts["fresh"](weights)`` is the
        excess of absolute loss over fresh rows.

    Examples
    --------
    >>> made = subspace(50, 20, 3, norm=2.0, seed=0)
    >>> int(np.linalg.matrix_rank(made.rows)), made.excess(made.optimum)
    (3, 0.0)
    """
    if not (n >= rank >= 1 and d >= rank and norm > 0 and noise >= 0 and 0 < shortest <= 1):
        raise InputError("subspace needs n and d of at least rank ≥ 1, norm > 0 and noise ≥ 0")
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, rank)))[0].T

    def unit(count: int) -> np.ndarray:
        drawn = rng.standard_normal((count, rank))
        sizes = shortest + (1 - shortest) * rng.random((count, 1))
        return np.asarray(sizes * drawn / np.linalg.norm(drawn, axis=1, keepdims=True))

    inner = unit(n)
    theta = unit(1)[0]
    theta *= norm / np.linalg.norm(theta)
    rows, best = inner @ basis, theta @ basis
    labels = rows @ best + noise * rng.uniform(-1, 1, n)
    fresh = unit(20_000)

    def excess(weights: Any) -> float:
        """E|⟨x, θ̂ − θ⟩ + ξ| − E|ξ|, the mean over ξ in closed form."""
        off = np.abs(fresh @ (basis @ (np.asarray(weights, dtype=np.float64) - best)))
        if not noise:
            return float(off.mean())
        return float(np.where(off < noise, off**2 / (2 * noise), off - noise / 2).mean())

    kind = get_loss(loss)
    least = float(kind.value((labels - rows @ best)[:, None], np.zeros((n, 1))).mean())
    return Instance(
        rows,
        labels,
        bound=1.0,
        loss=kind,
        optimum=best,
        least=least,
        facts={"rank": rank, "basis": basis, "fresh": excess},
    )


def clipping_bias(n: int, clip: float) -> Instance:
    """Rows on which clipping moves the optimum (Song et al. 2021, Theorem D.4): logistic loss.

    Two rows (1/2) of class 1 for each row (1) of class 0: losses are least at weight 0, the
    objective of gradients clipped to B < 1/2 at 2·log(1/B − 1) (``facts["clipped_optimum"]``). The
    theorem says so for B < 1/4; it holds up to 1/2, and beyond nothing moves.

    Parameters
    ----------
    n : int
        Rows, a multiple of 3.
    clip : float
        B, in units of a gradient.

    Returns
    -------
    Instance
        Of one column.

    Examples
    --------
    >>> round(clipping_bias(3, 0.1).facts["clipped_optimum"], 3)
    4.394
    """
    if n < 3 or n % 3:
        raise InputError(f"n={n!r} must be a multiple of 3")
    if not 0 < clip < math.inf:
        raise InputError(f"clip={clip!r} must be positive and finite")
    far = 2 * math.log(1 / clip - 1) if clip < 0.5 else 0.0
    return Instance(
        np.repeat([[0.5], [1.0]], [2 * n // 3, n // 3], axis=0),
        np.repeat([1, 0], [2 * n // 3, n // 3]),
        bound=1.0,
        loss=get_loss("logistic"),
        optimum=np.zeros(1),
        least=math.log(2),
        facts={"clipped_optimum": far, "clip": clip, "rank": 1},
    )


def large_margin_mixture(
    n: int,
    d: int,
    *,
    stretch: float = 0.0,
    spread: float | None = None,
    margin: float = 0.5,
    seed: int | None = None,
) -> Instance:
    """Two Gaussians that one direction separates (Pinto et al. 2024, Example 1): hinge loss.

    Rows are ±μ + noise of covariance θww′ + σ²I, ‖μ‖ = ‖w‖ = 1, w ⊥ μ, the sign being the class.
    Rows with y⟨μ, x⟩ below the margin or of norm beyond the radius are drawn again, and all are
    divided by the radius, so that bound and margin hold for sure.

    It is μ that separates; the example claims it of w, along which the classes are the same.
    Weights μ/``facts["margin"]`` lose nothing. ``facts["gap"]`` is the eigengap behind the first
    component before rows are drawn again.

    Parameters
    ----------
    stretch, spread : float
        θ and σ²; σ² = 1/(16d) if not given. The example's order 1/√d would put rows d^¼ away.
    margin : float
        Least y⟨μ, x⟩ before rows are divided by the radius.
    n, d : int
        Rows and columns.
    seed : int, optional
        Makes the draw repeatable.

    Returns
    -------
    Instance
        With hinge loss.

    Examples
    --------
    >>> large_margin_mixture(100, 20, seed=0).bound
    1.0
    """
    if n < 1 or d < 2 or not 0 < margin < 1:
        raise InputError("a mixture needs n ≥ 1, d ≥ 2 and a margin between 0 and 1")
    variance = 1 / (16 * d) if spread is None else spread
    if not (variance > 0 and 0 <= stretch < 1):
        raise InputError("spread must be positive, stretch in [0, 1)")
    if margin > 1 - math.sqrt(variance):
        raise InputError(f"margin={margin:g} leaves too few rows: at most 1 − √spread")
    rng = np.random.default_rng(seed)
    mu, w = np.linalg.qr(rng.standard_normal((d, 2)))[0].T
    total = stretch + d * variance
    radius = 1 + math.sqrt(total) + 4 * math.sqrt(stretch + variance)
    labels = rng.integers(2, size=n)
    sign = 2.0 * labels - 1
    rows, todo = np.empty((n, d)), np.arange(n)
    while todo.size:
        noise = math.sqrt(variance) * rng.standard_normal((todo.size, d))
        noise += math.sqrt(stretch) * rng.standard_normal((todo.size, 1)) * w
        rows[todo] = sign[todo, None] * mu + noise
        kept = sign[todo] * (rows[todo] @ mu) >= margin
        kept &= np.linalg.norm(rows[todo], axis=1) <= radius
        todo = todo[~kept]
    gamma = margin / radius
    return Instance(
        rows / radius,
        labels,
        bound=1.0,
        loss=get_loss("hinge"),
        optimum=mu / gamma,
        least=0.0,
        facts={
            "margin": gamma,
            "separator": mu,
            "stretched": w,
            "radius": radius,
            "xi": 0.0,
            "components": 1,
            "gap": (1 - stretch) / radius**2,
        },
    )


def low_rank(
    n: int = 1000,
    d: int = 6000,
    *,
    rank: int = 50,
    noise: float = 0.01,
    seed: int | None = 0,
) -> Instance:
    """Rows of low rank with noise in all columns (Hu et al. 2024, appendix F.1): logistic loss.

    scikit-learn's ``make_classification`` with one cluster for each class and all other columns
    redundant, as in the paper, which asks for *approximately* low rank but generates none of the
    rest; ``noise`` adds it, in standard deviations. Rows are scaled to unit norm.

    With noise and n ≤ d rows are separable and the loss has no minimum. The optimum is that of
    logistic regression with C = 10⁴, whose weights have moderate norm: of the mean loss plus
    ``facts["ridge"]``·‖θ‖²/2. ``facts["gap"]`` and ``facts["tail"]`` are the eigengap behind the
    rank and the sum of eigenvalues there.

    Parameters
    ----------
    n, d : int
        Rows and columns.
    rank : int
        Of the rows without noise.
    noise : float
        Standard deviation in every column, before rows are scaled.
    seed : int, optional
        Makes the draw repeatable.

    Returns
    -------
    Instance
        With logistic loss.

    Examples
    --------
    >>> low_rank(50, 100, rank=5).rows.shape
    (50, 100)
    """
    if not (n >= 2 and 1 <= rank <= min(n, d) and 0 <= noise < math.inf):
        raise InputError("low_rank needs n ≥ 2, rank of at most n and d, and noise of at least 0")
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression

    rows, labels = make_classification(
        n_samples=n,
        n_features=d,
        n_informative=rank,
        n_redundant=d - rank,
        n_clusters_per_class=1,
        random_state=seed,
    )
    rows += noise * rows.std() * np.random.default_rng(seed).normal(size=rows.shape)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    fitted = LogisticRegression(C=1e4, max_iter=2000, tol=1e-8, fit_intercept=False)
    fitted.fit(rows, labels)
    best = fitted.coef_[0]
    margins = (rows @ best) * (2 * labels - 1)
    values = np.linalg.svd(rows, compute_uv=False) ** 2 / n
    behind = values[rank:]
    return Instance(
        rows,
        labels,
        bound=1.0,
        loss=get_loss("logistic"),
        optimum=best,
        least=float(np.logaddexp(0, -margins).mean()),
        facts={
            "rank": rank,
            "gap": float(values[rank - 1] - (behind[0] if behind.size else 0.0)),
            "tail": float(behind.sum()),
            "ridge": 1e-4 / n,
        },
    )


def median(
    n: int,
    d: int,
    *,
    decay: float = 0.0,
    occupied: int = 10,
    radius: float = 1.0,
    seed: int | None = None,
) -> Instance:
    """A generalised geometric median (Li et al. 2022, section 4.1): mean of ‖x − xᵢ‖_A.

    A = diag(k^−decay): 0, 1/2 and 1 are the paper's A_const, A_sqrt and A_linear. Rows are zero
    behind the first ``occupied`` columns, so the best point and its loss are the same for every
    d. They come in pairs around that point, which therefore is the median.

    ``facts["weights"]`` is the diagonal of A, ``facts["coefficients"]`` the restricted Lipschitz
    coefficients G₀ … G_d, and ``facts["gradient"](x)`` the mean gradient.

    Parameters
    ----------
    n, d : int
        Rows and columns.
    decay : float
        Power by which the weights of columns fall.
    occupied : int
        Columns in which rows are not zero.
    radius : float
        Largest norm of a row.
    seed : int, optional
        Makes the draw repeatable.

    Returns
    -------
    Instance
        Of distances.

    Examples
    --------
    >>> median(100, 20, seed=0).rows.shape
    (100, 20)
    """
    if not (d >= occupied >= 1 and decay >= 0 and radius > 0):
        raise InputError("a median needs d ≥ occupied ≥ 1, decay of at least 0 and a radius > 0")
    half = _even(n) // 2
    rng = np.random.default_rng(seed)
    weights = np.arange(1.0, d + 1) ** -decay
    centre = np.zeros(d)
    centre[:occupied] = rng.standard_normal(occupied)
    centre *= radius / 2 / np.linalg.norm(centre)
    around = np.zeros((half, d))
    around[:, :occupied] = rng.standard_normal((half, occupied))
    size = radius / 2 * rng.random((half, 1)) ** (1 / occupied)
    around *= size / np.linalg.norm(around, axis=1, keepdims=True)
    rows = np.concatenate([centre + around, centre - around])

    def mean(x: np.ndarray) -> float:
        return float(np.sqrt(np.square(rows - x) @ weights).mean())

    def gradient(x: Any) -> np.ndarray:
        apart = np.asarray(x, dtype=np.float64) - rows
        sizes = np.sqrt(np.square(apart) @ weights)
        return (apart * weights / np.maximum(sizes, 1e-300)[:, None]).mean(axis=0)

    return Instance(
        rows,
        None,
        bound=radius,
        loss=None,
        optimum=centre,
        least=mean(centre),
        facts={
            "weights": weights,
            "coefficients": np.append(np.sqrt(weights), 0.0),
            "gradient": gradient,
            "rank": occupied,
        },
        _mean=mean,
    )


def _even(n: int) -> int:
    if n < 2 or n % 2:
        raise InputError(f"n={n!r} must be even and at least 2")
    return n
