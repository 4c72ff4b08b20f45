"""Public thresholds on private numbers, through noise."""

from __future__ import annotations

import math

from scipy.special import log_ndtr, ndtri_exp

from tacit.exceptions import InputError
from tacit.mechanisms.lattice import sigma_for
from tacit.mechanisms.random_streams import Stream

BITS = 20  # the number is cut to multiples of 2^-20
LARGEST_MARGIN = 2.0**30


def noisy_above(value: float, threshold: float, deviation: float, stream: Stream) -> bool:
    """Whether ``value`` + N(0, deviation²) > ``threshold``, on exact integers.

    ``value`` may change by at most 1 between neighbours. Cutting it to a multiple
    of 2^-20 could add 2^-20 to that, and float64 rounding of it far less, so it is
    shrunk by 2^-18 first, which leaves values of at most 0 or 1 there. What is not
    a number counts as hopeless.
    """
    value = (
        -LARGEST_MARGIN if math.isnan(value) else min(max(value, -LARGEST_MARGIN), LARGEST_MARGIN)
    )
    shrunk = math.floor(value * (1 - 2.0**-18) * 2.0**BITS)
    noise = int(stream.discrete_gaussian(sigma_for(deviation * 2.0**BITS), 1)[0])
    return shrunk + noise > math.ceil(threshold * 2.0**BITS)


def key_threshold(sigma: float, chance: float) -> int:
    """An integer that discrete Gaussian noise reaches with probability ``chance`` at most.

    Parameters
    ----------
    sigma : float
        Scale of the noise, in lattice units.
    chance : float
        q, between 0 and 1/2.

    Returns
    -------
    int
        m with P[X ≥ m] ≤ q for X of the discrete Gaussian of that scale.

    Notes
    -----
    P[X ≥ m] ≤ P[N(0, σ²) ≥ m − 1] for integers m ≥ 1 (Canonne, Kamath & Steinke 2020, Proposition
    25), so m = 1 + ⌈σ·x⌉ will do, with Φ(−x) ≤ q.

    Examples
    --------
    >>> key_threshold(1000.0, 1e-6)
    4755
    """
    if not 0 < chance < 0.5:
        raise InputError(f"the chance of a key to pass must lie between 0 and 1/2, not {chance!r}")
    wanted = math.log(chance)
    x = -float(ndtri_exp(wanted))
    while not float(log_ndtr(-x)) <= wanted - 1e-10:  # more than both functions err
        x = x * (1 + 1e-12) + 1e-12
    return 1 + math.ceil(sigma * x * (1 + 1e-14))
