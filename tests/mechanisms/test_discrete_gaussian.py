"""The sampler: its tables, its decisions word by word, and the distribution of what comes out."""

from __future__ import annotations

import math
from collections.abc import Iterator

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from tacit.exceptions import InputError
from tacit.mechanisms import discrete_gaussian as dg
from tacit.mechanisms.random_streams import Key, Stream

# Every kind of table: M = 1 far below, at and just below 32; M = 2; larger, not a power of two,
# exact powers (σ/M = 16), and the ends of the range.
SIGMAS = [0.01, 0.7, 1.0, 16.0, 31.999, 32.0, 40.5, 1000.3, 2.0**20, 2.0**50, 1.999 * 2.0**57]


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    with mp.workprec(420):
        yield


def seeded(label: object) -> Stream:
    return Key.from_seed(f"sampler {label}").stream("noise")


def exact(x: int, sigma: float) -> mp.mpf:
    return mp.exp(-(mp.mpf(x) ** 2) / (2 * mp.mpf(sigma) ** 2))


def reference(one: int, two: int, sigma: float, long: tuple[int, int]) -> int | None:
    """Decide one attempt from the definition, in full precision only."""
    table = dg.table(sigma)  # whose entries have their own test
    shift = max(0, math.floor(math.log2(sigma)) - 4) if sigma >= 32 else 0
    b = one >> 55
    f = (((one >> 28) & (2**27 - 1)) << 165) + (long[0] >> 27)
    v = ((one & (2**28 - 1)) << 164) + (long[1] >> 28)
    k = b if f < table.thresholds[b] else table.aliases[b]
    y = two & (2**shift - 1)
    p = mp.exp(-mp.mpf(y) * (y + 2 * k * 2**shift) / (2 * mp.mpf(sigma) ** 2))
    x = k * 2**shift + y
    negative = two >> 63
    if v >= p * 2**192 or (x == 0 and negative):
        return None
    return -x if negative else x


def attempts(words: list[int], sigma: float, long: tuple[int, int]) -> list[int | None]:
    values, kept = dg.attempt(np.array(words, dtype=np.uint64), dg.table(sigma), lambda _: long)
    return [v if k else None for v, k in zip(values.tolist(), kept.tolist(), strict=True)]


# --- Tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ratio", [(0, 1), (1, 10**40), (1, 512), (1, 2), (2, 1), (139, 1), (256, 1)]
)
def test_the_exponential_is_right_to_298_bits(ratio: tuple[int, int]) -> None:
    assert abs(dg.exp_minus(*ratio) - mp.exp(-mp.mpf(ratio[0]) / ratio[1]) * 2**320) < 2**22


def test_the_exponential_is_exact_at_zero_and_vanishes_far_out() -> None:
    assert dg.exp_minus(0, 7) == 2**320
    assert dg.exp_minus(257, 1) == 0


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_table_holds_the_weights_to_one_unit(sigma: float) -> None:
    table = dg.table(sigma)
    width = 2**table.shift
    assert sigma / width < 32.0
    assert width == 1 or sigma / width >= 16.0
    weights = [0] * 512
    for b, (threshold, alias) in enumerate(zip(table.thresholds, table.aliases, strict=True)):
        assert 0 <= threshold <= 2**192
        weights[b] += threshold
        weights[alias] += 2**192 - threshold
    assert sum(weights) == 2**201
    wanted = [exact(k * width, sigma) for k in range(512)]
    total = sum(wanted)
    for k in range(1, 512):
        assert abs(weights[k] - wanted[k] / total * 2**201) < 2
    assert abs(weights[0] - wanted[0] / total * 2**201) < 1024


@pytest.mark.parametrize("sigma", [31.9999999, 63.9999999])
def test_what_the_support_leaves_out_is_within_the_claim(sigma: float) -> None:
    end = 512 * 2 ** dg.table(sigma).shift
    tail = 2 * sum(exact(x, sigma) for x in range(end, end + 4000))
    assert tail / (mp.sqrt(2 * mp.pi) * sigma) < mp.mpf(2) ** -188


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_share_of_attempts_that_are_kept_is_known(sigma: float) -> None:
    table = dg.table(sigma)
    words = seeded(f"kept {sigma}").words(2 * dg.BLOCK)
    _, kept = dg.attempt(words, table, lambda _: (0, 0))
    error = math.sqrt(table.kept * (1 - table.kept) / dg.BLOCK)
    assert table.kept >= 0.5
    assert abs(kept.mean() - table.kept) < 4.5 * error + 1e-3


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 2.0**58])
def test_sigma_outside_the_range_is_refused(sigma: float) -> None:
    with pytest.raises(InputError, match="coarser lattice"):
        dg.table(sigma)


# --- Decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", SIGMAS)
def test_attempts_follow_the_definition(sigma: float) -> None:
    words = seeded(f"definition {sigma}").words(1200).tolist()
    long = (3 << 150, 5 << 140)
    expected = [
        reference(one, two, sigma, long) for one, two in zip(words[::2], words[1::2], strict=True)
    ]
    assert attempts(words, sigma, long) == expected


@pytest.mark.parametrize("sigma", SIGMAS)
def test_ties_with_a_threshold_are_decided_in_full_precision(sigma: float) -> None:
    table = dg.table(sigma)
    for b in (0, 1, 13, 40, 200, 511):
        threshold = table.thresholds[b]
        leading, rest = divmod(threshold, 2**165)
        if leading == 2**27:  # a full column has no tie: f is below it always
            assert table.aliases[b] == b
            continue
        word = b << 55 | leading << 28
        for more in {max(rest - 1, 0), rest, min(rest + 1, 2**165 - 1), 0, 2**165 - 1}:
            (value,) = attempts([word, 0], sigma, (more << 27, 0))
            k = b if leading * 2**165 + more < threshold else table.aliases[b]
            assert value == k << table.shift


@pytest.mark.parametrize("sigma", [32.0, 40.5, 1000.3, 2.0**50, 1.999 * 2.0**57])
@pytest.mark.parametrize("b", [0, 5, 60])
def test_ties_with_the_acceptance_probability_are_decided_in_full_precision(
    sigma: float, b: int
) -> None:
    table = dg.table(sigma)
    for y in {1, 2**table.shift // 3, 2**table.shift - 1}:
        # f = 0 takes the column itself, whose threshold is above 0 here.
        p = mp.exp(-mp.mpf(y) * (y + 2 * b * 2**table.shift) / (2 * mp.mpf(sigma) ** 2))
        leading, rest = divmod(int(mp.floor(p * 2**192)), 2**164)
        for v in (leading - 3000, leading - 1, leading, leading + 1, leading + 3000):
            v = min(max(v, 0), 2**28 - 1)
            for more in (0, rest - 1, rest, 2**164 - 1):
                # v < floor(p·2^192): the last unit, of 2^-192, goes to "reject".
                accepted = (v << 164) + more < (leading << 164) + rest
                (value,) = attempts([b << 55 | v, y], sigma, (0, more << 28))
                assert value == ((b << table.shift) + y if accepted else None)


def test_a_certain_attempt_is_accepted_even_by_the_largest_number() -> None:
    for sigma in (0.7, 1000.0, 2.0**50):  # y = 0, so the probability is 1
        assert attempts([2**28 - 1, 0], sigma, (0, 2**192 - 1)) == [0]


def test_minus_zero_is_dropped_and_nothing_else() -> None:
    sign = 1 << 63
    for sigma in (0.7, 1000.0):
        assert attempts([0, 0], sigma, (0, 0)) == [0]
        assert attempts([0, sign], sigma, (0, 0)) == [None]
    assert attempts([1 << 55, sign], 20.0, (0, 0)) == [-1]
    assert attempts([0, sign | 1], 1000.0, (0, 0)) == [-1]


def test_the_largest_values_fit() -> None:
    sigma = math.nextafter(2.0**58, 0.0)
    assert dg.table(sigma).thresholds[511] > 0
    largest = (1 << 62) - 1
    words = [511 << 55, (1 << 53) - 1, 511 << 55, 1 << 63 | (1 << 53) - 1]
    assert attempts(words, sigma, (0, 0)) == [largest, -largest]


@pytest.mark.parametrize("sigma", [32.0, 63.99, 1000.3, 2.0**50, 2.0**57, 1.999 * 2.0**57])
def test_single_precision_stays_far_inside_its_margin(sigma: float) -> None:
    # The float32 computation of p·2^28 - v, against the same in integers, at random and at the
    # extreme arguments.
    table = dg.table(sigma)
    width = 2**table.shift
    rng = np.random.default_rng(5)
    k = np.concatenate([rng.integers(0, 512, 300), [0, 0, 511, 511]])
    y = np.concatenate([rng.integers(0, width, 300), [0, width - 1, 0, width - 1]])
    v = np.concatenate([rng.integers(0, 2**28, 300), [0, 2**28 - 1, 2**28 - 1, 0]])
    dg.scratch.integers[0, : k.size] = v
    dg.scratch.integers[1, : k.size] = y
    dg.scratch.integers[4, : k.size] = k
    dg.judge(k.size, table, lambda _: (0, 0))
    np.testing.assert_array_equal(dg.scratch.integers[5, : k.size], k * width + y)
    found = dg.scratch.singles[0, : k.size]
    for i in range(k.size):
        z = mp.mpf(int(y[i])) * (int(y[i]) + 2 * int(k[i]) * width) / (2 * mp.mpf(sigma) ** 2)
        assert z < 2
        assert abs(mp.exp(-z) * 2**28 - int(v[i]) - float(found[i])) < dg.ACCEPT_MARGIN / 16


def test_wide_margins_change_no_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    long = Stream.long_numbers

    def counted(self: Stream, attempt: int) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        return long(self, attempt)

    fast = {s: seeded("margins").discrete_gaussian(s, 6000) for s in SIGMAS}
    monkeypatch.setattr(dg, "ALIAS_MARGIN", 2**23)
    monkeypatch.setattr(dg, "ACCEPT_MARGIN", 2.0**24)
    monkeypatch.setattr(Stream, "long_numbers", counted)
    for sigma, draws in fast.items():
        calls = 0
        np.testing.assert_array_equal(seeded("margins").discrete_gaussian(sigma, 6000), draws)
        if sigma > 1:
            assert calls > 300


# --- Distribution --------------------------------------------------------------------------------


def chi_square(draws: np.ndarray, sigma: float) -> float:
    """The p-value against the exact probabilities, cells of fewer than 20 joined into the tails."""
    reach = int(12 * sigma) + 2
    x = np.arange(-reach, reach + 1)
    p = np.exp(-(x.astype(float) ** 2) / (2 * sigma**2))
    p /= p.sum()
    assert np.abs(draws).max() <= reach
    edge = int(np.max(x[p * draws.size >= 20]))
    counts = np.bincount(np.clip(draws, -edge - 1, edge + 1) + edge + 1, minlength=2 * edge + 3)
    inside = p[reach - edge : reach + edge + 1]
    outside = p[: reach - edge].sum()
    expected = np.concatenate([[outside], inside, [outside]]) * draws.size
    if expected[0] < 1e-9:
        assert counts[0] == counts[-1] == 0
        counts, expected = counts[1:-1], expected[1:-1]
    expected *= draws.size / expected.sum()
    return float(stats.chisquare(counts, expected).pvalue)


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.0, 3.3, 17.0, 31.9, 32.0, 40.5, 150.0, 5000.7])
def test_small_scales_have_the_exact_probabilities(sigma: float) -> None:
    assert chi_square(seeded(f"small {sigma}").discrete_gaussian(sigma, 3_000_000), sigma) > 1e-3


@pytest.mark.parametrize("sigma", [0.7, 20.0, 40.5])
def test_the_slow_path_has_the_exact_probabilities(
    sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dg, "ALIAS_MARGIN", 2**22)
    monkeypatch.setattr(dg, "ACCEPT_MARGIN", 2.0**23)
    assert chi_square(seeded(f"slow {sigma}").discrete_gaussian(sigma, 100_000), sigma) > 1e-3


@pytest.mark.parametrize("sigma", [2.0**30, 2.0**50, 1.999 * 2.0**57])
def test_large_scales_are_normal(sigma: float) -> None:
    n = 2_000_000
    x = seeded(f"large {sigma}").discrete_gaussian(sigma, n)
    z = x / sigma
    cells = np.bincount((stats.norm.cdf(z) * 2000).astype(int), minlength=2000)
    assert stats.chisquare(cells).pvalue > 1e-3
    assert abs(z.mean()) < 4 / math.sqrt(n)
    assert abs((z**2).mean() - 1) < 4 * math.sqrt(2 / n)
    assert abs((z**3).mean()) < 4 * math.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < 4 * math.sqrt(96 / n)
    for threshold in (3.0, 4.0):
        share = 2 * stats.norm.sf(threshold)
        error = math.sqrt(n * share)
        assert abs(np.count_nonzero(np.abs(z) > threshold) - n * share) < 4 * error
    # Signs, and the relation between neighbours.
    assert abs(np.sign(z).mean()) < 4 / math.sqrt(n)
    assert abs(np.mean(z[1:] * z[:-1])) < 4 / math.sqrt(n)
    assert abs(np.mean(np.sign(z) * z**2)) < 4 * math.sqrt(3 / n)


@pytest.mark.parametrize("sigma", [2.0**30, 2.0**50])
def test_low_bits_are_uniform_at_large_scales(sigma: float) -> None:
    x = seeded(f"bits {sigma}").discrete_gaussian(sigma, 1_000_000)
    for bits in (x & 1023, np.abs(x) & 1023, (x >> 10) & 1023):
        assert stats.chisquare(np.bincount(bits, minlength=1024)).pvalue > 1e-3


@pytest.mark.parametrize("sigma", [1e-300, 0.01, 0.1])
def test_tiny_scales_give_zero(sigma: float) -> None:
    assert not seeded("tiny").discrete_gaussian(sigma, 10_000).any()
