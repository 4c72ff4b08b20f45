"""Whole plans on any finite row: one of them never decides whether there is a model."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from tacit import DPLinearClassifier, DPLinearRegressor
from tacit.data import scan
from tacit.exceptions import PrivateTestError
from tacit.preprocessing import (
    Bound,
    ClipNorm,
    Dedup,
    FillGaps,
    NoiselessImpute,
    NoiselessPCA,
    NoiselessScale,
    Normalize,
    PrivateBounds,
    PrivateCenter,
    PrivateClip,
    PrivateEqualize,
    PrivateImpute,
    PrivatePCA,
    PrivateScale,
    PublicCenter,
    PublicPCA,
    PublicPrecondition,
    PublicRotation,
    PublicScale,
    Quantize,
    RandomProjection,
    Root,
    SoftPCA,
)
from tacit.trainers import DPGD

N, D, LARGEST_FLOAT = 60, 4, sys.float_info.max
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)) + 0.3
Y = np.arange(N) % 2
TARGET = X @ [1.0, -1.0, 0.5, 0.0]
PUBLIC = RNG.normal(size=(30, D)) * [1e-100, 1.0, 1e-9, 1e9] + [0.0, 0.3, 0.0, 1e9]
NEAR = RNG.normal(size=(30, D)) + 0.3  # public rows that are like the private ones

ROWS = [np.full(D, value) for value in (1e308, -LARGEST_FLOAT, 5e-324, 0.0)]
ROWS += [
    np.array([LARGEST_FLOAT, -LARGEST_FLOAT, 5e-324, 1.0]),
    np.array([0.0, LARGEST_FLOAT, 0.0, -0.0]),
]
ROWS += [np.array([1e-310, 1e200, -1e-200, -(2.0**63)])]

PLANS = {
    "default": lambda: "auto",
    "scale": lambda: [PublicScale(PUBLIC), ClipNorm(2.0)],
    "centre, scale": lambda: [PublicCenter(PUBLIC), PublicScale(PUBLIC), ClipNorm(2.0)],
    "scale twice": lambda: [PublicScale(PUBLIC), PublicScale(PUBLIC), Normalize()],
    "scale, bound": lambda: [PublicScale(PUBLIC), Bound(-3, 3), PrivateEqualize(), Normalize()],
    "scale, bounds": lambda: [PublicScale(PUBLIC), PrivateBounds(), PrivateCenter()],
    "root": lambda: [PublicScale(PUBLIC), Root(), ClipNorm(2.0), PrivateScale()],
    "far": lambda: [ClipNorm(1e100), PrivateClip(), PrivateCenter()],
    "located": lambda: [
        PublicScale(PUBLIC),
        ClipNorm(1e9),
        PrivateCenter(method="instance-optimal"),
        PrivateClip(method="exponential"),
    ],
    "components": lambda: [
        PublicScale(NEAR),
        ClipNorm(2.0),
        PublicCenter(NEAR),
        PublicPCA(NEAR, 3),
        PublicPrecondition(NEAR),
    ],
    "rotated": lambda: [
        Bound(-1e100, 1e100),
        PublicScale(NEAR),
        Normalize(),
        PublicRotation(NEAR),
        RandomProjection(3),
        PrivatePCA(2),
    ],
    "filled": lambda: [FillGaps(1e300), PublicScale(PUBLIC), ClipNorm(2.0), PrivateCenter()],
    "imputed": lambda: [ClipNorm(2.0), PrivateImpute(), PrivateCenter()],
    "soft": lambda: [PublicScale(PUBLIC), ClipNorm(2.0), SoftPCA(), NoiselessScale(1.0)],
    "ridge": lambda: [
        Bound(-1e300, 1e300),
        NoiselessImpute("ridge", columns=[1], strength=0.5),
        SoftPCA(),
    ],
    "tested": lambda: [ClipNorm(2.0), NoiselessPCA(2, gap=1e-3, centered=True)],
    "blanked": lambda: [PublicScale(PUBLIC), Normalize(2.0), Dedup(0.01, crowd=1000)],
    "moved": lambda: [ClipNorm(2.0), Quantize(0.01, crowd=1000), SoftPCA()],
}


def outcome(make, rows, target):
    """What becomes of a fit: its shape, or the kind of refusal that is itself private."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            model = make().fit(rows, target)
    except PrivateTestError:
        return "tested"
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert len(model.predict(np.array(ROWS))) == len(ROWS)
    return model.coef_.shape


def classifier(stages, **more):
    options = {"epsilon": 50.0, "trainer": DPGD(steps=2), "random_state": 0}
    return lambda: DPLinearClassifier(stages=stages(), **{**options, **more})


def replaced(row, rows=X):
    other = rows.copy()
    other[7] = row
    return other


@pytest.mark.filterwarnings("ignore:.*public rows")
@pytest.mark.parametrize("plan", PLANS)
def test_one_finite_row_does_not_decide_whether_there_is_a_model(plan):
    make = classifier(PLANS[plan])
    expected = outcome(make, X, Y)
    for row in ROWS:
        assert outcome(make, replaced(row), Y) == expected
    assert outcome(make, replaced(ROWS[0])[:, ::-1], Y) == expected


@pytest.mark.parametrize("plan", ["default", "imputed"])
def test_one_finite_sparse_row_decides_nothing_either(plan):
    make = classifier(PLANS[plan])
    rows = np.where(np.abs(X) > 1, X, 0.0)
    expected = outcome(make, sp.csr_array(rows), Y)
    for row in ROWS:
        assert outcome(make, sp.csr_array(replaced(row, rows)), Y) == expected


@pytest.mark.filterwarnings("ignore:.*public rows")
@pytest.mark.parametrize("arithmetic", ["fast", "strict"])
@pytest.mark.parametrize("plan", ["default", "centre, scale", "root"])
def test_arithmetic_of_any_kind_is_total(plan, arithmetic):
    make = classifier(PLANS[plan], arithmetic=arithmetic)
    for row in ROWS[:5]:
        outcome(make, replaced(row), Y)


@pytest.mark.filterwarnings("ignore:.*public rows")
def test_rows_that_stay_in_a_file_are_no_different(tmp_path):
    make = classifier(PLANS["centre, scale"])
    for i, row in enumerate(ROWS):
        np.save(tmp_path / f"{i}.npy", replaced(row))
        streamed = make().fit(scan(tmp_path / f"{i}.npy", memory=1), Y)
        assert streamed.coef_.tobytes() == make().fit(replaced(row), Y).coef_.tobytes()


@pytest.mark.parametrize("trainer", ["auto", DPGD(steps=2)])
@pytest.mark.parametrize("stages", ["auto", [Bound(-3, 3)]])
@pytest.mark.parametrize("bounds", [(-3, 3), (1e99, 1e100), (0, 1e-90), (-1e100, 1e100)])
def test_one_finite_target_decides_nothing(bounds, stages, trainer):
    def make():
        options = {"target_bounds": bounds, "stages": stages, "trainer": trainer}
        return DPLinearRegressor(epsilon=50.0, random_state=0, **options)

    expected = outcome(make, X, TARGET)
    for value in (1e308, -LARGEST_FLOAT, 5e-324, -0.0, 2.0**63):
        target = TARGET.copy()
        target[7] = value
        assert outcome(make, X, target) == expected
    whole = np.rint(TARGET).astype(np.int64)
    whole[7] = np.iinfo(np.int64).min
    assert outcome(make, X, whole) == expected


@pytest.mark.parametrize("bounds", [(0, 5e-324), (0, 1e-310), (-1e308, 1e308), (0, 1e200)])
def test_limits_of_the_target_that_arithmetic_breaks_on_are_refused(bounds):
    with pytest.raises(ValueError, match="target_bounds="):
        DPLinearRegressor(target_bounds=bounds).fit(X, TARGET)
