"""Paper 002 at small size: which way do effects go?"""

from __future__ import annotations


def test_singular_values_of_gradients_fall_and_few_directions_do(quick):
    record = quick("li-spectrum")
    values = record["figures"][0]["curves"]["gradients"][1]
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0] / 3
    assert record["verdict"] == "holds"
