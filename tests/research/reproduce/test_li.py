"""Li et al. 2022 at small size: which way do effects go?"""

from __future__ import annotations


def test_singular_values_of_gradients_fall_and_few_directions_do(quick):
    record = quick("li-spectrum")
    values = record["figures"][0]["curves"]["gradients"][1]
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0] / 3
    assert record["verdict"] == "holds"


def test_columns_cost_by_their_weight(quick):
    record = quick("li-median")
    rows = {row[0]: [cell["mean"] for cell in row[1:]] for row in record["tables"][0]["rows"]}
    assert rows["A = I"][-1] > 2 * rows["A = I"][0]
    for name in ("1/√k", "1/k", "1/k, twice the steps"):
        assert abs(rows[name][-1] / rows[name][0] - 1) <= 0.15, name
    assert record["verdict"] == "holds"
