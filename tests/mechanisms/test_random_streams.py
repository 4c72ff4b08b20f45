"""Keys, streams and what finite precision costs."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import pickle
import struct
import threading
from collections.abc import Callable
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import trapezoid
from sklearn.base import clone

from tacit import DPLinearClassifier
from tacit.exceptions import InputError, TacitError
from tacit.mechanisms import discrete_gaussian as dg
from tacit.mechanisms import lattice, random_streams
from tacit.mechanisms.lattice import (
    accounted_probability,
    accounted_sigma,
    numerical_delta,
    sigma_for,
)
from tacit.mechanisms.random_streams import Key, Stream, self_test
from tacit.mechanisms.release import Releases
from tacit.preprocessing import Context, Normalize
from tacit.privacy import Gaussian
from tacit.trainers import DPGD

forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def in_child(work: Callable[[], bytes]) -> bytes:
    """Run in a forked child and return what it answers, or its error."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"the child failed"
        try:
            answer = work()
        except TacitError as error:
            answer = f"{type(error).__name__}: {error}".encode()
        finally:  # whatever happens, the child must not go on with the tests
            os.write(writable, answer)
            os._exit(0)
    os.close(writable)
    with open(readable, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


# --- Keys ----------------------------------------------------------------------------------------


def test_fresh_keys_differ_and_know_that_they_are_private() -> None:
    one, two = Key.fresh(), Key.fresh()
    assert one.seeded is False
    assert one.stream("other").seeded is False
    assert (one.stream("noise").words(4) != two.stream("noise").words(4)).all()


def test_seeded_keys_repeat_and_are_flagged() -> None:
    one, two = Key.from_seed(7), Key.from_seed(7)
    assert one.seeded is True
    assert one.stream("noise").seeded is True
    assert (one.stream("noise", 3).words(9) == two.stream("noise", 3).words(9)).all()
    assert Key.from_seed(7).stream("a").words(1) == one.stream("a").words(1)


def test_seeds_do_not_collide_across_types() -> None:
    seeds = [0, 1, -1, 10**30, "0", "1", "", "int:1"]
    words = {int(Key.from_seed(seed).stream("noise").words(1)[0]) for seed in seeds}
    assert len(words) == len(seeds)
    assert Key.from_seed(np.int64(5)).stream("a").words(1) == Key.from_seed(5).stream("a").words(1)
    for wrong in (1.5, None, True, b"x"):
        with pytest.raises(InputError, match="integer or a string"):
            Key.from_seed(wrong)


def test_an_address_opens_once() -> None:
    for key in (Key.fresh(), Key.from_seed(1)):
        key.stream("noise", 3)
        with pytest.raises(TacitError, match="used twice"):
            key.stream("noise", 3)
        key.stream("noise", 3, 1)


def test_every_address_is_its_own_stream() -> None:
    key = Key.from_seed("addresses")
    addresses = [("noise", 0, 0), ("noise", 0, 1), ("noise", 1, 0), ("batch", 0, 0), ("", 0, 0)]
    # What a careless encoding would confuse.
    addresses += [("noise1", 0, 0), ("noise\0", 0, 0), ("noise", 256, 0), ("noise", 0, 256)]
    addresses += [("nois", 0x65, 0), ("noise", 2**64 - 1, 0), ("noise", 0, 2**64 - 1), ("ü", 0, 0)]
    assert len({int(key.stream(*a).words(1)[0]) for a in addresses}) == len(addresses)


def test_addresses_outside_the_range_are_refused() -> None:
    key = Key.from_seed(0)
    for step in (-1, 2**64, 1.5):
        with pytest.raises(InputError, match="step"):
            key.stream("noise", step)
    with pytest.raises(InputError, match="worker"):
        key.stream("noise", 0, -1)


def test_words_are_those_of_the_published_definition() -> None:
    master = hashlib.blake2b(b"int:42", digest_size=32, person=b"tacit seed").digest()
    data = struct.pack("<Q", 5) + b"noise" + struct.pack("<QQ", 3, 1)
    secret = hashlib.blake2b(data, digest_size=64, key=master, person=b"tacit stream").digest()
    block = Cipher(algorithms.AES(secret[:32]), modes.ECB()).encryptor()
    stream = b"".join(block.update(i.to_bytes(16, "big")) for i in range(20_000))
    words = Key.from_seed(42).stream("noise", 3, 1).words(40_000)
    assert words.tolist() == list(struct.unpack("<40000Q", stream))


def test_golden_values() -> None:
    # These may only change together with the definition of streams.
    key = Key.from_seed(2024)
    assert key.stream("noise").words(3).tolist() == GOLDEN_WORDS
    assert key.stream("noise", 1).discrete_gaussian(0.7, 12).tolist() == GOLDEN_SMALL
    assert key.stream("noise", 2).discrete_gaussian(40.5, 8).tolist() == GOLDEN_MEDIUM
    assert key.stream("noise", 3).discrete_gaussian(2.0**50, 4).tolist() == GOLDEN_LARGE
    assert key.stream("batch").include(100, 0.1).tolist() == GOLDEN_ROWS
    np.testing.assert_allclose(key.stream("init").normal(3), GOLDEN_NORMAL, rtol=1e-13)


GOLDEN_WORDS = [14232662326472657165, 384229533772673431, 2021365349454181588]
GOLDEN_SMALL = [-1, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1]
GOLDEN_MEDIUM = [53, 44, -27, 12, 39, 5, 8, 0]
GOLDEN_LARGE = [-1273493749626381, -926309328474764, 1771517467672602, -223540148513147]
GOLDEN_ROWS = [9, 10, 17, 27, 35, 50, 64, 71, 77, 85]
GOLDEN_NORMAL = [1.3424845716561353, -0.5249055105864378, -0.22167081385123652]


# --- One copy, one process -----------------------------------------------------------------------


@pytest.mark.parametrize("make", [Key.fresh, lambda: Key.from_seed(1).stream("noise")])
def test_keys_and_streams_cannot_be_copied(make: Callable[[], object]) -> None:
    secret = make()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TacitError, match="cannot be pickled or copied"):
            pickle.dumps(secret, protocol)
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(TacitError, match="cannot be pickled or copied"):
            duplicate(secret)


def test_the_key_is_not_printed() -> None:
    key = Key.from_seed(1)
    assert repr(key) == "Key(seeded, not private)"
    assert repr(Key.fresh()) == "Key(fresh)"
    assert repr(key.stream("noise", 2)) == "Stream('noise', 2, 0, seeded, not private)"
    assert repr(Key.fresh().stream("noise")) == "Stream('noise', 0, 0)"
    assert not hasattr(key, "__dict__")


@forking
def test_a_child_does_not_repeat_fresh_noise() -> None:
    key = Key.fresh()
    stream = key.stream("noise")
    stream.words(1)  # the rest of the buffer must not survive the fork either
    from_key, from_stream = (
        in_child(lambda: key.stream("noise", 1).words(64).tobytes()),
        in_child(lambda: stream.words(64).tobytes()),
    )
    again = in_child(lambda: stream.words(64).tobytes())
    assert len(from_key) == len(from_stream) == len(again) == 512
    parent = set(stream.words(4096).tolist()) | set(key.stream("noise", 1).words(4096).tolist())
    for words in (from_key, from_stream, again):
        assert not parent & set(np.frombuffer(words, dtype=np.uint64).tolist())
    assert from_stream != again


@forking
def test_a_child_that_draws_later_does_not_repeat_either() -> None:
    stream = Key.fresh().stream("noise")
    ours = stream.discrete_gaussian(2.0**40, 10)
    theirs = in_child(lambda: stream.discrete_gaussian(2.0**40, 10).tobytes())
    assert not set(ours.tolist()) & set(np.frombuffer(theirs, dtype=np.int64).tolist())


@forking
def test_a_recycled_process_id_does_not_hide_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    stream = Key.fresh().stream("noise")
    child = in_child(lambda: stream.words(8).tobytes())
    assert child != stream.words(8).tobytes()


def test_another_process_id_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, seeded = Key.fresh(), Key.from_seed(1)
    before, old = fresh.stream("noise").words(4), seeded.stream("noise")
    monkeypatch.setattr(os, "getpid", lambda: -5)
    assert (fresh.stream("noise").words(4) != before).all()
    with pytest.raises(TacitError, match="forked child"):
        seeded.stream("noise")
    with pytest.raises(TacitError, match="forked child"):
        old.words(1)


@forking
def test_seeded_keys_and_streams_raise_in_a_child() -> None:
    key = Key.from_seed(1)
    stream = key.stream("noise")
    assert b"TacitError: a seeded Key" in in_child(lambda: key.stream("noise").words(1).tobytes())
    for draw in (
        lambda: stream.words(1).tobytes(),
        lambda: stream.discrete_gaussian(3.0, 1).tobytes(),
        lambda: stream.include(5, 0.5).tobytes(),
        lambda: stream.normal(1).tobytes(),
        lambda: stream.uniform(1).tobytes(),
    ):
        assert b"TacitError: a seeded Stream" in in_child(draw)
    assert stream.words(1) == Key.from_seed(1).stream("noise").words(1)


@forking
def test_a_child_is_not_stopped_by_a_draw_that_was_under_way() -> None:
    stream = Key.fresh().stream("noise")
    with stream.lock:
        assert len(in_child(lambda: stream.words(2).tobytes())) == 16


@forking
def test_children_of_children_do_not_repeat_either() -> None:
    key = Key.fresh()
    stream = key.stream("noise")

    def words() -> bytes:
        return stream.words(16).tobytes() + key.stream("noise", 1).words(16).tobytes()

    def family() -> bytes:
        before = words()  # made anew here, and again in the grandchild
        return before + in_child(lambda: stream.words(32).tobytes())

    found = [family(), in_child(family), in_child(lambda: in_child(family)), stream.words(64)]
    numbers = np.concatenate([np.frombuffer(part, dtype=np.uint64) for part in found])
    assert numbers.size == 4 * 64
    assert np.unique(numbers).size == numbers.size


@forking
def test_a_fit_in_a_child_has_noise_of_its_own() -> None:
    # The model is made, and a key of the parent used, before the fork.
    rows = np.random.default_rng(0).normal(size=(200, 3))
    model = DPLinearClassifier(1.0, 1e-4, stages=[Normalize()], trainer=DPGD(steps=2))
    labels = (rows[:, 0] > 0).astype(int)
    ours = model.fit(rows, labels).coef_.copy()

    def fitted() -> bytes:
        return model.fit(rows, labels).coef_.tobytes()

    found = [ours.tobytes(), in_child(fitted), in_child(fitted), fitted()]
    assert all(len(part) == ours.nbytes for part in found)
    assert len(set(found)) == 4


def test_every_fit_asks_the_operating_system_for_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = os.urandom

    def urandom(count: int) -> bytes:
        asked.append(count)
        return real(count)

    monkeypatch.setattr(os, "urandom", urandom)
    rows = np.random.default_rng(0).normal(size=(200, 3))
    model = DPLinearClassifier(1.0, 1e-4, stages=[Normalize()], trainer=DPGD(steps=2))
    found = [model.fit(rows, (rows[:, 0] > 0).astype(int)).coef_.copy() for _ in range(3)]
    assert asked == [32] * 3
    assert not (found[0] == found[1]).any()
    assert not (found[1] == found[2]).any()
    seeded = clone(model).set_params(random_state=3)
    seeded.fit(rows, (rows[:, 0] > 0).astype(int))
    assert asked == [32] * 3
    assert "seeded: not for release" in seeded.certificate_.reasons


def test_what_holds_a_key_cannot_be_copied_with_it() -> None:
    run = Releases(Key.fresh(), [("Mean", Gaussian(1.0))])
    token = run.token("Mean")
    context = Context(3, token, run.public)
    for holder in (run, token, run.public, context):
        for duplicate in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TacitError, match="cannot be pickled or copied"):
                duplicate(holder)
    assert copy.copy(context).token is token  # the very token, of which units are drawn once


def test_subkeys_follow_the_definition_for_every_step_and_worker() -> None:
    master = hashlib.blake2b(b"int:5", digest_size=32, person=b"tacit seed").digest()
    key, firsts = Key.from_seed(5), set()
    for label in ("noise", "batch"):
        for step in (0, 1, 255, 256, 2**32, 2**64 - 1):
            for worker in (0, 1, 2**40):
                name = label.encode()
                data = struct.pack("<Q", len(name)) + name + struct.pack("<QQ", step, worker)
                secret = hashlib.blake2b(
                    data, digest_size=64, key=master, person=b"tacit stream"
                ).digest()
                stream = key.stream(label, step, worker)
                words = stream.words(2)
                block = Cipher(algorithms.AES(secret[:32]), modes.ECB()).encryptor()
                assert words.tobytes() == block.update(bytes(16))
                behind = Cipher(algorithms.AES(secret[32:]), modes.CTR((8).to_bytes(16, "big")))
                data = behind.encryptor().update(bytes(48))  # four blocks for each word before
                halves = (int.from_bytes(half, "little") for half in (data[:24], data[24:]))
                assert stream.long_numbers(0) == tuple(halves)
                firsts.add(words.tobytes())
    assert len(firsts) == 2 * 6 * 3


def test_streams_of_one_key_are_not_related() -> None:
    # Neighbouring steps and workers, as a training uses them.
    key = Key.from_seed("related")
    z = np.array(
        [key.stream("noise", step, worker).words(400) for step in range(20) for worker in range(5)]
    )
    signs = np.where(z >> np.uint64(63), 1.0, -1.0)
    related = signs @ signs.T / signs.shape[1]
    apart = related[~np.eye(len(z), dtype=bool)]
    assert np.abs(apart).max() < 6.5 / math.sqrt(400)  # 4950 pairs: seeded, and 4e-7 by chance


def test_threads_do_not_share_numbers() -> None:
    stream = Key.fresh().stream("noise")
    found: list[np.ndarray] = []

    def work() -> None:
        found.extend(stream.words(100) for _ in range(300))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.unique(np.concatenate(found)).size == 4 * 300 * 100


# --- Streams -------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), max_size=6),
    sigma=st.sampled_from([0.05, 0.7, 20.0, 33.0, 2.0**50]),
)
def test_the_numbers_do_not_depend_on_how_they_are_asked_for(
    sizes: list[int], sigma: float
) -> None:
    for draw in (
        lambda stream, n: stream.discrete_gaussian(sigma, n),
        lambda stream, n: stream.words(n),
        lambda stream, n: stream.normal(n),
        lambda stream, n: stream.uniform(n),
    ):
        parts = Key.from_seed("split").stream("noise")
        found = [draw(parts, n) for n in sizes]
        whole = Key.from_seed("split").stream("noise")
        expected = draw(whole, sum(sizes))
        np.testing.assert_array_equal(np.concatenate([expected[:0], *found]), expected)
        if sizes and sizes[-1]:
            assert parts.words(1) == whole.words(1)


def test_large_calls_continue_small_ones() -> None:
    one, two = (Key.from_seed("large").stream("noise") for _ in range(2))
    parts = [one.discrete_gaussian(1000.0, n) for n in (1, 8191, 8192, 30_000, 3)]
    np.testing.assert_array_equal(np.concatenate(parts), two.discrete_gaussian(1000.0, 46_387))
    assert one.words(1) == two.words(1)


def test_methods_share_one_sequence() -> None:
    mixed, plain = (Key.from_seed("mixed").stream("noise") for _ in range(2))
    mixed.include(1001, 0.3)
    mixed.normal(5)
    mixed.uniform(20_000)
    assert mixed.words(1)[0] == plain.words(21_007)[-1]


def test_the_position_after_a_draw_is_that_of_its_last_attempt() -> None:
    # So a change of sigma in between never uses a word twice, nor leaves one out.
    stream = Key.from_seed("position").stream("noise")
    words = Key.from_seed("position").stream("noise").words(4000)
    table, used = dg.table(20.0), 0
    draws: list[int] = []
    while len(draws) < 500:
        values, kept = dg.attempt(words[used : used + 2], table, lambda _: (0, 0))
        draws += values[kept].tolist()
        used += 2
    assert stream.discrete_gaussian(20.0, 500).tolist() == draws
    assert stream.words(1)[0] == words[used]


@pytest.mark.parametrize("method", ["words", "normal", "uniform"])
def test_counts_are_checked(method: str) -> None:
    stream = Key.from_seed(0).stream("noise")
    assert getattr(stream, method)(0).size == 0
    for wrong in (-1, 2.0, "3"):
        with pytest.raises(InputError, match="count"):
            getattr(stream, method)(wrong)


def test_discrete_gaussian_checks_its_arguments() -> None:
    stream = Key.from_seed(0).stream("noise")
    assert stream.discrete_gaussian(1.0, 0).dtype == np.int64
    for sigma in (0.0, -2.0, math.nan, math.inf, 2.0**60):
        with pytest.raises(InputError, match="sigma"):
            stream.discrete_gaussian(sigma, 1)
    with pytest.raises(InputError, match="count"):
        stream.discrete_gaussian(1.0, -1)


def test_uniforms_are_uniform() -> None:
    u = Key.from_seed("uniform").stream("init").uniform(1_000_000)
    assert u.dtype == np.float64
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert stats.chisquare(np.bincount((u * 1000).astype(int), minlength=1000)).pvalue > 1e-3
    assert ((u * 2**53) == np.floor(u * 2**53)).all()


@pytest.mark.parametrize("name", ["normal", "single_normal"])
def test_normals_are_normal(name: str) -> None:
    z = getattr(Key.from_seed(name).stream("noise"), name)(1_000_000)
    assert z.shape == (1_000_000,) and z.dtype == np.float64
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs((z**4).mean() - 3) < 4 * math.sqrt(96 / z.size)
    assert abs(np.count_nonzero(np.abs(z) > 4) - z.size * 2 * stats.norm.sf(4)) < 4 * math.sqrt(64)


def test_normals_are_finite_at_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.array([0, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(Stream, "words", lambda self, count: ends.copy())
    z = Key.from_seed(0).stream("noise").normal(4)
    np.testing.assert_allclose(z, [9.155, 0.0, -9.155, 0.0], atol=0.001)


def test_normals_of_single_precision_follow_their_definition_and_reach_far() -> None:
    words = Key.from_seed("pairs").stream("noise").words(12)
    for count in (11, 12):
        z = Key.from_seed("pairs").stream("noise").single_normal(count)
        for i in range(count):
            u, v = (int(words[i % 6]) >> 11) + 0.5, int(words[6 + i % 6]) >> 40
            turn = math.cos if i < 6 else math.sin
            wanted = math.sqrt(-2 * math.log(u / 2**53)) * turn(math.tau * v / 2**24)
            assert z[i] == pytest.approx(wanted, abs=4e-6)
    z = Key.from_seed("independent").stream("noise").single_normal(2**21)
    halves = z.reshape(-1, 2, dg.BLOCK)  # the two of a pair
    assert abs(np.mean(halves[:, 0] * halves[:, 1])) < 4.5 / 2**10
    assert abs(np.mean(halves[:, 0] ** 2 * halves[:, 1] ** 2) - 1) < 4.5 * math.sqrt(8) / 2**10


def test_normals_of_single_precision_are_finite_at_the_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = np.array([0, 2**64 - 1, 0, 0], dtype=np.uint64)
    monkeypatch.setattr(Stream, "words", lambda self, count: ends.copy())
    z = Key.from_seed(0).stream("noise").single_normal(4)
    np.testing.assert_allclose(z, [8.652, 0.0, 0.0, 0.0], atol=0.001)


# --- Poisson samples -----------------------------------------------------------------------------


def test_rows_are_included_at_the_rate_asked_for() -> None:
    stream = Key.from_seed("rate").stream("batch")
    for q in (0.001, 0.01, 0.3, 0.9):
        rows = stream.include(1_000_000, q)
        assert rows.dtype == np.intp
        assert (np.diff(rows) > 0).all()
        assert abs(rows.size - 1e6 * q) < 4.5 * math.sqrt(1e6 * q * (1 - q))
        # Spread evenly over the rows.
        cells = np.bincount(rows // 10_000, minlength=100)
        assert stats.chisquare(cells).pvalue > 1e-3


def test_the_rule_of_inclusion() -> None:
    words = Key.from_seed("rule").stream("batch").words(40_000)
    expected = np.flatnonzero(words < np.uint64(math.ceil(Fraction(0.1) * 2**64)))
    found = Key.from_seed("rule").stream("batch").include(40_000, 0.1)
    np.testing.assert_array_equal(found, expected)


def test_certain_and_empty_samples() -> None:
    stream = Key.from_seed("ends").stream("batch")
    assert stream.include(50_000, 0.0).size == 0
    np.testing.assert_array_equal(stream.include(50_000, 1.0), np.arange(50_000))
    np.testing.assert_array_equal(stream.include(5, 1), np.arange(5))
    for q in (0.0, 0.5, 1.0):
        assert stream.include(0, q).size == 0
        assert stream.include(0, q).dtype == np.intp


def test_samples_check_their_arguments() -> None:
    stream = Key.from_seed(0).stream("batch")
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(InputError, match="probability"):
            stream.include(5, q)
        with pytest.raises(InputError, match="probability"):
            accounted_probability(q)
    with pytest.raises(InputError, match="n is"):
        stream.include(-5, 0.5)


@given(st.floats(0.0, 1.0))
def test_the_accounted_probability_is_never_below_the_real_one(q: float) -> None:
    real = Fraction(math.ceil(Fraction(q) * 2**64), 2**64)
    accounted = accounted_probability(q)
    assert real <= Fraction(accounted) <= 1
    assert Fraction(math.nextafter(accounted, 0.0)) < real or accounted == 0.0
    if q >= 2.0**-12 or q == 0.0:
        assert accounted == q


# --- Accounting ----------------------------------------------------------------------------------


@given(st.floats(64.0, 2.0**57))
def test_the_accounted_sigma_is_rounded_down_by_less_than_an_ulp(sigma: float) -> None:
    accounted = accounted_sigma(sigma)
    exact = Fraction(sigma) ** 2 - 9
    assert Fraction(accounted) ** 2 <= exact < Fraction(math.nextafter(accounted, math.inf)) ** 2


@given(st.floats(63.95, 2.0**57))
def test_sigma_for_is_the_least_that_covers(wanted: float) -> None:
    sigma = sigma_for(wanted)
    assert accounted_sigma(sigma) >= wanted
    below = math.nextafter(sigma, 0.0)
    assert below < 64.0 or accounted_sigma(below) < wanted


def test_small_sigmas_are_refused_with_advice() -> None:
    for sigma in (63.9, 0.0, -100.0, math.nan, math.inf, 2.0**58):
        with pytest.raises(InputError, match="finer lattice"):
            accounted_sigma(sigma)
        with pytest.raises(InputError, match="finer lattice"):
            sigma_for(sigma)


def gaussian_profile(sigma: float, shift: float, epsilon: np.ndarray) -> np.ndarray:
    """Balle and Wang (ICML 2018), Theorem 8."""
    a, b = shift / (2 * sigma), epsilon * sigma / shift
    return stats.norm.cdf(a - b) - np.exp(epsilon) * stats.norm.cdf(-a - b)


def discrete_pmf(sigma: float, x: np.ndarray) -> np.ndarray:
    p = np.exp(-(x.astype(float) ** 2) / (2 * sigma**2))
    return p / p.sum()


@pytest.mark.parametrize("sigma", [64.0, 100.3, 1000.0])
@pytest.mark.parametrize("multiple", [0.2, 1.0, 2.5])
def test_the_discrete_gaussian_is_no_less_private_than_accounted(
    sigma: float, multiple: float
) -> None:
    shift = round(multiple * sigma)
    x = np.arange(-int(16 * sigma), int(16 * sigma) + 1)
    p = discrete_pmf(sigma, x)
    q = np.exp(-((x - shift).astype(float) ** 2) / (2 * sigma**2))
    q *= p[0] / np.exp(-(float(x[0]) ** 2) / (2 * sigma**2))
    for epsilon in np.linspace(0.0, multiple**2 / 2 + 4 * multiple, 60):
        discrete = np.maximum(p - np.exp(epsilon) * q, 0.0).sum()
        accounted = gaussian_profile(accounted_sigma(sigma), shift, epsilon)
        assert discrete <= accounted * (1 + 1e-9) + 1e-15


def test_the_same_holds_for_vectors() -> None:
    sigma, shift = 64.0, (40, 55)
    x = np.arange(-700, 701)
    p = discrete_pmf(sigma, x)
    q = [discrete_pmf(sigma, x - s) for s in shift]
    joint, moved = np.outer(p, p), np.outer(*q)
    for epsilon in np.linspace(0.0, 4.0, 9):
        discrete = np.maximum(joint - np.exp(epsilon) * moved, 0.0).sum()
        accounted = gaussian_profile(accounted_sigma(sigma), math.hypot(*shift), epsilon)
        assert discrete <= accounted * (1 + 1e-9)


def test_without_the_reduction_the_claim_would_be_false() -> None:
    # At a scale where the lattice shows: otherwise the tests above could not fail.
    sigma = 1.5
    x = np.arange(-40, 41)
    p, q = discrete_pmf(sigma, x), discrete_pmf(sigma, x - 1)
    worst = max(
        np.maximum(p - np.exp(e) * q, 0.0).sum() - gaussian_profile(sigma, 1.0, e)
        for e in np.linspace(0.0, 2.0, 200)
    )
    assert worst > 1e-4


@pytest.mark.parametrize("s", [0.45, 0.6, 0.8])
@pytest.mark.parametrize("centre", [0, 3])
def test_rounding_a_continuous_gaussian_gives_the_discrete_one(s: float, centre: int) -> None:
    # The lemma behind accounted_sigma, at scales where its error term is large enough to see.
    sigma0 = 1.7
    sigma = math.hypot(sigma0, s)
    kappa = 2 * sum(math.exp(-2 * (math.pi * s * j) ** 2) for j in range(1, 10))
    y = np.linspace(centre - 20, centre + 20, 200_001)
    density = np.exp(-((y - centre) ** 2) / (2 * sigma0**2)) / (sigma0 * math.sqrt(2 * math.pi))
    k = np.arange(centre - 30, centre + 31)
    normaliser = sum(np.exp(-((j - y) ** 2) / (2 * s**2)) for j in k)
    target = discrete_pmf(sigma, k - centre)
    for j in range(centre - 6, centre + 7):
        kernel = np.exp(-((j - y) ** 2) / (2 * s**2)) / normaliser
        rounded = trapezoid(density * kernel, y)
        ratio = math.log(rounded / target[j - k[0]])
        assert abs(ratio) <= 2 * kappa


def test_the_lattice_charge_is_bounded() -> None:
    with mp.workprec(200):
        kappa = 2 * mp.nsum(lambda j: mp.exp(-2 * mp.pi**2 * 9 * j**2), [1, mp.inf])
        assert kappa < mp.mpf(lattice.KAPPA)


@given(st.integers(1, 10**15), st.floats(0.0, 100.0))
def test_numerical_delta_covers_every_term(draws: int, epsilon: float) -> None:
    with mp.workprec(600):
        e, m, kappa = mp.exp(mp.mpf(epsilon)), mp.mpf(draws), mp.mpf(2) ** -255
        sampler = (1 + e) * m * mp.mpf(2) ** -180
        lattice = (mp.exp(2 * m * kappa) - 1) + e * (mp.exp(4 * m * kappa) - 1)
        bound = numerical_delta(draws, epsilon)
        assert min(sampler + lattice, 1) <= bound <= min(sampler * 1.0001, 1)


def test_numerical_delta_at_the_ends() -> None:
    assert numerical_delta(0, 1.0) == 0.0
    assert 0.0 < numerical_delta(1, 0.0) < 1e-53
    assert numerical_delta(1, 1e6) == numerical_delta(1, math.inf) == 1.0
    assert numerical_delta(3 * 10**9, 8.0) < 1e-40
    for draws, epsilon in ((-1, 1.0), (1, -1.0), (1, math.nan)):
        with pytest.raises(InputError):
            numerical_delta(draws, epsilon)


# --- Self-test -----------------------------------------------------------------------------------


def test_the_self_test_passes() -> None:
    self_test()


def test_a_wrong_cipher_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = random_streams.counter_mode
    monkeypatch.setattr(random_streams, "counter_mode", lambda key, block: right(key, block + 1))
    monkeypatch.setattr(random_streams.Process, "tested", False)
    with pytest.raises(TacitError, match="AES-256"):
        Key.fresh()


def test_a_wrong_exponential_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.exp
    monkeypatch.setattr(np, "exp", lambda x, **kw: right(x * np.float32(1.00001), **kw))
    with pytest.raises(TacitError, match="exp"):
        self_test()


def test_a_wrong_sampler_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = dg.table
    monkeypatch.setattr(dg, "table", lambda sigma: right(sigma * 1.01))
    with pytest.raises(TacitError, match="discrete Gaussian"):
        self_test()
