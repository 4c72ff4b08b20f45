"""Tests reach for public seams: no private attribute of the package is read, set or patched."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.rglob("*.py"))
#: Names with an underscore that are documented by others: of named tuples, and of the system.
DOCUMENTED = {"_asdict", "_replace", "_fields", "_make", "_exit"}
BY_NAME = {"setattr", "getattr", "hasattr", "delattr"}


def is_private(name):
    return name.startswith("_") and not name.endswith("__") and name not in DOCUMENTED


def private_names(source):
    """Names with an underscore that code takes from anything but its own object, with the line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield from ((a.name, node.lineno) for a in node.names if is_private(a.name))
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            texts = [a.value for a in node.args[:2] if isinstance(a, ast.Constant)]
            for text in texts if called in BY_NAME else ():
                if isinstance(text, str) and is_private(text.rpartition(".")[2]):
                    yield text, node.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_test_takes_no_private_name(path):
    found = [f"line {line}: {name}" for name, line in private_names(path.read_text("utf-8"))]
    assert not found, f"{found}: test what the package promises, or give the seam a public name"


@pytest.mark.parametrize(
    "line",
    [
        "engine._store.values",
        "from tacit.files import _place",
        "monkeypatch.setattr(files, '_place', stop)",
        "monkeypatch.setattr('tacit.files._place', stop)",
        "getattr(stage, '_fill')",
    ],
)
def test_a_private_name_is_found_however_it_is_taken(line):
    assert list(private_names(line))


@pytest.mark.parametrize("line", ["row._asdict()", "os._exit(0)", "self._kept", "x.__dict__"])
def test_names_that_others_document_are_none(line):
    assert not list(private_names(line))
