"""The exponential mechanism: its probabilities are the stated ones."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from tacit.exceptions import InputError
from tacit.mechanisms.lattice import numerical_delta
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.selection import MOST_WEIGHT, exponential_choice, masses, pick
from tacit.privacy.events import NEIGHBORS

ONE = 1 << 320


@pytest.fixture(autouse=True)
def digits():
    before = getcontext().prec
    getcontext().prec = 130
    yield
    getcontext().prec = before


def exact(utilities, beta, weights=None):
    """Probabilities in 130 digits."""
    best = max(Fraction(u) for u in utilities)
    weights = weights or [1] * len(utilities)
    found = []
    for u, w in zip(utilities, weights, strict=True):
        exponent = (Fraction(u) - best) / Fraction(beta)
        found.append(w * (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())
    total = sum(found)
    return [mass / total for mass in found]


def chances(utilities, beta, weights=None):
    found = masses(utilities, beta, weights)
    return [Decimal(mass) / Decimal(sum(found)) for mass in found]


CASES = {
    "counts": ([0, -1, -2, -700, 3], 1.0, None),
    "a fine scale": ([0, -1, -(10**6), -(10**7)], 1e5, None),
    "weights": ([5, 7, 1, 0], 2.5, [1, 10**20, 3, 2**90]),
    "floats": ([0.1, 0.2, -1e-9, 1e-300], 0.3, None),
    "far below": ([0, -(10**9)], 0.5, [1, 2**95]),
    "large numbers": ([10**30, 10**30 - 1], 7.0, None),
    "one": ([3], 1.0, None),
}


@pytest.mark.parametrize("name", CASES)
def test_masses_are_within_the_charge_of_the_stated_probabilities(name):
    utilities, beta, weights = CASES[name]
    found, wanted = chances(utilities, beta, weights), exact(utilities, beta, weights)
    apart = sum(abs(a - b) for a, b in zip(found, wanted, strict=True)) / 2
    assert apart < Decimal(2) ** -188


def test_the_uniform_number_adds_less_than_its_part_of_the_charge():
    """As many bits beyond the total as were promised, whatever the masses."""
    asked = []

    class Words:
        def words(self, count):
            asked.append(count)
            return np.full(count, 2**64 - 1, dtype=np.uint64)

    for found in ([1], [ONE, 3 * ONE], [2**96 * ONE]):
        index, rest = pick(found, Words())
        assert asked[-1] * 64 >= sum(found).bit_length() + 200
        assert index == len(found) - 1 and rest == found[-1] - 1  # the last of all numbers


def test_choices_follow_their_probabilities():
    utilities, beta, weights = [0, -1, -2, -3, 1], 1.5, [1, 2, 1, 4, 1]
    stream = Key.from_seed(0).stream("choices")
    drawn = [exponential_choice(utilities, beta, stream, weights=weights) for _ in range(8000)]
    wanted = np.array([float(p) for p in exact(utilities, beta, weights)])
    assert chisquare(np.bincount(drawn, minlength=5), wanted * 8000).pvalue > 1e-3


def test_the_number_left_over_is_uniform():
    stream = Key.from_seed(1).stream("rest")
    cells = [pick([7 * ONE], stream)[1] // ONE for _ in range(14_000)]
    assert chisquare(np.bincount(cells, minlength=7)).pvalue > 1e-3


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_probabilities_of_neighbours_differ_by_the_stated_factor_at_most(neighbors):
    """A search over neighbouring utilities, compared exactly; it comes close to the bound."""
    unit, rng, worst = int(NEIGHBORS[neighbors]), np.random.default_rng(0), 0.0
    for _ in range(400):
        m, beta = int(rng.integers(2, 12)), float(10.0 ** rng.uniform(-0.3, 1.5))
        one = rng.integers(-20, 20, size=m)
        two = one + rng.integers(-unit, unit + 1, size=m)
        if rng.random() < 0.3:  # one candidate against all others
            one[:], two[:] = 0, -unit
            one[0], two[0] = 0, unit
        weights = rng.integers(1, 1000, size=m).tolist()
        p, q = masses(one, beta, weights), masses(two, beta, weights)
        limit = (Decimal(2 * unit) / Decimal(beta)).exp() * (1 + Decimal(2) ** -150)
        for a, b in zip(p, q, strict=True):
            ratio = Decimal(a) * sum(q) / (Decimal(b) * sum(p))
            assert 1 / limit <= ratio <= limit
            worst = max(worst, abs(float(ratio.ln())) / (2 * unit / beta))
    assert worst > 0.9


def test_the_charge_is_that_of_a_draw():
    assert numerical_delta(1, 1.0) > 3 * 2.0**-188


@pytest.mark.parametrize(
    ("utilities", "beta", "weights"),
    [
        ([], 1.0, None),
        ([1.0, math.nan], 1.0, None),
        ([1.0, math.inf], 1.0, None),
        ([True, False], 1.0, None),
        (["a"], 1.0, None),
        ([1, 2], 0.0, None),
        ([1, 2], math.inf, None),
        ([1, 2], 1.0, [1]),
        ([1, 2], 1.0, [1, 0]),
        ([1, 2], 1.0, [1, MOST_WEIGHT]),
    ],
)
def test_nonsense_is_refused(utilities, beta, weights):
    with pytest.raises(InputError):
        masses(utilities, beta, weights)
