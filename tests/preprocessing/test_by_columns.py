"""Columns of a table, each group mapped in its own way: bounds, any cell, one row at a time."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from sklearn.preprocessing import SplineTransformer

from tacit.data.tables import Table, as_table
from tacit.exceptions import InputError
from tacit.preprocessing import ByColumns
from tacit.preprocessing.by_columns import Branch
from tacit.preprocessing.column_maps import (
    FUNCTIONS,
    Bins,
    Codes,
    Fill,
    Levels,
    Numbers,
    Products,
    RowFunction,
    Splines,
    Ufunc,
    from_dict,
)

TWO = Numbers(("a", "b"), (-1.0, 0.0), (1.0, 9.0))
JOBS = (("cook", "nurse"), ("x",))
MAPS = {
    "numbers": Branch(TWO),
    "gaps": Branch(TWO, gaps=True),
    "filled": Branch(TWO, (Fill(20.0, mark=True),)),
    "logarithm": Branch(Numbers(("b",), (0.0,), (9.0,)), (Ufunc("log1p"),)),
    "square": Branch(TWO, (Ufunc("square"),)),
    "sine": Branch(TWO, (Ufunc("sin"),)),
    "bins": Branch(TWO, (Bins(4),)),
    "places of bins": Branch(TWO, (Bins(4, weights=False),)),
    "splines": Branch(TWO, (Splines(((-1.0, 0.0, 0.5, 1.0), (0.0, 3.0, 9.0)), 3),)),
    "splines, fewer": Branch(TWO, (Splines(((-0.5, 0.5), (0.0, 3.0, 9.0)), 2, bias=False),)),
    "products": Branch(TWO, (Products(3),)),
    "different products": Branch(TWO, (Products(2, different=True),)),
    "levels": Branch(Levels(("job", "kind"), JOBS, (2, None), (None, 0))),
    "levels, missing as one": Branch(Levels(("job", "kind"), JOBS, (1, 1), (0, None))),
    "codes": Branch(Codes(("job", "kind"), JOBS, missing=-2.0)),
    "codes, gaps": Branch(Codes(("job", "kind"), JOBS, unseen=7.0), gaps=True),
    "codes, in bins": Branch(Codes(("job", "kind"), JOBS), (Fill(1.0), Bins(2))),
    "a function": Branch(TWO, (RowFunction(lambda rows: rows * 3, -2.0, 2.0),)),
}
CELLS = [0.0, -0.0, 1.0, -1.0, 9.0, 0.3, 1e308, -1e308, 5e-324, np.inf, -np.inf, np.nan, None]
CELLS += ["", "?", "1e3", "cook", " nurse ", "nan", "7", "x", "true", "é", "1_0"]


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda: [CELLS[i] for i in rng.integers(len(CELLS), size=n)]  # noqa: E731
    return as_table({name: draw() for name in ("a", "b", "job", "kind", "unused")})


@pytest.mark.parametrize("name", MAPS)
def test_any_cell_gives_a_row_within_the_bound(name):
    stage = ByColumns([MAPS[name]])
    rows = stage.transform(table())
    assert rows.shape == (200, stage.width()) == (200, len(stage.feature_names))
    assert stage.makes_gaps == MAPS[name].gaps == np.isnan(rows).any()
    rows = np.where(np.isnan(rows), 0.0, rows)
    assert np.isfinite(rows).all()
    lengths = np.linalg.norm(rows, axis=1)
    assert lengths.max() <= stage.bound()
    assert lengths.max() > 0.5 * stage.bound() / math.sqrt(2)  # and it is not idle


@pytest.mark.parametrize("name", MAPS)
def test_a_row_alone_is_the_row_in_a_table(name):
    stage, cells = ByColumns([MAPS[name]]), table()
    whole = stage.apply(cells)
    alone = np.concatenate([stage.apply(cells.slice(i, i + 1)) for i in range(60)])
    assert alone.tobytes() == whole[:60].tobytes()


def test_the_bound_counts_every_branch_and_a_column_twice_if_it_is_in_two():
    branches = list(MAPS.values())
    stage = ByColumns(branches)
    assert stage.bound() ** 2 == pytest.approx(sum(branch.square for branch in branches))
    rows = np.nan_to_num(stage.transform(table(3000)))
    longest = np.linalg.norm(rows, axis=1).max()
    assert longest <= stage.bound()
    fewer = ByColumns(branches[: len(branches) // 2]).bound()
    assert longest > fewer  # a bound that forgets branches is broken by these rows
    twice = ByColumns([Branch(TWO), Branch(TWO)])
    assert twice.bound() == pytest.approx(2.0)
    assert np.linalg.norm(twice.transform({"a": [1], "b": [9]})) == pytest.approx(2.0)


@pytest.mark.parametrize("name", [name for name in MAPS if name != "a function"])
def test_a_file_holds_it(name):
    stage = ByColumns([MAPS[name]])
    told = json.loads(json.dumps(stage.parameters()))
    again = ByColumns.restore(told, stage.arrays())
    assert again.apply(table()).tobytes() == stage.apply(table()).tobytes()


def test_no_file_holds_a_function_and_the_certificate_says_what_is_assumed():
    stage = ByColumns([MAPS["a function"]])
    assert "look at one row at a time" in stage.assumption()
    assert ByColumns([MAPS["bins"]]).assumption().endswith("do not depend on the rows")
    with pytest.raises(InputError, match="a function that no file holds"):
        stage.arrays()
    with pytest.raises(InputError, match="is no map of columns that a file holds"):
        from_dict({"map": "function", "name": "f", "low": 0, "high": 1})


def test_splines_are_those_of_scikit_learn():
    values = np.linspace(-1, 1, 41)[:, None]
    for knots in ([-1.0, 0.2, 1.0], [-1.0, -0.5, 0.0, 0.9, 1.0]):
        for degree in (1, 2, 3):
            theirs = SplineTransformer(knots=np.array(knots)[:, None], degree=degree)
            branch = Branch(Numbers(("a",), (-1.0,), (1.0,)), (Splines((tuple(knots),), degree),))
            ours = branch.apply(Table.from_columns({"a": values[:, 0]}))
            assert ours == pytest.approx(theirs.fit_transform(values), abs=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_intervals_of_functions_hold_their_values(name):
    for low, high in ((0.5, 3.0), (-3.0, 0.5), (-2.0, -0.5), (0.0, 9.0)):
        try:
            branch = Branch(Numbers(("a",), (low,), (high,)), (Ufunc(name),))
        except InputError as error:
            assert "has no bounds where it lies between" in str(error)
            continue
        found = getattr(np, name)(np.linspace(low, high, 501))
        assert branch.end.low[0] <= found.min() and found.max() <= branch.end.high[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Numbers(("a",), (1.0,), (1.0,)), "the low below the high"),
        (lambda: Branch(TWO, (Ufunc("log"),)), "has no bounds where it lies between"),
        (lambda: Ufunc("median"), "no function 'median'"),
        (lambda: Branch(TWO, (Bins(1),)), "two bins"),
        (lambda: Branch(TWO, (Bins(1 << 20),)), "65536 are taken at most"),
        (lambda: Branch(TWO, (Products(26),)), "a degree from 1 to 25"),
        (lambda: Branch(TWO, (Bins(3), Products(2))), "takes numbers"),
        (lambda: Branch(TWO, (Splines(((0.0, 1.0),), 3),)), "knots of 1 columns, not 2"),
        (lambda: Branch(TWO, (Splines(((0.0, 1.0), (1.0, 1.0)), 3),)), "that increase"),
        (lambda: ByColumns([]), "at least one"),
        (lambda: ByColumns([MAPS["bins"]]).transform({"a": [1.0]}), "lacks columns: 'b'"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
