"""``tacit theory``: what theorems promise for a setting, on the command line."""

from __future__ import annotations

from typing import Annotated, Any

from tacit.cli.console import Json, dump, flag, given, say

NEIGHBORS = """What differing in one row means: replace_special unless given,
add_or_remove_one, replace_one."""
NORM = """At least the norm of the best weights (with --clip: of the clipped objective's). 1
unless given."""
LIPSCHITZ = """Largest slope of the loss in the score. 1 unless given."""
SMOOTHNESS = """Of the loss in the score, for losses that are not convex: 0.25 for logistic."""
DECAY = """Power by which restricted Lipschitz coefficients of the gradients fall."""
TAIL = """Sum of the eigenvalues of the rows behind the components."""
GAP = """Eigengap of the rows behind the components, for public rows that are few or shifted."""
SHIFT = """Total variation between public and private rows. 0 unless given."""
ERROR = """An error rate: how many private and public rows the learner of halfspaces needs for it,
with --margin, --components and --gap."""
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
    gap: Annotated[Number, flag(GAP)] = None,
    shift: Annotated[Number, flag(SHIFT)] = None,
    public: Annotated[Integer, flag("Public rows behind the components.", "--public-rows")] = None,
    error: Annotated[Number, flag(ERROR)] = None,
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
      tacit theory --n 50000 --d 500 --epsilon 1 --delta 1e-6 --margin 0.5 --components 2 \\
        --gap 0.3 --shift 0.01 --error 0.2
    """
    from tacit.research.theory import Setting, compare

    setting = given(n=n, d=d, epsilon=epsilon, delta=delta, neighbors=neighbors, rank=rank)
    setting |= given(norm=norm, lipschitz=lipschitz, bound=bound, diameter=diameter, margin=margin)
    setting |= given(components=components, xi=xi, decay=decay, clip=clip, smoothness=smoothness)
    setting |= given(tail=tail, inflation=inflation, gap=gap, shift=shift, public=public)
    found = compare(Setting(**setting))
    sizes = None if error is None else _sizes(error, setting)
    if as_json:
        dump({**found.to_dict(), **({} if sizes is None else {"sizes": sizes})})
        return
    from rich.console import Console

    from tacit.research.theory.show import show_comparison

    show_comparison(found, Console())
    if sizes is not None:
        say(
            f"For an error rate of {error:g} the learner of Theorem 1 (Pinto et al. 2024) needs "
            f"{sizes['private']:,} private rows with labels and {sizes['public']:,} public ones: "
            f"{sizes['runs']} runs of {sizes['steps']:,} steps, hinge loss at margin "
            f"{sizes['margin']:.3g}, with probability {1 - sizes['failure']:g}."
        )


def _sizes(error: float, setting: dict[str, Any]) -> dict[str, Any]:
    """What the learner of halfspaces needs for an error rate."""
    from tacit.exceptions import InputError
    from tacit.research.theory.learner import halfspace_learner

    if missing := [name for name in ("margin", "components", "gap") if name not in setting]:
        raise InputError(f"--error needs {' and '.join(f'--{name}' for name in missing)}")
    names = ("epsilon", "delta", "margin", "gap", "xi", "shift", "neighbors", "public")
    taken = {name: setting[name] for name in names if name in setting}
    found = halfspace_learner(error, setting["components"], **taken)
    shown = ("private", "public", "runs", "steps", "margin", "choice_noise", "failure")
    return {"error": error, **{name: getattr(found, name) for name in shown}}
