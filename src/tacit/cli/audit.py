"""``tacit audit``: try to refute the ε of a whole plan, on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.console import Json, argument, dump, flag, say

__all__ = ["attach"]

NAMED = """Recipes, or all: dpsgd-f, dpsgd-f-theory, dpsgd, dp-gd, pillar, jl, dp-pca, soft-pca,
ptr-pca and others."""
STAGE = """Instead of a recipe: a step before full-batch training, such as
'SoftPCA(strength=0.05)'; give it as often as there are steps, in their order."""
NAIVE = """Instead: a pipeline that ignores its preprocessing, to see it caught; centring, dedup or
pca."""
OBSERVE = """What the adversary sees: steps (all noisy sums, as the account assumes) or model."""
TRAINER = """Instead of the recipes': dp-gd, dpsgd, noisy-sgd, or another that tacit fit names."""
RUNS = """Runs for each plan, half of them on either table; or canaries, with --one-run."""
NEIGHBORS = """replace_special, add_or_remove_one, replace_one; auto: replace_one if a stage looks
at the rows without noise, replace_special otherwise."""


def audit(
    recipes: Annotated[list[str] | None, argument("RECIPE...", NAMED)] = None,
    *,
    epsilon: Annotated[float, flag("The epsilon to be refuted.")],
    delta: Annotated[float, flag("Its delta.")],
    runs: Annotated[int, flag(RUNS)] = 2000,
    one_run: Annotated[bool, flag("One run with many canaries.", "--one-run")] = False,
    observe: Annotated[str, flag(OBSERVE)] = "steps",
    confidence: Annotated[float, flag("Of the lower bound.")] = 0.95,
    neighbors: Annotated[str, flag(NEIGHBORS)] = "auto",
    stage: Annotated[list[str] | None, flag(STAGE)] = None,
    naive: Annotated[list[str] | None, flag(NAIVE)] = None,
    steps: Annotated[int | None, flag("Training steps.")] = None,
    trainer: Annotated[str | None, flag(TRAINER)] = None,
    jobs: Annotated[int, flag("Processes; -1 for one a core.")] = -1,
    seed: Annotated[int | None, flag("Makes the audit repeatable.")] = None,
    plot: Annotated[Path | None, flag("Draw bounds against claims: a file.svg.")] = None,
    quiet: Annotated[bool, flag("No progress bar.", "--quiet")] = False,
    as_json: Json = False,
) -> None:
    """Try to refute the epsilon of whole plans, preprocessing included.

    Each plan is run many times on two tiny tables that differ in one row, the worst that its rules
    allow. How well the outcomes can be told apart is a lower bound on epsilon, which must stay
    below the claim. No table of yours is read. The exit code is 1 if a claim is refuted.

    \b
    Examples:
      tacit audit dpsgd-f --epsilon 4 --delta 1e-5
      tacit audit all --epsilon 4 --delta 1e-5 --plot audit.svg
      tacit audit --naive centring --epsilon 1 --delta 1e-5 --runs 500
    """
    from contextlib import nullcontext

    from tacit.audit import audit as refute
    from tacit.audit import audit_naive
    from tacit.audit.picture import plot_audits
    from tacit.exceptions import FileError, InputError
    from tacit.plan.recipes import RECIPES, parse_stage
    from tacit.progress import progress_bar, silent

    named = [name for given in recipes or () for name in (RECIPES if given == "all" else [given])]
    if not (named or stage or naive):
        raise InputError(f"name a recipe ({', '.join(RECIPES)}), all, --stage or --naive")
    if naive and one_run:
        raise InputError("--naive takes many runs; leave out --one-run")
    if plot is not None and plot.suffix.lower() != ".svg":
        raise FileError(f"{plot}: an audit is drawn as SVG; the name must end in .svg")
    subjects: list[Any] = list(named)
    if stage:
        subjects.append([parse_stage(text) for text in stage])
    shared: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "runs": runs}
    shared |= {"confidence": confidence, "observe": observe, "seed": seed, "jobs": jobs}
    more: dict[str, Any] = {"neighbors": neighbors}
    more["method"] = "one-run" if one_run else "many-runs"
    more |= {} if steps is None else {"steps": steps}
    if trainer is not None and stage:
        raise InputError("--trainer is for recipes; behind --stage it is full-batch descent")
    more |= {} if trainer is None else {"trainer": trainer}
    found = []
    with nullcontext(silent) if quiet or as_json else progress_bar() as shown:
        for what in subjects:
            label = what if isinstance(what, str) else "stages"
            found.append(refute(what, **shared, **more, progress=_named(label, shown)))
        for name in naive or ():
            found.append(audit_naive(name, **shared, progress=_named(name, shown)))
    if plot is not None:
        plot_audits(found, plot)
    refuted = [one for one in found if not one.holds]
    if as_json:
        dump({"holds": not refuted, "audits": [one.to_dict() for one in found]})
    else:
        say(f"{'':<28}{'claimed':>9}{'at least':>10}")
        for one in found:
            verdict = "not refuted" if one.holds else "REFUTED"
            say(f"{one.name:<28}{one.claimed:>9.4g}{one.lower:>10.3g}   {verdict}")
        say(f"delta {delta:g}; each bound holds with {confidence:.0%} confidence.")
        if plot is not None:
            say(f"Drawn in {plot}")
    raise typer.Exit(1 if refuted else 0)


def _named(label: str, show: Any) -> Any:
    return lambda _, done, total: show(label, done, total)


def attach(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(audit)
