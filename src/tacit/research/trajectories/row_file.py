r"""Singular values of a matrix whose rows come one by one, where a disk has room for all of them.

Rows are kept in 16-bit integers, in units of a power of two for each 256 numbers. With Q what is
kept, E = H − Q what is not, and G the computed Gram matrix of Q, for every i

    |σᵢ(H) − σᵢ(Q)| ≤ ‖E‖_F     (Weyl's inequality),     |σᵢ(Q)² − λᵢ(G)| ≤ γ‖Q‖_F²,

where γ = (p + 64r)·2⁻⁵² is more than sums of p products in float64 can err in any order (Higham
2002, §3.1: |fl(x·y) − x·y| ≤ γ_p |x|·|y|, and ‖|Q||Q|ᵀ‖ ≤ ‖Q‖_F²), and a symmetric eigensolver on
r rows after them. ‖E‖_F is summed as rows come, and is mostly some 4·10⁻⁵ of ‖H‖_F.

The file lies as it is read: some rows at a time are gathered in memory, and written panel of
columns by panel. The Gram matrix takes one pass over it, and vectors take another.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from tacit.exceptions import InputError
from tacit.research.trajectories.sketch import Directions, falling, orthonormalise

PANEL = 1 << 14  # columns that are worked on at a time
BLOCK = 256  # numbers of a row with one unit
GATHERED = 1 << 29  # bytes of rows in memory before they are written
BITS = 15
TOLD = 1.1  # how far apart the ends of a singular value may be


class RowFile:
    """Keeps all rows of a matrix in a file without a name, 2 bytes a number.

    Parameters
    ----------
    folder : str or Path
        Where the file is; it is gone with the directions. Rows are in it as they are: where they
        are private, so is the folder.
    vectors : int, optional
        For how many of the directions vectors are made, in single precision; by default for all.

    Notes
    -----
    Memory is for half a gigabyte of rows, 16,384 columns of all rows in float64, the Gram matrix,
    and the vectors. Time is that of rows²·p additions and products, and of 2·vectors·rows·p more.
    Singular values whose ends would be more than a tenth apart are left out, some 5·10⁻⁴ of the
    norm of the matrix.

    Examples
    --------
    >>> rows = RowFile(".", vectors=1)
    >>> for row in np.diag([3.0, 2.0, 1.0]):
    ...     rows.add(row)
    >>> found = rows.directions()
    >>> found.values.round(3), found.vectors.shape
    (array([3., 2., 1.]), (1, 3))
    """

    def __init__(self, folder: str | Path, *, vectors: int | None = None) -> None:
        if vectors is not None and vectors < 0:
            raise InputError(f"vectors={vectors!r} must be at least 0")
        self._folder, self._vectors = Path(folder), vectors
        self._columns = 0
        self._square = self._lost = 0.0  # sums of squares: of all entries, and of what is not kept

    def _open(self, columns: int) -> None:
        self._columns = columns
        self._panel = min(PANEL, -(-columns // BLOCK) * BLOCK)
        blocks = self._panel // BLOCK
        kind = np.dtype([("unit", np.float32, blocks), ("values", np.int16, (blocks, BLOCK))])
        panels = -(-columns // self._panel)
        together = min(1024, max(1, GATHERED // (panels * kind.itemsize)))
        self._held = np.zeros((panels, together), kind)
        self._many = self._written = 0
        self._work = np.zeros((2, blocks, BLOCK), np.float32)
        self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115 (closed by directions)

    def add(self, row: np.ndarray) -> None:
        """Take in one row.

        Parameters
        ----------
        row : ndarray of shape (p,)
            A vector.
        """
        row = np.asarray(row).reshape(-1)
        if not self._columns:
            self._open(len(row))
        if len(row) != self._columns:
            raise InputError(f"a row has {row.size} entries; the first had {self._columns}")
        numbers, kept = self._work
        square = lost = 0.0
        for panel in range(len(self._held)):
            given = row[panel * self._panel :][: self._panel]
            with np.errstate(over="ignore"):
                numbers.reshape(-1)[: len(given)] = given
            numbers.reshape(-1)[len(given) :] = 0.0
            fraction, exponent = np.frexp(np.abs(numbers, out=kept).max(axis=1))
            if not np.isfinite(fraction).all():
                raise InputError("a row holds what is no finite number in single precision")
            # So that no integer exceeds 2^15 − 1, and neither unit nor inverse leaves float32.
            exponent = np.maximum(exponent - BITS + (fraction > 1 - 2.0**-BITS), -126)
            place = self._held[panel, self._many]
            place["unit"] = unit = np.ldexp(np.float32(1), exponent)
            numbers *= np.ldexp(np.float32(1), -exponent)[:, None]
            place["values"] = np.rint(numbers, out=kept)
            numbers -= kept  # exact, as all products with powers of two are
            parts = np.einsum("ij,ij->i", numbers, numbers).astype(np.float64)
            lost += float((parts * unit.astype(np.float64) ** 2).sum())
            wide = given.astype(np.float64)
            square += float(np.einsum("i,i->", wide, wide))
        self._square += square
        self._lost += lost
        self._many += 1
        if self._many == self._held.shape[1]:
            self._file.write(self._held.data)
            self._written += self._many
            self._many = 0

    def _pieces(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Some columns of all rows at a time, as they are kept; overwritten by the next ones."""
        panels, together = self._held.shape
        rows = self._written + self._many
        read = np.empty(together, self._held.dtype)
        piece = np.empty((rows, self._panel // BLOCK, BLOCK))
        for panel in range(panels):
            for first in range(0, self._written, together):
                self._file.seek((first * panels + panel * together) * read.itemsize)
                self._file.readinto(read.data)
                _widen(read, piece[first : first + together])
            _widen(self._held[panel, : self._many], piece[self._written :])
            some = slice(panel * self._panel, min((panel + 1) * self._panel, self._columns))
            yield some, piece.reshape(rows, -1)[:, : some.stop - some.start]

    def directions(self) -> Directions:
        """All directions whose singular values are known to a tenth; ends the file.

        Returns
        -------
        Directions
            With their singular values.
        """
        if not self._columns:
            raise InputError("rows are needed, and answer once")
        rows = self._written + self._many
        gram = np.zeros((rows, rows))
        for _, piece in self._pieces():
            gram += piece @ piece.T
        squares, turn = falling(gram)
        slack = (self._columns + 64 * rows) * 2.0**-52 * float(np.trace(gram))
        # More than roundings in single precision: of this sum, and of rows to begin with.
        lost = np.sqrt(self._lost) * (1 + 2.0**-9) + 2.0**-24 * np.sqrt(self._square)
        values = np.sqrt(np.maximum(squares - slack, 0.0)) - lost
        at_most = np.sqrt(squares + slack) + lost
        rank = int((at_most < TOLD * values).sum())
        many = rank if self._vectors is None else min(self._vectors, rank)
        vectors = np.empty((many, self._columns), np.float32)
        turn = (turn[:, :many] / np.sqrt(squares[:many])).T.copy()
        for some, piece in self._pieces() if many else ():
            vectors[:, some] = turn @ piece
        orthonormalise(vectors)
        found = Directions(values[:rank], at_most[:rank], vectors, self._square, rows)
        self._file.close()
        self._columns = 0
        self._held = self._held[:0]
        self._square = self._lost = 0.0
        return found


def _widen(kept: np.ndarray, out: np.ndarray) -> None:
    np.multiply(kept["values"], kept["unit"][..., None], out=out, dtype=np.float64)
