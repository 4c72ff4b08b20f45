"""Good clusters, and how crowded rows are: what de-duplication and quantisation need.

After Hu, Sanyal and Schölkopf, "Provable Privacy with Non-Private Pre-Processing"
(2024), Section 4.1. Write B(c, r) for the rows at distance at most r from c. A row
c is a *centre* if B(c, η) = B(c, 3η), and B(c, η) is then a *good cluster*.
De-duplication keeps the centre alone, quantisation moves all rows there.

What one replaced row changes
-----------------------------
The paper's count of changed rows (Proposition 3: twice the largest good cluster)
is wrong. The right one, for data sets S₁ = S + z₁ and S₂ = S + z₂ with rows in
the same places: **at most 2(m − 1) rows of S change, each moves by at most 2η**,
where m is at least the number of rows of S₁ and of S₂ in any ball of radius 4η.

*Good clusters are equal or disjoint.* Let x lie in those of the centres c and c′.
Then ‖c − c′‖ ≤ 2η, so c′ ∈ B(c, 3η) = B(c, η), and every row of B(c′, η) is within
2η of c, hence within η. So a centre lies within η of each row of its cluster, the
other centres of that cluster among them, and more than 3η from every other row.

*One more row.* Go from S to S + z. A centre c of S with ‖c − z‖ > 3η, or ≤ η, stays
a centre; a centre of S + z other than z was one in S, as taking a row away spoils
no equality. So beside a cluster of which z is the only centre, all there were.
If the centre that stands for the cluster of a row x of S differs between S and
S + z (or there is one in only one of them), then either the old one, c, is no
centre any more and η < ‖c − z‖ ≤ 3η, or z is the new one. Either way all of the
cluster lies within 4η of z: |B(z, 4η)| − 1 rows of S. (This uses that who stands
for a cluster depends on its rows and their order only; here the centre that comes
first.) And x moves by at most η: from x to a centre of its own cluster or back;
from c to c′, both centres of one cluster of S; or from c to z, where x is within η
of both, so ‖c − z‖ ≤ 2η, so c lies in the cluster of z, within η. From S₁ by S to
S₂ the two steps add up. ∎

In the machine "within η" is one symmetric function of two rows, with a relative
error of at most (d + 4)·2⁻⁵². The proof compares η with 2η, 2η with 3η and adds
3η + η: it holds with 4η(1 + 10⁻⁶) for the ball, of which `crowd_limit` takes
account, and 2η(1 + 10⁻⁶) for the move.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from tacit.exceptions import InputError

NONE = np.iinfo(np.int64).max
LARGEST_SQUARABLE = 1e150  # whose square is still a number
BLOCK_ROWS = 64  # rows of one leaf
FIRST_TRIES = 16  # rows of a crowd tried as centres at first, and factor for the next tries
BATCH_PAIRS = 1 << 14  # pairs of a block and a node looked at together
BATCH_ROWS = 1 << 12  # rows that one block is compared with at once
BATCH_VALUES = 1 << 17  # numbers in one temporary array: about what a cache holds
BATCH_MEMBERS = 1 << 20  # rows, counted once per cell, split together
SLACK = 2.0**-8  # part of a cell kept for rounding


def good_clusters(points: np.ndarray, radius: float) -> np.ndarray:
    """The centre of the good cluster of every row.

    Of several centres of one cluster, the row that comes first stands for it: a
    choice by the cluster's own rows and their order, so that a cluster that stays
    as it was keeps its centre. A row with nobody else within 3η is its own centre.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Finite numbers.
    radius : float
        η: 0, or between 1e-100 and 1e100. 0 finds equal rows.

    Returns
    -------
    ndarray of int of shape (n,)
        For each row the index of its centre; -1 for a row in no good cluster.

    Notes
    -----
    Exact: whether two rows are within η or 3η is decided by the sum of squared
    differences, column by column, a symmetric function of these two rows alone.
    Bounds and matrix products only decide what rounding cannot touch.

    Equal rows are merged first. Rows are then sorted into a tree of balls, and a
    row is out as soon as one other row is seen between η and 3η from it; whole
    blocks of rows are out, or need no look, when the triangle inequality says so.
    Memory grows with n·d, never with the number of pairs. Time is about n log n
    when rows lie near something of few dimensions; like every exact search for
    near neighbours, it approaches n² when they spread in many.

    Examples
    --------
    >>> rows = np.array([[0.0], [0.05], [1.0], [1.2], [5.0], [5.0]])
    >>> good_clusters(rows, 0.1)
    array([ 0,  0, -1, -1,  4,  4])
    """
    points, radius = _checked(points, radius)
    first, group = _merge_equal(points)
    if radius == 0 or len(first) < 2:
        return first[group]
    with threadpool_limits(1, user_api="blas"):  # many products, all of them small
        found = _label(points[first], first, radius)
    return found[group]


def crowd_limit(points: np.ndarray, radius: float) -> int:
    """At least the number of rows in any ball of radius 4η, and steady.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Finite numbers.
    radius : float
        η: 0, or between 1e-100 and 1e100. 0 counts the most frequent row.

    Returns
    -------
    int
        An upper bound on the largest number of rows xᵢ with ‖xᵢ − y‖ ≤ 4η, over all
        points y, that changes by at most 1 when one row is added, removed or replaced.

    Notes
    -----
    Fixed unit vectors v₁ … v_k, made from d alone (the axes among them if d ≤ 12; k is
    1, 6 or 12), give every row k coordinates. Let w be a bit more than 8η. A *cell*
    is, in each coordinate but the last, two neighbouring bins of a grid of width w
    (three of width w/2 if d ≤ 6), and an interval [t, t + w] in the last. The result
    is the largest number of rows in one cell.

    *Steady.* Which cells a row lies in depends on that row alone, and the cells are
    fixed. So a row more changes every cell's count, hence the largest, by 0 or +1.
    Replacing a row is one of these steps up and one down: the change is at most 1.

    *Upper bound.* Two rows in a ball of radius 4η are at most 8η apart, and so are
    their coordinates, as ‖v‖ = 1. With w > 8η their bins of width w differ by at most
    one, those of width w/2 by at most two. So all rows of the ball share a cell.

    *Rounding.* w exceeds 8η by 2⁻⁸ of itself. Coordinates are summed in a fixed
    order, so they depend on the row alone, with error at most (d + 4)·2⁻⁵²·‖x‖, and
    so does the bin. Rows for which that is more than 2⁻¹² w (rows of norm 1 only if
    η < (d + 4)·1e-13) are taken to lie in all cells, which is steady as well.

    The largest cell is found by splitting along one coordinate after the other and
    dropping what holds no more rows than a cell already found.

    Examples
    --------
    >>> rows = np.array([[0.0], [0.05], [1.0], [1.2], [5.0], [5.0]])
    >>> crowd_limit(rows, 0.1), crowd_limit(rows, 0)
    (2, 2)
    """
    points, radius = _checked(points, radius)
    if not len(points):
        return 0
    first, group = _merge_equal(points)
    weight = np.bincount(group, minlength=len(first))
    if radius == 0 or points.shape[1] == 0:
        return int(weight.max())
    width = 8.0 * radius * (1.0 + SLACK)
    zero = np.zeros((1, points.shape[1]))
    size = np.sqrt(squared_distances(points, first, zero, np.zeros_like(first)))
    coarse = size * (points.shape[1] + 4) * 2.0**-52 > width * SLACK / 16
    everywhere = int(weight[coarse].sum())
    rows = np.flatnonzero(~coarse)
    if not len(rows):
        return everywhere
    directions, bins = grid_of(points.shape[1])
    coordinates = _coordinates(points, first[rows], directions)
    return everywhere + _fullest_cell(coordinates, weight[rows], width, bins)


def _checked(points: np.ndarray, radius: float) -> tuple[np.ndarray, float]:
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2:
        raise InputError(f"rows must be a table of two dimensions, not {points.ndim}")
    if points.size and not max(points.max(), -points.min()) <= LARGEST_SQUARABLE:
        raise InputError("rows must be finite numbers, of size at most 1e150")
    if radius != 0 and not 1e-100 <= radius <= 1e100:  # squares must neither vanish nor overflow
        raise InputError(f"radius must be 0, or between 1e-100 and 1e100, not {radius!r}")
    return np.ascontiguousarray(points), float(radius)


# Rows: equal ones, distances, coordinates


def _merge_equal(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First index of every distinct row, and for each row which of these it equals."""
    n, d = points.shape
    if n == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    mark = np.zeros(n, np.uint64)
    odd = np.random.default_rng(0).integers(0, 1 << 63, size=d, dtype=np.uint64) * 2 + 1
    for part in _parts(n, d):
        bits = (points[part] + 0.0).view(np.uint64)  # + 0.0: -0.0 equals 0.0
        bits ^= bits >> np.uint64(32)
        bits *= odd
        bits ^= bits >> np.uint64(29)
        bits *= odd
        bits ^= bits >> np.uint64(32)
        mark[part] = bits.sum(axis=1, dtype=np.uint64)
    order = np.argsort(mark, kind="stable")
    new = np.ones(n, bool)
    new[1:] = mark[order[1:]] != mark[order[:-1]]
    follows = np.flatnonzero(~new)
    for part in _parts(len(follows), d):
        at = follows[part]
        if (points[order[at]] != points[order[at - 1]]).any():  # marks agree, rows do not
            order, new = sort_rows(points)
            break
    group = np.empty(n, np.int64)
    group[order] = np.cumsum(new) - 1
    return order[new], group


def sort_rows(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in lexicographic order, and where a new one begins: slow, and needs no luck."""
    order = np.lexsort(points.T)
    new = np.ones(len(points), bool)
    new[1:] = (points[order[1:]] != points[order[:-1]]).any(axis=1)
    return order, new


def squared_distances(x: np.ndarray, i: np.ndarray, y: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Squared distances of rows x[i] and y[j]: what "within η" means, bit for bit.

    Columns are added in order, each pair by itself: a reduction by NumPy or BLAS
    would round differently with the shape of the call.
    """
    total = np.zeros(len(i))
    for part in _parts(len(i), x.shape[1]):
        gap = x[i[part]] - y[j[part]]
        gap *= gap
        some = total[part]
        for column in gap.T:
            some += column
    return total


def _coordinates(points: np.ndarray, rows: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Products of rows and unit vectors (k, d), each a function of its row alone."""
    result = np.zeros((len(directions), len(rows)))
    for part in _parts(len(rows), points.shape[1]):
        columns = np.ascontiguousarray(points[rows[part]].T)
        for vector, some in zip(directions, result[:, part], strict=True):
            for weight, column in zip(vector, columns, strict=True):
                if weight:
                    some += weight * column
    return result


def grid_of(d: int) -> tuple[np.ndarray, int]:
    """Public unit vectors, and how many bins are a cell: made from d alone.

    In few dimensions finer bins gain more than further directions.
    """
    if d == 1:
        return np.ones((1, 1)), 2
    k, bins = (6, 3) if d <= 6 else (12, 2)
    vectors = np.random.default_rng(d).normal(size=(d, k))
    if d <= k:
        vectors[:, :d] = np.eye(d)
    else:
        vectors = np.linalg.qr(vectors)[0]
    return np.ascontiguousarray((vectors / np.linalg.norm(vectors, axis=0)).T), bins


def _parts(n: int, d: int) -> Iterator[slice]:
    size = max(BATCH_VALUES // max(d, 1), 16)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _spans(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """The numbers start[0] … stop[0]-1, start[1] … stop[1]-1, and so on."""
    size = stop - start
    begin = np.cumsum(size) - size
    return np.arange(size.sum()) + np.repeat(start - begin, size)


def _runs(*keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where stretches of equal keys begin and end."""
    new = np.zeros(len(keys[0]), bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    begin = np.flatnonzero(new)
    return begin, np.append(begin, len(new))[1:]


# Centres: a tree of balls, and blocks of rows compared with its nodes


@dataclass(frozen=True)
class _Blocks:
    """Rows in an order in which every block is a span of them, inside a ball and a box."""

    points: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    middle: np.ndarray
    reach: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class _Tree(_Blocks):
    """Blocks, called nodes, that are split in two until they are small."""

    order: np.ndarray  # where the rows came from
    child: np.ndarray  # the first of two neighbours; -1 for a leaf. Children come after parents


def _margin(d: int) -> float:
    """Far more than the relative error of a distance, in whatever order it is summed."""
    return (d + 16) * 2.0**-50


def _apart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Distances of rows of x and y, or of one row y; not bit for bit."""
    total = np.empty(len(x))
    for part in _parts(*x.shape):
        gap = x[part] - (y[part] if y.ndim > 1 else y)
        total[part] = np.einsum("ij,ij->i", gap, gap)
    return np.sqrt(total)


def _grow(points: np.ndarray) -> _Tree:
    """Split the rows, again and again, halfway between two that are far apart."""
    points, order = points.copy(), np.arange(len(points))
    start, stop, child, depth = [0], [len(points)], [-1], [0]
    deep = 2 * math.log2(len(points) + 1)
    node = 0
    while node < len(start):
        a, b = start[node], stop[node]
        if b - a > BLOCK_ROWS:
            some = points[a:b]
            one = some[_apart(some, some[0]).argmax()]
            along = some @ (some[_apart(some, one).argmax()] - one)
            left = along < (along.min() + along.max()) / 2
            half = int(left.sum())
            if depth[node] > deep or not 0 < half < b - a:  # into equal parts, to end at all
                half = (b - a) // 2
                left[np.argpartition(along, half)] = np.arange(b - a) < half
            parts = np.argsort(~left, kind="stable")
            points[a:b], order[a:b] = some[parts], order[a:b][parts]
            child[node] = len(start)
            start += [a, a + half]
            stop += [a + half, b]
            child += [-1, -1]
            depth += [depth[node] + 1] * 2
        node += 1
    nodes = _enclose(points, np.array(start), np.array(stop))
    return _Tree(**vars(nodes), order=order, child=np.array(child))


def _enclose(points: np.ndarray, start: np.ndarray, stop: np.ndarray) -> _Blocks:
    """A ball and a box around the rows of every span."""
    middle, low, high = (np.empty((len(start), points.shape[1])) for _ in range(3))
    reach = np.empty(len(start))
    for block, (a, b) in enumerate(zip(start, stop, strict=True)):
        some = points[a:b]
        middle[block], low[block], high[block] = some.mean(0), some.min(0), some.max(0)
        reach[block] = _apart(some, middle[block]).max()
    reach *= 1 + _margin(points.shape[1])
    return _Blocks(points, start, stop, middle, reach, low, high)


def _blocks_of(tree: _Tree, rows: np.ndarray) -> _Blocks:
    """Some rows of the tree, in its order, in blocks: the largest nodes with few of them."""
    before = np.searchsorted(rows, tree.start)
    until = np.searchsorted(rows, tree.stop)
    few = until - before <= BLOCK_ROWS
    inside = np.zeros(len(few), bool)  # in a node that is chosen already
    split = np.flatnonzero(tree.child >= 0)
    inside[tree.child[split]] = inside[tree.child[split] + 1] = few[split]
    chosen = np.flatnonzero(few & ~inside & (until > before))
    return _enclose(tree.points[rows], before[chosen], until[chosen])


def _label(points: np.ndarray, first: np.ndarray, radius: float) -> np.ndarray:
    """`good_clusters` for rows that all differ, in terms of the numbers ``first``."""
    tree = _grow(points)
    index = first[tree.order]
    centre, alone = _centres(tree, index, radius)
    label = np.where(centre & alone, index, NONE)
    crowded = np.flatnonzero(centre & ~alone)
    if len(crowded):
        label = np.minimum(label, _first_centre(tree, crowded, index, radius))
    found = np.empty(len(points), np.int64)
    found[tree.order] = np.where(label == NONE, -1, label)
    return found


def _centres(tree: _Tree, index: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the tree that are centres, the first of every good cluster among them, and
    which of these have nobody within η.

    Rows within 3η of each other belong to one good cluster if one of them is a
    centre. So in a node that small only the first centre matters, and rows are
    tried in their order, few at a time, until there is one.
    """
    n = len(tree.points)
    crowd = np.arange(n)
    for node in _small_nodes(tree, 3 * radius):
        crowd[tree.start[node] : tree.stop[node]] = tree.start[node]
    order = np.lexsort((index, crowd))
    begin, end = _runs(crowd[order])
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n) - np.repeat(begin, end - begin)
    left = _not_seen_off(tree.points, radius)
    centre, alone = np.zeros(n, bool), np.zeros(n, bool)
    tries = FIRST_TRIES
    while left.any():
        rows = np.flatnonzero(left & (rank < tries))
        left[rows] = False
        tries *= FIRST_TRIES
        if len(rows):
            centre[rows], alone[rows] = _try(tree, rows, radius)
            settled = np.zeros(n, bool)
            settled[crowd[rows[centre[rows]]]] = True
            left &= ~settled[crowd]
    return centre, alone


def _small_nodes(tree: _Tree, diameter: float) -> list[int]:
    """The largest nodes of which all rows are that near to each other."""
    small = 2 * tree.reach * (1 + _margin(tree.points.shape[1])) <= diameter
    found, stack = [], [0]
    while stack:
        node = stack.pop()
        if small[node]:
            found.append(node)
        elif tree.child[node] >= 0:
            stack += [tree.child[node], tree.child[node] + 1]
    return found


def _not_seen_off(points: np.ndarray, radius: float) -> np.ndarray:
    """Rows that no row 1, 2, 4, … places on sees off: a quick look at every scale."""
    left = np.ones(len(points), bool)
    step = 1
    while step < len(points):
        i = np.flatnonzero(left[:-step] | left[step:])
        gap = squared_distances(points, i, points, i + step)
        i = i[(gap > radius**2) & (gap <= (3 * radius) ** 2)]
        left[i] = left[i + step] = False
        step *= 2
    return left


def _try(tree: _Tree, rows: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Which of these rows of the tree are centres, and which have nobody within η."""
    asking = _blocks_of(tree, rows)
    out, near_rows = np.zeros(len(rows), bool), np.zeros(len(rows), np.int64)
    closed, near_block = (np.zeros(len(asking.start), kind) for kind in (bool, np.int64))
    for near, leaf in _meetings(tree, asking, radius, closed):
        np.add.at(near_block, near[0], (tree.stop - tree.start)[near[1]])
        for block, columns in _rounds(tree, leaf):
            if closed[block]:
                continue
            mine = np.arange(asking.start[block], asking.stop[block])
            mine = mine[~out[mine]]
            i, _, close = _compare(
                asking.points[mine], tree.points[columns], asking.middle[block], radius
            )
            near_rows[mine] += np.bincount(i[close], minlength=len(mine))
            out[mine[i[~close]]] = True
            closed[block] = out[mine].all()
    order, sizes = np.argsort(asking.start), asking.stop - asking.start
    out |= np.repeat(closed[order], sizes[order])
    near_rows += np.repeat(near_block[order], sizes[order])
    return ~out, near_rows == 1


def _first_centre(tree: _Tree, centres: np.ndarray, index: np.ndarray, radius: float) -> np.ndarray:
    """For each row of the tree, the first of the given centres within η of it."""
    asking, index = _blocks_of(tree, centres), index[centres]
    spans = [slice(a, b) for a, b in zip(asking.start, asking.stop, strict=True)]
    lowest = np.array([index[span].min() for span in spans])
    by_row, by_node = np.full(len(tree.points), NONE), np.full(len(tree.start), NONE)
    for near, leaf in _meetings(tree, asking, radius, np.zeros(len(spans), bool)):
        np.minimum.at(by_node, near[1], lowest[near[0]])
        for block, columns in _rounds(tree, leaf):
            mine = spans[block]
            i, j, close = _compare(
                asking.points[mine], tree.points[columns], asking.middle[block], radius
            )
            np.minimum.at(by_row, columns[j[close]], index[mine][i[close]])
    for node in range(len(by_node)):  # parents before children
        child = tree.child[node]
        if child >= 0:
            by_node[child : child + 2] = np.minimum(by_node[child : child + 2], by_node[node])
        else:
            span = slice(tree.start[node], tree.stop[node])
            by_row[span] = np.minimum(by_row[span], by_node[node])
    return by_row


Pairs: TypeAlias = tuple[np.ndarray, np.ndarray]


def _meetings(
    tree: _Tree, asking: _Blocks, radius: float, closed: np.ndarray
) -> Iterator[tuple[Pairs, Pairs]]:
    """Blocks of asking rows with the nodes of the tree that concern them.

    Pairs of (block, node) with all rows within η of each other, and pairs of
    (block, leaf) that have to be looked at row by row. A block that as a whole has
    rows between η and 3η from it is marked in ``closed``; closed blocks are left.
    """
    margin = _margin(tree.points.shape[1])
    below, above = (1 - margin) * radius, (1 + margin) * radius
    stack = [(np.arange(len(asking.start)), np.zeros(len(asking.start), np.int64))]
    found: list[tuple[np.ndarray, ...]] = []
    while stack:
        block, node = stack.pop()
        if len(block) > BATCH_PAIRS:
            stack.append((block[BATCH_PAIRS:], node[BATCH_PAIRS:]))
            block, node = block[:BATCH_PAIRS], node[:BATCH_PAIRS]
        keep = ~closed[block]
        block, node = block[keep], node[keep]
        gap = _apart(asking.middle[block], tree.middle[node])
        both = (asking.reach[block] + tree.reach[node]) * (1 + margin)
        least, most = gap * (1 - margin) - both, gap * (1 + margin) + both
        closed[block[(least > above) & (most <= 3 * below)]] = True
        at = np.flatnonzero(~closed[block] & (least <= 3 * above))
        at = at[_boxes_apart(asking, block[at], tree, node[at]) <= 3 * above]
        near = most[at] <= below
        done = near | (tree.child[node[at]] < 0)
        unlike = np.abs(gap[at] - 2 * radius)
        found.append((block[at][done], node[at][done], near[done], unlike[done]))
        at = at[~done]
        if len(at):
            child = tree.child[node[at]]
            stack.append((np.repeat(block[at], 2), np.stack([child, child + 1], 1).ravel()))
        if not stack or sum(len(some[0]) for some in found) > BATCH_PAIRS:
            block, node, near, unlike = (np.concatenate(part) for part in zip(*found, strict=True))
            # Where rows are most likely seen off comes first.
            leaf = np.flatnonzero(~near)[np.argsort(unlike[~near], kind="stable")]
            yield (block[near], node[near]), (block[leaf], node[leaf])
            found = []


def _boxes_apart(x: _Blocks, i: np.ndarray, y: _Blocks, j: np.ndarray) -> np.ndarray:
    """Distances of the boxes of blocks i of x and j of y."""
    total = np.empty(len(i))
    for part in _parts(len(i), x.points.shape[1]):
        one, other = i[part], j[part]
        gap = np.maximum(x.low[one] - y.high[other], y.low[other] - x.high[one])
        gap = np.maximum(gap, 0.0, out=gap)
        total[part] = np.einsum("ij,ij->i", gap, gap)
    return np.sqrt(total)


def _rounds(tree: _Tree, pairs: Pairs) -> Iterator[tuple[int, np.ndarray]]:
    """One block at a time, with some of the rows that it has to be compared with."""
    order = np.argsort(pairs[0], kind="stable")
    block, leaf = pairs[0][order], pairs[1][order]
    at_once = BATCH_ROWS // BLOCK_ROWS
    for a, b in zip(*_runs(block), strict=True):
        for some in range(a, b, at_once):
            leaves = leaf[some : min(some + at_once, b)]
            yield int(block[a]), _spans(tree.start[leaves], tree.stop[leaves])


def _compare(
    x: np.ndarray, y: np.ndarray, origin: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of rows of x and y that are within 3η, and whether within η.

    A matrix product decides where its error cannot matter, `squared_distances` elsewhere.
    A row of x with a sure pair beyond η may have such pairs left out.
    """
    inner, outer = radius**2, (3 * radius) ** 2
    a, b = x - origin, y - origin
    a_size, b_size = np.einsum("ij,ij->i", a, a), np.einsum("ij,ij->i", b, b)
    slack = (a_size.max() + b_size.max()) * _margin(x.shape[1])  # of the product and of a and b
    gap = a @ (-2.0 * b.T)
    gap += a_size[:, None]
    gap += b_size
    i, j = np.nonzero(gap <= outer + slack)
    gap = gap[i, j]
    unsure = (np.abs(gap - inner) <= slack) | (gap > outer - slack)
    seen_off = np.zeros(len(x), bool)
    seen_off[i[~unsure & (gap > inner)]] = True
    keep = ~(unsure & seen_off[i])
    i, j, gap, unsure = i[keep], j[keep], gap[keep], unsure[keep]
    gap[unsure] = squared_distances(x, i[unsure], y, j[unsure])
    keep = gap <= outer
    return i[keep], j[keep], gap[keep] <= inner


# The fullest cell


def _fullest_cell(coordinates: np.ndarray, weight: np.ndarray, width: float, per_cell: int) -> int:
    """The largest weight in one cell, see `crowd_limit`."""
    *others, line = coordinates
    grid = [np.floor(line / (width / (per_cell - 1))).astype(np.int64) for line in others]
    n = len(weight)
    # For the last coordinate: places in its order, and where an interval that begins there ends.
    order = np.argsort(line, kind="stable")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    end = np.searchsorted(line[order], line[order] + width, side="right")[place]
    best = int(weight.max())
    # What is still to be split: by which coordinate, rows cell by cell, the cells' sizes, counts.
    stack = [(0, np.arange(n), np.array([n]), np.array([weight.sum()]))]
    while stack:
        depth, rows, size, count = stack.pop()
        keep = count > best
        rows, size = rows[np.repeat(keep, size)], size[keep]
        if not len(rows):
            continue
        cell = np.repeat(np.arange(len(size)), size)
        if depth == len(grid):
            key = np.sort(cell * (n + 1) + place[rows])
            cell, rows = key // (n + 1), order[key % (n + 1)]
            sums = np.append(0, np.cumsum(weight[rows]))
            last = np.searchsorted(key, cell * (n + 1) + end[rows])
            best = max(best, int((sums[last] - sums[:-1]).max()))
            continue
        start, stop, rows = _split(cell, grid[depth][rows], rows, per_cell)
        sums = np.append(0, np.cumsum(weight[rows]))
        count = sums[stop] - sums[start]
        up = np.argsort(count, kind="stable")
        up = up[count[up] > best]
        size = (stop - start)[up]
        batch = np.cumsum(size) // BATCH_MEMBERS
        batch[-1:] = -1  # the fullest by itself, and first off the stack: a mark for the others
        for a, b in zip(*_runs(batch), strict=True):
            inside = rows[_spans(start[up[a:b]], stop[up[a:b]])]
            stack.append((depth + 1, inside, size[a:b], count[up[a:b]]))
    return best


def _split(
    cell: np.ndarray, at: np.ndarray, rows: np.ndarray, per_cell: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells of neighbouring bins in each cell, as spans of the rows in a new order.

    They begin at a bin that is not empty, and end no earlier than the one before
    does: the rest have no more rows than one of these.
    """
    order = np.lexsort((at, cell))
    cell, at = cell[order], at[order]
    begin, end = _runs(cell, at)
    cell, at = cell[begin], at[begin]
    last = np.arange(len(begin))
    for step in range(1, per_cell):
        last[:-step] += (cell[step:] == cell[:-step]) & (at[step:] < at[:-step] + per_cell)
    keep = np.diff(last, prepend=-1) > 0
    return begin[keep], end[last[keep]], rows[order]
