"""PrivateClip and PrivateBounds, and PrivateCenter by location: scales found through noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from tests.seam import paid_for

from tacit import DPLinearClassifier, load, save
from tacit.data.rows import as_rows
from tacit.exceptions import InputError, MissingBound
from tacit.losses import get_loss
from tacit.mechanisms.mean import locating_rows
from tacit.mechanisms.random_streams import Key
from tacit.plan import Plan
from tacit.preprocessing import (
    Bound,
    ClipNorm,
    Normalize,
    PrivateBounds,
    PrivateCenter,
    PrivateClip,
    PrivateScale,
)
from tacit.privacy import Budget, Gaussian, Selection
from tacit.trainers import DPGD

METHODS = ["gaussian", "exponential"]


def fit(stage, rows, z=2.0, *, bound=None, seed=0, size=None, counted=True):
    rows = as_rows(rows, bound=bound)
    return stage.fit(rows, paid_for(stage, size or rows.n, Key.from_seed(seed), z, counted=counted))


def cloud(n=3000, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


# PrivateClip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_the_clip_follows_the_rows_and_not_their_bound(scale, method):
    rows = scale * cloud()
    lengths = np.linalg.norm(rows, axis=1)
    for seed in range(10):
        stage = fit(PrivateClip(method=method), rows, bound=1e9, seed=seed)
        assert stage.radius_ <= lengths.max() * (1 + 1 / 16)
        assert (lengths > stage.radius_).sum() <= 2 * 10.8 * 2.0
    out = np.linalg.norm(stage.transform(rows), axis=1)
    assert out.max() <= 1 + 1e-15
    short = lengths <= stage.radius_
    assert out[short] == pytest.approx(lengths[short] / stage.radius_)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("guess", [1000, 3000, 9000])
def test_a_private_number_of_rows_takes_a_guess(guess, method):
    rows = cloud()
    stage = fit(PrivateClip(method=method), rows, bound=1e6, size=guess, counted=False)
    longer = (np.linalg.norm(rows, axis=1) > stage.radius_).sum()
    # The guess says which fraction of the rows may be longer.
    assert longer <= 2 * 2 * 10.8 * 2.0 * max(1.0, 3000 / guess) + 30
    assert stage.radius_ < 10


def test_a_few_outliers_do_not_matter():
    rows = cloud()
    rows[:5] *= 1e6
    assert fit(PrivateClip(), rows, bound=1e12).radius_ < 10


def test_the_bound_is_one_before_any_row_is_read():
    assert PrivateClip().bound(1e9) == PrivateClip().typical(1e9) == 1.0
    assert PrivateClip().bound(None) is None  # it needs one to begin with
    with pytest.raises(MissingBound):
        PrivateClip(noise_multiplier=1.0).fit(cloud())
    plan = Plan(Budget(1.0, 1e-5), (PrivateClip(),), DPGD(steps=2), get_loss("logistic"))
    with pytest.raises(MissingBound, match="ClipNorm"):
        plan.calibrate(size=100, columns=3, classes=2)


def test_sparse_rows_stay_sparse():
    rows = sp.random_array((2000, 30), density=0.1, rng=0, format="csr")
    stage = fit(PrivateClip(), rows, bound=1e3)
    assert sp.issparse(stage.transform(rows))


def test_too_few_rows_give_a_radius_all_the_same():
    for seed in range(20):
        stage = fit(PrivateClip(), cloud(n=3), z=50.0, bound=1e3, seed=seed)
        assert 0 < stage.radius_ <= 1e3


# PrivateBounds


@pytest.mark.parametrize("method", METHODS)
def test_bounds_are_found_for_any_unit(method):
    rows = cloud(n=6000, d=3) * [1e-200, 1.0, 1e200] + [0.0, 1e6, -3e200]
    stage = fit(PrivateBounds(method=method), rows)
    spare = 2 * 34 * 2.0 * 3 if method == "exponential" else 2 * 10.2 * 2.0 * math.sqrt(3)
    for side in (rows < stage.low_, rows > stage.high_):
        assert (side.sum(axis=0) <= spare).all()
    least, largest = rows.min(axis=0), rows.max(axis=0)
    assert (stage.low_ >= least - np.abs(least) / 8).all()
    assert (stage.high_ <= largest + np.abs(largest) / 8).all()
    out = stage.transform(rows)
    assert np.abs(out).max() <= 1.0
    assert (out == Bound(stage.low_, stage.high_).transform(rows)).all()


@pytest.mark.parametrize("value", [0.0, 5.0, -7e300, 1e-310, 1.7e308, -1.7e308])
def test_a_constant_column_has_bounds_around_it(value):
    rows = np.full((3000, 2), value)
    stage = fit(PrivateBounds(), rows, z=1.0)
    assert (stage.low_ < stage.high_).all()
    assert (stage.low_ <= value).all() and (value <= stage.high_).all()
    assert np.isfinite(stage.transform(rows)).all()


def test_zeros_alone_have_bounds_in_which_rare_values_differ_from_them():
    """Of 200 ones among 5,000 zeros noise shows none: bounds of no size would tell nothing."""
    rows = np.zeros((5000, 2))
    rows[:200] = 1.0
    for seed in range(5):
        stage = fit(PrivateBounds(), rows, 30.0, seed=seed)
        assert (stage.low_ == -1.0).all() and (stage.high_ == 1.0).all()


def test_bounds_are_in_order_whatever_the_noise():
    for seed in range(50):
        stage = fit(PrivateBounds(), cloud(n=5), z=100.0, seed=seed)
        assert (stage.low_ < stage.high_).all()
        assert np.isfinite(stage.low_).all() and np.isfinite(stage.high_).all()


def test_no_bound_is_needed_in_front_and_one_is_there_behind():
    plan = Plan(
        Budget(1.0, 1e-5),
        (PrivateBounds(0.3), PrivateScale(0.2)),
        DPGD(steps=2),
        get_loss("logistic"),
    ).calibrate(size=2000, columns=9, classes=2)
    assert plan.drifts[1].bound == 3.0
    assert PrivateBounds().bound(None, 9) == 3.0
    with pytest.raises(InputError, match="number of columns"):
        PrivateBounds().bound(None)


def test_columns_of_unknown_scale_can_be_learned_from():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8000, 4)) * [1e4, 1e-3, 5.0, 1.0] + [3e4, 0.0, -70.0, 0.0]
    y = ((X[:, 0] - 3e4) / 1e4 + X[:, 1] / 1e-3 > 0).astype(int)
    model = DPLinearClassifier(epsilon=2.0, stages=[PrivateBounds(0.4)], random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.certificate_.verify().holds


# PrivateCenter by location


def test_the_mean_of_far_rows_is_near_them():
    rows = cloud(n=5000) + 1e5
    far = fit(PrivateCenter(method="instance-optimal"), rows, bound=1e7)
    assert np.linalg.norm(far.mean_ - rows.mean(axis=0)) < 0.1
    near = fit(PrivateCenter(), rows, bound=1e7)
    assert np.linalg.norm(near.mean_ - rows.mean(axis=0)) > 100
    assert far.draws(4) == 40 * 4 + 10 + 4


def test_a_mean_that_is_noise_is_shrunk_to_the_location():
    rows = cloud(n=1500, d=16) + 1e3
    stages = [
        fit(PrivateCenter(method="instance-optimal", shrink=s), rows, z=4.0, bound=1e6)
        for s in (True, False)
    ]
    off = [np.linalg.norm(stage.mean_ - rows.mean(axis=0)) for stage in stages]
    assert off[0] < off[1] * 1.1
    assert max(off) < 2


def test_the_mean_stays_in_the_ball():
    for seed in range(10):
        stage = fit(
            PrivateCenter(method="instance-optimal"), cloud(n=3), 50.0, bound=2.0, seed=seed
        )
        assert np.linalg.norm(stage.mean_) <= 2.0 * (1 + 1e-12)


# All of them


@pytest.mark.parametrize(
    "make",
    [
        lambda: PrivateClip(method="laplace"),
        lambda: PrivateBounds(method=None),
        lambda: PrivateCenter(method="exponential"),
    ],
)
def test_methods_have_names(make):
    with pytest.raises(InputError, match="method="):
        make()


def test_events_say_which_mechanism_it_was():
    assert PrivateClip().event(2.0) == Gaussian(2.0)
    assert PrivateBounds().event(2.0) == Gaussian(2.0)
    assert isinstance(PrivateClip(method="exponential").event(2.0), Selection)
    assert PrivateCenter(method="instance-optimal").event(2.0) == Gaussian(2.0)


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_of_searches_or_selections_is_gaussian_and_verifies(method, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 3)) * 1e3
    y = (X[:, 0] > 0).astype(int)
    stages = [
        PrivateBounds(0.2, method=method),
        PrivateClip(0.2, method=method),
        Normalize(),
    ]
    model = DPLinearClassifier(epsilon=3.0, stages=stages).fit(X, y)
    certificate = model.certificate_
    assert certificate.accountant == "gaussian-dp" and certificate.verify().holds
    kinds = [expense.event.kind for expense in certificate.events]
    assert kinds == [
        *(["selection"] * 2 if method == "exponential" else ["gaussian"] * 2),
        kinds[-1],
    ]
    # Stages that do not fold are in the file, with what was released.
    path = tmp_path / "model.safetensors"
    save(model, path)
    assert (load(path).decision_function(X) == model.decision_function(X)).all()


def algorithm_2(rows, mean, tau):
    """Steps 3 and 4 of Algorithm 2 of Sun, Suresh & Menon, as printed."""
    joined = np.column_stack([rows - mean, np.full(len(rows), tau)])
    lengths = np.linalg.norm(joined, axis=1)
    return joined * np.minimum(1.0, math.sqrt(2) * tau / lengths)[:, None]


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_and_their_constant_are_clipped_together(sparse):
    rows = 5 + cloud() * np.geomspace(0.1, 30.0, 3000)[:, None]
    center = fit(PrivateCenter(method="instance-optimal"), rows, bound=1e6)
    given = sp.csr_array(rows) if sparse else rows
    behind = center.through(as_rows(given, bound=1e6))
    stage = fit(PrivateClip(constant=True), behind, z=20.0)
    found = stage.through(behind)
    expected = algorithm_2(rows, center.mean_, stage.radius_)
    longer = np.linalg.norm(rows - center.mean_, axis=1) > stage.radius_
    assert 50 < longer.sum() < 1000
    assert found.collect() * stage.radius_ == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert (found.collect()[longer, -1] < 1).all() and (found.collect()[~longer, -1] == 1).all()
    assert found.d == 5 and found.bound >= np.linalg.norm(found.collect(), axis=1).max()
    assert stage.bound(1e6) == found.bound <= math.sqrt(2) * (1 + 1e-11)


def test_the_model_of_a_joint_clip_is_that_of_algorithm_2():
    """w = θ[:d] and b = θ[d]·τ − ⟨w, μ̂⟩, for rows that are not clipped; and back again."""
    rng = np.random.default_rng(0)
    stages = [fit(PrivateCenter(), cloud() + 1, bound=9.0), PrivateClip(constant=True)]
    stages[1].radius_ = 2.5
    theta = rng.normal(size=(3, 5))  # on rows divided by τ
    coef, intercept = stages[1].fold(theta, np.zeros(3))
    coef, intercept = stages[0].fold(coef, intercept)
    printed = theta / 2.5  # on rows as printed
    assert coef == pytest.approx(printed[:, :4])
    assert intercept == pytest.approx(printed[:, 4] * 2.5 - coef @ stages[0].mean_)
    for stage in stages:
        coef, intercept = stage.unfold(coef, intercept)
    assert coef == pytest.approx(theta) and intercept == pytest.approx(np.zeros(3))
    rows = stages[0].mean_ + rng.normal(size=(10, 4)) / 9  # short: nothing is cut
    scores = stages[1].transform(stages[0].transform(rows)) @ theta.T
    coef, intercept = stages[0].fold(*stages[1].fold(theta, np.zeros(3)))
    assert rows @ coef.T + intercept == pytest.approx(scores)


def test_rows_of_any_length_survive_a_joint_clip():
    stage = PrivateClip(constant=True)
    stage.radius_ = 1e-300
    out = stage.transform([[0.0, 1e308], [0.0, 0.0], [3e-301, 0.0]])
    assert out == pytest.approx(np.array([[0, math.sqrt(2), 0], [0, 0, 1], [0.3, 0, 1]]), abs=1e-15)


def test_a_constant_needs_an_intercept_to_carry():
    stages = [ClipNorm(9.0), PrivateClip(constant=True)]
    with pytest.raises(InputError, match="carries the intercept"):
        DPLinearClassifier(stages=stages, fit_intercept=False).fit(cloud(), np.arange(3000) % 2)


SHORT = {
    "PrivateCenter": [PrivateCenter(method="instance-optimal")],
    "PrivateBounds": [PrivateBounds()],
    "PrivateBounds, exponential": [PrivateBounds(method="exponential")],
    "PrivateClip": [PrivateClip()],
    "PrivateClip, constant": [PrivateClip(constant=True)],
}


@pytest.mark.parametrize("case", SHORT)
def test_too_few_rows_for_a_stage_are_named_before_anything_is_spent(case, caplog):
    """With the number that would do: with it there is no warning, with one row less there is."""
    stages = (ClipNorm(9.0), *SHORT[case])
    plan = Plan(Budget(1.0, 1e-5), stages, DPGD(steps=2), get_loss("logistic"))
    few = plan.calibrate(size=30, columns=4, classes=2)
    name = case.split(",")[0]
    assert f"{name}" in few.shortage and "there are 30" in few.shortage
    assert few.shortage in few.outlook and few.shortage in few.explain()
    needed = int(few.shortage.split("needs about ")[1].split(" rows")[0])
    assert plan.calibrate(size=needed, columns=4, classes=2).shortage == ""
    assert plan.calibrate(size=needed - 1, columns=4, classes=2).shortage
    model = DPLinearClassifier(1.0, 1e-5, stages=list(stages), trainer=DPGD(steps=2))
    with caplog.at_level("WARNING", logger="tacit"):
        model.fit(cloud(30), np.arange(30) % 2)
    assert f"needs about {needed} rows" in caplog.text


def test_the_rows_that_a_location_needs_find_it():
    """Of clouds far from the origin: with what is asked for always, with a fifth of it never."""
    d, z, found = 16, 4.0, {}
    for part in (1.0, 0.2):
        n = math.ceil(part * locating_rows(d, z))
        rows = 1e4 + cloud(n, d)
        stages = [
            fit(PrivateCenter(method="instance-optimal"), rows, z, bound=1e6, seed=seed)
            for seed in range(8)
        ]
        found[part] = [np.linalg.norm(stage.mean_ - 1e4) for stage in stages]
    assert max(found[1.0]) < 2 and min(found[0.2]) > 100


def test_the_clip_is_for_training_rows_alone():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(3000, 2))
    y = (X[:, 0] > 0).astype(int)
    stages = [ClipNorm(1e6), PrivateClip(0.3)]
    model = DPLinearClassifier(epsilon=2.0, stages=stages, random_state=0).fit(X, y)
    assert [stage.name for stage in model.stages_] == ["ClipNorm"]
    far = np.array([[100.0, 0.0], [200.0, 0.0]])
    scores = model.decision_function(far) - model.intercept_
    assert scores[1] == pytest.approx(2 * scores[0])
