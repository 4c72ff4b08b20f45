"""``tacit verify``: the claim of a certificate, recomputed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import Json, argument, dump, line, say


def verify(
    path: Annotated[Path, argument("FILE", "A certificate, a model, or the directory of a fit.")],
    as_json: Json = False,
) -> None:
    """Recompute the claim of a certificate.

    Its events are composed again, by two routes that share no code. The exit code is 1 if the
    claim does not hold, if plans like it were found to be false since ("revoked", as far as this
    version knows), or if a file of a directory was changed, damaged, or left by another run.

    \b
    Example:
      tacit verify model
    """
    from tacit.cli.tasks.verify import verify as recompute
    from tacit.privacy.accounting.group import rounded_up

    verdict = recompute(path)
    claim = verdict.certificate
    for reason in claim.reasons if claim else ():
        say(f"NOT FOR RELEASE: {line(reason)}", err=True)
    if as_json:
        dump(verdict.to_dict())
    else:
        if claim:
            say(
                f"claimed{'':<8}epsilon {claim.epsilon:g}, delta {claim.delta:g}, {claim.neighbors}"
            )
            if claim.unit.kind != "row":
                say(f"{'unit':<15}{line(claim.unit.described)}")
        for route, found in verdict.recomputed.items():
            say(f"{route:<15}epsilon {found:.6g}")
        for rows, several in (claim.groups if claim else {}).items():
            stated = "no promise" if several is None else f"epsilon {rounded_up(several)}"
            say(f"{f'with {rows} rows':<15}{stated}, at the same delta")
        for problem in verdict.problems:
            say(line(problem) if problem in verdict.revoked else f"problem: {line(problem)}")
        say("The claim DOES NOT HOLD." if verdict.problems else "The claim holds.")
    raise typer.Exit(1 if verdict.problems else 0)
