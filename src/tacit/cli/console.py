"""What all commands share: how flags are declared, and how words and JSON get out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tacit.progress import Progress

LONGEST_LINE = 2000  # characters


def flag(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text)


def argument(name: str, text: str) -> Any:
    return typer.Argument(metavar=name, help=text)


Json = Annotated[bool, flag("One JSON object on standard output.", "--json")]


def given(**options: Any) -> dict[str, Any]:
    """Those of the options that were given; Python has defaults for the others."""
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def shown_progress(wanted: bool) -> Iterator[Progress]:
    """A progress bar, or none."""
    from tacit.progress import progress_bar, silent

    if not wanted:
        yield silent
        return
    with progress_bar() as bar:
        yield bar


def say(text: str, *, err: bool = False) -> None:
    """Print text; characters that could steer a terminal are shown as escapes."""
    shown = (c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)
    typer.echo("".join(shown), err=err)


def warn(cautions: Iterable[str]) -> None:
    """What a certificate warns of, on standard error."""
    for caution in cautions:
        say(f"Warning: {line(caution)}", err=True)


@contextmanager
def plain_warnings() -> Iterator[set[str]]:
    """Warnings of Python without the lines of code that they come from; which there were."""
    said = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        said.add(str(message))
        warn([str(message)])

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield said


def line(text: object) -> str:
    """Words from a file, on one line: they cannot pass for lines of ours, nor fill the screen."""
    words = " ".join(str(text).splitlines())
    return words if len(words) <= LONGEST_LINE else words[:LONGEST_LINE] + " ..."


def dump(data: dict[str, Any]) -> None:
    typer.echo(json.dumps(data, indent=2, allow_nan=False))
