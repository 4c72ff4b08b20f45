"""Large tables in integers of 16 bits, multiplied by compiled loops.

Scores are sums of 32 bits, and so are sums of sixteen rows times multipliers, which come in two
parts (`tacit.trainers.quantize` has the argument). One instruction multiplies and adds sixteen
pairs of such numbers, four times as many as it does in float64, and rows are read where they lie.
The numbers are those that a BLAS library finds in float64.

Needs Numba (``pip install tacit[speed]``); without it, large tables have no loops of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.data.streams import Columns
from tacit.exceptions import MachineError
from tacit.losses import Loss
from tacit.losses.margin import Logistic
from tacit.losses.multinomial import Softmax
from tacit.trainers.quantize import FEATURE_MAX, SHRINK, Clipping, Scale, Weights
from tacit.trainers.schedule import LANES, Block
from tacit.trainers.selftest import places
from tacit.trainers.storage import DenseStore, Rounding, Workspace, indices

__all__ = ["CompactStore", "Fused", "loops", "padded_width", "store_for"]

FLOATS = (np.float32, np.float64)
LIMB = 13  # bits of the lower part of a multiplier


@lru_cache(maxsize=1)
def loops() -> Any:
    """The compiled loops, tried out; None without Numba."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return None
    from tacit.trainers import compiled

    _try(compiled)
    return compiled


def padded_width(d: int) -> int:
    """Columns that rows are kept in: whole vectors."""
    return -(-d // LANES) * LANES


def store_for(small: bool) -> type[DenseStore]:
    """What dense rows are kept in; ``small`` if they are `tacit.trainers.quantize.compact`."""
    return CompactStore if small and loops() is not None else DenseStore


def _plain(chunk: Any) -> bool:
    """Whether compiled loops may read it."""
    if not isinstance(chunk, np.ndarray) or chunk.dtype not in FLOATS:
        return False
    return bool(chunk.flags.c_contiguous and chunk.flags.aligned)


def _terms(clipping: Clipping) -> tuple[Any, ...]:
    shrink = SHRINK[clipping.arithmetic]
    fixed = (float(clipping.allowance), shrink, clipping.separate)
    return (clipping.ceiling, clipping.multiplier, *fixed)


class Fused:
    """Residuals, clipping and rounding of one step in one loop, for a loss that has one.

    Parameters
    ----------
    loss : Loss
        Softmax or logistic.
    clipping : Clipping
    """

    def __init__(self, loss: Loss, clipping: Clipping) -> None:
        self._loop = getattr(loops(), FUSED[type(loss)])
        self._terms = _terms(clipping)

    def __call__(
        self,
        raw: np.ndarray,
        unit: np.ndarray,
        targets: np.ndarray,
        inverse: np.ndarray,
        *,
        count: int,
        work: Workspace,
    ) -> np.ndarray | None:
        """Multipliers in two parts (2 S K, b); None if they do not fit."""
        out = work.array("limbs", (2 * len(raw), raw.shape[1]), np.int16)
        fit = self._loop(raw, unit, targets, inverse, self._terms, count, out)
        return out if fit else None


FUSED: dict[type[Loss], str] = {Softmax: "softmax", Logistic: "logistic"}


class CompactStore(DenseStore):
    """int16 rows, beside zeros up to whole vectors."""

    compiled = True

    def allocate(self, n: int, d: int, dtype: Any) -> np.ndarray:
        self.vectors = np.zeros((n, padded_width(d)), dtype=dtype)
        return self.vectors[:, :d]

    def operand(self, weights: Weights) -> Any:
        columns = np.zeros((len(weights.columns), self.vectors.shape[1]), dtype=np.int16)
        columns[:, : weights.columns.shape[1]] = weights.columns
        return columns, weights.unit

    @property
    def everyone(self) -> np.ndarray:
        """Numbers of all rows."""
        return np.arange(len(self.vectors))

    def take(self, span: slice, chunk: np.ndarray | Columns, rounding: Rounding) -> None:
        count, d = chunk.shape
        many = 0 if rounding.blanks or len(self.parts) > 1 else count - count % LANES
        shift = np.zeros(d) if rounding.shift is None else rounding.shift
        squares, per_unit = np.empty(many), 1 / rounding.scale.unit
        kept = self.vectors[span]
        if isinstance(chunk, Columns):
            aside = np.zeros((d + LANES, loops().TILE), dtype=np.int16)
            how = (chunk.addresses, chunk.dtype == np.float32, shift, per_unit, aside)
            finite = loops().rounded_columns(*how, kept, squares)
        elif _plain(chunk):
            finite = loops().rounded_rows(chunk[:many], shift, per_unit, kept, squares)
        else:
            many, finite = 0, True
        if not finite:
            many = 0  # to be refused
        for constant in rounding.constant:
            kept[:many, d] = constant
            squares[:many] += constant**2
        if many and np.sqrt(squares[:many].max()) > self.longest:
            many = 0  # rows to be shortened
        start, stop = span.start, span.start + many
        self.inverse_norms[0][start:stop] = 1.0 / np.sqrt(np.maximum(squares[:many], 1.0))
        if many < count:
            super().take(slice(stop, span.stop), np.asarray(chunk)[many:], rounding)

    def raw(self, block: Block, operand: Any, work: Workspace) -> tuple[Any, np.ndarray]:
        """Rows of the block, and their scores as 32-bit integers (S*K, b)."""
        index, (columns, _) = indices(block), operand
        found = work.array("raw", (len(columns), index.size), np.int32)
        loops().scores(self.vectors, index, columns, found)
        return index, found

    def forward(self, block: Block, operand: Any, work: Workspace) -> Any:
        index, raw = self.raw(block, operand, work)
        scores = work.array("scores", raw.shape, np.float64)
        return index, np.multiply(raw, operand[1], out=scores)

    def backward(
        self, rows: np.ndarray, multipliers: Sequence[np.ndarray], work: Workspace
    ) -> np.ndarray:
        sums = []
        for columns, some in zip(self.parts, multipliers, strict=True):
            parts = work.array("limbs", (2 * len(some), some.shape[1]), np.int16)
            fit = loops().limbs(np.ascontiguousarray(some), parts)
            whole = self.total(rows, parts, work) if fit else self._widened(rows, some)
            sums.append(whole[columns])
        return sums[0] if len(sums) == 1 else np.concatenate(sums)

    def total(self, index: np.ndarray, parts: np.ndarray, work: Workspace) -> np.ndarray:
        """Sum over rows times multipliers that are in two parts: (d, S*K)."""
        found = np.zeros((len(parts) // 2, self.vectors.shape[1]), dtype=np.int64)
        side = work.array("side", (1, LANES * index.size), np.int16)
        loops().sums(self.vectors, index, parts, side, found)
        return found[:, : self.values.shape[1]].T

    def _widened(self, index: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        return (multipliers @ self.values[index].astype(np.float64)).astype(np.int64).T


def _try(found: Any) -> None:
    """Compare with integers and with NumPy, on operands as large as they may be.

    Raises
    ------
    MachineError
        If a product is not exact, or a residual another one.
    """
    many, d = 2 * LANES, 3 * LANES
    mixed = np.arange(many * d).reshape(many, d) * 2654435761 >> 9
    signs = 1 - 2 * (mixed & 1)
    index = np.arange(many)[::-1].copy()
    # Rows with one large feature, and with many, alike and not.
    peaks = np.where(mixed % d == mixed[:, :1] % d, FEATURE_MAX, 1)
    for rows in (peaks * signs, signs * (FEATURE_MAX >> 3), np.full((many, d), FEATURE_MAX >> 3)):
        for outputs in range(1, 8):
            if not _right(found, rows, index, outputs):
                raise _failed("product is not exact where it should be")
    for single in (True, False):
        if not _round(found, np.float32 if single else np.float64):
            raise _failed("rounding of rows is another one than NumPy finds")
    for kind, name in FUSED.items():
        loss = kind()
        for outputs in (1, 2) if kind is Logistic else (2, 5):
            for clip, per_class in ((1.0, False), (1e-3, False), (0.1, True)):
                if not _alike(getattr(found, name), loss, outputs, clip, per_class):
                    raise _failed("gradient is another one than NumPy finds")


def _right(found: Any, rows: np.ndarray, index: np.ndarray, outputs: int) -> bool:
    many, d = rows.shape
    norms = np.sqrt((rows**2).sum(axis=1))
    turn, signs = np.arange(outputs)[:, None], np.sign(rows)
    weights = signs[0] * (int(2**15 / d**0.5) - (7 * turn + 1) * np.arange(d) % 1021)
    largest = np.minimum(2.0**39 / norms[index], FEATURE_MAX << LIMB).astype(np.int64)
    multipliers = (largest - (5 * turn + 1) * np.arange(many) % 1021) * signs[index, 0]
    scores, sums = np.empty((outputs, many), np.int32), np.zeros((outputs, d), np.int64)
    parts, side = np.empty((2 * outputs, many), np.int16), np.empty((1, LANES * many), np.int16)
    held = rows.astype(np.int16)
    found.scores(held, index, weights.astype(np.int16), scores)
    fit = found.limbs(multipliers.astype(np.float64), parts)
    found.sums(held, index, parts, side, sums)
    same = (scores == np.einsum("kj,ij->ki", weights, rows[index])).all()
    return bool(fit and same and (sums == np.einsum("ki,ij->kj", multipliers, rows[index])).all())


def _round(found: Any, dtype: Any) -> bool:
    many, d = 2 * LANES, LANES + 3
    spread = np.arange(many * d, dtype=np.float64).reshape(many, d)
    # Ties, both ends of the range and far beyond, and whatever lies between.
    values = np.where(spread % 3 == 1, spread / 2 - 99, np.sin(spread) * np.exp2(spread % 33 - 8))
    values = values.astype(dtype)
    scale, shift = Scale.of(1.0, d, None, 0.0), np.cos(np.arange(d)) * 2.0**-9
    values *= dtype(scale.unit)
    right = scale.integers(values - shift)
    columns = np.asfortranarray(values)
    places = columns.ctypes.data + np.arange(d, dtype=np.intp) * columns.strides[1]
    aside = np.zeros((d + LANES, found.TILE), np.int16)
    kept, squares = np.zeros((2, many, 2 * LANES), np.int16), np.empty((2, many))
    how = (shift, 1 / scale.unit)
    fine = found.rounded_columns(places, dtype is np.float32, *how, aside, kept[0], squares[0])
    fine &= found.rounded_rows(values, *how, kept[1], squares[1])
    same = (kept[:, :, :d] == right).all() and (squares == (right**2).sum(axis=1)).all()
    for wrong in (np.nan, np.inf):
        values[-1, -1] = columns[-1, -1] = wrong
        fine &= not found.rounded_rows(values, *how, kept[1], squares[1])
        fine &= not found.rounded_columns(
            places, dtype is np.float32, *how, aside, kept[0], squares[0]
        )
    return bool(fine and same)


def _alike(loop: Any, loss: Loss, outputs: int, clip: float, per_class: bool) -> bool:
    scores, targets = places(loss, outputs)
    many, unit = scores.shape[1], 2.0**-20
    raw = np.clip(np.rint(scores / unit), 1 - 2**31, 2**31 - 1).astype(np.int32)
    inverse = 1.0 / np.linspace(2.0**12, 2.0**16, many)  # long enough for two parts
    clipping = Clipping.of(
        np.array([clip]), outputs, Scale.of(1.0, 99, None, 1.0), "exact", per_class
    )
    parts = np.empty((2 * outputs, many), np.int16)
    fit = loop(raw, np.full(outputs, unit), targets, inverse, _terms(clipping), many, parts)
    wide = raw * unit
    loss.portable().residual(wide.T, targets, out=wide.T)
    clipping.apply(wide[None], inverse)
    return bool(fit and ((parts[::2].astype(np.int64) << LIMB) + parts[1::2] == wide).all())


def _failed(what: str) -> MachineError:
    return MachineError(
        f"a compiled {what} on this machine, so the noise would not protect what it should. "
        "Uninstall numba, or update it; if that does not help, please report it with its version "
        "and the processor."
    )
