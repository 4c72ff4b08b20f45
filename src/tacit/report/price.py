"""What a stage costs, four ways, as a table for a terminal or as a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.exceptions import InputError
from tacit.files import svg_file, write_bytes
from tacit.privacy.price import WAYS, Price
from tacit.report.show import clean, number, setting

__all__ = ["draw_price", "plot_price", "show_price"]

NAMES = {
    "tacit": "Tacit",
    "theorem2": "Theorem 2",
    "table2": "Table 2",
    "group": "Group privacy",
}


def show_price(price: Price, console: Console) -> None:
    """Print a price as a table: each way with its ε, and whether it may be believed.

    Examples
    --------
    >>> from tacit.privacy.price import price
    >>> found = price("dedup", n=10_000, crowd=20, base_epsilon=0.1, delta=1e-5)
    >>> show_price(found, Console(width=200))  # doctest: +ELLIPSIS
    dedup (crowd 20): 10,000 rows, δ = 10⁻⁵
    Training alone: ε = 0.1. The stage takes 20 times the noise.
    ...
    """
    console.print(Text(f"{_what(price)}: {_where(price)}", style="bold"))
    if price.base_epsilon is None:
        alone = f"No ε for training alone leads to {number(price.epsilon or 0.0)}."
    else:
        alone = f"Training alone: ε = {number(price.base_epsilon)}."
    times = number(price.inflation, up=True)
    console.print(Text(f"{alone} The stage takes {times} times the noise."))
    table = Table("By", "Overall ε")
    if price.base is not None:
        table.add_column(f"Base ε for {number(price.epsilon or 0.0)}")
    table.add_column("Sound")
    table.add_column("Why")
    for way, found in price.ways.items():
        missing = math.isinf(found.epsilon) and price.base_epsilon is not None
        cells = [Text(NAMES[way]), Text(_epsilon(price.overall[way]))]
        if price.base is not None:
            base = price.base[way]
            cells.append(Text("–" if base is None else number(base, digits=3)))
        sound = Text("–" if missing else "yes") if found.sound else Text("NO", style="bold red")
        why = found.note if missing else f"{found.formula}. {found.note}"
        table.add_row(*cells, sound, Text(why))
    console.print(table)


def _epsilon(value: float | None) -> str:
    return "–" if value is None else number(value, digits=3, up=True)


def _what(price: Price) -> str:
    settings = ", ".join(f"{name} {setting(value)}" for name, value in price.parameters.items())
    return clean(f"{price.stage} ({settings})")


def _where(price: Price, *, rows: bool = True) -> str:
    parts = [f"{price.n:,} rows"] if rows else []
    parts.append(f"δ = {number(price.delta)}")
    parts += [f"C = {number(price.clip)}"] if price.clip != 1 else []
    parts += [f"μ = {number(price.constant)}"] if price.constant != 1 else []
    return ", ".join(parts)


# --- the picture -----------------------------------------------------------------------------

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 84, 560, 64, 400  # of the frame
STYLE = """
svg { background: var(--bg); font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  --bg: #ffffff; --ink: #1a1f26; --muted: #545d68; --line: #d3d9e0;
  --s0: #0b5cad; --s1: #a3420a; --s2: #7a3fb0; --s3: #1c7148; }
@media (prefers-color-scheme: dark) { svg { --bg: #12161b; --ink: #e6eaef; --muted: #a3adb8;
  --line: #343c46; --s0: #6cb0f5; --s1: #f0945c; --s2: #c39af0; --s3: #5cc48f; } }
text { fill: var(--ink); } .title { font-size: 17px; font-weight: 600; }
.muted { fill: var(--muted); } .grid { stroke: var(--line); }
.curve { fill: none; stroke-width: 2.5; } .unsound { stroke-dasharray: 7 5; }
.alone { fill: none; stroke: var(--muted); stroke-dasharray: 1 4; stroke-width: 1.5; }
.leader { stroke: var(--line); }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); } .s2 { stroke: var(--s2); }
.s3 { stroke: var(--s3); }
.t0 { fill: var(--s0); } .t1 { fill: var(--s1); } .t2 { fill: var(--s2); } .t3 { fill: var(--s3); }
"""
Point = tuple[float, float]


def plot_price(prices: Sequence[Price], path: str | os.PathLike[str]) -> Path:
    """Write `draw_price` to a file whose name ends in ``.svg``.

    Examples
    --------
    >>> from tacit.privacy.price import price
    >>> one = price("soft-pca", n=10_000, strength=0.05, base_epsilon=1.0, delta=1e-5)
    >>> plot_price([one], "one.png")
    Traceback (most recent call last):
    tacit.exceptions.FileError: one.png: a price is drawn as SVG; the name must end in .svg
    """
    target = svg_file(path, "a price")
    write_bytes(target, draw_price(prices).encode())
    return target


def draw_price(prices: Sequence[Price]) -> str:
    """Overall ε against the base ε, or against n, one curve for each way, as an SVG picture.

    The picture needs nothing but itself. Formulas that are not sound are dashed and say so.

    Parameters
    ----------
    prices : sequence of Price
        Of one stage with one setting, at two or more base ε, or at two or more n.

    Examples
    --------
    >>> from tacit.privacy.price import price
    >>> setting = {"n": 10_000, "deviation": 0.3, "delta": 1e-5}
    >>> prices = [price("scale", base_epsilon=e, **setting) for e in (0.1, 1.0)]
    >>> "Table 2 (unsound)" in draw_price(prices)
    True
    """
    axis, prices = _axis(prices)
    curves: dict[str, list[Point]] = {way: [] for way in WAYS}
    for x, price in zip(axis, prices, strict=True):
        for way, value in price.overall.items():
            if value is not None and value > 0:
                curves[way].append((x, value))
    curves = {way: points for way, points in curves.items() if len(points) > 1}
    by_base = prices[0].base_epsilon != prices[-1].base_epsilon
    alone = [(x, x if by_base else (prices[0].base_epsilon or x)) for x in axis]
    heights = [y for points in [alone, *curves.values()] for _, y in points]
    across = _Log(axis[0], axis[-1], LEFT, RIGHT)
    up = _Log(*_round_out(min(heights), max(heights)), BOTTOM, TOP)

    def line(points: Sequence[Point], css: str) -> str:
        pairs = " ".join(f"{across(x):.2f},{up(y):.2f}" for x, y in points)
        return f'<polyline class="{css}" points="{pairs}"/>'

    frame = [
        f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.2f}" y2="{y:.2f}"/>'
        f'<text class="muted" x="{LEFT - 8}" y="{y + 5:.2f}" text-anchor="end">{label}</text>'
        for y, label in up.ticks()
    ] + [
        f'<line class="grid" x1="{x:.2f}" x2="{x:.2f}" y1="{TOP}" y2="{BOTTOM}"/>'
        f'<text class="muted" x="{x:.2f}" y="{BOTTOM + 20}" text-anchor="middle">{label}</text>'
        for x, label in across.ticks()
    ]
    drawn, labels, said = [line(alone, "alone")], {}, []
    labels["Training alone"] = (up(alone[-1][1]), "muted")
    for i, way in enumerate(WAYS):
        if way not in curves:
            continue
        sound = all(price.ways[way].sound for price in prices)
        name = NAMES[way] if sound else f"{NAMES[way]} (unsound)"
        drawn.append(line(curves[way], f"curve s{i}" + ("" if sound else " unsound")))
        labels[name] = (up(curves[way][-1][1]), f"t{i}")
        ends = (number(curves[way][at][1], digits=3, up=True) for at in (0, -1))
        said.append(f"{name}: " + " to ".join(ends))
    first = prices[0]
    where = _where(first, rows=by_base)
    if not by_base:
        where = f"training alone ε = {number(first.base_epsilon or 0.0)}, {where}"
    x_name = "ε of training alone" if by_base else "rows"
    span = " to ".join(number(x if by_base else int(x)) for x in (axis[0], axis[-1]))
    told = f"Overall ε as {x_name} goes from {span}. " + "; ".join(said) + "."
    centre, middle = (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="name told">',
            f'<title id="name">What {escape(_what(first))} costs</title>',
            f'<desc id="told">{escape(told)}</desc>',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="{LEFT}" y="28">What {escape(_what(first))} costs</text>',
            f'<text class="muted" x="{LEFT}" y="49">{escape(where)}</text>',
            *frame,
            *drawn,
            *_placed(labels),
            f'<text x="{centre}" y="{BOTTOM + 46}" text-anchor="middle">{x_name}</text>',
            f'<text x="24" y="{middle}" text-anchor="middle" '
            f'transform="rotate(-90 24 {middle})">overall ε</text>',
            "</svg>\n",
        ]
    )


def _axis(prices: Sequence[Price]) -> tuple[list[float], list[Price]]:
    """Along which of base ε and n the prices differ, and the prices in that order."""
    if len({(p.stage, tuple(p.parameters.items()), p.delta) for p in prices}) > 1:
        raise InputError("a picture is of one stage with one setting at one delta")
    for name in ("base_epsilon", "n"):
        other = "n" if name == "base_epsilon" else "base_epsilon"
        along = {getattr(p, name): p for p in prices}
        if None not in along and len(along) > 1 and len({getattr(p, other) for p in prices}) == 1:
            return [float(x) for x in sorted(along)], [along[x] for x in sorted(along)]
    raise InputError("a picture needs prices at two or more base_epsilon, or at two or more n")


class _Log:
    """A logarithmic axis from ``low`` to ``high``, between two places of the picture."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = math.log10(low), math.log10(high)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Powers of ten, not too many; within less than two of them, also twos and fives."""
        first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
        steps = [10.0**k for k in range(first, last + 1, max(1, (last - first) // 7 + 1))]
        if len(steps) < 3:
            spread = (m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5))
            low, high = 10**self.low * (1 - 1e-9), 10**self.high * (1 + 1e-9)
            steps = [step for step in spread if low <= step <= high]
        return [(self(step), number(step)) for step in steps]


def _round_out(low: float, high: float) -> tuple[float, float]:
    """The powers of ten around."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return 10.0**first, 10.0 ** max(last, first + 1)


def _placed(labels: dict[str, tuple[float, str]]) -> list[str]:
    """Names at the ends of curves, moved apart where they would touch."""
    apart = 19.0
    places: list[float] = []
    order = sorted(labels, key=lambda name: labels[name][0])
    for name in order:
        places.append(max(labels[name][0], places[-1] + apart if places else -math.inf))
    lowest = BOTTOM + apart / 2
    for i in reversed(range(len(places))):  # and back up, if the last ran out at the bottom
        places[i] = min(places[i], lowest - apart * (len(places) - 1 - i))
    return [
        f'<line class="leader" x1="{RIGHT + 2}" x2="{RIGHT + 14}" y1="{labels[name][0]:.2f}" '
        f'y2="{y:.2f}"/>'
        f'<text class="{labels[name][1]}" x="{RIGHT + 18}" y="{y + 5:.2f}">{escape(name)}</text>'
        for name, y in zip(order, places, strict=True)
    ]
