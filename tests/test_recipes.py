"""Recipes: names of plans, as arguments of an estimator."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import DPLinearClassifier, DPLinearRegressor, DPSearch, recipe
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.mean import locating_rows
from tacit.plan import Plan
from tacit.plan.defaults import resolve_relation, resolve_stages, resolve_trainer
from tacit.plan.recipes import RECIPES, TRAINERS
from tacit.privacy.budget import Budget
from tacit.research.trainers import DPRAFT, GEP, AdaDPS, LocalDPGD, NoisySGD
from tacit.trainers import DPGD, DPSGD

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 6)) + np.eye(6)[0]
LABELS = (X[:, 0] > 1).astype(int)
NEEDS = {
    "dpsgd-f-theory": {"radius": 100.0},
    "pillar": {"public": X[:50].copy(), "n_components": 3},
    "gep": {"public": X[:50].copy(), "n_components": 3},
    "adadps": {"public": X[:50].copy()},
    "dp-raft+pillar": {"public": X[:50].copy(), "n_components": 3},
    "jl": {"n_components": 3},
    "dp-pca": {"n_components": 3},
    "ptr-pca": {"n_components": 1, "gap": 1e-3},
}
PARTS = {
    "dpsgd-f": (["Normalize", "PrivateCenter", "PrivatePrecondition"], DPGD),
    "dpsgd-f-theory": (["ClipNorm", "PrivateCenter", "PrivateClip"], DPGD),  # once it has chosen
    "dpsgd": (["Normalize"], DPSGD),
    "dp-gd": (["Normalize"], DPGD),
    "local": (["Normalize"], LocalDPGD),
    "pillar": (["Normalize", "PublicCenter", "PrivateCheckedPCA"], DPGD),
    "gep": (["Normalize", "PublicRotation"], GEP),
    "adadps": (["Normalize", "PublicPrecondition"], AdaDPS),
    "dp-raft": (["Normalize"], DPRAFT),
    "dp-raft+pillar": (["Normalize", "PublicPCA"], DPRAFT),
    "jl": (["Normalize", "RandomProjection"], DPGD),
    "dp-pca": (["Normalize", "PrivatePCA"], DPGD),
    "soft-pca": (["Normalize", "SoftPCA"], DPGD),
    "ptr-pca": (["Normalize", "NoiselessPCA"], DPGD),
}


def test_every_recipe_is_described_here_and_there():
    assert RECIPES.keys() == PARTS.keys()
    assert all(make.__doc__ for make in RECIPES.values())


@pytest.mark.parametrize("name", PARTS)
def test_a_recipe_is_stages_and_a_trainer(name):
    made = recipe(name, steps=4, **NEEDS.get(name, {}))
    stages, trainer = PARTS[name]
    assert made.keys() == {"stages", "trainer"}
    chosen = stages if name != "dpsgd-f-theory" else ["ClipNorm", "Preprocess"]
    assert [stage.name for stage in made["stages"]] == chosen
    assert type(made["trainer"]) is trainer
    assert made["trainer"].steps == 4  # what is no setting of a stage goes to the trainer


@pytest.mark.parametrize("name", PARTS)
def test_a_recipe_fits(name):
    made = recipe(name, steps=4, **NEEDS.get(name, {}))
    # A budget and a direction for which the test of ptr-pca passes on as few as 200 rows.
    rows = X * [4, 1, 1, 1, 1, 1]
    model = DPLinearClassifier(epsilon=20.0, **made).fit(rows, LABELS)
    assert model.coef_.shape == (1, 6)
    used = [stage["name"] for stage in model.certificate_.plan["stages"]]
    assert used == PARTS[name][0]
    number = DPLinearRegressor(epsilon=20.0, target_bounds=(-3, 3), **made).fit(rows, X[:, 0])
    assert number.coef_.shape == (6,)


def test_the_default_is_a_recipe():
    by_name = DPLinearClassifier(random_state=0, **recipe("dpsgd-f")).fit(X, LABELS)
    default = DPLinearClassifier(random_state=0).fit(X, LABELS)
    np.testing.assert_array_equal(by_name.coef_, default.coef_)


def test_settings_reach_their_stage():
    stages = recipe("dpsgd-f", radius=3.0, share=0.2)["stages"]
    assert (stages[0].radius, stages[1].share) == (3.0, 0.2)
    assert recipe("jl", n_components=2, seed=5)["stages"][1].seed == 5
    assert recipe("gep", public=X, n_components=2, balance=0.3)["trainer"].n_components == 2
    assert recipe("adadps", public=X, floor=0.5)["stages"][1].floor == 0.5
    assert recipe("dp-raft", radius=3.0)["trainer"].clip == 3.0  # in proportion to the rows
    assert recipe("dp-raft+pillar", public=X, clip=0.2)["trainer"].clip == 0.2
    assert recipe("pillar", public=X, n_components=2)["stages"][2].n_components == 2
    assert recipe("pillar", public=X, check=0.3)["stages"][2].share == 0.3
    paper = recipe("pillar", public=X, center=False, check=0)["stages"]
    assert [stage.name for stage in paper] == ["Normalize", "PublicPCA"]
    assert paper[1].n_components == "auto"


def test_columns_may_be_equalized_for_a_share():
    stages = recipe("dpsgd-f", radius=3.0, equalize=0.2)["stages"]
    names = [stage.name for stage in stages]
    behind = ["PrivateEqualize", "Normalize", "PrivatePrecondition"]
    assert names == ["Normalize", "PrivateCenter", *behind]
    assert stages[2].share == 0.2 and stages[3].radius == 3.0


@pytest.mark.parametrize("trainer", sorted(TRAINERS))
@pytest.mark.parametrize("name", ["dpsgd-f", "dpsgd", "dp-gd", "pillar", "jl", "dp-pca"])
def test_every_recipe_takes_another_trainer(name, trainer):
    setting = "steps" if TRAINERS[trainer].descends else "damping"
    made = recipe(name, trainer=trainer, **{setting: 4}, **NEEDS.get(name, {}))
    assert type(made["trainer"]) is TRAINERS[trainer]
    assert getattr(made["trainer"], setting) == 4
    own = NoisySGD(runs=2)
    assert recipe(name, trainer=own, **NEEDS.get(name, {}))["trainer"] is own


def test_trainers_that_do_not_suit_are_refused():
    with pytest.raises(InputError, match="no trainer is called 'adam'; there are dp-gd, dpsgd"):
        recipe("pillar", trainer="adam")
    with pytest.raises(InputError, match="NoisySGD is complete: set steps there"):
        recipe("pillar", trainer=NoisySGD(), steps=3)
    for name in ("gep", "adadps", "dp-raft"):
        with pytest.raises(InputError, match=f"recipe '{name}': .*trainer"):
            recipe(name, trainer="dp-gd")
    made = recipe("soft-pca", trainer="noisy-sgd")
    with pytest.raises(InputError, match="is not analysed for rows that a noiseless stage"):
        DPLinearClassifier(**made).fit(X, LABELS)


@pytest.mark.parametrize("trainer", sorted(TRAINERS.keys() - {"iterated", "statistics"}))
def test_pillar_fits_with_every_trainer(trainer):
    """But for one pass in order, which needs rows whose norm is certain: they are projected.

    And for statistics, which are for numbers.
    """
    made = recipe("pillar", public=X[:50].copy(), trainer=trainer, steps=4)
    arithmetic = "exact" if "exact" in made["trainer"].arithmetics else "fast"
    model = DPLinearClassifier(epsilon=20.0, arithmetic=arithmetic, **made).fit(X, LABELS)
    assert model.coef_.shape == (1, 6)
    assert model.certificate_.verify().holds
    (pca,) = (s for s in model.certificate_.plan["stages"] if s["name"].endswith("PCA"))
    assert pca["name"] == ("PublicPCA" if made["trainer"].local else "PrivateCheckedPCA")
    assert pca["parameters"]["n_components"] == model.plan_.facts.features
    assert pca["parameters"]["reason"] in model.plan_.explain()


def test_statistics_of_projected_rows_are_for_numbers():
    made = recipe("pillar", public=X[:50].copy(), trainer="statistics", damping=1.0)
    model = DPLinearRegressor(epsilon=20.0, target_bounds=(0, 1), **made).fit(X, LABELS)
    assert model.coef_.shape == (6,) and model.certificate_.verify().holds
    with pytest.raises(InputError, match="SufficientStatistics is for loss='squared'"):
        DPLinearClassifier(**made).fit(X, LABELS)


def test_mistakes_are_named():
    with pytest.raises(InputError, match=r"no recipe is called 'dp-sgd'; there are dpsgd-f, "):
        recipe("dp-sgd")
    with pytest.raises(InputError, match=r"recipe 'dp-gd': .*n_components"):
        recipe("dp-gd", n_components=3)
    with pytest.raises(InputError, match="radius must be a positive number"):
        recipe("dp-gd", radius=0)
    for name in ("pillar", "gep", "dp-raft+pillar"):
        with pytest.raises(InputError, match="needs public="):
            DPLinearClassifier(**recipe(name, n_components=3)).fit(X, LABELS)
    with pytest.raises(InputError, match="needs public="):
        DPLinearClassifier(**recipe("adadps")).fit(X, LABELS)


TOO_FEW = {"ptr-pca": "keeping all of them is no projection", "gep": "two columns or more"}


@pytest.mark.parametrize("width", [1, 2, 30])
@pytest.mark.parametrize("name", PARTS)
def test_a_recipe_fits_rows_of_any_width(name, width):
    """Components that nobody asked for are as many as there can be."""
    # The last column is small, so that there is a gap for the test of ptr-pca.
    rows = RNG.normal(size=(2000, width)) * np.r_[np.ones(width - 1), 0.01]
    labels = (rows[:, 0] > 0).astype(int)
    needs = {"dpsgd-f-theory": {"radius": 100.0}, "ptr-pca": {"gap": 1e-4}}
    for own in ("pillar", "gep", "adadps", "dp-raft+pillar"):
        needs[own] = {"public": rows[:60].copy()}
    epsilon = 2.0 if name == "dpsgd" else 50.0  # sampled steps of little noise take long to count
    model = DPLinearClassifier(epsilon, **recipe(name, steps=2, **needs.get(name, {})))
    if width == 1 and name in TOO_FEW:
        with pytest.raises(InputError, match=TOO_FEW[name]):
            model.fit(rows, labels)
        return
    assert model.fit(rows, labels).coef_.shape == (1, width)
    asked = [stage["parameters"].get("n_components") for stage in model.certificate_.plan["stages"]]
    assert all(isinstance(k, int) and 1 <= k <= width for k in asked if k is not None)


def planned(made, epsilon=1.0, neighbors="auto"):
    """A plan for two classes, of a recipe's parts."""
    stages, trainer = tuple(made["stages"]), made["trainer"]
    relation = resolve_relation(neighbors, stages, trainer)
    return Plan(Budget(epsilon, 1e-5), stages, trainer, get_loss("logistic"), relation)


@pytest.mark.parametrize("name", ["jl", "dp-pca", "ptr-pca"])
def test_components_that_nobody_asked_for_are_forty_where_columns_are_many(name):
    made = recipe(name, steps=2, **({"gap": 1e-4} if name == "ptr-pca" else {}))
    plan = planned(made)
    for columns, most in ((500, 40), (41, 40), (40, 40 - (name == "ptr-pca")), (3, 3)):
        found = plan.calibrate(size=1000, columns=columns, classes=2).plan.stages[1].n_components
        assert found == min(most, columns - (name == "ptr-pca"))


@pytest.mark.parametrize("name", ["dp-pca", "ptr-pca", "pillar", "gep", "dp-raft+pillar"])
def test_components_that_somebody_asked_for_stay_or_are_refused(name):
    needs = {"public": X[:50].copy()} if name in ("pillar", "gep", "dp-raft+pillar") else {}
    needs |= {"gap": 1e-4} if name == "ptr-pca" else {}
    made = recipe(name, steps=2, n_components=7, **needs)
    with pytest.raises(InputError, match="7"):
        DPLinearClassifier(**made).fit(X, LABELS)


# --- Algorithms 2 and 3 of Sun, Suresh & Menon ---------------------------------------------------


def theory(size, columns, epsilon=1.0, neighbors="replace_special", **options):
    made = recipe("dpsgd-f-theory", radius=100.0, **options)
    plan = planned(made, epsilon, neighbors)
    return plan.calibrate(size=size, columns=columns, classes=2)


@pytest.mark.parametrize("neighbors", ["replace_special", "replace_one"])
@pytest.mark.parametrize(("columns", "epsilon"), [(2, 1.0), (64, 1.0), (64, 4.0), (65, 0.2)])
def test_the_theory_takes_algorithm_2_with_rows_enough_and_3_with_fewer(
    columns, epsilon, neighbors
):
    """The edge is where the mean of Algorithm 2 has the rows that it needs, at its own noise."""
    few = theory(10, columns, epsilon, neighbors)
    assert [stage.name for stage in few.plan.stages] == ["ClipNorm", "Normalize", "PrivateCenter"]
    assert "Algorithm 3" in few.explain() and few.shortage == ""
    needed = int(few.explain().split("needs about ")[1].split(" rows")[0])
    many = theory(needed, columns, epsilon, neighbors)
    names = [stage.name for stage in many.plan.stages]
    assert names == ["ClipNorm", "PrivateCenter", "PrivateClip"]
    assert many.plan.stages[1].method == "instance-optimal" and many.plan.stages[2].constant
    assert "Recipe: Algorithm 2 of Sun et al. 2024" in many.explain() and many.shortage == ""
    assert needed == locating_rows(columns, many.stage_noise[1])
    assert "Algorithm 3" in theory(needed - 1, columns, epsilon, neighbors).explain()
    assert [name for name, _ in few.spent] == ["PrivateCenter", "DPGD"]
    assert [name for name, _ in many.spent] == ["PrivateCenter", "PrivateClip", "DPGD"]


def test_the_theory_takes_what_it_is_told_and_says_what_that_lacks(caplog):
    asked = theory(2000, 64, algorithm=2)
    assert [stage.name for stage in asked.plan.stages][1:] == ["PrivateCenter", "PrivateClip"]
    assert "needs about 5671 rows of 64 columns" in asked.outlook
    assert theory(10**6, 64, algorithm=3).plan.stages[1].name == "Normalize"
    with pytest.raises(InputError, match="algorithm=4 must be 2, 3 or 'auto'"):
        theory(100, 3, algorithm=4)
    rows = RNG.normal(size=(2000, 64)) + 1000
    labels = (rows[:, 0] > 1000).astype(int)
    with caplog.at_level("WARNING", logger="tacit"):
        DPLinearClassifier(1.0, **recipe("dpsgd-f-theory", radius=1e6, algorithm=2)).fit(
            rows, labels
        )
    assert "needs about 5671 rows" in caplog.text and "there are 2000" in caplog.text


def test_few_rows_that_the_theory_could_not_place_are_learned_from():
    """2,000 rows of 64 columns near the origin, in units that nobody knows: 0.5 by Algorithm 2."""
    rows = 1e-3 * RNG.normal(size=(2000, 64))
    rows[:, 0] += np.where(np.arange(2000) % 2, 3e-3, -3e-3)
    labels = np.arange(2000) % 2
    found = {}
    for algorithm in ("auto", 2):
        made = recipe("dpsgd-f-theory", radius=1e6, algorithm=algorithm)
        found[algorithm] = DPLinearClassifier(1.0, random_state=0, **made).fit(rows, labels)
    assert found[2].score(rows, labels) < 0.7
    assert found["auto"].score(rows, labels) > 0.9


def test_the_theory_without_an_intercept_has_no_constant():
    made = recipe("dpsgd-f-theory", radius=100.0, steps=3)
    model = DPLinearClassifier(20.0, fit_intercept=False, **made).fit(X, LABELS)
    assert not model.plan_.plan.stages[2].constant
    assert model.plan_.facts.features == 6 and model.plan_.intercept_scaling == 0.0


def test_trials_of_the_theory_share_what_it_chose():
    made = recipe("dpsgd-f-theory", radius=100.0, steps=3)
    model = DPLinearClassifier(20.0, 1e-5, **made)
    search = DPSearch(model, {"trainer__clip": [0.1, 1.0]})
    search.fit(np.tile(X, (4, 1)), np.tile(LABELS, 4))
    assert [e.stage for e in search.certificate_.events] == [
        "PrivateCenter",
        "PrivateClip",
        "Search",
    ]
    assert search.certificate_.verify().holds


def test_the_automatic_recipe_is_what_estimators_do_by_themselves():
    parts, own = recipe("auto"), resolve_trainer("auto")
    for task in ("classification", "regression"):
        assert resolve_stages(parts["stages"], task, own) == resolve_stages("auto", task, own)
    assert parts["trainer"] == "auto"
    assert recipe("auto", steps=7)["trainer"] == DPGD(steps=7)
