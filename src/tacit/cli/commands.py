"""The commands, by name: functions, and groups of them."""

from __future__ import annotations

from collections.abc import Callable

import typer

from tacit.cli import (
    audit,
    data,
    demo,
    evaluate,
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

#: In the order of the help.
COMMANDS: Registry[Callable[..., None] | typer.Typer] = Registry(
    "command",
    "commands",
    {
        "demo": demo.demo,
        "schema": schema.schema,
        "plan": plan.plan,
        "fit": fit.fit,
        "predict": predict.predict,
        "evaluate": evaluate.evaluate,
        "verify": verify.verify,
        "ledger": ledger.group,
        "inspect": inspect.inspect,
        "audit": audit.audit,
        "data": data.group,
        "features": features.features,
    },
)
