"""How many trials to make, and which settings to try: drawn exactly, in integers."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from tacit.exceptions import InputError
from tacit.mechanisms.random_streams import Stream
from tacit.privacy.events import Repeated

_BITS = 320  # of a weight: rounding them down loses less than 2^-280 of all
_STRAY = 190  # no more than 2^-190 of the chances is cut off
_WORDS = 4


def draw_trials(event: Repeated, stream: Stream) -> int:
    """A number of trials from the distribution of ``event``, at least one.

    Its law is within total variation 2^-185 of the one accounted for: 2^-190 is cut off at the
    top, weights are rounded by far less, and 256 random bits leave at most 2^-235 for tables of
    up to 2^21 entries. So it counts as one draw of `tacit.mechanisms.lattice.numerical_delta`.
    """
    table = cumulated_weights(event.distribution, event.shape, event.rate)
    at = (_bits(stream) * table[-1]) >> (64 * _WORDS)
    low, high = 0, len(table) - 1  # the first entry beyond ``at``
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if table[middle] > at else (middle + 1, high)
    return low + 1


def chances(event: Repeated, most: int) -> list[float]:
    """Probabilities of 1, 2, … up to ``most`` trials.

    Examples
    --------
    >>> from tacit.privacy.events import Gaussian
    >>> chances(Repeated(trial=((Gaussian(1.0),),), shape=1.0, rate=0.5), 3)
    [0.5, 0.25, 0.125]
    """
    table = cumulated_weights(event.distribution, event.shape, event.rate)
    return [float(Fraction(b - a, table[-1])) for a, b in pairwise((0, *table[:most]))]


def draw_setting(count: int, stream: Stream) -> int:
    """One of ``count`` settings, each as likely as any other up to 2^-200."""
    if not 1 <= count < 2**32:
        raise InputError(f"{count} settings cannot be drawn from")
    return (_bits(stream) * count) >> (64 * _WORDS)


def _bits(stream: Stream) -> int:
    return int.from_bytes(stream.words(_WORDS).astype(np.dtype("<u8")).tobytes(), "little")


@lru_cache(maxsize=8)
def cumulated_weights(distribution: str, shape: float, rate: float) -> tuple[int, ...]:
    """Cumulated weights of 1, 2, 3, … trials, as integers.

    Each weight is the one before it times (1−γ)(k+η)/(k+1) (Papernot & Steinke 2022, Definition 1)
    or λ/(k+1), in which the floats that were accounted for are taken for what they are, exactly.
    """
    poisson = distribution == "poisson"
    factor = Fraction(rate) if poisson else 1 - Fraction(rate)
    eta = Fraction(shape)
    weights = [1 << _BITS]
    total, k = weights[0], 1
    while True:
        up, down = factor.numerator, factor.denominator * (k + 1)
        if not poisson:
            up, down = up * (k * eta.denominator + eta.numerator), down * eta.denominator
        last = weights[-1] * up // down
        # Where weights fall by 2^-20 of themselves at least, as they do at the end, all that follow
        # sum to less than 2^20 times this one. (With a shape below 1 they fall by γ at least.)
        if last << (_STRAY + 20) < total and up << 20 < down * ((1 << 20) - 1):
            return tuple(accumulate(weights))
        weights.append(last)
        total += last
        k += 1
