"""How singular values lie: a smooth density of their logarithms (Li et al. 2022, section 4.2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.exceptions import InputError

POINTS = 200


def spectral_density(
    values: Any, *, points: int = POINTS, width: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    r"""Density estimate of singular values, over their decimal logarithms.

    Each value counts as a Gaussian of deviation ``width`` around its logarithm. Values span orders
    of magnitude, so that one width for the values themselves would show the largest only.

    Parameters
    ----------
    values : array-like of shape (k,)
        Singular values; those that are not positive are left out.
    points : int
        Where the density is told.
    width : float, optional
        In powers of ten; by default 1.06 · deviation · k^(-1/5) (Silverman 1986, equation 3.28).

    Returns
    -------
    places, density : ndarray of shape (points,)
        Singular values, evenly spaced in their logarithms, and the density there, per power of ten.

    Examples
    --------
    >>> places, density = spectral_density([1.0, 10.0, 100.0], width=0.2)
    >>> round(float(np.trapezoid(density, np.log10(places))), 3)
    1.0
    """
    given = np.asarray(values, dtype=np.float64).reshape(-1)
    given = np.log10(given[given > 0])
    if len(given) < 2 or points < 2:
        raise InputError("a density is that of two positive values or more, at two points or more")
    if width is None:
        width = 1.06 * float(given.std(ddof=1)) * len(given) ** -0.2
    if not width > 0:
        raise InputError(f"width={width!r} must be positive: values that are all equal need one")
    at = np.linspace(given.min() - 4 * width, given.max() + 4 * width, points)
    kernel = np.exp(-0.5 * ((at[:, None] - given) / width) ** 2)
    return 10.0**at, kernel.mean(axis=1) / (width * math.sqrt(2 * math.pi))
