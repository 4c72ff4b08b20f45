"""Parts of pages that are made from other files: ``python -m tests.pages`` writes them.

`tests/test_pages.py` compares them. A file is included by a comment with its path in front of a
code block; the index of decisions is made from their heads; the picture of the house from the
layers of `tests/test_layers.py` and from the walk below it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.test_layers import LAYERS

__all__ = [
    "ARCHITECTURE",
    "CONTRIBUTING",
    "INDEX",
    "Decision",
    "decisions",
    "index_of_decisions",
    "resolve",
    "walk",
    "with_files",
    "with_picture",
]

ROOT = Path(__file__).resolve().parents[1]
DECISIONS = ROOT / "docs" / "decisions"
INDEX = DECISIONS / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"

INCLUDED = re.compile(r"^<!-- (\S+\.py) -->\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"(?<=^<!-- picture -->\n\n```\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^(\d+)\. (.*)$", re.MULTILINE)
NAME = re.compile(r"`(tacit\.[\w.]+)`")
LATER = r"\[(\d+)\]\((\d{4}-[\w-]+\.md)\)"
HEAD = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n"
    r"\*(?P<date>\d{4}-\d\d-\d\d)\. (?P<status>Accepted|Accepted, in part"
    rf"|(?:Superseded by|Accepted; amended by) {LATER}(?:(?:, | and ){LATER})*)\.\*\n\n"
)


@dataclass(frozen=True)
class Decision:
    """The head of a decision record.

    Attributes
    ----------
    number : int
        As in its title and in the name of its file.
    title, date, status : str
        As they stand there; the status may link to later records.
    file : str
        Name of the file.
    """

    number: int
    title: str
    date: str
    status: str
    file: str

    @property
    def later(self) -> list[tuple[int, str]]:
        """Numbers and files of the records that amend or supersede it."""
        return [(int(number), file) for number, file in re.findall(LATER, self.status)]


def decisions() -> list[Decision]:
    """All records, in order; one whose head has another form is an error."""
    found = []
    for path in sorted(DECISIONS.glob("[0-9]*.md")):
        head = HEAD.match(path.read_text(encoding="utf-8"))
        if head is None:
            raise ValueError(f"{path.name} must begin with '# N. Title' and '*date. Status.*'")
        number, title, date, status = (head[k] for k in ("number", "title", "date", "status"))
        found.append(Decision(int(number), title, date, status, path.name))
    return found


def index_of_decisions() -> str:
    """The page that lists them."""
    lines = [
        "# Decisions",
        "",
        "Choices that a newcomer would question: why, and what else was tried. A record is not",
        "rewritten when a later one changes it; its status says which.",
        "",
        "| | decision | date | status |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {each.number} | [{each.title}]({each.file}) | {each.date} | {each.status} |"
        for each in decisions()
    ]
    return "\n".join([*lines, ""])


def with_files(text: str) -> str:
    """A page with the files that it includes as they are now."""

    def included(match: re.Match[str]) -> str:
        source = (ROOT / match[1]).read_text(encoding="utf-8")
        return f"<!-- {match[1]} -->\n\n```python\n{source}```"

    return INCLUDED.sub(included, text)


def resolve(name: str) -> Any:
    """What a dotted name stands for; an error if it is nothing."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def walk(text: str) -> list[list[str]]:
    """The names in each step of the walk through one fit."""
    (told,) = re.findall(r"^## One fit\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    steps = STEP.findall(told)
    if [int(number) for number, _ in steps] != list(range(1, len(steps) + 1)):
        raise ValueError("the steps of the walk are numbered from 1")
    return [NAME.findall(step) for _, step in steps]


def with_picture(text: str) -> str:
    """The page of the architecture with its picture as the layers are now."""
    steps: dict[str, list[str]] = {}
    for i, names in enumerate(walk(text), 1):
        for room in {resolve(name).__module__.split(".")[1] for name in names}:
            steps.setdefault(room, []).append(str(i))
    drawn = [f"   {'rooms':<50} steps of a fit"]
    for layer in reversed(LAYERS):
        here = [f"{room} {' '.join(steps[room])}" for room in sorted(layer) if room in steps]
        drawn.append(f"│  {', '.join(sorted(layer)):<50} {'; '.join(here)}".rstrip())
    drawn.append("▼  imports")
    return PICTURE.sub("\n".join([*drawn, ""]), text)


if __name__ == "__main__":
    INDEX.write_text(index_of_decisions(), encoding="utf-8")
    CONTRIBUTING.write_text(with_files(CONTRIBUTING.read_text("utf-8")), encoding="utf-8")
    ARCHITECTURE.write_text(with_picture(ARCHITECTURE.read_text("utf-8")), encoding="utf-8")
