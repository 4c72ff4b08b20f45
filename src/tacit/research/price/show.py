"""What a stage costs, four ways, as a table for a terminal or as a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.diagnostics.picture import draw_curves, standing_alone
from tacit.exceptions import InputError
from tacit.files import svg_file, write_bytes
from tacit.report.show import clean, number, setting
from tacit.research.price.price import Price

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
    >>> from tacit.research.price.price import price
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


def plot_price(prices: Sequence[Price], path: str | os.PathLike[str]) -> Path:
    """Write `draw_price` to a file whose name ends in ``.svg``.

    Examples
    --------
    >>> from tacit.research.price.price import price
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
    >>> from tacit.research.price.price import price
    >>> setting = {"n": 10_000, "deviation": 0.3, "delta": 1e-5}
    >>> prices = [price("scale", base_epsilon=e, **setting) for e in (0.1, 1.0)]
    >>> "Table 2 (unsound)" in draw_price(prices)
    True
    """
    axis, prices = _axis(prices)
    first = prices[0]
    by_base = first.base_epsilon != prices[-1].base_epsilon
    curves = {"Training alone": [price.base_epsilon or math.nan for price in prices]}
    dashed, descriptions = list[str](), list[str]()
    for way, name in NAMES.items():
        if not all(price.ways[way].sound for price in prices):
            name += " (unsound)"
            dashed.append(name)
        curves[name] = [price.overall[way] or math.nan for price in prices]
        ends = [number(y, digits=3, up=True) for y in curves[name] if not math.isnan(y)]
        descriptions += [f"{name}: {ends[0]} to {ends[-1]}"] if len(ends) > 1 else []
    where = _where(first, rows=by_base)
    if not by_base:
        where = f"training alone ε = {number(first.base_epsilon or 0.0)}, {where}"
    across = "ε of training alone" if by_base else "rows"
    span = " to ".join(number(x if by_base else int(x)) for x in (axis[0], axis[-1]))
    return standing_alone(
        draw_curves(
            f"What {_what(first)} costs: overall ε",
            {name: (axis, values) for name, values in curves.items()},
            across=f"{across} ({where})",
            log=True,
            dashed=dashed,
            description=f"Overall ε as {across} goes from {span}. {'; '.join(descriptions)}.",
        )
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
