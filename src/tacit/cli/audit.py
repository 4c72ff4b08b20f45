"""``tacit audit``: try to refute the ε of a whole plan, on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.console import Json, argument, dump, flag, given, say, shown_progress
from tacit.cli.options import Quiet

NAMED = """Recipes, or all: dpsgd-f, dpsgd-f-theory, dpsgd, dp-gd, pillar, jl, dp-pca, soft-pca,
ptr-pca and others."""
STAGE = """Instead of a recipe: a step before full-batch training, such as
'SoftPCA(strength=0.05)'; give it as often as there are steps, in their order."""
LEAKY = """Instead: a pipeline that ignores its preprocessing, to see it caught; centring, dedup or
pca."""
OBSERVE = """What the adversary sees: steps, unless given (all noisy sums, as the account assumes),
or model."""
TRAINER = """Instead of the recipes': dp-gd, dpsgd, noisy-sgd, or another that tacit fit names."""
RUNS = """Runs for each plan, half of them on either table; or canaries, with --one-run.
2000 unless given."""
NEIGHBORS = """replace_special, add_or_remove_one, replace_one; auto, unless given: replace_one if a
stage looks at the rows without noise, replace_special otherwise."""


def audit(
    recipes: Annotated[list[str] | None, argument("RECIPE...", NAMED)] = None,
    *,
    epsilon: Annotated[float, flag("The epsilon to be refuted.")],
    delta: Annotated[float, flag("Its delta.")],
    runs: Annotated[int | None, flag(RUNS)] = None,
    one_run: Annotated[bool, flag("One run with many canaries.", "--one-run")] = False,
    observe: Annotated[str | None, flag(OBSERVE)] = None,
    confidence: Annotated[float | None, flag("Of the lower bound. 0.95 unless given.")] = None,
    neighbors: Annotated[str | None, flag(NEIGHBORS)] = None,
    stage: Annotated[list[str] | None, flag(STAGE)] = None,
    leaky: Annotated[list[str] | None, flag(LEAKY)] = None,
    steps: Annotated[int | None, flag("Training steps.")] = None,
    trainer: Annotated[str | None, flag(TRAINER)] = None,
    jobs: Annotated[int, flag("Processes; -1 for one a core.")] = -1,
    seed: Annotated[int | None, flag("Makes the audit repeatable.")] = None,
    plot: Annotated[Path | None, flag("Draw bounds against claims: a file.svg.")] = None,
    quiet: Quiet = False,
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
      tacit audit --leaky centring --epsilon 1 --delta 1e-5 --runs 500
    """
    from tacit.audit import audit as refute
    from tacit.audit import audit_leaky
    from tacit.audit.picture import plot_audits
    from tacit.exceptions import InputError
    from tacit.files import svg_file
    from tacit.plan.recipes import RECIPES, parse_stage

    named = [name for given in recipes or () for name in (RECIPES if given == "all" else [given])]
    if not (named or stage or leaky):
        raise InputError(f"name a recipe ({', '.join(RECIPES)}), all, --stage or --leaky")
    if leaky and one_run:
        raise InputError("--leaky takes many runs; leave out --one-run")
    if plot is not None:
        svg_file(plot, "an audit")
    if trainer is not None and stage:
        raise InputError("--trainer is for recipes; behind --stage it is full-batch descent")
    subjects: list[Any] = list(named)
    if stage:
        subjects.append([parse_stage(text) for text in stage])
    shared = given(epsilon=epsilon, delta=delta, runs=runs, confidence=confidence)
    shared |= given(observe=observe, seed=seed, jobs=jobs)
    more = given(neighbors=neighbors, steps=steps, trainer=trainer)
    more |= {"method": "one-run"} if one_run else {}
    found = []
    with shown_progress(not (quiet or as_json)) as shown:
        for what in subjects:
            label = what if isinstance(what, str) else "stages"
            found.append(refute(what, **shared, **more, progress=_named(label, shown)))
        for name in leaky or ():
            found.append(audit_leaky(name, **shared, progress=_named(name, shown)))
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
        say(f"delta {delta:g}; each bound holds with {found[0].confidence:.0%} confidence.")
        if plot is not None:
            say(f"Drawn in {plot}")
    raise typer.Exit(1 if refuted else 0)


def _named(label: str, show: Any) -> Any:
    return lambda _, done, total: show(label, done, total)
