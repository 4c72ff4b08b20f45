"""Compiled passes over rows: the numbers of NumPy to the bit, and exact products."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.seam import token

from tacit.data.rows import as_rows
from tacit.mechanisms import additive, covariance
from tacit.mechanisms.additive import Step
from tacit.preprocessing import ClipNorm, Normalize, PrivateCenter, PublicScale
from tacit.preprocessing.base import affine

native = additive.native
compiled_only = pytest.mark.skipif(native is None, reason="no compiler where this was installed")
WIDTHS = [*range(1, 34), 63, 64, 65, 127, 128, 129, 136, 200, 257, 500, 1025]


@pytest.fixture
def way(monkeypatch):
    """Switch to compiled loops, or to NumPy."""

    def switch(compiled):
        monkeypatch.setattr(additive, "loops", lambda: native if compiled else None)

    return switch


def rows_of(n, d, seed=0):
    """Rows of all lengths, some zero, some beyond the floats when squared."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * np.exp2(rng.integers(-40, 40, size=(n, 1)))
    rows[::7] = 0.0
    rows[3::11] *= 2.0**600
    return rows


@compiled_only
@pytest.mark.parametrize("d", WIDTHS)
def test_squares_are_added_up_as_numpy_does(d):
    rows, found = rows_of(23, d), np.empty(23)
    native.squares(rows, found)
    with np.errstate(over="ignore"):
        assert (found == np.add.reduce(rows * rows, axis=1)).all()


@pytest.mark.parametrize("n", [0, 1, 3, 150])
def test_rows_are_taken_from_memory_that_is_not_aligned(n):
    # As messages of a cluster are: where they hold no number, NumPy says that they are aligned.
    there = np.frombuffer(bytes(4) + np.arange(1.0, 3 * n + 1).tobytes(), np.float64, offset=4)
    rows = there.reshape(n, 3)
    assert np.allclose(additive.row_norms(additive.normalize(rows, 0.7)), 0.7)
    assert (as_rows(rows).collect() == rows).all()
    one, other = (additive.lattice_sum([each], 3, 1e3) for each in (rows, rows.copy()))
    assert (one == other).all()


@compiled_only
@pytest.mark.parametrize("ordinary", [True, False])
@pytest.mark.parametrize("d", [1, 3, 20, 100, 257])
def test_rows_are_the_same_with_and_without_compiled_loops(way, d, ordinary):
    rows = rows_of(60, d)
    if ordinary:
        rows = rows[np.abs(np.log2(np.abs(rows).max(axis=1, initial=2.0**-99))) < 50]
    found = []
    for compiled in (True, False):
        way(compiled)
        changed = additive.normalize(rows, 0.7), additive.shorten(rows, 0.7)
        whole = [additive.lattice_rows(rows, 0.7, bits) for bits in (1, 20, 30, 50)]
        norms = additive.row_norms(rows), additive.lattice_sum([rows], d, 0.7)
        found.append([*changed, *whole, *norms])
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        assert (one == other).all()


@compiled_only
@pytest.mark.parametrize("n", [1, 7, 8, 9, 40, 200])
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 20, 100, 300])
def test_steps_in_one_pass_are_those_of_numpy_one_after_the_other(way, n, d):
    rng = np.random.default_rng(d)
    rows, mean = rng.normal(size=(n, d)), rng.normal(size=d)
    rows[::5] = 0.0
    scale = np.exp2(rng.integers(-3, 3, d))
    steps = [Step.normalize(0.7), Step.affine(mean, None), Step.shorten(0.5, 3.0)]
    found = additive.through(rows, [*steps, Step.affine(mean, scale)])
    way(False)
    moved = affine(additive.normalize(rows, 0.7), mean)
    assert (found == affine(additive.shorten(moved, 0.5, 3.0), mean, scale)).all()


@compiled_only
@pytest.mark.parametrize("n", [0, 1, 7, 15, 16, 17, 63, 64, 65, 71, 72, 200])
@pytest.mark.parametrize("d", [1, 3, 7, 8, 9, 20, 100, 257])
def test_what_is_added_on_the_way_is_what_rows_become(n, d):
    rng = np.random.default_rng(n)
    rows, mean = rng.normal(size=(n, d)), rng.normal(size=d) / 9
    rows[::5] = 0.0
    steps = [Step.normalize(0.7), Step.affine(mean, None), *additive.lattice_steps(d, 1.0, 20)]
    whole = additive.through(rows, steps)
    total, products = np.full(d, 3.0), np.full((d, d), 5.0)
    assert additive.added(rows, steps, total)
    assert (total == 3 + whole.sum(axis=0)).all()
    if additive.added(rows, steps, products):
        assert (products == 5 + np.triu(whole.T @ whole)).all()


@compiled_only
def test_nothing_is_added_if_one_row_needs_a_closer_look():
    for place in range(40):
        rows = np.ones((40, 9))
        rows[place] = 1e200
        for onto in (np.zeros(9), np.zeros((9, 9))):
            assert not additive.added(rows, [Step.shorten(1.0)], onto)
            assert not onto.any()


@compiled_only
@pytest.mark.parametrize("odd", [False, True])
def test_sums_on_the_way_are_those_of_rows_that_were_read(way, odd):
    rows = np.random.default_rng(0).normal(size=(9000, 20))
    rows[5000, 3] *= 1e200 if odd else 1
    center = PrivateCenter()
    center.mean_ = np.linspace(-0.1, 0.1, 20)
    seen = as_rows(rows).through(Normalize(0.5), d=20, bound=0.5)
    seen = seen.through(center, d=20, bound=0.7)
    found = []
    for compiled, passes in ((True, seen.pending()), (True, seen.passes()), (False, seen.passes())):
        way(compiled)
        moment = covariance.noisy_second_moment(passes, 20, 0.5, token(1.0), size=9000)
        found.append((additive.lattice_sum(passes, 20, 0.7), moment))
    for total, moment in found[1:]:
        assert (total == found[0][0]).all()
        assert (moment == found[0][1]).all()


@compiled_only
def test_numbers_beyond_the_floats_become_the_largest_and_gaps_stay_gaps():
    rows = np.array([[1e308, np.nan, -1e308, np.inf], [3.0, 5e-324, 0.0, -np.inf]])
    mean, scale = np.array([-1e308, 1.0, 1e308, 2.0]), np.array([0.5, 1e-300, 1e300, 7.0])
    for by in (None, scale):
        found = additive.through(rows, [Step.affine(mean, by)])
        np.testing.assert_array_equal(found, affine(rows, mean, by))


@compiled_only
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200, 1e-200])
def test_rows_that_need_a_closer_look_are_left_to_numpy(value):
    for place in range(40):
        rows = np.ones((40, 9))
        rows[place] = value
        for step in (Step.normalize(1.0), Step.shorten(1.0)):
            assert additive.through(rows, [step]) is None


@compiled_only
@pytest.mark.parametrize("gap", [False, True])
def test_rows_are_read_through_loops_as_through_each_stage(way, gap):
    rows = rows_of(300, 20)[:, ::-1]
    if gap:
        rows[17, 3] = np.nan
    public = as_rows(np.random.default_rng(1).normal(size=(50, 20)))
    center, scale = PrivateCenter(), PublicScale(public)
    center.mean_ = np.linspace(-0.1, 0.1, 20)
    found = []
    for compiled in (True, False):
        way(compiled)
        seen = as_rows(rows, gaps=gap)
        for stage in (Normalize(0.5), center, scale.fit(public), ClipNorm(2.0)):
            seen = seen.through(stage, d=20, bound=None)
        found.append(seen.read(5, 250))
        assert isinstance(next(iter(seen.pending())), additive.Pending)
    np.testing.assert_array_equal(*found)


@compiled_only
@pytest.mark.parametrize("d", [0, 3])
def test_more_steps_than_fit_into_a_pass_and_rows_without_columns_are_read_as_well(d):
    rows = as_rows(np.ones((5, 3)))
    for radius in np.linspace(1.0, 0.1, 20):
        rows = rows.through(ClipNorm(float(radius)), d=3, bound=None)
    np.testing.assert_allclose(np.linalg.norm(rows.read(0, 5), axis=1), 0.1)
    assert additive.normalize(np.ones((5, d)), 1.0).shape == (5, d)


@compiled_only
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 16, 17, 24, 25, 33, 100, 256])
def test_second_moments_are_exact(d):
    for n in (0, 1, 63, 64, 200):
        rows = np.random.default_rng(n).integers(-(2**19), 2**19, (n, d))
        found = np.zeros((d, d))
        if not native.added(rows.astype(float), (), found):
            pytest.skip("not on this processor")
        assert (found == np.triu(rows.T @ rows)).all()


@compiled_only
@pytest.mark.parametrize("strict", [False, True])
def test_a_released_moment_is_the_same_with_and_without_compiled_loops(way, strict):
    rows, found = rows_of(500, 19), []
    for compiled in (True, False):
        way(compiled)
        found.append(
            covariance.noisy_second_moment([rows], 19, 1.0, token(1.0), size=500, strict=strict)
        )
    assert (found[0] == found[1]).all()


@compiled_only
@pytest.mark.parametrize("name", ["squares", "through", "added"])
def test_loops_that_add_in_another_order_are_not_used(monkeypatch, name):
    class Other:
        squares, through = staticmethod(native.squares), staticmethod(native.through)
        added = staticmethod(native.added)

    def squares(rows, out):
        out[...] = (rows**2)[:, ::-1].cumsum(axis=1)[:, -1]

    def through(rows, steps, out):
        squares(rows, norms := np.empty(len(rows)))
        out[...] = rows / np.sqrt(norms)[:, None]
        return True

    def added(rows, steps, onto):
        return native.added(rows[:-1], steps, onto)

    monkeypatch.delenv("TACIT_KERNELS", raising=False)
    assert additive.loops.__wrapped__() is native
    wrong = {"squares": squares, "through": through, "added": added}
    monkeypatch.setattr(Other, name, staticmethod(wrong[name]))
    monkeypatch.setattr(additive, "native", Other)
    assert additive.loops.__wrapped__() is None
    monkeypatch.setattr(additive, "native", native)
    monkeypatch.setenv("TACIT_KERNELS", "numpy")
    assert additive.loops.__wrapped__() is None


@compiled_only
def test_buffers_that_do_not_suit_each_other_are_refused():
    rows, own, out = np.zeros((4, 3)), np.zeros(4), np.zeros((4, 3))
    odd = np.zeros(8 * 12 + 1, np.uint8)[1:].view(np.float64).reshape(4, 3)
    for call, given in (
        (native.squares, (rows, np.zeros(5))),
        (native.squares, (rows.astype(np.float32), own)),
        (native.squares, (odd, own)),
        (native.squares, (own, own)),
        (native.through, (rows, (Step.normalize(1.0),), out[:, :2].copy())),
        (native.through, (rows, (Step.normalize(1.0),), out[:3])),
        (native.through, (rows, (), out)),
        (native.through, (rows, (Step.normalize(1.0),) * 9, out)),
        (native.through, (rows, (Step(7),), out)),
        (native.through, (rows, (Step.affine(own, None),), out)),
        (native.through, (rows, (Step.affine(out[0], own),), out)),
        (native.through, (rows, (Step(2),), out)),
        (native.added, (rows, (), np.zeros((4, 4)))),
        (native.added, (rows, (), np.zeros((3, 4)))),
        (native.added, (rows, (), np.zeros((4, 3)))),
        (native.added, (rows, (), np.zeros((3, 3, 3)))),
        (native.added, (rows, (), np.zeros(()))),
        (native.added, (rows, (), own)),
        (native.added, (rows, (Step(7),), own[:3])),
    ):
        with pytest.raises(ValueError, match=r"must|needs"):
            call(*given)
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        native.squares(rows[:, :2], own)
    own.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match=r"read-only|writ"):
        native.squares(rows, own)


GUARDED = """
import sys; sys.path.insert(0, {folder!r})
import numpy as np
from tests.guarded import guarded
from tacit.mechanisms import native
from tacit.mechanisms.additive import Step
for n, d in ((1, 1), (40, 1), (20, 3), (3, 7), (64, 8), (65, 25), (130, 100), (2, 300)):
    mean = guarded(np.ones(d))
    rows, own, out = guarded(np.ones((n, d))), guarded(np.ones(n)), guarded(np.ones((n, d)))
    native.squares(rows, own)
    steps = Step.normalize(2.0), Step.affine(mean, 1 + mean), Step.shorten(1.0), Step.whole(8.0)
    native.through(rows, steps, out)
    native.through(rows, steps[1:2], out)
    for these in ((), steps):
        native.added(rows, these, mean)
        native.added(rows, these, guarded(np.zeros((d, d))))
"""


@compiled_only
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_nothing_is_read_or_written_beyond_the_buffers():
    code = GUARDED.format(folder=str(Path(__file__).parents[2]))
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
