"""``tacit price``: what a stage without noise costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.console import Json, argument, dump, flag, say

__all__ = ["attach"]

PRICED = """pca, soft-pca, scale, mean-imputation, shrunk-mean, ridge, quantize or dedup."""


def price(
    stage: Annotated[str, argument("STAGE", PRICED)],
    *,
    n: Annotated[int, flag("Number of rows.", "--n")],
    delta: Annotated[float, flag("Delta of either.")],
    base_epsilon: Annotated[float | None, flag("What training alone costs;")] = None,
    epsilon: Annotated[float | None, flag("or what all of it may cost together.")] = None,
    gap: Annotated[float | None, flag("pca: the eigengap.")] = None,
    centered: Annotated[bool, flag("pca: of the covariance.", "--centered")] = False,
    strength: Annotated[float | None, flag("soft-pca, scale, shrunk-mean, ridge.")] = None,
    deviation: Annotated[float | None, flag("scale: least deviation of a column.")] = None,
    missing: Annotated[int | None, flag("mean-imputation: rows with missing cells.")] = None,
    radius: Annotated[float | None, flag("quantize: reach of a cluster.")] = None,
    crowd: Annotated[int | None, flag("quantize, dedup: most rows in four reaches.")] = None,
    clip: Annotated[float, flag("Bound on a row's contribution.")] = 1.0,
    constant: Annotated[float, flag("How much it moves when its row does.")] = 1.0,
    plot: Annotated[Path | None, flag("Draw it for many budgets: a file.svg.")] = None,
    as_json: Json = False,
) -> None:
    """What a step fitted on the private rows without noise costs, whoever trains afterwards.

    For a training that by itself has --base-epsilon: what it comes to together with the step, by
    Tacit's rules, by the theorem and the table of Hu, Sanyal and Schoelkopf (2024), and by group
    privacy. With --epsilon instead: what training may cost so that the whole stays within it.
    Rows have norm at most 1; a row replaced is what neighbours differ by. It prices pipelines
    that you train with other tools, too.

    \b
    Examples:
      tacit price pca --n 10000 --gap 0.1 --base-epsilon 1 --delta 1e-5
      tacit price soft-pca --n 10000 --strength 0.05 --epsilon 1 --delta 1e-5 --plot price.svg
    """
    from tacit.research.tasks.price import price as find

    given = {"gap": gap, "centered": centered or None, "strength": strength}
    given |= {"deviation": deviation, "missing": missing, "radius": radius, "crowd": crowd}
    asked: dict[str, Any] = {"n": n, "delta": delta, "clip": clip, "constant": constant, **given}
    found = find(stage, base_epsilon=base_epsilon, epsilon=epsilon, plot=plot, **asked)
    if as_json:
        dump(found.to_dict())
        return
    from rich.console import Console

    from tacit.research.price.show import show_price

    show_price(found, Console())
    if plot is not None:
        say(f"Drawn in {plot}")


def attach(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(price)
