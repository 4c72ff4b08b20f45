"""The geometric median: sensitivity, certificate, conventions, and what columns do to its error."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from typer.testing import CliRunner

from tacit import Ledger
from tacit.cli.main import app
from tacit.exceptions import BudgetError, InputError, MissingBound
from tacit.mechanisms.additive import BITS, lattice_sum
from tacit.privacy import Gaussian, PoissonGaussian
from tacit.research import median
from tacit.research.instances import median as instance
from tacit.research.median import DPGeometricMedian

X = np.random.default_rng(0).normal([0.4, -0.2, 0.0], 0.1, size=(1500, 3))


@parametrize_with_checks([DPGeometricMedian(radius=10.0, steps=5, random_state=0)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def test_it_finds_the_median_within_its_noise():
    found = DPGeometricMedian(radius=1.0, random_state=0).fit(X)
    assert np.linalg.norm(found.location_ - np.median(X, axis=0)) < 0.05
    assert found.score(X) == pytest.approx(-np.linalg.norm(X - found.location_, axis=1).mean())


def test_the_certificate_verifies_and_says_what_was_done():
    certificate = DPGeometricMedian(2.0, 1e-6, radius=1.0, steps=20).fit(X).certificate_
    assert certificate.releasable and certificate.verify().holds
    assert certificate.accountant == "gaussian-dp"
    (expense,) = certificate.events
    assert isinstance(expense.event, Gaussian) and expense.event.count == 20
    seeded = DPGeometricMedian(radius=1.0, steps=5, random_state=0).fit(X).certificate_
    assert not seeded.releasable
    double = DPGeometricMedian(2.0, 1e-6, radius=1.0, steps=20, neighbors="replace_one").fit(X)
    assert double.certificate_.events[0].event.noise_multiplier == pytest.approx(
        2 * expense.event.noise_multiplier, rel=1e-6
    )


@pytest.mark.parametrize("seed", range(10))
def test_no_row_moves_a_sum_of_gradients_by_more_than_is_counted(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    rows, y = rng.normal(size=(6, d)), rng.normal(size=d) * rng.choice([0, 1e-9, 1])
    rows[1] = y  # no gradient at all

    def total(rows):
        return lattice_sum(median.row_gradients(rows, y), d, 1.0).astype(float)

    for swap in (y, -50 * rows[0], y + 1e-160, y + np.eye(d)[0] * 1e-3, y - 1e200):
        moved = rows.copy()
        moved[0] = swap
        with np.errstate(over="ignore"):  # a row that fit() would have shortened
            assert np.linalg.norm(total(rows) - total(moved)) <= 2 * 2**BITS
    without = rows.copy()
    without[0] = y
    assert np.linalg.norm(total(rows) - total(without)) <= 2**BITS


@pytest.mark.parametrize("weights", [None, [1e-6, 7.0, 1.0], [5e-324, 1.0, 1e300]])
def test_whatever_the_weights_a_gradient_counts_for_one(monkeypatch, weights):
    """What is summed is what the event says: rows of norm one, a noise multiplier of z."""
    seen = []

    def spy(chunks, d, bound, token):
        chunks = list(chunks)
        norms = np.linalg.norm(np.concatenate(chunks), axis=1)
        seen.append((bound, token.noise_multiplier, float(norms.max())))
        return original(iter(chunks), d, bound, token)

    original = median.noisy_sum
    monkeypatch.setattr(median, "noisy_sum", spy)
    found = DPGeometricMedian(radius=1.0, weights=weights, steps=4, random_state=0).fit(X)
    (expense,) = found.certificate_.events
    assert len(seen) == expense.event.count == 4
    assert {(bound, z) for bound, z, _ in seen} == {(1.0, expense.event.noise_multiplier)}
    assert max(norm for _, _, norm in seen) <= 1 + 1e-12
    assert np.linalg.norm(found.location_) <= 1 + 1e-12


def test_what_is_missing_or_wrong_is_named():
    with pytest.raises(MissingBound, match="radius="):
        DPGeometricMedian().fit(X)
    for given, text in [
        ({"radius": -1.0}, "radius=-1.0"),
        ({"steps": 0}, "steps=0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"anchor": -1.0}, "anchor=-1.0"),
        ({"neighbors": "add_or_remove_one"}, "neighbors="),
        ({"weights": [1.0, 2.0]}, "weights must be 3 positive numbers"),
        ({"weights": [1.0, 0.0, 1.0]}, "weights must be 3 positive numbers"),
        ({"weights": np.eye(2)}, "matrix of 3 by 3"),
        ({"weights": np.eye(3) + np.eye(3, k=1)}, "not symmetric"),
        ({"weights": np.ones((3, 3))}, "the least eigenvalue"),
        ({"weights": np.full((3, 3), np.nan)}, "matrix of 3 by 3"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 1501}, "at most the 1500 rows"),
    ]:
        with pytest.raises(InputError, match=text):
            DPGeometricMedian(**{"radius": 1.0, **given}).fit(X)
    assert clone(DPGeometricMedian(radius=2.0)).radius == 2.0


@pytest.mark.parametrize(("decay", "least", "most"), [(0.0, 2.0, np.inf), (1.0, 0.85, 1.15)])
def test_columns_do_harm_only_where_all_count_alike(decay, least, most):
    """Li et al. 2022, Figure 1, in small: n = 10,000, ε = 2, δ = 1e-6; the same noise for every
    d.
    """
    error = {}
    for d in (10, 100):
        made = instance(10_000, d, decay=decay, seed=0)
        how = {"radius": 1.0, "weights": made.facts["weights"], "steps": 50}
        runs = [
            DPGeometricMedian(2.0, 1e-6, **how, random_state=seed).fit(made.rows).location_
            for seed in range(2)
        ]
        error[d] = np.mean([made.excess(x) for x in runs])
    assert least <= error[100] / error[10] <= most
    assert error[10] < 1e-6


def test_columns_are_kept_by_weight_and_what_is_left_out_is_within_the_noise():
    weights = np.array([0.1, 1.0, 0.5, 0.5, 0.2])
    noise = np.full(5, 0.1)
    kept = median.kept_columns(np.array([0.05, 3.0, 0.0, 2.0, 0.05]), noise, weights)
    assert kept.tolist() == [False, True, True, True, False]  # equal weights stay together
    only = [False, True, False, False, False]
    assert median.kept_columns(np.zeros(5), noise, weights).tolist() == only
    assert median.kept_columns(np.zeros(5), noise, np.ones(5)).all()
    assert median.kept_columns(np.full(5, 1.0), np.zeros(5), weights).all()
    rng = np.random.default_rng(0)
    for _ in range(200):
        mean, moved = rng.normal(size=(2, 5)) * rng.choice([0.3, 1.0], (2, 1))
        left = mean[~median.kept_columns(mean, moved, weights)]
        assert np.linalg.norm(left) <= np.sqrt(2) * np.linalg.norm(moved) * (1 + 1e-12)


def test_columns_that_say_something_stay():
    rows = np.random.default_rng(1).normal(0.3, 0.1, size=(4000, 8))
    found = DPGeometricMedian(2.0, radius=1.0, weights=1 / np.arange(1, 9), random_state=0)
    assert found.fit(rows).kept_.all()
    assert found.location_ == pytest.approx(np.median(rows, axis=0), abs=0.02)


def test_a_dense_norm_is_a_diagonal_one_in_its_eigenvectors():
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    weights = np.array([4.0, 1.0, 0.25])
    how = {"radius": 1.0, "steps": 40, "random_state": 0}
    plain = DPGeometricMedian(weights=weights, **how).fit(X)
    dense = DPGeometricMedian(weights=turn @ np.diag(weights) @ turn.T, **how).fit(X @ turn.T)
    # Eigenvectors come with either sign, so that noise differs, and little else does.
    assert dense.location_ @ turn == pytest.approx(plain.location_, abs=0.02)
    assert dense.score(X @ turn.T) == pytest.approx(plain.score(X), rel=1e-3)
    assert dense.kept_.tolist() == plain.kept_.tolist()
    same = DPGeometricMedian(weights=np.diag(weights), **how).fit(X)
    assert same.score(X) == pytest.approx(plain.score(X), rel=1e-3)


@pytest.mark.parametrize("weights", [None, np.eye(3) + 0.5])
def test_sampled_rows_count_as_their_event_says(monkeypatch, weights):
    """As many batches as steps, each row of norm one, noise of z; an empty batch has noise, too."""
    seen = []

    def spy(chunks, d, bound, token):
        chunks = list(chunks)
        rows = np.concatenate([*chunks, np.empty((0, d))])
        longest = float(np.linalg.norm(rows, axis=1).max(initial=0.0))
        seen.append((len(rows), longest, bound, token.noise_multiplier))
        return original(iter(chunks), d, bound, token)

    original = median.noisy_sum
    monkeypatch.setattr(median, "noisy_sum", spy)
    found = DPGeometricMedian(
        radius=1.0, weights=weights, steps=60, batch_size=2.0, random_state=0
    ).fit(X)
    (expense,) = found.certificate_.events
    assert isinstance(expense.event, PoissonGaussian)
    assert expense.event.count == len(seen) == 60
    assert expense.event.sampling_probability == pytest.approx(2 / 1500)
    assert found.certificate_.verify().holds
    counts = [count for count, *_ in seen]
    assert min(counts) == 0 and 1 < np.mean(counts) < 3
    assert max(longest for _, longest, *_ in seen) <= 1 + 1e-12
    assert {(bound, z) for *_, bound, z in seen} == {(1.0, expense.event.noise_multiplier)}


def test_batches_find_the_median_too():
    found = DPGeometricMedian(2.0, 1e-5, radius=1.0, steps=150, batch_size=150.0, random_state=1)
    assert np.linalg.norm(found.fit(X).location_ - np.median(X, axis=0)) < 0.1
    assert found.certificate_.plan["median"]["batch_size"] == 150.0


def test_columns_are_weighted_from_the_command_line(tmp_path):
    schema = tmp_path / "s.yaml"
    schema.write_text(
        "columns:\n  age: {kind: number, low: 0, high: 100}\n"
        "  ward: {kind: category, categories: [east, west]}\n"
    )
    table = tmp_path / "t.csv"
    table.write_text("age,ward\n" + "30,east\n" * 300 + "40,west\n" * 200)
    call = ["median", str(table), "--schema", str(schema), "--epsilon", "4", "--delta", "1e-5"]
    call += ["--seed", "1", "--json", "--out"]
    given = ["--weight", "ward=0.01", "--weight", "age=9", "--batch-size", "100", "--steps", "60"]
    done = CliRunner().invoke(app, [*call, str(tmp_path / "a"), *given])
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "a" / "median.json").read_text())
    assert 25 < written["location"]["age"] < 45
    assert written["weights"] == {"ward": 0.01, "age": 9.0}  # those of the median that it is
    for wrong, text in [
        ("height=2", "no column 'height'"),
        ("age=0", "must be a positive number"),
        ("age", "as in age=4"),
        ("ward=2", "'ward' has a weight already"),
    ]:
        given = ["--weight", "ward=1", "--weight", wrong]
        done = CliRunner().invoke(app, [*call, str(tmp_path / "b"), *given])
        assert done.exit_code == 2 and text in done.output


def test_a_ledger_is_charged_and_asked(tmp_path):
    book = Ledger(tmp_path / "ledger.db", dataset="rows").create(epsilon=2.5, delta=1e-4)
    median = DPGeometricMedian(2.0, 1e-5, radius=1.0, steps=5, ledger=book)
    assert median.fit(X).certificate_.plan["ledger"]
    with pytest.raises(BudgetError):
        median.fit(X)
    with pytest.raises(InputError, match="seeded"):
        DPGeometricMedian(radius=1.0, ledger=book, random_state=0).fit(X)
    with pytest.raises(InputError, match=r"tacit\.Ledger"):
        DPGeometricMedian(radius=1.0, ledger="ledger.db").fit(X)
