"""Settings of trainers and stages as parameters of the estimators that hold them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tacit import DPLinearClassifier, DPLinearRegressor, DPSearch, privatize
from tacit.exceptions import InputError
from tacit.preprocessing import Bound, ClipNorm, Normalize, PrivateCenter
from tacit.research.median import DPGeometricMedian
from tacit.trainers import DPGD, DPSGD

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 300)
X = RNG.normal(size=(300, 3)) + 2.0 * Y[:, None]


def model(**options):
    stages = [ClipNorm(2.0), PrivateCenter()]
    return DPLinearClassifier(
        **{"stages": stages, "trainer": DPGD(steps=3), "random_state": 0, **options}
    )


def test_settings_are_listed_by_the_names_that_a_pipeline_would_give():
    twice = model(stages=[Normalize(), ClipNorm(0.5), Normalize(2.0)])
    params = twice.get_params()
    assert params["trainer__steps"] == 3
    assert params["stages__clipnorm__radius"] == 0.5
    assert params["stages__normalize-2__radius"] == 2.0
    assert params["stages__normalize-1"] is twice.stages[0]
    steps = make_pipeline(*[FunctionTransformer() for _ in range(2)], LogisticRegression()).steps
    like = [FunctionTransformer(), FunctionTransformer(), LogisticRegression()]
    named = DPLinearClassifier(stages=like).get_params()
    assert [name for name, _ in steps] == [
        name.removeprefix("stages__") for name in named if name.startswith("stages__")
    ]
    assert not any("__" in name for name in twice.get_params(deep=False))
    assert not any("__" in name for name in DPLinearClassifier().get_params())


def test_a_setting_that_is_set_is_one_that_was_given():
    changed = model().set_params(trainer__clip=0.3, stages__clipnorm__radius=1.0)
    given = model(stages=[ClipNorm(1.0), PrivateCenter()], trainer=DPGD(steps=3, clip=0.3))
    np.testing.assert_array_equal(changed.fit(X, Y).coef_, given.fit(X, Y).coef_)
    assert changed.plan_.explain() == given.plan_.explain()


def test_a_clone_fits_the_same_model_and_shares_nothing_that_can_be_set():
    first = model()
    second = clone(first)
    np.testing.assert_array_equal(first.fit(X, Y).coef_, second.fit(X, Y).coef_)
    second.trainer.set_params(steps=9)
    second.stages[0].set_params(radius=9.0)
    assert first.trainer == DPGD(steps=3)
    assert first.stages[0] == ClipNorm(2.0)


def test_what_was_fitted_stays_what_was_counted():
    """Also where the trainer and the stages are those of other estimators."""
    trainer, stages = DPGD(steps=3), [ClipNorm(2.0), PrivateCenter()]
    one, other = model(trainer=trainer, stages=stages), model(trainer=trainer, stages=stages)
    said = one.fit(X, Y).plan_.explain()
    one.set_params(
        trainer__steps=50, stages__clipnorm__radius=9.0, stages__privatecenter__share=0.5
    )
    assert one.plan_.explain() == said
    assert other.fit(X, Y).plan_.explain() == said
    assert (trainer, stages[0]) == (DPGD(steps=3), ClipNorm(2.0))


def test_settings_of_one_stage_are_checked_together():
    changed = model(stages=[Bound(0, 1)]).set_params(stages__bound__low=5, stages__bound__high=6)
    assert changed.stages == [Bound(5, 6)]


def test_stages_and_trainers_can_be_replaced_and_set_at_once():
    changed = model().set_params(
        trainer=DPSGD(),
        trainer__batch_size=20,
        stages__clipnorm=Normalize(),
        stages__privatecenter__share=0.5,
    )
    assert changed.trainer == DPSGD(batch_size=20)
    assert changed.stages == [Normalize(), PrivateCenter(0.5)]
    single = DPLinearClassifier(stages=ClipNorm(2.0)).set_params(stages__radius=3.0)
    assert single.stages == ClipNorm(3.0)


@pytest.mark.parametrize("cls", [DPLinearClassifier, DPLinearRegressor])
def test_the_automatic_trainer_becomes_one_whose_settings_are_given(cls):
    assert cls().set_params(epsilon=2.0).trainer == "auto"
    assert cls().set_params(trainer__clip=0.3).trainer == DPGD(clip=0.3)


@pytest.mark.parametrize(
    "setting, says",
    [
        ({"trainer__clipp": 1.0}, "trainer__clipp: DPGD has no setting 'clipp'; it has steps"),
        ({"trainer": None, "trainer__clip": 1.0}, "trainer__clip: None has no settings"),
        ({"stages__normalize__radius": 1.0}, "none of the stages: stages__clipnorm"),
        ({"stages": "auto", "stages__clipnorm__radius": 1.0}, "none of the stages"),
        ({"stages__clipnorm__radius": -1.0}, "stages__clipnorm__radius: ClipNorm.*positive"),
        ({"nothing": 1}, "Invalid parameter 'nothing'"),
    ],
)
def test_what_cannot_be_set_is_refused_by_its_name(setting, says):
    with pytest.raises(ValueError, match=says):
        model().set_params(**setting)


def test_a_refused_setting_changes_nothing():
    stage = ClipNorm(2.0)
    with pytest.raises(InputError):
        stage.set_params(radius=-1.0)
    assert stage == ClipNorm(2.0)


def test_scikit_learn_searches_settings_of_trainers_and_stages():
    grid = {"trainer__clip": [0.1, 1.0], "stages__clipnorm__radius": [1.0, 3.0]}
    found = GridSearchCV(model(), grid, cv=2).fit(X, Y)
    assert len(found.cv_results_["params"]) == 4
    assert found.best_estimator_.trainer.clip == found.best_params_["trainer__clip"]
    auto = GridSearchCV(DPLinearClassifier(random_state=0), {"trainer__steps": [2, 4]}, cv=2)
    assert auto.fit(X, Y).best_estimator_.plan_.trainer.steps in (2, 4)


def test_a_private_search_tries_settings_of_stages_too():
    grid = {"stages__clipnorm__radius": [1.0, np.float64(3.0)], "trainer__clip": [0.1]}
    found = DPSearch(model(), grid, trials=2).fit(X, Y)
    assert found.best_estimator_.stages[0].radius == found.best_params_["stages__clipnorm__radius"]
    assert found.certificate_.verify().holds
    assert found.set_params(estimator__trainer__clip=0.2).estimator.trainer.clip == 0.2
    with pytest.raises(InputError, match="loss__x"):
        DPSearch(model(), {"loss__x": [1]}).fit(X, Y)


def test_what_is_shown_of_an_estimator_has_its_budget():
    assert repr(DPLinearClassifier()) == "DPLinearClassifier(epsilon=1.0, delta=1e-05)"
    assert repr(DPLinearClassifier(2, loss="hinge")) == (
        "DPLinearClassifier(epsilon=2, delta=1e-05, loss='hinge')"
    )
    assert repr(DPLinearRegressor(delta=1e-6)) == "DPLinearRegressor(epsilon=1.0, delta=1e-06)"
    assert repr(DPGeometricMedian(radius=1.0)).endswith("(epsilon=1.0, delta=1e-05, radius=1.0)")
    private = privatize(LogisticRegression(), epsilon=1.0, delta=1e-5, bounds=1.0)
    assert "epsilon=1.0, delta=1e-05, bounds=1.0)" in repr(private)
    search = repr(DPSearch(DPLinearClassifier(), {"loss": ["hinge"]}))
    assert "DPLinearClassifier(epsilon=1.0, delta=1e-05)" in search
    assert "None" not in search
    with sklearn.config_context(print_changed_only=False):
        assert "trainer='auto'" in repr(DPLinearClassifier())
    assert len(repr(DPLinearClassifier(classes=list(range(10_000))))) < 1000


def test_docstrings_list_inherited_parameters_too_and_say_each_once():
    for cls in (DPLinearClassifier, DPLinearRegressor, PrivateCenter, DPSGD):
        lines = inspect.getdoc(cls).splitlines()
        heads = [line.partition(" : ")[0] for line in lines if " : " in line and line[0] != " "]
        named = [name for head in heads for name in head.split(", ")]
        assert len(set(named)) == len(named)
        assert set(inspect.signature(cls).parameters) <= set(named)
    text = inspect.getdoc(DPLinearRegressor)
    order = ["Parameters\n---", "Attributes\n---", "Notes\n---", "Examples\n---"]
    assert sorted(order, key=text.index) == order


def test_a_class_may_have_no_docstring():
    """As under ``python -OO``."""

    class Silent(ClipNorm):
        pass

    assert Silent.__doc__ is None or "radius" in Silent.__doc__
    assert Silent(2.0).get_params() == {"radius": 2.0}
