"""Private tuning: what runs is what was counted, and nothing but the best trial comes out."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor

import tacit.model_selection.calibrated
import tacit.model_selection.search
from tacit import Certificate, DPLinearClassifier, DPLinearRegressor, DPSearch, Ledger, load, save
from tacit.engine.engine import LOSS_UNIT
from tacit.exceptions import BudgetError, InputError, MissingBound, ReleaseError
from tacit.mechanisms.lattice import accounted_sigma
from tacit.mechanisms.random_streams import Key, Stream
from tacit.mechanisms.release import Draws
from tacit.model_selection.calibrated import SCORE_SHARE, nearness, right_or_wrong
from tacit.model_selection.search import Search, Trials
from tacit.preprocessing import ClipNorm, NoiselessPCA, Normalize, PrivateCenter, SoftPCA
from tacit.privacy import Gaussian, PoissonGaussian, Repeated
from tacit.privacy.accounting.accountants import epsilon, total_mu
from tacit.report import render_html
from tacit.research.trainers import LocalDPGD
from tacit.trainers import DPGD, DPSGD

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 600)
X = RNG.normal(size=(600, 4)) + 1.5 * Y[:, None]
GRID = {"trainer__clip": [0.02, 0.1], "trainer__steps": [4, 9]}


def search(grid=None, *, estimator=None, epsilon=2.0, delta=1e-5, **options):
    base = DPLinearClassifier(trainer=DPGD(steps=5)) if estimator is None else estimator
    return DPSearch(base, GRID if grid is None else grid, epsilon=epsilon, delta=delta, **options)


def trial_of(calibrated):
    (repeated,) = (event for _, event in calibrated.spent if isinstance(event, Repeated))
    return repeated


# --- what it finds --------------------------------------------------------------------------------


def test_it_finds_the_setting_that_works():
    away = X + 4.0  # far from the origin: no plane through it parts the classes
    base = DPLinearClassifier(
        stages=[ClipNorm(12.0)], trainer=DPGD(intercept_fraction=1.0), random_state=3
    )
    grid = {"fit_intercept": [True, False]}
    found = search(grid, estimator=base, epsilon=8.0, distribution="poisson").fit(away, Y)
    assert found.best_params_ == {"fit_intercept": True}
    assert found.score(away, Y) > 0.9
    assert found.best_score_ == pytest.approx(found.score(away, Y), abs=0.05)


def test_the_model_and_its_certificate_are_as_of_any_fit(tmp_path):
    found = search().fit(X, Y)
    best = found.best_estimator_
    assert isinstance(best, DPLinearClassifier)
    assert (best.epsilon, best.delta) == (2.0, 1e-5)
    np.testing.assert_array_equal(found.predict(X), best.predict(X))
    np.testing.assert_array_equal(found.decision_function(X), best.decision_function(X))
    np.testing.assert_array_equal(found.predict_proba(X), best.predict_proba(X))
    np.testing.assert_array_equal(found.classes_, [0, 1])
    assert found.n_features_in_ == 4
    claim = found.certificate_
    assert claim == best.certificate_
    assert (claim.epsilon, claim.delta, claim.accountant) == (2.0, 1e-5, "profile")
    assert claim.releasable
    assert claim.verify().holds
    assert Certificate.from_json(claim.to_json()) == claim
    names = ["PrivateCenter", "PrivatePrecondition", "Search"]
    assert [expense.stage for expense in claim.events] == names
    save(best, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "model.safetensors").predict(X), best.predict(X))
    page = render_html(claim.to_dict())
    assert "Search" in page and "about 10" in page
    assert "private trials from 4 settings" in best.plan_.explain()


def test_nothing_of_the_trials_is_kept_but_the_best():
    base = DPLinearClassifier(trainer=DPGD(steps=3))
    found = search({"trainer__clip": [0.02, 0.1]}, estimator=base).fit(X, Y)
    kept = {name for name in vars(found) if name.endswith("_")}
    assert kept == {"best_estimator_", "best_params_", "best_score_", "certificate_", "search_"}
    made = vars(found.search_)
    assert set(made) == {
        "search",
        "plans",
        "spent",
        "event",
        "score_noise",
        "numerical_delta",
        "draws",
    }
    # Whatever was drawn, the certificate says the same, but for what the best trial sets.
    seen = set()
    for _ in range(6):
        data = (
            search({"trainer__clip": [0.02, 0.1]}, estimator=base).fit(X, Y).certificate_.to_dict()
        )
        data["plan"]["trainer"].pop("parameters")
        for stage in data["plan"]["stages"]:
            stage.pop("note")
        seen.add(json.dumps({k: v for k, v in data.items() if k not in ("created", "digest")}))
    assert len(seen) == 1


def test_regression_and_many_classes():
    y = X @ [0.1, -0.1, 0.2, 0.0]
    base = DPLinearRegressor(target_bounds=(-1.5, 1.5), trainer=DPGD(steps=30), random_state=1)
    found = search({"trainer__clip": [0.1, 0.3]}, estimator=base, epsilon=8.0).fit(X, y)
    assert is_regressor(found) and not is_classifier(found)
    assert found.certificate_.verify().holds
    assert 0.9 < found.best_score_ <= 1
    three = np.digitize(X[:, 0], [0.0, 1.5])
    base = DPLinearClassifier(trainer=DPGD(steps=20), random_state=1)
    for loss in ("softmax", "hinge"):
        clf = search({"trainer__clip": [0.1, 0.2]}, estimator=clone(base).set_params(loss=loss))
        clf.fit(X, three)
        assert clf.best_score_ == pytest.approx(clf.score(X, three), abs=0.08)


def test_scores_count_from_minus_one_to_one_for_a_row():
    scores = np.array([[0.5], [-0.5], [0.5], [np.nan]])
    signs = np.array([[1.0], [1.0], [-1.0], [1.0]])
    assert right_or_wrong(scores, signs).tolist() == [1, -1, -1, -1]
    wide = np.array([[0.1, 0.9], [0.9, 0.1]])
    assert right_or_wrong(wide, np.array([1, 1])).tolist() == [1, -1]
    assert right_or_wrong(wide, np.array([[-1.0, 1], [-1, 1]])).tolist() == [
        1,
        -1,
    ]
    near = nearness(np.array([[0.0], [3.0], [np.inf], [0.5]]), np.zeros((4, 1)))
    assert near.tolist() == [1, -1, -1, 0.5]


# --- what it costs --------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", ["geometric", "logarithmic", "poisson", 0.5])
@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one", "add_or_remove_one"])
def test_the_budget_is_met_and_used(distribution, neighbors):
    base = DPLinearClassifier(neighbors=neighbors, public_size=600)
    made = search(estimator=base, distribution=distribution).plan(size=600, columns=4)
    events = [event for _, event in made.spent]
    spent = epsilon(events, 1e-5 - made.numerical_delta, neighbors)
    assert 1.999 < spent <= 2.0
    # Every setting spends what the trial of the event says, at most: its steps and its score.
    for plan in made.plans:
        training = [event for _, event in plan.trainer.events(plan.noise_multiplier, plan.facts)]
        assert (*training, Gaussian(made.score_noise)) in trial_of(made).trial
    most = max(total_mu(trial, neighbors) for trial in trial_of(made).trial)
    least = min(total_mu(trial, neighbors) for trial in trial_of(made).trial)
    assert least == pytest.approx(most, rel=1e-4)  # settings with more steps take noisier ones


def test_shared_stages_are_counted_once_and_others_in_every_trial():
    once = search().plan(size=600, columns=4)
    names = ["PrivateCenter", "PrivatePrecondition", "Search"]
    assert [name for name, _ in once.spent] == names
    grid = {"stages": [[Normalize(), PrivateCenter()], [ClipNorm(2.0)]]}
    each = search(grid).plan(size=600, columns=4)
    assert [name for name, _ in each.spent] == ["Search"]
    assert [len(trial) for trial in trial_of(each).trial] == [3, 2]


def test_every_noise_that_is_drawn_was_counted(monkeypatch):
    """Deviations of all draws in a run, in units of what one row counts for."""
    drawn = []
    real = Stream.discrete_gaussian

    def watched(self, sigma, count):
        drawn.append((self._name.split(",")[0], sigma))
        return real(self, sigma, count)

    monkeypatch.setattr(Stream, "discrete_gaussian", watched)
    found = search({"trainer__clip": [0.02, 0.1]}).fit(X, Y)
    made = found.search_
    (trial,) = trial_of(made).trial
    scores = {sigma for name, sigma in drawn if "score" in name}
    assert len(scores) == 1
    counted = accounted_sigma(scores.pop()) / LOSS_UNIT
    assert counted >= trial[-1].noise_multiplier == made.score_noise
    assert counted == pytest.approx(made.score_noise, rel=1e-6)
    steps = [sigma for name, sigma in drawn if "noise" in name]
    assert steps and len(steps) % 5 == 0  # five steps in every trial, each with noise of its own


def test_a_search_that_forgets_its_score_is_found_out(monkeypatch):
    """The mutation: scores are drawn with the noise of the plan, and not counted."""

    def forgetful(self, facts, grid, real=Search.calibrated_on):
        made = real(self, facts, grid)
        bare = tuple(trial[:-1] for trial in made.event.trial)
        event = Repeated(trial=bare, shape=made.event.shape, rate=made.event.rate)
        spent = (*made.spent[:-1], ("Search", event))
        return tacit.model_selection.calibrated.replace(made, spent=spent, event=event)

    monkeypatch.setattr(Search, "calibrated_on", forgetful)
    with pytest.raises(InputError, match="not what its account lists"):
        search().plan(size=600, columns=4)
    # Without that check nothing is drawn either, and what is spent tells it too.
    monkeypatch.setattr(
        tacit.model_selection.calibrated.CalibratedSearch, "__post_init__", lambda self: None
    )
    with pytest.raises(ReleaseError, match="makes a trial that was not counted"):
        search({"trainer__clip": [0.02, 0.1]}).fit(X, Y)
    with pytest.raises(AssertionError):
        test_the_budget_is_met_and_used("geometric", "replace_special")


@pytest.mark.parametrize("shared", [True, False])
def test_noise_that_had_to_be_corrected_is_the_noise_that_runs(shared, monkeypatch):
    """If the first noise does not fit, as for steps on samples, all of it is multiplied once."""
    monkeypatch.setattr(tacit.model_selection.search, "epsilon", lambda *_, **__: math.inf)
    monkeypatch.setattr(
        tacit.model_selection.search, "calibrate", _twice(tacit.model_selection.search.calibrate)
    )
    grid = GRID if shared else {"stages": [[Normalize(), PrivateCenter()], [ClipNorm(2.0)]]}
    made = search(grid).plan(size=600, columns=4)
    for plan in made.plans:
        own = plan.trainer.events(plan.noise_multiplier, plan.facts)
        assert any(own[0][1] in trial for trial in made.event.trial)
    spent = epsilon([event for _, event in made.spent], 1e-5, "replace_special")
    assert spent < 1.5  # twice the noise that is needed, and all of it is listed


def _twice(real):
    """Calibration that gives a factor of two where it is asked for a factor."""

    def calibrate(events, budget, neighbors):
        found = real(events, budget, neighbors)
        return 2 * found if len(events(1.0)[-1].leaves) > 1 else found

    return calibrate


@pytest.mark.parametrize(
    "trainer",
    [
        DPGD(steps=4, clip=0.05),
        pytest.param(DPSGD(steps=4, batch_size=100, clip=0.05), marks=pytest.mark.long),
    ],
)
def test_trials_are_independent_whether_trained_together_or_alone(trainer, monkeypatch):
    monkeypatch.setattr(Draws, "trials", lambda self, event, stream: 6)
    weights, real = [], tacit.model_selection.calibrated.CalibratedSearch.score_trials

    def watched(self, engine, found, *rest):
        weights.extend(found.copy())
        return real(self, engine, found, *rest)

    monkeypatch.setattr(tacit.model_selection.calibrated.CalibratedSearch, "score_trials", watched)
    search({"trainer": [trainer]}, distribution="logarithmic").fit(X, Y)
    assert len({each.tobytes() for each in weights}) == len(weights) == 6


def test_equal_scores_go_to_the_earlier_trial_in_whatever_order_they_run(monkeypatch):
    monkeypatch.setattr(Draws, "trials", lambda self, event, stream: 5)
    picks, real = iter([1, 0, 1, 0, 0]), Draws.gaussian
    monkeypatch.setattr(Draws, "setting", lambda self, count, stream: next(picks))

    def equal(self, total, deviation, stream):
        return np.array([7]) if total.kind == "score" else real(self, total, deviation, stream)

    monkeypatch.setattr(Draws, "gaussian", equal)
    found = search({"trainer__intercept_fraction": [0.1, 0.2]}).fit(X, Y)
    assert found.best_params_ == {"trainer__intercept_fraction": 0.2}


def test_a_seeded_search_is_repeatable_and_not_for_release():
    base = DPLinearClassifier(trainer=DPGD(steps=5), random_state=7)
    one, two = (search(estimator=clone(base)).fit(X, Y) for _ in range(2))
    np.testing.assert_array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
    assert one.best_params_ == two.best_params_
    assert not one.certificate_.releasable


@pytest.mark.long
def test_trials_on_samples_meet_the_budget():
    base = DPLinearClassifier(trainer=DPSGD(steps=20, batch_size=60))
    found = search({"trainer__clip": [0.02, 0.1]}, estimator=base, trials=4).fit(X, Y)
    (trial,) = trial_of(found.search_).trial
    assert isinstance(trial[0], PoissonGaussian)
    assert found.certificate_.verify().holds


def test_a_search_may_begin_at_a_public_model_and_be_gone_on_with():
    start = (np.ones((1, 4)), np.array([-3.0]))
    base = DPLinearClassifier(trainer=DPGD(steps=1), stages=[ClipNorm(8.0)], init=start)
    found = search({"trainer__learning_rate": [1e-9, 1e-8]}, estimator=base).fit(X, Y)
    np.testing.assert_allclose(found.best_estimator_.coef_, start[0], atol=1e-3)
    assert "the model that training starts from is public" in found.certificate_.assumptions
    wrong = clone(base).set_params(init=(np.ones((1, 3)), np.zeros(1)))
    with pytest.raises(InputError, match="shape"):
        search({"trainer__clip": [0.1]}, estimator=wrong).fit(X, Y)
    both = found.best_estimator_.partial_fit(X, Y, epsilon=0.5, delta=1e-5).certificate_
    assert 2.0 < both.epsilon < 2.5 and both.verify().holds
    assert any("searches" in text for text in both.warnings)


def test_bytes_are_taken_for_intensities():
    rows = np.clip(40 * X + 100, 0, 255).astype(np.uint8)
    found = search({"trainer__clip": [0.05, 0.1]}).fit(rows, Y)
    assert "that the values are bytes, 0 to 255, is public" in found.certificate_.assumptions
    assert found.certificate_.plan["stages"][0]["name"] == "Root"


# --- the ledger -----------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.db").create("people", epsilon=3.0, delta=1e-4)


def test_a_search_is_reserved_before_trials_are_drawn_and_committed_after(ledger, monkeypatch):
    seen = []
    real = Draws.trials

    def draw(self, event, stream):
        seen.append([charge.outcome for charge in ledger.charges()])
        return real(self, event, stream)

    monkeypatch.setattr(Draws, "trials", draw)
    base = DPLinearClassifier(trainer=DPGD(steps=5), ledger=ledger)
    found = search(estimator=base, epsilon=1.0).fit(X, Y)
    assert seen == [["not finished"]]
    (charge,) = ledger.charges()
    assert charge.outcome == "model"
    assert charge.certificate == found.certificate_.digest
    assert charge.spending.events == found.search_.spent
    assert charge.plan["search"]["settings"] == 4
    assert "grid" not in charge.plan["search"]
    assert ledger.remaining().spent == pytest.approx(
        epsilon([e for _, e in found.search_.spent], 1e-4, "replace_special"), rel=1e-6
    )
    assert ledger.check() == []


def test_a_crash_in_the_middle_of_trials_counts_as_spent(ledger, monkeypatch):
    def crash(*_):
        raise RuntimeError("power cut")

    monkeypatch.setattr(tacit.model_selection.calibrated, "train_trials", crash)
    base = DPLinearClassifier(trainer=DPGD(steps=5), ledger=ledger)
    with pytest.raises(RuntimeError, match="power cut"):
        search(estimator=base, epsilon=1.0).fit(X, Y)
    (charge,) = ledger.charges()
    assert charge.outcome == "not finished"
    assert 0.8 < ledger.remaining().spent <= 1.0


def test_an_account_that_does_not_allow_a_search_says_what_would_fit(ledger):
    base = DPLinearClassifier(trainer=DPGD(steps=5), ledger=ledger)
    search(estimator=base, epsilon=2.0).fit(X, Y)
    left = ledger.remaining().left
    assert 0.5 < left < 3.0
    with pytest.raises(BudgetError) as refused:
        search(estimator=base, epsilon=2.0).fit(X, Y)
    offered = refused.value.remaining
    assert 0.3 < offered < 2.0
    search(estimator=base, epsilon=offered).fit(X, Y)
    DPLinearClassifier(0.1, 1e-5, ledger=ledger).fit(X, Y)
    assert ledger.remaining().spent <= 3.0
    assert ledger.check() == []
    assert [charge.outcome for charge in ledger.charges()] == ["model"] * 3


def test_a_seeded_search_with_a_ledger_is_refused(ledger):
    base = DPLinearClassifier(ledger=ledger, random_state=1)
    with pytest.raises(InputError, match="random_state"):
        search(estimator=base).fit(X, Y)
    assert ledger.charges() == []


# --- as an estimator ------------------------------------------------------------------------------


def test_it_is_cloned_and_pickled_like_any_estimator():
    found = search(trials=3).fit(X, Y)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
    fresh = clone(found)
    assert not hasattr(fresh, "best_estimator_")
    assert fresh.get_params()["trials"] == 3
    assert fresh.set_params(estimator__fit_intercept=False).estimator.fit_intercept is False
    assert is_classifier(found)
    hinge = search(estimator=DPLinearClassifier(loss="hinge"))
    assert not hasattr(hinge, "predict_proba")
    assert not hasattr(search(estimator=DPLinearRegressor()), "decision_function")


def test_a_grid_of_trainers_and_stages():
    grid = [
        {"trainer": [DPGD(steps=3), DPGD(steps=6)], "trainer__clip": [0.02, 0.05]},
        {"fit_intercept": [False], "loss": ["hinge", "logistic"]},
    ]
    made = search(grid).plan(size=600, columns=4)
    assert len(made.plans) == 6
    assert sorted({int(plan.trainer.steps) for plan in made.plans}) == [3, 5, 6]
    assert not made.search.shares_stages
    assert search(grid).fit(X, Y).certificate_.verify().holds


@pytest.mark.parametrize(
    "grid, says",
    [
        ({}, "empty"),
        ([], "empty"),
        ([{}], "empty"),
        (None, "dict of lists"),
        ("clip", "dict of lists"),
        ({"trainer__clip": []}, "one at least"),
        ({"trainer__clip": 0.1}, "list of values"),
        ({"trainer__clip": "0.1"}, "list of values"),
        ({3: [1]}, "no text"),
        ({"epsilon": [1.0, 2.0]}, "epsilon cannot be tuned: the budget"),
        ({"delta": [1e-6]}, "delta cannot be tuned"),
        ({"neighbors": ["replace_one"]}, "neighbors cannot be tuned"),
        ({"max_rows_per_group": [1, 5]}, "what the guarantee means"),
        ({"classes": [[0, 1]]}, "classes cannot be tuned"),
        ({"init": [None]}, "init cannot be tuned"),
        ({"random_state": [0]}, "random_state cannot be tuned"),
        ({"arithmetic": ["fast"]}, "arithmetic cannot be tuned"),
        ({"ledger": [None]}, "ledger cannot be tuned"),
        ({"learning_rat": [1.0]}, "not a setting"),
        ({"trainer__clipp": [1.0]}, "trainer__clip"),
        ({"estimator__loss": ["hinge"]}, "not a setting"),
        ({"trainer__clip": [math.nan]}, "clip"),
        ({"trainer__clip": [0.1, math.inf]}, "clip"),
        ({"trainer__learning_rate": [-1.0]}, "learning_rate"),
        ({"trainer__steps": [0]}, "steps"),
        ({"loss": ["squared"]}, "regression"),
        ({"stages": [[SoftPCA(0.1)]]}, "noiseless stage|replace_one"),
        ({"trainer": [LocalDPGD()]}, "nobody may see|relation|replace_one|agree"),
        ({"trainer": [3]}, "tacit.trainers"),
        ({"trainer__clip": [0.1] * 101, "trainer__steps": [*range(1, 101)]}, "settings to try"),
        ({"trainer__steps": [*range(1, 70)]}, "64 are allowed"),
    ],
)
def test_grids_that_cannot_be_tried(grid, says):
    with pytest.raises(InputError, match=says):
        DPSearch(DPLinearClassifier(), grid, epsilon=1.0).fit(X, Y)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"trials": 0.5}, "at least 1"),
        ({"trials": 0}, "at least 1"),
        ({"trials": -3}, "at least 1"),
        ({"trials": math.nan}, "at least 1"),
        ({"trials": math.inf}, "at least 1"),
        ({"trials": True}, "at least 1"),
        ({"trials": "ten"}, "at least 1"),
        ({"trials": 1e6}, "can be expected"),
        ({"distribution": "uniform"}, "distribution"),
        ({"distribution": -1.0}, "shape"),
        ({"distribution": math.nan}, "shape"),
        ({"distribution": None}, "distribution"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 2.0}, "delta"),
    ],
)
def test_numbers_that_make_no_sense(options, says):
    with pytest.raises(InputError, match=says):
        search(**options).fit(X, Y)


def test_estimators_that_cannot_be_tuned():
    from sklearn.linear_model import LogisticRegression

    for other in (LogisticRegression(), None, DPLinearClassifier):
        with pytest.raises(InputError, match="estimator must be"):
            DPSearch(other, GRID).fit(X, Y)
    with pytest.raises(InputError, match="strict"):
        search(estimator=DPLinearClassifier(arithmetic="strict")).fit(X, Y)
    tested = [ClipNorm(1.0), NoiselessPCA(n_components=2, gap=0.1)]
    with pytest.raises(InputError, match="noiseless stage"):
        search(estimator=DPLinearClassifier(stages=tested)).fit(X, Y)
    with pytest.raises(MissingBound, match="target_bounds"):
        search(estimator=DPLinearRegressor()).fit(X, X[:, 0])
    with pytest.raises(BudgetError):
        search(delta=1e-45).fit(X, Y)


def test_the_estimator_s_own_budget_is_the_search_s_unless_another_is_given():
    base = DPLinearClassifier(0.7, 1e-6, trainer=DPGD(steps=2))
    claim = DPSearch(base, GRID).fit(X, Y).certificate_
    assert (claim.epsilon, claim.delta) == (0.7, 1e-6)
    assert base.epsilon == 0.7


def test_a_search_says_when_it_is_worth_it():
    made = search().plan(size=600, columns=4)
    words = made.explain()
    assert "4 settings" in words and "10 trials are expected" in words
    assert f"{made.slowdown:.3g} times the noise" in words
    facts = made.to_dict()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["noise_ratio"] == made.slowdown
    # As measured on the events: a trial's training against that of a single fit.
    alone = DPLinearClassifier(2.0, 1e-5, random_state=0).fit(X, Y).plan_
    single = total_mu([alone.spent[-1][1]], "replace_special")
    tried = total_mu(trial_of(made).trial[0][:-1], "replace_special")
    assert single / tried == pytest.approx(made.slowdown, rel=1e-3)
    assert 1.3 < made.slowdown < 1.7
    cheap = search(trials=1).plan(size=600, columns=4)
    assert cheap.slowdown == pytest.approx(1 / math.sqrt(1 - SCORE_SHARE**2), rel=0.02)


def test_trials_that_are_asked_for():
    assert Trials(5, "logarithmic").event([[Gaussian(2.0)]]).shape == 0.0
    assert Trials(5, np.float64(0.5)).event([[Gaussian(2.0)]]).shape == 0.5
    key = Key.from_seed(1)
    assert key.child("a").stream("x").words(2).tolist() != key.stream("x").words(2).tolist()
    assert key.child("b").seeded
