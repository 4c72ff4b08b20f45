"""``tacit reproduce``: the papers' claims, tested."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import Json, dump, flag, say, shown_progress
from tacit.cli.options import Quiet

NAMES = """Of claims; all of them if none is given. --list shows what there is."""
JOBS = """Experiments at a time, each with one thread; one for every core if not given."""
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help=NAMES)]


def reproduce(
    names: Names = None,
    *,
    listed: Annotated[bool, flag("Show all claims, and test none.", "--list")] = False,
    quick: Annotated[bool, flag("Small sizes: which way do effects go?", "--quick")] = False,
    seeds: Annotated[int | None, flag("Runs of each experiment: 5, or 2 with --quick.")] = None,
    first_seed: Annotated[int, flag("Of these runs; others give fresh noise.")] = 0,
    out: Annotated[Path, flag("Directory for results, pictures and the page.")] = Path(
        "tacit-reproduction"
    ),
    jobs: Annotated[int | None, flag(JOBS)] = None,
    fresh: Annotated[bool, flag("Compute anew what an earlier run left.", "--fresh")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Test the tables and figures of the five papers that Tacit is built on.

    Every claim gets a JSON file, its pictures, and a place on the pages reproduction.html and
    REPRODUCTION.md, where the paper's numbers stand beside ours. What an interrupted run has
    computed is kept, and the next one goes on from there. Data sets are read from the
    directory that TACIT_DATA names; see tacit data.

    \b
    Examples:
      tacit reproduce --list
      tacit reproduce song-clipping
      tacit reproduce --quick --out first-look
    """
    from tacit.research.reproduce import CLAIMS, Outcome
    from tacit.research.reproduce import reproduce as test

    if listed:
        if as_json:
            dump(
                {
                    "claims": [
                        {"name": c.name, "source": c.source, "title": c.title}
                        for c in CLAIMS.values()
                    ]
                }
            )
        else:
            wide = 2 + max(len(claim.source) for claim in CLAIMS.values())
            for claim in CLAIMS.values():
                say(f"{claim.name:<20}{claim.source:<{wide}}{claim.title}")
        return

    def tell(outcome: Outcome) -> None:
        if not as_json:
            say(
                f"{outcome.claim.name:<20}{outcome.verdict}"
                + (f": {outcome.missing}" if outcome.missing else "")
            )

    try:
        with shown_progress(not (quiet or as_json)) as progress:
            outcomes = test(
                names or (),
                out=out,
                quick=quick,
                seeds=seeds,
                first_seed=first_seed,
                jobs=(os.cpu_count() or 1) if jobs is None else jobs,
                fresh=fresh,
                progress=progress,
                tell=tell,
            )
    except KeyboardInterrupt:
        say(f"interrupted; what was computed is kept in {out}, and the next run goes on", err=True)
        raise typer.Exit(130) from None
    if as_json:
        dump({"out": str(out), "claims": [outcome.as_dict() for outcome in outcomes]})
    else:
        say(f"see {out / 'reproduction.html'}")
