"""A figure as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.diagnostics.picture import draw_curves

__all__ = ["draw"]


def draw(figure: Mapping[str, Any]) -> str:
    """The curves of a figure as it stands in a record."""
    return draw_curves(
        figure["title"],
        {name: (x, y) for name, (x, y) in figure["curves"].items()},
        across=figure["across"],
        log=figure["log"],
        from_zero=False,
    )
