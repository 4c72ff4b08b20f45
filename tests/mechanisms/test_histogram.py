"""Keys behind a threshold: the exact law of accidents, what is released, and in which order."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import norm

from tacit.exceptions import InputError, ReleaseError
from tacit.mechanisms import histogram
from tacit.mechanisms.histogram import KeyCounts, key_failure, key_rows, noisy_keys
from tacit.mechanisms.lattice import sigma_for
from tacit.mechanisms.random_streams import Key
from tacit.mechanisms.release import Draws, Releases
from tacit.mechanisms.threshold import key_threshold
from tacit.privacy.accounting.accountants import gaussian_delta
from tacit.privacy.certificate import counts_groups
from tacit.privacy.events import Event, Failure, Gaussian
from tacit.privacy.verification import recheck

P = 1e-6


def counted(rows):
    """Keys of a chunk that is a list of rows, each a tuple with a key or None for each column."""
    return [Counter(key for key in column if key is not None) for column in zip(*rows, strict=True)]


def found(chunks, c=1, *, z=1.0, p=P, seed=0, most=64, size=1000, failure=None, draws=None):
    events = [("Keys", Gaussian(z)), ("Keys", Failure(p if failure is None else failure))]
    token = Releases(Key.from_seed(seed), events, draws=draws).token("Keys").at("keys")
    return noisy_keys(chunks, counted, c, token, size=size, probability=p, most=most)


class Watched(Draws):
    """Keeps what lies before the noise, and the threshold."""

    def keys(self, total, keys, deviation, threshold, stream):
        self.total, self.listed, self.deviation, self.threshold = total, keys, deviation, threshold
        return super().keys(total, keys, deviation, threshold, stream)


def tail(sigma, m):
    """P[X ≥ m] of the discrete Gaussian, by its definition: all terms are added up."""
    reach = range(int(40 * sigma))
    weights = [math.exp(-(x * x) / (2 * sigma * sigma)) for x in reach]
    whole = 2 * math.fsum(weights) - 1
    return math.fsum(weights[m:]) / whole


@pytest.mark.parametrize("sigma", [64.0, 100.3, 333.0])
@pytest.mark.parametrize("q", [0.4, 0.01, 1e-6, 1e-12])
def test_noise_reaches_a_threshold_with_its_probability_and_hardly_less(sigma, q):
    m = key_threshold(sigma, q)
    assert tail(sigma, m) <= q < tail(sigma, m - 3)


@pytest.mark.parametrize("q", [0.0, 0.5, -1.0, math.nan, 1.0])
def test_a_threshold_for_no_probability_is_refused(q):
    with pytest.raises(InputError, match="between 0 and 1/2"):
        key_threshold(100.0, q)


@pytest.mark.parametrize("c", [1, 2, 9])
@pytest.mark.parametrize("p", [1e-9, 1e-3])
def test_keys_that_one_row_has_pass_with_their_probability_in_all_columns_together(c, p):
    """The exact law: independent noise on each, of the deviation that was drawn."""
    draws = Watched()
    found([[tuple(f"own{j}" for j in range(c))]], c, p=p, z=1e-5, draws=draws)
    sigma = sigma_for(draws.deviation / draws.total.unit)
    room = draws.threshold - draws.total.values.max()
    assert sigma < 1000  # so that all terms can be added up
    accident = -math.expm1(c * math.log1p(-tail(sigma, int(room))))
    assert p * 0.5 < accident <= p


def test_accidents_are_as_frequent_as_counted():
    """No effect would be a rate of p = 0.3, in 1500 runs: 0.3 ± 0.012."""
    row = [("own", "mine", "only")]
    passed = sum(any(found([row], 3, z=2.0, p=0.3, seed=seed)) for seed in range(1500))
    # A union bound is counted: 1 − (1 − 0.1)³ = 0.271.
    assert 0.271 - 4 * 0.0115 < passed / 1500 < 0.271 + 4 * 0.0115


def test_the_account_covers_a_row_with_keys_of_its_own_and_common_ones():
    """Hockey sticks of both directions, for one common key (5 against 6) and c − 1 own ones."""
    c, p = 4, 1e-3
    draws = Watched()
    found([[("common", *("abc"))] + [("common", None, None, None)] * 5], c, p=p, draws=draws)
    sigma, t = draws.deviation, draws.threshold * draws.total.unit
    q = norm.sf((t - 1) / sigma)
    accident = -math.expm1((c - 1) * math.log1p(-q))
    x = np.linspace(t, t + 40 * sigma, 200_001)
    dx = x[1] - x[0]
    for epsilon in (0.1, 1.0, 3.0):
        factor = math.exp(epsilon)
        one, other = norm.pdf(x, 6, sigma), norm.pdf(x, 5, sigma)
        below = norm.cdf((t - 6) / sigma), norm.cdf((t - 5) / sigma)
        there = accident + max((1 - accident) * below[0] - factor * below[1], 0)
        there += np.maximum((1 - accident) * one - factor * other, 0).sum() * dx
        back = max(below[1] - factor * (1 - accident) * below[0], 0)
        back += np.maximum(other - factor * (1 - accident) * one, 0).sum() * dx
        allowed = gaussian_delta(1.0, epsilon) + p  # z = 1, of norm √c
        assert max(there, back) <= allowed * (1 + 1e-6)


def test_a_key_is_released_as_its_rows_reach_the_threshold():
    t = key_rows(1.0, 2, P, 1000)
    rows = [("many", None)] * math.ceil(3 * t) + [("few", "x")] * 2
    assert found([rows], 2) == [("many",), ()]


def test_keys_come_out_by_their_text_and_the_most_frequent_of_too_many():
    rows = [("b",)] * 900 + [("c",)] * 500 + [("a",)] * 700 + [("d",)] * 600
    assert found([rows]) == [("a", "b", "c", "d")]
    assert found([rows], most=2) == [("a", "b")]
    assert found([rows[::-1]]) == [("a", "b", "c", "d")]


def test_chunks_in_any_order_say_the_same():
    rows = [("x", str(i % 3)) for i in range(500)]
    whole = found([rows], 2)
    assert whole == found([rows[:13], rows[13:400], rows[400:]], 2) == found([rows[::-1]], 2)
    assert (KeyCounts([{"a": 1}]) + KeyCounts([{"a": 2}])).columns == [{"a": 3}]


def test_columns_without_a_key_have_none():
    assert found([[(None, None)] * 20], 2) == [(), ()]


def test_what_may_fail_must_have_been_counted():
    rows = [[("x",)] * 500]
    with pytest.raises(ReleaseError, match="not counted"):
        found(rows, p=1e-6, failure=1e-7)
    token = Releases(Key.from_seed(0), [("Keys", Gaussian(1.0))]).token("Keys").at("keys")
    with pytest.raises(ReleaseError, match="not counted"):
        noisy_keys(rows, counted, 1, token, size=500, probability=1e-9, most=9)


@pytest.mark.parametrize("k", [1, 2, 5, 10])
@pytest.mark.parametrize("alike", [True, False])
def test_keys_that_several_rows_of_one_person_have_pass_as_their_law_says(k, alike):
    """The exact law, whether their rows share keys or have different ones."""
    c, p, z = 3, 1e-6, 4.0
    rows = [tuple(f"own{j}" if alike else f"own{i}{j}" for j in range(c)) for i in range(k)]
    draws = Watched()
    found([rows], c, z=z, p=p, draws=draws)
    rooms = (draws.threshold - draws.total.values) * draws.total.unit / draws.deviation
    accident = -math.expm1(math.fsum(np.log1p(-norm.sf(rooms))))
    law = key_failure(z, c, p)
    assert accident <= law.several(k).probability <= k * p * math.exp(0.8 * k)
    given = law.to_dict()["parameters"]
    ((_, again),) = recheck.several([("failure", given)], k)
    assert again["probability"] == pytest.approx(law.several(k).probability, rel=1e-9)


def test_a_failure_says_its_law_in_files_and_is_counted_for_several_rows_only_then():
    law, plain = key_failure(4.0, 3, 1e-6), Failure(1e-6)
    assert Event.from_dict(law.to_dict()) == law
    assert set(plain.to_dict()["parameters"]) == {"count", "probability"}
    assert counts_groups([Gaussian(1.0), law]) and not counts_groups([Gaussian(1.0), plain])
    assert (
        plain.several(2) is None
        and recheck.several([("failure", plain.to_dict()["parameters"])], 2) is None
    )
    assert law.several(10**6).probability > 0.99  # no room is left
    for wrong in ({"keys": -1}, {"keys": 1.5}, {"keys": 1}, {"keys": 1, "room": 1.0, "step": 0.1}):
        with pytest.raises(InputError):
            Failure(1e-6, **wrong)


def test_another_threshold_than_was_counted_is_refused():
    for law in (key_failure(9.0, 1, 1e-6), key_failure(1.0, 1, 1e-7)):
        events = [("Keys", Gaussian(1.0)), ("Keys", law), ("Keys", Failure(1e-6))]
        token = Releases(Key.from_seed(0), events).token("Keys").at("keys")
        with pytest.raises(ReleaseError, match=r"another threshold|not counted"):
            noisy_keys([[("x",)] * 99], counted, 1, token, size=99, probability=1e-6, most=9)


def test_of_many_rows_only_keys_take_part_that_enough_of_them_have(monkeypatch):
    """Bounded memory: of keys that are all different, hardly any is held."""
    monkeypatch.setattr(histogram, "PLACES", 256)
    size, held = 4096, []
    real = KeyCounts.__iadd__

    def watched(self, other):
        made = real(self, other)
        held.append(sum(map(len, made.columns)))
        return made

    monkeypatch.setattr(KeyCounts, "__iadd__", watched)
    rows = [(f"name {i}",) for i in range(3000)] + [("cook",)] * 800 + [("nurse",)] * 296
    draws = Watched()
    assert found([rows[:2000], rows[2000:]], size=size, draws=draws) == [("cook", "nurse")]
    assert histogram.least_rows(size) == 64
    assert set(draws.listed) == {(0, "cook"), (0, "nurse")}  # of 64 rows or more
    assert max(held) < 300
    # The threshold is as far above what takes part as it was above one row.
    beyond = draws.threshold - 64 * histogram.VOTE
    assert beyond == key_threshold(sigma_for(draws.deviation / draws.total.unit), P)
