"""How sums are taken."""

from __future__ import annotations

from enum import StrEnum


class Arithmetic(StrEnum):
    """How sums and noise are computed; users, engines and certificates write the value.

    Examples
    --------
    >>> Arithmetic("exact") is Arithmetic.EXACT == "exact"
    True
    """

    EXACT = "exact"  # integers, with an exact discrete Gaussian
    STRICT = "strict"  # the same, and every product is checked
    ROUNDED = "rounded"  # floats with a bound on their rounding: what exact is, once rows move
    FAST = "fast"  # floats, where ideal arithmetic is assumed

    def __repr__(self) -> str:
        return repr(self.value)
