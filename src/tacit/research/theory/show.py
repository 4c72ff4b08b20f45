"""Bounds of theorems side by side, as a table for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.report.show import clean, number
from tacit.research.theory import Comparison, Risk

ROWS = {"empirical": "these rows", "population": "fresh rows"}


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Print bounds in groups that may be compared, what was corrected, and what was left out.

    Examples
    --------
    >>> from tacit.research.theory import Setting, compare
    >>> found = compare(Setting(n=10_000, d=300, rank=50, epsilon=1.0, delta=1e-6))
    >>> show_comparison(found, Console(width=200))  # doctest: +ELLIPSIS
    10,000 rows of rank 50 in 300 columns; ε = 1, δ = 10⁻⁶ (replace_special)
    ...
    """
    setting = comparison.setting
    columns = f"{number(setting.d)} columns"
    budget = f"ε = {number(setting.epsilon)}, δ = {number(setting.delta)}"
    what = f"{number(setting.n)} rows of rank {number(setting.rank or 0)} in {columns}; {budget}"
    console.print(Text(clean(f"{what} ({setting.neighbors})"), style="bold"))
    letters = {
        name: chr(ord("A") + i) for i, group in enumerate(comparison.groups()) for name in group
    }
    table = Table("Bound", "Value", "Of", "On", "Compare", "Source")
    notes = []
    for name, risk in comparison.bounds.items():
        mark = ""
        if risk.correction and risk.printed is not None:
            mark = " †"
            printed = number(risk.printed, digits=3)
            notes.append(f"† {risk.source}, {printed} as printed: {risk.correction}.")
        other = risk.neighbors not in (None, setting.neighbors)
        label = f"{name} ({risk.neighbors})" if other else name
        cells = [label, _value(risk), risk.unit, ROWS[risk.kind], letters.get(name, "–")]
        table.add_row(*map(Text, [*cells, risk.source + mark]))
    console.print(table)
    console.print(
        Text(
            "≤ and ≥ hold as they stand; ~ is an order, its constant unknown. Compare what has the "
            "same letter, and nothing else."
        )
    )
    for note in notes:
        console.print(Text(clean(note)))
    if comparison.left_out:
        console.print(Text("Left out:"))
    for name, why in comparison.left_out.items():
        console.print(Text(clean(f"  {name}: {why}")))


def _value(risk: Risk) -> str:
    lower = risk.side == "lower"
    if risk.constant != "exact":
        return f"~ {number(risk.value, digits=3)}" + (" at least" if lower else "")
    sure = f", {number(100 * (1 - risk.failure))}% sure" if risk.failure else ""
    return f"{'≥' if lower else '≤'} {number(risk.value, digits=3, up=not lower)}{sure}"
