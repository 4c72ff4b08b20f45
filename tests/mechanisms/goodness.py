"""How well draws fit the discrete Gaussian: exact probabilities against counts.

    python -m tests.mechanisms.goodness 100000000

prints the p-values of fresh draws. Every statistic has its exact distribution (tails) or that of
chi-square (with at least 20 draws expected in a cell), so a p-value below `ALARM` happens once in
1/`ALARM` times if the sampler is right. There are 25 statistics in all: a false alarm has
probability 2.5e-7.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass, field
from functools import cache

import mpmath as mp
import numpy as np
from scipy import stats

from tacit.mechanisms.random_streams import Key, Stream

SIGMAS = (0.75, 20.0, 1000.3, 2.0**30)
ALARM = 1e-8
BEYOND = (4.0, 5.0, 5.5)
AT_ONCE = 5_000_000
LEAST_EXPECTED = 20  # draws expected in a cell
PRECISION = 160
LOW = 1024  # low bits are counted where they are uniform


def width(sigma: float) -> int:
    """Integers in a cell, as a power of two: cells of a few hundredths of sigma, if it is large."""
    exponent = int(mp.floor(mp.log(sigma, 2)))
    return exponent - 8 if exponent > 12 else 0


def below(x: int, sigma: float) -> mp.mpf:
    """Σ exp(-k²/2σ²) over 0 <= k < x, for large σ by the Euler-Maclaurin formula at midpoints.

    Its terms fall by factors of σ²; the first one left out is below 2^-120 of the sum for
    σ >= 2^24.
    """
    s = mp.mpf(sigma)

    def f(t: mp.mpf) -> mp.mpf:
        return mp.exp(-(t**2) / (2 * s**2))

    def slope(t: mp.mpf) -> mp.mpf:
        return -t / s**2 * f(t)

    def third(t: mp.mpf) -> mp.mpf:
        return (3 * t / s**4 - t**3 / s**6) * f(t)

    a, b = mp.mpf(-0.5), mp.mpf(x) - mp.mpf(0.5)
    root = s * mp.sqrt(2)
    area = s * mp.sqrt(mp.pi / 2) * (mp.erf(b / root) - mp.erf(a / root))
    return area - (slope(b) - slope(a)) / 24 + 7 * (third(b) - third(a)) / 5760


def gaussians(sigma: mp.mpf, stop: int) -> list[mp.mpf]:
    """exp(-k²/2σ²) for k from 0, by exp(-c(k+1)²) = exp(-ck²)·exp(-c(2k+1))."""
    factor = mp.exp(-1 / (2 * sigma**2))
    square, value, found = factor**2, mp.mpf(1), []
    for _ in range(stop):
        found.append(value)
        value, factor = value * factor, factor * square
    return found


@cache
def exact(sigma: float) -> tuple[np.ndarray, float]:
    """Probability of cells 0, 1, 2, … (those of negative numbers mirror them), and of 0 alone."""
    with mp.workprec(PRECISION):
        s, cell = mp.mpf(sigma), 1 << width(sigma)
        cells = int(9 * sigma / cell) + 20
        if cell == 1:
            mass = gaussians(s, cells + int(3 * sigma))
            total = 2 * sum(mass) - 1
        else:
            sums = [below(k * cell, sigma) for k in range(cells + 1)]
            mass = [b - a for a, b in itertools.pairwise(sums)]
            kappa = 2 * mp.exp(-2 * (mp.pi * s) ** 2)
            total = s * mp.sqrt(2 * mp.pi) * (1 + kappa)
        return np.array([float(m / total) for m in mass[:cells]]), float(1 / total)


@cache
def tail(sigma: float, beyond: float) -> float:
    """P[|X| > beyond·σ]."""
    with mp.workprec(PRECISION):
        s = mp.mpf(sigma)
        last = int(mp.floor(s * beyond))
        if width(sigma) == 0:
            mass = sum(gaussians(s, last + 20 + int(8 * sigma))[last + 1 :])
        else:
            mass = (s * mp.sqrt(2 * mp.pi) + 1) / 2 - below(last + 1, sigma)
        return 2 * float(mass) * exact(sigma)[1]


def joined(seen: np.ndarray, share: np.ndarray) -> float:
    """Chi-square of counts against probabilities, cells of fewer than 20 joined into one."""
    wanted = share * seen.sum()
    large = wanted >= LEAST_EXPECTED
    seen, wanted = (np.append(v[large], v[~large].sum()) for v in (seen, wanted))
    if wanted[-1] < LEAST_EXPECTED:
        seen, wanted = (np.append(v[:-2], v[-2:].sum()) for v in (seen, wanted))
    return float(stats.chisquare(seen, wanted * (seen.sum() / wanted.sum())).pvalue)


@dataclass
class Counts:
    """What is counted of draws, block by block."""

    sigma: float
    draws: int = 0
    cells: np.ndarray = field(init=False)
    signs: np.ndarray = field(default_factory=lambda: np.zeros(9, dtype=np.int64))
    low: np.ndarray = field(default_factory=lambda: np.zeros(LOW, dtype=np.int64))
    beyond: np.ndarray = field(default_factory=lambda: np.zeros(len(BEYOND), dtype=np.int64))

    def __post_init__(self) -> None:
        self.half = exact(self.sigma)[0].size
        self.cells = np.zeros(3 * self.half, dtype=np.int64)  # negative, zero, positive

    def add(self, x: np.ndarray) -> None:
        self.draws += x.size
        size, sign = np.abs(x), np.sign(x) + 1
        place = np.minimum(size >> width(self.sigma), self.half - 1)
        self.cells += np.bincount(place + sign * self.half, minlength=3 * self.half)
        one, two = sign[: x.size // 2 * 2].reshape(-1, 2).T
        self.signs += np.bincount(3 * one + two, minlength=9)
        self.low += np.bincount(x & (LOW - 1), minlength=LOW)
        for i, t in enumerate(BEYOND):
            self.beyond[i] += np.count_nonzero(size > t * self.sigma)

    def body(self) -> float:
        """Chi-square of the cells."""
        share, zero = exact(self.sigma)
        nonzero, middle = share.copy(), np.zeros_like(share)
        nonzero[0] -= zero
        middle[0] = zero
        return joined(self.cells, np.concatenate([nonzero, middle, nonzero]))

    def shape(self) -> float:
        """Chi-square of sizes in coarse cells, which sees what is spread over many fine ones."""
        share, zero = exact(self.sigma)
        sizes = 2 * share
        sizes[0] -= zero
        starts = np.arange(0, self.half, max(1, self.half // 160))
        seen = self.cells.reshape(3, -1).sum(axis=0)
        return joined(np.add.reduceat(seen, starts), np.add.reduceat(sizes, starts))

    def pairs(self) -> float:
        """Chi-square of the signs of one draw and the next."""
        zero = exact(self.sigma)[1]
        sign = np.array([(1 - zero) / 2, zero, (1 - zero) / 2])
        return joined(self.signs, np.outer(sign, sign).ravel())

    def tails(self) -> list[tuple[float, int, float, float]]:
        """Beyond how many σ, draws seen, draws expected, exact two-sided p-value."""
        found = []
        for t, seen in zip(BEYOND, self.beyond.tolist(), strict=True):
            law = stats.binom(self.draws, tail(self.sigma, t))
            p = min(1.0, 2 * min(law.cdf(seen), law.sf(seen - 1)))
            found.append((t, seen, float(law.mean()), float(p)))
        return found

    def bits(self) -> float:
        return float(stats.chisquare(self.low).pvalue)

    def p_values(self) -> dict[str, float]:
        found = {"body": self.body(), "shape": self.shape(), "pairs": self.pairs()}
        found |= {f"beyond {t:g}": p for t, _, _, p in self.tails()}
        if self.sigma > 16 * LOW:
            found["low bits"] = self.bits()
        return found


def count(sigma: float, draws: int, stream: Stream) -> Counts:
    counts = Counts(sigma)
    while counts.draws < draws:
        counts.add(stream.discrete_gaussian(sigma, min(AT_ONCE, draws - counts.draws)))
    return counts


def main() -> None:
    draws = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**7
    key = Key.fresh()
    for i, sigma in enumerate(SIGMAS):
        counts = count(sigma, draws, key.stream("goodness", i))
        p = counts.p_values()
        cells = int((exact(sigma)[0] * draws >= LEAST_EXPECTED).sum()) * 2
        print(f"sigma {sigma:g}, {draws:,} draws, about {cells} cells")
        print("  " + ", ".join(f"{name}: p = {value:.3g}" for name, value in p.items()))
        for t, seen, wanted, _ in counts.tails():
            print(f"  beyond {t:g} sigma: {seen} seen, {wanted:.2f} expected")


if __name__ == "__main__":
    main()
