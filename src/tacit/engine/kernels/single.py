"""Products of rows with few columns, compiled: no copy of the rows, no widened block.

BLAS libraries are made for square matrices. For ten columns they spend more time on packing the
rows than on multiplying them, and that after the rows were gathered. Here rows are read where they
lie. This is float32, whose results differ in the last bits from those of a BLAS library, as they do
between BLAS libraries; exact arithmetic has products of its own (`tacit.engine.kernels.compact`).

Needs Numba (``pip install tacit[speed]``); without it, there are no such products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["FEW_COLUMNS", "Kernels", "load", "suited"]

FEW_COLUMNS = 20  # beyond them the BLAS library is faster
LARGE = 1 << 24  # entries from which on a run saves more time than it takes to load Numba
# Sums in another order, products fused with sums.
FREE = {"reassoc", "contract"}


class Kernels(NamedTuple):
    """Compiled products. Blocks have a multiple of four rows.

    Attributes
    ----------
    scores : callable
        Of rows (n, d), the indices of b of them, weights (K, d), and where to write (K, b).
    sums : callable
        Of rows, indices, multipliers (K, b), the first column, and where to add (K, columns).
    """

    scores: Callable[..., None]
    sums: Callable[..., None]


def suited(n: int, d: int, arithmetic: str) -> Kernels | None:
    """The products for rows of that shape; None where they are few, or without Numba."""
    return load() if n * d >= LARGE and arithmetic == "fast" else None


@lru_cache(maxsize=1)
def load() -> Kernels | None:
    """The products, compiled once and kept on disk; None without Numba."""
    try:
        import numba
    except ImportError:
        return None

    columns = numba.types.Array(numba.float32, 2, "C")
    index = numba.types.Array(numba.intp, 1, "C")

    def compiled(function: Callable[..., None], *more: Any) -> Callable[..., None]:
        signature = numba.void(columns, index, columns, *more)
        options: dict[str, Any] = {"nogil": True, "fastmath": FREE, "error_model": "numpy"}
        try:
            return numba.njit(signature, cache=True, **options)(function)
        except RuntimeError:  # nowhere to keep it
            return numba.njit(signature, **options)(function)

    return Kernels(compiled(_scores, columns), compiled(_sums, numba.intp, columns))


def _scores(rows: Any, index: Any, weights: Any, out: Any) -> None:
    kind = weights.dtype.type
    d, outputs = rows.shape[1], weights.shape[0]
    fives = outputs - outputs % 5
    for i in range(0, index.size, 2):
        x, y = rows[index[i]], rows[index[i + 1]]
        for k in range(0, fives, 5):
            # Ten sums, as many as registers hold; each weight that is read serves two rows.
            v, w = weights[k], weights[k + 1]
            p, q, r = weights[k + 2], weights[k + 3], weights[k + 4]
            xv = xw = xp = xq = xr = yv = yw = yp = yq = yr = kind(0)
            for j in range(d):
                a, b = kind(x[j]), kind(y[j])
                xv += a * v[j]
                xw += a * w[j]
                xp += a * p[j]
                xq += a * q[j]
                xr += a * r[j]
                yv += b * v[j]
                yw += b * w[j]
                yp += b * p[j]
                yq += b * q[j]
                yr += b * r[j]
            out[k, i], out[k, i + 1] = xv, yv
            out[k + 1, i], out[k + 1, i + 1] = xw, yw
            out[k + 2, i], out[k + 2, i + 1] = xp, yp
            out[k + 3, i], out[k + 3, i + 1] = xq, yq
            out[k + 4, i], out[k + 4, i + 1] = xr, yr
        for k in range(fives, outputs):
            v = weights[k]
            xv = yv = kind(0)
            for j in range(d):
                xv += kind(x[j]) * v[j]
                yv += kind(y[j]) * v[j]
            out[k, i], out[k, i + 1] = xv, yv


def _sums(rows: Any, index: Any, multipliers: Any, left: Any, out: Any) -> None:
    kind = out.dtype.type
    outputs, width = out.shape
    right = left + width
    for i in range(0, index.size, 4):
        x, y = rows[index[i], left:right], rows[index[i + 1], left:right]
        u, v = rows[index[i + 2], left:right], rows[index[i + 3], left:right]
        for k in range(0, outputs - 1, 2):
            # Two outputs of four rows: what is read of a row serves both.
            z, w = multipliers[k], multipliers[k + 1]
            a, b, c, d = z[i], z[i + 1], z[i + 2], z[i + 3]
            e, f, g, h = w[i], w[i + 1], w[i + 2], w[i + 3]
            one, two = out[k], out[k + 1]
            for j in range(width):
                p, q, r, s = kind(x[j]), kind(y[j]), kind(u[j]), kind(v[j])
                one[j] += p * a + q * b + r * c + s * d
                two[j] += p * e + q * f + r * g + s * h
        if outputs % 2:
            z, one = multipliers[outputs - 1], out[outputs - 1]
            a, b, c, d = z[i], z[i + 1], z[i + 2], z[i + 3]
            for j in range(width):
                p, q, r, s = kind(x[j]), kind(y[j]), kind(u[j]), kind(v[j])
                one[j] += p * a + q * b + r * c + s * d
