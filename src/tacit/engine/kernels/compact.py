"""Dense tables in integers of 16 bits, multiplied by compiled loops.

`native.c` has the loops: scores, residuals, clipping, rounding and sums of a block of rows after
the other, with whatever instructions the processor has. The numbers are those that NumPy finds in
float64 (`tacit.engine.quantization` has the argument), so nothing but time depends on whether the
extension could be built. The environment variable ``TACIT_KERNELS`` names another level than the
highest: ``portable``, ``avx2``, ``avx512``, or ``numpy`` to do without.

A row is kept as whole vectors of 16 numbers. What else belongs to it lies in arrays beside them,
at the same index: the inverse of its norm, its largest magnitude, its target.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.data.streams import Columns
from tacit.engine.people import LOOSE, PersonClipping, spread_of
from tacit.engine.quantization import FEATURE_MAX, SHRINK, Clipping, Scale, Weights
from tacit.engine.schedule import LANES, Block
from tacit.engine.storage import DenseStore, Rounding, Workspace
from tacit.exceptions import InputError, MachineError
from tacit.losses import Loss
from tacit.losses.margin import Logistic
from tacit.losses.multinomial import Softmax
from tacit.losses.regression import Squared

try:
    from tacit.engine.kernels import native
except ImportError:  # no compiler where this was installed
    native = None  # type: ignore[assignment]

COLUMNS = 16  # rows are a multiple of so many numbers
LINE = 64  # bytes that come from memory together
NUMPY = "numpy"
#: Losses whose residuals the loops compute, by their number there.
FUSED: dict[type[Loss], int] = {Logistic: 0, Softmax: 1, Squared: 2}


def levels() -> dict[str, int]:
    """Levels of instructions that this processor has, the highest last; none without loops."""
    return {} if native is None else native.levels()


@lru_cache(maxsize=1)
def level() -> int | None:
    """The level that is used, tried out; None to use NumPy."""
    found = levels()
    name = os.environ.get("TACIT_KERNELS") or (list(found)[-1] if found else NUMPY)
    if name == NUMPY:
        return None
    if name not in found:
        has = ", ".join([NUMPY, *found])
        raise InputError(f"TACIT_KERNELS is {name!r}; this machine has {has}")
    self_test(found[name])
    return found[name]


def padded_width(d: int) -> int:
    """Columns that rows are kept in: whole vectors."""
    return -(-d // COLUMNS) * COLUMNS


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros of 16 bits, which begin where a line of memory does."""
    size = math.prod(shape)
    memory = np.zeros(size + LINE // 2, dtype=dtype)
    start = -memory.ctypes.data % LINE // 2
    return memory[start : start + size].reshape(shape)


class CompactStore(DenseStore):
    """int16 rows, beside zeros up to whole vectors."""

    compiled = True

    def allocate(self, n: int, d: int, dtype: Any) -> np.ndarray:
        self.level, self.n = level() or 0, n
        width = padded_width(d)
        self.vectors = aligned((n, width), dtype)
        self.reach = width
        self.peaks = np.zeros(n, dtype=np.uint16)
        return self.vectors[:, :d]

    def operand(self, weights: Weights) -> Any:
        columns = np.zeros((len(weights.columns), self.vectors.shape[1]), dtype=np.int16)
        columns[:, : weights.columns.shape[1]] = weights.columns
        return columns, None, weights.unit

    def table(self, base: np.ndarray | None) -> Any:
        """Rows as the loops take them, with what scores begin with, if anything."""
        return self.vectors

    def in_order(self, found: np.ndarray) -> np.ndarray:
        """Sums (d, S*K) of columns as they were given, made of those that the loops find."""
        return found[:, : self.values.shape[1]].T

    def repeat_last(self, count: int) -> None:
        """Fill up with the last of so many rows."""
        for kept in (self.values, self.peaks, *self.inverse_norms):
            kept[count:] = kept[count - 1]

    def take(
        self,
        span: slice,
        chunk: np.ndarray | Columns,
        rounding: Rounding,
        blanked: np.ndarray | None = None,
    ) -> None:
        if blanked is not None or len(self.parts) > 1 or not self._rounded(span, chunk, rounding):
            super().take(span, np.asarray(chunk), rounding, blanked)

    def _rounded(self, span: slice, chunk: Any, rounding: Rounding) -> bool:
        """Round rows in one pass; False if they have to be looked at, or their number is none."""
        values = chunk.columns if isinstance(chunk, Columns) else chunk
        if isinstance(values, np.ndarray):
            if values.dtype not in (np.float32, np.float64) or not values.flags.aligned:
                return False
            if not (values.flags.c_contiguous or values.flags.f_contiguous):
                return False
            if not values.flags.c_contiguous:
                values = [np.asarray(column) for column in values.T]
        constant = [int(value) for value in rounding.constant]
        shift = np.zeros(chunk.shape[1]) if rounding.shift is None else rounding.shift
        squares = np.empty(span.stop - span.start)
        how = (values, shift, 1 / rounding.scale.unit, constant[0] if constant else None)
        if not native.rounded(self.level, *how, self.vectors[span], squares, self.peaks[span]):
            return False  # to be refused
        np.sqrt(np.maximum(squares, 1.0, out=squares), out=squares)
        if squares.max(initial=0.0) > self.longest:
            return False  # rows to be shortened
        np.divide(1.0, squares, out=self.inverse_norms[0][span])
        return True

    def fill(self, span: slice, values: np.ndarray) -> None:
        super().fill(span, values)
        self.peaks[span] = np.abs(self.values[span]).max(axis=1, initial=0)

    def forward(self, block: Block, operand: Any, work: Workspace) -> Any:
        where, (columns, base, unit) = self._where(block), operand
        raw = work.array("raw", (len(columns), where[2] - where[1]), np.int32)
        native.scores(self.level, self.table(base), *where, columns, raw)
        scores = work.array("scores", raw.shape, np.float64)
        return where, np.multiply(raw, unit, out=scores)

    def backward(self, rows: Any, multipliers: Sequence[np.ndarray], work: Workspace) -> np.ndarray:
        sums = []
        for columns, some in zip(self.parts, multipliers, strict=True):
            total = np.zeros((len(some), self.reach), dtype=np.int64)
            some = np.ascontiguousarray(some)
            native.sums(self.level, self.table(None), *rows, self.peaks, some, total)
            sums.append(self.in_order(total)[columns])
        return sums[0] if len(sums) == 1 else np.concatenate(sums)

    def step(
        self,
        fused: Fused,
        index: np.ndarray | None,
        spans: Iterable[tuple[range, tuple[Any, ...]]],
        targets: np.ndarray,
        onto: Any,
    ) -> None:
        """Add the clipped gradients of some rows, or of an index, to sums (S*K, width).

        Those of people are clipped together, if a span of rows says whose they are: how many of
        each, inner products, the first of them, and the two numbers of `tacit.engine.people`.
        """
        table, inverse = self.table(fused.base), self.inverse_norms[0]
        first = self.level, fused.loss, table, index
        then = self.peaks, *fused.weights, targets, inverse, *fused.terms, onto
        for rows, people in spans:
            native.step(*first, rows.start, rows.stop, *then, *people)

    @staticmethod
    def _where(block: Block) -> tuple[np.ndarray | None, int, int]:
        return (
            (None, block.start, block.stop) if isinstance(block, slice) else (block, 0, len(block))
        )


class Fused:
    """What `CompactStore.step` needs of one step, for a loss that the loops know.

    Parameters
    ----------
    loss : Loss
    clipping : Clipping
    operand : tuple
        As made by `CompactStore.operand`.
    """

    def __init__(self, loss: Loss, clipping: Clipping, operand: Any) -> None:
        columns, self.base, unit = operand
        self.loss = FUSED[type(loss)]
        self.weights = columns, unit.reshape(-1)
        shape = (clipping.ceiling.reshape(-1), clipping.multiplier.reshape(-1))
        self.terms = (*shape, clipping.allowance, SHRINK[clipping.arithmetic], clipping.separate)


def self_test(found: int) -> None:
    """Compare with integers and with NumPy, on operands as large as they may be.

    Raises
    ------
    MachineError
        If a product is not exact, or a residual another one.
    """
    for n, width, lines in ((37, 16, 1), (64, 48, 2), (83, 80, 7), (50, 112, 19)):
        signs = 1 - 2 * (np.arange(n * width).reshape(n, width) * 2654435761 >> 9 & 1)
        peaks = np.where(np.arange(width) == np.arange(n)[:, None] % width, FEATURE_MAX, 1)
        flat = np.full((n, width), int(FEATURE_MAX / width**0.5))
        for rows in (signs * peaks, signs * flat, flat):
            if not _right(found, rows, lines):
                raise _failed("product is not exact where it should be")
    for kind in FUSED:
        for outputs in (1,) if kind is Squared else (1, 3) if kind is Logistic else (2, 5):
            for clip, per_class in ((1.0, False), (1e-3, False), (0.1, True)):
                for many in (1, 3):
                    if not _alike(found, kind(), outputs, clip, per_class, many=many):
                        raise _failed("gradient is another one than NumPy finds")


def _right(found: int, rows: np.ndarray, lines: int) -> bool:
    n, width = rows.shape
    turn, signs = np.arange(lines)[:, None], np.sign(rows)
    weights = signs[0] * (int(2**15 / width**0.5) - (7 * turn + 1) * np.arange(width) % 1021)
    index = np.arange(n)[::-1].copy()
    norms = np.sqrt((rows**2).sum(axis=1))[index]
    largest = (2.0**39 / norms).astype(np.int64)  # beyond two parts, for the shortest
    multipliers = (largest - (5 * turn + 1) * np.arange(n) % 1021) * signs[index, 0]
    held = rows.astype(np.int16), index, 0, n
    scores, sums = np.empty((lines, n), np.int32), np.zeros((lines, width), np.int64)
    native.scores(found, *held, weights.astype(np.int16), scores)
    highest = np.abs(rows).max(axis=1).astype(np.uint16)
    native.sums(found, *held, highest, multipliers.astype(np.float64), sums)
    same = (scores == np.einsum("kj,ij->ki", weights, rows[index])).all()
    return bool(same and (sums == np.einsum("ki,ij->kj", multipliers, rows[index])).all())


def _alike(
    found: int, loss: Loss, outputs: int, clip: float, per_class: bool, *, many: int
) -> bool:
    """One step of three settings on rows of all lengths, or of people, against NumPy."""
    n, d, settings = 53 if many == 1 else 2 * LANES * many, 16, 3
    spread = np.arange(n * d, dtype=np.float64).reshape(n, d)
    rows = np.rint(np.sin(spread * 12.9898) * 8191 * np.exp2(-(spread[:, :1] // d % 5)))
    scale = Scale.of(1.0, d, None, 0.0)
    weights = np.sin(np.arange(settings * d * outputs) * 78.233).reshape(settings, d, outputs)
    grid = Weights.of(weights * np.exp2([[[-9]], [[0]], [[7]]]), scale, "exact")
    clips = clip * np.array([1.0, 0.25, 3.0])
    loose = 1.0 if many == 1 else LOOSE
    clipping = Clipping.of(clips, outputs, scale, "exact", per_class, loose=loose)
    targets = loss.targets(np.arange(n) % max(outputs, 2), outputs)
    store = DenseStore(n, d, "exact", (slice(0, d),))
    store.fill(slice(0, n), rows)
    fused = Fused(loss, clipping, (grid.columns.astype(np.int16), None, grid.unit))
    highest, sums = np.abs(rows).max(axis=1).astype(np.uint16), np.zeros((settings * outputs, d))
    onto = sums.astype(np.int64)
    held = (store.values, None, 0, n, highest, *fused.weights, targets, store.inverse_norms[0])
    people: tuple[Any, ...] = ()
    pairs = np.zeros((0, n))
    if many > 1:
        each = rows.reshape(-1, many, LANES, d)
        first, second = np.triu_indices(many, 1)
        pairs = np.einsum("tplj,tplj->ptl", each[:, first], each[:, second]).reshape(len(first), -1)
        people = (many, pairs, 0, LOOSE, spread_of(many, outputs, "exact"))
    native.step(found, fused.loss, *held, *fused.terms, onto, *people)
    right = np.einsum("kj,ij->ki", grid.columns, rows) * grid.unit
    cube = right.reshape(settings, outputs, n)
    for setting in cube:
        loss.portable().residual(setting.T, targets, out=setting.T)
    PersonClipping(clipping).apply(cube, store.inverse_norms[0], many, pairs)
    return bool((onto == np.einsum("ki,ij->kj", right, rows)).all())


def _failed(what: str) -> MachineError:
    return MachineError(
        f"a compiled {what} on this machine, so the noise would not protect what it should. Set "
        "TACIT_KERNELS=numpy, which is slower; and please report it with the compiler and the "
        "processor."
    )
