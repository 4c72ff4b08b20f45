"""Clipped gradient sums in any namespace of the array API standard: PyTorch, CuPy, NumPy.

Rows are rounded to integers by NumPy, as for `tacit.engine.engine.Engine`, and live on the device
from then on; so do scores, residuals and products. A sum comes back as integers once for every
step, and noise is added to it where it always is.

**The integers are those of an engine.** Products are exact for any order of summation
(`tacit.engine.quantization`): float64, integers, magnitudes below 2**53 in sum, whichever processor
adds them up. Residuals and clipping are elementwise and made of correctly rounded operations, in
the order of ``loss.portable()`` and of `tacit.engine.quantization.Clipping.apply`, so the argument
for the clipping bound is the same, and so is every bit. That takes a device for granted which
rounds float64 by IEEE 754 and evaluates one operation after the other; it is tried out once for
every device, against NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import chain
from operator import add
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from tacit.data.arrays import to_numpy
from tacit.data.rows import Rows
from tacit.engine.array_losses import Elementary, residual_in
from tacit.engine.elsewhere import EngineElsewhere
from tacit.engine.engine import Engine, LatticeSum, count_rows
from tacit.engine.quantization import LATTICE_ROWS, SHRINK, TINY, Clipping, Scale, Weights
from tacit.engine.schedule import Block, groups_of, padded
from tacit.engine.selftest import operands, places
from tacit.engine.storage import Rounding, checked_batch, checked_targets, with_norms
from tacit.exceptions import InputError, MachineError
from tacit.losses import LOSSES, Loss, get_loss
from tacit.progress import Progress, silent

BLOCK_CELLS = 1 << 20  # of the rows that are widened to float64 at a time, on a processor
DEVICE_CELLS = 1 << 24  # and elsewhere, where a call costs more than memory


class _Block(NamedTuple):
    """Rows on the device, and what belongs to them, up to a multiple of vectors."""

    rows: Any
    scores: Any  # (S*K, b)
    targets: Any
    norms: Any  # 1 / |x|, part by part
    which: Block


class ArrayEngine(EngineElsewhere):
    """What `tacit.engine.engine.Engine` is to NumPy, for arrays of other libraries and devices.

    Parameters
    ----------
    rows : Rows
        Read once, chunk by chunk. They need a bound, as for an `Engine`.
    targets : ndarray
        As made by ``loss.targets``.
    loss : Loss
        Those of `tacit.losses` are evaluated on the device; a loss that is defined elsewhere on
        the host, by its own ``residual``.
    xp : namespace
        Functions of the array API standard, as from ``array_api_compat.array_namespace(array)``.
    device : optional
        Where rows and products live, as ``xp.asarray`` takes it; by default wherever it puts them.
    arithmetic : {"exact", "fast"}
        Integers, or float32.
    intercept, shift, split, progress
        As for an `Engine`.

    Examples
    --------
    >>> import array_api_compat.numpy as xp
    >>> import numpy as np
    >>> from tacit.data.rows import as_rows
    >>> from tacit.losses import get_loss
    >>> loss = get_loss("logistic")
    >>> rows = as_rows(np.array([[0.5], [1.0], [-1.0]]), bound=1.0)
    >>> engine = ArrayEngine(rows, loss.targets([0, 1, 0], outputs=1), loss, xp=xp)
    >>> engine.gradient_sum(np.zeros((1, 1, 1)), clip=0.25).float().ravel().round(6)
    array([-0.25])
    """

    def __init__(
        self,
        rows: Rows,
        targets: np.ndarray,
        loss: Loss,
        *,
        xp: Any,
        device: Any = None,
        intercept: float = 0.0,
        arithmetic: Literal["exact", "fast"] = "exact",
        shift: np.ndarray | None = None,
        split: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        require_device(xp, device, arithmetic)
        targets = checked_targets(targets, rows.n, arithmetic)
        hollow = Engine(
            rows.hidden(),
            targets[:0],
            loss,
            intercept=intercept,
            arithmetic=arithmetic,
            shift=shift,
            split=split,
            threads=1,
        )
        super().__init__(hollow, rows.n, arithmetic)
        self._xp, self._device, self._exact = xp, device, arithmetic == "exact"
        self._by = Elementary(xp, device, portable=self._exact)
        self._residual = residual_in(loss)
        self._latest_class = int(targets.max(initial=0)) if targets.ndim == 1 else 0
        self._host_targets = targets
        self._targets = self._put(targets if targets.ndim == 1 else targets.T)
        how = (float(rows.bound or 0), self.d, shift, float(intercept))
        self._scale = Scale.of(*how, exact=self._exact)
        self._read(rows, float(intercept), shift, silent if progress is None else progress)
        near = str(device) in ("None", "cpu")
        cells = (BLOCK_CELLS if near else DEVICE_CELLS) // self.d
        self.block_rows = min(LATTICE_ROWS, max(128, cells))

    def _put(self, array: np.ndarray) -> Any:
        return self._xp.asarray(np.ascontiguousarray(array), device=self._device)

    def _read(
        self,
        rows: Rows,
        intercept: float,
        shift: np.ndarray | None,
        progress: Progress,
    ) -> None:
        """Rows to the device, rounded as an engine rounds them."""
        rounding = Rounding(self._scale, self._exact, intercept, shift)
        kind = np.int16 if self._exact else np.float32
        held = [self._put(np.empty((0, self.d), dtype=kind))]
        norms = [np.empty((len(self.parts), 0))]
        for span, chunk in rows.chunks():
            if sp.issparse(chunk) or chunk.shape != (span.stop - span.start, rows.d):
                raise InputError(f"a chunk of rows is sparse or has other than {rows.d} columns")
            values = rounding.dense(chunk, rows.blanked_in(span.start, span.stop)).astype(kind)
            values, found = with_norms(values, self.parts, self._exact, self._scale.longest)
            held.append(self._put(values))
            norms.append(np.stack(found))
            progress("rows", span.stop, rows.n)
        self._values = self._xp.concat(held, axis=0)
        joined = np.concatenate(norms, axis=1)
        self._norms = self._put(joined if self._exact else joined.astype(np.float32))

    def gradient_sums(
        self,
        weights: np.ndarray,
        clips: Sequence[float | np.ndarray],
        *,
        batch: np.ndarray | None = None,
        per_class: bool = False,
    ) -> list[LatticeSum]:
        """As `Engine.gradient_sums`."""
        grid, clippings = self._terms(weights, clips, per_class)
        settings, _, outputs = np.shape(weights)
        index = None if batch is None else checked_batch(batch, self.n)
        limits = [_Limits(self._put, clipping) for clipping in clippings]
        total = np.zeros((settings * outputs, self.d), np.int64 if self._exact else np.float64)
        with np.errstate(all="ignore"):  # what is not a number is dealt with where it is clipped
            for blocks in self._blocks(grid, index):
                products = (self._products(block, limits, settings) for block in blocks)
                total += to_numpy(reduce(add, products)).astype(total.dtype)
        cube = total.reshape(settings, outputs, self.d).transpose(0, 2, 1)
        return [
            LatticeSum(
                np.ascontiguousarray(cube[:, part]), clipping.lattice, clipping.clip, part.start
            )
            for part, clipping in zip(self.parts, clippings, strict=True)
        ]

    def _products(self, block: _Block, limits: Sequence[_Limits], settings: int) -> Any:
        """Sum over a block of multipliers times row: (S*K, d)."""
        xp, (width, padded_rows) = self._xp, block.scores.shape
        cube = xp.reshape(block.scores, (settings, -1, padded_rows))
        residuals = self._residuals(cube, block)
        sums = []
        for p, part in enumerate(self.parts):
            found = limits[p].apply(self._by, residuals, block.norms[p : p + 1, :])
            # Padding, which repeats the last row, counts nothing.
            found = xp.reshape(found, (width, padded_rows))[:, : block.rows.shape[0]]
            sums.append(xp.matmul(found, block.rows[:, part]))
        return sums[0] if len(sums) == 1 else xp.concat(sums, axis=1)

    def row_sum(
        self, weights: np.ndarray, counts: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """As `Engine.row_sum`; ``counts`` is evaluated on the host."""
        total = self._hollow.row_sum(weights, counts)  # zero, and checked
        grid, _ = self._terms(weights, [1.0] * len(self.parts), False)
        settings, _, outputs = np.shape(weights)
        with np.errstate(all="ignore"):
            for block in chain.from_iterable(self._blocks(grid, None)):
                cube = to_numpy(block.scores).reshape(settings, outputs, -1)
                theirs = self._host_targets[block.which]
                total += count_rows(counts, cube, theirs, block.rows.shape[0])
        return total

    def _terms(
        self, weights: np.ndarray, clips: Sequence[float | np.ndarray], per_class: bool
    ) -> tuple[Weights, tuple[Clipping, ...]]:
        """Public numbers of a sum, checked before any row is touched."""
        if not self._exact:
            require_full_precision(self._xp, self._device)
        found = self._hollow.terms(np.asarray(weights, dtype=np.float64), clips, per_class)
        if self._latest_class >= np.shape(weights)[2]:
            raise InputError("weights have too few outputs: a target names a later class")
        return found

    def _blocks(self, grid: Weights, index: np.ndarray | None) -> Iterator[Iterator[_Block]]:
        """Groups of blocks, as an engine cuts them.

        A group is at most ``LATTICE_ROWS`` rows: their sum is exact in float64.
        """
        xp = self._xp
        operand = self._put(grid.columns * grid.unit)  # units are powers of two
        count = self.n if index is None else index.size

        def some(group: range) -> Iterator[_Block]:
            for start in group:
                stop = min(start + group.step, group.stop)
                block = padded(index, start, stop)
                if isinstance(block, slice):
                    rows, targets = self._values[block, :], self._targets[..., block]
                    norms = self._norms[:, block]
                else:
                    where = self._put(block)
                    rows = xp.take(self._values, where, axis=0)
                    targets = xp.take(self._targets, where, axis=-1)
                    norms = xp.take(self._norms, where, axis=1)
                if self._exact:
                    rows = xp.astype(rows, xp.float64)
                scores = xp.matmul(operand, rows.T)
                yield _Block(rows[: stop - start, :], scores, targets, norms, block)

        return map(some, groups_of(count, self.block_rows, LATTICE_ROWS))

    def _residuals(self, cube: Any, block: _Block) -> Any:
        if self._residual is not None:
            return self._residual(self._by, cube, block.targets)
        host = np.array(to_numpy(cube))  # a copy
        loss = self.loss.portable() if self._exact else self.loss
        for setting in host:
            loss.residual(setting.T, self._host_targets[block.which], out=setting.T)
        return self._put(host)


class _Limits:
    """`Clipping.apply` on a device, operation by operation."""

    def __init__(self, put: Callable[[np.ndarray], Any], clipping: Clipping) -> None:
        self.clipping = clipping
        self.ceiling, self.multiplier = put(clipping.ceiling), put(clipping.multiplier)

    def apply(self, by: Elementary, residual: Any, inverse_norm: Any) -> Any:
        """Clipped residuals (S, K, b), rounded where sums are exact; norms are (1, b)."""
        xp, clipping = by.xp, self.clipping
        finite = xp.all(xp.isfinite(residual), axis=1, keepdims=True)
        residual = xp.where(finite, residual, xp.zeros_like(residual))
        limit = self.ceiling * inverse_norm
        if clipping.allowance:
            limit = xp.clip(limit - clipping.allowance, min=0.0)
        limit = limit * SHRINK[clipping.arithmetic]
        if clipping.separate:
            limit = xp.expand_dims(limit, axis=1)
            residual = residual * xp.expand_dims(self.multiplier, axis=2)
            residual = xp.minimum(xp.maximum(residual, -limit), limit)
        else:
            norm = xp.clip(by.sqrt(by.total(residual * residual)), min=TINY[clipping.arithmetic])
            factor = xp.minimum(limit / norm, self.multiplier)
            residual = residual * xp.expand_dims(factor, axis=1)
        return xp.round(residual) if clipping.arithmetic == "exact" else residual


def require_device(xp: Any, device: Any, arithmetic: str) -> None:
    """Refuse what cannot be computed in a namespace, on a device; try out the rest, once.

    Raises
    ------
    InputError
        If the arithmetic is not one of an `ArrayEngine`, or the device has no float64 for it.
    MachineError
        If a product is not exact, or a residual not what NumPy finds.
    """
    if arithmetic == "fast":
        require_full_precision(xp, device)
        return
    if arithmetic != "exact":
        raise InputError(f"arithmetic is {arithmetic!r}; on arrays it must be exact or fast")
    _try(xp, device)


def require_full_precision(xp: Any, device: Any) -> None:
    """Refuse float32 products of PyTorch that it was told to compute in fewer bits."""
    if "torch" not in xp.__name__:
        return
    torch = sys.modules["torch"]
    backends = torch.backends
    precisions = [backends, backends.cuda.matmul, getattr(backends.mkldnn, "matmul", None)]
    lower = any(getattr(part, "fp32_precision", None) in ("tf32", "bf16") for part in precisions)
    if not lower:  # or else these may not be asked
        lower = torch.get_float32_matmul_precision() != "highest"
    if lower or torch.is_autocast_enabled(str(device or "cpu").partition(":")[0]):
        raise InputError(
            "PyTorch is set to multiply float32 in fewer bits (TF32, bfloat16 or autocast); call "
            "torch.set_float32_matmul_precision('highest') and leave autocast, or use "
            "arithmetic='exact', which is in float64"
        )


@lru_cache(maxsize=64)
def _try(xp: Any, device: Any) -> None:
    """Products on operands as large as they may be, and residuals of all losses, against NumPy."""
    try:
        wide = xp.asarray(np.ones(1), device=device)
        fits = to_numpy(wide * wide).dtype == np.float64
    except (TypeError, ValueError, RuntimeError):
        fits = False
    if not fits:
        raise InputError(
            f"the device {device} has no float64, which exact sums need: use arithmetic='fast', or "
            "rows on another device"
        )

    def put(array: np.ndarray) -> Any:
        return xp.asarray(np.ascontiguousarray(array, dtype=np.float64), device=device)

    for shape in ((48, 37, 3), (256, 384, 10)):
        for alike in (True, False):
            rows, columns, multipliers = operands(*shape, alike=alike)
            for left, right in ((columns, rows.T), (multipliers, rows)):
                found = to_numpy(xp.matmul(put(left), put(right)))
                if not (found == np.einsum("ij,jk->ik", left, right)).all():
                    raise _failed("a product of float64 matrices is not exact", xp, device)
    by = Elementary(xp, device, portable=True)
    for name in LOSSES:
        loss = get_loss(name)
        for outputs in (1,) if loss.task == "regression" else (2, 5):
            scores, targets = places(loss, outputs)
            theirs = targets if targets.ndim == 1 else np.ascontiguousarray(targets.T)
            where = xp.asarray(theirs, device=device)
            found = _residual_of(loss)(by, put(scores[None]), where)
            loss.portable().residual(scores.T, targets, out=scores.T)
            if not np.array_equal(to_numpy(found)[0], scores):
                raise _failed(f"the gradient of the {name} loss is another one", xp, device)


def _residual_of(loss: Loss) -> Callable[[Elementary, Any, Any], Any]:
    found = residual_in(loss)
    assert found is not None  # of every loss of Tacit
    return found


def _failed(what: str, xp: Any, device: Any) -> MachineError:
    return MachineError(
        f"{what} with {xp.__name__} on the device {device}, so the noise would not protect what it "
        "should: pass rows as an array of NumPy, and please report it with the version and device"
    )
