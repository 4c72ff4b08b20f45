"""Which cell of each table a unit is in: public bins of scores, residuals and targets."""

from __future__ import annotations

import math

import numpy as np

FEWEST, MOST = 4, 48  # bins of a score


def bins_for(units: int, deviation: float) -> int:
    """How many bins of a score noise allows: more tell more, and each has its noise.

    With noise of deviation σ on every count of n units, sums over a half of B bins have an
    error of order σ√B/n, and what a bin hides is of order 1/B, most of which is known by its
    middle: B = (n/4σ)^(2/3).

    Parameters
    ----------
    units : int
        Public number of units.
    deviation : float
        Of the noise of a count.

    Returns
    -------
    int
        Even, so that one half is an edge.

    Examples
    --------
    >>> bins_for(500, 5.0), bins_for(10_000, 4.0)
    (8, 48)
    """
    return min(max(2 * round((units / deviation / 4) ** (2 / 3) / 2), FEWEST), MOST)


def probability_edges(bins: int) -> np.ndarray:
    """Edges of bins of probabilities, narrower towards 0 and 1: sin² of even steps.

    Counts of bins that are even in the arcsine of the root have about the same variance; rare
    classes have their scores near zero.

    Parameters
    ----------
    bins : int
        B, even.

    Returns
    -------
    ndarray of shape (B + 1,)
        From 0 to 1, symmetric about 1/2.

    Examples
    --------
    >>> probability_edges(4).round(3)
    array([0.   , 0.146, 0.5  , 0.854, 1.   ])
    """
    half = np.sin(np.pi * np.arange(bins // 2 + 1) / (2 * bins)) ** 2
    half[-1] = 0.5
    return np.concatenate([half, 1 - half[-2::-1]])


def place(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The bin of every value: (edge, next edge], as a score above 1/2 is a prediction.

    Parameters
    ----------
    values : ndarray of shape (n,)
        What is outside of the edges is in the first or the last bin, and so is what is no number.
    edges : ndarray of shape (B + 1,)
        Rising.

    Returns
    -------
    ndarray of shape (n,)
        From 0 to B − 1.
    """
    found = np.searchsorted(edges[1:-1], np.nan_to_num(values, nan=0.0), side="left")
    return np.asarray(found)


def size_knots(reach: float, count: int, finest: float = 0.02) -> np.ndarray:
    """Zero, and knots up to the largest size, in geometric steps.

    Parameters
    ----------
    reach : float
        The largest size.
    count : int
        Knots beside zero.
    finest : float
        The smallest of them, in reaches.

    Returns
    -------
    ndarray of shape (count + 1,)
        Rising.

    Examples
    --------
    >>> size_knots(10.0, 2, finest=0.1)
    array([ 0.,  1., 10.])
    """
    sizes = reach * np.exp(np.linspace(math.log(finest), 0.0, count))
    return np.concatenate([[0.0], sizes])


def signed_knots(reach: float, bins: int, finest: float = 0.02) -> np.ndarray:
    """Knots from −reach to reach, closer to each other towards zero, in geometric steps.

    Parameters
    ----------
    reach : float
        The largest size.
    bins : int
        Knots, odd or even; zero is one of them.
    finest : float
        The smallest size but zero, in reaches.

    Returns
    -------
    ndarray of shape (2·(bins // 2) + 1,)
        Rising.

    Examples
    --------
    >>> signed_knots(10.0, 4, finest=0.1)
    array([-10.,  -1.,   0.,   1.,  10.])
    """
    side = size_knots(reach, max(bins // 2, 2), finest)
    return np.concatenate([-side[:0:-1], side])


def dither(values: np.ndarray, knots: np.ndarray, coins: np.ndarray) -> np.ndarray:
    """A knot beside every value, such that the mean over coins is the value itself.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Between the first and the last knot; others are clamped, and no number is the first.
    knots : ndarray of shape (B,)
        Rising.
    coins : ndarray of shape (n,)
        From 0 to 1, independent of the values.

    Returns
    -------
    ndarray of shape (n,)
        Indices of knots.

    Examples
    --------
    >>> dither(np.array([0.25]), np.array([0.0, 1.0]), np.array([0.2]))
    array([1])
    """
    inside = np.clip(np.nan_to_num(values, nan=knots[0]), knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 2)
    with np.errstate(invalid="ignore"):  # of knots that are too close to be two
        share = (inside - knots[left]) / (knots[left + 1] - knots[left])
    return left + (coins < share)


def scale_edges(reach: float, count: int = 30) -> np.ndarray:
    """Edges of sizes of errors, each twice the one before, up to the largest there can be.

    Parameters
    ----------
    reach : float
        The largest size.
    count : int
        Bins.

    Returns
    -------
    ndarray of shape (count + 1,)
        From 0 on.

    Examples
    --------
    >>> scale_edges(8.0, 4)
    array([0., 1., 2., 4., 8.])
    """
    return np.concatenate([[0.0], reach * 2.0 ** np.arange(1 - count, 1)])


def scale_from(noisy: np.ndarray, edges: np.ndarray, deviation: float) -> float:
    """The smallest edge beyond which noise hides whatever is left.

    Parameters
    ----------
    noisy : ndarray of shape (count,)
        Units with errors in each bin, with noise.
    edges : ndarray of shape (count + 1,)
        Of the bins.
    deviation : float
        Of the noise of a count.

    Returns
    -------
    float
        One of the edges, not the first.

    Examples
    --------
    >>> scale_from(np.array([900.0, 95.0, 4.0, -3.0]), scale_edges(8.0, 4), 3.0)
    2.0
    """
    for beyond in range(1, len(noisy) + 1):
        if noisy[-beyond:].sum() > 3 * deviation * math.sqrt(beyond):
            return float(edges[len(noisy) - beyond + 1])
    return float(edges[1])
