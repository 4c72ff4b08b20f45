"""Every public name says what it does, what it takes and what it gives, as numpydoc has it.

One sentence; then parameters and returns, with shapes of arrays; then the rest; then an example,
for whatever a user calls or makes by name. A method that overrides another inherits what that says.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import tacit

INNER = {"tacit.cli"}  # the command line, which has pages of its own
ORDER = ["Parameters", "Attributes", "Returns", "Yields", "Raises", "Notes", "References"]
ORDER += ["Examples"]
HEAD = re.compile(r"^([A-Z][a-z]+)\n-{3,}\n", re.MULTILINE)
ENTRY = re.compile(r"^(?! )(.+?)(?: : (.*))?$", re.MULTILINE)
SENTENCES = re.compile(r"(?<!et al)(?<!\be\.g)(?<!\bi\.e)[.!?] +[A-Z]")


def packages():
    """Modules whose ``__all__`` is public: packages, and modules right under ``tacit``."""
    root = Path(tacit.__file__).parent
    files = [*root.rglob("__init__.py"), *root.glob("*.py")]
    names = {".".join(f.relative_to(root.parent).with_suffix("").parts) for f in files}
    names = {name.removesuffix(".__init__") for name in names} - INNER
    inner = {"tacit.files", "tacit.params", "tacit.progress", "tacit.__main__"}
    return sorted(name for name in names - inner if not name.startswith("tacit.cli"))


def public_names():
    """Every exported class and function once, and the functions of exported modules."""
    found = {}
    for package in packages():
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            inside = getattr(thing, "__all__", ()) if isinstance(thing, ModuleType) else ()
            for inner in [getattr(thing, name) for name in inside] or [thing]:
                if inspect.isclass(inner) or inspect.isfunction(inner):
                    found[f"{inner.__module__}.{inner.__qualname__}"] = inner
    return dict(sorted(found.items()))


NAMES = public_names()


def owners():
    """Classes of Tacit that public ones are or inherit from, each once."""
    bases = {base for thing in NAMES.values() if inspect.isclass(thing) for base in thing.__mro__}
    ours = [base for base in bases if base.__module__.startswith("tacit")]
    return {f"{cls.__module__}.{cls.__qualname__}": cls for cls in ours}


def methods(cls):
    """Public methods and properties that a class itself defines, as functions."""
    for name, raw in vars(cls).items():
        if name.startswith("_") or name in vars(cls).get("__annotations__", {}):
            continue
        if isinstance(raw, property):
            yield name, raw.fget, "property"
        elif inspect.isfunction(inner := getattr(raw, "__func__", getattr(raw, "fn", raw))):
            yield name, inner, "method"


OWNERS = owners()


def sections(text):
    """What a docstring says before its first heading, and under each of them."""
    parts = HEAD.split(text)
    return parts[0], dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(body):
    """Name, type and description of what a section lists."""
    found = list(ENTRY.finditer(re.sub(r"\\\n", "", body)))
    for match, after in zip(found, [*found[1:], None], strict=False):
        described = match.string[match.end() : after.start() if after else None]
        for name in match[1].split(","):
            yield name.strip().strip("*`"), match[2] or "", described


def arguments(thing):
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:
        return []
    if (
        not dataclasses.is_dataclass(thing)
        and inspect.isclass(thing)
        and "__init__"
        not in {
            name
            for base in thing.__mro__
            if base.__module__.startswith("tacit")
            for name in vars(base)
        }
    ):
        return list(getattr(thing, "_fields", ()))
    named = [p for p in parameters if p.name not in ("self", "cls")]
    return [p.name for p in named if not p.name.startswith("_")]


def returns(thing):
    given = getattr(thing, "__annotations__", {}).get("return")
    return given not in (None, "None", "NoReturn", "Never")


def problems(thing, text, *, kind):
    """What a docstring lacks, in words."""
    if not text:
        return ["has no docstring"]
    found = []
    before, parts = sections(text)
    summary = before.split("\n\n")[0].strip()
    if not summary.endswith((".", ":", "?", "!")) or SENTENCES.search(summary.replace("\n", " ")):
        found.append(f"does not begin with one sentence: {summary[:60]!r}")
    if [name for name in ORDER if name in parts] != [name for name in parts if name in ORDER]:
        found.append(f"has its sections in another order: {', '.join(parts)}")
    if re.search(r"\b[Aa]s (for|of|in|by) (the other|`\w+`)[.;,]?\s*$", text, re.MULTILINE):
        found.append("sends its readers to another parameter list")
    if kind == "property":
        return found
    listed = [*entries(parts.get("Parameters", "")), *entries(parts.get("Attributes", ""))]
    missing = [name for name in arguments(thing) if name not in {name for name, _, _ in listed}]
    if missing:
        found.append(f"does not list {', '.join(missing)}")
    if kind == "method" and returns(thing) and not {"Returns", "Yields"} & parts.keys():
        found.append("does not say what it returns")
    listed += entries(parts.get("Returns", ""))
    for name, type_, described in listed:
        if re.search(r"\b(nd)?array\b", type_) and not re.search(r"shape|\(", type_ + described):
            found.append(f"does not say which shape {name} has")
    return found


def needs_example(thing):
    """Whether people make or call it by name; others get it from a function."""
    if inspect.isfunction(thing):
        return True
    if issubclass(thing, Exception | enum.Enum):
        return False
    return "Parameters" in sections(inspect.getdoc(thing) or "")[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_docstring_that_is_complete(name):
    thing = NAMES[name]
    text = inspect.getdoc(thing) or ""
    kind = "class" if inspect.isclass(thing) else "method"
    found = problems(thing, text, kind=kind)
    if needs_example(thing) and "Examples" not in sections(text)[1]:
        found.append("has no example")
    assert not found, f"{name}: {'; '.join(found)}"


@pytest.mark.parametrize("name", sorted(OWNERS))
def test_public_methods_have_docstrings_that_are_complete(name):
    found = []
    for method, inner, kind in methods(OWNERS[name]):
        said = [m[1] for base in OWNERS[name].__mro__ for m in methods(base) if m[0] == method]
        texts = [text for way in said if (text := inspect.getdoc(way))] or [""]
        lacks = [problems(inner, text, kind=kind) for text in texts]
        found += [f"{method} {problem}" for problem in min(lacks, key=len)]
    assert not found, f"{name}: " + "; ".join(found)
