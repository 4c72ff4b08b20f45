"""Song et al. 2021 at small size: records are well formed, nulls fail, exact facts hold."""

from __future__ import annotations

import math

import pytest

from tacit.losses import get_loss
from tacit.research.reproduce import reproduce, song, song_flatness, song_lower, song_runs
from tacit.research.reproduce.claim import Measured
from tacit.research.reproduce.printed import PRINTED

CLAIMS = ["upper-bound", "population", "local", "lower-bound", "flatness", "clipped-risk"]
CLAIMS += ["clipping"]
#: Nulls that fail whatever the seeds are, by a part of their text.
CERTAIN = {
    "upper-bound": ["without projection no excess"],
    "population": ["rows err less"],
    "local": ["√n times as large"],
    "lower-bound": ["below the bound", "Theorem B.1", "in proportion", "Lemma B.2", "Lemma B.3"],
    "flatness": ["as 1/n", "Laplace noise", "the choice is"],
    "clipped-risk": ["those of the clipped loss", "is convex", "leaves the loss"],
    "clipping": ["ends at", "log(1/B)/60", "no function"],
}


def well_formed(record):
    assert record["tables"] and record["figures"]
    for check in record["checks"]:
        assert check["null"]["what"] and check["found"] and check["null"]["found"]


@pytest.mark.parametrize("name", CLAIMS)
def test_every_check_of_a_record_has_a_null(quick, name):
    record = quick(f"song-{name}")
    well_formed(record)
    for part in CERTAIN.get(name, ()):
        (check,) = [each for each in record["checks"] if part in each["text"]]
        assert not check["null"]["holds"]


def test_exact_statements_hold_at_any_size(quick):
    held = {check["text"]: check["holds"] for check in quick("song-clipped-risk")["checks"]}
    for part in CERTAIN["clipped-risk"]:
        assert [holds for text, holds in held.items() if part in text] == [True]
    held = {check["text"]: check["holds"] for check in quick("song-lower-bound")["checks"]}
    assert all(holds for text, holds in held.items() if text.startswith("Lemma"))
    (spent,) = [
        check for check in quick("song-flatness")["checks"] if "noise of 4L/n is" in check["text"]
    ]
    assert not spent["holds"]  # 1 at ε = 0.1


def test_columns_of_zeros_are_recorded_once_for_every_kind_of_noise():
    (outcome,) = reproduce(["song-dimension"], quick=True, seeds=1)
    if outcome.finding is None:
        pytest.skip(outcome.missing)
    record = outcome.as_dict()
    well_formed(record)
    (spent,) = [check for check in record["checks"] if "ε of about 5" in check["text"]]
    assert spent["holds"] and not spent["null"]["holds"]


def test_clipping_moves_the_minimum(quick):
    for name, best, said, found, excess in quick("song-clipping")["tables"][0]["rows"][:2]:
        assert name.startswith("B = 0") and best == 0
        assert abs(found["mean"] - said) < 0.5 and excess["mean"] > 0.2


def test_the_paper_s_setting_of_figure_2_is_as_printed():
    printed = PRINTED["song-dimension"]
    grid = [float(f"{a}e{i}") for i in (-1, 0, 1) for a in (1, 2, 5)]
    assert printed["rates"] == grid
    wide = [a * 10**i for i in range(1, 5) for a in (1, 2, 5)]
    assert printed["columns"] == [9, *wide[1:]] and len(printed["columns"]) == 12


# Rules


def measured(mean, spread=0.0, runs=4):
    return Measured(mean, spread, runs)


def test_rules_count_two_standard_errors():
    assert song_runs.below([(measured(0.9), 1.0)])[0]
    assert not song_runs.below([(measured(0.9, 0.2), 1.0)])[0]  # 0.9 + 2 · 0.1
    assert song_runs.above([(measured(1.1), 1.0)])[0]
    assert not song_runs.above([(measured(1.1, 0.2), 1.0)])[0]
    assert song_runs.larger((measured(1.0), measured(1.1)))[0]
    assert not song_runs.larger((measured(1.0, 0.2), measured(1.1)))[0]
    assert song_runs.unchanged((measured(1.0), measured(1.2)))[0]
    assert not song_runs.unchanged((measured(1.0), measured(1.3)))[0]
    assert not song_runs.unchanged((measured(1.0, 0.2), measured(1.2)))[0]


def test_a_power_law_is_read_off_its_points():
    slope, error = song_runs.power([1, 2, 4], [measured(3.0 * n**-1.5) for n in (1, 2, 4)])
    assert slope == pytest.approx(-1.5) and error == 0


def test_printed_rate_makes_the_proof_s_bound_least():
    n, rank, epsilon, delta = 30, 3, 1.0, 1e-5
    steps = n**2
    noise = song_runs.printed_noise(steps, epsilon, delta)
    rate = song_runs.printed_rate(n, rank, steps, 2.0, noise)
    strength = 1 + rank * (noise / n) ** 2
    at = 4.0 / (2 * rate * steps) + rate * strength / 2
    assert at == pytest.approx(song_runs.printed_bound(n, rank, epsilon, delta, 2.0))


def test_settings_share_no_draws():
    seeds = {song_runs.fresh(s, d) for s in range(20) for d in (9, 20, 50)}
    assert len(seeds) == 60


# Exact facts


def test_a_choice_by_laplace_noise_spends_twice_the_shift():
    assert song_flatness.choice_loss(4.0, 2.0) == pytest.approx(1.0, abs=1e-3)
    assert song_flatness.choice_loss(0.0, 2.0) == math.inf


def test_lemmas_of_the_lower_bound():
    assert song_lower.fingerprinting_lemma(5, 1 / 80, 3) < 1e-12
    assert song_lower.fingerprinting_lemma(5, 0.5, 3) > 1e-3
    assert song_lower.closeness_lemma(200, True, 0) <= 1 < song_lower.closeness_lemma(200, False, 0)


def test_clipped_softmax_has_no_potential_and_softmax_has():
    given = {"classes": 4, "per_class": False, "trials": 40, "seed": 5}
    assert song.no_gradient([song.asymmetry(**given)])[0]
    assert not song.no_gradient([song.asymmetry(**given, clips=False)])[0]


def test_lemma_5_1_holds_of_the_losses():
    found = song.lemma("squared", 0.3, 500, seed=0)
    assert found["gap"] < 1e-6 < found["unclipped gap"] and found["bend"] > -1e-9
    assert get_loss("squared").convex


def test_the_noise_of_theorem_2_6_is_too_little_where_rows_are_replaced(quick):
    record = quick("song-privacy")
    assert [check["holds"] for check in record["checks"]] == [False, True, True]
    assert not any(check["null"]["holds"] for check in record["checks"])
    (table,) = record["tables"]
    spent = {row[0]: row[1] for row in table["rows"]}
    assert spent["ε = 1, δ = 1e-05"] == pytest.approx(1.63, abs=0.005)
