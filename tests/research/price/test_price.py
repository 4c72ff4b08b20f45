"""Prices, printed and drawn: all four ways, and a warning at those that are wrong."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from tacit.diagnostics.picture import BOTTOM, LEFT, RIGHT, TOP
from tacit.exceptions import FileError, InputError
from tacit.research.price.price import price
from tacit.research.price.show import NAMES, draw_price, plot_price, show_price

SVG = "{http://www.w3.org/2000/svg}"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "preprocessing-cost.md"
SCALE = {"stage": "scale", "n": 10_000, "deviation": 0.3, "delta": 1e-5}


def printed(found, width=200):
    console = Console(file=io.StringIO(), width=width)
    show_price(found, console)
    return console.file.getvalue()


def row(text, name):
    """The cells of the table that stand in the row of that name."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"│ {name} "))
    return [cell.strip() for cell in line.strip("│").split("│")]


def drawn(prices):
    """The picture's labels, and its curves by the names that the legend has for them."""
    tree = ElementTree.fromstring(draw_price(prices))
    texts = list(tree.iter(f"{SVG}text"))
    names = {text.get("class").replace("t", "c"): text.text for text in texts}
    curves = {names[line.get("class").split()[1]]: line for line in tree.iter(f"{SVG}polyline")}
    return [text.text for text in texts], curves


def points(line):
    return [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]


# --- printed ---------------------------------------------------------------------------------


def test_all_four_ways_are_printed_with_their_label():
    text = printed(price(base_epsilon=1.0, **SCALE))
    assert text.startswith("scale (deviation 0.3): 10,000 rows, δ = 10⁻⁵\n")
    assert "Training alone: ε = 1. The stage takes 12.61 times the noise." in text
    assert row(text, "Tacit")[1:3] == ["19.5", "yes"]
    assert row(text, "Theorem 2")[1:3] == ["115", "yes"]
    assert row(text, "Table 2")[1:3] == ["32.8", "NO"]  # rounded up
    assert "without a square" in row(text, "Table 2")[3]
    assert row(text, "Group privacy")[1:3] == ["3.61 × 10⁶", "yes"]


def test_the_inverse_has_a_column_of_its_own():
    text = printed(price(epsilon=1.0, **SCALE))
    assert "Base ε for 1" in text
    assert row(text, "Tacit")[1:4] == ["1", "0.0628", "yes"]
    assert row(text, "Theorem 2")[2] == "0.0123"


def test_what_does_not_exist_is_a_dash():
    text = printed(price("soft-pca", n=1000, strength=0.1, base_epsilon=1.0, delta=1e-5))
    assert row(text, "Table 2")[1:] == ["–", "–", "Table 2 has no entry for this stage."]
    text = printed(price("pca", n=1000, gap=0.1, epsilon=1e-7, delta=1e-5))
    assert "No ε for training alone leads to 10⁻⁷." in text
    assert row(text, "Tacit")[1:3] == ["–", "–"]


def test_other_clipping_and_constants_are_mentioned():
    found = price(base_epsilon=1.0, clip=0.5, constant=2.0, **SCALE)
    assert "δ = 10⁻⁵, C = 0.5, μ = 2" in printed(found)


# --- drawn -----------------------------------------------------------------------------------


def test_curves_are_labelled_and_wrong_ones_dashed():
    labels, curves = drawn([price(base_epsilon=e, **SCALE) for e in (0.1, 1.0, 10.0)])
    ways = ["Tacit", "Theorem 2", "Table 2 (unsound)", "Group privacy"]
    assert list(curves) == ["Training alone", *ways]
    dashed = [name for name, line in curves.items() if "dashed" in line.get("class").split()]
    assert dashed == ["Table 2 (unsound)"]
    assert "ε of training alone (10,000 rows, δ = 10⁻⁵)" in labels
    assert all(len(points(line)) == 3 for line in curves.values())


def test_curves_rise_and_stay_in_their_frame():
    _, curves = drawn([price(base_epsilon=e, **SCALE) for e in (10.0, 0.1, 1.0)])  # any order
    for line in curves.values():
        xs, ys = zip(*points(line), strict=True)
        assert list(xs) == sorted(xs)
        assert list(ys) == sorted(ys, reverse=True)  # down the page is up
        assert min(xs) >= LEFT and max(xs) <= RIGHT and min(ys) >= TOP and max(ys) <= BOTTOM
    tacit, group = (points(curves[name])[0][1] for name in ("Tacit", "Group privacy"))
    assert group < tacit < points(curves["Training alone"])[0][1]


def test_prices_may_be_drawn_against_the_number_of_rows():
    setting = {"gap": 0.1, "base_epsilon": 1.0, "delta": 1e-5}
    labels, curves = drawn([price("pca", n=n, **setting) for n in (50, 1000, 10**6)])
    assert "rows (training alone ε = 1, δ = 10⁻⁵)" in labels
    assert len(points(curves["Table 2"])) == 2  # it begins at 101 rows
    assert len(points(curves["Tacit"])) == 3


def test_labels_do_not_touch():
    setting = {"n": 10_000, "missing": 5, "delta": 1e-5}
    tree = ElementTree.fromstring(
        draw_price([price("mean-imputation", base_epsilon=e, **setting) for e in (0.1, 1.0)])
    )
    names = (*NAMES.values(), "Training alone")
    places = sorted(
        (float(text.get("y")), float(text.get("x")), len(text.text))
        for text in tree.iter(f"{SVG}text")
        if text.text.removesuffix(" (unsound)") in names
    )
    assert len(places) == 5
    for (y, x, letters), (below, beside, _) in pairwise(places):
        assert below - y >= 18 or beside - x >= 7.2 * letters
    assert places[-1][0] < float(tree.get("height"))
    assert all(x + 7.2 * letters < float(tree.get("width")) for _, x, letters in places)


def test_the_picture_needs_nothing_but_itself():
    text = draw_price([price(base_epsilon=e, **SCALE) for e in (0.1, 0.2)])
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in text and "href" not in text and "url(" not in text
    tree = ElementTree.fromstring(text)
    assert tree.find(f"{SVG}title").text == "What scale (deviation 0.3) costs: overall ε"
    told = tree.find(f"{SVG}desc").text
    assert "Table 2 (unsound)" in told and "goes from 0.1 to 0.2" in told


def test_a_picture_is_of_one_stage_at_several_points():
    one = price(base_epsilon=1.0, **SCALE)
    other = price(base_epsilon=2.0, **SCALE | {"deviation": 0.2})
    with pytest.raises(InputError, match="two or more base_epsilon"):
        draw_price([one, one])
    with pytest.raises(InputError, match="two or more base_epsilon"):
        draw_price([])
    with pytest.raises(InputError, match="one stage with one setting"):
        draw_price([one, other])


def test_pictures_are_written_to_svg_files_only(tmp_path):
    prices = [price(base_epsilon=e, **SCALE) for e in (0.1, 1.0)]
    target = plot_price(prices, tmp_path / "price.svg")
    assert target.read_text(encoding="utf-8") == draw_price(prices)
    with pytest.raises(FileError, match=r"must end in \.svg"):
        plot_price(prices, tmp_path / "price.png")
    with pytest.raises(FileError, match="cannot write"):
        plot_price(prices, tmp_path / "nowhere" / "price.svg")


# --- the page about it -----------------------------------------------------------------------


def test_the_page_shows_what_its_program_prints():
    if not PAGE.exists():
        pytest.skip("the documentation is not here")
    text = PAGE.read_text(encoding="utf-8")
    scope = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), scope)
    assert scope["lines"]
    assert "\n".join(scope["lines"]) in text
    assert f"{scope['found'].overall['tacit']:.3g}" == "7.67"
    assert round(scope["found"].inflation, 1) == 6.0
    assert f"{scope['left'].base['tacit']:.3f}" == "0.142"
