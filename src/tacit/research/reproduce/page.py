"""All records as one page: paper and ours side by side, with every verdict's reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tacit.diagnostics.picture import STYLE, draw_curves
from tacit.report.show import clean, number
from tacit.report.templates import render
from tacit.research.reproduce.inventory import INVENTORY, PAPERS, Item

INTRODUCTION = (
    "Each claim is a table, figure or theorem of one of the five papers, tested with Tacit's own "
    "code on the data at hand. Verdicts are computed from the checks that stand below them; the "
    "checks that the verdict rests on are the paper's own statements, others are marked as ours. "
    "Beside each check stands its null: the same rule where there is no effect, where it must "
    "fail. A check that was changed after its outcome was seen says when, and how."
)
CONTENTS = "What the papers hold"


def show_cell(cell: Any) -> str:
    """A cell of a table as words.

    Examples
    --------
    >>> show_cell({"mean": 91.42, "spread": 0.13, "runs": 5, "digits": 1})
    '91.4 ± 0.1'
    >>> show_cell(0.25), show_cell(None), show_cell("as | is")
    ('0.25', '–', 'as | is')
    """
    if cell is None:
        return "–"
    if isinstance(cell, Mapping):
        shown = f"{cell['mean']:.{cell['digits']}f}"
        spread = f" ± {cell['spread']:.{cell['digits']}f}" if cell["runs"] > 1 else ""
        return shown + spread
    return clean(cell) if isinstance(cell, str) else number(cell)


def draw(figure: Mapping[str, Any]) -> str:
    """The curves of a figure as it stands in a record."""
    return draw_curves(
        figure["title"],
        {name: (x, y) for name, (x, y) in figure["curves"].items()},
        across=figure["across"],
        log=figure["log"],
        from_zero=False,
    )


def picture_names(record: Mapping[str, Any]) -> list[str]:
    """The files of a record's figures."""
    figures, name = record["figures"], record["claim"]
    if len(figures) == 1:
        return [f"{name}.svg"]
    return [f"{name}-{i}.svg" for i in range(1, len(figures) + 1)]


def render_html(records: Sequence[Mapping[str, Any]]) -> str:
    """One page that needs nothing but itself; all text is escaped."""
    return render(
        Path(__file__).with_name("page.html"),
        records=records,
        introduction=INTRODUCTION,
        style=STYLE,
        show=show_cell,
        how=_how,
        draw=draw,
        beside=_beside,
        contents=CONTENTS,
        papers=_papers(),
        outcome=lambda item: _outcome(item, records, link=False),
    )


def render_markdown(records: Sequence[Mapping[str, Any]]) -> str:
    """The same for a repository; pictures are files beside it."""
    lines = ["# Reproduction", "", INTRODUCTION, "", "| claim | source | verdict |"]
    lines += ["| --- | --- | --- |"]
    for record in records:
        name = record["claim"]
        lines.append(f"| [{name}](#{name}) | {_text(record['source'])} | {record['verdict']} |")
    lines += ["", f"## {CONTENTS}"]
    for paper, items in _papers():
        lines += ["", f"**{_text(paper)}**", "", "| item | what became of it |", "| --- | --- |"]
        lines += [f"| {_text(item.item)} | {_outcome(item, records)} |" for item in items]
    for record in records:
        lines += ["", *_section(record)]
    return "\n".join(lines) + "\n"


def _section(record: Mapping[str, Any]) -> list[str]:
    name, verdict = record["claim"], record["verdict"]
    lines = [f"## {name}", "", f"**{_text(record['title'])}** ({_text(record['source'])})", ""]
    lines += [f"*The paper*: {_text(record['says'])}", ""]
    lines += [f"*Verdict*: **{verdict}**. {_text(_how(record))}"]
    if record["differs"]:
        lines += ["", f"*Different here*: {_text(record['differs'])}"]
    for table in record["tables"]:
        lines += ["", *([f"{_text(table['title'])}", ""] if table["title"] else [])]
        lines.append("| " + " | ".join(_text(column) for column in table["columns"]) + " |")
        lines.append("| " + " | ".join("---" for _ in table["columns"]) + " |")
        for row in table["rows"]:
            lines.append("| " + " | ".join(_text(show_cell(cell)) for cell in row) + " |")
    if record["checks"]:
        lines.append("")
    for check in record["checks"]:
        mark, whose = ("yes" if check["holds"] else "no"), ("" if check["paper"] else " (ours)")
        lines.append(f"- **{mark}**{whose}: {_text(check['text'])}: {_text(check['found'])}")
        lines += [f"  - *{_text(words)}*" for words in _beside(check)]
    for name in picture_names(record):
        lines += ["", f"![{record['claim']}]({name})"]
    for note in record["notes"]:
        lines += ["", _text(note)]
    return lines


def _beside(check: Mapping[str, Any]) -> list[str]:
    """The null of a check, and what was changed, as sentences."""
    words, null = [], check.get("null")
    if null:
        fails = "holds there as well, and says nothing" if null["holds"] else "fails there"
        words.append(f"Null, {null['what']}: {fails}: {null['found']}")
    if check.get("changed"):
        words.append(f"Changed after its outcome was seen, {check['changed']}")
    return words


def _papers() -> list[tuple[str, list[Item]]]:
    """Papers by their full names, with their items."""
    return [
        (full, [item for item in INVENTORY if item.paper == paper])
        for paper, full in PAPERS.items()
    ]


def _outcome(item: Item, records: Sequence[Mapping[str, Any]], link: bool = True) -> str:
    """What became of an item, with the verdicts of the claims that test it."""
    if item.state != "tested":
        words = f"{item.state}: {item.where or item.why}"
        return _text(words) if link else words
    verdicts = {record["claim"]: record["verdict"] for record in records}
    named = []
    for name in item.claims:
        shown = f"[{name}](#{name})" if link and name in verdicts else name
        named.append(f"{shown}: {verdicts.get(name, 'not yet run in full')}")
    return "tested, " + "; ".join(named)


def _how(record: Mapping[str, Any]) -> str:
    if record["missing"]:
        return f"It needs {record['missing']}."
    runs = f"{record['seeds']} runs" if record["seeds"] > 1 else "1 run"
    size = " Small sizes only, to see which way effects go." if record["quick"] else ""
    return f"{runs}, {number(round(record['seconds']))} s of processor time.{size}"


def _text(words: str) -> str:
    """Words that Markdown takes for words."""
    plain = escape(clean(words), quote=False)
    for mark in ("\\", "|", "*", "_", "`", "[", "]"):
        plain = plain.replace(mark, f"\\{mark}")
    return plain
