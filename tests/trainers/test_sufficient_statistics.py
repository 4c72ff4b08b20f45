"""Least squares from one release: what it costs, what it refuses, what it is good for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from tests.seam import run_of, token

from tacit import DPLinearRegressor, DPSearch, recipe
from tacit.data.rows import as_rows
from tacit.engine.engine import Engine
from tacit.exceptions import InputError, MissingBound
from tacit.losses import get_loss
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Key, Stream
from tacit.mechanisms.release import Draws
from tacit.plan import Plan
from tacit.plan.defaults import AutoRegression, few_columns
from tacit.preprocessing import ClipNorm, Normalize, PrivateCenter, SoftPCA
from tacit.privacy import Budget, Gaussian
from tacit.privacy.events import NEIGHBORS
from tacit.trainers import DPGD, SufficientStatistics
from tacit.trainers.settings import PublicFacts
from tacit.trainers.sufficient_statistics import Moments

SQUARED = get_loss("squared")
FACTS = PublicFacts(50, 3, 1, 1.0, 0.5, task="regression", loss=SQUARED)


class Silent(Draws):
    """Draws from a stream that adds nothing and remembers what was asked of it: itself."""

    def __init__(self):
        self.asked = []

    def discrete_gaussian(self, sigma, count):
        self.asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    def symmetric(self, total, deviation, stream):
        return super().symmetric(total, deviation, self)


def moment(rows, targets, *, bound=1.0, weight=0.5, intercept=0.3, shift=None, size=50):
    """The second moment before its noise."""
    seen = as_rows(np.asarray(rows, dtype=float), bound=1.0)
    targets = np.asarray(targets, dtype=float)[:, None]
    made = Moments(seen, targets, SQUARED, intercept=intercept, shift=shift)
    return made.noisy(bound, weight, size, token(1.0, draws=Silent()))


def rows_and_targets(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), rng.uniform(-1, 1, n)


def extremes(rng, d=3):
    """Rows and targets that break what is promised of them, in every way there is."""
    rows = [rng.normal(size=d) * scale for scale in (0, 1e-300, 1e-3, 1, 1e3, 1e200)]
    rows += [np.eye(d)[0], -np.eye(d)[0], np.full(d, 1 / math.sqrt(d))]
    targets = [0.0, 1.0, -1.0, 1e-9, 7.0, -1e9, 1e300, math.nan, math.inf]
    return [(row, target) for row in rows for target in targets]


# What it costs


@pytest.mark.parametrize("bound, weight, intercept", [(1.0, 0.5, 0.3), (0.3, 2.0, 0.0), (5, 1, 1)])
@pytest.mark.parametrize("shifted", [False, True])
def test_no_row_and_no_target_moves_the_moment_farther_than_was_counted(
    bound, weight, intercept, shifted
):
    rng = np.random.default_rng(1)
    rows, targets = rows_and_targets(4)
    shift = np.array([0.4, -0.2, 0.1]) if shifted else None
    how = {"bound": bound, "weight": weight, "intercept": intercept, "shift": shift}

    def of(extra):
        more = [np.vstack([rows, *(r for r, _ in extra)]), [*targets, *(t for _, t in extra)]]
        return moment(*more, **how)

    alone = of([])
    reached, found = 0.0, []
    for one in extremes(rng):
        found.append(of([one]))
        distance = np.linalg.norm(found[-1] - alone)  # added, removed or blanked: C²
        assert distance <= bound**2 * (1 + 1e-12)
        reached = max(reached, distance)
    assert reached > 0.99 * bound**2  # and no row could be counted for less
    for i in range(0, len(found), 7):  # replaced: counted as 2C², and √2·C² at most
        for other in found:
            assert np.linalg.norm(found[i] - other) <= math.sqrt(2) * bound**2 * (1 + 1e-12)


@pytest.mark.parametrize("noise", [0.7, 4.0, 300.0])
def test_noise_is_what_the_event_says_on_the_diagonal_and_beside_it(noise):
    rows, targets = rows_and_targets(50)
    silent = Silent()
    made = Moments(as_rows(rows, bound=1.0), targets[:, None], SQUARED, intercept=0.3)
    made.noisy(0.8, 0.5, 50, token(noise, draws=silent))
    (diagonal, width), *beside = silent.asked
    trainer = SufficientStatistics().resolve(FACTS)
    assert width == 5 and sum(count for _, count in silent.asked) == trainer.draws(4, 1)
    # A row is a vector of integers of norm 2^20 at most, and counts for its square.
    assert accounted_sigma(diagonal) >= noise * 4.0**20
    for sigma, _ in beside:
        assert accounted_sigma(sigma) >= noise * 4.0**20 / math.sqrt(2)
    assert trainer.event(noise, FACTS) == Gaussian(noise)


@pytest.mark.parametrize("neighbors", sorted(NEIGHBORS))
def test_a_plan_with_it_is_certified_and_verified_under_every_relation(neighbors, monkeypatch):
    asked = []
    real = Stream.discrete_gaussian

    def counted(self, sigma, count):
        asked.append((sigma, count))
        return real(self, sigma, count)

    monkeypatch.setattr(Stream, "discrete_gaussian", counted)
    rows, targets = rows_and_targets(50 if neighbors != "add_or_remove_one" else 47)
    stages = (ClipNorm(1.0), PrivateCenter(0.2))
    plan = Plan(Budget(1.0, 1e-5), stages, SufficientStatistics(), SQUARED, neighbors)
    calibrated = plan.calibrate(size=50, columns=3)
    fit = calibrated.run(as_rows(rows), SQUARED.targets(targets, 1), key=Key.from_seed(0))
    verdict = fit.certificate.verify()
    assert verdict.holds and 0.98 < verdict.recomputed["dp-accounting"] <= 1.0
    _, training = (expense.event for expense in fit.certificate.events)
    assert training == Gaussian(calibrated.noise_multiplier)
    # What was drawn: the mean's numbers, then those of a matrix of rows, constant and target.
    assert sum(count for _, count in asked) == calibrated.draws == 3 + 15
    (drawn, _) = next(item for item in asked[1:] if item[1] == 5)
    assert accounted_sigma(drawn) >= calibrated.noise_multiplier * 4.0**20
    assert fit.certificate.plan["trainer"]["name"] == "SufficientStatistics"
    assert "one pass" in calibrated.explain()


def test_a_moment_is_of_its_rows_whatever_chunks_they_come_in(monkeypatch):
    rows, targets = rows_and_targets(40)
    whole = moment(rows, targets)
    monkeypatch.setattr("tacit.trainers.sufficient_statistics.BLOCK", 35)
    assert (moment(rows, targets) == whole).all()
    order = np.random.default_rng(0).permutation(40)
    assert (moment(rows[order], targets[order]) == whole).all()


def test_without_noise_it_is_the_second_moment():
    rows, targets = rows_and_targets(40)
    joint = np.hstack([rows, np.full((40, 1), 0.3), 0.5 * targets[:, None]])
    assert np.allclose(moment(rows, targets, bound=2.0), joint.T @ joint, atol=1e-4)


def test_sparse_rows_stay_the_same_model():
    rows, targets = rows_and_targets(60)
    rows[::2, 1] = 0.0
    models = [
        DPLinearRegressor(
            target_bounds=(-1, 1), trainer=SufficientStatistics(), random_state=0
        ).fit(X, targets)
        for X in (rows, sp.csr_array(rows))
    ]
    assert (models[0].coef_ == models[1].coef_).all()


# What it refuses


def test_missing_bounds_are_errors():
    rows, targets = rows_and_targets(20)
    with pytest.raises(InputError, match="target_bounds"):
        DPLinearRegressor(trainer=SufficientStatistics()).fit(rows, targets)
    with pytest.raises(MissingBound, match="bounded norm"):
        DPLinearRegressor(target_bounds=(-1, 1), stages=[], trainer=SufficientStatistics()).fit(
            rows, targets
        )
    with pytest.raises(MissingBound, match="ClipNorm"):
        Moments(as_rows(rows), targets[:, None], SQUARED)


@pytest.mark.parametrize("name", ["huber", "absolute", "logistic"])
def test_other_losses_are_refused(name):
    loss = get_loss(name)
    plan = Plan(Budget(1.0, 1e-5), (ClipNorm(1.0),), SufficientStatistics(), loss)
    with pytest.raises(InputError, match="is for loss='squared'"):
        plan.calibrate(size=50, columns=3, classes=2 if name == "logistic" else 0)


@pytest.mark.parametrize(
    "given", [{"steps": 5}, {"momentum": 0.5}, {"radius": 1.0}, {"alpha": 0.1}, {"anchor": 0.1}]
)
def test_it_has_no_settings_of_descent(given):
    (name,) = given
    with pytest.raises(TypeError, match=name):
        SufficientStatistics(**given)


def test_a_recipe_names_the_setting_that_it_does_not_have():
    with pytest.raises(InputError, match=r"SufficientStatistics.* unexpected .*'steps'"):
        recipe("auto", trainer="statistics", steps=5)


@pytest.mark.parametrize("name", ["clip", "intercept_fraction", "weight", "damping"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "much", None])
def test_settings_that_make_no_sense_are_named(name, value):
    with pytest.raises(InputError, match=f"{name} must be a positive number"):
        SufficientStatistics(**{name: value}).resolve(FACTS)


def test_it_is_refused_where_its_account_does_not_hold():
    rows, targets = rows_and_targets(30)
    with pytest.raises(InputError, match="is not analysed for rows that a noiseless stage"):
        Plan(
            Budget(1.0, 1e-5),
            (Normalize(), SoftPCA(0.1)),
            SufficientStatistics(),
            SQUARED,
            "replace_one",
        )
    model = DPLinearRegressor(target_bounds=(-1, 1), trainer=SufficientStatistics())
    with pytest.raises(InputError, match="takes no model to start from"):
        model.set_params(init=(np.zeros(3), 0.0)).fit(rows, targets)
    search = DPSearch(
        DPLinearRegressor(target_bounds=(-1, 1)), {"trainer": [SufficientStatistics()]}
    )
    with pytest.raises(InputError, match="takes no steps, so there is nothing to try"):
        search.fit(rows, targets)
    engine = Engine(as_rows(rows, bound=1.0), targets[:, None], SQUARED)
    trainer = SufficientStatistics().resolve(FACTS)
    with pytest.raises(InputError, match="takes rows that have not moved"):
        trainer.train(engine, run_of(trainer, 1.0, FACTS, Key.from_seed(0)), FACTS)
    with pytest.raises(InputError, match="at most 5,000 columns"):
        trainer.resolve(PublicFacts(50, 5_001, 1, 1.0, 0.5, task="regression", loss=SQUARED))


# What it is good for


@pytest.mark.parametrize("arithmetic", ["exact", "strict", "fast"])
def test_it_finds_a_line(arithmetic):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = 3 + X @ [1.0, -2.0, 0.5] + rng.normal(scale=0.3, size=len(X))
    model = DPLinearRegressor(
        target_bounds=(-3, 8),
        trainer=SufficientStatistics(),
        arithmetic=arithmetic,
        random_state=0,
    ).fit(X, y)
    assert np.allclose(model.coef_, [1.0, -2.0, 0.5], atol=0.1)
    assert model.intercept_ == pytest.approx(3, abs=0.1)
    assert model.certificate_.verify().holds


def test_means_of_skewed_targets_are_learned_and_not_their_medians():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 2))
    y = np.minimum(rng.exponential(1 + (X[:, 0] > 0)), 10.0)  # medians are 0.7 of the means
    model = DPLinearRegressor(1.0, 1e-6, target_bounds=(0, 10), random_state=0).fit(X, y)
    assert model.plan_.trainer.name == "SufficientStatistics"  # by public facts
    assert np.mean(model.predict(X)) == pytest.approx(y.mean(), rel=0.05)
    assert model.partial_fit(X[:100], y[:100], epsilon=0.1, delta=1e-7).certificate_.verify().holds


def test_public_facts_choose_it_for_few_columns_and_squared_loss_alone():
    few = PublicFacts(10**6, 3, 1, 1.0, 0.1, task="regression", loss=SQUARED)
    assert few_columns(few)
    for changed in ({"features": 100}, {"size": 1_000}, {"mu": 1e-3}, {"drift": 0.1}):
        assert not few_columns(PublicFacts(**{**few.__dict__, **changed}))
    assert not few_columns(PublicFacts(**{**few.__dict__, "loss": get_loss("huber")}))
    assert isinstance(AutoRegression().resolve(few), SufficientStatistics)
    assert type(AutoRegression().resolve(FACTS)) is DPGD


@pytest.mark.parametrize(
    ("blanked", "asked"), [(np.array([True, False, False]), {}), (None, {"split": 1})]
)
def test_what_a_second_moment_cannot_honour_is_refused_and_not_ignored(blanked, asked):
    rows = replace(as_rows(np.eye(3), bound=1.0), blanked=blanked)
    with pytest.raises(InputError, match="every row, and whole rows"):
        Moments(rows, np.zeros((3, 1)), get_loss("squared"), **asked)
