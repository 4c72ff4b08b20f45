"""The command line: arguments in, words or one JSON object out.

Every command is a module of its own; here they are put together. What they do is in
`tacit.cli.tasks`, imported when one runs, so that ``tacit --help`` answers at once. Exit codes: 0
success; 1 ``verify`` found a false claim, or ``ledger check`` a changed ledger; 2 bad input, or a
machine that cannot do it; 3 the budget does not allow it, or a private test did not pass; 4 a
mistake of Tacit's own; 130 interrupted.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from tacit import __version__
from tacit.cli.commands import COMMANDS
from tacit.cli.console import line, plain_warnings, say
from tacit.exceptions import FOR_CURATORS, BudgetError, PrivateTestError, TacitError, consequences

REFUSALS = (BudgetError, PrivateTestError)
TRACEBACK = "TACIT_TRACEBACK"


class Commands(TyperGroup):
    """The commands; whatever is raised becomes one line and a code.

    An error that Tacit did not raise on purpose may quote private values, so its words are not
    shown: its kind and its place are.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            with plain_warnings():
                return super().invoke(ctx)
        except TacitError as error:
            marked = f" ({FOR_CURATORS})" if error.depends_on_rows else ""
            code = 3 if isinstance(error, REFUSALS) else 2
            self._end(error, f"error: {str(error).rstrip('.')}{marked}", code)
        except MemoryError as error:
            self._end(error, "error: the memory of this machine is not enough for that", 2)
        except KeyboardInterrupt as error:
            notes = consequences(error)
            self._end(error, "interrupted" if notes else "interrupted; nothing was written", 130)
        except Exception as error:
            ours = isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "exit_code")
            if ours or isinstance(error, BrokenPipeError) or os.environ.get(TRACEBACK):
                raise
            self._end(error, f"error: {_mistake(error)}", 4)

    @staticmethod
    def _end(error: BaseException, words: str, code: int) -> NoReturn:
        """Say what happened, and what has become of budget and files."""
        say(line(". ".join([words.rstrip("."), *consequences(error)])), err=True)
        raise typer.Exit(code) from error


def _mistake(error: Exception) -> str:
    """Kind and place of an error that nobody foresaw."""
    places = [f for f in traceback.extract_tb(error.__traceback__) if "tacit" in f.filename]
    where = f" in {Path(places[-1].filename).name}, line {places[-1].lineno}" if places else ""
    return (
        f"{type(error).__name__}{where}: a mistake of Tacit's own, please report it. With "
        f"{TRACEBACK}=1 in the environment it is shown in full, and may then show private values"
    )


app = typer.Typer(
    cls=Commands,
    help="Differentially private linear models in which the whole pipeline is counted.\n\n"
    "Begin with: tacit demo. For a table of your own: tacit schema, fill in what is public, tacit "
    "fit, tacit verify. Every command takes --json, and --help explains it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,  # local variables hold private rows
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in COMMANDS.items():
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def show_version(wanted: bool) -> None:
    if wanted:
        say(f"tacit {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
]


@app.callback()
def common(version: Version = False) -> None:
    pass


def main() -> None:
    """The ``tacit`` command."""
    app(prog_name="tacit")
