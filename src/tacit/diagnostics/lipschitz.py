r"""Restricted Lipschitz coefficients of generalised linear models, and how fast they fall.

Li et al. 2022, Definition 3.1: G_k bounds the mean gradient outside the best k directions.
Gradients are residual times row, with residuals of size at most G. Outside the first k eigenvectors
of XᵀX/n

    ‖(I − P)∇F‖ ≤ G·√λ_{k+1},   ≤ (G/n)·Σ‖(I − P)xᵢ‖,   and for a single row ≤ G·max‖(I − P)xᵢ‖.

The first is what the theorem needs; the last also holds for the gradient of every single row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.diagnostics.base import NotReleasable, require_positive, require_rows
from tacit.diagnostics.moments import Moments, blocks
from tacit.diagnostics.spectrum import Spectrum, spectrum
from tacit.exceptions import InputError

MOST_COMPONENTS = 256  # components in which single rows are looked at


@dataclass(frozen=True)
class PowerLaw(NotReleasable):
    """values ≈ scale·k^(−decay), by least squares of logarithms.

    Attributes
    ----------
    decay, scale : float
    fit : float
        Part of the variance of the logarithms that is explained, R².
    first, last : int
        The k that were looked at.
    """

    decay: float
    scale: float
    fit: float
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Coefficients(NotReleasable):
    """Bounds on restricted Lipschitz coefficients.

    Attributes
    ----------
    mean_gradient : ndarray of shape (d + 1,)
        G_0 … G_d of the mean loss: G·R, then G·√λ_{k+1}.
    rows_mean, rows_max : ndarray of shape (K + 1,)
        G times the mean and the largest norm of rows outside the first k eigenvectors, for
        k = 0 … K.
    law : PowerLaw or None
        Fitted to `mean_gradient`; None if fewer than three coefficients are positive.
    """

    mean_gradient: np.ndarray
    rows_mean: np.ndarray
    rows_max: np.ndarray
    law: PowerLaw | None


def restricted_lipschitz(
    data: Any,
    *,
    lipschitz: float = 1.0,
    components: int = MOST_COMPONENTS,
    known: tuple[Moments, Spectrum] | None = None,
) -> Coefficients:
    """Coefficients of a GLM on these rows.

    Parameters
    ----------
    data : Rows, array or sparse matrix, of shape (n, d)
        Private rows.
    lipschitz : float
        G, largest slope of the loss in the score; 1 for logistic and hinge.
    components : int
        K, up to which single rows are looked at.
    known : (Moments, Spectrum), optional
        Of these rows, uncentred, if they are at hand.

    Returns
    -------
    Coefficients
        Not releasable.

    Examples
    --------
    >>> found = restricted_lipschitz([[1.0, 0.0], [0.0, 0.5]])
    >>> found.mean_gradient.round(3), found.rows_max
    (array([1.   , 0.354, 0.   ]), array([1. , 0.5, 0. ]))
    """
    require_positive(lipschitz=lipschitz, components=components)
    rows = require_rows(data)
    if known is None:
        moments = Moments.of(rows)
        known = moments, spectrum(moments)
    moments, found = known
    k = min(int(components), rows.d)
    basis = np.ascontiguousarray(found.vectors[:, :k])
    total, most = np.zeros(k + 1), np.zeros(k + 1)
    for _, block in blocks(rows):
        left = np.empty((len(block), k + 1))
        left[:, 0] = np.einsum("ij,ij->i", block, block)
        np.square(block @ basis, out=left[:, 1:])
        rest = left[:, :1] - np.cumsum(left[:, 1:], axis=1)
        # The part taken out is known to 2⁻⁵² of the whole: what is below that is zero.
        rest[rest < left[:, :1] * rows.d * 2.0**-52] = 0.0
        left[:, 1:] = rest
        np.sqrt(left, out=left)
        total += left.sum(axis=0)
        np.maximum(most, left.max(axis=0), out=most)
    most = np.minimum.accumulate(most)
    bound = moments.longest or 1.0
    values = glm_coefficients(found.eigenvalues, lipschitz=lipschitz, bound=bound)
    try:
        law = power_law_fit(values[1 : found.rank])
    except InputError:
        law = None
    return Coefficients(values, lipschitz * total / moments.n, lipschitz * most, law)


def glm_coefficients(
    eigenvalues: Sequence[float] | np.ndarray, *, lipschitz: float = 1.0, bound: float = 1.0
) -> np.ndarray:
    r"""Coefficients of a generalised linear model, G₀ … G_d.

    The mean gradient is Xᵀr/n with residuals of size at most G. Without the first k eigenvectors of
    XᵀX/n its norm is at most G·√λ_{k+1}, which bounds G_k (Li et al. 2022, Definition 3.1), as
    G·R does; G₀ = G·R bounds the gradient of every single row.

    Parameters
    ----------
    eigenvalues : array-like of shape (d,)
        Of the rows' second moment XᵀX/n, all d of them. Read off private rows they are private.
    lipschitz, bound : float
        G, largest slope of the loss in the score; R, largest norm of a row.

    Returns
    -------
    ndarray of shape (d + 1,)
        G₀ … G_d, which do not rise; the last is 0.

    Examples
    --------
    >>> glm_coefficients([0.25, 0.5, 0.0625])
    array([1.  , 0.5 , 0.25, 0.  ])
    """
    values = np.sort(np.asarray(eigenvalues, dtype=np.float64))[::-1]
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)):
        raise InputError("eigenvalues must be a list of finite numbers, one for each dimension")
    require_positive(lipschitz=lipschitz, bound=bound)
    roots = np.sqrt(np.maximum(values, 0.0))
    return lipschitz * np.concatenate([[bound], np.minimum(roots[1:], bound), [0.0]])


def power_law_fit(values: Any, *, first: int = 1, last: int | None = None) -> PowerLaw:
    """The power by which values fall, values[0] being that of k = 1.

    Each doubling of k counts alike: without weights the many values of large k would decide alone.

    Parameters
    ----------
    values : array-like of shape (k,)
        Positive numbers.
    first, last : int
        The first and the last k that count; all of them unless given.

    Returns
    -------
    PowerLaw
        Its power, scale and fit.

    Examples
    --------
    >>> found = power_law_fit([k**-0.6 for k in range(1, 100)])
    >>> round(found.decay, 6), round(found.scale, 6), round(found.fit, 6)
    (0.6, 1.0, 1.0)
    """
    given = np.asarray(values, dtype=np.float64).reshape(-1)
    last = len(given) if last is None else min(int(last), len(given))
    k = np.arange(first, last + 1)
    y = given[first - 1 : last]
    keep = y > 0
    k, y = k[keep], y[keep]
    if len(k) < 3 or first < 1:
        raise InputError("a power law is fitted to three positive values or more")
    x, y, weight = np.log(k), np.log(y), 1.0 / k
    weight = weight / weight.sum()
    mean_x, mean_y = weight @ x, weight @ y
    spread = weight @ (x - mean_x) ** 2
    slope = float(weight @ ((x - mean_x) * (y - mean_y)) / spread)
    around = float(weight @ (y - mean_y) ** 2)
    fit = 1.0 if not around else slope**2 * float(spread) / around
    return PowerLaw(-slope, float(np.exp(mean_y - slope * mean_x)), fit, int(k[0]), int(k[-1]))
