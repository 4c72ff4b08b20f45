"""FillGaps and NoiselessImpute: what stands in a gap, against naive loops; what is refused."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import scipy.sparse as sp
from tests.seam import paid

from tacit import DPLinearClassifier
from tacit.data.rows import as_rows
from tacit.exceptions import InputError, MissingBound
from tacit.mechanisms.random_streams import Key
from tacit.preprocessing import ClipNorm, Context, FillGaps, NoiselessImpute
from tacit.preprocessing.noiseless_impute import STRATEGIES, steady_changes
from tacit.privacy.sensitivity.drift import Drift

SHAPES = {"tall": (60, 5), "wide": (7, 30), "two chunks": (5000, 4)}
COLUMNS = [1, 3]
# Settings that every strategy needs, wide enough for any rows here.
SETTINGS = {
    "shrunk-mean": {"strength": 5.0},
    "mean": {"rows_with_gaps": 4000},
    "trimmed-mean": {"rows_with_gaps": 4000, "trim": 2},
    "median": {"rows_with_gaps": 4000, "median_change": 0.5},
    "ridge": {"strength": 0.1},
    "regression": {"floor": 1e-4},
}


def rows_of(n=60, d=5, missing=0.3, *, radius=1.0, seed=0, columns=COLUMNS):
    """Rows whose observed values have norm at most ``radius``; gaps in ``columns`` only."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * 0.3 + np.linspace(-0.3, 0.5, d)
    gaps = np.zeros((n, d), dtype=bool)
    gaps[:, columns] = rng.random((n, len(columns))) < missing
    rows[gaps] = np.nan
    return clip(rows, radius)


def clip(rows, radius=1.0):
    lengths = np.linalg.norm(np.nan_to_num(rows), axis=1, keepdims=True)
    return rows * np.minimum(1, radius / np.maximum(lengths, 1e-99))


def impute(strategy, columns=COLUMNS, **settings):
    return NoiselessImpute(strategy, columns=columns, **{**SETTINGS[strategy], **settings})


def through(stage, rows, bound=1.0, drift=None):
    seen = as_rows(rows, bound=bound, gaps=True)
    stage.fit(seen, paid(seen.n, Key.from_seed(0), drift=drift))
    return stage.through(seen).collect()


# Naive references, cell by cell


def fill_columns(rows, statistic):
    filled = rows.copy()
    for j in range(rows.shape[1]):
        observed = [float(v) for v in rows[:, j] if not math.isnan(v)]
        filled[np.isnan(rows[:, j]), j] = statistic(observed)
    return filled


def trimmed(values, trim=2):
    kept = sorted(values)[trim:-trim]
    return sum(kept) / len(kept) if kept else 0.0


def regressed(rows, penalty, columns=COLUMNS):
    """Each column by itself, as a stacked least-squares problem."""
    rest = [j for j in range(rows.shape[1]) if j not in columns]
    complete = rows[~np.isnan(rows).any(axis=1)]
    filled = rows.copy()
    ridge = math.sqrt(penalty * len(rows)) * np.eye(len(rest))
    left = np.concatenate([complete[:, rest], ridge])
    for j in columns:
        right = np.concatenate([complete[:, j], np.zeros(len(rest))])
        weights = np.linalg.lstsq(left, right, rcond=None)[0]
        for i in np.flatnonzero(np.isnan(rows[:, j])):
            filled[i, j] = rows[i, rest] @ weights
    return filled


REFERENCES = {
    "shrunk-mean": lambda rows: fill_columns(rows, lambda v: sum(v) / (len(v) + 5.0)),
    "mean": lambda rows: fill_columns(rows, lambda v: sum(v) / max(len(v), 1)),
    "trimmed-mean": lambda rows: fill_columns(rows, trimmed),
    "median": lambda rows: fill_columns(rows, lambda v: statistics.median(v) if v else 0.0),
    "ridge": lambda rows: regressed(rows, 0.1),
}


@pytest.mark.parametrize("strategy", REFERENCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_strategy_does_what_a_loop_does(strategy, shape):
    rows = rows_of(*SHAPES[shape])
    expected = clip(REFERENCES[strategy](rows))
    for given in (rows, np.asfortranarray(rows), sp.csr_array(rows)):
        assert through(impute(strategy), given) == pytest.approx(expected, abs=1e-10)


def test_regression_is_least_squares_where_its_test_passes():
    rows = rows_of(300, 5)
    stage = impute("regression")
    assert through(stage, rows) == pytest.approx(clip(regressed(rows, 0.0)), abs=1e-9)
    assert stage.margin > 0
    # Too few rows for the columns: solvable all the same, and the test will refuse.
    wide = impute("regression")
    assert np.isfinite(through(wide, rows_of(7, 30))).all()
    assert wide.margin < 0


@pytest.mark.parametrize("strategy", ["shrunk-mean", "mean", "trimmed-mean", "median"])
def test_all_columns_by_default(strategy):
    rows = rows_of(columns=[0, 1, 2, 3, 4])
    stage = impute(strategy, columns=None)
    assert through(stage, rows) == pytest.approx(clip(REFERENCES[strategy](rows)), abs=1e-12)


def test_the_default_strengths():
    rows = rows_of()
    expected = fill_columns(rows, lambda v: sum(v) / (len(v) + len(rows)))
    assert through(NoiselessImpute(columns=COLUMNS), rows) == pytest.approx(
        clip(expected), abs=1e-12
    )
    found = through(NoiselessImpute("ridge", columns=COLUMNS), rows)
    assert found == pytest.approx(clip(regressed(rows, 0.05)), abs=1e-10)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gaps_elsewhere_count_as_zero(strategy):
    rows = rows_of()
    elsewhere, zeros = rows.copy(), rows.copy()
    elsewhere[4, 2] = elsewhere[9, 0] = np.nan
    zeros[4, 2] = zeros[9, 0] = 0.0
    one, other = (through(impute(strategy), r) for r in (elsewhere, zeros))
    assert one == pytest.approx(other, abs=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_complete_rows_stay_as_they_are_and_observed_cells_only_shrink(strategy):
    rows = rows_of()
    found = through(impute(strategy), rows)
    complete = ~np.isnan(rows).any(axis=1)
    assert found[complete] == pytest.approx(rows[complete], abs=1e-15)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-12
    observed = ~np.isnan(rows)
    assert (np.abs(found[observed]) <= np.abs(rows[observed]) * (1 + 1e-12)).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_column_without_values_and_rows_without_gaps(strategy):
    rows = rows_of()
    empty = rows.copy()
    empty[:, 3] = np.nan
    assert np.isfinite(through(impute(strategy), empty)).all()
    whole = np.nan_to_num(rows)
    assert through(impute(strategy), whole) == pytest.approx(whole, abs=1e-15)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_observed_cells_beyond_the_bound_are_clipped_before_they_count(strategy):
    rows = rows_of()
    rows[0] = [0.6, np.nan, 0.8, 0.0, 0.0]
    wild = rows.copy()
    wild[0] *= 1e200
    one, other = (through(impute(strategy), r) for r in (rows, wild))
    assert one == pytest.approx(other, abs=1e-12)


# The test's margin


def test_the_margin_counts_rows_with_gaps_in_the_named_columns():
    rows = rows_of()
    rows[7, 2] = np.nan  # not in a named column
    with_gaps = int(np.isnan(rows[:, COLUMNS]).any(axis=1).sum())
    for strategy in ("mean", "shrunk-mean", "trimmed-mean", "ridge"):
        stage = impute(strategy, rows_with_gaps=40)
        through(stage, rows)
        assert stage.tested
        assert stage.margin == 40 - with_gaps
    free = impute("shrunk-mean")
    through(free, rows)
    assert not free.tested
    assert free.margin == math.inf


def test_the_margin_of_a_regression_is_its_least_eigenvalue_in_rows():
    rows = rows_of(300)
    complete = rows[~np.isnan(rows).any(axis=1)][:, [0, 2, 4]]
    least = np.linalg.eigvalsh(complete.T @ complete / 300)[0]
    stage = impute("regression", floor=0.001)
    through(stage, rows)
    assert stage.margin == pytest.approx((least - 0.001) * 300, rel=1e-6)
    moved = impute("regression", floor=0.001)
    through(moved, rows, drift=Drift(1.0, 2.0, 0.1, 299))
    assert moved.margin == pytest.approx((least - 0.001) * 300 / 5, rel=1e-6)


@pytest.mark.parametrize("strategy", ["mean", "trimmed-mean", "median", "ridge", "regression"])
def test_one_row_changes_the_margin_by_one_at_the_most(strategy):
    rng, worst = np.random.default_rng(0), 0.0
    settings = {"rows_with_gaps": 9}
    if strategy == "median":
        settings = {"rows_with_gaps": 40, "median_change": 0.3}
    if strategy == "regression":
        settings = {"floor": 0.01}
    for seed in range(300):
        rows = rows_of(int(rng.integers(3, 30)), 4, missing=0.2, seed=seed)
        other = rows.copy()
        other[0] = rng.normal(size=4)
        other[0, COLUMNS] = np.where(rng.random(2) < 0.5, np.nan, other[0, COLUMNS])
        margins = []
        for table in (rows, clip(other)):
            stage = impute(strategy, **settings)
            through(stage, table)
            margins.append(stage.margin)
        worst = max(worst, abs(margins[0] - margins[1]))
    assert 0.1 < worst <= 1


def medians_reached(values, change, rng, tries=60):
    """Whether one value replaced, dropped or added moved the median beyond ``change``."""
    middle = np.median(values)
    for _ in range(tries):
        other = list(values)
        what = rng.integers(3)
        if what < 2 and len(other) > 1:
            other.pop(rng.integers(len(other)))
        if what > 0:
            other.append(rng.choice([-9.0, 9.0, float(rng.normal())]))
        if abs(np.median(other) - middle) > change:
            return True
    return False


def test_a_steady_median_is_not_moved_by_one_row():
    rng = np.random.default_rng(0)
    steady = shaky = 0
    for _ in range(400):
        values = np.sort(rng.normal(size=int(rng.integers(1, 14))) * rng.choice([0.1, 1.0]))
        changes = steady_changes(values, 0.4)
        if changes >= 0:
            assert not medians_reached(values, 0.4, rng)
            steady += 1
        else:
            shaky += medians_reached(values, 0.4, rng)
    assert steady > 50 and shaky > 50
    assert steady_changes(np.array([]), 0.4) < 0


def test_steadiness_counts_rows():
    # Nine equal values: the middle can be moved by four places either way before it shows.
    assert steady_changes(np.zeros(9), 0.1) == 3
    assert steady_changes(np.arange(9.0), 0.1) == -1
    assert steady_changes(np.array([0.0, 1.0]), 0.1) == -2
    assert steady_changes(np.arange(9.0), 2.0) == 0


# Prediction


def test_what_was_filled_in_is_not_released_and_gaps_are_refused():
    stage = impute("mean")
    through(stage, rows_of())
    released = stage.release(as_rows(rows_of(), bound=1.0, gaps=True), Context(60))
    assert released == FillGaps(None)
    whole = np.ones((2, 5))
    assert (released.transform(whole) == whole).all()
    with pytest.raises(InputError, match="at_prediction=value"):
        released.transform(np.array([[np.nan, 1.0]]))


def test_a_public_constant_at_prediction():
    stage = impute("mean", at_prediction=0.25)
    through(stage, rows_of())
    released = stage.release(as_rows(rows_of(), bound=1.0, gaps=True), Context(60))
    assert released == FillGaps(0.25)
    assert released.transform(np.array([[np.nan, 1.0]])).tolist() == [[0.25, 1.0]]


@pytest.mark.parametrize("strategy", ["shrunk-mean", "ridge"])
def test_a_model_of_rows_with_gaps(strategy):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 4))
    labels = rows[:, 0] > 0
    rows[rng.random(3000) < 0.2, 1] = np.nan
    stages = [
        ClipNorm(1.0),
        NoiselessImpute(strategy, columns=[1], strength=1000.0, at_prediction=0.0),
    ]
    model = DPLinearClassifier(8.0, 1e-5, stages=stages, random_state=0).fit(rows, labels)
    assert model.score(rows, labels) > 0.8
    assert [type(stage) for stage in model.stages_] == [ClipNorm, FillGaps]


def test_fill_gaps_fills_with_its_constant():
    rows = np.array([[np.nan, 1.0], [2.0, np.nan]])
    assert FillGaps(0.5).fit(rows).transform(rows).tolist() == [[0.5, 1.0], [2.0, 0.5]]
    assert FillGaps().transform(sp.csr_array(rows)).tolist() == [[0.0, 1.0], [2.0, 0.0]]


def test_fill_gaps_says_how_long_rows_become():
    assert FillGaps(0.5).bound(1.0, 4) == 2.0
    assert FillGaps(-0.5).bound(1.0, 4) == 2.0
    assert FillGaps(0.0).bound(1.0) == 1.0
    assert FillGaps(None).bound(1.0) == 1.0
    assert FillGaps(0.5).bound(1.0) is None  # how many cells are filled is not known
    assert FillGaps(0.5).bound(None, 4) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, "mean", True, [1.0]])
def test_a_constant_is_a_number(value):
    with pytest.raises(InputError, match="finite number"):
        FillGaps(value)
    with pytest.raises(InputError, match="finite number"):  # before training, not after
        NoiselessImpute(at_prediction=value)


# What is refused


def test_a_strategy_is_one_of_the_list():
    with pytest.raises(InputError, match="shrunk-mean, mean, trimmed-mean"):
        NoiselessImpute("mode")


@pytest.mark.parametrize(
    ("strategy", "needs"),
    [
        ("mean", "rows_with_gaps"),
        ("trimmed-mean", "rows_with_gaps"),
        ("median", "rows_with_gaps"),
        ("regression", "floor"),
        ("ridge", "columns"),
    ],
)
def test_what_a_strategy_must_be_told(strategy, needs):
    with pytest.raises(MissingBound, match=needs):
        NoiselessImpute(strategy)
    if strategy == "median":
        with pytest.raises(MissingBound, match="median_change"):
            NoiselessImpute(strategy, rows_with_gaps=5)


@pytest.mark.parametrize("columns", [[0, 0], [-1], [True], [1.5]])
def test_columns_are_different_indices(columns):
    with pytest.raises(InputError, match="different indices"):
        NoiselessImpute(columns=columns)


def test_columns_must_be_there_and_leave_some_to_predict_from():
    with pytest.raises(InputError, match="names column 7; there are 5"):
        through(NoiselessImpute(columns=[7]), rows_of())
    with pytest.raises(InputError, match="names column 7"):
        NoiselessImpute(columns=[7]).drift(Drift(1.0), 60, 5)
    with pytest.raises(InputError, match="needs complete columns"):
        through(NoiselessImpute("ridge", columns=range(5)), rows_of())


@pytest.mark.parametrize("name", ["strength", "median_change", "floor"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True])
def test_constants_are_positive_numbers(name, value):
    with pytest.raises(InputError, match="must be a positive number"):
        NoiselessImpute(**{name: value})


@pytest.mark.parametrize("name", ["rows_with_gaps", "trim"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_counts_are_integers(name, value):
    with pytest.raises(InputError, match="at least 1"):
        NoiselessImpute(**{name: value})


@pytest.mark.parametrize("share", [0, 1, True, math.nan])
def test_a_share_is_part_of_the_budget(share):
    with pytest.raises(InputError, match="share must lie between 0 and 1"):
        NoiselessImpute(share=share)


def test_a_bound_is_needed_and_fitting_comes_first():
    with pytest.raises(MissingBound, match="ClipNorm"):
        NoiselessImpute().fit(rows_of())
    with pytest.raises(InputError, match="not fitted yet"):
        NoiselessImpute().apply(rows_of())
    with pytest.raises(InputError, match="infinity"):
        NoiselessImpute().fit(np.array([[np.inf]]))


def test_drift_needs_the_number_of_columns_where_it_depends_on_it():
    for strategy in ("trimmed-mean", "median"):
        with pytest.raises(InputError, match="needs d="):
            impute(strategy, columns=None).drift(Drift(1.0), 10_000)
    assert impute("mean").drift(Drift(1.0), 10_000).l1 > 0
