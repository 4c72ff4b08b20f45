"""Checks of exact integer products, and of row-wise maps, while they are computed.

A sum of clipped gradients is exact if the matrix product behind it is. That is assumed of a
conventional BLAS, and here it is checked: G = AᵀB holds if ρᵀG = (Aρ)ᵀB for secret random
numbers ρ, except with small probability (Freivalds 1977). The check costs two products with a
vector, and Aρ need not be computed again for another B.

**Lemma.** Let E be a matrix of integers, not all zero, and ρ drawn independently of it,
uniformly from {0, …, 2^40 − 1} a row. Let M = 2^64·p with the prime p = 2^31 − 1. If every entry
of E is below 2^54 in size, then ρᵀE ≡ 0 (mod M) with probability at most 2^-40; if it is below
2^64, with probability at most 2^-31.

*Proof.* Take an entry e ≠ 0 and fix ρ outside its row. If r and r′ both solve the congruence of
its column, then (r − r′)e ≡ 0 (mod M). For |e| < 2^54, |(r − r′)e| < 2^94 < M, so r = r′: one
value in 2^40 at most. In general r − r′ is a multiple of M/gcd(e, M). Write e = 2^v·odd. If p
does not divide e, gcd(e, M) = 2^v with v ≤ 63, so that multiple is at least 2p; if p does,
|e/p| < 2^34 gives v ≤ 33 and gcd(e, M) ≤ 2^33·p, so it is at least 2^31. So of 2^40 values at
most one in 2^31 solves it. ∎

Sums are taken modulo 2^64, where 64-bit integers wrap, and modulo p, where products of reduced
numbers fit. By the Chinese remainder theorem that is modulo M. A modulus of 2^64 alone would not
do: a product in single precision is off by multiples of 2^28 and more, and what is off by a
multiple of 2^53 would pass once in 2^11 times. Nor would fixed numbers in place of ρ: with ones,
two errors that cancel would pass always.

ρ decides nothing but whether a run goes on. So the first product that comes out wrong is a
function of everything but ρ, and the lemma holds for it as it stands: that a run with a wrong
product passes has the probability that this one check does, however many follow with the same ρ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tacit.exceptions import MachineError
from tacit.mechanisms.random_streams import Key

PRIME = (1 << 31) - 1
LIMB = 20  # bits of either half of a number of ρ


@dataclass(frozen=True)
class Residues:
    """Integers modulo 2^64·(2^31 − 1), by their two remainders.

    Attributes
    ----------
    word : ndarray of uint64
    rest : ndarray of int64
        From 0 to 2^31 − 2.
    """

    word: NDArray[np.uint64]
    rest: NDArray[np.int64]

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> Residues:
        return cls(values.view(np.uint64), values % PRIME)

    @classmethod
    def zeros(cls, count: int) -> Residues:
        return cls.of(np.zeros(count, dtype=np.int64))

    @classmethod
    def joined(cls, high: np.ndarray, low: np.ndarray) -> Residues:
        """high·2^20 + low, of halves that are exact in float64."""
        top, bottom = cls.of(high.astype(np.int64)), cls.of(low.astype(np.int64))
        rest = ((top.rest << LIMB) + bottom.rest) % PRIME
        return cls((top.word << np.uint64(LIMB)) + bottom.word, rest)

    def __add__(self, other: Residues) -> Residues:
        return Residues(self.word + other.word, (self.rest + other.rest) % PRIME)

    def __sub__(self, other: Residues) -> Residues:
        return Residues(self.word - other.word, (self.rest - other.rest) % PRIME)

    def __getitem__(self, which: Any) -> Residues:
        return Residues(self.word[which], self.rest[which])

    def same(self, other: Residues) -> bool:
        return np.array_equal(self.word, other.word) and np.array_equal(self.rest, other.rest)


def combine(values: Any, weights: Residues) -> Residues:
    """Rows of ``values`` (k, m), each summed with weights (m,): k numbers.

    Parameters
    ----------
    values : ndarray or csr_array of int64
        Any integers, in at most 2^22 columns.
    weights : Residues of shape (m,)
    """
    if sp.issparse(values):
        cells, weights = values.data, weights[values.indices]
        word = segment_sums(cells.view(np.uint64) * weights.word, values.indptr)
        rest = segment_sums(_product(cells, weights.rest), values.indptr)
    else:
        word = np.einsum("km,m->k", values.view(np.uint64), weights.word)
        rest = _product(values, weights.rest).sum(axis=1)
    return Residues(word, rest % PRIME)


def _product(values: NDArray[np.int64], rest: NDArray[np.int64]) -> NDArray[np.int64]:
    """values·rest modulo the prime, below 2^32."""
    terms = values % PRIME
    terms *= rest  # below 2^62
    upper = terms >> 31  # 2^31 is 1 modulo the prime, so upper and lower bits may be added
    terms &= PRIME
    terms += upper
    return terms


class Probe:
    """ρ: secret random numbers below 2^40, one for each of ``count`` rows or columns.

    Attributes
    ----------
    residues : Residues of shape (count,)
    """

    def __init__(self, count: int) -> None:
        words = Key.fresh().stream("check").words(count) >> np.uint64(64 - 2 * LIMB)
        self.residues = Residues.of(words.view(np.int64))

    def halves(self, which: Any = slice(None)) -> NDArray[np.float64]:
        """Upper and lower 20 bits, (2, count): products with small integers are exact."""
        words = self.residues.word[which]
        mask = np.uint64((1 << LIMB) - 1)
        return np.stack([words >> np.uint64(LIMB), words & mask]).astype(np.float64)


def integers(values: NDArray[np.float64], what: str) -> NDArray[np.int64]:
    """Values as integers, if they are: a product of integers is whole if it is exact."""
    with np.errstate(invalid="ignore"):
        numbers = values.astype(np.int64)
    if not np.array_equal(numbers, values):  # nor is it NaN, or infinite
        raise fault(what)
    return numbers


def require_equal(left: Residues, right: Residues, what: str) -> None:
    if not left.same(right):
        raise fault(what)


def fault(what: str) -> MachineError:
    """The error to raise."""
    return MachineError(
        f"arithmetic='strict' found that {what} came out wrong on this machine. Nothing of this "
        "step was released. The linear algebra library behind NumPy or SciPy is not exact where "
        "it has to be, or the memory is faulty: update or reinstall numpy and scipy, or use "
        "another machine."
    )


# --- Row-wise maps -------------------------------------------------------------------------------


def check_places(rows: Any) -> None:
    """Read rows twice, cut differently at random, and require the same bits of every row.

    A row that is mapped differently in its other place, or beside its other neighbours, is missed
    with probability 2^-31 at most. What shows in neither cut stays unseen.

    Parameters
    ----------
    rows : Rows
        Behind their maps.
    """
    if getattr(rows, "distributed", False):  # every worker checks its own
        rows.source.everywhere(rows, check_places)
        return
    if rows.n < 2:
        return
    _, first = next(iter(rows.chunks()))
    if hasattr(first, "column_names"):  # a table as it is stored: nothing maps its rows yet
        return
    key = Key.fresh()
    columns = key.stream("check").words(rows.d) | np.uint64(1)  # odd: no single cell is lost
    once = [row_hashes(chunk, columns) for _, chunk in rows.chunks()]
    most = len(once[0])
    cut = [int(word) for word in key.stream("cut").words(2)]
    size = max(1, most // 2 + cut[0] % (most - most // 2))
    again = [row_hashes(chunk, columns) for _, chunk in rows.chunks(size, first=1 + cut[1] % size)]
    if not np.array_equal(np.concatenate(once), np.concatenate(again)):
        raise fault("what the stages make of a row, which depends on where the row stands,")


def row_hashes(chunk: Any, columns: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A number for the bits of each row.

    Cells of two different rows differ in their lower halves, into which the upper ones are mixed.
    So the numbers agree for one choice of ``columns`` in 2^31 at most, and for none where a single
    cell differs.
    """
    if hasattr(chunk, "tocsr"):  # rows of shapes, too
        chunk = chunk.tocsr()
    cells = chunk.data if sp.issparse(chunk) else chunk
    bits = np.ascontiguousarray(cells, dtype=np.float64).view(np.uint64)
    bits = bits ^ (bits >> np.uint64(32))
    if not sp.issparse(chunk):
        return np.einsum("ij,j->i", bits, columns)
    return segment_sums(bits * columns[chunk.indices], chunk.indptr)


def segment_sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of integers from each start to the next, modulo 2^64; 0 for empty segments."""
    sums = np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values, dtype=values.dtype)])
    return sums[starts[1:]] - sums[starts[:-1]]
