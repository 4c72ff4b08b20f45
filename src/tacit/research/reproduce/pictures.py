"""A figure as SVG that stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.diagnostics.picture import STYLE, draw_curves

__all__ = ["draw", "standing_alone"]


def draw(figure: Mapping[str, Any]) -> str:
    """The curves of a figure as it stands in a record."""
    return draw_curves(
        figure["title"],
        {name: (x, y) for name, (x, y) in figure["curves"].items()},
        across=figure["across"],
        log=figure["log"],
        from_zero=False,
    )


def standing_alone(picture: str) -> str:
    """With its own colours, on white: for a file of its own."""
    light = STYLE.split("@media", 1)[0] + STYLE[STYLE.index("svg {") :]
    style = f'<style>{light}</style><rect width="100%" height="100%" fill="#ffffff"/>'
    head, rest = picture.split(">", 1)
    return f"{head}>{style}{rest}\n"
