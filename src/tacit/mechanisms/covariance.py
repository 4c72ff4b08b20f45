"""Second moments that are exact, and noise on the same lattice.

A row of norm at most ``bound`` becomes a vector a of integers of norm at most 2^b, so
Σaaᵀ is a matrix of exact integers, to which one row contributes aaᵀ of Frobenius norm
‖a‖² ≤ 4^b. The Frobenius norm of a symmetric matrix is the Euclidean norm of its diagonal and
its upper triangle times √2. So noise of standard deviation σ on the diagonal and σ/√2 above it
is isotropic Gaussian noise of standard deviation σ on that vector: nothing has to be multiplied
by √2, and nothing rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dsyrk
from threadpoolctl import ThreadpoolController

from tacit.exceptions import MachineError
from tacit.mechanisms.additive import added, lattice_rows, lattice_steps
from tacit.mechanisms.checksum import Probe, Residues, combine, integers, require_equal
from tacit.mechanisms.passes import Chunk, Passes, Source
from tacit.mechanisms.release import BoundedSum, Token
from tacit.privacy.sensitivity.drift import Drift

BITS = 20  # of a row at most
TOGETHER = 1 << 13  # rows of norm 2^20 whose products float64 adds exactly: 2^13·4^20 = 2^53
SMALL = 256  # columns up to which one thread is as fast as several
FINE = 50  # bits of rows that may move, which must not jump from integer to integer
UP = 1 + 1e-14  # more than the rounding of any formula here


def noisy_second_moment(
    chunks: Source,
    d: int,
    bound: float,
    token: Token,
    *,
    size: int,
    drift: Drift | None = None,
    strict: bool = False,
) -> np.ndarray:
    """Σxxᵀ + symmetric Gaussian noise, as a matrix (d, d).

    Noise has standard deviation σ = z·``bound``² on the diagonal and σ/√2 beside it, where z is the
    token's noise multiplier. That is the Gaussian orthogonal ensemble: rotated rows would get the
    same noise.

    Parameters
    ----------
    chunks : Passes, or iterable of array or csr_array
        Rows; those longer than ``bound`` are shortened to it, never trusted.
    d : int
        Columns.
    bound : float
        Norm of a row at most.
    token : Token
        For one Gaussian release, of d(d+1)/2 numbers.
    size : int
        Public number of rows, or a guess. It chooses how fine the integers are: 20 bits up
        to four million rows, one fewer for every factor of four. If there are more rows than that,
        integers wrap around 2^64. This spoils the result and not the guarantee, as the wrapped
        number is a function of the noisy one.
    drift : Drift, optional
        How far the rows that neighbours share have moved, if they have. The relation is then
        replace-one, sums lie within √2·R² + 2Rτ (`Drift.second_moment`), and σ is
        z times half of that. Products are taken in float64, with a proven
        bound on their rounding as part of it.
    strict : bool
        Whether the products are checked, unless rows have moved; a wrong one then raises
        `MachineError` (`tacit.mechanisms.checksum`).

    Returns
    -------
    ndarray of shape (d, d)
        Symmetric, in float64.

    Examples
    --------
    >>> from tacit.mechanisms.random_streams import Key
    >>> from tacit.mechanisms.release import Releases
    >>> from tacit.privacy.events import Gaussian
    >>> rows = np.array([[0.6, 0.8], [1.0, 0.0]])
    >>> run = Releases(Key.from_seed(0), [("moment", Gaussian(1e-4))])
    >>> token = run.token("moment").at("example")
    >>> noisy_second_moment([rows], 2, 1.0, token, size=2).round(2)
    array([[1.36, 0.48],
           [0.48, 0.64]])
    """
    self_test()
    moved = drift if drift is not None and drift.l1 else None
    reach = 1.0 if moved is None else _half_distance(moved, bound, d, size)
    bits = bits_for(size, token.noise_multiplier * reach)
    if moved is not None:  # rounded sums: half a unit in every cell, whenever they are collected
        reach += (2 * size / TOGETHER + 1) * d / 2 * 4.0**-bits
    fast = moved is None and d <= SMALL and _compiled()
    total = np.zeros((d, d), dtype=np.int64, order="C" if fast else "F")  # as parts of it are
    if moved is None:
        summary = partial(_whole_moment, d=d, bound=bound, bits=bits, strict=strict)
        with nullcontext() if fast else one_blas_thread(d <= SMALL):
            total = Passes.over(chunks).merged(summary, total)
    else:  # rounded as seldom as `reach` says, so one chunk after the other
        for part in _parts(Passes.over(chunks), d, bound, bits, exact=False):
            total += part
    # In units of bound², which are multiplied in at last: they need not be powers of two. A row
    # that is replaced moves the sum by √2 of them, so half of that may be less than one.
    summed = BoundedSum(total, 4.0**-bits, min(1.0, reach), reach * UP)
    moment = token.symmetric(summed).astype(np.float64) * 4.0**-bits
    moment *= bound
    moment *= bound
    below = np.tri(d, k=-1, dtype=bool)
    moment[below] = moment.T[below]
    return moment


@contextmanager
def one_blas_thread(needed: bool) -> Iterator[None]:
    """One thread of the BLAS for work so small that threads would wait for each other."""
    with blas().limit(limits=1, user_api="blas") if needed else nullcontext():
        yield


@lru_cache(maxsize=1)
def blas() -> ThreadpoolController:
    """The libraries of this process, looked up once because that is slow."""
    return ThreadpoolController()


@lru_cache(maxsize=1)
def self_test() -> None:
    """Once in a process, before the first release: the products against 64-bit integers."""
    whole = (np.arange(33 * 19).reshape(33, 19) * 2654435761 >> 7) % (1 << 17) * 2 + 1
    whole *= np.where(np.arange(33) % 3, 1, -1)[:, None]
    right = np.triu(np.add.reduce(whole[:, :, None] * whole[:, None], axis=0))  # below 2^42
    found = [_add(whole.astype(np.float64), np.zeros((19, 19), order="F"), fast=False)]
    if _compiled():
        found.append(_add(whole.astype(np.float64), np.zeros((19, 19)), fast=True))
    if not all((each == right).all() for each in found):
        raise MachineError(
            "a second moment of integers is not exact on this machine, so its noise would not "
            "protect what it should. Update or reinstall numpy and scipy."
        )


def _compiled() -> bool:
    """Whether there are loops for products of few columns, and a processor for them."""
    return added(np.zeros((0, 1)), [], np.zeros((1, 1)))


def _add(whole: np.ndarray, onto: np.ndarray, fast: bool) -> np.ndarray:
    """Upper triangles of Σaaᵀ, added to one in rows (``fast``: by compiled loops) or columns."""
    if fast:
        added(whole, [], onto)
        return onto
    return dsyrk(1.0, whole.T, beta=1.0, c=onto, overwrite_c=1)


def bits_for(size: int, noise: float) -> int:
    """Bits of a row, so that sums stay below 2^62 and the noise within its sampler's range."""
    room = min(62 - math.ceil(math.log2(size)), 56 - math.ceil(math.log2(noise)))
    return max(1, min(BITS, room // 2))


def _half_distance(drift: Drift, bound: float, d: int, n: int) -> float:
    """Half of how far sums of neighbours may lie apart, in units of bound².

    Cutting a row to 50 bits puts it off by √d·2^-50 and rounding by (d+8)·2^-52, in bounds. A
    float64 sum of m products of the entries of rows a, in any order, is off by at most m·2^-53
    times Σ|a||a|ᵀ, whose Frobenius norm is at most Σ‖a‖²; m is at most `TOGETHER`.
    """
    rounding_bound = (math.sqrt(d) * 2.0**-FINE + (d + 8) * 2.0**-52) * bound
    apart = replace(drift, bound=bound).rounded(rounding_bound).second_moment(1) / bound**2
    products = n * TOGETHER * 2.0**-53 * 1.01
    return (apart / 2 + products) * UP


def _whole_moment(chunk: Chunk, d: int, bound: float, bits: int, strict: bool) -> np.ndarray:
    """Upper triangle of Σaaᵀ over a chunk, in exact integers."""
    check = _Check(d) if strict else None
    return sum(_parts([chunk], d, bound, bits, exact=True, check=check))  # type: ignore[return-value]


def _parts(
    chunks: Iterable[Chunk],
    d: int,
    bound: float,
    bits: int,
    *,
    exact: bool,
    check: _Check | None = None,
) -> Iterator[np.ndarray]:
    """Upper triangles of Σaaᵀ, int64, over at most `TOGETHER` rows each."""
    fast = exact and d <= SMALL and _compiled()
    held, count = np.zeros((d, d), order="C" if fast else "F"), 0
    for chunk in chunks:
        for start in range(0, chunk.shape[0], TOGETHER):
            block = chunk[start : start + TOGETHER]
            if count + block.shape[0] > TOGETHER:
                yield _collected(held, check)
                held[...] = 0.0
                count = 0
            count += block.shape[0]
            if fast and check is None and added(block, lattice_steps(d, bound, bits), held):
                continue
            whole = lattice_rows(block, bound, bits if exact else FINE)
            whole = np.ascontiguousarray(whole.toarray() if sp.issparse(whole) else whole)
            if not exact:
                whole *= 2.0 ** (bits - FINE)
            if check is not None:
                check.take(whole)
            held = _add(whole, held, fast)
    yield _collected(held, check)


def _collected(held: np.ndarray, check: _Check | None) -> np.ndarray:
    if check is not None:
        check.conclude(held)
    return np.rint(held, out=held).astype(np.int64)


class _Check:
    """Σaaᵀ holds if its product with secret numbers τ is Σa(aᵀτ)."""

    def __init__(self, d: int) -> None:
        self.probe = Probe(d).residues
        self.residues = Residues.zeros(d)

    def take(self, rows: np.ndarray) -> None:
        whole = integers(rows, "an integer")
        along = combine(whole, self.probe)
        self.residues += combine(np.ascontiguousarray(whole.T), along)

    def conclude(self, upper: np.ndarray) -> None:
        whole = integers(upper, "a second moment")
        full = whole + whole.T - np.diag(np.diag(whole))
        require_equal(combine(full, self.probe), self.residues, "the second moment of the rows")
        self.residues = Residues.zeros(self.probe.word.size)
