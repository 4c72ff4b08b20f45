"""``tacit data``: public data sets, on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.console import Json, argument, dump, say

group = typer.Typer(
    help="Public data sets to try things on: which there are, and how to get them.\n\n"
    "Files are looked for in the folder that TACIT_DATA names, then in your cache folder. Their "
    "checksums are verified whenever they are read.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@group.command("list")
def list_(as_json: Json = False) -> None:
    """The data sets: rows and features, source, licence, and where their files are.

    \b
    Example:
      tacit data list
    """
    from tacit.datasets import SOURCES

    facts = [_facts(name) for name in SOURCES]
    if as_json:
        dump({"datasets": facts})
        return
    for one in facts:
        features = f" × {one['features']:,}" * bool(one["features"])
        say(f"{one['name']}: {one['title']}; {one['rows']}{features}")
        say(f"  source: {one['source']}; licence: {one['licence']}")
        say(f"  {one['where']}")


@group.command()
def fetch(
    names: Annotated[list[str], argument("NAME...", "Names as tacit data list shows them.")],
    as_json: Json = False,
) -> None:
    """Get data sets from their public sources, and verify what is there already.

    \b
    Example:
      tacit data fetch mnist bank
    """
    from tacit.datasets import SOURCES
    from tacit.datasets.sources import get_source
    from tacit.datasets.store import fetch, verify

    for name in names:
        get_source(name)
    for name in names:
        fetch(name, report=lambda url: say(f"Fetching {url}", err=True))
        verify(name)
    if as_json:
        dump({"datasets": [_facts(name) for name in names]})
        return
    for name in names:
        say(f"{name}: {len(SOURCES[name].files)} files verified; {_facts(name)['where']}")


def _facts(name: str) -> dict[str, object]:
    from tacit.datasets import SOURCES, find

    source, places = SOURCES[name], find(name)
    lost = [file for file, path in places.items() if path is None]
    folders = dict.fromkeys(str(path.parent) for path in places.values() if path is not None)
    where = f"found in {' and '.join(folders)}" if places else "comes with the package"
    if lost:
        public = all(file.url for file in source.files if file.name in lost)
        how = f"tacit data fetch {name}" if public else f"put it in TACIT_DATA/{name}"
        where = f"missing: {', '.join(lost)} ({how})"
    return {
        "name": name,
        "title": source.title,
        "rows": source.rows,
        "features": source.features,
        "source": source.origin,
        "licence": source.licence,
        "missing": lost,
        "where": where,
    }
