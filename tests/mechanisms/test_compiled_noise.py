"""Compiled noise: the integers of NumPy, on every kind of processor; and memory used again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kstest

from tacit.mechanisms import discrete_gaussian as dg
from tacit.mechanisms.memory import LARGE, Memory
from tacit.mechanisms.random_streams import Key, Stream

compiled_only = pytest.mark.skipif(dg.native is None, reason="no compiler where this was installed")
LEVELS = range(dg.native.levels() if dg.native else 0)


@pytest.fixture
def way(monkeypatch):
    """Switch to compiled loops of a level, or to NumPy."""

    def switch(level):
        monkeypatch.setattr(dg, "compiled", lambda: None if level is None else dg.native)
        monkeypatch.setattr(dg, "level", lambda: level)

    return switch


def drawn(sigma, counts):
    stream = Key.from_seed("compiled").stream("noise")
    found = [stream.discrete_gaussian(sigma, count) for count in counts]
    return np.concatenate([*found, stream.words(1).view(np.int64)])  # and where it stands then


@compiled_only
@pytest.mark.parametrize(
    "sigma", [1e-300, 0.3, 0.75, 20.0, 31.99, 32.0, 1000.3, 2.0**24 * 17, 2.0**40 / 3, 2.0**57.9]
)
def test_integers_are_the_same_with_and_without_compiled_loops(way, sigma):
    counts = (1, 2, 255, 257, 0, 16_000, 40_000)
    way(None)
    expected = drawn(sigma, counts)
    for level in LEVELS:
        way(level)
        assert np.array_equal(drawn(sigma, counts), expected), level


@compiled_only
@pytest.mark.parametrize("sigma", [0.75, 20.0, 1000.3, 2.0**40 / 3])
def test_attempts_that_are_left_open_are_decided_as_they_would_have_been(way, sigma, monkeypatch):
    way(None)
    expected = drawn(sigma, (3000,))
    opened = []
    decide = dg.decide

    def counted(*given):
        opened.append(given)
        return decide(*given)

    monkeypatch.setattr(dg, "decide", counted)
    for f, v in ((2**22, 2.0**11), (0, 2.0**24), (2**23, 2.0**25)):
        monkeypatch.setattr(dg, "ALIAS_MARGIN", f)
        monkeypatch.setattr(dg, "ACCEPT_MARGIN", v)
        for level in LEVELS:
            way(level)
            opened.clear()
            assert np.array_equal(drawn(sigma, (3000,)), expected)
            assert len(opened) > 50 or (sigma < 32 and not f)  # where M = 1, v decides nothing


@compiled_only
@pytest.mark.parametrize("sigma", [0.75, 20.0, 1000.3, 2.0**50])
def test_one_attempt_by_itself_is_that_of_the_array(sigma):
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, 2000, dtype=np.uint64)
    words[:40] &= np.uint64(2**63 + 2**28 - 1)  # minus zeros among them
    more = [tuple(int(part) for part in pair) for pair in rng.integers(0, 2**63, (1000, 2))]
    table = dg.table(sigma)
    values, kept = (part.copy() for part in dg.attempt(words, table, lambda i: more[i]))
    for i, (first, second) in enumerate(words.reshape(-1, 2).tolist()):
        x, is_one = dg.decide(first, second, table, more[i])
        assert is_one == kept[i] and (x == values[i] or not is_one)


@compiled_only
def test_single_normals_agree_to_single_precision_and_are_normal(way):
    found = {}
    for level in (None, *LEVELS):
        way(level)
        stream = Key.from_seed(1).stream("normals")
        found[level] = np.concatenate([stream.single_normal(k) for k in (1, 7, 200_001)])
        assert kstest(found[level], "norm").pvalue > 1e-4
    for level in LEVELS:
        assert found[level] == pytest.approx(found[None], rel=1e-5, abs=3e-6)
    # The ends of what words can say.
    ends = np.array([0, 2**64 - 1, 0, 2**64 - 1, 0, 0, 2**62, 2**63], np.uint64)
    for level in LEVELS:
        out = np.empty(8)
        dg.native.normals(level, ends, out)
        assert np.abs(out).max() == pytest.approx(8.65, abs=0.01) and np.isfinite(out).all()


@compiled_only
def test_buffers_of_noise_that_do_not_suit_are_refused():
    table, words, out = dg.table(20.0), np.zeros(8, np.uint64), np.zeros(4, np.int64)
    good = [0, words, table.columns, table.shift, 0.001, 0, 2048.0, out]
    dg.native.draws(*good)
    bad = [(0, -1), (0, 99), (1, out), (2, table.columns[:9]), (3, 54), (3, -1), (7, words)]
    for place, value in bad:
        with pytest.raises(ValueError, match=r"must|needs"):
            dg.native.draws(*(value if i == place else part for i, part in enumerate(good)))
    for level, some, onto in (
        (0, words[:3], np.zeros(3)),
        (0, words, np.zeros(6)),
        (9, words, out),
    ):
        with pytest.raises(ValueError, match=r"must|needs"):
            dg.native.normals(level, some, onto)


GUARDED = """
import sys; sys.path.insert(0, {folder!r})
import numpy as np
from tests.guarded import guarded
from tacit.mechanisms import discrete_gaussian as dg, native
words = np.random.default_rng(0).integers(0, 2**64, 2000, dtype=np.uint64)
for level in range(native.levels()):
    for sigma in (0.5, 20.0, 2.0**50):
        table = dg.table(sigma)
        for n in (0, 1, 255, 256, 257, 1000):
            for m in (1, n // 2 + 1, n + 1):
                out = guarded(np.zeros(m, np.int64))
                columns = guarded(table.columns)
                used, found = native.draws(
                    level, guarded(words[: 2 * n]), columns, table.shift, 0.001, 0, 2048.0, out
                )
                assert used <= n and found <= m
    for n in (0, 2, 14, 16, 34):
        native.normals(level, guarded(words[:n]), guarded(np.zeros(n)))
"""


@compiled_only
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_noise_reads_and_writes_nothing_beyond_the_buffers():
    code = GUARDED.format(folder=str(Path(__file__).parents[2]))
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_memory_is_used_again_once_nobody_holds_it():
    memory, count = Memory(), LARGE // 8
    first = memory.empty(count, np.float64)
    place = first.ctypes.data
    part = first.reshape(2, -1)[1, 3:]
    del first
    second = memory.empty(count, np.float64)
    assert second.ctypes.data != place  # a part of the first is held
    part[:] = 1.0
    del part
    third = memory.empty(count, np.int64)
    assert third.ctypes.data == place and third.dtype == np.int64
    assert memory.empty(2 * count, np.float64).size == 2 * count
    small = memory.empty(3, np.float32)
    assert small.shape == (3,) and small.flags.owndata


def test_large_noise_is_that_of_small_pieces():
    """Sums are added to in pieces: what a stream gives does not depend on that."""
    count = 150_001
    for draw in (
        lambda stream, n: stream.discrete_gaussian(300.5, n),
        lambda stream, n: stream.normal(n),
        lambda stream, n: stream.single_normal(n),
    ):
        whole: Stream = Key.from_seed(2).stream("pieces")
        parts: Stream = Key.from_seed(2).stream("pieces")
        pieces = [draw(parts, n) for n in (1 << 16, 1 << 16, count - (1 << 17))]
        assert np.array_equal(draw(whole, count), np.concatenate(pieces))
