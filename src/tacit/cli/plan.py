"""``tacit plan``: noise and its cost, before any private row is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tacit.cli.console import Json, dump, flag, given, say
from tacit.cli.options import Public
from tacit.cli.settings import Settings, with_settings


@with_settings
def plan(
    *,
    settings: Settings,
    rows: Annotated[int, flag("Number of rows, or of people, or a public stand-in.")],
    schema: Annotated[Path | None, flag("The schema to be fitted with;")] = None,
    columns: Annotated[int | None, flag("or the number of columns.")] = None,
    classes: Annotated[int | None, flag("2 unless given; 0 for a target of numbers.")] = None,
    public: Public = None,
    as_json: Json = False,
) -> None:
    """Show the noise and its cost before any private row is read.

    \b
    Examples:
      tacit plan --epsilon 1 --delta 1e-6 --rows 50000 --schema patients.yaml
      tacit plan --epsilon 0.3 --delta 1e-6 --rows 50000 --schema patients.yaml \\
        --recipe pillar --public volunteers.parquet
      tacit plan --epsilon 0.3 --delta 1e-6 --rows 50000 --columns 784 --classes 10
      tacit plan --epsilon 1 --delta 1e-6 --rows 50000 --schema patients.yaml --tune clip=0.1,1
    """
    from tacit.cli.tasks import plan as tasks

    facts = given(schema=schema, columns=columns, classes=classes, public=public)
    calibrated = tasks.plan(settings, rows, **facts)
    events = tasks.events(calibrated)
    search = tasks.tuning(settings, rows, **facts) if settings.tune else None
    if as_json:
        budget = {"epsilon": settings.epsilon, "delta": settings.delta}
        facts = {"neighbors": calibrated.plan.neighbors, "events": events}
        extra = {} if search is None else {"tuning": search.to_dict()}
        dump({**budget, **facts, "plan": calibrated.to_dict(), **extra})
        return
    say(f"{calibrated.explain()}\n")
    wide = max(16, *(len(event["stage"]) + 1 for event in events))
    say(f"{'':<{wide}}{'noise':>9}{'times':>7}{'epsilon alone':>15}{'share':>8}")
    for event in events:
        noise, count = (event["parameters"][key] for key in ("noise_multiplier", "count"))
        alone, share = event["epsilon_alone"], event["share"]
        say(f"{event['stage']:<{wide}}{noise:>9.4g}{count:>7}{alone:>15.4g}{share:>8.1%}")
    say(f"{'together':<{wide + 16}}{settings.epsilon:>15.4g}{1:>8.1%}")
    if search is not None:
        say(f"\n{search.explain()}")
