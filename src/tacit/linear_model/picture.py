"""All curves of a model in one picture: small frames with the same scale, the largest first."""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np

from tacit.exceptions import InputError
from tacit.linear_model.curves import Curve, ShapeCurves
from tacit.report.show import clean, number

ACROSS, WIDTH, HEIGHT, MARGIN, HEAD = 3, 250, 150, 16, 66
LEFT, TOP, BOTTOM = 42, 26, 24  # within a frame
LONGEST_NAME, SHOWN_BARS = 28, 40  # letters; categories of a frame
STYLE = "\n" + Path(__file__).with_name("picture.css").read_text(encoding="utf-8")


def draw_curves(curves: ShapeCurves) -> str:
    """One frame a column, with effects on the same scale; columns that matter most come first.

    The picture needs nothing but itself. A dot at the right is what a missing value adds.
    """
    shown = sorted(curves.values(), key=_reach, reverse=True)
    if not shown or shown[0].effect.ndim > 1:
        raise InputError("a picture is of two classes, or of numbers: of several, draw one by one")
    low = min(min(float(c.effect.min()), float(c.missing)) for c in shown)
    high = max(max(float(c.effect.max()), float(c.missing)) for c in shown)
    low, high = min(low, 0.0), max(high, 0.0)
    span = (high - low) or 1.0
    drawn = [_frame(curve, i, low, span) for i, curve in enumerate(shown)]
    rows = -(-len(shown) // ACROSS)
    width, height = ACROSS * (WIDTH + MARGIN) + MARGIN, HEAD + rows * (HEIGHT + MARGIN)
    said = "; ".join(
        f"{clean(c.name)}: from {number(float(c.effect.min()), digits=3)} to "
        f"{number(float(c.effect.max()), digits=3)}"
        for c in shown
    )
    title = "What each column adds to the score"
    where = "the same scale everywhere; a dot at the right: a missing value"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-labelledby="name told">',
            f'<title id="name">{title}</title>',
            f'<desc id="told">{escape(said)}.</desc>',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="{MARGIN}" y="26">{title}</text>',
            f'<text class="muted" x="{MARGIN}" y="46">{where}</text>',
            *drawn,
            "</svg>\n",
        ]
    )


def _reach(curve: Curve) -> float:
    return float(np.ptp(curve.effect)) if curve.effect.ndim == 1 else 0.0


def _frame(curve: Curve, place: int, low: float, span: float) -> str:
    x0 = MARGIN + (place % ACROSS) * (WIDTH + MARGIN) + LEFT
    y0 = HEAD + (place // ACROSS) * (HEIGHT + MARGIN) + TOP
    wide, tall = WIDTH - LEFT - 14, HEIGHT - TOP - BOTTOM

    def up(value: float) -> float:
        return y0 + tall * (1 - (value - low) / span)

    bottom = y0 + tall + 16
    parts = [
        f'<text class="name" x="{x0}" y="{y0 - 10}">{escape(_short(curve.name))}</text>',
        f'<line class="zero" x1="{x0}" x2="{x0 + wide}" y1="{up(0.0):.1f}" y2="{up(0.0):.1f}"/>',
    ]
    for value in (low, low + span):
        parts.append(
            f'<text class="muted" x="{x0 - 5}" y="{up(value) + 4:.1f}" text-anchor="end">'
            f"{number(value, digits=2)}</text>"
        )
    if curve.kind == "category":
        effects = curve.effect[:SHOWN_BARS]
        each = wide / len(effects)
        for i, effect in enumerate(effects):
            top, end = sorted((up(float(effect)), up(0.0)))
            parts.append(
                f'<rect class="bar" x="{x0 + i * each + 1:.1f}" y="{top:.1f}" '
                f'width="{max(each - 2, 1):.1f}" height="{max(end - top, 0.5):.1f}">'
                f"<title>{escape(clean(str(curve.grid[i])))}: {number(float(effect), digits=3)}"
                "</title></rect>"
            )
        ends = [clean(str(curve.grid[0])), clean(str(curve.grid[len(effects) - 1]))]
    else:
        grid = curve.grid.astype("datetime64[s]").astype(np.int64) if curve.kind == "date" else 0
        values = np.asarray(grid if curve.kind == "date" else curve.grid, dtype=np.float64)
        across = (values - values[0]) / (values[-1] - values[0])
        points = " ".join(
            f"{x0 + wide * a:.1f},{up(float(e)):.1f}"
            for a, e in zip(across, curve.effect, strict=True)
        )
        parts.append(f'<polyline class="curve" points="{points}"/>')
        ends = [_value(curve, 0), _value(curve, -1)]
    for at, anchor, text in ((x0, "start", ends[0]), (x0 + wide, "end", ends[1])):
        parts.append(
            f'<text class="muted" x="{at}" y="{bottom}" text-anchor="{anchor}">'
            f"{escape(_short(text))}</text>"
        )
    parts.append(
        f'<circle class="gap" cx="{x0 + wide + 7}" cy="{up(float(curve.missing)):.1f}" r="3"/>'
    )
    return "".join(parts)


def _value(curve: Curve, at: int) -> str:
    if curve.kind == "date":
        return str(curve.grid[at].astype("datetime64[D]"))
    return number(float(curve.grid[at]), digits=4)


def _short(name: str) -> str:
    name = clean(name)
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
