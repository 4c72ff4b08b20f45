"""Curves and bars as SVG, drawn with nothing but text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from tacit.report.show import clean, number

COLOURS = 6
DOTTED = 24  # curves of so few points show them

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 580, 320, 96, 560, 44, 260
POINTS = 160  # of a curve at most
STYLE = "\n" + Path(__file__).with_name("picture.css").read_text(encoding="utf-8")


def draw_curves(
    title: str,
    curves: Mapping[str, tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]],
    *,
    across: str,
    log: bool = False,
    from_zero: bool = True,
    dashed: Collection[str] = (),
    description: str = "",
) -> str:
    """Named curves (x, y) in one frame; with ``log``, both axes in powers of ten.

    Otherwise the frame shows zero, unless it need not be ``from_zero``. ``description`` is for
    those who cannot see it.

    Examples
    --------
    >>> "<svg" in draw_curves("a & b", {"one": ([1, 2, 3], [3, 2, 1])}, across="k")
    True
    """
    kept = {name: _points(x, y, log) for name, (x, y) in curves.items()}
    kept = {name: points for name, points in kept.items() if len(points) > 1}
    every = np.concatenate(list(kept.values())) if kept else np.array([[0.0, 0.0], [1.0, 1.0]])
    low, high = every.min(axis=0), every.max(axis=0)
    if from_zero and not log:
        low[1] = min(low[1], 0.0)
    span = np.where(high > low, high - low, 1.0)
    drawn = _ticks(low, span, log)
    for i, (name, points) in enumerate(kept.items()):
        x = LEFT + (RIGHT - LEFT) * (points[:, 0] - low[0]) / span[0]
        y = BOTTOM - (BOTTOM - TOP) * (points[:, 1] - low[1]) / span[1]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        how = f"curve c{i % COLOURS}" + (" dashed" if name in dashed else "")
        drawn.append(f'<polyline class="{how}" points="{path}"/>')
        if len(points) <= DOTTED:
            drawn += [
                f'<circle class="t{i % COLOURS}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>'
                for a, b in zip(x, y, strict=True)
            ]
    drawn += _legend(list(kept))
    description = description or "; ".join(
        f"{name}: {len(points)} points" for name, points in kept.items()
    )
    return _frame(title, description, across, drawn, below=_lines(list(kept)))


def _lines(names: Sequence[str]) -> int:
    """Of the legend: names stand side by side as far as they fit."""
    return 1 + max((line for line, _ in _places(names)), default=0)


def _places(names: Sequence[str]) -> list[tuple[int, float]]:
    line, x, found = 0, float(LEFT), []
    for name in names:
        width = 30 + 7.2 * len(clean(name))
        if x > LEFT and x + width > WIDTH:
            line, x = line + 1, float(LEFT)
        found.append((line, x))
        x += width
    return found


def _legend(names: Sequence[str]) -> list[str]:
    drawn = []
    for i, (name, (line, x)) in enumerate(zip(names, _places(names), strict=True)):
        y = BOTTOM + 62 + 18 * line
        drawn.append(
            f'<line class="c{i % COLOURS}" stroke-width="3" x1="{x:.1f}" x2="{x + 16:.1f}" '
            f'y1="{y - 4}" y2="{y - 4}"/>'
            f'<text class="t{i % COLOURS}" x="{x + 21:.1f}" y="{y}">{escape(clean(name))}</text>'
        )
    return drawn


def draw_bars(title: str, values: Sequence[float] | np.ndarray, *, across: str) -> str:
    """How often values occur, in thirty bars.

    Examples
    --------
    >>> draw_bars("distances", [0.1, 0.2, 0.2], across="distance").count("<rect")
    30
    """
    counts, edges = np.histogram(np.asarray(values, dtype=float), bins=30)
    low, span = np.array([edges[0], 0.0]), np.array([edges[-1] - edges[0], float(counts.max())])
    drawn = _ticks(low, span, False)
    width = (RIGHT - LEFT) / 30
    for i, count in enumerate(counts):
        height = (BOTTOM - TOP) * count / span[1]
        drawn.append(
            f'<rect class="b0" x="{LEFT + i * width:.1f}" y="{BOTTOM - height:.1f}" '
            f'width="{width - 1:.1f}" height="{height:.1f}"/>'
        )
    return _frame(title, f"from {number(edges[0])} to {number(edges[-1])}", across, drawn)


def standing_alone(picture: str, style: str = "") -> str:
    """With its own colours, and more ``style``, on white: for a file of its own."""
    light = STYLE.split("@media", 1)[0] + STYLE[STYLE.index("svg {") :] + style
    drawn = f'<style>{light}</style><rect width="100%" height="100%" fill="#ffffff"/>'
    head, rest = picture.split(">", 1)
    return f"{head}>{drawn}{rest}\n"


def _points(
    x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, log: bool
) -> np.ndarray:
    points = np.column_stack([np.asarray(x, dtype=float), np.asarray(y, dtype=float)])
    points = points[np.isfinite(points).all(axis=1)]
    if log:
        points = np.log10(points[(points > 0).all(axis=1)])
    if len(points) > POINTS:
        places = np.linspace(0, 1, POINTS)
        spread = np.geomspace(1, len(points), POINTS) - 1 if log else places * (len(points) - 1)
        points = points[np.unique(spread.round().astype(int))]
    return points


def _ticks(low: np.ndarray, span: np.ndarray, log: bool) -> list[str]:
    drawn = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = low + part * span
        shown = 10.0**value if log else value
        x, y = LEFT + part * (RIGHT - LEFT), BOTTOM - part * (BOTTOM - TOP)
        drawn.append(
            f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="muted" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{number(float(shown[1]), digits=2)}</text>"
            f'<text class="muted" x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">'
            f"{number(float(shown[0]), digits=2)}</text>"
        )
    return drawn


def _frame(title: str, description: str, across: str, drawn: Sequence[str], below: int = 0) -> str:
    height = HEIGHT + 18 * below
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">',
            f"<title>{escape(clean(title))}</title><desc>{escape(clean(description))}</desc>",
            f'<text class="title" x="{LEFT - 76}" y="24">{escape(clean(title))}</text>',
            *drawn,
            f'<text class="muted" x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 42}" text-anchor="middle">'
            f"{escape(clean(across))}</text>",
            "</svg>",
        ]
    )
