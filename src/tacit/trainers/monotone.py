"""Weights that must not fall from one to the next, or not rise.

Weights are projected onto all that do not, after every step and at the end. That costs nothing: a
projection is a function of weights that are released anyway, and of public facts, and what is
computed from released values is as private as they are (post-processing: Dwork & Roth 2014,
Proposition 2.1). The set is convex and has zero in it, so projected descent goes where descent
would within it, means of iterates stay in it, and no norm grows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.isotonic import isotonic_regression


def monotone(weights: np.ndarray, blocks: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """The nearest weights that go the way they must.

    Parameters
    ----------
    weights : ndarray of shape (S, d, 1)
        Released.
    blocks : sequence of (start, stop, sign)
        Which weights must not fall (sign 1) or rise (-1) from one to the next; one by itself must
        not be negative, or positive.

    Returns
    -------
    ndarray of shape (S, d, 1)
        Where they must, weights are in order exactly, not up to rounding.

    Examples
    --------
    >>> monotone(np.array([3.0, 1.0, 2.0, -5.0])[None, :, None], [(0, 3, 1), (3, 4, 1)]).ravel()
    array([2., 2., 2., 0.])
    """
    if not blocks:
        return weights
    found = weights.copy()
    for start, stop, sign in blocks:
        for run in found[..., 0]:
            part = sign * run[start:stop]
            inside = isotonic_regression(part) if stop - start > 1 else np.maximum(part, 0.0)
            run[start:stop] = sign * inside
    return found
