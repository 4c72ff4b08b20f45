"""Pipelines with a ColumnTransformer, as tutorials have them: private, or refused with a line.

Each of the twenty is fitted by scikit-learn and by `privatize`, with public bounds and a budget
that hardly disturbs: predictions are close, and the certificate holds.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_selection import SelectKBest
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
)
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)

import tacit
from tacit import privatize
from tacit.datasets import load_adult
from tacit.exceptions import InputError

pd = pytest.importorskip("pandas")
N = 1500

PORTS, SEXES, CLASSES = ["C", "Q", "S"], ["female", "male"], [1, 2, 3]
JOBS, DEGREES = ["clerk", "farmer", "nurse", "teacher"], ["school", "college", "doctor"]
WEATHERS = ["clear", "misty", "rain"]
BOUNDS = {"age": (0, 80), "fare": (0, 300), "family": (0, 10)}
CENSUS = {"age": (16, 90), "hours": (0, 100), "gain": (0, 20_000)}


def passengers(seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "name": [f"passenger {i}" for i in range(N)],
            "age": rng.uniform(1, 75, N).round(),
            "fare": np.minimum(rng.lognormal(3, 0.8, N), 299.0),
            "family": rng.integers(0, 6, N),
            "port": rng.choice(PORTS, N).astype(object),
            "sex": rng.choice(SEXES, N),
            "class": rng.choice(CLASSES, N),
            "alone": rng.random(N) < 0.5,
        }
    )
    score = 2.5 * (frame["sex"] == "female") - 0.9 * frame["class"] - 0.03 * frame["age"]
    score += 0.4 * (frame["port"] == "C") + rng.logistic(scale=0.5, size=N)
    frame.loc[rng.random(N) < 0.15, "age"] = np.nan
    frame.loc[rng.random(N) < 0.03, "port"] = None
    return frame, (score > np.median(score)).astype(int).to_numpy()


def adults(seed=1):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(18, 80, N),
            "hours": rng.uniform(10, 80, N),
            "gain": np.minimum(rng.exponential(2000, N), 19_999),
            "job": rng.choice(JOBS, N),
            "degree": rng.choice(DEGREES, N),
        }
    )
    score = 0.04 * frame["age"] + 0.03 * frame["hours"] + np.log1p(frame["gain"]) / 4
    score += frame["degree"].map({"school": 0, "college": 1, "doctor": 2}) * 0.8
    score += rng.logistic(scale=0.4, size=N)
    return frame, np.where(score > np.median(score), ">50K", "<=50K")


def hires(seed=2):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "hour": rng.integers(0, 24, N),
            "month": rng.integers(1, 13, N),
            "temp": rng.uniform(-5, 35, N),
            "weather": rng.choice(WEATHERS, N),
            "holiday": rng.random(N) < 0.1,
        }
    )
    y = 100 + 60 * np.sin(2 * np.pi * (frame["hour"] - 6) / 24) + 4 * frame["temp"]
    y -= 50 * (frame["weather"] == "rain") + 20 * frame["holiday"]
    return frame, (y + rng.normal(scale=10, size=N)).to_numpy()


def houses(seed=3):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": rng.uniform(30, 300, N),
            "year": rng.integers(1900, 2011, N),
            "lot": rng.lognormal(7, 0.5, N).clip(50, 9000),
            "zone": rng.choice(["A", "B", "C"], N),
            "quality": rng.choice(["poor", "fair", "good"], N),
            "rooms": rng.integers(1, 9, N),
        }
    )
    y = 1.2 * frame["area"] + 0.8 * (frame["year"] - 1900) + 30 * (frame["zone"] == "A")
    y += frame["quality"].map({"poor": 0, "fair": 25, "good": 50}) + 15 * np.log(frame["lot"])
    frame.loc[rng.random(N) < 0.1, "lot"] = np.nan
    return frame, (y + rng.normal(scale=10, size=N)).to_numpy()


HOUSE = {"area": (0, 400), "year": (1900, 2020), "lot": (10, 20_000), "rooms": (0, 12)}
HIRE = {"hour": (0, 24), "month": (1, 12), "temp": (-20, 40)}


def sine(x):
    return np.sin(x / 24 * 2 * np.pi)


def cosine(x):
    return np.cos(x / 24 * 2 * np.pi)


def ratio(frame):
    return frame[["area"]].to_numpy() / frame[["rooms"]].to_numpy()


def one_hot(*levels, **more):
    return OneHotEncoder(categories=[list(own) for own in levels], **more)


NUMERIC = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
WORDS = [("impute", SimpleImputer(strategy="most_frequent"))]
ZONES = ["A", "B", "C"]
CHOSEN = ["port", "sex", "class"]
QUALITY = ["poor", "fair", "good"]

#: Name: data, ColumnTransformer, what follows, what is declared.
PIPELINES = {
    "titanic, numbers and words": (
        passengers,
        ColumnTransformer(
            [
                ("num", NUMERIC, ["age", "fare"]),
                ("cat", one_hot(PORTS, SEXES, CLASSES, handle_unknown="ignore"), CHOSEN),
            ]
        ),
        [LogisticRegression()],
        {"bounds": BOUNDS},
    ),
    "titanic, selected by type": (
        passengers,
        ColumnTransformer(
            [
                ("num", NUMERIC, make_column_selector(pattern="age|fare|family")),
                (
                    "cat",
                    Pipeline([*WORDS, ("hot", one_hot(PORTS, SEXES, handle_unknown="ignore"))]),
                    make_column_selector(pattern="port|sex"),
                ),
            ]
        ),
        [LogisticRegression()],
        {"bounds": BOUNDS},
    ),
    "titanic, missing as a category": (
        passengers,
        make_column_transformer(
            (
                make_pipeline(
                    SimpleImputer(strategy="constant", fill_value="missing"),
                    one_hot([*PORTS, "missing"], SEXES),
                ),
                ["port", "sex"],
            ),
            (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["age"]),
            (StandardScaler(), ["fare"]),
        ),
        [LogisticRegression(C=10)],
        {"bounds": BOUNDS},
    ),
    "titanic, remainder passes": (
        passengers,
        ColumnTransformer(
            [
                ("names", "drop", ["name", "port"]),
                ("sex", one_hot(SEXES, drop="if_binary"), ["sex"]),
                ("age", SimpleImputer(strategy="constant", fill_value=30), ["age"]),
            ],
            remainder="passthrough",
        ),
        [StandardScaler(), LogisticRegression()],
        {"bounds": {**BOUNDS, "class": (1, 3)}},
    ),
    "titanic, categories declared": (
        passengers,
        make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), ["sex", "class"]),
            (NUMERIC, ["age"]),
        ),
        [LogisticRegression()],
        {"bounds": BOUNDS, "categories": {"sex": SEXES, "class": CLASSES}},
    ),
    "titanic, several classes": (
        lambda: (passengers()[0], passengers()[0]["class"].to_numpy() * passengers()[1]),
        make_column_transformer(
            (one_hot(SEXES, CLASSES), ["sex", "class"]), (NUMERIC, ["age", "fare"])
        ),
        [LogisticRegression()],
        {"bounds": BOUNDS},
    ),
    "census, scaled and one-hot": (
        adults,
        ColumnTransformer(
            [
                ("one-hot-encoder", one_hot(JOBS, DEGREES), ["job", "degree"]),
                ("standard_scaler", StandardScaler(), ["age", "hours", "gain"]),
            ]
        ),
        [LogisticRegression(max_iter=500)],
        {"bounds": CENSUS},
    ),
    "census, ordinal": (
        adults,
        make_column_transformer(
            (
                OrdinalEncoder(
                    categories=[DEGREES], handle_unknown="use_encoded_value", unknown_value=-1
                ),
                ["degree"],
            ),
            (one_hot(JOBS), ["job"]),
            remainder=StandardScaler(),
        ),
        [LogisticRegression()],
        {"bounds": CENSUS},
    ),
    "census, logarithms": (
        adults,
        ColumnTransformer(
            [
                ("log", make_pipeline(FunctionTransformer(np.log1p), StandardScaler()), ["gain"]),
                ("num", StandardScaler(), ["age", "hours"]),
                ("cat", one_hot(DEGREES, drop="first"), ["degree"]),
            ]
        ),
        [LogisticRegression()],
        {"bounds": CENSUS},
    ),
    "census, bins": (
        adults,
        ColumnTransformer(
            [
                (
                    "bins",
                    KBinsDiscretizer(8, strategy="uniform", encode="onehot-dense"),
                    ["age", "hours"],
                ),
                ("degree", one_hot(DEGREES), ["degree"]),
            ]
        ),
        [LogisticRegression()],
        {"bounds": {"age": (18, 80), "hours": (10, 80)}},
    ),
    "census, nested pipelines": (
        adults,
        ColumnTransformer(
            [
                ("num", Pipeline([("in", Pipeline([("s", MinMaxScaler())]))]), [0, 1]),
                ("cat", Pipeline([("hot", one_hot(JOBS, DEGREES))]), slice(3, 5)),
            ]
        ),
        [StandardScaler(), LogisticRegression()],
        {"bounds": CENSUS},
    ),
    "census, components of categories": (
        adults,
        ColumnTransformer(
            [
                ("hot", make_pipeline(one_hot(JOBS, DEGREES), TruncatedSVD(6)), ["job", "degree"]),
                ("num", StandardScaler(), ["age", "hours"]),
            ]
        ),
        [LogisticRegression()],
        {"bounds": CENSUS},
    ),
    "census, a column twice": (
        adults,
        ColumnTransformer(
            [
                ("raw", StandardScaler(), ["age", "hours"]),
                ("bins", KBinsDiscretizer(5, strategy="uniform"), ["age"]),
                ("degree", one_hot(DEGREES), ["degree"]),
            ]
        ),
        [LogisticRegression()],
        {"bounds": {"age": (18, 80), "hours": (10, 80)}},
    ),
    "hires, hours as waves": (
        hires,
        ColumnTransformer(
            [
                ("sin", FunctionTransformer(sine), ["hour"]),
                ("cos", FunctionTransformer(cosine), ["hour"]),
                ("weather", one_hot(WEATHERS), ["weather"]),
            ],
            remainder=MinMaxScaler(),
        ),
        [Ridge(alpha=1e-3)],
        {
            "bounds": HIRE,
            "row_wise": {sine: (-1, 1), cosine: (-1, 1)},
            "target_bounds": (-100, 350),
        },
    ),
    "hires, splines": (
        hires,
        ColumnTransformer(
            [
                ("hour", SplineTransformer(n_knots=9, knots="uniform"), ["hour"]),
                ("weather", one_hot(WEATHERS), ["weather"]),
            ],
            remainder=MinMaxScaler(),
        ),
        [Ridge(alpha=1e-3)],
        {"bounds": {**HIRE, "hour": (0, 23)}, "target_bounds": (-100, 350)},
    ),
    "hires, one-hot hours": (
        hires,
        make_column_transformer(
            (one_hot(range(24), WEATHERS), ["hour", "weather"]),
            ("passthrough", ["temp", "holiday"]),
        ),
        [LinearRegression()],
        {"bounds": HIRE, "target_bounds": (-100, 350)},
    ),
    "houses, ames": (
        houses,
        ColumnTransformer(
            [
                ("num", NUMERIC, make_column_selector(dtype_include=np.number)),
                ("cat", one_hot(ZONES, QUALITY), make_column_selector(dtype_exclude=np.number)),
            ]
        ),
        [Ridge(alpha=1e-3)],
        {"bounds": HOUSE, "target_bounds": (0, 800)},
    ),
    "houses, polynomials": (
        houses,
        ColumnTransformer(
            [
                (
                    "poly",
                    make_pipeline(
                        StandardScaler(),
                        PolynomialFeatures(2, include_bias=False),
                        StandardScaler(),
                    ),
                    ["area", "year"],
                ),
                ("cat", one_hot(ZONES, QUALITY), ["zone", "quality"]),
            ]
        ),
        [Ridge(alpha=1e-3)],
        {"bounds": HOUSE, "target_bounds": (0, 800)},
    ),
    "houses, a ratio": (
        houses,
        ColumnTransformer(
            [
                (
                    "ratio",
                    make_pipeline(FunctionTransformer(ratio), StandardScaler()),
                    ["area", "rooms"],
                ),
                ("num", NUMERIC, ["area", "year"]),
                ("cat", one_hot(ZONES, QUALITY), ["zone", "quality"]),
            ]
        ),
        [Ridge(alpha=1e-3)],
        {"bounds": HOUSE, "row_wise": {ratio: (0, 300)}, "target_bounds": (0, 800)},
    ),
    "houses, an array": (
        lambda: (houses()[0][["area", "year", "rooms"]].to_numpy(float), houses()[1]),
        ColumnTransformer([("num", StandardScaler(), [0, 1])], remainder="passthrough"),
        [Ridge(alpha=1e-3)],
        {
            "bounds": {"x0": (0, 400), "x1": (1900, 2020), "x2": (0, 12)},
            "target_bounds": (0, 800),
        },
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_of_columns_predicts_what_it_did(name):
    load, columns, rest, declared = PIPELINES[name]
    X, y = load()
    pipeline = make_pipeline(columns, *rest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = privatize(pipeline, epsilon=80, delta=1e-5, random_state=0, **declared).fit(X, y)
    assert model.certificate_.verify().holds
    ours, theirs = model.predict(X), pipeline.fit(X, y).predict(X)
    if "target_bounds" in declared:
        assert r2_score(y, ours) > r2_score(y, theirs) - 0.05
    else:
        assert (ours == theirs).mean() > 0.93
        assert (ours == y).mean() > (theirs == y).mean() - 0.02


def test_there_are_twenty_of_them():
    assert len(PIPELINES) == 20


REFUSED = {
    "an order of the rows' categories": (
        ("cat", OrdinalEncoder(), ["sex"]),
        r"categories='auto'.*OrdinalEncoder\(categories=\[\[...\], ...\]\).*categories=\{'sex'",
    ),
    "components of categories of the rows": (
        ("cat", make_pipeline(OneHotEncoder(), StandardScaler(with_mean=False)), ["sex"]),
        r"list them, categories=\{'sex': \[...\]\}",
    ),
    "splines without bounds": (
        ("splines", SplineTransformer(), ["class"]),
        r"bounds=\{'class': \(low, high\)\}",
    ),
    "counted categories": (
        ("cat", one_hot(SEXES, min_frequency=5), ["sex"]),
        "min_frequency=5.*leave min_frequency out",
    ),
    "means of targets": (("cat", TargetEncoder(), ["sex"]), "TargetEncoder.*private targets"),
    "quantiles": (
        ("bins", KBinsDiscretizer(5, strategy="quantile"), ["age"]),
        "use strategy='uniform'",
    ),
    "knots at quantiles": (
        ("splines", SplineTransformer(knots="quantile"), ["age"]),
        "use knots='uniform'",
    ),
    "any function": (
        ("f", FunctionTransformer(sine), ["age"]),
        r"privatize\(..., row_wise=\{sine: \(low, high\)\}\)",
    ),
    "robust scales": (("s", RobustScaler(), ["age"]), "RobustScaler.*use StandardScaler"),
    "neighbours": (("i", KNNImputer(), ["age"]), "KNNImputer.*SimpleImputer"),
    "norms": (("n", Normalizer(), ["age"]), "Normalizer"),
    "words as they are": (("w", "passthrough", ["sex"]), r"'sex'.*add OneHotEncoder\("),
    "an infinite logarithm": (("l", FunctionTransformer(np.log), ["age"]), "give it bounds within"),
    "a constant word": (
        ("i", make_pipeline(SimpleImputer(strategy="most_frequent")), ["age"]),
        "strategy='most_frequent'.*use strategy='mean'",
    ),
    "no such column": (("n", StandardScaler(), ["nobody"]), "names column 'nobody'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_counterpart_is_refused_with_the_line_to_change(name):
    transformer, message = REFUSED[name]
    pipeline = make_pipeline(ColumnTransformer([transformer]), LogisticRegression())
    X, y = passengers()
    with pytest.raises(InputError, match=message):
        privatize(pipeline, epsilon=1, delta=1e-5, bounds=BOUNDS).fit(X, y)


def test_what_follows_or_precedes_columns_is_refused_with_a_place():
    columns = ColumnTransformer([("n", StandardScaler(), ["age"])])
    for steps, message in (
        ([SimpleImputer(), columns], "put it first"),
        ([columns, SelectKBest()], "name them from public knowledge"),
        ([columns, PolynomialFeatures()], "put it into a transformer"),
    ):
        with pytest.raises(InputError, match=message):
            privatize(
                make_pipeline(*steps, LogisticRegression()), epsilon=1, delta=1e-5, bounds=BOUNDS
            )


def test_a_step_that_takes_single_columns_may_stand_first():
    X, y = hires()
    pipeline = make_pipeline(SplineTransformer(n_knots=6), Ridge(alpha=1e-3))
    rows = X[["hour", "temp"]].astype(float)
    bounds = {"hour": (0, 23), "temp": (-5, 35)}
    model = privatize(
        pipeline, epsilon=80, delta=1e-5, bounds=bounds, target_bounds=(-100, 350), random_state=0
    ).fit(rows, y)
    assert (
        r2_score(y, model.predict(rows)) > r2_score(y, pipeline.fit(rows, y).predict(rows)) - 0.05
    )


def test_a_selector_sees_no_row():
    seen = []

    def all_numbers(frame):
        seen.append(len(frame))
        return ["age", "fare"]

    X, y = passengers()
    columns = ColumnTransformer([("n", SimpleImputer(strategy="constant"), all_numbers)])
    privatize(
        make_pipeline(columns, LogisticRegression()), epsilon=9, delta=1e-5, bounds=BOUNDS
    ).fit(X, y)
    assert seen and set(seen) == {0}


def test_a_model_of_columns_is_saved_unless_it_holds_a_function(tmp_path):
    X, y = passengers()
    columns = make_column_transformer((one_hot(SEXES), ["sex"]), (NUMERIC, ["age"]))
    model = privatize(
        make_pipeline(columns, LogisticRegression()), epsilon=9, delta=1e-5, bounds=BOUNDS
    ).fit(X, y)
    tacit.save(model.estimator_, tmp_path / "model.safetensors")
    again = tacit.load(tmp_path / "model.safetensors")
    used = list(again.feature_names_in_)
    assert np.array_equal(again.predict(X[used]), model.predict(X))
    columns = make_column_transformer((FunctionTransformer(sine), ["age"]))
    model = privatize(
        make_pipeline(columns, LogisticRegression()),
        epsilon=9,
        delta=1e-5,
        bounds=BOUNDS,
        row_wise={sine: (-1, 1)},
    ).fit(X, y)
    assert "sine look at one row" in " ".join(model.certificate_.assumptions)
    with pytest.raises(InputError, match="sine, a function that no file holds"):
        tacit.save(model.estimator_, tmp_path / "other.safetensors")


def test_any_value_of_a_cell_is_predicted():
    X, y = passengers()
    columns = make_column_transformer((one_hot(SEXES, PORTS), ["sex", "port"]), (NUMERIC, ["age"]))
    model = privatize(
        make_pipeline(columns, LogisticRegression()), epsilon=9, delta=1e-5, bounds=BOUNDS
    ).fit(X, y)
    strange = {"sex": ["?", None, "x"], "port": [1e300, "C", ""], "age": ["n/a", np.inf, -1e308]}
    assert np.isfinite(model.decision_function(strange)).all()
    with pytest.raises(InputError, match="the table lacks columns: 'age'"):
        model.predict({"sex": ["male"], "port": ["C"]})


def test_bounds_and_categories_that_nobody_declares_are_found_through_noise(tmp_path):
    parts = [passengers(seed) for seed in range(4)]
    X, y = pd.concat([X for X, _ in parts]), np.concatenate([y for _, y in parts])
    words = OneHotEncoder(handle_unknown="ignore", drop="first")
    columns = make_column_transformer((words, ["sex", "class"]), (NUMERIC, ["age", "fare"]))
    pipeline = make_pipeline(columns, LogisticRegression())
    model = privatize(pipeline, epsilon=8, delta=1e-5, bounds={"age": (0, 80)}, random_state=0)
    model.fit(X, y)
    assert [stage.name for stage in model.plan_.plan.stages] == [
        "PrivateByColumns",
        "PrivateBlocks",
    ]
    assert "found through noise" in model.explain()
    assert model.certificate_.verify().holds
    assert model.score(X, y) > pipeline.fit(X, y).score(X, y) - 0.02
    (first, _) = model.estimator_.stages_
    assert {"age", "fare", "sex=male", "class=3"} <= set(first.feature_names)
    tacit.save(model.estimator_, tmp_path / "model.safetensors")
    again = tacit.load(tmp_path / "model.safetensors")
    used = list(again.feature_names_in_)
    assert np.array_equal(again.predict(X[used]), model.predict(X))
    assert np.isfinite(again.decision_function({name: [None] for name in used})).all()


def test_a_column_is_not_searched_in_two_ways():
    X, y = passengers()
    columns = make_column_transformer((OneHotEncoder(), ["class"]), ("passthrough", ["class"]))
    with pytest.raises(InputError, match=r"'class' would be searched .* declare bounds=\{'class'"):
        privatize(make_pipeline(columns, LogisticRegression()), epsilon=9, delta=1e-5).fit(X, y)


def test_too_few_rows_are_told_with_the_lines_to_add():
    X, y = passengers()
    columns = make_column_transformer((OneHotEncoder(), ["sex"]), ("passthrough", ["fare"]))
    pipeline = make_pipeline(columns, LogisticRegression())
    with pytest.raises(InputError, match=r"too few .*'fare': \(low, high\).*'sex': \[...\]"):
        privatize(pipeline, epsilon=0.02, delta=1e-5).fit(X, y)


def test_bounds_far_too_wide_cost_next_to_nothing():
    X, y = adults()
    columns = make_column_transformer(
        (StandardScaler(), ["age", "hours", "gain"]), (one_hot(DEGREES), ["degree"])
    )
    pipeline, scores = make_pipeline(columns, LogisticRegression()), []
    for times in (1, 100):
        bounds = {name: (low, low + times * (high - low)) for name, (low, high) in CENSUS.items()}
        model = privatize(pipeline, epsilon=20, delta=1e-5, bounds=bounds, random_state=0)
        scores.append(model.fit(X, y).score(X, y))
    assert scores[1] > scores[0] - 0.01


def test_the_figures_of_the_page_on_pipelines():
    train, test, schema = load_adult()
    frames = [
        pd.DataFrame({name: half.column(name) for name in schema.columns}) for half in (train, test)
    ]
    y, truth = (half.match("income", schema.classes) for half in (train, test))
    words = [name for name in schema.columns if train.kind(name) == "text"]
    hot = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
    )
    columns = make_column_transformer((hot, words), remainder=NUMERIC)
    pipeline = make_pipeline(columns, LogisticRegression(max_iter=300))
    area = roc_auc_score(truth, pipeline.fit(frames[0], y).decision_function(frames[1]))
    assert area == pytest.approx(0.903, abs=1e-3)
    ends = {n: (schema.columns[n].low, schema.columns[n].high) for n in frames[0] if n not in words}
    for declared in (
        {},
        {"bounds": {name: (low, low + 100 * (high - low)) for name, (low, high) in ends.items()}},
    ):
        model = privatize(pipeline, epsilon=1, delta=1e-5, random_state=0, **declared)
        scores = model.fit(frames[0], y).decision_function(frames[1])
        assert roc_auc_score(truth, scores) == pytest.approx(0.905, abs=1.5e-3)
