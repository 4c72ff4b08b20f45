"""Files that a command writes: whole and together, and a ledger's entry last."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tacit.exceptions import TacitError, add_consequence
from tacit.files import new_output
from tacit.ledger import DeferredLedger, Ledger
from tacit.privacy.certificate import Certificate

MODEL, CERTIFICATE, REPORT = FILES = ("model.safetensors", "certificate.json", "report.html")
BASE = 1 << 16  # bytes of a file, besides what grows with the table

PathLike: TypeAlias = str | os.PathLike[str]


@contextmanager
def output_in(
    out: PathLike | None, names: tuple[str, ...], force: bool, options: dict[str, Any] | None = None
) -> Iterator[Any]:
    """A place for these files, or for none; what came of a plan is recorded once they are there.

    The ledger among ``options`` is replaced by one that waits for it.
    """
    if out is None:
        yield None
        return
    held, output = None, None
    if isinstance((options or {}).get("ledger"), Ledger):
        assert options is not None
        held = options["ledger"] = DeferredLedger(options["ledger"])
    try:
        with new_output(Path(os.path.realpath(out)), names, force) as output:
            yield output
    except BaseException as error:
        if output is not None and output.committed:
            if held is not None:
                held.record()
            add_consequence(error, f"Files were written to {out}")
        elif held is not None and held.entry is not None:
            add_consequence(
                error,
                f"The budget of {held.spent} was spent and nothing was written: entry "
                f"{held.entry.number} of the ledger stays, as not finished",
            )
        elif held is not None and held.asked and not isinstance(error, TacitError):
            add_consequence(error, "Whether budget was spent, tacit ledger show tells")
        raise
    if held is not None:
        held.record()


@contextmanager
def paid_for(output: Any, files: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Files that cost budget, to which others may be added: should that fail, these are written."""
    held = dict(files)
    try:
        yield held
    finally:
        output.commit(held)


def written(certificate: Certificate) -> bytes:
    """A certificate as its file has it."""
    return certificate.to_json().encode() + b"\n"
