r"""The whole gradient of a person, clipped: how rows of people lie, and why the bound holds.

Write x_1 ... x_m for the rows of a person as integers, r_i for their residuals, and everything else
as `tacit.engine.quantization` does: g is the lattice, T = C / g the clipping bound on it, M = 1 /
s_z the multiplier, K the number of outputs, and u = 2**-53. The gradient of a person is
:math:`\sum_i x_i r_i^T`. Its squared norm is :math:`\sum_{ij} G_{ij} \langle r_i, r_j\rangle` with
the inner products :math:`G_{ij} = \langle x_i, x_j\rangle`, which are integers below 2**53 and
found once.

Rows of one person may oppose each other: each may be far beyond the clip while their sum is not.
So no bound on a single row follows from C. It is imposed: every row is first limited to B = `LOOSE`
times C, which touches few rows, and depends on the row alone. **The lattice is that of B**:
LATTICE_ROWS B / g <= 2**52.

**One person counts for at most C, without slack.** All of these are as computed, in float64:

1. w_i is M r_i, shortened such that |x_i| |w_i| <= B / g (as a single row is, with its factor of
   1 - 2**-40);
2. s_i is the product of the norms |x_i| and |w_i|; S the sum of the s_i; q the sum of s_i**2, plus
   twice the sum of G_ij <w_i, w_j> over i < j;
3. N = sqrt(max(q, 0) + b S**2) with b = (2 m + K + 40) 2**-52 = (4 m + 2 K + 80) u;
4. A = (sqrt(K) / 2) sum |x_i|; t = (1 - 2**-40) (T - A) if A <= T / 2, else 0;
5. z_i = rint(a w_i) with a = min(1, t / N).

*Claim:* |sum x_i z_i^T| <= T, in the Frobenius norm.

*Proof.* Let Q be the exact squared norm of sum x_i w_i^T for these w_i, and S' the exact sum of
|x_i| |w_i|, so that Q <= S'**2. As |G_ij| <= |x_i| |x_j|, the magnitudes of all terms of Q add up
to S'**2 at most. A term i < j has K roundings in its inner product, one with G_ij, and at most 2 m
on its way through the sums: over j, then over i. A computed |w_i| is off by (K + 4) u in relative
terms (a sum of K squares, a root, the rounding of every product r_ik f), 1 / (1 / |x_i|) by 4 u, so
s_i by (K + 12) u and its square by twice that; m more are added. So, with room for second orders
(Higham 2002, lemma 3.1 and section 3.1),

    |q - Q| <= (2 m + 2 K + 32) u S'**2,    S' <= (1 + (m + K + 16) u) S.

This is an absolute bound, in S and not in the norm: where rows cancel, nothing is concluded from
the little that is left. The computed product of a and w_i lies within u |a w_i| of a w_i, which
moves the sum by u a S' at most, and (sqrt(Q) + u S')**2 <= Q + 3 u S'**2. Together the exact norm
of the sum of x_i times what rint is given is at most a sqrt(q + (2 m + 2 K + 40) u S**2) and so at
most a sqrt(max(q, 0) + b S**2), with 2 m + 40 units to spare, for m <= `MOST_ROWS` and K <=
`MAX_OUTPUTS`.

The computed N is off by 4 u, the quotient by u: that norm is at most t (1 + 6 u), whichever of the
two a is. A as computed is off by (m + 8) u, T by 2 u, the difference by u. Since T - A >= T / 2,
the factor of t takes off at least T 2**-41, and these errors add at most (m + 40) u T / 2 < T
2**-43. So the norm before rint, and the exact A, add up to T at most. And rint moves every
coordinate by 1/2 at most: x_i z_i^T by |x_i| sqrt(K) / 2, and the sum by A. ∎

T is above 2**32, A is 2**31.6 at most for `MOST_ROWS` rows of the norm that dense rows are
shortened to, and far smaller as a rule: what it takes off the clip is nothing to speak of. Somebody
whose sparse rows are so much longer than promised that A exceeds T / 2 counts nothing.

(A residual whose square underflows is below 2**-500; its z is 0 as if it were 0. A row that is
blanked has no inverse norm, and its w and z are 0.)

With ``per_class`` (and for K = 1) each output is clipped by itself to C / sqrt(K), by the same
argument with K = 1: A is sum |x_i| / 2 then. The gradient of somebody with one row is clipped as
`tacit.engine.quantization` clips that of a row, on this lattice. (Where C / (g |x|) is not much
more than sqrt(K) / 2 there, the difference is below 1/2, and z is 0; or it has 45 bits that are
right, and the argument holds.)

**What is summed is exact.** |x_i| |z_i| <= B / g + |x_i| sqrt(K) / 2, so the magnitudes of what
LATTICE_ROWS rows add up to are at most 2**52 + 2**47 < 2**53. Rows of one person are always in one
block; in 64-bit integers behind it any order gives the same.

**A person decides alone.** Everything above is made of elementwise operations, each correctly
rounded, in an order that depends on m and K only. So what a person adds to a sum does not depend
on where the rows lie, nor on anybody else: sums of neighbours differ by what one person adds, or
two, and by nothing else.

**How rows lie.** People of m rows are put in *tiles* of `LANES`: first rows of 16 people, second
rows of the same people, and so on. So each operation is one on vectors of people. The last tile of
a size is filled up with rows that are blanked. Where a person's rows lie follows from all of the
table, and only says in which order exact integers are added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from tacit.data.owners import Owners
from tacit.data.rows import Rows
from tacit.engine.quantization import LATTICE_ROWS, SHRINK, TINY, Clipping
from tacit.engine.schedule import LANES
from tacit.exceptions import InputError
from tacit.privacy.unit import Unit

try:
    from tacit.engine.kernels import native
except ImportError:  # no compiler where this was installed
    native = None  # type: ignore[assignment]

LOOSE = 64.0  # clips of a person that one row is limited to
MOST_ROWS = LATTICE_ROWS // LANES  # of a person: a tile is summed in one block
ROUNDING = {"exact": 2.0**-52, "fast": 2.0**-22}  # of sums: twice the unit roundoff
NUMBER = 1 << 40  # more than there are people of a size
BATCH_PAIRS = 1 << 22  # inner products that are found together


@dataclass(frozen=True)
class SizeClass:
    """People of equally many rows, in tiles.

    Attributes
    ----------
    rows : int
        Of each of them: m.
    start : int
        Where their first tile begins.
    people : ndarray of int, of shape (P,)
        Who they are.
    """

    rows: int
    start: int
    people: np.ndarray

    @property
    def tiles(self) -> int:
        return -(-len(self.people) // LANES)

    @property
    def pairs(self) -> int:
        """Inner products of each of them."""
        return self.rows * (self.rows - 1) // 2

    @property
    def stop(self) -> int:
        return self.start + self.tiles * LANES * self.rows

    def places(self, who: np.ndarray) -> np.ndarray:
        """Where the rows of some of them lie, (m, people), by their numbers in this class."""
        first = self.start + who // LANES * LANES * self.rows + who % LANES
        return first + LANES * np.arange(self.rows)[:, None]


class Tile(NamedTuple):
    """Some tiles of one size: where they are, and their inner products.

    Attributes
    ----------
    rows : int
        Of a person: m.
    start, stop : int
        Which rows of a sum they are.
    gram : ndarray of shape (parts, m (m - 1) / 2, people)
        Inner products of rows of one person, i < j in order, part by part.
    """

    rows: int
    start: int
    stop: int
    gram: np.ndarray

    def terms(self, start: int, outputs: int) -> tuple[Any, ...]:
        """What compiled loops are told of people whose rows begin there; nothing of single rows."""
        if self.rows == 1:
            return ()
        first = (start - self.start) // self.rows
        return self.rows, self.gram[0], first, LOOSE, spread_of(self.rows, outputs, "exact")


class People:
    """Where the rows of people lie in an engine, and what is known of each person once.

    Parameters
    ----------
    owners : Owners
        Of rows, at most `MOST_ROWS` of each.

    Examples
    --------
    >>> from tacit.privacy.unit import Unit
    >>> people = People(Owners.of(["a", "b", "a"], Unit("person", 2)))
    >>> people.count, people.order.size
    (2, 49)
    """

    def __init__(self, owners: Owners) -> None:
        if owners.unit.rows > MOST_ROWS:
            raise InputError(
                f"at most {MOST_ROWS} rows of a person can be summed, not {owners.unit.rows}: "
                "lower max_rows_per_group"
            )
        self.unit, self.count = owners.unit, owners.people
        sizes = np.bincount(owners.codes, minlength=owners.people)
        if sizes.max(initial=0) > owners.unit.rows:
            raise InputError(f"a person has more rows than {owners.unit.rows}: choose among them")
        by_person = np.argsort(owners.codes, kind="stable")
        starts = np.cumsum(sizes) - sizes
        self.classes: list[SizeClass] = []
        order, null, start = [], [], 0
        for m in np.unique(sizes[sizes > 0]).tolist():
            found = SizeClass(m, start, np.flatnonzero(sizes == m))
            self.classes.append(found)
            who = np.append(found.people, np.repeat(found.people[:1], -len(found.people) % LANES))
            rows = by_person[starts[who] + np.arange(m)[:, None]]  # (m, people)
            tiles = rows.reshape(m, -1, LANES).transpose(1, 0, 2)
            gone = np.zeros(len(who), dtype=bool)
            gone[len(found.people) :] = True
            empty = np.broadcast_to(gone.reshape(-1, 1, LANES), tiles.shape)
            order.append(tiles.reshape(-1))
            null.append(empty.reshape(-1))
            start = found.stop
        last = np.zeros(min(1, owners.codes.size), dtype=np.intp)  # a row that batches fill up with
        self.order = np.concatenate([*order, last]) if order else last
        #: Rows that are there to fill a tile up.
        self.null = np.concatenate([*null, last == 0]) if null else last == 0
        #: Of every person: NUMBER times their class, and their number there; -1 without rows.
        self._places = np.full(owners.people, -1, dtype=np.int64)
        for i, each in enumerate(self.classes):
            self._places[each.people] = i * NUMBER + np.arange(len(each.people))
        #: Of every class: rows of a person, where they begin, and how many people with empty ones.
        table = [(each.rows, each.start, each.tiles * LANES) for each in self.classes]
        self._table = np.array(table, dtype=np.int64).reshape(-1, 3)
        self._gram = np.empty((0, 0))  # inner products of every part, of class after class
        self._inner: list[np.ndarray] = []  # and of every class, (parts, pairs, people)

    def measure(self, store: Any) -> None:
        """Find the inner products of all people's rows, as a store keeps them."""
        people = self._table[:, 2].tolist()
        products = sum(each.pairs * many for each, many in zip(self.classes, people, strict=True))
        self._gram = np.empty((len(store.parts), products))
        self._inner, stop = [], 0
        for each, many in zip(self.classes, people, strict=True):
            start, stop = stop, stop + each.pairs * many
            gram = self._gram[:, start:stop].reshape(len(self._gram), each.pairs, many)
            self._inner.append(gram)
            who = np.arange(many)
            places = each.places(who)
            pairs = [(i, j) for i in range(each.rows) for j in range(i + 1, each.rows)]
            few = max(LANES, BATCH_PAIRS // max(1, store.parts[-1].stop))
            for k, (i, j) in enumerate(pairs):
                for start in range(0, who.size, few):
                    some = slice(start, start + few)
                    gram[:, k, some] = store.inner(places[i, some], places[j, some])

    @cached_property
    def first_rows(self) -> np.ndarray:
        """Which rows of the store stand for a person, (rows,)."""
        found = np.zeros(len(self.order), dtype=bool)
        for each in self.classes:
            found[each.places(np.arange(len(each.people)))[0]] = True
        return found

    def whole(self, block_rows: int | None) -> tuple[list[range], list[Tile]]:
        """All rows, as groups of blocks of whole tiles, or as one group without ``block_rows``; and
        what is known of each size.
        """
        groups, tiles = [], []
        for each, gram in zip(self.classes, self._inner, strict=True):
            if block_rows is not None:
                groups += _groups(each.rows, each.start, each.stop, block_rows)
            tiles.append(Tile(each.rows, each.start, each.stop, gram))
        return groups if block_rows is not None else [range(len(self.order) - 1)], tiles

    def batch(
        self, chosen: np.ndarray, block_rows: int | None
    ) -> tuple[Any, list[range], list[Tile]]:
        """Rows of some people, in order of the sum; groups as those of `whole`; and what is known
        of each size.
        """
        index, gram, counts = self._tiled(chosen)
        groups, tiles, stop, end = [], [], 0, 0
        for each, many in zip(self.classes, counts, strict=True):
            if many:
                lanes, pairs = -(-many // LANES) * LANES, each.pairs
                start, stop = stop, stop + each.rows * lanes
                begin, end = end, end + pairs * lanes
                if block_rows is not None:
                    groups += _groups(each.rows, start, stop, block_rows)
                some = gram[:, begin:end].reshape(len(gram), pairs, lanes)
                tiles.append(Tile(each.rows, start, stop, some))
        return index, groups if block_rows is not None else [range(stop)], tiles

    def _tiled(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Where the rows of some people lie, and their inner products; how many are of a class."""
        last = len(self.order) - 1  # a row that counts nothing
        if native is not None:
            counts = np.empty(len(self.classes), dtype=np.int64)
            how = self._table, self._places, last, chosen, self._by_person, counts
            place, products = native.tiles(*how)
            gram = np.frombuffer(products, np.float64).reshape(len(self._gram), -1)
            return np.frombuffer(place, np.int64), gram, counts.tolist()
        places, many = self._places[chosen], []
        index, found = [np.empty(0, dtype=np.int64)], [np.empty((len(self._gram), 0))]
        for i, (each, gram) in enumerate(zip(self.classes, self._inner, strict=True)):
            who = places[places // NUMBER == i] % NUMBER
            filled = np.append(who, np.repeat(who[:1], -len(who) % LANES))
            rows = each.places(filled)
            rows[:, len(who) :] = last
            index.append(
                rows.reshape(each.rows, len(filled) // LANES, LANES).transpose(1, 0, 2).reshape(-1)
            )
            found.append(gram[:, :, filled].reshape(len(gram), each.pairs * len(filled)))
            many.append(len(who))
        return np.concatenate(index), np.concatenate(found, axis=1), many

    @cached_property
    def _by_person(self) -> np.ndarray:
        """Inner products where those of a person lie together, for whoever draws batches."""
        each = [gram.transpose(0, 2, 1).reshape(len(gram), -1) for gram in self._inner]
        return np.concatenate([self._gram[:, :0], *each], axis=1)


def _groups(m: int, start: int, stop: int, block_rows: int) -> list[range]:
    """Groups of blocks of whole tiles, none of more than LATTICE_ROWS rows."""
    tile = m * LANES
    block = max(1, block_rows // tile) * tile
    group = max(1, LATTICE_ROWS // block) * block
    return [range(first, min(first + group, stop), block) for first in range(start, stop, group)]


@dataclass(frozen=True)
class PersonClipping:
    """How gradients of people become multipliers of their rows, on the lattice of `LOOSE` clips.

    Attributes
    ----------
    clipping : Clipping
        Of a person's whole gradient.
    """

    clipping: Clipping

    def apply(self, residual: np.ndarray, inverse: np.ndarray, m: int, gram: np.ndarray) -> None:
        """Clip and round residuals (S, K, b) of whole tiles, in place.

        Parameters
        ----------
        residual : ndarray of shape (S, K, b)
            Of rows in tiles.
        inverse : ndarray of shape (b,)
            1 / |x| of every row; 0 for one that counts nothing.
        m : int
            Rows of a person.
        gram : ndarray of shape (m (m - 1) / 2, people)
            Inner products.
        """
        how = self.clipping
        if m == 1:
            how.apply(residual, inverse)
            return
        if not np.isfinite(residual).all():  # a row whose residual is not a number counts nothing
            finite = np.isfinite(residual).all(axis=1, keepdims=True)
            np.copyto(residual, 0.0, where=~finite)
        shrink, tiny = SHRINK[how.arithmetic], TINY[how.arithmetic]
        settings, outputs, _ = residual.shape
        shape = (-1, m, LANES)
        inverse = inverse.reshape(shape).astype(np.float64)
        norm = np.divide(1.0, inverse, out=np.zeros_like(inverse), where=inverse > 0)
        cube = residual.reshape(settings, outputs, *inverse.shape)
        ceiling = how.ceiling.astype(np.float64)[:, :, None, None]  # (S, 1, 1, 1)
        multiplier = how.multiplier.astype(np.float64)[:, :, None, None]
        limit = LOOSE * ceiling * inverse * shrink  # (S, tiles, m, LANES)
        if how.separate:
            w = np.clip(cube * multiplier[:, None], -limit[:, None], limit[:, None])
            length = np.abs(w)
            inner = w  # every output by itself: (S, K, tiles, m, LANES)
        else:
            length = np.sqrt(np.add.reduce(np.square(cube, dtype=np.float64), axis=1))
            factor = np.minimum(limit / np.maximum(length, tiny), multiplier)
            w = cube * factor[:, None]
            length = (length * factor)[:, None]
            inner = w
        sizes = length * norm  # (S, K or 1, tiles, m, LANES)
        total = _sum_slots(sizes)
        square = _sum_slots(np.square(sizes))
        k = 0
        for i in range(m - 1):
            along: Any = 0.0
            for j in range(i + 1, m):
                products = inner[..., i, :] * inner[..., j, :]
                if not how.separate:
                    products = np.add.reduce(products, axis=1, keepdims=True)
                along = along + gram[k].reshape(-1, LANES) * products
                k += 1
            square = square + 2 * along
        spread = spread_of(m, outputs, how.arithmetic)
        bound = np.sqrt(np.maximum(square, 0.0) + spread * np.square(total))
        lost = how.allowance * _sum_slots(norm)[None, None]
        room = np.where(lost <= ceiling / 2, ceiling - lost, 0.0) * shrink
        scale = np.minimum(room / np.maximum(bound, tiny), 1.0)[..., None, :]
        w *= scale
        if how.arithmetic == "exact":
            np.rint(w, out=w)
        np.copyto(residual, w.reshape(residual.shape), casting="same_kind")


def clipping_of(
    clip: np.ndarray, outputs: int, scale: Any, *, arithmetic: str, per_class: bool, rows: int
) -> Clipping:
    """The clipping of gradients of rows, or of people with several rows."""
    if rows == 1:
        return Clipping.of(clip, outputs, scale, arithmetic, per_class)
    return Clipping.of(clip, outputs, scale, arithmetic, per_class, loose=LOOSE)


def lay_out(rows: Rows, targets: Any, arithmetic: str) -> tuple[People | None, Rows, Any]:
    """Rows and targets as an engine sums them: those of people in tiles, and who they are."""
    if rows.owners is None:
        return None, rows, targets
    if rows.unit.rows == 1:  # every row is a person
        if not np.array_equal(rows.owners.codes, np.arange(rows.n)):
            raise InputError("somebody has more than one row: choose among them")
        return None, replace(rows, owners=None), targets
    if arithmetic not in ("exact", "fast"):
        raise InputError(f"rows of people are summed by arithmetic='exact', not {arithmetic!r}")
    people = People(rows.owners)
    rows = rows.taken(people.order)
    gone = people.null if rows.blanked is None else people.null | rows.blanked
    return people, replace(rows, blanked=gone, owners=None), np.asarray(targets)[people.order]


def memory_of(people: int, unit: Unit, width: int, cell: int, parts: int) -> int:
    """Bytes that rows of people take, with inner products, if everybody has as many as count.

    Parameters
    ----------
    people : int
        How many there are, or the public stand-in for it.
    unit : Unit
        People, and how many rows of one count.
    width : int
        Values that are kept of a row.
    cell : int
        Bytes of each.
    parts : int
        Parts of the columns that are clipped by themselves.

    Returns
    -------
    int
        By public numbers alone.

    Examples
    --------
    >>> from tacit.privacy.unit import Unit
    >>> memory_of(1000, Unit("person", 5), 32, 2, 1)
    403200
    """
    pairs = unit.rows * (unit.rows - 1) // 2
    return -(-people // LANES) * LANES * (unit.rows * width * cell + 8 * parts * pairs)


@lru_cache(maxsize=64)
def spread_of(m: int, outputs: int, arithmetic: str) -> float:
    """b: what rounding adds to a squared norm, in squared sums of the norms of rows."""
    return (2 * m + outputs + 40) * ROUNDING[arithmetic]


def _sum_slots(values: np.ndarray) -> np.ndarray:
    """Sum over the rows of a person, one after the other."""
    total = values[..., 0, :].copy()
    for i in range(1, values.shape[-2]):
        total += values[..., i, :]
    return total
