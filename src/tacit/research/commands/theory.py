"""``tacit theory``: what theorems promise for a setting, on the command line."""

from __future__ import annotations

from typing import Annotated

from tacit.cli.console import Json, dump, flag, given

NEIGHBORS = """What differing in one row means: replace_special unless given,
add_or_remove_one, replace_one."""
NORM = """At least the norm of the best weights (with --clip: of the clipped objective's). 1
unless given."""
LIPSCHITZ = """Largest slope of the loss in the score. 1 unless given."""
SMOOTHNESS = """Of the loss in the score, for losses that are not convex: 0.25 for logistic."""
DECAY = """Power by which restricted Lipschitz coefficients of the gradients fall."""
TAIL = """Sum of the eigenvalues of the rows behind the components."""
INFLATION = """Times the noise that projecting private rows costs: see tacit price pca. 1
unless given."""

Number = float | None
Integer = int | None


def theory(
    *,
    n: Annotated[int, flag("Rows.", "--n")],
    d: Annotated[int, flag("Columns.", "--d")],
    epsilon: Annotated[float, flag("Privacy budget.")],
    delta: Annotated[float, flag("Its delta.")],
    rank: Annotated[Integer, flag("Rank of the rows; all of it if not given.")] = None,
    norm: Annotated[Number, flag(NORM)] = None,
    lipschitz: Annotated[Number, flag(LIPSCHITZ)] = None,
    bound: Annotated[Number, flag("Largest norm of a row. 1 unless given.")] = None,
    neighbors: Annotated[str | None, flag(NEIGHBORS)] = None,
    diameter: Annotated[Number, flag("Largest distance of two rows.")] = None,
    margin: Annotated[Number, flag("Of unit rows and unit weights that separate them.")] = None,
    components: Annotated[Integer, flag("Components that rows are projected on.")] = None,
    xi: Annotated[Number, flag("Part of the separator that they lose. 0 unless given.")] = None,
    decay: Annotated[Number, flag(DECAY)] = None,
    clip: Annotated[Number, flag("Norm that gradients are clipped to.")] = None,
    smoothness: Annotated[Number, flag(SMOOTHNESS)] = None,
    tail: Annotated[Number, flag(TAIL)] = None,
    inflation: Annotated[Number, flag(INFLATION)] = None,
    as_json: Json = False,
) -> None:
    """Compare what the theorems of the five papers promise for a setting.

    Excess risk of a private model over the best one, on the rows trained on or on fresh ones, and
    what no private algorithm can improve on. Bounds that need a fact which is not given are left
    out and named. Only those with the same letter may be compared. No data are read: the
    facts must be public, or guesses.

    \b
    Examples:
      tacit theory --n 60000 --d 784 --epsilon 1 --delta 1e-6
      tacit theory --n 10000 --d 2048 --rank 400 --epsilon 0.1 --delta 1e-6 --margin 0.1 \\
        --components 40 --diameter 0.8 --decay 0.7
    """
    from tacit.research.theory import Setting, compare

    setting = given(n=n, d=d, epsilon=epsilon, delta=delta, neighbors=neighbors, rank=rank)
    setting |= given(norm=norm, lipschitz=lipschitz, bound=bound, diameter=diameter, margin=margin)
    setting |= given(components=components, xi=xi, decay=decay, clip=clip, smoothness=smoothness)
    found = compare(Setting(**setting, **given(tail=tail, inflation=inflation)))
    if as_json:
        dump(found.to_dict())
        return
    from rich.console import Console

    from tacit.research.theory.show import show_comparison

    show_comparison(found, Console())
