"""The commands, by name: what adds each of them to the application."""

from __future__ import annotations

from collections.abc import Callable

import typer

from tacit.cli import (
    audit,
    data,
    demo,
    features,
    fit,
    inspect,
    ledger,
    plan,
    predict,
    schema,
    verify,
)
from tacit.registry import Registry

__all__ = ["COMMANDS"]

#: In the order of the help.
COMMANDS: Registry[Callable[[typer.Typer], None]] = Registry(
    "command",
    "commands",
    {
        "demo": demo.attach,
        "schema": schema.attach,
        "plan": plan.attach,
        "fit": fit.attach,
        "predict": predict.attach,
        "verify": verify.attach,
        "ledger": ledger.attach,
        "inspect": inspect.attach,
        "audit": audit.attach,
        "data": data.attach,
        "features": features.attach,
    },
)
