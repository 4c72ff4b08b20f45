r"""Margins, and how much of a separator lies in the first components: Pinto et al. 2024, Definition
3.

Rows of unit norm are (γ, ξ_k)-large-margin low-rank if some w* has y⟨w*, x⟩ ≥ γ‖w*‖‖x‖ for all rows
and ‖P_k w*‖ ≥ (1 − ξ_k)‖w*‖, P_k on the first k eigenvectors of XᵀX/n. As in the paper, w* is a
linear support vector machine; with more than two classes, each against all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize

from tacit.diagnostics.base import NotReleasable, require_positive, require_rows
from tacit.diagnostics.moments import blocks
from tacit.diagnostics.spectrum import Spectrum, spectrum
from tacit.exceptions import InputError
from tacit.preprocessing.base import densify

MOST_VALUES = 1 << 23  # numbers in the rows that separators are trained on,
MOST_PRODUCTS = 1 << 29  # and products with all separators, in a pass
STEPS = 60


@dataclass(frozen=True, eq=False)
class Separability(NotReleasable):
    """How well linear separators tell classes apart, and in how few components.

    Attributes
    ----------
    classes : int
    margin : float
        γ: the least margin of any row, over all separators; below zero if some row is on the
        wrong side.
    margins : dict of str to float
        Quantiles of the rows' margins (for each row the least over separators): ``"0.1"`` is what
        nine rows in ten have.
    separated : float
        Part of the rows on the right side of every separator.
    xi : ndarray of shape (d + 1,)
        ξ_k for k = 0 … d, mean over the separators.
    xi_most : ndarray of shape (d + 1,)
        The largest over the separators.
    lost : ndarray of shape (d + 1,)
        Root mean square of the score that a separator of norm one loses outside the first k
        eigenvectors; the largest over the separators.
    rows_used : int
        Rows that separators were trained on.
    weights : ndarray of shape (d, K)
        The separators, as columns.
    """

    classes: int
    margin: float
    margins: dict[str, float]
    separated: float
    xi: np.ndarray
    xi_most: np.ndarray
    lost: np.ndarray
    rows_used: int
    weights: np.ndarray = field(repr=False, metadata={"hidden": True})


def separability(
    data: Any,
    labels: Any,
    *,
    found: Spectrum | None = None,
    ridge: float = 1e-4,
    most_values: int = MOST_VALUES,
) -> Separability:
    """Margin and ξ_k of rows with classes.

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d)
        Private rows.
    labels : sequence
        Two classes or more.
    found : Spectrum, optional
        Of these rows, uncentred, if it is at hand.
    ridge : float
        Strength of the penalty ‖w‖²/2 beside the mean squared hinge loss.
    most_values : int
        Numbers in the rows that are trained on; of more rows, evenly spaced ones are taken. With
        many classes it is fewer.

    Returns
    -------
    Separability
        Not releasable.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0, 0.1], [-1.0, 0.0, 0.1]] * 20)
    >>> found = separability(rows, [1, 0] * 20)
    >>> found.separated, bool(found.margin > 0.9), bool(found.xi[1] < 0.01)
    (1.0, True, True)
    """
    require_positive(ridge=ridge, most_values=most_values)
    rows, names = require_rows(data), np.asarray(labels)
    if names.shape != (rows.n,):
        raise InputError(f"labels must be one for each of the {rows.n} rows")
    classes, codes = np.unique(names, return_inverse=True)
    if len(classes) < 2:
        raise InputError("separability needs two classes or more")
    found = found or spectrum(rows)
    if len(found.eigenvalues) != rows.d:
        raise InputError("the spectrum is that of rows with other columns")
    columns = np.array([1]) if len(classes) == 2 else np.arange(len(classes))
    most = min(int(most_values), MOST_PRODUCTS // len(columns))
    step = max(1, -(-rows.n * rows.d // most))
    some = np.concatenate(
        [
            densify(chunk)[(-span.start) % step :: step].astype(np.float32)
            for span, chunk in rows.chunks()
        ]
    )
    signs = np.where(codes[::step, None] == columns, 1.0, -1.0).astype(np.float32)
    weights = _separate(some, signs, ridge)
    norms = np.linalg.norm(weights, axis=0)
    margins = np.empty(rows.n)
    for span, block in blocks(rows):
        sides = np.where(codes[span, None] == columns, 1.0, -1.0)
        length = np.linalg.norm(block, axis=1)[:, None] * norms
        scores = sides * (block @ weights)
        margins[span] = np.divide(scores, length, out=np.zeros_like(scores), where=length > 0).min(
            axis=1
        )
    inside = np.cumsum((found.vectors.T @ weights) ** 2, axis=0) / np.maximum(norms**2, 1e-300)
    inside = np.concatenate([np.zeros((1, len(norms))), np.clip(inside, 0.0, 1.0)])
    inside[-1] = 1.0
    xi = 1 - np.sqrt(inside)
    energy = found.eigenvalues[:, None] * (found.vectors.T @ weights) ** 2
    behind = np.concatenate([np.cumsum(energy[::-1], axis=0)[::-1], np.zeros((1, len(norms)))])
    lost = np.sqrt(behind / np.maximum(norms**2, 1e-300))
    return Separability(
        classes=len(classes),
        margin=float(margins.min()),
        margins={f"{q:g}": float(np.quantile(margins, q)) for q in (0.01, 0.05, 0.1, 0.25, 0.5)},
        separated=float((margins > 0).mean()),
        xi=xi.mean(axis=1),
        xi_most=xi.max(axis=1),
        lost=lost.max(axis=1),
        rows_used=len(some),
        weights=weights,
    )


def _separate(rows: np.ndarray, signs: np.ndarray, ridge: float) -> np.ndarray:
    """Support vector machines without intercept, squared hinge: all of them in one descent."""
    n, d = rows.shape
    shape = (d, signs.shape[1])

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(shape)
        short = 1 - signs * (rows @ weights.astype(np.float32))
        np.maximum(short, 0.0, out=short)
        value = float(np.einsum("ij,ij->", short, short, dtype=np.float64)) / n
        slope = (-2.0 / n) * (rows.T @ (signs * short)).astype(np.float64) + ridge * weights
        return value + ridge / 2 * float((weights**2).sum()), slope.reshape(-1)

    options = {"maxiter": STEPS, "maxcor": 10, "ftol": 1e-7, "gtol": 1e-6}
    done = minimize(objective, np.zeros(d * shape[1]), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(done.x).reshape(shape)
