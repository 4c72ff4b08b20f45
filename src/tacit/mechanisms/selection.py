"""The exponential mechanism, sampled exactly.

P[candidate] is proportional to weight·exp(utility/β) (McSherry & Talwar 2007, Definition 2). The
masses are integers of 320 fractional bits, and one uniform integer chooses among them:
no floating point lies between the utilities and the choice.

Error per choice
----------------
Utilities are taken relative to the best candidate, whose factor is exactly 2^320. A factor is a
product of fewer than 2^12 numbers from `exp_minus`, each within 2^22 units, and errors of factors
below one only add: below 2^35 units of 2^-320. What is beyond exp(-256) counts as zero, which is
less than one unit. With weights that sum to at most 2^96 masses are off by 2^(96+35-320) = 2^-189
of the total, normalised ones by at most twice that. The uniform number has 200 bits more than the
total: another 2^-200. Together this is below the 2^-180 that one draw of the discrete Gaussian is
charged for (`tacit.mechanisms.lattice.numerical_delta`), so a choice counts as one draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np

from tacit.exceptions import InputError
from tacit.mechanisms.discrete_gaussian import exp_minus
from tacit.mechanisms.random_streams import Stream

POINT = 320  # fractional bits of `exp_minus`
FARTHEST = 256  # exponents beyond it give less than one unit
MOST_WEIGHT = 1 << 96  # sum of the weights
SPARE = 200  # bits of the uniform number beyond those of the total


def exponential_choice(
    utilities: Sequence[float] | np.ndarray,
    noise_multiplier: float,
    stream: Stream,
    *,
    weights: Sequence[int] | None = None,
) -> int:
    """Choose a candidate with probability proportional to weight·exp(utility/β).

    The event is ``Selection(noise_multiplier)``, if one row contributes at most one to the utility
    of any candidate.

    Parameters
    ----------
    utilities : sequence of int or float
        One for each candidate, taken as the exact numbers that they are. Integers, such as
        counts, have the sensitivity that they should; floats have that of their rounding as well.
    noise_multiplier : float
        β, in contributions of one row.
    stream : Stream
        Gives one uniform number.
    weights : sequence of int, optional
        How many candidates each entry stands for, public; one by default.

    Returns
    -------
    int
        Index of the chosen entry, within total variation 2^-180 of the stated distribution. Among
        m candidates, its utility falls short of the best by more than β·(ln m + t) with
        probability at most e^-t (McSherry & Talwar 2007, Theorem 7).

    Examples
    --------
    >>> from tacit.mechanisms.random_streams import Key
    >>> exponential_choice([0, 5, 1000], 2.0, Key.from_seed(0).stream("example"))
    2
    """
    return pick(masses(utilities, noise_multiplier, weights), stream)[0]


def masses(
    utilities: Sequence[float] | np.ndarray,
    noise_multiplier: float,
    weights: Sequence[int] | None = None,
) -> list[int]:
    """Integers proportional to weight·exp(utility/β): the best candidate's weight times 2^320.

    Examples
    --------
    >>> [mass / 2**320 for mass in masses([0, -1, -2], 2.0)]
    [1.0, 0.6065306597126334, 0.36787944117144233]
    """
    given = utilities.tolist() if isinstance(utilities, np.ndarray) else utilities
    values = [_exact(utility) for utility in given]
    counts = [1] * len(values) if weights is None else [int(weight) for weight in weights]
    if len(counts) != len(values) or min(counts, default=0) < 1 or sum(counts) > MOST_WEIGHT:
        raise InputError(
            "every candidate needs a utility, and a weight that is an integer of at least 1; "
            "weights sum to 2**96 at most"
        )
    if not 0 < float(noise_multiplier) < math.inf:
        raise InputError(f"noise_multiplier must be a positive number, not {noise_multiplier!r}")
    best = max(values)
    common = math.lcm(*(value.denominator for value in values))
    top, bottom = float(noise_multiplier).as_integer_ratio()
    powers = _Powers(bottom, top * common)  # exponents are gap·bottom/(top·common), for whole gaps
    return [
        weight * powers.factor(int((best - value) * common))
        for value, weight in zip(values, counts, strict=True)
    ]


def pick(masses: Sequence[int], stream: Stream) -> tuple[int, int]:
    """An index, with probability proportional to its mass, and a uniform integer below it."""
    total = sum(masses)
    words = -(-(total.bit_length() + SPARE) // 64)
    uniform = int.from_bytes(stream.words(words).astype("<u8").tobytes(), "little")
    left = uniform * total >> (64 * words)
    index = 0
    while left >= masses[index]:
        left -= masses[index]
        index += 1
    return index, left


class _Powers:
    """2^320·exp(-gap·bottom/top) for whole gaps, by their binary digits."""

    def __init__(self, bottom: int, top: int) -> None:
        self._last = FARTHEST * top // bottom  # largest gap that counts
        self._powers = [exp_minus(bottom << j, top) for j in range(self._last.bit_length())]
        self._known: dict[int, int] = {}

    def factor(self, gap: int) -> int:
        if gap > self._last:
            return 0
        if gap not in self._known:
            value = 1 << POINT
            for j in range(gap.bit_length()):
                if gap >> j & 1:
                    value = value * self._powers[j] >> POINT
            self._known[gap] = value
        return self._known[gap]


def _exact(utility: Any) -> int | Fraction:
    if isinstance(utility, Integral) and not isinstance(utility, bool):
        return int(utility)
    if isinstance(utility, Real) and math.isfinite(utility) and not isinstance(utility, bool):
        return Fraction(float(utility))
    raise InputError(f"utilities must be finite numbers, not {utility!r:.80}")
