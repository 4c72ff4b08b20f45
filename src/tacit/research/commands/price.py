"""``tacit price``: what a step without noise costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tacit.cli.console import Json, argument, dump, flag, given, say
from tacit.cli.options import Delta

STAGES = """pca, soft-pca, scale, mean-imputation, median-imputation, trimmed-mean-imputation,
regression-imputation, shrunk-mean, ridge, quantize or dedup."""

CELLS = """median- and trimmed-mean-imputation: most values that a row lacks. 1 unless given."""

Number = float | None


def price(
    stage: Annotated[str, argument("STAGE", STAGES)],
    *,
    n: Annotated[int, flag("Number of rows.", "--n")],
    delta: Delta,
    base_epsilon: Annotated[Number, flag("What training alone costs;")] = None,
    epsilon: Annotated[Number, flag("or what all of it may cost together.")] = None,
    gap: Annotated[Number, flag("pca: the eigengap.")] = None,
    centered: Annotated[bool, flag("pca: of the covariance.", "--centered")] = False,
    strength: Annotated[Number, flag("soft-pca, scale, shrunk-mean, ridge.")] = None,
    deviation: Annotated[Number, flag("scale: least deviation of a column.")] = None,
    missing: Annotated[int | None, flag("…-imputation: rows with missing values.")] = None,
    cells: Annotated[int | None, flag(CELLS)] = None,
    change: Annotated[Number, flag("median-imputation: most that a row moves a median.")] = None,
    trim: Annotated[int | None, flag("trimmed-mean-imputation: values left out at an end.")] = None,
    smallest: Annotated[Number, flag("regression-imputation: least eigenvalue of XᵀX,")] = None,
    largest: Annotated[Number, flag("and the largest.")] = None,
    radius: Annotated[Number, flag("quantize: reach of a cluster.")] = None,
    crowd: Annotated[int | None, flag("quantize, dedup: most rows in four reaches.")] = None,
    clip: Annotated[Number, flag("Bound on a row's contribution. 1 unless given.")] = None,
    constant: Annotated[Number, flag("How much it moves when its row does. 1 unless given.")] = (
        None
    ),
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
    from tacit.research.tasks.price import price as price_of

    asked = given(n=n, delta=delta, base_epsilon=base_epsilon, epsilon=epsilon, gap=gap)
    asked |= given(centered=centered or None, strength=strength, deviation=deviation)
    asked |= given(cells=cells, change=change, trim=trim, smallest=smallest, largest=largest)
    asked |= given(missing=missing, radius=radius, crowd=crowd, clip=clip, constant=constant)
    found = price_of(stage, plot=plot, **asked)
    if as_json:
        dump(found.to_dict())
        return
    from rich.console import Console

    from tacit.research.price.show import show_price

    show_price(found, Console())
    if plot is not None:
        say(f"Drawn in {plot}")
