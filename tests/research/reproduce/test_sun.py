"""Sun et al. 2024 at small size: which way do effects go?"""

from __future__ import annotations


def mean(cell):
    return cell["mean"]


def test_centring_gains_more_the_nearer_rows_lie_to_their_mean(quick):
    record = quick("sun-table1")
    assert record["checks"][0]["holds"] and record["checks"][2]["holds"]
    rows = {row[0]: row[1:] for row in record["tables"][0]["rows"]}
    for name in ("MNIST", "Fashion-MNIST"):
        without, within = rows[f"{name}, ε = 1, DPSGD"], rows[f"{name}, ε = 1, DPSGD-F"]
        assert mean(within[1]) > mean(without[1])
        assert mean(within[3]) > mean(without[1])  # ours, with nothing chosen on the outcome


def test_distances_are_nearly_those_printed(quick):
    record = quick("sun-table2")
    for label, printed, found in record["tables"][0]["rows"]:
        assert abs(found - printed) < (0.01 if "mean distance" in label else 0.1)
    assert record["checks"][1]["holds"] and record["checks"][-1]["holds"]


def test_far_clusters_stay_apart_only_if_they_are_centred(quick):
    record = quick("sun-counterexample")
    assert record["verdict"] == "holds"
    near, far = record["tables"][0]["rows"]
    assert mean(near[2]) < 0.1 and mean(far[2]) > 0.9
    assert mean(near[4]) < 0.01 and mean(far[4]) < 0.01
