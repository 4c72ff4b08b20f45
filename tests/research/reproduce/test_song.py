"""Song et al. 2021 at small size: which way do effects go?"""

from __future__ import annotations


def test_clipping_moves_the_minimum(quick):
    record = quick("song-clipping")
    assert record["verdict"] == "holds"
    rows = record["tables"][0]["rows"]
    for _, best, said, found, excess in rows:
        assert best == 0 and abs(found["mean"] - said) < 0.2
        assert excess["mean"] > 0.2


def test_columns_of_zeros_cost_nothing_with_gaussian_noise_alone(quick):
    record = quick("song-dimension")
    first, *_, last = record["tables"][0]["rows"]
    assert abs(last[1]["mean"] - first[1]["mean"]) < 1
    assert last[2]["mean"] < first[2]["mean"] - 5
    assert first[1]["mean"] > 90


def test_error_grows_with_the_rank_and_not_with_the_columns(quick):
    record = quick("song-lower-bound")
    assert record["verdict"] == "holds"
    narrow = [row[2]["mean"] for row in record["tables"][0]["rows"]]
    wide = [row[3]["mean"] for row in record["tables"][0]["rows"]]
    assert narrow == sorted(narrow) and narrow[-1] > 5 * narrow[0]
    assert max(abs(a / b - 1) for a, b in zip(narrow, wide, strict=True)) < 0.1
