"""Pages that are made from other files, or that speak of the code, say what is there."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import sys

import numpy as np
import pytest
import typer
from tests import pages
from tests.test_docs import FENCE, LINK, PAGES, SHOWN, SPAN, named

from tacit import DPLinearClassifier, Ledger
from tacit.cli.main import app

ROOT = pages.ROOT
AGAIN = "run python -m tests.pages"


def read(path):
    return path.read_text(encoding="utf-8")


# Blocks that are not run


def blocks(page, tag):
    return [match[2] for match in FENCE.finditer(read(page)) if match[1] == tag]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_block_is_run_or_parsed_or_made_or_compared(page):
    """Python is run if it is tagged so and parsed as "py"; the rest is commands, or output."""
    assert {match[1] for match in FENCE.finditer(read(page))} <= {"", "python", "py", "yaml"}
    for block in blocks(page, "py"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("tacit"):
                for alias in node.names:
                    pages.resolve(f"{node.module}.{alias.name}")
    known = [first for first, _ in SHOWN.get(named(page), [])]
    made = pages.PICTURE.findall(read(page))
    for block in [*blocks(page, ""), *blocks(page, "yaml")]:
        if not block.startswith(tuple(known)) and block not in made:
            assert commands(block), block


def commands(block):
    """The lines of a block of commands, without remarks; none if it is something else."""
    lines = block.replace("\\\n", " ").splitlines()
    if not all(re.match(r"(tacit|pip|make) ", line) for line in lines):
        return []
    return [re.split(r"\s+# |\s{3,}", line)[0] for line in lines]


def shown_commands():
    """All commands of tacit that pages show, in blocks and between words."""
    for page in PAGES:
        text = read(page)
        lines = [line for block in blocks(page, "") for line in commands(block)]
        lines += [span for span in SPAN.findall(FENCE.sub("", text)) if span.startswith("tacit ")]
        yield from ((named(page), line) for line in lines if line.startswith("tacit "))


@pytest.mark.parametrize(("page", "line"), sorted(set(shown_commands())))
def test_a_command_that_a_page_shows_is_there_with_its_options(page, line):
    command, words = typer.main.get_command(app), shlex.split(line)[1:]
    if words[0].endswith(","):  # a list of commands
        assert {word.rstrip(",") for word in words} <= command.commands.keys()
        return
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert not hasattr(command, "commands") or not words or words[0].startswith(("-", "…"))
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    asked = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert asked <= known | {"--help"}


# Words

#: What the field calls otherwise: integers, noiseless stages, authors and year.
DIALECT = re.compile(
    r"whole number|plain(?:\*\*|\*)? stage|[Pp]aper 00\d|\b00[0-4], (?:[A-Z]|section)"
)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if "docs" in p.parts[-2:-1] or p.parent == ROOT], ids=named
)
def test_a_page_speaks_the_words_of_the_field(page):
    assert not DIALECT.findall(read(page))


# Links


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_to_a_heading_find_it(page):
    text = SPAN.sub("", FENCE.sub("", read(page)))
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        if anchor and "://" not in link:
            assert anchor in anchors(page.parent / path if path else page), link


def anchors(page):
    """Headings as GitHub makes them into anchors, and anchors that are set by hand."""
    text = read(page)
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    plain = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return {*plain, *re.findall(r'<a id="([^"]+)"', text)}


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
