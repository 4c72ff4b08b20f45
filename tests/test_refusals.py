"""Refusals, from Tacit and from libraries beneath it: no private value is in any of them."""

from __future__ import annotations

import datetime
import decimal
import traceback
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from tests.features import nets
from typer.testing import CliRunner

from tacit import DPLinearClassifier, DPLinearRegressor, DPSearch, privatize
from tacit.cli.main import app
from tacit.data import as_table, read_table, scan
from tacit.data.rows import as_rows
from tacit.exceptions import FOR_CURATORS, InputError, TacitError, of_rows, raise_alone
from tacit.features.onnx_files import open_onnx
from tacit.mechanisms import statistics
from tacit.metrics import evaluate
from tacit.preprocessing import ClipNorm, Encode, FillGaps, Normalize, PrivateCenter, PublicFeatures
from tacit.research.median import DPGeometricMedian
from tacit.trainers import DPGD

WORD = "S3CR3T"
NUMBER = 31415.926535
WHOLE = 27182818
HUGE = WHOLE * 10**400
WHEN = datetime.datetime(1987, 6, 5, 4, 32, 10)
SECRETS = [WORD, "31415", "3.1415", "27182818", "2.7182", "1987", "S3C"]
N, D = 40, 3
X = np.random.default_rng(0).normal(size=(N, D))
Y = np.arange(N) % 2


class Odd:
    """Something that speaks whenever it is asked."""

    def __repr__(self):
        return WORD

    __str__ = __repr__

    def __float__(self):
        raise ValueError(f"no number: {WORD}")


def with_cell(value, dtype=object):
    rows = X.astype(dtype)
    rows[7, 1] = value
    return rows


def frame(value):
    columns = {f"c{i}": X[:, i].tolist() for i in range(D)}
    columns["c1"][7] = value
    return columns


def sparse_objects(value):
    matrix = sp.csr_array(X)
    matrix.data = matrix.data.astype(object)
    matrix.data[3] = value
    return matrix


ragged = X.tolist()
ragged[7] = [NUMBER, WHOLE]
deep = X.tolist()
deep[7] = [[NUMBER], [NUMBER], [NUMBER]]
masked = np.ma.masked_array(with_cell(NUMBER, float), mask=np.zeros((N, D), bool))
masked[7, 1] = np.ma.masked
structured = np.zeros(N, dtype=[("a", float), ("b", "U9")])
structured["a"], structured["b"] = NUMBER, WORD

BAD_ROWS = {
    "one dimension": np.full(N, NUMBER),
    "one row": np.array([NUMBER, WHOLE, 1.0]),
    "list": [NUMBER] * N,
    "scalar": NUMBER,
    "scalar array": np.array(NUMBER),
    "three dimensions": np.full((2, 2, 2), NUMBER),
    "none": None,
    "word": WORD,
    "bytes": WORD.encode(),
    "complex": with_cell(NUMBER + 1j, complex),
    "complex objects": with_cell(NUMBER + 1j),
    "complex list": [[NUMBER + 1j] * D] * N,
    "complex sparse": sp.csr_array(with_cell(NUMBER + 1j, complex)),
    "words": np.array([[WORD] * D] * N),
    "byte words": np.array([[WORD.encode()] * D] * N),
    "a word": with_cell(WORD),
    "a word in lists": with_cell(WORD).tolist(),
    "a dict": with_cell({WORD: NUMBER}),
    "a list": with_cell([NUMBER, WORD]),
    "something odd": with_cell(Odd()),
    "odd itself": Odd(),
    "a date": with_cell(WHEN),
    "dates": np.full((N, D), np.datetime64(WHEN)),
    "times": np.full((N, D), np.timedelta64(WHOLE, "s")),
    "a decimal word": with_cell(decimal.Decimal("sNaN")),
    "huge": with_cell(HUGE),
    "huge in lists": with_cell(HUGE).tolist(),
    "infinite": with_cell(np.inf, float) * NUMBER,
    "missing": with_cell(np.nan, float) * NUMBER,
    "masked": masked,
    "ragged": ragged,
    "deep": deep,
    "ragged arrays": np.array([np.array(row) for row in ragged], dtype=object),
    "structured": structured,
    "other columns": np.full((N, D + 2), NUMBER),
    "no rows": np.empty((0, D)),
    "sparse objects": sparse_objects(WORD),
    "sparse numbers as objects": sparse_objects(NUMBER),
    "sparse in one dimension": sp.coo_array(np.full(N, NUMBER)),
    "pandas, a word": pd.DataFrame(frame(WORD)),
    "pandas, a date": pd.DataFrame(frame(WHEN)),
    "pandas, dates": pd.DataFrame({"c0": [WHEN] * N, "c1": [WHEN] * N, "c2": [WHEN] * N}),
    "pandas, complex": pd.DataFrame(frame(NUMBER + 1j)),
    "pandas, categories": pd.DataFrame(frame(WORD)).astype("category"),
    "pandas, text": pd.DataFrame(frame(WORD)).astype("string"),
    "pandas, missing": pd.DataFrame(frame(pd.NA)).convert_dtypes(),
    "pandas, periods": pd.DataFrame({f"c{i}": [pd.Period("1987-06")] * N for i in range(D)}),
    "pandas, intervals": pd.DataFrame({f"c{i}": [pd.Interval(0, NUMBER)] * N for i in range(D)}),
    "pandas series": pd.Series(np.full(N, NUMBER), name=WORD),
    "polars, words": pl.DataFrame({**frame(0.0), "c1": [WORD] * N}),
    "polars, structs": pl.DataFrame({**frame(0.0), "c1": [{"a": NUMBER}] * N}),
    "polars, lists": pl.DataFrame({**frame(0.0), "c1": [[NUMBER]] * N}),
    "polars series": pl.Series([NUMBER] * N),
    "arrow, words": pa.table({**frame(0.0), "c1": [WORD] * N}),
    "arrow, lists": pa.table({**frame(0.0), "c1": [[NUMBER]] * N}),
    "arrow, binary": pa.table({**frame(0.0), "c1": [WORD.encode()] * N}),
    "arrow, missing": pa.table(frame(None)),
}
SOME_RIGHT = {"other columns"}  # which a first fit takes


def with_target(value, dtype=object):
    target = Y.astype(dtype)
    target[7] = value
    return target


BAD_TARGETS = {
    "none": None,
    "scalar": NUMBER,
    "word": WORD,
    "complex": with_target(NUMBER + 1j, complex),
    "complex list": [NUMBER + 1j] * N,
    "complex objects": with_target(NUMBER + 1j),
    "two columns": np.full((N, 2), NUMBER),
    "three dimensions": np.full((N, 2, 2), NUMBER),
    "too few": np.full(N - 1, WHOLE),
    "ragged": [[NUMBER], [NUMBER, 1.0]] * (N // 2),
    "a word": with_target(WORD),
    "a dict": with_target({WORD: NUMBER}),
    "something odd": with_target(Odd()),
    "a list": with_target([NUMBER, WORD]),
    "a date": with_target(WHEN),
    "missing": with_target(np.nan, float) * NUMBER,
    "infinite": with_target(np.inf, float) * NUMBER,
    "none among them": with_target(None),
    "not known": with_target(pd.NA),
    "structured": structured,
    "sparse": sp.csr_array(with_target(NUMBER, float)[:, None]),
    "pandas, a word": pd.Series(with_target(WORD)),
    "pandas, missing": pd.Series(with_target(pd.NA)),
    "pandas, a frame": pd.DataFrame({"a": [NUMBER] * N, "b": [WORD] * N}),
    "polars, lists": pl.Series([[NUMBER]] * N),
    "arrow, structs": pa.array([{"a": NUMBER}] * N),
}
FOR_CLASSES = {"fractions": X[:, 0] + NUMBER, "one label": np.full(N, WHOLE)}
FOR_NUMBERS = {
    "words": np.array([WORD] * N),
    "a word in a list": with_target(WORD).tolist(),
    "huge": with_target(HUGE),
    "dates": np.full(N, np.datetime64(WHEN)),
    "times": np.full(N, np.timedelta64(WHOLE, "s")),
}


def everything(error):
    """All that an error says, and those say that led to it, wherever it is printed."""
    said, waiting, known = [], [error], set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in known:
            continue
        known.add(id(each))
        said += [str(each), repr(each), repr(each.args), *getattr(each, "__notes__", ())]
        said.append(repr({k: v for k, v in vars(each).items() if k != "__notes__"}))
        said.append(repr(getattr(each, "object", "")))  # what could not be decoded
        waiting += [each.__cause__, each.__context__]
    said += traceback.format_exception(error)[-1:]
    return "\n".join(said)


def assert_quiet(text):
    for secret in SECRETS:
        assert secret not in text


@pytest.fixture
def refused(capfd):
    """Call something; whatever comes of it, nothing private is said. True if it was refused."""

    def call(function, *content):
        error = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                function(*content)
            except Exception as problem:
                error = problem
        if error is not None:
            assert_quiet(everything(error))
            assert isinstance(error, ValueError | TypeError)
        assert_quiet("\n".join(str(warning.message) for warning in caught))
        out, err = capfd.readouterr()
        assert_quiet(out + err)
        return error

    return call


def classifier(**more):
    return DPLinearClassifier(trainer=DPGD(steps=1), random_state=0, **more)


def regressor(**more):
    options = {"target_bounds": (-1, 1), "trainer": DPGD(steps=1), "random_state": 0}
    return DPLinearRegressor(**{**options, **more})


FITTED = {"classifier": classifier().fit(X, Y), "regressor": regressor().fit(X, Y)}
PLENTY = {"stages": [FillGaps(), ClipNorm(1.0)]}


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_no_refusal_of_rows_quotes_them(bad, refused):
    rows = BAD_ROWS[bad]
    fine = SOME_RIGHT | {"missing", "masked", "pandas, missing", "arrow, missing"}
    fine |= {"a decimal word"}  # signalling NaN: a missing value like any other
    for make in (classifier, regressor):
        assert refused(make().fit, rows, Y) or bad in SOME_RIGHT
        assert refused(make(**PLENTY).fit, rows, Y) or bad in fine
        assert refused(make().partial_fit, rows, Y) or bad in SOME_RIGHT
    for model in FITTED.values():
        assert refused(model.predict, rows)
        assert refused(model.score, rows, Y)
        refused(model.fit(X, Y).partial_fit, rows, Y)
    assert refused(FITTED["classifier"].decision_function, rows)
    assert refused(FITTED["classifier"].predict_proba, rows)


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_no_refusal_of_rows_elsewhere_quotes_them(bad, refused):
    rows = BAD_ROWS[bad]
    refused(as_rows, rows)
    refused(Normalize().transform, rows)
    refused(as_table, rows)
    refused(Encode({"columns": {"c1": {"kind": "number", "low": 0, "high": 1}}}).transform, rows)
    assert refused(DPGeometricMedian(radius=1.0, steps=2).fit, rows) or bad in SOME_RIGHT
    private = privatize(make_pipeline(LogisticRegression()), epsilon=1.0, delta=1e-5, bounds=1.0)
    assert refused(private.fit, rows, Y) or bad in SOME_RIGHT
    search = DPSearch(classifier(), {"trainer__clip": [0.1, 1.0]}, trials=1.5)
    assert refused(search.fit, rows, Y) or bad in SOME_RIGHT
    for name in ("private_mean", "private_radius", "private_scale"):
        refused(lambda name=name: getattr(statistics, name)(rows, 1.0, noise_multiplier=1.0))
    refused(lambda: statistics.private_bounds(rows, noise_multiplier=1.0))
    refused(lambda: statistics.private_quantile(rows, 0.5, 0.0, 1.0, noise_multiplier=1.0))


@pytest.mark.parametrize("bad", {**BAD_TARGETS, **FOR_CLASSES})
def test_no_refusal_of_labels_quotes_them(bad, refused):
    labels = {**BAD_TARGETS, **FOR_CLASSES}[bad]
    assert refused(classifier().fit, X, labels)
    assert refused(classifier(classes=[0, 1]).fit, X, labels)
    assert refused(classifier(classes=["no", "yes"]).fit, X, labels)
    assert refused(classifier().partial_fit, X, labels)
    assert refused(FITTED["classifier"].partial_fit, X, labels)
    private = privatize(make_pipeline(LogisticRegression()), epsilon=1.0, delta=1e-5, bounds=1.0)
    assert refused(private.fit, X, labels)
    if bad != "one label":
        assert refused(FITTED["classifier"].score, X, labels)
        assert refused(lambda: FITTED["classifier"].score(X, Y, sample_weight=labels)) or (
            bad in ("none", "fractions")
        )


@pytest.mark.parametrize("bad", {**BAD_TARGETS, **FOR_NUMBERS})
def test_no_refusal_of_targets_quotes_them(bad, refused):
    target = {**BAD_TARGETS, **FOR_NUMBERS}[bad]
    assert refused(regressor().fit, X, target)
    assert refused(FITTED["regressor"].partial_fit, X, target)
    assert refused(FITTED["regressor"].score, X, target)


@pytest.mark.parametrize(
    "model, bad",
    [
        (LogisticRegression(), [with_cell(WORD), with_cell(np.nan, float), with_cell(Odd())]),
        (LinearRegression(), [with_cell(WORD), with_cell(1e308, float)]),
        (make_pipeline(OneHotEncoder(), LogisticRegression()), [[[WORD, 0, 0]] * N]),
        (make_pipeline(OneHotEncoder(handle_unknown="warn"), LinearRegression()), [[[7] * D] * N]),
    ],
)
def test_a_test_of_a_model_that_is_not_ours_says_nothing_of_rows(model, bad, refused):
    model = model.fit(X, Y)
    how = {"epsilon": 1.0, "delta": 1e-5}
    how |= {} if hasattr(model, "classes_") else {"bounds": (-1.0, 1.0)}

    def silently(rows, targets):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            evaluate(model, rows, targets, **how)

    for rows in bad:
        error = refused(silently, rows, Y)
        assert error is None or error.depends_on_rows
    for targets in ([[1], [1, 2]] * (N // 2), Y[:-1]):
        assert refused(silently, X, targets).depends_on_rows


def test_a_label_that_is_a_fraction_is_refused_as_one_that_depends_on_rows():
    labels = np.where(np.arange(N) == 7, 0.5, Y)
    for classes in (None, [0.0, 1.0]):
        with pytest.raises(InputError, match="Unknown label type") as caught:
            classifier(classes=classes).fit(X, labels)
        assert caught.value.depends_on_rows


@pytest.mark.parametrize("count", [N // 2, N // 2 + 1])
def test_no_warning_tells_how_many_of_the_classes_there_are_among_the_labels(count):
    names = [f"c{i:02}" for i in range(N)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier(classes=names).fit(X, [names[i % count] for i in range(N)])


@pytest.mark.parametrize("labels", [np.array([WORD, "b"] * 20), [WHOLE, WHOLE + 1] * 20])
def test_labels_that_are_not_among_the_classes_are_not_named(labels, refused):
    for classes in ([0, 1], ["no", "yes"], [0.5, 1.5]):
        error = refused(classifier(classes=classes).fit, X, labels)
        assert isinstance(error, InputError) and error.depends_on_rows
    assert isinstance(refused(FITTED["classifier"].partial_fit, X, labels), InputError)
    refused(FITTED["classifier"].score, X, labels)


SCHEMA = """
target: label
classes: ["no", "yes"]
columns:
  age: {kind: number, low: 0, high: 100, missing: error}
  job: {kind: category, categories: [cook], missing: error, unseen: error}
"""
GOOD = ["31,cook,no", "47,cook,yes"] * 10
BAD_LINES = {
    "a field too many": f"31,cook,no,{WORD}",
    "a field too few": WORD,
    "text among numbers": f"{WORD},cook,no",
    "missing": ",cook,no",
    "unseen": f"31,{WORD},no",
    "another label": f"31,cook,{WORD}",
    "no label": "31,cook,",
    "an open quote": f'31,"{WORD},no',
    "text behind a quote": f'31,"{WORD}"{WORD},no',
    "not text": b"31,\xff\xfe" + WORD.encode() + b",no",
    "nothing": b"\0" + WORD.encode(),
}


def table_with(line, folder):
    lines = ["age,job,label", *GOOD[:7], line, *GOOD[7:]]
    data = b"\n".join(each if isinstance(each, bytes) else each.encode() for each in lines)
    (folder / "schema.yaml").write_text(SCHEMA)
    (folder / "table.csv").write_bytes(data)
    return folder / "table.csv"


def run(path, schema):
    """``tacit fit`` on a table."""
    budget = ["--epsilon", "1", "--delta", "1e-5", "--quiet"]
    out = ["--out", str(path.parent / "out")]
    return CliRunner().invoke(app, ["fit", str(path), "--schema", str(schema), *budget, *out])


@pytest.mark.parametrize("bad", BAD_LINES)
def test_no_refusal_of_a_table_quotes_it_or_says_where(bad, refused, tmp_path):
    path = table_with(BAD_LINES[bad], tmp_path)
    stages = [Encode(str(tmp_path / "schema.yaml")), Normalize()]

    def fit(table):
        return classifier(classes=["no", "yes"], stages=stages).fit(
            table.drop("label"), table.column("label")
        )

    def scanned():
        return classifier(classes=["no", "yes"], stages=stages).fit(scan(path, target="label"))

    for error in (refused(lambda: fit(read_table(path))), refused(scanned)):
        assert isinstance(error, InputError) and error.depends_on_rows
        assert FOR_CURATORS in error.__notes__
        assert not {"8", "9"} & set(str(error).replace(str(path), "").replace("UTF-8", ""))
    found = run(path, tmp_path / "schema.yaml")
    assert found.exit_code == 2
    assert_quiet(found.output + found.stderr)
    assert found.stderr.rstrip().endswith(f"({FOR_CURATORS})")
    assert_quiet(everything(found.exception.__cause__ or found.exception))


def test_errors_of_public_facts_are_not_marked(tmp_path, refused):
    path = table_with("31,cook,no", tmp_path)
    for error in (
        refused(classifier(stages=[PrivateCenter()]).fit, X, Y),
        refused(classifier(loss="squared").fit, X, Y),
        refused(regressor(target_bounds=(1, 0)).fit, X, Y),
        refused(read_table, tmp_path / "none.csv"),
    ):
        assert isinstance(error, TacitError) and not error.depends_on_rows
    found = run(path, tmp_path / "none.yaml")
    assert found.exit_code == 2 and FOR_CURATORS not in found.stderr


def test_an_error_that_is_raised_alone_brings_no_other():
    with pytest.raises(InputError) as caught:
        try:
            float(WORD)
        except ValueError:
            raise_alone(of_rows(InputError("a cell is no number")))
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    assert caught.value.depends_on_rows
    assert_quiet(everything(caught.value))


def test_the_check_itself_sees_what_is_said():
    with pytest.raises(ValueError, match="could not convert") as caught:
        np.array([WORD], dtype=object).astype(float)
    with pytest.raises(AssertionError):
        assert_quiet(everything(caught.value))
    try:
        try:
            float(WORD)
        except ValueError:
            raise InputError("a cell is no number") from None
    except InputError as error:
        with pytest.raises(AssertionError):
            assert_quiet(everything(error))


def test_a_network_that_fails_on_a_row_is_not_quoted(refused):
    network = open_onnx(Path("net.onnx"), nets.of_vectors(D))
    network.probe  # noqa: B018  (which asks it about rows that are public)

    def answer(row):
        raise RuntimeError(f"index {row[0]} is out of bounds; {WORD}")

    failing = replace(network, answer=answer)
    with pytest.raises(InputError, match=WORD):  # opened, it is asked about public rows
        failing.probe  # noqa: B018
    failing.__dict__["probe"] = network.probe
    stage = PublicFeatures(failing, cache=False)
    stage.fit(as_rows(X).hidden())
    error = refused(stage.apply, with_cell(NUMBER, float))
    assert isinstance(error, InputError) and error.depends_on_rows
