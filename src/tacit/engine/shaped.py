"""Shaped rows as integers: two neighbouring weights of every shape, and why sums of them are exact.

A fraction f becomes b = rint(f u), where u is one in units of the rows (a power of two), and the
rest a = u - b. For f a multiple of 2**-15 that is what both would be in a dense expansion, since u
is even: a tie is rounded to the even side in both. So the integers are those of the expansion.

**A place** is a cell as loops keep it: index + 1 times u, plus b; nothing is lost. What a row has
beyond the e-th weight, c_e = min(max(place - e u, 0), u), is between 0 and u, and a row meets a
weight with c_(e-1) - c_e, counted from 1: with u - b at its index and with b behind. Products with
c_e are below those with the largest number of the row, u or more, so that their 32-bit sums are
cut where those of straight columns would be.

**A shift** m is subtracted from products, not from rows: the row that counts is x - m, in integers.
Its norm is exact, by |x|^2 - 2 x m + |m|^2 below 2**53. By public facts (`fits`) and by shortening
what is straight in a row, |x - m| is at most `Scale.longest`, so its score x w - m w is below 2**31
(`tacit.engine.quantization`): computed modulo 2**32, both products may wrap around, and their
difference is right. Sums of rows are likewise right modulo 2**64: that of z x, less m times that
of z. A blanked row has no length that could be inverted: its multipliers are zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from tacit.data.shaped import GAP, ONE, Layout, ShapedChunk, expanded
from tacit.engine.storage import Rounding

WIDE = 48  # weights of a shape that vectors sum


def fits(layout: Layout | None, rounding: Rounding) -> bool:
    """Whether rows of this layout are kept as shapes, by public facts alone."""
    if layout is None or not layout.widths or not rounding.exact:
        return False
    scale = rounding.scale
    one = math.sqrt(len(layout.widths)) / scale.unit
    return 2 <= scale.bound <= ONE / 2 and one <= _room(rounding)


def planes(layout: Layout, rounding: Rounding) -> np.ndarray:
    """How many numbers of 16 bits the place of a cell takes, for every shape.

    A place is `one` apart from weight to weight, from `one` for the first; that of a gap is 0. Of
    up to `WIDE` weights, numbers have as much of it as they hold, one after the other; of more,
    one is the weight's and one is the fraction. Decided by public facts alone.
    """
    hold = math.floor(0xFFFF * rounding.scale.unit)  # weights, in steps of one
    widths = np.array(layout.widths)
    return np.where(widths > WIDE, 2, -(-widths // hold))


def _room(rounding: Rounding) -> float:
    """Integer norm of a row without its constant, so that x - m is not too long."""
    constant, shift = float(rounding.constant.sum()), rounding.offset()
    moved = 0.0 if shift is None else math.sqrt(np.add.reduce(np.square(shift)))
    left = math.sqrt(max(rounding.scale.longest**2 - constant**2, 0.0))
    return (left - moved) * (1 - 2.0**-40)


@dataclass(frozen=True)
class IntegerShapes:
    """Rows as they are kept.

    Attributes
    ----------
    layout : Layout
    one : int
        What the two weights of a cell add up to.
    index : ndarray of uint16, shape (n, shapes)
    upper : ndarray of float64, shape (n, shapes)
        Of the two weights, the second.
    straight : ndarray of float64, shape (n, columns)
        All other columns, the constant last.
    inverse_norm : ndarray of shape (n,)
        1 / |x - m|; 0 for a row that is blanked.
    """

    layout: Layout
    one: int
    index: np.ndarray
    upper: np.ndarray
    straight: np.ndarray
    inverse_norm: np.ndarray

    @property
    def lower(self) -> np.ndarray:
        """Of the two weights, the first; both are 0 for a gap."""
        return np.where(self.index == GAP, 0.0, self.one) - self.upper

    def sparse(self) -> sp.csr_array:
        """The expansion, before the shift."""
        return expanded(self.layout, self.index, self.lower, self.upper, self.straight)

    def dense(self, shift: np.ndarray | None) -> np.ndarray:
        """The expansion, less the shift; rows that are blanked are zero."""
        found = self.sparse().toarray()
        if shift is not None:
            found -= shift
        found[self.inverse_norm == 0] = 0.0
        return found


def rounded(
    chunk: ShapedChunk, rounding: Rounding, blanked: np.ndarray | None = None
) -> IntegerShapes:
    """Rows as integers, of a layout that `fits`."""
    one = round(1 / rounding.scale.unit)
    upper = np.rint(chunk.fraction * (one / ONE))
    lower = np.where(chunk.index == GAP, 0.0, one) - upper
    squares = np.add.reduce(np.square(lower) + np.square(upper), axis=1)
    straight = rounding.convert(chunk.straight)
    if chunk.layout.straight:
        own = np.add.reduce(np.square(straight), axis=1)
        room = _room(rounding)
        long = squares + own > room**2
        if long.any():  # a promise that was not kept; towards zero, so that rounding is harmless
            left = np.sqrt(np.maximum(room**2 - squares[long], 0.0) / own[long]) * (1 - 2.0**-40)
            straight[long] = np.trunc(straight[long] * np.minimum(left, 1.0)[:, None])
            own = np.add.reduce(np.square(straight), axis=1)
        squares += own
    for constant in rounding.constant:
        straight = np.column_stack([straight, np.full(len(straight), constant)])
        squares += constant**2
    shift = rounding.offset()
    if shift is not None:
        first = np.where(chunk.index == GAP, 0, chunk.layout.offsets[:-1] + chunk.index)
        behind = np.append(shift, 0.0)  # what is next to the very last one counts 0
        along = np.add.reduce(lower * behind[first] + upper * behind[first + 1], axis=1)
        rest = np.add.reduce(straight * shift[int(chunk.layout.offsets[-1]) :], axis=1)
        squares += np.add.reduce(np.square(shift)) - 2 * (along + rest)
    inverse = 1.0 / np.sqrt(np.maximum(squares, 1.0))
    if blanked is not None:
        inverse[blanked] = 0.0
    return IntegerShapes(chunk.layout, one, chunk.index, upper, straight, inverse)
