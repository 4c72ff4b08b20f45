"""Curves of columns: models that are sums of them, and columns that go one way."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from tacit import DPLinearClassifier, DPLinearRegressor, load, save
from tacit.data.columns import CategoryColumn, DateColumn, NumberColumn
from tacit.data.schema import Schema
from tacit.exceptions import InputError
from tacit.preprocessing import ClipNorm, Encode, Normalize, PrivateCenter
from tacit.trainers import DPGD, SufficientStatistics

RNG = np.random.default_rng(0)
N = 1_500
TABLE = pd.DataFrame(
    {
        "age": np.where(RNG.random(N) < 0.1, np.nan, RNG.uniform(0, 100, N)),
        "paid": RNG.lognormal(3, 1, N),
        "job": RNG.choice(["cook", "nurse", "?"], N),
        "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 1000, N), unit="D"),
        "dose": RNG.uniform(0, 1, N),
    }
)
BUMP = np.abs(np.nan_to_num(TABLE["age"], nan=50.0) - 50) / 50  # high at both ends
SICK = (BUMP + 0.2 * RNG.normal(size=N) > 0.5).astype(int)


def schema(**age):
    hat = {"shape": "hat"}
    return Schema(
        {
            "age": NumberColumn(0, 100, **hat, knots=9, **age),
            "paid": NumberColumn(0, 1e4, scale="log", **hat, knots=(0.0, 10.0, 50.0, 1e4)),
            "job": CategoryColumn(("cook", "nurse"), missing="level", unseen="error"),
            "seen": DateColumn("2020-01-01", "2023-01-01", **hat, knots=5),
            "dose": NumberColumn(0, 1, missing="error"),
        }
    )


def classifier(known=None, *behind, **how):
    stages = [Encode(known or schema()), *(behind or [PrivateCenter()])]
    return DPLinearClassifier(20.0, 1e-5, stages=stages, random_state=0, **how)


def summed(curves, table):
    return curves.constant + sum(curves[name](table[name]) for name in curves)


def test_a_score_is_exactly_the_sum_of_the_curves_and_their_constant(tmp_path):
    model = classifier(None, ClipNorm(4.0), PrivateCenter()).fit(TABLE, SICK)
    curves = model.shape_curves()
    assert list(curves) == list(TABLE) and curves["seen"].kind == "date"
    assert summed(curves, TABLE) == pytest.approx(model.decision_function(TABLE), abs=1e-12)
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors").shape_curves()
    assert np.array_equal(again["age"].effect, curves["age"].effect)
    age = curves["age"]
    assert age.grid.tolist() == np.linspace(0, 100, 9).tolist()
    assert age.effect.mean() == pytest.approx(0) and np.isfinite(age.missing)
    assert age.effect[0] > age.effect[4] < age.effect[-1]  # it bends
    assert curves["job"].grid.tolist() == ["cook", "nurse"]
    assert curves["dose"].grid.tolist() == [0, 1]


def test_numbers_and_several_classes_have_curves_too():
    stages = [Encode(schema()), PrivateCenter()]
    model = DPLinearRegressor(20.0, target_bounds=(0, 2), stages=stages, random_state=0)
    curves = model.fit(TABLE, BUMP).shape_curves()
    assert summed(curves, TABLE) == pytest.approx(model.predict(TABLE), abs=1e-12)
    third = np.where(TABLE["job"] == "cook", 2, SICK)
    several = classifier().fit(TABLE, third)
    curves = several.shape_curves()
    assert curves["age"].effect.shape == (9, 3)
    assert summed(curves, TABLE) == pytest.approx(several.decision_function(TABLE), abs=1e-12)
    with pytest.raises(InputError, match="of two classes"):
        curves.svg()


def test_there_are_no_curves_where_the_effect_of_a_column_depends_on_the_row():
    with pytest.raises(InputError, match="behind Normalize"):
        classifier(None, Normalize()).fit(TABLE, SICK).shape_curves()
    with pytest.raises(InputError, match="behind ClipNorm"):
        classifier(None, ClipNorm(1.0)).fit(TABLE, SICK).shape_curves()
    with pytest.raises(InputError, match="fit to a table"):
        DPLinearClassifier(random_state=0).fit(np.eye(60), [0, 1] * 30).shape_curves()


def test_a_picture_shows_every_column_and_needs_nothing_else(tmp_path):
    table = TABLE.rename(columns={"dose": "<dose> & more"})
    known = schema().to_dict()
    known["columns"]["<dose> & more"] = known["columns"].pop("dose")
    curves = classifier(Schema.from_dict(known)).fit(table, SICK).shape_curves()
    path = curves.plot(tmp_path / "curves.svg")
    words = " ".join(ET.fromstring(path.read_text()).itertext())
    assert all(name in words for name in table) and "2020-01-01" in words
    assert "href" not in path.read_text()


# --- monotone ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["increasing", "decreasing"])
@pytest.mark.parametrize("trainer", ["auto", DPGD(steps=5, average="uniform")])
def test_a_monotone_curve_goes_one_way_exactly(way, trainer):
    model = classifier(schema(monotone=way), trainer=trainer).fit(TABLE, SICK)
    block = next(b for b in model.stages_[0].blocks if b.name == "age")
    weights = model.coef_[0, block.start : block.stop]
    sign = 1 if way == "increasing" else -1
    assert (sign * np.diff(weights[2:11]) >= 0).all() and sign * (weights[1] - weights[0]) >= 0
    grid = np.linspace(-10, 110, 997)
    steps = sign * np.diff(model.shape_curves()["age"](grid))
    assert steps.min() >= -1e-12 and steps.max() > 0
    free = classifier().fit(TABLE, SICK).shape_curves()["age"](grid)
    assert np.diff(free).min() < 0 < np.diff(free).max()


def test_monotone_numbers_of_regression_and_straight_columns():
    straight = NumberColumn(0, 100, shape="straight", missing="indicator", monotone="decreasing")
    known = Schema({**schema().columns, "age": straight})
    stages = [Encode(known), PrivateCenter()]
    rising = np.nan_to_num(TABLE["age"], nan=50.0) / 100
    model = DPLinearRegressor(20.0, target_bounds=(0, 1), stages=stages, random_state=0)
    assert model.fit(TABLE, rising).shape_curves()["age"].effect.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("behind", "how", "words"),
    [
        ((Normalize(),), {}, "behind Normalize"),
        ((ClipNorm(1.0), PrivateCenter()), {}, "behind ClipNorm"),
        ((), {"labels": np.arange(N) % 3}, "two classes"),
        ((), {"trainer": SufficientStatistics()}, "order"),
    ],
    ids=["normalize", "clip", "classes", "trainer"],
)
def test_monotone_is_refused_where_it_would_not_hold(behind, how, words):
    labels, known = how.pop("labels", SICK), schema(monotone="increasing")
    if how:
        stages = [Encode(known), PrivateCenter()]
        model = DPLinearRegressor(1.0, target_bounds=(0, 1), stages=stages, **how)
    else:
        model = classifier(known, *behind)
    with pytest.raises(InputError, match=words):
        model.fit(TABLE, labels)
