"""What an engine takes for granted of this machine, tried out once before the first sum.

The products of `tacit.engine.storage` are compared with Python's integers, on operands as large
as they may be, and the residuals of all losses are computed in two places. A machine may pass and
be wrong elsewhere; ``arithmetic="strict"`` checks every step.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from tacit.engine.quantization import EXACT_BITS, FEATURE_MAX, Weights, ceil_log2
from tacit.engine.schedule import LANES
from tacit.engine.storage import DenseStore, SparseStore, Workspace
from tacit.exceptions import MachineError
from tacit.losses import LOSSES, Loss, get_loss


@lru_cache(maxsize=1)
def tested() -> None:
    """Run `self_test`, once in a process."""
    self_test()


def self_test() -> None:
    """Try products and residuals on this machine.

    Raises
    ------
    MachineError
        If a product is not exact, or a residual depends on where its row stands.
    """
    for alike in (True, False):
        small = operands(48, 37, 3, alike=alike)
        _try_products("dense", *small, plain=True)
        _try_products("sparse", *small, plain=True)
        # About as large as blocks are in training, where libraries take other paths.
        _try_products("dense", *operands(256, 384, 10, alike=alike), plain=False)
    for name in LOSSES:
        loss = get_loss(name)
        for kind in (loss, loss.portable()):
            for outputs in (1,) if loss.task == "regression" else (2, 30):
                _try_places(kind, outputs)


def operands(
    b: int, d: int, outputs: int, *, alike: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, weights and multipliers whose sums of products come close to 2^52.

    If ``alike``, all have one sign, so that sums of several of them are as large as can be.
    """
    mixed = np.arange(b * d, dtype=np.int64).reshape(b, d) * 2654435761 >> 9
    signs = np.ones_like(mixed) if alike else 1 - 2 * (mixed & 1)
    signs[1::3] = signs[0]  # many rows alike, so that sums do not cancel
    rows = signs * (FEATURE_MAX - (mixed >> 1) % 64)
    largest = ceil_log2(d**0.5 * FEATURE_MAX)
    weight = int(2.0 ** (EXACT_BITS - largest) / d**0.5)
    multiplier = int(2.0**EXACT_BITS / (b * FEATURE_MAX))  # as if each row had but one feature
    turn = np.arange(outputs)[:, None]
    columns = signs[0] * (weight - (7 * turn + 1) * np.arange(d) % 1021)
    multipliers = np.where(turn % 2, signs[:, 0], 1) * (
        multiplier - (5 * turn + 1) * np.arange(b) % 1021
    )
    return rows, columns, multipliers


def _try_products(
    which: str, rows: np.ndarray, columns: np.ndarray, multipliers: np.ndarray, *, plain: bool
) -> None:
    b, d = rows.shape
    store: DenseStore | SparseStore
    if which == "dense":
        store = DenseStore(b, d, "exact", (slice(0, d),))
        store.fill(slice(0, b), rows.astype(np.float64))
    else:
        store = SparseStore(sp.csr_array(rows.astype(np.float64)), None, "exact", (slice(0, d),))
    work = Workspace()
    grid = Weights(columns.astype(np.float64), np.ones((len(columns), 1)))
    held, scores = store.forward(slice(0, b), store.operand(grid), work)
    scores = scores.copy()
    sums = store.backward(held, [np.ascontiguousarray(multipliers, dtype=np.float64)], work)
    for found, left, right in ((scores, columns, rows.T), (sums.T, multipliers, rows)):
        if plain:
            expected = left.astype(object) @ right.astype(object)  # Python's integers
        else:
            expected = np.einsum("ij,jk->ik", left, right)  # below 2^63, and not by the BLAS
        if not (found == expected).all():
            raise _failed(f"the {which} matrix product", "is not exact where it should be")


def places(loss: Loss, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores (K, b) of many sizes, with targets."""
    b = 8 * LANES
    spread = np.arange(b * outputs, dtype=np.float64).reshape(outputs, b)
    scores = np.sin(spread * 12.9898) * np.exp2(spread % 17 - 8)
    return scores, loss.targets(np.arange(b) % max(outputs, 2), outputs)


def _try_places(loss: Loss, outputs: int) -> None:
    scores, targets = places(loss, outputs)
    b = scores.shape[1]
    which = np.arange(5, 5 + b + LANES) % b
    found = np.ascontiguousarray(scores)
    moved = np.take(scores, which, axis=1)
    moved[:, b:] = 0.0
    loss.residual(found.T, targets, out=found.T)
    loss.residual(moved.T, targets[which], out=moved.T)
    if not np.array_equal(found[:, which[:b]], moved[:, :b]):
        raise _failed(f"the gradient of the {loss.name} loss", "depends on where a row stands")


def _failed(what: str, why: str) -> MachineError:
    return MachineError(
        f"{what} {why} on this machine, so the noise would not protect what it should. Update or "
        "reinstall numpy and scipy; if that does not help, please report it with their versions "
        "and the processor."
    )
