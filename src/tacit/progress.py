"""Progress of long work, as a plain callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

#: Called with what is going on, how much of it is done, and how much there is.
Progress: TypeAlias = Callable[[str, int, int], None]


def silent(label: str, done: int, total: int) -> None:
    """No progress shown."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on standard error, one line per kind of work; steps only, no timings per step."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description:<12}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=False) as bar:
        tasks: dict[str, int] = {}

        def show(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=total)
            bar.update(tasks[label], completed=done, total=total)  # type: ignore[arg-type]

        yield show
