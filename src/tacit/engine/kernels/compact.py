"""Large tables in integers of 16 bits, multiplied by compiled loops.

Scores are sums of 32 bits, and so are sums of sixteen rows times multipliers, which come in two
parts (`tacit.engine.quantization` has the argument). One instruction multiplies and adds sixteen
pairs of such numbers, four times as many as it does in float64, and rows are read where they lie.
The numbers are those that a BLAS library finds in float64.

Needs Numba (``pip install tacit[speed]``); without it, large tables have no loops of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.data.streams import Columns
from tacit.engine.quantization import FEATURE_MAX, SHRINK, Clipping, Scale, Weights
from tacit.engine.schedule import LANES, Block
from tacit.engine.selftest import places
from tacit.engine.storage import DenseStore, Rounding, Workspace, indices
from tacit.exceptions import MachineError
from tacit.losses import Loss
from tacit.losses.margin import Logistic
from tacit.losses.multinomial import Softmax

__all__ = [
    "CompactStore",
    "Fused",
    "concluded",
    "loops",
    "nothing",
    "padded_width",
    "products",
    "store_for",
]

FLOATS = (np.float32, np.float64)
LIMB = 13  # bits of the lower part of a multiplier
MANY = 16  # columns of weights for which there may be loops of their own
CLIPS = (1.0, 0.25, 3.0)  # of settings that residuals are tried out with


@lru_cache(maxsize=1)
def loops() -> Any:
    """The compiled loops, tried out; None without Numba."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return None
    from tacit.engine.kernels import compiled

    _try(compiled)
    return compiled


class Products:
    """Rows times weights, and rows times multipliers in two parts."""

    at_once = 1  # columns of weights, or parts of multipliers, that loops take at a time

    def __init__(self, found: Any) -> None:
        self._loops = found

    def padded(self, lines: np.ndarray, width: int | None = None) -> np.ndarray:
        """Lines of 16-bit integers, and zeros, as the loops take them."""
        many = -(-len(lines) // self.at_once) * self.at_once
        if lines.dtype == np.int16 and (many, width or lines.shape[1]) == lines.shape:
            return lines
        found = np.zeros((many, width or lines.shape[1]), dtype=np.int16)
        found[: len(lines), : lines.shape[1]] = lines
        return found

    def scores(
        self, rows: np.ndarray, index: np.ndarray, columns: np.ndarray, work: Workspace
    ) -> np.ndarray:
        """Scores (K, b) as 32-bit integers, of rows at these indices and `padded` columns."""
        found = work.array("raw", (len(columns), index.size), np.int32)
        self._loops.scores(rows, index, columns, self._side(index, work), found)
        return found

    def nothing(self, outputs: int, width: int) -> np.ndarray:
        """Zeros that sums are added to: (K, d), and more outputs if loops take them at a time."""
        lines = -(-2 * outputs // self.at_once) * self.at_once
        return np.zeros((-(-lines // 2), width), dtype=np.int64)

    def add(
        self,
        rows: np.ndarray,
        index: np.ndarray,
        parts: np.ndarray,
        onto: np.ndarray,
        work: Workspace,
    ) -> None:
        """Add rows times multipliers, which are in two parts (2 K, b), to what was `nothing`."""
        self._loops.sums(rows, index, self.padded(parts), self._side(index, work), onto)

    def _side(self, index: np.ndarray, work: Workspace) -> np.ndarray:
        """Scratch of the loops."""
        return work.array("side", (1, LANES * index.size), np.int16)


class WideProducts(Products):
    """The same for many columns of weights (`tacit.engine.kernels.wide`)."""

    def __init__(self, found: Any) -> None:
        super().__init__(found)
        self.at_once = found.AT_ONCE

    def _side(self, index: np.ndarray, work: Workspace) -> np.ndarray:
        return work.array("vectors", (1, self._loops.SCRATCH), np.int16)


def products(outputs: int) -> Products:
    """What multiplies so many columns of weights."""
    return (_wide() if outputs >= MANY else None) or Products(loops())


@lru_cache(maxsize=1)
def _wide() -> Products | None:
    """Products of `MANY` columns, tried out; None unless the processor is made for them."""
    from tacit.engine.kernels import wide

    if not wide.AVAILABLE:
        return None
    found = WideProducts(wide)
    _try_products(found, (MANY, 3 * MANY - 5))
    return found


def padded_width(d: int) -> int:
    """Columns that rows are kept in: whole vectors."""
    return -(-d // LANES) * LANES


def nothing(outputs: int, d: int) -> np.ndarray:
    """Zeros that sums over rows of d columns are added to."""
    return products(outputs).nothing(outputs, padded_width(d))


def concluded(sums: np.ndarray, outputs: int, d: int) -> np.ndarray:
    """What has been added to `nothing`: (d, K)."""
    return sums[:outputs, :d].T


def store_for(small: bool) -> type[DenseStore]:
    """What dense rows are kept in; ``small`` if they are `tacit.engine.quantization.compact`."""
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
        aside = work.array("aside", (len(raw), LANES), np.float64)
        fit = self._loop(raw, unit, _lines(targets), inverse, self._terms, count, aside, out)
        return out if fit else None


def _lines(targets: np.ndarray) -> np.ndarray:
    """Targets of an output one after the other; classes as they are."""
    return np.ascontiguousarray(targets.T)


FUSED: dict[type[Loss], str] = {Softmax: "softmax", Logistic: "logistic"}


class CompactStore(DenseStore):
    """int16 rows, beside zeros up to whole vectors."""

    compiled = True

    def allocate(self, n: int, d: int, dtype: Any) -> np.ndarray:
        self.vectors = np.zeros((n, padded_width(d)), dtype=dtype)
        return self.vectors[:, :d]

    def operand(self, weights: Weights) -> Any:
        made = products(len(weights.columns))
        return made.padded(weights.columns, self.vectors.shape[1]), weights.unit

    @property
    def everyone(self) -> np.ndarray:
        """Numbers of all rows."""
        return np.arange(len(self.vectors))

    def take(
        self,
        span: slice,
        chunk: np.ndarray | Columns,
        rounding: Rounding,
        blanked: np.ndarray | None = None,
    ) -> None:
        count, d = chunk.shape
        simple = blanked is None and len(self.parts) == 1
        many = count - count % LANES if simple else 0
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
            rest = slice(stop, span.stop)
            super().take(rest, np.asarray(chunk)[many:], rounding, blanked)

    def raw(self, block: Block, operand: Any, work: Workspace) -> tuple[Any, np.ndarray]:
        """Rows of the block, and their scores as 32-bit integers (S*K, b)."""
        index, (columns, unit) = indices(block), operand
        found = products(len(unit)).scores(self.vectors, index, columns, work)
        return index, found[: len(unit)]

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
            whole = self._total(rows, parts, work) if fit else self._widened(rows, some)
            sums.append(whole[columns])
        return sums[0] if len(sums) == 1 else np.concatenate(sums)

    def add(self, index: np.ndarray, parts: np.ndarray, onto: np.ndarray, work: Workspace) -> None:
        """Add rows times multipliers in two parts to sums that began as `nothing`."""
        products(len(parts) // 2).add(self.vectors, index, parts, onto, work)

    def _total(self, index: np.ndarray, parts: np.ndarray, work: Workspace) -> np.ndarray:
        onto = nothing(len(parts) // 2, self.values.shape[1])
        self.add(index, parts, onto, work)
        return concluded(onto, len(parts) // 2, self.values.shape[1])

    def _widened(self, index: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        return (multipliers @ self.values[index].astype(np.float64)).astype(np.int64).T


def _try(found: Any) -> None:
    """Compare with integers and with NumPy, on operands as large as they may be.

    Raises
    ------
    MachineError
        If a product is not exact, or a residual another one.
    """
    _try_products(Products(found), range(1, 8))
    if not _splits(found):
        raise _failed("multiplier is not the sum of its parts")
    for single in (True, False):
        if not _round(found, np.float32 if single else np.float64):
            raise _failed("rounding of rows is another one than NumPy finds")
    for kind, name in FUSED.items():
        loss = kind()
        for outputs in (1, 2) if kind is Logistic else (2, 5):
            for clip, per_class in ((1.0, False), (1e-3, False), (0.1, True)):
                if not _alike(getattr(found, name), loss, outputs, clip, per_class):
                    raise _failed("gradient is another one than NumPy finds")


def _try_products(made: Products, numbers: Iterable[int]) -> None:
    # Whole tiles and parts of them, of few rows and columns and of more than a cache holds.
    for many, d in ((4 * LANES, 7 * LANES), (25 * LANES, 26 * LANES), (26 * LANES, 25 * LANES)):
        _try_sizes(made, numbers, many, d)


def _try_sizes(made: Products, numbers: Iterable[int], many: int, d: int) -> None:
    mixed = np.arange(many * d).reshape(many, d) * 2654435761 >> 9
    signs = 1 - 2 * (mixed & 1)
    index = np.arange(many)[::-1].copy()
    # Rows with one large feature, and with many, alike and not.
    peaks = np.where(mixed % d == mixed[:, :1] % d, FEATURE_MAX, 1)
    flat = int(FEATURE_MAX / d**0.5)
    for rows in (peaks * signs, signs * flat, np.full((many, d), flat)):
        for outputs in numbers:
            if not _right(made, rows, index, outputs):
                raise _failed("product is not exact where it should be")


def _right(made: Products, rows: np.ndarray, index: np.ndarray, outputs: int) -> bool:
    many, d = rows.shape
    norms = np.sqrt((rows**2).sum(axis=1))
    turn, signs = np.arange(outputs)[:, None], np.sign(rows)
    weights = signs[0] * (int(2**15 / d**0.5) - (7 * turn + 1) * np.arange(d) % 1021)
    largest = np.minimum(2.0**39 / norms[index], FEATURE_MAX << LIMB).astype(np.int64)
    multipliers = (largest - (5 * turn + 1) * np.arange(many) % 1021) * signs[index, 0]
    upper = multipliers + (1 << LIMB - 1) >> LIMB
    parts = np.stack([upper, multipliers - (upper << LIMB)], axis=1).reshape(-1, many)
    held, work = rows.astype(np.int16), Workspace()
    scores = made.scores(held, index, made.padded(weights), work)[:outputs]
    sums = made.nothing(outputs, d)
    made.add(held, index, parts.astype(np.int16), sums, work)
    right = np.einsum("ki,ij->kj", multipliers, rows[index])
    same = (scores == np.einsum("kj,ij->ki", weights, rows[index])).all()
    return bool(same and (sums[:outputs] == right).all())


def _splits(found: Any) -> bool:
    most, parts = FEATURE_MAX << LIMB, np.empty((4, 2 * LANES), np.int16)
    whole = most - np.arange(2 * LANES) * 1021
    both = np.stack([whole, -whole])
    fit = found.limbs(both.astype(np.float64), parts)
    same = ((parts[::2].astype(np.int64) << LIMB) + parts[1::2] == both).all()
    small = (np.abs(parts[1::2].astype(np.int64)) <= 1 << LIMB - 1).all()
    return bool(fit and same and small and not found.limbs(both + 2.0**LIMB, parts))


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
    """Of three settings, some of whose scores are far apart, with rows at the end that are none."""
    scores, targets = places(loss, outputs)
    many, units = scores.shape[1], np.repeat([2.0**-20, 2.0**-17, 2.0**-26], outputs)
    count = many - 5
    raw = np.tile(np.rint(scores * 2.0**20), (len(CLIPS), 1))
    raw = np.clip(raw, 1 - 2**31, 2**31 - 1).astype(np.int32)
    scale = Scale.of(1.0, 99, None, 1.0)
    clipping = Clipping.of(clip * np.array(CLIPS), outputs, scale, "exact", per_class)
    aside, how = np.empty((outputs, LANES)), (units, _lines(targets))
    # Rows that are long enough for two parts, and such as may not be.
    for inverse in (1.0 / np.linspace(2.0**12, 2.0**16, many), np.ones(many)):
        parts = np.full((2 * len(raw), many), -1, np.int16)
        fit = loop(raw, *how, inverse, _terms(clipping), count, aside, parts)
        right = raw * units[:, None]
        for setting in right.reshape(len(CLIPS), outputs, many):
            loss.portable().residual(setting.T, targets, out=setting.T)
        clipping.apply(right.reshape(len(CLIPS), outputs, many), inverse)
        right[:, count:] = 0.0
        found = (parts[::2].astype(np.int64) << LIMB) + parts[1::2]
        if fit != (np.abs(right).max() <= FEATURE_MAX << LIMB) or (fit and (found != right).any()):
            return False
    return True


def _failed(what: str) -> MachineError:
    return MachineError(
        f"a compiled {what} on this machine, so the noise would not protect what it should. "
        "Uninstall numba, or update it; if that does not help, please report it with its version "
        "and the processor."
    )
