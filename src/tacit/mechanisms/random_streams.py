"""Keys, streams of random numbers, and what their finite precision costs.

One fit owns one :class:`Key`. Whatever needs randomness asks the key for a :class:`Stream` by
label, step and worker, so results do not depend on the order in which things are scheduled.

The generator is AES-256 in counter mode. Streams are pseudo-random, hence the guarantee is
computational: to the δ of :func:`~tacit.mechanisms.lattice.numerical_delta` belongs δ_AES, the
advantage of the best attack on AES-256 and on keyed BLAKE2b (which derives the keys of streams),
plus at most q²·2^-129 for each stream of q blocks (a counter mode never repeats a block; a draw
takes one block or little more). It is not a number that anyone can compute, so it is stated here
and not added.

Stream definition
-----------------
Word i of a stream is bytes 8i to 8i + 7 of the AES-256-CTR key stream (counter from 0), read
little-endian. All methods read words in order, and leave the position just behind the last word
that their result depends on. So asking for 10 draws and then 20 gives the same numbers as asking
for 30, and integers are the same on every platform (normals agree up to the last bits).
"""

from __future__ import annotations

import hashlib
import math
import operator
import os
import struct
import sys
import threading
from collections.abc import Iterator
from itertools import accumulate
from typing import NoReturn, SupportsIndex

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.exceptions import InputError, MachineError, TacitError
from tacit.mechanisms import discrete_gaussian as dg
from tacit.mechanisms.lattice import inclusion_threshold

_WORDS = 2 * dg.BLOCK  # generated at most at a time
_PREFETCH = 2048  # words generated at least: a call to the cipher costs about as much as these
_FIRST = 256  # the first time: most streams are read once
_ZEROS = memoryview(bytes(8 * _WORDS))
_SPARE = 2  # words; older versions of the cipher want room for one more block


# --- Processes -----------------------------------------------------------------------------------


class Process:
    """What this process knows about itself."""

    forks = 0  # counted, since a grandchild may be given the process id of its grandparent
    rekeying = threading.Lock()
    tested = False

    @classmethod
    def forked(cls) -> None:
        cls.forks += 1
        cls.rekeying = threading.Lock()

    @classmethod
    def name(cls) -> tuple[int, int]:
        return os.getpid(), cls.forks


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Process.forked)


class _Secret:
    """Something that must exist once: in one process, in one copy, and not in print."""

    __slots__ = ("_process", "_seeded", "lock")

    def __init__(self, *, seeded: bool) -> None:
        self._seeded = seeded
        self._process = Process.name()
        self.lock = threading.Lock()

    @property
    def seeded(self) -> bool:
        """Whether this comes from a seed, and is therefore not private."""
        return self._seeded

    def _rekey(self) -> None:
        raise TypeError("a secret says how it is renewed")

    def _here(self) -> threading.Lock:
        """Return the lock to hold while drawing, having made sure that no parent draws the same."""
        process = Process.name()
        if self._process != process:
            name = type(self).__name__
            if self._seeded:
                raise TacitError(
                    f"a seeded {name} was made in another process; used in a forked child it "
                    f"would repeat the noise of its parent. Make the {name} in the child, from "
                    "its own seed."
                )
            with Process.rekeying:
                if self._process != process:
                    self.lock = threading.Lock()  # the parent may have been drawing
                    self._rekey()
                    self._process = process
        return self.lock

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        name = type(self).__name__
        raise TacitError(
            f"a {name} cannot be pickled or copied: two copies would draw the same noise, and "
            f"noise that is used twice protects nothing. Pass the {name} itself within a process, "
            "and make a new Key in another one."
        )


# --- Keys ----------------------------------------------------------------------------------------


class Key(_Secret):
    """The master key of one fit, from which all its randomness is derived.

    Make one with :meth:`fresh`, or in tests with :meth:`from_seed`. In a forked child a fresh
    key becomes another fresh key, and a seeded one raises. Keys cannot be pickled or copied.

    Parameters
    ----------
    master : bytes
        32 bytes, which nobody else knows.

    Attributes
    ----------
    seeded : bool
        Whether the key comes from a seed. Results are then *not private*: whoever knows the seed
        can subtract the noise, and two fits with one seed cancel it.

    Examples
    --------
    >>> key = Key.from_seed("an example")
    >>> key
    Key(seeded, not private)
    >>> key.stream("noise", step=3).discrete_gaussian(2.5, 4).shape
    (4,)
    """

    __slots__ = ("_master", "_opened")

    def __init__(self, master: bytes, *, seeded: bool) -> None:
        if not Process.tested:
            self_test()
            Process.tested = True
        super().__init__(seeded=seeded)
        self._master = master
        self._opened: set[bytes] = set()

    @classmethod
    def fresh(cls) -> Key:
        """Make a key from 32 bytes of the operating system: the one to use on private rows.

        Returns
        -------
        Key
            Not seeded.
        """
        return cls(os.urandom(32), seeded=False)

    @classmethod
    def from_seed(cls, seed: int | str) -> Key:
        """Make a key from a seed, for tests: what it gives is not private.

        Parameters
        ----------
        seed : int or str
            The same seed gives the same key.

        Returns
        -------
        Key
            Seeded.
        """
        if isinstance(seed, str):
            data = b"str:" + seed.encode()
        elif isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
            data = b"int:%d" % int(seed)
        else:
            raise InputError(f"seed is {seed!r}; pass an integer or a string.")
        return cls(
            hashlib.blake2b(data, digest_size=32, person=b"tacit seed").digest(), seeded=True
        )

    def stream(self, label: str, step: int = 0, worker: int = 0) -> Stream:
        """Return the stream of this label, step and worker, from its beginning.

        Parameters
        ----------
        label : str
            What the numbers are for, such as ``"noise"``, ``"batch"`` or ``"init"``.
        step, worker : int
            From 0 to 2^64 - 1.

        Returns
        -------
        Stream
            Every address can be opened once: noise that is drawn twice protects nothing.
        """
        name = label.encode()
        step, worker = _index(step, "step", 2**64), _index(worker, "worker", 2**64)
        # Fixed lengths, and the length of what varies: no two addresses share an encoding.
        data = struct.pack("<Q", len(name)) + name + struct.pack("<QQ", step, worker)
        with self._here():
            if data in self._opened:
                raise TacitError(
                    f"the stream {label!r}, {step}, {worker} of this key was opened before; its "
                    "noise would be used twice. Use another step or worker, or a new Key."
                )
            self._opened.add(data)
        secret = hashlib.blake2b(data, digest_size=64, key=self._master, person=b"tacit stream")
        return Stream(secret.digest(), seeded=self._seeded, name=f"{label!r}, {step}, {worker}")

    def child(self, label: str, step: int = 0) -> Key:
        """Return a key of its own for a part of the fit, such as one trial among several.

        It is made of the words of this key's stream of that address, which is thereby opened.

        Parameters
        ----------
        label : str
            What it is for.
        step : int
            Which one of several.

        Returns
        -------
        Key
            Seeded if this one is.
        """
        words = self.stream(label, step).words(4)
        return Key(words.astype(np.dtype("<u8")).tobytes(), seeded=self._seeded)

    def _rekey(self) -> None:
        self._master = os.urandom(32)
        self._opened = set()

    def __repr__(self) -> str:
        return "Key(seeded, not private)" if self._seeded else "Key(fresh)"


# --- Streams -------------------------------------------------------------------------------------


class Stream(_Secret):
    """Random numbers in a defined order; see the top of this module for the definition.

    Made by :meth:`Key.stream`. In a forked child a stream of a fresh key starts anew from the
    operating system, and one of a seeded key raises. Streams cannot be pickled or copied. Calls
    from several threads do not repeat numbers, but their order is then left to chance: take one
    stream for each thread.

    Parameters
    ----------
    secret : bytes
        64 bytes: the key of the words, and that of the long numbers of the discrete Gaussian.
    seeded : bool
        Whether the secret comes from a seed.
    name : str
        What ``repr`` shows.
    """

    __slots__ = (
        "_buffer",
        "_cipher",
        "_end",
        "_least",
        "_long_key",
        "_name",
        "_position",
        "_start",
    )

    def __init__(self, secret: bytes, *, seeded: bool, name: str) -> None:
        super().__init__(seeded=seeded)
        self._name = name
        self._open(secret)

    @property
    def name(self) -> str:
        """Label, step and worker that it was opened with."""
        return self._name

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next 64-bit words."""
        count = _index(count, "count")
        out = np.empty(count, dtype=np.uint64)
        with self._here():
            for done, words in self._blocks(count):
                out[done : done + words.size] = words
        return out

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return numbers in [0, 1): the top 53 bits of a word each."""
        words = self.words(count)
        words >>= np.uint64(11)
        return words.astype(np.float64) * 2.0**-53

    def normal(self, count: int) -> NDArray[np.float64]:
        """Return standard normals in ordinary floating point, one word each.

        They stand for real numbers in ``arithmetic="fast"``, where ideal arithmetic is assumed.
        Added to private sums they leak through their low bits (Mironov, CCS 2012); use
        :meth:`discrete_gaussian` where that matters.
        """
        out = np.empty(_index(count, "count"))
        for done in range(0, len(out), _WORDS):  # pieces that fit the cache
            words = self.words(min(len(out) - done, _WORDS))
            # The quantile of a number in (0, 1/2] from 63 bits, and a sign: accurate to the last
            # of the tail, at 9 standard deviations.
            sign = words.view(np.int64).astype(np.float64)
            words &= np.uint64(2**63 - 1)
            half = (words.astype(np.float64) + 0.5) * 2.0**-64
            np.copysign(ndtri(half, out=half), sign, out=out[done : done + words.size])
        return out

    def single_normal(self, count: int) -> NDArray[np.float64]:
        """Return standard normals that are right in single precision, one word each.

        For sums in single precision, and only there where :meth:`normal` may be used; in a third
        of its time. Two at a time, √(−2 ln u)·(cos 2πv, sin 2πv) with u of 53 bits, so that the
        tail reaches to 8.6 standard deviations, and v of 24 (Box & Muller 1958).
        """
        out, loops = np.empty(_index(count, "count")), dg.compiled()
        for done in range(0, count, _WORDS):  # pieces that fit the cache
            part = out[done : done + _WORDS]
            pairs = (part.size + 1) // 2
            words = self.words(2 * pairs)
            if loops is not None:
                both = part if part.size == 2 * pairs else np.empty(2 * pairs)
                loops.normals(dg.level(), words, both)
                part[...] = both[: part.size]
                continue
            radius = ((words[:pairs] >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
            np.log(radius, out=radius)
            radius *= -2.0
            np.sqrt(radius, out=radius)
            angle = (words[pairs:] >> np.uint64(40)).astype(np.float32)
            angle *= np.float32(math.tau * 2.0**-24)
            np.multiply(radius, np.cos(angle), out=part[:pairs])
            rest = part.size - pairs
            np.multiply(radius[:rest], np.sin(angle[:rest]), out=part[pairs:])
        return out

    def include(self, n: int, probability: float) -> NDArray[np.intp]:
        """Draw a Poisson sample of n rows.

        Row i is in if word i is below ceil(probability·2^64), so it is in with the probability
        whose upper bound :func:`~tacit.mechanisms.lattice.accounted_probability` is what the
        accountant should be given.

        Parameters
        ----------
        n : int
            Number of rows; as many words are read.
        probability : float
            From 0 to 1.

        Returns
        -------
        ndarray of intp
            Sorted row numbers; possibly none.
        """
        n, bound = _index(n, "n"), inclusion_threshold(probability)
        found = [np.empty(0, dtype=np.intp)]
        with self._here():
            for done, words in self._blocks(n):
                if bound == 2**64:  # not a 64-bit word
                    found.append(np.arange(done, done + words.size, dtype=np.intp))
                else:
                    found.append(np.flatnonzero(words < np.uint64(bound)) + done)
        return np.concatenate(found)

    def discrete_gaussian(self, sigma: float, count: int) -> NDArray[np.int64]:
        """Draw from the discrete Gaussian: P[x] proportional to exp(-x²/2σ²) on the integers.

        Parameters
        ----------
        sigma : float
            In lattice units, that is, in units of the output. Above 0 and below 2^58.
        count : int
            Number of draws.

        Returns
        -------
        ndarray of int64
            Independent draws. Each is within total variation 2^-180 of its target, which
            :func:`~tacit.mechanisms.lattice.numerical_delta` charges for; there is no other
            error. See :mod:`tacit.mechanisms.discrete_gaussian` for the argument.
        """
        table, count = dg.table(float(sigma)), _index(count, "count")
        out = np.empty(count, dtype=np.int64)
        done, loops = 0, dg.compiled()
        with self._here():
            while done < count:
                wanted = count - done
                # Enough for all, most of the time. How many are tried does not change the result.
                tries = min(dg.BLOCK, int((wanted + 2.0 * math.sqrt(wanted)) / table.kept) + 4)
                words = self._peek(2 * tries)
                if loops is not None:
                    tries, found = dg.draws(loops, words, table, self.long_numbers, out[done:])
                    self._skip(2 * tries)
                    done += found
                    continue
                values, kept = dg.attempt(words, table, self.long_numbers)
                found = min(int(np.count_nonzero(kept)), wanted)
                if found == wanted or table.kept < 0.9:  # or the processor would guess wrong
                    hits = np.flatnonzero(kept)[:found]
                    values.take(hits, out=out[done : done + found], mode="wrap")
                    tries = int(hits[-1]) + 1 if found == wanted else tries
                else:
                    out[done : done + found] = values[kept]
                self._skip(2 * tries)
                done += found
        return out

    # Everything below is called with the lock held.

    def _open(self, secret: bytes) -> None:
        self._cipher = counter_mode(secret[:32], 0)
        self._long_key = secret[32:]
        self._buffer = np.empty(0, dtype=np.uint64)
        self._least = _FIRST
        self._start = self._end = 0  # of the words that are generated and not yet read
        self._position = 0  # number of the first of them

    def _rekey(self) -> None:
        self._open(os.urandom(64))

    def _peek(self, count: int) -> NDArray[np.uint64]:
        """Return the next words without reading them. The view lasts until the next call."""
        unread = self._end - self._start
        if unread < count:
            old, size = self._buffer[self._start : self._end], max(count, self._least)
            self._least = _PREFETCH
            if self._buffer.size < size + _SPARE:  # grown on demand: most streams are short
                self._buffer = np.empty(size + _SPARE, dtype=np.uint64)
            self._buffer[:unread] = old
            self._start, self._end = 0, size
            fresh = self._buffer[unread : size + _SPARE]
            zeros = _ZEROS[: 8 * (size - unread)]
            self._cipher.update_into(zeros, fresh.data.cast("B"))
            if sys.byteorder == "big":
                fresh.byteswap(inplace=True)
        return self._buffer[self._start : self._start + count]

    def _skip(self, count: int) -> None:
        self._start += count
        self._position += count

    def _blocks(self, count: int) -> Iterator[tuple[int, NDArray[np.uint64]]]:
        """Read words in pieces that fit the buffer, each with the number read before it."""
        for done in range(0, count, _WORDS):
            words = self._peek(min(count - done, _WORDS))
            self._skip(words.size)
            yield done, words

    def long_numbers(self, attempt: int) -> tuple[int, int]:
        """Return two 192-bit numbers for the attempt that begins 2·attempt words from here.

        Under their own key, four cipher blocks for each word position: an attempt that is
        evaluated again, after a shorter call, meets the same numbers again.
        """
        block = 4 * (self._position + 2 * attempt)
        data = counter_mode(self._long_key, block).update(bytes(48))
        return int.from_bytes(data[:24], "little"), int.from_bytes(data[24:], "little")

    def __repr__(self) -> str:
        return f"Stream({self._name}{', seeded, not private' if self._seeded else ''})"


def counter_mode(key: bytes, block: int) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()


def _index(value: int, name: str, limit: int = 2**62) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}; pass an integer.") from None
    if not 0 <= number < limit:
        raise InputError(f"{name} is {number}; pass an integer from 0 to {limit - 1}.")
    return number


# --- Self-test -----------------------------------------------------------------------------------


def self_test() -> None:
    """Check the cipher, ``exp`` and the sampler on this machine; runs once before the first key.

    Raises
    ------
    MachineError
        If one of them does not give the known answer.
    """
    # NIST SP 800-38A, F.5.5: CTR-AES256.Encrypt, first two blocks.
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    cipher = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")
    counter = int.from_bytes(range(0xF0, 0x100), "big")
    _require(counter_mode(key, counter).update(plain) == cipher, "AES-256 in counter mode")

    # The sampler allows exp a relative error of 2^-18.
    powers = accumulate([dg.exp_minus(1, 128)] * 256, lambda x, y: x * y >> 320, initial=1 << 320)
    exact = np.array([power / 2**320 for power in powers])  # of 1/128 each, up to 2
    found = np.exp(-(np.arange(257) / 128.0).astype(np.float32))
    _require(bool(np.all(np.abs(found / exact - 1.0) < 2.0**-20)), "exp in single precision")

    stream = Stream(bytes(range(64)), seeded=True, name="self-test")
    digest = hashlib.blake2b(digest_size=8)
    for sigma in (0.75, 20.0, 1000.3, 2.0**50):
        digest.update(stream.discrete_gaussian(sigma, 1000).astype("<i8").tobytes())
    _require(digest.hexdigest() == "e5e98f9183afc424", "the discrete Gaussian")


def _require(passed: bool, what: str) -> None:
    if not passed:
        raise MachineError(
            f"{what} gives wrong answers on this machine, so no noise can be drawn. Reinstall "
            "numpy and cryptography; if that does not help, please report it with their versions."
        )
