"""What is private in a schema, found through noise; in memory, from files and on a cluster."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tacit import DPLinearClassifier, DPLinearRegressor, DPSearch, Ledger, load, save
from tacit.data import scan
from tacit.data.columns import CategoryColumn, DateColumn, NumberColumn, UnknownColumn
from tacit.data.columns import default_column as of
from tacit.data.rows import as_rows
from tacit.data.schema import Schema
from tacit.data.tables import Table, as_table
from tacit.exceptions import InputError
from tacit.losses import get_loss
from tacit.mechanisms.random_streams import Key
from tacit.plan import Plan
from tacit.plan.targets import PrivateClasses, PrivateTargetBounds
from tacit.preprocessing import Context, Encode, Normalize, PrivateCenter, PrivateEncode
from tacit.privacy import Budget
from tacit.privacy.events import NEIGHBORS
from tacit.trainers import DPGD

N = 4000


def people(n=N, seed=0):
    rng = np.random.default_rng(seed)
    days = np.datetime64("1990-01-01") + rng.integers(0, 7000, n)
    return {
        "born": rng.integers(1955, 1991, n).astype(float),
        "pay": np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(10, 1, n)),
        "job": rng.choice(["nurse", "cook", "smith"], n, p=[0.5, 0.3, 0.2]),
        "since": [str(day) for day in days],
        "code": rng.choice(["1", "2.5", "30", "n/a"], n),
    }


SCHEMA = Schema({"born": of("number"), "pay": of("number", low=0.0), "job": of("category")})


def some(table, schema=SCHEMA):
    return {name: table[name] for name in schema.columns}


def found(schema, table, z=1.0, seed=0, **settings):
    rows = as_rows(as_table(some(table, schema)))
    stage = PrivateEncode(schema, 0.1, **{"narrow": False, **settings})
    event = stage.event(z)
    context = Context.paid(event, rows.n, failure=1e-6, key=Key.from_seed(seed))
    return stage.fit(rows, context)


def test_bounds_and_categories_are_found_and_public_ones_stay():
    columns = found(SCHEMA, people()).schema_.columns
    assert 1953 < columns["born"].low < 1957 and 1988 < columns["born"].high < 1994
    assert columns["pay"].low == 0 and 6e4 < columns["pay"].high < 1e6
    assert columns["job"].categories == ("cook", "nurse", "smith")
    assert columns["job"].missing == columns["job"].unseen == "level"


def test_rows_are_encoded_as_the_schema_that_was_found_says():
    table = people()
    stage = found(SCHEMA, table)
    assert not stage.schema_.private
    own = stage.transform(some(table))
    assert np.array_equal(own, Encode(stage.schema_).transform(some(table)))
    assert stage.feature_names == Encode(stage.schema_).feature_names
    assert stage.width(3) == own.shape[1] <= stage.widest(3)


def test_kinds_of_text_are_what_most_values_spell():
    schema = Schema(dict.fromkeys(("born", "job", "since", "code"), UnknownColumn()))
    table = {name: [str(v) for v in column] for name, column in people().items()}
    columns = found(schema, table).schema_.columns
    kinds = [type(columns[name]) for name in schema.columns]
    assert kinds == [NumberColumn, CategoryColumn, DateColumn, NumberColumn]
    day = 86400.0
    assert abs(columns["since"].low - 20 * 365.25 * day) < 400 * day
    assert columns["code"].low < 1.1 and columns["code"].high > 29


def test_bounds_are_searched_behind_public_ones_that_are_far_too_wide():
    jobs = of("category", categories=["cook"])
    wide = Schema({"born": of("number", low=-1e6, high=1e6), "job": jobs})
    table = people()
    narrow = found(wide, table, narrow=True).schema_.columns["born"]
    assert 1950 < narrow.low < narrow.high < 2000
    assert found(wide, table, narrow=False).schema_ == wide


def test_a_category_of_few_rows_is_not_seen_and_none_may_be():
    table = people()
    table["job"] = np.array(["own"] * 3 + ["common"] * (N - 3))
    assert found(SCHEMA, table).schema_.columns["job"].categories == ("common",)
    table["job"] = np.array([f"name {i}" for i in range(N)])
    stage = found(SCHEMA, table)
    assert stage.schema_.columns["job"].categories == ()
    assert stage.transform(some(table))[:, -1].all()  # all of them are unseen
    assert Schema.from_dict(stage.schema_.to_dict()) == stage.schema_


def test_words_that_are_one_category_are_counted_as_one_whatever_they_are():
    words = ["TRUE", "true", "True", "1", "01", "1.0", " a", "a ", "inf", "Infinity", "1e400"]
    words += [
        "?",
        "",
        "nan",
        "-NaN",
        "null",
        "private",
        "none",
        "\u0661",
        "é",
        "\udce9",
        "x,y",
        "a\nb",
    ]
    table = {"word": np.array(words * 200, dtype=object)}
    schema = Schema({"word": of("category")})
    stage = found(schema, table)
    categories = stage.schema_.columns["word"].categories
    assert {"true", "1", "a", "inf", "private", "none"} <= set(categories)
    assert list(categories) == sorted(categories) and len(categories) < len(words)
    assert not stage.transform(table)[:, -1].any()  # none of them is unseen
    assert Schema.from_dict(stage.schema_.to_dict()) == stage.schema_


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e308, -5e-324, 0.0])
def test_no_value_stops_a_fit(value):
    table = people(600)
    table["born"] = np.full(600, value)
    out = found(SCHEMA, table).transform(some(table))
    assert np.isfinite(out).all() and np.abs(out).max() <= 1


def test_seeds_give_the_same_schema_whatever_the_chunks(monkeypatch):
    from tacit.preprocessing import private_encode

    table = people()
    whole = found(SCHEMA, table).schema_
    monkeypatch.setattr(private_encode, "READ_ROWS", 77)
    assert found(SCHEMA, table).schema_ == whole


# In plans


def model(**settings):
    given = {"epsilon": 2.0, "delta": 1e-6, "classes": [0, 1], "trainer": DPGD(steps=10)}
    given["stages"] = [PrivateEncode(SCHEMA), Normalize(), PrivateCenter()]
    return DPLinearClassifier(**{**given, **settings})


def labelled(n=N):
    table = people(n)
    return some(table), (table["born"] > 1970).astype(int)


@pytest.mark.parametrize("neighbors", NEIGHBORS)
def test_a_certificate_counts_the_failure_and_verifies_by_both_routes(neighbors):
    size = {"public_size": N} if neighbors == "add_or_remove_one" else {}
    clf = model(neighbors=neighbors, **size).fit(*labelled())
    spent = [(event["stage"], event["kind"]) for event in clf.certificate_.to_dict()["events"]]
    assert spent[:2] == [("PrivateEncode", "gaussian"), ("PrivateEncode", "failure")]
    chance = clf.certificate_.to_dict()["events"][1]["parameters"]["probability"]
    assert 0 < chance <= 0.05 * 1e-6
    assert clf.certificate_.verify().holds
    assert clf.score(*labelled()) > 0.9
    plan = clf.certificate_.plan
    assert plan["features"] == clf.coef_.shape[1] == len(clf.get_feature_names_out())
    assert "are found in the rows, through noise" in plan["stages"][0]["note"]
    assert "may reveal what one row alone has" in clf.plan_.explain()


def test_a_certificate_without_its_failure_is_refuted():
    clf = model().fit(*labelled())
    data = clf.certificate_.to_dict()
    claimed = dataclasses.replace(clf.certificate_, delta=clf.certificate_.delta * 0.9)
    assert not claimed.verify().holds
    assert data["events"][1]["kind"] == "failure"


def test_a_model_file_holds_what_was_found(tmp_path):
    X, y = labelled()
    clf = model().fit(X, y)
    save(clf, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert np.array_equal(again.decision_function(X), clf.decision_function(X))
    assert again.stages_[0].schema_ == clf.stages_[0].schema_


def test_a_model_goes_on_with_what_was_found_and_pays_for_it_once():
    X, y = labelled()
    clf = model().fit(X, y)
    before = clf.stages_[0].schema_
    clf.partial_fit(X, y, epsilon=0.5, delta=1e-7)
    kinds = [event["kind"] for event in clf.certificate_.to_dict()["events"]]
    assert kinds.count("failure") == 1 and clf.certificate_.verify().holds
    assert clf.stages_[0].schema_ == before


def test_a_ledger_keeps_the_failure(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "people")
    ledger.create(epsilon=10.0, delta=1e-3)
    model(ledger=ledger).fit(*labelled())
    (charge,) = ledger.charges()
    assert "failure" in [event.kind for _, event in charge.spending.events]


def test_a_search_fits_it_once_and_one_that_would_try_several_is_refused():
    X, y = labelled()
    clf = DPSearch(model(), {"trainer__learning_rate": [0.5, 1.0]}).fit(X, y)
    assert clf.certificate_.verify().holds
    stages = [[PrivateEncode(SCHEMA)], [PrivateEncode(SCHEMA), Normalize()]]
    with pytest.raises(InputError, match="fitted once, before all trials"):
        DPSearch(model(), {"stages": stages}).fit(X, y)


def test_too_few_rows_are_refused_before_anything_is_spent_with_the_lines_to_add():
    X, y = labelled(300)
    with pytest.raises(InputError) as refused:
        model(epsilon=0.5).fit(X, y)
    text = str(refused.value)
    assert "Nothing was spent" in text
    assert "bounds={'born': (low, high), 'pay': (low, high)}" in text
    assert "categories={'job': [...]}" in text


def test_public_schemas_cost_nothing():
    schema = Schema({"born": of("number", low=1900, high=2000)})
    X, y = labelled()
    clf = model(stages=[PrivateEncode(schema, narrow=False)]).fit({"born": X["born"]}, y)
    assert [event["stage"] for event in clf.certificate_.to_dict()["events"]] == ["DPGD"]


def test_a_start_whose_width_nobody_knows_is_refused():
    X, y = labelled()
    with pytest.raises(InputError, match="found out first, by PrivateEncode"):
        model(init=(np.zeros((1, 9)), np.zeros(1))).fit(X, y)


def test_files_say_the_same_as_memory(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    X, y = labelled()
    pq.write_table(pa.table(X), tmp_path / "people.parquet", row_group_size=900)
    here = model(random_state=0).fit(X, y)
    there = model(random_state=0).fit(scan(tmp_path / "people.parquet"), y)
    assert there.stages_[0].schema_ == here.stages_[0].schema_
    assert np.array_equal(there.coef_, here.coef_)


# Targets


def plan(finder, loss):
    stages = (Encode(Schema({"born": of("number", low=1900, high=2000)})),)
    return Plan(Budget(2.0, 1e-6), stages, DPGD(steps=5), get_loss(loss), target=finder)


def test_labels_are_found_and_rows_of_others_count_nothing():
    X, y = labelled()
    rows = as_rows(as_table({"born": X["born"]}))
    labels = np.array(["young", "old"], dtype=object)[y]
    labels[:3] = "nobody else", None, "mine"
    calibrated = plan(PrivateClasses(), "softmax").calibrate(size=N, columns=1, classes=2)
    fit = calibrated.run(rows, labels, key=Key.from_seed(0))
    assert fit.target.classes.tolist() == ["old", "young"]
    run = calibrated.releases(Key.from_seed(0))
    _, found = calibrated.find_target(labels, rows, run)
    assert found.gone.sum() == 3 and fit.coef.shape[0] == 2
    assert fit.certificate.verify().holds
    assert list(fit.certificate.plan["target"]["classes"]) == ["old", "young"]
    assert any("labels was found through noise" in text for text in fit.certificate.assumptions)
    without = calibrated.run(rows, np.where(labels == "old", "old", "young"), key=Key.from_seed(0))
    assert not np.array_equal(without.coef, fit.coef)


@pytest.mark.parametrize("kind", [int, float, bool])
def test_labels_keep_their_type(kind):
    X, y = labelled()
    rows = as_rows(as_table({"born": X["born"]}))
    calibrated = plan(PrivateClasses(), "softmax").calibrate(size=N, columns=1, classes=2)
    classes = calibrated.run(rows, y.astype(kind), key=Key.from_seed(0)).target.classes
    assert classes.tolist() == [0, 1] and isinstance(classes.tolist()[0], kind)


ODD_LABELS = ["w", 0.5, 2**63, 10**5000, 1j, (1, 2), True]


@pytest.mark.parametrize("odd", ODD_LABELS, ids=lambda odd: type(odd).__name__)
def test_one_label_of_another_kind_says_nothing_of_the_others(odd):
    X, y = labelled()
    model = DPLinearClassifier(epsilon=8.0, classes="private", trainer=DPGD(steps=1))
    classes = model.fit(X, [odd, *y.tolist()[1:]]).classes_
    assert classes.tolist() == [0, 1] and classes.dtype == np.int64
    assert model.fit(X, [odd, *y.astype(str).tolist()[1:]]).classes_.tolist() == ["0", "1"]


@pytest.mark.parametrize("odd", [1, "w", ""])
def test_a_word_among_the_labels_of_a_file_says_nothing_of_the_others(tmp_path, odd):
    X, y = labelled()
    path = tmp_path / "t.csv"
    lines = [f"{x},{label}" for x, label in zip(X["born"][1:], y[1:], strict=True)]
    path.write_text("\n".join(["born,y", f"1970,{odd}", *lines]) + "\n")
    model = DPLinearClassifier(epsilon=8.0, classes="private", trainer=DPGD(steps=1))
    classes = model.fit(scan(path, target="y")).classes_
    assert classes.tolist() == [0, 1] and classes.dtype == np.int64


def test_a_target_that_is_no_number_is_refused_before_anything_is_spent_and_not_quoted():
    X, y = labelled()
    values = y.astype(object)
    for odd in ("secret", 10**400, (1,)):
        values[0] = odd
        with pytest.raises(InputError) as refused:
            DPLinearRegressor(epsilon=8.0).fit(X, values)
        assert refused.value.depends_on_rows and "secret" not in str(refused.value)


def test_more_labels_than_expected_have_scores_of_their_own():
    X, _ = labelled()
    rows = as_rows(as_table({"born": X["born"]}))
    labels = (X["born"] // 12).astype(int)
    calibrated = plan(PrivateClasses(), "softmax").calibrate(size=N, columns=1, classes=2)
    fit = calibrated.run(rows, labels, key=Key.from_seed(0))
    assert fit.coef.shape[0] == len(fit.target.classes) > 2
    assert fit.certificate.plan["classes"] == len(fit.target.classes)


def test_limits_of_numbers_are_found():
    X, _ = labelled()
    rows = as_rows(as_table({"born": X["born"]}))
    values = 1e6 + X["born"]
    values[:2] = np.nan, 1e308
    calibrated = plan(PrivateTargetBounds(), "squared").calibrate(size=N, columns=1)
    fit = calibrated.run(rows, values, key=Key.from_seed(0))
    low, high = fit.target.bounds
    assert 1e6 + 1950 < low < 1e6 + 1960 < 1e6 + 1985 < high < 1e6 + 2000
    _, found = calibrated.find_target(values, rows, calibrated.releases(Key.from_seed(0)))
    assert fit.certificate.verify().holds and np.abs(found.targets).max() <= 1


def test_targets_of_few_rows_are_refused_with_what_to_pass():
    with pytest.raises(InputError, match=r"classes=\[...\]"):
        plan(PrivateClasses(), "softmax").calibrate(size=100, columns=1, classes=2)
    with pytest.raises(InputError, match="target_bounds="):
        plan(PrivateTargetBounds(), "squared").calibrate(size=100, columns=1)
    with pytest.raises(InputError, match="is for regression"):
        plan(PrivateTargetBounds(), "softmax")


def test_a_table_is_asked_for():
    with pytest.raises(InputError, match="needs a table with named columns"):
        PrivateEncode(SCHEMA).fit(as_rows(np.zeros((3, 3))))
    assert isinstance(PrivateEncode(SCHEMA).example(3), Table)
