"""Every public name says what it does, what it takes and what it gives, as numpydoc has it.

One sentence; then parameters and returns, with shapes of arrays; then the rest; then an example,
for whatever people call or make by name. A method that overrides another may leave the rest to it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import tacit

SOURCE = Path(tacit.__file__).parent
#: Modules that people do not import from: `tests.test_exports` has those that they do.
INNER = re.compile(r"tacit\.(cli|files|params|progress|registry|research\.commands|__main__)\b")
ORDER = ["Parameters", "Attributes", "Returns", "Yields", "Raises", "Notes", "References"]
ORDER += ["Examples"]
HEAD = re.compile(r"^([A-Z][a-z]+)\n-{3,}\n", re.MULTILINE)
ENTRY = re.compile(r"^(?=\S)", re.MULTILINE)
TWO_SENTENCES = re.compile(r"(?<!et al)[.!?]\s+[A-Z]")
ELSEWHERE = re.compile(r"^\s+As (?:for|in|of) (?:the |an? |`)", re.MULTILINE)


def exported():
    """Every exported class and function once, and those of modules that are exported."""
    files = [*SOURCE.rglob("__init__.py"), *SOURCE.glob("*.py")]
    names = {".".join(file.relative_to(SOURCE.parent).with_suffix("").parts) for file in files}
    found = {}
    for name in {name.removesuffix(".__init__") for name in names if not INNER.match(name)}:
        module = importlib.import_module(name)
        things = [getattr(module, name) for name in getattr(module, "__all__", ())]
        for inner in [thing for thing in things if isinstance(thing, ModuleType)]:
            public = [thing for name, thing in vars(inner).items() if not name.startswith("_")]
            things += [t for t in public if getattr(t, "__module__", "") == inner.__name__]
        for thing in things:
            if inspect.isclass(thing) or inspect.isfunction(thing):
                found[f"{thing.__module__}.{thing.__qualname__}"] = thing
    return found


NAMES = exported()
#: Classes that those are or inherit from.
CLASSES = {
    f"{base.__module__}.{base.__qualname__}": base
    for thing in NAMES.values()
    if inspect.isclass(thing)
    for base in thing.__mro__
    if base.__module__.startswith("tacit")
}


def methods(cls):
    """Name, function and whether it is a property, of what a class itself defines."""
    for name, raw in vars(cls).items():
        if name.startswith("_") or name in vars(cls).get("__annotations__", {}):
            continue
        if isinstance(raw, property):
            yield name, raw.fget, True
        elif inspect.isfunction(inner := getattr(raw, "__func__", getattr(raw, "fn", raw))):
            yield name, inner, False


def sections(text):
    """What a docstring says before its first heading, as "", and under each of them."""
    before, *rest = HEAD.split(text)
    return {"": before, **dict(zip(rest[::2], rest[1::2], strict=True))}


def entries(body):
    """Name, type and description of all that a section lists."""
    for entry in filter(str.strip, ENTRY.split(body)):
        head, _, described = entry.partition("\n")
        names, _, kind = head.partition(" : ")
        for name in names.split(","):
            yield name.strip().strip("*`"), kind or names, described


def arguments(thing):
    """Names of what it is called with, if Tacit wrote that."""
    bases = thing.__mro__ if inspect.isclass(thing) else ()
    makers = {"__init__", "__new__"}
    if inspect.isclass(thing) and not any(
        makers & vars(base).keys() for base in bases if base.__module__.startswith("tacit")
    ):
        return []
    named = inspect.signature(thing).parameters
    return [name for name in named if name not in ("self", "cls") and name[0] != "_"]


def problems(thing, text, *, property=False):
    """What a docstring lacks, in words."""
    if not text:
        return ["has no docstring"]
    parts, found = sections(text), []
    summary = parts[""].split("\n\n")[0].strip()
    if not summary.endswith((".", "?", ":")) or TWO_SENTENCES.search(summary):
        found.append(f"does not begin with one sentence: {summary[:60]!r}")
    headed = [name for name in parts if name]
    if headed != [name for name in ORDER if name in parts]:
        found.append(f"has other sections, or in another order: {', '.join(headed)}")
    if property:
        return found
    taken = "\n".join(parts.get(name, "") for name in ("Parameters", "Attributes"))
    if ELSEWHERE.search(taken):
        found.append("sends its readers to another list of parameters")
    listed = list(entries(taken))
    missing = [name for name in arguments(thing) if name not in {name for name, _, _ in listed}]
    if missing:
        found.append(f"does not list {', '.join(missing)}")
    gives = inspect.isfunction(thing) and thing.__annotations__.get("return") not in (None, "None")
    if gives and not {"Returns", "Yields"} & parts.keys():
        found.append("does not say what it returns")
    for name, kind, described in [*listed, *entries(parts.get("Returns", ""))]:
        if re.search(r"\b(nd)?array\b", kind) and not re.search(r"shape|\(", kind + described):
            found.append(f"does not say which shape {name} has")
    return found


def needs_example(thing):
    """Whether people make or call it by name, rather than get it from something else."""
    if inspect.isfunction(thing):
        return True
    return not issubclass(thing, Exception) and "Parameters" in sections(
        inspect.getdoc(thing) or ""
    )


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_has_a_docstring_that_is_complete(name):
    text = inspect.getdoc(NAMES[name]) or ""
    found = problems(NAMES[name], text)
    if needs_example(NAMES[name]) and "Examples" not in sections(text):
        found.append("has no example")
    assert not found, f"{name}: {'; '.join(found)}"


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_public_methods_have_docstrings_that_are_complete(name):
    found = []
    for method, inner, property in methods(CLASSES[name]):
        ways = [own for base in CLASSES[name].__mro__ for own in methods(base) if own[0] == method]
        texts = [text for _, way, _ in ways if (text := inspect.getdoc(way))] or [""]
        lacks = [problems(inner, text, property=property) for text in texts]
        found += [f"{method} {problem}" for problem in min(lacks, key=len)]
    assert not found, f"{name}: {'; '.join(found)}"


GOOD = """Sums of rows.

Parameters
----------
rows : ndarray of shape (n, d)
    Rows.

Returns
-------
ndarray of shape (d,)
    Their sum.
"""


@pytest.mark.parametrize(
    "old, new, says",
    [
        (GOOD, "", "has no docstring"),
        ("Sums of rows.", "Sums of rows", "one sentence"),
        ("Sums of rows.", "Sums of rows. They are added.", "one sentence"),
        ("rows :", "others :", "does not list rows"),
        ("    Rows.", "    As for `mean`.", "another list"),
        (" of shape (n, d)", "", "shape rows has"),
        (" of shape (d,)", "", "shape ndarray has"),
        ("Returns\n-------\n", "", "what it returns"),
        ("Returns\n-------\n", "Notes\n-----\nNone.\n\nReturns\n-------\n", "another order"),
    ],
)
def test_what_a_docstring_lacks_is_found(old, new, says):
    def sums(rows) -> tuple: ...

    assert not problems(sums, GOOD)
    assert any(says in problem for problem in problems(sums, GOOD.replace(old, new)))
