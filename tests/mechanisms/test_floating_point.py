"""An attack on the last bits of noisy sums: it decides on naive noise, and finds nothing on ours.

Added to a sum s, floating-point noise reaches few numbers: y is possible only if some double n
with fl(s + n) = y is itself fl(σx) for a double x. Whoever sees a y that one of two neighbouring
sums cannot give knows that it was the other one, whatever ε says (Mironov 2012).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.seam import token

from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.losses import get_loss
from tacit.mechanisms.additive import BITS, lattice_sum, noisy_sum
from tacit.mechanisms.random_streams import Key

SIGMA = 10.3
TRIALS = 200


def impossible(y, s, sigma=SIGMA):
    """Which coordinates of y no floating-point noise of this scale gives when added to s.

    Sound: it says so only after trying all noise that could have given y.
    """
    possible = np.zeros(y.shape, dtype=bool)
    middle = y - s
    for steps in range(-3, 4):
        n = middle + steps * np.spacing(middle)
        near = n / sigma
        made = np.zeros_like(possible)
        for x in (near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf)):
            made |= sigma * x == n
        possible |= made & (s + n == y)
    # Where noise is finer than the result, too much of it would have to be tried.
    coarse = np.spacing(np.abs(y)) > 2 * np.spacing(np.abs(middle))
    return ~possible & ~coarse


def accuracy(release, sums, seed, sigma=SIGMA):
    """Share of right decisions, a tie being half of one, over as many draws of either sum.

    The guess is the sum that is impossible in fewer coordinates.
    """
    rng = np.random.default_rng(seed)
    right, certain = 0.0, 0
    for _ in range(TRIALS):
        truth = int(rng.integers(0, 2))
        y = release(truth)
        counts = [impossible(y, s, sigma).sum() for s in sums]
        right += 0.5 if counts[0] == counts[1] else int(counts[0] > counts[1]) == truth
        certain += min(counts) == 0 < max(counts)
    return right / TRIALS, certain / TRIALS


def tables(d=784, n=60):
    """Rows of norm 1, and the same without the first; sums are about as large as the noise."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, d)) + 0.5
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return [rows, rows[1:]]


def test_the_attack_decides_on_naive_noise_and_finds_nothing_on_ours():
    both = tables()
    d = both[0].shape[1]
    # Even an ideal Gaussian tells sums at distance 1 apart with this accuracy.
    ideal = 0.5 * (1 + math.erf(1 / (2 * SIGMA) / math.sqrt(2)))
    assert ideal < 0.52

    # Naive: float64 sums and float64 noise.
    rng = np.random.default_rng(1)
    floats = [rows.sum(axis=0) for rows in both]
    naive, certain = accuracy(lambda i: floats[i] + SIGMA * rng.standard_normal(d), floats, 2)
    assert naive == 1.0
    assert certain > 0.95  # not a guess: one of the sums could not have given it

    # Ours: the same rows, the same distance, the same standard deviation.
    key = Key.from_seed("attack")
    drawn = iter(range(10**6))

    def sum_of_rows(i):
        return noisy_sum([both[i]], d, 1.0, token(SIGMA, key, "sum", next(drawn)))

    sums = [lattice_sum([rows], d, 1.0) * 2.0**-BITS for rows in both]
    ours, certain = accuracy(sum_of_rows, sums, 3)
    # By chance alone 0.52 +- 0.035: within six standard deviations but for once in 10^8 times.
    assert abs(ours - ideal) < 0.21
    assert certain == 0.0
    for _ in range(20):  # the same numbers are possible for both: all multiples of the spacing
        y = sum_of_rows(0) * 2.0**BITS
        for s in sums:
            assert ((y - s * 2.0**BITS) % 1 == 0).all()


@pytest.mark.parametrize("arithmetic", ["exact", "strict", "fast"])
def test_the_same_of_a_step_of_training(arithmetic):
    """The floating-point noise of the fast path gives gradient sums away, exact noise does not."""
    both = tables(d=300)
    loss = get_loss("squared")
    totals = []
    for rows in both:
        targets = loss.targets(np.full(len(rows), -50.0), 1)  # every row is clipped to norm 1
        engine = Engine(as_rows(rows, bound=1.0), targets, loss, arithmetic=arithmetic)
        totals.append(engine.gradient_sum(np.zeros((1, 300, 1)), 1.0))
    key = Key.from_seed(f"attack {arithmetic}")
    drawn = iter(range(10**6))

    def step(i):
        total = totals[i].bounded(0, 1.0)
        return token(SIGMA, key, "noise", next(drawn)).gaussian(total).ravel()

    sums = [total.float().ravel() for total in totals]
    assert 0.99 < np.linalg.norm(sums[0] - sums[1]) <= (1.0 if arithmetic != "fast" else 1.001)
    # The noise is known to whoever knows the plan, rounding included.
    found, certain = accuracy(step, sums, 4, sigma=math.nextafter(SIGMA, math.inf))
    if arithmetic == "fast":
        assert found == 1.0
        assert certain > 0.95
    else:
        assert abs(found - 0.52) < 0.21
        assert certain == 0.0


def test_the_attack_is_sound():
    """It never calls the true sum impossible."""
    rng = np.random.default_rng(5)
    for size in (0.0, 1.0, SIGMA, 300.0):
        s = rng.normal(size=20_000) * size
        assert not impossible(s + SIGMA * rng.standard_normal(s.size), s).any()
