"""Paper 001 at small size: which way do effects go?"""

from __future__ import annotations


def test_clipping_moves_the_minimum(quick):
    record = quick("song-clipping")
    assert record["verdict"] == "holds"
    rows = record["tables"][0]["rows"]
    for _, best, said, found, excess in rows:
        assert best == 0 and abs(found["mean"] - said) < 0.2
        assert excess["mean"] > 0.2
