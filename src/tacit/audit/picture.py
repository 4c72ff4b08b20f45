"""Lower bounds against claims, as a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from tacit.audit.audits import Audit
from tacit.exceptions import InputError
from tacit.files import svg_file, write_bytes
from tacit.report.show import clean, number

WIDTH, LEFT, RIGHT, TOP, ROW = 760, 230, 640, 78, 40
LONGEST_NAME = 28  # letters of a name
STYLE = "\n" + Path(__file__).with_name("picture.css").read_text(encoding="utf-8")


def plot_audits(audits: Sequence[Audit], path: str | os.PathLike[str]) -> Path:
    """Write `draw_audits` to a file whose name ends in ``.svg``."""
    target = svg_file(path, "an audit")
    write_bytes(target, draw_audits(audits).encode())
    return target


def draw_audits(audits: Sequence[Audit]) -> str:
    """One bar an audit, up to the lower bound on ε; a line stands at the claim.

    The picture needs nothing but itself. Bars that pass the claim are red, and say so.

    Examples
    --------
    >>> found = Audit("mine", 1.0, 1e-5, 2.5, 0.95, 100, "many-runs", "steps", "replace_one")
    >>> "2.5 REFUTED" in draw_audits([found])
    True
    """
    if not audits:
        raise InputError("there are no audits to draw")
    top = max(max(a.claimed, a.lower) for a in audits) * 1.05
    if not 0 < top < math.inf:
        raise InputError("claims and bounds must be finite, and one of them above 0")
    step = _step(top)
    bottom = TOP + ROW * len(audits)

    def across(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * value / top

    descriptions, drawn = [], []
    for k in range(int(top / step) + 1):
        x = across(k * step)
        drawn.append(
            f'<line class="grid" x1="{x:.2f}" x2="{x:.2f}" y1="{TOP - 8}" y2="{bottom}"/>'
            f'<text class="muted" x="{x:.2f}" y="{bottom + 20}" text-anchor="middle">'
            f"{number(k * step)}</text>"
        )
    for i, audit in enumerate(audits):
        y = TOP + ROW * i
        name, lower = clean(audit.name), number(audit.lower, digits=3)
        css, word = ("good", "") if audit.holds else ("bad", " REFUTED")
        descriptions.append(f"{name}: claimed {number(audit.claimed)}, at least {lower}{word}")
        end, claim = across(audit.lower), across(audit.claimed)
        drawn.append(
            f'<text x="{LEFT - 10}" y="{y + 20}" text-anchor="end">{escape(_short(name))}</text>'
            f'<rect class="{css}" x="{LEFT}" y="{y + 6}" width="{end - LEFT:.2f}" height="20"/>'
            f'<line class="claim" x1="{claim:.2f}" x2="{claim:.2f}" y1="{y}" y2="{y + 32}"/>'
            f'<text x="{max(end, claim) + 8:.2f}" y="{y + 21}">{lower}{word}</text>'
        )
    first = audits[0]
    sure = {number(100 * a.confidence) for a in audits}
    where = f"bars: ε is at least this, with {', '.join(sorted(sure))}% confidence; lines: claims"
    title = f"Lower bounds on ε against claims, δ = {number(first.delta)}"
    height = bottom + 52
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="name description">',
            f'<title id="name">{escape(title)}</title>',
            f'<desc id="description">{escape("; ".join(descriptions))}.</desc>',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="20" y="28">{escape(title)}</text>',
            f'<text class="muted" x="20" y="50">{escape(where)}</text>',
            *drawn,
            f'<text x="{(LEFT + RIGHT) / 2}" y="{bottom + 42}" text-anchor="middle">ε</text>',
            "</svg>\n",
        ]
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _step(top: float) -> float:
    """A round distance of which four to ten fit."""
    unit = 10.0 ** math.floor(math.log10(top) - 1)
    while True:
        for times in (1, 2, 5):
            if top / (unit * times) <= 8:
                return unit * times
        unit *= 10
