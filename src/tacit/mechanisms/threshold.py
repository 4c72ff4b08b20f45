"""Whether a private number exceeds a public threshold, through noise."""

from __future__ import annotations

import math

from tacit.mechanisms.lattice import sigma_for
from tacit.mechanisms.noise import Stream

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
