"""Pages that are made from other files, or that speak of the code, say what is there."""

from __future__ import annotations

import inspect
import re
import sys

import numpy as np
import pytest
from tests import pages

from tacit import DPLinearClassifier, Ledger

ROOT = pages.ROOT
AGAIN = "run python -m tests.pages"


def read(path):
    return path.read_text(encoding="utf-8")


# The index


def test_the_index_lists_every_page_once_by_its_title():
    index = read(ROOT / "docs" / "index.md").partition("\n## ")[0]
    links = re.findall(r"\[([^\]]+)\]\(([a-z-]+\.md)\)", index)
    there = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert sorted(name for _, name in links) == sorted(there)
    for label, name in links:
        assert read(ROOT / "docs" / name).startswith(f"# {label}"), name


# Decisions


def test_every_decision_has_a_number_a_date_and_a_status():
    found = pages.decisions()
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    assert all(each.file.startswith(f"{each.number:04}-") for each in found)
    dates = [each.date for each in found]
    assert dates == sorted(dates)


def test_a_decision_is_amended_or_superseded_by_a_later_one():
    files = {each.number: each.file for each in pages.decisions()}
    later = [(each.number, *by) for each in pages.decisions() for by in each.later]
    assert later
    for number, by, file in later:
        assert by > number and files[by] == file


def test_a_head_of_another_form_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "DECISIONS", tmp_path)
    for head in ("", "*Accepted.*", "*2026-11-18. Perhaps.*", "*2026-11-18. Superseded by 3.*"):
        (tmp_path / "0001-one.md").write_text(f"# 1. One\n\n{head}\n\nText.\n")
        with pytest.raises(ValueError, match=r"0001-one\.md must begin with"):
            pages.decisions()


def test_the_index_of_decisions_is_made_from_their_heads():
    assert read(pages.INDEX) == pages.index_of_decisions(), AGAIN


# Contributing


def test_code_to_contribute_by_is_that_of_the_files_that_are_tested():
    text = read(pages.CONTRIBUTING)
    included = [path for path, _ in pages.INCLUDED.findall(text)]
    examples = sorted((ROOT / "tests" / "examples").glob("*.py"))
    assert sorted(included) == [str(path.relative_to(ROOT)) for path in examples]
    assert text.count("```python") == len(included)
    assert text == pages.with_files(text), AGAIN


# Architecture


def test_the_picture_of_the_house_is_made_from_layers_and_walk():
    text = read(pages.ARCHITECTURE)
    assert text == pages.with_picture(text), AGAIN


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md", "docs/glossary.md"])
def test_every_dotted_name_of_a_page_about_the_code_exists(page):
    names = pages.NAME.findall(read(ROOT / page))
    assert names or page == "docs/glossary.md"
    for name in names:
        pages.resolve(name)


def test_a_fit_meets_the_first_name_of_every_step_in_the_order_of_the_walk(tmp_path):
    first = [names[0] for names in pages.walk(read(pages.ARCHITECTURE))]
    assert 10 <= len(first) <= 14
    steps = {code(pages.resolve(name)): name for name in first}
    assert len(steps) == len(first)
    met: list[str] = []

    def look(frame, event, _):
        if event == "call" and (name := steps.get(frame.f_code)) and name not in met:
            met.append(name)

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    ledger = Ledger(tmp_path / "ledger.db", "people")
    ledger.create(epsilon=2.0, delta=1e-4)
    model = DPLinearClassifier(1.0, 1e-5, ledger=ledger)
    sys.setprofile(look)
    try:
        model.fit(rng.normal(size=(300, 3)) + labels[:, None], labels)
    finally:
        sys.setprofile(None)
    assert met == first


def code(called):
    """Of a function, behind its decorators, or of what makes an object of a class."""
    made = called.__init__ if inspect.isclass(called) else called
    return inspect.unwrap(made).__code__
