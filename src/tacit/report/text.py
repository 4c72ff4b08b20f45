"""The report for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tacit.report.results import Bar
from tacit.report.show import exact
from tacit.report.view import read

_STYLES = {"free": "green", "public": "blue", "private": "magenta", "noiseless": "yellow"}


def render_text(
    certificate: Mapping[str, Any], results: Mapping[str, Any] | None = None
) -> RenderableType:
    """The report for a terminal, to be printed by a `rich.console.Console`.

    The arguments are those of `tacit.report.render_html`. Strings from them are
    shown as they are: neither rich markup nor control characters have any effect.

    Parameters
    ----------
    certificate : mapping
        A certificate, as read from ``certificate.json``.
    results : mapping, optional
        What is known of the model's quality, as `tacit.report.render_html` reads it.

    Returns
    -------
    rich.console.RenderableType
        Tables and text.

    Examples
    --------
    >>> from rich.console import Console
    >>> import numpy as np
    >>> from tacit import DPLinearClassifier
    >>> certificate = DPLinearClassifier().fit(np.eye(100), [0, 1] * 50).certificate_
    >>> Console().print(render_text(certificate.to_dict()))  # doctest: +SKIP
    """
    view = read(certificate, results)
    scores = view.scores
    claim = f"ε = {exact(view.epsilon)}, δ = {exact(view.delta)}, {view.relation.short}"
    parts: list[RenderableType] = []
    if view.revoked:
        advisories = Text("\n".join(view.revoked))
        parts.append(Panel(advisories, title=Text("REVOKED"), style="bold white on red"))
    if not view.releasable:
        reasons = Text("\n".join(view.reasons))
        parts.append(Panel(reasons, title=Text("NOT FOR RELEASE"), style="bold white on red"))
    if view.warnings:
        warnings = Text("\n".join(view.warnings))
        parts.append(Panel(warnings, title=Text("Warnings"), border_style="yellow"))
    parts += [Text(claim, style="bold"), Text(view.subject)]

    def section(title: str, *body: RenderableType) -> None:
        parts.extend([Text(""), Text(title, style="bold underline"), *body])

    paragraphs = (view.promise, view.odds, view.two_guesses, view.strength, view.game)
    heading = "The promise" if view.releasable else "The promise, were this fit for release"
    section(
        "The promise, which was found to be false" if view.revoked else heading,
        *(Text(paragraph + "\n") for paragraph in paragraphs),
        _bars(view.guesses),
    )
    section("What it does not promise", _bullets(" ".join(limit) for limit in view.limits))
    if view.spent:
        spent = Table("", "Step", "Noise", "Times", "Drawn", "ε alone", "Share")
        for s in view.spent:
            cells = (s.stage, s.noise, s.count, s.sampling, s.epsilon_alone, s.percent)
            _fill(spent, [(str(s.position), *cells)])
        jointly = "The ε of the steps do not add up to the total: they are counted jointly."
        section("Where the budget went", spent, Text(jointly))
    else:
        section(
            "Where the budget went",
            Text(
                "No step that looked at the private rows is listed: there is nothing to recompute."
            ),
        )
    steps = Table("Step", "Kind", "Settings, and how it pays", show_lines=True)
    for step in view.steps:
        settings = ", ".join(f"{key} {value}" for key, value in step.settings)
        body = "\n".join(line for line in (settings, step.note, step.pays) if line)
        _fill(steps, [(step.name, Text(step.kind, style=_STYLES[step.kind]), body)])
    section("The pipeline", steps)
    section("Assumptions", _bullets(view.assumptions or ["None are recorded."]))
    if scores.figures or scores.confusion:
        other = scores.figures[len(scores.bars) :]
        section("Accuracy", _bars(scores.bars), _grid(other, "dim", ""), *map(Text, scores.caveats))
    section("How to verify", Text("tacit verify certificate.json"))
    section("Small print", _grid(view.small_print, "dim", ""))
    return Group(*parts)


def plain_text(
    certificate: Mapping[str, Any], results: Mapping[str, Any] | None = None, *, width: int = 80
) -> str:
    """The report as plain text of ``width`` characters to a line, without control codes.

    Parameters
    ----------
    certificate : mapping
        A certificate, as read from ``certificate.json``.
    results : mapping, optional
        What is known of the model's quality, as `tacit.report.render_html` reads it.
    width : int
        Characters to a line.

    Returns
    -------
    str
        Lines.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit import DPLinearClassifier
    >>> certificate = DPLinearClassifier().fit(np.eye(100), [0, 1] * 50).certificate_
    >>> "replace_special" in plain_text(certificate.to_dict())
    True
    """
    file = io.StringIO()
    console = Console(
        file=file, width=width, color_system=None, force_terminal=False, force_jupyter=False
    )
    console.print(render_text(certificate, results))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _fill(table: Table, rows: Iterable[Iterable[str | Text]]) -> Table:
    """Rows as they are: a bare string would be read as markup."""
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def _grid(rows: Iterable[Iterable[str | Text]], *styles: str) -> Table:
    table = Table.grid(padding=(0, 2))
    for style in styles:
        table.add_column(style=style, overflow="fold")
    return _fill(table, rows)


def _bullets(items: Iterable[str]) -> Table:
    return _grid((("-", item) for item in items), "", "")


def _bars(bars: Sequence[Bar], width: int = 25) -> Table:
    def drawn(bar: Bar) -> Text:
        return Text(("█" * round(bar.value * width)).ljust(width, "░"), no_wrap=True)

    return _grid(((bar.label, drawn(bar), bar.text) for bar in bars), "", "cyan", "bold")
