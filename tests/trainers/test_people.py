"""Gradients of people: exact sums, the bound, and that everybody decides alone."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from tests.guarded import guarded

from tacit.data.owners import Owners, choose_rows
from tacit.data.rows import as_rows
from tacit.data.shaped import Layout, ShapedChunk
from tacit.engine import people as engine_people
from tacit.engine.engine import Engine
from tacit.engine.kernels import compact
from tacit.engine.people import (
    LOOSE,
    MOST_ROWS,
    NUMBER,
    People,
    PersonClipping,
    clipping_of,
    spread_of,
)
from tacit.engine.quantization import Clipping, Scale
from tacit.engine.schedule import LANES
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import PublicRandomness
from tacit.privacy.unit import Unit

CASES = [
    ("logistic", 1, False),
    ("logistic", 3, True),
    ("softmax", 4, False),
    ("softmax", 4, True),
    ("squared", 1, False),
    ("hinge", 1, False),
]


def hashed(seed=1):
    return PublicRandomness(Key.from_seed(seed)).hashed("rows of people")


def owned(data, ids, k, *, bound=1.0, seed=1):
    rows = replace(as_rows(data, bound=bound), owners=Owners.of(ids, Unit("person", k)))
    return choose_rows(rows, hashed(seed))


def labels(loss, outputs, n, rng):
    if loss.task == "regression":
        return loss.targets(rng.normal(size=n), outputs)
    return loss.targets(rng.integers(0, max(outputs, 2), n), outputs)


def table(rng, n=240, d=6):
    """Rows of all lengths; some people's cancel, some add up."""
    X = rng.normal(size=(n, d))
    X *= rng.random((n, 1)) / np.linalg.norm(X, axis=1, keepdims=True)
    ids = rng.integers(0, n // 3, n)
    X[1::4], ids[1::4] = -X[::4], ids[::4]
    X[2::4], ids[2::4] = X[::4], ids[::4]
    return X, ids


def made(kind, loss, outputs, *, k=4, seed=0, split=None, **how):
    rng = np.random.default_rng(seed)
    X, ids = table(rng)
    data = sp.csr_array(X) if kind == "sparse" else X
    rows, index = owned(data, ids, k)
    targets = labels(loss, outputs, len(X), rng)[index]
    shift = 0.3 * rng.normal(size=X.shape[1]) / 3 if kind == "sparse" else None
    engine = Engine(rows, targets, loss, intercept=0.2, shift=shift, split=split, threads=1, **how)
    return engine, rows, targets, shift


def ideal(engine, rows, targets, shift, *, weights, clips, per_class=False):
    """Clipped sums of people in floating point, and the norms of all people's gradients."""
    X = rows.collect()
    X = X.toarray() if sp.issparse(X) else X
    X = np.column_stack([X if shift is None else X - shift, np.full(len(X), 0.2)])
    found = [np.zeros_like(weights[:, part]) for part in engine.parts]
    for s, own in enumerate(weights):
        r = np.empty((len(X), own.shape[1]))
        engine.loss.residual(X @ own, targets, out=r)
        for person in range(rows.owners.people):
            which = rows.owners.codes == person
            g = X[which].T @ r[which]
            for total, part, clip in zip(found, engine.parts, clips, strict=True):
                axis, most = (0, clip / math.sqrt(g.shape[1])) if per_class else (None, clip)
                norm = np.maximum(np.linalg.norm(g[part], axis=axis), 1e-300)
                total[s] += g[part] * np.minimum(1.0, most / norm)
    return found


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(("name", "outputs", "per_class"), CASES)
def test_whole_gradients_of_people_are_clipped(kind, name, outputs, per_class):
    loss = get_loss(name)
    engine, rows, targets, shift = made(kind, loss, outputs)
    weights = np.random.default_rng(3).normal(size=(2, engine.d, outputs)) * [[[1.0]], [[4.0]]]
    for clip in (0.3, 2.0):
        total = engine.gradient_sum(weights, clip, per_class=per_class)
        (wanted,) = ideal(
            engine, rows, targets, shift, weights=weights, clips=[clip], per_class=per_class
        )
        assert np.abs(total.float() - wanted).max() < 0.02
        assert total.owner == Unit("person", 4)


def test_two_parts_of_a_gradient_are_clipped_each_by_itself():
    loss = get_loss("logistic")
    engine, rows, targets, shift = made("dense", loss, 1, split=3)
    weights = np.random.default_rng(3).normal(size=(1, engine.d, 1))
    clips = [0.1, 0.4]
    found = engine.gradient_sums(weights, clips)
    wanted = ideal(engine, rows, targets, shift, weights=weights, clips=clips)
    for one, other in zip(found, wanted, strict=True):
        assert np.abs(one.float() - other).max() < 0.01


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(("name", "outputs", "per_class"), CASES)
def test_nobody_counts_for_more_than_the_clip_in_exact_integers(kind, name, outputs, per_class):
    engine, rows, _, _ = made(kind, get_loss(name), outputs)
    weights = np.random.default_rng(4).normal(size=(1, engine.d, outputs)) * 9
    reached = Fraction(0)
    for clip in (1e-6, 0.05, 0.7):
        for person in range(0, rows.owners.people, 5):
            one = engine.gradient_sum(weights, clip, per_class=per_class, batch=np.array([person]))
            square = sum(int(v) ** 2 for v in one.values.ravel())
            part = Fraction(square) * Fraction(float(one.lattice[0])) ** 2 / Fraction(clip) ** 2
            assert part <= 1
            reached = max(reached, part)
    assert reached > Fraction(999, 1000)  # and some do for as much


def test_what_people_add_is_the_same_whoever_is_there_and_wherever_rows_lie():
    rng = np.random.default_rng(8)
    X, ids = table(rng)
    loss = get_loss("logistic")
    y = rng.integers(0, 2, len(X))
    weights = rng.normal(size=(1, X.shape[1] + 1, 1)) * 3

    def total(which):
        rows, index = owned(X[which], ids[which], 3)
        engine = Engine(rows, loss.targets(y[which][index], 1), loss, intercept=0.2, threads=2)
        return engine.gradient_sum(weights, 0.2).values

    whole = total(np.arange(len(X)))
    order = rng.permutation(len(X))
    own = np.argsort(ids[order], kind="stable")  # the rows of a person in their order
    shuffled = np.empty_like(order)
    for person in np.unique(ids):
        shuffled[ids[order] == person] = np.flatnonzero(ids == person)
    assert (total(shuffled) == whole).all() and own.size
    for person in np.unique(ids)[:12]:
        alone, others = np.flatnonzero(ids == person), np.flatnonzero(ids != person)
        assert (total(alone) + total(others) == whole).all()


def test_batches_are_sums_of_their_people():
    engine, rows, _, _ = made("dense", get_loss("softmax"), 3)
    weights = np.random.default_rng(2).normal(size=(2, engine.d, 3))
    people = np.flatnonzero(np.random.default_rng(1).random(rows.owners.people) < 0.4)
    whole = engine.gradient_sum(weights, 0.3, batch=people).values
    assert (
        whole == sum(engine.gradient_sum(weights, 0.3, batch=np.array([p])).values for p in people)
    ).all()
    assert not engine.gradient_sum(weights, 0.3, batch=np.zeros(0, dtype=int)).values.any()
    everybody = engine.gradient_sum(weights, 0.3, batch=np.arange(engine.n)).values
    assert (everybody == engine.gradient_sum(weights, 0.3).values).all()


def test_batches_are_put_together_alike_with_and_without_compiled_loops(monkeypatch):
    if engine_people.native is None:
        pytest.skip("there are no compiled loops here")
    engine = made("dense", get_loss("logistic"), 1, k=5)[0]
    count, rng = engine.n, np.random.default_rng(4)
    batches = [np.flatnonzero(rng.random(count) < share) for share in (0.02, 0.5, 1.0)]
    found = [engine.people.batch(each, 64) for each in batches]
    monkeypatch.setattr(engine_people, "native", None)
    for each, (index, groups, tiles) in zip(batches, found, strict=True):
        other = engine.people.batch(each, 64)
        assert np.array_equal(index, other[0]) and groups == other[1]
        assert [tile[:3] for tile in tiles] == [tile[:3] for tile in other[2]]
        for one, two in zip(tiles, other[2], strict=True):
            assert all(np.array_equal(*pair) for pair in zip(one.gram, two.gram, strict=True))


def test_somebody_without_rows_adds_nothing_to_a_batch():
    owners = Owners.of(["a", "b", "a", "c", "c"], Unit("person", 2))
    rows = replace(as_rows(np.eye(5), bound=1.0), owners=owners)
    loss = get_loss("logistic")
    some = rows.taken(np.array([0, 2, 3, 4]))  # nothing is left of b
    engine = Engine(some, loss.targets([0, 1, 0, 1], 1), loss, threads=1)
    weights = np.zeros((1, 5, 1))
    assert not engine.gradient_sum(weights, 0.5, batch=np.array([1])).values.any()
    whole = engine.gradient_sum(weights, 0.5).values
    assert np.array_equal(engine.gradient_sum(weights, 0.5, batch=np.arange(3)).values, whole)


def test_tiles_refuse_what_does_not_suit():
    native = engine_people.native
    if native is None:
        pytest.skip("there are no compiled loops here")
    classes = np.array([[1, 0, 16], [2, 16, 16]])  # people of one row, and of two
    places = np.array([0, -1, NUMBER, NUMBER + 15, 1])
    chosen, gram, counts = np.array([0, 1, 3]), np.arange(16.0)[None], np.zeros(2, np.int64)
    told = [guarded(each) for each in (classes, places, chosen, gram, counts)]

    def tiles(*other):
        classes, places, chosen, gram, counts = [*other, *told[len(other) :]]
        index, found = native.tiles(classes, places, 99, chosen, gram, counts)
        return np.frombuffer(index, np.int64), np.frombuffer(found)

    index, found = tiles()
    assert told[-1].tolist() == [1, 1] and index.size == 48 and found.size == 16
    assert (
        index[[0, 16, 32]].tolist() == [0, 31, 47] and (np.delete(index, [0, 16, 32]) == 99).all()
    )
    assert found[0] == 15.0
    for wrong in (np.array([5]), np.array([-1])):
        with pytest.raises(ValueError, match="do not suit"):
            tiles(classes, places, wrong)
    for place in (NUMBER + 16, 2 * NUMBER, 16):
        with pytest.raises(ValueError, match="do not suit"):
            tiles(classes, np.full(5, place))
    for row in ([2, 16, 15], [2, 16, 17], [2, -1, 16], [2, 16, -1], [0, 16, 16], [513, 0, 16]):
        with pytest.raises(ValueError, match="do not suit"):
            tiles(np.array([[1, 0, 16], row]))
    for other in (np.zeros(1, np.int64), np.zeros(3, np.int64)):
        with pytest.raises(ValueError, match="do not suit"):
            tiles(classes, places, chosen, gram, other)


@pytest.mark.skipif(not compact.levels(), reason="no compiled loops")
@pytest.mark.parametrize(("name", "outputs", "per_class"), CASES[:-1])
def test_compiled_loops_find_the_bits_of_numpy(name, outputs, per_class, monkeypatch):
    found = {}
    loss = get_loss(name)
    for level in [*compact.levels(), "numpy"]:
        monkeypatch.setenv("TACIT_KERNELS", level)
        compact.level.cache_clear()
        engine, rows, _, _ = made("dense", loss, outputs, k=7)
        assert engine.store.compiled == (level != "numpy")
        weights = np.random.default_rng(3).normal(size=(2, engine.d, outputs)) * [[[1.0]], [[9.0]]]
        batch = np.arange(0, rows.owners.people, 3)
        found[level] = [
            engine.gradient_sum(weights, clip, per_class=per_class, batch=some).values
            for clip in (1e-4, 0.2, 5.0)
            for some in (None, batch)
        ]
    monkeypatch.undo()
    compact.level.cache_clear()
    for level, sums in found.items():
        same = zip(sums, found["numpy"], strict=True)
        assert all((one == other).all() for one, other in same), level


def test_shaped_rows_of_people_are_those_of_their_expansion():
    rng = np.random.default_rng(0)
    n = 90
    layout = Layout((4, 3), 1)
    chunk = ShapedChunk.of(
        layout, rng.integers(0, [3, 2], (n, 2)), rng.random((n, 2)), rng.normal(size=(n, 1)) / 3
    )
    ids, loss = rng.integers(0, 30, n), get_loss("logistic")
    y, shift = loss.targets(rng.integers(0, 2, n), 1), 0.2 * rng.random(layout.d)
    weights = rng.normal(size=(1, layout.d + 1, 1))
    sums = []
    for data in (chunk, chunk.toarray()):
        rows, index = owned(data, ids, 3, bound=2.5)
        engine = Engine(rows, y[index], loss, intercept=0.5, shift=shift, threads=1)
        sums.append(engine.gradient_sum(weights, 0.4).float())
    assert np.abs(sums[0] - sums[1]).max() < 1e-3


def test_a_row_that_is_blanked_counts_nothing_in_its_persons_gradient():
    rng = np.random.default_rng(0)
    X, ids = table(rng)
    loss = get_loss("logistic")
    y = loss.targets(rng.integers(0, 2, len(X)), 1)
    rows, index = owned(X, ids, 4)
    gone = rng.random(rows.n) < 0.3
    weights = rng.normal(size=(1, X.shape[1] + 1, 1))
    how = {"intercept": 0.2, "threads": 1}
    blanked = Engine(replace(rows, blanked=gone), y[index], loss, **how)
    left = Engine(rows.taken(np.flatnonzero(~gone)), y[index][~gone], loss, **how)
    sums = [engine.gradient_sum(weights, 0.2) for engine in (blanked, left)]
    # Of inner products with a row of zeros nothing is left; how much is rounded may differ.
    assert np.abs(sums[0].float() - sums[1].float()).max() < 1e-6


def test_rows_that_cancel_are_not_mistaken_for_short_ones(monkeypatch):
    """Where rows have no limit of their own, rounding hides what is left of opposing ones."""
    monkeypatch.setattr("tacit.engine.people.LOOSE", 2.0**40)
    scale = Scale.of(1.0, 16, None, 0.0)
    clipping = Clipping.of(np.array([2.0**-34]), 1, scale, "exact", False, loose=2.0**10)
    x = np.random.default_rng(0).integers(-8000, 8000, (LANES, 16))
    square = (x**2).sum(axis=1).astype(np.float64)
    inverse, gram = np.tile(1 / np.sqrt(square), 2), square.reshape(1, 1, LANES)
    worst = {}
    for spread in (spread_of(2, 1, "exact"), 0.0):
        monkeypatch.setattr("tacit.engine.people.spread_of", lambda m, k, a, b=spread: b)
        residual = np.repeat([1.0, 2.0**-30 - 1.0], LANES).reshape(1, 1, -1)
        PersonClipping(clipping).apply(residual, inverse, 2, gram)
        first, second = (part.astype(np.int64).astype(object) for part in residual.reshape(2, -1))
        norms = np.abs(first + second).astype(float) * np.sqrt(square)
        worst[spread] = norms.max() / float(clipping.ceiling[0, 0])
    assert worst.pop(0.0) > 8
    assert max(worst.values()) <= 1


def test_rows_are_limited_on_their_way_and_not_before():
    assert LOOSE == 64
    scale = Scale.of(1.0, 8, None, 0.1)
    how = {"arithmetic": "exact", "per_class": False}
    rows, people = (clipping_of(np.array([0.5]), 1, scale, **how, rows=m) for m in (1, 5))
    assert people.lattice[0] == rows.lattice[0] * LOOSE and (people.clip == rows.clip).all()


def test_more_rows_of_a_person_than_can_be_summed_are_refused():
    with pytest.raises(InputError, match="lower max_rows_per_group"):
        People(Owners.of([1, 1], Unit("person", MOST_ROWS + 1)))
    with pytest.raises(InputError, match="more rows than 1"):
        People(Owners.of([1, 1], Unit("person", 1)))
    rows = replace(as_rows(np.eye(2), bound=1.0), owners=Owners.of([1, 1], Unit("person", 1)))
    loss = get_loss("logistic")
    with pytest.raises(InputError, match="more than one row"):
        Engine(rows, loss.targets([0, 1], 1), loss)


def test_what_rounding_takes_off_the_clip_of_a_person_is_at_most_half_of_it():
    for d, outputs, per_class in ((1 << 22, 4000, False), (1 << 22, 4000, True), (3, 1, False)):
        scale = Scale.of(1.0, d, None, 1.0)
        how = {"arithmetic": "exact", "per_class": per_class, "rows": MOST_ROWS}
        found = clipping_of(np.array([0.7]), outputs, scale, **how)
        assert found.allowance * MOST_ROWS * scale.longest <= found.ceiling.min() / 2


def test_strict_and_rounded_sums_of_people_are_refused():
    loss, rows = get_loss("logistic"), owned(np.eye(4), [1, 1, 2, 2], 2)[0]
    for arithmetic in ("strict", "rounded"):
        with pytest.raises(InputError, match="arithmetic='exact'"):
            Engine(rows, loss.targets([0, 1, 0, 1], 1), loss, arithmetic=arithmetic)


def test_rows_of_people_that_do_not_fit_in_memory_are_refused():
    loss, rows = get_loss("logistic"), owned(np.eye(4), [1, 1, 2, 2], 2)[0]
    with pytest.raises(InputError, match="summed in memory"):
        Engine(rows, loss.targets([0, 1, 0, 1], 1), loss, memory=1)


def test_losses_of_people_count_one_row_of_each():
    rng = np.random.default_rng(0)
    X, ids = table(rng)
    loss = get_loss("logistic")
    y = loss.targets(rng.integers(0, 2, len(X)), 1)
    rows, index = owned(X, ids, 4)
    weights = rng.normal(size=(2, X.shape[1], 1))
    people = Engine(rows, y[index], loss, threads=1)
    first = rows.standing
    alone = Engine(replace(rows, owners=None).taken(first), y[index][first], loss, threads=1)
    assert (people.loss_sum(weights, 2.0) == alone.loss_sum(weights, 2.0)).all()


def test_fast_sums_of_people_are_clipped_too():
    engine, rows, targets, shift = made("dense", get_loss("logistic"), 1, arithmetic="fast")
    weights = np.random.default_rng(3).normal(size=(1, engine.d, 1)) * 4
    total = engine.gradient_sum(weights, 0.3).float()
    (wanted,) = ideal(engine, rows, targets, shift, weights=weights, clips=[0.3])
    assert np.abs(total - wanted).max() < 1e-3
