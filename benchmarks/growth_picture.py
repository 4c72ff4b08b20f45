"""Curves of time over rows, columns and classes, as a small SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

LINES = {
    "bare": ("#888888", "bare products"),
    "exact": ("#1f5fa8", "exact"),
    "fast": ("#c8641e", "float32"),
}
WIDTH, HEIGHT, LEFT, BOTTOM = 230, 190, 50, 40


def picture(found: dict[str, list[dict[str, float]]], path: Path) -> None:
    """One panel for each axis; both scales are logarithmic."""
    times = [r[line] for results in found.values() for r in results for line in LINES]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    total = WIDTH * len(found) + LEFT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {HEIGHT + 50}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{total}" height="{HEIGHT + 50}" fill="white"/>',
    ]
    for i, (axis, results) in enumerate(found.items()):
        out += _panel(LEFT + i * WIDTH, axis, results, (low, high))
    for i, (colour, words) in enumerate(LINES.values()):
        x = LEFT + 110 * i
        out.append(
            f'<line x1="{x}" y1="12" x2="{x + 18}" y2="12" stroke="{colour}" stroke-width="2"/>'
        )
        out.append(f'<text x="{x + 23}" y="16">{words}</text>')
    path.write_text("\n".join([*out, "</svg>"]) + "\n", encoding="utf-8")


def _panel(
    left: float, axis: str, results: Sequence[dict[str, float]], span: tuple[int, int]
) -> list[str]:
    sizes = [r[axis] for r in results]
    first, last = math.log10(min(sizes)), math.log10(max(sizes))
    top, bottom, width = 30, HEIGHT + 50 - BOTTOM, WIDTH - 55

    def place(size: float, seconds: float) -> tuple[float, float]:
        x = left + width * (math.log10(size) - first) / (last - first)
        y = bottom - (bottom - top) * (math.log10(seconds) - span[0]) / (span[1] - span[0])
        return round(x, 1), round(y, 1)

    out = []
    for power in range(span[0], span[1] + 1):
        y = place(sizes[0], 10.0**power)[1]
        out.append(f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}" stroke="#dddddd"/>')
        out.append(
            f'<text x="{left - 5}" y="{y + 4}" text-anchor="end">{10.0**power * 1e3:g} ms</text>'
        )
    for size in sizes:
        x = place(size, 1.0)[0]
        out.append(f'<text x="{x}" y="{bottom + 14}" text-anchor="middle">{_short(size)}</text>')
    out.append(f'<text x="{left + width / 2}" y="{bottom + 30}" text-anchor="middle">{axis}</text>')
    for line, (colour, _) in LINES.items():
        points = [place(r[axis], r[line]) for r in results]
        joined = " ".join(f"{x},{y}" for x, y in points)
        out.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in points]
    return out


def _short(size: float) -> str:
    return f"{size / 1000:g}k" if size >= 1000 else f"{size:g}"
